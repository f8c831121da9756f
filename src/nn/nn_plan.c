/* nn_plan.c - the values of a training step, how long each lives, and where in one arena.
 *
 * The step is followed once on paper. Forward defines an output for each node; backward, from the last node to the
 * first, defines a gradient for each use of an output, and where an output is used more than once the sum of those. The
 * first and the last position at which a value is touched is its life. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
#include <stdlib.h>

/* --- lives -------------------------------------------------------------------------------------------------------- */

/* A new value, written at `position`; base -1: with memory of its own. Its index, or -1 without memory. `name` is taken
 * over, also on failure; NULL without base means that there was no memory for it. */
static int new_value(nn_graph *g, char *name, const char *role, const struct fl_shape *shape, int base, int position) {
    if ((base < 0 && !name) || fl_grow((void **)&g->values, g->value_count, &g->value_capacity, sizeof *g->values)) {
        fl_free(name);
        fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
        return -1;
    }
    int index = g->value_count++;
    g->values[index] = (struct fl_value){.name = name,
                                         .role = role,
                                         .shape = *shape,
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

/* --- places ------------------------------------------------------------------------------------------------------- */

static int by_size(const void *p, const void *q) {
    const struct fl_block *a = *(struct fl_block *const *)p, *b = *(struct fl_block *const *)q;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : a > b; /* a fixed order, whatever qsort does */
}

/* Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the largest
 * block first, each into the smallest gap that fits among the blocks already placed whose lives overlap its own. */
tensor_status fl_pack(struct fl_block *blocks, int count, size_t *total) {
    struct fl_block **order = fl_alloc(2 * (size_t)count * sizeof *order);
    if (!order)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    struct fl_block **placed = order + count; /* by offset */
    for (int i = 0; i < count; i++)
        order[i] = &blocks[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    *total = 0;
    for (int i = 0; i < count; i++) {
        struct fl_block *block = order[i];
        size_t bytes = (block->bytes + FL_ALIGNMENT - 1) & ~(size_t)(FL_ALIGNMENT - 1);
        size_t end = 0, best = 0, best_gap = SIZE_MAX;
        for (int k = 0; k < i; k++) {
            const struct fl_block *other = placed[k];
            if (other->last < block->first || other->first > block->last)
                continue;
            if (other->offset >= end && other->offset - end >= bytes && other->offset - end < best_gap) {
                best = end;
                best_gap = other->offset - end;
            }
            size_t other_end = (other->offset + other->bytes + FL_ALIGNMENT - 1) & ~(size_t)(FL_ALIGNMENT - 1);
            end = other_end > end ? other_end : end;
        }
        block->offset = best_gap < SIZE_MAX ? best : end;
        *total = block->offset + bytes > *total ? block->offset + bytes : *total;
        int at = i;
        for (; at > 0 && placed[at - 1]->offset > block->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = block;
    }
    fl_free(order);
    return TENSOR_OK;
}

static tensor_status plan_arena(nn_graph *g) {
    struct fl_block *blocks = fl_alloc_zero((size_t)g->value_count * sizeof *blocks);
    if (!blocks)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    int count = 0;
    for (int i = 0; i < g->value_count; i++) {
        struct fl_value *v = &g->values[i];
        v->bytes = (size_t)fl_shape_count(&v->shape) * tensor_format_bytes(g->variant->format);
        if (v->base == i)
            blocks[count++] = (struct fl_block){.bytes = v->bytes, .first = v->first, .last = v->last};
    }
    tensor_status status = fl_pack(blocks, count, &g->arena_bytes);
    for (int i = 0, k = 0; !status && i < g->value_count; i++)
        g->values[i].offset = g->values[i].base == i ? blocks[k++].offset : g->values[g->values[i].base].offset;
    fl_free(blocks);
    return status;
}

tensor_status fl_plan(nn_graph *g) {
    FL_TRY(plan_forward(g));
    int *uses = fl_alloc_zero((size_t)g->count * (sizeof(int) + sizeof(bool)));
    if (!uses)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    tensor_status status = plan_backward(g, uses);
    fl_free(uses);
    return status ? status : plan_arena(g);
}
