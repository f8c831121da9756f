/* The parts of a step, watchers, missing memory, and the state: moved from one process to another, the next steps are
 * those of an unbroken run, byte for byte. */
#include "check.h"
#include "flexlab/nn.h"
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 8, SIZE = 16, CLASSES = 5, STEPS = 10 };
static float images[BATCH * SIZE * SIZE * 3];
static int32_t labels[BATCH];

static nn_graph *network_of(const nn_config *config, const char *model) {
    nn_graph *g = nn_graph_new(config);
    CHECK(g && !nn_compile(g, nn_model(g, model, SIZE, SIZE, 3, CLASSES)), "%s", tensor_error());
    return g;
}

static nn_graph *network(const char *variant, const char *model) {
    return network_of(
        &(nn_config){.variant = variant, .batch = BATCH, .seed = 3, .momentum = 0.9f, .weight_decay = 1e-3f}, model);
}

static void new_batch(uint64_t step) {
    uint64_t seed = step + 1;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
}

/* Makes steps on the batches that follow from the steps made so far. */
static void train(nn_graph *g, int steps) {
    for (int i = 0; i < steps; i++) {
        new_batch(nn_steps(g));
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.05f), "%s",
              tensor_error());
    }
}

struct bytes {
    unsigned char *at;
    size_t n;
};

static struct bytes state_of(const nn_graph *g) {
    struct bytes s = {NULL, nn_state_bytes(g)};
    s.at = malloc(s.n);
    CHECK(s.n > 1000 && s.at && !nn_state_save(s.at, s.n, g), "%s", tensor_error());
    return s;
}

static void same_state(const char *what, const nn_graph *g, struct bytes want) {
    struct bytes got = state_of(g);
    size_t at = 0;
    while (at < want.n && at < got.n && want.at[at] == got.at[at])
        at++;
    CHECK(at == want.n && at == got.n, "%s: byte %zu of %zu differs", what, at, want.n);
    free(got.at);
}

/* --- into a fresh process: this program again, with the state on its standard input ------------------------------- */

static int continue_elsewhere(const char *variant, const char *model) {
    nn_graph *g = network(variant, model);
    struct bytes s = {malloc(nn_state_bytes(g)), nn_state_bytes(g)};
    if (fread(s.at, 1, s.n, stdin) != s.n || nn_state_restore(g, s.at, s.n)) {
        fprintf(stderr, "%s\n", tensor_error());
        return 1;
    }
    train(g, STEPS);
    const bool done = !nn_state_save(s.at, s.n, g) && fwrite(s.at, 1, s.n, stdout) == s.n && !fflush(stdout);
    free(s.at);
    nn_graph_free(g);
    return done && !check_failures ? 0 : 1;
}

static void move(const char *self, const char *variant, const char *model) {
    nn_graph *g = network(variant, model);
    train(g, STEPS);
    struct bytes s = state_of(g), after = {malloc(s.n), s.n};
    char in[] = "/tmp/flexlab-state-XXXXXX", out[] = "/tmp/flexlab-state-XXXXXX", command[1200];
    const int a = mkstemp(in), b = mkstemp(out);
    CHECK(a >= 0 && b >= 0 && write(a, s.at, s.n) == (ssize_t)s.n, "no file in /tmp");
    snprintf(command, sizeof command, "'%s' '%s' '%s' <%s >%s", self, variant, model, in, out);
    CHECK(system(command) == 0, "the other process failed: %s", command);
    FILE *file = fopen(out, "rb");
    CHECK(file && fread(after.at, 1, after.n, file) == after.n, "%s: no state came back", variant);
    if (file)
        fclose(file);
    close(a);
    close(b);
    unlink(in);
    unlink(out);
    train(g, STEPS); /* unbroken */
    char what[100];
    snprintf(what, sizeof what, "%s.%s in another process", variant, model);
    same_state(what, g, after);
    free(s.at);
    free(after.at);
    nn_graph_free(g);
}

/* --- within one process ------------------------------------------------------------------------------------------- */

/* Makes the step by its parts, with evaluations in between and a state that is saved and restored, against
 * nn_train_step. */
