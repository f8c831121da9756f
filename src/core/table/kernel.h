/* kernel.h - the one signature of all kernels, and the rows of the table format x op x backend.
 *
 * A kernel is a pure function: inputs, geometry and the addresses of exponents come in struct fl_args; it fills the
 * output and the statistics and touches nothing else. Scratch comes with the call, as its need says (fl_workspace);
 * where a caller brings none, the kernel takes it from the thread and may return TENSOR_E_MEMORY before it writes
 * anything. It has no other way to fail, every check was made before. Kernels thread through parallel.h and give the
 * same bits for any number of threads.
 *
 * out.data == NULL means measure only: nothing is stored, stats->maximum must be exact. */
#ifndef FL_KERNEL_H
#define FL_KERNEL_H

#include "core/table/parameters.h"

FL_BOTH int fl_exponent(const struct fl_view *view) {
    return view->e ? *view->e : 0;
}

struct fl_rounding {
    tensor_rounding mode;
    uint64_t key;   /* stochastic: Philox key (seed) ... */
    uint64_t write; /* ... and counter (number of this write); the element's index is the rest */
    int64_t first;  /* index of the first element of the output that the kernel sees: of a part of a tensor */
};

/* Shapes of operations that are more than element by element; unused members are zero. */
struct fl_geometry {
    /* matmul: out [m,n], inner size k, by the operation's own transposition.
     * bias, sum_rows, channel_*: m rows of n channels. */
    int64_t m, n, k;
    /* images: x or dx [batch, h, w, c]; y or dy [batch, p, q, filters]; filter [filters, r, s, c / groups]. Pooling: r
     * x s is the window, filters = c. shortcut_a: filters >= c. avgpool: p = q = 1. */
    int64_t batch, h, w, c, p, q, filters, r, s;
    /* Of windows, down and across. padding: above and to the left; what lies below and to the right follows from p and
     * q. dilation, and the groups of a convolution: at least 1. shortcut_a has a stride alone. */
    int stride[2], padding[2], dilation[2], groups;
};

enum { FL_ROWS_CHUNK = 512 }; /* rows of one binary32 partial sum (folds of float formats); part of the definition */
enum { FL_WINDOW_PLACES = 1 << 15 }; /* of a pooling that kernels other than the reference compute */
enum { FL_WIDE_LIMIT = 0x7fff7fff }; /* largest |mantissa| of a wide part: its 16-bit view is then at most 32767 */
enum { FL_K_CHUNK = 512 }; /* k of one fused multiply-add chain (matmul of float formats); part of the definition */

/* Numbers that operations take and give beside tensors of their format; every address is of the device. */
struct fl_numbers {
    double *f[4];
    int32_t *i[3];
    double real;
    const char *what;  /* the operation's name in messages */
    const uint8_t *u8; /* marks of where */
};

enum { FL_FACTORS = 4 }; /* of a call, at most */

/* Numbers of a call that stand in tensors of one number, to be read when the call runs: a recorded call can then be run
 * again with others. One address of alpha and real at most is set; what runs the call puts its number into alpha or
 * real, where kernels look, after checking that it is finite, and of a bound to both sides that it is 0 or more. */
struct fl_scalar {
    const float *alpha; /* NULL: args.alpha counts */
    const double *real; /* NULL: args.numbers.real counts */
    const char *what;   /* operation and scalar in messages */
    bool bound;         /* what is below 0 is refused too */
    /* Beside those two: in shared-exponent formats each of these must be finite as binary32. Kernels read them in
     * numbers.f[0]. */
    const double *factors; /* NULL: none */
    int factor_count;
};

/* The output of a permutation: its shape, and how far apart neighbours of a dimension lie in the input. */
struct fl_strides {
    int32_t ndim, unused;
    int64_t offset; /* the element of the input at index 0 of all dimensions */
    int64_t shape[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS];
};

/* Elements of up to three operands in the order of an output, and of what each of its elements is a sum of: the last
 * `inner` dimensions, whose elements follow each other in row-major order. A stride of 0: one element for all. */
struct fl_walk {
    int32_t ndim, inner;
    int64_t outer, terms; /* elements of the output; elements of each of its sums */
    int64_t shape[TENSOR_MAX_DIMS], stride[3][TENSOR_MAX_DIMS], offset[3];
};

/* A number of a call that stands in a tensor of one number, to be read when the call runs: a recorded call can then be
 * run again with another. What runs the call puts it into the parameter at `member` bytes from the beginning of struct
 * fl_args, after checking that it is finite, and, where it is a bound to both sides, that it is 0 or more. */
