// gpu_calls.cu - a task as a sequence of kernels, as run.c runs it on a processor, but without the host between them.
#include "gpu/gpu_calls.h"
#include "gpu/gpu_blocks.h"
#include "autoflex/write_rules.h"
#include "core/ops/optimisers/optimiser_rules.h"

// --- before, between and after the attempts: one thread --------------------------------------------------------------

// A predictor that a program added is a function of the host; tensors of a device never have one.
__host__ __device__ double fl_autoflex_foreign(const struct autoflex *a) {
    (void)a;
    return 0;
}

__device__ static void clear(struct gpu_control *control) {
    struct fl_stats none = {};
    control->stats = none;
}

// Factors of shared-exponent formats are binary32 numbers.
__device__ static bool finds_factor(struct gpu_control *control, const struct fl_late &late) {
    const double *factor = (const double *)late.at;
    for (int i = 0; late.kind == FL_LATE_FACTORS && i < late.count; i++)
        if (!fl_is_factor(factor[i])) {
            control->failure.finding = FL_GPU_SCALAR;
            control->failure.value[0] = (double)(float)factor[i];
            control->failure.what = late.what;
            return true;
        }
    return false;
}

// A number in a tensor that is not finite, or is below 0 if it must not be, stops the queue here.
__device__ static bool finds_number(struct gpu_control *control, const struct fl_late &late) {
    if (late.kind != FL_LATE_FLOAT && late.kind != FL_LATE_DOUBLE)
        return false;
    const double value = late.kind == FL_LATE_FLOAT ? *(const float *)late.at : *(const double *)late.at;
    if (fl_is_finite(value) && !(late.bound && value < 0))
        return false;
    control->failure.finding = FL_GPU_SCALAR;
    control->failure.value[0] = value;
    control->failure.what = late.what;
    return true;
}

// Begins a write, or the one attempt of a task whose results are numbers.
__global__ void begin_attempts(const struct gpu_call call, bool shared, int kind) {
    struct gpu_control *control = call.control;
    if (control->failure.finding || finds_number(control, call.args.late) ||
        (shared && finds_factor(control, call.args.late)))
        return;
    clear(control);
    control->found = -1;
    fl_write_begin(&control->write, call.slot ? &call.slot->autoflex : NULL, shared, kind);
}

// Ends an attempt; the statistics are those of the last one.
__device__ static void attempted(const struct gpu_call &call) {
    struct gpu_control *control = call.control;
    fl_write_attempted(&control->write, &call.slot->autoflex, control->stats.maximum);
    if (control->write.next != FL_WRITE_DONE)
        clear(control);
}

__global__ void between_attempts(const struct gpu_call call) {
    if (!call.control->failure.finding)
        attempted(call);
}

__global__ void end_write(const struct gpu_call call) {
    const struct gpu_control *control = call.control;
    if (control->failure.finding)
        return;
    fl_write_end(&control->write, &call.slot->autoflex, control->stats.gamma, control->stats.maximum);
    fl_slot_written(call.slot, &control->stats, call.args.out.count);
}

// --- parts of a write: attempts are of the whole sequence; each kernel runs once ---------------------------

__global__ void open_sequence(const struct gpu_call call, const struct fl_sequence_part part, bool shared) {
    if (!call.control->failure.finding)
        fl_sequence_open(part.state, part.tensor, part.attempt, call.slot, part.count, shared);
}

__global__ void close_sequence(const struct gpu_control *control, const struct fl_sequence_part part) {
    if (!control->failure.finding)
        fl_sequence_close(part.state);
}

__global__ void begin_part(struct gpu_control *control, const struct fl_sequence_part part) {
    if (control->failure.finding)
        return;
    clear(control);
    control->write.next = part.state->settled ? FL_WRITE_DONE : FL_WRITE_STORE;
}

__global__ void end_part(const struct gpu_control *control, const struct fl_sequence_part part) {
    if (!control->failure.finding && !part.state->settled)
        fl_stats_merge(&part.state->tensor[part.tensor].stats, &control->stats);
}

// --- narrow formats: what the kernels of 16 bits wrote is clamped as fl_clamp does (narrow.h) --------------------

struct narrow_range {
    int32_t top, wide_top;
};

__device__ static bool exceeds(const struct fl_stats &stats, int32_t top) {
    return stats.gamma > top || stats.nonfinite;
}

// Saturated elements are counted again below.
__global__ void begin_clamp(struct gpu_control *control, const struct narrow_range range) {
    if (!control->failure.finding && exceeds(control->stats, range.top))
        control->stats.saturated = 0;
}

