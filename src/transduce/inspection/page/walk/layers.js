// The sub-layers of the Transformer. Each returns a record of every number on its way.
//
// Norm      {input, mean, deviation, normalised, gamma, beta, output}   mean is null for RMS norms, beta may
//           be null; mean and deviation have one number per row; deviation includes epsilon
// Attention {input, q, k, v, rotated, scores, scaled, mask, masked, weights, values, silenced, concat, output}
//           q, k, v (heads, n, d); rotated {q, k} or null; scores, scaled, masked, weights (heads, query, key);
//           mask (query, key) has 1 where attention is allowed; masked has −∞ elsewhere; values
//           (heads, query, d_v), zeros for silenced heads; concat (query, heads·d_v); output (query, d_model)
// FeedForward {input, inner, gate, up, active, output}   gate and up only if gated, inner only if not
// Sublayer  {name, kind, pre, input, norm, attention or feedForward, added, sum, output}   pre-norm: norm is
//           that of the input and output = sum; post-norm: norm is that of the sum
//
//   normalise(model, name, x)
//   residual(model, layer, part, x, compute, pre)      layer and part: of a name in PyTorch, such as
//                                                      "encoder.layers.0" and "self_attention";
//                                                      compute(input) → Attention or FeedForward
//   attend(q, k, v, mask, options, silenced)           the numbers from scores to concat
//   selfAttention(model, name, x, mask, options, silenced), memoryKeysValues(model, name, memory),
//   memoryAttention(model, name, x, {k, v}, mask, options, silenced), feedForward(model, name, x)
//   keyMask(rows, visible, causal), silencedHeads(model, where, layer, options)

function normalise(model, name, x) {
  const gamma = model.tensor(`${name}.weight`);
  const beta = model.tensor(`${name}.bias`);
  const isRms = model.config.normalization === "rms";
  const mean = isRms ? null : new Float32Array(x.rows);
  const deviation = new Float32Array(x.rows);
  const [normalised, output] = [Tensor.zeros(...x.shape), Tensor.zeros(...x.shape)];
  for (let i = 0; i < x.rows; i++) {
    const [row, unit, out] = [x.row(i), normalised.row(i), output.row(i)];
    let [middle, variance] = [0, 0];
    if (!isRms) for (const value of row) middle += value / row.length;
    for (const value of row) variance += (value - middle) ** 2 / row.length;
    const spread = Math.sqrt(variance + model.config.epsilon);
    for (let j = 0; j < row.length; j++) {
      const value = (row[j] - middle) / spread;
      unit[j] = value;
      out[j] = value * gamma.data[j] + (beta ? beta.data[j] : 0);
    }
    if (mean) mean[i] = middle;
    deviation[i] = spread;
  }
  return { input: x, mean, deviation, normalised, gamma, beta, output };
}

function residual(model, layer, part, x, compute, pre) {
  const kind = part === "feed_forward" ? "feedForward" : "attention";
  const around = `${layer}.around_${part}.norm`;
  const record = { name: `${layer}.${part}`, kind, pre, input: x };
  if (pre) record.norm = normalise(model, around, x);
  record[kind] = compute(pre ? record.norm.output : x);
  record.added = record[kind].output;
  record.sum = addTensors(x, record.added);
  if (!pre) record.norm = normalise(model, around, record.sum);
  record.output = pre ? record.sum : record.norm.output;
  return record;
}

// Which of the keys each of ``rows`` queries may attend to; visible: one truth value per key
function keyMask(rows, visible, causal) {
  const mask = Tensor.zeros(rows, visible.length);
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < visible.length; j++) if (visible[j] && (!causal || j <= i)) mask.row(i)[j] = 1;
  }
  return mask;
}

// Scaled dot-product attention (equation 1) of all heads; silenced: the heads whose values become zero
function attend(q, k, v, mask, options, silenced) {
  const scores = products(q, k);
  const scaled = options.scale ? scaleTensor(scores, 1 / Math.sqrt(q.columns)) : scores;
  const masked = new Tensor(scaled.shape, scaled.data.slice());
  const size = mask.data.length;
  for (let i = 0; i < masked.data.length; i++) if (!mask.data[i % size]) masked.data[i] = -Infinity;
  const weights = softmaxRows(masked);
  const values = mixValues(weights, v);
  silenced.forEach((silent, head) => silent && values.at(head).data.fill(0));
  return { scores, scaled, mask, masked, weights, values, silenced, concat: joinHeads(values) };
}

// where: "encoder", "decoder" or "memory"; options.silenced has entries such as "encoder.0.2" (layer, head)
function silencedHeads(model, where, layer, options) {
  return Array.from({ length: model.config.heads }, (_, head) =>
    options.silenced.has(`${where}.${layer}.${head}`),
  );
}

function selfAttention(model, name, x, mask, options, silenced) {
  const { heads, dK, dV, positions } = model.config;
  const widths = [heads * dK, heads * dK, heads * dV];
  const parts = splitColumns(model.linear(`${name}.query_key_value`, x), widths);
  const [q, k, v] = parts.map((part) => splitHeads(part, heads));
  const isRotary = positions === "rotary" && options.positions;
  const places = Array.from({ length: x.rows }, (_, i) => i);
  const rotated = isRotary ? { q: rotateHeads(q, places), k: rotateHeads(k, places) } : null;
  const attended = attend(rotated ? rotated.q : q, rotated ? rotated.k : k, v, mask, options, silenced);
  const output = model.linear(`${name}.output`, attended.concat);
  return { input: x, q, k, v, rotated, ...attended, output };
}

// Keys and values of the encoder's output, (heads, source, d) each
function memoryKeysValues(model, name, memory) {
  const { heads, dK, dV } = model.config;
  const product = model.linear(`${name}.key_value`, memory);
  const [k, v] = splitColumns(product, [heads * dK, heads * dV]);
  return { k: splitHeads(k, heads), v: splitHeads(v, heads) };
}

function memoryAttention(model, name, x, { k, v }, mask, options, silenced) {
  const q = splitHeads(model.linear(`${name}.query`, x), model.config.heads);
  const attended = attend(q, k, v, mask, options, silenced);
  const output = model.linear(`${name}.output`, attended.concat);
  return { input: x, q, k, v, rotated: null, ...attended, output };
}

function feedForward(model, name, x) {
  const { activation, dFf } = model.config;
  const inner = model.linear(`${name}.inner`, x);
  const active = Tensor.zeros(x.rows, dFf);
  if (Object.hasOwn(GATES, activation)) {
    const [gate, up] = splitColumns(inner, [dFf, dFf]);
    for (let i = 0; i < active.data.length; i++) active.data[i] = GATES[activation](gate.data[i]) * up.data[i];
    return { input: x, inner: null, gate, up, active, output: model.linear(`${name}.outer`, active) };
  }
  for (let i = 0; i < active.data.length; i++) active.data[i] = ACTIVATIONS[activation](inner.data[i]);
  return { input: x, inner, gate: null, up: null, active, output: model.linear(`${name}.outer`, active) };
}
