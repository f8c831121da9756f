/* device_steps.c - how long a training step of ResNet-20 takes on a device, as a JSON list: milliseconds, the median of
 * STEPS steps in groups of five that are waited for once.
 *
 *     device_steps [DEVICE [BATCH [STEPS [FORMAT[,CLASS]...]]]]        cuda, 128, 50, all of `usual` below
 *
 * CLASS: a class of results, as "fp16,fast"; exact without it.
 * On a backend that counts instructions (tests/gpu/ptx) the counts at the end are those of the last step. */
#define _GNU_SOURCE
#include "flexlab/nn.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GROUP = 5, PIXELS = 32 * 32 * 3 };

static void check(tensor_status status) {
    if (!status)
        return;
    fprintf(stderr, "device_steps: %s\n", tensor_error());
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    return *(const double *)a < *(const double *)b ? -1 : 1;
}

static void forget_counts(void) {
    const char *path = getenv("FLEXLAB_CUDA_LIBRARY");
    void *backend = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL,
         *symbol = backend ? dlsym(backend, "ptx_count") : NULL;
    long (*count)(const char *what);
    memcpy(&count, &symbol, sizeof count);
    if (count)
        (void)count("forget");
}

/* The seconds of a step, of `steps` of which the last is counted. */
static double seconds_of_step(nn_graph *g, const nn_batch *batch, int steps) {
    double *seconds = malloc((size_t)(steps / GROUP + 1) * sizeof *seconds), loss, median = 0;
    int groups = 0, correct;
    check(nn_train_step(&loss, &correct, g, batch, 0.01f)); /* finds exponents; the next one is recorded */
    for (int done = 0; seconds && done < steps; done += GROUP) {
        const int n = steps - done < GROUP ? steps - done : GROUP;
        const double start = now();
        for (int i = 0; i < n; i++) {
            if (done + i == steps - 1)
                forget_counts();
            check(nn_train_step(NULL, NULL, g, batch, 0.01f));
        }
        check(nn_loss(&loss, &correct, g));
        seconds[groups++] = (now() - start) / n;
    }
    if (seconds)
        qsort(seconds, (size_t)groups, sizeof *seconds, ascending);
    median = seconds ? seconds[groups / 2] : median;
    free(seconds);
    return median;
}

static int positive(const char *name, const char *text) {
    char *end;
    const long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 100000) {
        fprintf(stderr, "device_steps: %s '%s', expected 1 to 100000\n", name, text);
        exit(1);
    }
    return (int)n;
}

int main(int argc, char **argv) {
    static char *usual[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "fp16,fast", "bf16,fast", "fp32,fast:tf32"};
    const int most = sizeof usual / sizeof *usual;
    const char *device = argc > 1 ? argv[1] : "cuda";
    const int size = argc > 2 ? positive("BATCH", argv[2]) : 128, steps = argc > 3 ? positive("STEPS", argv[3]) : 50;
    char **formats = argc > 4 ? argv + 4 : usual;
    uint8_t *images = malloc((size_t)size * PIXELS);
    int32_t *labels = malloc((size_t)size * sizeof *labels);
    float values[3 * 256];
    for (int i = 0; i < 3 * 256; i++)
        values[i] = (float)(i % 256 - 120) / 64;
    uint32_t state = 1;
    for (size_t i = 0; images && i < (size_t)size * PIXELS; i++)
        images[i] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
    for (int i = 0; labels && i < size; i++)
        labels[i] = i % 10;
    for (int i = 0; i < (argc > 4 ? argc - 4 : most); i++) {
        char name[64];
        const int length = (int)strcspn(formats[i], ",");
        snprintf(name, sizeof name, "%.*s", length, formats[i]);
        tensor_class class = TENSOR_EXACT;
        check(formats[i][length] ? tensor_class_find(&class, formats[i] + length + 1) : TENSOR_OK);
        check(tensor_set_class(class));
        nn_graph *g = nn_graph_new(&(nn_config){
            .variant = name, .batch = size, .seed = 1, .momentum = 0.9f, .weight_decay = 1e-4f, .device = device});
        check(g ? nn_compile(g, nn_model(g, "resnet20", 32, 32, 3, 10)) : tensor_error_status());
        check(nn_set_pixel_values(g, values));
        const double seconds = seconds_of_step(g, &(nn_batch){.pixels = images, .labels = labels}, steps);
        printf("%s\n    {\"work\": \"step of ResNet-20, batch %d\", \"format\": \"%s\", \"microseconds\": %.2f}",
               i ? "," : "[", size, formats[i], seconds * 1e6);
        fflush(stdout);
        nn_graph_free(g);
    }
    printf("\n]\n");
    free(images);
    free(labels);
    return 0;
}
