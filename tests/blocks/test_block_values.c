/* tensor_quantise_f32: layouts, in place, counts, formats of tensors, elements, and errors. What blocks become is
 * tested by test_block_quantise. */
#include "blocks/block_quantise.h"
#include "check.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

static uint64_t state = 29;

static float random_float(void) {
    return (float)((double)(int64_t)check_random(&state) * 0x1p-61);
}

enum { A = 3, B = 50, C = 5, ALL = A * B * C };

/* The values of blocks along each dimension, from the rows that fl_block_quantise makes of the same array. */
static void check_layout(const char *text, int dim) {
    static const int64_t shape[] = {A, B, C};
    float x[ALL], y[ALL], z[ALL];
    for (int i = 0; i < ALL; i++)
        x[i] = z[i] = random_float();
    tensor_quantised counts;
    CHECK(!tensor_quantise_f32(y, x, 3, shape, dim, text, 7, &counts), "%s", tensor_error());
    CHECK(!tensor_quantise_f32(z, z, 3, shape, dim, text, 7, NULL) && !memcmp(y, z, sizeof y), "%s in place", text);
    const struct fl_block_format *f;
    struct fl_block_rows rows;
    fl_block_format_find(&f, text);
    const int64_t outer = dim == 0 ? 1 : dim == 1 ? A : A * B, inner = dim == 0 ? B * C : dim == 1 ? C : 1;
    void *memory = aligned_alloc(64, fl_block_place(&rows, f, outer, shape[dim], inner, NULL));
    fl_block_place(&rows, f, outer, shape[dim], inner, memory);
    fl_block_quantise(f, x, outer, shape[dim], inner, &(struct fl_block_how){.key = 7, .signs = 7}, &rows);
    for (int64_t i = 0; i < ALL; i++) {
        const int64_t at[3] = {i / (B * C), i / C % B, i % C};
        const int64_t row = dim == 0 ? i % (B * C) : dim == 1 ? at[0] * C + at[2] : i / C;
        const double want = fl_block_value(&rows, row, at[dim]);
        if (f->hadamard) /* an orthogonal transform keeps the size of the error: a loose bound that a wrong one misses
                          */
            CHECK(fabs((double)y[i] - x[i]) <= 4 * 0.13, "%s [%ld]: %g of %g", text, (long)i, (double)y[i],
                  (double)x[i]);
        else
            CHECK(y[i] == (float)want, "%s dim %d [%ld]: %a, want %a", text, dim, (long)i, (double)y[i], want);
    }
    CHECK(counts.saturated == rows.saturated && counts.flushed == rows.flushed && counts.nonfinite == 0, "%s counts",
          text);
    CHECK(counts.bits == fl_block_format_bits(f), "%s: %g bits", text, counts.bits);
    free(memory);
}

/* Values whose transform the element has come back as they were. */
static void check_transform(void) {
    float x[32], y[32];
    for (int i = 0; i < 32; i++)
        x[i] = 0.5f;
    CHECK(!tensor_quantise_f32(y, x, 1, (int64_t[]){32}, 0, "mx:e5m2:hadamard", 3, NULL), "%s", tensor_error());
    for (int i = 0; i < 32;
         i++) /* 16 sums of signs times 1/8: even integers of at most 3 bits, which the element has */
        CHECK(y[i] == 0.5f, "[%d] = %g of equal values", i, (double)y[i]);
    float a[16] = {0}, b[16];
    a[5] = 1; /* its transform is +-1/4 everywhere, which every element has */
    CHECK(!tensor_quantise_f32(b, a, 1, (int64_t[]){16}, 0, "mx:e2m1:hadamard", 9, NULL), "%s", tensor_error());
    for (int i = 0; i < 16; i++)
        CHECK(a[i] == b[i], "a unit came back with [%d] = %g", i, (double)b[i]);
}

