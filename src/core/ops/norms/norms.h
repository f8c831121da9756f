/* norms.h - what normalisations of rows and of groups share. */
#ifndef FL_NORMS_H
#define FL_NORMS_H

#include "core/ops/operation.h"

/* The `run` of their gradients dx, dgamma and, where the function has it and it is given, dbeta: three writes, none of
 * which can fail but for want of memory. `gamma` is the operation that writes dgamma. */
tensor_status fl_run_norm_gradient(const struct fl_invocation *call, struct fl_args *args, enum fl_op gamma);

#endif
