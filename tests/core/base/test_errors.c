/* Bad input: every call names what is wrong in its message, with the values, changes nothing, and survives a failing
 * allocator. */
#include "host_numbers.h"
#include "check.h"
#include "core/base/memory.h"
#include "core/tensor/tensor_object.h"
#include "flexlab/flexlab.h"
#include "flexlab/tensor_blocks.h"
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#define REFUSED(call, status, fragment)                                                                                \
    do {                                                                                                               \
        tensor_status refused = (call);                                                                                \
        CHECK(refused == (status), #call ": status %d (%s)", (int)refused, tensor_error());                            \
        CHECK(strstr(tensor_error(), fragment), #call ": \"%s\" lacks \"%s\"", tensor_error(), fragment);              \
    } while (0)
#define NOT_MADE(call, fragment)                                                                                       \
    do {                                                                                                               \
        CHECK(!(call), #call " succeeded");                                                                            \
        CHECK(strstr(tensor_error(), fragment), #call ": \"%s\" lacks \"%s\"", tensor_error(), fragment);              \
    } while (0)

static void making(void) {
    NOT_MADE(tensor_new((tensor_format)99, TENSOR_SHAPE(2)), "unknown format 99");
    NOT_MADE(tensor_new(FMT_NONE, TENSOR_SHAPE(2)), "unknown format 0");
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE(2, 0)), "dimension 1 is 0");
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE(-3)), "dimension 0 is -3");
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE(1, 1, 1, 1, 1, 1, 1)), "7 dimensions");
    NOT_MADE(tensor_new(FMT_FP32, 0, NULL), "0 dimensions");
    NOT_MADE(tensor_new(FMT_FP32, 2, NULL), "shape is NULL");
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE(INT64_MAX, INT64_MAX)), "2^40 bytes");
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE((int64_t)1 << 32, (int64_t)1 << 32)), "2^40 bytes");
    char memory[256];
    char *aligned = (char *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    NOT_MADE(tensor_new_on(FMT_FP32, TENSOR_SHAPE(100), aligned, 100), "expected at least 400");
    NOT_MADE(tensor_new_on(FMT_FP32, TENSOR_SHAPE(4), aligned + 4, 100), "aligned");
    NOT_MADE(tensor_new_on(FMT_FP32, TENSOR_SHAPE(4), NULL, 100), "NULL");
    tensor_free(NULL);
    CHECK(tensor_count(NULL) == 0 && tensor_dim(NULL, 0) == 0 && !tensor_data(NULL), "NULL has contents");
    tensor_format f = FMT_NONE;
    REFUSED(tensor_format_find(&f, "fp15"), TENSOR_E_ARGUMENT, "flex16+5");
    REFUSED(tensor_format_find(&f, NULL), TENSOR_E_ARGUMENT, "unknown format NULL: expected one of");
    CHECK(!strcmp(tensor_status_name(TENSOR_E_SHAPE), "shape"), "%s", tensor_status_name(TENSOR_E_SHAPE));
}

