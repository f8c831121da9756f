/* tensor.h - formats, tensors, operations, statistics.
 *
 *     tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(64, 128));
 *     tensor *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(128, 10));
 *     tensor *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(64, 10));
 *     tensor_load_f32(x, pixels, 64 * 128);
 *     tensor_load_f32(w, weights, 128 * 10);
 *     if (tensor_matmul(y, x, w)) fprintf(stderr, "%s\n", tensor_error());
 *
 * Conventions that hold for every function
 *  - Results come first. Shapes are row-major, last dimension contiguous. Images are [N, H, W, C], filters
 *    [K, R, S, C], weights of a linear layer [in, out] (y = x w). An image flattened by tensor_new_view is in the order
 *    H, W, C.
 *  - All tensors of one call share one format; tensor_convert is the bridge. Matmul and convolution take several: see
 *    tensor_matmul.
 *  - A failing call returns a status (status.h), sets tensor_error() and leaves outputs untouched.
 *  - Elementwise operations may run in place (y == x). Matmul, convolution, pooling and sums may not: their output must
 *    be another tensor than their inputs (a residual aside, see tensor_epilogue). Two tensors that tensor_new_on made
 *    in overlapping memory are not in place: TENSOR_E_ARGUMENT where one is written and the other read or written.
 *  - Exactness. Shared-exponent formats: the mathematical result at the output's exponent, rounded once (nearest, ties
 *    to even) and saturated to +-32767; identical bits for every backend and thread count. Float formats: computed in
 *    binary32 (one fused multiply-add chain with k ascending in chunks of 512, chunk sums added in order), rounded once
 *    when stored; identical bits for every backend and thread count. docs/semantics.md is the full contract.
 *  - Saturation, flush to zero, NaN and Inf are data, not errors: tensor_statistics counts them.
 *  - Scalars (alpha, learning rate, ...) are binary32 and used exactly as given: 24-bit integers times a power of two.
 *  - A tensor may be used by one thread at a time; different tensors by different threads. (Tensors of one device other
 *    than the host: by one thread at a time, all of them.) Settings of the process
 *    (tensor_set_threads, tensor_set_backend, tensor_set_error_hook) may be changed while other threads compute: an
 *    operation under way keeps what it began with, or takes the new one from its next pass on, with the same bits.
 *    tensor_set_class is the calling thread's own. tensor_set_allocator comes before everything.
 *  - Structs that callers fill in or receive may get more fields at their end. A function that takes one has a second
 *    form, ..._sized, with the size that the caller was compiled with: it is what the library exports, and what
 *    bindings call. What is filled in is set to zero first ((tensor_epilogue){.bias = b}, in C++ {} and then members).
 *    tensor_window and struct autoflex stay as they are; tensor_window2d grows. docs/decisions/0014-growing-structs.md.
 *  - The child of a fork() may compute, with threads of its own. Tensors and graphs are copied with the process; one
 *    that another thread was writing at that moment is lost to the child. A data_loader stays with the parent. (A child
 *    of _Fork() or clone() that does not run exec must not use the library.) */
#ifndef FLEXLAB_TENSOR_H
#define FLEXLAB_TENSOR_H

#include "flexlab/autoflex.h"
#include "flexlab/formats.h"
#include "flexlab/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TENSOR_MAX_DIMS = 6 };

typedef struct tensor tensor;

/* Spells the last two arguments of tensor_new: TENSOR_SHAPE(64, 128). The sizes are an array of the caller, in C++ of
 * the expression that the call is in. */
#ifndef __cplusplus
#define TENSOR_SHAPE(...)                                                                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                                     \
        __VA_ARGS__                                                                                                    \
    }
#else
#define TENSOR_SHAPE(...) decltype(flexlab::shape(__VA_ARGS__))::ndim, flexlab::shape(__VA_ARGS__).data()
extern "C++" {
namespace flexlab {
template <int N> struct sizes {
    enum { ndim = N };
    int64_t size[N];
    const int64_t *data() const { return size; }
};
template <class... T> constexpr sizes<int(sizeof...(T))> shape(T... size) {
    return {{static_cast<int64_t>(size)...}};
}
} // namespace flexlab
}
#endif

/* --- formats -----------------------------------------------------------------------------------------------------
 * formats.h (generated from the format folders) defines `tensor_format`: FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5,
 * FMT_DFP16 and those of added folders. Ids are stable. */

/* "fp32", "fp16", "bf16", "flex16+5", "dfp16", ...; NULL for an unknown format. */
FLEXLAB_API const char *tensor_format_name(tensor_format format) FLEXLAB_SYMBOL(tensor_format_name);
/* The format of that name; TENSOR_E_ARGUMENT names the value and lists the known ones. */
FLEXLAB_API tensor_status tensor_format_find(tensor_format *format, const char *name)
    FLEXLAB_SYMBOL(tensor_format_find);
/* The i-th format in id order, 0 (FMT_NONE) past the last. */
FLEXLAB_API tensor_format tensor_format_list(int i) FLEXLAB_SYMBOL(tensor_format_list);
/* Bytes of one element; 0 for an unknown format. */
FLEXLAB_API size_t tensor_format_bytes(tensor_format format) FLEXLAB_SYMBOL(tensor_format_bytes);
/* True for formats whose tensors are integer mantissas under one exponent. */
FLEXLAB_API bool tensor_format_is_shared(tensor_format format) FLEXLAB_SYMBOL(tensor_format_is_shared);

/* --- life ---------------------------------------------------------------------------------------------------------
 * A new tensor holds zeros. 1 to TENSOR_MAX_DIMS dimensions, each at least 1, less than 2^40 bytes in all. */

/* NULL on failure, with tensor_error() set. Free with tensor_free. */
FLEXLAB_API tensor *tensor_new(tensor_format format, int ndim, const int64_t *shape) FLEXLAB_SYMBOL(tensor_new);
/* A tensor over the caller's memory (at least tensor_new's size, 64-byte aligned, kept alive by the caller). The memory
 * is not cleared; the tensor has its own exponent. Memory planners use it: tensors may share memory at different times.
 * One call never takes two tensors in overlapping memory of which it writes one. */
FLEXLAB_API tensor *tensor_new_on(tensor_format format, int ndim, const int64_t *shape, void *memory, size_t bytes)
    FLEXLAB_SYMBOL(tensor_new_on);
/* Where tensors lie and operations on them run: "cpu", the host, and what else this build and machine have. All tensors
 * of a call lie on one device. A queue belongs to a device: what a call gives a device other than the host to do may be
 * done later, in the order of the calls; what hands out values (stores, exponents, statistics) waits. Where the device
 * finds an error only then (a number that is not finite), tensor_device_wait or what waits returns it. */
typedef struct tensor_device tensor_device;
/* The i-th, the host first; NULL past the last. */
FLEXLAB_API tensor_device *tensor_device_list(int i) FLEXLAB_SYMBOL(tensor_device_list);
/* NULL for an unknown name, with tensor_error() naming the known ones. */
FLEXLAB_API tensor_device *tensor_device_find(const char *name) FLEXLAB_SYMBOL(tensor_device_find);
FLEXLAB_API const char *tensor_device_name(const tensor_device *device) FLEXLAB_SYMBOL(tensor_device_name);
/* One line for the user about what the device is, its memory as it is now: at most bytes - 1 characters and a zero. */
FLEXLAB_API tensor_status tensor_device_describe(tensor_device *device, char *text, size_t bytes)
    FLEXLAB_SYMBOL(tensor_device_describe);
/* Returns when all that was submitted is done: the first failure since the last time, if there was one. */
FLEXLAB_API tensor_status tensor_device_wait(tensor_device *device) FLEXLAB_SYMBOL(tensor_device_wait);
/* tensor_new and tensor_new_on there. Memory of a device comes from tensor_device_allocate (64-byte aligned, zeros;
 * NULL on failure) and goes back with tensor_device_release, which waits for the calls before it. */
FLEXLAB_API tensor *tensor_new_in(tensor_device *device, tensor_format format, int ndim, const int64_t *shape)
    FLEXLAB_SYMBOL(tensor_new_in);
FLEXLAB_API tensor *tensor_new_at(tensor_device *device, tensor_format format, int ndim, const int64_t *shape,
                                  void *memory, size_t bytes) FLEXLAB_SYMBOL(tensor_new_at);
FLEXLAB_API void *tensor_device_allocate(tensor_device *device, size_t bytes) FLEXLAB_SYMBOL(tensor_device_allocate);
FLEXLAB_API void tensor_device_release(tensor_device *device, void *memory) FLEXLAB_SYMBOL(tensor_device_release);
/* The device of a tensor. */
FLEXLAB_API tensor_device *tensor_get_device(const tensor *t) FLEXLAB_SYMBOL(tensor_get_device);

/* Another shape of the same elements: shares memory, exponent, history, statistics and wide part with base, which must
 * outlive it. The number of elements must agree. */
FLEXLAB_API tensor *tensor_new_view(tensor *base, int ndim, const int64_t *shape) FLEXLAB_SYMBOL(tensor_new_view);
/* Elements of base at strides: element (i, j, ...) is element offset + i stride[0] + j stride[1] + ... of base. A
 * transposed matrix, a slice with steps, a mirrored or a repeated dimension (stride 0, or below 0), without a copy.
 * Memory, exponent and statistics are those of base, which must outlive it. It may be read by the reductions over
 * dimensions, tensor_argmax, tensor_broadcast_add and _mul with their gradients, tensor_where and its gradient, and
 * tensor_contiguous; everything else refuses it, TENSOR_E_ARGUMENT, and nothing writes it. NULL where an element lies
 * outside of base, or base is such a view itself. */
FLEXLAB_API tensor *tensor_new_strided(tensor *base, int ndim, const int64_t *shape, const int64_t *stride,
                                       int64_t offset) FLEXLAB_SYMBOL(tensor_new_strided);
/* NULL is allowed. */
FLEXLAB_API void tensor_free(tensor *t) FLEXLAB_SYMBOL(tensor_free);

/* Format, number of dimensions, sizes and number of elements, as given to tensor_new. */
FLEXLAB_API tensor_format tensor_get_format(const tensor *t) FLEXLAB_SYMBOL(tensor_get_format);
FLEXLAB_API int tensor_ndim(const tensor *t) FLEXLAB_SYMBOL(tensor_ndim);
FLEXLAB_API int64_t tensor_dim(const tensor *t, int i) FLEXLAB_SYMBOL(tensor_dim); /* 0 when i is out of range */
FLEXLAB_API int64_t tensor_count(const tensor *t) FLEXLAB_SYMBOL(tensor_count);
/* Bytes of the elements, and of the wide part where there is one. */
FLEXLAB_API size_t tensor_bytes(const tensor *t) FLEXLAB_SYMBOL(tensor_bytes);

/* --- values in and out -------------------------------------------------------------------------------------------- */

/* Load count values, each rounded once (nearest even). Shared-exponent formats take e = 14 - floor(log2 max|x|) first
 * and start their history anew; NaN and Inf are refused there (TENSOR_E_ARGUMENT with the position). count must be
 * tensor_count(t). With a wide part each value is rounded once to its width, and the elements are its rounding. The
 * values must not lie in t's own memory. */
