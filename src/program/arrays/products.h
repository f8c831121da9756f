/* products.h - matrix products on arrays. */
#ifndef FL_PROGRAM_PRODUCTS_H
#define FL_PROGRAM_PRODUCTS_H

#include "program/arrays/arrays.h"

/* The product of a [..., R, K] and b [..., K, C] as MatMul defines it, in double, in the order of k: of integers of up
 * to 16 bits it is exact. x and y have the shapes of a and b, to the product's count of elements. Threads share the
 * work. */
tensor_status fl_multiply(const struct fl_array *a, const struct fl_array *b, const struct fl_array *y, const double *x,
                          const double *w, double *product);
/* R, C: one where an operand is a vector. */
int64_t fl_rows(const struct fl_array *a);
int64_t fl_columns(const struct fl_array *b);

#endif
