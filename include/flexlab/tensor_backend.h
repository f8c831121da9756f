/* tensor_backend.h - which kernels run, what their results promise, and how many threads compute. Part of tensor.h,
 * whose conventions hold. */
#ifndef FLEXLAB_TENSOR_BACKEND_H
#define FLEXLAB_TENSOR_BACKEND_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The names of the operations ("add", "matmul", ...) by index; NULL past the last. */
FLEXLAB_API const char *tensor_op_at(int i);
/* The backend ("ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"; "avx512_fast",
 * "avx512_amx_fast") whose kernel runs `op` on `format` on this machine, in the class of this thread; NULL if unknown.
 * The environment variable FLEXLAB_ISA caps it, and so does tensor_set_backend. A cap that the machine does not reach
 * is allowed: the best backend below it runs. If the answer may be a kernel that uses AMX tiles, the library requests
 * the system's permission to use them (docs/embedding.md). */
FLEXLAB_API const char *tensor_kernel_backend(tensor_format format, const char *op);
/* Caps the backend for all threads of the process; NULL removes the cap. TENSOR_E_ARGUMENT for an unknown name. */
FLEXLAB_API tensor_status tensor_set_backend(const char *name);

/* The promise for the results of the calling thread's operations. Each thread has its own class, TENSOR_EXACT at its
 * start. */
typedef enum tensor_class {
    TENSOR_EXACT = 0, /* the bits of docs/semantics.md, everywhere */
    TENSOR_FAST = 1,  /* kernels may use instructions whose sums have no defined order: results may differ between
                         processors, not between thread counts. An operation without such a kernel on this processor, or
                         under this cap, gives the exact bits. So far: bf16 matmul and convolution on AMX tiles (backend
                         "avx512_amx_fast"), matmul by AVX512_BF16 ("avx512_fast"), and matmul and convolution of fp16
                         and bf16 on tensor cores of GPUs, and of fp32 in "fast:tf32": docs/semantics.md. */
    TENSOR_CLASS_LARGEST = 0x7fffffff /* room for the classes of tensor_class_find, which have no constants */
} tensor_class;
#define FLEXLAB_HAS_FAST_BF16 1
/* Finds a class by name: "exact", or "fast", with ":tf32" after it if tensor cores of GPUs may take operands in fp32 as
 * tf32 (rounded to nearest even), and then ":sums=fp16" if they may keep the sums of fp16 in fp16, whose range and
 * precision they then have: where no tensor cores multiply, neither changes a result.
 *
 * Or "accumulate=GPU", in which matmuls and convolutions of floats have the bits that the tensor cores of that GPU
 * would give, on any processor. GPU is a name of tensor_accumulator_at, with ":sums=fp16" after it for sums of fp16 (of
 * v100, h100 and b200, operands in fp16 alone), and ":promote=N", before or after that, if the sum of each N products
 * is added to one of binary32 (DeepSeek-V3's remedy for Hopper's short FP8 sums). Operands are fp16, bf16, e4m3fn,
 * e5m2, or fp32, which is rounded to tf32 (to nearest even) first; both are of one format, or one is e4m3fn and the
 * other e5m2. A product of other floats, or of those that the GPU does not multiply, is TENSOR_E_UNSUPPORTED, and so is
 * one on a device other than the host. Mantissas under a shared exponent, and all other operations, have their exact
 * bits: docs/semantics.md has the model, its source, and what is not known.
 *
 * Or "operands=A,B": matmuls and convolutions of any formats take their first operand in blocks of the format A and
 * the second in blocks of B ("operands=A": both in A) along the dimension that they sum over. Each element is rounded
 * once from the operand's exact value; the products are summed exactly, and the sum is rounded once to the result:
 * docs/semantics.md. A and B are block formats: "mx:int8", "mx:e4m3fn:rceil", "nvfp4:stochastic", ... (docs/block-
 * formats.md); hadamard is an option of both or of neither. Stochastic rounding of operands and the signs of
 * Hadamard transforms are drawn by the seed of the result (tensor_set_rounding, whatever its rounding) and the
 * number of its writes. Other operations, the products within tensor_lstm and tensor_gru included, have their exact
 * bits. GPUs give the same bits as the host, and refuse channel:ELEMENT (TENSOR_E_UNSUPPORTED).
 *
 * A class is a number that means the same as long as the process lives; what is to last is its name.
 * TENSOR_E_ARGUMENT names the position of what is wrong in `text`. */
FLEXLAB_API tensor_status tensor_class_find(tensor_class *c, const char *text);
/* The name that tensor_class_find reads, valid until the next call on this thread; NULL if there is no such class. */
FLEXLAB_API const char *tensor_class_name(tensor_class c);
/* The GPUs of classes "accumulate=GPU" by index, "v100", "a100", ...; NULL past the last. */
FLEXLAB_API const char *tensor_accumulator_at(int i);
/* The usual block formats by index, "mx:int8", "mx:e4m3fn", ...; NULL past the last. Others follow from the grammar. */
FLEXLAB_API const char *tensor_block_format_at(int i);
/* Bits that an element takes in that block format, with its share of the scale: 8.25 for "mx:int8". TENSOR_E_ARGUMENT
 * names the position of what is wrong in `text`. */
FLEXLAB_API tensor_status tensor_block_format_bits(double *bits, const char *text);
/* Sets the class of the calling thread. TENSOR_E_ARGUMENT for a value that is no class. */
FLEXLAB_API tensor_status tensor_set_class(tensor_class c);
/* The class of the calling thread. */
FLEXLAB_API tensor_class tensor_result_class(void);
/* Sets the number of threads of every operation, at most 256; results do not depend on it. 0: the number in
 * OMP_NUM_THREADS (or that of OpenMP, if the library is built with it and the caller's program has set another number);
 * if that is not set, or is no number from 1 to 256, one thread for each processor. TENSOR_E_ARGUMENT for any other
 * number. If the system refuses threads, operations continue with those that they got; tensor_set_threads requests them
 * anew. */
FLEXLAB_API tensor_status tensor_set_threads(int threads);
/* The number of threads now in use, at least 1. */
FLEXLAB_API int tensor_threads(void);
/* Why that number is not the requested one, in one line for the user: OMP_NUM_THREADS is no such number, or the system
 * refused threads (known once an operation wanted them). "" if it is the requested one. Valid until the next call on
 * this thread. FLEXLAB_VERBOSE=1 writes it to standard error. */
FLEXLAB_API const char *tensor_threads_notice(void);

#ifdef __cplusplus
}
#endif
#endif
