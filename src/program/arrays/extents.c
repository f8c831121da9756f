/* extents.c - parts of arrays, and arrays repeated or continued. */
#include "program/arrays/arrays.h"
#include "program/arrays/extents.h"
#include "core/base/fail.h"
#include <string.h>

/* Copies with the tables that a caller has filled in, and frees them. */
static tensor_status pick_all(struct fl_pick *pick, const struct fl_arrays *a, const struct fl_array *fill) {
    fl_pick_copy(pick, a->out[0], a->in[0], fill);
    fl_pick_free(pick);
    return TENSOR_OK;
}

/* --- slice -------------------------------------------------------------------------------------------------------- */

static int64_t within(int64_t x, int64_t low, int64_t high) {
    return x < low ? low : x > high ? high : x;
}

tensor_status fl_slice_read(struct fl_slices *s, const struct fl_arrays *a) {
    static const char *const names[] = {"", "starts", "ends", "axes", "steps"};
    const struct fl_array *const x = a->in[0], *const axes = fl_operand(a, 3), *const steps = fl_operand(a, 4);
    const int64_t limit = (int64_t)1 << 40, count = a->in[1]->count;
    unsigned seen = 0;
    for (int i = 1; i < 5; i++) {
        TRY(fl_known(fl_operand(a, i), names[i]));
        TRY(fl_want_integer(fl_operand(a, i), names[i]));
        TRY(fl_want_numbers(fl_operand(a, i), count, names[i]));
    }
    for (int d = 0; d < x->ndim; d++) {
        s->start[d] = 0;
        s->step[d] = 1;
        s->count[d] = x->dim[d];
    }
    for (int64_t i = 0; i < count; i++) {
        int d;
        TRY(fl_axis(&d, axes ? fl_array_integer(axes, i) : i, x->ndim));
        if (seen >> d & 1)
            return fl_fail(TENSOR_E_DATA, "axis %d occurs twice", d);
        seen |= 1u << d;
        const int64_t step = within(steps ? fl_array_integer(steps, i) : 1, -limit, limit), size = x->dim[d];
        int64_t start = fl_array_integer(a->in[1], i), end = fl_array_integer(a->in[2], i);
        if (!step)
            return fl_fail(TENSOR_E_DATA, "step %lld is 0, expected another number", (long long)i);
        start += start < 0 ? size : 0;
        end += end < 0 ? size : 0;
        start = step > 0 ? within(start, 0, size) : within(start, 0, size - 1);
        end = step > 0 ? within(end, 0, size) : within(end, -1, size - 1);
        s->start[d] = start;
        s->step[d] = step;
        s->count[d] = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
        if (s->count[d] < 0 || !size)
            s->count[d] = 0;
    }
    return TENSOR_OK;
}

tensor_status fl_shape_slice(const struct fl_arrays *a) {
    struct fl_slices s;
    TRY(fl_slice_read(&s, a));
    return fl_shape_set(a->out[0], a->in[0]->type, a->in[0]->ndim, s.count);
}

tensor_status fl_compute_slice(const struct fl_arrays *a) {
    int64_t stride[FL_ARRAY_DIMS];
    struct fl_slices s;
    struct fl_pick pick;
    if (!a->out[0])
        return TENSOR_OK;
    TRY(fl_slice_read(&s, a));
    TRY(fl_pick_new(&pick, a->in[0]->ndim, s.count));
    fl_strides(a->in[0], stride);
    for (int d = 0; d < a->in[0]->ndim; d++)
        fl_pick_steps(&pick, d, s.start[d] * stride[d], s.step[d] * stride[d]);
    return pick_all(&pick, a, NULL);
}

/* --- repeated ----------------------------------------------------------------------------------------------------- */

tensor_status fl_shape_expand(const struct fl_arrays *a) {
    const struct fl_array *const shape = a->in[1];
    struct fl_array wanted = {.ndim = (int)shape->count};
    int64_t dim[FL_ARRAY_DIMS];
    int ndim;
    TRY(fl_known(shape, "shape"));
    if (shape->ndim != 1 || shape->count > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "a shape of %lld numbers, expected at most %d", (long long)shape->count,
                       FL_ARRAY_DIMS);
    for (int d = 0; d < wanted.ndim; d++)
        wanted.dim[d] = fl_array_integer(shape, d);
    TRY(fl_broadcast_shape(&ndim, dim, a->in[0], &wanted));
    return fl_shape_set(a->out[0], a->in[0]->type, ndim, dim);
}

