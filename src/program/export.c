/* export.c - programs as files of other formats (include/flexlab/program.h). */
#include "program/onnx/onnx_export.h"
#include "program/plan/plan_internal.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"

/* Plans the program for one size of all dimensions that it leaves open, and notes how many dimensions each output then
 * has. False: there is no plan for that size. */
static bool plan_outputs(struct fl_program *p, struct fl_network *memory, int64_t size, int *ndim) {
    const struct fl_net_graph *const g = &p->network->graph;
    program_array *const in = fl_net_memory(memory, (size_t)g->input_count * sizeof *in);
    struct fl_plan *plan;
    for (int i = 0; in && i < g->input_count; i++) {
        const struct fl_net_value *const v = &p->network->values[g->inputs[i]];
        struct fl_array *zeros;
        int64_t dim[FL_ARRAY_DIMS];
        for (int d = 0; d < v->ndim; d++)
            dim[d] = v->dim[d] < 0 ? size : v->dim[d];
        const tensor_type type = !v->type || fl_type_is_float(v->type) ? TENSOR_TYPE_F32 : v->type;
        if (v->ndim < 0 || fl_net_array(memory, &zeros, type, v->ndim, dim))
            return false;
        in[i] = (program_array){.type = type, .ndim = v->ndim, .data = zeros->data};
        for (int d = 0; d < v->ndim; d++)
            in[i].shape[d] = dim[d];
    }
    if (!in || (fl_plan_make(&plan, p, in, false) && fl_plan_make(&plan, p, in, true)))
        return false;
    for (int i = 0; i < g->output_count; i++)
        ndim[i] = plan->outputs[i].array.ndim;
    fl_plan_free(plan);
    return true;
}

/* ONNX wants the number of dimensions of each output. Where the network does not state it, a plan does; -1: none was
 * found for the sizes that are tried. */
static void find_ndim(const program *p, struct fl_network *memory, int *ndim) {
    static const int64_t sizes[] = {1, 2, 32, 64, 224};
    struct fl_program trial = {.network = p->network, .find = p->find, .device = p->device};
    bool found = true;
    for (int i = 0; i < p->network->graph.output_count; i++) {
        ndim[i] = p->network->values[p->network->graph.outputs[i]].ndim;
        found &= ndim[i] >= 0;
    }
    fl_fail_hold();
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && !found; s++)
        found = plan_outputs(&trial, memory, sizes[s], ndim);
    fl_fail_release(TENSOR_OK);
    fl_program_reset(&trial);
    fl_free(trial.constants);
}

/* The integers of ONNX saturate at the ends of their words, not where mantissas of fewer bits do. */
static tensor_status check_formats(const struct fl_net_graph *g) {
    for (int k = 0; k < g->node_count; k++) {
        const tensor_format format = g->nodes[k].format;
        if (format && tensor_format_is_shared(format) &&
            (!tensor_format_has_mantissas(format) || tensor_format_bits(format) != 16))
            return fl_fail(
                TENSOR_E_UNSUPPORTED,
                "program_export: node %s computes in %s, which ONNX cannot say: expected mantissas of 16 bits",
                fl_quote(g->nodes[k].name).text, tensor_format_name(format));
    }
    return TENSOR_OK;
}

tensor_status program_export(const program *p, const char *path) {
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_export: %s is NULL", p ? "path" : "p");
    if (check_formats(&p->network->graph))
        return TENSOR_E_UNSUPPORTED;
    struct fl_network *const memory = fl_network_new(FL_NET_ONNX);
    int *const ndim = memory ? fl_net_memory(memory, (size_t)p->network->graph.output_count * sizeof *ndim) : NULL;
    tensor_status status = ndim ? TENSOR_OK : TENSOR_E_MEMORY;
    if (!status) {
        find_ndim(p, memory, ndim);
        status = fl_onnx_export(p->network, ndim, path);
    }
    fl_network_free(memory);
    return status;
}
