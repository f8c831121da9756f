// shared_rules.cu - the rules that a processor and a device share, as device code: whether they compile there, without
// a warning, is what test_shared_rules.py looks at. Nothing here runs.
#include "autoflex/autoflex_rules.h"
#include "core/channel_rules.h"
#include "core/slot.h"

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
    const struct fl_affine_channel backward =
        fl_normalising_gradient(1, mean, variance, 1e-5, mean, variance, rows, &gradient[c]);
    if (!fl_integer_channel_of(&forward, e, e, &out[2 * c]) || !fl_integer_channel_of(&backward, e, e, &out[2 * c + 1]))
        gradient[c] = 0;
}
