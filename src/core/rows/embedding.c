/* embedding.c - rows of a table by their numbers, and the gradient of the table: reference kernels, kernels of rows in
 * threads for every format, the operations.
 *
 * The indices are looked at by a call of its own before anything is written, so that one out of range changes nothing.
 */
#include "core/table/any_format.h"
#include "core/operations/check_operands.h"
#include "core/rows/rows.h"

tensor_status fl_check_indices(const struct fl_args *args) {
    const int32_t *indices = args->p.table.indices;
    for (int64_t i = 0; i < args->p.table.count; i++)
        if (indices[i] < 0 || indices[i] >= args->p.table.rows)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: index %lld is %d, expected 0 to %lld", args->p.table.name,
                           (long long)i, indices[i], (long long)args->p.table.rows - 1);
    return TENSOR_OK;
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

tensor_status fl_ref_embedding(const struct fl_args *args) {
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

tensor_status fl_ref_embedding_grad(const struct fl_args *args) {
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
    for (int64_t row = args->p.table.rows; row > 0; row--) /* each now begins where the next one does */
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

FL_ROWS_KERNELS(fl_embedding_any, gather, gather_need)
FL_ROWS_KERNELS(fl_embedding_grad_any, scatter, scatter_need)

/* --- the operations ----------------------------------------------------------------------------------------------- */

/* table: [k, n]; rows: what has a row of n elements for each index. */
static tensor_status check(const char *name, struct operand table, struct operand rows, struct operand out,
                           const tensor *indices, struct fl_args *args) {
    char text[TENSOR_TEXT], other[TENSOR_TEXT];
    TRY(check_operands(name, OPERANDS(out, {table.name, table.t}, {rows.name, rows.t})));
    if (table.t->storage == rows.t->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s and %s are the same tensor", name, table.name, rows.name);
    TRY(check_ndim(name, table, 2, "[rows, columns]"));
    if (table.t->shape[0] > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected fewer than 2^31 rows", name, table.name,
                       fl_shape_text(table.t, text));
    const int64_t n = table.t->shape[1];
    if (last_dim(rows.t) != n)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, %s is %s: rows of %lld and %lld elements", name, table.name,
                       fl_shape_text(table.t, text), rows.name, fl_shape_text(rows.t, other), (long long)n,
                       (long long)last_dim(rows.t));
    TRY(fl_check_numbers(name, "indices", indices, FMT_I32, rows.t->count / n, out.t));
    args->p.table = (struct fl_table){.rows = table.t->shape[0],
                                      .columns = n,
                                      .count = rows.t->count / n,
                                      .indices = indices->storage->data,
                                      .name = name};
    return TENSOR_OK;
}

/* Indices first, then the write. */
static tensor_status run(enum fl_op op, tensor *out, const tensor *in, struct fl_args *args) {
    args->op = FL_OP_CHECK_INDICES;
    TRY(fl_run(out, args));
    args->op = op;
    args->in[0] = fl_view_of(in);
    return fl_write(out, args);
}

tensor_status tensor_embedding(tensor *y, const tensor *table, const tensor *indices) {
    struct fl_args args = {0};
    const struct operand oy = {"y", y}, otable = {"table", table};
    TRY(check("embedding", otable, oy, oy, indices, &args));
    return run(FL_OP_EMBEDDING, y, table, &args);
}

tensor_status tensor_embedding_grad(tensor *dtable, const tensor *dy, const tensor *indices) {
    struct fl_args args = {0};
    const struct operand otable = {"dtable", dtable}, ody = {"dy", dy};
    TRY(check("embedding_grad", otable, ody, otable, indices, &args));
    return run(FL_OP_EMBEDDING_GRAD, dtable, dy, &args);
}
