/* A training in parts: whatever the parts, and whatever other trainings alternate with it, its reports, result,
 * predictions, trace and checkpoints are those of nn_train, bit for bit; one that is finished early resumes from its
 * checkpoint; one that is abandoned leaves no trace; what is refused. Also the reports of nn_train about a scaled
 * loss. */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 12, TRAIN = 90, TEST = 30, EPOCHS = 3, STEPS = TRAIN / BATCH * EPOCHS, MOST = 64 };

static char place[64];

static const char *path(char out[160], const char *name) {
    snprintf(out, 160, "%s/%s", place, name);
    return out;
}

/* All reports of a training. */
struct told {
    nn_step_report steps[MOST];
    nn_epoch_report epochs[8];
    int step_count, epoch_count, starved;
    int64_t starved_at[4];
    int stop_at;
};

static int on_step(void *context, const nn_step_report *r) {
    struct told *told = context;
    CHECK(told->step_count < MOST, "%d steps", told->step_count);
    nn_step_report *to = &told->steps[told->step_count++]; /* field by field: padding is compared, too */
    to->step = r->step;
    to->steps = r->steps;
    to->epoch = r->epoch;
    to->loss = r->loss;
    to->rate = r->rate;
    to->images = r->images;
    to->loss_scale = r->loss_scale;
    to->skipped_in_a_row = r->skipped_in_a_row;
    return told->step_count == told->stop_at;
}

static int on_epoch(void *context, const nn_epoch_report *r) {
    struct told *told = context;
    nn_epoch_report *to = &told->epochs[told->epoch_count++];
    to->epoch = r->epoch;
    to->step = r->step;
    to->train_loss = r->train_loss;
    to->train_accuracy = r->train_accuracy;
    to->test_loss = r->test_loss;
    to->test_accuracy = r->test_accuracy;
    return 0;
}

static void on_starved(void *context, const nn_step_report *r) {
    struct told *told = context;
    if (told->starved < 4)
        told->starved_at[told->starved++] = r->step;
}

static nn_train_events events_of(struct told *told) {
    return (nn_train_events){.step = on_step, .epoch = on_epoch, .context = told, .starved = on_starved};
}

static nn_train_config config_of(const char *variant, const char *scale) {
    return (nn_train_config){
        .network = {.variant = variant, .batch = BATCH, .seed = 3, .momentum = 0.9f, .loss_scale = scale},
        .model = "mlp2",
        .epochs = EPOCHS,
        .rate = 0.01,
        .schedule = "linear",
        .average_last = 5,
        .trace_every = 2};
}

static char *contents(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    char *bytes = malloc(1 << 20);
    *size = file && bytes ? fread(bytes, 1, 1 << 20, file) : 0;
    CHECK(file, "%s is not there", name);
    if (file)
        fclose(file);
    return bytes;
}

static void same_files(const char *a, const char *b) {
    size_t one, two;
    char *left = contents(a, &one), *right = contents(b, &two);
    CHECK(one && one == two && !memcmp(left, right, one), "%s and %s differ", a, b);
    free(left);
    free(right);
}

static void same_result(const char *what, nn_train_result *a, nn_train_result *b) {
    CHECK(a->predicted_count == b->predicted_count &&
              !memcmp(a->predicted, b->predicted, (size_t)a->predicted_count * sizeof *a->predicted),
          "%s: predictions", what);
    nn_train_result one = *a, two = *b;
    one.predicted = two.predicted = NULL;
    one.seconds = two.seconds = 0;
    CHECK(!memcmp(&one, &two, sizeof one), "%s: results differ (last loss %.17g and %.17g)", what, one.last_loss,
          two.last_loss);
}

static void same_told(const char *what, const struct told *a, const struct told *b) {
    CHECK(a->step_count == b->step_count && !memcmp(a->steps, b->steps, sizeof a->steps), "%s: steps differ", what);
    CHECK(a->epoch_count == b->epoch_count && !memcmp(a->epochs, b->epochs, sizeof a->epochs), "%s: epochs differ",
          what);
}

