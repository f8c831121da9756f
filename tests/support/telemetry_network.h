/* telemetry_network.h - a small network and steps of its training, for the tests of telemetry. */
#ifndef FL_TELEMETRY_NETWORK_H
#define FL_TELEMETRY_NETWORK_H

#include "check.h"
#include "flexlab/nn.h"
#include <math.h>
#include <stdint.h>

enum {
    BATCH = 8,
    SIDE = 8,
    CHANNELS = 3,
    CLASSES = 4,
    STEPS = 23,
    MOST = 128,
    NUMBERS = BATCH * SIDE * SIDE * CHANNELS
};

/* The settings that are given, on the tests' network. */
static inline nn_graph *network_of(nn_config given) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = given.variant,
                                            .policy = given.policy,
                                            .loss_scale = given.loss_scale,
                                            .predictor = given.predictor,
                                            .batch = BATCH,
                                            .seed = 5,
                                            .momentum = 0.9f,
                                            .weight_decay = 1e-4f,
                                            .device = given.device});
    CHECK(g, "%s", tensor_error());
    nn_node x = nn_input(g, SIDE, SIDE, CHANNELS);
    x = nn_conv2d(g, "conv", x, 6, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    x = nn_conv2d(g, "last", x, 5, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    x = nn_avgpool_global(g, "pool", x);
    x = nn_linear(g, "fc", x, CLASSES, false);
    CHECK(!nn_compile(g, x), "%s", tensor_error());
    return g;
}

static inline nn_graph *network(const char *variant, const char *predictor, const char *device) {
    return network_of((nn_config){.variant = variant, .predictor = predictor, .device = device});
}

/* Sizes that leap by powers of two from step to step: exponents lag behind, elements saturate and vanish. */
static inline void make_batch(int step, int wild, float *images, int32_t *labels) {
    uint64_t state = (uint64_t)step * 77 + 1;
    const float scale = ldexpf(1, wild ? (int)(check_random(&state) % (unsigned)wild) - wild / 2 : 0);
    for (int i = 0; i < NUMBERS; i++)
        images[i] = scale * (float)((double)(int64_t)check_random(&state) / 9223372036854775808.0);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&state) % CLASSES);
}

static inline void train_step(nn_graph *g, int step, int wild) {
    static float images[NUMBERS];
    int32_t labels[BATCH];
    make_batch(step, wild, images, labels);
    CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f), "step %d: %s", step,
          tensor_error());
}

#endif
