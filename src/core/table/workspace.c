/* workspace.c - the memory that a kernel works in. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/table/format.h"

void *fl_workspace(const struct fl_args *args, size_t bytes) {
    if (args->workspace && args->workspace_bytes >= bytes)
        return args->workspace;
    void *block = fl_scratch(0, bytes);
    if (!block)
        fl_fail(TENSOR_E_MEMORY, "%s: no memory for %zu bytes of scratch", fl_op_name(args->op), bytes);
    return block;
}
