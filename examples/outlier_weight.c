/* outlier_weight.c - one large weight and the small ones beside it. Trains the two-layer perceptron after one weight of
 * its first layer was made FACTOR times as large as the largest, and prints, as a line of numbers, how many updates of
 * that layer were meant (of elements whose velocity is not 0) and made, and the mean loss of the last 50 steps. Under a
 * shared exponent the large weight takes bits from all others; in floating point it does not.
 * usage: outlier_weight [VARIANT[:nomaster] [FACTOR [DATA [SEED [STEPS [RATE]]]]]]; the experiment is
 * docs/experiments/update-stall.md. */
#include "arguments.h"
#include "flexlab/flexlab.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, LAST = 50 };

/* The telemetry's rows, momentum before its weight. */
struct updates {
    long long meant, made, velocities;
};

static void count_updates(void *context, const nn_telemetry_row *r) {
    struct updates *u = context;
    if (r->step == 1 || !r->elements)
        return; /* the first update also rounds what was loaded */
    if (!strcmp(r->role, "momentum"))
        u->velocities = r->elements->elements - r->elements->zeros;
    else if (r->update_moved >= 0)
        u->meant += u->velocities, u->made += r->update_moved;
}

static tensor *find(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    return NULL;
}

/* Loads the weights again, the first of them `factor` times as large as the largest. */
static tensor_status plant(tensor *w, double factor) {
    const int64_t count = tensor_count(w);
    float *values = malloc((size_t)count * sizeof *values), largest = 0;
    tensor_status bad = values ? tensor_store_f32(w, values, count) : TENSOR_E_MEMORY;
    for (int64_t i = 0; !bad && i < count; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    if (!bad && factor > 0) {
        values[0] = (float)factor * largest;
        bad = tensor_load_f32(w, values, count);
    }
    free(values);
    return bad;
}

int main(int argc, char **argv) {
    char variant[32];
    snprintf(variant, sizeof variant, "%s", argc > 1 ? argv[1] : "dfp16:nomaster");
    const double factor = real_argument(argc, argv, 2, "FACTOR", 0, 1e6, 64),
                 rate = real_argument(argc, argv, 6, "RATE", 0, 100, 0x1p-10);
    const char *data = argc > 3 ? argv[3] : "synthetic:train=512,test=1,seed=1";
    const uint64_t seed = (uint64_t)whole_argument(argc, argv, 4, "SEED", 0, 0x1p53, 1);
    const int steps = (int)whole_argument(argc, argv, 5, "STEPS", LAST, 1e9, 101);
    char *suffix = strstr(variant, ":nomaster");
    if (suffix)
        *suffix = 0;
    struct updates u = {0};
    double mean[4], deviation[4], last = 0;
    bool fp16 = !strcmp(variant, "fp16") || !strcmp(variant, "fp16-sr");
    data_set *set = data_open(data, DATA_TRAIN);
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant,
                                            .no_master = suffix,
                                            .batch = BATCH,
                                            .seed = seed,
                                            .momentum = 0.9f,
                                            .loss_scale = fp16 ? "1024" : NULL});
    if (!set || !g ||
        nn_compile(g, nn_model(g, "mlp2", data_height(set), data_width(set), data_channels(set), data_classes(set))) ||
        data_channel_moments(mean, deviation, set) || plant(find(g, "fc1.weight"), factor))
        return fprintf(stderr, "outlier_weight: %s\n", tensor_error()), 1;
    nn_telemetry *telemetry = nn_telemetry_new(
        g, &(nn_telemetry_config){
               .pattern = "fc1.weight,fc1.weight.momentum", .every = LAST, .row = count_updates, .context = &u});
    data_loader *loader = data_loader_new(
        set,
        &(data_loader_config){
            .batch = BATCH, .seed = seed, .shuffle = true, .drop_last = true, .mean = mean, .deviation = deviation});
    bool failed = !telemetry || !loader;
    for (int step = 1, epoch = 0; step <= steps && !failed; epoch++) {
        data_batch batch = {0};
        failed = data_loader_start(loader, epoch);
        while (step <= steps && !failed && !(failed = data_loader_next(&batch, loader)) && batch.count) {
            double loss = 0;
            failed = nn_train_step(&loss, NULL, g, &(nn_batch){.images = batch.images, .labels = batch.labels},
                                   (float)rate) ||
                     nn_telemetry_step(telemetry);
            last += step > steps - LAST ? loss / LAST : 0;
            step++;
        }
    }
    if (failed)
        fprintf(stderr, "outlier_weight: %s\n", tensor_error());
    else
        printf("%s,%g,%llu,%lld,%lld,%.6f\n", argc > 1 ? argv[1] : "dfp16:nomaster", factor, (unsigned long long)seed,
               u.meant, u.made, last);
    nn_telemetry_free(telemetry), data_loader_free(loader), data_free(set), nn_graph_free(g);
    return failed;
}
