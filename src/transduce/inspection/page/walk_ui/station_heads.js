// Station 9: all heads side by side, joined and multiplied by W^O.

function headRow(app, head) {
  const { attention, chosen } = app;
  const name = `${chosen.stack}.${chosen.layer}.${head}`;
  const isSilent = app.options.silenced.has(name);
  const silence = () => {
    const silenced = new Set(app.options.silenced);
    if (isSilent) silenced.delete(name);
    else silenced.add(name);
    app.change({ silenced });
  };
  const values = attention.values.at(head).row(app.query);
  return node(
    "div",
    { class: "head-row" },
    vector(app, "width", values, "z", t("headNumber", { n: head + 1 }), { key: `head-${head}` }),
    toggle(t("silence", { n: head + 1 }), isSilent, silence, `silence-${head}`, !app.canChange),
  );
}

// What each head adds to one number of the output
function contributions(app, i) {
  const { heads, dV } = app.data.config;
  const name = `${app.attentionOf(app.record).name}.output`;
  const weight = app.model.tensor(`${name}.weight`);
  if (!weight) return null;
  const concat = app.attention.concat.row(app.query);
  const row = weight.row(i);
  const parts = Array.from({ length: heads }, (_, head) => {
    let sum = 0;
    for (let j = head * dV; j < (head + 1) * dV; j++) sum += concat[j] * row[j];
    return sum;
  });
  return { parts, bias: app.model.tensor(`${name}.bias`)?.data[i] ?? 0 };
}

function stationHeads(app) {
  const { attention, chosen, query } = app;
  const { heads } = app.data.config;
  const output = attention.output.row(query);
  const before = app.attentionOf(app.plain).attention.output.row(query);
  const i = chosen.model;
  const found = contributions(app, i);
  const position = Math.min(chosen.target, app.sentence.targetIds.length - 1);
  const [was, is] = [app.plain, app.record].map((record) => targetProbabilities(record, app.sentence.targetIds)[position]);
  const token = app.name("target", app.sentence.targetIds[position]);
  const top = largest(before);
  return [
    Array.from({ length: heads }, (_, head) => headRow(app, head)),
    strip(attention.concat.row(query), { name: "concat", label: "concat", key: "concat" }),
    vector(app, "model", output, "out", t("afterOutput"), { top, secret: hidden(app) ? i : -1 }),
    app.isChanged && vector(app, "model", before, "out", t("unchanged"), { top }),
    found && [
      formula(`out_{${i + 1}} = Σ_{h} z_{h} W^{O}_{h} + b`),
      formula(
        `= ${found.parts.map(inside).join(" + ")} + ${inside(found.bias)} = `,
        answer(app, output[i]),
      ),
      table(
        t("contributions", { n: i + 1 }),
        [t("head"), t("adds")],
        found.parts.map((part, head) => [String(head + 1), number(part)]),
      ),
    ],
    paragraph("note", t("probabilityOf"), " ", isolated(token), `: ${number(was)} → ${number(is)}`),
    !app.canChange && paragraph("note", t("stored")),
  ];
}
