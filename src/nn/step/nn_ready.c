/* nn_ready.c - whether a network can run a step, and which values it loses when other code uses their memory. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/values/tensor_state.h"

tensor_status fl_check_ready(const nn_graph *g) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "network: the graph is NULL");
    if (g->status)
        return fl_fail(g->status, "%s", g->message);
    if (!g->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "network: the graph is not compiled");
    return TENSOR_OK;
}

tensor_status fl_check_images(const nn_graph *g) {
    TRY(fl_check_ready(g));
    return g->tokens ? fl_fail(TENSOR_E_ARGUMENT, "network: images, but the input of the network is tokens")
                     : TENSOR_OK;
}

void fl_hide_values(nn_graph *g) {
    for (int i = 0; i < g->value_count; i++)
        if (fl_is_stored(g, i))
            fl_tensor_hide(g->values[i].t, true);
}

void fl_lose_values(nn_graph *g) {
    g->objective.has_input_gradient = false;
    fl_hide_values(g);
    if (g->phase == FL_PHASE_FORWARD)
        g->phase = FL_PHASE_IDLE;
}
