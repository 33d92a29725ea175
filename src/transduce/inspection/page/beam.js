// The search, step by step: a column a step, the best branch on top.

const WIDE = 148; // from column to column
const HIGH = 40;
const NODE = [112, 32];
const TOP = 26; // room for the steps' names
const FATES = ["kept", "ended", "pruned"];
const beam = { step: data.trace.length, timer: null, nodes: [] };
const branches = data.trace.map((step, depth) =>
  step.map(([parent, name, logProbability, score, fate], place) => ({
    depth, place, parent, text: data.names[name], logProbability, score, fate: FATES[fate],
    wins: data.winner[depth] === place,
  })),
);
// Neither ended nor pruned when the search stopped.
const isLeft = (branch) => branch.fate === "kept" && branch.depth === branches.length - 1;

function startBeam() {
  drawCandidates();
  $("beam-step").max = branches.length;
  for (const step of branches) beam.nodes.push(step.map(node));
  $("tree").append(...branches.map((_, depth) => stepName(depth)));
  $("tree").append(...beam.nodes.flat());
  const rows = Math.max(0, ...branches.map((step) => step.length));
  const height = TOP + HIGH * rows;
  Object.assign($("tree").style, { width: `${WIDE * branches.length}px`, height: `${height}px` });
  $("tree-edges").setAttribute("viewBox", `0 0 ${WIDE * branches.length} ${height}`);
  $("beam-step").addEventListener("input", (event) => stepTo(Number(event.target.value)));
  $("beam-back").addEventListener("click", () => stepTo(beam.step - 1));
  $("beam-on").addEventListener("click", () => stepTo(beam.step + 1));
  $("beam-play").addEventListener("click", play);
  $("beam-pruned").addEventListener("change", (event) => {
    $("tree").classList.toggle("bare", !event.target.checked);
    drawEdges();
    stayReachable();
  });
  rove($("tree"), ".branch", walk);
  pointing($("tree"), ".branch", explain);
  if (beam.nodes.length) beam.nodes[0][0].tabIndex = 0;
  stepTo(branches.length);
  beam.started = true; // from here on, the newest step is brought into view
}

