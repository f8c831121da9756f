/* Training on the device "cuda" and on the processor: after each step of a small residual network, in every format, the
 * whole state (weights, momentum, wide parts, exponents with their history, running statistics) must be the same bytes.
 * Steps are recorded once and replayed; within a step the host neither waits nor allocates, which the stand-in counts.
 *
 *     test_gpu_train [SIZE [STEPS [FORMAT]]]        images of SIZE x SIZE pixels, 8
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/nn.h"
#include <dlfcn.h>
#include <math.h>
#include <string.h>

enum { BATCH = 8, CLASSES = 10, CHANNELS = 3 };

static int size = 8, steps = 5;
static long (*count)(const char *what); /* of the stand-in; NULL on a GPU */

static void find_counts(void) {
    const char *path = getenv("FLEXLAB_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = library ? dlsym(library, "stand_in_count") : NULL;
    memcpy(&count, &symbol, sizeof count);
    CHECK(count || !path || !strstr(path, "stand_in"), "%s counts nothing", path);
}

static nn_graph *network(const char *variant, const char *device) {
    const nn_config how = {
        .variant = variant, .batch = BATCH, .momentum = 0.9f, .weight_decay = 1e-4f, .seed = 7, .device = device};
    nn_graph *g = nn_graph_new(&how);
    CHECK(g, "%s", tensor_error());
    const nn_node logits = nn_model(g, "resnet8", size, size, CHANNELS, CLASSES);
    CHECK(!nn_compile(g, logits), "%s", tensor_error());
    float values[CHANNELS * 256];
    for (int i = 0; i < CHANNELS * 256; i++)
        values[i] = (float)(i % 256 - 120 + i / 256) / 70;
    CHECK(!nn_set_pixel_values(g, values), "%s", tensor_error());
    return g;
}

static void *state_of(const nn_graph *g, size_t *bytes) {
    *bytes = nn_state_bytes(g);
    void *state = malloc(*bytes);
    CHECK(state && !nn_state_get(g, state, *bytes), "%s", tensor_error());
    return state;
}

/* One step of both; what the device's host did meanwhile is counted. */
static void step(nn_graph *const *g, int number, uint64_t *draws) {
    const size_t pixels = (size_t)BATCH * (size_t)size * (size_t)size * CHANNELS;
    uint8_t *images = malloc(pixels);
    int32_t labels[BATCH];
    for (size_t i = 0; i < pixels; i++)
        images[i] = (uint8_t)check_random(draws);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(draws) % CLASSES);
    double loss[2];
    int right[2];
    for (int device = 0; device < 2; device++) {
        const long waits = count && device ? count("waits") : 0,
                   allocations = count && device ? count("allocations") : 0,
                   replays = count && device ? count("replays") : 0;
        CHECK(!nn_forward_pixels(g[device], images, labels) && !nn_backward(g[device]) && !nn_update(g[device], 0.05f),
              "%s", tensor_error());
        if (count && device && number > 1) {
            CHECK(count("waits") == waits, "step %d: %ld waits", number, count("waits") - waits);
            CHECK(count("allocations") == allocations, "step %d: %ld allocations", number,
                  count("allocations") - allocations);
            CHECK(count("replays") == replays + 3, "step %d: %ld replays", number, count("replays") - replays);
        }
        CHECK(!nn_loss(g[device], &loss[device], &right[device]), "%s", tensor_error());
    }
    CHECK(!memcmp(&loss[0], &loss[1], sizeof loss[0]) && right[0] == right[1],
          "step %d: loss %.17g and %.17g, right %d and %d", number, loss[0], loss[1], right[0], right[1]);
    free(images);
}

static void compare(nn_graph *const *g, const char *variant, int number) {
    size_t bytes[2];
    void *state[2] = {state_of(g[0], &bytes[0]), state_of(g[1], &bytes[1])};
    CHECK(bytes[0] == bytes[1] && !memcmp(state[0], state[1], bytes[0]), "%s: state after step %d", variant, number);
    free(state[0]);
    free(state[1]);
}

static void train(const char *variant) {
    nn_graph *const g[2] = {network(variant, NULL), network(variant, "cuda")};
    uint64_t draws = 11;
    for (int i = 1; i <= steps; i++) {
        step(g, i, &draws);
        compare(g, variant, i);
    }
    /* what a recording keeps is set: it is made anew */
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < nn_tensor_count(g[device]); i++)
            if (!strcmp(nn_tensor_at(g[device], i).role, "weight") &&
                tensor_format_is_shared(nn_variant_find(variant)->format))
                CHECK(!tensor_set_rounding(nn_tensor_at(g[device], i).t, TENSOR_ROUND_STOCHASTIC, (uint64_t)i), "%s",
                      tensor_error());
    step(g, 1, &draws);
    step(g, 1, &draws);
    compare(g, variant, steps + 2);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

int main(int argc, char **argv) {
    size = argc > 1 ? atoi(argv[1]) : size;
    steps = argc > 2 ? atoi(argv[2]) : steps;
    if (!tensor_device_find("cuda")) {
        const char *required = getenv("FLEXLAB_REQUIRE_GPU");
        if (!required || *required != '1')
            return check_skip(tensor_error());
        CHECK(false, "%s", tensor_error());
        return check_summary();
    }
    find_counts();
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    for (int i = 0; i < 5; i++)
        if (argc < 4 || !strcmp(argv[3], variants[i]))
            train(variants[i]);
    return check_summary();
}
