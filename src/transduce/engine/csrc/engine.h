/* The structures that Python fills in, and what the files of the engine offer one another.
 *
 * Arrays are contiguous and row-major unless strides are given. All widths (d_model, d_ff, d_k, d_v) are multiples
 * of 16, so that no loop over a width has a remainder. Rows of results have room for whole panels: `padded`.
 */
#ifndef TRANSDUCE_ENGINE_H
#define TRANSDUCE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11))
#define HAVE_AVXVNNI 1
#else
#define HAVE_AVXVNNI 0
#endif

#if defined(__x86_64__) && ((defined(__clang__) && __clang_major__ >= 9) || (!defined(__clang__) && __GNUC__ >= 11))
#define HAVE_AVX512BF16 1
#else
#define HAVE_AVX512BF16 0
#endif

enum { WIDEST_PANEL = 64, WIDEST_VECTOR = 16 };

static inline long padded(long width) { return (width + WIDEST_PANEL - 1) / WIDEST_PANEL * WIDEST_PANEL; }

enum { DONE = 0, NO_MEMORY = 1, BAD_ARGUMENT = 2, NAN_LOGITS = 3 };
enum { FLOAT32 = 0, INT8 = 1, BFLOAT16 = 2 };
enum { NO_ACTIVATION = 0, RELU = 1, GELU = 2, GELU_TANH = 3, SWISH = 4, SWIGLU = 5 };

/* y = x W + b. The factors of one instruction are adjacent: 4 in 8 bits, 2 in bfloat16, 1 in float32. */
typedef struct {
    const void *weights;    /* (panels, d_in / factors, panel, factors) */
    const float *scales;    /* (panels x panel), of each output in 8 bits */
    const int32_t *offsets; /* (panels x panel), of each output in 8 bits: -offset of the inputs times the sum of its weights */
    const float *bias;      /* (panels x panel) */
    int32_t d_in, d_out, kind, reserved;
} Linear;

typedef struct {
    const float *weight, *bias;
} Norm;

typedef struct {
    Linear query_key_value, self_output;            /* self-attention; or of a recurrent unit: forget gate and candidate, and none */
    Linear memory_query, memory_key_value, memory_output; /* attention to the source; only in a decoder with a source */
    Linear inner, outer;                            /* feed-forward */
    Norm around_self_attention, around_memory_attention, around_feed_forward;
} Layer;

typedef struct {
    const Layer *layers;
    const Norm *final;       /* or NULL */
    const float *rotations;  /* (positions, d_k / 2, 2): cosine and sine; or NULL */
    int64_t depth, heads, d_model, d_ff, d_k, d_v, positions;
    float epsilon;
    int32_t pre, activation, has_memory;
    int32_t is_recurrent; /* whether recurrent units (SSRU) take the place of self-attention: d_model = heads x d_k */
} Stack;

/* A decoder from tokens to logits */
typedef struct {
    Stack stack;
    Linear output;
    const float *embedding; /* (vocabulary, d_model) */
    const float *positions; /* (stack.positions, d_model); or NULL */
    const Norm *norm;       /* of embedded tokens with their positions; or NULL */
    int64_t vocabulary;
    float scale; /* of the embedding */
    int32_t reserved;
} Decoder;

/* Keys, transposed, and values of one source in all layers */
typedef struct {
    const float *keys;   /* (layers, heads, d_k, stride) */
    const float *values; /* (layers, heads, length, d_v) */
    int64_t length, stride;
} Source;

/* One more position of some hypotheses. The hypotheses of a source are adjacent. */
typedef struct {
    const int64_t *tokens;        /* (targets) */
    const int32_t *positions;     /* (targets): the number of positions that each has read */
    const int32_t *rows;          /* (targets): the row of the caches that each writes to */
    const int32_t *const *past;   /* (targets): the rows of the earlier positions of each; or NULL, its own row */
    const int32_t *first_targets; /* (sources + 1); not used without memory attention */
    const Source *sources;
    float *const *keys;   /* (pages), of (layers, cache_rows, page_size, heads, d_k) each: */
    float *const *values; /* page p has the positions from p x page_size on */
    float *attention;     /* (layers, targets, heads, attention_stride): receives the attention to the source; or NULL */
    int64_t targets, source_count, cache_rows, pages, page_size, attention_stride;
} Step;

/* What a running search looks for */
typedef struct {
    const double *penalties;  /* of each length up to penalty_count - 1 */
    const int64_t *forbidden; /* tokens that are never chosen */
    int64_t penalty_count, forbidden_count;
    int64_t slots, beam, count; /* sentences at a time, hypotheses and results of each */
    int64_t eos, exact;         /* exact: until nothing better can follow; otherwise, until `beam` hypotheses have ended */
    int64_t has_shortlists;     /* whether every sentence has a list of the tokens that its target may contain */
} SearchSettings;

/* What training computes */

typedef struct {
    uint64_t seed;
    uint32_t dropped; /* of 2^31 random numbers, how many drop an element; 0 for none */
    float scale;      /* of the elements that are kept */
} Dropout;

/* norm(x + dropout(update)), and its gradients */
typedef struct {
    const float *x, *update; /* (rows, width) */
    float *sum, *y;          /* (rows, width): x + dropout(update), and the result */
    float *statistics;       /* (rows, 2): mean and reciprocal standard deviation of each sum */
    const float *d_y;        /* (rows, width) */
    float *d_x, *d_update;   /* (rows, width); without dropout they are the same, and d_update is not written */
    Norm norm;               /* without weight, the result is the sum */
    Dropout dropout;
    int64_t rows, width;
    float epsilon;
    int32_t reserved;
} Residual;

