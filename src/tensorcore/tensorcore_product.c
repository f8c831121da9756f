/* tensorcore_product.c - tasks of class accumulate: blocks of rows by panels of columns, a chunk of k at a time, each
 * of which is gathered, packed and multiplied. What the vectors leave in doubt the model computes. */
#include "tensorcore/tensorcore_product.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/table/mixed.h"
#include "core/table/operand_floats.h"
#include "tensorcore/tensorcore_gather.h"
#include <string.h>

enum { PARTS_FOR_THREAD = 4 };

/* The memory of a worker. */
struct block {
    struct fl_tc_rows a;
    struct fl_tc_panel b;
    float rows[FL_TC_ROWS][FL_TC_CHUNK], columns[FL_TC_CHUNK][FL_TC_COLUMNS];
    float sums[FL_TC_ROWS][FL_TC_COLUMNS];   /* of products since the last promotion */
    float totals[FL_TC_ROWS][FL_TC_COLUMNS]; /* the binary32 sums of promotion */
    uint64_t doubt[FL_TC_ROWS];
    struct fl_stats stats;
};

struct product {
    struct fl_tc_matrices matrices;
    const struct fl_tc_kernels *kernels;
    struct gemm_stores stores;
    const struct fl_accumulation *how;
    struct fl_operand_kinds kinds;
    int64_t promotes;
    int exponent;                       /* the factors are those of their codes times 2^-exponent */
    int64_t block_rows, blocks, panels; /* rows of a block; blocks and panels of a problem */
    char *memory;
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t parts_of(int64_t count, int64_t size) {
    return (count + size - 1) / size;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static int exponent_of(const struct fl_args *args, int i) {
    return fl_has_exponent(fl_operand_format(args, i)) ? fl_exponent(&args->in[i]) : 0;
}

/* Binary32 to the nearest tf32, ties to even. */
static void round_to_tf32(float *x, int64_t count) {
    enum { LOST = 13 };
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        if ((bits >> 23 & 255) != 255)
            bits = (bits + (1u << (LOST - 1)) - 1 + (bits >> LOST & 1)) & ~((1u << LOST) - 1);
        memcpy(&x[i], &bits, sizeof bits);
    }
}

/* --- a chunk of k ------------------------------------------------------------------------------------------------- */

struct place {
    int64_t problem, row, column;
    int rows, columns;
};

/* A chunk, filled up with zeros to whole groups, which are returned. */
static int gather(const struct product *t, struct block *w, const struct place *at, int64_t first, int64_t steps) {
    const int groups = (int)parts_of(steps, t->how->k);
    const int64_t whole = groups * t->how->k;
    fl_tc_gather_rows(&t->matrices, at->problem, at->row, at->rows, first, steps, w->rows[0], FL_TC_CHUNK);
    if (whole > steps)
        for (int i = 0; i < at->rows; i++)
            memset(&w->rows[i][steps], 0, (size_t)(whole - steps) * sizeof(float));
    if (at->columns < FL_TC_COLUMNS || whole > steps)
        memset(w->columns, 0, (size_t)whole * sizeof w->columns[0]);
    fl_tc_gather_columns(&t->matrices, at->problem, at->column, at->columns, first, steps, w->columns[0],
                         FL_TC_COLUMNS);
    if (t->kinds.a == FL_OPERAND_TF32) {
        for (int i = 0; i < at->rows; i++)
            round_to_tf32(w->rows[i], steps);
        round_to_tf32(w->columns[0], steps * FL_TC_COLUMNS);
    }
    return groups;
}

static void add_vectors(const struct product *t, struct block *w, const struct place *at, int64_t steps, int groups) {
    (void)steps;
    t->kernels->pack_rows(t->how, fl_operand_least_exponent(t->kinds.a), w->rows[0], at->rows, groups, &w->a);
    t->kernels->pack_columns(t->how, fl_operand_least_exponent(t->kinds.b), w->columns[0], groups, &w->b);
    t->kernels->add(&(struct fl_tc_tile){t->how, &w->a, &w->b, at->rows, at->columns, groups, w->sums[0], w->doubt});
}

/* The sums in doubt alone. */
static void add_by_model(const struct product *t, struct block *w, const struct place *at, int64_t steps, int groups) {
    (void)groups;
    for (int i = 0; i < at->rows; i++)
        for (int j = 0; j < at->columns; j++)
            if (w->doubt[i] >> j & 1)
                w->sums[i][j] = fl_tensorcore_sum(t->how, t->kinds, w->rows[i], &w->columns[0][j], FL_TC_COLUMNS, steps,
                                                  w->sums[i][j]);
}

static void promote(struct block *w, int rows, bool doubtful) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < FL_TC_COLUMNS; j++)
            if (!doubtful || w->doubt[i] >> j & 1) {
                w->totals[i][j] += w->sums[i][j];
                w->sums[i][j] = 0;
            }
}

/* Runs `add` over all k. */
static void sum_chunks(const struct product *t, struct block *w, const struct place *at, bool doubtful,
                       void (*add)(const struct product *t, struct block *w, const struct place *at, int64_t steps,
                                   int groups)) {
    const int64_t k = t->matrices.k;
    for (int64_t first = 0, steps; first < k; first += steps) {
        steps = smaller(FL_TC_CHUNK, k - first);
        if (t->promotes)
            steps = smaller(steps, t->promotes - first % t->promotes);
        const int groups = gather(t, w, at, first, steps);
        add(t, w, at, steps, groups);
        if (t->promotes && (first + steps == k || (first + steps) % t->promotes == 0))
            promote(w, at->rows, doubtful);
    }
}

