/* plan_bytes.c - the elements of tensors of bytes, and copies of them in another order. */
#include "program/plan/plan.h"
#include "core/base/parallel.h"
#include "core/tensor/device.h"
#include "core/tensor/tensor_object.h"
#include <string.h>

void *fl_plan_data(const tensor *t) {
    return t->storage->data;
}

bool fl_plan_on_host(const tensor *t) {
    return t->storage->device->host;
}

enum { PART = 1 << 14 }; /* bytes that a thread copies at a time */

struct copy {
    const struct fl_byte_strides *s;
    int64_t rows, of_part; /* rows along the last dimension, and how many a part has */
    const uint8_t *x;
    uint8_t *y;
};

static void copy_row(const struct copy *c, int64_t row) {
    const struct fl_byte_strides *const s = c->s;
    const int64_t n = s->dim[s->ndim - 1], stride = s->stride[s->ndim - 1];
    const uint8_t *x = c->x;
    uint8_t *const y = c->y + row * n;
    for (int d = s->ndim - 2; d >= 0; row /= s->dim[d--])
        x += row % s->dim[d] * s->stride[d];
    if (stride == 1)
        memcpy(y, x, (size_t)n);
    for (int64_t i = 0; i < n && stride != 1; i++)
        y[i] = x[i * stride];
}

static void copy_part(void *context, int part, int worker) {
    const struct copy *const c = context;
    (void)worker;
    for (int64_t row = part * c->of_part; row < (part + 1) * c->of_part && row < c->rows; row++)
        copy_row(c, row);
}

tensor_status fl_plan_run_bytes(tensor *const *t, const void *with) {
    struct copy c = {.s = with, .rows = 1, .x = fl_plan_data(t[1]), .y = fl_plan_data(t[0])};
    for (int d = 0; d < c.s->ndim - 1; d++)
        c.rows *= c.s->dim[d];
    c.of_part = PART / c.s->dim[c.s->ndim - 1] + 1 + c.rows / (1 << 30);
    fl_parallel((int)((c.rows + c.of_part - 1) / c.of_part), copy_part, &c);
    return TENSOR_OK;
}
