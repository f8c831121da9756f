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
/* The backend ("ref", "portable", "avx2", "avx512bw", "avx512", "avx512_amx"; "avx512_fast", "avx512_amx_fast") whose
 * kernel runs `op` on `format` on this machine, in the class of this thread; NULL if unknown. The environment variable
 * FLEXLAB_ISA caps it, and so does tensor_set_backend. A cap that the machine does not reach is allowed: the best
 * backend below it runs. If the answer may be a kernel that uses AMX tiles, the library requests the system's
 * permission to use them (docs/embedding.md). */
FLEXLAB_API const char *tensor_kernel_backend(tensor_format format, const char *op);
/* Caps the backend for all threads of the process; NULL removes the cap. TENSOR_E_ARGUMENT for an unknown name. */
FLEXLAB_API tensor_status tensor_set_backend(const char *name);

/* The promise for the results of the calling thread's operations. Each thread has its own class, TENSOR_EXACT at its
 * start. */
typedef enum tensor_class {
    TENSOR_EXACT = 0, /* the bits of docs/semantics.md, everywhere */
    TENSOR_FAST = 1   /* kernels may use instructions whose sums have no defined order: results may differ between
                         processors, not between thread counts. An operation without such a kernel on this processor, or
                         under this cap, gives the exact bits. So far: bf16 matmul and convolution on AMX tiles (backend
                         "avx512_amx_fast"), matmul by AVX512_BF16 ("avx512_fast"): docs/semantics.md. */
} tensor_class;
#define FLEXLAB_HAS_FAST_BF16 1
/* Sets the class of the calling thread. TENSOR_E_ARGUMENT for any other value. */
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
