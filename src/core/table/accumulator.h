/* accumulator.h - the classes accumulate=GPU: how the tensor cores of named GPUs sum products, as numbers
 * (docs/semantics.md; src/tensorcore computes it). */
#ifndef FL_ACCUMULATOR_H
#define FL_ACCUMULATOR_H

#include "flexlab/tensor_backend.h"
#include <stdbool.h>
#include <stdint.h>

/* What tensor cores multiply. Binary32 is taken as tf32: rounded to its 10 fraction bits first. */
enum fl_operand_kind {
    FL_OPERAND_NONE,
    FL_OPERAND_FP16,
    FL_OPERAND_BF16,
    FL_OPERAND_TF32,
    FL_OPERAND_E4M3,
    FL_OPERAND_E5M2,
    FL_OPERAND_KINDS
};
const char *fl_operand_kind_name(enum fl_operand_kind kind);
/* The exponent of its smallest normal number, which subnormal ones have too. */
int fl_operand_least_exponent(enum fl_operand_kind kind);

/* The kinds of the two operands of a product. */
struct fl_operand_kinds {
    enum fl_operand_kind a, b;
};

enum { FL_GROUP_MOST = 32 }; /* products of a group */

/* How one group of k products is added to the sum so far. */
struct fl_accumulation {
    int k;        /* products of a group; 0: the GPU does not multiply this kind */
    int fraction; /* bits below the largest exponent at which each term is truncated */
    int result;   /* fraction bits to which the sum is truncated: 23, or 13; 10: it is rounded to fp16 */
    bool apart;   /* the products are summed alone, and the sum so far is added in binary32, to nearest even */
};

/* Whether it is a class accumulate=GPU. */
bool fl_accumulates(tensor_class c);
const struct fl_accumulation *fl_accumulation_of(tensor_class c, enum fl_operand_kind kind);
/* The same for a product of two kinds; NULL unless they are one kind, or both FP8: E4M3 by E5M2, in either order. */
const struct fl_accumulation *fl_accumulation_of_kinds(tensor_class c, struct fl_operand_kinds pair);
/* Products after which the sum is added to one of binary32; 0: never. A multiple of every group. */
int64_t fl_accumulation_promotes(tensor_class c);
/* The kinds that the GPU of a class multiplies, each by itself, as "fp16, bf16 and tf32". */
const char *fl_accumulation_kinds(tensor_class c, char *text, int size);
/* The class of a GPU; name: the part of `text` after "accumulate=", which ends it. The name of a class is valid until
 * the next call on this thread; NULL: it is no such class. */
tensor_status fl_accumulation_find(tensor_class *c, const char *text, const char *name);
const char *fl_accumulation_name(tensor_class c);

#endif
