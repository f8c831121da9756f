/* The trace file against the statistics of the tensors: whatever the interval between records, their counts add up to
 * the totals, and the largest maximum and gamma are those of the totals. Statistics that are reset between two steps
 * change nothing of it, nor does a checkpoint. */
#include "check.h"
#include "nn/telemetry/nn_trace.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include "trace_rows.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 8, SIDE = 8, CHANNELS = 3, CLASSES = 4, STEPS = 23, MOST = 64 };

static nn_graph *network(const char *variant, const char *predictor) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant,
                                            .predictor = predictor,
                                            .batch = BATCH,
                                            .seed = 5,
                                            .momentum = 0.9f,
                                            .weight_decay = 1e-4f});
    nn_node x = nn_input(g, SIDE, SIDE, CHANNELS);
    x = nn_conv2d(g, "conv", x, 6, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    x = nn_avgpool_global(g, "pool", x);
    x = nn_linear(g, "fc", x, CLASSES, false);
    CHECK(!nn_compile(g, x), "%s", tensor_error());
    return g;
}

/* Values that change by powers of two from step to step: exponents lag behind, elements saturate and underflow, and
 * exponents reach the ends of their range. */
static void make_batch(int step, float *images, int32_t *labels) {
    uint64_t state = (uint64_t)step * 77 + 1;
    float scale = ldexpf(1, (int)(check_random(&state) % 50) - 25);
    for (int i = 0; i < BATCH * SIDE * SIDE * CHANNELS; i++)
        images[i] = scale * (float)((double)(int64_t)check_random(&state) / 9223372036854775808.0);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&state) % CLASSES);
}

/* The sums over the records of one tensor. */
struct sum {
    char name[80];
    char maximum[40]; /* as printed; the largest */
    double value;
    int gamma, rows;
    long long saturated, flushed, nonfinite, low, high;
};

static struct sum *find(struct sum *sums, int *count, const char *name) {
    for (int i = 0; i < *count; i++)
        if (!strcmp(sums[i].name, name))
            return &sums[i];
    CHECK(*count < MOST, "more than %d tensors", MOST);
    struct sum *s = &sums[(*count)++];
    memset(s, 0, sizeof *s);
    strcpy(s->name, name);
    strcpy(s->maximum, "0");
    return s;
}

static int read_sums(const char *path, int every, struct sum *sums) {
    FILE *file = trace_rows_open(path);
    struct trace_row row;
    int count = 0;
    CHECK(file, "no %s", path);
    while (file && trace_rows_next(file, &row)) {
        struct sum *s = find(sums, &count, row.name);
        long long wanted = 1 + (long long)s->rows++ * every;
        CHECK(row.step == (wanted < STEPS ? wanted : STEPS), "every %d: row at step %lld, want %lld", every, row.step,
              wanted);
        /* The exponent that is written beside the maximum is the one with which the maximum was stored. */
        double top = ldexp(32767, -row.maximum_e);
        CHECK(row.gamma == 32767 || row.value <= top + ldexp(0.5001, -row.maximum_e), "every %d: %s at step %lld",
              every, row.name, row.step);
        CHECK(every > 1 || row.maximum_e == row.e || row.value == 0, "every 1: %s at step %lld", row.name, row.step);
        s->saturated += row.saturated;
        s->flushed += row.flushed;
        s->nonfinite += row.nonfinite;
        s->low += row.low;
        s->high += row.high;
        if (row.gamma > s->gamma)
            s->gamma = row.gamma;
        if (row.value > s->value) {
            s->value = row.value;
            strcpy(s->maximum, row.maximum);
        }
    }
    if (file)
        fclose(file);
    return count;
}

