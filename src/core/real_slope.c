/* real_slope.c - slopes of the gradients that are products with one. */
#include "core/real_map.h"
#include "core/real_rules.h"

bool fl_real_has_slopes(const struct fl_args *args) {
    if (args->format->bytes != 2)
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

struct fl_pair fl_real_slope(enum fl_op op, double x) {
    const struct fl_pair special = fl_pair_new(NAN, NAN);
    if (x - x != 0 || x == 0)
        return special;
    switch ((int)op) {
#define SLOPE(CONSTANT, name, slope, below, above)                                                                     \
    case FL_OP_##CONSTANT:                                                                                             \
        return fl_pair_##slope(fl_pair_of(x));
        FL_REAL_SLOPES(SLOPE)
#undef SLOPE
    default:
        return special;
    }
}
