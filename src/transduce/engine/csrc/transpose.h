/* Rows to columns, four by four: every instruction set has vectors of four numbers. */
#ifndef TRANSDUCE_TRANSPOSE_H
#define TRANSDUCE_TRANSPOSE_H

#include <string.h>

typedef float Four __attribute__((vector_size(16)));
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int FourPlaces __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (FourPlaces){i, j, k, l})
#endif

static inline Four load_four(const float *p)
{
    Four a;
    memcpy(&a, p, sizeof a);
    return a;
}

static inline void store_four(float *p, Four a) { memcpy(p, &a, sizeof a); }

static inline void transpose_four(const float *rows, long row_stride, float *columns, long column_stride)
{
    const Four a = load_four(rows), b = load_four(rows + row_stride);
    const Four c = load_four(rows + 2 * row_stride), d = load_four(rows + 3 * row_stride);
    const Four ab = SHUFFLE(a, b, 0, 4, 1, 5), cd = SHUFFLE(c, d, 0, 4, 1, 5);
    const Four ab_high = SHUFFLE(a, b, 2, 6, 3, 7), cd_high = SHUFFLE(c, d, 2, 6, 3, 7);
    store_four(columns, SHUFFLE(ab, cd, 0, 1, 4, 5));
    store_four(columns + column_stride, SHUFFLE(ab, cd, 2, 3, 6, 7));
    store_four(columns + 2 * column_stride, SHUFFLE(ab_high, cd_high, 0, 1, 4, 5));
    store_four(columns + 3 * column_stride, SHUFFLE(ab_high, cd_high, 2, 3, 6, 7));
}

/* rows (count, width), width a multiple of 4, to columns (width, column_stride), with zeros from `count` on */
static inline void transpose(const float *rows, long count, long width, long row_stride, float *columns, long column_stride)
{
    const long whole = count / 4 * 4;
    for (long l = 0; l < whole; l += 4)
        for (long d = 0; d < width; d += 4)
            transpose_four(rows + l * row_stride + d, row_stride, columns + d * column_stride + l, column_stride);
    for (long d = 0; d < width; d++)
        for (long l = whole; l < column_stride; l++)
            columns[d * column_stride + l] = l < count ? rows[l * row_stride + d] : 0.0f;
}

#endif
