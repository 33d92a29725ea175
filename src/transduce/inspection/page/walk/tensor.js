// Tensors of numbers, row by row, and their packed form.
//
//   new Tensor([2, 3], values)   values: a Float32Array, row by row
//   Tensor.zeros(2, 3)
//   tensor.shape, tensor.data
//   tensor.rows, tensor.columns  of a matrix; of more dimensions, all but the last count as rows
//   tensor.row(i)                a view of the row, Float32Array
//   tensor.at(i)                 a view of a part along the first dimension, such as a head: Tensor
//   tensor.get(i, j, …)          one number
//   new PackedTensors({table, data}), .has(name), .get(name)

class Tensor {
  constructor(shape, data) {
    this.shape = shape;
    this.data = data;
  }

  static zeros(...shape) {
    return new Tensor(shape, new Float32Array(shape.reduce((size, n) => size * n, 1)));
  }

  get columns() {
    return this.shape[this.shape.length - 1];
  }

  get rows() {
    return this.columns ? this.data.length / this.columns : 0;
  }

  row(index) {
    return this.data.subarray(index * this.columns, (index + 1) * this.columns);
  }

  at(index) {
    const shape = this.shape.slice(1);
    const size = shape.reduce((product, n) => product * n, 1);
    return new Tensor(shape, this.data.subarray(index * size, (index + 1) * size));
  }

  get(...indices) {
    let place = 0;
    for (let i = 0; i < indices.length; i++) place = place * this.shape[i] + indices[i];
    return this.data[place];
  }
}

// The 65,536 numbers of float16.
const halfNumbers = (() => {
  let table = null;
  return () => {
    if (table) return table;
    table = new Float32Array(65536);
    for (let bits = 0; bits < 65536; bits++) {
      const sign = bits & 0x8000 ? -1 : 1;
      const exponent = (bits >> 10) & 31;
      const fraction = bits & 1023;
      if (exponent === 0) table[bits] = sign * fraction * 2 ** -24;
      else if (exponent === 31) table[bits] = fraction ? NaN : sign * Infinity;
      else table[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
    }
    return table;
  };
})();

function bytesOfBase64(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// Little-endian float16 numbers in base64, and a table: name → [offset in numbers, ...shape].
// A tensor is decoded when it is first asked for.
class PackedTensors {
  constructor({ table, data }) {
    this.table = table;
    this.bytes = bytesOfBase64(data);
    this.decoded = new Map();
  }

  has(name) {
    return Object.hasOwn(this.table, name);
  }

  get(name) {
    if (!this.has(name)) return null;
    if (!this.decoded.has(name)) this.decoded.set(name, this.decode(...this.table[name]));
    return this.decoded.get(name);
  }

  decode(offset, ...shape) {
    const tensor = Tensor.zeros(...shape);
    const numbers = halfNumbers();
    for (let i = 0, at = 2 * offset; i < tensor.data.length; i++, at += 2) {
      tensor.data[i] = numbers[this.bytes[at] | (this.bytes[at + 1] << 8)];
    }
    return tensor;
  }
}

// Little-endian float32 numbers in base64: {shape, data}.
function unpackFloats({ shape, data }) {
  const bytes = bytesOfBase64(data);
  const view = new DataView(bytes.buffer);
  const tensor = Tensor.zeros(...shape);
  for (let i = 0; i < tensor.data.length; i++) tensor.data[i] = view.getFloat32(4 * i, true);
  return tensor;
}
