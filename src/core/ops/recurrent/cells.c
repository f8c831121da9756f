/* cells.c - kernels of the cells of recurrent networks: a row is the units of one sequence. The definition, and rows in
 * threads for every format, which differ only in the instructions. */
#include "core/arithmetic/elementary.h"
#include "core/ops/operation.h"
#include "core/ops/recurrent/cells.h"

/* --- the definition ----------------------------------------------------------------------------------------------- */

static void by_codec(const struct fl_args *args, const struct fl_view *view, int64_t first, int64_t n, double *to) {
    args->format->decode(args->format, view, first, n, to);
}

static void plain_exponentials(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = fl_exp(x[i]);
}

#define FL_ISA definition
#define CELL_READ by_codec
#define CELL_EXPONENTIALS plain_exponentials
#include "core/ops/recurrent/cells.inc"

/* --- kernels ------------------------------------------------------------------------------------------------------ */

static struct fl_rows rows_of_call(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->p.cell.rows,
                            .width = 8 * args->p.cell.units,
                            .doubles = FL_CELL_ARRAYS * args->p.cell.units};
}

static size_t fl_cells_need(const struct fl_args *args) {
    const struct fl_rows rows = rows_of_call(args);
    return fl_rows_need(&rows);
}

typedef void (*run_row)(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats);

static tensor_status run_with(const struct fl_args *args, run_row run, enum fl_backend backend) {
    struct fl_rows rows = rows_of_call(args);
    rows.run = run;
    rows.vectors = fl_row_vectors_of(backend);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* The definition computes one row after the other. */
static tensor_status fl_ref_cells(const struct fl_args *args) {
    struct fl_rows rows = rows_of_call(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    for (int64_t row = 0; row < rows.rows; row++)
        fl_cell_row_definition(&rows, row, (double *)(void *)memory, args->stats);
    return TENSOR_OK;
}

static tensor_status portable(const struct fl_args *args) {
    return run_with(args, fl_cell_row_portable, FL_PORTABLE);
}
#ifdef FL_HAVE_AVX2
static tensor_status avx2(const struct fl_args *args) {
    return run_with(args, fl_cell_row_avx2, FL_AVX2);
}
#else
#define avx2 NULL
#endif
#ifdef FL_HAVE_AVX512
static tensor_status avx512bw(const struct fl_args *args) {
    return run_with(args, fl_cell_row_avx512bw, FL_AVX512BW);
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
