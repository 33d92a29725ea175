// Tokens as elements, each with its own writing direction.

function token(text) {
  return element("bdi", { class: /^<.*>$/.test(text) ? "token special" : "token" }, text);
}

// A token in a sentence, isolated from the writing direction of the text around it.
const quoted = (text) => `\u2068“${text}”\u2069`;

// The writing direction of a text is that of its first letter.
function direction(text) {
  const letter = /\p{L}/u.exec(text)?.[0] ?? "a";
  return /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u.test(letter)
    ? "rtl"
    : "ltr";
}

// How a token takes part in the order of a line: left-to-right or right-to-left letters, digits, or a sign that
// may stand inside a number.
function bidiKind(text) {
  if (direction(text) === "rtl" || /^<.*>$/.test(text)) return "R";
  if (/\p{L}/u.test(text)) return "L";
  if (/\p{Nd}/u.test(text)) return "N";
  return /^[-+.,:/]$/.test(text) ? "S" : "O";
}

// In a line from right to left, numbers and foreign words still run from left to right. Return the runs of tokens,
// [start, end), that do (a short form of the Unicode bidirectional algorithm).
function leftToRightRuns(tokens) {
  const kinds = tokens.map(bidiKind);
  const runs = [];
  for (let start = 0; start < tokens.length; start++) {
    if (!"LN".includes(kinds[start])) continue;
    let end = start + 1;
    for (let hasLetters = kinds[start] === "L", next = end; next < tokens.length; next++) {
      const kind = kinds[next];
      if (kind === "R" || (kind === "O" && !hasLetters)) break;
      if (kind === "S" && !hasLetters && kinds[next + 1] !== "N") break;
      if (kind === "L") hasLetters = true;
      if ("LN".includes(kind)) end = next + 1;
    }
    runs.push([start, end]);
    start = end - 1;
  }
  return runs;
}

// Join target tokens to text.
function joinTokens(tokens) {
  const words = tokens.filter((text) => !/^<\/?s>$/.test(text));
  if (!data.hasWords) return words.join("").replaceAll("␣", " ");
  const joined = words.map((text) => (text.startsWith("·") ? text.slice(1) : ` ${text}`)).join("");
  return joined.replaceAll("␣", " ").replace(/ +/g, " ").trim();
}

const percent = (logProbability) =>
  logProbability === null ? "–" : `${(100 * Math.exp(logProbability)).toFixed(1)}%`;
