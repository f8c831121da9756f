/* Trainings on texts: reports against a recount, resuming after a stop byte for byte, on a device with the processor's
 * bits, networks of the caller, what is refused.
 *
 *     test_nn_text [DEVICE]        the toy device; or DEVICE (cuda) */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "toy_device.h"
#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VOCABULARY = 11, TRAIN = 700, TEST = 120, BATCH = 4, CONTEXT = 12, EPOCHS = 3 };
/* After an offset of up to a context; the test text has none. */
enum { EPOCH_STEPS = (TRAIN - CONTEXT) / CONTEXT / BATCH, WINDOWS = (TEST - 1) / CONTEXT, LABELS = WINDOWS * CONTEXT };

static char place[200];
static int64_t steps = EPOCHS * EPOCH_STEPS;

/* The successor of a token t is mostly 3 t + 1. */
static data_set *text(int64_t count, uint64_t seed) {
    int32_t *tokens = malloc((size_t)count * sizeof *tokens);
    for (int64_t i = 0; i < count; i++) {
        const int32_t drawn = (int32_t)(check_random(&seed) % VOCABULARY);
        const bool noise = check_random(&seed) % 16 == 0;
        tokens[i] = !i || noise ? drawn : (3 * tokens[i - 1] + 1) % VOCABULARY;
    }
    data_set *set = data_new_tokens(tokens, count, VOCABULARY);
    CHECK(set, "%s", tensor_error());
    free(tokens);
    return set;
}

static const char *path_of(const char *folder, const char *name) {
    static char paths[8][300];
    static int next;
    next = (next + 1) % 8;
    snprintf(paths[next], sizeof paths[next], "%s/%s%s%s", place, folder, *name ? "/" : "", name);
    return paths[next];
}

struct told {
    double loss[EPOCHS * EPOCH_STEPS];
    nn_epoch_report epochs[EPOCHS];
    int steps, epoch_count, stop_at;
};

static int on_step(void *context, const nn_step_report *r) {
    struct told *t = context;
    CHECK(r->step == t->steps + 1 && r->steps == steps && r->images == r->step * BATCH,
          "step %lld of %lld after %d, %lld sequences", (long long)r->step, (long long)r->steps, t->steps,
          (long long)r->images);
    t->loss[t->steps++] = r->loss;
    return r->step == t->stop_at;
}

static int on_epoch(void *context, const nn_epoch_report *r) {
    struct told *t = context;
    t->epochs[t->epoch_count++] = *r;
    return 0;
}

static const void *keep(void *context, size_t *bytes) {
    *bytes = sizeof(struct told);
    return context;
}

static int take_back(void *context, const void *bytes, size_t count) {
    struct told *t = context;
    const int stop_at = t->stop_at;
    memcpy(t, bytes, count);
    t->stop_at = stop_at;
    return count != sizeof *t;
}

static nn_train_config config_of(const char *variant, const char *device) {
    return (nn_train_config){.network = {.variant = variant,
                                         .batch = BATCH,
                                         .seed = 9,
                                         .optimiser = "adamw",
                                         .weight_decay = 0.01f,
                                         .device = device},
                             .model = "gpt1x32",
                             .epochs = EPOCHS,
                             .max_steps = steps,
                             .rate = 0.01,
                             .schedule = "cosine",
                             .augment = true,
                             .average_last = 5,
                             .trace_every = 4,
                             .context = CONTEXT};
}

static nn_train_events events_of(struct told *told) {
    return (nn_train_events){on_step, on_epoch, told, keep, take_back};
}

/* --- what is reported --------------------------------------------------------------------------------------------- */

/* The loss of the test text by the network that the training left, excerpt after excerpt. */
static double recount(const char *folder, const data_set *test, const int32_t *predicted, double *accuracy) {
    nn_graph *g = nn_checkpoint_graph(path_of(folder, "last.safetensors"), "cpu");
    CHECK(!nn_compile(g, nn_model_text(g, "gpt1x32", CONTEXT, VOCABULARY)) &&
              !nn_checkpoint_load(g, path_of(folder, "last.safetensors")),
          "%s", tensor_error());
    double sum = 0;
    int right = 0;
    for (int w = 0; w < WINDOWS; w++) {
        int32_t tokens[CONTEXT], targets[CONTEXT], classes[CONTEXT];
        double loss = NAN;
        for (int t = 0; t < CONTEXT; t++) {
            tokens[t] = data_label(test, w * CONTEXT + t);
            targets[t] = data_label(test, w * CONTEXT + t + 1);
        }
        CHECK(!nn_evaluate(&loss, classes, g, &(nn_batch){.tokens = tokens, .labels = targets, .count = 1}), "%s",
              tensor_error());
        sum += loss / WINDOWS;
        for (int t = 0; t < CONTEXT; t++)
            right += classes[t] == targets[t];
        CHECK(!memcmp(classes, predicted + w * CONTEXT, sizeof classes), "window %d: other predictions", w);
    }
    nn_graph_free(g);
    *accuracy = right / (double)LABELS;
    return sum;
}

