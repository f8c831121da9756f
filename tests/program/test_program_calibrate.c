/* Calibration for 8-bit integers: histograms that depend on the numbers alone; ranges of all methods against plain
 * computations; networks that program_freeze quantises. */
#include "network_parts.h"
#include "program/calibration/methods.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { MANY = 20000 };

/* Numbers of many sizes, some of them 0 and powers of two. */
static void draw_numbers(float *x, int count, uint64_t *random, int spread) {
    for (int i = 0; i < count; i++) {
        const uint64_t r = check_random(random);
        const float size = (float)(r % 1000003) / 1000003 - 0.4f;
        x[i] = r % 7 == 0    ? 0
               : r % 11 == 0 ? ldexpf(1, (int)(r % 9) - 4)
                             : ldexpf(size, (int)(r / 7 % (unsigned)spread));
    }
}

/* --- histograms --------------------------------------------------------------------------------------------------- */

static void check_plain(const struct fl_histogram *h, const float *x, int count) {
    static int64_t expected[2][FL_HISTOGRAM_BINS];
    double largest = 0;
    int exponent = -200;
    int64_t zeros = 0;
    memset(expected, 0, sizeof expected);
    for (int i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)x[i]));
    while (ldexp(1, exponent) < largest)
        exponent++;
    for (int i = 0; i < count; i++) {
        int bin = -1;
        if (x[i] == 0) {
            zeros++;
            continue;
        }
        while (fabs((double)x[i]) > (bin + 1) * ldexp(1, exponent) / FL_HISTOGRAM_BINS)
            bin++;
        expected[x[i] < 0][bin]++;
    }
    CHECK(h->zeros == zeros && h->numbers == count - zeros, "%lld zeros, expected %lld", (long long)h->zeros,
          (long long)zeros);
    CHECK(h->exponent == exponent, "exponent %d, expected %d", h->exponent, exponent);
    CHECK(!memcmp(h->count, expected, sizeof expected), "counts are not those of a plain histogram");
}

static void test_histogram(void) {
    static float x[1000];
    uint64_t random = 5;
    draw_numbers(x, 1000, &random, 3);
    static struct fl_histogram h;
    fl_histogram_add(&h, x, 1000);
    check_plain(&h, x, 1000);
}

static void test_splits(void) {
    static float x[MANY];
    static struct fl_histogram whole, parts;
    uint64_t random = 11;
    for (int round = 0; round < 20; round++) {
        draw_numbers(x, MANY, &random, 1 + round);
        memset(&whole, 0, sizeof whole);
        memset(&parts, 0, sizeof parts);
        fl_histogram_add(&whole, x, MANY);
        for (int i = MANY - 1; i > 0; i--) { /* in another order, in parts of other sizes */
            const int j = (int)(check_random(&random) % (unsigned)(i + 1));
            const float kept = x[i];
            x[i] = x[j];
            x[j] = kept;
        }
        for (int done = 0; done < MANY;) {
            int some = 1 + (int)(check_random(&random) % 900);
            some = some < MANY - done ? some : MANY - done;
            fl_histogram_add(&parts, x + done, some);
            done += some;
        }
        CHECK(!memcmp(&whole, &parts, sizeof whole), "round %d: the histogram follows from order or parts", round);
    }
}

/* --- methods ------------------------------------------------------------------------------------------------------ */

