/* The inner loops of encoding and decoding for processors with AVX-512 VNNI (64 products of 8-bit numbers per
 * instruction).
 *
 * Every function is tested against readable Python code that computes the same; `kernels.py` compiles and loads
 * this file. Arrays are contiguous and row-major unless strides are given.
 */
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 16,           /* 32-bit numbers in a register */
    VECTORS = 4,          /* registers of outputs in a tile */
    PANEL = VECTORS * LANES,
    ROWS = 6,             /* of a tile: 6 x 4 sums, 4 weights and 1 input fit in 32 registers */
    MAX_THREADS = 64,
};

/* Products that justify another thread: starting one takes as long as a million of them. Tests set it. */
long products_per_thread = 1 << 24;

static inline __mmask16 first_lanes(long count) /* the mask of the first `count` lanes */
{
    return count >= LANES ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* Threads. None of them outlives a call, because the process may fork between two calls. */

typedef void Work(const void *job, long begin, long end);
typedef struct {
    Work *work;
    const void *job;
    long begin, end;
} Share;

static void *run_share(void *argument)
{
    const Share *share = argument;
    share->work(share->job, share->begin, share->end);
    return NULL;
}

static void run_parallel(Work *work, const void *job, long count, long products, int threads)
{
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > products / products_per_thread) threads = (int)(products / products_per_thread);
    if (threads > count) threads = (int)count;
    if (threads < 2) {
        work(job, 0, count);
        return;
    }
    Share shares[MAX_THREADS];
    pthread_t handles[MAX_THREADS];
    int started[MAX_THREADS];
    for (int i = threads - 1; i >= 0; i--) {
        shares[i] = (Share){work, job, count * i / threads, count * (i + 1) / threads};
        started[i] = i > 0 && pthread_create(&handles[i], NULL, run_share, &shares[i]) == 0;
        if (!started[i]) run_share(&shares[i]);
    }
    for (int i = 1; i < threads; i++)
        if (started[i]) pthread_join(handles[i], NULL);
}

/* e^x for x <= 0, correct to one or two bits: 2^n e^r with |r| <= ln(2) / 2, and a polynomial for e^r */
static inline __m512 exp16(__m512 x)
{
    x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x); /* with the arguments in this order, NaN stays NaN */
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x); /* ln(2) in two parts, so that */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);     /* n times the first one is exact */
    __m512 p = _mm512_set1_ps(1.0f / 720);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 2));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* y = x W + b with W in 8 bits and each row of x quantised to 8 bits on the fly */

typedef struct {
    const int8_t *weights; /* (panel, d_in / 4, 64, 4): the four factors of one instruction are adjacent */
    const float *scales;   /* of each output */
    const int32_t *offsets; /* of each output: -128 times the sum of its weights */
    const float *bias;
    int32_t d_in, d_out; /* d_in is a multiple of 4; the other arrays are padded to whole panels */
} LinearLayer;

typedef struct {
    const LinearLayer *linear;
    const uint8_t *x;
    const float *scales; /* of each row */
    float *y;
    long rows;
    int relu;
} Product;

/* The instruction takes one unsigned factor: 128 is added here and subtracted by the layer's offsets. */
static float quantise_row(const float *x, long width, uint8_t *bytes)
{
    __m512 maximum = _mm512_setzero_ps();
    __mmask16 not_finite = 0;
    for (long i = 0; i < width; i += LANES) {
        const __m512 part = _mm512_abs_ps(_mm512_maskz_loadu_ps(first_lanes(width - i), x + i));
        not_finite |= _mm512_cmp_ps_mask(part, _mm512_set1_ps(INFINITY), _CMP_NLT_UQ);
        maximum = _mm512_max_ps(maximum, part);
    }
    if (not_finite) { /* products with NaN are NaN */
        memset(bytes, 0, width);
        return NAN;
    }
    const float largest = _mm512_reduce_max_ps(maximum);
    const __m512 steps_per_unit = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
    for (long i = 0; i < width; i += LANES) {
        const __mmask16 lanes = first_lanes(width - i);
        const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), steps_per_unit);
        const __m512i quantised = _mm512_add_epi32(_mm512_cvtps_epi32(scaled), _mm512_set1_epi32(128));
        _mm_mask_storeu_epi8(bytes + i, lanes, _mm512_cvtepi32_epi8(quantised));
    }
    return largest / 127.0f;
}

