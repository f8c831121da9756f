/* nn_maps.c - the nodes that keep the shape of their input, whatever it is: normalisation of rows, real functions;
 * nn_layers.c says how a node is made. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "nn/layers/nn_layer.h"
#include "flexlab/blocks_elementwise.h"
#include "flexlab/blocks_norms.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const double norm_epsilon = 1e-5;

/* --- normalisation of rows ---------------------------------------------------------------------------------------- */

static tensor_status rmsnorm_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_add_learned(node, "gamma", FL_INIT_ONE, 0, (struct fl_shape){1, {x->dim[x->ndim - 1]}}));
    return fl_same_shape(node, x);
}

static tensor_status layernorm_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(rmsnorm_shape(node, x));
    return fl_add_learned(node, "beta", FL_INIT_ZERO, 0, (struct fl_shape){1, {x->dim[x->ndim - 1]}});
}

static tensor_status layernorm_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_layernorm(pass->y[0], pass->x[0], pass->w[0], pass->w[1], norm_epsilon);
}

static tensor_status layernorm_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_layernorm_grad(pass->dx[0], pass->g[0], pass->g[1], pass->dy[0], pass->x[0], pass->w[0],
                                 norm_epsilon);
}

static tensor_status rmsnorm_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_rmsnorm(pass->y[0], pass->x[0], pass->w[0], norm_epsilon);
}

static tensor_status rmsnorm_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_rmsnorm_grad(pass->dx[0], pass->g[0], pass->dy[0], pass->x[0], pass->w[0], norm_epsilon);
}

/* --- real functions ----------------------------------------------------------------------------------------------- */

/* Those of tensor.h that have a gradient and no scalars. */
#define FUNCTIONS(F)                                                                                                   \
    F(sigmoid)                                                                                                         \
    F(logsigmoid)                                                                                                      \
    F(silu)                                                                                                            \
    F(softsign)                                                                                                        \
    F(tanh)                                                                                                            \
    F(softplus)                                                                                                        \
    F(gelu)                                                                                                            \
    F(gelu_tanh)                                                                                                       \
    F(exp)                                                                                                             \
    F(log)                                                                                                             \
    F(sqrt)                                                                                                            \
    F(reciprocal)                                                                                                      \
    F(sin)                                                                                                             \
    F(cos)

#define PASSES(name)                                                                                                   \
    static tensor_status name##_forward(struct fl_node *node, const struct fl_pass *pass) {                            \
        (void)node;                                                                                                    \
        return tensor_##name(pass->y[0], pass->x[0]);                                                                  \
    }                                                                                                                  \
    static tensor_status name##_backward(struct fl_node *node, const struct fl_pass *pass) {                           \
        (void)node;                                                                                                    \
        return tensor_##name##_grad(pass->dx[0], pass->dy[0], pass->x[0]);                                             \
    }
FUNCTIONS(PASSES)

/* --- the tables --------------------------------------------------------------------------------------------------- */

enum kind { LAYERNORM, RMSNORM };

static const struct fl_layer layers[] = {
    [LAYERNORM] = {"layernorm", 1, .group = "norm", .saves_x = 1, .always_dx = true, .shape = layernorm_shape,
                   .forward = layernorm_forward, .backward = layernorm_backward},
    [RMSNORM] = {"rmsnorm", 1, .group = "norm", .saves_x = 1, .always_dx = true, .shape = rmsnorm_shape,
                 .forward = rmsnorm_forward, .backward = rmsnorm_backward},
};

#define ROW(name)                                                                                                      \
    {#name, 1, .saves_x = 1, .shape = fl_same_shape, .forward = name##_forward, .backward = name##_backward},
static const struct fl_layer functions[] = {FUNCTIONS(ROW)};
enum { FUNCTION_COUNT = sizeof functions / sizeof functions[0] };

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add(nn_graph *g, const struct fl_layer *layer, const char *name, nn_node x) {
    return fl_add_node(g, layer, name, name, &x, 1, &(struct fl_options){0});
}

nn_node nn_layernorm(nn_graph *g, const char *name, nn_node x) {
    return add(g, &layers[LAYERNORM], name, x);
}

nn_node nn_rmsnorm(nn_graph *g, const char *name, nn_node x) {
    return add(g, &layers[RMSNORM], name, x);
}

int nn_activation_count(void) {
    return FUNCTION_COUNT;
}

const char *nn_activation_at(int i) {
    return i >= 0 && i < FUNCTION_COUNT ? functions[i].kind : NULL;
}

nn_node nn_activation(nn_graph *g, const char *name, nn_node x, const char *function) {
    for (int i = 0; function && i < FUNCTION_COUNT; i++)
        if (!strcmp(functions[i].kind, function))
            return add(g, &functions[i], name, x);
    char known[300] = "";
    size_t used = 0;
    for (int i = 0; i < FUNCTION_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", functions[i].kind);
    return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT, "%s: function %s, expected one of %s",
                                      name ? name : "activation", fl_quote(function).text, known));
}
