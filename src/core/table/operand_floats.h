/* operand_floats.h - operands of any format as binary32, for kernels that take the operands of products so. */
#ifndef FL_OPERAND_FLOATS_H
#define FL_OPERAND_FLOATS_H

#include "core/table/kernel.h"

/* Bytes that the binary32 copy of operand 0 or 1 takes, whole cache lines; 0 where it has that format. */
size_t fl_operand_floats_bytes(const struct fl_args *args, int i);
/* Operand 0 or 1 as binary32, in memory of that size where it has another format. Exact but for numbers under exponents
 * that binary32 cannot hold. without_exponent: elements under an exponent are those of their codes. */
const float *fl_operand_floats(const struct fl_args *args, int i, bool without_exponent, int workers, void *memory);

#endif
