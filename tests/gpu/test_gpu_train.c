/* Training on the device "cuda" and on the processor: after each step of a small residual network, in every format, the
 * whole state (weights, momentum, wide parts, exponents with their history, running statistics) must be the same bytes.
 * Steps are recorded once and replayed; within a step the host neither waits nor allocates, which the PTX machine
 * counts. Then nn_train as a whole, from sets on the device: the same losses in the same order, the same trace to the
 * byte, the same result, and the host waits only as often as its reports require, with shadow formats and shards, too;
 * stopped and resumed on either, telemetry is that of one training.
 *
 *     test_gpu_train [SIZE [STEPS [FORMAT|POLICY|all [MODEL]]]]        images of SIZE x SIZE pixels, 8; resnet8, then
 * other layers; of a format by its parameters, and of a policy (a text with a semicolon), resnet8 alone
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. */
#define _GNU_SOURCE
#include "on_gpu.h"
#include <math.h>
#include <unistd.h>

enum { BATCH = 8, CLASSES = 10, CHANNELS = 3 };

static int size = 8, steps = 5;
static const char *model = "resnet8", *policy;
static nn_config optimiser = {.momentum = 0.9f, .weight_decay = 1e-4f}; /* and all else of it */
static bool stop_on_nonfinite;                                          /* of nn_train ... */
static const char *shadows;                                             /* ... of its telemetry ... */
static int shards;                                                      /* ... and of its steps */
static nn_graph *const *lenders;                                        /* by whose loss scales steps are; NULL: own */

/* Means of windows, normalisation across and in groups of channels, and dropout, which makes new draws in each step
 * although its calls are recorded. */
static nn_node layers(nn_graph *g) {
    nn_node x = nn_conv2d(g, "conv1", nn_input(g, size, size, CHANNELS), 6, 3,
                          &(nn_conv2d_options){.padding = 1, .bias_after = true, .relu = true});
    x = nn_lrn(g, "lrn", x, 3, 0.5f, 0.75f, 1);
    x = nn_avgpool2d(g, "pool1", x, (nn_window){.window = 3, .stride = 2, .padding = 1}, false);
    x = nn_dropout(g, "drop1", x, 0.25f);
    x = nn_groupnorm(g, "gn", nn_conv2d(g, "conv2", x, 8, 3, &(nn_conv2d_options){.padding = 1}), 2, 0);
    x = nn_avgpool_adaptive(g, "pool2", x, 3, 2);
    x = nn_dropout(g, "drop2", nn_linear(g, "fc1", x, 16, true), 0.5f);
    return nn_linear(g, "fc2", x, CLASSES, false);
}

/* Windows whose directions and sides differ, downsampling and upsampling. */
static nn_node windows(nn_graph *g) {
    nn_node x = nn_input(g, size, size, CHANNELS);
    x = nn_conv2d(
        g, "conv", x, 8, 0,
        &(nn_conv2d_options){.bias = true,
                             .window = &(tensor_window2d){
                                 .window = {2, 3}, .stride = {1, 2}, .padding = {2, 0, 1, 3}, .dilation = {2, 1}}});
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    x = nn_maxpool2d(
        g, "pool", x, 0,
        &(nn_pool2d_options){.window = &(tensor_window2d){
                                 .window = {3, 2}, .stride = {2, 1}, .padding = {0, 1, 1, 0}, .dilation = {1, 2}}});
    x = nn_conv_transpose2d(
        g, "up", x, 8, 0,
        &(nn_conv2d_options){
            .bias = true,
            .window = &(tensor_window2d){
                .window = {2, 3}, .stride = {2, 3}, .padding = {1, 0, 0, 2}, .groups = 2, .output_padding = {1, 0}}});
    return nn_linear(g, "fc", x, CLASSES, false);
}

static nn_graph *network(const char *variant, const char *device) {
    nn_config how = optimiser;
    how.variant = variant;
    how.policy = policy;
    how.batch = BATCH;
    how.seed = 7;
    how.device = device;
    nn_graph *g = nn_graph_new(&how);
    CHECK(g, "%s", tensor_error());
    const nn_node logits = !strcmp(model, "layers")    ? layers(g)
                           : !strcmp(model, "windows") ? windows(g)
                                                       : nn_model(g, model, size, size, CHANNELS, CLASSES);
    CHECK(!nn_compile(g, logits), "%s", tensor_error());
    float values[CHANNELS * 256];
    for (int i = 0; i < CHANNELS * 256; i++)
        values[i] = (float)(i % 256 - 120 + i / 256) / 70;
    CHECK(!nn_set_pixel_values(g, values), "%s", tensor_error());
    return g;
}

