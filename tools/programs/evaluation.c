/* evaluation.c - see evaluation.h. */
#include "programs/evaluation.h"
#include "base/table.h"
#include "base/text.h"
#include "flexlab/data.h"
#include "options/options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int evaluation_open(struct evaluation *e, const struct settings *s) {
    e->settings = s;
    e->images = (struct images){.settings = s, .network = &e->network, .option = "data", .specification = s->data};
    int status = network_open(&e->network, s->folders[0], s);
    if (status == STATUS_OK)
        status = network_refuse_formats(&e->network, s->formats);
    if (status == STATUS_OK)
        status = images_open(&e->images, strcmp(s->split, "train") ? DATA_TEST : DATA_TRAIN);
    if (status == STATUS_OK)
        e->outputs = text_alloc((size_t)e->network.output_count + 1, sizeof *e->outputs);
    return status;
}

void evaluation_close(struct evaluation *e) {
    free(e->outputs);
    free(e->reference);
    free(e->logits);
    images_close(&e->images);
    network_close(&e->network);
}

void evaluation_print_head(const struct evaluation *e) {
    char *const shown = text_shown(e->network.path), *const shape = network_port_shape(&e->network.inputs[0]);
    printf("%s: %lld images of %s, input '%s' %s%s as %s, batches of %lld", shown, (long long)data_count(e->images.set),
           e->images.specification, e->network.inputs[0].name,
           e->network.inputs[0].scale > 0 ? "of 8-bit integers " : "", shape,
           e->images.channels_first ? "nchw" : "nhwc", (long long)e->images.input.shape[0]);
    if (e->network.output_count > 1)
        printf(", output '%s', the first of %d", e->network.outputs[0].name, e->network.output_count);
    putchar('\n');
    free(shown);
    free(shape);
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
static int check_output(struct evaluation *e) {
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

static void count_image(struct evaluation *e, struct score *s, const float *logits, float *reference, bool is_reference,
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
int evaluation_run(struct evaluation *e, struct score *s, bool is_reference) {
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

void evaluation_cells(struct table *t, const struct evaluation *e, const struct score *s, bool is_reference) {
    const double images = (double)data_count(e->images.set);
    table_cell(t, "%.2f %%", 100 * (double)s->right / images);
    if (is_reference) {
        for (int k = 0; k < 4; k++)
            table_cell(t, "-");
        return;
    }
    table_cell(t, "%.2f %%", 100 * (double)s->agreeing / images);
    table_cell(t, "%.3g", s->largest);
    table_cell(t, "%.3g", s->sum / (images * (double)e->classes));
    if (s->noise > 0)
        table_cell(t, "%.1f", 10 * log10(s->power / s->noise));
    else
        table_cell(t, isnan(s->noise) ? "NaN" : "exact");
}

/* --- calibration -------------------------------------------------------------------------------------------------- */

int calibration_open(struct calibration *c, struct evaluation *e, bool training_part) {
    const char *const other = e->settings->calibration;
    const data_set *const evaluated = e->images.set;
    *c = (struct calibration){.e = e, .data = other ? other : e->images.specification};
    int status = other || training_part ? images_open_set(&c->other, other ? "calibrate" : "data", c->data, DATA_TRAIN)
                                        : STATUS_OK;
    if (status == STATUS_OK && c->other &&
        (data_height(c->other) != data_height(evaluated) || data_width(c->other) != data_width(evaluated) ||
         data_channels(c->other) != data_channels(evaluated)))
        status = text_usage("--calibrate '%s': images of %dx%dx%d, those of --data are %dx%dx%d", c->data,
                            data_height(c->other), data_width(c->other), data_channels(c->other),
                            data_height(evaluated), data_width(evaluated), data_channels(evaluated));
    if (status != STATUS_OK)
        return status;
    c->loader = images_load(&e->images, c->other ? c->other : evaluated);
    return !c->loader || data_loader_start(c->loader, 0) ? text_failed("%s", tensor_error()) : STATUS_OK;
}

int calibration_advance(struct calibration *c, const struct network *n, int64_t batches) {
    data_batch batch;
    tensor_status status = TENSOR_OK;
    while (!status && c->batches < batches && !(status = data_loader_next(&batch, c->loader)) && batch.count) {
        images_take(&c->e->images, &batch);
        program_array images = c->e->images.input;
        if (n->inputs[0].shape[0] < 0) /* no image counts twice */
            images.shape[0] = batch.count;
        status = program_calibrate(n->p, &images);
        c->images += batch.count;
        c->batches++;
    }
    return status ? text_failed("%s: %s", n->path, tensor_error()) : STATUS_OK;
}

void calibration_close(struct calibration *c) {
    data_loader_free(c->loader);
    data_free(c->other);
    *c = (struct calibration){0};
}
