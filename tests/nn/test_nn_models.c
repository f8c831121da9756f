/* The models of the literature: numbers of parameters by formulas derived by hand from the papers' tables, and the
 * published number if there is one; docs/models.md must agree; one training step in alternating formats (all of them
 * with the argument "all"); losses that fall; what is refused. test_nn_models [all] */
#include "check.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include <math.h>
#include <string.h>

/* --- parameters, by hand ------------------------------------------------------------------------------------------ */

static int64_t conv(int64_t side, int64_t in, int64_t out) { /* without bias */
    return side * side * in * out;
}
static int64_t conv_bias(int64_t side, int64_t in, int64_t out) {
    return conv(side, in, out) + out;
}
static int64_t bn(int64_t channels) {
    return 2 * channels;
}
static int64_t linear(int64_t in, int64_t out) {
    return in * out + out;
}

/* Table of LeCun et al., figure 2, with every map of C3 connected to every one of S2, and no parameters in S2 and
 * S4. */
static int64_t lenet(int64_t channels, int64_t classes) {
    return conv_bias(5, channels, 6) + conv_bias(5, 6, 16) + conv_bias(5, 16, 120) + linear(120, 84) +
           linear(84, classes);
}
/* The pooling layers reduce 32x32 to 15, 7, 3. */
static int64_t alexnet(int64_t channels, int64_t classes) {
    return conv_bias(5, channels, 64) + conv_bias(5, 64, 192) + conv_bias(3, 192, 384) + conv_bias(3, 384, 256) +
           conv_bias(3, 256, 256) + linear(3 * 3 * 256, 1024) + linear(1024, 1024) + linear(1024, classes);
}
static int64_t vgg(const int *filters, int64_t channels, int64_t classes) {
    int64_t sum = 0;
    for (; *filters; channels = *filters++)
        sum += conv(3, channels, *filters) + bn(*filters);
    return sum + linear(channels, classes);
}
static int64_t vgg11(int64_t channels, int64_t classes) {
    return vgg((const int[]){64, 128, 256, 256, 512, 512, 512, 512, 0}, channels, classes);
}
static int64_t vgg16(int64_t channels, int64_t classes) {
    return vgg((const int[]){64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512, 0}, channels, classes);
}
/* Stages of n blocks; the first block of the later ones has a shortcut of its own. */
static int64_t resnet_b(int64_t n, int64_t channels, int64_t classes) {
    int64_t sum = conv(3, channels, 16) + bn(16), in = 16;
    for (int64_t c = 16; c <= 64; in = c, c *= 2)
        sum += conv(3, in, c) + (2 * n - 1) * conv(3, c, c) + 2 * n * bn(c) + (c > 16 ? conv(1, in, c) + bn(c) : 0);
    return sum + linear(64, classes);
}
static int64_t bottleneck(int64_t in, int64_t width) {
    return conv(1, in, width) + bn(width) + conv(3, width, width) + bn(width) + conv(1, width, 4 * width) +
           bn(4 * width);
}
static int64_t resnet_bottleneck(int64_t n, int64_t channels, int64_t classes) {
    int64_t sum = conv(3, channels, 16) + bn(16), in = 16;
    for (int64_t width = 16; width <= 64; in = 4 * width, width *= 2)
        sum += bottleneck(in, width) + (n - 1) * bottleneck(4 * width, width) + conv(1, in, 4 * width) + bn(4 * width);
    return sum + linear(256, classes);
}
static int64_t wrn(int64_t n, int64_t k, int64_t channels, int64_t classes) {
    int64_t sum = conv(3, channels, 16), in = 16;
    for (int64_t c = 16 * k; c <= 64 * k; in = c, c *= 2)
        sum += bn(in) + conv(3, in, c) + bn(c) + conv(3, c, c) + (in == c ? 0 : conv(1, in, c)) +
               (n - 1) * (2 * bn(c) + 2 * conv(3, c, c));
    return sum + bn(64 * k) + linear(64 * k, classes);
}
static int64_t mobilenet(int64_t channels, int64_t classes) {
    static const int64_t sizes[] = {32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024};
    int64_t sum = conv(3, channels, 32) + bn(32);
    for (int i = 0; i < 13; i++)
        sum += 9 * sizes[i] + bn(sizes[i]) + conv(1, sizes[i], sizes[i + 1]) + bn(sizes[i + 1]);
    return sum + linear(1024, classes);
}

