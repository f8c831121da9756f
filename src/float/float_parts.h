/* float_parts.h - divides a kernel into parts of fixed size, runs them on any number of threads and merges their
 * statistics.
 *
 * Expects: a codec (float_block.h).
 * Gives: float_range, run_parts. */
#ifndef FL_FLOAT_PARTS_H
#define FL_FLOAT_PARTS_H

#include "core/base/parallel.h"
#include "float/float_block.h"

enum { FLOAT_PART = 32 * FLOAT_BLOCK }; /* elements; small tensors are one part */

/* Computes units first ... end-1 of the kernel's work and adds to stats. context is the kernel's own. */
typedef void (*float_range)(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                            struct fl_stats *stats);

struct float_parts {
    const struct fl_args *args;
    const void *context;
    float_range range;
    int64_t units, units_per_part;
    struct fl_stats stats[FL_MAX_THREADS]; /* by worker: maxima and counts are the same however they are merged */
};

static void run_part(void *pointer, int part, int worker) {
    struct float_parts *p = pointer;
    const int64_t first = part * p->units_per_part;
    struct fl_stats stats = {0};
    p->range(p->args, p->context, first, float_min(p->units, first + p->units_per_part), &stats);
    fl_stats_merge(&p->stats[worker], &stats);
}

/* Runs range over units of unit_elements each. */
static tensor_status run_parts(const struct fl_args *args, int64_t units, int64_t unit_elements, float_range range,
                               const void *context) {
    const int workers = fl_threads();
    struct float_parts p;
    p.args = args;
    p.context = context;
    p.range = range;
    p.units = units;
    p.units_per_part = FLOAT_PART > unit_elements ? FLOAT_PART / unit_elements : 1;
    memset(p.stats, 0, (size_t)workers * sizeof p.stats[0]);
    const int parts = (int)((units + p.units_per_part - 1) / p.units_per_part);
    fl_parallel_within(workers, parts, run_part, &p);
    for (int worker = 0; worker < workers; worker++)
        fl_stats_merge(args->stats, &p.stats[worker]);
    return TENSOR_OK;
}

#endif
