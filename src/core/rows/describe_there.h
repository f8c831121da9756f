/* describe_there.h - elements of a tensor on a device examined there: tasks that queue without waiting, and whose
 * results the caller fetches. */
#ifndef FL_DESCRIBE_THERE_H
#define FL_DESCRIBE_THERE_H

#include "core/tensor/described.h"
#include "flexlab/tensor.h"

/* Whether the device does so. */
bool fl_examines_there(const tensor_device *device);
/* What tensor_describe counts, into memory of the device; `number` is stored with it. numbers: memory for
 * fl_described_room(elements) doubles. */
tensor_status fl_describe_there(struct fl_described *to, int64_t number, double *numbers, const tensor *x);
/* The description that follows from it, on the host. */
void fl_describe_arrived(tensor_description *to, const struct fl_described *of, const tensor *x);
/* What tensor_store_wide_f64 stores, into memory of the device, and the comparison of later values with these. */
tensor_status fl_keep_there(double *to, const tensor *x);
tensor_status fl_compare_there(struct fl_moved *to, int64_t number, double *numbers, double *before, const tensor *x);

#endif
