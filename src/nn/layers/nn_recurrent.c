/* nn_recurrent.c - the nodes of recurrent networks; nn_layers.c says how a node is made.
 *
 * A layer is four nodes: the sequence with time first, the products of all inputs with their weights at once, the cells
 * step by step, and their states with the batch first again. What the cells keep for backward are outputs that nothing
 * else reads. docs/decisions/0024-tensors-over-time.md */
#include "core/base/fail.h"
#include "nn/layers/nn_layer.h"
#include "nn/layers/nn_sequence.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- shape rules -------------------------------------------------------------------------------------------------- */

/* [batch, length, width], or an image as its lines. */
static tensor_status need_sequence(const struct fl_node *node, const struct fl_shape *x) {
    return x->ndim == 3 || x->ndim == 4
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: the input is %s, expected a sequence [batch, length, width]", node->owner,
                         fl_shape_in_words(x).text);
}

static tensor_status time_first_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(need_sequence(node, x));
    return fl_add_output(node, "steps",
                         (struct fl_shape){3, {x->dim[1], x->dim[0], fl_shape_count(x) / (x->dim[0] * x->dim[1])}});
}

static tensor_status batch_first_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, (struct fl_shape){3, {x->dim[1], x->dim[0], x->dim[2]}});
}

static tensor_status last_step_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_sequence(node, x));
    return fl_add_matrix(node, x->dim[2]);
}

/* Common to both kinds of cells, for a number of gates: states, inputs of the gates, weights. */
static tensor_status cells_shape(struct fl_node *node, const struct fl_shape *x, int gates) {
    const int64_t steps = x->dim[0], batch = x->dim[1], units = x->dim[2] / gates;
    const struct fl_shape over_time = {3, {steps, batch, units}}, one_step = {2, {batch, units}};
    TRY(fl_add_output(node, "states", over_time));
    TRY(fl_add_output(node, "gates", *x));
    TRY(fl_add_work(node, "states.grad.sum", one_step));
    TRY(fl_add_state(node, (struct fl_state){.suffix = "zero", .shape = one_step}));
    return fl_add_weight(node, "recurrent", FL_LAYOUT_GATES, FL_INIT_UNIFORM, sqrt(1.0 / (double)units),
                         (struct fl_shape){2, {units, gates * units}});
}

static tensor_status lstm_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(cells_shape(node, x, 4));
    TRY(fl_add_output(node, "cell", node->output[0].shape));
    return fl_add_work(node, "cell.grad", node->work[0].shape);
}

static tensor_status gru_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(cells_shape(node, x, 3));
    TRY(fl_add_work(node, "states.grad.around", node->work[0].shape));
    TRY(fl_add_work(node, "gates.grad", *x));
    return fl_add_learned(node, "bias", FL_INIT_ZERO, 0, (struct fl_shape){1, {x->dim[2]}});
}

/* --- forward and backward ----------------------------------------------------------------------------------------- */

static const int turned[] = {1, 0, 2};

/* A sequence with the other of time and batch first; an image is seen as a sequence. */
static tensor_status turn(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_permute(pass->y[0], pass->x[0], turned);
}

static tensor_status turn_back(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_permute(pass->dx[0], pass->dy[0], turned);
}

static void seen_as_sequence(const struct fl_node *node, struct fl_shape *shape) {
    (void)node;
    if (shape->ndim == 4)
        *shape = (struct fl_shape){3, {shape->dim[0], shape->dim[1], shape->dim[2] * shape->dim[3]}};
}

static tensor_status last_step_forward(struct fl_node *node, const struct fl_pass *pass) {
    const int64_t length = tensor_dim(pass->x[0], 1);
    (void)node;
    return tensor_slice(pass->y[0], pass->x[0], 1, length - 1);
}

static tensor_status last_step_backward(struct fl_node *node, const struct fl_pass *pass) {
    const int64_t length = tensor_dim(pass->dx[0], 1);
    (void)node;
    return tensor_slice_grad(pass->dx[0], pass->dy[0], 1, length - 1);
}

/* One step of a sequence, which it is itself to the slice. */
static void seen_as_steps(const struct fl_node *node, struct fl_shape *shape) {
    (void)node;
    if (shape->ndim == 2)
        *shape = (struct fl_shape){3, {shape->dim[0], 1, shape->dim[1]}};
}

/* Outputs that only backward reads must have no gradient. */
static tensor_status check_inner(const struct fl_node *node, const struct fl_pass *pass) {
    for (int k = 1; k < node->outputs; k++)
        if (pass->dy[k])
            return fl_fail(TENSOR_E_ARGUMENT, "'%s' is the layer's own, no other node may read it",
                           node->output[k].name);
    return TENSOR_OK;
}

