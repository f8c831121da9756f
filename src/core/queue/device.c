/* device.c - the devices: the host, and those that are opened by name; the queues of each. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/queue/queue.h"
#include "core/table/block_classes.h"
#include "core/table/device_kinds.h"
#include <stdio.h>
#include <string.h>

/* --- the host ----------------------------------------------------------------------------------------------------- */

static void *host_allocate(struct tensor_device *device, size_t bytes) {
    (void)device;
    return fl_alloc_zero(bytes);
}

static void host_release(struct tensor_device *device, void *memory) {
    (void)device;
    fl_free(memory);
}

struct tensor_device fl_host = {.name = "cpu", .host = true, .allocate = host_allocate, .release = host_release};

enum { DEVICE_LIMIT = 16 };
static struct tensor_device *devices[DEVICE_LIMIT] = {&fl_host};
static int device_count = 1; /* grows while other threads read it */

static int known_devices(void) {
    return __atomic_load_n(&device_count, __ATOMIC_ACQUIRE);
}

bool fl_device_add(struct tensor_device *device) {
    const int count = __atomic_load_n(&device_count, __ATOMIC_RELAXED);
    if (count == DEVICE_LIMIT)
        return false;
    devices[count] = device;
    __atomic_store_n(&device_count, count + 1,
                     __ATOMIC_RELEASE); /* a thread that sees the new number also sees the device */
    return true;
}

tensor_device *tensor_device_at(int i) {
    return i >= 0 && i < known_devices() ? devices[i] : NULL;
}

tensor_device *tensor_device_find(const char *name) {
    return fl_device_find(name, 0);
}

tensor_device *fl_device_find(const char *name, int place) {
    for (int i = 0; name && i < known_devices(); i++)
        if (!strcmp(devices[i]->name, name))
            return devices[i];
    char why[600] = "";
    fl_device_opener open;
    for (int i = 0; name && !*why && (open = fl_device_opener_at(i)); i++) {
        tensor_device *opened = open(name, place, why, sizeof why);
        if (opened)
            return opened;
    }
    if (*why) {
        fl_fail(TENSOR_E_DEVICE, "device %s is unavailable: %s", name, why);
        return NULL;
    }
    char known[200] = "";
    for (int i = 0; i < known_devices(); i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", devices[i]->name);
    fl_fail(TENSOR_E_ARGUMENT, "unknown device %s: expected one of %s, or cuda, cuda:1, ...", fl_quote(name).text,
            known);
    return NULL;
}

bool fl_device_takes_blocks(const struct tensor_device *device, const struct fl_block_format *a,
                            const struct fl_block_format *b) {
    return device->host || (device->takes_blocks && a->block && b->block);
}

bool fl_device_takes_mixed(const struct tensor_device *device) {
    return device->host || device->takes_blocks;
}

const char *tensor_device_name(const tensor_device *device) {
    return device ? device->name : NULL;
}

tensor_status tensor_device_describe(tensor_device *device, char *text, size_t bytes) {
    if (!device || !text || !bytes)
        return fl_fail(TENSOR_E_ARGUMENT, "device_describe: %s", !device ? "device is NULL" : "no room for a text");
    if (device->describe)
        return device->describe(device, text, bytes);
    snprintf(text, bytes, "%s", device->host ? "the processor of this program" : device->name);
    return TENSOR_OK;
}

tensor_status fl_no_memory(struct tensor_device *device, const char *what, size_t bytes) {
    char room[500] = "";
    if (device->host)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %zu bytes", what, bytes);
    const tensor_status status = device->room ? device->room(device, room, sizeof room) : TENSOR_OK;
    if (status)
        return status;
    return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %zu bytes on %s%s%s", what, bytes, device->name,
                   *room ? ", " : "", room);
}

void *tensor_device_allocate(tensor_device *device, size_t bytes) {
    void *memory = device && bytes ? device->allocate(device, bytes) : NULL;
    if (!memory && device && bytes)
        fl_no_memory(device, "device_allocate", bytes);
    else if (!memory)
        fl_fail(TENSOR_E_ARGUMENT, "device_allocate: %s", device ? "0 bytes, expected more" : "device is NULL");
    return memory;
}

void tensor_device_release(tensor_device *device, void *memory) {
    if (device && memory)
        device->release(device, memory);
}

static _Thread_local struct fl_queue host_queue = {.device = &fl_host};

struct fl_queue *fl_host_queue(void) {
    return &host_queue;
}

struct fl_queue *fl_queue_of(const struct fl_storage *storage) {
    return fl_device_queue(storage->device);
}

struct fl_queue *fl_device_queue(struct tensor_device *device) {
    return device->queue ? device->queue : &host_queue;
}
