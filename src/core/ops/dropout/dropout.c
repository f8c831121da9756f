/* dropout.c - dropout by counters: reference kernel, kernel of blocks in threads for every format, the operation. No
 * mask is stored: the gradient draws the same numbers again. */
#include "core/table/any_format.h"
#include "core/operations/check_operands.h"
#include "core/ops/dropout/dropout_rules.h"
#include "core/rows/rows.h"

enum { BLOCK = 1024 /* elements that a thread takes at a time */ };

static uint64_t key_of(const struct fl_args *args) {
    return args->p.dropout.key;
}

/* y <- x; alpha: what kept elements are multiplied by, beta: p, real: the step, geo.k: the key */
tensor_status fl_ref_dropout(const struct fl_args *args) {
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
    const uint64_t counter = fl_dropout_counter(args->p.dropout.step), key = key_of(args);
    const uint32_t threshold = fl_dropout_threshold(args->p.dropout.p);
    const double scale = (double)args->p.dropout.scale;
    args->format->decode(&args->in[0], first, n, own);
    for (int64_t i = 0; i < n; i += 4) { /* a block begins with the first word of a draw */
        const struct fl_philox drawn = fl_philox(key, counter, (uint64_t)(first + i) >> 2);
        for (int64_t j = i; j < i + 4 && j < n; j++)
            own[j] = fl_dropout_keeps(drawn.word[j - i], threshold) ? scale * own[j] : 0;
    }
    fl_rows_store(args, first, n, own, fl_rows_largest(own, n), stats);
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

static tensor_status drop_blocks(const struct fl_args *args) {
    struct fl_rows rows = blocks_of(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

const struct fl_any_kernels fl_dropout_any = {drop_blocks, need};

/* --- the operation ------------------------------------------------------------------------------------------------ */

tensor_status tensor_dropout(tensor *y, const tensor *x, float p, uint64_t key, const tensor *step) {
    static const char name[] = "dropout";
    TRY(check_operands(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_same_shapes(name, OPERANDS({"y", y}, {"x", x})));
    if (!(p >= 0 && p < 1))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: p is %g, expected 0 or more and below 1", name, (double)p);
    TRY(fl_check_numbers(name, "step", step, FMT_F64, 1, x));
    TRY(fl_check_apart(name, "step", step, "y", y));
    struct fl_args args = {.op = FL_OP_DROPOUT,
                           .in = {fl_view_of(x)},
                           .p.dropout = {.key = key, .p = p, .scale = (float)(1 / (1 - (double)p))},
                           .late = FL_LATE_IN(step->storage->data, FL_LATE_DOUBLE, p.dropout.step, "dropout: step")};
    return fl_write(y, &args);
}
