/* What ranks cost: a step of training, split into computing and exchanges, and exchanges alone. For bench/scaling.py,
 * which runs it under mpirun; rank 0 prints one line of JSON.
 *
 *     bench_ranks ENGINE step MODEL VARIANT BATCH SHARDS STEPS
 *     bench_ranks ENGINE exchange
 *
 * step: for each rank and step seconds, processor seconds, processor seconds inside exchanges, seconds waited and
 * overlapped, and the exchanges in the order in which they begin: channel, bytes to others. The linker redirects the
 * library's calls of group.h here. Two steps that are not counted come first. exchange: seconds of a move of so many
 * bytes to each other rank. */
#define _GNU_SOURCE
#include "flexlab/flexlab.h"
#include "group/group.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, LENGTH = 128, VOCABULARY = 256, WARM = 2, CALLS = 64 };

static nn_group *group;

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *p) {
    if (!p) {
        fprintf(stderr, "bench_ranks: rank %d: %s\n", nn_group_rank(group),
                *tensor_error() ? tensor_error() : "out of memory");
        exit(1);
    }
    return p;
}

static void check(tensor_status status) {
    (void)need(status ? NULL : (void *)"");
}

/* --- exchanges of the library, timed ------------------------------------------------------------------------------ */

/* One exchange of a step, and one step, as sent to rank 0. */
struct call {
    int64_t channel, bytes; /* to others */
};
struct step {
    double seconds, busy, inside; /* processor seconds: of the step, in its exchanges */
    double waited, overlapped;
    int64_t count;
    struct call call[CALLS];
};
static struct step *present; /* NULL: not counted */

static tensor_status timed(double began, tensor_status status) {
    if (present)
        present->inside += now(CLOCK_THREAD_CPUTIME_ID) - began;
    return status;
}

#define BEGUN                                                                                                          \
    nn_group *g, struct fl_flight *flight, const char *what, int channel, const struct fl_piece *to,                   \
        const struct fl_piece *from
#define ENDED nn_group *g, struct fl_flight *flight, bool waits, bool *arrived
tensor_status __real_fl_group_begin(BEGUN);
tensor_status __real_fl_group_end(ENDED);
tensor_status __wrap_fl_group_begin(BEGUN);
tensor_status __wrap_fl_group_end(ENDED);

tensor_status __wrap_fl_group_begin(BEGUN) {
    const double began = now(CLOCK_THREAD_CPUTIME_ID);
    const tensor_status status = timed(began, __real_fl_group_begin(g, flight, what, channel, to, from));
    if (present && present->count < CALLS)
        present->call[present->count++] = (struct call){channel, flight->sent};
    return status;
}

tensor_status __wrap_fl_group_end(ENDED) {
    const double began = now(CLOCK_THREAD_CPUTIME_ID);
    return timed(began, __real_fl_group_end(g, flight, waits, arrived));
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static nn_graph *make_network(const char *model, nn_config config) {
    const bool text = nn_model_reads_text(model);
    config.optimiser = text ? "adamw" : NULL;
    config.momentum = text ? 0 : 0.9f;
    config.weight_decay = text ? 0.1f : 1e-4f;
    nn_graph *g = need(nn_graph_new(&config));
    check(nn_compile(g, text ? nn_model_text(g, model, LENGTH, VOCABULARY)
                             : nn_model(g, model, SIDE, SIDE, CHANNELS, CLASSES)));
    return g;
}

/* Random pixels and labels, or tokens of which each is the label of the one before. */
static nn_batch make_batch(const char *model, int batch) {
    const int64_t pixels = (int64_t)batch * SIDE * SIDE * CHANNELS, length = (int64_t)batch * LENGTH;
    if (nn_model_reads_text(model)) {
        int32_t *tokens = need(malloc((size_t)(length + 1) * sizeof *tokens));
        uint32_t state = 1;
        for (int64_t i = 0; i <= length; i++)
            tokens[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 24);
        return (nn_batch){.tokens = tokens, .labels = tokens + 1};
    }
    float *images = need(malloc((size_t)pixels * sizeof *images));
    double *numbers = need(malloc((size_t)pixels * sizeof *numbers));
    int32_t *labels = need(malloc((size_t)batch * sizeof *labels));
    check(nn_normal_numbers(numbers, pixels, 1, "images"));
    for (int64_t i = 0; i < pixels; i++)
        images[i] = (float)numbers[i];
    for (int i = 0; i < batch; i++)
        labels[i] = i % CLASSES;
    free(numbers);
    return (nn_batch){.images = images, .labels = labels};
}

static void print_step(const struct step *s) {
    printf("{\"seconds\": %.9f, \"busy\": %.9f, \"inside\": %.9f, \"waited\": %.9f, \"overlapped\": %.9f, \"calls\": [",
           s->seconds, s->busy, s->inside, s->waited, s->overlapped);
    for (int64_t i = 0; i < s->count; i++)
        printf("%s[%lld, %lld]", i ? ", " : "", (long long)s->call[i].channel, (long long)s->call[i].bytes);
    printf("]}");
}

static void measure_step(const char *model, const char *variant, int batch, int shards, int steps) {
    const int rank = nn_group_rank(group), size = nn_group_size(group);
    struct step *all = need(calloc((size_t)steps * (size_t)size, sizeof *all)),
                *own = all + (size_t)rank * (size_t)steps;
    nn_graph *g = make_network(
        model, (nn_config){.variant = variant, .batch = batch, .shards = shards, .seed = 1, .group = group});
    const nn_batch data = make_batch(model, batch);
    for (int i = -WARM; i < steps; i++) {
        double loss;
        int correct;
        present = i >= 0 ? &own[i] : NULL;
        nn_group_statistics before, after;
        check(nn_group_statistics_of(&before, group));
        const double wall = now(CLOCK_MONOTONIC), processor = now(CLOCK_THREAD_CPUTIME_ID);
        check(nn_train_step(&loss, &correct, g, &data, 0.001f));
        if (present) {
            present->seconds = now(CLOCK_MONOTONIC) - wall;
            present->busy = now(CLOCK_THREAD_CPUTIME_ID) - processor;
            check(nn_group_statistics_of(&after, group));
            present->waited = after.waited - before.waited;
            present->overlapped = after.overlapped - before.overlapped;
        }
    }
    present = NULL;
    check(fl_group_share(group, "times", all, steps * (int64_t)sizeof *all));
    if (rank)
        return;
    printf("{\"ranks\": %d, \"parameters\": %lld, \"steps\": [", size, (long long)nn_parameter_count(g));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < steps; i++) {
            printf("%s", i ? ", " : r ? "], [" : "[");
            print_step(&all[r * steps + i]);
        }
    printf("]]}\n");
    nn_graph_free(g);
}

