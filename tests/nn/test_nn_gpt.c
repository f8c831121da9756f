/* The model gpt: logits of a whole network against its formulas in double, gradients of every format against those of
 * fp32, independence of later positions, states on devices and in checkpoints, names.
 *
 *     test_nn_gpt [DEVICE]        the toy device; or DEVICE (cuda) */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/nn.h"
#include "toy_device.h"
#include <math.h>
#include <unistd.h>

enum { BATCH = 2, LENGTH = 9, ROWS = BATCH * LENGTH, VOCABULARY = 13, LIMIT = 1 << 15 };

static uint64_t draws = 23;
static int32_t tokens[ROWS], labels[ROWS];

static void draw_batch(void) {
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)(check_random(&draws) % VOCABULARY);
        labels[i] = (int32_t)(check_random(&draws) % VOCABULARY);
    }
}

static nn_graph *network(const char *model, const char *variant, const char *device) {
    nn_graph *g = nn_graph_new(&(nn_config){
        .variant = variant, .batch = BATCH, .seed = 3, .optimiser = "adamw", .weight_decay = 0.1f, .device = device});
    CHECK(!nn_compile(g, nn_model_text(g, model, LENGTH, VOCABULARY)), "%s %s %s: %s", model, variant, device,
          tensor_error());
    return g;
}

static tensor *find(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    CHECK(false, "no tensor %s", name);
    return NULL;
}

/* --- the formulas ------------------------------------------------------------------------------------------------- */

/* Values of a parameter: layer and kind together are its name. To be freed. */
static double *weights(const nn_graph *g, const char *layer, const char *kind) {
    char name[100];
    snprintf(name, sizeof name, "%s.%s", layer, kind);
    const tensor *t = find(g, name);
    double *values = malloc((size_t)tensor_count(t) * sizeof *values);
    CHECK(!tensor_store_f64(t, values, tensor_count(t)), "%s", tensor_error());
    return values;
}

/* One sequence: x[t][0 ... width - 1], in rows of `width`. */
static void normalise(const nn_graph *g, const char *layer, double *y, const double *x, int width) {
    double *gamma = weights(g, layer, "gamma"), *beta = weights(g, layer, "beta");
    for (int t = 0; t < LENGTH; t++) {
        double mean = 0, variance = 0;
        for (int c = 0; c < width; c++)
            mean += x[t * width + c] / width;
        for (int c = 0; c < width; c++)
            variance += (x[t * width + c] - mean) * (x[t * width + c] - mean) / width;
        for (int c = 0; c < width; c++)
            y[t * width + c] = gamma[c] * (x[t * width + c] - mean) / sqrt(variance + 1e-5) + beta[c];
    }
    free(gamma);
    free(beta);
}

static void linear(const nn_graph *g, const char *layer, double *y, const double *x, int in, int out, bool biased) {
    double *w = weights(g, layer, "weight"), *b = biased ? weights(g, layer, "bias") : NULL;
    for (int t = 0; t < LENGTH; t++)
        for (int c = 0; c < out; c++) {
            double sum = b ? b[c] : 0;
            for (int k = 0; k < in; k++)
                sum += x[t * in + k] * w[k * out + c];
            y[t * out + c] = sum;
        }
    free(w);
    free(b);
}

/* Position t mixes the values of 0 ... t, head by head. */
static void attend(double *y, const double *q, const double *k, const double *v, int width) {
    const int d = 32;
    for (int head = 0; head < width / d; head++)
        for (int t = 0; t < LENGTH; t++) {
            double p[LENGTH], sum = 0;
            for (int s = 0; s <= t; s++) {
                double score = 0;
                for (int c = head * d; c < (head + 1) * d; c++)
                    score += q[t * width + c] * k[s * width + c];
                sum += p[s] = exp(score / sqrt(d));
            }
            for (int c = head * d; c < (head + 1) * d; c++) {
                y[t * width + c] = 0;
                for (int s = 0; s <= t; s++)
                    y[t * width + c] += p[s] / sum * v[s * width + c];
            }
        }
}

