/* slot_copies.h - the slots of a device, and copies of all of them as they were at one moment of its queue, brought to
 * the host while it continues. */
#ifndef FL_SLOT_COPIES_H
#define FL_SLOT_COPIES_H

#include "core/table/slot.h"

/* A slot of the device, undefined: write it whole. NULL without memory. */
struct fl_slot *fl_slot_new(struct tensor_device *device);
void fl_slot_free(struct tensor_device *device, struct fl_slot *slot); /* NULL allowed */

struct fl_slot_copies; /* reused from moment to moment */

/* Marks the moment. *copies NULL: made. */
tensor_status fl_slot_copies_begin(tensor_device *device, struct fl_slot_copies **copies);
/* Waits until they are here. */
tensor_status fl_slot_copies_end(tensor_device *device, struct fl_slot_copies *copies);
/* The slot of a tensor then; copies NULL: now, of a tensor on the host. NULL: it had none. */
const struct fl_slot *fl_slot_then(const struct fl_slot_copies *copies, const tensor *t);
/* Whether that is its slot, wherever it lies. */
bool fl_has_slot(const tensor *t, const struct fl_slot *slot);
/* NULL is allowed. */
void fl_slot_copies_free(tensor_device *device, struct fl_slot_copies *copies);

#endif
