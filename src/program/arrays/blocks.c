/* blocks.c - images put together from windows: Col2Im, MaxUnpool; and cut about their centres: CenterCropPad. */
#include "program/arrays/windows.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

/* --- CenterCropPad ------------------------------------------------------------------------------------------------ */

tensor_status fl_shape_center(const struct fl_arrays *a) {
    const struct fl_net_attribute *const axes = fl_net_find(a->node, "axes");
    const struct fl_array *const x = a->in[0], *const shape = a->in[1];
    int64_t dim[FL_ARRAY_DIMS];
    TRY(fl_known(shape, "shape"));
    TRY(fl_want_integer(shape, "the shape"));
    TRY(fl_want_numbers(shape, axes ? axes->count : x->ndim, "the shape"));
    memcpy(dim, x->dim, sizeof dim);
    for (int i = 0; i < (int)shape->count; i++) {
        int axis = i;
        if (axes)
            TRY(fl_axis(&axis, axes->ints[i], x->ndim));
        dim[axis] = fl_array_integer(shape, i);
    }
    return fl_shape_set(a->out[0], x->type, x->ndim, dim);
}

tensor_status fl_compute_center(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const double nothing = 0;
    const struct fl_array zero = {.type = TENSOR_TYPE_F64, .count = 1, .data = (void *)&nothing};
    struct fl_array *const y = a->out[0];
    int64_t stride[FL_ARRAY_DIMS];
    struct fl_pick pick;
    if (!y)
        return TENSOR_OK;
    TRY(fl_pick_new(&pick, y->ndim, y->dim));
    fl_strides(x, stride);
    for (int d = 0; d < y->ndim; d++) {
        const int64_t more = y->dim[d] - x->dim[d], before = more > 0 ? more / 2 : -(-more / 2);
        for (int64_t i = 0; i < y->dim[d]; i++)
            pick.from[d][i] = i < before || i - before >= x->dim[d] ? -1 : (i - before) * stride[d];
    }
    fl_pick_copy(&pick, y, x, &zero);
    fl_pick_free(&pick);
    return TENSOR_OK;
}

/* --- Col2Im ------------------------------------------------------------------------------------------------------- */

/* The windows of images of the stated size: as those of a pooling, of which size and window are operands. */
static tensor_status read_columns(struct fl_windows *g, const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const image = a->in[1], *const window = a->in[2];
    int64_t block = 1, places = 1;
    TRY(fl_known(image, "image_shape"));
    TRY(fl_known(window, "block_shape"));
    TRY(fl_want_integer(image, "image_shape"));
    TRY(fl_want_integer(window, "block_shape"));
    TRY(fl_want_numbers(window, image->count, "block_shape"));
    if (x->ndim != 3 || image->count < 1 || image->count > FL_SPATIAL)
        return fl_fail(TENSOR_E_SHAPE, "columns of %d dimensions for images of %lld, expected 3, and 1 to %d", x->ndim,
                       (long long)image->count, FL_SPATIAL);
    *g = (struct fl_windows){.group = 1, .spatial = (int)image->count, .batch = x->dim[0]};
    TRY(fl_windows_steps(g, a->node));
    for (int d = 0; d < g->spatial; d++) {
        g->size[d] = fl_array_integer(image, d);
        g->window[d] = fl_array_integer(window, d);
        if (g->size[d] < 1 || g->size[d] > 1 << 24 || g->window[d] < 1 || g->window[d] > 1 << 20)
            return fl_fail(TENSOR_E_DATA, "a window of %lld on %lld pixels, expected 1 to 2^20 and 1 to 2^24",
                           (long long)g->window[d], (long long)g->size[d]);
    }
    TRY(fl_windows_count(g, a->node));
    for (int d = 0; d < g->spatial; d++) {
        block = block > INT32_MAX ? block : block * g->window[d];
        places = places > INT32_MAX ? places : places * g->result[d];
    }
    if (x->dim[1] % block || x->dim[2] != places)
        return fl_fail(TENSOR_E_SHAPE, "columns of %lld for %lld places, expected a multiple of %lld and %lld",
                       (long long)x->dim[1], (long long)x->dim[2], (long long)block, (long long)places);
    g->channels = x->dim[1] / block;
    return TENSOR_OK;
}

tensor_status fl_shape_columns(const struct fl_arrays *a) {
    struct fl_windows g;
    int64_t dim[FL_ARRAY_DIMS];
    TRY(fl_want_float(a, 0));
    TRY(read_columns(&g, a));
    dim[0] = g.batch;
    dim[1] = g.channels;
    memcpy(dim + 2, g.size, (size_t)g.spatial * sizeof *dim);
    return fl_shape_set(a->out[0], a->in[0]->type, 2 + g.spatial, dim);
}

