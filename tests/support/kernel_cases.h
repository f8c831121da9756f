/* kernel_cases.h - inputs for every entry of the table, the same for each test that walks it: shapes by operation,
 * operands by style, from a seed. Knows no format by name. */
#ifndef FL_KERNEL_CASES_H
#define FL_KERNEL_CASES_H

#include "check.h"
#include "core/table/format.h"
#include "draw_function.h"
#include "exponents.h"
#include "core/base/memory.h"
#include "core/ops/windows/pool_rules.h"
#include <math.h>
#include <string.h>

enum { CANARY = 64, CHANNELS = 128, INDICES = 2048, MARKS = 5000 };

enum style { ORDINARY, EXTREME, TINY, SPARSE, SPECIAL, STYLES };

struct block {
    struct fl_view view;
    unsigned char *memory;
    size_t bytes;
};

static struct block block_new(const struct fl_format *f, int64_t count, int e) {
    struct block b = {.bytes = (size_t)count * (size_t)f->bytes};
    b.memory = fl_alloc(b.bytes + CANARY);
    memset(b.memory, 0xa5, b.bytes + CANARY);
    b.view = (struct fl_view){b.memory, NULL, exponent_at(e), count};
    return b;
}

static void block_free(struct block *b) {
    fl_free(b->memory);
    fl_free(b->view.wide);
}

static double uniform(uint64_t *seed) {
    return (double)(check_random(seed) >> 11) * 0x1p-53;
}

/* A drawn value of a style, in units of the format. */
static double value_of(const struct fl_format *f, enum style style, uint64_t *seed) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    double v = (uniform(seed) + uniform(seed) + uniform(seed) + uniform(seed) - 2) * 0.7; /* near Gaussian */
    uint64_t pick = check_random(seed);
    switch (style) {
    case EXTREME:
        return pick & 1 ? 1 : -1;
    case TINY:
        return shared ? v * 0x1p-12 : v * (f->id == FMT_FP16 ? 0x1p-20 : 0x1p-130); /* subnormals */
    case SPARSE:
        return pick % 3 ? 0 : v;
    case SPECIAL:
        return shared ? v : pick % 17 == 0 ? NAN : pick % 19 == 0 ? INFINITY : pick % 23 == 0 ? -INFINITY : v;
    default:
        return v;
    }
}

static void fill(const struct fl_format *f, struct block *b, enum style style, uint64_t *seed) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const double unit = shared ? ldexp(1, -fl_exponent(&b->view)) : 1;
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    struct fl_stats ignored = {0};
    double values[256];
    for (int64_t first = 0, n; first < b->view.count; first += n) {
        n = b->view.count - first < 256 ? b->view.count - first : 256;
        for (int64_t i = 0; i < n; i++) {
            double v = value_of(f, style, seed);
            if (shared)
                v = fmin(fmax(v, -1), 1) * f->top * unit;
            else if (style == EXTREME)
                v *= f->id == FMT_FP16 ? 65504 : 0x1.fep127;
            values[i] = v;
        }
        f->encode(&b->view, first, n, values, false, &nearest, &ignored);
    }
}

static void add_wide(const struct fl_format *f, struct block *b, uint64_t *seed) {
    if (!f->wide_bytes)
        return;
    b->view.wide = fl_alloc((size_t)b->view.count * (size_t)f->wide_bytes);
    double *values = fl_alloc((size_t)b->view.count * sizeof *values);
    f->decode(&b->view, 0, b->view.count, values);
    for (int64_t i = 0; i < b->view.count; i++) {
        if (f->arithmetic == FL_ARITHMETIC_SHARED)
            ((int32_t *)b->view.wide)[i] = (int32_t)(ldexp(values[i], fl_exponent(&b->view)) * 65536) +
                                           (int32_t)(check_random(seed) % 60000) - 30000;
        else
            ((float *)b->view.wide)[i] = (float)(values[i] * (1 + (uniform(seed) - 0.5) * 0x1p-12));
    }
    fl_free(values);
}

/* Sizes of operations of all kinds, as the tables below have them. Average pooling: k is whether padding counts, m and
 * n are what its windows divide. */
struct sizes {
    int64_t m, n, k;
    int64_t batch, h, w, c, p, q, filters, r, s;
    int stride[2], padding[2], dilation[2], groups;
};

static struct fl_windows windows_of(const struct sizes *g) {
    return (struct fl_windows){.batch = g->batch,
                               .h = g->h,
                               .w = g->w,
                               .c = g->c,
                               .p = g->p,
                               .q = g->q,
                               .filters = g->filters,
                               .r = g->r,
                               .s = g->s,
                               .stride = {g->stride[0], g->stride[1]},
                               .padding = {g->padding[0], g->padding[1]},
                               .dilation = {g->dilation[0], g->dilation[1]},
                               .groups = g->groups};
}

static struct fl_pooling pooling_of(const struct sizes *g) {
    return (struct fl_pooling){.windows = windows_of(g), .padding_counts = g->k != 0, .common = {g->m, g->n}};
}

/* One call of an operation: geometry and the sizes of its operands. */
struct shape {
    struct sizes geo;
    struct fl_permutation strides;
    struct fl_axes axes;
    int64_t marks; /* of where */
    int64_t out, in[3];
    int64_t bias, residual; /* of an epilogue */
    bool relu;
    bool in_place; /* allowed with in[0], or with the residual if there is one */
    bool wide;
    struct drawn drawn; /* of an operation without sizes in this file; no function: it has */
    bool asymmetric; /* windows whose directions or sides differ: their hashes have lines of their own in golden.txt */
};

/* The i-th of `count` shapes with epilogues: all shapes without one, then all of them again, each with another. */
static int with_epilogue(enum fl_op op, int i, int count, struct shape *s) {
    const bool fused = op == FL_OP_MATMUL || op == FL_OP_MATMUL_NT || op == FL_OP_CONV2D;
    if (i < count || i >= 2 * count || !fused)
        return i;
    static const struct {
        bool bias, residual, relu;
    } kinds[] = {
        {true, true, true}, {true, false, false}, {false, true, true}, {true, false, true}, {true, true, false}};
    const int kind = (i - count) % (int)(sizeof kinds / sizeof kinds[0]);
    s->bias = kinds[kind].bias; /* sizes follow with the shape */
    s->residual = kinds[kind].residual;
    s->relu = kinds[kind].relu;
    return i - count;
}

static void size_epilogue(struct shape *s, int64_t columns) {
    s->bias *= columns;
    s->residual *= s->out;
    s->in_place = s->residual > 0;
}