/* Makes one step of both; counts the actions of the device's host meanwhile. number: 1: the first step, or the first
 * after a setting has changed; the second is recorded. */
static void step(nn_graph *const *g, int number, uint64_t *draws) {
    const size_t pixels = (size_t)BATCH * (size_t)size * (size_t)size * CHANNELS;
    uint8_t *images = malloc(pixels);
    int32_t labels[BATCH];
    for (size_t i = 0; i < pixels; i++)
        images[i] = (uint8_t)check_random(draws);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(draws) % CLASSES);
    const nn_batch batch = {.pixels = images, .labels = labels};
    const int recorded = lenders ? 2 : 3; /* parts */
    static const char *const actions[] = {"waits", "allocations", "recordings", "replays"};
    const long expected[] = {0, 0, number == 2 ? recorded : 0, number > 1 ? recorded : 0};
    double loss[2];
    int right[2];
    for (int device = 0; device < 2; device++) {
        long before[4];
        for (int i = 0; i < 4; i++)
            before[i] = counted(actions[i]);
        CHECK(!(lenders ? nn_forward_scaled_by(g[device], &batch, lenders[device]) : nn_forward(g[device], &batch)) &&
                  !nn_backward(g[device]) && !nn_update(g[device], 0.05f),
              "%s", tensor_error());
        for (int i = number > 1 ? 0 : 2; counts && device && i < 4; i++)
            CHECK(counts(actions[i]) == before[i] + expected[i], "step %d: %ld %s", number,
                  counts(actions[i]) - before[i], actions[i]);
        CHECK(!nn_loss(&loss[device], &right[device], g[device]), "%s", tensor_error());
    }
    CHECK(!memcmp(&loss[0], &loss[1], sizeof loss[0]) && right[0] == right[1],
          "step %d: loss %.17g and %.17g, right %d and %d", number, loss[0], loss[1], right[0], right[1]);
    free(images);
}

/* After a step that a loss scale skipped, gradients have NaNs, whose payload is open. */
static void compare(nn_graph *const *g, const char *variant, int number) {
    nn_loss_scale scale[2];
    CHECK(!nn_loss_scale_of(&scale[0], g[0]) && !nn_loss_scale_of(&scale[1], g[1]), "%s", tensor_error());
    CHECK(!memcmp(&scale[0], &scale[1], sizeof scale[0]), "%s: scale %g and %g after step %d", variant, scale[0].scale,
          scale[1].scale, number);
    if (!scale[0].in_a_row)
        compare_states(g, variant, number);
}

static void train(const char *variant) {
    nn_graph *const g[2] = {network(variant, NULL), network(variant, "cuda")};
    uint64_t draws = 11;
    for (int i = 1; i <= steps + (optimiser.loss_scale != NULL); i++) {
        step(g, i, &draws);
        compare(g, variant ? variant : policy, i);
    }
    /* settings of a recording change: it is made again */
    const bool changes = variant && tensor_format_is_shared(nn_variant_find(variant)->format);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < nn_tensor_count(g[device]); i++)
            if (changes && !strcmp(nn_tensor_at(g[device], i).role, "weight"))
                CHECK(!tensor_set_rounding(nn_tensor_at(g[device], i).t, TENSOR_ROUND_STOCHASTIC, (uint64_t)i), "%s",
                      tensor_error());
    step(g, changes ? 1 : steps + 1, &draws);
    step(g, changes ? 2 : steps + 2, &draws);
    compare(g, variant ? variant : policy, steps + 2);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

