// Station 13: from the decoder's last state to probabilities, and the logit lens.

const SHOWN = 10;

// The probability of all tokens that have columns
const shareOf = (app, position, temperature = 1) =>
  app.model.stored && temperature === 1 ? app.model.stored.shares[position] : 1;

function temperatureField(app) {
  const { temperature } = app.options;
  const field = node("input", {
    type: "range", min: "0.1", max: "3", step: "0.1", value: String(temperature), "data-key": "temperature",
    oninput: (event) => {
      app.options.temperature = Number(event.target.value);
      app.choose({});
    },
  }); // prettier-ignore
  return node("label", { class: "choice" }, `${t("temperature")} `, field, ` ${temperature.toFixed(1)}`);
}

function lens(app, position) {
  const rows = app.record.decoder.map((_, layer) => {
    const best = mostLikely(app.model, logitLens(app.model, app.record, layer).row(position), 3);
    const cells = best.map(({ id, probability }) => [isolated(app.name("target", id)), ` ${number(probability)}`]);
    return [t("afterLayer", { n: layer + 1 }), ...cells];
  });
  return table(t("lens"), [t("layer"), "1.", "2.", "3."].slice(0, 1 + rows[0].length - 1), rows);
}

function stationOutput(app) {
  const { record, chosen, options } = app;
  const position = chosen.target;
  const { temperature } = options;
  const logits = record.logits.row(position);
  const best = mostLikely(app.model, logits, SHOWN, temperature, shareOf(app, position, temperature));
  const highest = best[0].logit;
  const sum = logits.reduce((total, value) => total + Math.exp((value - highest) / temperature), 0);
  const whole = sum / shareOf(app, position, temperature);
  return [
    paragraph("controls", temperatureField(app)),
    vector(app, "model", record.states.row(position), "x", t("lastState")),
    formula(`z = x W_{out} + b,  p_{j} = e^{(z_j − max)/T} / Σ e^{(z − max)/T}`),
    formula(
      `p(`, isolated(app.name("target", best[0].id)), `) = e^{0} / ${number(whole)} = `, answer(app, best[0].probability),
    ), // prettier-ignore
    table(
      t("mostLikely", { n: best.length }),
      [t("token"), "id", "z", "p"],
      best.map(({ id, logit, probability }, i) => [
        isolated(app.name("target", id)),
        String(id),
        number(logit),
        i === 0 && hidden(app) ? "?" : [bar(probability), number(probability)],
      ]),
    ),
    app.model.stored && paragraph("note", t("storedColumns")),
    node("h3", {}, t("lens")),
    paragraph("note", t("lensAbout")),
    lens(app, position),
  ];
}