/* The i-th convolution or pooling whose directions and sides differ; some with an epilogue. */
static bool asymmetric_windows(enum fl_op op, int i, struct shape *s) {
    /* batch h w c filters r s, stride and dilation down and across, padding top bottom left right, groups */
    static const int convolutions[][16] = {
        {1, 5, 6, 1, 1, 3, 2, 1, 2, 1, 1, 1, 0, 0, 1, 1},     {2, 9, 8, 3, 5, 2, 3, 2, 1, 1, 2, 0, 1, 2, 2, 1},
        {1, 1, 40, 16, 17, 1, 3, 1, 1, 1, 4, 0, 0, 8, 0, 1},  {2, 12, 1, 6, 8, 5, 1, 3, 1, 2, 1, 3, 4, 0, 0, 2},
        {1, 7, 9, 12, 12, 3, 5, 1, 3, 2, 1, 2, 0, 1, 4, 12},  {3, 6, 7, 17, 33, 1, 1, 1, 1, 1, 1, 0, 1, 0, 0, 1},
        {1, 10, 11, 64, 32, 3, 3, 1, 2, 1, 1, 1, 1, 0, 1, 1}, {2, 9, 9, 8, 24, 4, 2, 2, 3, 1, 3, 9, 0, 0, 7, 4}};
    /* batch h w c window, stride and dilation down and across, padding top bottom left right */
    static const int pools[][14] = {{1, 5, 6, 1, 2, 3, 1, 2, 1, 1, 1, 0, 0, 2},
                                    {2, 9, 12, 17, 3, 2, 2, 1, 2, 4, 0, 3, 4, 1},
                                    {2, 1, 30, 33, 1, 4, 1, 3, 1, 3, 0, 0, 9, 0}};
    struct sizes *g = &s->geo;
    const bool pool = op == FL_OP_MAXPOOL2D || op == FL_OP_MAXPOOL2D_GRAD;
    if (i >= (int)(pool ? sizeof pools / sizeof pools[0] : sizeof convolutions / sizeof convolutions[0]))
        return false;
    const int *v = pool ? pools[i] : convolutions[i], *filter = v + (pool ? 4 : 5), *steps = filter + 2,
              *padding = steps + 4;
    *g = (struct sizes){.batch = v[0],
                        .h = v[1],
                        .w = v[2],
                        .c = v[3],
                        .filters = pool ? v[3] : v[4],
                        .r = filter[0],
                        .s = filter[1],
                        .stride = {steps[0], steps[1]},
                        .padding = {padding[0], padding[2]},
                        .dilation = {steps[2], steps[3]},
                        .groups = pool ? 0 : v[15]};
    g->p = (g->h + padding[0] + padding[1] - g->dilation[0] * (g->r - 1) - 1) / g->stride[0] + 1;
    g->q = (g->w + padding[2] + padding[3] - g->dilation[1] * (g->s - 1) - 1) / g->stride[1] + 1;
    const int64_t x = g->batch * g->h * g->w * g->c, y = g->batch * g->p * g->q * g->filters,
                  w = pool ? 0 : g->filters * g->r * g->s * (g->c / g->groups);
    const bool forward = op == FL_OP_CONV2D || op == FL_OP_MAXPOOL2D, weights = op == FL_OP_CONV2D_WEIGHT_GRAD;
    s->asymmetric = true;
    s->out = forward ? y : weights ? w : x;
    s->in[0] = forward ? x : y;
    s->in[1] = op == FL_OP_MAXPOOL2D ? 0 : pool || weights ? x : w;
    if (!pool && !weights && i % 2) { /* a transposed convolution has one too */
        s->bias = 1;
        s->residual = i % 4 == 1;
        s->relu = i % 3 == 0;
        size_epilogue(s, forward ? g->filters : g->c);
    }
    return true;
}

/* The i-th permutation. */
static bool permutation(int i, struct shape *s) {
    static const int cases[][1 + 2 * TENSOR_MAX_DIMS] = {
        /* ndim, sizes of x, order */
        {1, 7, 0, 0, 0, 0, 0, 0},         {2, 33, 70, 0, 0, 0, 0, 1, 0},       {2, 130, 65, 0, 0, 0, 0, 0, 1},
        {3, 5, 40, 17, 0, 0, 0, 2, 0, 1}, {4, 3, 20, 4, 33, 0, 0, 0, 2, 1, 3}, {6, 2, 3, 1, 5, 4, 7, 5, 3, 0, 2, 4, 1},
    };
    if (i >= (int)(sizeof cases / sizeof cases[0]))
        return false;
    const int ndim = cases[i][0], *sizes = cases[i] + 1, *order = sizes + TENSOR_MAX_DIMS;
    int64_t stride[TENSOR_MAX_DIMS], count = 1;
    for (int d = ndim - 1; d >= 0; count *= sizes[d--])
        stride[d] = count;
    s->strides.ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        s->strides.shape[d] = sizes[order[d]];
        s->strides.stride[d] = stride[order[d]];
    }
    s->out = s->in[0] = count;
    return true;
}

/* Average pooling by windows, or adaptive. */
static bool average_of(enum fl_op op, int i, struct shape *s) {
    const bool adaptive = op == FL_OP_AVGPOOL_ADAPTIVE || op == FL_OP_AVGPOOL_ADAPTIVE_GRAD;
    const bool gradient = op == FL_OP_AVGPOOL2D_GRAD || op == FL_OP_AVGPOOL_ADAPTIVE_GRAD;
    static const int windows[][8] = {
        /* batch h w c window stride padding padding-counts */
        {1, 4, 4, 1, 2, 2, 0, 0},  {2, 9, 7, 16, 3, 2, 1, 1},    {2, 9, 7, 17, 3, 2, 1, 0},  {1, 8, 5, 5, 5, 1, 4, 0},
        {3, 8, 8, 33, 2, 3, 1, 0}, {1, 30, 26, 2, 25, 3, 12, 1}, {1, 19, 20, 3, 14, 2, 6, 0}};
    static const int parts[][6] = {/* batch h w c p q */
                                   {1, 5, 5, 1, 1, 1},   {2, 7, 9, 16, 3, 2}, {2, 3, 4, 17, 5, 7},
                                   {1, 31, 29, 4, 7, 7}, {3, 8, 8, 33, 4, 8}, {1, 25, 40, 2, 1, 3}};
    if (i >= (adaptive ? 6 : 7))
        return false;
    const int *v = adaptive ? parts[i] : windows[i];
    struct sizes *g = &s->geo;
    *g = (struct sizes){.batch = v[0], .h = v[1], .w = v[2], .c = v[3], .filters = v[3], .p = v[4], .q = v[5]};
    if (!adaptive) {
        g->r = g->s = v[4];
        g->stride[0] = g->stride[1] = v[5];
        g->padding[0] = g->padding[1] = v[6];
        g->k = v[7];
        g->p = (g->h + 2 * v[6] - g->r) / v[5] + 1;
        g->q = (g->w + 2 * v[6] - g->s) / v[5] + 1;
    }
    const struct fl_pooling pooling = pooling_of(g);
    const struct fl_pool_side down = fl_pool_down(&pooling), across = fl_pool_across(&pooling);
    g->m = gradient ? fl_pool_common(&down) : 0;
    g->n = gradient ? fl_pool_common(&across) : 0;
    const int64_t x = g->batch * g->h * g->w * g->c, y = g->batch * g->p * g->q * g->c;
    s->out = gradient ? x : y;
    s->in[0] = gradient ? y : x;
    return true;
}

/* Group normalisation: batch, pixels, channels, groups. */
static bool groups_of(enum fl_op op, int i, struct shape *s) {
    static const int cases[][4] = {{1, 1, 1, 1},    {2, 5, 6, 3},   {3, 49, 16, 16}, {1, 600, 10, 2},
                                   {5, 130, 24, 4}, {2, 17, 33, 1}, {40, 2, 64, 32}};
    if (i >= 7)
        return false;
    struct sizes *g = &s->geo;
    *g = (struct sizes){.batch = cases[i][0], .m = cases[i][1], .n = cases[i][2], .groups = cases[i][3]};
    s->out = s->in[0] = g->batch * g->m * g->n;
    if (op == FL_OP_GROUPNORM) {
        s->in[1] = g->n;
        s->in[2] = i % 2 ? g->n : 0; /* with and without beta */
        return true;
    }
    s->in[1] = s->in[0];
    if (op == FL_OP_GROUPNORM_GRAD)
        s->in[2] = g->n;
    else
        s->out = g->n;
    return true;
}

