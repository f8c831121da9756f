/* minifloat_kernels.c - every operation of floats made from their parameters, by the kernel of binary32: its operands
 * are converted to binary32, exactly, and its result, which is a binary32 number, is rounded to the format. */
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/ops/operation.h"
#include "float/float_ops.h"
#include "minifloat/minifloat.h"

enum { PART = 1 << 14 }; /* elements that a thread converts at a time */

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
    struct fl_stats stats[FL_MAX_THREADS];
};

static int64_t length_of(const struct conversion *job, int part) {
    const int64_t left = job->view->count - (int64_t)part * PART;
    return left < PART ? left : PART;
}

static void decode_part(void *context, int part, int worker) {
    (void)worker;
    struct conversion *job = context;
    const struct fl_minifloat f = fl_minifloat_of(job->format->element);
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
    if (o->class == FL_CLASS_TARGETS)
        return &args->in[1]; /* where they have the format of the task */
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

size_t fl_minifloat_bytes(const struct fl_args *args) {
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

size_t fl_minifloat_need(const struct fl_args *args, enum fl_backend backend) {
    const struct fl_args inner = inner_of(args);
    const fl_need need = need_of_floats(args->op, backend);
    return fl_minifloat_bytes(args) + (need ? fl_line_bytes(need(&inner)) : 0);
}

_Static_assert((int)FL_MINIFLOAT_OPERANDS == (int)FL_OPERANDS, "as many as an operation has");

/* Operands that are the same have the same numbers; one that counts as its elements is not the same as its wide part.
 */
char *fl_minifloat_place(const struct fl_args *args, struct fl_args *inner, struct fl_minifloat_operands *to,
                         char *memory) {
    const struct fl_operand *operands;
    const int count = fl_operands_of(args->op, &operands);
    struct fl_args given = *args;
    struct fl_view *views[FL_OPERANDS] = {NULL}, *converted[FL_OPERANDS] = {NULL};
    inner->out = (struct fl_view){.data = args->out.wide, .count = args->out.count};
    to->count = 0;
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
            to->view[to->count] = *views[i];
            to->floats[to->count++] = converted[i]->data = memory;
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

tensor_status fl_minifloat_run(const struct fl_args *args, enum fl_backend backend,
                               const struct fl_minifloat_conversions *c) {
    const bool drawn = args->rounding.mode == TENSOR_ROUND_STOCHASTIC && !args->out.wide;
    if (drawn && args->out.count && !rounds_floats(args->op))
        return fl_ref_kernel(args->op)(args);
    const int workers = args->workers ? args->workers : fl_threads();
    const size_t bytes = fl_minifloat_need(args, backend);
    char *const memory = fl_workspace(args, bytes);
    if (!memory)
        return TENSOR_E_MEMORY;
    struct fl_args inner = inner_of(args);
    struct fl_stats stats = {0};
    struct fl_minifloat_operands operands;
    char *const rest = fl_minifloat_place(args, &inner, &operands, memory);
    for (int i = 0; i < operands.count; i++) {
        struct conversion job = {
            .c = c, .format = args->format, .view = &operands.view[i], .floats = operands.floats[i]};
        convert(&job, decode_part, workers);
    }
    inner.workspace = rest;
    inner.workspace_bytes = bytes - (size_t)(rest - memory);
    inner.rounding = (struct fl_rounding){0};
    if (args->out.count)
        inner.stats = &stats;
    const tensor_status status = fl_kernel_select(inner.format, args->op, backend, NULL)(&inner);
    if (status || !args->out.count)
        return status;
    if (!args->out.data) {
        fl_stats_merge(args->stats, &stats);
        return TENSOR_OK;
    }
    const struct fl_rounding nearest = {0};
    struct conversion job = {.c = c,
                             .format = args->format,
                             .rounding = drawn ? &args->rounding : &nearest,
                             .view = &args->out,
                             .floats = inner.out.data};
    convert(&job, encode_part, workers);
    for (int i = 0; i < workers; i++)
        fl_stats_merge(args->stats, &job.stats[i]);
    return TENSOR_OK;
}
