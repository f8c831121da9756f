/* Networks with LSTM and GRU layers: in every variant they learn labels that require a memory; a state, a checkpoint
 * and a device continue with the same bits; what is refused.
 *
 *     test_nn_recurrent [DEVICE]        the toy device; or DEVICE (cuda) */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/nn.h"
#include "toy_device.h"
#include <math.h>
#include <unistd.h>

enum { BATCH = 8, LENGTH = 9, ROWS = BATCH * LENGTH, VOCABULARY = 4, DELAY = 2 };

static uint64_t draws = 23;
static int32_t tokens[ROWS], labels[ROWS];

/* The label of a position is the token two positions before. */
static void draw_batch(void) {
    for (int i = 0; i < ROWS; i++)
        tokens[i] = (int32_t)(check_random(&draws) % VOCABULARY);
    for (int i = 0; i < ROWS; i++)
        labels[i] = i % LENGTH < DELAY ? 0 : tokens[i - DELAY];
}

typedef nn_node (*layer)(nn_graph *g, const char *name, nn_node x, int units);

static nn_graph *network(const char *variant, const char *device, layer first, layer second) {
    nn_graph *g =
        nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 5, .momentum = 0.9f, .device = device});
    nn_node x = first(g, "one", nn_embedding(g, "embedding", nn_tokens(g, LENGTH, VOCABULARY), 6, 1), 14);
    if (second)
        x = second(g, "two", x, 10);
    CHECK(!nn_compile(g, nn_linear(g, "head", x, VOCABULARY, false)), "%s %s: %s", variant, device, tensor_error());
    return g;
}

static double step(nn_graph *g, float rate) {
    double loss = NAN;
    draw_batch();
    CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, rate), "%s", tensor_error());
    return loss;
}

static void learns(const char *variant, layer first, const char *name) {
    nn_graph *g = network(variant, "cpu", first, NULL);
    const double begin = step(g, 0.3f);
    double loss = begin;
    for (int i = 0; i < 250; i++)
        loss = step(g, 0.3f);
    int32_t predicted[ROWS];
    double of_test;
    int right = 0;
    draw_batch();
    CHECK(!nn_evaluate(&of_test, predicted, g, &(nn_batch){.tokens = tokens, .labels = labels, .count = BATCH}), "%s",
          tensor_error());
    for (int i = 0; i < ROWS; i++)
        right += predicted[i] == labels[i];
    CHECK(begin > 1.2 && loss < 0.2 && of_test < 0.25 && right >= ROWS * 9 / 10,
          "%s %s: loss %.3f at first, %.3f then, %.3f in evaluation, %d of %d right", variant, name, begin, loss,
          of_test, right, ROWS);
    nn_graph_free(g);
}

/* Two graphs on the same batches, one of which continues from the state of the other. */
static void goes_on(const char *variant, const char *device, layer first, layer second) {
    char path[] = "/tmp/flexlab-recurrent-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0, "no file");
    nn_graph *a = network(variant, "cpu", first, second), *b = network(variant, device, first, second);
    for (int i = 0; i < 3; i++)
        step(a, 0.2f);
    CHECK(!nn_checkpoint_save(a, path, NULL, 0) && !nn_checkpoint_load(b, path), "%s", tensor_error());
    for (int i = 0; i < 5; i++) {
        const uint64_t before = draws;
        const double one = step(a, 0.2f);
        draws = before;
        const double other = step(b, 0.2f);
        CHECK(!memcmp(&one, &other, sizeof one), "%s step %d on %s: loss %.17g, %.17g on cpu", variant, i, device,
              other, one);
        int32_t here[ROWS], there[ROWS];
        double loss, loss_there;
        CHECK(!nn_evaluate(&loss, here, a, &(nn_batch){.tokens = tokens, .labels = labels, .count = 3}) &&
                  !nn_evaluate(&loss_there, there, b, &(nn_batch){.tokens = tokens, .labels = labels, .count = 3}),
              "%s", tensor_error());
        CHECK(!memcmp(&loss, &loss_there, sizeof loss) && !memcmp(here, there, 3 * LENGTH * sizeof *here),
              "%s evaluation %d on %s: %.17g, %.17g on cpu", variant, i, device, loss_there, loss);
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

static nn_node a_matrix(nn_graph *g) {
    return nn_lstm(g, "l", nn_linear(g, "fc", nn_input(g, 4, 3, 1), 5, false), 4);
}
static nn_node no_units(nn_graph *g) {
    return nn_gru(g, "l", nn_input(g, 4, 3, 1), 0);
}
static nn_node no_name(nn_graph *g) {
    return nn_gru(g, "", nn_input(g, 4, 3, 1), 2);
}
static nn_node name_twice(nn_graph *g) {
    return nn_gru(g, "l", nn_gru(g, "l", nn_input(g, 4, 3, 1), 2), 2);
}
static nn_node last_of_an_image(nn_graph *g) {
    return nn_last_step(g, "last", nn_input(g, 4, 3, 1));
}
static nn_node bare_tokens(nn_graph *g) {
    return nn_lstm(g, "l", nn_tokens(g, 4, 3), 4);
}
/* The cell has a handle between those of the gates and of the sequence. */
static nn_node the_cell(nn_graph *g) {
    const nn_node x = nn_lstm(g, "l", nn_input(g, 4, 3, 1), 3);
    nn_node y = nn_last_step(g, "last", x - 1);
    return nn_linear(g, "fc", nn_add(g, "sum", nn_last_step(g, "last2", x), y, true), 3, false);
}

static const struct {
    nn_node (*build)(nn_graph *g);
    const char *words;
} bad[] = {{a_matrix, "expected a sequence [batch, length, width]"},
           {no_units, "0 units, expected 1 to"},
           {no_name, "its name is missing"},
           {name_twice, "the name is used twice"},
           {last_of_an_image, "takes sequences [batch, length, width], its input is 4x"},
           {bare_tokens, "its input 'tokens' is tokens"},
           {the_cell, "'l.cell' is the layer's own"}};

static void refuses(void) {
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "dfp16", .batch = 4, .seed = 1});
        CHECK(nn_compile(g, bad[i].build(g)) && strstr(tensor_error(), bad[i].words), "%zu: %s", i, tensor_error());
        nn_graph_free(g);
    }
    CHECK(nn_lstm(NULL, "l", 0, 2) == -1 && nn_gru(NULL, "l", 0, 2) == -1 && nn_last_step(NULL, "l", 0) == -1, "NULL");
}

