/* cuda.h - between the parts of the runtime that stands in for CUDA's: its functions are those of cuda_runtime_api.h,
 * as many as the backend calls. */
#ifndef FLEXLAB_TESTS_PTX_CUDA_H
#define FLEXLAB_TESTS_PTX_CUDA_H

#include "ptx.h"

#include <cuda_runtime_api.h>

namespace cuda {

struct Function {
    void *binary;
    std::string name;
    ptx::Kernel *kernel; /* NULL before its first launch */
    int most_shared;
};
/* NULL: no kernel was registered with this address. */
Function *function_at(const void *host);
ptx::Kernel &kernel_of(Function &f);

} // namespace cuda

#endif
