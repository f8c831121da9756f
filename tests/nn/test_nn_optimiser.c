/* Optimisers of a network: each against its textbook formulas in plain double over fifty steps, with the gradients of
 * the network; the same bits from every kernel set and number of threads, from a state that was saved half way, and
 * from descent whose factors are in tensors; what is refused, with its words. usage: test_nn_optimiser [VARIANT] for an
 * added format: only the checks of every variant, for this one */
#include "check.h"
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

enum { BATCH = 6, SIDE = 6, CLASSES = 4, STEPS = 50, MOST = 4096 };
static float images[BATCH * SIDE * SIDE * 3];
static int32_t labels[BATCH];

static void new_batch(uint64_t step) {
    uint64_t seed = step + 77;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
}

/* A convolution, a normalisation, two linear layers: weights, biases, gammas and betas. */
static nn_graph *network(const nn_config *config) {
    nn_graph *g = nn_graph_new(config);
    CHECK(g, "%s", tensor_error());
    if (!g)
        return NULL;
    nn_node x = nn_conv2d(g, "conv", nn_input(g, SIDE, SIDE, 3), 8, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_avgpool_global(g, "pool", nn_batchnorm(g, "norm", x, &(nn_batchnorm_options){.relu = true}));
    x = nn_linear(g, "fc2", nn_linear(g, "fc1", x, 16, true), CLASSES, false);
    CHECK(!nn_compile(g, x), "%s", tensor_error());
    return g;
}

static float rate_of(const nn_config *c, uint64_t step) {
    const bool large = !c->optimiser || !strcmp(c->optimiser, "sgd");
    return (large ? 0.05f : 0.003f) * (float)(1 + step % 3) / 3;
}

static void train(nn_graph *g, const nn_config *config, int steps) {
    for (int i = 0; i < steps; i++) {
        new_batch(nn_steps(g));
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels},
                             rate_of(config, nn_steps(g))),
              "%s", tensor_error());
    }
}

/* --- the cases ---------------------------------------------------------------------------------------------------- */

static const struct setting {
    const char *name;
    nn_config config; /* variant, batch and seed follow */
} settings[] = {
    {"sgd", {.momentum = 0.9f, .weight_decay = 1e-3f}},
    {"sgd, decay of weights", {.momentum = 0.9f, .weight_decay = 1e-2f, .decay = "weights"}},
    {"sgd, nesterov", {.momentum = 0.9f, .weight_decay = 1e-3f, .nesterov = true}},
    {"sgd, clipped by value", {.momentum = 0.9f, .clip_value = 0.01f}},
    {"sgd, clipped by norm", {.momentum = 0.9f, .weight_decay = 1e-3f, .clip_norm = 0.05f}},
    {"sgd, nesterov, clipped by both", {.momentum = 0.5f, .nesterov = true, .clip_value = 0.02f, .clip_norm = 0.05f}},
    {"adam", {.optimiser = "adam"}},
    {"adam, decay", {.optimiser = "adam", .weight_decay = 1e-2f, .clip_norm = 0.1f}},
    {"adam, other numbers", {.optimiser = "adam", .beta1 = 0.5f, .beta2 = 0.9f, .epsilon = 1e-3f}},
    {"adamw", {.optimiser = "adamw", .weight_decay = 0.1f}},
    {"adamw, decay of all", {.optimiser = "adamw", .weight_decay = 0.1f, .decay = "all", .clip_value = 0.02f}},
    {"adamw, clipped by norm", {.optimiser = "adamw", .weight_decay = 0.1f, .clip_norm = 0.05f}},
    {"rmsprop", {.optimiser = "rmsprop"}},
    {"rmsprop, momentum and decay", {.optimiser = "rmsprop", .momentum = 0.9f, .weight_decay = 1e-2f}},
    {"adagrad", {.optimiser = "adagrad", .weight_decay = 1e-3f, .decay = "weights"}},
    {"lamb", {.optimiser = "lamb", .weight_decay = 1e-2f, .clip_norm = 0.2f}},
    {"lamb, clipped by value", {.optimiser = "lamb", .clip_value = 0.01f}},
    {"sgd, scaled", {.momentum = 0.9f, .weight_decay = 1e-3f, .loss_scale = "1024"}},
    {"sgd, all of it, scaled",
     {.momentum = 0.5f,
      .weight_decay = 1e-2f,
      .nesterov = true,
      .decay = "weights",
      .clip_value = 0.02f,
      .clip_norm = 0.05f,
      .loss_scale = "2^8"}},
    {"adam, decay, scaled", {.optimiser = "adam", .weight_decay = 1e-2f, .clip_norm = 0.1f, .loss_scale = "1024"}},
    {"rmsprop, momentum and decay, scaled",
     {.optimiser = "rmsprop", .momentum = 0.9f, .weight_decay = 1e-2f, .loss_scale = "0.25"}},
    {"lamb, clipped by both, scaled",
     {.optimiser = "lamb", .clip_value = 0.01f, .clip_norm = 0.2f, .loss_scale = "dynamic:init=1024,window=1000"}},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

static nn_config config_of(const struct setting *s, const char *variant) {
    nn_config c = s->config;
    c.variant = variant;
    c.batch = BATCH;
    c.seed = 5;
    return c;
}

/* --- the formulas ------------------------------------------------------------------------------------------------- */

struct plain {
    int64_t n;
    bool decays;
    tensor *weight, *gradient;
    double w[MOST], g[MOST], v[MOST], r[MOST]; /* r: the mean square itself */
};
enum { PARAMETERS = 8 };
static struct plain parameters[PARAMETERS];
static int count;

static bool is(const nn_config *c, const char *name) {
    return !strcmp(c->optimiser ? c->optimiser : "sgd", name);
}

static void find_parameters(const nn_graph *g, const nn_config *c) {
    const bool all = c->decay ? !strcmp(c->decay, "all") : !is(c, "adamw") && !is(c, "lamb");
    count = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (strcmp(info.role, "weight"))
            continue;
        struct plain *p = &parameters[count++];
        memset(p, 0, sizeof *p);
        p->n = tensor_count(info.t);
        p->weight = info.t;
        p->gradient = nn_tensor_at(g, i + 1).t;
        p->decays = all || strstr(info.name, ".weight");
        CHECK(p->n <= MOST && !tensor_store_wide_f64(p->weight, p->w, p->n), "%s", tensor_error());
    }
    CHECK(count == 7, "%d parameters", count);
}

