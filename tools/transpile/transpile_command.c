/* transpile_command.c - the command `transpile`: a network trained elsewhere with its nodes in other formats, as a
 * file, and what that does to each of its tensors. */
#include "base/output.h"
#include "base/text.h"
#include "commands/commands.h"
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "programs/images.h"
#include "transpile/transpile.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { USUAL_SLICE = 64 };

struct transpile {
    const struct settings *settings;
    struct network source, network;
    struct tensor_list tensors;
    struct checksum_list sums;
    struct images images;
    program_array *arrays, *part; /* of each input, from files of arrays: all, and a slice */
    char *data;
    bool integers; /* nodes become 8-bit integers */
};

/* What is done with each batch of the calibration data. */
typedef int batch_act(struct transpile *t, const program_array *inputs);

/* --- calibration data --------------------------------------------------------------------------------------------- */

static bool of_arrays(const struct settings *s) {
    return network_is_archive(s->calibration) || (text_ends(s->calibration, ".npy") && !strchr(s->calibration, ':'));
}

static int read_arrays(struct transpile *t) {
    const struct network *const n = &t->source;
    const char *const path = t->settings->calibration;
    int status = STATUS_OK;
    t->arrays = text_alloc((size_t)n->input_count + 1, sizeof *t->arrays);
    t->part = text_alloc((size_t)n->input_count + 1, sizeof *t->part);
    if (!network_is_archive(path) && n->input_count != 1)
        return text_usage("--calibrate '%s': %s has %d inputs, expected an archive .npz of them", path, n->path,
                          n->input_count);
    for (int i = 0; i < n->input_count && status == STATUS_OK; i++) {
        program_array *const a = &t->arrays[i];
        if (network_is_archive(path))
            status = network_read_member(a, n, "calibrate", i, path);
        else if (data_array_read(a, path, NULL))
            status = text_failed("--calibrate '%s': %s", path, tensor_error());
        if (status == STATUS_OK && a->type != n->inputs[i].type)
            status = text_failed("--calibrate '%s': '%s' is given %s, expected %s", path, n->inputs[i].name,
                                 network_type_name(a->type), network_type_name(n->inputs[i].type));
        if (status == STATUS_OK && (!a->ndim || a->shape[0] < 1))
            status = text_failed("--calibrate '%s': '%s' is given no samples", path, n->inputs[i].name);
        if (status == STATUS_OK && a->shape[0] != t->arrays[0].shape[0])
            status =
                text_failed("--calibrate '%s': %lld samples of '%s', and %lld of '%s'", path, (long long)a->shape[0],
                            n->inputs[i].name, (long long)t->arrays[0].shape[0], n->inputs[0].name);
    }
    return status;
}

/* Slices of arrays, of as many samples as the network states; all at once where these are no multiple of that. */
static int each_slice(struct transpile *t, batch_act *act) {
    const struct network *const n = &t->source;
    const int64_t samples = t->arrays[0].shape[0];
    int64_t slice = t->settings->batch ? t->settings->batch : USUAL_SLICE;
    int status = STATUS_OK;
    for (int i = 0; i < n->input_count; i++) {
        const int64_t stated = n->inputs[i].ndim > 0 ? n->inputs[i].shape[0] : -1;
        if (stated >= 0)
            slice = stated && samples % stated == 0 ? stated : samples;
    }
    for (int64_t first = 0; first < samples && status == STATUS_OK; first += slice) {
        const int64_t count = first + slice < samples ? slice : samples - first;
        for (int i = 0; i < n->input_count; i++) {
            t->part[i] = t->arrays[i];
            const int64_t one = network_elements(&t->arrays[i]) / samples;
            t->part[i].shape[0] = count;
            t->part[i].data = (char *)t->arrays[i].data + (size_t)(first * one) * network_type_bytes(t->arrays[i].type);
        }
        status = act(t, t->part);
    }
    return status;
}

