// Every layer and head: an overview, and the head that is shown.

const KINDS = {
  encoder: "Encoder self-attention",
  decoder: "Decoder self-attention",
  encoder_decoder: "Encoder-decoder attention",
};
const THUMBNAIL = [44, 44]; // pixels (rows, columns) at most
const view = { kind: "encoder_decoder", layer: MEAN, head: MEAN, rows: "target", scale: "auto", row: 0, column: null };
const tokensOf = {
  keys: () => (view.kind === "decoder" ? data.inputTokens : data.sourceTokens),
  queries: () =>
    view.kind === "encoder" ? data.sourceTokens : view.rows === "target" ? data.targetTokens : data.inputTokens,
};
const currentMap = () => WEIGHTS[view.kind].map(view.layer, view.head);

// The causal mask: the decoder cannot attend to later positions.
const isMasked = (row, column) => view.kind === "decoder" && column > row;

function scaleMaximum(map) {
  if (view.scale === "one") return 1;
  return view.scale === "map" ? maximum(map) : automaticTop(map, WEIGHTS[view.kind].columns);
}

// An RNN has encoder-decoder attention only, or none.
const has = (kind) => WEIGHTS[kind].layers > 0;

function startAttention() {
  for (const option of [...$("kind").options]) if (!has(option.value)) option.remove();
  recallView();
  for (const name of ["kind", "layer", "head", "rows", "scale"]) {
    $(name).addEventListener("change", (event) => {
      const value = event.target.value;
      choose({ [name]: ["layer", "head"].includes(name) && value !== MEAN ? Number(value) : value });
    });
  }
  for (const kind of ["focusin", "click"]) {
    $("overview").addEventListener(kind, (event) => chooseCell(event.target.closest("[role=gridcell]")));
  }
  rove($("overview"), "[role=gridcell]", overviewNeighbor);
  startMap();
  fillChoices();
  arrange();
}

function recallView() {
  for (const name of ["kind", "rows", "scale"]) {
    const values = [...$(name).options].map((option) => option.value);
    view[name] = $(name).value = recall(name, values);
  }
  const { layers, heads, rows, columns } = WEIGHTS[view.kind];
  view.layer = recall("layer", [MEAN, ...Array(layers).keys()]);
  view.head = recall("head", [MEAN, ...Array(heads).keys()]);
  view.column = recall("column", [null, ...Array(columns).keys()]);
  view.row = recall("row", [0, ...Array(rows).keys()]);
  if (view.column !== null && !kept.has("row")) view.row = null;
}

const rememberView = () =>
  remember(Object.fromEntries(["kind", "layer", "head", "rows", "scale", "row", "column"].map((name) => [name, view[name]])));

// Where there is no room for the overview beside the map, it follows the map, in the order of reading and of Tab.
function arrange() {
  const narrow = matchMedia("(max-width: 1200px)");
  const place = () => {
    if (narrow.matches) $("columns").append($("overview-panel"));
    else $("columns").prepend($("overview-panel"));
  };
  narrow.addEventListener("change", place);
  place();
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
  $("legend-masked").hidden = view.kind !== "decoder";
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
  rememberView();
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
  const canvas = element("canvas", { "aria-hidden": "true", class: "hatched" });
  paint(canvas, map, [weights.rows, weights.columns], scaleMaximum(map), isMasked, THUMBNAIL);
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

function overviewNeighbor(item, key) {
  const rows = [...$("overview").children].map((row) => [...row.querySelectorAll("[role=gridcell]")]);
  const y = rows.findIndex((row) => row.includes(item));
  if (key === "Home") return rows[y][0];
  if (key === "End") return rows[y].at(-1);
  const [across, down] = ARROWS[key] ?? [0, 0];
  return across || down ? rows[y + down]?.[rows[y].indexOf(item) + across] : undefined;
}
