/* nn_objective.c - the objective of a network: the loss chosen in its settings, and the tensors that it needs. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* In the order of enum fl_loss_kind. */
static const char *const names[] = {"cross_entropy", "squared_error", "huber", "wasserstein", "none"};
enum { KINDS = sizeof names / sizeof names[0] };

int nn_loss_name_count(void) {
    return KINDS;
}

const char *nn_loss_name_at(int i) {
    return i >= 0 && i < KINDS ? names[i] : NULL;
}

static int find(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(names[i], name ? name : names[0]))
            return i;
    return -1;
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static tensor_status check_only(const char *what, bool given, const char *loss, bool taken) {
    return !given || taken ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "%s: loss %s has none", what, loss);
}

tensor_status fl_objective_check(const nn_config *c) {
    const int kind = find(c->loss);
    if (kind < 0) {
        char known[100] = "";
        for (int i = 0; i < KINDS; i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", names[i]);
        return fl_fail(TENSOR_E_ARGUMENT, "loss '%s': expected one of %s", c->loss, known);
    }
    if (!(c->label_smoothing >= 0 && c->label_smoothing <= 1))
        return fl_fail(TENSOR_E_ARGUMENT, "label_smoothing: %g, expected 0 to 1", (double)c->label_smoothing);
    if (!(c->huber_delta >= 0 && isfinite(c->huber_delta)))
        return fl_fail(TENSOR_E_ARGUMENT, "huber_delta: %g, expected 0 or more", (double)c->huber_delta);
    const char *name = names[kind];
    TRY(check_only("label_smoothing", c->label_smoothing > 0, name, kind == FL_LOSS_CROSS_ENTROPY));
    TRY(check_only("huber_delta", c->huber_delta > 0, name, kind == FL_LOSS_HUBER));
    return check_only("ignored label", c->ignores, name, kind == FL_LOSS_CROSS_ENTROPY || kind == FL_LOSS_WASSERSTEIN);
}

void fl_objective_take(nn_graph *g, const nn_config *c) {
    const enum fl_loss_kind kind = (enum fl_loss_kind)find(c->loss);
    g->objective = (struct fl_objective){.kind = kind,
                                         .smoothing = c->label_smoothing,
                                         .delta = kind != FL_LOSS_HUBER ? 0
                                                  : c->huber_delta > 0  ? c->huber_delta
                                                                        : 1,
                                         .ignored = c->ignores ? c->ignored_label : 0,
                                         .ignores = c->ignores,
                                         .input_gradient = c->input_gradient};
}

/* --- the output --------------------------------------------------------------------------------------------------- */

tensor_status fl_objective_output(nn_graph *g, const struct fl_output *last) {
    const bool entropy = g->objective.kind == FL_LOSS_CROSS_ENTROPY;
    const int64_t count = fl_shape_count(&last->shape), rows = last->shape.dim[0];
    if (entropy && (last->tokens || last->shape.ndim != 2 || last->shape.dim[1] < 2))
        return fl_fail(TENSOR_E_SHAPE, "logits: '%s' is not a matrix of at least 2 columns (classes)", last->name);
    if (last->tokens)
        return fl_fail(TENSOR_E_SHAPE, "output: '%s' holds tokens", last->name);
    if (rows % g->batch || rows > INT32_MAX || count / rows > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "logits: '%s' has %lld rows, expected a multiple of the batch, %d, below 2^31",
                       last->name, (long long)rows, g->batch);
    if (g->objective.input_gradient && fl_output_of(g, 0)->tokens)
        return fl_fail(TENSOR_E_ARGUMENT, "input_gradient: the input is tokens, which have no gradient");
    g->classes = (int)(count / rows);
    g->rows = rows;
    return TENSOR_OK;
}

static bool has_targets(const nn_graph *g) {
    return g->objective.kind == FL_LOSS_SQUARED_ERROR || g->objective.kind == FL_LOSS_HUBER;
}

tensor_status fl_objective_numbers(nn_graph *g, const struct fl_output *last) {
    struct fl_objective *o = &g->objective;
    if (g->device != tensor_device_at(0) && (!(o->mean = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(1))) ||
                                             !(o->right = tensor_new_in(g->device, FMT_I32, TENSOR_SHAPE(1)))))
        return tensor_error_status();
    if (!has_targets(g))
        return TENSOR_OK;
    o->targets = tensor_new_in(g->device, FMT_F32, last->shape.ndim, last->shape.dim);
    return o->targets ? TENSOR_OK : tensor_error_status();
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

tensor_status fl_objective_labels(const nn_graph *g, const char *what, const int32_t *labels, int64_t count) {
    const struct fl_objective *o = &g->objective;
    const int limit = o->kind == FL_LOSS_WASSERSTEIN ? 2 : g->classes;
    for (int64_t i = 0; i < count; i++)
        if ((labels[i] < 0 || labels[i] >= limit) && !(o->ignores && labels[i] == o->ignored))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %d, expected 0 to %d", what, (long long)i, labels[i],
                           limit - 1);
    return TENSOR_OK;
}

