/* fetch.h - copies from a device to the host while the host queues more tasks. fl_fetch_begin queues the copy;
 * fl_fetch_end waits until it is done, but not for tasks queued after it. On the host, and on devices without such
 * copies, fl_fetch_begin copies at once. */
#ifndef FL_FETCH_H
#define FL_FETCH_H

#include "flexlab/tensor.h"

struct fl_fetch {
    size_t bytes;
    void *copy;   /* the bytes, if fl_fetch_begin copied them at once */
    void *on_way; /* else the copy, an object of the device */
    size_t room;  /* bytes of either, from the first use */
    bool under_way;
};

/* Begins a copy. *fetch is {0} before the first use, and later uses copy no more bytes. After a failure no copy is
 * under way. */
tensor_status fl_fetch_begin(tensor_device *device, struct fl_fetch *fetch, const void *from, size_t bytes);
/* The same of bytes that later tasks do not write until fl_fetch_end: these tasks do not wait for the copy. It says
 * nothing of tasks that have failed. */
tensor_status fl_fetch_begin_beside(tensor_device *device, struct fl_fetch *fetch, const void *from, size_t bytes);
/* Whether fl_fetch_end would not wait. */
tensor_status fl_fetch_look(tensor_device *device, const struct fl_fetch *fetch, bool *arrived);
/* Ends the copy: stores the bytes in memory of the host. */
tensor_status fl_fetch_end(tensor_device *device, struct fl_fetch *fetch, void *to);
/* Drops a copy under way. */
void fl_fetch_drop(struct fl_fetch *fetch);
/* Queues a copy of all elements of t within its device, to fetch them even if a later task overwrites t. */
tensor_status fl_fetch_note(const tensor *t, void *to);
/* Frees the memory, even if a copy is under way; *fetch is {0} afterwards. */
void fl_fetch_clear(tensor_device *device, struct fl_fetch *fetch);

#endif
