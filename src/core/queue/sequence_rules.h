/* sequence_rules.h - incremental writes: tensors over time, written step by step. The host and devices compile the same
 * functions.
 *
 * A sequence writes up to FL_SEQUENCE_TENSORS tensors part by part, each at one exponent, by the rules of write_rules.h
 * (FL_WRITE_PARTS). fl_sequence_open begins an attempt; the parts add up their statistics; after the last part
 * fl_sequence_close compares the exponents with those that the maxima of the sequence require. If they agree, or if
 * this was the last attempt, it ends the writes. Otherwise all parts are computed again at the required exponents,
 * because each step reads the results of the one before. Once the sequence has settled, its remaining tasks do nothing.
 */
#ifndef FL_SEQUENCE_RULES_H
#define FL_SEQUENCE_RULES_H

#include "autoflex/write_rules.h"
#include "core/table/kernel.h"
#include "core/table/slot.h"

enum { FL_SEQUENCE_TENSORS = 4, FL_SEQUENCE_ATTEMPTS = FL_WRITE_PARTS_ATTEMPTS };

struct fl_sequence_tensor {
    struct fl_slot *slot;
    int64_t count;
    struct fl_write_state write;
    struct fl_stats stats; /* of the parts of this attempt */
};

/* In memory of the device, from the first task of a sequence to the last. */
struct fl_sequence_state {
    int32_t settled, tensors;
    struct fl_sequence_tensor tensor[FL_SEQUENCE_TENSORS];
    struct fl_kept kept; /* on a processor */
};
enum { FL_SEQUENCE_STATE_BYTES = (sizeof(struct fl_sequence_state) + 63) / 64 * 64 }; /* kept memory follows */

/* Begins an attempt for tensor k of the sequence; called for k = 0, 1, ... in order. */
FL_BOTH void fl_sequence_open(struct fl_sequence_state *s, int k, int attempt, struct fl_slot *slot, int64_t count,
                              bool shared) {
    struct fl_sequence_tensor *t = &s->tensor[k];
    const struct fl_stats none = {0, 0, 0, 0, 0, 0};
    if (attempt == 0) {
        if (k == 0)
            s->settled = 0;
        s->tensors = k + 1;
        t->slot = slot;
        t->count = count;
        fl_write_begin(&t->write, &slot->autoflex, shared, FL_WRITE_PARTS);
    }
    if (s->settled)
        return;
    t->stats = none;
    slot->e = slot->autoflex.e; /* parts read the results of earlier parts */
}

/* Ends an attempt, after its last part. */
FL_BOTH void fl_sequence_close(struct fl_sequence_state *s) {
    if (s->settled)
        return;
    s->settled = 1;
    for (int k = 0; k < s->tensors; k++) {
        struct fl_sequence_tensor *t = &s->tensor[k];
        fl_write_attempted(&t->write, &t->slot->autoflex, t->stats.maximum);
        if (t->write.next != FL_WRITE_DONE)
            s->settled = 0;
    }
    for (int k = 0; k < s->tensors && s->settled; k++) {
        struct fl_sequence_tensor *t = &s->tensor[k];
        fl_write_end(&t->write, &t->slot->autoflex, t->stats.gamma, t->stats.maximum);
        fl_slot_written(t->slot, &t->stats, t->count);
    }
}

#endif
