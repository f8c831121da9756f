/* nn_graph.c - building a graph, its first failure, and what it says about itself. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/sized.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t fl_shape_count(const struct fl_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++)
        count *= shape->dim[i];
    return count;
}

tensor_status fl_grow(void **array, int count, int *capacity, size_t size) {
    if (count < *capacity)
        return TENSOR_OK;
    int wanted = *capacity ? 2 * *capacity : 32;
    void *bigger = fl_alloc_zero((size_t)wanted * size);
    if (!bigger)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d entries", wanted);
    if (count)
        memcpy(bigger, *array, (size_t)count * size);
    fl_free(*array);
    *array = bigger;
    *capacity = wanted;
    return TENSOR_OK;
}

char *fl_format_name(const char *format, ...) {
    char text[3 * FL_NAME_LIMIT]; /* at most two names and a suffix */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fl_strdup(text);
}

nn_node fl_build_failed(nn_graph *g, tensor_status status) {
    if (g && !g->status) {
        g->status = status;
        snprintf(g->message, sizeof g->message, "%s", tensor_error());
    }
    return -1;
}

tensor_status fl_node_failed(const struct fl_node *node, tensor_status status) {
    return fl_fail(status, "%s: %s", node->owner, tensor_error());
}

/* --- life --- */

static tensor_status check_config(const nn_config *config, const nn_variant *variant) {
    if (config->batch < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "batch: %d, expected at least 1", config->batch);
    if (!(config->momentum >= 0 && config->momentum < 1))
        return fl_fail(TENSOR_E_ARGUMENT, "momentum: %g, expected 0 or more and below 1", (double)config->momentum);
    if (!(config->weight_decay >= 0 && isfinite(config->weight_decay)))
        return fl_fail(TENSOR_E_ARGUMENT, "weight decay: %g, expected 0 or more", (double)config->weight_decay);
    if (!config->predictor)
        return TENSOR_OK;
    if (!tensor_format_is_shared(variant->format))
        return fl_fail(TENSOR_E_ARGUMENT, "predictor '%s': variant %s has no shared exponent", config->predictor,
                       variant->name);
    if (!autoflex_find(config->predictor)) {
        char names[200] = "";
        size_t used = 0;
        autoflex_predictor p;
        for (int i = 0; (p = autoflex_list(i)) && used < sizeof names; i++)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", autoflex_name(p));
        return fl_fail(TENSOR_E_ARGUMENT, "predictor '%s': expected one of %s", config->predictor, names);
    }
    return TENSOR_OK;
}

nn_graph *nn_graph_new_sized(const nn_config *given, size_t config_size) {
    if (!given) {
        fl_fail(TENSOR_E_ARGUMENT, "graph: config is NULL");
        return NULL;
    }
    nn_config ours, *config = &ours;
    if (fl_take_sized(config, sizeof *config, given, config_size, "graph: nn_config"))
        return NULL;
    const nn_variant *variant = nn_variant_find(config->variant);
    tensor_device *device = config->device ? tensor_device_find(config->device) : tensor_device_list(0);
    if (!variant || !device || check_config(config, variant))
        return NULL;
    nn_graph *g = fl_alloc_zero(sizeof *g);
    if (!g) {
        fl_fail(TENSOR_E_MEMORY, "graph: no memory");
        return NULL;
    }
    g->variant = variant;
    g->device = device;
    /* the table's own string: the caller's may not live as long */
    g->predictor = config->predictor ? autoflex_name(autoflex_find(config->predictor)) : variant->predictor;
    g->wide = variant->wide && !config->no_master;
    g->batch = config->batch;
    g->seed = config->seed;
    g->momentum = config->momentum;
    g->weight_decay = config->weight_decay;
    return g;
}

void nn_graph_free(nn_graph *g) {
    if (!g)
        return;
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        for (int k = 0; k < node->parameters; k++) {
            tensor_free(node->parameter[k].w);
            tensor_free(node->parameter[k].g);
            tensor_free(node->parameter[k].v);
        }
        tensor_free(node->batch_mean);
        tensor_free(node->batch_variance);
        tensor_free(node->running_mean);
        tensor_free(node->running_variance);
        fl_free(node->name);
        fl_free(node->owner);
    }
    for (int i = g->value_count - 1; i >= 0; i--) { /* views go before their bases */
        tensor_free(g->values[i].t);
        tensor_free(g->values[i].evaluate);
        fl_free(g->values[i].name);
    }
    for (int i = 0; i < g->info_count; i++)
        fl_free((void *)(uintptr_t)g->infos[i].name);
    fl_free(g->nodes);
    fl_free(g->values);
    fl_free(g->positions);
    fl_free(g->infos);
    tensor_free(g->pixels);
    tensor_free(g->bytes);
    tensor_free(g->byte_values);
    tensor_free(g->labels);
    tensor_free(g->loss);
    tensor_free(g->predicted);
    tensor_free(g->correct);
    tensor_device_release(g->device, g->arena);
    fl_free(g);
}

