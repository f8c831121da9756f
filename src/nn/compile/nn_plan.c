/* nn_plan.c - the values of a training step, and how long each lives.
 *
 * The step is planned without running it. Forward defines an output for each node; backward, from the last node to the
 * first, defines a gradient for each use of an output, and where an output is used more than once the sum of those. The
 * first and the last position at which a value is touched is its life. */
#include "nn/compile/nn_compile.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <stdio.h>

/* A new value, written at `position`; base -1: with memory of its own. Its index, or -1 without memory. `name` is taken
 * over, also on failure; NULL without base means that there was no memory for it. */
static int new_value(nn_graph *g, char *name, const char *role, const struct fl_shape *shape, struct fl_type type,
                     int base, int position) {
    if ((base < 0 && !name) || fl_grow((void **)&g->values, g->value_count, &g->value_capacity, sizeof *g->values)) {
        fl_free(name);
        fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
        return -1;
    }
    int index = g->value_count++;
    g->values[index] = (struct fl_value){.name = name,
                                         .role = role,
                                         .shape = *shape,
                                         .type = base < 0 ? type : g->values[base].type,
                                         .bytes = (size_t)fl_shape_count(shape) * tensor_format_bytes(type.format),
                                         .first = position,
                                         .last = position,
                                         .base = base < 0 ? index : g->values[base].base};
    return index;
}

static void use(nn_graph *g, int value, int position) {
    struct fl_value *base = &g->values[g->values[value].base];
    if (position > base->last)
        base->last = position;
}

static tensor_status plan_forward(nn_graph *g) {
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        for (int k = 0; k < node->inputs; k++)
            use(g, fl_output_of(g, node->input[k].x)->y, i);
        for (int k = 0; k < node->outputs; k++) {
            struct fl_output *output = &node->output[k];
            const bool view = k < node->layer->views;
            output->y = new_value(g, view ? NULL : fl_format_name("%s", output->name), "activation", &output->shape,
                                  node->as.y, view ? fl_output_of(g, node->input[k].x)->y : -1, i);
            if (output->y < 0)
                return TENSOR_E_MEMORY;
            g->values[output->y].tokens = output->tokens;
        }
    }
    return TENSOR_OK;
}

/* --- backward: which nodes compute which gradients ---------------------------------------------------------------- */

/* The uses of an output, by its handle. */
struct use {
    int reads;         /* reads by nodes whose backward runs */
    int gradients;     /* gradients that it will still receive from those */
    bool has_gradient; /* it receives one, or is the logits */
};

/* The output that FL_GRADIENT_SAME means. */
static int output_beside(const struct fl_node *node, int k) {
    return k < node->outputs ? k : node->outputs - 1;
}

static enum fl_input_gradient rule_of(const struct fl_node *node, int k) {
    const struct fl_layer *layer = node->layer;
    const bool gated = node->output[output_beside(node, k)].gated;
    const enum fl_input_gradient *rules = gated ? layer->when_gated : layer->gradient;
    return !rules ? FL_GRADIENT_OWN : rules[layer->inputs == FL_ANY_INPUTS ? 0 : k];
}

/* Whether backward of a node gives its input k a gradient. */
static bool gives(const nn_graph *g, const struct fl_node *node, int k, const struct use *uses) {
    if (!fl_node_of(g, node->input[k].x)->learns && !node->layer->always_dx)
        return false;
    return rule_of(node, k) != FL_GRADIENT_SAME || uses[node->first + output_beside(node, k)].has_gradient;
}

static bool is_reached(const struct fl_node *node, const struct use *uses) {
    for (int k = 0; k < node->outputs; k++)
        if (uses[node->first + k].has_gradient)
            return true;
    return false;
}

/* From the last node to the first: uses of a node's outputs are all at later nodes. */
static tensor_status find_uses(nn_graph *g, struct use *uses) {
    uses[g->logits].has_gradient = true;
    for (int i = g->count - 1; i >= 0; i--) {
        struct fl_node *node = &g->nodes[i];
        if (!node->learns)
            continue;
        node->learns = is_reached(node, uses);
        if (!node->learns && node->parameters)
            return fl_fail(TENSOR_E_ARGUMENT, "'%s' has parameters, but no gradient reaches it", node->name);
        for (int k = 0; node->learns && k < node->inputs; k++) {
            struct use *x = &uses[node->input[k].x];
            x->reads++;
            if (gives(g, node, k, uses) && fl_node_of(g, node->input[k].x)->learns) {
                x->gradients++;
                x->has_gradient = true;
            }
        }
    }
    return TENSOR_OK;
}

/* --- backward: values --------------------------------------------------------------------------------------------- */

/* ".2" after a name, if input k is the second input of the node that reads that value; usually "". */
struct repeat {
    char text[16];
};
static struct repeat repeat_of(const struct fl_node *node, int k) {
    struct repeat r = {""};
    int nth = 1;
    for (int i = 0; i < k; i++)
        nth += node->input[i].x == node->input[k].x;
    if (nth > 1)
        snprintf(r.text, sizeof r.text, ".%d", nth);
    return r;
}

/* Adds the gradient of input k that backward of `node` computes; it is named after that input. */
static int input_gradient(nn_graph *g, struct fl_node *node, int k, bool only_use, int position) {
    const struct fl_output *x = fl_output_of(g, node->input[k].x);
    const int dy = node->output[output_beside(node, k)].dy;
    switch (rule_of(node, k)) {
    case FL_GRADIENT_SAME:
        if (g->values[dy].shape.ndim == x->shape.ndim)
            return dy;
        return new_value(g, NULL, "gradient", &x->shape, node->as.dx, dy, position);
    case FL_GRADIENT_SHARED:
        for (int other = 0; other < k; other++)
            if (node->input[other].dx >= 0)
                return node->input[other].dx;
        break;
    case FL_GRADIENT_OWN:
        break;
    }
    char *name = only_use ? fl_format_name("%s.grad", x->name)
                          : fl_format_name("%s.grad.%s%s", x->name, node->name, repeat_of(node, k).text);
    return new_value(g, name, "gradient", &x->shape, node->as.dx, -1, position);
}

