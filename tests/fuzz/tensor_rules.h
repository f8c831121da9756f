/* tensor_rules.h - which arguments tensor.h allows, written again from its comments: shapes, formats, which operands
 * may be one tensor, ranges of numbers. */
#ifndef FL_FUZZ_TENSOR_RULES_H
#define FL_FUZZ_TENSOR_RULES_H

#include "tensor_calls.h"

static inline bool is_shared(const tensor *t) {
    return tensor_format_is_shared(tensor_format_of(t));
}

static inline bool has_shape(const tensor *t, const struct want *want) {
    bool same = tensor_ndim(t) == want->ndim;
    for (int i = 0; same && i < want->ndim; i++)
        same = tensor_dim(t, i) == want->dim[i];
    return same;
}

static inline bool same_shape(const tensor *a, const tensor *b) {
    bool same = tensor_ndim(a) == tensor_ndim(b);
    for (int i = 0; same && i < tensor_ndim(a); i++)
        same = tensor_dim(a, i) == tensor_dim(b, i);
    return same;
}

/* A tensor and its views count as one. */
static inline bool one_tensor(const tensor *a, const tensor *b) {
    return tensor_const_data(a) == tensor_const_data(b);
}

/* The first n operands exist and have one format. */
static inline bool operands(const struct call *c, int n) {
    for (int i = 0; i < n; i++)
        if (!c->t[i] || tensor_format_of(c->t[i]) != tensor_format_of(c->t[0]))
            return false;
    return true;
}

/* The output is none of the n - 1 operands that follow it. */
static inline bool apart(const struct call *c, int n) {
    for (int i = 1; i < n; i++)
        if (one_tensor(c->t[0], c->t[i]))
            return false;
    return true;
}

static inline int64_t last_of(const tensor *t) {
    return tensor_dim(t, tensor_ndim(t) - 1);
}

