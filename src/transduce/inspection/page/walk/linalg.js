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

// In blocks of two rows and four outputs: every number that is read serves several products.
function linear(x, weight, bias) {
  const [rows, inner, outer] = [x.rows, x.columns, weight.rows];
  const result = Tensor.zeros(rows, outer);
  const [a, w, out] = [x.data, weight.data, result.data];
  const whole = outer - (outer % 4);
  for (let j = 0; j < whole; j += 4) {
    let i = 0;
    for (; i + 1 < rows; i += 2) block(a, i * inner, w, j * inner, inner, out, i * outer + j, outer);
    if (i < rows) for (let c = j; c < j + 4; c++) out[i * outer + c] = dot(a, i * inner, w, c * inner, inner);
  }
  for (let j = whole; j < outer; j++) {
    for (let i = 0; i < rows; i++) out[i * outer + j] = dot(a, i * inner, w, j * inner, inner);
  }
  if (bias) {
    for (let i = 0; i < rows; i++) for (let j = 0; j < outer; j++) out[i * outer + j] += bias.data[j];
  }
  return result;
}

function block(a, x0, w, w0, inner, out, place, outer) {
  const x1 = x0 + inner;
  const w1 = w0 + inner;
  const w2 = w1 + inner;
  const w3 = w2 + inner;
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0; // prettier-ignore
  let t0 = 0, t1 = 0, t2 = 0, t3 = 0; // prettier-ignore
  for (let k = 0; k < inner; k++) {
    const p = a[x0 + k];
    const q = a[x1 + k];
    const v0 = w[w0 + k];
    const v1 = w[w1 + k];
    const v2 = w[w2 + k];
    const v3 = w[w3 + k];
    s0 += p * v0;
    s1 += p * v1;
    s2 += p * v2;
    s3 += p * v3;
    t0 += q * v0;
    t1 += q * v1;
    t2 += q * v2;
    t3 += q * v3;
  }
  out[place] = s0;
  out[place + 1] = s1;
  out[place + 2] = s2;
  out[place + 3] = s3;
  out[place + outer] = t0;
  out[place + outer + 1] = t1;
  out[place + outer + 2] = t2;
  out[place + outer + 3] = t3;
}

// Four sums, which the processor can add up at the same time
function dot(a, beginA, b, beginB, length) {
  let s0 = 0, s1 = 0, s2 = 0, s3 = 0; // prettier-ignore
  let k = 0;
  for (; k + 3 < length; k += 4) {
    s0 += a[beginA + k] * b[beginB + k];
    s1 += a[beginA + k + 1] * b[beginB + k + 1];
    s2 += a[beginA + k + 2] * b[beginB + k + 2];
    s3 += a[beginA + k + 3] * b[beginB + k + 3];
  }
  for (; k < length; k++) s0 += a[beginA + k] * b[beginB + k];
  return s0 + s1 + (s2 + s3);
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
  const result = new Float32Array(row.length);
  let highest = -Infinity;
  for (let i = 0; i < row.length; i++) if (row[i] > highest) highest = row[i];
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp((row[i] - highest) / temperature);
  const logarithm = Math.log(sum);
  for (let i = 0; i < row.length; i++) result[i] = (row[i] - highest) / temperature - logarithm;
  return result;
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
