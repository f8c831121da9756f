/* Telemetry of a training against observations of the test itself: counts of all records add up to the tensors' totals
 * whatever the interval, records against values stored by another watcher, how far weights move, the first number that
 * is not finite and the writes before it, shadows against a real training in their format. */
#include "telemetry_network.h"
#include <stdbool.h>
#include <string.h>

/* --- sums of rows ------------------------------------------------------------------------------------------------- */

struct sum {
    char name[80];
    int64_t saturated, flushed, nonfinite, low, high, writes, steps, rows, step;
    double maximum;
};
struct sums {
    struct sum sum[MOST];
    int count;
    int every;
};

static struct sum *find(struct sums *sums, const char *name) {
    for (int i = 0; i < sums->count; i++)
        if (!strcmp(sums->sum[i].name, name))
            return &sums->sum[i];
    CHECK(sums->count < MOST, "more than %d tensors", MOST);
    struct sum *s = &sums->sum[sums->count++];
    memset(s, 0, sizeof *s);
    strcpy(s->name, name);
    return s;
}

static void add_row(void *context, const nn_telemetry_row *row) {
    struct sums *sums = context;
    struct sum *s = find(sums, row->tensor);
    const int64_t wanted = 1 + s->rows * sums->every;
    CHECK(row->step == (wanted < STEPS ? wanted : STEPS), "%s every %d: a row at step %lld", row->tensor, sums->every,
          (long long)row->step);
    CHECK(row->steps == row->step - s->step && row->writes == row->steps, "%s: %lld writes in %lld steps", row->tensor,
          (long long)row->writes, (long long)row->steps);
    CHECK(row->elements && row->elements->elements > 0, "%s: nothing was looked at", row->tensor);
    CHECK((row->saturated > 0) == (row->saturated_writes > 0) && row->saturated_writes <= row->writes,
          "%s: %lld saturated in %lld writes", row->tensor, (long long)row->saturated,
          (long long)row->saturated_writes);
    CHECK(row->e_least <= row->e && row->e <= row->e_largest && (row->e_least == row->e_largest || row->e_moves),
          "%s: e %d in %d ... %d, %lld moves", row->tensor, row->e, row->e_least, row->e_largest,
          (long long)row->e_moves);
    s->saturated += row->saturated;
    s->flushed += row->flushed;
    s->nonfinite += row->nonfinite;
    s->low += row->clamped_low;
    s->high += row->clamped_high;
    s->writes += row->writes;
    s->maximum = row->maximum > s->maximum ? row->maximum : s->maximum;
    s->step = row->step;
    s->rows++;
}

static void adds_up(const char *variant, int every, int64_t *events) {
    static struct sums sums;
    nn_graph *g = network(variant, NULL, NULL);
    sums = (struct sums){.every = every};
    tensor_stats first[MOST];
    const int count = nn_tensor_count(g);
    for (int i = 0; i < count; i++)
        CHECK(!tensor_statistics(NULL, &first[i], nn_tensor_at(g, i).t), "%s", tensor_error());
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = every, .row = add_row, .context = &sums});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= STEPS; step++) {
        if (step == STEPS)
            nn_telemetry_want(t);
        train_step(g, step, 40);
        CHECK(!nn_telemetry_step(t), "%s step %d: %s", variant, step, tensor_error());
    }
    CHECK(!nn_telemetry_finish(t), "%s", tensor_error());
    CHECK(sums.count == count, "%s: %d tensors in rows, %d in the network", variant, sums.count, count);
    for (int i = 0; i < count; i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        const struct autoflex *a = tensor_autoflex(info.t);
        const struct sum *s = find(&sums, info.name);
        tensor_stats total;
        CHECK(!tensor_statistics(NULL, &total, info.t), "%s", tensor_error());
        CHECK(s->saturated == total.saturated - first[i].saturated && s->flushed == total.flushed - first[i].flushed &&
                  s->nonfinite == total.nonfinite - first[i].nonfinite && s->writes == STEPS &&
                  (first[i].writes || s->maximum == total.maximum),
              "%s every %d %s: saturated %lld/%lld, flushed %lld/%lld, nonfinite %lld/%lld, maximum %g/%g", variant,
              every, info.name, (long long)s->saturated, (long long)total.saturated, (long long)s->flushed,
              (long long)total.flushed, (long long)s->nonfinite, (long long)total.nonfinite, s->maximum, total.maximum);
        CHECK(!a || (s->low == (int64_t)a->clamped_low && s->high == (int64_t)a->clamped_high), "%s: clamped",
              info.name);
        events[0] += s->saturated;
        events[1] += s->flushed;
    }
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* --- observations of another watcher ------------------------------------------------------------------------------ */