static const tensor *parameter(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    return NULL;
}

/* Weights of the states count as weights: if biases do not decay they do, and they are clipped. */
static void weights(void) {
    static const char *const decays[] = {"all", "weights"};
    const int32_t classes[2] = {0, 1};
    float images[2 * 4 * 3];
    nn_graph *g[2];
    const tensor *w[2], *bias[2];
    double most;
    for (int i = 0; i < 24; i++)
        images[i] = (float)(i % 7) / 4 - 0.5f;
    for (int k = 0; k < 2; k++) {
        g[k] = nn_graph_new(&(nn_config){
            .variant = "fp32", .batch = 2, .seed = 1, .optimiser = "adamw", .weight_decay = 0.5f, .decay = decays[k]});
        nn_node x = nn_lstm(g[k], "l", nn_input(g[k], 4, 3, 1), 5);
        x = nn_linear(g[k], "fc", nn_last_step(g[k], "last", x), 3, false);
        CHECK(!nn_compile(g[k], x) &&
                  !nn_train_step(NULL, NULL, g[k], &(nn_batch){.images = images, .labels = classes}, 0.1f),
              "%s", tensor_error());
        w[k] = parameter(g[k], "l.recurrent");
        bias[k] = parameter(g[k], "l.input.bias");
        CHECK(w[k] && bias[k], "no parameter");
    }
    CHECK(!memcmp(tensor_const_data(w[0]), tensor_const_data(w[1]), tensor_bytes(w[0])), "l.recurrent does not decay");
    CHECK(memcmp(tensor_const_data(bias[0]), tensor_const_data(bias[1]), tensor_bytes(bias[0])), "a bias decays");
    CHECK(!nn_clip_weights(g[0], 0.01f) && !tensor_max_abs(&most, w[0]) && most <= 0.0101, "%g after clipping", most);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

/* The models on characters: their numbers of parameters, and one step of each lowers the loss of its batch. */
static void models(void) {
    static const struct {
        const char *name;
        int64_t parameters;
    } known[] = {{"lstm-char", 349569}, {"gru-char", 268161}};
    static int32_t text[2 * 12], next[2 * 12];
    for (int i = 0; i < 24; i++) {
        text[i] = i * 7 % 65;
        next[i] = (i + 1) * 7 % 65;
    }
    for (int k = 0; k < 2; k++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 2, .seed = 1, .momentum = 0.9f});
        double first, loss = NAN;
        CHECK(nn_model_reads_text(known[k].name) && !nn_compile(g, nn_model_text(g, known[k].name, 12, 65)), "%s",
              tensor_error());
        CHECK(nn_parameter_count(g) == known[k].parameters, "%s: %lld parameters", known[k].name,
              (long long)nn_parameter_count(g));
        CHECK(!nn_train_step(&first, NULL, g, &(nn_batch){.tokens = text, .labels = next}, 0.1f), "%s", tensor_error());
        for (int i = 0; i < 5; i++)
            CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = text, .labels = next}, 0.1f), "%s",
                  tensor_error());
        CHECK(fabs(first - log(65)) < 0.2 && loss < first - 0.05, "%s: loss %.4f, then %.4f", known[k].name, first,
              loss);
        nn_graph_free(g);
    }
}

int main(int argc, char **argv) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex16+5-sr"};
    const char *device = argc > 1 ? argv[1] : "toy";
    if (argc == 1 && !toy_begin((size_t)1 << 30))
        return check_skip("no memory for the toy device");
    CHECK(tensor_device_find(device), "%s", tensor_error());
    for (int k = 0; k < 6 && argc == 1; k++) {
        learns(variants[k], nn_lstm, "lstm");
        learns(variants[k], nn_gru, "gru");
    }
    for (int k = 0; k < 6; k++) {
        goes_on(variants[k], "cpu", nn_lstm, nn_gru);
        goes_on(variants[k], device, nn_gru, nn_lstm);
    }
    refuses();
    weights();
    models();
    return check_summary();
}
