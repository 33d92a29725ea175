/* The loops of training, forward and backward; kernels.h includes this file. */

/* Dropout. Whether an element is kept depends on a seed and on its index alone (modulo 2^32), so that the backward pass computes the
 * same again instead of storing it, and every instruction set drops the same. */

INLINE vi shifted(vi x, int bits) { return (vi)((vu)x >> bits); }

/* Modulo 2^32, which only unsigned numbers may exceed */
INLINE vi plus(vi x, uint32_t y) { return (vi)((vu)x + (vu)splat_int((int32_t)y)); }
INLINE vi times(vi x, uint32_t y) { return (vi)((vu)x * (vu)splat_int((int32_t)y)); }

INLINE vi scrambled(vi x) /* every bit of the result depends on every bit of x (the last step of MurmurHash3) */
{
    x = times(x ^ shifted(x, 16), 0x85ebca6bu);
    x = times(x ^ shifted(x, 13), 0xc2b2ae35u);
    return x ^ shifted(x, 16);
}

/* All bits of a lane, or none: whether the LANES elements from `index` on are kept */
INLINE vi kept(const Dropout *dropout, uint32_t index)
{
    int32_t lanes[LANES];
    for (int lane = 0; lane < LANES; lane++) lanes[lane] = lane;
    vi x = plus(load_int(lanes), index);
    x = scrambled(x ^ splat_int((int32_t)dropout->seed));
    x = scrambled(plus(x, (uint32_t)(dropout->seed >> 32)));
    return shifted(x, 1) >= splat_int((int32_t)dropout->dropped);
}

INLINE vf drop(const Dropout *dropout, vf x, uint32_t index)
{
    if (!dropout->dropped) return x;
    return (vf)((vi)(x * splat(dropout->scale)) & kept(dropout, index));
}

static void residual(const Residual *r, long begin, long end)
{
    const long width = r->width;
    for (long row = begin; row < end; row++) {
        const float *x = r->x + row * width, *update = r->update + row * width;
        float *sum = r->sum + row * width;
        vf total = splat(0.0f), squares = splat(0.0f);
        for (long i = 0; i < width; i += LANES) {
            const vf both = load(x + i) + drop(&r->dropout, load(update + i), (uint32_t)(row * width + i));
            store(sum + i, both);
            total = total + both;
        }
        if (!r->norm.weight) continue;
        const vf mean = splat(sum_lanes(total) / width);
        for (long i = 0; i < width; i += LANES) {
            const vf centred = load(sum + i) - mean;
            squares = centred * centred + squares;
        }
        const vf scale = splat(1 / sqrtf(sum_lanes(squares) / width + r->epsilon));
        for (long i = 0; i < width; i += LANES)
            store(r->y + row * width + i, ((load(sum + i) - mean) * scale) * load(r->norm.weight + i) + load(r->norm.bias + i));
        r->statistics[2 * row] = highest_lane(mean), r->statistics[2 * row + 1] = highest_lane(scale);
    }
}

/* Sums over rows of the gradients of weight and bias are added to d_weight and d_bias. */
static void residual_backward(const Residual *r, long begin, long end, float *d_weight, float *d_bias)
{
    const long width = r->width;
    for (long row = begin; row < end; row++) {
        const float *d_y = r->d_y + row * width, *sum = r->sum + row * width, *weight = r->norm.weight;
        float *d_x = r->d_x + row * width, *d_update = r->d_update + row * width;
        if (!weight) {
            for (long i = 0; i < width; i += LANES)
                store(d_update + i, drop(&r->dropout, load(d_y + i), (uint32_t)(row * width + i)));
            continue;
        }
        const vf mean = splat(r->statistics[2 * row]), scale = splat(r->statistics[2 * row + 1]);
        vf total = splat(0.0f), product = splat(0.0f);
        for (long i = 0; i < width; i += LANES) {
            const vf normed = (load(sum + i) - mean) * scale, d = load(d_y + i), weighted = d * load(weight + i);
            total = total + weighted;
            product = weighted * normed + product;
            store(d_weight + i, d * normed + load(d_weight + i));
            store(d_bias + i, d + load(d_bias + i));
        }
        const vf mean_d = splat(sum_lanes(total) / width), mean_product = splat(sum_lanes(product) / width);
        for (long i = 0; i < width; i += LANES) {
            const vf normed = (load(sum + i) - mean) * scale;
            const vf d = scale * (load(d_y + i) * load(weight + i) - mean_d - normed * mean_product);
            store(d_x + i, d);
            if (r->dropout.dropped) store(d_update + i, drop(&r->dropout, d, (uint32_t)(row * width + i)));
        }
    }
}

