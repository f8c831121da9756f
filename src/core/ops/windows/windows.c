/* windows.c - convolutions, transposed convolutions and max pooling: the public operations, in one and two directions,
 * with their checks; what is symmetric is a case of what is not.
 *
 * A transposed convolution is the input gradient of a convolution, read the other way: its y is the image of that
 * convolution, its x the result. So each of its three operations is one of those three, and there is no other kernel.
 */
#include "core/operations/check_operands.h"
#include "core/operations/epilogue.h"
#include "core/table/mixed.h"
#include "core/base/sized.h"
#include <stdio.h>

/* Windows as an operation takes them: 0 stands no longer for 1. */
struct windows {
    const char *name; /* of the operation */
    int dims;         /* 1: images of height 1, of which callers know nothing */
    int most;         /* the largest stride, padding and dilation */
    tensor_window2d how;
};

enum { NUMBERS_TEXT = 64 };

/* Numbers down and across, of those dimensions, as one where they are the same. */
static const char *pair_text(char to[NUMBERS_TEXT], int dims, int64_t down, int64_t across) {
    if (dims == 1 || down == across)
        snprintf(to, NUMBERS_TEXT, "%lld", (long long)across);
    else
        snprintf(to, NUMBERS_TEXT, "%lldx%lld", (long long)down, (long long)across);
    return to;
}

static const char *steps_text(char to[NUMBERS_TEXT], int dims, const int v[2]) {
    return pair_text(to, dims, v[0], v[1]);
}

/* The same of sizes, where both are told always. */
static const char *size_text(char to[NUMBERS_TEXT], int dims, int64_t down, int64_t across) {
    if (dims == 1)
        return pair_text(to, dims, down, across);
    snprintf(to, NUMBERS_TEXT, "%lldx%lld", (long long)down, (long long)across);
    return to;
}

static const char *padding_text(char to[NUMBERS_TEXT], int dims, const int v[4]) {
    if (v[2] == v[3] && (dims == 1 || (v[0] == v[2] && v[1] == v[2])))
        snprintf(to, NUMBERS_TEXT, "%d", v[2]);
    else if (dims == 1)
        snprintf(to, NUMBERS_TEXT, "%d and %d", v[2], v[3]);
    else
        snprintf(to, NUMBERS_TEXT, "%d, %d, %d, %d", v[0], v[1], v[2], v[3]);
    return to;
}

static int64_t reach(const struct windows *v, int way, int64_t positions) {
    return (positions - 1) * v->how.dilation[way] + 1;
}

/* --- windows of the caller ---------------------------------------------------------------------------------------- */

static bool within(const int *v, int n, int least, int most) {
    for (int i = 0; i < n; i++)
        if (v[i] < least || v[i] > most)
            return false;
    return true;
}

/* Checks what every operation wants of its windows, and puts 1 for 0. */
static tensor_status check_steps(struct windows *v) {
    tensor_window2d *how = &v->how;
    char text[NUMBERS_TEXT];
    if (!within(how->stride, 2, 1, v->most))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: stride %s, expected 1 to %d", v->name,
                       steps_text(text, v->dims, how->stride), v->most);
    if (!within(how->padding, 4, 0, v->most))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: padding %s, expected 0 to %d", v->name,
                       padding_text(text, v->dims, how->padding), v->most);
    if (!how->dilation[0] && !how->dilation[1])
        how->dilation[0] = how->dilation[1] = 1;
    if (!within(how->dilation, 2, 1, v->most))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: dilation %s, expected 1 to %d (0 means 1)", v->name,
                       steps_text(text, v->dims, how->dilation), v->most);
    if (how->groups < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %d groups, expected at least 1 (0 means 1)", v->name, how->groups);
    if (!how->groups)
        how->groups = 1;
    return TENSOR_OK;
}

static tensor_status take_symmetric(struct windows *v, const char *name, tensor_window how) {
    const int p = how.padding, d = how.dilation;
    *v = (struct windows){
        name,
        2,
        TENSOR_WINDOW_STEP_LIMIT,
        {.stride = {how.stride, how.stride}, .padding = {p, p, p, p}, .dilation = {d, d}, .groups = how.groups}};
    return check_steps(v);
}

