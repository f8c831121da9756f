/* network_eval.c - `eval FILE`: a network trained elsewhere on labelled images, in several formats. fp32 runs first;
 * the others are compared with it. */
#include "base/failure.h"
#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "flexlab/data.h"
#include "options/options.h"
#include "programs/images.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct eval {
    const struct settings *settings;
    struct network network;
    struct format_list formats;
    program_quantisation how; /* int8 */
    bool integers;            /* the program was quantised */
    bool frozen;              /* its exponents are fixed */
    struct images images;
    program_array *outputs;
    float *logits;                         /* of a batch */
    char *nodes;                           /* which nodes compute integers, where some do; NULL: none so far */
    int64_t classes;                       /* numbers of an image in the first output */
    program_sum first_image, first_output; /* of the first image, and of what the network gives for it */
    float *reference;                      /* those of fp32, of all images */
};

struct score {
    int64_t right, agreeing, nonfinite;
    double largest, sum, noise, power, seconds; /* of the differences from fp32, and of fp32 */
};

/* --- one format --------------------------------------------------------------------------------------------------- */

static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int64_t largest_of(const float *logits, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* One number for each class and image in the first output. */
static int check_output(struct eval *e) {
    const program_array *const out = &e->outputs[0];
    const int64_t batch = e->images.input.shape[0], elements = network_elements(out);
    if (!network_takes_reals(&e->network.outputs[0]) || out->ndim < 2 || out->shape[0] != batch) {
        char *const shape = text_shape(out->ndim, out->shape);
        const int status = text_failed(
            "%s: output '%s' is %s %s, expected [%lld, classes] of float32 or of 8-bit integers with a scale",
            e->network.path, e->network.outputs[0].name, network_type_name(out->type), shape, (long long)batch);
        free(shape);
        return status;
    }
    e->classes = elements / batch;
    for (int64_t i = 0; i < data_count(e->images.set); i++)
        if (data_label(e->images.set, i) >= e->classes)
            return text_failed("--data '%s': image %lld has label %d, the network gives %lld numbers for an image",
                               e->settings->data, (long long)i, data_label(e->images.set, i), (long long)e->classes);
    return STATUS_OK;
}

static void count_image(struct eval *e, struct score *s, const float *logits, float *reference, bool is_reference,
                        int label) {
    if (is_reference)
        memcpy(reference, logits, (size_t)e->classes * sizeof *reference);
    const int64_t best = largest_of(logits, e->classes);
    bool finite = true;
    for (int64_t i = 0; i < e->classes; i++) {
        const double error = fabs((double)logits[i] - (double)reference[i]);
        finite &= isfinite(logits[i]) != 0;
        s->largest = error > s->largest || isnan(error) ? error : s->largest;
        s->sum += error;
        s->noise += error * error;
        s->power += (double)reference[i] * (double)reference[i];
    }
    s->right += finite && best == label;
    s->agreeing += finite && best == largest_of(reference, e->classes);
    s->nonfinite += !finite;
}

/* The first run, which plans, is made twice, so that its time does not count. */
static int evaluate(struct eval *e, struct score *s, bool is_reference) {
    data_loader *const loader = images_load(&e->images, e->images.set);
    data_batch batch;
    int64_t done = 0;
    int status = !loader || data_loader_start(loader, 0) ? text_failed("%s", tensor_error()) : STATUS_OK;
    while (status == STATUS_OK) {
        if (data_loader_next(&batch, loader)) {
            status = text_failed("%s", tensor_error());
            break;
        }
        if (!batch.count)
            break;
        images_take(&e->images, &batch);
        if (!done)
            status = network_run(&e->network, e->outputs, &e->images.input);
        if (status == STATUS_OK && !e->reference) {
            status = check_output(e);
            if (status == STATUS_OK) {
                e->logits = text_alloc((size_t)network_elements(&e->outputs[0]), sizeof *e->logits);
                e->reference = text_alloc((size_t)(data_count(e->images.set) * e->classes), sizeof *e->reference);
            }
        }
        const double start = seconds_now();
        if (status == STATUS_OK)
            status = network_run(&e->network, e->outputs, &e->images.input);
        s->seconds += seconds_now() - start;
        if (status == STATUS_OK)
            network_reals(e->logits, &e->outputs[0], &e->network.outputs[0]);
        if (is_reference && !done && status == STATUS_OK) {
            e->first_image =
                program_checksum(batch.images, data_height(e->images.set) * (int64_t)data_width(e->images.set) *
                                                   data_channels(e->images.set));
            e->first_output = program_checksum(e->logits, e->classes);
        }
        for (int64_t i = 0; i < batch.count && status == STATUS_OK; i++)
            count_image(e, s, e->logits + i * e->classes, e->reference + (done + i) * e->classes, is_reference,
                        batch.labels[i]);
        done += batch.count;
    }
    data_loader_free(loader);
    return status;
}

/* --- calibration -------------------------------------------------------------------------------------------------- */

static int calibrate_on(struct eval *e, const data_set *set) {
    data_loader *const loader = images_load(&e->images, set);
    data_batch batch;
    int64_t left = e->settings->calibration_batches;
    tensor_status status = loader ? data_loader_start(loader, 0) : tensor_error_status();
    while (!status && left-- && !(status = data_loader_next(&batch, loader)) && batch.count) {
        images_take(&e->images, &batch);
        program_array images = e->images.input;
        if (e->network.inputs[0].shape[0] < 0) /* no image counts twice */
            images.shape[0] = batch.count;
        status = program_calibrate(e->network.p, &images);
    }
    if (!status)
        status = program_freeze(e->network.p, 0);
    const int result = status ? text_failed("%s: %s", e->network.path, tensor_error()) : STATUS_OK;
    data_loader_free(loader);
    return result;
}

static bool has_int8(const struct eval *e) {
    for (int i = 0; i < e->formats.count; i++)
        if (e->formats.format[i] == PROGRAM_INT8)
            return true;
    return false;
}

/* Shared exponents and scales, fixed by the first batches of the data that are there for it, or of those that are
 * evaluated. */
static int calibrate(struct eval *e, bool tell) {
    const char *const specification = e->settings->calibration;
    data_set *other = NULL;
    int status = specification ? images_open_set(&other, "calibrate", specification, DATA_TRAIN) : STATUS_OK;
    if (status == STATUS_OK && other &&
        (data_height(other) != data_height(e->images.set) || data_width(other) != data_width(e->images.set) ||
         data_channels(other) != data_channels(e->images.set)))
        status = text_usage("--calibrate '%s': images of %dx%dx%d, those of --data are %dx%dx%d", specification,
                            data_height(other), data_width(other), data_channels(other), data_height(e->images.set),
                            data_width(e->images.set), data_channels(e->images.set));
    if (status == STATUS_OK)
        status = calibrate_on(e, other ? other : e->images.set);
    if (status == STATUS_OK && tell) {
        const int64_t batch = e->images.input.shape[0], there = data_count(other ? other : e->images.set),
                      wanted = e->settings->calibration_batches;
        printf("%s fixed by the first %lld images of %s\n", has_int8(e) ? "exponents and scales" : "shared exponents",
               (long long)(wanted < there / batch + 1 && wanted * batch < there ? wanted * batch : there),
               other ? specification : "the evaluated ones");
    }
    data_free(other);
    return status;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void add_row(struct table *t, const struct eval *e, const char *name, bool is_reference, const struct score *s) {
    const double images = (double)data_count(e->images.set);
    table_cell(t, "%s", name);
    table_cell(t, "%.2f %%", 100 * (double)s->right / images);
    if (is_reference) {
        for (int k = 0; k < 4; k++)
            table_cell(t, "-");
    } else {
        table_cell(t, "%.2f %%", 100 * (double)s->agreeing / images);
        table_cell(t, "%.3g", s->largest);
        table_cell(t, "%.3g", s->sum / (images * (double)e->classes));
        if (s->noise > 0)
            table_cell(t, "%.1f", 10 * log10(s->power / s->noise));
        else
            table_cell(t, isnan(s->noise) ? "NaN" : "exact");
    }
    table_cell(t, "%lld", (long long)program_parameter_bytes(e->network.p));
    table_cell(t, "%.0f", images / s->seconds);
}

/* A line of the table; *bad: what the first one says that gave numbers which are not finite. */
static int evaluate_line(struct eval *e, struct table *t, const char *name, bool is_reference, char **bad) {
    struct score s = {0};
    const int status = evaluate(e, &s, is_reference);
    if (status == STATUS_OK)
        add_row(t, e, name, is_reference, &s);
    if (!e->nodes)
        e->nodes = network_integers(&e->network);
    if (status == STATUS_OK && s.nonfinite && !*bad)
        *bad = text_format("in %s %lld of %lld images give NaN or infinite numbers", name, (long long)s.nonfinite,
                           (long long)data_count(e->images.set));
    return status;
}

/* A program of flexlab in the formats and with the exponents that its file has. */
static int evaluate_own(struct eval *e, struct table *t, char **bad) {
    struct network read = e->network;
    int status = network_open(&e->network, read.path, e->settings);
    if (status == STATUS_OK && network_has_formats(&e->network))
        status = evaluate_line(e, t, "as saved", false, bad);
    network_close(&e->network);
    e->network = read;
    return status;
}

/* The program computes in the i-th format: read anew where integers come or go, and calibrated where it has to be. */
static int take_format(struct eval *e, int i) {
    const tensor_format format = e->formats.format[i];
    const bool int8 = format == PROGRAM_INT8;
    int status = STATUS_OK;
    if (int8 || e->integers) {
        status = network_reopen(&e->network);
        e->integers = e->frozen = false;
    }
    if (status == STATUS_OK)
        status = network_format(&e->network, format);
    e->how.per_channel = !e->formats.per_tensor[i];
    if (!e->settings->method)
        e->how.method = e->how.per_channel ? PROGRAM_MINMAX : PROGRAM_MSE;
    if (status == STATUS_OK && int8 && program_set_quantisation(e->network.p, &e->how))
        status = text_failed("%s", tensor_error());
    if (status == STATUS_OK && (int8 || (tensor_format_is_shared(format) && !e->frozen))) {
        status = calibrate(e, false);
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
    const bool whole = program_is_quantised(e->network.p);                             /* in every format the same */
    for (int i = -1; i < (whole ? 0 : e->formats.count) && status == STATUS_OK; i++) { /* -1: fp32, before all others */
        if (i >= 0 && e->formats.format[i] == FMT_FP32)
            continue;
        status = i < 0 ? network_format(&e->network, FMT_FP32) : take_format(e, i);
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
               e->first_image.sum, e->first_image.magnitude, whole ? "" : " in fp32", e->first_output.sum,
               e->first_output.magnitude);
        putchar('\n');
        table_print(t, stdout, 0, 0);
        if (e->nodes)
            printf("int8: %s\n", e->nodes);
    }
    if (bad)
        status = text_failed("%s: %s", e->network.path, bad);
    free(bad);
    table_free(t);
    return status;
}

static void print_head(const struct eval *e) {
    char *const shown = text_shown(e->network.path), *const shape = network_port_shape(&e->network.inputs[0]);
    printf("%s: %lld images of %s, input '%s' %s%s as %s, batches of %lld", shown, (long long)data_count(e->images.set),
           e->settings->data, e->network.inputs[0].name, e->network.inputs[0].scale > 0 ? "of 8-bit integers " : "",
           shape, e->images.channels_first ? "nchw" : "nhwc", (long long)e->images.input.shape[0]);
    if (e->network.output_count > 1)
        printf(", output '%s', the first of %d", e->network.outputs[0].name, e->network.output_count);
    putchar('\n');
    free(shown);
    free(shape);
}

static int run(struct eval *e) {
    int status = network_formats(&e->formats, "formats", e->settings->formats, true);
    if (status == STATUS_OK)
        status = network_method(&e->how, e->settings->method);
    if (status == STATUS_OK)
        status = network_open(&e->network, e->settings->folders[0], e->settings);
    if (status == STATUS_OK)
        status = network_refuse_formats(&e->network, e->settings->formats);
    if (status == STATUS_OK)
        status = images_open(&e->images, strcmp(e->settings->split, "train") ? DATA_TEST : DATA_TRAIN);
    if (status != STATUS_OK)
        return status;
    e->outputs = text_alloc((size_t)e->network.output_count + 1, sizeof *e->outputs);
    print_head(e);
    if (!program_is_quantised(e->network.p) && (network_formats_shared(&e->formats) || has_int8(e))) {
        status = calibrate(e, true);
        e->frozen = true;
    }
    return status == STATUS_OK ? evaluate_formats(e) : status;
}

int network_eval(const struct settings *s) {
    struct eval e = {.settings = s};
    e.images = (struct images){.settings = s, .network = &e.network, .option = "data", .specification = s->data};
    const int status = run(&e);
    free(e.outputs);
    free(e.reference);
    free(e.logits);
    free(e.nodes);
    images_close(&e.images);
    network_close(&e.network);
    return status;
}
