/* gemm_amx.h - the tile instructions of AMX that the kernels use, as macros over literal tile numbers: one kernel
 * source compiles for the processor, or for tiles in plain C (FL_AMX_EMULATED, gemm_amx_emulated.h), which the tests
 * run on every processor.
 *
 * Assembly rather than intrinsics: those of gcc 12 do not declare that a tile load reads memory, so that compilers may
 * move earlier stores after it. */
#ifndef FL_GEMM_AMX_H
#define FL_GEMM_AMX_H

#include "gemm/gemm_amx_tile.h"
#include <stdint.h>
#include <string.h>

#ifdef FL_AMX_EMULATED
#include "gemm/gemm_amx_emulated.h"
#else
#define AMX_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(config)) : "memory")
#define AMX_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define AMX_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define AMX_LOAD(t, from, stride)                                                                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(from), "r"((int64_t)(stride)) : "memory")
/* The same, with a hint to bypass the first-level cache. */
#define AMX_LOAD_FAR(t, from, stride)                                                                                  \
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t ::"r"(from), "r"((int64_t)(stride)) : "memory")
#define AMX_STORE(t, to, stride)                                                                                       \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(to), "r"((int64_t)(stride)) : "memory")
/* Tile c += a b: 16 x 16 sums of products of bytes, 64 each; S signed, U unsigned, a's first. Sums wrap. */
#define AMX_SS(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define AMX_SU(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define AMX_US(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define AMX_UU(c, a, b) __asm__ volatile("tdpbuud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
/* Binary32 sums of products of bf16, 32 each. */
#define AMX_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#endif

/* All tiles whole: operands are padded to that, so one configuration serves every kernel. Tiles and configuration are
 * the thread's: whoever begins a part of some work configures them, and releases them before it leaves. */
static inline void amx_begin(void) {
    struct amx_config config;
    memset(&config, 0, sizeof config);
    config.palette = 1;
    for (int t = 0; t < AMX_TILES; t++) {
        config.line[t] = AMX_LINE;
        config.rows[t] = AMX_ROWS;
    }
    AMX_CONFIGURE(&config);
}

static inline void amx_end(void) {
    AMX_RELEASE();
}

#endif