static tensor_status take_struct(void *ours, size_t size, const char *name, const char *type, const void *given,
                                 size_t given_size) {
    char what[NUMBERS_TEXT];
    if (!given)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: how is NULL", name);
    snprintf(what, sizeof what, "%s: %s", name, type);
    return fl_take_sized(ours, size, given, given_size, what);
}

static tensor_status take_2d(struct windows *v, const char *name, const tensor_window2d *how, size_t size) {
    *v = (struct windows){name, 2, TENSOR_WINDOW2D_STEP_LIMIT, {.groups = 0}};
    TRY(take_struct(&v->how, sizeof v->how, name, "tensor_window2d", how, size));
    return check_steps(v);
}

static tensor_status take_1d(struct windows *v, const char *name, const tensor_window1d *how, size_t size) {
    tensor_window1d ours;
    TRY(take_struct(&ours, sizeof ours, name, "tensor_window1d", how, size));
    *v = (struct windows){name,
                          1,
                          TENSOR_WINDOW2D_STEP_LIMIT,
                          {.window = {ours.window ? 1 : 0, ours.window},
                           .stride = {1, ours.stride},
                           .padding = {0, 0, ours.padding[0], ours.padding[1]},
                           .dilation = {ours.dilation ? 1 : 0, ours.dilation},
                           .groups = ours.groups,
                           .output_padding = {0, ours.output_padding}}};
    return check_steps(v);
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

/* A convolution and the names that its operands have in the call. */
struct convolution {
    struct windows *v;
    bool transposed; /* the image is what a transposed convolution writes */
    enum fl_op op;
    struct operand image, filters, result;
    struct operand out; /* the one of these that is written */
    const tensor *in[2];
};

/* Sizes [N,H,W,C] and [K,R,S,C]; of one direction H and R are 1. */
struct sizes {
    int64_t n, h, w, c;
};

static struct sizes sizes_of(const struct windows *v, const tensor *t) {
    const int64_t *s = t->shape;
    return v->dims == 1 ? (struct sizes){s[0], 1, s[1], s[2]} : (struct sizes){s[0], s[1], s[2], s[3]};
}

static tensor_status check_sizes_are(const struct windows *v, struct operand o, struct sizes s) {
    return v->dims == 1 ? check_shape_is(v->name, o, 3, (int64_t[]){s.n, s.w, s.c})
                        : check_shape_is(v->name, o, 4, (int64_t[]){s.n, s.h, s.w, s.c});
}

static tensor_status check_layout(const struct windows *v, struct operand o, bool filters) {
    const char *layouts[2][2] = {{"[N,L,C]", "[N,H,W,C]"}, {"[K,S,C]", "[K,R,S,C]"}};
    return check_ndim(v->name, o, v->dims + 2, layouts[filters][v->dims - 1]);
}

/* Channels and filters fall into groups, and a filter has the channels of its group. */
static tensor_status check_groups(const struct windows *v, struct operand x, struct operand w) {
    const int groups = v->how.groups;
    const int64_t channels = last_dim(x.t), filters = w.t->shape[0], depth = last_dim(w.t);
    char tx[TENSOR_TEXT], tw[TENSOR_TEXT];
    if (channels % groups || filters % groups)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %s, %s is %s: %d groups do not divide %lld %s", v->name, x.name,
                       fl_shape_text(x.t, tx), w.name, fl_shape_text(w.t, tw), groups,
                       (long long)(channels % groups ? channels : filters), channels % groups ? "channels" : "filters");
    if (depth != channels / groups)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, %s is %s: channels %lld and %lld differ%s", v->name, x.name,
                       fl_shape_text(x.t, tx), w.name, fl_shape_text(w.t, tw), (long long)(channels / groups),
                       (long long)depth, groups > 1 ? " (of a group)" : "");
    return TENSOR_OK;
}

/* Places of a window on `length` elements and their padding; 0 if it does not fit. */
static int64_t positions(const struct windows *v, int way, int64_t length, int64_t size) {
    const int *padding = v->how.padding + 2 * way;
    const int64_t room = length + padding[0] + padding[1] - reach(v, way, size);
    return room < 0 ? 0 : room / v->how.stride[way] + 1;
}

