// Small helpers for the document and for what the browser remembers.

export const $ = (id) => document.getElementById(id);

// A new element; its children are strings, which stay text, or nodes.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

export function icon(name) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(namespace, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, act) {
  const button = element("button", { type: "button", class: "icon", "aria-label": label, title: label }, icon(name));
  button.addEventListener("click", act);
  return button;
}

// Settings in the browser. A browser may forbid storage, and then everything works until the page is closed.
function store(area) {
  const memory = new Map();
  return {
    get(name, fallback = null) {
      try {
        return JSON.parse(area().getItem(`transduce.${name}`)) ?? fallback;
      } catch {
        return memory.get(name) ?? fallback;
      }
    },
    set(name, value) {
      memory.set(name, value);
      try {
        if (value === null) area().removeItem(`transduce.${name}`);
        else area().setItem(`transduce.${name}`, JSON.stringify(value));
      } catch {
        // Full or forbidden: the value lasts as long as the page.
      }
    },
  };
}

export const kept = store(() => localStorage);
export const keptForTab = store(() => sessionStorage);

let announcing;

// Tell a screen reader. A pause gathers quick changes into one announcement.
export function announce(message, pause = 100) {
  clearTimeout(announcing);
  announcing = setTimeout(() => ($("announcer").textContent = message), pause);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Plain HTTP on another machine has no clipboard API: copy from a text field instead.
    const field = element("textarea", { class: "visually-hidden", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
