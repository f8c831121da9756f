/* call_memory.c - the workspace of a task and the temporary memory of an operation: from the blocks that the caller has
 * set aside, else from the thread's scratch memory or from a block of the queue. */
#include "core/queue/call_memory.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/queue/recording.h"
#include <string.h>

static const int scratch_slot[FL_CALL_MEMORIES] = {[FL_TEMPORARY] = 2, [FL_WORKSPACE] = 0};

/* --- dry runs and blocks set aside -------------------------------------------------------------------------------- */

void fl_measure_begin(tensor_device *device, fl_written_fn written, void *context) {
    struct fl_queue *queue = fl_device_queue(device);
    queue->measuring = true;
    queue->written = written;
    queue->written_context = context;
    memset(queue->measured, 0, sizeof queue->measured);
}

void fl_measure_end(tensor_device *device) {
    struct fl_queue *queue = fl_device_queue(device);
    queue->measuring = false;
    queue->written = NULL;
}

void fl_measured(tensor_device *device, size_t most[FL_CALL_MEMORIES]) {
    struct fl_queue *queue = fl_device_queue(device);
    for (int i = 0; i < FL_CALL_MEMORIES; i++)
        if (queue->measured[i] > most[i])
            most[i] = queue->measured[i];
    memset(queue->measured, 0, sizeof queue->measured);
}

void fl_set_call_memory(tensor_device *device, const struct fl_call_block *blocks) {
    struct fl_queue *queue = fl_device_queue(device);
    memset(queue->planned, 0, sizeof queue->planned);
    if (blocks)
        memcpy(queue->planned, blocks, sizeof queue->planned);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* A block of the queue's own of at least that many bytes. Replacing one waits for the tasks that use it. */
static char *own_block(struct fl_queue *queue, int which, size_t bytes) {
    struct fl_call_block *own = &queue->own[which];
    if (own->bytes >= bytes)
        return own->memory;
    struct tensor_device *device = queue->device;
    char *block = device->allocate(device, bytes);
    if (!block)
        return NULL;
    if (own->memory)
        device->release(device, own->memory);
    *own = (struct fl_call_block){block, bytes};
    fl_note_change();
    return block;
}

/* NULL without memory. */
static void *take(struct fl_queue *queue, int which, size_t bytes) {
    if (queue->measuring) {
        if (bytes > queue->measured[which])
            queue->measured[which] = bytes;
        return fl_nowhere(0);
    }
    if (queue->planned[which].memory && queue->planned[which].bytes >= bytes)
        return queue->planned[which].memory;
    return queue->device->host ? fl_scratch(scratch_slot[which], bytes) : own_block(queue, which, bytes);
}

void *fl_temporary(struct fl_queue *queue, size_t bytes) {
    void *block = take(queue, FL_TEMPORARY, bytes);
    if (!block)
        fl_no_memory(queue->device, "scratch", bytes);
    return block;
}

tensor_status fl_take_workspace(struct fl_queue *queue, const char *what, size_t bytes, void **workspace) {
    *workspace = bytes ? take(queue, FL_WORKSPACE, bytes) : NULL;
    return *workspace || !bytes ? TENSOR_OK : fl_no_memory(queue->device, what, bytes);
}
