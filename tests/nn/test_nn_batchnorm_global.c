/* Batch normalisation over all shards of a step. Moments and gradients' sums from parts are compared with the rules of
 * one batch in 128-bit integers, at equal and at different exponents. Then networks: with one shard every bit is as
 * without the setting; shards of equal samples have the bits of shards that normalise by themselves, also if the last
 * layer does; of different samples, the gradients and running statistics of one batch, which shards by themselves miss.
 * Then what is refused. */
#include "check.h"
#include "core/ops/norms/channel_rules.h"
#include "core/ops/norms/part_norm.h"
#include "flexlab/nn.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

__extension__ typedef __int128 wide;

enum { PARTS = 5, SIDE = 8, CHANNELS = 3, BATCH = 16, PIXELS = SIDE * SIDE * CHANNELS };

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* m 2^-e as one part's doubles: a sum, or two that hold a sum of products. */
static void put(double *sums, int part, int64_t first, int64_t products, int e, int e_products) {
    const int64_t low = products & 0xffffffff;
    sums[part * 3] = ldexp((double)first, -e);
    sums[part * 3 + 1] = ldexp((double)(products - low), -e_products);
    sums[part * 3 + 2] = ldexp((double)low, -e_products);
}

/* rows elements a part; spread: how far the exponents of parts lie apart, at most. */
static void check_sums(uint64_t *random, int rows, int spread, int64_t offset) {
    double sums[PARTS * 3], grads[PARTS * 3], mean, variance, sum_of_x[FL_PART_TERMS], dy_sum, about;
    wide s1 = 0, s2 = 0, d1 = 0, d2 = 0; /* at the finest exponents, those of shifts 0 */
    const int e_x = 9, e_dy = 13;
    for (int p = 0; p < PARTS; p++) {
        const int shift = spread ? (int)(check_random(random) % (unsigned)(spread + 1)) : 0,
                  dy_shift = spread ? (int)(check_random(random) % (unsigned)(spread + 1)) : 0;
        int64_t a = 0, b = 0, c = 0, d = 0;
        for (int i = 0; i < rows; i++) {
            const int64_t x = offset + (int64_t)(check_random(random) % 4001) - 2000,
                          dy = (int64_t)(check_random(random) % 65535) - 32767;
            a += x;
            b += x * x;
            c += dy;
            d += dy * x;
        }
        put(sums, p, a, b, e_x - shift, 2 * (e_x - shift));
        put(grads, p, c, d, e_dy - dy_shift, e_dy - dy_shift + e_x - shift);
        s1 += (wide)a * ((wide)1 << shift);
        s2 += (wide)b * ((wide)1 << 2 * shift);
        d1 += (wide)c * ((wide)1 << dy_shift);
        d2 += (wide)d * ((wide)1 << (dy_shift + shift));
    }
    const int64_t all = (int64_t)rows * PARTS;
    const struct fl_parts x = {sums, PARTS, 1, all, true}, dy = {grads, PARTS, 1, all, true};
    fl_parts_moments(&x, &mean, &variance, sum_of_x);
    fl_parts_gradients(&dy, &mean, sum_of_x, &dy_sum, &about);
    const double n = (double)all, expected_mean = ldexp((double)s1 / n, -e_x),
                 expected_variance = ldexp((double)(all * s2 - s1 * s1) / (n * n), -2 * e_x),
                 expected_dy = ldexp((double)d1, -e_dy), rest = expected_mean - ldexp((double)s1 / n, -e_x),
                 expected_about = ldexp((double)(all * d2 - d1 * s1) / n, -e_dy - e_x) - expected_dy * rest;
    CHECK(mean == expected_mean && variance == expected_variance, "spread %d: moments %a %a, expected %a %a", spread,
          mean, variance, expected_mean, expected_variance);
    CHECK(dy_sum == expected_dy && about == expected_about, "spread %d: sums %a %a, expected %a %a", spread, dy_sum,
          about, expected_dy, expected_about);
    if (!spread) { /* the rules of one batch */
        double one, other;
        fl_exact_moments(all, (int64_t)s1, (int64_t)s2, e_x, &one, &other);
        CHECK(mean == one && variance == other &&
                  about == fl_exact_about_mean(all, (int64_t)d1, (int64_t)d2, one, e_dy, e_x),
              "not the bits of one batch");
    }
}

