/* nn_step.c - the three phases of a training step, and evaluation: the order of calls, inputs and results. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/step/nn_ranks.h"
#include "nn/step/nn_together.h"
#include "nn/shards/nn_shards.h"
#include <math.h>
#include <string.h>

tensor_status nn_watch(nn_graph *g, nn_watch_fn watch, void *context) {
    TRY(fl_check_ready(g));
    g->watch = watch;
    g->watch_context = context;
    g->update_there = false;
    return TENSOR_OK;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

static void begin_step(nn_graph *g) {
    if (g->watching)
        g->watching_begins(g->watching);
    fl_ranks_restart(g);
    fl_writes_begin(g);
    g->has_loss = false;
}

/* images NULL: those of g->bytes, or the tokens of g->tokens. share: of the shard, in the loss. */
static tensor_status forward_step(nn_graph *g, const float *images, double share) {
    fl_lose_values(g);
    g->phase = FL_PHASE_IDLE;
    if (g->passed == fl_ranks_own(g))
        g->passed = 0;
    if (!g->passed)
        begin_step(g);
    fl_shard_select(g, fl_ranks_first(g) + g->passed);
    TRY(fl_shard_begin_pass(g, share));
    TRY(fl_forward_to_loss(g, images));
    g->phase = FL_PHASE_FORWARD;
    if (g->passed + 1 < fl_ranks_own(g))
        return TENSOR_OK;
    fl_writes_done(g, FL_PART_FORWARD);
    g->has_loss = g->objective.kind != FL_LOSS_NONE && !g->ranks; /* else the other ranks tell theirs after backward */
    return TENSOR_OK;
}

static tensor_status forward(nn_graph *g, const char *what, const nn_batch *batch, double share) {
    if (g->together)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: of one of %d shards, but batchnorm is global: nn_train_step passes all together", what,
                       g->shards);
    struct fl_loaded loaded;
    int count;
    TRY(fl_batch_check(g, what, batch, FL_USE_TRAINING, &count));
    TRY(fl_batch_load(g, what, batch, count, &loaded));
    TRY(fl_batch_load_expected(g, batch));
    return forward_step(g, loaded.images, share);
}

/* A shard has its share of the loss by the labels that count, which are known of the whole batch alone. */
tensor_status nn_forward(nn_graph *g, const nn_batch *batch) {
    TRY(fl_check_ready(g));
    if (g->shards > 1 && g->objective.ignores)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "forward: one of %d shards, but labels are ignored: nn_train_step counts those of all",
                       g->shards);
    return forward(g, "forward", batch, 1.0 / g->shards);
}

tensor_status nn_forward_scaled_by(nn_graph *g, const nn_batch *batch, const nn_graph *scaled_by) {
    TRY(fl_check_ready(g));
    TRY(fl_check_ready(scaled_by));
    if (g->shards > 1)
        return fl_fail(TENSOR_E_ARGUMENT, "forward: by the loss scale of another network in %d shards, expected 1",
                       g->shards);
    if (scaled_by->device != g->device)
        return fl_fail(TENSOR_E_ARGUMENT, "forward: the loss scale is of a network on another device");
    fl_loss_scale_borrow(g, scaled_by);
    const tensor_status status = forward(g, "forward", batch, 1);
    fl_loss_scale_borrow(g, NULL);
    return status;
}

tensor_status nn_set_pixel_values(nn_graph *g, const float *values) {
    TRY(fl_check_images(g));
    if (!values)
        return fl_fail(TENSOR_E_ARGUMENT, "pixel values: values is NULL");
    const struct fl_shape *shape = &fl_output_of(g, 0)->shape;
    const int64_t channels = shape->dim[3];
    for (int64_t i = 0; i < channels * 256; i++)
        if (!isfinite(values[i]))
            return fl_fail(TENSOR_E_ARGUMENT, "pixel values: %g for byte %d of channel %d, expected finite numbers",
                           (double)values[i], (int)(i % 256), (int)(i / 256));
    if (!g->bytes && !(g->bytes = tensor_new_in(g->device, FMT_U8, shape->ndim, shape->dim)))
        return tensor_error_status();
    if (!g->byte_values && !(g->byte_values = tensor_new_in(g->device, FMT_F32, TENSOR_SHAPE(channels, 256))))
        return tensor_error_status();
    return tensor_load_f32(g->byte_values, values, channels * 256);
}