FLEXLAB_API tensor_status tensor_load_f32(tensor *t, const float *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_load_f32);
FLEXLAB_API tensor_status tensor_load_f64(tensor *t, const double *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_load_f64);
/* Numbers of FMT_I32 and FMT_U8, as they are; FMT_F64 and FMT_F32 take theirs by tensor_load_f64 and tensor_load_f32. A
 * load of numbers is a copy; tensor_convert brings them into a format. */
FLEXLAB_API tensor_status tensor_load_i32(tensor *t, const int32_t *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_load_i32);
FLEXLAB_API tensor_status tensor_load_u8(tensor *t, const uint8_t *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_load_u8);
FLEXLAB_API tensor_status tensor_store_i32(const tensor *t, int32_t *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_store_i32);
/* Types of the numbers in arrays of the host. */
typedef enum tensor_type {
    TENSOR_TYPE_BOOL = 1, /* bool: bytes of 0 and 1 */
    TENSOR_TYPE_I8 = 2,
    TENSOR_TYPE_U8 = 3,
    TENSOR_TYPE_I16 = 4,
    TENSOR_TYPE_U16 = 5,
    TENSOR_TYPE_I32 = 6,
    TENSOR_TYPE_U32 = 7,
    TENSOR_TYPE_I64 = 8,
    TENSOR_TYPE_U64 = 9,
    TENSOR_TYPE_F16 = 10,  /* _Float16, or words of binary16 */
    TENSOR_TYPE_BF16 = 11, /* words of bfloat16 */
    TENSOR_TYPE_F32 = 12,
    TENSOR_TYPE_F64 = 13
} tensor_type;
/* tensor_load_f64 of an array of any type, into a tensor of a format: each number, integers of 64 bits too, is rounded
 * once. TENSOR_E_ARGUMENT for another type. */
FLEXLAB_API tensor_status tensor_load_array(tensor *t, const void *values, tensor_type type, int64_t count)
    FLEXLAB_SYMBOL(tensor_load_array);
/* t = value, everywhere, and numbers of the counter-based generator: loads of numbers that are made where t lies, with
 * a load's rounding and exponent. Element i depends on (key, counter, i) alone, so that all devices, formats and
 * numbers of threads round the same real numbers: low + (high - low) u in double, u a multiple of 2^-53 below 1; mean +
 * deviation z, z normal by Marsaglia's polar method in double. TENSOR_E_ARGUMENT where a bound is not finite, low is
 * above high, or the deviation below 0; value may be what a load takes. */
FLEXLAB_API tensor_status tensor_fill(tensor *t, double value) FLEXLAB_SYMBOL(tensor_fill);
FLEXLAB_API tensor_status tensor_fill_uniform(tensor *t, double low, double high, uint64_t key, uint64_t counter)
    FLEXLAB_SYMBOL(tensor_fill_uniform);
FLEXLAB_API tensor_status tensor_fill_normal(tensor *t, double mean, double deviation, uint64_t key, uint64_t counter)
    FLEXLAB_SYMBOL(tensor_fill_normal);
/* A load of images kept as bytes, in one pass: element i of y, whose channel is c, takes values[c][pixels[i]] as
 * tensor_load_f32 would. pixels: u8, as many as y has elements; values: f32 [C, 256], what each byte means in each
 * channel, such as (byte / 255 - mean) / deviation. */
FLEXLAB_API tensor_status tensor_load_pixels(tensor *y, const tensor *pixels, const tensor *values)
    FLEXLAB_SYMBOL(tensor_load_pixels);
/* Augmentation as a data loader does it (data.h): pad by four black pixels, crop at random, mirror half of the time, by
 * (seed, epoch, index of the image). */
typedef struct tensor_augmentation {
    uint64_t seed, epoch;
} tensor_augmentation;
/* A batch out of a set of images that lies on the same device: image n of images, u8 [N,H,W,C], and entry n of labels,
 * i32 [N], are those of number indices[n] (i32 [N]) in set_images, u8 [M,H,W,C], and set_labels, i32 [M]. how NULL: as
 * they are. The bytes of a data loader with that seed and epoch. An index out of range is TENSOR_E_ARGUMENT, at once on
 * the host, where nothing is written, and from the next wait elsewhere. */
FLEXLAB_API tensor_status tensor_gather_images(tensor *images, tensor *labels, const tensor *set_images,
                                               const tensor *set_labels, const tensor *indices,
                                               const tensor_augmentation *how) FLEXLAB_SYMBOL(tensor_gather_images);
/* Stores count values. Every 16-bit format and fp32 is exact in double; float rounds once (dfp16 far out of range). */
FLEXLAB_API tensor_status tensor_store_f32(const tensor *t, float *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_store_f32);
FLEXLAB_API tensor_status tensor_store_f64(const tensor *t, double *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_store_f64);

/* Stores into an array of any type, aligned as that type is. Floats of 16 bits: each value rounded once, to nearest
 * even. bool: whether it is not 0. Integers: to the nearest, ties to even; one that the type does not hold, and NaN, is
 * TENSOR_E_ARGUMENT with its position, and nothing is written. With saturated (not NULL) the type's least or largest
 * number is stored instead, 0 for NaN, and *saturated is how many there were. */
FLEXLAB_API tensor_status tensor_store_array(const tensor *t, void *values, tensor_type type, int64_t count,
                                             int64_t *saturated) FLEXLAB_SYMBOL(tensor_store_array);

/* y = x in y's format, rounded once. Shapes must agree. A shared-exponent y takes its exponent as a load does; fp32,
 * fp16 and bf16 sources with NaN or Inf are refused for it. From shared to shared the values are kept where they
 * fit. */
FLEXLAB_API tensor_status tensor_convert(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_convert);
/* The same for a shared-exponent y at an exponent that is known: one pass over x, counted as an ordinary write. NaN
 * becomes zero and Inf the largest mantissa; tensor_statistics tells. TENSOR_E_ARGUMENT outside the format's range;
 * TENSOR_E_FORMAT where y has no shared exponent, or a wide part. */
FLEXLAB_API tensor_status tensor_convert_at(tensor *y, const tensor *x, int e) FLEXLAB_SYMBOL(tensor_convert_at);
/* A bit-exact copy: elements, exponent, history, wide part. Same format and shape; TENSOR_E_FORMAT where one of the two
 * has a wide part and the other has none. The two may lie on different devices, of which one is the host. */
FLEXLAB_API tensor_status tensor_copy(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_copy);

/* The elements as stored: int16_t mantissas, uint16_t words of fp16/bf16, float. Writing them is allowed; statistics
 * and history do not see it. A wide part does: an element that is no longer the rounding of its wide one was written by
 * hand, and counts with exactly its value from then on. That is looked for in tensors whose memory was handed out, here
 * or by the caller of tensor_new_on, whenever the wide part is about to count: as long as the pointer is kept. NULL
 * for a tensor on a device other than the host, with tensor_error() set: tensor_copy brings its elements. */
FLEXLAB_API void *tensor_data(tensor *t) FLEXLAB_SYMBOL(tensor_data);
FLEXLAB_API const void *tensor_const_data(const tensor *t) FLEXLAB_SYMBOL(tensor_const_data);

/* The shared exponent; 0 for formats without one. */
FLEXLAB_API int tensor_exponent(const tensor *t) FLEXLAB_SYMBOL(tensor_exponent);
/* Changes the exponent in place: every mantissa is shifted, rounded once, saturated; statistics count what was lost.
 * A wide part becomes exactly the new value. TENSOR_E_ARGUMENT outside the format's range. */
FLEXLAB_API tensor_status tensor_set_exponent(tensor *t, int e) FLEXLAB_SYMBOL(tensor_set_exponent);
/* Declares the exponent of the stored mantissas without touching them (after raw writes). A wide part becomes exactly
 * the value that they then have. */
FLEXLAB_API tensor_status tensor_declare_exponent(tensor *t, int e) FLEXLAB_SYMBOL(tensor_declare_exponent);

/* --- how a tensor is written -------------------------------------------------------------------------------------- */

/* Chooses the exponent predictor (autoflex_find: "paper", "ngraph", "current", "repeat", ...); resets the history,
 * keeps e. Defaults: paper for flex16+5, current for dfp16. TENSOR_E_FORMAT for formats without a shared exponent. */
FLEXLAB_API tensor_status tensor_set_predictor(tensor *t, const char *name) FLEXLAB_SYMBOL(tensor_set_predictor);
/* What t is in a training, for predictors that ask ("per-class"): AUTOFLEX_ROLE_WEIGHT, ...; networks say it of their
 * tensors. Changes no exponent. TENSOR_E_ARGUMENT for a number that is no role, TENSOR_E_FORMAT for formats without a
 * shared exponent. */
FLEXLAB_API tensor_status tensor_set_role(tensor *t, autoflex_role role) FLEXLAB_SYMBOL(tensor_set_role);
/* The exponent state, to read; NULL for formats without one. Of a tensor on a device: as it is now, until the next call
 * with the tensor; NULL too where the device failed. */
FLEXLAB_API const struct autoflex *tensor_autoflex(const tensor *t) FLEXLAB_SYMBOL(tensor_autoflex);

typedef enum tensor_rounding {
    TENSOR_ROUND_NEAREST = 0,    /* nearest, ties to even */
    TENSOR_ROUND_STOCHASTIC = 1, /* formats of 16 bits: floor(x + u) in units of the last place, u uniform; keyed by
                                    (seed, write, element) */
    TENSOR_ROUND_TRUNCATE = 2    /* bf16: toward zero */
} tensor_rounding;
/* How results written into t are rounded. TENSOR_E_FORMAT where the format does not offer it. */
FLEXLAB_API tensor_status tensor_set_rounding(tensor *t, tensor_rounding rounding, uint64_t seed)
    FLEXLAB_SYMBOL(tensor_set_rounding);

/* Gives t a wide part that updates work on, the elements being its rounding: an int32 mantissa at exponent e + 16 for
 * shared-exponent formats, binary32 for fp16 and bf16. No effect on fp32, or a second time. Filled from t's present
 * values. The two never disagree:
 *  - tensor_sgd_update, tensor_combine, tensor_root_mean and tensor_add_ratio in place (the output is the first
 *    operand), loads and tensor_convert round once at the width of the wide part, and the elements are the rounding of
 *    the wide part (to nearest; bf16 under TENSOR_ROUND_TRUNCATE: toward zero);
 *  - whatever else writes t (every other operation, in place and through views too, an exponent set or declared,
 *    elements written by hand) writes the elements, and the wide part becomes exactly their value.
 * What reads t reads the elements, but for w of tensor_sgd_update and tensor_sgd_momentum, p and w of tensor_combine, r
 * of tensor_root_mean, w, m and r of tensor_add_ratio, tensor_copy and tensor_store_wide_f64. */