static void test_types(void) {
    struct fl_int8_type t = fl_type_of_range((struct fl_span){-1, 3}, false);
    CHECK(t.is_unsigned && t.scale == 4.f / 255 && t.zero == 64, "scale %g, zero point %d", (double)t.scale, t.zero);
    t = fl_type_of_range((struct fl_span){1, 3}, false);
    CHECK(t.scale == 3.f / 255 && t.zero == 0, "a range above 0: scale %g, zero point %d", (double)t.scale, t.zero);
    t = fl_type_of_range((struct fl_span){-5, -3}, false);
    CHECK(t.scale == 5.f / 255 && t.zero == 255, "a range below 0: scale %g, zero point %d", (double)t.scale, t.zero);
    t = fl_type_of_range((struct fl_span){-5, 3}, true);
    CHECK(!t.is_unsigned && t.scale == 5.f / 127 && t.zero == 0, "symmetric: scale %g", (double)t.scale);
    t = fl_type_of_range((struct fl_span){0, 0}, false);
    CHECK(t.scale == 1 && t.zero == 0, "zeros: scale %g", (double)t.scale);
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Numbers moved to the far edges of their bins, in order. */
static void edges(double *sorted, const float *x, double width, bool magnitudes) {
    for (int i = 0; i < MANY; i++) {
        const double edge = ceil(fabs((double)x[i]) / width) * width;
        sorted[i] = x[i] < 0 && !magnitudes ? -edge : edge;
    }
    qsort(sorted, MANY, sizeof *sorted, ascending);
}

static void check_percentile(const float *x, const struct fl_histogram *h, double least, double largest, double p) {
    static double sorted[MANY];
    const double width = fl_histogram_width(h), cut = MANY * (100 - p) / 100;
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        const program_quantisation how = {.method = PROGRAM_PERCENTILE, .percentile = p, .symmetric = symmetric};
        const struct fl_span got = fl_range_by(&how, least, largest, h);
        edges(sorted, x, width, symmetric);
        const int beyond = (int)floor(symmetric ? cut : cut / 2);
        const double high = fmin(fmax(sorted[MANY - 1 - beyond], 0), largest);
        const double low = fmax(symmetric ? -sorted[MANY - 1 - beyond] : fmin(sorted[beyond], 0), least);
        CHECK(got.low == low && got.high == high, "percentile %g: %.9g to %.9g, expected %.9g to %.9g", p, got.low,
              got.high, low, high);
    }
}

/* The mean of squares for a range, of numbers at the centres of their bins. */
static double squares(const float *x, double width, double low, double high) {
    const struct fl_int8_type t = fl_type_of_range((struct fl_span){low, high}, false);
    double sum = 0;
    for (int i = 0; i < MANY; i++) {
        if (x[i] == 0)
            continue;
        const double centre = copysign((ceil(fabs((double)x[i]) / width) - 0.5) * width, (double)x[i]);
        const double q = fmin(fmax(rint(centre / (double)t.scale) + t.zero, 0), 255);
        const double error = (q - t.zero) * (double)t.scale - centre;
        sum += error * error;
    }
    return sum;
}

static void check_mse(const float *x, const struct fl_histogram *h, double least, double largest) {
    const program_quantisation how = {.method = PROGRAM_MSE};
    const struct fl_span got = fl_range_by(&how, least, largest, h);
    const double width = fl_histogram_width(h), own = squares(x, width, got.low, got.high);
    bool candidate = false;
    for (int i = 13; i <= 128; i++) {
        const double low = least * i / 128, high = largest * i / 128, error = squares(x, width, low, high);
        candidate |= low == got.low && high == got.high;
        CHECK(error >= own * (1 - 1e-9), "mse: %d / 128 has %g, the range chosen %g", i, error, own);
    }
    CHECK(candidate, "mse: %g to %g is no part of the whole in 128ths", got.low, got.high);
}

/* The divergence by its definition: two distributions, bin by bin. */
static double divergence(const int64_t *count, int kept) {
    static double p[FL_ENTROPY_BINS], q[FL_ENTROPY_BINS];
    double p_sum = 0, q_sum = 0, d = 0;
    for (int i = 0; i < FL_ENTROPY_BINS; i++)
        p[i < kept ? i : kept - 1] = (i < kept ? 0 : p[kept - 1]) + (double)count[i];
    for (int level = 0; level < FL_ENTROPY_LEVELS; level++) {
        const int from = level * kept / FL_ENTROPY_LEVELS, to = (level + 1) * kept / FL_ENTROPY_LEVELS;
        double sum = 0;
        int full = 0;
        for (int i = from; i < to; i++) {
            sum += (double)count[i];
            full += count[i] > 0;
        }
        for (int i = from; i < to; i++)
            q[i] = count[i] > 0 ? sum / full : 0;
    }
    for (int i = 0; i < kept; i++) {
        p_sum += p[i];
        q_sum += q[i];
    }
    for (int i = 0; i < kept; i++)
        if (p[i] > 0)
            d += q[i] > 0 ? p[i] / p_sum * log(p[i] / p_sum / (q[i] / q_sum)) : INFINITY;
    return d;
}

