// The attention view of `transduce inspect` for one sentence, in a frame. A form fills it, because the view brings its
// own scripts and styles, which this page's security policy would refuse anywhere else.

import { apiKey } from "./api.js";
import { $, element } from "./dom.js";
import { sourceOf } from "./result.js";
import { t } from "./strings.js";

const PAUSE = 500; // milliseconds in one sentence before its view is loaded
let [result, current, loaded, timer, frames] = [null, 0, "", 0, 0];

function request() {
  const sentence = result?.sentences[current];
  if (!sentence) return null;
  return {
    text: sourceOf(result, sentence),
    source: result.sourceLanguage ?? "",
    target: result.targetLanguage ?? "",
    api_key: apiKey(),
  };
}

function submit(fields, target) {
  const form = $("attention-form");
  for (const [name, value] of Object.entries(fields)) form.elements[name].value = value;
  form.target = target;
  form.submit();
  form.elements.api_key.value = "";
}

function load() {
  const fields = request();
  if (!fields || $("attention").hidden) return;
  const key = JSON.stringify(fields);
  if (key === loaded) return;
  loaded = key;
  // A new frame each time: a frame that is filled again would add steps to the browser's Back button.
  frames += 1;
  const name = `attention-${frames}`;
  const frame = element("iframe", { name, title: t("attentionFrame"), sandbox: "allow-scripts", "aria-busy": "true" });
  frame.addEventListener("load", () => frame.removeAttribute("aria-busy"));
  $("attention-frame").replaceChildren(frame);
  submit(fields, name);
}

function show() {
  const fields = request();
  $("attention-view").hidden = !fields;
  $("attention-empty").hidden = Boolean(fields);
  if (!fields) return;
  $("attention-sentence").textContent = fields.text;
  $("attention-previous").disabled = current === 0;
  $("attention-next").disabled = current + 1 >= result.sentences.length;
  clearTimeout(timer);
  timer = setTimeout(load, PAUSE);
}

export function attentionResult(next) {
  result = next;
  current = Math.min(current, Math.max(0, (result?.sentences.length ?? 0) - 1));
  show();
}

export function attentionSentence(index) {
  if (index === current) return;
  current = index;
  show();
}

export function startAttention() {
  $("attention-previous").addEventListener("click", () => attentionSentence(Math.max(0, current - 1)));
  $("attention-next").addEventListener("click", () => attentionSentence(Math.min(result.sentences.length - 1, current + 1)));
  $("attention-window").addEventListener("click", () => submit(request(), "_blank"));
}

export function attentionOpened() {
  clearTimeout(timer);
  load();
}
