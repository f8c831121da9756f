/* call_memory.h - the memory that tasks take beside their tensors, for callers that plan it ahead.
 *
 * A task takes the workspace of its kernel, and operations of several tasks take temporary memory for what passes from
 * one to the next. By default both come from the thread's scratch memory on the host, and from blocks of the queue on
 * another device. A caller that knows which operations will follow can measure their memory by a dry run and set aside
 * blocks of its own: nn does both for every position of a training step. */
#ifndef FL_CALL_MEMORY_H
#define FL_CALL_MEMORY_H

#include "flexlab/tensor.h"

enum { FL_TEMPORARY, FL_WORKSPACE, FL_CALL_MEMORIES };

struct fl_call_block {
    char *memory; /* 64-byte aligned, on the device */
    size_t bytes;
};

/* A dry run on the queue of the device (of the host: this thread's). Until it ends, operations that compute are checked
 * as usual, but no task runs, no byte is copied, no tensor changes, and temporary memory has an address that must not
 * be read. The memory that they would have taken is noted, for the present number of threads, cap and class. Functions
 * that make tensors, or set exponents and elements directly, must not be called. */
struct fl_slot;
/* Called for each tensor that is written, in the order of computation, with its slot (fl_has_slot). */
typedef void (*fl_written_fn)(void *context, const struct fl_slot *slot);
void fl_measure_begin(tensor_device *device, fl_written_fn written, void *context);
void fl_measure_end(tensor_device *device);
/* Raises most[] to the largest blocks that operations took since the last call of this function. */
void fl_measured(tensor_device *device, size_t most[FL_CALL_MEMORIES]);

/* Operations on the queue of the device (of the host: this thread's) take their memory from these blocks where they are
 * large enough, until the next call of this function; NULL: from none. Nothing else may use the blocks until then. */
void fl_set_call_memory(tensor_device *device, const struct fl_call_block *blocks);

/* The address `offset` bytes into a region without memory, for tensors of a dry run: no program has memory in the upper
 * half of the address space. */
static inline void *fl_nowhere(size_t offset) {
    return (void *)(UINTPTR_MAX / 2 + 1 + offset);
}

#endif
