/* nn_make_parameter.c - the tensors of a parameter, listed and with initial values (nn_parameter.c). */
#include "nn/compile/nn_compile.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"

static tensor_status add(nn_graph *g, const struct fl_parameter *p, char *name, const char *role, struct fl_type type,
                         tensor **t) {
    const tensor_status status = name ? fl_new_tensor(g, t, type, &p->shape) : TENSOR_OK;
    return fl_list_tensor(g, name, role, *t, status);
}

/* Adds a tensor called NAME.FORMAT if the format differs from that of the tensor before it. */
static tensor_status add_other(nn_graph *g, const struct fl_parameter *p, const char *name, const char *role,
                               struct fl_type before, struct fl_type type, tensor **t) {
    if (fl_same_format(before, type))
        return TENSOR_OK;
    return add(g, p, fl_format_name("%s.%s", name, tensor_format_name(type.format)), role, type, t);
}

static tensor_status add_others(nn_graph *g, struct fl_parameter *p, const char *name, const char *gradient) {
    const struct fl_parameter_types *as = &p->as;
    TRY(add_other(g, p, gradient, "weight gradient", as->g, as->kept, &p->g_kept));
    TRY(add_other(g, p, p->g_kept ? g->infos[g->info_count - 1].name : gradient, "weight gradient", as->kept,
                  as->update, &p->g_taken));
    if (!fl_same_format(as->w, as->update))
        TRY(add(g, p, fl_format_name("%s.master", name), "weight", as->update, &p->master));
    TRY(add_other(g, p, name, "weight", as->w, as->forward, &p->w_forward));
    if (!fl_same_format(as->backward, as->forward))
        return add_other(g, p, name, "weight", as->w, as->backward, &p->w_backward);
    p->w_backward = p->w_forward;
    return TENSOR_OK;
}

static tensor_status load_initial(const struct fl_parameter *p, const char *name, uint64_t key) {
    const int64_t count = fl_shape_count(&p->shape);
    double *values = fl_alloc((size_t)count * sizeof *values);
    if (!values)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld initial values", name, (long long)count);
    fl_init_values(values, count, p->init, p->scale, key);
    tensor_status status = tensor_load_f64(fl_updated(p), values, count);
    fl_free(values);
    return status ? status : fl_refresh_weight(p);
}

tensor_status fl_make_parameter(nn_graph *g, const struct fl_node *node, struct fl_parameter *p) {
    p->info = g->info_count;
    TRY(fl_new_tensor(g, &p->w, p->as.w, &p->shape));
    TRY(fl_new_tensor(g, &p->g, p->as.g, &p->shape));
    TRY(fl_list_tensor(g, fl_format_name("%s.%s", node->owner, p->suffix), "weight", p->w, TENSOR_OK));
    const char *name = g->infos[g->info_count - 1].name;
    TRY(fl_list_tensor(g, fl_format_name("%s.grad", name), "weight gradient", p->g, TENSOR_OK));
    const char *gradient = g->infos[g->info_count - 1].name;
    TRY(fl_optimiser_parameter(g, p, name));
    TRY(add_others(g, p, name, gradient));
    p->infos = g->info_count - p->info;
    if (p->as.wide)
        TRY(tensor_keep_wide(p->w));
    const uint64_t key = nn_name_key(g->seed, name);
    if (p->as.stochastic)
        TRY(tensor_set_rounding(p->w, TENSOR_ROUND_STOCHASTIC, key));
    if (node->blocks.draws) /* of the operands of the product that gives it */
        TRY(tensor_set_rounding(p->g, TENSOR_ROUND_NEAREST, nn_name_key(g->seed, gradient)));
    return load_initial(p, name, key);
}

/* A gradient that another rank computes: exponent and statistics, and no memory of its own. */
static tensor_status make_others(struct fl_parameter *p) {
    p->g_pass = fl_tensor_beside(p->g);
    return p->g_pass ? fl_set_predictor(p->g_pass, p->as.g.predictor) : tensor_error_status();
}

/* The gradient of a shard, or of the only one. */
static tensor_status make_gradient(nn_graph *g, const struct fl_node *node, struct fl_parameter *p) {
    p->g_pass = p->g;
    p->g_info = p->info + 1;
    if (g->shards == 1)
        return TENSOR_OK;
    p->g_pass = NULL;
    p->g_info = g->info_count;
    TRY(fl_is_own_shard(g, g->shard) ? fl_new_tensor(g, &p->g_pass, p->as.g, &p->shape) : make_others(p));
    TRY(fl_list_tensor(g, fl_shard_name(g, g->infos[p->info + 1].name), "weight gradient", p->g_pass, TENSOR_OK));
    return node->blocks.draws
               ? tensor_set_rounding(p->g_pass, TENSOR_ROUND_NEAREST, nn_name_key(g->seed, g->infos[p->g_info].name))
               : TENSOR_OK;
}

tensor_status fl_make_gradient(nn_graph *g, const struct fl_node *node, struct fl_parameter *p) {
    const struct fl_shape vector = {1, {fl_shape_count(&p->shape)}};
    TRY(make_gradient(g, node, p));
    if (!node->layer->vectors)
        return TENSOR_OK;
    p->g_vector = tensor_new_view(p->g_pass, vector.ndim, vector.dim);
    return p->g_vector ? TENSOR_OK : tensor_error_status();
}
