/* convolutions.c - convolutions and transposed convolutions as operations, of images and of sequences.
 *
 * A transposed convolution is the input gradient of a convolution, read the other way: its y is the image of that
 * convolution, its x the result. So each of its three operations is one of those three, and there is no other kernel.
 *
 * Sizes by letter: images [N, H, W, C], filters [K, R, S, D] of D = C / groups channels, results [N, P, Q, K];
 * sequences are images of height 1. */
#include "core/base/fail.h"
#include "core/ops/products/products.h"
#include "core/ops/windows/windows.h"
#include "core/reference/ref.h"

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* Convolutions: the result follows from the image, and the depth of the filters from the groups. */
static bool derive_result(const struct fl_windows_given *v, struct fl_sizes *z, bool quiet) {
    char size[FL_NUMBERS_TEXT], text[FL_NUMBERS_TEXT], covered[FL_NUMBERS_TEXT], image[FL_NUMBERS_TEXT],
        padding[FL_NUMBERS_TEXT];
    const int64_t h = FL_SIZE(z, 'H'), w = FL_SIZE(z, 'W'), c = FL_SIZE(z, 'C'), k = FL_SIZE(z, 'K'),
                  r = FL_SIZE(z, 'R'), s = FL_SIZE(z, 'S');
    const int groups = v->how.groups;
    if (c % groups || k % groups) {
        if (!quiet)
            fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups do not divide %lld %s", v->name, groups,
                    (long long)(c % groups ? c : k), c % groups ? "channels" : "filters");
        return false;
    }
    FL_SIZE(z, 'D') = c / groups;
    FL_SIZE(z, 'P') = fl_window_count(v, 0, h, r);
    FL_SIZE(z, 'Q') = fl_window_count(v, 1, w, s);
    if (FL_SIZE(z, 'P') > 0 && FL_SIZE(z, 'Q') > 0)
        return true;
    if (!quiet)
        fl_fail(TENSOR_E_SHAPE,
                "%s: a %s filter with dilation %s covers %s pixels and does not fit a %s image with padding %s",
                v->name, fl_size_text(size, v->dims, r, s), fl_steps_text(text, v->dims, v->how.dilation),
                fl_size_text(covered, v->dims, fl_window_reach(v, 0, r), fl_window_reach(v, 1, s)),
                fl_size_text(image, v->dims, h, w), fl_padding_text(padding, v->dims, v->how.padding));
    return false;
}

/* Transposed convolutions: the image follows from the result, and its channels from the groups. */
static bool derive_image(const struct fl_windows_given *v, struct fl_sizes *z, bool quiet) {
    const int *more = v->how.output_padding, *stride = v->how.stride, *padding = v->how.padding;
    char text[FL_NUMBERS_TEXT], other[FL_NUMBERS_TEXT], from[FL_NUMBERS_TEXT];
    const int64_t p = FL_SIZE(z, 'P'), q = FL_SIZE(z, 'Q'), k = FL_SIZE(z, 'K');
    if (more[0] >= stride[0] || more[1] >= stride[1]) {
        if (!quiet)
            fl_fail(TENSOR_E_ARGUMENT, "%s: output padding %s, expected 0 or more and less than the stride %s", v->name,
                    fl_steps_text(text, v->dims, more), fl_steps_text(other, v->dims, stride));
        return false;
    }
    if (k % v->how.groups) {
        if (!quiet)
            fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups do not divide %lld filters", v->name, v->how.groups,
                    (long long)k);
        return false;
    }
    const int64_t h = (p - 1) * stride[0] + fl_window_reach(v, 0, FL_SIZE(z, 'R')) + more[0],
                  w = (q - 1) * stride[1] + fl_window_reach(v, 1, FL_SIZE(z, 'S')) + more[1];
    FL_SIZE(z, 'H') = h - padding[0] - padding[1];
    FL_SIZE(z, 'W') = w - padding[2] - padding[3];
    FL_SIZE(z, 'C') = FL_SIZE(z, 'D') * v->how.groups;
    if (FL_SIZE(z, 'H') > 0 && FL_SIZE(z, 'W') > 0)
        return true;
    if (!quiet)
        fl_fail(TENSOR_E_SHAPE, "%s: padding %s leaves nothing of the %s pixels that %s pixels reach", v->name,
                fl_padding_text(text, v->dims, padding), fl_size_text(other, v->dims, h, w),
                fl_size_text(from, v->dims, p, q));
    return false;
}

