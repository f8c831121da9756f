/* product_shapes.c - see product_shapes.h; the shapes of MatMul and Gemm. */
#include "program/arrays/product_shapes.h"
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include <string.h>

static struct fl_array as_matrix(const struct fl_array *v, bool left) {
    struct fl_array m = *v;
    if (v->ndim != 1)
        return m;
    m.ndim = 2;
    m.dim[0] = left ? 1 : v->dim[0];
    m.dim[1] = left ? v->dim[0] : 1;
    return m;
}

tensor_status fl_product_read(struct fl_product *m, const struct fl_array *a, const struct fl_array *b) {
    if (!a->ndim || !b->ndim)
        return fl_fail(TENSOR_E_SHAPE, "a product of a scalar, expected at least one dimension");
    *m = (struct fl_product){
        .a = as_matrix(a, true), .b = as_matrix(b, false), .row = a->ndim == 1, .column = b->ndim == 1};
    struct fl_array left = m->a, right = m->b;
    m->rows = left.dim[left.ndim - 2];
    m->inner = left.dim[left.ndim - 1];
    m->columns = right.dim[right.ndim - 1];
    if (right.dim[right.ndim - 2] != m->inner)
        return fl_fail(TENSOR_E_SHAPE, "%lld columns times %lld rows, expected the same number", (long long)m->inner,
                       (long long)right.dim[right.ndim - 2]);
    left.ndim -= 2;
    right.ndim -= 2;
    return fl_broadcast_shape(&m->batch_ndim, m->batch, &left, &right);
}

tensor_status fl_shape_matmul(const struct fl_arrays *a) {
    struct fl_product m;
    int64_t dim[FL_ARRAY_DIMS + 2];
    TRY(fl_product_read(&m, a->in[0], a->in[1]));
    int ndim = m.batch_ndim;
    memcpy(dim, m.batch, sizeof m.batch);
    if (!m.row)
        dim[ndim++] = m.rows;
    if (!m.column)
        dim[ndim++] = m.columns;
    return fl_shape_set(a->out[0], a->in[0]->type, ndim, dim);
}

tensor_status fl_gemm_read(struct fl_gemm *g, const struct fl_net_node *node, const struct fl_array *a,
                           const struct fl_array *b, const struct fl_array *c) {
    *g = (struct fl_gemm){.turn_a = fl_net_int(node, "transA", 0) != 0,
                          .turn_b = fl_net_int(node, "transB", 0) != 0,
                          .alpha = fl_net_float(node, "alpha", 1),
                          .beta = fl_net_float(node, "beta", 1)};
    if (a->ndim != 2 || b->ndim != 2)
        return fl_fail(TENSOR_E_SHAPE, "operands of %d and %d dimensions, expected matrices", a->ndim, b->ndim);
    g->rows = a->dim[g->turn_a];
    g->inner = a->dim[!g->turn_a];
    g->columns = b->dim[!g->turn_b];
    if (b->dim[g->turn_b] != g->inner)
        return fl_fail(TENSOR_E_SHAPE, "%lld columns times %lld rows, expected the same number", (long long)g->inner,
                       (long long)b->dim[g->turn_b]);
    if (!c)
        return TENSOR_OK;
    const struct fl_array y = {.ndim = 2, .dim = {g->rows, g->columns}};
    int64_t dim[FL_ARRAY_DIMS];
    int ndim;
    TRY(fl_broadcast_shape(&ndim, dim, &y, c));
    if (ndim != 2 || dim[0] != g->rows || dim[1] != g->columns)
        return fl_fail(TENSOR_E_SHAPE, "C does not fit the product of %lld x %lld", (long long)g->rows,
                       (long long)g->columns);
    return TENSOR_OK;
}

tensor_status fl_shape_gemm(const struct fl_arrays *a) {
    struct fl_gemm g;
    TRY(fl_gemm_read(&g, a->node, a->in[0], a->in[1], a->in_count > 2 ? a->in[2] : NULL));
    return fl_shape_set(a->out[0], a->in[0]->type, 2, (const int64_t[]){g.rows, g.columns});
}
