/* pooling.c - max and average pooling, and shortcuts, as operations.
 *
 * Sizes by letter: images [N, H, W, C], results [N, P, Q, C]; sequences are images of height 1. */
#include "core/base/fail.h"
#include "core/ops/windows/pool_rules.h"
#include "core/ops/windows/windows.h"
#include "core/reference/ref.h"

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* Whether a window of a direction that begins before the image contains none of its pixels. A window that begins inside
 * contains at least one. */
static bool has_blind_window(const struct fl_windows_given *v, int way, int64_t length, int64_t count) {
    const int64_t stride = v->how.stride[way], dilation = v->how.dilation[way], before = v->how.padding[2 * way];
    for (int64_t i = 0; i < count && i * stride < before; i++) {
        const int64_t outside = before - i * stride;
        if ((outside + dilation - 1) / dilation * dilation - outside >= length)
            return true;
    }
    return false;
}

static bool derive_places(const struct fl_windows_given *v, struct fl_sizes *z, bool quiet) {
    const int *around = v->how.padding, *window = v->how.window;
    char text[FL_NUMBERS_TEXT], other[FL_NUMBERS_TEXT], padding[FL_NUMBERS_TEXT];
    const int64_t down = fl_window_reach(v, 0, window[0]), across = fl_window_reach(v, 1, window[1]),
                  h = FL_SIZE(z, 'H'), w = FL_SIZE(z, 'W'), p = fl_window_count(v, 0, h, window[0]),
                  q = fl_window_count(v, 1, w, window[1]);
    const bool padded = around[0] >= down || around[1] >= down || around[2] >= across || around[3] >= across,
               small = p < 1 || q < 1;
    FL_SIZE(z, 'P') = p;
    FL_SIZE(z, 'Q') = q;
    if (!padded && !small && !has_blind_window(v, 0, h, p) && !has_blind_window(v, 1, w, q))
        return true;
    if (quiet)
        return false;
    if (padded)
        fl_fail(TENSOR_E_ARGUMENT, "%s: padding %s, expected less than the window %s", v->name,
                fl_padding_text(padding, v->dims, around), fl_pair_text(text, v->dims, down, across));
    else if (small)
        fl_fail(TENSOR_E_SHAPE, "%s: a window of %s does not fit a %s image with padding %s", v->name,
                fl_pair_text(text, v->dims, down, across), fl_size_text(other, v->dims, h, w),
                fl_padding_text(padding, v->dims, around));
    else
        fl_fail(TENSOR_E_SHAPE, "%s: a window with dilation %s sees only padding of a %s image", v->name,
                fl_steps_text(text, v->dims, v->how.dilation), fl_size_text(other, v->dims, h, w));
    return false;
}

/* Sets the sizes; the strides and paddings are scalars, and are there already. */
static void put_sizes(struct fl_windows *g, const struct fl_sizes *z, char filters) {
    g->batch = FL_SIZE(z, 'N');
    g->h = FL_SIZE(z, 'H');
    g->w = FL_SIZE(z, 'W');
    g->c = FL_SIZE(z, 'C');
    g->p = FL_SIZE(z, 'P');
    g->q = FL_SIZE(z, 'Q');
    g->filters = FL_SIZE(z, filters);
}

/* --- the largest of each window ----------------------------------------------------------------------------------- */

static const struct fl_window_layout maxpool2d_layout = {2, FL_POOLING}, maxpool1d_layout = {1, FL_POOLING};

static bool derive_maxpool2d(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    const struct fl_windows_given v = fl_windows_given(maxpool2d_layout, scalars, name);
    return derive_places(&v, sizes, quiet);
}
static bool derive_maxpool1d(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    const struct fl_windows_given v = fl_windows_given(maxpool1d_layout, scalars, name);
    FL_SIZE(sizes, 'H') = 1;
    return derive_places(&v, sizes, quiet);
}

static void prepare_windows(struct fl_args *args, const struct fl_sizes *sizes, const struct fl_windows_given *v) {
    struct fl_windows *g = &args->p.pooling.windows;
    put_sizes(g, sizes, 'C');
    for (int way = 0; way < 2; way++) {
        g->stride[way] = v->how.stride[way];
        g->dilation[way] = v->how.dilation[way];
    }
    g->r = v->how.window[0];
    g->s = v->how.window[1];
}
static void prepare_maxpool2d(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    const struct fl_windows_given v = fl_windows_given(maxpool2d_layout, scalars, NULL);
    prepare_windows(args, sizes, &v);
}
static void prepare_maxpool1d(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    const struct fl_windows_given v = fl_windows_given(maxpool1d_layout, scalars, NULL);
    prepare_windows(args, sizes, &v);
}

