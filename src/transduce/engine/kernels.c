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
    MOST_THREADS = 64,
};

long enough = 1 << 24; /* products that justify another thread: starting one takes as long as a million of them */

static inline __mmask16 first(long count) /* the mask of the first `count` lanes */
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

static void *do_share(void *it)
{
    const Share *share = it;
    share->work(share->job, share->begin, share->end);
    return NULL;
}

static void in_shares(Work *work, const void *job, long count, long products, int threads)
{
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > products / enough) threads = (int)(products / enough);
    if (threads > count) threads = (int)count;
    if (threads < 2) {
        work(job, 0, count);
        return;
    }
    Share shares[MOST_THREADS];
    pthread_t others[MOST_THREADS];
    int begun[MOST_THREADS];
    for (int i = threads - 1; i >= 0; i--) {
        shares[i] = (Share){work, job, count * i / threads, count * (i + 1) / threads};
        begun[i] = i > 0 && pthread_create(&others[i], NULL, do_share, &shares[i]) == 0;
        if (!begun[i]) do_share(&shares[i]);
    }
    for (int i = 1; i < threads; i++)
        if (begun[i]) pthread_join(others[i], NULL);
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
} Map;

typedef struct {
    const Map *map;
    const uint8_t *x;
    const float *scales; /* of each row */
    float *y;
    long rows;
    int relu;
} Product;

/* The instruction takes one unsigned factor: 128 is added here and subtracted by the layer's offsets. */
static float to_bytes(const float *x, long width, uint8_t *bytes)
{
    __m512 most = _mm512_setzero_ps();
    __mmask16 no_number = 0;
    for (long i = 0; i < width; i += LANES) {
        const __m512 part = _mm512_abs_ps(_mm512_maskz_loadu_ps(first(width - i), x + i));
        no_number |= _mm512_cmp_ps_mask(part, _mm512_set1_ps(INFINITY), _CMP_NLT_UQ);
        most = _mm512_max_ps(most, part);
    }
    if (no_number) { /* products with NaN are NaN */
        memset(bytes, 0, width);
        return NAN;
    }
    const float largest = _mm512_reduce_max_ps(most);
    const __m512 per_step = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
    for (long i = 0; i < width; i += LANES) {
        const __mmask16 there = first(width - i);
        const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(there, x + i), per_step);
        const __m512i step = _mm512_add_epi32(_mm512_cvtps_epi32(scaled), _mm512_set1_epi32(128));
        _mm_mask_storeu_epi8(bytes + i, there, _mm512_cvtepi32_epi8(step));
    }
    return largest / 127.0f;
}

/* Some rows of y in one panel; the number is a compile-time constant, so that all sums stay in registers */
static inline __attribute__((always_inline)) void tile(const int rows, const Product *product, long row, long panel)
{
    const Map *map = product->map;
    const long d_in = map->d_in, column = panel * PANEL;
    const uint8_t *x = product->x + row * d_in;
    const int8_t *weights = map->weights + column * d_in;
    __m512i sums[ROWS][VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const __m512i offset = _mm512_loadu_si512(map->offsets + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) sums[r][v] = offset;
    }
    for (long i = 0; i < d_in; i += 4) {
        __m512i w[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) w[v] = _mm512_loadu_si512(weights + i * PANEL + v * 64);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * d_in + i, sizeof four);
            const __m512i same = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], same, w[v]);
        }
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; v++) {
        const long left = map->d_out - column - v * LANES;
        if (left <= 0) break; /* without this line GCC 12 keeps the sums in memory: check the assembly after changes */
        const __mmask16 there = first(left);
        const __m512 scale = _mm512_loadu_ps(map->scales + column + v * LANES);
        const __m512 bias = _mm512_loadu_ps(map->bias + column + v * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(product->scales[row + r]));
            __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][v]), both, bias);
            if (product->relu) y = _mm512_max_ps(_mm512_setzero_ps(), y); /* with the arguments in this order, NaN stays NaN */
            _mm512_mask_storeu_ps(product->y + (row + r) * map->d_out + column + v * LANES, there, y);
        }
    }
}

