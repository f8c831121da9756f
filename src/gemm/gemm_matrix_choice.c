/* gemm_matrix_choice.c - decides by measurements when vectors are faster although matrix tiles are available.
 *
 * Times are of int16, first on vectors, then on tiles: one thread of a Sapphire Rapids.
 *
 * Matmul of few products: 8^3 0.7 and 1.0 us, 16^3 1.0 and 1.3, 32^3 1.7 and 2.4, 64^3 6.5 and 6.5. Thin matrices of
 * more products are faster on tiles, up to six times.
 *
 * Weight gradient of few pixels, because an image begins a tile of 64 pixels, and lines are multiples of four: 2x2
 * pixels of 256 channels 1.3 and 4.0 ms, 4x4 3.3 and 5.2, but 7x7 of 512 channels 14.6 and 8.9.
 *
 * Weight gradient of few channels, because a filter position has a tile of 16 channels: 7x7 filters on 3 channels 1.2
 * and 1.7 ms, 16x16 0.3 and 1.9 (before filter columns were joined), but 3x3 on 3 channels 2.5 and 0.6.
 *
 * Windows of few bytes, because a line holds 64: below a tenth of that tiles take three to fourteen times as long; 3x3
 * on 3 channels, 9 bytes, 2.0 and 1.6 ms.
 *
 * Strides beyond those of symmetric windows, because every line between two that are read occupies memory.
 *
 * Few pixels: packing the filters takes most of the time with fewer than four tiles of pixels. */
#include "gemm/gemm_driver.h"

enum {
    FEWEST_PRODUCTS = 100 * 1000,
    FEWEST_PIXELS = 64,  /* of all images */
    FEWEST_IN_TILE = 24, /* pixels of an image in each 64 of its tiles */
    FEW_CHANNELS = 8,    /* least number for filters of more than MOST_TAPS positions */
    MOST_TAPS = 9,
    FEWEST_BYTES_TENTHS = 64, /* tenths of a byte, of a line of 64 bytes: a tenth of it */
    TILE_PIXELS = 64
};

static bool suits_weight_gradient(const struct fl_windows *g, int64_t channels) {
    if (channels < FEW_CHANNELS && g->r * g->s > MOST_TAPS)
        return false;
    if (fl_gemm_is_one_line(g))
        return true;
    const int64_t packed = gemm_round_up(g->p * gemm_round_up(g->q, 4), TILE_PIXELS);
    return g->p * g->q * TILE_PIXELS >= FEWEST_IN_TILE * packed;
}

static bool steps_far(const struct fl_windows *g) {
    const int most = TENSOR_WINDOW_STEP_LIMIT;
    return g->stride[0] > most || g->stride[1] > most || g->dilation[0] > most || g->dilation[1] > most;
}

/* bytes: of an element in a plane. */
static bool suits_windows(const struct fl_windows *g, bool gradient, int64_t depth, int64_t bytes) {
    const int64_t pixels = g->batch * (gradient ? g->h * g->w : g->p * g->q);
    const bool together = g->dilation[1] == 1 && !(gradient && g->stride[1] > 1);
    const int64_t window = (together ? g->s : 1) * depth * bytes;
    return pixels >= FEWEST_PIXELS && 10 * window >= FEWEST_BYTES_TENTHS;
}

bool fl_gemm_suits_matrix(const struct fl_args *args, int64_t bytes) {
    const struct fl_windows *g = &args->p.product.windows;
    const struct fl_matrices *m = &args->p.product.matrices;
    const int64_t groups = g->groups ? g->groups : 1;
    if (steps_far(g))
        return false;
    switch (args->op) {
    case FL_OP_CONV2D:
        return suits_windows(g, false, g->c / groups, bytes);
    case FL_OP_CONV2D_INPUT_GRAD:
        return suits_windows(g, true, g->filters / groups, bytes);
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return suits_weight_gradient(g, g->c / groups);
    default:
        return (double)m->m * (double)m->n * (double)m->k >= FEWEST_PRODUCTS;
    }
}
