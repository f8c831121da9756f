// shared_rules.cu - the rules that a processor and a device share, as CUDA: that they compile for devices, without a
// warning, and what they give, computed by the host's half of nvcc or on the device of the machine.
// test_shared_rules.py compares. usage: shared_rules THOUSANDS [device]; exit status 77: no device.
#include "shared_rules.h"

// A write as run.c makes one, of a slot whose kernel reported `seen`.
__global__ void write(struct fl_slot *slots, const struct fl_stats *seen, int64_t count) {
    struct fl_slot *s = &slots[blockIdx.x * blockDim.x + threadIdx.x];
    struct autoflex *a = &s->autoflex;
    struct fl_stats stats = seen[0];
    fl_stats_merge(&stats, &seen[1]);
    if (a->predictor == AUTOFLEX_CURRENT)
        fl_autoflex_fit(a, stats.maximum);
    else if (a->initialised)
        fl_autoflex_adjust(a);
    else
        fl_autoflex_initialise(a, stats.maximum);
    fl_autoflex_record(a, stats.gamma, stats.maximum);
    fl_slot_written(s, &stats, count);
}

__global__ void load(struct fl_slot *slots, double maximum) {
    fl_autoflex_load(&slots[threadIdx.x].autoflex, maximum);
}

__global__ void channels(struct fl_integer_channel *out, double *gradient, const int64_t *sums, int64_t rows, int e) {
    const int c = (int)threadIdx.x;
    double mean, variance;
    fl_exact_moments(rows, sums[2 * c], sums[2 * c + 1], e, &mean, &variance);
    const struct fl_affine_channel forward = fl_normalising(1, 0, mean, variance, 1e-5, true);
    fl_float_moments(rows, mean, variance, &mean, &variance);
    const struct fl_affine_channel backward = fl_normalising_gradient(
        1, mean, variance, 1e-5, mean, fl_exact_about_mean(rows, sums[2 * c], sums[2 * c + 1], mean, e, e), rows,
        &gradient[c]);
    if (!fl_integer_channel_of(&forward, e, e, &out[2 * c]) || !fl_integer_channel_of(&backward, e, e, &out[2 * c + 1]))
        gradient[c] = 0;
}

__global__ void cases(int rule, uint64_t first, int count, uint64_t *hashes) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count)
        hashes[i] = shared_hash(rule, first + (uint64_t)i);
}

static void check(cudaError_t status) {
    if (status == cudaSuccess)
        return;
    fprintf(stderr, "shared_rules: %s\n", cudaGetErrorString(status));
    exit(1);
}

static void shared_on_device(int rule, uint64_t first, int count, uint64_t *hashes) {
    uint64_t *there;
    check(cudaMalloc(&there, count * sizeof *there));
    cases<<<(count + 63) / 64, 64>>>(rule, first, count, there);
    check(cudaGetLastError());
    check(cudaMemcpy(hashes, there, count * sizeof *hashes, cudaMemcpyDeviceToHost));
    check(cudaFree(there));
}

int main(int argc, char **argv) {
    const bool on_device = argc > 2 && !strcmp(argv[2], "device");
    int devices = 0;
    if (on_device && (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0))
        return 77;
    return shared_print(on_device ? shared_on_device : shared_on_host, argc > 1 ? atoi(argv[1]) : 1);
}
