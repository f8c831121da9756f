/* operands.c - tasks in a class operands=A,B: the keys of their draws, and the kernel. */
#include "core/table/operands.h"
#include "core/arithmetic/philox.h"
#include "core/base/verbose.h"
#include "core/table/mixed.h"

/* --- draws -------------------------------------------------------------------------------------------------------- */

/* Domains of their own, apart from the draws of the output itself, whose key is the seed. */
static uint64_t key_of(const struct fl_args *args, uint64_t domain) {
    const struct fl_philox drawn = fl_philox(args->rounding.key, 0x6f706572616e6473u, domain);
    return (uint64_t)drawn.word[0] << 32 | drawn.word[1];
}

uint64_t fl_operand_key(const struct fl_args *args, int i) {
    return key_of(args, (uint64_t)i);
}

uint64_t fl_signs_key(const struct fl_args *args) {
    return key_of(args, 2);
}

/* --- which kernel ------------------------------------------------------------------------------------------------- */

bool fl_task_has_operands(const struct fl_args *args, tensor_class class) {
    return fl_has_operands(class) && fl_is_product(args->op);
}

tensor_status fl_dispatch_operands(const struct fl_args *args, tensor_class class, bool runs,
                                   struct fl_choice *choice) {
    const struct fl_any_kernels product = fl_block_kernels();
    enum fl_backend cap = FL_REF;
    tensor_status status = fl_backend_cap(&cap);
    if (!status)
        status = fl_check_verbose();
    if (status)
        return status;
    *choice = (struct fl_choice){product.kernel, product.need, cap}; /* the kernel asks for the cap itself */
    if (runs && fl_verbose())
        fl_tell_class(args, class, cap, NULL);
    return TENSOR_OK;
}
