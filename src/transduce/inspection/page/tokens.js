// Tokens as elements: each in a direction of its own, whatever stands around it.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function token(text) {
  return element("bdi", { class: /^<.*>$/.test(text) ? "token special" : "token" }, text);
}

// A token in a spoken or written sentence, apart from the text around it.
const quoted = (text) => `\u2068“${text}”\u2069`;

// The way a sentence runs is that of its first letter.
function direction(text) {
  const letter = /\p{L}/u.exec(text)?.[0] ?? "a";
  return /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u.test(letter)
    ? "rtl"
    : "ltr";
}

// Target tokens as text.
function spoken(tokens) {
  const words = tokens.filter((text) => !/^<\/?s>$/.test(text));
  if (!data.hasWords) return words.join("").replaceAll("␣", " ");
  const joined = words.map((text) => (text.startsWith("·") ? text.slice(1) : ` ${text}`)).join("");
  return joined.replaceAll("␣", " ").replace(/ +/g, " ").trim();
}

const percent = (logProbability) =>
  logProbability === null ? "–" : `${(100 * Math.exp(logProbability)).toFixed(1)} %`;
