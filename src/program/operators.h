/* operators.h - the table of operators that programs have (operators.def). */
#ifndef FL_PROGRAM_TABLE_H
#define FL_PROGRAM_TABLE_H

#include "program/arrays/operators.h"

/* The operator of a node; NULL: there is none. The domain "" is ONNX's. */
const struct fl_operator *fl_operator_find(const char *domain, const char *op);
/* The i-th operator in the order of their names; NULL past the last. */
const struct fl_operator *fl_operator_at(int i);

#endif
