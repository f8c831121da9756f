/* diff_command.c - the command `diff`: the first tensor at which two programs part on the same inputs, or a program and
 * recorded numbers. */
#include "base/output.h"
#include "base/text.h"
#include "commands/commands.h"
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "programs/diff.h"
#include "programs/inputs.h"
#include <stdlib.h>
#include <string.h>

struct side {
    struct settings settings; /* of this side alone: its rounding; --model only for a file of weights */
    struct network network;
    char *rounding;
    const char *path, *format; /* of the list of formats; NULL: as its file says */
    program_array *outputs;
};

struct diff {
    const struct settings *settings;
    struct side side[2];
    struct inputs inputs;
    struct format_list formats;
    const char *recorded; /* an archive in the place of the second program */
    bool first;           /* the side that runs */
    struct parted_list list;
    struct parted_list unmatched; /* names of tensors of the second side that the first has not */
};

enum { DIFFERENT = 1, SHOWN = 12, RANDOM_BATCH = 2 };

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Whether both are the name of one value: without the suffix of integers, which have a scale. */
static bool same_name(const char *a, float a_scale, const char *b, float b_scale) {
    const size_t length = a_scale != 0 ? network_name_length(a) : strlen(a);
    return length == (b_scale != 0 ? network_name_length(b) : strlen(b)) && !strncmp(a, b, length);
}

/* The name that the first side has for a tensor of the second: its own, of an output that of the first's output in the
 * same place where the names differ. */
static const char *name_in_first(const struct diff *d, const program_tensor *t) {
    const struct network *const a = &d->side[0].network, *const b = &d->side[1].network;
    if (parted_find(&d->list, t->value, t->scale) < 0 && a->output_count == b->output_count)
        for (int k = 0; k < b->output_count; k++)
            if (same_name(t->value, t->scale, b->outputs[k].name, b->outputs[k].scale))
                return a->outputs[k].name;
    return t->value;
}

static tensor_status watch(void *context, const program_tensor *t) {
    struct diff *const d = context;
    if (t->cast)
        return TENSOR_OK;
    if (d->first)
        parted_add(&d->list, t);
    else if (!parted_compare(&d->list, t, name_in_first(d, t)))
        parted_note(&d->unmatched, t);
    return TENSOR_OK;
}

/* The element i of a list with commas that is for both sides where it has one element; *text is to be freed. */
static int element(char **text, const char *option, const char *list, int i) {
    *text = NULL;
    if (!list)
        return STATUS_OK;
    const char *const comma = strchr(list, ',');
    if (comma && strchr(comma + 1, ','))
        return text_usage("--%s '%s': expected one name, or two with a comma between them", option, list);
    *text = !comma ? text_format("%s", list)
            : i    ? text_format("%s", comma + 1)
                   : text_format("%.*s", (int)(comma - list), list);
    return STATUS_OK;
}

static int open_side(struct diff *d, int i) {
    struct side *const side = &d->side[i];
    char *rounding;
    int status = element(&rounding, "rounding", d->settings->rounding, i);
    side->settings = *d->settings;
    side->settings.rounding = side->rounding = rounding;
    if (text_ends(side->path, ".onnx") || text_ends(side->path, ".tflite"))
        side->settings.network_model = side->settings.weight_layout = side->settings.image_size = NULL;
    if (status == STATUS_OK)
        status = network_open(&side->network, side->path, &side->settings);
    side->outputs = text_alloc((size_t)side->network.output_count + 1, sizeof *side->outputs);
    return status;
}

/* The format of a side; where exponents or scales are shared, the inputs fix them. */
static int set_format(struct diff *d, int i) {
    struct network *const n = &d->side[i].network;
    const int f = d->formats.count > 1 ? i : 0;
    if (!d->formats.count)
        return STATUS_OK;
    const tensor_format format = d->formats.format[f];
    const bool int8 = format == PROGRAM_INT8;
    program_quantisation how = {.method = d->formats.per_tensor[f] ? PROGRAM_MSE : PROGRAM_MINMAX,
                                .per_channel = !d->formats.per_tensor[f]};
    d->side[i].format = network_format_name(&d->formats, f);
    int status = network_method(&how, "method", d->settings->method);
    if (status == STATUS_OK && int8 && program_set_quantisation(n->p, &how))
        status = text_failed("%s: %s", n->path, tensor_error());
    if (status == STATUS_OK && int8)
        status = network_format(n, format);
    if (status == STATUS_OK && (int8 || tensor_format_is_shared(format)))
        status = network_freeze(n, d->inputs.array);
    return status == STATUS_OK && !int8 ? network_format(n, format) : status;
}