static void parts(const char *variant) {
    nn_graph *whole = network(variant, "resnet8"), *g = network(variant, "resnet8"),
             *other = network(variant, "resnet8");
    for (int step = 0; step < 4; step++) {
        double want, loss;
        int want_correct, correct;
        new_batch(nn_steps(whole));
        CHECK(!nn_train_step(&want, &want_correct, whole, &(nn_batch){.images = images, .labels = labels}, 0.05f), "%s",
              tensor_error());
        CHECK(!nn_evaluate(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = BATCH}), "%s",
              tensor_error());
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_loss(&loss, &correct, g) &&
                  !nn_backward(g) && !nn_update(g, 0.05f),
              "%s", tensor_error());
        CHECK(loss == want && correct == want_correct, "%s step %d: %a, %d right; in parts %a, %d", variant, step, want,
              want_correct, loss, correct);
    }
    /* evaluation has tensors of its own, whose counters differ: only weights are compared */
    CHECK(nn_steps(g) == 4 && nn_steps(whole) == 4, "%d steps", (int)nn_steps(g));
    struct bytes s = state_of(g);
    train(other, 1); /* the restored state replaces its earlier steps */
    CHECK(!nn_state_restore(other, s.at, s.n), "%s", tensor_error());
    same_state(variant, other, s);
    train(g, 3);
    train(other, 3);
    struct bytes later = state_of(g);
    same_state(variant, other, later);
    double logits[BATCH * CLASSES];
    int32_t predicted[BATCH];
    new_batch(77);
    CHECK(!nn_predict(logits, g, &(nn_batch){.images = images, .count = 5}) &&
              !nn_evaluate(NULL, predicted, g, &(nn_batch){.images = images, .labels = labels, .count = 5}),
          "%s", tensor_error());
    for (int i = 0; i < 5; i++) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            best = logits[i * CLASSES + c] > logits[i * CLASSES + best] ? c : best;
        CHECK(best == predicted[i], "image %d: logits say %d, predicted %d", i, best, predicted[i]);
    }
    free(s.at);
    free(later.at);
    nn_graph_free(whole);
    nn_graph_free(g);
    nn_graph_free(other);
}

/* Images as bytes give the results of the same images as floats, on another network of the same kind. */
static void bytes_of_images(const char *variant) {
    nn_graph *a = network(variant, "resnet8"), *b = network(variant, "resnet8");
    uint8_t pixels[BATCH * SIZE * SIZE * 3];
    float values[3 * 256];
    const double mean[3] = {0.4, 0.5, 0.6}, deviation[3] = {0.2, 0.3, 0.25};
    uint64_t random = 9;
    data_pixel_values(values, 3, mean, deviation);
    new_batch(0);
    CHECK(nn_forward(a, &(nn_batch){.pixels = pixels, .labels = labels}) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "nn_set_pixel_values"),
          "%s", tensor_error());
    CHECK(!nn_set_pixel_values(a, values), "%s", tensor_error());
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < sizeof pixels; i++) {
            pixels[i] = (uint8_t)check_random(&random);
            images[i] = values[i % 3 * 256 + pixels[i]];
        }
        double la, lb;
        CHECK(!nn_forward(a, &(nn_batch){.pixels = pixels, .labels = labels}) && !nn_backward(a) &&
                  !nn_update(a, 0.05f) && !nn_loss(&la, NULL, a),
              "%s", tensor_error());
        CHECK(!nn_train_step(&lb, NULL, b, &(nn_batch){.images = images, .labels = labels}, 0.05f) && la == lb,
              "%s: loss %a, of bytes %a", variant, lb, la);
    }
    struct bytes s = state_of(a);
    same_state("of bytes", b, s);
    values[300] = INFINITY;
    CHECK(nn_set_pixel_values(a, values) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "byte 44 of channel 1"), "%s",
          tensor_error());
    free(s.at);
    nn_graph_free(a);
    nn_graph_free(b);
}

static void refused(tensor_status got, tensor_status want, const char *part) {
    CHECK(got == want && strstr(tensor_error(), part), "status %d, '%s'; want %d, '%s'", (int)got, tensor_error(),
          (int)want, part);
}

/* Members of a batch that are missing, given twice or of the wrong kind are refused, and nothing of the network
 * changes. */