struct seen {
    nn_telemetry *t;
    nn_graph *g;
    int64_t step;
    int rows, weights;
    struct {
        char name[80];
        int64_t zeros, nonfinite, above[3]; /* more than 2^-8, 1, 2^8 */
        double l1, before[600], after[600];
        bool weight;
    } of[MOST];
    char order[4 * MOST][80];  /* names of writes since the first step */
    int64_t writes, first_bad; /* number of the first write that is not finite; -1: none */
};

static void watch(const nn_tensor_info *info, void *context) {
    struct seen *s = context;
    const int64_t count = tensor_count(info->t);
    tensor_stats last;
    double *value = malloc((size_t)count * sizeof *value);
    int i = 0;
    while (i < MOST && s->of[i].name[0] && strcmp(s->of[i].name, info->name) != 0)
        i++;
    strcpy(s->of[i].name, info->name);
    CHECK(!tensor_store_f64(info->t, value, count) && !tensor_statistics(&last, NULL, info->t), "%s", tensor_error());
    s->of[i].zeros = s->of[i].nonfinite = 0;
    memset(s->of[i].above, 0, sizeof s->of[i].above);
    s->of[i].l1 = 0;
    for (int64_t j = 0; j < count; j++) {
        s->of[i].zeros += value[j] == 0;
        s->of[i].nonfinite += !isfinite(value[j]);
        for (int k = 0; k < 3 && isfinite(value[j]); k++)
            s->of[i].above[k] += fabs(value[j]) >= ldexp(1, 8 * k - 8);
        s->of[i].l1 += isfinite(value[j]) ? fabs(value[j]) : 0;
    }
    s->of[i].weight = !strcmp(info->role, "weight");
    if (s->of[i].weight)
        CHECK(count <= 600 && !tensor_store_wide_f64(info->t, s->of[i].after, count), "%s", tensor_error());
    CHECK(last.nonfinite == s->of[i].nonfinite, "%s: statistics say %lld, there are %lld", info->name,
          (long long)last.nonfinite, (long long)s->of[i].nonfinite);
    if (s->writes < 4 * MOST)
        strcpy(s->order[s->writes], info->name);
    if (s->of[i].nonfinite && s->first_bad < 0)
        s->first_bad = s->writes;
    s->writes++;
    free(value);
    nn_telemetry_watch(info, s->t);
}

