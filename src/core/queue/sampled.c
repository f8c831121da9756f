/* sampled.c - elements of a matmul or convolution computed again without rounding. Products of two elements are exact
 * in binary64, and so are their sums as pairs of doubles: of mantissas, whose products lie on one grid and whose sums
 * are below 2^61 units of it, to the last bit; of floats to 2^-100 of the largest sum on the way. */
#include "core/queue/sampled.h"
#include "core/arithmetic/philox.h"
#include "core/queue/queue.h"
#include "core/table/mixed.h"
#include "core/tensor/tensor_object.h"
#include <math.h>
#include <string.h>

static _Thread_local struct fl_sampling *asking;
static _Thread_local int turn;

void fl_sample_writes(struct fl_sampling *to, int whose) {
    asking = to;
    turn = whose;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

struct pair {
    double high, low;
    int64_t whole; /* sums of mantissas, below 2^61, begin here */
};

static inline void add(struct pair *sum, double x) {
    const double s = sum->high + x, part = s - sum->high; /* Knuth's two-sum: exact */
    sum->low += (sum->high - (s - part)) + (x - part);
    sum->high = s;
}

/* An operand; 16-bit elements with a shared exponent count as mantissas. */
struct operand {
    const struct fl_format *format;
    const struct fl_view *view;
    enum { MANTISSA, BINARY32, DECODED } kind;
};

static struct operand operand_of(const struct fl_format *format, const struct fl_view *view) {
    struct operand x = {.format = format, .view = view, .kind = DECODED};
    if (format->arithmetic == FL_ARITHMETIC_SHARED && format->bytes == 2)
        x.kind = MANTISSA;
    else if (format->id == FMT_FP32)
        x.kind = BINARY32;
    return x;
}

static double decoded(const struct operand *x, int64_t i) {
    double value = 0;
    x->format->decode(x->format, x->view, i, 1, &value);
    return value;
}

static double element(const struct operand *x, int64_t i) {
    return x->kind == MANTISSA   ? ((const int16_t *)x->view->data)[i]
           : x->kind == BINARY32 ? (double)((const float *)x->view->data)[i]
                                 : decoded(x, i);
}

/* Adds n products of elements: those at i, i + i_step, ... of a times those at j, j + j_step, ... of b. */
static void add_products(struct pair *sum, const struct operand *a, int64_t i, int64_t a_step, const struct operand *b,
                         int64_t j, int64_t b_step, int64_t n) {
    if (a->kind == MANTISSA && b->kind == MANTISSA) {
        const int16_t *p = (const int16_t *)a->view->data + i, *q = (const int16_t *)b->view->data + j;
        int64_t whole = 0;
        for (int64_t l = 0; l < n; l++)
            whole += (int32_t)p[l * a_step] * q[l * b_step];
        sum->whole += whole;
        return;
    }
    if (a->kind == BINARY32 && b->kind == BINARY32) {
        const float *p = (const float *)a->view->data + i, *q = (const float *)b->view->data + j;
        for (int64_t l = 0; l < n; l++)
            add(sum, (double)p[l * a_step] * q[l * b_step]);
        return;
    }
    for (int64_t l = 0; l < n; l++)
        add(sum, element(a, i + l * a_step) * element(b, j + l * b_step));
}

/* --- products of one element -------------------------------------------------------------------------------------- */

typedef void sum_fn(const struct fl_args *args, const struct operand *a, const struct operand *b, int64_t i,
                    struct pair *sum);

static void matmul(const struct fl_args *args, const struct operand *a, const struct operand *b, int64_t i,
                   struct pair *sum) {
    const struct fl_matrices *g = &args->p.product.matrices;
    const int64_t m = g->m, n = g->n, k = g->k, matrix = i / n / m, row = i / n % m, j = i % n;
    const bool tn = args->op == FL_OP_MATMUL_TN || args->op == FL_OP_MATMUL_BATCHED_TN,
               nt = args->op == FL_OP_MATMUL_NT || args->op == FL_OP_MATMUL_BATCHED_NT;
    add_products(sum, a, matrix * m * k + (tn ? row : row * k), tn ? m : 1, b, matrix * k * n + (nt ? j * k : j),
                 nt ? 1 : n, k);
}

/* The index of element (n, y, x, k) of images [h, w, c]; -1 outside the image. */
static int64_t place(int64_t h, int64_t w, int64_t c, int64_t n, int64_t y, int64_t x, int64_t k) {
    return y < 0 || y >= h || x < 0 || x >= w ? -1 : ((n * h + y) * w + x) * c + k;
}

/* The input pixel that output (p, q) sees through filter position (r, s). */
static int64_t input_place(const struct fl_windows *g, int64_t n, int64_t p, int64_t q, int64_t r, int64_t s,
                           int64_t c) {
    return place(g->h, g->w, g->c, n, p * g->stride[0] + r * g->dilation[0] - g->padding[0],
                 q * g->stride[1] + s * g->dilation[1] - g->padding[1], c);
}

static void forward(const struct fl_args *args, const struct operand *x, const struct operand *w, int64_t i,
                    struct pair *sum) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups, f = i % g->filters;
    const int64_t q = i / g->filters % g->q, p = i / g->filters / g->q % g->p, n = i / g->filters / g->q / g->p;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t from = input_place(g, n, p, q, r, s, f / per_group * depth);
            if (from >= 0)
                add_products(sum, x, from, 1, w, ((f * g->r + r) * g->s + s) * depth, 1, depth);
        }
}

