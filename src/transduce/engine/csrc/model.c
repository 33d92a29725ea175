/* Encoders and decoders: layers, and one more position of every hypothesis */
#include "engine.h"
#include "transpose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float *allocate(long count) /* floats; or NULL */
{
    void *memory = NULL;
    return posix_memalign(&memory, 64, (size_t)(count + WIDEST_VECTOR) * sizeof(float)) ? NULL : memory;
}

/* Linear layers */

typedef struct {
    const Kernels *kernels;
    Product product;
} Multiplication;

static long panels_of(const Kernels *kernels, const Linear *linear)
{
    return (linear->d_out + kernels->panel - 1) / kernels->panel;
}

static void multiply_rows(const void *job, long begin, long end)
{
    const Multiplication *m = job;
    m->kernels->multiply(&m->product, begin, end, 0, panels_of(m->kernels, m->product.linear));
}

static void multiply_panels(const void *job, long begin, long end)
{
    const Multiplication *m = job;
    m->kernels->multiply(&m->product, 0, m->product.rows, begin, end);
}

/* x (rows, stride), of which the first d_in columns are used, to y (rows, padded(d_out)) */
int transduce_apply(const Kernels *k, const Linear *linear, const float *x, long stride, float *y, long rows, int activation,
    int threads)
{
    const long d_in = linear->d_in;
    Multiplication m = {k, {.linear = linear, .x = x, .y = y, .rows = rows, .activation = activation}};
    float *scratch = NULL;
    if (linear->kind == INT8) {
        scratch = allocate(rows + rows * d_in / 4);
        if (!scratch) return NO_MEMORY;
        uint8_t *bytes = (uint8_t *)(scratch + rows);
        k->quantise(x, rows, d_in, stride, bytes, scratch);
        m.product.x = bytes, m.product.scales = scratch;
    } else if (linear->kind == BFLOAT16) {
        scratch = allocate(rows * d_in / 2);
        if (!scratch) return NO_MEMORY;
        k->to_bfloat16(x, rows, d_in, stride, (uint16_t *)scratch);
        m.product.x = scratch;
    } else if (stride != d_in) {
        scratch = allocate(rows * d_in);
        if (!scratch) return NO_MEMORY;
        for (long r = 0; r < rows; r++) memcpy(scratch + r * d_in, x + r * stride, d_in * sizeof(float));
        m.product.x = scratch;
    }
    const long weight = linear->kind == INT8 ? 1 : linear->kind == BFLOAT16 ? 2 : 4; /* time of a product, and bytes to read */
    const long products = weight * rows * d_in * linear->d_out;
    if (rows >= 8 * threads)
        transduce_parallel(multiply_rows, &m, rows, products, threads);
    else
        transduce_parallel(multiply_panels, &m, panels_of(k, linear), products, threads);
    free(scratch);
    return DONE;
}

EXPORT int transduce_linear(const Kernels *k, const Linear *linear, const float *x, float *y, int64_t rows, int32_t threads)
{
    if (rows < 0 || linear->d_in % 16 || linear->d_in <= 0) return BAD_ARGUMENT;
    return transduce_apply(k, linear, x, linear->d_in, y, rows, NO_ACTIVATION, threads);
}

/* Scratch memory of a stack: one row per position */

typedef struct {
    float *x, *normed; /* (rows, d_model) */
    float *wide;       /* (rows, the widest result) */
    float *narrow;     /* (rows, d_model or heads x d_v) */
    long rows;
} Scratch;

static long longer(long a, long b) { return a > b ? a : b; }

static int allocate_scratch(const Stack *s, long rows, Scratch *scratch)
{
    const long keys = s->heads * s->d_k, values = s->heads * s->d_v;
    const long inner = s->activation == SWIGLU ? 2 * s->d_ff : s->d_ff;
    const long wide = longer(padded(2 * keys + values), longer(padded(inner), padded(s->d_model)));
    const long narrow = longer(padded(s->d_model), values);
    scratch->rows = rows;
    scratch->x = allocate(rows * (2 * s->d_model + wide + narrow));
    if (!scratch->x) return NO_MEMORY;
    scratch->normed = scratch->x + rows * s->d_model;
    scratch->wide = scratch->normed + rows * s->d_model;
    scratch->narrow = scratch->wide + rows * wide;
    return DONE;
}

/* The input of a sub-layer, and the residual connection after it */

static const float *sublayer_input(const Kernels *k, const Stack *s, const Norm *norm, const Scratch *scratch)
{
    if (!s->pre) return scratch->x;
    k->normalise(norm, scratch->x, scratch->normed, scratch->rows, s->d_model, s->epsilon);
    return scratch->normed;
}

