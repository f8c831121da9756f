/* block_product.h - matmuls and convolutions whose operands are taken in blocks (classes operands=A,B): each operand is
 * decoded to binary32, quantised once along the dimension that the product sums over (block_geometry.h), and each
 * result is the exact sum of all products, with bias, residual and ReLU, rounded once.
 *
 * Any kernel that is exact gives these bits, so the choice is made by proof: bounds computed from the quantised rows
 * say how many bits a sum takes, and a tile goes to the fastest kernel that holds them (docs/decisions/0034-blocks.md).
 */
#ifndef FL_BLOCK_PRODUCT_H
#define FL_BLOCK_PRODUCT_H

#include "core/table/kernel.h"

/* The kernel of all nine products, in the vectors of the cap in force. The class is args->p.product.exactness. Operands
 * that binary32 cannot hold are Inf, and an Inf or NaN makes every product with its block NaN. */
tensor_status fl_block_product(const struct fl_args *args);
size_t fl_block_product_need(const struct fl_args *args);

#endif
