// Beam search (section 6.1 of the paper), as Transduce does it; see src/transduce/decoding/beam.py.
//
//   beamSearch(model, encoded, settings, options) → {hypotheses, trace}
//     settings: {beam, alpha, penalty: "paper" or "plain", limit, prefix, exact}   limit: the longest target in
//     tokens, with eos; prefix: ids that the decoder reads first; exact (default true): end when no running
//     hypothesis can become better than the best that have ended
//     hypotheses, best first: {tokens (without eos), logProbabilities, score, ended, path}; path: the index of
//     the branch of each step
//     trace: per step a list of branches {parent, token, logProbability, score, fate}; parent: the index of a
//     branch of the step before, −1 in the first; score: the sum of log-probabilities, divided by the
//     length penalty if the hypothesis ended; fate: "kept", "ended" or "pruned"
//   targetLimit(search, sourceLength)   search: the field `search` of the page's data
//   lengthPenalty(kind, alpha)          a function of the length

const lengthPenalty = (kind, alpha) => (length) => (kind === "paper" ? (5 + length) / 6 : length) ** alpha;

function targetLimit({ extraLength, maxLength, longest }, sourceLength) {
  const limit = Math.max(1, Math.min(sourceLength + extraLength, maxLength ?? Infinity));
  return Math.min(limit, longest ?? Infinity);
}

// The ``count`` highest of log-probabilities (hypotheses, vocabulary) + sums; the first of equal ones wins
function bestCandidates(rows, sums, count) {
  const best = [];
  let least = -Infinity; // that is still among the best, once there are enough
  rows.forEach((row, parent) => {
    for (let token = 0; token < row.length; token++) {
      const sum = Math.fround(row[token] + sums[parent]);
      if (best.length === count && !(sum > least)) continue;
      let place = best.length;
      while (place > 0 && best[place - 1].sum < sum) place--;
      best.splice(place, 0, { sum, parent, token });
      if (best.length > count) best.pop();
      least = best[best.length - 1].sum;
    }
  });
  return best;
}

class BeamSearch {
  constructor(vocabulary, { beam, alpha, penalty, limit, prefix = [], exact = true }) {
    const plain = lengthPenalty(penalty, alpha);
    this.eos = vocabulary.eos;
    this.forbidden = [vocabulary.pad, vocabulary.bos].filter((id) => id !== vocabulary.eos);
    this.penalty = (length) => plain(prefix.length + length);
    Object.assign(this, { beam, limit, exact, finished: [], trace: [], length: 0 });
    this.running = [{ sum: 0, tokens: [], logProbabilities: [], path: [], place: -1 }];
  }

  // Extend all hypotheses by one token; return the parent of each new one, or null at the end.
  extend(logits) {
    const rows = this.running.map((_, row) => logSoftmaxRow(logits.row(row)));
    for (const row of rows) for (const token of this.forbidden) row[token] = -Infinity;
    const [width, sums] = [this.running.length, this.running.map(({ sum }) => sum)];
    const count = Math.min(2 * this.beam, width * logits.columns);
    const candidates = bestCandidates(rows, sums, count);
    const ends = candidates.filter(({ token }) => token === this.eos);
    const goOn = candidates.filter(({ token }) => token !== this.eos);
    const kept = new Set([...goOn, ...ends].slice(0, Math.min(this.beam, candidates.length - width)));
    this.length += 1;
    candidates.forEach((candidate, place) => {
      const has = candidate.token === this.eos && place < this.beam;
      candidate.fate = has ? "ended" : kept.has(candidate) ? "kept" : "pruned";
      candidate.hypothesis = this.child(candidate, place);
      if (has) this.finish(candidate.hypothesis);
    });
    this.trace.push(candidates.map((candidate) => this.branch(candidate)));
    const next = [...kept];
    const parents = next.map(({ parent }) => parent);
    this.running = next.map(({ hypothesis }) => hypothesis);
    return this.hasEnded() ? null : parents;
  }

  child({ sum, parent, token }, place) {
    const { tokens, logProbabilities, path, sum: before, place: origin } = this.running[parent];
    return {
      sum,
      tokens: [...tokens, token],
      logProbabilities: [...logProbabilities, sum - before],
      path: [...path, place],
      origin,
      place,
    };
  }

  branch({ sum, token, fate, hypothesis }) {
    const score = fate === "ended" ? sum / this.penalty(this.length) : sum;
    const logProbability = hypothesis.logProbabilities[this.length - 1];
    return { parent: hypothesis.origin, token, logProbability, score, fate };
  }

  finish({ sum, tokens, logProbabilities, path }) {
    if (sum === -Infinity) return;
    const score = sum / this.penalty(this.length);
    const { finished, beam } = this;
    if (finished.length === beam && score <= finished[beam - 1].score) return;
    const ended = tokens[tokens.length - 1] === this.eos;
    finished.push({ tokens: ended ? tokens.slice(0, -1) : tokens, logProbabilities, score, ended, path });
    finished.sort((a, b) => b.score - a.score);
    finished.splice(beam);
  }

  hasEnded() {
    const { finished, beam, limit, length } = this;
    if (length >= limit) {
      if (beam > 1 || !finished.length) this.running.forEach((hypothesis) => this.finish(hypothesis));
      return true;
    }
    const highest = Math.max(...this.running.map(({ sum }) => sum));
    if (highest === -Infinity) return true;
    if (finished.length < beam) return false;
    if (beam === 1 || !this.exact) return true;
    // Sums only fall, and the penalty is monotonic: it is most favourable at one end of the lengths left.
    return finished[beam - 1].score >= highest / Math.max(this.penalty(length + 1), this.penalty(limit));
  }
}

function beamSearch(model, encoded, settings, options = {}) {
  const search = new BeamSearch(model.vocabulary, settings);
  const state = startDecoding(model, encoded);
  let tokens = [model.vocabulary.bos];
  for (const token of settings.prefix ?? []) {
    stepDecoding(model, tokens, state, options);
    tokens = [token];
  }
  for (;;) {
    const parents = search.extend(stepDecoding(model, tokens, state, options));
    if (!parents) break;
    selectHypotheses(state, parents);
    tokens = search.running.map((hypothesis) => hypothesis.tokens.at(-1));
  }
  const trace = search.trace.map((step) => step.filter(({ score }) => score > -Infinity));
  return { hypotheses: search.finished, trace };
}
