// Stations 4 to 8: from the input of an attention to the weighted sum of its values, for one head.

// Where the numbers of q, k or v come from: a token's row and the matrix
function projected(app, part) {
  const { attention, chosen, record } = app;
  const isMemory = chosen.stack === "memory" && part !== "q";
  const place = isMemory ? chosen.key : app.query;
  const input = isMemory ? record.memory : attention.input;
  const token = isMemory ? app.keyNames[place] : app.names(app.side)[place];
  return { input: input.row(place), values: attention[part].at(chosen.head).row(place), token };
}

function openedProduct(app) {
  const part = app.chosen.projection;
  const { input, values, token } = projected(app, part);
  const i = Math.min(app.chosen.width, values.length - 1);
  const found = projectionOf(app.model, app.attentionOf(app.record).name, part, app.chosen.head);
  if (!found) return [paragraph("note", t("noWeights"))];
  const column = found.weight.row(i);
  const products = Float32Array.from(input, (value, j) => value * column[j]);
  const sum = products.reduce((total, value) => total + value, 0);
  const bias = found.bias ? found.bias.data[i] : 0;
  const terms = Array.from(input, (value, j) => [value, column[j]]);
  return [
    node("h3", {}, t("opened", { name: `${part}[${i + 1}]` }), " ", isolated(token)),
    vector(app, "model", column, "w", t("column", { name: `W^${part.toUpperCase()}`, n: i + 1 })),
    vector(app, "model", products, "x·w", t("products")),
    formula(`${part}_{${i + 1}} = Σ x_{j} w_{j} + b = ${expanded(terms)} + b`),
    formula(`= ${number(sum)} + ${inside(bias)} = `, answer(app, values[i])),
  ];
}

function stationProjections(app) {
  const { chosen, attention } = app;
  const isMemory = chosen.stack === "memory";
  const strips = ["q", "k", "v"].map((part) => {
    const { values } = projected(app, part);
    const isSecret = hidden(app) && part === chosen.projection;
    const secretPlace = isSecret ? Math.min(chosen.width, values.length - 1) : -1;
    return vector(app, "width", values, part, part, { secret: secretPlace });
  });
  const menu = choice(
    t("open"),
    ["q", "k", "v"].map((part) => [part, part]),
    chosen.projection,
    (projection) => app.choose({ projection }),
    "projection",
  );
  const rotated = attention.rotated && [
    paragraph("note", t("rotated")),
    vector(app, "width", attention.rotated.q.at(chosen.head).row(app.query), "q′", t("rotatedName", { name: "q" })),
    vector(app, "width", attention.rotated.k.at(chosen.head).row(app.query), "k′", t("rotatedName", { name: "k" })),
  ];
  return [
    isMemory && paragraph("note", t("memoryKeys")),
    isMemory && paragraph("tokens", app.keyNames.map((_, j) => keyButton(app, j))),
    vector(app, "model", projected(app, chosen.projection).input, "x", t("input")),
    ...strips,
    paragraph("controls", menu),
    ...openedProduct(app),
    rotated,
  ];
}

function stationScores(app) {
  const { attention, chosen, query } = app;
  const q = queriesOf(attention).at(chosen.head).row(query);
  const k = keysOf(attention).at(chosen.head).row(chosen.key);
  const products = Float32Array.from(q, (value, i) => value * k[i]);
  const i = Math.min(chosen.width, q.length - 1);
  const scores = attention.scores.at(chosen.head).row(query);
  const terms = Array.from(q, (value, j) => [value, k[j]]);
  return [
    vector(app, "width", q, "q", t("queryOf", { token: app.names(app.side)[query] })),
    vector(app, "width", k, "k", t("keyOf", { token: app.keyNames[chosen.key] })),
    vector(app, "width", products, "q·k", t("products"), { secret: hidden(app) ? i : -1 }),
    formula(`q_{${i + 1}} k_{${i + 1}} = ${inside(q[i])} · ${inside(k[i])} = `, answer(app, products[i])),
    formula(`q·k = Σ q_{i} k_{i} = ${expanded(terms)} = `, node("strong", { class: "sum" }, number(scores[chosen.key]))),
    table(t("scoresOf"), [t("key"), "q·k"], keyRows(app, (j) => [number(scores[j])])),
    matrixOf(app, attention.scores, "QK^T"),
  ];
}

