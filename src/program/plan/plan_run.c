/* plan_run.c - a plan's tensors in one arena, and its steps run. */
#include "program/plan/plan_internal.h"
#include "program/calibration/ranges.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- memory ------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    const struct fl_slot *const s = *(struct fl_slot *const *)a, *const t = *(struct fl_slot *const *)b;
    return s->bytes != t->bytes ? (s->bytes < t->bytes ? 1 : -1) : (s > t) - (s < t);
}

static int by_place(const void *a, const void *b) {
    const struct fl_slot *const s = *(struct fl_slot *const *)a, *const t = *(struct fl_slot *const *)b;
    return (s->at > t->at) - (s->at < t->at);
}

/* The largest first, each in the lowest gap between those that live when it does. */
static void place(struct fl_slot **slots, int count, struct fl_slot **busy, size_t *bytes) {
    qsort(slots, (size_t)count, sizeof *slots, by_size);
    for (int i = 0; i < count; i++) {
        struct fl_slot *const s = slots[i];
        const size_t want = fl_line_bytes(s->bytes);
        int others = 0;
        for (int j = 0; j < i; j++)
            if (slots[j]->first <= s->last && s->first <= slots[j]->last)
                busy[others++] = slots[j];
        qsort(busy, (size_t)others, sizeof *busy, by_place);
        s->at = 0;
        for (int j = 0; j < others && busy[j]->at < s->at + want; j++)
            if (busy[j]->at + fl_line_bytes(busy[j]->bytes) > s->at)
                s->at = busy[j]->at + fl_line_bytes(busy[j]->bytes);
        if (s->at + want > *bytes)
            *bytes = s->at + want;
    }
}

/* Predictor and exponent of a tensor with a shared exponent: frozen, or that of each result. */
static tensor_status set_exponent(tensor *t, const struct fl_range *range) {
    if (!tensor_format_is_shared(tensor_format_of(t)))
        return TENSOR_OK;
    if (!range || !range->frozen)
        return tensor_set_predictor(t, "current");
    TRY(tensor_set_predictor(t, "fixed"));
    const struct autoflex *const a = tensor_autoflex(t);
    const int e = range->exponent + fl_exponent_shift(t);
    return tensor_declare_exponent(t, e < a->e_min ? a->e_min : e > a->e_max ? a->e_max : e);
}

/* Bytes are always in memory of the host, where quantised nodes compute: beside a device, outside of its arena. */
static bool lies_apart(const struct fl_plan *plan, const struct fl_slot *s) {
    return s->format == FMT_U8 && plan->program->device != tensor_device_at(0);
}

tensor_status fl_plan_place(struct fl_plan *plan) {
    const size_t room = (size_t)plan->slot_count * sizeof(struct fl_slot *);
    struct fl_slot **const own = fl_net_memory(plan->memory, room), **const busy = fl_net_memory(plan->memory, room);
    tensor_device *const device = plan->program->device;
    int count = 0;
    if (!own || !busy)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < plan->slot_count; i++)
        if (plan->slots[i].kind == FL_SLOT_OWN && !lies_apart(plan, &plan->slots[i]))
            own[count++] = &plan->slots[i];
    for (int i = 0; plan->inputs && i < plan->program->network->graph.input_count; i++)
        if (plan->inputs[i].slot >= 0)
            plan->slots[plan->inputs[i].slot].first = -1;
    place(own, count, busy, &plan->arena_bytes);
    plan->arena = plan->arena_bytes ? tensor_device_allocate(device, plan->arena_bytes) : NULL;
    plan->workspace = plan->workspace_bytes ? fl_alloc(plan->workspace_bytes) : NULL;
    if ((plan->arena_bytes && !plan->arena) || (plan->workspace_bytes && !plan->workspace))
        return fl_fail(TENSOR_E_MEMORY, "no memory for a program: %zu bytes of tensors, %zu of workspace",
                       plan->arena_bytes, plan->workspace_bytes);
    for (int i = 0; i < plan->slot_count; i++) {
        struct fl_slot *const s = &plan->slots[i];
        if (s->kind == FL_SLOT_CONSTANT)
            continue;
        tensor *const base = s->kind == FL_SLOT_OWN ? NULL : plan->slots[s->base].t;
        s->t = s->kind == FL_SLOT_VIEW      ? tensor_new_view(base, s->ndim, s->dim)
               : s->kind == FL_SLOT_STRIDED ? tensor_new_strided(base, s->ndim, s->dim, s->stride, s->offset)
               : lies_apart(plan, s)
                   ? tensor_new_in(tensor_device_at(0), s->format, s->ndim, s->dim)
                   : tensor_new_at(device, s->format, s->ndim, s->dim, (char *)plan->arena + s->at, s->bytes);
        if (!s->t)
            return tensor_error_status();
        if (s->kind == FL_SLOT_OWN)
            TRY(set_exponent(s->t, s->range));
    }
    return TENSOR_OK;
}

