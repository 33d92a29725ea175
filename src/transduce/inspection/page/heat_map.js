// The heat map of one head: a table of cells. With many tokens, elements would be slow: then the weights are one
// image, with one pixel each, and only the focused cell is an element.

const MAX_CELLS = 2500;
const [PAPER, WIDE_PAPER] = [660, 960]; // pixels of width on paper, upright and on its side
const MARGINS = 26; // pixels: of the scroller, with a scroll bar
const grid = { cell: 32, isImage: false, picture: null };

function startMap() {
  rove($("map"), "th, td", (item, key) => {
    const next = mapNeighbor(item, key);
    return next && cellAt(...next);
  });
  pointing($("map"), "th, td", (item, event) => {
    if (!item || item.classList.contains("corner")) return;
    const [row, column] = item === grid.picture ? pixelAt(event) : positionIn(item);
    if (item === grid.picture && event.type === "click") moveTo($("map"), cellAt(row, column));
    showCell(row, column);
    if (event.type !== "mousemove") rememberView();
  });
  $("map").addEventListener("mouseleave", () => mark("hovered", null));
  addEventListener("resize", () => {
    const { rows, columns } = WEIGHTS[view.kind];
    if (!$("attention").hidden && cellSize(rows, columns) !== grid.cell) drawMap();
  });
}

// The row and column of a cell; null in a header.
const positionIn = (item) => ["row", "column"].map((name) => (name in item.dataset ? Number(item.dataset[name]) : null));

function pixelAt(event) {
  const { rows, columns } = WEIGHTS[view.kind];
  const box = grid.picture.firstElementChild.getBoundingClientRect();
  const within = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  return [within((event.clientY - box.top) / box.height, rows), within((event.clientX - box.left) / box.width, columns)];
}

function mapNeighbor(item, key) {
  const { rows, columns } = WEIGHTS[view.kind];
  let [row, column] = positionIn(item).map((index) => index ?? -1);
  const [across, down] = ARROWS[key] ?? [0, 0];
  if (!across && !down && key !== "Home" && key !== "End") return undefined;
  row += down;
  column = key === "Home" ? (row < 0 ? 0 : -1) : key === "End" ? columns - 1 : column + across;
  const isInside = row >= -1 && column >= -1 && row < rows && column < columns && (row >= 0 || column >= 0);
  return isInside ? [row < 0 ? null : row, column < 0 ? null : column] : undefined;
}

// The element of a cell or header; in an image, it is made.
function cellAt(row, column) {
  const [table] = [$("map")];
  if (row === null) return table.tHead.rows[0].cells[column + 1];
  const line = table.tBodies[0].rows[row];
  if (column === null) return line.cells[0];
  if (!grid.isImage) return line.cells[column + 1];
  const present = line.querySelector(`.cursor[data-column="${column}"]`);
  if (present) return present;
  const cell = element("td", { class: "cursor", tabindex: "-1", "aria-colindex": column + 2, "aria-label": cellLabel(row, column) });
  Object.assign(cell.dataset, { row, column });
  place(cell, row, column);
  line.append(cell);
  return cell;
}

function place(node, row, column) {
  Object.assign(node.style, {
    top: `${grid.top + row * grid.cell}px`, left: `${grid.left + column * grid.cell}px`, width: `${grid.cell}px`, height: `${grid.cell}px`,
  });
}

const cellLabel = (row, column) =>
  isMasked(row, column) ? "masked" : formatWeight(currentMap()[row * WEIGHTS[view.kind].columns + column]);

function cellSize(rows, columns) {
  const size = Math.max(rows, columns);
  const largest = size <= 28 ? 32 : size <= 48 ? 24 : 17;
  const longest = Math.max(...tokensOf.queries().map((text) => text.length));
  const names = Math.min(160, Math.max(72, 9 * longest + 18));
  if (printing.matches) return Math.min(largest, Math.floor((10 * (PAPER - names)) / columns) / 10 - 1);
  const room = $("map-scroller").clientWidth - names - MARGINS;
  return [largest, 28].find((width) => width <= largest && (width + 1) * columns <= room) ?? Math.min(largest, 24);
}

