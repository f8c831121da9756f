/* pixels.c - from bytes to elements by a table that is rounded once.
 *
 * Statistics are those of each number by itself, merged: sums of counts, and maxima. They follow from which bytes occur
 * in each channel. Usually the lowest and the highest byte suffice: if a table rises or falls between them, the largest
 * numbers are at the ends, and no entry between them saturates or is flushed. Otherwise bytes are counted.
 */
#include "core/tensor/pixels.h"
#include "core/base/parallel.h"
#include "core/base/stream.h"
#include <math.h>
#include <string.h>

enum {
    CHANNELS = 8, /* at most */
    BYTES = 256,
    PARTS = 64,         /* at most */
    LEAST = 32768,      /* pixels of a part, at least */
    STRETCH = 128,      /* pixels that a loop takes at a time: whole cache lines, for any number of channels */
    LOOK_EVERY = 16,    /* stretches after which it checks whether the ranges are full */
    STREAMED = 16 << 20 /* bytes of outputs that are written around the caches */
};

struct pixels {
    const struct fl_source *source;
    int channels;
    int64_t count, per_part;               /* pixels */
    uint8_t low[CHANNELS], high[CHANNELS]; /* of the bytes that occur */
    bool counted;                          /* counts are known */
    int64_t counts[CHANNELS * BYTES];
    /* writing */
    char *out;
    int bytes; /* of an element */
    bool stream;
    _Alignas(64) char elements[CHANNELS * BYTES * 4];
    uint8_t part_low[PARTS][CHANNELS], part_high[PARTS][CHANNELS];
};

/* A loop over pixels for each number of channels, which is a constant in the last argument of the loop. */
#define BY_CHANNELS(channels, loop, ...)                                                                               \
    switch (channels) {                                                                                                \
    case 1:                                                                                                            \
        loop(__VA_ARGS__, 1);                                                                                          \
        break;                                                                                                         \
    case 2:                                                                                                            \
        loop(__VA_ARGS__, 2);                                                                                          \
        break;                                                                                                         \
    case 3:                                                                                                            \
        loop(__VA_ARGS__, 3);                                                                                          \
        break;                                                                                                         \
    case 4:                                                                                                            \
        loop(__VA_ARGS__, 4);                                                                                          \
        break;                                                                                                         \
    case 5:                                                                                                            \
        loop(__VA_ARGS__, 5);                                                                                          \
        break;                                                                                                         \
    case 6:                                                                                                            \
        loop(__VA_ARGS__, 6);                                                                                          \
        break;                                                                                                         \
    case 7:                                                                                                            \
        loop(__VA_ARGS__, 7);                                                                                          \
        break;                                                                                                         \
    case 8:                                                                                                            \
        loop(__VA_ARGS__, 8);                                                                                          \
        break;                                                                                                         \
    }
_Static_assert(CHANNELS == 8, "loops for each number of channels");

static float value(const struct pixels *p, int c, int byte) {
    return p->source->values[c * BYTES + byte];
}

static bool occurs(const struct pixels *p, int c, int byte) {
    return p->counted ? p->counts[c * BYTES + byte] > 0 : byte == p->low[c] || byte == p->high[c];
}

static const uint8_t *part_pixels(const struct pixels *p, int part, int64_t *n) {
    const int64_t first = part * p->per_part;
    *n = p->count - first < p->per_part ? p->count - first : p->per_part;
    return p->source->pixels + first * p->channels;
}

static void run(struct pixels *p, fl_part work) {
    fl_parallel((int)((p->count + p->per_part - 1) / p->per_part), work, p);
}

/* --- which bytes occur -------------------------------------------------------------------------------------------- */

/* Extends low and high, n entries each, by n more bytes. */
static void widen(uint8_t *restrict low, uint8_t *restrict high, const uint8_t *restrict x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        low[i] = x[i] < low[i] ? x[i] : low[i];
        high[i] = x[i] > high[i] ? x[i] : high[i];
    }
}

