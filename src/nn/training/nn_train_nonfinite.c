/* nn_train_nonfinite.c - the first NaN or Inf of a training: searched after every step, reported once, stored in
 * checkpoints. On a device a step is only examined if its slots are copied to the host anyway, or by option. */
#include "nn/training/nn_training.h"
#include "nn/step/nn_step.h"
#include "nn/telemetry/nn_telemetry.h"
#include "core/base/fail.h"
#include <math.h>
#include <string.h>

/* Reports the finding; called once. */
static void tell(struct run *run, const nn_nonfinite *found) {
    run->first = *found;
    run->first_reported = run->begun;
    if (run->events && run->events->nonfinite)
        run->events->nonfinite(run->events->context, &run->first);
    run->first.before = NULL; /* it belongs to telemetry */
    run->first.before_count = 0;
}

static tensor_status see(struct run *run, const struct fl_slot_copies *slots, const struct fl_first *first) {
    nn_nonfinite found;
    if (fl_is_finite_step(first))
        return TENSOR_OK;
    if (!first->of_before) /* otherwise the step that wrote it reports it */
        run->scaled[run->begun % run->scaled_size].nonfinite = fl_pass_name(first);
    if (run->first.step || !fl_counts(run->g, first))
        return TENSOR_OK;
    TRY(fl_tell_first(run->g, slots, first, &found));
    tell(run, &found);
    return TENSOR_OK;
}

static tensor_status look_with(struct run *run, const struct fl_slot_copies *slots, bool waits) {
    struct fl_first first;
    TRY(fl_find_first(run->g, slots, waits, &first));
    run->scaled[run->begun % run->scaled_size].looked_at = true;
    return see(run, slots, &first);
}

/* Takes the finding of telemetry, which has examined the whole step. */
static tensor_status look_at_telemetry(struct run *run) {
    TRY(nn_telemetry_step(run->telemetry));
    const nn_nonfinite *found = nn_telemetry_nonfinite(run->telemetry);
    if (found && !run->first.step)
        tell(run, found);
    return look_with(run, fl_telemetry_slots(run->telemetry), true);
}

static tensor_status look_at_device(struct run *run) {
    nn_graph *g = run->g;
    if (!run->config->stop_on_nonfinite) { /* only the slots that the loss scale copied, before the update */
        const struct fl_slot_copies *slots = fl_loss_scale_slots(g);
        const unsigned done = g->writes.done, update = 1u << FL_PART_UPDATE;
        const uint64_t updated = g->writes.updated;
        if (!slots)
            return TENSOR_OK;
        g->writes.updated = done & update ? g->writes.past : updated;
        g->writes.done &= ~update;
        const tensor_status status = look_with(run, slots, false);
        g->writes.done = done;
        g->writes.updated = updated;
        return status;
    }
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &run->slots)));
    TRY(fl_taken(g, fl_slot_copies_end(g->device, run->slots)));
    return look_with(run, run->slots, true);
}

tensor_status fl_training_look(struct run *run) {
    return run->telemetry                          ? look_at_telemetry(run)
           : run->g->device == tensor_device_at(0) ? look_with(run, NULL, true)
                                                   : look_at_device(run);
}

/* Reports a loss that is not finite if no tensor was found: on a device they were not examined, or were finite. */
void fl_training_see_loss(struct run *run, double loss) {
    static const struct fl_first of_loss = {.write = -1, .of_loss = true, .part = FL_PART_FORWARD};
    struct fl_scaled_step *step = &run->scaled[run->result->steps % run->scaled_size];
    nn_nonfinite found = {.tensor = "", .role = "", .pass = "unknown", .layer = "", .format = ""};
    if (isfinite(loss))
        return;
    if (step->looked_at && !step->nonfinite)
        step->nonfinite = fl_pass_name(&of_loss);
    if (run->first.step || (step->looked_at && fl_tell_first(run->g, NULL, &of_loss, &found)))
        return;
    found.step = run->result->steps;
    tell(run, &found);
}

/* --- in a checkpoint ---------------------------------------------------------------------------------------------- */

void fl_training_first_get(const struct run *run, int64_t whole[FL_FIRST_WHOLE], double *maximum) {
    const nn_nonfinite *first = &run->first;
    const int64_t numbers[FL_FIRST_WHOLE] = {
        first->step,     fl_pass_number(first->pass), fl_number_of(run->g, first->tensor), first->nonfinite,
        first->elements, first->remedy != NULL};
    memcpy(whole, numbers, sizeof numbers);
    *maximum = first->maximum;
}

tensor_status fl_training_first_set(struct run *run, const char *path, const int64_t whole[FL_FIRST_WHOLE],
                                    double maximum) {
    const struct fl_recalled kept = {whole[0], run->result->steps, whole[1], whole[2], whole[3], whole[4], whole[5]};
    if (!(maximum >= 0))
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: a first NaN or Inf of size %g, expected 0 or more", path,
                       maximum);
    TRY(fl_recall_first(run->g, path, &kept, &run->first));
    run->first.maximum = maximum;
    return TENSOR_OK;
}
