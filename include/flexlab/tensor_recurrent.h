/* tensor_recurrent.h - LSTM and GRU over whole sequences. Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_RECURRENT_H
#define FLEXLAB_TENSOR_RECURRENT_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- recurrent networks --------------------------------------------------------------------------------------------
 *
 * One step of a long short-term memory, LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al.
 * 2000), of N sequences and H units. gates [N, 4H]: the inputs of the gates i, f, g, o, H columns each; c, h [N, H].
 * With s the logistic function:
 *     c = s(f) c_before + s(i) tanh(g)        h = s(o) tanh(c)
 * One step of a gated recurrent unit, GRU (Cho et al. 2014, with the reset gate after the product, as in cuDNN):
 * x_gates and h_gates [N, 3H], the contributions of the input and of the state to the gates r, z, n:
 *     r = s(x_r + h_r)   z = s(x_z + h_z)   n = tanh(x_n + r h_n)   h = (1 - z) n + z h_before
 *
 * In every format each result is computed from the stored operands in double, by one fixed sequence of operations with
 * the library's own exponential (docs/models.md), and rounded once; in float formats through binary32. The bits are the
 * same on every backend. TENSOR_E_SHAPE for shapes other than these; outputs are other tensors than inputs. */

/* LSTM over whole sequences of T steps, time first. An output over time is one incremental write: one exponent, chosen
 * before the first step, statistics over all steps, and one record in the history after the last. If the exponent does
 * not follow from a history (a first write; "current"), the sequence is computed again at the exponents that its maxima
 * need, until these are the ones it ran with, in at most four attempts. The outputs must not round stochastically
 * (TENSOR_E_ARGUMENT).
 *
 * x [T, N, 4H]: the products of the inputs with their weights, bias included; u [H, 4H]. The gates of step t are h of
 * the step before times u, plus x of the step, rounded once. h0, c0 [N, H]: the state before the first step. Results,
 * all needed for the gradient: h, c [T, N, H], gates [T, N, 4H]. */
FLEXLAB_API tensor_status tensor_lstm(tensor *h, tensor *c, tensor *gates, const tensor *x, const tensor *u,
                                      const tensor *h0, const tensor *c0);
/* GRU over whole sequences, likewise. x [T, N, 3H], u [H, 3H], bias [3H] of the products with u. Results, all needed
 * for the gradient: h [T, N, H], h_gates [T, N, 3H]. */
FLEXLAB_API tensor_status tensor_gru(tensor *h, tensor *h_gates, const tensor *x, const tensor *u, const tensor *bias,
                                     const tensor *h0);
#ifdef __cplusplus
}
#endif
#endif
