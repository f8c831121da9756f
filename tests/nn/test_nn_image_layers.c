/* Layers of image networks: dropout in training and evaluation, its draws and its gradient; effects of settings of
 * normalisation on results and on the state; shapes and errors of layers and blocks. */
#include "check.h"
#include "nn/compile/nn_compile.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include "philox_witness.h"
#include <math.h>
#include <string.h>

enum { BATCH = 4, SIZE = 6, CHANNELS = 3, CLASSES = 4, MOST = 4096 };

static float images[BATCH * SIZE * SIZE * CHANNELS];
static int32_t labels[BATCH];

static void new_batch(uint64_t seed) {
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
}

static nn_graph *new_graph(const char *variant) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 11, .momentum = 0.9f});
    CHECK(g != NULL, "%s", tensor_error());
    return g;
}

static nn_graph *compiled(nn_graph *g, nn_node logits) {
    CHECK(!nn_compile(g, logits), "%s", tensor_error());
    return g;
}

static nn_graph *dropping(const char *variant, float p) {
    nn_graph *g = new_graph(variant);
    nn_node x = nn_conv2d(g, "conv", nn_input(g, SIZE, SIZE, CHANNELS), 5, 3, &(nn_conv2d_options){.padding = 1});
    if (p >= 0)
        x = nn_dropout(g, "drop", x, p);
    return compiled(g, nn_linear(g, "fc", x, CLASSES, false));
}

/* --- what a step writes: copies of tensors by name ---------------------------------------------------------------- */

struct seen {
    const char *name;
    double v[MOST];
    int64_t n;
};

static struct seen seen[4];

static void look(const nn_tensor_info *info, void *context) {
    (void)context;
    for (int i = 0; i < 4; i++)
        if (seen[i].name && !strcmp(seen[i].name, info->name)) {
            seen[i].n = tensor_count(info->t);
            CHECK(!tensor_store_f64(info->t, seen[i].v, seen[i].n), "%s", tensor_error());
        }
}

static void step(nn_graph *g, float rate) {
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g) && !nn_update(g, rate),
          "%s", tensor_error());
}

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* The definition in nn.h, with the generator of the tests. */
static bool dropped(uint64_t steps, int64_t i, float p) {
    const double counter = (double)steps;
    uint64_t bits;
    memcpy(&bits, &counter, sizeof bits);
    return (double)witness_draw(nn_name_key(11, "drop"), bits, i) < floor((double)p * 0x1p32);
}

static void check_dropout(const char *variant) {
    const float p = 0.375f;
    nn_graph *g = dropping(variant, p);
    seen[0].name = "conv";
    seen[1].name = "drop";
    seen[2].name = "fc.flatten.grad";
    seen[3].name = "conv.grad";
    CHECK(!nn_watch(g, look, NULL), "%s", tensor_error());
    for (uint64_t s = 0; s < 3; s++) {
        new_batch(s);
        step(g, 0.05f);
        int64_t zeros = 0;
        for (int64_t i = 0; i < seen[0].n; i++) {
            const bool out = dropped(s, i, p);
            zeros += out;
            /* 1 / (1 - p) is 1.6: with the roundings of a format of 8 bits, and of small numbers under one exponent */
            for (int k = 0; k < 4; k += 2) {
                const double from = seen[k == 0 ? 0 : 2].v[i], to = seen[k == 0 ? 1 : 3].v[i];
                const double want = out ? 0 : 1.6 * from;
                CHECK(fabs(to - want) <= fabs(want) * 0x1p-8 + (k ? 2e-5 : 2e-3), "%s step %d %s %lld: %g of %g, %s",
                      variant, (int)s, k ? "gradient" : "value", (long long)i, to, from, out ? "dropped" : "kept");
            }
        }
        CHECK(zeros > seen[0].n / 5 && zeros < seen[0].n / 2, "%s: %lld of %lld dropped", variant, (long long)zeros,
              (long long)seen[0].n);
    }
    CHECK(!nn_watch(g, NULL, NULL), "%s", tensor_error());
    memset(seen, 0, sizeof seen);
    nn_graph_free(g);
}