static void shapes_and_formats(tensor_format f) {
    tensor *a = tensor_new(f, TENSOR_SHAPE(4, 6)), *b = tensor_new(f, TENSOR_SHAPE(5, 7)),
           *y = tensor_new(f, TENSOR_SHAPE(4, 7)),
           *other = tensor_new(f == FMT_FP32 ? FMT_FP16 : FMT_FP32, TENSOR_SHAPE(4, 6)),
           *vec = tensor_new(f, TENSOR_SHAPE(6));
    double ones[42];
    for (int i = 0; i < 42; i++)
        ones[i] = 1;
    tensor_load_f64(y, ones, 28);
    REFUSED(tensor_matmul(y, a, b), TENSOR_E_SHAPE, "b is 5x7, expected 6x7");
    REFUSED(tensor_matmul(y, NULL, b), TENSOR_E_ARGUMENT, "a is NULL");
    REFUSED(tensor_matmul(NULL, a, b), TENSOR_E_ARGUMENT, "y is NULL");
    REFUSED(tensor_matmul_nt(y, a, b), TENSOR_E_SHAPE, "y is 4x7, expected 4x5");
    REFUSED(tensor_add(a, a, b), TENSOR_E_SHAPE, "5x7");
    REFUSED(tensor_add(a, a, other), TENSOR_E_FORMAT, "tensor_convert");
    REFUSED(tensor_add(a, NULL, a), TENSOR_E_ARGUMENT, "NULL");
    REFUSED(tensor_scale(a, a, NAN), TENSOR_E_ARGUMENT, "alpha is");
    REFUSED(tensor_scale(a, a, INFINITY), TENSOR_E_ARGUMENT, "inf");
    REFUSED(tensor_hardtanh(y, y, 2, -1), TENSOR_E_ARGUMENT,
            "hardtanh: the least value is 2, the largest -1, expected");
    REFUSED(tensor_hardtanh_grad(y, y, y, 2, 1.5f), TENSOR_E_ARGUMENT, "hardtanh_grad: the least value is 2");
    REFUSED(tensor_clamp(y, y, 0.5f, 0.25f), TENSOR_E_ARGUMENT, "clamp: the least value is 0.5, the largest 0.25");
    REFUSED(tensor_clamp_grad(y, y, y, 3, -3), TENSOR_E_ARGUMENT, "clamp_grad: the least value is 3, the largest -3");
    REFUSED(tensor_clamp(y, y, NAN, 1), TENSOR_E_ARGUMENT, "clamp: alpha is nan");
    REFUSED(tensor_hardtanh(y, y, -1, NAN), TENSOR_E_ARGUMENT, "hardtanh: beta is nan");
    REFUSED(tensor_clip(y, y, -0.5f), TENSOR_E_ARGUMENT, "clip: alpha is -0.5, expected 0 or more");
    REFUSED(tensor_clip_weight(y, -0.5f), TENSOR_E_ARGUMENT, "clip_weight: limit is -0.5, expected 0 or more");
    CHECK(!tensor_clamp(y, y, 1, 1) && !tensor_clip(y, y, 1), "bounds that let pass what is there: %s", tensor_error());
    REFUSED(tensor_bias(a, a, b), TENSOR_E_SHAPE, "expected [n]");
    REFUSED(tensor_bias(y, y, vec), TENSOR_E_SHAPE, "expected 7");
    REFUSED(tensor_sum_rows(y, a), TENSOR_E_SHAPE, "expected [n]");
    REFUSED(tensor_load_f32(a, (const float *)ones, 7), TENSOR_E_SHAPE, "7 values");
    REFUSED(tensor_load_f32(a, NULL, 24), TENSOR_E_ARGUMENT, "NULL");
    REFUSED(tensor_store_f64(a, ones, 25), TENSOR_E_SHAPE, "25");
    REFUSED(tensor_convert(other, b), TENSOR_E_SHAPE, "5x7");
    REFUSED(tensor_copy(other, a), TENSOR_E_FORMAT, "tensor_convert");
    REFUSED(tensor_sgd_update(a, b, 0.1f), TENSOR_E_SHAPE, "5x7");
    REFUSED(tensor_sgd_update(a, a, 0.1f), TENSOR_E_ARGUMENT, "same tensor");
    int32_t labels[4] = {0, 1, 7, 0};
    double loss = -1;
    REFUSED(host_cross_entropy(&loss, NULL, NULL, y, labels, 1), TENSOR_E_ARGUMENT, "label 2 is 7");
    CHECK(loss == -1, "a refused call wrote the loss");
    double now[28];
    tensor_store_f64(y, now, 28);
    for (int i = 0; i < 28; i++)
        CHECK(now[i] == 1, "a refused call changed y[%d] to %g", i, now[i]);
    if (tensor_format_is_shared(f)) {
        ones[3] = NAN;
        REFUSED(tensor_load_f64(a, ones, 24), TENSOR_E_ARGUMENT, "value 3 is nan");
        ones[3] = -INFINITY;
        REFUSED(tensor_load_f64(a, ones, 24), TENSOR_E_ARGUMENT, "value 3 is -inf");
        REFUSED(tensor_set_predictor(a, "oracle"), TENSOR_E_ARGUMENT, "oracle");
    } else {
        REFUSED(tensor_set_predictor(a, "paper"), TENSOR_E_FORMAT, "no shared exponent");
        if (tensor_format_bytes(f) == 2)
            CHECK(!tensor_set_rounding(a, TENSOR_ROUND_STOCHASTIC, 1), "%s", tensor_error());
        else
            REFUSED(tensor_set_rounding(a, TENSOR_ROUND_STOCHASTIC, 1), TENSOR_E_FORMAT, "stochastic");
    }
    tensor *all[] = {a, b, y, other, vec};
    for (int i = 0; i < 5; i++)
        tensor_free(all[i]);
}

