/* plan.c - see plan.h: walks the nodes of a network for given input shapes, folds what is known, and collects steps. */
#include "program/plan/plan_internal.h"
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include <stdio.h>
#include <string.h>

static const int in_order[TENSOR_MAX_DIMS] = {0, 1, 2, 3, 4, 5};

tensor_status fl_plan_failed(const struct fl_net_node *node, tensor_status status) {
    char why[400];
    snprintf(why, sizeof why, "%s", tensor_error());
    return fl_fail(status, "node %s (%s): %s", node->name, node->op, why);
}

/* A list of the plan's memory that gets one more element. */
static void *grown(struct fl_plan *plan, void *list, int used, int *room, size_t size) {
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

static int add_slot(struct fl_plan *plan, struct fl_slot slot) {
    struct fl_slot *const slots = grown(plan, plan->slots, plan->slot_count, &plan->slot_room, sizeof *slots);
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

/* Dimensions of a value's tensor in an order. One with more than tensors have is a line of numbers in the order of the
 * network; only compute() takes it (plan_node). */
static int ordered(const struct fl_array *a, const int *layout, int64_t *dim) {
    if (a->ndim > TENSOR_MAX_DIMS) {
        dim[0] = a->count;
        return 1;
    }
    for (int d = 0; d < a->ndim; d++)
        dim[d] = a->dim[layout[d]];
    return a->ndim;
}

static int root_of(const struct fl_plan *plan, int slot) {
    while (plan->slots[slot].kind == FL_SLOT_VIEW || plan->slots[slot].kind == FL_SLOT_STRIDED)
        slot = plan->slots[slot].base;
    return slot;
}

/* Sets the shape of a slot; a scalar is one element in one dimension. False with tensor_error() if it has too many. */
static bool set_shape(struct fl_slot *slot, int ndim, const int64_t *dim) {
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
    return set_shape(&view, ndim, dim) ? add_slot(p->plan, view) : -1;
}

int fl_plan_strided(struct fl_planner *p, int slot, int ndim, const int64_t *dim, const int64_t *stride,
                    int64_t offset) {
    struct fl_slot view = {
        .kind = FL_SLOT_STRIDED, .format = p->plan->slots[slot].format, .base = slot, .offset = offset};
    if (!set_shape(&view, ndim, dim))
        return -1;
    if (ndim)
        memcpy(view.stride, stride, (size_t)ndim * sizeof *stride);
    return add_slot(p->plan, view);
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
    return slot.range && set_shape(&slot, ndim, dim) ? add_slot(p->plan, slot) : -1;
}

int fl_plan_temporary_numbers(struct fl_planner *p, const struct fl_net_node *node, tensor_format format, int ndim,
                              const int64_t *dim) {
    (void)node;
    struct fl_slot slot = {.kind = FL_SLOT_OWN, .format = format};
    return set_shape(&slot, ndim, dim) ? add_slot(p->plan, slot) : -1;
}

/* --- marks -------------------------------------------------------------------------------------------------------- */

static tensor_status add_mark(struct fl_planner *p, const struct fl_net_node *node, int value, int slot,
                              const int *layout, int before, bool cast) {
    struct fl_plan *const plan = p->plan;
    struct fl_mark *const marks = grown(plan, plan->marks, plan->mark_count, &plan->mark_room, sizeof *marks);
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

/* Marks what a node has computed; results that are known before a run are none. */
static tensor_status mark_results(struct fl_planner *p, const struct fl_net_node *node, int before) {
    for (int i = 0; i < node->output_count; i++) {
        const struct fl_known *const k = node->outputs[i] == -1 ? NULL : &p->known[node->outputs[i]];
        if (k && (k->slot >= 0 || k->computed))
            TRY(add_mark(p, node, node->outputs[i], k->slot, k->layout, before, false));
    }
    return TENSOR_OK;
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

/* A slot for a constant: found, or made. Without an owner it is the plan's. */
static int constant_slot(struct fl_planner *p, const void *owner, int key, tensor_format format,
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
    if (!set_shape(&slot, ordered(array, layout, dim), dim))
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
    const int made = add_slot(p->plan, slot);
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
    return constant_slot(p, owner_of(p, node), key, fl_plan_format(p, node), &a, in_order);
}

int fl_plan_numbers_constant(struct fl_planner *p, const struct fl_net_node *node, int key, tensor_format format,
                             int ndim, const int64_t *dim, const double *numbers) {
    const struct fl_array a = of_doubles(ndim, dim, numbers);
    return constant_slot(p, owner_of(p, node), key, format, &a, in_order);
}

double *fl_plan_doubles(struct fl_planner *p, const struct fl_array *a) {
    double *const numbers = fl_net_memory(p->plan->memory, (size_t)a->count * sizeof *numbers);
    for (int64_t i = 0; numbers && i < a->count; i++)
        numbers[i] = fl_array_number(a, i);
    return numbers;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

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
    return fl_tensor_rewrite(t[0], t[1]);
}

static tensor_status remember(struct fl_planner *p, int value, tensor_format format, const int *layout, int ndim,
                              int slot) {
    struct fl_prepared *const list = grown(p->plan, p->prepared, p->prepared_count, &p->prepared_room, sizeof *list);
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
                           .range = p->plan->slots[root_of(p->plan, slot)].range};
    int64_t dim[FL_ARRAY_DIMS];
    const int made = set_shape(&copy, ordered(&k->array, layout, dim), dim) ? add_slot(p->plan, copy) : -1;
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
    copy.range = p->plan->slots[root_of(p->plan, slot)].range;
    const int made = add_slot(p->plan, copy);
    const int slots[] = {made, slot};
    return made < 0 || fl_plan_step(p, node, run_convert, 1, 2, slots, NULL, 0) ? -1 : made;
}

static bool is_bytes(tensor_type type) {
    return type == TENSOR_TYPE_I8 || type == TENSOR_TYPE_U8;
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
    const int made = set_shape(&slot, ordered(&k->array, in_order, dim), dim) ? add_slot(p->plan, slot) : -1;
    TRY(fl_plan_step(p, node, run_upload, 1, 1, &made, &k->array, sizeof k->array));
    k->slot = made;
    k->computed = false;
    memcpy(k->layout, in_order, sizeof in_order);
    return TENSOR_OK;
}

int fl_plan_value(struct fl_planner *p, const struct fl_net_node *node, int value, const int *layout) {
    struct fl_known *const k = &p->known[value];
    const tensor_format format = is_bytes(k->array.type) ? FMT_U8 : fl_plan_format(p, node);
    if (k->computed && k->slot < 0 && format == FMT_U8 && upload(p, node, k))
        return -1;
    const int ndim = k->array.ndim < TENSOR_MAX_DIMS ? k->array.ndim : TENSOR_MAX_DIMS;
    layout = layout ? layout : in_order;
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
        slot = constant_slot(p, p->network->values[value].constant, -1, format, &k->array, layout);
    } else {
        int64_t dim[FL_ARRAY_DIMS];
        if (same_order(&k->array, k->layout, layout)) {
            const int count = ordered(&k->array, layout, dim);
            slot = fl_plan_view(p, slot, count ? count : 1, count ? dim : (const int64_t[]){1});
        } else {
            slot = permuted(p, node, k, slot, layout);
        }
        if (slot >= 0 && p->plan->slots[slot].format != format) {
            const int before = p->plan->step_count;
            slot = converted(p, node, slot, format);
            if (slot >= 0 && add_mark(p, node, value, slot, layout, before, true))
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
    const bool bytes = is_bytes(k->array.type);
    struct fl_slot slot = {.kind = FL_SLOT_OWN,
                           .format = bytes ? FMT_U8 : fl_plan_format(p, node),
                           .range = bytes ? NULL : &p->network->values[value].range};
    int64_t dim[FL_ARRAY_DIMS];
    layout = layout ? layout : in_order;
    if (!set_shape(&slot, ordered(&k->array, layout, dim), dim))
        return -1;
    k->slot = add_slot(p->plan, slot);
    k->planned = true;
    memcpy(k->layout, layout, sizeof k->layout);
    return k->slot;
}

tensor_status fl_plan_result_is(struct fl_planner *p, const struct fl_net_node *node, int result, int slot,
                                const int *layout) {
    struct fl_known *const k = &p->known[node->outputs[result]];
    int64_t dim[FL_ARRAY_DIMS];
    layout = layout ? layout : in_order;
    const int ndim = ordered(&k->array, layout, dim);
    if (slot >= 0)
        slot = fl_plan_view(p, slot, ndim ? ndim : 1, ndim ? dim : (const int64_t[]){1});
    if (slot < 0)
        return TENSOR_E_MEMORY;
    k->slot = slot;
    k->planned = true;
    memcpy(k->layout, layout, sizeof k->layout);
    return TENSOR_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static struct fl_step *add_step(struct fl_planner *p, const struct fl_net_node *node) {
    struct fl_plan *const plan = p->plan;
    struct fl_step *const steps = grown(plan, plan->steps, plan->step_count, &plan->step_room, sizeof *steps);
    if (!steps)
        return NULL;
    plan->steps = steps;
    steps[plan->step_count] = (struct fl_step){.node = node};
    return &steps[plan->step_count++];
}

static void use(struct fl_plan *plan, int slot, int step) {
    struct fl_slot *const root = &plan->slots[root_of(plan, slot)];
    if (root->first < 0 && root->last < 0)
        root->first = step;
    root->last = step;
}

tensor_status fl_plan_step(struct fl_planner *p, const struct fl_net_node *node, fl_step_run *run, int written,
                           int count, const int *slots, const void *with, size_t bytes) {
    for (int i = 0; i < written; i++)
        if (slots[i] < 0)
            return tensor_error_status();
    struct fl_step *const step = add_step(p, node);
    void *const copy = bytes ? fl_net_memory(p->plan->memory, bytes) : NULL;
    if (!step || (bytes && !copy))
        return TENSOR_E_MEMORY;
    if (bytes)
        memcpy(copy, with, bytes);
    step->run = run;
    step->with = copy;
    step->written = written;
    step->count = count;
    memcpy(step->slots, slots, (size_t)count * sizeof *slots);
    for (int i = 0; i < count; i++)
        if (slots[i] >= 0)
            use(p->plan, slots[i], p->plan->step_count - 1);
    return TENSOR_OK;
}

/* --- nodes on arrays of the host ---------------------------------------------------------------------------------- */

/* The operands and results of a node as arrays. */
static tensor_status gather_arrays(struct fl_planner *p, const struct fl_net_node *node, bool quantised,
                                   struct fl_arrays *a) {
    const struct fl_array **const in = fl_net_memory(p->plan->memory, (size_t)node->input_count * sizeof *in);
    struct fl_array **const out = fl_net_memory(p->plan->memory, (size_t)node->output_count * sizeof *out);
    if (!in || !out)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < node->input_count; i++) {
        const struct fl_known *const k = fl_plan_in(p, node, i);
        if (!k)
            continue;
        in[i] = &k->array;
        const bool as_float = quantised && p->network->values[node->inputs[i]].quantisation;
        if (k->computed || as_float) { /* has memory, but no numbers yet; shape() sees floats */
            struct fl_array *const shape = fl_net_memory(p->plan->memory, sizeof *shape);
            if (!shape)
                return TENSOR_E_MEMORY;
            *shape = k->array;
            shape->data = NULL;
            if (as_float)
                shape->type = TENSOR_TYPE_F32;
            in[i] = shape;
        }
    }
    for (int i = 0; i < node->output_count; i++)
        out[i] = node->outputs[i] == -1 ? NULL : &p->known[node->outputs[i]].array;
    *a = (struct fl_arrays){
        .node = node, .in_count = node->input_count, .out_count = node->output_count, .in = in, .out = out};
    return TENSOR_OK;
}

static tensor_status give_memory(struct fl_planner *p, struct fl_array *a) {
    struct fl_array *made;
    TRY(fl_net_array(p->plan->memory, &made, a->type, a->ndim, a->dim));
    *a = *made;
    return TENSOR_OK;
}

/* All operands are known: so are the results. */
static tensor_status fold(struct fl_planner *p, const struct fl_operator *op, const struct fl_arrays *a) {
    for (int i = 0; i < a->out_count; i++)
        if (a->out[i])
            TRY(give_memory(p, a->out[i]));
    TRY(op->compute(a));
    TRY(fl_activation_apply(a->node, a->out[0]));
    for (int i = 0; i < a->out_count; i++)
        if (a->out[i])
            p->known[a->node->outputs[i]].planned = true;
    return TENSOR_OK;
}

/* A step that computes arrays. Floats that tensors have are float64 in its workspace. */
static tensor_status plan_host(struct fl_planner *p, const struct fl_operator *op, const struct fl_arrays *a) {
    const struct fl_net_node *const node = a->node;
    struct fl_host_call *const call = fl_net_memory(p->plan->memory, sizeof *call);
    struct fl_host_operand *const operands =
        fl_net_memory(p->plan->memory, (size_t)(a->in_count + a->out_count) * sizeof *operands);
    if (!call || !operands)
        return TENSOR_E_MEMORY;
    *call = (struct fl_host_call){.of = op,
                                  .in_count = a->in_count,
                                  .out_count = a->out_count,
                                  .operands = operands,
                                  .in = fl_net_memory(p->plan->memory, (size_t)a->in_count * sizeof *call->in),
                                  .out = fl_net_memory(p->plan->memory, (size_t)a->out_count * sizeof *call->out)};
    if (!call->in || !call->out)
        return TENSOR_E_MEMORY;
    /* A function of each element by itself takes its operand in any order of dimensions. */
    const bool map = op->shape == fl_shape_map && p->known[node->inputs[0]].slot >= 0 && fl_plan_is_float(p, node, 0);
    const int *const layout = map ? p->known[node->inputs[0]].layout : NULL;
    size_t at = 0;
    for (int i = 0; i < a->in_count + a->out_count; i++) {
        const bool in = i < a->in_count;
        const int value = in ? node->inputs[i] : node->outputs[i - a->in_count];
        struct fl_host_operand *const o = &operands[i];
        o->slot = -1;
        o->absent = value == -1;
        if (o->absent)
            continue;
        struct fl_known *const k = &p->known[value];
        if (!in && !k->array.count) {
            k->planned = true;
        } else if (!in && fl_type_is_float(k->array.type)) {
            SLOT(slot, fl_plan_result(p, node, i - a->in_count, layout));
            o->slot = slot;
        } else if (!in) {
            TRY(give_memory(p, &k->array));
            k->planned = k->computed = true;
        } else if (k->slot >= 0) {
            SLOT(slot, fl_plan_operand(p, node, i, i ? NULL : layout));
            o->slot = slot;
        }
        o->array = k->array;
        o->bytes = o->slot >= 0 && is_bytes(k->array.type);
        if (o->slot >= 0 && !o->bytes) {
            o->array.type = TENSOR_TYPE_F64;
            o->at = at;
            at += fl_line_bytes((size_t)k->array.count * sizeof(double));
        }
    }
    if (at > p->plan->workspace_bytes)
        p->plan->workspace_bytes = at;
    struct fl_step *const step = add_step(p, node);
    if (!step)
        return TENSOR_E_MEMORY;
    step->host = call;
    for (int i = 0; i < a->in_count + a->out_count; i++)
        if (operands[i].slot >= 0)
            use(p->plan, operands[i].slot, p->plan->step_count - 1);
    return TENSOR_OK;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static tensor_status plan_graph(struct fl_planner *p, const struct fl_net_graph *graph);

/* The branch that a known condition chooses is planned in place of the node. */
static tensor_status plan_if(struct fl_planner *p, const struct fl_net_node *node) {
    const struct fl_array *const condition = node->input_count == 1 ? fl_plan_numbers(p, node, 0) : NULL;
    if (!condition || condition->count != 1)
        return fl_fail(TENSOR_E_UNSUPPORTED, "a condition that is known only when the program runs");
    const char *const branch = fl_array_integer(condition, 0) ? "then_branch" : "else_branch";
    const struct fl_net_attribute *const a = fl_net_find(node, branch);
    if (!a || !a->graph || a->graph->output_count != node->output_count)
        return fl_fail(TENSOR_E_DATA, "its %s is missing, or has another number of outputs than the node's %d", branch,
                       node->output_count);
    TRY(plan_graph(p, a->graph));
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] != -1)
            p->known[node->outputs[i]] = p->known[a->graph->outputs[i]];
    return TENSOR_OK;
}

static tensor_status check_counts(const struct fl_operator *op, const struct fl_net_node *node) {
    int given = node->input_count;
    while (given && node->inputs[given - 1] == -1) /* optional operands at the end */
        given--;
    if (given < op->in_least || (op->in_most >= 0 && given > op->in_most))
        return fl_fail(TENSOR_E_DATA, "%d operands, expected %d to %d", given, op->in_least, op->in_most);
    if (node->output_count < op->out_least || (op->out_most >= 0 && node->output_count > op->out_most))
        return fl_fail(TENSOR_E_DATA, "%d results, expected %d to %d", node->output_count, op->out_least, op->out_most);
    for (int i = 0; i < op->in_least; i++)
        if (node->inputs[i] == -1)
            return fl_fail(TENSOR_E_DATA, "operand %d is not given", i);
    return TENSOR_OK;
}

/* Neither lower() nor compute() takes these operands: the message lists their types and shapes. */
static tensor_status refuse_operands(const struct fl_planner *p, const struct fl_net_node *node) {
    char text[300];
    size_t used = 0;
    for (int i = 0; i < node->input_count; i++) {
        const struct fl_known *const k = fl_plan_in(p, node, i);
        if (!k || used + 40 > sizeof text)
            continue;
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s [", used ? ", " : "", fl_type_name(k->array.type));
        for (int d = 0; d < k->array.ndim && used + 40 < sizeof text; d++)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "%s%lld", d ? "," : "", (long long)k->array.dim[d]);
        used += (size_t)snprintf(text + used, sizeof text - used, "]");
    }
    return fl_fail(TENSOR_E_UNSUPPORTED, "the library has no such operation on %s", used ? text : "no operand");
}

/* Operators whose results follow from the shape of their operand. */
static bool asks_for_shape(const struct fl_net_node *node) {
    return !strcmp(node->op, "Shape") || !strcmp(node->op, "Size") || !strcmp(node->op, "EyeLike");
}

/* Whether all results are known because they have no elements. */
static bool all_empty(struct fl_planner *p, const struct fl_arrays *a) {
    for (int i = 0; i < a->out_count; i++)
        if (a->out[i] && a->out[i]->count)
            return false;
    for (int i = 0; i < a->out_count; i++)
        if (a->out[i])
            p->known[a->node->outputs[i]].planned = true;
    return true;
}

/* Whether tensors can have all operands and results: they have at least one element, and few dimensions. */
static bool in_tensors(const struct fl_arrays *a) {
    bool all = true;
    for (int i = 0; i < a->in_count; i++)
        all &= !a->in[i] || (a->in[i]->count && a->in[i]->ndim <= TENSOR_MAX_DIMS);
    for (int i = 0; i < a->out_count; i++)
        all &= !a->out[i] || (a->out[i]->count && a->out[i]->ndim <= TENSOR_MAX_DIMS);
    return all;
}

static tensor_status plan_node(struct fl_planner *p, const struct fl_net_node *node) {
    if (!strcmp(node->op, "If") && !*node->domain)
        return plan_if(p, node);
    const struct fl_operator *const op = p->program->find(node->domain, node->op);
    const bool quantised = fl_net_is_quantised(p->network, node);
    struct fl_arrays a;
    if (!op)
        return fl_fail(TENSOR_E_UNSUPPORTED, "an operator that programs do not have");
    TRY(check_counts(op, node));
    TRY(gather_arrays(p, node, quantised, &a));
    TRY(op->shape(&a));
    for (int i = 0; i < a.out_count && quantised; i++)
        if (a.out[i])
            a.out[i]->type = p->network->values[node->outputs[i]].type;
    if (all_empty(p, &a))
        return TENSOR_OK;
    bool known = !quantised, done = false;
    for (int i = 0; i < node->input_count; i++)
        known &= node->inputs[i] == -1 || fl_plan_numbers(p, node, i);
    if ((known || asks_for_shape(node)) && op->compute)
        return fold(p, op, &a);
    p->temporaries = 0;
    if (op->lower_int8 && (quantised || fl_net_is_border(node)) && in_tensors(&a))
        TRY(op->lower_int8(p, node, &done));
    if (!done && quantised)
        return fl_fail(TENSOR_E_UNSUPPORTED, "the library has no such operation on integers of 8 bits");
    if (!done && op->lower && in_tensors(&a))
        TRY(op->lower(p, node, &done));
    if (done)
        return TENSOR_OK;
    if (!op->compute)
        return refuse_operands(p, node);
    return plan_host(p, op, &a);
}

static tensor_status plan_graph(struct fl_planner *p, const struct fl_net_graph *graph) {
    for (int i = 0; i < graph->node_count; i++) {
        const int before = p->plan->step_count;
        tensor_status status = plan_node(p, &graph->nodes[i]);
        if (!status)
            status = mark_results(p, &graph->nodes[i], before);
        if (status)
            return fl_plan_failed(&graph->nodes[i], status);
    }
    return TENSOR_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

/* A port whose type is not stated has floats. */
static bool is_float_port(const struct fl_network *n, int value) {
    return !n->values[value].type || fl_type_is_float(n->values[value].type);
}

/* Shape and type of an input against what the network states. */
static tensor_status check_input(const struct fl_network *n, int value, const program_array *input) {
    const struct fl_net_value *const v = &n->values[value];
    const tensor_type type = is_float_port(n, value) ? TENSOR_TYPE_F32 : v->type;
    if (input->type != type && input->type != v->type)
        return fl_fail(TENSOR_E_ARGUMENT, "input %s has type %s, expected %s", v->name, fl_type_name(input->type),
                       fl_type_name(type));
    if (input->ndim < 0 || input->ndim > PROGRAM_MAX_DIMS || (v->ndim >= 0 && input->ndim != v->ndim))
        return fl_fail(TENSOR_E_SHAPE, "input %s has %d dimensions, expected %d", v->name, input->ndim, v->ndim);
    int64_t count = 1;
    for (int d = 0; d < input->ndim; d++) {
        const bool stated = v->ndim >= 0 && v->dim[d] >= 0;
        if (stated && input->shape[d] != v->dim[d])
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of input %s is %lld, expected %lld", d, v->name,
                           (long long)input->shape[d], (long long)v->dim[d]);
        if (input->shape[d] < 0)
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of input %s is %lld, expected 0 or more", d, v->name,
                           (long long)input->shape[d]);
        count = input->shape[d] ? count : 0;
    }
    if (count && !input->data)
        return fl_fail(TENSOR_E_ARGUMENT, "input %s has no data", v->name);
    return TENSOR_OK;
}

/* Sizes of one name are equal in all inputs. */
static tensor_status check_names(const struct fl_network *n, const program_array *inputs) {
    const struct fl_net_graph *const g = &n->graph;
    for (int i = 0; i < g->input_count; i++)
        for (int d = 0; d < inputs[i].ndim && d < n->values[g->inputs[i]].ndim; d++) {
            const char *const name = n->values[g->inputs[i]].dim_name[d];
            for (int j = 0; name && j <= i; j++)
                for (int e = 0; e < inputs[j].ndim && e < n->values[g->inputs[j]].ndim; e++) {
                    const char *const other = n->values[g->inputs[j]].dim_name[e];
                    if (other && !strcmp(name, other) && inputs[i].shape[d] != inputs[j].shape[e])
                        return fl_fail(TENSOR_E_SHAPE,
                                       "dimension %d of input %s and dimension %d of input %s are both \"%s\", but are "
                                       "%lld and %lld",
                                       d, n->values[g->inputs[i]].name, e, n->values[g->inputs[j]].name, name,
                                       (long long)inputs[i].shape[d], (long long)inputs[j].shape[e]);
                }
        }
    return TENSOR_OK;
}

static tensor_status plan_inputs(struct fl_planner *p, const program_array *inputs) {
    const struct fl_net_graph *const g = &p->network->graph;
    struct fl_plan *const plan = p->plan;
    plan->inputs = fl_net_memory(plan->memory, (size_t)g->input_count * sizeof *plan->inputs);
    if (!plan->inputs)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < g->input_count; i++) {
        const int value = g->inputs[i];
        struct fl_known *const k = &p->known[value];
        const struct fl_net_value *const v = &p->network->values[value];
        const bool floats = is_float_port(p->network, value);
        struct fl_array *array;
        TRY(check_input(p->network, value, &inputs[i]));
        TRY(fl_shape_set(&k->array, v->type ? v->type : TENSOR_TYPE_F32, inputs[i].ndim, inputs[i].shape));
        const bool bytes = fl_net_is_bytes(p->network, value);
        if ((floats || bytes) && k->array.count && !(floats && plan->specialised && inputs[i].ndim <= 1)) {
            int64_t dim[FL_ARRAY_DIMS];
            struct fl_slot slot = {.kind = FL_SLOT_OWN, .format = bytes ? FMT_U8 : FMT_FP32};
            if (!set_shape(&slot, ordered(&k->array, in_order, dim), dim))
                return tensor_error_status();
            slot.range = bytes ? NULL : &p->network->values[value].range;
            k->slot = add_slot(plan, slot);
            if (k->slot < 0)
                return TENSOR_E_MEMORY;
            memcpy(k->layout, in_order, sizeof in_order);
        } else if (k->array.count) {
            TRY(fl_net_array(plan->memory, &array, k->array.type, inputs[i].ndim, inputs[i].shape));
            fl_port_numbers(array, &inputs[i]);
            k->array = *array;
            k->computed = !plan->specialised;
        }
        k->planned = true;
        plan->inputs[i] = (struct fl_port){.value = value, .slot = k->slot, .array = k->array};
    }
    return check_names(p->network, inputs);
}

static const struct fl_net_node at_the_end = {.op = "output", .name = "of the program", .domain = ""};

static tensor_status plan_outputs(struct fl_planner *p) {
    const struct fl_net_graph *const g = &p->network->graph;
    struct fl_plan *const plan = p->plan;
    plan->outputs = fl_net_memory(plan->memory, (size_t)g->output_count * sizeof *plan->outputs);
    if (!plan->outputs)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < g->output_count; i++) {
        const int value = g->outputs[i];
        const struct fl_known *const k = &p->known[value];
        struct fl_port port = {.value = value, .slot = -1, .array = k->array};
        if (!k->planned && !k->array.data)
            return fl_fail(TENSOR_E_DATA, "no node computes the output %s", p->network->values[value].name);
        const bool floats = fl_type_is_float(k->array.type);
        if (floats || k->slot >= 0) {
            const bool known = k->slot < 0;
            const struct fl_array numbers = k->array;
            if (floats)
                port.array.type = TENSOR_TYPE_F32;
            port.array.data = NULL;
            TRY(give_memory(p, &port.array));
            for (int64_t e = 0; known && e < numbers.count; e++)
                fl_array_put_number(&port.array, e, fl_array_number(&numbers, e));
            if (!known) {
                const struct fl_net_node *const end =
                    fl_plan_in_format(p, &at_the_end, plan->slots[k->slot].format); /* as it is */
                if (!end)
                    return TENSOR_E_MEMORY;
                SLOT(slot, fl_plan_value(p, end, value, NULL));
                port.slot = slot;
            }
        }
        plan->outputs[i] = port;
    }
    for (int i = 0; i < g->output_count; i++) /* beyond the copies into the order of the network that others need */
        if (plan->outputs[i].slot >= 0)
            use(plan, plan->outputs[i].slot, plan->step_count);
    return TENSOR_OK;
}