static void block(const Product *product, long begin, long end, long first_panel, long last_panel)
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

static long panels(const Map *map) { return (map->d_out + PANEL - 1) / PANEL; }

static void some_rows(const void *job, long begin, long end)
{
    block(job, begin, end, 0, panels(((const Product *)job)->map));
}

static void some_panels(const void *job, long begin, long end)
{
    block(job, 0, ((const Product *)job)->rows, begin, end);
}

/* x (rows, d_in) to y (rows, d_out); returns 0 if memory cannot be allocated */
static int apply(const Map *map, const float *x, float *y, long rows, int relu, int threads)
{
    const size_t size = (size_t)rows * map->d_in;
    uint8_t *bytes = malloc(size + rows * sizeof(float) + 1);
    if (!bytes) return 0;
    float *scales = (float *)(bytes + size); /* aligned, because d_in is a multiple of 4 */
    for (long row = 0; row < rows; row++)
        scales[row] = to_bytes(x + row * map->d_in, map->d_in, bytes + row * map->d_in);
    const Product product = {map, bytes, scales, y, rows, relu};
    const long products = rows * map->d_in * map->d_out;
    if (rows >= ROWS * threads)
        in_shares(some_rows, &product, rows, products, threads);
    else
        in_shares(some_panels, &product, panels(map), products, threads);
    free(bytes);
    return 1;
}

int linear(const Map *map, const float *x, float *y, long rows, int threads)
{
    return apply(map, x, y, rows, 0, threads);
}

/* softmax(Q K^T / sqrt(d_k)) V for a few queries per head */

typedef struct {
    const float *query, *key, *value;
    const uint8_t *mask; /* (rows, length), 0 where attention is not allowed; or NULL */
    float *out;          /* (batch, queries, heads, d_v) */
    const int64_t *home; /* (batch): the row of each element's keys, values and mask; NULL if it is its index */
    const int64_t *rows; /* (batch, rows_stride): the rows that hold the first positions instead, */
    int64_t rows_stride, known; /* of which `known` are given */
    int64_t batch, heads, queries, length, d_k, d_v; /* widths are multiples of LANES */
    int64_t query_strides[3], key_strides[3], value_strides[3]; /* of batch, heads, positions */
    float scale;
} Attention;

static void weigh(float *scores, long length, const uint8_t *mask)
{
    const __m512 never = _mm512_set1_ps(-INFINITY);
    __m512 most = never;
    for (long l = 0; l < length; l += LANES) {
        __mmask16 there = first(length - l);
        if (mask)
            there = _mm512_mask_test_epi32_mask(
                there, _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(there, mask + l)), _mm512_set1_epi32(0xff));
        const __m512 seen = _mm512_mask_loadu_ps(never, there, scores + l);
        _mm512_mask_storeu_ps(scores + l, first(length - l), seen);
        most = _mm512_max_ps(most, seen);
    }
    const __m512 highest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    __m512 sum = _mm512_setzero_ps();
    for (long l = 0; l < length; l += LANES) {
        const __m512 score = _mm512_mask_loadu_ps(never, first(length - l), scores + l);
        const __mmask16 seen = _mm512_cmp_ps_mask(score, never, _CMP_NEQ_UQ);
        const __m512 weight = _mm512_maskz_mov_ps(seen, exp16(_mm512_sub_ps(score, highest)));
        _mm512_mask_storeu_ps(scores + l, first(length - l), weight);
        sum = _mm512_add_ps(sum, weight);
    }
    const float total = _mm512_reduce_add_ps(sum);
    const __m512 share = _mm512_set1_ps(total != 0 ? 1 / total : 0); /* a query without any allowed key gets zeros */
    for (long l = 0; l < length; l += LANES) {
        const __mmask16 there = first(length - l);
        _mm512_mask_storeu_ps(scores + l, there, _mm512_mul_ps(_mm512_maskz_loadu_ps(there, scores + l), share));
    }
}