static inline bool all_finite(const double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* Values that fit every tensor; formats with a shared exponent hold finite numbers only. */
static inline bool loadable(const tensor *t, const double *values) {
    return !is_shared(t) || all_finite(values, tensor_count(t));
}

static inline bool right_map(const struct call *c) {
    const struct map *m = &maps[c->map];
    if (!operands(c, 1 + m->inputs) || (m->scalar && !isfinite(c->alpha)))
        return false;
    for (int i = 1; i <= m->inputs; i++)
        if (!same_shape(c->t[0], c->t[i]))
            return false;
    if (m->one_scalars || m->two_scalars) /* the least value and the largest */
        return isfinite(c->beta) && c->alpha <= c->beta;
    return strcmp(m->name, "clip") != 0 || c->alpha >= 0;
}

/* Operand 0 is the result, of any format; operands 1 and 2 both have a shared exponent, or neither has. */
static inline bool factors(const struct call *c) {
    return c->t[0] && c->t[1] && c->t[2] && is_shared(c->t[1]) == is_shared(c->t[2]);
}

/* Operands 3 and 4, of any format, join the sums of operand 0. */
static inline bool right_epilogue(const struct call *c) {
    const tensor *y = c->t[0], *bias = c->t[3], *residual = c->t[4];
    if (bias && (!has_shape(bias, &WANT(last_of(y))) || one_tensor(bias, y)))
        return false;
    return !residual || same_shape(residual, y);
}

static inline bool right_matmul(const struct call *c, bool ta, bool tb, bool fused) {
    if (!factors(c) || !apart(c, 3) || tensor_ndim(c->t[1]) != 2 || tensor_ndim(c->t[2]) != 2)
        return false;
    return tensor_dim(c->t[1], !ta) == tensor_dim(c->t[2], tb) &&
           has_shape(c->t[0], &WANT(tensor_dim(c->t[1], ta), tensor_dim(c->t[2], !tb))) &&
           (!fused || right_epilogue(c));
}

/* x, w and y of a convolution, wherever they stand in the call. */
static inline bool right_convolution(const struct call *c, const tensor *x, const tensor *w, const tensor *y) {
    struct square how = c->how;
    how.stride = how.stride ? how.stride : 1;
    const int64_t dilation = how.dilation ? how.dilation : 1, groups = how.groups ? how.groups : 1;
    if (!factors(c) || !apart(c, 3) || how.stride < 1 || how.stride > 4095 || how.padding < 0 || how.padding > 4095 ||
        dilation < 1 || dilation > 4095 || groups < 1 || tensor_ndim(x) != 4 || tensor_ndim(w) != 4)
        return false;
    const int64_t channels = tensor_dim(x, 3), filters = tensor_dim(w, 0);
    if (channels % groups || filters % groups || tensor_dim(w, 3) != channels / groups)
        return false;
    int64_t out[2];
    for (int i = 0; i < 2; i++) {
        const int64_t room = tensor_dim(x, 1 + i) + 2 * how.padding - (tensor_dim(w, 1 + i) - 1) * dilation - 1;
        if (room < 0)
            return false;
        out[i] = room / how.stride + 1;
    }
    return has_shape(y, &WANT(tensor_dim(x, 0), out[0], out[1], filters)) &&
           (c->kind != CONV2D_FUSED || right_epilogue(c));
}

static inline bool right_pooling(const struct call *c, const tensor *x, const tensor *y) {
    struct square how = c->how;
    const int n = c->kind == MAXPOOL ? 2 : 3;
    how.stride = how.stride ? how.stride : 1;
    how.dilation = how.dilation ? how.dilation : 1;
    if (!operands(c, n) || !apart(c, n) || (n == 3 && !same_shape(c->t[0], c->t[2])) || tensor_ndim(x) != 4 ||
        how.stride < 1 || how.stride > 4095 || how.padding < 0 || how.padding > 4095 || how.window < 1 ||
        how.window > 1 << 20 || how.dilation < 1 || how.dilation > 4095 || how.groups < 0 || how.groups > 1)
        return false;
    const int64_t reach = (how.window - 1) * (int64_t)how.dilation + 1;
    int64_t out[2];
    for (int i = 0; i < 2; i++) {
        const int64_t room = tensor_dim(x, 1 + i) + 2 * how.padding - reach;
        if (room < 0 || how.padding >= reach)
            return false;
        out[i] = room / how.stride + 1;
        for (int64_t p = 0; p < out[i]; p++) { /* each position covers a pixel */
            int64_t place = p * how.stride - how.padding;
            while (place < 0)
                place += how.dilation;
            if (place >= tensor_dim(x, 1 + i) || place > p * how.stride - how.padding + reach - 1)
                return false;
        }
    }
    return has_shape(y, &WANT(tensor_dim(x, 0), out[0], out[1], tensor_dim(x, 3)));
}

static inline bool right_shortcut(const struct call *c, const tensor *x, const tensor *y) {
    if (!operands(c, 2) || !apart(c, 2) || c->whole < 1 || c->whole > 1 << 20 || tensor_ndim(x) != 4 ||
        tensor_ndim(y) != 4)
        return false;
    const int64_t h = (tensor_dim(x, 1) + c->whole - 1) / c->whole, w = (tensor_dim(x, 2) + c->whole - 1) / c->whole;
    return tensor_dim(y, 3) >= tensor_dim(x, 3) && has_shape(y, &WANT(tensor_dim(x, 0), h, w, tensor_dim(y, 3)));
}

/* A vector of x's channels that is not the output. */
static inline bool right_vector(const tensor *v, const tensor *out, const tensor *x) {
    return has_shape(v, &WANT(last_of(x))) && !one_tensor(v, out);
}

/* Formats with a shared exponent refuse means, variances and an epsilon that lead to no finite coefficient. */
static inline bool right_statistics(const struct call *c, const tensor *x) {
    for (int64_t i = 0; is_shared(x) && i < last_of(x); i++)
        if (!isfinite(host_mean[i]) || !(host_variance[i] + c->real > 0))
            return false;
    return true;
}

static inline bool right_batchnorm(const struct call *c) {
    const tensor *y = c->t[0], *x = c->t[1];
    const bool add = c->kind == BATCHNORM_ADD;
    return operands(c, add ? 5 : 4) && same_shape(y, x) && !one_tensor(y, x) && isfinite(c->real) && c->real > 0 &&
           right_vector(c->t[2], y, x) && right_vector(c->t[3], y, x) &&
           (!add || (same_shape(c->t[4], x) && !one_tensor(c->t[4], y))) && right_statistics(c, x);
}

/* No image is written as a vector. */
static inline bool written_alone(const tensor *vector, const struct call *c) {
    return !one_tensor(vector, c->t[3]) && !one_tensor(vector, c->t[4]) && (!c->t[5] || !one_tensor(vector, c->t[5]));
}

static inline bool right_batchnorm_grad(const struct call *c) {
    const tensor *dx = c->t[0], *dgamma = c->t[1], *dbeta = c->t[2], *dy = c->t[3], *x = c->t[4], *y = c->t[5],
                 *gamma = c->t[6];
    if (!operands(c, 5) || !gamma || tensor_format_of(gamma) != tensor_format_of(dx) ||
        (y && tensor_format_of(y) != tensor_format_of(dx)) || !isfinite(c->real) || !(c->real > 0))
        return false;
    return same_shape(dx, x) && !one_tensor(dx, x) && right_vector(dgamma, dx, x) && right_vector(dbeta, dx, x) &&
           right_vector(gamma, dx, x) && same_shape(dy, x) && !one_tensor(dy, dx) &&
           (!y || (same_shape(y, x) && !one_tensor(y, dx))) && !one_tensor(dgamma, dbeta) &&
           !one_tensor(dgamma, gamma) && !one_tensor(dbeta, gamma) && written_alone(dgamma, c) &&
           written_alone(dbeta, c) && right_statistics(c, x);
}

static inline bool right_softmax(const struct call *c) {
    const tensor *dx = c->t[0], *x = c->t[1];
    if (!x || tensor_ndim(x) != 2 || !isfinite(c->real) ||
        (dx && (tensor_format_of(dx) != tensor_format_of(x) || !same_shape(dx, x))))
        return false;
    for (int64_t i = 0; i < tensor_dim(x, 0); i++)
        if (host_labels[i] < 0 || host_labels[i] >= tensor_dim(x, 1))
            return false;
    return true;
}

/* Labels below `limit`, but for those that are ignored. */
static inline bool right_labels(const struct call *c, int64_t limit) {
    for (int64_t i = 0; i < tensor_dim(c->t[1], 0); i++)
        if ((host_labels[i] < 0 || host_labels[i] >= limit) && !(c->whole & 8 && host_labels[i] == host_labels[0]))
            return false;
    return true;
}

static inline bool right_targets(const struct call *c) {
    return c->t[2] && !(c->whole & 8) && tensor_format_of(c->t[2]) == tensor_format_of(c->t[1]) &&
           same_shape(c->t[2], c->t[1]);
}

/* As perform_loss reads it. */
static inline bool right_loss(const struct call *c) {
    const tensor *dx = c->t[0], *x = c->t[1];
    const int which = c->whole & 7;
    if (!x || !isfinite(c->real) || (dx && (tensor_format_of(dx) != tensor_format_of(x) || !same_shape(dx, x))))
        return false;
    if (which <= 1 && !(c->alpha >= 0 && c->alpha <= 1))
        return false;
    if (which == 4)
        return right_labels(c, 2);
    if (which == 0 || which == 5)
        return tensor_ndim(x) == 2 && right_labels(c, tensor_dim(x, 1));
    if (which == 1 || which == 6)
        return tensor_ndim(x) == 2 && right_targets(c);
    return right_targets(c) && (which == 2 || (c->beta > 0 && isfinite(c->beta)));
}

static inline bool right_sgd(const struct call *c) {
    const int n = c->kind == SGD_MOMENTUM ? 3 : 2;
    if (!operands(c, n) || !apart(c, n) || !isfinite(c->alpha) || (n == 3 && !isfinite(c->beta)))
        return false;
    return same_shape(c->t[0], c->t[1]) && (n == 2 || same_shape(c->t[0], c->t[2]));
}

static inline bool right_load(const struct call *c) {
    if (!c->t[0] || c->count != tensor_count(c->t[0]))
        return false;
    bool finite = true;
    for (int64_t i = 0; i < c->count; i++)
        finite = finite && (c->kind == LOAD_F32 ? isfinite(host_floats[i]) : isfinite(host_doubles[i]));
    return finite || !is_shared(c->t[0]);
}

static inline bool right_conversion(const struct call *c) {
    static double values[MOST_ELEMENTS];
    tensor *y = c->t[0], *x = c->t[1];
    if (!y || !x || !same_shape(y, x))
        return false;
    if (c->kind == CONVERT) {
        tensor_store_f64(x, values, tensor_count(x));
        return one_tensor(y, x) || !is_shared(y) || all_finite(values, tensor_count(x));
    }
    if (c->kind == COPY)
        return tensor_format_of(y) == tensor_format_of(x) && (one_tensor(y, x) || (tensor_bytes(y) == tensor_bytes(x)));
    const struct autoflex *a = tensor_autoflex(y);
    const bool wide = tensor_bytes(y) > (size_t)tensor_count(y) * tensor_format_bytes(tensor_format_of(y));
    return a && c->whole >= a->e_min && c->whole <= a->e_max && !one_tensor(y, x) && !wide;
}

/* AROUND: the numbers first, then the image, the filters and the result, wherever they stand in the call. */
static inline bool right_around(const struct call *c) {
    const bool line = c->which >= AROUND_LINES;
    const int which = c->which % AROUND_LINES, dims = line ? 3 : 4;
    const bool pooling = which >= AROUND_POOL, transposed = !pooling && which >= AROUND_TRANSPOSED;
    tensor_window how = c->around;
    if (line) {
        how.window[0] = how.window[1] != 0;
        how.stride[0] = 1;
        how.padding[0] = how.padding[1] = how.output_padding[0] = 0;
        how.dilation[0] = how.dilation[1] != 0;
    }
    for (int way = 0; way < 2; way++) {
        how.stride[way] = how.stride[way] ? how.stride[way] : 1;
        how.dilation[way] = how.dilation[way] ? how.dilation[way] : 1;
    }
    for (int i = 2; i < 10; i++) {
        const int least = i < 4 || i > 7, v = *around_number(&how, i);
        if (v < least || v > 4095)
            return false;
    }
    const int n = which == AROUND_POOL ? 2 : 3;
    if (how.groups < 0 || (pooling && how.groups > 1) || !operands(c, n) || !apart(c, n))
        return false;
    const int64_t groups = how.groups ? how.groups : 1;
    const bool weights = !pooling && which % AROUND_TRANSPOSED == 2;
    const tensor *image, *result, *filters = pooling ? NULL : weights ? c->t[0] : c->t[2];
    if (pooling) {
        image = which == AROUND_POOL ? c->t[1] : c->t[2];
        result = which == AROUND_POOL ? c->t[0] : c->t[1];
        if (which > AROUND_POOL && !same_shape(c->t[0], c->t[2]))
            return false;
    } else {
        const tensor *const x = weights                     ? c->t[2]
                                : which % AROUND_TRANSPOSED ? c->t[0]
                                                            : c->t[1],
                            *const y = which % AROUND_TRANSPOSED ? c->t[1] : c->t[0];
        image = transposed ? y : x;
        result = transposed ? x : y;
        if (tensor_ndim(filters) != dims)
            return false;
    }
    if (tensor_ndim(image) != dims || tensor_ndim(result) != dims || tensor_dim(image, 0) != tensor_dim(result, 0))
        return false;
    const int last = dims - 1;
    if (pooling ? tensor_dim(image, last) != tensor_dim(result, last)
                : tensor_dim(filters, 0) != tensor_dim(result, last) || tensor_dim(filters, 0) % groups ||
                      tensor_dim(image, last) != tensor_dim(filters, last) * groups)
        return false;
    for (int way = line; way < 2; way++) {
        const int at = line ? 1 : 1 + way;
        const int64_t size = pooling ? how.window[way] : tensor_dim(filters, at);
        if (pooling ? size < 1 || size > 1 << 20 : (how.window[0] || how.window[1]) && how.window[way] != size)
            return false;
        const int64_t reach = (size - 1) * how.dilation[way] + 1, before = how.padding[2 * way],
                      after = how.padding[2 * way + 1], more = how.output_padding[way],
                      room = tensor_dim(image, at) + before + after - reach, stride = how.stride[way];
        if (more < 0 || (!transposed && more) || more >= stride || room < 0)
            return false;
        if (transposed ? room != (tensor_dim(result, at) - 1) * stride + more
                       : room / stride + 1 != tensor_dim(result, at))
            return false;
        if (pooling && (before >= reach || after >= reach))
            return false;
        for (int64_t i = 0; pooling && i < tensor_dim(result, at); i++) {
            bool sees = false;
            for (int64_t k = 0; k < size && !sees; k++) {
                const int64_t place = i * stride - before + k * how.dilation[way];
                sees = place >= 0 && place < tensor_dim(image, at);
            }
            if (!sees)
                return false;
        }
    }
    return pooling || which % AROUND_TRANSPOSED || right_epilogue(c);
}

static inline bool right_setting(const struct call *c) {
    const tensor *t = c->t[0];
    if (!t)
        return c->kind == RESET_STATISTICS;
    const struct autoflex *a = tensor_autoflex(t);
    switch (c->kind) {
    case SET_EXPONENT:
    case DECLARE_EXPONENT:
        return a && c->whole >= a->e_min && c->whole <= a->e_max;
    case SET_PREDICTOR:
        return a && c->name && autoflex_find(c->name);
    case SET_ROUNDING:
        return c->whole == TENSOR_ROUND_NEAREST ||
               (c->whole == TENSOR_ROUND_STOCHASTIC && tensor_format_bytes(tensor_format_of(t)) == 2) ||
               (c->whole == TENSOR_ROUND_TRUNCATE && tensor_format_of(t) == FMT_BF16);
    default:
        return true;
    }
}

static inline bool is_right(const struct call *c) {
    switch (c->kind) {
    case MAP:
        return right_map(c);
    case BIAS:
    case BIAS_RELU:
        return operands(c, 3) && same_shape(c->t[0], c->t[1]) && has_shape(c->t[2], &WANT(last_of(c->t[1]))) &&
               !one_tensor(c->t[0], c->t[2]);
    case MATMUL:
        return right_matmul(c, false, false, false);
    case MATMUL_NT:
        return right_matmul(c, false, true, false);
    case MATMUL_TN:
        return right_matmul(c, true, false, false);
    case MATMUL_FUSED:
        return right_matmul(c, false, false, true);
    case MATMUL_NT_FUSED:
        return right_matmul(c, false, true, true);
    case CONV2D:
    case CONV2D_FUSED:
        return right_convolution(c, c->t[1], c->t[2], c->t[0]);
    case CONV_INPUT_GRAD:
        return right_convolution(c, c->t[0], c->t[2], c->t[1]);
    case CONV_WEIGHT_GRAD:
        return right_convolution(c, c->t[2], c->t[0], c->t[1]);
    case MAXPOOL:
        return right_pooling(c, c->t[1], c->t[0]);
    case MAXPOOL_GRAD:
        return right_pooling(c, c->t[2], c->t[1]);
    case AVGPOOL:
        return operands(c, 2) && apart(c, 2) && tensor_ndim(c->t[1]) == 4 &&
               has_shape(c->t[0], &WANT(tensor_dim(c->t[1], 0), tensor_dim(c->t[1], 3)));
    case AVGPOOL_GRAD:
        return operands(c, 2) && apart(c, 2) && tensor_ndim(c->t[0]) == 4 &&
               has_shape(c->t[1], &WANT(tensor_dim(c->t[0], 0), tensor_dim(c->t[0], 3)));
    case SHORTCUT:
        return right_shortcut(c, c->t[1], c->t[0]);
    case SHORTCUT_GRAD:
        return right_shortcut(c, c->t[0], c->t[1]);
    case SUM_ROWS:
        return operands(c, 2) && apart(c, 2) && has_shape(c->t[0], &WANT(last_of(c->t[1])));
    case SUM:
    case MAX_ABS:
    case MOMENTS:
        return c->t[0] != NULL;
    case BATCHNORM:
    case BATCHNORM_ADD:
        return right_batchnorm(c);
    case BATCHNORM_GRAD:
        return right_batchnorm_grad(c);
    case SOFTMAX:
        return right_softmax(c);
    case LOSS:
        return right_loss(c);
    case AROUND:
        return right_around(c);
    case CLIP_WEIGHT:
        return c->t[0] && c->alpha >= 0 && isfinite(c->alpha);
    case SGD_MOMENTUM:
    case SGD_UPDATE:
        return right_sgd(c);
    case LOAD_F32:
    case LOAD_F64:
        return right_load(c);
    case STORE_F32:
    case STORE_F64:
    case STORE_WIDE:
        return c->t[0] && c->count == tensor_count(c->t[0]);
    case CONVERT:
    case CONVERT_AT:
    case COPY:
        return right_conversion(c);
    default:
        return right_setting(c);
    }
}

#endif
