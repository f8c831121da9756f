/* losses.c - losses as objects: the kernel in double, then the rounding of the gradient. */
#include "core/ops/losses/losses.h"
#include "core/base/fail.h"
#include "core/ops/losses/loss_rules.h"
#include "core/ops/losses/softmax.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"
#include <stddef.h>

/* --- the calls ---------------------------------------------------------------------------------------------------- */

static bool derive(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    (void)scalars;
    if (FL_SIZE(sizes, 'C') > INT32_MAX && !quiet)
        fl_fail(TENSOR_E_SHAPE, "%s: %lld classes, expected fewer than 2^31", name, (long long)FL_SIZE(sizes, 'C'));
    return FL_SIZE(sizes, 'C') <= INT32_MAX;
}

static void prepare_targets(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.loss.m = FL_SIZE(sizes, 'N');
    args->p.loss.n = FL_SIZE(sizes, 'C');
    args->p.loss.ignored = FL_NO_LABEL;
}

/* The second and third scalar: a label, and whether it is ignored. */
static void prepare_labels(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    prepare_targets(args, sizes, scalars);
    if (scalars[2].integer)
        args->p.loss.ignored = scalars[1].integer;
}

/* The second operand is the gradient, which is computed in double. */
static tensor_status run(const struct fl_invocation *call, struct fl_args *args, const tensor *x) {
    const tensor *dx = call->tensors[1];
    args->p.loss.name = call->function->name;
    args->p.loss.gradient = dx ? fl_temporary(fl_queue_of(x->storage), (size_t)x->count * sizeof(double)) : NULL;
    if (dx && !args->p.loss.gradient)
        return TENSOR_E_MEMORY;
    TRY(fl_run(x, args));
    return dx ? fl_write_values((tensor *)dx, args->p.loss.gradient) : TENSOR_OK;
}

/* Labels without options have kernels of their own, with the same bits. */
static tensor_status run_entropy(const struct fl_invocation *call, struct fl_args *args) {
    const struct fl_loss *n = &args->p.loss;
    if (n->ignored != FL_NO_LABEL || n->class_weights || n->smoothing != 0)
        args->op = FL_OP_CROSS_ENTROPY_WITH;
    return run(call, args, call->tensors[4]);
}

static tensor_status run_labels(const struct fl_invocation *call, struct fl_args *args) {
    return run(call, args, call->tensors[2]);
}