__device__ static int32_t clamped(int32_t m, int32_t top) {
    return m > top ? top : m < -top ? -top : m;
}

__global__ void clamp_elements(struct gpu_control *control, const struct fl_view out, const struct narrow_range range) {
    if (control->failure.finding || !exceeds(control->stats, range.top))
        return;
    struct fl_stats mine = {};
    int16_t *const elements = (int16_t *)out.data;
    int32_t *const wide = (int32_t *)out.wide;
    for (int64_t i = gpu_first(); i < out.count; i += gpu_stride()) {
        const int32_t m = elements[i], w = wide ? wide[i] : 0;
        mine.saturated += wide ? clamped(w, range.wide_top) != w : clamped(m, range.top) != m;
        elements[i] = (int16_t)clamped(m, range.top);
        if (wide)
            wide[i] = clamped(w, range.wide_top);
    }
    gpu_report(control, mine);
}

__global__ void end_clamp(struct gpu_control *control, const struct narrow_range range) {
    if (!control->failure.finding && control->stats.gamma > range.top)
        control->stats.gamma = range.top;
}

// --- sources ---------------------------------------------------------------------------------------------------------

// Finds the largest finite |x|, and the first number that is not finite.
__global__ void look_at(struct gpu_control *control, const struct gpu_numbers numbers, int64_t count) {
    if (control->failure.finding || control->write.next != FL_WRITE_MEASURE)
        return;
    struct fl_stats stats = {};
    for (int64_t i = gpu_first(); i < count; i += gpu_stride()) {
        const double x = gpu_number(numbers, i), size = x < 0 ? -x : x;
        if (!fl_is_finite(size))
            gpu_found(control, i);
        else if (size > stats.maximum)
            stats.maximum = size;
    }
    gpu_report(control, stats);
}

__global__ void end_look(const struct gpu_call call, const struct gpu_numbers numbers, bool load, const char *what) {
    struct gpu_control *control = call.control;
    if (control->failure.finding || control->write.next != FL_WRITE_MEASURE)
        return;
    if (load && control->found >= 0) {
        const double value = gpu_number(numbers, control->found);
        control->failure.finding = FL_GPU_LOAD;
        control->failure.at = control->found;
        control->failure.value[0] = value;
        control->failure.what = what;
        control->failure.format = call.args.format;
        return;
    }
    attempted(call);
}

// --- the update of a step that overflowed is left out ----------------------------------------------------------------

__global__ void begin_look(struct gpu_control *control) {
    if (control->failure.finding)
        return;
    clear(control);
    control->found = -1;
}

__global__ void look_at_writes(struct gpu_control *control, const struct fl_skipping s) {
    struct fl_stats seen = {};
    if (control->failure.finding)
        return;
    for (int64_t i = gpu_first(); i < s.count; i += gpu_stride()) {
        seen.saturated += fl_overflowed(&s.list[i]);
        if (fl_is_nonfinite(&s.list[i]))
            gpu_found(control, i);
    }
    gpu_report(control, seen);
}

// Tasks are left out as those after a failure are.
__global__ void end_look_at_writes(struct gpu_control *control, const struct fl_skipping s) {
    if (control->failure.finding)
        return;
    fl_scale_see(s.state, s.list, control->stats.saturated, control->found);
    if (s.decides && s.state->overflows > 0)
        control->failure.finding = FL_GPU_SKIPS;
}

__global__ void follow_scale(struct gpu_control *control, const struct fl_skipping s) {
    if (control->failure.finding == FL_GPU_SKIPS)
        control->failure.finding = FL_GPU_NOTHING;
    if (!control->failure.finding)
        fl_scale_end(&s);
}

__global__ void share_scale(const struct gpu_control *control, const struct fl_skipping s) {
    if (!control->failure.finding)
        *s.scale = s.state->scale * s.share;
}

// --- chains of binary32 whose operands or results have another format: their sums are stored afterwards --------------

__global__ void begin_chains(struct gpu_control *control) {
    control->next = control->write.next;
    if (!control->failure.finding && control->next == FL_WRITE_MEASURE)
        control->write.next = FL_WRITE_STORE;
}

__global__ void end_chains(struct gpu_control *control) {
    if (control->failure.finding)
        return;
    clear(control);
    control->write.next = control->next;
}

// --- the host's side -------------------------------------------------------------------------------------------------

static bool is_shared(const struct fl_format *format) {
    return format->arithmetic == FL_ARITHMETIC_SHARED;
}

