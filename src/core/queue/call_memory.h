/* call_memory.h - the memory that calls take beside their tensors, as who plans it ahead sees it.
 *
 * A call takes workspace of its kernel, and operations of several calls take temporary memory for what passes from one
 * to the next. Unplanned, both come from the thread's scratch on the host and from blocks of the queue on another
 * device. Who knows beforehand which operations will follow can ask what they take by a dry run, and lend memory of its
 * own while they are submitted: nn does both for every position of a training step. */
#ifndef FL_CALL_MEMORY_H
#define FL_CALL_MEMORY_H

#include "flexlab/tensor.h"

enum { FL_TEMPORARY, FL_WORKSPACE, FL_CALL_MEMORIES };

struct fl_call_block {
    char *memory; /* 64-byte aligned, on the device */
    size_t bytes;
};

/* A dry run on the queue of the device (of the host: this thread's). Until its end, operations that compute are checked
 * as ever, and then nothing of them happens: no call runs, no byte is copied, no tensor changes, temporary memory has
 * an address that nobody may read. What memory they would have taken is noted, for the number of threads, the cap and
 * the class of the moment. What makes tensors, or sets their exponents and elements by hand, is not to be called. */
struct fl_slot;
/* Who is told, in the order of computation, of each tensor that is written, by its slot (fl_has_slot). */
typedef void (*fl_written_fn)(void *context, const struct fl_slot *slot);
void fl_measure_begin(tensor_device *device, fl_written_fn written, void *context);
void fl_measure_end(tensor_device *device);
/* Raises most[] to the largest blocks that operations took since the last call of this function. */
void fl_measured(tensor_device *device, size_t most[FL_CALL_MEMORIES]);

/* Operations on the queue of the device (of the host: this thread's) take their memory from these blocks where they are
 * large enough, until the next call of this function; NULL: from none. Nothing else may use the blocks from the first
 * of those calls to the last. */
void fl_lend(tensor_device *device, const struct fl_call_block *blocks);

/* Address number `offset` of those at which no memory is: the upper half of the address space is no program's. For
 * tensors of a dry run. */
static inline void *fl_nowhere(size_t offset) {
    return (void *)(UINTPTR_MAX / 2 + 1 + offset);
}

#endif
