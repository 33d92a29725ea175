// What the reader has chosen. The theme is stored for all pages; the view is in the page's address, so that it
// survives a reload and a copied address shows the same view.

const PAUSE = 250; // milliseconds; browsers limit how often a page may change its address
const kept = new URLSearchParams(location.hash.slice(1));
let waiting = 0;

// Values of null are forgotten.
function remember(values) {
  for (const [name, value] of Object.entries(values)) {
    if (value === null) kept.delete(name);
    else kept.set(name, value);
  }
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    // A page in a notebook's frame has no address of its own.
    attempt(() => history.replaceState(null, "", `#${kept}`));
  }, PAUSE);
}

// The remembered value if it is among the allowed ones, else the first of these.
const recall = (name, allowed) => allowed.find((value) => String(value) === kept.get(name)) ?? allowed[0];

function recallNumber(name, minimum, maximum, otherwise) {
  const number = kept.has(name) ? Number(kept.get(name)) : NaN;
  return number >= minimum && number <= maximum ? number : otherwise;
}

// Do something that browsers refuse in some frames.
function attempt(action) {
  try {
    return action();
  } catch {
    return null;
  }
}

const storedTheme = () => attempt(() => localStorage.getItem("transduce-theme"));
const storeTheme = (theme) => attempt(() => localStorage.setItem("transduce-theme", theme));

// Somebody entered or pasted another address of this page.
addEventListener("hashchange", () => location.reload());
