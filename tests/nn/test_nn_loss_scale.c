/* Loss scaling: the scaler against a model of the published rule on scripted overflows, whose steps must leave the
 * weights alone; the bits of a training without it if nothing underflows; gradients that fp16 loses; the sequence
 * resumed from a state and from a checkpoint; what is refused, with its words.
 *
 *     test_nn_loss_scale [DEVICE]        where the scripts run: cpu */
#include "check.h"
#include "flexlab/nn.h"
#include "runs/wgan_pair.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static const char *device;

/* --- a network whose gradients are scripted ----------------------------------------------------------------------- */

enum { BATCH = 2, WIDTH = 3, OUTPUTS = 2 };

static nn_graph *chained(const char *variant, const char *scale, const char *optimiser) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant,
                                            .batch = BATCH,
                                            .seed = 3,
                                            .momentum = optimiser ? 0 : 0.5f,
                                            .optimiser = optimiser,
                                            .loss = "none",
                                            .device = device,
                                            .loss_scale = scale});
    CHECK(g, "%s: %s", scale, tensor_error());
    CHECK(!nn_compile(g, nn_linear(g, "fc", nn_input(g, 1, 1, WIDTH), OUTPUTS, false)), "%s", tensor_error());
    return g;
}

/* Makes one step whose output has that gradient at one position, and 0.25 at all others. */
static void step(nn_graph *g, int place, float value) {
    static const float images[BATCH * WIDTH] = {1, -0.5f, 2, 0.25f, 1, -1};
    float numbers[BATCH * OUTPUTS];
    for (int i = 0; i < BATCH * OUTPUTS; i++)
        numbers[i] = i == place ? value : 0.25f;
    tensor *here = tensor_new(tensor_format_of(nn_tensor_at(g, 0).t), TENSOR_SHAPE(BATCH, OUTPUTS)), *there = here;
    CHECK(!tensor_load_f32(here, numbers, BATCH * OUTPUTS), "%s", tensor_error());
    if (device)
        there = tensor_new_in(tensor_device_find(device), tensor_format_of(here), TENSOR_SHAPE(BATCH, OUTPUTS));
    CHECK(there && (!device || !tensor_copy(there, here)), "%s", tensor_error());
    CHECK(!nn_forward(g, &(nn_batch){.images = images}) && !nn_backward_from(g, there) && !nn_update(g, 0.125f), "%s",
          tensor_error());
    if (device)
        tensor_free(there);
    tensor_free(here);
}

static void weights_of(const nn_graph *g, double *values) {
    int at = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (!strcmp(info.role, "weight") || !strcmp(info.role, "momentum") || !strcmp(info.role, "root")) {
            CHECK(!tensor_store_wide_f64(info.t, values + at, tensor_count(info.t)), "%s", tensor_error());
            at += (int)tensor_count(info.t);
        }
    }
    CHECK(at >= 16 && at <= 32, "%d numbers", at);
}

/* --- the published rule, on exponents of two ---------------------------------------------------------------------- */

struct model {
    int power, least, most, factor;
    long window, since, skipped, row, longest;
};

static void model_step(struct model *m, bool overflow) {
    if (overflow) {
        m->since = 0;
        m->power -= m->factor;
        if (m->power < m->least)
            m->power = m->least;
        m->skipped += 1;
        m->row += 1;
        if (m->row > m->longest)
            m->longest = m->row;
    } else {
        m->row = 0;
        m->since += 1;
        if (m->since == m->window) {
            m->since = 0;
            m->power += m->factor;
            if (m->power > m->most)
                m->power = m->most;
        }
    }
}

static void agree(const nn_graph *g, const struct model *m, const char *scale, int at) {
    nn_loss_scale now;
    CHECK(!nn_loss_scale_of(&now, g), "%s", tensor_error());
    CHECK(now.scale == ldexp(1, m->power) && now.good == m->since && now.skipped == m->skipped &&
              now.in_a_row == m->row && now.longest == m->longest,
          "%s, step %d: scale %g, %d good, %d skipped, %d in a row, %d at most; the rule: 2^%d %ld %ld %ld %ld", scale,
          at, now.scale, (int)now.good, (int)now.skipped, (int)now.in_a_row, (int)now.longest, m->power, m->since,
          m->skipped, m->row, m->longest);
}

static const struct script {
    const char *scale, *variant, *optimiser;
    struct model model;
    int steps, bad; /* of a hundred steps; above 100: the first of so many are all bad */
} scripts[] = {
    {"dynamic", "fp16", NULL, {16, -5, 24, 1, 2000, 0, 0, 0, 0}, 60, 30},
    {"dynamic:init=2^24", "fp16", NULL, {24, -5, 24, 1, 2000, 0, 0, 0, 0}, 60, 135},
    {"dynamic:window=1", "fp16", "adam", {16, -5, 24, 1, 1, 0, 0, 0, 0}, 40, 20},
    {"dynamic:init=1,window=3,factor=4,min=0.25,max=1024", "fp16", NULL, {0, -2, 10, 2, 3, 0, 0, 0, 0}, 300, 12},
    {"dynamic:window=7,init=2^4,max=2^5,min=2^3", "bf16", "adamw", {4, 3, 5, 1, 7, 0, 0, 0, 0}, 300, 7},
    {"dynamic:min=1,max=1,window=2", "fp32", NULL, {0, 0, 0, 1, 2, 0, 0, 0, 0}, 40, 40},
    {"dynamic:factor=1024,window=5,min=2^-20", "fp32", "rmsprop", {16, -20, 24, 10, 5, 0, 0, 0, 0}, 200, 25},
};

