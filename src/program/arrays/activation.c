/* activation.c - activations that an operator applies to its own result: how a node states them, and on arrays. */
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include <stdio.h>
#include <string.h>

tensor_status fl_activation_read(const struct fl_net_node *node, struct fl_activation_of *a) {
    const char *const text = fl_net_string(node, "flexlab_activation", "");
    *a = (struct fl_activation_of){.kind = FL_NO_ACTIVATION};
    if (!*text)
        return TENSOR_OK;
    if (!strcmp(text, "Relu")) {
        a->kind = FL_RELU;
    } else if (sscanf(text, "Clip:%f:%f", &a->low, &a->high) == 2) {
        a->kind = FL_CLIP;
    } else {
        return fl_fail(TENSOR_E_DATA, "flexlab_activation \"%s\", expected \"Relu\" or \"Clip:LOW:HIGH\"", text);
    }
    return TENSOR_OK;
}

tensor_status fl_activation_apply(const struct fl_net_node *node, struct fl_array *y) {
    struct fl_activation_of a;
    TRY(fl_activation_read(node, &a));
    for (int64_t i = 0; a.kind != FL_NO_ACTIVATION && y && i < y->count; i++) {
        const double x = fl_array_number(y, i);
        const double low = a.kind == FL_CLIP ? (double)a.low : 0;
        fl_array_put_number(y, i, x < low ? low : a.kind == FL_CLIP && x > (double)a.high ? (double)a.high : x);
    }
    return TENSOR_OK;
}
