/* host_copies.h - tensors of a device and a copy of each on the host, with its slot. They are brought together: the
 * device collects all in one piece of memory, of which one copy goes to the host, or comes from it. */
#ifndef FL_HOST_COPIES_H
#define FL_HOST_COPIES_H

#include "flexlab/tensor.h"

struct fl_host_copies;

/* Of contiguous tensors without wide parts on one device other than the host, which outlive the copies. NULL on
 * failure, with tensor_error() set. */
struct fl_host_copies *fl_host_copies_new(tensor *const *of, int count);
void fl_host_copies_free(struct fl_host_copies *c); /* NULL is allowed */
/* The copy of tensor i. */
tensor *fl_host_copy(const struct fl_host_copies *c, int i);
/* Elements, slots and roundings of all become those of the copies. Waits for the device. */
tensor_status fl_host_copies_fetch(struct fl_host_copies *c);
/* Elements and slots of the copies from number `first` on become those of their tensors. */
tensor_status fl_host_copies_return(struct fl_host_copies *c, int first);

#endif