static bool clear_doubtful(struct block *w, const struct place *at) {
    uint64_t any = 0;
    const uint64_t given = at->columns < 64 ? ((uint64_t)1 << at->columns) - 1 : UINT64_MAX;
    for (int i = 0; i < at->rows; i++) {
        any |= w->doubt[i] &= given;
        for (int j = 0; j < at->columns && w->doubt[i]; j++)
            if (w->doubt[i] >> j & 1)
                w->sums[i][j] = w->totals[i][j] = 0;
    }
    return any != 0;
}

/* --- a block ------------------------------------------------------------------------------------------------------ */

static struct place place_of(const struct product *t, int64_t part) {
    const int64_t panel = part % t->panels, block = part / t->panels % t->blocks;
    const struct fl_tc_matrices *m = &t->matrices;
    struct place at = {part / t->panels / t->blocks, block * t->block_rows, panel * FL_TC_COLUMNS, 0, 0};
    at.rows = (int)smaller(t->block_rows, m->m - at.row);
    at.columns = (int)smaller(FL_TC_COLUMNS, m->n - at.column);
    return at;
}

static void store(const struct product *t, struct block *w, const struct place *at) {
    float *results = t->promotes ? w->totals[0] : w->sums[0];
    const double scale = fl_power_of_two(-t->exponent);
    for (int i = 0; i < at->rows && t->exponent; i++)
        for (int j = 0; j < at->columns; j++)
            results[i * FL_TC_COLUMNS + j] = (float)((double)results[i * FL_TC_COLUMNS + j] * scale);
    const struct gemm_sums sums = {.low = (int32_t *)(void *)results, .stride = FL_TC_COLUMNS};
    t->stores.rows(t->matrices.args,
                   fl_tc_first_result(&t->matrices, at->problem) + at->row * t->matrices.pitch + at->column,
                   t->matrices.pitch, at->rows, at->columns, &sums, &w->stats);
}

static void run_part(void *context, int part, int worker) {
    const struct product *t = context;
    struct block *w = (struct block *)(void *)(t->memory + (size_t)worker * fl_line_bytes(sizeof *w));
    const struct place at = place_of(t, part);
    const bool vectors = t->kernels->add && t->how->result != 10; /* they have no sums of fp16 */
    memset(w->sums, 0, (size_t)at.rows * sizeof w->sums[0]);
    memset(w->totals, 0, (size_t)at.rows * sizeof w->totals[0]);
    memset(w->doubt, vectors ? 0 : 255, sizeof w->doubt);
    if (vectors)
        sum_chunks(t, w, &at, false, add_vectors);
    if (clear_doubtful(w, &at))
        sum_chunks(t, w, &at, true, add_by_model);
    store(t, w, &at);
}

/* --- a task ------------------------------------------------------------------------------------------------------- */

static int workers_of(const struct fl_args *args) {
    return args->workers ? args->workers : fl_threads();
}

static size_t blocks_bytes(const struct fl_args *args) {
    return (size_t)workers_of(args) * fl_line_bytes(sizeof(struct block));
}

size_t fl_tensorcore_need(const struct fl_args *args) {
    return blocks_bytes(args) + fl_operand_floats_bytes(args, 0) + fl_operand_floats_bytes(args, 1);
}

/* Blocks of rows small enough that all threads have work: results do not depend on them. */
static void divide(struct product *t, int workers) {
    t->panels = parts_of(t->matrices.n, FL_TC_COLUMNS);
    t->block_rows = FL_TC_ROWS;
    while (t->block_rows > 8 && workers > 1 &&
           parts_of(t->matrices.m, t->block_rows) * t->panels * t->matrices.problems < PARTS_FOR_THREAD * workers)
        t->block_rows /= 2;
    t->blocks = parts_of(t->matrices.m, t->block_rows);
}

tensor_status fl_tensorcore_product(const struct fl_tc_kernels *kernels, const struct gemm_stores *any,
                                    const struct fl_args *args) {
    const tensor_class class = args->p.product.exactness;
    const int workers = workers_of(args);
    char *memory = fl_workspace(args, fl_tensorcore_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    struct product t = {.matrices = fl_tc_matrices_of(args),
                        .kernels = kernels,
                        .stores = *any,
                        .kinds = {fl_operand_format(args, 0)->operand, fl_operand_format(args, 1)->operand},
                        .promotes = fl_accumulation_promotes(class),
                        .exponent = exponent_of(args, 0) + exponent_of(args, 1),
                        .memory = memory};
    t.how = fl_accumulation_of_kinds(class, t.kinds);
    t.stores.element_bytes = args->format->bytes;
    memory += blocks_bytes(args);
    for (int i = 0; i < 2; i++) {
        t.matrices.in[i] = fl_operand_floats(args, i, false, workers, memory); /* store scales the results */
        memory += fl_operand_floats_bytes(args, i);
    }
    divide(&t, workers);
    for (int i = 0; i < workers; i++)
        ((struct block *)(void *)(t.memory + (size_t)i * fl_line_bytes(sizeof(struct block))))->stats =
            (struct fl_stats){0};
    fl_parallel_within(workers, (int)(t.matrices.problems * t.blocks * t.panels), run_part, &t);
    for (int i = 0; i < workers; i++)
        t.stores.finish(args,
                        &((struct block *)(void *)(t.memory + (size_t)i * fl_line_bytes(sizeof(struct block))))->stats);
    return TENSOR_OK;
}
