/* nn_telemetry_late.c - steps on a device that are examined some steps later, when copies of their statistics have
 * arrived, so that a step does not wait: those without records, and those whose elements the device examines itself.
 * Where the training stops at the first NaN or Inf, they are examined at the end of the step. Before any other step
 * with records all have arrived. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/step/nn_step.h"
#include "nn/telemetry/nn_telemetry.h"
#include <string.h>

/* What of the step the network itself no longer has: the state of its loss scale, and the parts of its loss. */
struct told {
    struct fl_scale_state scale;
    double loss[];
};

static size_t told_bytes(const nn_telemetry *t) {
    return sizeof(struct told) + (size_t)t->g->shards * sizeof(double);
}

/* Whether a step without records can be examined later. */
static bool can_be_late(const nn_telemetry *t) {
    return t->g->device != tensor_device_at(0) && !t->g->ranks && t->all_ordered && !t->watched;
}

bool fl_telemetry_can_fetch(const nn_telemetry *t) {
    return can_be_late(t) && (!t->describing || t->there);
}

static tensor_status allocate(const nn_telemetry *t, void **memory, size_t bytes) {
    if (!*memory)
        *memory = tensor_device_allocate(t->g->device, bytes);
    return *memory ? TENSOR_OK : tensor_error_status();
}

/* --- shadows ------------------------------------------------------------------------------------------------------ */

/* Exponents of shadows follow from all writes, which the host has yet to see: the device follows these as well, with a
 * state for each shadow of each tensor. */
static int64_t states_of(const nn_telemetry *t) {
    return (int64_t)t->count * t->shadow_count;
}

/* Puts the states of the host on the device, once the host has seen all writes. */
static tensor_status put_shadows(nn_telemetry *t) {
    struct fl_shadowed *const states = fl_alloc_zero((size_t)states_of(t) * sizeof *states);
    tensor_status status =
        states ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %lld shadows", (long long)states_of(t));
    for (int64_t i = 0; !status && i < states_of(t); i++) {
        const int of = (int)(i / t->shadow_count), k = (int)(i % t->shadow_count);
        const struct fl_seen_tensor *seen = &t->tensors[of];
        if (seen->chosen)
            states[i] = fl_shadowed_of(t->g->infos[of].t, &seen->shadows[k].a, t->shadows[k].shared, seen->loaded,
                                       seen->shadowed);
    }
    if (!status)
        status = fl_shadows_put(t->g->device, t->shadows_there, states, states_of(t));
    fl_free(states);
    return status;
}

