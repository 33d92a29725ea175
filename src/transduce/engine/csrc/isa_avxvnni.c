/* AVX2 with VNNI, the 8-bit dot product */
#include "engine.h"

#if HAVE_AVXVNNI
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avxvnni"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,avxvnni")
#endif
#define ISA 2
#define NAME avxvnni
#define NAME_TEXT "avxvnni"
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