/* A recorded pass has the scale of its network, and is not that of a pass by another one's. */
static void borrow(void) {
    const nn_config before = optimiser;
    optimiser.loss_scale = "1024";
    nn_graph *const g[2] = {network("fp16", NULL), network("fp16", "cuda")};
    optimiser.loss_scale = "8";
    nn_graph *const other[2] = {network("fp16", NULL), network("fp16", "cuda")};
    uint64_t draws = 12;
    step(g, 1, &draws);
    step(g, 2, &draws);
    lenders = other;
    step(g, 3, &draws);
    lenders = NULL;
    compare(g, "fp16 by another scale", 3);
    step(g, 4, &draws);
    compare(g, "fp16 by its own scale", 4);
    for (int device = 0; device < 2; device++) {
        nn_graph_free(g[device]);
        nn_graph_free(other[device]);
    }
    optimiser = before;
}

/* --- the training loop -------------------------------------------------------------------------------------------- */

enum { IMAGES = 44, TEST_IMAGES = 13, EPOCHS = 2, MOST_STEPS = 32, EVERY = 3 };

struct record {
    nn_step_report steps[MOST_STEPS];
    nn_epoch_report epochs[EPOCHS];
    nn_nonfinite first;                   /* NaN or Inf */
    int step_count, epoch_count, stop_at; /* 0: to the end */
    long waits, allocations, brought;     /* at the last report */
};

static int on_step(void *context, const nn_step_report *report) {
    struct record *r = context;
    r->waits = counted("stream waits");
    r->allocations = counted("allocations");
    r->brought = counted("brought");
    if (r->step_count < MOST_STEPS)
        r->steps[r->step_count++] = *report;
    return r->stop_at && report->step == r->stop_at;
}

static void on_nonfinite(void *context, const nn_nonfinite *found) {
    struct record *r = context;
    r->first = *found;
}

static int on_epoch(void *context, const nn_epoch_report *report) {
    struct record *r = context;
    if (r->epoch_count < EPOCHS)
        r->epochs[r->epoch_count++] = *report;
    return 0;
}

static nn_node tiny(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    (void)context;
    nn_node x = nn_input(g, height, width, channels);
    x = nn_batchnorm(g, "bn", nn_conv2d(g, "conv", x, 6, 3, &(nn_conv2d_options){.padding = 1}),
                     &(nn_batchnorm_options){.relu = true});
    return nn_linear(g, "fc", nn_avgpool_global(g, "pool", x), classes, false);
}

/* The training of one epoch that most checks vary. */
static nn_train_config training(const char *variant, const char *device) {
    return (nn_train_config){.network = {.variant = variant, .batch = 2, .shards = shards, .seed = 5, .device = device},
                             .epochs = 1,
                             .rate = 0.05,
                             .schedule = "constant",
                             .build = tiny,
                             .stop_on_nonfinite = stop_on_nonfinite,
                             .telemetry_shadows = shadows,
                             .report_every = device ? EVERY : 0};
}

