/* The files of telemetry and the calls around it: the same records from every number of threads and kernel set, what is
 * refused, the end of telemetry, watchers and other telemetries beside it, states that are restored. With an argument:
 * on that device, against the processor's records. */
#include "nn/telemetry/nn_trace.h"
#include "telemetry_network.h"
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- files, refusals, devices ------------------------------------------------------------------------------------- */

static char *read_file(const char *path, long *size) {
    FILE *file = fopen(path, "r");
    CHECK(file, "no file %s", path);
    if (!file || fseek(file, 0, SEEK_END))
        return calloc(1, 1);
    *size = ftell(file);
    rewind(file);
    char *text = calloc((size_t)*size + 1, 1);
    CHECK(fread(text, 1, (size_t)*size, file) == (size_t)*size, "%s", path);
    fclose(file);
    return text;
}

/* The records of a training as text. */
static char *rows_of(const char *variant, const char *device, int threads, const char *row, int every, int steps,
                     long *size) {
    char path[] = "/tmp/flexlab_telemetry_XXXXXX";
    close(mkstemp(path));
    tensor_set_threads(threads);
    CHECK(!row || !tensor_set_backend(row), "%s", tensor_error());
    nn_graph *g = network(variant, NULL, device);
    nn_telemetry *t =
        nn_telemetry_new(g, &(nn_telemetry_config){.every = every, .path = path, .shadows = "fp16,dfp16,flex16+5"});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= steps; step++) {
        train_step(g, step, 10);
        CHECK(!nn_telemetry_step(t), "%s", tensor_error());
    }
    CHECK(!nn_telemetry_finish(t), "%s", tensor_error());
    nn_telemetry_free(t);
    nn_graph_free(g);
    char *text = read_file(path, size);
    unlink(path);
    return text;
}

static int rows_measured(const char *text) {
    static const char key[] = "\"sampled\":";
    int rows = 0;
    while ((text = strstr(text, key)) != NULL) {
        text += sizeof key - 1;
        rows += *text != '0';
    }
    return rows;
}

static void same_rows(const char *variant, const char *device) {
    long size[2] = {0};
    /* With measured errors there is a record for each of the 16 rounds: each product of forward and backward has
     * one. */
    const int every = device ? 2 : 1, steps = device ? 4 : 16;
    char *first = rows_of(variant, NULL, 1, NULL, every, steps, &size[0]);
    char *other = rows_of(variant, device, 3, device ? NULL : "portable", every, steps, &size[1]);
    if (!device)
        CHECK(!tensor_set_backend("avx512_amx"), "%s", tensor_error());
    const int measured = rows_measured(first);
    CHECK(device || measured == 8, "%s: %d rows have measured errors", variant, measured);
    CHECK(size[0] > 1000 && size[0] == size[1] && !strcmp(first, other), "%s on %s: other rows", variant,
          device ? device : "cpu");
    free(first);
    free(other);
}

static off_t size_of(const char *path) {
    struct stat found;
    return stat(path, &found) ? -1 : found.st_size;
}

/* A path has one writer at a time, and a second writer leaves its file unchanged; the remains of a killed program are
 * replaced. */
static void one_writer(nn_graph *g, const char *path, const char *part, const char *around) {
    FILE *left = fopen(part, "w");
    CHECK(left && fputs("rows of a program that was killed\n", left) >= 0 && !fclose(left), "%s", part);
    nn_graph *other = network("fp16", NULL, NULL);
    const char *says = "is being written already";
    for (int round = 0; round < 2; round++) { /* the second replaces what the first finished */
        nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.path = path, .every = 1});
        CHECK(t, "%s", tensor_error());
        for (int step = 1; step <= 2; step++) {
            train_step(g, step, 10);
            CHECK(!nn_telemetry_step(t), "%s", tensor_error());
        }
        const off_t before = size_of(part); /* size of the records that have left the program */
        CHECK(before > 0, "%lld bytes", (long long)before);
        CHECK(!nn_telemetry_new(other, &(nn_telemetry_config){.path = around}) && strstr(tensor_error(), says) &&
                  strstr(tensor_error(), around),
              "a second telemetry: %s", tensor_error());
        CHECK(!nn_telemetry_new(other, &(nn_telemetry_config){.csv = path}) && strstr(tensor_error(), says),
              "a second table: %s", tensor_error());
        struct fl_trace *trace;
        CHECK(fl_trace_open(&trace, path, 1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), says) && !trace,
              "a trace: %s", tensor_error());
        CHECK(size_of(part) == before, "%lld bytes, before %lld", (long long)size_of(part), (long long)before);
        CHECK(!nn_telemetry_finish(t) && access(part, F_OK), "%s", tensor_error());
        nn_telemetry_free(t);
        FILE *rows = fopen(path, "r");
        char word[16] = "";
        CHECK(rows && fread(word, 1, 8, rows) == 8 && !strcmp(word, "{\"type\":"), "'%s'", word);
        if (rows)
            fclose(rows);
    }
    unlink(path);
    nn_graph_free(other);
}

