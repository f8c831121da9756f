/* tensor_pool.h - the tensors of a sequence of calls, and pictures of all of them: to detect what a call changed, to
 * undo it, to compare two implementations. */
#ifndef FL_FUZZ_TENSOR_POOL_H
#define FL_FUZZ_TENSOR_POOL_H

#include "core/tensor/tensor_object.h"
#include "fuzz.h"

enum { SLOTS = 8, MOST_ELEMENTS = 4096, NO_BASE = -1 };

struct slot {
    tensor *t;
    int base;     /* the slot that this is a view of, else NO_BASE */
    void *memory; /* of tensor_new_on, else NULL */
};
static struct slot pool[SLOTS];

/* Frees views before their base. */
static inline void pool_free(int i) {
    for (int k = 0; k < SLOTS; k++)
        if (k != i && pool[k].t && pool[k].base == i)
            pool_free(k);
    tensor_free(pool[i].t);
    free(pool[i].memory);
    pool[i] = (struct slot){NULL, NO_BASE, NULL};
}

static inline bool pool_owns(int i) {
    return pool[i].t && pool[i].base == NO_BASE;
}

/* --- pictures ------------------------------------------------------------------------------------------------------
 */

struct picture {
    struct fl_storage storage;
    struct fl_slot slot;
    unsigned char data[MOST_ELEMENTS * 4], wide[MOST_ELEMENTS * 4];
};

static inline size_t data_bytes(const tensor *t) {
    return (size_t)t->count * (size_t)t->format->bytes;
}

static inline size_t wide_bytes(const tensor *t) {
    return t->storage->wide ? (size_t)t->count * (size_t)t->format->wide_bytes : 0;
}

static inline void pool_picture(struct picture pictures[SLOTS]) {
    for (int i = 0; i < SLOTS; i++)
        if (pool_owns(i)) {
            pictures[i].storage = *pool[i].t->storage;
            pictures[i].slot = *pool[i].t->storage->slot;
            memcpy(pictures[i].data, pool[i].t->storage->data, data_bytes(pool[i].t));
            if (wide_bytes(pool[i].t))
                memcpy(pictures[i].wide, pool[i].t->storage->wide, wide_bytes(pool[i].t));
        }
}

/* Restores the tensors from the pictures, which are of the same tensors. */
static inline void pool_restore(const struct picture pictures[SLOTS]) {
    for (int i = 0; i < SLOTS; i++)
        if (pool_owns(i)) {
            *pool[i].t->storage = pictures[i].storage;
            *pool[i].t->storage->slot = pictures[i].slot;
            memcpy(pool[i].t->storage->data, pictures[i].data, data_bytes(pool[i].t));
            if (wide_bytes(pool[i].t))
                memcpy(pool[i].t->storage->wide, pictures[i].wide, wide_bytes(pool[i].t));
        }
}

/* --- comparison ----------------------------------------------------------------------------------------------------
 */

static inline bool same_double(double a, double b) {
    return !memcmp(&a, &b, sizeof a) || (a != a && b != b);
}

static inline bool same_stats(const tensor_stats *a, const tensor_stats *b) {
    return same_double(a->maximum, b->maximum) && a->gamma == b->gamma && a->saturated == b->saturated &&
           a->flushed == b->flushed && a->nonfinite == b->nonfinite && a->elements == b->elements &&
           a->writes == b->writes;
}

static inline bool same_history(const struct autoflex *a, const struct autoflex *b) {
    for (int i = 0; i < a->count; i++)
        if (!same_double(a->history[i], b->history[i]))
            return false;
    return a->predictor == b->predictor && a->e == b->e && a->initialised == b->initialised &&
           a->written == b->written && a->count == b->count && a->next == b->next &&
           same_double(a->predicted, b->predicted) && a->overflows == b->overflows &&
           a->clamped_low == b->clamped_low && a->clamped_high == b->clamped_high && a->zero_writes == b->zero_writes;
}

/* The first element at which two stored blocks of t's format differ, -1 for none. Payload and sign of a NaN are not
 * part of the contract; `exact` compares them too. */
static inline int64_t different_element(const tensor *t, const void *a, const void *b, bool exact) {
    if (!memcmp(a, b, data_bytes(t)))
        return -1;
    for (int64_t i = 0; i < t->count; i++) {
        double x, y;
        const struct fl_view va = {(void *)(uintptr_t)a, NULL, 0, t->count},
                             vb = {(void *)(uintptr_t)b, NULL, 0, t->count};
        t->format->decode(t->format, &va, i, 1, &x);
        t->format->decode(t->format, &vb, i, 1, &y);
        const size_t size = (size_t)t->format->bytes;
        if (exact ? memcmp((const char *)a + size * (size_t)i, (const char *)b + size * (size_t)i, size)
                  : !same_double(x, y))
            return i;
    }
    return -1;
}

