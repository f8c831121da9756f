/* tensor_blocks.h - building blocks of training: gradients, parts of normalisations, cells, steps of optimisers, fused
 * operations. They may change between versions; tensor.h has the functions that programs can rely on. The conventions
 * of tensor.h hold. */
#ifndef FLEXLAB_TENSOR_BLOCKS_H
#define FLEXLAB_TENSOR_BLOCKS_H

/* The headers by subject; each can also be included by itself. */
#include "flexlab/blocks_axes.h"        /* gradients of reductions, of broadcast operands and of choices */
#include "flexlab/blocks_copies.h"      /* gradients of copies */
#include "flexlab/blocks_elementwise.h" /* gradients of elementwise operations */
#include "flexlab/blocks_losses.h"      /* gradients of softmax */
#include "flexlab/blocks_norms.h"       /* moments, running statistics, gradients of normalisations */
#include "flexlab/blocks_optimisers.h"  /* the operations of optimisers */
#include "flexlab/blocks_products.h"    /* fused bias, residual and relu */
#include "flexlab/blocks_recurrent.h"   /* single steps of LSTM and GRU, and gradients */
#include "flexlab/blocks_windows.h"     /* gradients of convolutions and poolings; shortcuts */
#include "flexlab/tensor.h"

#endif