/* Attention of whole examples, (examples, length, stride) each: the heads are beside one another in a row. What lies
 * beyond the length of an example is padding: its results and gradients are 0. */
typedef struct {
    const float *query, *key, *value;
    float *out;     /* (examples, queries, heads, d_v) */
    float *weights; /* (examples, heads, queries, weight_stride), for the backward pass */
    const float *d_out;
    float *d_query, *d_key, *d_value; /* with the strides of query, key and value */
    const int32_t *query_lengths, *key_lengths;
    int64_t examples, heads, queries, keys, d_k, d_v, query_stride, key_stride, value_stride, out_stride, weight_stride;
    float scale;
    int32_t is_causal;
} FullAttention;

/* What is computed with vector instructions, once for each instruction set */

typedef struct {
    const Linear *linear;
    const void *x;       /* (rows, d_in), in the linear layer's kind */
    const float *scales; /* (rows), in 8 bits */
    float *y;            /* (rows, padded(d_out)) */
    long rows;
    int activation; /* NO_ACTIVATION or RELU */
} Product;

typedef struct {
    const float *query;        /* (queries, query_stride) */
    const float *keys;         /* (d_k, key_stride): transposed */
    const float *values;       /* (length, value_stride) */
    float *out;                /* (queries, out_stride) */
    float *scores;             /* scratch: (4, key_stride) */
    float *weights;            /* (queries, weight_stride): receives the weights; or NULL */
    long queries, length, d_k, d_v, query_stride, key_stride, value_stride, out_stride, weight_stride;
    float scale;
} Attention;

typedef struct {
    const float *query;  /* (heads, d_k) */
    float *const *keys, *const *values; /* pages: see `Step` */
    const int32_t *past; /* (length - 1): the rows of the earlier positions; or NULL, the last row */
    float *out;          /* (heads, d_v) */
    float *scores;       /* scratch: (heads, length rounded up to a vector) */
    const float **rows;  /* scratch: (length) */
    long row, first_row, length, page_size, heads, d_k, d_v; /* rows of a page are counted from first_row on */
    float scale;
} PastAttention;

/* The best continuations of one sentence: the highest log(softmax(logits)) + sum over all its hypotheses */
typedef struct {
    const float *logits, *sums; /* (width, stride), (width) */
    const int64_t *forbidden;   /* tokens that are never chosen */
    const int32_t *shortlist;   /* (vocabulary): the token of each logit; or NULL, its index */
    float *scores;              /* (count), highest first */
    int32_t *parents, *tokens;  /* (count): the hypothesis and the token of each continuation */
    long width, vocabulary, stride, count, forbidden_count;
} Choice;

typedef struct {
    const char *name;
    int32_t panel;         /* outputs of a linear layer that are computed together, in every kind */
    int32_t input_limit;   /* largest 8-bit input before the offset is added, */
    int32_t input_offset;  /* and that offset, */
    int32_t weight_limit;  /* and the largest 8-bit weight: beyond these, sums would overflow */
    int32_t is_fast;       /* whether it has vector instructions of its own */
    void (*quantise)(const float *x, long rows, long width, long stride, uint8_t *bytes, float *scales);
    void (*to_bfloat16)(const float *x, long rows, long width, long stride, uint16_t *halves);
    void (*multiply)(const Product *product, long begin, long end, long first_panel, long last_panel);
    void (*normalise)(const Norm *norm, const float *x, float *y, long rows, long width, float epsilon);
    void (*activate)(int activation, float *x, long rows, long width, long stride);
    void (*add)(float *x, const float *y, long rows, long width, long y_stride);
    void (*recur)(const float *gates, const float *before, float *state, float *out, long width);
    void (*attend)(const Attention *attention);
    void (*attend_past)(const PastAttention *attention);
    void (*choose)(const Choice *choice);
    void (*residual)(const Residual *residual, long begin, long end);
    void (*residual_backward)(const Residual *residual, long begin, long end, float *d_weight, float *d_bias);
    void (*relu_backward)(float *d, const float *active, long rows, long width, float *d_bias);
    void (*cross_entropy_row)(float *logits, long vocabulary, long label, float smoothing, float *numbers);
    void (*attend_example)(const FullAttention *attention, long example, long head, float *scratch);
    void (*attend_example_backward)(const FullAttention *attention, long example, long head, float *scratch);
} Kernels;

extern const Kernels transduce_generic, transduce_avx2, transduce_avxvnni, transduce_avx512, transduce_avx512vnni,
    transduce_avx512bf16, transduce_neon, transduce_neondot;

/* threads.c */
typedef void Work(const void *job, long begin, long end);
void transduce_parallel(Work *work, const void *job, long count, long products, int threads);

/* shortlist.c */
typedef struct ShortlistOutput ShortlistOutput;
ShortlistOutput *transduce_shortlist_new(const Linear *whole, long panel);
void transduce_shortlist_free(ShortlistOutput *n);
const Linear *transduce_shortlist_linear(const ShortlistOutput *n);
int transduce_shortlist_join(ShortlistOutput *n, const int32_t *tokens, int64_t count);
void transduce_shortlist_leave(ShortlistOutput *n, const int32_t *tokens, int64_t count);
void transduce_shortlist_gather(const ShortlistOutput *n, const float *logits, int64_t rows, const int32_t *tokens, int64_t count,
    float *gathered, int64_t stride);

/* model.c */
int transduce_project(const Kernels *k, const Stack *s, const float *memory, int64_t length, int64_t stride, float *keys,
    float *values, int32_t threads);
int transduce_apply(const Kernels *k, const Linear *linear, const float *x, long stride, float *y, long rows, int activation,
    int threads);
int transduce_hidden(const Kernels *k, const Decoder *d, const Step *step, float *hidden, int32_t threads);

#endif
