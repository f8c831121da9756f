/* Options at and beyond the ends of their ranges, through every function that takes a whole number: each is refused
 * immediately, with a message, or the layer works at the first step. Intended to run under UBSan as well: no arithmetic
 * on them may overflow, and no large allocation may depend on them. */
#include "check.h"
#include "square.h"
#include "flexlab/tensor_blocks.h"
#include "core/base/memory.h"
#include "flexlab/nn.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int extremes[] = {INT_MIN, -256,        -1,      0,   1,          2,       3,
                               4,       254,         255,     256, 1023,       1 << 20, (1 << 20) + 1,
                               1 << 30, INT_MAX - 1, INT_MAX, 7,   INT_MIN + 1};
enum { EXTREMES = sizeof extremes / sizeof extremes[0], BATCH = 2, HEIGHT = 5, WIDTH = 7, CHANNELS = 4 };

static uint64_t seed = 20240917;

static int any(void) {
    const uint64_t r = check_random(&seed);
    return r % 3 ? extremes[r / 3 % EXTREMES] : (int)(r / 3 % 6);
}

/* Mostly small numbers, so that one wrong option among right ones occurs often. */
static int some(int ordinary) {
    return check_random(&seed) % 4 ? ordinary : any();
}

static unsigned long largest;

static void *allocate(unsigned long size, unsigned long alignment) {
    void *block;
    largest = size > largest ? size : largest;
    return size < 1ul << 32 && !posix_memalign(&block, alignment, size) ? block : NULL;
}

enum kind { CONV, CONV_WINDOW, MAXPOOL, SHORTCUT, LINEAR, LINEAR_RELU, KINDS };
static const char *const kinds[KINDS] = {"conv2d", "conv2d_window", "maxpool2d", "shortcut_a", "linear", "linear_relu"};

struct options {
    int outputs, window, stride, padding, dilation, groups;
};

static nn_node add(nn_graph *g, enum kind kind, nn_node x, struct options o) {
    switch (kind) {
    case CONV:
        return nn_conv2d(g, "layer", x, o.outputs, o.window,
                         &(nn_conv2d_options){.stride = o.stride, .padding = o.padding});
    case CONV_WINDOW:
        return nn_conv2d(
            g, "layer", x, o.outputs, o.window,
            &(nn_conv2d_options){.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
    case MAXPOOL:
        return nn_maxpool2d(g, "layer", x, o.window, &(nn_pool2d_options){.stride = o.stride});
    case SHORTCUT:
        return nn_shortcut_a(g, "layer", x, o.outputs, o.stride);
    case LINEAR:
        return nn_linear(g, "layer", x, o.outputs, false);
    default:
        return nn_linear(g, "layer", x, o.outputs, true);
    }
}

static void say(char *text, size_t size, enum kind kind, struct options o) {
    snprintf(text, size, "%s outputs %d window %d stride %d padding %d dilation %d groups %d", kinds[kind], o.outputs,
             o.window, o.stride, o.padding, o.dilation, o.groups);
}

/* A small network that compiles must also run. */
static void step(nn_graph *g, nn_node x, const char *what) {
    static float images[BATCH * HEIGHT * WIDTH * CHANNELS];
    static const int32_t labels[BATCH] = {0, 1};
    x = nn_linear(g, "last", x, 2, false);
    double loss;
    tensor_status status = nn_compile(g, x);
    CHECK(!status, "%s: built, but: %s", what, tensor_error());
    if (!status)
        CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f),
              "%s: built, but: %s", what, tensor_error());
}

static bool try_layer(enum kind kind, struct options o) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = BATCH, .seed = 1});
    char what[200];
    say(what, sizeof what, kind, o);
    nn_node x = nn_input(g, HEIGHT, WIDTH, CHANNELS);
    largest = 0;
    nn_node layer = add(g, kind, x, o);
    CHECK(largest < 1 << 20, "%s: %lu bytes asked for", what, largest);
    if (layer < 0) {
        const tensor_status status = tensor_error_status();
        CHECK((status == TENSOR_E_ARGUMENT || status == TENSOR_E_SHAPE) && strstr(tensor_error(), "layer"), "%s: %d %s",
              what, (int)status, tensor_error());
    }
    bool small = layer >= 0 && (kind == MAXPOOL || o.outputs < 1000);
    static int large; /* networks with windows or images of some 250 * 250: one in 16 is run, or each */
    if (small && (o.window > 100 || o.padding > 100) && !getenv("FLEXLAB_TEST_EVERY"))
        small = large++ % 16 == 0;
    if (small)
        step(g, layer, what);
    nn_graph_free(g);
    return small;
}

static void layers(void) {
    int ran = 0;
    for (int i = 0; i < 2000; i++)
        ran += try_layer((enum kind)(check_random(&seed) % KINDS),
                         (struct options){some(8), some(3), some(1), some(1), some(1), some(1)});
    CHECK(ran > 300, "only %d layers ran", ran);
    printf("%d layers ran\n", ran);
    /* each option alone, at every value */
    for (int kind = 0; kind < KINDS; kind++)
        for (int k = 0; k < 6; k++)
            for (int i = 0; i < EXTREMES; i++) {
                int o[6] = {8, 3, 1, 1, 1, 1};
                o[k] = extremes[i];
                try_layer((enum kind)kind, (struct options){o[0], o[1], o[2], o[3], o[4], o[5]});
            }
}

