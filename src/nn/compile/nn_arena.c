/* nn_arena.c - one arena for the temporary memory of a training step: values, from the first to the last position that
 * uses them, and the memory that tasks take besides their tensors. All of it is allocated before a step begins. */
#include "nn/compile/nn_compile.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include "nn/shards/nn_shards.h"
#include <stdio.h>
#include <stdlib.h>

/* --- packing ------------------------------------------------------------------------------------------------------ */

static int by_size(const void *p, const void *q) {
    const struct fl_block *a = *(struct fl_block *const *)p, *b = *(struct fl_block *const *)q;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    return a < b ? -1 : a > b; /* a fixed order, even though qsort is not stable */
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

/* --- the arena of a graph ----------------------------------------------------------------------------------------- */

static tensor_status no_memory(void) {
    return fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
}

/* In the order of the values. */
tensor_status fl_list_positions(nn_graph *g) {
    g->positions = fl_alloc_zero((size_t)fl_positions(g) * sizeof *g->positions);
    if (!g->positions)
        return no_memory();
    for (int p = 0; p < fl_positions(g); p++)
        g->positions[p].begins = g->positions[p].ends = -1;
    for (int i = g->value_count - 1; i >= 0; i--) {
        struct fl_value *v = &g->values[i];
        if (!fl_is_stored(g, i))
            continue;
        v->next_to_begin = g->positions[v->first].begins;
        g->positions[v->first].begins = i;
        v->next_to_end = g->positions[v->last].ends;
        g->positions[v->last].ends = i;
    }
    return TENSOR_OK;
}

/* Lists the blocks of the values that have memory; returns their number. */
static int list_values(const nn_graph *g, struct fl_block *blocks) {
    int count = 0;
    for (int i = 0; i < g->value_count; i++) {
        const struct fl_value *v = &g->values[i];
        if (fl_is_stored(g, i))
            blocks[count++] = (struct fl_block){.bytes = v->bytes, .first = v->first, .last = v->last};
    }
    return count;
}

/* The most bytes that the tasks of any position take. */
static size_t most_of_calls(const nn_graph *g, int k) {
    size_t most = 0;
    for (int p = 0; p < fl_positions(g); p++)
        most = g->positions[p].need[k] > most ? g->positions[p].need[k] : most;
    return most;
}

/* Lists the blocks of tasks: one of each kind for all positions. With one for each position, an arena would be slightly
 * smaller, and a step 1 to 3 % slower, because the memory of tasks would not be in a cache (decision 17). */
static int list_calls(const nn_graph *g, struct fl_block *blocks) {
    int count = 0;
    for (int k = 0; k < FL_CALL_MEMORIES; k++)
        if (most_of_calls(g, k))
            blocks[count++] = (struct fl_block){.bytes = most_of_calls(g, k), .first = 0, .last = fl_positions(g) - 1};
    return count;
}

/* The places for values: of shards that go through a step together each has its own. */
static int sets_of_values(const nn_graph *g) {
    return g->together ? fl_ranks_own(g) : 1;
}

static size_t set_bytes(const nn_graph *g) {
    return (g->set_bytes + FL_ALIGNMENT - 1) & ~(size_t)(FL_ALIGNMENT - 1);
}

/* Shards of other ranks, which are never computed here, have places of some of this one. */
static tensor_status place_values(nn_graph *g, void *context) {
    (void)context;
    char *const set = (char *)g->arena + (size_t)(g->shard % sets_of_values(g)) * set_bytes(g);
    for (int i = 0; i < g->value_count; i++)
        if (fl_is_stored(g, i))
            fl_tensor_place(g->values[i].t, set + g->values[i].offset);
    return TENSOR_OK;
}

/* Visits the blocks again, and assigns their places. */
static void take_places(nn_graph *g, const struct fl_block *blocks) {
    char *const arena = g->arena;
    for (int i = 0; i < g->value_count; i++) {
        struct fl_value *v = &g->values[i];
        if (!fl_is_stored(g, i))
            continue;
        v->offset = (blocks++)->offset;
        if (v->evaluate)
            fl_tensor_place(v->evaluate, arena + v->offset);
    }
    (void)fl_each_shard(g, place_values, NULL); /* which cannot fail */
    for (int k = 0; k < FL_CALL_MEMORIES; k++) {
        if (!most_of_calls(g, k))
            continue;
        char *const block = arena + (blocks++)->offset;
        for (int p = 0; p < fl_positions(g); p++)
            if (g->positions[p].need[k])
                g->positions[p].calls[k] = (struct fl_call_block){block, g->positions[p].need[k]};
    }
}

static tensor_status check_limit(const nn_graph *g, size_t bytes) {
    return !g->most_of_steps || bytes <= (size_t)g->most_of_steps
               ? TENSOR_OK
               : fl_fail(TENSOR_E_MEMORY,
                         "graph: a step of batch %d takes %zu bytes or more beside the weights, expected at most %lld",
                         fl_whole_batch(g), bytes, (long long)g->most_of_steps);
}

/* The gradients of several shards. */
static size_t gradients_of_shards(const nn_graph *g) {
    size_t bytes = 0;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters && g->shards > 1; k++) {
            const struct fl_parameter *p = &g->nodes[i].parameter[k];
            bytes += (size_t)fl_shape_count(&p->shape) * tensor_format_bytes(p->as.g.format);
        }
    return bytes * (size_t)g->shards;
}

