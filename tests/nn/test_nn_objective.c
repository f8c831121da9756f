/* The objectives of networks: losses against formulas on the outputs that a watch shows, regression that learns, two
 * networks in a chain against one network of the same layers, checkpoints that record the objective. */
#include "check.h"
#include "flexlab/nn.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 6, SIDE = 4, CHANNELS = 2, CLASSES = 5, PIXELS = BATCH * SIDE * SIDE * CHANNELS };
static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};

static double uniform(uint64_t *seed) {
    return (double)(check_random(seed) >> 11) * 0x1p-53;
}

static void draw_images(float *images, int count, uint64_t *seed) {
    for (int i = 0; i < count; i++)
        images[i] = (float)(uniform(seed) * 2 - 1);
}

static nn_graph *new_graph(nn_config c, int outputs) {
    c.batch = BATCH;
    c.seed = 5;
    nn_graph *g = nn_graph_new(&c);
    nn_node x = nn_input(g, SIDE, SIDE, CHANNELS);
    x = nn_linear(g, "hidden", x, 16, true);
    x = nn_linear(g, "out", x, outputs, false);
    CHECK(g && !nn_compile(g, x), "%s", tensor_error());
    return g;
}

/* --- losses of steps ---------------------------------------------------------------------------------------------- */

static double shown[2][BATCH * CLASSES];
static void keep_output(const nn_tensor_info *info, void *context) {
    (void)context;
    for (int i = 0; i < 2; i++)
        if (!strcmp(info->name, i ? "out.grad" : "out"))
            CHECK(!tensor_store_f64(info->t, shown[i], tensor_count(info->t)), "%s", tensor_error());
}

/* The largest of the gradients is the unit in which differences are measured. */
static void expect(const char *what, double loss, double want, const double *gradient, int n, double step) {
    CHECK(fabs(loss - want) <= 1e-12 * (1 + fabs(want)), "%s: loss %.17g, expected %.17g", what, loss, want);
    double most = 0;
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs(gradient[i]));
    for (int i = 0; i < n; i++)
        CHECK(fabs(shown[1][i] - gradient[i]) <= most * step, "%s: gradient %d is %g, expected %g", what, i,
              shown[1][i], gradient[i]);
}

/* Half a step of the largest gradient, whose mantissa has at least 14 bits; for floats their last place. */
static double step_of(const char *variant) {
    return !strcmp(variant, "bf16")   ? 0x1p-8
           : !strcmp(variant, "fp32") ? 0x1p-23
           : !strcmp(variant, "fp16") ? 0x1p-10
                                      : 0x1p-13;
}

static void smoothed(const char *variant) {
    nn_graph *g = new_graph(
        (nn_config){.variant = variant, .label_smoothing = 0.25f, .ignores = true, .ignored_label = -1}, CLASSES);
    const int32_t labels[BATCH] = {0, -1, 4, 2, -1, 1};
    float images[PIXELS];
    double gradient[BATCH * CLASSES] = {0}, want = 0, loss = 0;
    int correct = -1, right = 0;
    uint64_t seed = 11;
    draw_images(images, PIXELS, &seed);
    CHECK(!nn_watch(g, keep_output, NULL) && !nn_forward(g, &(nn_batch){.images = images, .labels = labels}) &&
              !nn_loss(&loss, &correct, g),
          "%s", tensor_error());
    for (int i = 0; i < BATCH; i++) {
        const double *z = shown[0] + i * CLASSES;
        double sum = 0;
        int largest = 0;
        for (int c = 0; c < CLASSES; c++) {
            sum += exp(z[c]);
            largest = z[c] > z[largest] ? c : largest;
        }
        for (int c = 0; c < CLASSES && labels[i] >= 0; c++) {
            const double q = 0.75 * (c == labels[i]) + 0.25 / CLASSES;
            want -= q * (z[c] - log(sum)) / 4;
            gradient[i * CLASSES + c] = (exp(z[c]) / sum - q) / 4;
        }
        right += largest == labels[i];
    }
    expect(variant, loss, want, gradient, BATCH * CLASSES, step_of(variant));
    CHECK(correct == right, "%s: %d right, expected %d", variant, correct, right);
    CHECK(!nn_backward(g) && !nn_update(g, 0.1f), "%s", tensor_error());
    double evaluated = 0, logits[BATCH * CLASSES], plain = 0;
    int32_t predicted[BATCH];
    CHECK(!nn_evaluate(&evaluated, predicted, g, &(nn_batch){.images = images, .labels = labels, .count = 4}) &&
              !nn_predict(logits, g, &(nn_batch){.images = images, .count = 4}),
          "%s", tensor_error());
    for (int i = 0; i < 4; i++) { /* without smoothing */
        double sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += exp(logits[i * CLASSES + c]);
        plain -= labels[i] < 0 ? 0 : (logits[i * CLASSES + labels[i]] - log(sum)) / 3;
    }
    CHECK(fabs(evaluated - plain) < 1e-12, "%s: evaluated %.17g, expected %.17g", variant, evaluated, plain);
    nn_graph_free(g);
}

