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

enum { FL_ROWS_CHUNK = 512 }; /* rows of one binary32 partial sum (folds of float formats); part of the definition */
enum { FL_WINDOW_PLACES = 1 << 15 }; /* of a pooling that kernels other than the reference compute */
enum { FL_WIDE_LIMIT = 0x7fff7fff }; /* largest |mantissa| of a wide part: its 16-bit view is then at most 32767 */
enum { FL_K_CHUNK = 512 }; /* k of one fused multiply-add chain (matmul of float formats); part of the definition */

enum { FL_FACTORS = 4 }; /* of a call, at most */

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

/* A task of a kernel. The objects of operations (core/ops/operation.h) say what stands where: out and in[] are its
 * first operands, the others are named members of its parameters. An operand without data is not given. .wide is set
 * where an operand counts as its wide part (FL_WIDE), and in the out of an operation whose first operand is its output.
 */
struct fl_args {
    enum fl_op op;
    int workers;                    /* threads that the need was asked for and the kernel may use; 0: fl_threads() */
    const struct fl_format *format; /* must be set: the reference kernels serve every format through its codec */
    struct fl_view out, in[3];
    union fl_parameters p;
    struct fl_late late;
    struct fl_rounding rounding;
    struct fl_stats *stats;
    /* Memory of the call: at least what the kernel's need says, 64-byte aligned, contents undefined. Kernels take it by
     * fl_workspace. */
    void *workspace;
    size_t workspace_bytes;
};

#ifdef __cplusplus
static_assert(sizeof(struct fl_args) <= 512, "a call of the queue copies them");
#else
_Static_assert(sizeof(struct fl_args) <= 512, "a call of the queue copies them");

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
/* Bytes of workspace that the kernel takes for a call: from operation, geometry, counts and workers alone; operands may
 * be without memory, exponents without an address. */
typedef size_t (*fl_need)(const struct fl_args *args);

/* The workspace of a kernel's call, `bytes` of it; from scratch slot 0 of this thread where the caller brought none or
 * too little. NULL on failure, with the message set. */
void *fl_workspace(const struct fl_args *args, size_t bytes);

/* A kernel that serves every format through its codec. */
struct fl_any_kernels {
    fl_kernel kernel; /* NULL: none */
    fl_need need;     /* NULL: no workspace */
};

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
