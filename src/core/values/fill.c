/* fill.c - constants and random numbers: loads whose numbers are computed on the tensor's device. */
#include "core/base/fail.h"
#include "core/values/values.h"
#include <math.h>

static tensor_status fill(const char *what, tensor *t, const struct fl_fill *how) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    tensor_status status = fl_need_elements(what, t);
    if (!status)
        status = fl_need_arithmetic(what, "tensor", t);
    return status ? status : fl_submit_load(what, t, &(struct fl_source){.fill = *how});
}

static tensor_status check_finite(const char *what, const char *name, double value) {
    return isfinite(value) ? TENSOR_OK
                           : fl_fail(TENSOR_E_ARGUMENT, "%s: %s is %g, expected a finite number", what, name, value);
}

tensor_status tensor_fill(tensor *t, double value) {
    return fill("tensor_fill", t, &(struct fl_fill){.kind = FL_FILL_CONSTANT, .a = value});
}

tensor_status tensor_fill_uniform(tensor *t, double low, double high, uint64_t key, uint64_t counter) {
    static const char what[] = "tensor_fill_uniform";
    tensor_status status = check_finite(what, "low", low);
    if (!status)
        status = check_finite(what, "high", high);
    if (!status && low > high)
        status = fl_fail(TENSOR_E_ARGUMENT, "%s: low is %g, high %g, expected low at most high", what, low, high);
    if (!status)
        status = check_finite(what, "the distance from low to high", high - low);
    return status ? status : fill(what, t, &(struct fl_fill){FL_FILL_UNIFORM, low, high, key, counter});
}

tensor_status tensor_fill_normal(tensor *t, double mean, double deviation, uint64_t key, uint64_t counter) {
    static const char what[] = "tensor_fill_normal";
    tensor_status status = check_finite(what, "mean", mean);
    if (!status)
        status = check_finite(what, "deviation", deviation);
    if (!status && deviation < 0)
        status = fl_fail(TENSOR_E_ARGUMENT, "%s: deviation is %g, expected 0 or more", what, deviation);
    return status ? status : fill(what, t, &(struct fl_fill){FL_FILL_NORMAL, mean, deviation, key, counter});
}
