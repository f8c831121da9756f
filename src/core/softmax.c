/* softmax.c - softmax with cross-entropy, in double by a fixed sequence, for every format. */
#include "core/elementary.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/tensor_object.h"
#include <math.h>

tensor_status tensor_softmax_cross_entropy(double *loss, tensor *dx, int32_t *predicted, const tensor *x,
                                           const int32_t *labels, double gradient_scale) {
    static const char name[] = "softmax_cross_entropy";
    if (!loss || !x || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, !loss ? "loss" : !x ? "x" : "labels");
    char tx[TENSOR_TEXT], td[TENSOR_TEXT];
    if (x->ndim != 2)
        return fl_fail(TENSOR_E_SHAPE, "%s: x is %s, expected [N, classes]", name, fl_shape_text(x, tx));
    if (dx && dx->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: dx is %s, x is %s", name, dx->format->name, x->format->name);
    if (dx && (dx->ndim != 2 || dx->shape[0] != x->shape[0] || dx->shape[1] != x->shape[1]))
        return fl_fail(TENSOR_E_SHAPE, "%s: dx is %s, x is %s", name, fl_shape_text(dx, td), fl_shape_text(x, tx));
    if (!isfinite(gradient_scale))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: gradient_scale is %g, expected a finite number", name, gradient_scale);
    const int64_t rows = x->shape[0], classes = x->shape[1];
    for (int64_t i = 0; i < rows; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %d, expected 0 to %lld", name, (long long)i, labels[i],
                           (long long)classes - 1);
    double *z = fl_scratch(2, (size_t)(x->count + rows) * sizeof *z), *choice = z ? z + x->count : NULL;
    if (!z)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld logits", name, (long long)x->count);
    struct fl_view view = fl_view_of(x);
    x->format->decode(&view, 0, x->count, z);
    const double weight = gradient_scale / (double)rows;
    double total = 0;
    for (int64_t i = 0; i < rows; i++) {
        double *row = z + i * classes, sum = 0;
        int64_t largest = 0;
        for (int64_t c = 1; c < classes; c++)
            if (row[c] > row[largest])
                largest = c;
        const double top = row[largest], chosen = row[labels[i]] - top;
        for (int64_t c = 0; c < classes; c++)
            sum += row[c] = fl_exp(row[c] - top);
        total += fl_log(sum) - chosen;
        for (int64_t c = 0; c < classes; c++)
            row[c] = (row[c] / sum - (c == labels[i])) * weight;
        choice[i] = (double)largest;
    }
    if (dx) {
        tensor_status status = fl_write_values(dx, z);
        if (status)
            return status;
    }
    for (int64_t i = 0; predicted && i < rows; i++)
        predicted[i] = (int32_t)choice[i];
    *loss = total / (double)rows;
    return TENSOR_OK;
}