static const struct fl_window_layout conv2d_layout = {2, FL_CONVOLUTION}, conv1d_layout = {1, FL_CONVOLUTION},
                                     conv_transpose2d_layout = {2, FL_TRANSPOSED},
                                     conv_transpose1d_layout = {1, FL_TRANSPOSED};

/* flat: for sequences, whose heights are 1. */
#define DERIVE(name, flat, from)                                                                                       \
    static bool derive_##name(struct fl_sizes *sizes, const union fl_value *scalars, const char *function,             \
                              bool quiet) {                                                                            \
        const struct fl_windows_given v = fl_windows_given(name##_layout, scalars, function);                          \
        if (flat)                                                                                                      \
            FL_SIZE(sizes, 'H') = FL_SIZE(sizes, 'R') = FL_SIZE(sizes, 'P') = 1;                                       \
        return from(&v, sizes, quiet);                                                                                 \
    }
DERIVE(conv2d, false, derive_result)
DERIVE(conv1d, true, derive_result)
DERIVE(conv_transpose2d, false, derive_image)
DERIVE(conv_transpose1d, true, derive_image)

/* Beside the scalars, which stand there; sequences have no steps down. */
static void prepare(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    struct fl_windows *g = &args->p.product.windows;
    g->batch = FL_SIZE(sizes, 'N');
    g->h = FL_SIZE(sizes, 'H');
    g->w = FL_SIZE(sizes, 'W');
    g->c = FL_SIZE(sizes, 'C');
    g->p = FL_SIZE(sizes, 'P');
    g->q = FL_SIZE(sizes, 'Q');
    g->filters = FL_SIZE(sizes, 'K');
    g->r = FL_SIZE(sizes, 'R');
    g->s = FL_SIZE(sizes, 'S');
    g->stride[0] = g->stride[0] ? g->stride[0] : 1;
    g->dilation[0] = g->dilation[0] ? g->dilation[0] : 1;
}

/* --- the objects -------------------------------------------------------------------------------------------------- */

#define OUT(name, shape)                                                                                               \
    { name, shape, .class = FL_CLASS_ANY }
#define IN(name, shape, i)                                                                                             \
    { name, shape, FL_FACTOR(i) }
/* Operands of a convolution and its gradients, of shapes of images, filters and results. The scalar relu, and the last
 * two operands, are there where something joins the sums. */
#define CONVOLUTION(name, image, filters, result, ...)                                                                 \
    static const struct fl_operand name##_operands[] = {OUT("y", result), IN("x", image, 0), IN("w", filters, 1),      \
                                                        FL_JOINED("K", result)};                                       \
    static const struct fl_operand name##_input_grad_operands[] = {OUT("dx", image), IN("dy", result, 0),              \
                                                                   IN("w", filters, 1), FL_JOINED("C", image)};        \
    static const struct fl_operand name##_weight_grad_operands[] = {OUT("dw", filters), IN("dy", result, 0),           \
                                                                    IN("x", image, 1)};                                \
    static const struct fl_scalar_rule name##_scalars[] = {__VA_ARGS__, FL_RELU}
#define TRANSPOSED(name, image, filters, result, ...)                                                                  \
    static const struct fl_operand name##_operands[] = {OUT("y", image), IN("x", result, 0), IN("w", filters, 1),      \
                                                        FL_JOINED("C", image)};                                        \
    static const struct fl_operand name##_input_grad_operands[] = {OUT("dx", result), IN("dy", image, 0),              \
                                                                   IN("w", filters, 1)};                               \
    static const struct fl_operand name##_weight_grad_operands[] = {OUT("dw", filters), IN("dy", image, 1),            \
                                                                    IN("x", result, 0)};                               \
    static const struct fl_scalar_rule name##_scalars[] = {__VA_ARGS__, FL_RELU}
#define PLACE p.product.windows
CONVOLUTION(conv2d, "NHWC", "KRSD", "NPQK", FL_STEPS_2D(PLACE), FL_DILATION_2D(PLACE), FL_GROUPS(PLACE));
CONVOLUTION(conv1d, "NWC", "KSD", "NQK", FL_STEPS_1D(PLACE), FL_DILATION_1D(PLACE), FL_GROUPS(PLACE));
TRANSPOSED(conv_transpose2d, "NHWC", "KRSD", "NPQK", FL_STEPS_2D(PLACE), FL_DILATION_2D(PLACE), FL_GROUPS(PLACE),
           FL_OUTPUT_PADDING_2D);
