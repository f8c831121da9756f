/* blocks_recurrent.h - single steps of LSTM and GRU, and gradients. A part of tensor_blocks.h: building blocks of
 * training, which may change between versions. */
#ifndef FLEXLAB_BLOCKS_RECURRENT_H
#define FLEXLAB_BLOCKS_RECURRENT_H

#include "flexlab/api.h"
#include "flexlab/tensor_recurrent.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One step, as tensor_recurrent.h has it. Outputs are other tensors than inputs but where it is said. */
FLEXLAB_API tensor_status tensor_lstm_cell(tensor *c, const tensor *gates, const tensor *c_before)
    FLEXLAB_SYMBOL(tensor_lstm_cell);
FLEXLAB_API tensor_status tensor_lstm_hidden(tensor *h, const tensor *gates, const tensor *c)
    FLEXLAB_SYMBOL(tensor_lstm_hidden);
/* The gradient of c, all paths together: dh s(o) (1 - tanh(c)^2) + dc_after s(f_after). dc_after and gates_after are
 * those of the step after this one, both NULL for the last step; dc may be dc_after. */
FLEXLAB_API tensor_status tensor_lstm_cell_grad(tensor *dc, const tensor *dh, const tensor *gates, const tensor *c,
                                                const tensor *dc_after, const tensor *gates_after)
    FLEXLAB_SYMBOL(tensor_lstm_cell_grad);
/* The gradients of what enters the gates. */
FLEXLAB_API tensor_status tensor_lstm_gates_grad(tensor *dgates, const tensor *dh, const tensor *dc,
                                                 const tensor *gates, const tensor *c, const tensor *c_before)
    FLEXLAB_SYMBOL(tensor_lstm_gates_grad);
FLEXLAB_API tensor_status tensor_gru_hidden(tensor *h, const tensor *x_gates, const tensor *h_gates,
                                            const tensor *h_before) FLEXLAB_SYMBOL(tensor_gru_hidden);
/* The gradients of x_gates, and of h_gates. */
FLEXLAB_API tensor_status tensor_gru_input_grad(tensor *dx_gates, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *h_before)
    FLEXLAB_SYMBOL(tensor_gru_input_grad);
FLEXLAB_API tensor_status tensor_gru_gates_grad(tensor *dh_gates, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *h_before)
    FLEXLAB_SYMBOL(tensor_gru_gates_grad);
/* What reaches h_before around the product: dh z + dy, dy (NULL: nothing) what reaches it from elsewhere. */
FLEXLAB_API tensor_status tensor_gru_state_grad(tensor *ds, const tensor *dh, const tensor *x_gates,
                                                const tensor *h_gates, const tensor *dy)
    FLEXLAB_SYMBOL(tensor_gru_state_grad);

/* tensor_lstm back through time, for a sequence that began at h0 = c0 = zero, a tensor of zeros [N, H]. dy [T, N, H]:
 * the gradient of h from outside; dx [T, N, 4H]; du one exact sum over all steps. dh and dc [N, H] keep the exponents
 * of the gradients of h and c; of their values those of the first step remain (dh: of step 0 where T > 1). */
FLEXLAB_API tensor_status tensor_lstm_grad(tensor *dx, tensor *du, tensor *dh, tensor *dc, const tensor *dy,
                                           const tensor *h, const tensor *c, const tensor *gates, const tensor *u,
                                           const tensor *zero) FLEXLAB_SYMBOL(tensor_lstm_grad);
/* tensor_gru back through time, as tensor_lstm_grad; dh_gates [T, N, 3H]; dbias [3H], the sum of its rows; dh and ds
 * [N, H], the gradient of h and its part around the product. */
FLEXLAB_API tensor_status tensor_gru_grad(tensor *dx, tensor *dh_gates, tensor *du, tensor *dbias, tensor *dh,
                                          tensor *ds, const tensor *dy, const tensor *h, const tensor *h_gates,
                                          const tensor *x, const tensor *u, const tensor *zero)
    FLEXLAB_SYMBOL(tensor_gru_grad);

#ifdef __cplusplus
}
#endif
#endif
