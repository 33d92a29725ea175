// Decoding one position at a time, with the keys and values of the past in a cache.
//
//   startDecoding(model, encoded)               the state of one empty hypothesis; encoded: from `encode`
//   stepDecoding(model, tokens, state, options) reads one token per hypothesis → logits (hypotheses, vocabulary)
//   selectHypotheses(state, rows)               keep these hypotheses, in this order; some may be taken twice
//
// State: {memory, memoryMask, pasts, length}   memory per layer {k, v}; pasts per hypothesis and layer
// {keys, values}, lists of one Float32Array (heads·d) per position, which hypotheses share.

function startDecoding(model, encoded) {
  const layers = Array.from({ length: model.config.decoderLayers }, (_, number) => number);
  return {
    memory: layers.map((number) =>
      memoryKeysValues(model, `decoder.layers.${number}.memory_attention`, encoded.memory),
    ),
    memoryMask: encoded.memoryMask,
    pasts: [layers.map(() => ({ keys: [], values: [] }))],
    length: 0,
  };
}

function selectHypotheses(state, rows) {
  state.pasts = rows.map((row) =>
    state.pasts[row].map(({ keys, values }) => ({ keys: keys.slice(), values: values.slice() })),
  );
}

function stepDecoding(model, tokens, state, changes = {}) {
  const options = walkOptions(changes);
  const { config } = model;
  let { x } = embedStep(model, tokens, state.length, options);
  const pre = config.norm === "pre";
  const memoryMask = keyMask(tokens.length, state.memoryMask, false);
  for (let number = 0; number < config.decoderLayers; number++) {
    const layer = `decoder.layers.${number}`;
    const across = `${layer}.memory_attention`;
    const selfSilenced = silencedHeads(model, "decoder", number, options);
    const memorySilenced = silencedHeads(model, "memory", number, options);
    const pasts = state.pasts.map((layers) => layers[number]);
    const self = (input) =>
      continueAttention(model, `${layer}.self_attention`, input, pasts, state.length, options, selfSilenced);
    const memory = (input) =>
      memoryAttention(model, across, input, state.memory[number], memoryMask, options, memorySilenced);
    x = residual(model, layer, "self_attention", x, self, pre).output;
    x = residual(model, layer, "memory_attention", x, memory, pre).output;
    x = residual(model, layer, "feed_forward", x, forwardOf(model, layer), pre).output;
  }
  state.length += 1;
  return model.logits(config.finalNorm ? normalise(model, "decoder.final_norm", x).output : x);
}

// All tokens stand at the same position.
function embedStep(model, tokens, position, options) {
  const one = embed(model, "target", tokens, 0, { ...options, positions: false });
  const positions = options.positions ? positionRows(model, "target", position, 1) : null;
  if (!positions) return one;
  const sum = Tensor.zeros(...one.scaled.shape);
  for (let i = 0; i < sum.rows; i++) {
    const [out, row] = [sum.row(i), one.scaled.row(i)];
    for (let j = 0; j < out.length; j++) out[j] = row[j] + positions.data[j];
  }
  return { x: model.config.embeddingNorm ? normalise(model, "target_norm", sum).output : sum };
}

function continueAttention(model, name, x, pasts, position, options, silenced) {
  const { heads, dK, dV, positions } = model.config;
  const widths = [heads * dK, heads * dK, heads * dV];
  let [q, k, v] = splitColumns(model.linear(`${name}.query_key_value`, x), widths);
  if (positions === "rotary" && options.positions) {
    const places = new Array(x.rows).fill(position);
    [q, k] = [q, k].map((part) => joinHeads(rotateHeads(splitHeads(part, heads), places)));
  }
  const concat = Tensor.zeros(x.rows, heads * dV);
  pasts.forEach((past, row) => {
    past.keys.push(k.row(row));
    past.values.push(v.row(row));
    const query = splitHeads(new Tensor([1, heads * dK], q.row(row)), heads);
    const [keys, values] = [past.keys, past.values].map((rows) => splitHeads(stackRows(rows), heads));
    const mask = keyMask(1, new Array(past.keys.length).fill(true), false);
    concat.row(row).set(attend(query, keys, values, mask, options, silenced).concat.data);
  });
  return { output: model.linear(`${name}.output`, concat) };
}

function stackRows(rows) {
  const result = Tensor.zeros(rows.length, rows[0].length);
  rows.forEach((row, i) => result.row(i).set(row));
  return result;
}
