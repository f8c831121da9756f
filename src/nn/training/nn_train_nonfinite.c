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

/* write: its statistics, of a step whose loss is known; NULL: it is the last that has begun, whose slots are there. */
static tensor_status see(struct run *run, int64_t step, const struct fl_slot_copies *slots,
                         const struct fl_first *first, double in_a_row, const tensor_stats *write) {
    struct fl_looked_step *looked = &run->looked[step % run->looked_size];
    nn_nonfinite found;
    looked->looked_at = true;
    if (fl_is_finite_step(first))
        return TENSOR_OK;
    if (!first->of_before) /* otherwise the step that wrote it reports it */
        looked->nonfinite = fl_pass_name(first);
    if (run->first.step || !fl_counts(first, in_a_row))
        return TENSOR_OK;
    TRY(write ? fl_tell_write(run->g, first, write, first->of_before && run->updated ? run->updated : step, &found)
              : fl_tell_first(run->g, slots, first, &found));
    tell(run, &found);
    return TENSOR_OK;
}

static tensor_status look_with(struct run *run, const struct fl_slot_copies *slots) {
    struct fl_first first;
    struct fl_scale_state scale;
    TRY(fl_find_first(run->g, slots, &first));
    TRY(fl_loss_scale_state(run->g, &scale));
    return see(run, run->begun, slots, &first, scale.in_a_row, NULL);
}

/* Takes the finding of telemetry, which has examined the whole step. */
static tensor_status take_telemetry(void *context, int64_t step, const struct fl_slot_copies *slots,
                                    const struct fl_first *first, double in_a_row) {
    struct run *run = context;
    const nn_nonfinite *found = nn_telemetry_nonfinite(run->telemetry);
    if (found && !run->first.step)
        tell(run, found);
    return see(run, step, slots, first, in_a_row, NULL);
}

void fl_training_hear_telemetry(struct run *run) {
    fl_telemetry_tell(run->telemetry, take_telemetry, run, !run->config->stop_on_nonfinite);
}

tensor_status fl_training_await(struct run *run, int64_t step) {
    const bool looked_at = run->looked[step % run->looked_size].looked_at;
    return run->telemetry && !looked_at ? fl_telemetry_arrive(run->telemetry, 0) : TENSOR_OK;
}

static tensor_status look_at_device(struct run *run) {
    nn_graph *g = run->g;
    if (!run->config->stop_on_nonfinite) /* what a dynamic loss scale has seen comes with the loss */
        return TENSOR_OK;
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &run->slots)));
    TRY(fl_taken(g, fl_slot_copies_end(g->device, run->slots)));
    return look_with(run, run->slots);
}

tensor_status fl_training_look(struct run *run) {
    return run->telemetry                          ? nn_telemetry_step(run->telemetry)
           : run->g->device == tensor_device_at(0) ? look_with(run, NULL)
                                                   : look_at_device(run);
}

/* Reports a loss that is not finite if no tensor was found: on a device they were not examined, or were finite. */
static void see_loss(struct run *run, double loss) {
    static const struct fl_first of_loss = {.write = -1, .of_loss = true, .part = FL_PART_FORWARD};
    struct fl_looked_step *step = &run->looked[run->result->steps % run->looked_size];
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

/* The first write of a step that a device found as it looked for overflows. */
static void see_scale(struct run *run, double loss) {
    const struct fl_scale_state *s = fl_noted_scale(run->g);
    const int write = fl_loss_scale_write(run->g, s);
    struct fl_first first = {.write = write};
    if (write >= 0) {
        first.part = run->g->writes.list[write].part;
        first.of_before = first.part == FL_PART_UPDATE;
        first.of_loss = !isfinite(loss) && !first.of_before && first.part > FL_PART_FORWARD;
        first.part = first.of_loss ? FL_PART_FORWARD : first.part;
    }
    const tensor_stats stats = {.nonfinite = (int64_t)s->nonfinite,
                                .saturated = (int64_t)s->saturated,
                                .elements = (int64_t)s->elements,
                                .maximum = s->maximum};
    (void)see(run, run->result->steps, NULL, &first, s->in_a_row, &stats); /* without memory for a rule there is none */
}

void fl_training_see_loss(struct run *run, double loss) {
    const bool on_host = run->g->device == tensor_device_at(0);
    if (run->g->scaling.state && !on_host && !run->looked[run->result->steps % run->looked_size].looked_at)
        see_scale(run, loss);
    if (fl_noted_scale(run->g)->in_a_row == 0)
        run->updated = run->result->steps;
    see_loss(run, loss);
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