void fl_plan_free(struct fl_plan *plan) {
    if (!plan)
        return;
    for (int i = plan->slot_count - 1; i >= 0; i--) /* views before their bases */
        if (plan->slots[i].kind != FL_SLOT_CONSTANT || plan->slots[i].owned)
            tensor_free(plan->slots[i].t);
    if (plan->arena)
        tensor_device_release(plan->program->device, plan->arena);
    fl_free(plan->workspace);
    fl_network_free(plan->memory);
    fl_free(plan);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Numbers into a tensor at its exponent; without a frozen one, at that which their maximum needs. */
static tensor_status store(struct fl_plan *plan, const struct fl_slot *s, const double *numbers, int64_t count) {
    tensor *const t = s->t;
    if (!tensor_format_is_shared(s->format) || !s->range || !s->range->frozen)
        return tensor_load_f64(t, numbers, count);
    int64_t dim[TENSOR_MAX_DIMS];
    for (int d = 0; d < tensor_ndim(t); d++)
        dim[d] = tensor_dim(t, d);
    tensor *const exact = tensor_new_in(plan->program->device, FMT_F64, tensor_ndim(t), dim);
    tensor_status status = exact ? tensor_load_f64(exact, numbers, count) : tensor_error_status();
    if (!status)
        status = tensor_rewrite(t, exact);
    tensor_free(exact);
    return status;
}

static tensor_status run_host(struct fl_plan *plan, const struct fl_step *step) {
    const struct fl_host_call *const call = step->host;
    const int count = call->in_count + call->out_count;
    const struct fl_array **const in = call->in;
    struct fl_array **const out = call->out;
    for (int i = 0; i < count; i++) {
        struct fl_host_operand *const o = &call->operands[i];
        if (o->slot >= 0)
            o->array.data = o->bytes ? fl_plan_data(plan->slots[o->slot].t) : (char *)plan->workspace + o->at;
        if (i < call->in_count)
            in[i] = o->absent ? NULL : &o->array;
        else
            out[i - call->in_count] = o->absent ? NULL : &o->array;
        if (o->slot >= 0 && !o->bytes && i < call->in_count)
            TRY(tensor_store_f64(plan->slots[o->slot].t, o->array.data, o->array.count));
    }
    const struct fl_arrays a = {
        .node = step->node, .in_count = call->in_count, .out_count = call->out_count, .in = in, .out = out};
    TRY(call->of->compute(&a));
    TRY(fl_activation_apply(step->node, out[0]));
    for (int i = call->in_count; i < count; i++)
        if (call->operands[i].slot >= 0)
            TRY(store(plan, &plan->slots[call->operands[i].slot], call->operands[i].array.data,
                      call->operands[i].array.count));
    return TENSOR_OK;
}

/* Notes the numbers of a tensor that was written. */
static tensor_status observe(struct fl_plan *plan, int slot) {
    struct fl_slot *s = &plan->slots[slot];
    while (s->kind == FL_SLOT_VIEW)
        s = &plan->slots[s->base];
    if (!s->range || s->copy || !plan->program->observing)
        return TENSOR_OK;
    const int64_t count = tensor_count(s->t);
    float *const numbers = fl_alloc((size_t)count * sizeof *numbers);
    if (!numbers)
        return fl_fail(TENSOR_E_MEMORY, "no memory for %lld numbers to calibrate with", (long long)count);
    tensor_status status = tensor_store_f32(s->t, numbers, count);
    if (!status)
        status = fl_range_see(s->range, plan->program->statistics, numbers, count);
    fl_free(numbers);
    return status;
}

static tensor_status run_step(struct fl_plan *plan, const struct fl_step *step) {
    tensor *t[FL_STEP_SLOTS];
    if (step->host) {
        TRY(run_host(plan, step));
        for (int i = step->host->in_count; i < step->host->in_count + step->host->out_count; i++)
            if (step->host->operands[i].slot >= 0)
                TRY(observe(plan, step->host->operands[i].slot));
        return TENSOR_OK;
    }
    for (int i = 0; i < step->count; i++)
        t[i] = step->slots[i] < 0 ? NULL : plan->slots[step->slots[i]].t;
    TRY(step->run(t, step->with));
    for (int i = 0; i < step->written; i++)
        TRY(observe(plan, step->slots[i]));
    return TENSOR_OK;
}

void fl_port_numbers(const struct fl_array *a, const program_array *input) {
    const struct fl_array given = {.type = input->type, .count = a->count, .data = input->data};
    if (a->type == given.type && a->count)
        memcpy(a->data, given.data, (size_t)a->count * fl_type_bytes(a->type));
    struct fl_array to = *a;
    for (int64_t i = 0; a->type != given.type && i < a->count; i++)
        fl_array_put_number(&to, i, fl_array_number(&given, i));
}

tensor_status fl_plan_run(struct fl_plan *plan, program_array *outputs, const program_array *inputs) {
    const struct fl_net_graph *const g = &plan->program->network->graph;
    for (int i = 0; i < g->input_count; i++) {
        const struct fl_port *const port = &plan->inputs[i];
        if (port->slot < 0) {
            fl_port_numbers(&port->array, &inputs[i]);
            continue;
        }
        if (plan->slots[port->slot].format == FMT_U8) {
            memcpy(fl_plan_data(plan->slots[port->slot].t), inputs[i].data, (size_t)port->array.count);
            continue;
        }
        TRY(tensor_load_array(plan->slots[port->slot].t, inputs[i].data, inputs[i].type, port->array.count));
        TRY(observe(plan, port->slot));
    }
    int next = 0;
    TRY(fl_trace(plan, 0, &next));
    for (int i = 0; i < plan->step_count; i++) {
        fl_fail_hold();
        tensor_status status = run_step(plan, &plan->steps[i]);
        fl_fail_release(TENSOR_OK); /* fl_plan_failed says which node it is */
        if (!status)
            status = fl_trace(plan, i + 1, &next);
        if (status)
            return fl_plan_failed(plan->steps[i].node, status);
    }
    for (int i = 0; i < g->output_count; i++) {
        const struct fl_port *const port = &plan->outputs[i];
        if (port->slot >= 0 && plan->slots[port->slot].format == FMT_U8)
            memcpy(port->array.data, fl_plan_data(plan->slots[port->slot].t), (size_t)port->array.count);
        else if (port->slot >= 0)
            TRY(tensor_store_f32(plan->slots[port->slot].t, port->array.data, port->array.count));
        outputs[i] = (program_array){.type = port->array.type, .ndim = port->array.ndim, .data = port->array.data};
        memcpy(outputs[i].shape, port->array.dim, sizeof port->array.dim);
    }
    return TENSOR_OK;
}