FLEXLAB_API tensor_status tensor_keep_wide(tensor *t) FLEXLAB_SYMBOL(tensor_keep_wide);
/* The wide part as doubles (t's own values where there is none). */
FLEXLAB_API tensor_status tensor_store_wide_f64(const tensor *t, double *values, int64_t count)
    FLEXLAB_SYMBOL(tensor_store_wide_f64);

/* --- statistics --------------------------------------------------------------------------------------------------- */

typedef struct tensor_stats {
    double maximum;    /* largest |x| before rounding and saturation; Inf if an Inf was produced */
    int32_t gamma;     /* largest |mantissa| after; 0 for float formats */
    int64_t saturated; /* did not fit: +-32767 instead, or Inf where the binary32 result was finite (fp16, bf16) */
    int64_t flushed;   /* not zero before the last rounding (float formats: in binary32), zero after it */
    int64_t nonfinite; /* NaN and Inf among the stored elements */
    int64_t elements;  /* elements written */
    int64_t writes;    /* 1 for the last write; the number of writes for the total */
} tensor_stats;

FLEXLAB_API tensor_status tensor_statistics_sized(const tensor *t, tensor_stats *last, tensor_stats *total, size_t size)
    FLEXLAB_SYMBOL(tensor_statistics_sized);
/* Of the last write, and of all writes since the tensor was made or reset. Either pointer may be NULL. In the total,
 * maximum and gamma are the largest of all writes. */
static inline tensor_status tensor_statistics(const tensor *t, tensor_stats *last, tensor_stats *total) {
    return tensor_statistics_sized(t, last, total, sizeof(tensor_stats));
}
/* Both become zero; exponent, history and the number of writes that keys stochastic rounding stay. NULL is allowed. */
FLEXLAB_API void tensor_reset_statistics(tensor *t) FLEXLAB_SYMBOL(tensor_reset_statistics);

/* Bin i of a description: 2^(TENSOR_FIRST_BIN + i) <= |x| < twice that. All values of the formats have one; of formats
 * added as folders, what is smaller or larger is in the first or the last. */
enum { TENSOR_FIRST_BIN = -152, TENSOR_BINS = 304 };
/* The elements as they are. Sums, smallest and largest are of the finite ones. */
typedef struct tensor_description {
    int64_t elements, zeros, infinite, nan;
    double mean, deviation;   /* the latter of all finite elements: divided by their number; NAN without one */
    double smallest, largest; /* |x|: the smallest above 0; 0 without one */
    double l1, l2;            /* sum of |x|; root of the sum of x^2 */
    /* Root mean square of the error that rounding to nearest is expected to make in such elements: u / sqrt(12) each, u
     * the unit of the last place of its binade, or that of the shared exponent. NAN without a finite element. */
    double rounding;
    int64_t bins[TENSOR_BINS]; /* of the elements that are finite and not 0 */
} tensor_description;
FLEXLAB_API tensor_status tensor_describe_sized(tensor_description *d, size_t size, const tensor *x)
    FLEXLAB_SYMBOL(tensor_describe_sized);
/* One pass over the elements, on the host; a device is waited for, and copied from. Counts, smallest and largest are
 * exact; sums of shared-exponent formats exact integers, rounded at the end (mean and the square of the deviation once
 * or twice), those of float formats added in double in one order: the same bits for every backend and number of
 * threads. A wide part does not count. TENSOR_E_ARGUMENT for a view with strides. */
static inline tensor_status tensor_describe(tensor_description *d, const tensor *x) {
    return tensor_describe_sized(d, sizeof *d, x);
}

/* What another format would make of the elements. */
typedef struct tensor_measure {
    int64_t elements, finite;              /* finite: before and after */
    int64_t saturated, flushed, nonfinite; /* as tensor_stats of the conversion has them */
    double error, size; /* root mean squares of (value in that format - x) and of x, over the finite; 0 without any */
} tensor_measure;
FLEXLAB_API tensor_status tensor_measure_in_sized(tensor_measure *m, size_t size, const tensor *x, tensor_format format,
                                                  int e) FLEXLAB_SYMBOL(tensor_measure_in_sized);
/* Converts each element, to nearest, as tensor_convert_at does it for a format with a shared exponent, which is e then,
 * else as tensor_convert, and keeps none: counts are those of that write, sums are added in one order.
 * TENSOR_E_ARGUMENT for an exponent that the format does not have, or not 0 where it has none; otherwise as
 * tensor_describe. */
static inline tensor_status tensor_measure_in(tensor_measure *m, const tensor *x, tensor_format format, int e) {
    return tensor_measure_in_sized(m, sizeof *m, x, format, e);
}

/* --- elementwise operations: one row of ops.def each -------------------------------------------------------------- */

/* Operands have one shape. tensor_add(y, a, b), tensor_scale(y, x, alpha), ...
 *
 * Real functions, the rows FL_REAL... of ops.def: the value of the real function at the element, rounded once, in every
 * format; docs/precision.md has their errors. tensor_exp(y, x), tensor_gelu (x times the normal distribution),
 * tensor_gelu_tanh (its approximation), tensor_round (ties to even), tensor_leaky_relu(y, x, slope below 0),
 * tensor_elu(y, x, alpha), tensor_hardtanh(y, x, least, largest), ... Their gradients dx = dy f'(x), one exact product
 * rounded once, take dy and the forward input: tensor_gelu_grad(dx, dy, x), tensor_elu_grad(dx, dy, x, alpha), ...
 * NaN, Inf and zeros: as IEEE 754 recommends, at infinite x the limit; in shared-exponent formats docs/semantics.md. */
