/* device.h - where tensors lie: memory, and what runs the calls on it (src/core/queue). */
#ifndef FL_DEVICE_H
#define FL_DEVICE_H

#include "core/table/format.h"

struct fl_call;
struct fl_queue;
struct fl_slot_array;

struct tensor_device {
    const char *name;
    bool host; /* its memory is the program's, and its queue runs calls at once */
    /* Memory of the device, 64-byte aligned, holding zeros; NULL on failure. A release waits for the calls before. */
    void *(*allocate)(struct tensor_device *device, size_t bytes);
    void (*release)(struct tensor_device *device, void *memory);
    /* The free memory, for messages: "A of B bytes are free", or why it is unknown. NULL: none. */
    void (*room)(struct tensor_device *device, char *text, size_t bytes);
    /* In the order of submission. submit: the call is copied. put: the bytes are copied before it returns. get: waits,
     * and copies to the host. copy: both on the device. wait: until all is done. Once a call has failed, what follows
     * it in the queue is left out until somebody waits: wait returns the status and message of that call, once; get
     * fails with it and leaves it to wait. The host leaves them NULL. */
    tensor_status (*submit)(struct fl_queue *queue, const struct fl_call *call);
    tensor_status (*put)(struct fl_queue *queue, void *to, const void *from, size_t bytes);
    tensor_status (*get)(struct fl_queue *queue, void *to, const void *from, size_t bytes);
    tensor_status (*copy)(struct fl_queue *queue, void *to, const void *from, size_t bytes);
    tensor_status (*wait)(struct fl_queue *queue);
    /* A get in two parts, the second of which waits for that copy alone and not for what was submitted after it; what
     * had failed before it fails it as a get. *fetch NULL: it is made, with room for so many bytes, and serves again
     * after fetched. NULL: the device has no such copies (fetch.h). */
    tensor_status (*fetch)(struct fl_queue *queue, void **fetch, const void *from, size_t bytes);
    tensor_status (*fetched)(struct fl_queue *queue, void *fetch, void *to);
    void (*give_up_fetch)(struct fl_queue *queue, void *fetch);
    /* Finds the kernel of an operation in a format; false: there is none. The host has fl_dispatch. */
    bool (*find)(struct tensor_device *device, const struct fl_format *format, enum fl_op op, struct fl_choice *choice);
    /* Describes the device in one line; NULL: its name does. */
    tensor_status (*describe)(struct tensor_device *device, char *text, size_t bytes);
    /* NULL: it records nothing. Between record and recorded, what is submitted and copied within the device does not
     * run but becomes a recording (and nothing else may be asked of the queue); replay queues all of it at once.
     * recording NULL: what was recorded is given up. */
    tensor_status (*record)(struct fl_queue *queue);
    tensor_status (*recorded)(struct fl_queue *queue, void **recording);
    tensor_status (*replay)(struct fl_queue *queue, void *recording);
    void (*forget)(struct tensor_device *device, void *recording);
    struct fl_queue *queue; /* of all threads; NULL for the host, where each thread has its own */
    struct fl_slot_array *slots;
};

#endif
