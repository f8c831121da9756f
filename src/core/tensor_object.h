/* tensor_object.h - what a tensor is inside. */
#ifndef FL_TENSOR_OBJECT_H
#define FL_TENSOR_OBJECT_H

#include "core/format.h"

/* What views share with their base: everything but the shape. */
struct fl_storage {
    void *data;
    void *wide;           /* NULL: none */
    struct fl_slot *slot; /* exponent, statistics, number of writes */
    tensor_rounding rounding;
    tensor_rounding view_rounding; /* how the elements were last rounded from the wide part */
    uint64_t seed;
    bool by_hand; /* the elements' memory is in the caller's hands: settle before the wide part counts */
    bool owns_data;
};

struct tensor {
    const struct fl_format *format;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t count;
    struct fl_storage *storage;
    bool is_view;
};

/* The elements as they are stored. Where an operand counts as its wide part: fl_wide_view_of (wide.h). */
static inline struct fl_view fl_view_of(const tensor *t) {
    return (struct fl_view){t->storage->data, NULL, &t->storage->slot->e, t->count};
}

/* The elements as an operation is to write them, at the exponent that the rules have set. */
static inline struct fl_view fl_output_view(const tensor *t) {
    return (struct fl_view){t->storage->data, NULL, &t->storage->slot->autoflex.e, t->count};
}

/* How elements are rounded from their wide part. */
static inline tensor_rounding fl_view_rounding(const tensor *t) {
    return t->storage->rounding == TENSOR_ROUND_TRUNCATE ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST;
}

/* TENSOR_E_ARGUMENT where a and b are different tensors in overlapping memory; either may be NULL. */
tensor_status fl_check_apart(const char *op, const char *a_name, const tensor *a, const char *b_name, const tensor *b);

/* "64x128" into text, which has room for TENSOR_TEXT characters. */
enum { TENSOR_TEXT = 24 * TENSOR_MAX_DIMS };
const char *fl_shape_text(const tensor *t, char *text);

/* Runs op with its output exponent chosen by autoflex, keeps statistics and history: the one way a tensor is written by
 * an operation. args holds everything but .out, .rounding and .stats. */
tensor_status fl_write(tensor *out, struct fl_args *args);
/* The same for doubles computed outside the kernels (softmax, per-channel gradients): exact results of an operation. */
void fl_write_values(tensor *out, const double *values);
/* Every write ends here: statistics and totals are kept, and a wide part that was not written with the elements becomes
 * exactly their value. */
void fl_written(tensor *t, const struct fl_stats *stats, bool with_wide_part);
/* Runs an operation that writes no tensor. */
tensor_status fl_read(const struct fl_format *format, struct fl_args *args, struct fl_stats *stats);

#endif
