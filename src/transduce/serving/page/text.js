// Positions, words, writing directions and links between words.

// The server counts code points, JavaScript UTF-16 units: return a function from the former to the latter.
export function unitsOf(text) {
  if (!/[\ud800-\udfff]/.test(text)) return (position) => position;
  const starts = [];
  let unit = 0;
  for (const character of text) {
    starts.push(unit);
    unit += character.length;
  }
  return (position) => (position < starts.length ? starts[position] : unit);
}

export const lengthInCodePoints = (text) => {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
};

const segmenters = new Map();

function segmenter(language) {
  const tag = language ?? "";
  if (!segmenters.has(tag)) {
    let made;
    try {
      made = new Intl.Segmenter(tag.replaceAll("_", "-") || undefined, { granularity: "word" });
    } catch {
      made = new Intl.Segmenter(undefined, { granularity: "word" });
    }
    segmenters.set(tag, made);
  }
  return segmenters.get(tag);
}

// The words of a text as [begin, end] pairs. What stands between them is punctuation or white space.
export function wordsOf(text, language) {
  const words = [];
  for (const { segment, index, isWordLike } of segmenter(language).segment(text)) {
    if (isWordLike) words.push([index, index + segment.length]);
  }
  return words;
}

const RIGHT_TO_LEFT = new Set(["Arab", "Hebr", "Syrc", "Thaa", "Nkoo", "Adlm", "Rohg", "Mand", "Samr"]);

// The writing direction of a language; "auto" leaves it to the text.
export function directionOf(language) {
  if (!language) return "auto";
  try {
    const script = new Intl.Locale(language.replaceAll("_", "-")).maximize().script;
    return RIGHT_TO_LEFT.has(script) ? "rtl" : "auto";
  } catch {
    return "auto";
  }
}

const overlapping = (words, begin, end) => words.flatMap(([from, to], index) => (from < end && begin < to ? [index] : []));

// Links between the words of a sentence from links between its tokens: pairs of word indices. Words are pairs of
// positions in the whole text, as the tokens of the alignment are.
export function wordLinks(alignment, sourceWords, targetWords) {
  const links = new Map();
  for (const [sourceBegin, sourceEnd, targetBegin, targetEnd] of alignment) {
    for (const target of overlapping(targetWords, targetBegin, targetEnd)) {
      for (const source of overlapping(sourceWords, sourceBegin, sourceEnd)) {
        links.set(`${source} ${target}`, [source, target]);
      }
    }
  }
  return [...links.values()];
}
