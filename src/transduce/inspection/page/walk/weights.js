// The model of the page: its configuration and its tensors, by the names that PyTorch gives them.
//
//   const model = new WalkModel(data)       data: what `walk_data` returns in Python
//   model.config, model.vocabulary          data.config and data.vocabulary
//   model.computes                          false: products of one sentence are stored in place of the weights
//   model.tensor(name)                      a parameter; null if the model (or the page) has none of that name
//   model.linear(name, x)                   the linear layer of that name
//   model.embedded(name, ids)               rows of an embedding, unscaled
//   model.logits(states)                    (n, d_model) → (n, columns)
//   model.columns                           the tokens of the logits' columns; null if column = token
//   projectionOf(model, sublayer, part, head)   weights of one head: {weight (d, d_model), bias (d) or null}

class WalkModel {
  constructor(data) {
    this.config = data.config;
    this.vocabulary = data.vocabulary;
    this.computes = data.computes;
    this.columns = data.computes ? null : data.stored.columns;
    this.stored = data.computes ? null : data.stored;
    this.tensors = new PackedTensors(data.tensors);
  }

  tensor(name) {
    return this.tensors.get(name);
  }

  linear(name, x) {
    if (!this.computes) return this.tensor(name);
    return linear(x, this.tensor(`${name}.weight`), this.tensor(`${name}.bias`));
  }

  embedded(name, ids) {
    if (!this.computes) return this.storedRows(name, ids);
    const weight = this.tensor(`${name}.weight`);
    const rows = Tensor.zeros(ids.length, weight.columns);
    ids.forEach((id, i) => rows.row(i).set(weight.row(id)));
    return rows;
  }

  storedRows(name, ids) {
    const rows = this.tensor(name);
    if (rows.rows !== ids.length) throw new RangeError("the page holds the numbers of one sentence only");
    return rows;
  }

  logits(states) {
    return this.linear("output", states);
  }
}

// The part "q", "k" or "v" of a sub-layer such as "encoder.layers.0.self_attention".
function projectionOf(model, sublayer, part, head) {
  const { heads, dK, dV } = model.config;
  const place = { q: 0, k: 1, v: 2 }[part];
  const isMemory = sublayer.endsWith("memory_attention");
  const name = !isMemory ? "query_key_value" : part === "q" ? "query" : "key_value";
  // Where the rows of this part begin in the matrix: after those of the parts before it
  const before = isMemory ? (part === "v" ? heads * dK : 0) : place * heads * dK;
  const width = part === "v" ? dV : dK;
  const weight = model.tensor(`${sublayer}.${name}.weight`);
  if (!weight) return null;
  const bias = model.tensor(`${sublayer}.${name}.bias`);
  const begin = before + head * width;
  const rows = weight.data.subarray(begin * weight.columns, (begin + width) * weight.columns);
  return {
    weight: new Tensor([width, weight.columns], rows),
    bias: bias && new Tensor([width], bias.data.subarray(begin, begin + width)),
  };
}
