/* Networks whose input is tokens: losses, predictions and gradients of an embedding and a linear layer against formulas
 * in double, every format against fp32, parts of batches, states and checkpoints, a device against the processor, and
 * what is refused.
 *
 *     test_nn_tokens [DEVICE]        the toy device; or DEVICE (cuda) */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/nn.h"
#include "toy_device.h"
#include <math.h>
#include <unistd.h>

enum { BATCH = 3, LENGTH = 7, ROWS = BATCH * LENGTH, VOCABULARY = 11, WIDTH = 5, STEPS = 6 };

static uint64_t draws = 17;
static int32_t tokens[ROWS], labels[ROWS];

static void draw_batch(void) {
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = (int32_t)(check_random(&draws) % VOCABULARY);
        labels[i] = (int32_t)(check_random(&draws) % VOCABULARY);
    }
}

static nn_graph *network(const char *variant, const char *device) {
    nn_graph *g =
        nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 5, .momentum = 0.9f, .device = device});
    nn_node x = nn_embedding(g, "embedding", nn_tokens(g, LENGTH, VOCABULARY), WIDTH, 0.5);
    CHECK(!nn_compile(g, nn_linear(g, "head", x, VOCABULARY, false)), "%s %s: %s", variant, device, tensor_error());
    CHECK(nn_label_count(g) == ROWS, "%lld labels", (long long)nn_label_count(g));
    return g;
}

static tensor *find(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    CHECK(false, "no tensor %s", name);
    return NULL;
}

static void values_of(const nn_graph *g, const char *name, double *values, int64_t count) {
    const tensor *t = find(g, name);
    CHECK(t && tensor_count(t) == count && !tensor_store_f64(t, values, count), "%s: %s", name, tensor_error());
}

/* --- the same in double ------------------------------------------------------------------------------------------- */

struct expected {
    double logits[ROWS][VOCABULARY], loss;
    double dtable[VOCABULARY][WIDTH], dweight[WIDTH][VOCABULARY], dbias[VOCABULARY];
    int predicted[ROWS], correct;
};

/* Expects means over the first `rows` positions. */
static void expect(struct expected *e, const nn_graph *g, int rows) {
    double table[VOCABULARY][WIDTH], weight[WIDTH][VOCABULARY], bias[VOCABULARY];
    values_of(g, "embedding.weight", &table[0][0], VOCABULARY * WIDTH);
    values_of(g, "head.weight", &weight[0][0], WIDTH * VOCABULARY);
    values_of(g, "head.bias", bias, VOCABULARY);
    *e = (struct expected){0};
    for (int r = 0; r < rows; r++) {
        const double *x = table[tokens[r]];
        double sum = 0;
        for (int c = 0; c < VOCABULARY; c++) {
            e->logits[r][c] = bias[c];
            for (int k = 0; k < WIDTH; k++)
                e->logits[r][c] += x[k] * weight[k][c];
            sum += exp(e->logits[r][c]);
            if (e->logits[r][c] > e->logits[r][e->predicted[r]])
                e->predicted[r] = c;
        }
        e->correct += e->predicted[r] == labels[r];
        e->loss += (log(sum) - e->logits[r][labels[r]]) / rows;
        for (int c = 0; c < VOCABULARY; c++) {
            const double slope = (exp(e->logits[r][c]) / sum - (c == labels[r])) / rows;
            e->dbias[c] += slope;
            for (int k = 0; k < WIDTH; k++) {
                e->dweight[k][c] += slope * x[k];
                e->dtable[tokens[r]][k] += slope * weight[k][c];
            }
        }
    }
}

static void close_to(const char *what, const char *name, const double *got, const double *want, int count,
                     double bound) {
    for (int i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= bound, "%s %s[%d]: %.9g, expected %.9g within %.3g", what, name, i, got[i],
              want[i], bound);
}

static void gradients(const char *what, const nn_graph *g, const struct expected *e, double bound) {
    double got[VOCABULARY * WIDTH];
    values_of(g, "embedding.weight.grad", got, VOCABULARY * WIDTH);
    close_to(what, "embedding.weight.grad", got, &e->dtable[0][0], VOCABULARY * WIDTH, bound);
    values_of(g, "head.weight.grad", got, VOCABULARY * WIDTH);
    close_to(what, "head.weight.grad", got, &e->dweight[0][0], VOCABULARY * WIDTH, bound);
    values_of(g, "head.bias.grad", got, VOCABULARY);
    close_to(what, "head.bias.grad", got, e->dbias, VOCABULARY, bound);
}