static int64_t resnet20_b(int64_t channels, int64_t classes) {
    return resnet_b(3, channels, classes);
}
static int64_t resnet8_b(int64_t channels, int64_t classes) {
    return resnet_b(1, channels, classes);
}
static int64_t resnet29_bottleneck(int64_t channels, int64_t classes) {
    return resnet_bottleneck(3, channels, classes);
}
static int64_t resnet11_bottleneck(int64_t channels, int64_t classes) {
    return resnet_bottleneck(1, channels, classes);
}
static int64_t wrn16_4(int64_t channels, int64_t classes) {
    return wrn(2, 4, channels, classes);
}
static int64_t wrn10_1(int64_t channels, int64_t classes) {
    return wrn(1, 1, channels, classes);
}

static const struct model {
    const char *name;
    int64_t (*parameters)(int64_t channels, int64_t classes);
    int64_t published; /* for 32x32x3 and 10 classes (lenet: one channel); 0: none without the biases that are left out
                          here */
    int side, heavy;   /* heavy: one format for each run is enough */
    double macs;       /* multiply-adds of convolutions and linear layers for one 32x32x3 image, in millions */
} models[] = {
    {"lenet", lenet, 61706, 28, 0, 0.65172},
    {"alexnet", alexnet, 0, 15, 1, 182.2208},
    {"vgg11", vgg11, 9228362, 32, 1, 152.769536},
    {"vgg16", vgg16, 14724042, 32, 1, 313.201664},
    {"resnet20-b", resnet20_b, 272474, 1, 0, 40.813184},
    {"resnet29-bottleneck", resnet29_bottleneck, 0, 1, 0, 47.10656},
    {"wrn16-4", wrn16_4, 2748890, 1, 1, 392.612352},
    {"mobilenet", mobilenet, 3217226, 1, 1, 46.354432},
    {"resnet8-b", resnet8_b, 0, 1, 0, 0},
    {"resnet11-bottleneck", resnet11_bottleneck, 0, 1, 0, 0},
    {"wrn10-1", wrn10_1, 0, 1, 0, 0},
};
enum { MODELS = sizeof models / sizeof models[0] };

static nn_graph *graph_of(const char *variant, int batch) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = batch, .seed = 5, .momentum = 0.9f});
    CHECK(g != NULL, "%s", tensor_error());
    return g;
}

/* The products of convolutions and linear layers for one image: the number of outputs times the terms of each. */
static double multiply_adds(const nn_graph *g) {
    double sum = 0;
    for (int i = 0; i < g->count; i++) {
        const struct fl_node *node = &g->nodes[i];
        if (!node->parameters || strcmp(node->parameter[0].suffix, "weight") != 0)
            continue;
        const struct fl_shape *w = &node->parameter[0].shape;
        const double outputs = (double)fl_shape_count(&node->output[0].shape) / (double)node->batch;
        sum += outputs * (double)fl_shape_count(w) / (double)(w->ndim == 4 ? w->dim[0] : w->dim[1]);
    }
    return sum;
}

/* "| `name` | parameters | multiply-adds |" of docs/models.md, with commas and millions; macs 0: not the last. */
static void check_page(const char *name, int64_t parameters, double macs) {
    static char page[1 << 16];
    FILE *file = fopen(MODELS_PAGE, "r");
    CHECK(file != NULL, "%s is not there", MODELS_PAGE);
    if (!file)
        return;
    page[fread(page, 1, sizeof page - 1, file)] = 0;
    fclose(file);
    char row[160], digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)parameters);
    char with_commas[48] = "";
    size_t at = 0;
    for (size_t i = 0; i < strlen(digits); i++) {
        if (i && (strlen(digits) - i) % 3 == 0)
            with_commas[at++] = ',';
        with_commas[at++] = digits[i];
    }
    const int length = snprintf(row, sizeof row, "| `%s` | %s |", name, with_commas);
    if (macs > 0)
        snprintf(row + length, sizeof row - (size_t)length, " %.1f |", macs / 1e6);
    CHECK(strstr(page, row), "docs/models.md has no row '%s'", row);
}

static void check_text_models(void) {
    static const char *const names[] = {"gpt", "lstm-char", "gru-char"};
    for (int i = 0; i < 3; i++) {
        nn_graph *g = graph_of("fp32", 1);
        CHECK(nn_model_text(g, names[i], 128, 256) >= 0, "%s", tensor_error());
        check_page(names[i], nn_parameter_count(g), 0);
        nn_graph_free(g);
    }
    nn_graph *g = graph_of("fp32", 1);
    CHECK(nn_model(g, "nothing", 32, 32, 3, 10) < 0, "a model without a name that is known");
    for (int i = 0; nn_text_model_at(i); i++)
        CHECK(strstr(tensor_error(), nn_text_model_at(i)), "'%s' does not tell %s", tensor_error(),
              nn_text_model_at(i));
    nn_graph_free(g);
}

