// Other translations of a word and of its sentence, in a small window at the word.

import { call } from "./api.js";
import { $, announce, element } from "./dom.js";
import { aroundWord, focusWord, pin } from "./panes.js";
import { sourceOf, targetOf } from "./result.js";
import { percent, t } from "./strings.js";

const CANDIDATES = 5;
const REMEMBERED = 200; // answers
const known = new Map();
let controller = null;
let opener = null; // {sentence, word}

async function ask(path, body, signal) {
  const key = path + JSON.stringify(body);
  if (known.size > REMEMBERED) known.clear();
  if (!known.has(key)) known.set(key, await call(path, { method: "POST", body, signal }));
  return known.get(key);
}

function choice(parts, confidence, act) {
  const share = confidence == null ? [] : [element("small", {}, percent(confidence))];
  const button = element("button", { type: "button" }, element("span", { dir: "auto" }, ...parts), ...share);
  button.addEventListener("click", act);
  return element("li", {}, button);
}

// `translation` is the page's Translation; its result has the sentence that `place` is in.
export async function openAlternatives(translation, place, node) {
  if (!translation.result?.sentences[place.sentence]) return;
  controller?.abort();
  controller = new AbortController();
  opener = place;
  pin(place);
  const result = translation.result;
  const sentence = result.sentences[place.sentence];
  const { before, word } = aroundWord(place);
  $("word-name").textContent = t("insteadOf", { word });
  $("word-alternatives").replaceChildren();
  $("sentence-alternatives").replaceChildren();
  $("alternatives-status").textContent = t("translating");
  show(node);
  const languages = { source: result.sourceLanguage, target: result.targetLanguage };
  const asked = { text: sourceOf(result, sentence), ...languages };
  const signal = controller.signal;
  const choose = (text, confidence) => {
    $("alternatives").hidePopover();
    translation.choose(place.sentence, text, confidence);
    focusWord(place.sentence, place.word);
    announce(text);
  };
  const settings = { ...translation.settings(), ...languages };
  const answers = await Promise.allSettled([
    ask("v1/alternatives", { ...asked, prefix: before.trimEnd() }, signal),
    ask("v1/translate", { ...settings, text: asked.text, candidates: CANDIDATES, guard: true }, signal),
  ]);
  if (signal.aborted) return;
  const now = targetOf(result, sentence);
  const [words, sentences] = answers;
  if (words.status === "fulfilled") showWords(words.value.alternatives, before, now, choose);
  if (sentences.status === "fulfilled") showSentences(sentences.value.translations[0], now, choose);
  const failed = answers.find(({ status }) => status === "rejected")?.reason;
  const empty = !$("alternatives").querySelector("li");
  $("alternatives-status").textContent = failed ? failed.message || t("tryAgain") : empty ? t("noAlternatives") : "";
  moveTo(node);
  $("alternatives").querySelector("li button")?.focus();
}

function showWords(alternatives, before, now, choose) {
  const items = alternatives
    .filter(({ text }) => text !== now)
    .map(({ text, next, confidence }) => {
      const kept = text.startsWith(before.trimEnd()) ? before.trimEnd().length : 0;
      const from = next ? text.indexOf(next, kept) : -1;
      const parts = from < 0 ? [text] : [element("strong", {}, next), text.slice(from + next.length)];
      return choice(parts, confidence, () => choose(text, confidence));
    });
  $("word-alternatives").replaceChildren(...items);
}

function showSentences(answer, now, choose) {
  // Candidates belong to sentences of the server; the text is one sentence, but it may have been split further.
  const candidates = answer.sentences.length === 1 ? answer.sentences[0].candidates ?? [] : [answer];
  const texts = new Map([[answer.text, answer.confidence], ...candidates.map(({ text, confidence }) => [text, confidence])]);
  texts.delete(now);
  const items = [...texts].map(([text, confidence]) => choice([text], confidence, () => choose(text, confidence)));
  $("sentence-alternatives").replaceChildren(...items);
}

function show(node) {
  const window = $("alternatives");
  if (!window.matches(":popover-open")) window.showPopover();
  moveTo(node);
}

// Below the word, or above it where there is no room; the style sheet makes it a sheet at the bottom of a phone.
function moveTo(node) {
  const window = $("alternatives");
  const [word, own] = [node.getBoundingClientRect(), window.getBoundingClientRect()];
  const left = Math.max(8, Math.min(word.left - 12, document.documentElement.clientWidth - own.width - 8));
  const below = word.bottom + 6;
  const fits = below + own.height < innerHeight || word.top < own.height + 6;
  window.style.left = `${left + scrollX}px`;
  window.style.top = `${(fits ? below : word.top - own.height - 6) + scrollY}px`;
}

export function startAlternatives() {
  const window = $("alternatives");
  $("alternatives-close").addEventListener("click", () => window.hidePopover());
  window.addEventListener("toggle", (event) => {
    if (event.newState === "open") return;
    controller?.abort();
    pin(null);
    // Back to the word, unless the reader has gone elsewhere.
    if (opener && (document.activeElement === document.body || window.contains(document.activeElement))) {
      focusWord(opener.sentence, opener.word);
    }
  });
  window.addEventListener("keydown", (event) => {
    const buttons = [...window.querySelectorAll("li button")];
    const index = buttons.indexOf(document.activeElement);
    const next = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (next === undefined || !buttons[next]) return;
    event.preventDefault();
    buttons[next].focus();
  });
}
