// The figures of the paper as a map: each box opens its station.

// Boxes of figure 1: [left, bottom, width in percent, text, station, other choices]; heights go up from the bottom.
const LEFT = 4;
const RIGHT = 54;
const BOX_WIDTH = 42;
const BOXES = [
  [LEFT, 1, "boxInputs", "text", { stack: "encoder" }],
  [LEFT, 10, "boxEmbedding", "embedding", { stack: "encoder" }],
  [LEFT, 24, "boxAttention", "qkv", { stack: "encoder" }],
  [LEFT, 32.5, "boxAdd", "residual", { stack: "encoder", part: "selfAttention" }],
  [LEFT, 41, "boxForward", "ffn", { stack: "encoder" }],
  [LEFT, 49.5, "boxAdd", "residual", { stack: "encoder", part: "feedForward" }],
  [RIGHT, 1, "boxOutputs", "text", { stack: "decoder" }],
  [RIGHT, 10, "boxEmbedding", "embedding", { stack: "decoder" }],
  [RIGHT, 24, "boxMasked", "qkv", { stack: "decoder" }],
  [RIGHT, 32.5, "boxAdd", "residual", { stack: "decoder", part: "selfAttention" }],
  [RIGHT, 49.5, "boxAttention", "qkv", { stack: "memory" }],
  [RIGHT, 58, "boxAdd", "residual", { stack: "decoder", part: "memoryAttention" }],
  [RIGHT, 66.5, "boxForward", "ffn", { stack: "decoder" }],
  [RIGHT, 75, "boxAdd", "residual", { stack: "decoder", part: "feedForward" }],
  [RIGHT, 90, "boxOutput", "output", {}],
]; // prettier-ignore
const INSIDE_ATTENTION = ["qkv", "scores", "scale", "softmax", "values", "heads"];
const AFTERWARDS = [["boxNorm", "norm"], ["boxSteps", "decoder"], ["boxBeam", "beam"], ["boxWhy", "why"]]; // prettier-ignore

// Lines of figure 1 in a picture of 100 × 100: arrows up both stacks, the boxes of layers, the encoder's output
const ARROWS = "M25 97V44M75 97V4M25 49V41H50V47H54";
const LAYERS = "M1 43H49V82H1ZM51 17H99V82H51Z";

function lines() {
  const namespace = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(namespace, "svg");
  picture.setAttribute("viewBox", "0 0 100 100");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  for (const [kind, path] of [["layer", LAYERS], ["arrow", ARROWS]]) {
    const made = document.createElementNS(namespace, "path");
    made.setAttribute("d", path);
    made.setAttribute("class", kind);
    picture.append(made);
  }
  return picture;
}

function isHere({ station, stack, part }, name, choices) {
  const isAttention = name === "qkv" && choices.stack !== undefined && INSIDE_ATTENTION.includes(station);
  if (station !== name && !isAttention) return false;
  const needsPart = choices.part !== undefined && choices.part !== part;
  const side = (each) => (each === "encoder" ? "encoder" : "decoder");
  const isStack = name === "qkv" ? choices.stack === stack : side(choices.stack) === side(stack);
  return !needsPart && (choices.stack === undefined || isStack);
}

const mapButton = (app, text, station, choices, label, key) =>
  node(
    "button",
    {
      type: "button", "data-key": key, "data-station": station, "aria-label": label,
      "aria-current": isHere(app.chosen, station, choices) ? "step" : null,
      onclick: () => app.choose({ station, ...choices }),
    }, // prettier-ignore
    text,
  );

function figure1(app) {
  const { encoderLayers, decoderLayers } = app.data.config;
  const figure = node("div", { class: "figure" }, lines());
  BOXES.forEach(([left, bottom, text, station, choices], i) => {
    const stack = choices.stack && t(choices.stack === "encoder" ? "encoder" : "decoder");
    const label = stack ? t("boxIn", { box: t(text), stack }) : t(text);
    const button = mapButton(app, t(text), station, choices, label, `map-${i}`);
    button.style.left = `${left}%`;
    button.style.bottom = `${bottom}%`;
    button.style.width = `${BOX_WIDTH}%`;
    figure.append(button);
  });
  for (const [side, count] of [["left", encoderLayers], ["right", decoderLayers]]) {
    figure.append(node("span", { class: `count ${side}` }, `${count} ×`));
  }
  return figure;
}

function drawMap(app) {
  const wasOpen = document.querySelector("#map details")?.open ?? matchMedia("(min-width: 900px)").matches;
  const inner = INSIDE_ATTENTION.map((station) => mapButton(app, math(t(`${station}.title`)), station, {}, null, `inside-${station}`));
  const later = AFTERWARDS.map(([text, station]) => mapButton(app, t(text), station, {}, null, `after-${station}`));
  document.getElementById("map").replaceChildren(
    node(
      "details",
      { open: wasOpen },
      node("summary", { "data-key": "map" }, t("map")),
      node("h2", {}, t("figure1")),
      figure1(app),
      node("h2", {}, t("figure2")),
      node("div", { class: "list" }, inner),
      node("h2", {}, t("after")),
      node("div", { class: "list" }, later),
    ),
  );
  document.getElementById("map").setAttribute("aria-label", t("map"));
}
