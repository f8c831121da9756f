/* norms.c - numbers made comparable: less their mean, divided by their spread or their norm. */
#include "program/arrays/arrays.h"
#include "program/arrays/functions.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <string.h>

/* --- sets of neighbours: LayerNormalization, InstanceNormalization, GroupNormalization -----------------------------
 */

/* Each `n` elements have a mean and a variance; element i has factor and term i / inner % count. */
struct sets {
    const struct fl_array *x, *scale, *bias;
    struct fl_array *y, *mean, *inverse;
    int64_t n, sets, inner, count;
    double epsilon;
};

static void normalise_set(void *context, int set, int worker) {
    const struct sets *const s = context;
    const int64_t first = set * s->n;
    double x[FL_BLOCK], sum = 0, squares = 0;
    (void)worker;
    for (int64_t i = 0; i < s->n; i += FL_BLOCK) {
        const int64_t n = s->n - i < FL_BLOCK ? s->n - i : FL_BLOCK;
        fl_load_numbers(x, s->x, first + i, 1, n);
        for (int64_t k = 0; k < n; k++)
            sum += x[k];
    }
    const double mean = sum / (double)s->n;
    for (int64_t i = 0; i < s->n; i += FL_BLOCK) {
        const int64_t n = s->n - i < FL_BLOCK ? s->n - i : FL_BLOCK;
        fl_load_numbers(x, s->x, first + i, 1, n);
        for (int64_t k = 0; k < n; k++)
            squares += (x[k] - mean) * (x[k] - mean);
    }
    const double inverse = 1 / sqrt(squares / (double)s->n + s->epsilon);
    for (int64_t i = 0; s->y && i < s->n; i += FL_BLOCK) {
        const int64_t n = s->n - i < FL_BLOCK ? s->n - i : FL_BLOCK;
        fl_load_numbers(x, s->x, first + i, 1, n);
        for (int64_t k = 0; k < n; k++) {
            const int64_t level = (first + i + k) / s->inner % s->count;
            x[k] = (x[k] - mean) * inverse * fl_array_number(s->scale, level) +
                   (s->bias ? fl_array_number(s->bias, level) : 0);
        }
        fl_store_numbers(s->y, first + i, 1, x, n);
    }
    if (s->mean)
        fl_array_put_number(s->mean, set, mean);
    if (s->inverse)
        fl_array_put_number(s->inverse, set, inverse);
}

static tensor_status read_sets(struct sets *s, const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    int first = 2;
    *s = (struct sets){.x = x, .scale = a->in[1], .bias = fl_operand(a, 2), .y = a->out[0], .sets = 1, .inner = 1};
    s->epsilon = fl_net_float(a->node, "epsilon", 1e-5f);
    TRY(fl_want_float(a, 0));
    if (a->node->channels_last)
        return fl_fail(TENSOR_E_UNSUPPORTED, "channels come last, expected dimension 1");
    if (a->node->op[0] == 'L') {
        TRY(fl_axis(&first, fl_net_int(a->node, "axis", -1), x->ndim));
        for (int d = 0; d < first; d++)
            s->sets *= x->dim[d];
        s->count = 1;
        for (int d = first; d < x->ndim; d++)
            s->count *= x->dim[d];
        s->mean = fl_result(a, 1);
        s->inverse = fl_result(a, 2);
    } else {
        if (x->ndim < 2)
            return fl_fail(TENSOR_E_SHAPE, "an operand of %d dimensions, expected 2 or more", x->ndim);
        const int64_t groups = a->node->op[0] == 'G' ? fl_net_int(a->node, "num_groups", 0) : x->dim[1];
        s->count = x->dim[1];
        if (x->dim[1] && (groups < 1 || x->dim[1] % groups))
            return fl_fail(TENSOR_E_DATA, "num_groups is %lld, expected a divisor of %lld channels", (long long)groups,
                           (long long)x->dim[1]);
        s->sets = x->dim[0] * groups;
        for (int d = first; d < x->ndim; d++)
            s->inner *= x->dim[d];
    }
    s->n = s->sets ? x->count / s->sets : 0;
    if (s->scale->count != s->count || (s->bias && s->bias->count != s->count))
        return fl_fail(TENSOR_E_SHAPE, "%lld factors and %lld terms, expected %lld of each", (long long)s->scale->count,
                       (long long)(s->bias ? s->bias->count : s->count), (long long)s->count);
    if (s->sets > INT32_MAX)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%lld means, expected less than 2^31", (long long)s->sets);
    return TENSOR_OK;
}

