/* indices.c - elements at places that another operand names. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

/* An index of a dimension, which may count from its end. */
static tensor_status read_index(int64_t *index, const struct fl_array *indices, int64_t i, int64_t size) {
    *index = fl_array_integer(indices, i);
    if (*index < -size || *index >= size)
        return fl_fail(TENSOR_E_DATA, "index %lld at %lld, expected %lld to %lld", (long long)*index, (long long)i,
                       -(long long)size, (long long)size - 1);
    *index += *index < 0 ? size : 0;
    return TENSOR_OK;
}

static int64_t size_of(const struct fl_array *x, int first, int end) {
    int64_t count = 1;
    for (int d = first; d < end; d++)
        count *= x->dim[d];
    return count;
}

/* --- gather ------------------------------------------------------------------------------------------------------- */

tensor_status fl_shape_gather(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const indices = a->in[1];
    int64_t dim[2 * FL_ARRAY_DIMS];
    int axis, ndim = 0;
    TRY(fl_want_integer(indices, "indices"));
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), x->ndim));
    for (int d = 0; d < axis; d++)
        dim[ndim++] = x->dim[d];
    for (int d = 0; d < indices->ndim; d++)
        dim[ndim++] = indices->dim[d];
    for (int d = axis + 1; d < x->ndim; d++)
        dim[ndim++] = x->dim[d];
    return fl_shape_set(a->out[0], x->type, ndim, dim);
}

tensor_status fl_compute_gather(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const indices = a->in[1];
    int axis;
    if (!a->out[0])
        return TENSOR_OK;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), x->ndim));
    const int64_t outer = size_of(x, 0, axis), inner = size_of(x, axis + 1, x->ndim), n = x->dim[axis];
    for (int64_t i = 0; i < indices->count; i++) {
        int64_t index;
        TRY(read_index(&index, indices, i, n));
        for (int64_t o = 0; o < outer; o++)
            fl_copy_elements(a->out[0], (o * indices->count + i) * inner, x, (o * n + index) * inner, inner);
    }
    return TENSOR_OK;
}

/* Element i of indices, whose shape is that of x but along the axis, stands for this element of x. */
static tensor_status element_place(const struct fl_array *x, const struct fl_array *indices, int axis, int64_t i,
                                   int64_t *place) {
    int64_t rest = i, stride = 1;
    *place = 0;
    for (int d = x->ndim - 1; d >= 0; d--) {
        int64_t index = rest % indices->dim[d];
        rest /= indices->dim[d];
        if (d == axis)
            TRY(read_index(&index, indices, i, x->dim[d]));
        *place += index * stride;
        stride *= x->dim[d];
    }
    return TENSOR_OK;
}

static tensor_status check_elements(const struct fl_arrays *a, int64_t otherwise, int *axis) {
    const struct fl_array *const x = a->in[0], *const indices = a->in[1];
    TRY(fl_want_integer(indices, "indices"));
    TRY(fl_axis(axis, fl_net_int(a->node, "axis", otherwise), x->ndim));
    if (indices->ndim != x->ndim)
        return fl_fail(TENSOR_E_SHAPE, "indices of %d dimensions, expected %d", indices->ndim, x->ndim);
    for (int d = 0; d < x->ndim; d++)
        if (d != *axis && indices->dim[d] > x->dim[d])
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of indices is %lld, expected at most %lld", d,
                           (long long)indices->dim[d], (long long)x->dim[d]);
    return TENSOR_OK;
}

tensor_status fl_shape_gather_elements(const struct fl_arrays *a) {
    int axis;
    TRY(check_elements(a, 0, &axis));
    return fl_shape_set(a->out[0], a->in[0]->type, a->in[1]->ndim, a->in[1]->dim);
}