/* Some rows of y in one panel; the number is a compile-time constant, so that all sums stay in registers */
static inline __attribute__((always_inline)) void tile(const int rows, const Product *product, long row, long panel)
{
    const LinearLayer *linear = product->linear;
    const long d_in = linear->d_in, column = panel * PANEL;
    const uint8_t *x = product->x + row * d_in;
    const int8_t *weights = linear->weights + column * d_in;
    __m512i sums[ROWS][VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const __m512i offset = _mm512_loadu_si512(linear->offsets + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sums[r][v] = offset;
    }
    for (long i = 0; i < d_in; i += 4) {
        __m512i w[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) w[v] = _mm512_loadu_si512(weights + i * PANEL + v * 64);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int32_t inputs;
            memcpy(&inputs, x + r * d_in + i, sizeof inputs);
            const __m512i broadcast = _mm512_set1_epi32(inputs);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], broadcast, w[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const long left = linear->d_out - column - v * LANES;
        if (left <= 0) break; /* without this line GCC 12 keeps the sums in memory: check the assembly after changes */
        const __mmask16 lanes = first_lanes(left);
        const __m512 scale = _mm512_loadu_ps(linear->scales + column + v * LANES);
        const __m512 bias = _mm512_loadu_ps(linear->bias + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512 scales = _mm512_mul_ps(scale, _mm512_set1_ps(product->scales[row + r]));
            __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][v]), scales, bias);
            if (product->relu) y = _mm512_max_ps(_mm512_setzero_ps(), y); /* with the arguments in this order, NaN stays NaN */
            _mm512_mask_storeu_ps(product->y + (row + r) * linear->d_out + column + v * LANES, lanes, y);
        }
    }
}

static void multiply_block(const Product *product, long begin, long end, long first_panel, long last_panel)
{
    for (long panel = first_panel; panel < last_panel; panel++) {
        long row = begin;
        for (; row + ROWS <= end; row += ROWS) tile(ROWS, product, row, panel);
        switch (end - row) {
        case 1: tile(1, product, row, panel); break;
        case 2: tile(2, product, row, panel); break;
        case 3: tile(3, product, row, panel); break;
        case 4: tile(4, product, row, panel); break;
        case 5: tile(5, product, row, panel); break;
        }
    }
}

static long panels(const LinearLayer *linear) { return (linear->d_out + PANEL - 1) / PANEL; }

static void multiply_rows(const void *job, long begin, long end)
{
    multiply_block(job, begin, end, 0, panels(((const Product *)job)->linear));
}

static void multiply_panels(const void *job, long begin, long end)
{
    multiply_block(job, 0, ((const Product *)job)->rows, begin, end);
}

/* x (rows, d_in) to y (rows, d_out); returns 0 if memory cannot be allocated */
static int apply_linear(const LinearLayer *linear, const float *x, float *y, long rows, int relu, int threads)
{
    const size_t size = (size_t)rows * linear->d_in;
    uint8_t *bytes = malloc(size + rows * sizeof(float) + 1);
    if (!bytes) return 0;
    float *scales = (float *)(bytes + size); /* aligned, because d_in is a multiple of 4 */
    for (long row = 0; row < rows; row++)
        scales[row] = quantise_row(x + row * linear->d_in, linear->d_in, bytes + row * linear->d_in);
    const Product product = {linear, bytes, scales, y, rows, relu};
    const long products = rows * linear->d_in * linear->d_out;
    if (rows >= ROWS * threads)
        run_parallel(multiply_rows, &product, rows, products, threads);
    else
        run_parallel(multiply_panels, &product, panels(linear), products, threads);
    free(bytes);
    return 1;
}

int linear(const LinearLayer *layer, const float *x, float *y, long rows, int threads)
{
    return apply_linear(layer, x, y, rows, 0, threads);
}

/* softmax(Q K^T / sqrt(d_k)) V for a few queries per head */

typedef struct {
    const float *query, *key, *value;
    const uint8_t *mask; /* (rows, length), 0 where attention is not allowed; or NULL */
    float *out;          /* (batch, queries, heads, d_v) */
    const int64_t *own_rows; /* (batch): the row of each element's keys, values and mask; NULL if it is its index */
    const int64_t *rows; /* (batch, rows_stride): the rows that hold the first `past_length` positions instead */
    int64_t rows_stride, past_length;
    int64_t batch, heads, queries, length, d_k, d_v; /* widths are multiples of LANES */
    int64_t query_strides[3], key_strides[3], value_strides[3]; /* of batch, heads, positions */
    float scale;
} Attention;

