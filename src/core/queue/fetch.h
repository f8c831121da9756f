/* fetch.h - bytes of a device on their way to the host while it queues more work. Two parts: fl_fetch_begin takes its
 * place among the calls, fl_fetch_end waits for that place and no further. On a device that has no such copies, and on
 * the host, the first part does it all. */
#ifndef FL_FETCH_H
#define FL_FETCH_H

#include "flexlab/tensor.h"

struct fl_fetch {
    size_t bytes;
    void *copy;   /* the bytes, where the first part did it all */
    void *on_way; /* of the device */
    size_t room;  /* of either: what the first use of it asked for */
    bool under_way;
};

/* {0} before the first use, for at most as many bytes in later ones. Nothing is under way on failure. */
tensor_status fl_fetch_begin(tensor_device *device, struct fl_fetch *fetch, const void *from, size_t bytes);
/* The bytes, to memory of the host. */
tensor_status fl_fetch_end(tensor_device *device, struct fl_fetch *fetch, void *to);
/* What is under way is given up, after a wait. */
void fl_fetch_drop(struct fl_fetch *fetch);
/* Queues a copy of all elements of t to memory of its device: numbers that a later call overwrites, kept for a fetch.
 */
tensor_status fl_fetch_note(const tensor *t, void *to);
/* Frees, whatever is under way; {0} afterwards. */
void fl_fetch_clear(tensor_device *device, struct fl_fetch *fetch);

#endif
