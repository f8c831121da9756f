/* nn_compile.c - from the plan to tensors: parameters with initial weights, values, the list for traces; then the
 * memory of all that comes and goes. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/tensor_state.h"
#include <string.h>

/* --- what may be compiled ----------------------------------------------------------------------------------------- */

/* Every node leads to the logits, which makes them the last one; marks those that have parameters at or before them. */
static tensor_status check_graph(nn_graph *g, nn_node logits) {
    if (g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "graph: it is compiled already");
    if (logits < 0 || logits >= g->count)
        return fl_fail(TENSOR_E_ARGUMENT, "logits: node %d, expected 0 ... %d", logits, g->count - 1);
    const struct fl_node *last = &g->nodes[logits];
    if (last->shape.ndim != 2 || last->shape.dim[1] < 2)
        return fl_fail(TENSOR_E_SHAPE, "logits: '%s' is not a matrix of at least 2 columns (classes)", last->name);
    g->classes = (int)last->shape.dim[1];
    for (int i = 0; i < g->count; i++) {
        bool used = i == logits;
        for (int k = i + 1; k < g->count; k++)
            used = used || g->nodes[k].input[0] == i || g->nodes[k].input[1] == i;
        if (!used)
            return fl_fail(TENSOR_E_ARGUMENT, "'%s' does not lead to the logits '%s'", g->nodes[i].name, last->name);
        struct fl_node *node = &g->nodes[i];
        node->learns = node->parameters > 0;
        for (int k = 0; k < node->layer->inputs; k++)
            node->learns = node->learns || g->nodes[node->input[k]].learns;
    }
    return last->learns ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "graph: no layer has parameters");
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* Takes the name over. */
static tensor_status list_tensor(nn_graph *g, char *name, const char *role, tensor *t) {
    if (!name || fl_grow((void **)&g->infos, g->info_count, &g->info_capacity, sizeof *g->infos)) {
        fl_free(name);
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for the list of tensors");
    }
    g->infos[g->info_count++] = (nn_tensor_info){name, role, t};
    return TENSOR_OK;
}

static tensor_status set_predictor(tensor *t, const char *predictor) {
    return predictor && tensor_format_is_shared(tensor_get_format(t)) ? tensor_set_predictor(t, predictor) : TENSOR_OK;
}

static tensor_status new_parameter_tensor(const nn_graph *g, tensor **t, const struct fl_shape *shape) {
    *t = tensor_new_in(g->device, g->variant->format, shape->ndim, shape->dim);
    return *t ? set_predictor(*t, g->predictor) : tensor_error_status();
}

static tensor_status make_parameter(nn_graph *g, const struct fl_node *node, struct fl_parameter *p) {
    p->info = g->info_count;
    FL_TRY(new_parameter_tensor(g, &p->w, &p->shape));
    FL_TRY(new_parameter_tensor(g, &p->g, &p->shape));
    FL_TRY(new_parameter_tensor(g, &p->v, &p->shape));
    FL_TRY(list_tensor(g, fl_format_name("%s.%s", node->owner, p->suffix), "weight", p->w));
    const char *name = g->infos[g->info_count - 1].name;
    FL_TRY(list_tensor(g, fl_format_name("%s.grad", name), "weight gradient", p->g));
    FL_TRY(list_tensor(g, fl_format_name("%s.momentum", name), "momentum", p->v));
    if (g->wide)
        FL_TRY(tensor_keep_wide(p->w));
    uint64_t key = fl_name_key(g->seed, name);
    if (g->variant->stochastic_weights)
        FL_TRY(tensor_set_rounding(p->w, TENSOR_ROUND_STOCHASTIC, key));
    int64_t count = fl_shape_count(&p->shape);
    double *values = fl_alloc((size_t)count * sizeof *values);
    if (!values)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld initial values", name, (long long)count);
    fl_init_values(values, count, p->init, p->scale, key);
    tensor_status status = tensor_load_f64(p->w, values, count);
    fl_free(values);
    return status;
}

static tensor_status new_numbers(const nn_graph *g, tensor **t, tensor_format format, int64_t count) {
    *t = tensor_new_in(g->device, format, TENSOR_SHAPE(count));
    return *t ? TENSOR_OK : tensor_error_status();
}