static data_set *random_set(int64_t n, uint64_t seed) {
    static uint8_t images[IMAGES * 6 * 7 * CHANNELS];
    int32_t labels[IMAGES];
    for (int64_t i = 0; i < n * 6 * 7 * CHANNELS; i++)
        images[i] = (uint8_t)check_random(&seed);
    for (int64_t i = 0; i < n; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
    data_set *set = data_new(images, labels, n, 6, 7, CHANNELS, CLASSES);
    CHECK(set, "%s", tensor_error());
    return set;
}

static bool same_step(const nn_step_report *a, const nn_step_report *b) {
    return a->step == b->step && a->steps == b->steps && a->epoch == b->epoch && a->images == b->images &&
           !memcmp(&a->loss, &b->loss, sizeof a->loss) && !memcmp(&a->rate, &b->rate, sizeof a->rate) &&
           a->loss_scale == b->loss_scale && a->skipped_in_a_row == b->skipped_in_a_row;
}

static bool same_epoch(const nn_epoch_report *a, const nn_epoch_report *b) {
    return a->epoch == b->epoch && a->step == b->step && a->train_loss == b->train_loss &&
           a->train_accuracy == b->train_accuracy && a->test_loss == b->test_loss &&
           a->test_accuracy == b->test_accuracy;
}

static bool same_result(const nn_train_result *a, const nn_train_result *b) {
    return a->train_loss == b->train_loss && a->last_loss == b->last_loss && a->steps == b->steps &&
           a->images == b->images && a->saturated == b->saturated && a->flushed == b->flushed &&
           a->elements == b->elements && a->clamped_low == b->clamped_low && a->clamped_high == b->clamped_high &&
           a->predicted_count == b->predicted_count &&
           (!a->predicted_count ||
            !memcmp(a->predicted, b->predicted, (size_t)a->predicted_count * sizeof *a->predicted));
}

/* With a dynamic loss scale a device looks for what is not finite, as the processor always does. */
static void compare_findings(const char *variant, const struct record *a, const struct record *b) {
    for (int i = 0; i < a->step_count; i++) {
        const char *one = a->steps[i].nonfinite, *other = b->steps[i].nonfinite;
        CHECK(one == other || (one && other && !strcmp(one, other)), "%s: step %d: NaN or Inf in %s and %s", variant,
              i + 1, one ? one : "nothing", other ? other : "nothing");
    }
    CHECK(a->first.step == b->first.step && (!a->first.step || !strcmp(a->first.pass, b->first.pass)),
          "%s: first NaN or Inf in steps %lld and %lld", variant, (long long)a->first.step, (long long)b->first.step);
}

/* Mantissas and floats, with and without an exponent that follows. */
static const char all_shadows[] =
    "fp16,flex16+5,flex8+5:ngraph,bf16,e4m3fn,fp32,dfp16,tensor:e5m2:delayed:history=4:margin=1,flex6+7:repeat";
static const char *loop_shadows = all_shadows;

static void loop(const char *variant, bool augment, int64_t max_steps, bool traced) {
    data_set *train_set = random_set(IMAGES, 21), *test_set = random_set(TEST_IMAGES, 22);
    static struct record records[2];
    nn_train_result results[2];
    char paths[2][100], records_of[2][100], tables[2][100];
    memset(records, 0, sizeof records);
    for (int device = 0; device < 2; device++) {
        snprintf(paths[device], sizeof paths[device], "gpu_train_%ld_%d.csv", (long)getpid(), device);
        snprintf(records_of[device], sizeof records_of[device], "gpu_train_%ld_%d.jsonl", (long)getpid(), device);
        snprintf(tables[device], sizeof tables[device], "gpu_train_%ld_%d.table", (long)getpid(), device);
        nn_train_config how = training(variant, device ? "cuda" : NULL);
        how.network.batch = BATCH;
        how.network.momentum = 0.9f;
        how.network.loss_scale = optimiser.loss_scale;
        how.epochs = EPOCHS;
        how.schedule = "cosine";
        how.augment = augment;
        how.max_steps = max_steps;
        how.average_last = 4;
        how.trace_every = 2;
        how.trace_path = traced ? paths[device] : NULL;
        how.telemetry_every = 1 + augment;
        how.telemetry_path = records_of[device];
        how.telemetry_csv = tables[device];
        how.telemetry_shadows = augment || optimiser.loss_scale ? loop_shadows : NULL;
        const nn_train_events events = {on_step, on_epoch, &records[device], .nonfinite = on_nonfinite};
        CHECK(!nn_train(&results[device], &how, train_set, test_set, &events), "%s", tensor_error());
    }
    CHECK(records[0].step_count == records[1].step_count && records[0].epoch_count == records[1].epoch_count,
          "%s: %d and %d steps", variant, records[0].step_count, records[1].step_count);
    for (int i = 0; i < records[0].step_count; i++)
        CHECK(same_step(&records[0].steps[i], &records[1].steps[i]), "%s: step %d: loss %.17g and %.17g", variant,
              i + 1, records[0].steps[i].loss, records[1].steps[i].loss);
    for (int i = 0; i < records[0].epoch_count; i++)
        CHECK(same_epoch(&records[0].epochs[i], &records[1].epochs[i]), "%s: epoch %d", variant, i + 1);
    CHECK(same_result(&results[0], &results[1]), "%s: results", variant);
    if (optimiser.loss_scale)
        compare_findings(variant, &records[0], &records[1]);
    for (int device = 0; device < 2; device++)
        nn_train_result_clear(&results[device]);
    CHECK(compare_files(records_of[0], records_of[1]) > 1000 && compare_files(tables[0], tables[1]) > 1000,
          "%s: short records", variant);
    for (int device = 0; device < 2; device++) {
        remove(records_of[device]);
        remove(tables[device]);
    }
    if (traced) {
        const long bytes = compare_files(paths[0], paths[1]);
        CHECK(!tensor_format_is_shared(nn_variant_find(variant)->format) || bytes > 1000, "%s: %ld bytes of trace",
              variant, bytes);
        for (int device = 0; device < 2; device++)
            remove(paths[device]);
    }
    data_free(train_set);
    data_free(test_set);
}

/* What a training with 9 steps more does more often. */
struct more {
    long waits, stream_waits, allocations;
};

static struct more with_more_steps(bool traced, const char *variant, const char *loss_scale, int64_t telemetry) {
    long waits[2], stream_waits[2], allocations[2];
    for (int longer = 0; longer < 2; longer++) {
        data_set *set = random_set(IMAGES, 23);
        struct record record = {.stop_at = 0};
        const nn_train_events events = {on_step, NULL, &record};
        nn_train_config how = training(variant, "cuda");
        how.network.loss_scale = loss_scale;
        how.augment = true;
        how.max_steps = longer ? 22 : 13; /* after 13, each of the copies under way was once that of a record */
        how.trace_every = 4;
        how.trace_path = traced ? "gpu_train_waits.csv" : NULL;
        how.telemetry_every = telemetry;
        nn_train_result result;
        const long before[3] = {counts("waits"), counts("stream waits"), counts("allocations")};
        CHECK(!nn_train(&result, &how, set, NULL, &events), "%s", tensor_error());
        waits[longer] = counts("waits") - before[0];
        stream_waits[longer] = record.waits - before[1];
        allocations[longer] = record.allocations - before[2];
        nn_train_result_clear(&result);
        data_free(set);
    }
    remove("gpu_train_waits.csv");
    return (struct more){waits[1] - waits[0], stream_waits[1] - stream_waits[0], allocations[1] - allocations[0]};
}

/* The additional steps of a longer training wait for no complete queue and allocate nothing (of shards only the lists
 * of what is added, as without telemetry); without a trace they wait once for each group of reports. */
static void waits_of_reports(bool traced, const char *variant, const char *loss_scale, int64_t telemetry) {
    if (!counts)
        return;
    const struct more more = with_more_steps(traced, variant, loss_scale, telemetry);
    const long lists = shards ? with_more_steps(traced, variant, loss_scale, 0).allocations : 0;
    CHECK(traced || telemetry || more.waits == 9 / EVERY, "9 steps more wait %ld times more", more.waits);
    CHECK(!more.stream_waits, "9 steps more wait for the queue %ld times more", more.stream_waits);
    CHECK(more.allocations == lists, "%s, records every %lld steps: 9 steps more allocate %ld times more, expected %ld",
          variant, (long long)telemetry, more.allocations, lists);
}

/* What 9 steps more bring to the host with so many images in each. */
static long brought(const char *variant, int batch, int64_t telemetry) {
    long bytes[2];
    for (int longer = 0; longer < 2; longer++) {
        data_set *set = random_set(IMAGES, 23);
        struct record record = {.stop_at = 0};
        const nn_train_events events = {on_step, NULL, &record};
        nn_train_config how = training(variant, "cuda");
        how.network.batch = batch * (shards ? shards : 1);
        how.epochs = 3;
        how.max_steps = longer ? 18 : 9;
        how.telemetry_every = telemetry;
        nn_train_result result;
        const long before = counts("brought");
        CHECK(!nn_train(&result, &how, set, NULL, &events), "%s", tensor_error());
        bytes[longer] = record.brought - before;
        nn_train_result_clear(&result);
        data_free(set);
    }
    return bytes[1] - bytes[0];
}

/* Records of each step copy no elements: with more images they bring as many bytes. */
static void copies_of_records(const char *variant) {
    long bytes[2] = {0};
    for (int more = 0; more < 2 && counts; more++)
        bytes[more] = brought(variant, 1 + 2 * more, 1) - brought(variant, 1 + 2 * more, 0);
    CHECK(!counts || (bytes[0] == bytes[1] && bytes[0] > 0),
          "%s: records of 9 steps bring %ld bytes with an image in each, %ld with three", variant, bytes[0], bytes[1]);
}

/* One training of the processor, and the same in two parts, of which the device makes one or both. */
static void resumes(void) {
    static const char *const paths[] = {"gpu_train_resume_0.jsonl", "gpu_train_resume_1.jsonl",
                                        "gpu_train_resume_0.table", "gpu_train_resume_1.table"},
                             *const parts[][2] = {{"cuda", "cuda"}, {"cuda", NULL}, {NULL, "cuda"}};
    char folder[] = "/tmp/flexlab-gpu-train-XXXXXX", from[60];
    data_set *set = random_set(IMAGES, 26);
    CHECK(mkdtemp(folder), "no folder");
    snprintf(from, sizeof from, "%s/resume.safetensors", folder);
    for (int i = -1; i < 3; i++)
        for (int part = 0; part < (i < 0 ? 1 : 2); part++) {
            struct record record = {.stop_at = i < 0 || part ? 0 : 5};
            const nn_train_events events = {on_step, NULL, &record};
            nn_train_config how = training("flex16+5", i < 0 ? NULL : parts[i][part]);
            nn_train_result result;
            how.telemetry_every = 2;
            how.telemetry_path = paths[i >= 0];
            how.telemetry_csv = paths[2 + (i >= 0)];
            how.telemetry_shadows = all_shadows;
            how.checkpoint = i < 0 ? NULL : folder;
            how.resume_alone = i >= 0;
            how.resume = part ? from : NULL;
            CHECK(!nn_train(&result, &how, set, NULL, &events), "%s", tensor_error());
            CHECK(result.stopped == (i >= 0 && !part), "part %d ends after %lld steps", part, (long long)result.steps);
            nn_train_result_clear(&result);
            CHECK(i < 0 || !part ||
                      (compare_files(paths[0], paths[1]) > 1000 && compare_files(paths[2], paths[3]) > 1000),
                  "short records");
        }
    for (int i = 0; i < 4; i++)
        remove(paths[i]);
    remove(from);
    CHECK(!rmdir(folder), "%s has other files", folder);
    data_free(set);
}

/* A step with a NaN or Inf is the last, and its records are the processor's. */
static void stops_at_nonfinite(const char *variant, int64_t every) {
    static const char *const paths[] = {"gpu_train_stop_0.jsonl", "gpu_train_stop_1.jsonl"};
    nn_train_result results[2];
    struct record records[2] = {{.stop_at = 0}, {.stop_at = 0}};
    data_set *set = random_set(IMAGES, 25);
    for (int device = 0; device < 2; device++) {
        nn_train_config how = training(variant, device ? "cuda" : NULL);
        how.rate = 300;
        how.telemetry_every = every;
        how.telemetry_path = paths[device];
        const nn_train_events events = {on_step, NULL, &records[device], .nonfinite = on_nonfinite};
        CHECK(!nn_train(&results[device], &how, set, NULL, &events), "%s", tensor_error());
    }
    CHECK(results[0].stopped && results[1].stopped && results[0].steps == results[1].steps && results[0].steps > 2 &&
              results[0].steps == records[0].first.step && results[0].steps < IMAGES / 2,
          "%s: stopped after %lld and %lld steps", variant, (long long)results[0].steps, (long long)results[1].steps);
    compare_findings(variant, &records[0], &records[1]);
    CHECK(compare_files(paths[0], paths[1]) > 1000, "%s: short records", variant);
    for (int device = 0; device < 2; device++) {
        nn_train_result_clear(&results[device]);
        remove(paths[device]);
    }
    data_free(set);
}

/* An evaluation waits as often with more batches, if they are whole. */
static void waits_of_evaluation(void) {
    long waits[2];
    for (int longer = 0; longer < 2 && counts; longer++) {
        data_set *set = random_set(IMAGES, 23), *test_set = random_set(longer ? 12 : 4, 22);
        nn_train_config how = training("flex16+5", "cuda");
        how.max_steps = 1;
        nn_train_result result;
        const long before = counts("waits");
        CHECK(!nn_train(&result, &how, set, test_set, NULL), "%s", tensor_error());
        waits[longer] = counts("waits") - before;
        nn_train_result_clear(&result);
        data_free(set);
        data_free(test_set);
    }
    CHECK(!counts || waits[0] == waits[1], "four batches more of an evaluation wait %ld times more",
          waits[1] - waits[0]);
}

/* After a stop, steps that had begun are completed, reported and traced. */
static void stops(void) {
    data_set *set = random_set(IMAGES, 24);
    struct record record = {.stop_at = 4};
    const nn_train_events events = {on_step, on_epoch, &record};
    nn_train_config how = training("dfp16", "cuda");
    how.trace_every = 1;
    how.trace_path = "gpu_train_stop.csv";
    nn_train_result result;
    CHECK(!nn_train(&result, &how, set, NULL, &events), "%s", tensor_error());
    CHECK(result.stopped && result.steps == record.step_count && result.steps >= 4 && result.steps <= 4 + 2 * EVERY,
          "%lld steps, %d reports", (long long)result.steps, record.step_count);
    CHECK(!record.epoch_count, "%d epochs", record.epoch_count);
    long bytes;
    char *text = file_of("gpu_train_stop.csv", &bytes), last[20];
    char *line = text + bytes - 1;
    while (line > text && line[-1] != '\n')
        line--;
    snprintf(last, sizeof last, "%lld,", (long long)result.steps);
    CHECK(!strncmp(line, last, strlen(last)), "the last row of the trace: %s", line);
    free(text);
    remove("gpu_train_stop.csv");
    nn_train_result_clear(&result);
    data_free(set);
}

/* A set that does not fit into the device's memory is transferred batch by batch, with the same results. The PTX
 * machine has 64 MiB here. */
static void set_without_room(void) {
    if (!counts)
        return;
    enum { MANY = 24000, SIDE = 32 };
    uint8_t *images = malloc((size_t)MANY * SIDE * SIDE * CHANNELS);
    int32_t *labels = malloc(MANY * sizeof *labels);
    uint64_t seed = 8;
    for (size_t i = 0; i < (size_t)MANY * SIDE * SIDE * CHANNELS / 8; i++)
        ((uint64_t *)(void *)images)[i] = check_random(&seed);
    for (int i = 0; i < MANY; i++)
        labels[i] = i % CLASSES;
    data_set *set = data_new(images, labels, MANY, SIDE, SIDE, CHANNELS, CLASSES);
    free(images);
    free(labels);
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "dfp16", .batch = 2, .seed = 5, .device = "cuda"});
    CHECK(g && !nn_compile(g, tiny(g, SIDE, SIDE, CHANNELS, CLASSES, NULL)), "%s", tensor_error());
    CHECK(!nn_data_new(g, set) && tensor_error_status() == TENSOR_E_MEMORY, "room for %d images", MANY);
    CHECK(strstr(tensor_error(), "no memory for 73728000 bytes on cuda:0") && strstr(tensor_error(), "bytes are free"),
          "%s", tensor_error());
    nn_graph_free(g);
    g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1024, .device = "cuda"});
    const tensor_status status = nn_compile(g, nn_model(g, "resnet20", SIDE, SIDE, CHANNELS, CLASSES));
    CHECK(status == TENSOR_E_MEMORY && strstr(tensor_error(), "an arena of ") && strstr(tensor_error(), "are free"),
          "%s", tensor_error());
    nn_graph_free(g);
    nn_train_result results[2];
    for (int device = 0; device < 2; device++) {
        nn_train_config how = training("dfp16", device ? "cuda" : NULL);
        how.augment = true;
        how.max_steps = 2;
        how.average_last = 2;
        CHECK(!nn_train(&results[device], &how, set, NULL, NULL), "%s", tensor_error());
    }
    CHECK(same_result(&results[0], &results[1]), "loss %.17g and %.17g", results[0].last_loss, results[1].last_loss);
    data_free(set);
}

