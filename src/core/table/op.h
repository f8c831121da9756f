/* op.h - the operations as numbers, made from ops.def. */
#ifndef FL_OP_H
#define FL_OP_H

enum fl_op {
    FL_OP_NONE = 0,
#define FL_MAP1(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_MAP2(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_MAP3(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) FL_OP_##CONSTANT = id,
#define FL_OP(id, CONSTANT, name) FL_OP_##CONSTANT = id,
#include "flexlab/ops.def"
    FL_OP_LIMIT = 512 /* ids are below this */
};

#endif
