/* reduce.c - the sum of all elements, through the kernel of sums over rows, in working memory of fixed size.
 *
 * docs/semantics.md defines it as the sums of the channels, added in order. Exact sums have no order: a tensor of a
 * shared-exponent format counts as rows of few channels. The sums of a float format are those of its own channels, a
 * block of channels and a chunk of rows at a time. */
#include "core/arithmetic/exact.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"
#include <math.h>
#include <string.h>

enum {
    CHANNELS = 4096,      /* of a row, or of rows that lie whole in a call */
    EXACT_CHANNELS = 512, /* that a tensor of integers counts as */
    EXACT_CALL = 1 << 24, /* elements, at most: sums of squares stay far below 64 bits */
    COLUMNS = 64          /* of a longer row that are copied side by side: multiples of 64 bytes */
};

/* In temporary memory: results of the kernel, the sums of a block of channels, elements copied side by side. */
struct work {
    int64_t *isum[2];
    double *sum[2], *total;
    char *copy;
};

static tensor_status make_work(struct work *w, size_t copy_bytes) {
    char *block = fl_temporary(fl_host_queue(), 5 * CHANNELS * sizeof(double) + copy_bytes);
    if (!block)
        return TENSOR_E_MEMORY;
    double *d = (double *)block;
    *w = (struct work){.isum = {(int64_t *)d, (int64_t *)d + CHANNELS},
                       .sum = {d + 2 * CHANNELS, d + 3 * CHANNELS},
                       .total = d + 4 * CHANNELS,
                       .copy = (char *)(d + 5 * CHANNELS)};
    return TENSOR_OK;
}

static tensor_status sum_channels(struct work *w, const tensor *on, const struct fl_view *x, int64_t m, int64_t n) {
    struct fl_args args = {
        .op = FL_OP_CHANNEL_SUMS,
        .in = {*x},
        .p.batch_norm = {.m = m, .n = n, .sums = {{w->isum[0], w->isum[1]}, {w->sum[0], w->sum[1]}}}};
    args.in[0].count = m * n;
    return fl_run(on, &args);
}

static struct fl_view part_of(const tensor *x, int64_t first) {
    struct fl_view view = fl_view_of(x);
    view.data = (char *)view.data + first * x->format->bytes;
    return view;
}

static tensor_status sum_exact(struct work *w, const tensor *x, double *sum) {
    fl_int128 exact = 0;
    for (int64_t first = 0; first < x->count;) {
        const int64_t left = x->count - first, count = left < EXACT_CALL ? left : EXACT_CALL;
        const int64_t m = count < EXACT_CHANNELS ? 1 : count / EXACT_CHANNELS;
        const int64_t n = count < EXACT_CHANNELS ? count : EXACT_CHANNELS;
        const struct fl_view part = part_of(x, first);
        tensor_status status = sum_channels(w, x, &part, m, n);
        if (status)
            return status;
        for (int64_t c = 0; c < n; c++)
            exact += w->isum[0][c];
        first += m * n;
    }
    *sum = ldexp((double)exact, -x->storage->slot->e);
    return TENSOR_OK;
}

/* The sums of channels first ... first + n - 1 of m rows of `channels`, into w->total. Where they are not all channels
 * of a row, chunk by chunk of what one binary32 chain holds; the kernel sums a chunk, and chunks are added in order
 * here as there. */
static tensor_status sum_block(struct work *w, const tensor *x, int64_t m, int64_t channels, int64_t first, int64_t n) {
    const size_t line = (size_t)n * (size_t)x->format->bytes;
    const bool whole = n == channels || m == 1;
    const int64_t step = whole ? m : FL_ROWS_CHUNK;
    memset(w->total, 0, (size_t)n * sizeof *w->total);
    for (int64_t row = 0; row < m; row += step) {
        const int64_t rows = m - row < step ? m - row : step;
        struct fl_view part = part_of(x, row * channels + first);
        if (!whole) {
            for (int64_t i = 0; i < rows; i++)
                memcpy(w->copy + (size_t)i * line, (char *)part.data + i * channels * x->format->bytes, line);
            part.data = w->copy;
        }
        tensor_status status = sum_channels(w, x, &part, rows, n);
        if (status)
            return status;
        for (int64_t c = 0; c < n; c++)
            w->total[c] += w->sum[0][c];
    }
    return TENSOR_OK;
}

static tensor_status sum_floats(struct work *w, const tensor *x, double *sum) {
    const int64_t channels = x->shape[x->ndim - 1], m = x->count / channels;
    const int64_t block = channels <= CHANNELS || m == 1 ? CHANNELS : COLUMNS;
    double total = 0;
    for (int64_t first = 0; first < channels; first += block) {
        const int64_t n = channels - first < block ? channels - first : block;
        tensor_status status = sum_block(w, x, m, channels, first, n);
        if (status)
            return status;
        for (int64_t c = 0; c < n; c++)
            total += w->total[c];
    }
    *sum = total;
    return TENSOR_OK;
}

/* A number of the host is there at once: so is the tensor. */
static tensor_status check_host(const struct fl_invocation *call) {
    return fl_need_host("sum", call->tensors[0]);
}

static tensor_status run_sum(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *x = call->tensors[0];
    double *sum = call->scalars[0].result;
    const bool shared = x->format->arithmetic == FL_ARITHMETIC_SHARED;
    struct work w;
    (void)args;
    TRY(make_work(&w, shared ? 0 : (size_t)FL_ROWS_CHUNK * COLUMNS * (size_t)x->format->bytes));
    return shared ? sum_exact(&w, x, sum) : sum_floats(&w, x, sum);
}

static const struct fl_operand operands[] = {{"x", "e*"}};
static const struct fl_scalar_rule result[] = {{"sum", FL_RESULT}};
const struct fl_function fl_function_sum = {
    .name = "sum", FL_OPERANDS_OF(operands), FL_SCALARS_OF(result), .check = check_host, .run = run_sum};

tensor_status tensor_sum(double *sum, const tensor *x) {
    return FL_INVOKE(sum, FL_GIVEN(x), {.result = sum});
}
