/* tensor_values.c - values in and out of tensors, conversion between formats, wide parts, exponents set by hand. */
#include "core/fail.h"
#include "core/memory.h"
#include "core/wide.h"
#include <math.h>
#include <string.h>

static double source_value(const struct fl_source *s, int64_t i) {
    double v;
    fl_source_fetch(s, i, 1, &v);
    return v != v ? fabs(v) : v; /* the sign of a NaN says nothing */
}

static tensor_status load(const char *what, tensor *t, const struct fl_source *source, int64_t count) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    if (count != t->count) {
        char text[TENSOR_TEXT];
        return fl_fail(TENSOR_E_SHAPE, "%s: %lld values for a tensor %s of %lld", what, (long long)count,
                       fl_shape_text(t, text), (long long)t->count);
    }
    struct fl_storage *storage = t->storage;
    struct autoflex *a = &storage->slot->autoflex;
    struct fl_transfer look = {.source = *source, .count = count};
    struct fl_transfer_result seen;
    const bool shared = t->format->arithmetic == FL_ARITHMETIC_SHARED;
    if (shared) {
        fl_transfer(&look, &seen);
        if (seen.nonfinite >= 0)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: value %lld is %g, %s holds finite numbers only", what,
                           (long long)seen.nonfinite, source_value(source, seen.nonfinite), t->format->name);
    }
    if (shared && autoflex_needs_maximum(a->predictor))
        autoflex_fit(a, seen.maximum);
    else if (shared)
        autoflex_load(a, seen.maximum);
    if (storage->wide) {
        seen.stats = (struct fl_stats){0};
        fl_wide_load(t, source, &seen.stats);
        fl_written(t, &seen.stats, true);
        return TENSOR_OK;
    }
    struct fl_transfer copy = {.source = *source,
                               .format = t->format,
                               .out = fl_output_view(t),
                               .count = count,
                               .rounding = {fl_view_rounding(t), 0, 0}};
    fl_transfer(&copy, &seen);
    fl_written(t, &seen.stats, false);
    return TENSOR_OK;
}

tensor_status tensor_load_f32(tensor *t, const float *values, int64_t count) {
    if (!values)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_load_f32: values is NULL");
    return load("tensor_load_f32", t, &(struct fl_source){.f = values}, count);
}

tensor_status tensor_load_f64(tensor *t, const double *values, int64_t count) {
    if (!values)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_load_f64: values is NULL");
    return load("tensor_load_f64", t, &(struct fl_source){.d = values}, count);
}

static tensor_status check_store(const char *what, const tensor *t, const void *values, int64_t count) {
    if (!t || !values)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, t ? "values" : "tensor");
    if (count != t->count)
        return fl_fail(TENSOR_E_SHAPE, "%s: room for %lld values, the tensor has %lld", what, (long long)count,
                       (long long)t->count);
    return TENSOR_OK;
}

tensor_status tensor_store_f64(const tensor *t, double *values, int64_t count) {
    tensor_status status = check_store("tensor_store_f64", t, values, count);
    if (status)
        return status;
    struct fl_view view = fl_view_of(t);
    t->format->decode(&view, 0, count, values);
    return TENSOR_OK;
}

tensor_status tensor_store_f32(const tensor *t, float *values, int64_t count) {
    tensor_status status = check_store("tensor_store_f32", t, values, count);
    if (status)
        return status;
    fl_store_floats(&(struct fl_source){.format = t->format, .view = fl_view_of(t)}, count, values);
    return TENSOR_OK;
}

tensor_status tensor_store_wide_f64(const tensor *t, double *values, int64_t count) {
    tensor_status status = check_store("tensor_store_wide_f64", t, values, count);
    if (status)
        return status;
    if (!t->storage->wide)
        return tensor_store_f64(t, values, count);
    fl_wide_settle(t);
    for (int64_t i = 0; i < count; i++)
        values[i] = t->format->arithmetic == FL_ARITHMETIC_SHARED
                        ? ldexp(((const int32_t *)t->storage->wide)[i], -(t->storage->slot->e + 16))
                        : ((const float *)t->storage->wide)[i];
    return TENSOR_OK;
}

static tensor_status check_same_shape(const char *what, const tensor *y, const tensor *x) {
    if (!y || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, y ? "x" : "y");
    char ty[TENSOR_TEXT], tx[TENSOR_TEXT];
    if (y->ndim != x->ndim || memcmp(y->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: y is %s, x is %s", what, fl_shape_text(y, ty), fl_shape_text(x, tx));
    return fl_check_apart(what, "y", y, "x", x);
}

static tensor_status check_exponent(const char *what, const tensor *t, int e) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    if (t->format->arithmetic != FL_ARITHMETIC_SHARED)
        return fl_fail(TENSOR_E_FORMAT, "%s: %s has no shared exponent", what, t->format->name);
    if (e < t->format->e_min || e > t->format->e_max)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: exponent %d, expected %d to %d for %s", what, e, t->format->e_min,
                       t->format->e_max, t->format->name);
    return TENSOR_OK;
}

tensor_status tensor_convert(tensor *y, const tensor *x) {
    tensor_status status = check_same_shape("tensor_convert", y, x);
    if (status)
        return status;
    if (y->storage == x->storage)
        return TENSOR_OK;
    return load("tensor_convert", y, &(struct fl_source){.format = x->format, .view = fl_view_of(x)}, y->count);
}

