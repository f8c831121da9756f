/* nn_ranks.c - what the ranks of a training exchange in a step. */
#include "nn/step/nn_ranks.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/slot_copies.h"
#include "core/values/tensor_state.h"
#include "flexlab/version.h"
#include "group/group.h"
#include "nn/shards/nn_shards.h"
#include "nn/ranks/nn_exchange.h"
#include "nn/step/nn_step.h"
#include <stdio.h>
#include <string.h>

struct fl_ranks {
    int first, own, shards;
    struct fl_exchange *gradients;
    struct fl_recording *pieces; /* of backward of the last shard on a device: to where a bucket is complete */
    int64_t moments;             /* of a shard: numbers that are averaged */
    char *block;                 /* what each shard tells, shard by shard */
    int64_t block_bytes;
    char *slots;
    int64_t slot_bytes;            /* of a shard */
    bool flagged;                  /* the slots brought last have an overflow, a NaN or Inf */
    struct fl_slot_copies *copies; /* of the device's slots; NULL: on the host */
    struct fl_flight told;
};

/* What a shard tells: followed by its moments. */
struct told {
    double loss;
    int32_t correct, flagged;
};

tensor_status fl_ranks_check(const nn_config *c) {
    const int size = nn_group_size(c->group), shards = c->shards ? c->shards : 1;
    return shards % size == 0
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "shards: %d, expected a multiple of the %d ranks", shards, size);
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static void count_moments(const nn_graph *g, struct fl_ranks *k) {
    for (int i = 0; i < g->count; i++)
        for (int s = 0; s < g->nodes[i].states; s++)
            if (g->nodes[i].state[s].averaged)
                k->moments += fl_shape_count(&g->nodes[i].state[s].shape);
}

/* Calls a function for every tensor of a shard that has a slot of its own. */
static tensor_status each_slot(const nn_graph *g, int shard, tensor_status (*call)(tensor *t, void *context),
                               void *context) {
    for (int i = 0; i < g->value_count; i++)
        if (fl_is_stored(g, i))
            TRY(call(fl_shard_value(g, shard, i), context));
    for (int i = 0; i < fl_shard_gradients(g); i++)
        TRY(call(fl_shard_gradient(g, shard, i), context));
    return TENSOR_OK;
}

static tensor_status add_slot(tensor *t, void *bytes) {
    *(int64_t *)bytes += (int64_t)fl_state_bytes(t, false);
    return TENSOR_OK;
}

static tensor_status agree(const nn_graph *g, uint64_t layout) {
    char text[800], scale[FL_SCALE_TEXT];
    const uint16_t order = 1;
    const struct fl_optimiser *o = &g->optimiser;
    fl_loss_scale_text(g, scale);
    snprintf(text, sizeof text,
             "flexlab-%s %s-endian batch-%d shards-%d seed-%llu format-%s batchnorm-%s predictor-%.60s optimiser-%d "
             "momentum-%.9g betas-%.9g,%.9g epsilon-%.9g decay-%.9g,%d clip-%.9g,%.9g nesterov-%d narrow-%d "
             "loss-%d,%.9g,%.9g,%d scale-%s layers-%016llx",
             FLEXLAB_VERSION_STRING, *(const unsigned char *)&order ? "little" : "big", fl_whole_batch(g), g->shards,
             (unsigned long long)g->seed, g->variant->name, g->together ? "global" : "shard",
             g->predictor ? g->predictor : "", (int)o->how.kind, (double)o->how.momentum, (double)o->how.beta1,
             (double)o->how.beta2, (double)o->how.epsilon, (double)o->how.weight_decay, o->decays_all,
             (double)o->clip_value, (double)o->how.clip_norm, o->nesterov, o->narrow, (int)g->objective.kind,
             (double)g->objective.smoothing, (double)g->objective.delta,
             g->objective.ignores ? g->objective.ignored : -1, scale, (unsigned long long)layout);
    return fl_group_agree(g->group, "the network", text);
}

