/* cells.c - kernels of the cells of recurrent networks: a row is the units of one sequence. The definition, and rows in
 * threads for every format, which differ only in how they compute exponentials. */
#include "core/ops/operation.h"
#include "core/ops/recurrent/cell_rules.h"
#include "core/rows/rows.h"
#include "core/arithmetic/exponentials.h"

/* Exponentials of n numbers, none of which is above zero, in place. */
typedef void (*exponentials)(double *x, int64_t n);

static void plain_exponentials(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = fl_exp(x[i]);
}

/* --- a row -------------------------------------------------------------------------------------------------------- */

enum { MOST_ARRAYS = 20 /* of n numbers, in the memory of a thread */ };

struct row {
    const struct fl_args *args;
    int64_t row, n;
    double *memory; /* arrays not yet used */
    exponentials exp_of;
};

static double *take(struct row *r, int arrays) {
    double *taken = r->memory;
    r->memory += arrays * r->n;
    return taken;
}

/* `count` gates from number `first` on of a view with `gates` gates in each row; NULL if there is no view. */
static const double *gates_of(struct row *r, const struct fl_view *view, int gates, int first, int count) {
    if (!view->data)
        return NULL;
    double *to = take(r, count);
    r->args->format->decode(r->args->format, view, (r->row * gates + first) * r->n, count * r->n, to);
    return to;
}

static const double *units_of(struct row *r, const struct fl_view *view) {
    return gates_of(r, view, 1, 0, 1);
}

/* The exponentials of the logistic function of some arrays (by 1), or of tanh (by 2). */
static const double *exponentials_of(struct row *r, const double *x, int arrays, double by) {
    double *e = take(r, arrays);
    for (int64_t i = 0; i < arrays * r->n; i++)
        e[i] = by * fl_minus_size(x[i]);
    r->exp_of(e, arrays * r->n);
    return e;
}

static void lstm_cell(struct row *r, double *c) {
    const struct fl_args *args = r->args;
    const int64_t n = r->n;
    const double *gates = gates_of(r, &args->in[0], FL_LSTM_GATES, FL_LSTM_I, 3), *before = units_of(r, &args->in[1]);
    const double *i = gates, *f = gates + n, *g = gates + 2 * n;
    const double *t = exponentials_of(r, gates, 2, 1), *u = exponentials_of(r, g, 1, 2);
    for (int64_t k = 0; k < n; k++)
        c[k] = fl_lstm_cell_by(i[k], t[k], f[k], t[n + k], g[k], u[k], before[k]);
}

static void lstm_hidden(struct row *r, double *h) {
    const double *o = gates_of(r, &r->args->in[0], FL_LSTM_GATES, FL_LSTM_O, 1), *c = units_of(r, &r->args->in[1]);
    const double *t = exponentials_of(r, o, 1, 1), *u = exponentials_of(r, c, 1, 2);
    for (int64_t k = 0; k < r->n; k++)
        h[k] = fl_lstm_hidden_by(o[k], t[k], c[k], u[k]);
}

static void lstm_cell_grad(struct row *r, double *dc) {
    const struct fl_args *args = r->args;
    const double *dh = units_of(r, &args->in[0]), *o = gates_of(r, &args->in[1], FL_LSTM_GATES, FL_LSTM_O, 1),
                 *c = units_of(r, &args->in[2]), *dc_after = units_of(r, &args->p.cell.dc_after),
                 *f = gates_of(r, &args->p.cell.gates_after, FL_LSTM_GATES, FL_LSTM_F, 1);
    const double *t = exponentials_of(r, o, 1, 1), *u = exponentials_of(r, c, 1, 2);
    for (int64_t k = 0; k < r->n; k++)
        dc[k] = fl_lstm_cell_grad_by(dh[k], o[k], t[k], u[k]);
    if (!f || !dc_after)
        return;
    const double *tf = exponentials_of(r, f, 1, 1);
    for (int64_t k = 0; k < r->n; k++)
        dc[k] = dc[k] + dc_after[k] * fl_logistic_by(f[k], tf[k]);
}