tensor_status fl_compute_gather_elements(const struct fl_arrays *a) {
    int axis;
    TRY(check_elements(a, 0, &axis));
    for (int64_t i = 0; a->out[0] && i < a->in[1]->count; i++) {
        int64_t place;
        TRY(element_place(a->in[0], a->in[1], axis, i, &place));
        fl_copy_elements(a->out[0], i, a->in[0], place, 1);
    }
    return TENSOR_OK;
}

/* --- gather and scatter of slices --------------------------------------------------------------------------------- */

/* Operands [batch..., n..., slice...] and indices [batch..., m..., depth]. */
struct slices {
    int batch_dims, depth;
    int64_t batches, indices, slice, whole; /* of each batch: how many indices; elements of a slice, of the operand */
};

static tensor_status read_slices(struct slices *s, const struct fl_array *x, const struct fl_array *indices,
                                 int64_t batch_dims) {
    TRY(fl_want_integer(indices, "indices"));
    if (!x->ndim || !indices->ndim)
        return fl_fail(TENSOR_E_SHAPE, "a scalar, expected at least one dimension");
    if (batch_dims < 0 || batch_dims >= indices->ndim || batch_dims >= x->ndim)
        return fl_fail(TENSOR_E_DATA, "batch_dims is %lld, expected less than %d and %d", (long long)batch_dims,
                       indices->ndim, x->ndim);
    const int64_t depth = indices->dim[indices->ndim - 1];
    if (depth < 1 || depth > x->ndim - batch_dims)
        return fl_fail(TENSOR_E_SHAPE, "indices of %lld numbers, expected 1 to %d", (long long)depth,
                       (int)(x->ndim - batch_dims));
    for (int d = 0; d < batch_dims; d++)
        if (x->dim[d] != indices->dim[d])
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of indices is %lld, expected %lld", d,
                           (long long)indices->dim[d], (long long)x->dim[d]);
    *s = (struct slices){.batch_dims = (int)batch_dims, .depth = (int)depth};
    s->batches = size_of(x, 0, s->batch_dims);
    s->indices = size_of(indices, s->batch_dims, indices->ndim - 1);
    s->slice = size_of(x, s->batch_dims + s->depth, x->ndim);
    s->whole = size_of(x, s->batch_dims, x->ndim);
    return TENSOR_OK;
}

/* The first element of the slice that index i of batch b names. */
static tensor_status slice_place(const struct slices *s, const struct fl_array *x, const struct fl_array *indices,
                                 int64_t b, int64_t i, int64_t *place) {
    *place = 0;
    for (int d = 0; d < s->depth; d++) {
        int64_t index;
        TRY(read_index(&index, indices, (b * s->indices + i) * s->depth + d, x->dim[s->batch_dims + d]));
        *place = *place * x->dim[s->batch_dims + d] + index;
    }
    *place = b * s->whole + *place * s->slice;
    return TENSOR_OK;
}

tensor_status fl_shape_gather_nd(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const indices = a->in[1];
    int64_t dim[2 * FL_ARRAY_DIMS];
    int ndim = 0;
    struct slices s = {0};
    TRY(read_slices(&s, x, indices, fl_net_int(a->node, "batch_dims", 0)));
    for (int d = 0; d < indices->ndim - 1; d++)
        dim[ndim++] = indices->dim[d];
    for (int d = s.batch_dims + s.depth; d < x->ndim; d++)
        dim[ndim++] = x->dim[d];
    return fl_shape_set(a->out[0], x->type, ndim, dim);
}

tensor_status fl_compute_gather_nd(const struct fl_arrays *a) {
    struct slices s = {0};
    int64_t place;
    TRY(read_slices(&s, a->in[0], a->in[1], fl_net_int(a->node, "batch_dims", 0)));
    for (int64_t b = 0; b < s.batches && a->out[0]; b++)
        for (int64_t i = 0; i < s.indices; i++) {
            TRY(slice_place(&s, a->in[0], a->in[1], b, i, &place));
            fl_copy_elements(a->out[0], (b * s.indices + i) * s.slice, a->in[0], place, s.slice);
        }
    return TENSOR_OK;
}