/* Of batch normalisation: of the batch, and running ones from mean 0 and variance 1. */
static tensor_status make_moments(const nn_graph *g, struct fl_node *node) {
    const int c = node->channels;
    if (!c)
        return TENSOR_OK;
    FL_TRY(new_numbers(g, &node->batch_mean, FMT_F64, c));
    FL_TRY(new_numbers(g, &node->batch_variance, FMT_F64, c));
    FL_TRY(new_numbers(g, &node->running_mean, FMT_F64, c));
    FL_TRY(new_numbers(g, &node->running_variance, FMT_F64, c));
    double *ones = fl_alloc((size_t)c * sizeof *ones);
    if (!ones)
        return fl_fail(TENSOR_E_MEMORY, "no memory for statistics of %d channels", c);
    for (int i = 0; i < c; i++)
        ones[i] = 1;
    tensor_status status = tensor_load_f64(node->running_variance, ones, c);
    fl_free(ones);
    return status;
}

/* A view has one exponent and one memory with its base, in training and in evaluation. */
static tensor *new_value_tensor(const nn_graph *g, const struct fl_value *v, tensor *base, size_t at) {
    const struct fl_shape *shape = &v->shape;
    return base ? tensor_new_view(base, shape->ndim, shape->dim)
                : tensor_new_at(g->device, g->variant->format, shape->ndim, shape->dim, fl_nowhere(at), v->bytes);
}

/* *at: addresses of tensors that have no memory yet, each apart from the others. */
static tensor_status make_value(nn_graph *g, int i, size_t *at) {
    struct fl_value *v = &g->values[i];
    const struct fl_value *base = v->base == i ? NULL : &g->values[v->base];
    bool activation = !strcmp(v->role, "activation");
    v->t = new_value_tensor(g, v, base ? base->t : NULL, *at);
    if (activation)
        v->evaluate = new_value_tensor(g, v, base ? base->evaluate : NULL, *at);
    *at += base ? 0 : fl_line_bytes(v->bytes);
    if (!v->t || (activation && !v->evaluate))
        return tensor_error_status();
    v->info = -1;
    if (base)
        return TENSOR_OK;
    v->info = g->info_count;
    fl_tensor_hide(v->t, true); /* until a step writes it */
    FL_TRY(set_predictor(v->t, g->predictor));
    if (activation)
        FL_TRY(set_predictor(v->evaluate, "current"));
    return list_tensor(g, fl_format_name("%s", v->name), v->role, v->t);
}

static tensor_status make_numbers_of_step(nn_graph *g) {
    const struct fl_shape *input = &g->nodes[0].shape;
    if (g->device != tensor_device_list(0) && !(g->pixels = tensor_new_in(g->device, FMT_F32, input->ndim, input->dim)))
        return tensor_error_status();
    FL_TRY(new_numbers(g, &g->labels, FMT_I32, g->batch));
    FL_TRY(new_numbers(g, &g->loss, FMT_F64, 1));
    FL_TRY(new_numbers(g, &g->predicted, FMT_I32, g->batch));
    return new_numbers(g, &g->correct, FMT_I32, 1);
}

static tensor_status make_values(nn_graph *g) {
    size_t at = 0;
    for (int i = 0; i < g->value_count; i++)
        FL_TRY(make_value(g, i, &at));
    return TENSOR_OK;
}

static tensor *tensor_of(const nn_graph *g, int value) {
    return value < 0 ? NULL : g->values[value].t;
}

static void wire_passes(nn_graph *g) {
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        node->train = (struct fl_pass){
            .y = tensor_of(g, node->y), .dy = tensor_of(g, node->dy), .gated = node->gated, .training = true};
        node->evaluate = (struct fl_pass){.y = g->values[node->y].evaluate};
        for (int k = 0; k < node->layer->inputs; k++) {
            const struct fl_node *x = &g->nodes[node->input[k]];
            node->train.x[k] = tensor_of(g, x->y);
            node->train.dx[k] = tensor_of(g, node->dx[k]);
            node->evaluate.x[k] = g->values[x->y].evaluate;
        }
    }
}

static tensor_status compile(nn_graph *g, nn_node logits) {
    FL_TRY(check_graph(g, logits));
    FL_TRY(fl_plan(g));
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        tensor_status status = make_moments(g, node);
        for (int k = 0; k < node->parameters && !status; k++)
            status = make_parameter(g, node, &node->parameter[k]);
        if (status)
            return fl_node_failed(node, status);
    }
    FL_TRY(make_numbers_of_step(g));
    FL_TRY(make_values(g));
    FL_TRY(fl_list_positions(g));
    wire_passes(g);
    FL_TRY(fl_measure_step(g));
    FL_TRY(fl_make_arena(g));
    for (int i = 0; i < g->info_count; i++) /* counters tell of training, not of the initial load */
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
    tensor_status status = compile(g, logits);
    if (status && !was_compiled)
        fl_build_failed(g, status); /* half built: it can only be freed */
    return status;
}
