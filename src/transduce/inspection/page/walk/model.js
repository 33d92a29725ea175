// The forward pass of the encoder-decoder, with a record of every number on its way.
//
//   forward(model, sourceIds, inputIds, options)   inputIds: what the decoder reads, from bos on →
//     {source, encoder, encoderNorm, memory, memoryMask, target, decoder, decoderNorm, states, columns,
//      logits, logProbabilities}
//   encode(model, sourceIds, options)              the first five of them
//   decode(model, inputIds, encoded, options)      the others
//   logitLens(model, record, layer)                logits (target, columns) after that decoder layer
//   mostLikely(model, logitsRow, count, temperature, share)   [{id, logit, probability}], most likely first;
//     share: the probability of all columns together, `model.stored.shares[position]` of a stored sentence
//   walkOptions(changes)                           all options, with these changes
//
// source, target: {ids, rows, scale, scaled, positions, sum, norm, x}   rows of the embedding, (n, d_model);
//   × scale; positions or null; their sum; Norm or null; x, which the first layer reads
// encoder: per layer {selfAttention, feedForward}; decoder: per layer {selfAttention, memoryAttention,
//   feedForward}; each a Sublayer of layers.js. encoderNorm, decoderNorm: Norm or null
// memory (source, d_model): the encoder's output; states (target, d_model): the decoder's
// logits and logProbabilities (target, columns); columns: the token of each column, null if column = token.
//   logProbabilities are those of options.temperature; where columns are given, of all tokens
//   together at temperature 1 (the others' share is stored)
//
// Options: positions (false: without), scale (false: without ÷ √d_k), mask (false: the decoder sees its
// future), silenced (a Set of "encoder.0.2", "decoder.0.2", "memory.0.2": layer, head), hidden (a Set of
// source positions that nothing may attend to), temperature.
//
// A model that does not compute (WalkModel.computes) has the products of one sentence and its target:
// forward must be called with these, and only with the default options, else it throws a RangeError; the
// temperature may differ. It also throws one if there are more tokens than learned positions
// (config.maxLength; null: unlimited).

const DEFAULT_OPTIONS = {
  positions: true,
  scale: true,
  mask: true,
  silenced: new Set(),
  hidden: new Set(),
  temperature: 1,
};

const walkOptions = (changes = {}) => ({ ...DEFAULT_OPTIONS, ...changes });

// Without its weights, the page cannot tell what a change would lead to.
function checkedOptions(model, changes) {
  const options = walkOptions(changes);
  const { positions, scale, mask, silenced, hidden } = options;
  if (!model.computes && !(positions && scale && mask && !silenced.size && !hidden.size)) {
    throw new RangeError("the page holds the numbers of the unchanged model only");
  }
  return options;
}

function forward(model, sourceIds, inputIds, options = {}) {
  const encoded = encode(model, sourceIds, options);
  return { ...encoded, ...decode(model, inputIds, encoded, options) };
}

function embed(model, side, ids, start, options) {
  const { scaleEmbeddings, dModel, embeddingNorm } = model.config;
  const rows = model.embedded(`${side}_embedding`, ids);
  const scale = scaleEmbeddings ? Math.sqrt(dModel) : 1;
  const scaled = scaleTensor(rows, scale);
  const positions = options.positions ? positionRows(model, side, start, ids.length) : null;
  const sum = positions ? addTensors(scaled, positions) : scaled;
  const norm = embeddingNorm ? normalise(model, `${side}_norm`, sum) : null;
  return { ids, rows, scale, scaled, positions, sum, norm, x: norm ? norm.output : sum };
}