/* x [2,8,8,3], w [5,3,3,3], y [2,8,8,5]. */
static void dilated_and_grouped(tensor_format f, tensor *x, tensor *w, tensor *y) {
    tensor *x6 = tensor_new(f, TENSOR_SHAPE(2, 8, 8, 6)), *w6 = tensor_new(f, TENSOR_SHAPE(4, 3, 3, 3)),
           *y4 = tensor_new(f, TENSOR_SHAPE(2, 8, 8, 4)), *w4 = tensor_new(f, TENSOR_SHAPE(4, 3, 3, 6));
    const tensor_window two = {TENSOR_SQUARE(0, 1, 1), .groups = 2};
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .dilation = {-1, -1}}), TENSOR_E_ARGUMENT,
            "dilation_down is -1, expected 1 to 4095");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .dilation = {4096, 4096}}),
            TENSOR_E_ARGUMENT, "dilation_down is 4096");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .groups = -2}), TENSOR_E_ARGUMENT,
            "groups is -2");
    REFUSED(tensor_conv2d(y, x, w, &two), TENSOR_E_ARGUMENT, "2 groups do not divide 3 channels");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .groups = 3}), TENSOR_E_ARGUMENT,
            "3 groups do not divide 5 filters");
    REFUSED(tensor_conv2d(y4, x6, w4, &two), TENSOR_E_SHAPE, "w is 4x3x3x6, expected 4x3x3x3");
    REFUSED(tensor_conv2d(y4, x6, w6, &(tensor_window){TENSOR_SQUARE(0, 1, 1)}), TENSOR_E_SHAPE,
            "w is 4x3x3x3, expected 4x3x3x6");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .dilation = {5, 5}}), TENSOR_E_SHAPE,
            "a 3x3 filter with dilation 5 covers 11x11 pixels and does not fit a 8x8 image with padding 1");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, 1), .dilation = {2, 2}}), TENSOR_E_SHAPE,
            "expected 2x6x6x5");
    REFUSED(tensor_conv2d_input_grad(x6, y, w6, &two), TENSOR_E_ARGUMENT, "2 groups do not divide 5 filters");
    REFUSED(tensor_conv2d_weight_grad(w4, y4, x6, &two), TENSOR_E_SHAPE, "dw is 4x3x3x6");
    REFUSED(tensor_maxpool2d(y, x, &(tensor_window){TENSOR_SQUARE(2, 1, 0), .dilation = {2, 2}}), TENSOR_E_SHAPE,
            "y is 2x8x8x5, expected 2x6x6x3");
    REFUSED(tensor_maxpool2d(y, x, &(tensor_window){TENSOR_SQUARE(2, 1, 0), .groups = 3}), TENSOR_E_ARGUMENT,
            "3 groups");
    CHECK(!tensor_conv2d(y4, x6, w6, &two) && !tensor_conv2d_input_grad(x6, y4, w6, &two) &&
              !tensor_conv2d_weight_grad(w6, y4, x6, &two),
          "%s", tensor_error());
    tensor *all[] = {x6, w6, y4, w4};
    for (int i = 0; i < 4; i++)
        tensor_free(all[i]);
}

