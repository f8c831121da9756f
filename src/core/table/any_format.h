/* any_format.h - kernels that serve every format through its codec: what a row of kernels runs where the format has
 * none of its own. */
#ifndef FL_ANY_FORMAT_H
#define FL_ANY_FORMAT_H

#include "core/table/kernel.h"

/* softmax.c: rows of the instruction sets. */
fl_kernel fl_softmax_kernel(enum fl_backend backend);

/* loss_entropy.c: rows of the instruction sets. */
struct fl_any_kernels fl_entropy_any(enum fl_backend backend);
/* cells.c: likewise. */
struct fl_any_kernels fl_cells_any(enum fl_backend backend);
/* softmax_map.c, embedding.c, copies.c: rows in threads, with the vectors of each backend. */
extern const struct fl_any_kernels fl_softmax_map_any[FL_BACKENDS], fl_embedding_any[FL_BACKENDS],
    fl_embedding_grad_any[FL_BACKENDS], fl_copy_any[FL_BACKENDS];
/* batched.c: of the rows that have the matmul of one matrix. */
struct fl_any_kernels fl_batched_any(const struct fl_format *format, enum fl_op op, enum fl_backend backend);
/* avgpool.c, lrn.c, dropout.c */
extern const struct fl_any_kernels fl_avgpool_any, fl_lrn_any, fl_dropout_any;
/* axes.c, broadcast.c */
extern const struct fl_any_kernels fl_reduce_any, fl_reduce_grad_any, fl_argmax_any, fl_broadcast_any;

#endif