static void compare_row(void *context, const nn_telemetry_row *row) {
    struct seen *s = context;
    int i = 0;
    while (i < MOST - 1 && strcmp(s->of[i].name, row->tensor) != 0)
        i++;
    const tensor_description *d = row->elements;
    int64_t above[3] = {0};
    s->rows++;
    CHECK(row->step == s->step && d, "%s: a row of step %lld at %lld", row->tensor, (long long)row->step,
          (long long)s->step);
    for (int bin = 0; d && bin < TENSOR_BINS; bin++)
        for (int k = 0; k < 3; k++)
            above[k] += bin + TENSOR_FIRST_BIN >= 8 * k - 8 ? d->bins[bin] : 0;
    CHECK(d && d->zeros == s->of[i].zeros && d->infinite + d->nan == s->of[i].nonfinite &&
              !memcmp(above, s->of[i].above, sizeof above) && fabs(d->l1 - s->of[i].l1) <= 1e-12 * d->l1,
          "%s step %lld: another tensor", row->tensor, (long long)row->step);
    if (!s->of[i].weight) {
        CHECK(isnan(row->update_ratio) && row->update_moved == -1, "%s moves", row->tensor);
        return;
    }
    double step = 0, size = 0;
    int64_t moved = 0;
    for (int64_t j = 0; j < d->elements; j++) {
        step += (s->of[i].after[j] - s->of[i].before[j]) * (s->of[i].after[j] - s->of[i].before[j]);
        size += s->of[i].before[j] * s->of[i].before[j];
        moved += s->of[i].after[j] != s->of[i].before[j];
    }
    const double ratio = sqrt(step / size);
    s->weights++;
    CHECK(row->update_moved == moved, "%s: %lld moved, %lld expected", row->tensor, (long long)row->update_moved,
          (long long)moved);
    CHECK(isfinite(ratio) ? fabs(row->update_ratio - ratio) <= 1e-12 * ratio : isnan(row->update_ratio),
          "%s: ratio %.17g, expected %.17g", row->tensor, row->update_ratio, ratio);
}

static void weights_before(struct seen *s) {
    for (int i = 0; i < nn_tensor_count(s->g); i++) {
        const nn_tensor_info info = nn_tensor_at(s->g, i);
        int at = 0;
        while (at < MOST - 1 && s->of[at].name[0] && strcmp(s->of[at].name, info.name) != 0)
            at++;
        if (!strcmp(info.role, "weight") && strcpy(s->of[at].name, info.name))
            CHECK(!tensor_store_wide_f64(info.t, s->of[at].before, tensor_count(info.t)), "%s", tensor_error());
    }
}

/* bad: the step whose images no 16-bit float can represent; 0: none. Returns how many weights were compared. */
static int seen_by_another(nn_config config, int bad) {
    static struct seen s;
    const char *variant = config.policy ? config.policy : config.variant;
    s = (struct seen){.g = network_of(config), .first_bad = -1};
    s.t = nn_telemetry_new(s.g, &(nn_telemetry_config){.every = 1, .row = compare_row, .context = &s, .watched = true});
    CHECK(s.t && !nn_watch(s.g, watch, &s), "%s", tensor_error());
    const int count = nn_tensor_count(s.g);
    for (s.step = 1; s.step <= 4; s.step++) {
        static float images[NUMBERS];
        int32_t labels[BATCH];
        make_batch((int)s.step, 6, images, labels);
        for (int i = 0; i < NUMBERS && s.step == bad; i++)
            images[i] = images[i] > 0 ? 6e4f : -6e4f; /* these are in range, but their sums are not */
        weights_before(&s);
        CHECK(!nn_train_step(NULL, NULL, s.g, &(nn_batch){.images = images, .labels = labels}, 0.01f) &&
                  !nn_telemetry_step(s.t),
              "%s", tensor_error());
    }
    CHECK(s.rows == 4 * count && s.weights >= 16, "%d rows of %d tensors, %d of weights", s.rows, count, s.weights);
    const nn_nonfinite *n = nn_telemetry_nonfinite(s.t);
    CHECK(!n == (s.first_bad < 0) && (!bad || n), "%s: first bad write %lld", variant, (long long)s.first_bad);
    if (n) {
        const int64_t at = s.first_bad, before = at < NN_NONFINITE_BEFORE ? at : NN_NONFINITE_BEFORE;
        CHECK(!strcmp(n->tensor, s.order[at]) && n->step == at / count + 1 && n->step == bad && n->nonfinite > 0,
              "%s: %s step %lld, expected %s step %lld", variant, n->tensor, (long long)n->step, s.order[at],
              (long long)at / count + 1);
        CHECK(n->before_count == before, "%lld writes before, expected %lld", (long long)n->before_count,
              (long long)before);
        for (int64_t i = 0; i < before && n->before_count == before; i++) {
            const int64_t write = at - before + i;
            bool there = false; /* the tensors that a node writes are shown in no fixed order */
            for (int64_t w = write - 3; w <= write + 3; w++)
                there = there || (w >= 0 && w < at && !strcmp(n->before[i].tensor, s.order[w]) &&
                                  n->before[i].step == w / count + 1);
            CHECK(there, "%lld before: %s of step %lld, expected %s of %lld or one beside it", (long long)(before - i),
                  n->before[i].tensor, (long long)n->before[i].step, s.order[write], (long long)write / count + 1);
            for (int64_t k = 0; k < i; k++)
                CHECK(strcmp(n->before[k].tensor, n->before[i].tensor) != 0 || n->before[k].step != n->before[i].step,
                      "%s twice", n->before[i].tensor);
        }
    }
    nn_telemetry_free(s.t);
    nn_graph_free(s.g);
    return s.weights;
}

