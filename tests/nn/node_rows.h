/* node_rows.h - kinds of nodes for tests: several inputs, outputs, parameters and a state in one row, any number of
 * inputs, several views. Include after nn/graph/nn_graph.h. */
#ifndef FL_NODE_ROWS_H
#define FL_NODE_ROWS_H

#include "nn/graph/nn_graph.h"
#include "flexlab/tensor_blocks.h"

/* --- mixer: hot = relu(a v + u + b), sum = a w + c ---------------------------------------------------------------- */

enum { MIXER_W, MIXER_V, MIXER_U };
enum { MIXER_HOT, MIXER_SUM };

static tensor_status mixer_parts(struct fl_node *node, const struct fl_shape *x, bool part_lasts) {
    const int64_t k = x[0].dim[1], m = x[1].dim[1];
    const struct fl_shape matrix = {2, {k, m}}, out = {2, {node->batch, m}};
    TRY(fl_add_output(node, "hot", out));
    TRY(fl_add_output(node, "sum", out));
    TRY(fl_add_parameter(node, (struct fl_parameter){"w", matrix, FL_LAYOUT_MATRIX, FL_INIT_UNIFORM, 0.5, .info = 0}));
    TRY(fl_add_parameter(node, (struct fl_parameter){"v", matrix, FL_LAYOUT_MATRIX, FL_INIT_UNIFORM, 0.5, .info = 0}));
    TRY(fl_add_parameter(node, (struct fl_parameter){"u", {1, {m}}, FL_LAYOUT_CHANNELS, FL_INIT_ZERO, 0, .info = 0}));
    /* the gradient of a: written in each step, its exponents predicted from earlier steps */
    return fl_add_state(node, (struct fl_state){.suffix = "part", .shape = x[0], .lasts = part_lasts});
}

static tensor_status mixer_shape(struct fl_node *node, const struct fl_shape *x) {
    return mixer_parts(node, x, true);
}

static tensor_status forgetful_shape(struct fl_node *node, const struct fl_shape *x) {
    return mixer_parts(node, x, false);
}

static tensor_status mixer_forward(struct fl_node *node, const struct fl_pass *pass) {
    const struct fl_parameter *p = node->parameter;
    const tensor_epilogue hot = {.bias = p[MIXER_U].w, .residual = pass->x[1], .relu = true},
                          sum = {.residual = pass->x[2]};
    TRY(tensor_matmul_fused(pass->y[MIXER_HOT], pass->x[0], p[MIXER_V].w, &hot));
    return tensor_matmul_fused(pass->y[MIXER_SUM], pass->x[0], p[MIXER_W].w, &sum);
}

/* The gradient of b is that of the sums under the relu. That of c is that of `sum` itself. */
static tensor_status mixer_backward(struct fl_node *node, const struct fl_pass *pass) {
    const struct fl_parameter *p = node->parameter;
    tensor *const dhot = pass->dy[MIXER_HOT], *const dsum = pass->dy[MIXER_SUM], *const part = node->state[0].t;
    tensor *const da = pass->dx[0], *const db = pass->dx[1];
    if (!dhot)
        TRY(tensor_scale(db, pass->y[MIXER_HOT], 0));
    else if (node->output[MIXER_HOT].gated)
        TRY(tensor_scale(db, dhot, 1));
    else
        TRY(tensor_relu_grad(db, dhot, pass->y[MIXER_HOT]));
    if (dhot) {
        TRY(tensor_matmul_tn(p[MIXER_V].g, pass->x[0], db));
        TRY(tensor_sum_rows(p[MIXER_U].g, db));
    }
    if (!dsum)
        return tensor_matmul_nt(da, db, p[MIXER_V].w);
    TRY(tensor_matmul_tn(p[MIXER_W].g, pass->x[0], dsum));
    if (!dhot)
        return tensor_matmul_nt(da, dsum, p[MIXER_W].w);
    TRY(tensor_matmul_nt(part, dsum, p[MIXER_W].w));
    return tensor_matmul_nt_fused(da, db, p[MIXER_V].w, &(tensor_epilogue){.residual = part});
}

