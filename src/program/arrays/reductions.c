/* reductions.c - sums, products, norms and extremes over some dimensions. */
#include "program/arrays/arrays.h"
#include "program/arrays/functions.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <string.h>

/* total[i * advance] takes in x[i]: advance 1 for neighbouring results, 0 for one. */
typedef void number_step(double *total, const double *x, int n, int advance);
typedef void integer_step(int64_t *total, const int64_t *x, int n, int advance);

#define STEP(name, type, as, expression)                                                                               \
    static void name(type *totals, const type *xs, int n, int advance) {                                               \
        for (int i = 0; i < n; i++) {                                                                                  \
            const as total = (as)totals[i * advance], x = (as)xs[i];                                                   \
            totals[i * advance] = (type)(expression);                                                                  \
        }                                                                                                              \
    }

STEP(sum, double, double, total + x)
STEP(sum_absolute, double, double, total + fabs(x))
STEP(sum_square, double, double, total + x * x)
STEP(product, double, double, total *x)
STEP(largest, double, double, x > total || x != x ? x : total)
STEP(smallest, double, double, x < total || x != x ? x : total)
STEP(integer_sum, int64_t, uint64_t, total + x)
STEP(integer_sum_absolute, int64_t, uint64_t, total + ((int64_t)x < 0 ? 0 - x : x))
STEP(integer_sum_square, int64_t, uint64_t, total + x * x)
STEP(integer_product, int64_t, uint64_t, total *x)
STEP(integer_largest, int64_t, int64_t, x > total ? x : total)
STEP(integer_smallest, int64_t, int64_t, x < total ? x : total)
STEP(word_largest, int64_t, uint64_t, x > total ? x : total)
STEP(word_smallest, int64_t, uint64_t, x < total ? x : total)

enum after { AS_IT_IS, MEAN, ROOT, LOGARITHM, LOG_SUM_EXP };

static const struct reduction {
    const char *op;
    number_step *numbers;
    integer_step *integers, *words; /* NULL: as numbers; words NULL: as integers */
    enum after after;
    double number; /* of nothing */
    int64_t integer, word;
} reductions[] = {
    {"ReduceL1", sum_absolute, integer_sum_absolute, integer_sum, AS_IT_IS, 0, 0, 0},
    {"ReduceL2", sum_square, NULL, NULL, ROOT, 0, 0, 0},
    {"ReduceLogSum", sum, NULL, NULL, LOGARITHM, 0, 0, 0},
    {"ReduceLogSumExp", sum, NULL, NULL, LOG_SUM_EXP, 0, 0, 0},
    {"ReduceMax", largest, integer_largest, word_largest, AS_IT_IS, -HUGE_VAL, INT64_MIN, 0},
    {"ReduceMean", sum, NULL, NULL, MEAN, 0, 0, 0},
    {"ReduceMin", smallest, integer_smallest, word_smallest, AS_IT_IS, HUGE_VAL, INT64_MAX, -1},
    {"ReduceProd", product, integer_product, NULL, AS_IT_IS, 1, 1, 1},
    {"ReduceSum", sum, integer_sum, NULL, AS_IT_IS, 0, 0, 0},
    {"ReduceSumSquare", sum_square, integer_sum_square, NULL, AS_IT_IS, 0, 0, 0},
};

static const struct reduction *find_reduction(const char *op) {
    for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++)
        if (!strcmp(reductions[i].op, op))
            return &reductions[i];
    return NULL;
}

/* A bit for each dimension that goes. */
static tensor_status read_axes(const struct fl_arrays *a, unsigned *mask) {
    const struct fl_array *const x = a->in[0], *const axes = fl_operand(a, 1);
    *mask = 0;
    TRY(fl_known(axes, "axes"));
    TRY(fl_want_integer(axes, "axes"));
    if ((!axes || !axes->count) && !fl_net_int(a->node, "noop_with_empty_axes", 0))
        *mask = (1u << x->ndim) - 1;
    for (int64_t i = 0; axes && i < axes->count; i++) {
        int axis;
        TRY(fl_axis(&axis, fl_array_integer(axes, i), x->ndim));
        *mask |= 1u << axis;
    }
    return TENSOR_OK;
}

