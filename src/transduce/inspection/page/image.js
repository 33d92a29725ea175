// Attention over an image: rollout and every head as small maps, one of them large with its numbers.

const ROLLOUT = "rollout";
const { rows: ROWS, columns: COLUMNS, layers: LAYERS, heads: HEADS } = WEIGHTS.maps;
const shown = { layer: ROLLOUT, head: 0, row: 0, column: 0 };
const weightsOf = (layer, head) => (layer === ROLLOUT ? WEIGHTS.rollout.map(0, 0) : WEIGHTS.maps.map(layer, head));
const nameOf = (layer, head) => (layer === ROLLOUT ? "rollout" : `layer ${layer + 1}, head ${head + 1}`);

// Rollout is another quantity than a head's weights: it always has its own scale.
const topOf = (layer, head) => (layer !== ROLLOUT && $("scale").value === "all" ? data.top : maximum(weightsOf(layer, head)));

function paintMap(canvas, layer, head) {
  Object.assign(canvas, { width: COLUMNS, height: ROWS });
  const context = canvas.getContext("2d");
  const image = context.createImageData(COLUMNS, ROWS);
  const top = topOf(layer, head);
  weightsOf(layer, head).forEach((weight, index) => {
    const color = data.colors[Math.round((data.colors.length - 1) * Math.min(1, top > 0 ? weight / top : 0))];
    image.data.set([...color, 255], 4 * index);
  });
  context.putImageData(image, 0, 0);
}

function thumbnail(layer, head) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  paintMap(canvas, layer, head);
  const peak = maximum(weightsOf(layer, head)).toFixed(3);
  const cell = element(
    "div",
    { role: "gridcell", tabindex: "-1", "aria-label": `${nameOf(layer, head)}, max ${peak}` },
    element("div", { class: "under" }, canvas),
    element("small", {}, `max ${peak}`),
  );
  Object.assign(cell.dataset, { layer, head });
  return cell;
}

function drawOverview() {
  const counted = (count) => [...Array(count).keys()];
  const row = (name, cells) => element("div", { role: "row" }, element("span", { role: "rowheader" }, name), ...cells);
  const head = element("div", { role: "row" }, element("span", { role: "columnheader" }, "Layer"), ...counted(HEADS).map((n) => element("span", { role: "columnheader" }, `Head ${n + 1}`)));
  $("overview").style.setProperty("--heads", HEADS);
  $("overview").replaceChildren(
    row("rollout", [thumbnail(ROLLOUT, 0)]),
    head,
    ...counted(LAYERS).map((layer) => row(String(layer + 1), counted(HEADS).map((number) => thumbnail(layer, number)))),
  );
  mark();
}

function mark() {
  for (const cell of $("overview").querySelectorAll("[role=gridcell]")) {
    const isSelected = cell.dataset.layer === String(shown.layer) && cell.dataset.head === String(shown.head);
    cell.setAttribute("aria-selected", isSelected);
    cell.tabIndex = isSelected ? 0 : -1;
  }
}

function drawLarge() {
  paintMap($("large").firstElementChild, shown.layer, shown.head);
  $("map-name").textContent = nameOf(shown.layer, shown.head).replace(/^./, (letter) => letter.toUpperCase());
  const [weights, top] = [weightsOf(shown.layer, shown.head), topOf(shown.layer, shown.head)];
  $("legend-maximum").textContent = `${maximum(weights) > top ? "≥ " : ""}${top.toFixed(4)}`;
  for (const patch of $("patches").querySelectorAll("[role=gridcell]")) {
    const { row, column } = patch.dataset;
    patch.setAttribute("aria-label", weights[Number(row) * COLUMNS + Number(column)].toFixed(4));
  }
  showPatch();
}

function showPatch() {
  const weight = weightsOf(shown.layer, shown.head)[shown.row * COLUMNS + shown.column];
  const times = (weight * ROWS * COLUMNS).toFixed(1);
  $("readout").textContent = `Patch in row ${shown.row + 1}, column ${shown.column + 1}: weight ${weight.toFixed(4)}, ${times} times that of equal attention to all ${ROWS * COLUMNS} patches`;
  $("patches").querySelector(".current")?.classList.remove("current");
  patchAt(shown.row, shown.column).classList.add("current");
}

const patchAt = (row, column) => $("patches").children[row]?.children[column];

function makePatches() {
  const rows = [...Array(ROWS).keys()].map((row) => {
    const cells = [...Array(COLUMNS).keys()].map((column) => {
      const patch = element("div", { role: "gridcell", tabindex: "-1" });
      Object.assign(patch.dataset, { row, column });
      return patch;
    });
    return element("div", { role: "row" }, ...cells);
  });
  $("patches").replaceChildren(...rows);
  $("patches").style.setProperty("--rows", ROWS);
  $("patches").style.setProperty("--columns", COLUMNS);
  patchAt(shown.row, shown.column).tabIndex = 0;
  rove($("patches"), "[role=gridcell]", (item, key) => {
    const [row, column] = [Number(item.dataset.row), Number(item.dataset.column)];
    if (key === "Home") return patchAt(row, 0);
    if (key === "End") return patchAt(row, COLUMNS - 1);
    return ARROWS[key] && patchAt(row + ARROWS[key][1], column + ARROWS[key][0]);
  });
  pointing($("patches"), "[role=gridcell]", (item, event) => {
    if (!item) return;
    Object.assign(shown, { row: Number(item.dataset.row), column: Number(item.dataset.column) });
    showPatch();
    if (event.type !== "mousemove") remember({ row: shown.row, column: shown.column });
  });
}

function choose(cell) {
  if (!cell) return;
  const { layer, head } = cell.dataset;
  Object.assign(shown, { layer: layer === ROLLOUT ? ROLLOUT : Number(layer), head: Number(head) });
  remember({ layer, head });
  mark();
  drawLarge();
}

function overviewNeighbor(item, key) {
  const rows = [...$("overview").children].map((row) => [...row.querySelectorAll("[role=gridcell]")]).filter((row) => row.length);
  const y = rows.findIndex((row) => row.includes(item));
  if (key === "Home") return rows[y][0];
  if (key === "End") return rows[y].at(-1);
  if (!ARROWS[key]) return undefined;
  const [across, down] = ARROWS[key];
  const next = rows[y + down];
  return next?.[down ? Math.min(rows[y].indexOf(item), next.length - 1) : rows[y].indexOf(item) + across];
}

shown.layer = recall("layer", [ROLLOUT, ...Array(LAYERS).keys()]);
shown.head = shown.layer === ROLLOUT ? 0 : recall("head", [...Array(HEADS).keys()]);
shown.row = recall("row", [...Array(ROWS).keys()]);
shown.column = recall("column", [...Array(COLUMNS).keys()]);
$("scale").value = recall("scale", ["all", "own"]);
$("over").value = recallNumber("over", 0, 1, 0.7);
const mix = () => document.body.style.setProperty("--over", $("over").value);
$("over").addEventListener("input", () => {
  mix();
  remember({ over: $("over").value });
});
$("scale").addEventListener("change", () => {
  remember({ scale: $("scale").value });
  drawOverview();
  drawLarge();
});
rove($("overview"), "[role=gridcell]", overviewNeighbor);
for (const kind of ["focusin", "click"]) {
  $("overview").addEventListener(kind, (event) => choose(event.target.closest("[role=gridcell]")));
}
$("legend-bar").style.background = `linear-gradient(to right, ${data.colors.filter((_, n) => n % 7 === 0).map((rgb) => `rgb(${rgb})`)})`;
mix();
makePatches();
drawOverview();
drawLarge();
startTheme(() => {});
