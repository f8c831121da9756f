/* gemm_unpacked.c - small matmuls of fp32, whose elements already have the packed form: micro-kernels read both
 * operands in place, since packing would take as long as the products, and add in the output itself where sums are the
 * results. Chains and blocks of k are those of gemm_matmul.c, so the results have the same bits. */
#include "core/base/parallel.h"
#include "gemm/gemm_epilogue.h"
#include "gemm/gemm_driver.h"

enum {
    B_BYTES = 512 * 1024, /* of B, which is read again for every few rows: it stays in the second-level cache */
    BAND_ROWS = 48        /* rows of a part: whole tiles */
};

struct unpacked {
    struct gemm_call *c;
    const float *a, *b;
    int64_t m, n, k;
    int64_t a_row, a_step;
    bool turned;
    bool in_place; /* sums lie in the output, which statistics alone do not have */
};

bool fl_gemm_takes_unpacked(const struct gemm_call *c) {
    const struct fl_matrices *g = &c->args->p.product.matrices;
    return c->packing->plain && (c->args->op == FL_OP_MATMUL || c->args->op == FL_OP_MATMUL_TN) &&
           g->n % c->kernels->lanes == 0 && g->m % c->kernels->rows_unit == 0 &&
           g->k <= B_BYTES / (int64_t)sizeof(float) / g->n;
}

static struct gemm_sums lay_out_worker(const struct unpacked *t, struct gemm_arena *arena) {
    return (struct gemm_sums){.low = gemm_take(arena, BAND_ROWS * t->n, sizeof(int32_t)), .stride = t->n};
}

/* Adds the products of one block of k to the sums of a band. */
static void add_block(const struct unpacked *t, int64_t row, int64_t rows, int64_t k, const struct gemm_sums *sums) {
    const struct gemm_kernels *kernels = t->c->kernels;
    const struct gemm_segment whole = {.steps = gemm_min(FL_K_CHUNK, t->k - k)};
    struct gemm_tile tile = {.segments = &whole,
                             .count = 1,
                             .a_row = t->a_row,
                             .a_step = t->a_step,
                             .turned = t->turned,
                             .b_step = t->n,
                             .add = k > 0};
    const int64_t vectors = t->n / kernels->lanes, most = vectors % kernels->vectors ? 2 : kernels->vectors;
    for (int64_t first = 0; first < vectors; first += most) {
        const int some = (int)gemm_min(most, vectors - first), height = gemm_tile_rows(kernels, some, rows);
        for (int64_t i = 0; i < rows; i += height) {
            tile.a = (const gemm_packed *)(const void *)(t->a + (row + i) * t->a_row + k * t->a_step);
            tile.b = (const gemm_packed *)(const void *)(t->b + k * t->n + first * kernels->lanes);
            tile.rows = (int)gemm_min(height, rows - i);
            tile.out = gemm_sums_at(sums, i, first * kernels->lanes);
            kernels->tile(&tile, some, some * kernels->lanes);
        }
    }
}

static void unpacked_part(void *context, int part, int worker) {
    const struct unpacked *t = context;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    struct gemm_sums sums = lay_out_worker(t, &arena);
    const int64_t row = (int64_t)part * BAND_ROWS, rows = gemm_min(BAND_ROWS, t->m - row);
    if (t->in_place)
        sums.low = (int32_t *)t->c->args->out.data + row * t->n;
    for (int64_t k = 0; k < t->k; k += FL_K_CHUNK)
        add_block(t, row, rows, k, &sums);
    t->c->stores->rows(t->c->args, row * t->n, t->n, rows, t->n, &sums, gemm_worker_stats(t->c, worker));
}

tensor_status fl_gemm_unpacked(struct gemm_call *c, struct gemm_workspace *needs_only) {
    const struct fl_matrices *g = &c->args->p.product.matrices;
    const bool tn = c->args->op == FL_OP_MATMUL_TN;
    struct unpacked t = {.c = c,
                         .a = c->args->in[0].data,
                         .b = c->args->in[1].data,
                         .m = g->m,
                         .n = g->n,
                         .k = g->k,
                         .a_row = tn ? 1 : g->k,
                         .a_step = tn ? g->m : 1,
                         .turned = tn,
                         .in_place =
                             c->stores->plain && c->args->out.data && !gemm_has_epilogue(&c->args->p.product.epilogue)};
    const int64_t parts = gemm_parts(t.m, BAND_ROWS);
    struct gemm_arena common = {NULL, 0}, worker = gemm_worker_arena(c, 0);
    char *block;
    lay_out_worker(&t, &worker);
    const tensor_status status = fl_gemm_begin(c, fl_gemm_needs(c, &common, &worker, parts), needs_only, &block);
    if (!block)
        return status;
    fl_parallel_large(c->workers, (int)parts, unpacked_part, &t);
    fl_gemm_end(c);
    return TENSOR_OK;
}