static struct gpu_call describe(const struct fl_call *call, const struct fl_gpu_floats *floats,
                                struct gpu_control *control) {
    struct gpu_call c;
    memset(&c, 0, sizeof c);
    if (call->args)
        c.args = *call->args;
    if (floats)
        c.made = floats->format;
    c.control = control;
    c.mode = TENSOR_ROUND_NEAREST;
    return c;
}

static void describe_output(struct gpu_call *c, const struct fl_gpu_floats *floats, const struct fl_storage *out) {
    c->args.format = out->format;
    c->args.out.data = floats ? floats->out : out->data;
    c->args.out.e = &out->slot->autoflex.e;
    c->args.out.count = out->count;
    c->slot = out->slot;
    c->mode = out->rounding;
    c->seed = out->seed;
}

// Of a tensor with a wide part the element is the rounding of that, to nearest.
static struct gpu_call describe_write(const struct fl_call *call, const struct fl_gpu_floats *floats,
                                      struct gpu_control *control) {
    struct gpu_call c = describe(call, floats, control);
    describe_output(&c, floats, &call->out);
    if (c.args.out.wide && c.mode == TENSOR_ROUND_STOCHASTIC)
        c.mode = TENSOR_ROUND_NEAREST;
    return c;
}

// The sums of a product in blocks are the same for both attempts to store them.
static cudaError_t multiply_blocks(const struct gpu_call *c, const struct fl_gpu_blocks *blocks, cudaStream_t stream) {
    const struct gpu_pairs pairs = {blocks->high, blocks->low, (const double *)blocks->addend[0].to,
                                    (const double *)blocks->addend[1].to};
    if (!c->attempt)
        TRY_CUDA(gpu_sum_blocks(c, blocks, stream));
    return gpu_kernels_for(c->args.format)->store_pairs(c, &pairs, stream);
}

// What a product of chains reads becomes binary32, and so are its sums, which the kernels of the result's format round.
static cudaError_t multiply_chains(const struct gpu_call *c, const struct fl_gpu_blocks *t, cudaStream_t stream) {
    struct gpu_call inner = *c;
    struct fl_epilogue *const how = &inner.args.p.product.epilogue;
    struct fl_view *const views[] = {&inner.args.in[0], &inner.args.in[1], &how->bias, &how->residual};
    const struct fl_gpu_numbers *const from[] = {&t->in[0].from, &t->in[1].from, &t->addend[0], &t->addend[1]};
    struct gpu_numbers numbers;
    memset(&numbers, 0, sizeof numbers);
    numbers.f = t->results;
    for (int i = 0; i < 4; i++) {
        views[i]->data = from[i]->to;
        if (!c->attempt && from[i]->to != from[i]->view.data)
            TRY_CUDA(from[i]->is_made
                         ? gpu_decode_floats(c->control, &from[i]->made, from[i]->view.data, from[i]->view.count,
                                             (float *)from[i]->to, stream)
                         : gpu_kernels_for(from[i]->format)->to_floats(&from[i]->view, (float *)from[i]->to, stream));
    }
    const gpu_operation run = gpu_kernels_of(FMT_FP32)->op[c->args.op];
    if (!t->results)
        return run(&inner, stream);
    if (!c->attempt) {
        inner.args.out.data = t->results;
        inner.mode = TENSOR_ROUND_NEAREST;
        TRY_CUDA(gpu_launch(begin_chains, 1, 1, 0, stream, c->control));
        TRY_CUDA(run(&inner, stream));
        TRY_CUDA(gpu_launch(end_chains, 1, 1, 0, stream, c->control));
    }
    return gpu_kernels_for(c->args.format)->from_numbers(c, &numbers, true, stream);
}

// The kernels of the task, between conversions where they compute floats made from their parameters.
static cudaError_t compute(const struct gpu_call *c, const struct fl_gpu_floats *floats,
                           const struct fl_gpu_blocks *blocks, void *elements, cudaStream_t stream) {
    const gpu_operation run = gpu_kernels_for(c->args.format)->op[c->args.op];
    for (int i = 0; floats && i < floats->operands.count; i++) {
        const struct fl_view *view = &floats->operands.view[i];
        TRY_CUDA(gpu_decode_floats(c->control, &floats->format, view->data, view->count, floats->operands.floats[i],
                                   stream));
    }
    TRY_CUDA(!blocks          ? run(c, stream)
             : blocks->chains ? multiply_chains(c, blocks, stream)
                              : multiply_blocks(c, blocks, stream));
    return floats && elements ? gpu_encode(c, elements, stream) : cudaSuccess;
}