static inline __attribute__((always_inline)) void mix(const int vectors, const float *weights, const Attention *a,
    const float *value, const long *rows, float *out)
{
    __m512 sums[VECTORS];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sums[v] = _mm512_setzero_ps();
    for (long l = 0; l < a->length; l++) {
        const __m512 weight = _mm512_set1_ps(weights[l]);
        const float *its = value + rows[l] * a->value_strides[0] + l * a->value_strides[2];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sums[v] = _mm512_fmadd_ps(weight, _mm512_loadu_ps(its + v * LANES), sums[v]);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) _mm512_storeu_ps(out + v * LANES, sums[v]);
}

static void some_sequences(const void *job, long begin, long end)
{
    const Attention *a = job;
    float weights[a->length + 1]; /* at most MAX_KEYS of `kernels.py` */
    long rows[a->length + 1];
    for (long b = begin; b < end; b++) {
        const long home = a->home ? a->home[b] : b;
        for (long l = 0; l < a->length; l++) rows[l] = l < a->known ? a->rows[b * a->rows_stride + l] : home;
        for (long h = 0; h < a->heads; h++) {
            const float *key = a->key + h * a->key_strides[1], *value = a->value + h * a->value_strides[1];
            for (long q = 0; q < a->queries; q++) {
                const float *query =
                    a->query + b * a->query_strides[0] + h * a->query_strides[1] + q * a->query_strides[2];
                for (long l = 0; l < a->length; l++) {
                    const float *its = key + rows[l] * a->key_strides[0] + l * a->key_strides[2];
                    __m512 products = _mm512_setzero_ps();
                    for (long d = 0; d < a->d_k; d += LANES)
                        products = _mm512_fmadd_ps(_mm512_loadu_ps(query + d), _mm512_loadu_ps(its + d), products);
                    weights[l] = _mm512_reduce_add_ps(products) * a->scale;
                }
                weigh(weights, a->length, a->mask ? a->mask + home * a->length : NULL);
                float *out = a->out + ((b * a->queries + q) * a->heads + h) * a->d_v;
                long d = 0;
                for (; d + PANEL <= a->d_v; d += PANEL) mix(VECTORS, weights, a, value + d, rows, out + d);
                for (; d + 2 * LANES <= a->d_v; d += 2 * LANES) mix(2, weights, a, value + d, rows, out + d);
                for (; d < a->d_v; d += LANES) mix(1, weights, a, value + d, rows, out + d);
            }
        }
    }
}

void attend(const Attention *attention, int threads)
{
    const Attention *a = attention;
    in_shares(some_sequences, a, a->batch, a->batch * a->heads * a->queries * a->length * (a->d_k + a->d_v), threads);
}

/* Layers of an encoder or a decoder, and the residual connections around their sub-layers (`Residual`) */

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    Map own, own_output, query, memory_output, inner, outer; /* an encoder layer has no query, memory_output */
    Norm around_own, around_memory, around_feed_forward;     /* and around_memory */
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
} Room;

static int make_room(const Stack *s, long rows, Room *room)
{
    const long keys = s->heads * s->d_k, values = s->heads * s->d_v;
    const long narrowest = values > s->d_model ? values : s->d_model;
    long widest = 2 * keys + values > s->d_ff ? 2 * keys + values : s->d_ff;
    if (widest < s->d_model) widest = s->d_model;
    room->x = malloc((rows * (2 * s->d_model + widest + narrowest) + 1) * sizeof(float));
    if (!room->x) return 0;
    room->normed = room->x + rows * s->d_model;
    room->wide = room->normed + rows * s->d_model;
    room->narrow = room->wide + rows * widest;
    return 1;
}

