/* nn_node.c - adding a node to a graph: its inputs are checked, its kind's shape rule adds outputs, parameters and
 * states. */
#include "nn/graph/nn_graph.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

tensor_status fl_node_failed(const struct fl_node *node, tensor_status status) {
    return fl_fail(status, "%s: %s", node->owner, tensor_error());
}

/* --- parts of a node ---------------------------------------------------------------------------------------------- */

/* Appends a copy of *element to an array, which grows as needed. */
static tensor_status append(void **array, int *count, const void *element, size_t size) {
    char *longer = fl_alloc(((size_t)*count + 1) * size);
    if (!longer)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a part of a node");
    if (*count)
        memcpy(longer, *array, (size_t)*count * size);
    memcpy(longer + (size_t)*count * size, element, size);
    fl_free(*array);
    *array = longer;
    ++*count;
    return TENSOR_OK;
}

/* Checks the product of all dimensions before it is used, so that sizes cannot overflow. */
static tensor_status check_size(const struct fl_node *node, const struct fl_shape *shape) {
    double elements = 1;
    for (int i = 0; i < shape->ndim; i++)
        elements *= (double)shape->dim[i];
    return elements < 0x1p40 ? TENSOR_OK
                             : fl_fail(TENSOR_E_SHAPE, "%s: a tensor of %.3g elements, expected less than 2^40",
                                       node->owner, elements);
}

tensor_status fl_add_output(struct fl_node *node, const char *suffix, struct fl_shape shape) {
    TRY(check_size(node, &shape));
    struct fl_output output = {.shape = shape, .y = -1, .dy = -1, .saved = -1, .operand = -1};
    output.name = suffix ? fl_format_name("%s.%s", node->name, suffix) : fl_strdup(node->name);
    if (!output.name)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the name", node->owner);
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < node->outputs && !status; i++)
        if (!strcmp(node->output[i].name, output.name))
            status = fl_fail(TENSOR_E_ARGUMENT, "%s: the name is used twice", output.name);
    if (!status)
        status = append((void **)&node->output, &node->outputs, &output, sizeof output);
    if (status)
        fl_free(output.name);
    return status;
}

tensor_status fl_add_parameter(struct fl_node *node, struct fl_parameter parameter) {
    TRY(check_size(node, &parameter.shape));
    return append((void **)&node->parameter, &node->parameters, &parameter, sizeof parameter);
}

tensor_status fl_add_state(struct fl_node *node, struct fl_state state) {
    TRY(check_size(node, &state.shape));
    if (state.format != FMT_NONE && state.format != FMT_F64 && state.format != FMT_F32)
        return fl_fail(TENSOR_E_FORMAT, "%s: state '%s' is %s, expected f64, f32 or the format of the network",
                       node->owner, state.suffix, tensor_format_name(state.format));
    return append((void **)&node->state, &node->states, &state, sizeof state);
}

tensor_status fl_add_work(struct fl_node *node, const char *suffix, struct fl_shape shape) {
    TRY(check_size(node, &shape));
    const struct fl_work work = {.suffix = suffix, .shape = shape, .value = -1};
    return append((void **)&node->work, &node->works, &work, sizeof work);
}

static tensor_status add_input(struct fl_node *node, nn_node x) {
    const struct fl_input input = {.x = x, .dx = -1, .saved = -1, .sum = -1, .addend = -1, .gate = -1};
    return append((void **)&node->input, &node->inputs, &input, sizeof input);
}

void fl_node_clear(struct fl_node *node) {
    for (int k = 0; k < node->parameters; k++)
        fl_parameter_clear(&node->parameter[k]);
    for (int k = 0; k < node->states; k++)
        tensor_free(node->state[k].t);
    for (int k = 0; k < node->outputs; k++)
        fl_free(node->output[k].name);
    fl_free(node->input);
    fl_free(node->output);
    fl_free(node->parameter);
    fl_free(node->state);
    fl_free(node->work);
    for (int i = 0; node->views && i < fl_node_tensors(node); i++)
        tensor_free(node->views[i]);
    fl_free(node->views);
    fl_free(node->tensors);
    fl_free(node->name);
    fl_free(node->owner);
}

/* --- adding ------------------------------------------------------------------------------------------------------- */

static tensor_status check_unused(const nn_graph *g, const char *name) {
    for (nn_node x = 0; x < g->handle_count; x++)
        if (!strcmp(fl_output_of(g, x)->name, name))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: the name is used twice", name);
    for (int i = 0; i < g->count; i++)
        if (!strcmp(g->nodes[i].name, name))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: the name is used twice", name);
    return TENSOR_OK;
}