static tensor_status begin_following(nn_telemetry *t) {
    TRY(allocate(t, (void **)&t->shadows_there, (size_t)states_of(t) * sizeof *t->shadows_there));
    TRY(fl_telemetry_arrive(t, 0));
    TRY(put_shadows(t));
    t->following = true;
    return TENSOR_OK;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

static size_t found_bytes(const nn_telemetry *t) {
    return (size_t)t->count * sizeof *t->found + (size_t)states_of(t) * sizeof *t->measured;
}

static tensor_status make_room_for_elements(nn_telemetry *t) {
    int64_t room = 1;
    if (!t->found && !(t->found = fl_alloc(found_bytes(t))))
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %d tensors", t->count);
    TRY(allocate(t, (void **)&t->found_there, found_bytes(t)));
    t->measured = (struct fl_measured *)(void *)(t->found + t->count);
    t->measured_there = (struct fl_measured *)(void *)(t->found_there + t->count);
    for (int i = 0; i < t->count; i++) {
        struct fl_seen_tensor *seen = &t->tensors[i];
        const int64_t count = tensor_count(t->g->infos[i].t), here = fl_described_room(count);
        room = seen->chosen && here > room ? here : room;
        if (seen->weight)
            TRY(allocate(t, (void **)&seen->weight_there, (size_t)count * sizeof *seen->weight_there));
    }
    return allocate(t, (void **)&t->numbers_there, (size_t)room * sizeof *t->numbers_there);
}

tensor_status fl_telemetry_examine_there(nn_telemetry *t) {
    const bool can = !t->finished && fl_examines_there(t->g->device) && !t->shadows_here && can_be_late(t);
    tensor_status status = can && t->shadow_count && !t->following ? begin_following(t) : TENSOR_OK;
    t->there = t->describing && can && !status;
    if (t->there)
        status = make_room_for_elements(t);
    t->there = t->there && !status;
    return status;
}

/* Whether the tensor has been examined in that step; what a task that did not run has found is of an earlier one.
 * Shadows then follow the write. */
static bool see_found(nn_telemetry *t, int i, int64_t step) {
    struct fl_seen_tensor *seen = &t->tensors[i];
    const struct fl_measured *of = &t->measured[i * t->shadow_count];
    if (!seen->chosen || t->found[i].elements.number != step)
        return false;
    if (t->shadow_count)
        fl_telemetry_see(t, seen, of->writes, of->maximum);
    return true;
}

static void take_elements(nn_telemetry *t, int64_t step) {
    for (int i = 0; i < t->count; i++) {
        struct fl_seen_tensor *seen = &t->tensors[i];
        const struct fl_found *found = &t->found[i];
        if (!see_found(t, i, step))
            continue;
        fl_describe_arrived(seen->elements, &found->elements, t->g->infos[i].t);
        for (int k = 0; k < t->shadow_count; k++) {
            const struct fl_measured *of = &t->measured[i * t->shadow_count + k];
            tensor_measure m;
            fl_measure_arrived(&m, of, t->g->infos[i].t);
            fl_shadow_measured(&seen->shadow_rows[k], &m, of->e);
        }
        seen->row.step = step;
        fl_telemetry_set_sampled(&seen->row, fl_sampled_from(&found->sampled, step));
        if (found->update.number == step)
            fl_telemetry_moved(seen, found->update.step, found->update.size, found->update.moved);
        else
            fl_telemetry_not_moved(&seen->row);
    }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static tensor_status make_room(nn_telemetry *t) {
    if (!t->told && !(t->told = fl_alloc(told_bytes(t))))
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %zu bytes", told_bytes(t));
    for (int i = 0; i < FL_LATE_STEPS; i++)
        if (!t->late[i].shares && !(t->late[i].shares = fl_alloc((size_t)t->g->shards * sizeof(double))))
            return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for the losses of %d shards", t->g->shards);
    return allocate(t, &t->told_there, FL_LATE_STEPS * told_bytes(t));
}

/* What a failure has left under way, so that a later step can use it. */
static void drop(struct fl_late_step *l) {
    fl_slot_copies_drop(l->slots);
    fl_fetch_drop(&l->fetch);
    fl_fetch_drop(&l->found);
}

static tensor_status begin_fetches(nn_telemetry *t, struct fl_late_step *l, struct told *told) {
    const nn_graph *g = t->g;
    if (t->following)
        TRY(fl_shadows_follow(g->device, t->shadows_there, states_of(t)));
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &l->slots)));
    if (g->scaling.state)
        TRY(fl_fetch_note(g->scaling.state, &told->scale));
    if (l->has_loss)
        TRY(fl_loss_parts_note(g, told->loss, l->shares));
    TRY(fl_taken(g, fl_fetch_begin(g->device, &l->fetch, told, told_bytes(t))));
    return l->rows ? fl_taken(g, fl_fetch_begin(g->device, &l->found, t->found_there, found_bytes(t))) : TENSOR_OK;
}

tensor_status fl_telemetry_later(nn_telemetry *t) {
    const tensor_status room = make_room(t);
    t->following = t->following && !room;
    if (room)
        return room;
    const tensor_status arrived = fl_telemetry_arrive(t, FL_LATE_STEPS - 1);
    const int at = (t->late_first + t->late_count) % FL_LATE_STEPS;
    struct fl_late_step *l = &t->late[at];
    l->step = t->recorder.step;
    l->rows = t->describing;
    l->has_loss = t->g->has_loss;
    l->writes = t->g->writes;
    l->updates = t->g->steps;
    void *const told = (char *)t->told_there + (size_t)at * told_bytes(t);
    const tensor_status begun = begin_fetches(t, l, told), status = arrived ? arrived : begun;
    if (begun)
        drop(l);
    t->following = t->following && !status;
    t->late_count += !begun;
    return status || t->may_be_late ? status : fl_telemetry_arrive(t, 0);
}

/* Which parts of a step were written, and which step it was, as `from` has it. */
static void set_writes(struct fl_writes *w, const struct fl_writes *from) {
    w->done = from->done;
    w->step = from->step;
    w->updated = from->updated;
    w->open = from->open;
}