static bool is_bad(const struct script *s, int at, uint64_t *random) {
    const int draw = (int)(check_random(random) % 100);
    return s->bad > 100 ? at < s->bad - 100 : draw < s->bad;
}

/* A bad step has one Inf or NaN among its gradients, at any position; it leaves all numbers as they were, to the
 * bit. */
static void follow(const struct script *s) {
    nn_graph *g = chained(s->variant, s->scale, s->optimiser);
    struct model m = s->model;
    uint64_t random = 17;
    long bad = 0;
    for (int i = 0; i < s->steps; i++) {
        double before[32] = {0}, after[32] = {0};
        const bool overflow = is_bad(s, i, &random);
        const float value = i % 3 == 0 ? INFINITY : i % 3 == 1 ? -INFINITY : NAN;
        weights_of(g, before);
        step(g, i % (BATCH * OUTPUTS), overflow ? value : 0.5f);
        weights_of(g, after);
        model_step(&m, overflow);
        bad += overflow;
        agree(g, &m, s->scale, i);
        CHECK(!memcmp(before, after, sizeof before) == overflow, "%s, step %d: the weights %s", s->scale, i,
              overflow ? "moved" : "stayed");
        for (int k = 0; k < 32; k++)
            CHECK(isfinite(after[k]), "%s, step %d: %g", s->scale, i, after[k]);
    }
    CHECK(nn_steps(g) == (uint64_t)s->steps && bad > 0, "%d steps, %ld bad", (int)nn_steps(g), bad);
    nn_graph_free(g);
}

/* A gradient that is finite in binary32 but not in fp16 is how overflows occur in practice. The update takes the scale
 * out. */
static void overflows_by_scale(void) {
    nn_graph *g = chained("fp16", "dynamic:init=2^20", NULL);
    nn_loss_scale now;
    double before[32] = {0}, after[32] = {0};
    weights_of(g, before);
    for (int i = 0; i < 10; i++) {
        CHECK(!nn_loss_scale_of(&now, g), "%s", tensor_error());
        step(g, 0, (float)now.scale * 0.5f); /* the gradient of a loss whose unscaled gradient is 0.5 */
        weights_of(g, after);
        const bool fits = now.scale * 0.5 * 2 < 65520;
        CHECK(!memcmp(before, after, sizeof before) == !fits, "scale %g", now.scale);
        if (fits)
            break;
    }
    CHECK(now.scale == 32768, "scale %g", now.scale);
    nn_graph_free(g);
}

/* Shared exponents have no Inf: a value beyond every exponent is an overflow. */
static void saturates(void) {
    nn_graph *g = chained("flex16+5", "dynamic:init=2^4,window=1", NULL);
    nn_loss_scale now;
    step(g, 0, 30000);
    CHECK(!nn_loss_scale_of(&now, g) && now.scale == 8 && now.skipped == 1, "scale %g", now.scale);
    step(g, 0, 0.5f);
    for (int i = 0; i < 3; i++) /* the exponent follows, and no value is beyond its range */
        step(g, 0, 0.5f);
    CHECK(!nn_loss_scale_of(&now, g) && now.scale > 8 && now.skipped == 1, "scale %g, %d skipped", now.scale,
          (int)now.skipped);
    nn_graph_free(g);
}

/* --- the bits of a training without scaling ----------------------------------------------------------------------- */

enum { IMAGES = 6, SIDE = 6, CLASSES = 4, STEPS = 12 };

static nn_graph *classifier(nn_config config, const char *scale) {
    config.batch = IMAGES;
    config.seed = 5;
    config.loss_scale = scale;
    nn_graph *g = nn_graph_new(&config);
    CHECK(g, "%s", tensor_error());
    nn_node x = nn_conv2d(g, "conv", nn_input(g, SIDE, SIDE, 3), 8, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_avgpool_global(g, "pool", nn_batchnorm(g, "norm", x, &(nn_batchnorm_options){.relu = true}));
    CHECK(!nn_compile(g, nn_linear(g, "fc2", nn_linear(g, "fc1", x, 16, true), CLASSES, false)), "%s", tensor_error());
    return g;
}

static void batch(int at, float *images, int32_t *labels) {
    uint64_t seed = (uint64_t)at + 9;
    for (int i = 0; i < IMAGES * SIDE * SIDE * 3; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < IMAGES; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
}

static double train(nn_graph *g, int from, int steps, float rate) {
    float images[IMAGES * SIDE * SIDE * 3];
    int32_t labels[IMAGES];
    double loss = NAN;
    for (int i = from; i < from + steps; i++) {
        batch(i, images, labels);
        CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, rate), "%s",
              tensor_error());
    }
    return loss;
}

static void same_weights(const nn_graph *a, const nn_graph *b, const char *what) {
    for (int i = 0; i < nn_tensor_count(a); i++) {
        const nn_tensor_info x = nn_tensor_at(a, i), y = nn_tensor_at(b, i);
        double left[600], right[600];
        if (strcmp(x.role, "weight") && strcmp(x.role, "momentum") && strcmp(x.role, "root"))
            continue;
        CHECK(tensor_count(x.t) <= 600 && !strcmp(x.name, y.name) &&
                  !tensor_store_wide_f64(x.t, left, tensor_count(x.t)) &&
                  !tensor_store_wide_f64(y.t, right, tensor_count(y.t)),
              "%s", tensor_error());
        CHECK(!memcmp(left, right, (size_t)tensor_count(x.t) * sizeof *left), "%s: %s differs", what, x.name);
    }
}

