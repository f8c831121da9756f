/* gemm_driver.h - code that the drivers of matmul and convolution share: a task, its workspace, arithmetic of blocks.
 */
#ifndef FL_GEMM_DRIVER_H
#define FL_GEMM_DRIVER_H

#include "core/base/memory.h"
#include "gemm/gemm.h"

enum {
    GEMM_PACKED = sizeof(gemm_packed),
    GEMM_PARTS_FEW = 16,     /* parts of the work, below which it is cut further */
    GEMM_BLOCK_STEPS = 1024, /* steps of a block of exact sums of a convolution */
    GEMM_STORE_BLOCK = 4096, /* results of a weight gradient stored by one part */
    GEMM_SUM_BYTES =
        64 * 1024, /* of the sums of a rectangle of pixels, which remain in the cache until they are stored */
    GEMM_DEPTHWISE_PRODUCTS = 2 /* channels times filters of the groups that depthwise kernels compute (measured) */
};

/* A task and the addresses of its memory. Memory of a worker begins with the statistics of its stores. */
struct gemm_call {
    const struct gemm_family *family;
    const struct gemm_kernels *kernels;
    const struct gemm_packing *packing;
    const struct gemm_stores *stores;
    const struct fl_args *args;
    int workers; /* at most */
    char *worker_memory;
    size_t worker_bytes;
};

static inline int64_t gemm_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t gemm_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Of numbers: fmaxf, which asks for NaN too, is a call. */
static inline float gemm_larger(float a, float b) {
    return a > b ? a : b;
}

