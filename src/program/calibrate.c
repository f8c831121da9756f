/* calibrate.c - exponents and 8-bit integers of a program's tensors from what it computes on representative inputs
 * (include/flexlab/program.h). */
#include "program/calibration/methods.h"
#include "program/calibration/ranges.h"
#include "program/passes/passes.h"
#include "program/plan/program_object.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>

tensor_status program_set_quantisation(program *p, const program_quantisation *how) {
    if (!p || !how)
        return fl_fail(TENSOR_E_ARGUMENT, "program_set_quantisation: %s is NULL", p ? "how" : "p");
    if ((int)how->method < PROGRAM_MINMAX || how->method > PROGRAM_ENTROPY)
        return fl_fail(TENSOR_E_ARGUMENT, "method %d, expected 0 to %d (minmax, percentile, mse, entropy)",
                       (int)how->method, PROGRAM_ENTROPY);
    if (how->method == PROGRAM_PERCENTILE && !(how->percentile > 50 && how->percentile <= 100))
        return fl_fail(TENSOR_E_ARGUMENT, "percentile %g, expected a number above 50, at most 100", how->percentile);
    p->how = *how;
    return TENSOR_OK;
}

/* --- calibration -------------------------------------------------------------------------------------------------- */

static bool any_int8(const struct fl_network *n) {
    for (int k = 0; k < n->graph.node_count; k++)
        if (n->graph.nodes[k].int8 && !fl_net_is_quantised(n, &n->graph.nodes[k]))
            return true;
    return false;
}

static void forget(struct fl_range *r) {
    r->seen = false;
    r->maximum = 0;
}

static void forget_graph(struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; node->inner && i < FL_NODE_TEMPORARIES; i++)
            forget(&node->inner[i]);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                forget_graph(node->attributes[a].graph);
    }
}

static tensor_status begin(struct fl_program *p) {
    const bool counts = any_int8(p->network);
    if (p->observing && (p->statistics || !counts))
        return TENSOR_OK;
    if (p->observing)
        return fl_fail(TENSOR_E_ARGUMENT, "program_calibrate: nodes were marked int8 after the first inputs were seen, "
                                          "expected before: program_freeze ends a calibration");
    p->statistics = counts ? fl_network_new(FL_NET_ONNX) : NULL;
    if (counts && !p->statistics)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < p->network->value_count; v++)
        forget(&p->network->values[v].range);
    forget_graph(&p->network->graph);
    fl_program_reset(p);
    p->observing = true;
    return TENSOR_OK;
}

tensor_status program_calibrate(program *p, const program_array *inputs) {
    if (!p || (!inputs && program_input_count(p)))
        return fl_fail(TENSOR_E_ARGUMENT, "program_calibrate: %s is NULL", p ? "inputs" : "p");
    program_array *const outputs = fl_alloc((size_t)program_output_count(p) * sizeof *outputs);
    if (!outputs)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a list of outputs");
    tensor_status status = begin(p);
    if (!status)
        status = program_run(p, outputs, inputs);
    fl_free(outputs);
    return status;
}

/* --- freezing ----------------------------------------------------------------------------------------------------- */

static void freeze(struct fl_range *r, double margin) {
    r->histogram = NULL;
    r->frozen = fl_range_exponent(r, margin, &r->exponent);
}

static void freeze_graph(struct fl_net_graph *graph, double margin) {
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; node->inner && i < FL_NODE_TEMPORARIES; i++)
            freeze(&node->inner[i], margin);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                freeze_graph(node->attributes[a].graph, margin);
    }
}

static const struct fl_net_node *other_integers(const struct fl_network *n) {
    for (int k = 0; k < n->graph.node_count; k++)
        if (fl_net_is_quantised(n, &n->graph.nodes[k]))
            return &n->graph.nodes[k];
    return NULL;
}

tensor_status fl_program_may_quantise(const struct fl_program *p) {
    const struct fl_network *const n = p->network;
    const struct fl_net_node *const other = any_int8(n) && n->rounding != FL_INT8_EXACT ? other_integers(n) : NULL;
    if (other)
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "node %s has integers already, which are rounded by %s, expected exact "
                       "(program_set_rounding) before others are quantised",
                       other->name, fl_int8_rounding_name(n->rounding));
    return TENSOR_OK;
}

tensor_status fl_program_end_calibration(struct fl_program *p) {
    for (int v = 0; v < p->network->value_count; v++)
        p->network->values[v].range.histogram = NULL;
    fl_network_free(p->statistics);
    p->statistics = NULL;
    p->observing = false;
    fl_program_reset(p);
    return any_int8(p->network) ? fl_pass_quantise(p->network, p->how.per_channel) : TENSOR_OK;
}

tensor_status program_freeze(program *p, double margin) {
    if (!p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_freeze: p is NULL");
    struct fl_network *const n = p->network;
    if (!p->observing)
        return fl_fail(TENSOR_E_ARGUMENT, "program_freeze: program_calibrate was not called");
    if (!isfinite(margin) || (margin != 0 && margin < 1))
        return fl_fail(TENSOR_E_ARGUMENT, "program_freeze: margin %g, expected 0, or 1 and more", margin);
    const bool quantises = any_int8(n);
    TRY(fl_program_may_quantise(p));
    if (quantises && !p->statistics)
        return fl_fail(TENSOR_E_ARGUMENT, "program_freeze: nodes were marked int8 after program_calibrate, expected "
                                          "before");
    for (int v = 0; v < n->value_count; v++) {
        struct fl_range *const r = &n->values[v].range;
        if (quantises && r->seen)
            r->integers = fl_type_of_range(fl_range_by(&p->how, r->least, r->largest, r->histogram), p->how.symmetric);
        freeze(r, margin ? margin : 1);
    }
    freeze_graph(&n->graph, margin ? margin : 1);
    return fl_program_end_calibration(p);
}