tensor_status fl_shape_reduce(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const bool keeps = fl_net_int(a->node, "keepdims", 1) != 0;
    int64_t dim[FL_ARRAY_DIMS];
    unsigned mask;
    int ndim = 0;
    TRY(read_axes(a, &mask));
    for (int d = 0; d < x->ndim; d++)
        if (!(mask >> d & 1) || keeps)
            dim[ndim++] = mask >> d & 1 ? 1 : x->dim[d];
    return fl_shape_set(a->out[0], x->type, ndim, dim);
}

/* The operand as [outer, n, inner], of which n goes. */
struct call {
    const struct reduction *how;
    struct fl_array x;
    struct fl_array *y;
    int64_t outer, n, inner, columns, parts_across, rows_of_part;
    bool is_integer, is_word;
};

static double finished(const struct call *c, double total) {
    switch (c->how->after) {
    case MEAN:
        return total / (double)c->n;
    case ROOT:
        return sqrt(total);
    case LOGARITHM:
        return fl_log(total);
    default:
        return total;
    }
}

/* Results of neighbouring columns, or of one. */
static void reduce_numbers(const struct call *c, int64_t outer, int64_t column, int columns) {
    const int64_t base = outer * c->n * c->inner + column;
    double total[FL_BLOCK], x[FL_BLOCK];
    for (int i = 0; i < columns; i++)
        total[i] = c->how->number;
    for (int64_t k = 0; k < c->n;) {
        const int64_t some = c->inner > 1 ? 1 : c->n - k < FL_BLOCK ? c->n - k : FL_BLOCK;
        const int count = c->inner > 1 ? columns : (int)some;
        fl_load_numbers(x, &c->x, base + k * c->inner, 1, count);
        c->how->numbers(total, x, count, c->inner > 1);
        k += some;
    }
    for (int i = 0; i < columns; i++)
        total[i] = finished(c, total[i]);
    fl_store_numbers(c->y, outer * c->inner + column, 1, total, columns);
}

static void reduce_integers(const struct call *c, int64_t outer, int64_t column, int columns) {
    const int64_t base = outer * c->n * c->inner + column;
    integer_step *const step = c->is_word && c->how->words ? c->how->words : c->how->integers;
    int64_t total[FL_BLOCK], x[FL_BLOCK];
    for (int i = 0; i < columns; i++)
        total[i] = c->is_word ? c->how->word : c->how->integer;
    for (int64_t k = 0; k < c->n;) {
        const int64_t some = c->inner > 1 ? 1 : c->n - k < FL_BLOCK ? c->n - k : FL_BLOCK;
        const int count = c->inner > 1 ? columns : (int)some;
        fl_load_integers(x, &c->x, base + k * c->inner, 1, count);
        step(total, x, count, c->inner > 1);
        k += some;
    }
    fl_store_integers(c->y, outer * c->inner + column, 1, total, columns);
}

/* m + log of the sum of e^(x - m), with m the largest. */
static void reduce_log_sum_exp(const struct call *c, int64_t outer, int64_t column, int columns) {
    for (int i = 0; i < columns; i++) {
        const int64_t base = outer * c->n * c->inner + column + i;
        double most = -HUGE_VAL, total = 0;
        for (int64_t k = 0; k < c->n; k++) {
            const double x = fl_array_number(&c->x, base + k * c->inner);
            most = x > most || x != x ? x : most;
        }
        for (int64_t k = 0; k < c->n && most - most == 0; k++)
            total += fl_exp(fl_array_number(&c->x, base + k * c->inner) - most);
        fl_array_put_number(c->y, outer * c->inner + column + i, most - most == 0 ? most + fl_log(total) : most);
    }
}