function encode(model, sourceIds, changes = {}) {
  const options = checkedOptions(model, changes);
  const { config, vocabulary } = model;
  const source = embed(model, "source", sourceIds, 0, options);
  const memoryMask = sourceIds.map(
    (id, i) => !(config.maskPadding && id === vocabulary.pad) && !options.hidden.has(i),
  );
  const mask = keyMask(sourceIds.length, memoryMask, false);
  const pre = (config.encoderNorm ?? config.norm) === "pre";
  const encoder = [];
  let x = source.x;
  for (let number = 0; number < config.encoderLayers; number++) {
    const layer = `encoder.layers.${number}`;
    const silenced = silencedHeads(model, "encoder", number, options);
    const attention = (input) =>
      selfAttention(model, `${layer}.self_attention`, input, mask, options, silenced);
    const first = residual(model, layer, "self_attention", x, attention, pre);
    const second = residual(model, layer, "feed_forward", first.output, forwardOf(model, layer), pre);
    encoder.push({ selfAttention: first, feedForward: second });
    x = second.output;
  }
  const encoderNorm = config.finalNorm ? normalise(model, "encoder.final_norm", x) : null;
  return { source, encoder, encoderNorm, memory: encoderNorm ? encoderNorm.output : x, memoryMask };
}

const forwardOf = (model, layer) => (input) => feedForward(model, `${layer}.feed_forward`, input);

function decode(model, inputIds, encoded, changes = {}) {
  const options = checkedOptions(model, changes);
  const { config, vocabulary } = model;
  const target = embed(model, "target", inputIds, 0, options);
  const { pad, bos } = vocabulary;
  const visible = inputIds.map((id, i) => id !== pad || (i === 0 && bos === pad));
  const selfMask = keyMask(inputIds.length, visible, options.mask);
  const memoryMask = keyMask(inputIds.length, encoded.memoryMask, false);
  const pre = config.norm === "pre";
  const decoder = [];
  let x = target.x;
  for (let number = 0; number < config.decoderLayers; number++) {
    const layer = `decoder.layers.${number}`;
    const [self, across] = [`${layer}.self_attention`, `${layer}.memory_attention`];
    const selfSilenced = silencedHeads(model, "decoder", number, options);
    const memorySilenced = silencedHeads(model, "memory", number, options);
    const first = residual(
      model,
      layer,
      "self_attention",
      x,
      (input) => selfAttention(model, self, input, selfMask, options, selfSilenced),
      pre,
    );
    const keys = memoryKeysValues(model, across, encoded.memory);
    const second = residual(
      model,
      layer,
      "memory_attention",
      first.output,
      (input) => memoryAttention(model, across, input, keys, memoryMask, options, memorySilenced),
      pre,
    );
    const third = residual(model, layer, "feed_forward", second.output, forwardOf(model, layer), pre);
    decoder.push({ selfAttention: first, memoryAttention: second, feedForward: third });
    x = third.output;
  }
  const decoderNorm = config.finalNorm ? normalise(model, "decoder.final_norm", x) : null;
  const states = decoderNorm ? decoderNorm.output : x;
  const logits = model.logits(states);
  const logProbabilities = logProbabilitiesOf(model, logits, options.temperature);
  return { target, decoder, decoderNorm, states, columns: model.columns, logits, logProbabilities };
}

function logProbabilitiesOf(model, logits, temperature) {
  const result = Tensor.zeros(...logits.shape);
  for (let i = 0; i < logits.rows; i++) {
    const row = logSoftmaxRow(logits.row(i), temperature);
    // The share of the tokens that have no column: known at temperature 1 only
    const share = model.columns && temperature === 1 ? model.stored.shares[i] : 1;
    result.row(i).set(share === 1 ? row : row.map((value) => value + Math.log(share)));
  }
  return result;
}

// What the output layer would say if the decoder ended after this layer (nostalgebraist, 2020)
function logitLens(model, record, layer) {
  if (!model.computes) return model.tensor(`lens.${layer}`);
  const x = record.decoder[layer].feedForward.output;
  return model.logits(model.config.finalNorm ? normalise(model, "decoder.final_norm", x).output : x);
}

function mostLikely(model, logits, count = 10, temperature = 1, share = 1) {
  const logProbabilities = logSoftmaxRow(logits, temperature);
  const order = Array.from(logits.keys());
  order.sort((a, b) => logits[b] - logits[a]);
  return order.slice(0, count).map((column) => ({
    id: model.columns ? model.columns[column] : column,
    logit: logits[column],
    probability: share * Math.exp(logProbabilities[column]),
  }));
}
