/* slots.c - the arrays that a device's slots come from. What is in use is noted on the host; an array goes back when
 * its last slot is free. */
#include "core/memory.h"
#include "core/queue.h"
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

/* A child gets a lock that nobody holds, and what it guards in one piece. */
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

/* One with a free slot; NULL without memory. */
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
