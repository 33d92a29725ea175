/* NEON, which every 64-bit ARM processor has: 8-bit products by way of 16 bits */
#if defined(__aarch64__)
#define ISA 5
#define NAME neon
#define NAME_TEXT "neon"
#include "kernels.h"
#endif
