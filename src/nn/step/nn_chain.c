/* nn_chain.c - networks in a chain, whose gradients come from the next network and are passed to the one before;
 * clipping of weights. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>

static tensor_status check_chained(const nn_graph *g, const char *what) {
    TRY(fl_check_images(g));
    return g->objective.kind == FL_LOSS_NONE ? TENSOR_OK
                                             : fl_fail(TENSOR_E_ARGUMENT, "%s: the loss is %s, expected none", what,
                                                       nn_loss_name_at((int)g->objective.kind));
}

tensor_status nn_backward_from(nn_graph *g, const tensor *gradient) {
    TRY(check_chained(g, "backward"));
    if (!gradient)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: the gradient is NULL");
    if (g->phase != FL_PHASE_FORWARD)
        return fl_fail(TENSOR_E_ARGUMENT, "backward: no forward pass before it whose activations still exist");
    const tensor_format own = g->values[fl_output_of(g, g->logits)->dy].type.format;
    if (tensor_format_of(gradient) != own && !g->policy) /* otherwise the network before or after may have another */
        return fl_fail(TENSOR_E_FORMAT, "backward: the gradient is %s, expected %s",
                       tensor_format_name(tensor_format_of(gradient)), tensor_format_name(own));
    TRY(fl_begin_gradient(g, gradient));
    return fl_finish_pass(g);
}

const tensor *nn_output(const nn_graph *g) {
    if (check_chained(g, "output"))
        return NULL;
    if (g->phase == FL_PHASE_FORWARD)
        return g->values[fl_output_of(g, g->logits)->y].t;
    fl_fail(TENSOR_E_ARGUMENT, "output: no forward pass before it whose activations still exist");
    return NULL;
}

const tensor *nn_input_gradient(const nn_graph *g) {
    if (fl_check_ready(g))
        return NULL;
    if (g->objective.has_input_gradient)
        return g->values[fl_output_of(g, 0)->dy].t;
    fl_fail(TENSOR_E_ARGUMENT, g->objective.input_gradient
                                   ? "input gradient: no backward pass before it whose gradients still exist"
                                   : "input gradient: the network was made without input_gradient");
    return NULL;
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

tensor_status nn_clip_weights(nn_graph *g, float limit) {
    TRY(fl_check_ready(g));
    if (!(limit >= 0 && isfinite(limit)))
        return fl_fail(TENSOR_E_ARGUMENT, "clip: limit %g, expected 0 or more", (double)limit);
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            if (fl_is_weight(&g->nodes[i].parameter[k])) {
                TRY(tensor_clip_weight(fl_updated(&g->nodes[i].parameter[k]), limit));
                TRY(fl_refresh_weight(&g->nodes[i].parameter[k]));
            }
    return TENSOR_OK;
}
