/* tensor_life.c - creating, freeing and examining tensors. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/table/format_fault.h"
#include "core/values/slot_copies.h"
#include <string.h>

static tensor_status check_shape(const char *what, const struct fl_format *format, int ndim, const int64_t *shape,
                                 int64_t *count) {
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "%s: %d dimensions, expected 1 to %d", what, ndim, TENSOR_MAX_DIMS);
    if (!shape)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: shape is NULL", what);
    const int64_t limit = ((int64_t)1 << 40) / format->bytes;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 1)
            return fl_fail(TENSOR_E_SHAPE, "%s: dimension %d is %lld, expected at least 1", what, i,
                           (long long)shape[i]);
        if (shape[i] > limit / n)
            return fl_fail(TENSOR_E_SHAPE, "%s: dimension %d is %lld, the tensor would exceed 2^40 bytes", what, i,
                           (long long)shape[i]);
        n *= shape[i];
    }
    *count = n;
    return TENSOR_OK;
}

static tensor *make(const char *what, const struct fl_format *format, int ndim, const int64_t *shape,
                    struct fl_storage *storage, int64_t count) {
    tensor *t = fl_alloc_zero(sizeof *t);
    if (!t) {
        fl_fail(TENSOR_E_MEMORY, "%s: no memory for a tensor object", what);
        return NULL;
    }
    t->format = format;
    t->ndim = ndim;
    memcpy(t->shape, shape, (size_t)ndim * sizeof shape[0]);
    t->count = count;
    t->storage = storage;
    return t;
}

/* The empty slot of a new tensor, written to the device. */
static struct fl_slot *new_slot(struct tensor_device *device, const struct fl_format *format) {
    struct fl_slot fresh;
    memset(&fresh, 0, sizeof fresh);
    if (fl_has_exponent(format) &&
        (autoflex_reset(&fresh.autoflex, autoflex_find(format->predictor), format->e_min, format->e_max) ||
         (format->element ? autoflex_set_largest(&fresh.autoflex, format->element->largest)
                          : autoflex_set_bits(&fresh.autoflex, format->bits))))
        return NULL;
    fresh.e = fresh.autoflex.e;
    struct fl_slot *slot = fl_slot_new(device);
    if (slot && fl_put(fl_device_queue(device), slot, &fresh, sizeof fresh)) {
        fl_slot_free(device, slot);
        slot = NULL;
    }
    return slot;
}

static void free_storage(struct fl_storage *s) {
    if (!s)
        return;
    struct tensor_device *device = s->device;
    if (s->owns_data && s->data)
        device->release(device, s->data);
    if (s->wide)
        device->release(device, s->wide);
    fl_slot_free(device, s->slot);
    fl_free(s->seen);
    fl_free(s);
}

/* memory NULL: the storage allocates its own. */
static struct fl_storage *new_storage(struct tensor_device *device, const struct fl_format *format, int64_t count,
                                      void *memory) {
    struct fl_storage *s = fl_alloc_zero(sizeof *s);
    if (!s)
        return NULL;
    *s = (struct fl_storage){.device = device,
                             .format = format,
                             .count = count,
                             .data = memory,
                             .owns_data = !memory,
                             .by_hand = memory && device->host};
    if (!memory)
        s->data = device->allocate(device, (size_t)count * (size_t)format->bytes);
    s->slot = s->data ? new_slot(device, format) : NULL;
    if (s->slot && !device->host)
        s->seen = fl_alloc_zero(sizeof *s->seen);
    if (s->slot && (device->host || s->seen))
        return s;
    free_storage(s);
    return NULL;
}

