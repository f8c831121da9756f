/* Shards of a step. Each of S shards must compute what a network of its own computes, with batch B / S, the same
 * weights and a loss multiplied by 1 / S: every exponent and statistic of its tensors and every bit of its gradients,
 * over several steps. The gradient of the step must be their sum, which the test forms from their elements: in
 * integers, rounded once at its exponent, or as a recursive tree of floats. Then the loss, moments of normalisations,
 * ignored labels, random draws, phases, states, and what is refused. */
#include "check.h"
#include "core/queue/part_write.h"
#include "flexlab/autoflex.h"
#include "flexlab/nn.h"
#include "nn/ranks/nn_partial.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

__extension__ typedef __int128 wide;

enum { MOST = 8 };

/* --- a case ------------------------------------------------------------------------------------------------------- */

struct job {
    const char *model; /* of text if it begins with gpt, lstm or gru */
    const char *variant, *policy, *optimiser, *scale;
    int batch, shards, steps;
};

enum { SIDE = 8, CHANNELS = 3, CLASSES = 10, LENGTH = 6, VOCABULARY = 17 };

static bool is_text(const struct job *j) {
    return nn_model_reads_text(j->model);
}

static nn_graph *build(const struct job *j, int batch, int shards, const char *scale) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = j->variant,
                                            .policy = j->policy,
                                            .batch = batch,
                                            .shards = shards,
                                            .seed = 5,
                                            .optimiser = j->optimiser,
                                            .momentum = !j->optimiser ? 0.9f : 0,
                                            .loss_scale = scale});
    CHECK(g, "%s %s: %s", j->model, j->variant, tensor_error());
    const nn_node logits = is_text(j) ? nn_model_text(g, j->model, LENGTH, VOCABULARY)
                                      : nn_model(g, j->model, SIDE, SIDE, CHANNELS, CLASSES);
    CHECK(!nn_compile(g, logits), "%s %s: %s", j->model, j->variant, tensor_error());
    return g;
}

static tensor *named(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    CHECK(false, "no tensor '%s'", name);
    return NULL;
}

struct inputs {
    float images[64 * SIDE * SIDE * CHANNELS];
    int32_t tokens[64 * LENGTH], labels[64 * LENGTH];
};

static void draw(struct inputs *in, uint64_t *random) {
    for (int i = 0; i < 64 * SIDE * SIDE * CHANNELS; i++)
        in->images[i] = (float)((double)(check_random(random) >> 40) / 0x1p23 - 1);
    for (int i = 0; i < 64 * LENGTH; i++) {
        in->tokens[i] = (int32_t)(check_random(random) % VOCABULARY);
        in->labels[i] = (int32_t)(check_random(random) % CLASSES);
    }
}

/* Samples from `first` on. */
static nn_batch batch_of(const struct job *j, const struct inputs *in, int first) {
    return is_text(j) ? (nn_batch){.tokens = in->tokens + first * LENGTH, .labels = in->labels + first * LENGTH}
                      : (nn_batch){.images = in->images + first * SIDE * SIDE * CHANNELS, .labels = in->labels + first};
}

/* --- the sum of gradients ----------------------------------------------------------------------------------------- */

/* Σ m 2^-e of int16 mantissas, rounded to the nearest at exponent e_out, ties to even, within +-top. */
static int64_t rounded_sum(const int64_t *m, const int *e, int count, int e_out, int64_t top) {
    int finest = e_out;
    wide sum = 0, unit, quotient, rest;
    for (int s = 0; s < count; s++)
        finest = e[s] > finest ? e[s] : finest;
    for (int s = 0; s < count; s++)
        sum += (wide)m[s] * ((wide)1 << (finest - e[s]));
    unit = (wide)1 << (finest - e_out);
    quotient = sum / unit;
    rest = sum - quotient * unit;
    if (rest < 0) {
        quotient -= 1;
        rest += unit;
    }
    if (2 * rest > unit || (2 * rest == unit && quotient % 2 != 0))
        quotient += 1;
    return quotient > top ? top : quotient < -top ? -top : (int64_t)quotient;
}

static float tree(const float *x, int first, int leaves, int count) {
    if (leaves == 1)
        return x[first];
    const float left = tree(x, first, leaves / 2, count);
    return first + leaves / 2 < count ? left + tree(x, first + leaves / 2, leaves / 2, count) : left;
}

