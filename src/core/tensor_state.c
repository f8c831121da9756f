/* tensor_state.c - the state of a tensor as bytes: slot, elements, wide part, one after the other. */
#include "core/tensor_state.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/queue.h"
#include "core/wide.h"
#include <math.h>
#include <string.h>

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

static bool possible(const struct autoflex *a, int e_min, int e_max) {
    bool good = a->e >= e_min && a->e <= e_max && a->e_min == e_min && a->e_max == e_max && a->count >= 0 &&
                a->count <= AUTOFLEX_WINDOW && a->next >= 0 && a->next < AUTOFLEX_WINDOW && a->initialised >> 1 == 0 &&
                a->written >> 1 == 0 && a->predicted >= 0;
    for (int i = 0; i < a->count && good; i++)
        good = a->history[i] > 0;
    return good;
}

/* The elements are the rounding of the wide part: mantissas. */
static bool mantissas_agree(const int16_t *m, const int32_t *wide, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (wide[i] > FL_WIDE_LIMIT || wide[i] < -FL_WIDE_LIMIT)
            return false;
        if ((wide[i] + 0x7fff + ((wide[i] >> 16) & 1)) >> 16 != m[i])
            return false;
    }
    return true;
}

/* The same of floats; any NaN is as good as another. */
static bool words_agree(const tensor *t, const unsigned char *elements, const float *wide) {
    const struct fl_rounding rounding = {fl_view_rounding(t->storage), 0, 0};
    struct fl_stats ignored = {0};
    for (int64_t i = 0; i < t->count; i++) {
        uint16_t rounded, stored;
        const double value = wide[i];
        t->format->encode(&(struct fl_view){.data = &rounded, .count = 1}, 0, 1, &value, false, &rounding, &ignored);
        memcpy(&stored, elements + 2 * i, sizeof stored);
        double back;
        t->format->decode(&(struct fl_view){.data = &stored, .count = 1}, 0, 1, &back);
        if (rounded != stored && !(back != back && value != value))
            return false;
    }
    return true;
}

static tensor_status check_wide(const tensor *t, const unsigned char *elements) {
    const size_t bytes = wide_bytes(t);
    void *wide = fl_alloc(bytes + element_bytes(t)); /* as they are aligned in a tensor */
    if (!wide)
        return fl_fail(TENSOR_E_MEMORY, "state: no memory to check %zu bytes", bytes);
    unsigned char *copy = (unsigned char *)wide + bytes;
    memcpy(wide, elements + element_bytes(t), bytes);
    memcpy(copy, elements, element_bytes(t));
    const bool good = t->format->arithmetic == FL_ARITHMETIC_SHARED
                          ? mantissas_agree((const int16_t *)copy, wide, t->count)
                          : words_agree(t, copy, wide);
    fl_free(wide);
    return good ? TENSOR_OK
                : fl_fail(TENSOR_E_DATA, "state: elements of a %s tensor are not the rounding of their wide part",
                          t->format->name);
}

tensor_status fl_state_check(const tensor *t, bool elements, const void *bytes) {
    struct fl_slot slot;
    memcpy(&slot, bytes, sizeof slot);
    const bool shared = t->format->arithmetic == FL_ARITHMETIC_SHARED;
    const bool good = shared ? possible(&slot.autoflex, t->format->e_min, t->format->e_max) && slot.e == slot.autoflex.e
                             : slot.e == 0;
    if (!good)
        return fl_fail(
            TENSOR_E_DATA,
            "state: exponent %d (before the write %d) of %d to %d, %d entries of history, next %d, predicted "
            "%g: no state of a %s tensor",
            slot.autoflex.e, slot.e, slot.autoflex.e_min, slot.autoflex.e_max, slot.autoflex.count, slot.autoflex.next,
            slot.autoflex.predicted, t->format->name);
    return elements && t->storage->wide ? check_wide(t, (const unsigned char *)bytes + sizeof slot) : TENSOR_OK;
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
    slot.autoflex.predictor = own->autoflex.predictor; /* its number may be another in another process */
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

void fl_tensor_place(tensor *t, void *memory) {
    t->storage->data = memory;
}

void fl_tensor_hide(tensor *t, bool hidden) {
    t->storage->hidden = hidden;
}
