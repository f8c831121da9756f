/* ours.c - flexlab as a contestant of the benchmark, and the machine's peaks. FLEXLAB_ISA and OMP_NUM_THREADS in the
 * environment choose instruction set and threads.
 *
 *     matmul FORMAT DATA M N K                  tensor_matmul, the whole call; DATA: gauss, uniform, 15bit
 *     conv FORMAT N H W C K R STRIDE PADDING PASSES   of f forward, d input gradient, w weight gradient
 *     convert FROM TO COUNT                     tensor_convert, or tensor_convert_at for a shared exponent
 *     step FORMAT BATCH                         one training step of ResNet-20
 *     transformer FORMAT BATCH                  one training step of gpt, 128 tokens a sequence, by AdamW
 *     peak ISA PRODUCTS                         chains of fused multiply-adds, this many products on each thread
 *     memcpy BYTES
 *
 * A FORMAT followed by :fast (bf16:fast) is that format in class fast, by whichever kernels it chooses here, one
 * followed by :accumulate=GPU that of class accumulate=GPU.
 *
 * ours memory WHAT FORMAT BATCH prints the bytes of that step, WHAT stored or planned, and ends.
 *
 * ours kernels FORMAT OPERATION prints the name of the kernel set that runs it, and ends. */
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include "peak.h"
#include "worker.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tensor *operands[6];
static int operand_count;

static tensor *add_operand(tensor_format format, int ndim, const int64_t *shape) {
    tensor *t = tensor_new(format, ndim, shape);
    return t ? operands[operand_count++] = t : NULL;
}

static bool load_normal(tensor *t, uint64_t seed) {
    const int64_t count = tensor_count(t);
    float *values = malloc((size_t)count * sizeof *values);
    bool done = false;
    if (values) {
        worker_normal(values, count, seed);
        done = !tensor_load_f32(t, values, count);
    }
    free(values);
    return done;
}

static tensor *normal_operand(tensor_format format, int ndim, const int64_t *shape, uint64_t seed) {
    tensor *t = add_operand(format, ndim, shape);
    return t && load_normal(t, seed) ? t : NULL;
}

static const char *failure(void) {
    return worker_skip("%s", tensor_error());
}

/* The format's name without ":fast" or another class, which sets the class of this thread: the one that prepares and
 * runs all work. */
