/* The inner loops. Each file isa_*.c includes this one, compiled for one instruction set.
 *
 * Every function is tested against readable Python code that computes the same. The result of a row does not depend on
 * the other rows: sums are always added in the same order.
 */
#include "engine.h"
#include "transpose.h"
#include "vector.h"

#define INLINE static inline __attribute__((always_inline))
#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

/* Linear layers */

static void quantise(const float *x, long rows, long width, long stride, uint8_t *bytes, float *scales)
{
    for (long row = 0; row < rows; row++, x += stride, bytes += width) {
        vf maximum = splat(0.0f), total = splat(0.0f);
        for (long i = 0; i < width; i += LANES) {
            const vf part = absolute(load(x + i));
            maximum = larger(part, maximum);
            total = total + (part - part); /* 0, or NaN if an input is NaN or infinite */
        }
        const float largest = highest_lane(maximum);
        if (sum_lanes(total) != 0.0f) { /* products with NaN are NaN */
            memset(bytes, INPUT_OFFSET, width);
            scales[row] = NAN;
            continue;
        }
        const float steps_per_unit = largest > 0 ? INPUT_LIMIT / largest : 0.0f;
        for (long i = 0; i < width; i++) { /* rounds to the nearest number, as `nearest` does */
            const float shifted = x[i] * steps_per_unit + 12582912.0f;
            int32_t bits;
            memcpy(&bits, &shifted, sizeof bits);
            bytes[i] = (uint8_t)(bits + INPUT_OFFSET);
        }
        scales[row] = largest / INPUT_LIMIT;
    }
}

static void to_bfloat16(const float *x, long rows, long width, long stride, uint16_t *halves)
{
    for (long row = 0; row < rows; row++, x += stride, halves += width)
        for (long i = 0; i < width; i++) { /* rounds to the nearest number, to an even one if there are two */
            uint32_t bits;
            memcpy(&bits, x + i, sizeof bits);
            const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            halves[i] = (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded); /* NaN stays NaN */
        }
}

/* Writes some rows of y in one panel, from sums in float32. */
INLINE void finish_row(const Product *p, long row, long column, int v, vf y)
{
    if (p->activation == RELU) y = larger(splat(0.0f), y); /* with the arguments in this order, NaN stays NaN */
    store(p->y + row * padded(p->linear->d_out) + column + v * LANES, y);
}

INLINE void finish_tile(const int rows, const int panels, const Product *p, long row, long column, vf sums[6][VECTORS * 4])
{
#pragma GCC unroll 16
    for (int v = 0; v < panels * VECTORS; v++) {
        const vf bias = load(p->linear->bias + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) finish_row(p, row + r, column, v, sums[r][v] + bias);
    }
}

