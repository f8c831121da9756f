/* Products and convolutions of the sizes for which a device has tiles, which test_gpu_ops rarely draws, and conversions
 * of numbers, on the device "cuda" and by the reference kernels of the host: elements, exponents and statistics must be
 * the same bits.
 *
 *     test_gpu_products [SEED [COUNT [FUNCTION [FORMAT]]]]
 *
 * COUNT: of products drawn; from 60 on also of so many matrices that none is split.
 * FUNCTION: matmul, conv2d, batched, depthwise, few, strided, thin, mixed, numbers, large; "": all but large; one of
 * `shapes`, computed in FORMAT; or fast, FORMAT being a GPU: class fast and fast:tf32 (fast:sums=fp16) on the device
 * against class accumulate=GPU of the host.
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. */
#define _GNU_SOURCE
#include "core/queue/queue.h"
#include "flexlab/blocks_windows.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_windows.h"
#include "on_gpu.h"
#include "same_state.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 3, PLACES = 2 };
typedef int64_t shape4[4];

static tensor_device *gpu;
static uint64_t seed = 1;
static int compared;
static tensor_class class[PLACES]; /* of results */
static tensor_format factor[2];    /* of the operands of a product; 0: that of its result */

static int between(int low, int high) {
    return low + (int)(check_random(&seed) % (uint64_t)(high - low + 1));
}

/* Elements near the ends of a format's range, few that are not zero, or any, among them numbers that are not finite,
 * huge or subnormal, or all so small that sums of fp16 are 0 or -0, or that those of binary32 are (7; 8: most of them
 * negative), or some so large that tf32 rounds them to infinity (9). style < 0: none are loaded. */
