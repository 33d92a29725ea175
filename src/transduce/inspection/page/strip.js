// The tokens that one token attends to, in their order, shaded by weight.

const strip = { tokens: null, chips: [] };

// For a column: the tokens that attend to it.
function drawStrip(row, column) {
  const [keys, map] = [tokensOf.keys(), currentMap()];
  const tokens = row === null ? tokensOf.queries() : keys;
  const top = scaleMaximum(map);
  if (tokens !== strip.tokens) layStrip(tokens);
  strip.chips.forEach((chip, index) => {
    const [from, to] = row === null ? [index, column] : [row, index];
    const [weight, masked] = [map[from * keys.length + to], isMasked(from, to)];
    chip.className = `chip ${masked ? "hatched" : `w${level(weight, top)}`}${row !== null && index === column ? " current" : ""}`;
    chip.lastChild.textContent = masked ? "masked" : formatWeight(weight);
  });
}

function layStrip(tokens) {
  strip.tokens = tokens;
  strip.chips = tokens.map((text) => element("span", { class: "chip" }, token(text), element("small")));
  $("strip").dir = direction(tokens === data.sourceTokens ? data.source : data.target);
  if ($("strip").dir === "ltr") return $("strip").replaceChildren(...strip.chips);
  const parts = [...strip.chips];
  for (const [start, end] of leftToRightRuns(tokens)) {
    if (end - start < 2) continue;
    parts[start] = element("span", { class: "run", dir: "ltr" }, ...strip.chips.slice(start, end));
    parts.fill(null, start + 1, end);
  }
  return $("strip").replaceChildren(...parts.filter(Boolean));
}