/* The gradient of a ReLU, in place, from its results; sums over rows are added to d_bias. */
static void relu_backward(float *d, const float *active, long rows, long width, float *d_bias)
{
    for (long row = 0; row < rows; row++, d += width, active += width)
        for (long i = 0; i < width; i += LANES) {
            const vf kept = (vf)((vi)load(d + i) & (vi)(load(active + i) > splat(0.0f)));
            store(d + i, kept);
            store(d_bias + i, load(d_bias + i) + kept);
        }
}

/* Cross-entropy: logits (vocabulary) become softmax minus target, times their sum of exponentials. `numbers` receives the
 * logarithm of that sum before the highest logit was subtracted, the label's logit, the highest one, and the sum. */
static void cross_entropy_row(float *x, long vocabulary, long label, float smoothing, float *numbers)
{
    const long whole = vocabulary / LANES * LANES;
    float rest[LANES];
    for (long i = 0; i < LANES; i++) rest[i] = whole + i < vocabulary ? x[whole + i] : -INFINITY;
    vf maximum = load(rest);
    for (long i = 0; i < whole; i += LANES) maximum = larger(load(x + i), maximum);
    const float highest = highest_lane(maximum), right = x[label];
    vf sum = splat(0.0f);
    for (long i = 0; i < whole; i += LANES) {
        const vf e = exp_negative(load(x + i) - splat(highest));
        store(x + i, e);
        sum = sum + e;
    }
    const vf e = exp_negative(load(rest) - splat(highest)); /* about 0 beyond the vocabulary */
    store(rest, e);
    memcpy(x + whole, rest, (vocabulary - whole) * sizeof *x);
    float total = sum_lanes(sum);
    for (long i = whole; i < vocabulary; i++) total += x[i];
    x[label] += (smoothing - 1) * total;
    numbers[0] = highest + logf(total), numbers[1] = right, numbers[2] = highest, numbers[3] = total;
}

/* Attention of one head of one example, and its gradients: everything is a product of a few rows with columns (`score`),
 * or a mixture of rows (`mix`). `scratch` has room for the columns of keys or values, and backward for the gradients of the scores. */

static void mix_rows(long rows, const float *weights, long row_step, long step, const Values values, long width, float *out,
    long out_stride)
{
    for (; rows >= 4; rows -= 4, weights += 4 * row_step, out += 4 * out_stride)
        mix_all(4, weights, row_step, step, values, 0, width, out, out_stride);
    switch (rows) {
    case 1: mix_all(1, weights, row_step, step, values, 0, width, out, out_stride); break;
    case 2: mix_all(2, weights, row_step, step, values, 0, width, out, out_stride); break;
    case 3: mix_all(3, weights, row_step, step, values, 0, width, out, out_stride); break;
    }
}

static void score_rows(long rows, const float *x, long x_stride, const float *columns, long depth, long stride, float scale,
    float *out)
{
    for (; rows >= 4; rows -= 4, x += 4 * x_stride, out += 4 * stride)
        score(4, x, x_stride, columns, stride, depth, stride, scale, out, stride);
    switch (rows) {
    case 1: score(1, x, x_stride, columns, stride, depth, stride, scale, out, stride); break;
    case 2: score(2, x, x_stride, columns, stride, depth, stride, scale, out, stride); break;
    case 3: score(3, x, x_stride, columns, stride, depth, stride, scale, out, stride); break;
    }
}