/* Values are below 4: logits are sums of at most six such terms, with errors of a few units in the last place of the
 * format (2^-24, 2^-11, 2^-8; of 16-bit mantissas 2^-13, and coarser while exponents are being found), and so are those
 * of losses and gradients. */
static void against_formulas(const char *variant, double bound) {
    nn_graph *g = network(variant, "cpu");
    struct expected e;
    for (int step = 0; step < STEPS; step++) {
        double loss = NAN;
        int correct = -1;
        draw_batch();
        expect(&e, g, ROWS);
        CHECK(!nn_forward(g, &(nn_batch){.tokens = tokens, .labels = labels}) && !nn_loss(&loss, &correct, g), "%s",
              tensor_error());
        CHECK(fabs(loss - e.loss) <= bound, "%s step %d: loss %.9g, expected %.9g", variant, step, loss, e.loss);
        if (!strcmp(variant, "fp32"))
            CHECK(correct == e.correct, "step %d: %d right, expected %d", step, correct, e.correct);
        CHECK(!nn_backward(g), "%s", tensor_error());
        gradients(variant, g, &e, bound);
        CHECK(!nn_update(g, 0.5f), "%s", tensor_error());
    }
    nn_graph_free(g);
}

static void parts_of_batches(void) {
    nn_graph *g = network("fp32", "cpu");
    struct expected e;
    draw_batch();
    for (int count = 1; count <= BATCH; count++) {
        int32_t predicted[ROWS];
        double loss = NAN, logits[ROWS * VOCABULARY];
        memset(predicted, 77, sizeof predicted);
        expect(&e, g, count * LENGTH);
        CHECK(!nn_evaluate(&loss, predicted, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = count}), "%s",
              tensor_error());
        CHECK(fabs(loss - e.loss) <= 1e-5, "%d sequences: loss %.9g, expected %.9g", count, loss, e.loss);
        for (int r = 0; r < ROWS; r++)
            CHECK(predicted[r] == (r < count * LENGTH ? e.predicted[r] : 0x4D4D4D4D), "%d sequences: row %d is %d",
                  count, r, predicted[r]);
        logits[count * LENGTH * VOCABULARY - 1] = NAN;
        CHECK(!nn_predict(logits, g, &(nn_batch){.tokens = tokens, .count = count}), "%s", tensor_error());
        close_to("predict", "logits", logits, &e.logits[0][0], count * LENGTH * VOCABULARY, 1e-5);
    }
    nn_graph_free(g);
}

/* --- state, checkpoints, devices ---------------------------------------------------------------------------------- */

static double step(nn_graph *g) {
    double loss = NAN;
    draw_batch();
    CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0.25f), "%s", tensor_error());
    return loss;
}

/* Two graphs on the same batches, one of which continues from the state of the other. */
static void goes_on(const char *variant, const char *device) {
    char path[] = "/tmp/flexlab-tokens-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0, "no file");
    nn_graph *a = network(variant, "cpu"), *b = network(variant, device), *c = nn_checkpoint_graph(path, device);
    CHECK(!c, "an empty file");
    for (int i = 0; i < 3; i++)
        step(a);
    CHECK(!nn_checkpoint_save(a, path, NULL, 0) && !nn_checkpoint_load(b, path), "%s", tensor_error());
    c = nn_checkpoint_graph(path, "cpu");
    nn_node x = nn_embedding(c, "embedding", nn_tokens(c, LENGTH + 1, VOCABULARY), WIDTH, 0.5);
    CHECK(nn_compile(c, nn_linear(c, "head", x, VOCABULARY, false)) == TENSOR_E_DATA &&
              strstr(tensor_error(), "'embedding.slot' tells of"),
          "a longer context: %s", tensor_error());
    nn_graph_free(c);
    for (int i = 0; i < STEPS; i++) {
        const uint64_t before = draws;
        const double first = step(a);
        draws = before;
        const double second = step(b);
        CHECK(!memcmp(&first, &second, sizeof first), "%s step %d on %s: loss %.17g, %.17g on cpu", variant, i, device,
              second, first);
        int32_t here[ROWS], there[ROWS];
        double loss = NAN, other = NAN;
        CHECK(!nn_evaluate(&loss, here, a, &(nn_batch){.tokens = tokens, .labels = labels, .count = 2}) &&
                  !nn_evaluate(&other, there, b, &(nn_batch){.tokens = tokens, .labels = labels, .count = 2}),
              "%s", tensor_error());
        CHECK(!memcmp(&loss, &other, sizeof loss) && !memcmp(here, there, 2 * LENGTH * sizeof *here),
              "%s evaluation %d on %s: %.17g, %.17g on cpu", variant, i, device, other, loss);
    }
    const size_t bytes = nn_state_bytes(a);
    char *one = malloc(bytes), *other = malloc(bytes);
    CHECK(bytes && nn_state_bytes(b) == bytes && !nn_state_save(one, bytes, a) && !nn_state_save(other, bytes, b), "%s",
          tensor_error());
    CHECK(!memcmp(one, other, bytes), "%s on %s: states differ", variant, device);
    free(one);
    free(other);
    nn_graph_free(a);
    nn_graph_free(b);
    close(file);
    unlink(path);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), "%s: %s, expected '%s'", #call, tensor_error(), words)

