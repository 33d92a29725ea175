// The page: brings its parts together.

import { openAlternatives, startAlternatives } from "./alternatives.js";
import { apiKey, askForKey, call } from "./api.js";
import { attentionOpened, attentionResult, attentionSentence, startAttention } from "./attention.js";
import { openTab, showShortcuts, showTheme, startControls } from "./controls.js";
import { documentTypes, startDocuments } from "./documents.js";
import { $, announce, copyText, element, kept } from "./dom.js";
import { glossaryDirection, glossaryLanguage, glossaryOpened, startGlossary, termsOfRequest } from "./glossary.js";
import { remember, showHistory, startHistory } from "./history.js";
import { direction, nameOf, setDirection, showLanguages, showSwap, startLanguages, swapLanguages } from "./languages.js";
import { firstWord, focusWord, sentenceAtCursor, showResult, showSource, startPanes } from "./panes.js";
import { confidenceOf, markSentence, showSentences, showWarnings } from "./sentences.js";
import { browserLanguage, number, percent, showLanguage, t } from "./strings.js";
import { directionOf, lengthInCodePoints } from "./text.js";
import { Translation } from "./translation.js";

const source = $("source");
let models = { directions: [], limits: {}, documents: [], version: "" };
let countdown = 0;
let starting = 0;

const settings = () => ({ ...direction(), format: "text", ...termsOfRequest() });
const translation = new Translation(settings, () => models.limits ?? {}, {
  onBusy() {
    $("progress").hidden = false;
    $("target-pane").setAttribute("aria-busy", "true");
  },
  onPart: show,
  onResult(result) {
    calm();
    showProblem(null);
    show(result);
    remember(result);
    if (result) announce(`${t("translation")}: ${result.translation.slice(0, 400)}`, 1200);
  },
  onProblem(problem, seconds) {
    calm();
    showProblem(problem, seconds);
  },
});

function calm() {
  $("progress").hidden = true;
  $("target-pane").removeAttribute("aria-busy");
}

function show(result) {
  showResult(result);
  showWarnings(result);
  showSentences(result, alternativesOf, attentionOf);
  attentionResult(result);
  inSentence(sentenceAtCursor());
  $("copy").disabled = !result;
  confidenceOf($("confidence"), result?.confidence);
  showDetected(result?.detected);
  showWriting(result);
}

function inSentence(index) {
  if (index === null) return;
  attentionSentence(index);
  markSentence(index);
}

function showDetected(detected) {
  const known = direction().source === "auto" && detected;
  const values = known && { language: nameOf(detected.language), percent: percent(detected.confidence) };
  $("detected").textContent = known ? t("detected", values) : "";
  showSwap(detected?.language);
}

// Language and writing direction of both texts.
function showWriting(result) {
  const chosen = direction();
  const from = result?.sourceLanguage ?? (chosen.source === "auto" ? null : chosen.source);
  const to = result?.targetLanguage ?? chosen.target;
  for (const [ids, language] of [[["source", "mirror"], from], [["output"], to]]) {
    for (const node of ids.map($)) {
      node.dir = directionOf(language);
      if (language) node.lang = language;
      else node.removeAttribute("lang");
    }
  }
}

function showProblem(problem, seconds = null) {
  clearInterval(countdown);
  $("problem").hidden = !problem;
  if (!problem) return;
  // A screen reader hears the first count only.
  const [heard, message] = [element("strong", { class: "visually-hidden" }), element("strong", { "aria-hidden": "true" })];
  const remedy = element("span", {}, seconds === null ? problem.remedy : "");
  const again = element("button", { type: "button" }, t("tryAgain"));
  again.addEventListener("click", () => (models.directions.length > 0 ? translation.now() : start()));
  const said = () => {
    if (seconds !== null && problem.status === 0) return t("unreachable", { seconds });
    if (seconds !== null) return t("busy", { seconds });
    return problem.message || t("serverFault", { status: problem.status });
  };
  heard.textContent = message.textContent = said();
  if (!problem.message && !problem.temporary) remedy.textContent = t("serverFaultRemedy");
  $("problem").replaceChildren(heard, message, remedy, problem.final ? "" : again);
  if (seconds === null) return;
  countdown = setInterval(() => {
    seconds = Math.max(0, seconds - 1);
    message.textContent = said();
  }, 1000);
}

