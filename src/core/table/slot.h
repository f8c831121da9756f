/* slot.h - the state of a tensor that lives beside its elements: the shared exponent, what chose it, statistics. One
 * layout in C and CUDA; kernels get addresses into it. All slots of a device lie in arrays (slots.c), so that one pass
 * can walk them and one copy brings them to the host.
 *
 * In a write the rules set autoflex.e from the history, the kernel reads its operands at their .e and writes at
 * autoflex.e, and fl_slot_written copies that to .e. So an operation may read the tensor that it overwrites. */
#ifndef FL_SLOT_H
#define FL_SLOT_H

#include "autoflex/autoflex_rules.h"
#include "flexlab/tensor.h"

/* The statistics of one write. Kernels start from zero; those of several threads are merged with fl_stats_merge. */
struct fl_stats {
    double maximum; /* largest |exact result|, real units (not mantissas); NaN results do not count. Inf does in float
                     * formats; for shared exponents maximum and gamma are of finite results alone (element_rules.h) */
    int32_t gamma;
    int32_t unused;
    int64_t saturated, flushed, nonfinite;
};

struct fl_slot {
    struct autoflex autoflex; /* .e: the exponent of the write under way, or of the last one */
    int32_t e;                /* the exponent of the elements; 0 in float formats */
    int32_t unused;
    tensor_stats last, total;
    uint64_t writes; /* since the tensor was made: keys stochastic rounding; never reset */
};

FL_BOTH void fl_stats_merge(struct fl_stats *into, const struct fl_stats *part) {
    if (part->maximum > into->maximum)
        into->maximum = part->maximum;
    if (part->gamma > into->gamma)
        into->gamma = part->gamma;
    into->saturated += part->saturated;
    into->flushed += part->flushed;
    into->nonfinite += part->nonfinite;
}

/* Ends a write of `count` elements at autoflex.e with the statistics s. */
FL_BOTH void fl_slot_written(struct fl_slot *slot, const struct fl_stats *s, int64_t count) {
    tensor_stats *last = &slot->last, *total = &slot->total;
    last->maximum = s->maximum;
    last->gamma = s->gamma;
    last->saturated = s->saturated;
    last->flushed = s->flushed;
    last->nonfinite = s->nonfinite;
    last->elements = count;
    last->writes = 1;
    if (s->maximum > total->maximum)
        total->maximum = s->maximum;
    if (s->gamma > total->gamma)
        total->gamma = s->gamma;
    total->saturated += s->saturated;
    total->flushed += s->flushed;
    total->nonfinite += s->nonfinite;
    total->elements += count;
    total->writes++;
    slot->writes++;
    slot->e = slot->autoflex.e;
}

#endif
