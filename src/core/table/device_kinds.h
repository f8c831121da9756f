/* device_kinds.h - the kinds of devices that are opened by name, beside the host. */
#ifndef FL_DEVICE_KINDS_H
#define FL_DEVICE_KINDS_H

#include <stddef.h>

struct tensor_device;

/* Opens the device of that name and adds it to the list (fl_device_add); a name without a number is that of the device
 * at that place, counted round. NULL on failure: `why` is the reason, and is empty if the name is not one of this kind.
 */
typedef struct tensor_device *(*fl_device_opener)(const char *name, int place, char *why, size_t bytes);

/* The i-th kind; NULL: there are no more. */
fl_device_opener fl_device_opener_at(int i);

#endif
