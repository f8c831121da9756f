/* dropout.c - dropout by counters: reference kernel, kernels of blocks in threads for every format, the operation. No
 * mask is stored: the gradient draws the same numbers again. */
#include "core/ops/dropout/dropout_rules.h"
#include "core/ops/operation.h"
#include "core/rows/rows.h"
#include <stddef.h>

enum { BLOCK = 1024 /* elements that a thread takes at a time */ };

static uint64_t key_of(const struct fl_args *args) {
    return args->p.dropout.key;
}

static tensor_status fl_ref_dropout(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const uint64_t counter = fl_dropout_counter(args->p.dropout.step);
    const uint32_t threshold = fl_dropout_threshold(args->p.dropout.p);
    for (int64_t i = 0; i < w.count; i++) {
        const bool kept = fl_dropout_keeps(fl_philox_draw(key_of(args), counter, i), threshold);
        w.value[i] = w.near[i] = kept ? (double)args->p.dropout.scale * w.in[0][i] : 0;
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

static void drop_block(const struct fl_rows *rows, int64_t block, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t first = block * BLOCK, left = args->out.count - first, n = left < BLOCK ? left : BLOCK;
    const struct fl_dropped how = {.key = key_of(args),
                                   .counter = fl_dropout_counter(args->p.dropout.step),
                                   .threshold = fl_dropout_threshold(args->p.dropout.p),
                                   .scale = (double)args->p.dropout.scale};
    fl_rows_read_values(rows, 0, first, n, own);
    rows->vectors->drop(own, n, &how, first);
    fl_rows_write(rows, first, n, own, NULL, stats);
}

static struct fl_rows blocks_of(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = (args->out.count + BLOCK - 1) / BLOCK,
                            .width = BLOCK,
                            .doubles = BLOCK,
                            .run = drop_block};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = blocks_of(args);
    return fl_rows_need(&rows);
}

static tensor_status drop(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = blocks_of(args);
    rows.vectors = vectors;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, kernels, drop, need)

/* --- the operation ------------------------------------------------------------------------------------------------ */

static void prepare(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)sizes;
    args->p.dropout.scale = (float)(1 / (1 - scalars[0].real));
}

static const struct fl_operand operands[] = {
    {"y", "e*"},
    {"x", "e*", FL_IN_PLACE, .at = FL_AT(in[0])},
    {"step", "1", FL_LATE_VALUE, FL_CLASS_F64, FL_AT(p.dropout.step), .what = "dropout: step"}};
static const struct fl_scalar_rule scalars[] = {{"p", FL_REAL32, 0, 1, .under = true, .at = FL_AT(p.dropout.p)},
                                                {"key", FL_KEY64, .at = FL_AT(p.dropout.key)}};

const struct fl_operation fl_operation_dropout = {.op = FL_OP_DROPOUT,
                                                  .promise = FL_PROMISE_EXACT,
                                                  .gradient = "dropout",
                                                  .reference = {fl_ref_dropout, fl_ref_bytes},
                                                  .any = kernels};
const struct fl_function fl_function_dropout = {.name = "dropout",
                                                .op = FL_OP_DROPOUT,
                                                .outputs = 1,
                                                FL_OPERANDS_OF(operands),
                                                FL_SCALARS_OF(scalars),
                                                .prepare = prepare};

tensor_status tensor_dropout(tensor *y, const tensor *x, float p, uint64_t key, const tensor *step) {
    return FL_INVOKE(dropout, FL_GIVEN(y, x, step), FL_REAL(p), FL_KEY(key));
}
