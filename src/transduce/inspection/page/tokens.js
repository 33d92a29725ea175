// Tokens as elements, each with its own writing direction.

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

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

// Join target tokens to text.
function joinTokens(tokens) {
  const words = tokens.filter((text) => !/^<\/?s>$/.test(text));
  if (!data.hasWords) return words.join("").replaceAll("␣", " ");
  const joined = words.map((text) => (text.startsWith("·") ? text.slice(1) : ` ${text}`)).join("");
  return joined.replaceAll("␣", " ").replace(/ +/g, " ").trim();
}

const percent = (logProbability) =>
  logProbability === null ? "–" : `${(100 * Math.exp(logProbability)).toFixed(1)}%`;