/* A power of two changes only exponents: if the format can represent them, every optimiser gives the same bits as
 * without. (fp16 keeps its velocity wide if it is scaled, and dfp16 can represent every exponent here.) */
static void same_bits(void) {
    static const nn_config optimisers[] = {
        {.momentum = 0.9f, .weight_decay = 1e-3f},
        {.momentum = 0.9f, .weight_decay = 1e-3f, .nesterov = true, .clip_norm = 0.05f, .clip_value = 0.02f},
        {.optimiser = "adam", .weight_decay = 1e-2f, .clip_norm = 0.1f},
        {.optimiser = "adamw", .weight_decay = 1e-1f, .clip_value = 0.02f},
        {.optimiser = "rmsprop", .momentum = 0.9f, .weight_decay = 1e-2f},
        {.optimiser = "adagrad"},
        {.optimiser = "lamb", .weight_decay = 1e-2f, .clip_norm = 0.2f}};
    static const char *const variants[] = {"fp32", "bf16", "dfp16"};
    static const char *const scales[] = {"1024", "2^-6", "dynamic:init=2^12,window=2,max=2^14"};
    for (size_t o = 0; o < sizeof optimisers / sizeof *optimisers; o++)
        for (size_t v = 0; v < 3; v++) {
            if (device && (o % 4 != 1 || !v)) /* the emulation is slow; the optimisers have tests there */
                continue;
            nn_config config = optimisers[o];
            config.variant = variants[v];
            config.device = device;
            nn_graph *plain = classifier(config, NULL);
            const double loss = train(plain, 0, STEPS, 0.02f);
            for (size_t s = 0; s < 3; s++) {
                /* an exponent is predicted from the largest of the last writes, which a changing scale affects */
                if (v == 2 && s == 2)
                    continue;
                nn_graph *scaled = classifier(config, scales[s]);
                char what[100];
                snprintf(what, sizeof what, "%s, optimiser %zu, scale %s", variants[v], o, scales[s]);
                CHECK(train(scaled, 0, STEPS, 0.02f) == loss, "%s: the losses differ", what);
                same_weights(plain, scaled, what);
                nn_graph_free(scaled);
            }
            nn_graph_free(plain);
        }
}

/* --- gradients that fp16 loses ------------------------------------------------------------------------------------ */

/* Targets so small that the gradient of the squared error, divided by the batch, is below 2^-25 everywhere. Without
 * scaling no weight moves; with it the loss falls as in fp32 (Micikevicius et al. 2018, section 3.2). */
static double fit(const char *variant, const char *scale, double *first, bool *moved) {
    enum { N = 64, IN = 4, OUT = 64 };
    nn_graph *g = nn_graph_new(&(nn_config){
        .variant = variant, .batch = N, .seed = 1, .loss = "squared_error", .device = device, .loss_scale = scale});
    nn_node x = nn_linear(g, "fc1", nn_input(g, 1, 1, IN), 32, true);
    CHECK(!nn_compile(g, nn_linear(g, "fc2", x, OUT, false)), "%s", tensor_error());
    float images[N * IN], targets[N * OUT];
    double loss = NAN, start[OUT], end[OUT];
    uint64_t seed = 4;
    for (int i = 0; i < N * IN; i++)
        images[i] = ((float)(check_random(&seed) >> 40) * 0x1p-23f - 1) * 0x1p-17f;
    for (int i = 0; i < N * OUT; i++)
        targets[i] = (float)(1 + i % OUT % 3) * 0x1p-17f;
    tensor *w = NULL;
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, "fc2.bias"))
            w = nn_tensor_at(g, i).t;
    CHECK(w && !tensor_store_wide_f64(w, start, OUT), "%s", tensor_error());
    for (int i = 0; i < 100; i++) {
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .targets = targets}) && !nn_backward(g) &&
                  !nn_update(g, 4.0f),
              "%s", tensor_error());
        CHECK(!nn_loss(&loss, NULL, g), "%s", tensor_error());
        *first = i ? *first : loss;
    }
    CHECK(!tensor_store_wide_f64(w, end, OUT), "%s", tensor_error());
    *moved = memcmp(start, end, sizeof start) != 0;
    nn_graph_free(g);
    return loss;
}

static void rescues(void) {
    double first, single, plain, fixed, dynamic;
    bool moved;
    single = fit("fp32", NULL, &first, &moved);
    CHECK(moved && single < 0.5 * first, "fp32: loss %g, then %g", first, single);
    plain = fit("fp16", NULL, &first, &moved);
    CHECK(!moved && plain == first, "fp16 without scaling: loss %g, then %g", first, plain);
    fixed = fit("fp16", "2^20", &first, &moved);
    CHECK(moved && fabs(fixed - single) < 0.02 * first, "fp16 by 2^20: loss %g, then %g, fp32 %g", first, fixed,
          single);
    dynamic = fit("fp16", "dynamic", &first, &moved);
    CHECK(moved && fabs(dynamic - single) < 0.05 * first, "fp16 dynamic: loss %g, then %g", first, dynamic);
    printf("squared error of tiny numbers: first %.3g; fp32 %.3g, fp16 %.3g, by 2^20 %.3g, dynamic %.3g\n", first,
           single, plain, fixed, dynamic);
}

/* --- going on ----------------------------------------------------------------------------------------------------- */

static const char going[] = "dynamic:init=2^9,window=4,factor=2,min=1";

