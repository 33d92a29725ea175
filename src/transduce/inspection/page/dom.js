// Short names for the DOM.

const $ = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Text for screen readers only.
const unseen = (text) => element("span", { class: "unseen" }, text);
