/* calls.h - what calls.inc, generated from the public headers, says of each operation. */
#ifndef FLEXLAB_PYTHON_CALLS_H
#define FLEXLAB_PYTHON_CALLS_H

#include "core.h"

enum { PARAMETERS = 16, OPTION_BYTES = 128, OPTION_LENGTH = 8 };

enum kind {
    KIND_TENSOR,
    KIND_FLOAT,
    KIND_DOUBLE,
    KIND_INT,
    KIND_UNSIGNED,
    KIND_INT64,
    KIND_UINT64,
    KIND_INT32,
    KIND_BOOL,
    KIND_AXES,
    KIND_INTS,
    KIND_OPTIONS
};

/* A member of a struct of options, which a keyword of its name sets. */
struct option {
    const char *name;
    enum kind kind;
    size_t at;
    int length; /* of an array; 0: a single value */
};
struct options {
    size_t bytes;
    const struct option *member; /* ends with a NULL name */
};

struct parameter {
    const char *name;
    enum kind kind;
    bool optional; /* without it: NULL, false, or `otherwise` */
    double otherwise;
    const struct options *options;
};

union value {
    tensor *t;
    float f;
    double d;
    int i;
    unsigned u;
    int64_t l;
    uint64_t w;
    bool b;
    int ints[TENSOR_MAX_DIMS];
    _Alignas(8) char options[OPTION_BYTES];
};

/* An operation. The first `results` parameters are tensors that it writes: Python has them as out=, and makes those
 * that are not given, by the first operand where `like_first`, otherwise by flexlab._shapes. 0: all parameters are in
 * the order of C. */
struct operation {
    const char *name;
    const struct parameter *parameter;
    int count, results;
    bool like_first;
    tensor_status (*run)(const union value *v);
};

#endif
