/* sequence.h - incremental writes of several tensors, part by part (sequence_rules.h has the rules). */
#ifndef FL_SEQUENCE_H
#define FL_SEQUENCE_H

#include "core/queue/queue.h"
#include "core/queue/sequence_rules.h"

/* One run through the parts of a sequence. Operations in it read fl_part, write fl_part_written, and take no temporary
 * memory of the queue. */
struct fl_sequence {
    struct fl_queue *queue;
    struct fl_sequence_state *state; /* on the device */
    size_t kept;                     /* bytes for what products make of their second operand, which all of them share */
    int tensors;
    struct {
        tensor *t;
        int64_t count; /* elements of all its parts */
    } written[FL_SEQUENCE_TENSORS];
};

/* Runs `parts` until the exponents of the tensors that it writes have settled. Fails if one of these rounds
 * stochastically, because all attempts would have the draws of one write. */
tensor_status fl_sequence_run(struct fl_sequence *s, const char *name,
                              tensor_status (*parts)(const struct fl_sequence *s, void *context), void *context);

/* A tensor of some elements of another, with its exponent. */
struct fl_part {
    tensor t;
    struct fl_storage storage;
};

/* Elements first ... of base, in that shape, to be read. */
const tensor *fl_part(struct fl_part *part, const tensor *base, int64_t first, int ndim, const int64_t *shape);
/* The same elements of tensor k of the sequence, to be written, and read from then on. If every step overwrites the
 * tensor, they are the same elements each time. */
tensor *fl_part_written(struct fl_part *part, const struct fl_sequence *s, int k, int64_t first, int ndim,
                        const int64_t *shape);

#endif