static void refused(void) {
    char path[] = "/tmp/flexlab_telemetry_XXXXXX", part[64], around[64];
    close(mkstemp(path));
    unlink(path);
    snprintf(part, sizeof part, "%s.part", path);
    snprintf(around, sizeof around, "/tmp/../tmp/./%s", path + strlen("/tmp/"));
    nn_graph *g = network("fp32", NULL, NULL);
    const struct {
        nn_telemetry_config config;
        const char *says;
    } wrong[] = {{{.pattern = "nothing*"}, "nothing*"},
                 {{.pattern = ""}, "''"},
                 {{.every = -1}, "-1"},
                 {{.shadows = "fp16,fp17"}, "fp17"},
                 {{.shadows = "fp16:ngraph"}, "fp16"},
                 {{.shadows = "flex16+5:what"}, "what"},
                 {{.shadows = "fp16,fp16"}, "twice"},
                 {{.shadows = ""}, "''"},
                 {{.csv = path}, path},
                 {{.csv = around}, "is being written already, expected a file of its own"},
                 {{.csv = "/tmp"}, "cannot write /tmp: "},
                 {{.csv = "/no/such/folder/at/all"}, "/no/such"}};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        nn_telemetry_config config = wrong[i].config;
        config.path = path;
        CHECK(!nn_telemetry_new(g, &config) && strstr(tensor_error(), wrong[i].says), "case %u: %s", i, tensor_error());
        CHECK(access(path, F_OK) && access(part, F_OK), "case %u leaves a file", i);
    }
    CHECK(!nn_telemetry_new(NULL, &(nn_telemetry_config){0}) && !nn_telemetry_new(g, NULL), "NULL");
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.path = path});
    CHECK(t && !access(part, F_OK), "%s", tensor_error());
    nn_telemetry_free(t); /* not finished */
    CHECK(access(path, F_OK) && access(part, F_OK), "a file is left");
    one_writer(g, path, part, around);
    nn_graph_free(g);
}

struct counted {
    int rows, described;
    int64_t sampled, writes, least; /* least: of all counts */
};

static void count_row(void *context, const nn_telemetry_row *row) {
    struct counted *c = context;
    c->rows++;
    c->described += row->elements != NULL;
    c->sampled += row->sampled;
    c->writes += row->writes;
    const int64_t counts[] = {row->saturated, row->flushed, row->nonfinite, row->clamped_low, row->clamped_high};
    for (int i = 0; i < 5; i++)
        c->least = counts[i] < c->least ? counts[i] : c->least;
}

/* A finished telemetry remains as it is, whatever the network does afterwards. */
static void ends(void) {
    char path[] = "/tmp/flexlab_telemetry_XXXXXX";
    struct counted counted = {0};
    long size[2];
    close(mkstemp(path));
    nn_graph *g = network("fp32", NULL, NULL);
    nn_telemetry *t =
        nn_telemetry_new(g, &(nn_telemetry_config){.every = 1, .path = path, .row = count_row, .context = &counted});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= 3; step++) {
        train_step(g, step, 0);
        CHECK(!nn_telemetry_step(t), "%s", tensor_error());
    }
    CHECK(!nn_telemetry_finish(t), "%s", tensor_error());
    char *first = read_file(path, &size[0]);
    const int rows = counted.rows;
    nn_telemetry_want(t);
    train_step(g, 4, 0);
    CHECK(nn_telemetry_step(t) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "finished") &&
              strstr(tensor_error(), "step 4"),
          "a step after the end: %s", tensor_error());
    CHECK(!nn_telemetry_finish(t) && counted.rows == rows && rows == 3 * nn_tensor_count(g), "%d rows, then %d", rows,
          counted.rows);
    char *then = read_file(path, &size[1]);
    CHECK(size[0] == size[1] && !strcmp(first, then), "the file has changed");
    free(first);
    free(then);
    nn_telemetry_free(t);
    nn_graph_free(g);
    unlink(path);
}

