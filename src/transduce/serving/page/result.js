// A translation as the page shows it: one text made of pieces (paragraphs), positions in UTF-16 units.

import { unitsOf } from "./text.js";

// An answer of the server for one piece, with positions in UTF-16 units.
export function readAnswer(piece, answer) {
  const source = unitsOf(piece);
  const target = unitsOf(answer.text);
  return {
    translation: answer.text,
    sourceLanguage: answer.source_language ?? null,
    targetLanguage: answer.target_language ?? null,
    detected: answer.detected ?? null,
    confidence: answer.confidence ?? null,
    warnings: answer.warnings ?? [],
    hits: answer.glossary_hits ?? [],
    sentences: (answer.sentences ?? []).map((sentence) => ({
      source: sentence.source.map(source),
      target: sentence.target.map(target),
      confidence: sentence.confidence ?? null,
      alignment: (sentence.alignment ?? []).map(([a, b, c, d]) => [source(a), source(b), target(c), target(d)]),
      chosen: false,
    })),
  };
}

const shifted = (span, by) => span.map((position) => position + by);

// Join pieces of a text. `answers` has null for pieces that are only white space, which stay as they are.
export function join(pieces, answers) {
  const result = { text: pieces.join(""), translation: "", warnings: [], hits: [], sentences: [], detected: null };
  let begin = 0;
  pieces.forEach((piece, index) => {
    const answer = answers[index];
    const [to, first] = [result.translation.length, result.sentences.length];
    result.translation += answer ? answer.translation : piece;
    for (const sentence of answer?.sentences ?? []) {
      result.sentences.push({
        ...sentence,
        source: shifted(sentence.source, begin),
        target: shifted(sentence.target, to),
        alignment: sentence.alignment.map(([a, b, c, d]) => [a + begin, b + begin, c + to, d + to]),
      });
    }
    for (const warning of answer?.warnings ?? []) {
      result.warnings.push({ ...warning, sentence: warning.sentence == null ? null : warning.sentence + first });
    }
    result.hits.push(...(answer?.hits ?? []));
    begin += piece.length;
  });
  const known = answers.filter(Boolean);
  result.sourceLanguage = known[0]?.sourceLanguage ?? null;
  result.targetLanguage = known[0]?.targetLanguage ?? null;
  result.detected = known[0]?.detected ?? null;
  result.confidence = known.length === 1 ? known[0].confidence : meanConfidence(result.sentences);
  return result;
}

// The mean over the sentences, each as heavy as its translation is long.
function meanConfidence(sentences) {
  let [sum, weight] = [0, 0];
  for (const { target, confidence } of sentences) {
    if (confidence === null) continue;
    sum += confidence * (target[1] - target[0]);
    weight += target[1] - target[0];
  }
  return weight > 0 ? sum / weight : null;
}

export const sourceOf = (result, sentence) => result.text.slice(...sentence.source);
export const targetOf = (result, sentence) => result.translation.slice(...sentence.target);

function commonLength(first, second, fromEnd, limit) {
  let length = 0;
  const at = (text) => text[fromEnd ? text.length - 1 - length : length];
  while (length < limit && at(first) === at(second)) length += 1;
  return length;
}

// Put another translation in a sentence's place. What it shares with the old one at its beginning and its end keeps
// its alignment; nothing is known about the rest.
export function replaceSentence(result, index, text, confidence) {
  const sentence = result.sentences[index];
  const old = targetOf(result, sentence);
  const [begin, end] = sentence.target;
  const growth = text.length - old.length;
  const head = commonLength(old, text, false, Math.min(old.length, text.length));
  const tail = commonLength(old, text, true, Math.min(old.length, text.length) - head);
  const alignment = sentence.alignment.flatMap(([a, b, c, d]) => {
    if (d <= begin + head) return [[a, b, c, d]];
    if (c >= end - tail) return [[a, b, c + growth, d + growth]];
    return [];
  });
  const after = (other) => ({
    ...other,
    target: shifted(other.target, growth),
    alignment: other.alignment.map(([a, b, c, d]) => [a, b, c + growth, d + growth]),
  });
  const sentences = result.sentences.map((other, position) => {
    if (position < index) return other;
    if (position > index) return after(other);
    return { ...other, target: [begin, end + growth], alignment, confidence: confidence ?? null, chosen: true };
  });
  return {
    ...result,
    translation: result.translation.slice(0, begin) + text + result.translation.slice(end),
    // Warnings were about the translation that was replaced.
    warnings: result.warnings.filter((warning) => warning.sentence !== index),
    sentences,
    confidence: meanConfidence(sentences),
  };
}

// The sentence at a position of the source text: the one that contains it, or the last one that begins before it.
export function sentenceAt(result, position) {
  let found = 0;
  result.sentences.forEach(({ source }, index) => {
    if (source[0] <= position) found = index;
  });
  return found;
}
