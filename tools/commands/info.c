/* info.c - the command `info`: the build and the kernels of this machine on one screen; the tables by their names. */
#include "commands/commands.h"
#include "commands/info.h"
#include "flexlab/flexlab.h"
#include "options/options.h"
#include "programs/networks.h"
#include "results/origin.h"
#include "base/table.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A kernel set, and the number of pairs of an operation and a format that run on it. */
struct kernel_row {
    const char *name;
    int count;
};
enum { MOST_ROWS = 16 };

static void count_kernels(struct kernel_row rows[MOST_ROWS]) {
    for (int f = 0; tensor_format_at(f); f++)
        for (int i = 0; tensor_op_at(i); i++) {
            const char *name = tensor_kernel_backend(tensor_format_at(f), tensor_op_at(i));
            int r = 0;
            while (name && r < MOST_ROWS - 1 && rows[r].name && strcmp(rows[r].name, name) != 0)
                r++;
            if (name)
                rows[r] = (struct kernel_row){name, rows[r].count + 1};
        }
}

static int by_count(const void *a, const void *b) {
    const struct kernel_row *one = a, *other = b;
    return (one->count < other->count) - (one->count > other->count);
}

/* The kernel sets in force, such as "avx512bw 580, portable 170, ref 55"; to be freed. */
static char *kernels_in_force(void) {
    struct kernel_row rows[MOST_ROWS] = {{0}};
    count_kernels(rows);
    qsort(rows, MOST_ROWS, sizeof *rows, by_count);
    char *text = text_format("%s", "");
    for (int r = 0; r < MOST_ROWS && rows[r].name; r++) {
        char *longer = text_format("%s%s%s %d", text, r ? ", " : "", rows[r].name, rows[r].count);
        free(text);
        text = longer;
    }
    return text;
}

/* Only the table of devices opens the CUDA backend, the driver and each GPU. */
static void print_devices(void) {
#ifdef FLEXLAB_BUILT_WITH_CUDA
    puts("devices    cpu; built with the CUDA backend, 'flexlab info devices' asks it for GPUs");
#else
    puts("devices    cpu; built without the CUDA backend");
#endif
}

static void print_names(void) {
    struct table *t = table_new("ll");
    for (int i = 0; info_table_name(i); i++) {
        table_cell(t, "%s", info_table_name(i));
        table_cell(t, "%s", info_table_summary(i));
    }
    table_cell(t, "MODEL, FILE");
    table_cell(t, "tensors of a model (resnet20); ports and operators of a network (net.onnx)");
    puts("\n'flexlab info NAME' prints more. NAME is one of");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

static int print_overview(void) {
    struct origin here = origin_here("info", NULL);
    char *kernels = kernels_in_force();
    printf("flexlab %s (%s)\n"
           "processor  %s; %ld online, %d thread%s\n"
           "kernels    %s (operation x format)%s%s\n",
           here.version, here.revision, here.processor, sysconf(_SC_NPROCESSORS_ONLN), here.threads,
           here.threads > 1 ? "s" : "", kernels, here.instruction_cap ? "; at most FLEXLAB_ISA=" : "",
           here.instruction_cap ? here.instruction_cap : "");
    free(kernels);
    origin_clear(&here);
    print_devices();
    putchar('\n');
    info_formats(2);
    print_names();
    return STATUS_OK;
}

static void help(void) {
    puts("Usage: flexlab info [NAME]\n\n"
         "Without NAME: version, processor, how many operations run on which row of kernels, whether there is a\n"
         "CUDA backend, formats; no GPU is asked. With NAME, a table:\n");
    for (int i = 0; info_table_name(i); i++)
        printf("  %-12s%s\n", info_table_name(i), info_table_summary(i));
    puts("  MODEL       the tensors of that model: names as in a file of weights, shapes, and what their\n"
         "              dimensions are\n"
         "  FILE        a network in ONNX or TensorFlow Lite: inputs, outputs, operators, parameters; or what\n"
         "              programs lack to run it (docs/programs.md); with --model NAME [--weight-layout NAME]\n"
         "              [--image HxW] the weights of a model, such as a state dict of PyTorch\n"
         "  --verbose   behind FILE: each node that reading has folded into another, or replaced\n"
         "  --probe     behind FILE: checksums of its activations for a fixed input; behind MODEL: a script\n"
         "              that prints them in PyTorch\n\nExamples\n"
         "  flexlab info\n"
         "  flexlab info kernels\n"
         "  flexlab info resnet20\n"
         "  flexlab info network.onnx\n"
         "  FLEXLAB_ISA=avx2 flexlab info kernels    (what a machine without AVX-512 would run)");
}

/* Options of a file of weights behind the name. Returns the number of words before them, or minus the place of a word
 * that is none, or whose value is missing. */
static int take_options(struct settings *s, bool *verbose, bool *probe, bool *missing, int argc, char **argv) {
    const struct {
        const char *name;
        const char **value;
    } options[] = {{"--model", &s->network_model}, {"--weight-layout", &s->weight_layout}, {"--image", &s->image_size}};
    for (int i = 2; i < argc; i += 2) {
        size_t k = 0;
        if (!strcmp(argv[i], "--probe") || !strcmp(argv[i], "--verbose")) {
            *(argv[i][2] == 'p' ? probe : verbose) = true;
            i--;
            continue;
        }
        while (k < sizeof options / sizeof options[0] && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == sizeof options / sizeof options[0] || i + 1 == argc) {
            *missing = k < sizeof options / sizeof options[0];
            return -i;
        }
        *options[k].value = argv[i + 1];
    }
    return argc > 2 ? 2 : argc;
}

static bool is_table(const char *name) {
    for (int i = 0; info_table_name(i); i++)
        if (!strcmp(info_table_name(i), name))
            return true;
    return false;
}

int command_info(int argc, char **argv) {
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        help();
        return STATUS_OK;
    }
    struct settings s = {.command = COMMAND_EVAL};
    bool verbose = false, probe = false, missing = false;
    const int words = take_options(&s, &verbose, &probe, &missing, argc, argv);
    if (missing)
        return text_usage("%s: expected a value behind it", argv[-words]);
    if (words < 0 || (words > 1 && argv[1][0] == '-'))
        return text_usage("unexpected argument '%s'; info takes one name, of a table, a model or a file, or none; "
                          "beside a file --verbose, --probe and, for weights, --model NAME, --weight-layout NAME, "
                          "--image HxW",
                          argv[words < 0 ? -words : 1]);
    const tensor_format first = tensor_format_at(0);
    if (!first || !tensor_kernel_backend(first, "add")) /* FLEXLAB_ISA has an unknown value */
        return text_usage("%s", tensor_error());
    if (argc == 1)
        return print_overview();
    struct stat found;
    const bool file = strchr(argv[1], '/') || strchr(argv[1], '.') || !stat(argv[1], &found);
    const bool weights = s.network_model || s.weight_layout || s.image_size;
    if (!file && (verbose || weights))
        return text_usage("%s: only behind the file of a network; '%s' is none",
                          verbose ? "--verbose"
                                  : "--model, "
                                    "--weight-layout, --image",
                          argv[1]);
    if (probe && is_table(argv[1]))
        return text_usage("--probe: only behind the file of a network or a model; '%s' is a table", argv[1]);
    if (info_table(argv[1]))
        return STATUS_OK;
    return file ? network_info(argv[1], &s, verbose, probe) : info_model(argv[1], probe);
}
