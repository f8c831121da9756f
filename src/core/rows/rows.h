/* rows.h - kernels that serve every format, row by row, in threads. The vectors of an instruction set (row_vectors.h)
 * read and write rows; the results of all sets are the same. */
#ifndef FL_ROWS_H
#define FL_ROWS_H

#include "core/arithmetic/exact_rules.h"
#include "core/reference/ref.h"
#include "core/rows/row_vectors.h"

/* Work over rows 0 ... rows - 1. Any thread takes any row: run may write what belongs to the row, and adds to stats. */
struct fl_rows {
    const struct fl_args *args;
    const void *plan;
    int64_t rows, width; /* elements of a row: the measure of its work */
    size_t common;       /* bytes of memory that all threads share, */
    int64_t doubles;     /* and numbers for each thread */
    int workers;         /* set by fl_rows_begin: the memory is for so many threads */
    void (*run)(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);
    const struct fl_row_vectors *vectors; /* NULL: run reads and writes by itself */
};

/* The bytes of workspace, for the number of threads that the task may use. */
size_t fl_rows_need(const struct fl_rows *rows);
/* Takes the workspace: the memory that all threads share, 64-byte aligned; NULL without memory. */
char *fl_rows_begin(struct fl_rows *rows);
/* Runs all rows, in the memory of fl_rows_begin. Adds to the statistics of the task. */
void fl_rows_run(const struct fl_rows *rows, char *memory);

/* Stores results, exact or rounded to odd, as elements first ... first + n - 1 of the output; largest: the largest
 * |result|, rounded to nearest (float formats ignore it). */
void fl_rows_store(const struct fl_args *args, int64_t first, int64_t n, const double *value, double largest,
                   struct fl_stats *stats);

/* The largest finite |value| of n exact values. */
double fl_rows_largest(const double *value, int64_t n);

/* --- with vectors: arrays have fl_row_room(n) elements ------------------------------------------------------------ */

/* Elements first ... first + n - 1 of an operand: mantissas in integer formats, values in others; and values in every
 * format. Zeros follow, up to a whole vector. */
void fl_rows_read(const struct fl_rows *rows, int in, int64_t first, int64_t n, double *to);
void fl_rows_read_values(const struct fl_rows *rows, int in, int64_t first, int64_t n, double *to);

/* fl_rows_store; largest NULL: the values are exact, and it computes their largest. */
void fl_rows_write(const struct fl_rows *rows, int64_t first, int64_t n, const double *value, const double *largest,
                   struct fl_stats *stats);

/* Whether the format has conversions of binary32 for these vectors; and the write of n results in binary32, to nearest
 * or truncated. */
bool fl_rows_convert(const struct fl_rows *rows);
void fl_rows_write_floats(const struct fl_rows *rows, int64_t first, int64_t n, const float *value,
                          struct fl_stats *stats);

/* Sets elements first ... first + n - 1 of the output to exact zeros. */
void fl_rows_write_zeros(const struct fl_rows *rows, int64_t first, int64_t n);

/* Computes the exact result number c of a row. */
typedef struct fl_wide_sum (*fl_exact_result)(const void *of, int64_t c);

/* Whether fl_rows_write_estimates may be tried: integer formats rounded to nearest. */
bool fl_rows_take_estimates(const struct fl_rows *rows);
/* Stores estimates of integer formats, in units of the last place of the output. False if they do not prove every
 * rounding: the elements are then undefined, statistics unchanged, and the caller must store the row in another way. */
bool fl_rows_write_estimates(const struct fl_rows *rows, int64_t first, int64_t n, const struct fl_row_estimates *row,
                             fl_exact_result exact, const void *of, struct fl_stats *stats);

/* 2^n for the unit of an estimate; 0 if |n| > 400, because results computed with it might not fit a double. */
static inline double fl_row_unit(int n) {
    return n >= -400 && n <= 400 ? fl_power_of_two(n) : 0;
}

/* Makes elements first ... first + n - 1 of the output from n elements of operand `in`, which the caller has copied to
 * `raw`: their final place, or anywhere if nothing is stored. own: memory for n numbers. */
void fl_rows_place(const struct fl_rows *rows, int in, int64_t first, int64_t n, void *raw, double *own,
                   struct fl_stats *stats);

/* Defines the kernels of the instruction sets, each of which calls `run` with its vectors. */
#ifdef FL_HAVE_AVX2
#define FL_ROWS_AVX2(run)                                                                                              \
    static tensor_status run##_avx2(const struct fl_args *args) {                                                      \
        return run(args, &fl_row_vectors_avx2);                                                                        \
    }
#define FL_ROWS_ROW_AVX2(run, need) [FL_AVX2] = {run##_avx2, need},
#else
#define FL_ROWS_AVX2(run)
#define FL_ROWS_ROW_AVX2(run, need)
#endif
#ifdef FL_HAVE_AVX512
#define FL_ROWS_AVX512BW(run)                                                                                          \
    static tensor_status run##_avx512bw(const struct fl_args *args) {                                                  \
        return run(args, &fl_row_vectors_avx512bw);                                                                    \
    }
#define FL_ROWS_ROW_AVX512BW(run, need) [FL_AVX512BW] = {run##_avx512bw, need},
#else
#define FL_ROWS_AVX512BW(run)
#define FL_ROWS_ROW_AVX512BW(run, need)
#endif
/* Defines the array `table` of these kernels by backend. */
#define FL_ROWS_TABLE(storage, table, run, need)                                                                       \
    static tensor_status run##_portable(const struct fl_args *args) {                                                  \
        return run(args, &fl_row_vectors_portable);                                                                    \
    }                                                                                                                  \
    FL_ROWS_AVX2(run)                                                                                                  \
    FL_ROWS_AVX512BW(run)                                                                                              \
    storage const struct fl_any_kernels table[FL_BACKENDS] = {                                                         \
        [FL_PORTABLE] = {run##_portable, need}, FL_ROWS_ROW_AVX2(run, need) FL_ROWS_ROW_AVX512BW(run, need)};

/* --- exact sums of integer formats that become elements ----------------------------------------------------------- */

/* The results of a row before they are stored: sums of 128 bits at one exponent, or single wide sums. */
struct fl_row_out {
    double *value;
    fl_uint128 most; /* of the former */
    double largest;  /* of the latter */
};

/* Whether sums at exponent e, below 2^126, times 2^-e are exact in doubles. */
static inline bool fl_rows_has_unit(int e) {
    return e > -850 && e < 1000;
}

/* Adds a sum at exponent e to the row; unit: 2^-e. */
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

/* Stores n results; e: the exponent of aligned sums. */
void fl_rows_store_sums(const struct fl_args *args, int64_t first, int64_t n, const struct fl_row_out *out, int e,
                        struct fl_stats *stats);

#endif
