/* products.c - MatMul and Gemm as matrix products of the library. */
#include "program/arrays/arrays.h"
#include "program/lower/lower.h"
#include "program/arrays/product_shapes.h"
#include "core/base/fail.h"
#include <string.h>

/* --- steps -------------------------------------------------------------------------------------------------------- */

struct matmul {
    bool relu;
};

static tensor_status run_matmul(tensor *const *t, const void *with) {
    const tensor_epilogue epilogue = {.bias = t[3], .relu = ((const struct matmul *)with)->relu};
    return tensor_matmul_fused(t[0], t[1], t[2], &epilogue);
}

static tensor_status run_matmul_batched(tensor *const *t, const void *with) {
    (void)with;
    return tensor_matmul_batched(t[0], t[1], t[2]);
}

static tensor_status run_contiguous(tensor *const *t, const void *with) {
    (void)with;
    return tensor_contiguous(t[0], t[1]);
}

/* An operand [..., R, C] with the leading dimensions of the result, one for each matrix. */
static int batch_operand(struct fl_planner *p, const struct fl_net_node *node, int operand, const struct fl_product *m,
                         const struct fl_array *as) {
    const int slot = fl_plan_operand(p, node, operand, NULL), lead = as->ndim - 2;
    int64_t dim[FL_ARRAY_DIMS + 2], stride[FL_ARRAY_DIMS + 2], step = 1, matrices = 1, own = 1;
    if (slot < 0)
        return -1;
    const int ndim = m->batch_ndim + 2;
    for (int d = 0; d < ndim; d++) {
        const int from = as->ndim - 1 - d;
        dim[ndim - 1 - d] = d < 2 ? as->dim[from] : m->batch[m->batch_ndim + 1 - d];
        stride[ndim - 1 - d] = from < 0 || (d >= 2 && as->dim[from] == 1) ? 0 : step;
        step *= from < 0 ? 1 : as->dim[from];
    }
    for (int d = 0; d < m->batch_ndim; d++)
        matrices *= m->batch[d];
    for (int d = 0; d < lead; d++)
        own *= as->dim[d];
    const int64_t rows = as->dim[as->ndim - 2], columns = as->dim[as->ndim - 1];
    int whole = slot;
    if (own != matrices) {
        if (ndim > TENSOR_MAX_DIMS) {
            fl_fail(TENSOR_E_UNSUPPORTED, "a product of %d dimensions, expected at most %d", ndim, TENSOR_MAX_DIMS);
            return -1;
        }
        const int view = fl_plan_strided(p, slot, ndim, dim, stride, 0);
        whole = view < 0 ? -1 : fl_plan_temporary(p, node, ndim, dim);
        const int slots[] = {whole, view};
        if (whole < 0 || fl_plan_step(p, node, run_contiguous, 1, 2, slots, NULL, 0))
            return -1;
    }
    return fl_plan_view(p, whole, 3, (const int64_t[]){matrices, rows, columns});
}

/* A right operand that is one matrix for all: the left one's leading dimensions are rows. */
tensor_status fl_lower_matmul(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct fl_product m;
    if (!fl_plan_is_float(p, node, 0) || !fl_plan_is_float(p, node, 1))
        return TENSOR_OK;
    TRY(fl_product_read(&m, &fl_plan_in(p, node, 0)->array, &fl_plan_in(p, node, 1)->array));
    *done = true;
    int64_t rows = m.rows, matrices = 1;
    bool single = true;
    for (int d = 0; d < m.a.ndim - 2; d++)
        rows *= m.a.dim[d];
    for (int d = 0; d < m.b.ndim - 2; d++)
        single &= m.b.dim[d] == 1;
    for (int d = 0; d < m.batch_ndim; d++)
        matrices *= m.batch[d];
    if (single) {
        SLOT(a, fl_plan_operand(p, node, 0, NULL));
        SLOT(b, fl_plan_operand(p, node, 1, NULL));
        SLOT(y, fl_plan_result(p, node, 0, NULL));
        SLOT(left, fl_plan_view(p, a, 2, (const int64_t[]){rows, m.inner}));
        SLOT(right, fl_plan_view(p, b, 2, (const int64_t[]){m.inner, m.columns}));
        SLOT(result, fl_plan_view(p, y, 2, (const int64_t[]){rows, m.columns}));
        const struct matmul how = {.relu = false};
        const int slots[] = {result, left, right, -1};
        return fl_plan_step(p, node, run_matmul, 1, 4, slots, &how, sizeof how);
    }
    SLOT(left, batch_operand(p, node, 0, &m, &m.a));
    SLOT(right, batch_operand(p, node, 1, &m, &m.b));
    SLOT(y, fl_plan_result(p, node, 0, NULL));
    SLOT(result, fl_plan_view(p, y, 3, (const int64_t[]){matrices, m.rows, m.columns}));
    const int slots[] = {result, left, right};
    return fl_plan_step(p, node, run_matmul_batched, 1, 3, slots, NULL, 0);
}

