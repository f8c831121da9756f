/* tensor_values.c - values in and out of tensors, conversion between formats, wide parts, exponents set by hand. */
#include "core/base/fail.h"
#include "core/base/text.h"
#include "core/base/memory.h"
#include "core/queue/recording.h"
#include "core/values/tensor_state.h"
#include "core/values/values.h"
#include "core/tensor/wide.h"
#include <math.h>
#include <string.h>

/* --- loads -------------------------------------------------------------------------------------------------------- */

tensor_status fl_submit_load(const char *what, tensor *t, const struct fl_source *source) {
    struct fl_storage *s = t->storage;
    struct fl_call call = {.kind = FL_CALL_LOAD, .out = *s, .source = *source, .what = what};
    struct fl_queue *queue = fl_queue_of(s);
    tensor_status status = fl_submit(queue, &call);
    if (!status && s->wide && !queue->measuring)
        s->view_rounding = fl_view_rounding(s);
    return status;
}

tensor_status fl_check_load(const char *what, const tensor *t, const void *values, int64_t count) {
    if (!values)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: values is NULL", what);
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    char text[TENSOR_TEXT];
    const tensor_status status = fl_need_elements(what, t);
    if (status)
        return status;
    return count == t->count ? TENSOR_OK
                             : fl_fail(TENSOR_E_SHAPE, "%s: %lld values for a tensor %s of %lld", what,
                                       (long long)count, fl_shape_text(t, text), (long long)t->count);
}

/* Copies host values of `bytes` each to a device through memory of the device, before it returns. */
tensor_status fl_load_through(const char *what, tensor *t, const void *values, size_t bytes, bool doubles) {
    struct tensor_device *device = t->storage->device;
    struct fl_queue *queue = fl_queue_of(t->storage);
    void *there = device->allocate(device, (size_t)t->count * bytes);
    if (!there)
        return fl_no_memory(device, what, (size_t)t->count * bytes);
    tensor_status status = fl_put(queue, there, values, (size_t)t->count * bytes);
    const struct fl_source source = {.d = doubles ? there : NULL, .f = doubles ? NULL : there};
    if (!status)
        status = fl_submit_load(what, t, &source);
    if (!status)
        status = fl_wait(queue);
    device->release(device, there);
    return status;
}

static tensor_status load_numbers(const char *what, tensor *t, tensor_format format, const void *values) {
    if (t->format->id != format)
        return fl_fail(TENSOR_E_FORMAT, "%s: the tensor is %s, expected %s", what, t->format->name,
                       tensor_format_name(format));
    return fl_put(fl_queue_of(t->storage), t->storage->data, values, (size_t)t->count * (size_t)t->format->bytes);
}

tensor_status tensor_load_f32(tensor *t, const float *values, int64_t count) {
    static const char what[] = "tensor_load_f32";
    tensor_status status = fl_check_load(what, t, values, count);
    if (status)
        return status;
    if (t->format->arithmetic == FL_ARITHMETIC_NUMBERS)
        return load_numbers(what, t, FMT_F32, values);
    return t->storage->device->host ? fl_submit_load(what, t, &(struct fl_source){.f = values})
                                    : fl_load_through(what, t, values, sizeof *values, false);
}

tensor_status tensor_load_f64(tensor *t, const double *values, int64_t count) {
    static const char what[] = "tensor_load_f64";
    tensor_status status = fl_check_load(what, t, values, count);
    if (status)
        return status;
    if (t->format->arithmetic == FL_ARITHMETIC_NUMBERS)
        return load_numbers(what, t, FMT_F64, values);
    return t->storage->device->host ? fl_submit_load(what, t, &(struct fl_source){.d = values})
                                    : fl_load_through(what, t, values, sizeof *values, true);
}

tensor_status tensor_load_i32(tensor *t, const int32_t *values, int64_t count) {
    tensor_status status = fl_check_load("tensor_load_i32", t, values, count);
    return status ? status : load_numbers("tensor_load_i32", t, FMT_I32, values);
}

tensor_status tensor_load_u8(tensor *t, const uint8_t *values, int64_t count) {
    tensor_status status = fl_check_load("tensor_load_u8", t, values, count);
    return status ? status : load_numbers("tensor_load_u8", t, FMT_U8, values);
}