#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_##name);
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x, float alpha) FLEXLAB_SYMBOL(tensor_##name);
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b) FLEXLAB_SYMBOL(tensor_##name);
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *x, float alpha, float beta)                       \
        FLEXLAB_SYMBOL(tensor_##name);
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha, float beta)      \
        FLEXLAB_SYMBOL(tensor_##name);
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, float alpha)                  \
        FLEXLAB_SYMBOL(tensor_##name);
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    FLEXLAB_API tensor_status tensor_##name(tensor *y, const tensor *a, const tensor *b, const tensor *c)              \
        FLEXLAB_SYMBOL(tensor_##name);
#include "flexlab/ops.def"

/* --- bias, matmul, convolution ------------------------------------------------------------------------------------ */

/* y[..., c] = x[..., c] + b[c], and max(0, that). b is [C], C the last dimension of x. In place allowed. */
FLEXLAB_API tensor_status tensor_bias(tensor *y, const tensor *x, const tensor *b) FLEXLAB_SYMBOL(tensor_bias);
FLEXLAB_API tensor_status tensor_bias_relu(tensor *y, const tensor *x, const tensor *b)
    FLEXLAB_SYMBOL(tensor_bias_relu);

/* y[M,N] = a[M,K] b[K,N];  nt: b is [N,K], transposed;  tn: a is [K,M], transposed.
 *
 * Formats of matmul, of many matrices, and of the convolutions and their gradients below: both operands have a shared
 * exponent, each one of its own, or both are floats, each of any format; y, a bias and a residual may be of any of the
 * five. Sums are those of the operands: exact integers, or the binary32 chain of the operands' values, which a y in
 * fp32 holds as it is; what joins them does so exactly, or in binary32; and the whole is rounded once to y
 * (docs/semantics.md, Different formats). TENSOR_E_FORMAT for a shared exponent by a float: tensor_convert makes one of
 * the other; TENSOR_E_UNSUPPORTED on a device other than the host. Class fast has no kernels for that. */
FLEXLAB_API tensor_status tensor_matmul(tensor *y, const tensor *a, const tensor *b) FLEXLAB_SYMBOL(tensor_matmul);
FLEXLAB_API tensor_status tensor_matmul_nt(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_nt);
FLEXLAB_API tensor_status tensor_matmul_tn(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_tn);

/* Matmuls of matrices side by side, in one write: y[..., M, N] = a[..., M, K] b[..., K, N], the leading dimensions of
 * all three the same; nt: b is [..., N, K], tn: a is [..., K, M]. Exactness is that of tensor_matmul; one exponent for
 * all of y. The gradients are such matmuls too. */
FLEXLAB_API tensor_status tensor_matmul_batched(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_batched);
FLEXLAB_API tensor_status tensor_matmul_batched_nt(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_batched_nt);
FLEXLAB_API tensor_status tensor_matmul_batched_tn(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_matmul_batched_tn);

/* The largest stride, padding and dilation; the largest window of a pooling and stride of a shortcut. */
enum { TENSOR_WINDOW_STEP_LIMIT = 255, TENSOR_WINDOW_LIMIT = 1 << 20 };

/* The same in both directions, and on all sides: where that does not do, tensor_window2d below. Values outside of these
 * ranges are TENSOR_E_ARGUMENT. */
typedef struct tensor_window {
    int window;   /* side of the square window of a pooling, 1 to 2^20; tensor_conv2d takes it from the filters */
    int stride;   /* 1 to 255 */
    int padding;  /* zeros on each side, 0 to 255 */
    int dilation; /* convolution only: pixels from one filter position to the next, 1 to 255; 0 means 1 */
    int groups;   /* convolution only: parts of the channels and of the filters that see only each other; 0 means 1 */
} tensor_window;

/* x [N,H,W,C], w [K,R,S,C / groups], y [N,P,Q,K] with P = (H + 2 padding - dilation (R - 1) - 1) / stride + 1 (floor),
 * Q likewise. groups divides C and K: filters of group i, K / groups of them, see channels of group i. groups = C is a
 * depthwise convolution. The order of summation of float formats: forward r, s, c; input gradient r, s, k; weight
 * gradient n, p, q; c and k within the group. */
FLEXLAB_API tensor_status tensor_conv2d(tensor *y, const tensor *x, const tensor *w, tensor_window how)
    FLEXLAB_SYMBOL(tensor_conv2d);
FLEXLAB_API tensor_status tensor_conv2d_input_grad(tensor *dx, const tensor *dy, const tensor *w, tensor_window how)
    FLEXLAB_SYMBOL(tensor_conv2d_input_grad);
FLEXLAB_API tensor_status tensor_conv2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x, tensor_window how)
    FLEXLAB_SYMBOL(tensor_conv2d_weight_grad);

/* What joins the sums of a matmul or a convolution before they are stored: y = max(0, sums + bias + residual), each
 * part if it is there. bias (NULL: none) is [columns of y], or [filters]; residual (NULL: none) has the shape of y and
 * may be y itself, which is then read with its old exponent; max(0, .) if relu. One rounding of the whole:
 * shared-exponent formats round the exact sum of products, bias and residual; float formats compute the sum of products
 * as without, then add the bias, then the residual, each in binary32. Statistics are those of the one write. All zero:
 * as without. */
typedef struct tensor_epilogue {
    const tensor *bias;
    const tensor *residual;
    bool relu;
    unsigned char unused[7]; /* no padding at the end, which nobody would set */
} tensor_epilogue;

FLEXLAB_API tensor_status tensor_matmul_fused_sized(tensor *y, const tensor *a, const tensor *b,
                                                    const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_matmul_fused_sized);
FLEXLAB_API tensor_status tensor_matmul_nt_fused_sized(tensor *y, const tensor *a, const tensor *b,
                                                       const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_matmul_nt_fused_sized);
FLEXLAB_API tensor_status tensor_conv2d_fused_sized(tensor *y, const tensor *x, const tensor *w, tensor_window how,
                                                    const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv2d_fused_sized);
/* tensor_matmul, tensor_matmul_nt and tensor_conv2d with that; their shapes and errors, and TENSOR_E_SHAPE,
 * TENSOR_E_FORMAT or TENSOR_E_ARGUMENT where bias or residual do not suit y. */
static inline tensor_status tensor_matmul_fused(tensor *y, const tensor *a, const tensor *b, tensor_epilogue with) {
    return tensor_matmul_fused_sized(y, a, b, &with, sizeof with);
}
static inline tensor_status tensor_matmul_nt_fused(tensor *y, const tensor *a, const tensor *b, tensor_epilogue with) {
    return tensor_matmul_nt_fused_sized(y, a, b, &with, sizeof with);
}
static inline tensor_status tensor_conv2d_fused(tensor *y, const tensor *x, const tensor *w, tensor_window how,
                                                tensor_epilogue with) {
    return tensor_conv2d_fused_sized(y, x, w, how, &with, sizeof with);
}

/* --- pooling and shortcuts, images [N,H,W,C] ---------------------------------------------------------------------- */

/* Largest element of each window (padding is never chosen; padding < window). The gradient goes to the first largest
 * element of a window in row-major order; x is the forward input. */
FLEXLAB_API tensor_status tensor_maxpool2d(tensor *y, const tensor *x, tensor_window how)
    FLEXLAB_SYMBOL(tensor_maxpool2d);
FLEXLAB_API tensor_status tensor_maxpool2d_grad(tensor *dx, const tensor *dy, const tensor *x, tensor_window how)
    FLEXLAB_SYMBOL(tensor_maxpool2d_grad);
/* y[N,C] = mean over H and W; dx[n,h,w,c] = dy[n,c] / (H W). */
FLEXLAB_API tensor_status tensor_avgpool_global(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_avgpool_global);
FLEXLAB_API tensor_status tensor_avgpool_global_grad(tensor *dx, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_avgpool_global_grad);
/* The mean of each window x window pixels, channel by channel, as many windows as max pooling has; padding is less than
 * the window. Padding counts, as zeros (every mean divides by window^2: PyTorch's count_include_pad), or does not (it
 * divides by the pixels of the image in the window: TensorFlow's SAME): padding_counts says which. Shared-exponent
 * formats: the exact sum divided by the count, rounded once. Float formats: binary32 chains of 512 pixels, row by row,
 * added and divided in double. */
FLEXLAB_API tensor_status tensor_avgpool2d(tensor *y, const tensor *x, tensor_window how, bool padding_counts)
    FLEXLAB_SYMBOL(tensor_avgpool2d);
/* dx of a pixel: the sum over the windows that hold it of dy by what their means divide by. Shared-exponent formats:
 * the exact fraction, rounded once; TENSOR_E_ARGUMENT where the counts of all windows, which differ where padding does
 * not count, have no common multiple up to 2^48 (windows up to 18 pixels wide always have one). Float formats: in
 * double, window by window, row by row. */
FLEXLAB_API tensor_status tensor_avgpool2d_grad(tensor *dx, const tensor *dy, tensor_window how, bool padding_counts)
    FLEXLAB_SYMBOL(tensor_avgpool2d_grad);
/* Means of as many windows as y [N,P,Q,C] has: window p of P is lines floor(p H / P) to ceil((p + 1) H / P) - 1 of x
 * [N,H,W,C], columns likewise. Sides of at most 2^20. Exactness and errors are those of tensor_avgpool2d. */
FLEXLAB_API tensor_status tensor_avgpool_adaptive(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_avgpool_adaptive);
FLEXLAB_API tensor_status tensor_avgpool_adaptive_grad(tensor *dx, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_avgpool_adaptive_grad);
/* Option-A shortcut (He et al. 2015): y[n,p,q,k] = x[n, p*stride, q*stride, k - pad], pad = (K - C) / 2, zero outside.
 * y is [N, ceil(H/stride), ceil(W/stride), K], K >= C. stride 1 to 2^20. */
FLEXLAB_API tensor_status tensor_shortcut_a(tensor *y, const tensor *x, int stride) FLEXLAB_SYMBOL(tensor_shortcut_a);
FLEXLAB_API tensor_status tensor_shortcut_a_grad(tensor *dx, const tensor *dy, int stride)
    FLEXLAB_SYMBOL(tensor_shortcut_a_grad);

/* --- windows of any shape ----------------------------------------------------------------------------------------- */

/* The largest stride, padding and dilation of these; windows of a pooling have TENSOR_WINDOW_LIMIT as well. */
enum { TENSOR_WINDOW2D_STEP_LIMIT = 4095 };

/* Down and across each for itself. Values outside of these ranges are TENSOR_E_ARGUMENT. More fields may follow. */
typedef struct tensor_window2d {
    int window[2];         /* height and width of a pooling's window; convolutions take them from the filters (0, or
                              the same numbers) */
    int stride[2];         /* down, across: 1 to 4095 */
    int padding[4];        /* top, bottom, left, right: 0 to 4095 lines of zeros */
    int dilation[2];       /* pixels from one position of a window to the next, 1 to 4095; {0, 0} means {1, 1} */
    int groups;            /* of convolutions, as in tensor_window; 0 means 1 */
    int output_padding[2]; /* of transposed convolutions: lines more at the bottom and right, less than the stride */
} tensor_window2d;

/* The same along one direction, for [N,L,C]: N sequences of L places with C channels. */
typedef struct tensor_window1d {
    int window, stride;
    int padding[2]; /* left, right. Causal: {(S - 1) dilation, 0}, y[l] then sees x up to place l */
    int dilation, groups, output_padding;
} tensor_window1d;

/* tensor_conv2d, its gradients and tensor_maxpool2d with such windows: P = (H + top + bottom - dilation (R - 1) - 1) /
 * stride + 1 (floor), Q likewise; sums in the same order. A pooling may have a dilation here; its padding is less than
 * what a window reaches over, (window - 1) dilation + 1, on each side, and TENSOR_E_SHAPE where a window would see
 * nothing but padding. `with` as in tensor_conv2d_fused; {0}: nothing joins. */
FLEXLAB_API tensor_status tensor_conv2d_with_sized(tensor *y, const tensor *x, const tensor *w,
                                                   const tensor_window2d *how, size_t how_size,
                                                   const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv2d_with_sized);
static inline tensor_status tensor_conv2d_with(tensor *y, const tensor *x, const tensor *w, tensor_window2d how,
                                               tensor_epilogue with) {
    return tensor_conv2d_with_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv2d_input_grad_with_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                              const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv2d_input_grad_with_sized);
static inline tensor_status tensor_conv2d_input_grad_with(tensor *dx, const tensor *dy, const tensor *w,
                                                          tensor_window2d how) {
    return tensor_conv2d_input_grad_with_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv2d_weight_grad_with_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                               const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv2d_weight_grad_with_sized);
static inline tensor_status tensor_conv2d_weight_grad_with(tensor *dw, const tensor *dy, const tensor *x,
                                                           tensor_window2d how) {
    return tensor_conv2d_weight_grad_with_sized(dw, dy, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool2d_with_sized(tensor *y, const tensor *x, const tensor_window2d *how,
                                                      size_t how_size) FLEXLAB_SYMBOL(tensor_maxpool2d_with_sized);
static inline tensor_status tensor_maxpool2d_with(tensor *y, const tensor *x, tensor_window2d how) {
    return tensor_maxpool2d_with_sized(y, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool2d_grad_with_sized(tensor *dx, const tensor *dy, const tensor *x,
                                                           const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_maxpool2d_grad_with_sized);
static inline tensor_status tensor_maxpool2d_grad_with(tensor *dx, const tensor *dy, const tensor *x,
                                                       tensor_window2d how) {
    return tensor_maxpool2d_grad_with_sized(dx, dy, x, &how, sizeof how);
}

/* Transposed convolution (Dumoulin and Visin 2016, chapter 4): the input gradient of the convolution with filters w,
 * computed as a forward operation. x [N,P,Q,K], w [K,R,S,C / groups] (as of the convolution that maps y to x: K are the
 * channels of x, C those of y), y [N,H,W,C] with H = (P - 1) stride + dilation (R - 1) + 1 - top - bottom + output
 * padding, W likewise: of the `stride` heights of which that convolution makes P lines, output_padding chooses one.
 * Sums are over (r, s, k), k within the group: exact, or in this order, as of tensor_conv2d_input_grad. What joins them
 * is that of tensor_conv2d_fused, bias [C]. TENSOR_E_ARGUMENT where output_padding is not less than the stride,
 * TENSOR_E_SHAPE where padding leaves nothing.
 *
 * Its input gradient is the convolution: dx[N,P,Q,K] from dy and w, sums over (r, s, c). Its weight gradient is that of
 * the convolution with x and dy in each other's place: sums over (n, p, q). */
FLEXLAB_API tensor_status tensor_conv_transpose2d_sized(tensor *y, const tensor *x, const tensor *w,
                                                        const tensor_window2d *how, size_t how_size,
                                                        const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d_sized);
static inline tensor_status tensor_conv_transpose2d(tensor *y, const tensor *x, const tensor *w, tensor_window2d how,
                                                    tensor_epilogue with) {
    return tensor_conv_transpose2d_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv_transpose2d_input_grad_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                                   const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d_input_grad_sized);
static inline tensor_status tensor_conv_transpose2d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                               tensor_window2d how) {
    return tensor_conv_transpose2d_input_grad_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv_transpose2d_weight_grad_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                                    const tensor_window2d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose2d_weight_grad_sized);
static inline tensor_status tensor_conv_transpose2d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                                tensor_window2d how) {
    return tensor_conv_transpose2d_weight_grad_sized(dw, dy, x, &how, sizeof how);
}

/* Sequences: x [N,L,C], w [K,S,C / groups], y [N,M,K], computed as images of height 1: same sums, order and checks.
 * tensor_conv_transpose1d: x [N,M,K], y [N,L,C]. tensor_maxpool1d: y [N,M,C]. */
FLEXLAB_API tensor_status tensor_conv1d_sized(tensor *y, const tensor *x, const tensor *w, const tensor_window1d *how,
                                              size_t how_size, const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv1d_sized);
static inline tensor_status tensor_conv1d(tensor *y, const tensor *x, const tensor *w, tensor_window1d how,
                                          tensor_epilogue with) {
    return tensor_conv1d_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv1d_input_grad_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                         const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv1d_input_grad_sized);
static inline tensor_status tensor_conv1d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                     tensor_window1d how) {
    return tensor_conv1d_input_grad_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv1d_weight_grad_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                          const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv1d_weight_grad_sized);
static inline tensor_status tensor_conv1d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                      tensor_window1d how) {
    return tensor_conv1d_weight_grad_sized(dw, dy, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv_transpose1d_sized(tensor *y, const tensor *x, const tensor *w,
                                                        const tensor_window1d *how, size_t how_size,
                                                        const tensor_epilogue *with, size_t with_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d_sized);
static inline tensor_status tensor_conv_transpose1d(tensor *y, const tensor *x, const tensor *w, tensor_window1d how,
                                                    tensor_epilogue with) {
    return tensor_conv_transpose1d_sized(y, x, w, &how, sizeof how, &with, sizeof with);
}
FLEXLAB_API tensor_status tensor_conv_transpose1d_input_grad_sized(tensor *dx, const tensor *dy, const tensor *w,
                                                                   const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d_input_grad_sized);
static inline tensor_status tensor_conv_transpose1d_input_grad(tensor *dx, const tensor *dy, const tensor *w,
                                                               tensor_window1d how) {
    return tensor_conv_transpose1d_input_grad_sized(dx, dy, w, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_conv_transpose1d_weight_grad_sized(tensor *dw, const tensor *dy, const tensor *x,
                                                                    const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_conv_transpose1d_weight_grad_sized);
static inline tensor_status tensor_conv_transpose1d_weight_grad(tensor *dw, const tensor *dy, const tensor *x,
                                                                tensor_window1d how) {
    return tensor_conv_transpose1d_weight_grad_sized(dw, dy, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool1d_sized(tensor *y, const tensor *x, const tensor_window1d *how,
                                                 size_t how_size) FLEXLAB_SYMBOL(tensor_maxpool1d_sized);
static inline tensor_status tensor_maxpool1d(tensor *y, const tensor *x, tensor_window1d how) {
    return tensor_maxpool1d_sized(y, x, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_maxpool1d_grad_sized(tensor *dx, const tensor *dy, const tensor *x,
                                                      const tensor_window1d *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_maxpool1d_grad_sized);
static inline tensor_status tensor_maxpool1d_grad(tensor *dx, const tensor *dy, const tensor *x, tensor_window1d how) {
    return tensor_maxpool1d_grad_sized(dx, dy, x, &how, sizeof how);
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

/* y[c] = sum of x[..., c] over all leading dimensions; the gradient of a bias. */
FLEXLAB_API tensor_status tensor_sum_rows(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_sum_rows);
/* Sum and largest |x| of all elements. Shared-exponent formats: exact where it fits a double (53 bits). */
FLEXLAB_API tensor_status tensor_sum(double *sum, const tensor *x) FLEXLAB_SYMBOL(tensor_sum);
FLEXLAB_API tensor_status tensor_max_abs(double *maximum, const tensor *x) FLEXLAB_SYMBOL(tensor_max_abs);

/* Whether every element is finite; NULL: TENSOR_E_ARGUMENT. Integer formats hold nothing else. On the host. */
FLEXLAB_API tensor_status tensor_all_finite(bool *yes, const tensor *x) FLEXLAB_SYMBOL(tensor_all_finite);
/* y (FMT_U8, x's shape): 1 where the element is NaN, or infinite, else 0. x: any format, or numbers. On the host. */
FLEXLAB_API tensor_status tensor_isnan(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_isnan);
FLEXLAB_API tensor_status tensor_isinf(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_isinf);

/* --- reductions over any dimensions --------------------------------------------------------------------------------
 */

/* y is x summed (averaged, ...) over the dimensions in axes, bit d for dimension d. y has the other dimensions of x in
 * their order, or all of them with 1 in place of those in axes; [1] where none is left. No axes: each element is a sum
 * of one. y is another tensor than x, which may be a view with strides. Terms come in row-major order.
 *  - Shared-exponent formats: exact sums of mantissas; the mean is the exact quotient, the L2 norm the real square root
 *    of the exact sum of squares; each rounded once.
 *  - Float formats: binary32 chains of 512 terms, added in order in double (of squares: chains of doubles); mean and
 *    root in double, rounded to binary32 and then to the format. Over all but the last dimension, the bits of
 *    tensor_sum_rows.
 *  - max and min: the first largest (least) element; a NaN counts as larger (less) than anything. Sums with a NaN are
 *    NaN. */
FLEXLAB_API tensor_status tensor_reduce_sum(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_sum);
FLEXLAB_API tensor_status tensor_reduce_mean(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_mean);
FLEXLAB_API tensor_status tensor_reduce_max(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_max);
FLEXLAB_API tensor_status tensor_reduce_min(tensor *y, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_min);
/* The sum of |x|, and the square root of the sum of squares. */
FLEXLAB_API tensor_status tensor_reduce_l1(tensor *y, const tensor *x, unsigned axes) FLEXLAB_SYMBOL(tensor_reduce_l1);
FLEXLAB_API tensor_status tensor_reduce_l2(tensor *y, const tensor *x, unsigned axes) FLEXLAB_SYMBOL(tensor_reduce_l2);
/* Their gradients, dy of y's shape; x: the forward input. Of the sum: dy, at each of its terms. Of the mean: dy / n, an
 * exact quotient in shared-exponent formats, in double in float formats. Of max and min: dy at the first largest
 * (least), 0 elsewhere. Of the L1 norm: dy times the sign of x (0 where x is 0, NaN where x is NaN). Of the L2 norm:
 * (dy x) / norm in double, the norm being the root in double of the sum of squares of x anew (exact in shared-exponent
 * formats); 0 where the norm is 0. Each rounded once. */
FLEXLAB_API tensor_status tensor_reduce_sum_grad(tensor *dx, const tensor *dy, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_sum_grad);
FLEXLAB_API tensor_status tensor_reduce_mean_grad(tensor *dx, const tensor *dy, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_mean_grad);
FLEXLAB_API tensor_status tensor_reduce_max_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_max_grad);
FLEXLAB_API tensor_status tensor_reduce_min_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_min_grad);
FLEXLAB_API tensor_status tensor_reduce_l1_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_l1_grad);
FLEXLAB_API tensor_status tensor_reduce_l2_grad(tensor *dx, const tensor *dy, const tensor *x, unsigned axes)
    FLEXLAB_SYMBOL(tensor_reduce_l2_grad);
/* index (FMT_I32, the shape of a reduction over that axis): where along the axis, from 0 on, the first largest element
 * of x is. A NaN counts as larger than anything. */
FLEXLAB_API tensor_status tensor_argmax(tensor *index, const tensor *x, int axis) FLEXLAB_SYMBOL(tensor_argmax);

/* --- operands of other shapes --------------------------------------------------------------------------------------
 */

/* y = a + b and y = a b, where a and b are repeated along dimensions: with the last dimensions aligned, each of their
 * sizes is that of y or 1, and missing ones count as 1. One exact result, rounded once. y is another tensor than a and
 * b, which may be views with strides. */
FLEXLAB_API tensor_status tensor_broadcast_add(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_broadcast_add);
FLEXLAB_API tensor_status tensor_broadcast_mul(tensor *y, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_broadcast_mul);
/* The gradient of an operand, summed over the dimensions that it was repeated along: of the sum, dy; of the product, dy
 * times the other operand. Shared-exponent formats: one exact sum, rounded once. Float formats: chains as in
 * tensor_reduce_sum, of products by fused multiply-adds. */
FLEXLAB_API tensor_status tensor_broadcast_add_grad(tensor *da, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_broadcast_add_grad);
FLEXLAB_API tensor_status tensor_broadcast_mul_grad(tensor *da, const tensor *dy, const tensor *b)
    FLEXLAB_SYMBOL(tensor_broadcast_mul_grad);

/* y = a where mask (FMT_U8) is not 0, b where it is. mask, a and b are repeated as above. Values are copied exactly and
 * stored as the results of any write. */
FLEXLAB_API tensor_status tensor_where(tensor *y, const tensor *mask, const tensor *a, const tensor *b)
    FLEXLAB_SYMBOL(tensor_where);
/* da = dy where mask is not 0 (marked false: where it is 0), else 0: the gradient of a (of b), of dy's shape. That of a
 * repeated operand is tensor_broadcast_add_grad of it. */
FLEXLAB_API tensor_status tensor_where_grad(tensor *da, const tensor *dy, const tensor *mask, bool marked)
    FLEXLAB_SYMBOL(tensor_where_grad);

/* --- batch normalisation (Ioffe and Szegedy 2015) over all but the last dimension --------------------------------- */

/* Mean and population variance of each channel: exact sums in shared-exponent formats, binary32 sums of 512 rows added
 * in double in float formats. mean and variance have C entries. */
FLEXLAB_API tensor_status tensor_channel_moments(double *mean, double *variance, const tensor *x)
    FLEXLAB_SYMBOL(tensor_channel_moments);
/* y = gamma (x - mean) / sqrt(variance + epsilon) + beta, then max(0, .) if relu. In place not allowed. */
FLEXLAB_API tensor_status tensor_batchnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           const double *mean, const double *variance, double epsilon, bool relu)
    FLEXLAB_SYMBOL(tensor_batchnorm);
/* The same with an image of x's shape added before relu: one pass, one rounding (a residual block ends this way). The
 * gradient of r is that of the sum: dy where y is above zero. */
FLEXLAB_API tensor_status tensor_batchnorm_add(tensor *y, const tensor *x, const tensor *r, const tensor *gamma,
                                               const tensor *beta, const double *mean, const double *variance,
                                               double epsilon, bool relu) FLEXLAB_SYMBOL(tensor_batchnorm_add);
/* Gradients of tensor_batchnorm with mean and variance those of x. y is the forward result if relu was set (its zeros
 * mask dy), NULL otherwise. x and dy may not be dx. */
FLEXLAB_API tensor_status tensor_batchnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const double *mean, const double *variance, double epsilon)
    FLEXLAB_SYMBOL(tensor_batchnorm_grad);

/* --- normalisation of rows: over the last dimension --------------------------------------------------------------- */

/* Layer normalisation (Ba et al. 2016): y = gamma (x - mean) / sqrt(variance + epsilon) + beta, mean and population
 * variance those of the n elements of a row, the last dimension; gamma and beta are [n], beta NULL: none. epsilon is a
 * finite number above 0. y is another tensor than the others. Shared-exponent formats: exact sums of mantissas, one
 * square root a row in double, coefficients of 31 bits with exponents of their own, one exact sum and one rounding an
 * element. Float formats: in double, rounded to binary32 and then to the format. The same bits everywhere. */
FLEXLAB_API tensor_status tensor_layernorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           double epsilon) FLEXLAB_SYMBOL(tensor_layernorm);
/* Its gradients, from x as stored: nothing else is kept from forward to backward. dgamma and dbeta are sums over all
 * rows, exact in shared-exponent formats; dbeta NULL: not wanted. What is written is three tensors, none of them an
 * input. */
FLEXLAB_API tensor_status tensor_layernorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, double epsilon)
    FLEXLAB_SYMBOL(tensor_layernorm_grad);
/* Normalisation by the root mean square (Zhang and Sennrich 2019): y = gamma x / sqrt(mean of x^2 + epsilon), and its
 * gradients; otherwise as above. */
FLEXLAB_API tensor_status tensor_rmsnorm(tensor *y, const tensor *x, const tensor *gamma, double epsilon)
    FLEXLAB_SYMBOL(tensor_rmsnorm);
FLEXLAB_API tensor_status tensor_rmsnorm_grad(tensor *dx, tensor *dgamma, const tensor *dy, const tensor *x,
                                              const tensor *gamma, double epsilon) FLEXLAB_SYMBOL(tensor_rmsnorm_grad);

/* --- normalisation of images: across channels, and in groups of them ---------------------------------------------- */

/* Local response normalisation (Krizhevsky et al. 2012, section 3.3): y = x / (k + alpha / size * S)^beta, S the sum of
 * the squares of the channels (the last dimension) c - size / 2 ... c + (size - 1) / 2, as far as there are any. The
 * paper's alpha is the alpha / size of here, which PyTorch and Caffe have too. size 1 to 2^20, alpha finite and 0 or
 * more, beta above 0 and at most 4, k finite and above 0. y is not x. Shared-exponent formats: S exact; all formats:
 * the power and the quotient in double by a fixed sequence (beta 0.75 and 0.5 by square roots, others by own exp and
 * log), rounded once. */
FLEXLAB_API tensor_status tensor_lrn(tensor *y, const tensor *x, int size, float alpha, float beta, float k)
    FLEXLAB_SYMBOL(tensor_lrn);
/* Its gradient dx from dy and the forward input x, in double, rounded once. */
FLEXLAB_API tensor_status tensor_lrn_grad(tensor *dx, const tensor *dy, const tensor *x, int size, float alpha,
                                          float beta, float k) FLEXLAB_SYMBOL(tensor_lrn_grad);
/* Group normalisation (Wu and He 2018): as tensor_layernorm, over the channels of a group and all pixels of an image
 * together. x [N,...,C], gamma and beta (NULL: none) [C]; groups divides C: 1 normalises whole images, C is instance
 * normalisation. Fewer than 2^31 elements of a group and image. Exactness is that of tensor_layernorm; the elements of
 * a group count pixel by pixel. */
FLEXLAB_API tensor_status tensor_groupnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta,
                                           int groups, double epsilon) FLEXLAB_SYMBOL(tensor_groupnorm);
FLEXLAB_API tensor_status tensor_groupnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *gamma, int groups, double epsilon)
    FLEXLAB_SYMBOL(tensor_groupnorm_grad);

/* --- dropout ------------------------------------------------------------------------------------------------------ */

/* Dropout (Srivastava et al. 2014): element i of y is 0, or x times 1 / (1 - p) (rounded to binary32), an exact product
 * rounded once. It is kept where its draw, 32 bits of Philox 4x32-10 with key = key, counter = (the bits of the double
 * in step, i / 4), word = i mod 4, is at least p 2^32 (cut): by nothing else, so that the same call on dy is the
 * gradient, and no mask is stored. 0 <= p < 1. step: f64 [1] on the device of x, read when the operation runs; one that
 * is not finite shows only then: TENSOR_E_ARGUMENT, nothing written. In place allowed. */
FLEXLAB_API tensor_status tensor_dropout(tensor *y, const tensor *x, float p, uint64_t key, const tensor *step)
    FLEXLAB_SYMBOL(tensor_dropout);

/* --- softmax of rows ---------------------------------------------------------------------------------------------- */

/* y = exp(scale x) / sum of exp(scale x) over the last dimension, fewer than 2^31 elements. causal: the last two
 * dimensions are [q, n], and row i of q has the elements 0 ... i + n - q alone; the others are no elements: they are
 * not read, and y is 0 there (a row without elements is all 0). Computed in double by a fixed sequence of IEEE
 * operations and rounded once. In place allowed. A shared-exponent y takes its exponent as any write does; to have it
 * fixed at 14, as probabilities may: tensor_set_predictor(y, "fixed") and tensor_set_exponent(y, 14). */
FLEXLAB_API tensor_status tensor_softmax(tensor *y, const tensor *x, float scale, bool causal)
    FLEXLAB_SYMBOL(tensor_softmax);
/* dx = scale y (dy - sum of y dy), from y as stored. Shared-exponent formats: exact, rounded once. Float formats: in
 * double. What is masked is 0. */
FLEXLAB_API tensor_status tensor_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale, bool causal)
    FLEXLAB_SYMBOL(tensor_softmax_grad);
