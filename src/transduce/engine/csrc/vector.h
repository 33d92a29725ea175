/* What differs between instruction sets: the width of a vector, and the product of 8-bit numbers.
 *
 * A file that includes this one defines ISA, which is one of the names below, and asks the compiler for its
 * instructions. The rows and panels of a product, the SUMS of attention and the CHAINS of independent sums among them are
 * as many as the registers hold.
 */
#include <math.h>
#include <string.h>

#define ISA_GENERIC 0
#define ISA_AVX2 1
#define ISA_AVXVNNI 2
#define ISA_AVX512 3
#define ISA_AVX512VNNI 4
#define ISA_NEON 5
#define ISA_NEONDOT 6
#define ISA_AVX512BF16 7

#define HAS_AVX512 (ISA == ISA_AVX512 || ISA == ISA_AVX512VNNI || ISA == ISA_AVX512BF16)

#if HAS_AVX512
#include <immintrin.h>
enum { LANES = 16, VECTORS = 4, ROWS_FLOAT = 6, ROWS_INT8 = 6, PANELS_OF_ONE_ROW = 4, PANELS_OF_TWO_ROWS = 2, SUMS = 16, CHAINS = 4 };
typedef __m512 vf;
typedef int vi __attribute__((vector_size(64)));
typedef unsigned vu __attribute__((vector_size(64)));
static inline vf splat(float x) { return _mm512_set1_ps(x); }
static inline vf larger(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf smaller(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline float sum_lanes(vf a) { return _mm512_reduce_add_ps(a); }
static inline float highest_lane(vf a) { return _mm512_reduce_max_ps(a); }
static inline int any_greater(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ) != 0; }
static inline vf absolute(vf a) { return _mm512_abs_ps(a); }
static inline vi splat_int(int32_t x) { return (vi)_mm512_set1_epi32(x); }
#elif ISA == ISA_AVX2 || ISA == ISA_AVXVNNI
#include <immintrin.h>
enum { LANES = 8, VECTORS = 2, ROWS_FLOAT = 6, ROWS_INT8 = 4, PANELS_OF_ONE_ROW = 4, PANELS_OF_TWO_ROWS = 2, SUMS = 8, CHAINS = 2 };
typedef __m256 vf;
typedef int vi __attribute__((vector_size(32)));
typedef unsigned vu __attribute__((vector_size(32)));
static inline vf splat(float x) { return _mm256_set1_ps(x); }
static inline vf larger(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf smaller(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline float sum_lanes(vf a)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
static inline float highest_lane(vf a)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
static inline int any_greater(vf a, vf b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)) != 0; }
static inline vf absolute(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vi splat_int(int32_t x) { return (vi)_mm256_set1_epi32(x); }
#elif ISA == ISA_NEON || ISA == ISA_NEONDOT
#include <arm_neon.h>
enum { LANES = 4, VECTORS = 4, ROWS_FLOAT = 6, ROWS_INT8 = 4, PANELS_OF_ONE_ROW = 2, PANELS_OF_TWO_ROWS = 1, SUMS = 16, CHAINS = 4 };
typedef float32x4_t vf;
typedef int vi __attribute__((vector_size(16)));
typedef unsigned vu __attribute__((vector_size(16)));
static inline vf splat(float x) { return vdupq_n_f32(x); }
/* As on x86, the second argument if either is NaN */
static inline vf larger(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline vf smaller(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline float sum_lanes(vf a) { return vaddvq_f32(a); }
static inline float highest_lane(vf a) { return vmaxvq_f32(a); }
static inline int any_greater(vf a, vf b) { return vmaxvq_u32(vcgtq_f32(a, b)) != 0; }
static inline vf absolute(vf a) { return vabsq_f32(a); }
static inline vi splat_int(int32_t x) { return (vi)vdupq_n_s32(x); }
#else
enum { LANES = 4, VECTORS = 2, ROWS_FLOAT = 4, ROWS_INT8 = 2, PANELS_OF_ONE_ROW = 1, PANELS_OF_TWO_ROWS = 1, SUMS = 8, CHAINS = 2 };
typedef float vf __attribute__((vector_size(16)));
typedef int vi __attribute__((vector_size(16)));
typedef unsigned vu __attribute__((vector_size(16)));
static inline vf splat(float x) { return (vf){x, x, x, x}; }
static inline vi splat_int(int32_t x) { return (vi){x, x, x, x}; }
static inline vf choose_lanes(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
static inline vf larger(vf a, vf b) { return choose_lanes(a > b, a, b); }
static inline vf smaller(vf a, vf b) { return choose_lanes(a < b, a, b); }
static inline float sum_lanes(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
static inline float highest_lane(vf a)
{
    const float even = a[0] > a[2] ? a[0] : a[2], odd = a[1] > a[3] ? a[1] : a[3];
    return even > odd ? even : odd;
}
static inline int any_greater(vf a, vf b)
{
    const vi mask = a > b;
    return (mask[0] | mask[1] | mask[2] | mask[3]) != 0;
}
static inline vf absolute(vf a) { return (vf)((vi)a & splat_int(0x7fffffff)); }
#endif

enum { PANEL = VECTORS * LANES };

static inline vf load(const float *p)
{
    vf a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline void store(float *p, vf a) { memcpy(p, &a, sizeof a); }
static inline vi load_int(const void *p)
{
    vi a;
    memcpy(&a, p, sizeof a);
    return a;
}
static inline vf to_float(vi a) { return __builtin_convertvector(a, vf); }

/* The number nearest to a, for |a| < 2^22: adding and subtracting 1.5 x 2^23 leaves no room for a fraction. */
static inline vf nearest(vf a)
{
    const vf magic = splat(12582912.0f);
    return (a + magic) - magic;
}

/* e^x for x <= 0, correct to one or two bits: 2^n e^r with |r| <= ln(2) / 2, and a polynomial for e^r */
static inline vf exp_negative(vf x)
{
    x = larger(splat(-87.0f), x); /* with the arguments in this order, NaN stays NaN */
    const vf n = nearest(x * splat(1.44269504f));
    vf r = x - n * splat(0.693359375f);  /* ln(2) in two parts, so that */
    r = r - n * splat(-2.12194440e-4f);  /* n times the first one is exact */
    vf p = splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(1.0f / 2);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    return (vf)((vi)p + (__builtin_convertvector(n, vi) << 23));
}

/* Products of bfloat16 numbers: dot_pairs adds to each of LANES sums the products of two inputs, the same for all lanes,
 * and two weights. A bfloat16 number is the upper half of a float32 number. */
static inline vf dot_pairs(vf sums, vi inputs, vi weights)
{
#if ISA == ISA_AVX512BF16
    return _mm512_dpbf16_ps(sums, (__m512bh)inputs, (__m512bh)weights);
#else
    const vi upper = splat_int((int32_t)0xffff0000);
    sums = (vf)(inputs << 16) * (vf)(weights << 16) + sums;
    return (vf)(inputs & upper) * (vf)(weights & upper) + sums;
#endif
}

/* Products of 8-bit numbers. dot adds to each of LANES sums the products of four inputs, the same for all lanes, and
 * four weights, STEPS times. x86 multiplies unsigned inputs by signed weights, hence the offset of the inputs. */
#if ISA == ISA_AVX512VNNI || ISA == ISA_AVX512BF16
enum { INPUT_LIMIT = 127, INPUT_OFFSET = 128, WEIGHT_LIMIT = 127, STEPS = 1 };
static inline vi dot(vi sums, const vi *inputs, const vi *weights)
{
    return (vi)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)inputs[0], (__m512i)weights[0]);
}
#elif ISA == ISA_AVXVNNI
enum { INPUT_LIMIT = 127, INPUT_OFFSET = 128, WEIGHT_LIMIT = 127, STEPS = 1 };
static inline vi dot(vi sums, const vi *inputs, const vi *weights)
{
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)inputs[0], (__m256i)weights[0]);
}
#elif ISA == ISA_AVX512 || ISA == ISA_AVX2
/* Pairs of products are added in 16 bits, and so are the pairs of two instructions: 4 x 127 x 64 = 32,512 fits. */
enum { INPUT_LIMIT = 63, INPUT_OFFSET = 64, WEIGHT_LIMIT = 64, STEPS = 2 };
static inline vi dot(vi sums, const vi *inputs, const vi *weights)
{
#if ISA == ISA_AVX512
    const __m512i pairs = _mm512_add_epi16(_mm512_maddubs_epi16((__m512i)inputs[0], (__m512i)weights[0]),
        _mm512_maddubs_epi16((__m512i)inputs[1], (__m512i)weights[1]));
    return (vi)_mm512_add_epi32((__m512i)sums, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#else
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16((__m256i)inputs[0], (__m256i)weights[0]),
        _mm256_maddubs_epi16((__m256i)inputs[1], (__m256i)weights[1]));
    return (vi)_mm256_add_epi32((__m256i)sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
#elif ISA == ISA_NEONDOT
enum { INPUT_LIMIT = 127, INPUT_OFFSET = 0, WEIGHT_LIMIT = 127, STEPS = 1 };
static inline vi dot(vi sums, const vi *inputs, const vi *weights)
{
    return (vi)vdotq_s32((int32x4_t)sums, (int8x16_t)inputs[0], (int8x16_t)weights[0]);
}
#elif ISA == ISA_NEON
enum { INPUT_LIMIT = 127, INPUT_OFFSET = 0, WEIGHT_LIMIT = 127, STEPS = 1 };
static inline vi dot(vi sums, const vi *inputs, const vi *weights)
{
    const int8x16_t x = (int8x16_t)inputs[0], w = (int8x16_t)weights[0];
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(w)));
    const int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8(x), vget_high_s8(w)));
    return (vi)vaddq_s32((int32x4_t)sums, vpaddq_s32(low, high));
}
#else
enum { INPUT_LIMIT = 127, INPUT_OFFSET = 0, WEIGHT_LIMIT = 127, STEPS = 1 };
static inline vi dot(vi sums, const vi *inputs, const vi *weights)
{
    int8_t x[4 * LANES], w[4 * LANES];
    memcpy(x, inputs, sizeof x);
    memcpy(w, weights, sizeof w);
    for (int lane = 0; lane < LANES; lane++)
        for (int k = 0; k < 4; k++) sums[lane] += x[4 * lane + k] * w[4 * lane + k];
    return sums;
}
#endif
