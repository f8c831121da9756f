/* narrow.c - clamps what the kernels of 16-bit mantissas wrote to the range of a narrow format. */
#include "core/tensor/narrow.h"
#include "core/base/parallel.h"

enum { PARTS = 64, LEAST = 1 << 14 /* elements of a part */ };

struct clamp {
    int16_t *elements;
    int32_t *wide; /* NULL: none */
    int32_t top, wide_top;
    int64_t count, length; /* elements in all, and of a part */
    int64_t saturated[PARTS];
};

static void run_part(void *context, int part, int worker) {
    (void)worker;
    struct clamp *const c = context;
    const int64_t begin = part * c->length, end = begin + c->length < c->count ? begin + c->length : c->count;
    const int32_t top = c->top, wide_top = c->wide_top;
    int64_t saturated = 0, wide_saturated = 0;
    for (int64_t i = begin; i < end; i++) {
        const int32_t m = c->elements[i];
        saturated += m > top || m < -top;
        c->elements[i] = (int16_t)(m > top ? top : m < -top ? -top : m);
    }
    for (int64_t i = begin; c->wide && i < end; i++) {
        const int32_t m = c->wide[i];
        wide_saturated += m > wide_top || m < -wide_top;
        c->wide[i] = m > wide_top ? wide_top : m < -wide_top ? -wide_top : m;
    }
    c->saturated[part] = c->wide ? wide_saturated : saturated;
}

void fl_clamp(const struct fl_format *format, const struct fl_view *out, int64_t first, int64_t n,
              struct fl_stats *stats) {
    const int32_t top = format->top;
    if (!fl_is_narrow(format))
        return;
    const bool fits = stats->gamma <= top && !stats->nonfinite; /* an infinite result is +-32767, and not in gamma */
    stats->gamma = stats->gamma < top ? stats->gamma : top;
    if (fits || !out->data)
        return;
    struct clamp c = {.elements = (int16_t *)out->data + first,
                      .wide = out->wide ? (int32_t *)out->wide + first : NULL,
                      .top = top,
                      .wide_top = fl_wide_limit(format),
                      .count = n,
                      .length = (n + PARTS - 1) / PARTS};
    c.length = c.length < LEAST ? LEAST : c.length;
    const int parts = (int)((n + c.length - 1) / c.length);
    if (parts > 1)
        fl_parallel(parts, run_part, &c);
    else
        run_part(&c, 0, 0);
    int64_t saturated = 0;
    for (int i = 0; i < parts; i++)
        saturated += c.saturated[i];
    stats->saturated = saturated;
}