enum fl_late_kind {
    FL_LATE_NONE,
    FL_LATE_FLOAT,
    FL_LATE_DOUBLE,
    FL_LATE_FACTORS /* count doubles, which kernels read where they stand: shared-exponent formats want each finite as
                       binary32 */
};
struct fl_late {
    const void *at;
    const char *what; /* operation and scalar, in messages */
    uint16_t member;
    uint8_t kind, count;
    bool bound;
};

struct fl_args {
    enum fl_op op;
    union fl_parameters p;
    struct fl_late late;
    const struct fl_format *format; /* must be set: the reference kernels serve every format through its codec */
    struct fl_formats formats;      /* mixed.h */
    struct fl_view out;
    struct fl_view in[3];
    /* Operands by operation (out <- in[0], in[1], in[2]):
     *   maps                   y <- a or x, b
     *   bias, bias_relu        y <- x, b
     *   matmul*                y <- a, b       matmul_batched*: batch of them
     *   conv2d                 y <- x, w        input_grad  dx <- dy, w        weight_grad  dw <- dy, x
     *   maxpool2d              y <- x           grad        dx <- dy, x
     *   avgpool, shortcut      y <- x           grad        dx <- dy
     *   sum_rows               y <- x           max_abs     stats only <- x
     *   channel_sums           sums <- x        channel_grad_sums  sums <- dy, x, y (mask: dy counts where y > 0; data
     *                                                              NULL: no mask)
     *   channel_affine         y <- x, r (data NULL: nothing is added)
     *   channel_affine_grad    dx <- dy, x, y (mask as above)
     *   sgd_momentum           v <- v, g, w     sgd_update  w <- w, v   (out has the new exponent, in[0] the old; same
     *                                                              memory)
     *   channel_moments        f[0] mean, f[1] variance <- sums, in[0] (its exponent)
     *   affine_coefficients    channels <- x, r (exponents; r without data: none), vectors gamma, beta, f[0] mean,
     *                                      f[1] variance, real epsilon
     *   affine_grad_coefficients  channels, f[2] of gamma, f[3] of beta (gradients) <- sums, dy, x (exponents), gamma,
     *                                      f[0] mean, f[1] variance, real epsilon
     *   running_statistics     f[0], f[1] (mean, variance) <- themselves, f[2], f[3] (those of a batch of m rows), real
     *                                      momentum
     *   softmax_cross_entropy  f[0] gradient of x (NULL: not wanted), f[1] loss, i[0] predicted, i[1] how many are
     *                                      right (NULL: not wanted) <- x, i[2] labels, real gradient scale
     *   cross_entropy_with, cross_entropy_targets
     *                          f[0] gradient of x (NULL: not wanted), f[1] loss, i[0] predicted, i[1] how many are
     *                                      right (NULL: not wanted) <- x, i[2] labels or targets (doubles f[2], floats
     *                                      vectors[0], else in[1]), f[3] what classes count (NULL: 1), real gradient
     *                                      scale, alpha smoothing, k the label that counts nothing (FL_NO_LABEL: none)
     *   squared_error, huber   f[0], f[1] <- x, targets, real gradient scale, alpha delta
     *   wasserstein            f[0], f[1] <- x, i[2] labels, real gradient scale, k as above; rows m of n
     *   clip_weight            w <- w, alpha limit
     *   combine                y <- p, q, w (data NULL: none), f[0] three factors
     *   root_mean              r <- r, g, f[0] three factors
     *   add_ratio              y <- w, m, r, f[0] four factors
     *   sum_squares            f[0] the sum <- x
     *   optimiser_step         f[0] the numbers of a step <- themselves, f[1] k sums of squares (NULL: none), f[2] the
     *                                      scale of the loss (NULL: 1), alpha the rate
     *   trust_rate             out one binary32 <- f[0] two sums of squares, alpha the rate
     *   layernorm, rmsnorm     y <- x, gamma, beta (data NULL: none), rows m of n, real epsilon
     *   *norm_grad             dx <- dy, x, gamma
     *   *norm_gamma_grad       dgamma <- dy, x
     *   softmax, log_softmax   y <- x, rows m of n, alpha scale; k: rows of a causal matrix, 0: no mask
     *   *softmax_grad          dx <- dy, y
     *   check_indices          nothing <- i[2]: m indices, each to be 0 ... k - 1
     *   embedding              y <- table [k, n], i[2]: m indices
     *   embedding_grad         dtable <- dy [m, n], i[2]
     *   permute                y <- x, strides
     *   slice, slice_grad      y <- x (geometry: copy_rules.h)
     *   concat                 y <- a, b, c (data NULL: fewer), m rows of n
     *   lstm_*, gru_*          m rows of n units, a gate has n columns of a row (cells.c):
     *   lstm_cell              c <- gates, c before          lstm_hidden  h <- gates, c
     *   lstm_cell_grad         dc <- dh, gates, c, epilogue: bias gates after, residual dc after (data NULL: none)
     *   lstm_gates_grad        dgates <- dh, dc, gates, epilogue: bias c before, residual c
     *   gru_hidden             h <- gates of x, gates of h, h before
     *   gru_input_grad, gru_gates_grad  gradient of gates <- dh, gates of x, gates of h, epilogue: residual h before
     *   gru_state_grad         ds <- dh, gates of x, gates of h, epilogue: residual dy (data NULL: none)
     *   avgpool2d, _adaptive   y <- x           grad        dx <- dy     (geometry: pool_rules.h; k: padding counts; of
     *                                              the gradient m, n: what all windows of a direction divide)
     *   lrn                    y <- x           grad        dx <- dy, x  m pixels of n channels, k: size, alpha, beta,
     *                                              real k
     *   groupnorm              y <- x, gamma, beta (data NULL: none)     batch images of m pixels of n channels in
     *                                              groups, real epsilon
     *   groupnorm_grad         dx <- dy, x, gamma                        groupnorm_gamma_grad  dgamma <- dy, x
     *   dropout                y <- x           alpha: of what is kept, beta p, k the key, real the step
     *   reduce_*               y <- x, groups; k: how many each sum has
     *   reduce_*_grad          dx <- dy, x (not of sum and mean), walk over dx: of in[0], in[1], and in place of a
     *                                      third operand the number of a term within its group; groups: as of reduce_*
     *   argmax                 i[0] <- x, groups
     *   broadcast_add, _mul    y <- a, b, walk
     *   broadcast_mul_grad     da <- dy, b, groups
     *   where                  y <- a, b, walk, whose third operand are the marks u8
     *   where_grad             da <- dy, walk likewise; k: the mark that counts
     * .wide is set in w, in the first operand of clip_weight, combine, root_mean and add_ratio, in m and r of
     * add_ratio, and in the out of an operation whose first operand is its output: v, g, q and x count as stored. */
    struct fl_geometry geo;
    struct fl_strides strides;
    struct fl_walk walk, groups;
    float alpha, beta; /* alpha of *_SCALAR maps; momentum, weight decay; rate */
    struct fl_scalar scalar;
    bool relu; /* CHANNEL_AFFINE */
    struct fl_epilogue epilogue;
    struct fl_channels channels;
    struct fl_channel_sums sums;
    struct fl_view vectors[2]; /* gamma, beta */
    struct fl_numbers numbers;
    struct fl_rounding rounding;
    struct fl_stats *stats;
    /* Memory of the call: at least what the kernel's need says, 64-byte aligned, contents undefined. Kernels take it by
     * fl_workspace. workers: how many threads the need was asked for and the kernel may use; 0: fl_threads(). */
    void *workspace;
    size_t workspace_bytes;
    int workers;
};

