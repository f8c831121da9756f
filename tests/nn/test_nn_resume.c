/* Trainings that are stopped and resumed, at any step and any number of times, in every variant: reports, result,
 * trace, the best and the last network are byte for byte those of a training that was never interrupted, also from what
 * earlier versions counted. A checkpoint that does not fit is refused by name. usage: test_nn_resume [SEED] */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "safetensors/safetensors.h"
#include "toy_device.h"
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 8, TRAIN = 44, TEST = 19, EPOCHS = 4, EPOCH_STEPS = TRAIN / BATCH, STEPS = EPOCHS * EPOCH_STEPS };

static char place[200];
static uint64_t seed = 1;

static char *path_of(const char *folder, const char *name) {
    static char text[8][400];
    static int next;
    next = (next + 1) % 8;
    snprintf(text[next], sizeof text[next], "%s/%s%s%s", place, folder, *name ? "/" : "", name);
    return text[next];
}

static const nn_graph *network; /* that is trained */
static int resets;              /* statistics are reset after so many steps each; 0: never */

static nn_node build(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    (void)context;
    network = g;
    nn_node x = nn_input(g, height, width, channels);
    x = nn_conv2d(g, "conv", x, 4, 3, &(nn_conv2d_options){.stride = 4, .padding = 1});
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    x = nn_conv2d(g, "conv2", x, 4, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, "fc", x, classes, false);
}

struct told {
    double steps[STEPS][4], epochs[EPOCHS][6];
    int step_count, epoch_count, stop_at; /* the step whose report stops the training */
    bool stop_after_epoch;                /* ... or the epoch that ends there */
};

static int on_step(void *context, const nn_step_report *r) {
    struct told *t = context;
    CHECK(t->step_count < STEPS && r->step == t->step_count + 1, "step %lld after %d", (long long)r->step,
          t->step_count);
    const double numbers[] = {r->loss, r->rate, (double)r->images, (double)r->steps};
    if (t->step_count < STEPS)
        memcpy(t->steps[t->step_count++], numbers, sizeof numbers);
    for (int i = 0; resets && r->step % resets == 0 && i < nn_tensor_count(network); i++)
        tensor_reset_statistics(nn_tensor_at(network, i).t);
    return r->step == t->stop_at && !t->stop_after_epoch;
}

static int on_epoch(void *context, const nn_epoch_report *r) {
    struct told *t = context;
    const double numbers[] = {(double)r->step, r->train_loss,    r->train_accuracy,
                              r->test_loss,    r->test_accuracy, r->epoch};
    CHECK(t->epoch_count < EPOCHS, "epoch %d after %d", r->epoch, t->epoch_count);
    if (t->epoch_count < EPOCHS)
        memcpy(t->epochs[t->epoch_count++], numbers, sizeof numbers);
    return t->stop_after_epoch && r->step >= t->stop_at;
}

/* The caller stores what was reported. */
static const void *keep(void *context, size_t *bytes) {
    *bytes = sizeof(struct told);
    return context;
}

static int resume(void *context, const void *bytes, size_t count) {
    struct told *t = context;
    if (count != sizeof *t)
        return 1;
    const int stop_at = t->stop_at;
    const bool after_epoch = t->stop_after_epoch;
    memcpy(t, bytes, sizeof *t);
    t->stop_at = stop_at;
    t->stop_after_epoch = after_epoch;
    return 0;
}

static nn_train_config config_of(const char *variant, const char *folder) {
    static char text[2][4][400]; /* from the two folders */
    char(*own)[400] = text[!strcmp(folder, "whole")];
    snprintf(own[0], sizeof own[0], "%s", path_of(folder, "trace.csv"));
    snprintf(own[1], sizeof own[1], "%s", path_of(folder, ""));
    snprintf(own[2], sizeof own[2], "%s", path_of(folder, "telemetry.jsonl"));
    snprintf(own[3], sizeof own[3], "%s", path_of(folder, "telemetry.csv"));
    return (nn_train_config){
        .network = {.variant = variant, .batch = BATCH, .seed = 5, .momentum = 0.9f, .weight_decay = 1e-3f},
        .epochs = EPOCHS,
        .rate = 0.05,
        .schedule = "cosine",
        .warmup_epochs = 0.5,
        .augment = true,
        .average_last = 7,
        .trace_every = 3,
        .trace_path = own[0],
        .build = build,
        .checkpoint = own[1],
        .telemetry_every = 2, /* conv2, node 3, is sampled at step 7: after the first part */
        .telemetry_path = own[2],
        .telemetry_csv = own[3],
        .telemetry_pattern = "conv*,fc*,*.grad",
        .telemetry_shadows = "fp16,flex16+5:ngraph,dfp16:amax,tensor:e4m3fn:delayed:history=32:margin=1"};
}