static void play(nn_graph *g, int from, int steps) {
    for (int i = from; i < from + steps; i++)
        step(g, i % 4, i % 5 == 2 || i % 11 == 7 ? INFINITY : 0.5f);
}

static void *state_of(const nn_graph *g, size_t *bytes) {
    *bytes = nn_state_bytes(g);
    void *state = malloc(*bytes ? *bytes : 1);
    CHECK(*bytes && !nn_state_save(state, *bytes, g), "%s", tensor_error());
    return state;
}

static void goes_on(void) {
    nn_graph *whole = chained("fp16", going, "adam"), *half = chained("fp16", going, "adam"),
             *other = chained("fp16", going, "adam");
    size_t bytes, more;
    char path[100];
    snprintf(path, sizeof path, "loss-scale-%ld.safetensors", (long)getpid());
    play(whole, 0, 37);
    play(half, 0, 18);
    void *middle = state_of(half, &bytes), *want = state_of(whole, &bytes);
    CHECK(!nn_checkpoint_save(half, path, NULL, 0), "%s", tensor_error());
    CHECK(!nn_state_restore(other, middle, bytes), "%s", tensor_error());
    play(other, 18, 19);
    void *got = state_of(other, &more);
    CHECK(more == bytes && !memcmp(want, got, bytes), "from a state: another one");
    nn_graph *read = nn_checkpoint_graph(path, device);
    CHECK(read && !nn_compile(read, nn_linear(read, "fc", nn_input(read, 1, 1, WIDTH), OUTPUTS, false)) &&
              !nn_checkpoint_load(read, path),
          "%s", tensor_error());
    play(read, 18, 19);
    void *again = state_of(read, &more);
    CHECK(more == bytes && !memcmp(want, again, bytes), "from a checkpoint: another one");
    /* neither a network without scaling nor one with another scale accepts it */
    static const char *const others[] = {NULL, "512", "dynamic:init=2^9,window=5,factor=2,min=1"};
    for (int i = 0; i < 3; i++) {
        nn_graph *stranger = chained("fp16", others[i], "adam");
        CHECK(nn_checkpoint_load(stranger, path) == TENSOR_E_DATA && strstr(tensor_error(), "'network.loss_scale' is"),
              "%s: %s", others[i], tensor_error());
        CHECK(nn_state_restore(stranger, middle, bytes), "%s: a state of another scaler was taken", others[i]);
        nn_graph_free(stranger);
    }
    /* before the tensors there are numbers that no scaler has: they are refused, and nothing changes */
    nn_loss_scale now, bad[6];
    size_t at = 0;
    CHECK(!nn_loss_scale_of(&now, half), "%s", tensor_error());
    while (at + sizeof now < bytes && memcmp((char *)middle + at, &now, sizeof now) != 0)
        at++;
    CHECK(at + sizeof now < bytes, "the scaler is not in the state");
    for (int i = 0; i < 6; i++)
        bad[i] = now;
    bad[0].scale = 3;
    bad[1].scale = 0.5;
    bad[2].good = 4;
    bad[3].skipped = now.longest - 1;
    bad[4].in_a_row = now.longest + 1;
    bad[5].scale = NAN;
    for (int i = 0; i < 6; i++) {
        memcpy((char *)middle + at, &bad[i], sizeof now);
        CHECK(nn_state_restore(half, middle, bytes) == TENSOR_E_DATA && strstr(tensor_error(), "a loss scale of"),
              "%d: %s", i, tensor_error());
    }
    nn_loss_scale still;
    CHECK(!nn_loss_scale_of(&still, half) && !memcmp(&still, &now, sizeof now), "a refused state changed the scaler");
    remove(path);
    free(middle);
    free(want);
    free(got);
    free(again);
    nn_graph_free(whole);
    nn_graph_free(half);
    nn_graph_free(other);
    nn_graph_free(read);
}

/* --- two networks, each with a scaler ------------------------------------------------------------------------------
 */

enum { PAIR_IMAGES = 4, PAIR_PIXELS = 64, PAIR_WEIGHTS = 4000 };

static struct wgan *new_pair(const char *variant, const char *policy, const char *scale) {
    struct wgan *w = wgan_new(&(struct wgan_config){.variant = variant,
                                                    .policy = policy,
                                                    .device = device,
                                                    .seed = 2,
                                                    .batch = PAIR_IMAGES,
                                                    .side = 8,
                                                    .channels = 1,
                                                    .latent = 4,
                                                    .filters = 2,
                                                    .loss_scale = scale});
    CHECK(w, "%s: %s", policy ? policy : variant, tensor_error());
    return w;
}

