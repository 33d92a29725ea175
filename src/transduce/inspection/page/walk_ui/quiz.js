// Quiz mode: one number of the station is hidden, the student computes it, and the page checks.
//
//   answer(app, value)     the number, or a field for it in quiz mode
//   secret(app, value)     the number elsewhere: "?" until it was found
//   hidden(app)            whether the number is still to be found

const hidden = (app) => app.quiz && !app.solved;
const secret = (app, value) => (hidden(app) ? "?" : number(value));

const typedNumber = (text) => {
  const plain = text.trim().replace("−", "-").replace(",", ".");
  return plain === "" ? NaN : Number(plain);
};

// The numbers on the page have four digits: an answer may be off by what that adds up to.
const isRight = (typed, value) => Math.abs(typed - value) <= Math.max(0.006, 0.01 * Math.abs(value));

function answer(app, value) {
  if (!hidden(app)) return node("strong", { class: "result", "data-result": String(value) }, number(value));
  const field = node("input", { type: "text", inputmode: "decimal", size: "9", "aria-label": t("yourAnswer"), "data-key": "answer" });
  const submit = (event) => {
    event.preventDefault();
    const typed = typedNumber(field.value);
    if (isRight(typed, value)) {
      app.solved = true;
      app.draw(app);
      announce(t("right", { value: number(value) }));
    } else announce(Number.isNaN(typed) ? t("notANumber") : t("wrong"));
  };
  const show = () => {
    app.solved = true;
    app.draw(app);
    announce(t("itIs", { value: number(value) }));
  };
  return node(
    "form",
    { class: "answer", onsubmit: submit },
    field,
    node("button", { type: "submit" }, t("checkAnswer")),
    node("button", { type: "button", onclick: show }, t("reveal")),
  );
}
