/* objects.c - the objects of ops.def: operations by number, functions by name. */
#include "core/ops/operation.h"
#include "core/table/operands.h"
#include <string.h>

#define FL_MAP1(id, CONSTANT, name, expr) extern const struct fl_function fl_function_##name;
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP1_SCALARS FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP2_SCALARS FL_MAP1
#define FL_MAP3 FL_MAP1
#define FL_OBJECT(id, CONSTANT, name)                                                                                  \
    extern const struct fl_operation fl_operation_##name;                                                              \
    extern const struct fl_function fl_function_##name;
#define FL_INTERNAL(id, CONSTANT, name) extern const struct fl_operation fl_operation_##name;
#define FL_COMPOSED(name) extern const struct fl_function fl_function_##name;
#include "flexlab/ops.def"

extern const struct fl_operation fl_map_operations[FL_OP_LIMIT];

static const struct fl_operation *const operations[FL_OP_LIMIT] = {
#define FL_MAP1(id, CONSTANT, name, expr) [id] = &fl_map_operations[id],
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP1_SCALARS FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP2_SCALARS FL_MAP1
#define FL_MAP3 FL_MAP1
#define FL_OBJECT(id, CONSTANT, name) [id] = &fl_operation_##name,
#define FL_INTERNAL(id, CONSTANT, name) [id] = &fl_operation_##name,
#include "flexlab/ops.def"
};

static const struct fl_function *const functions[] = {
#define FL_MAP1(id, CONSTANT, name, expr) &fl_function_##name,
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP1_SCALARS FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP2_SCALARS FL_MAP1
#define FL_MAP3 FL_MAP1
#define FL_OBJECT(id, CONSTANT, name) &fl_function_##name,
#define FL_COMPOSED(name) &fl_function_##name,
#include "flexlab/ops.def"
};

const struct fl_operation *fl_operation_of(enum fl_op op) {
    return op > 0 && op < FL_OP_LIMIT ? operations[op] : NULL;
}

/* --- kernels, for the table of kernels ---------------------------------------------------------------------------- */

fl_kernel fl_ref_kernel(enum fl_op op) {
    const struct fl_operation *operation = fl_operation_of(op);
    return operation ? operation->reference.kernel : NULL;
}

fl_need fl_ref_need(enum fl_op op) {
    const struct fl_operation *operation = fl_operation_of(op);
    return operation ? operation->reference.need : NULL;
}

static struct fl_any_kernels any_format(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    const struct fl_operation *operation = fl_operation_of(op);
    const struct fl_any_kernels none = {NULL, NULL};
    if (!operation || backend >= FL_BACKENDS)
        return none;
    if (operation->find)
        return operation->find(format, op, backend);
    if (operation->shared16 && format->arithmetic == FL_ARITHMETIC_SHARED && format->bytes != 2)
        return none;
    return operation->any ? operation->any[backend] : none;
}

tensor_status fl_block_product(const struct fl_args *args);
size_t fl_block_product_need(const struct fl_args *args);

struct fl_any_kernels fl_block_kernels(void) {
    return (struct fl_any_kernels){fl_block_product, fl_block_product_need};
}

fl_kernel fl_any_format_kernel(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    return any_format(format, op, backend).kernel;
}

fl_need fl_any_format_need(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    return any_format(format, op, backend).need;
}

/* --- operands, for the queue -------------------------------------------------------------------------------------- */

static const struct fl_function *const same_name[FL_OP_LIMIT] = {
#define FL_MAP1(id, CONSTANT, name, expr) [id] = &fl_function_##name,
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP1_SCALARS FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP2_SCALARS FL_MAP1
#define FL_MAP3 FL_MAP1
#define FL_OBJECT(id, CONSTANT, name) [id] = &fl_function_##name,
#include "flexlab/ops.def"
};

int fl_operands_of(enum fl_op op, const struct fl_operand **operands) {
    const struct fl_operation *operation = operations[op];
    const struct fl_function *f = same_name[op];
    *operands = operation->operands ? operation->operands : f->operands;
    return operation->operands ? operation->operand_count : f->operand_count;
}

bool fl_is_parameter(const struct fl_args *args, const void *data) {
    const struct fl_operand *o;
    const int count = fl_operands_of(args->op, &o);
    for (int i = 0; i < count; i++)
        if (o[i].at >= FL_AT(p) && o[i].flags & FL_IN_PLACE && o[i].class < FL_CLASS_F64 &&
            ((const struct fl_view *)(const void *)((const char *)args + o[i].at))->data == data)
            return true;
    return false;
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

const struct fl_function *fl_function_at(int i) {
    return i >= 0 && i < (int)(sizeof functions / sizeof functions[0]) ? functions[i] : NULL;
}

const struct fl_function *fl_function_named(const char *name) {
    for (int i = 0; fl_function_at(i); i++)
        if (!strcmp(functions[i]->name, name))
            return functions[i];
    return NULL;
}