static const float *pair_images(void) {
    static float images[PAIR_IMAGES * PAIR_PIXELS];
    uint64_t seed = 8;
    for (int i = 0; i < PAIR_IMAGES * PAIR_PIXELS; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    return images;
}

static nn_loss_scale scale_of(const nn_graph *g) {
    nn_loss_scale now = {0};
    CHECK(!nn_loss_scale_of(&now, g), "%s", tensor_error());
    return now;
}

/* A power of two changes no bit of either network, and no loss, also if the two scales differ: the generator's update
 * divides by the factor of the critic's gradient in the generator's step. */
static void pairs_bits(const char *variant, const char *scale, double critic, double generator) {
    struct wgan *const both[] = {new_pair(variant, NULL, NULL), new_pair(variant, NULL, scale)};
    for (int i = 0; i < 6; i++) {
        double estimate[2], loss[2] = {0, 0};
        for (int k = 0; k < 2; k++)
            CHECK(!wgan_train_critic(&estimate[k], both[k], pair_images()) &&
                      (i % 3 || !wgan_train_generator(&loss[k], both[k])),
                  "%s", tensor_error());
        CHECK(estimate[0] == estimate[1] && loss[0] == loss[1], "%s, scale %s, step %d: %g and %g, losses %g and %g",
              variant, scale, i, estimate[0], estimate[1], loss[0], loss[1]);
    }
    CHECK(scale_of(wgan_critic(both[1])).scale == critic && scale_of(wgan_generator(both[1])).scale == generator,
          "%s, scale %s: critic %g, generator %g", variant, scale, scale_of(wgan_critic(both[1])).scale,
          scale_of(wgan_generator(both[1])).scale);
    char what[80];
    snprintf(what, sizeof what, "%s, scale %s", variant, scale);
    same_weights(wgan_critic(both[0]), wgan_critic(both[1]), what);
    same_weights(wgan_generator(both[0]), wgan_generator(both[1]), what);
    wgan_free(both[0]);
    wgan_free(both[1]);
}

static void numbers_of(const nn_graph *g, double values[PAIR_WEIGHTS]) {
    int64_t at = 0;
    memset(values, 0, PAIR_WEIGHTS * sizeof *values);
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (strcmp(info.role, "weight") && strcmp(info.role, "root"))
            continue;
        CHECK(at + tensor_count(info.t) <= PAIR_WEIGHTS &&
                  !tensor_store_wide_f64(info.t, values + at, tensor_count(info.t)),
              "%s: %s", info.name, tensor_error());
        at += tensor_count(info.t);
    }
}

/* The gradient of the loss is 1/4 for each image that counts, so that a step overflows if scale / 4 is above `most`,
 * the largest number of the format: in the critic's steps by the critic's scale, in those of the generator by the
 * generator's, although the overflow then is in the critic. A step that is left out writes no weight; neither scaler
 * changes in a step of the other network. */
static void pairs_skip(const char *variant, const char *policy, double most) {
    static double before[2][PAIR_WEIGHTS], after[2][PAIR_WEIGHTS];
    const char *name = policy ? policy : variant;
    struct wgan *w = new_pair(variant, policy, "dynamic:init=2^24");
    nn_graph *const g[] = {wgan_critic(w), wgan_generator(w)};
    double expected[2] = {0x1p24, 0x1p24};
    int64_t skipped[2] = {0, 0};
    for (int i = 0; i < 30; i++) {
        const int own = i % 3 == 2; /* two steps of the critic, one of the generator */
        double value;
        for (int k = 0; k < 2; k++)
            numbers_of(g[k], before[k]);
        CHECK(own ? !wgan_train_generator(&value, w) : !wgan_train_critic(&value, w, pair_images()), "%s",
              tensor_error());
        CHECK(fabs(value) < 1, "%s, step %d: a loss of %g", name, i, value);
        const bool skips = expected[own] / PAIR_IMAGES > most;
        expected[own] /= skips ? 2 : 1;
        skipped[own] += skips;
        for (int k = 0; k < 2; k++) {
            const nn_loss_scale now = scale_of(g[k]);
            numbers_of(g[k], after[k]);
            CHECK(now.scale == expected[k] && now.skipped == skipped[k],
                  "%s, step %d of the %s: the %s has scale %g, %d skipped; expected %g, %d", name, i,
                  own ? "generator" : "critic", k ? "generator" : "critic", now.scale, (int)now.skipped, expected[k],
                  (int)skipped[k]);
            CHECK(!memcmp(before[k], after[k], sizeof before[k]) == (k != own || skips),
                  "%s, step %d of the %s: weights of the %s", name, i, own ? "generator" : "critic",
                  k ? "generator" : "critic");
        }
    }
    CHECK(skipped[0] > 5 && skipped[1] > 5, "%s: %d and %d skipped", name, (int)skipped[0], (int)skipped[1]);
    wgan_free(w);
}

static void pairs(void) {
    pairs_bits("fp32", "dynamic:init=2^10,window=2", 8192, 2048);
    pairs_bits("fp32", "2^-6", 0x1p-6, 0x1p-6);
    pairs_bits("bf16", "1024", 1024, 1024);
    pairs_bits("bf16", "dynamic:init=2^10,window=2", 8192, 2048);
    pairs_skip("fp16", NULL, 65504);
    /* without Inf: the gradient of the loss saturates, but no gradient of a parameter does */
    pairs_skip("flex16+5", NULL, 32767);
    /* the Inf is in the critic, where a shared exponent absorbs it before it reaches the generator */
    pairs_skip(NULL, "variant fp16; down1 format=dfp16", 65504);
    if (device)
        return;
    pairs_bits("dfp16", "1024", 1024, 1024);
    pairs_bits("dfp16", "dynamic:init=2^10,window=2", 8192, 2048);
    /* the Inf is absorbed between the two networks */
    pairs_skip(NULL, "variant fp16; up* format=dfp16; bn* format=dfp16; image format=dfp16", 65504);
    pairs_skip(NULL, "O2", 65504);
    pairs_skip(NULL, "variant fp32; score format=flex16+5", 32767);
}

/* Under a policy, operands in fp16 overflow, and a gradient with a shared exponent, which can be neither Inf nor NaN,
 * receives the products. second: for the second image; if its sign differs from the first, every sum of products is
 * NaN. */