/* Strides of an operand whose dimensions in `ones` have one element; how many elements it has. */
static int64_t strides_without(int ndim, const int64_t *shape, unsigned ones, int64_t *stride) {
    int64_t at = 1;
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = ones >> d & 1 ? 0 : at;
        at *= ones >> d & 1 ? 1 : shape[d];
    }
    return at;
}

/* The i-th reduction, gradient of one, or operation of broadcast operands. */
static bool axes_case(enum fl_op op, int i, struct shape *s) {
    static const struct {
        int ndim, size[TENSOR_MAX_DIMS];
        unsigned axes, other; /* summed over, or where the first operand is repeated; where the second one is */
    } cases[] = {{1, {1}, 1, 0},
                 {2, {7, 5}, 2, 1},
                 {2, {5, 7}, 1, 3},
                 {3, {3, 40, 17}, 2, 4},
                 {3, {2, 5, 515}, 4, 2},
                 {4, {2, 9, 7, 33}, 6, 9},
                 {2, {1030, 3}, 1, 2},
                 {1, {4097}, 1, 0},
                 {6, {2, 3, 1, 5, 4, 7}, 0x15, 0x2a},
                 {5, {3, 2, 5, 4, 6}, 0x1b, 0x04},
                 {2, {33, 130}, 0, 0},
                 {2, {2, 1500}, 3, 2}};
    if (i >= (int)(sizeof cases / sizeof cases[0]))
        return false;
    const int ndim = cases[i].ndim;
    struct fl_axes whole = {.ndim = (int16_t)ndim}, groups;
    for (int d = 0; d < ndim; d++)
        whole.shape[d] = cases[i].size[d];
    const unsigned axes = cases[i].axes;
    whole.inner = (uint8_t)axes;
    groups = whole;
    const int64_t all = strides_without(ndim, whole.shape, 0, groups.stride[0]),
                  some = strides_without(ndim, whole.shape, axes, whole.stride[0]);
    bool folds = false;
    switch ((int)op) {
    case FL_OP_BROADCAST_ADD:
    case FL_OP_BROADCAST_MUL:
    case FL_OP_WHERE:
        s->out = all;
        s->in[0] = some;
        s->in[1] = strides_without(ndim, whole.shape, cases[i].other, whole.stride[1]);
        if (op == FL_OP_WHERE)
            s->marks = strides_without(ndim, whole.shape, i % 2 ? axes & cases[i].other : axes, whole.stride[2]);
        break;
    case FL_OP_WHERE_GRAD:
        s->out = s->in[0] = strides_without(ndim, whole.shape, 0, whole.stride[0]);
        s->marks = strides_without(ndim, whole.shape, axes, whole.stride[2]);
        whole.marked = i % 2;
        break;
    case FL_OP_BROADCAST_MUL_GRAD:
        s->out = some;
        s->in[0] = all;
        s->in[1] = strides_without(ndim, whole.shape, cases[i].other, groups.stride[1]);
        folds = true;
        break;
    case FL_OP_REDUCE_SUM_GRAD:
    case FL_OP_REDUCE_MEAN_GRAD:
    case FL_OP_REDUCE_L1_GRAD:
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_REDUCE_MIN_GRAD:
    case FL_OP_REDUCE_L2_GRAD: {
        s->out = all;
        s->in[0] = some;
        if (op != FL_OP_REDUCE_SUM_GRAD && op != FL_OP_REDUCE_MEAN_GRAD)
            s->in[1] = strides_without(ndim, whole.shape, 0, whole.stride[1]);
        int64_t at = 1;
        for (int d = ndim - 1; d >= 0; d--)
            if (axes >> d & 1) {
                whole.stride[2][d] = at;
                at *= whole.shape[d];
            }
        break;
    }
    default:
        s->out = some;
        s->in[0] = all;
        folds = true;
    }
    s->axes = folds ? groups : whole;
    return true;
}

/* The i-th cell of a recurrent network: sequences and units. */
static bool cell(enum fl_op op, int i, struct shape *s) {
    static const int64_t cells[][2] = {{1, 1}, {3, 5}, {17, 33}, {40, 64}, {300, 7}};
    static const struct {
        int out, in[3], bias, residual; /* gates of each */
    } gates[] = {{1, {4, 1, 0}, 0, 0}, {1, {4, 1, 0}, 0, 0}, {1, {1, 4, 1}, 4, 1}, {4, {1, 1, 4}, 1, 1},
                 {1, {3, 3, 1}, 0, 0}, {3, {1, 3, 3}, 0, 1}, {3, {1, 3, 3}, 0, 1}, {1, {1, 3, 3}, 0, 1}};
    const int which = op - FL_OP_LSTM_CELL;
    if (i >= 5)
        return false;
    const int64_t m = s->geo.m = cells[i][0], n = s->geo.n = cells[i][1];
    /* of a last step there is no step after it */
    const bool last = i % 2 && (op == FL_OP_LSTM_CELL_GRAD || op == FL_OP_GRU_STATE_GRAD);
    s->out = m * n * gates[which].out;
    for (int k = 0; k < 3; k++)
        s->in[k] = m * n * gates[which].in[k];
    s->bias = last ? 0 : m * n * gates[which].bias;
    s->residual = last ? 0 : m * n * gates[which].residual;
    s->in_place = op == FL_OP_LSTM_CELL_GRAD && !last;
    return true;
}

/* The function of an operation: that of its name; of one that functions of other names use, the most alike. */
static const struct fl_function *function_of(enum fl_op op) {
    const char *name = fl_op_name(op);
    const struct fl_function *best = fl_function_named(name);
    size_t longest = 0;
    for (int i = 0; !fl_function_named(name) && fl_function_at(i); i++) {
        const char *other = fl_function_at(i)->name;
        size_t n = 0;
        while (name[n] && name[n] == other[n])
            n++;
        if (n > longest) {
            longest = n;
            best = fl_function_at(i);
        }
    }
    return best;
}

/* The i-th case of an operation without sizes in this file: drawn from the signature of its function. False where it
 * has operands other than out and in[], whose cases are in number_cases.h. */
static bool drawn_case(enum fl_op op, int i, struct shape *s) {
    static const int64_t letters[] = {1, 2, 3, 4, 6, 8, 16, 17, 33, 64};
    static const struct draw_dims many[] = {{1, {1}}, {1, {5}}, {2, {3, 7}}, {1, {64}}, {1, {515}}, {2, {40, 33}}};
    const struct draw_limits limits = {letters, 10, many, 6, 60000, 40000, 40000, 0};
    const struct fl_operation *o = fl_operation_of(op);
    const struct fl_function *f = function_of(op);
    if (!o || !f || i >= 8)
        return false;
    const struct fl_operand *operands = o->operands ? o->operands : f->operands;
    const int count = o->operands ? o->operand_count : f->operand_count;
    draws = (uint64_t)op * 131 + (uint64_t)i;
    if (!draw_call(&s->drawn, f, &limits))
        return false;
    for (int k = 0; k < count; k++) {
        struct drawn_operand shape = {.given = !(operands[k].flags & FL_OPTIONAL) || i % 2};
        if (operands[k].class >= FL_CLASS_F64 || !shape_by_text(&s->drawn, operands[k].shape, &shape))
            return false;
        const int64_t n = shape.given ? count_of(shape.ndim, shape.shape) : 0;
        if (!operands[k].at && k == 0)
            s->out = n;
        else if (operands[k].at == FL_AT(in[0]) || operands[k].at == FL_AT(in[1]) || operands[k].at == FL_AT(in[2]))
            s->in[(operands[k].at - FL_AT(in[0])) / sizeof(struct fl_view)] = n;
        else
            return false;
        s->in_place = s->in_place || (operands[k].flags & FL_IN_PLACE && operands[k].at == FL_AT(in[0]) && n == s->out);
    }
    return s->in[0] > 0;
}