static const enum fl_input_gradient mixer_gradient[] = {FL_GRADIENT_OWN, FL_GRADIENT_OWN, FL_GRADIENT_SAME};
static const struct fl_layer mixer_row = {"mixer",
                                          3,
                                          .saves_x = 1,
                                          .saves_y = 1,
                                          .relu = 1,
                                          .always_dx = true,
                                          .gradient = mixer_gradient,
                                          .when_gated = mixer_gradient,
                                          .shape = mixer_shape,
                                          .forward = mixer_forward,
                                          .backward = mixer_backward};

/* The handle of `hot`; that of `sum` follows. */
static inline nn_node add_mixer(nn_graph *g, const char *name, nn_node a, nn_node b, nn_node c) {
    return fl_add_node(g, &mixer_row, name, name, (nn_node[]){a, b, c}, 3, &(struct fl_options){0});
}

/* The same with a part that the state of the network leaves out. */
static inline nn_node add_forgetful_mixer(nn_graph *g, const char *name, nn_node a, nn_node b, nn_node c) {
    static struct fl_layer row;
    row = mixer_row;
    row.shape = forgetful_shape;
    return fl_add_node(g, &row, name, name, (nn_node[]){a, b, c}, 3, &(struct fl_options){0});
}

/* --- total: y = x0 + x1 + ..., of any number ---------------------------------------------------------------------- */

static tensor_status total_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, x[0]);
}

static tensor_status total_forward(struct fl_node *node, const struct fl_pass *pass) {
    TRY(tensor_scale(pass->y[0], pass->x[0], 1));
    for (int k = 1; k < node->inputs; k++)
        TRY(tensor_add(pass->y[0], pass->y[0], pass->x[k]));
    return TENSOR_OK;
}

static const enum fl_input_gradient all_same[] = {FL_GRADIENT_SAME, FL_GRADIENT_SAME};
static const struct fl_layer total_row = {"total", FL_ANY_INPUTS, .gradient = all_same, .shape = total_shape,
                                          .forward = total_forward};

static inline nn_node add_total(nn_graph *g, const char *name, const nn_node *x, int count) {
    return fl_add_node(g, &total_row, name, name, x, count, &(struct fl_options){0});
}

/* --- two images as two matrices ----------------------------------------------------------------------------------- */

static tensor_status matrices_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_add_output(node, "first", (struct fl_shape){2, {node->batch, fl_shape_count(&x[0]) / node->batch}}));
    return fl_add_output(node, "second", (struct fl_shape){2, {node->batch, fl_shape_count(&x[1]) / node->batch}});
}

static const struct fl_layer matrices_row = {"matrices", 2, .views = 2, .gradient = all_same, .shape = matrices_shape};

static inline nn_node add_matrices(nn_graph *g, const char *name, nn_node a, nn_node b) {
    return fl_add_node(g, &matrices_row, name, name, (nn_node[]){a, b}, 2, &(struct fl_options){0});
}

/* --- networks of them, on an image -------------------------------------------------------------------------------- */

/* Both outputs used, each twice, the mixer's first input too. */
static inline nn_node mixed_network(nn_graph *g, nn_node x, int classes) {
    nn_node a = nn_linear(g, "a", x, 5, false), b = nn_linear(g, "b", x, 4, true), c = nn_linear(g, "c", a, 4, false);
    nn_node hot = add_mixer(g, "mixer", a, b, c), sum = hot + 1;
    nn_node d = nn_linear(g, "d", hot, 4, false);
    nn_node all = add_total(g, "total", (nn_node[]){sum, hot, d, sum}, 4);
    return nn_linear(g, "fc", all, classes, false);
}

#endif