/* y = scale x - log of sum of exp(scale x), and dx = scale (dy - exp(y) sum of dy); in double, rounded once. */
FLEXLAB_API tensor_status tensor_log_softmax(tensor *y, const tensor *x, float scale)
    FLEXLAB_SYMBOL(tensor_log_softmax);
FLEXLAB_API tensor_status tensor_log_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale)
    FLEXLAB_SYMBOL(tensor_log_softmax_grad);

/* --- embedding ---------------------------------------------------------------------------------------------------- */

/* Row i of y, [..., n], is row indices[i] of table, [rows, n]; indices: i32, one for each row of y, on the device of
 * the others. The values are those of the table, stored as the results of any write. An index out of range is
 * TENSOR_E_ARGUMENT, at once on the host and from the next wait elsewhere; nothing is written. */
FLEXLAB_API tensor_status tensor_embedding(tensor *y, const tensor *table, const tensor *indices)
    FLEXLAB_SYMBOL(tensor_embedding);
/* Row r of dtable is the sum of the rows of dy whose index is r; 0 where there is none. Shared-exponent formats: exact
 * integer sums, one rounding, one exponent for the table. Float formats: binary32 chains of 512 rows of dy, in the
 * order of their positions, added in order in double. */
FLEXLAB_API tensor_status tensor_embedding_grad(tensor *dtable, const tensor *dy, const tensor *indices)
    FLEXLAB_SYMBOL(tensor_embedding_grad);

