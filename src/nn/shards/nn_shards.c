/* nn_shards.c - the tensors that exist once for each shard, and which of them are in place. */
#include "nn/shards/nn_shards.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"

/* What a node has for each shard. */
struct node_of_shard {
    struct fl_pass train, back;
    tensor **tensors, **views;
};

struct parameter_of_shard {
    tensor *gradient, *vector;
    int info;
};

struct fl_shard {
    tensor **values;
    int *infos;
    struct node_of_shard *nodes;
    tensor **states; /* of all nodes, those that do not last */
    struct parameter_of_shard *parameters;
    struct fl_recording forward, backward;
    tensor *loss, *correct;
    double share;
    struct fl_told told; /* of a shard of another rank */
};

/* --- settings ----------------------------------------------------------------------------------------------------- */

tensor_status fl_shards_check(const nn_config *c) {
    if (c->shards < 0 || c->shards > FL_MOST_SHARDS)
        return fl_fail(TENSOR_E_ARGUMENT, "shards: %d, expected 1 to %d", c->shards, FL_MOST_SHARDS);
    if (c->shards <= 1)
        return TENSOR_OK;
    if (c->batch % c->shards)
        return fl_fail(TENSOR_E_ARGUMENT, "shards: %d do not divide the batch of %d", c->shards, c->batch);
    if (c->input_gradient)
        return fl_fail(TENSOR_E_ARGUMENT, "shards: %d with input_gradient, which is of one shard", c->shards);
    return c->loss && !strcmp(c->loss, "wasserstein")
               ? fl_fail(TENSOR_E_ARGUMENT, "shards: %d, expected 1 with loss wasserstein, which has two means",
                         c->shards)
               : TENSOR_OK;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

static int passing_states(const nn_graph *g) {
    int count = 0;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].states; k++)
            count += !g->nodes[i].state[k].lasts;
    return count;
}

int fl_shard_gradients(const nn_graph *g) {
    int count = 0;
    for (int i = 0; i < g->count; i++)
        count += g->nodes[i].parameters;
    return count;
}

char *fl_shard_name(const nn_graph *g, const char *name) {
    return g->shards > 1 ? fl_format_name("%s.shard%d", name, g->shard) : fl_format_name("%s", name);
}

/* --- in place and kept -------------------------------------------------------------------------------------------- */

/* Copies between the places and the list; `keep` says in which direction. */
static void exchange_nodes(nn_graph *g, struct fl_shard *of, bool keep) {
    int state = 0, parameter = 0;
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        struct node_of_shard *n = &of->nodes[i];
        if (keep)
            *n = (struct node_of_shard){node->train, node->back, node->tensors, node->views};
        node->train = n->train;
        node->back = n->back;
        node->tensors = n->tensors;
        node->views = n->views;
        for (int k = 0; k < node->states; k++) {
            if (node->state[k].lasts)
                continue;
            if (keep)
                of->states[state] = node->state[k].t;
            node->state[k].t = of->states[state++];
        }
        for (int k = 0; k < node->parameters; k++) {
            struct fl_parameter *p = &node->parameter[k];
            struct parameter_of_shard *own = &of->parameters[parameter++];
            if (keep)
                *own = (struct parameter_of_shard){p->g_pass, p->g_vector, p->g_info};
            p->g_pass = own->gradient;
            p->g_vector = own->vector;
            p->g_info = own->info;
        }
    }
}

static void exchange(nn_graph *g, struct fl_shard *of, bool keep) {
    for (int i = 0; i < g->value_count; i++) {
        struct fl_value *v = &g->values[i];
        if (keep) {
            of->values[i] = v->t;
            of->infos[i] = v->info;
        }
        v->t = of->values[i];
        v->info = of->infos[i];
    }
    exchange_nodes(g, of, keep);
    if (keep) {
        of->forward = g->forward;
        of->backward = g->backward;
        of->loss = g->loss;
        of->correct = g->correct;
    }
    g->forward = of->forward;
    g->backward = of->backward;
    g->loss = of->loss;
    g->correct = of->correct;
}

tensor_status fl_shards_begin(nn_graph *g) {
    g->shard = 0;
    if (g->shards <= 1)
        return TENSOR_OK;
    if (!(g->of = fl_alloc_zero((size_t)g->shards * sizeof *g->of)))
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d shards", g->shards);
    const size_t values = (size_t)g->value_count, states = (size_t)passing_states(g) + 1,
                 learned = (size_t)fl_shard_gradients(g) + 1;
    for (int s = 0; s < g->shards; s++) {
        struct fl_shard *of = &g->of[s];
        of->values = fl_alloc_zero(values * sizeof *of->values);
        of->infos = fl_alloc_zero(values * sizeof *of->infos);
        of->nodes = fl_alloc_zero((size_t)g->count * sizeof *of->nodes);
        of->states = fl_alloc_zero(states * sizeof *of->states);
        of->parameters = fl_alloc_zero(learned * sizeof *of->parameters);
        if (!of->values || !of->infos || !of->nodes || !of->states || !of->parameters)
            return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d shards", g->shards);
    }
    return TENSOR_OK;
}

