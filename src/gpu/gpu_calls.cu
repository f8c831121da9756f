// gpu_calls.cu - a call as a sequence of kernels: what run.c does on a processor, with nobody to look in between.
#include "gpu/gpu_calls.h"
#include "autoflex/autoflex_rules.h"
#include "core/ops/optimisers/optimiser_rules.h"

// --- before, between and after the attempts: one thread --------------------------------------------------------------

// A predictor that a program added is a function of the host; tensors of a device never have one.
__host__ __device__ double fl_autoflex_foreign(const struct autoflex *a) {
    (void)a;
    return 0;
}

__device__ static bool needs_maximum(const struct autoflex *a) {
    return a->predictor == AUTOFLEX_CURRENT;
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

// A number that stands in a tensor and is not finite, or below 0 where that is no bound, ends the queue here.
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

__global__ void begin_run(const struct gpu_call call) {
    struct gpu_control *control = call.control;
    if (control->failure.finding || finds_number(control, call.args.late))
        return;
    clear(control);
    control->found = -1;
    control->measure = control->done = 0;
}

// The exponent by the history, or the first attempt finds the maximum: "current" stores at the exponent of the last
// write, which mostly is right again, unless operands are overwritten.
__global__ void begin_write(const struct gpu_call call, bool shared, bool measures_first) {
    struct gpu_control *control = call.control;
    if (control->failure.finding || finds_number(control, call.args.late) ||
        (shared && finds_factor(control, call.args.late)))
        return;
    clear(control);
    struct autoflex *a = &call.slot->autoflex;
    control->fits = shared && needs_maximum(a);
    control->measure = 0;
    control->done = 0;
    control->repeats = 0;
    if (!shared)
        return;
    if (!control->fits && a->initialised) {
        fl_autoflex_adjust(a);
        control->repeats = fl_repeats(a->predictor);
        control->measure = control->repeats && measures_first;
        return;
    }
    control->measure = !control->fits || measures_first;
    control->tried = a->e;
}

// Whether the first attempt was the write; else the exponent of the second.
__global__ void between_attempts(const struct gpu_call call) {
    struct gpu_control *control = call.control;
    if (control->failure.finding)
        return;
    struct autoflex *a = &call.slot->autoflex;
    if (control->fits)
        control->done = fl_autoflex_fit(a, control->stats.maximum) == control->tried && !control->measure;
    else if (control->repeats)
        control->done = !fl_autoflex_repeat(a, control->stats.maximum) && !control->measure;
    else if (control->measure)
        fl_autoflex_initialise(a, control->stats.maximum);
    else
        control->done = 1;
    if (!control->done)
        clear(control);
}

__global__ void end_write(const struct gpu_call call, bool records) {
    const struct gpu_control *control = call.control;
    if (control->failure.finding)
        return;
    if (records)
        fl_autoflex_record(&call.slot->autoflex, control->stats.gamma, control->stats.maximum);
    fl_slot_written(call.slot, &control->stats, call.args.out.count);
}

// --- parts of a write: attempts are those of the whole sequence, and each kernel runs once ---------------------------

__global__ void open_sequence(const struct gpu_call call, const struct fl_sequence_part part, bool shared) {
    if (call.control->failure.finding)
        return;
    fl_sequence_open(part.state, part.tensor, part.attempt, call.slot, part.count, shared,
                     shared && needs_maximum(&call.slot->autoflex));
}

__global__ void close_sequence(const struct gpu_control *control, const struct fl_sequence_part part) {
    if (!control->failure.finding)
        fl_sequence_close(part.state, part.attempt);
}

__global__ void begin_part(struct gpu_control *control, const struct fl_sequence_part part) {
    if (control->failure.finding)
        return;
    clear(control);
    control->measure = 0;
    control->done = part.state->settled; // of a second attempt, as which the kernel runs
}

__global__ void end_part(const struct gpu_control *control, const struct fl_sequence_part part) {
    if (!control->failure.finding && !part.state->settled)
        fl_stats_merge(&part.state->tensor[part.tensor].stats, &control->stats);
}

// --- sources ---------------------------------------------------------------------------------------------------------

__global__ void begin_look(struct gpu_control *control) {
    if (control->failure.finding)
        return;
    clear(control);
    control->found = -1;
    control->measure = control->done = 0;
}

// The largest finite |x|, and the first that is not finite.
__global__ void look_at(struct gpu_control *control, const struct gpu_numbers numbers, int64_t count) {
    if (control->failure.finding)
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
    if (control->failure.finding)
        return;
    struct autoflex *a = &call.slot->autoflex;
    if (load && control->found >= 0) {
        const double value = gpu_number(numbers, control->found);
        control->failure.finding = FL_GPU_LOAD;
        control->failure.at = control->found;
        control->failure.value[0] = value;
        control->failure.what = what;
        control->failure.format = call.args.format;
        return;
    }
    if (needs_maximum(a))
        fl_autoflex_fit(a, control->stats.maximum);
    else if (load)
        fl_autoflex_load(a, control->stats.maximum);
    else if (!a->initialised)
        fl_autoflex_initialise(a, control->stats.maximum);
    else
        fl_autoflex_adjust(a);
    if (!load)
        fl_autoflex_repeat(a, control->stats.maximum);
    clear(control);
}

// --- the host's side -------------------------------------------------------------------------------------------------

#define TRY(what)                                                                                                      \
    do {                                                                                                               \
        const cudaError_t error_ = (what);                                                                             \
        if (error_ != cudaSuccess)                                                                                     \
            return error_;                                                                                             \
    } while (0)

static bool is_shared(const struct fl_format *format) {
    return format->arithmetic == FL_ARITHMETIC_SHARED;
}

static struct gpu_call describe(const struct fl_call *call, struct gpu_control *control) {
    struct gpu_call c;
    memset(&c, 0, sizeof c);
    c.args = call->args;
    c.control = control;
    c.mode = TENSOR_ROUND_NEAREST;
    return c;
}

static void describe_output(struct gpu_call *c, const struct fl_storage *out) {
    c->args.format = out->format;
    c->args.out.data = out->data;
    c->args.out.e = &out->slot->autoflex.e;
    c->args.out.count = out->count;
    c->slot = out->slot;
    c->mode = out->rounding;
    c->seed = out->seed;
}

static cudaError_t end(const struct gpu_call *c, const struct fl_call *call, bool records, bool with_wide_part,
                       cudaStream_t stream) {
    TRY(gpu_launch(end_write, 1, 1, 0, stream, *c, records));
    if (!call->out.wide || with_wide_part)
        return cudaSuccess;
    const struct fl_view view = {call->out.data, NULL, &call->out.slot->e, call->out.count};
    return gpu_kernels_of(call->out.format->id)->follow(c->control, &view, call->out.wide, stream);
}

static cudaError_t write_part(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    struct gpu_call c = describe(call, control);
    describe_output(&c, &call->out);
    c.attempt = 1;
    TRY(gpu_launch(begin_part, 1, 1, 0, stream, control, call->sequence));
    TRY(gpu_kernels_of(call->out.format->id)->op[call->args.op](&c, stream));
    return gpu_launch(end_part, 1, 1, 0, stream, control, call->sequence);
}

static cudaError_t open(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    struct gpu_call c = describe(call, control);
    describe_output(&c, &call->out);
    return gpu_launch(open_sequence, 1, 1, 0, stream, c, call->sequence, is_shared(call->out.format));
}

static cudaError_t write(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    const gpu_operation run = gpu_kernels_of(call->out.format->id)->op[call->args.op];
    const bool shared = is_shared(call->out.format);
    struct gpu_call c = describe(call, control);
    describe_output(&c, &call->out);
    TRY(gpu_launch(begin_write, 1, 1, 0, stream, c, shared, call->measures_first));
    TRY(run(&c, stream));
    if (shared) {
        TRY(gpu_launch(between_attempts, 1, 1, 0, stream, c));
        c.attempt = 1;
        TRY(run(&c, stream));
    }
    return end(&c, call, shared, c.args.out.wide != NULL, stream);
}

static cudaError_t run(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    const struct gpu_call c = describe(call, control);
    TRY(gpu_launch(begin_run, 1, 1, 0, stream, c));
    return gpu_kernels_of(call->args.format->id)->op[call->args.op](&c, stream);
}

// The numbers of the source: where they lie, or the elements of a tensor as doubles, in memory that goes back when the
// kernels after it have run.
static cudaError_t fetch(const struct fl_call *call, struct gpu_numbers *numbers, double **memory,
                         cudaStream_t stream) {
    const struct fl_source *s = &call->source;
    const struct gpu_numbers there = {s->d, s->f, s->pixels, s->values, s->channels, s->fill};
    *numbers = there;
    if (!s->format)
        return cudaSuccess;
    TRY(cudaMallocAsync((void **)memory, (size_t)call->out.count * sizeof **memory, stream));
    numbers->d = *memory;
    return gpu_numbers_to_doubles(s, call->out.count, *memory, stream);
}

static cudaError_t transfer(const struct fl_call *call, struct gpu_control *control, const struct gpu_numbers *numbers,
                            bool load, cudaStream_t stream) {
    const struct gpu_kernels *kernels = gpu_kernels_of(call->out.format->id);
    struct gpu_call c = describe(call, control);
    describe_output(&c, &call->out);
    TRY(gpu_launch(begin_look, 1, 1, 0, stream, control));
    if (is_shared(call->out.format)) {
        TRY(gpu_launch(look_at, gpu_blocks(call->out.count), GPU_THREADS, 0, stream, control, *numbers,
                       call->out.count));
        TRY(gpu_launch(end_look, 1, 1, 0, stream, c, *numbers, load, call->what));
    }
    if (load) /* never stochastic */
        c.mode = call->out.rounding == TENSOR_ROUND_TRUNCATE ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST;
    if (load && call->out.wide) {
        TRY(kernels->load_wide(&c, call->out.wide, numbers, stream));
        return end(&c, call, false, true, stream);
    }
    TRY(kernels->from_numbers(&c, numbers, !load, stream));
    return end(&c, call, !load && is_shared(call->out.format), false, stream);
}

static cudaError_t load_or_round(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    struct gpu_numbers numbers;
    double *memory = NULL;
    cudaError_t error = fetch(call, &numbers, &memory, stream);
    if (error == cudaSuccess)
        error = transfer(call, control, &numbers, call->kind == FL_CALL_LOAD, stream);
    if (memory) {
        const cudaError_t freed = cudaFreeAsync(memory, stream);
        error = error != cudaSuccess ? error : freed;
    }
    return error;
}

cudaError_t gpu_submit(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    switch (call->kind) {
    case FL_CALL_WRITE:
        return call->sequence.state ? write_part(call, control, stream) : write(call, control, stream);
    case FL_CALL_OPEN:
        return open(call, control, stream);
    case FL_CALL_CLOSE:
        return gpu_launch(close_sequence, 1, 1, 0, stream, control, call->sequence);
    case FL_CALL_RUN:
        return run(call, control, stream);
    case FL_CALL_FOLLOW: {
        const struct fl_view view = {call->out.data, NULL, &call->out.slot->e, call->out.count};
        return gpu_kernels_of(call->out.format->id)->follow(control, &view, call->out.wide, stream);
    }
    case FL_CALL_GATHER:
        return gpu_gather(&call->gather, control, stream);
    default:
        return load_or_round(call, control, stream);
    }
}