static void contradictions(nn_graph *g) {
    static const uint8_t pixels[BATCH * 768];
    static const int64_t indices[BATCH];
    static const tensor_augmentation augmentation = {1, 0};
    const int32_t token = 0;
    const float target = 0;
    const struct {
        nn_batch batch;
        const char *words;
    } bad[] = {
        {{.labels = labels}, "the batch has no inputs, expected images, pixels or indices"},
        {{.images = images, .pixels = pixels, .labels = labels},
         "the batch has images and pixels, expected one kind of inputs"},
        {{.images = images, .indices = indices, .labels = labels},
         "the batch has images and indices, expected one kind of inputs"},
        {{.tokens = &token, .labels = labels}, "the batch has tokens, but the input of the network is images"},
        {{.indices = indices, .labels = labels}, "indices and no data (nn_data_new), expected both or neither"},
        {{.images = images, .labels = labels, .augmentation = &augmentation}, "an augmentation, which is for training"},
        {{.images = images}, "the batch has no labels, which loss cross_entropy takes"},
        {{.images = images, .labels = labels, .targets = &target}, "targets, but loss cross_entropy takes labels"},
        {{.pixels = pixels, .labels = labels}, "nn_set_pixel_values has not said what they mean"},
        {{.images = images, .labels = labels, .count = BATCH - 1}, "7 images, expected a whole batch of 8"},
        {{.images = images, .labels = labels, .count = -2}, "-2 images, expected a whole batch of 8"}};
    struct bytes before = state_of(g);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double loss = -7;
        refused(nn_forward(g, &bad[i].batch), TENSOR_E_ARGUMENT, bad[i].words);
        refused(nn_train_step(&loss, NULL, g, &bad[i].batch, 0.1f), TENSOR_E_ARGUMENT, bad[i].words);
        CHECK(loss == -7, "a refused step wrote its loss, %g", loss);
    }
    refused(nn_forward(g, NULL), TENSOR_E_ARGUMENT, "the batch is NULL");
    refused(nn_evaluate(NULL, NULL, g, NULL), TENSOR_E_ARGUMENT, "the batch is NULL");
    refused(nn_predict((double[1]){0}, NULL, &(nn_batch){.images = images}), TENSOR_E_ARGUMENT, "the graph is NULL");
    refused(nn_predict(NULL, g, &(nn_batch){.images = images}), TENSOR_E_ARGUMENT, "logits is NULL");
    same_state("a batch that does not suit", g, before);
    free(before.at);
    /* a count of 0 is the whole batch, and a prediction reads no labels */
    static double whole[BATCH * CLASSES], same[BATCH * CLASSES];
    CHECK(!nn_predict(whole, g, &(nn_batch){.images = images, .count = BATCH}) &&
              !nn_predict(same, g, &(nn_batch){.images = images, .labels = labels}) &&
              !memcmp(whole, same, sizeof whole),
          "a count of 0: %s", tensor_error());
}

static void order(void) {
    nn_graph *g = network("dfp16", "mlp2"), *half = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1});
    new_batch(1);
    refused(nn_backward(g), TENSOR_E_ARGUMENT, "no forward pass");
    refused(nn_update(g, 0.1f), TENSOR_E_ARGUMENT, "no backward pass");
    double nothing;
    refused(nn_loss(&nothing, NULL, g), TENSOR_E_ARGUMENT, "no forward pass");
    labels[3] = CLASSES;
    struct bytes before = state_of(g);
    refused(nn_forward(g, &(nn_batch){.images = images, .labels = labels}), TENSOR_E_ARGUMENT,
            "label 3 is 5, expected 0 to 4");
    same_state("a label out of range", g, before);
    free(before.at);
    new_batch(1);
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}), "%s", tensor_error());
    refused(nn_update(g, 0.1f), TENSOR_E_ARGUMENT, "no backward pass");
    CHECK(!nn_evaluate(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 2}), "%s",
          tensor_error());
    refused(nn_backward(g), TENSOR_E_ARGUMENT, "still exist"); /* the evaluation has overwritten the memory */
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g), "%s", tensor_error());
    CHECK(!nn_evaluate(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 2}), "%s",
          tensor_error()); /* gradients have memory of their own */
    refused(nn_backward(g), TENSOR_E_ARGUMENT, "no forward pass");
    refused(nn_update(g, NAN), TENSOR_E_ARGUMENT, "learning rate: nan");
    CHECK(!nn_update(g, 0.1f), "%s", tensor_error());
    refused(nn_update(g, 0.1f), TENSOR_E_ARGUMENT, "no backward pass");
    refused(nn_forward(half, &(nn_batch){.images = images, .labels = labels}), TENSOR_E_ARGUMENT, "not compiled");
    refused(nn_loss(NULL, NULL, half), TENSOR_E_ARGUMENT, "not compiled");
    refused(nn_predict((double[1]){0}, g, &(nn_batch){.images = images, .count = BATCH + 1}), TENSOR_E_ARGUMENT,
            "9 images, expected 1 ... 8");
    refused(nn_predict((double[1]){0}, g, &(nn_batch){.count = 1}), TENSOR_E_ARGUMENT,
            "the batch has no inputs, expected images, pixels or indices");
    contradictions(g);
    CHECK(!nn_state_bytes(half) && !nn_state_bytes(NULL) && !nn_steps(NULL), "the state of nothing");
    nn_graph_free(half);
    nn_graph_free(g);
}