/* The parameters that follow from what was drawn. */
static inline void place_drawn(const struct drawn *d, struct fl_args *args) {
    const struct fl_function *f = d->function;
    for (int i = 0; i < f->scalar_count; i++) {
        char *to = (char *)args + f->scalars[i].at;
        const enum fl_scalar_type type = f->scalars[i].type;
        if (!f->scalars[i].at)
            continue;
        if (type == FL_REAL32)
            *(float *)(void *)to = (float)d->scalar[i].real;
        else if (type == FL_INT32)
            *(int32_t *)(void *)to = (int32_t)d->scalar[i].integer;
        else if (type == FL_BOOL)
            *(bool *)to = d->scalar[i].integer;
        else
            memcpy(to, &d->scalar[i], 8);
    }
    if (f->prepare)
        f->prepare(args, &d->sizes, d->scalar);
}

/* The i-th shape for an operation; false past the last. */
static bool shape_of(enum fl_op op, int i, struct shape *s) {
    *s = (struct shape){0};
    struct sizes *g = &s->geo;
    static const int64_t counts[] = {1, 7, 64, 515, 4097, 70001};
    static const int64_t rows[][2] = {{1, 1}, {3, 5}, {600, 16}, {1030, 17}, {40, 64}, {513, 3}, {2048, 32}};
    static const int64_t mats[][3] = {{1, 1, 1},     {3, 5, 7},       {17, 33, 515},
                                      {65, 16, 144}, {16, 144, 1100}, {130, 70, 64}};
    /* batch h w c filters r stride padding dilation groups */
    static const int images[][10] = {
        {1, 5, 5, 1, 1, 3, 1, 1, 1, 1},   {2, 8, 8, 3, 5, 3, 1, 1, 1, 1},    {3, 9, 7, 16, 17, 3, 2, 1, 1, 1},
        {2, 6, 6, 17, 16, 1, 1, 0, 1, 1}, {2, 11, 11, 4, 8, 5, 3, 2, 1, 1},  {5, 8, 8, 16, 32, 3, 2, 1, 1, 1},
        {2, 9, 10, 5, 6, 3, 1, 2, 2, 1},  {1, 13, 11, 4, 7, 3, 2, 3, 3, 1},  {2, 8, 7, 12, 18, 3, 1, 1, 1, 3},
        {2, 9, 9, 10, 20, 3, 2, 2, 2, 2}, {2, 7, 8, 70, 70, 3, 1, 1, 1, 70}, {1, 12, 9, 6, 18, 3, 3, 2, 2, 6},
        {1, 8, 8, 24, 8, 3, 1, 1, 1, 8}};
    static const int pools[][6] = {
        /* batch h w c window stride */ {1, 4, 4, 1, 2, 2}, {2, 9, 7, 16, 3, 2}, {3, 8, 8, 17, 2, 1}};
    if (fl_op_is_real(op) && i >= 4)
        return false; /* the definition takes a microsecond for each; test_functions.c has the long ones */
    switch (op) {
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#define FL_MAP1(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#include "flexlab/ops.def"
        if (i >= 6)
            return false;
        s->out = s->in[0] = counts[i];
        s->in_place = true;
        return true;
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#define FL_MAP2(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#include "flexlab/ops.def"
        if (i >= 6)
            return false;
        s->out = s->in[0] = s->in[1] = counts[i];
        s->in_place = true;
        return true;
#define FL_MAP3(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#include "flexlab/ops.def"
        if (i >= 6)
            return false;
        s->out = s->in[0] = s->in[1] = s->in[2] = counts[i];
        s->in_place = true;
        return true;
    case FL_OP_BIAS:
    case FL_OP_BIAS_RELU:
    case FL_OP_SUM_ROWS:
    case FL_OP_CHANNEL_SUMS:
    case FL_OP_CHANNEL_GRAD_SUMS:
    case FL_OP_CHANNEL_AFFINE:
    case FL_OP_CHANNEL_AFFINE_GRAD:
        if (i >= 7)
            return false;
        g->m = rows[i][0];
        g->n = rows[i][1];
        s->in[0] = g->m * g->n;
        s->out = op == FL_OP_SUM_ROWS ? g->n : op == FL_OP_CHANNEL_SUMS || op == FL_OP_CHANNEL_GRAD_SUMS ? 0 : s->in[0];
        if (op == FL_OP_BIAS || op == FL_OP_BIAS_RELU) {
            s->in[1] = g->n;
            s->in_place = true;
        }
        if (op == FL_OP_CHANNEL_AFFINE)
            s->in[1] = i % 4 < 2 ? s->in[0] : 0; /* with and without something to add */
        if (op == FL_OP_CHANNEL_GRAD_SUMS || op == FL_OP_CHANNEL_AFFINE_GRAD) {
            s->in[1] = s->in[0];
            s->in[2] = i % 2 ? s->in[0] : 0; /* with and without a mask */
        }
        return true;
    case FL_OP_MAX_ABS:
        if (i >= 6)
            return false;
        s->in[0] = counts[i];
        return true;
    case FL_OP_MATMUL:
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_TN:
        i = with_epilogue(op, i, 6, s);
        if (i >= 6)
            return false;
        g->m = mats[i][0];
        g->n = mats[i][1];
        g->k = mats[i][2];
        s->out = g->m * g->n;
        s->in[0] = g->m * g->k;
        s->in[1] = g->k * g->n;
        size_epilogue(s, g->n);
        return true;
    case FL_OP_MATMUL_BATCHED:
    case FL_OP_MATMUL_BATCHED_NT:
    case FL_OP_MATMUL_BATCHED_TN: {
        /* few matrices, and so many that threads take them whole */
        static const int64_t batches[][4] = {{1, 1, 1, 1},   {3, 5, 7, 9},     {2, 33, 17, 515},
                                             {37, 4, 16, 6}, {30, 17, 13, 64}, {65, 16, 32, 8}};
        if (i >= 6)
            return false;
        *g = (struct sizes){.batch = batches[i][0], .m = batches[i][1], .n = batches[i][2], .k = batches[i][3]};
        s->out = g->batch * g->m * g->n;
        s->in[0] = g->batch * g->m * g->k;
        s->in[1] = g->batch * g->k * g->n;
        return true;
    }
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
    case FL_OP_CONV2D_WEIGHT_GRAD:
    case FL_OP_SHORTCUT_A:
    case FL_OP_SHORTCUT_A_GRAD: {
        const bool shortcut = op == FL_OP_SHORTCUT_A || op == FL_OP_SHORTCUT_A_GRAD;
        const int count = shortcut ? 6 : (int)(sizeof images / sizeof images[0]), fused = op == FL_OP_CONV2D ? 2 : 1;
        if (i >= fused * count)
            return !shortcut && asymmetric_windows(op, i - fused * count, s);
        i = with_epilogue(op, i, count, s);
        const int *v = images[i];
        *g = (struct sizes){.batch = v[0],
                            .h = v[1],
                            .w = v[2],
                            .c = v[3],
                            .filters = v[4],
                            .r = v[5],
                            .s = v[5],
                            .stride = {v[6], v[6]},
                            .padding = {v[7], v[7]},
                            .dilation = {v[8], v[8]},
                            .groups = v[9]};
        if (shortcut) {
            g->filters = g->c + i;
            g->p = (g->h + v[6] - 1) / v[6];
            g->q = (g->w + v[6] - 1) / v[6];
            g->r = g->s = g->groups = 0;
            for (int way = 0; way < 2; way++)
                g->padding[way] = g->dilation[way] = 0;
        } else {
            g->p = (g->h + 2 * v[7] - v[8] * (g->r - 1) - 1) / v[6] + 1;
            g->q = (g->w + 2 * v[7] - v[8] * (g->s - 1) - 1) / v[6] + 1;
        }
        int64_t x = g->batch * g->h * g->w * g->c, y = g->batch * g->p * g->q * g->filters,
                w = shortcut ? 0 : g->filters * g->r * g->s * (g->c / g->groups);
        s->out = op == FL_OP_CONV2D || op == FL_OP_SHORTCUT_A ? y : op == FL_OP_CONV2D_WEIGHT_GRAD ? w : x;
        s->in[0] = op == FL_OP_CONV2D || op == FL_OP_SHORTCUT_A ? x : y;
        s->in[1] = shortcut ? 0 : op == FL_OP_CONV2D_WEIGHT_GRAD ? x : w;
        size_epilogue(s, g->filters);
        return true;
    }
    case FL_OP_MAXPOOL2D:
    case FL_OP_MAXPOOL2D_GRAD:
    case FL_OP_AVGPOOL_GLOBAL:
    case FL_OP_AVGPOOL_GLOBAL_GRAD: {
        const bool average = op == FL_OP_AVGPOOL_GLOBAL || op == FL_OP_AVGPOOL_GLOBAL_GRAD;
        if (i >= 3)
            return !average && asymmetric_windows(op, i - 3, s);
        const int *v = pools[i];
        *g = (struct sizes){.batch = v[0], .h = v[1], .w = v[2], .c = v[3], .filters = v[3], .p = 1, .q = 1};
        if (!average) {
            g->r = g->s = v[4];
            for (int way = 0; way < 2; way++) {
                g->stride[way] = v[5];
                g->padding[way] = i == 1;
                g->dilation[way] = 1;
            }
            g->p = (g->h + 2 * g->padding[0] - g->r) / v[5] + 1;
            g->q = (g->w + 2 * g->padding[1] - g->s) / v[5] + 1;
        }
        int64_t x = g->batch * g->h * g->w * g->c, y = g->batch * g->p * g->q * g->c;
        const bool gradient = op == FL_OP_MAXPOOL2D_GRAD || op == FL_OP_AVGPOOL_GLOBAL_GRAD;
        s->out = gradient ? x : y;
        s->in[0] = gradient ? y : x;
        s->in[1] = op == FL_OP_MAXPOOL2D_GRAD ? x : 0;
        return true;
    }
    case FL_OP_LAYERNORM:
    case FL_OP_RMSNORM:
    case FL_OP_LAYERNORM_GRAD:
    case FL_OP_RMSNORM_GRAD:
    case FL_OP_LAYERNORM_GAMMA_GRAD:
    case FL_OP_RMSNORM_GAMMA_GRAD: {
        if (i >= 7)
            return false;
        const bool forward = op == FL_OP_LAYERNORM || op == FL_OP_RMSNORM;
        g->m = rows[i][0];
        g->n = rows[i][1];
        s->out = s->in[0] = g->m * g->n;
        s->in[1] = forward ? g->n : s->in[0];
        if (op == FL_OP_LAYERNORM)
            s->in[2] = i % 2 ? g->n : 0; /* with and without beta */
        else if (op == FL_OP_LAYERNORM_GRAD || op == FL_OP_RMSNORM_GRAD)
            s->in[2] = g->n;
        else if (!forward)
            s->out = g->n;
        return true;
    }
    case FL_OP_SOFTMAX:
    case FL_OP_SOFTMAX_GRAD:
    case FL_OP_LOG_SOFTMAX:
    case FL_OP_LOG_SOFTMAX_GRAD:
        if (i >= 7)
            return false;
        g->m = rows[i][0];
        g->n = rows[i][1];
        if (op == FL_OP_SOFTMAX || op == FL_OP_SOFTMAX_GRAD)
            g->k = i % 2 ? g->n + i - 3 : 0; /* with and without a mask; more rows than columns, or fewer */
        s->out = s->in[0] = g->m * g->n;
        s->in[1] = op == FL_OP_SOFTMAX || op == FL_OP_LOG_SOFTMAX ? 0 : s->in[0];
        s->in_place = true;
        return true;
    case FL_OP_EMBEDDING:
    case FL_OP_EMBEDDING_GRAD:
        if (i >= 7)
            return false;
        g->m = rows[i][0];
        g->n = rows[i][1];
        g->k = (int64_t[]){1, 9, 200, 1, 3, 40, 700}[i]; /* 1: chains of many terms */
        s->out = op == FL_OP_EMBEDDING ? g->m * g->n : g->k * g->n;
        s->in[0] = op == FL_OP_EMBEDDING ? g->k * g->n : g->m * g->n;
        return true;
    case FL_OP_PERMUTE:
        return permutation(i, s);
    case FL_OP_SLICE:
    case FL_OP_SLICE_GRAD: {
        /* rows, columns of the whole, first and number of those of the part */
        static const int slices[][4] = {
            {1, 1, 0, 1}, {7, 5, 2, 3}, {40, 33, 32, 1}, {1, 5000, 1100, 2500}, {300, 16, 0, 16}};
        if (i >= 5)
            return false;
        const int *v = slices[i];
        const bool gradient = op == FL_OP_SLICE_GRAD;
        *g = (struct sizes){.m = v[0], .n = gradient ? v[1] : v[3], .c = gradient ? v[3] : v[1], .k = v[2]};
        s->out = g->m * g->n;
        s->in[0] = g->m * g->c;
        return true;
    }
    case FL_OP_CONCAT: {
        static const int widths[][4] = {{1, 1, 1, 0}, {9, 3, 1, 5}, {70, 17, 33, 0}, {2, 1500, 700, 900}};
        if (i >= 4)
            return false;
        g->m = widths[i][0];
        for (int j = 0; j < 3; j++) {
            s->in[j] = g->m * widths[i][j + 1];
            g->n += widths[i][j + 1];
        }
        s->out = g->m * g->n;
        return true;
    }
    case FL_OP_LSTM_CELL:
    case FL_OP_LSTM_HIDDEN:
    case FL_OP_LSTM_CELL_GRAD:
    case FL_OP_LSTM_GATES_GRAD:
    case FL_OP_GRU_HIDDEN:
    case FL_OP_GRU_INPUT_GRAD:
    case FL_OP_GRU_GATES_GRAD:
    case FL_OP_GRU_STATE_GRAD:
        return cell(op, i, s);
    case FL_OP_AVGPOOL2D:
    case FL_OP_AVGPOOL2D_GRAD:
    case FL_OP_AVGPOOL_ADAPTIVE:
    case FL_OP_AVGPOOL_ADAPTIVE_GRAD:
        return average_of(op, i, s);
    case FL_OP_GROUPNORM:
    case FL_OP_GROUPNORM_GRAD:
    case FL_OP_GROUPNORM_GAMMA_GRAD:
        return groups_of(op, i, s);
    case FL_OP_LRN:
    case FL_OP_LRN_GRAD:
        if (i >= 7)
            return false;
        g->m = rows[i][0];
        g->n = rows[i][1];
        g->k = (int64_t[]){1, 5, 5, 4, 9, 100, 3}[i]; /* more channels than there are, too */
        s->out = s->in[0] = g->m * g->n;
        s->in[1] = op == FL_OP_LRN_GRAD ? s->in[0] : 0;
        return true;
    case FL_OP_DROPOUT:
        if (i >= 6)
            return false;
        g->k = 0x123456789abcdef * (i + 1); /* the key */
        s->out = s->in[0] = counts[i];
        s->in_place = true;
        return true;
    case FL_OP_REDUCE_SUM:
    case FL_OP_REDUCE_MEAN:
    case FL_OP_REDUCE_MAX:
    case FL_OP_REDUCE_MIN:
    case FL_OP_REDUCE_L1:
    case FL_OP_REDUCE_L2:
    case FL_OP_REDUCE_SUM_GRAD:
    case FL_OP_REDUCE_MEAN_GRAD:
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_REDUCE_MIN_GRAD:
    case FL_OP_REDUCE_L1_GRAD:
    case FL_OP_REDUCE_L2_GRAD:
    case FL_OP_BROADCAST_ADD:
    case FL_OP_BROADCAST_MUL:
    case FL_OP_BROADCAST_MUL_GRAD:
    case FL_OP_WHERE:
    case FL_OP_WHERE_GRAD:
        return axes_case(op, i, s);
    case FL_OP_SGD_MOMENTUM:
    case FL_OP_SGD_UPDATE:
        if (i >= 6)
            return false;
        s->out = s->in[0] = s->in[1] = counts[i];
        s->in[2] = op == FL_OP_SGD_MOMENTUM ? counts[i] : 0;
        s->in_place = true;
        s->wide = i % 2;
        return true;
    case FL_OP_CLIP_WEIGHT:
        if (i >= 12)
            return false;
        s->out = s->in[0] = counts[i % 6];
        s->in_place = true;
        s->wide = (i + i / 6) % 2;
        return true;
    case FL_OP_COMBINE:
    case FL_OP_ROOT_MEAN:
    case FL_OP_ADD_RATIO:
        if (i >= 12)
            return false;
        s->out = s->in[0] = s->in[1] = counts[i % 6];
        s->in[2] = op == FL_OP_ADD_RATIO || (op == FL_OP_COMBINE && i % 3) ? counts[i % 6] : 0;
        s->in_place = true;
        s->wide = (i + i / 6) % 2;
        return true;
    default:
        return drawn_case(op, i, s);
    }
}

