/* gemm_amx_emulated.h - the tile instructions in plain C, after Intel's "Architecture Instruction Set Extensions
 * Programming Reference" (319433), chapter 3: eight tiles for each thread, rows and bytes as configured, zeros beyond
 * them. Misuse (no configuration, sizes that do not fit, a tile twice in a product) ends the process, as the processor
 * would end it. */
#ifndef FL_GEMM_AMX_EMULATED_H
#define FL_GEMM_AMX_EMULATED_H

#include "gemm/gemm_amx_tile.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The products, for wider vectors of the processor as well: the same C. Sanitizers begin after the choice is made. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && !defined __SANITIZE_ADDRESS__ &&                   \
    !defined __SANITIZE_THREAD__ && !defined FL_AMX_VECTORS
#define AMX_PRODUCT(extension)                                                                                         \
    static __attribute__((target_clones("avx512f", extension, "default"), noinline, unused)) void
#else
#define AMX_PRODUCT(extension) static inline void
#endif

struct amx_state {
    struct amx_config config;
    uint8_t tile[AMX_TILES][AMX_ROWS][AMX_LINE];
};

static inline struct amx_state *amx_state(void) {
    static _Thread_local struct amx_state state;
    return &state;
}

static inline void amx_expect(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "emulated tiles: %s\n", what);
    abort();
}

static inline void amx_configure(const struct amx_config *config) {
    amx_expect(config->palette == 1, "the palette is not 1");
    for (int t = 0; t < AMX_TILES; t++)
        amx_expect(config->rows[t] <= AMX_ROWS && config->line[t] <= AMX_LINE, "a tile is too large");
    memset(amx_state(), 0, sizeof *amx_state());
    amx_state()->config = *config;
}

static inline void amx_release(void) {
    memset(amx_state(), 0, sizeof *amx_state());
}

static inline void amx_zero(int t) {
    amx_expect(amx_state()->config.palette == 1, "no configuration");
    memset(amx_state()->tile[t], 0, AMX_TILE);
}

static inline void amx_load(int t, const void *from, int64_t stride) {
    struct amx_state *s = amx_state();
    amx_zero(t);
    for (int r = 0; r < s->config.rows[t]; r++)
        memcpy(s->tile[t][r], (const char *)from + r * stride, s->config.line[t]);
}

static inline void amx_store(int t, void *to, int64_t stride) {
    const struct amx_state *s = amx_state();
    amx_expect(s->config.palette == 1, "no configuration");
    for (int r = 0; r < s->config.rows[t]; r++)
        memcpy((char *)to + r * stride, s->tile[t][r], s->config.line[t]);
}

static inline void amx_expect_fit(int c, int a, int b) {
    const struct amx_config *s = &amx_state()->config;
    amx_expect(s->palette == 1, "no configuration");
    amx_expect(c != a && c != b && a != b, "a product of tiles that are not three");
    amx_expect(s->rows[c] == s->rows[a] && s->line[c] == s->line[b] && s->line[a] == 4 * s->rows[b],
               "a product of tiles whose sizes do not fit");
}

/* Vectors of half a row of sums, which compilers keep in registers where those of a whole row go through memory. */
enum { AMX_HALF = AMX_ROWS / 2 };
typedef int32_t amx_words __attribute__((vector_size(4 * AMX_HALF)));
typedef float amx_sums __attribute__((vector_size(4 * AMX_HALF)));

/* Byte `at` of each four of half a line. */
static inline __attribute__((always_inline)) void amx_each_fourth(amx_sums *to, const uint8_t *line, int at,
                                                                  int is_signed) {
    amx_words words;
    memcpy(&words, line, sizeof words);
    words = words << (24 - 8 * at);
    words = is_signed ? words >> 24 : (words >> 24 & 255);
    *to = __builtin_convertvector(words, amx_sums);
}

/* In binary32, which is fast and exact here: 64 products of bytes stay below 2^24. Then the int32 wraps. Four rows at a
 * time, so that no addition waits for the one before it; rows beyond those configured are zeros and are not stored. */