static double norm_of(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double scale_of(const nn_config *c) {
    return !c->loss_scale ? 1 : !strcmp(c->loss_scale, "2^8") ? 256 : !strcmp(c->loss_scale, "0.25") ? 0.25 : 1024;
}

/* Stores the clipped gradients of this step, without the loss scale. */
static void take_gradients(const nn_config *c) {
    double squares = 0;
    for (int k = 0; k < count; k++) {
        struct plain *p = &parameters[k];
        CHECK(!tensor_store_f64(p->gradient, p->g, p->n), "%s", tensor_error());
        for (int64_t i = 0; i < p->n; i++)
            p->g[i] /= scale_of(c);
        for (int64_t i = 0; i < p->n && c->clip_value > 0; i++)
            p->g[i] = fmin(fmax(p->g[i], -(double)c->clip_value), c->clip_value);
        squares += norm_of(p->g, p->n) * norm_of(p->g, p->n);
    }
    if (c->clip_norm > 0 && sqrt(squares) > c->clip_norm)
        for (int k = 0; k < count; k++)
            for (int64_t i = 0; i < parameters[k].n; i++)
                parameters[k].g[i] *= c->clip_norm / sqrt(squares);
}

static void step_of(struct plain *p, const nn_config *c, double rate, int t) {
    const double b1 = c->beta1 > 0 ? c->beta1 : 0.9f, b2 = c->beta2 > 0 ? c->beta2 : is(c, "rmsprop") ? 0.99f : 0.999f;
    const double usual = is(c, "lamb") ? 1e-6f : is(c, "adagrad") ? 1e-10f : 1e-8f;
    const double epsilon = c->epsilon > 0 ? c->epsilon : usual, decay = p->decays ? c->weight_decay : 0;
    double update[MOST];
    for (int64_t i = 0; i < p->n; i++) {
        const bool apart = is(c, "adamw") || is(c, "lamb");
        const double g = p->g[i] + (apart ? 0 : decay * p->w[i]);
        if (is(c, "sgd")) {
            p->v[i] = c->momentum * p->v[i] + g;
            update[i] = c->nesterov ? g + c->momentum * p->v[i] : p->v[i];
        } else if (is(c, "rmsprop") || is(c, "adagrad")) {
            p->r[i] = is(c, "adagrad") ? p->r[i] + g * g : b2 * p->r[i] + (1 - b2) * g * g;
            const double ratio = p->r[i] > 0 ? g / (sqrt(p->r[i]) + epsilon) : 0;
            p->v[i] = c->momentum * p->v[i] + ratio;
            update[i] = p->v[i];
        } else {
            p->v[i] = b1 * p->v[i] + (1 - b1) * g;
            p->r[i] = b2 * p->r[i] + (1 - b2) * g * g;
            update[i] = p->v[i] / (1 - pow(b1, t)) / (sqrt(p->r[i] / (1 - pow(b2, t))) + epsilon);
            update[i] += apart ? decay * p->w[i] : 0;
        }
    }
    if (is(c, "lamb") && p->decays && norm_of(p->w, p->n) > 0 && norm_of(update, p->n) > 0)
        rate *= norm_of(p->w, p->n) / norm_of(update, p->n);
    for (int64_t i = 0; i < p->n; i++)
        p->w[i] -= rate * update[i];
}

/* The largest allowed distance of the network from the formulas after all steps, relative to the path of a weight.
 * Binary32: 50 steps of a few roundings of weight and state, 2^-24 each of numbers about a hundred rates large. 16
 * bits: the gradient of both is the same, and the states of roots are wide, but velocities and directions of 16 bits
 * lose 2^-11 in fp16, 2^-8 in bf16 of each step, and 2^-16 of the largest element in shared exponents. An added format
 * may have two fraction bits, of which each step of a velocity or direction loses 2^-3; without these it is held to the
 * same bound as the others. */
static double tolerance(const nn_config *c, const char *variant) {
    const bool known = nn_variant_find(variant)->format <= FMT_DFP16;
    const bool narrow = is(c, "sgd") || is(c, "lamb") || c->clip_value > 0 || (c->weight_decay > 0 && !is(c, "adamw"));
    if (!known && narrow)
        return 0.3;
    return !strcmp(variant, "fp32") ? 3e-4 : !strcmp(variant, "bf16") ? 2e-2 : 4e-3;
}

/* Shared exponents may lose a whole step of one weight: a small gradient, which a root would have made as large as any
 * other, becomes zero among large ones when it is written in 16 bits with its decay; and a velocity that begins with
 * clipped gradients outgrows the exponent that was predicted for it. */
static double lost_step(const nn_config *c, const char *variant) {
    const bool shared = !strncmp(variant, "flex", 4) || !strcmp(variant, "dfp16");
    const double most = rate_of(c, 2);
    if (!shared)
        return 0;
    if (is(c, "sgd"))
        return most * c->clip_value;
    return is(c, "rmsprop") || is(c, "adagrad") ? (c->weight_decay > 0 ? most / (1 - c->momentum) : 0) : 0;
}

static void against_formulas(const struct setting *s, const char *variant) {
    const nn_config c = config_of(s, variant);
    nn_graph *g = network(&c);
    if (!g)
        return;
    find_parameters(g, &c);
    double way = 0, largest = 0, moved = 0;
    static double start[PARAMETERS][MOST];
    for (int k = 0; k < count; k++)
        memcpy(start[k], parameters[k].w, sizeof start[k]);
    for (int t = 1; t <= STEPS; t++) {
        const float rate = rate_of(&c, nn_steps(g));
        new_batch(nn_steps(g));
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g), "%s", tensor_error());
        take_gradients(&c);
        CHECK(!nn_update(g, rate), "%s", tensor_error());
        way += rate;
        for (int k = 0; k < count; k++)
            step_of(&parameters[k], &c, rate, t);
    }
    for (int k = 0; k < count; k++) {
        double got[MOST];
        CHECK(!tensor_store_wide_f64(parameters[k].weight, got, parameters[k].n), "%s", tensor_error());
        for (int64_t i = 0; i < parameters[k].n; i++) {
            largest = fmax(largest, fabs(got[i] - parameters[k].w[i]));
            moved = fmax(moved, fabs(got[i] - start[k][i]));
        }
    }
    const double allowed =
        tolerance(&c, variant) * (is(&c, "sgd") ? fmax(moved, way * 0.01) : fmax(way, moved)) + lost_step(&c, variant);
    printf("%-10s %-32s farthest way %.3g, from the formulas %.3g (%.2g of what is allowed)\n", variant, s->name, moved,
           largest, largest / allowed);
    CHECK(moved > 0, "%s %s: no weight moved", variant, s->name);
    CHECK(largest <= allowed, "%s %s: a weight is %g from the formulas, allowed %g", variant, s->name, largest,
          allowed);
    nn_graph_free(g);
}

