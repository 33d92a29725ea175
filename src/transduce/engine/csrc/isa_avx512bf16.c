/* AVX-512 with VNNI, the 8-bit dot product, and BF16, that of bfloat16 */
#include "engine.h"

#if HAVE_AVX512BF16
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")
#endif
#define ISA 7
#define NAME avx512bf16
#define NAME_TEXT "avx512bf16"
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