static void add_residual(const Kernels *k, const Stack *s, const Norm *norm, const Scratch *scratch, const float *output)
{
    k->add(scratch->x, output, scratch->rows, s->d_model, padded(s->d_model));
    if (!s->pre) k->normalise(norm, scratch->x, scratch->x, scratch->rows, s->d_model, s->epsilon);
}

static int feed_forward(const Kernels *k, const Stack *s, const Layer *layer, const Scratch *scratch, int threads)
{
    const float *in = sublayer_input(k, s, &layer->around_feed_forward, scratch);
    const long width = layer->inner.d_out, stride = padded(width);
    const int in_product = s->activation == RELU ? RELU : NO_ACTIVATION;
    if (transduce_apply(k, &layer->inner, in, s->d_model, scratch->wide, scratch->rows, in_product, threads)) return NO_MEMORY;
    if (!in_product) k->activate(s->activation, scratch->wide, scratch->rows, width, stride);
    if (transduce_apply(k, &layer->outer, scratch->wide, stride, scratch->narrow, scratch->rows, NO_ACTIVATION, threads))
        return NO_MEMORY;
    add_residual(k, s, &layer->around_feed_forward, scratch, scratch->narrow);
    return DONE;
}

/* Rotates the pairs of dimensions of queries and keys in one row of query_key_value by the angles of a position. */
static void rotate(const Stack *s, float *row, long position)
{
    const float *turn = s->rotations + position * s->d_k;
    for (long head = 0; head < 2 * s->heads; head++, row += s->d_k)
        for (long i = 0; i < s->d_k; i += 2) {
            const float even = row[i], odd = row[i + 1];
            row[i] = even * turn[i] - odd * turn[i + 1];
            row[i + 1] = even * turn[i + 1] + odd * turn[i];
        }
}

static long whole_vectors(long length) { return (length + WIDEST_VECTOR - 1) / WIDEST_VECTOR * WIDEST_VECTOR; }

/* The encoder, over sources of different lengths stored one after the other, without padding */

typedef struct {
    const Kernels *kernels;
    const Stack *stack;
    const int64_t *begins;
    const float *rows; /* (tokens, row_stride): queries, keys, values */
    float *out;        /* (tokens, heads x d_v) */
    long row_stride;
    int failed;
} SelfAttention;

static void attend_sources(const void *job, long begin, long end) /* over sources x heads */
{
    SelfAttention *a = (SelfAttention *)job;
    const Stack *s = a->stack;
    const long keys = s->heads * s->d_k, values = s->heads * s->d_v;
    long longest = 0;
    for (long i = begin; i < end; i++) longest = longer(longest, a->begins[i / s->heads + 1] - a->begins[i / s->heads]);
    const long most = whole_vectors(longest);
    float *scratch = allocate((s->d_k + 4) * most);
    if (!scratch) {
        a->failed = 1; /* every thread writes the same value */
        return;
    }
    for (long i = begin; i < end; i++) {
        const long head = i % s->heads, token = a->begins[i / s->heads], length = a->begins[i / s->heads + 1] - token;
        const float *row = a->rows + token * a->row_stride;
        const long stride = whole_vectors(length);
        transpose(row + keys + head * s->d_k, length, s->d_k, a->row_stride, scratch, stride);
        const Attention own = {
            .query = row + head * s->d_k, .keys = scratch, .values = row + 2 * keys + head * s->d_v,
            .out = a->out + token * values + head * s->d_v, .scores = scratch + s->d_k * most,
            .queries = length, .length = length, .d_k = s->d_k, .d_v = s->d_v,
            .query_stride = a->row_stride, .key_stride = stride, .value_stride = a->row_stride, .out_stride = values,
            .scale = 1 / sqrtf((float)s->d_k),
        };
        a->kernels->attend(&own);
    }
    free(scratch);
}

static int check_sources(const int64_t *begins, int64_t sources, int64_t positions)
{
    if (sources < 0 || begins[0] != 0) return BAD_ARGUMENT;
    for (int64_t i = 0; i < sources; i++)
        if (begins[i + 1] < begins[i] || (positions >= 0 && begins[i + 1] - begins[i] > positions)) return BAD_ARGUMENT;
    return DONE;
}