/* Formats that alternate after this number of steps, each against nn_train alone. */
static void turns(const data_set *train, const data_set *test, int64_t part, int64_t report_every) {
    static const char *const variants[] = {"fp32", "fp16", "flex16+5"}, *const scales[] = {NULL, "dynamic", "1024"};
    enum { FORMATS = 3 };
    struct told alone[FORMATS] = {0}, together[FORMATS] = {0};
    nn_train_result want[FORMATS], got[FORMATS];
    nn_train_config config[FORMATS];
    nn_trainer *trainer[FORMATS];
    char names[FORMATS][2][160];
    for (int i = 0; i < FORMATS; i++) {
        config[i] = config_of(variants[i], scales[i]);
        config[i].report_every = report_every;
        for (int k = 0; k < 2; k++) {
            char name[40];
            snprintf(name, sizeof name, "trace-%d-%d.csv", i, k);
            path(names[i][k], name);
        }
        config[i].trace_path = names[i][0];
        const nn_train_events events = events_of(&alone[i]);
        CHECK(!nn_train(&want[i], &config[i], train, test, &events), "%s", tensor_error());
        config[i].trace_path = names[i][1];
        const nn_train_events others = events_of(&together[i]);
        trainer[i] = nn_trainer_new(&config[i], train, test, &others);
        CHECK(trainer[i], "%s", tensor_error());
    }
    bool over[FORMATS] = {false};
    int64_t rounds = 0;
    for (; !over[0] || !over[1] || !over[2]; rounds++)
        for (int i = 0; i < FORMATS; i++) {
            CHECK(!nn_trainer_advance(&over[i], trainer[i], part), "%s", tensor_error());
            const int64_t due = part > STEPS ? STEPS : (rounds + 1) * part < STEPS ? (rounds + 1) * part : STEPS;
            CHECK(together[i].step_count == due && nn_steps(nn_trainer_network(trainer[i])) == (uint64_t)due,
                  "%s: %d steps are told, %d done", variants[i], together[i].step_count, (int)due);
        }
    CHECK(part > STEPS ? rounds == 1 : rounds == (STEPS + part - 1) / part, "%d rounds", (int)rounds);
    for (int i = 0; i < FORMATS; i++) {
        CHECK(!nn_trainer_advance(&over[i], trainer[i], 5) && over[i] && together[i].step_count == STEPS,
              "more than all");
        CHECK(!nn_trainer_finish(&got[i], trainer[i]) && !got[i].stopped, "%s", tensor_error());
        nn_train_result_clear(&got[i]);
        CHECK(nn_trainer_finish(&got[i], trainer[i]) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "has finished"),
              "%s", tensor_error());
        CHECK(nn_trainer_advance(NULL, trainer[i], 1) == TENSOR_E_ARGUMENT, "after its end");
        nn_trainer_free(trainer[i]);
        same_told(variants[i], &alone[i], &together[i]);
        if (i == 2)
            same_files(names[i][0], names[i][1]);
        for (int k = 0; k < 2; k++)
            remove(names[i][k]);
    }
    /* the second finish returned nothing: train again for the results */
    for (int i = 0; i < FORMATS; i++) {
        config[i].trace_path = NULL;
        nn_trainer *t = nn_trainer_new(&config[i], train, test, NULL);
        bool end = false;
        while (t && !end)
            CHECK(!nn_trainer_advance(&end, t, part), "%s", tensor_error());
        CHECK(!nn_trainer_finish(&got[i], t), "%s", tensor_error());
        nn_trainer_free(t);
        same_result(variants[i], &want[i], &got[i]);
        nn_train_result_clear(&want[i]);
        nn_train_result_clear(&got[i]);
    }
}

/* A training that is finished before its end is stopped, and resumes from its checkpoint with the bits of an
 * uninterrupted one. */
