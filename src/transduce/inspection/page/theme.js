// Light and dark: the system's until the reader selects one. Paper is light.

const printing = matchMedia("print");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const themes = ["light", "dark"];
if (themes.includes(storedTheme())) document.documentElement.dataset.theme = storedTheme();

function isDark() {
  if (printing.matches) return false;
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : prefersDark.matches;
}

// `repaint` is called at once and whenever the colors change.
function startTheme(repaint) {
  const button = $("theme");
  const show = () => {
    button.replaceChildren(
      element("span", { "aria-hidden": "true" }, isDark() ? "☀ " : "☾ "),
      isDark() ? "Light" : "Dark",
      unseen(" colors"),
    );
    repaint();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    storeTheme(document.documentElement.dataset.theme);
    show();
  });
  for (const query of [prefersDark, printing]) query.addEventListener("change", show);
  show();
}
