/* real_slope.c - slopes for tables of gradients that are products with a slope (real_map.h). */
#include "core/real/real_map.h"
#include "core/real/real_rules.h"

bool fl_real_has_slopes(const struct fl_args *args) {
    if (args->format->bytes != 2 || args->format->element)
        return false;
    switch ((int)args->op) {
#define SLOPE(CONSTANT, name, slope, below, above) case FL_OP_##CONSTANT:
        FL_REAL_SLOPES(SLOPE)
#undef SLOPE
        return true;
    default:
        return false;
    }
}

static struct fl_pair pair_of(enum fl_op op, double x) {
    const struct fl_pair none = fl_pair_new(NAN, NAN);
    if (x - x != 0)
        return none;
    switch ((int)op) {
#define SLOPE(CONSTANT, name, slope, below, above)                                                                     \
    case FL_OP_##CONSTANT:                                                                                             \
        return fl_pair_##slope(fl_pair_of(x));
        FL_REAL_SLOPES(SLOPE)
#undef SLOPE
    default:
        return none;
    }
}

/* To 15 bits. */
static double short_of(double x) {
    const uint64_t half = (uint64_t)1 << 37;
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + half) & ~(2 * half - 1);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The slope, with the last bit set if it is not exact. */
static double marked(double slope, bool exact) {
    uint64_t bits;
    memcpy(&bits, &slope, sizeof bits);
    bits |= !exact;
    memcpy(&slope, &bits, sizeof slope);
    return slope;
}

/* A slope closer than 2^-36, relatively, to a number r of 15 bits is moved to that distance, on its side: dy, of 16
 * bits, times r has 31, and no number of 32 bits lies between that and the product with the slope. Doubles near r would
 * not show the side. */
static double entry_of(struct fl_pair slope) {
    const double r = short_of(slope.h), distance = (slope.h - r) + slope.l, aside = fabs(r) * 0x1p-36;
    if (distance == 0 || !(fabs(distance) < aside))
        return fl_pair_odd(slope);
    return marked(distance > 0 ? r + aside : r - aside, false);
}

void fl_real_slope_entries(const struct fl_args *args, const struct fl_real_lanes *lanes, int n, const double *x,
                           double *slopes) {
    struct fl_real_block block;
    for (int first = 0; first < n; first += FL_REAL_BLOCK) {
        const int length = n - first < FL_REAL_BLOCK ? n - first : FL_REAL_BLOCK;
        memset(block.b, 0, sizeof block.b);
        for (int i = 0; i < length; i++)
            block.b[i] = (float)x[first + i];
        const bool vectors =
            fl_real_floats_hold(args) && lanes->evaluate(args->op, (double)args->p.map.alpha, 0, length, &block);
        for (int i = 0; i < length; i++) {
            const double size = fabs(block.v[i]);
            const bool precise = block.e[i] <= size * (FL_REAL_SLOPE_ERROR / 2);
            if (vectors && (precise || size + block.e[i] < 0x1p-280))
                slopes[first + i] = marked(block.v[i], block.e[i] == 0);
            else
                slopes[first + i] = entry_of(pair_of(args->op, x[first + i]));
        }
    }
}
