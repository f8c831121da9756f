/* plan.h - a network planned for inputs of given shapes: every shape known, constants folded, memory laid out, and the
 * remaining work a list of steps, most of which are one operation of the library. A plan serves the planner (plan.c),
 * which walks the nodes, and the operators' lower() (lower/), which add steps.
 *
 * Layouts. A tensor may store its dimensions in another order than the network names them: images lie as [N, H, W, C]
 * whatever the file says, a transposition only names them anew, and copies are made where an operation needs an order
 * that its operand does not have. layout[d] is the dimension of the value that is dimension d of the tensor.
 *
 * Bytes. Integers of 8 bits that tensors have (quantised values, and what QuantizeLinear makes of floats) are slots of
 * FMT_U8 that hold them as they are; the type of the value says whether they are int8 or uint8. The processor computes
 * with them, also where the program is on another device.
 *
 * Formats. Each node computes in the format that the program gives it. A result of a shared-exponent format has a
 * frozen exponent, which the program has for its value; steps within a node that need tensors of their own
 * (fl_plan_temporary) have exponents by node and number. */
#ifndef FL_PROGRAM_PLAN_H
#define FL_PROGRAM_PLAN_H

#include "program/network/network.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"

struct fl_planner;
struct fl_program;
struct fl_plan;

/* In a function that returns a status: a slot, or the failure of the call that was to give it. */
#define SLOT(name, call)                                                                                               \
    const int name = (call);                                                                                           \
    if (name < 0)                                                                                                      \
        return tensor_error_status();

/* --- what the planner knows of values ----------------------------------------------------------------------------- */

/* A value in a plan. Exactly one of these holds: its numbers are known (array.data), a tensor has them when the program
 * runs (slot >= 0), or an array of the host has them then (computed: integers that follow from floats). */
struct fl_known {
    struct fl_array array; /* type and shape; data where they are known, or an array that steps fill in */
    bool planned, computed;
    int slot;
    int layout[TENSOR_MAX_DIMS]; /* of the slot */
};

/* The value at an operand or a result; NULL: not given. */
const struct fl_known *fl_plan_in(const struct fl_planner *p, const struct fl_net_node *node, int operand);
/* The planned type and shape of result i, which shape() has set. */
const struct fl_array *fl_plan_out(const struct fl_planner *p, const struct fl_net_node *node, int result);
/* The numbers of an operand if they are known, NULL otherwise (or if it is not given). */
const struct fl_array *fl_plan_numbers(const struct fl_planner *p, const struct fl_net_node *node, int operand);
/* Whether an operand has floats in a tensor, or floats that are known. */
bool fl_plan_is_float(const struct fl_planner *p, const struct fl_net_node *node, int operand);

/* --- slots: tensors of a plan ------------------------------------------------------------------------------------- */

/* An operand in the format of the node (integers of 8 bits: FMT_U8) and in a layout (NULL: that of the network), at its
 * exponent; copies and conversions are planned where needed, once for each value, format and layout. Returns the slot,
 * -1 on failure. */
int fl_plan_operand(struct fl_planner *p, const struct fl_net_node *node, int operand, const int *layout);
/* The same for a value that need not be an operand of the node, such as a constant that lower() has made. */
int fl_plan_value(struct fl_planner *p, const struct fl_net_node *node, int value, const int *layout);
/* A constant of the node's own: numbers in float32 or float64, in row-major order, converted to the format of the node
 * with an exponent by its maximum. Prepared once for the program: key tells several of a node apart. */
int fl_plan_constant(struct fl_planner *p, const struct fl_net_node *node, int key, int ndim, const int64_t *dim,
                     const double *numbers);
/* A constant stored as numbers of FMT_F64. */
int fl_plan_numbers_constant(struct fl_planner *p, const struct fl_net_node *node, int key, tensor_format format,
                             int ndim, const int64_t *dim, const double *numbers);
/* The numbers of an array as doubles, in memory of the plan; NULL without memory. */
double *fl_plan_doubles(struct fl_planner *p, const struct fl_array *a);
/* The node as it is, but computed in another format: for the functions above. NULL without memory. */
const struct fl_net_node *fl_plan_in_format(struct fl_planner *p, const struct fl_net_node *node, tensor_format format);
/* The tensor of result i, in the node's format (integers of 8 bits: FMT_U8), stored in a layout (NULL: that of the
 * network). Its shape is that which shape() has set, in that order. */
int fl_plan_result(struct fl_planner *p, const struct fl_net_node *node, int result, const int *layout);
/* Result i is the numbers of a slot in that layout, without a copy: the slot, or a view of it. */
tensor_status fl_plan_result_is(struct fl_planner *p, const struct fl_net_node *node, int result, int slot,
                                const int *layout);
/* A tensor that lives within the node. */
int fl_plan_temporary(struct fl_planner *p, const struct fl_net_node *node, int ndim, const int64_t *dim);
/* A tensor of numbers (FMT_F64, FMT_I32, FMT_U8) that lives within the node. */
int fl_plan_temporary_numbers(struct fl_planner *p, const struct fl_net_node *node, tensor_format format, int ndim,
                              const int64_t *dim);
/* A slot in another shape; elements at strides (tensor_new_view, tensor_new_strided). */
int fl_plan_view(struct fl_planner *p, int slot, int ndim, const int64_t *dim);
int fl_plan_strided(struct fl_planner *p, int slot, int ndim, const int64_t *dim, const int64_t *stride,
                    int64_t offset);
/* Format, dimensions of a slot. */
tensor_format fl_plan_format(const struct fl_planner *p, const struct fl_net_node *node);
int fl_plan_shape(const struct fl_planner *p, int slot, int64_t dim[TENSOR_MAX_DIMS]);

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* The network, whose rounding quantised nodes have, and the program. */
const struct fl_network *fl_plan_network(const struct fl_planner *p);
struct fl_program *fl_plan_program(const struct fl_planner *p);
/* Elements of a tensor of FMT_U8, which are in memory of the host whatever the device of the program is; of FMT_FP32 if
 * fl_plan_on_host says so. */
void *fl_plan_data(const tensor *t);
bool fl_plan_on_host(const tensor *t);
/* y, of FMT_U8: for each index, the byte of x at the sum of index and stride in each dimension. with: the strides. */
struct fl_byte_strides {
    int ndim;
    int64_t dim[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS];
};
tensor_status fl_plan_run_bytes(tensor *const *t, const void *with);

/* A layer of int8/int8.h, packed once for the program and anew where the instruction set in force has changed. */
struct fl_program_layer;
/* The layer of a node, which is packed now if the program does not have it. weights_order: how to permute the weights
 * of spec, which have these dimensions, before they are packed; NULL: not at all. */
tensor_status fl_plan_layer(struct fl_planner *p, const struct fl_net_node *node, const struct fl_int8_layer_spec *spec,
                            const struct fl_array *weights, const int *weights_order, struct fl_program_layer **layer);
tensor_status fl_program_layer_get(struct fl_program_layer *layer, const struct fl_int8_layer **packed);

/* --- steps -------------------------------------------------------------------------------------------------------- */

enum { FL_STEP_SLOTS = 8 };

/* One call of the library. t[i] is the tensor of slot i, NULL for a slot of -1; with is what lower() gave. */
typedef tensor_status fl_step_run(tensor *const *t, const void *with);

/* Adds a step. The first `written` slots are written, the others read. with: `bytes` bytes are copied (0: NULL). */
tensor_status fl_plan_step(struct fl_planner *p, const struct fl_net_node *node, fl_step_run *run, int written,
                           int count, const int *slots, const void *with, size_t bytes);

#endif