static inline int64_t gemm_parts(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

static inline int64_t gemm_round_up(int64_t count, int64_t unit) {
    return gemm_parts(count, unit) * unit;
}

/* Element i of an operand. */
static inline const void *gemm_element(const struct gemm_call *c, const void *data, int64_t i) {
    return (const char *)data + i * c->packing->element_bytes;
}

/* Called before and after the computation of a part. */
static inline void gemm_begin_part(const struct gemm_call *c) {
    if (c->kernels->begin)
        c->kernels->begin();
}

static inline void gemm_end_part(const struct gemm_call *c) {
    if (c->kernels->end)
        c->kernels->end();
}

/* --- memory: blocks taken one after the other --------------------------------------------------------------------- */

struct gemm_arena {
    char *base; /* NULL: only counts */
    size_t used;
};

static inline void *gemm_take(struct gemm_arena *arena, int64_t count, size_t size) {
    char *at = arena->base ? arena->base + arena->used : NULL;
    arena->used += ((size_t)count * size + FL_ALIGNMENT - 1) / FL_ALIGNMENT * FL_ALIGNMENT;
    return at;
}

/* Whether a convolution is one of groups of few channels, which have kernels of their own. */
static inline bool gemm_is_depthwise(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.product.windows;
    return g->groups > 1 && g->c / g->groups * (g->filters / g->groups) <= GEMM_DEPTHWISE_PRODUCTS;
}

/* The memory of a worker besides its statistics. */
static inline struct gemm_arena gemm_worker_arena(const struct gemm_call *c, int worker) {
    struct gemm_arena arena = {c->worker_memory ? c->worker_memory + (size_t)worker * c->worker_bytes : NULL, 0};
    gemm_take(&arena, 1, (size_t)c->stores->stats_bytes);
    return arena;
}

static inline void *gemm_worker_stats(const struct gemm_call *c, int worker) {
    return c->worker_memory + (size_t)worker * c->worker_bytes;
}

static inline size_t gemm_workspace_bytes(const struct gemm_workspace *needs) {
    return needs->common + needs->worker * (size_t)needs->workers;
}

/* Enough for either of two plans. */
static inline struct gemm_workspace gemm_larger_needs(struct gemm_workspace a, struct gemm_workspace b) {
    return (struct gemm_workspace){a.common > b.common ? a.common : b.common, a.worker > b.worker ? a.worker : b.worker,
                                   a.workers > b.workers ? a.workers : b.workers};
}

/* The workspace for `parts` parts, from the counted sizes of the common block and of a worker's arena. */
struct gemm_workspace fl_gemm_needs(const struct gemm_call *c, const struct gemm_arena *common,
                                    const struct gemm_arena *worker, int64_t parts);

/* If needs_only is not NULL, it only stores the needs there, and *block is NULL. Otherwise *block is the workspace,
 * common part first, with the statistics of every worker cleared; NULL with TENSOR_E_MEMORY. */
tensor_status fl_gemm_begin(struct gemm_call *c, struct gemm_workspace needs, struct gemm_workspace *needs_only,
                            char **block);

/* Merges the statistics of the workers' stores. */
void fl_gemm_end(const struct gemm_call *c);

/* Whether the conditions of Winograd's algorithm hold that the direction across has in all passes. */
static inline bool gemm_suits_winograd(const struct gemm_call *c, const struct gemm_side *across) {
    return c->packing->winograd_takes && across->positions == 3 && across->stride == 1 && across->dilation == 1;
}

/* Whether `takes` says so of all int16 mantissas of an operand, which at most so many workers look at. */
bool fl_gemm_all(const struct fl_view *at, int workers, bool (*takes)(const void *mantissas, int64_t n));

/* out[m][n] = sum over k of A B, the operands in their order; of a convolution, whose windows are one pixel each, A is
 * the images or dy and B the filters, or x. tn: A is [k][m]; nt: B is [n][k]. */
struct gemm_product {
    int64_t m, n, k;
    bool tn, nt;
};
struct gemm_product fl_gemm_product(const struct fl_args *args);

/* Whether no window reads neighbouring pixels, so that all images can count as one line. */
bool fl_gemm_is_one_line(const struct fl_windows *g);

/* The windows of an operation; flat: images that can count as one line become one. */
struct fl_windows fl_gemm_geometry(const struct fl_args *args, bool flat);

/* What a convolution driver computes: matmuls are images of one line with filters of one pixel, matmul_nt forward,
 * matmul an input gradient (of filters [k][1][1][n]), matmul_tn a weight gradient. */
struct gemm_convolution fl_gemm_convolution(const struct fl_args *args, bool flat);

/* --- the drivers: each computes a task, or returns the workspace that it would need ------------------------------- */

tensor_status fl_gemm_matmul(struct gemm_call *c, struct gemm_workspace *needs_only);
/* Whether a matmul is small, and the micro-kernels can read its operands in place; then it is not packed. */
bool fl_gemm_takes_unpacked(const struct gemm_call *c);
tensor_status fl_gemm_unpacked(struct gemm_call *c, struct gemm_workspace *needs_only);
tensor_status fl_gemm_forward(struct gemm_call *c, struct gemm_workspace *needs_only);
tensor_status fl_gemm_weight_gradient(struct gemm_call *c, struct gemm_workspace *needs_only);
tensor_status fl_gemm_depthwise(struct gemm_call *c, struct gemm_workspace *needs_only);
/* Whether matrix tiles are faster; `bytes` of an element in a plane. */
bool fl_gemm_suits_matrix(const struct fl_args *args, int64_t bytes);
/* On matrix tiles: convolution and its input gradient; its weight gradient. */
tensor_status fl_gemm_matrix_forward(struct gemm_call *c, struct gemm_workspace *needs_only);
tensor_status fl_gemm_matrix_weight_gradient(struct gemm_call *c, struct gemm_workspace *needs_only);

/* --- sums of a pair of panels (gemm_schemes.c) -------------------------------------------------------------------- */

/* Panels as bytes modulo 255 (the mod-255 check), computed at the first use. */
struct gemm_bytes {
    gemm_packed *a, *b;
    bool *a_made, *b_made;
    struct gemm_prefetch next;
};

/* Rows of GEMM_PANEL_COLUMNS_MAX accumulators, which micro-kernels store. */
struct gemm_accumulators {
    int32_t sum[GEMM_PANEL_ROWS_MAX * GEMM_PANEL_COLUMNS_MAX], high[GEMM_PANEL_ROWS_MAX * GEMM_PANEL_COLUMNS_MAX],
        rest[GEMM_PANEL_ROWS_MAX * GEMM_PANEL_COLUMNS_MAX];
} __attribute__((aligned(FL_ALIGNMENT)));

/* Sums of p over its block of k, in out or added to what is there. a, b: bounds of its panels (exact sums). */
void fl_gemm_pair_sums(const struct gemm_family *family, struct gemm_panel_pair *p, const struct gemm_bound *a,
                       const struct gemm_bound *b, bool add, const struct gemm_sums *out, struct gemm_bytes *bytes,
                       struct gemm_accumulators *at);

/* Exact sums of p over all of k, stored as p->rows rows of `columns` elements of the output from `first` on; room: for
 * the sums of a pair. */
void fl_gemm_pair_store(const struct gemm_call *c, struct gemm_panel_pair *p, const struct gemm_bound *a,
                        const struct gemm_bound *b, int64_t first, int64_t pitch, int64_t columns,
                        const struct gemm_sums *room, struct gemm_bytes *bytes, struct gemm_accumulators *at,
                        void *stats);

/* Packed elements that a panel takes as bytes; 0 if the family has no such check. */
static inline int64_t gemm_bytes_size(const struct gemm_kernels *k, int64_t width, int64_t steps) {
    return k->bytes ? gemm_parts(steps, 2) * width + k->lanes : 0;
}

/* Whether the family has the mod-255 check, and the product with a panel of the same bounds will probably need it. */
bool fl_gemm_will_want_bytes(const struct gemm_family *family, const struct gemm_bound *bound);

/* Rows of tiles of equal height, in whole units, for `rows` rows. */
static inline int gemm_tile_rows(const struct gemm_kernels *k, int vectors, int64_t rows) {
    const int64_t tiles = gemm_parts(rows, k->rows[vectors]);
    return (int)gemm_round_up(gemm_parts(rows, tiles), k->rows_unit);
}

#endif