/* `rows` rows of y in `panels` panels; both are compile-time constants, so that all sums stay in registers */
INLINE void tile_int8(const int rows, const int panels, const Product *p, long row, long panel)
{
    const Linear *linear = p->linear;
    const long d_in = linear->d_in, column = panel * PANEL;
    const uint8_t *x = (const uint8_t *)p->x + row * d_in;
    const int8_t *weights = (const int8_t *)linear->weights + column * d_in;
    vi sums[6][VECTORS * 4];
#pragma GCC unroll 16
    for (int v = 0; v < panels * VECTORS; v++) {
        const vi offset = load_int(linear->offsets + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sums[r][v] = offset;
    }
    for (long i = 0; i < d_in; i += 4 * STEPS) {
        vi w[VECTORS * 4][STEPS];
#pragma GCC unroll 16
        for (int v = 0; v < panels * VECTORS; v++)
#pragma GCC unroll 2
            for (int s = 0; s < STEPS; s++)
                w[v][s] = load_int(
                    weights + (v / VECTORS) * PANEL * d_in + (i + 4 * s) * PANEL + (v % VECTORS) * 4 * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            vi inputs[STEPS];
#pragma GCC unroll 2
            for (int s = 0; s < STEPS; s++) {
                int32_t four;
                memcpy(&four, x + r * d_in + i + 4 * s, sizeof four);
                inputs[s] = splat_int(four);
            }
#pragma GCC unroll 16
            for (int v = 0; v < panels * VECTORS; v++) sums[r][v] = dot(sums[r][v], inputs, w[v]);
        }
    }
#pragma GCC unroll 16
    for (int v = 0; v < panels * VECTORS; v++) {
        const vf scale = load(linear->scales + column + v * LANES), bias = load(linear->bias + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            finish_row(p, row + r, column, v, to_float(sums[r][v]) * (scale * splat(p->scales[row + r])) + bias);
    }
}

INLINE void tile_bfloat16(const int rows, const int panels, const Product *p, long row, long panel)
{
    const Linear *linear = p->linear;
    const long d_in = linear->d_in, column = panel * PANEL;
    const uint16_t *x = (const uint16_t *)p->x + row * d_in, *weights = (const uint16_t *)linear->weights + column * d_in;
    vf sums[6][VECTORS * 4];
#pragma GCC unroll 16
    for (int v = 0; v < panels * VECTORS; v++)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sums[r][v] = splat(0.0f);
    for (long i = 0; i < d_in; i += 2) {
        vi w[VECTORS * 4];
#pragma GCC unroll 16
        for (int v = 0; v < panels * VECTORS; v++)
            w[v] = load_int(weights + (v / VECTORS) * PANEL * d_in + i * PANEL + (v % VECTORS) * 2 * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int32_t two;
            memcpy(&two, x + r * d_in + i, sizeof two);
            const vi inputs = splat_int(two);
#pragma GCC unroll 16
            for (int v = 0; v < panels * VECTORS; v++) sums[r][v] = dot_pairs(sums[r][v], inputs, w[v]);
        }
    }
    finish_tile(rows, panels, p, row, column, sums);
}

INLINE void tile_float32(const int rows, const int panels, const Product *p, long row, long panel)
{
    const Linear *linear = p->linear;
    const long d_in = linear->d_in, column = panel * PANEL;
    const float *x = (const float *)p->x + row * d_in, *weights = (const float *)linear->weights + column * d_in;
    vf sums[6][VECTORS * 4];
#pragma GCC unroll 16
    for (int v = 0; v < panels * VECTORS; v++)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sums[r][v] = splat(0.0f);
    for (long i = 0; i < d_in; i++) {
        vf w[VECTORS * 4];
#pragma GCC unroll 16
        for (int v = 0; v < panels * VECTORS; v++)
            w[v] = load(weights + (v / VECTORS) * PANEL * d_in + i * PANEL + (v % VECTORS) * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const vf input = splat(x[r * d_in + i]);
#pragma GCC unroll 16
            for (int v = 0; v < panels * VECTORS; v++) sums[r][v] = input * w[v] + sums[r][v];
        }
    }
    finish_tile(rows, panels, p, row, column, sums);
}

/* All rows from `begin` to `end` in some panels: several panels at once for one or two rows, whose few sums would
 * otherwise wait for one another. */
#define MULTIPLY(KIND, ROWS)                                                                                    \
    static void multiply_##KIND(const Product *p, long begin, long end, long first_panel, long last_panel)      \
    {                                                                                                           \
        const long rows = end - begin;                                                                          \
        long panel = first_panel;                                                                               \
        if (rows == 1)                                                                                          \
            for (; panel + PANELS_OF_ONE_ROW <= last_panel; panel += PANELS_OF_ONE_ROW)                         \
                tile_##KIND(1, PANELS_OF_ONE_ROW, p, begin, panel);                                             \
        if (rows == 2)                                                                                          \
            for (; panel + PANELS_OF_TWO_ROWS <= last_panel; panel += PANELS_OF_TWO_ROWS)                       \
                tile_##KIND(2, PANELS_OF_TWO_ROWS, p, begin, panel);                                            \
        for (; panel < last_panel; panel++) {                                                                   \
            long row = begin;                                                                                   \
            for (; row + ROWS <= end; row += ROWS) tile_##KIND(ROWS, 1, p, row, panel);                         \
            switch (end - row) {                                                                                \
            case 1: tile_##KIND(1, 1, p, row, panel); break;                                                    \
            case 2: tile_##KIND(2, 1, p, row, panel); break;                                                    \
            case 3: tile_##KIND(3, 1, p, row, panel); break;                                                    \
            case 4: tile_##KIND(4, 1, p, row, panel); break;                                                    \
            case 5: tile_##KIND(5, 1, p, row, panel); break;                                                    \
            }                                                                                                   \
        }                                                                                                       \
    }

MULTIPLY(int8, ROWS_INT8)
MULTIPLY(float32, ROWS_FLOAT)
MULTIPLY(bfloat16, ROWS_INT8)

static void multiply(const Product *p, long begin, long end, long first_panel, long last_panel)
{
    enum { BLOCK = 96 }; /* rows whose inputs stay in the cache while the weights pass by */
    for (long row = begin; row < end; row += BLOCK) {
        const long last = row + BLOCK < end ? row + BLOCK : end;
        if (p->linear->kind == INT8)
            multiply_int8(p, row, last, first_panel, last_panel);
        else if (p->linear->kind == BFLOAT16)
            multiply_bfloat16(p, row, last, first_panel, last_panel);
        else
            multiply_float32(p, row, last, first_panel, last_panel);
    }
}

/* Layer normalisation, activations, residual connections */

static void normalise(const Norm *norm, const float *x, float *y, long rows, long width, float epsilon)
{
    for (long r = 0; r < rows; r++, x += width, y += width) {
        vf sum = splat(0.0f), squares = splat(0.0f);
        for (long i = 0; i < width; i += LANES) sum = sum + load(x + i);
        const vf mean = splat(sum_lanes(sum) / width);
        for (long i = 0; i < width; i += LANES) {
            const vf centred = load(x + i) - mean;
            squares = centred * centred + squares;
        }
        const vf scale = splat(1 / sqrtf(sum_lanes(squares) / width + epsilon));
        for (long i = 0; i < width; i += LANES)
            store(y + i, ((load(x + i) - mean) * scale) * load(norm->weight + i) + load(norm->bias + i));
    }
}

INLINE vf sigmoid(vf x) /* 1 / (1 + e^-x), by the exponential of a number that is not positive */
{
    const vf e = exp_negative(splat(0.0f) - absolute(x)), one = splat(1.0f);
    const vi is_negative = (vi)x >> 31; /* all bits or none */
    return (vf)((is_negative & (vi)e) | (~is_negative & (vi)one)) / (one + e);
}

INLINE vf hyperbolic_tangent(vf x) { return splat(2.0f) * sigmoid(splat(2.0f) * x) - splat(1.0f); }

INLINE vf error_function(vf x) /* Abramowitz and Stegun 7.1.26: correct to 1.5e-7 */
{
    const vf a = absolute(x), t = splat(1.0f) / (splat(0.3275911f) * a + splat(1.0f));
    vf p = splat(1.061405429f);
    p = p * t + splat(-1.453152027f);
    p = p * t + splat(1.421413741f);
    p = p * t + splat(-0.284496736f);
    p = p * t + splat(0.254829592f);
    const vf positive = splat(1.0f) - p * t * exp_negative(splat(0.0f) - a * a);
    return (vf)((vi)positive | ((vi)x & splat_int((int32_t)0x80000000)));
}

INLINE vf activated(const int activation, vf x)
{
    if (activation == GELU) return x * splat(0.5f) * (splat(1.0f) + error_function(x * splat(0.70710678f)));
    if (activation == GELU_TANH) {
        const vf inner = splat(0.79788456f) * (x + splat(0.044715f) * x * x * x);
        return x * splat(0.5f) * (splat(1.0f) + hyperbolic_tangent(inner));
    }
    return x * sigmoid(x);
}

/* In place. SwiGLU halves the width: the first half of each row is the gate of the second. */
static void activate(int activation, float *x, long rows, long width, long stride)
{
    for (long r = 0; r < rows; r++, x += stride)
        switch (activation) {
        case GELU:
            for (long i = 0; i < width; i += LANES) store(x + i, activated(GELU, load(x + i)));
            break;
        case GELU_TANH:
            for (long i = 0; i < width; i += LANES) store(x + i, activated(GELU_TANH, load(x + i)));
            break;
        case SWISH:
            for (long i = 0; i < width; i += LANES) store(x + i, activated(SWISH, load(x + i)));
            break;
        case SWIGLU:
            for (long i = 0; i < width / 2; i += LANES)
                store(x + i, activated(SWISH, load(x + i)) * load(x + width / 2 + i));
            break;
        }
}

static void add(float *x, const float *y, long rows, long width, long y_stride)
{
    for (long r = 0; r < rows; r++, x += width, y += y_stride)
        for (long i = 0; i < width; i += LANES) store(x + i, load(x + i) + load(y + i));
}

/* One step of a recurrent unit: f = sigmoid(gates), state = f before + (1 - f) candidate, out = max(0, state). The candidate
 * follows the gates; without a state before, it is 0. */
static void recur(const float *gates, const float *before, float *state, float *out, long width)
{
    const vf zero = splat(0.0f);
    for (long i = 0; i < width; i += LANES) {
        const vf f = sigmoid(load(gates + i)), past = before ? load(before + i) : zero;
        const vf new = f * past + (splat(1.0f) - f) * load(gates + width + i);
        store(state + i, new);
        store(out + i, larger(new, zero));
    }
}

/* Attention */

static void softmax(float *scores, long length, long stride)
{
    const vf minus_infinity = splat(-INFINITY);
    for (long l = length; l < stride; l++) scores[l] = -INFINITY;
    vf maximum = minus_infinity;
    for (long l = 0; l < stride; l += LANES) maximum = larger(load(scores + l), maximum);
    const vf highest = splat(highest_lane(maximum));
    vf sum = splat(0.0f);
    for (long l = 0; l < stride; l += LANES) {
        const vf weight = exp_negative(load(scores + l) - highest);
        store(scores + l, weight);
        sum = sum + weight;
    }
    const vf inverse = splat(1 / sum_lanes(sum));
    for (long l = 0; l < stride; l += LANES) store(scores + l, load(scores + l) * inverse);
}

typedef struct { /* the values of each position: `rows`, or if that is NULL, every `stride` numbers from `first` on */
    const float *const *rows, *first;
    long stride, length;
} Values;

/* Mixtures of values for `queries` queries, `dims` dimensions from d on; both are compile-time constants. The weight of
 * position l for query n is at n x query_step + l x step. */
INLINE void mix(const int queries, const int dims, const float *weights, long query_step, long step, const Values values,
    long d, float *out, long out_stride)
{
    vf sums[4][64 / LANES];
#pragma GCC unroll 4
    for (int n = 0; n < queries; n++)
#pragma GCC unroll 16
        for (int v = 0; v < dims / LANES; v++) sums[n][v] = splat(0.0f);
    for (long l = 0; l < values.length; l++) {
        const float *row = values.rows ? values.rows[l] : values.first + l * values.stride;
#pragma GCC unroll 16
        for (int v = 0; v < dims / LANES; v++) {
            const vf value = load(row + d + v * LANES);
#pragma GCC unroll 4
            for (int n = 0; n < queries; n++) sums[n][v] = splat(weights[n * query_step + l * step]) * value + sums[n][v];
        }
    }
#pragma GCC unroll 4
    for (int n = 0; n < queries; n++)
#pragma GCC unroll 16
        for (int v = 0; v < dims / LANES; v++) store(out + n * out_stride + d + v * LANES, sums[n][v]);
}

/* As many dimensions at a time as keep their sums in registers */
INLINE void mix_all(const int queries, const float *weights, long query_step, long step, const Values values, long begin,
    long end, float *out, long out_stride)
{
    const int most = SUMS * LANES / queries, dims = most >= 64 ? 64 : most >= 32 ? 32 : 16;
    long d = begin;
    for (; d + dims <= end; d += dims) mix(queries, dims, weights, query_step, step, values, d, out, out_stride);
    for (; d < end; d += 16) mix(queries, 16, weights, query_step, step, values, d, out, out_stride);
}

/* Products of `queries` rows of x, at most 4, with columns: the first `length` of them, a multiple of LANES */
INLINE void score(const int queries, const float *x, long x_stride, const float *columns, long column_stride, long depth,
    long length, float scale, float *out, long out_stride)
{
    for (long l = 0; l < length; l += LANES) {
        vf sums[4][CHAINS]; /* several sums for each query, which do not wait for one another */
#pragma GCC unroll 4
        for (int n = 0; n < queries; n++)
#pragma GCC unroll 4
            for (int c = 0; c < CHAINS; c++) sums[n][c] = splat(0.0f);
        for (long d = 0; d < depth; d += CHAINS)
#pragma GCC unroll 4
            for (int c = 0; c < CHAINS; c++) {
                const vf column = load(columns + (d + c) * column_stride + l);
#pragma GCC unroll 4
                for (int n = 0; n < queries; n++) sums[n][c] = splat(x[n * x_stride + d + c]) * column + sums[n][c];
            }
#pragma GCC unroll 4
        for (int n = 0; n < queries; n++) {
            vf sum = sums[n][0];
#pragma GCC unroll 4
            for (int c = 1; c < CHAINS; c++) sum = sum + sums[n][c];
            store(out + n * out_stride + l, sum * splat(scale));
        }
    }
}

/* Scores of `queries` queries, at most 4, and their mixtures of the values */
INLINE void attend_few(const int queries, const Attention *a, long query)
{
    const float *q = a->query + query * a->query_stride;
    const long stride = (a->length + LANES - 1) / LANES * LANES;
    score(queries, q, a->query_stride, a->keys, a->key_stride, a->d_k, stride, a->scale, a->scores, a->key_stride);
    for (int n = 0; n < queries; n++) {
        softmax(a->scores + n * a->key_stride, a->length, stride);
        if (a->weights)
            memcpy(a->weights + (query + n) * a->weight_stride, a->scores + n * a->key_stride, a->length * sizeof(float));
    }
    const Values values = {NULL, a->values, a->value_stride, a->length};
    mix_all(queries, a->scores, a->key_stride, 1, values, 0, a->d_v, a->out + query * a->out_stride, a->out_stride);
}

static void attend(const Attention *a)
{
    long query = 0;
    for (; query + 4 <= a->queries; query += 4) attend_few(4, a, query);
    switch (a->queries - query) {
    case 1: attend_few(1, a, query); break;
    case 2: attend_few(2, a, query); break;
    case 3: attend_few(3, a, query); break;
    }
}

/* The row of the caches that position l of a hypothesis is in, within its page */
INLINE long past_row(const PastAttention *a, long l, long first)
{
    const long row = a->past && l < a->length - 1 ? a->past[l] : a->row;
    return (a->first_row + row) * a->page_size + l - first;
}

static void attend_past(const PastAttention *a)
{
    const long stride = (a->length + LANES - 1) / LANES * LANES, width = a->heads * a->d_v;
    for (long first = 0, page = 0; first < a->length; first += a->page_size, page++)
        for (long l = first; l < a->length && l < first + a->page_size; l++) {
            const long row = past_row(a, l, first);
            const float *key = a->keys[page] + row * a->heads * a->d_k;
            a->rows[l] = a->values[page] + row * width;
            for (long h = 0; h < a->heads; h++) {
                vf sum = splat(0.0f);
                for (long d = h * a->d_k; d < (h + 1) * a->d_k; d += LANES) sum = load(a->query + d) * load(key + d) + sum;
                a->scores[h * stride + l] = sum_lanes(sum) * a->scale;
            }
        }
    const Values values = {a->rows, NULL, 0, a->length};
    for (long h = 0; h < a->heads; h++) {
        softmax(a->scores + h * stride, a->length, stride);
        /* A row of values has those of all heads: each head mixes its own dimensions. */
        mix_all(1, a->scores + h * stride, 0, 1, values, h * a->d_v, (h + 1) * a->d_v, a->out, 0);
    }
}

/* The choice of continuations */

static float log_sum_exp(const float *x, long stride) /* log(sum(exp(x))) */
{
    vf maximum = splat(-INFINITY), sum = splat(0.0f);
    for (long i = 0; i < stride; i += LANES) maximum = larger(load(x + i), maximum);
    const vf highest = splat(highest_lane(maximum));
    for (long i = 0; i < stride; i += LANES) sum = sum + exp_negative(load(x + i) - highest);
    return highest_lane(highest) + logf(sum_lanes(sum));
}

static int is_forbidden(const Choice *c, long token)
{
    for (long i = 0; i < c->forbidden_count; i++)
        if (c->forbidden[i] == token) return 1;
    return 0;
}

/* Logits beyond the vocabulary, up to the end of a vector, must be minus infinity. */
static void choose(const Choice *c)
{
    const long end = (c->vocabulary + LANES - 1) / LANES * LANES;
    for (long n = 0; n < c->count; n++) c->scores[n] = -INFINITY, c->parents[n] = c->tokens[n] = 0;
    for (long h = 0; h < c->width; h++) {
        const float *logits = c->logits + h * c->stride;
        const float sum = c->sums[h], log_sum = log_sum_exp(logits, end);
        if (!(log_sum < INFINITY)) { /* NaN; the caller reports it */
            for (long n = 0; n < c->count; n++) c->scores[n] = NAN;
            return;
        }
        for (long i = 0; i < end; i += LANES) {
            /* Rounding must not make a log-probability positive: sums never rise. */
            const vf score = smaller(load(logits + i) - splat(log_sum), splat(0.0f)) + splat(sum);
            /* After the first few tokens, hardly any is among the best so far. */
            if (!any_greater(score, splat(c->scores[c->count - 1]))) continue;
            for (long lane = 0; lane < LANES && i + lane < c->vocabulary; lane++) {
                const float new = fminf(logits[i + lane] - log_sum, 0.0f) + sum;
                long n = c->count - 1;
                if (!(new > c->scores[n])) continue;
                const int32_t token = c->shortlist ? c->shortlist[i + lane] : (int32_t)(i + lane);
                if (is_forbidden(c, token)) continue;
                for (; n > 0 && new > c->scores[n - 1]; n--)
                    c->scores[n] = c->scores[n - 1], c->parents[n] = c->parents[n - 1], c->tokens[n] = c->tokens[n - 1];
                c->scores[n] = new, c->parents[n] = (int32_t)h, c->tokens[n] = token;
            }
        }
    }
}

#include "training.h"

const Kernels JOIN(transduce_, NAME) = {
    .name = NAME_TEXT,
    .panel = PANEL,
    .input_limit = INPUT_LIMIT,
    .input_offset = INPUT_OFFSET,
    .weight_limit = WEIGHT_LIMIT,
    .is_fast = ISA != ISA_GENERIC,
    .quantise = quantise,
    .to_bfloat16 = to_bfloat16,
    .multiply = multiply,
    .normalise = normalise,
    .activate = activate,
    .add = add,
    .recur = recur,
    .attend = attend,
    .attend_past = attend_past,
    .choose = choose,
    .residual = residual,
    .residual_backward = residual_backward,
    .relu_backward = relu_backward,
    .cross_entropy_row = cross_entropy_row,
    .attend_example = attend_example,
    .attend_example_backward = attend_example_backward,
};