/* A repeated forward pass makes the same draws; the next step makes new ones. */
static void check_repeats(void) {
    nn_graph *g = dropping("flex16+5", 0.5f);
    double loss[4];
    new_batch(7);
    for (int i = 0; i < 4; i++) {
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_loss(&loss[i], NULL, g), "%s",
              tensor_error());
        if (i == 2)
            CHECK(!nn_backward(g) && !nn_update(g, 0), "%s", tensor_error());
    }
    CHECK(loss[1] == loss[2] && loss[2] != loss[3], "losses %a %a %a %a", loss[0], loss[1], loss[2], loss[3]);
    nn_graph_free(g);
}

/* In evaluation the layer does nothing: the logits are those of the network without it. */
static void check_evaluation(const char *variant) {
    nn_graph *with = dropping(variant, 0.5f), *without = dropping(variant, -1);
    double a[BATCH * CLASSES], b[BATCH * CLASSES];
    new_batch(3);
    CHECK(!nn_predict(a, with, &(nn_batch){.images = images, .count = BATCH}) &&
              !nn_predict(b, without, &(nn_batch){.images = images, .count = BATCH}),
          "%s", tensor_error());
    for (int i = 0; i < BATCH * CLASSES; i++)
        CHECK(a[i] == b[i], "%s: logit %d is %a, without dropout %a", variant, i, a[i], b[i]);
    nn_graph_free(with);
    nn_graph_free(without);
}

/* A state that is loaded into another network brings the number of the step with it. */
static void check_state(void) {
    nn_graph *a = dropping("dfp16", 0.5f), *b = dropping("dfp16", 0.5f);
    static unsigned char state[2][1 << 18];
    for (uint64_t s = 0; s < 6; s++) {
        new_batch(s);
        step(a, 0.05f);
        if (s == 2) {
            CHECK(nn_state_bytes(a) <= sizeof state[0] && !nn_state_save(state[0], nn_state_bytes(a), a) &&
                      !nn_state_restore(b, state[0], nn_state_bytes(b)),
                  "%s", tensor_error());
        } else if (s > 2) {
            step(b, 0.05f);
        }
    }
    const size_t bytes = nn_state_bytes(a);
    CHECK(!nn_state_save(state[0], bytes, a) && !nn_state_save(state[1], bytes, b), "%s", tensor_error());
    CHECK(!memcmp(state[0], state[1], bytes), "a resumed training goes another way");
    nn_graph_free(a);
    nn_graph_free(b);
}

/* The gradient by the weight before the layer, by differences of forward passes of one step. */
static void check_differences(void) {
    nn_graph *g = dropping("fp32", 0.5f);
    new_batch(5);
    tensor *w = NULL, *dw = NULL;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        if (!strcmp(nn_tensor_at(g, i).name, "conv.weight"))
            w = nn_tensor_at(g, i).t;
        if (!strcmp(nn_tensor_at(g, i).name, "conv.weight.grad"))
            dw = nn_tensor_at(g, i).t;
    }
    double values[MOST], gradient[MOST];
    const int64_t n = tensor_count(w);
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g) &&
              !tensor_store_f64(w, values, n) && !tensor_store_f64(dw, gradient, n),
          "%s", tensor_error());
    for (int64_t i = 0; i < n; i += 7) {
        const double h = 0x1p-7, kept = values[i];
        double loss[2];
        for (int side = 0; side < 2; side++) {
            values[i] = kept + (side ? h : -h);
            CHECK(!tensor_load_f64(w, values, n) && !nn_forward(g, &(nn_batch){.images = images, .labels = labels}) &&
                      !nn_loss(&loss[side], NULL, g),
                  "%s", tensor_error());
        }
        values[i] = kept;
        const double slope = (loss[1] - loss[0]) / (2 * h);
        /* binary32 losses of about 1.5, and h^2 / 6 times a third derivative of softmax with logits that change by less
         * than 1 */
        CHECK(fabs(slope - gradient[i]) <= 4 * 0x1p-24 * 2.5 / h + h * h, "weight %lld: slope %g, gradient %g",
              (long long)i, slope, gradient[i]);
    }
    nn_graph_free(g);
}