static void input_gradient(const struct fl_args *args, const struct operand *dy, const struct operand *w, int64_t i,
                           struct pair *sum) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups, c = i % g->c;
    const int64_t x = i / g->c % g->w, y = i / g->c / g->w % g->h, n = i / g->c / g->w / g->h;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t down = y + g->padding[0] - r * g->dilation[0],
                          across = x + g->padding[1] - s * g->dilation[1];
            if (down < 0 || across < 0 || down % g->stride[0] || across % g->stride[1])
                continue;
            const int64_t first = c / depth * per_group,
                          from = place(g->p, g->q, g->filters, n, down / g->stride[0], across / g->stride[1], first);
            if (from >= 0)
                add_products(sum, dy, from, 1, w, ((first * g->r + r) * g->s + s) * depth + c % depth,
                             g->r * g->s * depth, per_group);
        }
}

static void weight_gradient(const struct fl_args *args, const struct operand *dy, const struct operand *x, int64_t i,
                            struct pair *sum) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t depth = g->c / g->groups, s = i / depth % g->s, r = i / depth / g->s % g->r,
                  f = i / depth / g->s / g->r, c = f / (g->filters / g->groups) * depth + i % depth;
    /* The columns whose pixel is on the image are consecutive. */
    int64_t q = 0, end = g->q;
    while (q < end && q * g->stride[1] + s * g->dilation[1] - g->padding[1] < 0)
        q++;
    while (end > q && (end - 1) * g->stride[1] + s * g->dilation[1] - g->padding[1] >= g->w)
        end--;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t p = 0; p < g->p; p++) {
            const int64_t from = q < end ? input_place(g, n, p, q, r, s, c) : -1;
            if (from >= 0)
                add_products(sum, dy, ((n * g->p + p) * g->q + q) * g->filters + f, g->filters, x, from,
                             g->stride[1] * g->c, end - q);
        }
}