typedef tensor_status (*fl_kernel)(const struct fl_args *args);
/* Bytes of workspace that the kernel takes for a call: from operation, geometry, counts and workers alone; operands may
 * be without memory, exponents without an address. */
typedef size_t (*fl_need)(const struct fl_args *args);

/* Slowest first. AVX512BW: AVX-512 F, BW, VL, DQ; AVX512: those and VNNI; AVX512_AMX: those, VBMI and tiles. Rows below
 * FL_BACKENDS have the bits of the reference and are what a cap may name; AVX512_FAST, with BF16 too, and
 * AVX512_AMX_FAST, with tiles of BF16, serve class fast alone. */
enum fl_backend {
    FL_REF,
    FL_PORTABLE,
    FL_AVX2,
    FL_AVX512BW,
    FL_AVX512,
    FL_AVX512_AMX,
    FL_BACKENDS,
    FL_AVX512_FAST = FL_BACKENDS,
    FL_AVX512_AMX_FAST,
    FL_ROWS
};

/* One row of the table: what a backend has for a format. A NULL entry falls through to the row below it. */
struct fl_kernels {
    /* Conversions of n elements from index `first` of the view, by the calling thread; the codec (format.h) defines
     * them and serves where they are NULL. from_floats: rounded once, to nearest or truncated; out->data NULL measures
     * only. to_floats: exact; returns the largest magnitude as the word of a binary32; stream: writes around the
     * caches. */
    void (*from_floats)(const struct fl_view *out, int64_t first, int64_t n, const float *x,
                        const struct fl_rounding *rounding, struct fl_stats *stats);
    uint32_t (*to_floats)(const struct fl_view *in, int64_t first, int64_t n, float *x, bool stream);
    fl_kernel op[FL_OP_LIMIT];
    fl_need need[FL_OP_LIMIT]; /* NULL: no workspace */
    /* Matmul of one matrix and convolution whose products are those of this row and whose result, or an addend, is of
     * another format (mixed.h); NULL: the reference kernel computes them. */
    fl_kernel mixed;
    fl_need mixed_need;
};

#endif