/* --- the same bits ------------------------------------------------------------------------------------------------ */

struct bytes {
    unsigned char *at;
    size_t n;
};

static struct bytes state_of(const nn_graph *g) {
    struct bytes s = {NULL, nn_state_bytes(g)};
    s.at = malloc(s.n ? s.n : 1);
    CHECK(s.n > 1000 && s.at && !nn_state_save(s.at, s.n, g), "%s", tensor_error());
    return s;
}

static void same(const char *what, const char *variant, const struct setting *s, struct bytes a, struct bytes b) {
    CHECK(a.n == b.n && !memcmp(a.at, b.at, a.n), "%s %s: %s: the states differ", variant, s->name, what);
}

static struct bytes after(const struct setting *s, const nn_config *c, int first, int then, const char *row,
                          int threads, struct bytes from) {
    CHECK(!tensor_set_backend(row) && !tensor_set_threads(threads), "%s", tensor_error());
    nn_graph *g = network(c);
    if (from.at)
        CHECK(!nn_state_restore(g, from.at, from.n), "%s: %s", s->name, tensor_error());
    train(g, c, first);
    train(g, c, then);
    struct bytes state = state_of(g);
    nn_graph_free(g);
    tensor_set_backend(NULL);
    return state;
}

static void same_bits(const struct setting *s, const char *variant) {
    const nn_config c = config_of(s, variant);
    const struct bytes none = {NULL, 0};
    struct bytes whole = after(s, &c, 3, 4, NULL, 1, none), half = after(s, &c, 3, 0, NULL, 2, none);
    struct bytes rest = after(s, &c, 0, 4, NULL, 2, half), ref = after(s, &c, 3, 4, "ref", 2, none);
    same("taken up half way", variant, s, whole, rest);
    same("by the reference kernels", variant, s, whole, ref);
    free(whole.at);
    free(half.at);
    free(rest.at);
    free(ref.at);
}

