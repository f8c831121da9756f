/* minifloat_kernels.c - every operation of floats made from their parameters, by the kernel of binary32: its operands
 * are converted to binary32, exactly, and its result, which is a binary32 number, is rounded to the format. Where each
 * result depends on one row of the operands, this is done some rows at a time, whose numbers stay in the cache. */
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/ops/operation.h"
#include "float/float_ops.h"
#include "minifloat/minifloat.h"
#include <string.h>

enum { PART = 1 << 14 }; /* elements that a thread converts at a time: four times as many floats are in its cache */

/* Whether the results of the operation are binary32 before they are rounded; other ones must be exact where rounding is
 * stochastic. */
static bool rounds_floats(enum fl_op op) {
    static const bool does[FL_OP_LIMIT] = {
#define EXACTLY(CONSTANT, kernel, workspace, exactly) [FL_OP_##CONSTANT] = exactly,
        FL_FLOAT_OPS(EXACTLY)
#undef EXACTLY
    };
    return does[op];
}

/* --- conversions in threads --------------------------------------------------------------------------------------- */

struct conversion {
    const struct fl_minifloat_conversions *c;
    const struct fl_format *format;
    const struct fl_rounding *rounding;
    const struct fl_view *view;
    float *floats;
    struct fl_stats *stats; /* of each worker */
};

static int64_t length_of(const struct conversion *job, int part) {
    const int64_t left = job->view->count - (int64_t)part * PART;
    return left < PART ? left : PART;
}

static void decode_part(void *context, int part, int worker) {
    (void)worker;
    struct conversion *job = context;
    const struct fl_minifloat f = fl_minifloat_of(job->format, fl_exponent(job->view));
    const int64_t first = (int64_t)part * PART;
    job->c->decode(&f, job->format->bytes, (const char *)job->view->data + first * job->format->bytes,
                   length_of(job, part), job->floats + first);
}

static void encode_part(void *context, int part, int worker) {
    struct conversion *job = context;
    const int64_t first = (int64_t)part * PART;
    fl_minifloat_store(job->c, job->format, job->view, first, length_of(job, part), job->floats + first, NULL,
                       job->rounding, &job->stats[worker]);
}

