// Vectors and matrices in signed colors: blue above zero, orange below, the color of the page at zero.
//
//   strip(values, {name, label, chosen, onChoose, key, top, grey, secret})   a vector; arrow keys and the mouse go
//     through its numbers. name: the symbol before the index; chosen: the number shown when nothing is pointed at;
//     grey(value): numbers that are crossed out; secret: the index of a number that the quiz hides; top: the
//     size of the strongest color
//   grid(matrix, {label, mask, row, column, onChoose})                       a matrix (rows, columns); where the
//     mask is 0, cells are hatched
//   largest(values)                                                          the largest finite size

function signedColor(share) {
  const strength = Math.min(1, Math.abs(share)) ** 0.7;
  const [zero, full] = isDark() ? [0.24, 0.78] : [0.975, 0.5];
  return oklch(zero + (full - zero) * strength, 0.17 * strength, share < 0 ? 50 : 262);
}

const largest = (values) =>
  values.reduce((top, value) => (Number.isFinite(value) ? Math.max(top, Math.abs(value)) : top), 0) || 1;

function strip(values, { name, label, chosen = 0, onChoose, key, top = largest(values), grey, secret = -1 }) {
  const canvas = node("canvas", { width: values.length, height: 1, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  const image = context.createImageData(values.length, 1);
  values.forEach((value, i) => image.data.set([...signedColor(value / top), grey?.(value) ? 60 : 255], 4 * i));
  context.putImageData(image, 0, 0);
  const cursor = node("span", { class: "cursor", "aria-hidden": "true" });
  const readout = node("output", { class: "strip-value" });
  const box = node("div", { class: "strip", role: "slider", tabindex: "0", "data-key": key }, canvas, cursor);
  box.setAttribute("aria-label", `${label}: ${t("numbers", { n: values.length })}`);
  box.setAttribute("aria-valuemin", 1);
  box.setAttribute("aria-valuemax", values.length);
  const show = (i) => {
    const text = `${name}[${i + 1}] = ${i === secret ? "?" : number(values[i])}`;
    box.setAttribute("aria-valuenow", i + 1);
    box.setAttribute("aria-valuetext", text);
    readout.textContent = text;
    cursor.style.left = `${(100 * i) / values.length}%`;
    cursor.style.width = `${100 / values.length}%`;
  };
  let place = Math.min(chosen, values.length - 1);
  show(place);
  const at = (event) => {
    const { left, width } = box.getBoundingClientRect();
    const index = Math.floor(((event.clientX - left) / width) * values.length);
    return Math.max(0, Math.min(values.length - 1, index));
  };
  const move = (i) => {
    place = i;
    show(i);
    onChoose?.(i);
  };
  box.addEventListener("pointermove", (event) => show(at(event)));
  box.addEventListener("pointerleave", () => show(place));
  box.addEventListener("click", (event) => move(at(event)));
  box.addEventListener("keydown", (event) => {
    const last = values.length - 1;
    const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10 };
    let next = null;
    if (event.key in steps) next = place + steps[event.key];
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = last;
    if (next === null) return;
    event.preventDefault();
    move(Math.max(0, Math.min(last, next)));
  });
  return node("div", { class: "strip-row" }, node("span", { class: "strip-name" }, label), box, readout);
}

// Diagonal lines over a cell that may not be seen
function hatch(context, x, y, size) {
  context.strokeStyle = isDark() ? "#8b95a8" : "#7a8396";
  context.lineWidth = 1;
  context.beginPath();
  for (let offset = 0; offset < 2 * size; offset += 4) {
    context.moveTo(x + Math.max(0, offset - size), y + Math.min(offset, size));
    context.lineTo(x + Math.min(offset, size), y + Math.max(0, offset - size));
  }
  context.stroke();
}

function grid(matrix, { label, mask = null, row, column, onChoose }) {
  const [rows, columns] = matrix.shape;
  const size = Math.max(4, Math.min(24, Math.floor(420 / Math.max(rows, columns))));
  const canvas = node("canvas", { width: columns * size, height: rows * size, role: "img", class: "grid" });
  canvas.setAttribute("aria-label", label);
  const context = canvas.getContext("2d");
  const top = largest(matrix.data);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < columns; j++) {
      const value = matrix.get(i, j);
      const isHidden = (mask && !mask.get(i, j)) || !Number.isFinite(value);
      context.fillStyle = `rgb(${signedColor(isHidden ? 0 : value / top)})`;
      context.fillRect(j * size, i * size, size, size);
      if (isHidden) hatch(context, j * size, i * size, size);
    }
  }
  context.strokeStyle = isDark() ? "#ffb454" : "#b4470b";
  context.lineWidth = 2;
  context.strokeRect(1, row * size + 1, columns * size - 2, size - 2);
  if (column !== undefined) context.strokeRect(column * size + 1, row * size + 1, size - 2, size - 2);
  canvas.addEventListener("click", (event) => {
    const { left, top: above, width, height } = canvas.getBoundingClientRect();
    const i = Math.floor(((event.clientY - above) / height) * rows);
    const j = Math.floor(((event.clientX - left) / width) * columns);
    onChoose(Math.max(0, Math.min(rows - 1, i)), Math.max(0, Math.min(columns - 1, j)));
  });
  return node("figure", { class: "matrix" }, canvas, node("figcaption", {}, label));
}