function drawCandidates() {
  const head = ["", "Text", "Score", "Log-probability", "Tokens"].map((text) => element("th", { scope: "col" }, text));
  const rows = data.candidates.map((one, rank) => {
    const text = element("td", { dir: "auto" }, one.text);
    if (!one.ended) text.append(element("small", {}, " (cut off)"));
    const figures = [one.score, one.logProbability].map((value) => element("td", { class: "number" }, value.toFixed(3)));
    const place = element("th", { scope: "row" }, rank === 0 ? "★ 1" : String(rank + 1));
    return element("tr", { class: rank === 0 ? "best" : "" }, place, text, ...figures, element("td", { class: "number" }, String(one.length)));
  });
  $("candidates").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function node(branch) {
  const sign = branch.wins ? "★" : { kept: isLeft(branch) ? "…" : "", ended: "■", pruned: "✕" }[branch.fate];
  const made = element(
    "button",
    { type: "button", role: "treeitem", tabindex: "-1", class: `branch ${branch.fate}${branch.wins ? " winner" : ""}`, "aria-level": branch.depth + 1, "aria-label": described_branch(branch) },
    token(branch.text),
    element("small", {}, branch.score === null ? "" : branch.score.toFixed(2)),
    element("i", { "aria-hidden": "true" }, sign),
  );
  Object.assign(made.style, { left: `${WIDE * branch.depth}px`, top: `${TOP + HIGH * branch.place}px`, width: `${NODE[0]}px`, height: `${NODE[1]}px` });
  made.branch = branch;
  return made;
}

function stepName(depth) {
  const made = element("span", { class: "step-name", "aria-hidden": "true" }, `step ${depth + 1}`);
  made.style.left = `${WIDE * depth}px`;
  return made;
}

function lineage(branch) {
  const way = [];
  for (let at = branch; at; at = branches[at.depth - 1]?.[at.parent]) way.unshift(at);
  return way;
}

function described_branch(branch) {
  const fate = { kept: isLeft(branch) ? "still going when the search stopped" : "kept", ended: "ended", pruned: "pruned" }[branch.fate];
  const score = branch.score === null ? "–" : branch.score.toFixed(4);
  const kind = branch.fate === "ended" ? "score (over the length penalty)" : "sum of log-probabilities";
  return `Step ${branch.depth + 1}, ${quoted(branch.text)}: probability ${percent(branch.logProbability)}, ${kind} ${score}, ${fate}${branch.wins ? ", on the way to the winner" : ""}`;
}

function explain(item) {
  if (!item?.branch || item === beam.explained) return;
  beam.explained = item;
  const way = lineage(item.branch);
  beam.way = new Set(way);
  $("beam-readout").replaceChildren(
    `${described_branch(item.branch)}. So far: `,
    element("bdi", { class: "said" }, spoken(way.map(({ text }) => text)) || "–"),
  );
  for (const other of beam.nodes.flat()) other.classList.toggle("way", beam.way.has(other.branch));
  drawEdges();
}

const visible = (branch) => branch.depth < beam.step && !(branch.fate === "pruned" && !$("beam-pruned").checked);

function drawEdges() {
  const paths = [];
  for (const branch of branches.flat()) {
    if (!visible(branch) || branch.depth === 0) continue;
    const [x, y] = [WIDE * branch.depth, TOP + HIGH * branch.place + NODE[1] / 2];
    const from = [x - WIDE + NODE[0], TOP + HIGH * branch.parent + NODE[1] / 2];
    const middle = (x + from[0]) / 2;
    const kinds = [branch.fate, branch.wins ? "winner" : "", beam.way?.has(branch) ? "way" : ""].join(" ");
    paths.push([branch.wins ? 1 : 0, `<path class="${kinds}" d="M${from[0]} ${from[1]}C${middle} ${from[1]} ${middle} ${y} ${x} ${y}"/>`]);
  }
  $("tree-edges").innerHTML = paths.sort((a, b) => a[0] - b[0]).map(([, path]) => path).join("");
}

// What Tab leads to must be there to be seen.
function stayReachable() {
  const reached = $("tree").querySelector('[tabindex="0"]');
  if (!reached || visible(reached.branch)) return;
  reachable($("tree"), beam.nodes[0].find((item) => visible(item.branch)) ?? beam.nodes[0][0]);
}

function stepTo(step) {
  beam.step = Math.min(branches.length, Math.max(1, step));
  $("beam-step").value = beam.step;
  $("beam-step-value").textContent = `${beam.step} of ${branches.length}`;
  $("beam-back").disabled = beam.step <= 1;
  $("beam-on").disabled = beam.step >= branches.length;
  for (const item of beam.nodes.flat()) item.hidden = item.branch.depth >= beam.step;
  beam.explained = null;
  drawEdges();
  stayReachable();
  const last = branches[beam.step - 1] ?? [];
  const counts = FATES.map((fate) => `${last.filter((branch) => branch.fate === fate).length} ${fate}`);
  $("beam-readout").textContent = `Step ${beam.step}: ${counts.join(", ")}. Point at a branch, or move to it, for its text so far.`;
  if (beam.started) $("beam-scroller").scrollLeft = WIDE * (beam.step + 1) - $("beam-scroller").clientWidth;
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

// Left to the parent, right to the best child, up and down in the column.
function walk(item, key) {
  const { depth, place, parent } = item.branch;
  const column = beam.nodes[depth].filter((other) => visible(other.branch));
  if (key === "ArrowLeft") return beam.nodes[depth - 1]?.[parent];
  if (key === "ArrowRight") {
    const children = (beam.nodes[depth + 1] ?? []).filter((other) => other.branch.parent === place && visible(other.branch));
    return children.find((other) => other.branch.wins) ?? children[0];
  }
  return neighbour(column, item, key, ["ArrowUp", "ArrowDown"]);
}