static void early(const data_set *train, const data_set *test, int64_t first) {
    char folder[160], resume[160], best[160], last[160];
    struct told whole = {0}, parts = {0};
    nn_train_result want, got;
    nn_train_config config = config_of("fp16", "dynamic:init=2^17,window=4");
    nn_train_events events = events_of(&whole);
    CHECK(!nn_train(&want, &config, train, test, &events), "%s", tensor_error());
    config.checkpoint = path(folder, "kept");
    mkdir(folder, 0700);
    events = events_of(&parts);
    nn_trainer *t = nn_trainer_new(&config, train, test, &events);
    CHECK(t && !nn_trainer_advance(NULL, t, first) && !nn_trainer_finish(&got, t), "%s", tensor_error());
    CHECK(got.stopped && got.steps == first && got.skipped >= 0, "%d steps", (int)got.steps);
    nn_trainer_free(t);
    nn_train_result_clear(&got);
    config.resume = path(resume, "kept/resume.safetensors");
    CHECK(!nn_train(&got, &config, train, test, &events), "%s", tensor_error());
    same_result("taken up", &want, &got);
    same_told("taken up", &whole, &parts);
    nn_train_result_clear(&want);
    nn_train_result_clear(&got);
    remove(resume);
    remove(path(best, "kept/best.safetensors"));
    remove(path(last, "kept/last.safetensors"));
    rmdir(folder);
}

/* A training stopped by a callback at a step that is reported at the end of the part is stored like any other. */
static void stopped_between(const data_set *train, const data_set *test) {
    char folder[160], resume[160], best[160], last[160];
    struct told whole = {0}, parts = {.stop_at = 3};
    nn_train_result want, got;
    nn_train_config config = config_of("fp16", "dynamic:init=2^17,window=4");
    nn_train_events events = events_of(&whole);
    bool over = false;
    CHECK(!nn_train(&want, &config, train, test, &events), "%s", tensor_error());
    config.checkpoint = path(folder, "kept");
    config.report_every = 8;
    mkdir(folder, 0700);
    events = events_of(&parts);
    nn_trainer *t = nn_trainer_new(&config, train, test, &events);
    CHECK(t && !nn_trainer_advance(&over, t, 5) && over, "%s", tensor_error());
    CHECK(!access(path(resume, "kept/resume.safetensors"), F_OK), "no checkpoint");
    CHECK(!nn_trainer_finish(&got, t) && got.stopped && got.steps == 5 && got.train_loss > 0, "%d steps, loss %g",
          (int)got.steps, got.train_loss);
    nn_trainer_free(t);
    nn_train_result_clear(&got);
    config.resume = resume;
    CHECK(!nn_train(&got, &config, train, test, &events), "%s", tensor_error());
    same_result("stopped between", &want, &got);
    same_told("stopped between", &whole, &parts);
    nn_train_result_clear(&want);
    nn_train_result_clear(&got);
    remove(resume);
    remove(path(best, "kept/best.safetensors"));
    remove(path(last, "kept/last.safetensors"));
    rmdir(folder);
}

static void abandoned(const data_set *train) {
    char trace[160], part[170];
    nn_train_config config = config_of("flex16+5", NULL);
    config.trace_path = path(trace, "trace.csv");
    nn_trainer *t = nn_trainer_new(&config, train, NULL, NULL);
    CHECK(t && !nn_trainer_advance(NULL, t, 4), "%s", tensor_error());
    nn_trainer_free(t);
    snprintf(part, sizeof part, "%s.part", trace);
    CHECK(access(trace, F_OK) && access(part, F_OK), "an abandoned training leaves a trace");
    config.epochs = 0;
    CHECK(!nn_trainer_new(&config, train, NULL, NULL) && strstr(tensor_error(), "0 epochs"), "%s", tensor_error());
    config.epochs = 1;
    config.trace_path = NULL;
    t = nn_trainer_new(&config, train, NULL, NULL);
    nn_train_result result;
    bool over;
    CHECK(nn_trainer_advance(&over, t, -1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "-1 steps"), "%s",
          tensor_error());
    CHECK(nn_trainer_advance(&over, NULL, 1) == TENSOR_E_ARGUMENT && nn_trainer_finish(NULL, t) == TENSOR_E_ARGUMENT,
          "NULL");
    CHECK(!nn_trainer_advance(&over, t, 0) && !over, "no steps");
    CHECK(!nn_trainer_finish(&result, t) && result.stopped && result.steps == 0, "%s", tensor_error());
    nn_train_result_clear(&result);
    nn_trainer_free(t);
    nn_trainer_free(NULL);
    CHECK(!nn_trainer_new(NULL, train, NULL, NULL) && !nn_trainer_new(&config, NULL, NULL, NULL), "NULL");
    struct told told = {.stop_at = 3};
    const nn_train_events events = events_of(&told);
    t = nn_trainer_new(&config, train, NULL, &events);
    CHECK(t && !nn_trainer_advance(&over, t, 5) && over && !nn_trainer_finish(&result, t) && result.stopped &&
              result.steps == 3,
          "a callback stops it: %s", tensor_error());
    nn_train_result_clear(&result);
    nn_trainer_free(t);
}

