/* program.c - programs as callers see them (include/flexlab/program.h). */
#include "program/plan/program_object.h"
#include "program/onnx/onnx_read.h"
#include "program/operators.h"
#include "program/passes/passes.h"
#include "program/store/store.h"
#include "program/tflite/tflite_read.h"
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/match.h"
#include "core/base/memory.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- life --------------------------------------------------------------------------------------------------------- */

/* Operators that programs do not have, in one message: each with the names of its nodes. */
struct missing {
    char text[3000];
    size_t used;
    int count;
};

static void add_text(struct missing *m, const char *text) {
    const int written = snprintf(m->text + m->used, sizeof m->text - m->used, "%s", text);
    m->used += (size_t)written < sizeof m->text - m->used ? (size_t)written : sizeof m->text - m->used - 1;
}

static bool is_missing(const struct fl_net_node *node) {
    return !fl_operator_find(node->domain, node->op) && (*node->domain || strcmp(node->op, "If"));
}

static bool same_operator(const struct fl_net_node *a, const struct fl_net_node *b) {
    return !strcmp(a->op, b->op) && !strcmp(a->domain, b->domain);
}

static void list_missing(struct missing *m, const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        bool first = is_missing(node);
        for (int j = 0; j < k && first; j++)
            first = !same_operator(node, &graph->nodes[j]);
        if (first) {
            add_text(m, m->count++ ? "; " : "");
            add_text(m, node->domain);
            add_text(m, *node->domain ? "." : "");
            add_text(m, node->op);
            for (int j = k, listed = 0; j < graph->node_count; j++)
                if (same_operator(node, &graph->nodes[j])) {
                    add_text(m, listed++ ? ", " : " (");
                    add_text(m, graph->nodes[j].name);
                }
            add_text(m, ")");
        }
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                list_missing(m, node->attributes[a].graph);
    }
}

static tensor_status check_operators(const struct fl_network *n) {
    struct missing m = {.used = 0};
    list_missing(&m, &n->graph);
    if (m.count)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%d operator%s that programs do not have: %s", m.count,
                       m.count == 1 ? "" : "s", m.text);
    return TENSOR_OK;
}

/* *stored: a program of this library, whose passes have been made. */
static tensor_status read_network(struct fl_network **n, const char *path, bool *stored) {
    char head[9] = {0};
    const char *kind = NULL;
    const int file = fl_file_open(path, NULL, &kind);
    if (file < 0)
        return kind ? fl_fail(TENSOR_E_IO, "%s is %s, expected a file", path, kind)
                    : fl_fail(TENSOR_E_IO, "%s: %s", path, strerror(errno));
    const ssize_t bytes = read(file, head, sizeof head);
    close(file);
    if (!bytes)
        return fl_fail(TENSOR_E_DATA, "%s is empty, expected a network", path);
    *stored = bytes == (ssize_t)sizeof head && fl_store_begins(head);
    if (*stored)
        return fl_store_read(n, path);
    if (bytes >= 8 && !memcmp(head + 4, "TFL3", 4))
        return fl_tflite_read(n, path);
    return fl_onnx_read(n, path);
}

tensor_status fl_program_of(program **p, struct fl_network *network, bool stored) {
    tensor_status status = stored ? TENSOR_OK : fl_passes(network); /* which know operators that programs do not have */
    if (!status)
        status = check_operators(network);
    struct fl_program *const made = status ? NULL : fl_alloc_zero(sizeof *made);
    if (!made) {
        fl_network_free(network);
        return status ? status : fl_fail(TENSOR_E_MEMORY, "no memory for a program");
    }
    made->network = network;
    made->find = fl_operator_find;
    made->device = tensor_device_at(0);
    made->how.per_channel = true;
    *p = made;
    return TENSOR_OK;
}

tensor_status program_read(program **p, const char *path) {
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_read: %s is NULL", p ? "path" : "p");
    *p = NULL;
    struct fl_network *network = NULL;
    bool stored = false;
    TRY(read_network(&network, path, &stored));
    return fl_program_of(p, network, stored);
}

tensor_status program_load(program **p, const char *path) {
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_load: %s is NULL", p ? "path" : "p");
    *p = NULL;
    struct fl_network *network = NULL;
    TRY(fl_store_read(&network, path));
    return fl_program_of(p, network, true);
}

tensor_status program_save(const program *p, const char *path) {
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_save: %s is NULL", p ? "path" : "p");
    if (p->observing)
        return fl_fail(TENSOR_E_ARGUMENT, "program_save: a calibration has begun; program_freeze ends it");
    return fl_store_write(p->network, path);
}

