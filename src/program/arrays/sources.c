/* sources.c - arrays that say what shape another has, or that a few numbers make. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include <math.h>
#include <string.h>

/* --- shapes as numbers -------------------------------------------------------------------------------------------- */

static void shape_range(const struct fl_arrays *a, int *start, int *end) {
    const int ndim = a->in[0]->ndim;
    const int64_t given[] = {fl_net_int(a->node, "start", 0), fl_net_int(a->node, "end", ndim)};
    int *const to[] = {start, end};
    for (int i = 0; i < 2; i++) {
        const int64_t d = given[i] < 0 ? given[i] + ndim : given[i];
        *to[i] = d < 0 ? 0 : d > ndim ? ndim : (int)d;
    }
    *end = *end < *start ? *start : *end;
}

tensor_status fl_shape_shape(const struct fl_arrays *a) {
    int start, end;
    shape_range(a, &start, &end);
    return fl_shape_set(a->out[0], TENSOR_TYPE_I64, 1, (const int64_t[]){end - start});
}

tensor_status fl_compute_shape(const struct fl_arrays *a) {
    int start, end;
    shape_range(a, &start, &end);
    for (int d = start; d < end && a->out[0]; d++)
        fl_array_put_integer(a->out[0], d - start, a->in[0]->dim[d]);
    return TENSOR_OK;
}

tensor_status fl_shape_size(const struct fl_arrays *a) {
    return fl_shape_set(a->out[0], TENSOR_TYPE_I64, 0, NULL);
}