static void check_entropy(const float *x, const struct fl_histogram *h, double least, double largest) {
    static int64_t count[FL_ENTROPY_BINS];
    const double width = 2 * fl_histogram_width(h);
    memset(count, 0, sizeof count);
    for (int i = 0; i < MANY; i++)
        if (x[i] != 0)
            count[(int)ceil(fabs((double)x[i]) / width) - 1]++;
    const int kept = fl_entropy_bins(count);
    const double own = divergence(count, kept);
    for (int k = FL_ENTROPY_LEVELS; k <= FL_ENTROPY_BINS; k += 3)
        CHECK(divergence(count, k) >= own - 1e-9, "entropy: %d bins have %.12g, the %d chosen %.12g", k,
              divergence(count, k), kept, own);
    const program_quantisation how = {.method = PROGRAM_ENTROPY};
    const struct fl_span got = fl_range_by(&how, least, largest, h);
    CHECK(got.low == fmax(-kept * width, least) && got.high == fmin(kept * width, largest),
          "entropy: %g to %g, expected %d bins of %g", got.low, got.high, kept, width);
}

static void test_methods(void) {
    static float x[MANY];
    static struct fl_histogram h;
    uint64_t random = 3;
    for (int round = 0; round < 8; round++) {
        double least = INFINITY, largest = -INFINITY;
        draw_numbers(x, MANY, &random, 1 + round);
        memset(&h, 0, sizeof h);
        for (int i = 0; i < MANY; i++) {
            if (round % 2)
                x[i] = fmaxf(x[i], 0);
            least = fmin(least, (double)x[i]);
            largest = fmax(largest, (double)x[i]);
        }
        fl_histogram_add(&h, x, MANY);
        const program_quantisation minmax = {.method = PROGRAM_MINMAX};
        const struct fl_span all = fl_range_by(&minmax, least, largest, &h);
        CHECK(all.low == least && all.high == largest, "minmax: %g to %g", all.low, all.high);
        check_percentile(x, &h, least, largest, 99.99);
        check_percentile(x, &h, least, largest, 90);
        check_percentile(x, &h, least, largest, 100);
        check_mse(x, &h, least, largest);
        check_entropy(x, &h, least, largest);
    }
}

/* --- networks ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 12, SIDE = 6, IMAGE = 3 * SIDE * SIDE, CLASSES = 5 };

/* Two convolutions and their sum, a pooling in floats alone (LpPool has no kernel), a product; the sum is an output
 * too. */
static program *make_program(void) {
    uint64_t random = 17;
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int64_t image[] = {-1, 3, SIDE, SIDE}, filters[] = {4, 3, 1, 1}, more[] = {4, 4, 1, 1}, bias[] = {4};
    const int64_t matrix[] = {4, CLASSES};
    const int x = part_value(n, 4, image);
    const int first = part_node(
        n, "Conv", 3, (const int[]){x, part_constant(n, 4, filters, &random), part_constant(n, 1, bias, &random)});
    const int clipped = part_node(n, "Relu", 1, &first);
    const int second = part_node(
        n, "Conv", 3, (const int[]){clipped, part_constant(n, 4, more, &random), part_constant(n, 1, bias, &random)});
    const int sum = part_node(n, "Add", 2, (const int[]){second, clipped});
    const int smooth = part_node(n, "Tanh", 1, &sum);
    const int mean = part_node(n, "GlobalAveragePool", 1, &smooth);
    const int flat = part_node(n, "Flatten", 1, &mean);
    const int w = part_constant(n, 2, matrix, &random), y = part_node(n, "MatMul", 2, (const int[]){flat, w});
    ((float *)n->values[w].constant->data)[3] = 1e-3f; /* 0 in integers */
    part_ports(n, 1, &x, 2, (const int[]){y, sum});
    program *p;
    CHECK(!fl_program_of(&p, n, false), "%s", tensor_error());
    return p;
}

