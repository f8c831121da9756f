/* nn_step.c - the three parts of a training step, and evaluation: what may be called when, and what goes in and out. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include "core/memory.h"
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

static tensor_status check_batch(const nn_graph *g, const float *images, const int32_t *labels) {
    if (!g || !images || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "network: graph, images or labels are NULL");
    return fl_check_ready(g);
}

void fl_lose_values(nn_graph *g) {
    fl_hide_values(g);
    if (g->phase == FL_PHASE_FORWARD)
        g->phase = FL_PHASE_IDLE;
}

tensor_status nn_watch(nn_graph *g, nn_watch_fn watch, void *context) {
    FL_TRY(fl_check_ready(g));
    g->watch = watch;
    g->watch_context = context;
    return TENSOR_OK;
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* A device would find it when everything after it is queued. */
static tensor_status check_labels(const nn_graph *g, const int32_t *labels) {
    for (int i = 0; i < g->batch; i++)
        if (labels[i] < 0 || labels[i] >= g->classes)
            return fl_fail(TENSOR_E_ARGUMENT, "network: label %d is %d, expected 0 to %d", i, labels[i],
                           g->classes - 1);
    return TENSOR_OK;
}

/* images NULL: those of g->bytes. The labels lie in g->labels. */
static tensor_status forward_to_loss(nn_graph *g, const float *images) {
    fl_lose_values(g);
    g->phase = FL_PHASE_IDLE;
    FL_TRY(fl_forward_to_loss(g, images));
    g->phase = FL_PHASE_FORWARD;
    g->has_loss = true;
    return TENSOR_OK;
}

tensor_status fl_forward_bytes(nn_graph *g) {
    return forward_to_loss(g, NULL);
}

tensor_status nn_forward(nn_graph *g, const float *images, const int32_t *labels) {
    FL_TRY(check_batch(g, images, labels));
    FL_TRY(check_labels(g, labels));
    FL_TRY(tensor_load_i32(g->labels, labels, g->batch));
    return forward_to_loss(g, images);
}

tensor_status nn_set_pixel_values(nn_graph *g, const float *values) {
    FL_TRY(fl_check_ready(g));
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
    FL_TRY(fl_check_ready(g));
    if (!images || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "network: images or labels are NULL");
    if (!g->byte_values)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "network: images as bytes, but nn_set_pixel_values has not said what they mean");
    FL_TRY(check_labels(g, labels));
    FL_TRY(tensor_load_u8(g->bytes, images, tensor_count(g->bytes)));
    FL_TRY(tensor_load_i32(g->labels, labels, g->batch));
    return fl_forward_bytes(g);
}

/* --- backward, update, loss --------------------------------------------------------------------------------------- */