/* Whether operand i of the operation counts as its wide part in shape `index`. */
static inline bool counts_wide(enum fl_op op, int i, int index) {
    switch ((int)op) {
    case FL_OP_SGD_UPDATE:
    case FL_OP_ROOT_MEAN:
    case FL_OP_CLIP_WEIGHT:
        return i == 0;
    case FL_OP_SGD_MOMENTUM:
        return i == 2;
    case FL_OP_COMBINE:
        return i != 1;
    case FL_OP_ADD_RATIO:
        return i != 1 || index % 4 < 2;
    default:
        return false;
    }
}

/* Whether it writes the wide part of its output where operand 0 has one. */
static inline bool writes_wide(enum fl_op op) {
    return op == FL_OP_SGD_UPDATE || op == FL_OP_COMBINE || op == FL_OP_ROOT_MEAN || op == FL_OP_ADD_RATIO ||
           op == FL_OP_CLIP_WEIGHT;
}

struct result {
    struct block out;
    struct fl_stats stats;
    int64_t *isum;
    double *fsum;
    void *wide;
};

struct call {
    const struct fl_format *format;
    enum fl_op op;
    struct shape shape;
    struct block in[3], bias, residual;
    int e_out;
    struct fl_args args;
    float a[CHANNELS], b[CHANNELS], d[CHANNELS]; /* of channel_affine */
    struct fl_coefficient first[CHANNELS], cross[CHANNELS], offset[CHANNELS];
    int32_t first_centre[CHANNELS], cross_centre[CHANNELS];
    double factors[FL_FACTORS];
    int32_t indices[INDICES]; /* of embeddings */
    uint8_t marks[MARKS];     /* of where */
};

