/* Beam search over sentences that join and leave a running batch.
 *
 * Each sentence has a slot: as many rows of the caches as the beam is wide. Nothing moves in memory when hypotheses
 * continue: each one knows the rows of its past. A sentence that has ended leaves its slot to the next one.
 */
#include "engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct { /* a finished hypothesis: `token` after hypothesis `origin` of `length` tokens */
    double score;
    float sum;
    int32_t length, origin, token;
} Ending;

enum { FREE, RUNNING, FINISHED };
enum { PAGE_SIZE = 16, GROUP = 32 }; /* positions of a page; hypotheses whose logits are computed and used together */

typedef struct {
    int32_t state, length, limit, width, ended;
    int32_t first_position;    /* of the first token: the length of the prompt before it */
    int32_t unread;            /* tokens of the prompt that are still to be read, one in each step */
    Source source;
    float *memory;             /* the keys and values of the source */
    int32_t *shortlist;        /* the tokens that may follow, in ascending order; or NULL, all */
    float *listed;             /* (beam, padded(listed_count)): their logits */
    int64_t listed_count;
    int32_t *history;          /* owns the next six arrays */
    int32_t *tokens, *origins; /* (lengths, beam): every token, and the hypothesis it continues; */
    float *sums;               /* the tokens of length 0 are those that are read first */
    int32_t *past, *next_past; /* (beam, positions): the rows of the positions of each hypothesis */
    int32_t *prompt;           /* (first_position) */
    Ending *endings;           /* (beam), best first */
} Slot;

typedef struct {
    const Kernels *kernels;
    const Decoder *decoder;
    ShortlistOutput *shortlist_output; /* the output, with shortlists; or NULL */
    SearchSettings settings;
    Slot *slots;
    float **keys, **values; /* the pages of the caches: see `Step` */
    int64_t pages;
    /* Room for one step of all slots */
    int64_t *step_tokens;
    int32_t *positions, *rows, *first_targets, *running;
    const int32_t **past;
    Source *sources;
    float *hidden, *scores;
    int32_t *parents, *chosen;
} Search;

