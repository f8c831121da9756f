/* tensor_backend.h - which kernels run, what their results promise, on how many threads. A part of tensor.h, whose
 * conventions hold. */
#ifndef FLEXLAB_TENSOR_BACKEND_H
#define FLEXLAB_TENSOR_BACKEND_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operations are listed by name ("add", "matmul", ...); NULL past the last. */
FLEXLAB_API const char *tensor_op_at(int i);
/* The backend ("ref", "portable", "avx2", "avx512bw", "avx512", "avx512_amx"; "avx512_fast", "avx512_amx_fast") whose
 * kernel runs `op` on `format` on this machine, in the class of this thread; NULL if unknown. FLEXLAB_ISA caps it;
 * tensor_set_backend caps it from a program (NULL: no cap). A cap that the machine does not reach is allowed: then the
 * best that it has runs. Where the answer may be a kernel on the tiles of AMX, the system is asked for the permission
 * to use them (docs/embedding.md). */
FLEXLAB_API const char *tensor_kernel_backend(tensor_format format, const char *op);
/* The cap for all threads of the process; TENSOR_E_ARGUMENT for an unknown name. */
FLEXLAB_API tensor_status tensor_set_backend(const char *name);

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
FLEXLAB_API tensor_status tensor_set_class(tensor_class c);
/* The class of the calling thread. */
FLEXLAB_API tensor_class tensor_result_class(void);
/* Threads used by every operation, at most 256; results do not depend on it. 0: as many as OMP_NUM_THREADS says (or
 * OpenMP, where the library is built with it, and the caller's program has set another number); without it, or where it
 * is no number from 1 to 256, one a processor. TENSOR_E_ARGUMENT for any other number. Where the system refuses
 * threads, operations go on with those that they got; tensor_set_threads asks it anew. */
FLEXLAB_API tensor_status tensor_set_threads(int threads);
/* How many that is now, at least 1. */
FLEXLAB_API int tensor_threads(void);
/* Why that is not what was asked for, in one line for the user: OMP_NUM_THREADS is no such number, or the system
 * refused threads (known once an operation wanted them). "" where all is as asked. Valid until the next call on this
 * thread. FLEXLAB_VERBOSE=1 writes it on standard error. */
FLEXLAB_API const char *tensor_threads_notice(void);

#ifdef __cplusplus
}
#endif
#endif
