/* The instruction set that is used, and the layout of the structures, which Python compares with its own */
#include "engine.h"

#include <string.h>
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

static int always(void) { return 1; }

#if defined(__x86_64__)
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#if HAVE_AVX512BF16
static int has_avx512bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}
#endif
static int has_avx512vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#if HAVE_AVXVNNI
static int has_avxvnni(void)
{
    unsigned a = 7, b, c = 1, d; /* leaf 7, subleaf 1; GCC's name for it depends on the version */
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return has_avx2() && (a >> 4 & 1);
}
#endif
#elif defined(__aarch64__)
static int has_dot_product(void)
{
#if defined(__APPLE__)
    return 1;
#elif defined(__linux__)
    return (getauxval(AT_HWCAP) >> 20 & 1) != 0; /* HWCAP_ASIMDDP */
#else
    return 0;
#endif
}
#endif

static const struct {
    const Kernels *kernels;
    int (*is_supported)(void);
} sets[] = { /* the fastest first */
#if defined(__x86_64__)
#if HAVE_AVX512BF16
    {&transduce_avx512bf16, has_avx512bf16},
#endif
    {&transduce_avx512vnni, has_avx512vnni},
#if HAVE_AVXVNNI
    {&transduce_avxvnni, has_avxvnni},
#endif
    {&transduce_avx512, has_avx512},
    {&transduce_avx2, has_avx2},
#elif defined(__aarch64__)
    {&transduce_neondot, has_dot_product},
    {&transduce_neon, always},
#endif
    {&transduce_generic, always},
};

enum { SETS = sizeof sets / sizeof *sets };

/* The name of each instruction set that was compiled, fastest first; NULL beyond the last */
EXPORT const char *transduce_set_name(int32_t index) { return index < 0 || index >= SETS ? NULL : sets[index].kernels->name; }

/* Whether this processor has an instruction set */
EXPORT int transduce_set_is_supported(int32_t index) { return index >= 0 && index < SETS && sets[index].is_supported(); }

EXPORT const Kernels *transduce_set(int32_t index) { return transduce_set_is_supported(index) ? sets[index].kernels : NULL; }

typedef struct {
    const char *structure, *field;
    int64_t offset, size;
} Field;

#define FIELD(structure, field) {#structure, #field, offsetof(structure, field), sizeof(((structure *)0)->field)}

/* Every field of the structures that Python fills in; the last one has no name */
EXPORT const Field transduce_layout[] = {
    FIELD(Linear, weights), FIELD(Linear, scales), FIELD(Linear, offsets), FIELD(Linear, bias), FIELD(Linear, d_in),
    FIELD(Linear, d_out), FIELD(Linear, kind), FIELD(Linear, reserved),
    FIELD(Norm, weight), FIELD(Norm, bias),
    FIELD(Layer, query_key_value), FIELD(Layer, self_output), FIELD(Layer, memory_query), FIELD(Layer, memory_key_value),
    FIELD(Layer, memory_output), FIELD(Layer, inner), FIELD(Layer, outer), FIELD(Layer, around_self_attention),
    FIELD(Layer, around_memory_attention), FIELD(Layer, around_feed_forward),
    FIELD(Stack, layers), FIELD(Stack, final), FIELD(Stack, rotations), FIELD(Stack, depth), FIELD(Stack, heads),
    FIELD(Stack, d_model), FIELD(Stack, d_ff), FIELD(Stack, d_k), FIELD(Stack, d_v), FIELD(Stack, positions),
    FIELD(Stack, epsilon), FIELD(Stack, pre), FIELD(Stack, activation), FIELD(Stack, has_memory),
    FIELD(Stack, is_recurrent),
    FIELD(Decoder, stack), FIELD(Decoder, output), FIELD(Decoder, embedding), FIELD(Decoder, positions), FIELD(Decoder, norm),
    FIELD(Decoder, vocabulary), FIELD(Decoder, scale), FIELD(Decoder, reserved),
    FIELD(Source, keys), FIELD(Source, values), FIELD(Source, length), FIELD(Source, stride),
    FIELD(Step, tokens), FIELD(Step, positions), FIELD(Step, rows), FIELD(Step, past), FIELD(Step, first_targets),
    FIELD(Step, sources), FIELD(Step, keys), FIELD(Step, values), FIELD(Step, attention), FIELD(Step, targets),
    FIELD(Step, source_count), FIELD(Step, cache_rows), FIELD(Step, pages), FIELD(Step, page_size), FIELD(Step, attention_stride),
    FIELD(SearchSettings, penalties), FIELD(SearchSettings, forbidden), FIELD(SearchSettings, penalty_count),
    FIELD(SearchSettings, forbidden_count), FIELD(SearchSettings, slots), FIELD(SearchSettings, beam),
    FIELD(SearchSettings, count), FIELD(SearchSettings, eos), FIELD(SearchSettings, exact),
    FIELD(SearchSettings, has_shortlists),
    FIELD(Dropout, seed), FIELD(Dropout, dropped), FIELD(Dropout, scale),
    FIELD(Residual, x), FIELD(Residual, update), FIELD(Residual, sum), FIELD(Residual, y), FIELD(Residual, statistics),
    FIELD(Residual, d_y), FIELD(Residual, d_x), FIELD(Residual, d_update), FIELD(Residual, norm), FIELD(Residual, dropout),
    FIELD(Residual, rows), FIELD(Residual, width), FIELD(Residual, epsilon), FIELD(Residual, reserved),
    FIELD(FullAttention, query), FIELD(FullAttention, key), FIELD(FullAttention, value), FIELD(FullAttention, out),
    FIELD(FullAttention, weights), FIELD(FullAttention, d_out), FIELD(FullAttention, d_query), FIELD(FullAttention, d_key),
    FIELD(FullAttention, d_value), FIELD(FullAttention, query_lengths), FIELD(FullAttention, key_lengths),
    FIELD(FullAttention, examples), FIELD(FullAttention, heads), FIELD(FullAttention, queries), FIELD(FullAttention, keys),
    FIELD(FullAttention, d_k), FIELD(FullAttention, d_v), FIELD(FullAttention, query_stride), FIELD(FullAttention, key_stride),
    FIELD(FullAttention, value_stride), FIELD(FullAttention, out_stride), FIELD(FullAttention, weight_stride),
    FIELD(FullAttention, scale), FIELD(FullAttention, is_causal),
    {NULL, NULL, 0, 0},
};

/* The numbers of an instruction set that decide how weights are packed */
EXPORT void transduce_numbers(const Kernels *kernels, int32_t *numbers)
{
    const int32_t found[] = {kernels->panel, kernels->input_limit, kernels->input_offset, kernels->weight_limit, kernels->is_fast};
    memcpy(numbers, found, sizeof found);
}