static void bad_steps(const char *device) {
    static float images[ROWS];
    static uint8_t pixels[ROWS];
    nn_graph *g = network("flex16+5", device);
    double loss = NAN;
    draw_batch();
    REFUSED(nn_forward(g, &(nn_batch){.images = images, .labels = labels}), TENSOR_E_ARGUMENT,
            "but the input of the network is tokens");
    REFUSED(nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0), TENSOR_E_ARGUMENT,
            "but the input of the network is tokens");
    REFUSED(nn_evaluate(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 1}), TENSOR_E_ARGUMENT,
            "but the input of the network is tokens");
    REFUSED(nn_predict(&loss, g, &(nn_batch){.images = images, .count = 1}), TENSOR_E_ARGUMENT,
            "but the input of the network is tokens");
    REFUSED(nn_set_pixel_values(g, images), TENSOR_E_ARGUMENT, "but the input of the network is tokens");
    REFUSED(nn_forward(g, &(nn_batch){.pixels = pixels, .labels = labels}), TENSOR_E_ARGUMENT,
            "but the input of the network is tokens");
    data_set *set = data_new(pixels, labels, 1, 1, 1, 1, VOCABULARY);
    CHECK(!nn_data_new(g, set) && strstr(tensor_error(), "but the input of the network is tokens"), "%s",
          tensor_error());
    data_free(set);
    REFUSED(nn_evaluate(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = BATCH + 1}),
            TENSOR_E_ARGUMENT, "4 sequences");
    REFUSED(nn_evaluate(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = -1}),
            TENSOR_E_ARGUMENT, "-1 sequences, expected 1 ... 3");
    REFUSED(nn_predict(NULL, g, &(nn_batch){.tokens = tokens, .count = 1}), TENSOR_E_ARGUMENT, "logits is NULL");
    REFUSED(nn_forward(g, &(nn_batch){.labels = labels}), TENSOR_E_ARGUMENT,
            "the batch has no inputs, expected tokens");
    REFUSED(nn_train_step(NULL, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, -1), TENSOR_E_ARGUMENT,
            "learning rate");
    tokens[ROWS - 1] = VOCABULARY;
    REFUSED(nn_forward(g, &(nn_batch){.tokens = tokens, .labels = labels}), TENSOR_E_ARGUMENT,
            "token 20 is 11, expected 0 to 10");
    CHECK(!nn_evaluate(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = BATCH - 1}),
          "the wrong one is not among them");
    tokens[ROWS - 1] = -1;
    REFUSED(nn_predict(&loss, g, &(nn_batch){.tokens = tokens, .count = BATCH}), TENSOR_E_ARGUMENT, "token 20 is -1");
    tokens[ROWS - 1] = 0;
    labels[ROWS - 1] = VOCABULARY;
    REFUSED(nn_forward(g, &(nn_batch){.tokens = tokens, .labels = labels}), TENSOR_E_ARGUMENT,
            "label 20 is 11, expected 0 to 10");
    labels[ROWS - 1] =
        0; /* it is refused before anything is computed, and an evaluation leaves the forward pass as it is */
    CHECK(!nn_forward(g, &(nn_batch){.tokens = tokens, .labels = labels}), "%s", tensor_error());
    labels[ROWS - 1] = VOCABULARY;
    REFUSED(nn_evaluate(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = BATCH}),
            TENSOR_E_ARGUMENT, "label 20 is 11");
    CHECK(!nn_backward(g) &&
              !nn_evaluate(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = BATCH - 1}),
          "%s", tensor_error());
    nn_graph_free(g);
    g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 2, .seed = 1, .device = device});
    CHECK(!nn_compile(g, nn_linear(g, "fc", nn_input(g, 2, 2, 1), 3, false)) && nn_label_count(g) == 2, "%s",
          tensor_error());
    REFUSED(nn_forward(g, &(nn_batch){.tokens = tokens, .labels = labels}), TENSOR_E_ARGUMENT,
            "but the input of the network is images");
    REFUSED(nn_evaluate(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = 1}), TENSOR_E_ARGUMENT,
            "but the input of the network is images");
    set = data_new_tokens((const int32_t[]){0, 1, 0, 1, 0}, 5, 3);
    CHECK(!nn_data_new(g, set), "a text");
    data_free(set);
    nn_graph_free(g);
}

