/* row_vectors.h - the functions of row kernels for one instruction set: they read rows as doubles, round and store
 * them, and compute sums and terms. All instruction sets give the same results.
 *
 * An array of n doubles has fl_row_room(n) elements: functions work on whole vectors, and write zeros after the last
 * number unless their comment differs. */
#ifndef FL_ROW_VECTORS_H
#define FL_ROW_VECTORS_H

#include "core/rows/describe.h"
#include "core/table/kernel.h"
#include "core/ops/norms/row_norm_rules.h"

enum { FL_ROW_VECTOR = 8 }; /* doubles of the widest vector */

static inline int64_t fl_row_room(int64_t n) {
    return (n + FL_ROW_VECTOR - 1) / FL_ROW_VECTOR * FL_ROW_VECTOR;
}

/* Results of a row in units of the last place, each computed in double by a few operations: the exact one differs by
 * less than size 2^-50. If size is 0, the exact result is 0; otherwise size is above 2^-900. */
struct fl_row_estimates {
    double *value, *size;
};

/* The result of rounding estimates. */
struct fl_row_rounded {
    double most; /* no |exact result| is larger */
    int64_t saturated, flushed;
    int32_t gamma;
};

/* The numbers of a row of normalisation in units of the last place of the result. */
struct fl_row_line {
    double f, g, h, centre, g_centre; /* h: forward, the unit of beta */
};

/* One row of a gradient by gamma. */
struct fl_row_share {
    double times, sum, weight;
};

/* Exact sums of the mantissas of a channel over the pixels of an image; pixels are fewer than 2^31. */
struct fl_column_sums {
    int64_t x, xx, dy, dy_x;
};

/* The numbers of the groups of an image in group normalisation, that of its group for each channel: of fl_row_line in
 * integer formats, where beta is in units of 1 / unit, and of fl_row_numbers in float formats (f: inverse, g: slope,
 * centre: mean, g_centre: mean_g). gamma and beta are those of the channels. */
struct fl_row_columns {
    const double *gamma, *beta;
    double *f, *g, *h, *centre, *g_centre, unit;
};

/* Which elements of a tensor are dropped, and what the others are multiplied by (dropout_rules.h). */
struct fl_dropped {
    uint64_t key, counter;
    uint32_t threshold;
    double scale;
};

struct fl_row_vectors {
    enum fl_backend backend;

    /* --- numbers (row_store.h) */
    void (*widen_mantissas)(double *to, const int16_t *m, int64_t n, double unit);
    void (*widen_floats)(double *to, const float *x, int64_t n);
    void (*narrow)(float *to, const double *x, int64_t n);
    void (*add_mantissas)(int64_t *sum, const int16_t *m, int64_t n);
    /* n doubles times unit to nearest, as in the codec of shared exponents (flex_format.c); dst NULL: only statistics,
     * with the maximum. Numbers after the n are ignored. */
    void (*store)(int16_t *dst, int64_t n, const double *value, double unit, struct fl_stats *stats);
    /* Rounds estimates to nearest; false if one of them does not prove its rounding, or whether it is zero; the
     * elements and `rounded` are then undefined. dst NULL: stores nothing. */
    bool (*round)(int16_t *dst, int64_t n, const struct fl_row_estimates *row, struct fl_row_rounded *rounded);

    /* --- copied elements (row_copies.h) */
    uint32_t (*largest_word16)(const uint16_t *x, int64_t n); /* without the sign */
    uint32_t (*largest_word32)(const uint32_t *x, int64_t n);
    /* Converts mantissas in place, to nearest, to an exponent `finer` above theirs; returns the largest |m| before. */
    int32_t (*rescale)(int16_t *m, int64_t n, int finer, struct fl_stats *stats);

    /* --- descriptions (row_describe.h) of blocks of at most FL_DESCRIBED_BLOCK numbers, or FL_DESCRIBED_PIECE
     * mantissas; each call adds to the struct */
    void (*describe_floats)(const float *x, int64_t n, double centre, struct fl_described_floats *d);
    void (*describe_mantissas)(const int16_t *m, int64_t n, struct fl_described_mantissas *d);
    /* Adds the squares of y - x and of x for pairs of finite numbers. */
    void (*add_errors)(const float *x, const float *y, int64_t n, double sum[2][FL_DESCRIBED_LANES]);

    /* --- normalisation of rows (row_norm_vectors.h) */
    /* Exact sums of mantissas; dy and gamma NULL: only those of x. */
    void (*sums)(int64_t n, const double *x, const double *dy, const double *gamma, struct fl_row_sums *sums);
    void (*forward)(int64_t n, const double *x, const double *gamma, const double *beta, const struct fl_row_line *line,
                    const struct fl_row_estimates *row);
    void (*backward)(int64_t n, const double *dy, const double *x, const double *gamma, const struct fl_row_line *line,
                     const struct fl_row_estimates *row);
    /* Adds weight dy (times x - sum) to total, its size to size. */
    void (*shares)(int64_t n, const double *dy, const double *x, const struct fl_row_share *share, double *total,
                   double *size);
    /* Float formats: the numbers of a row, with those of its gradient if dy is not NULL; its results. */
    struct fl_row_numbers (*numbers)(int64_t n, const double *x, const double *dy, const double *gamma,
                                     bool mean_square, double epsilon);
    void (*values)(int64_t n, const double *x, const double *gamma, const double *beta, const struct fl_row_numbers *r,
                   double *y);
    void (*gradients)(int64_t n, const double *dy, const double *x, const double *gamma, const struct fl_row_numbers *r,
                      double *dx);
    void (*float_shares)(int64_t n, const double *dy, const double *x, const struct fl_row_numbers *r, double *total);

