/* parameters.h - the parameters of operations beside their first operands: one struct for each kind of operation, in
 * which each member has one meaning. struct fl_args holds one of them.
 *
 * Every address is valid on the device that runs the task. A view without data is an operand that is not given. */
#ifndef FL_PARAMETERS_H
#define FL_PARAMETERS_H

#include "core/arithmetic/coefficient.h"
#include "core/table/op.h"
#include "core/table/slot.h"

struct fl_format;

/* A tensor as a kernel sees it. */
struct fl_view {
    void *data;       /* elements; 64-byte aligned */
    void *wide;       /* used instead of the elements: int32_t mantissas at e + 16, or floats; NULL: none */
    const int32_t *e; /* the shared exponent; NULL in float formats */
    int64_t count;    /* elements */
};

/* --- elementwise operations --------------------------------------------------------------------------------------- */

struct fl_map {
    float alpha, beta; /* the scalars of the entry in ops.def */
};

/* --- rows: bias, bias_relu, sum_rows, concat ---------------------------------------------------------------------- */

/* In every struct below that begins with m and n they have this meaning, so that a kernel for operations with different
 * parameters may read them here. */
struct fl_row_sizes {
    int64_t m, n; /* m rows of n columns */
};

/* --- products: matmul*, conv2d* ----------------------------------------------------------------------------------- */

/* out [m,n], inner size k; matmul_batched*: the same for each of `batch` pairs. */
struct fl_matrices {
    int64_t m, n, k, batch;
};

/* Images: x or dx [batch, h, w, c]; y or dy [batch, p, q, filters]; filter [filters, r, s, c / groups]. Pooling: the
 * window is r x s, filters = c. Arrays of two: down, across. Padding is that above and to the left; that
 * below and to the right follows from p and q. Dilation, and the groups of a convolution, are at least 1. */
struct fl_windows {
    int64_t batch, h, w, c, p, q, filters, r, s;
    int stride[2], padding[2], dilation[2], groups;
};

/* Applied to the sums of a product before they are rounded, in this order. The residual may be the output. */
struct fl_epilogue {
    struct fl_view bias;     /* one element for each column: output i has bias[i % bias.count] */
    struct fl_view residual; /* one element for each output */
    bool relu;
};

/* Formats of the operands if they are not all that of the result; all are set, or all are NULL (mixed.h). */
struct fl_formats {
    const struct fl_format *in[2], *bias, *residual; /* of a missing addend: any */
};

struct fl_product {
    struct fl_matrices matrices; /* of a matmul; a convolution leaves them 0 */
    struct fl_windows windows;   /* of a convolution; a matmul leaves them 0 */
    struct fl_epilogue epilogue;
    struct fl_formats formats;
    tensor_class exactness; /* accumulate=GPU or operands=A,B, of kernels for it; fast, on a device */
    bool bytes;             /* both factors are of formats of at most 8 bits ... */
    bool by_hand;           /* ... but the caller may have written others into their memory */
};

/* --- images: maxpool2d*, avgpool*, shortcut_a* -------------------------------------------------------------------- */

/* avgpool_global has p = q = 1; shortcut_a has a stride and filters >= c. avgpool_adaptive* has no r, s and stride. */
struct fl_pooling {
    struct fl_windows windows;
    bool padding_counts;
    int64_t common[2]; /* avgpool2d_grad, avgpool_adaptive_grad: a common multiple of the extents of all windows, down
                          and across */
};

/* --- batch normalisation ------------------------------------------------------------------------------------------ */

/* Per-channel coefficients of channel_affine and channel_affine_grad.
 *
 * Float formats: y = fmaf(a, x, b), or with an image r to add fmaf(a, x, r + b); dx = fmaf(a, dy, fmaf(d, x, b)).
 *
 * Integer formats: first * (in[0] - first_centre) + cross * (in[1] - cross_centre) + offset, where in[] are mantissas
 * and the centres integers of at most 32767 in size: one exact sum, rounded once to the output's exponent. The
 * coefficients have exponents of their own, which do not depend on that of the output and are never clamped. */
struct fl_channels {
    float *a, *b, *d;
    struct fl_coefficient *first, *cross, *offset; /* cross, cross_centre: of in[1], if it has data */
    int32_t *first_centre, *cross_centre;
    int64_t *whole; /* of devices: what gpu_affine.h makes of a channel, FL_WHOLE numbers */
};
enum { FL_WHOLE = 4 };

/* Results of channel_sums (sum x, sum x^2) and channel_grad_sums (sum dy, sum dy x): one pair for each channel. Integer
 * formats: exact sums of mantissa products. Float formats: binary32 sums over chunks of FL_ROWS_CHUNK rows (first +
 * then fmaf for the product), chunks added in order in double. */
struct fl_channel_sums {
    int64_t *i[2];
    double *f[2];
};

struct fl_batch_norm {
    int64_t m, n; /* m rows of n channels */
    struct fl_channel_sums sums;
    struct fl_channels channels;
    struct fl_view gamma, beta;
    double *mean, *variance; /* of the batch: channel_moments writes them */
    double *dgamma, *dbeta;  /* affine_grad_coefficients */
    /* Of a part of a batch (core/ops/norms/part_norm.h): its sums in real units, which channel_moments writes; the sums
     * of the gradient over the whole batch of all_rows rows. NULL: the batch is whole. */
    double *parts;
    const double *all_dy, *all_about;
    int64_t all_rows;
    double epsilon;
    const char *name; /* of the operation, in messages */
    bool relu;        /* channel_affine */
};

