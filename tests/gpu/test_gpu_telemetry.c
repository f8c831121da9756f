/* A program's own training loop with nn_telemetry, on the device "cuda" and on the processor: the files, the calls of
 * `row`, and the first NaN or Inf must be the same to the byte, whatever the loop makes of a step (several passes, no
 * update, no step at all, another state, requests within a step). On a device that is a step later, and no step waits
 * or brings elements, which the PTX machine counts; nn_telemetry_await, nn_telemetry_nonfinite and nn_telemetry_finish
 * complete the records.
 *
 *     test_gpu_telemetry [quick|long [HABIT]]        long: more formats; HABIT: this one alone, whose files remain
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. */
#include "on_gpu.h"
#include <math.h>
#include <unistd.h>

enum { SIDE = 4, CHANNELS = 3, CLASSES = 10, SAMPLE = SIDE * SIDE * CHANNELS, MOST_BATCH = 6, MOST_STEPS = 9 };

enum habit {
    PLAIN,
    TWICE,     /* of some steps two forward passes */
    PARTLY,    /* some steps have no update, or neither that nor a backward pass, or nothing */
    GROWING,   /* so that tensors are written for the first time in later steps */
    SELDOM,    /* telemetry hears of every second step alone */
    REQUESTED, /* records between the regular ones, also in the middle of a step */
    RESTORED,  /* the state is set back, statistics begin anew */
    RETRIED,   /* the state is set back to that before the step */
    BESIDE,    /* evaluations and searches for NaN or Inf in between */
    LENT,      /* without a loss: the gradient is given */
    BROKEN,    /* images that are not finite */
    ASKED,     /* for the first NaN or Inf after each step, and for all records after some */
    HABITS
};
static const char *const names[HABITS] = {"plain",    "twice",   "partly", "growing", "seldom", "requested",
                                          "restored", "retried", "beside", "lent",    "broken", "asked"};

struct loop {
    enum habit habit;
    const char *variant, *loss_scale, *shadows;
    int batch, steps, every;
};

/* What the calls of a loop gave. */
struct heard {
    long rows;
    uint64_t sum;               /* of all figures of the records, in their order */
    long asked[MOST_STEPS + 1]; /* the rows when they had been asked for */
    char first[500];            /* NaN or Inf, and the writes before it; "": none */
    long waits, brought;        /* of a device, in nn_telemetry_step, from the third step on */
};

static void add(uint64_t *sum, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    *sum = (*sum ^ (isnan(x) ? 0 : bits)) * 0x100000001b3u + 1;
}

static void on_row(void *context, const nn_telemetry_row *row) {
    struct heard *h = context;
    const double numbers[] = {(double)row->step,    row->elements ? row->elements->mean : -1,
                              row->update_ratio,    (double)row->update_moved,
                              (double)row->steps,   (double)row->writes,
                              row->maximum,         (double)row->saturated,
                              (double)row->e,       (double)row->e_moves,
                              (double)row->sampled, row->sampled_error};
    h->rows++;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add(&h->sum, numbers[i]);
    for (int i = 0; i < row->shadow_count; i++) {
        add(&h->sum, row->shadows[i].e);
        add(&h->sum, row->shadows[i].error);
        add(&h->sum, (double)row->shadows[i].e_moves);
        add(&h->sum, (double)row->shadows[i].saturated_writes);
    }
}

static tensor_device *place; /* of the training */
static bool keeps;           /* the files */

static nn_graph *network(const struct loop *l, const char *device) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = l->variant,
                                            .batch = l->batch,
                                            .seed = 5,
                                            .momentum = 0.9f,
                                            .loss_scale = l->loss_scale,
                                            .loss = l->habit == LENT ? "none" : NULL,
                                            .device = device});
    CHECK(g, "%s", tensor_error());
    nn_node x = nn_conv2d(g, "conv", nn_input(g, SIDE, SIDE, CHANNELS), 4, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_linear(g, "fc", nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true}), CLASSES, true);
    CHECK(!nn_compile(g, x), "%s", tensor_error());
    place = tensor_device_find(device ? device : "cpu");
    return g;
}

static float images[MOST_BATCH * SAMPLE];
static int32_t labels[MOST_BATCH];

/* Sizes that leap from step to step. */
static nn_batch batch_of(int step, bool finite) {
    uint64_t state = (uint64_t)step * 77 + 1;
    const float scale = ldexpf(1, (int)(check_random(&state) % 20) - 10);
    for (int i = 0; i < MOST_BATCH * SAMPLE; i++)
        images[i] = scale * (float)((double)(int64_t)check_random(&state) / 9223372036854775808.0);
    for (int i = 0; i < MOST_BATCH; i++)
        labels[i] = (int32_t)(check_random(&state) % CLASSES);
    if (!finite)
        images[7] = NAN;
    return (nn_batch){.images = images, .labels = labels};
}

static void forward(nn_graph *g, const struct loop *l, int step) {
    nn_batch batch = batch_of(step, l->habit != BROKEN || step < 6);
    if (l->habit == LENT)
        batch.labels = NULL;
    CHECK(!nn_forward(g, &batch), "%s", tensor_error());
}

