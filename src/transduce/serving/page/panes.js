// The two texts: words of the translation that can be reached and clicked, and highlights that show what belongs together.

import { $, element } from "./dom.js";
import { sentenceAt, sourceOf, targetOf } from "./result.js";
import { wordLinks, wordsOf } from "./text.js";

let shown = null; // {result, sentences: [{source, target, links}]}, words as {begin, end, node}
let pinned = null; // the place whose alternatives are open
const places = new WeakMap(); // word or sentence element → {side, sentence, word}

// Fill `place` with a text: sentences are spans, and so are their words.
function fill(place, text, side, sentences, spans, makeWord) {
  const nodes = [];
  let position = 0;
  sentences.forEach((sentence, index) => {
    const [begin, end] = spans[index];
    const whole = element("span", { class: "sentence" });
    if (position < begin) nodes.push(text.slice(position, begin));
    position = begin;
    for (const [word, spot] of sentence[side].entries()) {
      if (position < spot.begin) whole.append(text.slice(position, spot.begin));
      spot.node = makeWord(text.slice(spot.begin, spot.end));
      places.set(spot.node, { side, sentence: index, word });
      whole.append(spot.node);
      position = spot.end;
    }
    if (position < end) whole.append(text.slice(position, end));
    position = end;
    places.set(whole, { side, sentence: index, word: null });
    sentence[`${side}Node`] = whole;
    nodes.push(whole);
  });
  // A line break at the end of a block takes a line only if something follows it.
  nodes.push(text.slice(position), side === "source" ? "\u200b" : "");
  place.replaceChildren(...nodes);
}

const inWhole = (words, offset) => words.map(([begin, end]) => ({ begin: begin + offset, end: end + offset }));
const asPairs = (words) => words.map(({ begin, end }) => [begin, end]);

export function showResult(result) {
  if (!result) {
    shown = null;
    $("output").replaceChildren();
    return;
  }
  const focused = $("output").contains(document.activeElement) ? places.get(document.activeElement) : null;
  const sentences = result.sentences.map((sentence) => {
    const source = inWhole(wordsOf(sourceOf(result, sentence), result.sourceLanguage), sentence.source[0]);
    const target = inWhole(wordsOf(targetOf(result, sentence), result.targetLanguage), sentence.target[0]);
    return { source, target, links: wordLinks(sentence.alignment, asPairs(source), asPairs(target)) };
  });
  shown = { result, sentences };
  pinned = null;
  const span = (text) => element("span", { class: "word" }, text);
  const button = (text) => element("span", { class: "word", role: "button", tabindex: "-1", "aria-haspopup": "dialog" }, text);
  fill($("mirror"), result.text, "source", sentences, result.sentences.map(({ source }) => source), span);
  fill($("output"), result.translation, "target", sentences, result.sentences.map(({ target }) => target), button);
  const first = $("output").querySelector(".word");
  if (first) first.tabIndex = 0;
  result.warnings.forEach(({ sentence }) => sentences[sentence]?.targetNode.classList.add("doubtful"));
  // Words are new elements: the one that takes the place of the focused word takes the focus.
  if (focused) focusWord(focused.sentence, focused.word);
}

// The text changed and has no translation yet: nothing to highlight in it.
export function showSource(text) {
  $("mirror").textContent = `${text}\u200b`;
  clearHighlight();
  shown?.sentences.forEach((sentence) => (sentence.sourceNode = null));
}

function clearHighlight() {
  document.querySelectorAll(".sentence.current, .word.linked, .word.pointed").forEach((node) => {
    node.classList.remove("current", "linked", "pointed");
  });
}

// Keep a place highlighted while nothing else is pointed at; null ends that.
export function pin(place) {
  pinned = place;
  highlight(place);
}

// Highlight a place and what it was translated from or to; null clears.
function highlight(pointed) {
  clearHighlight();
  const place = pointed ?? pinned;
  const sentence = place && shown?.sentences[place.sentence];
  if (!sentence) return;
  sentence.sourceNode?.classList.add("current");
  sentence.targetNode?.classList.add("current");
  if (place.word === null) return;
  sentence[place.side][place.word]?.node?.classList.add("pointed");
  const [here, there] = place.side === "source" ? [0, 1] : [1, 0];
  const other = place.side === "source" ? "target" : "source";
  const linked = sentence.links.filter((link) => link[here] === place.word).map((link) => sentence[other][link[there]].node);
  linked.forEach((node) => node?.classList.add("linked"));
  bringIntoView(linked[0] ?? sentence[`${other}Node`]);
}

// Scroll the other text, never the page.
function bringIntoView(node) {
  const scroller = node?.closest(".scroll");
  if (!scroller) return;
  const [inner, outer] = [node.getBoundingClientRect(), scroller.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) {
    scroller.scrollTop += inner.top - outer.top - outer.height / 3;
  }
}

