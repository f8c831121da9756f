/* nn_losses.c - losses and counts of steps, noted on the network's device and brought to the host in groups, while the
 * device continues. A group is on its way until the next one is complete: the host only waits for losses that are at
 * least `every` steps old. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/queue/fetch.h"
#include "core/base/memory.h"
#include "core/tensor/sums.h"
#include "nn/shards/nn_shards.h"
#include <string.h>

/* Of a step. */
struct noted {
    double loss;
    int32_t right;
    struct fl_scale_state scale; /* after it */
};

struct fl_losses {
    int every;
    int parts;      /* of a step: its shards on a device; 1 where the host knows their sum at once */
    char *halves;   /* on the device: two groups, each the scale's state for each step, then for each part of one a
                       double, and then an int32 */
    char *group;    /* one of them, here */
    double *shares; /* of both: what each part counts */
    struct fl_fetch fetch;
    int half, noted; /* which group is being noted, and how far */
    int on_way;      /* steps of the group on its way */
    /* What arrived, in order: `count` from `first` on, room for `capacity`; and the last one that was read. */
    struct noted *steps, last;
    int first, count, capacity;
};

/* The places in a group: of a step's state, of the loss and the correct predictions of a part. */
static size_t state_place(int step) {
    return (size_t)step * sizeof(struct fl_scale_state);
}

static size_t loss_place(const struct fl_losses *l, int step, int part) {
    return state_place(l->every) + ((size_t)step * (size_t)l->parts + (size_t)part) * sizeof(double);
}

static size_t right_place(const struct fl_losses *l, int step, int part) {
    return loss_place(l, l->every, 0) + ((size_t)step * (size_t)l->parts + (size_t)part) * sizeof(int32_t);
}

static size_t group_bytes(const struct fl_losses *l) {
    return right_place(l, l->every, 0);
}

static void free_losses(const nn_graph *g, struct fl_losses *l) {
    if (!l)
        return;
    fl_fetch_clear(g->device, &l->fetch);
    tensor_device_release(g->device, l->halves);
    fl_free(l->group);
    fl_free(l->shares);
    fl_free(l->steps);
    fl_free(l);
}

void fl_losses_free(nn_graph *g) {
    free_losses(g, g->losses);
    g->losses = NULL;
}

void fl_losses_drop(const nn_graph *g) {
    struct fl_losses *l = g->losses;
    if (!l)
        return;
    fl_fetch_drop(&l->fetch);
    l->on_way = l->noted = 0;
}

/* Allocates all memory of later steps, which waits once. */
static tensor_status prepare(const nn_graph *g, struct fl_losses *l) {
    l->capacity = 2 * l->every;
    l->group = fl_alloc(group_bytes(l));
    l->shares = fl_alloc(2 * (size_t)l->every * (size_t)l->parts * sizeof *l->shares);
    l->steps = fl_alloc((size_t)l->capacity * sizeof *l->steps);
    if (!l->group || !l->shares || !l->steps)
        return fl_fail(TENSOR_E_MEMORY, "losses: no memory for %d", l->every);
    if (!(l->halves = tensor_device_allocate(g->device, 2 * group_bytes(l))))
        return tensor_error_status();
    TRY(fl_fetch_begin(g->device, &l->fetch, l->halves, group_bytes(l)));
    return fl_fetch_end(g->device, &l->fetch, l->group);
}

/* Whether the parts of the loss are read and added in each step: on the host, and where other ranks tell theirs. */
static bool is_summed_here(const nn_graph *g) {
    return g->device == tensor_device_at(0) || g->ranks;
}

tensor_status nn_note_every(nn_graph *g, int every) {
    TRY(fl_check_ready(g));
    if (every < 1 || every > FL_MOST_NOTED)
        return fl_fail(TENSOR_E_ARGUMENT, "losses: every %d steps, expected 1 to %d", every, FL_MOST_NOTED);
    const struct fl_losses *old = g->losses;
    if (old && old->noted + old->on_way + old->count)
        return fl_fail(TENSOR_E_ARGUMENT, "losses: %d were noted and not read yet",
                       old->noted + old->on_way + old->count);
    struct fl_losses *l = fl_alloc_zero(sizeof *l);
    if (!l)
        return fl_fail(TENSOR_E_MEMORY, "losses: no memory for %d", every);
    l->every = every;
    l->parts = is_summed_here(g) ? 1 : g->shards;
    const tensor_status status = prepare(g, l);
    if (status) {
        free_losses(g, l);
        return status;
    }
    free_losses(g, g->losses);
    g->losses = l;
    return TENSOR_OK;
}

