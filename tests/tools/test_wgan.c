/* A generator and its critic: the critic learns to distinguish two sets, with the same bits for any number of threads
 * and with a save in the middle, or on another device (the argument), weights within the limit, the layers of the two
 * networks by finite differences, policies that both have, and errors. */
#include "check.h"
#include "base/failure.h"
#include "runs/wgan_pair.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 8, BATCH = 8, IMAGES = 40, PIXELS = SIDE * SIDE };
static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};

static double uniform(uint64_t *seed) {
    return (double)(check_random(seed) >> 11) * 0x1p-53;
}

/* Images bright on the left and dark on the right, each with a small difference. */
enum difference { NONE, ONE_PIXEL, LABELS };

static data_set *new_set_with(enum difference difference) {
    static uint8_t images[IMAGES * PIXELS];
    static int32_t labels[IMAGES];
    uint64_t seed = 3;
    for (int i = 0; i < IMAGES * PIXELS; i++)
        images[i] = (uint8_t)((i % SIDE < SIDE / 2 ? 200 : 30) + uniform(&seed) * 25);
    for (int i = 0; i < IMAGES; i++)
        labels[i] = difference == LABELS ? 1 - i % 2 : i % 2;
    images[IMAGES * PIXELS - 1] ^= difference == ONE_PIXEL;
    data_set *set = data_new(images, labels, IMAGES, SIDE, SIDE, 1, 2);
    CHECK(set, "%s", failure_message());
    return set;
}

static data_set *new_set(void) {
    return new_set_with(NONE);
}

/* A variant, or the text of a policy; a dynamic loss scale has scalers that change soon. */
static struct wgan *new_pair(const char *variant, float rate) {
    const bool policy = strchr(variant, ';');
    struct wgan *w = wgan_new(&(struct wgan_config){
        .variant = policy ? NULL : variant,
        .policy = policy ? variant : NULL,
        .loss_scale = policy && strstr(variant, "loss-scale dynamic") ? "dynamic:init=2^20,window=3" : NULL,
        .seed = 4,
        .batch = BATCH,
        .side = SIDE,
        .channels = 1,
        .latent = 6,
        .filters = 4,
        .rate = rate});
    CHECK(w, "%s", failure_message());
    return w;
}

struct curve {
    int steps;
    double estimate[200], loss[200];
};
static int note(void *context, const struct wgan_report *r) {
    struct curve *c = context;
    CHECK(r->step == c->steps + 1, "step %lld after %d", (long long)r->step, c->steps);
    c->estimate[c->steps] = r->estimate;
    c->loss[c->steps++] = r->loss;
    return 0;
}

static void state_of(const struct wgan *w, unsigned char **bytes, size_t *count) {
    const size_t a = nn_state_bytes(wgan_generator(w)), b = nn_state_bytes(wgan_critic(w));
    *count = a + b;
    *bytes = malloc(a + b);
    CHECK(*bytes && !nn_state_save(*bytes, a, wgan_generator(w)) && !nn_state_save(*bytes + a, b, wgan_critic(w)), "%s",
          failure_message());
}

/* The distance between the mean image of the set and that of the generated ones: training should reduce it. */
static double distance(struct wgan *w) {
    float images[BATCH * PIXELS], again[BATCH * PIXELS];
    unsigned char *before, *after;
    size_t count, same;
    state_of(w, &before, &count);
    CHECK(!wgan_generate(images, w, 77, BATCH) && !wgan_generate(again, w, 77, BATCH), "%s", failure_message());
    CHECK(!memcmp(images, again, sizeof images), "other images the second time");
    state_of(w, &after, &same);
    CHECK(same == count && !memcmp(before, after, count), "images have changed the state of the pair");
    free(before);
    free(after);
    double sum = 0;
    for (int p = 0; p < PIXELS; p++) {
        double mean = 0;
        for (int i = 0; i < BATCH; i++)
            mean += images[i * PIXELS + p] / BATCH;
        CHECK(fabs(mean) <= 1, "pixel %d: %g", p, mean);
        sum += fabs(mean - ((p % SIDE < SIDE / 2 ? 212.5 : 42.5) / 127.5 - 1)) / PIXELS;
    }
    return sum;
}