static void check_mantissas(const struct job *j, const char *name, tensor *sum, tensor *const *parts) {
    const int64_t top = tensor_format_of(sum) == FMT_FLEX16_5 || tensor_format_of(sum) == FMT_DFP16 ? 32767 : 127;
    const size_t bytes = tensor_format_bytes(tensor_format_of(sum));
    int e[MOST];
    for (int s = 0; s < j->shards; s++)
        e[s] = tensor_exponent(parts[s]);
    for (int64_t i = 0; i < tensor_count(sum); i++) {
        int64_t m[MOST];
        for (int s = 0; s < j->shards; s++)
            m[s] = bytes == 1 ? ((int8_t *)tensor_data(parts[s]))[i] : ((int16_t *)tensor_data(parts[s]))[i];
        const int64_t found = bytes == 1 ? ((int8_t *)tensor_data(sum))[i] : ((int16_t *)tensor_data(sum))[i];
        const int64_t expected = rounded_sum(m, e, j->shards, tensor_exponent(sum), top);
        CHECK(found == expected, "%s %s: %s[%lld] is %lld, expected %lld", j->model, j->variant, name, (long long)i,
              (long long)found, (long long)expected);
    }
}

static void check_floats(const struct job *j, const char *name, tensor *sum, tensor *const *parts) {
    const int64_t count = tensor_count(sum);
    float *x = malloc((size_t)count * MOST * sizeof *x), *all = malloc((size_t)count * sizeof *all);
    double *expected = malloc((size_t)count * sizeof *expected), *found = malloc((size_t)count * sizeof *found);
    tensor *rounded = tensor_new(tensor_format_of(sum), TENSOR_SHAPE(count));
    int leaves = 1;
    while (leaves < j->shards)
        leaves *= 2;
    for (int s = 0; s < j->shards; s++)
        CHECK(!tensor_store_f32(parts[s], x + s * count, count), "%s", tensor_error());
    for (int64_t i = 0; i < count; i++) {
        float terms[MOST];
        for (int s = 0; s < j->shards; s++)
            terms[s] = x[s * count + i];
        all[i] = tree(terms, 0, leaves, j->shards);
    }
    CHECK(!tensor_load_f32(rounded, all, count) && !tensor_store_f64(rounded, expected, count) &&
              !tensor_store_f64(sum, found, count),
          "%s", tensor_error());
    for (int64_t i = 0; i < count; i++)
        CHECK(found[i] == expected[i] || (found[i] != found[i] && expected[i] != expected[i]),
              "%s %s: %s[%lld] is %.9g, expected %.9g", j->model, j->variant, name, (long long)i, found[i],
              expected[i]);
    tensor_free(rounded);
    free(x);
    free(all);
    free(expected);
    free(found);
}

/* A gradient is the sum of those of its shards. */
static void check_sum(const struct job *j, const nn_graph *g, const char *name, tensor *sum) {
    tensor *parts[MOST];
    for (int s = 0; s < j->shards; s++) {
        char part[200];
        snprintf(part, sizeof part, "%s.shard%d", name, s);
        parts[s] = named(g, part);
    }
    if (tensor_format_has_mantissas(tensor_format_of(sum)))
        check_mantissas(j, name, sum, parts);
    else
        check_floats(j, name, sum, parts);
}

/* --- a network for each shard ------------------------------------------------------------------------------------- */

static void check_same(const struct job *j, const char *name, tensor *found, tensor *expected, bool elements) {
    tensor_stats a, b, at, bt;
    CHECK(!tensor_statistics(&a, &at, found) && !tensor_statistics(&b, &bt, expected), "%s", tensor_error());
    CHECK(a.maximum == b.maximum && a.gamma == b.gamma && a.saturated == b.saturated && a.flushed == b.flushed &&
              a.elements == b.elements && at.writes == bt.writes && at.saturated == bt.saturated,
          "%s %s: %s: maximum %g, expected %g", j->model, j->variant, name, a.maximum, b.maximum);
    if (tensor_format_is_shared(tensor_format_of(found)))
        CHECK(tensor_exponent(found) == tensor_exponent(expected), "%s %s: %s has exponent %d, expected %d", j->model,
              j->variant, name, tensor_exponent(found), tensor_exponent(expected));
    if (elements)
        CHECK(!memcmp(tensor_data(found), tensor_data(expected),
                      tensor_count(found) * tensor_format_bytes(tensor_format_of(found))),
              "%s %s: elements of %s differ", j->model, j->variant, name);
}

/* A gradient as backward writes it, not as a policy stores it. */
static bool is_written_gradient(const nn_tensor_info *info) {
    const size_t length = strlen(info->name);
    return !strcmp(info->role, "weight gradient") && length > 5 && !strcmp(info->name + length - 5, ".grad");
}