/* The part of a shard in the loss; without labels that count its own loss is not a number. */
static double counted(double loss, double share) {
    return share > 0 ? loss * share : 0;
}

static struct fl_told part_of(const nn_graph *g, int part) {
    return g->of ? fl_shard_told(g, part) : (struct fl_told){g->loss, g->correct, 1, 0, 0};
}

tensor_status fl_loss_parts_note(const nn_graph *g, double *to, double *shares) {
    for (int p = 0; p < g->shards; p++) {
        const struct fl_told told = part_of(g, p);
        TRY(fl_fetch_note(told.loss, to + p));
        shares[p] = told.share;
    }
    return TENSOR_OK;
}

static double sum_of_parts(const double *loss, const double *shares, int parts) {
    double each[FL_MOST_SHARDS];
    for (int p = 0; p < parts; p++)
        each[p] = counted(loss[p], shares[p]);
    return fl_tree_sum(each, parts);
}

double fl_loss_of_parts(const nn_graph *g, const double *loss, const double *shares) {
    return sum_of_parts(loss, shares, g->shards);
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Makes space for `more` steps at the end, and moves the existing ones to the beginning. */
static tensor_status make_room(struct fl_losses *l, int more) {
    memmove(l->steps, l->steps + l->first, (size_t)l->count * sizeof *l->steps);
    l->first = 0;
    if (l->count + more <= l->capacity)
        return TENSOR_OK;
    const int capacity = 2 * (l->count + more);
    struct noted *steps = fl_alloc((size_t)capacity * sizeof *steps);
    if (!steps)
        return fl_fail(TENSOR_E_MEMORY, "losses: no memory for %d", capacity);
    memcpy(steps, l->steps, (size_t)l->count * sizeof *steps);
    fl_free(l->steps);
    l->steps = steps;
    l->capacity = capacity;
    return TENSOR_OK;
}

/* The share of a part that was noted in one of both groups. */
static double *share_of(const struct fl_losses *l, int half, int step, int part) {
    return &l->shares[(half * l->every + step) * l->parts + part];
}

/* Takes a step of the group that has arrived. */
static void take_step(const nn_graph *g, struct fl_losses *l, int step) {
    const struct fl_loss_scale *s = &g->scaling;
    struct noted *to = &l->steps[l->count++];
    double loss[FL_MOST_SHARDS];
    int32_t right;
    *to = (struct noted){.scale = {.scale = s->initial, .used = s->initial, .first = -1}};
    if (s->state)
        memcpy(&to->scale, l->group + state_place(step), sizeof to->scale);
    for (int p = 0; p < l->parts; p++) {
        memcpy(&loss[p], l->group + loss_place(l, step, p), sizeof loss[p]);
        memcpy(&right, l->group + right_place(l, step, p), sizeof right);
        to->right += right;
    }
    to->loss = sum_of_parts(loss, share_of(l, !l->half, step, 0), l->parts);
}

/* The group on its way, if there is one, arrives. */
static tensor_status receive(nn_graph *g) {
    struct fl_losses *l = g->losses;
    const int arrived = l->on_way;
    if (!arrived)
        return TENSOR_OK;
    TRY(make_room(l, arrived));
    const tensor_status status = fl_fetch_end(g->device, &l->fetch, l->group);
    l->on_way = 0;
    TRY(fl_taken(g, status));
    for (int i = 0; i < arrived; i++)
        take_step(g, l, i);
    return TENSOR_OK;
}

/* Begins to fetch the losses noted so far; later ones are noted in the other half. */
static tensor_status send(nn_graph *g) {
    struct fl_losses *l = g->losses;
    TRY(receive(g));
    if (!l->noted)
        return TENSOR_OK;
    TRY(fl_taken(g,
                 fl_fetch_begin(g->device, &l->fetch, l->halves + (size_t)l->half * group_bytes(l), group_bytes(l))));
    l->on_way = l->noted;
    l->noted = 0;
    l->half = !l->half;
    return TENSOR_OK;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

tensor_status fl_shard_loss(const nn_graph *g, int shard, double *loss, int *correct) {
    const struct fl_told told = fl_shard_told(g, shard);
    int32_t right = 0;
    *loss = told.told_loss;
    *correct = told.told_correct;
    if (!told.loss)
        return TENSOR_OK;
    TRY(fl_taken(g, tensor_store_f64(told.loss, loss, 1)));
    TRY(fl_taken(g, tensor_store_i32(told.correct, &right, 1)));
    *loss = counted(*loss, told.share);
    *correct = right;
    return TENSOR_OK;
}

/* The mean loss and number of correct predictions of a step of several shards. */
static tensor_status loss_of_shards(const nn_graph *g, double *loss, int *correct) {
    double each[FL_MOST_SHARDS];
    int right = 0, all = 0;
    for (int s = 0; s < g->shards; s++) {
        TRY(fl_shard_loss(g, s, &each[s], &right));
        all += right;
    }
    if (loss)
        *loss = fl_tree_sum(each, g->shards);
    if (correct)
        *correct = all;
    return TENSOR_OK;
}

/* The loss of several shards is a sum, which the host computes at once. */
static tensor_status note_shards(nn_graph *g, struct fl_losses *l) {
    struct noted step;
    TRY(make_room(l, 1));
    TRY(loss_of_shards(g, &step.loss, &step.right));
    TRY(fl_loss_scale_state(g, &step.scale));
    l->steps[l->count++] = step;
    return TENSOR_OK;
}

tensor_status nn_note_loss(nn_graph *g) {
    TRY(fl_check_ready(g));
    if (!g->has_loss)
        return fl_fail(TENSOR_E_ARGUMENT, "losses: no forward pass before it");
    if (!g->losses)
        TRY(nn_note_every(g, 1));
    struct fl_losses *l = g->losses;
    if (g->of && is_summed_here(g))
        return note_shards(g, l);
    if (l->noted == l->every) /* it was complete when there was no memory to receive the one before */
        TRY(send(g));
    char *group = l->halves + (size_t)l->half * group_bytes(l);
    for (int p = 0; p < l->parts; p++) {
        const struct fl_told told = part_of(g, p);
        TRY(fl_fetch_note(told.loss, group + loss_place(l, l->noted, p)));
        TRY(fl_fetch_note(told.correct, group + right_place(l, l->noted, p)));
        *share_of(l, l->half, l->noted, p) = told.share;
    }
    if (g->scaling.state)
        TRY(fl_fetch_note(g->scaling.state, group + state_place(l->noted)));
    l->noted++;
    return l->noted == l->every ? send(g) : TENSOR_OK;
}

tensor_status nn_noted_loss(double *loss, int *correct, bool *there, nn_graph *g, bool wait) {
    TRY(fl_check_ready(g));
    if (!loss || !correct || !there)
        return fl_fail(TENSOR_E_ARGUMENT, "losses: loss, correct or there is NULL");
    struct fl_losses *l = g->losses;
    *there = false;
    const bool host = g->device == tensor_device_at(0); /* where waiting has no advantage */
    if (l && !l->count && (wait || host))
        TRY(receive(g));
    if (l && !l->count && wait) {
        TRY(send(g));
        TRY(receive(g));
    }
    if (!l || !l->count)
        return TENSOR_OK;
    l->last = l->steps[l->first++];
    l->count--;
    *loss = l->last.loss;
    *correct = l->last.right;
    *there = true;
    return TENSOR_OK;
}

const struct fl_scale_state *fl_noted_scale(const nn_graph *g) {
    static const struct fl_scale_state none = {.scale = 1, .used = 1, .first = -1};
    return g->losses ? &g->losses->last.scale : &none;
}

/* --- of the last step --------------------------------------------------------------------------------------------- */

tensor_status fl_taken(const nn_graph *g, tensor_status status) {
    if (!status)
        return TENSOR_OK;
    const tensor_status found = tensor_device_wait(g->device);
    fl_losses_drop(g);
    return found ? found : status;
}

tensor_status nn_loss(double *loss, int *correct, const nn_graph *g) {
    TRY(fl_check_ready(g));
    int32_t right = 0;
    if (!g->has_loss)
        return g->of ? fl_fail(TENSOR_E_ARGUMENT, "loss: %d of %d shards have passed forward, expected all",
                               g->phase == FL_PHASE_FORWARD ? g->passed + 1 : g->passed, fl_ranks_own(g))
                     : fl_fail(TENSOR_E_ARGUMENT, "loss: no forward pass before it");
    if (g->of)
        return loss_of_shards(g, loss, correct);
    if (loss)
        TRY(fl_taken(g, tensor_store_f64(g->loss, loss, 1)));
    if (correct)
        TRY(fl_taken(g, tensor_store_i32(g->correct, &right, 1)));
    if (correct)
        *correct = right;
    return TENSOR_OK;
}