static void trains(void) {
    data_set *train = text(TRAIN, 1), *test = text(TEST, 2);
    struct told told = {0};
    nn_train_events events = events_of(&told);
    nn_train_config config = config_of("fp32", "cpu");
    nn_train_result result;
    double accuracy;
    CHECK(!mkdir(path_of("out", ""), 0700), "%s", strerror(errno));
    config.checkpoint = path_of("out", "");
    CHECK(!nn_train(&result, &config, train, test, &events), "%s", tensor_error());
    CHECK(result.steps == EPOCHS * EPOCH_STEPS && result.images == result.steps * BATCH &&
              result.predicted_count == LABELS && told.epoch_count == EPOCHS,
          "%lld steps, %lld sequences, %lld predictions", (long long)result.steps, (long long)result.images,
          (long long)result.predicted_count);
    const double loss = recount("out", test, result.predicted, &accuracy);
    CHECK(fabs(loss - result.test_loss) < 1e-5 && accuracy == result.test_accuracy,
          "test loss %.9g, recounted %.9g; accuracy %g, %g", result.test_loss, loss, result.test_accuracy, accuracy);
    CHECK(fabs(told.loss[0] - log(VOCABULARY)) < 0.1, "first loss %g", told.loss[0]);
    /* mostly known: 15 of 16 tokens follow from the previous one */
    CHECK(result.test_loss < 0.75 * log(VOCABULARY) && result.test_loss > 0.05, "test loss %g", result.test_loss);
    CHECK(told.epochs[EPOCHS - 1].train_accuracy > 0.4 && told.epochs[EPOCHS - 1].train_accuracy < 1,
          "accuracy in training %g", told.epochs[EPOCHS - 1].train_accuracy);
    double sum = 0;
    for (int i = 0; i < EPOCH_STEPS; i++)
        sum += told.loss[i];
    CHECK(told.epochs[0].train_loss == sum / EPOCH_STEPS, "the first epoch's loss %g", told.epochs[0].train_loss);
    nn_train_result_clear(&result);
    data_free(train);
    data_free(test);
}

/* --- stopped and resumed ------------------------------------------------------------------------------------------ */

static char *read_file(const char *folder, const char *name, size_t *bytes) {
    FILE *f = fopen(path_of(folder, name), "rb");
    CHECK(f, "%s/%s: %s", folder, name, strerror(errno));
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *all = malloc(*bytes + 1);
    CHECK(fread(all, 1, *bytes, f) == *bytes, "%s/%s", folder, name);
    fclose(f);
    return all;
}

static const char *const files[] = {"best.safetensors", "last.safetensors", "trace.csv"};

static void same_files(const char *what, const char *a, const char *b, bool shared) {
    for (int i = 0; i < 2 + shared; i++) {
        size_t bytes = 0, others = 1;
        char *one = read_file(a, files[i], &bytes), *other = read_file(b, files[i], &others);
        CHECK(one && other && bytes == others && !memcmp(one, other, bytes), "%s: %s differs", what, files[i]);
        free(one);
        free(other);
    }
}

static void run(const char *folder, nn_train_config config, struct told *told, const data_set *train,
                const data_set *test, bool shared) {
    nn_train_events events = events_of(told);
    nn_train_result result;
    config.checkpoint = path_of(folder, "");
    if (shared)
        config.trace_path = path_of(folder, "trace.csv");
    CHECK(!nn_train(&result, &config, train, test, &events), "%s", tensor_error());
    CHECK(result.stopped == (told->stop_at > 0), "stopped: %d", result.stopped);
    nn_train_result_clear(&result);
}

/* A training on `device`, stopped there at each of some steps, and an uninterrupted one on the processor. */
static void goes_on(const char *variant, const char *device) {
    data_set *train = text(TRAIN, 3), *test = text(TEST, 4);
    const bool shared = !strncmp(variant, "flex", 4) || !strncmp(variant, "dfp", 3);
    struct told whole = {0}, told = {0};
    char name[2][20] = {"", ""};
    static int serial;
    snprintf(name[0], sizeof name[0], "whole%d", serial);
    snprintf(name[1], sizeof name[1], "parts%d", serial++);
    CHECK(!mkdir(path_of(name[0], ""), 0700) && !mkdir(path_of(name[1], ""), 0700), "%s", strerror(errno));
    run(name[0], config_of(variant, "cpu"), &whole, train, test, shared);
    const int stops[] = {3, EPOCH_STEPS, EPOCH_STEPS + 2, 0};
    for (int i = 0; i < 4; i++) {
        if (stops[i] >= steps)
            continue;
        nn_train_config config = config_of(variant, device);
        char from[300];
        snprintf(from, sizeof from, "%s", path_of(name[1], "resume.safetensors"));
        config.resume = i ? from : NULL;
        config.report_every = 1;
        told.stop_at = stops[i];
        run(name[1], config, &told, train, test, shared);
    }
    CHECK(told.steps == whole.steps && told.epoch_count == whole.epoch_count &&
              !memcmp(told.loss, whole.loss, sizeof told.loss),
          "%s on %s: %d steps and %d epochs, %d and %d", variant, device, told.steps, told.epoch_count, whole.steps,
          whole.epoch_count);
    for (int i = 0; i < whole.epoch_count; i++)
        CHECK(told.epochs[i].test_loss == whole.epochs[i].test_loss &&
                  told.epochs[i].train_accuracy == whole.epochs[i].train_accuracy &&
                  told.epochs[i].test_accuracy == whole.epochs[i].test_accuracy,
              "%s on %s: epoch %d", variant, device, i + 1);
    same_files(variant, name[0], name[1], shared);
    /* another text, another context, and a text that does not fit */
    nn_train_config config = config_of(variant, "cpu");
    nn_train_result result;
    char from[300];
    snprintf(from, sizeof from, "%s", path_of(name[1], "resume.safetensors"));
    config.resume = from;
    config.trace_path = shared ? path_of(name[1], "trace.csv") : NULL;
    CHECK(nn_train(&result, &config, test, train, NULL) == TENSOR_E_DATA, "%s", tensor_error());
    CHECK(nn_train(&result, &config, train, train, NULL) == TENSOR_E_DATA && strstr(tensor_error(), "training.test"),
          "%s", tensor_error());
    config.context = CONTEXT - 1;
    CHECK(nn_train(&result, &config, train, test, NULL) == TENSOR_E_DATA && strstr(tensor_error(), "context"), "%s",
          tensor_error());
    data_free(train);
    data_free(test);
}

