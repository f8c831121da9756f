/* int8_layer.h - a layer as fl_int8_pack leaves it: weights, what its sums begin with, how they are rounded. */
#ifndef FL_INT8_LAYER_H
#define FL_INT8_LAYER_H

#include "int8/int8_rules.h"

struct int8_kernels; /* int8_kernels.h */

/* The filters of a group have slots, filled up to a multiple of 16, in what kernels read. */
struct fl_int8_layer {
    struct fl_int8_layer_spec spec; /* its pointers are not to be followed, groups and steps are at least 1 */
    struct fl_int8_type residual_type;
    int64_t group_channels, group_filters, length; /* C / groups, K / groups, terms of a sum */
    int64_t group_slots, slots;                    /* of a group, of the layer */
    enum int8_rule rule;
    int32_t low, high; /* of the output before its zero point is added */
    bool wide;         /* 32 bits are not proved to suffice for an exact sum */
    bool is_depthwise; /* a channel a group, and few filters */
    int32_t *bias;     /* for each filter */
    int16_t *weight;   /* [K, R, S, C / groups], zero point subtracted */

    const struct int8_kernels *kernels; /* NULL: the definition */
    struct int8_multiplier *multipliers, residual;
    int32_t *start;              /* what a sum of products begins with: bias, and what the zero point of x adds */
    float *factor;               /* of multipliers */
    double *real, residual_real; /* coefficient 2^-shift of multipliers and residual */
    bool beyond_double;          /* the residual's is too large for what double is asked */
    int64_t runs, run_elements, groups; /* what a window reads at a stretch (int8_kernels.h) */
    int64_t panel_bytes;
    uint8_t *packed;    /* [slots / 16] panels */
    int16_t *depthwise; /* [R, S, slots] */
};

static inline int64_t int8_slot(const struct fl_int8_layer *l, int64_t filter) {
    return filter / l->group_filters * l->group_slots + filter % l->group_filters;
}

/* The sum of filter k, bias not included, as an integer of the output; r is the residual less its zero point. */
static inline int32_t int8_round(const struct fl_int8_layer *layer, int64_t k, int64_t acc, int32_t r) {
    const struct int8_multiplier *m = layer->multipliers + int8_slot(layer, k);
    const int32_t sum = int8_wrap(acc + layer->bias[k]);
    int64_t q = 0;
    switch (layer->rule) {
    case INT8_ONCE_EVEN:
        q = int8_once_even(acc + layer->bias[k], m, r, &layer->residual);
        break;
    case INT8_BINARY32:
        q = int8_binary32(sum, m->factor, layer->low, layer->high);
        break;
    case INT8_TWICE:
        q = int8_twice(sum, m);
        break;
    case INT8_ONCE_UP:
        q = int8_once_up(sum, m);
        break;
    }
    return int8_clamp(q, layer->low, layer->high) + layer->spec.y.zero;
}

#endif