/* x (tokens, d_model), embedded, to memory (tokens, d_model); source i spans begins[i] to begins[i + 1] */
EXPORT int transduce_encode(const Kernels *k, const Stack *s, const int64_t *begins, int64_t sources, const float *x,
    float *memory, int32_t threads)
{
    if (check_sources(begins, sources, s->rotations ? s->positions : -1)) return BAD_ARGUMENT;
    const long tokens = begins[sources], keys = s->heads * s->d_k, values = s->heads * s->d_v;
    Scratch scratch;
    if (allocate_scratch(s, tokens, &scratch)) return NO_MEMORY;
    memcpy(scratch.x, x, tokens * s->d_model * sizeof(float));
    SelfAttention job = {k, s, begins, scratch.wide, scratch.narrow, padded(2 * keys + values), 0};
    const long products = sources ? tokens * (tokens / sources + 1) * (keys + values) : 0; /* approximately */
    int error = DONE;
    for (long l = 0; !error && l < s->depth; l++) {
        const Layer *layer = s->layers + l;
        const float *in = sublayer_input(k, s, &layer->around_self_attention, &scratch);
        error = transduce_apply(k, &layer->query_key_value, in, s->d_model, scratch.wide, tokens, NO_ACTIVATION, threads);
        if (s->rotations && !error)
            for (int64_t i = 0; i < sources; i++)
                for (int64_t token = begins[i]; token < begins[i + 1]; token++)
                    rotate(s, scratch.wide + token * job.row_stride, token - begins[i]);
        if (!error) transduce_parallel(attend_sources, &job, sources * s->heads, products, threads);
        error = error || job.failed ? NO_MEMORY
                                    : transduce_apply(k, &layer->self_output, scratch.narrow, values, scratch.wide, tokens,
                                          NO_ACTIVATION, threads);
        if (!error) add_residual(k, s, &layer->around_self_attention, &scratch, scratch.wide);
        error = error || feed_forward(k, s, layer, &scratch, threads) ? NO_MEMORY : DONE;
    }
    if (s->final)
        k->normalise(s->final, scratch.x, memory, tokens, s->d_model, s->epsilon);
    else
        memcpy(memory, scratch.x, tokens * s->d_model * sizeof(float));
    free(scratch.x);
    return error;
}

/* The keys, transposed, and values of a source for every layer of a decoder: see `Source` */
EXPORT int transduce_project(const Kernels *k, const Stack *s, const float *memory, int64_t length, int64_t stride,
    float *keys, float *values, int32_t threads)
{
    if (length < 0 || stride < whole_vectors(length) || !s->has_memory) return BAD_ARGUMENT;
    const long width = s->heads * (s->d_k + s->d_v), row_stride = padded(width);
    float *rows = allocate(length * row_stride);
    if (!rows) return NO_MEMORY;
    int error = DONE;
    for (long l = 0; !error && l < s->depth; l++) {
        error = transduce_apply(k, &s->layers[l].memory_key_value, memory, s->d_model, rows, length, NO_ACTIVATION, threads);
        for (long h = 0; !error && h < s->heads; h++) {
            transpose(rows + h * s->d_k, length, s->d_k, row_stride, keys + (l * s->heads + h) * s->d_k * stride, stride);
            float *value = values + (l * s->heads + h) * length * s->d_v;
            for (long i = 0; i < length; i++)
                memcpy(value + i * s->d_v, rows + i * row_stride + s->heads * s->d_k + h * s->d_v, s->d_v * sizeof(float));
        }
    }
    free(rows);
    return error;
}

/* One more position of every hypothesis */

typedef struct {
    const Kernels *kernels;
    const Decoder *decoder;
    const Step *step;
    const Scratch *scratch;
    long layer, longest;
    int failed;
} LayerJob;

static void attend_own(const void *job, long begin, long end) /* over targets */
{
    LayerJob *j = (LayerJob *)job;
    const Stack *s = &j->decoder->stack;
    const Step *step = j->step;
    float *scores = allocate(s->heads * j->longest);
    const float **rows = malloc(j->longest * sizeof *rows);
    if (!scores || !rows) j->failed = 1, begin = end; /* every thread writes the same value */
    const long keys = s->heads * s->d_k, values = s->heads * s->d_v, stride = padded(2 * keys + values);
    for (long t = begin; t < end; t++) {
        const PastAttention past = {
            .query = j->scratch->wide + t * stride, .keys = step->keys, .values = step->values,
            .past = step->past ? step->past[t] : NULL, .out = j->scratch->narrow + t * values,
            .scores = scores, .rows = rows, .row = step->rows[t],
            .first_row = j->layer * step->cache_rows, .length = step->positions[t] + 1, .page_size = step->page_size,
            .heads = s->heads, .d_k = s->d_k, .d_v = s->d_v, .scale = 1 / sqrtf((float)s->d_k),
        };
        j->kernels->attend_past(&past);
    }
    free(scores);
    free(rows);
}

