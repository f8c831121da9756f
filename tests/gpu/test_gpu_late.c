/* Telemetry of a device, of which one call of the runtime fails, as the PTX machine plans it: in turn each that steps
 * of telemetry make, as copies begin and as it waits for them. The failure is returned once, and no step but the one
 * that it is of is lost, nor any write; what the device then follows of shadow formats is what the host has seen. Steps
 * are fetched behind the training, or each is waited for, or slots are copied as they are; each or every third has
 * records.
 *
 * Without the machine: skipped. */
#include "on_gpu.h"
#include "core/queue/queue.h"
#include "nn/telemetry/nn_telemetry.h"
#include <math.h>

enum {
    STEPS = 7 /* at the sixth as many are on their way as can be */,
    MOST_ROWS = 64,
    MANY = 70 /* more slots than one array has */
};
enum kind {
    LATE,
    AT_ONCE,
    WATCHED,  /* by the caller: slots are copied as they are */
    ASKED,    /* late, and asked for the first NaN or Inf, which returns no failure */
    SHADOWED, /* late, with shadows whose exponents the device follows */
    APART,    /* late, with one whose predictor the program added: the host examines elements */
    KINDS
};

static long (*plan)(const char *text);
static long left; /* calls until one fails; 0: it has failed */

/* What the records of a training say. */
struct seen {
    int rows[STEPS + 1], undescribed; /* rows: of each step */
    int64_t writes[MOST_ROWS];        /* of each tensor, in the order of rows */
};

static double steady(const struct autoflex *a, void *context) {
    (void)context;
    return a->history[0];
}

static void on_row(void *context, const nn_telemetry_row *row) {
    struct seen *seen = context;
    seen->writes[seen->rows[row->step]++ % MOST_ROWS] += row->writes;
    seen->undescribed += !row->elements;
}

static void begin_plan(void) {
    char text[40];
    snprintf(text, sizeof text, "*@%ld@2", left); /* 2: no memory, which passes */
    (void)plan(left ? text : NULL);
}

/* Whether the device follows shadows; if so, it knows what the host knows, which has seen all writes. */
static bool follows(const nn_telemetry *t, const char *what) {
    static struct fl_shadowed states[MOST_ROWS * FL_MOST_SHADOWS];
    const size_t bytes = (size_t)t->count * (size_t)t->shadow_count * sizeof *states;
    int different = 0;
    if (!t->following)
        return false;
    CHECK(bytes <= sizeof states && !fl_get(fl_device_queue(t->g->device), states, t->shadows_there, bytes), "%s: %s",
          what, tensor_error());
    for (int i = 0; i < t->count; i++)
        for (int k = 0; k < t->shadow_count; k++)
            different +=
                memcmp(&states[i * t->shadow_count + k].a, &t->tensors[i].shadows[k].a, sizeof(struct autoflex)) != 0;
    CHECK(!different, "%s: %d shadows have other states on the device", what, different);
    return true;
}

/* The end of telemetry that has a record of its last step: nothing is left to ask of the device. */
static void finish(nn_telemetry *t, const char *what) {
    if (t->recorder.row_step == t->recorder.step) {
        (void)plan("*@1@2");
        CHECK(!nn_telemetry_finish(t) && plan(NULL) == 1, "%s: the end asks the device: %s", what, tensor_error());
    }
    nn_telemetry_free(t);
}

