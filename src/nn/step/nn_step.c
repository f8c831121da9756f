/* nn_step.c - the three parts of a training step, and evaluation: what may be called when, and what goes in and out. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <string.h>

tensor_status fl_check_ready(const nn_graph *g) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "network: the graph is NULL");
    if (g->status)
        return fl_fail(g->status, "%s", g->message);
    if (!g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "network: the graph is not compiled");
    return TENSOR_OK;
}

tensor_status fl_check_images(const nn_graph *g) {
    TRY(fl_check_ready(g));
    return g->tokens ? fl_fail(TENSOR_E_ARGUMENT, "network: images, but its input is tokens (nn_forward_tokens)")
                     : TENSOR_OK;
}

static tensor_status check_batch(const nn_graph *g, const float *images, const int32_t *labels) {
    if (!g || !images || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "network: graph, images or labels are NULL");
    return fl_check_images(g);
}

void fl_lose_values(nn_graph *g) {
    g->objective.has_input_gradient = false;
    fl_hide_values(g);
    if (g->phase == FL_PHASE_FORWARD)
        g->phase = FL_PHASE_IDLE;
}

tensor_status nn_watch(nn_graph *g, nn_watch_fn watch, void *context) {
    TRY(fl_check_ready(g));
    g->watch = watch;
    g->watch_context = context;
    return TENSOR_OK;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* images NULL: those of g->bytes, or the tokens of g->tokens. The labels lie in g->labels. */
tensor_status fl_forward_step(nn_graph *g, const float *images) {
    fl_lose_values(g);
    g->phase = FL_PHASE_IDLE;
    fl_writes_begin(g);
    TRY(fl_forward_to_loss(g, images));
    fl_writes_done(g, FL_PART_FORWARD);
    g->phase = FL_PHASE_FORWARD;
    g->has_loss = g->objective.kind != FL_LOSS_NONE;
    return TENSOR_OK;
}

tensor_status fl_forward_bytes(nn_graph *g) {
    TRY(fl_objective_labels(g, NULL, 0));
    return fl_forward_step(g, NULL);
}

tensor_status nn_forward(nn_graph *g, const float *images, const int32_t *labels) {
    TRY(check_batch(g, images, labels));
    TRY(fl_objective_labels(g, labels, g->rows)); /* a device would find it when all after it is queued */
    TRY(tensor_load_i32(g->labels, labels, g->rows));
    return fl_forward_step(g, images);
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

tensor_status nn_forward_pixels(nn_graph *g, const uint8_t *images, const int32_t *labels) {
    TRY(fl_check_images(g));
    if (!images || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "network: images or labels are NULL");
    if (!g->byte_values)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "network: images as bytes, but nn_set_pixel_values has not given their values");
    TRY(fl_objective_labels(g, labels, g->rows));
    TRY(tensor_load_u8(g->bytes, images, tensor_count(g->bytes)));
    TRY(tensor_load_i32(g->labels, labels, g->rows));
    return fl_forward_bytes(g);
}

/* --- forward of tokens -------------------------------------------------------------------------------------------- */

static tensor_status check_tokens(const nn_graph *g, const char *what, const int32_t *tokens, int64_t sequences) {
    TRY(fl_check_ready(g));
    if (!g->tokens)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tokens, but its input is images (nn_forward)", what);
    if (sequences < 1 || sequences > g->batch)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %lld sequences, expected 1 ... %d", what, (long long)sequences,
                       g->batch);
    const int vocabulary = g->nodes[0].how.outputs;
    const int64_t count = sequences * (tensor_count(g->tokens) / g->batch);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: token %lld is %d, expected 0 to %d", what, (long long)i, tokens[i],
                           vocabulary - 1);
    return TENSOR_OK;
}

tensor_status nn_forward_tokens(nn_graph *g, const int32_t *tokens, const int32_t *labels) {
    if (!g || !tokens || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "network: graph, tokens or labels are NULL");
    TRY(check_tokens(g, "network", tokens, g->batch));
    TRY(fl_objective_labels(g, labels, g->rows));
    fl_lose_values(g);
    TRY(tensor_load_i32(g->tokens, tokens, tensor_count(g->tokens)));
    TRY(tensor_load_i32(g->labels, labels, g->rows));
    return fl_forward_step(g, NULL);
}

/* --- backward, update, loss --------------------------------------------------------------------------------------- */

