/* queue.h - devices, queues and calls: how an operation gets from its checks to a kernel.
 *
 * An operation checks its operands, describes what is to be done as a struct fl_call, and submits it to the queue of
 * the device that its tensors lie on. A call holds addresses (elements, exponents, slots) and nothing that a kernel
 * has yet to compute, so that a queue may run it later, on another thread or another machine. The queue of the host
 * runs it at once. fl_call_run is how a processor runs a call; a device of another kind has its own way. */
#ifndef FL_QUEUE_H
#define FL_QUEUE_H

#include "core/queue/call.h"
#include "core/queue/call_memory.h"
#include "core/tensor/device.h"

extern struct tensor_device fl_host;
/* Says that there is no memory: "WHAT: no memory for N bytes on DEVICE, A of B bytes are free". */
tensor_status fl_no_memory(struct tensor_device *device, const char *what, size_t bytes);
/* Adds a device to those that tensor_device_at lists: for the rest of the process, once, by one thread at a time
 * while others may look. False where there is no room for another. */
bool fl_device_add(struct tensor_device *device);
/* A queue belongs to one thread of the host at a time: calls of one operation follow each other, and what passes
 * between them lies in memory of the queue. */
struct fl_queue {
    struct tensor_device *device;
    tensor_class class; /* of results: tensor_set_class */
    /* Memory of calls (call_memory.h): what was lent to them, and what the queue of a device other than the host has
     * of its own. */
    struct fl_call_block lent[FL_CALL_MEMORIES], own[FL_CALL_MEMORIES];
    bool measuring;        /* a dry run */
    fl_written_fn written; /* of it; NULL: nobody is told */
    void *written_context;
    size_t measured[FL_CALL_MEMORIES];
};

/* The queue that calls on this storage go to. */
struct fl_queue *fl_queue_of(const struct fl_storage *storage);
/* Of a device; of the host, this thread's. */
struct fl_queue *fl_device_queue(struct tensor_device *device);
/* This thread's queue of the host. */
struct fl_queue *fl_host_queue(void);

/* Runs a call on this thread's processor, with args->workspace set. It sets the members of args that the run decides:
 * the output's address, statistics, rounding and a late value. */
tensor_status fl_call_run(const struct fl_call *call);

/* Gives the call its workspace and the queue the call. */
tensor_status fl_submit(struct fl_queue *queue, struct fl_call *call);
/* The first half of that: `bytes` of workspace. */
tensor_status fl_place_workspace(struct fl_queue *queue, struct fl_args *args, size_t bytes);
/* `bytes` of device memory that hold what passes between the calls of one operation, until the next call of this
 * function; NULL on failure, with the message set. */
void *fl_temporary(struct fl_queue *queue, size_t bytes);
/* Queues bytes from the host, to the host (waits), within the device. */
tensor_status fl_put(struct fl_queue *queue, void *to, const void *from, size_t bytes);
tensor_status fl_get(struct fl_queue *queue, void *to, const void *from, size_t bytes);
tensor_status fl_copy(struct fl_queue *queue, void *to, const void *from, size_t bytes);
tensor_status fl_wait(struct fl_queue *queue);

#endif