static tensor *make_with_storage(const char *what, struct tensor_device *device, tensor_format id, int ndim,
                                 const int64_t *shape, void *memory, size_t bytes) {
    const struct fl_format *format = fl_format_of(id);
    if (!device) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: device is NULL", what);
        return NULL;
    }
    if (!format) {
        fl_fail(TENSOR_E_FORMAT, "%s: unknown format %d", what, (int)id);
        return NULL;
    }
    char fault[200];
    if (fl_format_fault(format, fault, sizeof fault)) {
        fl_fail(TENSOR_E_FORMAT, "%s: %s has %s", what, format->name, fault);
        return NULL;
    }
    if (format->element && !device->host) {
        fl_fail(TENSOR_E_UNSUPPORTED, "%s: %s, which the device '%s' does not compute: expected cpu", what,
                format->name, device->name);
        return NULL;
    }
    int64_t count;
    if (check_shape(what, format, ndim, shape, &count))
        return NULL;
    size_t need = (size_t)count * (size_t)format->bytes;
    if (memory && bytes < need) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: %zu bytes of memory, expected at least %zu", what, bytes, need);
        return NULL;
    }
    if (memory && (uintptr_t)memory % FL_ALIGNMENT) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: memory %p is not aligned to %d bytes", what, memory, FL_ALIGNMENT);
        return NULL;
    }
    struct fl_storage *storage = new_storage(device, format, count, memory);
    tensor *t = storage ? make(what, format, ndim, shape, storage, count) : NULL;
    if (!t) {
        free_storage(storage);
        if (!device->host && fl_wait(fl_device_queue(device))) /* the wait has set the message of the failure */
            return NULL;
        fl_no_memory(device, what, need);
    }
    return t;
}

tensor *tensor_new(tensor_format format, int ndim, const int64_t *shape) {
    return make_with_storage("tensor_new", &fl_host, format, ndim, shape, NULL, 0);
}

tensor *tensor_new_in(tensor_device *device, tensor_format format, int ndim, const int64_t *shape) {
    return make_with_storage("tensor_new_in", device, format, ndim, shape, NULL, 0);
}

static tensor *new_at(const char *what, tensor_device *device, tensor_format format, int ndim, const int64_t *shape,
                      void *memory, size_t bytes) {
    if (!memory) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: memory is NULL", what);
        return NULL;
    }
    return make_with_storage(what, device, format, ndim, shape, memory, bytes);
}

tensor *tensor_new_on(tensor_format format, int ndim, const int64_t *shape, void *memory, size_t bytes) {
    return new_at("tensor_new_on", &fl_host, format, ndim, shape, memory, bytes);
}

tensor *tensor_new_at(tensor_device *device, tensor_format format, int ndim, const int64_t *shape, void *memory,
                      size_t bytes) {
    return new_at("tensor_new_at", device, format, ndim, shape, memory, bytes);
}

tensor_device *tensor_device_of(const tensor *t) {
    return t ? t->storage->device : NULL;
}

tensor *tensor_new_view(tensor *base, int ndim, const int64_t *shape) {
    if (!base) {
        fl_fail(TENSOR_E_ARGUMENT, "tensor_new_view: base is NULL");
        return NULL;
    }
    int64_t count;
    if (fl_need_contiguous("tensor_new_view", base) ||
        check_shape("tensor_new_view", base->format, ndim, shape, &count))
        return NULL;
    if (count != base->count) {
        char text[TENSOR_TEXT];
        fl_fail(TENSOR_E_SHAPE, "tensor_new_view: %lld elements, the base %s has %lld", (long long)count,
                fl_shape_text(base, text), (long long)base->count);
        return NULL;
    }
    tensor *t = make("tensor_new_view", base->format, ndim, shape, base->storage, count);
    if (t)
        t->is_view = true;
    return t;
}

/* Checks that the first and the last element of a view lie within the base, dimension by dimension, so that no sum
 * overflows. */