tensor_status tensor_load_pixels(tensor *y, const tensor *pixels, const tensor *values) {
    static const char what[] = "tensor_load_pixels";
    if (!y || !pixels || !values)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, !y ? "y" : !pixels ? "pixels" : "values");
    const int64_t channels = y->shape[y->ndim - 1];
    char text[TENSOR_TEXT], other[TENSOR_TEXT];
    if (pixels->format->id != FMT_U8 || pixels->count != y->count)
        return fl_fail(TENSOR_E_SHAPE, "%s: pixels is %s %s, expected u8 with the %lld elements of y", what,
                       pixels->format->name, fl_shape_text(pixels, text), (long long)y->count);
    if (values->format->id != FMT_F32 || values->ndim != 2 || values->shape[0] != channels || values->shape[1] != 256)
        return fl_fail(TENSOR_E_SHAPE, "%s: y is %s, values is %s %s, expected f32 %lldx256", what,
                       fl_shape_text(y, text), values->format->name, fl_shape_text(values, other), (long long)channels);
    tensor_status status = fl_need_arithmetic(what, "y", y);
    for (int i = 0; i < 3 && !status; i++)
        status = fl_need_contiguous(what, i == 0 ? y : i == 1 ? pixels : values);
    if (!status)
        status = fl_check_apart(what, "y", y, "pixels", pixels);
    if (!status)
        status = fl_check_apart(what, "y", y, "values", values);
    const struct fl_source source = {
        .pixels = pixels->storage->data, .values = values->storage->data, .channels = channels};
    return status ? status : fl_submit_load(what, y, &source);
}

/* --- stores ------------------------------------------------------------------------------------------------------- */

tensor_status fl_check_store(const char *what, const tensor *t, const void *values, int64_t count) {
    if (!t || !values)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, t ? "values" : "tensor");
    if (count != t->count)
        return fl_fail(TENSOR_E_SHAPE, "%s: room for %lld values, the tensor has %lld", what, (long long)count,
                       (long long)t->count);
    return fl_need_elements(what, t);
}

tensor_status fl_see(struct fl_seen *seen, const char *what, const tensor *t) {
    *seen = (struct fl_seen){fl_view_of(t), NULL};
    if (t->storage->device->host)
        return TENSOR_OK;
    const struct fl_storage *s = t->storage;
    const size_t bytes = (size_t)t->count * (size_t)t->format->bytes;
    const size_t wide_bytes = s->wide ? (size_t)t->count * (size_t)t->format->wide_bytes : 0;
    const struct fl_slot *slot = fl_slot_of(t);
    if (!slot)
        return tensor_error_status();
    char *copy = fl_alloc(fl_line_bytes(bytes) + wide_bytes + 1);
    if (!copy)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for a copy of %zu bytes", what, bytes + wide_bytes);
    tensor_status status = fl_get(fl_queue_of(s), copy, s->data, bytes);
    if (!status && wide_bytes)
        status = fl_get(fl_queue_of(s), copy + fl_line_bytes(bytes), s->wide, wide_bytes);
    *seen = (struct fl_seen){{copy, wide_bytes ? copy + fl_line_bytes(bytes) : NULL, &slot->e, t->count}, copy};
    if (status)
        fl_free(copy);
    return status;
}

tensor_status tensor_store_f64(const tensor *t, double *values, int64_t count) {
    struct fl_seen seen;
    tensor_status status = fl_check_store("tensor_store_f64", t, values, count);
    if (!status)
        status = fl_see(&seen, "tensor_store_f64", t);
    if (status)
        return status;
    t->format->decode(t->format, &seen.view, 0, count, values);
    fl_free(seen.copy);
    return TENSOR_OK;
}

tensor_status tensor_store_f32(const tensor *t, float *values, int64_t count) {
    struct fl_seen seen;
    tensor_status status = fl_check_store("tensor_store_f32", t, values, count);
    if (!status)
        status = fl_see(&seen, "tensor_store_f32", t);
    if (status)
        return status;
    fl_store_floats(&(struct fl_source){.format = t->format, .view = seen.view}, count, values);
    fl_free(seen.copy);
    return TENSOR_OK;
}

tensor_status tensor_store_i32(const tensor *t, int32_t *values, int64_t count) {
    tensor_status status = fl_check_store("tensor_store_i32", t, values, count);
    if (!status && t->format->id != FMT_I32)
        status = fl_fail(TENSOR_E_FORMAT, "tensor_store_i32: the tensor is %s, expected i32", t->format->name);
    return status ? status : fl_get(fl_queue_of(t->storage), values, t->storage->data, (size_t)count * sizeof *values);
}