/* Compares what shard s wrote with what its own network wrote. */
static void compare(const struct job *j, const nn_graph *g, const nn_graph *own, int s) {
    for (int i = 0; i < nn_tensor_count(own); i++) {
        const nn_tensor_info info = nn_tensor_at(own, i);
        char name[200];
        const bool gradient = is_written_gradient(&info);
        if (!gradient && strcmp(info.role, "activation") != 0 && strcmp(info.role, "gradient") != 0)
            continue;
        snprintf(name, sizeof name, "%s.shard%d", info.name, s);
        check_same(j, name, named(g, name), info.t, gradient);
    }
}

static void copy_weights(const nn_graph *to, const nn_graph *from) {
    for (int i = 0; i < nn_tensor_count(to); i++) {
        const nn_tensor_info info = nn_tensor_at(to, i);
        if (!strcmp(info.role, "weight"))
            CHECK(!tensor_copy(info.t, named(from, info.name)), "%s: %s", info.name, tensor_error());
    }
}

static void run_case(const struct job *j) {
    static struct inputs in;
    uint64_t random = 77;
    char scale[40];
    nn_graph *g = build(j, j->batch, j->shards, j->scale), *own[MOST];
    snprintf(scale, sizeof scale, "%.17g", (j->scale ? 1024.0 : 1) / j->shards);
    const int each = j->batch / j->shards;
    for (int s = 0; s < j->shards; s++)
        own[s] = build(j, each, 1, scale);
    for (int step = 0; step < j->steps; step++) {
        double loss, sum = 0;
        int correct, right = 0;
        draw(&in, &random);
        for (int s = 0; s < j->shards; s++) {
            const nn_batch part = batch_of(j, &in, s * each);
            double one = 0;
            int of_one = 0;
            copy_weights(own[s], g);
            CHECK(!nn_forward(own[s], &part) && !nn_backward(own[s]) && !nn_loss(&one, &of_one, own[s]), "%s",
                  tensor_error());
            sum += one / j->shards;
            right += of_one;
        }
        const nn_batch all = batch_of(j, &in, 0);
        CHECK(!nn_train_step(&loss, &correct, g, &all, 0.01f), "%s", tensor_error());
        CHECK(fabs(loss - sum) <= 1e-14 * fabs(sum) && correct == right, "%s %s: loss %.17g, expected %.17g", j->model,
              j->variant, loss, sum);
        for (int s = 0; s < j->shards; s++)
            compare(j, g, own[s], s);
        for (int i = 0; i < nn_tensor_count(own[0]); i++) {
            const nn_tensor_info info = nn_tensor_at(own[0], i);
            if (is_written_gradient(&info))
                check_sum(j, g, info.name, named(g, info.name));
        }
    }
    nn_graph_free(g);
    for (int s = 0; s < j->shards; s++)
        nn_graph_free(own[s]);
}

/* With two shards the gradient is what tensor_add writes, with the exponents of its history. */
static void check_history(const char *variant) {
    static struct inputs in;
    const struct job j = {"mlp2", variant, .batch = 8, .shards = 2};
    uint64_t random = 5;
    nn_graph *g = build(&j, 8, 2, NULL);
    tensor *sum = named(g, "fc1.weight.grad"), *a = named(g, "fc1.weight.grad.shard0"),
           *b = named(g, "fc1.weight.grad.shard1"),
           *twin = tensor_new(tensor_format_of(sum), TENSOR_SHAPE(tensor_dim(sum, 0), tensor_dim(sum, 1)));
    CHECK(!tensor_set_role(twin, autoflex_find_role("weight gradient")) ||
              !tensor_format_is_shared(tensor_format_of(sum)),
          "%s", tensor_error());
    for (int step = 0; step < 12; step++) {
        draw(&in, &random);
        for (int i = 0; i < 8 * SIDE * SIDE * CHANNELS; i++)
            in.images[i] *= step % 5 == 4 ? 64 : 1;
        const nn_batch all = batch_of(&j, &in, 0);
        CHECK(!nn_train_step(NULL, NULL, g, &all, 0.01f) && !tensor_add(twin, a, b), "%s", tensor_error());
        check_same(&j, "fc1.weight.grad", sum, twin, true);
    }
    tensor_free(twin);
    nn_graph_free(g);
}

/* --- moments of normalisations ------------------------------------------------------------------------------------ */

static void values_of(const nn_graph *g, const char *name, double *values, int64_t count) {
    char path[] = "/tmp/flexlab-shards-XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && !close(file) && !nn_checkpoint_save(g, path, NULL, 0) &&
              !nn_checkpoint_values(values, count, path, name),
          "%s: %s", name, tensor_error());
    remove(path);
}

