// Translates while somebody types: waits for a pause, drops stale answers, asks only for paragraphs that changed.

import { call } from "./api.js";
import { join, readAnswer, replaceSentence, sourceOf } from "./result.js";

const PAUSE = 250; // milliseconds without typing before a request
const PART = 2500; // characters of a request; a longer text is translated and shown in parts
const REMEMBERED = 2000; // paragraphs, and choices among alternatives
const FIRST_WAIT = 2; // seconds before a request is tried again, doubled each time
const LONGEST_WAIT = 30;

class Recent extends Map {
  put(key, value) {
    this.delete(key);
    this.set(key, value);
    if (this.size > REMEMBERED) this.delete(this.keys().next().value);
  }
}

// Paragraphs in groups that one request may have: so many items, and not many more than so many characters.
function parts(pieces, items = Infinity) {
  const groups = [];
  let room = 0;
  for (const piece of pieces) {
    if (groups.length === 0 || room <= 0 || groups.at(-1).length >= items) {
      groups.push([]);
      room = PART;
    }
    groups.at(-1).push(piece);
    room -= piece.length;
  }
  return groups;
}

export class Translation {
  // `settings()` returns what a request says besides its text; `limits()` the server's limits. The handlers are
  // onBusy(), onPart(result), onResult(result) and onProblem(error, secondsUntilRetry or null).
  constructor(settings, limits, handlers) {
    Object.assign(this, { settings, limits, handlers });
    this.answers = new Recent();
    this.choices = new Recent();
    this.result = null;
    this.failures = 0;
  }

  // The text is now this. `pause` is 0 to translate at once.
  update(text, pause = PAUSE) {
    this.cancel();
    this.text = text;
    if (!text.trim()) {
      this.show(null);
      return;
    }
    const controller = new AbortController();
    this.controller = controller;
    this.timer = setTimeout(() => this.run(text, controller.signal), pause);
  }

  now() {
    this.update(this.text ?? "", 0);
  }

  cancel() {
    clearTimeout(this.timer);
    this.controller?.abort();
  }

  async run(text, signal) {
    try {
      const result = await this.translate(text, signal);
      if (signal.aborted) return;
      this.failures = 0;
      this.show(result);
    } catch (problem) {
      if (signal.aborted || problem.name === "AbortError") return;
      this.fail(problem, text, signal);
    }
  }

  fail(problem, text, signal) {
    if (!problem.temporary) {
      this.handlers.onProblem(problem, null);
      return;
    }
    const seconds = problem.retryAfter ?? Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.failures);
    this.failures += 1;
    this.handlers.onProblem(problem, seconds);
    this.timer = setTimeout(() => this.run(text, signal), 1000 * seconds);
  }

  async translate(text, signal) {
    const settings = this.settings();
    // A language is detected from the whole text: a paragraph may be a single word.
    const pieces = settings.source === "auto" ? [text] : text.split(/(\n+)/).filter((piece) => piece !== "");
    const key = (piece) => JSON.stringify([settings, piece]);
    const answers = new Map(pieces.map((piece) => [piece, piece.trim() ? this.answers.get(key(piece)) : null]));
    const missing = [...answers.keys()].filter((piece) => answers.get(piece) === undefined);
    if (missing.length > 0) this.handlers.onBusy();
    const later = (piece) => readAnswer(piece, { text: "…" });
    const joined = () => {
      const found = (piece) => (answers.get(piece) === undefined ? later(piece) : answers.get(piece));
      return this.withChoices(join(pieces, pieces.map(found)));
    };
    for (const [index, part] of parts(missing, this.limits().items).entries()) {
      if (index > 0) this.showPart(joined());
      const body = { ...settings, text: part, alignment: true, guard: true };
      const { translations } = await call("v1/translate", { method: "POST", body, signal });
      part.forEach((piece, place) => {
        answers.set(piece, readAnswer(piece, translations[place]));
        this.answers.put(key(piece), answers.get(piece));
      });
    }
    return joined();
  }

  // A sentence whose translation somebody chose keeps it while the rest of the text changes.
  withChoices(result) {
    let changed = result;
    for (let index = 0; index < changed.sentences.length; index += 1) {
      const choice = this.choices.get(this.choiceKey(changed, index));
      if (choice) changed = replaceSentence(changed, index, choice.text, choice.confidence);
    }
    return changed;
  }

  choiceKey(result, index) {
    return JSON.stringify([this.settings(), sourceOf(result, result.sentences[index])]);
  }

  choose(index, text, confidence) {
    if (!this.result?.sentences[index]) return;
    this.choices.put(this.choiceKey(this.result, index), { text, confidence });
    this.show(replaceSentence(this.result, index, text, confidence));
  }

  showPart(result) {
    this.result = result;
    this.handlers.onPart(result);
  }

  show(result) {
    this.result = result;
    this.handlers.onResult(result);
  }
}