static void backward(nn_graph *g, const struct loop *l, int step) {
    double values[MOST_BATCH * CLASSES];
    if (l->habit != LENT) {
        CHECK(!nn_backward(g), "%s", tensor_error());
        return;
    }
    for (int i = 0; i < l->batch * CLASSES; i++)
        values[i] = ldexp(i % 7 - 3, -step % 5);
    tensor *gradient = tensor_new_in(place, tensor_format_of(nn_output(g)), TENSOR_SHAPE(l->batch, CLASSES));
    CHECK(gradient && !tensor_load_f64(gradient, values, l->batch * CLASSES) && !nn_backward_from(g, gradient), "%s",
          tensor_error());
    tensor_free(gradient);
}

static void make_step(nn_graph *g, const struct loop *l, int step) {
    forward(g, l, step);
    backward(g, l, step);
    CHECK(!nn_update(g, 0.01f), "%s", tensor_error());
}

/* One step as the habit has it. */
static void live(nn_graph *g, nn_telemetry *t, const struct loop *l, int step, void *state, size_t bytes) {
    double loss;
    const nn_nonfinite *found;
    if (l->habit == RETRIED && step % 3 == 1)
        CHECK(!nn_state_save(state, bytes, g), "%s", tensor_error());
    if (l->habit == TWICE && step % 3 != 0)
        forward(g, l, 100 + step);
    if (l->habit == TWICE && step % 3 != 0 && step % 4 == 2) {
        backward(g, l, step);
        forward(g, l, 200 + step);
    }
    if (l->habit == SELDOM)
        make_step(g, l, 300 + step);
    if (l->habit == BESIDE && step % 2)
        CHECK(!nn_evaluate(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = l->batch}), "%s",
              tensor_error());
    if (l->habit == REQUESTED && step % 3 == 0)
        nn_telemetry_want(t);
    if (l->habit == PARTLY && step % 5 == 4)
        return;
    forward(g, l, step);
    if ((l->habit == PARTLY && step % 5 == 2) || (l->habit == GROWING && step < 3))
        return;
    backward(g, l, step);
    if (l->habit == REQUESTED && step % 4 == 0)
        nn_telemetry_want(t);
    if ((l->habit == PARTLY && step % 5 == 0) || (l->habit == GROWING && step < 5))
        return;
    CHECK(!nn_update(g, 0.01f), "%s", tensor_error());
    if (l->habit == BESIDE && step % 3 == 0)
        CHECK(!nn_find_nonfinite(&found, g), "%s", tensor_error());
    if (l->habit == RESTORED && step == 2)
        CHECK(!nn_state_save(state, bytes, g), "%s", tensor_error());
    if ((l->habit == RESTORED && step % 3 == 2) || (l->habit == RETRIED && step % 3 == 1))
        CHECK(!nn_state_restore(g, state, bytes), "%s", tensor_error());
    for (int i = 0; l->habit == RESTORED && step % 4 == 1 && i < nn_tensor_count(g); i++)
        tensor_reset_statistics(nn_tensor_at(g, i).t);
}

static void tell_first(const nn_telemetry *t, char *text, size_t size) {
    const nn_nonfinite *first = nn_telemetry_nonfinite(t);
    uint64_t before = 0;
    CHECK(first && first->before_count > 4, "nothing was found");
    for (int64_t i = 0; first && i < first->before_count; i++) {
        add(&before, (double)first->before[i].step);
        add(&before, first->before[i].maximum);
        add(&before, (double)first->before[i].e);
    }
    if (first)
        snprintf(text, size, "step %lld %s %s %s %s, %lld of %lld up to %g, %s; before it %lld: %llx",
                 (long long)first->step, first->tensor, first->pass, first->layer, first->format,
                 (long long)first->nonfinite, (long long)first->elements, first->maximum,
                 first->remedy ? first->remedy : "-", (long long)first->before_count, (unsigned long long)before);
}

static void train(const struct loop *l, const char *device, const char *json, const char *csv, struct heard *heard) {
    *heard = (struct heard){.rows = 0};
    nn_graph *g = network(l, device);
    const size_t bytes = nn_state_bytes(g);
    void *const state = malloc(bytes);
    nn_telemetry *t = nn_telemetry_new(
        g, &(nn_telemetry_config){
               .path = json, .csv = csv, .every = l->every, .shadows = l->shadows, .row = on_row, .context = heard});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= l->steps; step++) {
        live(g, t, l, step, state, bytes);
        const long waits = counted("stream waits"), brought = counted("brought");
        CHECK(!nn_telemetry_step(t), "step %d: %s", step, tensor_error());
        heard->waits += step > 2 ? counted("stream waits") - waits : 0;
        heard->brought += step > 2 ? counted("brought") - brought : 0;
        if (l->habit == ASKED && step % 3 == 0)
            CHECK(!nn_telemetry_await(t), "step %d: %s", step, tensor_error());
        else if (l->habit == ASKED)
            CHECK(!nn_telemetry_nonfinite(t), "step %d: a NaN or Inf", step);
        heard->asked[step] = l->habit == ASKED ? heard->rows : 0;
    }
    if (l->habit == BROKEN)
        tell_first(t, heard->first, sizeof heard->first);
    CHECK(!nn_telemetry_finish(t) && !nn_telemetry_await(t), "%s", tensor_error());
    nn_telemetry_free(t);
    nn_graph_free(g);
    free(state);
}