/* Running statistics follow the mean of the moments of the shards. */
static void check_running(const char *variant, int shards) {
    static struct inputs in;
    static const char *const names[] = {"bn1.running_mean", "bn1.running_variance"};
    uint64_t random = 9;
    const struct job j = {"resnet8", variant, .batch = 12, .shards = shards};
    nn_graph *g = build(&j, 12, shards, NULL);
    draw(&in, &random);
    for (int k = 0; k < 2; k++) {
        double each[16], sum[16] = {0}, found[16];
        for (int s = 0; s < shards; s++) {
            nn_graph *own = build(&j, 12 / shards, 1, NULL);
            const nn_batch part = batch_of(&j, &in, s * (12 / shards));
            CHECK(!nn_train_step(NULL, NULL, own, &part, 0), "%s", tensor_error());
            values_of(own, names[k], each, 16);
            for (int c = 0; c < 16; c++)
                sum[c] += each[c] / shards;
            nn_graph_free(own);
        }
        if (!k) {
            const nn_batch all = batch_of(&j, &in, 0);
            CHECK(!nn_train_step(NULL, NULL, g, &all, 0), "%s", tensor_error());
        }
        values_of(g, names[k], found, 16);
        for (int c = 0; c < 16; c++)
            CHECK(fabs(found[c] - sum[c]) <= 4e-15 * (fabs(sum[c]) + 0.1),
                  "%s in %d shards: %s[%d] is %.17g, expected %.17g", variant, shards, names[k], c, found[c], sum[c]);
    }
    nn_graph_free(g);
}

/* --- exact sums of doubles ---------------------------------------------------------------------------------------- */

static double odd_of(wide m, int scale) { /* m 2^scale, |m| < 2^120, rounded to odd */
    wide size = m < 0 ? -m : m;
    bool lost = false;
    for (; size >> 53; scale++) {
        lost = lost || (size & 1);
        size >>= 1;
    }
    const double value = ldexp((double)(size | lost), scale);
    return m < 0 ? -value : value;
}

static double nearest_quotient(wide m, int64_t by, int scale) {
    wide size = m < 0 ? -m : m;
    int shift = 0;
    if (!m)
        return 0;
    while (size / by >> 53)
        by *= 2, shift++; /* by stays below 2^63: |m| < 2^100 and by < 2^10 before */
    while (!(size / by >> 52))
        size *= 2, shift--;
    wide whole = size / by;
    const wide rest = size - whole * by;
    whole += 2 * rest > by || (2 * rest == by && whole % 2);
    const double value = ldexp((double)whole, scale + shift);
    return m < 0 ? -value : value;
}

static void check_exact_sums(void) {
    uint64_t random = 3;
    for (int round = 0; round < 200000; round++) {
        double x[MOST];
        const int count = 1 + (int)(check_random(&random) % MOST), base = (int)(check_random(&random) % 1600) - 900,
                  window = (int)(check_random(&random) % 46);
        wide sum = 0;
        for (int i = 0; i < count; i++) {
            const int64_t m = (int64_t)(check_random(&random) >> (11 + check_random(&random) % 50));
            const int shift = window ? (int)(check_random(&random) % (unsigned)window) : 0;
            const bool negative = check_random(&random) & 1;
            x[i] = ldexp(negative ? -(double)m : (double)m, base + shift);
            sum += (negative ? -(wide)m : (wide)m) * ((wide)1 << shift);
        }
        if (round % 7 == 0 && count > 2) { /* a large pair that cancels */
            const double large = ldexp(1, 1000);
            sum -= (wide)ldexp(x[0], -base) + (wide)ldexp(x[1], -base);
            x[0] = large;
            x[1] = -large;
        }
        const double odd = fl_exact_sum_odd(x, count), mean = fl_exact_mean(x, count, (uint32_t)count);
        CHECK(odd == odd_of(sum, base), "sum of %d: %a, expected %a", count, odd, odd_of(sum, base));
        CHECK(mean == nearest_quotient(sum, count, base), "mean of %d: %a, expected %a", count, mean,
              nearest_quotient(sum, count, base));
    }
    const double tiny[] = {5e-324, 5e-324, 5e-324}, beyond[] = {1, INFINITY}, lost[] = {INFINITY, -INFINITY};
    CHECK(fl_exact_mean(tiny, 3, 3) == 5e-324 && fl_exact_mean(tiny, 2, 2) == 5e-324, "means of the smallest double");
    CHECK(isinf(fl_exact_mean(beyond, 2, 2)) && isnan(fl_exact_sum_odd(lost, 2)), "Inf and NaN");
}

/* --- sums of tensors whose exponents lie far apart ---------------------------------------------------------------- */

