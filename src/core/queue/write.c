/* write.c - operations on their way to a queue: which kernel, on which device, writing what. */
#include "core/base/fail.h"
#include "core/table/mixed.h"
#include "core/queue/queue.h"
#include "core/tensor/wide.h"
#include <string.h>

tensor_status fl_need_host(const char *what, const tensor *t) {
    return fl_need_contiguous(what, t) ? tensor_error_status()
           : t->storage->device->host  ? TENSOR_OK
                                       : fl_fail(TENSOR_E_UNSUPPORTED,
                                                 "%s: the tensor lies on %s, which does not offer this; tensor_copy "
                                                  "brings a copy to the host",
                                                 what, t->storage->device->name);
}

tensor_status fl_need_contiguous(const char *what, const tensor *t) {
    if (!t->is_strided)
        return TENSOR_OK;
    int64_t at = 1;
    int d = t->ndim - 1;
    for (; d > 0 && t->stride[d] == at; d--) /* the dimension that is not in line, or the first */
        at *= t->shape[d];
    return fl_fail(
        TENSOR_E_ARGUMENT,
        "%s: a view with strides, %lld in dimension %d, expected a tensor; tensor_contiguous makes one of it", what,
        (long long)t->stride[d], d);
}

tensor_status fl_need_elements(const char *what, const tensor *t) {
    const tensor_status status = fl_need_present(what, t);
    return status ? status : fl_need_contiguous(what, t);
}

tensor_status fl_need_present(const char *what, const tensor *t) {
    return t->storage->hidden ? fl_fail(TENSOR_E_ARGUMENT,
                                        "%s: the elements are gone, others have had their memory since; nn_watch "
                                        "shows them while they are there",
                                        what)
                              : TENSOR_OK;
}

tensor_status fl_need_arithmetic(const char *what, const char *name, const tensor *t) {
    return t->format->arithmetic == FL_ARITHMETIC_NUMBERS
               ? fl_fail(TENSOR_E_FORMAT, "%s: %s is %s: numbers beside the formats, no operand of arithmetic", what,
                         name, t->format->name)
               : TENSOR_OK;
}

tensor_status fl_check_all_apart(const char *op, const char *const *names, const tensor *const *tensors, int outputs,
                                 int n) {
    for (int i = 0; i < outputs; i++)
        for (int j = i + 1; j < n; j++) {
            if (tensors[i] && tensors[j] && tensors[i]->storage == tensors[j]->storage &&
                tensors[i]->format->arithmetic == FL_ARITHMETIC_NUMBERS)
                return fl_fail(TENSOR_E_ARGUMENT, "%s: %s and %s are the same tensor", op, names[i], names[j]);
            const tensor_status status = fl_check_apart(op, names[i], tensors[i], names[j], tensors[j]);
            if (status)
                return status;
        }
    return TENSOR_OK;
}

tensor_status fl_check_numbers(const char *op, const char *name, const tensor *t, tensor_format format, int64_t count,
                               const tensor *x) {
    char text[TENSOR_TEXT];
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", op, name);
    if (t->format->id != format || t->count != count)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s %s, expected %s with %lld elements", op, name, t->format->name,
                       fl_shape_text(t, text), tensor_format_name(format), (long long)count);
    if (fl_need_contiguous(op, t))
        return tensor_error_status();
    return fl_check_apart(op, name, t, "x", x);
}

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

/* The same of a call whose result is of that format. */
static tensor_status choose_for(struct fl_queue *queue, const struct fl_format *format, const struct fl_args *args,
                                struct fl_choice *choice) {
    if (!fl_is_mixed(args))
        return choose(queue, format, args->op, choice);
    if (queue->device->host) {
        struct fl_args known = *args;
        known.format = format;
        return fl_dispatch_mixed(&known, !queue->measuring, choice);
    }
    return fl_fail(TENSOR_E_UNSUPPORTED,
                   "%s: %s by %s to %s: the device %s has no kernel for operands and result of different formats",
                   fl_op_name(args->op), fl_operand_format(args, 0)->name, fl_operand_format(args, 1)->name,
                   format->name, queue->device->name);
}

static bool reads_its_output(const struct fl_storage *out, const struct fl_args *args) {
    for (int i = 0; i < 3; i++)
        if (args->in[i].data == out->data)
            return true;
    return (fl_is_product(args->op) && args->p.product.epilogue.residual.data == out->data) ||
           (args->op == FL_OP_LSTM_CELL_GRAD && args->p.cell.dc_after.data == out->data);
}

/* Places of a window that is too large to be gone over twice. */
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
    struct fl_call call = {
        .kind = FL_CALL_WRITE, .kernel = choice.kernel, .need = choice.need, .out = *s, .args = *args};
    call.args.format = out->format;
    call.args.out = fl_output_view(s);
    if (args->in[0].wide == s->wide) /* an operation that reads the wide part of its output writes it */
        call.args.out.wide = args->in[0].wide;
    call.sequence = (struct fl_sequence_part){.state = s->sequence, .tensor = s->part};
    /* The reference kernels decode everything first: twice would be dear. */
    call.measures_first = choice.backend == FL_REF || has_large_windows(args) || reads_its_output(s, args);
    status = fl_submit(queue, &call);
    if (!status && call.args.out.wide && !queue->measuring)
        s->view_rounding = fl_view_rounding(s);
    return status;
}

tensor_status fl_run(const tensor *on, struct fl_args *args) {
    struct fl_queue *queue = fl_queue_of(on->storage);
    struct fl_choice choice;
    tensor_status status = choose(queue, on->format, args->op, &choice);
    if (status)
        return status;
    struct fl_call call = {.kind = FL_CALL_RUN, .kernel = choice.kernel, .need = choice.need, .args = *args};
    call.args.format = on->format;
    return fl_submit(queue, &call);
}

tensor_status fl_write_values(tensor *out, const double *values) {
    const tensor_status status = fl_need_contiguous("write", out);
    if (status)
        return status;
    struct fl_call call = {.kind = FL_CALL_ROUND, .out = *out->storage, .source = {.d = values}};
    return fl_submit(fl_queue_of(out->storage), &call);
}

const struct fl_slot *fl_slot_of(const tensor *t) {
    struct fl_storage *s = t->storage;
    if (s->device->host)
        return s->slot;
    return fl_get(fl_queue_of(s), s->seen, s->slot, sizeof *s->slot) ? NULL : s->seen;
}