/* Descent with factors in tensors equals descent if nothing is clipped. */
static void same_descent(const char *variant) {
    nn_config c = config_of(&settings[0], variant);
    nn_graph *plain = network(&c);
    c.clip_norm = 1e30f;
    nn_graph *other = network(&c);
    train(plain, &c, 5);
    train(other, &c, 5);
    for (int i = 0; i < nn_tensor_count(plain); i++) {
        const nn_tensor_info a = nn_tensor_at(plain, i), b = nn_tensor_at(other, i);
        double x[MOST], y[MOST];
        if (strcmp(a.role, "weight") && strcmp(a.role, "momentum"))
            continue;
        CHECK(!strcmp(a.name, b.name) && !tensor_store_wide_f64(a.t, x, tensor_count(a.t)) &&
                  !tensor_store_wide_f64(b.t, y, tensor_count(b.t)),
              "%s", tensor_error());
        CHECK(!memcmp(x, y, (size_t)tensor_count(a.t) * sizeof x[0]), "%s: %s differs", variant, a.name);
    }
    nn_graph_free(plain);
    nn_graph_free(other);
}

/* Each tensor of a step is shown once, after it has been written. */
static int shown[128];

static void watch(const nn_tensor_info *info, void *context) {
    const nn_graph *g = context;
    tensor_stats stats;
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (nn_tensor_at(g, i).t == info->t)
            shown[i]++;
    CHECK(!tensor_statistics(&stats, NULL, info->t) && stats.writes >= 1, "%s", info->name);
}

static void shows_all(const struct setting *s) {
    const nn_config c = config_of(s, "flex16+5");
    nn_graph *g = network(&c);
    CHECK(nn_tensor_count(g) <= 128 && !nn_watch(g, watch, g), "%s", tensor_error());
    memset(shown, 0, sizeof shown);
    train(g, &c, 1);
    for (int i = 0; i < nn_tensor_count(g); i++)
        CHECK(shown[i] == 1, "%s: %s was shown %d times", s->name, nn_tensor_at(g, i).name, shown[i]);
    nn_graph_free(g);
}