static void block(const nn_graph *g, int number, double *x, int width) {
    char name[40];
    double *part[5];
    for (int i = 0; i < 5; i++)
        part[i] = malloc((size_t)(LENGTH * 4 * width) * sizeof **part);
#define NAME(what) (snprintf(name, sizeof name, "block%d.%s", number, what), name)
    normalise(g, NAME("norm1"), part[0], x, width);
    linear(g, NAME("attention.query"), part[1], part[0], width, width, true);
    linear(g, NAME("attention.key"), part[2], part[0], width, width, true);
    linear(g, NAME("attention.value"), part[3], part[0], width, width, true);
    attend(part[4], part[1], part[2], part[3], width);
    linear(g, NAME("attention.projection"), part[0], part[4], width, width, true);
    for (int i = 0; i < LENGTH * width; i++)
        x[i] += part[0][i];
    normalise(g, NAME("norm2"), part[0], x, width);
    linear(g, NAME("expand"), part[1], part[0], width, 4 * width, true);
    for (int i = 0; i < LENGTH * 4 * width; i++) {
        const double z = part[1][i];
        part[1][i] = 0.5 * z * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
    }
    linear(g, NAME("contract"), part[2], part[1], 4 * width, width, true);
    for (int i = 0; i < LENGTH * width; i++)
        x[i] += part[2][i];
#undef NAME
    for (int i = 0; i < 5; i++)
        free(part[i]);
}

static void formulas(const nn_graph *g, const int32_t *sequence, int layers, int width, double *logits) {
    double *table = weights(g, "embedding", "weight"), *positions = weights(g, "positions", "weight");
    double *x = malloc((size_t)(LENGTH * width) * sizeof *x), *y = malloc((size_t)(LENGTH * width) * sizeof *y);
    for (int i = 0; i < LENGTH * width; i++)
        x[i] = table[sequence[i / width] * width + i % width] + positions[i];
    for (int i = 1; i <= layers; i++)
        block(g, i, x, width);
    normalise(g, "norm", y, x, width);
    linear(g, "head", logits, y, width, VOCABULARY, false);
    free(table);
    free(positions);
    free(x);
    free(y);
}

/* Moves parameters away from their initial values, so that each counts: tables and weights about ten times as large,
 * gammas around 1, biases and betas not zero. */
static void spread(const nn_graph *g) {
    static double values[LIMIT];
    uint64_t own = 41;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (strcmp(info.role, "weight") != 0)
            continue;
        const int64_t count = tensor_count(info.t);
        const bool matrix = tensor_ndim(info.t) > 1, table = strstr(info.name, "embedding") || strstr(info.name, "pos");
        const double size = table ? 1 : matrix ? 1.7 / sqrt((double)tensor_dim(info.t, 0)) : 0.3;
        CHECK(count <= LIMIT, "%s", info.name);
        for (int64_t k = 0; k < count; k++)
            values[k] = size * ((double)(check_random(&own) >> 11) * 0x1p-52 - 1) + !!strstr(info.name, ".gamma");
        CHECK(!tensor_load_f64(info.t, values, count), "%s", tensor_error());
    }
}

static void against_formulas(const char *model, int layers, int width) {
    static double logits[ROWS * VOCABULARY], expected[ROWS * VOCABULARY];
    nn_graph *g = network(model, "fp32", "cpu");
    draw_batch();
    spread(g);
    CHECK(!nn_predict(logits, g, &(nn_batch){.tokens = tokens, .count = BATCH}), "%s", tensor_error());
    for (int n = 0; n < BATCH; n++)
        formulas(g, tokens + n * LENGTH, layers, width, expected + n * LENGTH * VOCABULARY);
    double largest = 0;
    for (int i = 0; i < ROWS * VOCABULARY; i++) {
        largest = fmax(largest, fabs(expected[i]));
        CHECK(fabs(logits[i] - expected[i]) <= 1e-5, "%s: logit %d is %.9g, expected %.9g", model, i, logits[i],
              expected[i]);
    }
    CHECK(largest > 0.5, "logits of at most %g show nothing", largest);
    double loss = NAN, other = NAN;
    CHECK(!nn_forward(g, &(nn_batch){.tokens = tokens, .labels = labels}) && !nn_loss(&loss, NULL, g) &&
              !nn_evaluate(&other, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = BATCH}),
          "%s", tensor_error());
    CHECK(fabs(loss - other) <= 1e-6, "loss %.9g in training, %.9g in evaluation", loss, other);
    nn_graph_free(g);
}