static void epilogues(tensor_format f) {
    tensor *a = tensor_new(f, TENSOR_SHAPE(4, 6)), *b = tensor_new(f, TENSOR_SHAPE(6, 7)),
           *bt = tensor_new(f, TENSOR_SHAPE(7, 6)), *y = tensor_new(f, TENSOR_SHAPE(4, 7)),
           *six = tensor_new(f, TENSOR_SHAPE(6)), *seven = tensor_new(f, TENSOR_SHAPE(7)),
           *foreign = tensor_new(FMT_F32, TENSOR_SHAPE(7)), *row = tensor_new(f, TENSOR_SHAPE(1, 7)),
           *view = tensor_new_view(row, TENSOR_SHAPE(7)), *one = tensor_new(f, TENSOR_SHAPE(1, 6)),
           *x = tensor_new(f, TENSOR_SHAPE(2, 5, 5, 3)), *w = tensor_new(f, TENSOR_SHAPE(7, 3, 3, 3)),
           *z = tensor_new(f, TENSOR_SHAPE(2, 3, 3, 7));
    const tensor_window how = {TENSOR_SQUARE(0, 1, 0)};
    REFUSED(tensor_matmul_fused(y, a, b, &(tensor_epilogue){.bias = six}), TENSOR_E_SHAPE,
            "matmul_fused: bias is 6, expected 7");
    REFUSED(tensor_matmul_nt_fused(y, a, bt, &(tensor_epilogue){.bias = a}), TENSOR_E_SHAPE,
            "matmul_nt_fused: bias is 4x6, expected [n]");
    REFUSED(tensor_matmul_fused(y, a, b, &(tensor_epilogue){.bias = foreign}), TENSOR_E_FORMAT,
            "bias is f32, a type of plain numbers");
    REFUSED(tensor_matmul_fused(y, a, b, &(tensor_epilogue){.residual = a}), TENSOR_E_SHAPE,
            "residual is 4x6, expected 4x7");
    REFUSED(tensor_matmul_fused(y, a, b, &(tensor_epilogue){.bias = seven, .residual = foreign}), TENSOR_E_FORMAT,
            "residual is f32, a type of plain numbers");
    REFUSED(tensor_matmul_fused(row, one, b, &(tensor_epilogue){.bias = view}), TENSOR_E_ARGUMENT,
            "y and bias are the same tensor");
    REFUSED(tensor_matmul_fused(y, a, bt, &(tensor_epilogue){.bias = seven}), TENSOR_E_SHAPE, "y is 4x7, expected 4x6");
    REFUSED(tensor_conv2d_fused(z, x, w, &how, &(tensor_epilogue){.bias = six}), TENSOR_E_SHAPE,
            "conv2d_fused: bias is 6, expected 7");
    REFUSED(tensor_conv2d_fused(z, x, w, &how, &(tensor_epilogue){.residual = x}), TENSOR_E_SHAPE,
            "residual is 2x5x5x3, expected 2x3x3x7");
    REFUSED(tensor_conv2d_fused(z, x, NULL, &how, &(tensor_epilogue){.bias = seven}), TENSOR_E_ARGUMENT, "w is NULL");
    CHECK(!tensor_matmul_fused(y, a, b, &(tensor_epilogue){.bias = seven, .residual = y, .relu = true}) &&
              !tensor_conv2d_fused(z, x, w, &how, &(tensor_epilogue){.bias = seven, .residual = z}),
          "%s", tensor_error());
    tensor *all[] = {a, b, bt, y, six, seven, foreign, view, row, one, x, w, z};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

static void images(tensor_format f) {
    tensor *x = tensor_new(f, TENSOR_SHAPE(2, 8, 8, 3)), *w = tensor_new(f, TENSOR_SHAPE(5, 3, 3, 3)),
           *y = tensor_new(f, TENSOR_SHAPE(2, 8, 8, 5)), *w4 = tensor_new(f, TENSOR_SHAPE(5, 3, 3, 4)),
           *big = tensor_new(f, TENSOR_SHAPE(5, 11, 11, 3)), *half = tensor_new(f, TENSOR_SHAPE(2, 4, 4, 3)),
           *vec = tensor_new(f, TENSOR_SHAPE(3));
    tensor_window same = {TENSOR_SQUARE(0, 1, 1)};
    double mean[5] = {0}, variance[5] = {1, 1, 1, 1, 1};
    REFUSED(tensor_conv2d(y, x, w4, &same), TENSOR_E_SHAPE, "w is 5x3x3x4, expected 5x3x3x3");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, -1, 1)}), TENSOR_E_ARGUMENT, "stride_down is -1");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 1, -1)}), TENSOR_E_ARGUMENT, "padding_top is -1");
    REFUSED(tensor_conv2d(y, x, w, &(tensor_window){TENSOR_SQUARE(0, 2, 1)}), TENSOR_E_SHAPE, "expected 2x4x4x5");
    REFUSED(tensor_conv2d(y, x, big, &same), TENSOR_E_SHAPE, "11x11");
    REFUSED(tensor_conv2d(y, vec, w, &same), TENSOR_E_SHAPE, "[N,H,W,C]");
    dilated_and_grouped(f, x, w, y);
    REFUSED(tensor_conv2d_input_grad(y, x, w, &same), TENSOR_E_SHAPE, "w is 5x3x3x3, expected 3x3x3x5");
    REFUSED(tensor_maxpool2d(half, x, &(tensor_window){TENSOR_SQUARE(0, 2, 0)}), TENSOR_E_ARGUMENT,
            "window_height is 0");
    REFUSED(tensor_maxpool2d(half, x, &(tensor_window){TENSOR_SQUARE(2, 2, 2)}), TENSOR_E_ARGUMENT, "padding 2");
    REFUSED(tensor_maxpool2d(half, x, &(tensor_window){TENSOR_SQUARE(3, 2, 0)}), TENSOR_E_SHAPE, "expected 2x3x3x3");
    REFUSED(tensor_maxpool2d(x, x, &(tensor_window){TENSOR_SQUARE(1, 1, 0)}), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_avgpool_global(vec, x), TENSOR_E_SHAPE, "y is 3, expected [N,C]");
    REFUSED(tensor_shortcut_a(half, x, 3), TENSOR_E_SHAPE, "expected 2x3x3x3");
    REFUSED(tensor_shortcut_a(half, x, 0), TENSOR_E_ARGUMENT, "stride is 0");
    REFUSED(host_batchnorm(x, x, NULL, vec, vec, mean, variance, 1e-5, false), TENSOR_E_ARGUMENT, "same tensor");
    tensor *out = tensor_new(f, TENSOR_SHAPE(2, 8, 8, 3));
    REFUSED(host_batchnorm(out, x, NULL, NULL, vec, mean, variance, 1e-5, true), TENSOR_E_ARGUMENT, "gamma is NULL");
    REFUSED(host_batchnorm(out, x, w, vec, vec, mean, variance, 1e-5, true), TENSOR_E_SHAPE, "residual is 5x3x3x3");
    REFUSED(host_batchnorm(out, x, out, vec, vec, mean, variance, 1e-5, true), TENSOR_E_ARGUMENT,
            "y and residual are the same tensor");
    REFUSED(host_batchnorm(out, x, NULL, vec, vec, mean, variance, 0, false), TENSOR_E_ARGUMENT, "epsilon is 0");
    REFUSED(host_batchnorm(out, x, NULL, vec, w, mean, variance, 1e-5, false), TENSOR_E_SHAPE, "5x3x3x3");
    REFUSED(host_batchnorm(y, x, NULL, vec, vec, mean, variance, 1e-5, false), TENSOR_E_SHAPE, "2x8x8x5");
    REFUSED(host_moments(mean, NULL, x), TENSOR_E_ARGUMENT, "variance is NULL");
    tensor *all[] = {x, w, y, w4, big, half, vec, out};
    for (int i = 0; i < 8; i++)
        tensor_free(all[i]);
}