static tensor_status lstm_forward(struct fl_node *node, const struct fl_pass *pass) {
    const tensor *zero = node->state[0].t;
    return tensor_lstm(pass->y[0], pass->y[2], pass->y[1], pass->x[0], pass->w[0], zero, zero);
}

static tensor_status lstm_backward(struct fl_node *node, const struct fl_pass *pass) {
    TRY(check_inner(node, pass));
    return tensor_lstm_grad(pass->dx[0], pass->g[0], pass->work[0], pass->work[1], pass->dy[0], pass->y[0], pass->y[2],
                            pass->y[1], pass->w[0], node->state[0].t);
}

static tensor_status gru_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_gru(pass->y[0], pass->y[1], pass->x[0], pass->w[0], pass->w[1], node->state[0].t);
}

static tensor_status gru_backward(struct fl_node *node, const struct fl_pass *pass) {
    TRY(check_inner(node, pass));
    return tensor_gru_grad(pass->dx[0], pass->work[2], pass->g[0], pass->g[1], pass->work[0], pass->work[1],
                           pass->dy[0], pass->y[0], pass->y[1], pass->x[0], pass->w[0], node->state[0].t);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum kind { TIME_FIRST, BATCH_FIRST, LAST_STEP, LSTM, GRU };

static const struct fl_layer layers[] = {
    [TIME_FIRST] = {"time_first", 1, .seen = seen_as_sequence, .shape = time_first_shape, .forward = turn,
                    .backward = turn_back},
    [BATCH_FIRST] = {"batch_first", 1, .shape = batch_first_shape, .forward = turn, .backward = turn_back},
    [LAST_STEP] = {"last_step", 1, .seen = seen_as_steps, .shape = last_step_shape, .forward = last_step_forward,
                   .backward = last_step_backward},
    /* dx is written even where nothing before the layer learns: the products of the inputs do */
    [LSTM] = {"lstm", 1, .group = "recurrent", .saves_y = 3, .always_dx = true, .shape = lstm_shape,
              .forward = lstm_forward, .backward = lstm_backward},
    [GRU] = {"gru", 1, .group = "recurrent", .saves_x = 1, .saves_y = 2, .always_dx = true, .shape = gru_shape,
             .forward = gru_forward, .backward = gru_backward},
};

/* --- public functions --------------------------------------------------------------------------------------------- */

static nn_node add_inner(nn_graph *g, enum kind kind, const char *name, const char *suffix, nn_node x) {
    char inner[FL_NAME_LIMIT + 16];
    snprintf(inner, sizeof inner, "%s.%s", name, suffix);
    return fl_add_node(g, &layers[kind], inner, name, &x, 1, &(struct fl_options){0});
}

static tensor_status check_layer(const char *name, int units) {
    TRY(fl_check_name("recurrent layer", name, FL_NAME_LIMIT - 16));
    return units >= 1 && units <= 1 << 24
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: %d units, expected 1 to %d", name, units, 1 << 24);
}

static nn_node add_layer(nn_graph *g, enum kind kind, const char *name, nn_node x, int units) {
    char inner[FL_NAME_LIMIT + 16];
    const tensor_status status = check_layer(name, units);
    if (status)
        return fl_build_failed(g, status);
    const nn_node steps = add_inner(g, TIME_FIRST, name, "time", x);
    snprintf(inner, sizeof inner, "%s.input", name);
    const nn_node gates = fl_add_sequence_linear(g, inner, steps, units * (kind == LSTM ? 4 : 3), false);
    if (gates >= 0 && kind == LSTM)
        fl_node_of(g, gates)->parameter[1].init = FL_INIT_FORGET;
    const nn_node states = fl_add_node(g, &layers[kind], name, name, &gates, 1, &(struct fl_options){.outputs = units});
    return add_inner(g, BATCH_FIRST, name, "sequence", states);
}

nn_node nn_lstm(nn_graph *g, const char *name, nn_node x, int units) {
    return add_layer(g, LSTM, name, x, units);
}

nn_node nn_gru(nn_graph *g, const char *name, nn_node x, int units) {
    return add_layer(g, GRU, name, x, units);
}

nn_node nn_last_step(nn_graph *g, const char *name, nn_node x) {
    return fl_add_node(g, &layers[LAST_STEP], name, name, &x, 1, &(struct fl_options){0});
}