/* A training in which call number `at` of telemetry fails; returns whether there was such a call. */
static bool training(enum kind kind, int every, long at, struct seen *seen) {
    static uint8_t pixels[2 * 4 * 4 * 3];
    static int32_t labels[2];
    static float values[3 * 256];
    int failed = 0;
    char what[80];
    snprintf(what, sizeof what, "kind %d, every %d, call %ld", (int)kind, every, at);
    for (int i = 0; i < 3 * 256; i++)
        values[i] = ldexpf(1, i % 24 - 12);
    const char *const shadows = kind == SHADOWED ? "fp16,flex8+5,dfp16" : kind == APART ? "flex16+5:steady" : NULL;
    *seen = (struct seen){.undescribed = 0};
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 2, .seed = 5, .device = "cuda"});
    const nn_node x = nn_input(g, 4, 4, 3);
    CHECK(!nn_compile(g, nn_linear(g, "fc", x, 10, true)) && !nn_set_pixel_values(g, values), "%s", tensor_error());
    nn_telemetry *t = nn_telemetry_new(
        g, &(nn_telemetry_config){
               .every = every, .row = on_row, .context = seen, .shadows = shadows, .watched = kind == WATCHED});
    CHECK(t && (kind != WATCHED || !nn_watch(g, nn_telemetry_watch, t)), "%s", tensor_error());
    if (kind == AT_ONCE)
        fl_telemetry_tell(t, NULL, NULL, false);
    left = at;
    for (int step = 1; step <= STEPS; step++) {
        memset(pixels, 11 * step % 24, sizeof pixels); /* leaps between 2^-7 and 2^10 */
        CHECK(!nn_forward(g, &(nn_batch){.pixels = pixels, .labels = labels}) && !nn_backward(g) && !nn_update(g, 0.1f),
              "%s", tensor_error());
        begin_plan();
        failed += nn_telemetry_step(t) != TENSOR_OK;
        if (kind == ASKED && step % 2)
            CHECK(!nn_telemetry_nonfinite(t), "%s: a NaN or Inf", what);
        if (step == STEPS)
            failed += nn_telemetry_await(t) != TENSOR_OK;
        left = plan(NULL);
    }
    CHECK(failed <= (at && !left), "%s: %d failures: %s", what, failed, tensor_error());
    CHECK(follows(t, what) || kind != SHADOWED || failed, "%s: no shadows on the device", what);
    finish(t, what);
    nn_graph_free(g);
    return at && !left;
}

/* Compares the records with those of a training without a failure. */
static void compare(const struct seen *want, const struct seen *have, const char *what) {
    int lost = 0;
    for (int step = 0; step <= STEPS; step++) {
        lost += want->rows[step] && !have->rows[step];
        CHECK(!have->rows[step] || have->rows[step] == want->rows[step], "%s: step %d has %d rows, expected %d", what,
              step, have->rows[step], want->rows[step]);
    }
    CHECK(lost <= 1 && !have->undescribed, "%s: the rows of %d steps are lost, %d without elements", what, lost,
          have->undescribed);
    CHECK(!have->rows[STEPS] || !memcmp(have->writes, want->writes, sizeof have->writes), "%s: writes are lost", what);
}

/* Each call, or one of `apart`. */
static void each_call(enum kind kind, int every, int apart) {
    struct seen want, have;
    char what[80];
    long at = 1 + (long)kind % apart;
    CHECK(!training(kind, every, 0, &want) && want.rows[1] > 4 && want.rows[1] < MOST_ROWS && want.rows[STEPS] &&
              want.writes[0] == STEPS && !want.undescribed,
          "%d rows of %lld writes", want.rows[1], (long long)want.writes[0]);
    for (; training(kind, every, at, &have) && check_failures < 20; at += apart) {
        snprintf(what, sizeof what, "kind %d, every %d, call %ld", (int)kind, every, at);
        compare(&want, &have, what);
    }
    CHECK(at > 4 * STEPS, "kind %d, every %d: only %ld calls", (int)kind, every, at);
}

int main(int argc, char **argv) {
    const char *path = getenv("FLEXLAB_CUDA_LIBRARY");
    const int apart = argc > 1 ? atoi(argv[1]) : 1;
    tensor *many[MANY];
    int status;
    if (!path || !strstr(path, "_ptx"))
        return check_skip("it needs the PTX machine");
    if (!has_gpu(&status))
        return status;
    void *symbol = of_machine("ptx_plan");
    memcpy(&plan, &symbol, sizeof plan);
    CHECK(autoflex_add("steady", steady, NULL), "%s", tensor_error());
    for (int i = 0; i < MANY; i++)
        many[i] = tensor_new_in(tensor_device_find("cuda"), FMT_FP32, TENSOR_SHAPE(1));
    for (int kind = 0; kind < KINDS; kind++) {
        each_call((enum kind)kind, 1, apart);
        each_call((enum kind)kind, 3, apart);
    }
    for (int i = 0; i < MANY; i++)
        tensor_free(many[i]);
    return check_summary();
}
