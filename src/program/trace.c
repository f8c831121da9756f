/* trace.c - what a program computes, shown to whoever compares it with another: results as they arise
 * (plan/plan_trace.c), constants as they are rounded, and checksums of them. */
#include "program/arrays/operators.h"
#include "program/passes/passes.h"
#include "program/plan/program_object.h"
#include "program/store/rounded.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

tensor_status program_watch(program *p, program_watcher *watcher, void *context) {
    if (!p)
        return fl_fail(TENSOR_E_ARGUMENT, "program_watch: p is NULL");
    p->watcher = watcher;
    p->watching = context;
    return TENSOR_OK;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static tensor_status show_weight(const struct fl_network *n, int value, tensor_format format,
                                 const struct fl_net_node *reader, program_watcher *watcher, void *context) {
    const struct fl_array *const a = n->values[value].constant;
    struct fl_rounded r;
    float *const original = fl_alloc((size_t)a->count * sizeof *original);
    if (!original)
        return fl_fail(TENSOR_E_MEMORY, "no memory to show %lld numbers", (long long)a->count);
    for (int64_t i = 0; i < a->count; i++)
        original[i] = (float)fl_array_number(a, i);
    tensor_status status = fl_round(&r, a, format);
    if (!status) {
        program_tensor shown = {.value = n->values[value].name,
                                .node = fl_program_node(n, reader),
                                .format = format,
                                .exponent = tensor_exponent(r.t),
                                .saturated = r.stats.saturated,
                                .flushed = r.stats.flushed,
                                .numbers = {.type = TENSOR_TYPE_F32, .ndim = a->ndim, .data = r.numbers},
                                .original = original};
        memcpy(shown.numbers.shape, a->dim, sizeof a->dim);
        status = watcher(context, &shown);
        fl_round_end(&r);
    }
    fl_free(original);
    return status;
}

/* The first node that reads a value; NULL: none does. */
static const struct fl_net_node *reader_of(const struct fl_net_graph *graph, int value) {
    for (int k = 0; k < graph->node_count; k++)
        for (int i = 0; i < graph->nodes[k].input_count; i++)
            if (graph->nodes[k].inputs[i] == value)
                return &graph->nodes[k];
    return NULL;
}

static tensor_status show_integers(const struct fl_network *n, int value, const struct fl_net_node *reader,
                                   program_watcher *watcher, void *context) {
    const struct fl_net_value *const v = &n->values[value];
    const struct fl_array *const q = v->constant;
    float *const reals = fl_alloc(2 * (size_t)q->count * sizeof *reals), *const original = reals + q->count;
    if (!reals)
        return fl_fail(TENSOR_E_MEMORY, "no memory to show %lld numbers", (long long)q->count);
    program_tensor shown = {.value = v->name,
                            .node = fl_program_node(n, reader),
                            .numbers = {.type = TENSOR_TYPE_F32, .ndim = q->ndim, .data = reals},
                            .original = original,
                            .integers = q->type};
    memcpy(shown.numbers.shape, q->dim, sizeof q->dim);
    fl_pass_reals(reals, v);
    const int64_t most = q->type == TENSOR_TYPE_I8 ? 127 : INT32_MAX;
    for (int64_t i = 0; i < q->count; i++) {
        original[i] = (float)fl_array_number(v->exact, i);
        const int64_t integer = fl_array_integer(q, i);
        const double size = fabs((double)original[i]);
        shown.flushed += size > 0 && fabs((double)reals[i]) == 0;
        shown.saturated += llabs(integer) >= most && size > fabs((double)reals[i]) * (1 + 0.5 / (double)most);
    }
    const tensor_status status = watcher(context, &shown);
    fl_free(reals);
    return status;
}

tensor_status program_weights(const program *p, program_watcher *watcher, void *context) {
    if (!p || !watcher)
        return fl_fail(TENSOR_E_ARGUMENT, "program_weights: %s is NULL", p ? "watcher" : "p");
    const struct fl_network *const n = p->network;
    struct fl_constant_use *const uses = fl_constant_uses(n);
    tensor_status status = uses ? TENSOR_OK : TENSOR_E_MEMORY;
    for (int v = 0; v < n->value_count && !status; v++)
        for (int i = 0; i < uses[v].count && !status; i++)
            status = show_weight(n, v, uses[v].format[i], uses[v].node[i], watcher, context);
    fl_free(uses);
    for (int v = 0; v < n->value_count && !status; v++) {
        const struct fl_net_node *const reader = n->values[v].exact ? reader_of(&n->graph, v) : NULL;
        if (reader && n->values[v].constant->count)
            status = show_integers(n, v, reader, watcher, context);
    }
    return status;
}

/* --- checksums ---------------------------------------------------------------------------------------------------- */

/* The multiplicative hash of Knuth, The Art of Computer Programming, volume 3, section 6.4, as a number from -1 to 1.
 */
static double probe(int64_t i) {
    return (double)(uint32_t)(((uint64_t)i + 1) * 2654435761u) * 0x1p-31 - 1;
}

program_sum program_checksum(const float *y, int64_t n) {
    program_sum s = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        s.sum += probe(i) * (double)y[i];
        s.magnitude += (double)y[i] * (double)y[i];
    }
    if (n > 0) {
        s.sum *= sqrt(3.0 / (double)n);
        s.magnitude = sqrt(s.magnitude / (double)n);
    }
    return s;
}

tensor_status program_probe(program_array *input) {
    if (!input)
        return fl_fail(TENSOR_E_ARGUMENT, "program_probe: input is NULL");
    struct fl_array a = {.type = input->type, .count = 1, .data = input->data};
    for (int d = 0; d < input->ndim; d++)
        a.count *= input->shape[d];
    if (!fl_type_bytes(a.type) || (a.count && !a.data))
        return fl_fail(TENSOR_E_ARGUMENT, "program_probe: %s", a.data ? "an unknown type" : "data is NULL");
    for (int64_t i = 0; i < a.count; i++) {
        const double c = probe(i);
        if (fl_type_is_float(a.type))
            fl_array_put_number(&a, i, c);
        else
            fl_array_put_integer(&a, i,
                                 a.type == TENSOR_TYPE_U8   ? (int64_t)floor(128 * c) + 128
                                 : a.type == TENSOR_TYPE_I8 ? (int64_t)floor(128 * c)
                                                            : i % 2);
    }
    return TENSOR_OK;
}
