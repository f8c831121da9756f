/* nn_network.c - a network from its config until it is freed. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "nn/policies/nn_policy.h"
#include "nn/step/nn_ranks.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"
#include "nn/step/nn_together.h"
#include <math.h>

static tensor_status check_config(const nn_config *config, const nn_variant *variant, const struct fl_policy *policy) {
    if (config->batch < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "batch: %d, expected at least 1", config->batch);
    if (!(config->momentum >= 0 && config->momentum < 1))
        return fl_fail(TENSOR_E_ARGUMENT, "momentum: %g, expected 0 or more and below 1", (double)config->momentum);
    if (!(config->weight_decay >= 0 && isfinite(config->weight_decay)))
        return fl_fail(TENSOR_E_ARGUMENT, "weight decay: %g, expected 0 or more", (double)config->weight_decay);
    TRY(fl_shards_check(config));
    TRY(fl_ranks_check(config));
    if (fl_optimiser_check(config, variant) || fl_objective_check(config) || fl_loss_scale_check(config))
        return TENSOR_E_ARGUMENT;
    if (!config->predictor)
        return TENSOR_OK;
    if (policy ? !fl_policy_shares(policy) : !tensor_format_is_shared(variant->format))
        return fl_fail(TENSOR_E_ARGUMENT, "predictor '%s': variant %s has no shared exponent", config->predictor,
                       variant->name);
    autoflex_predictor predictor;
    return autoflex_parse(&predictor, config->predictor);
}

nn_graph *nn_graph_new(const nn_config *given) {
    if (!given) {
        fl_fail(TENSOR_E_ARGUMENT, "graph: config is NULL");
        return NULL;
    }
    nn_config ours = *given, *config = &ours;
    struct fl_policy *policy = NULL;
    if ((config->policy || config->layer_formats) &&
        fl_policy_new(&policy, config->policy, config->layer_formats, config->variant))
        return NULL;
    if (policy && policy->loss_scale && !config->loss_scale) /* unless the caller sets another one */
        config->loss_scale = policy->loss_scale;
    const nn_variant *variant = policy ? policy->variant : nn_variant_find(config->variant);
    tensor_device *device = config->device ? nn_group_device(config->group, config->device) : tensor_device_at(0);
    if (!variant || !device || check_config(config, variant, policy) ||
        (policy && config->no_master && fl_policy_without_masters(policy))) {
        fl_policy_free(policy);
        return NULL;
    }
    nn_graph *g = fl_alloc_zero(sizeof *g);
    if (!g) {
        fl_policy_free(policy);
        fl_fail(TENSOR_E_MEMORY, "graph: no memory");
        return NULL;
    }
    g->variant = variant;
    g->policy = policy;
    g->class = policy ? policy->class : TENSOR_EXACT;
    g->asked = config->predictor != NULL;
    g->device = device;
    /* the table's own string: the caller's may not live as long */
    g->predictor = config->predictor ? autoflex_name(autoflex_find(config->predictor)) : variant->predictor;
    g->wide = variant->wide && !config->no_master;
    g->no_master = config->no_master;
    g->shards = config->shards ? config->shards : 1;
    g->together = config->batchnorm_global && g->shards > 1;
    g->batch = config->batch / g->shards;
    g->group = config->group;
    g->seed = config->seed;
    fl_loss_scale_take(g, config);
    fl_optimiser_take(g, config);
    fl_objective_take(g, config);
    return g;
}

void nn_graph_free(nn_graph *g) {
    if (!g)
        return;
    fl_expected_forget(g);
    if (g->device)
        (void)tensor_device_wait(g->device); /* failures of its tasks are not reported to others */
    fl_recording_forget(g->device, &g->update);
    fl_shards_free(g);
    fl_ranks_free(g);
    for (int i = 0; i < g->count; i++) {
        fl_together_free(g, &g->nodes[i]);
        fl_node_clear(&g->nodes[i]);
    }
    for (int i = g->value_count - 1; i >= 0; i--) { /* views are freed before their bases */
        if (!g->values[i].tokens)
            tensor_free(g->values[i].evaluate);
        fl_free(g->values[i].name);
    }
    for (int i = 0; i < g->info_count; i++)
        fl_free((void *)(uintptr_t)g->infos[i].name);
    fl_policy_free(g->policy);
    fl_free(g->nodes);
    fl_free(g->handles);
    fl_free(g->values);
    fl_free(g->positions);
    fl_free(g->infos);
    fl_writes_clear(&g->writes);
    fl_optimiser_clear(&g->optimiser);
    fl_loss_scale_clear(g);
    tensor_free(g->objective.targets);
    tensor_free(g->objective.mean);
    tensor_free(g->objective.right);
    tensor_free(g->objective.given);
    tensor_free(g->tokens);
    tensor_free(g->pixels);
    tensor_free(g->bytes);
    tensor_free(g->byte_values);
    tensor_free(g->indices);
    fl_free(g->index_buffer);
    fl_losses_free(g);
    tensor_free(g->labels);
    tensor_free(g->rate);
    tensor_free(g->step);
    tensor_free(g->share);
    tensor_free(g->predicted);
    tensor_device_release(g->device, g->arena);
    fl_free(g);
}

tensor_status nn_graph_limit(nn_graph *g, int64_t bytes) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "graph: the graph is NULL");
    if (bytes < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "graph: a limit of %lld bytes, expected 0 or more", (long long)bytes);
    if (g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "graph: a limit of its memory, but it is compiled already");
    g->most_of_steps = bytes;
    return TENSOR_OK;
}
