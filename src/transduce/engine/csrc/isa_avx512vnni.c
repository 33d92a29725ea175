/* AVX-512 with VNNI, the 8-bit dot product */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")
#endif
#define ISA 4
#define NAME avx512vnni
#define NAME_TEXT "avx512vnni"
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