static const char *without_class(const char *name) {
    static char kept[32];
    const char *class = strchr(name, ':');
    tensor_class wanted;
    if (!class || tensor_class_find(&wanted, class + 1) || tensor_set_class(wanted))
        return name;
    snprintf(kept, sizeof kept, "%.*s", (int)(class - name), name);
    return kept;
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

enum { MANTISSA_EXPONENT = 14 };

static bool load_matrix(tensor *t, const char *data, uint64_t seed) {
    if (!tensor_format_is_shared(tensor_format_of(t)))
        return load_normal(t, seed);
    const int narrower = 16 - tensor_format_bits(tensor_format_of(t));
    int16_t *m = tensor_data(t);
    if (!worker_mantissas(m, tensor_count(t), data, seed))
        return false;
    for (int64_t i = 0; narrower && i < tensor_count(t); i++)
        m[i] = (int16_t)(m[i] / (1 << narrower));
    return !tensor_declare_exponent(t, MANTISSA_EXPONENT - narrower);
}

static const char *prepare_matmul(tensor_format format, char **argv) {
    const int64_t m = atoll(argv[1]), n = atoll(argv[2]), k = atoll(argv[3]);
    tensor *a = add_operand(format, TENSOR_SHAPE(m, k)), *b = add_operand(format, TENSOR_SHAPE(k, n)),
           *y = add_operand(format, TENSOR_SHAPE(m, n));
    if (!a || !b || !y || !load_matrix(a, argv[0], 1) || !load_matrix(b, argv[0], 2))
        return failure();
    return tensor_matmul(y, a, b) ? failure() : NULL;
}

static void run_matmul(void) {
    tensor_matmul(operands[2], operands[0], operands[1]);
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

static tensor_window window;
static const char *passes;

static void run_conv(void) {
    tensor *x = operands[0], *w = operands[1], *y = operands[2], *dy = operands[3], *dx = operands[4],
           *dw = operands[5];
    if (strchr(passes, 'f'))
        tensor_conv2d(y, x, w, &window);
    if (strchr(passes, 'd'))
        tensor_conv2d_input_grad(dx, dy, w, &window);
    if (strchr(passes, 'w'))
        tensor_conv2d_weight_grad(dw, dy, x, &window);
}

static const char *prepare_conv(tensor_format format, char **argv) {
    static char kept[8];
    int64_t v[8];
    for (int i = 0; i < 8; i++)
        v[i] = atoll(argv[i]);
    if (v[6] < 1)
        return worker_skip("conv: stride %lld", (long long)v[6]);
    window = (tensor_window){TENSOR_SQUARE(0, (int)v[6], (int)v[7])};
    snprintf(kept, sizeof kept, "%s", argv[8]);
    passes = kept;
    const int64_t h = (v[1] + 2 * v[7] - v[5]) / v[6] + 1, w = (v[2] + 2 * v[7] - v[5]) / v[6] + 1;
    const int64_t image[4] = {v[0], v[1], v[2], v[3]}, filters[4] = {v[4], v[5], v[5], v[3]},
                  result[4] = {v[0], h, w, v[4]};
    if (!normal_operand(format, 4, image, 1) || !normal_operand(format, 4, filters, 2) ||
        !add_operand(format, 4, result) || !normal_operand(format, 4, result, 3) || !add_operand(format, 4, image) ||
        !add_operand(format, 4, filters))
        return failure();
    return tensor_conv2d(operands[2], operands[0], operands[1], &window) ? failure() : NULL;
}

/* --- conversion --------------------------------------------------------------------------------------------------- */

static const char *prepare_convert(tensor_format from, char **argv) {
    tensor_format to;
    const int64_t count = atoll(argv[1]);
    if (tensor_format_find(&to, argv[0]) || !normal_operand(from, 1, &count, 1) || !add_operand(to, 1, &count) ||
        tensor_convert(operands[1], operands[0]))
        return failure();
    return NULL;
}

/* Converts at the exponent that the first conversion found, as in training, in which autoflex knows it. */
static void run_convert(void) {
    if (tensor_format_is_shared(tensor_format_of(operands[1])))
        tensor_convert_at(operands[1], operands[0], tensor_exponent(operands[1]));
    else
        tensor_convert(operands[1], operands[0]);
}

/* --- training step ------------------------------------------------------------------------------------------------ */

enum { SIDE = 32, CHANNELS = 3, CLASSES = 10 };
static nn_graph *network;
static float *images;
static int32_t *labels;

static nn_graph *resnet20(const char *variant, int batch) {
    nn_graph *g = nn_graph_new(
        &(nn_config){.variant = variant, .batch = batch, .seed = 1, .momentum = 0.9f, .weight_decay = 1e-4f});
    if (g && nn_compile(g, nn_model(g, "resnet20", SIDE, SIDE, CHANNELS, CLASSES))) {
        nn_graph_free(g);
        g = NULL;
    }
    return g;
}

static void run_step(void) {
    double loss;
    int correct;
    nn_train_step(&loss, &correct, network, &(nn_batch){.images = images, .labels = labels}, 0.01f);
}

static const char *prepare_step(const char *variant, char **argv) {
    const int batch = atoi(argv[0]);
    double loss;
    int correct;
    if (!(network = resnet20(variant, batch)))
        return failure();
    const int64_t pixels = (int64_t)batch * SIDE * SIDE * CHANNELS;
    images = worker_memory((size_t)pixels * sizeof *images);
    labels = worker_memory((size_t)batch * sizeof *labels);
    worker_normal(images, pixels, 1);
    for (int i = 0; i < batch; i++)
        labels[i] = i % CLASSES;
    return nn_train_step(&loss, &correct, network, &(nn_batch){.images = images, .labels = labels}, 0.01f) ? failure()
                                                                                                           : NULL;
}

enum { LENGTH = 128, VOCABULARY = 256 };
static int32_t *tokens;

static void run_transformer(void) {
    double loss;
    int correct;
    nn_train_step(&loss, &correct, network, &(nn_batch){.tokens = tokens, .labels = labels}, 1e-3f);
}

/* Tokens from a linear congruential generator; the label of each token is the next one. */
static const char *prepare_transformer(const char *variant, char **argv) {
    const int batch = atoi(argv[0]);
    network = nn_graph_new(
        &(nn_config){.variant = variant, .batch = batch, .seed = 1, .optimiser = "adamw", .weight_decay = 0.1f});
    if (!network || nn_compile(network, nn_model_text(network, "gpt", LENGTH, VOCABULARY)))
        return failure();
    const int64_t count = (int64_t)batch * LENGTH;
    tokens = worker_memory((size_t)(count + 1) * sizeof *tokens);
    labels = tokens + 1;
    uint32_t state = 1;
    for (int64_t i = 0; i <= count; i++)
        tokens[i] = (int32_t)((state = state * 1664525 + 1013904223) >> 24);
    double loss;
    int correct;
    return nn_train_step(&loss, &correct, network, &(nn_batch){.tokens = tokens, .labels = labels}, 1e-3f) ? failure()
                                                                                                           : NULL;
}

static const char *report_memory(const char *what, const char *variant, int batch) {
    nn_graph *g = resnet20(variant, batch);
    if (!g)
        return failure();
    const bool stored = !strcmp(what, "stored");
    const int64_t bytes = nn_weight_bytes(g) + (stored ? nn_activation_bytes(g) : nn_arena_bytes(g));
    nn_graph_free(g);
    printf("%lld\n", (long long)bytes);
    return NULL;
}

static const char *report_kernels(const char *format_name, const char *operation) {
    tensor_format format;
    if (tensor_format_find(&format, without_class(format_name)))
        return failure();
    const char *row = tensor_kernel_backend(format, operation);
    if (!row)
        return worker_skip("unknown operation: %s", operation);
    puts(row);
    return NULL;
}

/* --- peaks -------------------------------------------------------------------------------------------------------- */

static void *from, *to;
static size_t copied;

static void run_peak(void) {
    peak_run(tensor_threads());
}

static void run_copy(void) {
    peak_copy(to, from, copied, tensor_threads());
}

static const char *prepare_copy(size_t bytes) {
    copied = bytes;
    from = worker_memory(bytes);
    to = worker_memory(bytes);
    memset(from, 1, bytes);
    return NULL;
}

/* --- dispatch ----------------------------------------------------------------------------------------------------- */

static void (*chosen)(void);

static void run(void) {
    chosen();
}

static const char *prepare(int argc, char **argv) {
    const char *work = argv[0];
    tensor_format format;
    if (!strcmp(work, "peak") && argc == 3) {
        chosen = run_peak;
        return peak_prepare(argv[1], atof(argv[2])) ? NULL : worker_skip("this machine has no %s", argv[1]);
    }
    if (!strcmp(work, "memcpy") && argc == 2) {
        chosen = run_copy;
        return prepare_copy((size_t)atoll(argv[1]));
    }
    const char *name = argc > 1 ? without_class(argv[1]) : "";
    if (!strcmp(work, "step") && argc == 3) {
        chosen = run_step;
        return prepare_step(name, argv + 2);
    }
    if (!strcmp(work, "transformer") && argc == 3) {
        chosen = run_transformer;
        return prepare_transformer(name, argv + 2);
    }
    if (argc < 2 || tensor_format_find(&format, name))
        return worker_skip("unknown work or format: %s %s", work, argc > 1 ? argv[1] : "");
    if (!strcmp(work, "matmul") && argc == 6) {
        chosen = run_matmul;
        return prepare_matmul(format, argv + 2);
    }
    if (!strcmp(work, "conv") && argc == 11) {
        chosen = run_conv;
        return prepare_conv(format, argv + 2);
    }
    if (!strcmp(work, "convert") && argc == 4) {
        chosen = run_convert;
        return prepare_convert(format, argv + 2);
    }
    return worker_skip("flexlab has no such work: %s with %d arguments", work, argc - 1);
}

int main(int argc, char **argv) {
    const bool memory = argc == 5 && !strcmp(argv[1], "memory"), kernels = argc == 4 && !strcmp(argv[1], "kernels");
    if (memory || kernels) {
        const char *reason = memory ? report_memory(argv[2], argv[3], atoi(argv[4])) : report_kernels(argv[2], argv[3]);
        if (reason)
            fprintf(stderr, "%s\n", reason);
        return reason != NULL;
    }
    return worker_serve(&(struct worker){prepare, run, NULL});
}