/* Telemetry requested within a step: without the weights before the update there is no update ratio. */
static void see_late(void *context, const nn_telemetry_row *row) {
    int *weights = context;
    if (strcmp(row->role, "weight") != 0 || row->step == 1)
        return;
    ++*weights;
    CHECK(row->elements && isnan(row->update_ratio) && row->update_moved == -1, "%s step %lld: ratio %g, %lld moved",
          row->tensor, (long long)row->step, row->update_ratio, (long long)row->update_moved);
}

static void wanted_late(void) {
    static float images[NUMBERS];
    int32_t labels[BATCH];
    int weights = 0;
    nn_graph *g = network("fp32", NULL, NULL);
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 100, .row = see_late, .context = &weights});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= 3; step++) {
        make_batch(step, 0, images, labels);
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g), "%s", tensor_error());
        if (step == 3)
            nn_telemetry_want(t);
        CHECK(!nn_update(g, 0.01f) && !nn_telemetry_step(t), "%s", tensor_error());
    }
    CHECK(weights == 6, "rows of %d weights", weights);
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* Counts writes, of which a step may have several; after a reset of statistics, those since then. */
static void see_counts(void *context, const nn_telemetry_row *row) {
    int64_t(*of)[3] = context;
    if (strcmp(row->tensor, "conv") != 0 || row->step > 9)
        return;
    of[row->step][0] = row->writes;
    of[row->step][1] = row->saturated;
    of[row->step][2]++;
}

static void counts_all(void) {
    static float images[NUMBERS];
    int32_t labels[BATCH];
    int64_t of[10][3] = {{0}};
    tensor *conv = NULL;
    tensor_stats total;
    nn_graph *g = network("flex16+5", NULL, NULL);
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 1, .row = see_counts, .context = of});
    for (int i = 0; i < nn_tensor_count(g); i++)
        conv = strcmp(nn_tensor_at(g, i).name, "conv") != 0 ? conv : nn_tensor_at(g, i).t;
    CHECK(t && conv, "%s", tensor_error());
    for (int step = 1; step <= 6; step++) {
        if (step % 2 == 0) /* one write before, one after */
            tensor_reset_statistics(conv);
        make_batch(step, 40, images, labels);
        for (int i = 1; i < step; i++)
            CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}), "%s", tensor_error());
        train_step(g, step, 40);
        CHECK(!nn_telemetry_step(t) && !tensor_statistics(NULL, &total, conv), "%s", tensor_error());
        CHECK(of[step][2] == 1 && of[step][0] == step, "step %d: %lld writes", step, (long long)of[step][0]);
        if (step % 2 == 0)
            CHECK(of[step][1] == total.saturated, "step %d: %lld saturated, not %lld", step, (long long)of[step][1],
                  (long long)total.saturated);
    }
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* What all records say of the tensors and of their shadows. */
struct shadow_sums {
    double exponents; /* of records, the later ones counted more often */
    int64_t moves, saturated_writes, saturated;
    int64_t writes, counts; /* of the tensors, counts of later records more often */
};

static void see_shadows(void *context, const nn_telemetry_row *row) {
    struct shadow_sums *of = context;
    of->writes += row->writes;
    of->counts += row->step * (row->saturated + row->flushed + row->nonfinite);
    for (int i = 0; i < row->shadow_count; i++) {
        const nn_telemetry_shadow *s = &row->shadows[i];
        of->exponents += (double)(s->e * row->step * (i + 1));
        of->moves += s->e_moves;
        of->saturated_writes += s->saturated_writes;
        of->saturated += s->saturated;
    }
}