static void normalise(const Norm *norm, const float *x, float *y, long rows, long width, float epsilon)
{
    for (long r = 0; r < rows; r++, x += width, y += width) {
        __m512 sum = _mm512_setzero_ps(), squares = sum;
        for (long i = 0; i < width; i += LANES) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(first(width - i), x + i));
        const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width);
        for (long i = 0; i < width; i += LANES) {
            const __mmask16 there = first(width - i);
            const __m512 off = _mm512_maskz_sub_ps(there, _mm512_maskz_loadu_ps(there, x + i), mean);
            squares = _mm512_fmadd_ps(off, off, squares);
        }
        const __m512 scale = _mm512_set1_ps(1 / sqrtf(_mm512_reduce_add_ps(squares) / width + epsilon));
        for (long i = 0; i < width; i += LANES) {
            const __mmask16 there = first(width - i);
            const __m512 off = _mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + i), mean);
            const __m512 weight = _mm512_maskz_loadu_ps(there, norm->weight + i);
            const __m512 bias = _mm512_maskz_loadu_ps(there, norm->bias + i);
            _mm512_mask_storeu_ps(y + i, there, _mm512_fmadd_ps(_mm512_mul_ps(off, scale), weight, bias));
        }
    }
}

/* The input of a sub-layer, and the residual connection after it */

static const float *before(const Stack *s, const Norm *norm, const Room *room, long rows)
{
    if (!s->pre) return room->x;
    normalise(norm, room->x, room->normed, rows, s->d_model, s->epsilon);
    return room->normed;
}

static void after(const Stack *s, const Norm *norm, const Room *room, const float *said, long rows)
{
    for (long i = 0; i < rows * s->d_model; i++) room->x[i] += said[i];
    if (!s->pre) normalise(norm, room->x, room->x, rows, s->d_model, s->epsilon);
}

static int feed_forward(const Stack *s, const Layer *layer, const Room *room, long rows, int threads)
{
    const float *in = before(s, &layer->around_feed_forward, room, rows);
    if (!apply(&layer->inner, in, room->wide, rows, 1, threads)) return 0;
    if (!apply(&layer->outer, room->wide, room->narrow, rows, 0, threads)) return 0;
    after(s, &layer->around_feed_forward, room, room->narrow, rows);
    return 1;
}

/* The encoder (`Encoder`), over sources of different lengths stored one after the other, without padding */

typedef struct {
    Attention first; /* for the first token; the others are offset from it */
    const int64_t *begins;
} Sources;

static void some_sources(const void *job, long begin, long end)
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
        some_sequences(&own, 0, 1);
    }
}

