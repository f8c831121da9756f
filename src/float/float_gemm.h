/* float_gemm.h - matmul and convolution of a float format: elements are converted to binary32 when they are packed, and
 * sums are converted to elements. The micro-kernels in between are those of all float formats
 * (src/gemm/gemm_float_kernels.inc).
 *
 * Expects: a codec (float_block.h); FL_KIND, the name of the format, and FL_ISA, the instruction set, which symbols
 * begin and end with.
 * Gives: gemm_any, gemm_mixed, gemm_accumulate, FL_STORES. The first three are the kernels of all these operations, of
 * one format, of several, and in classes accumulate=GPU; the last the struct gemm_stores of the format. */
#ifndef FL_FLOAT_GEMM_H
#define FL_FLOAT_GEMM_H

#include "core/base/isa.h"
#include "float/float_store.h"
#include "gemm/gemm_epilogue.h"
#include "gemm/gemm_float.h"
#include "gemm/gemm_mixed.h"
#include "tensorcore/tensorcore_product.h"
#include <math.h>

/* --- packing ------------------------------------------------------------------------------------------------------ */

typedef fl_element element;
enum { PER_STEP = 1 };
#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 16 };
typedef __m512i packed_vector;
#elif defined(__AVX2__)
#include <immintrin.h>
enum { LANES = 8 };
typedef __m256i packed_vector;
#else
enum { LANES = 4 };
typedef struct {
    float of[LANES];
} packed_vector;
#endif

static inline packed_vector packed_along(const element *src, int64_t count) {
    _Alignas(64) float x[LANES];
    packed_vector v;
    if (count >= LANES) {
        load_elements(src, LANES, x);
    } else {
        memset(x, 0, sizeof x);
        load_elements(src, count, x);
    }
    memcpy(&v, x, sizeof v);
    return v;
}
static inline packed_vector packed_across(const element *src, int64_t next, int64_t count, int64_t there) {
    (void)next, (void)there;
    return packed_along(src, count);
}
static inline void packed_across_two(const element *src, int64_t next, packed_vector *x) {
    (void)next;
    x[0] = packed_along(src, LANES);
    x[1] = packed_along(src + LANES, LANES);
}
#include "gemm/gemm_pack_panels.inc"

/* Packed elements are floats. */
static inline float *as_floats(gemm_packed *packed) {
    return (float *)(void *)packed;
}

static inline void pack_zeros(gemm_packed *to, int64_t count) {
    memset(to, 0, (size_t)count * sizeof *to);
}

static inline __attribute__((always_inline)) void pack(gemm_packed *to, const element *from, int64_t n) {
    load_elements(from, n, as_floats(to));
}

static void gemm_pack_pixels(gemm_packed *to, int64_t pixel, const void *from, int64_t from_pixel, int64_t count,
                             int64_t depth) {
    if (pixel == depth && depth == from_pixel)
        pack(to, from, count * depth);
    else
        for (int64_t x = 0; x < count; x++)
            pack(to + x * pixel, (const element *)from + x * from_pixel, depth);
}

static void gemm_pack_block(gemm_packed *to, int64_t width, const void *from, int64_t k_stride, int64_t column_stride,
                            int64_t depth, int64_t columns) {
    const element *src = from;
    if (column_stride == 1 && k_stride == columns && columns == width) {
        pack(to, src, depth * columns);
        return;
    }
    if (columns < width)
        pack_zeros(to, depth * width);
    if (column_stride == 1) {
        for (int64_t k = 0; k < depth; k++)
            pack(to + k * width, src + k * k_stride, columns);
        return;
    }
    float line[64], *packed = as_floats(to);
    for (int64_t k = 0; k < depth; k += 64)
        for (int64_t j = 0; j < columns; j++) {
            const int64_t n = smaller(64, depth - k);
            load_elements(src + j * column_stride + k, n, line);
            for (int64_t i = 0; i < n; i++)
                packed[(k + i) * width + j] = line[i];
        }
}

/* Packs each position_step-th pixel of a line. */
static float gemm_pack_image_line(const struct gemm_image_line *line, const void *zero, gemm_packed *to) {
    (void)zero;
    const int64_t end = line->x + line->count, channels = line->channels, step = line->position_step;
    if (!line->row) {
        pack_zeros(to, (line->count + step - 1) / step * channels);
        return 0;
    }
    int64_t x = line->x;
    while (x < end) {
        const bool inside = x >= 0 && x < line->row_pixels;
        int64_t some = 1;
        if (step == 1 && (!inside || channels == line->pixel))
            some = smaller(end, x < 0 ? 0 : inside ? line->row_pixels : end) - x;
        if (inside)
            pack(to, (const element *)line->row + x * line->pixel, some * channels);
        else
            pack_zeros(to, some * channels);
        to += some * channels;
        x += some * step;
    }
    return 0;
}

/* --- depthwise ---------------------------------------------------------------------------------------------------- */

typedef float factor, depthwise_sum;
#ifdef FL_ELEMENT_IS_FLOAT
#define factors_of(src, n, buffer) ((void)(n), (void)(buffer), (src))
#else
#define factors_of(src, n, buffer) (load_elements(src, n, buffer), (buffer))
#endif
#define factor_add(sum, a, b) fmaf(a, b, sum)
#define DEPTHWISE_ORDERED 1
#include "gemm/gemm_depthwise.inc"