static void check_parameters(void) {
    static const int variants[][2] = {{3, 10}, {1, 10}, {3, 100}};
    for (int m = 0; m < MODELS; m++)
        for (int v = 0; v < 3; v++) {
            nn_graph *g = graph_of("fp32", 1);
            const int channels = variants[v][0], classes = variants[v][1];
            const nn_node logits = nn_model(g, models[m].name, 32, 32, channels, classes);
            const int64_t want = models[m].parameters(channels, classes);
            CHECK(logits >= 0, "%s: %s", models[m].name, tensor_error());
            CHECK(nn_parameter_count(g) == want, "%s, %d channels, %d classes: %lld parameters, by hand %lld",
                  models[m].name, channels, classes, (long long)nn_parameter_count(g), (long long)want);
            if (v == (models[m].parameters == lenet))
                CHECK(!models[m].published || want == models[m].published, "%s: %lld parameters, published %lld",
                      models[m].name, (long long)want, (long long)models[m].published);
            if (v == 0 && m < 8)
                check_page(models[m].name, want, multiply_adds(g));
            if (v == 0 && models[m].macs > 0)
                CHECK(fabs(multiply_adds(g) / 1e6 - models[m].macs) < 1e-6,
                      "%s: %.6f million multiply-adds, by hand %.6f", models[m].name, multiply_adds(g) / 1e6,
                      models[m].macs);
            nn_graph_free(g);
        }
    for (int i = 9; nn_model_at(i); i++) {
        bool found = false;
        for (int m = 0; m < MODELS; m++)
            found = found || !strcmp(models[m].name, nn_model_at(i));
        CHECK(found, "model %s has no row in this test", nn_model_at(i));
    }
}

/* --- training ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 2, PIXELS = 40 * 40 * 3 };
static float images[8 * PIXELS];
static int32_t labels[8];

static void new_batch(uint64_t seed, int batch, int64_t pixels) {
    for (int64_t i = 0; i < batch * pixels; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < batch; i++) {
        labels[i] = i % 4;
        for (int64_t k = i * pixels; k < (i + 1) * pixels; k += 3) /* something to learn */
            images[k] += (float)labels[i] * 0.5f;
    }
}

static bool is_finite(const tensor *t) {
    bool yes = false;
    CHECK(!tensor_all_finite(&yes, t), "%s", tensor_error());
    return yes;
}

/* Makes one step: the loss is about that of guessing, every weight and gradient is finite, and none of these is all
 * zero. */
static void one_step(const char *variant, const struct model *m) {
    double loss = NAN, after = NAN;
    nn_graph *g = graph_of(variant, BATCH);
    CHECK(!nn_compile(g, nn_model(g, m->name, 32, 32, 3, 10)), "%s %s: %s", variant, m->name, tensor_error());
    new_batch(3, BATCH, 32 * 32 * 3);
    CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, 1e-3f), "%s %s: %s", variant,
          m->name, tensor_error());
    CHECK(loss > 0.1 && loss < 12, "%s %s: the first loss is %g", variant, m->name, loss);
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (strcmp(info.role, "weight") != 0 && strcmp(info.role, "weight gradient") != 0)
            continue;
        CHECK(is_finite(info.t), "%s %s: %s is not finite", variant, m->name, info.name);
        tensor_stats last;
        CHECK(!tensor_statistics(&last, NULL, info.t) && (last.maximum > 0 || !strcmp(info.role, "weight")),
              "%s %s: %s is all zero", variant, m->name, info.name);
    }
    CHECK(!nn_evaluate(&after, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = BATCH}) &&
              isfinite(after),
          "%s %s: loss in evaluation %g: %s", variant, m->name, after, tensor_error());
    nn_graph_free(g);
}

static void check_steps(bool all) {
    static const char *const variants[] = {"flex16+5", "fp32", "dfp16", "bf16", "fp16"};
    int turn = 0;
    for (int m = 0; m < MODELS; m++)
        for (int v = 0; v < 5; v++)
            if (all || !models[m].heavy || v == (turn / 5) % 5)
                one_step(variants[v], &models[m]), turn++;
            else
                turn++;
}

/* Makes a few steps on one batch; compares the mean of the last tenth of the losses, because those of a network with
 * dropout fluctuate. */
static void falls(const char *variant, const char *name, int side, int steps, float rate) {
    const int last = steps - steps / 10;
    double first = NAN, loss = NAN, sum = 0;
    nn_graph *g = graph_of(variant, 8);
    CHECK(!nn_compile(g, nn_model(g, name, side, side, 3, 4)), "%s %s: %s", variant, name, tensor_error());
    new_batch(9, 8, (int64_t)side * side * 3);
    for (int i = 0; i < steps; i++) {
        CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, rate), "%s",
              tensor_error());
        first = i ? first : loss;
        sum += i >= last ? loss : 0;
    }
    const double mean = sum / (steps - last);
    CHECK(mean < 0.6 * first, "%s %s: loss %g, mean of the last %d of %d steps %g", variant, name, first, steps - last,
          steps, mean);
    nn_graph_free(g);
}