/* --- exchanges alone ---------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { SMALLEST = 8, LARGEST = 1 << 23, TIMES = 60, FEWEST = 12 };

/* Of as many repetitions as move 128 MiB, at most TIMES: the fastest tenth, which other programs disturbed least. */
static double low_of_moves(int64_t bytes, struct fl_piece *to, struct fl_piece *from) {
    double seconds[TIMES];
    const int64_t wanted = ((int64_t)1 << 27) / bytes;
    const int count = wanted > TIMES ? TIMES : wanted < FEWEST ? FEWEST : (int)wanted;
    for (int r = 0; r < nn_group_size(group); r++)
        to[r].bytes = from[r].bytes = r == nn_group_rank(group) ? 0 : bytes;
    for (int i = -WARM; i < count; i++) {
        const double start = now(CLOCK_MONOTONIC);
        check(fl_group_move(group, "bytes", to, from));
        if (i >= 0)
            seconds[i] = now(CLOCK_MONOTONIC) - start;
    }
    qsort(seconds, (size_t)count, sizeof *seconds, compare);
    return seconds[count / 10];
}

static void measure_exchanges(void) {
    const int rank = nn_group_rank(group), size = nn_group_size(group);
    struct fl_piece *to = need(calloc((size_t)size, sizeof *to)), *from = need(calloc((size_t)size, sizeof *from));
    for (int r = 0; r < size; r++) {
        to[r].data = need(malloc(LARGEST));
        from[r].data = need(malloc(LARGEST));
        memset(to[r].data, rank, LARGEST);
        memset(from[r].data, rank, LARGEST);
    }
    if (!rank)
        printf("{\"ranks\": %d, \"moves\": [", size);
    for (int64_t bytes = SMALLEST; bytes <= LARGEST; bytes *= 4) {
        const double seconds = low_of_moves(bytes, to, from);
        if (!rank)
            printf("%s[%lld, %.9f]", bytes == SMALLEST ? "" : ", ", (long long)bytes, seconds);
    }
    if (!rank)
        printf("]}\n");
}

int main(int argc, char **argv) {
    const bool step = argc == 8 && !strcmp(argv[2], "step"), exchange = argc == 3 && !strcmp(argv[2], "exchange");
    if (!step && !exchange) {
        fprintf(stderr,
                "usage: bench_ranks ENGINE step MODEL VARIANT BATCH SHARDS STEPS, or bench_ranks ENGINE exchange\n");
        return 2;
    }
    group = need(nn_group_new(argv[1]));
    if (step)
        measure_step(argv[3], argv[4], atoi(argv[5]), atoi(argv[6]), atoi(argv[7]));
    else
        measure_exchanges();
    nn_group_free(group);
    return 0;
}