static void errors(const char *variant, bool huber) {
    nn_graph *g = new_graph(
        (nn_config){.variant = variant, .loss = huber ? "huber" : "squared_error", .huber_delta = huber ? 0.5f : 0}, 3);
    float images[PIXELS], targets[BATCH * 3];
    double gradient[BATCH * 3], want = 0, loss = 0, first = 0;
    uint64_t seed = 12;
    draw_images(images, PIXELS, &seed);
    draw_images(targets, BATCH * 3, &seed);
    CHECK(!nn_watch(g, keep_output, NULL) && !nn_forward(g, &(nn_batch){.images = images, .targets = targets}) &&
              !nn_loss(&loss, NULL, g),
          "%s", tensor_error());
    for (int i = 0; i < BATCH * 3; i++) {
        const double d = shown[0][i] - (double)targets[i], size = fabs(d);
        want += (!huber ? d * d : size <= 0.5 ? d * d / 2 : 0.5 * (size - 0.25)) / (BATCH * 3);
        gradient[i] = (!huber ? 2 * d : fmax(-0.5, fmin(0.5, d))) / (BATCH * 3);
    }
    expect(variant, loss, want, gradient, BATCH * 3, step_of(variant));
    CHECK(!nn_watch(g, NULL, NULL), "%s", tensor_error());
    first = loss;
    for (int i = 0; i < 150; i++)
        CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .targets = targets}, 0.2f), "%s",
              tensor_error());
    CHECK(loss < first / 20, "%s %s: loss %g at first, %g after 150 steps", variant, huber ? "huber" : "squared error",
          first, loss);
    double evaluated = 0, half = 0, outputs[BATCH * 3];
    CHECK(!nn_evaluate(&evaluated, NULL, g, &(nn_batch){.images = images, .targets = targets, .count = BATCH / 2}) &&
              !nn_predict(outputs, g, &(nn_batch){.images = images, .count = BATCH / 2}),
          "%s", tensor_error());
    for (int i = 0; i < BATCH / 2 * 3; i++) {
        const double d = outputs[i] - (double)targets[i], size = fabs(d);
        half += (!huber ? d * d : size <= 0.5 ? d * d / 2 : 0.5 * (size - 0.25)) / (BATCH / 2 * 3);
    }
    CHECK(fabs(evaluated - half) <= 1e-12, "%s: evaluated %g, expected %g", variant, evaluated, half);
    nn_graph_free(g);
}

/* --- chains ------------------------------------------------------------------------------------------------------- */

enum { MIDDLE = 3, MIDDLE_PIXELS = BATCH * SIDE * SIDE * MIDDLE };

static nn_node front(nn_graph *g) {
    nn_node x = nn_conv2d(g, "conv1", nn_input(g, SIDE, SIDE, CHANNELS), MIDDLE, 3, &(nn_conv2d_options){.padding = 1});
    return nn_relu(g, "relu1", x);
}
static nn_node back(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv2", x, 4, 3, &(nn_conv2d_options){.padding = 1});
    return nn_linear(g, "out", nn_relu(g, "relu2", x), 3, false);
}

static const tensor *weight_of(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    return NULL;
}

