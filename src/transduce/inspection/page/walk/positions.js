// Positions: what is added to the embeddings, and the rotation of queries and keys.
//
//   positionRows(model, side, start, count)   (count, d_model) to add; null if nothing is added;
//                                             side: "source" or "target"
//   rotateHeads(x, positions)                 x (heads, n, d_k), the position of each of n → the same shape

const POSITION_BASE = 10000;

function sinusoidRow(position, { dModel, sineLayout, sineSpacing, firstPosition }, row) {
  const divisor = sineSpacing === "paper" ? dModel : dModel - 2;
  const half = dModel / 2;
  for (let even = 0; even < dModel; even += 2) {
    const angle = (firstPosition + position) * Math.exp((even * -Math.log(POSITION_BASE)) / divisor);
    const [sine, cosine] = sineLayout === "halves" ? [even / 2, half + even / 2] : [even, even + 1];
    row[sine] = Math.sin(angle);
    if (cosine < dModel) row[cosine] = Math.cos(angle);
  }
}

function positionRows(model, side, start, count) {
  const { positions, dModel } = model.config;
  if (positions !== "sinusoidal" && positions !== "learned") return null;
  const rows = Tensor.zeros(count, dModel);
  const weight = positions === "learned" ? model.tensor(`${side}_positions.weight`) : null;
  if (weight && start + count > weight.rows) {
    throw new RangeError(`the sequence has ${start + count} positions, the model ${weight.rows}`);
  }
  for (let i = 0; i < count; i++) {
    if (weight) rows.row(i).set(weight.row(start + i));
    else sinusoidRow(start + i, model.config, rows.row(i));
  }
  return rows;
}

function rotateHeads(x, positions) {
  const [heads, n, width] = x.shape;
  const result = new Tensor(x.shape, x.data.slice());
  const rotated = width - (width % 2);
  for (let i = 0; i < n; i++) {
    for (let even = 0; even < rotated; even += 2) {
      const angle = positions[i] * Math.exp((even * -Math.log(POSITION_BASE)) / rotated);
      const [cosine, sine] = [Math.fround(Math.cos(angle)), Math.fround(Math.sin(angle))];
      for (let h = 0; h < heads; h++) {
        const place = (h * n + i) * width + even;
        const [a, b] = [x.data[place], x.data[place + 1]];
        result.data[place] = a * cosine - b * sine;
        result.data[place + 1] = a * sine + b * cosine;
      }
    }
  }
  return result;
}
