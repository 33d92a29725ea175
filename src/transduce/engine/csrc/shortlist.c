/* The output layer of a search with shortlists: the columns that some running sentence needs.
 *
 * The logits of a column are the same whatever stands beside it, so a sentence's result does not depend on the lists of
 * the others. Columns are added when a sentence joins. When it leaves, they stay where they are: most are needed again
 * soon. Only when more than half of them are unused does the layer start anew.
 */
#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 4, UNUSED = -1 }; /* bytes of the adjacent factors of one column, in every kind */

struct ShortlistOutput {
    const Linear *whole;
    Linear linear;   /* what the step multiplies by; its arrays belong to this structure */
    int32_t *places; /* (vocabulary): the column of each token, or UNUSED */
    int32_t *users;  /* (vocabulary): how many sentences have it in their list */
    int32_t *tokens; /* (columns): the token of each column */
    int64_t panel, words, used, capacity; /* words of each column; columns that have users; columns that fit */
};

void transduce_shortlist_free(ShortlistOutput *n)
{
    if (!n) return;
    void *parts[] = {(void *)n->linear.weights, (void *)n->linear.scales, (void *)n->linear.offsets, (void *)n->linear.bias,
        n->places, n->users, n->tokens, n};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

ShortlistOutput *transduce_shortlist_new(const Linear *whole, long panel)
{
    ShortlistOutput *n = calloc(1, sizeof *n);
    if (!n) return NULL;
    n->whole = whole, n->linear = *whole, n->panel = panel;
    n->words = whole->d_in / (whole->kind == INT8 ? 4 : whole->kind == BFLOAT16 ? 2 : 1);
    n->linear.weights = NULL, n->linear.scales = n->linear.bias = NULL, n->linear.offsets = NULL;
    n->linear.d_out = 0;
    n->places = malloc(whole->d_out * sizeof *n->places);
    n->users = calloc(whole->d_out, sizeof *n->users);
    n->tokens = malloc(whole->d_out * sizeof *n->tokens);
    if (!n->places || !n->users || !n->tokens) {
        transduce_shortlist_free(n);
        return NULL;
    }
    memset(n->places, UNUSED, whole->d_out * sizeof *n->places);
    return n;
}

const Linear *transduce_shortlist_linear(const ShortlistOutput *n) { return &n->linear; }

/* An array of `count` words with the first `kept` of another one, which is freed; the rest is 0. Or NULL */
static void *grown(const void *old, int64_t kept, int64_t count)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, (size_t)count * WORD)) return NULL;
    if (kept) memcpy(memory, old, kept * WORD);
    memset((char *)memory + kept * WORD, 0, (count - kept) * WORD);
    free((void *)old);
    return memory;
}

static int reserve(ShortlistOutput *n, int64_t columns)
{
    if (columns <= n->capacity) return DONE;
    int64_t capacity = n->capacity ? n->capacity : 512;
    while (capacity < columns) capacity *= 2;
    Linear *l = &n->linear;
    /* The layer has room for whole panels of the widest kind, as `padded` promises. */
    const int64_t kept = n->capacity;
    void *parts[4] = {NULL};
    const void *old[4] = {l->weights, l->bias, l->scales, l->offsets};
    for (int i = 0; i < 4; i++) {
        const int64_t size = i ? 1 : n->words;
        if (i >= 2 && l->kind != INT8) break;
        parts[i] = grown(old[i], kept * size, capacity * size);
        if (!parts[i]) return NO_MEMORY; /* the parts that did grow are still valid, and larger than `capacity` says */
        if (i == 0) l->weights = parts[i];
        if (i == 1) l->bias = parts[i];
        if (i == 2) l->scales = parts[i];
        if (i == 3) l->offsets = parts[i];
    }
    n->capacity = capacity;
    return DONE;
}

static void copy_column(ShortlistOutput *n, int64_t token, int64_t column)
{
    const Linear *from = n->whole;
    Linear *to = &n->linear;
    const int64_t panel = n->panel;
    const int32_t *source = (const int32_t *)from->weights + (token / panel * n->words) * panel + token % panel;
    int32_t *target = (int32_t *)to->weights + (column / panel * n->words) * panel + column % panel;
    for (int64_t i = 0; i < n->words; i++) target[i * panel] = source[i * panel];
    ((float *)to->bias)[column] = from->bias[token];
    if (to->kind != INT8) return;
    ((float *)to->scales)[column] = from->scales[token];
    ((int32_t *)to->offsets)[column] = from->offsets[token];
}

/* Forgets columns that no sentence needs, when they are more than half of all. */
static void tidy(ShortlistOutput *n)
{
    const int64_t columns = n->linear.d_out;
    if (columns <= 2 * n->used + n->panel) return;
    int64_t kept = 0;
    for (int64_t column = 0; column < columns; column++) {
        const int32_t token = n->tokens[column];
        n->places[token] = UNUSED;
        if (!n->users[token]) continue;
        n->places[token] = (int32_t)kept;
        if (kept != column) copy_column(n, token, kept);
        n->tokens[kept++] = token;
    }
    n->linear.d_out = (int32_t)kept;
}

/* A sentence joins: its tokens, in ascending order, get columns. */
int transduce_shortlist_join(ShortlistOutput *n, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= n->whole->d_out || (i && tokens[i] <= tokens[i - 1])) return BAD_ARGUMENT;
    tidy(n);
    if (reserve(n, padded(n->linear.d_out + count))) return NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        const int32_t token = tokens[i];
        if (!n->users[token]++) n->used++;
        if (n->places[token] != UNUSED) continue;
        const int32_t column = n->linear.d_out++;
        copy_column(n, token, column);
        n->places[token] = column, n->tokens[column] = token;
    }
    return DONE;
}

void transduce_shortlist_leave(ShortlistOutput *n, const int32_t *tokens, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!--n->users[tokens[i]]) n->used--;
}

/* The logits of a sentence's tokens, (rows, stride), from those of all columns; minus infinity beyond the list */
void transduce_shortlist_gather(const ShortlistOutput *n, const float *logits, int64_t rows, const int32_t *tokens, int64_t count,
    float *gathered, int64_t stride)
{
    const int64_t from = padded(n->linear.d_out);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < stride; i++)
            gathered[row * stride + i] = i < count ? logits[row * from + n->places[tokens[i]]] : -INFINITY;
}