/* The function that adds the products of an element, and their number; NULL if the operation is no such sum. */
static sum_fn *sum_of(const struct fl_args *args, int64_t *products) {
    const struct fl_windows *g = &args->p.product.windows;
    switch ((int)args->op) {
    case FL_OP_MATMUL:
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_TN:
    case FL_OP_MATMUL_BATCHED:
    case FL_OP_MATMUL_BATCHED_NT:
    case FL_OP_MATMUL_BATCHED_TN:
        *products = args->p.product.matrices.k;
        return matmul;
    case FL_OP_CONV2D:
        *products = g->r * g->s * (g->c / g->groups);
        return forward;
    case FL_OP_CONV2D_INPUT_GRAD:
        *products = g->r * g->s * (g->filters / g->groups);
        return input_gradient;
    case FL_OP_CONV2D_WEIGHT_GRAD:
        *products = g->batch * g->p * g->q;
        return weight_gradient;
    default:
        return NULL;
    }
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* Sum, bias, residual and ReLU of element i. */
static struct pair exact(const struct fl_args *args, sum_fn *sums, int64_t i) {
    const struct operand a = operand_of(fl_operand_format(args, 0), &args->in[0]),
                         b = operand_of(fl_operand_format(args, 1), &args->in[1]);
    const struct fl_epilogue *how = &args->p.product.epilogue;
    struct pair sum = {0, 0, 0};
    sums(args, &a, &b, i, &sum);
    if (sum.whole) {
        sum.high = (double)sum.whole;
        sum.low = (double)(sum.whole - (int64_t)sum.high);
    }
    const int e = (a.kind == MANTISSA ? fl_exponent(a.view) : 0) + (b.kind == MANTISSA ? fl_exponent(b.view) : 0);
    sum.high = ldexp(sum.high, -e);
    sum.low = ldexp(sum.low, -e);
    if (how->bias.data)
        add(&sum, decoded(&(struct operand){.format = fl_bias_format(args), .view = &how->bias}, i % how->bias.count));
    if (how->residual.data)
        add(&sum, decoded(&(struct operand){.format = fl_residual_format(args), .view = &how->residual}, i));
    if (how->relu && (sum.high == -INFINITY || sum.high + sum.low < 0)) /* the low part of an infinity is NaN */
        sum = (struct pair){0, 0, 0};
    return sum;
}

/* Element number `n` of `all`, drawn from the n-th of `all` equal shares of the elements. */
static int64_t drawn(int64_t n, int64_t all, int64_t count, uint64_t number) {
    const int64_t first = n * count / all, room = (n + 1) * count / all - first;
    return first + (int64_t)(fl_philox_draw(0, number, n) % (uint64_t)room);
}

/* slot: by which the tensor is known. */
static void sample(struct fl_sampling *sampling, const struct fl_call *call, const void *slot) {
    const struct fl_args *args = call->args;
    const struct fl_storage *out = &call->out;
    int64_t products = 0;
    for (int i = 0; i < FL_SAMPLED_KEPT; i++) /* forgets an earlier write of that slot */
        if (sampling->kept[i].slot == slot)
            sampling->kept[i].slot = NULL;
    sum_fn *sums = sum_of(args, &products);
    if (!sums || !out->count || args->in[0].data == out->data || args->in[1].data == out->data ||
        args->p.product.epilogue.residual.data == out->data) /* the write has replaced an operand */
        return;
    const int64_t most = products > FL_SAMPLED_PRODUCTS                     ? 1
                         : products * FL_SAMPLED_MOST > FL_SAMPLED_PRODUCTS ? FL_SAMPLED_PRODUCTS / products
                                                                            : FL_SAMPLED_MOST,
                  elements = out->count < most ? out->count : most;
    const struct fl_view stored = fl_stored_view(out);
    struct fl_sampled of = {elements, 0, NAN, NAN};
    double errors = 0, sizes = 0;
    int64_t finite = 0;
    for (int64_t n = 0; n < elements; n++) {
        const int64_t i = drawn(n, elements, out->count, sampling->number);
        const struct pair want = exact(args, sums, i);
        const double have = decoded(&(struct operand){.format = out->format, .view = &stored}, i),
                     error = (have - want.high) - want.low, size = want.high + want.low;
        if (!isfinite(size))
            continue;
        if (!isfinite(have)) {
            of.infinite++;
            continue;
        }
        errors += error * error;
        sizes += size * size;
        finite++;
    }
    if (finite) {
        of.error = sqrt(errors / (double)finite);
        of.size = sqrt(sizes / (double)finite);
    }
    const int at = sampling->next++ % FL_SAMPLED_KEPT;
    sampling->next %= FL_SAMPLED_KEPT;
    sampling->kept[at].slot = slot;
    sampling->kept[at].writes = out->slot->total.writes;
    sampling->kept[at].number = sampling->number;
    sampling->kept[at].of = of;
}

bool fl_is_sampled(void) {
    const struct fl_sampling *s = asking;
    while (s && s->turn != turn)
        s = s->beside;
    return s != NULL;
}

void fl_sample_call(const struct fl_call *call, const void *slot) {
    for (struct fl_sampling *s = asking; s; s = s->beside)
        if (s->turn == turn)
            sample(s, call, slot);
}