static void mixes(float second) {
    const float images[BATCH * WIDTH] = {1, -0.5f, 2, second, -second, second};
    nn_graph *g = nn_graph_new(&(nn_config){.policy = "variant fp16; @product result=dfp16",
                                            .batch = BATCH,
                                            .seed = 3,
                                            .loss = "none",
                                            .loss_scale = "dynamic:init=1024"});
    CHECK(g && !nn_compile(g, nn_conv2d(g, "conv", nn_input(g, 1, 1, WIDTH), OUTPUTS, 1, NULL)), "%s", tensor_error());
    tensor *dy = tensor_new(FMT_DFP16, TENSOR_SHAPE(BATCH, 1, 1, OUTPUTS)), *w = NULL;
    for (int i = 0; i < nn_tensor_count(g); i++)
        w = !strcmp(nn_tensor_at(g, i).name, "conv.weight") ? nn_tensor_at(g, i).t : w;
    double before[WIDTH * OUTPUTS], after[WIDTH * OUTPUTS];
    for (int i = 0; i < 3; i++) {
        const float value = i == 1 ? 1e6f : 0.25f, numbers[BATCH * OUTPUTS] = {value, 0.5f, value, 0.5f};
        nn_loss_scale now = {0};
        CHECK(!tensor_store_f64(w, before, WIDTH * OUTPUTS) && !tensor_load_f32(dy, numbers, BATCH * OUTPUTS) &&
                  !nn_forward(g, &(nn_batch){.images = images}) && !nn_backward_from(g, dy) && !nn_update(g, 0.125f) &&
                  !tensor_store_f64(w, after, WIDTH * OUTPUTS) && !nn_loss_scale_of(&now, g),
              "%s", tensor_error());
        CHECK(now.scale == (i ? 512 : 1024) && now.in_a_row == (i == 1), "%g: scale %g after step %d", (double)second,
              now.scale, i);
        CHECK((i == 1) == !memcmp(before, after, sizeof before), "%g: step %d", (double)second, i);
    }
    tensor_free(dy);
    nn_graph_free(g);
}

/* Gradients that the format of the backward pass can represent, but the format that stores them cannot: `most` is the
 * largest that it can, of the weight and the bias or of the bias alone. */
static void keeps(const char *policy, bool bias_alone, double most) {
    nn_graph *g = nn_graph_new(&(nn_config){.policy = policy,
                                            .batch = BATCH,
                                            .seed = 3,
                                            .momentum = 0.5f,
                                            .loss = "none",
                                            .loss_scale = "dynamic:init=2^20,window=2"});
    CHECK(g && !nn_compile(g, nn_linear(g, "fc", nn_input(g, 1, 1, WIDTH), OUTPUTS, false)), "%s: %s", policy,
          tensor_error());
    int skipped = 0, held = 0;
    for (int i = 0; i < 24; i++) {
        double before[32] = {0}, after[32] = {0}, largest = 0, values[WIDTH * OUTPUTS];
        nn_loss_scale was, now;
        CHECK(!nn_loss_scale_of(&was, g), "%s", tensor_error());
        weights_of(g, before);
        step(g, i % (BATCH * OUTPUTS), (float)was.scale * (i % 2 ? -0.5f : 0.375f));
        weights_of(g, after);
        for (int k = 0; k < nn_tensor_count(g); k++) {
            const nn_tensor_info info = nn_tensor_at(g, k);
            const bool raw =
                !strcmp(info.name, "fc.bias.grad") || (!bias_alone && !strcmp(info.name, "fc.weight.grad"));
            CHECK(!raw || !tensor_store_f64(info.t, values, tensor_count(info.t)), "%s", tensor_error());
            for (int64_t at = 0; raw && at < tensor_count(info.t); at++)
                largest = fmax(largest, fabs(values[at]));
        }
        CHECK(isfinite(largest) && !nn_loss_scale_of(&now, g), "%s: %g", policy, largest);
        const bool overflow = largest > most;
        CHECK(now.in_a_row == (overflow ? was.in_a_row + 1 : 0), "%s, step %d: %g at a scale of %g, %d in a row",
              policy, i, largest, was.scale, (int)now.in_a_row);
        CHECK(overflow == !memcmp(before, after, sizeof before), "%s, step %d: the weights %s", policy, i,
              overflow ? "moved" : "stayed");
        for (int k = 0; k < 32; k++)
            CHECK(isfinite(after[k]), "%s, step %d: %g", policy, i, after[k]);
        skipped += overflow;
        held += !overflow;
    }
    CHECK(skipped >= 4 && held >= 8, "%s: %d skipped, %d made", policy, skipped, held);
    nn_graph_free(g);
}

/* hides: the gradient of the weight does not show it. A gradient of an activation overflows in fp16, not that of a
 * parameter, and on its way to the only parameter it is converted to a shared exponent, whose elements are all finite:
 * the script gives the steps that make no update. */