/* The operands of a call beside in[]: what shapes call its bias and its residual; NULL: it has none of that kind. */
static void addends_of(struct fl_args *args, struct fl_view *to[2]) {
    struct fl_cell *cell = &args->p.cell;
    struct fl_epilogue *with = &args->p.product.epilogue;
    to[0] = fl_is_product(args->op)             ? &with->bias
            : args->op == FL_OP_LSTM_CELL_GRAD  ? &cell->gates_after
            : args->op == FL_OP_LSTM_GATES_GRAD ? &cell->c_before
                                                : NULL;
    to[1] = fl_is_product(args->op)                                                ? &with->residual
            : args->op == FL_OP_LSTM_CELL_GRAD                                     ? &cell->dc_after
            : args->op == FL_OP_LSTM_GATES_GRAD                                    ? &cell->c
            : args->op == FL_OP_GRU_INPUT_GRAD || args->op == FL_OP_GRU_GATES_GRAD ? &cell->h_before
            : args->op == FL_OP_GRU_STATE_GRAD                                     ? &cell->dy
                                                                                   : NULL;
}

/* Where the sums of channels go, for the operations that make them. */
static void take_sums(struct fl_args *args, struct fl_channel_sums sums) {
    if (args->op == FL_OP_CHANNEL_SUMS || args->op == FL_OP_CHANNEL_GRAD_SUMS)
        args->p.batch_norm.sums = sums;
}

static tensor_status run(const struct call *call, fl_kernel kernel, bool in_place, bool measure, struct result *r) {
    struct fl_args args = call->args;
    const int64_t n = call->shape.geo.n ? call->shape.geo.n : 1;
    memset(r, 0, sizeof *r);
    r->isum = fl_alloc_zero((size_t)n * 16);
    r->fsum = fl_alloc_zero((size_t)n * 16);
    take_sums(&args, (struct fl_channel_sums){{r->isum, r->isum + n}, {r->fsum, r->fsum + n}});
    args.stats = &r->stats;
    if (call->shape.out) {
        r->out = block_new(call->format, call->shape.out, call->e_out);
        if (in_place) {
            const bool residual = call->shape.residual > 0;
            memcpy(r->out.memory, residual ? call->residual.memory : call->in[0].memory, r->out.bytes);
            struct fl_view *addend[2];
            addends_of(&args, addend);
            (residual ? addend[1] : &args.in[0])->data = r->out.memory;
        }
        if (call->in[0].view.wide && writes_wide(call->op)) {
            size_t bytes = (size_t)call->shape.out * (size_t)call->format->wide_bytes;
            r->wide = fl_alloc(bytes);
            memcpy(r->wide, call->in[0].view.wide, bytes);
            args.in[0].wide = r->wide;
        }
        args.out = r->out.view;
        args.out.wide = r->wide;
        if (measure)
            args.out.data = NULL;
    }
    return kernel(&args);
}

static void result_free(struct result *r) {
    block_free(&r->out);
    fl_free(r->isum);
    fl_free(r->fsum);
    fl_free(r->wide);
}