/* x (tokens, d_model) to memory (tokens, d_model); source i spans begins[i] to begins[i + 1] */
int encode(const Stack *s, const int64_t *begins, long sources, const float *x, float *memory, int threads)
{
    const long tokens = begins[sources], keys = s->heads * s->d_k, values = s->heads * s->d_v;
    const long row = 2 * keys + values;
    Room room;
    if (!make_room(s, tokens, &room)) return 0;
    memcpy(room.x, x, tokens * s->d_model * sizeof(float));
    const Sources all = {
        .first = {
            .query = room.wide, .key = room.wide + keys, .value = room.wide + 2 * keys, .out = room.narrow,
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
        const float *in = before(s, &layer->around_own, &room, tokens);
        ok = apply(&layer->own, in, room.wide, tokens, 0, threads);
        if (ok) in_shares(some_sources, &all, sources, products, threads);
        ok = ok && apply(&layer->own_output, room.narrow, room.wide, tokens, 0, threads);
        if (ok) after(s, &layer->around_own, &room, room.wide, tokens);
        ok = ok && feed_forward(s, layer, &room, tokens, threads);
    }
    if (s->final)
        normalise(s->final, room.x, memory, tokens, s->d_model, s->epsilon);
    else
        memcpy(memory, room.x, tokens * s->d_model * sizeof(float));
    free(room.x);
    return ok;
}

/* One more token of every hypothesis: embedding, decoder and output (`Transformer.step`) */

typedef struct {
    float *key, *value; /* (rows, heads, capacity, d_k or d_v): of the hypotheses so far */
    const float *memory_key, *memory_value; /* (sources, heads, source, d_k or d_v) */
} Past;

typedef struct {
    Stack stack;
    const Map *output;
    const float *embedding; /* (vocabulary, d_model) */
    const float *positions; /* (positions, d_model): positional encodings */
    const uint8_t *mask;    /* (sources, source) */
    const int64_t *home, *rows; /* the row of each source, and of the past of each hypothesis; see `Attention` */
    int64_t rows_stride, known;
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
static void remember(const Step *s, const Past *past, const float *rows, long targets)
{
    const long heads = s->stack.heads, d_k = s->stack.d_k, d_v = s->stack.d_v;
    for (long t = 0; t < targets; t++, rows += heads * (2 * d_k + d_v))
        for (long h = 0; h < heads; h++) {
            const long place = (t * heads + h) * s->capacity + s->length;
            memcpy(past->key + place * d_k, rows + (heads + h) * d_k, d_k * sizeof(float));
            memcpy(past->value + place * d_v, rows + 2 * heads * d_k + h * d_v, d_v * sizeof(float));
        }
}

enum { DONE, NO_MEMORY, NO_SUCH_TOKEN, NO_NUMBERS };

/* tokens (targets) to logits (targets, vocabulary) */
int step(const Step *step, const Past *pasts, const int64_t *tokens, float *logits, int threads)
{
    const Stack *s = &step->stack;
    const long targets = step->sources * step->width, keys = s->heads * s->d_k, values = s->heads * s->d_v;
    Room room;
    if (!make_room(s, targets, &room)) return NO_MEMORY;
    if (!embed(step, tokens, room.x, targets)) {
        free(room.x);
        return NO_SUCH_TOKEN;
    }
    int ok = 1;
    for (long l = 0; ok && l < s->depth; l++) {
        const Layer *layer = s->layers + l;
        const Past *past = pasts + l;

        const float *in = before(s, &layer->around_own, &room, targets);
        ok = ok && apply(&layer->own, in, room.wide, targets, 0, threads);
        remember(step, past, room.wide, targets);
        const Attention own = {
            .query = room.wide, .key = past->key, .value = past->value, .out = room.narrow,
            .rows = step->rows, .rows_stride = step->rows_stride, .known = step->known,
            .batch = targets, .heads = s->heads, .queries = 1, .length = step->length + 1,
            .d_k = s->d_k, .d_v = s->d_v,
            .query_strides = {2 * keys + values, s->d_k, 0},
            .key_strides = {step->capacity * keys, step->capacity * s->d_k, s->d_k},
            .value_strides = {step->capacity * values, step->capacity * s->d_v, s->d_v},
            .scale = 1 / sqrtf((float)s->d_k),
        };
        attend(&own, threads);
        ok = ok && apply(&layer->own_output, room.narrow, room.wide, targets, 0, threads);
        after(s, &layer->around_own, &room, room.wide, targets);

        in = before(s, &layer->around_memory, &room, targets);
        ok = ok && apply(&layer->query, in, room.wide, targets, 0, threads);
        const Attention memory = {
            .query = room.wide, .key = past->memory_key, .value = past->memory_value, .mask = step->mask,
            .out = room.narrow, .home = step->home,
            .batch = step->sources, .heads = s->heads, .queries = step->width, .length = step->source,
            .d_k = s->d_k, .d_v = s->d_v,
            .query_strides = {step->width * keys, s->d_k, keys},
            .key_strides = {step->source * keys, step->source * s->d_k, s->d_k},
            .value_strides = {step->source * values, step->source * s->d_v, s->d_v},
            .scale = own.scale,
        };
        attend(&memory, threads);
        ok = ok && apply(&layer->memory_output, room.narrow, room.wide, targets, 0, threads);
        after(s, &layer->around_memory, &room, room.wide, targets);

        ok = ok && feed_forward(s, layer, &room, targets, threads);
    }
    if (s->final) normalise(s->final, room.x, room.x, targets, s->d_model, s->epsilon);
    ok = ok && apply(step->output, room.x, logits, targets, 0, threads);
    free(room.x);
    return ok ? DONE : NO_MEMORY;
}

/* The best continuations: the highest log(softmax(logits)) + sum over all hypotheses of a sentence */

typedef struct {
    const float *logits, *sums; /* (sentences, width, vocabulary), (sentences, width) */
    const int64_t *silent;      /* tokens that are never chosen */
    float *scores;              /* (sentences, count), highest first */
    int64_t *parents, *tokens;  /* (sentences, count): the hypothesis and the token of each continuation */
    int64_t sentences, width, vocabulary, count, silents;
} Choice;

static float log_of_sum(const float *x, long width) /* log(sum(exp(x))) */
{
    const __m512 never = _mm512_set1_ps(-INFINITY);
    __m512 most = never;
    for (long i = 0; i < width; i += LANES)
        most = _mm512_max_ps(most, _mm512_mask_loadu_ps(never, first(width - i), x + i));
    const float highest = _mm512_reduce_max_ps(most);
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < width; i += LANES) {
        const __mmask16 there = first(width - i);
        const __m512 below = _mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + i), _mm512_set1_ps(highest));
        sum = _mm512_mask_add_ps(sum, there, sum, exp16(below));
    }
    return highest + logf(_mm512_reduce_add_ps(sum));
}