static void zero_rows(float *rows, long begin, long end, long width, long stride)
{
    for (long row = begin; row < end; row++) memset(rows + row * stride, 0, width * sizeof *rows);
}

static void attend_example(const FullAttention *a, long example, long head, float *scratch)
{
    const long keys = a->key_lengths[example], queries = keys ? a->query_lengths[example] : 0, stride = a->weight_stride;
    const long first_query = example * a->queries, first_key = example * a->keys;
    const float *q = a->query + first_query * a->query_stride + head * a->d_k;
    const float *k = a->key + first_key * a->key_stride + head * a->d_k;
    float *weights = a->weights + (example * a->heads + head) * a->queries * stride;
    float *out = a->out + first_query * a->out_stride + head * a->d_v;
    transpose(k, keys, a->d_k, a->key_stride, scratch, stride);
    score_rows(queries, q, a->query_stride, scratch, a->d_k, stride, a->scale, weights);
    for (long n = 0; n < queries; n++) {
        const long length = a->is_causal && n + 1 < keys ? n + 1 : keys;
        softmax(weights + n * stride, length, stride);
        memset(weights + n * stride + length, 0, (stride - length) * sizeof *weights);
    }
    const Values values = {NULL, a->value + first_key * a->value_stride + head * a->d_v, a->value_stride, keys};
    mix_rows(queries, weights, stride, 1, values, a->d_v, out, a->out_stride);
    zero_rows(out, queries, a->queries, a->d_v, a->out_stride);
}

static void attend_example_backward(const FullAttention *a, long example, long head, float *scratch)
{
    const long keys = a->key_lengths[example], queries = keys ? a->query_lengths[example] : 0, stride = a->weight_stride;
    const long first_query = example * a->queries, first_key = example * a->keys;
    float *columns = scratch, *d_scores = columns + (a->d_v > a->d_k ? a->d_v : a->d_k) * stride;
    const float *weights = a->weights + (example * a->heads + head) * a->queries * stride;
    const float *q = a->query + first_query * a->query_stride + head * a->d_k;
    const float *k = a->key + first_key * a->key_stride + head * a->d_k;
    const float *v = a->value + first_key * a->value_stride + head * a->d_v;
    const float *d_out = a->d_out + first_query * a->out_stride + head * a->d_v;
    float *d_query = a->d_query + first_query * a->query_stride + head * a->d_k;
    float *d_key = a->d_key + first_key * a->key_stride + head * a->d_k;
    float *d_value = a->d_value + first_key * a->value_stride + head * a->d_v;

    mix_rows(keys, weights, 1, stride, (Values){NULL, d_out, a->out_stride, queries}, a->d_v, d_value, a->value_stride);
    transpose(v, keys, a->d_v, a->value_stride, columns, stride);
    score_rows(queries, d_out, a->out_stride, columns, a->d_v, stride, 1.0f, d_scores);
    for (long n = 0; n < queries; n++) {
        const float *weight = weights + n * stride;
        float *d = d_scores + n * stride;
        vf sum = splat(0.0f);
        for (long l = 0; l < stride; l += LANES) sum = load(weight + l) * load(d + l) + sum;
        const vf mean = splat(sum_lanes(sum));
        for (long l = 0; l < stride; l += LANES) store(d + l, load(weight + l) * (load(d + l) - mean) * splat(a->scale));
    }
    mix_rows(queries, d_scores, stride, 1, (Values){NULL, k, a->key_stride, keys}, a->d_k, d_query, a->query_stride);
    mix_rows(keys, d_scores, 1, stride, (Values){NULL, q, a->query_stride, queries}, a->d_k, d_key, a->key_stride);
    zero_rows(d_query, queries, a->queries, a->d_k, a->query_stride);
    zero_rows(d_key, keys, a->keys, a->d_k, a->key_stride);
    zero_rows(d_value, keys, a->keys, a->d_v, a->value_stride);
}
