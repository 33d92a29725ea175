// Elements of the page: texts, formulas and choices.
//
//   node(tag, properties, ...children)   properties: attributes; "on…": listeners; null and false are left out
//   math("x_{i} = y^{2}")                [nodes] with subscripts and superscripts
//   plainMath(text)                      the same text without them
//   number(value)                        a number as text, with a true minus sign
//   choice(label, options, value, onChange, key)   a menu; options: [[value, text]]
//   toggle(label, pressed, onClick, key)           a button that is pressed or not
//   table(caption, heads, rows)          rows: lists of nodes or texts, or {cells, attributes}
//
// An element with data-key has the focus again after the station is drawn anew.

function node(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== false));
  return made;
}

function math(text) {
  return text.split(/([_^]\{[^}]*\})/).map((part) => {
    const tag = part.startsWith("_{") ? "sub" : part.startsWith("^{") ? "sup" : null;
    return tag ? node(tag, {}, part.slice(2, -1)) : part;
  });
}

const plainMath = (text) => text.replace(/[_^]\{([^}]*)\}/g, "$1");

function number(value) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  let text = size >= 1000 ? size.toFixed(1) : size.toFixed(4);
  if (size > 0 && size < 0.0001) text = size.toExponential(2).replace("-", "−");
  return value < 0 ? `−${text}` : text;
}

// In a sum or product, a negative number stands in parentheses.
const inside = (value) => (value < 0 ? `(${number(value)})` : number(value));

function choice(label, options, value, onChange, key) {
  const menu = node(
    "select",
    { "data-key": key, onchange: (event) => onChange(event.target.value) },
    options.map(([each, text]) => node("option", { value: each, selected: String(each) === String(value) }, text)),
  );
  return node("label", { class: "choice" }, `${label} `, menu);
}

const toggle = (label, pressed, onClick, key, disabled = false) =>
  node(
    "button",
    { type: "button", class: "toggle", "aria-pressed": String(pressed), "data-key": key, disabled, onclick: onClick },
    label,
  );

const paragraph = (kind, ...children) => node("p", { class: kind }, ...children);
const formula = (...children) =>
  node("p", { class: "formula" }, ...children.flat(Infinity).map((child) => (typeof child === "string" ? math(child) : child)));

function table(caption, heads, rows) {
  const body = rows.map((row) => {
    const { cells, attributes = {} } = Array.isArray(row) ? { cells: row } : row;
    return node(
      "tr",
      attributes,
      cells.map((cell, i) => (i === 0 ? node("th", { scope: "row" }, cell) : node("td", {}, cell))),
    );
  });
  return node(
    "div",
    { class: "scroller", tabindex: "0", role: "region", "aria-label": caption },
    node(
      "table",
      {},
      node("caption", {}, caption),
      node("thead", {}, node("tr", {}, heads.map((head) => node("th", { scope: "col" }, math(head))))),
      node("tbody", {}, body),
    ),
  );
}

const bar = (share) => {
  const made = node("span", { class: "bar", "aria-hidden": "true" });
  made.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return made;
};