/* Moments and roots of 16 bits train about as well as those of 32 bits. */
static void narrow(const char *variant) {
    nn_config c = {.variant = variant, .batch = BATCH, .seed = 5, .optimiser = "adamw", .weight_decay = 0.01f};
    double loss[2][2];
    for (int i = 0; i < 2; i++) {
        c.narrow_state = i;
        nn_graph *g = network(&c);
        for (int step = 0; step < 150; step++) {
            new_batch((uint64_t)step % 3);
            CHECK(!nn_train_step(&loss[i][step > 0], NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f),
                  "%s", tensor_error());
        }
        nn_graph_free(g);
    }
    printf("%s: loss %.4f, then %.4f, with narrow states %.4f\n", variant, loss[0][0], loss[0][1], loss[1][1]);
    CHECK(loss[1][0] == loss[0][0], "the first losses differ");
    CHECK(loss[0][1] < 0.5 * loss[0][0] && loss[1][1] < 0.5 * loss[1][0], "%s: it does not learn", variant);
    CHECK(memcmp(&loss[0][1], &loss[1][1], sizeof loss[0][1]), "narrow states change nothing");
}

/* An infinite gradient remains infinite in the direction computed from it: no factor of zero multiplies it. */
static void infinite_gradient(const char *optimiser, const char *decay) {
    nn_config c = {
        .variant = "fp32", .batch = BATCH, .seed = 5, .optimiser = optimiser, .weight_decay = 0.01f, .decay = decay};
    nn_graph *g = network(&c);
    int directions = 0;
    new_batch(0);
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g), "%s", tensor_error());
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        double x[MOST];
        if (strcmp(info.role, "weight") || !strstr(info.name, "fc"))
            continue;
        tensor *gradient = nn_tensor_at(g, i + 1).t;
        CHECK(!tensor_store_f64(gradient, x, tensor_count(gradient)), "%s", tensor_error());
        x[1] = -INFINITY;
        CHECK(!tensor_load_f64(gradient, x, tensor_count(gradient)), "%s", tensor_error());
    }
    CHECK(!nn_update(g, 0.01f), "%s", tensor_error());
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        double x[MOST];
        if (strcmp(info.role, "direction") || !strstr(info.name, "fc"))
            continue;
        CHECK(!tensor_store_f64(info.t, x, tensor_count(info.t)) && x[1] == -(double)INFINITY,
              "%s: %s is %g, expected -inf", optimiser, info.name, x[1]);
        directions++;
    }
    CHECK(directions == 4, "%d directions", directions);
    nn_graph_free(g);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refused(nn_config c, const char *words) {
    c.batch = BATCH;
    if (!c.variant)
        c.variant = "flex16+5";
    nn_graph *g = nn_graph_new(&c);
    CHECK(!g && tensor_error_status() == TENSOR_E_ARGUMENT && strstr(tensor_error(), words), "'%s' has no '%s'",
          tensor_error(), words);
    nn_graph_free(g);
}

