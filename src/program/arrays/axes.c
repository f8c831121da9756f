/* axes.c - along one dimension: softmax and its relatives, running sums, the largest elements. */
#include "program/arrays/arrays.h"
#include "program/arrays/functions.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <stdlib.h>
#include <string.h>

/* The lines of an array along an axis: element k of line (o, i) is element (o n + k) inner + i. */
struct lines {
    int axis;
    int64_t outer, n, inner;
};

static tensor_status read_lines(struct lines *l, const struct fl_array *x, int64_t given) {
    *l = (struct lines){.outer = 1, .n = 1, .inner = 1};
    if (!x->ndim && (given == 0 || given == -1)) /* a scalar is a line of one */
        return TENSOR_OK;
    TRY(fl_axis(&l->axis, given, x->ndim));
    for (int d = 0; d < x->ndim; d++)
        *(d < l->axis ? &l->outer : d == l->axis ? &l->n : &l->inner) *= x->dim[d];
    return TENSOR_OK;
}

static int64_t line_start(const struct lines *l, int64_t line) {
    return line / l->inner * l->n * l->inner + line % l->inner;
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

struct softmax {
    const struct fl_array *x;
    struct fl_array *y;
    struct lines lines;
    bool is_log, is_hard;
    int64_t part; /* lines that a thread takes at a time */
};

static void softmax_line(const struct softmax *s, int64_t first) {
    const int64_t n = s->lines.n, stride = s->lines.inner;
    double block[FL_BLOCK], largest = -(double)INFINITY, sum = 0;
    int64_t place = 0;
    for (int64_t k = 0; k < n; k += FL_BLOCK) {
        const int64_t some = n - k < FL_BLOCK ? n - k : FL_BLOCK;
        fl_load_numbers(block, s->x, first + k * stride, stride, some);
        for (int64_t i = 0; i < some; i++)
            if (block[i] > largest || block[i] != block[i]) {
                largest = block[i];
                place = k + i;
            }
    }
    for (int64_t k = 0; k < n && !s->is_hard; k += FL_BLOCK) {
        const int64_t some = n - k < FL_BLOCK ? n - k : FL_BLOCK;
        fl_load_numbers(block, s->x, first + k * stride, stride, some);
        for (int64_t i = 0; i < some; i++)
            sum += fl_exp(block[i] - largest);
    }
    const double logarithm = s->is_log ? fl_log(sum) : 0;
    for (int64_t k = 0; k < n; k += FL_BLOCK) {
        const int64_t some = n - k < FL_BLOCK ? n - k : FL_BLOCK;
        fl_load_numbers(block, s->x, first + k * stride, stride, some);
        for (int64_t i = 0; i < some; i++)
            block[i] = s->is_hard  ? k + i == place
                       : s->is_log ? block[i] - largest - logarithm
                                   : fl_exp(block[i] - largest) / sum;
        fl_store_numbers(s->y, first + k * stride, stride, block, some);
    }
}

static void softmax_part(void *context, int part, int worker) {
    const struct softmax *const s = context;
    const int64_t count = s->lines.outer * s->lines.inner, end = (part + 1) * s->part;
    (void)worker;
    for (int64_t line = part * s->part; line < end && line < count; line++)
        softmax_line(s, line_start(&s->lines, line));
}

tensor_status fl_shape_softmax(const struct fl_arrays *a) {
    struct lines l;
    TRY(fl_want_float(a, 0));
    TRY(read_lines(&l, a->in[0], fl_net_int(a->node, "axis", -1)));
    return fl_shape_same(a);
}

tensor_status fl_compute_softmax(const struct fl_arrays *a) {
    struct softmax s = {.x = a->in[0], .y = a->out[0]};
    if (!s.y || !s.y->count)
        return TENSOR_OK;
    TRY(read_lines(&s.lines, s.x, fl_net_int(a->node, "axis", -1)));
    s.is_log = !strcmp(a->node->op, "LogSoftmax");
    s.is_hard = !strcmp(a->node->op, "Hardmax");
    const int64_t count = s.lines.outer * s.lines.inner, wanted = 4096 / s.lines.n + 1, least = (count >> 30) + 1;
    s.part = wanted > least ? wanted : least;
    fl_parallel((int)((count + s.part - 1) / s.part), softmax_part, &s);
    return TENSOR_OK;
}

/* --- running sums ------------------------------------------------------------------------------------------------- */

tensor_status fl_shape_cumsum(const struct fl_arrays *a) {
    if (a->in[1]->count != 1)
        return fl_fail(TENSOR_E_SHAPE, "axis has %lld elements, expected 1", (long long)a->in[1]->count);
    TRY(fl_want_integer(a->in[1], "axis"));
    return fl_shape_same(a);
}

tensor_status fl_compute_cumsum(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    struct fl_array *const y = a->out[0];
    const bool exclusive = fl_net_int(a->node, "exclusive", 0) != 0, reverse = fl_net_int(a->node, "reverse", 0) != 0;
    const bool is_float = fl_type_is_float(x->type);
    struct lines l;
    TRY(read_lines(&l, x, fl_array_integer(a->in[1], 0)));
    for (int64_t line = 0; y && l.n && line < l.outer * l.inner; line++) {
        const int64_t first = line_start(&l, line);
        double sum = 0;
        uint64_t whole = 0;
        for (int64_t k = 0; k < l.n; k++) {
            const int64_t at = first + (reverse ? l.n - 1 - k : k) * l.inner;
            const double number = is_float ? fl_array_number(x, at) : 0;
            const uint64_t integer = is_float ? 0 : (uint64_t)fl_array_integer(x, at);
            if (is_float)
                fl_array_put_number(y, at, exclusive ? sum : sum + number);
            else
                fl_array_put_integer(y, at, (int64_t)(exclusive ? whole : whole + integer));
            sum += number;
            whole += integer;
        }
    }
    return TENSOR_OK;
}

/* --- the largest and smallest ------------------------------------------------------------------------------------- */

/* An element with its place. Floats are compared as doubles, uint64 by their words. */
struct item {
    double number;
    int64_t integer, place;
};

static struct item item_at(const struct fl_array *x, int64_t at, int64_t place) {
    struct item item = {.place = place};
    if (fl_type_is_float(x->type))
        item.number = fl_array_number(x, at);
    else
        item.integer = fl_array_integer(x, at);
    if (x->type == TENSOR_TYPE_U64) /* in the order of signed numbers */
        item.integer = (int64_t)((uint64_t)item.integer ^ (uint64_t)1 << 63);
    return item;
}

/* Above 0: the first is larger; NaN is the largest of all. */
static int compare(const struct item *a, const struct item *b) {
    if (a->integer != b->integer)
        return a->integer > b->integer ? 1 : -1;
    if (a->number != a->number || b->number != b->number)
        return (a->number != a->number) - (b->number != b->number);
    return (a->number > b->number) - (a->number < b->number);
}

static int falling(const void *a, const void *b) {
    const struct item *const first = a, *const second = b;
    const int order = compare(second, first);
    return order ? order : first->place < second->place ? -1 : 1;
}

static int rising(const void *a, const void *b) {
    const struct item *const first = a, *const second = b;
    const int order = compare(first, second);
    return order ? order : first->place < second->place ? -1 : 1;
}

tensor_status fl_shape_arg(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const bool keeps = fl_net_int(a->node, "keepdims", 1) != 0;
    int64_t dim[FL_ARRAY_DIMS];
    int ndim = 0;
    struct lines l;
    TRY(read_lines(&l, x, fl_net_int(a->node, "axis", 0)));
    if (!l.n && l.outer * l.inner > 0)
        return fl_fail(TENSOR_E_SHAPE, "dimension %d is empty, expected elements", l.axis);
    for (int d = 0; d < x->ndim; d++)
        if (d != l.axis || keeps)
            dim[ndim++] = d == l.axis ? 1 : x->dim[d];
    return fl_shape_set(a->out[0], TENSOR_TYPE_I64, ndim, dim);
}

tensor_status fl_compute_arg(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const int sign = !strcmp(a->node->op, "ArgMax") ? 1 : -1;
    const bool last = fl_net_int(a->node, "select_last_index", 0) != 0;
    struct lines l;
    TRY(read_lines(&l, x, fl_net_int(a->node, "axis", 0)));
    for (int64_t line = 0; a->out[0] && line < a->out[0]->count; line++) {
        const int64_t first = line_start(&l, line);
        struct item best = item_at(x, first, 0);
        for (int64_t k = 1; k < l.n; k++) {
            const struct item item = item_at(x, first + k * l.inner, k);
            const int order = sign * compare(&item, &best);
            if (order > 0 || (!order && last))
                best = item;
        }
        fl_array_put_integer(a->out[0], line, best.place);
    }
    return TENSOR_OK;
}

tensor_status fl_shape_top_k(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int64_t dim[FL_ARRAY_DIMS];
    int axis;
    TRY(fl_known(a->in[1], "k"));
    TRY(fl_want_numbers(a->in[1], 1, "k"));
    TRY(fl_axis(&axis, fl_net_int(a->node, "axis", -1), x->ndim));
    const int64_t k = fl_array_integer(a->in[1], 0);
    if (k < 0 || k > x->dim[axis])
        return fl_fail(TENSOR_E_DATA, "k is %lld, expected 0 to %lld", (long long)k, (long long)x->dim[axis]);
    memcpy(dim, x->dim, sizeof dim);
    dim[axis] = k;
    TRY(fl_shape_set(a->out[0], x->type, x->ndim, dim));
    return fl_shape_set(fl_result(a, 1), TENSOR_TYPE_I64, x->ndim, dim);
}

tensor_status fl_compute_top_k(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    struct fl_array *const places = fl_result(a, 1);
    const int64_t count = fl_array_integer(a->in[1], 0);
    const bool largest = fl_net_int(a->node, "largest", 1) != 0;
    struct lines l;
    struct item *items;
    TRY(read_lines(&l, x, fl_net_int(a->node, "axis", -1)));
    TRY(fl_memory(&items, l.n, sizeof *items));
    for (int64_t line = 0; line < l.outer * l.inner; line++) {
        const int64_t first = line_start(&l, line), to = line / l.inner * count * l.inner + line % l.inner;
        for (int64_t k = 0; k < l.n; k++)
            items[k] = item_at(x, first + k * l.inner, k);
        qsort(items, (size_t)l.n, sizeof *items, largest ? falling : rising);
        for (int64_t k = 0; k < count; k++) {
            if (a->out[0])
                fl_copy_elements(a->out[0], to + k * l.inner, x, first + items[k].place * l.inner, 1);
            if (places)
                fl_array_put_integer(places, to + k * l.inner, items[k].place);
        }
    }
    fl_free(items);
    return TENSOR_OK;
}