/* --- settings of batch normalisation ------------------------------------------------------------------------------ */

static nn_graph *normalised(const nn_batchnorm_options *how, bool plain) {
    nn_graph *g = new_graph("fp32");
    nn_node x = nn_conv2d(g, "conv", nn_input(g, SIZE, SIZE, CHANNELS), 5, 3, &(nn_conv2d_options){.padding = 1});
    x = plain ? nn_batchnorm(g, "bn", x, NULL) : nn_batchnorm(g, "bn", x, how);
    return compiled(g, nn_linear(g, "fc", x, CLASSES, false));
}

static void check_settings(void) {
    const nn_batchnorm_options how = {.epsilon = 0.25, .momentum = 0.5};
    nn_graph *g = normalised(&how, false);
    new_batch(1);
    seen[0].name = "conv";
    seen[1].name = "bn";
    CHECK(!nn_watch(g, look, NULL), "%s", tensor_error());
    step(g, 0);
    const struct fl_node *bn = fl_node_of(g, 2);
    double mean[5], variance[5];
    CHECK(!strcmp(bn->state[2].suffix, "running_mean") && !tensor_store_f64(bn->state[2].t, mean, 5) &&
              !tensor_store_f64(bn->state[3].t, variance, 5),
          "%s", tensor_error());
    for (int c = 0; c < 5; c++) {
        double sum = 0, squares = 0;
        const int64_t n = seen[0].n / 5;
        for (int64_t i = 0; i < n; i++)
            sum += seen[0].v[5 * i + c] / (double)n;
        for (int64_t i = 0; i < n; i++)
            squares += (seen[0].v[5 * i + c] - sum) * (seen[0].v[5 * i + c] - sum);
        CHECK(fabs(mean[c] - 0.5 * sum) < 1e-6, "running mean %d is %g, expected half of %g", c, mean[c], sum);
        CHECK(fabs(variance[c] - (0.5 + 0.5 * squares / (double)(n - 1))) < 1e-5, "running variance %d is %g, of %g", c,
              variance[c], squares / (double)(n - 1));
        for (int64_t i = 0; i < n; i++) {
            const double want = (seen[0].v[5 * i + c] - sum) / sqrt(squares / (double)n + 0.25);
            CHECK(fabs(seen[1].v[5 * i + c] - want) < 1e-5, "normalised %lld is %g, expected %g", (long long)i,
                  seen[1].v[5 * i + c], want);
        }
    }
    memset(seen, 0, sizeof seen);
    nn_graph_free(g);
}

/* The state distinguishes settings, and settings from none. */
static void check_layouts(void) {
    static const nn_batchnorm_options all[] = {
        {0}, {.epsilon = 1e-3}, {.momentum = 0.01}, {.epsilon = 0.01}, {.epsilon = 0.01, .momentum = 1e-3}};
    uint64_t hash[8];
    int count = 0;
    for (int i = 0; i < 5; i++) {
        nn_graph *g = normalised(&all[i], false);
        hash[count++] = fl_graph_layout(g);
        nn_graph_free(g);
    }
    nn_graph *plain = normalised(NULL, true), *null = normalised(NULL, false);
    CHECK(fl_graph_layout(plain) == hash[0] && fl_graph_layout(null) == hash[0], "no settings are another network");
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            CHECK(hash[i] != hash[k], "settings %d and %d look alike", i, k);
    nn_graph *narrow = normalised(&all[1], false);
    static unsigned char state[1 << 18];
    CHECK(nn_state_bytes(plain) <= sizeof state && !nn_state_save(state, nn_state_bytes(plain), plain), "%s",
          tensor_error());
    CHECK(nn_state_restore(narrow, state, nn_state_bytes(narrow)) == TENSOR_E_DATA &&
              strstr(tensor_error(), "other layers or settings"),
          "the state of a network with another epsilon was taken: %s", tensor_error());
    nn_graph_free(plain);
    nn_graph_free(null);
    nn_graph_free(narrow);
    float rates[] = {0.5f, 0.25f};
    for (int i = 0; i < 2; i++) {
        nn_graph *g = dropping("fp32", rates[i]);
        hash[i] = fl_graph_layout(g);
        nn_graph_free(g);
    }
    CHECK(hash[0] != hash[1], "two rates of dropout look alike");
}