static void check_sums(const nn_graph *g, const char *what, int every, struct sum *sums, int count, long long *events) {
    int shared = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        nn_tensor_info info = nn_tensor_at(g, i);
        const struct autoflex *a = tensor_autoflex(info.t);
        tensor_stats total;
        char maximum[40];
        if (!a)
            continue;
        shared++;
        CHECK(!tensor_statistics(NULL, &total, info.t), "%s", tensor_error());
        CHECK(total.writes == STEPS, "%s %s: %lld writes in %d steps", what, info.name, (long long)total.writes, STEPS);
        const struct sum *s = find(sums, &count, info.name);
        snprintf(maximum, sizeof maximum, "%.9g", total.maximum);
        CHECK(s->rows == (STEPS - 1 + every - 1) / every + 1, "%s every %d: %s has %d rows", what, every, info.name,
              s->rows);
        CHECK(s->saturated == total.saturated && s->flushed == total.flushed && s->nonfinite == total.nonfinite,
              "%s every %d: %s has %lld saturated, %lld flushed, %lld nonfinite, want %lld, %lld, %lld", what, every,
              info.name, s->saturated, s->flushed, s->nonfinite, (long long)total.saturated, (long long)total.flushed,
              (long long)total.nonfinite);
        CHECK(s->low == (long long)a->clamped_low && s->high == (long long)a->clamped_high,
              "%s every %d: %s clamped %lld and %lld, want %lld and %lld", what, every, info.name, s->low, s->high,
              (long long)a->clamped_low, (long long)a->clamped_high);
        CHECK(s->gamma == total.gamma && !strcmp(s->maximum, maximum),
              "%s every %d: %s has gamma %d, maximum %s, want %d, %s", what, every, info.name, s->gamma, s->maximum,
              (int)total.gamma, maximum);
        events[0] += total.saturated;
        events[1] += total.flushed;
        events[2] += s->low + s->high;
    }
    CHECK(shared == count && shared > 10, "%s every %d: %d tensors in the trace, %d in the graph", what, every, count,
          shared);
}

static void trace_adds_up(const char *variant, const char *predictor, int every, long long *events) {
    char path[] = "/tmp/flexlab_trace_XXXXXX", what[80];
    int descriptor = mkstemp(path);
    CHECK(descriptor >= 0, "temporary file");
    close(descriptor);
    snprintf(what, sizeof what, "%s:%s", variant, predictor);
    nn_graph *g = network(variant, predictor);
    struct fl_trace *trace;
    static float images[BATCH * SIDE * SIDE * CHANNELS];
    static struct sum sums[MOST];
    int32_t labels[BATCH];
    CHECK(!fl_trace_open(&trace, path, every), "%s", tensor_error());
    for (int step = 1; step <= STEPS; step++) {
        make_batch(step, images, labels);
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f), "%s step %d: %s",
              what, step, tensor_error());
        CHECK(!fl_trace_step(trace, g, step), "%s step %d: %s", what, step, tensor_error());
        if (step % 7 == 0) /* an evaluation between two steps has no effect */
            CHECK(!nn_evaluate(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = BATCH}), "%s",
                  tensor_error());
    }
    CHECK(!fl_trace_finish(trace), "%s", tensor_error());
    fl_trace_free(trace);
    check_sums(g, what, every, sums, read_sums(path, every, sums), events);
    nn_graph_free(g);
    remove(path);
}

/* --- two traces of one training ----------------------------------------------------------------------------------- */

static struct fl_trace *opened(const char *path, int every) {
    struct fl_trace *trace;
    CHECK(!fl_trace_open(&trace, path, every), "%s", tensor_error());
    return trace;
}

/* The bytes of a finished trace, which is removed. */
static char *text_of(struct fl_trace *trace, const char *path) {
    static const size_t most = 1 << 20;
    char *text = calloc(most, 1);
    CHECK(!fl_trace_finish(trace), "%s", tensor_error());
    fl_trace_free(trace);
    FILE *file = fopen(path, "r");
    CHECK(file && fread(text, 1, most, file) > 1000 && feof(file), "%s", path);
    if (file)
        fclose(file);
    remove(path);
    return text;
}

static void reset_all(const nn_graph *g) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        tensor_reset_statistics(nn_tensor_at(g, i).t);
}

static void same_text(const char *what, int every, char *want, char *got) {
    int line = 1;
    size_t at = 0;
    for (; want[at] && want[at] == got[at]; at++)
        line += want[at] == '\n';
    CHECK(want[at] == got[at], "%s, every %d: line %d differs", what, every, line);
    free(want);
    free(got);
}

