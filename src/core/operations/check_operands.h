/* check_operands.h - the checks that operations make before anything is computed. A failure names the operation, the
 * operand and what was expected. */
#ifndef FL_CHECK_OPERANDS_H
#define FL_CHECK_OPERANDS_H

#include "core/base/fail.h"
#include "core/queue/queue.h"
#include <math.h>
#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        tensor_status try_status = (call);                                                                             \
        if (try_status)                                                                                                \
            return try_status;                                                                                         \
    } while (0)

struct operand {
    const char *name;
    const tensor *t;
};

/* Not NULL, one format, apart in memory from operands[0]. operands[0] is the output (or the first input of a
 * reduction). */
static inline tensor_status check_operands(const char *op, const struct operand *operands, int n) {
    for (int i = 0; i < n; i++) {
        if (!operands[i].t)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", op, operands[i].name);
        if (operands[i].t->format != operands[0].t->format)
            return fl_fail(TENSOR_E_FORMAT, "%s: %s is %s, %s is %s; tensor_convert is the bridge", op,
                           operands[0].name, operands[0].t->format->name, operands[i].name,
                           operands[i].t->format->name);
        TRY(fl_check_apart(op, operands[0].name, operands[0].t, operands[i].name, operands[i].t));
        TRY(fl_need_elements(op, operands[i].t));
    }
    return fl_need_arithmetic(op, operands[0].name, operands[0].t);
}

static inline tensor_status check_distinct(const char *op, const struct operand *operands, int n) {
    for (int i = 1; i < n; i++)
        if (operands[i].t->storage == operands[0].t->storage)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s and %s are the same tensor, the output must be another", op,
                           operands[0].name, operands[i].name);
    return TENSOR_OK;
}

static inline tensor_status check_same_shapes(const char *op, const struct operand *operands, int n) {
    char ta[TENSOR_TEXT], tb[TENSOR_TEXT];
    const tensor *a = operands[0].t;
    for (int i = 1; i < n; i++) {
        const tensor *b = operands[i].t;
        if (a->ndim != b->ndim || memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]))
            return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, %s is %s", op, operands[0].name, fl_shape_text(a, ta),
                           operands[i].name, fl_shape_text(b, tb));
    }
    return TENSOR_OK;
}

static inline tensor_status check_ndim(const char *op, struct operand o, int ndim, const char *layout) {
    char text[TENSOR_TEXT];
    if (o.t->ndim != ndim)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected %s", op, o.name, fl_shape_text(o.t, text), layout);
    return TENSOR_OK;
}

static inline tensor_status check_scalar(const char *op, const char *name, float value) {
    if (!isfinite(value))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %g, expected a finite number", op, name, (double)value);
    return TENSOR_OK;
}

static inline tensor_status check_shape_is(const char *op, struct operand o, int ndim, const int64_t *shape) {
    if (o.t->ndim == ndim && !memcmp(o.t->shape, shape, (size_t)ndim * sizeof shape[0]))
        return TENSOR_OK;
    tensor expected = {.ndim = ndim};
    memcpy(expected.shape, shape, (size_t)ndim * sizeof shape[0]);
    char ta[TENSOR_TEXT], tb[TENSOR_TEXT];
    return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected %s", op, o.name, fl_shape_text(o.t, ta),
                   fl_shape_text(&expected, tb));
}

#define OPERANDS(...)                                                                                                  \
    (const struct operand[]){__VA_ARGS__}, (int)(sizeof((const struct operand[]){__VA_ARGS__}) / sizeof(struct operand))

static inline int64_t last_dim(const tensor *t) {
    return t->shape[t->ndim - 1];
}

#endif