EXPORT void transduce_search_free(Search *s)
{
    if (!s) return;
    for (int64_t i = 0; s->slots && i < s->settings.slots; i++) {
        free(s->slots[i].memory);
        free(s->slots[i].shortlist);
        free(s->slots[i].listed);
        free(s->slots[i].history);
        free(s->slots[i].endings);
    }
    transduce_shortlist_free(s->shortlist_output);
    for (int64_t page = 0; page < s->pages; page++) {
        free(s->keys[page]);
        free(s->values[page]);
    }
    void *parts[] = {s->slots, s->keys, s->values, s->step_tokens, s->positions, s->past, s->sources, s->hidden, s->scores,
        s->parents, s};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

/* Returns NULL if a setting is out of range or memory cannot be allocated. */
EXPORT Search *transduce_search_new(const Kernels *kernels, const Decoder *decoder, const SearchSettings *settings)
{
    const int64_t slots = settings->slots, beam = settings->beam, targets = slots * beam;
    if (slots < 1 || slots > 100000 || beam < 1 || beam > 10000 || settings->count < 1 || settings->count > beam) return NULL;
    if (2 * beam + settings->forbidden_count > decoder->vocabulary || settings->eos < 0 || settings->eos >= decoder->vocabulary)
        return NULL;
    Search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->kernels = kernels, s->decoder = decoder, s->settings = *settings;
    s->slots = calloc(slots, sizeof *s->slots);
    s->step_tokens = malloc(targets * sizeof *s->step_tokens);
    s->positions = malloc((2 * targets + 2 * slots + 1) * sizeof *s->positions); /* and the next three arrays */
    s->past = malloc(targets * sizeof *s->past);
    s->sources = malloc(slots * sizeof *s->sources);
    s->hidden = malloc(targets * decoder->stack.d_model * sizeof *s->hidden);
    s->scores = malloc(2 * targets * sizeof *s->scores);
    s->parents = malloc(4 * targets * sizeof *s->parents); /* and `chosen` */
    if (settings->has_shortlists) s->shortlist_output = transduce_shortlist_new(&decoder->output, kernels->panel);
    int failed = (settings->has_shortlists && !s->shortlist_output) || !s->slots || !s->step_tokens || !s->positions || !s->past || !s->sources || !s->hidden || !s->scores || !s->parents;
    for (int64_t i = 0; !failed && i < slots; i++) failed = !(s->slots[i].endings = malloc(beam * sizeof(Ending)));
    if (failed) {
        transduce_search_free(s);
        return NULL;
    }
    s->rows = s->positions + targets, s->first_targets = s->rows + targets, s->running = s->first_targets + slots + 1;
    s->chosen = s->parents + 2 * targets;
    return s;
}

EXPORT void transduce_search_penalties(Search *s, const double *penalties, int64_t count)
{
    s->settings.penalties = penalties, s->settings.penalty_count = count;
}

/* Adds pages until every row of the caches has room for `needed` positions. Nothing is moved. */
static int reserve(Search *s, int64_t needed)
{
    const Stack *stack = &s->decoder->stack;
    const int64_t positions = stack->depth * s->settings.slots * s->settings.beam * PAGE_SIZE * stack->heads;
    const int64_t pages = (needed + PAGE_SIZE - 1) / PAGE_SIZE;
    if (pages <= s->pages) return DONE;
    float **keys = realloc(s->keys, pages * sizeof *keys);
    if (keys) s->keys = keys;
    float **values = realloc(s->values, pages * sizeof *values);
    if (values) s->values = values;
    if (!keys || !values) return NO_MEMORY;
    for (; s->pages < pages; s->pages++) {
        keys[s->pages] = malloc((size_t)(positions * stack->d_k + WIDEST_VECTOR) * sizeof(float));
        values[s->pages] = malloc((size_t)(positions * stack->d_v + WIDEST_VECTOR) * sizeof(float));
        if (keys[s->pages] && values[s->pages]) continue;
        free(keys[s->pages]);
        free(values[s->pages]);
        return NO_MEMORY;
    }
    return DONE;
}

static int prepare_slot(const Search *s, Slot *slot, int64_t first_position, int64_t limit)
{
    const int64_t beam = s->settings.beam, places = (limit + 1) * beam, positions = (first_position + limit) * beam;
    free(slot->history);
    slot->history = malloc((3 * places + 2 * positions + first_position) * sizeof *slot->history);
    if (!slot->history) return NO_MEMORY;
    slot->tokens = slot->history, slot->origins = slot->tokens + places;
    slot->sums = (float *)(slot->origins + places);
    slot->past = (int32_t *)(slot->sums + places), slot->next_past = slot->past + positions;
    slot->prompt = slot->next_past + positions;
    slot->length = slot->ended = slot->unread = 0;
    slot->width = 1, slot->limit = (int32_t)limit, slot->first_position = (int32_t)first_position;
    slot->sums[0] = 0;
    return DONE;
}

static int check_limit(const Search *s, int64_t slot, int64_t first_position, int64_t limit)
{
    const Decoder *d = s->decoder;
    const int64_t most = d->positions || d->stack.rotations ? d->stack.positions : INT32_MAX / 2;
    return slot < 0 || slot >= s->settings.slots || s->slots[slot].state != FREE || limit < 1
        || first_position + limit > most || limit >= s->settings.penalty_count;
}

/* Copies the shortlist of a sentence and makes room for its logits. */
static int set_shortlist(Search *s, Slot *slot, const int32_t *tokens, int64_t count)
{
    if (count < 2 * s->settings.beam + s->settings.forbidden_count || count > s->decoder->output.d_out) return BAD_ARGUMENT;
    free(slot->shortlist);
    free(slot->listed);
    slot->shortlist = malloc(count * sizeof *slot->shortlist);
    slot->listed = malloc(s->settings.beam * padded(count) * sizeof *slot->listed);
    if (!slot->shortlist || !slot->listed) return NO_MEMORY;
    memcpy(slot->shortlist, tokens, count * sizeof *tokens);
    slot->listed_count = count;
    return transduce_shortlist_join(s->shortlist_output, tokens, count);
}

/* A sentence takes a free slot: memory (length, d_model) is its encoded source, `first` the tokens that the decoder reads
 * before it chooses any: at least one. All but the last are read in steps of the running batch, which cost no call of
 * their own. In a search with shortlists, `shortlist` has the tokens that its target may contain, in ascending order. */
EXPORT int transduce_search_add_source(Search *s, int64_t index, const float *memory, int64_t length, int64_t limit,
    const int64_t *first, int64_t first_count, const int32_t *shortlist, int64_t listed, int32_t threads)
{
    const Stack *stack = &s->decoder->stack;
    const int64_t before = first_count - 1;
    if (before < 0 || check_limit(s, index, before, limit) || length < 1) return BAD_ARGUMENT;
    if (!stack->has_memory || !shortlist != !s->shortlist_output) return BAD_ARGUMENT;
    for (int64_t i = 0; i < first_count; i++)
        if (first[i] < 0 || first[i] >= s->decoder->vocabulary) return BAD_ARGUMENT;
    Slot *slot = s->slots + index;
    const int64_t stride = (length + WIDEST_VECTOR - 1) / WIDEST_VECTOR * WIDEST_VECTOR, lists = stack->depth * stack->heads;
    free(slot->memory);
    slot->memory = malloc((size_t)(lists * (stride * stack->d_k + length * stack->d_v) + WIDEST_VECTOR) * sizeof(float));
    if (!slot->memory || prepare_slot(s, slot, before, limit)) return NO_MEMORY;
    float *values = slot->memory + lists * stride * stack->d_k;
    slot->source = (Source){slot->memory, values, length, stride};
    slot->tokens[0] = (int32_t)first[before], slot->unread = (int32_t)before;
    for (int64_t i = 0; i < before; i++) slot->prompt[i] = (int32_t)first[i], slot->past[i] = (int32_t)(index * s->settings.beam);
    int error = transduce_project(s->kernels, stack, memory, length, stride, slot->memory, values, threads);
    if (!error && shortlist) error = set_shortlist(s, slot, shortlist, listed);
    if (!error) slot->state = RUNNING;
    return error;
}

/* A text takes a free slot: its continuation is searched for. The prompt has at least one token. */
EXPORT int transduce_search_add_prompt(Search *s, int64_t index, const int64_t *prompt, int64_t length, int64_t limit,
    int32_t threads)
{
    const int64_t before = length - 1;
    if (before < 0 || check_limit(s, index, before, limit) || s->decoder->stack.has_memory || s->shortlist_output) return BAD_ARGUMENT;
    if (prompt[before] < 0 || prompt[before] >= s->decoder->vocabulary) return BAD_ARGUMENT;
    Slot *slot = s->slots + index;
    if (prepare_slot(s, slot, before, limit) || reserve(s, length)) return NO_MEMORY;
    slot->tokens[0] = (int32_t)prompt[before];
    const int32_t row = (int32_t)(index * s->settings.beam);
    for (int64_t i = 0; i < before; i++) slot->past[i] = row;
    int error = DONE;
    if (before) {
        int32_t *numbers = malloc(2 * before * sizeof *numbers);
        if (!numbers) return NO_MEMORY;
        for (int64_t i = 0; i < before; i++) numbers[i] = (int32_t)i, numbers[before + i] = row;
        const Step step = {.tokens = prompt, .positions = numbers, .rows = numbers + before, .keys = s->keys,
            .values = s->values, .targets = before, .cache_rows = s->settings.slots * s->settings.beam,
            .pages = s->pages, .page_size = PAGE_SIZE};
        error = transduce_hidden(s->kernels, s->decoder, &step, NULL, threads);
        free(numbers);
    }
    if (!error) slot->state = RUNNING;
    return error;
}

static void add_ending(const SearchSettings *settings, Slot *slot, Ending new)
{
    Ending *endings = slot->endings;
    const int32_t beam = (int32_t)settings->beam;
    if (new.sum == -INFINITY) return;
    new.score = new.sum / settings->penalties[new.length + 1];
    if (slot->ended == beam && new.score <= endings[beam - 1].score) return;
    if (slot->ended < beam) slot->ended++;
    int32_t n = slot->ended - 1;
    for (; n > 0 && new.score > endings[n - 1].score; n--) endings[n] = endings[n - 1];
    endings[n] = new;
}

/* Whether a sentence is finished, given the highest sum of its hypotheses that continue */
static int is_finished(const SearchSettings *settings, const Slot *slot, float highest)
{
    if (slot->length >= slot->limit || highest == -INFINITY) return 1;
    if (slot->ended < settings->count) return 0;
    if (slot->ended == settings->beam && (settings->beam == 1 || !settings->exact)) return 1;
    /* Sums only fall, and the largest penalty is that of the shortest or of the longest possible length. */
    const double penalty = fmax(settings->penalties[slot->length + 1], settings->penalties[slot->limit]);
    return slot->endings[settings->count - 1].score >= highest / penalty;
}

/* Extends the hypotheses of a slot by the chosen continuations. */
static void extend(const Search *s, int64_t index, const float *scores, const int32_t *parents, const int32_t *chosen)
{
    const SearchSettings *settings = &s->settings;
    Slot *slot = s->slots + index;
    const int64_t beam = settings->beam, length = slot->length, positions = slot->first_position + slot->limit;
    int32_t *tokens = slot->tokens + (length + 1) * beam, *origins = slot->origins + (length + 1) * beam;
    float *sums = slot->sums + (length + 1) * beam;
    int64_t width = 0;
    for (int64_t rank = 0; width < beam && rank < 2 * beam; rank++) {
        const Ending candidate = {0, scores[rank], (int32_t)length, parents[rank], chosen[rank]};
        /* Each hypothesis has one continuation that ends: at least `beam` others are left. */
        if (candidate.token != settings->eos)
            tokens[width] = candidate.token, origins[width] = candidate.origin, sums[width++] = candidate.sum;
        else if (rank < beam)
            add_ending(settings, slot, candidate);
    }
    slot->length++;
    if (slot->length >= slot->limit && !(beam == 1 && slot->ended)) /* cut off at the maximum length */
        for (int64_t n = 0; n < width; n++)
            add_ending(settings, slot, (Ending){0, sums[n], (int32_t)length, origins[n], tokens[n]});
    if (is_finished(settings, slot, sums[0])) {
        slot->state = FINISHED;
        return;
    }
    const int64_t read = slot->first_position + length; /* positions before this step */
    for (int64_t n = 0; n < width; n++) {
        int32_t *past = slot->next_past + n * positions;
        memcpy(past, slot->past + origins[n] * positions, read * sizeof *past);
        past[read] = (int32_t)(index * beam + origins[n]);
    }
    int32_t *const swapped = slot->past;
    slot->past = slot->next_past, slot->next_past = swapped;
    slot->width = (int32_t)width;
}

static const Linear *output_of(const Search *s) { return s->shortlist_output ? transduce_shortlist_linear(s->shortlist_output) : &s->decoder->output; }

typedef struct {
    const Search *search;
    int threads; /* for the output layer of one group */
    int failed;
} ChoiceJob;

static void choose_continuations(const Search *s, int64_t i, const float *logits, int64_t stride) /* of the i-th running slot */
{
    const int64_t beam = s->settings.beam;
    const Slot *slot = s->slots + s->running[i];
    Choice choice = {
        .logits = logits, .sums = slot->sums + slot->length * beam, .forbidden = s->settings.forbidden,
        .scores = s->scores + i * 2 * beam, .parents = s->parents + i * 2 * beam, .tokens = s->chosen + i * 2 * beam,
        .width = slot->width, .vocabulary = s->decoder->output.d_out, .stride = stride, .count = 2 * beam,
        .forbidden_count = s->settings.forbidden_count,
    };
    if (s->shortlist_output) {
        const int64_t listed = padded(slot->listed_count);
        transduce_shortlist_gather(s->shortlist_output, logits, slot->width, slot->shortlist, slot->listed_count, slot->listed, listed);
        choice.logits = slot->listed, choice.stride = listed;
        choice.shortlist = slot->shortlist, choice.vocabulary = slot->listed_count;
    }
    s->kernels->choose(&choice);
}

/* Logits and continuations of some running slots, a group at a time: the logits of more would not stay in the cache. */
static void continue_slots(const void *job, long begin, long end)
{
    ChoiceJob *j = (ChoiceJob *)job;
    const Search *s = j->search;
    const Linear *output = output_of(s);
    const int64_t stride = padded(output->d_out), width = s->decoder->stack.d_model;
    float *logits = malloc((GROUP + s->settings.beam) * stride * sizeof *logits);
    if (!logits) j->failed = 1; /* every thread writes the same value */
    for (long i = begin, next; logits && i < end; i = next) {
        const int32_t *targets = s->first_targets;
        for (next = i + 1; next < end && targets[next + 1] - targets[i] <= GROUP;) next++;
        if (transduce_apply(s->kernels, output, s->hidden + targets[i] * width, width, logits, targets[next] - targets[i],
                NO_ACTIVATION, j->threads)) {
            j->failed = 1;
            break;
        }
        for (long slot = i; slot < next; slot++)
            choose_continuations(s, slot, logits + (targets[slot] - targets[i]) * stride, stride);
    }
    free(logits);
}

/* One step of every running sentence; says how many were running, and how many of them are finished now */
static int advance_once(Search *s, int64_t *were_running, int64_t *finished, int threads)
{
    const int64_t beam = s->settings.beam;
    int64_t running = 0, targets = 0, longest = 0;
    for (int64_t i = 0; i < s->settings.slots; i++) {
        Slot *slot = s->slots + i;
        if (slot->state != RUNNING) continue;
        s->first_targets[running] = (int32_t)targets;
        s->sources[running] = slot->source;
        s->running[running++] = (int32_t)i;
        const int64_t position = slot->first_position - slot->unread + slot->length;
        if (position + 1 > longest) longest = position + 1;
        for (int64_t n = 0; n < slot->width; n++, targets++) {
            s->step_tokens[targets] = slot->unread ? slot->prompt[position] : slot->tokens[slot->length * beam + n];
            s->positions[targets] = (int32_t)position;
            s->rows[targets] = (int32_t)(i * beam + n);
            s->past[targets] = slot->past + n * (slot->first_position + slot->limit);
        }
    }
    s->first_targets[running] = (int32_t)targets;
    *were_running = running, *finished = 0;
    if (!running) return DONE;
    if (reserve(s, longest)) return NO_MEMORY;
    const Step step = {.tokens = s->step_tokens, .positions = s->positions, .rows = s->rows, .past = s->past,
        .first_targets = s->first_targets, .sources = s->sources, .keys = s->keys, .values = s->values, .targets = targets,
        .source_count = running, .cache_rows = s->settings.slots * beam, .pages = s->pages, .page_size = PAGE_SIZE};
    const int error = transduce_hidden(s->kernels, s->decoder, &step, s->hidden, threads);
    if (error) return error;
    /* Threads share the slots, or if there are few, the output layer of each group. An exponential is about 8 products. */
    const int is_large = targets >= threads * GROUP;
    ChoiceJob job = {s, is_large ? 1 : threads, 0};
    const long products = targets * output_of(s)->d_out * (s->decoder->stack.d_model + 8);
    transduce_parallel(continue_slots, &job, running, products, is_large ? threads : 1);
    if (job.failed) return NO_MEMORY;
    for (int64_t i = 0; i < running; i++) {
        const int64_t first = i * 2 * beam;
        if (isnan(s->scores[first])) return NAN_LOGITS;
        if (s->slots[s->running[i]].unread) { /* the next token is given, whatever was chosen */
            s->slots[s->running[i]].unread--;
            continue;
        }
        extend(s, s->running[i], s->scores + first, s->parents + first, s->chosen + first);
        *finished += s->slots[s->running[i]].state == FINISHED;
    }
    return DONE;
}

/* Takes steps until a sentence is finished, none is running, or `most` steps are done. */
EXPORT int transduce_search_advance(Search *s, int64_t most, int32_t threads)
{
    int64_t running = 1, finished = 0;
    int error = DONE;
    for (int64_t step = 0; step < most && running && !finished && !error; step++)
        error = advance_once(s, &running, &finished, threads);
    return error;
}

/* The state of a slot: free, running or finished; -1 if there is no such slot */
EXPORT int transduce_search_state(const Search *s, int64_t index)
{
    return index < 0 || index >= s->settings.slots ? -1 : s->slots[index].state;
}

/* One of the best endings of a finished slot: its tokens and the sum of log-probabilities after each. Returns the
 * number of tokens, or -1 if there is no such ending. `tokens` and `sums` have room for the slot's limit. */
EXPORT int64_t transduce_search_result(const Search *s, int64_t index, int64_t rank, int32_t *tokens, float *sums, double *score)
{
    if (transduce_search_state(s, index) != FINISHED) return -1;
    const Slot *slot = s->slots + index;
    if (rank < 0 || rank >= slot->ended || rank >= s->settings.count) return -1;
    const Ending *ending = slot->endings + rank;
    const int64_t beam = s->settings.beam;
    int64_t place = ending->origin;
    tokens[ending->length] = ending->token, sums[ending->length] = ending->sum, *score = ending->score;
    for (int64_t length = ending->length; length > 0; length--) {
        tokens[length - 1] = slot->tokens[length * beam + place], sums[length - 1] = slot->sums[length * beam + place];
        place = slot->origins[length * beam + place];
    }
    return ending->length + 1;
}

/* Frees a slot, whatever its state. */
EXPORT int transduce_search_release(Search *s, int64_t index)
{
    if (transduce_search_state(s, index) < 0) return BAD_ARGUMENT;
    Slot *slot = s->slots + index;
    if (slot->state != FREE && s->shortlist_output) transduce_shortlist_leave(s->shortlist_output, slot->shortlist, slot->listed_count);
    slot->state = FREE;
    return DONE;
}
