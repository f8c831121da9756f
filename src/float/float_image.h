/* float_image.h - the parameter-free shortcut of a residual network (option A of He et al. 2016): every stride-th
 * pixel, its channels amid zeros; and the gradient of that.
 *
 * Expects: a codec (float_block.h).
 * Gives: shortcut. */
#ifndef FL_FLOAT_IMAGE_H
#define FL_FLOAT_IMAGE_H

#include "float/float_parts.h"
#include "float/float_store.h"
#include "float/float_strip.h"

/* One direction of the shortcut: output pixel (y, z) reads input pixel (y, z) * up / down if these are integers, output
 * channel k reads input channel k - shift if it exists. */
struct shortcut {
    int64_t out_h, out_w, out_c;
    int64_t in_h, in_w, in_c;
    int64_t up, down, shift;
};

/* Units: rows (n, y) of output pixels. */
static void shortcut_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                           struct fl_stats *stats) {
    const struct shortcut *s = context;
    const fl_element *in = args->in[0].data;
    float block[FLOAT_BLOCK];
    for (int64_t unit = first; unit < end; unit++) {
        const int64_t n = unit / s->out_h, y = unit % s->out_h, source_y = y * s->up / s->down;
        const bool row = y % s->down == 0 && source_y < s->in_h;
        for (struct strip t = first_strip(s->out_c, s->out_w); next_strip(&t);) {
            const int64_t from = s->shift > t.c0 ? s->shift : t.c0;
            const int64_t to = float_min(t.c0 + t.channels, s->shift + s->in_c);
            memset(block, 0, (size_t)(t.pixels * t.channels) * sizeof *block);
            for (int64_t k = 0; row && from < to && k < t.pixels; k++) {
                const int64_t z = t.pixel + k, source_z = z * s->up / s->down;
                if (z % s->down || source_z >= s->in_w)
                    continue;
                const fl_element *source = in + ((n * s->in_h + source_y) * s->in_w + source_z) * s->in_c;
                load_block(source + from - s->shift, to - from, block + k * t.channels + from - t.c0);
            }
            store_elements(args, (unit * s->out_w + t.pixel) * s->out_c + t.c0, t.pixels * t.channels, block, stats);
        }
    }
}

static tensor_status shortcut(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t pad = (g->filters - g->c) / 2;
    const struct shortcut forward = {g->p, g->q, g->filters, g->h, g->w, g->c, g->stride[0], 1, pad};
    const struct shortcut gradient = {g->h, g->w, g->c, g->p, g->q, g->filters, 1, g->stride[0], -pad};
    const struct shortcut *s = args->op == FL_OP_SHORTCUT_A ? &forward : &gradient;
    return run_parts(args, g->batch * s->out_h, s->out_w * s->out_c, shortcut_range, s);
}

#endif