/* Later tokens change nothing in the logits of a position, and its own token does. */
static void sees_nothing_later(const char *variant) {
    static double before[ROWS * VOCABULARY], after[ROWS * VOCABULARY];
    nn_graph *g = network("gpt2x32", variant, "cpu");
    draw_batch();
    spread(g);
    const int changed = LENGTH + 5; /* position 5 of the second sequence */
    CHECK(!nn_predict(before, g, &(nn_batch){.tokens = tokens, .count = BATCH}), "%s", tensor_error());
    tokens[changed] = (tokens[changed] + 1) % VOCABULARY;
    CHECK(!nn_predict(after, g, &(nn_batch){.tokens = tokens, .count = BATCH}), "%s", tensor_error());
    if (!strcmp(variant, "fp32") || !strcmp(variant, "bf16")) /* all positions have one shared exponent */
        CHECK(!memcmp(before, after, (size_t)(changed * VOCABULARY) * sizeof *before), "%s: something before changed",
              variant);
    for (int row = changed; row < ROWS; row++)
        CHECK(memcmp(before + row * VOCABULARY, after + row * VOCABULARY, VOCABULARY * sizeof *before) != 0,
              "%s: row %d does not see row %d", variant, row, changed);
    nn_graph_free(g);
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

/* The length of the difference of a gradient from that of fp32, relative to the latter. */
static double distance(const tensor *a, const tensor *b) {
    static double x[LIMIT], y[LIMIT];
    const int64_t count = tensor_count(a);
    double square = 0, difference = 0;
    CHECK(count <= LIMIT && !tensor_store_f64(a, x, count) && !tensor_store_f64(b, y, count), "%s", tensor_error());
    for (int64_t i = 0; i < count; i++) {
        square += y[i] * y[i];
        difference += (x[i] - y[i]) * (x[i] - y[i]);
    }
    return sqrt(difference / square);
}

/* Both begin from the weights as the format rounds them. Each of the about 30 operations that a gradient passes adds an
 * error of up to half a unit in the last place: 2^-12 of fp16, 2^-9 of bf16, and 2^-15 of the largest element with a
 * shared exponent (of flex16+5 with one spare bit above it). They add up as squares do, to five times one; softmax and
 * norms take differences of numbers with such errors, which makes them a few times larger. The bounds are 24, 20 and 50
 * of these units. */
static void gradients_of(const char *variant, double bound) {
    nn_graph *g = network("gpt2x32", variant, "cpu"), *exact = network("gpt2x32", "fp32", "cpu");
    spread(g);
    draw_batch();
    for (int i = 0; i < 3; i++) /* exponents are found */
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0), "%s", tensor_error());
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).role, "weight")) {
            static double values[LIMIT];
            const tensor *w = nn_tensor_at(g, i).t;
            CHECK(!tensor_store_f64(w, values, tensor_count(w)) &&
                      !tensor_load_f64(find(exact, nn_tensor_at(g, i).name), values, tensor_count(w)),
                  "%s", tensor_error());
        }
    double loss = NAN, other = NAN;
    CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0) &&
              !nn_train_step(&other, NULL, exact, &(nn_batch){.tokens = tokens, .labels = labels}, 0),
          "%s", tensor_error());
    CHECK(fabs(loss - other) <= bound, "%s: loss %.9g, in fp32 %.9g", variant, loss, other);
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (strcmp(info.role, "weight gradient") != 0 ||
            strstr(info.name, "key.bias")) /* which is 0 but for rounding */
            continue;
        const double far = distance(info.t, find(exact, info.name));
        CHECK(far <= bound, "%s %s: %.3g from that of fp32, expected at most %g", variant, info.name, far, bound);
    }
    nn_graph_free(g);
    nn_graph_free(exact);
}

/* --- training ----------------------------------------------------------------------------------------------------- */