/* Joins the ranges of the entries of a stretch into those of channels; returns whether all are 0 to 255. */
static bool join_ranges(uint8_t *low, uint8_t *high, int channels) {
    bool all = true;
    for (int c = 0; c < channels; c++) {
        for (int i = c; i < STRETCH * channels; i += channels) {
            low[c] = low[i] < low[c] ? low[i] : low[c];
            high[c] = high[i] > high[c] ? high[i] : high[c];
        }
        all = all && low[c] == 0 && high[c] == BYTES - 1;
    }
    return all;
}

static void range_part(void *context, int part, int worker) {
    (void)worker;
    struct pixels *p = context;
    uint8_t low[STRETCH * CHANNELS], high[STRETCH * CHANNELS];
    int64_t n;
    const uint8_t *x = part_pixels(p, part, &n);
    const int channels = p->channels, length = STRETCH * channels;
    memset(low, BYTES - 1, sizeof low);
    memset(high, 0, sizeof high);
    bool all = false;
    for (int i = 1; n >= STRETCH && !all; i++, n -= STRETCH, x += length) {
        widen(low, high, x, length);
        all = i % LOOK_EVERY == 0 && join_ranges(low, high, channels); /* most images soon contain both ends */
    }
    if (!all)
        widen(low, high, x, n * channels);
    join_ranges(low, high, channels);
    memcpy(p->part_low[part], low, (size_t)channels);
    memcpy(p->part_high[part], high, (size_t)channels);
}

static void find_ranges(struct pixels *p) {
    run(p, range_part);
    const int64_t parts = (p->count + p->per_part - 1) / p->per_part;
    for (int c = 0; c < p->channels; c++) {
        p->low[c] = BYTES - 1;
        p->high[c] = 0;
        for (int64_t i = 0; i < parts; i++) {
            p->low[c] = p->part_low[i][c] < p->low[c] ? p->part_low[i][c] : p->low[c];
            p->high[c] = p->part_high[i][c] > p->high[c] ? p->part_high[i][c] : p->high[c];
        }
    }
}

static inline __attribute__((always_inline)) void count_pixels(int64_t *restrict counts, const uint8_t *restrict x,
                                                               int64_t n, const int channels) {
    for (int64_t i = 0; i < n; i++, x += channels)
        for (int c = 0; c < channels; c++)
            counts[c * BYTES + x[c]]++;
}

/* Integer sums, for which the order of the parts does not matter. */
static void count_part(void *context, int part, int worker) {
    (void)worker;
    struct pixels *p = context;
    int64_t counts[CHANNELS * BYTES] = {0}, n;
    const uint8_t *x = part_pixels(p, part, &n);
    BY_CHANNELS(p->channels, count_pixels, counts, x, n)
    for (int i = 0; i < p->channels * BYTES; i++)
        if (counts[i])
            __atomic_fetch_add(&p->counts[i], counts[i], __ATOMIC_RELAXED);
}

static void count(struct pixels *p) {
    memset(p->counts, 0, sizeof p->counts);
    run(p, count_part);
    p->counted = true;
}

/* Whether the numbers of every channel rise or fall from the lowest byte to the highest; false if one is NaN. */
static bool is_monotone(const struct pixels *p) {
    bool all = true;
    for (int c = 0; c < p->channels; c++) {
        bool rises = true, falls = true;
        for (int i = p->low[c]; i < p->high[c]; i++) {
            rises = rises && value(p, c, i) <= value(p, c, i + 1);
            falls = falls && value(p, c, i) >= value(p, c, i + 1);
        }
        all = all && (rises || falls);
    }
    return all;
}

/* --- looking ------------------------------------------------------------------------------------------------------ */

