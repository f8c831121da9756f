/* write.c - how operations become tasks: which kernel runs, on which device, and which tensor it writes. */
#include "core/base/fail.h"
#include "core/table/block_classes.h"
#include "core/table/fast_class.h"
#include "core/table/mixed.h"
#include "core/table/operands.h"
#include "core/queue/part_write.h"
#include "core/queue/queue.h"
#include "core/queue/sampled.h"
#include "core/tensor/narrow.h"
#include "core/tensor/wide.h"
#include <string.h>

static tensor_status choose(struct fl_queue *queue, const struct fl_format *format, enum fl_op op,
                            struct fl_choice *choice) {
    struct tensor_device *device = queue->device;
    if (device->host)
        return queue->measuring ? fl_select(format, op, queue->class, choice)
                                : fl_dispatch(format, op, queue->class, choice);
    return device->find(device, format, op, choice)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_UNSUPPORTED, "%s.%s: the device %s has no kernel for it", format->name,
                         fl_op_name(op), device->name);
}

/* The same for a task whose result has that format. */
static tensor_status choose_for(struct fl_queue *queue, const struct fl_format *format, struct fl_args *args,
                                struct fl_choice *choice) {
    const tensor_class class = tensor_result_class(); /* of this thread, whatever the device */
    if (!queue->device->host && fl_is_product(args->op) && fl_is_fast(class))
        args->p.product.exactness = class; /* the device has kernels for it, or not */
    if (!fl_is_mixed(args) && !(fl_is_product(args->op) && class != TENSOR_EXACT && !fl_is_fast(class)))
        return choose(queue, format, args->op, choice);
    struct fl_args known = *args;
    known.format = format;
    const bool accumulates = fl_task_accumulates(&known, class);
    if (accumulates || fl_task_has_operands(&known, class)) {
        args->p.product.exactness = class;
        if (!accumulates && !queue->device->host &&
            fl_device_takes_blocks(queue->device, fl_class_operands(class, 0), fl_class_operands(class, 1)))
            return choose(queue, format, args->op, choice);
        if (!queue->device->host)
            return fl_fail(TENSOR_E_UNSUPPORTED, "%s.%s: class %s is computed on cpu alone, and the tensors lie on %s",
                           format->name, fl_op_name(args->op), tensor_class_name(class), queue->device->name);
        return accumulates ? fl_dispatch_accumulating(&known, class, !queue->measuring, choice)
                           : fl_dispatch_operands(&known, class, !queue->measuring, choice);
    }
    if (!fl_is_mixed(args))
        return choose(queue, format, args->op, choice);
    if (queue->device->host)
        return fl_dispatch_mixed(&known, !queue->measuring, choice);
    if (fl_device_takes_mixed(queue->device))
        return choose(queue, format, args->op, choice);
    return fl_fail(TENSOR_E_UNSUPPORTED,
                   "%s: %s by %s to %s: the device %s has no kernel for operands and result of different formats",
                   fl_op_name(args->op), fl_operand_format(args, 0)->name, fl_operand_format(args, 1)->name,
                   format->name, queue->device->name);
}

static bool reads_its_output(const struct fl_storage *out, const struct fl_args *args) {
    for (int i = 0; i < 3; i++)
        if (args->in[i].data == out->data)
            return true;
    return fl_is_parameter(args, out->data);
}

/* Whether the windows of a task are too large to be read twice. */
static bool has_large_windows(const struct fl_args *args) {
    const bool pools = args->op == FL_OP_MAXPOOL2D || args->op == FL_OP_MAXPOOL2D_GRAD || args->op == FL_OP_AVGPOOL2D ||
                       args->op == FL_OP_AVGPOOL2D_GRAD;
    const struct fl_windows *w = pools ? &args->p.pooling.windows : &args->p.product.windows;
    return (pools || fl_is_product(args->op)) && w->r * w->s > FL_WINDOW_PLACES;
}