static void settings(void) {
    REFUSED(tensor_set_threads(-1), TENSOR_E_ARGUMENT, "-1 threads");
    REFUSED(tensor_set_threads(100000), TENSOR_E_ARGUMENT, "100000");
    REFUSED(tensor_set_backend("sse9"), TENSOR_E_ARGUMENT, "sse9");
    CHECK(!tensor_kernel_backend(FMT_FP32, "matmull"), "an unknown op has a kernel");
    CHECK(tensor_kernel_backend(FMT_FP32, "matmul"), "matmul has no kernel");
    CHECK(!tensor_set_backend("ref") && !strcmp(tensor_kernel_backend(FMT_BF16, "add"), "ref"),
          "the cap does not hold");
    tensor_set_backend(NULL);
}

/* Every character of two or three bytes in a message: those that change the direction of a line or end it, control
 * characters and bytes that are no character are shown by their code; the others remain. */
static void shown_characters(void) {
    static const unsigned turning[] = {0x061c, 0x200e, 0x200f, 0x2028, 0x2029, 0x202a, 0x202b, 0x202c,
                                       0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069, 0xffff};
    int shown = 0;
    for (unsigned code = 0x80, next = 0; code < 0xffff; code++) {
        char name[16], expected[16];
        tensor_format f;
        if (code >= 0xd800 && code < 0xe000)
            continue;
        if (code < 0x800)
            snprintf(name, sizeof name, "x%c%cy", (int)(0xc0 | code >> 6), (int)(0x80 | (code & 0x3f)));
        else
            snprintf(name, sizeof name, "x%c%c%cy", (int)(0xe0 | code >> 12), (int)(0x80 | (code >> 6 & 0x3f)),
                     (int)(0x80 | (code & 0x3f)));
        const bool turns = code == turning[next];
        if (turns || code < 0xa0)
            snprintf(expected, sizeof expected, "x\\u%04xy", code);
        else
            strcpy(expected, name);
        next += turns;
        shown += turns;
        CHECK(tensor_format_find(&f, name) && strstr(tensor_error(), expected), "U+%04X: %s", code, tensor_error());
    }
    CHECK(shown == 14, "%d characters are shown by their code", shown);
    static const char *const others[][2] = {
        {"x\xe0\x98\x9cy", "x\\xe0\\x98\\x9cy"}, {"x\xe2\x80", "x\\xe2\\x80"}, {"x\xe2", "x\\xe2"}, {"x\xd8", "x\\xd8"},
        {"x\ny\tz\r", "x\\ny\\tz\\r"},           {"x\033[2J", "x\\x1b[2J"},    {"\177", "\\x7f"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tensor_format f;
        CHECK(tensor_format_find(&f, others[i][0]) && strstr(tensor_error(), others[i][1]), "%zu: %s", i,
              tensor_error());
    }
}

static int hook_calls;
static void count_hook(tensor_status status, const char *message, void *context) {
    (void)status, (void)message;
    hook_calls += *(int *)context;
}

static void hook(void) {
    int one = 1;
    tensor_set_error_hook(count_hook, &one);
    tensor_set_threads(-1);
    tensor_set_error_hook(NULL, NULL);
    tensor_set_threads(-1);
    CHECK(hook_calls == 1, "the hook was called %d times", hook_calls);
}

/* --- an allocator that fails at the n-th call ------------------------------------------------------------------------
 */

static long allocations_left, live_blocks;

static void *failing_allocate(unsigned long size, unsigned long alignment) {
    if (__atomic_sub_fetch(&allocations_left, 1, __ATOMIC_RELAXED) < 0)
        return NULL;
    void *block = aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (block)
        __atomic_add_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    return block;
}

static void failing_release(void *block) {
    __atomic_sub_fetch(&live_blocks, 1, __ATOMIC_RELAXED);
    free(block);
}

/* Two tensors in overlapping memory, at the same address or some elements apart, may be read together; if one is
 * written, the call is refused, and neither is changed. A tensor and its views do not count as two tensors. */
static void overlapping_memory(void) {
    enum { N = 16 };
    static _Alignas(64) int16_t memory[128];
    for (int apart = 0; apart <= 64; apart += 32) {
        tensor *a = tensor_new_on(FMT_FLEX16_5, TENSOR_SHAPE(N, 4), memory, 128);
        tensor *b = tensor_new_on(FMT_FLEX16_5, TENSOR_SHAPE(N, 4), memory + apart, 128);
        tensor *view = tensor_new_view(a, TENSOR_SHAPE(N, 4)), *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(N, 4));
        tensor *square = tensor_new_on(FMT_FLEX16_5, TENSOR_SHAPE(4, 4), memory + apart, 32),
               *vector = tensor_new_on(FMT_FLEX16_5, TENSOR_SHAPE(4), memory + apart, 8),
               *other = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4)), *third = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(4)),
               *floats = tensor_new_on(FMT_BF16, TENSOR_SHAPE(N, 4), memory + apart, 128);
        double loss, mean[4] = {0}, variance[4] = {1, 1, 1, 1};
        int32_t labels[N] = {0};
        for (int i = 0; i < 128; i++)
            memory[i] = (int16_t)(i * 37);
        int16_t before[128];
        memcpy(before, memory, sizeof before);
        CHECK(!tensor_add(y, a, b), "two tensors that are read: %s", tensor_error());
        const tensor_status expected = apart < 64 ? TENSOR_E_ARGUMENT : TENSOR_OK;
        const tensor_status got[] = {tensor_add(a, b, y),
                                     tensor_add(a, a, b),
                                     tensor_relu(b, view),
                                     tensor_matmul(a, y, square),
                                     tensor_bias(a, y, vector),
                                     tensor_matmul_fused(a, y, square, &(tensor_epilogue){.residual = b}),
                                     tensor_sum_rows(vector, a),
                                     tensor_sgd_update(a, b, 0),
                                     tensor_sgd_momentum(a, y, b, 1, 0),
                                     tensor_convert(floats, a),
                                     tensor_convert_at(a, floats, 3),
                                     tensor_copy(a, b),
                                     host_cross_entropy(&loss, a, NULL, b, labels, 1),
                                     host_batchnorm(a, b, NULL, other, other, mean, variance, 1e-5, true),
                                     host_batchnorm(a, y, NULL, other, vector, mean, variance, 1e-5, true),
                                     host_batchnorm_grad(a, vector, third, y, y, NULL, other, mean, variance, 1e-5)};
        for (size_t i = 0; i < sizeof got / sizeof got[0]; i++)
            CHECK(got[i] == expected, "call %zu, %d elements apart: status %d", i, apart, (int)got[i]);
        CHECK(apart == 64 || !memcmp(before, memory, sizeof memory), "a refused call wrote something");
        if (apart < 64)
            REFUSED(tensor_mul(b, y, a), TENSOR_E_ARGUMENT, "mul: y and b are different tensors in overlapping memory");
        CHECK(!tensor_add(a, view, a), "in place through a view: %s", tensor_error());
        tensor *all[] = {view, a, b, y, square, vector, other, third, floats};
        for (int i = 0; i < 9; i++)
            tensor_free(all[i]);
    }
}

