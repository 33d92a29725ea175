/* Checks of the engine that need no Python: for sanitizers, and for processors that an emulator stands in for.
 *
 * Every kernel of every instruction set is compared with plain loops in double precision, gradients with differences; then a
 * small decoder searches with sentences that join and leave. Prints the instruction sets that were checked, and returns 0 if all is well.
 */
#include "engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *transduce_set_name(int32_t index);
const Kernels *transduce_set(int32_t index);
int transduce_encode(const Kernels *k, const Stack *s, const int64_t *begins, int64_t sources, const float *x, float *memory,
    int32_t threads);
extern long transduce_products_per_thread;
typedef struct Search Search;
Search *transduce_search_new(const Kernels *kernels, const Decoder *decoder, const SearchSettings *settings);
void transduce_search_penalties(Search *s, const double *penalties, int64_t count);
int transduce_search_add_source(Search *s, int64_t index, const float *memory, int64_t length, int64_t limit,
    const int64_t *first, int64_t first_count, const int32_t *shortlist, int64_t listed, int32_t threads);
int transduce_search_advance(Search *s, int64_t most, int32_t threads);
int transduce_search_state(const Search *s, int64_t index);
int64_t transduce_search_result(const Search *s, int64_t index, int64_t rank, int32_t *tokens, float *sums, double *score);
int transduce_search_release(Search *s, int64_t index);
void transduce_search_free(Search *s);
int transduce_residual(const Kernels *k, const Residual *r, int32_t threads);
int transduce_residual_backward(const Kernels *k, const Residual *r, float *d_weight, float *d_bias, int32_t threads);
int transduce_cross_entropy(const Kernels *k, float *logits, const int64_t *labels, int64_t rows, int64_t vocabulary,
    float smoothing, float *numbers, int32_t threads);
int transduce_attention(const Kernels *k, const FullAttention *a, int32_t backward, int32_t threads);

static unsigned long long state = 88172645463325252ull;

static double uniform(void) /* -1 to 1 */
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / (1ull << 52) - 1;
}

static float *randoms(long count) /* exactly as many as are used: a sanitizer sees any read beyond them */
{
    float *x = malloc((count ? count : 1) * sizeof *x);
    for (long i = 0; i < count; i++) x[i] = (float)uniform();
    return x;
}

static int failures;

static void expect(const Kernels *k, const char *what, double found, double expected, double tolerance)
{
    if (fabs(found - expected) <= tolerance * (1 + fabs(expected))) return;
    if (failures++ < 20) printf("%s, %s: %.9g instead of %.9g\n", k->name, what, found, expected);
}

/* A linear layer packed as Python packs it */
typedef struct {
    Linear linear;
    float *weight, *bias; /* as they were: (d_out, d_in) */
    double *used;         /* the weights that are multiplied, rounded in 8 bits and in bfloat16 */
} Packed;

static float rounded(float x) /* to bfloat16: to the nearest, and to the even one of two that are as near */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof x);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static Packed pack(const Kernels *k, long d_out, long d_in, int kind, float missing_bias)
{
    const long outputs = (d_out + k->panel - 1) / k->panel * k->panel, factors = kind == INT8 ? 4 : kind == BFLOAT16 ? 2 : 1;
    Packed p = {{.d_in = (int32_t)d_in, .d_out = (int32_t)d_out, .kind = kind}, randoms(d_out * d_in), randoms(padded(d_out)),
        malloc(d_out * d_in * sizeof(double))};
    for (long o = d_out; o < padded(d_out); o++) p.bias[o] = missing_bias;
    float *scales = calloc(outputs, sizeof *scales);
    int32_t *offsets = calloc(outputs, sizeof *offsets);
    int8_t *bytes = calloc(outputs * d_in, 1);
    float *floats = calloc(outputs * d_in, sizeof *floats);
    uint16_t *halves = calloc(outputs * d_in, sizeof *halves);
    for (long o = 0; o < d_out; o++) {
        double largest = 0;
        for (long i = 0; i < d_in; i++) largest = fmax(largest, fabs(p.weight[o * d_in + i]));
        scales[o] = (float)(largest / k->weight_limit);
        for (long i = 0; i < d_in; i++) {
            const long place = o / k->panel * k->panel * d_in + i / factors * factors * k->panel + o % k->panel * factors + i % factors;
            const long step = lrint(p.weight[o * d_in + i] / scales[o]);
            floats[place] = p.weight[o * d_in + i], bytes[place] = (int8_t)step;
            k->to_bfloat16(p.weight + o * d_in + i, 1, 1, 1, halves + place);
            p.used[o * d_in + i] = kind == INT8 ? step * (double)scales[o]
                : kind == BFLOAT16              ? rounded(p.weight[o * d_in + i])
                                                : p.weight[o * d_in + i];
            offsets[o] -= (int32_t)(k->input_offset * step);
        }
    }
    void *const kinds[] = {[FLOAT32] = floats, [INT8] = bytes, [BFLOAT16] = halves};
    p.linear.weights = kinds[kind];
    for (int i = 0; i < 3; i++)
        if (i != kind) free(kinds[i]);
    p.linear.scales = scales, p.linear.offsets = offsets, p.linear.bias = p.bias;
    return p;
}