static void check_far(int spread) {
    enum { COUNT = 300, TERMS = 5 };
    const struct job j = {"sums", "dfp16", .shards = TERMS};
    tensor *x[TERMS], *y = tensor_new(FMT_DFP16, TENSOR_SHAPE(COUNT));
    uint64_t random = (uint64_t)spread;
    for (int s = 0; s < TERMS; s++) {
        double values[COUNT];
        const int e = (int)(check_random(&random) % (unsigned)(spread + 1)) - spread / 2;
        for (int i = 0; i < COUNT; i++)
            values[i] = ldexp((double)(int64_t)(check_random(&random) % 65535) - 32767, -e);
        x[s] = tensor_new(FMT_DFP16, TENSOR_SHAPE(COUNT));
        CHECK(!tensor_load_f64(x[s], values, COUNT), "%s", tensor_error());
    }
    CHECK(!fl_write_sum(y, (const tensor *const *)x, TERMS), "%s", tensor_error());
    if (spread <= 80)
        check_mantissas(&j, "y", y, x);
    for (int i = 0; i < COUNT; i++) { /* the largest term decides where the others are too small to matter */
        double terms[TERMS], sum = 0, found[COUNT];
        for (int s = 0; s < TERMS; s++) {
            double all[COUNT];
            CHECK(!tensor_store_f64(x[s], all, COUNT), "%s", tensor_error());
            terms[s] = all[i];
            sum += terms[s];
        }
        CHECK(!tensor_store_f64(y, found, COUNT), "%s", tensor_error());
        CHECK(fabs(found[i] - sum) <= ldexp(0.5001, -tensor_exponent(y)), "sum %d: %.17g, expected %.17g", i, found[i],
              sum);
    }
    for (int s = 0; s < TERMS; s++)
        tensor_free(x[s]);
    tensor_free(y);
}

/* Ties that a term far below breaks: a sum of doubles would lose it. */
static void check_ties(void) {
    enum { COUNT = 4, TERMS = 3 };
    static const double values[TERMS][COUNT] = {{60000, 60000, 60002, 60002}, {5001, 5001, 5001, 5001}, {1, -1, 1, -1}},
                        expected[COUNT] = {65002, 65000, 65004, 65002}; /* even ones: 32500.5 units, 32501.5 */
    tensor *x[TERMS], *y = tensor_new(FMT_DFP16, TENSOR_SHAPE(COUNT));
    double found[COUNT];
    for (int s = 0; s < TERMS; s++) {
        double scaled[COUNT];
        for (int i = 0; i < COUNT; i++)
            scaled[i] = ldexp(values[s][i], s == 2 ? -90 : 0);
        x[s] = tensor_new(FMT_DFP16, TENSOR_SHAPE(COUNT));
        CHECK(!tensor_load_f64(x[s], scaled, COUNT), "%s", tensor_error());
    }
    CHECK(!fl_write_sum(y, (const tensor *const *)x, TERMS) && !tensor_store_f64(y, found, COUNT), "%s",
          tensor_error());
    CHECK(tensor_exponent(y) == -1, "exponent %d", tensor_exponent(y));
    for (int i = 0; i < COUNT; i++)
        CHECK(found[i] == expected[i], "sum %d is %.17g, expected %.17g", i, found[i], expected[i]);
    for (int s = 0; s < TERMS; s++)
        tensor_free(x[s]);
    tensor_free(y);
}

/* --- sums that ranks send ----------------------------------------------------------------------------------------- */

