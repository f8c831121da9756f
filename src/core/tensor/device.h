/* device.h - where tensors lie: memory, and the functions that run tasks on it (src/core/queue). */
#ifndef FL_DEVICE_H
#define FL_DEVICE_H

#include "core/table/format.h"

struct fl_call;
struct fl_queue;
struct fl_slot_array;

struct tensor_device {
    const char *name;
    bool host; /* its memory is the program's, and its queue runs tasks at once */
    /* Memory of the device, 64-byte aligned, holding zeros; NULL on failure. A release waits for the tasks before it.
     */
    void *(*allocate)(struct tensor_device *device, size_t bytes);
    void (*release)(struct tensor_device *device, void *memory);
    /* The free memory, for messages: "A of B bytes are free"; or the fault of the device. NULL: none. */
    tensor_status (*room)(struct tensor_device *device, char *text, size_t bytes);
    /* All run in the order of submission. submit copies the task. put copies the bytes before it returns. get waits,
     * and copies to the host. copy: both on the device. wait: until all is done. Once a task has failed, the queue
     * skips all that follows until the next wait, which returns the status and message of that task once; get fails
     * with them and leaves them to wait. It also skips the update of a step that overflowed (skipping.h). NULL on the
     * host. */
    tensor_status (*submit)(struct fl_queue *queue, const struct fl_call *call);
    tensor_status (*put)(struct fl_queue *queue, void *to, const void *from, size_t bytes);
    tensor_status (*get)(struct fl_queue *queue, void *to, const void *from, size_t bytes);
    tensor_status (*copy)(struct fl_queue *queue, void *to, const void *from, size_t bytes);
    tensor_status (*wait)(struct fl_queue *queue);
    /* A get in two parts, the second of which waits only for that copy, not for what was submitted after it; an earlier
     * failure fails it as it does a get. *fetch NULL: fetch makes it, for that many bytes, and it can be used again
     * after fetched. NULL: the device has no such copies (fetch.h). beside: nothing that is submitted later waits for
     * the copy or writes what it reads, and it says nothing of failures. arrived: whether fetched would not wait. */
    tensor_status (*fetch)(struct fl_queue *queue, void **fetch, const void *from, size_t bytes, bool beside);
    tensor_status (*arrived)(struct fl_queue *queue, const void *fetch, bool *arrived);
    tensor_status (*fetched)(struct fl_queue *queue, void *fetch, void *to);
    void (*give_up_fetch)(struct fl_queue *queue, void *fetch);
    /* Finds the kernel of an operation in a format; false: there is none. The host has fl_dispatch. */
    bool (*find)(struct tensor_device *device, const struct fl_format *format, enum fl_op op, struct fl_choice *choice);
    /* Describes the device in one line; NULL: its name suffices. */
    tensor_status (*describe)(struct tensor_device *device, char *text, size_t bytes);
    /* NULL: the device records nothing. Between record and recorded, tasks and copies within the device do not run but
     * become a recording (and no other function of the queue may be called); replay queues all of it at once. recording
     * NULL: what was recorded is discarded. */
    tensor_status (*record)(struct fl_queue *queue);
    tensor_status (*recorded)(struct fl_queue *queue, void **recording);
    tensor_status (*replay)(struct fl_queue *queue, void *recording);
    void (*forget)(struct tensor_device *device, void *recording);
    struct fl_queue *queue; /* of all threads; NULL for the host, where each thread has its own */
    struct fl_slot_array *slots;
    bool examines;     /* it runs tasks of FL_CALL_EXAMINE */
    bool takes_blocks; /* it computes products in classes operands=A,B, and of different formats */
};

/* tensor_device_find; of a name that leaves open which device of its kind it is, the one at that place, counted round.
 */
struct tensor_device *fl_device_find(const char *name, int place);

#endif
