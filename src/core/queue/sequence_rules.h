/* sequence_rules.h - several writes of one tensor that are one: of a tensor over time, step by step. The text that a
 * processor and a device run alike.
 *
 * What a sequence writes are up to FL_SEQUENCE_TENSORS tensors, part by part, each at one exponent. fl_sequence_open
 * sets it before the first part, by the history where there is one; the parts add up their statistics; after the last
 * part fl_sequence_close looks whether the exponents are those that the maxima of the sequence ask for, where no
 * history set them. If so, or if this was the last attempt, it ends the writes as run.c ends one. Else the same parts
 * are computed again at the exponents that were asked for: what is written at one step is read at the next, so another
 * exponent is another sequence. Once the sequence has settled, what is still submitted of it does nothing. */
#ifndef FL_SEQUENCE_RULES_H
#define FL_SEQUENCE_RULES_H

#include "core/table/slot.h"

enum { FL_SEQUENCE_TENSORS = 4, FL_SEQUENCE_ATTEMPTS = 4 };

struct fl_sequence_tensor {
    struct fl_slot *slot;
    int64_t count;
    struct autoflex before; /* as the tensor was before the first attempt */
    struct fl_stats stats;  /* of the parts of this attempt */
    int32_t tried;          /* its exponent */
    int32_t shared, fits;   /* format with a shared exponent; predictor of the exact maximum */
    int32_t searches;       /* no history sets the exponent */
};

/* In memory of the device, from the first call of a sequence to the last. */
struct fl_sequence_state {
    int32_t settled, tensors;
    struct fl_sequence_tensor tensor[FL_SEQUENCE_TENSORS];
};

/* Tensor k of the sequence, before the first part of an attempt; k in order. */
FL_BOTH void fl_sequence_open(struct fl_sequence_state *s, int k, int attempt, struct fl_slot *slot, int64_t count,
                              bool shared, bool fits) {
    struct fl_sequence_tensor *t = &s->tensor[k];
    const struct fl_stats none = {0, 0, 0, 0, 0, 0};
    if (attempt == 0) {
        if (k == 0)
            s->settled = 0;
        s->tensors = k + 1;
        t->slot = slot;
        t->count = count;
        t->before = slot->autoflex;
        t->shared = shared;
        t->fits = fits;
        t->searches = shared && (fits || !slot->autoflex.initialised);
        if (shared && !t->searches)
            fl_autoflex_adjust(&slot->autoflex);
    }
    if (s->settled)
        return;
    t->stats = none;
    t->tried = slot->autoflex.e;
    slot->e = slot->autoflex.e; /* parts read what the parts before them wrote */
}

/* Whether the exponent of this attempt is the one that its maximum asks for; else that one is set. Two exponents may
 * ask for each other, and a maximum may grow as room is made for it: from the third attempt on, an exponent that leaves
 * more room than its maximum needs stays, and another leaves twice what it needs. */
FL_BOTH bool fl_sequence_fits(struct fl_sequence_tensor *t, int attempt) {
    struct autoflex *a = &t->slot->autoflex;
    if (!t->searches) /* the history's exponent stays, unless its predictor has what does not fit computed again */
        return !t->shared || !fl_autoflex_repeat(a, t->stats.maximum);
    if (!(t->stats.maximum > 0))
        return true;
    *a = t->before;
    const int asked = t->fits ? fl_autoflex_fit(a, t->stats.maximum) : fl_autoflex_initialise(a, t->stats.maximum);
    if (attempt >= 2 && asked > t->tried)
        a->e = t->tried;
    else if (attempt >= 2 && asked < t->tried)
        a->e = asked > a->e_min ? asked - 1 : asked;
    return a->e == t->tried;
}

/* After the last part of an attempt. */
FL_BOTH void fl_sequence_close(struct fl_sequence_state *s, int attempt) {
    if (s->settled)
        return;
    s->settled = 1;
    for (int k = 0; k < s->tensors; k++)
        if (!fl_sequence_fits(&s->tensor[k], attempt))
            s->settled = 0;
    if (!s->settled && attempt < FL_SEQUENCE_ATTEMPTS - 1)
        return;
    s->settled = 1;
    for (int k = 0; k < s->tensors; k++) {
        struct fl_sequence_tensor *t = &s->tensor[k];
        if (t->shared) {
            t->slot->autoflex.e = t->tried;
            fl_autoflex_record(&t->slot->autoflex, t->stats.gamma, t->stats.maximum);
        }
        fl_slot_written(t->slot, &t->stats, t->count);
    }
}

#endif