tensor_status tensor_convert_at(tensor *y, const tensor *x, int e) {
    tensor_status status = check_same_shape("tensor_convert_at", y, x);
    if (!status)
        status = check_exponent("tensor_convert_at", y, e);
    if (status)
        return status;
    if (y->storage == x->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_convert_at: y and x are the same tensor, y must be another");
    if (y->storage->wide)
        return fl_fail(TENSOR_E_FORMAT, "tensor_convert_at: y has a wide part; tensor_convert fills it");
    struct fl_transfer copy = {.source = {.format = x->format, .view = fl_view_of(x)},
                               .format = y->format,
                               .out = fl_view_of(y),
                               .count = y->count};
    const int32_t exponent = e;
    copy.out.e = &exponent;
    struct fl_transfer_result seen;
    fl_transfer(&copy, &seen);
    y->storage->slot->autoflex.e = e;
    autoflex_record(&y->storage->slot->autoflex, seen.stats.gamma, seen.stats.maximum);
    fl_written(y, &seen.stats, false);
    return TENSOR_OK;
}

tensor_status tensor_copy(tensor *y, const tensor *x) {
    tensor_status status = check_same_shape("tensor_copy", y, x);
    if (status)
        return status;
    if (y->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "tensor_copy: y is %s, x is %s; tensor_convert changes the format",
                       y->format->name, x->format->name);
    if (y->storage == x->storage)
        return TENSOR_OK;
    if (!y->storage->wide != !x->storage->wide)
        return fl_fail(TENSOR_E_FORMAT, "tensor_copy: only %s has a wide part", y->storage->wide ? "y" : "x");
    fl_wide_settle(x);
    memcpy(y->storage->data, x->storage->data, (size_t)x->count * (size_t)x->format->bytes);
    if (x->storage->wide)
        memcpy(y->storage->wide, x->storage->wide, (size_t)x->count * (size_t)x->format->wide_bytes);
    y->storage->view_rounding = x->storage->view_rounding;
    y->storage->slot->autoflex = x->storage->slot->autoflex;
    y->storage->slot->e = x->storage->slot->e;
    return TENSOR_OK;
}

tensor_status tensor_keep_wide(tensor *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_keep_wide: tensor is NULL");
    if (t->storage->wide || !t->format->wide_bytes)
        return TENSOR_OK;
    void *wide = fl_alloc((size_t)t->count * (size_t)t->format->wide_bytes);
    if (!wide)
        return fl_fail(TENSOR_E_MEMORY, "tensor_keep_wide: no memory for %lld elements of %d bytes",
                       (long long)t->count, t->format->wide_bytes);
    t->storage->wide = wide;
    fl_wide_follow(t);
    return TENSOR_OK;
}

tensor_status tensor_declare_exponent(tensor *t, int e) {
    tensor_status status = check_exponent("tensor_declare_exponent", t, e);
    if (status)
        return status;
    t->storage->slot->e = t->storage->slot->autoflex.e = e;
    fl_wide_follow(t);
    return TENSOR_OK;
}

tensor_status tensor_set_exponent(tensor *t, int e) {
    tensor_status status = check_exponent("tensor_set_exponent", t, e);
    if (status)
        return status;
    struct fl_stats stats = {0};
    struct fl_view in = fl_view_of(t), out = in;
    const int32_t exponent = e;
    out.e = &exponent;
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    double block[FL_BLOCK];
    for (int64_t first = 0; first < t->count; first += FL_BLOCK) {
        int64_t n = t->count - first < FL_BLOCK ? t->count - first : FL_BLOCK;
        t->format->decode(&in, first, n, block);
        t->format->encode(&out, first, n, block, true, &nearest, &stats);
    }
    t->storage->slot->autoflex.e = e;
    fl_written(t, &stats, false);
    return TENSOR_OK;
}

tensor_status tensor_set_predictor(tensor *t, const char *name) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_predictor: tensor is NULL");
    if (t->format->arithmetic != FL_ARITHMETIC_SHARED)
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_predictor: %s has no shared exponent", t->format->name);
    const autoflex_predictor predictor = autoflex_find(name);
    if (!predictor)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_predictor: unknown predictor '%s'", name ? name : "(null)");
    struct fl_slot *slot = t->storage->slot;
    autoflex_reset(&slot->autoflex, predictor, t->format->e_min, t->format->e_max);
    slot->autoflex.e = slot->e;
    return TENSOR_OK;
}

tensor_status tensor_set_rounding(tensor *t, tensor_rounding rounding, uint64_t seed) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_rounding: tensor is NULL");
    const bool offered = rounding == TENSOR_ROUND_NEAREST ||
                         (rounding == TENSOR_ROUND_STOCHASTIC && t->format->arithmetic == FL_ARITHMETIC_SHARED) ||
                         (rounding == TENSOR_ROUND_TRUNCATE && t->format->truncates);
    if (!offered)
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_rounding: %s does not offer rounding %d", t->format->name,
                       (int)rounding);
    t->storage->rounding = rounding;
    t->storage->seed = seed;
    return TENSOR_OK;
}
