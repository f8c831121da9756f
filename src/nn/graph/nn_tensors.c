/* nn_tensors.c - the tensors of a network as they are made, and the list of them. */
#include "nn/graph/nn_graph.h"
#include "core/base/fail.h"
#include "core/base/memory.h"

tensor_status fl_list_tensor(nn_graph *g, char *name, const char *role, tensor *t, tensor_status status) {
    if (!status && t && tensor_format_is_shared(tensor_format_of(t)))
        status = tensor_set_role(t, autoflex_find_role(role));
    if (status) {
        fl_free(name);
        return status;
    }
    if (!name || fl_grow((void **)&g->infos, g->info_count, &g->info_capacity, sizeof *g->infos)) {
        fl_free(name);
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for the list of tensors");
    }
    g->infos[g->info_count++] = (nn_tensor_info){name, role, t};
    return TENSOR_OK;
}

tensor_status fl_set_predictor(tensor *t, const char *predictor) {
    return predictor && tensor_format_is_shared(tensor_format_of(t)) ? tensor_set_predictor(t, predictor) : TENSOR_OK;
}

tensor_status fl_new_tensor(const nn_graph *g, tensor **t, struct fl_type type, const struct fl_shape *shape) {
    *t = tensor_new_in(g->device, type.format, shape->ndim, shape->dim);
    return *t ? fl_set_predictor(*t, type.predictor) : tensor_error_status();
}