/* --- networks of the caller, and what is refused ------------------------------------------------------------------ */

static nn_node pairs(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    const int longer = *(const int *)context;
    CHECK(height == CONTEXT && width == 0 && channels == 0 && classes == VOCABULARY, "%dx%dx%d, %d classes", height,
          width, channels, classes);
    nn_node x = nn_embedding(g, "embedding", nn_tokens(g, height + longer, classes), 8, 0.5);
    return nn_linear(g, "head", x, classes, false);
}

static nn_node of_images(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    (void)width, (void)channels, (void)context;
    return nn_linear(g, "fc", nn_input(g, height, 1, 1), classes, false);
}

static void refused(nn_train_config config, const data_set *train, const data_set *test, const char *words) {
    nn_train_result result;
    CHECK(nn_train(&result, &config, train, test, NULL) && strstr(tensor_error(), words), "%s, expected '%s'",
          tensor_error(), words);
}

static void own_networks(void) {
    data_set *train = text(TRAIN, 5), *test = text(TEST, 6), *brief = text(CONTEXT, 7);
    const int32_t odd[] = {1, 2, 3, VOCABULARY, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4};
    data_set *larger = data_new_tokens(odd, 14, VOCABULARY + 1);
    static uint8_t pixels[4 * 64];
    for (int i = 0; i < 4 * 64; i++)
        pixels[i] = (uint8_t)(i * 37);
    data_set *images = data_new(pixels, (const int32_t[]){0, 1, 0, 1}, 4, 8, 8, 1, 2);
    nn_train_config config = config_of("bf16", "cpu");
    nn_train_result result;
    int longer = 0;
    config.model = NULL;
    config.build = pairs;
    config.build_context = &longer;
    CHECK(!nn_train(&result, &config, train, test, NULL) && result.predicted_count == LABELS, "%s", tensor_error());
    nn_train_result_clear(&result);
    longer = 1;
    refused(config, train, test, "does not take sequences of 12 tokens of a vocabulary of 11");
    config.build = of_images;
    refused(config, train, test, "does not take sequences");
    config = config_of("bf16", "cpu");
    refused(config, train, images, "one set is a text");
    refused(config, images, train, "one set is a text");
    refused(config, train, larger, "test token 3 is 11, training knows 0 to 10");
    refused(config, train, brief, "a text of 12 tokens, expected at least 13");
    refused(config, images, images, "context 12, expected 0 of images");
    config.context = -1;
    refused(config, train, test, "context -1");
    config.context = 0;
    refused(config, images, images, "model 'gpt1x32': expected one of mlp2");
    config.model = "mlp2";
    refused(config, train, test, "model 'mlp2': expected one that reads text");
    data_free(train);
    data_free(test);
    data_free(brief);
    data_free(larger);
    data_free(images);
}

static void remove_all(void) {
    char command[300];
    snprintf(command, sizeof command, "rm -r '%s'", place);
    CHECK(!system(command), "%s", place);
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "toy";
    const char *scratch = getenv("TMPDIR");
    if (argc == 1 && !toy_begin((size_t)1 << 30))
        return check_skip("no memory for the toy device");
    CHECK(tensor_device_find(device), "%s", tensor_error());
    snprintf(place, sizeof place, "%s/flexlab-text-XXXXXX", scratch ? scratch : "/tmp");
    CHECK(mkdtemp(place), "%s", strerror(errno));
    if (argc == 1) {
        trains();
        own_networks();
        goes_on("fp16", "cpu");
        goes_on("dfp16", "cpu");
        goes_on("fp32", device);
    }
    steps = argc > 1 ? 5 : EPOCH_STEPS + 4; /* the emulation of a GPU is slow */
    goes_on("flex16+5", device);
    remove_all();
    return check_summary();
}
