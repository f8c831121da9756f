/* calibrate_command.c - the command `calibrate`: what 8-bit integers cost, by the number of batches that calibrate
 * them, the method that makes ranges of numbers, and whether each filter has a scale. The program is calibrated once:
 * its statistics after so many batches give the scales of every line. */
#include "base/output.h"
#include "base/table.h"
#include "base/text.h"
#include "commands/commands.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "programs/evaluation.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_METHODS = 16 };

struct calibrating {
    const struct settings *settings;
    struct evaluation of;      /* what each line measures */
    struct network statistics; /* the program that sees the batches */
    struct calibration calibration;
    struct number_list batches;
    struct format_list formats;
    int method_count;
    char *method_name[MOST_METHODS];
    program_quantisation method[MOST_METHODS];
    char *scales; /* a temporary file */
    struct table *table;
    struct output csv;
};

static int read_methods(struct calibrating *c) {
    const char *const text = c->settings->methods ? c->settings->methods : "minmax,percentile,mse,entropy";
    char *const copy = text_format("%s", text), *rest = copy, *word;
    int status = STATUS_OK;
    while (status == STATUS_OK && (word = strsep(&rest, ","))) {
        if (c->method_count == MOST_METHODS) {
            status = text_usage("--methods: expected at most %d methods", MOST_METHODS);
            break;
        }
        status = network_method(&c->method[c->method_count], "methods", word);
        for (int i = 0; i < c->method_count && status == STATUS_OK; i++)
            if (!strcmp(c->method_name[i], word))
                status = text_usage("--methods: '%s' is named twice", word);
        if (status == STATUS_OK)
            c->method_name[c->method_count++] = text_format("%s", word);
    }
    free(copy);
    return status;
}