static void use(nn_train_config *config, const char *optimiser) {
    if (!optimiser)
        return;
    config->network.optimiser = optimiser;
    config->network.momentum = 0;
    config->network.weight_decay = strcmp(optimiser, "adamw") ? 0 : 0.01f;
    config->network.clip_norm = 5;
    config->rate = 0.003;
}

static void make_folder(const char *folder) {
    CHECK(!mkdir(path_of(folder, ""), 0700), "%s: %s", folder, strerror(errno));
}

static void remove_folder(const char *folder) {
    static const char *const names[] = {"trace.csv",          "telemetry.jsonl",  "telemetry.csv",
                                        "resume.safetensors", "best.safetensors", "last.safetensors"};
    for (int i = 0; i < 6; i++)
        unlink(path_of(folder, names[i]));
    CHECK(!rmdir(path_of(folder, "")), "%s: %s", folder, strerror(errno));
}

static bool same_file(const char *a, const char *b, const char *name) {
    char command[900];
    snprintf(command, sizeof command, "cmp '%s' '%s'", path_of(a, name), path_of(b, name));
    return !system(command);
}

/* Compares the fields that both have: on a device no error is measured (docs/output.md). */
static bool same_rows(const char *without_measured, const char *name) {
    char command[4000], whole[400], pieces[400];
    snprintf(whole, sizeof whole, "%s", path_of("whole", name));
    snprintf(pieces, sizeof pieces, "%s", path_of("pieces", name));
    snprintf(command, sizeof command,
             "%s '%s' > '%s.kept' && %s '%s' > '%s.kept' && test -s '%s.kept' && cmp '%s.kept' '%s.kept'; "
             "status=$?; rm -f '%s.kept' '%s.kept'; exit $status",
             without_measured, whole, whole, without_measured, pieces, pieces, whole, whole, pieces, whole, pieces);
    return !system(command);
}

static bool same_telemetry(const char *device) {
    if (strcmp(device, "cpu") != 0)
        return same_rows("sed -E 's/\"sampled[a-z_]*\":[^,}]*,//g'", "telemetry.jsonl") &&
               same_rows("cut -d, -f1-17,22-", "telemetry.csv");
    return same_file("whole", "pieces", "telemetry.jsonl") && same_file("whole", "pieces", "telemetry.csv");
}

/* The step of the last record in which some elements, drawn from many, were computed again; 0: none has any. */
static int64_t last_sampled(const char *path) {
    static char line[20000];
    int64_t step = 0;
    FILE *file = fopen(path, "r");
    CHECK(file, "no file %s", path);
    while (file && fgets(line, sizeof line, file)) {
        const char *found = strstr(line, "\"sampled\":"), *at = strstr(line, "\"step\":");
        if (found && at && atoll(found + strlen("\"sampled\":")) == 256)
            step = atoll(at + strlen("\"step\":"));
    }
    if (file)
        fclose(file);
    return step;
}

/* The number of trainings whose later parts measured errors, so that the comparison cannot pass without any. */
static int measured_later;

static void same_result(const char *what, const nn_train_result *a, const nn_train_result *b) {
    nn_train_result x = *a, y = *b;
    x.seconds = y.seconds = 0;
    x.predicted = y.predicted = NULL;
    CHECK(!memcmp(&x, &y, sizeof x), "%s: other results: loss %.17g and %.17g", what, a->last_loss, b->last_loss);
    CHECK(
        a->predicted_count == b->predicted_count &&
            (!a->predicted_count || !memcmp(a->predicted, b->predicted, (size_t)a->predicted_count * sizeof(int32_t))),
        "%s: other predictions", what);
}

