/* wide.c - wide parts: int32 mantissas at exponent e + 16, or binary32, of which the elements are the rounding.
 *
 * These are passes over the elements, threaded by parts that depend only on the number of elements. They allocate no
 * memory, because they must not fail: the elements have been written already. */
#include "core/tensor/wide.h"
#include "core/base/parallel.h"
#include "core/tensor/element_rules.h"
#include "core/tensor/narrow.h"
#include <math.h>
#include <string.h>

enum { PARTS = 64, LEAST = 16 * FL_BLOCK /* elements of a part */ };
enum { ELEMENT_BYTES = 2 /* at most, of float formats with a wide part */ };

struct pass;
typedef void (*block_fn)(struct pass *pass, int64_t first, int64_t n, struct fl_stats *stats);

struct pass {
    const struct fl_storage *t;
    const struct fl_kernels *row;   /* conversions of a float format; NULL: its codec serves */
    const struct fl_source *source; /* of a load */
    block_fn block;
    int64_t length; /* elements of a part */
    struct fl_stats stats[PARTS];
};

static void run_part(void *context, int part, int worker) {
    (void)worker;
    struct pass *p = context;
    struct fl_stats stats = {0};
    const int64_t begin = part * p->length, count = p->t->count;
    const int64_t end = begin + p->length < count ? begin + p->length : count;
    for (int64_t first = begin; first < end; first += FL_BLOCK)
        p->block(p, first, end - first < FL_BLOCK ? end - first : FL_BLOCK, &stats);
    p->stats[part] = stats;
}

/* Runs the pass on every block of the tensor, each on one thread. */
static void run(struct pass *p) {
    const int64_t blocks = (p->t->count + FL_BLOCK - 1) / FL_BLOCK;
    p->length = (blocks + PARTS - 1) / PARTS * FL_BLOCK;
    if (p->length < LEAST)
        p->length = LEAST;
    p->row = p->t->format->arithmetic == FL_ARITHMETIC_FLOAT ? fl_converting_set(p->t->format) : NULL;
    fl_parallel((int)((p->t->count + p->length - 1) / p->length), run_part, p);
}

static bool is_shared(const struct pass *p) {
    return p->t->format->arithmetic == FL_ARITHMETIC_SHARED;
}

/* --- float formats: between elements and binary32 ----------------------------------------------------------------- */

/* n elements from index `first` of the view. */
static void to_floats(const struct pass *p, const struct fl_view *view, int64_t first, int64_t n, float *values) {
    if (p->row) {
        p->row->to_floats(p->t->format, view, first, n, values, false);
        return;
    }
    double block[FL_BLOCK];
    p->t->format->decode(p->t->format, view, first, n, block);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)block[i];
}

static void from_floats(const struct pass *p, const struct fl_view *view, int64_t first, int64_t n, const float *values,
                        tensor_rounding mode, struct fl_stats *stats) {
    const struct fl_rounding rounding = {mode, 0, 0};
    if (p->row) {
        p->row->from_floats(p->t->format, view, first, n, values, &rounding, stats);
        return;
    }
    double block[FL_BLOCK];
    for (int64_t i = 0; i < n; i++)
        block[i] = values[i];
    p->t->format->encode(p->t->format, view, first, n, block, false, &rounding, stats);
}

/* --- the wide part follows the elements --------------------------------------------------------------------------- */

static void follow(struct pass *p, int64_t first, int64_t n, struct fl_stats *stats) {
    (void)stats;
    const struct fl_view view = fl_stored_view(p->t);
    if (!is_shared(p)) {
        to_floats(p, &view, first, n, (float *)p->t->wide + first);
        return;
    }
    const int16_t *m = (const int16_t *)view.data + first;
    int32_t *wide = (int32_t *)p->t->wide + first;
    for (int64_t i = 0; i < n; i++)
        wide[i] = fl_widen(m[i]);
}

void fl_wide_follow(const struct fl_storage *t) {
    if (t->wide)
        run(&(struct pass){.t = t, .block = follow});
}

/* --- elements written by hand ------------------------------------------------------------------------------------- */

static void settle_shared(struct pass *p, int64_t first, int64_t n) {
    const int16_t *m = (const int16_t *)p->t->data + first;
    int32_t *wide = (int32_t *)p->t->wide + first;
    for (int64_t i = 0; i < n; i++) {
        wide[i] = fl_narrow(wide[i]) == m[i] ? wide[i] : fl_widen(m[i]);
    }
}

static void settle(struct pass *p, int64_t first, int64_t n, struct fl_stats *stats) {
    if (is_shared(p)) {
        settle_shared(p, first, n);
        return;
    }
    const struct fl_view view = fl_stored_view(p->t);
    float *wide = (float *)p->t->wide + first;
    const size_t size = (size_t)p->t->format->bytes;
    _Alignas(64) char rounded[FL_BLOCK * ELEMENT_BYTES];
    from_floats(p, &(struct fl_view){.data = rounded, .e = view.e, .count = n}, 0, n, wide, p->t->view_rounding, stats);
    const char *elements = (const char *)view.data + (size_t)first * size;
    if (!memcmp(rounded, elements, (size_t)n * size))
        return;
    for (int64_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * size;
        float value;
        to_floats(p, &view, first + i, 1, &value);
        if (memcmp(rounded + at, elements + at, size) != 0 && !(value != value && wide[i] != wide[i]))
            wide[i] = value;
    }
}

void fl_wide_settle(const struct fl_storage *t) {
    if (t->wide && t->by_hand)
        run(&(struct pass){.t = t, .block = settle});
}

/* --- loads -------------------------------------------------------------------------------------------------------- */

static void load_shared(struct pass *p, const double *values, int64_t first, int64_t n, struct fl_stats *stats) {
    const double unit = fl_power_of_two(p->t->slot->autoflex.e + 16);
    int16_t *m = (int16_t *)p->t->data + first;
    int32_t *wide = (int32_t *)p->t->wide + first;
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = (int64_t)fl_nearest_units(values[i] * unit, FL_WIDE_LIMIT);
        wide[i] = fl_put_wide(x, values[i] != 0, &m[i], stats);
        stats->maximum = fmax(stats->maximum, fabs(values[i]));
    }
}

static void load(struct pass *p, int64_t first, int64_t n, struct fl_stats *stats) {
    double block[FL_BLOCK];
    fl_source_fetch(p->source, first, n, block);
    if (is_shared(p)) {
        load_shared(p, block, first, n, stats);
        return;
    }
    float *wide = (float *)p->t->wide + first;
    struct fl_stats lost = {0}, stored = {0};
    for (int64_t i = 0; i < n; i++) {
        wide[i] = (float)block[i];
        lost.maximum = fabs(block[i]) > lost.maximum ? fabs(block[i]) : lost.maximum;
        fl_count_lost(block[i], wide[i], &lost);
    }
    const struct fl_view view = fl_output_view(p->t);
    from_floats(p, &view, first, n, wide, fl_view_rounding(p->t), &stored);
    stored.maximum = 0; /* of the binary32 numbers */
    fl_stats_merge(stats, &lost);
    fl_stats_merge(stats, &stored);
}

void fl_wide_load(const struct fl_storage *t, const struct fl_source *source, struct fl_stats *stats) {
    struct pass p = {.t = t, .source = source, .block = load};
    run(&p);
    for (int i = 0; i < PARTS; i++)
        fl_stats_merge(stats, &p.stats[i]);
    const struct fl_view view = {.data = t->data, .wide = t->wide};
    fl_clamp(t->format, &view, 0, t->count, stats);
}
