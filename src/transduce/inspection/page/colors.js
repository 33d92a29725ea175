// One color scale for all maps, with a readable text color for each level.

const LEVELS = data.scales.light.length;
let ramp = [];

function luminance(rgb) {
  const [red, green, blue] = rgb.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

// Black or white, whichever contrasts more: at least 4.5 to 1 on any color.
const inkOn = (rgb) => ((luminance(rgb) + 0.05) / 0.05 > 1.05 / (luminance(rgb) + 0.05) ? "#000" : "#fff");

function paintScale() {
  ramp = data.scales[isDark() ? "dark" : "light"];
  const sheet = $("scale-sheet") ?? element("style", { id: "scale-sheet" });
  sheet.textContent = ramp
    .map((rgb, level) => `.w${level}{background-color:rgb(${rgb});color:${inkOn(rgb)}}`)
    .join("");
  document.head.append(sheet);
  const stops = ramp.filter((_, level) => level % 7 === 0).map((rgb) => `rgb(${rgb})`);
  $("legend-bar").style.background = `linear-gradient(to right, ${stops})`;
}

const level = (weight, top) => Math.round((LEVELS - 1) * Math.min(1, top > 0 ? weight / top : 0));

// Where the automatic scale of a map ends: few rows have a larger weight. As in color_scale.py.
const TOPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];
function automaticTop(map, columns) {
  const peaks = [];
  for (let start = 0; start < map.length; start += columns) peaks.push(maximum(map.subarray(start, start + columns)));
  const peak = peaks.sort((a, b) => a - b)[Math.ceil(0.9 * peaks.length) - 1] ?? 1;
  return TOPS.find((top) => peak <= top) ?? 1;
}

// Paint weights with one pixel each; with more weights than `limits`, (rows, columns), a pixel is the largest of
// its weights. Masked weights stay transparent.
function paint(canvas, map, size, top, isMasked, limits = size) {
  const [rows, columns] = size;
  const [height, width] = [Math.min(rows, limits[0]), Math.min(columns, limits[1])];
  const levels = new Int16Array(height * width).fill(-1);
  for (let row = 0, index = 0; row < rows; row++) {
    const start = Math.floor((row * height) / rows) * width;
    for (let column = 0; column < columns; column++, index++) {
      const pixel = start + Math.floor((column * width) / columns);
      const value = isMasked(row, column) ? -1 : level(map[index], top);
      if (value > levels[pixel]) levels[pixel] = value;
    }
  }
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  levels.forEach((value, index) => {
    if (value < 0) return;
    for (let channel = 0; channel < 3; channel++) image.data[4 * index + channel] = ramp[value][channel];
    image.data[4 * index + 3] = 255;
  });
  context.putImageData(image, 0, 0);
}
