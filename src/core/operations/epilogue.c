/* epilogue.c - bias, residual and relu of matmuls and convolutions: their checks. */
#include "core/operations/epilogue.h"
#include "core/operations/check_operands.h"
#include "core/base/sized.h"
#include "core/tensor/wide.h"

tensor_status fl_take_epilogue(tensor_epilogue *ours, const tensor_epilogue *with, size_t size, const char *what) {
    memset(ours, 0, sizeof *ours);
    return with ? fl_take_sized(ours, sizeof *ours, with, size, what) : TENSOR_OK;
}

tensor_status fl_join_epilogue(const char *name, const tensor *y, const tensor_epilogue *with, struct fl_args *args) {
    const struct operand oy = {"y", y}, bias = {"bias", with->bias}, residual = {"residual", with->residual};
    if (bias.t) {
        TRY(check_mixed_operands(name, OPERANDS(oy, bias)));
        TRY(check_shape_is(name, bias, 1, (int64_t[]){last_dim(y)}));
        TRY(check_distinct(name, OPERANDS(oy, bias)));
        args->p.product.epilogue.bias = fl_view_of(bias.t);
    }
    if (residual.t) {
        TRY(check_mixed_operands(name, OPERANDS(oy, residual)));
        TRY(check_same_shapes(name, OPERANDS(oy, residual)));
        args->p.product.epilogue.residual = fl_view_of(residual.t);
    }
    args->p.product.epilogue.relu = with->relu;
    return TENSOR_OK;
}