static void check_falling(bool all) {
    static const char *const variants[] = {"fp32", "flex16+5", "dfp16", "fp16", "bf16"};
    for (int v = 0; v < 5; v++) {
        falls(variants[v], "lenet", 28, 40, 0.01f);
        falls(variants[v], "resnet8-b", 12, 20, 0.05f);
        falls(variants[v], "resnet11-bottleneck", 12, 20, 0.05f);
        falls(variants[v], "wrn10-1", 12, 20, 0.05f);
    }
    if (!all)
        return;
    falls("flex16+5", "vgg11", 32, 12, 0.02f);
    falls("flex16+5", "mobilenet", 16, 20, 0.05f);
    for (int v = 0; v < 5; v++) /* with dropout, fp32 falls no faster */
        falls(variants[v], "alexnet", 32, 150, 0.003f);
}

/* --- sizes and errors --------------------------------------------------------------------------------------------- */

static void refused(tensor_status status, const char *words, const char *name, int height, int width) {
    nn_graph *g = graph_of("fp32", 1);
    CHECK(nn_model(g, name, height, width, 3, 10) == -1 && tensor_error_status() == status &&
              strstr(tensor_error(), words),
          "%s %dx%d: expected '%s', got '%s'", name, height, width, words, tensor_error());
    nn_graph_free(g);
}

static void check_sizes(void) {
    for (int m = 0; m < MODELS; m++) {
        static const int above[][2] = {{0, 0}, {0, 5}, {7, 0}};
        for (int i = 0; i < 3; i++) { /* the least side, and odd ones */
            nn_graph *g = graph_of("fp32", 1);
            const int side = models[m].side > 1 ? models[m].side : 4;
            CHECK(nn_model(g, models[m].name, side + above[i][0], side + above[i][1], 1, 10) >= 0, "%s: %s",
                  models[m].name, tensor_error());
            nn_graph_free(g);
        }
        char words[80];
        snprintf(words, sizeof words, "model '%s': images of %dx%d, expected at least %dx%d", models[m].name,
                 models[m].side - 1, 40, models[m].side, models[m].side);
        if (models[m].side > 1) {
            refused(TENSOR_E_SHAPE, words, models[m].name, models[m].side - 1, 40);
            refused(TENSOR_E_SHAPE, "expected at least", models[m].name, 40, models[m].side - 1);
        } else {
            refused(TENSOR_E_SHAPE, "expected at least 1", models[m].name, 0, 32);
        }
    }
    refused(TENSOR_E_ARGUMENT, "9n + 2: 11, 20, 29", "resnet21-bottleneck", 32, 32);
    refused(TENSOR_E_ARGUMENT, "6n + 2", "resnet21-b", 32, 32);
    refused(TENSOR_E_ARGUMENT, "6n + 4: 10, 16, 22", "wrn20-4", 32, 32);
    refused(TENSOR_E_ARGUMENT, "the width at least 1", "wrn16-0", 32, 32);
    refused(TENSOR_E_ARGUMENT, "below 1000", "wrn16-1000", 32, 32);
    refused(TENSOR_E_ARGUMENT, "below 1000", "wrn1000-4", 32, 32);
    refused(TENSOR_E_ARGUMENT, "below 1000", "wrn60004-1", 32, 32);
    refused(TENSOR_E_ARGUMENT, "the depth must be below 10000", "resnet99998", 32, 32);
    refused(TENSOR_E_ARGUMENT, "at least 1", "mlp0x8", 32, 32);
    refused(TENSOR_E_ARGUMENT, "the width at least 1", "mlp2x0", 32, 32);
    refused(TENSOR_E_ARGUMENT, "expected one of mlp2", "mlp3", 32, 32);
    refused(TENSOR_E_ARGUMENT, "expected one of mlp2", "wrn16", 32, 32);
    refused(TENSOR_E_ARGUMENT, "expected one of mlp2", "wrn16-4x", 32, 32);
    refused(TENSOR_E_ARGUMENT, "expected one of mlp2", "resnet20-c", 32, 32);
    refused(TENSOR_E_ARGUMENT, "mobilenet, or resnetD", "vgg13", 32, 32);
}

int main(int argc, char **argv) {
    const bool all = argc > 1 && !strcmp(argv[1], "all");
    check_parameters();
    check_text_models();
    check_sizes();
    check_steps(all);
    check_falling(all);
    return check_summary();
}
