/* op.c - the names of the operations, from ops.def. */
#include "core/table/format.h"
#include <string.h>

static const char *const op_names[FL_OP_LIMIT] = {
#define FL_MAP1(id, CONSTANT, name, expr) [id] = #name,
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) [id] = #name,
#define FL_MAP2(id, CONSTANT, name, expr) [id] = #name,
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) [id] = #name,
#define FL_MAP3(id, CONSTANT, name, expr) [id] = #name,
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) [id] = #name,
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) [id] = #name,
#define FL_OP(id, CONSTANT, name) [id] = #name,
#include "flexlab/ops.def"
};

static const bool real_ops[FL_OP_LIMIT] = {
#define FL_REAL1(id, CONSTANT, name, expr) [id] = true,
#define FL_REAL1_SCALAR(id, CONSTANT, name, expr) [id] = true,
#define FL_REAL1_SCALARS(id, CONSTANT, name, expr) [id] = true,
#define FL_REAL2(id, CONSTANT, name, expr) [id] = true,
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr) [id] = true,
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr) [id] = true,
#include "flexlab/ops.def"
};

bool fl_op_is_real(enum fl_op op) {
    return op > 0 && op < FL_OP_LIMIT && real_ops[op];
}

const char *fl_op_name(enum fl_op op) {
    return op > 0 && op < FL_OP_LIMIT ? op_names[op] : NULL;
}

enum fl_op fl_op_named(const char *name) {
    for (int i = 0; name && i < FL_OP_LIMIT; i++)
        if (op_names[i] && !strcmp(op_names[i], name))
            return (enum fl_op)i;
    return FL_OP_NONE;
}

const char *tensor_op_at(int i) {
    for (int op = 0; i >= 0 && op < FL_OP_LIMIT; op++)
        if (op_names[op] && i-- == 0)
            return op_names[op];
    return NULL;
}
