// Parts that several stations share.
//
//   vector(app, axis, values, name, label, more)   a strip whose chosen number is the same in all strips of the
//                                                  axis: "model" (d_model), "width" (d_k, d_v), "inner" (d_ff)
//   keyButton(app, j), keyRows(app, cells)         the keys of the chosen query, one per row of a table
//   matrixOf(app, tensor, label)                   the matrix of the chosen head
//   without(app, option, label)                    a button that switches a part of the model off
//   expanded(terms)                                the first terms of a long sum

function vector(app, axis, values, name, label, more = {}) {
  const onChoose = (i) => app.choose({ [axis]: i });
  return strip(values, { name, label, chosen: app.chosen[axis], onChoose, key: `${axis}-${label}`, ...more });
}

const isolated = (text) => node("bdi", {}, text);

const keyButton = (app, j) =>
  node(
    "button",
    {
      type: "button", class: "token", "aria-pressed": String(j === app.chosen.key), "data-key": `key-${j}`,
      onclick: () => app.choose({ key: j }),
    }, // prettier-ignore
    isolated(app.keyNames[j]),
  );

const keyRows = (app, cells) =>
  app.keyNames.map((_, j) => ({
    cells: [keyButton(app, j), ...cells(j)],
    attributes: { class: j === app.chosen.key ? "chosen" : null },
  }));

function matrixOf(app, tensor, label) {
  const { attention, chosen } = app;
  const choose = (i, j) => app.choose({ [app.side]: i, key: j });
  return grid(tensor.at(chosen.head), {
    label: `${label} (${t("rowsColumns")})`,
    mask: attention.mask, row: app.query, column: chosen.key, onChoose: choose,
  }); // prettier-ignore
}

function without(app, option, label) {
  const isOff = !app.options[option];
  return node(
    "p",
    { class: "controls" },
    toggle(label, isOff, () => app.change({ [option]: isOff }), `without-${option}`, !app.canChange),
    app.canChange ? null : ` ${t("stored")}`,
  );
}

function expanded(terms, shown = 3) {
  const parts = terms.slice(0, shown).map(([a, b]) => `${inside(a)}·${inside(b)}`);
  return parts.join(" + ") + (terms.length > shown ? ` + … (${t("terms", { n: terms.length })})` : "");
}

const indexOf = (axis) => String(axis + 1);

// Query and key vectors as they meet: rotated, if the model rotates them
const queriesOf = ({ rotated, q }) => (rotated ? rotated.q : q);
const keysOf = ({ rotated, k }) => (rotated ? rotated.k : k);

function partMenu(app) {
  const options = app.parts.map((part) => [part, t(part)]);
  return paragraph("controls", choice(t("sublayer"), options, app.chosen.part, (part) => app.choose({ part }), "part"));
}

// Softmax of a row, by the numbers on the way; −∞ → 0
function softmaxParts(row) {
  const highest = row.reduce((top, value) => Math.max(top, value), -Infinity);
  const powers = Array.from(row, (value) => (value === -Infinity ? 0 : Math.exp(value - highest)));
  const sum = powers.reduce((total, value) => total + value, 0);
  return { highest, powers, sum, weights: powers.map((power) => (sum ? power / sum : 0)) };
}