/* All that a write may change: elements, wide copy, exponent with its history, statistics. */
enum { SNAPSHOT = 4096 };
struct snapshot {
    unsigned char data[SNAPSHOT], wide[SNAPSHOT];
    size_t data_bytes, wide_bytes;
    struct fl_storage storage;
    struct fl_slot slot;
};

static void snapshot_take(struct snapshot *s, const tensor *t) {
    const size_t count = (size_t)t->count;
    s->data_bytes = count * (size_t)t->format->bytes;
    s->wide_bytes = t->storage->wide ? count * (size_t)t->format->wide_bytes : 0;
    CHECK(s->data_bytes <= SNAPSHOT && s->wide_bytes <= SNAPSHOT, "no room for %lld elements", (long long)t->count);
    memcpy(s->data, t->storage->data, s->data_bytes);
    memcpy(s->wide, t->storage->wide ? t->storage->wide : s->wide, s->wide_bytes);
    memcpy(&s->storage, t->storage, sizeof s->storage);
    memcpy(&s->slot, t->storage->slot, sizeof s->slot);
}

static bool snapshot_same(const struct snapshot *s, const tensor *t) {
    return !memcmp(s->data, t->storage->data, s->data_bytes) && !memcmp(&s->storage, t->storage, sizeof s->storage) &&
           !memcmp(&s->slot, t->storage->slot, sizeof s->slot) &&
           (!s->wide_bytes || !memcmp(s->wide, t->storage->wide, s->wide_bytes));
}

