/* Shards of a step on the device "cuda": after each step the whole state of a network must be the bytes of the
 * processor's, whose sums test_nn_shards checks, and so must the losses, which the device brings in groups. The host
 * waits once for each group and for nothing else, unless a dynamic loss scale or normalisation over all shards asks.
 * Then nn_train as a whole, with its trace, and its checkpoints, with which the processor goes on and the other way
 * round; sums of any terms.
 *
 *     test_gpu_shards [long]
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. */
#define _GNU_SOURCE
#include "core/queue/part_write.h"
#include "core/values/tensor_state.h"
#include "on_gpu.h"
#include <math.h>
#include <unistd.h>

enum { SIDE = 8, CHANNELS = 3, CLASSES = 10, LENGTH = 6, VOCABULARY = 17, BATCH = 8, NOTED = 2 };

/* --- steps -------------------------------------------------------------------------------------------------------- */

struct job {
    const char *model, *variant;
    int shards, steps;
    nn_config how; /* the optimiser and all else */
};

static nn_graph *build(const struct job *j, const char *device) {
    nn_config how = j->how;
    how.variant = j->variant;
    how.batch = BATCH;
    how.shards = j->shards;
    how.seed = 5;
    how.device = device;
    nn_graph *g = nn_graph_new(&how);
    CHECK(g, "%s", tensor_error());
    const nn_node logits = nn_model_reads_text(j->model) ? nn_model_text(g, j->model, LENGTH, VOCABULARY)
                                                         : nn_model(g, j->model, SIDE, SIDE, CHANNELS, CLASSES);
    CHECK(!nn_compile(g, logits), "%s %s: %s", j->model, j->variant, tensor_error());
    CHECK(!nn_note_every(g, NOTED), "%s", tensor_error());
    return g;
}

static void compare_losses(nn_graph *const g[2], const struct job *j, int steps) {
    for (int i = 0; i < steps; i++) {
        double loss[2];
        int right[2];
        bool there[2];
        for (int device = 0; device < 2; device++)
            CHECK(!nn_noted_loss(&loss[device], &right[device], &there[device], g[device], true) && there[device], "%s",
                  tensor_error());
        CHECK(!memcmp(&loss[0], &loss[1], sizeof loss[0]) && right[0] == right[1],
              "%s %s, %d shards: loss %.17g and %.17g, right %d and %d", j->model, j->variant, j->shards, loss[0],
              loss[1], right[0], right[1]);
    }
}