#define PLACE p.pooling.windows
#define MAXPOOL(name, image, result, ...)                                                                              \
    static const struct fl_operand name##_operands[] = {{"y", result}, {"x", image, .at = FL_AT(in[0])}};              \
    static const struct fl_operand name##_grad_operands[] = {                                                          \
        {"dx", image}, {"dy", result, .at = FL_AT(in[0])}, {"x", image, .at = FL_AT(in[1])}};                          \
    static const struct fl_scalar_rule name##_scalars[] = {__VA_ARGS__}
MAXPOOL(maxpool2d, "NHWC", "NPQC", FL_SIDES_2D, FL_STEPS_2D(PLACE), FL_DILATION_2D(PLACE));
MAXPOOL(maxpool1d, "NWC", "NQC", FL_SIDES_1D, FL_STEPS_1D(PLACE), FL_DILATION_1D(PLACE));

#define OPERATION(OP, name, of_promise, ...)                                                                           \
    const struct fl_operation fl_operation_##name = {                                                                  \
        .op = FL_OP_##OP, .promise = FL_PROMISE_##of_promise, .reference = {__VA_ARGS__, fl_ref_bytes}}
#define FUNCTION(text, OP, table, ...)                                                                                 \
    const struct fl_function fl_function_##text = {                                                                    \
        .name = #text, .op = FL_OP_##OP, .outputs = 1, FL_OPERANDS_OF(table##_operands), __VA_ARGS__}

