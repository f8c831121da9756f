/* float_channel.h - maps with coefficients by channel: bias and the affine maps of batch normalisation.
 *
 * Expects: a codec (float_block.h).
 * Gives: masked_block, bias_map, channel_affine. */
#ifndef FL_FLOAT_CHANNEL_H
#define FL_FLOAT_CHANNEL_H

#include "float/float_map.h"
#include "float/float_store.h"

/* Coefficient arrays of n channels, repeated so far that a block may start at any channel: the coefficients of element
 * i ... i + FLOAT_BLOCK - 1 of a tensor [m, n] are v[k][i % n] and its successors. */
struct periodic {
    int64_t n;
    const float *v[3];
};

/* The number of floats of one array. */
static int64_t periodic_stride(int64_t n) {
    return (n + FLOAT_BLOCK + 15) / 16 * 16;
}

/* Makes *p from count (at most 3) arrays of n floats, in memory for count strides. */
static void make_periodic(struct periodic *p, int64_t n, int count, const float *const *sources, float *memory) {
    const int64_t length = n + FLOAT_BLOCK;
    p->n = n;
    for (int k = 0; k < count; k++) {
        float *v = memory + k * periodic_stride(n);
        memcpy(v, sources[k], (size_t)n * sizeof *v);
        for (int64_t filled = n; filled < length; filled += n) /* doubling is not worth it: n is rarely below 8 */
            memcpy(v + filled, v, (size_t)float_min(n, length - filled) * sizeof *v);
        p->v[k] = v;
    }
}

/* The function of a block of a per-channel map: y from x[0], x[1] and the coefficients k[0], k[1], k[2]. */
typedef void (*channel_block)(int64_t n, const float *const x[2], const float *const k[3], float *y);

static void bias_block(int64_t n, const float *const x[2], const float *const k[3], float *y) {
    const float *x0 = x[0], *b = k[0];
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = x0[i] + b[i];
}

static void bias_relu_block(int64_t n, const float *const x[2], const float *const k[3], float *y) {
    const float *x0 = x[0], *b = k[0];
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = relu(x0[i] + b[i]);
}

static void affine_block(int64_t n, const float *const x[2], const float *const k[3], float *y) {
    const float *x0 = x[0], *a = k[0], *b = k[1];
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(a[i], x0[i], b[i]);
}

static void affine_relu_block(int64_t n, const float *const x[2], const float *const k[3], float *y) {
    const float *x0 = x[0], *a = k[0], *b = k[1];
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = relu(fmaf(a[i], x0[i], b[i]));
}

static void affine_pair_block(int64_t n, const float *const x[2], const float *const k[3], float *y) {
    const float *dy = x[0], *x1 = x[1], *a = k[0], *b = k[1], *d = k[2];
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = fmaf(a[i], dy[i], fmaf(d[i], x1[i], b[i]));
}

static void affine_pair_relu_block(int64_t n, const float *const x[2], const float *const k[3], float *y) {
    const float *x0 = x[0], *x1 = x[1], *a = k[0], *b = k[1], *d = k[2];
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        y[i] = relu(fmaf(a[i], x0[i], fmaf(d[i], x1[i], b[i])));
}

struct channel_map {
    struct periodic coefficients;
    channel_block block;
    bool second; /* reads in[1] too */
    bool masked; /* in[0] counts only if in[2] is positive */
};

/* Computes dy, or 0 if y is not positive, in a buffer of FLOAT_BLOCK floats. */
static inline const float *masked_block(int64_t n, const float *dy, const float *y, float *buffer) {
    FL_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        buffer[i] = y[i] > 0 ? dy[i] : 0.0f;
    return buffer;
}

static void channel_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                          struct fl_stats *stats) {
    const struct channel_map *how = context;
    const fl_element *in0 = args->in[0].data, *in1 = args->in[1].data, *in2 = args->in[2].data;
    float buffer0[FLOAT_BLOCK], buffer1[FLOAT_BLOCK], buffer_y[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i), phase = i % how->coefficients.n;
        const float *k[3];
        for (int j = 0; j < 3; j++)
            k[j] = how->coefficients.v[j] ? how->coefficients.v[j] + phase : NULL;
        fl_element *out = element_at(args->out.data, i);
        float *y = room_for(out, buffer_y);
        const float *x[2] = {floats_of(in0 + i, n, buffer0), NULL};
        if (how->masked)
            x[0] = masked_block(n, x[0], floats_of(in2 + i, n, buffer1), buffer0);
        if (how->second)
            x[1] = floats_of(in1 + i, n, buffer1);
        how->block(n, x, k, y);
        store_block(args, i, n, y, stats);
    }
}

#ifdef FL_DIGITS
/* With stochastic rounding, sums with a bias are exact. */
static void drawn_bias_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                             struct fl_stats *stats) {
    const struct channel_map *how = context;
    const enum fl_op op = args->op == FL_OP_BIAS_RELU ? FL_OP_ADD_RELU : FL_OP_ADD;
    float x[DRAWN_RUN];
    for (int64_t i = first; i < end; i += DRAWN_RUN) {
        const int64_t n = float_min(DRAWN_RUN, end - i);
        const float *b = how->coefficients.v[0] + i % how->coefficients.n;
        load_block((const fl_element *)args->in[0].data + i, n, x);
        store_map_run(args, op, i, n, x, b, x, stats);
    }
}
#endif

static tensor_status run_channel_map(const struct fl_args *args, struct channel_map *how, int count,
                                     const float *const *sources, float *memory) {
    make_periodic(&how->coefficients, args->p.rows.n, count, sources, memory);
    float_range range = channel_range;
#ifdef FL_DIGITS
    if (is_drawn(args) && (args->op == FL_OP_BIAS || args->op == FL_OP_BIAS_RELU))
        range = drawn_bias_range;
#endif
    return run_parts(args, args->p.rows.m * args->p.rows.n, 1, range, how);
}

static size_t bias_need(const struct fl_args *args) {
    return (size_t)periodic_stride(args->p.rows.n) * 2 * sizeof(float);
}

static tensor_status bias_map(const struct fl_args *args) {
    struct channel_map how = {.block = args->op == FL_OP_BIAS_RELU ? bias_relu_block : bias_block};
    float *memory = fl_workspace(args, bias_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    float *b = memory + periodic_stride(args->p.rows.n);
    load_block(args->in[1].data, args->p.rows.n, b);
    return run_channel_map(args, &how, 1, (const float *const[]){b}, memory);
}

/* channel_affine, channel_affine_grad */
static size_t channel_affine_need(const struct fl_args *args) {
    return (size_t)periodic_stride(args->p.rows.n) * 3 * sizeof(float);
}

static tensor_status channel_affine(const struct fl_args *args) {
    const struct fl_channels *k = &args->p.batch_norm.channels;
    struct channel_map how = {.second = args->in[1].data != NULL, .masked = args->in[2].data != NULL};
    if (how.second)
        how.block = args->p.batch_norm.relu ? affine_pair_relu_block : affine_pair_block;
    else
        how.block = args->p.batch_norm.relu ? affine_relu_block : affine_block;
    float *memory = fl_workspace(args, channel_affine_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    return run_channel_map(args, &how, how.second ? 3 : 2, (const float *const[]){k->a, k->b, k->d}, memory);
}

#endif