/* --- backward, update, loss --------------------------------------------------------------------------------------- */

tensor_status nn_backward(nn_graph *g) {
    TRY(fl_check_ready(g));
    if (g->objective.kind == FL_LOSS_NONE)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "backward: the network has no loss, its gradient is given (nn_backward_from)");
    if (g->phase != FL_PHASE_FORWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: no forward pass before it whose activations still exist");
    return fl_finish_pass(g);
}

tensor_status fl_finish_pass(nn_graph *g) {
    g->phase = FL_PHASE_IDLE;
    TRY(fl_backward(g));
    return fl_finish_shard(g);
}

tensor_status fl_finish_shard(nn_graph *g) {
    if (++g->passed < fl_ranks_own(g))
        return TENSOR_OK;
    TRY(fl_reduce_passes(g));
    g->has_loss = g->objective.kind != FL_LOSS_NONE;
    fl_writes_done(g, FL_PART_BACKWARD);
    g->phase = FL_PHASE_BACKWARD;
    g->objective.has_input_gradient = g->objective.input_gradient;
    return TENSOR_OK;
}

static tensor_status check_rate(float rate) {
    return rate >= 0 && isfinite(rate)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "learning rate: %g, expected 0 or more", (double)rate);
}

tensor_status nn_update_through(nn_graph *g, float rate, const nn_graph *next) {
    TRY(fl_check_ready(g));
    TRY(check_rate(rate));
    if (g->phase != FL_PHASE_BACKWARD)
        return g->passed && g->passed < fl_ranks_own(g)
                   ? fl_fail(TENSOR_E_ARGUMENT,
                             "update: %d of %d shards have passed forward and backward, expected all", g->passed,
                             fl_ranks_own(g))
                   : fl_fail(TENSOR_E_ARGUMENT, "update: no backward pass before it whose gradients were not used yet");
    g->phase = FL_PHASE_IDLE;
    fl_writes_done(g, FL_PART_TAKEN);
    TRY(fl_loss_scale_look_through(g, (nn_graph *)(uintptr_t)next)); /* which keeps a list */
    TRY(fl_update(g, rate));
    g->steps++;
    fl_writes_open(g);
    return g->device == tensor_device_at(0) ? fl_writes_know(g) : TENSOR_OK;
}

tensor_status nn_update(nn_graph *g, float rate) {
    return nn_update_through(g, rate, NULL);
}

/* The part of a batch that is a shard. */
static nn_batch part_of(const nn_graph *g, const nn_batch *batch, int shard) {
    const int64_t first = (int64_t)shard * g->batch, rows = (int64_t)shard * g->rows,
                  sample = fl_shape_count(&fl_output_of(g, 0)->shape) / g->batch;
    nn_batch part = *batch;
    part.images = batch->images ? batch->images + first * sample : NULL;
    part.pixels = batch->pixels ? batch->pixels + first * sample : NULL;
    part.tokens = batch->tokens ? batch->tokens + first * sample : NULL;
    part.indices = batch->indices ? batch->indices + first : NULL;
    part.labels = batch->labels ? batch->labels + rows : NULL;
    part.targets = batch->targets ? batch->targets + rows * g->classes : NULL;
    part.count = g->batch;
    return part;
}

/* The labels of a shard that count. */
static int64_t counted(nn_graph *g, const nn_batch *part) {
    const struct fl_objective *o = &g->objective;
    const int32_t *labels = !o->ignores     ? NULL
                            : part->indices ? fl_data_labels(g, part->data, part->indices, part->count)
                                            : part->labels;
    int64_t count = 0;
    for (int64_t i = 0; labels && i < g->rows; i++)
        count += labels[i] != o->ignored;
    return labels ? count : g->rows;
}

