// Linear algebra on tensors. Sums are in double precision, results are rounded to float32.
//
//   linear(x, weight, bias)        x (n, in) Wᵀ + b, weight (out, in), bias (out) or null → (n, out)
//   addTensors(a, b), scaleTensor(a, factor)
//   splitColumns(x, widths)        (n, Σ widths) → tensors (n, width)
//   splitHeads(x, heads)           (n, heads·d) → (heads, n, d); joinHeads is its inverse
//   products(q, k)                 (heads, n, d) and (heads, m, d) → (heads, n, m)
//   mixValues(weights, v)          (heads, n, m) and (heads, m, d) → (heads, n, d)
//   softmaxRows(x)                 over the last dimension; −∞ → 0; a row of −∞ alone → zeros
//   logSoftmaxRow(row, temperature = 1)    Float32Array → Float32Array
//   ACTIVATIONS[name](number), erf(number)

function linear(x, weight, bias) {
  const [rows, inner, outer] = [x.rows, x.columns, weight.rows];
  const result = Tensor.zeros(rows, outer);
  const [a, w, out] = [x.data, weight.data, result.data];
  // Four outputs at a time: every number of x is read once for all of them.
  const blocks = outer - (outer % 4);
  for (let j = 0; j < blocks; j += 4) {
    const [w0, w1, w2, w3] = [j * inner, (j + 1) * inner, (j + 2) * inner, (j + 3) * inner];
    for (let i = 0; i < rows; i++) {
      const begin = i * inner;
      let [s0, s1, s2, s3] = [0, 0, 0, 0];
      for (let k = 0; k < inner; k++) {
        const value = a[begin + k];
        s0 += value * w[w0 + k];
        s1 += value * w[w1 + k];
        s2 += value * w[w2 + k];
        s3 += value * w[w3 + k];
      }
      const place = i * outer + j;
      out[place] = s0;
      out[place + 1] = s1;
      out[place + 2] = s2;
      out[place + 3] = s3;
    }
  }
  for (let j = blocks; j < outer; j++) {
    for (let i = 0; i < rows; i++) out[i * outer + j] = dot(a, i * inner, w, j * inner, inner);
  }
  if (bias) {
    for (let i = 0; i < rows; i++) for (let j = 0; j < outer; j++) out[i * outer + j] += bias.data[j];
  }
  return result;
}

function dot(a, beginA, b, beginB, length) {
  let sum = 0;
  for (let k = 0; k < length; k++) sum += a[beginA + k] * b[beginB + k];
  return sum;
}

const addTensors = (a, b) =>
  new Tensor(
    a.shape,
    a.data.map((value, i) => value + b.data[i]),
  );

const scaleTensor = (a, factor) =>
  new Tensor(
    a.shape,
    a.data.map((value) => value * factor),
  );

function splitColumns(x, widths) {
  let begin = 0;
  return widths.map((width) => {
    const part = Tensor.zeros(x.rows, width);
    for (let i = 0; i < x.rows; i++) part.row(i).set(x.row(i).subarray(begin, begin + width));
    begin += width;
    return part;
  });
}

function splitHeads(x, heads) {
  const width = x.columns / heads;
  const result = Tensor.zeros(heads, x.rows, width);
  for (let h = 0; h < heads; h++) {
    for (let i = 0; i < x.rows; i++) {
      result.row(h * x.rows + i).set(x.row(i).subarray(h * width, (h + 1) * width));
    }
  }
  return result;
}

function joinHeads(x) {
  const [heads, rows, width] = x.shape;
  const result = Tensor.zeros(rows, heads * width);
  for (let h = 0; h < heads; h++) {
    for (let i = 0; i < rows; i++) result.row(i).set(x.row(h * rows + i), h * width);
  }
  return result;
}

function products(q, k) {
  const [heads, n, width] = q.shape;
  const m = k.shape[1];
  const result = Tensor.zeros(heads, n, m);
  for (let h = 0; h < heads; h++) {
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < m; j++) {
        const [row, column] = [h * n + i, h * m + j];
        result.data[row * m + j] = dot(q.data, row * width, k.data, column * width, width);
      }
    }
  }
  return result;
}

function mixValues(weights, v) {
  const [heads, n, m] = weights.shape;
  const width = v.columns;
  const result = Tensor.zeros(heads, n, width);
  const sums = new Float64Array(width);
  for (let row = 0; row < heads * n; row++) {
    const head = Math.floor(row / n);
    sums.fill(0);
    for (let j = 0; j < m; j++) {
      const weight = weights.data[row * m + j];
      if (weight === 0) continue;
      const begin = (head * m + j) * width;
      for (let c = 0; c < width; c++) sums[c] += weight * v.data[begin + c];
    }
    result.row(row).set(sums);
  }
  return result;
}

function softmaxRows(x) {
  const result = Tensor.zeros(...x.shape);
  for (let i = 0; i < x.rows; i++) {
    const [row, out] = [x.row(i), result.row(i)];
    const highest = row.reduce((largest, value) => Math.max(largest, value), -Infinity);
    if (highest === -Infinity) continue;
    let sum = 0;
    for (const value of row) sum += Math.exp(value - highest);
    for (let j = 0; j < row.length; j++) out[j] = Math.exp(row[j] - highest) / sum;
  }
  return result;
}

function logSoftmaxRow(row, temperature = 1) {
  let highest = -Infinity;
  for (const value of row) if (value > highest) highest = value;
  let sum = 0;
  for (const value of row) sum += Math.exp((value - highest) / temperature);
  const logarithm = Math.log(sum);
  return row.map((value) => (value - highest) / temperature - logarithm);
}

// The error function, to about 15 digits: its series, and the continued fraction of 1 − erf further out.
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  const factor = Math.exp(-size * size) / Math.sqrt(Math.PI);
  if (size < 3) {
    let [term, sum] = [size, size];
    for (let n = 1; term > sum * 1e-17; n++) {
      term *= (2 * size * size) / (2 * n + 1);
      sum += term;
    }
    return Math.sign(x) * 2 * factor * sum;
  }
  let fraction = size;
  for (let n = 60; n > 0; n--) fraction = size + n / 2 / fraction;
  return Math.sign(x) * (1 - factor / fraction);
}

const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  gelu: (x) => (x / 2) * (1 + erf(x / Math.SQRT2)),
  gelu_tanh: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  swish: (x) => x / (1 + Math.exp(-x)),
};
// Gated feed-forward networks: activation(gate) · up
const GATES = { swiglu: ACTIVATIONS.swish, geglu: ACTIVATIONS.gelu };
