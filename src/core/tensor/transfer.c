/* transfer.c - blocks of numbers between host arrays, tensors and codecs, threaded by fixed parts.
 *
 * Kernels of this machine convert numbers that fit binary32 as floats, and the codec all others as doubles; the results
 * are the same. Outputs far larger than the caches are written around them: a plain store would first read the lines
 * that it overwrites, a third of the traffic. */
#include "core/tensor/transfer.h"
#include "core/tensor/narrow.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/tensor/pixels.h"
#include "core/base/stream.h"
#include <math.h>
#include <string.h>

enum { PARTS = 64, PART = 64 * FL_BLOCK /* elements of a part, at least */, ELEMENT_BYTES = 4 /* at most */ };
enum { LEAST_EXPONENT = -112 };   /* every 2^15 * 2^-e is then a binary32 */
enum { STREAM_BYTES = 16 << 20 }; /* outputs from this size on are not expected in a cache again */
enum { FAR_BLOCK = 512 };         /* numbers prefetched at a time: more would wait for lines, not convert meanwhile */

/* Reads n numbers of pixels, from number `first` on. */
static void look_up(const struct fl_source *s, int64_t first, int64_t n, float *block) {
    for (int64_t i = 0, c = first % s->channels; i < n; i++, c = c + 1 < s->channels ? c + 1 : 0)
        block[i] = s->values[c * 256 + s->pixels[first + i]];
}

static void fetch_pixels(const struct fl_source *s, int64_t first, int64_t n, double *block) {
    float some[FL_BLOCK];
    for (int64_t done = 0; done < n; done += FL_BLOCK) {
        const int64_t count = n - done < FL_BLOCK ? n - done : FL_BLOCK;
        look_up(s, first + done, count, some);
        for (int64_t i = 0; i < count; i++)
            block[done + i] = some[i];
    }
}

void fl_source_fetch(const struct fl_source *s, int64_t first, int64_t n, double *block) {
    if (s->fill.kind)
        for (int64_t i = 0; i < n; i++)
            block[i] = fl_fill_value(&s->fill, first + i);
    else if (s->sum)
        fl_sum_fetch(s->sum, first, n, block);
    else if (s->pixels)
        fetch_pixels(s, first, n, block);
    else if (s->f)
        for (int64_t i = 0; i < n; i++)
            block[i] = s->f[first + i];
    else if (s->d)
        memcpy(block, s->d + first, (size_t)n * sizeof *block);
    else
        s->format->decode(s->format, &s->view, first, n, block);
}

const struct fl_kernels *fl_converting_set(const struct fl_format *format) {
    enum fl_backend cap;
    if (fl_is_narrow(format) || fl_backend_cap(&cap))
        return NULL;
    for (int backend = cap; backend > FL_REF; backend--) {
        const struct fl_kernels *set = format->sets[backend];
        if (set && set->from_floats && set->to_floats && fl_backend_runs((enum fl_backend)backend))
            return set;
    }
    return NULL;
}

/* Whether every number of the source is a binary32. */
static bool holds_floats(const struct fl_source *s) {
    return s->f ||
           (s->format && (s->format->arithmetic == FL_ARITHMETIC_FLOAT || fl_exponent(&s->view) >= LEAST_EXPONENT));
}

/* n numbers of the source as floats: converted into `block`, or in place. */
static const float *fetch_floats(const struct fl_source *s, const struct fl_kernels *set, int64_t first, int64_t n,
                                 float *block) {
    if (s->f)
        return s->f + first;
    if (s->pixels) {
        look_up(s, first, n, block);
        return block;
    }
    if (s->format->id == FMT_FP32)
        return (const float *)s->view.data + first;
    set->to_floats(s->format, &s->view, first, n, block, false);
    return block;
}

void fl_store_floats(const struct fl_source *s, int64_t count, float *values) {
    const struct fl_kernels *set = s->format && holds_floats(s) ? fl_converting_set(s->format) : NULL;
    if (set) {
        set->to_floats(s->format, &s->view, 0, count, values, false);
        return;
    }
    double block[FL_BLOCK];
    for (int64_t first = 0; first < count; first += FL_BLOCK) {
        const int64_t n = count - first < FL_BLOCK ? count - first : FL_BLOCK;
        fl_source_fetch(s, first, n, block);
        for (int64_t i = 0; i < n; i++)
            values[first + i] = (float)block[i];
    }
}

/* --- parts -------------------------------------------------------------------------------------------------------- */

struct job {
    const struct fl_transfer *transfer;
    struct fl_transfer_result results[PARTS];
    int64_t per_part;                   /* elements */
    bool floats;                        /* blocks are binary32, else double */
    const struct fl_kernels *from, *to; /* conversions of the formats of source and destination, if any */
    bool far;                           /* the source is floats, expected in no cache */
    int64_t block;                      /* numbers converted at a time */
    bool stream;                        /* the destination is written around the caches */
};

static void look_at(const double *block, int64_t first, int64_t n, struct fl_transfer_result *r) {
    for (int64_t i = 0; i < n; i++) {
        const double a = fabs(block[i]);
        if (!(a <= 1.7976931348623157e308)) {
            if (r->nonfinite < 0)
                r->nonfinite = first + i;
        } else if (a > r->maximum) {
            r->maximum = a;
        }
    }
}

