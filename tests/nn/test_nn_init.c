/* Initial weights and learning rates: fixed numbers (the same on every machine), and their distributions. */
#include "check.h"
#include "nn/training/nn_training.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include <math.h>
#include <string.h>

enum { N = 200000 };
static double values[N];

/* Moments of n draws; each bound is 5 standard errors of that moment. */
static void normal(uint64_t seed) {
    double scale = 0.25, sum[5] = {0}, largest = 0;
    fl_init_values(values, N, FL_INIT_NORMAL, scale, nn_name_key(seed, "conv1.weight"));
    for (int i = 0; i < N; i++) {
        double x = values[i] / scale, power = 1;
        for (int k = 1; k < 5; k++)
            sum[k] += (power *= x) / N;
        largest = fmax(largest, fabs(x));
    }
    double error = 5 / sqrt(N);
    CHECK(fabs(sum[1]) < error, "seed=%llu: mean %g", (unsigned long long)seed, sum[1]);
    CHECK(fabs(sum[2] - 1) < error * sqrt(2), "seed=%llu: variance %g", (unsigned long long)seed, sum[2]);
    CHECK(fabs(sum[3]) < error * sqrt(15), "seed=%llu: third moment %g", (unsigned long long)seed, sum[3]);
    CHECK(fabs(sum[4] - 3) < error * sqrt(96), "seed=%llu: fourth moment %g", (unsigned long long)seed, sum[4]);
    CHECK(largest > 4 && largest < 6.5, "seed=%llu: largest of %d is %g sigma", (unsigned long long)seed, N, largest);
    /* the distribution function at a few points, against erf */
    for (double at = -2.5; at <= 2.5; at += 0.5) {
        double below = 0, p = 0.5 + 0.5 * erf(at / sqrt(2));
        for (int i = 0; i < N; i++)
            below += values[i] / scale < at;
        CHECK(fabs(below / N - p) < 5 * sqrt(p * (1 - p) / N), "seed=%llu: P(x < %g) = %g, want %g",
              (unsigned long long)seed, at, below / N, p);
    }
}

static void uniform(void) {
    double mean = 0, square = 0;
    fl_init_values(values, N, FL_INIT_UNIFORM, 2, nn_name_key(3, "fc.weight"));
    for (int i = 0; i < N; i++) {
        mean += values[i] / N;
        square += values[i] * values[i] / N;
        CHECK(fabs(values[i]) < 2, "element %d: %g", i, values[i]);
    }
    CHECK(fabs(mean) < 5 * 2 / sqrt(3.0 * N) && fabs(square - 4.0 / 3) < 5 * sqrt(16.0 / 5 - 16.0 / 9) / sqrt(N),
          "mean %g, square %g", mean, square);
}

/* An element depends on its index, the name and the seed, on nothing else. */
static void keys(void) {
    double few[10];
    fl_init_values(values, N, FL_INIT_NORMAL, 1, nn_name_key(1, "a"));
    fl_init_values(few, 10, FL_INIT_NORMAL, 1, nn_name_key(1, "a"));
    CHECK(!memcmp(few, values, sizeof few), "the number of elements matters");
    fl_init_values(few, 10, FL_INIT_NORMAL, 1, nn_name_key(1, "b"));
    CHECK(few[0] != values[0], "the name does not matter");
    fl_init_values(few, 10, FL_INIT_NORMAL, 1, nn_name_key(2, "a"));
    CHECK(few[0] != values[0], "the seed does not matter");
}

