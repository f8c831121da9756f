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
            if (d != open) {
                if (dim[d] && others > x->count / dim[d])
                    return fl_fail(TENSOR_E_SHAPE, "the new shape has more than %lld elements", (long long)x->count);
                others *= dim[d];
            }
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
    int perm[FL_ARRAY_DIMS];
    int64_t stride[FL_ARRAY_DIMS];
    struct fl_pick pick;
    if (!a->out[0])
        return TENSOR_OK;
    TRY(permutation(a, perm));
    TRY(fl_pick_new(&pick, x->ndim, a->out[0]->dim));
    fl_strides(x, stride);
    for (int d = 0; d < x->ndim; d++)
        fl_pick_steps(&pick, d, 0, stride[perm[d]]);
    fl_pick_copy(&pick, a->out[0], x, NULL);
    fl_pick_free(&pick);
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
    int axis;
    if (!y)
        return TENSOR_OK;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), y->ndim));
    int64_t outer = 1, inner = 1, at = 0;
    for (int d = 0; d < axis; d++)
        outer *= y->dim[d];
    for (int d = axis + 1; d < y->ndim; d++)
        inner *= y->dim[d];
    const int64_t row = y->dim[axis] * inner;
    for (int i = 0; i < a->in_count; i++) {
        const int64_t part = a->in[i]->dim[axis] * inner;
        for (int64_t o = 0; o < outer; o++)
            fl_copy_elements(y, o * row + at, a->in[i], o * part, part);
        at += part;
    }
    return TENSOR_OK;
}

/* Sizes of the parts along the axis: stated, or as equal as they can be. */
static tensor_status split_sizes(const struct fl_arrays *a, int axis, int64_t *size, int i) {
    const struct fl_array *const x = a->in[0], *const split = fl_operand(a, 1);
    const int64_t parts = fl_net_int(a->node, "num_outputs", a->out_count), all = x->dim[axis];
    if (split) {
        TRY(fl_known(split, "split"));
        TRY(fl_want_numbers(split, a->out_count, "split"));
        *size = fl_array_integer(split, i);
        return TENSOR_OK;
    }
    if (parts != a->out_count || parts < 1)
        return fl_fail(TENSOR_E_DATA, "num_outputs is %lld, expected %d", (long long)parts, a->out_count);
    const int64_t each = (all + parts - 1) / parts, left = all - each * i;
    *size = left < 0 ? 0 : left < each ? left : each;
    return TENSOR_OK;
}

tensor_status fl_shape_split(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int64_t dim[FL_ARRAY_DIMS], all = 0;
    int axis;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), x->ndim));
    memcpy(dim, x->dim, sizeof dim);
    for (int i = 0; i < a->out_count; i++) {
        TRY(split_sizes(a, axis, &dim[axis], i));
        if (dim[axis] < 0 || dim[axis] > x->dim[axis] - all)
            return fl_fail(TENSOR_E_SHAPE, "part %d has size %lld, expected 0 to %lld", i, (long long)dim[axis],
                           (long long)(x->dim[axis] - all));
        all += dim[axis];
        TRY(fl_shape_set(a->out[i], x->type, x->ndim, dim));
    }
    if (all != x->dim[axis])
        return fl_fail(TENSOR_E_SHAPE, "the parts have %lld in all, expected %lld", (long long)all,
                       (long long)x->dim[axis]);
    return TENSOR_OK;
}

tensor_status fl_compute_split(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int axis;
    int64_t outer = 1, inner = 1, at = 0, size = 0;
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 0), x->ndim));
    for (int d = 0; d < axis; d++)
        outer *= x->dim[d];
    for (int d = axis + 1; d < x->ndim; d++)
        inner *= x->dim[d];
    for (int i = 0; i < a->out_count; i++, at += size) {
        TRY(split_sizes(a, axis, &size, i));
        for (int64_t o = 0; o < outer && a->out[i]; o++)
            fl_copy_elements(a->out[i], o * size * inner, x, (o * x->dim[axis] + at) * inner, size * inner);
    }
    return TENSOR_OK;
}

/* --- dimensions of size 1 ----------------------------------------------------------------------------------------- */

/* A bit for each axis that operand 1 names, of ndim dimensions. */
static tensor_status named_axes(const struct fl_arrays *a, int ndim, unsigned *mask) {
    const struct fl_array *const axes = fl_operand(a, 1);
    *mask = 0;
    TRY(fl_known(axes, "axes"));
    for (int64_t i = 0; axes && i < axes->count; i++) {
        int axis;
        TRY(fl_axis(&axis, fl_array_integer(axes, i), ndim));
        if (*mask >> axis & 1)
            return fl_fail(TENSOR_E_DATA, "axis %d occurs twice", axis);
        *mask |= 1u << axis;
    }
    return TENSOR_OK;
}