/* --- networks ----------------------------------------------------------------------------------------------------- */

/* Whose last layer normalises. */
static nn_node short_model(nn_graph *g) {
    const nn_node x = nn_linear(g, "fc", nn_input(g, SIDE, SIDE, CHANNELS), 10, false);
    return nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = false});
}

static nn_graph *build_model(const char *variant, int shards, bool global, uint64_t seed, bool is_short) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant,
                                            .batch = BATCH,
                                            .shards = shards,
                                            .seed = seed,
                                            .momentum = 0.9f,
                                            .batchnorm_global = global});
    CHECK(g && !nn_compile(g, is_short ? short_model(g) : nn_model(g, "resnet8", SIDE, SIDE, CHANNELS, 10)), "%s: %s",
          variant, tensor_error());
    return g;
}

static nn_graph *build_as(const char *variant, int shards, bool global, uint64_t seed) {
    return build_model(variant, shards, global, seed, false);
}

static tensor *named(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    return NULL;
}

static float images[BATCH * PIXELS];
static int32_t labels[BATCH];

/* In `copies` equal parts; samples differ in brightness, so that moments of shards differ. */
static void draw(uint64_t *random, int copies) {
    const int own = BATCH / copies;
    for (int i = 0; i < BATCH; i++) {
        labels[i] = i < own ? (int32_t)(check_random(random) % 10) : labels[i - own];
        for (int k = 0; k < PIXELS; k++)
            images[i * PIXELS + k] =
                i < own ? (float)((double)(check_random(random) >> 40) / 0x1p23 - 1 + i * 0.25) * (float)(1 + i % 3)
                        : images[(i - own) * PIXELS + k];
    }
}

static void step(nn_graph *g, float rate) {
    CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, rate), "%s", tensor_error());
}

/* The largest difference of the gradients of two networks, relative to the largest gradient. */
static double distance(const nn_graph *a, const nn_graph *b) {
    double most = 0, largest = 0;
    for (int i = 0; i < nn_tensor_count(b); i++) {
        const nn_tensor_info info = nn_tensor_at(b, i);
        if (strcmp(info.role, "weight gradient") != 0 || !named(a, info.name))
            continue;
        static double x[200000], y[200000];
        const int64_t count = tensor_count(info.t);
        CHECK(count <= 200000 && !tensor_store_f64(info.t, x, count) &&
                  !tensor_store_f64(named(a, info.name), y, count),
              "%s: %s", info.name, tensor_error());
        for (int64_t k = 0; k < count; k++) {
            most = fmax(most, fabs(x[k] - y[k]));
            largest = fmax(largest, fabs(x[k]));
        }
    }
    CHECK(largest > 0, "no gradients");
    return most / largest;
}

static void values_of(const nn_graph *g, const char *name, double *values, int64_t count) {
    char path[] = "/tmp/flexlab-global-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && !close(file) && !nn_checkpoint_save(g, path, NULL, 0) &&
              !nn_checkpoint_values(values, count, path, name),
          "%s: %s", name, tensor_error());
    remove(path);
}

