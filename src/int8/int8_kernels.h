/* int8_kernels.h - what an instruction set gives for convolutions and matrix products: the sums of a tile, and how they
 * are rounded.
 *
 * A piece of the images is copied to memory of the worker, padded, [rows][width][channels of the group]: as uint8,
 * where an int8 has 128 added, or as int16 less its zero point. What a window reads in it are runs of neighbours: the
 * pixels of a line, or single pixels where the window is dilated. A run is cut into groups of 4 bytes, 4 or 2 elements,
 * and filled up with weights of zero. Weights are packed in panels of 16 filters: for each run, group and filter 4
 * bytes. */
#ifndef FL_INT8_KERNELS_H
#define FL_INT8_KERNELS_H

#include "int8/int8_layer.h"
#include <stddef.h>

enum {
    INT8_COLUMNS = 16,    /* filters of a panel */
    INT8_GROUP = 4,       /* bytes */
    INT8_PANELS_MOST = 4, /* of a tile */
    INT8_POSITIONS_MOST = 32,
    INT8_BEYOND = 64 /* bytes that kernels may read behind what the last position of a tile reads */
};

/* positions x (panels * 16) sums of products. Kernels compute whole blocks of positions: up to INT8_POSITIONS_MOST, so
 * that they read and write what lies behind the last. */
struct int8_tile {
    const uint8_t *x;      /* the first position */
    int64_t step;          /* bytes from a position to the next */
    const int64_t *offset; /* of each run, in bytes from its position */
    int64_t runs, groups;  /* groups of a run */
    const uint8_t *weights;
    int64_t panel_bytes;
    int panels;
    int64_t positions;
    int32_t *sums; /* [positions][panels * 16], 64-byte aligned */
};

/* Sums of a tile, of filters first ... first + count - 1 of a group, rounded and stored. */
struct int8_finish {
    const struct fl_int8_layer *layer;
    int64_t slot;   /* of the first filter among those of the layer, each group filled up to whole panels */
    int64_t filter; /* the same filter in the output */
    int64_t count;
    const int32_t *sums;
    int64_t row, positions;
    const int64_t *place; /* the pixel of the output for each position; negative: none */
    const uint8_t *residual;
    void *y;
};

struct int8_depthwise {
    const struct fl_int8_layer *layer;
    const int16_t *x;                      /* the piece, its channels repeated for each filter */
    int64_t step;                          /* elements from a position to the next */
    const int64_t *offset;                 /* of each of the taps, in elements */
    int64_t taps, first, count, positions; /* filters */
    int32_t *sums;                         /* [positions][count filled up to 16] */
};

/* y = a + b, element by element. */
struct int8_addition {
    enum fl_int8_rounding rounding;
    struct fl_int8_type a_type, b_type, y_type;
    int32_t low, high; /* before the zero point is added */
    const void *a, *b;
    void *y;
    int64_t count;
    struct int8_multiplier of_a, of_b, of_sum;
    double real_a, real_b;  /* exact: coefficient 2^-shift */
    float fixed;            /* onnx: z_y - (z_a factor_a + z_b factor_b) */
    int32_t scaled[2][256]; /* tflite: rescaled operands, by their bits */
    void (*add)(const struct int8_addition *s, int64_t from, int64_t to);
};

struct int8_kernels {
    int element;         /* bytes: 1 or 2 */
    int64_t run_groups;  /* runs are filled up to a multiple of this */
    int64_t positions;   /* of a tile */
    void (*begin)(void); /* before and after the tiles of a part; NULL: nothing */
    void (*end)(void);
    void (*sums)(const struct int8_tile *tile);
    void (*finish)(const struct int8_finish *finish);
    void (*depthwise)(const struct int8_depthwise *tile);
    void (*add)(const struct int8_addition *s, int64_t from, int64_t to);
    /* n elements of x to the piece. */
    void (*widen)(const uint8_t *x, int64_t n, const struct fl_int8_type *type, int16_t *to);
    void (*flip)(const uint8_t *x, int64_t n, uint8_t *to);
};

/* The fastest under the cap in force, NULL for the definition; of those that multiply bytes only with `bytes`. */
tensor_status int8_choose_kernels(bool bytes, const struct int8_kernels **kernels);

extern const struct int8_kernels fl_int8_portable;
#ifdef FL_HAVE_AVX2
extern const struct int8_kernels fl_int8_avx2;
#endif
#ifdef FL_HAVE_AVX512
extern const struct int8_kernels fl_int8_avx512;
#endif
#ifdef FL_HAVE_AVX512_AMX
extern const struct int8_kernels fl_int8_avx512_amx;
#endif

#endif