/* Targets follow x. */
static tensor_status run_targets(const struct fl_invocation *call, struct fl_args *args) {
    const int at = call->function->outputs;
    const tensor *targets = call->tensors[at + 1];
    if (targets->format->id == FMT_F64)
        args->p.loss.targets_f64 = targets->storage->data;
    else if (targets->format->id == FMT_F32)
        args->p.loss.targets_f32 = fl_view_of(targets);
    else
        args->in[1] = fl_view_of(targets);
    return run(call, args, call->tensors[at]);
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

#define LOSS                                                                                                           \
    { "loss", "1", .class = FL_CLASS_F64, .at = FL_AT(p.loss.loss) }
#define PREDICTED                                                                                                      \
    { "predicted", "N", FL_OPTIONAL, FL_CLASS_I32, FL_AT(p.loss.predicted), .below = 'C' }
#define X(shape)                                                                                                       \
    { "x", shape, FL_IN_PLACE, .at = FL_AT(in[0]) }
#define LABELS(letter)                                                                                                 \
    { "labels", "N", .class = FL_CLASS_I32, .at = FL_AT(p.loss.labels), .below = letter }
#define SCALE(function)                                                                                                \
    {                                                                                                                  \
        "gradient_scale", "1", FL_OPTIONAL | FL_LATE_VALUE, FL_CLASS_F64, FL_AT(p.loss.gradient_scale),                \
            .what = function ": gradient_scale"                                                                        \
    }
#define WEIGHTS                                                                                                        \
    { "class_weights", "C", FL_OPTIONAL, FL_CLASS_F64, FL_AT(p.loss.class_weights) }

static const struct fl_operand entropy_operands[] = {LOSS,
                                                     {"dx", "NC", FL_OPTIONAL},
                                                     PREDICTED,
                                                     {"correct", "1", FL_OPTIONAL, FL_CLASS_I32, FL_AT(p.loss.correct)},
                                                     X("NC"),
                                                     LABELS('C'),
                                                     SCALE("cross_entropy"),
                                                     WEIGHTS};
static const struct fl_operand targets_operands[] = {LOSS,
                                                     {"dx", "NC", FL_OPTIONAL},
                                                     PREDICTED,
                                                     X("NC"),
                                                     {"targets", "NC", FL_IN_PLACE, FL_CLASS_TARGETS},
                                                     SCALE("cross_entropy_targets"),
                                                     WEIGHTS};
#define ERROR_OPERANDS(function)                                                                                       \
    { LOSS, {"dx", "NC*", FL_OPTIONAL}, X("NC*"), {"targets", "NC*", FL_IN_PLACE, FL_CLASS_TARGETS}, SCALE(function) }
static const struct fl_operand squared_operands[] = ERROR_OPERANDS("squared_error");
static const struct fl_operand huber_operands[] = ERROR_OPERANDS("huber");
static const struct fl_operand critic_operands[] = {
    LOSS, {"dx", "NC*", FL_OPTIONAL}, X("NC*"), LABELS('2'), SCALE("wasserstein")};

#define NUMBER                                                                                                         \
    { "gradient_scale", FL_REAL64, .at = FL_AT(p.loss.gradient_scale) }
#define SMOOTHING                                                                                                      \
    { "label_smoothing", FL_REAL32, 0, 1, .at = FL_AT(p.loss.smoothing) }
static const struct fl_scalar_rule label_scalars[] = {
    NUMBER, {"ignored_label", FL_INT32}, {"ignores", FL_BOOL}, SMOOTHING};
static const struct fl_scalar_rule target_scalars[] = {NUMBER, SMOOTHING};
static const struct fl_scalar_rule huber_scalars[] = {NUMBER,
                                                      {"delta", FL_REAL32, .above = true, .at = FL_AT(p.loss.delta)}};

const struct fl_function fl_function_cross_entropy = {.name = "cross_entropy",
                                                      .op = FL_OP_SOFTMAX_CROSS_ENTROPY,
                                                      .outputs = 4,
                                                      FL_OPERANDS_OF(entropy_operands),
                                                      FL_SCALARS_OF(label_scalars),
                                                      .derive = derive,
                                                      .prepare = prepare_labels,
                                                      .run = run_entropy};
const struct fl_function fl_function_cross_entropy_targets = {.name = "cross_entropy_targets",
                                                              .op = FL_OP_CROSS_ENTROPY_TARGETS,
                                                              .outputs = 3,
                                                              FL_OPERANDS_OF(targets_operands),
                                                              FL_SCALARS_OF(target_scalars),
                                                              .derive = derive,
                                                              .prepare = prepare_targets,
                                                              .run = run_targets};
const struct fl_function fl_function_squared_error = {.name = "squared_error",
                                                      .op = FL_OP_SQUARED_ERROR,
                                                      .outputs = 2,
                                                      FL_OPERANDS_OF(squared_operands),
                                                      .scalar_count = 1, /* without smoothing */
                                                      .scalars = target_scalars,
                                                      .prepare = prepare_targets,
                                                      .run = run_targets};
const struct fl_function fl_function_huber = {.name = "huber",
                                              .op = FL_OP_HUBER,
                                              .outputs = 2,
                                              FL_OPERANDS_OF(huber_operands),
                                              FL_SCALARS_OF(huber_scalars),
                                              .prepare = prepare_targets,
                                              .run = run_targets};
const struct fl_function fl_function_wasserstein = {.name = "wasserstein",
                                                    .op = FL_OP_WASSERSTEIN,
                                                    .outputs = 2,
                                                    FL_OPERANDS_OF(critic_operands),
                                                    .scalar_count = 3, /* without smoothing */
                                                    .scalars = label_scalars,
                                                    .prepare = prepare_labels,
                                                    .run = run_labels};

/* --- operations --------------------------------------------------------------------------------------------------- */

#define GRADIENT                                                                                                       \
    { "gradient", "NC", FL_OPTIONAL, FL_CLASS_F64, FL_AT(p.loss.gradient) }
static const struct fl_operand of_labels[] = {LOSS,
                                              GRADIENT,
                                              PREDICTED,
                                              {"correct", "1", FL_OPTIONAL, FL_CLASS_I32, FL_AT(p.loss.correct)},
                                              {"x", "NC", .at = FL_AT(in[0])},
                                              LABELS('C'),
                                              WEIGHTS};

static struct fl_any_kernels find_softmax(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    (void)format;
    (void)op;
    return (struct fl_any_kernels){fl_softmax_kernel(backend), fl_softmax_need};
}
static struct fl_any_kernels find_entropy(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    (void)format;
    (void)op;
    return fl_entropy_any(backend);
}

#define OPERATION(OP, of_name, kernel, bytes, ...)                                                                     \
    const struct fl_operation fl_operation_##of_name = {.op = FL_OP_##OP,                                              \
                                                        .promise = FL_PROMISE_DOUBLE,                                  \
                                                        .gradient = "its own",                                         \
                                                        .reference = {kernel, bytes},                                  \
                                                        __VA_ARGS__}
