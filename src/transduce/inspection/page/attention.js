// Every layer and head: an overview, one heat map in full, and what a token attends to.

const KINDS = {
  encoder: "Encoder self-attention",
  decoder: "Decoder self-attention",
  encoder_decoder: "Encoder-decoder attention",
};
const view = { kind: "encoder_decoder", layer: MEAN, head: MEAN, rows: "said", scale: "one", row: 0, column: null };
const $ = (id) => document.getElementById(id);
const tokensOf = {
  keys: () => (view.kind === "decoder" ? data.readTokens : data.sourceTokens),
  queries: () =>
    view.kind === "encoder" ? data.sourceTokens : view.rows === "said" ? data.saidTokens : data.readTokens,
};
const currentMap = () => WEIGHTS[view.kind].map(view.layer, view.head);
const most = (map) => (view.scale === "one" ? 1 : greatest(map));

// What the model has: an RNN attends to its source alone, the plain one to nothing.
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
  rove($("overview"), "[role=gridcell]", gridNeighbour("overview", "[role=row]", "[role=gridcell]"));
  const inMap = gridNeighbour("map", "tr", "th, td");
  rove($("map"), "th, td", (item, key) => {
    const goal = inMap(item, key);
    return goal?.classList.contains("corner") ? undefined : goal;
  });
  pointing($("map"), "th, td", look);
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

const named = (what, number) => (number === MEAN ? `mean of ${what}s` : `${what} ${number + 1}`);

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
  paint(canvas, map, weights.rows, weights.columns, most(map));
  const label = `${named("layer", layer)}, ${named("head", head)}, greatest weight ${shown(greatest(map))}`;
  const cell = element("div", { role: "gridcell", tabindex: "-1", "aria-label": label, title: label }, canvas);
  Object.assign(cell.dataset, { layer, head });
  return cell;
}

function markOverview() {
  for (const cell of $("overview").querySelectorAll("[role=gridcell]")) {
    const chosen = cell.dataset.layer === String(view.layer) && cell.dataset.head === String(view.head);
    cell.setAttribute("aria-selected", chosen);
    cell.tabIndex = chosen ? 0 : -1;
  }
}

function drawMap() {
  const [keys, queries, map] = [tokensOf.keys(), tokensOf.queries(), currentMap()];
  const top = most(map);
  const size = Math.max(keys.length, queries.length);
  const cell = size <= 28 ? 32 : size <= 48 ? 24 : 17;
  $("map").style.setProperty("--cell", `${cell}px`);
  $("map-name").textContent = `${KINDS[view.kind]}, ${named("layer", view.layer)}, ${named("head", view.head)}`;
  $("legend-most").textContent = top === 1 ? "1" : shown(top);
  const heads = keys.map((text, column) => header(text, "col", { column }));
  const corner = element("td", { class: "corner" }, element("small", {}, view.kind === "encoder_decoder" ? "target ↓ source →" : "from ↓ to →"));
  const body = queries.map((text, row) => {
    // There may be tens of thousands of cells: as text, which holds numbers only, they are there at once.
    const cells = keys.map((_, column) => {
      const weight = map[row * keys.length + column];
      const number = cell === 32 && weight >= 0.05 ? brief(weight) : "";
      return `<td class="w${level(weight, top)}" tabindex="-1" data-row="${row}" data-column="${column}" aria-label="${shown(weight)}">${number}</td>`;
    });
    const line = element("tr");
    line.innerHTML = cells.join("");
    line.prepend(header(text, "row", { row }));
    return line;
  });
  $("map").replaceChildren(element("thead", {}, element("tr", {}, corner, ...heads)), element("tbody", {}, ...body));
  const place = [view.row === null ? "" : `[data-row="${view.row}"]`, view.column === null ? "" : `[data-column="${view.column}"]`];
  const looked = $("map").querySelector(`:is(th, td)${place[0]}${place[1]}`);
  looked.tabIndex = 0;
  look(looked);
}

// Two digits, as there is room for.
const brief = (weight) => (weight > 0.995 ? "1" : `.${String(Math.round(100 * weight)).padStart(2, "0")}`);

function header(text, scope, place) {
  const made = element("th", { scope, tabindex: "-1", class: [...text].length <= 2 ? "short" : "" }, token(text));
  Object.assign(made.dataset, place);
  made.title = text;
  return made;
}

// One weight, as a sentence.
function said(row, column) {
  const weight = currentMap()[row * tokensOf.keys().length + column];
  return `${quoted(tokensOf.queries()[row])} attends to ${quoted(tokensOf.keys()[column])}: ${shown(weight)}`;
}

// A cell, or the name of a row or a column, is pointed at.
function look(item) {
  if (!item || item === view.item || item.classList.contains("corner")) return;
  const [row, column] = [item.dataset.row, item.dataset.column].map((n) => (n === undefined ? null : Number(n)));
  for (const marked of $("map").querySelectorAll(".here")) marked.classList.remove("here");
  if (row !== null) $("map").querySelector(`th[data-row="${row}"]`).classList.add("here");
  if (column !== null) $("map").querySelector(`th[data-column="${column}"]`).classList.add("here");
  Object.assign(view, { item, row, column });
  $("readout").textContent = described(row, column);
  drawStrip(row, column);
}

function described(row, column) {
  const place = view.kind === "encoder" ? "" : ` (having read ${quoted(data.readTokens[row ?? 0])}, saying ${quoted(data.saidTokens[row ?? 0])})`;
  if (row === null) return `Who attends to ${quoted(tokensOf.keys()[column])}, position ${column + 1}; such weights need not add up to 1`;
  if (column === null) return `What ${quoted(tokensOf.queries()[row])}, position ${row + 1}, attends to${place}`;
  return `${said(row, column)}${place}`;
}

// The tokens at the other end, shaded by weight, in the order of the sentence.
function drawStrip(row, column) {
  const [keys, map] = [tokensOf.keys(), currentMap()];
  const over = row === null ? tokensOf.queries() : keys;
  const top = most(map);
  const chips = over.map((text, place) => {
    const weight = map[row === null ? place * keys.length + column : row * keys.length + place];
    const chip = element("span", { class: `chip w${level(weight, top)}` }, token(text), element("small", {}, shown(weight)));
    if (row !== null && place === column) chip.classList.add("here");
    return chip;
  });
  $("strip").dir = direction(over === data.sourceTokens ? data.source : data.target);
  $("strip").replaceChildren(...chips);
}

// Neighbours in rows of cells.
function gridNeighbour(id, rowSelector, cellSelector) {
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
