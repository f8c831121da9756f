/* nn_telemetry_late.c - the statistics of steps without records on a device: they are examined some steps later, when
 * their copies have arrived, so that such a step does not wait. Before a step with records all have arrived. */
#include "core/base/fail.h"
#include "nn/step/nn_step.h"
#include "nn/telemetry/nn_telemetry.h"
#include <string.h>

/* What of the step the network itself no longer has. */
struct told {
    struct fl_scale_state scale;
    double loss;
};

bool fl_telemetry_can_be_late(const nn_telemetry *t) {
    const nn_graph *g = t->g;
    return t->may_be_late && g->device != tensor_device_at(0) && !g->of && g->has_loss && !t->describing &&
           t->all_ordered && !t->watched;
}

static tensor_status make_room(nn_telemetry *t) {
    if (t->told)
        return TENSOR_OK;
    t->told = tensor_device_allocate(t->g->device, FL_LATE_STEPS * sizeof(struct told));
    return t->told ? TENSOR_OK : tensor_error_status();
}

tensor_status fl_telemetry_later(nn_telemetry *t) {
    const nn_graph *g = t->g;
    TRY(make_room(t));
    if (t->late_count == FL_LATE_STEPS)
        TRY(fl_telemetry_arrive(t, FL_LATE_STEPS - 1));
    const int at = (t->late_first + t->late_count) % FL_LATE_STEPS;
    struct fl_late_step *l = &t->late[at];
    char *told = (char *)t->told + (size_t)at * sizeof(struct told);
    l->step = t->recorder.step;
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &l->slots)));
    if (g->scaling.state)
        TRY(fl_fetch_note(g->scaling.state, told));
    TRY(fl_fetch_note(g->loss, told + offsetof(struct told, loss)));
    TRY(fl_taken(g, fl_fetch_begin(g->device, &l->fetch, told, sizeof(struct told))));
    t->late_count++;
    return TENSOR_OK;
}

/* Examines the step as if it were the last, and all of it as known. */
static tensor_status examine(nn_telemetry *t, struct fl_late_step *l, const struct told *told) {
    struct fl_writes *w = &t->g->writes;
    const struct fl_writes now = *w;
    const int64_t step = t->recorder.step;
    struct fl_slot_copies *const slots = t->slots;
    const bool skipped = told->scale.in_a_row > 0;
    t->recorder.step = l->step;
    t->slots = l->slots;
    w->done = (1u << (FL_PART_UPDATE + !skipped)) - 1;
    w->step = (uint64_t)l->step;
    w->updated = (uint64_t)(skipped ? t->updated : l->step);
    w->open = false;
    w->loss = &told->loss;
    const tensor_status status = fl_telemetry_examine(t, false, told->scale.in_a_row);
    w->done = now.done;
    w->step = now.step;
    w->updated = now.updated;
    w->open = now.open;
    w->loss = NULL;
    t->recorder.step = step;
    t->slots = slots;
    return status;
}

tensor_status fl_telemetry_arrive(nn_telemetry *t, int left) {
    while (t->late_count > left) {
        struct fl_late_step *l = &t->late[t->late_first];
        struct told told;
        t->late_first = (t->late_first + 1) % FL_LATE_STEPS;
        t->late_count--;
        TRY(fl_taken(t->g, fl_slot_copies_end(t->g->device, l->slots)));
        TRY(fl_taken(t->g, fl_fetch_end(t->g->device, &l->fetch, &told)));
        if (!t->g->scaling.state)
            told.scale = (struct fl_scale_state){.in_a_row = 0};
        TRY(examine(t, l, &told));
    }
    return TENSOR_OK;
}

void fl_telemetry_late_free(nn_telemetry *t) {
    for (int i = 0; i < FL_LATE_STEPS; i++) {
        fl_slot_copies_free(t->g->device, t->late[i].slots);
        fl_fetch_clear(t->g->device, &t->late[i].fetch);
    }
    tensor_device_release(t->g->device, t->told);
}