/* Sums of groups of shards, as bytes and back, add up to the sum of all; `own` shards of each of three ranks. */
static int check_sent(const char *name, int own, int spread) {
    enum { COUNT = 300, RANKS = 3 };
    tensor_format id;
    uint64_t random = (uint64_t)(own * 100 + spread);
    CHECK(!tensor_format_find(&id, name), "%s", tensor_error());
    const struct fl_format *format = fl_format_of(id);
    tensor *x[RANKS * MOST];
    struct fl_view views[RANKS * MOST], sums[RANKS];
    int32_t e[RANKS * MOST], of_sums[RANKS];
    double expected[COUNT], found[COUNT];
    char bytes[RANKS][COUNT * 8];
    for (int s = 0; s < RANKS * own; s++) {
        double values[COUNT];
        const int shift = (int)(check_random(&random) % (unsigned)(spread + 1));
        for (int i = 0; i < COUNT; i++) /* the largest mantissas among them */
            values[i] = ldexp(i % 7   ? (double)(int64_t)(check_random(&random) % 65535) - 32767
                              : i % 2 ? 32767
                                      : -32767,
                              -shift);
        x[s] = tensor_new(id, TENSOR_SHAPE(COUNT));
        CHECK(!tensor_load_f64(x[s], values, COUNT), "%s", tensor_error());
        e[s] = tensor_format_is_shared(id) ? tensor_exponent(x[s]) : 0;
        views[s] = (struct fl_view){.data = tensor_data(x[s]), .e = &e[s], .count = COUNT};
    }
    const struct fl_partial p = fl_partial_plan(format, e, RANKS * own, own);
    fl_sum_fetch(&(struct fl_sum){.format = format, .terms = views, .count = RANKS * own}, 0, COUNT, expected);
    for (int r = 0; r < RANKS && p.bytes; r++) {
        of_sums[r] = fl_partial_exponent(e + r * own, own);
        memset(bytes[r], 0x5a, sizeof bytes[r]);
        fl_partial_pack(p, format, views + r * own, own, of_sums[r], COUNT, bytes[r]);
        for (size_t i = COUNT * (size_t)p.bytes; i < sizeof bytes[r]; i++)
            CHECK(bytes[r][i] == 0x5a, "%s: byte %zu beyond the sums is written", name, i);
        sums[r] = (struct fl_view){.data = bytes[r], .e = &of_sums[r], .count = COUNT};
    }
    const int rank = spread % (RANKS + 1) - 1; /* has its shards as they are; -1: none */
    const struct fl_partial_terms terms = {p, rank, rank < 0 ? NULL : views + rank * own, own};
    const struct fl_sum all = fl_partial_sum(&terms, format, sums, RANKS);
    if (p.bytes) { /* in two parts */
        fl_sum_fetch(&all, 0, 7, found);
        fl_sum_fetch(&all, 7, COUNT - 7, found + 7);
    }
    for (int i = 0; i < COUNT && p.bytes; i++)
        CHECK(found[i] == expected[i], "%s: %d bytes, %d shards a rank: %.17g, expected %.17g", name, p.bytes, own,
              found[i], expected[i]);
    CHECK(!p.bytes || p.bytes < own * (int)tensor_format_bytes(id), "%s: %d bytes for %d shards", name, p.bytes, own);
    for (int s = 0; s < RANKS * own; s++)
        tensor_free(x[s]);
    return p.bytes;
}

static void check_all_sent(void) {
    static const char *const formats[] = {"flex16+5", "dfp16", "fp32", "fp16", "bf16", "flex8+5"};
    int sent[8] = {0};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (int own = 1; own <= MOST; own++)
            for (int spread = 0; spread < 40; spread += 3)
                sent[check_sent(formats[f], own, spread)]++;
    CHECK(sent[0] && sent[3] && sent[4] && sent[5] && sent[6], "lengths %d %d %d %d %d", sent[0], sent[3], sent[4],
          sent[5], sent[6]);
    CHECK(check_sent("flex16+5", 2, 0) == 3 && check_sent("fp32", 2, 0) == 4 && check_sent("fp16", 2, 0) == 0 &&
              check_sent("fp32", 3, 0) == 0,
          "usual lengths");
}

/* --- ignored labels ----------------------------------------------------------------------------------------------- */

/* The mean is over the labels that count in the whole batch, however they lie in shards. */
static void check_ignored(void) {
    static struct inputs in;
    uint64_t random = 21;
    const struct job j = {"mlp2", "fp32", .batch = 8, .shards = 4};
    nn_graph *g[2];
    draw(&in, &random);
    for (int i = 0; i < 8; i++)
        in.labels[i] = i < 3 || i == 5 ? 99 : in.labels[i];
    for (int k = 0; k < 2; k++) {
        g[k] = nn_graph_new(&(nn_config){
            .variant = "fp32", .batch = 8, .shards = k ? 4 : 1, .seed = 5, .ignores = true, .ignored_label = 99});
        CHECK(g[k] && !nn_compile(g[k], nn_model(g[k], "mlp2", SIDE, SIDE, CHANNELS, CLASSES)), "%s", tensor_error());
    }
    double loss[2], values[2][32];
    int correct[2];
    const nn_batch all = batch_of(&j, &in, 0);
    for (int k = 0; k < 2; k++)
        CHECK(!nn_train_step(&loss[k], &correct[k], g[k], &all, 0.1f), "%s", tensor_error());
    CHECK(fabs(loss[0] - loss[1]) < 1e-12 && correct[0] == correct[1], "loss %.17g, expected %.17g", loss[1], loss[0]);
    for (int k = 0; k < 2; k++) {
        tensor *gradient = named(g[k], "fc1.weight.grad"),
               *head = tensor_new(FMT_FP32, TENSOR_SHAPE(1, tensor_dim(gradient, 1)));
        double *numbers = malloc((size_t)tensor_dim(gradient, 1) * sizeof *numbers);
        CHECK(!tensor_slice(head, gradient, 0, 3) && !tensor_store_f64(head, numbers, tensor_count(head)), "%s",
              tensor_error());
        memcpy(values[k], numbers, sizeof values[k]);
        tensor_free(head);
        free(numbers);
    }
    for (int i = 0; i < 32; i++)
        CHECK(fabs(values[0][i] - values[1][i]) < 1e-6, "gradient %d: %g, expected %g", i, values[1][i], values[0][i]);
    CHECK(nn_forward(g[1], &(nn_batch){.images = in.images, .labels = in.labels}) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "nn_train_step"),
          "%s", tensor_error());
    for (int i = 0; i < 8; i++)
        in.labels[i] = 99;
    CHECK(!nn_train_step(&loss[1], &correct[1], g[1], &all, 0.1f) && loss[1] == 0 && correct[1] == 0, "%g", loss[1]);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

