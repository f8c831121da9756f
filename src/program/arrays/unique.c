/* unique.c - Unique: each element, or slice along an axis, once. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

struct slices {
    const struct fl_array *x;
    bool flat;
    int axis;
    int64_t outer, n, inner;          /* slices are [outer, inner] */
    int64_t *order, *room;            /* slices in the order of their elements; equal ones as they come */
    int64_t *first, *inverse, *count; /* of each that is new, its first slice; of each slice, which it is; how often */
    int64_t found;
    void *memory;
};

static int compare(const struct slices *s, int64_t a, int64_t b) {
    const bool is_float = fl_type_is_float(s->x->type), is_word = s->x->type == TENSOR_TYPE_U64;
    for (int64_t o = 0; o < s->outer; o++)
        for (int64_t i = 0; i < s->inner; i++) {
            const int64_t from = (o * s->n + a) * s->inner + i, to = (o * s->n + b) * s->inner + i;
            if (is_float) {
                const double p = fl_array_number(s->x, from), q = fl_array_number(s->x, to);
                if (p < q || (p == p && q != q))
                    return -1;
                if (p > q || (p != p && q == q))
                    return 1;
            } else {
                const int64_t p = fl_array_integer(s->x, from), q = fl_array_integer(s->x, to);
                if (p != q)
                    return (is_word ? (uint64_t)p < (uint64_t)q : p < q) ? -1 : 1;
            }
        }
    return 0;
}

/* Merges runs that are sorted, each twice as long as those before. */
static void sort(struct slices *s) {
    for (int64_t run = 1; run < s->n; run *= 2) {
        for (int64_t at = 0; at < s->n; at += 2 * run) {
            const int64_t middle = at + run < s->n ? at + run : s->n, end = middle + run < s->n ? middle + run : s->n;
            int64_t i = at, j = middle;
            for (int64_t k = at; k < end; k++)
                s->room[k] = i < middle && (j == end || compare(s, s->order[i], s->order[j]) <= 0) ? s->order[i++]
                                                                                                   : s->order[j++];
        }
        int64_t *const swap = s->order;
        s->order = s->room;
        s->room = swap;
    }
}

static tensor_status find(struct slices *s, const struct fl_arrays *a) {
    const struct fl_net_attribute *const axis = fl_net_find(a->node, "axis");
    const struct fl_array *const x = a->in[0];
    *s = (struct slices){.x = x, .flat = !axis, .outer = 1, .n = axis ? 1 : x->count, .inner = 1};
    TRY(fl_known(x, "operand"));
    if (axis) {
        TRY(fl_axis(&s->axis, axis->i, x->ndim));
        for (int d = 0; d < x->ndim; d++)
            *(d < s->axis ? &s->outer : d == s->axis ? &s->n : &s->inner) *= x->dim[d];
    }
    TRY(fl_memory(&s->memory, 5 * s->n, sizeof(int64_t)));
    s->order = s->memory;
    s->room = s->order + s->n;
    s->first = s->room + s->n;
    s->inverse = s->first + s->n;
    s->count = s->inverse + s->n;
    for (int64_t i = 0; i < s->n; i++)
        s->order[i] = i;
    sort(s);
    for (int64_t k = 0; k < s->n; k++) {
        if (!k || compare(s, s->order[k - 1], s->order[k])) {
            s->first[s->found] = s->order[k];
            s->count[s->found++] = 0;
        }
        s->inverse[s->order[k]] = s->found - 1;
        s->count[s->found - 1]++;
    }
    if (fl_net_int(a->node, "sorted", 1))
        return TENSOR_OK;
    /* In the order in which they come: rank of each, then everything by rank. */
    int64_t *const rank = s->room, *const counts = s->order, ranks = 0;
    memcpy(counts, s->count, (size_t)s->n * sizeof *counts);
    for (int64_t i = 0; i < s->n; i++)
        if (s->first[s->inverse[i]] == i)
            rank[s->inverse[i]] = ranks++;
    for (int64_t k = 0; k < s->found; k++)
        s->count[rank[k]] = counts[k];
    for (int64_t i = 0; i < s->n; i++)
        s->inverse[i] = rank[s->inverse[i]];
    for (int64_t i = s->n - 1; i >= 0; i--) /* the first that comes is written last */
        s->first[s->inverse[i]] = i;
    return TENSOR_OK;
}

tensor_status fl_shape_unique(const struct fl_arrays *a) {
    int64_t dim[FL_ARRAY_DIMS];
    struct slices s;
    tensor_status status = find(&s, a);
    if (!status) {
        memcpy(dim, a->in[0]->dim, sizeof dim);
        dim[s.axis] = s.found;
        status = fl_shape_set(a->out[0], a->in[0]->type, s.flat ? 1 : a->in[0]->ndim, dim);
        for (int i = 1; i < 4 && !status; i++)
            status = fl_shape_set(fl_result(a, i), TENSOR_TYPE_I64, 1, i == 2 ? &s.n : &s.found);
    }
    fl_free(s.memory);
    return status;
}

tensor_status fl_compute_unique(const struct fl_arrays *a) {
    struct slices s;
    const tensor_status status = find(&s, a);
    if (!status) {
        for (int64_t o = 0; o < s.outer && a->out[0]; o++)
            for (int64_t k = 0; k < s.found; k++)
                fl_copy_elements(a->out[0], (o * s.found + k) * s.inner, s.x, (o * s.n + s.first[k]) * s.inner,
                                 s.inner);
        if (fl_result(a, 1))
            fl_store_integers(a->out[1], 0, 1, s.first, s.found);
        if (fl_result(a, 2))
            fl_store_integers(a->out[2], 0, 1, s.inverse, s.n);
        if (fl_result(a, 3))
            fl_store_integers(a->out[3], 0, 1, s.count, s.found);
    }
    fl_free(s.memory);
    return status;
}