tensor_status fl_shape_squeeze(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int64_t dim[FL_ARRAY_DIMS];
    unsigned mask;
    int ndim = 0;
    TRY(named_axes(a, x->ndim, &mask));
    for (int d = 0; d < x->ndim; d++) {
        if (mask >> d & 1 && x->dim[d] != 1)
            return fl_fail(TENSOR_E_SHAPE, "dimension %d is %lld, expected 1", d, (long long)x->dim[d]);
        if (!(mask >> d & 1) && (x->dim[d] != 1 || fl_operand(a, 1)))
            dim[ndim++] = x->dim[d];
    }
    return fl_shape_set(a->out[0], x->type, ndim, dim);
}

tensor_status fl_shape_unsqueeze(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const int64_t ndim = x->ndim + a->in[1]->count;
    int64_t dim[FL_ARRAY_DIMS];
    unsigned mask;
    if (ndim > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "a result of %lld dimensions, expected at most %d", (long long)ndim,
                       FL_ARRAY_DIMS);
    TRY(named_axes(a, (int)ndim, &mask));
    for (int d = 0, from = 0; d < ndim; d++)
        dim[d] = mask >> d & 1 ? 1 : x->dim[from++];
    return fl_shape_set(a->out[0], x->type, (int)ndim, dim);
}

/* --- blocks of pixels as channels --------------------------------------------------------------------------------- */

static tensor_status read_block(const struct fl_arrays *a, int64_t *block) {
    *block = fl_net_int(a->node, "blocksize", 0);
    if (a->in[0]->ndim != 4)
        return fl_fail(TENSOR_E_SHAPE, "an image of %d dimensions, expected 4", a->in[0]->ndim);
    if (*block < 1 || *block > 1 << 20)
        return fl_fail(TENSOR_E_DATA, "blocksize is %lld, expected 1 or more", (long long)*block);
    return TENSOR_OK;
}

tensor_status fl_shape_depth_to_space(const struct fl_arrays *a) {
    const int64_t *const dim = a->in[0]->dim;
    const char *const mode = fl_net_string(a->node, "mode", "DCR");
    int64_t b;
    TRY(read_block(a, &b));
    if (strcmp(mode, "DCR") && strcmp(mode, "CRD"))
        return fl_fail(TENSOR_E_DATA, "mode \"%s\", expected DCR or CRD", mode);
    if (dim[1] % (b * b))
        return fl_fail(TENSOR_E_SHAPE, "%lld channels, expected a multiple of %lld", (long long)dim[1],
                       (long long)(b * b));
    return fl_shape_set(a->out[0], a->in[0]->type, 4,
                        (const int64_t[]){dim[0], dim[1] / (b * b), dim[2] * b, dim[3] * b});
}

tensor_status fl_compute_depth_to_space(const struct fl_arrays *a) {
    const int64_t *const dim = a->in[0]->dim, pixels = dim[2] * dim[3];
    const bool first = !strcmp(fl_net_string(a->node, "mode", "DCR"), "DCR");
    struct fl_pick pick;
    int64_t b;
    TRY(read_block(a, &b));
    const int64_t channels = dim[1] / (b * b), to[] = {dim[0], channels, dim[2], b, dim[3], b};
    const int64_t stride[] = {dim[1] * pixels,
                              first ? pixels : b * b * pixels,
                              dim[3],
                              first ? b * channels * pixels : b * pixels,
                              1,
                              first ? channels * pixels : pixels};
    if (!a->out[0])
        return TENSOR_OK;
    TRY(fl_pick_new(&pick, 6, to));
    for (int d = 0; d < 6; d++)
        fl_pick_steps(&pick, d, 0, stride[d]);
    fl_pick_copy(&pick, a->out[0], a->in[0], NULL);
    fl_pick_free(&pick);
    return TENSOR_OK;
}

tensor_status fl_shape_space_to_depth(const struct fl_arrays *a) {
    const int64_t *const dim = a->in[0]->dim;
    int64_t b;
    TRY(read_block(a, &b));
    if (dim[2] % b || dim[3] % b)
        return fl_fail(TENSOR_E_SHAPE, "an image of %lld x %lld, expected multiples of %lld", (long long)dim[2],
                       (long long)dim[3], (long long)b);
    if (dim[1] > ((int64_t)1 << 40) / (b * b))
        return fl_fail(TENSOR_E_SHAPE, "%lld channels times %lld", (long long)dim[1], (long long)(b * b));
    return fl_shape_set(a->out[0], a->in[0]->type, 4,
                        (const int64_t[]){dim[0], dim[1] * b * b, dim[2] / b, dim[3] / b});
}

tensor_status fl_compute_space_to_depth(const struct fl_arrays *a) {
    const int64_t *const dim = a->in[0]->dim;
    struct fl_pick pick;
    int64_t b;
    TRY(read_block(a, &b));
    const int64_t to[] = {dim[0], b, b, dim[1], dim[2] / b, dim[3] / b};
    const int64_t stride[] = {dim[1] * dim[2] * dim[3], dim[3], 1, dim[2] * dim[3], b * dim[3], b};
    if (!a->out[0])
        return TENSOR_OK;
    TRY(fl_pick_new(&pick, 6, to));
    for (int d = 0; d < 6; d++)
        fl_pick_steps(&pick, d, 0, stride[d]);
    fl_pick_copy(&pick, a->out[0], a->in[0], NULL);
    fl_pick_free(&pick);
    return TENSOR_OK;
}
