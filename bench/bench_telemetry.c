/* What telemetry costs a training (docs/output.md): processor time of telemetry's own code, in parts of the time of
 * the same steps without it, in one run on one thread. Every tensor, both files, on random images or tokens.
 *
 *     bench_telemetry [FORMAT,...] [--model NAME] [--batch N] [--every N] [--steps N] [--limit PERCENT]
 *
 * Default: every format, resnet20 on 32x32x3 at batch 128 (gpt: 16 sequences of 128), 10, 160 steps. An operation is
 * sampled in every sixteenth row, so that 16 rows have all of what sampling costs. The range is that of single rows.
 * With --limit the status is 1 where a format costs more. */
#define _GNU_SOURCE
#include "flexlab/flexlab.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, LENGTH = 128, VOCABULARY = 256 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *need(void *p) {
    if (!p) {
        fprintf(stderr, "bench_telemetry: %s\n", *tensor_error() ? tensor_error() : "out of memory");
        exit(1);
    }
    return p;
}

static void check(tensor_status status) {
    (void)need(status ? NULL : (void *)"");
}

static struct {
    nn_telemetry *telemetry;
    bool row; /* this step has rows */
} looking;

/* The seconds of telemetry's work: elements examined; elements computed again, in the middle of the step (the linker
 * redirects the library's calls here); records and their texts. */
static struct {
    double watch, sample, rows;
    long sampled;
} spent;

struct fl_call;
void __real_fl_sample_call(const struct fl_call *call);
void __wrap_fl_sample_call(const struct fl_call *call);
void __wrap_fl_sample_call(const struct fl_call *call) {
    if (!looking.row) {
        __real_fl_sample_call(call);
        return;
    }
    const double start = now();
    __real_fl_sample_call(call);
    spent.sample += now() - start;
    spent.sampled++;
}

static void watch(const nn_tensor_info *info, void *context) {
    (void)context;
    if (!looking.row)
        return;
    const double start = now();
    nn_telemetry_watch(info, looking.telemetry);
    spent.watch += now() - start;
}

/* --- what is trained ---------------------------------------------------------------------------------------------- */

static struct {
    const char *model;
    int batch, every, steps;
    double limit;
    bool text;
    float *images;
    int32_t *tokens, *labels;
} o = {.model = "resnet20", .every = 10, .steps = 160};

static double uniform(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-53;
}

static void make_batch(void) {
    uint64_t seed = 20261122;
    const int64_t pixels = (int64_t)o.batch * SIDE * SIDE * CHANNELS, words = (int64_t)o.batch * LENGTH,
                  labels = o.text ? words : o.batch;
    o.images = need(malloc((size_t)pixels * sizeof *o.images));
    o.tokens = need(malloc((size_t)words * sizeof *o.tokens));
    o.labels = need(malloc((size_t)labels * sizeof *o.labels));
    for (int64_t i = 0; i < pixels; i++)
        o.images[i] = (float)(2 * (uniform(&seed) + uniform(&seed) + uniform(&seed)) - 3);
    for (int64_t i = 0; i < words; i++)
        o.tokens[i] = (int32_t)(uniform(&seed) * VOCABULARY);
    for (int64_t i = 0; i < labels; i++)
        o.labels[i] = (int32_t)(uniform(&seed) * (o.text ? VOCABULARY : CLASSES));
}

static nn_graph *network(const char *format) {
    nn_config config = {.variant = format, .batch = o.batch, .seed = 1, .momentum = 0.9f, .weight_decay = 1e-4f};
    if (o.text)
        config =
            (nn_config){.variant = format, .batch = o.batch, .seed = 1, .optimiser = "adamw", .weight_decay = 0.1f};
    nn_graph *g = need(nn_graph_new(&config));
    check(nn_compile(g, o.text ? nn_model_text(g, o.model, LENGTH, VOCABULARY)
                               : nn_model(g, o.model, SIDE, SIDE, CHANNELS, CLASSES)));
    return g;
}

/* --- cost --------------------------------------------------------------------------------------------------------- */

