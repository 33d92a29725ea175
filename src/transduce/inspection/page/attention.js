// Every layer and head: an overview, one heat map, and the attention of one token.

const KINDS = {
  encoder: "Encoder self-attention",
  decoder: "Decoder self-attention",
  encoder_decoder: "Encoder-decoder attention",
};
const ROW_HEADER = 130; // width in pixels
const view = { kind: "encoder_decoder", layer: MEAN, head: MEAN, rows: "target", scale: "one", row: 0, column: null };
const $ = (id) => document.getElementById(id);
const tokensOf = {
  keys: () => (view.kind === "decoder" ? data.inputTokens : data.sourceTokens),
  queries: () =>
    view.kind === "encoder" ? data.sourceTokens : view.rows === "target" ? data.targetTokens : data.inputTokens,
};
const currentMap = () => WEIGHTS[view.kind].map(view.layer, view.head);
const scaleMaximum = (map) => (view.scale === "one" ? 1 : maximum(map));

// An RNN has encoder-decoder attention only, or none.
const has = (kind) => WEIGHTS[kind].layers > 0;

function startAttention() {
  for (const option of [...$("kind").options]) if (!has(option.value)) option.remove();
  view.kind = $("kind").value;
  for (const name of ["kind", "layer", "head", "rows", "scale"]) {
    $(name).addEventListener("change", (event) => {
      const value = event.target.value;
      choose({ [name]: ["layer", "head"].includes(name) && value !== MEAN ? Number(value) : value });
    });
  }
  for (const kind of ["focusin", "click"]) {
    $("overview").addEventListener(kind, (event) => chooseCell(event.target.closest("[role=gridcell]")));
  }
  rove($("overview"), "[role=gridcell]", gridNeighbor("overview", "[role=row]", "[role=gridcell]"));
  const inMap = gridNeighbor("map", "tr", "th, td");
  rove($("map"), "th, td", (item, key) => {
    const next = inMap(item, key);
    return next?.classList.contains("corner") ? undefined : next;
  });
  pointing($("map"), "th, td", showCell);
  fillChoices();
}

function fillChoices() {
  const weights = WEIGHTS[view.kind];
  for (const [name, count, all] of [["layer", weights.layers, "mean of layers"], ["head", weights.heads, "mean of heads"]]) {
    if (view[name] !== MEAN && view[name] >= count) view[name] = MEAN;
    const options = [...Array(count).keys()].map((n) => new Option(String(n + 1), n));
    $(name).replaceChildren(...options, new Option(all, MEAN));
    $(name).value = view[name];
  }
  $("rows-label").hidden = view.kind === "encoder";
}

function choose(changes) {
  const kindChanges = changes.kind && changes.kind !== view.kind;
  Object.assign(view, changes);
  if (kindChanges) {
    Object.assign(view, { row: 0, column: null });
    fillChoices();
  }
  $("layer").value = view.layer;
  $("head").value = view.head;
  if (kindChanges || changes.scale) drawOverview();
  else markOverview();
  drawMap();
}

function chooseCell(cell) {
  if (!cell) return;
  const read = (name) => (cell.dataset[name] === MEAN ? MEAN : Number(cell.dataset[name]));
  if (read("layer") !== view.layer || read("head") !== view.head) choose({ layer: read("layer"), head: read("head") });
}

const numbered = (kind, number) => (number === MEAN ? `mean of ${kind}s` : `${kind} ${number + 1}`);

function drawOverview() {
  const weights = WEIGHTS[view.kind];
  const numbers = (count) => [...Array(count).keys(), MEAN];
  const head = element("div", { role: "row" }, element("span", { role: "columnheader" }, "Layer"));
  for (const number of numbers(weights.heads)) {
    head.append(element("span", { role: "columnheader" }, number === MEAN ? "mean" : `Head ${number + 1}`));
  }
  const rows = numbers(weights.layers).map((layer) => {
    const row = element("div", { role: "row" });
    row.append(element("span", { role: "rowheader" }, layer === MEAN ? "mean" : String(layer + 1)));
    for (const number of numbers(weights.heads)) row.append(thumbnail(weights, layer, number));
    return row;
  });
  $("overview").style.setProperty("--heads", weights.heads + 1);
  $("overview").replaceChildren(head, ...rows);
  markOverview();
}

function thumbnail(weights, layer, head) {
  const map = weights.map(layer, head);
  const canvas = element("canvas", { "aria-hidden": "true" });
  paint(canvas, map, weights.rows, weights.columns, scaleMaximum(map));
  const label = `${numbered("layer", layer)}, ${numbered("head", head)}, maximum weight ${formatWeight(maximum(map))}`;
  const cell = element("div", { role: "gridcell", tabindex: "-1", "aria-label": label, title: label }, canvas);
  Object.assign(cell.dataset, { layer, head });
  return cell;
}

function markOverview() {
  for (const cell of $("overview").querySelectorAll("[role=gridcell]")) {
    const isSelected = cell.dataset.layer === String(view.layer) && cell.dataset.head === String(view.head);
    cell.setAttribute("aria-selected", isSelected);
    cell.tabIndex = isSelected ? 0 : -1;
  }
}

