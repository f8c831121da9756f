/* values.h - functions that loads and stores of host numbers share. */
#ifndef FL_VALUES_H
#define FL_VALUES_H

#include "core/queue/queue.h"
#include "core/tensor/transfer.h"

/* Submits a load of t from a source on the same device. */
tensor_status fl_submit_load(const char *what, tensor *t, const struct fl_source *source);
/* Loads t, on another device, from t->count values of the host, doubles or floats of `bytes` each; copies them before
 * it returns. */
tensor_status fl_load_through(const char *what, tensor *t, const void *values, size_t bytes, bool doubles);
/* Checks that the values are not NULL, and that the tensor has its elements and as many as `count`. */
tensor_status fl_check_load(const char *what, const tensor *t, const void *values, int64_t count);
tensor_status fl_check_store(const char *what, const tensor *t, const void *values, int64_t count);

/* A tensor as the host can read it: in place, or a copy, which fl_free(seen.copy) releases. */
struct fl_seen {
    struct fl_view view;
    void *copy;
};
tensor_status fl_see(struct fl_seen *seen, const char *what, const tensor *t);

#endif