static void draw_images(float *x, uint64_t seed) {
    for (int i = 0; i < BATCH * IMAGE; i++)
        x[i] = (float)(check_random(&seed) % 2001) / 500 - 1.7f;
}

static program_array batch_of(float *x, int first, int count) {
    return (program_array){TENSOR_TYPE_F32, 4, {count, 3, SIDE, SIDE}, x + (ptrdiff_t)first * IMAGE};
}

static void run(program *p, float *x, float *y, float *sum) {
    const program_array in = batch_of(x, 0, BATCH);
    program_array out[2];
    CHECK(!program_run(p, out, &in), "%s", tensor_error());
    memcpy(y, out[0].data, sizeof(float) * BATCH * CLASSES);
    memcpy(sum, out[1].data, sizeof(float) * BATCH * 4 * SIDE * SIDE);
}

static program *quantised(float *x, const program_quantisation *how, const int *parts) {
    program *const p = make_program();
    int count;
    CHECK(!program_set_format(p, PROGRAM_INT8, NULL, &count) && count == program_node_count(p), "%d nodes", count);
    CHECK(!program_set_quantisation(p, how), "%s", tensor_error());
    for (int done = 0; done < BATCH; done += *parts++) {
        const program_array in = batch_of(x, done, *parts);
        CHECK(!program_calibrate(p, &in), "%s", tensor_error());
    }
    CHECK(!program_freeze(p, 0), "%s", tensor_error());
    return p;
}

static int count_nodes(const program *p, const char *op, bool integers) {
    int count = 0;
    for (int i = 0; i < program_node_count(p); i++) {
        program_node node;
        CHECK(!program_node_at(&node, p, i), "%s", tensor_error());
        count += !strcmp(node.op, op) && node.quantised == integers;
    }
    return count;
}

/* Weights of 8-bit integers as program_weights shows them: scales by the largest magnitude, numbers rounded to steps of
 * them, and how many of those that were not 0 became 0. */
struct weights_seen {
    bool per_channel;
    int bytes, biases;
};

static tensor_status see_weight(void *context, const program_tensor *t) {
    struct weights_seen *const seen = context;
    const float *const shown = t->numbers.data;
    const bool filters = t->numbers.ndim == 4; /* [4, C, 1, 1]; else [4, CLASSES] */
    const int64_t count = t->numbers.shape[0] * t->numbers.shape[1];
    int64_t flushed = 0;
    CHECK(t->node.quantised && !t->format && !t->saturated && t->original, "%s", t->value);
    if (t->integers != TENSOR_TYPE_I8) {
        CHECK(t->integers == TENSOR_TYPE_I32 && t->numbers.ndim == 1 && t->numbers.shape[0] == 4, "%s", t->value);
        for (int i = 0; i < 4; i++)
            CHECK(fabsf(shown[i] - t->original[i]) < 1e-3f, "%s[%d] = %g, was %g", t->value, i, (double)shown[i],
                  (double)t->original[i]);
        seen->biases++;
        return TENSOR_OK;
    }
    for (int64_t i = 0; i < count; i++) {
        double largest = 0;
        const int64_t own = filters ? i / t->numbers.shape[1] : i % CLASSES;
        for (int64_t j = 0; j < count; j++)
            if (!seen->per_channel || (filters ? j / t->numbers.shape[1] : j % CLASSES) == own)
                largest = fmax(largest, fabs((double)t->original[j]));
        const double step = (double)(float)(largest / 127), integer = rint((double)t->original[i] / step);
        CHECK(shown[i] == (float)(step * integer), "%s[%lld] = %.9g, expected %g steps of %.9g", t->value, (long long)i,
              (double)shown[i], integer, step);
        flushed += t->original[i] != 0 && integer == 0;
    }
    CHECK(t->flushed == flushed, "%s: %lld flushed, expected %lld", t->value, (long long)t->flushed,
          (long long)flushed);
    seen->bytes++;
    return TENSOR_OK;
}

