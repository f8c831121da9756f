/* sums.h - sums of several tensors of one format, element by element: exact under a shared exponent, by a fixed binary
 * tree in float formats. And exact sums and means of a few doubles. */
#ifndef FL_SUMS_H
#define FL_SUMS_H

#include "core/table/format.h"

/* The terms of a sum. A float format sums them in binary32 by a tree: a node of 2^k leaves is the sum of its two
 * halves, in order; leaves beyond `count` are left out. */
struct fl_sum {
    const struct fl_format *format;
    const struct fl_view *terms;
    int count;
    /* Of terms that are sums themselves: brings numbers of one, in float formats binary32 numbers; else whole multiples
     * of the unit of the term's exponent, whose magnitudes have so many bits. NULL: elements of the format. */
    void (*fetch)(const struct fl_sum *sum, int term, int64_t first, int64_t n, double *values);
    int bits;
    const void *context; /* of fetch */
};
enum { FL_MOST_TERMS = 1024 };

/* Elements first ... first + n - 1 of the sum: exact, or rounded to odd where a double cannot hold them (then rounding
 * again to 32 bits or fewer is rounding the exact sum); in float formats the tree's binary32. */
void fl_sum_fetch(const struct fl_sum *sum, int64_t first, int64_t n, double *values);

/* Whether a sum of 16-bit mantissas is a multiple of its finest unit below 2^30; and the multiples, in units of 2^-e,
 * the finest. */
bool fl_sum_is_narrow(const struct fl_sum *sum);
void fl_sum_whole(const struct fl_sum *sum, int e, int64_t first, int64_t n, int32_t *sums);

/* The tree of doubles. */
double fl_tree_sum(const double *x, int count);
/* The exact sum of finite doubles, rounded to odd; divided by a number, rounded once to nearest. If one is not finite,
 * what adding them gives. count: 1 to 2^20. */
double fl_exact_sum_odd(const double *x, int count);
double fl_exact_mean(const double *x, int count, uint32_t divisor);

#endif
