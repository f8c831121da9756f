/* block_classes.h - the classes operands=A and operands=A,B: products whose operands are taken in blocks
 * (block_format.h).
 *
 * A class is the number of a pair of block formats among those that this process has asked for: it is stable as long as
 * the process lives, and costs a look at a table. Files store the name of a class, never the number. */
#ifndef FL_BLOCK_CLASSES_H
#define FL_BLOCK_CLASSES_H

#include "core/table/block_format.h"
#include "flexlab/tensor_backend.h"

enum { FL_OPERAND_CLASSES = 4096 }; /* pairs of a process, at most */

/* Whether it is a class operands=A,B. */
bool fl_has_operands(tensor_class c);
/* The block format of operand 0 or 1 of products in that class; NULL in any other class. */
const struct fl_block_format *fl_class_operands(tensor_class c, int i);
/* Whether products of tensors there may take operands in these formats: the host, or a device that computes blocks, for
 * formats with blocks of a fixed length (not channel). */
bool fl_device_takes_blocks(const struct tensor_device *device, const struct fl_block_format *a,
                            const struct fl_block_format *b);
/* Whether products there may have operands and results of different formats. */
bool fl_device_takes_mixed(const struct tensor_device *device);
/* The class of a pair. */
tensor_status fl_operands_class(tensor_class *c, const struct fl_block_format *a, const struct fl_block_format *b);

/* The same format with other options. TENSOR_E_ARGUMENT where the format does not have one of them. */
tensor_status fl_block_format_with(const struct fl_block_format **format, const struct fl_block_format *base,
                                   bool stochastic, bool hadamard, bool square);

/* Of the class's own name (classes.c): the text after "operands=", and back. The latter is valid until the next call on
 * this thread. */
tensor_status fl_operands_find(tensor_class *c, const char *text, const char *formats);
const char *fl_operands_name(tensor_class c);

#endif