// The word or sentence at a point. The text field lies above its mirror, so that all layers are searched.
function placeAtPoint(event, container) {
  const hit = document.elementsFromPoint(event.clientX, event.clientY).filter((node) => container.contains(node));
  const node = hit.find((one) => one.matches(".word")) ?? hit.find((one) => one.matches(".sentence"));
  return node ? places.get(node) : null;
}

// The sentence that the text cursor is in, or null if it is not in the text.
export function sentenceAtCursor() {
  const place = document.activeElement === $("source") ? placeAtPosition($("source").selectionStart) : null;
  return place ? place.sentence : null;
}

// The word or sentence at a position of the text, unless its translation is still to come.
function placeAtPosition(position) {
  if (!shown || shown.sentences.length === 0 || shown.result.text !== $("source").value) return null;
  const index = sentenceAt(shown.result, position);
  const word = shown.sentences[index].source.findIndex(({ begin, end }) => begin <= position && position <= end);
  return { side: "source", sentence: index, word: word < 0 ? null : word };
}

// Words of the translation in order, as one list for the arrow keys.
function moveFrom(place, key) {
  const all = shown.sentences.flatMap((sentence, index) => sentence.target.map((_, word) => ({ sentence: index, word })));
  const here = all.findIndex(({ sentence, word }) => sentence === place.sentence && word === place.word);
  const rightToLeft = getComputedStyle($("output")).direction === "rtl";
  const [back, forth] = rightToLeft ? ["ArrowRight", "ArrowLeft"] : ["ArrowLeft", "ArrowRight"];
  let next = null;
  if (key === back) next = all[here - 1];
  if (key === forth) next = all[here + 1];
  if (key === "ArrowUp") next = all.findLast(({ sentence, word }) => sentence < place.sentence && word === 0);
  if (key === "ArrowDown") next = all.find(({ sentence }) => sentence > place.sentence);
  if (key === "Home") next = all[0];
  if (key === "End") next = all.at(-1);
  return next && shown.sentences[next.sentence].target[next.word].node;
}

export function focusWord(sentence = 0, word = 0) {
  const node = shown?.sentences[sentence]?.target[word]?.node ?? $("output").querySelector(".word");
  if (!node) return;
  $("output").querySelectorAll('.word[tabindex="0"]').forEach((other) => (other.tabIndex = -1));
  node.tabIndex = 0;
  node.focus();
}

// Call onSentence(index) when the cursor is in another sentence, onWord(place, node) when a word is clicked.
export function startPanes(onSentence, onWord) {
  const [source, output] = [$("source"), $("output")];
  for (const [area, container] of [[source, $("mirror")], [output, output]]) {
    area.addEventListener("mousemove", (event) => highlight(placeAtPoint(event, container)));
    area.addEventListener("mouseleave", () => highlight(null));
  }
  const atCaret = () => {
    if (document.activeElement !== source) return;
    const place = placeAtPosition(source.selectionStart);
    highlight(place);
    if (place) onSentence(place.sentence);
  };
  document.addEventListener("selectionchange", atCaret);
  source.addEventListener("keyup", atCaret);
  source.addEventListener("click", atCaret);
  source.addEventListener("blur", () => highlight(null));
  const wordOf = (event) => event.target.closest?.(".word");
  const open = (node) => {
    const place = places.get(node);
    focusWord(place.sentence, place.word);
    onWord(place, node);
  };
  output.addEventListener("focusin", (event) => {
    const place = wordOf(event) && places.get(wordOf(event));
    if (!place) return;
    highlight(place);
    onSentence(place.sentence);
  });
  output.addEventListener("focusout", () => highlight(null));
  output.addEventListener("click", (event) => {
    const selecting = !getSelection().isCollapsed;
    if (wordOf(event) && !selecting) open(wordOf(event));
  });
  output.addEventListener("keydown", (event) => {
    const node = wordOf(event);
    if (!node || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      open(node);
      return;
    }
    const next = moveFrom(places.get(node), event.key);
    if (!next) return;
    event.preventDefault();
    const place = places.get(next);
    focusWord(place.sentence, place.word);
  });
}

// The place of a sentence's first word, for buttons that open its alternatives.
export function firstWord(sentence) {
  const found = shown?.sentences[sentence]?.target[0];
  return found ? { place: places.get(found.node), node: found.node } : null;
}

// The translation of a sentence before a word, and the word.
export function aroundWord({ sentence, word }) {
  const { result, sentences } = shown;
  const { begin, end } = sentences[sentence].target[word];
  return { before: result.translation.slice(result.sentences[sentence].target[0], begin), word: result.translation.slice(begin, end) };
}
