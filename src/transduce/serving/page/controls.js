// Tabs, theme, keyboard shortcuts and dialogs.

import { $, element, kept } from "./dom.js";
import { t } from "./strings.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : system.matches;
};

export function showTheme() {
  $("theme").setAttribute("aria-label", t(isDark() ? "toLight" : "toDark"));
  $("theme").title = t(isDark() ? "toLight" : "toDark");
}

function switchTheme() {
  const wanted = isDark() ? "light" : "dark";
  // Back at the system's theme, the page follows the system again.
  const follows = (wanted === "dark") === system.matches;
  if (follows) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = wanted;
  kept.set("theme", follows ? null : wanted);
  showTheme();
}

const tabs = () => [...$("tabs").querySelectorAll('[role="tab"]')].filter((tab) => !tab.hidden);
let opened = () => {};

export function openTab(name, focus = false) {
  for (const tab of $("tabs").querySelectorAll('[role="tab"]')) {
    const selected = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", selected);
    tab.tabIndex = selected ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !selected;
    if (selected) {
      tab.scrollIntoView({ block: "nearest", inline: "nearest" });
      if (focus) tab.focus();
    }
  }
  opened(name);
}

function startTabs() {
  $("tabs").addEventListener("click", (event) => {
    const tab = event.target.closest('[role="tab"]');
    if (tab) openTab(tab.getAttribute("aria-controls"));
  });
  $("tabs").addEventListener("keydown", (event) => {
    const all = tabs();
    const index = all.indexOf(document.activeElement);
    const next = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    openTab(all[(next + all.length) % all.length].getAttribute("aria-controls"), true);
  });
  openTab("sentences");
}

const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
// Option types characters on a Mac, and Control with Shift is free there.
const held = (event) => {
  if (isMac) return event.ctrlKey && event.shiftKey && !event.altKey && !event.metaKey;
  return event.altKey && !event.ctrlKey && !event.shiftKey && !event.metaKey;
};
const prefix = isMac ? ["Control", "Shift"] : ["Alt"];
const VIEWS = { KeyN: "sentences", KeyA: "attention", KeyG: "glossary", KeyO: "documents", KeyH: "history" };

export function showShortcuts() {
  const rows = [
    ["keyTranslate", [[isMac ? "⌘" : "Ctrl", "Enter"]]],
    ["keySwap", [[...prefix, "S"]]],
    ["keyCopy", [[...prefix, "C"]]],
    ["keySource", [[...prefix, "1"]]],
    ["keyOutput", [[...prefix, "2"]]],
    ["keyViews", [..."NAGOH"].map((letter) => [...prefix, letter])],
    ["keyWords", [["←"], ["→"], ["↑"], ["↓"]]],
    ["keyAlternatives", [["Enter"]]],
    ["keyEscape", [["Esc"]]],
    ["keyHelp", [["?"]]],
  ];
  const keys = (combinations) => combinations.flatMap((combination, index) => [
    index > 0 ? " " : "",
    element("span", { class: "keys" }, ...combination.flatMap((key, place) => [place > 0 ? "+" : "", element("kbd", {}, key)])),
  ]);
  $("shortcut-list").replaceChildren(
    ...rows.map(([name, combinations]) => element("div", {}, element("dt", {}, ...keys(combinations)), element("dd", {}, t(name)))),
  );
}

const isField = (node) => node.matches?.("input, textarea, select");

// `actions` are translate, swap, copy, source, output and view(name).
function startKeys(actions) {
  addEventListener("keydown", (event) => {
    if (event.isComposing || document.querySelector("dialog[open]")) return;
    let act = null;
    if ((event.ctrlKey || event.metaKey) && event.key === "Enter") act = actions.translate;
    else if (event.key === "Escape" && $("output").contains(event.target)) act = actions.source;
    else if (event.key === "?" && !isField(event.target)) act = () => $("shortcuts").showModal();
    else if (held(event)) {
      const named = { KeyS: actions.swap, KeyC: actions.copy, Digit1: actions.source, Digit2: actions.output };
      act = named[event.code] ?? (VIEWS[event.code] && (() => actions.view(VIEWS[event.code])));
    }
    if (!act) return;
    event.preventDefault();
    act();
  });
}

export function startControls(actions, whenOpened) {
  opened = whenOpened;
  startTabs();
  startKeys(actions);
  $("theme").addEventListener("click", switchTheme);
  system.addEventListener("change", showTheme);
  $("shortcuts-open").addEventListener("click", () => $("shortcuts").showModal());
}