function stationScale(app) {
  const { attention, chosen, query } = app;
  const { dK } = app.data.config;
  const scores = attention.scores.at(chosen.head).row(query);
  const seen = (values) => values.map((value, j) => (attention.mask.get(query, j) ? value : -Infinity));
  const scaled = scores.map((value) => value / Math.sqrt(dK));
  const [soft, sharp] = [softmaxParts(seen(scaled)).weights, softmaxParts(seen(scores)).weights];
  const used = attention.scaled.at(chosen.head).row(query);
  return [
    without(app, "scale", t("withoutScale")),
    formula(
      `q·k / √d_{k} = ${number(scores[chosen.key])} / √${dK} = ${inside(scores[chosen.key])} / ${number(Math.sqrt(dK))} = `,
      answer(app, scaled[chosen.key]),
    ),
    paragraph("note", t("sharpest", { soft: number(Math.max(...soft)), sharp: number(Math.max(...sharp)) })),
    table(
      t("withAndWithout"),
      [t("key"), "q·k", "q·k/√d_{k}", t("softmaxScaled"), t("softmaxUnscaled"), t("used")],
      keyRows(app, (j) => [
        number(scores[j]),
        j === chosen.key ? secret(app, scaled[j]) : number(scaled[j]),
        [bar(soft[j]), number(soft[j])],
        [bar(sharp[j]), number(sharp[j])],
        j === chosen.key && app.options.scale ? secret(app, used[j]) : number(used[j]),
      ]),
    ),
  ];
}

function stationSoftmax(app) {
  const { attention, chosen, query } = app;
  const masked = attention.masked.at(chosen.head).row(query);
  const weights = attention.weights.at(chosen.head).row(query);
  const { highest, powers, sum } = softmaxParts(masked);
  const j = chosen.key;
  return [
    chosen.stack === "decoder" ? without(app, "mask", t("withoutMask")) : paragraph("note", t("noCausalMask")),
    formula(`softmax(s)_{j} = e^{s_j − max} / Σ e^{s − max}`, `, max = ${number(highest)}`),
    formula(`= e^{${number(masked[j] - highest)}} / ${number(sum)} = ${number(powers[j])} / ${number(sum)} = `, answer(app, weights[j])),
    table(
      t("softmaxOf"),
      [t("key"), t("score"), "e^{s − max}", t("weight")],
      keyRows(app, (each) => [
        attention.mask.get(query, each) ? number(masked[each]) : node("span", { class: "hatched" }, "−∞"),
        number(powers[each]),
        each === j ? secret(app, weights[each]) : [bar(weights[each]), number(weights[each])],
      ]),
    ),
    paragraph("note", t("sumIsOne", { sum: number(weights.reduce((total, value) => total + value, 0)) })),
    matrixOf(app, attention.weights, t("weights")),
  ];
}

const MOST_VALUES = 24; // strips of weighted values; of more keys, those with the largest weights

function stationValues(app) {
  const { attention, chosen, query } = app;
  const weights = attention.weights.at(chosen.head).row(query);
  const v = attention.v.at(chosen.head);
  const output = mixValues(new Tensor([1, 1, weights.length], weights), new Tensor([1, ...v.shape], v.data)).data;
  const i = Math.min(chosen.width, v.columns - 1);
  const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a]).slice(0, MOST_VALUES);
  const top = largest(v.data);
  const weighted = (j) => v.row(j).map((value) => value * weights[j]);
  const shown = order.sort((a, b) => a - b);
  const j = chosen.key;
  return [
    shown.length < weights.length && paragraph("note", t("largestOnly", { n: MOST_VALUES })),
    shown.map((each) =>
      vector(app, "width", weighted(each), "w·v", `${number(weights[each])} × v(${app.keyNames[each]})`, {
        top, key: `value-${each}`, secret: hidden(app) && each === j ? i : -1,
      }), // prettier-ignore
    ),
    vector(app, "width", output, "z", t("sum"), { top }),
    paragraph("tokens", app.keyNames.map((_, each) => keyButton(app, each))),
    formula(`w_{${j + 1}} v_{${j + 1}, ${i + 1}} = ${inside(weights[j])} · ${inside(v.get(j, i))} = `, answer(app, weights[j] * v.get(j, i))),
    formula(
      `z_{${i + 1}} = Σ w_{j} v_{j, ${i + 1}} = ${expanded(Array.from(weights, (weight, each) => [weight, v.get(each, i)]))} = `,
      node("strong", { class: "sum" }, number(output[i])),
    ),
  ];
}
