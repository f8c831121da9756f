/* elementwise.c - the elementwise operations as objects, made from ops.def. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/reference/ref.h"
#include "flexlab/tensor_blocks.h"
#include <stddef.h>

#define INPUT(name, i)                                                                                                 \
    { name, "e*", FL_IN_PLACE, FL_CLASS_CALL, FL_AT(in[i]), 0, NULL }
#define OUTPUT                                                                                                         \
    { "y", "e*", 0, FL_CLASS_CALL, 0, 0, NULL }
static const struct fl_operand of_one[] = {OUTPUT, INPUT("x", 0)};
static const struct fl_operand of_more[] = {OUTPUT, INPUT("a", 0), INPUT("b", 1), INPUT("c", 2)};
static const struct fl_scalar_rule any[] = {{"alpha", FL_REAL32, 0, 0, false, false, FL_AT(p.map.alpha)},
                                            {"beta", FL_REAL32, 0, 0, false, false, FL_AT(p.map.beta)}};

/* Operations that hold x within two bounds: alpha and beta, or alpha to both sides of 0. */
static tensor_status check(const struct fl_invocation *call) {
    const struct fl_function *f = call->function;
    const double alpha = call->scalars[0].real;
    switch ((int)f->op) {
    case FL_OP_HARDTANH:
    case FL_OP_HARDTANH_GRAD:
    case FL_OP_CLAMP:
    case FL_OP_CLAMP_GRAD:
        if (alpha > call->scalars[1].real)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: the least value is %g, the largest %g, expected them in this order",
                           f->name, alpha, call->scalars[1].real);
        return TENSOR_OK;
    case FL_OP_CLIP:
        return alpha < 0 ? fl_fail(TENSOR_E_ARGUMENT, "%s: alpha is %g, expected 0 or more", f->name, alpha)
                         : TENSOR_OK;
    default:
        return TENSOR_OK;
    }
}

#define FUNCTION(id, text, table, inputs, scalars_given)                                                               \
    {                                                                                                                  \
        .name = text, .op = id, .outputs = 1, .operand_count = 1 + (inputs), .operands = table,                        \
        .scalar_count = scalars_given, .scalars = any, .check = (scalars_given) ? check : NULL                         \
    }
#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_one, 1, 0);
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_one, 1, 1);
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_one, 1, 2);
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_more, 2, 0);
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_more, 2, 1);
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_more, 2, 2);
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    const struct fl_function fl_function_##name = FUNCTION(id, #name, of_more, 3, 0);
#include "flexlab/ops.def"

/* A real function is rounded once in every format; the others as their definition in doubles is. */
#define ROW(id) [id] = {.op = id, .promise = FL_PROMISE_EXACT, .reference = {fl_ref_map, fl_ref_bytes}},
#define FL_MAP1(id, CONSTANT, name, expr) ROW(id)
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP1_SCALARS FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP2_SCALARS FL_MAP1
#define FL_MAP3 FL_MAP1
extern const struct fl_operation fl_map_operations[FL_OP_LIMIT];
const struct fl_operation fl_map_operations[FL_OP_LIMIT] = {
#include "flexlab/ops.def"
    [FL_OP_ADD].gradient = "dy itself",
    [FL_OP_SUB].gradient = "dy, neg",
    [FL_OP_MUL].gradient = "mul",
    [FL_OP_SCALE].gradient = "scale",
    [FL_OP_ADD_SCALED].gradient = "dy, scale",
    [FL_OP_ADD_RELU].gradient = "relu_grad",
    [FL_OP_NEG].gradient = "neg",
};

/* --- the public functions ----------------------------------------------------------------------------------------- */

#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    tensor_status tensor_##name(tensor *y, const tensor *x) {                                                          \
        return FL_INVOKE_PLAIN(name, FL_GIVEN(y, x));                                                                  \
    }
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    tensor_status tensor_##name(tensor *y, const tensor *x, float alpha) {                                             \
        return FL_INVOKE(name, FL_GIVEN(y, x), FL_REAL(alpha));                                                        \
    }
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    tensor_status tensor_##name(tensor *y, const tensor *x, float alpha, float beta) {                                 \
        return FL_INVOKE(name, FL_GIVEN(y, x), FL_REAL(alpha), FL_REAL(beta));                                         \
    }
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b) {                                         \
        return FL_INVOKE_PLAIN(name, FL_GIVEN(y, a, b));                                                               \
    }
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha) {                            \
        return FL_INVOKE(name, FL_GIVEN(y, a, b), FL_REAL(alpha));                                                     \
    }
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha, float beta) {                \
        return FL_INVOKE(name, FL_GIVEN(y, a, b), FL_REAL(alpha), FL_REAL(beta));                                      \
    }
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, const tensor *c) {                        \
        return FL_INVOKE_PLAIN(name, FL_GIVEN(y, a, b, c));                                                            \
    }
#include "flexlab/ops.def"