struct shape {
    const char *variant, *device, *optimiser; /* NULL: gradient descent */
    int64_t every, max_steps;
    bool no_test, after_epochs;
};

/* Compares one uninterrupted training with the same training in pieces. */
static void compare(const data_set *train, const data_set *test, const struct shape *shape) {
    struct told whole = {0}, pieces = {0};
    nn_train_result expected, got;
    const data_set *tested = shape->no_test ? NULL : test;
    const bool floats = strstr(shape->variant, "fp") == shape->variant ||
                        strstr(shape->variant, "bf") == shape->variant || strstr(shape->variant, "e") == shape->variant;
    char what[200];
    snprintf(what, sizeof what, "seed %llu: %s, %s on %s, every %lld, at most %lld%s", (unsigned long long)seed,
             shape->variant, shape->optimiser ? shape->optimiser : "sgd", shape->device, (long long)shape->every,
             (long long)shape->max_steps, shape->no_test ? ", no test" : "");
    make_folder("whole");
    make_folder("pieces");
    nn_train_config config = config_of(shape->variant, "whole");
    config.max_steps = shape->max_steps;
    use(&config, shape->optimiser);
    const nn_train_events events = {on_step, on_epoch, &whole, keep, resume};
    CHECK(!nn_train(&expected, &config, train, tested, &events), "%s: %s", what, tensor_error());
    const int all = shape->max_steps ? (int)shape->max_steps : STEPS;
    CHECK(whole.step_count == all, "%s: %d steps", what, whole.step_count);

    config = config_of(shape->variant, "pieces");
    config.max_steps = shape->max_steps;
    use(&config, shape->optimiser);
    config.network.device = shape->device;
    config.checkpoint_every = shape->every;
    config.report_every = strcmp(shape->device, "cpu") ? 1 : 0;
    const nn_train_events part_events = {on_step, on_epoch, &pieces, keep, resume};
    int parts = 0;
    int64_t first_part = STEPS;
    for (int done = 0;; parts++) {
        pieces.stop_at = done + 1 + (int)(check_random(&seed) % (all / 3));
        pieces.stop_after_epoch = shape->after_epochs;
        CHECK(!nn_train(&got, &config, train, tested, &part_events), "%s: %s", what, tensor_error());
        done = (int)got.steps;
        first_part = done < first_part ? done : first_part;
        if (!got.stopped || parts > STEPS)
            break;
        CHECK(access(path_of("pieces", "last.safetensors"), F_OK), "%s: stopped, and there is a last network", what);
        nn_train_result_clear(&got);
        static char from[400];
        snprintf(from, sizeof from, "%s", path_of("pieces", "resume.safetensors"));
        config.resume = from;
        memset(&pieces, 0, sizeof pieces);
    }
    CHECK(parts > 0 && parts <= STEPS, "%s: stopped %d times", what, parts);
    pieces.stop_at = whole.stop_at;
    pieces.stop_after_epoch = whole.stop_after_epoch;
    CHECK(!memcmp(&whole, &pieces, sizeof whole), "%s: other reports", what);
    same_result(what, &expected, &got);
    CHECK(same_file("whole", "pieces", "last.safetensors"), "%s: another last network", what);
    CHECK(shape->no_test ? access(path_of("pieces", "best.safetensors"), F_OK) != 0
                         : same_file("whole", "pieces", "best.safetensors"),
          "%s: another best network", what);
    CHECK(floats || same_file("whole", "pieces", "trace.csv"), "%s: another trace", what);
    CHECK(same_telemetry(shape->device), "%s: other telemetry", what);
    measured_later += last_sampled(path_of("pieces", "telemetry.jsonl")) > first_part;
    nn_train_result_clear(&expected);
    nn_train_result_clear(&got);
    /* At the end there is nothing to train, and the results are the same. */
    struct told again = {0};
    const nn_train_events again_events = {on_step, on_epoch, &again, keep, resume};
    static char end[400];
    snprintf(end, sizeof end, "%s", path_of("pieces", "resume.safetensors"));
    config.resume = end;
    CHECK(!nn_train(&got, &config, train, tested, &again_events) && got.steps == all, "%s: %s", what, tensor_error());
    again.stop_at = whole.stop_at;
    again.stop_after_epoch = whole.stop_after_epoch;
    CHECK(!memcmp(&whole, &again, sizeof whole) && (floats || same_file("whole", "pieces", "trace.csv")) &&
              same_telemetry(shape->device),
          "%s: from the end", what);
    nn_train_result_clear(&got);
    remove_folder("whole");
    remove_folder("pieces");
}