static void errors(void) {
    refused((nn_config){.optimiser = "sgdm"},
            "optimiser 'sgdm': expected one of sgd, adam, adamw, rmsprop, adagrad, lamb");
    refused((nn_config){.optimiser = "adam", .beta1 = 1}, "beta1: 1, expected 0 or more and below 1");
    refused((nn_config){.optimiser = "adam", .beta2 = -0.5f}, "beta2: -0.5, expected 0 or more and below 1");
    refused((nn_config){.optimiser = "adam", .beta2 = NAN}, "beta2: ");
    refused((nn_config){.optimiser = "adam", .epsilon = -1}, "epsilon: -1, expected 0 or more");
    refused((nn_config){.optimiser = "adam", .epsilon = INFINITY}, "epsilon: inf");
    refused((nn_config){.optimiser = "adam", .momentum = 0.9f}, "momentum: 0.9, expected 0: optimiser adam has none");
    refused((nn_config){.beta1 = 0.9f}, "beta1: 0.9, expected 0: optimiser sgd has none");
    refused((nn_config){.optimiser = "adagrad", .beta2 = 0.9f}, "optimiser adagrad has none");
    refused((nn_config){.epsilon = 1e-8f}, "optimiser sgd has none");
    refused((nn_config){.clip_norm = -1}, "clip_norm: -1, expected 0 or more");
    refused((nn_config){.clip_value = NAN}, "clip_value: ");
    refused((nn_config){.decay = "norms"}, "decay 'norms': expected all or weights");
    refused((nn_config){.nesterov = true}, "nesterov: optimiser sgd with momentum 0, expected sgd with some");
    refused((nn_config){.optimiser = "adam", .nesterov = true}, "nesterov: optimiser adam");
    refused((nn_config){.narrow_state = true}, "narrow_state: optimiser sgd");
    refused((nn_config){.variant = "fp16", .optimiser = "adam", .narrow_state = true}, "narrow_state: variant fp16");
    CHECK(!strcmp(nn_optimiser_at(2), "adamw") && !nn_optimiser_at(-1) && !nn_optimiser_at(6), "the list");

    /* The state of one optimiser is refused by another. */
    nn_config c = config_of(&settings[6], "fp32");
    nn_graph *a = network(&c);
    c.epsilon = 1e-3f;
    nn_graph *b = network(&c);
    struct bytes state = state_of(a);
    CHECK(nn_state_restore(b, state.at, state.n) == TENSOR_E_DATA && strstr(tensor_error(), "other layers or settings"),
          "%s", tensor_error());
    free(state.at);
    nn_graph_free(a);
    nn_graph_free(b);
}

/* Errors of the operations themselves. */
static void operation_errors(void) {
    tensor *r = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4)), *g = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4));
    tensor *wide = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4)), *other = tensor_new(FMT_FP32, TENSOR_SHAPE(4));
    tensor *half = tensor_new(FMT_BF16, TENSOR_SHAPE(4)), *half_g = tensor_new(FMT_BF16, TENSOR_SHAPE(4));
    tensor *longer = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(5)), *by = tensor_new(FMT_F64, TENSOR_SHAPE(2, 4));
    tensor *narrow_by = tensor_new(FMT_F64, TENSOR_SHAPE(8)), *sums = tensor_new(FMT_F64, TENSOR_SHAPE(2));
    CHECK(by && !tensor_keep_wide(wide), "%s", tensor_error());