static double step(nn_graph *g) {
    double loss = NAN;
    draw_batch();
    CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0.01f), "%s", tensor_error());
    return loss;
}

/* A network continues from a checkpoint on another device with the same bits. */
static void goes_on(const char *variant, const char *device) {
    char path[] = "/tmp/flexlab-gpt-XXXXXX";
    const int file = mkstemp(path);
    nn_graph *a = network("gpt1x32", variant, "cpu"), *b = network("gpt1x32", variant, device);
    for (int i = 0; i < 2; i++)
        step(a);
    CHECK(file >= 0 && !nn_checkpoint_save(a, path, NULL, 0) && !nn_checkpoint_load(b, path), "%s", tensor_error());
    for (int i = 0; i < 3; i++) {
        const uint64_t before = draws;
        const double first = step(a);
        draws = before;
        const double second = step(b);
        CHECK(!memcmp(&first, &second, sizeof first), "%s step %d on %s: loss %.17g, %.17g on cpu", variant, i, device,
              second, first);
    }
    const size_t bytes = nn_state_bytes(a);
    char *one = malloc(bytes), *other = malloc(bytes);
    CHECK(bytes == nn_state_bytes(b) && !nn_state_save(one, bytes, a) && !nn_state_save(other, bytes, b) &&
              !memcmp(one, other, bytes),
          "%s on %s: states differ", variant, device);
    free(one);
    free(other);
    nn_graph_free(a);
    nn_graph_free(b);
    close(file);
    unlink(path);
}