/* The call works, or fails for lack of memory with a message and leaves `out` as it was. */
#define WORKS_OR_LEAVES(out, call)                                                                                     \
    do {                                                                                                               \
        static struct snapshot before;                                                                                 \
        snapshot_take(&before, out);                                                                                   \
        const tensor_status status = (call);                                                                           \
        if (!status)                                                                                                   \
            break;                                                                                                     \
        CHECK(status == TENSOR_E_MEMORY && *tensor_error(), #call ": status %d (%s)", (int)status, tensor_error());    \
        CHECK(snapshot_same(&before, out), #call ": failed and changed " #out);                                        \
        return false;                                                                                                  \
    } while (0)

enum { X, W, Y, M, G, V, DW, DV, VECTOR, TENSORS };

static bool operations(tensor **t) {
    float values[512];
    for (int i = 0; i < 512; i++)
        values[i] = (float)(i % 17) - 8;
    const tensor_window how = {TENSOR_SQUARE(0, 1, 1)};
    double mean[5], variance[5], sum = -1, loss = -1;
    int32_t labels[4] = {0, 1, 2, 3};
    for (int i = 0; i < 5; i++)
        mean[i] = variance[i] = -1;
    WORKS_OR_LEAVES(t[W], tensor_keep_wide(t[W]));
    WORKS_OR_LEAVES(t[X], tensor_load_f32(t[X], values, 288));
    WORKS_OR_LEAVES(t[W], tensor_load_f32(t[W], values, 180));
    WORKS_OR_LEAVES(t[M], tensor_load_f32(t[M], values, 288));
    WORKS_OR_LEAVES(t[VECTOR], tensor_load_f32(t[VECTOR], values + 9, 5));
    WORKS_OR_LEAVES(t[Y], tensor_conv2d(t[Y], t[X], t[W], &how));
    const tensor_epilogue with = {.bias = t[VECTOR], .residual = t[Y], .relu = true};
    WORKS_OR_LEAVES(t[Y], tensor_conv2d_fused(t[Y], t[X], t[W], &how, &with));
    WORKS_OR_LEAVES(t[X], tensor_conv2d_input_grad(t[X], t[Y], t[W], &how));
    WORKS_OR_LEAVES(t[DW], tensor_conv2d_weight_grad(t[DW], t[Y], t[X], &how));
    WORKS_OR_LEAVES(t[G], tensor_matmul(t[G], t[M], t[V]));
    WORKS_OR_LEAVES(t[W], tensor_sgd_update(t[W], t[DW], 0.01f));
    WORKS_OR_LEAVES(t[DV], tensor_sgd_momentum(t[DV], t[DW], t[W], 0.9f, 1e-4f));
    const tensor_status moments = host_moments(mean, variance, t[Y]);
    CHECK(!moments || (mean[0] == -1 && variance[4] == -1), "failed moments were written");
    const tensor_status summed = moments ? moments : tensor_sum(&sum, t[Y]);
    CHECK(!summed || sum == -1, "a failed sum was written");
    if (summed)
        return false;
    for (int i = 0; i < 5; i++)
        variance[i] += 1;
    WORKS_OR_LEAVES(t[Y], tensor_bias(t[Y], t[Y], t[VECTOR]));
    WORKS_OR_LEAVES(t[Y], tensor_add(t[Y], t[Y], t[Y]));
    WORKS_OR_LEAVES(t[VECTOR], tensor_sum_rows(t[VECTOR], t[Y]));
    WORKS_OR_LEAVES(t[G], tensor_scale(t[G], t[G], 0.5f));
    WORKS_OR_LEAVES(t[G], host_cross_entropy(&loss, t[G], NULL, t[G], labels, 1));
    return true;
}

/* Exercises a little of everything; true if all of it worked. */
static bool exercise(tensor_format f) {
    tensor *t[TENSORS] = {
        [X] = tensor_new(f, TENSOR_SHAPE(2, 6, 6, 4)),  [W] = tensor_new(f, TENSOR_SHAPE(5, 3, 3, 4)),
        [Y] = tensor_new(f, TENSOR_SHAPE(2, 6, 6, 5)),  [M] = tensor_new(f, TENSOR_SHAPE(4, 72)),
        [G] = tensor_new(f, TENSOR_SHAPE(4, 4)),        [DW] = tensor_new(f, TENSOR_SHAPE(5, 3, 3, 4)),
        [DV] = tensor_new(f, TENSOR_SHAPE(5, 3, 3, 4)), [VECTOR] = tensor_new(f, TENSOR_SHAPE(5))};
    t[V] = t[X] ? tensor_new_view(t[X], TENSOR_SHAPE(72, 4)) : NULL;
    bool ok = true;
    for (int i = 0; i < TENSORS; i++)
        ok = ok && t[i];
    ok = ok && operations(t);
    tensor_free(t[V]);
    for (int i = 0; i < TENSORS; i++)
        if (i != V)
            tensor_free(t[i]);
    return ok;
}

struct exercise {
    tensor_format format;
    bool ok;
};

static void *exercise_once(void *pointer) {
    struct exercise *e = pointer;
    e->ok = exercise(e->format);
    return NULL;
}

/* Exercises on a new thread, whose kernels have no workspace from earlier calls. */
static bool exercise_anew(tensor_format f) {
    struct exercise e = {f, false};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, exercise_once, &e) && !pthread_join(thread, NULL), "no thread");
    return e.ok;
}