static void softmax(float *scores, long length, const uint8_t *mask)
{
    const __m512 minus_infinity = _mm512_set1_ps(-INFINITY);
    __m512 maximum = minus_infinity;
    for (long l = 0; l < length; l += LANES) {
        __mmask16 allowed = first_lanes(length - l);
        if (mask)
            allowed = _mm512_mask_test_epi32_mask(
                allowed, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(allowed, mask + l)), _mm512_set1_epi32(0xff));
        const __m512 score = _mm512_mask_loadu_ps(minus_infinity, allowed, scores + l);
        _mm512_mask_storeu_ps(scores + l, first_lanes(length - l), score);
        maximum = _mm512_max_ps(maximum, score);
    }
    const __m512 highest = _mm512_set1_ps(_mm512_reduce_max_ps(maximum));
    __m512 sum = _mm512_setzero_ps();
    for (long l = 0; l < length; l += LANES) {
        const __m512 score = _mm512_mask_loadu_ps(minus_infinity, first_lanes(length - l), scores + l);
        const __mmask16 allowed = _mm512_cmp_ps_mask(score, minus_infinity, _CMP_NEQ_UQ);
        const __m512 weight = _mm512_maskz_mov_ps(allowed, exp16(_mm512_sub_ps(score, highest)));
        _mm512_mask_storeu_ps(scores + l, first_lanes(length - l), weight);
        sum = _mm512_add_ps(sum, weight);
    }
    const float total = _mm512_reduce_add_ps(sum);
    const __m512 inverse = _mm512_set1_ps(total != 0 ? 1 / total : 0); /* a query without any allowed key gets zeros */
    for (long l = 0; l < length; l += LANES) {
        const __mmask16 lanes = first_lanes(length - l);
        _mm512_mask_storeu_ps(scores + l, lanes, _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, scores + l), inverse));
    }
}