static void discard(Packed *p)
{
    free((void *)p->linear.weights), free((void *)p->linear.scales), free((void *)p->linear.offsets);
    free(p->weight), free(p->bias), free(p->used);
}

static void check_linear(const Kernels *k, long rows, long d_in, long d_out, int kind)
{
    Packed p = pack(k, d_out, d_in, kind, 0);
    float *x = randoms(rows * d_in), *y = malloc(rows * padded(d_out) * sizeof *y), *scales = malloc(rows * sizeof *scales);
    uint8_t *bytes = malloc(rows * d_in);
    uint16_t *halves = malloc(rows * d_in * sizeof *halves);
    k->quantise(x, rows, d_in, d_in, bytes, scales);
    k->to_bfloat16(x, rows, d_in, d_in, halves);
    const void *const inputs[] = {[FLOAT32] = x, [INT8] = bytes, [BFLOAT16] = halves};
    const Product product = {&p.linear, inputs[kind], scales, y, rows, RELU};
    k->multiply(&product, 0, rows, 0, (d_out + k->panel - 1) / k->panel);
    for (long r = 0; r < rows; r++)
        for (long o = 0; o < d_out; o++) {
            double sum = p.bias[o];
            for (long i = 0; i < d_in; i++) {
                const double byte = k->input_offset ? (double)bytes[r * d_in + i] - k->input_offset : (int8_t)bytes[r * d_in + i];
                const float input = x[r * d_in + i];
                sum += p.used[o * d_in + i] * (kind == INT8 ? byte * scales[r] : kind == BFLOAT16 ? rounded(input) : input);
            }
            expect(k, kind == INT8 ? "int8" : kind == BFLOAT16 ? "bfloat16" : "float32", y[r * padded(d_out) + o], sum > 0 ? sum : 0, 1e-5);
        }
    discard(&p), free(x), free(y), free(scales), free(bytes), free(halves);
}

