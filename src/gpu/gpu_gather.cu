// gpu_gather.cu - looks for invalid indices and labels, and gathers batches from a set of images on the device, by the
// rule of core/tensor/gather.h, with a thread for each pixel.
#include "gpu/gpu_calls.h"

__global__ void begin_gather(struct gpu_control *control) {
    if (!control->failure.finding)
        control->found = -1;
}

__global__ void check_indices(struct gpu_control *control, const struct gpu_indices given) {
    if (control->failure.finding)
        return;
    for (int64_t i = gpu_first(); i < given.count; i += gpu_stride()) {
        const int32_t index = given.indices[i];
        if ((index < 0 || index >= given.limit) && index != given.ignored)
            gpu_found(control, i);
    }
}

// Stops the queue at the first invalid index. One thread.
__global__ void end_check_indices(struct gpu_control *control, const struct gpu_indices given) {
    if (control->failure.finding || control->found < 0)
        return;
    control->failure.at = control->found;
    control->failure.value[0] = given.indices[control->found];
    control->failure.limit = given.limit;
    control->failure.what = given.what;
    control->failure.finding = given.finding;
}

cudaError_t gpu_check_indices(struct gpu_control *control, const struct gpu_indices &given, cudaStream_t stream) {
    TRY_CUDA(gpu_launch(check_indices, gpu_blocks(given.count), GPU_THREADS, 0, stream, control, given));
    return gpu_launch(end_check_indices, 1, 1, 0, stream, control, given);
}

__global__ void gather(const struct fl_gather g, const struct gpu_control *control) {
    if (control->failure.finding)
        return;
    const int64_t pixels = (int64_t)g.height * g.width;
    for (int64_t i = gpu_first(); i < g.count * pixels; i += gpu_stride()) {
        const int64_t n = i / pixels, index = g.indices[n];
        int64_t pixel = i % pixels;
        if (pixel == 0)
            g.labels[n] = g.set_labels[index];
        if (g.augment) {
            const struct fl_crop crop = fl_crop_of(g.seed, g.epoch, (uint64_t)index);
            pixel = fl_crop_source(crop, g.height, g.width, (int)(pixel / g.width), (int)(pixel % g.width));
        }
        const uint8_t *from = g.set_images + (index * pixels + pixel) * g.channels;
        for (int c = 0; c < g.channels; c++)
            g.images[i * g.channels + c] = pixel < 0 ? 0 : from[c];
    }
}

cudaError_t gpu_gather(const struct fl_gather *g, struct gpu_control *control, cudaStream_t stream) {
    TRY_CUDA(gpu_launch(begin_gather, 1, 1, 0, stream, control));
    TRY_CUDA(gpu_check_indices(control, {g->indices, g->count, g->set_count, NULL, FL_GPU_INDEX}, stream));
    const unsigned blocks = gpu_blocks(g->count * g->height * g->width);
    return gpu_launch(gather, blocks, GPU_THREADS, 0, stream, *g, control);
}
