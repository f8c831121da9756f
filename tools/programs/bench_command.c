/* bench_command.c - the command `bench`: how long a network trained elsewhere takes, by format, batch and threads. */
#include "base/table.h"
#include "base/text.h"
#include "commands/commands.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "programs/inputs.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RUNS_OF_A_LINE = 10000, LEAST_RUNS = 5, WARM_UP = 2 };

struct bench {
    const struct settings *settings;
    struct network network, saved; /* saved: as the file says; not opened where that is fp32 alone */
    struct format_list formats;
    struct number_list batches, threads;
    struct inputs inputs;
    program_array *outputs; /* of a line */
    double milliseconds[MOST_RUNS_OF_A_LINE];
};

/* --- lines -------------------------------------------------------------------------------------------------------- */

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int rising(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int measure(struct bench *b, int *count) {
    int status = STATUS_OK;
    for (int i = 0; i < WARM_UP && status == STATUS_OK; i++)
        status = network_run(&b->network, b->outputs, b->inputs.array);
    const double begin = seconds_now();
    double now = begin;
    for (*count = 0; status == STATUS_OK && *count < MOST_RUNS_OF_A_LINE &&
                     (*count < LEAST_RUNS || now - begin < b->settings->seconds);
         ++*count) {
        const double start = seconds_now();
        status = network_run(&b->network, b->outputs, b->inputs.array);
        now = seconds_now();
        b->milliseconds[*count] = 1e3 * (now - start);
    }
    qsort(b->milliseconds, (size_t)*count, sizeof *b->milliseconds, rising);
    return status;
}

static int add_line(struct table *t, struct bench *b, tensor_format format, int64_t batch) {
    int count;
    const int status = measure(b, &count);
    if (status != STATUS_OK)
        return status;
    const double median = (b->milliseconds[(count - 1) / 2] + b->milliseconds[count / 2]) / 2;
    table_cell(t, "%s", program_is_quantised(b->network.p) ? "int8" : format ? tensor_format_name(format) : "as saved");
    if (b->inputs.batched)
        table_cell(t, "%lld", (long long)batch);
    else
        table_cell(t, "-");
    table_cell(t, "%d", tensor_threads());
    table_cell(t, "%.3f", median);
    table_cell(t, "%.3f", b->milliseconds[0]);
    table_cell(t, "%.1f", (double)(b->inputs.batched ? batch : 1) * 1e3 / median);
    table_cell(t, "%d", count);
    return STATUS_OK;
}

/* f: the place in the list of formats; -1: the program as it was saved. */
static int add_lines(struct table *t, struct bench *b, int f, int64_t batch) {
    const struct network read = b->network;
    int status = STATUS_OK;
    if (f < 0)
        b->network = b->saved;
    for (int k = 0; k < b->threads.count && status == STATUS_OK; k++) {
        if (b->threads.number[k] && tensor_set_threads((int)b->threads.number[k]))
            status = text_usage("--threads: %s", tensor_error());
        if (status == STATUS_OK && f >= 0)
            status = network_format(&b->network, b->formats.format[f]);
        if (status == STATUS_OK)
            status = add_line(t, b, f < 0 ? (tensor_format)0 : b->formats.format[f], batch);
    }
    b->network = read;
    return status;
}

static int measure_all(struct bench *b) {
    static const char *const heads[] = {"format", "batch", "threads", "median ms", "least ms", "items/s", "runs"};
    struct table *t = table_new("lrrrrrr");
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int n = 0; n < b->batches.count && status == STATUS_OK && (n == 0 || b->inputs.batched); n++) {
        inputs_random(&b->inputs, &b->network, b->batches.number[n]);
        if (network_formats_shared(&b->formats))
            status = network_freeze(&b->network, b->inputs.array);
        for (int f = b->saved.p ? -1 : 0; f < b->formats.count && status == STATUS_OK; f++)
            status = add_lines(t, b, f, b->batches.number[n]);
    }
    if (status == STATUS_OK) {
        table_print(t, stdout, 0, 0);
        if (!b->inputs.batched)
            puts("\nThe sizes of the inputs are given: there is no batch.");
    }
    table_free(t);
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int run(struct bench *b) {
    const struct settings *const s = b->settings;
    int status = network_formats(&b->formats, "formats", s->formats, false);
    if (status == STATUS_OK)
        status = network_numbers(&b->batches, "batch", s->batches ? s->batches : "1,64", 65536);
    b->threads.count = 1; /* 0: as they are */
    if (status == STATUS_OK && s->thread_list)
        status = network_numbers(&b->threads, "threads", s->thread_list, 256);
    if (status == STATUS_OK)
        status = network_open(&b->network, s->folders[0], s);
    if (status == STATUS_OK)
        status = network_refuse_formats(&b->network, s->formats);
    if (status != STATUS_OK)
        return status;
    if (network_is_own(&b->network)) {
        if (!s->formats)
            b->formats.count = 0;
        status = network_open(&b->saved, s->folders[0], s);
        if (status != STATUS_OK)
            return status;
    }
    b->outputs = text_alloc((size_t)b->network.output_count + 1, sizeof *b->outputs);
    status = inputs_shapes(&b->inputs, &b->network, &s->shapes);
    return status == STATUS_OK ? measure_all(b) : status;
}

int command_bench(int argc, char **argv) {
    struct settings settings;
    struct bench *const b = text_alloc(1, sizeof *b);
    b->settings = &settings;
    int status = options_parse(&settings, COMMAND_BENCH, argc, argv);
    if (status == STATUS_OK && settings.help)
        options_help(COMMAND_BENCH, stdout);
    else if (status == STATUS_OK)
        status = settings.folder_count ? run(b) : text_usage("expected the file of a network; see --help");
    inputs_free(&b->inputs);
    free(b->outputs);
    network_close(&b->network);
    network_close(&b->saved);
    free(b);
    return status;
}