tensor_status fl_shape_normalise(const struct fl_arrays *a) {
    struct sets s;
    int64_t dim[FL_ARRAY_DIMS];
    int axis = 0;
    TRY(read_sets(&s, a));
    if (a->node->op[0] == 'L') {
        TRY(fl_axis(&axis, fl_net_int(a->node, "axis", -1), a->in[0]->ndim));
        for (int d = 0; d < a->in[0]->ndim; d++)
            dim[d] = d < axis ? a->in[0]->dim[d] : 1;
        for (int i = 1; i < 3; i++)
            TRY(fl_shape_set(fl_result(a, i), TENSOR_TYPE_F32, a->in[0]->ndim, dim));
    }
    return fl_shape_same(a);
}

tensor_status fl_compute_normalise(const struct fl_arrays *a) {
    struct sets s;
    TRY(read_sets(&s, a));
    if (a->in[0]->count)
        fl_parallel((int)s.sets, normalise_set, &s);
    return TENSOR_OK;
}

/* --- BatchNormalization ------------------------------------------------------------------------------------------- */

struct batch {
    const struct fl_arrays *a;
    int64_t inner, channels;
    double epsilon;
};

static void batch_block(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride) {
    const struct batch *const b = context;
    const struct fl_array *const *const in = b->a->in;
    double x[FL_BLOCK];
    fl_load_numbers(x, in[0], from[0], stride[0], n);
    for (int i = 0; i < n; i++) {
        const int64_t c = (at + i) / b->inner % b->channels;
        x[i] = (x[i] - fl_array_number(in[3], c)) / sqrt(fl_array_number(in[4], c) + b->epsilon) *
                   fl_array_number(in[1], c) +
               fl_array_number(in[2], c);
    }
    fl_store_numbers(b->a->out[0], at, 1, x, n);
}

tensor_status fl_compute_batch_normalization(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    struct batch b = {.a = a, .inner = 1, .channels = 1, .epsilon = fl_net_float(a->node, "epsilon", 1e-5f)};
    TRY(fl_want_float(a, 0));
    if (fl_net_int(a->node, "training_mode", 0))
        return fl_fail(TENSOR_E_UNSUPPORTED, "training_mode 1, expected 0");
    const int channel = a->node->channels_last ? x->ndim - 1 : 1;
    if (x->ndim > 1)
        b.channels = x->dim[channel];
    for (int d = channel + 1; d < x->ndim; d++)
        b.inner *= x->dim[d];
    for (int i = 1; i < 5; i++)
        TRY(fl_want_numbers(a->in[i], b.channels, "an operand"));
    return a->out[0] ? fl_walk(a->out[0], 1, a->in, batch_block, &b) : TENSOR_OK;
}

/* --- along the channels: LRN -------------------------------------------------------------------------------------- */

tensor_status fl_shape_lrn(const struct fl_arrays *a) {
    TRY(fl_want_float(a, 0));
    if (a->in[0]->ndim < 2 || fl_net_int(a->node, "size", 0) < 1)
        return fl_fail(TENSOR_E_DATA, "size %lld over an operand of %d dimensions, expected at least 1 and 2",
                       (long long)fl_net_int(a->node, "size", 0), a->in[0]->ndim);
    return fl_shape_same(a);
}

struct lrn {
    const struct fl_arrays *a;
    int64_t channels, inner, before, after;
    double factor, beta, bias;
};

static void lrn_block(void *context, int64_t at, int n, const int64_t *from, const int64_t *stride) {
    const struct lrn *const l = context;
    const struct fl_array *const x = l->a->in[0];
    double y[FL_BLOCK];
    fl_load_numbers(y, x, from[0], stride[0], n);
    for (int i = 0; i < n; i++) {
        const int64_t c = (at + i) / l->inner % l->channels;
        const int64_t first = c < l->before ? -c : -l->before;
        const int64_t last = c + l->after < l->channels ? l->after : l->channels - 1 - c;
        double sum = 0;
        for (int64_t k = first; k <= last; k++) {
            const double other = fl_array_number(x, at + i + k * l->inner);
            sum += other * other;
        }
        y[i] /= fl_pow(l->bias + l->factor * sum, l->beta);
    }
    fl_store_numbers(l->a->out[0], at, 1, y, n);
}