/* A coefficient whose product with mantissas is about 2^size units of the output at exponent e. */
static struct fl_coefficient coefficient(int e, int size, uint64_t *seed) {
    const int32_t m = (int32_t)(check_random(seed) >> 34) + (1 << 30);
    return (struct fl_coefficient){check_random(seed) & 1 ? -m : m, 30 + e - size};
}

static void make_coefficients(struct call *call, uint64_t *seed) {
    for (int64_t c = 0; c < call->shape.geo.n; c++) {
        call->a[c] = (float)(uniform(seed) * 2 - 0.5);
        call->b[c] = (float)(uniform(seed) - 0.5);
        call->d[c] = (float)(uniform(seed) * 0.2 - 0.1);
        uint64_t own = check_random(seed); /* of the integer formats */
        for (int i = 0; i < 3; i++)
            own ^= check_random(seed);
        /* every third channel a multiplier about 1; others anywhere near, now and then far above what 16 bits hold */
        const int size = c % 3 == 0 ? 0 : (int)(check_random(&own) % 24) - 12 + (c % 7 == 6 ? 20 : 0);
        call->first[c] = coefficient(call->e_out, size, &own);
        call->cross[c] = coefficient(call->e_out, size - (int)(check_random(&own) % 20) + 4, &own);
        call->offset[c] = coefficient(call->e_out, 2 + (int)(check_random(&own) % 12), &own);
        call->first_centre[c] = (int32_t)(check_random(&own) % 65535) - 32767;
        call->cross_centre[c] = (int32_t)(check_random(&own) % 4001) - 2000;
    }
    call->args.p.batch_norm.channels = (struct fl_channels){.a = call->a,
                                                            .b = call->b,
                                                            .d = call->d,
                                                            .first = call->first,
                                                            .cross = call->cross,
                                                            .offset = call->offset,
                                                            .first_centre = call->first_centre,
                                                            .cross_centre = call->cross_centre};
}

/* Factors of an optimiser's operation: about those of a step; every fifth shape any size. */
static void make_factors(struct call *call, int index, uint64_t *seed) {
    for (int i = 0; i < FL_FACTORS; i++) {
        call->factors[i] =
            uniform(seed) * (i % 2 ? 0.1 : 1.1) * (check_random(seed) & 1 && call->op == FL_OP_COMBINE ? -1 : 1);
        if (index % 5 == 4)
            call->factors[i] = ldexp(call->factors[i], (int)(check_random(seed) % 60) - 30);
    }
    if (call->op == FL_OP_ADD_RATIO) {
        call->factors[1] = -call->factors[1];
        call->factors[3] *= 1e-6;
        if (index % 6 == 2)
            call->factors[3] = 0; /* quotients by zero */
    }
    call->args.p.factored.factors = call->factors;
}

/* Bias and residual with exponents about where they matter to the sums, or extreme ones anywhere near. */
static void make_epilogue(struct call *call, enum style style, uint64_t *seed) {
    const struct fl_format *f = call->format;
    const struct shape *s = &call->shape;
    struct fl_view *addend[2];
    addends_of(&call->args, addend);
    for (int i = 0; i < 2; i++) {
        const int64_t count = i ? s->residual : s->bias;
        struct block *b = i ? &call->residual : &call->bias;
        int e = fl_exponent(&call->in[0].view) + fl_exponent(&call->in[1].view);
        e += style == EXTREME ? (int)(check_random(seed) % 120) - 60 : (int)(check_random(seed) % 32) - 30;
        e = e < f->e_min ? f->e_min : e > f->e_max ? f->e_max : e;
        if (!count)
            continue;
        *b = block_new(f, count, f->arithmetic == FL_ARITHMETIC_SHARED ? e : 0);
        fill(f, b, style, seed);
        *addend[i] = b->view;
    }
    if (fl_is_product(call->op))
        call->args.p.product.epilogue.relu = s->relu;
}

/* The first rounding that a format offered besides nearest, which golden.txt records; nearest if there is none. */
static inline tensor_rounding other_rounding(const struct fl_format *f) {
    return f->arithmetic == FL_ARITHMETIC_SHARED ? TENSOR_ROUND_STOCHASTIC
           : f->truncates                        ? TENSOR_ROUND_TRUNCATE
                                                 : TENSOR_ROUND_NEAREST;
}

/* The roundings that a format offers, from i = 0 on; false past the last. */
static inline bool rounding_at(const struct fl_format *f, int i, tensor_rounding *mode) {
    tensor_rounding all[3] = {TENSOR_ROUND_NEAREST};
    int count = 1;
    if (f->draws)
        all[count++] = TENSOR_ROUND_STOCHASTIC;
    if (f->truncates)
        all[count++] = TENSOR_ROUND_TRUNCATE;
    *mode = all[i < count ? i : 0];
    return i < count;
}