TRANSPOSED(conv_transpose1d, "NWC", "KSD", "NQK", FL_STEPS_1D(PLACE), FL_DILATION_1D(PLACE), FL_GROUPS(PLACE),
           FL_OUTPUT_PADDING_1D);

#define OPERATION(OP, name, of_gradient)                                                                               \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_EXACT,                                      \
                                                     .gradient = of_gradient,                                          \
                                                     .reference = {fl_ref_conv, fl_ref_bytes},                         \
                                                     FL_OPERANDS_OF(name##_operands)}
OPERATION(CONV2D, conv2d, "conv2d_input_grad, conv2d_weight_grad");
OPERATION(CONV2D_INPUT_GRAD, conv2d_input_grad, "conv2d, conv2d_weight_grad");
OPERATION(CONV2D_WEIGHT_GRAD, conv2d_weight_grad, NULL);

#define FUNCTION(text, OP, table, count, with, like, letters)                                                          \
    const struct fl_function fl_function_##text = {                                                                    \
        .name = #text,                                                                                                 \
        .op = FL_OP_##OP,                                                                                              \
        .outputs = 1,                                                                                                  \
        .operand_count = count,                                                                                        \
        .operands = table##_operands,                                                                                  \
        .scalar_count = (int)(sizeof like##_scalars / sizeof like##_scalars[0]) - 1 + (with),                          \
        .scalars = like##_scalars,                                                                                     \
        .derived = letters,                                                                                            \
        .derive = derive_##like,                                                                                       \
        .prepare = prepare,                                                                                            \
        .run = fl_run_product}
/* The public functions of one convolution: without and with an epilogue, and the gradients. */
#define FUNCTIONS(name, FORWARD, INPUT, letters)                                                                       \
    FUNCTION(name, FORWARD, name, 3, 0, name, letters);                                                                \
    FUNCTION(name##_fused, FORWARD, name, 5, 1, name, letters);                                                        \
    FUNCTION(name##_input_grad, INPUT, name##_input_grad, 3, 0, name, letters);                                        \
    FUNCTION(name##_weight_grad, CONV2D_WEIGHT_GRAD, name##_weight_grad, 3, 0, name, letters)
FUNCTIONS(conv2d, CONV2D, CONV2D_INPUT_GRAD, "PQD");
FUNCTIONS(conv1d, CONV2D, CONV2D_INPUT_GRAD, "QD");
FUNCTIONS(conv_transpose2d, CONV2D_INPUT_GRAD, CONV2D, "HWC");
FUNCTIONS(conv_transpose1d, CONV2D_INPUT_GRAD, CONV2D, "WC");

/* --- the public functions ----------------------------------------------------------------------------------------- */

#define CONVOLUTION_FUNCTIONS(name)                                                                                    \
    tensor_status tensor_##name(tensor *y, const tensor *x, const tensor *w, const tensor_window *how) {               \
        return fl_invoke_windows(&fl_function_##name, name##_layout, FL_GIVEN(y, x, w), how, w, false);                \
    }                                                                                                                  \
    tensor_status tensor_##name##_fused(tensor *y, const tensor *x, const tensor *w, const tensor_window *how,         \
                                        const tensor_epilogue *with) {                                                 \
        const tensor_epilogue e = with ? *with : (tensor_epilogue){.relu = false};                                     \
        return fl_invoke_windows(&fl_function_##name##_fused, name##_layout, FL_GIVEN(y, x, w, e.bias, e.residual),    \
                                 how, w, e.relu);                                                                      \
    }                                                                                                                  \
    tensor_status tensor_##name##_input_grad(tensor *dx, const tensor *dy, const tensor *w,                            \
                                             const tensor_window *how) {                                               \
        return fl_invoke_windows(&fl_function_##name##_input_grad, name##_layout, FL_GIVEN(dx, dy, w), how, w, false); \
    }                                                                                                                  \
    tensor_status tensor_##name##_weight_grad(tensor *dw, const tensor *dy, const tensor *x,                           \
                                              const tensor_window *how) {                                              \
        return fl_invoke_windows(&fl_function_##name##_weight_grad, name##_layout, FL_GIVEN(dw, dy, x), how, dw,       \
                                 false);                                                                               \
    }
CONVOLUTION_FUNCTIONS(conv2d)
CONVOLUTION_FUNCTIONS(conv1d)
CONVOLUTION_FUNCTIONS(conv_transpose2d)
CONVOLUTION_FUNCTIONS(conv_transpose1d)
