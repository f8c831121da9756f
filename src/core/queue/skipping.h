/* skipping.h - a step whose gradients overflowed makes no update, and a dynamic loss scale follows from it: the rules
 * of docs/training.md, in C and CUDA. A device decides by itself: between fl_skip_look and fl_skip_end it leaves out
 * the tasks of an update that is skipped, so that the host submits them without knowing. */
#ifndef FL_SKIPPING_H
#define FL_SKIPPING_H

#include "core/table/slot.h"

/* The state of a dynamic scale, all of it f64: whole numbers below 2^53 are exact. */
struct fl_scale_state {
    double scale, good, skipped, in_a_row, longest; /* as in nn_loss_scale */
    double used;                                    /* by the last step */
    double overflows;                               /* of the step under way: writes that overflowed */
    /* The first write of the list that was not finite, -1: none; and its statistics. */
    double first, nonfinite, saturated, elements, maximum;
};
enum { FL_SCALE_NUMBERS = sizeof(struct fl_scale_state) / sizeof(double) };

struct fl_scale_settings {
    double factor, least, most, window;
    double clip; /* the limit of an element of a gradient that is not scaled; 0: none */
};

/* What a write that is looked at means. */
enum {
    FL_LOOK_OVERFLOWS = 1, /* the update is skipped if it overflowed ... */
    FL_LOOK_SHARED = 2,    /* ... in a format with a shared exponent */
    FL_LOOK_FINDS = 4      /* it can be the first that is not finite */
};
struct fl_looked_at {
    const struct fl_slot *slot;
    int64_t marks;
};

/* Whether the write had an Inf or NaN, which shared exponents count although they cannot represent either, or saturated
 * a number that no exponent of its format can represent. */
FL_BOTH bool fl_overflowed(const struct fl_looked_at *l) {
    const struct fl_slot *s = l->slot;
    return (l->marks & FL_LOOK_OVERFLOWS) &&
           (s->last.nonfinite > 0 ||
            ((l->marks & FL_LOOK_SHARED) && s->last.saturated > 0 && s->e == s->autoflex.e_min));
}

FL_BOTH bool fl_is_nonfinite(const struct fl_looked_at *l) {
    return (l->marks & FL_LOOK_FINDS) && l->slot->last.nonfinite > 0;
}

/* Adds what was seen of a list; first: its first write that was not finite, -1: none. */
FL_BOTH void fl_scale_see(struct fl_scale_state *s, const struct fl_looked_at *list, int64_t overflows, int64_t first) {
    s->overflows += (double)overflows;
    s->first = (double)first;
    if (first < 0)
        return;
    const tensor_stats *last = &list[first].slot->last;
    s->nonfinite = (double)last->nonfinite;
    s->saturated = (double)last->saturated;
    s->elements = (double)last->elements;
    s->maximum = last->maximum;
}

/* The published rule: lower the scale at once, raise it after a growth interval without overflows. */
FL_BOTH void fl_scale_follow(struct fl_scale_state *s, const struct fl_scale_settings *rule) {
    const bool skipped = s->overflows > 0;
    double scale = s->scale;
    s->used = scale;
    s->overflows = 0;
    s->good = skipped ? 0 : s->good + 1;
    s->skipped += skipped;
    s->in_a_row = skipped ? s->in_a_row + 1 : 0;
    if (s->in_a_row > s->longest)
        s->longest = s->in_a_row;
    if (skipped)
        scale /= rule->factor;
    if (s->good >= rule->window) {
        s->good = 0;
        scale *= rule->factor;
    }
    s->scale = scale < rule->least ? rule->least : scale > rule->most ? rule->most : scale;
}

/* The limit of an element of a scaled gradient. */
FL_BOTH float fl_scaled_limit(double clip, double scale) {
    const double limit = clip * scale, largest = 3.4028234663852886e38;
    return (float)(limit > largest ? largest : limit);
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

/* LOOK, FOLLOW_SCALE and SHARE of call.h. */
struct fl_skipping {
    struct fl_scale_state *state;
    const struct fl_looked_at *list; /* LOOK */
    int64_t count;
    bool decides;                  /* LOOK: the last of a step */
    struct fl_scale_settings rule; /* FOLLOW_SCALE */
    double *scale;                 /* FOLLOW_SCALE: becomes the scale; SHARE: becomes `share` of it */
    float *limit;                  /* FOLLOW_SCALE: NULL: none */
    double share;
};

FL_BOTH void fl_scale_end(const struct fl_skipping *s) {
    fl_scale_follow(s->state, &s->rule);
    *s->scale = s->state->scale;
    if (s->limit)
        *s->limit = fl_scaled_limit(s->rule.clip, s->state->scale);
}

/* A list of writes on a device. */
struct fl_look_list {
    struct fl_looked_at *slots; /* NULL: none */
    int64_t count;
};
struct fl_look_at {
    const tensor *t;
    int64_t marks;
};
tensor_status fl_look_list_make(tensor_device *device, struct fl_look_list *list, const struct fl_look_at *at,
                                int64_t count);
void fl_look_list_clear(tensor_device *device, struct fl_look_list *list);

/* state: f64, FL_SCALE_NUMBERS of them, on the device of the list. Looks at its writes, in addition to those of earlier
 * calls; decides: then the device leaves out later tasks if any has overflowed. The host does not: its caller reads
 * the state. */
tensor_status fl_skip_look(tensor *state, const struct fl_look_list *list, bool decides);
/* Ends the step: the state follows, and scale (f64) and limit (f32, or NULL) become those of the next one. */
tensor_status fl_skip_end(tensor *state, tensor *scale, tensor *limit, const struct fl_scale_settings *rule);
/* to, f64: becomes a share of the scale. */
tensor_status fl_scale_share(tensor *to, const tensor *state, double share);

#endif
