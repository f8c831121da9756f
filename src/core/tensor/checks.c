/* checks.c - what operations require of their tensors. */
#include "core/base/fail.h"
#include "core/table/mixed.h"
#include "core/tensor/device.h"
#include "core/tensor/tensor_object.h"
#include <stdio.h>

const char *fl_shape_text(const tensor *t, char *text) {
    int used = 0;
    for (int i = 0; i < t->ndim; i++)
        used += snprintf(text + used, (size_t)(TENSOR_TEXT - used), i ? "x%lld" : "%lld", (long long)t->shape[i]);
    return text;
}

/* --- what a tensor offers --- */

tensor_status fl_need_host(const char *what, const tensor *t) {
    return fl_need_contiguous(what, t) ? tensor_error_status()
           : t->storage->device->host  ? TENSOR_OK
                                       : fl_fail(TENSOR_E_UNSUPPORTED,
                                                 "%s: the tensor lies on %s, which does not offer this; tensor_copy "
                                                  "brings a copy to the host",
                                                 what, t->storage->device->name);
}

tensor_status fl_need_contiguous(const char *what, const tensor *t) {
    if (!t->is_strided)
        return TENSOR_OK;
    int64_t at = 1;
    int d = t->ndim - 1;
    for (; d > 0 && t->stride[d] == at; d--) /* the last dimension that is not contiguous, or the first */
        at *= t->shape[d];
    return fl_fail(
        TENSOR_E_ARGUMENT,
        "%s: a view with strides, %lld in dimension %d, expected a tensor; tensor_contiguous makes one of it", what,
        (long long)t->stride[d], d);
}

tensor_status fl_need_elements(const char *what, const tensor *t) {
    const tensor_status status = fl_need_present(what, t);
    return status ? status : fl_need_contiguous(what, t);
}

tensor_status fl_need_present(const char *what, const tensor *t) {
    return t->storage->hidden ? fl_fail(TENSOR_E_ARGUMENT,
                                        "%s: the elements are gone, because another tensor has used their memory "
                                        "since; nn_watch shows them before",
                                        what)
                              : TENSOR_OK;
}

tensor_status fl_need_arithmetic(const char *what, const char *name, const tensor *t) {
    return t->format->arithmetic == FL_ARITHMETIC_NUMBERS
               ? fl_fail(TENSOR_E_FORMAT,
                         "%s: %s is %s, a type of plain numbers, which cannot be an operand of arithmetic", what, name,
                         t->format->name)
               : TENSOR_OK;
}

/* --- several of them --- */

tensor_status fl_check_apart(const char *op, const char *a_name, const tensor *a, const char *b_name, const tensor *b) {
    if (!a || !b || a->storage == b->storage)
        return TENSOR_OK;
    if (a->storage->device != b->storage->device)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s lies on %s, %s on %s; use tensor_copy", op, a_name,
                       a->storage->device->name, b_name, b->storage->device->name);
    const uintptr_t pa = (uintptr_t)a->storage->data, pb = (uintptr_t)b->storage->data;
    if (pa >= pb + (uintptr_t)b->storage->count * (uintptr_t)b->format->bytes ||
        pb >= pa + (uintptr_t)a->storage->count * (uintptr_t)a->format->bytes)
        return TENSOR_OK;
    return fl_fail(TENSOR_E_ARGUMENT, "%s: %s and %s are different tensors in overlapping memory", op, a_name, b_name);
}

static bool is_shared(const tensor *t) {
    return t->format->arithmetic == FL_ARITHMETIC_SHARED;
}

void fl_note_formats(const tensor *y, const tensor *const factors[2], const tensor *bias, const tensor *residual,
                     struct fl_args *args) {
    const tensor *all[] = {factors[0], factors[1], bias, residual};
    bool alike = true;
    args->p.product.bytes = is_shared(factors[0]) && is_shared(factors[1]) && factors[0]->format->bits <= 8 &&
                            factors[1]->format->bits <= 8;
    args->p.product.by_hand = factors[0]->storage->by_hand || factors[1]->storage->by_hand;
    for (int k = 0; k < 4; k++)
        alike &= !all[k] || all[k]->format == y->format || (is_shared(y) && fl_same_kernels(all[k]->format, y->format));
    if (!alike)
        args->p.product.formats = (struct fl_formats){{factors[0]->format, factors[1]->format},
                                                      bias ? bias->format : y->format,
                                                      residual ? residual->format : y->format};
}