    /* --- group normalisation (group_norm_vectors.h): `pixels` times exactly n numbers; some 2^12 in all, so that sums
     * of products of two mantissas are exact in double */
    void (*column_sums)(int64_t pixels, int64_t n, const double *x, const double *dy, struct fl_column_sums *sums);
    void (*columns_forward)(int64_t pixels, int64_t n, const double *x, const struct fl_row_columns *k,
                            const struct fl_row_estimates *row);
    void (*columns_backward)(int64_t pixels, int64_t n, const double *dy, const double *x,
                             const struct fl_row_columns *k, const struct fl_row_estimates *row);
    void (*columns_values)(int64_t pixels, int64_t n, const double *x, const struct fl_row_columns *k, double *y);
    void (*columns_gradients)(int64_t pixels, int64_t n, const double *dy, const double *x,
                              const struct fl_row_columns *k, double *dx);
    void (*columns_squares)(int64_t pixels, int64_t n, const double *x, const struct fl_row_columns *k, double *square);
    /* g = gamma dy, and its product with the normalised x; in place of dy and of nothing else. */
    void (*columns_products)(int64_t pixels, int64_t n, const double *dy, const double *x,
                             const struct fl_row_columns *k, double *g, double *product);
    /* Adds dy times the normalised x to the n totals, pixel by pixel. */
    void (*columns_shares)(int64_t pixels, int64_t n, const double *dy, const double *x, const struct fl_row_columns *k,
                           double *total);
    /* Adds each group of `depth` channels to its FL_ROW_CHAINS chains; first: the pixel of the image. */
    void (*add_chains)(int64_t pixels, int64_t n, int64_t depth, int64_t first, const double *x, double *chain);

    /* --- dropout (dropout_vectors.h) of n elements from element `first` of the tensor on */
    void (*drop)(double *x, int64_t n, const struct fl_dropped *how, int64_t first);

    /* --- sums, products and quotients (axes_vectors.h) on exactly n numbers. Sums are rounded to odd. They return the
     * largest |result|, rounded to nearest, where every number is finite. */
    double (*add)(double *a, const double *b, int64_t n);
    double (*multiply)(double *a, const double *b, int64_t n);
    /* Integers below 2^53 by an integer, rounded to odd, times `unit`, a power of two; returns the largest quotient. */
    double (*divide_odd)(double *x, int64_t n, double by, double unit);
    /* a becomes b (NULL: 0) where a mark, of n that are `stride` apart, says so: where it is 0 if `marked`, else where
     * it is not 0. */
    void (*choose)(double *a, const double *b, int64_t n, const uint8_t *marks, int64_t stride, bool marked);
    /* Adds x z to n chains of binary32, each rounded once. */
    void (*add_products)(double *chain, const double *x, const double *z, int64_t n);

    /* --- softmax (softmax_map_vectors.h): arrays of exactly n numbers */
    void (*exponentials)(double *x, int64_t n); /* of numbers not above zero */
    void (*from_largest)(double *z, int64_t n, double scale);
    void (*divide)(double *x, int64_t n, double by);
    /* e^z of n numbers not above zero, off by less than 2^-49 of each, or at most 2^-1020 if z is below -708; returns
     * their sum, in any order. NaN gives NaN. to: fl_row_room(n) numbers. */
    double (*powers)(double *to, const double *z, int64_t n);
    /* x times `by` as estimates that are off by less than `share` of themselves; an x below 2^-1000 proves nothing. */
    void (*estimates)(int64_t n, const double *x, double by, double share, const struct fl_row_estimates *row);
    /* x times `by` as binary32; false if a result that is off by less than `share` of itself could round differently.
     */
    bool (*narrow_estimates)(float *to, int64_t n, const double *x, double by, double share);
    int64_t (*dot)(int64_t n, const double *a, const double *b); /* of mantissas, exactly */
    void (*slopes)(int64_t n, const double *p, const double *dp, double unit, double dot, double scale,
                   const struct fl_row_estimates *row); /* scale p (unit dp - dot) */
    void (*float_slopes)(int64_t n, double *p, const double *dp, double dot, double scale);
};

extern const struct fl_row_vectors fl_row_vectors_portable;
#ifdef FL_HAVE_AVX2
extern const struct fl_row_vectors fl_row_vectors_avx2;
#endif
#ifdef FL_HAVE_AVX512
extern const struct fl_row_vectors fl_row_vectors_avx512bw;
#endif

/* The vectors of a backend; NULL: it has none. */
const struct fl_row_vectors *fl_row_vectors_of(enum fl_backend backend);

#endif
