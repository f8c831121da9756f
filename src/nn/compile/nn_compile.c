/* nn_compile.c - from the plan to tensors: parameters with initial weights, values, the list for traces; then the
 * temporary memory. */
#include "nn/compile/nn_compile.h"
#include "nn/layers/nn_sequence.h"
#include "nn/policies/nn_types.h"
#include "group/group.h"
#include "nn/step/nn_ranks.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_together.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include <string.h>

/* --- checks of the graph ------------------------------------------------------------------------------------------ */

/* Whether a later node has an output of node i as input. */
static bool is_used(const nn_graph *g, int i) {
    for (int k = i + 1; k < g->count; k++)
        for (int j = 0; j < g->nodes[k].inputs; j++)
            if (g->handles[g->nodes[k].input[j].x].node == i)
                return true;
    return false;
}

/* Every node leads to the logits, which makes theirs the last one; marks those that have parameters at or before them.
 */
static tensor_status check_graph(nn_graph *g, nn_node logits) {
    if (g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "graph: it is compiled already");
    if (!g->count)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "graph: it has neither an input nor a layer, expected layers between input and logits");
    if (logits < 0 || logits >= g->handle_count)
        return fl_fail(TENSOR_E_ARGUMENT, "logits: node %d, expected 0 ... %d", logits, g->handle_count - 1);
    const struct fl_output *last = fl_output_of(g, logits);
    TRY(fl_objective_output(g, last));
    if (g->count < 2)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "graph: it has no layer but the input, expected layers between input and logits");
    g->logits = logits;
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        if (i != g->handles[logits].node && !is_used(g, i))
            return fl_fail(TENSOR_E_ARGUMENT, "'%s' does not lead to the logits '%s'", node->name, last->name);
        node->learns = node->parameters > 0 || (i == 0 && g->objective.input_gradient);
        for (int k = 0; k < node->inputs; k++)
            node->learns = node->learns || fl_node_of(g, node->input[k].x)->learns;
    }
    return fl_node_of(g, logits)->learns ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "graph: no layer has parameters");
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static tensor *new_view(tensor *t, const struct fl_shape *shape) {
    return tensor_new_view(t, shape->ndim, shape->dim);
}

static tensor_status new_numbers(const nn_graph *g, tensor **t, tensor_format format, int64_t count) {
    *t = tensor_new_in(g->device, format, TENSOR_SHAPE(count));
    return *t ? TENSOR_OK : tensor_error_status();
}

static tensor_status load_initial(struct fl_state *s) {
    const int64_t count = fl_shape_count(&s->shape);
    const bool floats = s->format == FMT_F32;
    void *values = fl_alloc((size_t)count * (floats ? sizeof(float) : sizeof(double)));
    if (!values)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld initial values", s->suffix, (long long)count);
    for (int64_t i = 0; i < count; i++)
        if (floats)
            ((float *)values)[i] = (float)s->initial;
        else
            ((double *)values)[i] = s->initial;
    tensor_status status = floats ? tensor_load_f32(s->t, values, count) : tensor_load_f64(s->t, values, count);
    fl_free(values);
    return status;
}

static tensor_status make_state(const nn_graph *g, const struct fl_node *node, struct fl_state *s) {
    TRY(fl_new_tensor(g, &s->t, s->format ? (struct fl_type){s->format, NULL} : node->as.y, &s->shape));
    return s->initial != 0 ? load_initial(s) : TENSOR_OK; /* a new tensor holds zeros */
}

static tensor_status make_node(nn_graph *g, struct fl_node *node) {
    TRY(fl_together_make(g, node));
    for (int k = 0; k < node->states; k++)
        if (node->state[k].lasts)
            TRY(make_state(g, node, &node->state[k]));
    for (int k = 0; k < node->parameters; k++)
        TRY(fl_make_parameter(g, node, &node->parameter[k]));
    for (int k = 0; k < node->parameters && node->layer->vectors; k++) {
        struct fl_parameter *p = &node->parameter[k];
        const struct fl_shape vector = {1, {fl_shape_count(&p->shape)}};
        if (!(p->w_vector = new_view(p->w_forward ? p->w_forward : p->w, &vector)))
            return tensor_error_status();
    }
    return TENSOR_OK;
}

