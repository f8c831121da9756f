/* fuzz_network.c - the graph builder and one training step.
 *
 * Input: the configuration, then one call of the builder after the other, with any nodes, sizes and names; then whether
 * the last node is compiled as the logits. A call that fails returns -1 with a message; so do all that follow, and
 * nn_compile returns the first failure. A network that compiles can be trained: one step and an evaluation of small
 * networks succeed, unless labels or pixels are wrong, and then no weight has changed. Built again with the reference
 * kernels, the network has the same weights after the step. */
#define _GNU_SOURCE
#include "flexlab/nn.h"
#include "scratch.h"
#include <math.h>

enum {
    NODES = 24,
    BLOCK_LIMIT = 256 << 10,
    STEP_LIMIT = 512 << 20,
    WORK_LIMIT = 1 << 21,
    PIXELS = 1 << 16,
    LABELS = 64
};

static float images[PIXELS];
static int32_t labels[LABELS];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    limit_allocation(BLOCK_LIMIT);
    MUST(!tensor_set_threads(1), "%s", tensor_error());
    return 0;
}

/* --- building ----------------------------------------------------------------------------------------------------- */

static float take_fraction(struct input *in) {
    static const float some[] = {0, 0.9f, 0.5f, 0, 1, -0.1f, NAN, INFINITY, 1e-4f, 3e38f, 0.999999f, 1e-45f};
    return some[take_below(in, sizeof some / sizeof some[0])];
}

static nn_graph *new_graph(struct input *in) {
    static const char *const predictors[] = {NULL, NULL, NULL, "paper", "ngraph", "repeat", "amax", "none"};
    const int i = take_below(in, 16);
    const nn_variant *variant = nn_variant_at(i % 12);
    nn_config config = {.variant = variant ? variant->name : i == 15 ? "fp8" : i == 14 ? NULL : "fp32"};
    config.predictor = predictors[take_below(in, 8)];
    config.no_master = take_byte(in) & 1;
    const int batch = take_int(in);
    config.batch = batch > 0 && batch < 40 ? 1 + batch % 5 : batch;
    config.seed = take_byte(in);
    config.momentum = take_fraction(in);
    config.weight_decay = take_fraction(in);
    watch_failures();
    nn_graph *g = nn_graph_new(&config);
    must_tell("nn_graph_new", !g);
    const bool right = variant && config.batch >= 1 && config.momentum >= 0 && config.momentum < 1 &&
                       config.weight_decay >= 0 && isfinite(config.weight_decay);
    MUST(right || !g || (variant == NULL && i < 14), "a bad configuration was accepted");
    return g;
}

/* Names of layers: new ones, mostly. */
static const char *take_name(struct input *in, int number, char *text, size_t room) {
    static char longest[102];
    const uint8_t how = take_byte(in);
    if (how >= 250) {
        memset(longest, 'n', sizeof longest - 1);
        longest[how & 1 ? 100 : 101] = 0;
        return longest;
    }
    if (how >= 248)
        return how & 1 ? "" : NULL;
    snprintf(text, room, how >= 240 ? "input" : how >= 232 ? "%%s%d" : "l%d", number - (how >= 228));
    return text;
}

static nn_node take_node(struct input *in, nn_node last) {
    const uint8_t how = take_byte(in);
    return how < 160 ? last : how < 250 ? last - (how - 160) % 6 : take_int(in);
}

/* Usually one of the `usual` numbers from `low` on, sometimes any number. */
static int take_from(struct input *in, int low, int usual) {
    const uint8_t how = take_byte(in);
    return how < 160 ? low + how % usual : take_int(in);
}

/* A size that often fits. */
static int take_size(struct input *in, int usual) {
    return take_from(in, 1, usual);
}

static double take_real(struct input *in) {
    static const double some[] = {0, 1e-5, 0.75, 0.5, 1, 2, -1, NAN, INFINITY, 1e300, 1e-300, 0.1};
    return some[take_below(in, sizeof some / sizeof some[0])];
}

/* Adds a layer of the kinds that were added later. */
static nn_node add_image_layer(struct input *in, nn_graph *g, const char *name, nn_node x, int kind, nn_node last) {
    const nn_window how = {.window = take_size(in, 3), .stride = take_size(in, 2), .padding = take_from(in, 0, 2)};
    switch (kind % 12) {
    case 0:
        return nn_avgpool2d(g, name, x, how, take_byte(in) & 1);
    case 1:
        return nn_avgpool_adaptive(g, name, x, how.window, how.stride);
    case 2: {
        const float alpha = (float)take_real(in), beta = (float)take_real(in);
        return nn_lrn(g, name, x, how.window, alpha, beta, (float)take_real(in));
    }
    case 3:
        return nn_groupnorm(g, name, x, how.window, take_real(in));
    case 4:
        return nn_dropout(g, name, x, take_fraction(in));
    case 5:
        return nn_add(g, name, x, take_node(in, last), false);
    case 6:
        return nn_bias(g, name, x, take_byte(in) & 1);
    case 7: {
        const int filters = take_size(in, 6);
        const nn_conv2d_options after = {
            .stride = how.stride, .padding = how.padding, .bias_after = true, .relu = take_byte(in) & 1};
        return nn_conv2d(g, name, x, filters, how.window, &after);
    }
    case 8: {
        nn_batchnorm_options settings = {0};
        settings.epsilon = take_real(in);
        settings.momentum = take_real(in);
        settings.relu = take_byte(in) & 1;
        return nn_batchnorm(g, name, x, &settings);
    }
    case 9:
        return nn_shortcut_b(g, name, x, how.window, how.stride);
    case 10:
        return nn_bottleneck(g, name, x, how.window, how.stride);
    default:
        return nn_depthwise_separable(g, name, x, how.window, how.stride);
    }
}

