/* on_gpu.h - what tests on the device "cuda" share. */
#ifndef FL_ON_GPU_H
#define FL_ON_GPU_H

#include "check.h"
#include "flexlab/nn.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether there is a device. If not, *status is that of the test, which is left out, or with FLEXLAB_REQUIRE_GPU=1
 * fails. */
static inline bool has_gpu(int *status) {
    const char *required = getenv("FLEXLAB_REQUIRE_GPU");
    if (tensor_device_find("cuda"))
        return true;
    CHECK(!required || *required != '1', "%s", tensor_error());
    *status = required && *required == '1' ? check_summary() : check_skip(tensor_error());
    return false;
}

static long (*counts)(const char *what); /* of the PTX machine; NULL on a GPU */

static inline long counted(const char *what) {
    return counts ? counts(what) : 0;
}

/* A function of the PTX machine, in use; NULL on a GPU. */
static inline void *of_machine(const char *name) {
    const char *path = getenv("FLEXLAB_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *symbol = library ? dlsym(library, name) : NULL;
    CHECK(symbol || !path || !strstr(path, "_ptx"), "%s has no %s", path, name);
    return symbol;
}

static inline void find_counts(void) {
    void *symbol = of_machine("ptx_count");
    memcpy(&counts, &symbol, sizeof counts);
}

/* The states of two networks after a step. */
static inline void compare_states(nn_graph *const g[2], const char *what, int step) {
    const size_t bytes = nn_state_bytes(g[0]);
    char *state[2] = {malloc(bytes), malloc(bytes)};
    CHECK(nn_state_bytes(g[1]) == bytes, "%s: %zu bytes, expected %zu", what, nn_state_bytes(g[1]), bytes);
    for (int device = 0; device < 2; device++)
        CHECK(!nn_state_save(state[device], bytes, g[device]), "%s", tensor_error());
    CHECK(!memcmp(state[0], state[1], bytes), "%s: the state after step %d differs", what, step);
    free(state[0]);
    free(state[1]);
}

/* The bytes of a file, behind which is a zero. */
static inline char *file_of(const char *path, long *bytes) {
    FILE *file = fopen(path, "rb");
    CHECK(file, "%s is missing", path);
    fseek(file, 0, SEEK_END);
    *bytes = ftell(file);
    rewind(file);
    char *text = calloc((size_t)*bytes + 1, 1);
    CHECK(fread(text, 1, (size_t)*bytes, file) == (size_t)*bytes, "%s", path);
    fclose(file);
    return text;
}

/* Compares two files; returns the bytes of the first. */
static inline long compare_files(const char *a, const char *b) {
    long bytes[2];
    char *const text[2] = {file_of(a, &bytes[0]), file_of(b, &bytes[1])};
    CHECK(bytes[0] == bytes[1] && !memcmp(text[0], text[1], (size_t)bytes[0]), "%s and %s", a, b);
    free(text[0]);
    free(text[1]);
    return bytes[0];
}

#endif
