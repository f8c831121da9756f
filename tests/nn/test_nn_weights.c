/* Weights from elsewhere: set by name, and loaded from checkpoints of every variant into every other, against rounding
 * implemented again in binary64; the next update works on the weights that were set; what is refused changes
 * nothing. */
#include "check.h"
#include "flexlab/autoflex.h"
#include "layer_network.h"
#include "safetensors/safetensors.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 4, SIDE = 6, CLASSES = 3 };

/* Variants, ":none" without master weights, and policies behind "+". */
static const char *const kinds[] = {"fp32",        "fp16",           "bf16",      "flex16+5",   "dfp16",
                                    "flex16+5-sr", "flex16+5-paper", "fp16:none", "dfp16:none", "+O1",
                                    "+O2",         "+O2:bf16",       "+dfp16"};
enum { KINDS = sizeof kinds / sizeof *kinds };
/* Whose weights are floats made from parameters, without a master weight: codes in the file. */
static const char *const coded[] = {"e4m3fn:none", "e3m4:none", "e6m9:none", "tensor:e4m3fn:none",
                                    "+variant fp32; @product weights=e5m2 master=none;"};
enum { CODED = sizeof coded / sizeof *coded };
static char path[100];
static const char *device = "cpu";

static nn_graph *network(const char *kind, uint64_t seed) {
    char name[40];
    const char *const none = strstr(kind, ":none");
    snprintf(name, sizeof name, "%.*s", (int)(none ? none - kind : (int64_t)strlen(kind)), kind);
    const bool policy = *kind == '+';
    const nn_config config = {.variant = policy ? NULL : name,
                              .policy = policy ? kind + 1 : NULL,
                              .no_master = !policy && none,
                              .device = device,
                              .batch = BATCH,
                              .seed = seed,
                              .momentum = 0.9f};
    nn_graph *g = nn_graph_new(&config);
    CHECK(g && !nn_compile(g, all_layers(g, CLASSES)), "%s: %s", kind, tensor_error());
    return g;
}

static void train(nn_graph *g, int steps, float rate) {
    float images[BATCH * SIDE * SIDE * 2];
    int32_t labels[BATCH];
    for (int i = 0; i < steps; i++) {
        uint64_t seed = nn_steps(g) + 1;
        for (size_t k = 0; k < sizeof images / sizeof *images; k++)
            images[k] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
        for (int k = 0; k < BATCH; k++)
            labels[k] = (int32_t)(check_random(&seed) % CLASSES);
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, rate), "%s",
              tensor_error());
    }
}

static tensor *find(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    return NULL;
}

/* Whether weights of that variant have a wide part. */
static bool has_wide(const char *kind) {
    return !strcmp(kind, "fp16") || !strcmp(kind, "bf16") || !strcmp(kind, "flex16+5") || !strcmp(kind, "dfp16");
}

/* --- rounding, a second time -------------------------------------------------------------------------------------- */

/* To nearest, ties to even, in a format of `digits` binary digits whose least normal is 2^least. */
static double round_float(double x, int digits, int least) {
    int exponent;
    frexp(x, &exponent); /* |x| in [2^(exponent - 1), 2^exponent) */
    const int unit = (exponent - 1 > least ? exponent - 1 : least) - (digits - 1);
    return ldexp(nearbyint(ldexp(x, -unit)), unit);
}

static double round_as(tensor_format format, double x) {
    return format == FMT_FP16   ? round_float(x, 11, -14)
           : format == FMT_BF16 ? round_float(x, 8, -126)
                                : round_float(x, 24, -126);
}

/* The exponent under which the largest has 15 bits, rounded mantissas of up to 32767. */
static int exponent_of(const double *x, int64_t count) {
    double largest = 0;
    int exponent;
    for (int64_t i = 0; i < count; i++)
        largest = fabs(x[i]) > largest ? fabs(x[i]) : largest;
    frexp(largest, &exponent);
    return nearbyint(ldexp(largest, 15 - exponent)) > 32767 ? 14 - exponent : 15 - exponent;
}

