/* plan_slots.c - the tensors of a plan: slots, views of them, and constants, which a program prepares once. */
#include "program/plan/plan_internal.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

const int fl_plan_in_order[TENSOR_MAX_DIMS] = {0, 1, 2, 3, 4, 5};

void *fl_plan_grown(struct fl_plan *plan, void *list, int used, int *room, size_t size) {
    if (used < *room)
        return list;
    const int more = *room ? 2 * *room : 64;
    void *const copy = fl_net_memory(plan->memory, (size_t)more * size);
    if (copy && used)
        memcpy(copy, list, (size_t)used * size);
    if (copy)
        *room = more;
    return copy;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

int fl_plan_add_slot(struct fl_plan *plan, struct fl_slot slot) {
    struct fl_slot *const slots = fl_plan_grown(plan, plan->slots, plan->slot_count, &plan->slot_room, sizeof *slots);
    if (!slots)
        return -1;
    int64_t count = 1;
    for (int d = 0; d < slot.ndim; d++)
        count *= slot.dim[d];
    if (count < 1) {
        fl_fail(TENSOR_E_UNSUPPORTED, "a tensor without elements");
        return -1;
    }
    slot.bytes = (size_t)count * tensor_format_bytes(slot.format);
    slot.first = slot.last = -1;
    plan->slots = slots;
    slots[plan->slot_count] = slot;
    return plan->slot_count++;
}

int fl_plan_ordered(const struct fl_array *a, const int *layout, int64_t *dim) {
    if (a->ndim > TENSOR_MAX_DIMS) {
        dim[0] = a->count;
        return 1;
    }
    for (int d = 0; d < a->ndim; d++)
        dim[d] = a->dim[layout[d]];
    return a->ndim;
}

int fl_plan_root_of(const struct fl_plan *plan, int slot) {
    while (plan->slots[slot].kind == FL_SLOT_VIEW || plan->slots[slot].kind == FL_SLOT_STRIDED)
        slot = plan->slots[slot].base;
    return slot;
}

bool fl_plan_set_shape(struct fl_slot *slot, int ndim, const int64_t *dim) {
    if (ndim > TENSOR_MAX_DIMS) {
        fl_fail(TENSOR_E_UNSUPPORTED, "a tensor of %d dimensions, expected at most %d", ndim, TENSOR_MAX_DIMS);
        return false;
    }
    slot->ndim = ndim ? ndim : 1;
    slot->dim[0] = 1;
    for (int d = 0; d < ndim; d++)
        slot->dim[d] = dim[d];
    return true;
}

int fl_plan_shape(const struct fl_planner *p, int slot, int64_t dim[TENSOR_MAX_DIMS]) {
    const struct fl_slot *const s = &p->plan->slots[slot];
    memcpy(dim, s->dim, sizeof s->dim);
    return s->ndim;
}

tensor_format fl_plan_format(const struct fl_planner *p, const struct fl_net_node *node) {
    return p->program->observing || !node->format ? FMT_FP32 : node->format;
}

int fl_plan_view(struct fl_planner *p, int slot, int ndim, const int64_t *dim) {
    const struct fl_slot *const base = &p->plan->slots[slot];
    if (base->ndim == ndim && !memcmp(base->dim, dim, (size_t)ndim * sizeof *dim))
        return slot;
    struct fl_slot view = {.kind = FL_SLOT_VIEW, .format = base->format, .base = slot};
    return fl_plan_set_shape(&view, ndim, dim) ? fl_plan_add_slot(p->plan, view) : -1;
}

int fl_plan_strided(struct fl_planner *p, int slot, int ndim, const int64_t *dim, const int64_t *stride,
                    int64_t offset) {
    struct fl_slot view = {
        .kind = FL_SLOT_STRIDED, .format = p->plan->slots[slot].format, .base = slot, .offset = offset};
    if (!fl_plan_set_shape(&view, ndim, dim))
        return -1;
    if (ndim)
        memcpy(view.stride, stride, (size_t)ndim * sizeof *stride);
    return fl_plan_add_slot(p->plan, view);
}

/* The range of a tensor of the node that is no value. */
static struct fl_range *inner_range(struct fl_planner *p, const struct fl_net_node *node) {
    struct fl_net_node *const owner = (struct fl_net_node *)node; /* ranges are the one thing that a plan changes */
    if (p->temporaries == FL_NODE_TEMPORARIES) {
        fl_fail(TENSOR_E_UNSUPPORTED, "more than %d tensors within a node", FL_NODE_TEMPORARIES);
        return NULL;
    }
    if (!owner->inner)
        owner->inner = fl_net_memory(p->network, FL_NODE_TEMPORARIES * sizeof *owner->inner);
    return owner->inner ? &owner->inner[p->temporaries++] : NULL;
}

int fl_plan_temporary(struct fl_planner *p, const struct fl_net_node *node, int ndim, const int64_t *dim) {
    struct fl_slot slot = {.kind = FL_SLOT_OWN, .format = fl_plan_format(p, node), .range = inner_range(p, node)};
    return slot.range && fl_plan_set_shape(&slot, ndim, dim) ? fl_plan_add_slot(p->plan, slot) : -1;
}

int fl_plan_temporary_numbers(struct fl_planner *p, const struct fl_net_node *node, tensor_format format, int ndim,
                              const int64_t *dim) {
    (void)node;
    struct fl_slot slot = {.kind = FL_SLOT_OWN, .format = format};
    return fl_plan_set_shape(&slot, ndim, dim) ? fl_plan_add_slot(p->plan, slot) : -1;
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

static tensor *find_constant(const struct fl_program *of, const void *owner, int key, tensor_format format,
                             const int *layout) {
    for (int i = 0; i < of->constant_count; i++) {
        const struct fl_program_constant *const c = &of->constants[i];
        if (c->owner == owner && c->key == key && c->format == format && !memcmp(c->layout, layout, sizeof c->layout))
            return c->t;
    }
    return NULL;
}

static tensor_status keep_constant(struct fl_program *of, struct fl_program_constant c) {
    if (of->constant_count == of->constant_room) {
        const int room = of->constant_room ? 2 * of->constant_room : 64;
        struct fl_program_constant *const more = fl_alloc((size_t)room * sizeof *more);
        if (!more)
            return fl_fail(TENSOR_E_MEMORY, "no memory for a list of constants");
        if (of->constant_count)
            memcpy(more, of->constants, (size_t)of->constant_count * sizeof *more);
        fl_free(of->constants);
        of->constants = more;
        of->constant_room = room;
    }
    of->constants[of->constant_count++] = c;
    return TENSOR_OK;
}

/* Makes the tensor of a constant: elements of an array in another order of dimensions. Where the constant is not the
 * program's (the planner has computed it), the plan has it. */
static tensor_status make_constant(struct fl_planner *p, tensor **t, tensor_format format, const struct fl_slot *shape,
                                   const struct fl_array *array, const int *layout) {
    int64_t stride[FL_ARRAY_DIMS], index[FL_ARRAY_DIMS] = {0}, step = 1;
    for (int d = array->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= array->dim[d];
    }
    double *const numbers = fl_alloc((size_t)array->count * sizeof *numbers);
    if (!numbers)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a constant of %lld numbers", (long long)array->count);
    int64_t from = 0;
    for (int64_t i = 0; i < array->count; i++) {
        numbers[i] = fl_array_number(array, from);
        for (int d = array->ndim - 1; d >= 0; d--) {
            const int of = layout[d];
            from += stride[of];
            if (++index[d] < array->dim[of])
                break;
            from -= stride[of] * array->dim[of];
            index[d] = 0;
        }
    }
    tensor_device *const device = format == FMT_U8 ? tensor_device_at(0) : p->program->device;
    *t = tensor_new_in(device, format, shape->ndim, shape->dim);
    const tensor_status status = !*t                ? TENSOR_E_MEMORY
                                 : format == FMT_U8 ? TENSOR_OK
                                                    : tensor_load_f64(*t, numbers, array->count);
    for (int64_t i = 0; i < array->count && *t && format == FMT_U8; i++)
        ((uint8_t *)fl_plan_data(*t))[i] = (uint8_t)(int)numbers[i]; /* an int8 is its byte */
    fl_free(numbers);
    if (status) {
        tensor_free(*t);
        *t = NULL;
    }
    return status;
}

int fl_plan_constant_slot(struct fl_planner *p, const void *owner, int key, tensor_format format,
                          const struct fl_array *array, const int *layout) {
    struct fl_slot slot = {.kind = FL_SLOT_CONSTANT, .format = format};
    int64_t dim[FL_ARRAY_DIMS];
    int where[TENSOR_MAX_DIMS] = {0};
    struct fl_array line = {.type = array->type, .ndim = 1, .dim = {array->count}, .count = array->count};
    line.data = array->data;
    if (array->ndim > TENSOR_MAX_DIMS)
        array = &line;
    for (int d = 0; d < array->ndim; d++)
        where[d] = layout[d];
    if (!fl_plan_set_shape(&slot, fl_plan_ordered(array, layout, dim), dim))
        return -1;
    slot.t = owner ? find_constant(p->program, owner, key, format, where) : NULL;
    if (!slot.t) {
        struct fl_program_constant c = {.owner = owner, .key = key, .format = format};
        memcpy(c.layout, where, sizeof where);
        if (make_constant(p, &c.t, format, &slot, array, layout))
            return -1;
        slot.t = c.t;
        slot.owned = !owner;
        if (owner && keep_constant(p->program, c)) {
            tensor_free(c.t);
            return -1;
        }
    }
    const int made = fl_plan_add_slot(p->plan, slot);
    if (made < 0 && slot.owned)
        tensor_free(slot.t);
    return made;
}

static struct fl_array of_doubles(int ndim, const int64_t *dim, const double *numbers) {
    struct fl_array a = {.type = TENSOR_TYPE_F64, .ndim = ndim, .count = 1, .data = (void *)numbers};
    for (int d = 0; d < ndim; d++) {
        a.dim[d] = dim[d];
        a.count *= dim[d];
    }
    return a;
}

/* Who shares a constant of a node's own: all plans, by the node, where it follows from constants of the network; nobody
 * (NULL) where other operands are known to this plan alone, from its inputs or their shapes. */
static const void *owner_of(const struct fl_planner *p, const struct fl_net_node *node) {
    for (int i = 1; i < node->input_count; i++)
        if (node->inputs[i] != -1 && !p->network->values[node->inputs[i]].constant)
            return NULL;
    return node;
}

int fl_plan_constant(struct fl_planner *p, const struct fl_net_node *node, int key, int ndim, const int64_t *dim,
                     const double *numbers) {
    const struct fl_array a = of_doubles(ndim, dim, numbers);
    return fl_plan_constant_slot(p, owner_of(p, node), key, fl_plan_format(p, node), &a, fl_plan_in_order);
}

int fl_plan_numbers_constant(struct fl_planner *p, const struct fl_net_node *node, int key, tensor_format format,
                             int ndim, const int64_t *dim, const double *numbers) {
    const struct fl_array a = of_doubles(ndim, dim, numbers);
    return fl_plan_constant_slot(p, owner_of(p, node), key, format, &a, fl_plan_in_order);
}

double *fl_plan_doubles(struct fl_planner *p, const struct fl_array *a) {
    double *const numbers = fl_net_memory(p->plan->memory, (size_t)a->count * sizeof *numbers);
    for (int64_t i = 0; numbers && i < a->count; i++)
        numbers[i] = fl_array_number(a, i);
    return numbers;
}