/* Records count every write, and shadows learn from it, also where the statistics of all tensors are reset after each
 * step, or after some. */
static void learns_after_resets(const char *variant, int every) {
    struct shadow_sums of[3] = {{0}};
    for (int resets = 0; resets < 3; resets++) {
        nn_graph *g = network(variant, NULL, NULL);
        nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = every,
                                                                     .row = see_shadows,
                                                                     .context = &of[resets],
                                                                     .shadows = "fp16,flex16+5,dfp16:ngraph"});
        CHECK(t, "%s", tensor_error());
        for (int step = 1; step <= STEPS; step++) {
            train_step(g, step, 40);
            CHECK(!nn_telemetry_step(t), "%s", tensor_error());
            for (int i = 0; i < nn_tensor_count(g) && resets && step % resets == 0; i++)
                tensor_reset_statistics(nn_tensor_at(g, i).t);
        }
        nn_telemetry_free(t);
        nn_graph_free(g);
        CHECK(of[0].moves > 100 && of[0].saturated_writes > 10 && !memcmp(&of[0], &of[resets], sizeof of[0]),
              "%s, every %d, a reset after each %d steps: %lld moves, %lld writes that do not fit and weighted counts "
              "of %lld, without a reset %lld, %lld and %lld",
              variant, every, resets, (long long)of[resets].moves, (long long)of[resets].saturated_writes,
              (long long)of[resets].counts, (long long)of[0].moves, (long long)of[0].saturated_writes,
              (long long)of[0].counts);
    }
}

/* --- others beside it --------------------------------------------------------------------------------------------- */

static void count_write(const nn_tensor_info *info, void *context) {
    (void)info;
    ++*(int *)context;
}

/* A telemetry that cannot begin changes nothing: neither a running one nor the caller's own watching. */
static void fails_beside(void) {
    struct counted of[2] = {{0}};
    for (int i = 0; i < 2; i++) {
        nn_graph *g = network("fp32", NULL, NULL);
        nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 1, .row = count_row, .context = &of[i]});
        CHECK(t, "%s", tensor_error());
        for (int step = 1; step <= 16; step++) {
            if (i)
                CHECK(!nn_telemetry_new(g, &(nn_telemetry_config){.pattern = "nothing"}), "it matches");
            train_step(g, step, 0);
            CHECK(!nn_telemetry_step(t), "%s", tensor_error());
        }
        nn_telemetry_free(t);
        nn_graph_free(g);
    }
    CHECK(of[0].described > 100 && of[0].sampled > 100 && !memcmp(&of[0], &of[1], sizeof of[0]),
          "%d rows, %d described, %lld sampled, beside one that fails %d, %d, %lld", of[0].rows, of[0].described,
          (long long)of[0].sampled, of[1].rows, of[1].described, (long long)of[1].sampled);
    nn_graph *g = network("fp32", NULL, NULL);
    int writes = 0;
    CHECK(!nn_watch(g, count_write, &writes) && !nn_telemetry_new(g, &(nn_telemetry_config){.pattern = "nothing"}),
          "it matches");
    train_step(g, 1, 0);
    CHECK(writes == nn_tensor_count(g), "%d of %d writes are seen after a telemetry that failed", writes,
          nn_tensor_count(g));
    nn_graph_free(g);
}

static nn_telemetry *both[2];

static void watch_for_both(const nn_tensor_info *info, void *context) {
    (void)context;
    nn_telemetry_watch(info, both[0]);
    nn_telemetry_watch(info, both[1]);
}

/* The records of a telemetry are the same with another one beside it that records other steps, whichever is freed
 * first. */