static void within(const nn_graph *g, double limit, const char *variant) {
    for (int i = 0; i < nn_tensor_count(g); i++) {
        double most = 0;
        if (strcmp(nn_tensor_at(g, i).role, "weight"))
            continue;
        CHECK(!tensor_max_abs(&most, nn_tensor_at(g, i).t) && most <= limit * 1.005, "%s: %s is %g, the limit %g",
              variant, nn_tensor_at(g, i).name, most, limit);
    }
}

/* Estimates rise while the critic learns, and fall when the generator follows. */
static void learns(const char *variant, const data_set *set) {
    enum { STEPS = 60 };
    static struct curve c;
    struct wgan *w = new_pair(variant, 1e-3f);
    c.steps = 0;
    const double before = distance(w);
    CHECK(!wgan_train(w, set, STEPS, note, &c) && c.steps == STEPS, "%s", failure_message());
    const double after = distance(w);
    double peak = 0, last = 0;
    for (int i = 0; i < STEPS; i++)
        peak = fmax(peak, c.estimate[i]);
    for (int i = STEPS - 5; i < STEPS; i++)
        last += c.estimate[i] / 5;
    printf("%s: estimate %g at first, %g at most, %g in the end; images off by %g, then %g\n", variant, c.estimate[0],
           peak, last, before, after);
    CHECK(peak > 2 * fabs(c.estimate[0]) && last < 0.7 * peak, "%s: estimates %g, at most %g, %g", variant,
          c.estimate[0], peak, last);
    CHECK(after < 0.6 * before, "%s: images off by %g, then %g", variant, before, after);
    within(wgan_critic(w), 0.01, variant);
    wgan_free(w);
}

/* Compares an uninterrupted training with another number of threads, and with a save and a fresh pair in the middle. */
static void same_bits(const char *variant, const data_set *set, const char *prefix) {
    enum { STEPS = 6 };
    static struct curve c[3];
    unsigned char *states[3];
    size_t bytes[3];
    memset(c, 0, sizeof c);
    for (int way = 0; way < 3; way++) {
        struct wgan *w = new_pair(variant, 1e-3f);
        CHECK(!tensor_set_threads(way == 1 ? 3 : 1), "%s", failure_message());
        if (way == 2) {
            CHECK(!wgan_train(w, set, 2, note, &c[way]) && !wgan_save(w, prefix), "%s", failure_message());
            wgan_free(w);
            w = new_pair(variant, 1e-3f);
            CHECK(!wgan_load(w, prefix), "%s", failure_message());
        }
        CHECK(!wgan_train(w, set, STEPS, note, &c[way]) && nn_steps(wgan_critic(w)) == STEPS * 5, "%s",
              failure_message());
        state_of(w, &states[way], &bytes[way]);
        if (way)
            CHECK(bytes[way] == bytes[0] && !memcmp(states[way], states[0], bytes[0]) &&
                      !memcmp(&c[way], &c[0], sizeof c[0]),
                  "%s: %s", variant, way == 1 ? "three threads differ from one" : "with a save it goes on otherwise");
        wgan_free(w);
    }
    for (int way = 0; way < 3; way++)
        free(states[way]);
    CHECK(!tensor_set_threads(0), "%s", failure_message());
}

/* --- policies ----------------------------------------------------------------------------------------------------- */

static const char mixed[] = "variant flex16+5; up1 format=bf16; image format=fp16; down* format=dfp16; "
                            "score format=fp16; loss-scale dynamic;";
static const char *const policies[] = {"preset O1;", "preset O2;", "preset dfp16;",
                                       "variant bf16; up* format=fp32; down* gradients=fp16;", mixed};

/* A policy equivalent to a variant gives its bits. */
static void policy_of_variant(const char *variant, const data_set *set) {
    static struct curve c[2];
    char policy[60];
    memset(c, 0, sizeof c);
    snprintf(policy, sizeof policy, "variant %s; score format=%s;", variant, variant);
    for (int i = 0; i < 2; i++) {
        struct wgan *w = new_pair(i ? policy : variant, 1e-3f);
        CHECK(!wgan_train(w, set, 4, note, &c[i]), "%s", failure_message());
        wgan_free(w);
    }
    CHECK(!memcmp(&c[0], &c[1], sizeof c[0]), "%s: as a policy it gives other bits", variant);
}