function showCount() {
  const [count, limit] = [lengthInCodePoints(source.value), models.limits?.characters];
  const values = { count: number(count), limit: number(limit ?? 0) };
  $("count").textContent = count === 0 ? "" : t(limit && count > 0.8 * limit ? "countOf" : "count", values);
  $("count").classList.toggle("bad", Boolean(limit) && count > limit);
  $("clear").hidden = count === 0;
  for (const node of document.querySelectorAll(".panes .text")) {
    node.classList.toggle("long", count > 160);
  }
  return !limit || count <= limit;
}

// The text changed, by typing (after a pause) or otherwise (at once).
function textChanged(pause) {
  showSource(source.value);
  if (showCount()) {
    translation.update(source.value, pause);
    return;
  }
  translation.cancel();
  calm();
  const limit = number(models.limits.characters);
  showProblem({ message: t("tooLong", { limit }), remedy: t("tooLongRemedy"), final: true });
}

function setText(text) {
  source.value = text;
  textChanged(0);
  source.focus();
}

function swap() {
  const text = translation.result?.translation;
  if (!swapLanguages(translation.result?.detected?.language)) return;
  if (text) setText(text);
}

async function copy() {
  if (!translation.result) return;
  await copyText(translation.result.translation);
  $("copy-name").textContent = t("copied");
  announce(t("copied"));
  setTimeout(() => ($("copy-name").textContent = t("copy")), 1600);
}

function alternativesOf(index) {
  const word = firstWord(index);
  if (!word) return;
  word.node.scrollIntoView({ block: "center" });
  openAlternatives(translation, word.place, word.node);
}

function attentionOf(index) {
  attentionSentence(index);
  openTab("attention", true);
}

function directionChanged() {
  glossaryDirection(direction());
  showWriting(null);
  showSwap(null);
  if (source.value) translation.update(source.value, 0);
}

function showAbout() {
  const names = models.directions.map(({ source: from, target: to, name }) => (from && to ? `${from} → ${to}` : name ?? ""));
  const few = [...names.slice(0, 6), ...(names.length > 6 ? ["…"] : [])].join(", ");
  $("about").textContent = models.version ? t("about", { version: models.version, models: few }) : "";
}

function changeLanguage(tag) {
  showLanguage(tag);
  $("interface-language").value = document.documentElement.lang;
  showTheme();
  showShortcuts();
  showCount();
  showLanguages();
  documentTypes(models.documents ?? []);
  showHistory();
  glossaryLanguage();
  showAbout();
  if (translation.result) show(translation.result);
  showDetected(translation.result?.detected);
}

function openView(name) {
  if ($(`tab-${name}`).hidden) return;
  openTab(name, true);
}

function startText() {
  source.addEventListener("input", (event) => textChanged(event.inputType === "insertFromPaste" ? 0 : undefined));
  $("clear").addEventListener("click", () => setText(""));
  $("copy").addEventListener("click", copy);
  $("swap").addEventListener("click", swap);
  $("key-open").addEventListener("click", async () => {
    if (await askForKey()) translation.now();
  });
  startPanes(
    inSentence,
    (place, node) => openAlternatives(translation, place, node),
  );
}

function startParts() {
  startText();
  startAlternatives();
  startAttention();
  startGlossary(
    () => source.value && translation.update(source.value, 0),
    () => translation.result?.detected?.language ?? null,
  );
  startHistory((entry) => {
    setDirection(entry.source, entry.target);
    setText(entry.text);
    scrollTo({ top: 0 });
  });
  startDocuments(direction, () => openTab("documents"));
  startControls(
    { translate: () => translation.now(), swap, copy, source: () => source.focus(), output: () => focusWord(), view: openView },
    (name) => {
      if (name === "attention") attentionOpened();
      if (name === "glossary") glossaryOpened();
    },
  );
  $("interface-language").addEventListener("change", (event) => {
    kept.set("language", event.target.value);
    changeLanguage(event.target.value);
  });
}

async function start() {
  clearTimeout(starting);
  try {
    models = { ...models, ...(await call("v1/models")) };
  } catch (problem) {
    showProblem(problem, problem.temporary ? 3 : null);
    if (problem.temporary) starting = setTimeout(start, 3000);
    return;
  }
  showProblem(null);
  $("key-open").hidden = !models.key_required && !apiKey();
  startLanguages(models, directionChanged);
  changeLanguage(document.documentElement.lang);
  glossaryDirection(direction());
  showWriting(null);
  showSwap(null);
  if (source.value) textChanged(0);
}

startParts();
changeLanguage(kept.get("language", browserLanguage()));
start();