static int each_images(struct transpile *t, batch_act *act) {
    data_loader *const loader = images_load(&t->images, t->images.set);
    int64_t left = t->settings->calibration_batches;
    int status = !loader || data_loader_start(loader, 0) ? text_failed("%s", tensor_error()) : STATUS_OK;
    while (status == STATUS_OK && left--) {
        data_batch batch;
        if (data_loader_next(&batch, loader))
            status = text_failed("%s", tensor_error());
        if (status != STATUS_OK || !batch.count)
            break;
        images_take(&t->images, &batch);
        status = act(t, &t->images.input);
    }
    data_loader_free(loader);
    return status;
}

static int each_batch(struct transpile *t, batch_act *act) {
    return t->arrays ? each_slice(t, act) : each_images(t, act);
}

static int open_data(struct transpile *t) {
    const struct settings *const s = t->settings;
    if (of_arrays(s)) {
        const int status = read_arrays(t);
        if (status == STATUS_OK)
            t->data = text_format("%lld samples of %s", (long long)t->arrays[0].shape[0], s->calibration);
        return status;
    }
    t->images =
        (struct images){.settings = s, .network = &t->source, .option = "calibrate", .specification = s->calibration};
    const int status = images_open(&t->images, DATA_TRAIN);
    if (status == STATUS_OK) {
        const int64_t there = data_count(t->images.set), batch = t->images.input.shape[0];
        const bool all = s->calibration_batches > there / batch || s->calibration_batches * batch >= there;
        t->data =
            text_format("%lld images of %s", (long long)(all ? there : s->calibration_batches * batch), s->calibration);
    }
    return status;
}

static int calibrate_on(struct transpile *t, const program_array *inputs) {
    return program_calibrate(t->network.p, inputs) ? text_failed("%s: %s", t->network.path, tensor_error()) : STATUS_OK;
}