/* Returns what the device did in the loop. */
static struct heard compare(const struct loop *l) {
    static const char *const files[2][2] = {{"gpu_telemetry_cpu.jsonl", "gpu_telemetry_cpu.csv"},
                                            {"gpu_telemetry_gpu.jsonl", "gpu_telemetry_gpu.csv"}};
    struct heard heard[2];
    long size = 0;
    for (int device = 0; device < 2; device++)
        train(l, device ? "cuda" : NULL, files[device][0], files[device][1], &heard[device]);
    CHECK(heard[0].rows == heard[1].rows && heard[0].sum == heard[1].sum, "%s, %s: %ld rows, on the device %ld",
          names[l->habit], l->variant, heard[0].rows, heard[1].rows);
    CHECK(!memcmp(heard[0].asked, heard[1].asked, sizeof heard[0].asked), "%s: fewer rows when they are asked for",
          l->variant);
    CHECK(!strcmp(heard[0].first, heard[1].first), "%s: %s; on the device %s", l->variant, heard[0].first,
          heard[1].first);
    for (int file = 0; file < 2; file++) {
        size += compare_files(files[0][file], files[1][file]);
        for (int device = 0; device < 2 && !keeps; device++)
            unlink(files[device][file]);
    }
    CHECK(size > 10000 && heard[0].rows > 20, "%s, %s: %ld bytes", names[l->habit], l->variant, size);
    return heard[1];
}

/* Images that the device refuses: the failure is told once, by telemetry alone, four steps later at the latest, and the
 * records of the steps before and long after are there. */
static void refused(void) {
    const struct loop l = {.habit = BROKEN, .variant = "flex16+5", .batch = 2};
    struct heard heard = {.rows = 0};
    int failed = 0;
    long rows = 0;
    nn_graph *g = network(&l, "cuda");
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 1, .row = on_row, .context = &heard});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= 14; step++) {
        const nn_batch batch = batch_of(step, step != 5);
        CHECK(!nn_train_step(NULL, NULL, g, &batch, 0.01f), "step %d: %s", step, tensor_error());
        if (nn_telemetry_step(t)) {
            failed++;
            CHECK(step >= 5 && step <= 9 && strstr(tensor_error(), "value 7 is nan"), "step %d: %s", step,
                  tensor_error());
            CHECK(heard.rows == 4 * (long)nn_tensor_count(g), "%ld rows of the four steps before", heard.rows);
        }
        rows = step == 10 ? heard.rows : rows;
    }
    CHECK(failed == 1 && !nn_telemetry_finish(t) && heard.rows >= rows + 4 * (long)nn_tensor_count(g),
          "%d failures, %ld rows, then %ld: %s", failed, rows, heard.rows, tensor_error());
    nn_telemetry_free(t);
    nn_graph_free(g);
}

int main(int argc, char **argv) {
    static const char shadows[] = "fp16,flex8+5,dfp16:ngraph";
    static const char *const variants[] = {"flex16+5", "fp16", "fp32", "bf16", "dfp16"};
    /* Of these the first step overflows, and more after it. */
    static const char scaled[] = "dynamic:init=2^24,window=2,factor=1024";
    const bool all = argc > 1 && !strcmp(argv[1], "long");
    int status;
    if (!has_gpu(&status))
        return status;
    find_counts();
    keeps = argc > 2;
    for (int habit = 0; habit < HABITS; habit++) {
        if (keeps && strcmp(argv[2], names[habit]) != 0)
            continue;
        for (int i = 0; i < (all ? 5 : 2); i++) {
            const char *const variant = variants[i];
            if (habit == BROKEN && i % 4 == 0) /* shared exponents refuse such images */
                continue;
            struct loop l = {.habit = (enum habit)habit,
                             .variant = variant,
                             .loss_scale = !strcmp(variant, "fp16") ? scaled : NULL,
                             .shadows = i == 4 ? NULL : shadows,
                             .batch = 2,
                             .steps = habit == PLAIN ? MOST_STEPS : 8,
                             .every = habit == REQUESTED ? 100
                                      : habit == TWICE || habit == GROWING || habit == RETRIED || habit == ASKED
                                          ? 1
                                          : 1 + i % 2};
            const struct heard small = compare(&l);
            if (habit != PLAIN)
                continue;
            CHECK(!small.waits, "%s: %ld waits for the queue in nn_telemetry_step", variant, small.waits);
            l.batch = MOST_BATCH;
            const struct heard large = compare(&l);
            CHECK(small.brought == large.brought && (!counts || small.brought > 1000),
                  "%s: %ld bytes come to the host, of larger batches %ld", variant, small.brought, large.brought);
        }
    }
    if (!keeps)
        refused();
    return check_summary();
}
