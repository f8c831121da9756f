/* plan_values.c - values as the tensors that nodes read and write: in their formats and layouts, by copies and
 * conversions where a tensor has another one. */
#include "program/plan/plan_internal.h"
#include "core/base/fail.h"
#include "core/values/tensor_state.h"
#include <string.h>

const struct fl_known *fl_plan_in(const struct fl_planner *p, const struct fl_net_node *node, int operand) {
    return operand < node->input_count && node->inputs[operand] != -1 ? &p->known[node->inputs[operand]] : NULL;
}

const struct fl_array *fl_plan_out(const struct fl_planner *p, const struct fl_net_node *node, int result) {
    return result < node->output_count && node->outputs[result] != -1 ? &p->known[node->outputs[result]].array : NULL;
}

const struct fl_array *fl_plan_numbers(const struct fl_planner *p, const struct fl_net_node *node, int operand) {
    const struct fl_known *const k = fl_plan_in(p, node, operand);
    return k && !k->computed && k->slot < 0 && (k->array.data || !k->array.count) ? &k->array : NULL;
}

bool fl_plan_is_float(const struct fl_planner *p, const struct fl_net_node *node, int operand) {
    const struct fl_known *const k = fl_plan_in(p, node, operand);
    return k && fl_type_is_float(k->array.type);
}

/* Whether two orders of the dimensions of a value place its elements alike: dimensions of size 1 may stand anywhere. */
static bool same_order(const struct fl_array *a, const int *first, const int *second) {
    int j = 0;
    for (int i = 0; i < a->ndim && a->ndim <= TENSOR_MAX_DIMS; i++) {
        if (a->dim[first[i]] == 1)
            continue;
        while (a->dim[second[j]] == 1)
            j++;
        if (first[i] != second[j++])
            return false;
    }
    return true;
}

struct permutation {
    int order[TENSOR_MAX_DIMS];
};

static tensor_status run_permute(tensor *const *t, const void *with) {
    return tensor_permute(t[0], t[1], ((const struct permutation *)with)->order);
}

static tensor_status run_convert(tensor *const *t, const void *with) {
    (void)with;
    return tensor_rewrite(t[0], t[1]);
}

static tensor_status remember(struct fl_planner *p, int value, tensor_format format, const int *layout, int ndim,
                              int slot) {
    struct fl_prepared *const list =
        fl_plan_grown(p->plan, p->prepared, p->prepared_count, &p->prepared_room, sizeof *list);
    if (!list)
        return TENSOR_E_MEMORY;
    p->prepared = list;
    list[p->prepared_count] = (struct fl_prepared){.value = value, .slot = slot, .format = format};
    memcpy(list[p->prepared_count].layout, layout, (size_t)ndim * sizeof *layout);
    p->prepared_count++;
    return TENSOR_OK;
}

/* The same of bytes: the strides of the source in the order of the result. */
static struct fl_byte_strides byte_strides(const struct fl_planner *p, int slot, const int *order) {
    struct fl_byte_strides s;
    int64_t dim[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS], step = 1;
    s.ndim = fl_plan_shape(p, slot, dim);
    for (int d = s.ndim - 1; d >= 0; step *= dim[d--])
        stride[d] = step;
    for (int d = 0; d < s.ndim; d++) {
        s.dim[d] = dim[order[d]];
        s.stride[d] = stride[order[d]];
    }
    return s;
}

/* The tensor of a value in another order. */
static int permuted(struct fl_planner *p, const struct fl_net_node *node, const struct fl_known *k, int slot,
                    const int *layout) {
    struct permutation how = {{0}};
    for (int d = 0; d < k->array.ndim; d++)
        for (int s = 0; s < k->array.ndim; s++)
            if (k->layout[s] == layout[d])
                how.order[d] = s;
    struct fl_slot copy = {.kind = FL_SLOT_OWN,
                           .copy = true,
                           .format = p->plan->slots[slot].format,
                           .range = p->plan->slots[fl_plan_root_of(p->plan, slot)].range};
    int64_t dim[FL_ARRAY_DIMS];
    const int made =
        fl_plan_set_shape(&copy, fl_plan_ordered(&k->array, layout, dim), dim) ? fl_plan_add_slot(p->plan, copy) : -1;
    const int slots[] = {made, slot};
    if (made < 0)
        return -1;
    if (copy.format == FMT_U8) {
        const struct fl_byte_strides bytes = byte_strides(p, slot, how.order);
        return fl_plan_step(p, node, fl_plan_run_bytes, 1, 2, slots, &bytes, sizeof bytes) ? -1 : made;
    }
    return fl_plan_step(p, node, run_permute, 1, 2, slots, &how, sizeof how) ? -1 : made;
}

static int converted(struct fl_planner *p, const struct fl_net_node *node, int slot, tensor_format format) {
    struct fl_slot copy = p->plan->slots[slot];
    copy.kind = FL_SLOT_OWN;
    copy.copy = true;
    copy.format = format;
    copy.range = p->plan->slots[fl_plan_root_of(p->plan, slot)].range;
    const int made = fl_plan_add_slot(p->plan, copy);
    const int slots[] = {made, slot};
    return made < 0 || fl_plan_step(p, node, run_convert, 1, 2, slots, NULL, 0) ? -1 : made;
}