/* A scale that never fits: every step is skipped and reported, and after twenty of them one report says that nothing
 * changes. */
static void starves(const data_set *train) {
    struct told told = {0};
    nn_train_events events = events_of(&told);
    nn_train_config config = config_of("fp16", "dynamic:init=2^40,min=2^40,max=2^40");
    nn_train_result result;
    config.epochs = 5;
    config.report_every = 4;
    CHECK(!nn_train(&result, &config, train, NULL, &events), "%s", tensor_error());
    CHECK(told.starved == 1 && told.starved_at[0] == NN_STARVED, "told %d times, at step %d", told.starved,
          (int)told.starved_at[0]);
    const int64_t all = TRAIN / BATCH * 5;
    CHECK(result.skipped == all && result.skipped_in_a_row == all && result.skipped_at_end == all &&
              result.loss_scale == 0x1p40,
          "%d skipped, scale %g", (int)result.skipped, result.loss_scale);
    for (int i = 0; i < told.step_count; i++)
        CHECK(told.steps[i].skipped_in_a_row == i + 1 && told.steps[i].loss_scale == 0x1p40, "step %d: %d, scale %g", i,
              (int)told.steps[i].skipped_in_a_row, told.steps[i].loss_scale);
    nn_train_result_clear(&result);
    /* each step is reported with the scale with which it was trained */
    memset(&told, 0, sizeof told);
    config = config_of("fp16", "dynamic:init=2^24,window=3");
    CHECK(!nn_train(&result, &config, train, NULL, &events), "%s", tensor_error());
    double scale = 0x1p24;
    int good = 0;
    int64_t skipped = 0;
    for (int i = 0; i < told.step_count; i++) {
        CHECK(told.steps[i].loss_scale == scale, "step %d: scale %g, expected %g", i, told.steps[i].loss_scale, scale);
        if (told.steps[i].skipped_in_a_row) {
            scale /= 2;
            good = 0;
            skipped++;
        } else if (++good == 3) {
            scale *= 2;
            good = 0;
        }
    }
    CHECK(skipped > 3 && skipped == result.skipped && result.loss_scale == scale && told.starved == 0,
          "%d skipped, %d; scale %g, %g", (int)skipped, (int)result.skipped, scale, result.loss_scale);
    nn_train_result_clear(&result);
}

int main(void) {
    snprintf(place, sizeof place, "trainer-XXXXXX");
    CHECK(mkdtemp(place), "%s", place);
    data_set *train = data_open("synthetic:train=90,test=30,seed=4", DATA_TRAIN),
             *test = data_open("synthetic:train=90,test=30,seed=4", DATA_TEST);
    CHECK(train && test && data_count(train) == TRAIN, "%s", tensor_error());
    turns(train, test, 1, 0);
    turns(train, test, 5, 0);
    turns(train, test, 7, 3);
    turns(train, test, INT64_MAX, 0);
    for (int64_t first = 1; first < STEPS; first += 6)
        early(train, test, first); /* within an epoch, and at its end */
    stopped_between(train, test);
    abandoned(train);
    starves(train);
    data_free(train);
    data_free(test);
    rmdir(place);
    return check_summary();
}