tensor_status tensor_store_wide_f64(const tensor *t, double *values, int64_t count) {
    tensor_status status = fl_check_store("tensor_store_wide_f64", t, values, count);
    if (status)
        return status;
    if (!t->storage->wide)
        return tensor_store_f64(t, values, count);
    fl_wide_settle(t->storage);
    struct fl_seen seen;
    status = fl_see(&seen, "tensor_store_wide_f64", t);
    if (status)
        return status;
    const void *wide = seen.copy ? seen.view.wide : t->storage->wide;
    const double unit = fl_power_of_two(-fl_exponent(&seen.view) - 16); /* well within the range of double */
    const bool shared = t->format->arithmetic == FL_ARITHMETIC_SHARED;
    for (int64_t i = 0; i < count && shared; i++)
        values[i] = ((const int32_t *)wide)[i] * unit;
    for (int64_t i = 0; i < count && !shared; i++)
        values[i] = ((const float *)wide)[i];
    fl_free(seen.copy);
    return TENSOR_OK;
}

/* --- between tensors ---------------------------------------------------------------------------------------------- */

static tensor_status check_same_shape(const char *what, const tensor *y, const tensor *x) {
    if (!y || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, y ? "x" : "y");
    char ty[TENSOR_TEXT], tx[TENSOR_TEXT];
    if (y->ndim != x->ndim || memcmp(y->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: y is %s, x is %s", what, fl_shape_text(y, ty), fl_shape_text(x, tx));
    tensor_status status = fl_need_elements(what, x);
    if (!status)
        status = fl_need_contiguous(what, y);
    return !status && y->storage->device == x->storage->device ? fl_check_apart(what, "y", y, "x", x) : status;
}

static tensor_status check_exponent(const char *what, const tensor *t, int e) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    if (fl_need_contiguous(what, t))
        return tensor_error_status();
    if (!fl_has_exponent(t->format))
        return fl_fail(TENSOR_E_FORMAT, "%s: %s has no shared exponent", what, t->format->name);
    if (e < t->format->e_min || e > t->format->e_max)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: exponent %d, expected %d to %d for %s", what, e, t->format->e_min,
                       t->format->e_max, t->format->name);
    return TENSOR_OK;
}

/* On the host, conversions of fp32 know it by its format. */
static struct fl_source source_of(const tensor *x) {
    const bool floats = x->format->id == FMT_F32 || (x->format->id == FMT_FP32 && !x->storage->device->host);
    return floats ? (struct fl_source){.f = x->storage->data}
                  : (struct fl_source){.format = x->format, .view = fl_view_of(x)};
}

tensor_status tensor_convert(tensor *y, const tensor *x) {
    static const char what[] = "tensor_convert";
    tensor_status status = check_same_shape(what, y, x);
    if (!status)
        status = fl_need_arithmetic(what, "y", y);
    if (!status)
        status = fl_check_apart(what, "y", y, "x", x);
    if (status || y->storage == x->storage)
        return status;
    const struct fl_source source = source_of(x);
    return fl_submit_load(what, y, &source);
}

tensor_status tensor_rewrite(tensor *y, const tensor *x) {
    static const char what[] = "tensor_rewrite";
    if (!tensor_format_is_shared(tensor_format_of(y)))
        return tensor_convert(y, x);
    tensor_status status = check_same_shape(what, y, x);
    if (!status)
        status = fl_check_apart(what, "y", y, "x", x);
    if (status || y->storage == x->storage)
        return status;
    struct fl_call call = {.kind = FL_CALL_ROUND, .out = *y->storage, .source = source_of(x), .what = what};
    return fl_submit(fl_queue_of(y->storage), &call);
}