static nn_node add_layer(struct input *in, nn_graph *g, nn_node last, int number) {
    static const char *const models[] = {"mlp2", "cnn6", "resnet8", "resnet9", "resnet", NULL, "", "resnet99999"};
    char text[32];
    const int kind = take_below(in, 14);
    const char *name = take_name(in, number, text, sizeof text);
    const nn_node x = take_node(in, last);
    switch (kind) {
    case 0: {
        const int height = take_size(in, 6), width = take_size(in, 6);
        return nn_input(g, height, width, take_size(in, 4));
    }
    case 1: {
        const int filters = take_size(in, 6), kernel = take_size(in, 3), stride = take_size(in, 2);
        return nn_conv2d(g, name, x, filters, kernel,
                         &(nn_conv2d_options){.stride = stride, .padding = take_from(in, 0, 2)});
    }
    case 2: {
        const int filters = take_size(in, 8);
        const int kernel = take_size(in, 3);
        nn_conv2d_options how = {0};
        how.stride = take_size(in, 2);
        how.padding = take_from(in, 0, 3);
        how.dilation = take_from(in, 0, 3);
        how.groups = take_from(in, 0, 4);
        return nn_conv2d(g, name, x, filters, kernel, &how);
    }
    case 3:
        return nn_batchnorm(g, name, x, &(nn_batchnorm_options){.relu = take_byte(in) & 1});
    case 4:
        return nn_batchnorm_add_relu(g, name, x, take_node(in, last), NULL);
    case 5:
        return nn_linear(g, name, x, take_size(in, 6), false);
    case 6:
        return nn_linear(g, name, x, take_size(in, 9), true);
    case 7:
        return nn_relu(g, name, x);
    case 8:
        return nn_add(g, name, x, take_node(in, last), true);
    case 9: {
        const int window = take_size(in, 3);
        return nn_maxpool2d(g, name, x, window, &(nn_pool2d_options){.stride = take_size(in, 3)});
    }
    case 10:
        return nn_avgpool_global(g, name, x);
    case 11: {
        const int filters = take_size(in, 8);
        return nn_shortcut_a(g, name, x, filters, take_size(in, 3));
    }
    case 12: {
        const char *model = models[take_below(in, 8)];
        const int height = take_size(in, 8), width = take_size(in, 8), channels = take_size(in, 4);
        return nn_model(g, model, height, width, channels, take_size(in, 5));
    }
    default: {
        const uint8_t how = take_byte(in);
        return how < 160 ? nn_linear(g, name, x, 2 + how % 5, false) : add_image_layer(in, g, name, x, how - 160, last);
    }
    }
}

/* Runs all calls of the input. Returns the last node, or -1 after a failure, with its message. */
static nn_node build(struct input *in, nn_graph *g, char *first_message, size_t room) {
    nn_node last = -1;
    bool failed = false;
    first_message[0] = 0;
    const int layers = 1 + take_below(in, NODES);
    for (int i = 0; i < layers; i++) {
        watch_failures();
        nn_node node;
        if (i || take_byte(in) >= 250) {
            node = add_layer(in, g, last, i);
        } else {
            const int height = 1 + take_below(in, 8);
            node = nn_input(g, height, 5, 1 + take_below(in, 3));
        }
        must_tell("a call of the builder", node < 0);
        MUST(!failed || node < 0, "node %d after a failure", node);
        if (node < 0 && !failed)
            snprintf(first_message, room, "%s", tensor_error());
        failed = failed || node < 0;
        MUST(failed || node > last, "node %d after node %d", node, last);
        last = node;
    }
    return last;
}

/* --- training ----------------------------------------------------------------------------------------------------- */

/* The input of the graph, the first activation that is listed. */
static const tensor *input_tensor(const nn_graph *g) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, "input"))
            return nn_tensor_at(g, i).t;
    return NULL;
}

/* Whether a step needs few multiplications, by an upper estimate. */
static bool is_small(const nn_graph *g, int batch) {
    double activations = 0, weights = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (!strcmp(info.role, "activation"))
            activations += (double)tensor_count(info.t);
        else if (!strcmp(info.role, "weight"))
            weights += (double)tensor_count(info.t);
    }
    return activations * weights < WORK_LIMIT && tensor_count(input_tensor(g)) <= PIXELS && batch <= LABELS;
}