static void convert(struct conversion *job, fl_part work, int workers) {
    fl_parallel_within(workers, (int)((job->view->count + PART - 1) / PART), work, job);
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static struct fl_view *view_at(struct fl_args *args, const struct fl_operand *o) {
    const bool is_tensor =
        o->class < FL_CLASS_TARGETS && o->at && o->at != FL_AT(out) && !(o->flags & (FL_LATE_VALUE | FL_SHAPE_ONLY));
    return is_tensor ? (struct fl_view *)(void *)((char *)args + o->at) : NULL;
}

static bool same_numbers(const struct fl_view *a, const struct fl_view *b) {
    return a->data == b->data && a->wide == b->wide && a->count == b->count;
}

static size_t bytes_of(int64_t count) {
    return fl_line_bytes((size_t)count * sizeof(float));
}

/* The task on binary32, before its operands have memory. */
static struct fl_args inner_of(const struct fl_args *args) {
    struct fl_args inner = *args;
    inner.format = fl_format_of(FMT_FP32);
    inner.out.wide = NULL;
    return inner;
}

static fl_need need_of_floats(enum fl_op op, enum fl_backend backend) {
    enum fl_backend chosen;
    (void)fl_kernel_select(fl_format_of(FMT_FP32), op, backend, &chosen);
    return fl_need_of(fl_format_of(FMT_FP32), op, chosen);
}

/* Bytes of the operands, without those that share memory. */
static size_t operand_bytes(const struct fl_args *args) {
    struct fl_args copy = *args;
    const struct fl_operand *operands;
    const int count = fl_operands_of(args->op, &operands);
    size_t bytes = bytes_of(args->out.count);
    for (int i = 0; i < count; i++) {
        const struct fl_view *view = view_at(&copy, &operands[i]);
        bytes += view ? bytes_of(view->count) : 0;
    }
    return bytes;
}

static size_t need_at_once(const struct fl_args *args, enum fl_backend backend) {
    const struct fl_args inner = inner_of(args);
    const fl_need need = need_of_floats(args->op, backend);
    return operand_bytes(args) + (need ? fl_line_bytes(need(&inner)) : 0);
}

/* Whether the binary32 results have a place of their own, which is no operand's, until the write ends. */
static bool has_staying_results(const struct fl_args *args) {
    return fl_has_exponent(args->format) && args->out.count > 0;
}

/* Gives each operand its binary32 numbers: those of a wide part in place, others in `memory`, whose end is returned.
 * Operands that are the same have the same numbers; one that counts as its elements is not the same as its wide part.
 */
static char *decode_operands(const struct fl_args *args, struct fl_args *inner,
                             const struct fl_minifloat_conversions *c, int workers, char *memory) {
    const struct fl_operand *operands;
    const int count = fl_operands_of(args->op, &operands);
    struct fl_args given = *args;
    struct fl_view *views[FL_OPERANDS] = {NULL}, *converted[FL_OPERANDS] = {NULL};
    const bool stays = has_staying_results(args);
    inner->out = (struct fl_view){.data = stays ? inner->out.data : args->out.wide, .count = args->out.count};
    memory += stays && !args->out.wide ? bytes_of(args->out.count) : 0;
    for (int i = 0; i < count; i++) {
        views[i] = view_at(&given, &operands[i]);
        if (!views[i] || !views[i]->data)
            continue;
        converted[i] = view_at(inner, &operands[i]);
        *converted[i] = (struct fl_view){.data = views[i]->wide, .count = views[i]->count};
        for (int j = 0; j < i && !converted[i]->data; j++)
            if (converted[j] && same_numbers(views[j], views[i]))
                *converted[i] = *converted[j];
        if (!converted[i]->data) {
            struct conversion job = {.c = c, .format = args->format, .view = views[i], .floats = (void *)memory};
            convert(&job, decode_part, workers);
            converted[i]->data = memory;
            memory += bytes_of(views[i]->count);
        }
        if (!inner->out.data && same_numbers(views[i], &args->out))
            inner->out.data = converted[i]->data;
    }
    if (!inner->out.data && args->out.data) {
        inner->out.data = memory;
        memory += bytes_of(args->out.count);
    }
    return memory;
}

/* --- a task ------------------------------------------------------------------------------------------------------- */

static int workers_of(const struct fl_args *args) {
    return args->workers ? args->workers : fl_threads();
}

static bool is_drawn(const struct fl_args *args) {
    return args->rounding.mode == TENSOR_ROUND_STOCHASTIC && !args->out.wide;
}

/* Rounds the results, or counts them if nothing is stored. */
static void encode_results(const struct fl_args *args, const struct fl_minifloat_conversions *c, float *results) {
    const int workers = workers_of(args);
    const struct fl_rounding nearest = {0};
    struct fl_stats stats[FL_MAX_THREADS];
    struct conversion job = {.c = c,
                             .format = args->format,
                             .rounding = is_drawn(args) ? &args->rounding : &nearest,
                             .view = &args->out,
                             .floats = results,
                             .stats = stats};
    memset(stats, 0, (size_t)workers * sizeof *stats);
    convert(&job, encode_part, workers);
    for (int i = 0; i < workers; i++)
        fl_stats_merge(args->stats, &stats[i]);
}

/* In a workspace of need_at_once. Results under an exponent do not depend on it before they are rounded. So an attempt
 * computes them, in the wide part or at the beginning of the workspace, even if it only measures, and another attempt
 * rounds the same numbers. */
static tensor_status run_at_once(const struct fl_args *args, enum fl_backend backend,
                                 const struct fl_minifloat_conversions *c, char *memory, size_t bytes) {
    const bool stays = has_staying_results(args);
    struct fl_args inner = inner_of(args);
    struct fl_stats floats = {0};
    if (stays)
        inner.out.data = args->out.wide ? args->out.wide : memory;
    if (stays && args->again) {
        encode_results(args, c, inner.out.data);
        return TENSOR_OK;
    }
    char *const rest = decode_operands(args, &inner, c, workers_of(args), memory);
    inner.workspace = rest;
    inner.workspace_bytes = bytes - (size_t)(rest - memory);
    inner.rounding = (struct fl_rounding){0};
    if (args->out.count)
        inner.stats = &floats;
    const tensor_status status = fl_kernel_select(inner.format, args->op, backend, NULL)(&inner);
    if (status || !args->out.count)
        return status;
    if (!args->out.data && !stays)
        fl_stats_merge(args->stats, &floats);
    else
        encode_results(args, c, inner.out.data);
    return TENSOR_OK;
}

/* --- some rows at a time ------------------------------------------------------------------------------------------ */

/* The length of a row of an operation whose results depend on the same row of its operands alone: the elements between
 * which a task may be divided. 0: it has no such rows. */
static int64_t row_of(const struct fl_args *args) {
    switch (args->op) {
#define MAP(CONSTANT)                                                                                                  \
    case FL_OP_##CONSTANT:                                                                                             \
        return 1;
#define FL_MAP1(id, CONSTANT, name, expr) MAP(CONSTANT)
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) MAP(CONSTANT)
#define FL_MAP2(id, CONSTANT, name, expr) MAP(CONSTANT)
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) MAP(CONSTANT)
#define FL_MAP3(id, CONSTANT, name, expr) MAP(CONSTANT)
#include "core/table/no_real_rows.inc"
#include "flexlab/ops.def"
#undef MAP
    case FL_OP_CHANNEL_AFFINE:
    case FL_OP_CHANNEL_AFFINE_GRAD:
        return args->p.batch_norm.n;
    default:
        return 0;
    }
}

