/* tensor_recurrent.h - LSTM and GRU over whole sequences. A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_RECURRENT_H
#define FLEXLAB_TENSOR_RECURRENT_H

#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- recurrent networks --------------------------------------------------------------------------------------------
 *
 * One step of a long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000) of N
 * sequences and H units. gates [N, 4H]: what enters the gates i, f, g, o, H columns each; c, h [N, H]. With s the
 * logistic function:
 *     c = s(f) c_before + s(i) tanh(g)        h = s(o) tanh(c)
 * One step of a gated recurrent unit (Cho et al. 2014, the reset gate behind the product, as cuDNN has it): x_gates and
 * h_gates [N, 3H], the parts of the input and of the state of what enters r, z, n:
 *     r = s(x_r + h_r)   z = s(x_z + h_z)   n = tanh(x_n + r h_n)   h = (1 - z) n + z h_before
 *
 * In every format each result is computed from the stored operands in double, by one fixed sequence of operations with
 * an exponential of its own (docs/recurrent.md), and rounded once; float formats by way of binary32. Same bits on every
 * backend. TENSOR_E_SHAPE for shapes other than these; outputs are other tensors than inputs. */

/* Whole sequences of T steps, time first. A tensor over time is one write: one exponent, set before the first step and
 * learned from after the last, statistics over all of it. Where the exponent is not that of a history (a first write;
 * "current"), the sequence is run again at the exponents that its maxima ask for, until they are those that it ran at,
 * at most four times. What is written must not round stochastically (TENSOR_E_ARGUMENT).
 *
 * x [T, N, 4H]: the products of the inputs with their weights, bias included; u [H, 4H]. Gates of step t are h of the
 * step before times u, plus x of the step, rounded once. h0, c0 [N, H]: before the first step. Results, all kept for
 * the gradient: h, c [T, N, H], gates [T, N, 4H]. */
FLEXLAB_API tensor_status tensor_lstm(tensor *h, tensor *c, tensor *gates, const tensor *x, const tensor *u,
                                      const tensor *h0, const tensor *c0) FLEXLAB_SYMBOL(tensor_lstm);
/* x [T, N, 3H], u [H, 3H], bias [3H] of the products with u. Kept for the gradient: h [T, N, H], h_gates [T, N, 3H]. */
FLEXLAB_API tensor_status tensor_gru(tensor *h, tensor *h_gates, const tensor *x, const tensor *u, const tensor *bias,
                                     const tensor *h0) FLEXLAB_SYMBOL(tensor_gru);
#ifdef __cplusplus
}
#endif
#endif