static inline __attribute__((always_inline)) void mix_values(const int vectors, const float *weights,
    const Attention *a, const float *value, const long *rows, float *out)
{
    __m512 sums[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[v] = _mm512_setzero_ps();
    for (long l = 0; l < a->length; l++) {
        const __m512 weight = _mm512_set1_ps(weights[l]);
        const float *row = value + rows[l] * a->value_strides[0] + l * a->value_strides[2];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[v] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(row + v * LANES), sums[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) _mm512_storeu_ps(out + v * LANES, sums[v]);
}

static void attend_sequences(const void *job, long begin, long end)
{
    const Attention *a = job;
    float weights[a->length + 1]; /* at most MAX_KEYS of `kernels.py` */
    long rows[a->length + 1];
    for (long b = begin; b < end; b++) {
        const long own_row = a->own_rows ? a->own_rows[b] : b;
        for (long l = 0; l < a->length; l++) rows[l] = l < a->past_length ? a->rows[b * a->rows_stride + l] : own_row;
        for (long h = 0; h < a->heads; h++) {
            const float *key = a->key + h * a->key_strides[1], *value = a->value + h * a->value_strides[1];
            for (long q = 0; q < a->queries; q++) {
                const float *query =
                    a->query + b * a->query_strides[0] + h * a->query_strides[1] + q * a->query_strides[2];
                for (long l = 0; l < a->length; l++) {
                    const float *key_row = key + rows[l] * a->key_strides[0] + l * a->key_strides[2];
                    __m512 products = _mm512_setzero_ps();
                    for (long d = 0; d < a->d_k; d += LANES)
                        products = _mm512_fmadd_ps(_mm512_loadu_ps(query + d), _mm512_loadu_ps(key_row + d), products);
                    weights[l] = _mm512_reduce_add_ps(products) * a->scale;
                }
                softmax(weights, a->length, a->mask ? a->mask + own_row * a->length : NULL);
                float *out = a->out + ((b * a->queries + q) * a->heads + h) * a->d_v;
                long d = 0;
                for (; d + PANEL <= a->d_v; d += PANEL) mix_values(VECTORS, weights, a, value + d, rows, out + d);
                for (; d + 2 * LANES <= a->d_v; d += 2 * LANES) mix_values(2, weights, a, value + d, rows, out + d);
                for (; d < a->d_v; d += LANES) mix_values(1, weights, a, value + d, rows, out + d);
            }
        }
    }
}

void attend(const Attention *attention, int threads)
{
    const Attention *a = attention;
    const long products = a->batch * a->heads * a->queries * a->length * (a->d_k + a->d_v);
    run_parallel(attend_sequences, a, a->batch, products, threads);
}

/* Layers of an encoder or a decoder, and the residual connections around their sub-layers (`Residual`) */

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    LinearLayer query_key_value, self_output;   /* self-attention */
    LinearLayer memory_query, memory_output;    /* attention to the source; not used in an encoder layer */
    LinearLayer inner, outer;                   /* feed-forward */
    Norm around_self_attention, around_memory_attention, around_feed_forward;
} Layer;

typedef struct {
    const Layer *layers;
    const Norm *final; /* or NULL */
    int64_t depth, heads, d_model, d_ff, d_k, d_v;
    float epsilon;
    int32_t pre;
} Stack;

typedef struct { /* scratch memory, one row per token */
    float *x, *normed; /* d_model */
    float *wide, *narrow;
} Scratch;

static int allocate_scratch(const Stack *s, long rows, Scratch *scratch)
{
    const long keys = s->heads * s->d_k, values = s->heads * s->d_v;
    const long narrowest = values > s->d_model ? values : s->d_model;
    long widest = 2 * keys + values > s->d_ff ? 2 * keys + values : s->d_ff;
    if (widest < s->d_model) widest = s->d_model;
    scratch->x = malloc((rows * (2 * s->d_model + widest + narrowest) + 1) * sizeof(float));
    if (!scratch->x) return 0;
    scratch->normed = scratch->x + rows * s->d_model;
    scratch->wide = scratch->normed + rows * s->d_model;
    scratch->narrow = scratch->wide + rows * widest;
    return 1;
}

static void normalise(const Norm *norm, const float *x, float *y, long rows, long width, float epsilon)
{
    for (long r = 0; r < rows; r++, x += width, y += width) {
        __m512 sum = _mm512_setzero_ps(), squares = sum;
        for (long i = 0; i < width; i += LANES) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(first_lanes(width - i), x + i));
        const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width);
        for (long i = 0; i < width; i += LANES) {
            const __mmask16 lanes = first_lanes(width - i);
            const __m512 centred = _mm512_maskz_sub_ps(lanes, _mm512_maskz_loadu_ps(lanes, x + i), mean);
            squares = _mm512_fmadd_ps(centred, centred, squares);
        }
        const __m512 scale = _mm512_set1_ps(1 / sqrtf(_mm512_reduce_add_ps(squares) / width + epsilon));
        for (long i = 0; i < width; i += LANES) {
            const __mmask16 lanes = first_lanes(width - i);
            const __m512 centred = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), mean);
            const __m512 weight = _mm512_maskz_loadu_ps(lanes, norm->weight + i);
            const __m512 bias = _mm512_maskz_loadu_ps(lanes, norm->bias + i);
            _mm512_mask_storeu_ps(y + i, lanes, _mm512_fmadd_ps(_mm512_mul_ps(centred, scale), weight, bias));
        }
    }
}

/* The input of a sub-layer, and the residual connection after it */

static const float *sublayer_input(const Stack *s, const Norm *norm, const Scratch *scratch, long rows)
{
    if (!s->pre) return scratch->x;
    normalise(norm, scratch->x, scratch->normed, rows, s->d_model, s->epsilon);
    return scratch->normed;
}

static void add_residual(const Stack *s, const Norm *norm, const Scratch *scratch, const float *output, long rows)
{
    for (long i = 0; i < rows * s->d_model; i++) scratch->x[i] += output[i];
    if (!s->pre) normalise(norm, scratch->x, scratch->x, rows, s->d_model, s->epsilon);
}

static int feed_forward(const Stack *s, const Layer *layer, const Scratch *scratch, long rows, int threads)
{
    const float *in = sublayer_input(s, &layer->around_feed_forward, scratch, rows);
    if (!apply_linear(&layer->inner, in, scratch->wide, rows, 1, threads)) return 0;
    if (!apply_linear(&layer->outer, scratch->wide, scratch->narrow, rows, 0, threads)) return 0;
    add_residual(s, &layer->around_feed_forward, scratch, scratch->narrow, rows);
    return 1;
}

/* The encoder (`Encoder`), over sources of different lengths stored one after the other, without padding */

typedef struct {
    Attention first; /* for the first token; the others are offset from it */
    const int64_t *begins;
} Sources;