static void converts(const char *policy, const char *predictor, bool hides) {
    static const float images[BATCH * WIDTH] = {1, 0.5f, 2, 0.25f, 1, 1};
    static const float script[] = {256, INFINITY, 1000, NAN, -INFINITY, 512};
    nn_graph *g = nn_graph_new(&(nn_config){.policy = policy,
                                            .predictor = predictor,
                                            .batch = BATCH,
                                            .seed = 3,
                                            .loss = "none",
                                            .loss_scale = "dynamic:init=1024,factor=4"});
    CHECK(g, "%s: %s", policy, tensor_error());
    const nn_node conv = nn_conv2d(g, "conv", nn_input(g, 1, 1, WIDTH), OUTPUTS, 1, NULL);
    CHECK(!nn_compile(g, nn_relu(g, "last", conv)), "%s: %s", policy, tensor_error());
    tensor *dy = tensor_new(FMT_FP16, TENSOR_SHAPE(BATCH, 1, 1, OUTPUTS)), *w = NULL, *dw = NULL;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        w = !strcmp(nn_tensor_at(g, i).name, "conv.weight") ? nn_tensor_at(g, i).t : w;
        dw = !strcmp(nn_tensor_at(g, i).name, "conv.weight.grad") ? nn_tensor_at(g, i).t : dw;
    }
    double before[WIDTH * OUTPUTS], after[WIDTH * OUTPUTS], gradient[WIDTH * OUTPUTS], scale = 1024;
    int64_t skipped = 0;
    for (size_t i = 0; i < sizeof script / sizeof *script; i++) {
        const bool overflow = !isfinite(script[i]);
        /* weights, in each format, that leave the ReLU open after any update */
        const float numbers[BATCH * OUTPUTS] = {script[i], script[i], script[i], script[i]},
                                    open[] = {1, 1, 1, 1, 1, 1};
        nn_loss_scale now = {0};
        for (int k = 0; k < nn_tensor_count(g); k++)
            CHECK(strcmp(nn_tensor_at(g, k).role, "weight") != 0 ||
                      !tensor_load_f32(nn_tensor_at(g, k).t, open, WIDTH * OUTPUTS),
                  "%s: %s", policy, tensor_error());
        CHECK(!tensor_store_f64(w, before, WIDTH * OUTPUTS) && !tensor_load_f32(dy, numbers, BATCH * OUTPUTS) &&
                  !nn_forward(g, &(nn_batch){.images = images}) && !nn_backward_from(g, dy) &&
                  !tensor_store_f64(dw, gradient, WIDTH * OUTPUTS) && !nn_update(g, 0.125f) &&
                  !tensor_store_f64(w, after, WIDTH * OUTPUTS) && !nn_loss_scale_of(&now, g),
              "%s: %s", policy, tensor_error());
        tensor_stats stats, all;
        CHECK(!tensor_statistics(&stats, &all, dw), "%s", tensor_error());
        CHECK(!overflow || hides == (isfinite(gradient[0]) && !stats.nonfinite),
              "%s: %g in the gradient of the weight after %g", policy, gradient[0], (double)script[i]);
        scale /= overflow ? 4 : 1;
        skipped += overflow;
        CHECK(now.scale == scale && now.skipped == skipped, "%s: %g: scale %g, %lld skipped, expected %g and %lld",
              policy, (double)script[i], now.scale, (long long)now.skipped, scale, (long long)skipped);
        CHECK(overflow == !memcmp(before, after, sizeof before), "%s: weights after %g", policy, (double)script[i]);
    }
    tensor_free(dy);
    nn_graph_free(g);
}

/* A layer whose gradient is converted from fp16 to a shared exponent, under a predictor with a long history: overflows
 * under the first scales are steps left out, and from then on it is trained as with a scale that causes none. */
static double trained(const char *predictor, const char *scale, double gradient[WIDTH], int64_t *skipped) {
    static const float images[BATCH * WIDTH] = {1, -0.5f, 2, 0.25f, 1, -1};
    static const int32_t labels[BATCH] = {0, 1};
    nn_graph *g = nn_graph_new(&(nn_config){.policy = "variant fp16; first format=dfp16",
                                            .predictor = predictor,
                                            .batch = BATCH,
                                            .seed = 3,
                                            .momentum = 0.5f,
                                            .loss_scale = scale});
    CHECK(g, "%s: %s", predictor, tensor_error());
    const nn_node first = nn_linear(g, "first", nn_input(g, 1, 1, WIDTH), WIDTH, false);
    CHECK(!nn_compile(g, nn_linear(g, "second", first, OUTPUTS, false)), "%s: %s", predictor, tensor_error());
    nn_loss_scale now = {0};
    double loss = 0;
    for (int made = 0, steps = 0; made < 60 && steps < 100; steps++) {
        CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g) &&
                  !nn_update(g, 0.5f) && !nn_loss_scale_of(&now, g),
              "%s: %s", predictor, tensor_error());
        made = steps + 1 - (int)now.skipped;
    }
    *skipped = now.skipped;
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, "first.bias.grad"))
            CHECK(!tensor_store_f64(nn_tensor_at(g, i).t, gradient, WIDTH), "%s", tensor_error());
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_loss(&loss, NULL, g), "%s",
          tensor_error());
    nn_graph_free(g);
    return loss;
}