/* Whole networks on images of any size: only sizes are computed, nothing is compiled. */
static void sizes(void) {
    for (int i = 0; i < 1000; i++) {
        const int batch = some(2);
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "bf16", .batch = batch, .seed = 1});
        CHECK(!g == (batch < 1), "batch %d: %s", batch, tensor_error());
        largest = 0;
        nn_node x = nn_input(g, some(HEIGHT), some(WIDTH), some(CHANNELS));
        x = nn_conv2d(g, "conv", x, some(8), some(3), &(nn_conv2d_options){.stride = some(1), .padding = some(1)});
        nn_node y = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
        y = nn_add(g, "sum", x, y, true);
        y = nn_maxpool2d(g, "pool", y, some(2), &(nn_pool2d_options){.stride = some(2)});
        y = nn_shortcut_a(g, "shortcut", y, some(16), some(2));
        y = check_random(&seed) % 2 ? nn_avgpool_global(g, "mean", y) : y;
        y = nn_linear(g, "fc1", y, some(8), true);
        y = nn_linear(g, "fc2", y, some(8), false);
        CHECK(largest < 1 << 20, "%lu bytes asked for while building", largest);
        CHECK(y >= 0 || *tensor_error(), "no message");
        nn_graph_free(g);
        g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = some(2)});
        nn_model(g, "resnet8", some(HEIGHT), some(WIDTH), some(CHANNELS), some(10));
        nn_graph_free(g);
    }
}

/* The operations themselves, on small images, succeed or are refused. */
static void operations(void) {
    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(BATCH, HEIGHT, WIDTH, CHANNELS)),
           *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(8, 3, 3, CHANNELS)),
           *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(BATCH, HEIGHT, WIDTH, 8)),
           *p = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(BATCH, HEIGHT, WIDTH, CHANNELS));
    int done = 0;
    for (int i = 0; i < 5000; i++) {
        const struct square square = {some(3), some(1), some(1), some(1), some(1)};
        const tensor_window *how = SQUARE(square), *steps = STEPS(square);
        const tensor_status status[] = {tensor_conv2d(y, x, w, steps),
                                        tensor_conv2d_input_grad(x, y, w, steps),
                                        tensor_conv2d_weight_grad(w, y, x, steps),
                                        tensor_maxpool2d(p, x, how),
                                        tensor_maxpool2d_grad(x, p, x, how),
                                        tensor_shortcut_a(p, x, square.stride),
                                        tensor_shortcut_a_grad(x, p, square.stride)};
        for (int k = 0; k < 7; k++) {
            CHECK(!status[k] || status[k] == TENSOR_E_ARGUMENT || status[k] == TENSOR_E_SHAPE, "operation %d: %d", k,
                  (int)status[k]);
            done += !status[k];
        }
    }
    CHECK(done > 500, "only %d were done", done);
    tensor *all[] = {x, w, y, p};
    for (int i = 0; i < 4; i++)
        tensor_free(all[i]);
}

/* A graph with only an input, or not even that, is refused, whatever the logits and the loss. */
static void without_layers(void) {
    int refused_for_it = 0; /* an input that the loss would take */
    for (int loss = 0; nn_loss_name_at(loss); loss++)
        for (int kind = 0; kind < 6; kind++)
            for (int e = 0; e < EXTREMES; e++) {
                nn_graph *g = nn_graph_new(&(nn_config){
                    .variant = "flex16+5", .batch = 2, .loss = nn_loss_name_at(loss), .input_gradient = kind % 2});
                if (kind / 2)
                    CHECK((kind / 2 == 1 ? nn_input(g, 1, 1, 2) : nn_tokens(g, 3, 4)) >= 0, "%s", tensor_error());
                CHECK(nn_compile(g, extremes[e]) != TENSOR_OK &&
                          strstr(tensor_error(), kind < 2      ? "neither an input nor a layer"
                                                 : extremes[e] ? "expected 0 ... 0"
                                                 : kind < 4    ? "input"
                                                               : "tokens"),
                      "%s, kind %d, logits %d: %s", nn_loss_name_at(loss), kind, extremes[e], tensor_error());
                refused_for_it += strstr(tensor_error(), "no layer but the input") != NULL;
                nn_graph_free(g);
            }
    CHECK(refused_for_it > 0, "no input alone was refused for want of layers");
}

/* Bounds in the wrong order, or that are NaN, are refused. */
static void bounds(void) {
    static const struct {
        float low, high;
        const char *text;
    } wrong[] = {{2, 1, "clamped to 2 ... 1"}, {NAN, 1, "clamped to nan ... 1"}, {-1, NAN, "clamped to -1 ... nan"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 2});
        const nn_node x = nn_input(g, 2, 2, 2);
        CHECK(nn_clamp(g, "clamp", x, wrong[i].low, wrong[i].high) < 0 && strstr(tensor_error(), wrong[i].text), "%s",
              tensor_error());
        nn_graph_free(g);
    }
}

/* Lists and counts at the ends of an int. */
static void lists(void) {
    for (int e = 0; e < EXTREMES; e++) {
        const int i = extremes[e];
        if (i >= 0 && i < 255)
            continue;
        CHECK(!nn_variant_at(i) && !nn_policy_at(i) && !nn_policy_summary(i) && !nn_policy_text(i) &&
                  !nn_loss_name_at(i) && !nn_optimiser_at(i) && !nn_activation_at(i) && !nn_model_at(i) &&
                  !nn_text_model_at(i) && !nn_role_name_at(i) && !tensor_op_at(i) && !tensor_format_at(i) &&
                  !tensor_device_at(i) && !autoflex_at(i),
              "%d is listed", i);
    }
}

int main(void) {
    without_layers();
    bounds();
    lists();
    tensor_set_allocator(allocate, free);
    CHECK(!tensor_set_threads(1), "%s", tensor_error());
    layers();
    sizes();
    operations();
    return check_summary();
}
