/* test_int8_layers.c - convolutions and matrix products of random shapes and types in every rounding, by every kernel
 * set and by one and three threads, against a witness. A failing line names the seed of its case.
 * usage: test_int8_layers [first seed [number of cases]] */
#include "check.h"
#include "core/base/memory.h"
#include "flexlab/tensor.h"
#include "int8_witness.h"
#include <string.h>

struct setting {
    struct fl_int8_layer_spec spec;
    struct fl_int8_type residual;
    int64_t n, h, w, height, width, length; /* terms of a sum */
    uint8_t *x, *weights, *extra;
    float *scale;
    int32_t *bias;
};

static int64_t draw(uint64_t *state, int64_t least, int64_t most) {
    return least + (int64_t)(check_random(state) % (uint64_t)(most - least + 1));
}

static float draw_scale(uint64_t *state) {
    if (draw(state, 0, 3) == 0)
        return ldexpf(1, (int)draw(state, -9, 2)); /* many ties */
    return expf((float)draw(state, -6000, 1000) / 1000);
}

static void draw_bytes(uint64_t *state, uint8_t *x, int64_t n) {
    const int style = (int)draw(state, 0, 4);
    for (int64_t i = 0; i < n; i++)
        x[i] = style == 0   ? (draw(state, 0, 1) ? 0x80 : 0x7f)
               : style == 1 ? (uint8_t)draw(state, -3, 3)
                            : (uint8_t)check_random(state);
}

static struct fl_int8_type draw_type(uint64_t *state) {
    struct fl_int8_type t = {draw_scale(state), 0, draw(state, 0, 1)};
    t.zero = (int32_t)draw(state, t.is_unsigned ? 0 : -128, t.is_unsigned ? 255 : 127);
    if (draw(state, 0, 3) == 0)
        t.zero = t.is_unsigned ? 128 : 0;
    return t;
}

static void draw_shape(uint64_t *state, struct setting *c) {
    struct fl_int8_layer_spec *s = &c->spec;
    const int kind = (int)draw(state, 0, 5);
    struct fl_int8_window *w = &s->window;
    s->groups = kind == 0 ? draw(state, 2, 40) : kind == 1 ? draw(state, 2, 3) : 1;
    s->channels = s->groups * (kind == 0 ? 1 : draw(state, 1, draw(state, 0, 3) ? 40 : 150));
    s->filters = s->groups * (kind == 0 ? draw(state, 1, 5) : draw(state, 1, draw(state, 0, 3) ? 40 : 150));
    const bool matrix = kind == 2;
    w->height = matrix ? 1 : draw(state, 1, 5);
    w->width = matrix ? 1 : draw(state, 1, 5);
    w->stride_h = matrix ? 1 : draw(state, 0, 3);
    w->stride_w = matrix ? 1 : draw(state, 0, 3);
    w->dilation_h = draw(state, 0, 2);
    w->dilation_w = draw(state, 0, 2);
    int64_t *const padding[] = {&w->top, &w->left, &w->bottom, &w->right};
    for (int i = 0; i < 4 && !matrix; i++)
        *padding[i] = draw(state, 0, 1) ? draw(state, 0, 6) : 0;
    c->n = matrix ? 1 : draw(state, 1, 3);
    c->h = matrix ? draw(state, 1, 70) : draw(state, 1, 20);
    c->w = matrix ? 1 : draw(state, 1, draw(state, 0, 5) ? 20 : 90);
    c->height = fl_int8_positions(c->h, w->top, w->bottom, w->height, w->stride_h ? w->stride_h : 1,
                                  w->dilation_h ? w->dilation_h : 1);
    c->width = fl_int8_positions(c->w, w->left, w->right, w->width, w->stride_w ? w->stride_w : 1,
                                 w->dilation_w ? w->dilation_w : 1);
    c->length = w->height * w->width * (s->channels / s->groups);
}

