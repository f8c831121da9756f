/* losses.c - the public operations of losses: every check, then the kernel, then the rounding of the gradient. */
#include "core/ops/losses/losses.h"
#include "core/operations/check_operands.h"
#include "core/ops/losses/loss_rules.h"
#include "core/base/sized.h"

/* A loss as its operation was called; NULL: not given. */
struct call {
    const char *name, *options_name;
    tensor *loss, *dx, *predicted, *correct;
    const tensor *x, *labels, *targets;
    double gradient_scale;
    tensor_loss_options how;
};

/* --- checks ------------------------------------------------------------------------------------------------------- */

static tensor_status check_x(const struct call *c) {
    char tx[TENSOR_TEXT], td[TENSOR_TEXT];
    const tensor *x = c->x, *dx = c->dx;
    if (!x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: x is NULL", c->name);
    TRY(fl_need_arithmetic(c->name, "x", x));
    TRY(fl_need_elements(c->name, x));
    if (dx && dx->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: dx is %s, x is %s", c->name, dx->format->name, x->format->name);
    if (dx && (dx->ndim != x->ndim || memcmp(dx->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0])))
        return fl_fail(TENSOR_E_SHAPE, "%s: dx is %s, x is %s", c->name, fl_shape_text(dx, td), fl_shape_text(x, tx));
    if (dx)
        TRY(fl_need_elements(c->name, dx));
    TRY(fl_check_apart(c->name, "dx", dx, "x", x));
    if (!isfinite(c->gradient_scale))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: gradient_scale is %g, expected a finite number", c->name,
                       c->gradient_scale);
    return TENSOR_OK;
}

static tensor_status check_classes(const struct call *c) {
    char tx[TENSOR_TEXT];
    return c->x->ndim == 2 && c->x->shape[1] <= INT32_MAX
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: x is %s, expected [N, classes]", c->name, fl_shape_text(c->x, tx));
}

/* Of the format, or numbers of 32 or 64 bits. */
static tensor_status check_targets(const struct call *c) {
    char tt[TENSOR_TEXT], tx[TENSOR_TEXT];
    const tensor *t = c->targets, *x = c->x;
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: targets is NULL", c->name);
    if (t->format != x->format && t->format->id != FMT_F64 && t->format->id != FMT_F32)
        return fl_fail(TENSOR_E_FORMAT, "%s: targets is %s, expected %s, f64 or f32", c->name, t->format->name,
                       x->format->name);
    if (t->ndim != x->ndim || memcmp(t->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: targets is %s, x is %s", c->name, fl_shape_text(t, tt),
                       fl_shape_text(x, tx));
    TRY(fl_need_elements(c->name, t));
    return fl_check_apart(c->name, "targets", t, "x", x);
}

/* What an operation does not know must not be set. */
enum knows { KNOWS_IGNORED = 1, KNOWS_CLASSES = 2 };

static tensor_status check_options(const struct call *c, unsigned knows) {
    const tensor_loss_options *how = &c->how;
    if (how->ignores && !(knows & KNOWS_IGNORED))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: ignores label %d, expected no ignored label", c->name,
                       how->ignored_label);
    if (!(how->label_smoothing >= 0 && how->label_smoothing <= (knows & KNOWS_CLASSES ? 1 : 0)))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: label_smoothing is %g, expected 0%s", c->name,
                       (double)how->label_smoothing, knows & KNOWS_CLASSES ? " to 1" : "");
    if (how->class_weights && !(knows & KNOWS_CLASSES))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: class_weights is given, expected NULL", c->name);
    if (how->class_weights)
        TRY(fl_check_numbers(c->name, "class_weights", how->class_weights, FMT_F64, c->x->shape[1], c->x));
    return how->gradient_scale ? fl_check_numbers(c->name, "gradient_scale", how->gradient_scale, FMT_F64, 1, c->x)
                               : TENSOR_OK;
}

static tensor_status check_apart(const struct call *c) {
    return fl_check_all_apart(c->name,
                              (const char *[]){"loss", "predicted", "correct", "dx", "labels", "targets", "x",
                                               "gradient_scale", "class_weights"},
                              (const tensor *[]){c->loss, c->predicted, c->correct, c->dx, c->labels, c->targets, c->x,
                                                 c->how.gradient_scale, c->how.class_weights},
                              4, 9);
}

static tensor_status check(const struct call *c, unsigned knows) {
    TRY(check_x(c));
    if (knows & KNOWS_CLASSES)
        TRY(check_classes(c));
    TRY(fl_check_numbers(c->name, "loss", c->loss, FMT_F64, 1, c->x));
    const int64_t rows = c->x->shape[0];
    if (c->predicted)
        TRY(fl_check_numbers(c->name, "predicted", c->predicted, FMT_I32, rows, c->x));
    if (c->correct)
        TRY(fl_check_numbers(c->name, "correct", c->correct, FMT_I32, 1, c->x));
    if (knows & KNOWS_IGNORED) /* then there are labels, else targets or none */
        TRY(fl_check_numbers(c->name, "labels", c->labels, FMT_I32, rows, c->x));
    else
        TRY(check_targets(c));
    TRY(check_options(c, knows));
    return check_apart(c);
}

/* --- to the kernel ------------------------------------------------------------------------------------------------ */

