/* fold.c - what follows a convolution and is linear in each channel becomes a part of its filters and bias. */
#include "program/passes/index.h"
#include "program/passes/passes.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <string.h>

/* y[c] = scale[c] x[c] + shift[c]: what a node does to the result of a convolution. */
struct affine {
    int64_t channels;
    double *scale, *shift;
};

static bool finite_numbers(const struct fl_array *a) {
    for (int64_t i = 0; i < a->count; i++)
        if (!isfinite(fl_array_number(a, i)))
            return false;
    return true;
}

/* Whether an operand beside an image of `ndim` dimensions has one number, or one for each channel. */
static bool per_channel(const struct fl_array *a, const struct fl_net_node *conv, int ndim, int64_t channels) {
    const int channel = conv->channels_last ? ndim - 1 : 1;
    if (!a || !fl_type_is_float(a->type) || a->ndim > ndim || !finite_numbers(a))
        return false;
    if (a->count == 1)
        return true;
    if (a->count != channels)
        return false;
    const int at = channel - (ndim - a->ndim);
    return at >= 0 && a->dim[at] == channels;
}

/* The affine map of a node on the result of a convolution, which is its operand `from`. False: it has none. */
static bool affine_of(const struct fl_index *x, const struct fl_net_node *node, const struct fl_net_node *conv,
                      int from, int ndim, struct affine *a) {
    const bool add = !strcmp(node->op, "Add"), sub = !strcmp(node->op, "Sub") && !from;
    const bool mul = !strcmp(node->op, "Mul"), div = !strcmp(node->op, "Div") && !from;
    if (*node->domain || fl_net_find(node, "flexlab_activation"))
        return false;
    if (!strcmp(node->op, "BatchNormalization") && !from && !fl_net_int(node, "training_mode", 0)) {
        const double epsilon = (double)fl_net_float(node, "epsilon", 1e-5f);
        for (int i = 1; i < 5; i++)
            if (!fl_index_constant(x, node, i) || fl_index_constant(x, node, i)->count != a->channels ||
                !finite_numbers(fl_index_constant(x, node, i)))
                return false;
        for (int64_t c = 0; c < a->channels; c++) {
            const double variance = fl_array_number(fl_index_constant(x, node, 4), c) + epsilon;
            if (!(variance > 0))
                return false;
            a->scale[c] = fl_array_number(fl_index_constant(x, node, 1), c) / sqrt(variance);
            a->shift[c] = fl_array_number(fl_index_constant(x, node, 2), c) -
                          a->scale[c] * fl_array_number(fl_index_constant(x, node, 3), c);
        }
        return true;
    }
    const struct fl_array *const other = fl_index_constant(x, node, 1 - from);
    if ((!add && !sub && !mul && !div) || node->input_count != 2 || !per_channel(other, conv, ndim, a->channels))
        return false;
    for (int64_t c = 0; c < a->channels; c++) {
        const double number = fl_array_number(other, other->count == 1 ? 0 : c);
        a->scale[c] = mul ? number : div ? 1 / number : 1;
        a->shift[c] = add ? number : sub ? -number : 0;
        if (!isfinite(a->scale[c]))
            return false;
    }
    return true;
}

/* Filters and bias of a convolution, with the map applied. Sums of several maps stay in double: `bias` and `scale`
 * gather them, and the weights are rounded once, at the end of a chain. */
