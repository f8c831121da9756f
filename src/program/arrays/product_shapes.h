/* product_shapes.h - the shapes of matrix products, for those that compute them. */
#ifndef FL_PROGRAM_PRODUCT_SHAPES_H
#define FL_PROGRAM_PRODUCT_SHAPES_H

#include "program/arrays/operators.h"

/* Shapes of a matrix product as matrices: a vector on the left is a row, on the right a column, whose dimension the
 * result does not have. */
struct fl_product {
    int64_t rows, inner, columns;
    int batch_ndim; /* leading dimensions of the result */
    int64_t batch[FL_ARRAY_DIMS];
    struct fl_array a, b; /* as matrices */
    bool row, column;     /* which was added */
};
/* TENSOR_E_SHAPE where the operands do not fit. */
tensor_status fl_product_read(struct fl_product *m, const struct fl_array *a, const struct fl_array *b);

/* Gemm: y = alpha a b + beta c. */
struct fl_gemm {
    bool turn_a, turn_b;
    int64_t rows, inner, columns;
    float alpha, beta;
};
/* c NULL: not given. TENSOR_E_SHAPE where the operands do not fit. */
tensor_status fl_gemm_read(struct fl_gemm *g, const struct fl_net_node *node, const struct fl_array *a,
                           const struct fl_array *b, const struct fl_array *c);

#endif
