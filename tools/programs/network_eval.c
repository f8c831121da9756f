/* network_eval.c - `eval FILE`: a network trained elsewhere on labelled images, in several formats. fp32 runs first;
 * the others are compared with it. */
#include "base/failure.h"
#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "flexlab/data.h"
#include "options/options.h"
#include "programs/networks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHANNELS = 4, USUAL_BATCH = 64 };

struct eval {
    const struct settings *settings;
    struct network network;
    struct format_list formats;
    data_set *set;
    double mean[CHANNELS], deviation[CHANNELS];
    bool channels_first;
    program_array input; /* a batch */
    program_array *outputs;
    int64_t classes;  /* numbers of an image in the first output */
    float *reference; /* those of fp32, of all images */
};

struct score {
    int64_t right, agreeing, nonfinite;
    double largest, sum, noise, power, seconds; /* of the differences from fp32, and of fp32 */
};

/* --- images as the network takes them ----------------------------------------------------------------------------- */

/* A number for each channel, or one for all. */
static int read_list(double values[CHANNELS], const char *option, const char *text, int channels, double low) {
    if (!text)
        return text_usage("expected --mean and --std, the normalisation that the network was trained with: numbers for "
                          "%d channels, or one for all; --mean 0 --std 1 are pixels / 255",
                          channels);
    char *copy = text_format("%s", text), *rest = copy, *word;
    int count = 0;
    bool good = true;
    while (good && (word = strsep(&rest, ",")))
        good = count < CHANNELS && text_real(word, low, 1e6, &values[count++]);
    free(copy);
    if (!good || (count != 1 && count != channels))
        return text_usage("--%s '%s': expected %d numbers from %g to 1e6 with commas between them, or one", option,
                          text, channels, low);
    for (int c = 1; c < channels && count == 1; c++)
        values[c] = values[0];
    return STATUS_OK;
}

static bool fits(const program_port *port, const data_set *set, bool channels_first) {
    const int sizes[] = {data_channels(set), data_height(set), data_width(set)};
    const int place[2][3] = {{3, 1, 2}, {1, 2, 3}};
    for (int k = 0; k < 3; k++) {
        const int64_t size = port->shape[place[channels_first][k]];
        if (size >= 0 && size != sizes[k])
            return false;
    }
    return true;
}

static int find_layout(struct eval *e) {
    const program_port *const port = &e->network.inputs[0];
    const char *const layout = e->settings->layout;
    char *const shape = network_port_shape(port);
    int status = STATUS_OK;
    if (e->network.input_count != 1 || port->type != TENSOR_TYPE_F32 || port->ndim != 4) {
        status = text_failed("%s: expected one input of float32 images with four dimensions; it has %d, the first is "
                             "'%s', %s %s: 'flexlab run' runs any network",
                             e->network.path, e->network.input_count, e->network.input_count ? port->name : "",
                             e->network.input_count ? network_type_name(port->type) : "", shape);
    } else {
        const bool first = fits(port, e->set, true), last = fits(port, e->set, false);
        e->channels_first = layout ? !strcmp(layout, "nchw") : first;
        if (layout ? !(e->channels_first ? first : last) : !first && !last)
            status = text_failed("%s: images of %dx%dx%d (height, width, channels) do not fit the input '%s' %s%s%s",
                                 e->settings->data, data_height(e->set), data_width(e->set), data_channels(e->set),
                                 port->name, shape, layout ? " as " : "", layout ? layout : "");
        else if (!layout && first && last)
            status = text_usage("%s: the input '%s' %s says no layout, expected --layout nchw or nhwc", e->network.path,
                                port->name, shape);
    }
    free(shape);
    return status;
}

static int open_set(data_set **set, const char *option, const char *specification, data_split split) {
    *set = data_open(specification, split);
    if (!*set)
        return text_failed("--%s '%s': %s", option, specification, tensor_error());
    if (data_is_text(*set))
        return text_usage("--%s '%s': a text, expected images", option, specification);
    return STATUS_OK;
}

static int open_images(struct eval *e) {
    const struct settings *const s = e->settings;
    int status = open_set(&e->set, "data", s->data, strcmp(s->split, "train") ? DATA_TEST : DATA_TRAIN);
    if (status != STATUS_OK)
        return status;
    if (s->test_limit > data_count(e->set))
        return text_usage("--test-limit %lld: there are %lld images", (long long)s->test_limit,
                          (long long)data_count(e->set));
    if (s->test_limit && data_limit(e->set, s->test_limit))
        return text_failed("%s", tensor_error());
    status = read_list(e->mean, "mean", s->mean, data_channels(e->set), -1e6);
    return status == STATUS_OK ? read_list(e->deviation, "std", s->deviation, data_channels(e->set), 1e-6) : status;
}