/* Gradients that overflow while a loss scale is found are not reported; a forward pass that overflows is reported at
 * once, and so is a network that does not change. */
static void left_out(void) {
    static float images[NUMBERS];
    int32_t labels[BATCH];
    nn_graph *g = network_of((nn_config){.variant = "fp16", .loss_scale = "dynamic:init=16777216,window=2000"});
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 1});
    nn_loss_scale now;
    int64_t skipped = 0;
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= 30; step++) {
        make_batch(step, 6, images, labels);
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f) &&
                  !nn_telemetry_step(t) && !nn_loss_scale_of(&now, g),
              "%s", tensor_error());
        skipped = now.skipped;
        CHECK(!nn_telemetry_nonfinite(t), "step %d of a scale that is sought is told of", step);
    }
    CHECK(skipped > 0 && skipped < NN_STARVED && !now.in_a_row, "%lld steps were left out", (long long)skipped);
    make_batch(1, 6, images, labels);
    for (int i = 0; i < NUMBERS; i++) /* these are in range, but their sums are not */
        images[i] = images[i] > 0 ? 6e4f : -6e4f;
    CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f) &&
              !nn_telemetry_step(t) && !nn_loss_scale_of(&now, g),
          "%s", tensor_error());
    const nn_nonfinite *n = nn_telemetry_nonfinite(t);
    CHECK(n && now.in_a_row == 1 && n->step == 31 && !strcmp(n->pass, "forward") && !strcmp(n->tensor, "conv") &&
              n->nonfinite > 0 && n->before_count == NN_NONFINITE_BEFORE,
          "a forward pass of a step that is left out: %s", n ? n->tensor : "not told of");
    nn_telemetry_free(t);
    nn_graph_free(g);
    /* Gradients overflow at every scale: reported after enough consecutive steps. */
    g = network_of((nn_config){.variant = "fp16", .loss_scale = "dynamic:init=16777216,min=16777216"});
    t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 1});
    CHECK(t, "%s", tensor_error());
    for (int row = 1; row <= NN_STARVED; row++) {
        CHECK(!nn_telemetry_nonfinite(t), "told of after %d steps", row - 1);
        make_batch(1, 6, images, labels);
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f) &&
                  !nn_telemetry_step(t),
              "%s", tensor_error());
    }
    n = nn_telemetry_nonfinite(t);
    CHECK(n && n->step == NN_STARVED && !strcmp(n->pass, "backward") && n->nonfinite > 0 && n->before_count > 10,
          "%d steps in a row without an update: %s, %s, step %lld, %lld before", NN_STARVED, n ? n->pass : "no pass",
          n ? n->tensor : "not told of", n ? (long long)n->step : 0, n ? (long long)n->before_count : 0);
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* --- shadows ------------------------------------------------------------------------------------------------------ */

struct twins {
    int rows, moves;
    int64_t saturated_writes;
    char name[80];
};