struct fl_running {
    int64_t m, n; /* the batch had m rows of n channels */
    double *mean, *variance;
    const double *batch_mean, *batch_variance;
    double momentum;
};

/* --- other normalisations ----------------------------------------------------------------------------------------- */

/* layernorm*, rmsnorm*: m rows of n, batch and groups unused. groupnorm*: `batch` images of m pixels of n channels, in
 * `groups` groups. */
struct fl_norm {
    int64_t m, n, batch;
    int groups;
    double epsilon;
};

struct fl_lrn {
    int64_t m, n; /* m pixels of n channels */
    int64_t size;
    float alpha, beta;
    double k;
};

/* --- softmax and losses ------------------------------------------------------------------------------------------- */

/* softmax*, log_softmax*: m rows of n. */
struct fl_softmax {
    int64_t m, n;
    int64_t causal; /* rows of a causal matrix; 0: no mask */
    float scale;
};

/* softmax_cross_entropy, cross_entropy_*, squared_error, huber, wasserstein: m rows of n. A result that is NULL is not
 * wanted, an input that is NULL is not given. */
struct fl_loss {
    int64_t m, n;
    double *gradient, *loss;
    int32_t *predicted, *correct;
    const int32_t *labels;
    const double *targets_f64; /* targets are one of these three: doubles, floats, in[1] */
    struct fl_view targets_f32;
    const double *class_weights;
    int64_t ignored; /* rows with this label add nothing; FL_NO_LABEL: none */
    double gradient_scale;
    float smoothing, delta;
    const char *name; /* of the operation, in messages */
};

/* --- tables and copies -------------------------------------------------------------------------------------------- */

/* embedding*, check_indices: a table [rows, columns], count indices. */
struct fl_table {
    int64_t rows, columns, count;
    const int32_t *indices;
    const char *name; /* of the operation, in messages */
};

/* The output of a permutation: its shape, and the stride of each dimension in the input. */
struct fl_permutation {
    int64_t offset; /* the element of the input at index 0 of all dimensions */
    int64_t shape[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS];
    int ndim;
};

/* `rows` rows of `columns` elements; the slice is `part` elements of each, from `first` on. */
struct fl_slice {
    int64_t rows, columns, first, part;
};

/* --- dimensions: reduce_*, argmax, broadcast_*, where* ------------------------------------------------------------ */

/* Dimensions of a shape, of which those in the set `inner` (bit d: dimension d) are summed over, with strides and first
 * elements of up to three operands; strides of absent operands are 0. axes_rules.h makes walks of it.
 *     reduce_*, argmax            x, and the result (argmax: out is the indices, int32_t)
 *     reduce_*_grad               dx: the element of dy that each belongs to, its own in x, and which term of its group
 *                                 it is; inner: the dimensions that were summed over
 *     broadcast_*, where*         y: a, b, mask;   broadcast_mul_grad   dy: dy, b; inner: where a was repeated */
struct fl_axes {
    int64_t shape[TENSOR_MAX_DIMS], stride[3][TENSOR_MAX_DIMS], offset[3];
    int16_t ndim;
    uint8_t inner;
    bool marked;          /* where_grad: the gradient passes where the mark is this */
    const uint8_t *marks; /* where, where_grad */
};

/* --- recurrent networks: n sequences of `units` units, a gate has `units` columns of a row ------------------------ */

struct fl_cell {
    int64_t rows, units;
    struct fl_view gates_after, dc_after; /* lstm_cell_grad: of the step after; without data at the last */
    struct fl_view c_before, c;           /* lstm_gates_grad */
    struct fl_view h_before;              /* gru_input_grad, gru_gates_grad */
    struct fl_view dy;                    /* gru_state_grad; without data: none */
};

/* --- dropout ------------------------------------------------------------------------------------------------------ */

struct fl_dropout {
    uint64_t key;
    double step;
    float p, scale; /* elements that are not dropped are multiplied by scale */
};

/* --- optimisers --------------------------------------------------------------------------------------------------- */

struct fl_sgd {
    float momentum, weight_decay; /* sgd_momentum */
    float rate;                   /* sgd_update */
};
struct fl_clip_weight {
    float limit;
};
struct fl_factored { /* combine, root_mean, add_ratio */
    const double *factors;
};
struct fl_sum_squares {
    double *sum;
};
struct fl_optimiser_step {
    double *numbers;    /* of the step: read and written */
    const double *sums; /* sums of squares to clip by; NULL: no clipping */
    int64_t sums_count;
    const double *scale; /* of the loss; NULL: 1 */
    float rate;
};
struct fl_trust_rate {
    const double *sums; /* two sums of squares; out is one float */
    float rate;
};

union fl_parameters {
    struct fl_map map;
    struct fl_row_sizes rows;
    struct fl_product product;
    struct fl_pooling pooling;
    struct fl_batch_norm batch_norm;
    struct fl_running running;
    struct fl_norm norm;
    struct fl_lrn lrn;
    struct fl_softmax softmax;
    struct fl_loss loss;
    struct fl_table table;
    struct fl_permutation permutation;
    struct fl_slice slice;
    struct fl_axes axes;
    struct fl_cell cell;
    struct fl_dropout dropout;
    struct fl_sgd sgd;
    struct fl_clip_weight clip_weight;
    struct fl_factored factored;
    struct fl_sum_squares sum_squares;
    struct fl_optimiser_step optimiser_step;
    struct fl_trust_rate trust_rate;
};

#endif