/* As many images as the network states, or as the user wants. */
static int make_input(struct eval *e) {
    const program_port *const port = &e->network.inputs[0];
    const int64_t wanted = e->settings->batch, h = data_height(e->set), w = data_width(e->set),
                  c = data_channels(e->set);
    if (wanted && port->shape[0] >= 0 && wanted != port->shape[0])
        return text_usage("--batch %lld: the input '%s' takes %lld at a time", (long long)wanted, port->name,
                          (long long)port->shape[0]);
    const int64_t batch = port->shape[0] >= 0 ? port->shape[0] : wanted ? wanted : USUAL_BATCH;
    e->input = (program_array){TENSOR_TYPE_F32, 4, {batch, h, w, c}, NULL};
    if (e->channels_first)
        e->input = (program_array){TENSOR_TYPE_F32, 4, {batch, c, h, w}, NULL};
    if (batch < 1 || batch > 65536)
        return text_failed("%s: a batch of %lld, expected 1 to 65536", e->network.path, (long long)batch);
    e->input.data = text_alloc((size_t)network_elements(&e->input), sizeof(float));
    return STATUS_OK;
}

/* A batch in the layout of the network. Images that the last one lacks are its first one again: a run of the same shape
 * plans nothing anew, and calibration sees no image that is none of the data. */
static void take_batch(struct eval *e, const data_batch *batch) {
    const int64_t pixels = (int64_t)data_height(e->set) * data_width(e->set), channels = data_channels(e->set);
    for (int64_t n = 0; n < e->input.shape[0]; n++) {
        const float *const from = batch->images + (n < batch->count ? n : 0) * pixels * channels;
        float *const to = (float *)e->input.data + n * pixels * channels;
        if (!e->channels_first)
            memcpy(to, from, (size_t)(pixels * channels) * sizeof *to);
        for (int64_t i = 0; i < pixels && e->channels_first; i++)
            for (int64_t c = 0; c < channels; c++)
                to[c * pixels + i] = from[i * channels + c];
    }
}

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
    const int64_t batch = e->input.shape[0], elements = network_elements(out);
    if (out->type != TENSOR_TYPE_F32 || out->ndim < 2 || out->shape[0] != batch) {
        char *const shape = text_shape(out->ndim, out->shape);
        const int status =
            text_failed("%s: output '%s' is %s %s, expected float32 [%lld, classes]", e->network.path,
                        e->network.outputs[0].name, network_type_name(out->type), shape, (long long)batch);
        free(shape);
        return status;
    }
    e->classes = elements / batch;
    for (int64_t i = 0; i < data_count(e->set); i++)
        if (data_label(e->set, i) >= e->classes)
            return text_failed("--data '%s': image %lld has label %d, the network gives %lld numbers for an image",
                               e->settings->data, (long long)i, data_label(e->set, i), (long long)e->classes);
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

static data_loader *load(const struct eval *e, const data_set *set) {
    const data_loader_config how = {.batch = (int)e->input.shape[0], .mean = e->mean, .deviation = e->deviation};
    return data_loader_new(set, &how);
}

/* The first run, which plans, is made twice, so that its time does not count. */
static int evaluate(struct eval *e, struct score *s, bool is_reference) {
    data_loader *const loader = load(e, e->set);
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
        take_batch(e, &batch);
        if (!done)
            status = network_run(&e->network, e->outputs, &e->input);
        if (status == STATUS_OK && !e->reference) {
            status = check_output(e);
            if (status == STATUS_OK)
                e->reference = text_alloc((size_t)(data_count(e->set) * e->classes), sizeof *e->reference);
        }
        const double start = seconds_now();
        if (status == STATUS_OK)
            status = network_run(&e->network, e->outputs, &e->input);
        s->seconds += seconds_now() - start;
        for (int64_t i = 0; i < batch.count && status == STATUS_OK; i++)
            count_image(e, s, (const float *)e->outputs[0].data + i * e->classes,
                        e->reference + (done + i) * e->classes, is_reference, batch.labels[i]);
        done += batch.count;
    }
    data_loader_free(loader);
    return status;
}

/* --- calibration -------------------------------------------------------------------------------------------------- */

static int calibrate_on(struct eval *e, const data_set *set) {
    data_loader *const loader = load(e, set);
    data_batch batch;
    int64_t left = e->settings->calibration_batches;
    tensor_status status = loader ? data_loader_start(loader, 0) : tensor_error_status();
    while (!status && left-- && !(status = data_loader_next(&batch, loader)) && batch.count) {
        take_batch(e, &batch);
        status = program_calibrate(e->network.p, &e->input);
    }
    if (!status)
        status = program_freeze(e->network.p, 0);
    const int result = status ? text_failed("%s: %s", e->network.path, tensor_error()) : STATUS_OK;
    data_loader_free(loader);
    return result;
}

