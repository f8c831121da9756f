/* nn_state.c - the state of a network as bytes: a header that identifies the network, then its tensors one after the
 * other. */
#include "nn/checkpoints/nn_state.h"
#include "nn/compile/nn_compile.h"
#include "nn/step/nn_ranks.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/values/tensor_state.h"
#include "flexlab/version.h"
#include <stdio.h>
#include <string.h>

struct head {
    char magic[24];
    char version[16];
    char variant[32];
    uint64_t bytes, layout, steps;
};

static const char magic[] = "flexlab network state 2"; /* what follows the head is laid out the second way */

/* --- every tensor of the state, in one order ---------------------------------------------------------------------- */

typedef fl_visit_fn visit_fn;

static tensor_status visit_some(tensor *t, bool elements, visit_fn visit, void *context) {
    return t ? visit(t, elements, context) : TENSOR_OK;
}

/* The tensors that a policy adds. */
static tensor_status visit_policy(const struct fl_parameter *p, visit_fn visit, void *context) {
    TRY(visit_some(p->master, true, visit, context));
    TRY(visit_some(p->w_forward, true, visit, context));
    TRY(visit_some(p->w_backward == p->w_forward ? NULL : p->w_backward, true, visit, context));
    TRY(visit_some(p->g_kept, false, visit, context));
    return visit_some(p->g_taken, false, visit, context);
}

static tensor_status visit_node(const struct fl_node *node, visit_fn visit, void *context) {
    for (int k = 0; k < node->parameters; k++) {
        TRY(visit(node->parameter[k].w, true, context));
        TRY(visit(node->parameter[k].g, true, context));
        if (node->parameter[k].v)
            TRY(visit(node->parameter[k].v, true, context));
        if (node->parameter[k].r)
            TRY(visit(node->parameter[k].r, true, context));
        TRY(visit_policy(&node->parameter[k], visit, context));
        if (node->parameter[k].d) /* written anew in each step, as values are */
            TRY(visit(node->parameter[k].d, false, context));
    }
    for (int k = 0; k < node->states; k++)
        if (node->state[k].lasts)
            TRY(visit(node->state[k].t, true, context));
    return TENSOR_OK;
}

/* Values are written anew in each step: what lasts is their exponents. */
static tensor_status visit_all(const nn_graph *g, visit_fn visit, void *context) {
    for (int i = 0; i < g->count; i++)
        TRY(visit_node(&g->nodes[i], visit, context));
    if (g->optimiser.numbers)
        TRY(visit(g->optimiser.numbers, true, context));
    for (int i = 0; i < g->value_count; i++) {
        if (!fl_is_stored(g, i))
            continue;
        for (int s = 0; s < g->shards; s++)
            TRY(visit(fl_shard_value(g, s, i), false, context));
        if (g->values[i].evaluate)
            TRY(visit(g->values[i].evaluate, false, context));
    }
    for (int s = 0; g->of && s < g->shards; s++)
        for (int i = 0; i < fl_shard_gradients(g); i++)
            TRY(visit(fl_shard_gradient(g, s, i), false, context));
    return TENSOR_OK;
}

tensor_status fl_visit_state(const nn_graph *g, fl_visit_fn visit, void *context) {
    return visit_all(g, visit, context);
}

/* --- head --------------------------------------------------------------------------------------------------------- */

static tensor_status add_bytes(tensor *t, bool elements, void *context) {
    *(size_t *)context += fl_state_bytes(t, elements);
    return TENSOR_OK;
}

static struct head head_of(const nn_graph *g) {
    struct head head;
    memset(&head, 0, sizeof head);
    memcpy(head.magic, magic, sizeof magic);
    snprintf(head.version, sizeof head.version, "%s", FLEXLAB_VERSION_STRING);
    snprintf(head.variant, sizeof head.variant, "%s", g->variant->name);
    head.bytes = nn_state_bytes(g);
    head.layout = fl_graph_layout(g);
    head.steps = g->steps;
    return head;
}

static tensor_status check_head(const nn_graph *g, const struct head *given) {
    const struct head own = head_of(g);
    if (memcmp(given->magic, own.magic, sizeof own.magic) != 0)
        return fl_fail(TENSOR_E_DATA, "state: it does not begin like the state of a network");
    if (memcmp(given->version, own.version, sizeof own.version) != 0)
        return fl_fail(TENSOR_E_DATA, "state: made by version %.15s, this is %s", given->version, own.version);
    if (memcmp(given->variant, own.variant, sizeof own.variant) != 0)
        return fl_fail(TENSOR_E_DATA, "state: it belongs to a network in %.31s, this one is in %s", given->variant,
                       own.variant);
    if (given->layout != own.layout || given->bytes != own.bytes)
        return fl_fail(TENSOR_E_DATA,
                       "state: it belongs to a network with other layers or settings (%llu bytes, here %llu)",
                       (unsigned long long)given->bytes, (unsigned long long)own.bytes);
    return TENSOR_OK;
}