static void make(tensor *t[PLACES], tensor_format format, int ndim, const int64_t *shape, int style) {
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    static const double odd[] = {NAN, INFINITY, 0x1p128, 0x1p16, 0x1p-126, 0x1p-14};
    float *v = malloc((size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) {
        const double u = (double)(int64_t)check_random(&seed) * 0x1p-63;
        v[i] = (float)(style == 1   ? (u < 0 ? -1 : 1) * 32767.0 / 32768
                       : style == 2 ? -32513.0 / 32768
                       : style == 3 ? (check_random(&seed) % 8 ? 0 : u)
                       : style == 6 ? 0x1p-13 * u
                       : style == 7 ? 0x1p-75 * u
                       : style == 8 ? (check_random(&seed) % 20 ? -0x1p-75 : 0x1p-75) * fabs(u)
                       : style == 5 && check_random(&seed) % 256 == 0 ? odd[check_random(&seed) % 6] * u
                       : style == 9 && check_random(&seed) % 256 == 0 ? 0x1.ffffp127
                                                                      : u);
    }
    for (int p = 0; p < PLACES; p++) {
        t[p] = p ? tensor_new_in(gpu, format, ndim, shape) : tensor_new(format, ndim, shape);
        CHECK(t[p] && (style < 0 || !tensor_load_f32(t[p], v, n)), "%s", tensor_error());
    }
    free(v);
}

static void compare(tensor *t[PLACES], const char *what) {
    const int64_t n = tensor_count(t[0]);
    double *v[PLACES] = {malloc((size_t)n * sizeof **v), malloc((size_t)n * sizeof **v)};
    tensor_stats stats[PLACES][2];
    for (int p = 0; p < PLACES; p++)
        CHECK(!tensor_store_f64(t[p], v[p], n) && !tensor_statistics(&stats[p][0], &stats[p][1], t[p]), "%s: %s", what,
              tensor_error());
    int64_t at = 0;
    while (at < n && same_double(v[0][at], v[1][at]))
        at++;
    CHECK(at == n, "%s: element %" PRId64 " of %" PRId64 " is %a, ref %a", what, at, n, v[1][at], v[0][at]);
    CHECK(same_stats(&stats[0][0], &stats[1][0]) && same_stats(&stats[0][1], &stats[1][1]), "%s: statistics", what);
    const struct fl_slot *a = fl_slot_of(t[0]), *b = fl_slot_of(t[1]);
    CHECK(a && b && a->e == b->e && same_autoflex(&a->autoflex, &b->autoflex), "%s: the exponent or its state", what);
    free(v[0]);
    free(v[1]);
    compared++;
}

static const char *formats_of(tensor_format f) {
    static char text[80];
    if (!factor[0])
        return tensor_format_name(f);
    snprintf(text, sizeof text, "%s by %s to %s", tensor_format_name(factor[0]), tensor_format_name(factor[1]),
             tensor_format_name(f));
    return text;
}

static void free_all(tensor *t[OPERANDS][PLACES], int count) {
    for (int i = 0; i < count; i++)
        for (int p = 0; p < PLACES; p++)
            tensor_free(t[i][p]);
}

typedef tensor_status product(tensor *, const tensor *, const tensor *);

/* batch 0: of two matrices. */
static void matrices(tensor_format f, int kind, int batch, int m, int n, int k, int style, int writes) {
    static product *const functions[2][3] = {
        {tensor_matmul, tensor_matmul_nt, tensor_matmul_tn},
        {tensor_matmul_batched, tensor_matmul_batched_nt, tensor_matmul_batched_tn}};
    const int64_t shapes[OPERANDS][3] = {
        {batch, m, n}, {batch, kind == 2 ? k : m, kind == 2 ? m : k}, {batch, kind == 1 ? n : k, kind == 1 ? k : n}};
    char what[200];
    tensor *t[OPERANDS][PLACES];
    for (int i = 0; i < OPERANDS; i++)
        make(t[i], i && factor[0] ? factor[i - 1] : f, batch ? 3 : 2, shapes[i] + !batch, i ? style : -1);
    for (int i = 0; i < writes; i++)
        for (int p = 0; p < PLACES; p++)
            CHECK(!tensor_set_class(class[p]) && !functions[batch > 0][kind](t[0][p], t[1][p], t[2][p]), "%s",
                  tensor_error());
    snprintf(what, sizeof what, "%s %s of %d x %d x %d, batch %d, style %d", formats_of(f),
             (const char *[]){"matmul", "matmul_nt", "matmul_tn"}[kind], m, n, k, batch, style);
    compare(t[0], what);
    free_all(t, OPERANDS);
}

static void matmul(tensor_format f, int kind, int m, int n, int k, int style, int writes) {
    matrices(f, kind, 0, m, n, k, style, writes);
}

/* So many matrices that they fill no tile. */
static void batched(tensor_format f) {
    for (int kind = 0; kind < 3; kind++)
        matrices(f, kind, 200, 2, 3, 17, 0, 1);
}

/* How many windows there are along one side; 0 or less: it does not fit. */
static int windows(int size, int window, const tensor_window *how, int side) {
    const int room =
        size + how->padding[2 * side] + how->padding[2 * side + 1] - how->dilation[side] * (window - 1) - 1;
    return room < 0 ? 0 : room / how->stride[side] + 1;
}

static void conv2d(tensor_format f, int kind, int batch, int h, int w, int channels, int filters, int r, int s,
                   tensor_window how, int style, int writes) {
    char what[300];
    tensor *t[OPERANDS][PLACES]; /* x, filters, y */
    const int p = windows(h, r, &how, 0), q = windows(w, s, &how, 1);
    if (p < 1 || q < 1)
        return;
    const tensor_format a = factor[0] ? factor[0] : f, b = factor[0] ? factor[1] : f;
    make(t[0], kind == 1 ? f : a, 4, (const shape4){batch, h, w, channels}, kind == 1 ? -1 : style);
    make(t[1], kind == 2 ? f : b, 4, (const shape4){filters, r, s, channels / how.groups},
         kind == 2    ? -1
         : style == 7 ? 8
                      : style);
    make(t[2], kind == 0 ? f : kind == 1 ? a : b, 4, (const shape4){batch, p, q, filters}, kind == 0 ? -1 : style);
    for (int i = 0; i < writes; i++)
        for (int at = 0; at < PLACES; at++)
            CHECK(!tensor_set_class(class[at]) &&
                      !(kind == 0   ? tensor_conv2d(t[2][at], t[0][at], t[1][at], &how)
                        : kind == 1 ? tensor_conv2d_input_grad(t[0][at], t[2][at], t[1][at], &how)
                                    : tensor_conv2d_weight_grad(t[1][at], t[2][at], t[0][at], &how)),
                  "%s", tensor_error());
    snprintf(what, sizeof what,
             "%s %s of %d x %d x %d x %d, filters %d x %d x %d, stride %d %d, padding %d %d, dilation %d %d, groups %d",
             formats_of(f), (const char *[]){"conv2d", "conv2d_input_grad", "conv2d_weight_grad"}[kind], batch, h, w,
             channels, filters, r, s, how.stride[0], how.stride[1], how.padding[0], how.padding[2], how.dilation[0],
             how.dilation[1], how.groups);
    compare(t[kind == 0 ? 2 : kind == 1 ? 0 : 1], what);
    free_all(t, OPERANDS);
}

/* Groups of one channel, which fill no tile. */
static void depthwise(tensor_format f) {
    enum { CHANNELS = 140 };
    const tensor_window how = {.stride = {1, 2}, .padding = {1, 1, 0, 2}, .dilation = {1, 1}, .groups = CHANNELS};
    for (int kind = 0; kind < 3; kind++)
        conv2d(f, kind, 2, 9, 8, CHANNELS, CHANNELS, 3, 3, how, 0, 1);
}

/* Few channels and few filters, read in pieces and element by element. */
static void few(tensor_format f) {
    const tensor_window how = {.stride = {1, 1}, .padding = {1, 1, 1, 1}, .dilation = {1, 1}, .groups = 1};
    for (int kind = 0; kind < 3; kind++)
        for (int style = 0; style < 3; style++) {
            conv2d(f, kind, 2, 11, 9, 16, 24, 3, 3, how, style, 1);
            conv2d(f, kind, 2, 11, 9, 24, 16, 3, 3, how, style, 1);
            conv2d(f, kind, 1, 12, 9, 5, 13, 3, 3, how, style, 1);
        }
}

/* Input gradients whose stride leaves filter positions out, with sums of one chain and of several, which end within a
 * position and between two, and padding that is the same on all sides or not. Filters that are no numbers count there,
 * in tf32 those that it rounds to infinity too, and so do the signs of sums that underflow. most: the largest k. */
static void strided(tensor_format f, int most) {
    const int styles[] = {0, 5, 7, f == FMT_FP16 ? 6 : 9};
    const int count = f == FMT_FP32 || f == FMT_FP16 ? 4 : f == FMT_BF16 ? 3 : 1;
    static const struct {
        int h, w, channels, filters, r, s, stride[2], padding, groups;
    } all[] = {
        {9, 8, 16, 16, 3, 3, {2, 2}, 1, 1},  {8, 8, 24, 64, 3, 3, {2, 2}, 1, 1},  {7, 9, 16, 96, 3, 3, {2, 2}, 0, 1},
        {7, 6, 40, 128, 3, 3, {2, 2}, 1, 1}, {9, 7, 32, 64, 2, 3, {1, 2}, 1, 2},  {11, 8, 9, 16, 4, 3, {3, 2}, 2, 1},
        {7, 7, 16, 320, 1, 1, {2, 2}, 0, 1}, {6, 9, 3, 80, 5, 5, {2, 3}, 2, 1},   {8, 8, 16, 24, 3, 3, {2, 2}, 1, 1},
        {5, 5, 8, 224, 3, 3, {2, 2}, 1, 1},  {5, 5, 8, 1040, 2, 2, {2, 2}, 0, 1}, {19, 18, 8, 16, 3, 3, {9, 8}, 1, 1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int k = all[i].filters / all[i].groups * all[i].r * all[i].s;
        const int padding = all[i].padding, more = padding + (i % 4 == 1);
        for (int j = 0; k <= most && j < count; j++)
            conv2d(f, 1, 2, all[i].h, all[i].w, all[i].channels, all[i].filters, all[i].r, all[i].s,
                   (tensor_window){.stride = {all[i].stride[0], all[i].stride[1]},
                                   .padding = {padding, more, more, padding},
                                   .dilation = {1, 1},
                                   .groups = all[i].groups},
                   styles[j], 1);
    }
}

/* Few filters, more or fewer than tiles have rows, and channels whose positions end at the end of a tile or elsewhere;
 * aligned or not, in groups, with strides, dilations and uneven padding. */
static void thin(tensor_format f) {
    static const int filters[] = {1, 8, 15, 16, 17, 24, 31, 33}, channels[] = {16, 3, 8, 32, 1, 17, 24, 40};
    for (int i = 0; i < 64; i++) {
        const int groups = i % 5 == 3 ? 3 : 1;
        const tensor_window how = {.stride = {1 + i % 2, 1 + i % 9 / 8},
                                   .padding = {i % 3, 1, 0, i % 4},
                                   .dilation = {1 + i % 7 / 6, 1 + i % 11 / 10},
                                   .groups = groups};
        conv2d(f, 2, 3, 9 + i % 4, 13, groups * channels[i / 8], groups * filters[i % 8], i % 8 < 4 ? 3 : 1 + i % 3,
               i % 8 < 4 ? 3 : 1 + i / 3 % 3, how, i % 3, 1);
    }
    const tensor_window same = {.stride = {1, 1}, .padding = {1, 1, 1, 1}, .dilation = {1, 1}, .groups = 1};
    static const int split[][2] = {{16, 16}, {3, 16}, {8, 8}}; /* channels, filters; of long tiles, and of thin ones */
    for (int i = 0; i < 3; i++)
        conv2d(f, 2, 5, 30, 31, split[i][0], split[i][1], 3, 3, same, 2, 1);
}

/* Sizes that are multiples of eight, which tiles read in pieces, and others. */
static void draw(tensor_format f, const char *only) {
    const int style = between(0, 4), eight = between(0, 2) ? 8 : 1;
    if (*only ? !strcmp(only, "matmul") : between(0, 1)) {
        const bool deep = between(0, 3) == 0; /* few results of many products are split */
        matmul(f, between(0, 2), eight * between(1, (deep ? 64 : 160) / eight),
               eight * between(1, (deep ? 64 : 160) / eight),
               eight * (deep ? between(2048 / eight, 5000 / eight) : between(1, 500 / eight)), style, 2);
        return;
    }
    const int groups = between(0, 2) ? 1 : between(1, 4);
    conv2d(f, between(0, 2), between(1, 4), between(1, 18), between(1, 18), groups * eight * between(1, 40 / eight),
           groups * eight * between(1, 48 / eight), between(1, 4), between(1, 4),
           (tensor_window){.stride = {between(1, 3), between(1, 3)},
                           .padding = {between(0, 3), between(0, 3), between(0, 3), between(0, 3)},
                           .dilation = {between(1, 2), between(1, 2)},
                           .groups = groups},
           style, 2);
}

/* Float operands of any formats, whose products with a result of another one have exact bits in class fast as well. */
static void mixed(const tensor_format *formats, int count) {
    enum { FIRST_FLOAT = 2 };
    CHECK(!tensor_class_find(&class[1], "fast:tf32"), "%s", tensor_error());
    for (int i = 0; i < 3 * count; i++) {
        const tensor_format f = formats[between(0, count - 1)];
        do
            for (int j = 0; j < 2; j++)
                factor[j] = formats[between(FIRST_FLOAT, count - 1)];
        while (factor[0] == f && factor[1] == f);
        draw(f, "");
    }
    factor[0] = 0;
    class[1] = TENSOR_EXACT;
}

/* Class fast and what may be requested with it, of k that the device does not split. Of fp16 sums only the h100 has a
 * record. */
static void fast(const char *name, int count) {
    static const struct way {
        tensor_format format;
        const char *fast, *accumulates;
        int matmul, conv2d; /* the largest k, and channels of 16 positions of a filter */
    } ways[] = {{FMT_FP16, "", "", 1000, 48},
                {FMT_BF16, "", "", 1000, 48},
                {FMT_FP32, ":tf32", "", 500, 24},
                {FMT_FP16, ":sums=fp16", ":sums=fp16", 1000, 48}};
    const int given = strcmp(name, "h100") ? 3 : 4;
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error()); /* the quickest, which test_tensorcore holds to the same */
    const tensor_window same = {.stride = {1, 1}, .padding = {1, 1, 1, 1}, .dilation = {1, 1}, .groups = 1};
    for (int i = 0; i < count; i++) {
        const struct way *way = &ways[i % given];
        const tensor_format f = way->format;
        const int eight = between(0, 2) ? 8 : 1, style = between(0, 5), most = way->conv2d / eight;
        char text[PLACES][60];
        snprintf(text[0], sizeof text[0], "accumulate=%s%s", name, way->accumulates);
        snprintf(text[1], sizeof text[1], "fast%s", way->fast);
        for (int p = 0; p < PLACES; p++)
            CHECK(!tensor_class_find(&class[p], text[p]), "%s", tensor_error());
        if (i < given)
            strided(f, f == FMT_FP32 ? 511 : 1023);
        for (int kind = 0; i < given && kind < 3; kind++) { /* every tile and layout; the largest costs most */
            const int tiny = f == FMT_FP16 ? 6 : 7, groups = between(12, 20); /* of 16 steps of k */
            matmul(f, kind, 21, 12, between(1, 60), tiny, 1);
            matmul(f, kind, 21, 12, groups * 16 + between(1, 7), tiny, 1);
            matmul(f, kind, 24, 16, groups * 16 + 8, tiny, 1);
            conv2d(f, kind, 1, 10, 7, 8, 8, 3, 3, same, tiny, 1);
            if (count < 8)
                continue;
            matmul(f, kind, 1088, 1024, kind ? 24 : 72, 0, 1);
            matmul(f, kind, 40, 72, 88, style, 1);
            matmul(f, kind, 37, 75, 85, style, 1);
            matmul(f, kind, 40, 72, 88, 6, 1);
            conv2d(f, kind, 1, 9, 7, 16, 24, 3, 3, same, style, 1);
            conv2d(f, kind, 1, 9, 7, 48, 40, 3, 3, same, style, 1);
            conv2d(f, kind, 1, 9, 7, 37, 35, 3, 3, same, style, 1);
        }
        if (between(0, 1)) {
            matmul(f, between(0, 2), eight * between(1, 160 / eight), eight * between(1, 160 / eight),
                   eight * between(1, way->matmul / eight), style, 2);
            continue;
        }
        const int groups = between(0, 2) ? 1 : between(1, 4);
        conv2d(f, between(0, 2), between(1, f == FMT_FP32 ? 1 : 2), between(1, 15), between(1, 15),
               groups * eight * between(1, most), groups * eight * between(1, most), between(1, 4), between(1, 4),
               (tensor_window){.stride = {between(1, 3), between(1, 3)},
                               .padding = {between(0, 2), between(0, 2), between(0, 2), between(0, 2)},
                               .dilation = {between(1, 2), between(1, 2)},
                               .groups = groups},
               style, 2);
    }
}

/* The largest tile; and k beyond where sums of 32 bits end. */
static void large(const tensor_format *formats, int count) {
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error()); /* the quickest, which test_gemm_shapes holds to the same */
    matmul(FMT_FLEX16_5, 0, 1400, 1152, 72, 0, 1);
    matmul(FMT_DFP16, 1, 1536, 1056, 328, 1, 1);
    matmul(FMT_FLEX16_5, 2, 1416, 1152, 136, 3, 1);
    matmul(FMT_DFP16, 0, 64, 64, 65432, 2, 1);
    for (int i = 2; i < count; i++) /* floats */
        for (int kind = 0; kind < 3; kind++)
            matmul(formats[i], kind, 1088, 1024, 24, 0, 1);
}

