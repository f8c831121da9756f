/* tensor_object.h - what a tensor is inside. */
#ifndef FL_TENSOR_OBJECT_H
#define FL_TENSOR_OBJECT_H

#include "core/format.h"

/* What views share with their base: everything but the shape. */
struct fl_tensor_state {
    struct autoflex autoflex;
    tensor_stats last, total;
    tensor_rounding rounding;
    uint64_t seed;
    void *data;
    void *wide;
    bool owns_data;
    uint64_t writes; /* numbers the writes; keys stochastic rounding */
};

struct tensor {
    const struct fl_format *format;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t count;
    struct fl_tensor_state *state;
    bool is_view;
};

static inline struct fl_view fl_view_of(const tensor *t) {
    return (struct fl_view){t->state->data, t->state->wide, t->state->autoflex.e, t->count};
}

/* "64x128" into text, which has room for TENSOR_TEXT characters. */
enum { TENSOR_TEXT = 24 * TENSOR_MAX_DIMS };
const char *fl_shape_text(const tensor *t, char *text);

/* Runs op with its output exponent chosen by autoflex, keeps statistics and history: the one way a tensor is written by
 * an operation. args holds everything but .out, .rounding and .stats. */
tensor_status fl_write(tensor *out, struct fl_args *args);
/* The same for doubles computed outside the kernels (softmax, per-channel gradients): exact results of an operation. */
tensor_status fl_write_values(tensor *out, const double *values);
/* Notes what a write did: the last write's statistics and the totals. */
void fl_keep_statistics(tensor *t, const struct fl_stats *stats);
/* Runs an operation that writes no tensor. */
tensor_status fl_read(const struct fl_format *format, struct fl_args *args, struct fl_stats *stats);

#endif
