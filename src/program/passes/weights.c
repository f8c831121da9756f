/* weights.c - weights stored in 8 bits for operators that compute floats. */
#include "program/passes/passes.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"

void fl_pass_reals(float *to, const struct fl_net_value *v) {
    const struct fl_array *const q = v->constant;
    const struct fl_quantisation *const as = v->quantisation;
    int64_t inner = 1;
    for (int d = as->axis + 1; d < q->ndim; d++)
        inner *= q->dim[d];
    for (int64_t i = 0; i < q->count; i++) {
        const int c = as->count == 1 ? 0 : (int)(i / inner % as->count);
        to[i] = (float)((double)as->scale[c] * (double)(fl_array_integer(q, i) - as->zero[c]));
    }
}

tensor_status fl_pass_floats(struct fl_network *n, int value, int *made) {
    const struct fl_net_value v = n->values[value];
    const struct fl_array *const q = v.constant;
    struct fl_array *f;
    TRY(fl_net_array(n, &f, TENSOR_TYPE_F32, q->ndim, q->dim));
    fl_pass_reals(f->data, &v);
    *made = fl_net_add_constant(n, v.name, f);
    return *made < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

tensor_status fl_pass_weights(struct fl_network *n) {
    for (int k = 0; k < n->graph.node_count; k++) {
        struct fl_net_node *const node = &n->graph.nodes[k];
        if (!node->input_count || node->inputs[0] == -1 || !fl_type_is_float(n->values[node->inputs[0]].type))
            continue;
        for (int i = 1; i < node->input_count; i++) {
            const struct fl_net_value *const v = node->inputs[i] == -1 ? NULL : &n->values[node->inputs[i]];
            if (v && v->constant && v->quantisation && !fl_type_is_float(v->type))
                TRY(fl_pass_floats(n, node->inputs[i], &node->inputs[i]));
        }
    }
    return TENSOR_OK;
}
