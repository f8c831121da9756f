/* tensor_life.h - formats and devices; making, viewing and freeing tensors. A part of tensor.h, whose conventions hold.
 */
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
FLEXLAB_API const char *tensor_format_name(tensor_format format);
/* The format of that name; TENSOR_E_ARGUMENT names the value and lists the known ones. */
FLEXLAB_API tensor_status tensor_format_find(tensor_format *format, const char *name);
/* The i-th format in id order, 0 (FMT_NONE) past the last. */
FLEXLAB_API tensor_format tensor_format_at(int i);
/* Bytes of one element; 0 for an unknown format. */
FLEXLAB_API size_t tensor_format_bytes(tensor_format format);
/* True for formats whose tensors are integer mantissas under one exponent. */
FLEXLAB_API bool tensor_format_is_shared(tensor_format format);

/* --- life ---------------------------------------------------------------------------------------------------------
 * A new tensor holds zeros. 1 to TENSOR_MAX_DIMS dimensions, each at least 1, at most 2^40 bytes in all. */

/* NULL on failure, with tensor_error() set. Free with tensor_free. */
FLEXLAB_API tensor *tensor_new(tensor_format format, int ndim, const int64_t *shape);
/* A tensor over the caller's memory (at least tensor_new's size, 64-byte aligned, kept alive by the caller). The memory
 * is not cleared; the tensor has its own exponent. Memory planners use it: tensors may share memory at different times.
 * One call never takes two tensors in overlapping memory of which it writes one. */
FLEXLAB_API tensor *tensor_new_on(tensor_format format, int ndim, const int64_t *shape, void *memory, size_t bytes);
/* Where tensors lie and operations on them run: "cpu", the host, and what else this build and machine have. All tensors
 * of a call lie on one device. A queue belongs to a device: what a call gives a device other than the host to do may be
 * done later, in the order of the calls; what hands out values (stores, exponents, statistics) waits. Where the device
 * finds an error only then (a number that is not finite), tensor_device_wait or what waits returns it. */
typedef struct tensor_device tensor_device;
/* The i-th, the host first; NULL past the last. */
FLEXLAB_API tensor_device *tensor_device_at(int i);
/* NULL for an unknown name, with tensor_error() naming the known ones. */
FLEXLAB_API tensor_device *tensor_device_find(const char *name);
FLEXLAB_API const char *tensor_device_name(const tensor_device *device);
/* One line for the user about what the device is, its memory as it is now: at most bytes - 1 characters and a zero. */
FLEXLAB_API tensor_status tensor_device_describe(tensor_device *device, char *text, size_t bytes);
/* Returns when all that was submitted is done: the first failure since the last time, if there was one. */
FLEXLAB_API tensor_status tensor_device_wait(tensor_device *device);
/* tensor_new and tensor_new_on there. Memory of a device comes from tensor_device_allocate (64-byte aligned, zeros;
 * NULL on failure) and goes back with tensor_device_release, which waits for the calls before it. */
FLEXLAB_API tensor *tensor_new_in(tensor_device *device, tensor_format format, int ndim, const int64_t *shape);
FLEXLAB_API tensor *tensor_new_at(tensor_device *device, tensor_format format, int ndim, const int64_t *shape,
                                  void *memory, size_t bytes);
FLEXLAB_API void *tensor_device_allocate(tensor_device *device, size_t bytes);
FLEXLAB_API void tensor_device_release(tensor_device *device, void *memory);
/* The device of a tensor. */
FLEXLAB_API tensor_device *tensor_device_of(const tensor *t);

/* Another shape of the same elements: shares memory, exponent, history, statistics and wide part with base, which must
 * outlive it. The number of elements must agree. */
FLEXLAB_API tensor *tensor_new_view(tensor *base, int ndim, const int64_t *shape);
/* Elements of base at strides: element (i, j, ...) is element offset + i stride[0] + j stride[1] + ... of base. A
 * transposed matrix, a slice with steps, a mirrored or a repeated dimension (stride 0, or below 0), without a copy.
 * Memory, exponent and statistics are those of base, which must outlive it. It may be read by the reductions over
 * dimensions, tensor_argmax, tensor_broadcast_add and _mul with their gradients, tensor_where and its gradient, and
 * tensor_contiguous; everything else refuses it, TENSOR_E_ARGUMENT, and nothing writes it. NULL where an element lies
 * outside of base, or base is such a view itself. */
FLEXLAB_API tensor *tensor_new_strided(tensor *base, int ndim, const int64_t *shape, const int64_t *stride,
                                       int64_t offset);
/* NULL is allowed. */
FLEXLAB_API void tensor_free(tensor *t);

/* Format, number of dimensions, sizes and number of elements, as given to tensor_new. */
FLEXLAB_API tensor_format tensor_format_of(const tensor *t);
FLEXLAB_API int tensor_ndim(const tensor *t);
FLEXLAB_API int64_t tensor_dim(const tensor *t, int i); /* 0 when i is out of range */
FLEXLAB_API int64_t tensor_count(const tensor *t);
/* Bytes of the elements, and of the wide part where there is one. */
FLEXLAB_API size_t tensor_bytes(const tensor *t);

#ifdef __cplusplus
}
#endif
#endif
