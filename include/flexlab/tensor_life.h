/* tensor_life.h - formats and devices; creating, viewing and freeing tensors. Part of tensor.h, whose conventions
 * hold. */
#ifndef FLEXLAB_TENSOR_LIFE_H
#define FLEXLAB_TENSOR_LIFE_H

#include "flexlab/api.h"
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

/* The last two arguments of tensor_new: TENSOR_SHAPE(64, 128). The array of sizes lives as long as the enclosing block;
 * in C++, as long as the expression that contains the call. */
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
 * FMT_DFP16 and those of added folders; tensor_format_find makes others. Ids are stable. */

/* "fp32", "fp16", "bf16", "flex16+5", "dfp16", ...; NULL for an unknown format. */
FLEXLAB_API const char *tensor_format_name(tensor_format format);
/* Finds a format by its name, or makes it from its parameters:
 *     flexN+E    mantissas of N bits (4 to 16) under a shared exponent of E bits (1 to 7), predicted by Autoflex
 *     dfpN       mantissas of N bits under an exponent within -128 ... 127 from the exact maximum of each result
 *     eXmY       floats of X (1 to 8) exponent and Y fraction bits, of at most 16 bits in all, with subnormals. The
 *                largest exponent is Inf and NaN as in IEEE 754; with the suffix fn the code of ones alone is NaN, and
 *                there is no Inf; elements of 6 bits or fewer have neither. The suffix sat: what is too large becomes
 *                the largest number, not Inf or NaN
 *     tensor:eXmY floats eXmY or eXmYfn under one exponent a tensor: element * 2^-e, X at most 7; tensor:intN is dfpN
 * as in "flex12+5", "dfp8", "e4m3fn", "e5m2", "e4m3fnsat" or "e2m1" (the floats of the OCP standards) or "e6m5".
 * Operations, rules and errors of flexN+E and dfpN are those of flex16+5 and dfp16, with +-(2^(N-1) - 1) in place of
 * +-32767; elements are stored in words of 16 bits. Those of eXmY are the ones of fp16 and bf16; elements of at most 8
 * bits are bytes, others words of 16 bits. "e5m10" is fp16, "e8m7" bf16, "e8m23" fp32. TENSOR_E_UNSUPPORTED for floats
 * beyond the range of binary32, in which they compute (e8mYfn). Those of tensor:eXmY are the same, with an exponent
 * that is loaded, predicted, recorded and set as in flex16+5; what is too large, Inf included, becomes the largest
 * number, NaN stays NaN where the element has one. The range of e is such that all numbers are binary32
 * (docs/semantics.md). tensor:eXmY computes on the host alone. The id says the parameters: it is the same in every
 * process. For any other text TENSOR_E_ARGUMENT, with the name and the known ones, or with the position of the first
 * character that fits no such text and what was expected there. */
FLEXLAB_API tensor_status tensor_format_find(tensor_format *format, const char *name);
/* The i-th format of the build in id order, without those that tensor_format_find makes; 0 (FMT_NONE) past the last. */
FLEXLAB_API tensor_format tensor_format_at(int i);
/* Bytes of one element; 0 for an unknown format. */
FLEXLAB_API size_t tensor_format_bytes(tensor_format format);
/* Bits of one element, which may be stored in a wider word: 12 of flex12+5; 0 for an unknown format. */
FLEXLAB_API int tensor_format_bits(tensor_format format);
/* True for formats whose tensors have one exponent, which Autoflex chooses: the elements are mantissas, or floats. */
FLEXLAB_API bool tensor_format_is_shared(tensor_format format);
/* True for those of them whose elements are integer mantissas: sums of their products are exact, and one product takes
 * no mantissas beside floats. */
FLEXLAB_API bool tensor_format_has_mantissas(tensor_format format);
/* The number of characters of a format at the beginning of FORMAT:WORD..., as in lists and policies: those before the
 * first ':', after that of "tensor:"; 0 of NULL. */
FLEXLAB_API size_t tensor_format_extent(const char *text);

/* --- life ---------------------------------------------------------------------------------------------------------
 * A new tensor holds zeros. 1 to TENSOR_MAX_DIMS dimensions, each at least 1, at most 2^40 bytes in all. */

