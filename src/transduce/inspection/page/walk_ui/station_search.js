// Stations 14 and 15: beam search, and what the translation owes to each source token.

// Changes whenever the sentence or the options do
const stateKey = (app) =>
  [app.sentence.source, ...Object.values(app.options).map((each) => (each instanceof Set ? [...each].join() : each))].join("|");

function found(app) {
  const { beam, alpha } = app.search;
  if (!app.canChange) return { hypotheses: app.data.search.hypotheses, trace: app.data.search.trace };
  const key = [beam, alpha, stateKey(app)].join("|");
  if (app.cachedSearch?.key !== key) {
    app.cachedSearch = { key, ...app.beamSearch(app.sentence.sourceIds, app.search, app.options) };
  }
  return app.cachedSearch;
}

// The tokens of a branch, by its parents
function pathOf(trace, step, index) {
  const tokens = [];
  for (let [at, place] = [step, index]; at >= 0 && place >= 0; at--) {
    tokens.unshift(trace[at][place].token);
    place = trace[at][place].parent;
  }
  return tokens;
}

function searchControls(app, steps) {
  const { search } = app;
  const field = (name, properties) =>
    node("input", {
      ...properties, value: String(search[name]), "data-key": `search-${name}`,
      onchange: (event) => {
        const value = Number(event.target.value);
        if (event.target.value !== "" && value >= Number(properties.min) && value <= Number(properties.max)) {
          search[name] = value;
          if (name !== "step") search.step = 1;
        }
        app.choose({});
      },
    }); // prettier-ignore
  const disabled = !app.canChange;
  const go = (step) => {
    search.step = step;
    app.choose({});
  };
  return [
    paragraph(
      "controls",
      node("label", { class: "choice" }, `${t("width")} `, field("beam", { type: "number", min: "1", max: "12", step: "1", disabled })),
      node("label", { class: "choice" }, `${t("lengthPenalty")} α `, field("alpha", { type: "number", min: "0", max: "3", step: "0.1", disabled })),
    ),
    paragraph(
      "controls",
      node("button", { type: "button", "data-key": "beam-back", disabled: search.step <= 1, onclick: () => go(search.step - 1) }, t("stepBack")),
      ` ${t("step", { n: search.step, of: steps })} `,
      node("button", { type: "button", "data-key": "beam-on", disabled: search.step >= steps, onclick: () => go(search.step + 1) }, t("stepOn")),
      node("button", { type: "button", "data-key": "beam-end", disabled: search.step >= steps, onclick: () => go(steps) }, t("toTheEnd")),
    ),
  ];
}

function stationBeam(app) {
  const { hypotheses, trace } = found(app);
  const { search } = app;
  search.step = Math.max(1, Math.min(search.step, trace.length));
  const at = search.step - 1;
  const names = (tokens) => tokens.map((id) => [isolated(app.name("target", id)), " "]);
  const prefix = app.data.frame.targetPrefix.length;
  const penalty = lengthPenalty(app.data.search.penalty, search.alpha)(prefix + search.step);
  const before = (branch) => (at > 0 ? trace[at - 1][branch.parent].score : 0);
  const rows = trace[at].map((branch, index) => ({
    cells: [
      names(pathOf(trace, at, index)),
      number(before(branch)),
      number(branch.logProbability),
      index === 0 ? secret(app, branch.score) : number(branch.score),
      t(branch.fate),
    ],
    attributes: { class: branch.fate },
  }));
  const [first] = trace[at];
  const divided = first.fate === "ended" ? ` / ${number(penalty)}` : "";
  return [
    ...searchControls(app, trace.length),
    formula(`score = Σ log p(y_{t} | y_{<t}, x) / lp,  lp = ${app.data.search.penalty === "paper" ? "((5 + |Y|) / 6)^{α}" : "|Y|^{α}"}`),
    formula(`(${number(before(first))} + ${inside(first.logProbability)})${divided} = `, answer(app, first.score)),
    table(t("branches"), [t("hypothesis"), t("sumBefore"), "log p", t("score"), t("fate")], rows),
    search.step < trace.length
      ? paragraph("note", t("winnerLater"))
      : table(
          t("winner"),
          [t("hypothesis"), t("score")],
          hypotheses.map(({ tokens, score }) => [names(tokens), number(score)]),
        ),
    !app.canChange && paragraph("note", t("stored")),
  ];
}

// One forward pass per source token: done once, not at every drawing
function occluded(app) {
  const { sourceIds, inputIds, targetIds } = app.sentence;
  const key = stateKey(app);
  if (app.cachedOcclusion?.key !== key) {
    app.cachedOcclusion = { key, ...occlusion(app.model, sourceIds, inputIds, targetIds, { options: app.options }) };
  }
  return app.cachedOcclusion;
}

function stationWhy(app) {
  const { sentence, chosen, record } = app;
  const position = Math.min(chosen.target, sentence.targetIds.length - 1);
  const token = app.name("target", sentence.targetIds[position]);
  const source = app.names("source");
  const tried = app.canChange ? occluded(app) : null;
  const gradients = sentence.isOriginal ? unpackFloats(app.data.attributions.source).row(position) : null;
  const { weights } = record.decoder.at(-1).memoryAttention.attention;
  const heads = weights.shape[0];
  const mean = source.map((_, j) => {
    let sum = 0;
    for (let head = 0; head < heads; head++) sum += weights.get(head, position, j) / heads;
    return sum;
  });
  const key = Math.min(chosen.source, source.length - 1);
  const drop = (j) => tried.whole[position] - tried.without.get(j, position);
  const rows = source.map((name, j) => [
    isolated(name),
    tried ? number(tried.without.get(j, position)) : "–",
    tried ? (j === key ? secret(app, drop(j)) : number(drop(j))) : "–",
    gradients ? number(gradients[j]) : "–",
    [bar(mean[j]), number(mean[j])],
  ]);
  return [
    paragraph("given", t("whyToken"), " ", isolated(token)),
    tried &&
      formula(
        `p − p(`, t("withoutToken"), " ", isolated(source[key]),
        `) = ${number(tried.whole[position])} − ${number(tried.without.get(key, position))} = `, answer(app, drop(key)),
      ), // prettier-ignore
    table(t("three"), [t("sourceToken"), t("pWithout"), t("falls"), t("gradient"), t("meanAttention")], rows),
    paragraph("note", t("caution")),
    !gradients && paragraph("note", t("gradientOriginal")),
    !tried && paragraph("note", t("stored")),
  ];
}
