/* picks.c - arrays whose elements are elements of another, by a table for each dimension. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <string.h>

tensor_status fl_pick_new(struct fl_pick *p, int ndim, const int64_t *dim) {
    int64_t all = 0;
    *p = (struct fl_pick){.ndim = ndim};
    for (int d = 0; d < ndim; d++) {
        p->dim[d] = dim[d];
        all += dim[d];
    }
    TRY(fl_memory(&p->memory, all, sizeof(int64_t)));
    int64_t *at = p->memory;
    for (int d = 0; d < ndim; at += dim[d++])
        p->from[d] = at;
    return TENSOR_OK;
}

void fl_pick_free(struct fl_pick *p) {
    fl_free(p->memory);
}

void fl_pick_steps(struct fl_pick *p, int d, int64_t start, int64_t stride) {
    for (int64_t i = 0; i < p->dim[d]; i++)
        p->from[d][i] = start + i * stride;
}

/* One row: elements base + table[i]. */
#define ROW(type)                                                                                                      \
    for (int64_t i = 0; i < n; i++)                                                                                    \
    ((type *)y->data)[at + i] = table[i] < 0 ? *(const type *)fill : ((const type *)x->data)[base + table[i]]

static void copy_row(struct fl_array *y, int64_t at, const struct fl_array *x, int64_t base, const int64_t *table,
                     int64_t n, bool runs, const void *fill) {
    if (runs) {
        fl_copy_elements(y, at, x, base + table[0], n);
        return;
    }
    switch (x->type == y->type ? fl_type_bytes(y->type) : 0) {
    case 1:
        ROW(uint8_t);
        return;
    case 2:
        ROW(uint16_t);
        return;
    case 4:
        ROW(uint32_t);
        return;
    case 8:
        ROW(uint64_t);
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            if (table[i] < 0)
                memcpy((char *)y->data + (size_t)(at + i) * fl_type_bytes(y->type), fill, fl_type_bytes(y->type));
            else
                fl_copy_elements(y, at + i, x, base + table[i], 1);
    }
}

struct copy {
    const struct fl_pick *p;
    struct fl_array *y;
    const struct fl_array *x;
    const struct fl_array *filler;
    const int64_t *table; /* of the last dimension */
    int64_t n, rows, rows_of_part;
    bool runs;
};

static void copy_part(void *context, int part, int worker) {
    const struct copy *const c = context;
    const struct fl_pick *const p = c->p;
    const int inner = p->ndim - 1;
    const int64_t first = part * c->rows_of_part, n = c->n;
    const int64_t end = first + c->rows_of_part < c->rows ? first + c->rows_of_part : c->rows;
    int64_t index[FL_PICK_DIMS] = {0}, rest = first, before = -1; /* before: where the row above came from */
    (void)worker;
    for (int d = inner - 1; d >= 0; d--) {
        index[d] = rest % p->dim[d];
        rest /= p->dim[d];
    }
    for (int64_t row = first; row < end; row++) {
        const int64_t at = row * n;
        int64_t base = 0;
        bool outside = false;
        for (int d = 0; d < inner; d++) {
            base += p->from[d][index[d]];
            outside |= p->from[d][index[d]] < 0;
        }
        if (outside)
            for (int64_t i = 0; i < n; i++)
                fl_copy_elements(c->y, at + i, c->filler, 0, 1);
        else if (base == before)
            fl_copy_elements(c->y, at, c->y, at - n, n);
        else
            copy_row(c->y, at, c->x, base, c->table, n, c->runs, c->filler->data);
        before = outside ? -1 : base;
        for (int d = inner - 1; d >= 0 && ++index[d] == p->dim[d]; d--)
            index[d] = 0;
    }
}

void fl_pick_copy(const struct fl_pick *p, struct fl_array *y, const struct fl_array *x, const struct fl_array *fill) {
    static const int64_t first = 0;
    const int64_t n = p->ndim ? p->dim[p->ndim - 1] : 1, *const table = p->ndim ? p->from[p->ndim - 1] : &first;
    uint64_t element = 0;
    struct fl_array filler = {.type = y->type, .count = 1, .data = &element};
    bool runs = true;
    if (!y->count)
        return;
    if (fill)
        fl_copy_elements(&filler, 0, fill, 0, 1);
    for (int64_t i = 0; i < n && runs; i++)
        runs = table[i] == table[0] + i && table[0] >= 0;
    struct copy c = {.p = p, .y = y, .x = x, .filler = &filler, .table = table, .n = n, .runs = runs};
    c.rows = y->count / n;
    c.rows_of_part = (1 << 15) / (n + 1) + 1 + c.rows / (1 << 30);
    fl_parallel((int)((c.rows + c.rows_of_part - 1) / c.rows_of_part), copy_part, &c);
}
