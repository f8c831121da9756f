/* gpu_task.c - tasks of a GPU, and their workspace: of the kernel, then that of blocks or of binary32 numbers. */
#include "gpu/gpu_task.h"
#include "blocks/block_rules.h"
#include "core/base/memory.h"
#include "core/table/mixed.h"
#include "core/table/operands.h"
#include "minifloat/minifloat.h"

static void *take(char **memory, size_t bytes) {
    void *const at = *memory;
    *memory += fl_line_bytes(bytes);
    return at;
}

/* --- products in blocks, or of different formats ------------------------------------------------------------------ */

static bool takes_blocks(const struct fl_args *args) {
    return fl_is_product(args->op) && (fl_has_operands(args->p.product.exactness) || fl_is_mixed(args));
}

/* Of chains: their operands are floats, as they are in class exact. */
static bool takes_chains(const struct fl_args *args) {
    return takes_blocks(args) && !fl_has_operands(args->p.product.exactness) && !fl_sums_exactly(args);
}

/* Those of chains are binary32, which is read in place. */
static struct fl_gpu_numbers numbers_of(const struct fl_args *args, const struct fl_format *format,
                                        const struct fl_view *view, char **memory) {
    const bool chains = takes_chains(args);
    const size_t bytes = chains ? sizeof(float) : sizeof(double);
    struct fl_gpu_numbers n = {.format = format, .view = *view, .is_made = format && format->element};
    if (n.is_made)
        n.made = fl_minifloat_of(format, 0);
    if (view->data)
        n.to = chains && format->id == FMT_FP32 ? view->data : take(memory, (size_t)view->count * bytes);
    return n;
}

static void place_operand(const struct fl_args *args, const struct fl_block_matrices *m, int i,
                          struct fl_gpu_block_operand *o, char **memory) {
    const struct fl_block_format *format = fl_class_operands(args->p.product.exactness, i);
    const struct fl_block_source *s = &m->source[i];
    *o = (struct fl_gpu_block_operand){.from = {.view = args->in[i]}, .source = *s};
    if (format || takes_chains(args))
        o->from = numbers_of(args, fl_operand_format(args, i), &args->in[i], memory);
    if (!format)
        return;
    o->format = *format;
    o->key = fl_operand_key(args, i);
    *memory += fl_block_place(&o->out, format, s->outer, s->k, s->inner, *memory);
    o->rows = take(memory, (size_t)o->out.rows * sizeof *o->rows);
    o->maximum = take(memory, sizeof *o->maximum);
}

/* Places everything from `memory` on, and returns the end. */
static char *place_blocks(const struct fl_args *args, struct fl_gpu_blocks *b, char *memory) {
    const struct fl_epilogue *e = &args->p.product.epilogue;
    *b = (struct fl_gpu_blocks){.matrices = fl_block_matrices_of(args),
                                .signs = fl_block_signs(fl_signs_key(args)),
                                .count = args->out.count,
                                .chains = takes_chains(args)};
    for (int i = 0; i < 2; i++)
        place_operand(args, &b->matrices, i, &b->in[i], &memory);
    b->addend[0] = numbers_of(args, fl_bias_format(args), &e->bias, &memory);
    b->addend[1] = numbers_of(args, fl_residual_format(args), &e->residual, &memory);
    if (b->chains) {
        b->results = args->format->id == FMT_FP32 ? NULL : take(&memory, (size_t)b->count * sizeof *b->results);
        return memory;
    }
    b->high = take(&memory, (size_t)b->count * sizeof *b->high);
    b->low = take(&memory, (size_t)b->count * sizeof *b->low);
    return memory;
}

/* More than operands in the workspace take: in a dry run they have no memory yet. */
static size_t blocks_need(const struct fl_args *args) {
    struct fl_gpu_blocks b;
    struct fl_args all = *args;
    char *const from = (char *)(uintptr_t)FL_ALIGNMENT; /* an address that nothing reads */
    struct fl_view *const views[] = {&all.in[0], &all.in[1], &all.p.product.epilogue.bias,
                                     &all.p.product.epilogue.residual};
    for (int i = 0; i < 4; i++)
        if (views[i]->count)
            views[i]->data = from;
    const size_t bytes = (size_t)(place_blocks(&all, &b, from) - from);
    return bytes + (b.chains ? 0 : fl_line_bytes((size_t)args->out.count * sizeof(float)));
}

/* --- floats made from their parameters ---------------------------------------------------------------------------- */

/* Whether the task has to do with them; if so, what it needs to know of them. */
static bool find_floats(const struct fl_call *call, struct fl_gpu_floats *floats) {
    const bool runs = call->kind == FL_CALL_RUN, examines = call->kind == FL_CALL_EXAMINE,
               samples = call->kind == FL_CALL_SAMPLE,
               transfers = examines || call->kind == FL_CALL_LOAD || call->kind == FL_CALL_ROUND;
    const bool nothing = examines || samples || call->kind == FL_CALL_GATHER || call->kind == FL_CALL_CLOSE ||
                         call->kind == FL_CALL_MEAN || fl_is_skipping(call);
    const struct fl_format *format = nothing ? NULL
                                     : runs  ? call->args->format
                                             : call->out.format,
                           *source = !transfers         ? NULL
                                     : call->source.sum ? call->source.sum->format
                                                        : call->source.format;
    floats->writes = format && format->element;
    floats->reads = source && source->element;
    if (floats->writes)
        floats->format = fl_minifloat_of(format, 0);
    if (floats->reads)
        floats->source = fl_minifloat_of(source, 0);
    floats->operands.count = 0;
    floats->out = NULL;
    return floats->writes || floats->reads;
}