/* The largest |number| that occurs; false where one that does is not finite. */
static bool largest(const struct pixels *p, double *maximum) {
    *maximum = 0;
    for (int c = 0; c < p->channels; c++)
        for (int i = p->low[c]; i <= p->high[c]; i++) {
            if (!occurs(p, c, i))
                continue;
            if (!isfinite(value(p, c, i)))
                return false;
            *maximum = fmax(*maximum, fabs((double)value(p, c, i)));
        }
    return true;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void encode(struct pixels *p, const struct fl_transfer *t, int c, int first, int n, bool keeps,
                   struct fl_stats *stats) {
    double values[BYTES];
    for (int i = 0; i < n; i++)
        values[i] = value(p, c, first + i);
    const struct fl_view view = {keeps ? p->elements : NULL, NULL, t->out.e, CHANNELS * BYTES};
    t->format->encode(t->format, &view, c * BYTES + first, n, values, false, &t->rounding, stats);
}

/* Rounds the table, and computes the statistics of all numbers. */
static void round_table(struct pixels *p, const struct fl_transfer *t, struct fl_stats *stats) {
    struct fl_stats table = {0};
    for (int c = 0; c < p->channels; c++)
        encode(p, t, c, p->low[c], p->high[c] - p->low[c] + 1, true, &table);
    if (!is_monotone(p) || table.saturated || table.flushed || table.nonfinite)
        count(p);
    for (int c = 0; c < p->channels; c++)
        for (int i = p->low[c]; i <= p->high[c]; i++) {
            if (!occurs(p, c, i))
                continue;
            struct fl_stats one = {0};
            encode(p, t, c, i, 1, false, &one);
            if (p->counted) {
                one.saturated *= p->counts[c * BYTES + i];
                one.flushed *= p->counts[c * BYTES + i];
                one.nonfinite *= p->counts[c * BYTES + i];
            }
            fl_stats_merge(stats, &one);
        }
}

/* Converts n pixels to elements. */
#define LOOK_UP(name, type)                                                                                            \
    static inline __attribute__((always_inline)) void name(type *restrict to, const uint8_t *restrict x, int64_t n,    \
                                                           const type *restrict table, const int channels) {           \
        for (int64_t i = 0; i < n; i++, x += channels, to += channels)                                                 \
            for (int c = 0; c < channels; c++)                                                                         \
                to[c] = table[c * BYTES + x[c]];                                                                       \
    }
LOOK_UP(look_up_16, uint16_t)
LOOK_UP(look_up_32, uint32_t)

static void look_up(const struct pixels *p, void *to, const uint8_t *x, int64_t n) {
    const void *table = p->elements;
    if (p->bytes == 2)
        BY_CHANNELS(p->channels, look_up_16, to, x, n, table)
    else
        BY_CHANNELS(p->channels, look_up_32, to, x, n, table)
}

static void write_part(void *context, int part, int worker) {
    (void)worker;
    const struct pixels *p = context;
    int64_t n;
    const uint8_t *x = part_pixels(p, part, &n);
    const int64_t pixel = (int64_t)p->channels * p->bytes;
    char *to = p->out + part * p->per_part * pixel;
    if (!p->stream) {
        look_up(p, to, x, n);
        return;
    }
    _Alignas(64) char buffer[STRETCH * CHANNELS * 4];
    for (int64_t some; n > 0; n -= some, x += some * p->channels, to += some * pixel) {
        some = n < STRETCH ? n : STRETCH;
        look_up(p, buffer, x, some);
        fl_stream(to, buffer, (size_t)(some * pixel));
    }
    fl_stream_end();
}

bool fl_transfer_pixels(const struct fl_transfer *t, struct fl_transfer_result *total) {
    const int64_t channels = t->source.channels;
    enum fl_backend cap;
    if (channels > CHANNELS || t->count < channels * BYTES || t->rounding.mode == TENSOR_ROUND_STOCHASTIC ||
        t->op_result || (t->format && (!t->out.data || (t->format->bytes != 2 && t->format->bytes != 4))) ||
        fl_backend_cap(&cap) || cap == FL_REF)
        return false;
    struct pixels p = {.source = &t->source, .channels = (int)channels, .count = t->count / channels};
    const int64_t share = (p.count + PARTS - 1) / PARTS, least = share > LEAST ? share : LEAST;
    p.per_part = (least + STRETCH - 1) / STRETCH * STRETCH;
    find_ranges(&p);
    *total = (struct fl_transfer_result){.nonfinite = -1};
    if (!t->format) {
        if (!is_monotone(&p))
            count(&p);
        return largest(&p, &total->maximum);
    }
    p.out = t->out.data;
    p.bytes = t->format->bytes;
    p.stream = t->count * p.bytes >= STREAMED && (uintptr_t)p.out % 64 == 0;
    round_table(&p, t, &total->stats);
    run(&p, write_part);
    return true;
}