static nn_graph *link_of(nn_config c, const char *loss, bool input_gradient) {
    c.batch = BATCH;
    c.seed = 9;
    c.momentum = 0.9f;
    c.loss = loss;
    c.input_gradient = input_gradient;
    return nn_graph_new(&c);
}

/* If loads are exact, as in float formats, two networks in a chain equal one network, bit for bit. */
static void chained(const char *variant) {
    const nn_config c = {.variant = variant};
    const bool floats = !tensor_format_is_shared(nn_variant_find(variant)->format);
    nn_graph *whole = link_of(c, "squared_error", false), *first = link_of(c, "none", false),
             *second = link_of(c, "squared_error", true);
    CHECK(!nn_compile(whole, back(whole, front(whole))) && !nn_compile(first, front(first)) &&
              !nn_compile(second, back(second, nn_input(second, SIDE, SIDE, MIDDLE))),
          "%s", tensor_error());
    float images[PIXELS], targets[BATCH * 3], middle[MIDDLE_PIXELS];
    double losses[2] = {0}, at_first = 0;
    uint64_t seed = 13;
    draw_images(images, PIXELS, &seed);
    draw_images(targets, BATCH * 3, &seed);
    for (int step = 0; step < 30; step++) {
        CHECK(!nn_train_step(&losses[0], NULL, whole, &(nn_batch){.images = images, .targets = targets}, 0.02f), "%s",
              tensor_error());
        CHECK(!nn_forward(first, &(nn_batch){.images = images}) && nn_output(first) &&
                  !tensor_store_f32(nn_output(first), middle, MIDDLE_PIXELS) &&
                  !nn_train_step(&losses[1], NULL, second, &(nn_batch){.images = middle, .targets = targets}, 0.02f) &&
                  nn_input_gradient(second) && !nn_backward_from(first, nn_input_gradient(second)) &&
                  !nn_update(first, 0.02f),
              "%s", tensor_error());
        at_first = step ? at_first : losses[1];
        CHECK(!floats || losses[0] == losses[1], "%s step %d: loss %a in a chain, %a", variant, step, losses[1],
              losses[0]);
    }
    CHECK(losses[1] < at_first / 2, "%s: loss %g at first, then %g", variant, at_first, losses[1]);
    for (int i = 0; floats && i < 2; i++) {
        const char *name = i ? "conv2.weight" : "conv1.weight";
        const tensor *a = weight_of(whole, name), *b = weight_of(i ? second : first, name);
        CHECK(a && b && !memcmp(tensor_const_data(a), tensor_const_data(b), (size_t)tensor_count(a) * 2),
              "%s: %s differs", variant, name);
    }
    CHECK(!nn_clip_weights(second, 0.01f), "%s", tensor_error());
    double most = 0;
    CHECK(!tensor_max_abs(&most, weight_of(second, "conv2.weight")) && most <= 0.0101, "%s: %g after clipping", variant,
          most);
    nn_graph_free(whole);
    nn_graph_free(first);
    nn_graph_free(second);
}

/* --- what is refused, and what is kept ---------------------------------------------------------------------------- */

/* A network with a policy accepts a gradient of any format: values that both formats can represent act like those in
 * its own. */
