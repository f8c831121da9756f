/* format.h - what a format is: its identity, its codec, its kernel sets.
 *
 * A format folder has a format.def with one line a format,
 *     FL_FORMAT(id, FMT_CONSTANT, symbol, "command-line name")
 * and defines `const struct fl_format fl_format_<symbol>`. The build collects the folders; nothing else names them.
 * Files ending in _avx2.c, _avx2_vnni.c, _avx512bw.c, _avx512.c, _avx512_amx.c, _avx512_fast.c, _avx512_amx_fast.c are
 * compiled with those instructions (and only where the compiler targets x86); they are named in the format through
 * FL_SET_AVX2, FL_SET_AVX2_VNNI, FL_SET_AVX512 (both of AVX-512), FL_SET_AVX512_AMX, FL_SET_AVX512_FAST and
 * FL_SET_AVX512_AMX_FAST. */
#ifndef FL_FORMAT_H
#define FL_FORMAT_H

#ifndef __cplusplus
#include "core/arithmetic/element.h"
#endif
#include "core/table/accumulator.h"
#include "core/table/kernel.h"

/* How results are accumulated and rounded; the reference kernels follow it. */
enum fl_arithmetic {
    FL_ARITHMETIC_FLOAT,  /* values binary32 or narrower; binary32 accumulation; result rounded to binary32, then stored
                           */
    FL_ARITHMETIC_SHARED, /* integer mantissas under one exponent; exact accumulation; one rounding at the exponent */
    FL_ARITHMETIC_NUMBERS /* numbers beside the formats: loss, means, labels; loaded, stored, copied, no operands */
};

struct fl_format {
    tensor_format id;
    const char *name;
    const char *summary;
    enum fl_arithmetic arithmetic;
    int bytes;                    /* of one element */
    int wide_bytes;               /* of one element of a wide part, for elements of 16 bits; 0: the format has none */
    enum fl_operand_kind operand; /* what its elements are to tensor cores */
    /* Of a float made from its parameters (made.c), in the low bits of a byte or of two; NULL: none. Under an exponent
     * its values are those of the codes times 2^-e. CUDA sources, where codecs use the name for another type, do not
     * read it. */
#ifdef __cplusplus
    const void *element;
#else
    const struct fl_element *element;
#endif
    /* formats with an exponent for the tensor: the range of e and the default predictor; of mantissas, the largest */
    int e_min, e_max;
    int top;  /* 2^(bits - 1) - 1 */
    int bits; /* of one element, which may be stored in a wider word */
    const char *predictor;
    bool truncates; /* offers TENSOR_ROUND_TRUNCATE */
    bool draws;     /* offers TENSOR_ROUND_STOCHASTIC */

    /* The codec. decode: n elements from index `first` of the view, exactly, as doubles. encode: n doubles rounded once
     * by `rounding` into the view at its exponent; out.data NULL measures only. Both serve any alignment of first.
     * stats accumulates. `op_result`: the doubles are results of an operation, exact or rounded to odd; float formats
     * then round to binary32 first, as their kernels do, but only to nearest and by truncation. */
    void (*decode)(const struct fl_format *f, const struct fl_view *in, int64_t first, int64_t n, double *values);
    void (*encode)(const struct fl_format *f, const struct fl_view *out, int64_t first, int64_t n, const double *values,
                   bool op_result, const struct fl_rounding *rounding, struct fl_stats *stats);

    /* Kernels by backend. sets[FL_REF] is NULL: the reference kernels (core/reference/ref_*.c) serve every format
     * through its codec. */
    const struct fl_kernels *sets[FL_KERNEL_SETS];
};

/* Whether tensors of the format have an exponent, which Autoflex chooses. The elements under it are mantissas, whose
 * sums are exact integers (FL_ARITHMETIC_SHARED), or floats (FL_ARITHMETIC_FLOAT). */
static inline bool fl_has_exponent(const struct fl_format *format) {
    return format->predictor != 0;
}

#ifdef FL_HAVE_AVX2
#define FL_SET_AVX2(set) &set
#else
#define FL_SET_AVX2(set) 0
#endif
#ifdef FL_HAVE_AVX2_VNNI
#define FL_SET_AVX2_VNNI(set) &set
#else
#define FL_SET_AVX2_VNNI(set) 0
#endif
#ifdef FL_HAVE_AVX512
#define FL_SET_AVX512(set) &set
#else
#define FL_SET_AVX512(set) 0
#endif
#ifdef FL_HAVE_AVX512_AMX
#define FL_SET_AVX512_AMX(set) &set
#else
#define FL_SET_AVX512_AMX(set) 0
#endif
#ifdef FL_HAVE_AVX512_AMX_FAST
#define FL_SET_AVX512_AMX_FAST(set) &set
#else
#define FL_SET_AVX512_AMX_FAST(set) 0
#endif
#ifdef FL_HAVE_AVX512_FAST
#define FL_SET_AVX512_FAST(set) &set
#else
#define FL_SET_AVX512_FAST(set) 0
#endif