#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), #call ": '%s' has no '%s'", tensor_error(), words)
    REFUSED(tensor_root_mean(r, g, by, 0), TENSOR_E_ARGUMENT,
            "r is flex16+5 without a wide part and rounded to nearest, where it would stop moving");
    REFUSED(tensor_root_mean(half, half_g, by, 0), TENSOR_E_ARGUMENT, "r is bf16 without a wide part");
    REFUSED(tensor_add_ratio(g, g, wide, r, by, 0), TENSOR_E_ARGUMENT, "without a wide part");
    CHECK(!tensor_set_rounding(r, TENSOR_ROUND_STOCHASTIC, 1), "%s", tensor_error());
    REFUSED(tensor_add_ratio(g, g, wide, r, by, 0), TENSOR_E_ARGUMENT, "m has a wide part and r has none");
    REFUSED(tensor_root_mean(wide, wide, by, 0), TENSOR_E_ARGUMENT, "r and g are the same tensor");
    REFUSED(tensor_root_mean(wide, other, by, 0), TENSOR_E_FORMAT, "r is flex16+5, g is fp32");
    REFUSED(tensor_root_mean(wide, longer, by, 0), TENSOR_E_SHAPE, "r is 4, expected 5");
    REFUSED(tensor_root_mean(wide, g, by, 2), TENSOR_E_ARGUMENT, "row is 2, expected 0 to 1");
    REFUSED(tensor_root_mean(wide, g, by, -1), TENSOR_E_ARGUMENT, "row is -1");
    REFUSED(tensor_root_mean(wide, g, NULL, 0), TENSOR_E_ARGUMENT, "factors is NULL");
    REFUSED(tensor_root_mean(wide, NULL, by, 0), TENSOR_E_ARGUMENT, "g is NULL");
    REFUSED(tensor_root_mean(wide, g, narrow_by, 0), TENSOR_E_SHAPE, "factors is 8, expected [f,4]");
    REFUSED(tensor_root_mean(by, by, by, 0), TENSOR_E_FORMAT, "a type of plain numbers");
    REFUSED(tensor_combine(g, g, g, g, by, 0), TENSOR_E_ARGUMENT, "y and w are the same tensor");
    REFUSED(tensor_sum_squares(sums, 2, g), TENSOR_E_ARGUMENT, "index is 2, expected 0 to 1");
    REFUSED(tensor_sum_squares(g, 0, g), TENSOR_E_FORMAT, "sums is flex16+5 4, expected f64");
    REFUSED(tensor_sum_squares(sums, 0, sums), TENSOR_E_FORMAT, "a type of plain numbers");
    REFUSED(tensor_optimiser_begin(by, &(tensor_optimiser){0}), TENSOR_E_SHAPE, "numbers is f64 2x4, expected f64 9x4");
    tensor *numbers = tensor_new(FMT_F64, TENSOR_SHAPE(TENSOR_STEP_ROWS, 4)),
           *rate = tensor_new(FMT_F32, TENSOR_SHAPE(1));
    REFUSED(tensor_optimiser_begin(numbers, NULL), TENSOR_E_ARGUMENT, "how is NULL");
    REFUSED(tensor_optimiser_begin(numbers, &(tensor_optimiser){.kind = (tensor_optimiser_kind)9}), TENSOR_E_ARGUMENT,
            "kind 9, expected 0 to 5");
    REFUSED(tensor_optimiser_begin(numbers, &(tensor_optimiser){.beta1 = 1}), TENSOR_E_ARGUMENT, "beta1 1");
    REFUSED(tensor_optimiser_begin(numbers, &(tensor_optimiser){.clip_norm = -1}), TENSOR_E_ARGUMENT, "norm -1");
    REFUSED(tensor_optimiser_step(numbers, NULL, NULL), TENSOR_E_ARGUMENT, "rate is NULL");
    REFUSED(tensor_optimiser_step(numbers, sums, NULL), TENSOR_E_FORMAT, "rate is f64 2");
    REFUSED(tensor_optimiser_step(numbers, rate, numbers), TENSOR_E_ARGUMENT, "are the same tensor");
    REFUSED(tensor_trust_rate(rate, rate, sums), TENSOR_E_ARGUMENT, "are the same tensor");
    CHECK(!tensor_load_f32(rate, (const float[]){NAN}, 1), "%s", tensor_error());
    REFUSED(tensor_optimiser_step(numbers, rate, NULL), TENSOR_E_ARGUMENT, "rate is nan, expected a finite number");
    /* The values of factors are checked when the operation runs; nothing is written. */
    double before[4] = {1, 2, 3, 4}, after_it[4];
    CHECK(!tensor_load_f64(wide, before, 4) && !tensor_load_f64(by, (double[]){1, 1e39, 1, 1, 0, 0, 0, 0}, 8), "%s",
          tensor_error());
    REFUSED(tensor_root_mean(wide, g, by, 0), TENSOR_E_ARGUMENT,
            "a factor as binary32 is inf, expected a finite number");
    CHECK(!tensor_store_f64(wide, after_it, 4) && !memcmp(before, after_it, sizeof before), "it was written");
    tensor *all[] = {r, g, wide, other, half, half_g, longer, by, narrow_by, sums, numbers, rate};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

static void every_optimiser(const char *variant, bool brief) {
    for (int i = 0; i < SETTINGS; i++) {
        if (strcmp(variant, "flex16+5-sr") != 0) /* its weights take steps of their own */
            against_formulas(&settings[i], variant);
        if (!brief || !strchr(settings[i].name, ',')) /* each optimiser only once */
            same_bits(&settings[i], variant);
    }
    same_descent(variant);
}

int main(int argc, char **argv) {
    static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "flex16+5-sr", "dfp16"};
    if (argc > 1) {
        every_optimiser(argv[1], true);
        return check_summary();
    }
    for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++)
        every_optimiser(variants[v], false);
    for (int i = 0; i < SETTINGS; i++)
        shows_all(&settings[i]);
    narrow("flex16+5");
    narrow("dfp16");
    infinite_gradient("adam", "all");
    infinite_gradient("rmsprop", "weights");
    infinite_gradient("adagrad", "all");
    errors();
    operation_errors();
    return check_summary();
}