tensor_status fl_ranks_begin(nn_graph *g, uint64_t layout) {
    const int size = nn_group_size(g->group);
    if (size == 1)
        return TENSOR_OK;
    TRY(agree(g, layout));
    struct fl_ranks *k = g->ranks = fl_alloc_zero(sizeof *k);
    if (!k)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d ranks", size);
    k->shards = g->shards;
    k->own = g->shards / size;
    k->first = nn_group_rank(g->group) * k->own;
    count_moments(g, k);
    TRY(each_slot(g, 0, add_slot, &k->slot_bytes));
    k->block_bytes = (int64_t)sizeof(struct told) + k->moments * (int64_t)sizeof(double);
    k->block = fl_alloc_zero((size_t)(k->block_bytes * k->shards));
    k->slots = fl_alloc_zero((size_t)(k->slot_bytes * k->shards));
    if (!k->block || !k->slots)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for what %d ranks exchange", size);
    if (!(k->gradients = fl_exchange_new(g)))
        return tensor_error_status();
    k->pieces = fl_alloc_zero((size_t)(g->count + 1) * sizeof *k->pieces);
    return k->pieces ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d nodes", g->count);
}

void fl_ranks_free(nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    if (!k)
        return;
    for (int i = 0; k->pieces && i <= g->count; i++)
        fl_recording_forget(g->device, &k->pieces[i]);
    fl_free(k->pieces);
    fl_exchange_free(k->gradients);
    fl_group_drop(g->group, &k->told);
    fl_slot_copies_free(g->device, k->copies);
    fl_group_free_memory(g->group, k->block);
    fl_group_free_memory(g->group, k->slots);
    fl_free(k);
    g->ranks = NULL;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* Brings the slots of a device to the host. */
static tensor_status see_slots(const nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    if (g->device == tensor_device_at(0))
        return TENSOR_OK;
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &k->copies)));
    return fl_taken(g, fl_slot_copies_end(g->device, k->copies));
}

struct seeing {
    const struct fl_slot_copies *copies;
    char *at;
    bool flagged;
};

static tensor_status get_slot(tensor *t, void *context) {
    struct seeing *seeing = context;
    memcpy(seeing->at, fl_slot_then(seeing->copies, t), fl_state_bytes(t, false));
    seeing->at += fl_state_bytes(t, false);
    return TENSOR_OK;
}

static tensor_status set_slot(tensor *t, void *context) {
    const char **at = context;
    TRY(fl_state_set(t, false, *at));
    *at += fl_state_bytes(t, false);
    return TENSOR_OK;
}

tensor_status fl_ranks_bring(const nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    if (!k)
        return TENSOR_OK;
    TRY(see_slots(g));
    for (int s = k->first; s < k->first + k->own; s++)
        TRY(each_slot(g, s, get_slot, &(struct seeing){k->copies, k->slots + s * k->slot_bytes, false}));
    char what[FL_GROUP_WHAT];
    snprintf(what, sizeof what, "exponents and statistics after %llu steps", (unsigned long long)g->steps);
    TRY(fl_group_share(g->group, what, k->slots, k->slot_bytes * k->own));
    for (int s = 0; s < k->shards; s++) {
        const char *at = k->slots + s * k->slot_bytes;
        if (!fl_is_own_shard(g, s))
            TRY(each_slot(g, s, set_slot, &at));
    }
    return TENSOR_OK;
}

void fl_ranks_forget(nn_graph *g) {
    if (g->ranks)
        g->ranks->flagged = true; /* so that the next step brings those of its own */
}

/* Whether a write overflowed or was not finite: then the step needs the slots of all shards. */
static tensor_status look(tensor *t, void *context) {
    struct seeing *seeing = context;
    const struct fl_slot *slot = fl_slot_then(seeing->copies, t);
    const bool shared = tensor_format_is_shared(tensor_format_of(t));
    seeing->flagged = seeing->flagged || slot->last.nonfinite > 0 ||
                      (shared && slot->last.saturated > 0 && slot->e == slot->autoflex.e_min);
    return TENSOR_OK;
}

/* --- what shards tell --------------------------------------------------------------------------------------------- */

static struct told *told_by(const struct fl_ranks *k, int shard) {
    return (struct told *)(void *)(k->block + shard * k->block_bytes);
}

static double *moments_of(const struct fl_ranks *k, int shard) {
    return (double *)(void *)(told_by(k, shard) + 1);
}