// After the last attempt, whose statistics it corrects. The kernels that clamp read what the one before them left.
static cudaError_t clamp(const struct gpu_call *c, const struct fl_call *call, void *wide, cudaStream_t stream) {
    if (!fl_is_narrow(call->out.format))
        return cudaSuccess;
    const struct narrow_range range = {call->out.format->top, fl_wide_limit(call->out.format)};
    const struct fl_view view = {call->out.data, wide, NULL, c->args.out.count};
    TRY_CUDA(gpu_launch(begin_clamp, 1, 1, 0, stream, c->control, range));
    TRY_CUDA(gpu_launch(clamp_elements, gpu_blocks(view.count), GPU_THREADS, 0, stream, c->control, view, range));
    return gpu_launch(end_clamp, 1, 1, 0, stream, c->control, range);
}

static cudaError_t follow(const struct fl_call *call, const struct fl_gpu_floats *floats, struct gpu_control *control,
                          cudaStream_t stream) {
    const struct fl_view view = {call->out.data, NULL, &call->out.slot->e, call->out.count};
    return floats ? gpu_decode_floats(control, &floats->format, view.data, view.count, (float *)call->out.wide, stream)
                  : gpu_kernels_for(call->out.format)->follow(control, &view, call->out.wide, stream);
}

static cudaError_t end(const struct gpu_call *c, const struct fl_call *call, const struct fl_gpu_floats *floats,
                       bool with_wide_part, cudaStream_t stream) {
    TRY_CUDA(gpu_launch(end_write, 1, 1, 0, stream, *c));
    if (!call->out.wide || with_wide_part)
        return cudaSuccess;
    return follow(call, floats, c->control, stream);
}

static cudaError_t write_part(const struct fl_call *call, const struct fl_gpu_floats *floats,
                              const struct fl_gpu_blocks *blocks, struct gpu_control *control, cudaStream_t stream) {
    const struct gpu_call c = describe_write(call, floats, control);
    TRY_CUDA(gpu_launch(begin_part, 1, 1, 0, stream, control, call->sequence));
    TRY_CUDA(compute(&c, floats, blocks, call->out.data, stream));
    TRY_CUDA(clamp(&c, call, c.args.out.wide, stream));
    return gpu_launch(end_part, 1, 1, 0, stream, control, call->sequence);
}

static cudaError_t open(const struct fl_call *call, const struct fl_gpu_floats *floats, struct gpu_control *control,
                        cudaStream_t stream) {
    return gpu_launch(open_sequence, 1, 1, 0, stream, describe_write(call, floats, control), call->sequence,
                      is_shared(call->out.format));
}

static cudaError_t write(const struct fl_call *call, const struct fl_gpu_floats *floats,
                         const struct fl_gpu_blocks *blocks, struct gpu_control *control, cudaStream_t stream) {
    const bool shared = is_shared(call->out.format);
    struct gpu_call c = describe_write(call, floats, control);
    TRY_CUDA(
        gpu_launch(begin_attempts, 1, 1, 0, stream, c, shared, call->measures_first ? FL_WRITE_ONCE : FL_WRITE_FREE));
    TRY_CUDA(compute(&c, floats, blocks, call->out.data, stream));
    if (shared) {
        TRY_CUDA(gpu_launch(between_attempts, 1, 1, 0, stream, c));
        c.attempt = 1;
        TRY_CUDA(compute(&c, floats, blocks, call->out.data, stream));
    }
    TRY_CUDA(clamp(&c, call, c.args.out.wide, stream));
    return end(&c, call, floats, c.args.out.wide != NULL, stream);
}

static cudaError_t run(const struct fl_call *call, const struct fl_gpu_floats *floats, struct gpu_control *control,
                       cudaStream_t stream) {
    const struct gpu_call c = describe(call, floats, control);
    TRY_CUDA(gpu_launch(begin_attempts, 1, 1, 0, stream, c, false, FL_WRITE_FREE));
    return compute(&c, floats, NULL, NULL, stream);
}

// The numbers of the source: those in place, or the elements of a tensor or of a sum as doubles.
static cudaError_t fetch(const struct fl_call *call, const struct fl_gpu_floats *floats, struct gpu_numbers *numbers,
                         cudaMemPool_t pool, cudaStream_t stream) {
    const struct fl_source *s = &call->source;
    const struct gpu_numbers there = {s->d, s->f, s->pixels, s->values, s->channels, s->fill};
    const struct fl_minifloat *made = floats && floats->reads ? &floats->source : NULL;
    *numbers = there;
    if (!s->format && !s->sum)
        return cudaSuccess;
    numbers->d = call->doubles;
    return s->sum ? gpu_sum(s->sum, made, call->out.count, call->doubles, pool, stream)
                  : gpu_numbers_to_doubles(s, made, call->out.count, call->doubles, stream);
}