/* What the operation is told beside its operands; `drawn`: the scalar of those that have one. */
static void set_parameters(struct call *call, int index, float drawn) {
    const struct sizes *g = &call->shape.geo;
    union fl_parameters *p = &call->args.p;
    const float decay = 1e-4f;
    if (call->shape.drawn.function) {
        place_drawn(&call->shape.drawn, &call->args);
        return;
    }
    switch ((int)call->op) {
    case FL_OP_BIAS:
    case FL_OP_BIAS_RELU:
    case FL_OP_SUM_ROWS:
    case FL_OP_CONCAT:
        p->rows = (struct fl_row_sizes){g->m, g->n};
        return;
    case FL_OP_MATMUL:
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_TN:
    case FL_OP_MATMUL_BATCHED:
    case FL_OP_MATMUL_BATCHED_NT:
    case FL_OP_MATMUL_BATCHED_TN:
        p->product.matrices = (struct fl_matrices){.m = g->m, .n = g->n, .k = g->k, .batch = g->batch};
        return;
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
    case FL_OP_CONV2D_WEIGHT_GRAD:
        p->product.windows = windows_of(g);
        return;
    case FL_OP_MAXPOOL2D:
    case FL_OP_MAXPOOL2D_GRAD:
    case FL_OP_AVGPOOL_GLOBAL:
    case FL_OP_AVGPOOL_GLOBAL_GRAD:
    case FL_OP_AVGPOOL2D:
    case FL_OP_AVGPOOL2D_GRAD:
    case FL_OP_AVGPOOL_ADAPTIVE:
    case FL_OP_AVGPOOL_ADAPTIVE_GRAD:
    case FL_OP_SHORTCUT_A:
    case FL_OP_SHORTCUT_A_GRAD:
        p->pooling = pooling_of(g);
        return;
    case FL_OP_CHANNEL_SUMS:
    case FL_OP_CHANNEL_GRAD_SUMS:
    case FL_OP_CHANNEL_AFFINE:
    case FL_OP_CHANNEL_AFFINE_GRAD:
        p->batch_norm =
            (struct fl_batch_norm){.m = g->m, .n = g->n, .relu = call->op == FL_OP_CHANNEL_AFFINE && index % 2};
        return;
    case FL_OP_LAYERNORM:
    case FL_OP_RMSNORM:
    case FL_OP_LAYERNORM_GRAD:
    case FL_OP_RMSNORM_GRAD:
    case FL_OP_LAYERNORM_GAMMA_GRAD:
    case FL_OP_RMSNORM_GAMMA_GRAD:
    case FL_OP_GROUPNORM:
    case FL_OP_GROUPNORM_GRAD:
    case FL_OP_GROUPNORM_GAMMA_GRAD:
        p->norm = (struct fl_norm){
            .m = g->m, .n = g->n, .batch = g->batch, .groups = g->groups, .epsilon = index % 3 == 2 ? 0.5 : 1e-5};
        return;
    case FL_OP_LRN:
    case FL_OP_LRN_GRAD:
        p->lrn = (struct fl_lrn){.m = g->m,
                                 .n = g->n,
                                 .size = g->k,
                                 .alpha = fabsf(drawn),
                                 .beta = (float[]){0.75f, 0.5f, 1, 0.6f, 2}[index % 5],
                                 .k = index % 3 == 2 ? 0.5 : 2};
        return;
    case FL_OP_SOFTMAX:
    case FL_OP_SOFTMAX_GRAD:
    case FL_OP_LOG_SOFTMAX:
    case FL_OP_LOG_SOFTMAX_GRAD:
        p->softmax = (struct fl_softmax){.m = g->m, .n = g->n, .causal = g->k, .scale = drawn};
        return;
    case FL_OP_EMBEDDING:
    case FL_OP_EMBEDDING_GRAD:
        p->table = (struct fl_table){.rows = g->k, .columns = g->n, .count = g->m, .indices = call->indices};
        return;
    case FL_OP_PERMUTE:
        p->permutation = call->shape.strides;
        return;
    case FL_OP_SLICE:
        p->slice = (struct fl_slice){.rows = g->m, .columns = g->c, .first = g->k, .part = g->n};
        return;
    case FL_OP_SLICE_GRAD:
        p->slice = (struct fl_slice){.rows = g->m, .columns = g->n, .first = g->k, .part = g->c};
        return;
    case FL_OP_REDUCE_SUM:
    case FL_OP_REDUCE_MEAN:
    case FL_OP_REDUCE_MAX:
    case FL_OP_REDUCE_MIN:
    case FL_OP_REDUCE_L1:
    case FL_OP_REDUCE_L2:
    case FL_OP_REDUCE_SUM_GRAD:
    case FL_OP_REDUCE_MEAN_GRAD:
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_REDUCE_MIN_GRAD:
    case FL_OP_REDUCE_L1_GRAD:
    case FL_OP_REDUCE_L2_GRAD:
    case FL_OP_BROADCAST_ADD:
    case FL_OP_BROADCAST_MUL:
    case FL_OP_BROADCAST_MUL_GRAD:
    case FL_OP_WHERE:
    case FL_OP_WHERE_GRAD:
        p->axes = call->shape.axes;
        p->axes.marks = call->shape.marks ? call->marks : NULL;
        return;
    case FL_OP_LSTM_CELL:
    case FL_OP_LSTM_HIDDEN:
    case FL_OP_LSTM_CELL_GRAD:
    case FL_OP_LSTM_GATES_GRAD:
    case FL_OP_GRU_HIDDEN:
    case FL_OP_GRU_INPUT_GRAD:
    case FL_OP_GRU_GATES_GRAD:
    case FL_OP_GRU_STATE_GRAD:
        p->cell = (struct fl_cell){.rows = g->m, .units = g->n};
        return;
    case FL_OP_DROPOUT:
        p->dropout = (struct fl_dropout){.key = (uint64_t)g->k,
                                         .step = index * 1000.0,
                                         .p = (float[]){0.5f, 0.25f, 0, 0.1f, 0.9f}[index % 5],
                                         .scale = drawn};
        return;
    case FL_OP_SGD_MOMENTUM:
        p->sgd = (struct fl_sgd){.momentum = drawn, .weight_decay = decay};
        return;
    case FL_OP_SGD_UPDATE:
        p->sgd = (struct fl_sgd){.rate = drawn};
        return;
    case FL_OP_MAX_ABS:
    case FL_OP_CLIP_WEIGHT:
    case FL_OP_COMBINE:
    case FL_OP_ROOT_MEAN:
    case FL_OP_ADD_RATIO:
        return;
    default:
        p->map = (struct fl_map){drawn, decay};
    }
}

/* The call of shape `index` with operands of that style; false past the last shape. `probe`, a kernel of the operation,
 * measures which exponent fits the results. End with call_free. */
static inline bool call_make(struct call *call, const struct fl_format *f, enum fl_op op, int index, enum style style,
                             tensor_rounding mode, uint64_t seed0, fl_kernel probe) {
    uint64_t seed = seed0;
    *call = (struct call){.format = f, .op = op};
    if (!shape_of(op, index, &call->shape))
        return false;
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    int exponents[3] = {0};
    for (int i = 0; i < 3 && shared; i++)
        exponents[i] = f->e_min + (f->e_max - f->e_min) / 3 + (int)(check_random(&seed) % (style == EXTREME ? 20 : 7));
    if (shared && op == FL_OP_SGD_UPDATE)
        exponents[1] = exponents[0] + 3;
    for (int i = 0; i < 3; i++) {
        if (!call->shape.in[i])
            continue;
        call->in[i] = block_new(f, call->shape.in[i], exponents[i]);
        fill(f, &call->in[i], style, &seed);
        if (call->shape.wide && counts_wide(op, i, index))
            add_wide(f, &call->in[i], &seed);
        call->args.in[i] = call->in[i].view;
    }
    call->args.op = op;
    call->args.format = f;
    const float drawn = (float)(uniform(&seed) * 1.5 - 0.5);
    if (call->shape.marks) {
        uint64_t own = seed0 + 78;
        for (int64_t i = 0; i < call->shape.marks; i++)
            call->marks[i] = check_random(&own) & 1 ? (uint8_t)(1 + i % 255) : 0;
    }
    if (op == FL_OP_EMBEDDING || op == FL_OP_EMBEDDING_GRAD) {
        uint64_t own = seed0 + 77;
        for (int64_t i = 0; i < call->shape.geo.m; i++)
            call->indices[i] = (int32_t)(check_random(&own) % (uint64_t)call->shape.geo.k);
    }
    set_parameters(call, index, drawn);
    if (op == FL_OP_CLIP_WEIGHT) /* a limit: 0, a little, about half of the values, all of them */
        call->args.p.clip_weight.limit =
            index % 7 == 6 ? 0 : fabsf(drawn) * (shared ? ldexpf(32767, -exponents[0]) : 1);
    call->args.rounding = (struct fl_rounding){mode, 0x1234567 + seed0, (uint64_t)index};
    if (op == FL_OP_CHANNEL_AFFINE || op == FL_OP_CHANNEL_AFFINE_GRAD)
        make_coefficients(call, &seed);
    if (op == FL_OP_COMBINE || op == FL_OP_ROOT_MEAN || op == FL_OP_ADD_RATIO)
        make_factors(call, index, &seed);
    make_epilogue(call, style, &seed);
    if (shared) {
        /* an exponent that fits the results, moved by a few steps either way: saturation and flush occur too */
        struct result measured;
        call->e_out = exponents[0];
        run(call, probe, false, true, &measured);
        const double maximum = measured.stats.maximum;
        result_free(&measured);
        if (maximum > 0 && op != FL_OP_CHANNEL_AFFINE && op != FL_OP_CHANNEL_AFFINE_GRAD)
            call->e_out = 14 - ilogb(maximum) + (index % 4 == 3 ? 2 : index % 4 == 2 ? -12 : 0);
        call->e_out = call->e_out < f->e_min ? f->e_min : call->e_out > f->e_max ? f->e_max : call->e_out;
    }
    return true;
}

static void call_free(struct call *call) {
    for (int i = 0; i < 3; i++)
        block_free(&call->in[i]);
    block_free(&call->bias);
    block_free(&call->residual);
}

#endif
