/* int8_avx512_amx.c - sums of products of bytes on AMX tiles: 16 positions, a line of 64 bytes of each, by 16 filters.
 * The lines lie in the piece as they are; neighbouring positions overlap. */
#include "gemm/gemm_amx.h"
#include "int8/int8_kernels.inc"
#include "int8/int8_finish_avx512.inc"

enum { LINE_GROUPS = AMX_LINE / INT8_GROUP, LINE_BYTES = AMX_LINE * INT8_COLUMNS }; /* of weights */
enum { FEW = 6 }; /* positions that vectors multiply faster */

/* 32 positions by two panels. */
static void two_panels(const struct int8_tile *t, int first) {
    const uint8_t *w = t->weights + first * t->panel_bytes;
    const int64_t row = t->panels * INT8_COLUMNS * (int64_t)sizeof *t->sums;
    int32_t *to = t->sums + first * INT8_COLUMNS;
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    for (int64_t run = 0; run < t->runs; run++) {
        const uint8_t *x = t->x + t->offset[run];
        for (int64_t g = 0; g < t->groups; g += LINE_GROUPS, x += AMX_LINE, w += LINE_BYTES) {
            AMX_LOAD(4, x, t->step);
            AMX_LOAD(6, w, AMX_LINE);
            AMX_US(0, 4, 6);
            AMX_LOAD(7, w + t->panel_bytes, AMX_LINE);
            AMX_US(1, 4, 7);
            AMX_LOAD(5, x + AMX_ROWS * t->step, t->step);
            AMX_US(2, 5, 6);
            AMX_US(3, 5, 7);
        }
    }
    AMX_STORE(0, to, row);
    AMX_STORE(1, to + INT8_COLUMNS, row);
    AMX_STORE(2, (char *)to + AMX_ROWS * row, row);
    AMX_STORE(3, (char *)(to + INT8_COLUMNS) + AMX_ROWS * row, row);
}

static void one_panel(const struct int8_tile *t, int first) {
    const uint8_t *w = t->weights + first * t->panel_bytes;
    const int64_t row = t->panels * INT8_COLUMNS * (int64_t)sizeof *t->sums;
    int32_t *to = t->sums + first * INT8_COLUMNS;
    AMX_ZERO(0);
    AMX_ZERO(1);
    for (int64_t run = 0; run < t->runs; run++) {
        const uint8_t *x = t->x + t->offset[run];
        for (int64_t g = 0; g < t->groups; g += LINE_GROUPS, x += AMX_LINE, w += LINE_BYTES) {
            AMX_LOAD(6, w, AMX_LINE);
            AMX_LOAD(4, x, t->step);
            AMX_US(0, 4, 6);
            AMX_LOAD(5, x + AMX_ROWS * t->step, t->step);
            AMX_US(1, 5, 6);
        }
    }
    AMX_STORE(0, to, row);
    AMX_STORE(1, (char *)to + AMX_ROWS * row, row);
}

static void sums(const struct int8_tile *t) {
#ifndef FL_AMX_EMULATED
    if (t->positions <= FEW) {
        fl_int8_avx512.sums(t);
        return;
    }
#endif
    int v = 0;
    for (; v + 2 <= t->panels; v += 2)
        two_panels(t, v);
    if (v < t->panels)
        one_panel(t, v);
}

static void begin(void) {
    amx_begin();
}

static void end(void) {
    amx_end();
}

const struct int8_kernels fl_int8_avx512_amx = {.element = 1,
                                                .run_groups = LINE_GROUPS,
                                                .positions = 2 * AMX_ROWS,
                                                .begin = begin,
                                                .end = end,
                                                .sums = sums,
                                                .finish = finish,
                                                .depthwise = depthwise,
                                                .add = add_vectors,
                                                .widen = widen,
                                                .flip = flip};