/* --- shapes and errors -------------------------------------------------------------------------------------------- */

static void shape_is(const nn_graph *g, nn_node x, int64_t h, int64_t w, int64_t c) {
    CHECK(x >= 0, "%s", tensor_error());
    if (x < 0)
        return;
    const struct fl_shape *s = &fl_output_of(g, x)->shape;
    CHECK(s->ndim == 4 && s->dim[1] == h && s->dim[2] == w && s->dim[3] == c, "%s is %lldx%lldx%lld",
          fl_output_of(g, x)->name, (long long)s->dim[1], (long long)s->dim[2], (long long)s->dim[3]);
}

static void check_shapes(void) {
    nn_graph *g = new_graph("bf16");
    nn_node x = nn_input(g, 9, 7, 6);
    shape_is(g, nn_avgpool2d(g, "a", x, (nn_window){.window = 3, .stride = 2, .padding = 1}, true), 5, 4, 6);
    shape_is(g, nn_avgpool_adaptive(g, "b", x, 2, 11), 2, 11, 6);
    shape_is(g, nn_lrn(g, "c", x, 5, 1e-4f, 0.75f, 2), 9, 7, 6);
    shape_is(g, nn_groupnorm(g, "d", x, 3, 0), 9, 7, 6);
    shape_is(g, nn_dropout(g, "e", x, 0.5f), 9, 7, 6);
    shape_is(g, nn_add(g, "f", x, x, false), 9, 7, 6);
    shape_is(g, nn_bias(g, "g", x, true), 9, 7, 6);
    shape_is(g, nn_conv2d(g, "h", x, 4, 3, &(nn_conv2d_options){.stride = 2, .bias_after = true, .relu = true}), 4, 3,
             4);
    shape_is(g, nn_shortcut_b(g, "i", x, 8, 2), 5, 4, 8);
    shape_is(g, nn_bottleneck(g, "j", x, 2, 2), 5, 4, 8);
    shape_is(g, nn_depthwise_separable(g, "k", x, 10, 2), 5, 4, 10);
    nn_graph_free(g);
}