static void attend_sources(const void *job, long begin, long end)
{
    const Sources *sources = job;
    for (long i = begin; i < end; i++) {
        Attention own = sources->first;
        const long token = sources->begins[i], row = own.query_strides[2];
        own.length = own.queries = sources->begins[i + 1] - token;
        own.query += token * row;
        own.key += token * row;
        own.value += token * row;
        own.out += token * own.heads * own.d_v;
        attend_sequences(&own, 0, 1);
    }
}

/* x (tokens, d_model) to memory (tokens, d_model); source i spans begins[i] to begins[i + 1] */
int encode(const Stack *s, const int64_t *begins, long sources, const float *x, float *memory, int threads)
{
    const long tokens = begins[sources], keys = s->heads * s->d_k, values = s->heads * s->d_v;
    const long row = 2 * keys + values;
    Scratch scratch;
    if (!allocate_scratch(s, tokens, &scratch)) return 0;
    memcpy(scratch.x, x, tokens * s->d_model * sizeof(float));
    const Sources job = {
        .first = {
            .query = scratch.wide, .key = scratch.wide + keys, .value = scratch.wide + 2 * keys, .out = scratch.narrow,
            .batch = 1, .heads = s->heads, .d_k = s->d_k, .d_v = s->d_v,
            .query_strides = {0, s->d_k, row}, .key_strides = {0, s->d_k, row}, .value_strides = {0, s->d_v, row},
            .scale = 1 / sqrtf((float)s->d_k),
        },
        .begins = begins,
    };
    const long products = sources ? tokens * (tokens / sources) * (keys + values) : 0; /* approximately */
    int ok = 1;
    for (long l = 0; ok && l < s->depth; l++) {
        const Layer *layer = s->layers + l;
        const float *in = sublayer_input(s, &layer->around_self_attention, &scratch, tokens);
        ok = apply_linear(&layer->query_key_value, in, scratch.wide, tokens, 0, threads);
        if (ok) run_parallel(attend_sources, &job, sources, products, threads);
        ok = ok && apply_linear(&layer->self_output, scratch.narrow, scratch.wide, tokens, 0, threads);
        if (ok) add_residual(s, &layer->around_self_attention, &scratch, scratch.wide, tokens);
        ok = ok && feed_forward(s, layer, &scratch, tokens, threads);
    }
    if (s->final)
        normalise(s->final, scratch.x, memory, tokens, s->d_model, s->epsilon);
    else
        memcpy(memory, scratch.x, tokens * s->d_model * sizeof(float));
    free(scratch.x);
    return ok;
}

/* One more token of every hypothesis: embedding, decoder and output (`Transformer.step`) */

typedef struct {
    float *key, *value; /* (rows, heads, capacity, d_k or d_v): of the hypotheses so far */
    const float *memory_key, *memory_value; /* (sources, heads, source, d_k or d_v) */
} LayerCache;

typedef struct {
    Stack stack;
    const LinearLayer *output;
    const float *embedding; /* (vocabulary, d_model) */
    const float *positions; /* (positions, d_model): positional encodings */
    const uint8_t *mask;    /* (sources, source) */
    const int64_t *own_rows, *rows; /* the row of each source, and the rows of each hypothesis's past; see `Attention` */
    int64_t rows_stride, past_length;
    int64_t vocabulary, sources, width;
    int64_t capacity, length, source; /* reserved positions, positions read, source length */
    float scale;
} Step;

/* x (targets, d_model); returns 0 if a token is not in the vocabulary */
static int embed(const Step *s, const int64_t *tokens, float *x, long targets)
{
    const long width = s->stack.d_model;
    const float *position = s->positions + s->length * width;
    for (long t = 0; t < targets; t++, x += width) {
        if (tokens[t] < 0 || tokens[t] >= s->vocabulary) return 0;
        const float *row = s->embedding + tokens[t] * width;
        for (long i = 0; i < width; i++) x[i] = row[i] * s->scale + position[i];
    }
    return 1;
}

/* Copies keys and values, which follow the queries in each row, into the caches. */
static void append_to_cache(const Step *s, const LayerCache *cache, const float *rows, long targets)
{
    const long heads = s->stack.heads, d_k = s->stack.d_k, d_v = s->stack.d_v;
    for (long t = 0; t < targets; t++, rows += heads * (2 * d_k + d_v))
        for (long h = 0; h < heads; h++) {
            const long place = (t * heads + h) * s->capacity + s->length;
            memcpy(cache->key + place * d_k, rows + (heads + h) * d_k, d_k * sizeof(float));
            memcpy(cache->value + place * d_v, rows + 2 * heads * d_k + h * d_v, d_v * sizeof(float));
        }
}

