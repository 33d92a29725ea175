// Stations 3, 10, 11 and 12: norms, residual connections, feed-forward networks, and the decoder's steps.

function stationNorm(app) {
  const { sublayer, query, chosen } = app;
  const { norm, pre } = sublayer;
  const i = chosen.model;
  const [x, unit, output] = [norm.input, norm.normalised, norm.output].map((each) => each.row(query));
  const [gamma, beta] = [norm.gamma.data[i], norm.beta ? norm.beta.data[i] : 0];
  const [mean, deviation] = [norm.mean ? norm.mean[query] : 0, norm.deviation[query]];
  return [
    partMenu(app),
    paragraph("note", t(pre ? "preNorm" : "postNorm")),
    !norm.mean && paragraph("note", t("rmsNorm")),
    vector(app, "model", x, "x", t("input")),
    vector(app, "model", unit, "x̂", norm.mean ? "(x − μ) / σ" : "x / σ"),
    vector(app, "model", norm.gamma.data, "γ", "γ"),
    norm.beta && vector(app, "model", norm.beta.data, "β", "β"),
    vector(app, "model", output, "y", "y = γ x̂ + β", { secret: hidden(app) ? i : -1 }),
    formula(`μ = ${number(mean)}, σ = √(var + ε) = ${number(deviation)}`),
    formula(
      `y_{${i + 1}} = (x_{${i + 1}} − μ) / σ · γ + β = (${number(x[i])} − ${inside(mean)}) / ${number(deviation)} · ${inside(gamma)} + ${inside(beta)} = `,
      answer(app, output[i]),
    ),
  ];
}

function stationResidual(app) {
  const { sublayer, query, chosen } = app;
  const i = chosen.model;
  const [before, added, sum, after] = ["input", "added", "sum", "output"].map((name) => sublayer[name].row(query));
  const top = Math.max(largest(before), largest(added), largest(sum));
  return [
    partMenu(app),
    vector(app, "model", before, "x", t("before"), { top }),
    vector(app, "model", added, "f", t("added"), { top }),
    vector(app, "model", sum, "x+f", t("sum"), { top, secret: hidden(app) ? i : -1 }),
    !sublayer.pre && vector(app, "model", after, "y", t("afterNorm")),
    formula(
      sublayer.pre ? `x + Sublayer(LayerNorm(x))` : `LayerNorm(x + Sublayer(x))`,
      `: x_{${i + 1}} + f_{${i + 1}} = ${inside(before[i])} + ${inside(added[i])} = `,
      answer(app, sum[i]),
    ),
    paragraph("note", t(sublayer.pre ? "preNorm" : "postNorm")),
  ];
}

function stationFeedForward(app) {
  const { query, chosen } = app;
  const { activation } = app.data.config;
  const { feedForward: found } = app.layerOf(app.record).feedForward;
  const i = chosen.inner;
  const active = found.active.row(query);
  const secretPlace = hidden(app) ? i : -1;
  const isZero = (value) => value === 0;
  const zeros = active.filter(isZero).length;
  const inner = (found.inner ?? found.gate).row(query);
  const up = found.up?.row(query);
  const steps = activation === "relu" ? `max(0, ${number(inner[i])})` : `${activation}(${number(inner[i])})`;
  return [
    vector(app, "model", found.input.row(query), "x", t("input")),
    vector(app, "inner", inner, "h", found.gate ? t("gate") : "xW₁ + b₁"),
    up && vector(app, "inner", up, "u", t("up")),
    vector(app, "inner", active, "a", t("active"), { grey: isZero, secret: secretPlace }),
    activation === "relu" && paragraph("note", t("zeros", { n: zeros, of: active.length })),
    vector(app, "model", found.output.row(query), "f", t("output")),
    formula(
      found.gate ? `FFN(x) = (act(xW) ⊙ xV) W_{2} + b_{2}` : `FFN(x) = act(xW_{1} + b_{1}) W_{2} + b_{2}`,
    ),
    formula(`a_{${i + 1}} = ${steps}${up ? ` · ${inside(up[i])}` : ""} = `, answer(app, active[i])),
  ];
}

function weightList(app, title, names, weights, isHidden = () => false) {
  const rows = names.map((name, j) => [
    isolated(name),
    isHidden(j) ? node("span", { class: "hatched" }, "−∞ → 0") : [bar(weights[j]), number(weights[j])],
  ]);
  return table(title, [t("key"), t("weight")], rows);
}

function stationDecoder(app) {
  const { chosen, record, sentence } = app;
  const step = chosen.target;
  const layer = record.decoder[Math.min(chosen.layer, record.decoder.length - 1)];
  const self = layer.selfAttention.attention;
  const memory = layer.memoryAttention.attention;
  const [best] = mostLikely(app.model, record.logits.row(step), 1, 1, shareOf(app, step));
  const past = app.names("target");
  const go = (target) => app.choose({ target });
  return [
    paragraph(
      "controls",
      node("button", { type: "button", "data-key": "step-back", disabled: step === 0, onclick: () => go(step - 1) }, t("stepBack")),
      ` ${t("step", { n: step + 1, of: sentence.inputIds.length })} `,
      node(
        "button",
        { type: "button", "data-key": "step-on", disabled: step === sentence.inputIds.length - 1, onclick: () => go(step + 1) },
        t("stepOn"),
      ),
    ),
    node("h3", {}, t("hasRead")),
    tokenList(past.slice(0, step + 1), sentence.inputIds),
    weightList(app, t("selfWeights", { n: chosen.head + 1 }), past, self.weights.at(chosen.head).row(step), (j) => !self.mask.get(step, j)),
    paragraph("note", t("maskedFuture")),
    weightList(app, t("memoryWeights", { n: chosen.head + 1 }), app.names("source"), memory.weights.at(chosen.head).row(step)),
    paragraph("note", t("memoryKeys")),
    formula(`${t("says")} `, isolated(app.name("target", best.id)), ` p = `, answer(app, best.probability)),
  ];
}