static void attend_memory(const void *job, long begin, long end) /* over sources */
{
    LayerJob *j = (LayerJob *)job;
    const Stack *s = &j->decoder->stack;
    float *scores = allocate(4 * j->longest);
    if (!scores) j->failed = 1, begin = end;
    const long query_stride = padded(s->heads * s->d_k), values = s->heads * s->d_v;
    for (long i = begin; i < end; i++) {
        const Source *source = j->step->sources + i;
        const long first = j->step->first_targets[i];
        for (long h = 0; h < s->heads; h++) {
            const long place = j->layer * s->heads + h;
            const Attention own = {
                .query = j->scratch->wide + first * query_stride + h * s->d_k,
                .keys = source->keys + place * s->d_k * source->stride,
                .values = source->values + place * source->length * s->d_v,
                .out = j->scratch->narrow + first * values + h * s->d_v, .scores = scores,
                .weights = j->step->attention ? j->step->attention
                        + ((j->layer * j->step->targets + first) * s->heads + h) * j->step->attention_stride : NULL,
                .weight_stride = s->heads * j->step->attention_stride,
                .queries = j->step->first_targets[i + 1] - first, .length = source->length, .d_k = s->d_k, .d_v = s->d_v,
                .query_stride = query_stride, .key_stride = source->stride, .value_stride = s->d_v, .out_stride = values,
                .scale = 1 / sqrtf((float)s->d_k),
            };
            j->kernels->attend(&own);
        }
    }
    free(scores);
}

/* Copies keys and values, which follow the queries in each row, into the caches. */
static void append(const Stack *s, const Step *step, long layer, float *rows)
{
    const long keys = s->heads * s->d_k, values = s->heads * s->d_v, stride = padded(2 * keys + values);
    for (long t = 0; t < step->targets; t++, rows += stride) {
        if (s->rotations) rotate(s, rows, step->positions[t]);
        const long page = step->positions[t] / step->page_size;
        const long row = layer * step->cache_rows + step->rows[t];
        const long place = row * step->page_size + step->positions[t] % step->page_size;
        memcpy(step->keys[page] + place * keys, rows + keys, keys * sizeof(float));
        memcpy(step->values[page] + place * values, rows + 2 * keys, values * sizeof(float));
    }
}

/* The recurrent unit: its states are in the places of keys. rows (targets, padded(2 d_model)), out (targets, padded(d_model)) */
static void recur(const Kernels *k, const Stack *s, const Step *step, long layer, const float *rows, float *out)
{
    const long width = s->d_model, first = layer * step->cache_rows;
    for (long t = 0; t < step->targets; t++, rows += padded(2 * width), out += padded(width)) {
        const long position = step->positions[t], before = position - 1;
        const float *past = NULL;
        if (position) {
            const long row = first + (step->past ? step->past[t][before] : step->rows[t]);
            past = step->keys[before / step->page_size] + (row * step->page_size + before % step->page_size) * width;
        }
        const long place = (first + step->rows[t]) * step->page_size + position % step->page_size;
        k->recur(rows, past, step->keys[position / step->page_size] + place * width, out, width);
    }
}

static int check_step(const Decoder *d, const Step *step)
{
    const Stack *s = &d->stack;
    if (s->is_recurrent && s->d_model != s->heads * s->d_k) return BAD_ARGUMENT;
    const long limit = d->positions || s->rotations ? s->positions : INT32_MAX;
    for (long t = 0; t < step->targets; t++) {
        const long position = step->positions[t], row = step->rows[t];
        if (step->tokens[t] < 0 || step->tokens[t] >= d->vocabulary) return BAD_ARGUMENT;
        if (position < 0 || position >= step->pages * step->page_size || position >= limit) return BAD_ARGUMENT;
        if (row < 0 || row >= step->cache_rows) return BAD_ARGUMENT;
        for (long l = 0; step->past && l < position; l++)
            if (step->past[t][l] < 0 || step->past[t][l] >= step->cache_rows) return BAD_ARGUMENT;
    }
    if (!s->has_memory) return DONE;
    if (step->first_targets[0] != 0 || step->first_targets[step->source_count] != step->targets) return BAD_ARGUMENT;
    for (long i = 0; i < step->source_count; i++) {
        if (step->first_targets[i + 1] < step->first_targets[i]) return BAD_ARGUMENT;
        const Source *source = step->sources + i;
        if (source->length < 1 || source->stride < whole_vectors(source->length)) return BAD_ARGUMENT;
        if (step->attention && step->attention_stride < source->length) return BAD_ARGUMENT;
    }
    return DONE;
}

