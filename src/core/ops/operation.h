/* operation.h - an operation as one object: its operands, scalars, shapes, promise, gradient and kernels. The checks of
 * its public function and their messages, its test cases, its line in docs/support.md and the bindings of other
 * languages follow from it.
 *
 * There are two kinds of objects. An *operation* (struct fl_operation) is one entry of ops.def: the layout of its
 * operands in struct fl_args, and the kernels that serve every format. A *function* (struct fl_function) is what users
 * call: its signature describes each tensor and scalar once. Most functions write one tensor by the operation of their
 * name; a function made of several operations submits them in `run`.
 *
 * A shape is a text with one character for each dimension:
 *     a letter     a size, equal wherever the letter occurs
 *     a letter, *  any number of dimensions, including none, equal wherever they occur; the letter is their product
 *     a digit      before a letter: that multiple of the size; otherwise: that size
 *     =            a shape that `shape_of` computes from the scalars and the operands with free shapes
 * "m*n" is a tensor whose last dimension is n; "4h" is one dimension of four times h. Sizes are taken from inputs
 * first, in their order, then from outputs; letters in `derived` are computed by `derive` from the other sizes and the
 * scalars, and only compared. */
#ifndef FL_OPERATION_H
#define FL_OPERATION_H

#include "core/table/format.h"
#include "core/tensor/tensor_object.h"

enum { FL_OPERANDS = 12, FL_SCALARS = 16, FL_SIZES = 64 };

/* Formats of an operand. */
enum fl_class {
    FL_CLASS_CALL,    /* the format of the first operand, which must be one of arithmetic */
    FL_CLASS_FACTOR,  /* a factor of products: any format of arithmetic; all factors have shared exponents, or none has
                       */
    FL_CLASS_ANY,     /* any format of arithmetic: an addend or the result of products of mixed formats */
    FL_CLASS_TARGETS, /* the format of the first operand, f64 or f32; `run` passes it to the kernel: of that
                       * format in in[1] */
    FL_CLASS_F64,     /* from here on: numbers beside the formats */
    FL_CLASS_F32,
    FL_CLASS_I32,
    FL_CLASS_U8
};

enum fl_operand_flags {
    FL_OPTIONAL = 1,      /* may be NULL */
    FL_IN_PLACE = 2,      /* an input that may be the output, or an output that is also read */
    FL_WIDE = 4,          /* its wide part is used where it has one */
    FL_STRIDED = 8,       /* may be a view with strides */
    FL_BROADCAST = 16,    /* its shape is broadcast to that of the text */
    FL_LATE_VALUE = 32,   /* one number, read when the task runs, into the parameter at `at` */
    FL_NOT_NEGATIVE = 64, /* 0 or more: a late value must be, and tests draw such numbers */
    FL_SHAPE_ONLY = 128   /* only its shape and format are used: its elements may be hidden */
};

struct fl_operand {
    const char *name;
    const char *shape;
    unsigned flags;
    enum fl_class class;
    /* The offset in struct fl_args of the view of a tensor, or of the address of numbers; 0: nowhere, `run` reads the
     * tensor. */
    unsigned at;
    char below;       /* FL_CLASS_I32: tests draw indices below the size of this letter, or below this digit; 0: any
                       * indices */
    const char *what; /* "operation: operand", the name of a late value in messages */
};

enum fl_scalar_type {
    FL_REAL32,
    FL_REAL64,
    FL_INT32,
    FL_INT64,
    FL_KEY64, /* any 64 bits */
    FL_BOOL,
    FL_DIM,    /* a dimension of operand `of` */
    FL_AXES,   /* a set of dimensions of operand `of`: bit d for dimension d */
    FL_ORDER,  /* an order of the dimensions of operand `of`: four bits each, the first lowest (FL_ORDER_AT) */
    FL_LENGTH, /* the size of operand `of` along the FL_DIM before this scalar, any number: the public function reads
                  it from the tensor */
    FL_RESULT  /* a result: the address of a double of the caller, where `run` stores it */
};
#define FL_ORDER_AT(order, d) ((int)((order) >> 4 * (d)&15))

/* Limits of a scalar: least <= value <= most; `above`: least is excluded, `under`: most is. Numbers must be finite. */
struct fl_scalar_rule {
    const char *name;
    enum fl_scalar_type type;
    double least, most; /* both 0: any finite number */
    bool above, under;
    unsigned at; /* its offset in struct fl_args; 0: nowhere, `prepare` or `run` reads it */
    int of;      /* FL_DIM, FL_AXES, FL_ORDER, FL_LENGTH: the operand */
};

union fl_value {
    double real;
    int64_t integer;
    uint64_t key;
    double *result;
};

