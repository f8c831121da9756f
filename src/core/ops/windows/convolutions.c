/* convolutions.c - convolutions and transposed convolutions as operations, of images and of sequences.
 *
 * A transposed convolution is the input gradient of a convolution, read the other way: its y is the image of that
 * convolution, its x the result. So each of its three operations is one of those three, and there is no other kernel.
 *
 * Sizes by letter: images [n, h, w, c], filters [k, r, s, d] of d = c / groups channels, results [n, p, q, k];
 * sequences are images of height 1. */
#include "core/base/fail.h"
#include "core/base/sized.h"
#include "core/ops/products/products.h"
#include "core/ops/windows/windows.h"
#include "core/reference/ref.h"

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* Of a convolution the result follows from the image, and the depth of the filters from the groups. */
static bool derive_result(const struct fl_windows_given *v, struct fl_sizes *z, bool quiet) {
    char size[FL_NUMBERS_TEXT], text[FL_NUMBERS_TEXT], covered[FL_NUMBERS_TEXT], image[FL_NUMBERS_TEXT],
        padding[FL_NUMBERS_TEXT];
    const int64_t h = FL_SIZE(z, 'h'), w = FL_SIZE(z, 'w'), c = FL_SIZE(z, 'c'), k = FL_SIZE(z, 'k'),
                  r = FL_SIZE(z, 'r'), s = FL_SIZE(z, 's');
    const int groups = v->how.groups;
    if (c % groups || k % groups) {
        if (!quiet)
            fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups do not divide %lld %s", v->name, groups,
                    (long long)(c % groups ? c : k), c % groups ? "channels" : "filters");
        return false;
    }
    FL_SIZE(z, 'd') = c / groups;
    FL_SIZE(z, 'p') = fl_window_count(v, 0, h, r);
    FL_SIZE(z, 'q') = fl_window_count(v, 1, w, s);
    if (FL_SIZE(z, 'p') > 0 && FL_SIZE(z, 'q') > 0)
        return true;
    if (!quiet)
        fl_fail(TENSOR_E_SHAPE,
                "%s: a %s filter with dilation %s covers %s pixels and does not fit a %s image with padding %s",
                v->name, fl_size_text(size, v->dims, r, s), fl_steps_text(text, v->dims, v->how.dilation),
                fl_size_text(covered, v->dims, fl_window_reach(v, 0, r), fl_window_reach(v, 1, s)),
                fl_size_text(image, v->dims, h, w), fl_padding_text(padding, v->dims, v->how.padding));
    return false;
}

/* Of a transposed one the image follows from the result, and its channels from the groups. */
static bool derive_image(const struct fl_windows_given *v, struct fl_sizes *z, bool quiet) {
    const int *more = v->how.output_padding, *stride = v->how.stride, *padding = v->how.padding;
    char text[FL_NUMBERS_TEXT], other[FL_NUMBERS_TEXT], from[FL_NUMBERS_TEXT];
    const int64_t p = FL_SIZE(z, 'p'), q = FL_SIZE(z, 'q'), k = FL_SIZE(z, 'k');
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
    const int64_t h = (p - 1) * stride[0] + fl_window_reach(v, 0, FL_SIZE(z, 'r')) + more[0],
                  w = (q - 1) * stride[1] + fl_window_reach(v, 1, FL_SIZE(z, 's')) + more[1];
    FL_SIZE(z, 'h') = h - padding[0] - padding[1];
    FL_SIZE(z, 'w') = w - padding[2] - padding[3];
    FL_SIZE(z, 'c') = FL_SIZE(z, 'd') * v->how.groups;
    if (FL_SIZE(z, 'h') > 0 && FL_SIZE(z, 'w') > 0)
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

/* Of sequences, all heights are 1. */
#define DERIVE(name, flat, from)                                                                                       \
    static bool derive_##name(struct fl_sizes *sizes, const union fl_value *scalars, const char *function,             \
                              bool quiet) {                                                                            \
        const struct fl_windows_given v = fl_windows_given(name##_layout, scalars, function);                          \
        if (flat)                                                                                                      \
            FL_SIZE(sizes, 'h') = FL_SIZE(sizes, 'r') = FL_SIZE(sizes, 'p') = 1;                                       \
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
    g->batch = FL_SIZE(sizes, 'n');
    g->h = FL_SIZE(sizes, 'h');
    g->w = FL_SIZE(sizes, 'w');
    g->c = FL_SIZE(sizes, 'c');
    g->p = FL_SIZE(sizes, 'p');
    g->q = FL_SIZE(sizes, 'q');
    g->filters = FL_SIZE(sizes, 'k');
    g->r = FL_SIZE(sizes, 'r');
    g->s = FL_SIZE(sizes, 's');
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
                                                        FL_JOINED("k", result)};                                       \
    static const struct fl_operand name##_input_grad_operands[] = {OUT("dx", image), IN("dy", result, 0),              \
                                                                   IN("w", filters, 1), FL_JOINED("c", image)};        \
    static const struct fl_operand name##_weight_grad_operands[] = {OUT("dw", filters), IN("dy", result, 0),           \
                                                                    IN("x", image, 1)};                                \
    static const struct fl_scalar_rule name##_scalars[] = {__VA_ARGS__, FL_RELU}