/* Shared exponents, fixed by the first batches of the data that are there for it, or of those that are evaluated. */
static int calibrate(struct eval *e) {
    const char *const specification = e->settings->calibration;
    data_set *other = NULL;
    int status = specification ? open_set(&other, "calibrate", specification, DATA_TRAIN) : STATUS_OK;
    if (status == STATUS_OK && other &&
        (data_height(other) != data_height(e->set) || data_width(other) != data_width(e->set) ||
         data_channels(other) != data_channels(e->set)))
        status = text_usage("--calibrate '%s': images of %dx%dx%d, those of --data are %dx%dx%d", specification,
                            data_height(other), data_width(other), data_channels(other), data_height(e->set),
                            data_width(e->set), data_channels(e->set));
    if (status == STATUS_OK)
        status = calibrate_on(e, other ? other : e->set);
    if (status == STATUS_OK) {
        const int64_t batch = e->input.shape[0], there = data_count(other ? other : e->set),
                      wanted = e->settings->calibration_batches;
        printf("shared exponents fixed by the first %lld images of %s\n",
               (long long)(wanted < there / batch + 1 && wanted * batch < there ? wanted * batch : there),
               other ? specification : "the evaluated ones");
    }
    data_free(other);
    return status;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static void add_row(struct table *t, const struct eval *e, tensor_format format, const struct score *s) {
    const double images = (double)data_count(e->set);
    table_cell(t, "%s", tensor_format_name(format));
    table_cell(t, "%.2f %%", 100 * (double)s->right / images);
    if (format == FMT_FP32) {
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
    table_cell(t, "%.0f", images / s->seconds);
}

static int evaluate_formats(struct eval *e) {
    static const char *const heads[] = {"format",     "accuracy", "as fp32", "largest error",
                                        "mean error", "SQNR dB",  "images/s"};
    struct table *t = table_new("lrrrrrr");
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    char *bad = NULL;
    for (int i = -1; i < e->formats.count && status == STATUS_OK; i++) { /* -1: fp32, before all others */
        const tensor_format format = i < 0 ? FMT_FP32 : e->formats.format[i];
        struct score s = {0};
        if (i >= 0 && format == FMT_FP32)
            continue;
        status = network_format(&e->network, format);
        if (status == STATUS_OK)
            status = evaluate(e, &s, i < 0);
        if (status == STATUS_OK)
            add_row(t, e, format, &s);
        if (status == STATUS_OK && s.nonfinite && !bad)
            bad = text_format("in %s %lld of %lld images give NaN or infinite numbers", tensor_format_name(format),
                              (long long)s.nonfinite, (long long)data_count(e->set));
    }
    if (status == STATUS_OK) {
        putchar('\n');
        table_print(t, stdout, 0, 0);
    }
    if (bad)
        status = text_failed("%s: %s", e->network.path, bad);
    free(bad);
    table_free(t);
    return status;
}

static void print_head(const struct eval *e) {
    char *const shown = text_shown(e->network.path), *const shape = network_port_shape(&e->network.inputs[0]);
    printf("%s: %lld images of %s, input '%s' %s as %s, batches of %lld", shown, (long long)data_count(e->set),
           e->settings->data, e->network.inputs[0].name, shape, e->channels_first ? "nchw" : "nhwc",
           (long long)e->input.shape[0]);
    if (e->network.output_count > 1)
        printf(", output '%s', the first of %d", e->network.outputs[0].name, e->network.output_count);
    putchar('\n');
    free(shown);
    free(shape);
}

static int run(struct eval *e) {
    int status = network_formats(&e->formats, "formats", e->settings->formats);
    if (status == STATUS_OK)
        status = network_open(&e->network, e->settings->folders[0], e->settings);
    if (status == STATUS_OK)
        status = open_images(e);
    if (status == STATUS_OK)
        status = find_layout(e);
    if (status == STATUS_OK)
        status = make_input(e);
    if (status != STATUS_OK)
        return status;
    e->outputs = text_alloc((size_t)e->network.output_count + 1, sizeof *e->outputs);
    print_head(e);
    if (network_formats_shared(&e->formats))
        status = calibrate(e);
    return status == STATUS_OK ? evaluate_formats(e) : status;
}

int network_eval(const struct settings *s) {
    struct eval e = {.settings = s};
    const int status = run(&e);
    free(e.input.data);
    free(e.outputs);
    free(e.reference);
    data_free(e.set);
    network_close(&e.network);
    return status;
}
