/* losses.c - NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss. */
#include "program/arrays/arrays.h"
#include "program/arrays/functions.h"
#include "core/base/fail.h"
#include <string.h>

enum reduction { MEAN, SUM, NONE };

/* Scores [N, C, ...] and classes [N, ...]. */
struct loss {
    const struct fl_array *x, *classes, *weights;
    enum reduction reduction;
    int64_t n, inner; /* C, elements from class to class */
    bool ignores;
    int64_t ignored;
    bool is_softmax;
};

static tensor_status read_loss(struct loss *l, const struct fl_arrays *a) {
    const struct fl_net_attribute *const ignored = fl_net_find(a->node, "ignore_index");
    const char *const reduction = fl_net_string(a->node, "reduction", "mean");
    const struct fl_array *const x = a->in[0], *const classes = a->in[1];
    TRY(fl_want_float(a, 0));
    TRY(fl_want_integer(classes, "the classes"));
    *l = (struct loss){.x = x, .classes = classes, .weights = fl_operand(a, 2), .inner = 1};
    l->is_softmax = a->node->op[0] == 'S';
    l->reduction = !strcmp(reduction, "sum") ? SUM : !strcmp(reduction, "none") ? NONE : MEAN;
    if (l->reduction == MEAN && strcmp(reduction, "mean") != 0)
        return fl_fail(TENSOR_E_DATA, "reduction \"%s\", expected mean, sum or none", reduction);
    if (x->ndim < 2 || classes->ndim != x->ndim - 1 || classes->dim[0] != x->dim[0])
        return fl_fail(TENSOR_E_SHAPE, "scores of %d dimensions and classes of %d, expected [N, C, ...] and [N, ...]",
                       x->ndim, classes->ndim);
    for (int d = 2; d < x->ndim; d++) {
        l->inner *= x->dim[d];
        if (classes->dim[d - 1] != x->dim[d])
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of the classes is %lld, expected %lld", d - 1,
                           (long long)classes->dim[d - 1], (long long)x->dim[d]);
    }
    l->n = x->dim[1];
    TRY(fl_want_numbers(l->weights, l->n, "the weights"));
    l->ignores = ignored != NULL;
    l->ignored = ignored ? ignored->i : 0;
    return TENSOR_OK;
}

tensor_status fl_shape_loss(const struct fl_arrays *a) {
    struct loss l;
    TRY(read_loss(&l, a));
    TRY(fl_shape_set(fl_result(a, 1), l.x->type, l.x->ndim, l.x->dim));
    return fl_shape_set(a->out[0], l.x->type, l.reduction == NONE ? l.classes->ndim : 0, l.classes->dim);
}

/* The logarithm of the sum that softmax divides by. */
static double log_sum(const struct loss *l, int64_t first) {
    double most = -HUGE_VAL, sum = 0;
    for (int64_t c = 0; c < l->n; c++) {
        const double x = fl_array_number(l->x, first + c * l->inner);
        most = x > most || x != x ? x : most;
    }
    for (int64_t c = 0; c < l->n; c++)
        sum += fl_exp(fl_array_number(l->x, first + c * l->inner) - most);
    return most + fl_log(sum);
}

tensor_status fl_compute_loss(const struct fl_arrays *a) {
    struct fl_array *const y = a->out[0], *const logarithms = fl_result(a, 1);
    double total = 0, weights = 0;
    struct loss l;
    TRY(read_loss(&l, a));
    for (int64_t i = 0; i < l.classes->count; i++) {
        const int64_t class = fl_array_integer(l.classes, i), first = i / l.inner * l.n * l.inner + i % l.inner;
        const bool counts = !l.ignores || class != l.ignored;
        if (counts && (class < 0 || class >= l.n))
            return fl_fail(TENSOR_E_DATA, "class %lld at %lld, expected 0 to %lld", (long long)class, (long long)i,
                           (long long)l.n - 1);
        const double sum = l.is_softmax ? log_sum(&l, first) : 0;
        const double weight = !counts ? 0 : l.weights ? fl_array_number(l.weights, class) : 1;
        const double loss = counts ? weight * (sum - fl_array_number(l.x, first + class * l.inner)) : 0;
        for (int64_t c = 0; logarithms && c < l.n; c++)
            fl_array_put_number(logarithms, first + c * l.inner, fl_array_number(l.x, first + c * l.inner) - sum);
        if (y && l.reduction == NONE)
            fl_array_put_number(y, i, loss);
        total += loss;
        weights += weight;
    }
    if (y && l.reduction != NONE)
        fl_array_put_number(y, 0, l.reduction == MEAN ? total / weights : total);
    return TENSOR_OK;
}
