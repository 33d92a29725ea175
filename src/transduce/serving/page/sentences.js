// What the model says about its translation: confidence, warnings and glossary terms, for the text and for each sentence.

import { $, element, icon } from "./dom.js";
import { sourceOf, targetOf } from "./result.js";
import { has, percent, t } from "./strings.js";

const LISTED = 300; // sentences; a longer text has its warnings and its whole confidence

const level = (confidence) => (confidence >= 0.75 ? "high" : confidence >= 0.5 ? "medium" : "low");

function meter(confidence) {
  const name = level(confidence);
  const bar = element("i", { "aria-hidden": "true" }, element("i"));
  bar.firstChild.style.width = `${Math.round(100 * confidence)}%`;
  return [bar, `${t("confidence", { percent: percent(confidence) })} (${t(name)})`];
}

export function confidenceOf(place, confidence) {
  place.hidden = confidence == null;
  if (confidence == null) return;
  place.className = `confidence ${level(confidence)}`;
  place.replaceChildren(...meter(confidence));
}

function nameOf(kind) {
  if (has(`${kind}Warning`)) return t(`${kind}Warning`);
  return has(kind) ? t(kind) : "";
}

function warningItem({ kind, message, sentence }, withNumber) {
  const where = withNumber && sentence !== null ? `${t("inSentence", { number: sentence + 1 })}: ` : "";
  const name = nameOf(kind);
  return element("li", {}, icon("warning"), element("span", {}, element("strong", {}, where + name), name && message ? ". " : "", message ?? ""));
}

export function showWarnings(result) {
  const warnings = result?.warnings ?? [];
  $("warnings").hidden = warnings.length === 0;
  $("warnings").replaceChildren(...warnings.map((warning) => warningItem(warning, result.sentences.length > 1)));
  const hits = new Map((result?.hits ?? []).map(({ source, target }) => [`${source}\t${target}`, [source, target]]));
  $("hits").hidden = hits.size === 0;
  $("hits").replaceChildren(
    ...[...hits.values()].map(([source, target]) => element("li", {}, element("bdi", {}, source), " → ", element("bdi", {}, target))),
  );
}

// `openAlternatives(index)` and `openAttention(index)` are the buttons of a sentence.
export function showSentences(result, openAlternatives, openAttention) {
  $("welcome").hidden = Boolean(result);
  const items = (result?.sentences ?? []).slice(0, LISTED).map((sentence, index) => {
    const confidence = element("span", {});
    confidenceOf(confidence, sentence.confidence);
    const button = (key, act) => {
      const made = element("button", { type: "button", class: "link" }, t(key));
      made.setAttribute("aria-label", `${t(key)}: ${t("inSentence", { number: index + 1 })}`);
      made.addEventListener("click", () => act(index));
      return made;
    };
    const own = result.warnings.filter((warning) => warning.sentence === index);
    return element(
      "li",
      { class: "item pair" },
      element("p", { dir: "auto", lang: result.sourceLanguage }, sourceOf(result, sentence)),
      element("p", { dir: "auto", lang: result.targetLanguage, class: "strong" }, targetOf(result, sentence)),
      element("div", { class: "row" }, confidence, button("showAlternatives", openAlternatives), button("showAttention", openAttention)),
      ...(own.length > 0 ? [element("ul", { class: "warnings" }, ...own.map((warning) => warningItem(warning, false)))] : []),
    );
  });
  $("sentence-list").replaceChildren(...items);
}

export function markSentence(index) {
  [...$("sentence-list").children].forEach((item, other) => item.classList.toggle("current", other === index));
}
