// Source and target side by side, joined by lines as strong as the mean encoder-decoder attention.

const LINE = 34; // the height of a token, as in the style
const alignment = { held: null, near: null, layer: MEAN };

function startAlignment() {
  const weights = WEIGHTS.encoder_decoder;
  const options = [...Array(weights.layers).keys()].map((n) => new Option(String(n + 1), n));
  $("alignment-layer").replaceChildren(new Option("mean of layers", MEAN), ...options);
  $("alignment-layer").addEventListener("change", (event) => {
    alignment.layer = event.target.value === MEAN ? MEAN : Number(event.target.value);
    drawLines();
  });
  $("threshold").addEventListener("input", drawLines);
  $("release").addEventListener("click", () => hold(null));
  for (const side of ["source", "target"]) {
    const tokens = side === "source" ? data.sourceTokens : data.saidTokens;
    $(`alignment-${side}`).replaceChildren(...tokens.map((text, place) => end(side, text, place)));
  }
  const height = LINE * Math.max(weights.rows, weights.columns);
  $("alignment-lines").setAttribute("viewBox", `0 0 100 ${height}`);
  $("alignment-lines").style.height = `${height}px`;
  const box = $("alignment-view");
  rove(box, "[role=option]", (item, key) => {
    const mine = [...item.parentElement.children];
    const { side, place } = item.dataset;
    const other = [...$(`alignment-${side === "source" ? "target" : "source"}`).children];
    if (key === (side === "source" ? "ArrowRight" : "ArrowLeft")) return other[Math.min(place, other.length - 1)];
    return neighbour(mine, item, key, ["ArrowUp", "ArrowDown"]);
  });
  const at = (event) => event.target.closest("[role=option]");
  box.addEventListener("mouseleave", () => nearTo(null));
  pointing(box, "[role=option]", (item) => item && nearTo(item));
  box.addEventListener("focusout", () => nearTo(null));
  box.addEventListener("click", (event) => at(event) && hold(at(event)));
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hold(null);
    if (!["Enter", " "].includes(event.key) || !at(event)) return;
    event.preventDefault();
    hold(at(event));
  });
  $("alignment-source").firstElementChild.tabIndex = 0;
  drawLines();
}

function end(side, text, place) {
  const made = element("li", { role: "option", tabindex: "-1", "aria-selected": "false" }, token(text), element("small"));
  made.title = text;
  if (side === "target") made.title += `, probability ${percent(data.logProbabilities[place])}`;
  Object.assign(made.dataset, { side, place });
  return made;
}

const same = (one, other) => one !== null && other !== null && one.side === other.side && one.place === other.place;
const placed = (item) => item && { side: item.dataset.side, place: Number(item.dataset.place) };

function hold(item) {
  const chosen = placed(item);
  alignment.held = same(chosen, alignment.held) ? null : chosen;
  drawLines();
}

function nearTo(item) {
  if (same(placed(item), alignment.near)) return;
  alignment.near = placed(item);
  drawLines();
}

function drawLines() {
  const weights = WEIGHTS.encoder_decoder;
  const map = weights.map(alignment.layer, MEAN);
  const least = Number($("threshold").value);
  const chosen = alignment.held ?? alignment.near;
  $("threshold-value").textContent = least.toFixed(2);
  const lines = [];
  for (let row = 0; row < weights.rows; row++) {
    for (let column = 0; column < weights.columns; column++) {
      const weight = map[row * weights.columns + column];
      const mine = chosen && chosen.place === (chosen.side === "source" ? column : row);
      if (weight < least && !(mine && weight >= 0.005)) continue;
      const [from, to] = [LINE * (column + 0.5), LINE * (row + 0.5)];
      const fate = chosen ? (mine ? "mine" : "other") : "";
      lines.push([weight, `<path class="${fate}" d="M0 ${from}C45 ${from} 55 ${to} 100 ${to}" stroke-width="${(0.6 + 7 * weight).toFixed(2)}" stroke-opacity="${(0.15 + 0.85 * weight).toFixed(3)}"/>`]);
    }
  }
  // The strongest last, on top of the others.
  $("alignment-lines").innerHTML = lines.sort((a, b) => a[0] - b[0]).map(([, path]) => path).join("");
  markEnds(chosen, map, weights.columns);
  $("release").disabled = !alignment.held;
}

function markEnds(chosen, map, columns) {
  for (const item of $("alignment-view").querySelectorAll("[role=option]")) {
    const { side, place } = placed(item);
    const across = chosen && side !== chosen.side;
    const weight = across && (side === "source" ? map[chosen.place * columns + place] : map[place * columns + chosen.place]);
    item.setAttribute("aria-selected", same(alignment.held, { side, place }));
    item.classList.toggle("chosen", same(chosen, { side, place }));
    item.className = item.className.replace(/\bw\d+\b/g, "").trim();
    if (across) item.classList.add(`w${level(weight, 1)}`);
    item.lastElementChild.textContent = across ? shown(weight) : "";
  }
  $("alignment-readout").textContent = summary(chosen, map, columns);
}

function summary(chosen, map, columns) {
  const least = Number($("threshold").value);
  if (!chosen && greatest(map) < least) {
    return `No weight reaches ${least.toFixed(2)}: the greatest is ${shown(greatest(map))}. Move the slider to see more lines.`;
  }
  if (!chosen) return "Point at a token, or move to it, to see its lines; click or press Enter to hold it.";
  const ofSource = chosen.side === "source";
  const [mine, others] = ofSource ? [data.sourceTokens, data.saidTokens] : [data.saidTokens, data.sourceTokens];
  const weights = others.map((text, place) => [ofSource ? map[place * columns + chosen.place] : map[chosen.place * columns + place], text]);
  const best = weights.sort((a, b) => b[0] - a[0]).slice(0, 3).map(([weight, text]) => `${quoted(text)} ${shown(weight)}`);
  const what = ofSource ? "is attended to most when saying" : "is said attending most to";
  return `${quoted(mine[chosen.place])} ${what} ${best.join(", ")}`;
}