static uint64_t weights_hash(const nn_graph *g) {
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (strcmp(info.role, "weight"))
            continue;
        const int64_t count = tensor_count(info.t);
        double *values = malloc((size_t)count * sizeof *values);
        MUST(values && !tensor_store_wide_f64(info.t, values, count), "%s", tensor_error());
        for (int64_t k = 0; k < count; k++) {
            uint64_t word = UINT64_MAX; /* all NaNs count as one word */
            if (values[k] == values[k])
                memcpy(&word, &values[k], sizeof word);
            hash = (hash ^ word) * 1099511628211u;
        }
        free(values);
    }
    return hash;
}

static void make_batch(struct input *in, const tensor *x) {
    uint64_t seed = take_byte(in);
    const uint8_t wrong = take_byte(in);
    const int scale = take_below(in, 60) - 30;
    for (int64_t i = 0; i < tensor_count(x); i++)
        images[i] = (float)ldexp((double)(int64_t)next_random(&seed), scale - 63);
    for (int i = 0; i < LABELS; i++)
        labels[i] = (int32_t)(next_random(&seed) % 2);
    if (wrong >= 250)
        labels[0] = wrong & 1 ? -1 : INT_MAX;
    else if (wrong >= 240)
        images[wrong % tensor_count(x)] = wrong & 1 ? NAN : INFINITY;
}

/* One step and an evaluation; the hash of the weights afterwards. */
static uint64_t train(struct input in, nn_graph *g) {
    const tensor *x = input_tensor(g);
    MUST(x, "there is no input among %d tensors", nn_tensor_count(g));
    make_batch(&in, x);
    const bool right_labels = labels[0] == 0 || labels[0] == 1;
    bool finite = true;
    for (int64_t i = 0; i < tensor_count(x); i++)
        finite = finite && isfinite(images[i]);
    const float rate = take_fraction(&in);
    const uint64_t before = weights_hash(g);
    double loss = -1;
    int correct = -1;
    watch_failures();
    const tensor_status status =
        nn_train_step(&loss, &correct, g, &(nn_batch){.images = images, .labels = labels}, rate);
    must_tell_status("nn_train_step", status);
    const bool right =
        right_labels && rate >= 0 && isfinite(rate) && (finite || !tensor_format_is_shared(tensor_format_of(x)));
    MUST(!status == right, "nn_train_step: %s", status ? tensor_error() : "bad arguments were accepted");
    MUST(!status || (loss == -1 && correct == -1), "a failed step gave a loss");
    MUST(!status || weights_hash(g) == before, "a failed step changed weights");
    const int batch = (int)tensor_dim(x, 0), count = take_below(&in, 8) ? 1 + take_below(&in, batch) : take_int(&in);
    int32_t predicted[LABELS];
    const uint64_t trained = weights_hash(g);
    watch_failures();
    const tensor_status evaluated =
        nn_evaluate(&loss, predicted, g, &(nn_batch){.images = images, .labels = labels, .count = count});
    must_tell_status("nn_evaluate", evaluated);
    MUST(evaluated || (count >= 0 && count <= batch), "%d of %d images were evaluated", count, batch);
    MUST(weights_hash(g) == trained, "an evaluation changed weights");
    return trained;
}

/* Builds, compiles and runs a network. Returns a hash of its weights at the end, 0 after a failure. */
static uint64_t run(struct input in, const char *backend) {
    MUST(!tensor_set_backend(backend), "%s", tensor_error());
    nn_graph *g = new_graph(&in);
    if (!g)
        return 0;
    char first_message[400];
    uint64_t hash = 0;
    const nn_node last = build(&in, g, first_message, sizeof first_message);
    const nn_node logits = take_byte(&in) >= 240 ? take_int(&in) : last;
    watch_failures();
    const tensor_status status = nn_compile(g, logits);
    must_tell_status("nn_compile", status);
    MUST(!first_message[0] || (status && !strcmp(tensor_error(), first_message)),
         "the first failure was '%s', nn_compile: %s", first_message, tensor_error());
    MUST(!status == (nn_tensor_count(g) > 0), "%d tensors after %s", nn_tensor_count(g), tensor_status_name(status));
    if (status) {
        watch_failures();
        must_tell_status("nn_train_step",
                         nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f));
        MUST(failure_count, "a network that did not compile was trained");
    } else if (is_small(g, (int)tensor_dim(input_tensor(g), 0))) {
        allocation_limit = STEP_LIMIT; /* kernels need more than the tensors */
        hash = train(in, g);
        allocation_limit = BLOCK_LIMIT;
        MUST(nn_arena_bytes(g) > 0 && nn_parameter_count(g) > 0, "%lld bytes, %lld parameters",
             (long long)nn_arena_bytes(g), (long long)nn_parameter_count(g));
    }
    nn_graph_free(g);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t best = run(input_of(data, size), NULL), reference = run(input_of(data, size), "ref");
    MUST(best == reference, "the weights differ from those of the reference kernels");
    return 0;
}
