/* network_eval.c - `eval FILE`: a network trained elsewhere on labelled images, in several formats. fp32 runs first;
 * the others are compared with it. */
#include "base/failure.h"
#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "flexlab/data.h"
#include "options/options.h"
#include "programs/evaluation.h"
#include <stdlib.h>
#include <string.h>

struct eval {
    const struct settings *settings;
    struct evaluation of;
    struct format_list formats;
    program_quantisation how; /* int8 */
    bool integers;            /* the program was quantised */
    bool frozen;              /* its exponents are fixed */
    char *fixed;              /* what fixed exponents and scales, as a line */
    char *nodes;              /* which nodes compute integers, where some do; NULL: none so far */
};

static bool has_int8(const struct eval *e) {
    for (int i = 0; i < e->formats.count; i++)
        if (e->formats.format[i] == PROGRAM_INT8)
            return true;
    return false;
}

/* Shared exponents and scales: those of --scales, or fixed by the first batches of the data that are there for it, or
 * of those that are evaluated. */
static int calibrate(struct eval *e) {
    const struct network *const n = &e->of.network;
    struct calibration c = {0};
    if (e->settings->scales) {
        if (!e->fixed)
            e->fixed = text_format("exponents and scales of %s", e->settings->scales);
        return network_scales(n, e->settings->scales);
    }
    int status = calibration_open(&c, &e->of, false);
    if (status == STATUS_OK)
        status = calibration_advance(&c, n, e->settings->calibration_batches);
    if (status == STATUS_OK && program_freeze(n->p, 0))
        status = text_failed("%s: %s", n->path, tensor_error());
    if (status == STATUS_OK && !e->fixed)
        e->fixed = text_format("%s fixed by the first %lld images of %s",
                               has_int8(e) ? "exponents and scales" : "shared exponents", (long long)c.images,
                               c.other ? c.data : "the evaluated ones");
    calibration_close(&c);
    return status;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void add_row(struct table *t, const struct eval *e, const char *name, bool is_reference, const struct score *s) {
    table_cell(t, "%s", name);
    evaluation_cells(t, &e->of, s, is_reference);
    table_cell(t, "%lld", (long long)program_parameter_bytes(e->of.network.p));
    table_cell(t, "%.0f", (double)data_count(e->of.images.set) / s->seconds);
}

/* A line of the table; *bad: what the first one says that gave numbers which are not finite. */
static int evaluate_line(struct eval *e, struct table *t, const char *name, bool is_reference, char **bad) {
    struct score s = {0};
    const int status = evaluation_run(&e->of, &s, is_reference);
    if (status == STATUS_OK)
        add_row(t, e, name, is_reference, &s);
    if (!e->nodes)
        e->nodes = network_integers(&e->of.network);
    if (status == STATUS_OK && s.nonfinite && !*bad)
        *bad = text_format("in %s %lld of %lld images give NaN or infinite numbers", name, (long long)s.nonfinite,
                           (long long)data_count(e->of.images.set));
    return status;
}

/* A program of flexlab in the formats and with the exponents that its file has. */
static int evaluate_own(struct eval *e, struct table *t, char **bad) {
    struct network read = e->of.network;
    int status = network_open(&e->of.network, read.path, e->settings);
    if (status == STATUS_OK && network_has_formats(&e->of.network))
        status = evaluate_line(e, t, "as saved", false, bad);
    network_close(&e->of.network);
    e->of.network = read;
    return status;
}

/* The program computes in the i-th format: read anew where integers come or go, and calibrated where it has to be. */
static int take_format(struct eval *e, int i) {
    const tensor_format format = e->formats.format[i];
    const bool int8 = format == PROGRAM_INT8;
    int status = STATUS_OK;
    if (int8 || e->integers) {
        status = network_reopen(&e->of.network);
        e->integers = e->frozen = false;
    }
    if (status == STATUS_OK)
        status = network_format(&e->of.network, format);
    e->how.per_channel = !e->formats.per_tensor[i];
    if (!e->settings->method)
        e->how.method = e->how.per_channel ? PROGRAM_MINMAX : PROGRAM_MSE;
    if (status == STATUS_OK && int8 && program_set_quantisation(e->of.network.p, &e->how))
        status = text_failed("%s", tensor_error());
    if (status == STATUS_OK && (int8 || (tensor_format_is_shared(format) && !e->frozen))) {
        status = calibrate(e);
        e->frozen = true;
    }
    e->integers = int8;
    return status;
}

static int evaluate_formats(struct eval *e) {
    static const char *const heads[] = {"format",     "accuracy", "as fp32", "largest error",
                                        "mean error", "SQNR dB",  "bytes",   "images/s"};
    struct table *t = table_new("lrrrrrrr");
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    char *bad = NULL;
    const bool whole = program_is_quantised(e->of.network.p);                          /* in every format the same */
    for (int i = -1; i < (whole ? 0 : e->formats.count) && status == STATUS_OK; i++) { /* -1: fp32, before all others */
        if (i >= 0 && e->formats.format[i] == FMT_FP32)
            continue;
        status = i < 0 ? network_format(&e->of.network, FMT_FP32) : take_format(e, i);
        if (status == STATUS_OK)
            status = evaluate_line(e, t,
                                   i >= 0  ? network_format_name(&e->formats, i)
                                   : whole ? "int8"
                                           : "fp32",
                                   i < 0, &bad);
    }
    if (status == STATUS_OK)
        status = evaluate_own(e, t, &bad);
    if (status == STATUS_OK) {
        printf("first image as [height, width, channels]: checksum %.6g (size %.6g); its output%s: %.6g (%.6g)\n",
               e->of.first_image.sum, e->of.first_image.magnitude, whole ? "" : " in fp32", e->of.first_output.sum,
               e->of.first_output.magnitude);
        putchar('\n');
        table_print(t, stdout, 0, 0);
        if (e->nodes)
            printf("int8: %s\n", e->nodes);
    }
    if (bad)
        status = text_failed("%s: %s", e->of.network.path, bad);
    free(bad);
    table_free(t);
    return status;
}

static int run(struct eval *e) {
    int status = network_formats(&e->formats, "formats", e->settings->formats, true);
    if (status == STATUS_OK)
        status = network_method(&e->how, "method", e->settings->method);
    if (status == STATUS_OK && e->settings->scales && e->settings->calibration)
        status = text_usage("--scales: not with --calibrate, which finds scales itself");
    if (status == STATUS_OK)
        status = evaluation_open(&e->of, e->settings);
    if (status != STATUS_OK)
        return status;
    const bool needed = !program_is_quantised(e->of.network.p) && (network_formats_shared(&e->formats) || has_int8(e));
    if (!needed && e->settings->scales)
        return text_usage("--scales: no format has shared exponents or 8-bit integers, expected one among --formats");
    if (needed) {
        status = calibrate(e);
        e->frozen = true;
    }
    if (status == STATUS_OK)
        evaluation_print_head(&e->of);
    if (status == STATUS_OK && e->fixed)
        puts(e->fixed);
    return status == STATUS_OK ? evaluate_formats(e) : status;
}

int network_eval(const struct settings *s) {
    struct eval e = {.settings = s};
    const int status = run(&e);
    free(e.nodes);
    free(e.fixed);
    evaluation_close(&e.of);
    return status;
}