static void steps_of(const struct job *j) {
    static float images[BATCH * SIDE * SIDE * CHANNELS];
    static int32_t tokens[BATCH * LENGTH], labels[BATCH * LENGTH];
    nn_graph *const g[2] = {build(j, NULL), build(j, "cuda")};
    char what[80];
    snprintf(what, sizeof what, "%s %s, %d shards", j->model, j->variant, j->shards);
    uint64_t random = 7;
    int skipped = 0;
    for (int step = 1; step <= j->steps; step++) {
        for (int i = 0; i < BATCH * SIDE * SIDE * CHANNELS; i++)
            images[i] = (float)((double)(check_random(&random) >> 40) / 0x1p23 - 1);
        for (int i = 0; i < BATCH * LENGTH; i++) {
            tokens[i] = (int32_t)(check_random(&random) % VOCABULARY);
            labels[i] = i % 5 ? (int32_t)(check_random(&random) % CLASSES) : 3;
        }
        const nn_batch batch = {.images = nn_model_reads_text(j->model) ? NULL : images,
                                .tokens = nn_model_reads_text(j->model) ? tokens : NULL,
                                .labels = labels};
        for (int device = 0; device < 2; device++) {
            const long waits = counts && device ? counts("waits") : 0;
            CHECK(!nn_train_step(NULL, NULL, g[device], &batch, 0.05f) && !nn_note_loss(g[device]), "%s",
                  tensor_error());
            if (counts && device && step > 2 && !j->how.loss_scale && !j->how.batchnorm_global) /* which ask */
                CHECK(counts("waits") <= waits + (step % NOTED == 0), "%s %s, step %d: %ld waits", j->model, j->variant,
                      step, counts("waits") - waits);
        }
        nn_loss_scale scale;
        CHECK(!nn_loss_scale_of(&scale, g[1]), "%s", tensor_error());
        skipped += scale.in_a_row > 0;
        if (step > 1 && !scale.in_a_row) /* which waits; in a skipped step NaN have payloads of their own */
            compare_states(g, what, step);
    }
    CHECK(!j->how.loss_scale || !strchr(j->how.loss_scale, ':') || (skipped && skipped < j->steps), "%d steps skipped",
          skipped);
    compare_losses(g, j, j->steps);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

/* --- a training --------------------------------------------------------------------------------------------------- */

static int stop_at_two(void *context, const nn_step_report *report) {
    (void)context;
    return report->step == 2;
}

/* Trains into the folder, to the end or to its middle, where another device goes on. */
static double train(const char *folder, const char *device, bool stop, bool resume) {
    static const char *const names[] = {"trace.csv", "resume.safetensors"};
    char paths[2][300];
    data_set *train = NULL, *test = NULL;
    nn_train_result result;
    for (int i = 0; i < 2; i++)
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
    CHECK(!data_open_splits(&train, &test, "synthetic:train=16,test=8"), "%s", tensor_error());
    const nn_train_config how = {
        .network = {.variant = "flex16+5", .batch = BATCH, .shards = 4, .seed = 3, .momentum = 0.9f, .device = device},
        .model = "mlp2",
        .epochs = 2,
        .rate = 0.02,
        .schedule = "linear",
        .augment = true,
        .average_last = 3,
        .trace_every = 1,
        .trace_path = paths[0],
        .checkpoint = folder,
        .resume = resume ? paths[1] : NULL,
        .report_every = stop ? 1 : 3};
    const nn_train_events events = {.step = stop ? stop_at_two : NULL};
    CHECK(!nn_train(&result, &how, train, test, &events), "%s: %s", folder, tensor_error());
    const double loss = result.test_loss;
    nn_train_result_clear(&result);
    data_free(train);
    data_free(test);
    return loss;
}

static void remove_folder(const char *folder) {
    static const char *const names[] = {"trace.csv", "resume.safetensors", "last.safetensors", "best.safetensors"};
    char path[300];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    CHECK(!rmdir(folder), "%s has other files", folder);
}

static void trainings(void) {
    static const char *const devices[] = {NULL, "cuda"};
    static const char *const files[] = {"last.safetensors", "best.safetensors", "trace.csv"};
    char folder[4][40] = {"/tmp/flexlab-gpu-shards-XXXXXX", "/tmp/flexlab-gpu-shards-XXXXXX",
                          "/tmp/flexlab-gpu-shards-XXXXXX", "/tmp/flexlab-gpu-shards-XXXXXX"};
    double loss[4];
    for (int i = 0; i < 4; i++)
        CHECK(mkdtemp(folder[i]), "no folder");
    for (int i = 0; i < 2; i++)
        loss[i] = train(folder[i], devices[i], false, false);
    for (int i = 2; i < 4; i++) { /* begun on one, ended on the other */
        (void)train(folder[i], devices[i - 2], true, false);
        loss[i] = train(folder[i], devices[3 - i], false, true);
    }
    for (int i = 1; i < 4; i++) {
        CHECK(loss[i] == loss[0], "test loss %.17g, expected %.17g", loss[i], loss[0]);
        for (int j = 0; j < 3; j++) {
            char paths[2][300];
            snprintf(paths[0], sizeof paths[0], "%s/%s", folder[0], files[j]);
            snprintf(paths[1], sizeof paths[1], "%s/%s", folder[i], files[j]);
            compare_files(paths[0], paths[1]);
        }
    }
    for (int i = 0; i < 4; i++)
        remove_folder(folder[i]);
}

/* --- sums of any terms -------------------------------------------------------------------------------------------- */

enum { MOST_TERMS = 13, ELEMENTS = 300 };

/* Writes sums of the same terms on both, several times, since exponents have histories. */
static void sum(const char *name, int terms, int spread, bool stochastic) {
    tensor_format format;
    uint64_t random = (uint64_t)(terms * 1000 + spread);
    tensor *x[2][MOST_TERMS], *y[2];
    tensor_device *const device[2] = {tensor_device_at(0), tensor_device_find("cuda")};
    CHECK(!tensor_format_find(&format, name), "%s", tensor_error());
    const bool shared = tensor_format_is_shared(format), has_infinity = !shared && strcmp(name, "e4m3fn") != 0;
    for (int d = 0; d < 2; d++) {
        y[d] = tensor_new_in(device[d], format, TENSOR_SHAPE(ELEMENTS));
        CHECK(!stochastic || !tensor_set_rounding(y[d], TENSOR_ROUND_STOCHASTIC, 9), "%s", tensor_error());
        for (int t = 0; t < terms; t++)
            x[d][t] = tensor_new_in(device[d], format, TENSOR_SHAPE(ELEMENTS));
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int t = 0; t < terms; t++) {
            double values[ELEMENTS];
            const int e = shared ? (int)(check_random(&random) % (unsigned)(spread + 1)) - spread / 2 : 0;
            for (int i = 0; i < ELEMENTS; i++) {
                const int mine = shared ? e : 16 + (int)(check_random(&random) % 12); /* of floats no NaN comes about */
                values[i] = ldexp((double)(int64_t)(check_random(&random) % 65535) - 32767, -mine);
                values[i] = has_infinity && i == 17 * t ? INFINITY : values[i];
            }
            for (int d = 0; d < 2; d++)
                CHECK(!tensor_load_f64(x[d][t], values, ELEMENTS), "%s", tensor_error());
        }
        for (int d = 0; d < 2; d++)
            CHECK(!fl_write_sum(y[d], (const tensor *const *)x[d], terms), "%s", tensor_error());
        char state[2][ELEMENTS * 4 + 1000];
        const size_t bytes = fl_state_bytes(y[0], true);
        CHECK(bytes <= sizeof state[0], "%zu bytes", bytes);
        for (int d = 0; d < 2; d++)
            CHECK(!fl_state_get(y[d], true, state[d]), "%s", tensor_error());
        CHECK(!memcmp(state[0], state[1], bytes), "%s: %d terms of exponents %d apart, write %d", name, terms, spread,
              turn);
    }
    for (int d = 0; d < 2; d++) {
        for (int t = 0; t < terms; t++)
            tensor_free(x[d][t]);
        tensor_free(y[d]);
    }
}