tensor_status nn_backward(nn_graph *g) {
    TRY(fl_check_ready(g));
    if (g->objective.kind == FL_LOSS_NONE)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "backward: the network has no loss, its gradient is given (nn_backward_from)");
    if (g->phase != FL_PHASE_FORWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: no forward pass before it whose activations still exist");
    g->phase = FL_PHASE_IDLE;
    TRY(fl_backward(g));
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

tensor_status fl_update_through(nn_graph *g, float rate, const nn_graph *next) {
    TRY(fl_check_ready(g));
    TRY(check_rate(rate));
    if (g->phase != FL_PHASE_BACKWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "update: no backward pass before it whose gradients were not used yet");
    g->phase = FL_PHASE_IDLE;
    bool skip;
    TRY(fl_take_gradients(g)); /* what overflows there is an overflow too */
    fl_writes_done(g, FL_PART_TAKEN);
    TRY(fl_loss_scale_judge(g, next, &skip));
    if (!skip) {
        TRY(fl_update(g, rate));
        fl_writes_done(g, FL_PART_UPDATE);
    }
    g->steps++;
    return fl_loss_scale_step(g, skip);
}

tensor_status nn_update(nn_graph *g, float rate) {
    return fl_update_through(g, rate, NULL);
}

tensor_status fl_taken(const nn_graph *g, tensor_status status) {
    if (!status)
        return TENSOR_OK;
    const tensor_status found = tensor_device_wait(g->device);
    fl_losses_drop(g);
    return found ? found : status;
}

tensor_status nn_loss(const nn_graph *g, double *loss, int *correct) {
    TRY(fl_check_ready(g));
    int32_t right = 0;
    if (!g->has_loss)
        return fl_fail(TENSOR_E_ARGUMENT, "loss: no forward pass before it");
    if (loss)
        TRY(fl_taken(g, tensor_store_f64(g->loss, loss, 1)));
    if (correct)
        TRY(fl_taken(g, tensor_store_i32(g->correct, &right, 1)));
    if (correct)
        *correct = right;
    return TENSOR_OK;
}

/* What follows a forward pass. */
static tensor_status end_step(nn_graph *g, float rate, double *loss, int *correct) {
    TRY(nn_backward(g));
    TRY(nn_update(g, rate));
    return loss || correct ? nn_loss(g, loss, correct) : TENSOR_OK;
}

tensor_status nn_train_step(nn_graph *g, const float *images, const int32_t *labels, float rate, double *loss,
                            int *correct) {
    TRY(check_batch(g, images, labels));
    TRY(check_rate(rate));
    TRY(nn_forward(g, images, labels));
    return end_step(g, rate, loss, correct);
}

tensor_status nn_train_step_tokens(nn_graph *g, const int32_t *tokens, const int32_t *labels, float rate, double *loss,
                                   int *correct) {
    TRY(check_rate(rate));
    TRY(nn_forward_tokens(g, tokens, labels));
    return end_step(g, rate, loss, correct);
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

/* A batch filled up with repetitions of its first image or sequence: the graph has one size. Both are made of four
 * bytes each. */
static void *fill_batch(const nn_graph *g, const void *samples, int count) {
    const size_t sample = (size_t)fl_shape_count(&fl_output_of(g, 0)->shape) / (size_t)g->batch * sizeof(float);
    char *full = fl_alloc((size_t)g->batch * sample);
    if (!full)
        return NULL;
    memcpy(full, samples, (size_t)count * sample);
    for (int i = count; i < g->batch; i++)
        memcpy(full + (size_t)i * sample, samples, sample);
    return full;
}
_Static_assert(sizeof(float) == sizeof(int32_t), "images and tokens are filled up alike");

static tensor_status check_count(const nn_graph *g, const char *what, int count) {
    return count >= 1 && count <= g->batch
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %d images, expected 1 ... %d", what, count, g->batch);
}

tensor_status fl_evaluation_pass(nn_graph *g, const char *what, const float *images, int count) {
    TRY(check_count(g, what, count));
    float *full = NULL;
    if (count < g->batch && !(full = fill_batch(g, images, count)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for a batch of %d images", what, g->batch);
    fl_lose_values(g);
    tensor_status status = fl_forward(g, full ? full : images, false);
    fl_free(full);
    return status;
}

static tensor_status evaluation_pass_tokens(nn_graph *g, const char *what, const int32_t *tokens, int count) {
    int32_t *full = NULL;
    TRY(check_tokens(g, what, tokens, count));
    if (count < g->batch && !(full = fill_batch(g, tokens, count)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for a batch of %d sequences", what, g->batch);
    fl_lose_values(g);
    tensor_status status = tensor_load_i32(g->tokens, full ? full : tokens, tensor_count(g->tokens));
    fl_free(full);
    return status ? status : fl_forward(g, NULL, false);
}

/* The logits of evaluation on the host: where they lie, or a copy. */
static tensor_status see_logits(const nn_graph *g, tensor **logits, tensor **copy) {
    *logits = g->values[fl_output_of(g, g->logits)->y].evaluate;
    *copy = NULL;
    if (g->device == tensor_device_list(0))
        return TENSOR_OK;
    const struct fl_shape *shape = &fl_output_of(g, g->logits)->shape;
    *copy = tensor_new(tensor_get_format(*logits), shape->ndim, shape->dim);
    if (!*copy)
        return tensor_error_status();
    const tensor_status status = tensor_copy(*copy, *logits);
    *logits = *copy;
    return status;
}

tensor_status fl_evaluated_rows(const nn_graph *g, int64_t count, tensor **rows, tensor **copy) {
    tensor *all;
    *rows = NULL;
    TRY(see_logits(g, &all, copy));
    const tensor_format format = tensor_get_format(all);
    *rows = tensor_new_on(format, TENSOR_SHAPE(count, g->classes), tensor_data(all), tensor_bytes(all));
    if (!*rows)
        return tensor_error_status();
    return tensor_format_is_shared(format) ? tensor_declare_exponent(*rows, tensor_exponent(all)) : TENSOR_OK;
}

tensor_status fl_evaluate_logits(nn_graph *g, const int32_t *labels, int count, double *loss, int32_t *predicted) {
    double mean_loss;
    tensor *rows, *copy;
    tensor_status status = fl_evaluated_rows(g, count * fl_labels_each(g), &rows, &copy);
    if (!status) { /* some rows and no gradient take no more than all of them with it, for which memory is planned */
        fl_begin_calls(g, g->count, false);
        status = fl_objective_evaluate(g, rows, labels, &mean_loss, predicted);
        fl_end_calls(g, g->count);
    }
    tensor_free(rows);
    tensor_free(copy);
    if (!status && loss)
        *loss = mean_loss;
    return status;
}

tensor_status nn_evaluate(nn_graph *g, const float *images, const int32_t *labels, int count, double *loss,
                          int32_t *predicted) {
    TRY(check_batch(g, images, labels));
    TRY(check_count(g, "evaluate", count));
    TRY(fl_objective_labels(g, labels, count * fl_labels_each(g)));
    TRY(fl_evaluation_pass(g, "evaluate", images, count));
    return fl_evaluate_logits(g, labels, count, loss, predicted);
}

tensor_status nn_evaluate_tokens(nn_graph *g, const int32_t *tokens, const int32_t *labels, int count, double *loss,
                                 int32_t *predicted) {
    if (!g || !tokens || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "evaluate: graph, tokens or labels are NULL");
    TRY(check_tokens(g, "evaluate", tokens, count));
    TRY(fl_objective_labels(g, labels, count * fl_labels_each(g)));
    TRY(evaluation_pass_tokens(g, "evaluate", tokens, count));
    return fl_evaluate_logits(g, labels, count, loss, predicted);
}

/* Those of the first `count` samples of an evaluation. */
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

static tensor_status check_predict(const nn_graph *g, const void *samples, const char *kind, const double *logits) {
    return g && samples && logits ? TENSOR_OK
                                  : fl_fail(TENSOR_E_ARGUMENT, "predict: %s is NULL",
                                            !g         ? "the graph"
                                            : !samples ? kind
                                                       : "logits");
}

tensor_status nn_predict(nn_graph *g, const float *images, int count, double *logits) {
    TRY(check_predict(g, images, "images", logits));
    TRY(fl_check_images(g));
    TRY(fl_evaluation_pass(g, "predict", images, count));
    return store_logits(g, count, logits);
}

tensor_status nn_predict_tokens(nn_graph *g, const int32_t *tokens, int count, double *logits) {
    TRY(check_predict(g, tokens, "tokens", logits));
    TRY(evaluation_pass_tokens(g, "predict", tokens, count));
    return store_logits(g, count, logits);
}

int64_t nn_label_count(const nn_graph *g) {
    return g && g->compiled ? g->rows : 0;
}