/* --- other orders of elements ------------------------------------------------------------------------------------- */

/* Values are copied exactly, and stored as the results of any write: in shared-exponent formats at the exponent of y,
 * rounded where it is coarser. y is another tensor than its inputs. */

/* Dimension d of y is dimension order[d] of x: a transpose is {1, 0}. order has each dimension of x once. The gradient
 * is the permutation back. */
FLEXLAB_API tensor_status tensor_permute(tensor *y, const tensor *x, const int *order) FLEXLAB_SYMBOL(tensor_permute);
/* The indices first, first + 1, ... of dimension dim of x, as many as y has. Its gradient: dy there, 0 elsewhere. */
FLEXLAB_API tensor_status tensor_slice(tensor *y, const tensor *x, int dim, int64_t first) FLEXLAB_SYMBOL(tensor_slice);
FLEXLAB_API tensor_status tensor_slice_grad(tensor *dx, const tensor *dy, int dim, int64_t first)
    FLEXLAB_SYMBOL(tensor_slice_grad);
/* a, b and c (NULL: two parts) one after the other along dimension dim, each with its own exponent, in one write. The
 * gradient of each part is a slice. */
FLEXLAB_API tensor_status tensor_concat(tensor *y, const tensor *a, const tensor *b, const tensor *c, int dim)
    FLEXLAB_SYMBOL(tensor_concat);

/* y = x, whose elements may lie at strides (tensor_new_strided), side by side. */
FLEXLAB_API tensor_status tensor_contiguous(tensor *y, const tensor *x) FLEXLAB_SYMBOL(tensor_contiguous);

/* --- recurrent networks --------------------------------------------------------------------------------------------
 *
 * One step of a long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000) of N
 * sequences and H units. gates [N, 4H]: what enters the gates i, f, g, o, H columns each; c, h [N, H]. With s the
 * logistic function:
 *     c = s(f) c_before + s(i) tanh(g)        h = s(o) tanh(c)
 * One step of a gated recurrent unit (Cho et al. 2014, the reset gate behind the product, as cuDNN has it): x_gates and
 * h_gates [N, 3H], the parts of the input and of the state of what enters r, z, n:
 *     r = s(x_r + h_r)   z = s(x_z + h_z)   n = tanh(x_n + r h_n)   h = (1 - z) n + z h_before
 *
 * In every format each result is computed from the stored operands in double, by one fixed sequence of operations with
 * an exponential of its own (docs/recurrent.md), and rounded once; float formats by way of binary32. Same bits on every
 * backend. TENSOR_E_SHAPE for shapes other than these; outputs are other tensors than inputs but where it is said. */

FLEXLAB_API tensor_status tensor_lstm_cell(tensor *c, const tensor *gates, const tensor *c_before)
    FLEXLAB_SYMBOL(tensor_lstm_cell);
FLEXLAB_API tensor_status tensor_lstm_hidden(tensor *h, const tensor *gates, const tensor *c)
    FLEXLAB_SYMBOL(tensor_lstm_hidden);
/* The gradient of c, all paths together: dh s(o) (1 - tanh(c)^2) + dc_after s(f_after). dc_after and gates_after are
 * those of the step after this one, both NULL for the last step; dc may be dc_after. */
FLEXLAB_API tensor_status tensor_lstm_cell_grad(tensor *dc, const tensor *dh, const tensor *gates, const tensor *c,
                                                const tensor *dc_after, const tensor *gates_after)
    FLEXLAB_SYMBOL(tensor_lstm_cell_grad);
/* The gradients of what enters the gates. */
FLEXLAB_API tensor_status tensor_lstm_gates_grad(tensor *dgates, const tensor *dh, const tensor *dc,
                                                 const tensor *gates, const tensor *c, const tensor *c_before)
    FLEXLAB_SYMBOL(tensor_lstm_gates_grad);
FLEXLAB_API tensor_status tensor_gru_hidden(tensor *h, const tensor *x_gates, const tensor *h_gates,
                                            const tensor *h_before) FLEXLAB_SYMBOL(tensor_gru_hidden);
/* The gradients of x_gates, and of h_gates. */
FLEXLAB_API tensor_status tensor_gru_input_grad(tensor *dx_gates, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *h_before)
    FLEXLAB_SYMBOL(tensor_gru_input_grad);
FLEXLAB_API tensor_status tensor_gru_gates_grad(tensor *dh_gates, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *h_before)
    FLEXLAB_SYMBOL(tensor_gru_gates_grad);
/* What reaches h_before around the product: dh z + dy, dy (NULL: nothing) what reaches it from elsewhere. */
FLEXLAB_API tensor_status tensor_gru_state_grad(tensor *ds, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_gru_state_grad);

/* Whole sequences of T steps, time first. A tensor over time is one write: one exponent, set before the first step and
 * learned from after the last, statistics over all of it. Where the exponent is not that of a history (a first write;
 * "current"), the sequence is run again at the exponents that its maxima ask for, until they are those that it ran at,
 * at most four times. What is written must not round stochastically (TENSOR_E_ARGUMENT).
 *
 * x [T, N, 4H]: the products of the inputs with their weights, bias included; u [H, 4H]. Gates of step t are h of the
 * step before times u, plus x of the step, rounded once. h0, c0 [N, H]: before the first step. Results, all kept for
 * the gradient: h, c [T, N, H], gates [T, N, 4H]. */
FLEXLAB_API tensor_status tensor_lstm(tensor *h, tensor *c, tensor *gates, const tensor *x, const tensor *u,
                                      const tensor *h0, const tensor *c0) FLEXLAB_SYMBOL(tensor_lstm);
