/* rounded.c - see rounded.h. */
#include "program/store/rounded.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

/* Whether the node reads this constant operand in its format alone. A product of constants is computed before it has a
 * format, and volumes are left to compute(), which takes numbers as they are. */
static bool reads_rounded(const struct fl_network *n, const struct fl_net_node *node, int operand) {
    const struct fl_net_value *const first = node->inputs[0] < 0 ? NULL : &n->values[node->inputs[0]];
    const struct fl_array *const a = n->values[node->inputs[operand]].constant;
    if (*node->domain || !first || node->input_count < 2 || node->inputs[1] < 0 || !a->count)
        return false;
    const struct fl_net_value *const second = &n->values[node->inputs[1]];
    if (!strcmp(node->op, "Conv") || !strcmp(node->op, "ConvTranspose"))
        return (operand == 1 || operand == 2) && !first->constant && second->constant && second->ndim >= 3 &&
               second->ndim <= 4;
    if (!strcmp(node->op, "Gemm"))
        return !(first->constant && second->constant) && a->ndim <= 2;
    if (!strcmp(node->op, "MatMul"))
        return !(first->constant && second->constant) && a->ndim <= TENSOR_MAX_DIMS;
    return false;
}

static void see_use(struct fl_constant_use *use, const struct fl_net_node *node, bool rounded) {
    const bool narrow = rounded && node->format && node->format != FMT_FP32;
    for (int i = 0; i < use->count && narrow; i++)
        if (use->format[i] == node->format)
            return;
    if (!narrow || use->count == FL_USE_FORMATS) {
        use->plain = true;
        return;
    }
    use->format[use->count] = node->format;
    use->node[use->count++] = node;
}

static void see_graph(struct fl_constant_use *uses, const struct fl_network *n, const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] >= 0 && n->values[node->inputs[i]].constant)
                see_use(&uses[node->inputs[i]], node,
                        n->values[node->inputs[i]].constant->type == TENSOR_TYPE_F32 && reads_rounded(n, node, i));
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                see_graph(uses, n, node->attributes[a].graph);
    }
    for (int i = 0; i < graph->output_count; i++)
        uses[graph->outputs[i]].plain = true;
}

struct fl_constant_use *fl_constant_uses(const struct fl_network *n) {
    struct fl_constant_use *const uses = fl_alloc_zero(((size_t)n->value_count + 1) * sizeof *uses);
    if (uses)
        see_graph(uses, n, &n->graph);
    else
        fl_fail(TENSOR_E_MEMORY, "no memory for the constants of %d values", n->value_count);
    return uses;
}

/* --- rounding ----------------------------------------------------------------------------------------------------- */

void fl_round_end(struct fl_rounded *r) {
    tensor_free(r->t);
    fl_free(r->numbers);
    *r = (struct fl_rounded){0};
}

tensor_status fl_round(struct fl_rounded *r, const struct fl_array *a, tensor_format format) {
    *r = (struct fl_rounded){.t = tensor_new(format, 1, &a->count),
                             .numbers = fl_alloc((size_t)a->count * sizeof *r->numbers)};
    tensor_status status = !r->t         ? tensor_error_status()
                           : !r->numbers ? fl_fail(TENSOR_E_MEMORY, "no memory for %lld numbers", (long long)a->count)
                                         : tensor_load_array(r->t, a->data, a->type, a->count);
    if (!status)
        status = tensor_statistics(&r->stats, NULL, r->t);
    if (!status)
        status = tensor_store_f32(r->t, r->numbers, a->count);
    if (status)
        fl_round_end(r);
    return status;
}

tensor_status fl_round_is_stable(bool *stable, const struct fl_rounded *r, int64_t count) {
    const struct fl_array rounded = {
        .type = TENSOR_TYPE_F32, .ndim = 1, .dim = {count}, .count = count, .data = r->numbers};
    struct fl_rounded again;
    TRY(fl_round(&again, &rounded, tensor_format_of(r->t)));
    *stable = tensor_exponent(r->t) == tensor_exponent(again.t) &&
              !memcmp(tensor_const_data(r->t), tensor_const_data(again.t),
                      (size_t)count * tensor_format_bytes(tensor_format_of(r->t)));
    fl_round_end(&again);
    return TENSOR_OK;
}