function drawMap() {
  const [keys, queries, map] = [tokensOf.keys(), tokensOf.queries(), currentMap()];
  const top = scaleMaximum(map);
  const hadFocus = $("map").contains(document.activeElement);
  grid.isImage = keys.length * queries.length > MAX_CELLS;
  grid.cell = cellSize(queries.length, keys.length);
  $("map").style.setProperty("--cell", `${grid.cell}px`);
  $("map").classList.toggle("image", grid.isImage);
  $("map-name").textContent = `${KINDS[view.kind]}, ${numbered("layer", view.layer)}, ${numbered("head", view.head)}`;
  const isCut = maximum(map) > top;
  $("legend-maximum").textContent = `${isCut ? "≥ " : ""}${view.scale === "map" ? formatWeight(top) : top}`;
  const corner = element("td", { class: "corner" }, ...(view.kind === "encoder_decoder" ? ["target ↓ ", "source →"] : ["query ↓ ", "key →"]).map((text) => element("small", {}, text)));
  const heads = keys.map((text, column) => header(text, "col", { column }));
  const body = queries.map((text, row) => {
    const line = element("tr");
    if (!grid.isImage) line.innerHTML = rowOfCells(map, row, keys.length, top);
    line.prepend(header(text, "row", { row }));
    return line;
  });
  if (grid.isImage) body[0].append(picture(map, top));
  $("map").replaceChildren(element("thead", {}, element("tr", {}, corner, ...heads)), element("tbody", {}, ...body));
  measure(corner);
  const current = cellAt(view.row, view.column);
  makeReachable($("map"), current);
  if (hadFocus) current.focus();
  showCell(view.row, view.column, true);
  makeScrollable($("strip"));
}

// HTML text (of numbers only) is much faster than DOM calls.
function rowOfCells(map, row, columns, top) {
  const hasNumbers = grid.cell >= 24 && columns <= 28;
  let cells = "";
  for (let column = 0; column < columns; column++) {
    const weight = map[row * columns + column];
    const number = hasNumbers && weight >= 0.05 ? ` data-number="${shortWeight(weight)}"` : "";
    const kind = isMasked(row, column) ? "hatched" : `w${level(weight, top)}`;
    cells += `<td class="${kind}" tabindex="-1" data-row="${row}" data-column="${column}" aria-label="${cellLabel(row, column)}"${number}></td>`;
  }
  return cells;
}

function picture(map, top) {
  const { rows, columns } = WEIGHTS[view.kind];
  const canvas = element("canvas", { class: "hatched", "aria-hidden": "true" });
  paint(canvas, map, [rows, columns], top, isMasked);
  Object.assign(canvas.style, { width: `${columns * grid.cell}px`, height: `${rows * grid.cell}px` });
  grid.picture = element("td", { class: "picture", role: "presentation", rowspan: rows, colspan: columns }, canvas);
  return grid.picture;
}

// Where the cells begin, for cells on an image; and how much of the scroller the headers cover.
function measure(corner) {
  const { rows, columns } = WEIGHTS[view.kind];
  [grid.top, grid.left] = grid.isImage ? [grid.picture.offsetTop, grid.picture.offsetLeft] : [0, 0];
  $("map-scroller").style.scrollPadding = `${corner.offsetHeight}px 6px 6px ${corner.offsetWidth}px`;
  $("map").setAttribute("aria-rowcount", rows + 1);
  $("map").setAttribute("aria-colcount", columns + 1);
}

// Scroll to the cell of the view, which an address may place anywhere.
function reveal() {
  const [box, cell] = [$("map-scroller"), cellAt(view.row, view.column)];
  const isOutside = cell.offsetTop > box.clientHeight - grid.cell || cell.offsetLeft > box.clientWidth - grid.cell;
  if (isOutside) box.scrollTo(cell.offsetLeft - box.clientWidth / 2, cell.offsetTop - box.clientHeight / 2);
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
function showCell(row, column, isNew = false) {
  if (!isNew && row === view.row && column === view.column) return;
  for (const marked of grid.marked ?? []) marked.classList.remove("current");
  grid.marked = [row !== null && cellAt(row, null), column !== null && cellAt(null, column)].filter(Boolean);
  for (const marked of grid.marked) marked.classList.add("current");
  Object.assign(view, { row, column });
  if (grid.isImage) {
    for (const cell of $("map").querySelectorAll(".cursor")) if (cell !== document.activeElement && cell.tabIndex !== 0) cell.remove();
    mark("hovered", row !== null && column !== null ? [row, column] : null);
  }
  $("readout").textContent = describe(row, column);
  drawStrip(row, column);
}

// Outline a cell of the image.
function mark(name, position) {
  if (!grid.isImage) return;
  const outline = grid.picture.querySelector(`.${name}`) ?? grid.picture.appendChild(element("span", { class: name, "aria-hidden": "true" }));
  outline.hidden = !position;
  if (position) place(outline, ...position);
}

function describe(row, column) {
  const [keys, queries] = [tokensOf.keys(), tokensOf.queries()];
  const place = row ?? 0;
  const step = view.kind === "encoder" ? "" : ` (decoder input ${quoted(data.inputTokens[place])}, predicted token ${quoted(data.targetTokens[place])} with probability ${percent(data.logProbabilities[place])})`;
  if (row === null) return `Attention to ${quoted(keys[column])}, position ${column + 1}; the weights of a column need not add up to 1`;
  if (column === null) return `Attention of ${quoted(queries[row])}, position ${row + 1}${step}`;
  if (isMasked(row, column)) return `${quoted(queries[row])} cannot attend to ${quoted(keys[column])}: the causal mask hides later positions${step}`;
  return `${quoted(queries[row])} attends to ${quoted(keys[column])}: ${formatWeight(currentMap()[row * keys.length + column])}${step}`;
}