static void check_weights(const program *p, bool per_channel) {
    struct weights_seen seen = {.per_channel = per_channel};
    CHECK(!program_weights(p, see_weight, &seen), "%s", tensor_error());
    CHECK(seen.bytes == 3 && seen.biases == 2, "%d weights and %d biases, expected 3 and 2", seen.bytes, seen.biases);
}

static void test_networks(void) {
    static float x[BATCH * IMAGE], y[3][BATCH * CLASSES], sum[3][BATCH * 4 * SIDE * SIDE];
    static const int whole[] = {BATCH}, parts[] = {1, 5, 2, 4};
    draw_images(x, 23);
    program *p = make_program();
    run(p, x, y[0], sum[0]);
    program_free(p);
    for (int k = 0; k < 16; k++) {
        const program_quantisation how = {
            .method = (program_range_method)(k / 4), .percentile = 99.9, .per_channel = k & 1, .symmetric = k & 2};
        p = quantised(x, &how, whole);
        CHECK(count_nodes(p, "Conv", true) == 2 && count_nodes(p, "MatMul", true) == 1 &&
                  !count_nodes(p, "Add", true) && !count_nodes(p, "Add", false) && count_nodes(p, "Tanh", false) == 1 &&
                  count_nodes(p, "QuantizeLinear", false) == 2 && count_nodes(p, "DequantizeLinear", false) == 2,
              "case %d: the quantised network has %d nodes", k, program_node_count(p));
        CHECK(!strcmp(program_rounding(p), "exact"), "rounding %s", program_rounding(p));
        check_weights(p, how.per_channel);
        run(p, x, y[1], sum[1]);
        program_free(p);
        p = quantised(x, &how, parts);
        run(p, x, y[2], sum[2]);
        program_free(p);
        CHECK(!memcmp(y[1], y[2], sizeof y[1]) && !memcmp(sum[1], sum[2], sizeof sum[1]),
              "case %d: results follow from how images were divided", k);
        double error = 0, size = 0;
        for (int i = 0; i < BATCH * 4 * SIDE * SIDE; i++) {
            error += pow((double)sum[1][i] - (double)sum[0][i], 2);
            size += pow((double)sum[0][i], 2);
        }
        CHECK(error < 0.0025 * size, "case %d: an error of %g of the numbers' size", k, sqrt(error / size));
    }
}

