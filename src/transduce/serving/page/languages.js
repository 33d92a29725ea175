// The two language selectors and the directions that the server has.

import { $, element, kept } from "./dom.js";
import { languageName, t } from "./strings.js";

let served = { directions: [], languages: [], detection: false };
let onChange = () => {};

const names = () => new Map(served.languages.map(({ code, name }) => [code, name]));
const nameOf = (code) => languageName(code, names().get(code));
const byName = (first, second) => nameOf(first).localeCompare(nameOf(second));

// A server whose only model does not know its languages.
const isBare = () => served.directions.every(({ source, target }) => !source && !target);
const isServed = (source, target) => served.directions.some((one) => one.source === source && one.target === target);

export const direction = () => {
  if (isBare()) return { source: null, target: null };
  return { source: $("source-language").value || null, target: $("target-language").value || null };
};

function options(select, codes, wanted) {
  select.replaceChildren(...codes.map((code) => element("option", { value: code }, code === "auto" ? t("detect") : nameOf(code))));
  select.value = codes.includes(wanted) ? wanted : codes[0] ?? "";
}

function showTargets(wanted) {
  const source = $("source-language").value;
  const reachable = served.directions.filter((one) => source === "auto" || one.source === source).map(({ target }) => target);
  options($("target-language"), [...new Set(reachable)].sort(byName), wanted);
}

function show(source, target) {
  $("languages").hidden = isBare();
  if (isBare()) return;
  const sources = [...new Set(served.directions.map((one) => one.source))].sort(byName);
  options($("source-language"), [...(served.detection ? ["auto"] : []), ...sources], source);
  showTargets(target);
}

// `detected` is the language of the text where the source language is detected.
export function showSwap(detected) {
  const { source, target } = direction();
  const from = source === "auto" ? detected : source;
  const possible = Boolean(from) && isServed(target, from);
  $("swap").disabled = !possible;
  $("swap").title = possible ? t("swap") : t("swapImpossible");
}

export function swapLanguages(detected) {
  const { source, target } = direction();
  const from = source === "auto" ? detected : source;
  if (!from || !isServed(target, from)) return false;
  show(target, from);
  changed();
  return true;
}

export function setDirection(source, target) {
  if (isBare() || !isServed(source, target)) return;
  if (direction().source !== "auto") show(source, target);
  else showTargets(target);
  changed();
}

function changed() {
  kept.set("direction", direction());
  onChange();
}

export function showLanguages() {
  const { source, target } = direction();
  show(source, target);
}

export function startLanguages(models, whenChanged) {
  served = { ...served, ...models };
  onChange = whenChanged;
  const { source, target } = kept.get("direction", {});
  const [first] = served.directions;
  show(source ?? (served.detection ? "auto" : first?.source), target ?? first?.target);
  $("source-language").addEventListener("change", () => {
    showTargets(direction().target);
    changed();
  });
  $("target-language").addEventListener("change", changed);
}

export { nameOf };
