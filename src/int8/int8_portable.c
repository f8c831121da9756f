/* int8_portable.c - sums of int16 products in plain C. */
#include "int8/int8_kernels.inc"

static void sums(const struct int8_tile *t) {
    for (int64_t p = 0; p < t->positions; p++)
        for (int v = 0; v < t->panels; v++) {
            int32_t sum[LANES] = {0};
            const uint8_t *w = t->weights + v * t->panel_bytes;
            for (int64_t run = 0; run < t->runs; run++) {
                const uint8_t *x = t->x + p * t->step + t->offset[run];
                for (int64_t g = 0; g < t->groups; g++, x += INT8_GROUP, w += INT8_GROUP * LANES) {
                    int16_t pair[2], weight[2 * LANES];
                    memcpy(pair, x, sizeof pair);
                    memcpy(weight, w, sizeof weight);
                    for (int j = 0; j < LANES; j++) /* unsigned: a sum may wrap */
                        sum[j] = (int32_t)((uint32_t)sum[j] + (uint32_t)(pair[0] * weight[2 * j]) +
                                           (uint32_t)(pair[1] * weight[2 * j + 1]));
                }
            }
            memcpy(t->sums + (p * t->panels + v) * LANES, sum, sizeof sum);
        }
}

const struct int8_kernels fl_int8_portable = {.element = 2,
                                              .run_groups = 1,
                                              .positions = 24,
                                              .sums = sums,
                                              .finish = finish_plain,
                                              .depthwise = depthwise,
                                              .add = add,
                                              .widen = widen,
                                              .flip = flip};
