/* arrays.h - shape() and compute() of operators (operators.h), a file for each kind: what arrays.c has serves them all.
 */
#ifndef FL_PROGRAM_ARRAYS_H
#define FL_PROGRAM_ARRAYS_H

#include "program/arrays/operators.h"

typedef tensor_status fl_array_function(const struct fl_arrays *a);

/* --- arrays.c ----------------------------------------------------------------------------------------------------- */

/* Results of the first operand's type and shape; the first operand's elements, one by one. */
fl_array_function fl_shape_same, fl_compute_copy;

/* Elements from, from + stride, ... as doubles or integers, and back. */
enum { FL_BLOCK = 512 }; /* how many the callers take at a time */
void fl_load_numbers(double *to, const struct fl_array *a, int64_t from, int64_t stride, int64_t n);
void fl_store_numbers(struct fl_array *a, int64_t at, int64_t stride, const double *from, int64_t n);
void fl_load_integers(int64_t *to, const struct fl_array *a, int64_t from, int64_t stride, int64_t n);
void fl_store_integers(struct fl_array *a, int64_t at, int64_t stride, const int64_t *from, int64_t n);
/* Copies n elements that follow each other. Types differ where a constant meets what the program computes. */
void fl_copy_elements(struct fl_array *y, int64_t at, const struct fl_array *x, int64_t from, int64_t n);

/* An operand, a result; NULL: not given. */
const struct fl_array *fl_operand(const struct fl_arrays *a, int operand);
struct fl_array *fl_result(const struct fl_arrays *a, int result);
/* Fail for an operand of another type, or other than `count` elements in one dimension; one that is not given is
 * right. fl_want_type takes any float for any other. */
tensor_status fl_want_float(const struct fl_arrays *a, int operand);
tensor_status fl_want_type(const struct fl_array *x, tensor_type type, const char *what);
tensor_status fl_want_integer(const struct fl_array *x, const char *what);
tensor_status fl_want_numbers(const struct fl_array *x, int64_t count, const char *what);
/* Elements between neighbours along each dimension. */
void fl_strides(const struct fl_array *x, int64_t *stride);
/* Memory for `count` things, written to *pointer; for fl_free. */
tensor_status fl_memory(void *pointer, int64_t count, size_t size);

/* --- picks.c: results whose elements are elements of an operand ----------------------------------------------------
 */

enum { FL_PICK_DIMS = 2 * FL_ARRAY_DIMS };
/* Element [i, j, ...] of the result is element from[0][i] + from[1][j] + ... of the operand, or the fill value where
 * one of these is negative. */
struct fl_pick {
    int ndim;
    int64_t dim[FL_PICK_DIMS];
    int64_t *from[FL_PICK_DIMS]; /* fl_pick_new has made them */
    void *memory;
};
/* Tables for dimensions of these sizes; fl_pick_free frees them. */
tensor_status fl_pick_new(struct fl_pick *p, int ndim, const int64_t *dim);
void fl_pick_free(struct fl_pick *p);
/* Steps of `stride` from `start` on, in the table of dimension d. */
void fl_pick_steps(struct fl_pick *p, int d, int64_t start, int64_t stride);
/* fill: of one element; NULL where no index is negative. */
void fl_pick_copy(const struct fl_pick *p, struct fl_array *y, const struct fl_array *x, const struct fl_array *fill);

/* --- walk.c: element by element, operands repeated to one shape ----------------------------------------------------
 */

enum { FL_WALK_OPERANDS = 64 };
/* At most FL_BLOCK elements: `at` is the first of the result, from[i] and stride[i] those of operand i. */
typedef void fl_walk_block(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride);
/* Threads share the work. */
tensor_status fl_walk(const struct fl_array *y, int count, const struct fl_array *const *in, fl_walk_block *block,
                      void *context);

/* --- the operators ------------------------------------------------------------------------------------------------ */

/* elements.c: of several operands, repeated to one shape */
fl_array_function fl_shape_broadcast, fl_shape_compare, fl_shape_logic, fl_shape_where, fl_shape_prelu,
    fl_compute_elements, fl_compute_where;
/* maps.c: functions of one operand */
fl_array_function fl_shape_map, fl_compute_map, fl_shape_test, fl_shape_clip, fl_compute_clip, fl_shape_cast,
    fl_shape_cast_like, fl_shape_dropout, fl_compute_dropout;
