/* row_vectors.h - what kernels of rows have of an instruction set: rows read as doubles, rounded and stored, their sums
 * and terms. Every kernel set has one, all with the same results.
 *
 * Rows of doubles lie in room for fl_row_room(n) of them: functions work on whole vectors, and what they write behind
 * the last number is zero where not said otherwise. */
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
 * less than size 2^-50, and where size is 0, so is it, exactly. Elsewhere size is above 2^-900. */
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

struct fl_row_vectors {
    enum fl_backend backend;

    /* --- numbers (row_store.h) */
    void (*widen_mantissas)(double *to, const int16_t *m, int64_t n, double unit);
    void (*widen_floats)(double *to, const float *x, int64_t n);
    void (*narrow)(float *to, const double *x, int64_t n);
    void (*add_mantissas)(int64_t *sum, const int16_t *m, int64_t n);
    /* n doubles times unit to nearest, as the codec of shared exponents does it (flex_format.c); dst NULL: statistics
     * alone, the maximum among them. What lies behind the n is not looked at. */
    void (*store)(int16_t *dst, int64_t n, const double *value, double unit, struct fl_stats *stats);
    /* Estimates to nearest; false where one of them does not prove its rounding, or whether it is zero: then all that
     * was written is undefined. dst NULL: looks alone. */
    bool (*round)(int16_t *dst, int64_t n, const struct fl_row_estimates *row, struct fl_row_rounded *rounded);

    /* --- copied elements (row_copies.h) */
    uint32_t (*largest_word16)(const uint16_t *x, int64_t n); /* without the sign */
    uint32_t (*largest_word32)(const uint32_t *x, int64_t n);
    /* Mantissas at an exponent `finer` above theirs, in place, to nearest; largest: of |them| before. */
    int32_t (*rescale)(int16_t *m, int64_t n, int finer, struct fl_stats *stats);

    /* --- what elements look like (row_describe.h): blocks of at most FL_DESCRIBED_BLOCK numbers, or
     * FL_DESCRIBED_PIECE mantissas, added to what is there */
    void (*describe_floats)(const float *x, int64_t n, double centre, struct fl_described_floats *d);
    void (*describe_mantissas)(const int16_t *m, int64_t n, struct fl_described_mantissas *d);
    /* Squares of y - x and of x, of the pairs that are finite. */
    void (*add_errors)(const float *x, const float *y, int64_t n, double sum[2][FL_DESCRIBED_LANES]);

    /* --- normalisation of rows (row_norm_vectors.h) */
    /* Exact sums of mantissas; dy and gamma NULL: those of x alone. */
    void (*sums)(int64_t n, const double *x, const double *dy, const double *gamma, struct fl_row_sums *sums);
    void (*forward)(int64_t n, const double *x, const double *gamma, const double *beta, const struct fl_row_line *line,
                    const struct fl_row_estimates *row);
    void (*backward)(int64_t n, const double *dy, const double *x, const double *gamma, const struct fl_row_line *line,
                     const struct fl_row_estimates *row);
    /* Adds weight dy (times x - sum) to total, its size to size. */
    void (*shares)(int64_t n, const double *dy, const double *x, const struct fl_row_share *share, double *total,
                   double *size);
    /* Float formats: the numbers of a row, those of its gradient too where dy is not NULL; its results. */
    struct fl_row_numbers (*numbers)(int64_t n, const double *x, const double *dy, const double *gamma,
                                     bool mean_square, double epsilon);
    void (*values)(int64_t n, const double *x, const double *gamma, const double *beta, const struct fl_row_numbers *r,
                   double *y);
    void (*gradients)(int64_t n, const double *dy, const double *x, const double *gamma, const struct fl_row_numbers *r,
                      double *dx);
    void (*float_shares)(int64_t n, const double *dy, const double *x, const struct fl_row_numbers *r, double *total);

    /* --- softmax (softmax_map_vectors.h): n numbers that need no room behind them */
    void (*exponentials)(double *x, int64_t n); /* of numbers not above zero */
    void (*from_largest)(double *z, int64_t n, double scale);
    void (*divide)(double *x, int64_t n, double by);
    /* e^z of n numbers not above zero, off by less than 2^-49 of each, or at most 2^-1020 where z is below -708; their
     * sum in any order. NaN gives NaN. to: room for fl_row_room(n). */
    double (*powers)(double *to, const double *z, int64_t n);
    /* x times `by` as estimates that are off by less than `share` of themselves; below 2^-1000 x proves nothing. */
    void (*estimates)(int64_t n, const double *x, double by, double share, const struct fl_row_estimates *row);
    /* x times `by` as binary32; false where a result that is off by less than `share` of itself could be another. */
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

/* Those of a backend; NULL: it has none. */
const struct fl_row_vectors *fl_row_vectors_of(enum fl_backend backend);

#endif
