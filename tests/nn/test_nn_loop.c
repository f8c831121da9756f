/* nn_train: totals, reports, schedule, trace file, stopping, and what it refuses. */
#include "check.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "trace_rows.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 20, TRAIN = 210, TEST = 50, EPOCHS = 3, STEPS = TRAIN / BATCH * EPOCHS };

static nn_train_config config_of(const char *variant) {
    return (nn_train_config){.network = {.variant = variant, .batch = BATCH, .seed = 3, .momentum = 0.9f},
                             .model = "mlp2",
                             .epochs = EPOCHS,
                             .rate = 0.01,
                             .schedule = "linear",
                             .average_last = 5,
                             .trace_every = 1};
}

struct seen {
    int steps, epochs, stop_at_step, stop_at_epoch;
    double losses[STEPS], epoch_loss[EPOCHS];
    float rates[STEPS];
    double test_accuracy;
};

static int on_step(void *context, const nn_step_report *r) {
    struct seen *seen = context;
    CHECK(r->step == seen->steps + 1 && r->images == r->step * BATCH, "step %lld, images %lld", (long long)r->step,
          (long long)r->images);
    if (seen->steps < STEPS) {
        seen->losses[seen->steps] = r->loss;
        seen->rates[seen->steps] = (float)r->rate;
    }
    return ++seen->steps == seen->stop_at_step;
}

static int on_epoch(void *context, const nn_epoch_report *r) {
    struct seen *seen = context;
    CHECK(r->epoch == seen->epochs + 1 && r->step == seen->steps, "epoch %d, step %lld", r->epoch, (long long)r->step);
    CHECK(r->train_accuracy >= 0 && r->train_accuracy <= 1 && r->seconds >= 0, "epoch %d", r->epoch);
    if (seen->epochs < EPOCHS)
        seen->epoch_loss[seen->epochs] = r->train_loss;
    seen->test_accuracy = r->test_accuracy;
    return ++seen->epochs == seen->stop_at_epoch;
}

static void whole_run(const data_set *train, const data_set *test, const char *variant) {
    struct seen seen = {0};
    nn_train_events events = {on_step, on_epoch, &seen};
    nn_train_config config = config_of(variant);
    nn_train_result result, again;
    CHECK(!nn_train(&result, &config, train, test, &events), "%s: %s", variant, tensor_error());
    CHECK(seen.steps == STEPS && seen.epochs == EPOCHS && result.steps == STEPS && result.images == STEPS * BATCH,
          "%s: %d steps, %d epochs", variant, seen.steps, seen.epochs);
    double last = 0, epoch = 0;
    for (int i = 0; i < 5; i++)
        last += seen.losses[STEPS - 1 - i] / 5;
    for (int i = 0; i < TRAIN / BATCH; i++)
        epoch += seen.losses[STEPS - 1 - i] / (TRAIN / BATCH);
    CHECK(fabs(last - result.last_loss) <= 1e-14 * last, "%s: last loss %g, want %g", variant, result.last_loss, last);
    CHECK(fabs(epoch - result.train_loss) <= 1e-14 * epoch && result.train_loss == seen.epoch_loss[EPOCHS - 1],
          "%s: train loss %g, want %g", variant, result.train_loss, epoch);
    CHECK(seen.epoch_loss[EPOCHS - 1] < seen.epoch_loss[0], "%s: loss %g, then %g", variant, seen.epoch_loss[0],
          seen.epoch_loss[EPOCHS - 1]);
    for (int i = 0; i < STEPS; i++)
        CHECK(seen.rates[i] == (float)(0.01 * (1 - (double)i / STEPS)), "%s: rate %g at step %d", variant,
              (double)seen.rates[i], i);
    CHECK(!result.stopped && result.predicted_count == TEST && result.predicted, "%s: %lld predictions", variant,
          (long long)result.predicted_count);
    int correct = 0;
    for (int i = 0; i < TEST; i++)
        correct += result.predicted[i] == data_label(test, i);
    CHECK(result.test_accuracy == (double)correct / TEST && result.test_accuracy == seen.test_accuracy,
          "%s: accuracy %g, %d of %d right", variant, result.test_accuracy, correct, TEST);
    CHECK(result.parameters > 0 && result.weight_bytes > 0 && result.activation_bytes > 0 && result.arena_bytes > 0 &&
              result.elements > result.parameters * STEPS && result.nonfinite == 0,
          "%s: totals", variant);
    CHECK(!nn_train(&again, &config, train, NULL, NULL), "%s: %s", variant, tensor_error());
    CHECK(again.train_loss == result.train_loss && isnan(again.test_accuracy) && !again.predicted &&
              again.saturated == result.saturated && again.flushed == result.flushed,
          "%s: without test set: loss %a, want %a", variant, again.train_loss, result.train_loss);
    nn_train_result_clear(&again);
    nn_train_result_clear(&result);
    CHECK(!result.predicted && !result.steps, "cleared");
}

