/* networks.c - steps and evaluations of networks as work. */
#include "flexlab/nn.h"
#include "ours.h"
#include "worker.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, LENGTH = 128, VOCABULARY = 256 };

static nn_graph *network;
static nn_batch batch;
static float rate;

/* Images for ten classes, trained with momentum, or texts of 128 tokens, trained by AdamW. */
static nn_graph *network_of(const char *variant, const char *model, int count) {
    const bool text = nn_model_reads_text(model);
    const nn_config of_text = {.optimiser = "adamw", .weight_decay = 0.1f},
                    of_images = {.momentum = 0.9f, .weight_decay = 1e-4f};
    nn_config config = text ? of_text : of_images;
    config.variant = variant;
    config.batch = count;
    config.seed = 1;
    nn_graph *g = nn_graph_new(&config);
    if (g && nn_compile(g, text ? nn_model_text(g, model, LENGTH, VOCABULARY)
                                : nn_model(g, model, SIDE, SIDE, CHANNELS, CLASSES))) {
        nn_graph_free(g);
        g = NULL;
    }
    return g;
}

static void normal_images(int count) {
    const int64_t pixels = (int64_t)count * SIDE * SIDE * CHANNELS;
    float *images = worker_memory((size_t)pixels * sizeof *images);
    int32_t *labels = worker_memory((size_t)count * sizeof *labels);
    worker_normal(images, pixels, 1);
    for (int i = 0; i < count; i++)
        labels[i] = i % CLASSES;
    batch = (nn_batch){.images = images, .labels = labels};
}

/* Tokens from a linear congruential generator; the label of each token is the next one. */
static void random_text(int count) {
    const int64_t tokens = (int64_t)count * LENGTH;
    int32_t *text = worker_memory((size_t)(tokens + 1) * sizeof *text);
    uint32_t state = 1;
    for (int64_t i = 0; i <= tokens; i++)
        text[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 24);
    batch = (nn_batch){.tokens = text, .labels = text + 1};
}

static const char *prepare(const char *variant, char **argv) {
    const char *model = argv[0];
    const int count = atoi(argv[1]);
    if (!(network = network_of(variant, model, count)))
        return ours_failure();
    const bool text = nn_model_reads_text(model);
    rate = text ? 1e-3f : 0.01f;
    if (text)
        random_text(count);
    else
        normal_images(count);
    return NULL;
}

static tensor_status step(void) {
    double loss;
    int correct;
    return nn_train_step(&loss, &correct, network, &batch, rate);
}

static void run_step(void) {
    step();
}

static const char *prepare_step(void (**run)(void), const char *variant, char **argv) {
    *run = run_step;
    const char *reason = prepare(variant, argv);
    return reason ? reason : step() ? ours_failure() : NULL;
}

static tensor_status evaluate(void) {
    double loss;
    return nn_evaluate(&loss, NULL, network, &batch);
}

static void run_evaluate(void) {
    evaluate();
}

static const char *prepare_evaluate(void (**run)(void), const char *variant, char **argv) {
    *run = run_evaluate;
    const char *reason = prepare(variant, argv);
    return reason ? reason : evaluate() ? ours_failure() : NULL;
}

const char *ours_memory(const char *what, const char *variant, int count) {
    nn_graph *g = network_of(variant, "resnet20", count);
    if (!g)
        return ours_failure();
    const bool stored = !strcmp(what, "stored");
    const int64_t bytes = nn_weight_bytes(g) + (stored ? nn_activation_bytes(g) : nn_arena_bytes(g));
    nn_graph_free(g);
    printf("%lld\n", (long long)bytes);
    return NULL;
}

const struct ours_work ours_networks[] = {
    {"step", 2, .of_variant = prepare_step}, {"evaluate", 2, .of_variant = prepare_evaluate}, {NULL}};