static void wrong_states(void) {
    nn_graph *g = network("flex16+5", "mlp2");
    train(g, 2);
    struct bytes s = state_of(g), bad = {malloc(s.n), s.n};
    refused(nn_state_restore(g, s.at, s.n - 1), TENSOR_E_ARGUMENT, "bytes, expected");
    refused(nn_state_save(NULL, s.n, g), TENSOR_E_ARGUMENT, "NULL");
    memset(bad.at, 0, bad.n);
    refused(nn_state_restore(g, bad.at, bad.n), TENSOR_E_DATA, "does not begin");
    nn_graph *dfp = network("dfp16", "mlp2"),
             *seed = network_of(
                 &(nn_config){
                     .variant = "flex16+5", .batch = BATCH, .seed = 4, .momentum = 0.9f, .weight_decay = 1e-3f},
                 "mlp2");
    struct bytes other = state_of(dfp), another = state_of(seed);
    refused(nn_state_restore(g, other.at, other.n), TENSOR_E_DATA, "to a network in dfp16, this one is in flex16+5");
    refused(nn_state_restore(g, another.at, another.n), TENSOR_E_DATA, "other layers or settings");
    /* any byte may be damaged: the result is an error that leaves everything as it was, or a valid state */
    uint64_t random = 5;
    int refusals = 0;
    for (int i = 0; i < 3000; i++) {
        memcpy(bad.at, s.at, s.n);
        const size_t at = i < 400 ? (size_t)i : check_random(&random) % s.n;
        bad.at[at] ^= (unsigned char)(1 + check_random(&random) % 255);
        if (nn_state_restore(g, bad.at, bad.n)) {
            refusals++;
            if (i % 20 == 0)
                same_state("after a refused state", g, s);
        } else {
            CHECK(!nn_state_restore(g, s.at, s.n), "%s", tensor_error());
        }
    }
    CHECK(refusals > 100, "only %d damaged states of 3000 were refused", refusals);
    same_state("in the end", g, s);
    /* the same names and shapes with other layers between them */
    nn_graph *relu[2];
    for (int i = 0; i < 2; i++) {
        relu[i] = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 2});
        nn_node x = nn_batchnorm(relu[i], "norm", nn_input(relu[i], 4, 4, 2), &(nn_batchnorm_options){.relu = i});
        CHECK(!nn_compile(relu[i], nn_linear(relu[i], "fc", x, 2, false)), "%s", tensor_error());
    }
    struct bytes without = state_of(relu[0]);
    refused(nn_state_restore(relu[1], without.at, without.n), TENSOR_E_DATA, "other layers or settings");
    free(without.at);
    nn_graph_free(relu[0]);
    nn_graph_free(relu[1]);
    unsigned char *all[] = {s.at, bad.at, other.at, another.at};
    for (int i = 0; i < 4; i++)
        free(all[i]);
    nn_graph_free(g);
    nn_graph_free(dfp);
    nn_graph_free(seed);
}

/* --- watchers ----------------------------------------------------------------------------------------------------- */

struct seen {
    const nn_graph *g;
    int count;
    int times[400];
    tensor_stats last[400];
};

static void watch(const nn_tensor_info *info, void *context) {
    struct seen *seen = context;
    static double values[1 << 16];
    const int64_t n = tensor_count(info->t);
    int i = 0;
    while (strcmp(nn_tensor_at(seen->g, i).name, info->name) != 0)
        i++;
    seen->times[i]++;
    seen->count++;
    CHECK(n <= 1 << 16 && !tensor_store_f64(info->t, values, n), "%s: %s", info->name, tensor_error());
    double largest = 0;
    for (int64_t k = 0; k < n; k++)
        largest = fmax(largest, fabs(values[k]));
    CHECK(!tensor_statistics(&seen->last[i], NULL, info->t), "%s", tensor_error());
    const double gamma = ldexp(seen->last[i].gamma, -tensor_exponent(info->t));
    CHECK(!tensor_format_is_shared(tensor_format_of(info->t)) || largest == gamma,
          "%s: largest element %a, statistics say %a: seen at another time", info->name, largest, gamma);
}