static void given(const char *variant, const char *format) {
    enum { ROWS = BATCH + 2 };
    static double found[2][BATCH * CLASSES], weights[2][16 * CLASSES];
    float images[PIXELS], numbers[ROWS * CLASSES];
    char policy[60];
    uint64_t seed = 9;
    draw_images(images, PIXELS, &seed);
    for (int i = 0; i < ROWS * CLASSES; i++)
        numbers[i] = (float)((int)(uniform(&seed) * 128) - 64) / 8;
    snprintf(policy, sizeof policy, "variant %s;", variant);
    for (int own = 0; own < 2; own++) {
        nn_graph *g = new_graph((nn_config){.policy = policy, .loss = "none"}, CLASSES);
        tensor_format id = 0;
        CHECK(!tensor_format_find(&id, own ? variant : format), "%s", tensor_error());
        tensor *gradient = tensor_new(id, TENSOR_SHAPE(ROWS, CLASSES));
        CHECK(tensor_load_f32(gradient, numbers, ROWS * CLASSES) == TENSOR_OK && !nn_watch(g, keep_output, NULL), "%s",
              tensor_error());
        for (int i = 0; i < 3; i++) /* the third reuses memory */
            CHECK(!nn_forward(g, &(nn_batch){.images = images}) && !nn_backward_from(g, gradient), "%s",
                  tensor_error());
        memcpy(found[own], shown[1], sizeof found[own]);
        for (int i = 0; i < nn_tensor_count(g); i++)
            if (!strcmp(nn_tensor_at(g, i).name, "out.weight.grad"))
                CHECK(!tensor_store_f64(nn_tensor_at(g, i).t, weights[own], 16 * CLASSES), "%s", tensor_error());
        tensor_free(gradient);
        nn_graph_free(g);
    }
    for (int i = 0; i < BATCH * CLASSES; i++)
        CHECK(found[0][i] == (double)numbers[i], "%s given to %s: %g, expected %g", format, variant, found[0][i],
              (double)numbers[i]);
    CHECK(!memcmp(found[0], found[1], sizeof found[0]) && !memcmp(weights[0], weights[1], sizeof weights[0]),
          "%s given to %s: other bits than in its own format", format, variant);
}

static void refused(tensor_status status, const char *words) {
    CHECK(status && strstr(tensor_error(), words), "'%s', expected '%s'", status ? tensor_error() : "no error", words);
}

static void refused_config(nn_config c, const char *words) {
    c.variant = "fp32";
    c.batch = 1;
    nn_graph *g = nn_graph_new(&c);
    refused(g ? TENSOR_OK : TENSOR_E_ARGUMENT, words);
    nn_graph_free(g);
}

static void refusals(void) {
    refused_config((nn_config){.loss = "mse"}, "loss 'mse': expected one of cross_entropy, squared_error, huber");
    refused_config((nn_config){.label_smoothing = 1.5f}, "label_smoothing: 1.5, expected 0 to 1");
    refused_config((nn_config){.label_smoothing = NAN}, "label_smoothing: nan");
    refused_config((nn_config){.label_smoothing = 0.1f, .loss = "huber"}, "label_smoothing: loss huber has none");
    refused_config((nn_config){.huber_delta = 1}, "huber_delta: loss cross_entropy has none");
    refused_config((nn_config){.ignores = true, .loss = "none"}, "ignored label: loss none has none");
    float images[PIXELS] = {0};
    const int32_t labels[BATCH] = {0, 1, 2, 3, 4, 5};
    nn_graph *plain = new_graph((nn_config){.variant = "fp32"}, CLASSES),
             *error = new_graph((nn_config){.variant = "fp32", .loss = "squared_error"}, 1),
             *none = new_graph((nn_config){.variant = "fp32", .loss = "none", .input_gradient = true}, CLASSES);
    refused(nn_forward(plain, &(nn_batch){.images = images, .labels = labels}), "label 5 is 5, expected 0 to 4");
    refused(nn_forward(plain, &(nn_batch){.images = images, .targets = images}),
            "the batch has targets, but loss cross_entropy takes labels");
    refused(nn_forward(plain, &(nn_batch){.images = images}),
            "the batch has no labels, which loss cross_entropy takes");
    refused(nn_forward(error, &(nn_batch){.images = images, .labels = labels}),
            "labels, but loss squared_error takes targets");
    refused(nn_evaluate(NULL, NULL, error, &(nn_batch){.images = images, .labels = labels, .count = 1}),
            "labels, but loss squared_error takes targets");
    refused(nn_evaluate(NULL, NULL, plain, &(nn_batch){.images = images, .labels = labels, .count = BATCH}),
            "label 5 is 5, expected 0 to 4");
    refused(nn_forward(none, &(nn_batch){.images = images, .labels = labels}),
            "the batch has labels, but loss none takes neither labels nor targets");
    refused(nn_output(none) ? TENSOR_OK : TENSOR_E_ARGUMENT, "output: no forward pass before it");
    refused(nn_input_gradient(none) ? TENSOR_OK : TENSOR_E_ARGUMENT, "input gradient: no backward pass before it");
    refused(nn_input_gradient(plain) ? TENSOR_OK : TENSOR_E_ARGUMENT, "made without input_gradient");
    tensor *gradient = tensor_new(FMT_FP32, TENSOR_SHAPE(BATCH, CLASSES)),
           *small = tensor_new(FMT_FP32, TENSOR_SHAPE(2)), *half = tensor_new(FMT_FP16, TENSOR_SHAPE(BATCH, CLASSES));
    refused(nn_backward_from(none, gradient), "backward: no forward pass before it");
    CHECK(!nn_forward(none, &(nn_batch){.images = images}), "%s", tensor_error());
    refused(nn_backward(none), "its gradient is given (nn_backward_from)");
    refused(nn_backward_from(none, NULL), "the gradient is NULL");
    refused(nn_backward_from(none, small), "slice");
    refused(nn_backward_from(none, half), "the gradient is fp16, expected fp32");
    CHECK(!nn_backward_from(none, gradient) && nn_input_gradient(none) && !nn_update(none, 0.1f) &&
              nn_input_gradient(none),
          "%s", tensor_error());
    CHECK(!nn_forward(none, &(nn_batch){.images = images}), "%s", tensor_error());
    refused(nn_input_gradient(none) ? TENSOR_OK : TENSOR_E_ARGUMENT, "input gradient: no backward pass before it");
    refused(nn_loss(NULL, NULL, none), "loss: no forward pass before it");
    /* with a policy it must also be numbers of the output's shape */
    nn_graph *any = new_graph((nn_config){.policy = "variant fp32;", .loss = "none"}, CLASSES);
    tensor *whole = tensor_new(FMT_I32, TENSOR_SHAPE(BATCH, CLASSES)),
           *wide = tensor_new(FMT_FP16, TENSOR_SHAPE(BATCH, CLASSES + 1));
    CHECK(!nn_forward(any, &(nn_batch){.images = images}), "%s", tensor_error());
    refused(nn_backward_from(any, whole), "slice");
    refused(nn_backward_from(any, wide), "slice");
    CHECK(!nn_backward_from(any, half), "%s", tensor_error());
    tensor_free(whole);
    tensor_free(wide);
    nn_graph_free(any);
    refused(nn_clip_weights(none, -1), "limit -1");
    tensor_free(gradient);
    tensor_free(small);
    tensor_free(half);
    nn_graph_free(plain);
    nn_graph_free(error);
    nn_graph_free(none);
}