tensor_status fl_compute_lrn(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const int64_t size = fl_net_int(a->node, "size", 1);
    const int channel = a->node->channels_last ? x->ndim - 1 : 1;
    struct lrn l = {.a = a, .channels = x->dim[channel], .inner = 1, .before = (size - 1) / 2, .after = size / 2};
    l.factor = (double)fl_net_float(a->node, "alpha", 1e-4f) / (double)size;
    l.beta = fl_net_float(a->node, "beta", 0.75f);
    l.bias = fl_net_float(a->node, "bias", 1);
    for (int d = channel + 1; d < x->ndim; d++)
        l.inner *= x->dim[d];
    return a->out[0] ? fl_walk(a->out[0], 1, a->in, lrn_block, &l) : TENSOR_OK;
}

/* --- over any dimensions: MeanVarianceNormalization, LpNormalization -----------------------------------------------
 */

/* A bit for each dimension over which sums go. */
static tensor_status read_mask(const struct fl_arrays *a, unsigned *mask) {
    static const int64_t usual[] = {0, 2, 3};
    const struct fl_net_attribute *const axes = fl_net_find(a->node, "axes");
    const bool is_norm = a->node->op[0] == 'L';
    const int64_t single = fl_net_int(a->node, "axis", -1);
    const int count = is_norm ? 1 : axes ? axes->count : 3;
    *mask = 0;
    TRY(fl_want_float(a, 0));
    for (int i = 0; i < count; i++) {
        int axis;
        TRY(fl_axis(&axis, is_norm ? single : axes ? axes->ints[i] : usual[i], a->in[0]->ndim));
        *mask |= 1u << axis;
    }
    return TENSOR_OK;
}

tensor_status fl_shape_mean_variance(const struct fl_arrays *a) {
    const int64_t power = fl_net_int(a->node, "p", 2);
    unsigned mask;
    TRY(read_mask(a, &mask));
    if (power != 1 && power != 2)
        return fl_fail(TENSOR_E_DATA, "p is %lld, expected 1 or 2", (long long)power);
    return fl_shape_same(a);
}

/* Which sum element i belongs to. */
static int64_t sum_of(const struct fl_array *x, unsigned mask, int64_t i) {
    int64_t at = 0, step = 1;
    for (int d = x->ndim - 1; d >= 0; d--) {
        at += mask >> d & 1 ? 0 : i % x->dim[d] * step;
        step *= mask >> d & 1 ? 1 : x->dim[d];
        i /= x->dim[d];
    }
    return at;
}

tensor_status fl_compute_mean_variance(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0];
    const bool is_norm = a->node->op[0] == 'L', absolute = is_norm && fl_net_int(a->node, "p", 2) == 1;
    double *mean, *spread;
    int64_t n = 1, sums = 1;
    unsigned mask = 0;
    TRY(read_mask(a, &mask));
    for (int d = 0; d < x->ndim; d++)
        *(mask >> d & 1 ? &n : &sums) *= x->dim[d];
    if (!a->out[0] || !x->count)
        return TENSOR_OK;
    TRY(fl_memory(&mean, 2 * sums, sizeof *mean));
    spread = mean + sums;
    memset(mean, 0, (size_t)(2 * sums) * sizeof *mean);
    for (int64_t i = 0; i < x->count && !is_norm; i++)
        mean[sum_of(x, mask, i)] += fl_array_number(x, i) / (double)n;
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t s = sum_of(x, mask, i);
        const double apart = fl_array_number(x, i) - mean[s];
        spread[s] += absolute ? fabs(apart) : apart * apart;
    }
    for (int64_t s = 0; s < sums; s++) /* a variance gets what keeps a constant from being divided by 0 */
        spread[s] = is_norm ? absolute ? spread[s] : sqrt(spread[s]) : sqrt(spread[s] / (double)n) + 1e-9;
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t s = sum_of(x, mask, i);
        fl_array_put_number(a->out[0], i, spread[s] == 0 ? 0 : (fl_array_number(x, i) - mean[s]) / spread[s]);
    }
    fl_free(mean);
    return TENSOR_OK;
}