/* Adds the gradient just written for an input of `node` to the sum of those from later nodes. `more` gradients of that
 * output follow. */
static tensor_status add_gradient(nn_graph *g, const struct fl_node *node, struct fl_input *input, int more,
                                  int position) {
    struct fl_output *x = fl_output_of(g, input->x);
    if (x->dy < 0) {
        x->dy = input->dx;
        return TENSOR_OK;
    }
    const int k = (int)(input - node->input);
    char *name = more ? fl_format_name("%s.grad.sum.%s%s", x->name, node->name, repeat_of(node, k).text)
                      : fl_format_name("%s.grad", x->name);
    int sum = new_value(g, name, "gradient", &x->shape, node->as.dx, -1, position);
    if (sum < 0)
        return TENSOR_E_MEMORY;
    use(g, x->dy, position);
    use(g, input->dx, position);
    const struct fl_node *source = fl_node_of(g, input->x);
    if (!more && g->handles[input->x].output < source->layer->relu && fl_same_format(source->as.y, node->as.dx)) {
        use(g, x->y, position);
        input->gate = x->y;
        x->gated = true;
    }
    input->addend = x->dy;
    input->sum = x->dy = sum;
    return TENSOR_OK;
}

static bool is_product(const struct fl_node *node) {
    return node->layer->group && !strcmp(node->layer->group, "product");
}

/* If backward of a node reads a value in another format, that becomes a value of its own, written before the node
 * computes. */
static tensor_status in_format_of_backward(nn_graph *g, const struct fl_node *node, int value, struct fl_type type,
                                           const char *again, int *own, int position) {
    const struct fl_value *v = &g->values[value];
    if (v->tokens || fl_same_format(v->type, type))
        return TENSOR_OK;
    const char *name = v->name ? v->name : g->values[v->base].name;
    const struct fl_shape shape = v->shape;
    *own = new_value(g, fl_format_name("%s.%s.%s%s", name, node->name, tensor_format_name(type.format), again),
                     "gradient", &shape, type, -1, position);
    return *own < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

/* Plans backward of one node. */
static tensor_status plan_node(nn_graph *g, struct fl_node *node, struct use *uses, int position) {
    const struct fl_layer *layer = node->layer;
    for (int k = 0; k < node->outputs; k++) {
        struct fl_output *output = &node->output[k];
        if (output->dy >= 0)
            use(g, output->dy, position);
        if (k < layer->saves_y || (k < layer->relu && output->dy >= 0 && !output->gated)) {
            use(g, output->y, position);
            TRY(in_format_of_backward(g, node, output->y, node->as.back, "", &output->saved, position));
        }
        if (output->dy >= 0 && is_product(node))
            TRY(in_format_of_backward(g, node, output->dy, node->as.operand, "", &output->operand, position));
    }
    for (int k = 0; k < node->works; k++) {
        struct fl_work *work = &node->work[k];
        work->value = new_value(g, fl_format_name("%s.%s", node->name, work->suffix), "gradient", &work->shape,
                                node->as.dy, -1, position);
        if (work->value < 0)
            return TENSOR_E_MEMORY;
    }
    for (int k = 0; k < node->inputs; k++) {
        struct fl_input *input = &node->input[k];
        if (k < layer->saves_x) {
            use(g, fl_output_of(g, input->x)->y, position);
            TRY(in_format_of_backward(g, node, fl_output_of(g, input->x)->y, node->as.back, repeat_of(node, k).text,
                                      &input->saved, position));
        }
        if (!gives(g, node, k, uses))
            continue;
        struct use *x = &uses[input->x];
        input->dx = input_gradient(g, node, k, x->reads <= 1, position);
        if (input->dx < 0)
            return TENSOR_E_MEMORY;
        if (fl_node_of(g, input->x)->learns)
            TRY(add_gradient(g, node, input, --x->gradients, position));
    }
    return TENSOR_OK;
}

static tensor_status plan_backward(nn_graph *g, struct use *uses) {
    const int n = g->count;
    TRY(find_uses(g, uses));
    struct fl_output *logits = fl_output_of(g, g->logits);
    use(g, logits->y, n);
    logits->dy = new_value(g, fl_format_name("%s.grad", logits->name), "gradient", &logits->shape,
                           fl_node_of(g, g->logits)->as.dy, -1, n);
    if (logits->dy < 0)
        return TENSOR_E_MEMORY;
    for (int i = n - 1; i >= 0; i--)
        if (g->nodes[i].learns)
            TRY(plan_node(g, &g->nodes[i], uses, 2 * n - i));
    if (g->objective.input_gradient && fl_output_of(g, 0)->dy < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "input_gradient: no gradient reaches the input");
    if (g->objective.input_gradient) /* to be read after the step */
        use(g, fl_output_of(g, 0)->dy, 2 * n + 1);
    return TENSOR_OK;
}

tensor_status fl_plan(nn_graph *g) {
    TRY(plan_forward(g));
    struct use *uses = fl_alloc_zero((size_t)g->handle_count * sizeof *uses);
    if (!uses)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    tensor_status status = plan_backward(g, uses);
    fl_free(uses);
    return status;
}