static void kept(void) {
    char path[] = "/tmp/test_nn_objective_XXXXXX";
    const int file = mkstemp(path);
    const nn_config how[] = {{.label_smoothing = 0.1f, .ignores = true, .ignored_label = -7},
                             {.loss = "huber", .huber_delta = 0.25f},
                             {.loss = "none", .input_gradient = true}};
    for (int i = 0; i < 3; i++) {
        nn_config c = how[i];
        c.variant = "flex16+5";
        nn_graph *g = new_graph(c, CLASSES), *plain = new_graph((nn_config){.variant = "flex16+5"}, CLASSES);
        CHECK(!nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
        nn_graph *again = nn_checkpoint_graph(path, NULL);
        nn_node x = nn_linear(again, "hidden", nn_input(again, SIDE, SIDE, CHANNELS), 16, true);
        CHECK(again && !nn_compile(again, nn_linear(again, "out", x, CLASSES, false)) &&
                  !nn_checkpoint_load(again, path),
              "%s", tensor_error());
        refused(nn_checkpoint_load(plain, path), "that of the network is the default");
        CHECK(!nn_checkpoint_save(plain, path, NULL, 0), "%s", tensor_error());
        refused(nn_checkpoint_load(g, path), "network.");
        nn_graph_free(g);
        nn_graph_free(plain);
        nn_graph_free(again);
    }
    CHECK(file >= 0 && !close(file) && !unlink(path), "%s", path);
}

int main(void) {
    for (int i = 0; i < 5; i++) {
        smoothed(variants[i]);
        errors(variants[i], false);
        errors(variants[i], true);
        chained(variants[i]);
        for (int k = 0; k < 5; k++)
            given(variants[i], variants[k]);
    }
    refusals();
    kept();
    return check_summary();
}