static tensor_status apply(const struct fl_index *x, struct fl_net_node *conv, const struct affine *a,
                           bool transposed) {
    struct fl_network *const n = x->n;
    const struct fl_array *const w = fl_index_constant(x, conv, 1), *const b = fl_index_constant(x, conv, 2);
    struct fl_array *filters, *bias;
    TRY(fl_net_array(n, &filters, TENSOR_TYPE_F32, w->ndim, w->dim));
    TRY(fl_net_array(n, &bias, TENSOR_TYPE_F32, 1, &a->channels));
    const int64_t one = w->count / w->dim[0];
    int64_t area = 1;
    for (int d = 2; d < w->ndim; d++)
        area *= w->dim[d];
    const int64_t group = fl_net_int(conv, "group", 1);
    for (int64_t i = 0; i < w->count; i++) {
        /* Transposed filters are [C, K / groups, R, S]: the filter is group by group the second dimension. */
        const int64_t k = transposed ? i / one / (w->dim[0] / group) * w->dim[1] + i / area % w->dim[1] : i / one;
        ((float *)filters->data)[i] = (float)(fl_array_number(w, i) * a->scale[k]);
    }
    for (int64_t k = 0; k < a->channels; k++)
        ((float *)bias->data)[k] = (float)((b ? fl_array_number(b, k) * a->scale[k] : 0) + a->shift[k]);
    const int filters_value = fl_net_add_constant(n, n->values[conv->inputs[1]].name, filters);
    const int bias_value = filters_value < 0 ? -1 : fl_net_add_constant(n, conv->name, bias);
    int *const inputs = fl_net_memory(n, 3 * sizeof *inputs);
    if (bias_value < 0 || !inputs)
        return TENSOR_E_MEMORY;
    inputs[0] = conv->inputs[0];
    inputs[1] = filters_value;
    inputs[2] = bias_value;
    conv->inputs = inputs;
    conv->input_count = 3;
    return TENSOR_OK;
}

/* Multiplies two maps: `then` after `first`. */
static void follow(struct affine *first, const struct affine *then) {
    for (int64_t c = 0; c < first->channels; c++) {
        first->scale[c] *= then->scale[c];
        first->shift[c] = first->shift[c] * then->scale[c] + then->shift[c];
    }
}

/* Follows the chain behind one convolution. */
static tensor_status fold_one(struct fl_index *x, struct fl_net_node *conv) {
    const struct fl_array *const w = fl_index_constant(x, conv, 1);
    const bool transposed = !strcmp(conv->op, "ConvTranspose");
    if (*conv->domain || (strcmp(conv->op, "Conv") && !transposed) || !w || w->ndim < 3 || !fl_type_is_float(w->type) ||
        fl_net_find(conv, "flexlab_activation") || conv->input_count > 3 ||
        (conv->input_count == 3 && conv->inputs[2] != -1 && !fl_index_constant(x, conv, 2)))
        return TENSOR_OK;
    struct affine all = {.channels = transposed ? w->dim[1] * fl_net_int(conv, "group", 1) : w->dim[0]}, one = all;
    double *const numbers = fl_alloc((size_t)all.channels * 4 * sizeof *numbers);
    if (!numbers)
        return fl_fail(TENSOR_E_MEMORY, "no memory to fold %lld channels", (long long)all.channels);
    all.scale = numbers;
    all.shift = numbers + all.channels;
    one.scale = numbers + 2 * all.channels;
    one.shift = numbers + 3 * all.channels;
    for (int64_t c = 0; c < all.channels; c++) {
        all.scale[c] = 1;
        all.shift[c] = 0;
    }
    bool any = false;
    tensor_status status = TENSOR_OK;
    int last = conv->outputs[0], operand;
    for (struct fl_net_node *next;
         !status && (next = fl_index_reader(x, last, &operand)) && affine_of(x, next, conv, operand, w->ndim, &one);) {
        follow(&all, &one);
        status = fl_pass_note(x->n, PROGRAM_FOLDED, next, conv);
        last = next->outputs[0];
        x->gone[next - x->n->graph.nodes] = any = true;
    }
    if (any && !status)
        status = apply(x, conv, &all, transposed);
    conv->outputs[0] = last;
    fl_free(numbers);
    return status;
}

tensor_status fl_pass_fold(struct fl_network *n) {
    struct fl_index x;
    TRY(fl_index_make(&x, n));
    for (int k = 0; k < n->graph.node_count; k++)
        if (!x.gone[k])
            TRY(fold_one(&x, &n->graph.nodes[k]));
    fl_index_end(&x);
    return TENSOR_OK;
}