/* Sizes of a convolution: those of the result follow from the image. */
static tensor_status check_result(const struct convolution *c) {
    const struct windows *v = c->v;
    const struct sizes x = sizes_of(v, c->image.t), w = sizes_of(v, c->filters.t);
    char size[NUMBERS_TEXT], text[NUMBERS_TEXT], covered[NUMBERS_TEXT], image[NUMBERS_TEXT], padding[NUMBERS_TEXT];
    if (!within(v->how.output_padding, 2, 0, 0))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: output padding %s, expected 0: it belongs to transposed convolutions",
                       v->name, steps_text(text, v->dims, v->how.output_padding));
    TRY(check_groups(v, c->image, c->filters));
    const int64_t p = positions(v, 0, x.h, w.h), q = positions(v, 1, x.w, w.w);
    if (p < 1 || q < 1)
        return fl_fail(TENSOR_E_SHAPE,
                       "%s: a %s filter with dilation %s covers %s pixels and does not fit a %s image with padding %s",
                       v->name, size_text(size, v->dims, w.h, w.w), steps_text(text, v->dims, v->how.dilation),
                       size_text(covered, v->dims, reach(v, 0, w.h), reach(v, 1, w.w)),
                       size_text(image, v->dims, x.h, x.w), padding_text(padding, v->dims, v->how.padding));
    return check_sizes_are(v, c->result, (struct sizes){x.n, p, q, w.n});
}

/* The same of a transposed one: those of the image follow from the result. */
static tensor_status check_image(const struct convolution *c) {
    const struct windows *v = c->v;
    const struct sizes y = sizes_of(v, c->result.t), w = sizes_of(v, c->filters.t);
    const int *more = v->how.output_padding, *stride = v->how.stride, *padding = v->how.padding;
    char text[NUMBERS_TEXT], other[NUMBERS_TEXT], ty[TENSOR_TEXT], tw[TENSOR_TEXT];
    if (!within(more, 2, 0, v->most) || more[0] >= stride[0] || more[1] >= stride[1])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: output padding %s, expected 0 or more and less than the stride %s",
                       v->name, steps_text(text, v->dims, more), steps_text(other, v->dims, stride));
    if (y.c != w.n)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, %s is %s: channels %lld and filters %lld differ", v->name,
                       c->result.name, fl_shape_text(c->result.t, ty), c->filters.name, fl_shape_text(c->filters.t, tw),
                       (long long)y.c, (long long)w.n);
    if (w.n % v->how.groups)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %s: %d groups do not divide %lld filters", v->name,
                       c->filters.name, fl_shape_text(c->filters.t, tw), v->how.groups, (long long)w.n);
    const int64_t h = (y.h - 1) * stride[0] + reach(v, 0, w.h) + more[0] - padding[0] - padding[1],
                  x = (y.w - 1) * stride[1] + reach(v, 1, w.w) + more[1] - padding[2] - padding[3];
    if (h < 1 || x < 1)
        return fl_fail(TENSOR_E_SHAPE, "%s: padding %s leaves nothing of the %s pixels that %s of %s reaches", v->name,
                       padding_text(text, v->dims, padding),
                       size_text(other, v->dims, h + padding[0] + padding[1], x + padding[2] + padding[3]),
                       c->result.name, fl_shape_text(c->result.t, ty));
    return check_sizes_are(v, c->image, (struct sizes){y.n, h, x, w.c * v->how.groups});
}

/* What a caller knows operand i by. */
static const char *name_of(const struct convolution *c, int i) {
    return c->in[i] == c->image.t ? c->image.name : c->in[i] == c->filters.t ? c->filters.name : c->result.name;
}