enum { DONE, NO_MEMORY, UNKNOWN_TOKEN, NAN_LOGITS };

/* tokens (targets) to logits (targets, vocabulary) */
int step(const Step *step, const LayerCache *caches, const int64_t *tokens, float *logits, int threads)
{
    const Stack *s = &step->stack;
    const long targets = step->sources * step->width, keys = s->heads * s->d_k, values = s->heads * s->d_v;
    Scratch scratch;
    if (!allocate_scratch(s, targets, &scratch)) return NO_MEMORY;
    if (!embed(step, tokens, scratch.x, targets)) {
        free(scratch.x);
        return UNKNOWN_TOKEN;
    }
    int ok = 1;
    for (long l = 0; ok && l < s->depth; l++) {
        const Layer *layer = s->layers + l;
        const LayerCache *cache = caches + l;

        const float *in = sublayer_input(s, &layer->around_self_attention, &scratch, targets);
        ok = ok && apply_linear(&layer->query_key_value, in, scratch.wide, targets, 0, threads);
        append_to_cache(step, cache, scratch.wide, targets);
        const Attention own = {
            .query = scratch.wide, .key = cache->key, .value = cache->value, .out = scratch.narrow,
            .rows = step->rows, .rows_stride = step->rows_stride, .past_length = step->past_length,
            .batch = targets, .heads = s->heads, .queries = 1, .length = step->length + 1,
            .d_k = s->d_k, .d_v = s->d_v,
            .query_strides = {2 * keys + values, s->d_k, 0},
            .key_strides = {step->capacity * keys, step->capacity * s->d_k, s->d_k},
            .value_strides = {step->capacity * values, step->capacity * s->d_v, s->d_v},
            .scale = 1 / sqrtf((float)s->d_k),
        };
        attend(&own, threads);
        ok = ok && apply_linear(&layer->self_output, scratch.narrow, scratch.wide, targets, 0, threads);
        add_residual(s, &layer->around_self_attention, &scratch, scratch.wide, targets);

        in = sublayer_input(s, &layer->around_memory_attention, &scratch, targets);
        ok = ok && apply_linear(&layer->memory_query, in, scratch.wide, targets, 0, threads);
        const Attention memory = {
            .query = scratch.wide, .key = cache->memory_key, .value = cache->memory_value, .mask = step->mask,
            .out = scratch.narrow, .own_rows = step->own_rows,
            .batch = step->sources, .heads = s->heads, .queries = step->width, .length = step->source,
            .d_k = s->d_k, .d_v = s->d_v,
            .query_strides = {step->width * keys, s->d_k, keys},
            .key_strides = {step->source * keys, step->source * s->d_k, s->d_k},
            .value_strides = {step->source * values, step->source * s->d_v, s->d_v},
            .scale = own.scale,
        };
        attend(&memory, threads);
        ok = ok && apply_linear(&layer->memory_output, scratch.narrow, scratch.wide, targets, 0, threads);
        add_residual(s, &layer->around_memory_attention, &scratch, scratch.wide, targets);

        ok = ok && feed_forward(s, layer, &scratch, targets, threads);
    }
    if (s->final) normalise(s->final, scratch.x, scratch.x, targets, s->d_model, s->epsilon);
    ok = ok && apply_linear(step->output, scratch.x, logits, targets, 0, threads);
    free(scratch.x);
    return ok ? DONE : NO_MEMORY;
}

/* The best continuations: the highest log(softmax(logits)) + sum over all hypotheses of a sentence */

typedef struct {
    const float *logits, *sums; /* (sentences, width, vocabulary), (sentences, width) */
    const int64_t *forbidden;   /* tokens that are never chosen */
    float *scores;              /* (sentences, count), highest first */
    int64_t *parents, *tokens;  /* (sentences, count): the hypothesis and the token of each continuation */
    int64_t sentences, width, vocabulary, count, forbidden_count;
} Choice;

static float log_sum_exp(const float *x, long width) /* log(sum(exp(x))) */
{
    const __m512 minus_infinity = _mm512_set1_ps(-INFINITY);
    __m512 maximum = minus_infinity;
    for (long i = 0; i < width; i += LANES)
        maximum = _mm512_max_ps(maximum, _mm512_mask_loadu_ps(minus_infinity, first_lanes(width - i), x + i));
    const float highest = _mm512_reduce_max_ps(maximum);
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < width; i += LANES) {
        const __mmask16 lanes = first_lanes(width - i);
        const __m512 difference = _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, x + i), _mm512_set1_ps(highest));
        sum = _mm512_mask_add_ps(sum, lanes, sum, exp16(difference));
    }
    return highest + logf(_mm512_reduce_add_ps(sum));
}