/* What a node has for the shard in place. */
static tensor_status make_node_of_shard(nn_graph *g, struct fl_node *node) {
    for (int k = 0; k < node->states; k++)
        if (!node->state[k].lasts)
            TRY(make_state(g, node, &node->state[k]));
    for (int k = 0; k < node->parameters; k++)
        TRY(fl_make_gradient(g, node, &node->parameter[k]));
    return TENSOR_OK;
}

/* A view shares exponent and memory with its base, in training and in evaluation. */
static tensor *new_value_tensor(const nn_graph *g, const struct fl_value *v, tensor *base, size_t at) {
    const struct fl_shape *shape = &v->shape;
    return base ? tensor_new_view(base, shape->ndim, shape->dim)
                : tensor_new_at(g->device, v->type.format, shape->ndim, shape->dim, fl_nowhere(at), v->bytes);
}

/* *at: addresses of tensors that have no memory yet, each apart from the others. */
static tensor_status make_value(nn_graph *g, int i, size_t *at) {
    struct fl_value *v = &g->values[i];
    if (v->tokens) {
        v->t = v->evaluate = g->tokens;
        v->info = -1;
        return TENSOR_OK;
    }
    const struct fl_value *base = v->base == i ? NULL : &g->values[v->base];
    /* evaluation has one set of tensors, whatever the number of shards */
    const bool evaluated = !strcmp(v->role, "activation") && !v->evaluate;
    v->t = new_value_tensor(g, v, base ? base->t : NULL, *at);
    if (evaluated)
        v->evaluate = new_value_tensor(g, v, base ? base->evaluate : NULL, *at);
    *at += base ? 0 : fl_line_bytes(v->bytes);
    if (!v->t || (evaluated && !v->evaluate))
        return tensor_error_status();
    v->info = -1;
    if (base)
        return TENSOR_OK;
    v->info = g->info_count;
    fl_tensor_hide(v->t, true); /* until a step writes it */
    TRY(fl_set_predictor(v->t, v->type.predictor));
    TRY(fl_list_tensor(g, fl_shard_name(g, v->name), v->role, v->t, TENSOR_OK));
    if (g->draws_operands) /* of the operands of a product that gives it */
        TRY(tensor_set_rounding(v->t, TENSOR_ROUND_NEAREST, nn_name_key(g->seed, g->infos[v->info].name)));
    if (g->draws_operands && evaluated)
        TRY(tensor_set_rounding(v->evaluate, TENSOR_ROUND_NEAREST, nn_name_key(g->seed, v->name)));
    return evaluated ? fl_set_predictor(v->evaluate, "current") : TENSOR_OK;
}

/* The inputs of a step: tokens; images as floats, if those of the caller cannot be used. */
static tensor_status make_input(nn_graph *g, const struct fl_output *input) {
    tensor **t = input->tokens ? &g->tokens : &g->pixels;
    if (!input->tokens && g->device == tensor_device_at(0))
        return TENSOR_OK;
    *t = tensor_new_in(g->device, input->tokens ? FMT_I32 : FMT_F32, input->shape.ndim, input->shape.dim);
    return *t ? TENSOR_OK : tensor_error_status();
}

static bool draws(const nn_graph *g) {
    for (int i = 0; i < g->count; i++)
        if (g->nodes[i].layer->draws)
            return true;
    return false;
}

