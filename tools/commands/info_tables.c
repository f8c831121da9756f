/* info_tables.c - the contents of this build and the kernels of this machine: a table for each name. */
#include "commands/info.h"
#include "flexlab/flexlab.h"
#include "options/options.h"
#include "base/table.h"
#include "base/text.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct range {
    double largest, smallest; /* finite and positive */
};

/* Finds the range by the format itself: converts all non-negative words of one or two bytes to doubles. */
static bool range_of(tensor_format format, struct range *range) {
    size_t bytes = tensor_format_bytes(format);
    if (bytes > 2) {
        *range = (struct range){FLT_MAX, FLT_TRUE_MIN};
        return true;
    }
    int64_t words = bytes == 2 ? 1 << 15 : 1 << 7;
    tensor *t = tensor_new(format, TENSOR_SHAPE(words));
    double *values = text_alloc((size_t)words, sizeof *values);
    bool known = t != NULL;
    if (known) {
        for (int64_t i = 0; i < words; i++)
            if (bytes == 2)
                ((uint16_t *)tensor_data(t))[i] = (uint16_t)i;
            else
                ((uint8_t *)tensor_data(t))[i] = (uint8_t)i;
        known = tensor_store_f64(t, values, words) == TENSOR_OK;
    }
    *range = (struct range){0, INFINITY};
    for (int64_t i = 0; known && i < words; i++) {
        if (isfinite(values[i]) && values[i] > range->largest)
            range->largest = values[i];
        if (values[i] > 0 && values[i] < range->smallest)
            range->smallest = values[i];
    }
    const struct autoflex *a = known ? tensor_autoflex(t) : NULL;
    if (a) {
        range->largest = ldexp(range->largest, tensor_exponent(t) - a->e_min);
        range->smallest = ldexp(range->smallest, tensor_exponent(t) - a->e_max);
    }
    tensor_free(t);
    free(values);
    return known;
}