static tensor_status check_strides(const tensor *base, int ndim, const int64_t *shape, const int64_t *stride,
                                   int64_t offset) {
    static const char what[] = "tensor_new_strided";
    int64_t least = offset, most = offset;
    if (offset < 0 || offset >= base->count)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: offset is %lld, expected 0 to %lld", what, (long long)offset,
                       (long long)base->count - 1);
    for (int d = 0; d < ndim; d++) {
        const int64_t steps = shape[d] - 1, reach = steps ? base->count / steps : 0;
        if (steps && (stride[d] > reach || stride[d] < -reach))
            least = -1;
        else if (steps && stride[d] < 0)
            least += steps * stride[d];
        else if (steps)
            most += steps * stride[d];
        if (least < 0 || most >= base->count)
            return fl_fail(TENSOR_E_ARGUMENT,
                           "%s: %lld elements with stride %lld in dimension %d leave the base, which has %lld", what,
                           (long long)shape[d], (long long)stride[d], d, (long long)base->count);
    }
    return TENSOR_OK;
}

tensor *tensor_new_strided(tensor *base, int ndim, const int64_t *shape, const int64_t *stride, int64_t offset) {
    static const char what[] = "tensor_new_strided";
    if (!base || !stride) {
        fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, base ? "stride" : "base");
        return NULL;
    }
    int64_t count;
    if (fl_need_contiguous(what, base) || check_shape(what, base->format, ndim, shape, &count) ||
        check_strides(base, ndim, shape, stride, offset))
        return NULL;
    tensor *t = make(what, base->format, ndim, shape, base->storage, count);
    if (!t)
        return NULL;
    t->is_view = t->is_strided = true;
    t->offset = offset;
    memcpy(t->stride, stride, (size_t)ndim * sizeof stride[0]);
    return t;
}

void tensor_free(tensor *t) {
    if (!t)
        return;
    if (!t->is_view)
        free_storage(t->storage);
    fl_free(t);
}

tensor_format tensor_format_of(const tensor *t) {
    return t ? t->format->id : FMT_NONE;
}
int tensor_ndim(const tensor *t) {
    return t ? t->ndim : 0;
}
int64_t tensor_dim(const tensor *t, int i) {
    return t && i >= 0 && i < t->ndim ? t->shape[i] : 0;
}
int64_t tensor_count(const tensor *t) {
    return t ? t->count : 0;
}

size_t tensor_bytes(const tensor *t) {
    return t ? (size_t)t->count * (size_t)(t->format->bytes + (t->storage->wide ? t->format->wide_bytes : 0)) : 0;
}

void *tensor_data(tensor *t) {
    if (!t || fl_need_host("tensor_data", t) || fl_need_elements("tensor_data", t))
        return NULL;
    t->storage->by_hand = true;
    return t->storage->data;
}
const void *tensor_const_data(const tensor *t) {
    return !t || fl_need_host("tensor_const_data", t) || fl_need_elements("tensor_const_data", t) ? NULL
                                                                                                  : t->storage->data;
}

int tensor_exponent(const tensor *t) {
    const struct fl_slot *slot = t ? fl_slot_of(t) : NULL;
    return slot ? slot->e : 0;
}

const struct autoflex *tensor_autoflex(const tensor *t) {
    const struct fl_slot *slot = t && fl_has_exponent(t->format) ? fl_slot_of(t) : NULL;
    return slot ? &slot->autoflex : NULL;
}

tensor_status tensor_statistics(tensor_stats *last, tensor_stats *total, const tensor *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_statistics: tensor is NULL");
    const struct fl_slot *slot = fl_slot_of(t);
    if (!slot)
        return tensor_error_status();
    if (last)
        *last = slot->last;
    if (total)
        *total = slot->total;
    return TENSOR_OK;
}

void tensor_reset_statistics(tensor *t) {
    static const tensor_stats none;
    if (!t)
        return;
    struct fl_queue *queue = fl_queue_of(t->storage);
    (void)fl_put(queue, &t->storage->slot->last, &none, sizeof none); /* the next wait reports a failure */
    (void)fl_put(queue, &t->storage->slot->total, &none, sizeof none);
}