/* The sizes of a call by letter: size[letter - '@'], letters from A to Z and a to z. */
struct fl_sizes {
    int64_t of[FL_SIZES];
};
#define FL_SIZE(sizes, letter) ((sizes)->of[(letter) - '@'])

/* --- operations --------------------------------------------------------------------------------------------------- */

enum fl_promise {
    FL_PROMISE_EXACT,  /* integer formats: the exact result, rounded once */
    FL_PROMISE_DOUBLE, /* computed in double or wider by a fixed sequence, rounded once */
    FL_PROMISE_COPY,   /* the elements of operands, unchanged */
    FL_PROMISE_NUMBERS /* numbers beside the formats, computed by a fixed sequence */
};

struct fl_operation {
    enum fl_op op;
    enum fl_promise promise;
    const char *gradient; /* operations that compute its gradient; NULL: those of its name with _grad, or none */
    /* The operands in struct fl_args (out, in[] and parameters), in order, the output first if there is one. NULL:
     * those of the function of its name. */
    const struct fl_operand *operands;
    int operand_count;
    struct fl_any_kernels reference;
    /* Kernels by backend, without FL_REF; NULL: none. shared16: of shared exponents they serve int16 mantissas only. */
    const struct fl_any_kernels *any;
    bool shared16;
    /* Finds the kernels of operations whose kernels depend on the format; NULL: `any` has them. */
    struct fl_any_kernels (*find)(const struct fl_format *format, enum fl_op op, enum fl_backend backend);
};

/* --- functions ---------------------------------------------------------------------------------------------------- */

struct fl_function;

/* A call of a function while it is checked. */
struct fl_invocation {
    const struct fl_function *function;
    const tensor *const *tensors; /* in the order of its operands; NULL: not given */
    const union fl_value *scalars;
    const struct fl_sizes *sizes;
};

struct fl_function {
    const char *name; /* of the public function, without tensor_ */
    enum fl_op op;    /* the operation that writes operand 0; FL_OP_NONE: `run` submits others */
    int outputs;      /* the number of outputs, which are the first operands */
    int operand_count, scalar_count;
    const struct fl_operand *operands;
    const struct fl_scalar_rule *scalars;
    const char *derived; /* letters of sizes that `derive` computes; NULL: none */
    /* Computes the derived sizes from the other sizes and the scalars. False, with the message set unless `quiet`, if
     * there are none. NULL: nothing is derived. */
    bool (*derive)(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet);
    /* Computes the shape of an operand whose text is "=". Returns its number of dimensions, or -1 with the message set
     * if there is no such shape. NULL: no operand has this text. */
    int (*shape_of)(const struct fl_invocation *call, int operand, int64_t *shape);
    /* Checks what shapes and limits do not express. NULL: nothing. */
    tensor_status (*check)(const struct fl_invocation *call);
    /* Stores sizes and scalars that have no `at` in the parameters. NULL: there are none. */
    void (*prepare)(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars);
    /* Submits the tasks of the function. NULL: one task, of `op` with the prepared args. */
    tensor_status (*run)(const struct fl_invocation *call, struct fl_args *args);
};

/* Checks the call and runs it: what the public function of that name does. `tensors` and `scalars` are in the order of
 * the function's operands and scalars; an optional operand that is not given is NULL. */
tensor_status fl_invoke(const struct fl_function *function, const tensor *const *tensors,
                        const union fl_value *scalars);

/* The same with the arguments in place: FL_INVOKE(layernorm, FL_GIVEN(y, x, gamma, beta), FL_REAL(epsilon)). */
#define FL_GIVEN(...) ((const tensor *const[]){__VA_ARGS__})
#define FL_REAL(x)                                                                                                     \
    { .real = (double)(x) }
#define FL_INTEGER(x)                                                                                                  \
    { .integer = (x) }
#define FL_KEY(x)                                                                                                      \
    { .key = (x) }
#define FL_INVOKE(name, given, ...)                                                                                    \
    fl_invoke(&fl_function_##name, given, (const union fl_value[]){__VA_ARGS__, {.integer = 0}})
#define FL_INVOKE_PLAIN(name, given) fl_invoke(&fl_function_##name, given, NULL)

#define FL_OPERANDS_OF(array) .operand_count = (int)(sizeof(array) / sizeof(array)[0]), .operands = array
#define FL_SCALARS_OF(array) .scalar_count = (int)(sizeof(array) / sizeof(array)[0]), .scalars = array
#define FL_AT(member) offsetof(struct fl_args, member)

/* The function of that name, the i-th of all functions, and the operation of that number; NULL: none. */
const struct fl_function *fl_function_named(const char *name);
const struct fl_function *fl_function_at(int i);
const struct fl_operation *fl_operation_of(enum fl_op op);
/* The operands of an operation in struct fl_args; returns their number. */
int fl_operands_of(enum fl_op op, const struct fl_operand **operands);

#endif
