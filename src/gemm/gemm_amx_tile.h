/* gemm_amx_tile.h - sizes of the tiles of AMX, and what configures them. */
#ifndef FL_GEMM_AMX_TILE_H
#define FL_GEMM_AMX_TILE_H

#include <stdint.h>

enum {
    AMX_ROWS = 16,                  /* of a tile */
    AMX_LINE = 64,                  /* bytes of a row */
    AMX_TILE = AMX_ROWS * AMX_LINE, /* bytes */
    AMX_TILES = 8
};

/* The operand of LDTILECFG. */
struct amx_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t line[16];
    uint8_t rows[16];
};

#endif
