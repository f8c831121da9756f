/* gpu_transfers.h - converts elements to numbers, numbers to elements, and wide parts, for the formats of a folder.
 *
 * Expects: the codec of a folder (gpu_element.h); FL_MADE where elements are converted elsewhere.
 * Gives: add_transfers. */
#ifndef FL_GPU_TRANSFERS_H
#define FL_GPU_TRANSFERS_H

#include "gpu/gpu_element.h"

namespace {

#ifndef FL_MADE
template <class Number> __global__ void elements_to_numbers(const struct fl_view view, Number *values) {
    const int e = fl_exponent(&view);
    for (int64_t i = gpu_first(); i < view.count; i += gpu_stride())
        values[i] = (Number)gpu_value(view, e, i);
}

template <class Number> static cudaError_t to_numbers(const struct fl_view *view, Number *values, cudaStream_t stream) {
    return gpu_launch(elements_to_numbers<Number>, gpu_blocks(view->count), GPU_THREADS, 0, stream, *view, values);
}
#endif

__global__ void numbers_to_elements(const struct gpu_call call, const struct gpu_numbers numbers, bool result) {
    gpu_store_each(call, call.args.out.count, [&](const auto &now, int64_t i, auto *stats) {
        const double x = gpu_number(numbers, i);
#ifndef FL_SHARED_EXPONENT
        if (!result) {
            gpu_store_number(now, i, x, stats);
            return;
        }
#endif
        (void)result;
        gpu_store(now, i, x, stats);
    });
}

static cudaError_t from_numbers(const struct gpu_call *call, const struct gpu_numbers *numbers, bool result,
                                cudaStream_t stream) {
    return gpu_run(numbers_to_elements, call->args.out.count, call, stream, *numbers, result);
}

#ifndef FL_ELEMENT_IS_FLOAT /* which has no wide part */
#ifndef FL_MADE
__global__ void follow_elements(const struct gpu_control *control, const struct fl_view view, void *wide) {
    if (control->failure.finding)
        return;
    for (int64_t i = gpu_first(); i < view.count; i += gpu_stride()) {
        const fl_element element = ((const fl_element *)view.data)[i];
#ifdef FL_SHARED_EXPONENT
        ((int32_t *)wide)[i] = fl_widen(element);
#else
        ((float *)wide)[i] = FL_DECODE(element);
#endif
    }
}

static cudaError_t follow(const struct gpu_control *control, const struct fl_view *view, void *wide,
                          cudaStream_t stream) {
    return gpu_launch(follow_elements, gpu_blocks(view->count), GPU_THREADS, 0, stream, control, *view, wide);
}
#endif

/* Loads a tensor with a wide part: numbers are stored in the wide part, and the elements are its rounding. */
__global__ void load_both(const struct gpu_call call, void *wide, const struct gpu_numbers numbers) {
    gpu_store_each(call, call.args.out.count, [&](const auto &now, int64_t i, auto *stats) {
        const double x = gpu_number(numbers, i), size = x < 0 ? -x : x;
#ifdef FL_SHARED_EXPONENT
        const double units = fl_nearest_units(fl_scale2(x, now.e + 16), FL_WIDE_LIMIT);
        gpu_store_wide(now, wide, i, (int64_t)units, x != 0, stats);
        stats->maximum = size > stats->maximum ? size : stats->maximum;
#else
        const float f = (float)x;
        struct fl_stats one = {};
        ((float *)wide)[i] = f;
        gpu_store_float(now, i, f, &one);
        fl_count_lost(x, f, &one);
        one.maximum = size == size ? size : 0;
        fl_stats_merge(stats, &one);
#endif
    });
}

static cudaError_t load_wide(const struct gpu_call *call, void *wide, const struct gpu_numbers *numbers,
                             cudaStream_t stream) {
    return gpu_run(load_both, call->args.out.count, call, stream, wide, *numbers);
}
#endif

static void add_transfers(struct gpu_kernels *to) {
    to->from_numbers = from_numbers;
#ifndef FL_MADE
    to->to_doubles = to_numbers<double>;
#endif
#ifndef FL_ELEMENT_IS_FLOAT
    to->load_wide = load_wide;
#ifndef FL_MADE
    to->to_floats = to_numbers<float>;
    to->follow = follow;
#endif
#endif
}

} // namespace

#endif
