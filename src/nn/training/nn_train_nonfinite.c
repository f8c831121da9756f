/* nn_train_nonfinite.c - the first NaN or Inf of a training: looked for after every step, told once, kept in
 * checkpoints. On a device a step is looked at where its slots are brought to the host anyway, or the caller asks. */
#include "nn/training/nn_training.h"
#include "nn/step/nn_step.h"
#include "nn/telemetry/nn_telemetry.h"
#include "core/base/fail.h"
#include <math.h>
#include <string.h>

/* Once. */
static void tell(struct run *run, const nn_nonfinite *found) {
    run->first = *found;
    run->first_told = run->begun;
    if (run->events && run->events->nonfinite)
        run->events->nonfinite(run->events->context, &run->first);
    run->first.before = NULL; /* telemetry's */
    run->first.before_count = 0;
}

static tensor_status see(struct run *run, const struct fl_slot_copies *slots, const struct fl_first *first) {
    nn_nonfinite found;
    if (fl_is_finite_step(first))
        return TENSOR_OK;
    if (!first->of_before) /* else the step that wrote it had it */
        run->scaled[run->begun % run->scaled_size].nonfinite = fl_pass_name(first);
    if (run->first.step || !fl_counts(run->g, first))
        return TENSOR_OK;
    FL_TRY(fl_tell_first(run->g, slots, first, &found));
    tell(run, &found);
    return TENSOR_OK;
}

static tensor_status look_with(struct run *run, const struct fl_slot_copies *slots) {
    struct fl_first first;
    FL_TRY(fl_find_first(run->g, slots, &first));
    return see(run, slots, &first);
}

/* Telemetry has looked already, at all of it. */
static tensor_status look_at_telemetry(struct run *run) {
    FL_TRY(nn_telemetry_step(run->telemetry));
    const nn_nonfinite *found = nn_telemetry_nonfinite(run->telemetry);
    if (found && !run->first.step)
        tell(run, found);
    return look_with(run, fl_telemetry_slots(run->telemetry));
}

static tensor_status look_at_device(struct run *run) {
    nn_graph *g = run->g;
    if (!run->config->stop_on_nonfinite) { /* as the loss scale has seen it, before the update */
        const struct fl_slot_copies *slots = fl_loss_scale_slots(g);
        const unsigned done = g->writes.done, update = 1u << FL_PART_UPDATE;
        const uint64_t updated = g->writes.updated;
        if (!slots)
            return TENSOR_OK;
        g->writes.updated = done & update ? g->writes.past : updated;
        g->writes.done &= ~update;
        const tensor_status status = look_with(run, slots);
        g->writes.done = done;
        g->writes.updated = updated;
        return status;
    }
    FL_TRY(fl_taken(g, fl_slot_copies_begin(g->device, &run->slots)));
    FL_TRY(fl_taken(g, fl_slot_copies_end(g->device, run->slots)));
    return look_with(run, run->slots);
}

tensor_status fl_training_look(struct run *run) {
    return run->telemetry                            ? look_at_telemetry(run)
           : run->g->device == tensor_device_list(0) ? look_with(run, NULL)
                                                     : look_at_device(run);
}

/* Of a device whose tensors were not looked at. */
void fl_training_see_loss(struct run *run, double loss) {
    if (isfinite(loss) || run->first.step)
        return;
    tell(run, &(nn_nonfinite){.step = run->result->steps,
                              .tensor = "",
                              .role = "",
                              .pass = "unknown",
                              .layer = "",
                              .format = ""});
}

/* --- in a checkpoint ---------------------------------------------------------------------------------------------- */

static int number_of(const nn_graph *g, const nn_nonfinite *first) {
    int i = 0;
    while (i < g->info_count && strcmp(g->infos[i].name, first->tensor) != 0)
        i++;
    return i < g->info_count ? i : -1;
}

void fl_training_first_get(const struct run *run, int64_t whole[FL_FIRST_WHOLE], double *maximum) {
    const nn_nonfinite *first = &run->first;
    int pass = 0;
    while (fl_pass(pass) && strcmp(fl_pass(pass), first->pass) != 0)
        pass++;
    const int64_t numbers[FL_FIRST_WHOLE] = {
        first->step, pass, number_of(run->g, first), first->nonfinite, first->elements, first->remedy != NULL};
    memcpy(whole, numbers, sizeof numbers);
    *maximum = first->maximum;
}

tensor_status fl_training_first_set(struct run *run, const char *path, const int64_t whole[FL_FIRST_WHOLE],
                                    double maximum) {
    const nn_graph *g = run->g;
    const char *pass = whole[1] >= 0 && whole[1] < FL_FIRST_WHOLE ? fl_pass((int)whole[1]) : NULL;
    const bool apart = pass && (!strcmp(pass, "loss") || !strcmp(pass, "unknown")); /* no tensor */
    if (!pass || whole[0] < 1 || whole[0] > run->result->steps || whole[2] < -1 || whole[2] >= g->info_count ||
        apart != (whole[2] == -1) || whole[3] < 0 || whole[3] > whole[4] || whole[5] >> 1 || !(maximum >= 0))
        return fl_fail(TENSOR_E_DATA,
                       "checkpoint: %s: a first NaN or Inf at step %lld in tensor %lld, pass %lld, %lld of %lld "
                       "elements: none of this training's %d tensors after %lld steps",
                       path, (long long)whole[0], (long long)whole[2], (long long)whole[1], (long long)whole[3],
                       (long long)whole[4], g->info_count, (long long)run->result->steps);
    run->first = (nn_nonfinite){
        .step = whole[0], .pass = pass, .nonfinite = whole[3], .elements = whole[4], .maximum = maximum};
    if (strcmp(pass, "unknown") != 0)
        return fl_name_first(run->g, (int)whole[2], whole[5], &run->first);
    run->first.tensor = run->first.role = run->first.layer = run->first.format = "";
    return TENSOR_OK;
}