static tensor_status make_numbers_of_step(nn_graph *g) {
    TRY(make_input(g, fl_output_of(g, 0)));
    TRY(new_numbers(g, &g->labels, FMT_I32, g->rows));
    TRY(new_numbers(g, &g->rate, FMT_F32, 1));
    if (draws(g))
        TRY(new_numbers(g, &g->step, FMT_F64, 1));
    TRY(fl_optimiser_numbers_of_step(g));
    TRY(fl_loss_scale_numbers(g));
    TRY(fl_objective_numbers(g, fl_output_of(g, g->logits)));
    if (g->shards > 1)
        TRY(new_numbers(g, &g->share, FMT_F64, 1));
    return new_numbers(g, &g->predicted, FMT_I32, g->rows);
}

static tensor_status make_values(nn_graph *g) {
    size_t at = 0;
    g->draws_operands = false;
    for (int i = 0; i < g->count; i++)
        g->draws_operands = g->draws_operands || g->nodes[i].blocks.draws;
    for (int i = 0; i < g->value_count; i++)
        TRY(make_value(g, i, &at));
    return TENSOR_OK;
}

static tensor *tensor_of(const nn_graph *g, int value) {
    return value < 0 ? NULL : g->values[value].t;
}

/* Replaces tensors by views if the kind of layer reads them in another shape. */
static tensor_status see_otherwise(struct fl_node *node) {
    const int count = fl_node_tensors(node);
    if (!node->layer->seen)
        return TENSOR_OK;
    node->views = fl_alloc_zero((size_t)count * sizeof *node->views);
    if (!node->views)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    for (int i = 0; i < count; i++) {
        tensor *t = node->tensors[i];
        if (!t)
            continue;
        struct fl_shape shape = {.ndim = tensor_ndim(t)};
        for (int d = 0; d < shape.ndim; d++)
            shape.dim[d] = tensor_dim(t, d);
        node->layer->seen(node, &shape);
        if (!(node->views[i] = new_view(t, &shape)))
            return tensor_error_status();
        node->tensors[i] = node->views[i];
    }
    return TENSOR_OK;
}

/* The tensor of a value, or of the one that replaces it in backward. */
static tensor *tensor_or(const nn_graph *g, int other, int value) {
    return tensor_of(g, other >= 0 ? other : value);
}

/* The tensors of a node's passes, in one array: those of training, x, dx, y, dy, then x and y of evaluation, x, y and
 * dy as backward reads them, and what backward writes for itself; then the parameters. */
static tensor_status wire_passes(const nn_graph *g, struct fl_node *node) {
    const int inputs = node->inputs, outputs = node->outputs;
    tensor **x =
        fl_alloc_zero(((size_t)fl_node_tensors(node) + (size_t)node->works + 3 * (size_t)node->parameters) * sizeof *x);
    if (!x)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    tensor **dx = x + inputs, **y = dx + inputs, **dy = y + outputs, **evaluate_x = dy + outputs,
           **evaluate_y = evaluate_x + inputs, **back_x = evaluate_y + outputs, **back_y = back_x + inputs,
           **operand = back_y + outputs, **work = operand + outputs, **w = work + node->works,
           **back_w = w + node->parameters, **gradient = back_w + node->parameters;
    for (int k = 0; k < inputs; k++) {
        const struct fl_input *input = &node->input[k];
        const int value = fl_output_of(g, input->x)->y;
        x[k] = g->values[value].t;
        dx[k] = tensor_of(g, input->dx);
        evaluate_x[k] = g->values[value].evaluate;
        back_x[k] = tensor_or(g, input->saved, value);
    }
    for (int k = 0; k < outputs; k++) {
        const struct fl_output *output = &node->output[k];
        y[k] = tensor_of(g, output->y);
        dy[k] = tensor_of(g, output->dy);
        evaluate_y[k] = g->values[output->y].evaluate;
        back_y[k] = tensor_or(g, output->saved, output->y);
        operand[k] = tensor_or(g, output->operand, output->dy);
    }
    for (int k = 0; k < node->works; k++)
        work[k] = tensor_of(g, node->work[k].value);
    for (int k = 0; k < node->parameters; k++) {
        const struct fl_parameter *p = &node->parameter[k];
        w[k] = p->w_vector ? p->w_vector : p->w_forward ? p->w_forward : p->w;
        back_w[k] = p->w_backward ? p->w_backward : p->w;
        gradient[k] = p->g_vector ? p->g_vector : p->g_pass;
    }
    node->tensors = x;
    TRY(see_otherwise(node));
    node->train = (struct fl_pass){.x = x, .y = y, .w = w, .training = true, .step = g->step};
    node->back = (struct fl_pass){.x = back_x,
                                  .y = back_y,
                                  .dx = dx,
                                  .dy = dy,
                                  .operand = operand,
                                  .work = work,
                                  .w = back_w,
                                  .g = gradient,
                                  .training = true,
                                  .step = g->step};
    node->evaluate = (struct fl_pass){.x = evaluate_x, .y = evaluate_y, .w = w};
    return TENSOR_OK;
}