/* --- random draws ------------------------------------------------------------------------------------------------- */

/* Each shard of each step drops other elements. */
static void check_draws(void) {
    static float ones[4 * 64];
    static const int32_t labels[4] = {0, 1, 2, 3};
    double dropped[4];
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 4, .shards = 2, .seed = 1});
    nn_node x = nn_input(g, 8, 8, 1);
    x = nn_dropout(g, "drop", x, 0.5f);
    CHECK(!nn_compile(g, nn_linear(g, "fc", x, 4, false)), "%s", tensor_error());
    for (int i = 0; i < 4 * 64; i++)
        ones[i] = 1;
    for (int step = 0; step < 2; step++) {
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = ones, .labels = labels}, 0), "%s", tensor_error());
        for (int s = 0; s < 2; s++) {
            tensor *part = named(g, s ? "fc.weight.grad.shard1" : "fc.weight.grad.shard0");
            double values[64 * 4], hash = 0;
            CHECK(!tensor_store_f64(part, values, 64 * 4), "%s", tensor_error());
            for (int i = 0; i < 64; i++)
                hash += values[4 * i] == 0 ? ldexp(1, -i % 50) * (i + 1) : 0;
            dropped[2 * step + s] = hash;
        }
    }
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < a; b++)
            CHECK(dropped[a] != dropped[b], "draws %d and %d are the same", a, b);
    nn_graph_free(g);
}

/* --- phases, states, refusals ------------------------------------------------------------------------------------- */

static void check_refused(const char *what, nn_config config, const char *expected) {
    nn_graph *g = nn_graph_new(&config);
    CHECK(!g && strstr(tensor_error(), expected), "%s: %s", what, g ? "accepted" : tensor_error());
    nn_graph_free(g);
}

/* Messages number tokens and labels in the whole batch. */
static void check_numbers(void) {
    static struct inputs in;
    const struct job text = {"gpt1x32", "fp32"}, images = {"mlp2", "fp32"};
    nn_graph *of_text = build(&text, 8, 4, NULL), *of_images = build(&images, 8, 4, NULL);
    uint64_t random = 4;
    for (int i = 0; i < 8 * LENGTH; i += 7) {
        const struct {
            nn_graph *g;
            const struct job *job;
            int32_t *number;
            const char *what;
            int most;
        } cases[] = {{of_text, &text, &in.tokens[i], "token", VOCABULARY},
                     {of_text, &text, &in.labels[i], "label", VOCABULARY},
                     {of_images, &images, &in.labels[i % 8], "label", CLASSES}};
        for (int k = 0; k < 3; k++) {
            char expected[80];
            draw(&in, &random);
            *cases[k].number = 1000 + i;
            snprintf(expected, sizeof expected, "%s %d is %d, expected 0 to %d", cases[k].what, k < 2 ? i : i % 8,
                     1000 + i, cases[k].most - 1);
            const nn_batch all = batch_of(cases[k].job, &in, 0);
            CHECK(nn_train_step(NULL, NULL, cases[k].g, &all, 0.01f) == TENSOR_E_ARGUMENT &&
                      strstr(tensor_error(), expected),
                  "%s: expected %s", tensor_error(), expected);
        }
    }
    nn_graph_free(of_text);
    nn_graph_free(of_images);
}

