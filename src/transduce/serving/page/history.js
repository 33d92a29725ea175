// The history: kept in this browser only, cleared and switched off here.

import { $, element, iconButton, kept } from "./dom.js";
import { interfaceLanguage, languageName, t } from "./strings.js";

const LONGEST = 50;
const SETTLED = 1500; // milliseconds after the last change
const SAME_TEXT = 10 * 60 * 1000; // milliseconds in which a longer version replaces a shorter one
let timer = 0;

const entries = () => {
  const found = kept.get("history", []);
  return Array.isArray(found) ? found : [];
};
const isOn = () => kept.get("history-on", true) !== false;

function record(result) {
  if (!isOn()) return;
  const entry = {
    text: result.text,
    translation: result.translation,
    source: result.sourceLanguage,
    target: result.targetLanguage,
    time: Date.now(),
  };
  const old = entries();
  const [last] = old;
  const grows = last && (entry.text.startsWith(last.text.trim()) || last.text.startsWith(entry.text.trim()));
  if (grows && last.target === entry.target && entry.time - last.time < SAME_TEXT) old.shift();
  const others = old.filter(({ text, target }) => text !== entry.text || target !== entry.target);
  kept.set("history", [entry, ...others].slice(0, LONGEST));
  showHistory();
}

export function remember(result) {
  clearTimeout(timer);
  if (result) timer = setTimeout(() => record(result), SETTLED);
}

let restore = () => {};

export function showHistory() {
  const found = entries();
  $("history-empty").hidden = found.length > 0;
  $("history-clear").disabled = found.length === 0;
  const time = new Intl.DateTimeFormat(interfaceLanguage(), { dateStyle: "medium", timeStyle: "short" });
  const items = found.map((entry, index) => {
    const names = [entry.source, entry.target].filter(Boolean).map((code) => languageName(code));
    const use = element(
      "button",
      { type: "button", class: "entry" },
      element("span", { class: "quiet small" }, [names.join(" → "), time.format(entry.time)].filter(Boolean).join(" · ")),
      element("span", { class: "clip", dir: "auto", lang: entry.source }, entry.text),
      element("span", { class: "clip strong", dir: "auto", lang: entry.target }, entry.translation),
    );
    use.addEventListener("click", () => restore(entry));
    const forget = iconButton("clear", t("forget"), () => {
      kept.set("history", entries().filter((_, other) => other !== index));
      showHistory();
      $("tab-history").focus();
    });
    return element("li", { class: "item" }, use, forget);
  });
  $("history-list").replaceChildren(...items);
}

export function startHistory(onRestore) {
  restore = onRestore;
  $("history-keep").checked = isOn();
  $("history-keep").addEventListener("change", (event) => {
    kept.set("history-on", event.target.checked);
    if (!event.target.checked) clearTimeout(timer);
  });
  $("history-clear").addEventListener("click", () => {
    clearTimeout(timer);
    kept.set("history", null);
    showHistory();
    $("history-keep").focus();
  });
  showHistory();
}