/* The elements of a part, whole rows; 0: the task is computed at once. */
static int64_t part_length(const struct fl_args *args) {
    if (has_staying_results(args))
        return 0;
    const int64_t row = row_of(args), length = row > 0 && row < PART ? PART / row * row : row;
    return args->out.count > length ? length : 0;
}

static struct fl_view view_of_part(const struct fl_view *view, int bytes, int64_t first, int64_t count) {
    if (!view->count)
        return *view;
    return (struct fl_view){.data = view->data ? (char *)view->data + first * bytes : NULL,
                            .wide = view->wide ? (float *)view->wide + first : NULL,
                            .count = count};
}

static struct fl_args part_of(const struct fl_args *args, int64_t first, int64_t count) {
    struct fl_args part = *args;
    const int bytes = args->format->bytes;
    part.workers = 1;
    part.out = view_of_part(&args->out, bytes, first, count);
    for (int i = 0; i < 3; i++)
        part.in[i] = view_of_part(&args->in[i], bytes, first, count);
    if (row_of(args) != 1)
        part.p.batch_norm.m = count / row_of(args);
    part.rounding.first += first;
    return part;
}

struct parts {
    const struct fl_args *args;
    enum fl_backend backend;
    const struct fl_minifloat_conversions *c;
    int64_t length;
    char *memory;
    size_t bytes; /* of a worker */
    struct fl_stats stats[FL_MAX_THREADS];
    tensor_status status[FL_MAX_THREADS];
};

static void run_part(void *context, int index, int worker) {
    struct parts *job = context;
    const int64_t first = index * job->length, left = job->args->out.count - first;
    struct fl_args part = part_of(job->args, first, left < job->length ? left : job->length);
    part.stats = &job->stats[worker];
    const tensor_status status =
        run_at_once(&part, job->backend, job->c, job->memory + (size_t)worker * job->bytes, job->bytes);
    job->status[worker] = status ? status : job->status[worker];
}

size_t fl_minifloat_need(const struct fl_args *args, enum fl_backend backend) {
    const int64_t length = part_length(args);
    if (!length)
        return need_at_once(args, backend);
    const struct fl_args part = part_of(args, 0, length);
    return (size_t)workers_of(args) * need_at_once(&part, backend);
}

tensor_status fl_minifloat_run(const struct fl_args *args, enum fl_backend backend,
                               const struct fl_minifloat_conversions *c) {
    if (is_drawn(args) && args->out.count && !rounds_floats(args->op))
        return fl_ref_kernel(args->op)(args);
    const int workers = workers_of(args);
    const size_t bytes = fl_minifloat_need(args, backend);
    char *const memory = fl_workspace(args, bytes);
    if (!memory)
        return TENSOR_E_MEMORY;
    const int64_t length = part_length(args);
    if (!length)
        return run_at_once(args, backend, c, memory, bytes);
    struct parts job = {
        .args = args, .backend = backend, .c = c, .length = length, .memory = memory, .bytes = bytes / (size_t)workers};
    fl_parallel_within(workers, (int)((args->out.count + length - 1) / length), run_part, &job);
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < workers; i++) {
        status = job.status[i] ? job.status[i] : status;
        fl_stats_merge(args->stats, &job.stats[i]);
    }
    return status;
}
