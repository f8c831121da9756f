/* tensor_object.h - the struct of a tensor. */
#ifndef FL_TENSOR_OBJECT_H
#define FL_TENSOR_OBJECT_H

#include "core/table/format.h"

struct fl_sequence_state;

/* Shared by a tensor and its views: everything but the shape. */
struct fl_storage {
    struct tensor_device *device;
    const struct fl_format *format;
    int64_t count;
    void *data;
    void *wide;           /* NULL: none */
    struct fl_slot *slot; /* exponent, statistics, number of writes */
    tensor_rounding rounding;
    tensor_rounding view_rounding; /* how the elements were last rounded from the wide part */
    uint64_t seed;
    bool by_hand; /* the caller may write the elements' memory: settle before the wide part counts */
    bool owns_data;
    bool hidden;          /* other tensors use the elements' memory now: fl_tensor_hide */
    struct fl_slot *seen; /* on a device other than the host: the slot as last copied */
    /* The sequence of an incremental write (sequence.h); NULL: the tensor is written at once. */
    struct fl_sequence_state *sequence;
    int part; /* number of the tensor in the sequence */
};

struct tensor {
    const struct fl_format *format;
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t count;
    struct fl_storage *storage;
    bool is_view;
    bool is_strided; /* element (i, j, ...) is element offset + i stride[0] + j stride[1] + ... of the storage */
    int64_t offset, stride[TENSOR_MAX_DIMS];
};

/* The stride of each dimension of any tensor. Returns the position of the element at index 0 of all dimensions. */
static inline int64_t fl_strides_of(const tensor *t, int64_t *stride) {
    int64_t at = 1;
    for (int d = t->ndim - 1; d >= 0; at *= t->shape[d--])
        stride[d] = t->is_strided ? t->stride[d] : at;
    return t->is_strided ? t->offset : 0;
}

/* The elements as stored. For an operand that counts as its wide part, use fl_wide_view_of (wide.h). */
static inline struct fl_view fl_stored_view(const struct fl_storage *s) {
    return (struct fl_view){s->data, NULL, &s->slot->e, s->count};
}
static inline struct fl_view fl_view_of(const tensor *t) {
    return fl_stored_view(t->storage);
}

/* The elements as an operation is to write them, at the exponent that the rules have set. */
static inline struct fl_view fl_output_view(const struct fl_storage *s) {
    return (struct fl_view){s->data, NULL, &s->slot->autoflex.e, s->count};
}

/* How elements are rounded from their wide part. */
static inline tensor_rounding fl_view_rounding(const struct fl_storage *s) {
    return s->rounding == TENSOR_ROUND_TRUNCATE ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST;
}

/* TENSOR_E_ARGUMENT if a and b are different tensors in overlapping memory; either may be NULL. */
tensor_status fl_check_apart(const char *op, const char *a_name, const tensor *a, const char *b_name, const tensor *b);

/* Writes "64x128" into text, an array of TENSOR_TEXT characters. */
enum { TENSOR_TEXT = 24 * TENSOR_MAX_DIMS };
const char *fl_shape_text(const tensor *t, char *text);

/* Submits an operation that writes a tensor: autoflex chooses the output exponent, and statistics and history are
 * recorded. Every write of an operation passes here. args has everything but .format, .out, .rounding and .stats, which
 * are set here. */
tensor_status fl_write(tensor *out, struct fl_args *args);
/* Submits a kernel whose results are numbers, to the queue of `on`. */
tensor_status fl_run(const tensor *on, struct fl_args *args);
/* Submits the rounding of `out`'s count of doubles, exact results of an operation. */
tensor_status fl_write_values(tensor *out, const double *values);

/* Every write ends here: it records statistics and totals, and a wide part that was not written with the elements
 * becomes exactly their value. */
void fl_written(const struct fl_storage *s, const struct fl_stats *stats, bool with_wide_part);

/* The slot, to read on the host: waits for the queue of a device. NULL if that failed. */
const struct fl_slot *fl_slot_of(const tensor *t);
/* TENSOR_E_ARGUMENT for a tensor whose elements are gone. */
tensor_status fl_need_present(const char *what, const tensor *t);
/* The same, and also for a view with strides. */
tensor_status fl_need_elements(const char *what, const tensor *t);
tensor_status fl_need_contiguous(const char *what, const tensor *t);
/* TENSOR_OK on the host; else TENSOR_E_UNSUPPORTED with the names. */
tensor_status fl_need_host(const char *what, const tensor *t);
/* Sets args->p.product.bytes and .by_hand, and .formats if an operand has another format than the result, unless the
 * kernels of that format serve the task anyway. Factors both have a shared exponent, or both are floats; NULL for a
 * missing addend. */
void fl_note_formats(const tensor *y, const tensor *const factors[2], const tensor *bias, const tensor *residual,
                     struct fl_args *args);

/* TENSOR_E_FORMAT for a tensor of numbers, which no arithmetic accepts. */
tensor_status fl_need_arithmetic(const char *what, const char *name, const tensor *t);

#endif
