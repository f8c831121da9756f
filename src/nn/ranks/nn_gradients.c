/* nn_gradients.c - where the gradients lie that ranks add. */
#include "nn/ranks/nn_gradients.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/shards/nn_shards.h"

static tensor *sum_of(const nn_graph *g, int parameter) {
    int node = 0;
    for (; parameter >= g->nodes[node].parameters; node++)
        parameter -= g->nodes[node].parameters;
    return g->nodes[node].parameter[parameter].g;
}

tensor_status fl_gradients_make(struct fl_gradients *of, nn_graph *g) {
    const int parameters = fl_shard_gradients(g), own = fl_ranks_own(g);
    *of = (struct fl_gradients){.g = g};
    if (g->device == tensor_device_at(0) || !parameters)
        return TENSOR_OK;
    tensor **all = fl_alloc((size_t)(parameters * (own + 1)) * sizeof(tensor *));
    if (!all)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d gradients", parameters);
    for (int i = 0; i < parameters; i++) {
        for (int s = 0; s < own; s++)
            all[i * (own + 1) + s] = fl_shard_gradient(g, fl_ranks_first(g) + s, i);
        all[i * (own + 1) + own] = sum_of(g, i);
    }
    of->copies = fl_host_copies_new(all, parameters * (own + 1), own + 1);
    fl_free(all);
    return of->copies ? TENSOR_OK : tensor_error_status();
}

void fl_gradients_free(struct fl_gradients *of) {
    fl_host_copies_free(of->copies);
    of->copies = NULL;
}

tensor *fl_gradients_shard(const struct fl_gradients *of, int shard, int parameter) {
    const int number = parameter * (fl_ranks_own(of->g) + 1) + shard - fl_ranks_first(of->g);
    return of->copies ? fl_host_copy(of->copies, number) : fl_shard_gradient(of->g, shard, parameter);
}

tensor *fl_gradients_sum(const struct fl_gradients *of, int parameter) {
    const int own = fl_ranks_own(of->g);
    return of->copies ? fl_host_copy(of->copies, parameter * (own + 1) + own) : sum_of(of->g, parameter);
}

bool fl_gradients_are_elsewhere(const struct fl_gradients *of) {
    return of->copies != NULL;
}

tensor_status fl_gradients_begin(const struct fl_gradients *of, int first, int count, struct fl_fetch *fetch) {
    const int group = fl_ranks_own(of->g) + 1;
    return fl_host_copies_begin(of->copies, first * group, count * group, fetch);
}

tensor_status fl_gradients_end(const struct fl_gradients *of, int first, int count, struct fl_fetch *fetch) {
    const int group = fl_ranks_own(of->g) + 1;
    return fl_host_copies_end(of->copies, first * group, count * group, fetch);
}

tensor_status fl_gradients_return(const struct fl_gradients *of) {
    return of->copies ? fl_host_copies_return(of->copies) : TENSOR_OK;
}
