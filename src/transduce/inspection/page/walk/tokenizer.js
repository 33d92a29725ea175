// Tokenizers in the page: the same ids as Transduce and Hugging Face's `tokenizers` give.
//
//   const tokenizer = new PageTokenizer(spec)   spec: data.tokenizers.source or .target, if it is not null;
//                                               throws an Error for steps it does not know
//   tokenizer.encode(text)                      ids, without prefix and suffix
//   tokenizer.pieces(text)                      [{id, text}]: each id and the piece it stands for, in the
//                                               tokenizer's own alphabet
//   tokenizer.normalized(text)                  the text that is cut into tokens
//   tokenizer.decode(ids)                       the text of ids, without special tokens
//   pageTokenizers(data)                        {source, target}; null for a side that the page cannot do
//   encodeSource(data, tokenizer, text)         ids with the frame that the model wants around them

// White space as Python strips it, and as Rust and its regular expressions know it
const PYTHON_SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const RUST_SPACE = "\\t-\\r\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const [START_SPACE, END_SPACE] = [new RegExp(`^[${RUST_SPACE}]+`, "u"), new RegExp(`[${RUST_SPACE}]+$`, "u")];
const pythonStrip = (text) =>
  text.replace(new RegExp(`^[${PYTHON_SPACE}]+`, "u"), "").replace(new RegExp(`[${PYTHON_SPACE}]+$`, "u"), "");

class PageTokenizer {
  constructor(spec) {
    this.spec = spec;
    this.model = tokenModel(spec.model);
    this.added = new Map(spec.addedTokens.map(({ id, content }) => [content, id]));
    this.names = new Map();
    for (const [name, id] of this.model.ids) this.names.set(id, name);
    for (const [name, id] of this.added) this.names.set(id, name);
    this.special = new Set(spec.special);
    if (spec.tokens) this.mapTokens(spec.tokens);
    // Fail now rather than at the first key that is pressed.
    this.decode(this.encode("A 1"));
  }

  // The model has other numbers than the tokenizer, by the names of tokens.
  mapTokens(tokens) {
    this.modelIds = new Map(tokens.map((name, id) => [name, id]));
    const unknown = ["<unk>", "[UNK]", "<UNK>", "unk"];
    this.modelUnknown = this.modelIds.get(unknown.find((name) => this.modelIds.has(name)));
    const ids = new Map([...this.model.ids, ...this.added]);
    this.ownUnknown = ids.get(unknown.find((name) => ids.has(name)));
  }

  normalized(text) {
    const { normalization, normalizer } = this.spec;
    const forms = { nfc: "NFC", nfd: "NFD", nfkc: "NFKC" };
    let given = text;
    if (normalization) {
      given = pythonStrip(normalization === "none" ? text : text.normalize(forms[normalization]));
    }
    return applyNormalizer(normalizer, given);
  }

  pieces(text) {
    const { preTokenizer, plain } = this.spec;
    const result = [];
    for (const part of plain ? [text] : splitAtTokens(text, [...this.added.keys()])) {
      if (!plain && this.added.has(part)) result.push({ id: this.added.get(part), text: part });
      else {
        const parts = [this.normalized(part)].filter((each) => each);
        for (const word of applyPreTokenizer(preTokenizer, parts)) result.push(...this.model.tokenize(word));
      }
    }
    return this.modelIds ? result.map((piece) => this.mapped(piece)) : result;
  }

  mapped({ id, text }) {
    const known = this.modelIds.get(this.names.get(id)) ?? this.modelUnknown;
    if (id !== this.ownUnknown || text.endsWith(">")) return { id: known, text };
    return { id: this.modelIds.get(text) ?? known, text };
  }

  encode(text) {
    return this.pieces(text).map(({ id }) => id);
  }

  decode(ids) {
    const names = ids
      .filter((id) => !this.special.has(id))
      .map((id) => (this.modelIds ? this.spec.tokens[id] : this.names.get(id)))
      .filter((name) => name !== undefined);
    const { decoder, native } = this.spec;
    const text = decoder ? applyDecoder(decoder, names).join("") : names.join(" ");
    return native ? pythonStrip(text) : text;
  }
}

function pageTokenizers({ tokenizers }) {
  const make = (spec) => {
    try {
      return spec && new PageTokenizer(spec);
    } catch {
      return null;
    }
  };
  const source = make(tokenizers?.source);
  return { source, target: tokenizers?.target === "source" ? source : make(tokenizers?.target) };
}

const encodeSource = ({ frame }, tokenizer, text) => [
  ...frame.sourcePrefix,
  ...tokenizer.encode(text),
  ...frame.sourceSuffix,
];

// The parts of a text between these tokens, and the tokens themselves
function splitAtTokens(text, tokens) {
  const found = tokens.filter((token) => token).sort((a, b) => b.length - a.length);
  if (!found.length) return [text];
  const escaped = found.map((token) => token.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
  return text.split(new RegExp(`(${escaped.join("|")})`, "u")).filter((part) => part);
}

const unknownStep = (step) => {
  throw new Error(`the page does not know the step ${step.type}`);
};

const NORMALIZERS = {
  NFC: (text) => text.normalize("NFC"),
  NFD: (text) => text.normalize("NFD"),
  NFKC: (text) => text.normalize("NFKC"),
  NFKD: (text) => text.normalize("NFKD"),
  Lowercase: (text) => lowercase(text),
  Strip: (text, { strip_left: left, strip_right: right }) => {
    const begun = left ? text.replace(START_SPACE, "") : text;
    return right ? begun.replace(END_SPACE, "") : begun;
  },
  StripAccents: (text) => text.replace(/\p{M}/gu, ""),
  Prepend: (text, { prepend }) => (text ? prepend + text : text),
  Replace: (text, step) => text.replaceAll(step.pattern.String ?? knownPattern(step), () => step.content),
  Sequence: (text, { normalizers }) => normalizers.reduce((rest, step) => applyNormalizer(step, rest), text),
  BertNormalizer: bertNormalized,
};

// Regular expressions of our own readers, as JavaScript writes them
const KNOWN_PATTERNS = new Map([["^[\\r\\n ]+|[\\r\\n ]+$", /(?<![^\n])[\r\n ]+|[\r\n ]+(?![^\n])/g]]);
const knownPattern = (step) => KNOWN_PATTERNS.get(step.pattern.Regex) ?? unknownStep(step);

const applyNormalizer = (step, text) => (step ? (NORMALIZERS[step.type] ?? unknownStep)(text, step) : text);

// Character by character: a final sigma stays the sigma of the middle of a word.
const lowercase = (text) => Array.from(text, (character) => character.toLowerCase()).join("");

function bertNormalized(text, step) {
  let result = text;
  if (step.clean_text) {
    result = result.replace(/[\0\ufffd]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Cn}\p{Co}]/gu, "");
    result = result.replace(new RegExp(`[${RUST_SPACE}]`, "gu"), " ");
  }
  if (step.handle_chinese_chars) result = result.replace(CHINESE, " $& ");
  if (step.strip_accents ?? step.lowercase) result = result.normalize("NFD").replace(/\p{Mn}/gu, "");
  return step.lowercase ? lowercase(result) : result;
}

const CHINESE =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;