AMX_PRODUCT("avx2") amx_bytes(int c, int a, int b, int a_signed, int b_signed) {
    enum { TOGETHER = 4 };
    struct amx_state *s = amx_state();
    amx_expect_fit(c, a, b);
    const int depth = s->config.line[a];
    float x[4][AMX_ROWS][AMX_ROWS]; /* by k % 4, row, k / 4 */
    amx_sums y[AMX_LINE][2];
    for (int i = 0; i < 2 * AMX_ROWS; i++)
        for (int at = 0; at < 4; at++) {
            amx_sums some;
            amx_each_fourth(&some, s->tile[a][i / 2] + i % 2 * AMX_LINE / 2, at, a_signed);
            memcpy(&x[at][i / 2][i % 2 * AMX_HALF], &some, sizeof some);
            amx_each_fourth(&y[i / 2 * 4 + at][i % 2], s->tile[b][i / 2] + i % 2 * AMX_LINE / 2, at, b_signed);
        }
    for (int m = 0; m < s->config.rows[c]; m += TOGETHER) {
        amx_sums sums[TOGETHER][2] = {{{0}}};
        for (int k = 0; k < depth; k++)
            for (int row = 0; row < TOGETHER; row++)
                for (int half = 0; half < 2; half++)
                    sums[row][half] += x[k % 4][m + row][k / 4] * y[k][half];
        for (int row = 0; row < TOGETHER && m + row < s->config.rows[c]; row++)
            for (int n = 0; n < s->config.line[c] / 4; n++) {
                uint32_t sum;
                memcpy(&sum, &s->tile[c][m + row][4 * n], sizeof sum);
                sum += (uint32_t)(int32_t)sums[row][n / AMX_HALF][n % AMX_HALF];
                memcpy(&s->tile[c][m + row][4 * n], &sum, sizeof sum);
            }
    }
}

/* Subnormals count as zeros, before and after. */
static inline float amx_flushed(float x) {
    uint32_t w;
    memcpy(&w, &x, sizeof w);
    w &= w & 0x7f800000u ? 0xffffffffu : 0x80000000u;
    memcpy(&x, &w, sizeof w);
    return x;
}

static inline float amx_widened(const uint8_t *bf16) {
    const uint32_t w = (uint32_t)bf16[1] << 24 | (uint32_t)bf16[0] << 16;
    float x;
    memcpy(&x, &w, sizeof x);
    return amx_flushed(x);
}

/* The even and the odd elements are chains of fused multiply-adds of their own, from zero; the chains are added, and
 * that to the sum. */
AMX_PRODUCT("fma") amx_bf16(int c, int a, int b) {
    struct amx_state *s = amx_state();
    amx_expect_fit(c, a, b);
    const int depth = s->config.line[a] / 2;
    float y[AMX_LINE / 2][AMX_ROWS];
    for (int k = 0; k < depth; k++)
        for (int n = 0; n < AMX_ROWS; n++)
            y[k][n] = amx_widened(&s->tile[b][k / 2][4 * n + 2 * (k & 1)]);
    for (int m = 0; m < s->config.rows[c]; m++) {
        float chain[2][AMX_ROWS] = {{0}};
        for (int k = 0; k < depth; k++) {
            const float x = amx_widened(&s->tile[a][m][2 * k]);
            for (int n = 0; n < AMX_ROWS; n++)
                chain[k & 1][n] = amx_flushed(__builtin_fmaf(x, y[k][n], chain[k & 1][n]));
        }
        for (int n = 0; n < s->config.line[c] / 4; n++) {
            float sum;
            memcpy(&sum, &s->tile[c][m][4 * n], sizeof sum);
            sum = amx_flushed(amx_flushed(sum) + amx_flushed(chain[0][n] + chain[1][n]));
            memcpy(&s->tile[c][m][4 * n], &sum, sizeof sum);
        }
    }
}

#define AMX_CONFIGURE(config) amx_configure(config)
#define AMX_RELEASE() amx_release()
#define AMX_ZERO(t) amx_zero(t)
#define AMX_LOAD(t, from, stride) amx_load(t, from, stride)
#define AMX_LOAD_FAR(t, from, stride) amx_load(t, from, stride)
#define AMX_STORE(t, to, stride) amx_store(t, to, stride)
#define AMX_SS(c, a, b) amx_bytes(c, a, b, 1, 1)
#define AMX_SU(c, a, b) amx_bytes(c, a, b, 1, 0)
#define AMX_US(c, a, b) amx_bytes(c, a, b, 0, 1)
#define AMX_UU(c, a, b) amx_bytes(c, a, b, 0, 0)
#define AMX_BF16(c, a, b) amx_bf16(c, a, b)

#endif
