/* transfer.c - blocks of doubles between host numbers, tensors and codecs, threaded by fixed parts. */
#include "core/transfer.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/parallel.h"
#include <math.h>
#include <string.h>

enum { PART = 64 * FL_BLOCK };

void fl_source_fetch(const struct fl_source *s, int64_t first, int64_t n, double *block) {
    if (s->f)
        for (int64_t i = 0; i < n; i++)
            block[i] = s->f[first + i];
    else if (s->d)
        memcpy(block, s->d + first, (size_t)n * sizeof *block);
    else
        s->format->decode(&s->view, first, n, block);
}

struct job {
    const struct fl_transfer *transfer;
    struct fl_transfer_result *results; /* one a part */
};

static void transfer_part(void *context, int part) {
    const struct job *job = context;
    const struct fl_transfer *t = job->transfer;
    struct fl_transfer_result r = {.nonfinite = -1};
    int64_t end = (int64_t)(part + 1) * PART < t->count ? (int64_t)(part + 1) * PART : t->count;
    double block[FL_BLOCK];
    for (int64_t first = (int64_t)part * PART; first < end; first += FL_BLOCK) {
        int64_t n = end - first < FL_BLOCK ? end - first : FL_BLOCK;
        fl_source_fetch(&t->source, first, n, block);
        if (t->format) {
            t->format->encode(&t->out, first, n, block, t->op_result, &t->rounding, &r.stats);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            double a = fabs(block[i]);
            if (!(a <= 1.7976931348623157e308)) {
                if (r.nonfinite < 0)
                    r.nonfinite = first + i;
            } else if (a > r.maximum) {
                r.maximum = a;
            }
        }
    }
    job->results[part] = r;
}

tensor_status fl_transfer(const struct fl_transfer *t, struct fl_transfer_result *total) {
    const int parts = (int)((t->count + PART - 1) / PART);
    struct fl_transfer_result few[16];
    struct job job = {t, parts <= 16 ? few : fl_alloc((size_t)parts * sizeof few[0])};
    if (!job.results)
        return fl_fail(TENSOR_E_MEMORY, "no memory for %d parts", parts);
    fl_parallel(parts, transfer_part, &job);
    *total = (struct fl_transfer_result){.nonfinite = -1};
    for (int i = 0; i < parts; i++) {
        fl_stats_merge(&total->stats, &job.results[i].stats);
        if (job.results[i].maximum > total->maximum)
            total->maximum = job.results[i].maximum;
        if (total->nonfinite < 0)
            total->nonfinite = job.results[i].nonfinite;
    }
    if (job.results != few)
        fl_free(job.results);
    return TENSOR_OK;
}