tensor_status fl_write(tensor *out, struct fl_args *args) {
    struct fl_storage *s = out->storage;
    struct fl_queue *queue = fl_queue_of(s);
    struct fl_choice choice;
    tensor_status status = fl_need_contiguous(fl_op_name(args->op), out);
    if (!status)
        status = choose_for(queue, out->format, args, &choice);
    if (status)
        return status;
    args->format = fl_written_format(out->format);
    args->out = fl_output_view(s);
    if (args->in[0].wide == s->wide) /* an operation that reads the wide part of its output writes it */
        args->out.wide = args->in[0].wide;
    struct fl_call call; /* filled member by member: call.h has the reason */
    call.kind = FL_CALL_WRITE;
    call.kernel = choice.kernel;
    call.need = choice.need;
    call.args = args;
    call.out = *s;
    call.sequence = (struct fl_sequence_part){.state = s->sequence, .tensor = s->part};
    /* The reference kernels first decode everything, which would be slow to do twice. */
    call.measures_first = choice.backend == FL_REF || has_large_windows(args) || reads_its_output(s, args);
    status = fl_submit(queue, &call);
    if (!status && !queue->device->host && !queue->measuring && !call.sequence.state)
        status = fl_sample_call(&call, queue->device);
    if (!status && args->out.wide && !queue->measuring)
        s->view_rounding = fl_view_rounding(s);
    return status;
}

tensor_status fl_run(const tensor *on, struct fl_args *args) {
    struct fl_queue *queue = fl_queue_of(on->storage);
    struct fl_choice choice;
    tensor_status status = choose(queue, on->format, args->op, &choice);
    if (status)
        return status;
    args->format = on->format;
    struct fl_call call;
    call.kind = FL_CALL_RUN;
    call.kernel = choice.kernel;
    call.need = choice.need;
    call.args = args;
    return fl_submit(queue, &call);
}

tensor_status fl_write_values(tensor *out, const double *values) {
    const tensor_status status = fl_need_contiguous("write", out);
    if (status)
        return status;
    struct fl_call call = {.kind = FL_CALL_ROUND, .out = *out->storage, .source = {.d = values}};
    return fl_submit(fl_queue_of(out->storage), &call);
}

/* A queue copies the terms while the task is submitted. */
static tensor_status submit_sum(enum fl_call_kind kind, tensor *out, const tensor *const *terms, int count) {
    struct fl_view views[FL_MOST_TERMS];
    for (int i = 0; i < count; i++)
        views[i] = fl_view_of(terms[i]);
    const struct fl_sum sum = {.format = terms[0]->format, .terms = views, .count = count};
    const tensor_status status = fl_need_contiguous("sum", out);
    if (status)
        return status;
    struct fl_call call = {.kind = kind, .out = *out->storage, .source = {.sum = &sum}};
    return fl_submit(fl_queue_of(out->storage), &call);
}

tensor_status fl_write_sum(tensor *out, const tensor *const *terms, int count) {
    return submit_sum(FL_CALL_ROUND, out, terms, count);
}

tensor_status fl_store_mean(tensor *out, const tensor *const *terms, int count) {
    return submit_sum(FL_CALL_MEAN, out, terms, count);
}

const char *tensor_kernel_backend(tensor_format format, const char *op) {
    const struct fl_format *f = fl_format_of(format);
    const enum fl_op number = fl_op_named(op);
    const struct fl_args task = {.op = number, .format = f};
    const tensor_class class = tensor_result_class();
    struct fl_choice choice;
    if (f && number != FL_OP_NONE && fl_task_has_operands(&task, class))
        return fl_dispatch_operands(&task, class, false, &choice) ? NULL : fl_backend_name(choice.backend);
    if (f && number != FL_OP_NONE && fl_task_accumulates(&task, class))
        return fl_dispatch_accumulating(&task, class, false, &choice) ? NULL : fl_backend_name(choice.backend);
    return !f || f->arithmetic == FL_ARITHMETIC_NUMBERS || number == FL_OP_NONE || fl_select(f, number, class, &choice)
               ? NULL
               : fl_backend_name(choice.backend);
}
