// Models that cut a word into tokens.
//
//   tokenModel(state) → {ids, tokenize(word)}   state: the field `model` of a tokenizer.json; ids: a Map from
//   tokens to ids; tokenize returns [{id, text}]

function tokenModel(state) {
  switch (state.type) {
    case "BPE":
      return new PairMerges(state);
    case "Unigram":
      return new UnigramTokens(state);
    case "WordPiece":
      return new LongestPieces(state);
    case "WordLevel":
      return new WholeWords(state);
    default:
      return unknownStep(state);
  }
}

const byteTokens = (character) =>
  Array.from(
    new TextEncoder().encode(character),
    (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
  );

// Byte-pair encoding: of all neighbours, the pair that was learned first is merged, the leftmost of equals.
class PairMerges {
  constructor(state) {
    this.state = state;
    this.ids = new Map(Object.entries(state.vocab));
    this.prefix = state.continuing_subword_prefix ?? "";
    this.suffix = state.end_of_word_suffix ?? "";
    this.ranks = new Map();
    state.merges.forEach((merge, rank) => {
      const [left, right] = typeof merge === "string" ? merge.split(" ") : merge;
      this.ranks.set(`${left}\n${right}`, rank);
    });
  }

  tokenize(word) {
    if (this.state.ignore_merges && this.ids.has(word)) return [{ id: this.ids.get(word), text: word }];
    const pieces = this.characters(word);
    while (this.ranks.size && this.mergeBest(pieces));
    return pieces.map((text) => ({ id: this.ids.get(text), text }));
  }

  // The tokens of single characters; unknown ones become bytes, the unknown token, or nothing.
  characters(word) {
    const characters = Array.from(word);
    const { unk_token: unknown, fuse_unk: fuse, byte_fallback: hasBytes } = this.state;
    const pieces = [];
    let wasUnknown = false;
    characters.forEach((character, place) => {
      const name =
        (place > 0 ? this.prefix : "") + character + (place === characters.length - 1 ? this.suffix : "");
      if (this.ids.has(name)) {
        pieces.push(name);
        wasUnknown = false;
        return;
      }
      const bytes = hasBytes ? byteTokens(name) : [];
      if (bytes.length && bytes.every((byte) => this.ids.has(byte))) {
        pieces.push(...bytes);
        wasUnknown = false;
      } else if (unknown && !(fuse && wasUnknown)) {
        pieces.push(unknown);
        wasUnknown = true;
      }
    });
    return pieces;
  }

  mergeBest(pieces) {
    let [best, place] = [Infinity, -1];
    for (let i = 0; i + 1 < pieces.length; i++) {
      const rank = this.ranks.get(`${pieces[i]}\n${pieces[i + 1]}`);
      if (rank < best) [best, place] = [rank, i];
    }
    if (place < 0) return false;
    const right = pieces[place + 1].slice(this.prefix.length);
    pieces.splice(place, 2, pieces[place] + right);
    return true;
  }
}

// The most likely sequence of pieces, by dynamic programming (Kudo, 2018)
class UnigramTokens {
  constructor({ vocab, unk_id: unknown, byte_fallback: hasBytes }) {
    this.ids = new Map(vocab.map(([piece], id) => [piece, id]));
    this.scores = vocab.map(([, score]) => score);
    this.unknown = unknown;
    this.hasBytes = hasBytes;
    this.unknownScore = this.scores.reduce((lowest, score) => Math.min(lowest, score), Infinity) - 10;
    this.longest = vocab.reduce((length, [piece]) => Math.max(length, piece.length), 1);
  }

  tokenize(word) {
    const best = [{ score: 0, begin: 0, id: null }];
    const consider = (begin, end, id, score) => {
      const total = best[begin].score + score;
      if (!best[end] || total > best[end].score) best[end] = { score: total, begin, id };
    };
    for (let begin = 0; begin < word.length; ) {
      const width = word.codePointAt(begin) > 0xffff ? 2 : 1;
      let hasSingle = false;
      for (let end = begin + 1; end <= Math.min(word.length, begin + this.longest); end++) {
        const id = this.ids.get(word.slice(begin, end));
        if (id === undefined) continue;
        consider(begin, end, id, this.scores[id]);
        if (end === begin + width) hasSingle = true;
      }
      if (!hasSingle) consider(begin, begin + width, this.unknown, this.unknownScore);
      begin += width;
    }
    return this.path(word, best);
  }

  // Neighbouring unknown pieces are one.
  path(word, best) {
    const pieces = [];
    for (let end = word.length; end > 0; end = best[end].begin) {
      const { begin, id } = best[end];
      const [text, last] = [word.slice(begin, end), pieces[0]];
      if (last && id === this.unknown && last.id === id) last.text = text + last.text;
      else pieces.unshift({ id, text });
    }
    return this.hasBytes ? pieces.flatMap((piece) => this.inBytes(piece)) : pieces;
  }

  inBytes(piece) {
    if (piece.id !== this.unknown) return [piece];
    const bytes = byteTokens(piece.text);
    if (!bytes.every((byte) => this.ids.has(byte))) return [piece];
    return bytes.map((text) => ({ id: this.ids.get(text), text }));
  }
}

// From the left, always the longest piece that there is
class LongestPieces {
  constructor(state) {
    this.state = state;
    this.ids = new Map(Object.entries(state.vocab));
  }

  tokenize(word) {
    const { unk_token: unknown, continuing_subword_prefix: prefix } = this.state;
    const characters = Array.from(word);
    const none = [{ id: this.ids.get(unknown), text: unknown }];
    if (characters.length > this.state.max_input_chars_per_word) return none;
    const pieces = [];
    for (let begin = 0; begin < characters.length; ) {
      let end = characters.length;
      let text = "";
      for (; end > begin; end--) {
        text = (begin > 0 ? prefix : "") + characters.slice(begin, end).join("");
        if (this.ids.has(text)) break;
      }
      if (end === begin) return none;
      pieces.push({ id: this.ids.get(text), text });
      begin = end;
    }
    return pieces;
  }
}

class WholeWords {
  constructor(state) {
    this.unknown = state.unk_token;
    this.ids = new Map(Object.entries(state.vocab));
  }

  tokenize(word) {
    const text = this.ids.has(word) ? word : this.unknown;
    return this.ids.has(text) ? [{ id: this.ids.get(text), text }] : [];
  }
}
