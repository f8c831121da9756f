/* nn_partial.h - the sum of a rank's own shards, which it sends in their place where that takes fewer bytes: whole
 * numbers of 3 to 6 bytes under a shared exponent, exact; one binary32 of a float format, where the rank's shards are a
 * node of the tree. */
#ifndef FL_NN_PARTIAL_H
#define FL_NN_PARTIAL_H

#include "core/tensor/sums.h"

struct fl_partial {
    int bytes; /* of an element as it is sent; 0: the shards one by one */
    int bits;  /* of its magnitude, under a shared exponent */
};

/* How all ranks send a gradient of that format, of `own` shards each: e has the exponents of all `shards`. */
struct fl_partial fl_partial_plan(const struct fl_format *format, const int32_t *e, int shards, int own);
/* The exponent of the sum of `own` shards. */
int32_t fl_partial_exponent(const int32_t *e, int own);
/* Sums n elements of `own` terms into `to`, under the exponent e of their sum. */
void fl_partial_pack(struct fl_partial p, const struct fl_format *format, const struct fl_view *own_terms, int own,
                     int32_t e, int64_t n, char *to);

/* The terms of a sum of such sums, one of each rank, for fl_sum.context: those of others are bytes, under the exponents
 * of the sums; that of the rank itself are its shards. */
struct fl_partial_terms {
    struct fl_partial how;
    int rank; /* none: -1 */
    const struct fl_view *own_terms;
    int own;
};
struct fl_sum fl_partial_sum(const struct fl_partial_terms *terms, const struct fl_format *format,
                             const struct fl_view *sums, int ranks);

#endif