static void transfer_doubles(const struct job *job, int64_t first, int64_t n, struct fl_transfer_result *r) {
    const struct fl_transfer *t = job->transfer;
    double block[FL_BLOCK];
    fl_source_fetch(&t->source, first, n, block);
    if (t->op_result && job->to && t->format->arithmetic == FL_ARITHMETIC_FLOAT &&
        t->rounding.mode != TENSOR_ROUND_STOCHASTIC) {
        float rounded[FL_BLOCK]; /* results of an operation are binary32 before they are stored */
        for (int64_t i = 0; i < n; i++)
            rounded[i] = (float)block[i];
        job->to->from_floats(t->format, &t->out, first, n, rounded, &t->rounding, &r->stats);
    } else if (t->format)
        t->format->encode(t->format, &t->out, first, n, block, t->op_result, &t->rounding, &r->stats);
    else
        look_at(block, first, n, r);
}

/* Converts a format with conversions to binary32 directly, without a block between. */
static void expand(const struct job *job, int64_t first, int64_t n, struct fl_stats *stats) {
    const struct fl_transfer *t = job->transfer;
    float *dst = (float *)t->out.data + first;
    const uint32_t largest = job->from->to_floats(t->source.format, &t->source.view, first, n, dst, job->stream);
    if (largest >= 0x7f800000u) {
        job->to->from_floats(t->format, &t->out, first, n, dst, &t->rounding, stats);
        return;
    }
    float maximum;
    memcpy(&maximum, &largest, sizeof maximum);
    stats->maximum = maximum > stats->maximum ? maximum : stats->maximum;
}

/* Prefetches the numbers of the next block while this one is converted: the processor's own prefetching stops at the
 * end of a page, and waits behind stores around the caches. */
static void prefetch_block(const float *next) {
    for (int64_t i = 0; i < FAR_BLOCK; i += 64 / (int64_t)sizeof *next)
        __builtin_prefetch(next + i);
}

static void transfer_floats(const struct job *job, int64_t first, int64_t n, struct fl_transfer_result *r) {
    const struct fl_transfer *t = job->transfer;
    if (t->format && t->format->id == FMT_FP32 && job->from && t->source.format->id != FMT_FP32 && t->out.data) {
        expand(job, first, n, &r->stats);
        return;
    }
    float block[FL_BLOCK];
    _Alignas(64) char buffer[FL_BLOCK * ELEMENT_BYTES];
    const float *x = fetch_floats(&t->source, job->from, first, n, block);
    if (job->far)
        prefetch_block(x + n);
    if (!t->format) {
        struct fl_stats seen = {0};
        job->to->from_floats(fl_format_of(FMT_FP32), &(struct fl_view){0}, 0, n, x, &t->rounding, &seen);
        if (seen.nonfinite)
            transfer_doubles(job, first, n, r);
        else if (seen.maximum > r->maximum)
            r->maximum = seen.maximum;
    } else if (job->stream) {
        const struct fl_view out = {buffer, NULL, t->out.e, n};
        job->to->from_floats(t->format, &out, 0, n, x, &t->rounding, &r->stats);
        fl_stream((char *)t->out.data + first * t->format->bytes, buffer, (size_t)(n * t->format->bytes));
    } else {
        job->to->from_floats(t->format, &t->out, first, n, x, &t->rounding, &r->stats);
    }
}

static void transfer_part(void *context, int part, int worker) {
    (void)worker;
    struct job *job = context;
    const struct fl_transfer *t = job->transfer;
    struct fl_transfer_result r = {.nonfinite = -1};
    const int64_t begin = part * job->per_part;
    const int64_t end = begin + job->per_part < t->count ? begin + job->per_part : t->count;
    for (int64_t first = begin; first < end; first += job->block) {
        int64_t n = end - first < job->block ? end - first : job->block;
        if (job->floats)
            transfer_floats(job, first, n, &r);
        else
            transfer_doubles(job, first, n, &r);
    }
    if (job->stream)
        fl_stream_end();
    job->results[part] = r;
}

void fl_transfer(const struct fl_transfer *t, struct fl_transfer_result *total) {
    if (t->source.pixels && fl_transfer_pixels(t, total))
        return;
    struct job job = {.transfer = t};
    const int64_t share = (t->count + PARTS - 1) / PARTS;
    job.per_part = share > PART ? (share + PART - 1) / PART * PART : PART;
    const int parts = (int)((t->count + job.per_part - 1) / job.per_part);
    job.from = t->source.format ? fl_converting_set(t->source.format) : NULL;
    job.to = fl_converting_set(t->format ? t->format : fl_format_of(FMT_FP32)); /* looking only: measures */
    job.floats = !t->source.sum && holds_floats(&t->source) && (job.from || !t->source.format) && job.to &&
                 t->rounding.mode != TENSOR_ROUND_STOCHASTIC;
    job.stream = job.floats && t->format && t->out.data && t->count * t->format->bytes >= STREAM_BYTES &&
                 (uintptr_t)t->out.data % 64 == 0;
    job.far = job.floats && t->count * (int64_t)sizeof(float) >= STREAM_BYTES &&
              (t->source.f || (t->source.format && t->source.format->id == FMT_FP32));
    job.block = job.far ? FAR_BLOCK : FL_BLOCK;
    fl_parallel(parts, transfer_part, &job);
    *total = (struct fl_transfer_result){.nonfinite = -1};
    for (int i = 0; i < parts; i++) {
        fl_stats_merge(&total->stats, &job.results[i].stats);
        if (job.results[i].maximum > total->maximum)
            total->maximum = job.results[i].maximum;
        if (total->nonfinite < 0)
            total->nonfinite = job.results[i].nonfinite;
    }
}