static cudaError_t transfer(const struct fl_call *call, const struct fl_gpu_floats *floats, struct gpu_control *control,
                            const struct gpu_numbers *numbers, bool load, cudaStream_t stream) {
    const struct gpu_kernels *kernels = gpu_kernels_for(call->out.format);
    struct gpu_call c = describe(call, floats, control);
    describe_output(&c, NULL, &call->out);
    c.code_bytes = call->out.format->bytes;
    memset(&c.args.late, 0, sizeof c.args.late);
    const bool shared = is_shared(call->out.format), both = load && call->out.wide;
    TRY_CUDA(gpu_launch(begin_attempts, 1, 1, 0, stream, c, shared, load ? FL_WRITE_LOAD : FL_WRITE_ONCE));
    if (shared) {
        TRY_CUDA(gpu_launch(look_at, gpu_blocks(call->out.count), GPU_THREADS, 0, stream, control, *numbers,
                            call->out.count));
        TRY_CUDA(gpu_launch(end_look, 1, 1, 0, stream, c, *numbers, load, call->what));
    }
    if (load) /* never stochastic */
        c.mode = call->out.rounding == TENSOR_ROUND_TRUNCATE ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST;
    TRY_CUDA(both ? kernels->load_wide(&c, call->out.wide, numbers, stream)
                  : kernels->from_numbers(&c, numbers, !load, stream));
    TRY_CUDA(clamp(&c, call, both ? call->out.wide : NULL, stream));
    return end(&c, call, floats && floats->writes ? floats : NULL, both, stream);
}

static cudaError_t load_or_round(const struct fl_call *call, const struct fl_gpu_floats *floats,
                                 struct gpu_control *control, cudaMemPool_t pool, cudaStream_t stream) {
    struct gpu_numbers numbers;
    TRY_CUDA(fetch(call, floats, &numbers, pool, stream));
    return transfer(call, floats, control, &numbers, call->kind == FL_CALL_LOAD, stream);
}

static cudaError_t look(const struct fl_skipping *s, struct gpu_control *control, cudaStream_t stream) {
    TRY_CUDA(gpu_launch(begin_look, 1, 1, 0, stream, control));
    TRY_CUDA(gpu_launch(look_at_writes, gpu_blocks(s->count), GPU_THREADS, 0, stream, control, *s));
    return gpu_launch(end_look_at_writes, 1, 1, 0, stream, control, *s);
}

cudaError_t gpu_load_kernels(void) {
    cudaFuncAttributes of;
    return cudaFuncGetAttributes(&of, begin_attempts);
}

cudaError_t gpu_submit(const struct fl_call *call, const struct fl_gpu_floats *floats,
                       const struct fl_gpu_blocks *blocks, struct gpu_control *control, cudaMemPool_t pool,
                       cudaStream_t stream) {
    switch (call->kind) {
    case FL_CALL_WRITE:
        return call->sequence.state ? write_part(call, floats, blocks, control, stream)
                                    : write(call, floats, blocks, control, stream);
    case FL_CALL_OPEN:
        return open(call, floats, control, stream);
    case FL_CALL_CLOSE:
        return gpu_launch(close_sequence, 1, 1, 0, stream, control, call->sequence);
    case FL_CALL_RUN:
        return run(call, floats, control, stream);
    case FL_CALL_FOLLOW:
        return follow(call, floats, control, stream);
    case FL_CALL_GATHER:
        return gpu_gather(&call->gather, control, stream);
    case FL_CALL_LOOK:
        return look(&call->skipping, control, stream);
    case FL_CALL_FOLLOW_SCALE:
        return gpu_launch(follow_scale, 1, 1, 0, stream, control, call->skipping);
    case FL_CALL_SHARE:
        return gpu_launch(share_scale, 1, 1, 0, stream, control, call->skipping);
    case FL_CALL_MEAN:
        return gpu_mean(call->source.sum, control, call->out.count, (double *)call->out.data, pool, stream);
    case FL_CALL_EXAMINE:
        return gpu_examine(&call->source, floats && floats->reads ? &floats->source : NULL, &call->examining, control,
                           stream);
    case FL_CALL_SAMPLE:
        return gpu_sample(call, control, stream);
    default:
        return load_or_round(call, floats, control, pool, stream);
    }
}