static struct setting draw_setting(uint64_t seed) {
    uint64_t *state = &seed;
    struct setting c = {0};
    struct fl_int8_layer_spec *s = &c.spec;
    do { /* a window that fits, and not too much work */
        c = (struct setting){0};
        draw_shape(state, &c);
    } while (!c.height || !c.width || c.n * c.height * c.width * s->filters * c.length > 1000000);
    s->rounding = (enum fl_int8_rounding)draw(state, 0, FL_INT8_ROUNDINGS - 1);
    s->fully_connected = draw(state, 0, 1);
    s->depthwise = draw(state, 0, 1);
    s->order = draw(state, 0, 1) ? FL_INT8_KRSC : FL_INT8_RSCK;
    s->weights_unsigned = draw(state, 0, 4) == 0;
    s->weights_zero = s->weights_unsigned ? (int32_t)draw(state, 0, 255)
                      : draw(state, 0, 4) ? 0
                                          : (int32_t)draw(state, -128, 127);
    s->x = draw_type(state);
    s->y = draw_type(state);
    s->sums = draw(state, 0, 7) == 0;
    s->per_channel = draw(state, 0, 1);
    if (draw(state, 0, 2) == 0) {
        s->range.low = (int32_t)draw(state, s->y.is_unsigned ? 0 : -128, 100);
        s->range.high = (int32_t)draw(state, s->range.low, s->y.is_unsigned ? 255 : 127);
    }
    const int64_t images = c.n * c.h * c.w * s->channels, weights = s->filters * c.length,
                  results = c.n * c.height * c.width * s->filters;
    c.x = malloc((size_t)images); /* not a byte more: sanitizers see what is read behind it */
    c.weights = malloc((size_t)weights);
    c.scale = malloc((size_t)s->filters * sizeof *c.scale);
    draw_bytes(state, c.x, images);
    draw_bytes(state, c.weights, weights);
    for (int64_t k = 0; k < s->filters; k++)
        c.scale[k] = draw_scale(state);
    if (draw(state, 0, 1)) { /* results that saturate neither always nor never */
        const double wanted = (double)s->x.scale * c.scale[0] * sqrt((double)c.length) * 40;
        s->y.scale = (float)(draw(state, 0, 1) ? exp2(round(log2(wanted))) : wanted);
    }
    if (draw(state, 0, 1)) {
        c.bias = malloc((size_t)s->filters * sizeof *c.bias);
        const int64_t most = draw(state, 0, 5) ? 5000 : INT32_MAX;
        for (int64_t k = 0; k < s->filters; k++)
            c.bias[k] = (int32_t)draw(state, -most, most);
    }
    if (s->rounding == FL_INT8_EXACT && !s->sums && draw(state, 0, 1)) {
        c.residual = draw_type(state);
        if (draw(state, 0, 1))
            c.residual.scale = s->y.scale * ldexpf(1, (int)draw(state, -4, 2));
        c.extra = malloc((size_t)results);
        draw_bytes(state, c.extra, results);
    }
    return c;
}

/* The sum of an output, from its window as if padding were pixels. */
static int64_t witness_sum(const struct setting *c, int64_t n, int64_t y, int64_t x, int64_t k) {
    const struct fl_int8_layer_spec *s = &c->spec;
    const struct fl_int8_window *w = &s->window;
    const int64_t channels = s->channels / s->groups, first = k / (s->filters / s->groups) * channels;
    int64_t sum = 0;
    for (int64_t i = 0; i < c->length; i++) {
        const int64_t channel = i % channels, column = i / channels % w->width, row = i / channels / w->width,
                      at_y = y * (w->stride_h ? w->stride_h : 1) + row * (w->dilation_h ? w->dilation_h : 1) - w->top,
                      at_x =
                          x * (w->stride_w ? w->stride_w : 1) + column * (w->dilation_w ? w->dilation_w : 1) - w->left;
        const bool inside = at_y >= 0 && at_y < c->h && at_x >= 0 && at_x < c->w;
        const int32_t q = inside ? witness_element(c->x, s->x.is_unsigned,
                                                   ((n * c->h + at_y) * c->w + at_x) * s->channels + first + channel)
                                 : s->x.zero,
                      v = witness_element(c->weights, s->weights_unsigned,
                                          s->order == FL_INT8_KRSC ? k * c->length + i : i * s->filters + k);
        sum += (int64_t)(q - s->x.zero) * (v - s->weights_zero);
    }
    return sum;
}