static int is_forbidden(const Choice *c, long token)
{
    for (long i = 0; i < c->forbidden_count; i++)
        if (c->forbidden[i] == token) return 1;
    return 0;
}

static void choose_tokens(const void *job, long begin, long end)
{
    const Choice *c = job;
    for (long s = begin; s < end; s++) {
        float *scores = c->scores + s * c->count;
        int64_t *parents = c->parents + s * c->count, *tokens = c->tokens + s * c->count;
        for (long n = 0; n < c->count; n++) scores[n] = -INFINITY, parents[n] = tokens[n] = 0;
        for (long h = 0; h < c->width; h++) {
            const long hypothesis = s * c->width + h;
            const float *logits = c->logits + hypothesis * c->vocabulary;
            const float sum = c->sums[hypothesis], log_sum = log_sum_exp(logits, c->vocabulary);
            if (isnan(log_sum)) { /* the caller reports NaN logits */
                for (long n = 0; n < c->count; n++) scores[n] = NAN;
                break;
            }
            for (long i = 0; i < c->vocabulary; i += LANES) {
                const __mmask16 lanes = first_lanes(c->vocabulary - i);
                const __m512 log_probability =
                    _mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, logits + i), _mm512_set1_ps(log_sum));
                /* Rounding must not make a log-probability positive: sums never rise. */
                const __m512 score =
                    _mm512_add_ps(_mm512_min_ps(log_probability, _mm512_setzero_ps()), _mm512_set1_ps(sum));
                /* After the first few tokens, hardly any is among the best so far. */
                unsigned better =
                    _mm512_mask_cmp_ps_mask(lanes, score, _mm512_set1_ps(scores[c->count - 1]), _CMP_GT_OQ);
                for (; better; better &= better - 1) {
                    const long token = i + __builtin_ctz(better);
                    const float score_of_token = fminf(logits[token] - log_sum, 0) + sum;
                    long n = c->count - 1;
                    if (!(score_of_token > scores[n]) || is_forbidden(c, token)) continue;
                    for (; n > 0 && score_of_token > scores[n - 1]; n--)
                        scores[n] = scores[n - 1], parents[n] = parents[n - 1], tokens[n] = tokens[n - 1];
                    scores[n] = score_of_token, parents[n] = h, tokens[n] = token;
                }
            }
        }
    }
}

void choose(const Choice *choice, int threads)
{
    const long logits = choice->sentences * choice->width * choice->vocabulary;
    /* An exponential takes as long as 32 products. */
    run_parallel(choose_tokens, choice, choice->sentences, 32 * logits, threads);
}

/* Moves rows in several arrays: row i of `count` becomes row rows[i] of `batch`, in each of `parts` pieces. Returns
 * 0 and does nothing if a row is out of range or would be overwritten before it is read. Sizes are in bytes. */
int move(char *const *arrays, long array_count, long batch, const int64_t *rows, long count, long parts, long part_size,
    long filled)
{
    const long row_size = parts * part_size;
    if (count > batch) return 0;
    for (long i = 0; i < count; i++) {
        const long from = rows[i];
        if (from < 0 || from >= batch || (from != i && from < count && rows[from] != from)) return 0;
    }
    for (long a = 0; a < array_count; a++)
        for (long i = 0; i < count; i++) {
            char *to = arrays[a] + i * row_size;
            const char *from = arrays[a] + rows[i] * row_size;
            for (long part = 0; to != from && part < parts; part++)
                memcpy(to + part * part_size, from + part * part_size, filled);
        }
    return 1;
}

/* One step of beam search (`beam_search`): the model's step, the choice of continuations, and the end of sentences.
 * Nothing moves in memory when hypotheses continue or sentences end: each hypothesis knows the rows of its past. */

typedef struct { /* a finished hypothesis: `token` after hypothesis `origin` of `length` tokens */
    double score;
    int64_t length, origin, token;
    float sum;
} Ending;

