/* plan_trace.c - results of a plan: marked while it is made, shown to the watcher of the program as they arise. */
#include "program/plan/plan_internal.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

/* --- marks -------------------------------------------------------------------------------------------------------- */

tensor_status fl_plan_add_mark(struct fl_planner *p, const struct fl_net_node *node, int value, int slot,
                               const int *layout, int before, bool cast) {
    struct fl_plan *const plan = p->plan;
    struct fl_mark *const marks = fl_plan_grown(plan, plan->marks, plan->mark_count, &plan->mark_room, sizeof *marks);
    if (!marks)
        return TENSOR_E_MEMORY;
    plan->marks = marks;
    marks[plan->mark_count] = (struct fl_mark){.node = node,
                                               .value = value,
                                               .slot = slot,
                                               .before = before,
                                               .after = plan->step_count,
                                               .cast = cast,
                                               .array = p->known[value].array};
    for (int d = 0; d < p->known[value].array.ndim && d < TENSOR_MAX_DIMS; d++) /* a layout has no more */
        marks[plan->mark_count].layout[d] = layout[d];
    plan->mark_count++;
    return TENSOR_OK;
}

tensor_status fl_plan_mark_results(struct fl_planner *p, const struct fl_net_node *node, int before) {
    for (int i = 0; i < node->output_count; i++) {
        const struct fl_known *const k = node->outputs[i] == -1 ? NULL : &p->known[node->outputs[i]];
        if (k && (k->slot >= 0 || k->computed))
            TRY(fl_plan_add_mark(p, node, node->outputs[i], k->slot, k->layout, before, false));
    }
    return TENSOR_OK;
}

/* --- shown -------------------------------------------------------------------------------------------------------- */

/* Elements of a tensor that stores the dimensions of an array in another order, in the array's order. */
static void reorder(char *to, const char *from, size_t size, const struct fl_array *a, const int *layout) {
    int64_t stride[FL_ARRAY_DIMS], index[FL_ARRAY_DIMS] = {0}, step = 1, at = 0;
    for (int d = a->ndim - 1; d >= 0; d--) {
        stride[layout[d]] = step;
        step *= a->dim[layout[d]];
    }
    for (int64_t i = 0; i < a->count; i++) {
        memcpy(to + (size_t)i * size, from + (size_t)at * size, size);
        for (int d = a->ndim - 1; d >= 0; d--) {
            at += stride[d];
            if (++index[d] < a->dim[d])
                break;
            at -= stride[d] * a->dim[d];
            index[d] = 0;
        }
    }
}

static bool in_order(const struct fl_array *a, const int *layout) {
    for (int d = 0; d < a->ndim; d++)
        if (layout[d] != d)
            return false;
    return true;
}

/* The elements of a slot in the network's order, in memory to be freed. */
static tensor_status take_numbers(const struct fl_mark *m, tensor *t, bool floats, void **numbers) {
    const struct fl_array *const a = &m->array;
    const size_t size = floats ? sizeof(float) : fl_type_bytes(a->type);
    const bool moved = a->ndim <= TENSOR_MAX_DIMS && !in_order(a, m->layout);
    char *const stored = fl_alloc((size_t)a->count * size * (moved ? 2 : 1));
    if (!stored)
        return fl_fail(TENSOR_E_MEMORY, "no memory to show %lld numbers", (long long)a->count);
    *numbers = stored;
    if (floats)
        TRY(tensor_store_f32(t, *numbers, a->count));
    else if (tensor_format_of(t) == FMT_U8) /* bytes of the value's type, int8 or uint8 */
        memcpy(stored, fl_plan_data(t), (size_t)a->count * size);
    else
        TRY(tensor_store_array(t, *numbers, a->type, a->count, NULL));
    if (moved) {
        char *const from = stored + (size_t)a->count * size;
        memcpy(from, stored, (size_t)a->count * size);
        reorder(stored, from, size, a, m->layout);
    }
    return TENSOR_OK;
}

program_node fl_program_node(const struct fl_network *n, const struct fl_net_node *node) {
    const bool quantised = fl_net_is_quantised(n, node);
    return (program_node){.name = node->name,
                          .op = node->op,
                          .domain = node->domain,
                          .format = node->format ? node->format : FMT_FP32,
                          .quantised = quantised,
                          .border = !quantised && fl_net_is_border(node)};
}

/* Shows one mark. What a view has was written, and counted, where its base was. */
static tensor_status show(struct fl_plan *plan, const struct fl_mark *m) {
    const struct fl_program *const p = plan->program;
    const bool floats = !m->array.type || fl_type_is_float(m->array.type);
    program_tensor shown = {.value = p->network->values[m->value].name,
                            .node = fl_program_node(p->network, m->node),
                            .cast = m->cast,
                            .numbers = {.type = floats ? TENSOR_TYPE_F32 : m->array.type, .ndim = m->array.ndim}};
    memcpy(shown.numbers.shape, m->array.dim, sizeof m->array.dim);
    const struct fl_quantisation *const q = p->network->values[m->value].quantisation;
    if (q && q->count == 1 && !floats) {
        shown.scale = q->scale[0];
        shown.zero = q->zero[0];
    }
    if (m->slot < 0) {
        shown.numbers.data = m->array.data;
        return p->watcher(p->watching, &shown);
    }
    int root = m->slot;
    while (plan->slots[root].kind == FL_SLOT_VIEW || plan->slots[root].kind == FL_SLOT_STRIDED)
        root = plan->slots[root].base;
    const struct fl_slot *const base = &plan->slots[root];
    if (base->kind == FL_SLOT_OWN && base->last < m->after - 1)
        return TENSOR_OK; /* nobody reads it, and others have its memory already */
    tensor *const t = plan->slots[m->slot].t;
    tensor_stats last;
    void *numbers = NULL;
    TRY(tensor_statistics(&last, NULL, base->t));
    if (floats)
        shown.format = tensor_format_of(t);
    shown.exponent = tensor_exponent(base->t);
    if (base->kind == FL_SLOT_OWN && base->first >= m->before) {
        shown.saturated = last.saturated;
        shown.flushed = last.flushed;
    }
    tensor_status status = take_numbers(m, t, floats, &numbers);
    shown.numbers.data = numbers;
    if (!status)
        status = p->watcher(p->watching, &shown);
    fl_free(numbers);
    return status;
}

tensor_status fl_trace(struct fl_plan *plan, int done, int *next) {
    for (; plan->program->watcher && *next < plan->mark_count && plan->marks[*next].after <= done; ++*next)
        TRY(show(plan, &plan->marks[*next]));
    return TENSOR_OK;
}