/* --- scatter ------------------------------------------------------------------------------------------------------ */

enum reduction { REPLACE, ADD, MULTIPLY, LARGER, SMALLER };

static tensor_status read_reduction(const struct fl_arrays *a, enum reduction *how) {
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const char *const given = fl_net_string(a->node, "reduction", "none");
    for (int i = 0; i < 5; i++)
        if (!strcmp(given, names[i])) {
            *how = (enum reduction)i;
            return TENSOR_OK;
        }
    return fl_fail(TENSOR_E_DATA, "reduction \"%s\", expected none, add, mul, max or min", given);
}

static void put(struct fl_array *y, int64_t at, const struct fl_array *x, int64_t from, enum reduction how) {
    if (how == REPLACE) {
        fl_copy_elements(y, at, x, from, 1);
    } else if (fl_type_is_float(y->type)) {
        const double old = fl_array_number(y, at), new = fl_array_number(x, from);
        fl_array_put_number(y, at,
                            how == ADD        ? old + new
                            : how == MULTIPLY ? old *new
                            : how == LARGER   ? (new > old || new != new ? new : old)
                                              : (new < old || new != new ? new : old));
    } else {
        const int64_t old = fl_array_integer(y, at), new = fl_array_integer(x, from);
        const bool is_larger = y->type == TENSOR_TYPE_U64 ? (uint64_t) new > (uint64_t)old : new > old;
        fl_array_put_integer(y, at,
                             how == ADD                     ? (int64_t)((uint64_t)old + (uint64_t) new)
                             : how == MULTIPLY              ? (int64_t)((uint64_t)old * (uint64_t) new)
                             : (how == LARGER) == is_larger ? new
                                                            : old);
    }
}

tensor_status fl_shape_scatter_elements(const struct fl_arrays *a) {
    enum reduction how = REPLACE;
    int axis;
    TRY(check_elements(a, 0, &axis));
    TRY(read_reduction(a, &how));
    TRY(fl_want_type(a->in[2], a->in[0]->type, "the updates"));
    if (a->in[2]->ndim != a->in[1]->ndim ||
        memcmp(a->in[2]->dim, a->in[1]->dim, (size_t)a->in[1]->ndim * sizeof(int64_t)))
        return fl_fail(TENSOR_E_SHAPE, "updates of %lld elements, expected the shape of the %lld indices",
                       (long long)a->in[2]->count, (long long)a->in[1]->count);
    return fl_shape_same(a);
}

tensor_status fl_compute_scatter_elements(const struct fl_arrays *a) {
    enum reduction how = REPLACE;
    int axis;
    int64_t place;
    if (!a->out[0])
        return TENSOR_OK;
    TRY(check_elements(a, 0, &axis));
    TRY(read_reduction(a, &how));
    TRY(fl_compute_copy(a));
    for (int64_t i = 0; i < a->in[1]->count; i++) {
        TRY(element_place(a->in[0], a->in[1], axis, i, &place));
        put(a->out[0], place, a->in[2], i, how);
    }
    return TENSOR_OK;
}

tensor_status fl_shape_scatter_nd(const struct fl_arrays *a) {
    enum reduction how = REPLACE;
    struct slices s = {0};
    TRY(read_slices(&s, a->in[0], a->in[1], 0));
    TRY(read_reduction(a, &how));
    TRY(fl_want_type(a->in[2], a->in[0]->type, "the updates"));
    if (s.slice && (a->in[2]->count % s.slice || a->in[2]->count / s.slice != s.indices))
        return fl_fail(TENSOR_E_SHAPE, "updates of %lld elements, expected %lld slices of %lld",
                       (long long)a->in[2]->count, (long long)s.indices, (long long)s.slice);
    return fl_shape_same(a);
}