static double twice_the_oldest(const struct autoflex *a, void *context) {
    (void)context;
    return 2 * a->history[0];
}

/* A device has no predictors that the program added: shadows with one are followed by the host, which examines all. */
static void added_predictor(void) {
    CHECK(autoflex_add("twice", twice_the_oldest, NULL), "%s", tensor_error());
    loop_shadows = "fp16,flex16+5:twice,dfp16";
    loop("bf16", true, 5, false);
    loop_shadows = all_shadows;
}

static bool is_wanted(const char *only, const char *variant) {
    return !only || !strcmp(only, variant);
}

int main(int argc, char **argv) {
    size = argc > 1 ? atoi(argv[1]) : size;
    steps = argc > 2 ? atoi(argv[2]) : steps;
    model = argc > 4 ? argv[4] : model;
    int status;
    if (!has_gpu(&status))
        return status;
    find_counts();
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    const char *const only = argc > 3 && strcmp(argv[3], "all") ? argv[3] : NULL;
    bool is_other = only != NULL;
    for (int i = 0; i < 5; i++)
        if (is_wanted(only, variants[i])) {
            is_other = false;
            train(variants[i]);
            loop(variants[i], i % 2 == 1, i == 3 ? 7 : 0, i != 1);
        }
    if (is_other) { /* a format by its parameters, or a policy */
        policy = strchr(only, ';') ? only : NULL;
        train(policy ? NULL : only);
        if (!policy)
            loop(only, true, 0, true);
        return check_summary();
    }
    static const char *const own[] = {"layers", "windows"};
    for (int k = 0; k < 2; k++) {
        model = own[k];
        for (int i = 0; i < 5 && argc < 5; i++)
            if (is_wanted(only, variants[i]))
                train(variants[i]);
    }
    borrow();
    model = argc > 4 ? argv[4] : "resnet8";
    static const char scaled[] = "dynamic:init=2^24,window=2,factor=1024"; /* skips the first step and the fourth */
    waits_of_reports(false, "flex16+5", NULL, 0);
    waits_of_reports(true, "flex16+5", NULL, 0);
    waits_of_reports(false, "fp16", scaled, 0);
    waits_of_reports(false, "flex16+5", NULL, 100); /* records of the first and the last step */
    waits_of_reports(false, "fp16", scaled, 100);
    waits_of_reports(true, "flex16+5", NULL, 1);
    waits_of_reports(false, "fp16", scaled, 1);
    copies_of_records("bf16");
    copies_of_records("dfp16");
    shadows = all_shadows;
    waits_of_reports(true, "flex16+5", NULL, 1);
    waits_of_reports(false, "fp16", scaled, 1);
    waits_of_reports(false, "bf16", NULL, 100);
    copies_of_records("flex16+5");
    resumes();
    added_predictor();
    shards = 2;
    waits_of_reports(true, "flex16+5", NULL, 1);
    waits_of_reports(false, "bf16", NULL, 3);
    copies_of_records("dfp16");
    loop("bf16", true, 7, true);
    loop("flex16+5", false, 7, true);
    optimiser.loss_scale = "dynamic:init=2^24,window=1,factor=1024"; /* skips each second step */
    loop("fp16", false, 9, true);
    optimiser.loss_scale = NULL;
    resumes();
    shards = 0;
    shadows = NULL;
    stop_on_nonfinite = true;
    copies_of_records("fp16");
    for (int64_t every = 1; every <= 3; every++) {
        shadows = every == 2 ? all_shadows : NULL;
        shards = every == 3 ? 2 : 0;
        stops_at_nonfinite("fp16", every);
    }
    shadows = NULL;
    shards = 0;
    stop_on_nonfinite = false;
    waits_of_evaluation();
    stops();
    set_without_room();
    /* Factors that change in each step are computed on the device: recordings are replayed with them. */
    static const struct {
        const char *variant;
        nn_config optimiser;
    } others[] = {{"flex16+5", {.optimiser = "adamw", .weight_decay = 0.01f, .clip_value = 0.1f, .clip_norm = 0.5f}},
                  {"bf16", {.optimiser = "lamb", .weight_decay = 0.01f}},
                  {"dfp16", {.optimiser = "rmsprop", .weight_decay = 0.01f, .momentum = 0.5f}},
                  {"fp32", {.momentum = 0.9f, .nesterov = true, .clip_norm = 0.5f}},
                  {"fp16", {.momentum = 0.9f, .clip_value = 0.1f, .loss_scale = scaled}},
                  {"dfp16", {.optimiser = "adam", .weight_decay = 0.01f, .loss_scale = scaled}}};
    for (int i = 0; i < 6; i++) {
        optimiser = others[i].optimiser;
        if (!is_wanted(only, others[i].variant))
            continue;
        train(others[i].variant);
        if (optimiser.loss_scale)
            loop(others[i].variant, false, 7, true);
    }
    return check_summary();
}
