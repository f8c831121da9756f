/* host_copies.h - tensors of a device and a copy of each on the host, with its slot. Several are brought together: the
 * device collects them in one piece of memory, of which one copy goes to the host, or comes from it. */
#ifndef FL_HOST_COPIES_H
#define FL_HOST_COPIES_H

#include "core/queue/fetch.h"

struct fl_host_copies;

/* Of contiguous tensors without wide parts on one device other than the host, which outlive the copies. They come in
 * groups of so many, of which the last one is returned, and others are read. NULL on failure, with tensor_error() set.
 */
struct fl_host_copies *fl_host_copies_new(tensor *const *of, int count, int group);
void fl_host_copies_free(struct fl_host_copies *c); /* NULL is allowed */
/* The copy of tensor i. */
tensor *fl_host_copy(const struct fl_host_copies *c, int i);
/* Elements, slots and roundings of `count` tensors from number `first` on become those of the copies, of one that is
 * returned without its elements. Begins after the tasks that are queued, while later ones run; each range has a fetch
 * of its own, which fl_fetch_clear frees. */
tensor_status fl_host_copies_begin(struct fl_host_copies *c, int first, int count, struct fl_fetch *fetch);
tensor_status fl_host_copies_end(struct fl_host_copies *c, int first, int count, struct fl_fetch *fetch);
/* Elements and slots of the copies that are returned become those of their tensors. */
tensor_status fl_host_copies_return(struct fl_host_copies *c);

#endif