static tensor_status convolve(const struct convolution *c, const tensor_epilogue *with) {
    const struct windows *v = c->v;
    const struct operand operands[] = {c->out, c->image, c->filters, c->result};
    TRY(check_mixed_operands(v->name, operands, 4));
    TRY(check_layout(v, c->transposed ? c->result : c->image, false));
    TRY(check_layout(v, c->filters, true));
    TRY(check_layout(v, c->transposed ? c->image : c->result, false));
    const struct sizes w = sizes_of(v, c->filters.t);
    char text[NUMBERS_TEXT], other[NUMBERS_TEXT];
    const int *window = v->how.window;
    if ((window[0] || window[1]) && (window[0] != w.h || window[1] != w.w))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: window %s, expected 0 or the %s of the filters", v->name,
                       size_text(text, v->dims, window[0], window[1]), size_text(other, v->dims, w.h, w.w));
    TRY(c->transposed ? check_image(c) : check_result(c));
    for (int i = 0; i < 2; i++)
        if (c->in[i]->storage == c->out.t->storage)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is also an input, the output must be another tensor", v->name,
                           c->out.name);
    const struct sizes x = sizes_of(v, c->image.t), y = sizes_of(v, c->result.t);
    const tensor_window2d *how = &v->how;
    struct fl_args args = {.op = c->op,
                           .in = {fl_view_of(c->in[0]), fl_view_of(c->in[1])},
                           .p.product.windows = {.batch = x.n,
                                                 .h = x.h,
                                                 .w = x.w,
                                                 .c = x.c,
                                                 .p = y.h,
                                                 .q = y.w,
                                                 .filters = y.c,
                                                 .r = w.h,
                                                 .s = w.w,
                                                 .stride = {how->stride[0], how->stride[1]},
                                                 .padding = {how->padding[0], how->padding[2]},
                                                 .dilation = {how->dilation[0], how->dilation[1]},
                                                 .groups = how->groups}};
    if (with)
        TRY(fl_join_epilogue(v->name, c->out.t, with, &args));
    TRY(fl_note_formats(v->name, c->out.t, c->in, (const char *const[]){name_of(c, 0), name_of(c, 1)},
                        with ? with->bias : NULL, with ? with->residual : NULL, &args));
    return fl_write((tensor *)c->out.t, &args);
}

static tensor_status forward(struct windows *v, tensor *y, const tensor *x, const tensor *w,
                             const tensor_epilogue *with) {
    const struct operand ox = {"x", x}, ow = {"w", w}, oy = {"y", y};
    return convolve(&(struct convolution){v, false, FL_OP_CONV2D, ox, ow, oy, oy, {x, w}}, with);
}

static tensor_status input_gradient(struct windows *v, tensor *dx, const tensor *dy, const tensor *w) {
    const struct operand ox = {"dx", dx}, ow = {"w", w}, oy = {"dy", dy};
    return convolve(&(struct convolution){v, false, FL_OP_CONV2D_INPUT_GRAD, ox, ow, oy, ox, {dy, w}}, NULL);
}

static tensor_status weight_gradient(struct windows *v, tensor *dw, const tensor *dy, const tensor *x) {
    const struct operand ox = {"x", x}, ow = {"dw", dw}, oy = {"dy", dy};
    return convolve(&(struct convolution){v, false, FL_OP_CONV2D_WEIGHT_GRAD, ox, ow, oy, ow, {dy, x}}, NULL);
}

static tensor_status transposed(struct windows *v, tensor *y, const tensor *x, const tensor *w,
                                const tensor_epilogue *with) {
    const struct operand ox = {"x", x}, ow = {"w", w}, oy = {"y", y};
    return convolve(&(struct convolution){v, true, FL_OP_CONV2D_INPUT_GRAD, oy, ow, ox, oy, {x, w}}, with);
}

static tensor_status transposed_input_gradient(struct windows *v, tensor *dx, const tensor *dy, const tensor *w) {
    const struct operand ox = {"dx", dx}, ow = {"w", w}, oy = {"dy", dy};
    return convolve(&(struct convolution){v, true, FL_OP_CONV2D, oy, ow, ox, ox, {dy, w}}, NULL);
}

static tensor_status transposed_weight_gradient(struct windows *v, tensor *dw, const tensor *dy, const tensor *x) {
    const struct operand ox = {"x", x}, ow = {"dw", dw}, oy = {"dy", dy};
    return convolve(&(struct convolution){v, true, FL_OP_CONV2D_WEIGHT_GRAD, oy, ow, ox, ow, {x, dy}}, NULL);
}

/* --- max pooling -------------------------------------------------------------------------------------------------- */

/* Of the windows of a direction that begin before the image, the first that sees none of its pixels; -1: none. A window
 * that begins inside sees one. */
static int64_t blind_window(const struct windows *v, int way, int64_t length, int64_t count) {
    const int64_t stride = v->how.stride[way], dilation = v->how.dilation[way], before = v->how.padding[2 * way];
    for (int64_t i = 0; i < count && i * stride < before; i++) {
        const int64_t outside = before - i * stride;
        if ((outside + dilation - 1) / dilation * dilation - outside >= length)
            return i;
    }
    return -1;
}

