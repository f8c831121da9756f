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
    FL_CLASS_CALL,   /* the format of the first operand, one that computes */
    FL_CLASS_FACTOR, /* a factor of products: any format that computes, of a shared exponent if the other factors are */
    FL_CLASS_ANY,    /* any format that computes: what products of mixed formats are added to and rounded to */
    FL_CLASS_TARGETS, /* the format of the call, or f64 or f32: `run` places it */
    FL_CLASS_F64,     /* numbers beside the formats */
    FL_CLASS_F32,
    FL_CLASS_I32,
    FL_CLASS_U8
};

enum fl_operand_flags {
    FL_OPTIONAL = 1,      /* may be NULL */
    FL_IN_PLACE = 2,      /* an input that may be the output, or an output that is read too */
    FL_WIDE = 4,          /* its wide part counts where it has one */
    FL_STRIDED = 8,       /* may be a view with strides */
    FL_BROADCAST = 16,    /* its shape, the last dimensions aligned, is that of the text, or 1 */
    FL_LATE_VALUE = 32,   /* one number, read when the call runs, into the parameter at `at` */
    FL_NOT_NEGATIVE = 64, /* of numbers: what tests draw, and a late value must be */
    FL_SHAPE_ONLY = 128   /* only its shape and format count: its elements may be hidden */
};

struct fl_operand {
    const char *name;
    const char *shape;
    unsigned flags;
    enum fl_class class;
    /* Where it stands in struct fl_args (offsetof): the view of a tensor, the address of numbers; 0: nowhere, `run`
     * takes it. */
    unsigned at;
    char below;       /* of FL_CLASS_I32, what tests draw: indices below the size of this letter, or below this
                       * digit; 0: any */
    const char *what; /* of a late value: "operation: operand", in messages */
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
    FL_LENGTH, /* the size of dimension FL_DIM, the scalar before it, of operand `of`, which may be any: the function's
                  wrapper reads it from the tensor */
    FL_RESULT  /* no number that is given, but where `run` puts one: the address of a double of the caller */
};
#define FL_ORDER_AT(order, d) ((int)((order) >> 4 * (d)&15))

/* Limits of a scalar: least <= value <= most; `above`: least is excluded, `under`: most is. Numbers must be finite. */
struct fl_scalar_rule {
    const char *name;
    enum fl_scalar_type type;
    double least, most; /* both 0: any finite number */
    bool above, under;
    unsigned at; /* where it stands in struct fl_args; 0: nowhere, `prepare` or `run` takes it */
    int of;      /* FL_DIM and the like: an operand */
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
    FL_PROMISE_COPY,   /* elements of operands, as they are */
    FL_PROMISE_NUMBERS /* numbers beside the formats, by a fixed sequence */
};

struct fl_operation {
    enum fl_op op;
    enum fl_promise promise;
    const char *gradient; /* operations that its gradient is made of; NULL: those of its name with _grad, or none */
    /* What stands in out and in[0] ... of struct fl_args, and in its parameters: operands in order, the output first if
     * there is one. NULL: those of the function of its name. */
    const struct fl_operand *operands;
    int operand_count;
    struct fl_any_kernels reference;
    /* By backend, FL_REF left empty; NULL: none. Where `shared16` is set they know mantissas of int16 only. */
    const struct fl_any_kernels *any;
    bool shared16;
    /* Where the kernels depend on the format. */
    struct fl_any_kernels (*find)(const struct fl_format *format, enum fl_op op, enum fl_backend backend);
};

/* --- functions ---------------------------------------------------------------------------------------------------- */

struct fl_function;

/* A call of a function, checked so far. */
struct fl_invocation {
    const struct fl_function *function;
    const tensor *const *tensors; /* in the order of its operands; NULL: not given */
    const union fl_value *scalars;
    const struct fl_sizes *sizes;
};

struct fl_function {
    const char *name; /* of the public function, without tensor_ */
    enum fl_op op;    /* the operation that writes operand 0; FL_OP_NONE: `run` submits others */
    int outputs;      /* the first so many operands are written */
    int operand_count, scalar_count;
    const struct fl_operand *operands;
    const struct fl_scalar_rule *scalars;
    const char *derived; /* letters of sizes that `derive` computes; NULL: none */
    /* Computes them from the other sizes and the scalars; false, with the message set unless `quiet`: there are no such
     * sizes. NULL: nothing to do. */
    bool (*derive)(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet);
    /* The shape of an operand whose text is "=", from those that are given otherwise; its number of dimensions, -1 with
     * the message set where there is none. NULL: no operand is such. */
    int (*shape_of)(const struct fl_invocation *call, int operand, int64_t *shape);
    /* What shapes and limits do not say. NULL: nothing. */
    tensor_status (*check)(const struct fl_invocation *call);
    /* Puts sizes and scalars into the parameters, beside those with an `at`. NULL: nothing to do. */
    void (*prepare)(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars);
    /* Submits what is to be done; NULL: args as prepared are, written by `op`. */
    tensor_status (*run)(const struct fl_invocation *call, struct fl_args *args);
};

/* Checks the call and runs it: what the public function of that name does. `tensors` and `scalars` are in the order of
 * the function's operands and scalars; an optional operand that is not given is NULL. */
tensor_status fl_invoke(const struct fl_function *function, const tensor *const *tensors,
                        const union fl_value *scalars);

/* The same by values in place: FL_INVOKE(layernorm, FL_GIVEN(y, x, gamma, beta), FL_REAL(epsilon)). */
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

/* The function of that name, and of index i in a list of all; NULL: none. The operation of that number. */
const struct fl_function *fl_function_named(const char *name);
const struct fl_function *fl_function_at(int i);
const struct fl_operation *fl_operation_of(enum fl_op op);

#endif
