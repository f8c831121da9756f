/* nn_chain.c - steps of networks that have no labels: targets that are numbers, and networks in a chain, whose
 * gradients come from the next one and go on to the one before. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

/* --- targets ------------------------------------------------------------------------------------------------------ */

static tensor_status check_targets(const nn_graph *g, const char *what, const float *images, const float *targets) {
    if (!g || !images || !targets)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: graph, images or targets are NULL", what);
    FL_TRY(fl_check_images(g));
    return g->objective.targets ? TENSOR_OK
                                : fl_fail(TENSOR_E_ARGUMENT, "%s: targets, but the loss is %s", what,
                                          nn_loss_list((int)g->objective.kind));
}

tensor_status nn_forward_targets(nn_graph *g, const float *images, const float *targets) {
    FL_TRY(check_targets(g, "network", images, targets));
    fl_lose_values(g);
    FL_TRY(tensor_load_f32(g->objective.targets, targets, tensor_count(g->objective.targets)));
    return fl_forward_step(g, images);
}

tensor_status nn_train_step_targets(nn_graph *g, const float *images, const float *targets, float rate, double *loss) {
    if (!(rate >= 0 && isfinite(rate)))
        return fl_fail(TENSOR_E_ARGUMENT, "learning rate: %g, expected 0 or more", (double)rate);
    FL_TRY(nn_forward_targets(g, images, targets));
    FL_TRY(nn_backward(g));
    FL_TRY(nn_update(g, rate));
    return loss ? nn_loss(g, loss, NULL) : TENSOR_OK;
}

/* rows: of an evaluation, on the host. */
static tensor_status evaluate_rows(const nn_graph *g, tensor *rows, const float *targets, double *loss) {
    const struct fl_objective *o = &g->objective;
    tensor *mean = tensor_new(FMT_F64, TENSOR_SHAPE(1)),
           *wanted = tensor_new(FMT_F32, TENSOR_SHAPE(tensor_dim(rows, 0), tensor_dim(rows, 1)));
    tensor_status status =
        mean && wanted ? tensor_load_f32(wanted, targets, tensor_count(wanted)) : tensor_error_status();
    if (!status && o->kind == FL_LOSS_HUBER)
        status = tensor_huber(mean, NULL, rows, wanted, o->delta, NULL);
    else if (!status)
        status = tensor_squared_error(mean, NULL, rows, wanted, NULL);
    if (!status && loss)
        status = tensor_store_f64(mean, loss, 1);
    tensor_free(mean);
    tensor_free(wanted);
    return status;
}

tensor_status nn_evaluate_targets(nn_graph *g, const float *images, const float *targets, int count, double *loss) {
    tensor *rows, *copy;
    FL_TRY(check_targets(g, "evaluate", images, targets));
    FL_TRY(fl_evaluation_pass(g, "evaluate", images, count));
    tensor_status status = fl_evaluated_rows(g, count * fl_labels_each(g), &rows, &copy);
    if (!status)
        status = evaluate_rows(g, rows, targets, loss);
    tensor_free(rows);
    tensor_free(copy);
    return status;
}

/* --- chains ------------------------------------------------------------------------------------------------------- */

static tensor_status check_chained(const nn_graph *g, const char *what) {
    FL_TRY(fl_check_images(g));
    return g->objective.kind == FL_LOSS_NONE ? TENSOR_OK
                                             : fl_fail(TENSOR_E_ARGUMENT, "%s: the loss is %s, expected none", what,
                                                       nn_loss_list((int)g->objective.kind));
}

tensor_status nn_forward_images(nn_graph *g, const float *images) {
    if (!images)
        return fl_fail(TENSOR_E_ARGUMENT, "network: images is NULL");
    FL_TRY(check_chained(g, "forward"));
    return fl_forward_step(g, images);
}

tensor_status nn_backward_from(nn_graph *g, const tensor *gradient) {
    FL_TRY(check_chained(g, "backward"));
    if (!gradient)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: the gradient is NULL");
    if (g->phase != FL_PHASE_FORWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: no forward pass before it whose activations are still there");
    const tensor_format own = g->values[fl_output_of(g, g->logits)->dy].type.format;
    if (tensor_get_format(gradient) != own && !g->policy) /* else the one before or behind may have another */
        return fl_fail(TENSOR_E_FORMAT, "backward: the gradient is %s, expected %s",
                       tensor_format_name(tensor_get_format(gradient)), tensor_format_name(own));
    FL_TRY(fl_begin_gradient(g, gradient));
    g->phase = FL_PHASE_IDLE;
    FL_TRY(fl_backward(g));
    fl_writes_done(g, FL_PART_BACKWARD);
    g->phase = FL_PHASE_BACKWARD;
    g->objective.has_input_gradient = g->objective.input_gradient;
    return TENSOR_OK;
}

const tensor *nn_output(const nn_graph *g) {
    if (check_chained(g, "output"))
        return NULL;
    if (g->phase == FL_PHASE_FORWARD)
        return g->values[fl_output_of(g, g->logits)->y].t;
    fl_fail(TENSOR_E_ARGUMENT, "output: no forward pass before it whose activations are still there");
    return NULL;
}

const tensor *nn_input_gradient(const nn_graph *g) {
    if (fl_check_ready(g))
        return NULL;
    if (g->objective.has_input_gradient)
        return g->values[fl_output_of(g, 0)->dy].t;
    fl_fail(TENSOR_E_ARGUMENT, g->objective.input_gradient
                                   ? "input gradient: no backward pass before it whose gradients are still there"
                                   : "input gradient: the network was made without input_gradient");
    return NULL;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

tensor_status nn_clip_weights(nn_graph *g, float limit) {
    FL_TRY(fl_check_ready(g));
    if (!(limit >= 0 && isfinite(limit)))
        return fl_fail(TENSOR_E_ARGUMENT, "clip: limit %g, expected 0 or more", (double)limit);
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            if (fl_is_weight(&g->nodes[i].parameter[k])) {
                FL_TRY(tensor_clip_weight(fl_updated(&g->nodes[i].parameter[k]), limit));
                FL_TRY(fl_refresh_weight(&g->nodes[i].parameter[k]));
            }
    return TENSOR_OK;
}