#define TRANSPOSED(name, image, filters, result, ...)                                                                  \
    static const struct fl_operand name##_operands[] = {OUT("y", image), IN("x", result, 0), IN("w", filters, 1),      \
                                                        FL_JOINED("c", image)};                                        \
    static const struct fl_operand name##_input_grad_operands[] = {OUT("dx", result), IN("dy", image, 0),              \
                                                                   IN("w", filters, 1)};                               \
    static const struct fl_operand name##_weight_grad_operands[] = {OUT("dw", filters), IN("dy", image, 1),            \
                                                                    IN("x", result, 0)};                               \
    static const struct fl_scalar_rule name##_scalars[] = {__VA_ARGS__, FL_RELU}
#define PLACE p.product.windows
CONVOLUTION(conv2d, "nhwc", "krsd", "npqk", FL_STEPS_2D(PLACE), FL_DILATION_2D(PLACE), FL_GROUPS(PLACE));
CONVOLUTION(conv1d, "nwc", "ksd", "nqk", FL_STEPS_1D(PLACE), FL_DILATION_1D(PLACE), FL_GROUPS(PLACE));
TRANSPOSED(conv_transpose2d, "nhwc", "krsd", "npqk", FL_STEPS_2D(PLACE), FL_DILATION_2D(PLACE), FL_GROUPS(PLACE),
           FL_OUTPUT_PADDING_2D);
