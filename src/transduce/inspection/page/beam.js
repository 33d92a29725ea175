// The beam search as a tree: one column per step, the best branch on top.

const COLUMN_WIDTH = 148;
const ROW_HEIGHT = 40;
const NODE_SIZE = [112, 32];
const TOP = 26; // room for the step numbers
const FATES = ["kept", "ended", "pruned"];
const beam = { step: data.trace.length, timer: null, nodes: [] };
const branches = data.trace.map((step, depth) =>
  step.map(([parent, name, logProbability, score, fate], index) => ({
    depth, index, parent, text: data.names[name], logProbability, score, fate: FATES[fate],
    isBest: data.bestPath[depth] === index,
  })),
);
// A branch that was still in the beam when the search stopped.
const isUnfinished = (branch) => branch.fate === "kept" && branch.depth === branches.length - 1;

// The winner is known only when the search has ended.
const isOver = () => beam.step >= branches.length;

function startBeam() {
  drawCandidates();
  $("beam-pruned").checked = recall("pruned", ["true", "false"]) === "true";
  $("tree").classList.toggle("bare", !$("beam-pruned").checked);
  $("beam-step").max = branches.length;
  for (const step of branches) beam.nodes.push(step.map(node));
  $("tree").append(...branches.map((_, depth) => stepName(depth)));
  $("tree").append(...beam.nodes.flat());
  const rows = Math.max(0, ...branches.map((step) => step.length));
  const height = TOP + ROW_HEIGHT * rows;
  Object.assign($("tree").style, { width: `${COLUMN_WIDTH * branches.length}px`, height: `${height}px` });
  $("tree-edges").setAttribute("viewBox", `0 0 ${COLUMN_WIDTH * branches.length} ${height}`);
  $("beam-step").addEventListener("input", (event) => stepTo(Number(event.target.value)));
  $("beam-back").addEventListener("click", () => stepTo(beam.step - 1));
  $("beam-next").addEventListener("click", () => stepTo(beam.step + 1));
  $("beam-play").addEventListener("click", play);
  $("beam-pruned").addEventListener("change", (event) => {
    $("tree").classList.toggle("bare", !event.target.checked);
    remember({ pruned: event.target.checked });
    drawEdges();
    keepReachable();
  });
  rove($("tree"), ".branch", nextBranch);
  pointing($("tree"), ".branch", showBranch);
  if (beam.nodes.length) beam.nodes[0][0].tabIndex = 0;
  stepTo(recallNumber("step", 1, branches.length, branches.length));
  beam.started = true; // from here on, scroll to the newest step
}