/* A rule that matches in one of the two networks changes nothing else. */
static void one_of_both(void) {
    struct wgan *w = new_pair("variant fp32; up2 weights=bf16; down2 weights=fp16; bn* format=dfp16;", 1e-3f);
    const nn_graph *const both[] = {wgan_generator(w), wgan_critic(w)};
    int found = 0;
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < nn_tensor_count(both[n]); i++) {
            const nn_tensor_info info = nn_tensor_at(both[n], i);
            const char *format = tensor_format_name(tensor_format_of(info.t)),
                       *expected = !strcmp(info.name, "up2.weight")     ? "bf16"
                                   : !strcmp(info.name, "down2.weight") ? "fp16"
                                   : !strncmp(info.name, "bn", 2)       ? "dfp16"
                                   : strchr(info.name, '.') == NULL     ? "fp32"
                                   : !strcmp(info.name, "up1.weight")   ? "fp32"
                                   : !strcmp(info.name, "score.weight") ? "fp32"
                                                                        : NULL;
            if (!strcmp(info.role, "weight") && expected) {
                CHECK(!strcmp(format, expected), "%s is %s, expected %s", info.name, format, expected);
                found++;
            }
        }
    CHECK(found == 10, "%d parameters", found); /* four weights, gammas and betas of three normalisations */
    wgan_free(w);
}

/* --- the layers: d score / d latent through both networks, by finite differences in fp32 ----------------------------
 */

/* The critic's loss is linear in its scores, and the chain ends in the generator's first weights: the change of the
 * loss along a random direction of the last layer's weights against the sum of gradient times direction. */
static double loss_with(struct wgan *w, tensor *weight, const float *at, const float *latent, int64_t n,
                        float *images) {
    static float both[2 * BATCH * PIXELS];
    int32_t labels[2 * BATCH];
    double loss = 0;
    CHECK(!tensor_load_f32(weight, at, n) && !nn_forward(wgan_generator(w), &(nn_batch){.images = latent}) &&
              !tensor_store_f32(nn_output(wgan_generator(w)), images, BATCH * PIXELS),
          "%s", failure_message());
    for (int i = 0; i < 2 * BATCH; i++)
        labels[i] = i < BATCH ? 1 : -1;
    memcpy(both, images, BATCH * PIXELS * sizeof *images);
    memcpy(both + BATCH * PIXELS, images, BATCH * PIXELS * sizeof *images);
    CHECK(!nn_forward(wgan_critic(w), &(nn_batch){.images = both, .labels = labels}) &&
              !nn_loss(&loss, NULL, wgan_critic(w)),
          "%s", failure_message());
    return loss;
}