static int read_settings(struct calibrating *c) {
    const struct settings *const s = c->settings;
    int status = network_numbers(&c->batches, "batches", s->batches ? s->batches : "5,10,50", 1000000);
    for (int i = 1; i < c->batches.count && status == STATUS_OK; i++)
        if (c->batches.number[i] <= c->batches.number[i - 1])
            status = text_usage("--batches '%s': expected numbers that increase", s->batches);
    if (status == STATUS_OK)
        status = network_formats(&c->formats, "formats", s->formats ? s->formats : "int8:tensor,int8", true);
    for (int i = 0; i < c->formats.count && status == STATUS_OK; i++)
        if (c->formats.format[i] != PROGRAM_INT8)
            status = text_usage("--formats '%s': expected int8, int8:tensor, or both", s->formats);
    if (status == STATUS_OK)
        status = read_methods(c);
    if (status == STATUS_OK && s->out && (c->method_count != 1 || c->batches.count != 1))
        status = text_usage("--out: scales follow from one method and one number of batches, expected --methods NAME "
                            "and --batches N beside it");
    if (status == STATUS_OK)
        status = output_may_replace("out", s->out, s->force);
    if (status == STATUS_OK)
        status = output_may_replace("csv", s->csv, s->force);
    if (status == STATUS_OK && s->out && s->csv && !strcmp(s->out, s->csv))
        status = text_usage("--out and --csv are both '%s', expected different files", s->out);
    return status;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static void add_line(struct calibrating *c, const char *format, const char *method, const struct score *s) {
    const bool reference = !method;
    if (reference) {
        for (int i = 0; i < 2; i++)
            table_cell(c->table, "-");
    } else {
        table_cell(c->table, "%lld", (long long)c->calibration.batches);
        table_cell(c->table, "%lld", (long long)c->calibration.images);
    }
    table_cell(c->table, "%s", method ? method : "-");
    table_cell(c->table, "%s", format);
    evaluation_cells(c->table, &c->of, s, reference);
    if (!c->csv.file)
        return;
    const double numbers = (double)data_count(c->of.images.set) * (double)c->of.classes;
    fprintf(c->csv.file, "%lld,%lld,%s,%s,%lld,%lld,%lld,%.9g,%.9g,", (long long)c->calibration.batches,
            (long long)c->calibration.images, method ? method : "", format, (long long)data_count(c->of.images.set),
            (long long)s->right, (long long)s->agreeing, s->largest, s->sum / numbers);
    if (s->noise > 0)
        fprintf(c->csv.file, "%.4f", 10 * log10(s->power / s->noise));
    fputc('\n', c->csv.file);
}

static int measure(struct calibrating *c, const char *format, const char *method) {
    struct score s = {0};
    int status = evaluation_run(&c->of, &s, !method);
    if (status == STATUS_OK && s.nonfinite)
        status = text_failed("%s: in %s %lld of %lld images give NaN or infinite numbers", c->of.network.path, format,
                             (long long)s.nonfinite, (long long)data_count(c->of.images.set));
    if (status == STATUS_OK)
        add_line(c, format, method, &s);
    return status;
}

/* The program anew, with the scales that these statistics give by this method. */
static int quantise(struct calibrating *c, int method, int format) {
    struct network *const n = &c->of.network;
    program_quantisation how = c->method[method];
    how.per_channel = !c->formats.per_tensor[format];
    if (program_set_quantisation(c->statistics.p, &how) || program_scales_write(c->statistics.p, c->scales))
        return text_failed("%s", tensor_error());
    int status = network_reopen(n);
    if (status == STATUS_OK && program_set_quantisation(n->p, &how))
        status = text_failed("%s", tensor_error());
    if (status == STATUS_OK)
        status = network_format(n, PROGRAM_INT8);
    return status == STATUS_OK ? network_scales(n, c->scales) : status;
}

static int measure_all(struct calibrating *c) {
    static const char *const heads[] = {"batches", "images",        "method",     "format", "accuracy",
                                        "as fp32", "largest error", "mean error", "SQNR dB"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(c->table, "%s", heads[i]);
    int status = network_format(&c->of.network, FMT_FP32);
    if (status == STATUS_OK)
        status = measure(c, "fp32", NULL);
    if (status == STATUS_OK)
        status = calibration_open(&c->calibration, &c->of, true);
    for (int b = 0; b < c->batches.count && status == STATUS_OK; b++) {
        status = calibration_advance(&c->calibration, &c->statistics, c->batches.number[b]);
        for (int m = 0; m < c->method_count && status == STATUS_OK; m++)
            for (int f = 0; f < c->formats.count && status == STATUS_OK; f++) {
                status = quantise(c, m, f);
                if (status == STATUS_OK)
                    status = measure(c, network_format_name(&c->formats, f), c->method_name[m]);
            }
        if (status == STATUS_OK && c->calibration.batches < c->batches.number[b]) {
            text_note("--batches %lld: '%s' has %lld images, %lld batches", (long long)c->batches.number[b],
                      c->calibration.data, (long long)c->calibration.images, (long long)c->calibration.batches);
            break;
        }
    }
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int begin(struct calibrating *c) {
    const struct settings *const s = c->settings;
    int status = read_settings(c);
    if (status == STATUS_OK)
        status = evaluation_open(&c->of, s);
    if (status == STATUS_OK && program_is_quantised(c->of.network.p))
        status = text_failed("%s: it computes 8-bit integers already, expected a network of floats", s->folders[0]);
    if (status == STATUS_OK)
        status = network_open(&c->statistics, s->folders[0], s);
    if (status == STATUS_OK)
        status = network_format(&c->statistics, PROGRAM_INT8);
    if (status == STATUS_OK && s->csv)
        status = output_open_path(&c->csv, s->csv);
    if (status != STATUS_OK)
        return status;
    const char *const folder = getenv("TMPDIR");
    c->scales = text_format("%s/flexlab-scales-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkstemp(c->scales);
    if (file < 0) {
        status = text_failed("cannot make the temporary file %s", c->scales);
        free(c->scales);
        c->scales = NULL;
        return status;
    }
    close(file);
    if (c->csv.file)
        fputs("batches,images,method,format,evaluated,right,agreeing,largest_error,mean_error,sqnr_db\n", c->csv.file);
    c->table = table_new("rrllrrrrr");
    return STATUS_OK;
}

static int finish(struct calibrating *c) {
    const char *const out = c->settings->out;
    if (out && program_scales_write(c->statistics.p, out))
        return text_failed("--out '%s': %s", out, tensor_error());
    const int status = c->csv.file ? output_commit(&c->csv) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    evaluation_print_head(&c->of);
    printf("calibrated with the first images of %s\n\n", c->calibration.data);
    table_print(c->table, stdout, 0, 0);
    if (out)
        printf("\nscales: %s\n", out);
    return STATUS_OK;
}

int command_calibrate(int argc, char **argv) {
    struct settings settings;
    struct calibrating *const c = text_alloc(1, sizeof *c);
    c->settings = &settings;
    int status = options_parse(&settings, COMMAND_CALIBRATE, argc, argv);
    const bool help = status == STATUS_OK && settings.help;
    if (help)
        options_help(COMMAND_CALIBRATE, stdout);
    else if (status == STATUS_OK && !settings.folder_count)
        status = text_usage("expected the file of a network; see --help");
    if (status == STATUS_OK && !help && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK && !help)
        status = begin(c);
    if (status == STATUS_OK && !help)
        status = measure_all(c);
    if (status == STATUS_OK && !help)
        status = finish(c);
    if (c->scales)
        unlink(c->scales);
    free(c->scales);
    for (int i = 0; i < c->method_count; i++)
        free(c->method_name[i]);
    output_discard(&c->csv);
    if (c->table)
        table_free(c->table);
    calibration_close(&c->calibration);
    network_close(&c->statistics);
    evaluation_close(&c->of);
    free(c);
    return status;
}