#ifdef FL_ELEMENT_IS_FLOAT
#include "gemm/gemm_depthwise_float.inc"
#else
enum { WEIGHT_PARTS = 1 };
#define gemm_depthwise_pack_float gemm_depthwise_pack
#define gemm_depthwise_line_float gemm_depthwise_line
#define gemm_depthwise_weights_float gemm_depthwise_weights
#endif

/* --- stores ------------------------------------------------------------------------------------------------------- */

static void gemm_add_epilogue(float *restrict y, int64_t n, const float *restrict sums, const float *restrict bias,
                              const float *restrict residual, bool positive) {
    if (positive)
        for (int64_t j = 0; j < n; j++)
            y[j] = relu(sums[j] + bias[j] + residual[j]);
    else
        for (int64_t j = 0; j < n; j++)
            y[j] = sums[j] + bias[j] + residual[j];
}

/* Adds bias and residual and applies ReLU, each in binary32, then rounds once. */
static void gemm_store(const struct fl_args *args, int64_t first, int64_t n, const float *sums,
                       struct fl_stats *stats) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    if (!gemm_has_epilogue(e)) {
        store_block(args, first, n, sums, stats);
        return;
    }
    static const float nothing[GEMM_EPILOGUE_RUN] = {[0 ... GEMM_EPILOGUE_RUN - 1] =
                                                         -0.0f}; /* x + -0 is x, also for -0 */
    float results[GEMM_EPILOGUE_RUN], of_bias[GEMM_EPILOGUE_RUN], of_residual[GEMM_EPILOGUE_RUN];
    struct gemm_bias room;
    room.count = 0;
    for (int64_t some, most = fl_gemm_epilogue_run(e, n); n > 0; n -= some, first += some, sums += some) {
        some = smaller(n, most);
        const element *bias = fl_gemm_bias(e, first, some, sizeof *bias, &room),
                      *residual = gemm_residual(e, first, sizeof *residual);
        gemm_add_epilogue(results, some, sums, bias ? floats_of(bias, some, of_bias) : nothing,
                          residual ? floats_of(residual, some, of_residual) : nothing, e->relu);
        store_block(args, first, some, results, stats);
    }
}

static void gemm_store_sums(const struct fl_args *args, int64_t first, int64_t n, const struct gemm_sums *sums,
                            void *stats) {
    gemm_store(args, first, n, (const float *)(const void *)sums->low, stats);
}

static void gemm_store_rows(const struct fl_args *args, int64_t first, int64_t pitch, int64_t rows, int64_t columns,
                            const struct gemm_sums *sums, void *stats) {
    const bool plain = !gemm_has_epilogue(&args->p.product.epilogue);
    if (plain && pitch == columns && sums->stride == columns) { /* rows without gaps: statistics once for all */
        store_block(args, first, rows * columns, (const float *)(const void *)sums->low, stats);
        return;
    }
    for (int64_t r = 0; r < rows; r++, first += pitch) {
        const float *row = (const float *)(const void *)(sums->low + r * sums->stride);
        if (plain)
            store_block(args, first, columns, row, stats);
        else
            gemm_store(args, first, columns, row, stats);
    }
}

static void gemm_store_finish(const struct fl_args *args, const void *stats) {
    fl_stats_merge(args->stats, stats);
}

/* --- the family --------------------------------------------------------------------------------------------------- */

static const struct gemm_packing packing = {
    .element_bytes = sizeof(element),
    .per_step = PER_STEP,
#ifdef FL_ELEMENT_IS_FLOAT
    .plain = true,
#endif
    .panels = gemm_pack_panels,
    .block = gemm_pack_block,
    .pixels = gemm_pack_pixels,
    .image_line = gemm_pack_image_line,
    .hole = fl_gemm_float_hole,
};

static const struct gemm_depthwise_kernels depthwise = {
    .weight_bytes = WEIGHT_PARTS * sizeof(factor),
    .pack = gemm_depthwise_pack_float,
    .line = gemm_depthwise_line_float,
    .weights = gemm_depthwise_weights_float,
};

#define FL_STORES FL_FOR_ISA(FL_JOIN(FL_JOIN(fl, FL_KIND), stores))
extern const struct gemm_stores FL_STORES;
const struct gemm_stores FL_STORES = {
    .element_bytes = sizeof(element),
    .sum_bytes = sizeof(float),
    .stats_bytes = sizeof(struct fl_stats),
#ifdef FL_ELEMENT_IS_FLOAT
    .plain = true,
#endif
    .sums = gemm_store_sums,
    .rows = gemm_store_rows,
    .finish = gemm_store_finish,
};

static const struct gemm_family family = {.ordered = true,
                                          .kernels = &FL_FOR_ISA(fl_gemm_float),
                                          .packing = &packing,
                                          .depthwise = &depthwise,
                                          .stores = &FL_STORES};

static tensor_status gemm_any(const struct fl_args *args) {
    return fl_gemm(&family, args);
}

static size_t gemm_need(const struct fl_args *args) {
    return fl_gemm_need(&family, args);
}

static tensor_status gemm_mixed(const struct fl_args *args) {
    return fl_gemm_mixed(&family, &FL_FOR_ISA(fl_gemm_mixed_float), args);
}

static size_t gemm_mixed_need(const struct fl_args *args) {
    return fl_gemm_mixed_need(&family, &FL_FOR_ISA(fl_gemm_mixed_float), args);
}

static tensor_status gemm_accumulate(const struct fl_args *args) {
    return fl_tensorcore_product(&FL_FOR_ISA(fl_tensorcore), &FL_FOR_ISA(fl_gemm_mixed_float), args);
}

#endif
