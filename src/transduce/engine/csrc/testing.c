/* Kernels that other code reaches only through a whole step or search, callable by themselves for the tests */
#include "engine.h"

EXPORT void transduce_test_attend(const Kernels *kernels, const Attention *attention) { kernels->attend(attention); }

EXPORT void transduce_test_attend_past(const Kernels *kernels, const PastAttention *attention)
{
    kernels->attend_past(attention);
}

EXPORT void transduce_test_choose(const Kernels *kernels, const Choice *choice) { kernels->choose(choice); }

EXPORT void transduce_test_activate(const Kernels *kernels, int32_t activation, float *x, int64_t rows, int64_t width)
{
    kernels->activate(activation, x, rows, width, width);
}

EXPORT void transduce_test_normalise(
    const Kernels *kernels, const Norm *norm, const float *x, float *y, int64_t rows, int64_t width, float epsilon)
{
    kernels->normalise(norm, x, y, rows, width, epsilon);
}