/* An output that the watcher has not seen, because it follows from shapes alone. */
static void take_outputs(struct diff *d, int i) {
    const struct network *const n = &d->side[i].network;
    for (int k = 0; k < n->output_count; k++) {
        const program_tensor t = {.value = n->outputs[k].name,
                                  .node = {.name = "", .op = "output"},
                                  .numbers = d->side[i].outputs[k],
                                  .scale = n->outputs[k].scale,
                                  .zero = n->outputs[k].zero};
        const char *const name = i ? name_in_first(d, &t) : t.value;
        const int at = parted_find(&d->list, name, t.scale);
        if (!i && at < 0)
            parted_add(&d->list, &t);
        else if (i && at >= 0 && !d->list.row[at].other)
            parted_compare(&d->list, &t, name);
    }
}

static int run_side(struct diff *d, int i) {
    struct network *const n = &d->side[i].network;
    int status = set_format(d, i);
    d->first = i == 0;
    if (status == STATUS_OK && program_watch(n->p, watch, d))
        status = text_failed("%s", tensor_error());
    if (status == STATUS_OK)
        status = network_run(n, d->side[i].outputs, d->inputs.array);
    if (status == STATUS_OK)
        take_outputs(d, i);
    return status;
}

/* --- recorded numbers --------------------------------------------------------------------------------------------- */

/* A member of the archive for a tensor: its name; of an output also "output:" and its name, of the only one "output".
 */
static int read_recorded(struct diff *d) {
    const struct network *const n = &d->side[0].network;
    for (int i = 0; i < d->list.count; i++) {
        const struct parted *const row = &d->list.row[i];
        bool output = false;
        for (int k = 0; k < n->output_count; k++)
            output |= parted_find(&d->list, n->outputs[k].name, n->outputs[k].scale) == i;
        char *const prefixed = text_format("output:%.*s", (int)network_name_length(row->value), row->value);
        const char *const members[] = {row->value, prefixed + strlen("output:"), prefixed, "output"};
        program_array a = {0};
        tensor_status status = TENSOR_E_ARGUMENT;
        for (int m = 0; m < (!output ? 2 : n->output_count == 1 ? 4 : 3) && status == TENSOR_E_ARGUMENT; m++)
            status = data_array_read(&a, d->recorded, members[m]);
        free(prefixed);
        if (!status) {
            const bool real = a.type == TENSOR_TYPE_F16 || a.type == TENSOR_TYPE_F32 || a.type == TENSOR_TYPE_F64;
            const program_tensor t = {
                .value = row->value, .numbers = a, .scale = real ? 0 : row->scale, .zero = row->zero};
            parted_compare(&d->list, &t, t.value);
        }
        data_array_free(&a);
        if (status && status != TENSOR_E_ARGUMENT)
            return text_failed("%s: %s", d->recorded, tensor_error());
    }
    return STATUS_OK;
}

/* --- inputs ------------------------------------------------------------------------------------------------------- */

static bool has_inputs(const struct network *n, const char *path) {
    for (int i = 0; i < n->input_count; i++) {
        program_array a = {0};
        char *const prefixed = text_format("input:%s", n->inputs[i].name);
        const bool there =
            !data_array_read(&a, path, prefixed) || (n->input_count == 1 && !data_array_read(&a, path, "input"));
        free(prefixed);
        data_array_free(&a);
        if (!there)
            return false;
    }
    return true;
}

static int read_inputs(struct diff *d) {
    const struct network *const n = &d->side[0].network;
    struct word_list words = d->settings->inputs;
    if (!words.count && d->recorded && has_inputs(n, d->recorded))
        words = (struct word_list){1, {d->recorded}};
    if (words.count && (d->settings->shapes.count || d->settings->batch))
        return text_usage("--%s: expected without --input, for random inputs",
                          d->settings->shapes.count ? "shape" : "batch");
    if (words.count || !n->input_count)
        return inputs_read(&d->inputs, n, &words);
    if (d->recorded)
        return text_usage("%s has no inputs, expected --input FILE with those of the recorded numbers", d->recorded);
    int status = inputs_shapes(&d->inputs, n, &d->settings->shapes);
    if (status == STATUS_OK && d->settings->batch && !d->inputs.batched)
        status = text_usage("--batch %lld: the sizes of the inputs are given, there is no batch",
                            (long long)d->settings->batch);
    if (status == STATUS_OK)
        inputs_random(&d->inputs, n, d->settings->batch ? d->settings->batch : RANDOM_BATCH);
    return status;
}

