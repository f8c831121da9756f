/* kernel.h - the signature of all kernels, and the kernel sets in the table format x operation x backend.
 *
 * A kernel is a pure function: struct fl_args gives it inputs, geometry and the addresses of exponents; it fills the
 * output and the statistics and touches nothing else. Its workspace, of the size that its need states, comes with the
 * call (fl_workspace); if the caller gives none, the kernel takes it from the thread and may return TENSOR_E_MEMORY
 * before it writes anything. It cannot fail in any other way, because every check was made before. Kernels run on
 * several threads through parallel.h and give the same bits for any number of threads.
 *
 * out.data == NULL means measure only: the kernel stores nothing, and stats->maximum must be exact. */
#ifndef FL_KERNEL_H
#define FL_KERNEL_H

#include "core/table/parameters.h"
#include <stddef.h>

FL_BOTH int fl_exponent(const struct fl_view *view) {
    return view->e ? *view->e : 0;
}

struct fl_rounding {
    tensor_rounding mode;
    uint64_t key;   /* stochastic: Philox key (seed) ... */
    uint64_t write; /* ... and counter (number of this write); the element's index is the rest */
    int64_t first;  /* index of the first element of the output that the kernel sees: of a part of a tensor */
};

enum {
    FL_ROWS_CHUNK = 512
}; /* rows of one binary32 partial sum (reductions in float formats); part of the definition */
enum { FL_WINDOW_PLACES = 1 << 15 }; /* at most, of a window in kernels of pooling other than the reference */
enum { FL_WIDE_LIMIT = 0x7fff7fff }; /* largest |mantissa| of a wide part: its 16-bit view is then at most 32767 */
enum { FL_K_CHUNK = 512 }; /* k of one fused multiply-add chain (matmul of float formats); part of the definition */

enum { FL_FACTORS = 4 }; /* of a task, at most */

/* A scalar of a task that lies in a tensor of one number and is read when the task runs, so that a recorded task can be
 * replayed with another value. The device checks that it is finite, and 0 or more where it is a bound to both sides,
 * and stores it in the parameter at `member` bytes from the beginning of struct fl_args. */
enum fl_late_kind {
    FL_LATE_NONE,
    FL_LATE_FLOAT,
    FL_LATE_DOUBLE,
    FL_LATE_FACTORS /* `count` doubles, which kernels read in place; for shared-exponent formats each must be finite as
                       binary32 */
};
struct fl_late {
    const void *at;
    const char *what; /* operation and scalar, in messages */
    uint16_t member;
    uint8_t kind, count;
    bool bound;
};

/* Memory that lasts over the tasks of a sequence, whose products have one second operand: what a kernel has made of it
 * for the next product. */
struct fl_kept {
    void *memory;
    size_t bytes;
    const void *by; /* whose contents these are; NULL: there are none yet */
};

/* The arguments of a kernel. The objects of operations (core/ops/operation.h) define the layout: out and in[] are the
 * first operands, the others are named members of the parameters. An operand without data is not given. .wide is set
 * where the wide part of an operand is used (FL_WIDE), and in `out` of an operation whose first operand is its output.
 */
struct fl_args {
    enum fl_op op;
    int workers;                    /* threads that the kernel may use and its workspace is for; 0: fl_threads() */
    const struct fl_format *format; /* must be set: the reference kernels serve every format through its codec */
    struct fl_view out, in[3];
    union fl_parameters p;
    struct fl_late late;
    struct fl_rounding rounding;
    bool again; /* the call before on this workspace was the same but for out.data and the exponent of the output */
    struct fl_stats *stats;
    /* At least the bytes that the fl_need of the kernel returns, 64-byte aligned, contents undefined. Kernels take it
     * by fl_workspace. */
    void *workspace;
    size_t workspace_bytes;
    struct fl_kept *kept; /* NULL: none */
};

#ifdef __cplusplus
static_assert(sizeof(struct fl_args) <= 512, "tasks of a queue copy them");
#else
_Static_assert(sizeof(struct fl_args) <= 512, "tasks of a queue copy them");