struct scale {
    float alpha;
};

static tensor_status run_scale(tensor *const *t, const void *with) {
    return tensor_scale(t[0], t[1], ((const struct scale *)with)->alpha);
}

static tensor_status run_broadcast_add(tensor *const *t, const void *with) {
    (void)with;
    return tensor_broadcast_add(t[0], t[1], t[2]);
}

static int scaled(struct fl_planner *p, const struct fl_net_node *node, int slot, float by) {
    int64_t dim[TENSOR_MAX_DIMS];
    if (slot < 0 || by == 1)
        return slot;
    const int ndim = fl_plan_shape(p, slot, dim), made = fl_plan_temporary(p, node, ndim, dim);
    const struct scale how = {by};
    const int slots[] = {made, slot};
    return made < 0 || fl_plan_step(p, node, run_scale, 1, 2, slots, &how, sizeof how) ? -1 : made;
}

tensor_status fl_lower_gemm(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    static const int turned[] = {1, 0};
    const struct fl_known *const c = fl_plan_in(p, node, 2);
    struct fl_gemm g;
    struct fl_activation_of activation;
    if (!fl_plan_is_float(p, node, 0) || !fl_plan_is_float(p, node, 1) || (c && !fl_plan_is_float(p, node, 2)))
        return TENSOR_OK;
    TRY(fl_gemm_read(&g, node, &fl_plan_in(p, node, 0)->array, &fl_plan_in(p, node, 1)->array, c ? &c->array : NULL));
    TRY(fl_activation_read(node, &activation));
    *done = true;
    const bool added = c && g.beta != 0;
    const bool bias = added && g.alpha == 1 && g.beta == 1 && c->array.count == g.columns &&
                      c->array.dim[c->array.ndim - 1] == g.columns;
    SLOT(a, fl_plan_operand(p, node, 0, g.turn_a ? turned : NULL));
    SLOT(b, fl_plan_operand(p, node, 1, g.turn_b ? turned : NULL));
    int sum = -1;
    if (added) {
        sum = fl_plan_operand(p, node, 2, NULL);
        if (sum >= 0 && bias)
            sum = fl_plan_view(p, sum, 1, (const int64_t[]){g.columns});
        if (sum < 0)
            return tensor_error_status();
    }
    const int64_t shape[] = {g.rows, g.columns};
    if (!added || bias) {
        struct fl_activation_of left = activation;
        const bool plain = g.alpha == 1;
        SLOT(product, plain ? fl_activation_begin(p, node, &activation, NULL) : fl_plan_temporary(p, node, 2, shape));
        const struct matmul how = {.relu = plain && activation.kind == FL_RELU};
        const int slots[] = {product, a, b, sum};
        TRY(fl_plan_step(p, node, run_matmul, 1, 4, slots, &how, sizeof how));
        if (plain)
            return fl_activation_end(p, node, &left, product, NULL);
        SLOT(y, fl_plan_result(p, node, 0, NULL));
        const struct scale by = {g.alpha};
        const int scaling[] = {y, product};
        return fl_plan_step(p, node, run_scale, 1, 2, scaling, &by, sizeof by);
    }
    SLOT(product, fl_plan_temporary(p, node, 2, shape));
    const struct matmul how = {.relu = false};
    const int slots[] = {product, a, b, -1};
    TRY(fl_plan_step(p, node, run_matmul, 1, 4, slots, &how, sizeof how));
    SLOT(left, scaled(p, node, product, g.alpha));
    SLOT(right, scaled(p, node, sum, g.beta));
    SLOT(y, fl_plan_result(p, node, 0, NULL));
    const int adding[] = {y, left, right};
    return fl_plan_step(p, node, run_broadcast_add, 1, 3, adding, NULL, 0);
}
