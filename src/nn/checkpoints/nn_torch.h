/* nn_torch.h - the names and layouts that a network's weights have in PyTorch. */
#ifndef FL_NN_TORCH_H
#define FL_NN_TORCH_H

#include "nn/checkpoints/nn_weights.h"

enum { FL_TORCH_NAMES = 3, FL_TORCH_NAME = 3 * FL_NAME_LIMIT };

/* Where a weight is in a state dict. */
struct fl_torch_name {
    int count; /* names that are in use for it, the most usual first */
    char name[FL_TORCH_NAMES][FL_TORCH_NAME];
    char plus[FL_TORCH_NAME];  /* a tensor that is added to it; "": none */
    char minus[FL_TORCH_NAME]; /* one that is subtracted, if there is one */
    int third;                 /* 1, 2, 3: it is that third of the tensor's rows; 0: the whole */
};

/* By the names of a public implementation of the model (docs/programs.md), else by this library's with PyTorch's
 * suffixes. */
void fl_torch_name(struct fl_torch_name *out, const char *model, const char *own);
/* Its shape there, and the meaning of the dimensions. */
const char *fl_torch_shape(struct fl_shape *shape, const struct fl_target *t, int third);
/* Brings elements of that shape into the library's order. */
void fl_torch_order(double *to, const double *from, const struct fl_target *t);

#endif