static void check_attention(const Kernels *k, long queries, long length, long d)
{
    const long stride = (length + 15) / 16 * 16;
    float *query = randoms(queries * d), *key = randoms(length * d), *value = randoms(length * d);
    float *transposed = calloc(d * stride, sizeof *transposed), *out = malloc(queries * d * sizeof *out);
    float *scores = malloc(4 * stride * sizeof *scores), *weights = malloc(queries * length * sizeof *weights);
    for (long l = 0; l < length; l++)
        for (long i = 0; i < d; i++) transposed[i * stride + l] = key[l * d + i];
    const Attention a = {query, transposed, value, out, scores, weights, queries, length, d, d, d, stride, d, d, length, 0.7f};
    k->attend(&a);
    for (long q = 0; q < queries; q++) {
        double *exponential = malloc(length * sizeof *exponential), total = 0;
        for (long l = 0; l < length; l++) {
            double score = 0;
            for (long i = 0; i < d; i++) score += (double)query[q * d + i] * key[l * d + i];
            total += exponential[l] = exp(score * 0.7f);
        }
        for (long i = 0; i < d; i++) {
            double mixed = 0;
            for (long l = 0; l < length; l++) mixed += exponential[l] / total * value[l * d + i];
            expect(k, "attention", out[q * d + i], mixed, 1e-5);
        }
        float *past_out = malloc(d * sizeof *past_out), *past_scores = malloc(stride * sizeof *past_scores);
        enum { PAGE = 5 }; /* positions; row 1 of 2 */
        const long pages = (length + PAGE - 1) / PAGE;
        float **keys = malloc(2 * pages * sizeof *keys), **values = keys + pages;
        const float **rows = malloc(length * sizeof *rows);
        for (long page = 0; page < pages; page++) {
            const long count = length - page * PAGE < PAGE ? length - page * PAGE : PAGE;
            keys[page] = malloc(2 * PAGE * d * sizeof **keys), values[page] = malloc(2 * PAGE * d * sizeof **values);
            memcpy(keys[page] + PAGE * d, key + page * PAGE * d, count * d * sizeof *key);
            memcpy(values[page] + PAGE * d, value + page * PAGE * d, count * d * sizeof *value);
        }
        const PastAttention past = {query + q * d, keys, values, NULL, past_out, past_scores, rows, 0, 1, length, PAGE, 1, d, d, 0.7f};
        k->attend_past(&past);
        for (long i = 0; i < d; i++) expect(k, "attention to the past", past_out[i], out[q * d + i], 1e-5);
        for (long page = 0; page < pages; page++) free(keys[page]), free(values[page]);
        free(exponential), free(past_out), free(past_scores), free(keys), free(rows);
    }
    free(query), free(key), free(value), free(transposed), free(out), free(scores), free(weights);
}

static void check_rest(const Kernels *k)
{
    float *x = randoms(64), *y = malloc(64 * sizeof *y), *weight = randoms(32), *bias = randoms(32);
    const Norm norm = {weight, bias};
    k->normalise(&norm, x, y, 2, 32, 1e-5f);
    for (long r = 0; r < 2; r++) {
        double mean = 0, square = 0;
        for (long i = 0; i < 32; i++) mean += x[r * 32 + i] / 32.0;
        for (long i = 0; i < 32; i++) square += (x[r * 32 + i] - mean) * (x[r * 32 + i] - mean) / 32;
        for (long i = 0; i < 32; i++)
            expect(k, "norm", y[r * 32 + i], (x[r * 32 + i] - mean) / sqrt(square + 1e-5) * weight[i] + bias[i], 1e-5);
    }
    for (int activation = GELU; activation <= SWISH; activation++) {
        for (long i = 0; i < 64; i++) y[i] = 8 * x[i];
        k->activate(activation, y, 2, 32, 32);
        for (long i = 0; i < 64; i++) {
            const double v = 8 * x[i], cube = 0.7978845608 * (v + 0.044715 * v * v * v);
            const double expected = activation == GELU ? v / 2 * (1 + erf(v / sqrt(2)))
                : activation == GELU_TANH              ? v / 2 * (1 + tanh(cube))
                                                       : v / (1 + exp(-v));
            expect(k, "activation", y[i], expected, 1e-5);
        }
    }
    for (int has_past = 0; has_past < 2; has_past++) { /* x has gates, candidates and a past state */
        float state[16], out[16];
        k->recur(x, has_past ? x + 32 : NULL, state, out, 16);
        for (int i = 0; i < 16; i++) {
            const double f = 1 / (1 + exp(-x[i])), new = (has_past ? f * x[32 + i] : 0) + (1 - f) * x[16 + i];
            expect(k, "recurrent state", state[i], new, 1e-5);
            expect(k, "recurrent unit", out[i], new > 0 ? new : 0, 1e-5);
        }
    }
    free(x), free(y), free(weight), free(bias);
}

static double weighted_sum(const float *weights, const float *x, long count)
{
    double sum = 0;
    for (long i = 0; i < count; i++) sum += (double)weights[i] * x[i];
    return sum;
}

static void move(float *x, const float *direction, long count, float by)
{
    for (long i = 0; i < count; i++) x[i] += by * direction[i];
}