OPERATION(MAXPOOL2D, maxpool2d, EXACT, fl_ref_maxpool);
OPERATION(MAXPOOL2D_GRAD, maxpool2d_grad, EXACT, fl_ref_maxpool);
#define MAXPOOL_FUNCTION(text, OP, like, letters)                                                                      \
    FUNCTION(text, OP, text, FL_SCALARS_OF(like##_scalars), .derived = letters, .derive = derive_##like,               \
             .prepare = prepare_##like)
MAXPOOL_FUNCTION(maxpool2d, MAXPOOL2D, maxpool2d, "PQ");
MAXPOOL_FUNCTION(maxpool2d_grad, MAXPOOL2D_GRAD, maxpool2d, "PQ");
MAXPOOL_FUNCTION(maxpool1d, MAXPOOL2D, maxpool1d, "Q");
MAXPOOL_FUNCTION(maxpool1d_grad, MAXPOOL2D_GRAD, maxpool1d, "Q");

/* --- means of windows --------------------------------------------------------------------------------------------- */

static const struct fl_window_layout avgpool2d_layout = {2, FL_MEANS};
enum { PADDING_COUNTS = 8 }; /* the scalar after those of the layout */

/* Whether the sums of a gradient have a denominator. */
static bool has_common(const struct fl_pooling *p, const char *name, bool quiet) {
    const struct fl_pool_side down = fl_pool_down(p), across = fl_pool_across(p);
    if ((double)fl_pool_common(&down) * (double)fl_pool_common(&across) <= (double)FL_POOL_DENOMINATOR_LIMIT)
        return true;
    if (!quiet)
        fl_fail(TENSOR_E_ARGUMENT,
                "%s: windows of %lldx%lld pixels divide by counts with a common multiple above 2^48, expected at most "
                "that",
                name, (long long)p->windows.h, (long long)p->windows.w);
    return false;
}
static void put_common(struct fl_pooling *p) {
    const struct fl_pool_side down = fl_pool_down(p), across = fl_pool_across(p);
    p->common[0] = fl_pool_common(&down);
    p->common[1] = fl_pool_common(&across);
}

static struct fl_pooling means_of(const struct fl_sizes *sizes, const union fl_value *scalars) {
    const struct fl_windows_given v = fl_windows_given(avgpool2d_layout, scalars, NULL);
    struct fl_pooling p = {.padding_counts = scalars[PADDING_COUNTS].integer != 0};
    put_sizes(&p.windows, sizes, 'C');
    for (int way = 0; way < 2; way++) {
        p.windows.stride[way] = v.how.stride[way];
        p.windows.padding[way] = v.how.padding[2 * way];
    }
    p.windows.r = v.how.window[0];
    p.windows.s = v.how.window[1];
    return p;
}
static bool derive_means(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    const struct fl_windows_given v = fl_windows_given(avgpool2d_layout, scalars, name);
    return derive_places(&v, sizes, quiet);
}
static bool derive_means_grad(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    if (!derive_means(sizes, scalars, name, quiet))
        return false;
    const struct fl_pooling p = means_of(sizes, scalars);
    return has_common(&p, name, quiet);
}
static void prepare_means(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    args->p.pooling = means_of(sizes, scalars);
}
static void prepare_means_grad(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    args->p.pooling = means_of(sizes, scalars);
    put_common(&args->p.pooling);
}

/* There are as many windows as y has positions. */
static bool derive_adaptive(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    (void)scalars;
    static const char sides[] = "HWPQ";
    for (const char *side = sides; *side; side++)
        if (FL_SIZE(sizes, *side) > TENSOR_WINDOW_LIMIT) {
            if (!quiet)
                fl_fail(TENSOR_E_SHAPE, "%s: a side of %lld pixels, expected at most %d", name,
                        (long long)FL_SIZE(sizes, *side), TENSOR_WINDOW_LIMIT);
            return false;
        }
    return true;
}
static struct fl_pooling adaptive_of(const struct fl_sizes *sizes) {
    struct fl_pooling p = {.padding_counts = false};
    put_sizes(&p.windows, sizes, 'C');
    return p;
}
static bool derive_adaptive_grad(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    if (!derive_adaptive(sizes, scalars, name, quiet))
        return false;
    const struct fl_pooling p = adaptive_of(sizes);
    return has_common(&p, name, quiet);
}
static void prepare_adaptive(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.pooling = adaptive_of(sizes);
}
static void prepare_adaptive_grad(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    prepare_adaptive(args, sizes, scalars);
    put_common(&args->p.pooling);
}

/* Sets the sizes of a pooling with one window. */
static void prepare_global(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.pooling.windows = (struct fl_windows){.batch = FL_SIZE(sizes, 'N'),
                                                  .h = FL_SIZE(sizes, 'H'),
                                                  .w = FL_SIZE(sizes, 'W'),
                                                  .c = FL_SIZE(sizes, 'C'),
                                                  .p = 1,
                                                  .q = 1,
                                                  .filters = FL_SIZE(sizes, 'C')};
}

#define ONE_INPUT(name, out, output, from, input)                                                                      \
    static const struct fl_operand name##_operands[] = {{out, output}, {from, input, .at = FL_AT(in[0])}}
ONE_INPUT(means, "y", "NPQC", "x", "NHWC");
ONE_INPUT(means_grad, "dx", "NHWC", "dy", "NPQC");
ONE_INPUT(global, "y", "NC", "x", "NHWC");
ONE_INPUT(global_grad, "dx", "NHWC", "dy", "NC");
static const struct fl_scalar_rule means_scalars[] = {FL_SIDES_2D, FL_STEPS_2D(PLACE), {"padding_counts", FL_BOOL}};

#define MEANS_OPERATION(OP, name)                                                                                      \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_EXACT,                                      \
                                                     .reference = {fl_ref_avgpool_window, fl_ref_bytes},               \
                                                     .any = fl_avgpool_kernels}
MEANS_OPERATION(AVGPOOL2D, avgpool2d);
MEANS_OPERATION(AVGPOOL2D_GRAD, avgpool2d_grad);
MEANS_OPERATION(AVGPOOL_ADAPTIVE, avgpool_adaptive);
MEANS_OPERATION(AVGPOOL_ADAPTIVE_GRAD, avgpool_adaptive_grad);
OPERATION(AVGPOOL_GLOBAL, avgpool_global, EXACT, fl_ref_avgpool);
OPERATION(AVGPOOL_GLOBAL_GRAD, avgpool_global_grad, EXACT, fl_ref_avgpool);

FUNCTION(avgpool2d, AVGPOOL2D, means, FL_SCALARS_OF(means_scalars), .derived = "PQ", .derive = derive_means,
         .prepare = prepare_means);
FUNCTION(avgpool2d_grad, AVGPOOL2D_GRAD, means_grad, FL_SCALARS_OF(means_scalars), .derived = "PQ",
         .derive = derive_means_grad, .prepare = prepare_means_grad);
FUNCTION(avgpool_adaptive, AVGPOOL_ADAPTIVE, means, .derive = derive_adaptive, .prepare = prepare_adaptive);
FUNCTION(avgpool_adaptive_grad, AVGPOOL_ADAPTIVE_GRAD, means_grad, .derive = derive_adaptive_grad,
         .prepare = prepare_adaptive_grad);
FUNCTION(avgpool_global, AVGPOOL_GLOBAL, global, .prepare = prepare_global);
FUNCTION(avgpool_global_grad, AVGPOOL_GLOBAL_GRAD, global_grad, .prepare = prepare_global);

/* --- shortcuts ---------------------------------------------------------------------------------------------------- */

static bool derive_shortcut(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    const int64_t stride = scalars[0].integer;
    FL_SIZE(sizes, 'P') = (FL_SIZE(sizes, 'H') + stride - 1) / stride;
    FL_SIZE(sizes, 'Q') = (FL_SIZE(sizes, 'W') + stride - 1) / stride;
    if (FL_SIZE(sizes, 'K') >= FL_SIZE(sizes, 'C'))
        return true;
    if (!quiet)
        fl_fail(TENSOR_E_SHAPE, "%s: %lld channels, expected at least the %lld of the image", name,
                (long long)FL_SIZE(sizes, 'K'), (long long)FL_SIZE(sizes, 'C'));
    return false;
}
static void prepare_shortcut(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    put_sizes(&args->p.pooling.windows, sizes, 'K');
    args->p.pooling.windows.stride[1] = args->p.pooling.windows.stride[0];
}

ONE_INPUT(shortcut_a, "y", "NPQK", "x", "NHWC");
ONE_INPUT(shortcut_a_grad, "dx", "NHWC", "dy", "NPQK");
static const struct fl_scalar_rule shortcut_scalars[] = {
    {"stride", FL_INT32, 1, TENSOR_WINDOW_LIMIT, .at = FL_AT(p.pooling.windows.stride[0])}};
OPERATION(SHORTCUT_A, shortcut_a, COPY, fl_ref_shortcut);
OPERATION(SHORTCUT_A_GRAD, shortcut_a_grad, COPY, fl_ref_shortcut);
FUNCTION(shortcut_a, SHORTCUT_A, shortcut_a, FL_SCALARS_OF(shortcut_scalars), .derived = "PQ",
         .derive = derive_shortcut, .prepare = prepare_shortcut);
FUNCTION(shortcut_a_grad, SHORTCUT_A_GRAD, shortcut_a_grad, FL_SCALARS_OF(shortcut_scalars), .derived = "PQ",
         .derive = derive_shortcut, .prepare = prepare_shortcut);

/* --- the public functions ----------------------------------------------------------------------------------------- */

#define MAXPOOL_FUNCTIONS(name)                                                                                        \
    tensor_status tensor_##name(tensor *y, const tensor *x, const tensor_window *how) {                                \
        return fl_invoke_windows(&fl_function_##name, name##_layout, FL_GIVEN(y, x), how, NULL, false);                \
    }                                                                                                                  \
    tensor_status tensor_##name##_grad(tensor *dx, const tensor *dy, const tensor *x, const tensor_window *how) {      \
        return fl_invoke_windows(&fl_function_##name##_grad, name##_layout, FL_GIVEN(dx, dy, x), how, NULL, false);    \
    }
MAXPOOL_FUNCTIONS(maxpool2d)
MAXPOOL_FUNCTIONS(maxpool1d)

tensor_status tensor_avgpool2d(tensor *y, const tensor *x, const tensor_window *how, bool padding_counts) {
    return fl_invoke_windows(&fl_function_avgpool2d, avgpool2d_layout, FL_GIVEN(y, x), how, NULL, padding_counts);
}
tensor_status tensor_avgpool2d_grad(tensor *dx, const tensor *dy, const tensor_window *how, bool padding_counts) {
    return fl_invoke_windows(&fl_function_avgpool2d_grad, avgpool2d_layout, FL_GIVEN(dx, dy), how, NULL,
                             padding_counts);
}
tensor_status tensor_avgpool_adaptive(tensor *y, const tensor *x) {
    return FL_INVOKE_PLAIN(avgpool_adaptive, FL_GIVEN(y, x));
}
tensor_status tensor_avgpool_adaptive_grad(tensor *dx, const tensor *dy) {
    return FL_INVOKE_PLAIN(avgpool_adaptive_grad, FL_GIVEN(dx, dy));
}
tensor_status tensor_avgpool_global(tensor *y, const tensor *x) {
    return FL_INVOKE_PLAIN(avgpool_global, FL_GIVEN(y, x));
}
tensor_status tensor_avgpool_global_grad(tensor *dx, const tensor *dy) {
    return FL_INVOKE_PLAIN(avgpool_global_grad, FL_GIVEN(dx, dy));
}
tensor_status tensor_shortcut_a(tensor *y, const tensor *x, int stride) {
    return FL_INVOKE(shortcut_a, FL_GIVEN(y, x), FL_INTEGER(stride));
}
tensor_status tensor_shortcut_a_grad(tensor *dx, const tensor *dy, int stride) {
    return FL_INVOKE(shortcut_a_grad, FL_GIVEN(dx, dy), FL_INTEGER(stride));
}
