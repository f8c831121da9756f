/* tensor_state.c - the state of a tensor as bytes: slot, elements, wide part, one after the other. */
#include "core/values/tensor_state.h"
#include "autoflex/autoflex_numbers.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/tensor/element_rules.h"
#include "core/tensor/narrow.h"
#include "core/tensor/wide.h"
#include <math.h>
#include <string.h>

const char *fl_format_predictor(tensor_format format) {
    return fl_format_of(format)->predictor;
}

static size_t element_bytes(const tensor *t) {
    return (size_t)t->count * (size_t)t->format->bytes;
}

static size_t wide_bytes(const tensor *t) {
    return t->storage->wide ? (size_t)t->count * (size_t)t->format->wide_bytes : 0;
}

size_t fl_state_bytes(const tensor *t, bool elements) {
    return sizeof(struct fl_slot) + (elements ? element_bytes(t) + wide_bytes(t) : 0);
}

tensor_status fl_state_get(const tensor *t, bool elements, void *bytes) {
    const struct fl_storage *s = t->storage;
    struct fl_queue *queue = fl_queue_of(s);
    char *at = bytes;
    if (elements)
        fl_wide_settle(s);
    tensor_status status = fl_get(queue, at, s->slot, sizeof *s->slot);
    at += sizeof *s->slot;
    if (!status && elements)
        status = fl_get(queue, at, s->data, element_bytes(t));
    if (!status && elements && s->wide)
        status = fl_get(queue, at + element_bytes(t), s->wide, wide_bytes(t));
    return status;
}

/* Whether mantissas are the rounding of the wide part. */
static bool mantissas_agree(const struct fl_format *format, const int16_t *m, const int32_t *wide, int64_t count) {
    const int32_t limit = fl_wide_limit(format);
    for (int64_t i = 0; i < count; i++) {
        if (wide[i] > limit || wide[i] < -limit)
            return false;
        if (fl_narrow(wide[i]) != m[i])
            return false;
    }
    return true;
}

/* The same for floats, for which all NaN are equal. */
static bool words_agree(const tensor *t, const int32_t *e, const unsigned char *elements, const float *wide) {
    const struct fl_rounding rounding = {fl_view_rounding(t->storage), 0, 0};
    const size_t size = (size_t)t->format->bytes;
    struct fl_stats ignored = {0};
    for (int64_t i = 0; i < t->count; i++) {
        uint64_t rounded = 0, stored = 0; /* each holds an element of any format, aligned */
        const double value = wide[i];
        t->format->encode(t->format, &(struct fl_view){.data = &rounded, .e = e, .count = 1}, 0, 1, &value, false,
                          &rounding, &ignored);
        memcpy(&stored, elements + size * (size_t)i, size);
        double back;
        t->format->decode(t->format, &(struct fl_view){.data = &stored, .e = e, .count = 1}, 0, 1, &back);
        if (memcmp(&rounded, &stored, size) != 0 && !(back != back && value != value))
            return false;
    }
    return true;
}

static tensor_status check_wide(const tensor *t, const int32_t *e, const unsigned char *elements) {
    const size_t bytes = wide_bytes(t);
    void *wide = fl_alloc(bytes + element_bytes(t)); /* aligned as in a tensor */
    if (!wide)
        return fl_fail(TENSOR_E_MEMORY, "state: no memory to check %zu bytes", bytes);
    unsigned char *copy = (unsigned char *)wide + bytes;
    memcpy(wide, elements + element_bytes(t), bytes);
    memcpy(copy, elements, element_bytes(t));
    const bool good = t->format->arithmetic == FL_ARITHMETIC_SHARED
                          ? mantissas_agree(t->format, (const int16_t *)copy, wide, t->count)
                          : words_agree(t, e, copy, wide);
    fl_free(wide);
    return good ? TENSOR_OK
                : fl_fail(TENSOR_E_DATA, "state: elements of a %s tensor are not the rounding of their wide part",
                          t->format->name);
}

static tensor_status check_narrow(const tensor *t, const unsigned char *elements) {
    const int top = t->format->top;
    for (int64_t i = 0; i < t->count; i++) {
        int16_t m;
        memcpy(&m, elements + (size_t)i * sizeof m, sizeof m);
        if (m > top || m < -top)
            return fl_fail(TENSOR_E_DATA, "state: element %lld is %d, expected %d to %d in %s", (long long)i, (int)m,
                           -top, top, t->format->name);
    }
    return TENSOR_OK;
}

