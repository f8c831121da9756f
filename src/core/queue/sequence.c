/* sequence.c - the tasks around the parts of a sequence, and parts as tensors.
 *
 * The host ends a sequence as soon as it has settled. A device receives all attempts at once, because nobody waits for
 * it in between; the tasks of attempts that are not needed return at once. */
#include "core/queue/sequence.h"
#include "core/base/fail.h"
#include "core/tensor/tensor_object.h"
#include <string.h>

static tensor_status open_all(const struct fl_sequence *s, int attempt) {
    for (int k = 0; k < s->tensors; k++) {
        struct fl_call call = {.kind = FL_CALL_OPEN, .out = *s->written[k].t->storage};
        call.sequence = (struct fl_sequence_part){s->state, k, attempt, s->written[k].count, s->kept};
        const tensor_status status = fl_submit(s->queue, &call);
        if (status)
            return status;
    }
    return TENSOR_OK;
}

static tensor_status close_all(const struct fl_sequence *s, int attempt) {
    struct fl_call call = {.kind = FL_CALL_CLOSE, .out = *s->written[0].t->storage};
    call.sequence = (struct fl_sequence_part){.state = s->state, .attempt = attempt};
    return fl_submit(s->queue, &call);
}

/* The parts wrote only elements, so the wide parts follow. */
static tensor_status follow_all(const struct fl_sequence *s) {
    for (int k = 0; k < s->tensors; k++) {
        struct fl_call call = {.kind = FL_CALL_FOLLOW, .out = *s->written[k].t->storage};
        const tensor_status status = call.out.wide ? fl_submit(s->queue, &call) : TENSOR_OK;
        if (status)
            return status;
    }
    return TENSOR_OK;
}

tensor_status fl_sequence_run(struct fl_sequence *s, const char *name,
                              tensor_status (*parts)(const struct fl_sequence *s, void *context), void *context) {
    for (int k = 0; k < s->tensors; k++)
        if (s->written[k].t->storage->rounding == TENSOR_ROUND_STOCHASTIC)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: the outputs of a sequence must not be rounded stochastically", name);
    s->queue = fl_queue_of(s->written[0].t->storage);
    if (!s->queue->device->host)
        s->kept = 0;
    s->state = fl_temporary(s->queue, FL_SEQUENCE_STATE_BYTES + s->kept);
    if (!s->state)
        return TENSOR_E_MEMORY;
    for (int attempt = 0; attempt < FL_SEQUENCE_ATTEMPTS; attempt++) {
        tensor_status status = open_all(s, attempt);
        if (!status)
            status = parts(s, context);
        if (!status)
            status = close_all(s, attempt);
        if (status)
            return status;
        if (s->queue->measuring || (s->queue->device->host && s->state->settled))
            break;
    }
    return follow_all(s);
}

static tensor *make_part(struct fl_part *part, const tensor *base, int64_t first, int ndim, const int64_t *shape) {
    part->storage = *base->storage;
    part->t = (tensor){.format = base->format, .ndim = ndim, .count = 1, .storage = &part->storage, .is_view = true};
    for (int d = 0; d < ndim; d++) {
        part->t.shape[d] = shape[d];
        part->t.count *= shape[d];
    }
    part->storage.data = (char *)part->storage.data + first * base->format->bytes;
    part->storage.wide = NULL; /* elements alone */
    part->storage.count = part->t.count;
    return &part->t;
}

const tensor *fl_part(struct fl_part *part, const tensor *base, int64_t first, int ndim, const int64_t *shape) {
    return make_part(part, base, first, ndim, shape);
}

tensor *fl_part_written(struct fl_part *part, const struct fl_sequence *s, int k, int64_t first, int ndim,
                        const int64_t *shape) {
    make_part(part, s->written[k].t, first, ndim, shape);
    part->storage.sequence = s->state;
    part->storage.part = k;
    return &part->t;
}