/* Each dimension of the result begins the operand's again where that ends. */
static tensor_status repeat(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const y = a->out[0];
    int64_t stride[FL_ARRAY_DIMS];
    struct fl_pick pick;
    if (!y)
        return TENSOR_OK;
    TRY(fl_pick_new(&pick, y->ndim, y->dim));
    fl_strides(x, stride);
    for (int d = 0; d < y->ndim; d++) {
        const int from = d - (y->ndim - x->ndim);
        for (int64_t i = 0; i < y->dim[d]; i++)
            pick.from[d][i] = from < 0 || !x->dim[from] ? 0 : i % x->dim[from] * stride[from];
    }
    return pick_all(&pick, a, NULL);
}

tensor_status fl_compute_expand(const struct fl_arrays *a) {
    return repeat(a);
}

tensor_status fl_shape_tile(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const repeats = a->in[1];
    int64_t dim[FL_ARRAY_DIMS];
    TRY(fl_known(repeats, "repeats"));
    TRY(fl_want_numbers(repeats, x->ndim, "repeats"));
    for (int d = 0; d < x->ndim; d++) {
        const int64_t n = fl_array_integer(repeats, d);
        if (n < 0 || n > (int64_t)1 << 37 || (x->dim[d] && n > ((int64_t)1 << 37) / x->dim[d]))
            return fl_fail(TENSOR_E_DATA, "repeats has %lld at %d, expected 0 or more", (long long)n, d);
        dim[d] = x->dim[d] * n;
    }
    return fl_shape_set(a->out[0], x->type, x->ndim, dim);
}

tensor_status fl_compute_tile(const struct fl_arrays *a) {
    return repeat(a);
}

/* --- padding ------------------------------------------------------------------------------------------------------ */

tensor_status fl_pads_read(struct fl_pads *p, const struct fl_arrays *a) {
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    const struct fl_array *const x = a->in[0], *const pads = a->in[1], *const axes = fl_operand(a, 3);
    const char *const mode = fl_net_string(a->node, "mode", "constant");
    const int64_t count = axes ? axes->count : x->ndim, limit = (int64_t)1 << 37;
    bool found = false;
    for (int i = 0; i < 4; i++)
        found |= !strcmp(modes[i], mode);
    if (!found)
        return fl_fail(TENSOR_E_DATA, "mode \"%s\", expected constant, reflect, edge or wrap", mode);
    TRY(fl_known(pads, "pads"));
    TRY(fl_known(axes, "axes"));
    TRY(fl_want_integer(pads, "pads"));
    if (pads->count != 2 * count)
        return fl_fail(TENSOR_E_SHAPE, "pads has %lld numbers, expected %lld", (long long)pads->count,
                       (long long)(2 * count));
    memset(p, 0, sizeof *p);
    for (int64_t i = 0; i < count; i++) {
        int d;
        TRY(fl_axis(&d, axes ? fl_array_integer(axes, i) : i, x->ndim));
        p->begin[d] = fl_array_integer(pads, i);
        p->end[d] = fl_array_integer(pads, count + i);
        if (p->begin[d] < -limit || p->begin[d] > limit || p->end[d] < -limit || p->end[d] > limit)
            return fl_fail(TENSOR_E_DATA, "pads of %lld and %lld", (long long)p->begin[d], (long long)p->end[d]);
        if (!x->dim[d] && (p->begin[d] > 0 || p->end[d] > 0) && strcmp(mode, "constant"))
            return fl_fail(TENSOR_E_SHAPE, "dimension %d is empty, expected elements for mode %s", d, mode);
    }
    return TENSOR_OK;
}

tensor_status fl_shape_pad(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int64_t dim[FL_ARRAY_DIMS];
    struct fl_pads p;
    TRY(fl_pads_read(&p, a));
    TRY(fl_want_type(fl_operand(a, 2), x->type, "the value"));
    if (fl_operand(a, 2) && a->in[2]->count != 1)
        return fl_fail(TENSOR_E_SHAPE, "a value of %lld elements, expected 1", (long long)a->in[2]->count);
    for (int d = 0; d < x->ndim; d++)
        dim[d] = x->dim[d] + p.begin[d] + p.end[d];
    return fl_shape_set(a->out[0], x->type, x->ndim, dim);
}

/* Where the element i of a line of n comes from; -1: it is filled. */
static int64_t source(int64_t i, int64_t n, char mode) {
    if (i >= 0 && i < n)
        return i;
    if (mode == 'c')
        return -1;
    if (mode == 'e')
        return i < 0 ? 0 : n - 1;
    const int64_t period = mode == 'w' ? n : n > 1 ? 2 * (n - 1) : 1, rest = (i % period + period) % period;
    return rest < n ? rest : period - rest;
}

