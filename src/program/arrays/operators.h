/* operators.h - what a program can compute: an entry for each operator of ONNX's vocabulary (network.h), in up to three
 * forms. shape() says type and shape of the results from those of the operands. compute() fills them in, on arrays of
 * the host: it folds constants, computes integers and booleans, and computes numbers for which the library has no
 * operation. lower() (plan.h) makes operations of the library out of a node; it comes first where the operands are
 * tensors.
 *
 * Numbers: compute() sees floats as float64 while a program runs, whatever the format of the tensors is (each is
 * exactly a double), and in their own type while constants are folded. It computes them in double; each result is
 * rounded once when it is stored. Integers are computed as int64 (uint64 as uint64) and wrap to their type as in two's
 * complement. One element follows from its operands alone, in a fixed order of operations, so that bits depend neither
 * on threads nor on instruction sets; of libm, only functions that are exact by IEEE 754 are used (sqrt, fma, floor,
 * ...); exp, log, tanh, erf, ... come from core/arithmetic and core/real.
 *
 * Source: github.com/onnx/onnx, docs/Operators.md. */
#ifndef FL_PROGRAM_OPERATORS_H
#define FL_PROGRAM_OPERATORS_H

#include "program/network/network.h"

struct fl_planner;

/* The operands and results of one node as arrays. in[i] is NULL for an optional operand that is not given, and has data
 * NULL where only its type and shape are known (never so in compute(); empty arrays have no data either: ask count).
 * out[i] is NULL for a result that nobody reads. */
struct fl_arrays {
    const struct fl_net_node *node;
    int in_count, out_count;
    const struct fl_array *const *in;
    struct fl_array *const *out;
};

struct fl_operator {
    const char *op;
    /* The least and largest number of operands and results; -1: any. */
    int in_least, in_most, out_least, out_most;
    /* Sets type, ndim, dim and count of each result. A failure is TENSOR_E_SHAPE, TENSOR_E_ARGUMENT or TENSOR_E_DATA
     * with the value and what was expected; the caller puts the node's name before it. TENSOR_E_UNSUPPORTED where the
     * shape follows from numbers that are known only when the program runs. */
    tensor_status (*shape)(const struct fl_arrays *a);
    /* Fills in the data of each result, which has memory. NULL: lower() alone. */
    tensor_status (*compute)(const struct fl_arrays *a);
    /* Makes steps of the library's operations (lower/lower.h). NULL: compute() alone. Sets *done to false, with nothing
     * planned, where these operands are left to compute(). */
    tensor_status (*lower)(struct fl_planner *p, const struct fl_net_node *node, bool *done);
    /* Makes steps of quantised nodes (lower/quantised.h), whose operands and results are bytes; of QuantizeLinear and
     * DequantizeLinear, where floats become bytes, and back. NULL: there is no kernel of 8-bit integers. shape() sees
     * quantised operands as float32. */
    tensor_status (*lower_int8)(struct fl_planner *p, const struct fl_net_node *node, bool *done);
};

/* --- activations (arrays/activation.c) ---------------------------------------------------------------------------- */

/* An activation that an operator applies to its result: of a TensorFlow Lite node (attribute "flexlab_activation"), or
 * of a pass that joined two nodes. The library's epilogue has relu; the others are a step after it. */
/* FL_RELU_AFTER: a relu that the operation at hand does not have. */
enum fl_activation { FL_NO_ACTIVATION, FL_RELU, FL_RELU_AFTER, FL_CLIP };
struct fl_activation_of {
    enum fl_activation kind;
    float low, high; /* of FL_CLIP */
};
tensor_status fl_activation_read(const struct fl_net_node *node, struct fl_activation_of *a);
/* Applies it to the results of compute(). */
tensor_status fl_activation_apply(const struct fl_net_node *node, struct fl_array *y);

/* --- for shape() and compute() (arrays/arrays.c) ------------------------------------------------------------------ */

/* Type and shape of a result; count follows. TENSOR_E_SHAPE for more than FL_ARRAY_DIMS dimensions, or sizes that are
 * negative or too large. A result that nobody reads (NULL) is ignored. */
tensor_status fl_shape_set(struct fl_array *out, tensor_type type, int ndim, const int64_t *dim);
/* Whether a type is one of floats; all others are integers, and bool. */
bool fl_type_is_float(tensor_type type);
/* Element i as a double, or as an integer (floats toward zero; what int64 cannot hold is its least or largest number).
 */
double fl_array_number(const struct fl_array *a, int64_t i);
int64_t fl_array_integer(const struct fl_array *a, int64_t i);
/* Stores element i: floats rounded once to nearest even, integers wrapped. */
void fl_array_put_number(struct fl_array *a, int64_t i, double value);
void fl_array_put_integer(struct fl_array *a, int64_t i, int64_t value);
/* An axis of an operand of that many dimensions, -ndim ... ndim - 1, as 0 ... ndim - 1. */
tensor_status fl_axis(int *axis, int64_t given, int ndim);
/* The shape that two shapes are repeated to (numpy's rule). */
tensor_status fl_broadcast_shape(int *ndim, int64_t *dim, const struct fl_array *a, const struct fl_array *b);
/* Fails where an operand's numbers are not known yet: the shape of the result depends on them. */
tensor_status fl_known(const struct fl_array *a, const char *what);

#endif