TRANSPOSED(conv_transpose1d, "nwc", "ksd", "nqk", FL_STEPS_1D(PLACE), FL_DILATION_1D(PLACE), FL_GROUPS(PLACE),
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
/* The functions of a name: without what joins the sums, and with it, and the gradients. */
#define FUNCTIONS(name, FORWARD, INPUT, letters)                                                                       \
    FUNCTION(name, FORWARD, name, 3, 0, name, letters);                                                                \
    FUNCTION(name##_fused, FORWARD, name, 5, 1, name, letters);                                                        \
    FUNCTION(name##_input_grad, INPUT, name##_input_grad, 3, 0, name, letters);                                        \
    FUNCTION(name##_weight_grad, CONV2D_WEIGHT_GRAD, name##_weight_grad, 3, 0, name, letters)
FUNCTIONS(conv2d, CONV2D, CONV2D_INPUT_GRAD, "pqd");
FUNCTIONS(conv1d, CONV2D, CONV2D_INPUT_GRAD, "qd");
FUNCTIONS(conv_transpose2d, CONV2D_INPUT_GRAD, CONV2D, "hwc");
FUNCTIONS(conv_transpose1d, CONV2D_INPUT_GRAD, CONV2D, "wc");

/* --- the public functions ----------------------------------------------------------------------------------------- */

static tensor_window2d symmetric(tensor_window how) {
    const int p = how.padding, d = how.dilation;
    return (tensor_window2d){
        .stride = {how.stride, how.stride}, .padding = {p, p, p, p}, .dilation = {d, d}, .groups = how.groups};
}
static tensor_window2d flat(tensor_window1d how) {
    return (tensor_window2d){.window = {how.window ? 1 : 0, how.window},
                             .stride = {1, how.stride},
                             .padding = {0, 0, how.padding[0], how.padding[1]},
                             .dilation = {1, how.dilation},
                             .groups = how.groups,
                             .output_padding = {0, how.output_padding}};
}

tensor_status tensor_conv2d(tensor *y, const tensor *x, const tensor *w, tensor_window how) {
    const tensor_window2d all = symmetric(how);
    return fl_invoke_windows(&fl_function_conv2d, conv2d_layout, FL_GIVEN(y, x, w), &all, w, false);
}
tensor_status tensor_conv2d_fused_sized(tensor *y, const tensor *x, const tensor *w, tensor_window how,
                                        const tensor_epilogue *with, size_t with_size) {
    tensor_epilogue e = {.relu = false};
    const tensor_window2d all = symmetric(how);
    const tensor_status status =
        with ? fl_take_sized(&e, sizeof e, with, with_size, "conv2d_fused: tensor_epilogue") : TENSOR_OK;
    return status ? status
                  : fl_invoke_windows(&fl_function_conv2d_fused, conv2d_layout, FL_GIVEN(y, x, w, e.bias, e.residual),
                                      &all, w, e.relu);
}
tensor_status tensor_conv2d_input_grad(tensor *dx, const tensor *dy, const tensor *w, tensor_window how) {
    const tensor_window2d all = symmetric(how);
    return fl_invoke_windows(&fl_function_conv2d_input_grad, conv2d_layout, FL_GIVEN(dx, dy, w), &all, w, false);
}
tensor_status tensor_conv2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x, tensor_window how) {
    const tensor_window2d all = symmetric(how);
    return fl_invoke_windows(&fl_function_conv2d_weight_grad, conv2d_layout, FL_GIVEN(dw, dy, x), &all, dw, false);
}

#define SAME(how) (how)
#define TAKE_STRUCTS(like, text, dims)                                                                                 \
    tensor_window##dims ours;                                                                                          \
    if (!how)                                                                                                          \
        return fl_fail(TENSOR_E_ARGUMENT, text ": how is NULL");                                                       \
    tensor_status status = fl_take_sized(&ours, sizeof ours, how, how_size, text ": tensor_window" #dims)
#define FUSED(name, like, dims, all)                                                                                   \
    tensor_status tensor_##name##_sized(tensor *y, const tensor *x, const tensor *w, const tensor_window##dims *how,   \
                                        size_t how_size, const tensor_epilogue *with, size_t with_size) {              \
        tensor_epilogue e = {.relu = false};                                                                           \
        TAKE_STRUCTS(like, #name, dims);                                                                               \
        if (!status && with)                                                                                           \
            status = fl_take_sized(&e, sizeof e, with, with_size, #name ": tensor_epilogue");                          \
        if (status)                                                                                                    \
            return status;                                                                                             \
        const tensor_window2d window = all(ours);                                                                      \
        return fl_invoke_windows(&fl_function_##like##_fused, like##_layout, FL_GIVEN(y, x, w, e.bias, e.residual),    \
                                 &window, w, e.relu);                                                                  \
    }
#define GRADIENT(name, like, of, dims, all, filters)                                                                   \
    tensor_status tensor_##name##_sized(tensor *dx, const tensor *dy, const tensor *w, const tensor_window##dims *how, \
                                        size_t how_size) {                                                             \
        TAKE_STRUCTS(like, #name, dims);                                                                               \
        if (status)                                                                                                    \
            return status;                                                                                             \
        const tensor_window2d window = all(ours);                                                                      \
        return fl_invoke_windows(&fl_function_##like##of, like##_layout, FL_GIVEN(dx, dy, w), &window, filters,        \
                                 false);                                                                               \
    }
FUSED(conv2d_with, conv2d, 2d, SAME)
GRADIENT(conv2d_input_grad_with, conv2d, _input_grad, 2d, SAME, w)
GRADIENT(conv2d_weight_grad_with, conv2d, _weight_grad, 2d, SAME, dx)
FUSED(conv_transpose2d, conv_transpose2d, 2d, SAME)
GRADIENT(conv_transpose2d_input_grad, conv_transpose2d, _input_grad, 2d, SAME, w)
GRADIENT(conv_transpose2d_weight_grad, conv_transpose2d, _weight_grad, 2d, SAME, dx)
FUSED(conv1d, conv1d, 1d, flat)
GRADIENT(conv1d_input_grad, conv1d, _input_grad, 1d, flat, w)
GRADIENT(conv1d_weight_grad, conv1d, _weight_grad, 1d, flat, dx)
FUSED(conv_transpose1d, conv_transpose1d, 1d, flat)
GRADIENT(conv_transpose1d_input_grad, conv_transpose1d, _input_grad, 1d, flat, w)
GRADIENT(conv_transpose1d_weight_grad, conv_transpose1d, _weight_grad, 1d, flat, dx)