/* Copies resume.safetensors of `from` to `to`, each tensor as `change` leaves it; false: without it. */
static void edit(const char *from, const char *to,
                 bool (*change)(const struct fl_stored_tensor *t, char *bytes, const void *how), const void *how) {
    struct fl_safetensors s;
    struct fl_safetensors_out o = {0};
    CHECK(!fl_safetensors_open(&s, from), "%s", tensor_error());
    char *bytes = malloc((size_t)s.data_bytes + 1);
    for (int i = 0; i < s.note_count; i++)
        if (strcmp(s.notes[i].key, FL_CHECKSUM) != 0)
            CHECK(!fl_safetensors_add_note(&o, s.notes[i].key, s.notes[i].value), "%s", tensor_error());
    for (int i = 0; i < s.count; i++) {
        const struct fl_stored_tensor *t = &s.tensors[i];
        char *here = bytes + t->begin;
        CHECK(!fl_safetensors_read(&s, t, here), "%s", tensor_error());
        if (change(t, here, how))
            CHECK(!fl_safetensors_add(&o, t->name, t->type, t->ndim, t->dim, here), "%s", tensor_error());
    }
    CHECK(!fl_safetensors_write(&o, to), "%s", tensor_error());
    fl_safetensors_end(&o);
    fl_safetensors_close(&s);
    free(bytes);
}

/* --- checkpoints of earlier versions ------------------------------------------------------------------------------ */

/* Numbers of each tensor of the network, `stride` apart from `at` on, of which `count` are as an earlier version
 * counted writes: since statistics were reset. */
struct since_reset {
    const char *name;
    int64_t at, stride;
    int count;
};

static bool edit_counts(const struct fl_stored_tensor *t, char *bytes, const void *how) {
    const struct since_reset *of = how;
    int64_t *numbers = (int64_t *)(void *)bytes;
    for (int64_t n = of->at; !strcmp(t->name, of->name) && n < t->dim[0]; n += of->stride)
        for (int k = 0; k < of->count; k++)
            numbers[n + k] = numbers[n + k] > 0;
    return true;
}

static int64_t length_of(const char *path, const char *name) {
    struct fl_safetensors s;
    CHECK(!fl_safetensors_open(&s, path), "%s", tensor_error());
    const struct fl_stored_tensor *t = fl_safetensors_find(&s, name);
    CHECK(t, "%s: no %s", path, name);
    const int64_t length = t ? t->dim[0] : 0;
    fl_safetensors_close(&s);
    return length;
}

