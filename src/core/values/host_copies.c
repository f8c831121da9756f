/* host_copies.c - tensors of a device that are copied to the host and back together. */
#include "core/values/host_copies.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/table/slot.h"
#include <string.h>

/* Both pieces of memory have, for each tensor, its slot and its elements. */
struct one {
    tensor *of, *copy;
    size_t slot, elements; /* where they are */
};

struct fl_host_copies {
    struct tensor_device *device;
    char *here, *there;
    size_t bytes;
    int count;
    struct one *all;
};

static size_t element_bytes(const tensor *t) {
    return (size_t)t->count * (size_t)t->format->bytes;
}

static tensor_status place(struct fl_host_copies *c, tensor *const *of) {
    for (int i = 0; i < c->count; i++) {
        struct one *one = &c->all[i];
        one->of = of[i];
        one->slot = c->bytes;
        one->elements = one->slot + fl_line_bytes(sizeof(struct fl_slot));
        c->bytes = one->elements + fl_line_bytes(element_bytes(of[i]));
    }
    if (!(c->here = fl_alloc_zero(c->bytes)))
        return fl_fail(TENSOR_E_MEMORY, "copies: no memory for %zu bytes", c->bytes);
    if (!(c->there = c->device->allocate(c->device, c->bytes)))
        return fl_no_memory(c->device, "copies", c->bytes);
    for (int i = 0; i < c->count; i++) {
        struct one *one = &c->all[i];
        one->copy = tensor_new_on(one->of->format->id, one->of->ndim, one->of->shape, c->here + one->elements,
                                  element_bytes(one->of));
        if (!one->copy)
            return tensor_error_status();
    }
    return TENSOR_OK;
}

struct fl_host_copies *fl_host_copies_new(tensor *const *of, int count) {
    struct fl_host_copies *c = fl_alloc_zero(sizeof *c);
    if (c) {
        c->device = of[0]->storage->device;
        c->count = count;
        c->all = fl_alloc_zero((size_t)count * sizeof *c->all);
    }
    if (!c || !c->all)
        fl_fail(TENSOR_E_MEMORY, "copies: no memory for %d tensors", count);
    else if (!place(c, of))
        return c;
    fl_host_copies_free(c);
    return NULL;
}

void fl_host_copies_free(struct fl_host_copies *c) {
    if (!c)
        return;
    for (int i = 0; i < c->count && c->all; i++)
        tensor_free(c->all[i].copy);
    if (c->there)
        c->device->release(c->device, c->there);
    fl_free(c->here);
    fl_free(c->all);
    fl_free(c);
}

tensor *fl_host_copy(const struct fl_host_copies *c, int i) {
    return c->all[i].copy;
}

tensor_status fl_host_copies_fetch(struct fl_host_copies *c) {
    struct fl_queue *queue = fl_device_queue(c->device);
    for (int i = 0; i < c->count; i++) {
        const struct one *one = &c->all[i];
        TRY(fl_copy(queue, c->there + one->slot, one->of->storage->slot, sizeof(struct fl_slot)));
        TRY(fl_copy(queue, c->there + one->elements, one->of->storage->data, element_bytes(one->of)));
    }
    TRY(fl_get(queue, c->here, c->there, c->bytes));
    for (int i = 0; i < c->count; i++) {
        const struct one *one = &c->all[i];
        struct fl_storage *s = one->copy->storage;
        memcpy(s->slot, c->here + one->slot, sizeof *s->slot);
        s->rounding = one->of->storage->rounding;
        s->seed = one->of->storage->seed;
    }
    return TENSOR_OK;
}

tensor_status fl_host_copies_return(struct fl_host_copies *c, int first) {
    struct fl_queue *queue = fl_device_queue(c->device);
    const size_t begin = c->all[first].slot;
    for (int i = first; i < c->count; i++)
        memcpy(c->here + c->all[i].slot, c->all[i].copy->storage->slot, sizeof(struct fl_slot));
    TRY(fl_put(queue, c->there + begin, c->here + begin, c->bytes - begin));
    for (int i = first; i < c->count; i++) {
        const struct one *one = &c->all[i];
        TRY(fl_copy(queue, one->of->storage->slot, c->there + one->slot, sizeof(struct fl_slot)));
        TRY(fl_copy(queue, one->of->storage->data, c->there + one->elements, element_bytes(one->of)));
    }
    return TENSOR_OK;
}
