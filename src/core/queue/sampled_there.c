/* sampled_there.c - measured errors of what a device has written, and the results. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/queue/sampled.h"
#include "core/table/mixed.h"
#include "core/tensor/tensor_object.h"
#include <math.h>
#include <string.h>

struct fl_sampled fl_sampled_of(const struct fl_sampling *s, const tensor *t) {
    for (int i = 0; i < FL_SAMPLED_KEPT; i++) {
        const bool is_asked = s->kept[i].slot == t->storage->slot && s->kept[i].number == s->number;
        const struct fl_slot *now = is_asked ? fl_slot_of(t) : NULL;
        if (now && s->kept[i].writes == now->total.writes)
            return s->kept[i].of;
    }
    return (struct fl_sampled){0, 0, NAN, NAN};
}

/* Operands, addends and the result of a product on the host. */
struct brought {
    struct fl_args args;
    struct fl_call call;
    struct fl_slot slot;
    int32_t e[4];
    void *memory[4];
};

static tensor_status bring(struct fl_queue *queue, const void *data, size_t bytes, void **memory) {
    if (!(*memory = fl_alloc(bytes + 1)))
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for a copy of %zu bytes", bytes);
    return fl_get(queue, *memory, data, bytes);
}

static tensor_status bring_view(struct fl_queue *queue, const struct fl_format *format, struct fl_view *view,
                                void **memory, int32_t *e) {
    const void *exponent = view->e;
    if (!view->data)
        return TENSOR_OK;
    const tensor_status status = bring(queue, view->data, (size_t)view->count * (size_t)format->bytes, memory);
    view->data = *memory;
    view->e = e;
    return status || !exponent ? status : fl_get(queue, e, exponent, sizeof *e);
}

static tensor_status bring_all(struct fl_queue *queue, const struct fl_call *call, struct brought *b) {
    struct fl_epilogue *how = &b->args.p.product.epilogue;
    struct fl_view *const views[] = {&b->args.in[0], &b->args.in[1], &how->bias, &how->residual};
    const struct fl_format *const formats[] = {fl_operand_format(&b->args, 0), fl_operand_format(&b->args, 1),
                                               fl_bias_format(&b->args), fl_residual_format(&b->args)};
    for (int i = 0; i < 4; i++) {
        const tensor_status status = bring_view(queue, formats[i], views[i], &b->memory[i], &b->e[i]);
        if (status)
            return status;
    }
    const tensor_status status = fl_get(queue, &b->slot, call->out.slot, sizeof b->slot);
    b->call.args = &b->args;
    b->call.out.slot = &b->slot;
    return status ? status
                  : bring(queue, call->out.data, (size_t)call->out.count * (size_t)call->out.format->bytes,
                          &b->call.out.data);
}

tensor_status fl_sample_there(struct fl_queue *queue, const struct fl_call *call) {
    const struct fl_view *in = call->args->in;
    const void *const out = call->out.data;
    struct brought b;
    if (!fl_is_sampled() || !fl_is_product(call->args->op) || in[0].data == out || in[1].data == out ||
        call->args->p.product.epilogue.residual.data == out)
        return TENSOR_OK;
    memset(b.memory, 0, sizeof b.memory);
    b.args = *call->args;
    b.call = (struct fl_call){.kind = call->kind, .out = call->out};
    b.call.out.data = NULL;
    const tensor_status status = bring_all(queue, call, &b);
    if (!status)
        fl_sample_call(&b.call, call->out.slot);
    for (int i = 0; i < 4; i++)
        fl_free(b.memory[i]);
    fl_free(b.call.out.data);
    return status;
}
