/* slot_copies.h - the slots of a device, and copies of all of them at one moment of its queue, which reach the host
 * while the queue continues. */
#ifndef FL_SLOT_COPIES_H
#define FL_SLOT_COPIES_H

#include "core/table/slot.h"

/* A slot of the device with undefined contents, which the caller must write completely. NULL without memory. */
struct fl_slot *fl_slot_new(struct tensor_device *device);
void fl_slot_free(struct tensor_device *device, struct fl_slot *slot); /* NULL allowed */

struct fl_slot_copies; /* used again for later moments */

/* Marks the moment. If *copies is NULL, it is created. After a failure no copies are under way. */
tensor_status fl_slot_copies_begin(tensor_device *device, struct fl_slot_copies **copies);
/* Waits until the copies have reached the host. */
tensor_status fl_slot_copies_end(tensor_device *device, struct fl_slot_copies *copies);
/* Drops the copies under way. */
void fl_slot_copies_drop(struct fl_slot_copies *copies);
/* The slot that a tensor had at that moment; copies NULL: the present one, for which it waits on a device. NULL: it had
 * none, or that failed. */
const struct fl_slot *fl_slot_then(const struct fl_slot_copies *copies, const tensor *t);
/* Whether `slot` is the slot of t, on any device. */
bool fl_has_slot(const tensor *t, const struct fl_slot *slot);
/* NULL is allowed. */
void fl_slot_copies_free(tensor_device *device, struct fl_slot_copies *copies);

#endif
