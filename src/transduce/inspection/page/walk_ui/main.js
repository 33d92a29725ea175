// Draws the page: header, choices, the station, and the way to the next one.

const byId = (id) => document.getElementById(id);
const announce = (text) => (byId("status").textContent = text);

// Settings outlive the page where the browser lets them.
const remembered = (name) => {
  try {
    return localStorage.getItem(`walk-${name}`);
  } catch {
    return null;
  }
};
const remember = (name, value) => {
  try {
    localStorage.setItem(`walk-${name}`, value);
  } catch {
    // A page in a frame has no storage.
  }
};

function drawHeader(app) {
  document.documentElement.lang = language;
  document.title = `${plainMath(t(`${app.chosen.station}.title`))} · ${app.sentence.source}`;
  byId("title").textContent = t("title");
  byId("source").textContent = app.sentence.source;
  byId("target").textContent = app.sentence.target;
  byId("quiz").textContent = t("quiz");
  byId("quiz").setAttribute("aria-pressed", String(app.quiz));
  byId("language").textContent = t("toLanguage");
  byId("language").lang = language === "ko" ? "en" : "ko";
  byId("theme").textContent = t(isDark() ? "toLight" : "toDark");
  const { ok, difference, agree, positions } = app.check;
  const size = Number.isFinite(difference) ? difference.toExponential(1).replace("-", "−") : "∞";
  const parts = [t(ok ? "checked" : "failed", { difference: size, agree, positions })];
  const { parameters, mostParameters } = app.data;
  if (!app.canChange) parts.push(t("holds", { n: parameters.toLocaleString(language), most: mostParameters.toLocaleString(language) }));
  byId("check").textContent = parts.join(" ");
  byId("check").className = ok ? "ok" : "failed";
}

function tokenChoice(app, side, label) {
  const buttons = app.names(side).map((name, i) =>
    node(
      "button",
      {
        type: "button", class: "token", "aria-pressed": String(i === app.chosen[side]), "data-key": `${side}-${i}`,
        onclick: () => app.choose({ [side]: i }),
      }, // prettier-ignore
      isolated(name),
    ),
  );
  return node("div", { class: "tokens", role: "group", "aria-label": label, dir: "auto" }, node("span", { class: "quiet" }, `${label}: `), buttons);
}

function drawChoices(app, uses) {
  const { config } = app.data;
  const { chosen } = app;
  const upTo = (n) => Array.from({ length: n }, (_, i) => [i, String(i + 1)]);
  const menus = {
    stack: () => choice(t("attentionKind"), STACKS.map((stack) => [stack, t(`${stack}Stack`)]), chosen.stack, (stack) => app.choose({ stack }), "stack"),
    side: () => choice(t("stack"), ["encoder", "decoder"].map((side) => [side, t(side)]), app.side === "source" ? "encoder" : "decoder", (stack) => app.choose({ stack }), "side"),
    layer: () => choice(t("layer"), upTo(app.side === "source" ? config.encoderLayers : config.decoderLayers), chosen.layer, (layer) => app.choose({ layer: Number(layer) }), "layer"),
    decoderLayer: () => choice(t("layer"), upTo(config.decoderLayers), Math.min(chosen.layer, config.decoderLayers - 1), (layer) => app.choose({ stack: chosen.stack === "encoder" ? "decoder" : chosen.stack, layer: Number(layer) }), "layer"),
    head: () => choice(t("head"), upTo(config.heads), chosen.head, (head) => app.choose({ head: Number(head) }), "head"),
    token: () => tokenChoice(app, app.side, t("chosenToken")),
    target: () => tokenChoice(app, "target", t("chosenPosition")),
    source: () => tokenChoice(app, "source", t("chosenSource")),
  }; // prettier-ignore
  byId("choices").replaceChildren(...uses.map((name) => menus[name]()));
}

function drawChanged(app) {
  const { positions, scale, mask, silenced } = app.options;
  const what = [
    !positions && t("changedPositions"),
    !scale && t("changedScale"),
    !mask && t("changedMask"),
    silenced.size > 0 && t("changedSilenced", { n: silenced.size }),
  ].filter((each) => each);
  byId("changed").hidden = !what.length;
  byId("changed").replaceChildren(
    `${t("changed", { what: what.join(", ") })} `,
    node("button", { type: "button", "data-key": "reset", onclick: () => app.reset() }, t("reset")),
  );
}

function keepFocus(draw) {
  const before = document.activeElement;
  const key = before?.dataset.key;
  const range = key === "text" ? [before.selectionStart, before.selectionEnd] : null;
  draw();
  const again = key && document.querySelector(`[data-key="${CSS.escape(key)}"]`);
  if (!again || again === document.activeElement) return;
  again.focus({ preventScroll: true });
  if (range) again.setSelectionRange(...range);
}

function drawStation(app) {
  const index = STATIONS.findIndex(({ id }) => id === app.chosen.station);
  const station = STATIONS[index];
  drawChoices(app, station.uses);
  const title = node("h2", { id: "station-title", tabindex: "-1" }, `${index + 1}. `, math(t(`${station.id}.title`)));
  const about = [paragraph("section", t("section", { n: station.section })), paragraph("about", math(t(`${station.id}.about`)))];
  const parts = station.draw(app).flat(Infinity).filter((part) => part);
  byId("station").replaceChildren(title, ...about, ...parts);
  byId("station").dataset.station = station.id;
  byId("back").textContent = t("back");
  byId("next").textContent = t("next");
  byId("back").disabled = index === 0;
  byId("next").disabled = index === STATIONS.length - 1;
  byId("place").textContent = t("place", { n: index + 1, of: STATIONS.length });
}

function drawPage(app, isNewStation = false) {
  keepFocus(() => {
    drawHeader(app);
    drawMap(app);
    drawChanged(app);
    drawStation(app);
  });
  if (location.hash !== app.address()) {
    try {
      history[isNewStation ? "pushState" : "replaceState"](null, "", app.address());
    } catch {
      // A page in a frame has no address of its own.
    }
  }
  if (isNewStation) {
    announce("");
    byId("spoken").textContent = `${byId("station-title").textContent}. ${byId("place").textContent}`;
  }
}

function start() {
  const theme = remembered("theme");
  if (theme) document.documentElement.dataset.theme = theme;
  language = remembered("language") ?? (navigator.language.startsWith("ko") ? "ko" : "en");
  const app = new Walk(JSON.parse(byId("data").textContent), drawPage);
  globalThis.walkApp = app; // for the console
  const go = (by) => {
    const index = STATIONS.findIndex(({ id }) => id === app.chosen.station);
    const next = STATIONS[index + by];
    if (!next) return;
    app.choose({ station: next.id });
    byId("station-title").focus({ preventScroll: true });
    byId("choices").scrollIntoView({ block: "nearest" });
  };
  byId("back").addEventListener("click", () => go(-1));
  byId("next").addEventListener("click", () => go(1));
  byId("quiz").addEventListener("click", () => {
    app.quiz = !app.quiz;
    app.choose({});
    announce(t(app.quiz ? "quizOn" : "quizOff"));
  });
  byId("language").addEventListener("click", () => {
    language = language === "ko" ? "en" : "ko";
    remember("language", language);
    drawPage(app);
  });
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember("theme", document.documentElement.dataset.theme);
    drawPage(app);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawPage(app));
  addEventListener("hashchange", () => app.follow(location.hash));
  addEventListener("popstate", () => app.follow(location.hash));
  app.follow(location.hash);
}

start();