static void *numbers_at(const tensor *t) {
    return t ? t->storage->data : NULL;
}

static void set_targets(struct fl_args *args, const tensor *targets) {
    if (!targets)
        return;
    if (targets->format->id == FMT_F64)
        args->p.loss.targets_f64 = targets->storage->data;
    else if (targets->format->id == FMT_F32)
        args->p.loss.targets_f32 = fl_view_of(targets);
    else
        args->in[1] = fl_view_of(targets);
}

/* smoothing of labels; delta of huber */
static tensor_status run(const struct call *c, enum fl_op op, float smoothing, float delta) {
    double *z = NULL;
    const tensor *x = c->x;
    if (c->dx && !(z = fl_temporary(fl_queue_of(x->storage), (size_t)x->count * sizeof *z)))
        return TENSOR_E_MEMORY;
    struct fl_args args = {.op = op,
                           .in = {fl_view_of(x)},
                           .p.loss = {.m = x->shape[0],
                                      .n = x->count / x->shape[0],
                                      .gradient = z,
                                      .loss = numbers_at(c->loss),
                                      .predicted = numbers_at(c->predicted),
                                      .correct = numbers_at(c->correct),
                                      .labels = numbers_at(c->labels),
                                      .class_weights = numbers_at(c->how.class_weights),
                                      .ignored = c->how.ignores ? c->how.ignored_label : FL_NO_LABEL,
                                      .gradient_scale = c->gradient_scale,
                                      .smoothing = smoothing,
                                      .delta = delta,
                                      .name = c->name}};
    set_targets(&args, c->targets);
    if (c->how.gradient_scale)
        args.late =
            FL_LATE_IN(numbers_at(c->how.gradient_scale), FL_LATE_DOUBLE, p.loss.gradient_scale, c->options_name);
    TRY(fl_run(x, &args));
    return c->dx ? fl_write_values(c->dx, z) : TENSOR_OK;
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

#define NAMES(operation) .name = operation, .options_name = operation ": gradient_scale"

static tensor_status take_options(struct call *c, const tensor_loss_options *how, size_t size) {
    return how ? fl_take_sized(&c->how, sizeof c->how, how, size, c->name) : TENSOR_OK;
}

static bool is_plain(const tensor_loss_options *how) {
    return !how->ignores && !how->class_weights && how->label_smoothing == 0;
}

tensor_status tensor_cross_entropy_with_sized(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                              const tensor *x, const tensor *labels, double gradient_scale,
                                              const tensor_loss_options *how, size_t how_size) {
    struct call c = {NAMES("cross_entropy_with"),     loss, dx, predicted, correct, x, labels,
                     .gradient_scale = gradient_scale};
    TRY(take_options(&c, how, how_size));
    TRY(check(&c, KNOWS_IGNORED | KNOWS_CLASSES));
    if (!is_plain(&c.how))
        return run(&c, FL_OP_CROSS_ENTROPY_WITH, c.how.label_smoothing, 0);
    return c.how.gradient_scale ? tensor_cross_entropy_by(loss, dx, predicted, correct, x, labels, c.how.gradient_scale)
                                : tensor_cross_entropy(loss, dx, predicted, correct, x, labels, gradient_scale);
}

tensor_status tensor_cross_entropy_targets_sized(tensor *loss, tensor *dx, tensor *predicted, const tensor *x,
                                                 const tensor *targets, double gradient_scale,
                                                 const tensor_loss_options *how, size_t how_size) {
    struct call c = {NAMES("cross_entropy_targets"), loss, dx, predicted, NULL, x, NULL, targets, gradient_scale};
    TRY(take_options(&c, how, how_size));
    TRY(check(&c, KNOWS_CLASSES));
    return run(&c, FL_OP_CROSS_ENTROPY_TARGETS, c.how.label_smoothing, 0);
}

tensor_status tensor_squared_error_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                         double gradient_scale, const tensor_loss_options *how, size_t how_size) {
    struct call c = {NAMES("squared_error"), loss, dx, NULL, NULL, x, NULL, targets, gradient_scale};
    TRY(take_options(&c, how, how_size));
    TRY(check(&c, 0));
    return run(&c, FL_OP_SQUARED_ERROR, 0, 0);
}

tensor_status tensor_huber_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *targets, float delta,
                                 double gradient_scale, const tensor_loss_options *how, size_t how_size) {
    struct call c = {NAMES("huber"), loss, dx, NULL, NULL, x, NULL, targets, gradient_scale};
    TRY(take_options(&c, how, how_size));
    TRY(check(&c, 0));
    if (!(delta > 0 && isfinite(delta)))
        return fl_fail(TENSOR_E_ARGUMENT, "huber: delta is %g, expected more than 0", (double)delta);
    return run(&c, FL_OP_HUBER, 0, delta);
}

tensor_status tensor_wasserstein_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                       double gradient_scale, const tensor_loss_options *how, size_t how_size) {
    struct call c = {NAMES("wasserstein"), loss, dx, NULL, NULL, x, labels, .gradient_scale = gradient_scale};
    TRY(take_options(&c, how, how_size));
    TRY(check(&c, KNOWS_IGNORED));
    return run(&c, FL_OP_WASSERSTEIN, 0, 0);
}
