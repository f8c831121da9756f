/* rows.h - kernels that serve every format through its codec and go row by row, in threads. A row of a backend may have
 * faster functions for their numbers; results do not depend on it (rows.c). */
#ifndef FL_ROWS_H
#define FL_ROWS_H

#include "core/exact_rules.h"
#include "core/ref.h"

/* Work over rows 0 ... rows - 1. Any thread takes any row: run may write what belongs to the row, and adds to stats. */
struct fl_rows {
    const struct fl_args *args;
    const void *plan;
    int64_t rows, width; /* elements of a row: how much work it is */
    size_t common;       /* bytes of memory that all share, */
    int64_t doubles;     /* and numbers that each thread has of its own */
    int workers;         /* set by fl_rows_begin: memory is there for so many */
    void (*run)(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);
};

/* The workspace, for the number of threads that the call may use. */
size_t fl_rows_need(const struct fl_rows *rows);
/* Takes it: the memory that all share, 64-byte aligned; NULL without memory. */
char *fl_rows_begin(struct fl_rows *rows);
/* Runs all rows, in the memory that begin gave. Adds to the statistics of the call. */
void fl_rows_run(const struct fl_rows *rows, char *memory);

/* Elements first ... first + n - 1 of the output become the exact results in value, or those rounded to odd; largest:
 * the largest of |them|, rounded to nearest (float formats: not looked at). */
void fl_rows_store(const struct fl_args *args, int64_t first, int64_t n, const double *value, double largest,
                   struct fl_stats *stats);

/* The largest |value| of n, NaN aside: of values that are exact. */
double fl_rows_largest(const double *value, int64_t n);

/* Elements first ... first + n - 1 of an operand: integer formats their mantissas, else their values. */
void fl_rows_fetch(const struct fl_args *args, int in, int64_t first, int64_t n, double *to);

/* --- exact sums of integer formats that become elements ----------------------------------------------------------- */

/* The results of a row before they are stored: sums in 128 bits at one exponent, or wide sums one by one. */
struct fl_row_out {
    double *value;
    fl_uint128 most; /* of the former */
    double largest;  /* of the latter */
};

/* Whether sums at exponent e, below 2^126, times 2^-e are exact in doubles. */
static inline bool fl_rows_has_unit(int e) {
    return e > -850 && e < 1000;
}

/* A sum at exponent e; unit: 2^-e. */
static inline void fl_rows_keep_aligned(struct fl_row_out *out, int64_t i, fl_int128 sum, double unit) {
    const fl_uint128 size = fl_magnitude_128(sum);
    out->most = size > out->most ? size : out->most;
    if (size >> 53 == 0) {
        out->value[i] = (double)(int64_t)sum * unit;
        return;
    }
    const int excess = fl_bits_of_128(size) - 53; /* rounded to odd */
    const uint64_t kept = (uint64_t)(size >> excess) | ((size & (((fl_uint128)1 << excess) - 1)) != 0);
    const double value = (double)(int64_t)kept * fl_power_of_two(excess) * unit;
    out->value[i] = sum < 0 ? -value : value;
}

static inline void fl_rows_keep_wide(struct fl_row_out *out, int64_t i, struct fl_wide_sum sum) {
    const double size = fl_wide_abs(sum);
    out->largest = size > out->largest ? size : out->largest;
    out->value[i] = fl_wide_odd(sum);
}

/* Stores n of them; e: the exponent of those that are aligned. */
void fl_rows_store_sums(const struct fl_args *args, int64_t first, int64_t n, const struct fl_row_out *out, int e,
                        struct fl_stats *stats);

#endif
