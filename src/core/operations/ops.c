/* ops.c - the public operations: every check, then the kernel through fl_write or fl_run. */
#include "core/operations/check_operands.h"
#include "core/queue/queue.h"
#include "core/tensor/wide.h"

/* --- a bound that stands in a tensor ---------------------------------------------------------------------------------
 */

tensor_status tensor_clip_by(tensor *y, const tensor *x, const tensor *limit) {
    static const char name[] = "clip_by";
    TRY(check_operands(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_same_shapes(name, OPERANDS({"y", y}, {"x", x})));
    TRY(fl_check_apart(name, "limit", limit, "y", y));
    TRY(fl_check_numbers(name, "limit", limit, FMT_F32, 1, y));
    struct fl_args args = {.op = FL_OP_CLIP,
                           .in = {fl_view_of(x)},
                           .late = FL_LATE_IN(limit->storage->data, FL_LATE_FLOAT, p.map.alpha, "clip_by: limit")};
    args.late.bound = true;
    return fl_write(y, &args);
}

/* --- stochastic gradient descent ---------------------------------------------------------------------------------- */

tensor_status tensor_sgd_momentum(tensor *v, const tensor *g, const tensor *w, float momentum, float weight_decay) {
    static const char name[] = "sgd_momentum";
    TRY(check_operands(name, OPERANDS({"v", v}, {"g", g}, {"w", w})));
    TRY(check_same_shapes(name, OPERANDS({"v", v}, {"g", g}, {"w", w})));
    TRY(check_distinct(name, OPERANDS({"v", v}, {"g", g}, {"w", w})));
    TRY(check_scalar(name, "momentum", momentum));
    TRY(check_scalar(name, "weight_decay", weight_decay));
    struct fl_args args = {.op = FL_OP_SGD_MOMENTUM,
                           .in = {fl_view_of(v), fl_view_of(g), fl_wide_view_of(w)},
                           .p.sgd = {.momentum = momentum, .weight_decay = weight_decay}};
    return fl_write(v, &args);
}

static tensor_status check_update(const char *name, const tensor *w, const tensor *v) {
    TRY(check_operands(name, OPERANDS({"w", w}, {"v", v})));
    TRY(check_same_shapes(name, OPERANDS({"w", w}, {"v", v})));
    return check_distinct(name, OPERANDS({"w", w}, {"v", v}));
}

tensor_status tensor_sgd_update(tensor *w, const tensor *v, float rate) {
    static const char name[] = "sgd_update";
    TRY(check_update(name, w, v));
    TRY(check_scalar(name, "rate", rate));
    struct fl_args args = {.op = FL_OP_SGD_UPDATE, .in = {fl_wide_view_of(w), fl_view_of(v)}, .p.sgd.rate = rate};
    return fl_write(w, &args);
}

tensor_status tensor_sgd_update_by(tensor *w, const tensor *v, const tensor *rate) {
    static const char name[] = "sgd_update_by";
    TRY(check_update(name, w, v));
    TRY(fl_check_apart(name, "rate", rate, "w", w));
    TRY(fl_check_numbers(name, "rate", rate, FMT_F32, 1, w));
    struct fl_args args = {.op = FL_OP_SGD_UPDATE,
                           .in = {fl_wide_view_of(w), fl_view_of(v)},
                           .late = FL_LATE_IN(rate->storage->data, FL_LATE_FLOAT, p.sgd.rate, "sgd_update_by: rate")};
    return fl_write(w, &args);
}