tensor_status fl_state_check(const tensor *t, bool elements, const void *bytes) {
    struct fl_slot slot;
    memcpy(&slot, bytes, sizeof slot);
    const bool good =
        fl_has_exponent(t->format)
            ? fl_autoflex_is_possible(&slot.autoflex, t->format->e_min, t->format->e_max) && slot.e == slot.autoflex.e
            : slot.e == 0 && slot.autoflex.e == 0 && slot.autoflex.count == 0;
    if (!good)
        return fl_fail(
            TENSOR_E_DATA,
            "state: exponent %d (before the write %d) of %d to %d, %d entries of history, next %d, predicted "
            "%g: no state of a %s tensor",
            slot.autoflex.e, slot.e, slot.autoflex.e_min, slot.autoflex.e_max, slot.autoflex.count, slot.autoflex.next,
            slot.autoflex.predicted, t->format->name);
    if (elements && fl_is_narrow(t->format) && check_narrow(t, (const unsigned char *)bytes + sizeof slot))
        return TENSOR_E_DATA;
    return elements && t->storage->wide ? check_wide(t, &slot.e, (const unsigned char *)bytes + sizeof slot)
                                        : TENSOR_OK;
}

/* Element i of the wide part; its sign is that of the number. */
static double wide_at(const tensor *t, const unsigned char *wide, int64_t i) {
    int32_t m;
    float x;
    if (t->format->arithmetic == FL_ARITHMETIC_SHARED) {
        memcpy(&m, wide + (size_t)i * sizeof m, sizeof m);
        return m;
    }
    memcpy(&x, wide + (size_t)i * sizeof x, sizeof x);
    return x;
}

tensor_status fl_state_check_sign(const tensor *t, const void *bytes) {
    const struct fl_state_sizes size = fl_state_sizes(t);
    const unsigned char *elements = (const unsigned char *)bytes + size.slot, *wide = elements + size.elements;
    const size_t each = (size_t)t->format->bytes;
    struct fl_slot slot;
    memcpy(&slot, bytes, sizeof slot);
    for (int64_t i = 0; i < t->count; i++) {
        double element, value;
        memcpy(&element, elements + (size_t)i * each, each); /* copied to an aligned variable */
        t->format->decode(t->format, &(struct fl_view){.data = &element, .count = 1, .e = &slot.e}, 0, 1, &value);
        const double low = size.wide ? fmin(value, wide_at(t, wide, i)) : value;
        if (low < 0)
            return fl_fail(TENSOR_E_DATA, "state: element %lld is below 0, expected at least 0", (long long)i);
    }
    return TENSOR_OK;
}

tensor_status fl_state_set(tensor *t, bool elements, const void *bytes) {
    struct fl_storage *s = t->storage;
    struct fl_queue *queue = fl_queue_of(s);
    const char *at = bytes;
    struct fl_slot slot;
    memcpy(&slot, at, sizeof slot);
    const struct fl_slot *own = fl_slot_of(t);
    if (!own)
        return tensor_error_status();
    slot.autoflex.predictor = own->autoflex.predictor; /* its number may differ between processes */
    slot.autoflex.role = own->autoflex.role;
    slot.autoflex.bits = own->autoflex.bits;
    slot.autoflex.largest = own->autoflex.largest;
    slot.autoflex.length = own->autoflex.length;
    slot.autoflex.margin = own->autoflex.margin;
    slot.autoflex.most_recent = own->autoflex.most_recent;
    at += sizeof slot;
    tensor_status status = fl_put(queue, s->slot, &slot, sizeof slot);
    if (!status && elements)
        status = fl_put(queue, s->data, at, element_bytes(t));
    if (!status && elements && s->wide)
        status = fl_put(queue, s->wide, at + element_bytes(t), wide_bytes(t));
    if (!status && elements && s->wide)
        s->view_rounding = fl_view_rounding(s);
    return status;
}

/* --- as numbers --------------------------------------------------------------------------------------------------- */

struct fl_state_sizes fl_state_sizes(const tensor *t) {
    return (struct fl_state_sizes){sizeof(struct fl_slot), element_bytes(t), wide_bytes(t)};
}

static void put_stats(const tensor_stats *s, int64_t whole[6]) {
    const int64_t numbers[] = {s->gamma, s->saturated, s->flushed, s->nonfinite, s->elements, s->writes};
    memcpy(whole, numbers, sizeof numbers);
}

/* Member by member: the padding between members remains zero, so that states of equal tensors are equal bytes. */
static void take_stats(tensor_stats *s, const int64_t whole[6], double maximum) {
    s->maximum = maximum;
    s->gamma = (int32_t)whole[0];
    s->saturated = whole[1];
    s->flushed = whole[2];
    s->nonfinite = whole[3];
    s->elements = whole[4];
    s->writes = whole[5];
}

