// Documents: dropped or chosen, translated by the server, downloaded when they are done.

import { call, send } from "./api.js";
import { $, announce, element, iconButton } from "./dom.js";
import { t } from "./strings.js";

const POLL = 700; // milliseconds
let types = [];
let languages = () => ({});
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// A line of the list: the name, what happens to the file, and how far it is.
function line(file) {
  const status = element("span", { class: "quiet", role: "status" }, t("uploading"));
  const progress = element("progress", { "aria-label": file.name });
  const download = element("button", { type: "button", class: "primary", hidden: true }, t("download"));
  const controller = new AbortController();
  const remove = iconButton("clear", t("remove", { name: file.name }), () => {
    controller.abort();
    item.remove();
    $("file").focus();
  });
  const name = element("strong", { class: "clip", dir: "auto" }, file.name);
  const item = element("li", { class: "item document" }, element("div", { class: "grow" }, name, status, progress), download, remove);
  $("document-list").prepend(item);
  return { status, progress, download, signal: controller.signal };
}

async function translate(file) {
  const shown = line(file);
  try {
    if (types.length > 0 && !types.some((type) => file.name.toLowerCase().endsWith(type))) {
      fail(shown, `${t("wrongType")} ${t("documentTypes", { types: types.join(" ") })}`);
      return;
    }
    const body = new FormData();
    body.append("file", file, file.name);
    const { source, target } = languages();
    if (source) body.append("source", source);
    if (target) body.append("target", target);
    const job = await patiently(() => call("v1/documents", { method: "POST", body, signal: shown.signal }));
    const address = (rest) => `v1/documents/${encodeURIComponent(job.id)}${rest}?key=${encodeURIComponent(job.key)}`;
    await follow(job, address, shown);
    if (shown.signal.aborted) return;
    shown.download.hidden = false;
    shown.download.addEventListener("click", () => save(address("/result"), file.name, target, shown));
    announce(`${file.name}: ${t("done")}`);
  } catch (problem) {
    if (problem.name !== "AbortError") fail(shown, [problem.message, problem.remedy].filter(Boolean).join(" ") || t("failed"));
  }
}

// A busy server is asked again.
async function patiently(request) {
  for (let failures = 0; ; failures += 1) {
    try {
      return await request();
    } catch (problem) {
      if (!problem.temporary || failures >= 20) throw problem;
      await pause(1000 * (problem.retryAfter ?? 2));
    }
  }
}

async function follow(job, address, { status, progress, signal }) {
  let state = job;
  for (;;) {
    if (state.status === "done") break;
    if (state.status === "error") throw new Error(state.error?.message ?? state.error ?? t("failed"));
    status.textContent = state.total > 0 ? t("documentProgress", state) : t("queued");
    if (state.total > 0) {
      progress.max = state.total;
      progress.value = state.done;
    }
    await pause(POLL);
    state = await patiently(() => call(address(""), { signal }));
  }
  status.textContent = t("done");
  progress.hidden = true;
}

function fail({ status, progress }, message) {
  progress.hidden = true;
  status.textContent = message;
  status.className = "bad";
}

async function save(address, name, target, shown) {
  try {
    const response = await patiently(() => send(address, { signal: shown.signal }));
    const dot = name.lastIndexOf(".");
    const link = element("a", { download: `${name.slice(0, dot)}.${target || "translated"}${name.slice(dot)}` });
    link.href = URL.createObjectURL(await response.blob());
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  } catch (problem) {
    if (problem.name !== "AbortError") fail(shown, problem.message || t("failed"));
  }
}

export function documentTypes(served) {
  types = served;
  $("tab-documents").hidden = types.length === 0;
  $("file").accept = types.join(",");
  $("document-types").textContent = t("documentTypes", { types: types.join(" ") });
}

// `chosen()` returns the languages; `onDrop()` is called when files were dropped anywhere on the page.
export function startDocuments(chosen, onDrop) {
  languages = chosen;
  const start = (files) => [...files].forEach(translate);
  $("file").addEventListener("change", (event) => {
    start(event.target.files);
    event.target.value = "";
  });
  const hasFiles = (event) => types.length > 0 && [...(event.dataTransfer?.types ?? [])].includes("Files");
  const overlay = $("drop-anywhere");
  addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    overlay.hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) overlay.hidden = true;
  });
  addEventListener("drop", (event) => {
    overlay.hidden = true;
    if (!hasFiles(event)) return;
    event.preventDefault();
    onDrop();
    start(event.dataTransfer.files);
  });
}