function drawMap() {
  const [keys, queries, map] = [tokensOf.keys(), tokensOf.queries(), currentMap()];
  const top = scaleMaximum(map);
  const size = Math.max(keys.length, queries.length);
  const largest = size <= 28 ? 32 : size <= 48 ? 24 : 17;
  const room = $("map-scroller").clientWidth - ROW_HEADER;
  const cell = [largest, 28, 24].find((width) => width <= largest && (width + 1) * keys.length <= room) ?? largest;
  $("map").style.setProperty("--cell", `${cell}px`);
  $("map-name").textContent = `${KINDS[view.kind]}, ${numbered("layer", view.layer)}, ${numbered("head", view.head)}`;
  $("legend-maximum").textContent = top === 1 ? "1" : formatWeight(top);
  const heads = keys.map((text, column) => header(text, "col", { column }));
  const corner = element("td", { class: "corner" }, element("small", {}, view.kind === "encoder_decoder" ? "target ↓ source →" : "query ↓ key →"));
  const body = queries.map((text, row) => {
    // With tens of thousands of cells, HTML text (of numbers only) is much faster than DOM calls.
    const cells = keys.map((_, column) => {
      const weight = map[row * keys.length + column];
      const number = cell >= 24 && size <= 28 && weight >= 0.05 ? shortWeight(weight) : "";
      return `<td class="w${level(weight, top)}" tabindex="-1" data-row="${row}" data-column="${column}" aria-label="${formatWeight(weight)}">${number}</td>`;
    });
    const line = element("tr");
    line.innerHTML = cells.join("");
    line.prepend(header(text, "row", { row }));
    return line;
  });
  $("map").replaceChildren(element("thead", {}, element("tr", {}, corner, ...heads)), element("tbody", {}, ...body));
  const selectors = [view.row === null ? "" : `[data-row="${view.row}"]`, view.column === null ? "" : `[data-column="${view.column}"]`];
  const current = $("map").querySelector(`:is(th, td)${selectors.join("")}`);
  current.tabIndex = 0;
  showCell(current);
}

// Two digits fit into a cell.
const shortWeight = (weight) => (weight > 0.995 ? "1" : `.${String(Math.round(100 * weight)).padStart(2, "0")}`);

function header(text, scope, position) {
  const cell = element("th", { scope, tabindex: "-1", class: [...text].length <= 2 ? "short" : "" }, token(text));
  Object.assign(cell.dataset, position);
  cell.title = text;
  return cell;
}

// Show a cell of the map, or the header of a row or column.
function showCell(item) {
  if (!item || item === view.item || item.classList.contains("corner")) return;
  const [row, column] = [item.dataset.row, item.dataset.column].map((n) => (n === undefined ? null : Number(n)));
  for (const marked of $("map").querySelectorAll(".current")) marked.classList.remove("current");
  if (row !== null) $("map").querySelector(`th[data-row="${row}"]`).classList.add("current");
  if (column !== null) $("map").querySelector(`th[data-column="${column}"]`).classList.add("current");
  Object.assign(view, { item, row, column });
  $("readout").textContent = describe(row, column);
  drawStrip(row, column);
}

function describe(row, column) {
  const [keys, queries] = [tokensOf.keys(), tokensOf.queries()];
  const step = view.kind === "encoder" ? "" : ` (decoder input ${quoted(data.inputTokens[row ?? 0])}, predicted token ${quoted(data.targetTokens[row ?? 0])})`;
  if (row === null) return `Attention to ${quoted(keys[column])}, position ${column + 1}; the weights of a column need not add up to 1`;
  if (column === null) return `Attention of ${quoted(queries[row])}, position ${row + 1}${step}`;
  return `${quoted(queries[row])} attends to ${quoted(keys[column])}: ${formatWeight(currentMap()[row * keys.length + column])}${step}`;
}

// Show the attended tokens (for a column: the attending ones) in their order, shaded by weight.
function drawStrip(row, column) {
  const [keys, map] = [tokensOf.keys(), currentMap()];
  const tokens = row === null ? tokensOf.queries() : keys;
  const top = scaleMaximum(map);
  const chips = tokens.map((text, index) => {
    const weight = map[row === null ? index * keys.length + column : row * keys.length + index];
    const chip = element("span", { class: `chip w${level(weight, top)}` }, token(text), element("small", {}, formatWeight(weight)));
    if (row !== null && index === column) chip.classList.add("current");
    return chip;
  });
  $("strip").dir = direction(tokens === data.sourceTokens ? data.source : data.target);
  $("strip").replaceChildren(...chips);
}

// Return a function from a cell and an arrow key to the neighboring cell.
function gridNeighbor(id, rowSelector, cellSelector) {
  return (item, key) => {
    const rows = [...$(id).querySelectorAll(rowSelector)].map((row) => [...row.querySelectorAll(cellSelector)]);
    const y = rows.findIndex((row) => row.includes(item));
    const x = rows[y].indexOf(item);
    const [across, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key] ?? [0, 0];
    if (key === "Home") return rows[y][0];
    if (key === "End") return rows[y][rows[y].length - 1];
    return across || down ? rows[y + down]?.[x + across] : undefined;
  };
}