/* The gradients of a weighted sum of the results, against the difference that a small step makes */
static void check_residual(const Kernels *k, int has_norm, uint32_t dropped)
{
    enum { ROWS = 37, WIDTH = 48, COUNT = ROWS * WIDTH };
    const float step = 1e-2f;
    float *x = randoms(COUNT), *update = randoms(COUNT), *d_y = randoms(COUNT), *weight = randoms(WIDTH), *bias = randoms(WIDTH);
    float *along_x = randoms(COUNT), *along_update = randoms(COUNT), *along_weight = randoms(WIDTH);
    float *sum = randoms(COUNT), *y = randoms(COUNT), *statistics = randoms(2 * ROWS);
    float *d_x = randoms(COUNT), *d_update = randoms(COUNT), *d_weight = randoms(WIDTH), *d_bias = randoms(WIDTH);
    Residual r = {x, update, sum, has_norm ? y : sum, statistics, d_y, d_x, d_update, {NULL, NULL}, {12345678901234567ull, dropped, 1.25f},
        ROWS, WIDTH, 1e-5f, 0};
    if (has_norm) r.norm = (Norm){weight, bias};
    double at[2];
    for (int side = 0; side < 2; side++) {
        const float by = side ? 2 * step : -step;
        move(x, along_x, COUNT, by), move(update, along_update, COUNT, by), move(weight, along_weight, WIDTH, by);
        failures += transduce_residual(k, &r, 3) != DONE;
        at[side] = weighted_sum(d_y, r.y, COUNT);
    }
    move(x, along_x, COUNT, -step), move(update, along_update, COUNT, -step), move(weight, along_weight, WIDTH, -step);
    failures += transduce_residual(k, &r, 1) != DONE;
    failures += transduce_residual_backward(k, &r, d_weight, d_bias, 3) != DONE;
    const float *d_sum = has_norm ? d_x : d_y, *d_other = dropped ? d_update : d_sum;
    double slope = weighted_sum(d_sum, along_x, COUNT) + weighted_sum(d_other, along_update, COUNT);
    if (has_norm) slope += weighted_sum(d_weight, along_weight, WIDTH);
    expect(k, "gradient of a residual connection", (at[1] - at[0]) / (2 * step), slope, 2e-2);
    float *parts[] = {x, update, d_y, weight, bias, along_x, along_update, along_weight, sum, y, statistics, d_x, d_update, d_weight, d_bias};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

static void check_training_attention(const Kernels *k, int is_causal)
{
    enum { EXAMPLES = 3, HEADS = 2, D = 16, LENGTH = 19, STRIDE = 32, WIDTH = 3 * HEADS * D, COUNT = EXAMPLES * LENGTH * WIDTH,
        RESULTS = EXAMPLES * LENGTH * HEADS * D };
    const float step = 1e-2f;
    const int32_t lengths[EXAMPLES] = {19, 0, 6};
    float *x = randoms(COUNT), *along = randoms(COUNT), *d_x = randoms(COUNT), *out = randoms(RESULTS), *d_out = randoms(RESULTS);
    float *weights = randoms(EXAMPLES * HEADS * LENGTH * STRIDE);
    const FullAttention a = {x, x + HEADS * D, x + 2 * HEADS * D, out, weights, d_out, d_x, d_x + HEADS * D, d_x + 2 * HEADS * D,
        lengths, lengths, EXAMPLES, HEADS, LENGTH, LENGTH, D, D, WIDTH, WIDTH, WIDTH, HEADS * D, STRIDE, 0.25f, is_causal};
    double at[2];
    for (int side = 0; side < 2; side++) {
        move(x, along, COUNT, side ? 2 * step : -step);
        failures += transduce_attention(k, &a, 0, 3) != DONE;
        at[side] = weighted_sum(d_out, out, RESULTS);
    }
    move(x, along, COUNT, -step);
    failures += transduce_attention(k, &a, 0, 1) != DONE;
    failures += transduce_attention(k, &a, 1, 3) != DONE;
    expect(k, "gradient of attention", (at[1] - at[0]) / (2 * step), weighted_sum(d_x, along, COUNT), 2e-2);
    FullAttention wrong = a;
    wrong.weight_stride = 16;
    failures += transduce_attention(k, &wrong, 0, 1) != BAD_ARGUMENT;
    float *parts[] = {x, along, d_x, out, d_out, weights};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

static void check_cross_entropy(const Kernels *k, long vocabulary)
{
    enum { ROWS = 5 };
    float *logits = randoms(ROWS * vocabulary), *found = malloc(ROWS * vocabulary * sizeof *found), numbers[4 * ROWS];
    const int64_t labels[ROWS] = {0, vocabulary - 1, vocabulary / 2, 0, vocabulary / 3}, wrong[1] = {vocabulary};
    memcpy(found, logits, ROWS * vocabulary * sizeof *found);
    failures += transduce_cross_entropy(k, found, labels, ROWS, vocabulary, 0.1f, numbers, 3) != DONE;
    for (long r = 0; r < ROWS; r++) {
        double total = 0;
        for (long i = 0; i < vocabulary; i++) total += exp(logits[r * vocabulary + i]);
        expect(k, "log of a sum of exponentials", numbers[4 * r], log(total), 1e-5);
        for (long i = 0; i < vocabulary; i++)
            expect(k, "gradient of cross-entropy", found[r * vocabulary + i] / numbers[4 * r + 3],
                exp(logits[r * vocabulary + i]) / total - 0.9 * (i == labels[r]), 1e-5);
    }
    failures += transduce_cross_entropy(k, found, wrong, 1, vocabulary, 0.1f, numbers, 1) != BAD_ARGUMENT;
    free(logits), free(found);
}

/* A decoder of random weights: what its search finds does not depend on how many sentences run at a time. */
static void check_search(const Kernels *k, int kind, int activation, int has_shortlists, int is_recurrent)
{
    enum { LAYERS = 2, HEADS = 2, D = 32, FF = 48, VOCABULARY = 37, LIMIT = 9, SENTENCES = 5, BEAM = 3 };
    Packed packed[LAYERS][7], output = pack(k, VOCABULARY, D, kind, -INFINITY);
    Layer layers[LAYERS];
    float *ones = malloc(D * sizeof *ones), *zeros = calloc(D, sizeof *zeros);
    for (int i = 0; i < D; i++) ones[i] = 1;
    const long shapes[7][2] = {{3 * D, D}, {D, D}, {D, D}, {2 * D, D}, {D, D}, {activation == SWIGLU ? 2 * FF : FF, D}, {D, FF}};
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < 7; i++) packed[l][i] = pack(k, shapes[i][0], shapes[i][1], kind, 0);
        const Norm norm = {ones, zeros};
        layers[l] = (Layer){packed[l][0].linear, packed[l][1].linear, packed[l][2].linear, packed[l][3].linear,
            packed[l][4].linear, packed[l][5].linear, packed[l][6].linear, norm, norm, norm};
    }
    float *embedding = randoms(VOCABULARY * D), *positions = randoms(LIMIT * D);
    const Norm embedding_norm = {ones, zeros};
    Decoder decoder = {
        .stack = {layers, NULL, NULL, LAYERS, HEADS, D, FF, D / HEADS, D / HEADS, LIMIT, 1e-5f, 0, activation, 1, 0},
        .output = output.linear, .embedding = embedding, .positions = positions, .norm = is_recurrent ? &embedding_norm : NULL,
        .vocabulary = VOCABULARY, .scale = 1};
    const int64_t begins[SENTENCES + 1] = {0, 4, 5, 22, 25, 31};
    float *embedded = randoms(begins[SENTENCES] * D), *memory = malloc(begins[SENTENCES] * D * sizeof *memory);
    Stack encoder = decoder.stack;
    if (transduce_encode(k, &encoder, begins, SENTENCES, embedded, memory, 2)) failures++;
    for (int l = 0; is_recurrent && l < LAYERS; l++) {
        discard(&packed[l][0]);
        packed[l][0] = pack(k, 2 * D, D, kind, 0);
        layers[l].query_key_value = packed[l][0].linear;
    }
    decoder.stack.is_recurrent = is_recurrent;
    double penalties[LIMIT + 1], scores[2][SENTENCES];
    for (int i = 0; i <= LIMIT; i++) penalties[i] = 1 + i;
    const int64_t forbidden[] = {0, 1}, first[] = {1, 5, 3}, outside[] = {1, VOCABULARY};
    for (int way = 0; way < 2; way++) {
        const SearchSettings settings = {penalties, forbidden, LIMIT + 1, 2, way ? SENTENCES : 2, BEAM, BEAM, 2, 1, has_shortlists};
        Search *search = transduce_search_new(k, &decoder, &settings);
        long added = 0, done = 0, in_slot[SENTENCES];
        while (search && done < SENTENCES) {
            for (int64_t slot = 0; slot < settings.slots && added < SENTENCES; slot++)
                if (transduce_search_state(search, slot) == 0) {
                    const int64_t length = begins[added + 1] - begins[added];
                    int32_t listed[VOCABULARY];
                    long count = 0;
                    for (int32_t token = 0; token < VOCABULARY; token++)
                        if (token == 2 || (token + added) % 3) listed[count++] = token;
                    if (transduce_search_add_source(search, slot, memory + begins[added] * D, length, LIMIT - added % 3,
                            first, 1 + added % 3,
                            has_shortlists ? listed : NULL, count, 1)) failures++;
                    in_slot[slot] = added++;
                }
            if (transduce_search_advance(search, 1000, 1 + way)) failures++;
            for (int64_t slot = 0; slot < settings.slots; slot++)
                if (transduce_search_state(search, slot) == 2) {
                    int32_t tokens[LIMIT];
                    float sums[LIMIT];
                    if (transduce_search_result(search, slot, 0, tokens, sums, &scores[way][in_slot[slot]]) < 1) failures++;
                    transduce_search_release(search, slot);
                    done++;
                }
        }
        /* Arguments that are out of range are refused. */
        if (search) {
            const int32_t list[] = {2, 3, 4, 5, 6, 7, 8, 9}, falling[] = {2, 3, 5, 4, 6, 7, 8, 9}, beyond[] = {2, 3, 4, 5, 6, 7, 8, VOCABULARY};
            const int32_t *l = has_shortlists ? list : NULL;
            failures += transduce_search_add_source(search, -1, memory, 4, 3, first, 1, l, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 0, 3, first, 1, l, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, LIMIT + 1, first, 1, l, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, 3, first, 0, l, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, 3, outside, 2, l, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, 3, first, 1, has_shortlists ? NULL : list, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, 3, first, 1, list, 7, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, 3, first, 1, falling, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_add_source(search, 0, memory, 4, 3, first, 1, beyond, 8, 1) != BAD_ARGUMENT;
            failures += transduce_search_state(search, settings.slots) != -1;
        } else
            failures++;
        transduce_search_free(search);
    }
    for (int i = 0; i < SENTENCES; i++) expect(k, "company", scores[0][i], scores[1][i], 0);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < 7; i++) discard(&packed[l][i]);
    discard(&output), free(ones), free(zeros), free(embedding), free(positions), free(embedded), free(memory);
}

