/* slots.c - the arrays that contain a device's slots, and copies of all of them. The host notes which are in use; an
 * array is released when its last slot is free. */
#include "core/base/fail.h"
#include "core/queue/fetch.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/values/slot_copies.h"
#include <pthread.h>

enum { ARRAY = 64 /* slots */ };

struct fl_slot_array {
    struct fl_slot_array *next;
    struct fl_slot *slots; /* on the device */
    int used;
    bool taken[ARRAY];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* After a fork, the lock is free in the child, and the data that it guards are consistent. */
static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static void take_lock(void) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

/* An array with a free slot; NULL without memory. */
static struct fl_slot_array *array_with_room(struct tensor_device *device) {
    struct fl_slot_array *a = device->slots;
    while (a && a->used == ARRAY)
        a = a->next;
    if (a)
        return a;
    a = fl_alloc_zero(sizeof *a);
    struct fl_slot *slots = a ? device->allocate(device, ARRAY * sizeof *slots) : NULL;
    if (!slots) {
        fl_free(a);
        return NULL;
    }
    a->slots = slots;
    a->next = device->slots;
    device->slots = a;
    return a;
}

struct fl_slot *fl_slot_new(struct tensor_device *device) {
    take_lock();
    struct fl_slot_array *a = array_with_room(device);
    int i = 0;
    while (a && a->taken[i])
        i++;
    if (a) {
        a->taken[i] = true;
        a->used++;
    }
    pthread_mutex_unlock(&lock);
    return a ? &a->slots[i] : NULL;
}

void fl_slot_free(struct tensor_device *device, struct fl_slot *slot) {
    if (!slot)
        return;
    take_lock();
    struct fl_slot_array **link = &device->slots, *empty = NULL;
    while (!(slot >= (*link)->slots && slot < (*link)->slots + ARRAY))
        link = &(*link)->next;
    struct fl_slot_array *a = *link;
    a->taken[slot - a->slots] = false;
    if (--a->used == 0) {
        *link = a->next;
        empty = a;
    }
    pthread_mutex_unlock(&lock);
    if (empty) {
        device->release(device, empty->slots);
        fl_free(empty);
    }
}

/* --- copies of all slots ------------------------------------------------------------------------------------------ */

struct array_copy {
    const struct fl_slot *slots; /* on the device */
    struct fl_fetch fetch;
    struct fl_slot copy[ARRAY];
};

struct fl_slot_copies {
    struct array_copy **arrays;
    int count, made; /* arrays at this moment; elements allocated */
};

/* Stores the addresses of the device's arrays, at most `room` of them; returns how many there are. */
static int list_arrays(const struct tensor_device *device, const struct fl_slot **slots, int room) {
    int count = 0;
    take_lock();
    for (const struct fl_slot_array *a = device->slots; a; a = a->next, count++)
        if (count < room)
            slots[count] = a->slots;
    pthread_mutex_unlock(&lock);
    return count;
}

static bool make_room(struct fl_slot_copies *c, int count) {
    if (count <= c->made)
        return true;
    struct array_copy **grown = fl_alloc_zero((size_t)count * sizeof *grown);
    if (!grown)
        return false;
    for (int i = 0; i < c->made; i++)
        grown[i] = c->arrays[i];
    fl_free(c->arrays);
    c->arrays = grown;
    while (c->made < count && (grown[c->made] = fl_alloc_zero(sizeof **grown)))
        c->made++;
    return c->made == count;
}

enum { MOST_ARRAYS = 4096 };

static tensor_status begin_copies(struct tensor_device *device, struct fl_slot_copies *c) {
    const struct fl_slot *slots[MOST_ARRAYS];
    const int count = list_arrays(device, slots, MOST_ARRAYS);
    c->count = 0;
    if (count > MOST_ARRAYS || !make_room(c, count))
        return fl_fail(TENSOR_E_MEMORY, "slots: no memory to copy %d arrays of %s", count, device->name);
    for (; c->count < count; c->count++) {
        struct array_copy *a = c->arrays[c->count];
        a->slots = slots[c->count];
        const tensor_status status = fl_fetch_begin(device, &a->fetch, a->slots, sizeof a->copy);
        if (status)
            return status;
    }
    return TENSOR_OK;
}

void fl_slot_copies_drop(struct fl_slot_copies *c) {
    for (int i = 0; c && i < c->made; i++)
        fl_fetch_drop(&c->arrays[i]->fetch);
}

tensor_status fl_slot_copies_begin(struct tensor_device *device, struct fl_slot_copies **copies) {
    if (!*copies && !(*copies = fl_alloc_zero(sizeof **copies)))
        return fl_fail(TENSOR_E_MEMORY, "slots: no memory for copies");
    const tensor_status status = begin_copies(device, *copies);
    if (status)
        fl_slot_copies_drop(*copies);
    return status;
}

tensor_status fl_slot_copies_end(struct tensor_device *device, struct fl_slot_copies *c) {
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < c->count; i++) {
        const tensor_status ended = fl_fetch_end(device, &c->arrays[i]->fetch, c->arrays[i]->copy);
        status = status ? status : ended;
    }
    return status;
}

const struct fl_slot *fl_slot_then(const struct fl_slot_copies *c, const tensor *t) {
    const struct fl_slot *slot = t->storage->slot;
    if (!c)
        return fl_slot_of(t);
    for (int i = 0; i < c->count; i++) {
        const struct array_copy *a = c->arrays[i];
        if (slot >= a->slots && slot < a->slots + ARRAY)
            return &a->copy[slot - a->slots];
    }
    return NULL;
}

bool fl_has_slot(const tensor *t, const struct fl_slot *slot) {
    return t->storage->slot == slot;
}

void fl_slot_copies_free(struct tensor_device *device, struct fl_slot_copies *c) {
    for (int i = 0; c && i < c->made; i++) {
        fl_fetch_clear(device, &c->arrays[i]->fetch);
        fl_free(c->arrays[i]);
    }
    if (c)
        fl_free(c->arrays);
    fl_free(c);
}