static void reduce_part(void *context, int part, int worker) {
    const struct call *const c = context;
    const int64_t first = part / c->parts_across * c->rows_of_part, column = part % c->parts_across * c->columns;
    const int64_t left = c->inner - column;
    (void)worker;
    for (int64_t o = first; o < c->outer && o < first + c->rows_of_part; o++)
        (c->how->after == LOG_SUM_EXP ? reduce_log_sum_exp
         : c->is_integer              ? reduce_integers
                                      : reduce_numbers)(c, o, column, (int)(left < c->columns ? left : c->columns));
}

static void reduce_all(struct call *c) {
    const int64_t each = c->n * (c->inner < FL_BLOCK ? c->inner : FL_BLOCK);
    c->columns = c->inner < FL_BLOCK ? c->inner : FL_BLOCK;
    c->parts_across = (c->inner + c->columns - 1) / c->columns;
    c->rows_of_part = (1 << 14) / (each + 1) + 1;
    const int64_t least = c->outer * c->parts_across / (1 << 30) + 1;
    if (c->rows_of_part < least)
        c->rows_of_part = least;
    fl_parallel((int)((c->outer + c->rows_of_part - 1) / c->rows_of_part * c->parts_across), reduce_part, c);
}

/* Copies the operand with the dimensions that go at the end. */
static tensor_status order_dimensions(struct call *c, const struct fl_array *x, unsigned mask, void **memory) {
    int64_t stride[FL_ARRAY_DIMS], dim[FL_ARRAY_DIMS];
    int order[FL_ARRAY_DIMS], count = 0;
    struct fl_pick pick;
    for (int gone = 0; gone < 2; gone++)
        for (int d = 0; d < x->ndim; d++)
            if ((int)(mask >> d & 1) == gone)
                order[count++] = d;
    for (int d = 0; d < x->ndim; d++)
        dim[d] = x->dim[order[d]];
    c->x = *x;
    TRY(fl_memory(memory, x->count, fl_type_bytes(x->type)));
    c->x.data = *memory;
    TRY(fl_pick_new(&pick, x->ndim, dim));
    fl_strides(x, stride);
    for (int d = 0; d < x->ndim; d++)
        fl_pick_steps(&pick, d, 0, stride[order[d]]);
    fl_pick_copy(&pick, &c->x, x, NULL);
    fl_pick_free(&pick);
    return TENSOR_OK;
}

tensor_status fl_compute_reduce(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    struct call c = {.how = find_reduction(a->node->op), .x = *x, .y = a->out[0], .outer = 1, .n = 1, .inner = 1};
    unsigned mask;
    void *memory = NULL;
    int first = x->ndim, end = 0, gone = 0;
    if (!c.y || !c.y->count)
        return TENSOR_OK;
    TRY(read_axes(a, &mask));
    if (!mask && fl_operand(a, 1) && !a->in[1]->count) /* noop_with_empty_axes */
        return fl_compute_copy(a);
    c.is_integer = !fl_type_is_float(x->type) && c.how->integers;
    c.is_word = x->type == TENSOR_TYPE_U64;
    for (int d = 0; d < x->ndim; d++)
        if (mask >> d & 1) {
            first = d < first ? d : first;
            end = d + 1;
            gone++;
        }
    if (gone && end - first != gone) {
        TRY(order_dimensions(&c, x, mask, &memory));
        for (int d = 0; d < x->ndim; d++)
            *(mask >> d & 1 ? &c.n : &c.outer) *= x->dim[d];
    } else {
        for (int d = 0; d < x->ndim; d++)
            *(mask >> d & 1 ? &c.n : d < first ? &c.outer : &c.inner) *= x->dim[d];
    }
    reduce_all(&c);
    fl_free(memory);
    return TENSOR_OK;
}
