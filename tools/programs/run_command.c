/* run_command.c - the command `run`: a network trained elsewhere on arrays of NumPy. */
#include "base/failure.h"
#include "base/output.h"
#include "base/table.h"
#include "base/text.h"
#include "commands/commands.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "programs/inputs.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct run {
    const struct settings *settings;
    struct network network;
    struct inputs inputs;
    program_array *outputs; /* of each port */
    const char **paths;     /* where each output goes; NULL: nowhere */
    struct output *files;
};

/* --- outputs ------------------------------------------------------------------------------------------------------ */

static int place_outputs(struct run *r) {
    const struct network *const n = &r->network;
    for (int w = 0; w < r->settings->outputs.count; w++) {
        const char *const word = r->settings->outputs.word[w], *path;
        int port;
        const int status = inputs_split(n, "output", word, n->outputs, n->output_count, &port, &path);
        if (status != STATUS_OK)
            return status;
        if (port >= 0 && r->paths[port])
            return text_usage("--output '%s': the output '%s' is given twice", word, n->outputs[port].name);
        for (int i = 0; i < n->output_count && port < 0; i++)
            port = r->paths[i] ? -1 : i;
        if (port < 0)
            return text_usage("--output '%s': %s has no further output", word, n->path);
        for (int i = 0; i < n->output_count; i++)
            if (r->paths[i] && !strcmp(r->paths[i], path))
                return text_usage("--output '%s': two outputs have this file", word);
        if (output_may_replace("output", path, r->settings->force) != STATUS_OK)
            return STATUS_FAILED;
        r->paths[port] = path;
        if (output_open_path(&r->files[port], path) != STATUS_OK)
            return STATUS_FAILED;
    }
    return STATUS_OK;
}

/* Version 1.0 of NumPy's array file: the elements begin at a multiple of 64 bytes. */
static void write_npy(FILE *file, const program_array *a) {
    static const char *const descriptions[] = {
        [TENSOR_TYPE_BOOL] = "|b1", [TENSOR_TYPE_I8] = "|i1",  [TENSOR_TYPE_U8] = "|u1",  [TENSOR_TYPE_I16] = "<i2",
        [TENSOR_TYPE_U16] = "<u2",  [TENSOR_TYPE_I32] = "<i4", [TENSOR_TYPE_U32] = "<u4", [TENSOR_TYPE_I64] = "<i8",
        [TENSOR_TYPE_U64] = "<u8",  [TENSOR_TYPE_F16] = "<f2", [TENSOR_TYPE_F32] = "<f4", [TENSOR_TYPE_F64] = "<f8"};
    char *text = text_format("{'descr': '%s', 'fortran_order': False, 'shape': (", descriptions[a->type]);
    for (int d = 0; d < a->ndim; d++) {
        char *const longer = text_format("%s%lld%s", text, (long long)a->shape[d],
                                         a->ndim == 1      ? ","
                                         : d < a->ndim - 1 ? ", "
                                                           : "");
        free(text);
        text = longer;
    }
    char *const whole = text_format("%s), }", text);
    const size_t used = strlen(whole), room = (10 + used + 1 + 63) / 64 * 64 - 10;
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc((int)(room & 255), file);
    fputc((int)(room >> 8), file);
    fprintf(file, "%s%*s\n", whole, (int)(room - 1 - used), "");
    fwrite(a->data, network_type_bytes(a->type), (size_t)network_elements(a), file);
    free(whole);
    free(text);
}

static void print_output(struct table *t, const program_port *port, const program_array *a) {
    const int64_t count = network_elements(a);
    double least = INFINITY, largest = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t i = 0; i < count; i++) {
        const double x = network_number(a, i);
        nan |= isnan(x);
        least = x < least ? x : least;
        largest = x > largest ? x : largest;
        sum += x;
    }
    table_take(t, text_shown(port->name));
    table_cell(t, "%s", network_type_name(a->type));
    table_take(t, text_shape(a->ndim, a->shape));
    const double numbers[] = {least, largest, sum / (double)count};
    for (int k = 0; k < 3; k++)
        if (!count)
            table_cell(t, "-");
        else if (nan)
            table_cell(t, "NaN");
        else
            table_cell(t, "%.6g", numbers[k]);
}

static void print_outputs(const struct run *r) {
    struct table *t = table_new("lllrrr");
    const char *const heads[] = {"output", "type", "shape", "least", "largest", "mean"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < r->network.output_count; i++)
        print_output(t, &r->network.outputs[i], &r->outputs[i]);
    table_print(t, stdout, 0, 0);
    table_free(t);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* Without --format the file's own formats: a program of flexlab has some. */
static int set_format(const struct run *r) {
    struct format_list formats;
    if (!r->settings->formats)
        return STATUS_OK;
    int status = network_formats(&formats, "format", r->settings->formats, false);
    if (status == STATUS_OK && formats.count != 1)
        status = text_usage("--format '%s': expected one format", r->settings->formats);
    if (status == STATUS_OK && network_formats_shared(&formats))
        status = network_freeze(&r->network, r->inputs.array);
    return status == STATUS_OK ? network_format(&r->network, formats.format[0]) : status;
}

static int run_network(struct run *r) {
    int status = place_outputs(r);
    if (status == STATUS_OK)
        status = inputs_read(&r->inputs, &r->network, &r->settings->inputs);
    if (status == STATUS_OK)
        status = set_format(r);
    if (status == STATUS_OK)
        status = network_run(&r->network, r->outputs, r->inputs.array);
    for (int i = 0; i < r->network.output_count && status == STATUS_OK; i++)
        if (r->files[i].file) {
            write_npy(r->files[i].file, &r->outputs[i]);
            status = output_commit(&r->files[i]);
        }
    if (status == STATUS_OK)
        print_outputs(r);
    return status;
}

static int open_and_run(struct run *r) {
    struct network *const n = &r->network;
    int status = network_open(n, r->settings->folders[0], r->settings);
    if (status != STATUS_OK)
        return status;
    if (!r->settings->inputs.count && n->input_count) {
        if (r->settings->outputs.count)
            return text_usage("--output: expected --input for each input of %s", n->path);
        network_print_ports(n);
        printf("\nExpected --input NAME=FILE.npy for each input%s.\n",
               n->input_count == 1 ? "; the name may be left out" : "");
        return STATUS_OK;
    }
    r->outputs = text_alloc((size_t)n->output_count + 1, sizeof *r->outputs);
    r->paths = text_alloc((size_t)n->output_count + 1, sizeof *r->paths);
    r->files = text_alloc((size_t)n->output_count + 1, sizeof *r->files);
    status = run_network(r);
    for (int i = 0; i < n->output_count; i++)
        output_discard(&r->files[i]);
    return status;
}

int command_run(int argc, char **argv) {
    struct settings settings;
    struct run r = {.settings = &settings};
    int status = options_parse(&settings, COMMAND_RUN, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_RUN, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK && !settings.folder_count)
        status = text_usage("expected the file of a network; see --help");
    if (status == STATUS_OK && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK)
        status = open_and_run(&r);
    inputs_free(&r.inputs);
    free(r.outputs);
    free(r.paths);
    free(r.files);
    network_close(&r.network);
    return status;
}
