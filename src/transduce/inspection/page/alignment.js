// Source and target tokens side by side, connected by lines whose strength is the mean attention of the heads.

const LINE = 34; // height of a token in pixels, as in style.css
const alignment = { selected: null, hovered: null, layer: MEAN, top: 1 };

function startAlignment() {
  const weights = WEIGHTS.encoder_decoder;
  alignment.layer = recall("alignmentLayer", [MEAN, ...Array(weights.layers).keys()]);
  recallSelection(weights);
  // With many tokens, few weights reach 0.05.
  const usual = automaticTop(weights.map(MEAN, MEAN), weights.columns) >= 0.2 ? 0.05 : 0.01;
  $("threshold").value = recallNumber("minimum", 0, 1, usual);
  const options = [...Array(weights.layers).keys()].map((n) => new Option(String(n + 1), n));
  $("alignment-layer").replaceChildren(new Option("mean of layers", MEAN), ...options);
  $("alignment-layer").value = alignment.layer;
  $("alignment-layer").addEventListener("change", (event) => {
    alignment.layer = event.target.value === MEAN ? MEAN : Number(event.target.value);
    remember({ alignmentLayer: alignment.layer });
    drawLines();
  });
  $("threshold").addEventListener("input", () => {
    remember({ minimum: $("threshold").value });
    drawLines();
  });
  $("release").addEventListener("click", () => select(null));
  for (const side of ["source", "target"]) {
    const tokens = side === "source" ? data.sourceTokens : data.targetTokens;
    $(`alignment-${side}`).replaceChildren(...tokens.map((text, index) => alignmentToken(side, text, index)));
  }
  const height = LINE * Math.max(weights.rows, weights.columns);
  $("alignment-lines").setAttribute("viewBox", `0 0 100 ${height}`);
  $("alignment-lines").style.height = `${height}px`;
  const box = $("alignment-view");
  rove(box, "[role=option]", (item, key) => {
    const sameSide = [...item.parentElement.children];
    const { side, index } = item.dataset;
    const other = [...$(`alignment-${side === "source" ? "target" : "source"}`).children];
    if (key === (side === "source" ? "ArrowRight" : "ArrowLeft")) return other[Math.min(index, other.length - 1)];
    return neighbor(sameSide, item, key, ["ArrowUp", "ArrowDown"]);
  });
  const at = (event) => event.target.closest("[role=option]");
  box.addEventListener("mouseleave", () => hover(null));
  pointing(box, "[role=option]", (item) => item && hover(item));
  box.addEventListener("focusout", () => hover(null));
  box.addEventListener("click", (event) => at(event) && select(at(event)));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") select(null);
    if (!["Enter", " "].includes(event.key) || !at(event)) return;
    event.preventDefault();
    select(at(event));
  });
  $("alignment-source").firstElementChild.tabIndex = 0;
  drawLines();
}

function recallSelection({ rows, columns }) {
  const side = recall("selectedSide", [null, "source", "target"]);
  const index = recallNumber("selectedToken", 0, (side === "source" ? columns : rows) - 1, null);
  alignment.selected = side && index !== null ? { side, index } : null;
}

function alignmentToken(side, text, index) {
  const item = element("li", { role: "option", tabindex: "-1", "aria-selected": "false" }, token(text));
  if (side === "target") item.append(element("span", { class: "probability" }, unseen(" probability "), percent(data.logProbabilities[index])));
  item.append(element("small"));
  item.title = text;
  Object.assign(item.dataset, { side, index });
  return item;
}

const same = (a, b) => a !== null && b !== null && a.side === b.side && a.index === b.index;
const positionOf = (item) => item && { side: item.dataset.side, index: Number(item.dataset.index) };

function select(item) {
  const position = positionOf(item);
  alignment.selected = same(position, alignment.selected) ? null : position;
  remember({ selectedSide: alignment.selected?.side ?? null, selectedToken: alignment.selected?.index ?? null });
  drawLines();
}

function hover(item) {
  if (same(positionOf(item), alignment.hovered)) return;
  alignment.hovered = positionOf(item);
  drawLines();
}

function drawLines() {
  const weights = WEIGHTS.encoder_decoder;
  const map = weights.map(alignment.layer, MEAN);
  const minimum = Number($("threshold").value);
  alignment.top = automaticTop(map, weights.columns);
  const active = alignment.selected ?? alignment.hovered;
  $("threshold-value").textContent = minimum.toFixed(2);
  const lines = [];
  for (let row = 0; row < weights.rows; row++) {
    for (let column = 0; column < weights.columns; column++) {
      const weight = map[row * weights.columns + column];
      const isActive = active && active.index === (active.side === "source" ? column : row);
      if (weight < minimum && !(isActive && weight >= Math.min(0.005, minimum))) continue;
      const [from, to] = [LINE * (column + 0.5), LINE * (row + 0.5)];
      const strength = Math.min(1, weight / alignment.top);
      const kind = active ? (isActive ? "active" : "inactive") : "";
      lines.push([weight, `<path class="${kind}" d="M0 ${from}C45 ${from} 55 ${to} 100 ${to}" stroke-width="${(0.6 + 7 * strength).toFixed(2)}" stroke-opacity="${(0.15 + 0.85 * strength).toFixed(3)}"/>`]);
    }
  }
  // Draw the strongest lines last, on top of the others.
  $("alignment-lines").innerHTML = lines.sort((a, b) => a[0] - b[0]).map(([, path]) => path).join("");
  markTokens(active, map, weights.columns);
  $("release").disabled = !alignment.selected;
}

function markTokens(active, map, columns) {
  for (const item of $("alignment-view").querySelectorAll("[role=option]")) {
    const { side, index } = positionOf(item);
    const isOpposite = active && side !== active.side;
    const weight = isOpposite && (side === "source" ? map[active.index * columns + index] : map[index * columns + active.index]);
    item.setAttribute("aria-selected", same(alignment.selected, { side, index }));
    item.classList.toggle("active", same(active, { side, index }));
    item.className = item.className.replace(/\bw\d+\b/g, "").trim();
    if (isOpposite) item.classList.add(`w${level(weight, alignment.top)}`);
    item.lastElementChild.textContent = isOpposite ? formatWeight(weight) : "";
  }
  $("alignment-readout").textContent = summary(active, map, columns);
}

function summary(active, map, columns) {
  const minimum = Number($("threshold").value);
  if (!active && maximum(map) < minimum) {
    return `No weight reaches ${minimum.toFixed(2)}: the maximum is ${formatWeight(maximum(map))}. Move the slider to the left to see lines.`;
  }
  if (!active) return "Point at a token to see its lines; click it or press Enter to select it.";
  const isSource = active.side === "source";
  const [tokens, opposite] = isSource ? [data.sourceTokens, data.targetTokens] : [data.targetTokens, data.sourceTokens];
  const weights = opposite.map((text, index) => [isSource ? map[index * columns + active.index] : map[active.index * columns + index], text]);
  const best = weights.sort((a, b) => b[0] - a[0]).slice(0, 3).map(([weight, text]) => `${quoted(text)} ${formatWeight(weight)}`);
  const verb = isSource ? "gets most attention from" : "attends most to";
  const probability = isSource ? "" : ` (probability ${percent(data.logProbabilities[active.index])})`;
  return `${quoted(tokens[active.index])}${probability} ${verb} ${best.join(", ")}`;
}
