// The page as a whole.

function startTabs() {
  const tabs = [...$("tabs").children];
  const open = (tab) => {
    for (const other of tabs) {
      other.setAttribute("aria-selected", other === tab);
      other.tabIndex = other === tab ? 0 : -1;
      $(other.getAttribute("aria-controls")).hidden = other !== tab;
    }
  };
  $("tabs").addEventListener("click", (event) => tabs.includes(event.target) && open(event.target));
  rove($("tabs"), "[role=tab]", (item, key) => {
    const goal = neighbour(tabs, item, key, ["ArrowLeft", "ArrowRight"]);
    if (goal) open(goal);
    return goal;
  });
  open(tabs[0]);
}

$("source").textContent = data.source;
$("target").textContent = data.target || "–";
if (data.targetWasGiven) {
  $("target-name").textContent = "Given translation";
  const own = element("dd", { dir: "auto" }, data.candidates[0]?.text ?? "");
  document.querySelector(".pair").append(element("div", {}, element("dt", {}, "The model’s own"), own));
}
document.title = `${data.source} – inspection`;
const error = 1 / STEPS / 2;
$("exactness").textContent =
  `Weights are the model’s own, exact to ±${error.toPrecision(1)}, means of them too; log-probabilities and scores to ±0.00005. ` +
  "Positions run from left to right and from top to bottom in every language; · marks a piece that continues a word, ␣ a space.";

startAttention();
startAlignment();
startBeam();
startTabs();
startTheme(() => {
  drawOverview();
  drawMap();
});
