// Stations 1 and 2: text, tokens and ids; embeddings and positions.

const tokenList = (names, ids, dir = "auto") =>
  node(
    "ol",
    { class: "tokens", dir },
    names.map((name, i) => node("li", {}, node("span", { class: "piece" }, isolated(name)), node("small", {}, String(ids[i])))),
  );

let typing = null; // the timer of the field of the text

function textField(app) {
  if (!app.tokenizers.source || !app.canChange) {
    return [paragraph("given", isolated(app.sentence.source)), paragraph("note", t("storedText"))];
  }
  const read = (event) => {
    clearTimeout(typing);
    const { value } = event.target;
    typing = setTimeout(() => app.read(value), 120);
  };
  const field = node("textarea", { rows: "2", dir: "auto", spellcheck: "false", "data-key": "text", oninput: read });
  field.value = app.typed ?? app.sentence.source;
  field.addEventListener("input", () => (app.typed = field.value));
  return [node("label", { class: "field" }, t("yourSentence"), field), app.problem && paragraph("problem", app.problem)];
}

function stationText(app) {
  const { sourceIds, inputIds, targetIds, target } = app.sentence;
  return [
    ...textField(app),
    node("h3", {}, t("sourceTokens")),
    tokenList(app.names("source"), sourceIds),
    node("h3", {}, t("translation")),
    paragraph("given", isolated(target)),
    tokenList(targetIds.map((id) => app.name("target", id)), targetIds),
    node("h3", {}, t("decoderReads")),
    tokenList(app.names("target"), inputIds),
    paragraph("note", t("shifted")),
  ];
}

function sineText(app, value) {
  const { dModel, sineLayout, sineSpacing, firstPosition } = app.data.config;
  if (app.data.config.positions !== "sinusoidal" || sineLayout !== "interleaved" || sineSpacing !== "paper") return null;
  const { model } = app.chosen;
  const name = model % 2 ? "cos" : "sin";
  const place = app.query + firstPosition;
  return formula(
    `PE_{pos, i} = ${name}(pos / 10000^{${model - (model % 2)}/${dModel}}) = `,
    `${name}(${place} / ${number(10000 ** ((model - (model % 2)) / dModel))}) = ${number(value)}`,
  );
}

function stationEmbedding(app) {
  const { record, query, chosen } = app;
  const input = record[app.side];
  const [row, scaled, x] = [input.rows, input.scaled, input.sum].map((each) => each.row(query));
  const place = input.positions?.row(query) ?? null;
  const i = chosen.model;
  const { positions } = app.data.config;
  const kinds = { rotary: "rotaryPositions", none: "noPositions" };
  const secretPlace = hidden(app) ? i : -1;
  return [
    without(app, "positions", t("withoutPositions")),
    vector(app, "model", row, "E", t("embeddingRow")),
    vector(app, "model", scaled, "√d·E", `× ${number(input.scale)}`),
    place && vector(app, "model", place, "PE", t("position", { n: query + 1 })),
    vector(app, "model", x, "x", "x", { secret: secretPlace }),
    input.norm && vector(app, "model", input.x.row(query), "x′", t("normalised")),
    formula(
      `x_{${indexOf(i)}} = E[${input.ids[query]}]_{${indexOf(i)}} · √d_{model} ${place ? "+ PE" : ""} = `,
      `${inside(row[i])} · ${number(input.scale)} ${place ? `+ ${inside(place[i])}` : ""} = `,
      answer(app, x[i]),
    ),
    place && sineText(app, place[i]),
    input.scale === 1 && paragraph("note", t("unscaled")),
    !place && app.options.positions && kinds[positions] && paragraph("note", t(kinds[positions])),
  ];
}