/* The next index of an array, the last dimension first; false after the last. */
static bool step(int64_t *index, int ndim, const int64_t *dim) {
    int d = ndim - 1;
    for (; d >= 0 && ++index[d] == dim[d]; d--)
        index[d] = 0;
    return d >= 0;
}

tensor_status fl_compute_columns(const struct fl_arrays *a) {
    struct fl_windows g;
    double *sums;
    int64_t pixels = 1, from = 0;
    TRY(read_columns(&g, a));
    if (!a->out[0] || !a->out[0]->count)
        return TENSOR_OK;
    TRY(fl_memory(&sums, a->out[0]->count, sizeof *sums));
    memset(sums, 0, (size_t)a->out[0]->count * sizeof *sums);
    for (int d = 0; d < g.spatial; d++)
        pixels *= g.size[d];
    for (int64_t plane = 0; plane < g.batch * g.channels; plane++) {
        int64_t place[FL_SPATIAL] = {0};
        do {
            int64_t window[FL_SPATIAL] = {0};
            do {
                int64_t at = 0;
                bool inside = true;
                for (int d = 0; d < g.spatial; d++) {
                    const int64_t i = window[d] * g.stride[d] - g.begin[d] + place[d] * g.dilation[d];
                    inside &= i >= 0 && i < g.size[d];
                    at = at * g.size[d] + i;
                }
                if (inside)
                    sums[plane * pixels + at] += fl_array_number(a->in[0], from);
                from++;
            } while (step(window, g.spatial, g.result));
        } while (step(place, g.spatial, g.window));
    }
    fl_store_numbers(a->out[0], 0, 1, sums, a->out[0]->count);
    fl_free(sums);
    return TENSOR_OK;
}

/* --- MaxUnpool ---------------------------------------------------------------------------------------------------- */

/* The size of the images whose largest pixels the operand has; stated: that of the result. */
static tensor_status read_unpool(struct fl_windows *g, const struct fl_arrays *a, int64_t *stated) {
    const struct fl_array *const x = a->in[0], *const shape = fl_operand(a, 2);
    TRY(fl_windows_pool_steps(g, a->node, x));
    TRY(fl_known(shape, "output_shape"));
    TRY(fl_want_integer(shape, "output_shape"));
    TRY(fl_want_numbers(shape, x->ndim, "output_shape"));
    for (int d = 0; d < g->spatial; d++) {
        g->result[d] = (g->size[d] - 1) * g->stride[d] + g->window[d] - g->begin[d] - g->end[d];
        stated[d] = shape ? fl_array_integer(shape, 2 + d) : g->result[d];
        if (g->result[d] < 0 || stated[d] < g->result[d])
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of the images is %lld, expected at least %lld", d,
                           (long long)stated[d], (long long)g->result[d]);
    }
    return TENSOR_OK;
}

tensor_status fl_shape_unpool(const struct fl_arrays *a) {
    int64_t dim[FL_ARRAY_DIMS];
    struct fl_windows g;
    TRY(fl_want_integer(a->in[1], "the indices"));
    TRY(read_unpool(&g, a, dim + 2));
    if (a->in[1]->count != a->in[0]->count)
        return fl_fail(TENSOR_E_SHAPE, "%lld indices of %lld numbers, expected one each", (long long)a->in[1]->count,
                       (long long)a->in[0]->count);
    memcpy(dim, a->in[0]->dim, 2 * sizeof *dim);
    return fl_shape_set(a->out[0], a->in[0]->type, 2 + g.spatial, dim);
}

tensor_status fl_compute_unpool(const struct fl_arrays *a) {
    struct fl_array *const y = a->out[0];
    int64_t stated[FL_SPATIAL], stride[FL_ARRAY_DIMS], all;
    struct fl_windows g;
    TRY(read_unpool(&g, a, stated));
    if (!y || !y->count)
        return TENSOR_OK;
    all = g.batch * g.channels;
    for (int d = 0; d < g.spatial; d++)
        all *= g.result[d];
    fl_strides(y, stride);
    memset(y->data, 0, (size_t)y->count * fl_type_bytes(y->type));
    for (int64_t i = 0; i < a->in[0]->count; i++) {
        int64_t rest = fl_array_integer(a->in[1], i), at = 0;
        if (rest < 0 || rest >= all)
            return fl_fail(TENSOR_E_DATA, "index %lld at %lld, expected 0 to %lld", (long long)rest, (long long)i,
                           (long long)all - 1);
        for (int d = g.spatial - 1; d >= 0; d--) {
            at += rest % g.result[d] * stride[2 + d];
            rest /= g.result[d];
        }
        fl_copy_elements(y, at + rest * stride[1], a->in[0], i, 1);
    }
    return TENSOR_OK;
}