tensor_status nn_backward(nn_graph *g) {
    FL_TRY(fl_check_ready(g));
    if (g->phase != FL_PHASE_FORWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: no forward pass before it whose activations are still there");
    g->phase = FL_PHASE_IDLE;
    FL_TRY(fl_backward(g));
    g->phase = FL_PHASE_BACKWARD;
    return TENSOR_OK;
}

tensor_status nn_update(nn_graph *g, float rate) {
    FL_TRY(fl_check_ready(g));
    if (!(rate >= 0 && isfinite(rate)))
        return fl_fail(TENSOR_E_ARGUMENT, "learning rate: %g, expected 0 or more", (double)rate);
    if (g->phase != FL_PHASE_BACKWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "update: no backward pass before it whose gradients were not used yet");
    g->phase = FL_PHASE_IDLE;
    FL_TRY(fl_update(g, rate));
    g->steps++;
    return TENSOR_OK;
}

tensor_status fl_taken(const nn_graph *g, tensor_status status) {
    if (!status)
        return TENSOR_OK;
    const tensor_status found = tensor_device_wait(g->device);
    fl_losses_drop(g);
    return found ? found : status;
}

tensor_status nn_loss(const nn_graph *g, double *loss, int *correct) {
    FL_TRY(fl_check_ready(g));
    int32_t right = 0;
    if (!g->has_loss)
        return fl_fail(TENSOR_E_ARGUMENT, "loss: no forward pass before it");
    if (loss)
        FL_TRY(fl_taken(g, tensor_store_f64(g->loss, loss, 1)));
    if (correct)
        FL_TRY(fl_taken(g, tensor_store_i32(g->correct, &right, 1)));
    if (correct)
        *correct = right;
    return TENSOR_OK;
}

tensor_status nn_train_step(nn_graph *g, const float *images, const int32_t *labels, float rate, double *loss,
                            int *correct) {
    FL_TRY(check_batch(g, images, labels));
    if (!(rate >= 0 && isfinite(rate)))
        return fl_fail(TENSOR_E_ARGUMENT, "learning rate: %g, expected 0 or more", (double)rate);
    FL_TRY(nn_forward(g, images, labels));
    FL_TRY(nn_backward(g));
    FL_TRY(nn_update(g, rate));
    return loss || correct ? nn_loss(g, loss, correct) : TENSOR_OK;
}

/* --- evaluation --------------------------------------------------------------------------------------------------- */

/* A batch filled up with repetitions of its first image: the graph has one size. */
static float *fill_batch(const nn_graph *g, const float *images, int count) {
    size_t image = (size_t)fl_shape_count(&fl_output_of(g, 0)->shape) / (size_t)g->batch;
    float *full = fl_alloc((size_t)g->batch * image * sizeof *full);
    if (!full)
        return NULL;
    memcpy(full, images, (size_t)count * image * sizeof *full);
    for (int i = count; i < g->batch; i++)
        memcpy(full + (size_t)i * image, images, image * sizeof *full);
    return full;
}

static tensor_status evaluation_pass(nn_graph *g, const char *what, const float *images, int count) {
    if (count < 1 || count > g->batch)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d images, expected 1 ... %d", what, count, g->batch);
    float *full = NULL;
    if (count < g->batch && !(full = fill_batch(g, images, count)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for a batch of %d images", what, g->batch);
    fl_lose_values(g);
    tensor_status status = fl_forward(g, full ? full : images, false);
    fl_free(full);
    return status;
}

/* The logits of evaluation on the host: where they lie, or a copy. */
static tensor_status see_logits(const nn_graph *g, tensor **logits, tensor **copy) {
    *logits = g->values[fl_output_of(g, g->logits)->y].evaluate;
    *copy = NULL;
    if (g->device == tensor_device_list(0))
        return TENSOR_OK;
    *copy = tensor_new(g->variant->format, TENSOR_SHAPE(g->batch, g->classes));
    if (!*copy)
        return tensor_error_status();
    const tensor_status status = tensor_copy(*copy, *logits);
    *logits = *copy;
    return status;
}

/* Loss and predictions of the first rows alone. */
static tensor_status evaluate_rows(const nn_graph *g, tensor *all, const int32_t *labels, int count, double *loss,
                                   int32_t *predicted) {
    tensor *rows =
        tensor_new_on(g->variant->format, TENSOR_SHAPE(count, g->classes), tensor_data(all), tensor_bytes(all));
    if (!rows)
        return tensor_error_status();
    tensor_status status = TENSOR_OK;
    if (tensor_format_is_shared(g->variant->format))
        status = tensor_declare_exponent(rows, tensor_exponent(all));
    if (!status)
        status = tensor_softmax_cross_entropy(loss, NULL, predicted, rows, labels, 1.0);
    tensor_free(rows);
    return status;
}

tensor_status fl_evaluate_logits(nn_graph *g, const int32_t *labels, int count, double *loss, int32_t *predicted) {
    double mean_loss;
    tensor *logits, *copy;
    tensor_status status = see_logits(g, &logits, &copy);
    if (!status) { /* some rows and no gradient take no more than all of them with it, for which memory is planned */
        fl_begin_calls(g, g->count);
        status = evaluate_rows(g, logits, labels, count, &mean_loss, predicted);
        fl_end_calls(g, g->count);
    }
    tensor_free(copy);
    if (!status && loss)
        *loss = mean_loss;
    return status;
}

tensor_status nn_evaluate(nn_graph *g, const float *images, const int32_t *labels, int count, double *loss,
                          int32_t *predicted) {
    FL_TRY(check_batch(g, images, labels));
    FL_TRY(evaluation_pass(g, "evaluate", images, count));
    return fl_evaluate_logits(g, labels, count, loss, predicted);
}

tensor_status nn_predict(nn_graph *g, const float *images, int count, double *logits) {
    if (!g || !images || !logits)
        return fl_fail(TENSOR_E_ARGUMENT, "predict: %s is NULL", !g ? "the graph" : !images ? "images" : "logits");
    FL_TRY(fl_check_ready(g));
    FL_TRY(evaluation_pass(g, "predict", images, count));
    const int64_t numbers = (int64_t)g->batch * g->classes;
    double *all = fl_alloc((size_t)numbers * sizeof *all);
    if (!all)
        return fl_fail(TENSOR_E_MEMORY, "predict: no memory for %lld logits", (long long)numbers);
    tensor_status status = tensor_store_f64(g->values[fl_output_of(g, g->logits)->y].evaluate, all, numbers);
    if (!status)
        memcpy(logits, all, (size_t)count * (size_t)g->classes * sizeof *logits);
    fl_free(all);
    return status;
}
