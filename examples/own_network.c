/* own_network.c - a residual network of one's own, trained by a loop of one's own on data of one's own, its shared
 * exponents chosen by a predictor of one's own. usage: example_own_network [VARIANT] */
#include "flexlab/flexlab.h"
#include <math.h>
#include <stdio.h>

enum { COUNT = 512, SIDE = 12, CLASSES = 3, BATCH = 32, EPOCHS = 6 };

/* Stripes: across, down, or both, of any phase, with noise. */
static data_set *stripes(unsigned state) {
    static uint8_t images[COUNT][SIDE][SIDE];
    static int32_t labels[COUNT];
    for (int i = 0; i < COUNT; i++) {
        labels[i] = i % CLASSES;
        const unsigned phase = (state = state * 1664525u + 1013904223u) >> 28;
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                const double across = sin(x + phase), down = sin(y + phase);
                const double value = labels[i] == 0 ? across : labels[i] == 1 ? down : across * down;
                state = state * 1664525u + 1013904223u;
                images[i][y][x] = (uint8_t)(110 + 60 * value + (double)(state >> 26));
            }
    }
    return data_new(&images[0][0][0], labels, COUNT, SIDE, SIDE, 1, CLASSES);
}

/* Leaves a margin for one and a half times the largest of the last three maxima. */
static double last_three(const struct autoflex *a, void *context) {
    double largest = 0;
    (void)context;
    for (int i = 0; i < 3 && i < a->count; i++)
        largest = fmax(largest, a->history[(a->next + AUTOFLEX_WINDOW - 1 - i) % AUTOFLEX_WINDOW]);
    return 1.5 * largest;
}

static nn_node block(nn_graph *g, const char *first, const char *second, nn_node x, int filters) {
    char name[64];
    snprintf(name, sizeof name, "%s.norm", first);
    nn_node y = nn_batchnorm(g, name, nn_conv2d(g, first, x, filters, 3, &(nn_conv2d_options){.padding = 1}),
                             &(nn_batchnorm_options){.relu = true});
    snprintf(name, sizeof name, "%s.norm", second);
    return nn_batchnorm_add_relu(g, name, nn_conv2d(g, second, y, filters, 3, &(nn_conv2d_options){.padding = 1}), x,
                                 NULL);
}

int main(int argc, char **argv) {
    const nn_variant *variant = nn_variant_find(argc > 1 ? argv[1] : "flex16+5");
    autoflex_add("last-three", last_three, NULL);
    data_set *set = stripes(7);
    double mean, deviation, loss = INFINITY;
    if (!variant || !set)
        return fprintf(stderr, "%s\n", tensor_error()), 1;
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant->name,
                                            .predictor = variant->predictor ? "last-three" : NULL,
                                            .batch = BATCH,
                                            .seed = 1,
                                            .momentum = 0.9f});
    nn_node x = nn_batchnorm(g, "in.norm",
                             nn_conv2d(g, "in", nn_input(g, SIDE, SIDE, 1), 8, 3, &(nn_conv2d_options){.padding = 1}),
                             &(nn_batchnorm_options){.relu = true});
    x = block(g, "a1", "a2", x, 8);
    x = block(g, "b1", "b2", nn_maxpool2d(g, "half", x, 2, &(nn_pool2d_options){.stride = 2}), 8);
    x = nn_linear(g, "out", nn_avgpool_global(g, "mean", x), CLASSES, false);
    if (nn_compile(g, x) || data_channel_moments(&mean, &deviation, set))
        return fprintf(stderr, "%s\n", tensor_error()), 1;
    data_loader *loader = data_loader_new(
        set, &(data_loader_config){.batch = BATCH, .seed = 1, .shuffle = true, .mean = &mean, .deviation = &deviation});
    for (int epoch = 0, bad = 0; epoch < EPOCHS; epoch++) {
        data_batch batch = {0};
        int right = 0, correct = 0;
        bad = data_loader_start(loader, epoch);
        while (!bad && !(bad = data_loader_next(&batch, loader)) && batch.count) {
            bad = nn_forward(g, &(nn_batch){.images = batch.images, .labels = batch.labels}) || nn_backward(g) ||
                  nn_update(g, epoch < 4 ? 0.02f : 0.005f) || nn_loss(&loss, &correct, g);
            right += correct;
        }
        if (bad)
            return fprintf(stderr, "%s\n", tensor_error()), 1;
        printf("%s epoch %d: loss %.4f, %.1f %% right\n", variant->name, epoch + 1, loss, 100.0 * right / COUNT);
    }
    data_loader_free(loader), data_free(set), nn_graph_free(g);
    return loss < 0.1 ? 0 : 1;
}