/* Empties the places for the next shard; evaluation has one set of tensors, and the tokens are the same. */
static void empty(nn_graph *g) {
    static const struct fl_recording none;
    for (int i = 0; i < g->value_count; i++)
        g->values[i].t = NULL;
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        node->tensors = node->views = NULL;
        for (int k = 0; k < node->states; k++)
            if (!node->state[k].lasts)
                node->state[k].t = NULL;
        for (int k = 0; k < node->parameters; k++)
            node->parameter[k].g_pass = node->parameter[k].g_vector = NULL;
    }
    g->forward = g->backward = none;
    g->loss = g->correct = NULL;
}

tensor_status fl_shard_keep(nn_graph *g) {
    if (!g->of)
        return TENSOR_OK;
    exchange(g, &g->of[g->shard], true);
    if (++g->shard < g->shards)
        empty(g);
    else
        g->shard--; /* the last one remains in place */
    return TENSOR_OK;
}

void fl_shard_select(nn_graph *g, int shard) {
    if (!g->of || shard == g->shard)
        return;
    for (int i = 0; i < g->value_count && !g->together; i++)
        if (fl_is_stored(g, i))
            fl_tensor_hide(g->values[i].t, true);
    exchange(g, &g->of[g->shard], true); /* recordings change */
    g->shard = shard;
    exchange(g, &g->of[shard], false);
}

tensor_status fl_each_shard(nn_graph *g, tensor_status (*call)(nn_graph *g, void *context), void *context) {
    for (int s = 0; s < g->shards; s++) {
        fl_shard_select(g, s);
        TRY(call(g, context));
    }
    return TENSOR_OK;
}

tensor *fl_shard_value(const nn_graph *g, int shard, int value) {
    return g->of ? g->of[shard].values[value] : g->values[value].t;
}

int fl_shard_info(const nn_graph *g, int shard, int value) {
    return g->of ? g->of[shard].infos[value] : g->values[value].info;
}

tensor *fl_shard_gradient(const nn_graph *g, int shard, int parameter) {
    return g->of[shard].parameters[parameter].gradient;
}

int fl_shard_gradient_info(const nn_graph *g, int shard, int parameter) {
    return g->of[shard].parameters[parameter].info;
}

tensor *fl_shard_state(const nn_graph *g, int shard, int state) {
    return g->of[shard].states[state];
}

/* --- the loss ----------------------------------------------------------------------------------------------------- */

tensor_status fl_shard_begin_pass(nn_graph *g, double share) {
    if (!g->of)
        return TENSOR_OK;
    const double scale = g->scaling.initial * share;
    g->of[g->shard].share = share;
    return g->scaling.state ? fl_scale_share(g->share, g->scaling.state, share) : tensor_load_f64(g->share, &scale, 1);
}

void fl_shard_tell(nn_graph *g, int shard, double loss, int correct) {
    g->of[shard].told = (struct fl_told){NULL, NULL, 1, loss, correct};
}

struct fl_told fl_shard_told(const nn_graph *g, int shard) {
    const struct fl_shard *of = &g->of[shard];
    return fl_is_own_shard(g, shard) ? (struct fl_told){of->loss, of->correct, of->share, 0, 0} : of->told;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

/* Frees what is in place; views are freed before their bases. */
static void free_in_place(nn_graph *g) {
    fl_recording_forget(g->device, &g->forward);
    fl_recording_forget(g->device, &g->backward);
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        for (int k = 0; node->views && k < fl_node_tensors(node); k++)
            tensor_free(node->views[k]);
        fl_free(node->views);
        fl_free(node->tensors);
        node->views = node->tensors = NULL;
        for (int k = 0; k < node->states; k++) {
            if (node->state[k].lasts)
                continue;
            tensor_free(node->state[k].t);
            node->state[k].t = NULL;
        }
        for (int k = 0; k < node->parameters; k++) {
            struct fl_parameter *p = &node->parameter[k];
            tensor_free(p->g_vector);
            if (p->g_pass != p->g)
                tensor_free(p->g_pass);
            p->g_vector = p->g_pass = NULL;
        }
    }
    for (int i = g->value_count - 1; i >= 0; i--) {
        if (!g->values[i].tokens)
            tensor_free(g->values[i].t);
        g->values[i].t = NULL;
    }
    tensor_free(g->loss);
    tensor_free(g->correct);
    g->loss = g->correct = NULL;
}

void fl_shards_free(nn_graph *g) {
    free_in_place(g); /* of the only shard, of the one selected, or of one that was not finished */
    for (int s = 0; g->of && s < g->shards; s++) {
        struct fl_shard *of = &g->of[s];
        const bool there = of->values && of->infos && of->nodes && of->states && of->parameters;
        const bool was_in_place = s == g->shard;
        if (there && !was_in_place) {
            exchange(g, of, false);
            free_in_place(g);
        }
        fl_free(of->values);
        fl_free(of->infos);
        fl_free(of->nodes);
        fl_free(of->states);
        fl_free(of->parameters);
    }
    fl_free(g->of);
    g->of = NULL;
}