static void comes_back(void) {
    for (int p = 0; autoflex_at(p); p++) {
        const char *name = autoflex_name(autoflex_at(p));
        double gradient[WIDTH] = {0}, usual[WIDTH] = {0};
        int64_t skipped = 0, none = 0;
        const double loss = trained(name, "dynamic:init=2^24", gradient, &skipped),
                     plain = trained(name, "dynamic:init=1024", usual, &none);
        CHECK(skipped >= 5 && !none, "%s: %d and %d steps left out", name, (int)skipped, (int)none);
        if (!strcmp(name, "fixed")) /* another scale is another number of places */
            continue;
        CHECK(fabs(loss - plain) <= 0.05 * plain + 1e-4, "%s: loss %g after overflows, %g without", name, loss, plain);
        for (int i = 0; i < WIDTH; i++)
            CHECK(gradient[i] != 0 && usual[i] != 0, "%s: gradient %d is %g and %g", name, i, gradient[i], usual[i]);
    }
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refuses(void) {
    static const struct {
        const char *scale, *words;
    } bad[] = {{"", "loss scale '': expected none, dynamic"},
               {"3", "'3': expected a power of two from 2^-60 to 2^60; the nearest are 2 and 4"},
               {"1000", "'1000': expected a power of two from 2^-60 to 2^60; the nearest are 512 and 1024"},
               {"0", "'0': expected a power of two from 2^-60 to 2^60"},
               {"-2", "expected a power of two from 2^-60 to 2^60"},
               {"inf", "expected a power of two from 2^-60 to 2^60"},
               {"nan", "expected a power of two from 2^-60 to 2^60"},
               {"2^61", "expected a power of two from 2^-60 to 2^60"},
               {"2^0.5", "expected a power of two from 2^-60 to 2^60"},
               {"3^2", "expected none"},
               {"2^", "expected none"},
               {"1024x", "expected none"},
               {"None", "expected none"},
               {"dynamic:", "expected none"},
               {"dynamical", "expected none"},
               {"dynamic:init", "'init' is not understood"},
               {"dynamic:init=", "'init=', expected a number after 'init='"},
               {"dynamic:init=,window=2", "'init=', expected a number after 'init='"},
               {"dynamic:init=4;window=2", "'init=4;window=2', expected a number after 'init='"},
               {"dynamic:init=2^4x", "'init=2^4x', expected a number"},
               {"dynamic:init=4,", "nothing after the last comma"},
               {"dynamic:,init=4", "'' is not understood"},
               {"dynamic:initial=4", "'initial=4' is not understood"},
               {"dynamic:in=4", "'in=4' is not understood"},
               {"dynamic:window=5,init=4,window=5", "window a second time"},
               {"dynamic:max=4,max=8", "max a second time"},
               {"dynamic:scale=4", "'scale=4' is not understood"},
               {"dynamic:init=5", "init: expected a power of two from 2^-5 to 2^24; the nearest are 4 and 8"},
               {"dynamic:init=2^25", "init: expected"},
               {"dynamic:init=0", "init: expected"},
               {"dynamic:init=2^0.5", "init: expected"},
               {"dynamic:window=0", "window 0, expected a whole number from 1 to 2147483647"},
               {"dynamic:window=1.5", "window 1.5"},
               {"dynamic:factor=1", "factor: expected a power of two from 2^1 to 2^20"},
               {"dynamic:factor=3", "factor"},
               {"dynamic:min=8,max=4", "max: expected a power of two from 2^3 to 2^60"},
               {"dynamic:min=0", "min: expected"}};
    char text[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp16", .batch = 1, .loss_scale = bad[i].scale});
        CHECK(!g && tensor_error_status() == TENSOR_E_ARGUMENT && strstr(tensor_error(), bad[i].words), "'%s': %s",
              bad[i].scale, tensor_error());
        nn_graph_free(g);
        CHECK(nn_loss_scale_text(text, sizeof text, bad[i].scale) == TENSOR_E_ARGUMENT, "'%s'", bad[i].scale);
    }
    static const char *const full[][2] = {
        {NULL, "none"},
        {"none", "none"},
        {"2^-5", "0.03125"},
        {"65536", "65536"},
        {"dynamic", "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216"},
        {"dynamic:max=2^10", "dynamic:init=1024,window=2000,factor=2,min=0.03125,max=1024"},
        {"dynamic:min=2^17", "dynamic:init=131072,window=2000,factor=2,min=131072,max=16777216"},
        {"dynamic:min=2,window=10,init=4,factor=2^3", "dynamic:init=4,window=10,factor=8,min=2,max=16777216"}};
    for (size_t i = 0; i < sizeof full / sizeof *full; i++)
        CHECK(!nn_loss_scale_text(text, sizeof text, full[i][0]) && !strcmp(text, full[i][1]), "%s: %s", full[i][1],
              text);
    CHECK(nn_loss_scale_text(text, 20, "dynamic") == TENSOR_E_ARGUMENT && strstr(tensor_error(), "room for 19"), "%s",
          tensor_error());
}

int main(int argc, char **argv) {
    device = argc > 1 ? argv[1] : NULL;
    if (device && !tensor_device_find(device))
        return check_skip(tensor_error());
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        follow(&scripts[i]);
    overflows_by_scale();
    saturates();
    same_bits();
    if (!device) {
        rescues();
        mixes(1);
        mixes(-1);
        keeps("variant fp32; * weight-gradients=fp16", false, 65519);
        keeps("variant fp32; fc.bias weights=fp16 master=none", true, 65519);
        keeps("variant bf16; * weight-gradients=fp16 master=fp32", false, 65519);
        keeps("variant fp32; * weight-gradients=flex16+5:current", false, 32767.4);
        converts("variant fp16; if-any nothing format=fp32", NULL, false);
        converts("variant fp16; conv format=dfp16", NULL, true);
        converts("variant fp16; conv format=flex16+5", NULL, true);
        converts("variant fp16; conv gradients=dfp16", NULL, true);
        converts("variant fp16; conv operands=dfp16 result=fp16", NULL, true);
        for (int p = 0; autoflex_at(p); p++)
            converts("variant fp16; conv format=dfp16", autoflex_name(autoflex_at(p)), true);
        comes_back();
    }
    goes_on();
    pairs();
    refuses();
    return check_summary();
}
