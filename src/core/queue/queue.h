/* queue.h - devices, queues and tasks: how an operation gets from its checks to a kernel.
 *
 * An operation checks its operands, describes a task as a struct fl_call, and submits it to the queue of the device
 * that its tensors lie on. A task holds addresses (elements, exponents, slots) and no value that a kernel has yet to
 * compute, so that a queue may run it later, on another thread or device. The queue of the host runs it at once, by
 * fl_call_run; devices of other kinds have functions of their own. */
#ifndef FL_QUEUE_H
#define FL_QUEUE_H

#include "core/queue/call.h"
#include "core/queue/call_memory.h"
#include "core/tensor/device.h"

extern struct tensor_device fl_host;
/* Fails with "WHAT: no memory for N bytes on DEVICE, A of B bytes are free", or with the fault of the device. */
tensor_status fl_no_memory(struct tensor_device *device, const char *what, size_t bytes);
/* Adds a device to those that tensor_device_at lists: for the rest of the process, once, by one thread at a time
 * while others may look. False where there is no room for another. */
bool fl_device_add(struct tensor_device *device);
/* A queue belongs to one thread of the host at a time: the tasks of one operation are consecutive, and their
 * intermediate results lie in memory of the queue. */
struct fl_queue {
    struct tensor_device *device;
    tensor_class class; /* of results: tensor_set_class */
    /* Memory of tasks (call_memory.h): blocks that the caller has set aside for them, and those that the queue of a
     * device other than the host has allocated. */
    struct fl_call_block planned[FL_CALL_MEMORIES], own[FL_CALL_MEMORIES];
    bool measuring;        /* a dry run */
    fl_written_fn written; /* called for each write of a dry run; NULL: none */
    void *written_context;
    size_t measured[FL_CALL_MEMORIES];
};

/* The queue of tasks that write this storage. */
struct fl_queue *fl_queue_of(const struct fl_storage *storage);
/* The queue of a device; for the host, this thread's. */
struct fl_queue *fl_device_queue(struct tensor_device *device);
/* This thread's queue of the host. */
struct fl_queue *fl_host_queue(void);

/* Runs a task, whose args->workspace is set, on this thread of the host. It sets the members of args that the run
 * decides: the output's address, statistics, rounding and a late value. */
tensor_status fl_call_run(const struct fl_call *call);

/* Sets the workspace of the task and submits it. */
tensor_status fl_submit(struct fl_queue *queue, struct fl_call *call);
/* *workspace: that many bytes, NULL for none. A failure names `what`. */
tensor_status fl_take_workspace(struct fl_queue *queue, const char *what, size_t bytes, void **workspace);
/* `bytes` of device memory for intermediate results of one operation of several tasks, until the next call of this
 * function; NULL on failure, with the message set. */
void *fl_temporary(struct fl_queue *queue, size_t bytes);
/* Queues bytes from the host, to the host (waits), within the device. */
tensor_status fl_put(struct fl_queue *queue, void *to, const void *from, size_t bytes);
tensor_status fl_get(struct fl_queue *queue, void *to, const void *from, size_t bytes);
tensor_status fl_copy(struct fl_queue *queue, void *to, const void *from, size_t bytes);
tensor_status fl_wait(struct fl_queue *queue);

#endif