/* All labels of a batch that count. */
static int64_t counted_in_all(nn_graph *g, const nn_batch *batch) {
    int64_t all = 0;
    for (int s = 0; s < g->shards; s++) {
        const nn_batch part = part_of(g, batch, s);
        all += counted(g, &part);
    }
    return all;
}

/* Of shards that go through a step together: what is loaded for the one in place. */
struct whole {
    const char *what;
    const nn_batch *batch;
    int64_t labels;
};

static tensor_status load_part(nn_graph *g, const void *context, bool first, const float **images) {
    const struct whole *w = context;
    const nn_batch part = part_of(g, w->batch, g->shard);
    struct fl_loaded loaded = {NULL, NULL};
    if (first) {
        TRY(fl_batch_load(g, w->what, &part, part.count, &loaded));
        *images = loaded.images;
    } else if (part.indices) { /* its labels */
        TRY(fl_data_put_indices(g, part.indices, part.count));
        TRY(fl_data_gather(g, part.data, part.augmentation));
    } else if (part.tokens) {
        TRY(tensor_load_i32(g->tokens, part.tokens, tensor_count(g->tokens)));
    }
    TRY(fl_batch_load_expected(g, &part));
    return fl_shard_begin_pass(g, w->labels ? (double)counted(g, &part) / (double)w->labels : 0);
}

static tensor_status pass_together(nn_graph *g, const struct whole *whole) {
    g->phase = FL_PHASE_IDLE;
    begin_step(g);
    g->stretch = 0;
    TRY(fl_together_forward(g, load_part, whole));
    fl_writes_done(g, FL_PART_FORWARD);
    g->has_loss = g->objective.kind != FL_LOSS_NONE && !g->ranks;
    TRY(fl_together_backward(g, load_part, whole));
    g->passed = fl_ranks_own(g) - 1;
    return fl_finish_shard(g);
}

tensor_status fl_run_passes(nn_graph *g, const char *what, const nn_batch *batch) {
    int count;
    if (g->shards == 1) {
        TRY(forward(g, what, batch, 1));
        return nn_backward(g);
    }
    TRY(fl_batch_check(g, what, batch, FL_USE_WHOLE_BATCH, &count));
    const int64_t all = counted_in_all(g, batch);
    g->passed = 0;
    if (g->together)
        return pass_together(g, &(struct whole){what, batch, all});
    for (int s = 0; s < g->shards; s++) {
        const nn_batch part = part_of(g, batch, s);
        if (!fl_is_own_shard(g, s))
            continue;
        TRY(forward(g, what, &part, all ? (double)counted(g, &part) / (double)all : 0));
        TRY(nn_backward(g));
    }
    return TENSOR_OK;
}