int main(void)
{
    transduce_products_per_thread = 1; /* let several threads share even the smallest work */
    for (int32_t index = 0; transduce_set_name(index); index++) {
        const Kernels *k = transduce_set(index);
        if (!k) continue;
        const long rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 100}, widths[] = {16, 48, 64}, outputs[] = {1, 16, 70, 129};
        for (int r = 0; r < 9; r++)
            for (int i = 0; i < 3; i++)
                for (int o = 0; o < 4; o++)
                    for (int kind = 0; kind < 3; kind++) check_linear(k, rows[r], widths[i], outputs[o], kind);
        for (long queries = 1; queries < 7; queries++)
            for (long length = 1; length < 40; length += 6) check_attention(k, queries, length, 32);
        check_rest(k);
        for (int kind = 0; kind < 3; kind++)
            for (int activation = RELU; activation <= SWIGLU; activation++)
                for (int flags = 0; flags < 4; flags++) check_search(k, kind, activation, flags & 1, flags >> 1);
        for (int flag = 0; flag < 2; flag++) {
            check_residual(k, flag, 0), check_residual(k, flag, 1u << 29);
            check_training_attention(k, flag);
        }
        for (long vocabulary = 2; vocabulary < 70; vocabulary += 15) check_cross_entropy(k, vocabulary);
        printf("%s\n", k->name);
    }
    return failures != 0;
}