static void check_special(void) {
    float x[64], y[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    x[40] = NAN;
    tensor_quantised counts;
    CHECK(!tensor_quantise_f32(y, x, 1, (int64_t[]){64}, 0, "mx:int8", 0, &counts), "%s", tensor_error());
    CHECK(counts.nonfinite == 32 && counts.blocks == 2, "%ld NaN, %ld blocks", (long)counts.nonfinite,
          (long)counts.blocks);
    for (int i = 0; i < 64; i++)
        CHECK(i < 32 ? y[i] == x[i] : isnan(y[i]), "[%d] = %g", i, (double)y[i]);
    static const struct {
        const char *format;
        float becomes; /* 1: it is refused */
    } of_nan[] = {{"e2m1", 0}, {"e3m2", 0}, {"e4m3fn", NAN}, {"e5m2", NAN}, {"fp16", NAN},
                  {"int8", 1}, {"int4", 1}, {"flex8+5", 1},  {"dfp8", 1},   {"tensor:e4m3fn", 1}};
    for (size_t i = 0; i < sizeof of_nan / sizeof *of_nan; i++) {
        const bool refused = tensor_quantise_f32(y, x + 40, 1, (int64_t[]){1}, 0, of_nan[i].format, 0, NULL);
        CHECK(refused == (of_nan[i].becomes == 1) &&
                  (refused ? strstr(tensor_error(), "nan") != NULL
                           : y[0] == of_nan[i].becomes || (isnan(y[0]) && isnan(of_nan[i].becomes))),
              "NaN in %s: %g, %s", of_nan[i].format, (double)y[0], tensor_error());
    }
}

static void check_others(void) {
    static const char *const formats[] = {"fp32", "fp16", "bf16", "flex16+5", "flex8+5", "dfp8"};
    float x[77], y[77], z[77];
    const int64_t shape[] = {7, 11};
    for (int i = 0; i < 77; i++)
        x[i] = random_float();
    for (int i = 0; i < 6; i++) {
        tensor_format id;
        tensor_format_find(&id, formats[i]);
        tensor *t = tensor_new(id, 2, shape);
        tensor_quantised counts;
        CHECK(!tensor_load_f32(t, x, 77) && !tensor_store_f32(t, z, 77), "%s", tensor_error());
        CHECK(!tensor_quantise_f32(y, x, 2, shape, 1, formats[i], 0, &counts) && !memcmp(y, z, sizeof y), "%s",
              formats[i]);
        CHECK(counts.bits == tensor_format_bits(id) && counts.blocks == 0, "%s: %g bits", formats[i], counts.bits);
        tensor_free(t);
    }
    /* int4: steps of 1/4 up to 7/4, ties to even */
    const float some[8] = {0.125f, 0.375f, -0.374f, 1.8f, 1.874f, 1.875f, -9, 0.1f};
    const float want[8] = {0, 0.5f, -0.25f, 1.75f, 1.75f, 1.75f, -1.75f, 0};
    tensor_quantised counts;
    CHECK(!tensor_quantise_f32(y, some, 1, (int64_t[]){8}, 0, "int4", 0, &counts), "%s", tensor_error());
    for (int i = 0; i < 8; i++)
        CHECK(y[i] == want[i], "int4 of %g: %g, want %g", (double)some[i], (double)y[i], (double)want[i]);
    CHECK(counts.saturated == 2 && counts.flushed == 2 && counts.bits == 4, "int4: %ld saturated, %ld flushed",
          (long)counts.saturated, (long)counts.flushed);
}

static void check_refused(int ndim, int64_t size, int dim, const char *format, const char *says) {
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    const int64_t shape[TENSOR_MAX_DIMS + 1] = {size, 1, 1, 1, 1, 1, 1};
    CHECK(tensor_quantise_f32(y, x, ndim, shape, dim, format, 0, NULL) && strstr(tensor_error(), says), "%s: '%s'",
          format, tensor_error());
    CHECK(y[0] == 0, "%s: written", format);
}

int main(void) {
    static const char *const texts[] = {
        "mx:int8",          "mx:e4m3fn:rceil", "mx:e2m1/8:stochastic",     "nvfp4", "nvfp4:square", "hbfp:int8/1024",
        "mx:int8:hadamard", "channel:int8",    "channel:e4m3fn:stochastic"};
    for (int i = 0; i < 9; i++)
        for (int dim = 0; dim < 3; dim++)
            check_layout(texts[i], dim);
    check_transform();
    check_special();
    check_others();
    check_refused(1, 4, 0, "mx:int8:flor", "character 9");
    check_refused(1, 4, 0, "fp17", "fp17");
    check_refused(1, 4, 1, "mx:int8", "dimension 1 of 1");
    check_refused(0, 4, 0, "mx:int8", "dimension 0 of 0");
    check_refused(TENSOR_MAX_DIMS + 1, 4, 0, "mx:int8", "dimension 0 of 7");
    check_refused(1, 0, 0, "mx:int8", "size 0");
    CHECK(tensor_quantise_f32(NULL, NULL, 1, NULL, 0, "mx:int8", 0, NULL) == TENSOR_E_ARGUMENT, "NULL");
    return check_summary();
}