/* Copies the moments of a shard to what it tells, or from there. */
static tensor_status move_moments(nn_graph *g, int shard, bool tell) {
    double *at = moments_of(g->ranks, shard);
    int number = 0;
    for (int i = 0; i < g->count; i++)
        for (int s = 0; s < g->nodes[i].states; s++) {
            const struct fl_state *state = &g->nodes[i].state[s];
            if (state->lasts)
                continue;
            tensor *t = fl_shard_state(g, shard, number++);
            if (!state->averaged)
                continue;
            TRY(tell ? tensor_store_f64(t, at, tensor_count(t)) : tensor_load_f64(t, at, tensor_count(t)));
            at += tensor_count(t);
        }
    return TENSOR_OK;
}

static tensor_status tell(nn_graph *g, int shard) {
    struct fl_ranks *k = g->ranks;
    struct told *told = told_by(k, shard);
    struct seeing seeing = {k->copies, NULL, false};
    TRY(fl_shard_loss(g, shard, &told->loss, &told->correct));
    TRY(each_slot(g, shard, look, &seeing));
    told->flagged = seeing.flagged;
    return move_moments(g, shard, true);
}

enum { CHANNEL = 0 /* those of gradients follow */ };

static tensor_status begin_telling(nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    struct fl_piece to[FL_MOST_SHARDS], from[FL_MOST_SHARDS];
    const int64_t bytes = k->block_bytes * k->own;
    char what[FL_GROUP_WHAT];
    TRY(see_slots(g));
    for (int s = k->first; s < k->first + k->own; s++)
        TRY(tell(g, s));
    for (int r = 0; r < nn_group_size(g->group); r++) {
        to[r] = (struct fl_piece){k->block + nn_group_rank(g->group) * bytes, bytes};
        from[r] = (struct fl_piece){k->block + r * bytes, bytes};
    }
    snprintf(what, sizeof what, "losses of step %llu", (unsigned long long)g->steps + 1);
    return fl_group_begin(g->group, &k->told, what, CHANNEL, to, from);
}

static tensor_status end_telling(nn_graph *g) {
    struct fl_ranks *k = g->ranks;
    bool flagged = false, arrived;
    TRY(fl_group_end(g->group, &k->told, true, &arrived));
    for (int s = 0; s < k->shards; s++) {
        flagged = flagged || told_by(k, s)->flagged;
        if (fl_is_own_shard(g, s))
            continue;
        fl_shard_tell(g, s, told_by(k, s)->loss, told_by(k, s)->correct);
        TRY(move_moments(g, s, false));
    }
    const bool before = k->flagged;
    k->flagged = flagged;
    return flagged || before ? fl_ranks_bring(g) : TENSOR_OK;
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

void fl_ranks_restart(nn_graph *g) {
    if (!g->ranks)
        return;
    fl_exchange_restart(g->ranks->gradients);
    fl_group_drop(g->group, &g->ranks->told);
}

static int first_parameter(const nn_graph *g, int node) {
    int first = 0;
    for (int i = 0; i < node; i++)
        first += g->nodes[i].parameters;
    return first;
}

/* Whether the shard in place is the last of several ranks' own, on the host or elsewhere. */
static bool is_last(const nn_graph *g, bool elsewhere) {
    return g->ranks && g->passed + 1 >= g->ranks->own && (g->device != tensor_device_at(0)) == elsewhere;
}

tensor_status fl_ranks_written(const nn_graph *g, int node) {
    return is_last(g, false) ? fl_exchange_written(g->ranks->gradients, first_parameter(g, node)) : TENSOR_OK;
}

tensor_status fl_ranks_queued(const nn_graph *g, int node) {
    return is_last(g, true) ? fl_exchange_written(g->ranks->gradients, first_parameter(g, node)) : TENSOR_OK;
}

int fl_ranks_piece(nn_graph *g, int from, struct fl_recording **recording) {
    if (!is_last(g, true))
        return 0;
    int bucket = 0, first, end = from;
    while ((first = fl_exchange_bucket(g->ranks->gradients, bucket)) >= first_parameter(g, from + 1) && first)
        bucket++;
    while (end > 0 && (!first || first_parameter(g, end) > first))
        end--;
    *recording = &g->ranks->pieces[from];
    return end;
}

tensor_status fl_ranks_reduce(nn_graph *g) {
    const bool last = fl_group_is_in_order(g->group); /* what is told follows all buckets, on every rank */
    TRY(fl_exchange_accompany(g->ranks->gradients));
    TRY(last ? TENSOR_OK : begin_telling(g));
    TRY(fl_exchange_finish(g->ranks->gradients));
    TRY(last ? begin_telling(g) : TENSOR_OK);
    return end_telling(g);
}
