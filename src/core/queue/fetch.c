/* fetch.c - bytes on their way to the host. */
#include "core/queue/fetch.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include <string.h>

/* For devices without such copies: copies at once, into memory of the size that the first use requires. */
static tensor_status take_now(struct fl_queue *queue, struct fl_fetch *f, const void *from, size_t bytes) {
    if (!f->copy && !(f->copy = fl_alloc(bytes)))
        return fl_fail(TENSOR_E_MEMORY, "fetch: no memory for %zu bytes", bytes);
    return fl_get(queue, f->copy, from, bytes);
}

static tensor_status begin(tensor_device *device, struct fl_fetch *f, const void *from, size_t bytes, bool beside) {
    struct fl_queue *queue = fl_device_queue(device);
    if (f->under_way || (f->room && bytes > f->room))
        return fl_fail(TENSOR_E_ARGUMENT,
                       f->under_way ? "fetch: %zu bytes while others are under way"
                                    : "fetch: %zu bytes, more than at first",
                       bytes);
    const tensor_status status =
        device->fetch ? device->fetch(queue, &f->on_way, from, bytes, beside) : take_now(queue, f, from, bytes);
    if (status)
        return status;
    f->room = f->room ? f->room : bytes;
    f->bytes = bytes;
    f->under_way = true;
    return TENSOR_OK;
}

tensor_status fl_fetch_begin(tensor_device *device, struct fl_fetch *f, const void *from, size_t bytes) {
    return begin(device, f, from, bytes, false);
}

tensor_status fl_fetch_begin_beside(tensor_device *device, struct fl_fetch *f, const void *from, size_t bytes) {
    return begin(device, f, from, bytes, true);
}

tensor_status fl_fetch_look(tensor_device *device, const struct fl_fetch *f, bool *arrived) {
    *arrived = true;
    return device->fetch && f->under_way ? device->arrived(fl_device_queue(device), f->on_way, arrived) : TENSOR_OK;
}

tensor_status fl_fetch_end(tensor_device *device, struct fl_fetch *f, void *to) {
    if (!f->under_way)
        return fl_fail(TENSOR_E_ARGUMENT, "fetch: nothing is under way");
    f->under_way = false;
    if (device->fetch)
        return device->fetched(fl_device_queue(device), f->on_way, to);
    memcpy(to, f->copy, f->bytes);
    return TENSOR_OK;
}

void fl_fetch_drop(struct fl_fetch *f) {
    f->under_way = false;
}

tensor_status fl_fetch_note(const tensor *t, void *to) {
    const struct fl_storage *s = t->storage;
    return fl_copy(fl_queue_of(s), to, s->data, (size_t)t->count * (size_t)t->format->bytes);
}

void fl_fetch_clear(tensor_device *device, struct fl_fetch *f) {
    if (f->on_way)
        device->give_up_fetch(fl_device_queue(device), f->on_way);
    fl_free(f->copy);
    *f = (struct fl_fetch){0};
}

const struct fl_slot *fl_slot_of(const tensor *t) {
    struct fl_storage *s = t->storage;
    if (s->device->host)
        return s->slot;
    return fl_get(fl_queue_of(s), s->seen, s->slot, sizeof *s->slot) ? NULL : s->seen;
}
