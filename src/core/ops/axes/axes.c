/* axes.c - sums, means, extremes and norms over any dimensions, and the position of the largest element: reference
 * kernels, kernels in threads for every format. axes_rules.h defines the results. */
#include "core/ops/axes/axes.h"
#include "core/ops/operation.h"
#include "core/rows/rows.h"
#include <string.h>

enum { BLOCK = 256 /* outputs that a thread reduces together */ };

static int64_t mantissa_of(double x, int e) {
    return (int64_t)ldexp(x, e);
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

struct fold {
    fl_int128 exact;
    double total, best;
    int64_t at; /* the position of the extreme term */
};

/* Reduces output `out` of a walk; x is decoded, z the second factor of products or NULL. */
static struct fold fold_one(const struct fl_args *args, const struct fl_walk *g, const double *x, const double *z,
                            int64_t out) {
    const enum fl_fold_kind kind = fl_fold_kind_of(args->op);
    const int in = fl_axes_folded(args->op), e = fl_exponent(&args->in[in]), ez = fl_exponent(&args->in[1]);
    struct fold f = {0};
    double chain = 0;
    for (int64_t t = 0; t < g->terms; t++) {
        const int64_t i = out * g->terms + t;
        const double a = x[fl_walk_at(g, 0, i)], b = z ? z[fl_walk_at(g, 1, i)] : 0;
        if (t && t % FL_ROWS_CHUNK == 0) {
            f.total += chain;
            chain = 0;
        }
        if (fl_fold_picks(kind)) {
            if (t == 0 || fl_fold_better(kind, a, f.best)) {
                f.best = a;
                f.at = t;
            }
        } else if (fl_ref_shared(args)) {
            f.exact += fl_fold_exact_term(kind, mantissa_of(a, e), mantissa_of(b, ez));
        } else {
            chain = fl_fold_chain(kind, chain, a, b);
        }
    }
    f.total += chain;
    return f;
}

static struct fl_axes_value value_of(const struct fl_args *args, int64_t terms, const struct fold *f) {
    if (fl_fold_picks(fl_fold_kind_of(args->op)))
        return fl_axes_plain(f->best);
    if (fl_ref_shared(args))
        return fl_axes_exact(args->op, f->exact, fl_exponent(&args->in[0]), fl_exponent(&args->in[1]), terms);
    return fl_axes_plain(fl_axes_float(args->op, f->total, terms));
}

/* y <- x; da <- dy, b */
static tensor_status fl_ref_reduce(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_walk g = fl_walk_of_groups(args);
    for (int64_t i = 0; i < w.count; i++) {
        const struct fold f = fold_one(args, &g, w.in[0], w.in[1], i);
        const struct fl_axes_value value = value_of(args, g.terms, &f);
        w.value[i] = value.odd;
        w.near[i] = value.near;
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* Numbers <- x */
static tensor_status fl_ref_argmax(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_walk g = fl_walk_of_groups(args);
    int32_t *index = args->out.data;
    for (int64_t i = 0; i < g.outer; i++)
        index[i] = (int32_t)fold_one(args, &g, w.in[0], NULL, i).at;
    return TENSOR_OK;
}

/* dx <- dy, x: first the norm or the extreme term of each group, then the elements. */
static tensor_status fl_ref_reduce_grad(const struct fl_args *args) {
    struct ref_work w;
    const bool norms = args->op == FL_OP_REDUCE_L2_GRAD;
    const struct fl_walk g = fl_walk_of_groups(args), walk = fl_walk_of_elements(args);
    const tensor_status status = fl_ref_begin_with(&w, args, (size_t)g.outer * sizeof(double));
    if (status)
        return status;
    double *of_group = w.rest;
    for (int64_t i = 0; i < g.outer; i++) {
        const struct fold f = fold_one(args, &g, w.in[1], NULL, i);
        of_group[i] = norms ? fl_axes_norm(f.exact, f.total, fl_ref_shared(args)) : (double)f.at;
    }
    const double unit = fl_ref_shared(args) ? ldexp(1, fl_exponent(&args->in[1])) : 1; /* of x, to mantissas */
    for (int64_t i = 0; i < w.count; i++) {
        const int64_t group = fl_walk_at(&walk, 0, i), term = fl_walk_at(&walk, 2, i);
        const double dy = w.in[0][group], x = w.in[1][fl_walk_at(&walk, 1, i)];
        w.value[i] = w.near[i] = norms                             ? fl_axes_l2_slope(dy, x * unit, of_group[group])
                                 : of_group[group] == (double)term ? dy
                                                                   : 0;
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

static size_t fl_ref_reduce_grad_need(const struct fl_args *args) {
    return fl_ref_bytes(args) + (size_t)fl_walk_of_groups(args).outer * sizeof(double);
}

/* --- blocks of outputs in threads --------------------------------------------------------------------------------- */

/* Shared by the parts of a task. */
struct plan {
    struct fl_walk groups, elements;
    double *of_group; /* gradients: the result of each group */
};

static const struct plan *plan_of(const struct fl_rows *rows) {
    return rows->plan;
}

/* The state of BLOCK outputs: chains of floats and exact sums of a chunk, and the sums of the chunks. */
struct block {
    double x[BLOCK], z[BLOCK], chain[BLOCK], total[BLOCK];
    double value[BLOCK];
    int64_t part[BLOCK], at[BLOCK];
    fl_int128 exact[BLOCK];
};

/* The number of outputs that are adjacent along the last dimension that is not reduced. */
static int64_t line_of(const struct fl_walk *g) {
    const int kept = g->ndim - g->inner;
    return kept ? g->shape[kept - 1] : 1;
}

/* A term of n outputs: n elements of an operand from element `at` on, `stride` apart. */
static void fetch(const struct fl_rows *rows, int in, int64_t at, int64_t stride, int64_t n, double *to) {
    const struct fl_args *args = rows->args;
    if (stride == 1 && n >= FL_ROW_VECTOR) {
        fl_rows_read(rows, in, at, n, to);
        return;
    }
    fl_axes_read(rows, in, at, stride, n, to);
    if (!fl_ref_shared(args))
        return;
    const double unit = fl_power_of_two(fl_exponent(&args->in[in]));
    for (int64_t i = 0; i < n; i++)
        to[i] *= unit;
}

static void end_chunk_of(struct block *b, int64_t i) {
    b->total[i] += b->chain[i];
    b->chain[i] = 0;
    b->exact[i] += b->part[i];
    b->part[i] = 0;
}

static void end_chunk(struct block *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        end_chunk_of(b, i);
}

static void pick(struct block *b, enum fl_fold_kind kind, int64_t term, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (term == 0 || fl_fold_better(kind, b->x[i], b->value[i])) {
            b->value[i] = b->x[i];
            b->at[i] = term;
        }
}

static void add_exact(struct block *b, enum fl_fold_kind kind, int64_t n) {
    if (kind == FL_FOLD_SUM)
        for (int64_t i = 0; i < n; i++)
            b->part[i] += (int64_t)b->x[i];
    else if (kind == FL_FOLD_SIZES)
        for (int64_t i = 0; i < n; i++)
            b->part[i] += (int64_t)fabs(b->x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            b->part[i] += (int64_t)(b->x[i] * b->z[i]);
}

static void add_floats(const struct fl_rows *rows, struct block *b, enum fl_fold_kind kind, int64_t n) {
    if (kind == FL_FOLD_SUM)
        for (int64_t i = 0; i < n; i++)
            b->chain[i] = fl_fold_chain(FL_FOLD_SUM, b->chain[i], b->x[i], 0);
    else if (kind == FL_FOLD_SIZES)
        for (int64_t i = 0; i < n; i++)
            b->chain[i] = fl_fold_chain(FL_FOLD_SIZES, b->chain[i], b->x[i], 0);
    else if (kind == FL_FOLD_SQUARES)
        for (int64_t i = 0; i < n; i++)
            b->chain[i] = fl_fold_chain(FL_FOLD_SQUARES, b->chain[i], b->x[i], 0);
    else
        rows->vectors->add_products(b->chain, b->x, b->z, n);
}

/* Adds the x and z of n outputs to their state. */
static void add_term(const struct fl_rows *rows, struct block *b, int64_t term, int64_t n) {
    const struct fl_args *args = rows->args;
    const enum fl_fold_kind kind = fl_fold_kind_of(args->op);
    if (fl_fold_picks(kind)) {
        pick(b, kind, term, n);
        return;
    }
    if (term && term % FL_ROWS_CHUNK == 0)
        end_chunk(b, n);
    if (!fl_ref_shared(args)) {
        add_floats(rows, b, kind, n);
        return;
    }
    if (kind == FL_FOLD_SQUARES)
        memcpy(b->z, b->x, (size_t)n * sizeof *b->x);
    add_exact(b, kind, n);
}

/* The position of a term of an output; the next one is found without division. */
struct steps {
    const struct fl_walk *g;
    int64_t at[2], index[TENSOR_MAX_DIMS];
};

static struct steps steps_from(const struct fl_walk *g, int64_t out) {
    struct steps s = {.g = g};
    for (int k = 0; k < 2; k++)
        s.at[k] = fl_walk_at(g, k, out * g->terms);
    return s;
}

static void step(struct steps *s) {
    const struct fl_walk *g = s->g;
    for (int d = g->ndim - 1; d >= g->ndim - g->inner; d--) {
        for (int k = 0; k < 2; k++)
            s->at[k] += g->stride[k][d];
        if (++s->index[d] < g->shape[d])
            return;
        for (int k = 0; k < 2; k++)
            s->at[k] -= g->shape[d] * g->stride[k][d];
        s->index[d] = 0;
    }
}

/* Reduces n outputs from `first` on, all in one line, term by term. */
static void fold_side_by_side(const struct fl_rows *rows, const struct fl_walk *g, struct block *b, int64_t first,
                              int64_t n) {
    const struct fl_args *args = rows->args;
    const int kept = g->ndim - g->inner, in = fl_axes_folded(args->op);
    const bool products = fl_fold_kind_of(args->op) == FL_FOLD_PRODUCTS;
    const int64_t across[2] = {kept ? g->stride[0][kept - 1] : 1, kept ? g->stride[1][kept - 1] : 1};
    struct steps s = steps_from(g, first);
    for (int64_t t = 0; t < g->terms; t++, step(&s)) {
        fetch(rows, in, s.at[0], across[0], n, b->x);
        if (products)
            fetch(rows, 1, s.at[1], across[1], n, b->z);
        add_term(rows, b, t, n);
    }
}

/* Adds n terms of one output, all of one chunk, to output `to`; z: the second factor of products. */
static void add_run(const struct fl_args *args, struct block *b, int64_t to, const double *x, const double *z,
                    int64_t n) {
    const enum fl_fold_kind kind = fl_fold_kind_of(args->op);
    if (fl_ref_shared(args)) {
        int64_t part = 0;
        for (int64_t j = 0; j < n; j++)
            part += fl_fold_exact_term(kind, (int64_t)x[j], (int64_t)z[j]);
        b->part[to] += part;
        return;
    }
    if (kind == FL_FOLD_SUM) { /* a chain that stays in binary32 is not delayed by conversions */
        float sum = (float)b->chain[to];
        for (int64_t j = 0; j < n; j++)
            sum += (float)x[j];
        b->chain[to] = sum;
        return;
    }
    double chain = b->chain[to];
    for (int64_t j = 0; j < n; j++)
        chain = fl_fold_chain(kind, chain, x[j], z[j]);
    b->chain[to] = chain;
}

/* The same for mantissas that were read by vectors, and zeros behind them. */
static void add_vectors(const struct fl_rows *rows, struct block *b, int64_t to, enum fl_fold_kind kind, int64_t n) {
    struct fl_row_sums sums;
    rows->vectors->sums(n, b->x, NULL, NULL, &sums);
    b->part[to] += (int64_t)(kind == FL_FOLD_SUM ? sums.x : sums.xx);
}

static void pick_run(const struct fl_args *args, struct block *b, int64_t to, const double *x, int64_t term,
                     int64_t n) {
    const enum fl_fold_kind kind = fl_fold_kind_of(args->op);
    for (int64_t j = 0; j < n; j++)
        if (term + j == 0 || fl_fold_better(kind, x[j], b->value[to])) {
            b->value[to] = x[j];
            b->at[to] = term + j;
        }
}

/* Reduces one output whose terms lie in lines, of which it reads up to BLOCK terms at once. */
static void fold_along(const struct fl_rows *rows, const struct fl_walk *g, struct block *b, int64_t out, int64_t to) {
    const struct fl_args *args = rows->args;
    const int last = g->ndim - 1, in = fl_axes_folded(args->op);
    const enum fl_fold_kind kind = fl_fold_kind_of(args->op);
    for (int64_t t = 0, n; t < g->terms; t += n) {
        const int64_t i = out * g->terms + t, left = g->shape[last] - t % g->shape[last];
        n = left < BLOCK ? left : BLOCK;
        n = n < FL_ROWS_CHUNK - t % FL_ROWS_CHUNK ? n : FL_ROWS_CHUNK - t % FL_ROWS_CHUNK;
        if (t && t % FL_ROWS_CHUNK == 0)
            end_chunk_of(b, to);
        fetch(rows, in, fl_walk_at(g, 0, i), g->stride[0][last], n, b->x);
        if (kind == FL_FOLD_PRODUCTS)
            fetch(rows, 1, fl_walk_at(g, 1, i), g->stride[1][last], n, b->z);
        if (fl_fold_picks(kind))
            pick_run(args, b, to, b->x, t, n);
        else if (fl_ref_shared(args) && g->stride[0][last] == 1 && n >= FL_ROW_VECTOR &&
                 (kind == FL_FOLD_SUM || kind == FL_FOLD_SQUARES))
            add_vectors(rows, b, to, kind, n);
        else
            add_run(args, b, to, b->x, b->z, n);
    }
}

static void fold_block(const struct fl_rows *rows, const struct fl_walk *g, struct block *b, int64_t first, int64_t n) {
    const int kept = g->ndim - g->inner;
    memset(b, 0, sizeof *b);
    if (g->inner && g->stride[0][g->ndim - 1] == 1 && !(kept && g->stride[0][kept - 1] == 1))
        for (int64_t i = 0; i < n; i++)
            fold_along(rows, g, b, first + i, i);
    else
        fold_side_by_side(rows, g, b, first, n);
    end_chunk(b, n);
}

/* The number of outputs of block `row`, and the first of them. */
static int64_t outputs_of(const struct fl_walk *g, int64_t row, int64_t *first) {
    const int64_t line = line_of(g), blocks = (line + BLOCK - 1) / BLOCK, begin = row % blocks * BLOCK;
    *first = row / blocks * line + begin;
    return line - begin < BLOCK ? line - begin : BLOCK;
}

static struct fl_rows blocks_of(const struct fl_args *args, const struct fl_walk *g,
                                void (*run)(const struct fl_rows *, int64_t, double *, struct fl_stats *)) {
    const int64_t line = line_of(g), width = line < BLOCK ? line : BLOCK;
    return (struct fl_rows){.args = args,
                            .rows = g->outer / line * ((line + BLOCK - 1) / BLOCK),
                            .width = width * (g->terms < 4096 ? g->terms : 4096),
                            .doubles = (int64_t)(sizeof(struct block) / sizeof(double)),
                            .run = run};
}

static void finish_exact(const struct fl_args *args, int64_t terms, struct block *b, int64_t first, int64_t n,
                         struct fl_stats *stats) {
    const int e = fl_exponent(&args->in[0]), ez = fl_exponent(&args->in[1]);
    const enum fl_fold_kind kind = fl_fold_kind_of(args->op);
    const int of_sums = fl_fold_exponent(kind, e, ez);
    struct fl_row_out out = {.value = b->value};
    if (args->op == FL_OP_REDUCE_MEAN || args->op == FL_OP_REDUCE_L2) {
        for (int64_t i = 0; i < n; i++) {
            const struct fl_axes_value v = fl_axes_exact(args->op, b->exact[i], e, ez, terms);
            out.value[i] = v.odd;
            out.largest = v.near > out.largest ? v.near : out.largest;
        }
    } else {
        const double unit = fl_power_of_two(-of_sums);
        for (int64_t i = 0; i < n; i++)
            fl_rows_keep_aligned(&out, i, b->exact[i], unit);
    }
    fl_rows_store_sums(args, first, n, &out, of_sums, stats);
}

static void reduce_block(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_walk *g = &plan_of(rows)->groups;
    struct block *b = (struct block *)(void *)own;
    int64_t first;
    const int64_t n = outputs_of(g, row, &first);
    fold_block(rows, g, b, first, n);
    if (fl_fold_picks(fl_fold_kind_of(args->op))) {
        const double unit = fl_ref_shared(args) ? fl_power_of_two(-fl_exponent(&args->in[0])) : 1;
        for (int64_t i = 0; i < n; i++)
            b->value[i] *= unit;
        fl_rows_write(rows, first, n, b->value, NULL, stats);
    } else if (fl_ref_shared(args)) {
        finish_exact(args, g->terms, b, first, n, stats);
    } else {
        for (int64_t i = 0; i < n; i++)
            b->value[i] = fl_axes_float(args->op, b->total[i], g->terms);
        fl_rows_write(rows, first, n, b->value, NULL, stats);
    }
}

static size_t reduce_need(const struct fl_args *args) {
    const struct fl_walk g = fl_walk_of_groups(args);
    const struct fl_rows rows = blocks_of(args, &g, reduce_block);
    return fl_rows_need(&rows);
}

static tensor_status run_blocks(const struct fl_args *args, const struct fl_row_vectors *vectors,
                                void (*run)(const struct fl_rows *, int64_t, double *, struct fl_stats *)) {
    const struct plan plan = {.groups = fl_walk_of_groups(args)};
    struct fl_rows rows = blocks_of(args, &plan.groups, run);
    rows.plan = &plan;
    rows.vectors = vectors;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

static tensor_status reduce(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    return run_blocks(args, vectors, reduce_block);
}

static void argmax_block(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_walk *g = &plan_of(rows)->groups;
    struct block *b = (struct block *)(void *)own;
    int32_t *index = rows->args->out.data;
    int64_t first;
    const int64_t n = outputs_of(g, row, &first);
    (void)stats;
    fold_block(rows, g, b, first, n);
    for (int64_t i = 0; i < n; i++)
        index[first + i] = (int32_t)b->at[i];
}

static tensor_status argmax(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    return run_blocks(args, vectors, argmax_block);
}

/* --- gradients that first need a result of each group ------------------------------------------------------------- */

enum { ELEMENTS = 1024 /* elements of dx that a thread writes at a time */ };

static void ask_block(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_walk *g = &plan_of(rows)->groups;
    struct block *b = (struct block *)(void *)own;
    double *of_group = plan_of(rows)->of_group;
    int64_t first;
    const int64_t n = outputs_of(g, row, &first);
    (void)stats;
    fold_block(rows, g, b, first, n);
    for (int64_t i = 0; i < n; i++)
        of_group[first + i] = args->op == FL_OP_REDUCE_L2_GRAD
                                  ? fl_axes_norm(b->exact[i], b->total[i], fl_ref_shared(args))
                                  : (double)b->at[i];
}

/* Computes elements first ... first + n - 1 of dx, all in one line of the walk, into value. */
static void slopes_of_line(const struct fl_rows *rows, int64_t first, int64_t n, double *value) {
    const struct fl_args *args = rows->args;
    const struct plan *plan = plan_of(rows);
    const struct fl_walk *w = &plan->elements;
    const double *of_group = plan->of_group;
    const int last = w->ndim - 1;
    const int64_t step[3] = {last < 0 ? 0 : w->stride[0][last], last < 0 ? 0 : w->stride[1][last],
                             last < 0 ? 0 : w->stride[2][last]};
    int64_t group = fl_walk_at(w, 0, first);
    fl_axes_read(rows, 0, group, step[0], n, value);
    if (args->op == FL_OP_REDUCE_L2_GRAD) {
        double x[ELEMENTS + FL_ROW_VECTOR];
        fetch(rows, 1, fl_walk_at(w, 1, first), step[1], n, x);
        for (int64_t i = 0; i < n; i++, group += step[0])
            value[i] = fl_axes_l2_slope(value[i], x[i], of_group[group]);
        return;
    }
    int64_t term = fl_walk_at(w, 2, first);
    for (int64_t i = 0; i < n; i++, group += step[0], term += step[2]) { /* without branches, and a dropped -1 is +0 */
        uint64_t bits;
        memcpy(&bits, &value[i], sizeof bits);
        bits &= -(uint64_t)(of_group[group] == (double)term);
        memcpy(&value[i], &bits, sizeof bits);
    }
}

static void slopes_block(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t first = row * ELEMENTS, left = args->out.count - first, n = left < ELEMENTS ? left : ELEMENTS;
    for (int64_t i = 0, run; i < n; i += run) {
        run = fl_walk_run(&plan_of(rows)->elements, first + i, n - i);
        slopes_of_line(rows, first + i, run, own + i);
    }
    fl_rows_write(rows, first, n, own, NULL, stats);
}

static struct fl_rows ask_rows(const struct fl_args *args, const struct fl_walk *groups) {
    struct fl_rows rows = blocks_of(args, groups, ask_block);
    rows.common = (size_t)groups->outer * sizeof(double);
    return rows;
}

static struct fl_rows slopes_rows(const struct fl_args *args, const struct fl_walk *groups) {
    return (struct fl_rows){.args = args,
                            .rows = (args->out.count + ELEMENTS - 1) / ELEMENTS,
                            .width = ELEMENTS,
                            .common = (size_t)groups->outer * sizeof(double),
                            .doubles = ELEMENTS + FL_ROW_VECTOR, /* a read fills whole vectors */
                            .run = slopes_block};
}

/* The workspace holds the results of the groups, and is used by both passes. */
static size_t reduce_grad_need(const struct fl_args *args) {
    const struct fl_walk groups = fl_walk_of_groups(args);
    const struct fl_rows ask = ask_rows(args, &groups), slopes = slopes_rows(args, &groups);
    const size_t a = fl_rows_need(&ask), b = fl_rows_need(&slopes);
    return a > b ? a : b;
}

static tensor_status reduce_grad(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct plan plan = {.groups = fl_walk_of_groups(args), .elements = fl_walk_of_elements(args)};
    struct fl_rows ask = ask_rows(args, &plan.groups), slopes = slopes_rows(args, &plan.groups);
    char *memory = fl_rows_need(&ask) > fl_rows_need(&slopes) ? fl_rows_begin(&ask) : fl_rows_begin(&slopes);
    if (!memory)
        return TENSOR_E_MEMORY;
    plan.of_group = (double *)(void *)memory;
    ask.workers = slopes.workers = ask.workers ? ask.workers : slopes.workers;
    ask.plan = slopes.plan = &plan;
    ask.vectors = slopes.vectors = vectors;
    fl_rows_run(&ask, memory);
    fl_rows_run(&slopes, memory);
    return TENSOR_OK;
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

FL_ROWS_TABLE(static, reduce_kernels, reduce, reduce_need)
FL_ROWS_TABLE(static, reduce_grad_kernels, reduce_grad, reduce_grad_need)
FL_ROWS_TABLE(static, argmax_kernels, argmax, reduce_need)

#define OPERATION(OP, name, promised, ref, need, kernels)                                                              \
    const struct fl_operation fl_operation_##name = {                                                                  \
        .op = FL_OP_##OP, .promise = FL_PROMISE_##promised, .reference = {ref, need}, .any = kernels}
OPERATION(REDUCE_SUM, reduce_sum, EXACT, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(REDUCE_MEAN, reduce_mean, EXACT, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(REDUCE_MAX, reduce_max, COPY, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(REDUCE_MIN, reduce_min, COPY, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(REDUCE_L1, reduce_l1, EXACT, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(REDUCE_L2, reduce_l2, DOUBLE, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(BROADCAST_MUL_GRAD, broadcast_mul_grad, EXACT, fl_ref_reduce, fl_ref_bytes, reduce_kernels);
OPERATION(ARGMAX, argmax, NUMBERS, fl_ref_argmax, fl_ref_bytes, argmax_kernels);
OPERATION(REDUCE_MAX_GRAD, reduce_max_grad, COPY, fl_ref_reduce_grad, fl_ref_reduce_grad_need, reduce_grad_kernels);
OPERATION(REDUCE_MIN_GRAD, reduce_min_grad, COPY, fl_ref_reduce_grad, fl_ref_reduce_grad_need, reduce_grad_kernels);
OPERATION(REDUCE_L2_GRAD, reduce_l2_grad, DOUBLE, fl_ref_reduce_grad, fl_ref_reduce_grad_need, reduce_grad_kernels);