/* maps.c: the type that ONNX calls by that number. */
tensor_status fl_type_of_onnx(tensor_type *type, int64_t number);
/* orders.c: the same elements in other shapes and orders */
fl_array_function fl_shape_reshape, fl_shape_flatten, fl_shape_squeeze, fl_shape_unsqueeze, fl_shape_transpose,
    fl_compute_transpose, fl_shape_concat, fl_compute_concat, fl_shape_split, fl_compute_split, fl_shape_depth_to_space,
    fl_compute_depth_to_space, fl_shape_space_to_depth, fl_compute_space_to_depth;
/* extents.c: parts and repetitions */
fl_array_function fl_shape_slice, fl_compute_slice, fl_shape_expand, fl_compute_expand, fl_shape_tile, fl_compute_tile,
    fl_shape_pad, fl_compute_pad, fl_compute_trilu, fl_shape_trilu, fl_shape_reverse_sequence,
    fl_compute_reverse_sequence;
/* sources.c: of shapes, and arrays made of a few numbers */
fl_array_function fl_shape_shape, fl_compute_shape, fl_shape_size, fl_compute_size, fl_shape_constant,
    fl_compute_constant, fl_shape_constant_of_shape, fl_compute_constant_of_shape, fl_shape_range, fl_compute_range,
    fl_shape_eye_like, fl_compute_eye_like, fl_shape_one_hot, fl_compute_one_hot;
/* indices.c: elements at places that another operand names */
fl_array_function fl_shape_gather, fl_compute_gather, fl_shape_gather_elements, fl_compute_gather_elements,
    fl_shape_gather_nd, fl_compute_gather_nd, fl_shape_scatter_elements, fl_compute_scatter_elements,
    fl_shape_scatter_nd, fl_compute_scatter_nd, fl_shape_nonzero, fl_compute_nonzero, fl_shape_compress,
    fl_compute_compress;
/* axes.c: along one dimension */
fl_array_function fl_shape_softmax, fl_compute_softmax, fl_shape_cumsum, fl_compute_cumsum, fl_shape_arg,
    fl_compute_arg, fl_shape_top_k, fl_compute_top_k;
/* reductions.c: over some dimensions */
fl_array_function fl_shape_reduce, fl_compute_reduce;
/* windows.c, convolutions.c, pools.c */
fl_array_function fl_shape_conv, fl_compute_conv, fl_shape_conv_transpose, fl_compute_conv_transpose, fl_shape_pool,
    fl_compute_max_pool, fl_compute_average_pool, fl_compute_lp_pool, fl_shape_global_pool, fl_compute_global_pool;
/* products.c; the shapes are those of lower/products.c */
fl_array_function fl_shape_matmul, fl_shape_gemm, fl_compute_matmul, fl_compute_gemm;
/* quantised.c */
fl_array_function fl_shape_quantise, fl_compute_quantise, fl_shape_dequantise, fl_compute_dequantise,
    fl_shape_dynamic_quantise, fl_compute_dynamic_quantise, fl_shape_integer_matmul, fl_compute_integer_matmul,
    fl_shape_integer_conv, fl_compute_integer_conv;
/* norms.c */
fl_array_function fl_shape_normalise, fl_compute_normalise, fl_compute_batch_normalization, fl_shape_lrn,
    fl_compute_lrn, fl_shape_mean_variance, fl_compute_mean_variance;
/* recurrent.c */
fl_array_function fl_shape_recurrent, fl_compute_recurrent;
/* einsum.c, boxes.c, grids.c */
fl_array_function fl_shape_einsum, fl_compute_einsum, fl_shape_suppress, fl_compute_suppress, fl_shape_grid_sample,
    fl_compute_grid_sample;
/* losses.c, unique.c */
fl_array_function fl_shape_loss, fl_compute_loss, fl_shape_unique, fl_compute_unique;
/* blocks.c */
fl_array_function fl_shape_center, fl_compute_center, fl_shape_columns, fl_compute_columns, fl_shape_unpool,
    fl_compute_unpool;
/* resize.c */
fl_array_function fl_shape_resize, fl_compute_resize;

#endif