static tensor_status pool(struct windows *v, enum fl_op op, struct operand x, struct operand y, struct operand out,
                          const tensor *in0, const tensor *in1) {
    const tensor_window2d *how = &v->how;
    char text[NUMBERS_TEXT], other[NUMBERS_TEXT], padding[NUMBERS_TEXT];
    if (!within(how->window, 2, 1, TENSOR_WINDOW_LIMIT))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: window %s, expected 1 to %d", v->name,
                       steps_text(text, v->dims, how->window), TENSOR_WINDOW_LIMIT);
    if (how->groups > 1 || !within(how->output_padding, 2, 0, 0))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: %d groups and output padding %s, expected 1 and 0: they belong to convolutions", v->name,
                       how->groups, steps_text(text, v->dims, how->output_padding));
    const int64_t down = reach(v, 0, how->window[0]), across = reach(v, 1, how->window[1]);
    const int *around = how->padding;
    if (around[0] >= down || around[1] >= down || around[2] >= across || around[3] >= across)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: padding %s, expected less than the window %s", v->name,
                       padding_text(padding, v->dims, around), pair_text(text, v->dims, down, across));
    TRY(check_layout(v, x, false));
    TRY(check_layout(v, y, false));
    const struct sizes image = sizes_of(v, x.t);
    const int64_t p = positions(v, 0, image.h, how->window[0]), q = positions(v, 1, image.w, how->window[1]);
    if (p < 1 || q < 1)
        return fl_fail(TENSOR_E_SHAPE, "%s: a window of %s does not fit a %s image with padding %s", v->name,
                       pair_text(text, v->dims, down, across), size_text(other, v->dims, image.h, image.w),
                       padding_text(padding, v->dims, around));
    TRY(check_sizes_are(v, y, (struct sizes){image.n, p, q, image.c}));
    if (blind_window(v, 0, image.h, p) >= 0 || blind_window(v, 1, image.w, q) >= 0)
        return fl_fail(TENSOR_E_SHAPE, "%s: a window with dilation %s sees nothing of a %s image but padding", v->name,
                       steps_text(text, v->dims, how->dilation), size_text(other, v->dims, image.h, image.w));
    struct fl_args args = {.op = op,
                           .in = {fl_view_of(in0)},
                           .p.pooling.windows = {.batch = image.n,
                                                 .h = image.h,
                                                 .w = image.w,
                                                 .c = image.c,
                                                 .p = p,
                                                 .q = q,
                                                 .filters = image.c,
                                                 .r = how->window[0],
                                                 .s = how->window[1],
                                                 .stride = {how->stride[0], how->stride[1]},
                                                 .padding = {around[0], around[2]},
                                                 .dilation = {how->dilation[0], how->dilation[1]}}};
    if (in1)
        args.in[1] = fl_view_of(in1);
    return fl_write((tensor *)out.t, &args);
}

static tensor_status maxpool(struct windows *v, tensor *y, const tensor *x) {
    const struct operand ox = {"x", x}, oy = {"y", y};
    TRY(check_operands(v->name, OPERANDS(oy, ox)));
    TRY(check_distinct(v->name, OPERANDS(oy, ox)));
    return pool(v, FL_OP_MAXPOOL2D, ox, oy, oy, x, NULL);
}

static tensor_status maxpool_gradient(struct windows *v, tensor *dx, const tensor *dy, const tensor *x) {
    const struct operand ox = {"x", x}, oy = {"dy", dy}, odx = {"dx", dx};
    TRY(check_operands(v->name, OPERANDS(odx, oy, ox)));
    TRY(check_distinct(v->name, OPERANDS(odx, oy, ox)));
    TRY(check_same_shapes(v->name, OPERANDS(odx, ox)));
    return pool(v, FL_OP_MAXPOOL2D_GRAD, ox, oy, odx, dy, x);
}

/* The symmetric ones say nothing about dilation and groups. */
static tensor_status take_pool(struct windows *v, const char *name, tensor_window how) {
    TRY(take_symmetric(v, name, how));
    if (how.dilation > 1 || how.groups > 1)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: dilation %d and %d groups, expected 1 and 1: they belong to convolutions", name,
                       how.dilation, how.groups);
    v->how.window[0] = v->how.window[1] = how.window;
    return TENSOR_OK;
}

/* --- public functions --------------------------------------------------------------------------------------------- */