/* A shadow of the network's own format and predictor has the results of the network. */
static void compare_twin(void *context, const nn_telemetry_row *row) {
    struct twins *w = context;
    const nn_telemetry_shadow *s = row->shadows;
    CHECK(row->shadow_count == 1 && !strcmp(s->name, w->name), "shadow %s", s->name);
    CHECK(s->e == row->e && s->saturated_writes == row->saturated_writes && s->e_moves == row->e_moves &&
              s->saturated == 0 && s->flushed == 0 && (s->error == 0 || isnan(s->error)),
          "%s step %lld %s: e %d/%d, saturated writes %lld/%lld, moves %lld/%lld, error %g", w->name,
          (long long)row->step, row->tensor, s->e, row->e, (long long)s->saturated_writes,
          (long long)row->saturated_writes, (long long)s->e_moves, (long long)row->e_moves, s->error);
    w->rows++;
    w->moves += (int)s->e_moves;
    w->saturated_writes += s->saturated_writes;
}

static void twin(const char *variant, const char *predictor, int every) {
    struct twins w = {0};
    snprintf(w.name, sizeof w.name, "%s:%s", variant, predictor);
    nn_graph *g = network(variant, predictor, NULL);
    nn_telemetry *t = nn_telemetry_new(
        g, &(nn_telemetry_config){.every = every, .row = compare_twin, .context = &w, .shadows = w.name});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= STEPS; step++) {
        train_step(g, step, 30);
        CHECK(!nn_telemetry_step(t), "%s", tensor_error());
    }
    CHECK(w.rows == ((STEPS - 1) / every + 1) * nn_tensor_count(g) && w.moves > 20, "%s: %d rows, %d moves", w.name,
          w.rows, w.moves);
    CHECK(w.saturated_writes > 0 || !strcmp(predictor, "current") || !strcmp(predictor, "repeat"),
          "%s: nothing saturated", w.name);
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* Skipped updates, the first included: weights have records as usual, and what was not examined is
 * empty. */
struct skipping {
    struct sums sums;
    int undescribed;
};

static void add_skipping(void *context, const nn_telemetry_row *row) {
    struct skipping *k = context;
    find(&k->sums, row->tensor)->writes += row->writes;
    if (row->elements)
        return;
    k->undescribed++;
    CHECK(isnan(row->update_ratio) && row->update_moved == -1, "%s moves", row->tensor);
    for (int i = 0; i < row->shadow_count; i++)
        CHECK(isnan(row->shadows[i].error) && !row->shadows[i].saturated && !row->shadows[i].flushed,
              "%s in %s: error %g of an earlier step", row->tensor, row->shadows[i].name, row->shadows[i].error);
}

/* A network without normalisation, which would hide the size of the images. */
static nn_graph *plain_network(nn_config config) {
    nn_graph *g = nn_graph_new(&config);
    nn_node x = nn_conv2d(g, "conv", nn_input(g, SIDE, SIDE, CHANNELS), 6, 3, &(nn_conv2d_options){.padding = 1});
    CHECK(!nn_compile(g, nn_linear(g, "fc", nn_avgpool_global(g, "pool", x), CLASSES, false)), "%s", tensor_error());
    return g;
}

