/* flex_parts.h - divides the work of a kernel: parts for the threads, blocks that stay in L1, periods of channels.
 *
 * Integer results do not depend on the division, so it can suit the caches; it does not depend on the threads either.
 *
 * Gives: FLEX_BLOCK, FLEX_PART, FLEX_PARTS, flex_run, minimum, run_parts, part_size, period_of, block_size, element. */
#ifndef FL_FLEX_PARTS_H
#define FL_FLEX_PARTS_H

#include "core/base/parallel.h"
#include "flex/flex_store.h"

enum {
    FLEX_BLOCK = FLEX_STORE_RUN, /* elements whose sums lie in a buffer on the stack */
    FLEX_PART = 32768,           /* least number of elements in a part */
    FLEX_PARTS = 128             /* most parts */
};

/* Computes elements first ... end-1; plan: the data that the operation has prepared. */
typedef void (*flex_run)(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                         struct fl_stats *stats);

struct flex_parts {
    const struct fl_args *args;
    const void *plan;
    flex_run run;
    int64_t count, per_part;
    struct fl_stats stats[FLEX_PARTS];
};

static int64_t minimum(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* The elements of each of at most `parts` parts: a multiple of grain. */
static int64_t part_size(int64_t count, int64_t grain, int parts) {
    const int64_t share = (count + parts - 1) / parts;
    const int64_t least = share > FLEX_PART ? share : FLEX_PART;
    return (least + grain - 1) / grain * grain;
}

static void run_part(void *context, int part, int worker) {
    (void)worker;
    struct flex_parts *p = context;
    const int64_t first = part * p->per_part;
    p->stats[part] = (struct fl_stats){0};
    p->run(p->args, p->plan, first, minimum(first + p->per_part, p->count), &p->stats[part]);
}

/* Runs over `count` elements in parts that begin at multiples of grain. */
static void run_parts(const struct fl_args *args, const void *plan, flex_run run, int64_t count, int64_t grain) {
    struct flex_parts p = {.args = args, .plan = plan, .run = run, .count = count};
    p.per_part = part_size(count, grain, FLEX_PARTS);
    const int parts = (int)((count + p.per_part - 1) / p.per_part);
    fl_parallel(parts, run_part, &p);
    for (int i = 0; i < parts; i++)
        fl_stats_merge(args->stats, &p.stats[i]);
}

/* Per-channel operands are laid out for a whole block, repeated as often as the channels fit into it, so that inner
 * loops run over elements without regard to channels. Element i uses entry i % period; no block crosses a period. */
static int64_t period_of(int64_t channels) {
    return channels < FLEX_BLOCK ? FLEX_BLOCK / channels * channels : channels;
}

/* The elements of the block that starts at `first`. */
static int64_t block_size(int64_t first, int64_t end, int64_t period) {
    return minimum(minimum(end - first, FLEX_BLOCK), period - first % period);
}

static int16_t *element(const struct fl_view *view, int64_t i) {
    return view->data ? (int16_t *)view->data + i : NULL;
}

#endif