static inline int64_t different_wide(const tensor *t, const unsigned char *a, const unsigned char *b, bool exact) {
    for (size_t i = 0; i < wide_bytes(t) / 4; i++)
        if (memcmp(a + 4 * i, b + 4 * i, 4)) {
            float x, y;
            memcpy(&x, a + 4 * i, 4);
            memcpy(&y, b + 4 * i, 4);
            if (exact || t->format->arithmetic == FL_ARITHMETIC_SHARED || x == x || y == y)
                return (int64_t)i;
        }
    return -1;
}

/* Requires that every tensor equals its picture. */
static inline void pool_must_equal(const struct picture pictures[SLOTS], bool exact, const char *what) {
    for (int i = 0; i < SLOTS; i++) {
        if (!pool_owns(i))
            continue;
        const tensor *t = pool[i].t;
        const struct fl_storage *now = t->storage, *then = &pictures[i].storage;
        const struct fl_slot *slot = now->slot, *before = &pictures[i].slot;
        char shape[TENSOR_TEXT];
        fl_shape_text(t, shape);
        MUST(now->data == then->data && now->wide == then->wide, "%s: slot %d moved", what, i);
        const int64_t at = different_element(t, now->data, pictures[i].data, exact);
        MUST(at < 0, "%s: slot %d, %s %s: element %lld differs (e %d and %d)", what, i, t->format->name, shape,
             (long long)at, slot->autoflex.e, before->autoflex.e);
        const int64_t wide_at = now->wide ? different_wide(t, now->wide, pictures[i].wide, exact) : -1;
        MUST(wide_at < 0, "%s: slot %d, %s %s: element %lld of the wide copy differs", what, i, t->format->name, shape,
             (long long)wide_at);
        MUST(same_history(&slot->autoflex, &before->autoflex), "%s: slot %d, %s %s: e %d and %d, history %d and %d",
             what, i, t->format->name, shape, slot->autoflex.e, before->autoflex.e, slot->autoflex.count,
             before->autoflex.count);
        MUST(same_stats(&slot->last, &before->last) && same_stats(&slot->total, &before->total),
             "%s: slot %d, %s %s: statistics differ: maximum %a and %a, gamma %d and %d, saturated %lld and %lld, "
             "flushed %lld and %lld, nonfinite %lld and %lld",
             what, i, t->format->name, shape, slot->last.maximum, before->last.maximum, slot->last.gamma,
             before->last.gamma, (long long)slot->last.saturated, (long long)before->last.saturated,
             (long long)slot->last.flushed, (long long)before->last.flushed, (long long)slot->last.nonfinite,
             (long long)before->last.nonfinite);
        MUST(now->rounding == then->rounding && now->seed == then->seed && slot->writes == before->writes,
             "%s: slot %d: rounding, seed or number of writes differ", what, i);
    }
}

/* Checks the library's promises about each tensor, which hold at any time. */
static inline void pool_must_be_sound(void) {
    for (int i = 0; i < SLOTS; i++) {
        const tensor *t = pool[i].t;
        if (!t)
            continue;
        MUST(tensor_count(t) >= 1 && tensor_count(t) <= MOST_ELEMENTS, "%lld elements", (long long)tensor_count(t));
        int64_t count = 1;
        for (int k = 0; k < tensor_ndim(t); k++)
            count *= tensor_dim(t, k);
        MUST(count == tensor_count(t), "slot %d: %lld elements in a shape of %lld", i, (long long)tensor_count(t),
             (long long)count);
        if (!tensor_autoflex(t)) {
            MUST(tensor_exponent(t) == 0, "slot %d: exponent %d", i, tensor_exponent(t));
            continue;
        }
        MUST(tensor_exponent(t) >= t->format->e_min && tensor_exponent(t) <= t->format->e_max, "slot %d: exponent %d",
             i, tensor_exponent(t));
        for (int64_t k = 0; t->format->bytes == 2 && k < t->count; k++)
            MUST(((const int16_t *)tensor_const_data(t))[k] != INT16_MIN, "slot %d: mantissa %lld is -32768", i,
                 (long long)k);
    }
}

#endif