#endif

/* Whether p.product holds the parameters. */
FL_BOTH bool fl_is_product(enum fl_op op) {
    switch ((int)op) {
    case FL_OP_MATMUL:
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_TN:
    case FL_OP_MATMUL_BATCHED:
    case FL_OP_MATMUL_BATCHED_NT:
    case FL_OP_MATMUL_BATCHED_TN:
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return true;
    default:
        return false;
    }
}

typedef tensor_status (*fl_kernel)(const struct fl_args *args);
/* Bytes of workspace that a kernel takes, computed from operation, geometry, counts and workers alone: operands need no
 * memory yet, and exponents no address. */
typedef size_t (*fl_need)(const struct fl_args *args);

/* `bytes` of workspace: those in args, or scratch slot 0 of this thread where args has none or too little. NULL on
 * failure, with the message set. */
void *fl_workspace(const struct fl_args *args, size_t bytes);

/* A kernel that serves every format through its codec. */
struct fl_any_kernels {
    fl_kernel kernel; /* NULL: none */
    fl_need need;     /* NULL: no workspace */
};

/* Slowest first. AVX2_VNNI: AVX2 and AVX-VNNI; AVX512BW: AVX-512 F, BW, VL, DQ; AVX512: those and VNNI; AVX512_AMX:
 * those, VBMI and tiles. Backends below FL_BACKENDS have the bits of the reference, and a cap may name them;
 * AVX512_FAST, with BF16 too, and AVX512_AMX_FAST, with tiles of BF16, serve only class fast. */
enum fl_backend {
    FL_REF,
    FL_PORTABLE,
    FL_AVX2,
    FL_AVX2_VNNI,
    FL_AVX512BW,
    FL_AVX512,
    FL_AVX512_AMX,
    FL_BACKENDS,
    FL_AVX512_FAST = FL_BACKENDS,
    FL_AVX512_AMX_FAST,
    FL_KERNEL_SETS
};

/* Of a table by operation: one function for all products, of which it asks the arguments. */
#define FL_EACH_PRODUCT(function)                                                                                      \
    [FL_OP_MATMUL] = function, [FL_OP_MATMUL_NT] = function, [FL_OP_MATMUL_TN] = function, [FL_OP_CONV2D] = function,  \
    [FL_OP_CONV2D_INPUT_GRAD] = function, [FL_OP_CONV2D_WEIGHT_GRAD] = function

/* A kernel set: the kernels of a format for one backend. Where one is NULL, that of the next slower backend serves. */
struct fl_kernels {
    /* Conversions of n elements from index `first` of the view, by the calling thread; the codec (format.h) defines
     * them and serves where they are NULL. from_floats: rounded once, to nearest or truncated; out->data NULL measures
     * only. to_floats: exact; returns the largest magnitude as the word of a binary32; stream: writes around the
     * caches. from_doubles: to nearest; false where one of them is not finite: nothing is counted then, and the codec
     * writes them again. */
    void (*from_floats)(const struct fl_format *format, const struct fl_view *out, int64_t first, int64_t n,
                        const float *x, const struct fl_rounding *rounding, struct fl_stats *stats);
    bool (*from_doubles)(const struct fl_view *out, int64_t first, int64_t n, const double *x, struct fl_stats *stats);
    uint32_t (*to_floats)(const struct fl_format *format, const struct fl_view *in, int64_t first, int64_t n, float *x,
                          bool stream);
    fl_kernel op[FL_OP_LIMIT];
    fl_need need[FL_OP_LIMIT]; /* NULL: no workspace */
    /* Matmul of one matrix and convolution with the products of this kernel set and a result, or an addend, of another
     * format (mixed.h); NULL: the reference kernel computes them. */
    fl_kernel mixed;
    fl_need mixed_need;
    /* The same, with one or several matrices and float operands, in a class accumulate=GPU (accumulator.h). */
    fl_kernel accumulate;
    fl_need accumulate_need;
};

#endif