tensor_status tensor_convert_at(tensor *y, const tensor *x, int e) {
    static const char what[] = "tensor_convert_at";
    tensor_status status = check_same_shape(what, y, x);
    if (!status)
        status = check_exponent(what, y, e);
    if (!status)
        status = fl_check_apart(what, "y", y, "x", x);
    if (!status)
        status = fl_need_host(what, y);
    if (status)
        return status;
    if (y->storage == x->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: y and x are the same tensor, y must be another", what);
    if (y->storage->wide)
        return fl_fail(TENSOR_E_FORMAT, "%s: y has a wide part; tensor_convert fills it", what);
    struct fl_slot *slot = y->storage->slot;
    slot->autoflex.e = e;
    struct fl_transfer copy = {.source = {.format = x->format, .view = fl_view_of(x)},
                               .format = y->format,
                               .out = fl_output_view(y->storage),
                               .count = y->count};
    struct fl_transfer_result seen;
    fl_transfer(&copy, &seen);
    autoflex_record(&slot->autoflex, seen.stats.gamma, seen.stats.maximum);
    fl_written(y->storage, &seen.stats, false);
    return TENSOR_OK;
}

/* Copies bytes between storages, of which one may be on the host. */
static tensor_status copy_bytes(const struct fl_storage *y, void *to, const struct fl_storage *x, const void *from,
                                size_t bytes) {
    if (y->device == x->device)
        return fl_copy(fl_queue_of(y), to, from, bytes);
    return x->device->host ? fl_put(fl_queue_of(y), to, from, bytes) : fl_get(fl_queue_of(x), to, from, bytes);
}

/* Copies exponent and history; the statistics of y remain. */
static tensor_status copy_exponents(const struct fl_storage *y, const struct fl_storage *x) {
    tensor_status status = copy_bytes(y, &y->slot->autoflex, x, &x->slot->autoflex, sizeof y->slot->autoflex);
    return status ? status : copy_bytes(y, &y->slot->e, x, &x->slot->e, sizeof y->slot->e);
}

tensor_status tensor_copy(tensor *y, const tensor *x) {
    tensor_status status = check_same_shape("tensor_copy", y, x);
    if (status)
        return status;
    if (y->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "tensor_copy: y is %s, x is %s; tensor_convert changes the format",
                       y->format->name, x->format->name);
    const struct fl_storage *to = y->storage, *from = x->storage;
    if (to == from)
        return TENSOR_OK;
    if (!to->wide != !from->wide)
        return fl_fail(TENSOR_E_FORMAT, "tensor_copy: only %s has a wide part", to->wide ? "y" : "x");
    if (to->device != from->device && !to->device->host && !from->device->host)
        return fl_fail(TENSOR_E_UNSUPPORTED, "tensor_copy: y lies on %s, x on %s; one must be the host",
                       to->device->name, from->device->name);
    const struct fl_slot *slot = fl_slot_of(x);
    if (!slot)
        return tensor_error_status();
    if (slot->autoflex.predictor >= AUTOFLEX_ADDED && !to->device->host)
        return fl_fail(TENSOR_E_UNSUPPORTED, "tensor_copy: predictor '%s' is a function of the host, y lies on %s",
                       autoflex_name(slot->autoflex.predictor), to->device->name);
    fl_wide_settle(from);
    if (to->device != from->device && !from->device->host && (status = fl_wait(fl_queue_of(from))))
        return status; /* y has not been written yet */
    status = copy_bytes(to, to->data, from, from->data, (size_t)x->count * (size_t)x->format->bytes);
    if (!status && from->wide)
        status = copy_bytes(to, to->wide, from, from->wide, (size_t)x->count * (size_t)x->format->wide_bytes);
    if (!status)
        status = copy_exponents(to, from);
    if (!status && !fl_queue_of(to)->measuring)
        y->storage->view_rounding = from->view_rounding;
    return status;
}

/* --- wide parts and exponents set by hand ------------------------------------------------------------------------- */

tensor_status tensor_keep_wide(tensor *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_keep_wide: tensor is NULL");
    if (fl_need_contiguous("tensor_keep_wide", t))
        return tensor_error_status();
    struct fl_storage *s = t->storage;
    if (s->wide || !t->format->wide_bytes)
        return TENSOR_OK;
    void *wide = s->device->allocate(s->device, (size_t)t->count * (size_t)t->format->wide_bytes);
    if (!wide)
        return fl_no_memory(s->device, "tensor_keep_wide", (size_t)t->count * (size_t)t->format->wide_bytes);
    s->wide = wide;
    fl_note_change();
    struct fl_call call = {.kind = FL_CALL_FOLLOW, .out = *s};
    tensor_status status = fl_submit(fl_queue_of(s), &call);
    if (status) {
        s->wide = NULL;
        s->device->release(s->device, wide);
    }
    return status;
}

tensor_status tensor_declare_exponent(tensor *t, int e) {
    tensor_status status = check_exponent("tensor_declare_exponent", t, e);
    if (!status && t->storage->wide)
        status = fl_need_host("tensor_declare_exponent", t);
    const int32_t number = e;
    struct fl_slot *const slot = status ? NULL : t->storage->slot;
    if (!status)
        status = fl_put(fl_queue_of(t->storage), &slot->autoflex.e, &number, sizeof number);
    if (!status)
        status = fl_put(fl_queue_of(t->storage), &slot->e, &number, sizeof number);
    if (!status && t->storage->wide)
        fl_wide_follow(t->storage);
    return status;
}

tensor_status tensor_set_exponent(tensor *t, int e) {
    tensor_status status = check_exponent("tensor_set_exponent", t, e);
    if (!status)
        status = fl_need_host("tensor_set_exponent", t);
    if (status)
        return status;
    struct fl_stats stats = {0};
    t->storage->slot->autoflex.e = e;
    struct fl_view in = fl_view_of(t), out = fl_output_view(t->storage);
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    double block[FL_BLOCK];
    for (int64_t first = 0; first < t->count; first += FL_BLOCK) {
        int64_t n = t->count - first < FL_BLOCK ? t->count - first : FL_BLOCK;
        t->format->decode(t->format, &in, first, n, block);
        t->format->encode(t->format, &out, first, n, block, true, &nearest, &stats);
    }
    fl_written(t->storage, &stats, false);
    return TENSOR_OK;
}

tensor_status tensor_set_predictor(tensor *t, const char *name) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_predictor: tensor is NULL");
    if (fl_need_contiguous("tensor_set_predictor", t))
        return tensor_error_status();
    if (!fl_has_exponent(t->format))
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_predictor: %s has no shared exponent", t->format->name);
    autoflex_predictor predictor;
    fl_fail_hold();
    tensor_status status = autoflex_parse(&predictor, name);
    (void)fl_fail_release(TENSOR_OK);
    if (status)
        return fl_fail(status, "tensor_set_predictor: %s", tensor_error());
    if (fl_is_added(predictor) && !t->storage->device->host)
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "tensor_set_predictor: '%s' is a function of the host, the tensor lies on %s", name,
                       t->storage->device->name);
    const struct fl_slot *slot = fl_slot_of(t);
    if (!slot)
        return tensor_error_status();
    struct autoflex fresh;
    status = autoflex_reset(&fresh, predictor, t->format->e_min, t->format->e_max);
    if (status)
        return status;
    fresh.bits = slot->autoflex.bits;
    fresh.largest = slot->autoflex.largest;
    fresh.e = slot->e;
    fresh.role = slot->autoflex.role;
    return fl_put(fl_queue_of(t->storage), &t->storage->slot->autoflex, &fresh, sizeof fresh);
}