/* Tokens are indices, which no arithmetic accepts. */
static tensor_status check_tokens(const nn_graph *g, const struct fl_layer *layer, const char *owner,
                                  const nn_node *inputs, int input_count) {
    for (int i = 0; i < input_count; i++) {
        const struct fl_output *x = fl_output_of(g, inputs[i]);
        const bool wanted = layer->reads_tokens && !i;
        if (x->tokens != wanted)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s takes %s, its input '%s' is %s", owner, layer->kind,
                           wanted ? "tokens (nn_tokens)" : "numbers (nn_embedding makes them of tokens)", x->name,
                           x->tokens ? "tokens" : "none");
    }
    return TENSOR_OK;
}

tensor_status fl_check_name(const char *what, const char *name, int limit) {
    if (!name || !*name)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: its name is missing, expected 1 to %d characters", what, limit);
    return strlen(name) <= (size_t)limit
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: its name '%.20s...' is longer than %d", what, name, limit);
}

static tensor_status check_node(const nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner,
                                const nn_node *inputs, int input_count) {
    TRY(fl_check_name(layer->kind, owner ? name : NULL, FL_NAME_LIMIT));
    if (g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the graph is compiled, nothing can be added", owner);
    TRY(check_unused(g, name));
    if (layer->inputs == FL_ANY_INPUTS ? input_count < 1 : input_count != layer->inputs)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d inputs, expected %s%d", owner, input_count,
                       layer->inputs == FL_ANY_INPUTS ? "at least " : "",
                       layer->inputs == FL_ANY_INPUTS ? 1 : layer->inputs);
    for (int i = 0; i < input_count; i++)
        if (inputs[i] < 0 || inputs[i] >= g->handle_count)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: input node %d, expected 0 ... %d", owner, inputs[i],
                           g->handle_count - 1);
    return check_tokens(g, layer, owner, inputs, input_count);
}

static tensor_status apply_shape_rule(const nn_graph *g, struct fl_node *node) {
    if (!node->inputs)
        return node->layer->shape(node, NULL);
    struct fl_shape *x = fl_alloc((size_t)node->inputs * sizeof *x);
    if (!x)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the shapes of %d inputs", node->owner, node->inputs);
    for (int i = 0; i < node->inputs; i++)
        x[i] = fl_output_of(g, node->input[i].x)->shape;
    tensor_status status = node->layer->shape(node, x);
    fl_free(x);
    return status;
}

/* Makes all parts of a node that do not depend on other nodes. */
static tensor_status make_node(nn_graph *g, struct fl_node *node, const char *name, const char *owner,
                               const nn_node *inputs, int input_count) {
    node->name = fl_strdup(name);
    node->owner = fl_strdup(owner);
    if (!node->name || !node->owner)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the name", owner);
    for (int i = 0; i < input_count; i++)
        TRY(add_input(node, inputs[i]));
    TRY(apply_shape_rule(g, node));
    if (!node->outputs)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: a node without outputs", owner);
    for (int i = 0; i < node->outputs; i++) {
        if (strcmp(node->output[i].name, name) != 0)
            TRY(check_unused(g, node->output[i].name));
        TRY(fl_grow((void **)&g->handles, g->handle_count + i, &g->handle_capacity, sizeof *g->handles));
    }
    return TENSOR_OK;
}

static void name_outputs(nn_graph *g, struct fl_node *node) {
    for (int i = 0; i < node->outputs; i++)
        g->handles[g->handle_count++] = (struct fl_handle){g->count, i};
    g->count++;
}

nn_node fl_add_converter(nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner, nn_node x) {
    if (fl_grow((void **)&g->nodes, g->count, &g->node_capacity, sizeof *g->nodes))
        return -1;
    struct fl_node *node = &g->nodes[g->count];
    *node = (struct fl_node){
        .layer = layer, .batch = g->batch, .shards = g->shards, .seed = g->seed, .first = g->handle_count};
    if (make_node(g, node, name, owner, &x, 1)) {
        fl_node_clear(node);
        return -1;
    }
    name_outputs(g, node);
    return node->first;
}

nn_node fl_add_node(nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner,
                    const nn_node *inputs, int input_count, const struct fl_options *how) {
    if (!g) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: the graph is NULL", layer->kind);
        return -1;
    }
    if (g->status) {
        fl_fail(g->status, "%s", g->message);
        return -1;
    }
    tensor_status status = check_node(g, layer, name, owner, inputs, input_count);
    if (!status)
        status = fl_grow((void **)&g->nodes, g->count, &g->node_capacity, sizeof *g->nodes);
    if (status)
        return fl_build_failed(g, status);

    struct fl_node *node = &g->nodes[g->count];
    *node = (struct fl_node){
        .layer = layer, .how = *how, .batch = g->batch, .shards = g->shards, .seed = g->seed, .first = g->handle_count};
    status = make_node(g, node, name, owner, inputs, input_count);
    if (status) {
        fl_node_clear(node);
        return fl_build_failed(g, status);
    }
    name_outputs(g, node);
    return node->first;
}
