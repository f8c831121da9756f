/* tensor.h - formats, tensors, operations, statistics: all of it, in parts.
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
 *    bindings call. What is filled in is set to zero first ((tensor_window){.stride = {2, 2}}, in C++ {} and then
 * members). struct autoflex stays as it is. docs/decisions/0014-growing-structs.md.
 *  - The child of a fork() may compute, with threads of its own. Tensors and graphs are copied with the process; one
 *    that another thread was writing at that moment is lost to the child. A data_loader stays with the parent. (A child
 *    of _Fork() or clone() that does not run exec must not use the library.) */
#ifndef FLEXLAB_TENSOR_H
#define FLEXLAB_TENSOR_H

/* The parts; each may be included alone. */
#include "flexlab/tensor_life.h"        /* formats, devices; making, viewing and freeing tensors */
#include "flexlab/tensor_values.h"      /* values in and out, conversion, exponents; how a tensor is written */
#include "flexlab/tensor_statistics.h"  /* what writes came to, what the elements look like */
#include "flexlab/tensor_elementwise.h" /* the rows of ops.def; dropout */
#include "flexlab/tensor_products.h"    /* bias, matmul */
#include "flexlab/tensor_windows.h"     /* convolution, transposed and 1d too; pooling */
#include "flexlab/tensor_axes.h"        /* sums and extremes over dimensions; repeated operands */
#include "flexlab/tensor_norms.h"       /* normalisation by batch, row, neighbouring channels, group */
#include "flexlab/tensor_losses.h"      /* softmax, cross-entropy and other losses */
#include "flexlab/tensor_copies.h"      /* embedding; elements in another order */
#include "flexlab/tensor_recurrent.h"   /* LSTM and GRU */
#include "flexlab/tensor_backend.h"     /* which kernels run, what they promise, on how many threads */

#endif