/* Counts records; checks that e and gamma fit the format. With a record for every step, gamma is the maximum as it was
 * stored. */
static int read_trace(const char *path, bool every_step) {
    FILE *file = trace_rows_open(path);
    struct trace_row row;
    int rows = 0;
    if (!file)
        return -1;
    for (; trace_rows_next(file, &row); rows++) {
        CHECK(row.step >= 1 && row.e >= 0 && row.e <= 31 && row.gamma >= 0 && row.gamma <= 32767 && row.value >= 0,
              "%s at step %lld: e %d, gamma %d, maximum %s", row.name, row.step, row.e, row.gamma, row.maximum);
        CHECK(!every_step || row.gamma == 32767 ||
                  fabs(row.value - row.gamma * ldexp(1, -row.e)) <= ldexp(0.5001, -row.e),
              "%s at step %lld: e %d, gamma %d, maximum %s", row.name, row.step, row.e, row.gamma, row.maximum);
    }
    fclose(file);
    return rows;
}

static void trace(const data_set *train) {
    char path[] = "/tmp/flexlab_trace_XXXXXX", part[64];
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0, "temporary file");
    close(descriptor);
    remove(path);
    snprintf(part, sizeof part, "%s.part", path);
    nn_train_config config = config_of("flex16+5");
    nn_train_result result;
    config.trace_path = path;
    config.max_steps = 7;
    CHECK(!nn_train(&result, &config, train, NULL, NULL), "%s", tensor_error());
    int every = read_trace(path, true);
    CHECK(result.steps == 7 && every > 0 && every % 7 == 0, "%d rows", every);
    CHECK(access(part, F_OK), "the part is left");
    nn_train_result_clear(&result);
    for (config.trace_every = 3; config.trace_every < 6; config.trace_every += 2) { /* steps 1, 4, 7; 1, 6, 7 */
        CHECK(!nn_train(&result, &config, train, NULL, NULL), "%s", tensor_error());
        CHECK(read_trace(path, false) == every / 7 * 3, "every %d: %d rows", config.trace_every,
              read_trace(path, false));
        nn_train_result_clear(&result);
    }
    config.network.variant = "fp32";
    CHECK(!nn_train(&result, &config, train, NULL, NULL), "%s", tensor_error());
    CHECK(read_trace(path, true) == 0, "%d rows in fp32", read_trace(path, true));
    nn_train_result_clear(&result);
    remove(path);
    config.network.batch = TRAIN + 1;
    CHECK(nn_train(&result, &config, train, NULL, NULL) == TENSOR_E_SHAPE, "batch larger than the set");
    CHECK(access(path, F_OK) && access(part, F_OK), "a failed run leaves a file");
    config = config_of("flex16+5");
    config.trace_path = "/nonexistent/trace.csv";
    CHECK(nn_train(&result, &config, train, NULL, NULL) == TENSOR_E_IO, "no such folder");
    CHECK(strstr(tensor_error(), "/nonexistent/trace.csv"), "%s", tensor_error());
}

static void refused(const data_set *train, const char *text, nn_train_config config) {
    nn_train_result result;
    CHECK(nn_train(&result, &config, train, train, NULL), "trains where '%s' is wrong", text);
    CHECK(strstr(tensor_error(), text), "message '%s' lacks '%s'", tensor_error(), text);
    CHECK(!result.predicted && !result.steps, "the result is not cleared");
}

/* Bounds the memory of a step beside the weights. */
static void bounded(const data_set *train) {
    nn_train_config config = config_of("flex16+5");
    nn_train_result result;
    config.max_steps = 1;
    CHECK(!nn_train(&result, &config, train, NULL, NULL), "%s", tensor_error());
    const int64_t takes = result.arena_bytes;
    nn_train_result_clear(&result);
    config.most_of_steps = 64 << 20;
    CHECK(!nn_train(&result, &config, train, NULL, NULL), "%s", tensor_error());
    nn_train_result_clear(&result);
    config.most_of_steps = takes / 2;
    CHECK(nn_train(&result, &config, train, NULL, NULL) == TENSOR_E_MEMORY, "trains in half of %lld bytes",
          (long long)takes);
    refused(train, "bytes or more beside the weights, expected at most", config);
    config.most_of_steps = -1;
    refused(train, "most_of_steps -1, expected 0 or more", config);
}