/* Back through time, for a sequence that began at h0 = c0 = zero, a tensor of zeros [N, H]. dy [T, N, H]: the gradient
 * of h from outside; dx [T, N, 4H]; du one exact sum over all steps. dh and dc [N, H] keep the exponents of the
 * gradients of h and c; of their values those of the first step remain (dh: of step 0 where T > 1). */
FLEXLAB_API tensor_status tensor_lstm_grad(tensor *dx, tensor *du, tensor *dh, tensor *dc, const tensor *dy,
                                           const tensor *h, const tensor *c, const tensor *gates, const tensor *u,
                                           const tensor *zero) FLEXLAB_SYMBOL(tensor_lstm_grad);
/* x [T, N, 3H], u [H, 3H], bias [3H] of the products with u. Kept for the gradient: h [T, N, H], h_gates [T, N, 3H]. */
FLEXLAB_API tensor_status tensor_gru(tensor *h, tensor *h_gates, const tensor *x, const tensor *u, const tensor *bias,
                                     const tensor *h0) FLEXLAB_SYMBOL(tensor_gru);
/* As tensor_lstm_grad; dh_gates [T, N, 3H]; dbias [3H], the sum of its rows; dh and ds [N, H], the gradient of h and
 * its part around the product. */
FLEXLAB_API tensor_status tensor_gru_grad(tensor *dx, tensor *dh_gates, tensor *du, tensor *dbias, tensor *dh,
                                          tensor *ds, const tensor *dy, const tensor *h, const tensor *h_gates,
                                          const tensor *x, const tensor *u, const tensor *zero)
    FLEXLAB_SYMBOL(tensor_gru_grad);

/* --- softmax with cross-entropy ----------------------------------------------------------------------------------- */

/* x [N, classes], labels N entries in 0 ... classes-1. loss: mean over N of -log softmax(x)[label]. dx (NULL: not
 * wanted): gradient_scale * (softmax - onehot) / N. predicted (NULL: not wanted): the first largest class of each row.
 * Computed in double by a fixed sequence of IEEE operations, dx rounded once. */
FLEXLAB_API tensor_status tensor_softmax_cross_entropy(double *loss, tensor *dx, int32_t *predicted, const tensor *x,
                                                       const int32_t *labels, double gradient_scale)
    FLEXLAB_SYMBOL(tensor_softmax_cross_entropy);

/* --- the same with numbers as tensors ----------------------------------------------------------------------------- */

/* What the operations above take and give as host arrays, as tensors of FMT_F64 and FMT_I32 on the device of the
 * others: a training step then hands nothing to the host. Same definitions, same bits. mean, variance and running ones:
 * f64 [C]. loss: f64 [1]; labels, predicted (NULL: not wanted): i32 [N]; correct (NULL: not wanted): i32 [1], how many
 * of the predicted classes are the labels. */
FLEXLAB_API tensor_status tensor_moments(tensor *mean, tensor *variance, const tensor *x)
    FLEXLAB_SYMBOL(tensor_moments);
/* tensor_batchnorm, or with a residual (NULL: none) tensor_batchnorm_add. */
FLEXLAB_API tensor_status tensor_normalise(tensor *y, const tensor *x, const tensor *residual, const tensor *gamma,
                                           const tensor *beta, const tensor *mean, const tensor *variance,
                                           double epsilon, bool relu) FLEXLAB_SYMBOL(tensor_normalise);
FLEXLAB_API tensor_status tensor_normalise_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy,
                                                const tensor *x, const tensor *y, const tensor *gamma,
                                                const tensor *mean, const tensor *variance, double epsilon)
    FLEXLAB_SYMBOL(tensor_normalise_grad);
/* running += momentum (of the batch - running), in double, for mean and variance; the variance of the batch counts as
 * unbiased, times n / (n - 1), n the rows of x (where there is more than one). */
FLEXLAB_API tensor_status tensor_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                                    const tensor *variance, const tensor *x, double momentum)
    FLEXLAB_SYMBOL(tensor_running_statistics);
FLEXLAB_API tensor_status tensor_cross_entropy(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                               const tensor *x, const tensor *labels, double gradient_scale)
    FLEXLAB_SYMBOL(tensor_cross_entropy);
/* With the gradient scale in a tensor too, f64 [1], read when the operation runs. One that is not finite shows only
 * then: TENSOR_E_ARGUMENT, nothing written, at once on the host and from the next wait elsewhere. */
FLEXLAB_API tensor_status tensor_cross_entropy_by(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                                  const tensor *x, const tensor *labels, const tensor *gradient_scale)
    FLEXLAB_SYMBOL(tensor_cross_entropy_by);

/* --- losses --------------------------------------------------------------------------------------------------------
 */

/* Losses over x, in double by a fixed sequence (docs/losses.md), the same bits on every backend. loss: f64 [1]. dx
 * (NULL: not wanted): the gradient of gradient_scale times the loss, of x's format and shape, rounded once; dx may be
 * x. labels: i32, one a row, x's first dimension. targets: of x's shape, in its format or as numbers of f64 or f32. All
 * on one device. Errors: TENSOR_E_ARGUMENT for NULL, a scale that is not finite, an option that the loss has not, or is
 * out of range; TENSOR_E_SHAPE and TENSOR_E_FORMAT where a tensor is not as described. A label out of range and a scale
 * in a tensor that is not finite show when the operation runs: TENSOR_E_ARGUMENT, dx as it was, at once on the host and
 * from the next wait elsewhere. */
typedef struct tensor_loss_options {
    const tensor *gradient_scale; /* f64 [1], read when the operation runs, in place of the number; NULL: the number */
    /* Of cross-entropy, all zero: none. class_weights, f64 [classes]: what a class counts, and a row by its label. */
    const tensor *class_weights;
    float
        label_smoothing; /* 0 to 1 (Szegedy et al. 2016, section 7): this part of a target goes to all classes alike */
    int32_t ignored_label; /* rows of this label count nothing, where ignores is set; any number */
    bool ignores;
    unsigned char unused[7]; /* no padding at the end, which nobody would set */
} tensor_loss_options;

FLEXLAB_API tensor_status tensor_cross_entropy_with_sized(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                                          const tensor *x, const tensor *labels, double gradient_scale,
                                                          const tensor_loss_options *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_cross_entropy_with_sized);
/* tensor_cross_entropy with options, its bits where none is set. x [N, classes]. With s the smoothing, K classes, w
 * their weights, a row has the shares q[c] = w[c] ((1 - s) [c is the label] + s / K) and the loss - sum of q[c]
 * log softmax(x)[c], in which a class without a share takes no part; the mean divides by the sum of w[label] of the
 * rows that count. Where that is 0, as of a batch whose labels are all ignored, loss and gradient are 0. predicted has
 * every row; correct counts none that is ignored. */