static tensor_status make(struct fl_plan *plan, const program_array *inputs) {
    struct fl_network *const n = plan->program->network;
    struct fl_planner p = {.plan = plan, .program = plan->program, .network = n};
    p.known = fl_net_memory(plan->memory, (size_t)n->value_count * sizeof *p.known);
    if (!p.known)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < n->value_count; i++) {
        p.known[i].slot = -1;
        if (n->values[i].constant)
            p.known[i] = (struct fl_known){.array = *n->values[i].constant, .planned = true, .slot = -1};
    }
    TRY(plan_inputs(&p, inputs));
    TRY(plan_graph(&p, &n->graph));
    TRY(plan_outputs(&p));
    return fl_plan_place(plan);
}

tensor_status fl_plan_make(struct fl_plan **result, struct fl_program *of, const program_array *inputs,
                           bool specialised) {
    struct fl_plan *const plan = fl_alloc_zero(sizeof *plan);
    *result = NULL;
    if (!plan)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a plan");
    plan->program = of;
    plan->specialised = specialised;
    plan->memory = fl_network_new(FL_NET_ONNX);
    const tensor_status status = plan->memory ? make(plan, inputs) : TENSOR_E_MEMORY;
    if (status)
        fl_plan_free(plan);
    else
        *result = plan;
    return status;
}

