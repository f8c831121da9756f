/* queue.c - how tasks and bytes enter a queue. In a dry run none do. */
#include "core/queue/queue.h"
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include "core/table/accumulator.h"
#include "core/table/block_classes.h"
#include "core/table/fast_class.h"
#include <string.h>

/* --- the class of results ----------------------------------------------------------------------------------------- */

tensor_status tensor_set_class(tensor_class class) {
    if (class != TENSOR_EXACT && !fl_is_fast(class) && !fl_accumulates(class) && !fl_has_operands(class))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "set_class: %d, expected TENSOR_EXACT (%d) or TENSOR_FAST (%d) or a class of class_find",
                       (int)class, TENSOR_EXACT, TENSOR_FAST);
    fl_host_queue()->class = class;
    return TENSOR_OK;
}

tensor_class tensor_result_class(void) {
    return fl_host_queue()->class;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static bool writes_a_tensor(const struct fl_call *call) {
    return call->kind == FL_CALL_WRITE || call->kind == FL_CALL_LOAD || call->kind == FL_CALL_ROUND ||
           call->kind == FL_CALL_OPEN;
}

/* The bytes of `doubles`. */
static size_t doubles_of(const struct fl_queue *queue, const struct fl_call *call) {
    const bool loads = call->kind == FL_CALL_LOAD || call->kind == FL_CALL_ROUND;
    return loads && !queue->device->host && (call->source.format || call->source.sum)
               ? (size_t)call->out.count * sizeof *call->doubles
               : 0;
}

static tensor_status place_workspace(struct fl_queue *queue, struct fl_call *call) {
    struct fl_args *args = call->args;
    if (!args) {
        const size_t bytes = doubles_of(queue, call);
        return bytes ? fl_take_workspace(queue, call->what ? call->what : "sum", bytes, (void **)&call->doubles)
                     : TENSOR_OK;
    }
    args->workers = fl_threads();
    args->workspace_bytes = call->need ? call->need(args) : 0;
    return fl_take_workspace(queue, fl_op_name(args->op), args->workspace_bytes, &args->workspace);
}

tensor_status fl_submit(struct fl_queue *queue, struct fl_call *call) {
    const tensor_status status = place_workspace(queue, call);
    if (!status && queue->measuring && queue->written && writes_a_tensor(call))
        queue->written(queue->written_context, call->out.slot);
    if (status || queue->measuring)
        return status;
    return queue->device->submit ? queue->device->submit(queue, call) : fl_call_run(call);
}

tensor_status fl_put(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    if (queue->measuring)
        return TENSOR_OK;
    if (!queue->device->host)
        return queue->device->put(queue, to, from, bytes);
    memmove(to, from, bytes);
    return TENSOR_OK;
}

tensor_status fl_get(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    if (queue->measuring)
        return TENSOR_OK;
    if (!queue->device->host)
        return queue->device->get(queue, to, from, bytes);
    memmove(to, from, bytes);
    return TENSOR_OK;
}

tensor_status fl_copy(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    if (queue->measuring)
        return TENSOR_OK;
    if (!queue->device->host)
        return queue->device->copy(queue, to, from, bytes);
    memmove(to, from, bytes);
    return TENSOR_OK;
}

tensor_status fl_wait(struct fl_queue *queue) {
    return queue->device->host || queue->measuring ? TENSOR_OK : queue->device->wait(queue);
}

tensor_status tensor_device_wait(tensor_device *device) {
    if (!device)
        return fl_fail(TENSOR_E_ARGUMENT, "device_wait: device is NULL");
    return device->queue ? fl_wait(device->queue) : TENSOR_OK;
}