typedef struct {
    const int64_t *limits;   /* (sources): maximum lengths */
    const double *penalties; /* of each length up to the longest maximum */
    const int64_t *forbidden;
    int64_t forbidden_count, beam, count, eos, exact;
    int64_t *unfinished;       /* (sources): the indices of unfinished sources */
    int64_t *rows, *next_rows; /* (targets, stride): see `Attention` */
    int64_t *origins, *tokens; /* (lengths, targets): every token, and the hypothesis it continues; */
    float *sums;               /* the tokens of length 0 are bos */
    Ending *endings;           /* (sources, beam), best first */
    int64_t *ended;            /* (sources): number of endings */
    float *logits, *scores;    /* (targets, vocabulary), (sources, 2 beam) */
    int64_t *parents, *chosen; /* (sources, 2 beam) */
    int64_t targets;           /* sources x beam */
} Search;

static void add_ending(const Search *s, long source, Ending new)
{
    Ending *endings = s->endings + source * s->beam;
    if (new.sum == -INFINITY) return;
    new.score = new.sum / s->penalties[new.length + 1];
    if (s->ended[source] == s->beam && new.score <= endings[s->beam - 1].score) return;
    if (s->ended[source] < s->beam) s->ended[source]++;
    long n = s->ended[source] - 1;
    for (; n > 0 && new.score > endings[n - 1].score; n--) endings[n] = endings[n - 1];
    endings[n] = new;
}

/* Whether a source is finished, given the `highest` sum of its unfinished hypotheses at this length */
static int is_done(const Search *s, long source, long length, float highest)
{
    const long ended = s->ended[source], limit = s->limits[source];
    if (length >= limit || highest == -INFINITY) return 1;
    if (ended < s->count) return 0;
    if (ended == s->beam && (s->beam == 1 || !s->exact)) return 1;
    /* Sums only fall, and the largest penalty is that of the shortest or of the longest possible length. */
    const double penalty = fmax(s->penalties[length + 1], s->penalties[limit]);
    return s->endings[source * s->beam + s->count - 1].score >= highest / penalty;
}

/* Advances every hypothesis by one token; `model` then has the number of unfinished sources and their length */
int advance(Step *model, const LayerCache *caches, Search *s, int threads)
{
    const long length = model->length, width = model->width, candidates = 2 * s->beam;
    const int error = step(model, caches, s->tokens + length * s->targets, s->logits, threads);
    if (error) return error;
    const Choice choice = {s->logits, s->sums + length * s->targets, s->forbidden, s->scores, s->parents, s->chosen,
        model->sources, width, model->output->d_out, candidates, s->forbidden_count};
    choose(&choice, threads);
    int64_t *origins = s->origins + (length + 1) * s->targets, *tokens = s->tokens + (length + 1) * s->targets;
    float *sums = s->sums + (length + 1) * s->targets;
    long unfinished = 0;
    for (long i = 0; i < model->sources; i++) {
        const long source = s->unfinished[i], first_place = unfinished * s->beam;
        if (isnan(s->scores[i * candidates])) return NAN_LOGITS;
        long place = first_place;
        for (long rank = 0, c = i * candidates; place < first_place + s->beam && rank < candidates; rank++, c++) {
            const Ending candidate = {0, length, i * width + s->parents[c], s->chosen[c], s->scores[c]};
            /* Each hypothesis has one continuation that ends: at least `beam` others are left. */
            if (candidate.token != s->eos) {
                origins[place] = candidate.origin, tokens[place] = candidate.token, sums[place] = candidate.sum;
                place++;
            } else if (rank < s->beam)
                add_ending(s, source, candidate);
        }
        if (!is_done(s, source, length + 1, sums[first_place])) {
            s->unfinished[unfinished++] = source;
            continue;
        }
        if (length + 1 >= s->limits[source]) /* cut off at the maximum length */
            for (long p = first_place; p < place; p++)
                add_ending(s, source, (Ending){0, length, origins[p], tokens[p], sums[p]});
    }
    for (long t = 0; t < unfinished * s->beam; t++) {
        int64_t *rows = s->next_rows + t * model->rows_stride;
        memcpy(rows, s->rows + origins[t] * model->rows_stride, length * sizeof *rows);
        rows[length] = origins[t];
    }
    int64_t *const rows = s->rows;
    s->rows = s->next_rows, s->next_rows = rows;
    model->rows = s->rows, model->past_length = model->length = length + 1;
    model->sources = unfinished, model->width = s->beam;
    return DONE;
}

/* Sizes of the structures, which Python compares with its own */
const long sizes[] = {sizeof(LinearLayer), sizeof(Attention), sizeof(Choice), sizeof(Norm), sizeof(Layer), sizeof(Stack),
    sizeof(LayerCache), sizeof(Step), sizeof(Ending), sizeof(Search)};
