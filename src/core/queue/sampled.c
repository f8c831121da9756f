/* sampled.c - elements of a matmul or convolution computed again (sampled_rules.h): which, and the results. */
#include "core/queue/sampled.h"
#include "core/base/fail.h"
#include "core/queue/queue.h"
#include "core/queue/sampled_rules.h"
#include "core/table/mixed.h"
#include "core/tensor/tensor_object.h"
#include <math.h>
#include <string.h>

static _Thread_local struct fl_sampling *asking;
static _Thread_local int turn;

void fl_sample_writes(struct fl_sampling *to, int whose) {
    asking = to;
    turn = whose;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

double fl_sampled_decoded(const struct fl_sampled_operand *x, int64_t i) {
    const struct fl_format *format = x->format;
    double value = 0;
    format->decode(format, &x->view, i, 1, &value);
    return value;
}

static struct fl_sampled_operand operand_of(const struct fl_format *format, const struct fl_view *view) {
    struct fl_sampled_operand x = {.kind = FL_SAMPLED_DECODED, .view = *view, .format = format};
    if (format && format->arithmetic == FL_ARITHMETIC_SHARED && format->bytes == 2)
        x.kind = FL_SAMPLED_MANTISSA;
    else if (format && format->id == FMT_FP32)
        x.kind = FL_SAMPLED_BINARY32;
    return x;
}

void fl_sampled_operands(const struct fl_args *args, const struct fl_storage *out,
                         struct fl_sampled_operand in[FL_SAMPLED_OPERANDS]) {
    const struct fl_epilogue *how = &args->p.product.epilogue;
    const struct fl_view stored = fl_stored_view(out);
    for (int i = 0; i < 2; i++)
        in[i] = operand_of(fl_operand_format(args, i), &args->in[i]);
    in[FL_SAMPLED_BIAS] = operand_of(fl_bias_format(args), &how->bias);
    in[FL_SAMPLED_RESIDUAL] = operand_of(fl_residual_format(args), &how->residual);
    in[FL_SAMPLED_OUT] = operand_of(out->format, &stored);
}

/* --- writes ------------------------------------------------------------------------------------------------------- */

static void compute(const struct fl_call *call, int64_t elements, uint64_t number, struct fl_sampled_sums *sums) {
    struct fl_sampled_operand in[FL_SAMPLED_OPERANDS];
    fl_sampled_operands(call->args, &call->out, in);
    *sums =
        (struct fl_sampled_sums){.number = (int64_t)number + 1, .elements = elements, .writes = call->out.slot->writes};
    for (int64_t n = 0; n < elements; n++) {
        const struct fl_sampled_one one = fl_sampled_one(call->args, in, n, elements, number);
        fl_sampled_count(sums, &one);
    }
}

static tensor_status sample(struct fl_sampling *sampling, const struct fl_call *call, tensor_device *device) {
    const struct fl_args *args = call->args;
    const struct fl_storage *out = &call->out;
    for (int i = 0; i < FL_SAMPLED_KEPT; i++) /* forgets an earlier write of that slot */
        if (sampling->kept[i].slot == out->slot)
            sampling->kept[i].slot = NULL;
    const int64_t products = fl_sampled_products(args);
    if (products < 0 || !out->count || args->in[0].data == out->data || args->in[1].data == out->data ||
        args->p.product.epilogue.residual.data == out->data) /* the write has replaced an operand */
        return TENSOR_OK;
    const int64_t most = products > FL_SAMPLED_PRODUCTS                     ? 1
                         : products * FL_SAMPLED_MOST > FL_SAMPLED_PRODUCTS ? FL_SAMPLED_PRODUCTS / products
                                                                            : FL_SAMPLED_MOST,
                  elements = out->count < most ? out->count : most;
    const int at = sampling->next++ % FL_SAMPLED_KEPT;
    sampling->next %= FL_SAMPLED_KEPT;
    sampling->kept[at].slot = out->slot;
    sampling->kept[at].number = sampling->number;
    if (!device) {
        compute(call, elements, sampling->number, &sampling->kept[at].of);
        return TENSOR_OK;
    }
    struct fl_call there = *call;
    there.kind = FL_CALL_SAMPLE;
    there.examining = (struct fl_examining){
        .sampled = &sampling->there[at], .elements = elements, .number = (int64_t)sampling->number};
    return device->submit(device->queue, &there);
}

tensor_status fl_sample_run(const struct fl_call *call) {
    const struct fl_examining *how = &call->examining;
    compute(call, how->elements, (uint64_t)how->number, how->sampled);
    return TENSOR_OK;
}

tensor_status fl_sample_call(const struct fl_call *call, tensor_device *device) {
    for (struct fl_sampling *s = asking; s; s = s->beside)
        if (s->turn == turn) {
            const tensor_status status = sample(s, call, device);
            if (status)
                return status;
        }
    return TENSOR_OK;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

struct fl_sampled fl_sampled_from(const struct fl_sampled_sums *s, int64_t number) {
    struct fl_sampled of = {0, 0, NAN, NAN};
    if (s->number != number || s->writes != s->writes_since)
        return of;
    of.elements = s->elements;
    of.infinite = s->infinite;
    if (s->finite) {
        of.error = sqrt(s->errors / (double)s->finite);
        of.size = sqrt(s->sizes / (double)s->finite);
    }
    return of;
}

/* The place of the tensor's last product with that number; -1: none was sampled. */
static int place_of(const struct fl_sampling *s, const tensor *t) {
    for (int i = 0; i < FL_SAMPLED_KEPT; i++)
        if (s->kept[i].slot == t->storage->slot && s->kept[i].number == s->number)
            return i;
    return -1;
}

struct fl_sampled fl_sampled_of(const struct fl_sampling *s, const tensor *t) {
    const int at = place_of(s, t);
    struct fl_sampled_sums sums = {.number = 0};
    const uint64_t *writes = &t->storage->slot->writes;
    if (at >= 0 && t->storage->device->host) {
        sums = s->kept[at].of;
        sums.writes_since = *writes;
    } else if (at >= 0) {
        struct fl_queue *queue = fl_queue_of(t->storage);
        (void)fl_get(queue, &sums, &s->there[at], sizeof sums);
        if (fl_get(queue, &sums.writes_since, writes, sizeof *writes))
            sums.number = 0; /* which no result has */
    }
    return fl_sampled_from(&sums, (int64_t)s->number + 1);
}

tensor_status fl_sampled_note(const struct fl_sampling *s, const tensor *t, struct fl_sampled_sums *to) {
    const int at = place_of(s, t);
    struct fl_queue *queue = fl_queue_of(t->storage);
    const uint64_t *writes = &t->storage->slot->writes;
    if (at < 0)
        return TENSOR_OK;
    TRY(fl_copy(queue, to, &s->there[at], sizeof *to));
    return fl_copy(queue, &to->writes_since, writes, sizeof *writes);
}

tensor_status fl_sampling_begin(struct fl_sampling *s, tensor_device *device) {
    if (device->host)
        return TENSOR_OK;
    s->there = tensor_device_allocate(device, FL_SAMPLED_KEPT * sizeof *s->there);
    return s->there ? TENSOR_OK : tensor_error_status();
}