/* Learns one sequence by heart. */
static void learns(const char *variant) {
    nn_graph *g = network("gpt1x32", variant, "cpu");
    double first, last = NAN;
    draw_batch();
    for (int i = 0; i < ROWS; i++) /* each token depends on those before it */
        labels[i] = (tokens[i] * 5 + (i % LENGTH ? tokens[i - 1] : 0)) % VOCABULARY;
    CHECK(!nn_train_step(&first, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0.01f), "%s",
          tensor_error());
    CHECK(fabs(first - log(VOCABULARY)) < 0.1, "%s: the first loss is %g, that of guessing %g", variant, first,
          log(VOCABULARY));
    for (int i = 0; i < 60; i++)
        CHECK(!nn_train_step(&last, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0.01f), "%s",
              tensor_error());
    CHECK(last < 0.1, "%s: after 60 steps the loss is %g", variant, last);
    nn_graph_free(g);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void names(void) {
    static const struct {
        const char *name, *words;
    } bad[] = {{"gpt0x64", "1 to 48 layers"},
               {"gpt49x64", "1 to 48 layers"},
               {"gpt2x65", "a multiple of 32"},
               {"gpt2x16", "a multiple of 32"},
               {"gpt2x4096", "32 to 2048"},
               {"gpt99999x99999", "1 to 48 layers"},
               {"gpt02x64", "1 to 48 layers"},
               {"gpt2x64 ", "expected one that reads text: gpt, gpt2x64"},
               {"gpt2", "expected one that reads text"},
               {"resnet20", "expected one that reads text"},
               {NULL, "model NULL: expected one that reads text"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
        CHECK(nn_model_text(g, bad[i].name, 4, 5) == -1 && strstr(tensor_error(), bad[i].words), "%s: %s",
              bad[i].name ? bad[i].name : "NULL", tensor_error());
        nn_graph_free(g);
    }
    CHECK(nn_model_reads_text("gpt") && nn_model_reads_text("gpt3x96") && !nn_model_reads_text("cnn6") &&
              !nn_model_reads_text(NULL) && !nn_model_reads_text("gpt3"),
          "which read text");
    for (int i = 0; nn_text_model_at(i); i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
        CHECK(nn_model_reads_text(nn_text_model_at(i)) && nn_model_text(g, nn_text_model_at(i), 128, 256) >= 0, "%s",
              tensor_error());
        if (!strcmp(nn_text_model_at(i), "gpt")) /* tables, 6 blocks of 12 w^2 + 13 w, the last norm, the head */
            CHECK(nn_parameter_count(g) == (256 + 128) * 192 + 6 * (12 * 192 * 192 + 13 * 192) + 2 * 192 + 192 * 256,
                  "%lld parameters", (long long)nn_parameter_count(g));
        nn_graph_free(g);
    }
    CHECK(!nn_text_model_at(-1) && !nn_activation_at(-1), "before the first");
}

static nn_node odd_heads(nn_graph *g, nn_node x) {
    return nn_attention(g, "a", x, 3, true);
}
static nn_node no_heads(nn_graph *g, nn_node x) {
    return nn_transformer_block(g, "b", x, &(nn_transformer){.heads = 0});
}
static nn_node negative(nn_graph *g, nn_node x) {
    return nn_transformer_block(g, "b", x, &(nn_transformer){.heads = 2, .hidden = -1});
}
static nn_node no_function(nn_graph *g, nn_node x) {
    return nn_transformer_block(g, "b", x, &(nn_transformer){.heads = 2, .activation = "gulu"});
}
static nn_node of_tokens(nn_graph *g, nn_node x) {
    (void)x;
    return nn_attention(g, "a", 0, 1, true);
}
static nn_node other_widths(nn_graph *g, nn_node x) {
    return nn_add(g, "add", x, nn_linear(g, "fc", x, 5, false), false);
}
static nn_node no_node(nn_graph *g, nn_node x) {
    (void)x;
    return nn_attention(g, "a", 77, 1, true);
}
static nn_node no_name(nn_graph *g, nn_node x) {
    return nn_transformer_block(g, NULL, x, &(nn_transformer){.heads = 2});
}
static nn_node long_name(nn_graph *g, nn_node x) {
    char name[100];
    memset(name, 'n', sizeof name);
    name[99] = 0;
    return nn_transformer_block(g, name, x, &(nn_transformer){.heads = 2});
}
static nn_node bad_positions(nn_graph *g, nn_node x) {
    return nn_positions(g, "p", x, INFINITY);
}

static const struct {
    nn_node (*build)(nn_graph *g, nn_node x);
    const char *words;
} bad_graphs[] = {{odd_heads, "3 heads, expected a divisor of the width 4"},
                  {no_heads, "0 heads"},
                  {negative, "hidden -1"},
                  {no_function, "function 'gulu', expected one of sigmoid"},
                  {of_tokens, "attention takes sequences [batch, length, width], its input is 2x9"},
                  {other_widths, "inputs of different shape"},
                  {no_node, "input node 77"},
                  {no_name, "its name is missing"},
                  {long_name, "too long for the names of its nodes"},
                  {bad_positions, "deviation inf"}};

static void refuses(void) {
    for (size_t i = 0; i < sizeof bad_graphs / sizeof *bad_graphs; i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = BATCH, .seed = 1});
        nn_node x = nn_embedding(g, "embedding", nn_tokens(g, LENGTH, VOCABULARY), 4, 1);
        CHECK(bad_graphs[i].build(g, x) == -1 && strstr(tensor_error(), bad_graphs[i].words), "%zu: %s", i,
              tensor_error());
        nn_graph_free(g);
    }
    CHECK(nn_attention(NULL, "a", 0, 1, false) == -1 && nn_layernorm(NULL, "n", 0) == -1 &&
              nn_transformer_block(NULL, "b", 0, NULL) == -1 && nn_model_text(NULL, "gpt", 4, 5) == -1,
          "NULL");
}

int main(int argc, char **argv) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex16+5-sr"};
    const char *device = argc > 1 ? argv[1] : "toy";
    if (argc == 1 && !toy_begin((size_t)1 << 30))
        return check_skip("no memory for the toy device");
    CHECK(tensor_device_find(device), "%s", tensor_error());
    if (argc == 1) {
        against_formulas("gpt1x32", 1, 32);
        against_formulas("gpt2x64", 2, 64);
        gradients_of("fp16", 0.006);
        gradients_of("bf16", 0.04);
        gradients_of("flex16+5", 0.003);
        gradients_of("dfp16", 0.0015);
        names();
        refuses();
    }
    for (int k = 0; k < 6; k++) {
        if (argc == 1)
            sees_nothing_later(variants[k]);
        if (argc == 1 && k != 1)
            learns(variants[k]);
        goes_on(variants[k], device);
    }
    return check_summary();
}