function drawCandidates() {
  const head = ["Rank", "Text", "Score", "Log-probability", "Tokens"].map((text, column) => element("th", { scope: "col", class: column > 1 ? "number" : "" }, text));
  const rows = data.candidates.map((candidate, rank) => {
    const text = element("td", { dir: "auto" }, candidate.text);
    if (!candidate.ended) text.append(element("small", {}, " (length limit reached)"));
    const figures = [candidate.score, candidate.logProbability].map((value) => element("td", { class: "number" }, value.toFixed(3)));
    const number = element("th", { scope: "row" }, rank === 0 ? "★ 1" : String(rank + 1));
    return element("tr", { class: rank === 0 ? "best" : "" }, number, text, ...figures, element("td", { class: "number" }, String(candidate.length)));
  });
  $("candidates").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

// The name of a branch is its visible text, with more around it for screen readers.
function node(branch) {
  const button = element(
    "button",
    { type: "button", role: "treeitem", tabindex: "-1", class: `branch ${branch.fate}`, "aria-level": branch.depth + 1 },
    unseen(`Step ${branch.depth + 1}: `),
    token(branch.text),
    element("small", {}, branch.score === null ? "" : branch.score.toFixed(2)),
    element("i", { "aria-hidden": "true" }),
    unseen(""),
  );
  Object.assign(button.style, { left: `${COLUMN_WIDTH * branch.depth}px`, top: `${TOP + ROW_HEIGHT * branch.index}px`, width: `${NODE_SIZE[0]}px`, height: `${NODE_SIZE[1]}px` });
  button.branch = branch;
  return button;
}

function nameNode(item) {
  const { branch } = item;
  const isWinner = branch.isBest && isOver();
  item.classList.toggle("best-path", isWinner);
  item.querySelector("i").textContent = isWinner ? "★" : { kept: isUnfinished(branch) ? "…" : "", ended: "■", pruned: "✕" }[branch.fate];
  item.lastElementChild.textContent = `, ${details(branch)}`;
}

function stepName(depth) {
  const label = element("span", { class: "step-name", "aria-hidden": "true" }, `step ${depth + 1}`);
  label.style.left = `${COLUMN_WIDTH * depth}px`;
  return label;
}

function pathTo(branch) {
  const path = [];
  for (let step = branch; step; step = branches[step.depth - 1]?.[step.parent]) path.unshift(step);
  return path;
}

function details(branch) {
  const fate = { kept: isUnfinished(branch) ? "unfinished when the search stopped" : "kept", ended: "ended", pruned: "pruned" }[branch.fate];
  const score = branch.score === null ? "–" : branch.score.toFixed(4);
  const kind = branch.fate === "ended" ? "score (log-probability divided by the length penalty)" : "sum of log-probabilities";
  const best = branch.isBest && isOver() ? ", on the path to the best hypothesis" : "";
  return `probability ${percent(branch.logProbability)}, ${kind} ${score}, ${fate}${best}`;
}

const describeBranch = (branch) => `Step ${branch.depth + 1}, ${quoted(branch.text)}: ${details(branch)}`;

function showBranch(item) {
  if (!item?.branch || item === beam.shown) return;
  beam.shown = item;
  const path = pathTo(item.branch);
  beam.path = new Set(path);
  $("beam-readout").replaceChildren(
    `${describeBranch(item.branch)}. Text so far: `,
    element("bdi", { class: "prefix" }, joinTokens(path.map(({ text }) => text)) || "–"),
  );
  for (const other of beam.nodes.flat()) other.classList.toggle("on-path", beam.path.has(other.branch));
  drawEdges();
}

const visible = (branch) => branch.depth < beam.step && !(branch.fate === "pruned" && !$("beam-pruned").checked);

function drawEdges() {
  const paths = [];
  for (const branch of branches.flat()) {
    if (!visible(branch) || branch.depth === 0) continue;
    const [x, y] = [COLUMN_WIDTH * branch.depth, TOP + ROW_HEIGHT * branch.index + NODE_SIZE[1] / 2];
    const from = [x - COLUMN_WIDTH + NODE_SIZE[0], TOP + ROW_HEIGHT * branch.parent + NODE_SIZE[1] / 2];
    const middle = (x + from[0]) / 2;
    const isWinner = branch.isBest && isOver();
    const kinds = [branch.fate, isWinner ? "best-path" : "", beam.path?.has(branch) ? "on-path" : ""].join(" ");
    paths.push([isWinner ? 1 : 0, `<path class="${kinds}" d="M${from[0]} ${from[1]}C${middle} ${from[1]} ${middle} ${y} ${x} ${y}"/>`]);
  }
  $("tree-edges").innerHTML = paths.sort((a, b) => a[0] - b[0]).map(([, path]) => path).join("");
}

// Make sure that Tab leads to a visible branch.
function keepReachable() {
  const current = $("tree").querySelector('[tabindex="0"]');
  if (!current || visible(current.branch)) return;
  makeReachable($("tree"), beam.nodes[0].find((item) => visible(item.branch)) ?? beam.nodes[0][0]);
}

function stepTo(step) {
  beam.step = Math.min(branches.length, Math.max(1, step));
  $("beam-step").value = beam.step;
  $("beam-step-value").textContent = `${beam.step} of ${branches.length}`;
  $("beam-back").disabled = beam.step <= 1;
  $("beam-next").disabled = beam.step >= branches.length;
  for (const item of beam.nodes.flat()) {
    item.hidden = item.branch.depth >= beam.step;
    nameNode(item);
  }
  $("beam").classList.toggle("over", isOver());
  $("candidates-later").hidden = isOver();
  if (beam.started) remember({ step: isOver() ? null : beam.step });
  beam.shown = null;
  drawEdges();
  keepReachable();
  const last = branches[beam.step - 1] ?? [];
  const counts = FATES.map((fate) => `${last.filter((branch) => branch.fate === fate).length} ${fate}`);
  $("beam-readout").textContent = `Step ${beam.step}: ${counts.join(", ")}. Point at a branch to see its text so far.`;
  if (beam.started) $("beam-scroller").scrollLeft = COLUMN_WIDTH * (beam.step + 1) - $("beam-scroller").clientWidth;
}

function play() {
  if (beam.timer) return pause();
  if (beam.step >= branches.length) stepTo(1);
  $("beam-play").textContent = "Pause";
  beam.timer = setInterval(() => {
    stepTo(beam.step + 1);
    if (beam.step >= branches.length) pause();
  }, 700);
}

function pause() {
  clearInterval(beam.timer);
  beam.timer = null;
  $("beam-play").textContent = "Play";
}

// Left: parent; right: best child; up and down: neighbors in the column.
function nextBranch(item, key) {
  const { depth, index, parent } = item.branch;
  const column = beam.nodes[depth].filter((other) => visible(other.branch));
  if (key === "ArrowLeft") return beam.nodes[depth - 1]?.[parent];
  if (key === "ArrowRight") {
    const children = (beam.nodes[depth + 1] ?? []).filter((other) => other.branch.parent === index && visible(other.branch));
    return children.find((other) => other.branch.isBest && isOver()) ?? children[0];
  }
  return neighbor(column, item, key, ["ArrowUp", "ArrowDown"]);
}