static void check_whole(const char *variant, int shards, double near, double of_moments) {
    uint64_t random = 4;
    nn_graph *one = build_as(variant, 1, false, 7), *global = build_as(variant, shards, true, 7),
             *ghost = build_as(variant, shards, false, 7);
    draw(&random, 1);
    step(one, 0);
    step(global, 0);
    step(ghost, 0);
    const double of_global = distance(global, one), of_ghost = distance(ghost, one);
    CHECK(of_global <= near && of_ghost > 4 * near,
          "%s in %d shards: gradients %g from those of one batch, shards by "
          "themselves %g",
          variant, shards, of_global, of_ghost);
    static const char *const names[] = {"bn1.running_mean", "bn1.running_variance"};
    for (int k = 0; k < 2; k++) {
        double found[16], expected[16];
        values_of(global, names[k], found, 16);
        values_of(one, names[k], expected, 16);
        for (int c = 0; c < 16; c++)
            CHECK(fabs(found[c] - expected[c]) <= of_moments * (fabs(expected[c]) + 0.1),
                  "%s: %s[%d] is %.17g, expected %.17g", variant, names[k], c, found[c], expected[c]);
    }
    nn_graph_free(one);
    nn_graph_free(global);
    nn_graph_free(ghost);
}

/* Weights after some steps are equal, bit for bit. */
static void check_equal(const char *variant, int shards, int steps, bool is_short) {
    uint64_t random = 6;
    nn_graph *a = build_model(variant, shards, false, 3, is_short),
             *b = build_model(variant, shards, true, 3, is_short);
    for (int i = 0; i < steps; i++) {
        draw(&random, shards);
        step(a, 0.05f);
        step(b, 0.05f);
    }
    for (int i = 0; i < nn_tensor_count(a); i++) {
        const nn_tensor_info info = nn_tensor_at(a, i);
        if (!strcmp(info.role, "weight"))
            CHECK(!memcmp(tensor_data(info.t), tensor_data(named(b, info.name)),
                          (size_t)tensor_count(info.t) * tensor_format_bytes(tensor_format_of(info.t))),
                  "%s in %d shards: %s differs", variant, shards, info.name);
    }
    nn_graph_free(a);
    nn_graph_free(b);
}

static void check_refused(void) {
    char path[] = "/tmp/flexlab-global-XXXXXX";
    const int file = mkstemp(path);
    nn_graph *a = build_as("flex16+5", 4, true, 1), *b = build_as("flex16+5", 4, false, 1);
    CHECK(nn_forward(a, &(nn_batch){.images = images, .labels = labels}) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "batchnorm is global"),
          "forward: %s", tensor_error());
    CHECK(file >= 0 && !close(file) && !nn_checkpoint_save(a, path, NULL, 0), "%s", tensor_error());
    CHECK(nn_checkpoint_load(b, path) == TENSOR_E_DATA &&
              strstr(tensor_error(), "its batchnorm is 'global', that of the network 'shard'"),
          "load: %s", tensor_error());
    nn_graph *again = nn_checkpoint_graph(path, NULL);
    CHECK(again, "%s", tensor_error());
    nn_graph_free(again);
    remove(path);
    CHECK(nn_arena_bytes(a) > 3 * nn_arena_bytes(b), "memory of 4 shards: %lld, of one %lld",
          (long long)nn_arena_bytes(a), (long long)nn_arena_bytes(b));
    nn_graph_free(a);
    nn_graph_free(b);
}

int main(void) {
    static const char *const variants[] = {"flex16+5", "dfp16", "fp32", "fp16", "bf16"};
    uint64_t random = 1;
    for (int i = 0; i < 300; i++) {
        check_sums(&random, 1 + (int)(check_random(&random) % 60), 0, i % 3 ? 0 : 30000);
        check_sums(&random, 1 + (int)(check_random(&random) % 60), 12, i % 3 ? 0 : 30000);
    }
    for (int v = 0; v < 5; v++) {
        check_equal(variants[v], 1, 2, false);
        check_equal(variants[v], 4, 3, false);
        check_equal(variants[v], 4, 3, true);
    }
    check_whole("fp32", 4, 1e-4, 1e-6);
    check_whole("flex16+5", 4, 0.15, 1e-3);
    check_whole("dfp16", 2, 0.15, 1e-3);
    check_refused();
    return check_summary();
}
