/* gpu_integers.h - exact integer sums as elements of a shared exponent: rounded, saturated and counted by one thread.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: gpu_sums, gpu_moved. */
#ifndef FL_GPU_INTEGERS_H
#define FL_GPU_INTEGERS_H

#include "gpu/gpu_element.h"

#ifdef FL_SHARED_EXPONENT
namespace {

struct gpu_sums {
    int e, e_out, shift;
    bool usual; /* to nearest, by 1 to 62 places */
    int64_t below_half;

    double maximum; /* of sums that 64 bits do not hold */
    uint64_t most;  /* of the others, in units of 2^-e */
    int32_t gamma;
    uint32_t saturated, flushed;

    /* Sums m 2^-e. False: all of them have to be rounded as terms. */
    __device__ bool begin(const struct gpu_now &now, int exponent, int exponent_out) {
        const bool stochastic = now.rounding.mode == TENSOR_ROUND_STOCHASTIC;
        e = exponent;
        e_out = exponent_out;
        shift = e - e_out;
        usual = !stochastic && shift >= 1 && shift <= 62;
        below_half = usual ? ((int64_t)1 << (shift - 1)) - 1 : 0;
        maximum = 0;
        most = 0;
        gamma = 0;
        saturated = flushed = 0;
        return !stochastic || shift <= 62; /* the limit of fl_shift_stochastic */
    }

    __device__ static uint32_t draw(const struct gpu_now &now, int64_t i) {
        return fl_philox_draw(now.rounding.key, now.rounding.write, i);
    }

    /* x, |x| < 2^62, rounded where it is usual. The largest result is that of the largest sum: report() finds it. */
    __device__ fl_element round_usual(int64_t x) {
        const uint64_t size = (uint64_t)(x < 0 ? -x : x);
        const int64_t m = (x + below_half + (x >> shift & 1)) >> shift, top = FL_TOP,
                      inside = m > top    ? top
                               : m < -top ? -top
                                          : m;
        most = size > most ? size : most;
        flushed += size - 1 <= (uint64_t)below_half; /* zero wraps around */
        saturated += inside != m;
        return (fl_element)inside;
    }

    /* A rounded mantissa; beyond the range of an element it may be any number beyond it. */
    __device__ fl_element count(int64_t m, bool something) {
        const int64_t most_m = FL_TOP, inside = m > most_m ? most_m : m < -most_m ? -most_m : m;
        const int32_t kept = (int32_t)inside, size = kept < 0 ? -kept : kept;
        flushed += something && kept == 0;
        saturated += inside != m;
        gamma = size > gamma ? size : gamma;
        return (fl_element)kept;
    }

    /* The sum x of element i, |x| < 2^62. */
    __device__ fl_element round(const struct gpu_now &now, int64_t i, int64_t x) {
        if (usual)
            return round_usual(x);
        const uint64_t size = (uint64_t)(x < 0 ? -x : x);
        int64_t m;
        most = size > most ? size : most;
        if (shift <= 0) {
            const int64_t inside = x > FL_TOP + 1 ? FL_TOP + 1 : x < -FL_TOP - 1 ? -FL_TOP - 1 : x;
            m = inside * ((int64_t)1 << (shift < -16 ? 16 : -shift));
        } else {
            m = now.rounding.mode == TENSOR_ROUND_STOCHASTIC ? fl_shift_stochastic(x, shift, draw(now, i)) : 0;
        }
        return count(m, x != 0);
    }

    /* Notes the size of a sum of any size and exponent. */
    __device__ void see(struct fl_wide_sum sum) {
        const double size = fl_terms_abs(sum);
        maximum = size > maximum ? size : maximum;
    }

    /* Rounds a sum of any size and exponent, whose size is noted apart. */
    __device__ fl_element round_unseen(const struct gpu_now &now, int64_t i, struct fl_wide_sum sum) {
        const bool drawn = now.rounding.mode == TENSOR_ROUND_STOCHASTIC;
        const uint32_t by = drawn ? draw(now, i) : 0;
        return count(fl_terms_round(sum, e_out, FL_TOP + 1, drawn ? &by : NULL, NULL), sum.m != 0);
    }

    __device__ fl_element round_wide(const struct gpu_now &now, int64_t i, struct fl_wide_sum sum) {
        see(sum);
        return round_unseen(now, i, sum);
    }

    __device__ fl_element round_terms(const struct gpu_now &now, int64_t i, const struct fl_term *terms, int n,
                                      bool relu) {
        struct fl_wide_sum all = fl_terms_sum(terms, n);
        if (relu && all.m < 0)
            all.m = 0;
        return round_wide(now, i, all);
    }

    /* Rounds a sum to *wide, to nearest, of which the element is the rounding. */
    __device__ fl_element round_both(struct fl_wide_sum sum, int32_t *wide) {
        int64_t lost = 0;
        see(sum);
        *wide = (int32_t)fl_terms_round(sum, e_out + 16, FL_WIDE_LIMIT, NULL, &lost);
        saturated += (uint32_t)lost;
        return count(fl_narrow(*wide), sum.m != 0);
    }

    __device__ void report(struct gpu_control *control) const {
        struct fl_stats stats = {};
        const int64_t rounded = usual ? fl_shift_round((int64_t)most, shift) : 0,
                      of_most = rounded < FL_TOP ? rounded : FL_TOP;
        const double size = fl_scale2((double)most, -e); /* rounding to double keeps the order */
        stats.maximum = size > maximum ? size : maximum;
        stats.gamma = of_most > gamma ? (int32_t)of_most : gamma;
        stats.saturated = saturated;
        stats.flushed = flushed;
        gpu_report(control, stats);
    }
};

} // namespace
#endif

namespace {

/* Elements that are moved to another exponent. */
#ifdef FL_SHARED_EXPONENT
struct gpu_moved : gpu_sums {
    __device__ void begin(const struct gpu_now &now, const struct fl_view &from, const struct fl_view &to) {
        gpu_sums::begin(now, fl_exponent(&from), fl_exponent(&to));
    }
    /* Stores element `at` as element i; at < 0: zero. */
    __device__ void put(const struct gpu_now &now, int64_t i, const struct fl_view &from, int64_t at) {
        const fl_element m = round(now, i, at < 0 ? 0 : gpu_mantissa(from, at));
        if (now.out)
            ((fl_element *)now.out)[i] = m;
    }
};
#else
struct gpu_moved {
    struct fl_stats stats;
    __device__ void begin(const struct gpu_now &, const struct fl_view &, const struct fl_view &) { stats = {}; }
    __device__ void put(const struct gpu_now &now, int64_t i, const struct fl_view &from, int64_t at) {
        gpu_store(now, i, at < 0 ? 0 : gpu_value(from, 0, at), &stats);
    }
    __device__ void report(struct gpu_control *control) const { gpu_report(control, stats); }
};
#endif

} // namespace

#endif