static void stops_and_errors(const data_set *train, const data_set *test) {
    struct seen seen = {.stop_at_step = 4};
    nn_train_events events = {on_step, on_epoch, &seen};
    nn_train_config config = config_of("flex16+5");
    nn_train_result result;
    char path[] = "/tmp/flexlab_trace_XXXXXX";
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0, "temporary file");
    close(descriptor);
    config.trace_path = path;
    CHECK(!nn_train(&result, &config, train, test, &events) && seen.steps == 4, "stop at step: %s", tensor_error());
    CHECK(result.stopped && result.steps == 4 && result.images == 4 * BATCH, "%lld steps", (long long)result.steps);
    double mean = (seen.losses[0] + seen.losses[1] + seen.losses[2] + seen.losses[3]) / 4;
    CHECK(fabs(result.train_loss - mean) < 1e-12 && fabs(result.last_loss - mean) < 1e-12, "losses %g %g, mean %g",
          result.train_loss, result.last_loss, mean);
    CHECK(isnan(result.test_loss) && isnan(result.test_accuracy) && !result.predicted_count && result.elements > 0,
          "no evaluation yet, but %lld predictions", (long long)result.predicted_count);
    int rows = read_trace(path, true);
    CHECK(rows > 0 && rows % 4 == 0, "%d rows of 4 steps", rows);
    nn_train_result_clear(&result);
    remove(path);
    config.trace_path = NULL;
    seen = (struct seen){.stop_at_epoch = 2};
    CHECK(!nn_train(&result, &config, train, test, &events) && seen.epochs == 2, "stop at epoch: %s", tensor_error());
    CHECK(result.stopped && result.test_accuracy == seen.test_accuracy && result.predicted_count == TEST,
          "%lld predictions", (long long)result.predicted_count);
    nn_train_result_clear(&result);
    seen = (struct seen){.stop_at_epoch = EPOCHS};
    CHECK(!nn_train(&result, &config, train, test, &events) && !result.stopped,
          "the last epoch leaves nothing to stop");
    nn_train_result_clear(&result);
    for (int i = 0; i < 11; i++) {
        static const char *const texts[] = {
            "0 epochs", "nosuchschedule", "nosuchmodel", "nosuchvariant",   "batch: 0",     "211",
            "rate -1",  "warm-up",        "max_steps",   "nosuchpredictor", "every 0 steps"};
        config = config_of("dfp16");
        switch (i) {
        case 0:
            config.epochs = 0;
            break;
        case 1:
            config.schedule = "nosuchschedule";
            break;
        case 2:
            config.model = "nosuchmodel";
            break;
        case 3:
            config.network.variant = "nosuchvariant";
            break;
        case 4:
            config.network.batch = 0;
            break;
        case 5:
            config.network.batch = 211;
            break;
        case 6:
            config.rate = -1;
            break;
        case 7:
            config.warmup_epochs = EPOCHS;
            break;
        case 8:
            config.max_steps = -1;
            break;
        case 9:
            config.network.predictor = "nosuchpredictor";
            break;
        case 10:
            config.trace_path = "/tmp/flexlab_unused";
            config.trace_every = 0;
            break;
        }
        refused(train, texts[i], config);
    }
    CHECK(nn_train(NULL, &config, train, test, NULL) && nn_train(&result, NULL, train, test, NULL) &&
              nn_train(&result, &config, NULL, test, NULL),
          "NULL");
}

int main(void) {
    data_set *train = data_open("synthetic:train=210,test=50,seed=9", DATA_TRAIN);
    data_set *test = data_open("synthetic:train=210,test=50,seed=9", DATA_TEST);
    CHECK(train && test, "%s", tensor_error());
    if (train && test) {
        whole_run(train, test, "fp32");
        whole_run(train, test, "flex16+5");
        whole_run(train, test, "flex16+5-sr");
        trace(train);
        bounded(train);
        stops_and_errors(train, test);
    }
    data_free(train);
    data_free(test);
    return check_summary();
}