static bool measure(const char *format) {
    const char *place = getenv("TMPDIR");
    char folder[512], json[600], csv[600];
    nn_graph *g = network(format);
    snprintf(folder, sizeof folder, "%s/bench_telemetry.XXXXXX", place && *place ? place : "/tmp");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "bench_telemetry: cannot make the folder %s\n", folder);
        exit(1);
    }
    snprintf(json, sizeof json, "%s/t.jsonl", folder);
    snprintf(csv, sizeof csv, "%s/t.csv", folder);
    looking.telemetry =
        need(nn_telemetry_new(g, &(nn_telemetry_config){.path = json, .csv = csv, .every = o.every, .watched = true}));
    check(nn_watch(g, watch, NULL));
    memset(&spent, 0, sizeof spent);
    double all = 0, before = 0, since = 0, least = 1e9, most = 0;
    for (int step = 0; step < o.steps; step++) {
        looking.row = step % o.every == 0;
        const double start = now();
        check(o.text ? nn_train_step(NULL, NULL, g, &(nn_batch){.tokens = o.tokens, .labels = o.labels}, 1e-3f)
                     : nn_train_step(NULL, NULL, g, &(nn_batch){.images = o.images, .labels = o.labels}, 0.01f));
        const double trained = now();
        check(nn_telemetry_step(looking.telemetry));
        spent.rows += now() - trained;
        all += now() - start;
        if ((step + 1) % o.every)
            continue;
        const double own = spent.watch + spent.sample + spent.rows,
                     cost = (own - before) / (all - since - own + before);
        least = cost < least ? cost : least;
        most = cost > most ? cost : most;
        before = own;
        since = all;
    }
    check(nn_telemetry_finish(looking.telemetry));
    nn_telemetry_free(looking.telemetry);
    nn_graph_free(g);
    unlink(json);
    unlink(csv);
    rmdir(folder);
    if (!spent.sampled) {
        fprintf(stderr, "bench_telemetry: no call was sampled: the linker did not wrap fl_sample_call\n");
        exit(1);
    }
    const double own = spent.watch + spent.sample + spent.rows, bare = all - own, percent = 100 / bare;
    printf("%-12s %9.1f  %7.2f %%  (%.2f to %.2f)  %8.2f  %8.3f  %8.3f\n", format, 1e3 * bare / o.steps, own * percent,
           100 * least, 100 * most, spent.watch * percent, spent.sample * percent, spent.rows * percent);
    fflush(stdout);
    return !(o.limit > 0 && own * percent > o.limit);
}

static int wrong(const char *what) {
    fprintf(stderr,
            "bench_telemetry: %s\nusage: bench_telemetry [FORMAT,...] [--model NAME] [--batch N] [--every N] "
            "[--steps N] [--limit PERCENT]\n",
            what);
    return 2;
}

/* A whole number above 0; 0: none. */
static int whole(const char *text) {
    char *end;
    const long value = strtol(text, &end, 10);
    return *text && !*end && value > 0 && value <= 1 << 20 ? (int)value : 0;
}

int main(int argc, char **argv) {
    char all[256] = "", *formats = all, *end;
    for (int i = 0; tensor_format_at(i); i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? "," : "",
                 tensor_format_name(tensor_format_at(i)));
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        int *number = !strcmp(argv[i], "--batch")   ? &o.batch
                      : !strcmp(argv[i], "--every") ? &o.every
                      : !strcmp(argv[i], "--steps") ? &o.steps
                                                    : NULL;
        if (argv[i][0] != '-') {
            formats = argv[i];
            continue;
        }
        i++;
        if (number) {
            if (!(*number = whole(value)))
                return wrong("--batch, --every, --steps: expected a whole number from 1 to 1048576");
        } else if (!strcmp(argv[i - 1], "--model") && *value) {
            o.model = value;
        } else if (!strcmp(argv[i - 1], "--limit") && *value) {
            o.limit = strtod(value, &end);
            if (*end || !(o.limit > 0))
                return wrong("--limit: expected a number above 0, percent");
        } else {
            return wrong(argv[i - 1]);
        }
    }
    if (o.steps < o.every || o.steps % o.every)
        return wrong("--steps: expected a multiple of --every");
    o.text = nn_model_reads_text(o.model);
    o.batch = o.batch ? o.batch : o.text ? 16 : 128;
    check(tensor_set_threads(1));
    make_batch();
    printf("%s, batch %d, a row every %d steps, %d steps, one thread; processor time\n", o.model, o.batch, o.every,
           o.steps);
    printf("%-12s %9s  %9s  %-15s  %8s  %8s  %8s\n", "format", "ms a step", "telemetry", "(single rows)", "elements",
           "sampled", "rows");
    bool good = true;
    for (char *name = strtok(formats, ","); name; name = strtok(NULL, ","))
        good &= measure(name);
    free(o.images);
    free(o.tokens);
    free(o.labels);
    return good ? 0 : 1;
}