/* Scales, weights and bias of one convolution, and its results, from the definition. */
static void test_convolution(void) {
    static float x[BATCH * IMAGE];
    static const int64_t image[] = {-1, 3, SIDE, SIDE}, filters[] = {4, 3, 1, 1}, bias[] = {4};
    draw_images(x, 31);
    for (int per_channel = 0; per_channel < 2; per_channel++) {
        uint64_t random = 29;
        struct fl_network *const n = fl_network_new(FL_NET_ONNX);
        const int in = part_value(n, 4, image), w = part_constant(n, 4, filters, &random);
        const int b = part_constant(n, 1, bias, &random);
        const int out = part_node(n, "Conv", 3, (const int[]){in, w, b});
        float weights[12], biases[4];
        memcpy(weights, n->values[w].constant->data, sizeof weights);
        memcpy(biases, n->values[b].constant->data, sizeof biases);
        for (int i = 0; i < 12; i++) /* filters of different sizes, one of zeros */
            ((float *)n->values[w].constant->data)[i] = weights[i] *= (float)(i / 3);
        part_ports(n, 1, &in, 1, &out);
        program *p;
        CHECK(!fl_program_of(&p, n, false), "%s", tensor_error());
        const program_array images = batch_of(x, 0, BATCH);
        const program_quantisation how = {.method = PROGRAM_MINMAX, .per_channel = per_channel};
        program_array y;
        CHECK(!program_run(p, &y, &images), "%s", tensor_error());
        float least = INFINITY, largest = -INFINITY, y_least = INFINITY, y_largest = -INFINITY;
        for (int i = 0; i < BATCH * IMAGE; i++) {
            least = fminf(least, x[i]);
            largest = fmaxf(largest, x[i]);
        }
        for (int i = 0; i < BATCH * 4 * SIDE * SIDE; i++) {
            y_least = fminf(y_least, ((float *)y.data)[i]);
            y_largest = fmaxf(y_largest, ((float *)y.data)[i]);
        }
        CHECK(!program_set_format(p, PROGRAM_INT8, NULL, NULL) && !program_set_quantisation(p, &how) &&
                  !program_calibrate(p, &images) && !program_freeze(p, 0) && !program_run(p, &y, &images),
              "%s", tensor_error());
        const float s_x = (float)(((double)largest - (double)least) / 255);
        const float s_y = (float)(((double)y_largest - (double)y_least) / 255);
        const double z_x = rint(-(double)least / (double)s_x), z_y = rint(-(double)y_least / (double)s_y);
        int wrong = 0;
        for (int i = 0; i < BATCH * 4 * SIDE * SIDE; i++) {
            const int k = i / (SIDE * SIDE) % 4, at = i / (4 * SIDE * SIDE) * IMAGE + i % (SIDE * SIDE);
            double most = fabs((double)biases[k]) * 0x1p-30 / (double)s_x * 127, sum = 0;
            for (int j = 0; j < 12; j++)
                if (!per_channel || j / 3 == k)
                    most = fmax(most, fabs((double)weights[j]));
            const double s_w = (double)(float)(most / 127);
            for (int c = 0; c < 3; c++) {
                const double q = fmin(fmax(rint((double)(x[at + c * SIDE * SIDE] / s_x)) + z_x, 0), 255) - z_x;
                sum += q * rint((double)weights[3 * k + c] / s_w);
            }
            sum += rint((double)biases[k] / ((double)s_x * s_w));
            const double q_y = fmin(fmax(rint(sum * ((double)s_x * s_w / (double)s_y)) + z_y, 0), 255) - z_y;
            wrong += ((float *)y.data)[i] != (float)(q_y * (double)s_y);
        }
        CHECK(!wrong, "%d of %d results are not those of the definition", wrong, BATCH * 4 * SIDE * SIDE);
        program_free(p);
    }
}

static void test_refusals(void) {
    static float x[BATCH * IMAGE];
    static const int whole[] = {BATCH};
    program_quantisation how = {.per_channel = true};
    const program_array in = batch_of(x, 0, BATCH);
    draw_images(x, 41);
    program *p = make_program();
    how.method = (program_range_method)7;
    CHECK(program_set_quantisation(p, &how) == TENSOR_E_ARGUMENT, "method 7 was taken");
    how = (program_quantisation){.method = PROGRAM_PERCENTILE, .percentile = 50};
    CHECK(program_set_quantisation(p, &how) == TENSOR_E_ARGUMENT, "percentile 50 was taken");
    CHECK(program_set_quantisation(NULL, &how) == TENSOR_E_ARGUMENT, "NULL was taken");
    CHECK(!program_calibrate(p, &in) && !program_set_format(p, PROGRAM_INT8, NULL, NULL), "%s", tensor_error());
    CHECK(program_calibrate(p, &in) == TENSOR_E_ARGUMENT, "int8 within a calibration was taken");
    CHECK(program_freeze(p, 0) == TENSOR_E_ARGUMENT, "a calibration without histograms was taken");
    program_free(p);
    how = (program_quantisation){.per_channel = true};
    p = quantised(x, &how, whole);
    CHECK(program_set_format(p, FMT_FP16, "Conv", NULL) == TENSOR_E_UNSUPPORTED, "integers became floats");
    CHECK(program_set_node_format(p, 1, FMT_FP32) == TENSOR_E_UNSUPPORTED, "integers became floats: '%s'",
          tensor_error());
    CHECK(!program_set_format(p, FMT_FP16, "Tanh", NULL), "%s", tensor_error());
    CHECK(program_freeze(p, 0) == TENSOR_E_ARGUMENT, "a second freezing without calibration was taken");
    program_free(p);
}

