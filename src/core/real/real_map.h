/* real_map.h - kernels of the real entries of ops.def, for every format through its codec, and the tables of 16-bit
 * formats.
 *
 * A table has an entry for each of the 65,536 elements: the result in the low 16 bits, above it the rank of the true
 * magnitude among all results, less 2^15. The largest entry that occurs determines maximum and gamma; NaN, zeros,
 * flushed and saturated results are ranges of ranks, so they are counted by comparing entries with limits. */
#ifndef FL_REAL_MAP_H
#define FL_REAL_MAP_H

#include "core/table/format.h"
#include "core/real/real_lanes.h"

enum { FL_REAL_WORDS = 65536 };

/* The first rank of each range; FL_REAL_WORDS if there is none. */
struct fl_real_ranks {
    int32_t zero;      /* below: NaN */
    int32_t nonzero;   /* ranks from zero to below this: exact zeros */
    int32_t kept;      /* from nonzero to below this: flushed */
    int32_t saturated; /* from here on: saturated, or overflowed to Inf */
    int32_t infinite;  /* from here on: poles */
};

struct fl_real_table {
    int32_t entries[FL_REAL_WORDS];
    uint16_t example[FL_REAL_WORDS]; /* for each rank, an element whose result has it */
    struct fl_real_ranks ranks;
};

/* The table for a task's operation, format, scalars, exponents and rounding, which is made if make is set and there is
 * memory for it. NULL: none. It does not change until fl_real_table_leave. Any thread. */
const struct fl_real_table *fl_real_table_of(const struct fl_args *args, const struct fl_real_lanes *lanes, bool make);
void fl_real_table_leave(const struct fl_real_table *table);

/* Slopes of a gradient at each of the 65,536 elements of x, which multiply dy; NaN if x is special (real_rules.h). The
 * last bit is set if a slope is off by at most FL_REAL_SLOPE_ERROR of itself; the others are exact. Slopes below 2^-280
 * only need the right sign, and must not be smaller than the true ones: times dy, below 2^128, they are 0 in every
 * format, and do not determine a maximum. */
struct fl_real_slopes {
    double at[FL_REAL_WORDS];
};
#define FL_REAL_SLOPE_ERROR 0x1p-41
/* Returns slopes as fl_real_table_of returns tables. */
const struct fl_real_slopes *fl_real_slopes_of(const struct fl_args *args, const struct fl_real_lanes *lanes,
                                               bool make);
void fl_real_slopes_leave(const struct fl_real_slopes *slopes);
/* Whether the operation is a product with a slope of its second operand, of two bytes, that is worth a table. */
bool fl_real_has_slopes(const struct fl_args *args);
/* Slopes of that operation at n elements x, marked as in struct fl_real_slopes. */
void fl_real_slope_entries(const struct fl_args *args, const struct fl_real_lanes *lanes, int n, const double *x,
                           double *slopes);

/* The result for a range of elements: the extreme entries, and how many were above each of two limits. */
struct fl_real_found {
    int32_t least, most;
    int64_t above[2];
};

/* y[i] = result of entries[x[i]]; y may be x, or NULL to store nothing. Adds to found. */
typedef void (*fl_real_lookup)(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n,
                               const int32_t limits[2], struct fl_real_found *found);
void fl_real_lookup_portable(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n, const int32_t limits[2],
                             struct fl_real_found *found);
void fl_real_lookup_avx2(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n, const int32_t limits[2],
                         struct fl_real_found *found);
void fl_real_lookup_avx512bw(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n, const int32_t limits[2],
                             struct fl_real_found *found);

/* The kernels by backend. */
tensor_status fl_real_map_portable(const struct fl_args *args);
tensor_status fl_real_map_avx2(const struct fl_args *args);
tensor_status fl_real_map_avx512bw(const struct fl_args *args);

/* The vectors of that backend; NULL if the compiler does not support it. */
const struct fl_real_lanes *fl_real_lanes_of(enum fl_backend backend);
/* Whether the operation has one operand, its rounding is not stochastic, and elements have two bytes. */
bool fl_real_has_table(const struct fl_args *args);
/* The numbers of n elements before rounding, accurate enough for every rounding except the stochastic one. */
void fl_real_near(const struct fl_args *args, const struct fl_real_lanes *lanes, int n, const double *x, double *near);
/* Whether binary32 holds all numbers at these exponents, and rounds halves of their units as the vectors expect. */
bool fl_real_floats_hold(const struct fl_args *args);

#endif