/* Products large enough for the inner loops of tiles to decide how many instructions a product takes; conv2d as ResNets
 * have them. */
static const struct shape {
    const char *name;
    int kind; /* of matmul, or of conv2d */
    int m, n, k;
    int batch, side, channels, filters, window, stride;
} shapes[] = {
    {"nn", 0, 256, 256, 1024, 0, 0, 0, 0, 0},        {"nt", 1, 256, 256, 1024, 0, 0, 0, 0, 0},
    {"tn", 2, 256, 256, 1024, 0, 0, 0, 0, 0},        {"nn-large", 0, 1536, 1408, 96, 0, 0, 0, 0, 0},
    {"nt-large", 1, 1536, 1408, 96, 0, 0, 0, 0, 0},  {"tn-large", 2, 1536, 1408, 96, 0, 0, 0, 0, 0},
    {"forward-16", 0, 0, 0, 0, 4, 32, 16, 16, 3},    {"forward-64", 0, 0, 0, 0, 16, 8, 64, 64, 3},
    {"input-16", 1, 0, 0, 0, 4, 32, 16, 16, 3},      {"input-64", 1, 0, 0, 0, 16, 8, 64, 64, 3},
    {"weights-16", 2, 0, 0, 0, 4, 32, 16, 16, 3},    {"weights-64", 2, 0, 0, 0, 16, 8, 64, 64, 3},
    {"forward-3", 0, 0, 0, 0, 4, 32, 3, 16, 3},      {"weights-3", 2, 0, 0, 0, 4, 32, 3, 16, 3},
    {"forward-32", 0, 0, 0, 0, 8, 16, 32, 32, 3},    {"weights-32", 2, 0, 0, 0, 8, 16, 32, 32, 3},
    {"strided-32", 1, 0, 0, 0, 8, 32, 16, 32, 3, 2}, {"strided-64", 1, 0, 0, 0, 16, 16, 32, 64, 3, 2},
};