void fl_program_reset(struct fl_program *p) {
    fl_plan_free(p->plan);
    p->plan = NULL;
    for (int i = 0; i < p->constant_count; i++)
        tensor_free(p->constants[i].t);
    p->constant_count = 0;
    fl_program_free_layers(p);
}

void program_free(program *p) {
    if (!p)
        return;
    fl_program_reset(p);
    fl_free(p->constants);
    fl_network_free(p->statistics);
    fl_network_free(p->joined);
    fl_network_free(p->network);
    fl_free(p);
}

/* --- ports -------------------------------------------------------------------------------------------------------- */

int program_input_count(const program *p) {
    return p ? p->network->graph.input_count : 0;
}

int program_output_count(const program *p) {
    return p ? p->network->graph.output_count : 0;
}

static tensor_status port_at(program_port *port, const struct fl_network *n, const int *list, int count, int i,
                             const char *what) {
    if (!port)
        return fl_fail(TENSOR_E_ARGUMENT, "port is NULL");
    if (i < 0 || i >= count)
        return fl_fail(TENSOR_E_ARGUMENT, "%s %d, expected 0 to %d", what, i, count - 1);
    const struct fl_net_value *const v = &n->values[list[i]];
    const bool floats = !v->type || fl_type_is_float(v->type);
    *port = (program_port){.name = v->name, .type = floats ? TENSOR_TYPE_F32 : v->type, .ndim = v->ndim};
    for (int d = 0; d < v->ndim; d++)
        port->shape[d] = v->dim[d];
    if (fl_net_is_bytes(n, list[i])) {
        port->scale = fl_net_int8_type(n, list[i]).scale;
        port->zero = fl_net_int8_type(n, list[i]).zero;
    }
    return TENSOR_OK;
}

tensor_status program_input_at(program_port *port, const program *p, int i) {
    return p ? port_at(port, p->network, p->network->graph.inputs, p->network->graph.input_count, i, "input")
             : fl_fail(TENSOR_E_ARGUMENT, "program_input_at: p is NULL");
}

tensor_status program_output_at(program_port *port, const program *p, int i) {
    return p ? port_at(port, p->network, p->network->graph.outputs, p->network->graph.output_count, i, "output")
             : fl_fail(TENSOR_E_ARGUMENT, "program_output_at: p is NULL");
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

int program_node_count(const program *p) {
    return p ? p->network->graph.node_count : 0;
}

tensor_status program_node_at(program_node *node, const program *p, int i) {
    if (!node || !p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_node_at: %s is NULL", node ? "p" : "node");
    if (i < 0 || i >= p->network->graph.node_count)
        return fl_fail(TENSOR_E_ARGUMENT, "node %d, expected 0 to %d", i, p->network->graph.node_count - 1);
    *node = fl_program_node(p->network, &p->network->graph.nodes[i]);
    return TENSOR_OK;
}

int program_change_count(const program *p) {
    return p ? p->network->change_count : 0;
}

tensor_status program_change_at(program_change *change, const program *p, int i) {
    if (!change || !p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_change_at: %s is NULL", change ? "p" : "change");
    if (i < 0 || i >= p->network->change_count)
        return fl_fail(TENSOR_E_ARGUMENT, "change %d, expected 0 to %d", i, p->network->change_count - 1);
    const struct fl_net_change *const found = &p->network->changes[i];
    *change = (program_change){(program_change_kind)found->kind, found->node, found->op, found->into, found->into_op};
    return TENSOR_OK;
}

int64_t program_parameter_count(const program *p) {
    int64_t count = 0;
    for (int i = 0; p && i < p->network->value_count; i++) {
        const struct fl_net_value *const v = &p->network->values[i];
        if (v->constant && (fl_type_is_float(v->constant->type) || v->quantisation) && fl_net_readers(p->network, i))
            count += v->constant->count;
    }
    return count;
}

/* The format in which all nodes of a graph read a value, FMT_FP32 if they differ; 0: none does. */
static tensor_format read_as(const struct fl_net_graph *graph, int value, tensor_format so_far) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        const tensor_format own = node->format ? node->format : FMT_FP32;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] == value)
                so_far = !so_far || so_far == own ? own : FMT_FP32;
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                so_far = read_as(node->attributes[a].graph, value, so_far);
    }
    return so_far;
}

