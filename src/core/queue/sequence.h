/* sequence.h - tensors written part by part, in one write each (sequence_rules.h has the rules). */
#ifndef FL_SEQUENCE_H
#define FL_SEQUENCE_H

#include "core/queue/queue.h"
#include "core/queue/sequence_rules.h"

/* One run through the parts of a sequence. Operations in it read fl_part, write fl_part_written, and take no temporary
 * memory of the queue. */
struct fl_sequence {
    struct fl_queue *queue;
    struct fl_sequence_state *state; /* on the device */
    int tensors;
    struct {
        tensor *t;
        int64_t count; /* elements that its parts are in all */
    } written[FL_SEQUENCE_TENSORS];
};

/* Runs `parts` until the exponents of what it writes have settled. Fails where one of those rounds stochastically: its
 * draws are those of one write. */
tensor_status fl_sequence_run(struct fl_sequence *s, const char *name,
                              tensor_status (*parts)(const struct fl_sequence *s, void *context), void *context);

/* A tensor that is some of the elements of another, with its exponent. */
struct fl_part {
    tensor t;
    struct fl_storage storage;
};

/* Elements first ... of base, in that shape, to be read. */
const tensor *fl_part(struct fl_part *part, const tensor *base, int64_t first, int ndim, const int64_t *shape);
/* The same of number k of what the sequence writes, to be written, and read from then on. Of a tensor that one step
 * after the other overwrites, the same elements each time. */
tensor *fl_part_written(struct fl_part *part, const struct fl_sequence *s, int k, int64_t first, int ndim,
                        const int64_t *shape);

#endif