static void lstm_gates_grad(struct row *r, double *d) {
    const struct fl_args *args = r->args;
    const int64_t n = r->n;
    const double *dh = units_of(r, &args->in[0]), *dc = units_of(r, &args->in[1]),
                 *gates = gates_of(r, &args->in[2], FL_LSTM_GATES, FL_LSTM_I, FL_LSTM_GATES),
                 *before = units_of(r, &args->p.cell.c_before), *c = units_of(r, &args->p.cell.c);
    const double *i = gates, *g = gates + 2 * n;
    const double *t = exponentials_of(r, gates, 2, 1), *ug = exponentials_of(r, g, 1, 2),
                 *to = exponentials_of(r, gates + 3 * n, 1, 1), *uc = exponentials_of(r, c, 1, 2);
    for (int64_t k = 0; k < n; k++) {
        d[k] = fl_lstm_input_grad_by(dc[k], t[k], g[k], ug[k]);
        d[n + k] = fl_lstm_forget_grad_by(dc[k], t[n + k], before[k]);
        d[2 * n + k] = fl_lstm_candidate_grad_by(dc[k], i[k], t[k], ug[k]);
        d[3 * n + k] = fl_lstm_output_grad_by(dh[k], to[k], c[k], uc[k]);
    }
}

/* The arguments of the gates of a GRU, with exponentials. */
struct gru {
    const double *r, *z, *n, *tr, *tz, *un, *hn;
};

static struct gru gru_of(struct row *r, const struct fl_view *x_gates, const struct fl_view *h_gates) {
    const int64_t n = r->n;
    const double *x = gates_of(r, x_gates, FL_GRU_GATES, FL_GRU_R, FL_GRU_GATES),
                 *h = gates_of(r, h_gates, FL_GRU_GATES, FL_GRU_R, FL_GRU_GATES);
    double *sum = take(r, FL_GRU_GATES);
    for (int64_t k = 0; k < 2 * n; k++)
        sum[k] = x[k] + h[k];
    const double *t = exponentials_of(r, sum, 2, 1);
    for (int64_t k = 0; k < n; k++)
        sum[2 * n + k] = fl_gru_candidate_by(sum[k], t[k], x[2 * n + k], h[2 * n + k]);
    const double *u = exponentials_of(r, sum + 2 * n, 1, 2);
    return (struct gru){sum, sum + n, sum + 2 * n, t, t + n, u, h + 2 * n};
}

static void gru_hidden(struct row *r, double *h) {
    const struct gru g = gru_of(r, &r->args->in[0], &r->args->in[1]);
    const double *before = units_of(r, &r->args->in[2]);
    for (int64_t k = 0; k < r->n; k++)
        h[k] = fl_gru_hidden_by(g.z[k], g.tz[k], g.n[k], g.un[k], before[k]);
}

/* Gradients of the gates of x and of h: they differ in n, for which that of h has r as a factor. */
static void gru_grad(struct row *r, double *d) {
    const struct gru g = gru_of(r, &r->args->in[1], &r->args->in[2]);
    const double *dh = units_of(r, &r->args->in[0]), *before = units_of(r, &r->args->p.cell.h_before);
    const bool of_h = r->args->op == FL_OP_GRU_GATES_GRAD;
    const int64_t n = r->n;
    for (int64_t k = 0; k < n; k++) {
        const double dn = fl_gru_candidate_grad_by(dh[k], g.z[k], g.tz[k], g.un[k]);
        d[k] = fl_gru_reset_grad_by(dn, g.tr[k], g.hn[k]);
        d[n + k] = fl_gru_update_grad_by(dh[k], g.tz[k], g.n[k], g.un[k], before[k]);
        d[2 * n + k] = of_h ? dn * fl_logistic_by(g.r[k], g.tr[k]) : dn;
    }
}

