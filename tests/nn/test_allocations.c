/* A training step allocates nothing after the second: neither by the library's allocator nor by the C library's, at any
 * batch, with one thread or two, on the reference kernels and on the best. The short run uses a sample of the cases
 * that FLEXLAB_TEST_EVERY=1 (test allocations_long) runs completely. */
#include "check.h"
#include "layer_network.h"
#include "flexlab/nn.h"
#include <stdatomic.h>
#include <string.h>

/* --- counting ----------------------------------------------------------------------------------------------------- */

static atomic_long requests;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_ALL 1
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size) {
    atomic_fetch_add(&requests, 1);
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    atomic_fetch_add(&requests, 1);
    return __libc_calloc(n, size);
}
void *realloc(void *block, size_t size) {
    atomic_fetch_add(&requests, 1);
    return __libc_realloc(block, size);
}
int posix_memalign(void **block, size_t alignment, size_t size) {
    atomic_fetch_add(&requests, 1);
    *block = __libc_memalign(alignment, size);
    return *block ? 0 : 12;
}
void *aligned_alloc(size_t alignment, size_t size) {
    atomic_fetch_add(&requests, 1);
    return __libc_memalign(alignment, size);
}
#else
#define COUNTS_ALL 0
static void *counting(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    atomic_fetch_add(&requests, 1);
    return posix_memalign(&block, alignment, size) ? NULL : block;
}
#endif

/* --- networks ----------------------------------------------------------------------------------------------------- */

enum { CLASSES = 4, LARGEST = 400 * 16 * 16 * 3, LENGTH = 16 };
static float images[LARGEST];
static int32_t labels[400 * LENGTH];

static nn_node build(nn_graph *g, const char *model) {
    if (!strcmp(model, "all layers"))
        return all_layers(g, CLASSES);
    return nn_model_reads_text(model) ? nn_model_text(g, model, LENGTH, CLASSES) : nn_model(g, model, 8, 8, 3, CLASSES);
}

static bool by_policy;                                                  /* the name is a policy's, not a variant's */
static nn_config optimiser = {.momentum = 0.9f, .weight_decay = 1e-4f}; /* and all else of it */

static void try(const char *variant, const char *model, int batch, int threads, const char *backend, int steps) {
    CHECK(!tensor_set_threads(threads) && !tensor_set_backend(backend), "%s", tensor_error());
    nn_config config = optimiser;
    config.variant = by_policy ? NULL : variant;
    config.policy = by_policy ? variant : NULL;
    config.batch = batch;
    config.seed = 1;
    nn_graph *g = nn_graph_new(&config);
    CHECK(g && !nn_compile(g, build(g, model)), "%s", tensor_error());
    double loss;
    int correct;
    for (int i = 0; i < 2 + steps; i++) {
        const long before = requests;
        const tensor_status status =
            nn_model_reads_text(model)
                ? nn_train_step(&loss, &correct, g, &(nn_batch){.tokens = labels + 1, .labels = labels}, 0.01f)
                : nn_train_step(&loss, &correct, g, &(nn_batch){.images = images, .labels = labels}, 0.01f);
        const long made = requests - before;
        CHECK(!status, "%s", tensor_error());
        CHECK(i < 2 || !made, "%s %s batch %d, %d threads, %s: step %d allocates %ld times", variant, model, batch,
              threads, backend ? backend : "best row", i + 1, made);
    }
    nn_graph_free(g);
}

int main(void) {
    static const char *const models[] = {"all layers", "mlp2", "cnn6", "resnet8", "resnet20"};
    static const int batches[] = {1, 128, 400};
    const char *every = getenv("FLEXLAB_TEST_EVERY");
    const bool whole = every && !strcmp(every, "1");
    uint64_t seed = 1;
    for (int i = 0; i < LARGEST; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < 400 * LENGTH; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
#if !COUNTS_ALL
    tensor_set_allocator(counting, free);
#endif
    const long none = requests;
    void *volatile block = malloc(100);
    CHECK(!COUNTS_ALL || requests > none, "requests are not counted");
    free(block);
    for (int v = 0; nn_variant_at(v); v++)
        for (int m = 0; m < 5; m++)
            for (int b = 0; b < 3; b++)
                for (int threads = 1; threads <= 2; threads++)
                    for (int ref = 0; ref < 2; ref++) {
                        if (!whole && (ref ? m > 0 : m > 3 || (b == 2 && threads == 1 && m > 1)))
                            continue;
                        try(nn_variant_at(v)->name, models[m], batches[b], threads, ref ? "ref" : NULL,
                            whole || !b ? 20 : 3);
                    }
    for (int v = 0; nn_variant_at(v); v++) /* hidden values of 32 sequences are looked up in tables */
        for (int b = 0; b < 2; b++) {
            try(nn_variant_at(v)->name, "gpt2x32", b ? 33 : 1, 2, NULL, 4);
            try(nn_variant_at(v)->name, "gpt1x32", b ? 33 : 1, 1, b ? NULL : "ref", 4);
        }
    by_policy = true;
    for (int p = 0; nn_policy_at(p); p++)
        for (int m = 0; m < 2; m++)
            try(nn_policy_at(p), m ? "gpt1x32" : "all layers", 8, 1 + m, NULL, 4);
    by_policy = false;
    for (int v = 0; nn_variant_at(v); v++)
        for (int o = 0; nn_optimiser_at(o); o++) {
            optimiser = (nn_config){.optimiser = nn_optimiser_at(o), .weight_decay = 0.01f, .clip_norm = 0.1f};
            optimiser.clip_value = o % 2 ? 0.01f : 0;
            try(nn_variant_at(v)->name, "all layers", 1, 2, NULL, 4);
            try(nn_variant_at(v)->name, "all layers", 1, 1, "ref", 4);
        }
    printf("%s\n", COUNTS_ALL ? "all of the process" : "the library's allocator alone");
    return check_summary();
}