int64_t program_parameter_bytes(const program *p) {
    int64_t bytes = 0;
    for (int i = 0; p && i < p->network->value_count; i++) {
        const struct fl_net_value *const v = &p->network->values[i];
        if (!v->constant || (!fl_type_is_float(v->constant->type) && !v->quantisation))
            continue;
        const tensor_format format = read_as(&p->network->graph, i, 0);
        if (format && v->quantisation)
            bytes += v->constant->count * (int64_t)fl_type_bytes(v->constant->type) +
                     v->quantisation->count * (int64_t)sizeof *v->quantisation->scale;
        else if (format)
            bytes += v->constant->count * (int64_t)tensor_format_bytes(format);
    }
    return bytes;
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

/* Runs once, on inputs of the network's own sizes. */
static tensor_status run_once(program *p, program_array *outputs, const program_array *inputs) {
    if (!p->plan || !fl_plan_serves(p->plan, inputs)) {
        struct fl_plan *plan;
        bool lists = false;
        for (int i = 0; i < p->network->graph.input_count; i++)
            lists |= inputs[i].ndim <= 1 || !fl_type_is_float(p->network->values[p->network->graph.inputs[i]].type);
        /* Shapes may follow from integer inputs and from lists: then these numbers are a part of the plan. */
        fl_fail_hold();
        tensor_status status = fl_plan_make(&plan, p, inputs, false);
        if (status == TENSOR_E_UNSUPPORTED && lists)
            status = fl_plan_make(&plan, p, inputs, true);
        TRY(fl_fail_release(status));
        fl_plan_free(p->plan);
        p->plan = plan;
    }
    return fl_plan_run(p->plan, outputs, inputs);
}

/* How many times the batch that the network fixes the inputs hold: a number above 1 if it fixes the first dimension of
 * every input and all are given that many times of it; else 1. */
static int64_t batches(const program *p, const program_array *inputs) {
    const struct fl_network *const n = p->network;
    int64_t times = 0;
    for (int i = 0; fl_net_has_batch(n) && i < n->graph.input_count; i++) {
        const struct fl_net_value *const v = &n->values[n->graph.inputs[i]];
        const int64_t given = inputs[i].ndim > 0 ? inputs[i].shape[0] : 0;
        if (inputs[i].ndim != v->ndim || given < v->dim[0] || given % v->dim[0] ||
            (times && given / v->dim[0] != times))
            return 1;
        times = given / v->dim[0];
    }
    return times > 1 ? times : 1;
}

static size_t bytes_of(const program_array *a) {
    int64_t count = 1;
    for (int d = 0; d < a->ndim; d++)
        count *= a->shape[d];
    return (size_t)count * fl_type_bytes(a->type);
}

/* Runs batch by batch, and joins the results along their first dimension. */
static tensor_status run_batches(program *p, program_array *outputs, const program_array *inputs, int64_t times) {
    const int in = program_input_count(p), out = program_output_count(p);
    fl_network_free(p->joined);
    p->joined = fl_network_new(FL_NET_ONNX);
    program_array *const part = p->joined ? fl_net_memory(p->joined, (size_t)in * sizeof *part) : NULL;
    program_array *const result = part ? fl_net_memory(p->joined, (size_t)out * sizeof *result) : NULL;
    if (!result)
        return TENSOR_E_MEMORY;
    for (int64_t t = 0; t < times; t++) {
        for (int i = 0; i < in; i++) {
            part[i] = inputs[i];
            part[i].shape[0] /= times;
            part[i].data = (char *)inputs[i].data + (size_t)t * bytes_of(&part[i]);
        }
        TRY(run_once(p, result, part));
        for (int i = 0; i < out; i++) {
            const size_t bytes = bytes_of(&result[i]);
            if (!t) {
                if (result[i].ndim < 1)
                    return fl_fail(TENSOR_E_SHAPE,
                                   "output %d is one number, so that the results of %lld batches "
                                   "cannot be joined",
                                   i, (long long)times);
                outputs[i] = result[i];
                outputs[i].shape[0] *= times;
                outputs[i].data = fl_net_memory(p->joined, (size_t)times * bytes);
                if (!outputs[i].data)
                    return TENSOR_E_MEMORY;
            }
            memcpy((char *)outputs[i].data + (size_t)t * bytes, result[i].data, bytes);
        }
    }
    return TENSOR_OK;
}

tensor_status program_run(program *p, program_array *outputs, const program_array *inputs) {
    if (!p || !outputs || (!inputs && program_input_count(p)))
        return fl_fail(TENSOR_E_ARGUMENT, "program_run: %s is NULL", !p ? "p" : !outputs ? "outputs" : "inputs");
    const int64_t times = batches(p, inputs);
    return times > 1 ? run_batches(p, outputs, inputs, times) : run_once(p, outputs, inputs);
}

tensor_status program_set_device(program *p, tensor_device *device) {
    if (!p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_set_device: p is NULL");
    fl_program_reset(p);
    p->device = device ? device : tensor_device_at(0);
    return TENSOR_OK;
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

static bool matches(const struct fl_net_node *node, const char *pattern) {
    return !pattern || fl_matches(pattern, strlen(pattern), node->name) ||
           fl_matches(pattern, strlen(pattern), node->op);
}

/* Sets the format of a node, and of those of its branches that match; how many do. */
static int set_formats(struct fl_net_node *node, tensor_format format, const char *pattern) {
    int count = 0;
    if (matches(node, pattern)) {
        node->int8 = format == PROGRAM_INT8;
        node->format = node->int8 ? FMT_FP32 : format;
        count++;
    }
    for (int a = 0; a < node->attribute_count; a++)
        for (int k = 0; node->attributes[a].graph && k < node->attributes[a].graph->node_count; k++)
            count += set_formats(&node->attributes[a].graph->nodes[k], format, pattern);
    return count;
}

/* Nodes `first` ... `last` - 1 that match. */
static tensor_status set_format(program *p, int first, int last, tensor_format format, const char *pattern,
                                int *count) {
    struct fl_net_node *const nodes = p->network->graph.nodes;
    if (format != PROGRAM_INT8 && !tensor_format_name(format))
        return fl_fail(TENSOR_E_ARGUMENT, "format %d, expected one of tensor_format_at, or PROGRAM_INT8", (int)format);
    for (int k = first; k < last && format != PROGRAM_INT8; k++)
        if (nodes[k].int8 && fl_net_is_quantised(p->network, &nodes[k]) && matches(&nodes[k], pattern))
            return fl_fail(TENSOR_E_UNSUPPORTED,
                           "node %s has been quantised, expected int8 for it; a program that is read anew takes %s",
                           nodes[k].name, tensor_format_name(format));
    *count = 0;
    for (int k = first; k < last; k++)
        *count += set_formats(&nodes[k], format, pattern);
    fl_program_reset(p);
    return TENSOR_OK;
}

tensor_status program_set_format(program *p, tensor_format format, const char *pattern, int *count) {
    int matched;
    if (!p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_set_format: p is NULL, format %d", (int)format);
    return set_format(p, 0, p->network->graph.node_count, format, pattern, count ? count : &matched);
}

tensor_status program_set_node_format(program *p, int i, tensor_format format) {
    int matched;
    if (!p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_set_node_format: p is NULL, format %d", (int)format);
    if (i < 0 || i >= p->network->graph.node_count)
        return fl_fail(TENSOR_E_ARGUMENT, "program_set_node_format: node %d, expected 0 to %d", i,
                       p->network->graph.node_count - 1);
    return set_format(p, i, i + 1, format, NULL, &matched);
}

/* --- quantised networks ------------------------------------------------------------------------------------------- */

/* A node that adds another image to its sums: only one of the roundings has such a sum. */
static const struct fl_net_node *adding_node(const struct fl_network *n, const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        if (!strcmp(node->op, "Conv") && node->input_count == 4 && fl_net_is_quantised(n, node))
            return node;
        for (int a = 0; a < node->attribute_count; a++) {
            const struct fl_net_node *const inner =
                node->attributes[a].graph ? adding_node(n, node->attributes[a].graph) : NULL;
            if (inner)
                return inner;
        }
    }
    return NULL;
}

tensor_status program_set_rounding(program *p, const char *name) {
    if (!p || !name)
        return fl_fail(TENSOR_E_ARGUMENT, "program_set_rounding: %s is NULL", p ? "name" : "p");
    const enum fl_int8_rounding rounding = fl_int8_rounding_named(name);
    if (rounding == FL_INT8_ROUNDINGS)
        return fl_fail(TENSOR_E_ARGUMENT, "rounding \"%s\", expected exact, onnx, tflite, tflite-ruy or tflite-xnnpack",
                       name);
    const struct fl_net_node *const adding = adding_node(p->network, &p->network->graph);
    if (rounding != FL_INT8_EXACT && adding)
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "rounding %s: node %s adds to its sums before it rounds them, expected exact", name,
                       adding->name);
    p->network->rounding = rounding;
    fl_program_reset(p);
    return TENSOR_OK;
}

const char *program_rounding(const program *p) {
    return p ? fl_int8_rounding_name(p->network->rounding) : NULL;
}

bool program_is_quantised(const program *p) {
    bool any = false;
    for (int k = 0; p && k < p->network->graph.node_count; k++) {
        const struct fl_net_node *const node = &p->network->graph.nodes[k];
        const bool quantised = fl_net_is_quantised(p->network, node);
        if (!quantised && !fl_net_is_border(node))
            return false;
        any |= quantised;
    }
    return any;
}
