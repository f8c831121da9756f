/* embedding.c - rows of a table by index, and the gradient of the table: reference kernels, kernels of rows in threads
 * for every format, the operations.
 *
 * A task of its own checks the indices before anything is written, so that one out of range changes nothing.
 */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/rows/rows.h"
#include "flexlab/tensor_blocks.h"

static tensor_status fl_check_indices(const struct fl_args *args) {
    const int32_t *indices = args->p.table.indices;
    for (int64_t i = 0; i < args->p.table.count; i++)
        if (indices[i] < 0 || indices[i] >= args->p.table.rows)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: index %lld is %d, expected 0 to %lld", args->p.table.name,
                           (long long)i, indices[i], (long long)args->p.table.rows - 1);
    return TENSOR_OK;
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

static tensor_status fl_ref_embedding(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    for (int64_t i = 0; i < w.count; i++)
        w.value[i] = w.near[i] = w.in[0][args->p.table.indices[i / args->p.table.columns] * args->p.table.columns +
                                         i % args->p.table.columns];
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* One element of the gradient. Float formats: binary32 chains of FL_ROWS_CHUNK positions that name the row, in order,
 * added in order in double. */
struct occurrence_sum {
    int64_t exact;
    double total;
    float chain;
    int64_t terms;
};

static void add_occurrence(struct occurrence_sum *s, double dy, bool shared) {
    if (shared) {
        s->exact += (int64_t)dy;
        return;
    }
    if (s->terms && s->terms % FL_ROWS_CHUNK == 0) {
        s->total += s->chain;
        s->chain = 0;
    }
    s->chain += (float)dy;
    s->terms++;
}

static tensor_status fl_ref_embedding_grad(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const int64_t n = args->p.table.columns;
    const int e = fl_exponent(&args->in[0]);
    const bool shared = fl_ref_shared(args);
    for (int64_t i = 0; i < w.count; i++) {
        struct occurrence_sum s = {0};
        for (int64_t row = 0; row < args->p.table.count; row++)
            if (args->p.table.indices[row] == i / n)
                add_occurrence(&s, shared ? ldexp(w.in[0][row * n + i % n], e) : w.in[0][row * n + i % n], shared);
        const struct fl_wide_sum sum = {s.exact, e};
        w.value[i] = shared ? fl_wide_odd(sum) : s.total + s.chain;
        w.near[i] = shared ? fl_wide_abs(sum) : w.value[i];
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- rows in threads ---------------------------------------------------------------------------------------------- */

enum { COPIED = 1024 /* elements of a row at a time */ };

static void gather_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->p.table.columns, bytes = args->format->bytes, from = args->p.table.indices[row] * n;
    for (int64_t c = 0; c < n; c += COPIED) {
        const int64_t first = row * n + c, length = n - c < COPIED ? n - c : COPIED;
        char *to = args->out.data ? (char *)args->out.data + first * bytes : (char *)(own + COPIED);
        memcpy(to, (const char *)args->in[0].data + (from + c) * bytes, (size_t)(length * bytes));
        fl_rows_place(rows, 0, first, length, to, own, stats);
    }
}

/* Each thread has a block of numbers, and one of elements. */
static struct fl_rows gathered_rows(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->p.table.count,
                            .width = args->p.table.columns,
                            .doubles = COPIED + COPIED / 2,
                            .run = gather_row};
}

static size_t gather_need(const struct fl_args *args) {
    const struct fl_rows rows = gathered_rows(args);
    return fl_rows_need(&rows);
}

static tensor_status gather(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = gathered_rows(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    rows.vectors = vectors;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* Positions by the row of the table that they name, in order: those of row i are position[first[i]] ... [first[i+1]-1].
 */
struct occurrences {
    int64_t *first, *position;
};

/* Float formats: chains of binary32, added in order in double. */
static void add_chains(const struct fl_rows *rows, const int64_t *position, int64_t count, double *own) {
    const int64_t n = rows->args->p.table.columns, room = fl_row_room(n);
    double *value = own, *dy = own + room;
    float *chain = (float *)(void *)(own + 2 * room);
    memset(value, 0, (size_t)n * sizeof *value);
    memset(chain, 0, (size_t)n * sizeof *chain);
    for (int64_t i = 0; i < count; i++) {
        fl_rows_read(rows, 0, position[i] * n, n, dy);
        for (int64_t c = 0; c < n && i && i % FL_ROWS_CHUNK == 0; c++) {
            value[c] += chain[c];
            chain[c] = 0;
        }
        for (int64_t c = 0; c < n; c++)
            chain[c] += (float)dy[c];
    }
    for (int64_t c = 0; c < n; c++)
        value[c] += chain[c];
}

/* Integer formats: sums of mantissas at exponent e. */
static void store_integers(const struct fl_rows *rows, int64_t row, const int64_t *sum, double *value, int e,
                           struct fl_stats *stats) {
    const int64_t n = rows->args->p.table.columns;
    const double unit = fl_power_of_two(-e);
    struct fl_row_out out = {.value = value};
    uint64_t sizes = 0;
    for (int64_t c = 0; c < n; c++)
        sizes |= sum[c] < 0 ? -(uint64_t)sum[c] : (uint64_t)sum[c];
    if (sizes >> 53 == 0) { /* exact as doubles */
        for (int64_t c = 0; c < n; c++)
            value[c] = (double)sum[c] * unit;
        fl_rows_write(rows, row * n, n, value, NULL, stats);
        return;
    }
    for (int64_t c = 0; c < n; c++)
        fl_rows_keep_aligned(&out, c, sum[c], unit);
    fl_rows_store_sums(rows->args, row * n, n, &out, e, stats);
}

static void scatter_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct occurrences *o = rows->plan;
    const int64_t n = args->p.table.columns, from = o->first[row], count = o->first[row + 1] - from;
    if (!count) {
        fl_rows_write_zeros(rows, row * n, n);
        return;
    }
    if (!fl_ref_shared(args)) {
        add_chains(rows, o->position + from, count, own);
        fl_rows_write(rows, row * n, n, own, NULL, stats);
        return;
    }
    int64_t *sum = (int64_t *)(void *)(own + fl_row_room(n));
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < count; i++)
        rows->vectors->add_mantissas(sum, (const int16_t *)args->in[0].data + o->position[from + i] * n, n);
    store_integers(rows, row, sum, own, fl_exponent(&args->in[0]), stats);
}

static struct fl_rows scattered_rows(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->p.table.rows,
                            .width = 2 * args->p.table.columns,
                            .common = (size_t)(args->p.table.rows + 1 + args->p.table.count) * sizeof(int64_t),
                            .doubles = 3 * fl_row_room(args->p.table.columns),
                            .run = scatter_row};
}