static void gru_state_grad(struct row *r, double *ds) {
    const struct fl_args *args = r->args;
    const double *x = gates_of(r, &args->in[1], FL_GRU_GATES, FL_GRU_Z, 1),
                 *h = gates_of(r, &args->in[2], FL_GRU_GATES, FL_GRU_Z, 1), *dh = units_of(r, &args->in[0]),
                 *dy = units_of(r, &args->p.cell.dy);
    double *z = take(r, 1);
    for (int64_t k = 0; k < r->n; k++)
        z[k] = x[k] + h[k];
    const double *t = exponentials_of(r, z, 1, 1);
    for (int64_t k = 0; k < r->n; k++)
        ds[k] = dh[k] * fl_logistic_by(z[k], t[k]);
    for (int64_t k = 0; dy && k < r->n; k++)
        ds[k] = ds[k] + dy[k];
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static const struct {
    void (*compute)(struct row *r, double *result);
    int gates; /* of the result */
} cells[] = {
    [FL_OP_LSTM_CELL - FL_OP_LSTM_CELL] = {lstm_cell, 1},
    [FL_OP_LSTM_HIDDEN - FL_OP_LSTM_CELL] = {lstm_hidden, 1},
    [FL_OP_LSTM_CELL_GRAD - FL_OP_LSTM_CELL] = {lstm_cell_grad, 1},
    [FL_OP_LSTM_GATES_GRAD - FL_OP_LSTM_CELL] = {lstm_gates_grad, FL_LSTM_GATES},
    [FL_OP_GRU_HIDDEN - FL_OP_LSTM_CELL] = {gru_hidden, 1},
    [FL_OP_GRU_INPUT_GRAD - FL_OP_LSTM_CELL] = {gru_grad, FL_GRU_GATES},
    [FL_OP_GRU_GATES_GRAD - FL_OP_LSTM_CELL] = {gru_grad, FL_GRU_GATES},
    [FL_OP_GRU_STATE_GRAD - FL_OP_LSTM_CELL] = {gru_state_grad, 1},
};

static void run_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int which = args->op - FL_OP_LSTM_CELL;
    const int64_t width = cells[which].gates * args->p.cell.units;
    struct row r = {args, row, args->p.cell.units, own + width, *(const exponentials *)rows->plan};
    cells[which].compute(&r, own);
    fl_rows_store(args, row * width, width, own, fl_rows_largest(own, width), stats);
}

static struct fl_rows rows_of_call(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->p.cell.rows,
                            .width = 8 * args->p.cell.units,
                            .doubles = (MOST_ARRAYS + FL_LSTM_GATES) * args->p.cell.units,
                            .run = run_row};
}

static size_t fl_cells_need(const struct fl_args *args) {
    const struct fl_rows rows = rows_of_call(args);
    return fl_rows_need(&rows);
}

static tensor_status run_with(const struct fl_args *args, exponentials exp_of) {
    struct fl_rows rows = rows_of_call(args);
    rows.plan = &exp_of;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* The definition computes one row after the other. */
static tensor_status fl_ref_cells(const struct fl_args *args) {
    const exponentials plain = plain_exponentials;
    struct fl_rows rows = rows_of_call(args);
    rows.plan = &plain;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    for (int64_t row = 0; row < rows.rows; row++)
        run_row(&rows, row, (double *)(void *)memory, args->stats);
    return TENSOR_OK;
}

static tensor_status portable(const struct fl_args *args) {
    return run_with(args, fl_exponentials_portable);
}
#ifdef FL_HAVE_AVX2
static tensor_status avx2(const struct fl_args *args) {
    return run_with(args, fl_exponentials_avx2);
}
#else
#define avx2 NULL
#endif
#ifdef FL_HAVE_AVX512
static tensor_status avx512bw(const struct fl_args *args) {
    return run_with(args, fl_exponentials_avx512bw);
}
#else
#define avx512bw NULL
#endif

/* --- the operations ----------------------------------------------------------------------------------------------- */

static const struct fl_any_kernels kernels[FL_BACKENDS] = {[FL_PORTABLE] = {portable, fl_cells_need},
                                                           [FL_AVX2] = {avx2, fl_cells_need},
                                                           [FL_AVX512BW] = {avx512bw, fl_cells_need}};
#define OPERATION(OP, name, of_gradient)                                                                               \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_DOUBLE,                                     \
                                                     .gradient = of_gradient,                                          \
                                                     .reference = {fl_ref_cells, fl_cells_need},                       \
                                                     .any = kernels}
OPERATION(LSTM_CELL, lstm_cell, "lstm_cell_grad, lstm_gates_grad");
OPERATION(LSTM_HIDDEN, lstm_hidden, "lstm_cell_grad, lstm_gates_grad");
OPERATION(LSTM_CELL_GRAD, lstm_cell_grad, NULL);
OPERATION(LSTM_GATES_GRAD, lstm_gates_grad, NULL);
OPERATION(GRU_HIDDEN, gru_hidden, "gru_input_grad, gru_gates_grad, gru_state_grad");
OPERATION(GRU_INPUT_GRAD, gru_input_grad, NULL);
OPERATION(GRU_GATES_GRAD, gru_gates_grad, NULL);
OPERATION(GRU_STATE_GRAD, gru_state_grad, NULL);