tensor_status fl_objective_run(const nn_graph *g, tensor *dx, const tensor *x) {
    const struct fl_objective *o = &g->objective;
    const tensor_loss_options how = {.ignores = o->ignores,
                                     .ignored_label = o->ignored,
                                     .label_smoothing = o->smoothing,
                                     .gradient_scale_tensor = fl_loss_scale_of(g)};
    switch (o->kind) {
    case FL_LOSS_SQUARED_ERROR:
        return tensor_squared_error(g->loss, dx, x, o->targets, &how);
    case FL_LOSS_HUBER:
        return tensor_huber(g->loss, dx, x, o->targets, o->delta, &how);
    case FL_LOSS_WASSERSTEIN:
        return tensor_wasserstein(g->loss, dx, x, g->labels, &how);
    case FL_LOSS_CROSS_ENTROPY:
        return tensor_cross_entropy(g->loss, dx, g->predicted, g->correct, x, g->labels, &how);
    default:
        return TENSOR_OK;
    }
}

tensor_status fl_objective_evaluate_there(const nn_graph *g) {
    const struct fl_objective *o = &g->objective;
    const tensor_loss_options how = {.ignores = o->ignores, .ignored_label = o->ignored};
    const tensor *x = g->values[fl_output_of(g, g->logits)->y].evaluate;
    return o->kind == FL_LOSS_HUBER ? tensor_huber(o->mean, NULL, x, o->targets, o->delta, NULL)
           : o->kind == FL_LOSS_SQUARED_ERROR
               ? tensor_squared_error(o->mean, NULL, x, o->targets, NULL)
               : tensor_cross_entropy(o->mean, NULL, g->predicted, o->right, x, g->labels, &how);
}

/* --- evaluation, on the host -------------------------------------------------------------------------------------- */

tensor_status fl_objective_evaluate(const nn_graph *g, tensor *rows, const int32_t *labels, double *loss,
                                    int32_t *predicted) {
    const struct fl_objective *o = &g->objective;
    const tensor_loss_options how = {.ignores = o->ignores, .ignored_label = o->ignored};
    const int64_t count = tensor_dim(rows, 0);
    tensor *mean = tensor_new(FMT_F64, TENSOR_SHAPE(1)), *classes = tensor_new(FMT_I32, TENSOR_SHAPE(count)),
           *of_rows = tensor_new(FMT_I32, TENSOR_SHAPE(count));
    tensor_status status = mean && classes && of_rows ? tensor_load_i32(of_rows, labels, count) : tensor_error_status();
    if (!status)
        status = tensor_cross_entropy(mean, NULL, classes, NULL, rows, of_rows, &how);
    if (!status)
        status = tensor_store_f64(mean, loss, 1);
    if (!status && predicted)
        status = tensor_store_i32(classes, predicted, count);
    tensor_free(mean);
    tensor_free(classes);
    tensor_free(of_rows);
    return status;
}

tensor_status fl_objective_check_evaluation(const nn_graph *g, const int32_t *predicted) {
    const char *name = names[g->objective.kind];
    if (g->objective.kind != FL_LOSS_CROSS_ENTROPY && !has_targets(g))
        return fl_fail(TENSOR_E_ARGUMENT, "evaluate: loss %s is none of classes or targets (nn_predict)", name);
    return predicted && has_targets(g)
               ? fl_fail(TENSOR_E_ARGUMENT, "evaluate: predicted classes, but loss %s has none", name)
               : TENSOR_OK;
}

tensor_status fl_objective_evaluate_targets(const nn_graph *g, const tensor *rows, const float *targets, double *loss) {
    const struct fl_objective *o = &g->objective;
    tensor *mean = tensor_new(FMT_F64, TENSOR_SHAPE(1)),
           *wanted = tensor_new(FMT_F32, TENSOR_SHAPE(tensor_dim(rows, 0), tensor_dim(rows, 1)));
    tensor_status status =
        mean && wanted ? tensor_load_f32(wanted, targets, tensor_count(wanted)) : tensor_error_status();
    if (!status && o->kind == FL_LOSS_HUBER)
        status = tensor_huber(mean, NULL, rows, wanted, o->delta, NULL);
    else if (!status)
        status = tensor_squared_error(mean, NULL, rows, wanted, NULL);
    if (!status)
        status = tensor_store_f64(mean, loss, 1);
    tensor_free(mean);
    tensor_free(wanted);
    return status;
}