/* Their offsets in `whole`, after the exponent of the elements. */
enum { EXPONENT = 1, WRITES = EXPONENT + FL_AUTOFLEX_WHOLE, LAST, TOTAL = LAST + 6 };
_Static_assert(FL_SLOT_WHOLE == TOTAL + 6 && FL_SLOT_REAL == FL_AUTOFLEX_REAL + 2, "its parts");

void fl_slot_to_numbers(const void *bytes, int64_t whole[FL_SLOT_WHOLE], double real[FL_SLOT_REAL]) {
    struct fl_slot slot;
    memcpy(&slot, bytes, sizeof slot);
    whole[0] = slot.e;
    fl_autoflex_to_numbers(&slot.autoflex, whole + EXPONENT, real);
    whole[WRITES] = (int64_t)slot.writes;
    put_stats(&slot.last, whole + LAST);
    put_stats(&slot.total, whole + TOTAL);
    real[FL_AUTOFLEX_REAL] = slot.last.maximum;
    real[FL_AUTOFLEX_REAL + 1] = slot.total.maximum;
}

static struct fl_number_range range_of(int i) {
    return i < EXPONENT              ? fl_range_of_exponent()
           : i < WRITES              ? fl_autoflex_range(i - EXPONENT)
           : i == LAST || i == TOTAL ? fl_range_of_position()
                                     : fl_range_of_count();
}

static tensor_status check_numbers(const int64_t whole[FL_SLOT_WHOLE], const double real[FL_SLOT_REAL]) {
    for (int i = 0; i < FL_SLOT_WHOLE; i++) {
        const struct fl_number_range range = range_of(i);
        if (whole[i] < range.low || whole[i] > range.high)
            return fl_fail(TENSOR_E_DATA, "state: number %d is %lld, expected %lld to %lld", i, (long long)whole[i],
                           (long long)range.low, (long long)range.high);
    }
    for (int i = 0; i < FL_SLOT_REAL; i++)
        if (!(real[i] >= 0) || (i < AUTOFLEX_WINDOW && isinf(real[i])))
            return fl_fail(TENSOR_E_DATA, "state: number %d of its history is %g, expected 0 or more%s", i, real[i],
                           i < AUTOFLEX_WINDOW ? " and finite" : "");
    return TENSOR_OK;
}

tensor_status fl_slot_from_numbers(void *bytes, const int64_t whole[FL_SLOT_WHOLE], const double real[FL_SLOT_REAL]) {
    const tensor_status status = check_numbers(whole, real);
    if (status)
        return status;
    struct fl_slot slot;
    memset(&slot, 0, sizeof slot);
    slot.e = (int32_t)whole[0];
    (void)fl_autoflex_from_numbers(&slot.autoflex, whole + EXPONENT, real); /* they were checked */
    slot.writes = (uint64_t)whole[WRITES];
    take_stats(&slot.last, whole + LAST, real[FL_AUTOFLEX_REAL]);
    take_stats(&slot.total, whole + TOTAL, real[FL_AUTOFLEX_REAL + 1]);
    memcpy(bytes, &slot, sizeof slot);
    return TENSOR_OK;
}

size_t tensor_state_bytes(const tensor *t, bool elements) {
    return t ? fl_state_bytes(t, elements) : 0;
}

static tensor_status check_bytes(const char *what, const tensor *t, bool elements, const void *bytes, size_t size) {
    if (!t || !bytes)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, t ? "bytes" : "tensor");
    TRY(fl_need_contiguous(what, t));
    const size_t expected = fl_state_bytes(t, elements);
    return size == expected ? TENSOR_OK
                            : fl_fail(TENSOR_E_ARGUMENT, "%s: %zu bytes, expected %zu", what, size, expected);
}

tensor_status tensor_state_store(const tensor *t, bool elements, void *bytes, size_t size) {
    TRY(check_bytes("tensor_state_store", t, elements, bytes, size));
    return fl_state_get(t, elements, bytes);
}

tensor_status tensor_state_load(tensor *t, bool elements, const void *bytes, size_t size) {
    TRY(check_bytes("tensor_state_load", t, elements, bytes, size));
    TRY(fl_state_check(t, elements, bytes));
    return fl_state_set(t, elements, bytes);
}

void fl_tensor_place(tensor *t, void *memory) {
    t->storage->data = memory;
}

tensor *fl_tensor_beside(const tensor *t) {
    return tensor_new_at(t->storage->device, t->format->id, t->ndim, t->shape, t->storage->data, element_bytes(t));
}

void fl_tensor_hide(tensor *t, bool hidden) {
    t->storage->hidden = hidden;
}