/* Every variant starts from the same numbers, each rounded to its format. */
static void same_in_all_variants(void) {
    enum { COUNT = 16 * 3 * 3 * 3 };
    double want[COUNT], got[COUNT];
    fl_init_values(want, COUNT, FL_INIT_NORMAL, sqrt(2.0 / (16 * 9)), nn_name_key(11, "conv1.weight"));
    for (int i = 0; nn_variant_at(i); i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = nn_variant_at(i)->name, .batch = 1, .seed = 11});
        CHECK(!nn_compile(g, nn_model(g, "resnet8", 32, 32, 3, 10)), "%s", tensor_error());
        nn_tensor_info info = nn_tensor_at(g, 0);
        CHECK(!strcmp(info.name, "conv1.weight") && tensor_count(info.t) == COUNT, "%s", info.name);
        CHECK(!tensor_store_f64(info.t, got, COUNT), "%s", tensor_error());
        for (int k = 0; k < COUNT; k++) /* bf16: 8 bits; shared exponents: 15 bits below 0.5 */
            CHECK(fabs(got[k] - want[k]) <= fmax(fabs(want[k]) * 0x1p-8, 0x1p-16), "%s element %d: %g, want %g",
                  nn_variant_at(i)->name, k, got[k], want[k]);
        nn_graph_free(g);
    }
}

static void schedules(void) {
    static const char *const names[] = {"linear", "cosine", "step", "constant"};
    const double pi = acos(-1.0);
    for (int s = 0; s < 4; s++)
        for (int64_t warmup = 0; warmup <= 30; warmup += 30)
            for (int64_t i = 0; i < 200; i++) {
                double p = (double)(i - warmup) / (double)(200 - warmup), rate = 0.1;
                double want = i < warmup ? rate * (double)(i + 1) / 30
                              : s == 0   ? rate * (1 - p)
                              : s == 1   ? rate * (1 + cos(pi * p)) / 2
                              : s == 2   ? rate * (p < 0.5    ? 1
                                                   : p < 0.75 ? 0.1
                                                              : 0.01)
                                         : rate;
                float got = fl_schedule_rate(names[s], rate, i, 200, warmup);
                CHECK(fabs(got - want) <= want * 0x1p-24 + rate * 1e-15, "%s step %d warmup %d: %g, want %g", names[s],
                      (int)i, (int)warmup, (double)got, want);
            }
    for (int64_t i = 0; i < 200; i++) { /* from the peak to a tenth of it */
        const double linear = 1 - (double)i / 200, half = (1 + cos(pi * (double)i / 200)) / 2;
        CHECK(fabs(fl_schedule_rate("linear:0.1", 3, i, 200, 0) - 3 * (0.1 + 0.9 * linear)) < 3e-7, "step %d", (int)i);
        CHECK(fabs(fl_schedule_rate("cosine:0.1", 3, i, 200, 0) - 3 * (0.1 + 0.9 * half)) < 3e-7, "step %d", (int)i);
    }
    CHECK(fl_schedule_known("cosine:0") && fl_schedule_known("linear:1"), "%s", tensor_error());
    static const char *const wrong[] = {
        "cosine:", "cosine:-0.1", "cosine:1.5", "cosine:nan", "cosine:0.1x", "step:0.1", "constant:0.5", ":0.1", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(!fl_schedule_known(wrong[i]) && strstr(tensor_error(), "cosine:END"), "'%s'", wrong[i]);
    CHECK(fl_schedule_known("linear") && !fl_schedule_known("cosin") && !fl_schedule_known(NULL), "names");
    CHECK(strstr(tensor_error(), "cosine"), "%s", tensor_error());
}

/* Numbers from a Python program written after the definition in nn_init.c. The bits must not move, or seeds that people
 * have published lose their meaning. */
static void golden(void) {
    CHECK(nn_name_key(1, "conv1.weight") == 0x1e4abc3399ee236eu, "key %llx",
          (unsigned long long)nn_name_key(1, "conv1.weight"));
    fl_init_values(values, 3, FL_INIT_NORMAL, 1, nn_name_key(1, "conv1.weight"));
    static const double want[] = {-0x1.c512b721fe8acp-4, -0x1.39ab2dd6dab9ap-1, 0x1.6c64d99bb7f7ap+0};
    for (int i = 0; i < 3; i++)
        CHECK(values[i] == want[i], "element %d: %a, want %a", i, values[i], want[i]);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 3; seed++)
        normal(seed);
    uniform();
    keys();
    golden();
    schedules();
    same_in_all_variants();
    return check_summary();
}