/* A step; every fourth leaves out the update, so that weights are not written. */
static void part_of_step(nn_graph *g, int step) {
    static float images[BATCH * SIDE * SIDE * CHANNELS];
    int32_t labels[BATCH];
    make_batch(step, images, labels);
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}), "%s", tensor_error());
    if (step % 4)
        CHECK(!nn_backward(g) && !nn_update(g, 0.01f), "%s", tensor_error());
}

/* Statistics are reset after each step, or after some: the trace is that of a training without it. */
static void goes_on_after_resets(const char *variant, int every) {
    char path[80], *texts[4];
    for (int resets = 0; resets < 4; resets++) {
        snprintf(path, sizeof path, "/tmp/flexlab_trace_reset_%ld", (long)getpid());
        nn_graph *g = network(variant, NULL);
        struct fl_trace *trace = opened(path, every);
        for (int step = 1; step <= STEPS; step++) {
            part_of_step(g, step);
            CHECK(!fl_trace_step(trace, g, step), "%s", tensor_error());
            if (resets && step % resets == 0)
                reset_all(g);
        }
        texts[resets] = text_of(trace, path);
        nn_graph_free(g);
    }
    char what[80];
    for (int resets = 1; resets < 4; resets++) {
        snprintf(what, sizeof what, "%s, statistics reset after each %d steps", variant, resets);
        char *want = strdup(texts[0]);
        same_text(what, every, want, texts[resets]);
    }
    free(texts[0]);
}

/* Numbers of a tensor that a checkpoint keeps: writes, as earlier versions counted them since a reset. */
enum { KEPT_WRITES = 2 + 4 };

/* Beside a trace another is kept and goes on from there after steps with and without an update, also where statistics
 * were reset before. The kept count of writes is one of an earlier version, since a reset: nothing is seen twice. */
static void goes_on_from_kept(const char *variant, int every, bool resets) {
    char paths[2][80], what[80];
    nn_graph *g = network(variant, NULL);
    struct fl_trace *traces[2];
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/tmp/flexlab_trace_kept_%ld_%d", (long)getpid(), i);
        traces[i] = opened(paths[i], every);
    }
    for (int step = 1; step <= STEPS; step++) {
        part_of_step(g, step);
        for (int i = 0; i < 2; i++)
            CHECK(!fl_trace_step(traces[i], g, step), "%s", tensor_error());
        if (resets && step % 3 == 0)
            reset_all(g);
        if (step % 5 && (step + 1) % 4)
            continue;
        struct fl_trace_kept kept;
        CHECK(!fl_trace_keep(traces[1], g, &kept), "%s", tensor_error());
        for (int64_t i = KEPT_WRITES; i < kept.whole_count; i += FL_TRACE_WHOLE)
            kept.whole[i] = kept.whole[i] ? step % 3 : 0;
        fl_trace_free(traces[1]);
        traces[1] = opened(paths[1], every);
        CHECK(!fl_trace_resume(traces[1], g, &kept), "%s", tensor_error());
        fl_trace_kept_clear(&kept);
    }
    snprintf(what, sizeof what, "%s, kept and resumed%s", variant, resets ? ", with resets" : "");
    char *want = text_of(traces[0], paths[0]);
    same_text(what, every, want, text_of(traces[1], paths[1]));
    nn_graph_free(g);
}

int main(void) {
    for (int every = 1; every <= 7; every += 3) {
        goes_on_after_resets("flex16+5", every);
        goes_on_after_resets("dfp16", every);
        goes_on_from_kept("flex16+5", every, false);
        goes_on_from_kept("flex16+5", every, true);
    }
    static const char *const cases[][2] = {
        {"flex16+5", "paper"}, {"flex16+5-sr", "ngraph"}, {"dfp16", "current"}, {"flex16+5-paper", "fixed"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        long long events[3] = {0};
        for (int every = 1; every <= STEPS + 1; every += every < 8 ? 1 : 5)
            trace_adds_up(cases[c][0], cases[c][1], every, events);
        CHECK(events[1] > 0, "%s: nothing was flushed, so the sums prove nothing", cases[c][0]);
        CHECK(c > 1 || (events[0] > 0 && events[2] > 0), "%s: %lld saturated, %lld clamped: the sums prove nothing",
              cases[c][0], events[0], events[2]);
    }
    return check_summary();
}