/* --- adding nodes --- */

static tensor_status check_node(const nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner,
                                const nn_node *inputs) {
    if (!name || !owner || !*name || strlen(name) > FL_NAME_LIMIT)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: its name '%.20s' is missing, empty or longer than %d", layer->kind,
                       name ? name : "(null)", FL_NAME_LIMIT);
    if (g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the graph is compiled, nothing can be added", owner);
    for (int i = 0; i < g->count; i++)
        if (!strcmp(g->nodes[i].name, name))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: the name is used twice", name);
    for (int i = 0; i < layer->inputs; i++)
        if (inputs[i] < 0 || inputs[i] >= g->count)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: input node %d, expected 0 ... %d", owner, inputs[i], g->count - 1);
    return TENSOR_OK;
}

/* Sizes stay far from overflow: the product of all dimensions is checked before anyone computes with it. */
static tensor_status check_size(const struct fl_node *node, const struct fl_shape *shape) {
    double elements = 1;
    for (int i = 0; i < shape->ndim; i++)
        elements *= (double)shape->dim[i];
    return elements < 0x1p40 ? TENSOR_OK
                             : fl_fail(TENSOR_E_SHAPE, "%s: a tensor of %.3g elements, expected less than 2^40",
                                       node->owner, elements);
}

nn_node fl_add_node(nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner,
                    const nn_node *inputs, const struct fl_options *how) {
    if (!g) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: the graph is NULL", layer->kind);
        return -1;
    }
    if (g->status) {
        fl_fail(g->status, "%s", g->message);
        return -1;
    }
    tensor_status status = check_node(g, layer, name, owner, inputs);
    if (!status)
        status = fl_grow((void **)&g->nodes, g->count, &g->node_capacity, sizeof *g->nodes);
    if (status)
        return fl_build_failed(g, status);

    struct fl_node *node = &g->nodes[g->count];
    struct fl_shape x[FL_NODE_INPUTS] = {{0}};
    *node = (struct fl_node){.layer = layer, .how = *how, .y = -1, .dy = -1};
    for (int i = 0; i < FL_NODE_INPUTS; i++) {
        node->input[i] = i < layer->inputs ? inputs[i] : -1;
        node->dx[i] = node->sum[i] = node->addend[i] = node->gate[i] = -1;
        if (i < layer->inputs)
            x[i] = g->nodes[inputs[i]].shape;
    }
    node->name = fl_strdup(name);
    node->owner = fl_strdup(owner);
    if (!node->name || !node->owner)
        status = fl_fail(TENSOR_E_MEMORY, "%s: no memory for the name", owner);
    if (!status) {
        node->shape.dim[0] = g->batch;
        status = layer->shape(node, x);
    }
    if (!status)
        status = check_size(node, &node->shape);
    for (int k = 0; !status && k < node->parameters; k++)
        status = check_size(node, &node->parameter[k].shape);
    if (status) {
        fl_free(node->name);
        fl_free(node->owner);
        return fl_build_failed(g, status);
    }
    return g->count++;
}

/* --- what it says --- */

int nn_tensor_count(const nn_graph *g) {
    return g && g->compiled ? g->info_count : 0;
}

nn_tensor_info nn_tensor_at(const nn_graph *g, int i) {
    return i >= 0 && i < nn_tensor_count(g) ? g->infos[i] : (nn_tensor_info){NULL, NULL, NULL};
}

int64_t nn_parameter_count(const nn_graph *g) {
    int64_t count = 0;
    for (int i = 0; g && i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            count += fl_shape_count(&g->nodes[i].parameter[k].shape);
    return count;
}

int64_t nn_weight_bytes(const nn_graph *g) {
    int64_t bytes = 0;
    for (int i = 0; g && g->compiled && i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            bytes += (int64_t)tensor_bytes(g->nodes[i].parameter[k].w);
    return bytes;
}

int64_t nn_activation_bytes(const nn_graph *g) {
    int64_t bytes = 0;
    for (int i = 0; g && g->compiled && i < g->value_count; i++)
        if (g->values[i].evaluate && g->values[i].base == i)
            bytes += (int64_t)tensor_bytes(g->values[i].t);
    return bytes;
}

int64_t nn_arena_bytes(const nn_graph *g) {
    return g && g->compiled ? (int64_t)g->arena_bytes : 0;
}