/* --- public ------------------------------------------------------------------------------------------------------- */

/* The part between the header and the tensors: the state of a dynamic loss scale. */
static size_t scaling_bytes(const nn_graph *g) {
    return g->scaling.kind == FL_SCALE_DYNAMIC ? sizeof(nn_loss_scale) : 0;
}

size_t nn_state_bytes(const nn_graph *g) {
    size_t bytes = sizeof(struct head) + (g ? scaling_bytes(g) : 0);
    if (!g || !g->compiled || visit_all(g, add_bytes, &bytes))
        return 0;
    return bytes;
}

uint64_t nn_steps(const nn_graph *g) {
    return g ? g->steps : 0;
}

static tensor_status get(tensor *t, bool elements, void *context) {
    char **at = context;
    TRY(fl_state_get(t, elements, *at));
    *at += fl_state_bytes(t, elements);
    return TENSOR_OK;
}

static bool is_never_negative(const nn_graph *g, const tensor *t) {
    for (int i = 0; i < g->count; i++) {
        for (int k = 0; k < g->nodes[i].parameters; k++)
            if (g->nodes[i].parameter[k].r == t)
                return true;
        for (int k = 0; k < g->nodes[i].states; k++)
            if (g->nodes[i].state[k].t == t)
                return g->nodes[i].state[k].variance;
    }
    return false;
}

tensor_status fl_state_check_range(const nn_graph *g, const tensor *t, const void *bytes) {
    return is_never_negative(g, t) ? fl_state_check_sign(t, bytes) : TENSOR_OK;
}

struct checked {
    const nn_graph *g;
    const char *at;
};

static tensor_status check(tensor *t, bool elements, void *context) {
    struct checked *c = context;
    TRY(fl_state_check(t, elements, c->at));
    if (elements)
        TRY(fl_state_check_range(c->g, t, c->at));
    c->at += fl_state_bytes(t, elements);
    return TENSOR_OK;
}

static tensor_status set(tensor *t, bool elements, void *context) {
    const char **at = context;
    TRY(fl_state_set(t, elements, *at));
    *at += fl_state_bytes(t, elements);
    return TENSOR_OK;
}

static tensor_status check_call(const nn_graph *g, const void *state, size_t bytes) {
    if (!g || !state)
        return fl_fail(TENSOR_E_ARGUMENT, "state: %s is NULL", g ? "the memory" : "the graph");
    if (!g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "state: the graph is not compiled");
    return bytes == nn_state_bytes(g)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "state: %zu bytes, expected %zu", bytes, nn_state_bytes(g));
}

tensor_status nn_state_save(void *state, size_t bytes, const nn_graph *g) {
    TRY(check_call(g, state, bytes));
    nn_loss_scale scaling;
    TRY(fl_ranks_bring(g));
    const struct head head = head_of(g);
    memcpy(state, &head, sizeof head);
    char *at = (char *)state + sizeof head;
    TRY(fl_loss_scale_now(g, &scaling));
    memcpy(at, &scaling, scaling_bytes(g));
    at += scaling_bytes(g);
    return visit_all(g, get, &at);
}

tensor_status fl_put_state(nn_graph *g, const char *at, uint64_t steps, const nn_loss_scale *scaling) {
    TRY(visit_all(g, set, &at));
    TRY(fl_loss_scale_put(g, scaling));
    g->steps = steps;
    g->phase = FL_PHASE_IDLE;
    g->passed = 0;
    fl_ranks_forget(g);
    g->has_loss = false;
    fl_writes_forget(g);
    return TENSOR_OK;
}

tensor_status nn_state_restore(nn_graph *g, const void *state, size_t bytes) {
    TRY(check_call(g, state, bytes));
    struct head head;
    memcpy(&head, state, sizeof head);
    TRY(check_head(g, &head));
    nn_loss_scale scaling;
    TRY(fl_loss_scale_now(g, &scaling));
    memcpy(&scaling, (const char *)state + sizeof head, scaling_bytes(g));
    TRY(fl_loss_scale_check_state(g, &scaling));
    const char *tensors = (const char *)state + sizeof head + scaling_bytes(g);
    TRY(visit_all(g, check, &(struct checked){g, tensors}));
    return fl_put_state(g, tensors, head.steps, &scaling);
}