static inline tensor_status tensor_cross_entropy_with(tensor *loss, tensor *dx, tensor *predicted, tensor *correct,
                                                      const tensor *x, const tensor *labels, double gradient_scale,
                                                      tensor_loss_options how) {
    return tensor_cross_entropy_with_sized(loss, dx, predicted, correct, x, labels, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_cross_entropy_targets_sized(tensor *loss, tensor *dx, tensor *predicted,
                                                             const tensor *x, const tensor *targets,
                                                             double gradient_scale, const tensor_loss_options *how,
                                                             size_t how_size)
    FLEXLAB_SYMBOL(tensor_cross_entropy_targets_sized);
/* The same with targets [N, classes] for the shares: q[c] = w[c] ((1 - s) targets[c] + s / K), any numbers; the mean
 * divides by N. No label is ignored. */
static inline tensor_status tensor_cross_entropy_targets(tensor *loss, tensor *dx, tensor *predicted, const tensor *x,
                                                         const tensor *targets, double gradient_scale,
                                                         tensor_loss_options how) {
    return tensor_cross_entropy_targets_sized(loss, dx, predicted, x, targets, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_squared_error_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                                     double gradient_scale, const tensor_loss_options *how,
                                                     size_t how_size) FLEXLAB_SYMBOL(tensor_squared_error_sized);
/* The mean over all elements of (x - target)^2. */
static inline tensor_status tensor_squared_error(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                                 double gradient_scale, tensor_loss_options how) {
    return tensor_squared_error_sized(loss, dx, x, targets, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_huber_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *targets,
                                             float delta, double gradient_scale, const tensor_loss_options *how,
                                             size_t how_size) FLEXLAB_SYMBOL(tensor_huber_sized);
/* The mean over all elements, d = x - target, of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2) (Huber 1964).
 * delta above 0. */
static inline tensor_status tensor_huber(tensor *loss, tensor *dx, const tensor *x, const tensor *targets, float delta,
                                         double gradient_scale, tensor_loss_options how) {
    return tensor_huber_sized(loss, dx, x, targets, delta, gradient_scale, &how, sizeof how);
}
FLEXLAB_API tensor_status tensor_wasserstein_sized(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                                   double gradient_scale, const tensor_loss_options *how,
                                                   size_t how_size) FLEXLAB_SYMBOL(tensor_wasserstein_sized);
/* A critic's loss (Arjovsky et al. 2017, equation 3): the mean of x over the elements of rows of label 0, generated,
 * less that over rows of label 1, real; rows may be ignored. Its negative estimates the distance. A mean over no rows
 * is 0: with generated rows labelled 1 and no others, it is the loss of their generator. Shared-exponent formats: exact
 * sums, each rounded once to double. */
static inline tensor_status tensor_wasserstein(tensor *loss, tensor *dx, const tensor *x, const tensor *labels,
                                               double gradient_scale, tensor_loss_options how) {
    return tensor_wasserstein_sized(loss, dx, x, labels, gradient_scale, &how, sizeof how);
}

/* --- stochastic gradient descent with momentum -------------------------------------------------------------------- */

/* v = momentum * v + g + weight_decay * w, one exact result rounded once. v and g count as stored, w as its wide part
 * if it has one. */
FLEXLAB_API tensor_status tensor_sgd_momentum(tensor *v, const tensor *g, const tensor *w, float momentum,
                                              float weight_decay) FLEXLAB_SYMBOL(tensor_sgd_momentum);
/* w = w - rate * v, one exact result rounded once: into the wide part of w if there is one (the elements are then its
 * rounding), else into w. v counts as stored, w as its wide part if it has one. */
FLEXLAB_API tensor_status tensor_sgd_update(tensor *w, const tensor *v, float rate) FLEXLAB_SYMBOL(tensor_sgd_update);
/* The same with the rate in a tensor, f32 [1] on the device of w, which is read when the update runs: what is loaded
 * into it later, in the order of the queue, does not count. Same definition, same bits. A negative rate is arithmetic
 * as any other. One that is not finite shows only when the update runs: TENSOR_E_ARGUMENT, w as it was, at once on the
 * host and from the next wait elsewhere. */
FLEXLAB_API tensor_status tensor_sgd_update_by(tensor *w, const tensor *v, const tensor *rate)
    FLEXLAB_SYMBOL(tensor_sgd_update_by);

/* --- optimisers that keep more than a velocity ---------------------------------------------------------------------
 */

/* Adam, AdamW, RMSProp, Adagrad and LAMB are made of the operations below; docs/optimisers.md says how. Their factors
 * stand in a tensor f64 [rows, 4] on the device of the others, a row an operation, and are read when the operation
 * runs: a step of a network can then be recorded once and run again with other numbers. Shared-exponent formats want
 * factors that are finite as binary32: else TENSOR_E_ARGUMENT when the operation runs, nothing written, at once on the
 * host and from the next wait elsewhere. Other errors: TENSOR_E_ARGUMENT for NULL, tensors on several devices, a row
 * that is not there; TENSOR_E_FORMAT, TENSOR_E_SHAPE where the operands differ in format or shape, or the factors are
 * no such tensor. An operand that counts as its wide part does where it has one. An output that is the first operand
 * has its wide part written, of which the elements are the rounding. */

/* y = a p + b q + c w with a, b, c the first three numbers of the row as binary32: one exact result, rounded once. p
 * and w count as their wide parts, q as stored. w may be NULL: nothing is added. y may be p or q. Rounded to nearest in
 * 16 bits, y = a y + 0 with 0 < a < 1 stops below 1 / (2 (1 - a)) steps; a moment wants a wide part, or stochastic
 * rounding. A factor of 0 times Inf is NaN, as in IEEE 754. */
FLEXLAB_API tensor_status tensor_combine(tensor *y, const tensor *p, const tensor *q, const tensor *w,
                                         const tensor *factors, int row) FLEXLAB_SYMBOL(tensor_combine);
/* r = sqrt(a r^2 + b (c g)^2), in double: x = c g, then a (r r) + b (x x), then the root (0 of a sum below zero), each
 * rounded once to double; the root is rounded once. r counts as its wide part, g as stored. In place alone. A state
 * that stops moving is refused, TENSOR_E_ARGUMENT: r of 16 bits without a wide part, but in shared-exponent formats
 * with stochastic rounding. */
FLEXLAB_API tensor_status tensor_root_mean(tensor *r, const tensor *g, const tensor *factors, int row)
    FLEXLAB_SYMBOL(tensor_root_mean);
/* y = a w + b m / (c r + d), in double: a w; b m; c r + d; the quotient; the sum; rounded once. Where b m is 0: a w.
 * w, m and r count as their wide parts; in a shared-exponent format r as at least one step of what holds it, 2^-e or
 * 2^-(e + 16) of a wide part, and a quotient by zero as the largest double. y may be w. TENSOR_E_ARGUMENT where r is
 * refused as by tensor_root_mean, and where m has a wide part and r none. */
FLEXLAB_API tensor_status tensor_add_ratio(tensor *y, const tensor *w, const tensor *m, const tensor *r,
                                           const tensor *factors, int row) FLEXLAB_SYMBOL(tensor_add_ratio);
/* Number `index` of sums, f64 of any shape, becomes the sum of the squares of x's elements as stored. Shared-exponent
 * formats: exact, rounded once to double. Float formats: in double, by chunks of 4096 elements, which eight chains i
 * mod 8 make, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)); chunks are added in order. */
FLEXLAB_API tensor_status tensor_sum_squares(tensor *sums, int64_t index, const tensor *x)
    FLEXLAB_SYMBOL(tensor_sum_squares);

/* tensor_clip with the limit in a tensor, f32 [1], as tensor_sgd_update_by has its rate. */
FLEXLAB_API tensor_status tensor_clip_by(tensor *y, const tensor *x, const tensor *limit)
    FLEXLAB_SYMBOL(tensor_clip_by);
/* Each element of w becomes the nearest number of at most `limit` in size, rounded once: its wide part, where there is
 * one, of which the elements are then the rounding. What is inside stays what it is, down to the last place of the wide
 * part at the exponent of this write; tensor_clip of w into itself would leave the wide part no more than the elements.
 * limit 0 or more. */
FLEXLAB_API tensor_status tensor_clip_weight(tensor *w, float limit) FLEXLAB_SYMBOL(tensor_clip_weight);

typedef enum tensor_optimiser_kind {
    TENSOR_OPTIMISER_SGD = 0,
    TENSOR_OPTIMISER_ADAM = 1,
    TENSOR_OPTIMISER_ADAMW = 2,
    TENSOR_OPTIMISER_RMSPROP = 3,
    TENSOR_OPTIMISER_ADAGRAD = 4,
    TENSOR_OPTIMISER_LAMB = 5
} tensor_optimiser_kind;

/* What the numbers of a step follow from. */
typedef struct tensor_optimiser {
    tensor_optimiser_kind kind;
    float beta1, beta2;      /* 0 or more, below 1: of the moment and of the mean square */
    float epsilon;           /* 0 or more */
    float weight_decay;      /* 0 or more */
    float clip_norm;         /* gradients are scaled down to this norm of all together; 0: never */
    float momentum;          /* of SGD and RMSProp: 0 or more, below 1 */
    unsigned char unused[4]; /* no padding at the end, which nobody would set */
} tensor_optimiser;

/* Rows of the numbers of a step, f64 [TENSOR_STEP_ROWS, 4]: docs/optimisers.md has the formula of each. */
enum tensor_step_row {
    TENSOR_STEP_STATE = 0, /* steps so far, beta1^steps, beta2^steps, the factor of clipping */
    TENSOR_STEP_HOW = 1,   /* two rows: kind, beta1, beta2, epsilon; weight decay, norm, momentum, the last rate */
    TENSOR_STEP_MOMENT = 3,
    TENSOR_STEP_ROOT = 4,
    TENSOR_STEP_WEIGHT = 5,
    TENSOR_STEP_WEIGHT_UNDECAYED = 6, /* the same for parameters that do not decay */
    TENSOR_STEP_DIRECTION = 7,
    TENSOR_STEP_DIRECTION_UNDECAYED = 8,
    TENSOR_STEP_ROWS = 9
};

FLEXLAB_API tensor_status tensor_optimiser_begin_sized(tensor *numbers, const tensor_optimiser *how, size_t how_size)
    FLEXLAB_SYMBOL(tensor_optimiser_begin_sized);
/* The numbers before the first step. TENSOR_E_ARGUMENT where a value is outside of its range. */
static inline tensor_status tensor_optimiser_begin(tensor *numbers, const tensor_optimiser *how) {
    return tensor_optimiser_begin_sized(numbers, how, sizeof *how);
}
/* The numbers of the next step, in one fixed sequence of double operations: powers by one more multiplication, all
 * factors of the rows. rate: f32 [1], as of tensor_sgd_update_by. sums (NULL: nothing is clipped): f64, squares of all
 * gradients, which are added in order. */
FLEXLAB_API tensor_status tensor_optimiser_step(tensor *numbers, const tensor *rate, const tensor *sums)
    FLEXLAB_SYMBOL(tensor_optimiser_step);
/* The same for gradients of a loss times a scale, and sums of their squares: the factors take it out again. scale: f64
 * [1], a power of two, which leaves every rounding where it was. d of an optimiser whose decay is in the gradient stays
 * scaled, as the gradient is. SGD has three rows more, by which a velocity counts as its wide part
 * (docs/optimisers.md).
 */
FLEXLAB_API tensor_status tensor_optimiser_step_scaled(tensor *numbers, const tensor *rate, const tensor *sums,
                                                       const tensor *scale)
    FLEXLAB_SYMBOL(tensor_optimiser_step_scaled);
/* to, f32 [1], becomes rate * sqrt(sums[0] / sums[1]) by roots and quotient in double; rate where either sum is zero
 * or NaN, or the result is not finite as binary32. LAMB: sums (f64 [2]) are the squares of a weight and of its
 * direction. */
FLEXLAB_API tensor_status tensor_trust_rate(tensor *to, const tensor *rate, const tensor *sums)
    FLEXLAB_SYMBOL(tensor_trust_rate);

/* --- what runs ---------------------------------------------------------------------------------------------------- */

/* Operations are listed by name ("add", "matmul", ...); NULL past the last. */
FLEXLAB_API const char *tensor_op_list(int i) FLEXLAB_SYMBOL(tensor_op_list);
/* The backend ("ref", "portable", "avx2", "avx512bw", "avx512", "avx512_amx"; "avx512_fast", "avx512_amx_fast") whose
 * kernel runs `op` on `format` on this machine, in the class of this thread; NULL if unknown. FLEXLAB_ISA caps it;
 * tensor_set_backend caps it from a program (NULL: no cap). A cap that the machine does not reach is allowed: then the
 * best that it has runs. Where the answer may be a kernel on the tiles of AMX, the system is asked for the permission
 * to use them (docs/embedding.md). */
FLEXLAB_API const char *tensor_kernel_backend(tensor_format format, const char *op)
    FLEXLAB_SYMBOL(tensor_kernel_backend);
/* The cap for all threads of the process; TENSOR_E_ARGUMENT for an unknown name. */
FLEXLAB_API tensor_status tensor_set_backend(const char *name) FLEXLAB_SYMBOL(tensor_set_backend);

/* What the results of the calling thread's operations promise. Each thread has its own class, exact at its start. */
typedef enum tensor_class {
    TENSOR_EXACT = 0, /* the bits of docs/semantics.md, everywhere */
    TENSOR_FAST = 1   /* kernels may use instructions whose sums have no defined order: results may differ between
                       * processors, not between thread counts. An operation without such a kernel on this processor, or
                       * under this cap, gives the exact bits. So far: bf16 matmul and convolution on the tiles of AMX
                       * (backend "avx512_amx_fast"), matmul by AVX512_BF16 ("avx512_fast"): docs/semantics.md. */
} tensor_class;
#define FLEXLAB_HAS_FAST_BF16 1
/* TENSOR_E_ARGUMENT for any other value. */
FLEXLAB_API tensor_status tensor_set_class(tensor_class c) FLEXLAB_SYMBOL(tensor_set_class);
/* The class of the calling thread. */
FLEXLAB_API tensor_class tensor_get_class(void) FLEXLAB_SYMBOL(tensor_get_class);
/* Threads used by every operation, at most 256; results do not depend on it. 0: as many as OMP_NUM_THREADS says (or
 * OpenMP, where the library is built with it, and the caller's program has set another number); without it, or where it
 * is no number from 1 to 256, one a processor. TENSOR_E_ARGUMENT for any other number. Where the system refuses
 * threads, operations go on with those that they got; tensor_set_threads asks it anew. */
FLEXLAB_API tensor_status tensor_set_threads(int threads) FLEXLAB_SYMBOL(tensor_set_threads);
/* How many that is now, at least 1. */
FLEXLAB_API int tensor_threads(void) FLEXLAB_SYMBOL(tensor_threads);
/* Why that is not what was asked for, in one line for the user: OMP_NUM_THREADS is no such number, or the system
 * refused threads (known once an operation wanted them). "" where all is as asked. Valid until the next call on this
 * thread. FLEXLAB_VERBOSE=1 writes it on standard error. */
FLEXLAB_API const char *tensor_threads_notice(void) FLEXLAB_SYMBOL(tensor_threads_notice);

#ifdef __cplusplus
}
#endif
#endif