/* Examines the step as if it were the last, and all of it as known. */
static tensor_status examine(nn_telemetry *t, struct fl_late_step *l, const struct told *told) {
    nn_graph *g = t->g;
    struct fl_writes *w = &g->writes;
    const struct fl_writes now = *w;
    const bool has_loss = g->has_loss;
    const double loss = l->has_loss ? fl_loss_of_parts(g, told->loss, l->shares) : 0;
    const int64_t step = t->recorder.step;
    struct fl_slot_copies *const slots = t->slots;
    t->recorder.step = l->step;
    t->slots = l->slots;
    set_writes(w, &l->writes);
    if (w->open)
        fl_writes_decided(w, l->updates, told->scale.in_a_row);
    w->loss = &loss;
    g->has_loss = l->has_loss;
    const tensor_status status = fl_telemetry_examine(t, l->rows, told->scale.in_a_row);
    set_writes(w, &now);
    w->loss = NULL;
    g->has_loss = has_loss;
    t->recorder.step = step;
    t->slots = slots;
    return status;
}

static tensor_status end_fetches(nn_telemetry *t, struct fl_late_step *l) {
    const nn_graph *g = t->g;
    struct told *const told = t->told;
    TRY(fl_taken(g, fl_slot_copies_end(g->device, l->slots)));
    TRY(fl_taken(g, fl_fetch_end(g->device, &l->fetch, told)));
    if (l->rows) {
        TRY(fl_taken(g, fl_fetch_end(g->device, &l->found, t->found)));
        take_elements(t, l->step);
    }
    if (!g->scaling.state)
        told->scale = (struct fl_scale_state){.in_a_row = 0};
    return examine(t, l, told);
}

tensor_status fl_telemetry_arrive(nn_telemetry *t, int left) {
    tensor_status status = TENSOR_OK;
    if (t->arriving) /* the caller's `row` asks */
        return TENSOR_OK;
    t->arriving = true;
    while (t->late_count > left) {
        struct fl_late_step *l = &t->late[t->late_first];
        t->late_first = (t->late_first + 1) % FL_LATE_STEPS;
        t->late_count--;
        const tensor_status ended = end_fetches(t, l);
        if (ended) {
            drop(l);
            left = 0; /* a task that failed has stopped those of all steps under way: one failure */
        }
        status = status ? status : ended;
    }
    t->arriving = false;
    t->following = t->following && !status; /* a write that the host has not seen */
    return status;
}

/* Shadows follow every write of a step with records, and the device keeps what it has found of the last. */
static tensor_status see_writes(nn_telemetry *t) {
    const nn_graph *g = t->g;
    TRY(fl_telemetry_arrive(t, 0));
    TRY(fl_taken(g, fl_fetch_begin(g->device, &t->found_now, t->found_there, found_bytes(t))));
    TRY(fl_taken(g, fl_fetch_end(g->device, &t->found_now, t->found)));
    for (int i = 0; i < t->count; i++)
        see_found(t, i, t->recorder.step + 1);
    return TENSOR_OK;
}

void fl_telemetry_pass_begins(nn_telemetry *t) {
    bool again = false;
    for (int i = 0; i < t->count && t->there && t->shadow_count; i++)
        again = again || t->tensors[i].there_step == t->recorder.step + 1;
    if (again)
        fl_telemetry_owe(t, see_writes(t));
}

void fl_telemetry_late_free(nn_telemetry *t) {
    for (int i = 0; i < FL_LATE_STEPS; i++) {
        fl_slot_copies_free(t->g->device, t->late[i].slots);
        fl_fetch_clear(t->g->device, &t->late[i].fetch);
        fl_fetch_clear(t->g->device, &t->late[i].found);
        fl_free(t->late[i].shares);
    }
    fl_fetch_clear(t->g->device, &t->found_now);
    for (int i = 0; t->tensors && i < t->count; i++)
        tensor_device_release(t->g->device, t->tensors[i].weight_there);
    tensor_device_release(t->g->device, t->shadows_there);
    tensor_device_release(t->g->device, t->found_there);
    tensor_device_release(t->g->device, t->numbers_there);
    fl_free(t->found);
    fl_free(t->told);
    tensor_device_release(t->g->device, t->told_there);
}
