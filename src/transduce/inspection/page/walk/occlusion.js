// What a translation owes to each source token, and the page's check of itself.
//
//   occlusion(model, sourceIds, inputIds, targetIds, {how, only, options}) →
//     {whole, without, positions}   whole (target): the probability of each target token; without
//     (positions, target): the same without the source token at each of the positions
//     how: "hide" (default): nothing may attend to the token, all others keep their places; "delete": the
//     source is one token shorter. only: the source positions to try, all if not given
//   targetProbabilities(record, targetIds)   Float32Array, one per target token
//   checkReference(model, data) → {difference, relative, agree, positions, limit, ok}
//     the largest difference between the page's logits of the data's sentence and PyTorch's, the same divided
//     by the largest logit, at how many of the positions both have the same best token, and whether
//     the difference is mere rounding: relative ≤ limit

function targetProbabilities({ logProbabilities, columns }, targetIds) {
  return Float32Array.from(targetIds, (id, i) => {
    const column = columns ? columns.indexOf(id) : id;
    return Math.exp(logProbabilities.row(i)[column]);
  });
}

function occlusion(model, sourceIds, inputIds, targetIds, { how = "hide", only = null, options = {} } = {}) {
  const probabilities = (ids, changes) =>
    targetProbabilities(forward(model, ids, inputIds, { ...options, ...changes }), targetIds);
  const positions = only ?? sourceIds.map((_, i) => i);
  const without = Tensor.zeros(positions.length, targetIds.length);
  positions.forEach((position, i) => {
    const rest = sourceIds.filter((_, place) => place !== position);
    const row =
      how === "delete"
        ? probabilities(rest, {})
        : probabilities(sourceIds, { hidden: new Set([...(options.hidden ?? []), position]) });
    without.row(i).set(row);
  });
  return { whole: probabilities(sourceIds, {}), without, positions };
}

const ROUNDING = 1e-4; // of the largest logit, where the page computes
const STORED_ROUNDING = 2e-3; // where it holds numbers of 16 bits

function checkReference(model, data) {
  const { sourceIds, inputIds } = data.sentence;
  const { columns } = data.reference;
  const wanted = unpackFloats(data.reference.logits);
  const { logits } = forward(model, sourceIds, inputIds);
  let [difference, largest, agree] = [0, 0, 0];
  for (let i = 0; i < wanted.rows; i++) {
    const [theirs, row] = [wanted.row(i), logits.row(i)];
    const ours = columns && model.computes ? Float32Array.from(columns, (column) => row[column]) : row;
    theirs.forEach((value, j) => {
      if (!Number.isFinite(value)) return;
      largest = Math.max(largest, Math.abs(value));
      // A number that is not one must not pass for a small difference.
      const distance = Math.abs(value - ours[j]);
      difference = Number.isNaN(distance) ? Infinity : Math.max(difference, distance);
    });
    if (bestPlace(theirs) === bestPlace(ours)) agree += 1;
  }
  const limit = model.computes ? ROUNDING : STORED_ROUNDING;
  const relative = largest ? difference / largest : difference;
  return { difference, relative, agree, positions: wanted.rows, limit, ok: relative <= limit };
}

function bestPlace(row) {
  let best = 0;
  for (let i = 1; i < row.length; i++) if (row[i] > row[best]) best = i;
  return best;
}