tensor_status nn_train_step(double *loss, int *correct, nn_graph *g, const nn_batch *batch, float rate) {
    TRY(fl_check_ready(g));
    TRY(check_rate(rate));
    if (g->objective.kind == FL_LOSS_NONE)
        return fl_fail(TENSOR_E_ARGUMENT, "train step: the network has no loss (nn_forward, nn_backward_from)");
    TRY(fl_run_passes(g, "train step", batch));
    TRY(nn_update(g, rate));
    return loss || correct ? nn_loss(loss, correct, g) : TENSOR_OK;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

/* Forward with a batch that was checked. */
static tensor_status evaluation_pass(nn_graph *g, const char *what, const nn_batch *batch, int count) {
    struct fl_loaded loaded;
    tensor_status status = fl_batch_load(g, what, batch, count, &loaded);
    if (!status)
        status = fl_forward(g, loaded.images, false);
    fl_free(loaded.filled);
    return status;
}

/* The logits of evaluation on the host: in place, or a copy. */
static tensor_status see_logits(const nn_graph *g, tensor **logits, tensor **copy) {
    *logits = g->values[fl_output_of(g, g->logits)->y].evaluate;
    *copy = NULL;
    if (g->device == tensor_device_at(0))
        return TENSOR_OK;
    const struct fl_shape *shape = &fl_output_of(g, g->logits)->shape;
    *copy = tensor_new(tensor_format_of(*logits), shape->ndim, shape->dim);
    if (!*copy)
        return tensor_error_status();
    const tensor_status status = tensor_copy(*copy, *logits);
    *logits = *copy;
    return status;
}

/* The first `count` rows of an evaluation's logits, a matrix on the host; copy: the tensor that they may be a view of.
 * The caller frees both, also on failure. */
static tensor_status evaluated_rows(const nn_graph *g, int64_t count, tensor **rows, tensor **copy) {
    tensor *all;
    *rows = NULL;
    TRY(see_logits(g, &all, copy));
    const tensor_format format = tensor_format_of(all);
    *rows = tensor_new_on(format, TENSOR_SHAPE(count, g->classes), tensor_data(all), tensor_bytes(all));
    if (!*rows)
        return tensor_error_status();
    return tensor_format_is_shared(format) ? tensor_declare_exponent(*rows, tensor_exponent(all)) : TENSOR_OK;
}

/* A whole batch on a device, where its labels of images by number are already. */
static tensor_status evaluate_there(nn_graph *g, const nn_batch *batch, double *loss, int32_t *predicted) {
    TRY(fl_batch_load_expected(g, batch));
    fl_begin_calls(g, g->count, false);
    tensor_status status = fl_objective_evaluate_there(g);
    fl_end_calls(g, g->count);
    if (!status && loss)
        status = fl_taken(g, tensor_store_f64(g->objective.mean, loss, 1));
    return !status && predicted ? fl_taken(g, tensor_store_i32(g->predicted, predicted, g->rows)) : status;
}

tensor_status nn_evaluate(double *loss, int32_t *predicted, nn_graph *g, const nn_batch *batch) {
    tensor *rows, *copy;
    double mean;
    int count;
    TRY(fl_batch_check(g, "evaluate", batch, FL_USE_EVALUATION, &count));
    TRY(fl_objective_check_evaluation(g, predicted));
    TRY(evaluation_pass(g, "evaluate", batch, count));
    if (g->device != tensor_device_at(0) && count == g->batch)
        return evaluate_there(g, batch, loss, predicted);
    const int32_t *labels = batch->indices ? fl_data_labels(g, batch->data, batch->indices, count) : batch->labels;
    tensor_status status = evaluated_rows(g, count * fl_labels_each(g), &rows, &copy);
    if (!status && batch->targets) {
        status = fl_objective_evaluate_targets(g, rows, batch->targets, &mean);
    } else if (!status) { /* some rows without a gradient need no more than the planned memory of all with one */
        fl_begin_calls(g, g->count, false);
        status = fl_objective_evaluate(g, rows, labels, &mean, predicted);
        fl_end_calls(g, g->count);
    }
    tensor_free(rows);
    tensor_free(copy);
    if (!status && loss)
        *loss = mean;
    return status;
}

/* Stores the logits of the first `count` samples of an evaluation. */
static tensor_status store_logits(const nn_graph *g, int count, double *logits) {
    const int64_t numbers = g->rows * g->classes;
    double *all = fl_alloc((size_t)numbers * sizeof *all);
    if (!all)
        return fl_fail(TENSOR_E_MEMORY, "predict: no memory for %lld logits", (long long)numbers);
    tensor_status status = tensor_store_f64(g->values[fl_output_of(g, g->logits)->y].evaluate, all, numbers);
    if (!status)
        memcpy(logits, all, (size_t)(count * fl_labels_each(g)) * (size_t)g->classes * sizeof *logits);
    fl_free(all);
    return status;
}

tensor_status nn_predict(double *logits, nn_graph *g, const nn_batch *batch) {
    int count;
    TRY(fl_batch_check(g, "predict", batch, FL_USE_PREDICTION, &count));
    if (!logits)
        return fl_fail(TENSOR_E_ARGUMENT, "predict: logits is NULL");
    TRY(evaluation_pass(g, "predict", batch, count));
    return store_logits(g, count, logits);
}

int64_t nn_label_count(const nn_graph *g) {
    return g && g->compiled ? g->rows : 0;
}