static void mean(int terms) {
    uint64_t random = (uint64_t)terms;
    tensor *x[2][MOST_TERMS];
    double found[2][ELEMENTS];
    for (int t = 0; t < terms; t++) {
        double values[ELEMENTS];
        for (int i = 0; i < ELEMENTS; i++) {
            const int e = i % 3 == 0 ? (int)(check_random(&random) % 2000) - 1060 : i % 3 == 1 ? -1074 : 0;
            values[i] = ldexp((double)(int64_t)(check_random(&random) >> 11) * (check_random(&random) & 1 ? 1 : -1), e);
            values[i] = i == 5 && t == 1 ? INFINITY : values[i];
        }
        for (int d = 0; d < 2; d++) {
            x[d][t] =
                tensor_new_in(d ? tensor_device_find("cuda") : tensor_device_at(0), FMT_F64, TENSOR_SHAPE(ELEMENTS));
            CHECK(!tensor_load_f64(x[d][t], values, ELEMENTS), "%s", tensor_error());
        }
    }
    for (int d = 0; d < 2; d++)
        CHECK(!fl_store_mean(x[d][terms - 1], (const tensor *const *)x[d], terms) &&
                  !tensor_store_f64(x[d][terms - 1], found[d], ELEMENTS),
              "%s", tensor_error());
    CHECK(!memcmp(found[0], found[1], sizeof found[0]), "means of %d terms", terms);
    for (int d = 0; d < 2; d++)
        for (int t = 0; t < terms; t++)
            tensor_free(x[d][t]);
}

static void sums(bool all) {
    static const char *const formats[] = {"flex16+5", "dfp16", "flex8+5", "fp32", "fp16", "bf16", "e4m3fn", "e6m5"};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int terms = 2; terms <= MOST_TERMS; terms += all ? 1 : 3)
            sum(formats[f], terms, terms % 2 ? 200 : 20, f < 2 && terms % 3 == 0);
    for (int terms = 2; terms <= MOST_TERMS; terms += 3)
        mean(terms);
}

int main(int argc, char **argv) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "e4m3fn", "flex8+5"};
    const bool all = argc > 1 && !strcmp(argv[1], "long");
    int status;
    if (!has_gpu(&status))
        return status;
    find_counts();
    sums(all);
    for (int i = 0; i < 5; i++)
        steps_of(&(struct job){"resnet8", variants[i], i % 2 ? 4 : 2, all ? 5 : i % 2 ? 2 : 3, {.momentum = 0.9f}});
    for (int i = 0; i < 7; i++)
        steps_of(&(struct job){
            "resnet8", variants[i], i % 2 ? 2 : 4, all ? 3 : 2, {.momentum = 0.9f, .batchnorm_global = true}});
    for (int i = 0; i < 5; i++)
        steps_of(&(struct job){"gpt1x32", variants[i], i % 2 ? 2 : 4, 3, {.optimiser = "adamw", .clip_norm = 0.5f}});
    steps_of(&(struct job){"mlp2", "e4m3fn", 4, 3, {.momentum = 0.9f, .loss_scale = "1024"}});
    steps_of(&(struct job){"mlp2", "fp16", 8, 5, {.optimiser = "lamb", .loss_scale = "dynamic:init=2^24,factor=64"}});
    steps_of(&(struct job){"mlp2", "flex8+5", 2, 3, {.ignores = true, .ignored_label = 3}});
    steps_of(&(struct job){"mlp2", "fp32", 2, 3, {.policy = "O1", .loss_scale = "1024"}});
    if (all)
        for (int i = 0; i < 5; i++) {
            static const char *const optimisers[] = {"adam", "rmsprop", "adagrad", "lamb", "adamw"};
            steps_of(&(struct job){"resnet8", variants[i], i % 2 ? 2 : 4, 3, {.optimiser = optimisers[i]}});
            steps_of(&(struct job){"lstm-char", variants[i], i % 2 ? 4 : 2, 3, {.loss_scale = "dynamic"}});
        }
    trainings();
    return check_summary();
}
