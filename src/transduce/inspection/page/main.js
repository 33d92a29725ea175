// Start all parts of the page.

function startTabs() {
  const tabs = [...$("tabs").children];
  const open = (tab) => {
    remember({ view: tab.getAttribute("aria-controls") });
    for (const other of tabs) {
      other.setAttribute("aria-selected", other === tab);
      other.tabIndex = other === tab ? 0 : -1;
      $(other.getAttribute("aria-controls")).hidden = other !== tab;
    }
    // What is hidden has no size: the map is measured anew.
    if (tab.id === "tab-attention" && ramp.length) drawMap();
    if (tab.id === "tab-beam") makeScrollable($("candidates-scroller"));
  };
  $("tabs").addEventListener("click", (event) => tabs.includes(event.target) && open(event.target));
  rove($("tabs"), "[role=tab]", (item, key) => {
    const tab = neighbor(tabs, item, key, ["ArrowLeft", "ArrowRight"]);
    if (tab) open(tab);
    return tab;
  });
  open($(`tab-${recall("view", tabs.map((tab) => tab.getAttribute("aria-controls")))}`));
}

// Remove a view that would be empty.
function removeView(name) {
  $(`tab-${name}`).remove();
  $(name).hidden = true;
}

$("source").textContent = data.source;
$("target").textContent = data.target || "–";
if (data.targetWasGiven) {
  $("target-name").textContent = "Given translation";
  const own = element("dd", { dir: "auto" }, data.candidates[0]?.text ?? "");
  document.querySelector(".pair").append(element("div", {}, element("dt", {}, "Model’s translation"), own));
}
document.title = `${data.source} – inspection`;
const error = 1 / STEPS / 2;
const hasAttention = Object.keys(KINDS).some(has);
const exactness = hasAttention
  ? `Weights are exact to ±${error.toPrecision(1)}, log-probabilities and scores to ±0.00005. `
  : "This model has no attention. Log-probabilities and scores are exact to ±0.00005. ";
$("exactness").textContent =
  exactness +
  "In the heat maps, positions run from left to right and from top to bottom in every language. A token that continues a word starts with ·, and ␣ is a space.";

if (hasAttention) startAttention();
else removeView("attention");
if (has("encoder_decoder")) startAlignment();
else removeView("alignment");
startBeam();
startTabs();
startTheme(() => {
  paintScale();
  // Paper has its own width.
  $("tree").style.setProperty("--on-paper", Math.min(1, WIDE_PAPER / (COLUMN_WIDTH * branches.length)));
  if (!hasAttention) return;
  drawOverview();
  drawMap();
});
if (hasAttention && kept.has("row")) reveal();
