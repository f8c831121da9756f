/* blocks_recurrent.h - single steps of LSTM and GRU, and their gradients. Part of tensor_blocks.h: building blocks of
 * training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_RECURRENT_H
#define FLEXLAB_BLOCKS_RECURRENT_H

#include "flexlab/api.h"
#include "flexlab/tensor_recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One step, as tensor_recurrent.h defines it. Outputs are other tensors than inputs unless a comment permits it. */
FLEXLAB_API tensor_status tensor_lstm_cell(tensor *c, const tensor *gates, const tensor *c_before);
FLEXLAB_API tensor_status tensor_lstm_hidden(tensor *h, const tensor *gates, const tensor *c);
/* The gradient of c over all paths: dc = dh s(o) (1 - tanh(c)^2) + dc_after s(f_after). dc_after and gates_after belong
 * to the next step; both are NULL for the last step. dc may be dc_after. */
FLEXLAB_API tensor_status tensor_lstm_cell_grad(tensor *dc, const tensor *dh, const tensor *gates, const tensor *c,
                                                const tensor *dc_after, const tensor *gates_after);
/* The gradients of the inputs of the gates. */
FLEXLAB_API tensor_status tensor_lstm_gates_grad(tensor *dgates, const tensor *dh, const tensor *dc,
                                                 const tensor *gates, const tensor *c, const tensor *c_before);
FLEXLAB_API tensor_status tensor_gru_hidden(tensor *h, const tensor *x_gates, const tensor *h_gates,
                                            const tensor *h_before);
/* The gradients of x_gates and of h_gates. */
FLEXLAB_API tensor_status tensor_gru_input_grad(tensor *dx_gates, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *h_before);
FLEXLAB_API tensor_status tensor_gru_gates_grad(tensor *dh_gates, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *h_before);
/* The gradient that reaches h_before around the product: dh z + dy, where dy (NULL: none) reaches it on other paths. */
FLEXLAB_API tensor_status tensor_gru_state_grad(tensor *ds, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *dy);

/* The gradient of tensor_lstm, back through time, for a sequence that began at h0 = c0 = zero, a tensor of zeros [N,
 * H]. dy [T, N, H] is the gradient of h from outside; dx [T, N, 4H]; du is one exact sum over all steps. dh and dc [N,
 * H] hold the exponents of the gradients of h and c for all steps, and at the end the values of the first step (dh: of
 * step 0 if T > 1). */
FLEXLAB_API tensor_status tensor_lstm_grad(tensor *dx, tensor *du, tensor *dh, tensor *dc, const tensor *dy,
                                           const tensor *h, const tensor *c, const tensor *gates, const tensor *u,
                                           const tensor *zero);
/* The gradient of tensor_gru, back through time, as tensor_lstm_grad. dh_gates [T, N, 3H]; dbias [3H], the sum of its
 * rows; dh and ds [N, H], the gradient of h and its part around the product. */
FLEXLAB_API tensor_status tensor_gru_grad(tensor *dx, tensor *dh_gates, tensor *du, tensor *dbias, tensor *dh,
                                          tensor *ds, const tensor *dy, const tensor *h, const tensor *h_gates,
                                          const tensor *x, const tensor *u, const tensor *zero);

#ifdef __cplusplus
}
#endif
#endif