/* NULL on failure, with tensor_error() set. Free with tensor_free. */
FLEXLAB_API tensor *tensor_new(tensor_format format, int ndim, const int64_t *shape);
/* A tensor in the caller's memory, which must be at least as large as that of tensor_new, 64-byte aligned, and
 * outlive the tensor. The memory is not cleared; the tensor has its own exponent. This serves memory planners:
 * tensors may use the same memory at different times, but no call may take two tensors in overlapping memory if it
 * writes one of them. */
FLEXLAB_API tensor *tensor_new_on(tensor_format format, int ndim, const int64_t *shape, void *memory, size_t bytes);
/* A device stores tensors and runs operations on them: "cpu", the host, and what else this build and machine have. All
 * tensors of a call lie on one device. Each device has a queue. A device other than the host may run an operation after
 * the call has returned, in the order of the calls; functions that return values (stores, exponents, statistics) wait
 * for it. If the device finds an error only then (a number that is not finite), tensor_device_wait or the next function
 * that waits returns it. */
typedef struct tensor_device tensor_device;
/* The i-th device, the host first; NULL past the last. */
FLEXLAB_API tensor_device *tensor_device_at(int i);
/* NULL for an unknown name, with tensor_error() naming the known ones. */
FLEXLAB_API tensor_device *tensor_device_find(const char *name);
FLEXLAB_API const char *tensor_device_name(const tensor_device *device);
/* Writes one line for the user that describes the device and its present memory: at most bytes - 1 characters and a
 * terminating zero. */
FLEXLAB_API tensor_status tensor_device_describe(tensor_device *device, char *text, size_t bytes);
/* Waits until the device has done all that was submitted, and returns the first failure since the last wait, if there
 * was one. */
FLEXLAB_API tensor_status tensor_device_wait(tensor_device *device);
/* tensor_new and tensor_new_on on a device. tensor_device_allocate allocates memory of the device (64-byte aligned,
 * zeroed; NULL on failure); tensor_device_release frees it after the calls before it are done. */
FLEXLAB_API tensor *tensor_new_in(tensor_device *device, tensor_format format, int ndim, const int64_t *shape);
FLEXLAB_API tensor *tensor_new_at(tensor_device *device, tensor_format format, int ndim, const int64_t *shape,
                                  void *memory, size_t bytes);
FLEXLAB_API void *tensor_device_allocate(tensor_device *device, size_t bytes);
FLEXLAB_API void tensor_device_release(tensor_device *device, void *memory);
/* The device of a tensor. */
FLEXLAB_API tensor_device *tensor_device_of(const tensor *t);

/* The elements of base in another shape: the view shares memory, exponent, history, statistics and wide part with base,
 * which must outlive it. The number of elements must agree. */
FLEXLAB_API tensor *tensor_new_view(tensor *base, int ndim, const int64_t *shape);
/* Elements of base at strides: element (i, j, ...) of the view is element offset + i stride[0] + j stride[1] + ... of
 * base. This gives a transposed matrix, a slice with steps, a mirrored dimension (negative stride) or a repeated one
 * (stride 0) without a copy. Memory, exponent and statistics are those of base, which must outlive the view. The
 * reductions over dimensions, tensor_argmax, tensor_broadcast_add and tensor_broadcast_mul with their gradients,
 * tensor_where and its gradient, and tensor_contiguous read such views; every other function refuses them with
 * TENSOR_E_ARGUMENT, and none writes them. NULL if an element would lie outside base, or if base is itself such a
 * view. */
FLEXLAB_API tensor *tensor_new_strided(tensor *base, int ndim, const int64_t *shape, const int64_t *stride,
                                       int64_t offset);
/* Frees the tensor. NULL is allowed. */
FLEXLAB_API void tensor_free(tensor *t);

/* Format, number of dimensions, sizes and number of elements. */
FLEXLAB_API tensor_format tensor_format_of(const tensor *t);
FLEXLAB_API int tensor_ndim(const tensor *t);
FLEXLAB_API int64_t tensor_dim(const tensor *t, int i); /* 0 when i is out of range */
FLEXLAB_API int64_t tensor_count(const tensor *t);
/* Bytes of the elements, plus those of the wide part if there is one. */
FLEXLAB_API size_t tensor_bytes(const tensor *t);

#ifdef __cplusplus
}
#endif
#endif
