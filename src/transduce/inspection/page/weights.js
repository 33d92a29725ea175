// The page's data, and the attention weights in it.

const data = JSON.parse(document.getElementById("data").textContent);
const STEPS = 2 ** data.bits - 1; // a weight of 1
const MEAN = "mean";

class Weights {
  // Little-endian integers of shape (layers, heads, rows, columns), in base64.
  constructor({ shape, data: packed }) {
    [this.layers, this.heads, this.rows, this.columns] = shape;
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    const size = data.bits / 8;
    this.values = new Float32Array(bytes.length / size);
    for (let i = 0; i < this.values.length; i++) {
      this.values[i] = (size === 2 ? view.getUint16(2 * i, true) : bytes[i]) / STEPS;
    }
    this.maps = new Map();
  }

  // The weights of a head of a layer, row by row; either may be MEAN.
  map(layer, head) {
    const name = `${layer} ${head}`;
    if (!this.maps.has(name)) this.maps.set(name, this.average(layer, head));
    return this.maps.get(name);
  }

  average(layer, head) {
    const layers = layer === MEAN ? [...Array(this.layers).keys()] : [layer];
    const heads = head === MEAN ? [...Array(this.heads).keys()] : [head];
    const size = this.rows * this.columns;
    const sum = new Float32Array(size);
    for (const l of layers) {
      for (const h of heads) {
        const start = (l * this.heads + h) * size;
        for (let i = 0; i < size; i++) sum[i] += this.values[start + i];
      }
    }
    return sum.map((value) => value / (layers.length * heads.length));
  }
}

const WEIGHTS = Object.fromEntries(
  Object.entries(data.attention).map(([kind, packed]) => [kind, new Weights(packed)]),
);

const maximum = (map) => map.reduce((largest, value) => Math.max(largest, value), 0);

// As many digits as are exact.
const formatWeight = (weight) => weight.toFixed(data.bits === 16 ? 4 : 2);
