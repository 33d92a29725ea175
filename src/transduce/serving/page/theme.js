// Runs before the page is drawn, so that a chosen theme does not flash in the system's colors first.
try {
  const theme = JSON.parse(localStorage.getItem("transduce.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // The browser forbids storage: the system's theme is used.
}