tensor_status fl_compute_pad(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const fill = fl_operand(a, 2);
    const char mode = *fl_net_string(a->node, "mode", "constant");
    int64_t stride[FL_ARRAY_DIMS];
    uint64_t zero = 0;
    const struct fl_array none = {.type = x->type, .count = 1, .data = &zero};
    struct fl_pads p;
    struct fl_pick pick;
    if (!a->out[0])
        return TENSOR_OK;
    TRY(fl_pads_read(&p, a));
    TRY(fl_pick_new(&pick, x->ndim, a->out[0]->dim));
    fl_strides(x, stride);
    for (int d = 0; d < x->ndim; d++)
        for (int64_t i = 0; i < pick.dim[d]; i++) {
            const int64_t from = source(i - p.begin[d], x->dim[d], mode);
            pick.from[d][i] = from < 0 ? -1 : from * stride[d];
        }
    return pick_all(&pick, a, fill ? fill : &none);
}

/* --- parts of matrices, and of sequences -------------------------------------------------------------------------- */

tensor_status fl_shape_trilu(const struct fl_arrays *a) {
    if (a->in[0]->ndim < 2)
        return fl_fail(TENSOR_E_SHAPE, "an operand of %d dimensions, expected matrices", a->in[0]->ndim);
    if (fl_operand(a, 1) && a->in[1]->count != 1)
        return fl_fail(TENSOR_E_SHAPE, "k has %lld elements, expected 1", (long long)a->in[1]->count);
    return fl_shape_same(a);
}

tensor_status fl_compute_trilu(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const int64_t rows = x->dim[x->ndim - 2], columns = x->dim[x->ndim - 1];
    const int64_t k = fl_operand(a, 1) ? within(fl_array_integer(a->in[1], 0), -rows, columns) : 0;
    const bool upper = fl_net_int(a->node, "upper", 1) != 0;
    if (!a->out[0] || !x->count)
        return TENSOR_OK;
    TRY(fl_compute_copy(a));
    const size_t bytes = fl_type_bytes(a->out[0]->type);
    for (int64_t r = 0; r < x->count / columns; r++) {
        const int64_t diagonal = within(r % rows + k + !upper, 0, columns); /* the first column of the upper part */
        const int64_t first = upper ? 0 : diagonal, end = upper ? diagonal : columns;
        memset((char *)a->out[0]->data + (size_t)(r * columns + first) * bytes, 0, (size_t)(end - first) * bytes);
    }
    return TENSOR_OK;
}

tensor_status fl_shape_reverse_sequence(const struct fl_arrays *a) {
    const int64_t batch = fl_net_int(a->node, "batch_axis", 1), time = fl_net_int(a->node, "time_axis", 0);
    if (a->in[0]->ndim < 2)
        return fl_fail(TENSOR_E_SHAPE, "an operand of %d dimensions, expected 2 or more", a->in[0]->ndim);
    if (batch < 0 || batch > 1 || time != 1 - batch)
        return fl_fail(TENSOR_E_DATA, "batch_axis %lld and time_axis %lld, expected 0 and 1, or 1 and 0",
                       (long long)batch, (long long)time);
    TRY(fl_want_integer(a->in[1], "sequence_lens"));
    TRY(fl_want_numbers(a->in[1], a->in[0]->dim[batch], "sequence_lens"));
    return fl_shape_same(a);
}

tensor_status fl_compute_reverse_sequence(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const bool batch_first = fl_net_int(a->node, "batch_axis", 1) == 0;
    const int64_t batch = x->dim[!batch_first], time = x->dim[batch_first];
    int64_t inner = 1;
    for (int d = 2; d < x->ndim; d++)
        inner *= x->dim[d];
    for (int64_t b = 0; b < batch && a->out[0]; b++) {
        const int64_t n = fl_array_integer(a->in[1], b);
        if (n < 0 || n > time)
            return fl_fail(TENSOR_E_DATA, "sequence %lld has length %lld, expected 0 to %lld", (long long)b,
                           (long long)n, (long long)time);
        for (int64_t t = 0; t < time; t++) {
            const int64_t from = t < n ? n - 1 - t : t;
            fl_copy_elements(a->out[0], (batch_first ? b * time + t : t * batch + b) * inner, x,
                             (batch_first ? b * time + from : from * batch + b) * inner, inner);
        }
    }
    return TENSOR_OK;
}