static void check_phases(void) {
    static struct inputs in;
    uint64_t random = 4;
    const struct job j = {"resnet8", "flex16+5", .batch = 8, .shards = 4};
    nn_graph *by_step = build(&j, 8, 4, NULL), *by_phase = build(&j, 8, 4, NULL), *resumed = build(&j, 8, 4, NULL);
    const size_t bytes = nn_state_bytes(by_step);
    char *a = malloc(bytes), *b = malloc(bytes);
    for (int step = 0; step < 3; step++) {
        double loss, other;
        draw(&in, &random);
        const nn_batch all = batch_of(&j, &in, 0);
        CHECK(!nn_train_step(&loss, NULL, by_step, &all, 0.02f), "%s", tensor_error());
        for (int s = 0; s < 4; s++) {
            const nn_batch part = batch_of(&j, &in, 2 * s);
            CHECK(!nn_forward(by_phase, &part) && !nn_backward(by_phase), "%s", tensor_error());
            if (s == 1) {
                CHECK(nn_update(by_phase, 0.02f) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "2 of 4 shards"), "%s",
                      tensor_error());
                CHECK(nn_loss(&other, NULL, by_phase) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "2 of 4 shards"),
                      "%s", tensor_error());
                CHECK(!nn_evaluate(&other, NULL, by_phase, &part), "between shards: %s", tensor_error());
            }
        }
        CHECK(!nn_loss(&other, NULL, by_phase) && other == loss && !nn_update(by_phase, 0.02f), "%s", tensor_error());
        if (step == 1) {
            CHECK(!nn_state_save(a, bytes, by_step) && !nn_state_restore(resumed, a, bytes), "%s", tensor_error());
        } else if (step == 2) {
            CHECK(!nn_train_step(&other, NULL, resumed, &all, 0.02f) && other == loss, "resumed: %s", tensor_error());
            CHECK(!nn_state_save(a, bytes, by_step) && !nn_state_save(b, bytes, resumed) && !memcmp(a, b, bytes),
                  "states differ after a restore");
        }
    }
    CHECK(nn_evaluate(NULL, NULL, by_step, &(nn_batch){.images = in.images, .labels = in.labels, .count = 3}) ==
                  TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "1 ... 2"),
          "%s", tensor_error());
    char path[] = "/tmp/flexlab-shards-XXXXXX";
    const int file = mkstemp(path);
    nn_graph *other = build(&j, 8, 2, NULL);
    CHECK(file >= 0 && !close(file) && !nn_checkpoint_save(by_step, path, NULL, 0), "%s", tensor_error());
    CHECK(nn_checkpoint_load(other, path) == TENSOR_E_DATA && strstr(tensor_error(), "have 4 shards") &&
              strstr(tensor_error(), "network 2"),
          "%s", tensor_error());
    CHECK(!nn_checkpoint_load(resumed, path), "%s", tensor_error());
    remove(path);
    check_refused("9", (nn_config){.variant = "fp32", .batch = 8, .shards = 3}, "3 do not divide the batch of 8");
    check_refused("1025", (nn_config){.variant = "fp32", .batch = 2050, .shards = 1025}, "1025, expected 1 to 1024");
    check_refused("-1", (nn_config){.variant = "fp32", .batch = 8, .shards = -1}, "-1, expected 1 to 1024");
    check_refused("wasserstein", (nn_config){.variant = "fp32", .batch = 8, .shards = 2, .loss = "wasserstein"},
                  "loss wasserstein");
    free(a);
    free(b);
    nn_graph_free(by_step);
    nn_graph_free(by_phase);
    nn_graph_free(resumed);
    nn_graph_free(other);
}

int main(void) {
    static const char *const optimisers[] = {NULL, "adam", "adamw", "rmsprop", "adagrad", "lamb"};
    check_exact_sums();
    for (int spread = 0; spread <= 160; spread += 20)
        check_far(spread);
    check_ties();
    check_all_sent();
    for (int v = 0; v < nn_variant_count(); v++) {
        const char *variant = nn_variant_at(v)->name;
        run_case(&(struct job){"mlp2", variant, NULL, optimisers[v % 6], NULL, 8, v % 2 ? 4 : 8, 3});
        check_history(variant);
    }
    run_case(&(struct job){"resnet8", "flex16+5", NULL, NULL, NULL, 8, 2, 3});
    run_case(&(struct job){"resnet8", "fp16", NULL, "adamw", "1024", 8, 4, 2});
    run_case(&(struct job){"resnet8", "flex8+5", NULL, NULL, NULL, 8, 4, 2});
    run_case(&(struct job){"resnet8", "fp32", "O1", NULL, "1024", 8, 2, 2});
    run_case(&(struct job){"gpt1x32", "flex16+5", NULL, "adamw", NULL, 4, 2, 3});
    run_case(&(struct job){"gpt1x32", "bf16", NULL, "adam", NULL, 8, 4, 2});
    run_case(&(struct job){"lstm-char", "dfp16", NULL, "lamb", NULL, 4, 2, 2});
    check_running("flex16+5", 2);
    check_running("fp32", 3);
    check_ignored();
    check_draws();
    check_phases();
    check_numbers();
    return check_summary();
}