/* The task on binary32 numbers. Where a wide part is written, its element is another number. */
static void place_floats(struct gpu_task *task, char *memory) {
    const struct fl_args given = task->args;
    char *const rest = fl_minifloat_place(&given, &task->args, &task->floats.operands, memory);
    task->floats.out = given.out.wide ? (void *)rest : task->args.out.data;
    task->args.out = given.out;
}

/* --- elements of a product computed again, and shadow formats ----------------------------------------------------- */

/* What conversions read of fp16 and bf16; `overflow` and `flush` are those of their codecs. */
static const struct fl_minifloat half = {.shift = 13,
                                         .rebias = 112u << 23,
                                         .least = 0x38800000u,
                                         .magic = 0x3f000000u,
                                         .unit = 0x1p-24f,
                                         .overflow = 0x477ff000u,
                                         .flush = 0x33000000u,
                                         .largest_code = 0x7bff,
                                         .too_large = 0x7c00,
                                         .infinity = 0x7c00,
                                         .nan = 0x7e00,
                                         .signed_nan = 0x8000,
                                         .sign = 16},
                                 brain = {.shift = 16,
                                          .least = 0x00800000u,
                                          .magic = 0x08800000u,
                                          .unit = 0x1p-133f,
                                          .overflow = 0x7f7f8000u,
                                          .flush = 0x00008000u,
                                          .largest_code = 0x7f7f,
                                          .too_large = 0x7f80,
                                          .infinity = 0x7f80,
                                          .nan = 0x7fc0,
                                          .signed_nan = 0x8000,
                                          .sign = 16};

static struct fl_minifloat floats_of(const struct fl_format *format) {
    return format && format->element ? fl_minifloat_of(format, 0) : format && format->id == FMT_BF16 ? brain : half;
}

static void place_sampled(const struct fl_call *call, struct fl_gpu_sampled *s) {
    fl_sampled_operands(call->args, &call->out, s->in);
    for (int i = 0; i < FL_SAMPLED_OPERANDS; i++)
        s->made[i] = floats_of(s->in[i].format);
}

static void place_shadows(const struct fl_shadowing *s, struct fl_gpu_shadow *rules) {
    for (int64_t i = 0; s->measured && i < s->count; i++) {
        const struct fl_format *format = s->formats[i];
        rules[i] = (struct fl_gpu_shadow){.kind = format->arithmetic == FL_ARITHMETIC_SHARED ? FL_GPU_SHADOW_MANTISSAS
                                                  : format->id == FMT_FP32                   ? FL_GPU_SHADOW_BINARY32
                                                                                             : FL_GPU_SHADOW_FLOATS,
                                          .top = format->top,
                                          .made = floats_of(format)};
    }
}

/* --- a task ------------------------------------------------------------------------------------------------------- */

struct fl_args gpu_task_args(const struct fl_args *args) {
    struct fl_args inner = *args;
    if (takes_chains(args)) {
        inner.format = fl_format_of(FMT_FP32);
        inner.p.product.exactness = TENSOR_EXACT;
    }
    return inner;
}

/* The workspace behind that of the kernel. */
static size_t own_need(const struct fl_args *args) {
    return takes_blocks(args) ? blocks_need(args) : args->format->element ? fl_minifloat_bytes(args) : 0;
}

size_t gpu_task_need(const struct fl_args *args, size_t bytes) {
    const size_t own = own_need(args);
    if (takes_blocks(args) && !takes_chains(args))
        return own;
    return own ? fl_line_bytes(bytes) + own : bytes;
}

void gpu_task_of(const struct fl_call *call, struct gpu_task *task) {
    const bool writes = call->kind == FL_CALL_WRITE, computes = writes || call->kind == FL_CALL_RUN;
    task->call = *call;
    task->has_floats = find_floats(call, &task->floats);
    task->has_blocks = writes && takes_blocks(call->args);
    if (call->kind == FL_CALL_SAMPLE) {
        place_sampled(call, &task->sampled);
        task->call.examining.operands = &task->sampled;
    } else if (call->kind == FL_CALL_EXAMINE) {
        place_shadows(&call->examining.shadows, task->shadows);
        task->call.examining.rules = task->shadows;
    }
    if (!computes)
        return;
    struct fl_args *args = &task->args;
    *args = *call->args;
    task->call.args = args;
    if (writes)
        args->out = (struct fl_view){.data = call->out.data, .wide = args->out.wide, .count = call->out.count};
    args->workspace_bytes -= own_need(args);
    char *const memory = (char *)args->workspace + args->workspace_bytes;
    if (task->has_blocks) {
        args->rounding.key = call->out.seed;
        char *const rest = place_blocks(args, &task->blocks, memory);
        task->floats.out = task->blocks.chains ? task->blocks.results : (void *)rest;
        args->p.product.exactness = gpu_task_args(args).p.product.exactness;
    } else if (task->floats.writes) {
        place_floats(task, memory);
    }
}