static int64_t witness_result(const struct setting *c, int64_t i, int64_t sum) {
    const struct fl_int8_layer_spec *s = &c->spec;
    const int64_t k = i % s->filters, bias = c->bias ? c->bias[k] : 0;
    const float scale = c->scale[s->per_channel ? k : 0], product = s->x.scale * scale;
    const int32_t acc = (int32_t)(uint32_t)(uint64_t)(sum + bias);
    const double real = (double)s->x.scale * (double)scale / (double)s->y.scale,
                 theirs =
                     (s->fully_connected && !s->per_channel ? (double)product : (double)s->x.scale * (double)scale) /
                     (double)s->y.scale;
    if (s->sums)
        return acc;
    int64_t q = 0;
    if (s->rounding == FL_INT8_EXACT) {
        const struct witness_number m = witness_bits(real, 31, TIES_EVEN),
                                    r = witness_bits(c->extra ? (double)c->residual.scale / (double)s->y.scale : 1, 31,
                                                     TIES_EVEN);
        q = (int64_t)witness_exact(sum + bias, m.integer, -m.exponent,
                                   c->extra ? witness_element(c->extra, c->residual.is_unsigned, i) - c->residual.zero
                                            : 0,
                                   r.integer, -r.exponent);
    } else if (s->rounding == FL_INT8_ONNX || s->rounding == FL_INT8_TFLITE_XNNPACK)
        q = witness_onnx(acc, product / s->y.scale);
    else
        q = witness_tflite(acc, theirs, s->rounding == FL_INT8_TFLITE && s->fully_connected,
                           s->rounding == FL_INT8_TFLITE || (s->depthwise && k >= s->filters / 8 * 8) ? TIES_AWAY
                                                                                                      : TIES_UP);
    const bool whole = !s->range.low && !s->range.high;
    const int64_t low = whole ? (s->y.is_unsigned ? 0 : -128) : s->range.low,
                  high = whole ? (s->y.is_unsigned ? 255 : 127) : s->range.high;
    q = q > 1000 ? 1000 : q < -1000 ? -1000 : q;
    q += s->y.zero;
    return q < low ? low : q > high ? high : q;
}

static void run_setting(const struct setting *c, uint64_t seed) {
    static const char *const sets[] = {"ref", "portable", "avx2", "avx512", "avx512_amx"};
    const struct fl_int8_layer_spec *s = &c->spec;
    const int64_t results = c->n * c->height * c->width * s->filters, size = s->sums ? 4 : 1;
    int64_t *wanted = malloc((size_t)results * sizeof *wanted);
    for (int64_t i = 0; i < results; i++) {
        const int64_t pixel = i / s->filters;
        wanted[i] = witness_result(c, i,
                                   witness_sum(c, pixel / c->width / c->height, pixel / c->width % c->height,
                                               pixel % c->width, i % s->filters));
    }
    for (int set = 0; set < 5; set++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct fl_int8_layer *layer = NULL;
            uint8_t *y = malloc((size_t)(results * size)); /* not a byte more */
            memset(y, 0x55, (size_t)(results * size));
            CHECK(!tensor_set_backend(sets[set]) && !tensor_set_threads(threads), "seed %llu",
                  (unsigned long long)seed);
            CHECK(!fl_int8_pack(s, &layer), "seed %llu: %s", (unsigned long long)seed, tensor_error());
            if (layer)
                CHECK(!fl_int8_conv(layer, c->n, c->h, c->w, c->x, c->extra, y), "seed %llu: %s",
                      (unsigned long long)seed, tensor_error());
            int64_t wrong = 0, first = -1;
            for (int64_t i = 0; i < results && layer; i++) {
                int32_t sum;
                memcpy(&sum, y + (s->sums ? 4 * i : 0), s->sums ? sizeof sum : 1);
                const int64_t found = s->sums ? sum : witness_element(y, s->y.is_unsigned, i);
                if (found != wanted[i]) {
                    wrong++;
                    first = first < 0 ? i : first;
                }
            }
            CHECK(
                !wrong,
                "seed %llu, %s, %d threads, rounding %s: %lld of %lld results differ, first %lld: images %lld x %lld x "
                "%lld x %lld, filters %lld x %lld x %lld, groups %lld",
                (unsigned long long)seed, sets[set], threads, fl_int8_rounding_name(s->rounding), (long long)wrong,
                (long long)results, (long long)first, (long long)c->n, (long long)c->h, (long long)c->w,
                (long long)s->channels, (long long)s->filters, (long long)s->window.height, (long long)s->window.width,
                (long long)s->groups);
            fl_int8_free(layer);
            free(y);
        }
    free(wanted);
}