static void skips(void) {
    static struct skipping k;
    nn_graph *g = plain_network(
        (nn_config){.variant = "fp16", .batch = BATCH, .seed = 5, .momentum = 0.9f, .loss_scale = "dynamic:init=2^24"});
    const int count = nn_tensor_count(g);
    tensor_stats first[MOST], total;
    for (int i = 0; i < count; i++)
        CHECK(!tensor_statistics(NULL, &first[i], nn_tensor_at(g, i).t), "%s", tensor_error());
    nn_telemetry *t = nn_telemetry_new(
        g, &(nn_telemetry_config){.every = 100, .row = add_skipping, .context = &k, .shadows = "bf16,dfp16"});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= STEPS; step++) {
        nn_loss_scale now;
        train_step(g, step, 0);
        CHECK(!nn_loss_scale_of(&now, g) && (step > 1 || now.skipped == 1) && (step < STEPS || !now.in_a_row),
              "%d skipped of %d", (int)now.skipped, step);
        CHECK(!nn_telemetry_step(t), "%s", tensor_error());
    }
    CHECK(!nn_telemetry_finish(t), "%s", tensor_error());
    CHECK(k.undescribed == count, "%d rows end a training of %d tensors", k.undescribed, count);
    for (int i = 0; i < count; i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        CHECK(!tensor_statistics(NULL, &total, info.t), "%s", tensor_error());
        CHECK(find(&k.sums, info.name)->writes == total.writes - first[i].writes, "%s: %lld writes in rows, not %lld",
              info.name, (long long)find(&k.sums, info.name)->writes, (long long)(total.writes - first[i].writes));
    }
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* A tensor that was not written since the previous record has one exponent, whatever it had before. */
struct resting {
    int moved, rested; /* records */
};

static void see_resting(void *context, const nn_telemetry_row *row) {
    struct resting *r = context;
    r->moved += row->e_least < row->e_largest;
    if (row->writes)
        return;
    r->rested++;
    CHECK(row->e_least == row->e && row->e_largest == row->e && !row->e_moves && row->maximum == 0,
          "%s step %lld: e %d, %d to %d without a write", row->tensor, (long long)row->step, row->e, row->e_least,
          row->e_largest);
}

static void rests(void) {
    static float images[NUMBERS];
    int32_t labels[BATCH];
    struct resting resting = {0};
    nn_graph *g = plain_network(
        (nn_config){.variant = "flex16+5", .batch = BATCH, .seed = 5, .momentum = 0.9f, .loss_scale = "dynamic"});
    nn_telemetry *t = nn_telemetry_new(
        g, &(nn_telemetry_config){.every = 4, .pattern = "*.momentum", .row = see_resting, .context = &resting});
    CHECK(t, "%s", tensor_error());
    for (int step = 1; step <= 17; step++) {
        make_batch(step, 0, images, labels);
        for (int i = 0; i < NUMBERS && step > 4; i++)
            images[i] *= 1e25f; /* gradients beyond any exponent: steps without an update */
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f) &&
                  !nn_telemetry_step(t),
              "%s", tensor_error());
    }
    CHECK(resting.moved > 0 && resting.rested > 0, "exponents moved in %d rows, %d rows have no write", resting.moved,
          resting.rested);
    nn_telemetry_free(t);
    nn_graph_free(g);
}

/* Shadows have the effect of a conversion on the values. */
struct converted {
    nn_graph *g;
    nn_telemetry *t;
    struct {
        char name[80];
        tensor *copy;
    } of[MOST];
    int rows;
};

static void keep_copy(const nn_tensor_info *info, void *context) {
    struct converted *c = context;
    for (int i = 0; i < nn_tensor_count(c->g); i++)
        if (nn_tensor_at(c->g, i).t == info->t) {
            const int64_t count = tensor_count(info->t);
            tensor_free(c->of[i].copy);
            strcpy(c->of[i].name, info->name);
            /* as binary32, which holds the values of every format here */
            double *value = malloc((size_t)count * sizeof *value);
            c->of[i].copy = tensor_new(FMT_FP32, TENSOR_SHAPE(count));
            CHECK(c->of[i].copy && !tensor_store_f64(info->t, value, count) &&
                      !tensor_load_f64(c->of[i].copy, value, count),
                  "%s", tensor_error());
            free(value);
        }
    nn_telemetry_watch(info, c->t);
}

