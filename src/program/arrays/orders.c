/* orders.c - arrays in other shapes and orders. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include <string.h>

/* 0 takes the operand's dimension (unless allowzero), -1 what remains. */
tensor_status fl_shape_reshape(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const shape = a->in[1];
    const bool zero = fl_net_int(a->node, "allowzero", 0) != 0;
    int64_t dim[FL_ARRAY_DIMS], rest = x->count;
    int open = -1;
    TRY(fl_known(shape, "shape"));
    if (shape->ndim != 1 || shape->count > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "a shape of %lld numbers, expected at most %d", (long long)shape->count,
                       FL_ARRAY_DIMS);
    for (int d = 0; d < shape->count; d++) {
        const int64_t wanted = fl_array_integer(shape, d);
        if (wanted < -1 || (wanted == -1 && open >= 0) || (!wanted && !zero && d >= x->ndim))
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of the new shape is %lld", d, (long long)wanted);
        dim[d] = wanted || zero ? wanted : x->dim[d];
        if (wanted == -1)
            open = d;
    }
    if (open >= 0) {
        int64_t others = 1;
        for (int d = 0; d < shape->count; d++)
            if (d != open && (others *= dim[d]) > x->count)
                return fl_fail(TENSOR_E_SHAPE, "the new shape has more than %lld elements", (long long)x->count);
        if (!others || rest % others)
            return fl_fail(TENSOR_E_SHAPE, "%lld elements in rows of %lld", (long long)rest, (long long)others);
        dim[open] = rest / others;
    }
    TRY(fl_shape_set(a->out[0], x->type, (int)shape->count, dim));
    if (a->out[0] && a->out[0]->count != x->count)
        return fl_fail(TENSOR_E_SHAPE, "a new shape of %lld elements, expected %lld", (long long)a->out[0]->count,
                       (long long)x->count);
    return TENSOR_OK;
}

tensor_status fl_shape_flatten(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const int64_t given = fl_net_int(a->node, "axis", 1);
    int64_t dim[2] = {1, 1};
    if (given < -x->ndim || given > x->ndim)
        return fl_fail(TENSOR_E_ARGUMENT, "axis %lld, expected %d to %d", (long long)given, -x->ndim, x->ndim);
    for (int d = 0; d < x->ndim; d++)
        dim[d >= (given < 0 ? given + x->ndim : given)] *= x->dim[d];
    return fl_shape_set(a->out[0], x->type, 2, dim);
}

static tensor_status permutation(const struct fl_arrays *a, int *perm) {
    const struct fl_net_attribute *const given = fl_net_find(a->node, "perm");
    const int ndim = a->in[0]->ndim;
    unsigned seen = 0;
    if (given && (given->kind != FL_NET_INTS || given->count != ndim))
        return fl_fail(TENSOR_E_DATA, "perm has %d numbers, expected %d", given->count, ndim);
    for (int d = 0; d < ndim; d++) {
        const int64_t from = given ? given->ints[d] : ndim - 1 - d;
        if (from < 0 || from >= ndim || seen >> from & 1)
            return fl_fail(TENSOR_E_DATA, "perm has %lld at %d, expected each of 0 to %d once", (long long)from, d,
                           ndim - 1);
        seen |= 1u << from;
        perm[d] = (int)from;
    }
    return TENSOR_OK;
}

tensor_status fl_shape_transpose(const struct fl_arrays *a) {
    int perm[FL_ARRAY_DIMS];
    int64_t dim[FL_ARRAY_DIMS];
    TRY(permutation(a, perm));
    for (int d = 0; d < a->in[0]->ndim; d++)
        dim[d] = a->in[0]->dim[perm[d]];
    return fl_shape_set(a->out[0], a->in[0]->type, a->in[0]->ndim, dim);
}

tensor_status fl_compute_transpose(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const size_t bytes = fl_type_bytes(x->type);
    int perm[FL_ARRAY_DIMS];
    int64_t stride[FL_ARRAY_DIMS], index[FL_ARRAY_DIMS] = {0}, step = 1, from = 0;
    TRY(permutation(a, perm));
    for (int d = x->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= x->dim[d];
    }
    for (int64_t i = 0; i < x->count; i++) {
        memcpy((char *)a->out[0]->data + (size_t)i * bytes, (const char *)x->data + (size_t)from * bytes, bytes);
        for (int d = x->ndim - 1; d >= 0; d--) {
            from += stride[perm[d]];
            if (++index[d] < x->dim[perm[d]])
                break;
            from -= stride[perm[d]] * x->dim[perm[d]];
            index[d] = 0;
        }
    }
    return TENSOR_OK;
}

tensor_status fl_shape_concat(const struct fl_arrays *a) {
    const struct fl_array *const first = a->in[0];
    int64_t dim[FL_ARRAY_DIMS];
    int axis;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), first->ndim));
    memcpy(dim, first->dim, sizeof dim);
    for (int i = 1; i < a->in_count; i++) {
        if (!a->in[i] || a->in[i]->ndim != first->ndim || a->in[i]->type != first->type)
            return fl_fail(TENSOR_E_SHAPE, "operand %d has another type or number of dimensions than the first", i);
        for (int d = 0; d < first->ndim; d++)
            if (d != axis && a->in[i]->dim[d] != first->dim[d])
                return fl_fail(TENSOR_E_SHAPE, "dimension %d of operand %d is %lld, expected %lld", d, i,
                               (long long)a->in[i]->dim[d], (long long)first->dim[d]);
        dim[axis] += a->in[i]->dim[axis];
    }
    return fl_shape_set(a->out[0], first->type, first->ndim, dim);
}

tensor_status fl_compute_concat(const struct fl_arrays *a) {
    struct fl_array *const y = a->out[0];
    const size_t bytes = fl_type_bytes(y->type);
    int axis;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), y->ndim));
    size_t outer = 1, inner = bytes, at = 0;
    for (int d = 0; d < axis; d++)
        outer *= (size_t)y->dim[d];
    for (int d = axis + 1; d < y->ndim; d++)
        inner *= (size_t)y->dim[d];
    const size_t row = (size_t)y->dim[axis] * inner;
    for (int i = 0; i < a->in_count; i++) {
        const size_t part = (size_t)a->in[i]->dim[axis] * inner;
        for (size_t o = 0; o < outer && part; o++)
            memcpy((char *)y->data + o * row + at, (const char *)a->in[i]->data + o * part, part);
        at += part;
    }
    return TENSOR_OK;
}
