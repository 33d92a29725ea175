/* Sub-layers of training, shared by threads */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 16 }; /* into which rows are divided, however many threads there are: sums are added in the same order */

typedef struct {
    const Kernels *kernels;
    const Residual *residual;
    float *d_weight, *d_bias; /* (PARTS, width) */
} ResidualJob;

static void residual_rows(const void *job, long begin, long end)
{
    const ResidualJob *j = job;
    j->kernels->residual(j->residual, begin, end);
}

static void residual_parts(const void *job, long begin, long end)
{
    const ResidualJob *j = job;
    const long rows = j->residual->rows, width = j->residual->width;
    for (long part = begin; part < end; part++)
        j->kernels->residual_backward(j->residual, rows * part / PARTS, rows * (part + 1) / PARTS,
            j->d_weight + part * width, j->d_bias + part * width);
}

static int is_valid(const Residual *r) { return r->rows >= 0 && r->width > 0 && r->width % WIDEST_VECTOR == 0; }

/* sum = x + dropout(update), and if there is a norm, y = norm(sum) */
EXPORT int transduce_residual(const Kernels *k, const Residual *r, int32_t threads)
{
    if (!is_valid(r)) return BAD_ARGUMENT;
    const ResidualJob job = {k, r, NULL, NULL};
    transduce_parallel(residual_rows, &job, r->rows, 8 * r->rows * r->width, threads);
    return DONE;
}

/* d_x, d_update, d_weight (width) and d_bias (width) from d_y; without a norm, d_update alone */
EXPORT int transduce_residual_backward(const Kernels *k, const Residual *r, float *d_weight, float *d_bias, int32_t threads)
{
    if (!is_valid(r)) return BAD_ARGUMENT;
    float *sums = calloc(2 * PARTS * r->width, sizeof *sums);
    if (!sums) return NO_MEMORY;
    const ResidualJob job = {k, r, sums, sums + PARTS * r->width};
    transduce_parallel(residual_parts, &job, PARTS, 8 * r->rows * r->width, threads);
    for (long i = 0; r->norm.weight && i < r->width; i++) {
        d_weight[i] = d_bias[i] = 0;
        for (long part = 0; part < PARTS; part++)
            d_weight[i] += job.d_weight[part * r->width + i], d_bias[i] += job.d_bias[part * r->width + i];
    }
    free(sums);
    return DONE;
}

typedef struct {
    const Kernels *kernels;
    float *d, *d_bias; /* (rows, width), (PARTS, width) */
    const float *active;
    long rows, width;
} ReluJob;

static void relu_parts(const void *job, long begin, long end)
{
    const ReluJob *j = job;
    for (long part = begin; part < end; part++) {
        const long first = j->rows * part / PARTS, last = j->rows * (part + 1) / PARTS;
        j->kernels->relu_backward(j->d + first * j->width, j->active + first * j->width, last - first, j->width,
            j->d_bias + part * j->width);
    }
}

/* d (rows, width) becomes 0 where `active`, the result of a ReLU, is 0; d_bias (width) receives its sum over rows. */
EXPORT int transduce_relu_backward(const Kernels *k, float *d, const float *active, int64_t rows, int64_t width, float *d_bias,
    int32_t threads)
{
    if (rows < 0 || width < 1 || width % WIDEST_VECTOR) return BAD_ARGUMENT;
    float *sums = calloc(PARTS * width, sizeof *sums);
    if (!sums) return NO_MEMORY;
    const ReluJob job = {k, d, sums, active, rows, width};
    transduce_parallel(relu_parts, &job, PARTS, 4 * rows * width, threads);
    for (long i = 0; i < width; i++) {
        d_bias[i] = 0;
        for (long part = 0; part < PARTS; part++) d_bias[i] += sums[part * width + i];
    }
    free(sums);
    return DONE;
}

typedef struct {
    const Kernels *kernels;
    float *logits, *numbers;
    const int64_t *labels;
    long vocabulary;
    float smoothing;
} LossJob;

static void loss_rows(const void *job, long begin, long end)
{
    const LossJob *j = job;
    for (long row = begin; row < end; row++)
        j->kernels->cross_entropy_row(j->logits + row * j->vocabulary, j->vocabulary, j->labels[row], j->smoothing, j->numbers + 4 * row);
}

/* logits (rows, vocabulary) become gradients, up to a factor; numbers (rows, 4): see `cross_entropy_row` */
EXPORT int transduce_cross_entropy(const Kernels *k, float *logits, const int64_t *labels, int64_t rows, int64_t vocabulary,
    float smoothing, float *numbers, int32_t threads)
{
    if (rows < 0 || vocabulary < 1) return BAD_ARGUMENT;
    for (int64_t row = 0; row < rows; row++)
        if (labels[row] < 0 || labels[row] >= vocabulary) return BAD_ARGUMENT;
    const LossJob job = {k, logits, numbers, labels, vocabulary, smoothing};
    transduce_parallel(loss_rows, &job, rows, 16 * rows * vocabulary, threads);
    return DONE;
}

typedef struct {
    const Kernels *kernels;
    const FullAttention *attention;
    void (*work)(const FullAttention *attention, long example, long head, float *scratch);
    long scratch; /* floats */
    int failed;
} AttentionJob;

static void attend_heads(const void *job, long begin, long end) /* over examples x heads */
{
    AttentionJob *j = (AttentionJob *)job;
    void *scratch = NULL;
    if (posix_memalign(&scratch, 64, j->scratch * sizeof(float))) {
        j->failed = 1; /* every thread writes the same value */
        return;
    }
    for (long i = begin; i < end; i++) j->work(j->attention, i / j->attention->heads, i % j->attention->heads, scratch);
    free(scratch);
}

/* Attention of whole examples: weights and out; or with `backward`, d_query, d_key and d_value from d_out */
EXPORT int transduce_attention(const Kernels *k, const FullAttention *a, int32_t backward, int32_t threads)
{
    if (a->d_k % 16 || a->d_v % 16 || a->d_k < 16 || a->d_v < 16 || a->examples < 0 || a->queries < 0 || a->keys < 1)
        return BAD_ARGUMENT;
    if (a->weight_stride % WIDEST_VECTOR || a->weight_stride < a->keys) return BAD_ARGUMENT;
    for (long i = 0; i < a->examples; i++) {
        if (a->query_lengths[i] < 0 || a->query_lengths[i] > a->queries) return BAD_ARGUMENT;
        if (a->key_lengths[i] < 0 || a->key_lengths[i] > a->keys) return BAD_ARGUMENT;
    }
    const long widest = a->d_k > a->d_v ? a->d_k : a->d_v;
    AttentionJob job = {k, a, backward ? k->attend_example_backward : k->attend_example,
        (widest + (backward ? a->queries : 0)) * a->weight_stride, 0};
    const long products = a->examples * a->queries * a->keys * a->heads * (a->d_k + a->d_v) * (backward ? 3 : 1);
    transduce_parallel(attend_heads, &job, a->examples * a->heads, products, threads);
    return job.failed ? NO_MEMORY : DONE;
}