static void compare_shadows(void *context, const nn_telemetry_row *row) {
    static const tensor_format format[] = {FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
    struct converted *c = context;
    int at = 0;
    while (at < MOST - 1 && strcmp(c->of[at].name, row->tensor) != 0)
        at++;
    const tensor *x = c->of[at].copy;
    const int64_t n = tensor_count(x);
    double *before = malloc((size_t)n * sizeof *before), *after = malloc((size_t)n * sizeof *after);
    for (int k = 0; k < row->shadow_count; k++) {
        const nn_telemetry_shadow *s = &row->shadows[k];
        tensor *y = tensor_new(format[k], TENSOR_SHAPE(n));
        tensor_stats last;
        const bool shared = tensor_format_is_shared(format[k]);
        CHECK(!(shared ? tensor_convert_at(y, x, s->e) : tensor_convert(y, x)) && !tensor_statistics(&last, NULL, y) &&
                  !tensor_store_f64(x, before, n) && !tensor_store_f64(y, after, n),
              "%s", tensor_error());
        double error = 0, size = 0;
        for (int64_t i = 0; i < n; i++) {
            const bool both = isfinite(before[i]) && isfinite(after[i]);
            error += both ? (after[i] - before[i]) * (after[i] - before[i]) : 0;
            size += both ? before[i] * before[i] : 0;
        }
        CHECK(s->saturated == last.saturated && s->flushed == last.flushed &&
                  (size > 0 ? fabs(s->error - sqrt(error / size)) <= 1e-12 * s->error : isnan(s->error)),
              "%s in %s: saturated %lld/%lld, flushed %lld/%lld, error %.17g/%.17g", row->tensor, s->name,
              (long long)s->saturated, (long long)last.saturated, (long long)s->flushed, (long long)last.flushed,
              s->error, sqrt(error / size));
        c->rows++;
        tensor_free(y);
    }
    free(before);
    free(after);
}

static void shadows(const char *variant) {
    static struct converted c;
    memset(&c, 0, sizeof c);
    c.g = network(variant, NULL, NULL);
    c.t = nn_telemetry_new(c.g, &(nn_telemetry_config){.every = 3,
                                                       .row = compare_shadows,
                                                       .context = &c,
                                                       .watched = true,
                                                       .pattern = "conv*,fc*,in?ut",
                                                       .shadows = "fp16,bf16,flex16+5:ngraph,dfp16"});
    CHECK(c.t && !nn_watch(c.g, keep_copy, &c), "%s", tensor_error());
    for (int step = 1; step <= 10; step++) {
        train_step(c.g, step, 40);
        CHECK(!nn_telemetry_step(c.t), "%s", tensor_error());
    }
    CHECK(c.rows >= 4 * 4 * 10, "%s: %d rows", variant, c.rows);
    for (int i = 0; i < MOST; i++)
        tensor_free(c.of[i].copy);
    nn_telemetry_free(c.t);
    nn_graph_free(c.g);
}

int main(void) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    int64_t events[2] = {0};
    for (int i = 0; i < 5; i++) {
        for (int every = 1; every <= 100; every *= 10)
            adds_up(variants[i], every, events);
        seen_by_another((nn_config){.variant = variants[i]}, i == 1 ? 3 : 0);
        shadows(variants[i]);
    }
    CHECK(events[0] > 1000 && events[1] > 1000, "%lld saturated, %lld flushed in all", (long long)events[0],
          (long long)events[1]);
    seen_by_another((nn_config){.variant = "fp16"}, 1); /* writes before it: fewer than 20 */
    /* Six parameters in four steps, masters and copies in other formats beside some of them. */
    const int masters = seen_by_another((nn_config){.policy = "O2:bf16", .loss_scale = "none"}, 0),
              copies = seen_by_another((nn_config){.policy = "dfp16"}, 0);
    CHECK(masters > 24 && copies > 24, "%d weights with masters, %d with copies", masters, copies);
    for (int every = 1; every <= 4; every += 3) {
        twin("flex16+5", "paper", every);
        twin("flex16+5", "ngraph", every);
        twin("dfp16", "current", every);
        twin("dfp16", "paper", every);
        twin("flex16+5", "per-class", every);
        twin("flex16+5", "amax", every);
        twin("dfp16", "amax-recent", every);
        twin("dfp16", "repeat", every);
    }
    left_out();
    skips();
    rests();
    return check_summary();
}
