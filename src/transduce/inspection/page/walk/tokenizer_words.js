// Pre-tokenizers, which cut a text into words before the model cuts words into tokens, and decoders, which
// join tokens to a text.
//
//   applyPreTokenizer(step, parts)   texts → texts; step: as tokenizer.json has it, or null
//   applyDecoder(step, tokens)       tokens → texts to be joined
//   byteLevel(text)                  a text in the byte-level alphabet: a printable character for every byte

const BYTE_CHARACTERS = (() => {
  const isItself = (byte) => (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
  let others = 0;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isItself(byte) ? byte : 256 + others++));
})();
const CHARACTER_BYTES = new Map(BYTE_CHARACTERS.map((character, byte) => [character, byte]));
const byteLevel = (text) =>
  Array.from(new TextEncoder().encode(text), (byte) => BYTE_CHARACTERS[byte]).join("");
const textOfBytes = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));

// Words as GPT-2 cuts them, and as the library's "Whitespace" does
const BYTE_LEVEL_WORDS = new RegExp(
  `'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^${RUST_SPACE}\\p{L}\\p{N}]+|` +
    `[${RUST_SPACE}]+(?![^${RUST_SPACE}])|[${RUST_SPACE}]+`,
  "gu",
);
const WHITESPACE_WORDS = new RegExp(
  `[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d]+|[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d${RUST_SPACE}]+`,
  "gu",
);
const BERT_WORDS = new RegExp(`[!-/:-@[-\`{-~\\p{P}]|[^${RUST_SPACE}!-/:-@[-\`{-~\\p{P}]+`, "gu");
const SPACES = new RegExp(`[${RUST_SPACE}]+`, "u");

const matches = (text, pattern) => text.match(pattern) ?? [];

const PRE_TOKENIZERS = {
  ByteLevel: (text, { add_prefix_space: prefix, use_regex: words }) => {
    const begun = prefix && !text.startsWith(" ") ? ` ${text}` : text;
    return (words === false ? [begun] : matches(begun, BYTE_LEVEL_WORDS)).map(byteLevel);
  },
  Split: splitText,
  Metaspace: (text, { replacement, prepend_scheme: scheme, split }, isFirst) => {
    const marked = text.replaceAll(" ", replacement);
    const isPrefixed = scheme === "always" || (scheme === "first" && isFirst);
    const begun = isPrefixed && !marked.startsWith(replacement) ? replacement + marked : marked;
    return split === false ? [begun] : mergedWithNext(begun, replacement);
  },
  Whitespace: (text) => matches(text, WHITESPACE_WORDS),
  WhitespaceSplit: (text) => text.split(SPACES),
  BertPreTokenizer: (text) => matches(text, BERT_WORDS),
};

function splitText(text, step) {
  const { String: separator } = step.pattern;
  if (separator !== undefined) {
    return step.behavior === "Removed" ? text.split(separator) : mergedWithNext(text, separator);
  }
  return matches(text, new RegExp(step.pattern.Regex, "gu"));
}

// Each separator begins the part after it; of several in a row, all but the last stand alone.
function mergedWithNext(text, separator) {
  const parts = text.split(separator);
  const first = parts[0] ? [parts[0]] : [];
  return first.concat(parts.slice(1).map((part) => separator + part));
}

function applyPreTokenizer(step, parts) {
  if (!step) return parts;
  if (step.type === "Sequence") {
    return step.pretokenizers.reduce((rest, each) => applyPreTokenizer(each, rest), parts);
  }
  const apply = PRE_TOKENIZERS[step.type] ?? ((_, each) => unknownStep(each));
  return parts.flatMap((part, place) => apply(part, step, place === 0).filter((piece) => piece));
}

const DECODERS = {
  ByteLevel: (tokens) => {
    const bytes = tokens.flatMap((token) => {
      const known = Array.from(token, (character) => CHARACTER_BYTES.get(character));
      return known.includes(undefined) ? [...new TextEncoder().encode(token)] : known;
    });
    return [textOfBytes(bytes)];
  },
  Replace: (tokens, { pattern, content }) =>
    tokens.map((token) => token.replaceAll(pattern.String, () => content)),
  Fuse: (tokens) => [tokens.join("")],
  ByteFallback: (tokens) => bytesFallenBack(tokens),
  WordPiece: (tokens, { prefix, cleanup }) =>
    tokens.map((token, place) => {
      let joined = token;
      if (place > 0) joined = token.startsWith(prefix) ? token.slice(prefix.length) : ` ${token}`;
      return cleanup ? cleanedUp(joined) : joined;
    }),
  Metaspace: (tokens, { replacement, prepend_scheme: scheme }) =>
    tokens.map((token, place) => token.replaceAll(replacement, place === 0 && scheme !== "never" ? "" : " ")),
  BPEDecoder: (tokens, { suffix }) =>
    tokens.map((token, place) => token.replaceAll(suffix, place === tokens.length - 1 ? "" : " ")),
  Strip: (tokens, { content, start, stop }) =>
    tokens.map((token) => {
      let [begin, end] = [0, token.length];
      while (begin < start && token[begin] === content) begin++;
      while (token.length - end < stop && end > begin && token[end - 1] === content) end--;
      return token.slice(begin, end);
    }),
  Sequence: (tokens, { decoders }) => decoders.reduce((rest, step) => applyDecoder(step, rest), tokens),
};

const applyDecoder = (step, tokens) => (DECODERS[step.type] ?? (() => unknownStep(step)))(tokens, step);

// Tokens such as <0xE2> are bytes; those that are no UTF-8 become replacement characters.
function bytesFallenBack(tokens) {
  const result = [];
  let bytes = [];
  const flush = () => {
    if (!bytes.length) return;
    try {
      const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
      result.push(decoder.decode(Uint8Array.from(bytes)));
    } catch {
      result.push("\ufffd".repeat(bytes.length));
    }
    bytes = [];
  };
  for (const token of tokens) {
    const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(token);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else {
      flush();
      result.push(token);
    }
  }
  flush();
  return result;
}

function cleanedUp(token) {
  const changes = [
    [" .", "."],
    [" ?", "?"],
    [" !", "!"],
    [" ,", ","],
    [" ' ", "'"],
    [" n't", "n't"],
    [" 'm", "'m"],
    [" do not", " don't"],
    [" 's", "'s"],
    [" 've", "'ve"],
    [" 're", "'re"],
  ];
  return changes.reduce((text, [before, after]) => text.replaceAll(before, after), token);
}