static nn_node tokens_twice(nn_graph *g) {
    return nn_tokens(g, 2 + 0 * nn_tokens(g, 2, 3), 3);
}
static nn_node no_tokens(nn_graph *g) {
    return nn_embedding(g, "e", nn_input(g, 2, 2, 1), 4, 1);
}
static nn_node embedded_twice(nn_graph *g) {
    return nn_embedding(g, "e", nn_embedding(g, "d", nn_tokens(g, 2, 3), 4, 1), 4, 1);
}
static nn_node tokens_in_arithmetic(nn_graph *g) {
    return nn_linear(g, "fc", nn_tokens(g, 2, 3), 4, false);
}
static nn_node tokens_as_logits(nn_graph *g) {
    return nn_tokens(g, 2, 3);
}
static nn_node no_width(nn_graph *g) {
    return nn_embedding(g, "e", nn_tokens(g, 2, 3), 0, 1);
}
static nn_node no_deviation(nn_graph *g) {
    return nn_embedding(g, "e", nn_tokens(g, 2, 3), 4, NAN);
}
static nn_node no_length(nn_graph *g) {
    return nn_tokens(g, 0, 3);
}
static nn_node one_class(nn_graph *g) {
    return nn_linear(g, "fc", nn_embedding(g, "e", nn_tokens(g, 2, 3), 4, 1), 1, false);
}
static nn_node far_too_large(nn_graph *g) {
    return nn_embedding(g, "e", nn_tokens(g, 1 << 30, 1 << 30), 1 << 30, 1);
}

static const struct {
    nn_node (*build)(nn_graph *g);
    const char *words;
} bad_graphs[] = {
    {tokens_twice, "comes first"},      {no_tokens, "takes tokens (nn_tokens), its input 'input' is none"},
    {embedded_twice, "takes tokens"},   {tokens_in_arithmetic, "its input 'tokens' is tokens"},
    {tokens_as_logits, "not a matrix"}, {no_width, "0 outputs"},
    {no_deviation, "deviation nan"},    {no_length, "length 0"},
    {one_class, "at least 2 columns"},  {far_too_large, "elements, expected less than 2^40"}};

static void refuses_graphs(void) {
    for (size_t i = 0; i < sizeof bad_graphs / sizeof *bad_graphs; i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "dfp16", .batch = 2, .seed = 1});
        CHECK(nn_compile(g, bad_graphs[i].build(g)) && strstr(tensor_error(), bad_graphs[i].words), "%zu: %s", i,
              tensor_error());
        nn_graph_free(g);
    }
    CHECK(nn_label_count(NULL) == 0 && nn_tokens(NULL, 2, 3) == -1 && nn_embedding(NULL, "e", 0, 2, 1) == -1, "NULL");
}

int main(int argc, char **argv) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex16+5-sr"};
    const char *device = argc > 1 ? argv[1] : "toy";
    if (argc == 1 && !toy_begin((size_t)1 << 30))
        return check_skip("no memory for the toy device");
    CHECK(tensor_device_find(device), "%s", tensor_error());
    against_formulas("fp32", 1e-6);
    against_formulas("fp16", 4e-3);
    against_formulas("bf16", 3e-2);
    against_formulas("flex16+5", 2e-3);
    against_formulas("dfp16", 2e-3);
    parts_of_batches();
    refuses_graphs();
    for (int k = 0; k < 6; k++) {
        goes_on(variants[k], "cpu");
        goes_on(variants[k], device);
    }
    bad_steps("cpu");
    bad_steps(device);
    return check_summary();
}
