/* values.h - what loads and stores of host numbers share. */
#ifndef FL_VALUES_H
#define FL_VALUES_H

#include "core/queue/queue.h"
#include "core/tensor/transfer.h"

/* Submits a load: the source, which lies where t does, becomes t's value. */
tensor_status fl_submit_load(const char *what, tensor *t, const struct fl_source *source);
/* Values of the host, t->count of `bytes` each, doubles or else floats, reach t on another device, and are there before
 * this returns. */
tensor_status fl_load_through(const char *what, tensor *t, const void *values, size_t bytes, bool doubles);
/* Not NULL, elements there, as many as the tensor has. */
tensor_status fl_check_load(const char *what, const tensor *t, const void *values, int64_t count);
tensor_status fl_check_store(const char *what, const tensor *t, const void *values, int64_t count);

/* The tensor as the host can read it: where it lies, or a copy, which goes back by fl_free(seen.copy). */
struct fl_seen {
    struct fl_view view;
    void *copy;
};
tensor_status fl_see(struct fl_seen *seen, const char *what, const tensor *t);

#endif