static size_t scatter_need(const struct fl_args *args) {
    const struct fl_rows rows = scattered_rows(args);
    return fl_rows_need(&rows);
}

static void sort_positions(const struct fl_args *args, const struct occurrences *o) {
    const int32_t *indices = args->p.table.indices;
    memset(o->first, 0, (size_t)(args->p.table.rows + 1) * sizeof *o->first);
    for (int64_t i = 0; i < args->p.table.count; i++)
        o->first[indices[i] + 1]++;
    for (int64_t row = 0; row < args->p.table.rows; row++)
        o->first[row + 1] += o->first[row];
    for (int64_t i = 0; i < args->p.table.count; i++)
        o->position[o->first[indices[i]]++] = i;
    for (int64_t row = args->p.table.rows; row > 0; row--) /* each entry is now the beginning of the next row */
        o->first[row] = o->first[row - 1];
    o->first[0] = 0;
}

static tensor_status scatter(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = scattered_rows(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const struct occurrences o = {(int64_t *)(void *)memory, (int64_t *)(void *)memory + args->p.table.rows + 1};
    sort_positions(args, &o);
    rows.plan = &o;
    rows.vectors = vectors;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, fl_embedding_any, gather, gather_need)
FL_ROWS_TABLE(static, fl_embedding_grad_any, scatter, scatter_need)

/* --- the operations ----------------------------------------------------------------------------------------------- */

static bool derive(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    (void)scalars;
    if (FL_SIZE(sizes, 'k') > INT32_MAX && !quiet)
        fl_fail(TENSOR_E_SHAPE, "%s: %lld rows of the table, expected fewer than 2^31", name,
                (long long)FL_SIZE(sizes, 'k'));
    return FL_SIZE(sizes, 'k') <= INT32_MAX;
}

/* Checks the indices, then writes. */
static tensor_status run(const struct fl_invocation *call, struct fl_args *args) {
    args->p.table.rows = FL_SIZE(call->sizes, 'k');
    args->p.table.columns = FL_SIZE(call->sizes, 'n');
    args->p.table.count = FL_SIZE(call->sizes, 'm');
    args->p.table.name = call->function->name;
    struct fl_args looked_at = {.op = FL_OP_CHECK_INDICES, .p = args->p};
    const tensor_status status = fl_run(call->tensors[0], &looked_at);
    return status ? status : fl_write((tensor *)call->tensors[0], args);
}

static const struct fl_operand gather_operands[] = {
    {"y", "m*n"},
    {"table", "kn", .at = FL_AT(in[0])},
    {"indices", "m*", .class = FL_CLASS_I32, .at = FL_AT(p.table.indices), .below = 'k'}};
static const struct fl_operand scatter_operands[] = {
    {"dtable", "kn"},
    {"dy", "m*n", .at = FL_AT(in[0])},
    {"indices", "m*", .class = FL_CLASS_I32, .at = FL_AT(p.table.indices), .below = 'k'}};
static const struct fl_operand checked[] = {
    {"indices", "m*", .class = FL_CLASS_I32, .at = FL_AT(p.table.indices), .below = 'k'}};

const struct fl_operation fl_operation_check_indices = {.op = FL_OP_CHECK_INDICES,
                                                        .promise = FL_PROMISE_NUMBERS,
                                                        FL_OPERANDS_OF(checked),
                                                        .reference = {fl_check_indices, NULL}};
const struct fl_operation fl_operation_embedding = {.op = FL_OP_EMBEDDING,
                                                    .promise = FL_PROMISE_COPY,
                                                    .reference = {fl_ref_embedding, fl_ref_bytes},
                                                    .any = fl_embedding_any,
                                                    .shared16 = true};
const struct fl_operation fl_operation_embedding_grad = {.op = FL_OP_EMBEDDING_GRAD,
                                                         .promise = FL_PROMISE_EXACT,
                                                         .reference = {fl_ref_embedding_grad, fl_ref_bytes},
                                                         .any = fl_embedding_grad_any,
                                                         .shared16 = true};

const struct fl_function fl_function_embedding = {.name = "embedding",
                                                  .op = FL_OP_EMBEDDING,
                                                  .outputs = 1,
                                                  FL_OPERANDS_OF(gather_operands),
                                                  .derive = derive,
                                                  .run = run};
const struct fl_function fl_function_embedding_grad = {.name = "embedding_grad",
                                                       .op = FL_OP_EMBEDDING_GRAD,
                                                       .outputs = 1,
                                                       FL_OPERANDS_OF(scatter_operands),
                                                       .derive = derive,
                                                       .run = run};

tensor_status tensor_embedding(tensor *y, const tensor *table, const tensor *indices) {
    return FL_INVOKE_PLAIN(embedding, FL_GIVEN(y, table, indices));
}
tensor_status tensor_embedding_grad(tensor *dtable, const tensor *dy, const tensor *indices) {
    return FL_INVOKE_PLAIN(embedding_grad, FL_GIVEN(dtable, dy, indices));
}
