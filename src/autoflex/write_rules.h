/* write_rules.h - the rules by which a tensor with a shared exponent is written, on one struct autoflex: whether the
 * kernel measures or stores, at which exponent, whether there is another attempt, and the statistics that are recorded.
 * The host, the device and incremental writes follow these rules:
 *
 *     fl_write_begin(&w, &a, shared, kind);
 *     while (w.next != FL_WRITE_DONE) {
 *         ... the kernel runs at a.e; if w.next is FL_WRITE_MEASURE it stores nothing ...
 *         fl_write_attempted(&w, &a, maximum);
 *     }
 *     fl_write_end(&w, &a, gamma, maximum);
 *
 * where gamma and maximum are those of the last attempt. A write without a shared exponent is one attempt, which
 * stores. docs/semantics.md, "A write of a shared-exponent tensor", explains the same in words. */
#ifndef FL_WRITE_RULES_H
#define FL_WRITE_RULES_H

#include "autoflex/autoflex_rules.h"

enum fl_write_kind {
    FL_WRITE_FREE,  /* the kernel may store, and run again */
    FL_WRITE_ONCE,  /* it may store once, because it overwrites its input or is slow; before that it may measure */
    FL_WRITE_PARTS, /* an incremental write: each part reads the elements of earlier parts, so every attempt stores, and
                     * its results depend on the exponents */
    FL_WRITE_LOAD   /* numbers from outside, which are measured first */
};

enum fl_write_next { FL_WRITE_MEASURE, FL_WRITE_STORE, FL_WRITE_DONE };
enum { FL_WRITE_PARTS_ATTEMPTS = 4 }; /* all other writes take at most two */

/* The rule that chooses the exponent. */
enum fl_write_way {
    FL_WRITE_NO_EXPONENT,
    FL_WRITE_HISTORY,
    FL_WRITE_HISTORY_FITTING, /* "repeat": the history, then the exact maximum if it does not fit */
    FL_WRITE_MAXIMUM,         /* "current": the exact maximum */
    FL_WRITE_FIRST,           /* the exact maximum, by the initialisation loop: there is no history yet */
    FL_WRITE_LOADED           /* the exact maximum of the numbers that are loaded */
};

struct fl_write_state {
    int32_t kind, way;
    int32_t next;           /* an fl_write_next */
    int32_t attempt;        /* number of attempts so far */
    int32_t tried;          /* the exponent of the next attempt, or of the last one */
    struct autoflex before; /* of FL_WRITE_PARTS: the state before the first attempt */
};

FL_BOTH int fl_write_way_of(const struct autoflex *a, bool shared, int kind) {
    return !shared                          ? FL_WRITE_NO_EXPONENT
           : fl_needs_maximum(a->predictor) ? FL_WRITE_MAXIMUM
           : kind == FL_WRITE_LOAD          ? FL_WRITE_LOADED
           : !a->initialised                ? FL_WRITE_FIRST
           : fl_repeats(a->predictor)       ? FL_WRITE_HISTORY_FITTING
                                            : FL_WRITE_HISTORY;
}

/* Whether the first attempt measures. A tensor that may be stored twice is stored at once, because the exponent of its
 * last write ("current") or of its history ("repeat") mostly fits: then the first attempt is the only one. */
FL_BOTH bool fl_write_measures(int way, int kind) {
    switch (way) {
    case FL_WRITE_HISTORY_FITTING:
        return kind == FL_WRITE_ONCE;
    case FL_WRITE_MAXIMUM:
        return kind == FL_WRITE_ONCE || kind == FL_WRITE_LOAD;
    case FL_WRITE_FIRST:
        return kind != FL_WRITE_PARTS;
    default:
        return way == FL_WRITE_LOADED;
    }
}

/* shared: the format has a shared exponent; otherwise `a` is not read. */
FL_BOTH void fl_write_begin(struct fl_write_state *w, struct autoflex *a, bool shared, int kind) {
    w->kind = kind;
    w->way = fl_write_way_of(a, shared, kind);
    w->next = fl_write_measures(w->way, kind) ? FL_WRITE_MEASURE : FL_WRITE_STORE;
    w->attempt = 0;
    w->tried = 0;
    if (!shared)
        return;
    if (kind == FL_WRITE_PARTS)
        w->before = *a;
    if (w->way == FL_WRITE_HISTORY || w->way == FL_WRITE_HISTORY_FITTING)
        fl_autoflex_adjust(a);
    w->tried = a->e;
}

/* Sets the exponent that the exact maximum of an attempt requires. True if it differs from the exponent tried.
 *
 * In an incremental write the maximum depends on the exponent: two exponents may require each other, and a maximum may
 * grow with the range. From the third attempt on, an exponent with more range than the maximum needs remains, and one
 * with less is replaced by one with twice the range that the maximum needs. */
FL_BOTH bool fl_write_asks(const struct fl_write_state *w, struct autoflex *a, double maximum) {
    if (w->way == FL_WRITE_LOADED) {
        fl_autoflex_load(a, maximum);
        return a->e != w->tried;
    }
    if (w->way == FL_WRITE_HISTORY_FITTING)
        return fl_autoflex_repeat(a, maximum);
    if ((w->way != FL_WRITE_MAXIMUM && w->way != FL_WRITE_FIRST) || !(maximum > 0))
        return false;
    if (w->kind == FL_WRITE_PARTS)
        *a = w->before;
    const int asked = w->way == FL_WRITE_MAXIMUM ? fl_autoflex_fit(a, maximum) : fl_autoflex_initialise(a, maximum);
    if (w->attempt >= 2 && asked > w->tried)
        a->e = w->tried;
    else if (w->attempt >= 2 && asked < w->tried)
        a->e = asked > a->e_min ? asked - 1 : asked;
    return a->e != w->tried;
}

/* Chooses what follows an attempt. The second attempt of a write that is not incremental has the maximum of the first,
 * and needs no other exponent. */
FL_BOTH void fl_write_attempted(struct fl_write_state *w, struct autoflex *a, double maximum) {
    const bool parts = w->kind == FL_WRITE_PARTS;
    const bool another = (parts || w->attempt == 0) && fl_write_asks(w, a, maximum);
    const bool measured = w->next == FL_WRITE_MEASURE;
    w->attempt++;
    w->next =
        !measured && (!another || (parts && w->attempt == FL_WRITE_PARTS_ATTEMPTS)) ? FL_WRITE_DONE : FL_WRITE_STORE;
    if (w->next == FL_WRITE_STORE && another)
        w->tried = a->e;
}

/* Ends a write: the results of the last attempt remain, at its exponent. A load was recorded when it set the exponent.
 */
FL_BOTH void fl_write_end(const struct fl_write_state *w, struct autoflex *a, int gamma, double maximum) {
    if (w->way == FL_WRITE_NO_EXPONENT || w->kind == FL_WRITE_LOAD)
        return;
    a->e = w->tried;
    fl_autoflex_record(a, gamma, maximum);
}

#endif