static void check_errors(void) {
#define REFUSED(status, words, call)                                                                                   \
    do {                                                                                                               \
        nn_graph *g = new_graph("fp32");                                                                               \
        const nn_node x = nn_input(g, 8, 8, 6);                                                                        \
        (void)x;                                                                                                       \
        CHECK((call) == -1 && tensor_error_status() == (status) && strstr(tensor_error(), words),                      \
              "%s: expected '%s', got %d '%s'", #call, words, (int)tensor_error_status(), tensor_error());             \
        nn_graph_free(g);                                                                                              \
    } while (0)
#define WINDOW(...) ((nn_window){__VA_ARGS__})
    char long_name[101];
    memset(long_name, 'n', 100);
    long_name[100] = 0;
    REFUSED(TENSOR_E_ARGUMENT, "window 0", nn_avgpool2d(g, "a", x, WINDOW(.stride = 1), true));
    REFUSED(TENSOR_E_ARGUMENT, "stride -1", nn_avgpool2d(g, "a", x, WINDOW(.window = 2, .stride = -1), true));
    REFUSED(TENSOR_E_ARGUMENT, "padding 2, expected 0 to 1",
            nn_avgpool2d(g, "a", x, WINDOW(.window = 2, .stride = 1, .padding = 2), true));
    REFUSED(TENSOR_E_ARGUMENT, "dilation 2",
            nn_avgpool2d(g, "a", x, WINDOW(.window = 2, .stride = 1, .dilation = 2), true));
    REFUSED(TENSOR_E_SHAPE, "a window of 9", nn_avgpool2d(g, "a", x, WINDOW(.window = 9, .stride = 1), true));
    REFUSED(TENSOR_E_SHAPE, "images",
            nn_avgpool2d(g, "a", nn_linear(g, "l", x, 4, false), WINDOW(.window = 1, .stride = 1), 1));
    REFUSED(TENSOR_E_ARGUMENT, "height 0", nn_avgpool_adaptive(g, "a", x, 0, 1));
    REFUSED(TENSOR_E_ARGUMENT, "width -1", nn_avgpool_adaptive(g, "a", x, 1, -1));
    REFUSED(TENSOR_E_ARGUMENT, "size 0", nn_lrn(g, "a", x, 0, 1, 0.75f, 1));
    REFUSED(TENSOR_E_ARGUMENT, "beta 0", nn_lrn(g, "a", x, 5, 1, 0, 1));
    REFUSED(TENSOR_E_ARGUMENT, "alpha nan", nn_lrn(g, "a", x, 5, NAN, 0.75f, 1));
    REFUSED(TENSOR_E_ARGUMENT, "4 groups, expected a divisor of 6 channels", nn_groupnorm(g, "a", x, 4, 0));
    REFUSED(TENSOR_E_ARGUMENT, "0 groups", nn_groupnorm(g, "a", x, 0, 0));
    REFUSED(TENSOR_E_ARGUMENT, "epsilon is -1", nn_groupnorm(g, "a", x, 2, -1));
    REFUSED(TENSOR_E_ARGUMENT, "p is 1", nn_dropout(g, "a", x, 1));
    REFUSED(TENSOR_E_ARGUMENT, "p is nan", nn_dropout(g, "a", x, NAN));
    REFUSED(TENSOR_E_SHAPE, "different shape",
            nn_add(g, "a", x, nn_maxpool2d(g, "m", x, 2, &(nn_pool2d_options){.stride = 2}), false));
    REFUSED(TENSOR_E_ARGUMENT, "epsilon is inf", nn_batchnorm(g, "a", x, &(nn_batchnorm_options){.epsilon = INFINITY}));
    REFUSED(TENSOR_E_ARGUMENT, "momentum is 1.5", nn_batchnorm(g, "a", x, &(nn_batchnorm_options){.momentum = 1.5}));
    REFUSED(TENSOR_E_ARGUMENT, "momentum is nan",
            nn_batchnorm_add_relu(g, "a", x, x, &(nn_batchnorm_options){.momentum = NAN}));
    REFUSED(TENSOR_E_ARGUMENT, "longer than 84", nn_bottleneck(g, long_name, x, 4, 1));
    REFUSED(TENSOR_E_ARGUMENT, "name is missing", nn_shortcut_b(g, NULL, x, 4, 1));
    REFUSED(TENSOR_E_ARGUMENT, "width 0", nn_bottleneck(g, "a", x, 0, 1));
    REFUSED(TENSOR_E_SHAPE, "images", nn_depthwise_separable(g, "a", nn_linear(g, "l", x, 4, false), 4, 1));
    REFUSED(TENSOR_E_ARGUMENT, "stride -1", nn_depthwise_separable(g, "a", x, 4, -1));
    REFUSED(TENSOR_E_ARGUMENT, "input node 99", nn_bottleneck(g, "a", 99, 4, 1));
    REFUSED(TENSOR_E_ARGUMENT, "input node -1", nn_depthwise_separable(g, "a", -1, 4, 1));
    CHECK(nn_bottleneck(NULL, "a", 0, 4, 1) == -1 && nn_dropout(NULL, "a", 0, 0.5f) == -1 &&
              nn_conv2d(NULL, "a", 0, 4, 1, &(nn_conv2d_options){.bias_after = true, .relu = true}) == -1,
          "no graph");
    /* the longest name that a block accepts */
    nn_graph *g = new_graph("fp32");
    long_name[84] = 0;
    nn_node x = nn_bottleneck(g, long_name, nn_input(g, 8, 8, 6), 2, 2);
    CHECK(x >= 0 && nn_depthwise_separable(g, "b", x, 3, 1) >= 0, "%s", tensor_error());
    nn_graph_free(g);
}

int main(void) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    for (int i = 0; i < 5; i++) {
        check_dropout(variants[i]);
        check_evaluation(variants[i]);
    }
    check_repeats();
    check_state();
    check_differences();
    check_settings();
    check_layouts();
    check_shapes();
    check_errors();
    return check_summary();
}
