/* AVX-512 without VNNI: 8-bit products by way of 16 bits */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#endif
#define ISA 3
#define NAME avx512
#define NAME_TEXT "avx512"
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
