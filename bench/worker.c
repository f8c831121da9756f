/* worker.c - the protocol of a contestant, and random data. */
#define _GNU_SOURCE
#include "worker.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MOST_ARGUMENTS = 16, LINE_BYTES = 512, WARM_UP_RUNS = 2 };
static const double TURN_SECONDS = 0.02;

double worker_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *worker_skip(const char *format, ...) {
    static char reason[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return reason;
}

void *worker_memory(size_t bytes) {
    const size_t page = (size_t)2 << 20;
    const size_t whole = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, whole);
    if (!memory) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    madvise(memory, whole, MADV_HUGEPAGE);
    memset(memory, 0, whole);
    return memory;
}

/* --- random data -------------------------------------------------------------------------------------------------- */

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Two at a time (Box and Muller 1958). */
static void normal_pair(uint64_t *state, float *a, float *b) {
    const uint64_t bits = splitmix(state);
    const float u = (float)((uint32_t)bits >> 8) * 0x1p-24f + 0x1p-25f;
    const float turn = (float)(bits >> 40) * 0x1p-24f * 6.2831853f;
    const float radius = sqrtf(-2 * logf(u));
    *a = radius * cosf(turn);
    *b = radius * sinf(turn);
}

void worker_normal(float *values, int64_t count, uint64_t seed) {
    float spare;
    for (int64_t i = 0; i < count; i += 2)
        normal_pair(&seed, &values[i], i + 1 < count ? &values[i + 1] : &spare);
}

void worker_normal_bf16(uint16_t *values, int64_t count, uint64_t seed) {
    float pair[2];
    for (int64_t i = 0; i < count; i++) {
        if (i % 2 == 0)
            normal_pair(&seed, &pair[0], &pair[1]);
        uint32_t word;
        memcpy(&word, &pair[i % 2], sizeof word);
        values[i] = (uint16_t)(word >> 16);
    }
}

int worker_mantissas(int16_t *values, int64_t count, const char *distribution, uint64_t seed) {
    const int top = strcmp(distribution, "15bit") ? 32767 : 16383;
    if (!strcmp(distribution, "gauss")) {
        float pair[2];
        for (int64_t i = 0; i < count; i++) {
            if (i % 2 == 0)
                normal_pair(&seed, &pair[0], &pair[1]);
            const float m = rintf(pair[i % 2] * (32767.0f / 6));
            values[i] = (int16_t)(m > 32767 ? 32767 : m < -32767 ? -32767 : m);
        }
        return 1;
    }
    if (strcmp(distribution, "uniform") && strcmp(distribution, "15bit"))
        return 0;
    for (int64_t i = 0; i < count; i++)
        values[i] = (int16_t)((int)((splitmix(&seed) >> 32) % (uint32_t)(2 * top + 1)) - top);
    return 1;
}

/* --- protocol ----------------------------------------------------------------------------------------------------- */

static double time_runs(const struct worker *worker, int64_t runs) {
    const double start = worker_seconds();
    for (int64_t i = 0; i < runs; i++)
        worker->run();
    if (worker->finish)
        worker->finish();
    return (worker_seconds() - start) / (double)runs;
}

/* Exponents settle and pages are touched; then returns the number of executions for one measurement. */
static int64_t warm_up(const struct worker *worker) {
    double seconds = 0;
    for (int i = 0; i < WARM_UP_RUNS; i++)
        seconds = time_runs(worker, 1);
    if (seconds < TURN_SECONDS)
        seconds = time_runs(worker, 1 + (int64_t)(TURN_SECONDS / 4 / (seconds + 1e-9)));
    return seconds < TURN_SECONDS ? 1 + (int64_t)(TURN_SECONDS / (seconds + 1e-9)) : 1;
}

static int split(char *line, char **argv) {
    int argc = 0;
    for (char *word = strtok(line, " \n"); word && argc < MOST_ARGUMENTS; word = strtok(NULL, " \n"))
        argv[argc++] = word;
    return argc;
}

int worker_serve(const struct worker *worker) {
    char line[LINE_BYTES], *argv[MOST_ARGUMENTS];
    int64_t runs = 0;
    while (fgets(line, sizeof line, stdin)) {
        const int argc = split(line, argv);
        const char *command = argc ? argv[0] : "";
        if (!strcmp(command, "quit"))
            break;
        if (!strcmp(command, "prepare") && argc > 1) {
            const char *reason = worker->prepare(argc - 1, argv + 1);
            runs = reason ? 0 : warm_up(worker);
            printf("%s%s\n", reason ? "skip " : "ready", reason ? reason : "");
        } else if (!strcmp(command, "run") && runs) {
            printf("%.9g\n", time_runs(worker, runs));
        } else {
            printf("skip expected prepare WORK, run or quit\n");
        }
        fflush(stdout);
    }
    return 0;
}