/* All that exists for each shard. */
static tensor_status make_shard(nn_graph *g) {
    for (int i = 0; i < g->count; i++)
        TRY(make_node_of_shard(g, &g->nodes[i]));
    TRY(new_numbers(g, &g->loss, FMT_F64, 1));
    TRY(new_numbers(g, &g->correct, FMT_I32, 1));
    TRY(make_values(g));
    for (int i = 0; i < g->count; i++)
        TRY(wire_passes(g, &g->nodes[i]));
    return TENSOR_OK;
}

/* Logits of sequences, [batch, length, classes], count as a matrix. */
static nn_node as_matrix(nn_graph *g, nn_node logits) {
    const bool there = !g->compiled && logits >= 0 && logits < g->handle_count;
    if (!there || g->objective.kind != FL_LOSS_CROSS_ENTROPY || fl_output_of(g, logits)->shape.ndim != 3 ||
        fl_output_of(g, logits)->tokens)
        return logits;
    return fl_add_rows(g, fl_output_of(g, logits)->name, logits);
}

static bool normalises_batch(const nn_graph *g) {
    for (int i = 0; i < g->count; i++)
        if (g->nodes[i].layer->sum_forward)
            return true;
    return false;
}

static tensor_status compile(nn_graph *g, nn_node logits) {
    logits = as_matrix(g, logits);
    if (g->status)
        return g->status;
    TRY(fl_resolve_types(g));
    TRY(fl_insert_conversions(g, &logits));
    TRY(check_graph(g, logits));
    TRY(fl_plan(g));
    g->together = g->together && normalises_batch(g);
    if (g->expected) /* before anything has memory */
        TRY(g->expected->check(g, g->expected));
    TRY(fl_check_values(g));
    for (int i = 0; i < g->count; i++) {
        tensor_status status = make_node(g, &g->nodes[i]);
        if (status)
            return fl_node_failed(&g->nodes[i], status);
    }
    TRY(make_numbers_of_step(g));
    TRY(fl_list_positions(g));
    TRY(fl_shards_begin(g));
    for (int s = 0; s < g->shards; s++) {
        TRY(make_shard(g));
        TRY(fl_shard_keep(g));
    }
    TRY(fl_measure_step(g));
    TRY(fl_make_arena(g));
    for (int i = 0; i < g->info_count; i++) /* counters start with training, not with the initial load */
        tensor_reset_statistics(g->infos[i].t);
    g->compiled = true;
    return TENSOR_OK;
}

tensor_status nn_compile(nn_graph *g, nn_node logits) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "compile: the graph is NULL");
    if (g->status)
        return fl_fail(g->status, "%s", g->message);
    bool was_compiled = g->compiled;
    fl_group_fresh(g->group);
    tensor_status status = fl_group_await(g->group, "compile", compile(g, logits));
    if (!status)
        status = fl_group_all(g->group, "compile", fl_ranks_begin(g, fl_graph_layout(g)));
    fl_expected_forget(g);
    if (status && !was_compiled)
        fl_build_failed(g, status); /* half built: it can only be freed */
    return status;
}