static int is_silent(const Choice *c, long token)
{
    for (long i = 0; i < c->silents; i++)
        if (c->silent[i] == token) return 1;
    return 0;
}

static void some_choices(const void *job, long begin, long end)
{
    const Choice *c = job;
    for (long s = begin; s < end; s++) {
        float *scores = c->scores + s * c->count;
        int64_t *parents = c->parents + s * c->count, *tokens = c->tokens + s * c->count;
        for (long n = 0; n < c->count; n++) scores[n] = -INFINITY, parents[n] = tokens[n] = 0;
        for (long h = 0; h < c->width; h++) {
            const long hypothesis = s * c->width + h;
            const float *logits = c->logits + hypothesis * c->vocabulary;
            const float sum = c->sums[hypothesis], all = log_of_sum(logits, c->vocabulary);
            if (isnan(all)) { /* the caller reports NaN logits */
                for (long n = 0; n < c->count; n++) scores[n] = NAN;
                break;
            }
            for (long i = 0; i < c->vocabulary; i += LANES) {
                const __mmask16 there = first(c->vocabulary - i);
                const __m512 below = _mm512_sub_ps(_mm512_maskz_loadu_ps(there, logits + i), _mm512_set1_ps(all));
                /* Rounding must not make a log-probability positive: sums never rise. */
                const __m512 score = _mm512_add_ps(_mm512_min_ps(below, _mm512_setzero_ps()), _mm512_set1_ps(sum));
                /* After the first few tokens, hardly any is among the best so far. */
                unsigned better =
                    _mm512_mask_cmp_ps_mask(there, score, _mm512_set1_ps(scores[c->count - 1]), _CMP_GT_OQ);
                for (; better; better &= better - 1) {
                    const long token = i + __builtin_ctz(better);
                    const float its = fminf(logits[token] - all, 0) + sum;
                    long n = c->count - 1;
                    if (!(its > scores[n]) || is_silent(c, token)) continue;
                    for (; n > 0 && its > scores[n - 1]; n--)
                        scores[n] = scores[n - 1], parents[n] = parents[n - 1], tokens[n] = tokens[n - 1];
                    scores[n] = its, parents[n] = h, tokens[n] = token;
                }
            }
        }
    }
}

void choose(const Choice *choice, int threads)
{
    const long logits = choice->sentences * choice->width * choice->vocabulary;
    in_shares(some_choices, choice, choice->sentences, 32 * logits, threads); /* an exponential takes as long as 32 products */
}

/* Moves rows in several arrays: row i of `count` becomes row rows[i] of `batch`, in each of `parts` pieces. Returns
 * 0 and does nothing if a row is out of range or would be overwritten before it is read. Sizes are in bytes. */
