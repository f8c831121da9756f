/* device_kinds.c - the table of the kinds of devices: a backend for other devices is one more line. */
#include "core/table/device_kinds.h"
#include "gpu/gpu_device.h"

static const fl_device_opener openers[] = {fl_gpu_find};

fl_device_opener fl_device_opener_at(int i) {
    return i >= 0 && i < (int)(sizeof openers / sizeof openers[0]) ? openers[i] : NULL;
}
