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

// A view that would be empty.
function withdraw(name) {
  $(`tab-${name}`).remove();
  $(name).hidden = true;
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
const attends = Object.keys(KINDS).some(has);
const exactness = attends
  ? `Weights are the model’s own, exact to ±${error.toPrecision(1)}, means of them too; log-probabilities and scores to ±0.00005. `
  : "This model has no attention: there are no weights to show. Log-probabilities and scores are exact to ±0.00005. ";
$("exactness").textContent =
  exactness +
  "In the maps, positions run from left to right and from top to bottom in every language; · marks a piece that continues a word, ␣ a space.";

if (attends) startAttention();
else withdraw("attention");
if (has("encoder_decoder")) startAlignment();
else withdraw("alignment");
startBeam();
startTabs();
startTheme(() => {
  if (!attends) return;
  drawOverview();
  drawMap();
});