static void must_equal(const char *kind, const char *name, const double *got, const double *want, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (got[i] != want[i]) {
            CHECK(false, "%s: %s[%lld] is %a, expected %a", kind, name, (long long)i, got[i], want[i]);
            return;
        }
    CHECK(true, "%s", name);
}

/* Checks that t has these values, rounded; they become the rounded ones. */
static void check_tensor(const char *kind, const char *name, tensor *t, double *values) {
    const int64_t count = tensor_count(t);
    double *got = calloc((size_t)count, sizeof *got);
    const tensor_format format = tensor_format_of(t);
    const bool wide = has_wide(kind);
    if (tensor_format_is_shared(format)) {
        const int e = exponent_of(values, count), bits = e + (wide ? 16 : 0);
        for (int64_t i = 0; i < count; i++)
            values[i] = ldexp(nearbyint(ldexp(values[i], bits)), -bits);
        if (wide) {
            CHECK(!tensor_store_wide_f64(t, got, count), "%s", tensor_error());
            must_equal(kind, name, got, values, count);
        }
        for (int64_t i = 0; i < count; i++)
            values[i] = ldexp(nearbyint(ldexp(values[i], e)), -e);
        CHECK(tensor_exponent(t) == e, "%s: %s has the exponent %d, expected %d", kind, name, tensor_exponent(t), e);
    } else {
        for (int64_t i = 0; i < count && wide; i++)
            values[i] = round_as(FMT_FP32, values[i]);
        if (wide) {
            CHECK(!tensor_store_wide_f64(t, got, count), "%s", tensor_error());
            must_equal(kind, name, got, values, count);
        }
        for (int64_t i = 0; i < count; i++)
            values[i] = round_as(format, values[i]);
    }
    CHECK(!tensor_store_f64(t, got, count), "%s", tensor_error());
    must_equal(kind, name, got, values, count);
    free(got);
}

/* Checks that a weight, its master before it and its copies after it have these values, which are changed; returns the
 * number of tensors. */
static int check_weight(const nn_graph *g, const char *kind, const char *name, double *values) {
    static const char *const copies[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    char other[200];
    int seen = 1;
    snprintf(other, sizeof other, "%s.master", name);
    if (find(g, other)) {
        check_tensor(kind, other, find(g, other), values);
        seen++;
    }
    check_tensor(kind, name, find(g, name), values);
    for (int i = 0; i < 5; i++) {
        snprintf(other, sizeof other, "%s.%s", name, copies[i]);
        tensor *t = find(g, other);
        if (t) {
            check_tensor(kind, other, t, values);
            seen++;
        }
    }
    return seen;
}

/* --- by name ------------------------------------------------------------------------------------------------------ */

static bool is_weight(const nn_tensor_info *info) {
    const size_t length = strlen(info->name);
    return !strcmp(info->role, "weight") && strcmp(info->name + (length > 7 ? length - 7 : 0), ".master") != 0 &&
           !strstr(info->name, ".fp") && !strstr(info->name, ".bf16") && !strstr(info->name, ".dfp16");
}

/* Full binary64 mantissas with a spread of magnitudes, as large as the network's initial weights. */
static double *random_values(int64_t count, uint64_t *seed, int spread) {
    double *values = calloc((size_t)count, sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        const double unit = (double)(int64_t)(check_random(seed) >> 10) * 0x1p-53 - 1;
        values[i] = ldexp(unit, -(int)(check_random(seed) % (uint64_t)spread));
    }
    return values;
}

static void test_set(const char *kind, int spread, int steps) {
    nn_graph *g = network(kind, 3);
    uint64_t seed = 11 + (uint64_t)spread;
    int weights = 0, tensors = 0;
    train(g, steps, 0.1f);
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        if (!is_weight(&info))
            continue;
        const int64_t count = tensor_count(info.t);
        double *values = random_values(count, &seed, spread);
        CHECK(!nn_weight_set(g, info.name, values, count), "%s: %s", kind, tensor_error());
        tensors += check_weight(g, kind, info.name, values);
        weights++;
        free(values);
    }
    CHECK(weights > 10 && (*kind != '+' || tensors > weights), "%s: %d weights in %d tensors", kind, weights, tensors);
    CHECK(nn_steps(g) == (uint64_t)steps, "%s: %llu steps", kind, (unsigned long long)nn_steps(g));
    train(g, 2, 0.01f); /* training continues */
    nn_graph_free(g);
}

