/* losses.h - kernels of losses for every format: loss_entropy.c, loss_errors.c. */
#ifndef FL_LOSSES_H
#define FL_LOSSES_H

#include "core/table/kernel.h"

/* The definition of cross-entropy with shares, its workspace, and the kernels of the instruction sets. */
tensor_status fl_entropy_ref(const struct fl_args *args);
size_t fl_entropy_need(const struct fl_args *args);
struct fl_any_kernels fl_entropy_any(enum fl_backend backend);

/* Mean squared error, Huber's loss and the loss of a critic: one kernel of each serves every backend. */
tensor_status fl_error_losses(const struct fl_args *args);
size_t fl_error_losses_need(const struct fl_args *args);
tensor_status fl_critic_losses(const struct fl_args *args);

#endif
