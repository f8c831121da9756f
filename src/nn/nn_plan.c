/* nn_plan.c - the values of a training step, and how long each lives.
 *
 * The step is followed once on paper. Forward defines an output for each node; backward, from the last node to the
 * first, defines a gradient for each use of an output, and where an output is used more than once the sum of those. The
 * first and the last position at which a value is touched is its life. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"

/* A new value, written at `position`; base -1: with memory of its own. Its index, or -1 without memory. `name` is taken
 * over, also on failure; NULL without base means that there was no memory for it. */
static int new_value(nn_graph *g, char *name, const char *role, const struct fl_shape *shape, int base, int position) {
    if ((base < 0 && !name) || fl_grow((void **)&g->values, g->value_count, &g->value_capacity, sizeof *g->values)) {
        fl_free(name);
        fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
        return -1;
    }
    int index = g->value_count++;
    g->values[index] =
        (struct fl_value){.name = name,
                          .role = role,
                          .shape = *shape,
                          .bytes = (size_t)fl_shape_count(shape) * tensor_format_bytes(g->variant->format),
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
        for (int k = 0; k < node->layer->inputs; k++)
            use(g, g->nodes[node->input[k]].y, i);
        bool view = node->layer->view;
        node->y = new_value(g, view ? NULL : fl_format_name("%s", node->name), "activation", &node->shape,
                            view ? g->nodes[node->input[0]].y : -1, i);
        if (node->y < 0)
            return TENSOR_E_MEMORY;
    }
    return TENSOR_OK;
}

/* The gradient that backward of `node` gives to its input k, to be named after that input. */
static int input_gradient(nn_graph *g, struct fl_node *node, int k, bool only_use, int position) {
    const struct fl_node *x = &g->nodes[node->input[k]];
    switch (node->gated ? node->layer->when_gated[k] : node->layer->gradient[k]) {
    case FL_GRADIENT_SAME:
        if (g->values[node->dy].shape.ndim == x->shape.ndim)
            return node->dy;
        return new_value(g, NULL, "gradient", &x->shape, node->dy, position);
    case FL_GRADIENT_SHARED:
        for (int other = 0; other < k; other++)
            if (node->dx[other] >= 0)
                return node->dx[other];
        break;
    case FL_GRADIENT_OWN:
        break;
    }
    char *name = only_use ? fl_format_name("%s.grad", x->name) : fl_format_name("%s.grad.%s", x->name, node->name);
    return new_value(g, name, "gradient", &x->shape, -1, position);
}

/* Adds the gradient just written for input k to what later nodes left there. `uses` of that input are still to come. */
static tensor_status add_gradient(nn_graph *g, struct fl_node *node, int k, int uses, int position) {
    struct fl_node *x = &g->nodes[node->input[k]];
    if (x->dy < 0) {
        x->dy = node->dx[k];
        return TENSOR_OK;
    }
    char *name = uses ? fl_format_name("%s.grad.sum.%s", x->name, node->name) : fl_format_name("%s.grad", x->name);
    int sum = new_value(g, name, "gradient", &x->shape, -1, position);
    if (sum < 0)
        return TENSOR_E_MEMORY;
    use(g, x->dy, position);
    use(g, node->dx[k], position);
    if (!uses && x->layer->relu) {
        use(g, x->y, position);
        node->gate[k] = x->y;
        x->gated = true;
    }
    node->addend[k] = x->dy;
    node->sum[k] = x->dy = sum;
    return TENSOR_OK;
}

static tensor_status plan_backward(nn_graph *g, int *uses) {
    int n = g->count;
    bool *only_use = (bool *)(uses + n);
    for (int i = 0; i < n; i++)
        for (int k = 0; g->nodes[i].learns && k < g->nodes[i].layer->inputs; k++)
            uses[g->nodes[i].input[k]]++;
    for (int i = 0; i < n; i++)
        only_use[i] = uses[i] <= 1;

    struct fl_node *logits = &g->nodes[n - 1];
    use(g, logits->y, n);
    logits->dy = new_value(g, fl_format_name("%s.grad", logits->name), "gradient", &logits->shape, -1, n);
    if (logits->dy < 0)
        return TENSOR_E_MEMORY;
    for (int i = n - 1; i >= 0; i--) {
        struct fl_node *node = &g->nodes[i];
        const struct fl_layer *layer = node->layer;
        int position = 2 * n - i;
        if (!node->learns)
            continue;
        use(g, node->dy, position);
        if (layer->relu && !node->gated)
            use(g, node->y, position);
        for (int k = 0; k < layer->inputs; k++) {
            struct fl_node *x = &g->nodes[node->input[k]];
            if (k < layer->saves_x)
                use(g, x->y, position);
            if (!x->learns && !layer->always_dx)
                continue;
            node->dx[k] = input_gradient(g, node, k, only_use[node->input[k]], position);
            if (node->dx[k] < 0)
                return TENSOR_E_MEMORY;
            if (x->learns)
                FL_TRY(add_gradient(g, node, k, --uses[node->input[k]], position));
        }
    }
    return TENSOR_OK;
}

tensor_status fl_plan(nn_graph *g) {
    FL_TRY(plan_forward(g));
    int *uses = fl_alloc_zero((size_t)g->count * (sizeof(int) + sizeof(bool)));
    if (!uses)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    tensor_status status = plan_backward(g, uses);
    fl_free(uses);
    return status;
}