tensor_status tensor_set_role(tensor *t, autoflex_role role) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_role: tensor is NULL");
    if (role < AUTOFLEX_ROLE_NONE || role > AUTOFLEX_ROLE_LAST)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_role: role %d, expected 0 to %d", (int)role, AUTOFLEX_ROLE_LAST);
    if (fl_need_contiguous("tensor_set_role", t))
        return tensor_error_status();
    if (!fl_has_exponent(t->format))
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_role: %s has no shared exponent", t->format->name);
    const int16_t number = (int16_t)role;
    return fl_put(fl_queue_of(t->storage), &t->storage->slot->autoflex.role, &number, sizeof number);
}

tensor_status tensor_set_rounding(tensor *t, tensor_rounding rounding, uint64_t seed) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_rounding: tensor is NULL");
    if (fl_need_contiguous("tensor_set_rounding", t))
        return tensor_error_status();
    const bool offered = rounding == TENSOR_ROUND_NEAREST ||
                         (rounding == TENSOR_ROUND_STOCHASTIC && t->format->draws) ||
                         (rounding == TENSOR_ROUND_TRUNCATE && t->format->truncates);
    if (!offered && rounding == TENSOR_ROUND_STOCHASTIC)
        return fl_fail(TENSOR_E_FORMAT,
                       "tensor_set_rounding: %s does not offer stochastic rounding, expected a format of 16 bits",
                       t->format->name);
    if (!offered)
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_rounding: %s does not offer rounding %d", t->format->name,
                       (int)rounding);
    t->storage->rounding = rounding;
    t->storage->seed = seed;
    fl_note_change();
    return TENSOR_OK;
}
