/* operators.c - the table of operators, from operators.def. */
#include "program/operators.h"
#include "program/arrays/arrays.h"
#include "program/lower/lower.h"
#include "program/lower/quantised.h"
#include <string.h>

static const struct fl_operator operators[] = {
#define OPERATOR_INT8(op, in_least, in_most, out_least, out_most, shape, compute, lower, lower_int8)                   \
    {#op, in_least, in_most, out_least, out_most, shape, compute, lower, lower_int8},
#define OPERATOR(op, in_least, in_most, out_least, out_most, shape, compute, lower)                                    \
    OPERATOR_INT8(op, in_least, in_most, out_least, out_most, shape, compute, lower, NULL)
#include "program/operators.def"
#undef OPERATOR
#undef OPERATOR_INT8
};
enum { COUNT = sizeof operators / sizeof operators[0] };

const struct fl_operator *fl_operator_at(int i) {
    return i >= 0 && i < COUNT ? &operators[i] : NULL;
}

/* The table is in the order of strcmp. */
const struct fl_operator *fl_operator_find(const char *domain, const char *op) {
    int low = 0, high = COUNT - 1;
    while (!*domain && low <= high) {
        const int middle = (low + high) / 2, order = strcmp(op, operators[middle].op);
        if (!order)
            return &operators[middle];
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return NULL;
}