OPERATION(SOFTMAX_CROSS_ENTROPY, softmax_cross_entropy, fl_softmax_ref, fl_softmax_need, .operand_count = 6,
          /* without weights */ .operands = of_labels, .find = find_softmax);
OPERATION(CROSS_ENTROPY_WITH, cross_entropy_with, fl_entropy_ref, fl_entropy_need, FL_OPERANDS_OF(of_labels),
          .find = find_entropy);
OPERATION(CROSS_ENTROPY_TARGETS, cross_entropy_targets, fl_entropy_ref, fl_entropy_need, .find = find_entropy);
OPERATION(SQUARED_ERROR, squared_error, fl_error_losses, fl_error_losses_need, );
OPERATION(HUBER, huber, fl_error_losses, fl_error_losses_need, );
OPERATION(WASSERSTEIN, wasserstein, fl_critic_losses, NULL, );

/* --- the public functions ----------------------------------------------------------------------------------------- */

/* The options with their defaults. */
static tensor_loss_options options_of(const tensor_loss_options *how) {
    tensor_loss_options ours = how ? *how : (tensor_loss_options){.ignores = false};
    if (ours.gradient_scale == 0)
        ours.gradient_scale = 1;
    return ours;
}

/* Options that a loss does not have must not be set. */
static tensor_status check_no_label(const char *name, const tensor_loss_options *how) {
    return how->ignores
               ? fl_fail(TENSOR_E_ARGUMENT, "%s: ignores label %d, expected no ignored label", name, how->ignored_label)
               : TENSOR_OK;
}

static tensor_status check_no_classes(const char *name, const tensor_loss_options *how) {
    if (how->label_smoothing != 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: label_smoothing is %g, expected 0", name, (double)how->label_smoothing);
    return how->class_weights ? fl_fail(TENSOR_E_ARGUMENT, "%s: class_weights is given, expected NULL", name)
                              : TENSOR_OK;
}

tensor_status tensor_cross_entropy(tensor *loss, tensor *dx, tensor *predicted, tensor *correct, const tensor *x,
                                   const tensor *labels, const tensor_loss_options *how) {
    const tensor_loss_options o = options_of(how);
    return FL_INVOKE(
        cross_entropy, FL_GIVEN(loss, dx, predicted, correct, x, labels, o.gradient_scale_tensor, o.class_weights),
        FL_REAL(o.gradient_scale), FL_INTEGER(o.ignored_label), FL_INTEGER(o.ignores), FL_REAL(o.label_smoothing));
}

tensor_status tensor_cross_entropy_targets(tensor *loss, tensor *dx, tensor *predicted, const tensor *x,
                                           const tensor *targets, const tensor_loss_options *how) {
    const tensor_loss_options o = options_of(how);
    TRY(check_no_label("cross_entropy_targets", &o));
    return FL_INVOKE(cross_entropy_targets,
                     FL_GIVEN(loss, dx, predicted, x, targets, o.gradient_scale_tensor, o.class_weights),
                     FL_REAL(o.gradient_scale), FL_REAL(o.label_smoothing));
}

tensor_status tensor_squared_error(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                   const tensor_loss_options *how) {
    const tensor_loss_options o = options_of(how);
    TRY(check_no_label("squared_error", &o));
    TRY(check_no_classes("squared_error", &o));
    return FL_INVOKE(squared_error, FL_GIVEN(loss, dx, x, targets, o.gradient_scale_tensor), FL_REAL(o.gradient_scale));
}

tensor_status tensor_huber(tensor *loss, tensor *dx, const tensor *x, const tensor *targets, float delta,
                           const tensor_loss_options *how) {
    const tensor_loss_options o = options_of(how);
    TRY(check_no_label("huber", &o));
    TRY(check_no_classes("huber", &o));
    return FL_INVOKE(huber, FL_GIVEN(loss, dx, x, targets, o.gradient_scale_tensor), FL_REAL(o.gradient_scale),
                     FL_REAL(delta));
}

tensor_status tensor_wasserstein(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                 const tensor_loss_options *how) {
    const tensor_loss_options o = options_of(how);
    TRY(check_no_classes("wasserstein", &o));
    return FL_INVOKE(wasserstein, FL_GIVEN(loss, dx, x, labels, o.gradient_scale_tensor), FL_REAL(o.gradient_scale),
                     FL_INTEGER(o.ignored_label), FL_INTEGER(o.ignores));
}
