/* slots.c - the arrays that the host's slots come from. An array goes back when its last slot is free. */
#include "core/memory.h"
#include "core/slot.h"
#include <pthread.h>

enum { ARRAY = 64 /* slots */ };

static struct array {
    struct array *next;
    struct fl_slot *slots;
    int used;
} * arrays;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct fl_slot *take(struct array *a) {
    int i = 0;
    while (a->slots[i].used)
        i++;
    a->used++;
    memset(&a->slots[i], 0, sizeof a->slots[i]);
    a->slots[i].used = 1;
    return &a->slots[i];
}

/* One with a free slot; NULL without memory. Array and slots are one block. */
static struct array *array_with_room(void) {
    struct array *a = arrays;
    while (a && a->used == ARRAY)
        a = a->next;
    if (a)
        return a;
    const size_t head = (sizeof *a + FL_ALIGNMENT - 1) / FL_ALIGNMENT * FL_ALIGNMENT;
    a = fl_alloc_zero(head + ARRAY * sizeof *a->slots);
    if (!a)
        return NULL;
    a->slots = (struct fl_slot *)((char *)a + head);
    a->next = arrays;
    arrays = a;
    return a;
}

struct fl_slot *fl_slot_new(void) {
    pthread_mutex_lock(&lock);
    struct array *a = array_with_room();
    struct fl_slot *slot = a ? take(a) : NULL;
    pthread_mutex_unlock(&lock);
    return slot;
}

void fl_slot_free(struct fl_slot *slot) {
    if (!slot)
        return;
    pthread_mutex_lock(&lock);
    struct array **link = &arrays;
    while (!(slot >= (*link)->slots && slot < (*link)->slots + ARRAY))
        link = &(*link)->next;
    struct array *a = *link;
    slot->used = 0;
    if (--a->used == 0) {
        *link = a->next;
        fl_free(a);
    }
    pthread_mutex_unlock(&lock);
}
