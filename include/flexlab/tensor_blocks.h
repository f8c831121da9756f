/* tensor_blocks.h - building blocks of training: gradients, parts of operations, several operations in one. They may
 * change between versions; tensor.h has what programs build on. The conventions of tensor.h hold. */
#ifndef FLEXLAB_TENSOR_BLOCKS_H
#define FLEXLAB_TENSOR_BLOCKS_H

/* The parts; each may be included alone. */
#include "flexlab/blocks_axes.h"       /* gradients of reductions, of broadcast operands and of choices */
#include "flexlab/blocks_copies.h"     /* gradients of copies */
#include "flexlab/blocks_losses.h"     /* gradients of softmax */
#include "flexlab/blocks_norms.h"      /* moments, running statistics, gradients of normalisations */
#include "flexlab/blocks_optimisers.h" /* what optimisers compute */
#include "flexlab/blocks_products.h"   /* what joins the sums of a product */
#include "flexlab/blocks_recurrent.h"  /* single steps of LSTM and GRU, and gradients */
#include "flexlab/blocks_windows.h"    /* gradients of convolutions and poolings; shortcuts */
#include "flexlab/tensor.h"

#endif
