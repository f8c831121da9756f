/* describe_there.h - elements of a tensor on a device examined there: tasks that queue without waiting, and whose
 * results the caller fetches. */
#ifndef FL_DESCRIBE_THERE_H
#define FL_DESCRIBE_THERE_H

#include "core/tensor/shadowed.h"
#include "flexlab/tensor.h"

/* Whether the device does so. */
bool fl_examines_there(const tensor_device *device);

/* Shadow formats of a tensor: as many states and results, on its device. */
struct fl_shadows {
    struct fl_shadowed *states;
    struct fl_measured *measured;
    const tensor_format *formats;
    int count; /* at most FL_MOST_SHADOWS */
};

/* What tensor_describe counts, into memory of the device; `number` is stored with it. numbers: memory for
 * fl_described_room(elements) doubles. The shadows follow the last write of the tensor, and the same elements are
 * measured in each format at its exponent: what tensor_measure_in counts. */
tensor_status fl_describe_there(struct fl_described *to, int64_t number, double *numbers, const tensor *x,
                                const struct fl_shadows *shadows);
/* The description that follows from it, on the host, and what a format makes of the elements. */
void fl_describe_arrived(tensor_description *to, const struct fl_described *of, const tensor *x);
void fl_measure_arrived(tensor_measure *to, const struct fl_measured *of, const tensor *x);
/* The state of a shadow of x, which lies on a device: `a`, which knows so many writes of its life. shared: the
 * format has an exponent for the tensor; loaded: x is loaded, not written by operations. */
struct fl_shadowed fl_shadowed_of(const tensor *x, const struct autoflex *a, bool shared, bool loaded, uint64_t writes);
/* Puts `count` states on the device; lets them follow the last write of their tensors. */
tensor_status fl_shadows_put(tensor_device *device, struct fl_shadowed *to, const struct fl_shadowed *from,
                             int64_t count);
tensor_status fl_shadows_follow(tensor_device *device, struct fl_shadowed *states, int64_t count);
/* What tensor_store_wide_f64 stores, into memory of the device, and the comparison of later values with these. */
tensor_status fl_keep_there(double *to, const tensor *x);
tensor_status fl_compare_there(struct fl_moved *to, int64_t number, double *numbers, double *before, const tensor *x);

#endif
