/* plan_layers.c - layers of 8-bit integers, packed once for all plans of a program. Their weights are constants of the
 * network, or copies in another order, so that they can be packed anew for another instruction set. */
#include "program/plan/plan.h"
#include "program/plan/program_object.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/table/format.h"
#include <string.h>

struct fl_program_layer {
    struct fl_program_layer *next;
    const void *owner; /* the list of results of the node, which lies where it is as long as the network */
    struct fl_int8_layer_spec spec;
    struct fl_int8_type residual;
    void *weights; /* in another order than the network's; NULL: not needed */
    struct fl_int8_layer *packed;
    enum fl_backend cap; /* the instruction set for which it is packed */
};

void fl_program_free_layers(struct fl_program *of) {
    for (struct fl_program_layer *l = of->layers, *next; l; l = next) {
        next = l->next;
        fl_int8_free(l->packed);
        fl_free(l->weights);
        fl_free(l);
    }
    of->layers = NULL;
}

/* Bytes of an array in another order of its dimensions. */
static tensor_status permute(struct fl_program_layer *l, const struct fl_array *a, const int *order) {
    int64_t stride[FL_ARRAY_DIMS], index[FL_ARRAY_DIMS] = {0}, step = 1, from = 0;
    for (int d = a->ndim - 1; d >= 0; step *= a->dim[d--])
        stride[d] = step;
    uint8_t *const to = l->weights = fl_alloc((size_t)a->count + 1);
    if (!to)
        return fl_fail(TENSOR_E_MEMORY, "no memory for %lld weights", (long long)a->count);
    for (int64_t i = 0; i < a->count; i++) {
        to[i] = ((const uint8_t *)a->data)[from];
        for (int d = a->ndim - 1; d >= 0; d--) {
            from += stride[order[d]];
            if (++index[d] < a->dim[order[d]])
                break;
            from -= stride[order[d]] * a->dim[order[d]];
            index[d] = 0;
        }
    }
    l->spec.weights = to;
    return TENSOR_OK;
}

static tensor_status pack(struct fl_program_layer *l) {
    struct fl_int8_layer *made;
    enum fl_backend cap;
    TRY(fl_backend_cap(&cap));
    TRY(fl_int8_pack(&l->spec, &made));
    fl_int8_free(l->packed);
    l->packed = made;
    l->cap = cap;
    return TENSOR_OK;
}

tensor_status fl_program_layer_get(struct fl_program_layer *l, const struct fl_int8_layer **packed) {
    enum fl_backend cap;
    TRY(fl_backend_cap(&cap));
    if (cap != l->cap)
        TRY(pack(l));
    *packed = l->packed;
    return TENSOR_OK;
}

/* A node has a layer for each padding that follows from the sizes of its images. */
static bool same_window(const struct fl_int8_window *a, const struct fl_int8_window *b) {
    return a->top == b->top && a->left == b->left && a->bottom == b->bottom && a->right == b->right;
}

tensor_status fl_plan_layer(struct fl_planner *p, const struct fl_net_node *node, const struct fl_int8_layer_spec *spec,
                            const struct fl_array *weights, const int *weights_order, struct fl_program_layer **layer) {
    struct fl_program *const of = fl_plan_program(p);
    for (struct fl_program_layer *l = of->layers; l; l = l->next)
        if (l->owner == node->outputs && same_window(&l->spec.window, &spec->window)) {
            *layer = l;
            return TENSOR_OK;
        }
    struct fl_program_layer *const l = fl_alloc_zero(sizeof *l);
    if (!l)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a layer");
    l->owner = node->outputs;
    l->spec = *spec;
    if (spec->residual) {
        l->residual = *spec->residual;
        l->spec.residual = &l->residual;
    }
    tensor_status status = weights_order ? permute(l, weights, weights_order) : TENSOR_OK;
    if (!status)
        status = pack(l);
    if (status) {
        fl_free(l->weights);
        fl_free(l);
        return status;
    }
    l->next = of->layers;
    of->layers = *layer = l;
    return TENSOR_OK;
}