static int run_layer(const LayerJob *job, int threads)
{
    const Kernels *k = job->kernels;
    const Stack *s = &job->decoder->stack;
    const Scratch *scratch = job->scratch;
    const Layer *layer = s->layers + job->layer;
    const long rows = scratch->rows, values = s->heads * s->d_v;

    const float *in = sublayer_input(k, s, &layer->around_self_attention, scratch);
    if (transduce_apply(k, &layer->query_key_value, in, s->d_model, scratch->wide, rows, NO_ACTIVATION, threads)) return NO_MEMORY;
    if (s->is_recurrent) {
        recur(k, s, job->step, job->layer, scratch->wide, scratch->narrow);
        add_residual(k, s, &layer->around_self_attention, scratch, scratch->narrow);
    } else {
        append(s, job->step, job->layer, scratch->wide);
        transduce_parallel(attend_own, job, rows, rows * job->longest * 2 * values, threads);
        if (job->failed) return NO_MEMORY;
        if (transduce_apply(k, &layer->self_output, scratch->narrow, values, scratch->wide, rows, NO_ACTIVATION, threads))
            return NO_MEMORY;
        add_residual(k, s, &layer->around_self_attention, scratch, scratch->wide);
    }

    if (s->has_memory) {
        in = sublayer_input(k, s, &layer->around_memory_attention, scratch);
        if (transduce_apply(k, &layer->memory_query, in, s->d_model, scratch->wide, rows, NO_ACTIVATION, threads)) return NO_MEMORY;
        transduce_parallel(attend_memory, job, job->step->source_count, rows * job->longest * 2 * values, threads);
        if (job->failed) return NO_MEMORY;
        if (transduce_apply(k, &layer->memory_output, scratch->narrow, values, scratch->wide, rows, NO_ACTIVATION, threads))
            return NO_MEMORY;
        add_residual(k, s, &layer->around_memory_attention, scratch, scratch->wide);
    }
    return feed_forward(k, s, layer, scratch, threads);
}

/* Reads one token per hypothesis; hidden (targets, d_model) receives the input of the output layer, or may be NULL */
int transduce_hidden(const Kernels *k, const Decoder *d, const Step *step, float *hidden, int32_t threads)
{
    const Stack *s = &d->stack;
    const long targets = step->targets, width = s->d_model;
    if (step->page_size < 1 || check_step(d, step)) return BAD_ARGUMENT;
    if (!targets) return DONE;
    long longest = 0;
    for (long t = 0; t < targets; t++) longest = longer(longest, step->positions[t] + 1);
    for (long i = 0; s->has_memory && i < step->source_count; i++) longest = longer(longest, step->sources[i].stride);
    longest = whole_vectors(longest);
    Scratch scratch;
    if (allocate_scratch(s, targets, &scratch)) return NO_MEMORY;
    int error = DONE;
    for (long t = 0; t < targets; t++) {
        const float *row = d->embedding + step->tokens[t] * width;
        const float *position = d->positions ? d->positions + step->positions[t] * width : NULL;
        for (long i = 0; i < width; i++) scratch.x[t * width + i] = row[i] * d->scale + (position ? position[i] : 0.0f);
    }
    if (d->norm) k->normalise(d->norm, scratch.x, scratch.x, targets, width, s->epsilon);
    LayerJob job = {k, d, step, &scratch, 0, longest, 0};
    for (; !error && job.layer < s->depth; job.layer++) error = run_layer(&job, threads);
    if (s->final) k->normalise(s->final, scratch.x, scratch.x, targets, width, s->epsilon);
    if (hidden && !error) memcpy(hidden, scratch.x, targets * width * sizeof *hidden);
    free(scratch.x);
    return error;
}

/* Reads one token per hypothesis; logits (targets, padded(vocabulary)), minus infinity beyond the vocabulary; or NULL */
EXPORT int transduce_step(const Kernels *k, const Decoder *d, const Step *step, float *logits, int32_t threads)
{
    const long width = d->stack.d_model;
    if (!logits || step->targets < 1) return transduce_hidden(k, d, step, NULL, threads);
    float *hidden = allocate(step->targets * width);
    if (!hidden) return NO_MEMORY;
    int error = transduce_hidden(k, d, step, hidden, threads);
    if (!error) error = transduce_apply(k, &d->output, hidden, width, logits, step->targets, NO_ACTIVATION, threads);
    free(hidden);
    return error;
}