int move(char *const *arrays, long many, long batch, const int64_t *rows, long count, long parts, long part_size,
    long filled)
{
    const long row_size = parts * part_size;
    if (count > batch) return 0;
    for (long i = 0; i < count; i++) {
        const long from = rows[i];
        if (from < 0 || from >= batch || (from != i && from < count && rows[from] != from)) return 0;
    }
    for (long a = 0; a < many; a++)
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
    const int64_t *silent;
    int64_t silents, beam, count, eos, exact;
    int64_t *going;            /* (sources): the indices of unfinished sources */
    int64_t *rows, *next_rows; /* (targets, stride): see `Attention` */
    int64_t *origins, *tokens; /* (lengths, targets): every token, and the hypothesis it continues; */
    float *sums;               /* the tokens of length 0 are bos */
    Ending *endings;           /* (sources, beam), best first */
    int64_t *ended;            /* (sources): number of endings */
    float *logits, *scores;    /* (targets, vocabulary), (sources, 2 beam) */
    int64_t *parents, *chosen; /* (sources, 2 beam) */
    int64_t targets;           /* sources x beam */
} Search;

static void finish(const Search *s, long source, Ending new)
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
    const double most = fmax(s->penalties[length + 1], s->penalties[limit]);
    return s->endings[source * s->beam + s->count - 1].score >= highest / most;
}

/* Advances every hypothesis by one token; `of` then has the number of unfinished sources and their length */
int advance(Step *of, const Past *pasts, Search *s, int threads)
{
    const long length = of->length, width = of->width, candidates = 2 * s->beam;
    const int trouble = step(of, pasts, s->tokens + length * s->targets, s->logits, threads);
    if (trouble) return trouble;
    const Choice choice = {s->logits, s->sums + length * s->targets, s->silent, s->scores, s->parents, s->chosen,
        of->sources, width, of->output->d_out, candidates, s->silents};
    choose(&choice, threads);
    int64_t *origins = s->origins + (length + 1) * s->targets, *tokens = s->tokens + (length + 1) * s->targets;
    float *sums = s->sums + (length + 1) * s->targets;
    long going = 0;
    for (long i = 0; i < of->sources; i++) {
        const long source = s->going[i], first_place = going * s->beam;
        if (isnan(s->scores[i * candidates])) return NO_NUMBERS;
        long place = first_place;
        for (long rank = 0, c = i * candidates; place < first_place + s->beam && rank < candidates; rank++, c++) {
            const Ending it = {0, length, i * width + s->parents[c], s->chosen[c], s->scores[c]};
            if (it.token != s->eos) { /* each hypothesis has one continuation that ends: at least `beam` others are left */
                origins[place] = it.origin, tokens[place] = it.token, sums[place] = it.sum;
                place++;
            } else if (rank < s->beam)
                finish(s, source, it);
        }
        if (!is_done(s, source, length + 1, sums[first_place])) {
            s->going[going++] = source;
            continue;
        }
        if (length + 1 >= s->limits[source]) /* cut off at the maximum length */
            for (long p = first_place; p < place; p++)
                finish(s, source, (Ending){0, length, origins[p], tokens[p], sums[p]});
    }
    for (long t = 0; t < going * s->beam; t++) {
        int64_t *rows = s->next_rows + t * of->rows_stride;
        memcpy(rows, s->rows + origins[t] * of->rows_stride, length * sizeof *rows);
        rows[length] = origins[t];
    }
    int64_t *const rows = s->rows;
    s->rows = s->next_rows, s->next_rows = rows;
    of->rows = s->rows, of->known = of->length = length + 1, of->sources = going, of->width = s->beam;
    return DONE;
}

/* Sizes of the structures, which Python compares with its own */
const long sizes[] = {sizeof(Map), sizeof(Attention), sizeof(Choice), sizeof(Norm), sizeof(Layer), sizeof(Stack),
    sizeof(Past), sizeof(Step), sizeof(Ending), sizeof(Search)};
