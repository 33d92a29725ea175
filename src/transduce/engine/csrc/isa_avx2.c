/* AVX2: 8-bit products by way of 16 bits */
#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define ISA 1
#define NAME avx2
#define NAME_TEXT "avx2"
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