tensor_status fl_compute_size(const struct fl_arrays *a) {
    if (a->out[0])
        fl_array_put_integer(a->out[0], 0, a->in[0]->count);
    return TENSOR_OK;
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

static tensor_status find_constant(const struct fl_arrays *a, const struct fl_net_attribute **found) {
    static const char *const names[] = {"value", "value_float", "value_floats", "value_int", "value_ints"};
    static const enum fl_net_kind kinds[] = {FL_NET_ARRAY, FL_NET_FLOAT, FL_NET_FLOATS, FL_NET_INT, FL_NET_INTS};
    for (int i = 0; i < 5; i++) {
        *found = fl_net_find(a->node, names[i]);
        if (*found && (*found)->kind != kinds[i])
            return fl_fail(TENSOR_E_DATA, "%s is of another kind", names[i]);
        if (*found)
            return TENSOR_OK;
    }
    return fl_fail(TENSOR_E_UNSUPPORTED, "no value of numbers");
}

tensor_status fl_shape_constant(const struct fl_arrays *a) {
    const struct fl_net_attribute *c;
    TRY(find_constant(a, &c));
    if (c->kind == FL_NET_ARRAY)
        return fl_shape_set(a->out[0], c->array->type, c->array->ndim, c->array->dim);
    const bool is_float = c->kind == FL_NET_FLOAT || c->kind == FL_NET_FLOATS;
    const bool is_list = c->kind == FL_NET_FLOATS || c->kind == FL_NET_INTS;
    return fl_shape_set(a->out[0], is_float ? TENSOR_TYPE_F32 : TENSOR_TYPE_I64, is_list, (const int64_t[]){c->count});
}

tensor_status fl_compute_constant(const struct fl_arrays *a) {
    const struct fl_net_attribute *c;
    struct fl_array *const y = a->out[0];
    TRY(find_constant(a, &c));
    if (y && c->kind == FL_NET_ARRAY)
        fl_copy_elements(y, 0, c->array, 0, y->count);
    for (int64_t i = 0; y && c->kind != FL_NET_ARRAY && i < y->count; i++)
        if (c->kind == FL_NET_FLOAT || c->kind == FL_NET_FLOATS)
            fl_array_put_number(y, i, c->kind == FL_NET_FLOAT ? c->f : c->floats[i]);
        else
            fl_array_put_integer(y, i, c->kind == FL_NET_INT ? c->i : c->ints[i]);
    return TENSOR_OK;
}

tensor_status fl_shape_constant_of_shape(const struct fl_arrays *a) {
    const struct fl_net_attribute *const value = fl_net_find(a->node, "value");
    const struct fl_array *const shape = a->in[0];
    int64_t dim[FL_ARRAY_DIMS];
    if (value && (value->kind != FL_NET_ARRAY || value->array->count != 1))
        return fl_fail(TENSOR_E_DATA, "its value is not one element");
    TRY(fl_known(shape, "shape"));
    TRY(fl_want_integer(shape, "shape"));
    if (shape->ndim > 1 || shape->count > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "a shape of %lld numbers, expected at most %d", (long long)shape->count,
                       FL_ARRAY_DIMS);
    for (int d = 0; d < shape->count; d++)
        dim[d] = fl_array_integer(shape, d);
    return fl_shape_set(a->out[0], value ? value->array->type : TENSOR_TYPE_F32, (int)shape->count, dim);
}

tensor_status fl_compute_constant_of_shape(const struct fl_arrays *a) {
    const struct fl_net_attribute *const value = fl_net_find(a->node, "value");
    struct fl_array *const y = a->out[0];
    if (!y || !y->count)
        return TENSOR_OK;
    if (value)
        for (int64_t i = 0; i < y->count; i++)
            fl_copy_elements(y, i, value->array, 0, 1);
    else
        memset(y->data, 0, (size_t)y->count * fl_type_bytes(y->type));
    return TENSOR_OK;
}

tensor_status fl_shape_range(const struct fl_arrays *a) {
    static const char *const names[] = {"start", "limit", "delta"};
    const struct fl_array *const start = a->in[0], *const limit = a->in[1], *const delta = a->in[2];
    double count;
    for (int i = 0; i < 3; i++) {
        TRY(fl_known(a->in[i], names[i]));
        TRY(fl_want_type(a->in[i], start->type, names[i]));
        TRY(fl_want_numbers(a->in[i], 1, names[i]));
    }
    if (fl_array_number(delta, 0) == 0)
        return fl_fail(TENSOR_E_DATA, "delta is 0, expected another number");
    count = ceil((fl_array_number(limit, 0) - fl_array_number(start, 0)) / fl_array_number(delta, 0));
    if (!(count <= 0x1p37))
        return fl_fail(TENSOR_E_SHAPE, "a range of %g numbers", count);
    return fl_shape_set(a->out[0], start->type, 1, (const int64_t[]){count < 0 ? 0 : (int64_t)count});
}

tensor_status fl_compute_range(const struct fl_arrays *a) {
    struct fl_array *const y = a->out[0];
    for (int64_t i = 0; y && i < y->count; i++)
        if (fl_type_is_float(y->type))
            fl_array_put_number(y, i, fl_array_number(a->in[0], 0) + (double)i * fl_array_number(a->in[2], 0));
        else
            fl_array_put_integer(y, i,
                                 (int64_t)((uint64_t)fl_array_integer(a->in[0], 0) +
                                           (uint64_t)i * (uint64_t)fl_array_integer(a->in[2], 0)));
    return TENSOR_OK;
}

tensor_status fl_shape_eye_like(const struct fl_arrays *a) {
    const struct fl_net_attribute *const given = fl_net_find(a->node, "dtype");
    tensor_type type = a->in[0]->type;
    if (a->in[0]->ndim != 2)
        return fl_fail(TENSOR_E_SHAPE, "an operand of %d dimensions, expected 2", a->in[0]->ndim);
    if (given)
        TRY(fl_type_of_onnx(&type, given->i));
    return fl_shape_set(a->out[0], type, 2, a->in[0]->dim);
}

tensor_status fl_compute_eye_like(const struct fl_arrays *a) {
    struct fl_array *const y = a->out[0];
    const int64_t k = fl_net_int(a->node, "k", 0);
    if (!y || !y->count)
        return TENSOR_OK;
    memset(y->data, 0, (size_t)y->count * fl_type_bytes(y->type));
    for (int64_t r = 0; r < y->dim[0]; r++)
        if (k >= -r && k < y->dim[1] - r)
            fl_array_put_integer(y, r * y->dim[1] + r + k, 1);
    return TENSOR_OK;
}

/* --- one hot ------------------------------------------------------------------------------------------------------ */

tensor_status fl_shape_one_hot(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const depth = a->in[1];
    int64_t dim[FL_ARRAY_DIMS];
    int axis;
    TRY(fl_known(depth, "depth"));
    TRY(fl_want_numbers(depth, 1, "depth"));
    TRY(fl_want_numbers(a->in[2], 2, "values"));
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", -1), x->ndim + 1));
    if (x->ndim == FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "indices of %d dimensions, expected at most %d", x->ndim, FL_ARRAY_DIMS - 1);
    for (int d = 0; d <= x->ndim; d++)
        dim[d] = d < axis ? x->dim[d] : d == axis ? fl_array_integer(depth, 0) : x->dim[d - 1];
    return fl_shape_set(a->out[0], a->in[2]->type, x->ndim + 1, dim);
}

tensor_status fl_compute_one_hot(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    struct fl_array *const y = a->out[0];
    const int64_t depth = fl_array_integer(a->in[1], 0);
    int64_t inner = 1;
    int axis;
    if (!y || !y->count)
        return TENSOR_OK;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", -1), x->ndim + 1));
    for (int d = axis; d < x->ndim; d++)
        inner *= x->dim[d];
    for (int64_t i = 0; i < y->count; i++)
        fl_copy_elements(y, i, a->in[2], 0, 1);
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t given = fl_array_integer(x, i), hot = given < 0 ? given + depth : given;
        if (hot >= 0 && hot < depth)
            fl_copy_elements(y, (i / inner * depth + hot) * inner + i % inner, a->in[2], 1, 1);
    }
    return TENSOR_OK;
}