enum { FL_FORMAT_LIMIT = 16 }; /* formats of a build, at most */

/* The format of that id or name, or the i-th format in the order of ids; NULL if there is none. */
const struct fl_format *fl_format_of(tensor_format id);
const struct fl_format *fl_format_named(const char *name);
const struct fl_format *fl_format_at(int i);
/* The index of a format in that order; the number of formats if it is not in the list. */
int fl_format_index(const struct fl_format *format);
/* A format made from its parameters (made.c), by the id that says them; NULL: there is none such. */
const struct fl_format *fl_made_format(tensor_format id);
/* The id of the format that the text describes, as "flex12+5" does. TENSOR_E_ARGUMENT if it begins like such a text and
 * is none: the message names the position. TENSOR_OK with FMT_NONE for any other text. */
tensor_status fl_made_format_find(tensor_format *id, const char *text);
/* What all floats made from their parameters have in common: codec and kernel sets. */
const struct fl_format *fl_made_float(void);
/* f64, f32, i32 or u8. fl_format_of finds them too; fl_format_named and fl_format_at do not. */
const struct fl_format *fl_numbers_of(tensor_format id);

/* The reference kernel of an operation; NULL for an operation without one. */
fl_kernel fl_ref_kernel(enum fl_op op);
fl_need fl_ref_need(enum fl_op op);
/* The kernel of a backend that serves every format through its codec, and its workspace, from the object of the
 * operation (ops/objects.c); NULL: none. */
fl_kernel fl_any_format_kernel(const struct fl_format *format, enum fl_op op, enum fl_backend backend);
fl_need fl_any_format_need(const struct fl_format *format, enum fl_op op, enum fl_backend backend);
/* Whether an operand that may be the output and stands in the parameters has its elements at `data`: by the signature
 * of the operation (ops/objects.c). */
bool fl_is_parameter(const struct fl_args *args, const void *data);
/* The kernel of class exact that runs under a cap, of the best backend at or below it that this machine supports, and
 * that backend. */
fl_kernel fl_kernel_select(const struct fl_format *format, enum fl_op op, enum fl_backend cap, enum fl_backend *chosen);
/* The workspace of the kernel that the backend has for the operation; NULL: none. */
fl_need fl_need_of(const struct fl_format *format, enum fl_op op, enum fl_backend backend);
/* The kernel of class fast that runs instead under a cap, and its backend: the fastest on this processor. NULL if there
 * is none. */
fl_kernel fl_kernel_fast(const struct fl_format *format, enum fl_op op, enum fl_backend cap, enum fl_backend *chosen);
/* The kernel of a kernel set, even if another would be chosen; NULL if there is none, or this machine cannot run it. */
fl_kernel fl_kernel_in(const struct fl_format *format, enum fl_op op, enum fl_backend backend);

/* The kernel that the host runs in that class under the cap in force. FLEXLAB_VERBOSE=1 names it the first time that it
 * runs in that class. */
struct fl_choice {
    fl_kernel kernel;
    fl_need need; /* NULL: no workspace */
    enum fl_backend backend;
};
tensor_status fl_dispatch(const struct fl_format *format, enum fl_op op, tensor_class exactness,
                          struct fl_choice *choice);
/* The same choice for a dry run, without that line. */
tensor_status fl_select(const struct fl_format *format, enum fl_op op, tensor_class exactness,
                        struct fl_choice *choice);
/* The cap in force: the best backend of this machine, FLEXLAB_ISA, tensor_set_backend. */
tensor_status fl_backend_cap(enum fl_backend *cap);
/* Whether this processor has what that backend needs. Sets below the cap need not: those of AVX-512 need no AVX-VNNI,
 * and the tests let tiles in plain C run on processors without AVX-512. */
bool fl_backend_runs(enum fl_backend backend);
const char *fl_backend_name(enum fl_backend backend);
const char *fl_op_name(enum fl_op op);
/* Whether the entry of ops.def is an FL_REAL...: its result is a real number that is rounded once in every format. */
bool fl_op_is_real(enum fl_op op);
enum fl_op fl_op_named(const char *name);

#endif