/* Whether numbers that are a part of a plan are those of an input. */
static bool same_numbers(const struct fl_array *a, const program_array *input) {
    const struct fl_array b = {.type = input->type, .count = a->count, .data = input->data};
    if (a->type == b.type)
        return !a->count || !memcmp(a->data, b.data, (size_t)a->count * fl_type_bytes(a->type));
    for (int64_t i = 0; i < a->count; i++)
        if (fl_array_number(a, i) != fl_array_number(&b, i))
            return false;
    return true;
}

bool fl_plan_serves(const struct fl_plan *plan, const program_array *inputs) {
    const struct fl_net_graph *const g = &plan->program->network->graph;
    for (int i = 0; i < g->input_count; i++) {
        const struct fl_array *const a = &plan->inputs[i].array;
        const bool type = inputs[i].type == a->type || (fl_type_is_float(a->type) && inputs[i].type == TENSOR_TYPE_F32);
        if (!type || inputs[i].ndim != a->ndim || memcmp(inputs[i].shape, a->dim, (size_t)a->ndim * sizeof *a->dim) ||
            (a->count && !inputs[i].data))
            return false;
        if (plan->specialised && plan->inputs[i].slot < 0 && !same_numbers(a, &inputs[i]))
            return false;
    }
    return true;
}
