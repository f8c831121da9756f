/* plan.c - see plan.h: walks the nodes of a network for given input shapes, folds what is known, and collects steps. */
#include "program/plan/plan_internal.h"
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <stdio.h>
#include <string.h>

tensor_status fl_plan_failed(const struct fl_net_node *node, tensor_status status) {
    char why[400];
    snprintf(why, sizeof why, "%s", tensor_error());
    return fl_fail(status, "node %s (%s): %s", node->name, node->op, why);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static struct fl_step *add_step(struct fl_planner *p, const struct fl_net_node *node) {
    struct fl_plan *const plan = p->plan;
    struct fl_step *const steps = fl_plan_grown(plan, plan->steps, plan->step_count, &plan->step_room, sizeof *steps);
    if (!steps)
        return NULL;
    plan->steps = steps;
    steps[plan->step_count] = (struct fl_step){.node = node};
    return &steps[plan->step_count++];
}

static void use(struct fl_plan *plan, int slot, int step) {
    struct fl_slot *const root = &plan->slots[fl_plan_root_of(plan, slot)];
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
        o->bytes = o->slot >= 0 && fl_plan_is_bytes(k->array.type);
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
            status = fl_plan_mark_results(p, &graph->nodes[i], before);
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

static tensor_status fail_size(const struct fl_network *n, const struct fl_net_value *v, int d, int64_t size) {
    const char *const more = d || !fl_net_has_batch(n) ? ""
                             : n->graph.input_count > 1
                                 ? ", or the same multiple of their first dimension for all inputs"
                                 : " or a multiple of it";
    return fl_fail(TENSOR_E_SHAPE, "dimension %d of input %s is %lld, expected %lld%s", d, v->name, (long long)size,
                   (long long)v->dim[d], more);
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
            return fail_size(n, v, d, input->shape[d]);
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
            if (!fl_plan_set_shape(&slot, fl_plan_ordered(&k->array, fl_plan_in_order, dim), dim))
                return tensor_error_status();
            slot.range = bytes ? NULL : &p->network->values[value].range;
            k->slot = fl_plan_add_slot(plan, slot);
            if (k->slot < 0)
                return TENSOR_E_MEMORY;
            memcpy(k->layout, fl_plan_in_order, sizeof fl_plan_in_order);
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