tensor_status fl_check_values(const nn_graph *g) {
    const size_t most = (size_t)g->value_count + 1,
                 rows = 2 * sizeof(int32_t) * (size_t)g->rows + gradients_of_shards(g);
    size_t bytes = 0;
    if (!g->most_of_steps)
        return TENSOR_OK;
    TRY(check_limit(g, rows));
    struct fl_block *blocks = fl_alloc_zero(most * sizeof *blocks);
    tensor_status status = blocks ? fl_pack(blocks, list_values(g, blocks), &bytes) : no_memory();
    if (!status)
        status = check_limit(g, bytes * (size_t)sets_of_values(g) + rows);
    fl_free(blocks);
    return status;
}

/* The blocks of tasks follow the values of all shards. */
static tensor_status pack_sets(nn_graph *g, struct fl_block *blocks, int values, int calls) {
    g->set_bytes = g->value_bytes;
    const size_t all = set_bytes(g) * (size_t)sets_of_values(g);
    size_t of_calls = 0;
    TRY(fl_pack(blocks + values, calls, &of_calls));
    for (int i = values; i < values + calls; i++)
        blocks[i].offset += all;
    g->value_bytes = all;
    g->arena_bytes = all + of_calls;
    return TENSOR_OK;
}

tensor_status fl_make_arena(nn_graph *g) {
    const size_t most = (size_t)g->value_count + FL_CALL_MEMORIES;
    struct fl_block *blocks = fl_alloc_zero(most * sizeof *blocks);
    if (!blocks)
        return no_memory();
    const int values = list_values(g, blocks), calls = list_calls(g, blocks + values);
    tensor_status status =
        fl_pack(blocks, values, &g->value_bytes); /* for its size: the blocks of tasks may change the places */
    if (!status && g->together)
        status = pack_sets(g, blocks, values, calls);
    else if (!status)
        status = fl_pack(blocks, values + calls, &g->arena_bytes);
    if (!status)
        status = check_limit(g, g->arena_bytes);
    if (!status && !(g->arena = tensor_device_allocate(g->device, g->arena_bytes))) {
        char why[400];
        snprintf(why, sizeof why, "%s", tensor_error());
        status = fl_fail(TENSOR_E_MEMORY, "graph: no memory for an arena of %zu bytes (%s)", g->arena_bytes, why);
    }
    if (!status)
        take_places(g, blocks);
    fl_free(blocks);
    return status;
}
