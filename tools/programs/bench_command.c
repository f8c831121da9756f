/* bench_command.c - the command `bench`: how long a network trained elsewhere takes, by format, batch and threads. */
#include "base/table.h"
#include "base/text.h"
#include "commands/commands.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "programs/networks.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_NUMBERS = 16, MOST_RUNS_OF_A_LINE = 10000, LEAST_RUNS = 5, WARM_UP = 2, BATCH = -1 };

struct number_list {
    int count;
    int64_t number[MOST_NUMBERS];
};

struct bench {
    const struct settings *settings;
    struct network network, saved; /* saved: as the file says; not opened where that is fp32 alone */
    struct format_list formats;
    struct number_list batches, threads;
    program_array *shapes;           /* of each input; BATCH for a size that is the batch */
    program_array *inputs, *outputs; /* of a line */
    bool batched;                    /* some size is the batch */
    double milliseconds[MOST_RUNS_OF_A_LINE];
};

static int read_numbers(struct number_list *list, const char *option, const char *text, int64_t high) {
    char *copy = text_format("%s", text), *rest = copy, *word;
    bool good = true;
    *list = (struct number_list){0};
    while (good && (word = strsep(&rest, ",")))
        good = list->count < MOST_NUMBERS && text_whole(word, 1, high, &list->number[list->count++]);
    free(copy);
    return good ? STATUS_OK
                : text_usage("--%s '%s': expected up to %d whole numbers from 1 to %lld with commas between them",
                             option, text, MOST_NUMBERS, (long long)high);
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

/* "Nx3x48x320". */
static bool read_sizes(program_array *shape, const char *text) {
    char *copy = text_format("%s", text), *rest = copy, *word;
    bool good = true;
    shape->ndim = 0;
    while (good && (word = strsep(&rest, "x"))) {
        int64_t *const size = &shape->shape[shape->ndim < PROGRAM_MAX_DIMS ? shape->ndim++ : 0];
        good = !strcmp(word, "N") || text_whole(word, 1, INT_MAX, size);
        if (good && !strcmp(word, "N"))
            *size = BATCH;
    }
    free(copy);
    return good;
}

static int read_shape(struct bench *b, const char *word) {
    const char *const equals = strrchr(word, '=');
    const struct network *const n = &b->network;
    for (int i = 0; equals && i < n->input_count; i++) {
        const program_port *const port = &n->inputs[i];
        if (strlen(port->name) != (size_t)(equals - word) || strncmp(port->name, word, (size_t)(equals - word)) != 0)
            continue;
        bool good = read_sizes(&b->shapes[i], equals + 1) && (port->ndim < 0 || b->shapes[i].ndim == port->ndim);
        for (int d = 0; good && port->ndim >= 0 && d < port->ndim; d++)
            good = port->shape[d] < 0 || b->shapes[i].shape[d] == port->shape[d];
        if (good)
            return STATUS_OK;
        char *const shape = network_port_shape(port);
        const int status = text_usage("--shape '%s': expected sizes that suit %s, such as 1x3x32x32, with N for the "
                                      "batch",
                                      word, shape);
        free(shape);
        return status;
    }
    return text_usage("--shape '%s': expected the name of an input of %s, '=' and sizes such as Nx3x32x32", word,
                      n->path);
}

/* Sizes that the network leaves open: the first is the batch, others must be given. */
static int read_shapes(struct bench *b) {
    int status = STATUS_OK;
    for (int i = 0; i < b->network.input_count; i++)
        b->shapes[i].ndim = -1;
    for (int w = 0; w < b->settings->shapes.count && status == STATUS_OK; w++)
        status = read_shape(b, b->settings->shapes.word[w]);
    for (int i = 0; i < b->network.input_count && status == STATUS_OK; i++) {
        const program_port *const port = &b->network.inputs[i];
        if (b->shapes[i].ndim < 0) {
            bool known = port->ndim >= 0;
            b->shapes[i].ndim = port->ndim;
            for (int d = 0; d < port->ndim; d++) {
                b->shapes[i].shape[d] = port->shape[d] < 0 ? BATCH : port->shape[d];
                known &= d == 0 || port->shape[d] >= 0;
            }
            if (!known) {
                char *const shape = network_port_shape(port);
                status = text_usage("the input '%s' has %s, expected --shape %s=SIZES, such as Nx3x48x320 with N for "
                                    "the batch",
                                    port->name, shape, port->name);
                free(shape);
            }
        }
        for (int d = 0; d < b->shapes[i].ndim; d++)
            b->batched |= b->shapes[i].shape[d] == BATCH;
    }
    return status;
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

/* Steele, Lea and Flood 2014, SplitMix64. */
static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Floats from -1 to 1; bytes of any value; wider integers, which may be indices, 0 or 1. */
static void fill(program_array *a, uint64_t key) {
    const int64_t count = network_elements(a);
    const size_t bytes = network_type_bytes(a->type);
    a->data = text_alloc((size_t)count, bytes);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t draw = mixed(key << 40 ^ (uint64_t)i);
        if (a->type == TENSOR_TYPE_F32)
            ((float *)a->data)[i] = (float)(draw >> 40) * 0x1p-23f - 1;
        else if (a->type == TENSOR_TYPE_I8 || a->type == TENSOR_TYPE_U8)
            ((uint8_t *)a->data)[i] = (uint8_t)draw;
        else
            ((uint8_t *)a->data)[(size_t)i * bytes] = draw & 1; /* the low byte */
    }
}

static void make_inputs(struct bench *b, int64_t batch) {
    for (int i = 0; i < b->network.input_count; i++) {
        program_array *const a = &b->inputs[i];
        free(a->data);
        *a = b->shapes[i];
        a->type = b->network.inputs[i].type;
        for (int d = 0; d < a->ndim; d++)
            a->shape[d] = a->shape[d] == BATCH ? batch : a->shape[d];
        fill(a, (uint64_t)i);
    }
}

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
        status = network_run(&b->network, b->outputs, b->inputs);
    const double begin = seconds_now();
    double now = begin;
    for (*count = 0; status == STATUS_OK && *count < MOST_RUNS_OF_A_LINE &&
                     (*count < LEAST_RUNS || now - begin < b->settings->seconds);
         ++*count) {
        const double start = seconds_now();
        status = network_run(&b->network, b->outputs, b->inputs);
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
    if (b->batched)
        table_cell(t, "%lld", (long long)batch);
    else
        table_cell(t, "-");
    table_cell(t, "%d", tensor_threads());
    table_cell(t, "%.3f", median);
    table_cell(t, "%.3f", b->milliseconds[0]);
    table_cell(t, "%.1f", (double)(b->batched ? batch : 1) * 1e3 / median);
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
    for (int n = 0; n < b->batches.count && status == STATUS_OK && (n == 0 || b->batched); n++) {
        make_inputs(b, b->batches.number[n]);
        if (network_formats_shared(&b->formats))
            status = network_freeze(&b->network, b->inputs);
        for (int f = b->saved.p ? -1 : 0; f < b->formats.count && status == STATUS_OK; f++)
            status = add_lines(t, b, f, b->batches.number[n]);
    }
    if (status == STATUS_OK) {
        table_print(t, stdout, 0, 0);
        if (!b->batched)
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
        status = read_numbers(&b->batches, "batch", s->batches ? s->batches : "1,64", 65536);
    b->threads.count = 1; /* 0: as they are */
    if (status == STATUS_OK && s->thread_list)
        status = read_numbers(&b->threads, "threads", s->thread_list, 256);
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
    b->shapes = text_alloc((size_t)b->network.input_count + 1, sizeof *b->shapes);
    b->inputs = text_alloc((size_t)b->network.input_count + 1, sizeof *b->inputs);
    b->outputs = text_alloc((size_t)b->network.output_count + 1, sizeof *b->outputs);
    status = read_shapes(b);
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
    for (int i = 0; b->inputs && i < b->network.input_count; i++)
        free(b->inputs[i].data);
    free(b->shapes);
    free(b->inputs);
    free(b->outputs);
    network_close(&b->network);
    network_close(&b->saved);
    free(b);
    return status;
}