static void two_at_once(void) {
    enum { ROWS = 34 };
    struct counted alone[2] = {{0}}, beside[2] = {{0}};
    static const int every[] = {1, 3};
    for (int run = 0; run < 4; run++) {
        nn_graph *g = network("fp32", NULL, NULL);
        both[0] = both[1] = NULL;
        for (int i = 0; i < 2; i++)
            if (run >= 2 || i == run) {
                struct counted *to = run < 2 ? &alone[i] : &beside[i];
                *to = (struct counted){0};
                both[i] = nn_telemetry_new(
                    g, &(nn_telemetry_config){.every = every[i], .row = count_row, .context = to, .watched = true});
                CHECK(both[i], "%s", tensor_error());
            }
        CHECK(!nn_watch(g, watch_for_both, NULL), "%s", tensor_error());
        for (int step = 1; step <= ROWS; step++) {
            train_step(g, step, 0);
            for (int i = 0; i < 2; i++)
                if (both[i] && (run < 3 || i || step < ROWS / 2)) /* the last run has one of them for half the steps */
                    CHECK(!nn_telemetry_step(both[i]), "%s", tensor_error());
            if (run == 3 && step == ROWS / 2) {
                nn_telemetry_free(both[0]);
                both[0] = NULL;
            }
        }
        for (int i = 0; i < 2; i++)
            CHECK(run < 2 || (run == 3 && !i) ||
                      (alone[i].sampled > 100 && alone[i].rows == alone[i].described &&
                       !memcmp(&alone[i], &beside[i], sizeof alone[i])),
                  "every %d: %d rows with %lld sampled, beside another %d with %lld", every[i], alone[i].rows,
                  (long long)alone[i].sampled, beside[i].rows, (long long)beside[i].sampled);
        nn_telemetry_free(both[0]);
        nn_telemetry_free(both[1]);
        nn_graph_free(g);
    }
}

/* A telemetry that takes nn_watch does not allow another beside it. */
static void one_at_once(void) {
    nn_graph *g = network("fp32", NULL, NULL);
    for (int first = 0; first < 2; first++)
        for (int second = 0; second < 2; second++) {
            nn_telemetry *a = nn_telemetry_new(g, &(nn_telemetry_config){.watched = first}),
                         *b = nn_telemetry_new(g, &(nn_telemetry_config){.watched = second});
            CHECK(a && (first && second ? b != NULL : !b && strstr(tensor_error(), "nn_watch")),
                  "watched %d and %d: %s", first, second, b ? "both there" : tensor_error());
            nn_telemetry_free(a);
            nn_telemetry_free(b);
        }
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){0});
    CHECK(t, "after all are freed: %s", tensor_error());
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* A restored state makes tensors count the same writes again: measurements of the first ones are not reported for the
 * second, whose measured elements differ. */
static void set_back(void) {
    struct counted of[2] = {{0}};
    for (int back = 0; back < 2; back++) {
        nn_graph *g = network("flex16+5", NULL, NULL);
        const size_t bytes = nn_state_bytes(g);
        void *state = malloc(bytes);
        nn_telemetry *t =
            nn_telemetry_new(g, &(nn_telemetry_config){.every = 1, .row = count_row, .context = &of[back]});
        CHECK(t && !nn_state_save(state, bytes, g), "%s", tensor_error());
        for (int step = 1; step <= 24; step++) {
            train_step(g, step, 40);
            CHECK(!nn_telemetry_step(t), "%s", tensor_error());
            if (back && step % 8 == 0)
                CHECK(!nn_state_restore(g, state, bytes), "%s", tensor_error());
        }
        nn_telemetry_free(t);
        nn_graph_free(g);
        free(state);
    }
    CHECK(of[0].sampled > 100 && of[0].sampled == of[1].sampled, "%lld elements, %lld where the state was set back",
          (long long)of[0].sampled, (long long)of[1].sampled);
    CHECK(of[0].writes == of[0].rows && of[1].writes == of[1].rows && !of[0].least && !of[1].least,
          "%lld writes in %d rows, %lld in %d where the state was set back; counts from %lld, %lld on",
          (long long)of[0].writes, of[0].rows, (long long)of[1].writes, of[1].rows, (long long)of[0].least,
          (long long)of[1].least);
}

int main(int argc, char **argv) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    const char *device = argc > 1 ? argv[1] : NULL;
    for (int i = 0; i < 5; i++)
        same_rows(variants[i], device);
    if (device)
        return check_summary();
    refused();
    ends();
    wanted_late();
    counts_all();
    learns_after_resets("fp32", 1);
    learns_after_resets("flex16+5", STEPS - 1);
    learns_after_resets("flex16+5", 3);
    fails_beside();
    two_at_once();
    one_at_once();
    set_back();
    return check_summary();
}