static void failing_memory(tensor_format f) {
    int refused = 0;
    tensor_set_threads(1);
    for (int cap = 0; cap < 2; cap++) {
        tensor_set_backend(cap ? "ref" : NULL); /* the reference kernels allocate much */
        for (long n = 0; n < 400; n++) {
            allocations_left = n;
            long before = live_blocks;
            tensor_set_allocator(failing_allocate, failing_release);
            bool ok = exercise_anew(f);
            tensor_set_allocator(NULL, NULL);
            refused += !ok;
            CHECK(live_blocks == before, "%s: %ld blocks leaked with %ld allocations", tensor_format_name(f),
                  live_blocks - before, n);
            if (ok)
                break;
            CHECK(n < 399, "%s: still failing with 399 allocations: %s", tensor_format_name(f), tensor_error());
        }
    }
    tensor_set_backend(NULL);
    tensor_set_threads(0);
    CHECK(refused > 10, "only %d of the allocations were made to fail", refused);
}

int main(void) {
    making();
    settings();
    shown_characters();
    hook();
    overlapping_memory();
    for (int i = 0; tensor_format_at(i); i++) {
        shapes_and_formats(tensor_format_at(i));
        images(tensor_format_at(i));
        epilogues(tensor_format_at(i));
        failing_memory(tensor_format_at(i));
    }
    return check_summary();
}
