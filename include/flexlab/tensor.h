/* tensor.h - number formats, tensors, and the operations on them. Start here: this page has the rules that hold for
 * every function; the headers at its end declare the functions, a subject each.
 *
 *     tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(64, 128));
 *     tensor *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(128, 10));
 *     tensor *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(64, 10));
 *     tensor_load_f32(x, pixels, 64 * 128);
 *     tensor_load_f32(w, weights, 128 * 10);
 *     if (tensor_matmul(y, x, w)) fprintf(stderr, "%s\n", tensor_error());
 *     tensor_store_f32(y, logits, 64 * 10);
 *     tensor_free(x), tensor_free(w), tensor_free(y);
 *
 * A tensor has a format, a shape and elements. A float format (fp32, fp16, bf16) stores each element as a float; a
 * shared-exponent format (flex16+5, dfp16) stores int16 mantissas under one exponent e, where a mantissa m stands for
 * m * 2^-e, and a predictor chooses e for each write (autoflex.h). Floats may be under such an exponent too
 * (tensor:e4m3fn): what is said of exponents holds for them, but their arithmetic is that of float formats. Operations
 * write into tensors that the caller has made.
 *
 * Conventions that hold for every function
 *  - Arguments: the results of an operation come first.
 *  - Shapes are row-major; the last dimension is contiguous. Images are [N, H, W, C], filters [K, R, S, C], the weights
 *    of a linear layer [in, out] (y = x w). tensor_new_view flattens an image in the order H, W, C.
 *  - Formats: all tensors of one call share one format; tensor_convert converts between formats. Matmul and convolution
 *    accept operands of different formats: see tensor_matmul.
 *  - Errors: a function that fails returns a status (status.h), sets tensor_error() and leaves its outputs as they
 *    were.
 *  - In place: elementwise operations may run in place (y == x). For matmul, convolution, pooling and sums the output
 *    must be another tensor than the inputs (except a residual, see tensor_epilogue). Two tensors that tensor_new_on
 *    made in overlapping memory do not count as one tensor: a call that writes one of them and reads or writes the
 *    other is TENSOR_E_ARGUMENT.
 *  - Exactness, shared-exponent formats: the result is the mathematical result at the output's exponent, rounded once
 *    (to nearest, ties to even) and saturated to +-32767. Float formats: results are computed in binary32 (sums by one
 *    chain of fused multiply-adds with k ascending for each chunk of 512 terms, the sums of the chunks added in order)
 *    and rounded once when they are stored. Both give identical bits for every backend and thread count.
 *    docs/semantics.md is the full contract; a function whose rule differs states it at its declaration.
 *  - Saturation, flush to zero, NaN and Inf are data, not errors: tensor_statistics counts them.
 *  - Scalars (alpha, learning rate, ...) are binary32 and used exactly as given: 24-bit integers times a power of two.
 *  - Threads: one thread at a time may use a tensor; different threads may use different tensors. All tensors of one
 *    device other than the host together belong to one thread at a time. Settings of the process (tensor_set_threads,
 *    tensor_set_backend, tensor_set_error_hook) may change while other threads compute: an operation under way
 *    continues with the old setting, or takes the new one from its next pass on, with the same bits. tensor_set_class
 *    acts on the calling thread only. tensor_set_allocator must come before every other call.
 *  - Options: in a struct of options, zero means the default for every member, and NULL in place of the struct means
 *    all defaults: &(tensor_window){.stride = {2, 2}}. Later versions may add members.
 *  - Processes: the child of a fork() may compute, with threads of its own. fork() copies tensors and graphs; one that
 *    another thread was writing at that moment is lost to the child. A data_loader stays with the parent. (A child of
 *    _Fork() or clone() that does not call exec must not use the library.) */
#ifndef FLEXLAB_TENSOR_H
#define FLEXLAB_TENSOR_H

/* The headers by subject; each can also be included by itself. */
#include "flexlab/tensor_life.h"        /* formats, devices; creating, viewing and freeing tensors */
#include "flexlab/tensor_values.h"      /* loads, stores, conversion, exponents, rounding, wide parts */
#include "flexlab/tensor_quantise.h"    /* what values become in block formats, and in others */
#include "flexlab/tensor_statistics.h"  /* statistics of writes; descriptions of elements */
#include "flexlab/tensor_elementwise.h" /* elementwise operations (listed in ops.def); dropout */
#include "flexlab/tensor_products.h"    /* bias, matmul */
#include "flexlab/tensor_windows.h"     /* convolution, transposed convolution, pooling; in 1d and 2d */
#include "flexlab/tensor_axes.h"        /* reductions over dimensions; broadcast operands; choices */
#include "flexlab/tensor_norms.h"       /* batch, layer, RMS, local response and group normalisation */
#include "flexlab/tensor_losses.h"      /* softmax, cross-entropy and other losses */
#include "flexlab/tensor_copies.h"      /* embedding; permutations, slices, concatenation */
#include "flexlab/tensor_recurrent.h"   /* LSTM and GRU */
#include "flexlab/tensor_backend.h"     /* which kernels run, what they promise, and how many threads */

#endif