void info_formats(int indent) {
    struct table *t = table_new("lrrrll");
    const char *const heads[] = {"name", "bytes", "largest", "smallest > 0", "m * 2^-e", "predictor"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    tensor_format format;
    for (int i = 0; (format = tensor_format_at(i)); i++) {
        struct range range;
        bool known = range_of(format, &range);
        table_cell(t, "%s", tensor_format_name(format));
        table_cell(t, "%zu", tensor_format_bytes(format));
        table_cell(t, known ? "%.5g" : "-", range.largest);
        table_cell(t, known ? "%.5g" : "-", range.smallest);
        tensor *one = tensor_new(format, TENSOR_SHAPE(1));
        const struct autoflex *a = one ? tensor_autoflex(one) : NULL;
        if (a)
            table_cell(t, "e in %d ... %d", a->e_min, a->e_max);
        else
            table_cell(t, "-");
        table_cell(t, "%s", a ? autoflex_name(autoflex_predictor_of(a)) : "-");
        tensor_free(one);
    }
    table_print(t, stdout, indent, 0);
    table_free(t);
}

static void print_blocks(void) {
    struct table *t = table_new("lr");
    table_cell(t, "name");
    table_cell(t, "bits an element");
    for (int i = 0; tensor_block_format_at(i); i++) {
        double bits = 0;
        table_cell(t, "%s", tensor_block_format_at(i));
        const bool known = !tensor_block_format_bits(&bits, tensor_block_format_at(i));
        table_cell(t, known ? "%.5g" : "-", bits);
    }
    puts(
        "Block formats of the operands of products (--operands, the roles operands and gradient-operands of a policy)");
    table_print(t, stdout, 2, 0);
    table_free(t);
    puts("  and mx:ELEMENT[/BLOCK], hbfp:intN[/BLOCK], each with :floor, :ceil, :even or :rceil, :stochastic, "
         ":hadamard,\n"
         "  :square after it, and channel:ELEMENT (docs/block-formats.md)");
}

static void print_formats(void) {
    puts("Formats");
    info_formats(2);
    puts("  and flexN+E, dfpN: N (4 to 16) bits in place of 16, E (1 to 7) bits of exponent: flex12+5, flex8+5, dfp8");
    puts("  and floats eXmY: X (1 to 8) bits of exponent, Y of fraction, 16 in all at most: e4m3fn, e5m2, e3m4, e2m1;");
    puts("  suffix fn: NaN but no Inf; suffix sat: what is too large becomes the largest number");
    puts("  and tensor:eXmY: such floats under one exponent a tensor, element * 2^-e, predictor delayed:\n"
         "  tensor:e4m3fn, tensor:e5m2; tensor:intN is dfpN");
    puts("");
    print_blocks();
}

static void print_variants(void) {
    struct table *t = table_new("llll");
    table_cell(t, "name");
    table_cell(t, "format");
    table_cell(t, "weights");
    table_cell(t, "summary");
    const nn_variant *v;
    for (int i = 0; (v = nn_variant_at(i)); i++) {
        table_cell(t, "%s", v->name);
        table_cell(t, "%s", tensor_format_name(v->format));
        table_cell(t, "%s", v->wide ? "wide copy" : v->stochastic_weights ? "stochastic" : "plain");
        table_cell(t, "%s", v->summary);
    }
    puts("Variants, policies of one line (':nomaster' drops the wide copy, ':PREDICTOR' chooses the predictor)");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

static void print_policies(void) {
    struct table *t = table_new("ll");
    table_cell(t, "name");
    table_cell(t, "formats by layer and role");
    for (int i = 0; nn_policy_at(i); i++) {
        table_cell(t, "%s", nn_policy_at(i));
        table_cell(t, "%s", nn_policy_summary(i));
    }
    print_variants();
    puts("\nPresets, policies of several lines; --formats takes these, the variants, files and texts "
         "(docs/policies.md)");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

static void print_predictors(void) {
    struct table *t = table_new("ll");
    table_cell(t, "name");
    table_cell(t, "makes room for");
    for (int i = 0; autoflex_at(i); i++) {
        table_cell(t, "%s", autoflex_name(autoflex_at(i)));
        table_cell(t, "%s", autoflex_summary(autoflex_at(i)));
    }
    puts("Exponent predictors");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

static void print_models(void) {
    struct table *t = table_new("lrr");
    table_cell(t, "name");
    table_cell(t, "parameters");
    table_cell(t, "default --lr");
    for (int i = 0; options_model_name(i); i++) {
        const char *model = options_model_name(i);
        table_cell(t, "%s", model);
        table_take(t, info_parameters(model));
        table_cell(t, "%g", options_default_rate(model));
    }
    puts("Models (parameters for 32x32x3 images and 10 classes, of gpt and -char for texts as bytes; resnetD and\n"
         "resnetD-b exist for every D = 6n + 2, resnetD-bottleneck for D = 9n + 2, wrnD-K for D = 6n + 4 and K\n"
         "below 1000, mlpLxW for L layers with W hidden units, gptLxW for 1 to 48 layers L and every width W\n"
         "up to 2048 that is a multiple of 32)");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

static void print_data(void) {
    puts("Data (for --data)\n"
         "  synthetic[:train=N][,test=N][,seed=S]  generated 32x32 colour images of 10 classes (20000 and 4000)\n"
         "  cifar10:DIR  data_batch_1.bin ... data_batch_5.bin and test_batch.bin, the binary version of CIFAR-10\n"
         "  cifar100:DIR[,labels=fine|coarse]  train.bin and test.bin, the binary version of CIFAR-100\n"
         "  idx:DIR      train-images-idx3-ubyte and its three companions (MNIST, Fashion-MNIST), plain or .gz\n"
         "  npy:IMAGES,LABELS,TEST_IMAGES,TEST_LABELS[,classes=N]  arrays of NumPy: uint8 [N, H, W] or [N, H, W, C], "
         "integers [N]\n"
         "  npz:FILE[,TEST_FILE][,classes=N]  the same in an archive: x_train, y_train, x_test, y_test or "
         "train_images, ...\n"
         "  images:DIR[,resize=HEIGHTxWIDTH][,channels=1|2|3|4]  PNG and JPEG files DIR/train/CLASS/..., "
         "DIR/test/CLASS/...\n"
         "  text:FILE[,TEST_FILE][,unit=bytes|characters][,test=PERCENT]  a text, for models that read one; without "
         "TEST_FILE its\n               last 10 percent are the test split");
}

static void print_device(struct table *t, tensor_device *device) {
    char text[400];
    const bool known = !tensor_device_describe(device, text, sizeof text);
    table_cell(t, "%s", tensor_device_name(device));
    table_cell(t, "%s", known ? text : tensor_error());
}

/* Prints the devices, and why there is no GPU. */
static void print_devices(void) {
    struct table *t = table_new("ll");
    table_cell(t, "name");
    table_cell(t, "device");
    print_device(t, tensor_device_at(0));
    tensor_device *gpu;
    int count = 0;
    for (char name[16]; snprintf(name, sizeof name, "cuda:%d", count), (gpu = tensor_device_find(name)); count++)
        print_device(t, gpu);
    if (!count) {
        const char *reason = strstr(tensor_error(), "unavailable: ");
        table_cell(t, "cuda");
        table_cell(t, "%s", reason ? reason : tensor_error());
    }
    puts("Devices");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

/* Lists the kernels of class fast. */
static void print_fast_kernels(void) {
    int found = 0;
    puts("Kernels of class fast (tensor_set_class) on this machine");
    for (int f = 0; tensor_format_at(f); f++)
        for (int i = 0; tensor_op_at(i); i++) {
            const char *op = tensor_op_at(i), *exact = tensor_kernel_backend(tensor_format_at(f), op);
            tensor_set_class(TENSOR_FAST);
            const char *fast = tensor_kernel_backend(tensor_format_at(f), op);
            tensor_set_class(TENSOR_EXACT);
            if (exact && fast && strcmp(exact, fast) != 0) {
                printf("  %s.%s.%s\n", tensor_format_name(tensor_format_at(f)), op, fast);
                found++;
            }
        }
    if (!found)
        puts("  none: the processor has no fast products of bf16, or FLEXLAB_ISA caps it");
}

static void print_kernels(void) {
    enum { MAX_COLUMNS = 64 };
    tensor_format formats[MAX_COLUMNS];
    char alignment[MAX_COLUMNS + 2] = "l";
    int count = 0;
    while (count < MAX_COLUMNS && (formats[count] = tensor_format_at(count)))
        alignment[++count] = 'l';
    alignment[count + 1] = 0;
    struct table *t = table_new(alignment);
    table_cell(t, "operation");
    for (int f = 0; f < count; f++)
        table_cell(t, "%s", tensor_format_name(formats[f]));
    for (int i = 0; tensor_op_at(i); i++) {
        table_cell(t, "%s", tensor_op_at(i));
        for (int f = 0; f < count; f++) {
            const char *backend = tensor_kernel_backend(formats[f], tensor_op_at(i));
            table_cell(t, "%s", backend ? backend : "-");
        }
    }
    puts("Kernels that run on this machine");
    table_print(t, stdout, 2, 0);
    table_free(t);
}

static void print_operations(void) {
    const int width = output_columns() > 20 ? output_columns() : 100;
    char *names = text_names(tensor_op_at);
    int count = 0;
    while (tensor_op_at(count))
        count++;
    printf("%d operations, each in every format (docs/support.md says what they promise)\n", count);
    paragraph_print(names, stdout, width);
    free(names);
}

static void print_all_kernels(void) {
    print_kernels();
    putchar('\n');
    print_fast_kernels();
}

static const struct info_table {
    const char *name, *summary;
    void (*print)(void);
} tables[] = {
    {"formats", "number formats: bytes, ranges, shared exponents; blocks", print_formats},
    {"variants", "the policies of one line: fp32, fp16, flex16+5-sr, ...", print_variants},
    {"policies", "what --formats takes: the variants, and presets such as O1, O2:bf16", print_policies},
    {"predictors", "rules that choose a shared exponent (--predictor)", print_predictors},
    {"models", "networks by name, with their sizes (--model)", print_models},
    {"data", "data sets and their options (--data)", print_data},
    {"devices", "where it can run, or why not (--device)", print_devices},
    {"operations", "every operation of tensors", print_operations},
    {"kernels", "which kernel runs each operation of each format here", print_all_kernels},
};
enum { TABLES = sizeof tables / sizeof *tables };

const char *info_table_name(int i) {
    return i >= 0 && i < TABLES ? tables[i].name : NULL;
}

const char *info_table_summary(int i) {
    return i >= 0 && i < TABLES ? tables[i].summary : NULL;
}

const char *info_name(int i) {
    return i < TABLES ? info_table_name(i) : options_model_name(i - TABLES);
}

bool info_table(const char *name) {
    for (int i = 0; i < TABLES; i++)
        if (!strcmp(tables[i].name, name)) {
            tables[i].print();
            return true;
        }
    return false;
}
