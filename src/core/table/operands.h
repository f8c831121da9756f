/* operands.h - tasks in a class operands=A,B (block_classes.h): the keys of draws, the kernel. */
#ifndef FL_OPERANDS_H
#define FL_OPERANDS_H

#include "core/table/block_classes.h"
#include "core/table/format.h"

/* The keys of draws and signs for operand 0 or 1 of a task. They follow from the seed and the number of writes of its
 * output, whatever that rounds by: the same for every number of threads, and after a network was resumed. */
uint64_t fl_operand_key(const struct fl_args *args, int i);
/* That of the random signs of Hadamard transforms, which both operands share and every write has. */
uint64_t fl_signs_key(const struct fl_args *args);

/* Whether the class computes the task: every matmul and convolution. */
bool fl_task_has_operands(const struct fl_args *args, tensor_class exactness);
/* The kernel of such a task; args->format must be set. runs: it is about to run, and FLEXLAB_VERBOSE=1 names it the
 * first time; otherwise only its workspace is wanted. */
tensor_status fl_dispatch_operands(const struct fl_args *args, tensor_class exactness, bool runs,
                                   struct fl_choice *choice);
/* The kernel of all products in such classes (src/blocks; objects.c has it with the operations). */
struct fl_any_kernels fl_block_kernels(void);

#endif
