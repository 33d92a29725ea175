/* NEON with the 8-bit dot product */
#if defined(__aarch64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
#define ISA 6
#define NAME neondot
#define NAME_TEXT "neondot"
#include "kernels.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