/* Writes the first file with one text of it replaced. */
static void edit(const char *from, const char *to, const char *old, const char *fresh) {
    static char text[20000], *at;
    FILE *f = fopen(from, "r");
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    at = strstr(text, old);
    CHECK(at, "no '%s' in %s", old, text);
    f = fopen(to, "w");
    fprintf(f, "%.*s%s%s", (int)(at - text), text, fresh, at + strlen(old));
    fclose(f);
}

static void test_scales(void) {
    static float x[BATCH * IMAGE], y[3][BATCH * CLASSES], sum[3][BATCH * 4 * SIDE * SIDE];
    static const int whole[] = {BATCH};
    static const char *const wrong[][2] = {{"name,type", "type,name"},
                                           {"v0,uint8", "none,uint8"},
                                           {"v0,uint8", "v0,uint16"},
                                           {"v0,uint8,", "v0,uint8,-"},
                                           {"v0,uint8,", "v0,uint8,nan"},
                                           {"v0,uint8", "v0"},
                                           {"v0,uint8", "\"v0,uint8"},
                                           {"v0,uint8", "v0,uint8,1,0,0,0,0\nv0,uint8"},
                                           {"v0,uint8,", "v0,uint8,1,256,0,0,0\nv0,uint8"}};
    const program_quantisation how = {.method = PROGRAM_MSE, .per_channel = true};
    const program_array in = batch_of(x, 0, BATCH);
    char path[] = "/tmp/flexlab-scales-XXXXXX", other[] = "/tmp/flexlab-scales-XXXXXX";
    close(mkstemp(path));
    close(mkstemp(other));
    draw_images(x, 43);
    program *p = quantised(x, &how, whole);
    run(p, x, y[0], sum[0]);
    CHECK(!program_scales_write(p, path), "%s", tensor_error());
    program_free(p);
    p = make_program();
    CHECK(!program_set_format(p, PROGRAM_INT8, NULL, NULL) && !program_set_quantisation(p, &how) &&
              !program_calibrate(p, &in) && !program_scales_write(p, other),
          "%s", tensor_error());
    program_free(p);
    p = make_program();
    CHECK(!program_set_format(p, PROGRAM_INT8, NULL, NULL), "%s", tensor_error());
    const int nodes = program_node_count(p);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        edit(path, other, wrong[i][0], wrong[i][1]);
        CHECK(program_scales_read(p, other) == TENSOR_E_DATA && strstr(tensor_error(), ", line ") &&
                  program_node_count(p) == nodes,
              "'%s' was taken, or: %s", wrong[i][1], tensor_error());
    }
    CHECK(program_scales_read(p, "/nowhere/scales") == TENSOR_E_IO, "a file that is not there was read");
    CHECK(!program_scales_read(p, path), "%s", tensor_error());
    run(p, x, y[1], sum[1]);
    CHECK(!memcmp(y[0], y[1], sizeof y[0]) && !memcmp(sum[0], sum[1], sizeof sum[0]), "other results by the file");
    program_free(p);
    edit(path, other, "v0,uint8,0.0", "v0,uint8,0.1");
    p = make_program();
    CHECK(!program_set_format(p, PROGRAM_INT8, NULL, NULL) && !program_scales_read(p, other), "%s", tensor_error());
    run(p, x, y[2], sum[2]);
    CHECK(memcmp(sum[0], sum[2], sizeof sum[0]) != 0, "an edited scale changes nothing");
    program_free(p);
    unlink(path);
    unlink(other);
}

int main(void) {
    test_scales();
    test_histogram();
    test_splits();
    test_types();
    test_methods();
    test_networks();
    test_convolution();
    test_refusals();
    return check_summary();
}