static int compare_on(struct transpile *t, const program_array *inputs) {
    return measure_run(&t->tensors, &t->source, &t->network, inputs);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* Whether some node has a shared exponent. */
static bool shares(const struct network *n) {
    program_node node;
    for (int i = 0; i < program_node_count(n->p); i++)
        if (!program_node_at(&node, n->p, i) && !node.quantised && tensor_format_is_shared(node.format))
            return true;
    return false;
}

static int set_quantisation(struct transpile *t) {
    program_quantisation how = {.method = t->settings->per_tensor ? PROGRAM_MSE : PROGRAM_MINMAX,
                                .per_channel = !t->settings->per_tensor};
    const int status = network_method(&how, "method", t->settings->method);
    return status == STATUS_OK && program_set_quantisation(t->network.p, &how) ? text_failed("%s", tensor_error())
                                                                               : status;
}

static int calibrate(struct transpile *t) {
    const bool needed = t->integers || shares(&t->network);
    const char *const scales = t->settings->scales;
    if (scales && !needed)
        return text_usage("--scales: no node has a shared exponent or computes 8-bit integers");
    int status = scales ? network_scales(&t->network, scales) : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (!t->settings->calibration)
        return needed && !scales
                   ? text_usage("shared exponents and 8-bit integers need data to fix them: expected --calibrate SPEC "
                                "with --mean and --std, --calibrate inputs.npz, or --scales FILE")
                   : STATUS_OK;
    status = open_data(t);
    if (status != STATUS_OK || !needed || scales)
        return status;
    status = each_batch(t, calibrate_on);
    if (status == STATUS_OK && program_freeze(t->network.p, 0))
        status = text_failed("%s: %s", t->network.path, tensor_error());
    return status;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat one, other;
    if (stat(a, &one) || stat(b, &other))
        return !strcmp(a, b);
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* Every file that is written has a name of its own, and none is the file that is read. */
static int check_names(const struct settings *s) {
    const char *const options[] = {"out", "report", "csv"}, *const paths[] = {s->out, s->report, s->csv};
    for (int i = 0; i < 3; i++) {
        if (paths[i] && is_same_file(paths[i], s->folders[0]))
            return text_usage("--%s '%s': that is the network itself, expected another name", options[i], paths[i]);
        for (int k = 0; k < i; k++)
            if (paths[i] && paths[k] && is_same_file(paths[i], paths[k]))
                return text_usage("--%s and --%s are both '%s', expected different files", options[k], options[i],
                                  paths[i]);
    }
    return text_ends(s->out, ".tflite")
               ? text_usage("--out '%s': programs are not written in TensorFlow Lite, expected NAME.safetensors, or "
                            "NAME.onnx",
                            s->out)
               : STATUS_OK;
}

static int write_network(const struct transpile *t) {
    const char *const path = t->settings->out;
    const tensor_status status =
        text_ends(path, ".onnx") ? program_export(t->network.p, path) : program_save(t->network.p, path);
    return status ? text_failed("--out '%s': %s", path, tensor_error()) : STATUS_OK;
}

static int write_report(const char *path, const struct transpiled *t,
                        void (*write)(FILE *, const struct transpiled *)) {
    struct output o;
    if (!path)
        return STATUS_OK;
    const int status = output_open_path(&o, path);
    if (status != STATUS_OK)
        return status;
    write(o.file, t);
    return output_commit(&o);
}

static int64_t bytes_of(const char *path) {
    struct stat about;
    return stat(path, &about) ? 0 : (int64_t)about.st_size;
}

static int report(const struct transpile *t) {
    const struct settings *const s = t->settings;
    const struct transpiled all = {.settings = s,
                                   .source = &t->source,
                                   .network = &t->network,
                                   .tensors = &t->tensors,
                                   .sums = &t->sums,
                                   .data = t->data,
                                   .bytes_before = bytes_of(t->source.path),
                                   .bytes_after = bytes_of(s->out)};
    int status = write_report(s->report, &all, transpile_page);
    if (status == STATUS_OK)
        status = write_report(s->csv, &all, transpile_csv);
    if (status == STATUS_OK)
        transpile_print(&all);
    return status;
}

static int transpile(struct transpile *t) {
    const struct settings *const s = t->settings;
    int status = check_names(s);
    if (status == STATUS_OK)
        status = output_may_replace("out", s->out, s->force);
    if (status == STATUS_OK)
        status = output_may_replace("report", s->report, s->force);
    if (status == STATUS_OK)
        status = output_may_replace("csv", s->csv, s->force);
    if (status == STATUS_OK)
        status = network_open(&t->source, s->folders[0], s);
    if (status == STATUS_OK)
        status = network_open(&t->network, s->folders[0], s);
    if (status == STATUS_OK)
        status = network_format(&t->source, FMT_FP32);
    if (status == STATUS_OK)
        status = transpile_rules(t->network.p, s, &t->integers);
    if (status == STATUS_OK && t->integers)
        status = set_quantisation(t);
    else if (status == STATUS_OK && (s->method || s->per_tensor))
        status = text_usage("--%s: only where nodes become 8-bit integers, expected --to int8 or such a rule beside it",
                            s->method ? "method" : "per-tensor");
    if (status == STATUS_OK)
        status = calibrate(t);
    if (status == STATUS_OK)
        status = measure_weights(&t->tensors, &t->network);
    if (status == STATUS_OK && t->data)
        status = each_batch(t, compare_on);
    if (status != STATUS_OK)
        return status;
    measure_checksums(&t->sums, &t->source, &t->network, t->arrays ? t->arrays : t->data ? &t->images.input : NULL);
    measure_sort(&t->tensors);
    status = write_network(t);
    return status == STATUS_OK ? report(t) : status;
}

int command_transpile(int argc, char **argv) {
    struct settings settings;
    struct transpile t = {.settings = &settings};
    int status = options_parse(&settings, COMMAND_TRANSPILE, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_TRANSPILE, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK && !settings.folder_count)
        status = text_usage("expected the file of a network; see --help");
    if (status == STATUS_OK && !settings.out)
        status = text_usage("expected --out FILE: NAME.safetensors, or NAME.onnx");
    if (status == STATUS_OK && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK)
        status = transpile(&t);
    for (int i = 0; i < t.source.input_count && t.arrays; i++)
        data_array_free(&t.arrays[i]);
    free(t.arrays);
    free(t.part);
    free(t.data);
    images_close(&t.images);
    measure_free(&t.tensors);
    checksum_free(&t.sums);
    network_close(&t.source);
    network_close(&t.network);
    return status;
}