/* From the numbers of an earlier version a training goes on as from its own, also where statistics were reset. */
static void earlier(const char *variant, bool traced, int stop_at, const data_set *train, const data_set *test) {
    enum { SHADOWS = 4, HEAD = 5, PER_TENSOR = 22, PER_SHADOW = 13, TELEMETRY_WRITES = 2 /* and of the shadows */ };
    enum { TRACE_HEAD = 2, PER_TRACED = 8, TRACE_WRITES = 4 };
    struct told whole = {0}, pieces = {.stop_at = stop_at};
    nn_train_result result;
    make_folder("whole");
    make_folder("pieces");
    nn_train_config config = config_of(variant, "whole");
    config.telemetry_pattern = "*";
    CHECK(!nn_train(&result, &config, train, test, &(nn_train_events){on_step, on_epoch, &whole, keep, resume}), "%s",
          tensor_error());
    nn_train_result_clear(&result);
    const nn_train_events events = {on_step, on_epoch, &pieces, keep, resume};
    config = config_of(variant, "pieces");
    config.telemetry_pattern = "*";
    CHECK(!nn_train(&result, &config, train, test, &events) && result.steps == stop_at, "%s", tensor_error());
    nn_train_result_clear(&result);
    char from[400], changed[400], both[400];
    snprintf(from, sizeof from, "%s", path_of("pieces", "resume.safetensors"));
    snprintf(changed, sizeof changed, "%s", path_of("pieces", "changed"));
    snprintf(both, sizeof both, "%s", path_of("pieces", "both"));
    const int stride = PER_TENSOR + SHADOWS * PER_SHADOW;
    const int64_t tensors = (length_of(from, "training.telemetry.counts") - HEAD) / (1 + stride);
    CHECK(tensors > 20 && length_of(from, "training.trace.counts") == TRACE_HEAD + PER_TRACED * tensors,
          "%s: other numbers of %lld tensors", variant, (long long)tensors);
    edit(from, changed, edit_counts,
         &(struct since_reset){"training.telemetry.counts", HEAD + tensors, stride, TELEMETRY_WRITES});
    edit(changed, both, edit_counts,
         &(struct since_reset){"training.trace.counts", TRACE_HEAD + TRACE_WRITES, PER_TRACED, 1});
    config.resume = both;
    pieces.stop_at = 0;
    CHECK(!nn_train(&result, &config, train, test, &events) && result.steps == STEPS, "%s: %s", variant,
          tensor_error());
    nn_train_result_clear(&result);
    unlink(changed);
    unlink(both);
    CHECK(same_file("whole", "pieces", "last.safetensors") && same_telemetry("cpu"), "%s: other telemetry", variant);
    CHECK(!traced || same_file("whole", "pieces", "trace.csv"), "%s: another trace", variant);
    remove_folder("whole");
    remove_folder("pieces");
}

/* --- what is refused -----------------------------------------------------------------------------------------------
 */

static void refused(const nn_train_config *config, const data_set *train, const data_set *test,
                    const nn_train_events *events, tensor_status want, const char *words) {
    nn_train_result result;
    const tensor_status status = nn_train(&result, config, train, test, events);
    CHECK(status == want && strstr(tensor_error(), words), "%d: \"%s\", expected \"%s\"", (int)status, tensor_error(),
          words);
    nn_train_result_clear(&result);
}

/* One number of one tensor; at -1: without the tensor. */
struct one {
    const char *name;
    int at;
    int64_t whole;
    double real;
};

static bool edit_one(const struct fl_stored_tensor *t, char *bytes, const void *how) {
    const struct one *one = how;
    const size_t size = (size_t)fl_stored_type_bytes(t->type);
    if (strcmp(t->name, one->name) != 0)
        return true;
    if (one->at >= 0)
        memcpy(bytes + size * (size_t)one->at,
               t->type == FL_STORED_F64 ? (const void *)&one->real : (const void *)&one->whole, size);
    return one->at >= 0;
}

/* The same set with two images exchanged, or only their labels: counts and moments remain the same. */
static data_set *exchanged(const data_set *set, bool labels_alone) {
    const int64_t count = data_count(set);
    const size_t size = (size_t)data_height(set) * (size_t)data_width(set) * (size_t)data_channels(set);
    uint8_t *pixels = malloc((size_t)count * size);
    int32_t *labels = malloc((size_t)count * sizeof *labels);
    int64_t second = 1;
    while (data_label(set, second) == data_label(set, 0))
        second++;
    for (int64_t i = 0; i < count; i++) {
        const int64_t other = i == 0 ? second : i == second ? 0 : i;
        memcpy(pixels + (size_t)i * size, data_image(set, labels_alone ? i : other), size);
        labels[i] = data_label(set, labels_alone ? other : i);
    }
    data_set *made =
        data_new(pixels, labels, count, data_height(set), data_width(set), data_channels(set), data_classes(set));
    CHECK(made, "%s", tensor_error());
    free(pixels);
    free(labels);
    return made;
}

static void other_data(const nn_train_config *config, const data_set *train, const data_set *test) {
    for (int labels = 0; labels < 2; labels++) {
        data_set *other = exchanged(train, labels), *other_test = exchanged(test, labels);
        refused(config, other, test, NULL, TENSOR_E_DATA, "this training has");
        CHECK(strstr(tensor_error(), "'training.data'") && strstr(tensor_error(), " images or their labels"), "%s",
              tensor_error());
        refused(config, train, other_test, NULL, TENSOR_E_DATA, "'training.test_data'");
        CHECK(strstr(tensor_error(), "test images or their labels"), "%s", tensor_error());
        data_free(other);
        data_free(other_test);
    }
}

