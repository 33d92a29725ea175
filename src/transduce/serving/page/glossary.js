// The glossary editor. Terms apply as they are typed; saving keeps them on the server under a name.

import { call } from "./api.js";
import { $, element, iconButton, kept } from "./dom.js";
import { t } from "./strings.js";

let list = []; // {id, name, source, target, entry_count}
let direction = { source: null, target: null };
let active = null; // id of the glossary in use
let changed = false; // since it was loaded or saved
let onChange = () => {};
let detected = () => null; // the source language where it is detected

function rows() {
  return [...$("terms").rows].map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()));
}

function entries() {
  return Object.fromEntries(rows().filter(([source, target]) => source && target));
}

// What a request says about terms: unsaved ones by value, saved ones by the glossary's id.
export function termsOfRequest() {
  const words = $("never-translate").value.split(/[,、，;\n]/).map((word) => word.trim()).filter(Boolean);
  const terms = entries();
  const found = {};
  if (active && !changed) found.glossary = active;
  else if (Object.keys(terms).length > 0) found.terms = terms;
  if (words.length > 0) found.do_not_translate = words;
  return found;
}

function addRow(source = "", target = "") {
  const position = $("terms").rows.length + 1;
  const cell = (value, label) => {
    const input = element("input", { type: "text", dir: "auto", "aria-label": t(label, { number: position }), maxlength: "500" });
    input.value = value;
    return element("td", {}, input);
  };
  const remove = iconButton("clear", t("removeTerm", { number: position }), () => {
    row.remove();
    if ($("terms").rows.length === 0) addRow();
    edited();
    $("term-add").focus();
  });
  const row = element("tr", {}, cell(source, "termRow"), cell(target, "targetRow"), element("td", {}, remove));
  $("terms").append(row);
  return row;
}

function showEntries(name, terms) {
  $("terms").replaceChildren();
  for (const [source, target] of Object.entries(terms)) addRow(source, target);
  addRow();
  $("glossary-name").value = name;
  changed = false;
  showStatus();
}

function showStatus(message) {
  const unsaved = changed && Object.keys(entries()).length > 0;
  $("glossary-status").textContent = message ?? (unsaved ? t("unsaved") : t("termHint"));
  $("glossary-delete").hidden = !active;
}

function showChoices() {
  const fits = ({ source, target }) => (!source || source === direction.source || direction.source === "auto") && (!target || target === direction.target);
  const options = list.filter(fits).map(({ id, name, entry_count }) => {
    const option = element("option", { value: id }, `${name} (${entry_count ?? 0})`);
    return option;
  });
  $("glossary-choice").replaceChildren(element("option", { value: "" }, t("noGlossary")), ...options);
  $("glossary-choice").value = active ?? "";
}

let pending = 0;

function edited() {
  changed = true;
  showStatus();
  clearTimeout(pending);
  pending = setTimeout(onChange, 400);
}

async function guarded(act) {
  try {
    await act();
  } catch (problem) {
    showStatus([problem.message || t("serverFault", { status: problem.status }), problem.remedy].filter(Boolean).join(" "));
  }
}

async function refresh() {
  const answer = await call("v1/glossaries");
  list = Array.isArray(answer) ? answer : answer.glossaries ?? [];
  showChoices();
}

async function choose(id) {
  active = id || null;
  const glossary = active ? await call(`v1/glossaries/${encodeURIComponent(active)}`) : { name: "", entries: {} };
  showEntries(glossary.name, glossary.entries);
  showChoices();
  onChange();
}

async function save() {
  const [path, method] = active ? [`v1/glossaries/${encodeURIComponent(active)}`, "PUT"] : ["v1/glossaries", "POST"];
  const source = direction.source === "auto" ? detected() : direction.source;
  const old = list.find(({ id }) => id === active);
  const languages = old ? { source: old.source, target: old.target } : { source, target: direction.target };
  const name = $("glossary-name").value.trim() || t("newName");
  const saved = await call(path, { method, body: { name, ...languages, entries: entries() } });
  active = saved?.id ?? active;
  $("glossary-name").value = name;
  changed = false;
  await refresh();
  showStatus(t("saved"));
  onChange();
}

async function remove() {
  if (!confirm(t("confirmDelete", { name: $("glossary-name").value }))) return;
  await call(`v1/glossaries/${encodeURIComponent(active)}`, { method: "DELETE" });
  await refresh();
  await choose(null);
}

// Two columns of a spreadsheet: one row for each line.
function paste(event) {
  const lines = event.clipboardData.getData("text/plain").split(/\r?\n/).map((line) => line.split("\t"));
  const pairs = lines.filter((cells) => cells.length >= 2 && cells[0].trim());
  if (pairs.length === 0) return;
  event.preventDefault();
  [...$("terms").rows].forEach((row) => {
    if ([...row.querySelectorAll("input")].every((input) => !input.value.trim())) row.remove();
  });
  pairs.forEach(([source, target]) => addRow(source.trim(), target.trim()));
  addRow();
  edited();
}

export function glossaryDirection(next) {
  direction = next;
  showChoices();
  const usable = !active || [...$("glossary-choice").options].some(({ value }) => value === active);
  if (!usable) guarded(() => choose(null));
}

export function glossaryLanguage() {
  const shown = rows();
  const was = changed;
  $("terms").replaceChildren();
  shown.forEach(([source, target]) => addRow(source, target));
  changed = was;
  showChoices();
  showStatus();
}

export function startGlossary(whenChanged, detectedLanguage) {
  [onChange, detected] = [whenChanged, detectedLanguage];
  addRow();
  $("never-translate").value = kept.get("never-translate", "");
  $("never-translate").addEventListener("input", () => {
    kept.set("never-translate", $("never-translate").value || null);
    clearTimeout(pending);
    pending = setTimeout(onChange, 400);
  });
  $("glossary-name").addEventListener("input", () => showStatus());
  $("terms").addEventListener("input", () => {
    const last = [...$("terms").rows].at(-1);
    if ([...last.querySelectorAll("input")].some((input) => input.value)) addRow();
    edited();
  });
  $("terms").addEventListener("paste", paste);
  $("term-add").addEventListener("click", () => addRow().querySelector("input").focus());
  $("glossary-choice").addEventListener("change", (event) => guarded(() => choose(event.target.value)));
  $("glossary-delete").addEventListener("click", () => guarded(remove));
  $("glossary-form").addEventListener("submit", (event) => {
    event.preventDefault();
    guarded(save);
  });
  showChoices();
  showStatus();
}

let asked = false;

export function glossaryOpened() {
  if (asked) return;
  asked = true;
  guarded(refresh);
}