static void watching(const char *variant) {
    nn_graph *g = network(variant, "resnet8"), *blind = network(variant, "resnet8");
    static struct seen seen;
    seen = (struct seen){.g = g};
    CHECK(!nn_watch(g, watch, &seen), "%s", tensor_error());
    train(g, 2);
    train(blind, 2);
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        CHECK(seen.times[i] == 2, "%s %s was seen %d times in 2 steps", info.role, info.name, seen.times[i]);
        const bool kept =
            !strcmp(info.role, "weight") || !strcmp(info.role, "momentum") || !strcmp(info.role, "weight gradient");
        CHECK(!tensor_const_data(info.t) == !kept, "%s %s after the step", info.role, info.name);
        double one[1];
        tensor *y = tensor_new(
            tensor_format_of(info.t), tensor_ndim(info.t),
            (int64_t[4]){tensor_dim(info.t, 0), tensor_dim(info.t, 1), tensor_dim(info.t, 2), tensor_dim(info.t, 3)});
        if (!kept) {
            refused(tensor_relu(y, info.t), TENSOR_E_ARGUMENT, "elements are gone");
            refused(tensor_sum(one, info.t), TENSOR_E_ARGUMENT, "elements are gone");
            refused(tensor_load_f64(info.t, one, tensor_count(info.t)), TENSOR_E_ARGUMENT, "elements are gone");
        }
        tensor_free(y);
        if (!kept)
            refused(tensor_store_f64(info.t, one, tensor_count(info.t)), TENSOR_E_ARGUMENT, "nn_watch");
        tensor_stats now;
        CHECK(!tensor_statistics(&now, NULL, info.t) && !memcmp(&now, &seen.last[i], sizeof now), "%s: statistics",
              info.name);
    }
    struct bytes s = state_of(blind);
    same_state("watched", g, s);
    CHECK(!nn_watch(g, NULL, NULL), "%s", tensor_error());
    const int before = seen.count;
    train(g, 1);
    CHECK(seen.count == before, "still watched");
    free(s.at);
    nn_graph_free(g);
    nn_graph_free(blind);
}

/* A training of a network that the caller builds equals that of the same network by name. */
static nn_node build(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    ++*(int *)context;
    return nn_linear(g, "fc2", nn_linear(g, "fc1", nn_input(g, height, width, channels), 128, true), classes, false);
}

static nn_node other_images(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    (void)channels, (void)context;
    return nn_linear(g, "fc", nn_input(g, 2 * height, width, 1), classes, false);
}

static nn_node few_classes(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    (void)context;
    return nn_linear(g, "fc", nn_input(g, height, width, channels), classes - 1, false);
}

static void training(void) {
    data_set *set = data_open("synthetic:train=96", DATA_TRAIN);
    nn_train_config config = {.network = {.variant = "flex16+5", .batch = 16, .seed = 2, .momentum = 0.9f},
                              .model = "mlp2",
                              .epochs = 2,
                              .rate = 0.01,
                              .schedule = "constant"};
    nn_train_result named, own;
    int calls = 0;
    CHECK(!nn_train(&named, &config, set, NULL, NULL), "%s", tensor_error());
    config.model = NULL;
    refused(nn_train(&own, &config, set, NULL, NULL), TENSOR_E_ARGUMENT, "model NULL");
    config.build = build;
    config.build_context = &calls;
    config.build = other_images;
    refused(nn_train(&own, &config, set, NULL, NULL), TENSOR_E_SHAPE, "images of 64x32x1, the data has 32x32x3");
    config.build = few_classes;
    refused(nn_train(&own, &config, set, NULL, NULL), TENSOR_E_SHAPE, "9 classes, the data 10");
    config.build = build;
    CHECK(!nn_train(&own, &config, set, NULL, NULL) && calls == 1, "%s", tensor_error());
    CHECK(own.train_loss == named.train_loss && own.parameters == named.parameters, "loss %a, by name %a",
          own.train_loss, named.train_loss);
    nn_train_result_clear(&named);
    nn_train_result_clear(&own);
    data_free(set);
}

int main(int argc, char **argv) {
    if (argc == 3)
        return continue_elsewhere(argv[1], argv[2]);
    order();
    wrong_states();
    training();
    for (int i = 0; nn_variant_at(i); i++) {
        const char *variant = nn_variant_at(i)->name;
        parts(variant);
        bytes_of_images(variant);
        move(argv[0], variant, i % 2 ? "mlp2" : "resnet8");
        watching(variant);
    }
    return check_summary();
}
