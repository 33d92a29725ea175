// One color scale for all maps: a single hue with perceptually even steps of lightness (OKLCH), starting at the
// color of the page in light and dark mode.

const LEVELS = 64;
const HUE = 262;
let ramp = [];

function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function oklch(lightness, chroma, hue) {
  const angle = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  return linear.map((value) => {
    const clipped = Math.min(1, Math.max(0, value));
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  });
}

function paintScale() {
  const [from, to] = isDark() ? [0.24, 0.93] : [0.975, 0.33];
  ramp = Array.from({ length: LEVELS }, (_, level) => {
    const share = level / (LEVELS - 1);
    const lightness = from + (to - from) * share;
    const chroma = 0.012 + 0.17 * Math.sin(Math.PI * Math.min(0.92, 0.08 + 0.84 * share)) * share ** 0.5;
    return { rgb: oklch(lightness, chroma, HUE), ink: lightness > 0.62 ? "#10131c" : "#ffffff" };
  });
  const sheet = document.getElementById("scale-sheet") ?? document.createElement("style");
  sheet.id = "scale-sheet";
  sheet.textContent = ramp
    .map(({ rgb, ink }, level) => `.w${level}{background-color:rgb(${rgb});color:${ink}}`)
    .join("");
  document.head.append(sheet);
  const stops = ramp.filter((_, level) => level % 7 === 0).map(({ rgb }) => `rgb(${rgb})`);
  document.getElementById("legend-bar").style.background = `linear-gradient(to right, ${stops})`;
}

const level = (weight, top) => Math.round((LEVELS - 1) * Math.min(1, top > 0 ? weight / top : 0));

// Paint weights as a small image with one pixel per weight.
function paint(canvas, map, rows, columns, top) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  map.forEach((weight, index) => {
    image.data.set([...ramp[level(weight, top)].rgb, 255], 4 * index);
  });
  context.putImageData(image, 0, 0);
}

// The theme is the system's until the user selects one.
function startTheme(repaint) {
  const button = document.getElementById("theme");
  const show = () => {
    paintScale();
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to light colors" : "Switch to dark colors");
    repaint();
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
  show();
}
