/* gemm_depthwise.c - convolutions of groups of few channels (depthwise ones above all), for which a matrix of one group
 * would leave columns of a tile empty: the SIMD lanes hold the results of all groups instead.
 *
 * Each result adds its products in the order of the definition, one term after the other, so no proof is needed.
 */
#include "core/base/parallel.h"
#include "gemm/gemm_driver.h"

enum {
    LEAST_BLOCK = 32, /* filters that the kernels of mantissas take at once; those of floats are slower at so few */
    LARGE = 1 << 20   /* products that take longer than waking threads */
};

struct depthwise {
    struct gemm_depthwise d;
    struct gemm_call *c;
    const struct gemm_depthwise_kernels *kernels;
    bool weights;          /* the weight gradient */
    int64_t block;         /* filters of a part of a weight gradient */
    int64_t row_parts;     /* of the rows of its filters */
    int64_t results;       /* of a weight gradient; weights of the others */
    int64_t piece, stores; /* pixels stored at a time; parts of the store of a weight gradient */
    void *sums;            /* of a weight gradient */
};

static void depthwise_pack(void *context, int position, int worker) {
    (void)worker;
    const struct depthwise *t = context;
    t->kernels->pack(&t->d, position);
}

static struct gemm_sums whole_sums(const struct depthwise *t, void *memory) {
    return t->c->family->ordered ? (struct gemm_sums){.low = memory} : (struct gemm_sums){.wide = memory};
}

/* An output line of the forward convolution or the input gradient. */
static void depthwise_line(void *context, int part, int worker) {
    const struct depthwise *t = context;
    const struct gemm_depthwise *d = &t->d;
    const int sum_bytes = t->c->stores->sum_bytes;
    struct gemm_arena arena = gemm_worker_arena(t->c, worker);
    char *sums = gemm_take(&arena, t->piece * d->columns, (size_t)sum_bytes);
    for (int64_t x0 = 0; x0 < d->v.x.out; x0 += t->piece) {
        const int64_t pixels = gemm_min(t->piece, d->v.x.out - x0);
        struct gemm_sums stored = whole_sums(t, sums);
        t->kernels->line(d, part / d->v.y.out, part % d->v.y.out, x0, pixels, &stored);
        t->c->stores->sums(t->c->args, (part * d->v.x.out + x0) * d->columns, pixels * d->columns, &stored,
                           gemm_worker_stats(t->c, worker));
    }
}

/* A block of filters at a term and at the positions of some rows, over all pixels of dy. */
static void depthwise_weights(void *context, int part, int worker) {
    (void)worker;
    const struct depthwise *t = context;
    const struct gemm_depthwise *d = &t->d;
    const int64_t depth = d->v.depth, parts = t->row_parts * depth, row = part % parts / depth, term = part % depth,
                  weights = d->v.y.positions * d->v.x.positions * depth, first = part / parts * t->block;
    t->kernels->weights(d, row * d->v.y.positions / t->row_parts, (row + 1) * d->v.y.positions / t->row_parts, term,
                        first, gemm_min(t->block, d->columns - first),
                        (char *)t->sums + (first * weights + term) * t->c->stores->sum_bytes, weights);
}

static void depthwise_store(void *context, int part, int worker) {
    const struct depthwise *t = context;
    const int64_t first = (int64_t)part * GEMM_STORE_BLOCK, n = gemm_min(GEMM_STORE_BLOCK, t->results - first);
    void *sums = (char *)t->sums + first * t->c->stores->sum_bytes;
    const struct gemm_sums stored = whole_sums(t, sums);
    t->c->stores->sums(t->c->args, first, n, &stored, gemm_worker_stats(t->c, worker));
}

static struct gemm_workspace lay_out(struct depthwise *t, char *block) {
    const struct gemm_depthwise *d = &t->d;
    const size_t sum_bytes = (size_t)t->c->stores->sum_bytes;
    struct gemm_arena arena = {block, 0}, worker = gemm_worker_arena(t->c, 0);
    t->d.weights = gemm_take(&arena, t->weights ? 0 : t->results, (size_t)t->kernels->weight_bytes);
    t->sums = gemm_take(&arena, t->weights ? t->results : 0, sum_bytes);
    t->d.source = gemm_take(&arena, d->columns, sizeof *d->source);
    gemm_take(&worker, t->weights ? 0 : t->piece * d->columns, sum_bytes);
    return fl_gemm_needs(t->c, &arena, &worker, t->weights ? t->stores : d->v.batch * d->v.y.out);
}

static void compute(struct depthwise *t) {
    const struct gemm_depthwise *d = &t->d;
    const int64_t positions = d->v.y.positions * d->v.x.positions;
    for (int64_t j = 0; j < d->columns; j++)
        d->source[j] = j / d->v.filters * d->v.depth;
    if (t->weights) {
        /* not the workers that have memory: these parts need none */
        const int threads = t->c->args->workers ? t->c->args->workers : fl_threads();
        const int64_t depth = d->v.depth;
        const bool few = gemm_parts(d->columns, GEMM_DEPTHWISE_BLOCK) * depth < threads;
        t->block = few && !t->c->family->ordered ? LEAST_BLOCK : GEMM_DEPTHWISE_BLOCK;
        const int64_t parts = gemm_parts(d->columns, t->block) * depth;
        /* a part reads all pixels: rows are divided only where there are fewer blocks than threads */
        t->row_parts = parts < threads ? d->v.y.positions : 1;
        if (d->v.batch * d->v.y.out * d->v.x.out * t->results >= LARGE)
            fl_parallel_large(threads, (int)(parts * t->row_parts), depthwise_weights, t);
        else
            fl_parallel_within(threads, (int)(parts * t->row_parts), depthwise_weights, t);
        fl_parallel_within(t->c->workers, (int)t->stores, depthwise_store, t);
    } else {
        fl_parallel((int)positions, depthwise_pack, t);
        if (t->kernels->finish)
            t->kernels->finish(&t->d);
        fl_parallel_large(t->c->workers, (int)(d->v.batch * d->v.y.out), depthwise_line, t);
    }
}

tensor_status fl_gemm_depthwise(struct gemm_call *c, struct gemm_workspace *needs_only) {
    const bool weights = c->args->op == FL_OP_CONV2D_WEIGHT_GRAD;
    struct depthwise t = {
        .d = {.args = c->args, .image = c->args->in[weights].data, .v = fl_gemm_convolution(c->args, false)},
        .c = c,
        .kernels = c->family->depthwise,
        .weights = weights};
    struct gemm_depthwise *d = &t.d;
    d->columns = d->v.groups * d->v.filters;
    t.results = d->v.y.positions * d->v.x.positions * d->v.depth * d->columns;
    t.stores = gemm_parts(t.results, GEMM_STORE_BLOCK);
    t.piece = gemm_min(d->v.x.out, gemm_max(1, GEMM_SUM_BYTES / (d->columns * c->stores->sum_bytes)));
    char *block;
    const tensor_status status = fl_gemm_begin(c, lay_out(&t, NULL), needs_only, &block);
    if (!block)
        return status;
    lay_out(&t, block);
    compute(&t);
    fl_gemm_end(c);
    return TENSOR_OK;
}
