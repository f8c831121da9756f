/* host_copies.c - tensors of a device that are copied to the host and back together. */
#include "core/values/host_copies.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/table/slot.h"
#include <string.h>

/* Both pieces of memory have what is fetched, and after it what is returned. */
struct one {
    tensor *of, *copy;
    size_t slot, elements; /* where they are */
    size_t back;           /* where the slot is that is returned; 0: it is not */
};

struct fl_host_copies {
    struct tensor_device *device;
    char *here, *there;
    size_t fetched, bytes; /* of these the first are fetched */
    int count;
    struct one *all;
};

static size_t element_bytes(const tensor *t) {
    return (size_t)t->count * (size_t)t->format->bytes;
}

/* Room for so many bytes; where it is. */
static size_t add(struct fl_host_copies *c, size_t bytes) {
    const size_t at = c->bytes;
    c->bytes += fl_line_bytes(bytes);
    return at;
}

static tensor_status place(struct fl_host_copies *c, tensor *const *of, int group) {
    for (int i = 0; i < c->count; i++) {
        c->all[i].of = of[i];
        c->all[i].slot = add(c, sizeof(struct fl_slot));
        if ((i + 1) % group)
            c->all[i].elements = add(c, element_bytes(of[i]));
    }
    c->fetched = c->bytes;
    for (int i = group - 1; i < c->count; i += group) {
        c->all[i].back = add(c, sizeof(struct fl_slot));
        c->all[i].elements = add(c, element_bytes(of[i]));
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

struct fl_host_copies *fl_host_copies_new(tensor *const *of, int count, int group) {
    struct fl_host_copies *c = fl_alloc_zero(sizeof *c);
    if (c) {
        c->device = of[0]->storage->device;
        c->count = count;
        c->all = fl_alloc_zero((size_t)count * sizeof *c->all);
    }
    if (!c || !c->all)
        fl_fail(TENSOR_E_MEMORY, "copies: no memory for %d tensors", count);
    else if (!place(c, of, group))
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

/* The bytes that these have among what is fetched. */
static size_t bytes_of(const struct fl_host_copies *c, int first, int count) {
    const size_t end = first + count < c->count ? c->all[first + count].slot : c->fetched;
    return end - c->all[first].slot;
}

tensor_status fl_host_copies_begin(struct fl_host_copies *c, int first, int count, struct fl_fetch *fetch) {
    struct fl_queue *queue = fl_device_queue(c->device);
    for (int i = first; i < first + count; i++) {
        const struct one *one = &c->all[i];
        TRY(fl_copy(queue, c->there + one->slot, one->of->storage->slot, sizeof(struct fl_slot)));
        if (!one->back)
            TRY(fl_copy(queue, c->there + one->elements, one->of->storage->data, element_bytes(one->of)));
    }
    return fl_fetch_begin_beside(c->device, fetch, c->there + c->all[first].slot, bytes_of(c, first, count));
}

tensor_status fl_host_copies_end(struct fl_host_copies *c, int first, int count, struct fl_fetch *fetch) {
    TRY(fl_fetch_end(c->device, fetch, c->here + c->all[first].slot));
    for (int i = first; i < first + count; i++) {
        const struct one *one = &c->all[i];
        struct fl_storage *s = one->copy->storage;
        memcpy(s->slot, c->here + one->slot, sizeof *s->slot);
        s->rounding = one->of->storage->rounding;
        s->seed = one->of->storage->seed;
    }
    return TENSOR_OK;
}

tensor_status fl_host_copies_return(struct fl_host_copies *c) {
    struct fl_queue *queue = fl_device_queue(c->device);
    for (int i = 0; i < c->count; i++)
        if (c->all[i].back)
            memcpy(c->here + c->all[i].back, c->all[i].copy->storage->slot, sizeof(struct fl_slot));
    TRY(fl_put(queue, c->there + c->fetched, c->here + c->fetched, c->bytes - c->fetched));
    for (int i = 0; i < c->count; i++) {
        const struct one *one = &c->all[i];
        if (!one->back)
            continue;
        TRY(fl_copy(queue, one->of->storage->slot, c->there + one->back, sizeof(struct fl_slot)));
        TRY(fl_copy(queue, one->of->storage->data, c->there + one->elements, element_bytes(one->of)));
    }
    return TENSOR_OK;
}