tensor_status tensor_conv2d(tensor *y, const tensor *x, const tensor *w, tensor_window how) {
    struct windows v;
    TRY(take_symmetric(&v, "conv2d", how));
    return forward(&v, y, x, w, NULL);
}

tensor_status tensor_conv2d_fused_sized(tensor *y, const tensor *x, const tensor *w, tensor_window how,
                                        const tensor_epilogue *with, size_t with_size) {
    struct windows v;
    tensor_epilogue ours;
    TRY(take_symmetric(&v, "conv2d_fused", how));
    TRY(fl_take_epilogue(&ours, with, with_size, "conv2d_fused: tensor_epilogue"));
    return forward(&v, y, x, w, &ours);
}

tensor_status tensor_conv2d_input_grad(tensor *dx, const tensor *dy, const tensor *w, tensor_window how) {
    struct windows v;
    TRY(take_symmetric(&v, "conv2d_input_grad", how));
    return input_gradient(&v, dx, dy, w);
}

tensor_status tensor_conv2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x, tensor_window how) {
    struct windows v;
    TRY(take_symmetric(&v, "conv2d_weight_grad", how));
    return weight_gradient(&v, dw, dy, x);
}

tensor_status tensor_maxpool2d(tensor *y, const tensor *x, tensor_window how) {
    struct windows v;
    TRY(take_pool(&v, "maxpool2d", how));
    return maxpool(&v, y, x);
}

tensor_status tensor_maxpool2d_grad(tensor *dx, const tensor *dy, const tensor *x, tensor_window how) {
    struct windows v;
    TRY(take_pool(&v, "maxpool2d_grad", how));
    return maxpool_gradient(&v, dx, dy, x);
}

/* The functions of windows that need not be symmetric: what computes, with an epilogue or of two inputs. */
#define FUSED(name, dims, compute)                                                                                     \
    tensor_status tensor_##name##_sized(tensor *y, const tensor *x, const tensor *w, const tensor_window##dims *how,   \
                                        size_t how_size, const tensor_epilogue *with, size_t with_size) {              \
        struct windows v;                                                                                              \
        tensor_epilogue ours;                                                                                          \
        TRY(take_##dims(&v, #name, how, how_size));                                                                    \
        TRY(fl_take_epilogue(&ours, with, with_size, #name ": tensor_epilogue"));                                      \
        return compute(&v, y, x, w, &ours);                                                                            \
    }
#define OF_TWO(name, dims, compute)                                                                                    \
    tensor_status tensor_##name##_sized(tensor *out, const tensor *a, const tensor *b, const tensor_window##dims *how, \
                                        size_t how_size) {                                                             \
        struct windows v;                                                                                              \
        TRY(take_##dims(&v, #name, how, how_size));                                                                    \
        return compute(&v, out, a, b);                                                                                 \
    }
#define OF_ONE(name, dims, compute)                                                                                    \
    tensor_status tensor_##name##_sized(tensor *y, const tensor *x, const tensor_window##dims *how, size_t how_size) { \
        struct windows v;                                                                                              \
        TRY(take_##dims(&v, #name, how, how_size));                                                                    \
        return compute(&v, y, x);                                                                                      \
    }

FUSED(conv2d_with, 2d, forward)
OF_TWO(conv2d_input_grad_with, 2d, input_gradient)
OF_TWO(conv2d_weight_grad_with, 2d, weight_gradient)
FUSED(conv_transpose2d, 2d, transposed)
OF_TWO(conv_transpose2d_input_grad, 2d, transposed_input_gradient)
OF_TWO(conv_transpose2d_weight_grad, 2d, transposed_weight_gradient)
OF_ONE(maxpool2d_with, 2d, maxpool)
OF_TWO(maxpool2d_grad_with, 2d, maxpool_gradient)

FUSED(conv1d, 1d, forward)
OF_TWO(conv1d_input_grad, 1d, input_gradient)
OF_TWO(conv1d_weight_grad, 1d, weight_gradient)
FUSED(conv_transpose1d, 1d, transposed)
OF_TWO(conv_transpose1d_input_grad, 1d, transposed_input_gradient)
OF_TWO(conv_transpose1d_weight_grad, 1d, transposed_weight_gradient)
OF_ONE(maxpool1d, 1d, maxpool)
OF_TWO(maxpool1d_grad, 1d, maxpool_gradient)