tensor_status fl_compute_scatter_nd(const struct fl_arrays *a) {
    enum reduction how = REPLACE;
    struct slices s = {0};
    int64_t place;
    if (!a->out[0])
        return TENSOR_OK;
    TRY(read_slices(&s, a->in[0], a->in[1], 0));
    TRY(read_reduction(a, &how));
    TRY(fl_compute_copy(a));
    for (int64_t i = 0; i < s.indices; i++) {
        TRY(slice_place(&s, a->in[0], a->in[1], 0, i, &place));
        for (int64_t k = 0; k < s.slice; k++)
            put(a->out[0], place + k, a->in[2], i * s.slice + k, how);
    }
    return TENSOR_OK;
}

/* --- elements that a condition chooses ---------------------------------------------------------------------------- */

static bool is_zero(const struct fl_array *x, int64_t i) {
    return fl_type_is_float(x->type) ? fl_array_number(x, i) == 0 : !fl_array_integer(x, i);
}

tensor_status fl_shape_nonzero(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int64_t count = 0;
    TRY(fl_known(x, "operand"));
    for (int64_t i = 0; i < x->count; i++)
        count += !is_zero(x, i);
    return fl_shape_set(a->out[0], TENSOR_TYPE_I64, 2, (const int64_t[]){x->ndim, count});
}

tensor_status fl_compute_nonzero(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    struct fl_array *const y = a->out[0];
    int64_t stride[FL_ARRAY_DIMS], at = 0;
    fl_strides(x, stride);
    for (int64_t i = 0; y && i < x->count; i++) {
        if (is_zero(x, i))
            continue;
        for (int d = 0; d < x->ndim; d++)
            fl_array_put_integer(y, d * y->dim[1] + at, i / stride[d] % x->dim[d]);
        at++;
    }
    return TENSOR_OK;
}

/* Slices of the axis that the condition chooses; without one, elements. */
static tensor_status read_compress(const struct fl_arrays *a, int *axis, bool *flat, int64_t *count) {
    const struct fl_array *const x = a->in[0], *const condition = a->in[1];
    const struct fl_net_attribute *const given = fl_net_find(a->node, "axis");
    *flat = !given;
    *axis = 0;
    if (given)
        TRY(fl_axis(axis, given->i, x->ndim));
    TRY(fl_known(condition, "condition"));
    TRY(fl_want_type(condition, TENSOR_TYPE_BOOL, "the condition"));
    const int64_t limit = *flat ? x->count : x->dim[*axis];
    if (condition->count > limit)
        return fl_fail(TENSOR_E_SHAPE, "a condition of %lld elements, expected at most %lld",
                       (long long)condition->count, (long long)limit);
    *count = 0;
    for (int64_t i = 0; i < condition->count; i++)
        *count += fl_array_integer(condition, i) != 0;
    return TENSOR_OK;
}

tensor_status fl_shape_compress(const struct fl_arrays *a) {
    int64_t dim[FL_ARRAY_DIMS], count = 0;
    int axis;
    bool flat;
    TRY(read_compress(a, &axis, &flat, &count));
    memcpy(dim, a->in[0]->dim, sizeof dim);
    dim[axis] = count;
    return fl_shape_set(a->out[0], a->in[0]->type, flat ? 1 : a->in[0]->ndim, dim);
}

tensor_status fl_compute_compress(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const condition = a->in[1];
    int64_t count = 0, at = 0;
    int axis;
    bool flat;
    TRY(read_compress(a, &axis, &flat, &count));
    const int64_t outer = flat ? 1 : size_of(x, 0, axis), inner = flat ? 1 : size_of(x, axis + 1, x->ndim);
    const int64_t n = flat ? x->count : x->dim[axis];
    for (int64_t o = 0; o < outer && a->out[0]; o++)
        for (int64_t i = 0; i < condition->count; i++)
            if (fl_array_integer(condition, i))
                fl_copy_elements(a->out[0], at++ * inner, x, (o * n + i) * inner, inner);
    return TENSOR_OK;
}