static int refuse_bytes(void *context, const void *bytes, size_t count) {
    (void)context, (void)bytes;
    return count > 0;
}

static void refusals(const data_set *train, const data_set *test) {
    struct told told = {.stop_at = 7};
    nn_train_events events = {on_step, on_epoch, &told, keep, resume};
    nn_train_result result;
    make_folder("whole");
    nn_train_config good = config_of("dfp16", "whole"), bad;
    CHECK(!nn_train(&result, &good, train, test, &events) && result.stopped && result.steps == 7, "%s", tensor_error());
    nn_train_result_clear(&result);
    char from[400], changed[400];
    snprintf(from, sizeof from, "%s", path_of("whole", "resume.safetensors"));
    snprintf(changed, sizeof changed, "%s", path_of("whole", "changed"));
    good.resume = from;
    good.checkpoint = NULL; /* nothing here is written anew */
    static char trace[400];
    snprintf(trace, sizeof trace, "%s", path_of("whole", "trace.csv"));
    good.trace_path = trace;
    bad = good, bad.epochs = 5;
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.epochs' is '4', this training has '5'");
    bad = good, bad.telemetry_every = 5;
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.telemetry'");
    bad = good, bad.telemetry_shadows = NULL;
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.telemetry'");
    bad = good, bad.rate = 0.06;
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.rate' is '0.050000000000000003', this training has");
    bad = good, bad.schedule = "linear";
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.schedule' is 'cosine', this training has 'linear'");
    bad = good, bad.augment = false;
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.augment' is '1', this training has '0'");
    bad = good, bad.model = "mlp2", bad.build = NULL, bad.telemetry_pattern = "fc*";
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'training.model'");
    bad = good, bad.network.seed = 6;
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'network.seed' is '5'");
    bad = good, bad.network.variant = "flex16+5";
    refused(&bad, train, test, NULL, TENSOR_E_DATA, "'network.variant' is 'dfp16'");
    refused(&good, test, train, NULL, TENSOR_E_DATA, "'training.images' is '44', this training has '19'");
    refused(&good, train, NULL, NULL, TENSOR_E_DATA, "'training.test_images' is '19', this training has '0'");
    data_set *other = data_open("synthetic:train=44,test=19,seed=3", DATA_TRAIN);
    refused(&good, other, test, NULL, TENSOR_E_DATA, "'training.mean'");
    data_free(other);
    other_data(&good, train, test);
    events.resume = refuse_bytes;
    refused(&good, train, test, &events, TENSOR_E_DATA, "is not the state of the program");
    bad = good, bad.resume = "/nowhere/file";
    refused(&bad, train, test, NULL, TENSOR_E_IO, "/nowhere/file");
    bad = good, bad.checkpoint = "/nowhere";
    refused(&bad, train, test, NULL, TENSOR_E_IO, "/nowhere");
    bad = good, bad.checkpoint = from;
    refused(&bad, train, test, NULL, TENSOR_E_IO, "is a file, expected a folder");
    bad = good, bad.checkpoint_every = -1;
    refused(&bad, train, test, NULL, TENSOR_E_ARGUMENT, "checkpoint_every -1");
    bad = good, bad.note_count = 1;
    refused(&bad, train, test, NULL, TENSOR_E_ARGUMENT, "note_count 1 at NULL");
    static const struct {
        const char *tensor;
        int at;
        int64_t whole;
        double real;
        const char *words;
    } cases[] = {{"training.position", 0, 0, 0, "epoch 0, batch 2, step 7"},
                 {"training.position", 0, 6, 0, "epoch 6, batch 2"},
                 {"training.position", 1, 3, 0, "batch 3, step 7"},
                 {"training.position", 1, -1, 0, "batch -1"},
                 {"training.position", 2, 2, 0, "not a position in a training"},
                 {"training.position", 2, 1, 0, "not a position in a training"},
                 {"training.position", 3, INT64_MAX, 0, "not a position in a training"},
                 {"training.position", 4, 8, 0, "step 8 (the network: 7)"},
                 {"training.position", 5, 0, 0, "0 images"},
                 {"training.position", 6, 9, 0, "not a position in a training"},
                 {"training.position", 7, 18, 0, "18 predictions"},
                 {"training.position", -1, 0, 0, "'training.position' is missing"},
                 {"training.sums", -1, 0, 0, "'training.sums' is missing"},
                 {"training.losses", -1, 0, 0, "'training.losses' is missing"},
                 {"training.predicted", 3, 10, 0, "prediction 3 is 10, expected 0 to 9"},
                 {"training.predicted", 3, -1, 0, "prediction 3 is -1, expected 0 to 9"},
                 {"training.trace", 0, 'x', 0, "is not a trace of"},
                 {"training.trace", -1, 0, 0, "'training.trace' is missing"},
                 {"training.trace.counts", 0, -1, 0, "is not a trace of"},
                 {"training.trace.counts", 3, 32768, 0, "is not a trace of"},
                 {"training.trace.maxima", 0, 0, -1, "is not a trace of"},
                 {"training.trace.maxima", 0, 0, NAN, "is not a trace of"},
                 {"training.telemetry", 0, 'x', 0, "telemetry: its stored state"},
                 {"training.telemetry", -1, 0, 0, "'training.telemetry' is missing"},
                 {"training.telemetry.table", 2, 'x', 0, "telemetry: its stored state"},
                 {"training.telemetry.counts", 0, 6, 0, "telemetry: its stored state"},
                 {"training.telemetry.counts", 5, 4000, 0, "telemetry: its stored state"},
                 {"training.telemetry.counts", 6, 0, 0, "telemetry: its stored state"},
                 {"training.telemetry.maxima", 0, 0, NAN, "telemetry: its stored state"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        edit(from, changed, edit_one, &(struct one){cases[i].tensor, cases[i].at, cases[i].whole, cases[i].real});
        bad = good, bad.resume = changed;
        refused(&bad, train, test, NULL, TENSOR_E_DATA, cases[i].words);
    }
    unlink(changed);
    CHECK(!nn_train(&result, &good, train, test, NULL) && result.steps == STEPS, "%s", tensor_error());
    nn_train_result_clear(&result);
    /* A network that no training wrote. */
    nn_graph *g = nn_graph_new(&good.network);
    CHECK(g && !nn_compile(g, build(g, 32, 32, 3, 10, NULL)) && !nn_checkpoint_save(g, from, NULL, 0), "%s",
          tensor_error());
    nn_graph_free(g);
    refused(&good, train, test, NULL, TENSOR_E_DATA, "no training can be resumed from it");
    remove_folder("whole");
}

/* The best network is that with the highest accuracy, among equal ones that with the lowest loss; its file repeats the
 * evaluation. */
static void best(const data_set *train, const data_set *test) {
    struct told told = {0};
    const nn_train_events events = {on_step, on_epoch, &told};
    nn_train_result result;
    make_folder("whole");
    nn_train_config config = config_of("fp32", "whole");
    config.notes = (nn_note[]){{"author", "nobody"}};
    config.note_count = 1;
    CHECK(!nn_train(&result, &config, train, test, &events), "%s", tensor_error());
    nn_train_result_clear(&result);
    int chosen = 0;
    for (int i = 1; i < EPOCHS; i++) {
        const double *a = told.epochs[i], *b = told.epochs[chosen];
        if (a[4] > b[4] || (a[4] == b[4] && a[3] < b[3]))
            chosen = i;
    }
    char steps[20], expected[20], author[20];
    snprintf(expected, sizeof expected, "%d", (chosen + 1) * EPOCH_STEPS);
    CHECK(!nn_checkpoint_note(steps, sizeof steps, path_of("whole", "best.safetensors"), "network.steps") &&
              !strcmp(steps, expected),
          "the best is of step %s, expected %s", steps, expected);
    CHECK(!nn_checkpoint_note(steps, sizeof steps, path_of("whole", "last.safetensors"), "network.steps") &&
              atoi(steps) == STEPS,
          "the last is of step %s", steps);
    CHECK(!nn_checkpoint_note(author, sizeof author, path_of("whole", "last.safetensors"), "author") &&
              !strcmp(author, "nobody"),
          "%s", tensor_error());
    remove_folder("whole");
}

/* --- no memory -----------------------------------------------------------------------------------------------------
 */

static _Atomic long until_failure; /* 0: none fails; threads allocate, too */

static void *failing(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    if ((until_failure > 0 && --until_failure == 0) || posix_memalign(&block, alignment, size))
        return NULL;
    return block;
}

/* A training that is resumed and finds no memory at some allocation reports that; its checkpoint remains complete and
 * can be resumed. */
static void no_memory(const data_set *train, const data_set *test) {
    struct told told = {.stop_at = 7};
    const nn_train_events events = {on_step, on_epoch, &told, keep, resume};
    nn_train_result result;
    make_folder("whole");
    nn_train_config config = config_of("dfp16", "whole");
    config.checkpoint_every = 2;
    CHECK(!nn_train(&result, &config, train, test, &events) && result.stopped, "%s", tensor_error());
    nn_train_result_clear(&result);
    char from[400];
    snprintf(from, sizeof from, "%s", path_of("whole", "resume.safetensors"));
    config.resume = from;
    int failures = 0;
    bool met = true;
    for (long n = 1; met; n += 1 + n / 6) {
        memset(&told, 0, sizeof told);
        until_failure = n;
        const tensor_status status = nn_train(&result, &config, train, test, &events);
        met = until_failure == 0;
        until_failure = 0;
        CHECK(met ? status == TENSOR_E_MEMORY || !status : !status, "request %ld: %d, %s", n, (int)status,
              tensor_error());
        failures += status != TENSOR_OK;
        nn_train_result_clear(&result);
        struct fl_safetensors s;
        CHECK(!fl_safetensors_open(&s, from) && !fl_safetensors_verify(&s), "request %ld: %s", n, tensor_error());
        fl_safetensors_close(&s);
    }
    CHECK(failures > 20, "%d failures", failures);
    remove_folder("whole");
}

int main(int argc, char **argv) {
    tensor_set_allocator(failing, free);
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    snprintf(place, sizeof place, "/tmp/flexlab-resume-%ld", (long)getpid());
    if (mkdir(place, 0700))
        return 1;
    const bool toy_is_there = toy_begin((size_t)4 << 30);
    data_set *train = data_open("synthetic:train=44,test=19", DATA_TRAIN),
             *test = data_open("synthetic:train=44,test=19", DATA_TEST);
    CHECK(train && test, "%s", tensor_error());
    static const char *const variants[] = {"fp32",        "fp16",           "bf16", "flex16+5",
                                           "flex16+5-sr", "flex16+5-paper", "dfp16"};
    for (int i = 0; i < 7; i++) {
        compare(train, test, &(struct shape){variants[i], "cpu", NULL, i % 3 * 2, 0, false, false});
        compare(
            train, test,
            &(struct shape){variants[i], toy_is_there && i % 2 ? "toy" : "cpu", NULL, 0, 13, i % 4 == 3, i % 2 == 0});
    }
    for (int i = 0; nn_optimiser_at(i); i++)
        if (strcmp(nn_optimiser_at(i), "sgd") != 0)
            compare(train, test,
                    &(struct shape){variants[(3 + i) % 7], toy_is_there && i % 3 == 1 ? "toy" : "cpu",
                                    nn_optimiser_at(i), 3, 0, false, false});
    compare(train, test, &(struct shape){"e4m3fn", "cpu", NULL, 3, 0, false, false});
    compare(train, test, &(struct shape){"tensor:e4m3fn", "cpu", NULL, 3, 0, false, false});
    compare(train, test, &(struct shape){"e5m2", "cpu", "adamw", 0, 13, false, true});
    CHECK(measured_later >= 7, "%d trainings measured errors after they went on", measured_later);
    earlier("flex16+5", true, 7, train, test);
    earlier("fp16", false, 6, train, test);
    resets = 3;
    earlier("flex16+5", true, 6, train, test);
    earlier("fp16", false, 8, train, test);
    resets = 0;
    refusals(train, test);
    best(train, test);
    no_memory(train, test);
    data_free(train);
    data_free(test);
    CHECK(!rmdir(place), "%s: %s", place, strerror(errno));
    return check_summary();
}