static bool shaped(const char *name, tensor_format f) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        if (strcmp(name, s->name))
            continue;
        CHECK(!tensor_set_backend(NULL), "%s", tensor_error()); /* the quickest, as of `large` */
        const int stride = s->stride ? s->stride : 1;
        const tensor_window how = {
            .stride = {stride, stride}, .padding = {1, 1, 1, 1}, .dilation = {1, 1}, .groups = 1};
        if (s->m)
            matmul(f, s->kind, s->m, s->n, s->k, 0, 1);
        else
            conv2d(f, s->kind, s->batch, s->side, s->side, s->channels, s->filters, s->window, s->window, how, 0, 1);
        const double pixels = (double)s->batch * s->side * s->side / (stride * stride);
        printf("products %.0f\n",
               s->m ? (double)s->m * s->n * s->k : pixels * s->channels * s->filters * s->window * s->window);
        return true;
    }
    return false;
}

/* Numbers of every kind to elements, twice so that the second has another exponent; and to a tensor with a wide part.
 */
static void numbers(tensor_format f) {
    enum { N = 777 };
    const tensor_format kinds[] = {FMT_F64, FMT_F32, FMT_I32, FMT_U8};
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++)
        for (int wide = 0; wide < 2; wide++) {
            tensor *t[OPERANDS][PLACES];
            char what[80];
            double v[N];
            float v32[N];
            int32_t whole[N];
            uint8_t bytes[N];
            for (int i = 0; i < N; i++) {
                bytes[i] = (uint8_t)between(0, 255);
                whole[i] = between(-30000, 30000);
                v[i] = whole[i] * 0x1.23456789p-9;
                v32[i] = (float)v[i];
            }
            for (int p = 0; p < PLACES; p++) {
                t[0][p] = p ? tensor_new_in(gpu, f, TENSOR_SHAPE(N)) : tensor_new(f, TENSOR_SHAPE(N));
                t[1][p] = p ? tensor_new_in(gpu, kinds[k], TENSOR_SHAPE(N)) : tensor_new(kinds[k], TENSOR_SHAPE(N));
                CHECK(t[0][p] && t[1][p] &&
                          !(k == 0   ? tensor_load_f64(t[1][p], v, N)
                            : k == 1 ? tensor_load_f32(t[1][p], v32, N)
                            : k == 2 ? tensor_load_i32(t[1][p], whole, N)
                                     : tensor_load_u8(t[1][p], bytes, N)),
                      "%s", tensor_error());
                CHECK(!wide || !tensor_keep_wide(t[0][p]), "%s", tensor_error());
                for (int i = 0; i < 2; i++)
                    CHECK(!tensor_convert(t[0][p], t[1][p]), "%s", tensor_error());
            }
            snprintf(what, sizeof what, "%s from %s%s", tensor_format_name(f), tensor_format_name(kinds[k]),
                     wide ? ", wide" : "");
            compare(t[0], what);
            free_all(t, 2);
        }
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const int count = argc > 2 ? atoi(argv[2]) : 60;
    const char *only = argc > 3 ? argv[3] : "", *format = argc > 4 ? argv[4] : "";
    int status;
    if (!has_gpu(&status))
        return status;
    gpu = tensor_device_find("cuda");
    CHECK(!tensor_set_backend("ref"), "%s", tensor_error());
    tensor_format formats[] = {FMT_FLEX16_5, FMT_DFP16, FMT_FP32, FMT_BF16, FMT_FP16, 0};
    enum { FORMATS = sizeof formats / sizeof *formats };
    CHECK(!tensor_format_find(&formats[FORMATS - 1], "e4m3fn"), "%s", tensor_error());
    if (!strcmp(only, "fast")) {
        fast(format, count);
        printf("%d results compared\n", compared);
        return check_summary();
    }
    tensor_format shape_format = FMT_FP32;
    CHECK(!*format || !tensor_format_find(&shape_format, format), "%s", tensor_error());
    if (shaped(only, shape_format))
        return check_summary();
    for (int i = 0; i < count && (!*only || !strcmp(only, "matmul") || !strcmp(only, "conv2d")); i++) {
        const int drawn = between(0, FORMATS);
        const tensor_format f = formats[drawn < 2 ? drawn : drawn - 2]; /* mantissas twice as often */
        if (!*format || f == shape_format)
            draw(f, only);
    }
    for (int i = 0; i < FORMATS; i++) {
        if (*format && formats[i] != shape_format)
            continue;
        if (count && (!*only || !strcmp(only, "batched"))) {
            batched(formats[i]);
            /* so many that none is split, longer than a chain */
            if (count >= 60 && (formats[i] == FMT_FP32 || formats[i] == FMT_FP16))
                matrices(formats[i], 1, 270, 24, 20, 1032, 0, 1);
        }
        if (count && (!*only || !strcmp(only, "depthwise")))
            depthwise(formats[i]);
        if (count && (!*only || !strcmp(only, "few")))
            few(formats[i]);
        if (count && (!*only || !strcmp(only, "strided")))
            strided(formats[i], INT_MAX);
        if (count && i < 2 && (!*only || !strcmp(only, "thin"))) /* mantissas */
            thin(formats[i]);
        if (!*only || !strcmp(only, "numbers"))
            numbers(formats[i]);
    }
    if (!*only || !strcmp(only, "mixed"))
        mixed(formats, FORMATS);
    if (!strcmp(only, "large"))
        large(formats, FORMATS);
    printf("%d results compared\n", compared);
    return check_summary();
}