static void run_seed(uint64_t seed) {
    struct setting c = draw_setting(seed);
    c.spec.weights = c.weights;
    c.spec.weights_scale = c.scale;
    c.spec.bias = c.bias;
    c.spec.residual = c.extra ? &c.residual : NULL;
    run_setting(&c, seed);
    free(c.x);
    free(c.weights);
    free(c.scale);
    free(c.bias);
    free(c.extra);
}

/* One output of a million terms: 64 bits for exact, 32 that wrap for the others. */
static void test_long_sums(void) {
    enum { TERMS = 70000 };
    static int8_t x[TERMS], w[2 * TERMS];
    memset(x, -128, sizeof x);
    memset(w, -127, sizeof w);
    const float scale = 1;
    for (int rounding = 0; rounding < 2; rounding++) {
        struct fl_int8_layer_spec s = {.rounding = (enum fl_int8_rounding)rounding,
                                       .channels = TERMS,
                                       .filters = 2,
                                       .window = {.height = 1, .width = 1},
                                       .weights = w,
                                       .weights_scale = &scale,
                                       .x = {1, 127, false},
                                       .y = {0x1p25f, 0, false}};
        struct fl_int8_layer *layer = NULL;
        int8_t y[2] = {0};
        CHECK(!fl_int8_pack(&s, &layer) && !fl_int8_matmul(layer, 1, x, NULL, y), "%s", tensor_error());
        const int64_t sum = (int64_t)TERMS * 255 * 127; /* 67.56 times 2^25 */
        const int32_t wrapped = (int32_t)(uint32_t)sum;
        const int64_t wanted = rounding ? witness_onnx(wrapped, 0x1p-25f) : 68;
        CHECK(y[0] == wanted && y[1] == wanted, "rounding %d: %d and %d, expected %lld", rounding, y[0], y[1],
              (long long)wanted);
        fl_int8_free(layer);
    }
}

static void test_refusals(void) {
    const int8_t w[8] = {0};
    const float scale = 1, none = 0, tiny = 1e-38f;
    const struct fl_int8_type residual = {1, 0, false};
    const struct fl_int8_layer_spec good = {.channels = 4,
                                            .filters = 2,
                                            .window = {.height = 1, .width = 1},
                                            .weights = w,
                                            .weights_scale = &scale,
                                            .x = {1, 0, false},
                                            .y = {1, 0, false}};
    struct fl_int8_layer *layer = NULL;
    static const char *const expected[] = {"scale",
                                           "zero point of the input",
                                           "zero point of the weights",
                                           "groups",
                                           "window",
                                           "padding",
                                           "residual",
                                           "multiplier",
                                           "clamped",
                                           "rounding"};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct fl_int8_layer_spec s = good;
        switch (i) {
        case 0:
            s.weights_scale = &none;
            break;
        case 1:
            s.x.zero = 128;
            break;
        case 2:
            s.weights_zero = -129;
            break;
        case 3:
            s.groups = 3;
            break;
        case 4:
            s.window.height = 0;
            break;
        case 5:
            s.window.left = -1;
            break;
        case 6:
            s.rounding = FL_INT8_ONNX;
            s.residual = &residual;
            break;
        case 7:
            s.weights_scale = &tiny;
            break;
        case 8:
            s.range = (struct fl_int8_range){5, 4};
            break;
        default:
            s.rounding = FL_INT8_ROUNDINGS;
        }
        layer = NULL;
        CHECK(fl_int8_pack(&s, &layer) && !layer && strstr(tensor_error(), expected[i]), "case %zu: %s", i,
              tensor_error());
    }
    CHECK(!fl_int8_pack(&good, &layer), "%s", tensor_error());
    CHECK(fl_int8_conv(layer, 1, 1, 0, w, NULL, layer) == TENSOR_E_SHAPE, "an image without pixels");
    CHECK(fl_int8_matmul(layer, 1, w, w, layer) == TENSOR_E_ARGUMENT, "a residual that the layer does not have");
    fl_int8_free(layer);
}

int main(int argc, char **argv) {
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t cases = argc > 2 ? strtoull(argv[2], NULL, 10) : 400;
    for (uint64_t seed = first; seed < first + cases; seed++)
        run_seed(seed);
    tensor_set_backend(NULL);
    test_long_sums();
    test_refusals();
    return check_summary();
}
