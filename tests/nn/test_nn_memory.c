/* Building, training and evaluating with an allocator that fails at the n-th call: every failure is reported as one and
 * nothing is lost; and a training step allocates nothing after the first. */
#include "check.h"
#include "flexlab/nn.h"
#include <stdlib.h>
#include <string.h>

static long calls, fail_at, alive;

static void *allocate(unsigned long size, unsigned long alignment) {
    void *block;
    if (++calls == fail_at || posix_memalign(&block, alignment, size))
        return NULL;
    alive++;
    return block;
}

static void release(void *block) {
    alive--;
    free(block);
}

enum { BATCH = 4, SIZE = 8, CHANNELS = 2, CLASSES = 4 };
static float images[BATCH * SIZE * SIZE * CHANNELS];
static const int32_t labels[BATCH] = {0, 1, 2, 3};

static tensor_status everything(const char *variant) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 1, .momentum = 0.9f});
    if (!g)
        return TENSOR_E_MEMORY;
    tensor_status status = nn_compile(g, nn_model(g, "resnet8", SIZE, SIZE, CHANNELS, CLASSES));
    double loss;
    if (!status)
        status = nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f);
    if (!status)
        status = nn_evaluate(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 3});
    nn_graph_free(g);
    return status;
}

static void failing_allocations(const char *variant) {
    fail_at = 0;
    calls = 0;
    CHECK(!everything(variant), "%s: %s", variant,
          tensor_error()); /* from here on the scratch memory of kernels is allocated */
    long before = alive;
    calls = 0;
    CHECK(!everything(variant), "%s: %s", variant, tensor_error());
    long total = calls;
    CHECK(alive == before, "%s: %ld blocks lost", variant, alive - before);
    for (long n = 1; n <= total; n += n < 150 ? 1 : 7) {
        calls = 0;
        fail_at = n;
        tensor_status status = everything(variant);
        CHECK(status == TENSOR_E_MEMORY, "%s: allocation %ld of %ld fails: status %d, '%s'", variant, n, total, status,
              tensor_error());
        CHECK(alive == before, "%s: allocation %ld of %ld fails: %ld blocks lost", variant, n, total, alive - before);
    }
    fail_at = 0;
    printf("%s: %ld allocations\n", variant, total);
}

static void steps_allocate_nothing(const char *variant) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 1, .momentum = 0.9f});
    CHECK(!nn_compile(g, nn_model(g, "resnet8", SIZE, SIZE, CHANNELS, CLASSES)), "%s", tensor_error());
    for (int i = 0; i < 3; i++) {
        long before = calls;
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), "%s",
              tensor_error());
        CHECK(!i || calls == before, "%s: step %d allocates %ld times", variant, i + 1, calls - before);
    }
    nn_graph_free(g);
}

int main(void) {
    tensor_set_allocator(allocate, release);
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(check_random(&state) >> 40) * 0x1p-23f - 1;
    CHECK(!tensor_set_threads(1), "%s", tensor_error());
    for (int i = 0; nn_variant_at(i); i++) {
        failing_allocations(nn_variant_at(i)->name);
        steps_allocate_nothing(nn_variant_at(i)->name);
    }
    return check_summary();
}