static void differences(void) {
    struct wgan *w = wgan_new(&(struct wgan_config){.variant = "fp32",
                                                    .seed = 4,
                                                    .batch = BATCH,
                                                    .side = SIDE,
                                                    .channels = 1,
                                                    .latent = 6,
                                                    .filters = 4,
                                                    .clip = 10});
    nn_graph *g = wgan_generator(w);
    float latent[BATCH * 6], images[BATCH * PIXELS];
    uint64_t seed = 21;
    for (int i = 0; i < BATCH * 6; i++)
        latent[i] = (float)(uniform(&seed) * 2 - 1);
    for (int layer = 1; layer <= 4; layer++) {
        char names[2][32];
        tensor *weight = NULL, *gradient = NULL;
        snprintf(names[0], sizeof names[0], "up%d.weight", layer);
        snprintf(names[1], sizeof names[1], "up%d.weight.grad", layer);
        for (int i = 0; i < nn_tensor_count(g); i++) {
            weight = !strcmp(nn_tensor_at(g, i).name, names[0]) ? nn_tensor_at(g, i).t : weight;
            gradient = !strcmp(nn_tensor_at(g, i).name, names[1]) ? nn_tensor_at(g, i).t : gradient;
        }
        CHECK(weight && gradient, "%s", names[0]);
        const int64_t n = tensor_count(weight);
        float *base = malloc((size_t)n * sizeof *base), *moved = malloc((size_t)n * sizeof *base);
        double *slope = malloc((size_t)n * sizeof *slope), expected = 0, size = 0;
        CHECK(base && moved && slope && !tensor_store_f32(weight, base, n), "%s", failure_message());
        loss_with(w, weight, base, latent, n, images);
        CHECK(!nn_backward(wgan_critic(w)), "%s", failure_message());
        CHECK(!nn_backward_from(g, nn_input_gradient(wgan_critic(w))) && !tensor_store_f64(gradient, slope, n), "%s",
              failure_message());
        double sides[2];
        const double h = 1e-4;
        for (int s = 0; s < 2; s++) {
            uint64_t own = 99;
            expected = size = 0;
            for (int64_t i = 0; i < n; i++) {
                const double direction = uniform(&own) - 0.5;
                moved[i] = (float)(base[i] + (s ? h : -h) * direction);
                expected += slope[i] * direction;
                size += fabs(slope[i] * direction);
            }
            sides[s] = loss_with(w, weight, moved, latent, n, images);
        }
        const double found = (sides[1] - sides[0]) / (2 * h);
        CHECK(fabs(found - expected) <= 0.02 * size, "%s: slope %g, by differences %g, of terms that sum to %g",
              names[0], expected, found, size);
        CHECK(!tensor_load_f32(weight, base, n), "%s", failure_message());
        free(base);
        free(moved);
        free(slope);
    }
    wgan_free(w);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static void refused(tensor_status status, const char *words) {
    CHECK(status && strstr(failure_message(), words), "'%s', expected '%s'", status ? failure_message() : "no error",
          words);
}

static void refusals(const data_set *set, const char *prefix) {
    const struct wgan_config good = {
        .variant = "fp32", .batch = 2, .side = 8, .channels = 1, .filters = 1, .latent = 2};
    struct wgan_config bad[6] = {good, good, good, good, good, good};
    static const char *const words[6] = {
        "side 12, expected a multiple of 8", "batch 0", "channels 5", "rate -1", "variant 'fp33'", "latent -1"};
    bad[0].side = 12;
    bad[1].batch = 0;
    bad[2].channels = 5;
    bad[3].rate = -1;
    bad[4].variant = "fp33";
    bad[5].latent = -1;
    for (int i = 0; i < 6; i++)
        refused(wgan_new(&bad[i]) ? TENSOR_OK : TENSOR_E_ARGUMENT, words[i]);
    refused(wgan_new(NULL) ? TENSOR_OK : TENSOR_E_ARGUMENT, "config is NULL");
    static const char *const rules[][2] = {
        {"variant fp32; down1 format=bf16; conv1 format=fp16", "'conv1' matches no layer and no parameter; layers: "
                                                               "input, up1, bn1, up2, bn2, up3, bn3, up4, image, "
                                                               "down1, leaky1, down2, leaky2, down3, leaky3, score"},
        {"variant fp32; bn1 operands=bf16;", "nothing that 'bn1' matches has operands"},
        {"variant fp32; up1 operands=fp16 gradients=bf16;", "gradients of 'up1' would be ignored"},
        {"variant fp16; loss-scale 3;", "loss scale '3'"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct wgan_config how = good;
        how.variant = NULL;
        how.policy = rules[i][0];
        refused(wgan_new(&how) ? TENSOR_OK : TENSOR_E_ARGUMENT, rules[i][1]);
    }
    struct wgan_config layers = good;
    layers.layer_formats = "up1=bf16,dwon1=bf16";
    refused(wgan_new(&layers) ? TENSOR_OK : TENSOR_E_ARGUMENT, "'dwon1' matches no layer");
    struct wgan *w = wgan_new(&good), *other = new_pair("fp32", 5e-5f), *faster = new_pair("fp32", 1e-3f);
    float images[2 * PIXELS] = {0};
    refused(wgan_generate(images, w, 1, 3), "images 3, expected 1 to 2");
    refused(wgan_train_critic(NULL, w, NULL), "images is NULL");
    refused(wgan_train(w, NULL, 1, NULL, NULL), "the set is NULL");
    refused(wgan_load(w, "/nowhere/there"), "/nowhere/there.critic.safetensors");
    CHECK(!wgan_train(w, set, 1, NULL, NULL) && !wgan_save(w, prefix), "%s", failure_message());
    refused(wgan_load(other, prefix), "checkpoint");
    refused(wgan_load(faster, prefix), "was trained with critic_steps=5 rate=4.99999987e-05");
    wgan_free(faster);
    /* files of two different steps */
    char path[300], kept[300];
    snprintf(path, sizeof path, "%s.critic.safetensors", prefix);
    snprintf(kept, sizeof kept, "%s.critic.kept", prefix);
    CHECK(!rename(path, kept) && !wgan_train(w, set, 2, NULL, NULL) && !wgan_save(w, prefix) && !rename(kept, path),
          "%s", failure_message());
    refused(wgan_load(w, prefix), "is of step '5 1'");
    wgan_free(w);
    wgan_free(other);
}

/* A loaded pair continues with the images on which it was trained, whatever their labels; before that, and after
 * training step by step, it accepts any. */
static void other_images(const data_set *set, const char *prefix) {
    data_set *changed = new_set_with(ONE_PIXEL), *labelled = new_set_with(LABELS);
    char told[200];
    struct wgan *w = new_pair("fp32", 1e-3f), *again = new_pair("fp32", 1e-3f);
    CHECK(!wgan_save(w, prefix) && !wgan_load(again, prefix) && !wgan_train(again, changed, 1, NULL, NULL),
          "a file of no training: %s", failure_message());
    CHECK(!wgan_train(w, set, 1, NULL, NULL) && !wgan_save(w, prefix), "%s", failure_message());
    for (int i = 0; i < 2; i++) { /* a pair saved again before it is trained records the same images */
        CHECK(!wgan_load(again, prefix), "%s", failure_message());
        refused(wgan_train(again, changed, 2, NULL, NULL), "was trained with");
        snprintf(told, sizeof told, "%s", failure_message());
        CHECK(strstr(told, "this set has") && nn_steps(wgan_generator(again)) == 1, "%s", told);
        CHECK(!wgan_save(again, prefix), "%s", failure_message());
    }
    CHECK(!wgan_train(again, labelled, 2, NULL, NULL) && !wgan_train(w, changed, 2, NULL, NULL), "%s",
          failure_message());
    data_free(changed);
    data_free(labelled);
    wgan_free(w);
    wgan_free(again);
}

/* --- the first NaN or Inf ----------------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b) {
    return !a || !b ? a == b : !strcmp(a, b);
}

static bool same_first(const struct wgan_nonfinite *a, const struct wgan_nonfinite *b) {
    return a && b && a->of.step == b->of.step && a->of.nonfinite == b->of.nonfinite &&
           a->of.elements == b->of.elements && same_text(a->of.pass, b->of.pass) &&
           same_text(a->of.tensor, b->of.tensor) && same_text(a->network, b->network) &&
           same_text(a->of.remedy, b->of.remedy) && (a->of.maximum > b->of.maximum) == (a->of.maximum < b->of.maximum);
}

/* The generator's weights grow until fp16 can no longer represent its results, in its own steps or in the images for
 * the critic's: the report does not blame the critic's data. */
static void first_of_generator(const char *prefix) {
    struct wgan *w = new_pair("fp16", 5000), *again = new_pair("fp16", 5000);
    float images[BATCH * PIXELS];
    for (int i = 0; i < BATCH * PIXELS; i++)
        images[i] = i % SIDE < SIDE / 2 ? 0.6f : -0.7f;
    uint64_t made = 0;
    for (int step = 0; step < 9 && !wgan_nonfinite(w); step++) {
        made = nn_steps(wgan_generator(w));
        CHECK(!wgan_train_critic(NULL, w, images), "%s", failure_message());
        if (!wgan_nonfinite(w))
            CHECK(!wgan_train_generator(NULL, w) && !wgan_nonfinite(w), "in a step of the generator: %s",
                  wgan_nonfinite(w) ? wgan_nonfinite(w)->of.tensor : failure_message());
    }
    const struct wgan_nonfinite *first = wgan_nonfinite(w);
    CHECK(first && !strcmp(first->network, "generator") && !strcmp(first->of.pass, "forward") &&
              first->of.maximum > 65504 && first->of.step == (int64_t)made + 1 && first->of.remedy,
          "%s of %s, pass %s, step %lld, largest %g", first ? first->of.tensor : "nothing",
          first ? first->network : "none", first ? first->of.pass : "none", first ? (long long)first->of.step : 0,
          first ? first->of.maximum : 0);
    CHECK(!wgan_save(w, prefix) && !wgan_load(again, prefix), "%s", failure_message());
    CHECK(same_first(first, wgan_nonfinite(again)), "from its files, largest %g, expected %g",
          wgan_nonfinite(again) ? wgan_nonfinite(again)->of.maximum : -1, first ? first->of.maximum : 0);
    wgan_free(w);
    wgan_free(again);
}

/* A note that no pair can have leaves the pair unchanged, including its record of NaN and Inf. */
static void bad_notes(const char *prefix) {
    static const char *const bad[] = {"",
                                      "1 2 1 5 1 24",
                                      "1 1 1 5 1 24 1",
                                      "1 1 1 5 1 24 1 -1",
                                      "1 1 1 5 1 24 1 nan",
                                      "1 1 1 5 1 24 1 3 more",
                                      "2 1 1 5 1 24 1 3",
                                      "-1 1 1 5 1 24 1 3",
                                      "1 9 1 5 1 24 1 3",
                                      "1 1 6 5 1 24 1 3",
                                      "1 1 1 5000 1 24 1 3",
                                      "1 1 1 -1 1 24 1 3",
                                      "1 1 1 5 25 24 1 3",
                                      "0 1 1 5 1 24 2 3",
                                      "one"};
    char path[300], place[300];
    struct wgan *saved = new_pair("fp16", 1e-3f), *w = new_pair("fp16", 1e-3f);
    float images[BATCH * PIXELS] = {0};
    unsigned char *before, *after;
    size_t count, same;
    CHECK(!wgan_train_critic(NULL, saved, images) && !wgan_train_generator(NULL, saved) && !wgan_save(saved, prefix),
          "%s", failure_message());
    state_of(w, &before, &count);
    snprintf(path, sizeof path, "%s.critic.safetensors", prefix);
    CHECK(!nn_checkpoint_note(place, sizeof place, path, "wgan.steps"), "%s", failure_message());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const nn_note notes[] = {{"wgan.steps", place}, {"wgan.nonfinite", bad[i]}};
        CHECK(!nn_checkpoint_save(wgan_critic(saved), path, notes, 2), "%s", failure_message());
        const tensor_status status = wgan_load(w, prefix);
        CHECK(status == TENSOR_E_DATA && strstr(failure_message(), path), "'%s': status %d, %s", bad[i], (int)status,
              failure_message());
        state_of(w, &after, &same);
        CHECK(same == count && !memcmp(before, after, count) && !wgan_nonfinite(w), "'%s' has changed the pair",
              bad[i]);
        free(after);
    }
    const nn_note notes[] = {{"wgan.steps", place}, {"wgan.nonfinite", "1 2 1 5 1 24 1 70000"}};
    CHECK(!nn_checkpoint_save(wgan_critic(saved), path, notes, 2) && !wgan_load(w, prefix), "%s", failure_message());
    CHECK(wgan_nonfinite(w) && wgan_nonfinite(w)->of.maximum == 70000 && wgan_nonfinite(w)->of.step == 2,
          "a good note is not taken");
    free(before);
    wgan_free(saved);
    wgan_free(w);
}

/* Another device gives the bits of the processor: curves and images. */
static int on_device(const char *device) {
    data_set *set = new_set();
    for (int i = 0; i < 5; i++) {
        static struct curve c[2];
        float images[2][2 * PIXELS];
        memset(c, 0, sizeof c);
        for (int there = 0; there < 2; there++) {
            struct wgan *w = wgan_new(&(struct wgan_config){.variant = variants[i],
                                                            .device = there ? device : NULL,
                                                            .seed = 6,
                                                            .batch = 2,
                                                            .side = SIDE,
                                                            .channels = 1,
                                                            .latent = 3,
                                                            .filters = 2,
                                                            .rate = 1e-3f,
                                                            .critic_steps = 2});
            CHECK(w && !wgan_train(w, set, 2, note, &c[there]) && !wgan_generate(images[there], w, 5, 2), "%s",
                  failure_message());
            wgan_free(w);
        }
        CHECK(!memcmp(&c[0], &c[1], sizeof c[0]) && !memcmp(images[0], images[1], sizeof images[0]),
              "%s: %s gives other bits", variants[i], device);
    }
    data_free(set);
    return check_summary();
}

int main(int argc, char **argv) {
    failure_watch();
    if (argc > 1)
        return on_device(argv[1]);
    char folder[] = "/tmp/test_wgan_XXXXXX", prefix[100], path[160];
    CHECK(mkdtemp(folder), "no folder");
    snprintf(prefix, sizeof prefix, "%s/pair", folder);
    data_set *set = new_set();
    for (int i = 0; i < 5; i++) {
        learns(variants[i], set);
        same_bits(variants[i], set, prefix);
    }
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        same_bits(policies[i], set, prefix);
    learns("preset O2;", set);
    for (int i = 0; i < 5; i++)
        policy_of_variant(variants[i], set);
    one_of_both();
    differences();
    refusals(set, prefix);
    other_images(set, prefix);
    first_of_generator(prefix);
    bad_notes(prefix);
    data_free(set);
    static const char *const files[] = {"critic", "generator"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s.%s.safetensors", prefix, files[i]);
        unlink(path);
    }
    rmdir(folder);
    return check_summary();
}