/* A rate of 0 leaves the weights that were set unchanged: no master restores older values. Weights of flex16+5 are
 * written again with the predicted exponent, which may differ. */
static void test_stays(const char *kind) {
    if (!strncmp(kind, "flex16+5", 8))
        return;
    nn_graph *g = network(kind, 3);
    uint64_t seed = 5;
    train(g, 3, 0.1f);
    tensor *t = find(g, "fc2.weight");
    const int64_t count = tensor_count(t);
    double *values = random_values(count, &seed, 3), *before = calloc((size_t)count, sizeof *before),
           *after = calloc((size_t)count, sizeof *after);
    CHECK(!nn_weight_set(g, "fc2.weight", values, count) && !tensor_store_f64(t, before, count), "%s: %s", kind,
          tensor_error());
    train(g, 2, 0);
    CHECK(!tensor_store_f64(t, after, count), "%s", tensor_error());
    must_equal(kind, "fc2.weight after steps of rate 0", after, before, count);
    free(values);
    free(before);
    free(after);
    nn_graph_free(g);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static char *state_of(const nn_graph *g) {
    char *state = malloc(nn_state_bytes(g));
    CHECK(state && !nn_state_save(state, nn_state_bytes(g), g), "%s", tensor_error());
    return state;
}

/* The values on which updates work in g. */
static double *exact_values(const nn_graph *g, const char *name) {
    char master[200];
    snprintf(master, sizeof master, "%s.master", name);
    tensor *t = find(g, master) ? find(g, master) : find(g, name);
    double *values = calloc((size_t)tensor_count(t), sizeof *values);
    CHECK(!tensor_store_wide_f64(t, values, tensor_count(t)), "%s", tensor_error());
    return values;
}

static void test_load(const char *from, const char *to) {
    nn_graph *a = network(from, 3), *b = network(to, 4);
    train(a, 4, 0.1f);
    CHECK(!nn_checkpoint_save(a, path, NULL, 0), "%s", tensor_error());
    CHECK(!nn_weights_load(b, path), "%s to %s: %s", from, to, tensor_error());
    for (int i = 0; i < nn_tensor_count(b); i++) {
        const nn_tensor_info info = nn_tensor_at(b, i);
        if (!is_weight(&info))
            continue;
        double *values = exact_values(a, info.name);
        check_weight(b, to, info.name, values);
        free(values);
    }
    double want[64], got[64];
    int ndim;
    int64_t dim[8];
    CHECK(!nn_checkpoint_shape(&ndim, dim, path, "bn1.running_mean") && ndim == 1 && dim[0] <= 64, "%d", ndim);
    CHECK(!nn_checkpoint_values(want, dim[0], path, "bn1.running_mean"), "%s", tensor_error());
    CHECK(!nn_checkpoint_save(b, path, NULL, 0) && !nn_checkpoint_values(got, dim[0], path, "bn1.running_mean"), "%s",
          tensor_error());
    CHECK(want[0] != 0, "running means that nothing has moved");
    must_equal(to, "bn1.running_mean", got, want, dim[0]);
    CHECK(nn_steps(b) == 0, "%llu steps", (unsigned long long)nn_steps(b));
    train(b, 2, 0.01f);
    nn_graph_free(a);
    nn_graph_free(b);
}

static void must_share(const nn_graph *a, const nn_graph *b, const char *variant) {
    for (int i = 0; i < nn_tensor_count(a); i++) {
        const nn_tensor_info info = nn_tensor_at(a, i);
        if (!is_weight(&info))
            continue;
        double *one = exact_values(a, info.name), *two = exact_values(b, info.name);
        must_equal(variant, info.name, two, one, tensor_count(info.t));
        free(one);
        free(two);
    }
}

/* Loads initial weights: a network that has them trains as before, and one of another seed then has
 * them. */
static void test_own(const char *variant) {
    nn_graph *a = network(variant, 3), *b = network(variant, 3), *c = network(variant, 4);
    CHECK(!nn_checkpoint_save(a, path, NULL, 0) && !nn_weights_load(b, path) && !nn_weights_load(c, path), "%s",
          tensor_error());
    must_share(a, c, variant);
    must_share(a, b, variant);
    if (strcmp(variant, "flex16+5-sr") !=
        0) { /* its random numbers depend on the number of writes, of which b has one more */
        train(a, 4, 0.1f);
        train(b, 4, 0.1f);
        must_share(a, b, variant);
    }
    nn_graph_free(a);
    nn_graph_free(b);
    nn_graph_free(c);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refused(nn_graph *g, const char *before, tensor_status status, tensor_status want, const char *word) {
    char *now = state_of(g);
    CHECK(status == want && strstr(tensor_error(), word), "%d, expected %d with '%s': %s", (int)status, (int)want, word,
          tensor_error());
    CHECK(!memcmp(now, before, nn_state_bytes(g)), "%s: what was refused changed the network", word);
    free(now);
}

/* Copies the file with one change in its header, of the same length, or of its last byte. */
static void spoil(const char *from, const char *to) {
    static char bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    CHECK(size > 0 && size < sizeof bytes, "%zu bytes", size);
    const size_t length = from ? strlen(from) : 0;
    for (size_t i = 0; from && i + length < size; i++)
        if (!memcmp(bytes + i, from, length)) {
            memcpy(bytes + i, to, length);
            break;
        }
    bytes[size - 1] ^= from ? 0 : 1;
    file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "%s", path);
}

static void test_refusals(void) {
    nn_graph *g = network("flex16+5", 3), *raw = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1});
    train(g, 2, 0.1f);
    char *before = state_of(g);
    double values[4] = {1, 2, NAN, INFINITY};
    refused(g, before, nn_weight_set(g, "fc2.weigth", values, 1), TENSOR_E_ARGUMENT, "'fc2.weigth'");
    refused(g, before, nn_weight_set(g, "fc2.weight.grad", values, 1), TENSOR_E_ARGUMENT, "'fc2.weight.grad'");
    refused(g, before, nn_weight_set(g, "fc2.bias", values, 2), TENSOR_E_SHAPE, "2 values, 'fc2.bias' has 3");
    refused(g, before, nn_weight_set(g, "fc2.bias", values, 3), TENSOR_E_ARGUMENT, "element 2 of 'fc2.bias' is nan");
    refused(g, before, nn_weight_set(g, NULL, values, 3), TENSOR_E_ARGUMENT, "NULL");
    refused(g, before, nn_weight_set(g, "fc2.bias", NULL, 3), TENSOR_E_ARGUMENT, "NULL");
    refused(g, before, nn_weights_load(g, NULL), TENSOR_E_ARGUMENT, "NULL");
    refused(g, before, nn_weights_load(g, "/nowhere"), TENSOR_E_IO, "/nowhere");
    CHECK(nn_weight_set(NULL, "x", values, 1) == TENSOR_E_ARGUMENT && nn_weights_load(NULL, path) == TENSOR_E_ARGUMENT,
          "NULL");
    CHECK(nn_weight_set(raw, "x", values, 1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "not compiled"), "%s",
          tensor_error());
    CHECK(nn_weights_load(raw, path) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "not compiled"), "%s",
          tensor_error());
    double variances[64] = {1, 2, -1e-300};
    const tensor *kept = find(g, "bn1.gamma");
    refused(g, before, nn_weight_set(g, "bn1.running_variance", variances, tensor_count(kept)), TENSOR_E_ARGUMENT,
            "element 2 of 'bn1.running_variance' is -1e-300, expected a finite number from 0");
    nn_graph *other = network("fp32", 9);
    CHECK(!nn_checkpoint_save(other, path, NULL, 0), "%s", tensor_error());
    spoil(NULL, NULL);
    refused(g, before, nn_weights_load(g, path), TENSOR_E_DATA, "the checksum of its contents");
    CHECK(!nn_checkpoint_save(other, path, NULL, 0), "%s", tensor_error());
    spoil("\"flexlab.crc32\"", "\"flexlab.crcXX\""); /* programs that change a file drop its checksum */
    CHECK(!nn_weights_load(g, path), "%s", tensor_error());
    free(before);
    before = state_of(g);
    spoil("\"fc2.bias\"", "\"fc2.biaz\"");
    refused(g, before, nn_weights_load(g, path), TENSOR_E_DATA, "no tensor 'fc2.bias', expected one of shape [3]");
    spoil("\"fc2.biaz\"", "\"fc2.bias\"");
    spoil("\"fc2.bias\":{\"dtype\":\"F32\"", "\"fc2.bias\":{\"dtype\":\"I32\"");
    refused(g, before, nn_weights_load(g, path), TENSOR_E_DATA, "'fc2.bias' is of type I32");
    nn_graph_free(other);
    other = nn_graph_new(&(nn_config){.variant = "fp32", .batch = BATCH, .seed = 7});
    CHECK(other && !nn_compile(other, all_layers(other, CLASSES + 1)) && !nn_checkpoint_save(other, path, NULL, 0),
          "%s", tensor_error());
    refused(g, before, nn_weights_load(g, path), TENSOR_E_DATA, "that of the network [");
    CHECK(!nn_weight_set(other, "fc2.bias", (const double[]){1, 2, 3, 1e300}, CLASSES + 1), "%s",
          tensor_error()); /* Inf in fp32 */
    nn_graph_free(other);
    other = network("fp32", 9);
    CHECK(!nn_weight_set(other, "fc2.bias", (const double[]){1, 2, 1e300}, CLASSES) &&
              !nn_checkpoint_save(other, path, NULL, 0),
          "%s", tensor_error());
    refused(g, before, nn_weights_load(g, path), TENSOR_E_DATA, "element 2 of 'fc2.bias' is inf");
    nn_graph_free(other);
    nn_graph_free(raw);
    nn_graph_free(g);
    free(before);
}

/* With an argument, on that device: every fifth pair, without the policies that devices do not support. */
int main(int argc, char **argv) {
    const bool host = argc < 2;
    device = host ? "cpu" : argv[1];
    snprintf(path, sizeof path, "/tmp/flexlab-weights-%ld.safetensors", (long)getpid());
    for (int i = 0; i < KINDS; i++) {
        if (!host && !strcmp(kinds[i], "+dfp16"))
            continue;
        test_set(kinds[i], 3, 0);
        test_set(kinds[i], 20, 3);
        test_stays(kinds[i]);
        for (int k = 0; k < KINDS; k++)
            if (host || ((i + k) % 5 == 0 && strcmp(kinds[k], "+dfp16") != 0))
                test_load(kinds[i], kinds[k]);
    }
    for (int i = 0; i < 9; i++)
        test_own(kinds[i]);
    for (int i = 0; i < CODED && host; i++) {
        test_load(coded[i], "fp32");
        test_load(coded[i], "fp16");
        test_own(coded[i]);
    }
    test_refusals();
    unlink(path);
    return check_summary();
}