static tensor_status run_upload(tensor *const *t, const void *with) {
    const struct fl_array *const from = with;
    memcpy(fl_plan_data(t[0]), from->data, (size_t)from->count);
    return TENSOR_OK;
}

/* Bytes that an array of the host has when the program runs get a tensor. */
static tensor_status upload(struct fl_planner *p, const struct fl_net_node *node, struct fl_known *k) {
    struct fl_slot slot = {.kind = FL_SLOT_OWN, .format = FMT_U8};
    int64_t dim[FL_ARRAY_DIMS];
    const int made = fl_plan_set_shape(&slot, fl_plan_ordered(&k->array, fl_plan_in_order, dim), dim)
                         ? fl_plan_add_slot(p->plan, slot)
                         : -1;
    TRY(fl_plan_step(p, node, run_upload, 1, 1, &made, &k->array, sizeof k->array));
    k->slot = made;
    k->computed = false;
    memcpy(k->layout, fl_plan_in_order, sizeof fl_plan_in_order);
    return TENSOR_OK;
}

int fl_plan_value(struct fl_planner *p, const struct fl_net_node *node, int value, const int *layout) {
    struct fl_known *const k = &p->known[value];
    const tensor_format format = fl_plan_is_bytes(k->array.type) ? FMT_U8 : fl_plan_format(p, node);
    if (k->computed && k->slot < 0 && format == FMT_U8 && upload(p, node, k))
        return -1;
    const int ndim = k->array.ndim < TENSOR_MAX_DIMS ? k->array.ndim : TENSOR_MAX_DIMS;
    layout = layout ? layout : fl_plan_in_order;
    for (int i = 0; i < p->prepared_count; i++)
        if (p->prepared[i].value == value && p->prepared[i].format == format &&
            !memcmp(p->prepared[i].layout, layout, (size_t)ndim * sizeof *layout))
            return p->prepared[i].slot;
    int slot = k->slot;
    if (slot < 0) {
        if (k->computed || !k->array.data) {
            fl_fail(TENSOR_E_UNSUPPORTED, "%s is no number", p->network->values[value].name);
            return -1;
        }
        slot = fl_plan_constant_slot(p, p->network->values[value].constant, -1, format, &k->array, layout);
    } else {
        int64_t dim[FL_ARRAY_DIMS];
        if (same_order(&k->array, k->layout, layout)) {
            const int count = fl_plan_ordered(&k->array, layout, dim);
            slot = fl_plan_view(p, slot, count ? count : 1, count ? dim : (const int64_t[]){1});
        } else {
            slot = permuted(p, node, k, slot, layout);
        }
        if (slot >= 0 && p->plan->slots[slot].format != format) {
            const int before = p->plan->step_count;
            slot = converted(p, node, slot, format);
            if (slot >= 0 && fl_plan_add_mark(p, node, value, slot, layout, before, true))
                return -1;
        }
    }
    return slot < 0 || remember(p, value, format, layout, ndim, slot) ? -1 : slot;
}

const struct fl_net_node *fl_plan_in_format(struct fl_planner *p, const struct fl_net_node *node,
                                            tensor_format format) {
    struct fl_net_node *const other = fl_net_memory(p->plan->memory, sizeof *other);
    if (other) {
        *other = *node;
        other->format = format;
    }
    return other;
}

const struct fl_network *fl_plan_network(const struct fl_planner *p) {
    return p->network;
}

struct fl_program *fl_plan_program(const struct fl_planner *p) {
    return p->program;
}

int fl_plan_operand(struct fl_planner *p, const struct fl_net_node *node, int operand, const int *layout) {
    return fl_plan_value(p, node, node->inputs[operand], layout);
}

int fl_plan_result(struct fl_planner *p, const struct fl_net_node *node, int result, const int *layout) {
    const int value = node->outputs[result];
    struct fl_known *const k = &p->known[value];
    const bool bytes = fl_plan_is_bytes(k->array.type);
    struct fl_slot slot = {.kind = FL_SLOT_OWN,
                           .format = bytes ? FMT_U8 : fl_plan_format(p, node),
                           .range = bytes ? NULL : &p->network->values[value].range};
    int64_t dim[FL_ARRAY_DIMS];
    layout = layout ? layout : fl_plan_in_order;
    if (!fl_plan_set_shape(&slot, fl_plan_ordered(&k->array, layout, dim), dim))
        return -1;
    k->slot = fl_plan_add_slot(p->plan, slot);
    k->planned = true;
    memcpy(k->layout, layout, sizeof k->layout);
    return k->slot;
}

tensor_status fl_plan_result_is(struct fl_planner *p, const struct fl_net_node *node, int result, int slot,
                                const int *layout) {
    struct fl_known *const k = &p->known[node->outputs[result]];
    int64_t dim[FL_ARRAY_DIMS];
    layout = layout ? layout : fl_plan_in_order;
    const int ndim = fl_plan_ordered(&k->array, layout, dim);
    if (slot >= 0)
        slot = fl_plan_view(p, slot, ndim ? ndim : 1, ndim ? dim : (const int64_t[]){1});
    if (slot < 0)
        return TENSOR_E_MEMORY;
    k->slot = slot;
    k->planned = true;
    memcpy(k->layout, layout, sizeof k->layout);
    return TENSOR_OK;
}