/* The second network takes the same arrays, by their place. */
static int check_second(const struct diff *d) {
    const struct network *const a = &d->side[0].network, *const b = &d->side[1].network;
    if (a->input_count != b->input_count)
        return text_failed("%s has %d input%s, %s has %d: they cannot be compared", a->path, a->input_count,
                           a->input_count == 1 ? "" : "s", b->path, b->input_count);
    for (int i = 0; i < b->input_count; i++)
        if (inputs_check(b, i, &d->inputs.array[i]) != STATUS_OK)
            return STATUS_FAILED;
    return STATUS_OK;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static int compare(struct diff *d) {
    const struct settings *const s = d->settings;
    int status = output_may_replace("csv", s->csv, s->force);
    if (status == STATUS_OK && s->formats)
        status = network_formats(&d->formats, "formats", s->formats, true);
    if (status == STATUS_OK && d->formats.count > 2)
        status = text_usage("--formats '%s': expected one format for both, or two", s->formats);
    for (int i = 0; i < (d->recorded ? 1 : 2) && status == STATUS_OK; i++)
        status = open_side(d, i);
    if (status == STATUS_OK)
        status = read_inputs(d);
    if (status == STATUS_OK && !d->recorded)
        status = check_second(d);
    if (status == STATUS_OK)
        status = run_side(d, 0);
    if (status == STATUS_OK)
        status = d->recorded ? read_recorded(d) : run_side(d, 1);
    if (status == STATUS_OK && !parted_compared(&d->list))
        status = text_failed("the two have no tensor of one name: nothing was compared");
    return status;
}

static char *side_text(const struct diff *d, int i) {
    const struct side *const side = &d->side[i];
    return i && d->recorded ? text_format("%s, as recorded", d->recorded)
           : side->format   ? text_format("%s in %s", side->path, side->format)
                            : text_format("%s", side->path);
}

static int report(struct diff *d) {
    const double tolerance = d->settings->tolerance;
    char *const a = side_text(d, 0), *const b = side_text(d, 1);
    const struct parted *const first = parted_first(&d->list, tolerance);
    const int compared = parted_compared(&d->list);
    int status = STATUS_OK;
    printf("A: %s\nB: %s\n%d tensor%s compared", a, b, compared, compared == 1 ? "" : "s");
    if (!d->recorded && compared < d->list.count)
        printf(", %d of A are not in B", d->list.count - compared);
    if (d->unmatched.count)
        printf(", %d of B are not in A", d->unmatched.count);
    putchar('\n');
    free(a);
    free(b);
    if (first)
        parted_print_first(first, tolerance);
    else if (tolerance > 0)
        printf("No tensor differs by more than %g of its largest magnitude.\n", tolerance);
    else
        puts("Every bit is the same.");
    if (first || d->settings->all)
        parted_print(&d->list, tolerance, d->settings->all ? d->list.count : SHOWN);
    if (d->settings->csv)
        status = parted_write_csv(&d->list, d->settings->csv);
    return status == STATUS_OK && first ? DIFFERENT : status ? STATUS_USAGE : STATUS_OK;
}

/* As diff and cmp: 1 says that they differ, 2 that they could not be compared. */
int command_diff(int argc, char **argv) {
    struct settings settings;
    struct diff d = {.settings = &settings};
    int status = options_parse(&settings, COMMAND_DIFF, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_DIFF, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK && !settings.folder_count)
        status = text_usage("expected the files of two networks, or of one and --formats A,B; see --help");
    if (status == STATUS_OK && settings.folder_count == 1 && !(settings.formats && strchr(settings.formats, ',')) &&
        !(settings.rounding && strchr(settings.rounding, ',')))
        status = text_usage("expected a second file, or --formats A,B or --rounding A,B for two programs of '%s'",
                            settings.folders[0]);
    if (status == STATUS_OK && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK) {
        const char *const second = settings.folders[settings.folder_count - 1];
        d.side[0].path = settings.folders[0];
        d.side[1].path = second;
        d.recorded = network_is_archive(second) ? second : NULL;
        status = compare(&d);
        status = status == STATUS_OK ? report(&d) : STATUS_USAGE;
    } else {
        status = STATUS_USAGE;
    }
    inputs_free(&d.inputs);
    parted_free(&d.list);
    parted_free(&d.unmatched);
    for (int i = 0; i < 2; i++) {
        free(d.side[i].outputs);
        free(d.side[i].rounding);
        network_close(&d.side[i].network);
    }
    return status;
}
