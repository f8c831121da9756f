/* predicates.c - which elements are NaN, infinite or finite. Integer formats hold only finite numbers, and need no
 * pass. */
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include "core/tensor/tensor_object.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { BLOCK = 512, PART = 64 * BLOCK };

struct search {
    struct fl_view view;
    const struct fl_format *format;
    bool infinite; /* what to mark: infinities, else NaN */
    uint8_t *marks;
    atomic_bool found; /* without marks: something that is not finite */
};

static bool may_hold_them(const tensor *x) {
    return x->format->arithmetic == FL_ARITHMETIC_FLOAT || x->format->id == FMT_F64 || x->format->id == FMT_F32;
}

static void search_part(void *context, int part, int worker) {
    (void)worker;
    struct search *s = context;
    const int64_t first = (int64_t)part * PART;
    const int64_t end = s->view.count - first < PART ? s->view.count : first + PART;
    double values[BLOCK];
    for (int64_t i = first; i < end; i += BLOCK) {
        const int64_t n = end - i < BLOCK ? end - i : BLOCK;
        if (!s->marks && atomic_load_explicit(&s->found, memory_order_relaxed))
            return;
        s->format->decode(s->format, &s->view, i, n, values);
        bool any = false;
        for (int64_t j = 0; j < n; j++) {
            const double x = values[j], size = fabs(x);
            any |= x - x != 0;
            if (s->marks)
                s->marks[i + j] = s->infinite ? size > 0x1.fffffffffffffp1023 : x != x;
        }
        if (!s->marks && any)
            atomic_store_explicit(&s->found, true, memory_order_relaxed);
    }
}

static void search(struct search *s, const tensor *x) {
    s->view = fl_view_of(x);
    s->format = x->format;
    fl_parallel((int)((x->count + PART - 1) / PART), search_part, s);
}

static tensor_status readable(const char *name, const tensor *x) {
    if (!x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: x is NULL", name);
    const tensor_status status = fl_need_host(name, x);
    return status ? status : fl_need_elements(name, x);
}

tensor_status tensor_all_finite(bool *yes, const tensor *x) {
    if (!yes)
        return fl_fail(TENSOR_E_ARGUMENT, "all_finite: result is NULL");
    const tensor_status status = readable("all_finite", x);
    if (status)
        return status;
    struct search s = {.found = false};
    if (may_hold_them(x))
        search(&s, x);
    *yes = !atomic_load(&s.found);
    return TENSOR_OK;
}

static tensor_status mark(const char *name, tensor *y, const tensor *x, bool infinite) {
    char ty[TENSOR_TEXT], tx[TENSOR_TEXT];
    tensor_status status = readable(name, x);
    if (status)
        return status;
    if (!y)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: y is NULL", name);
    if (y->format->id != FMT_U8)
        return fl_fail(TENSOR_E_FORMAT, "%s: y is %s, expected u8", name, y->format->name);
    if (y->ndim != x->ndim || memcmp(y->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: y is %s, x is %s", name, fl_shape_text(y, ty), fl_shape_text(x, tx));
    status = fl_need_host(name, y);
    if (!status)
        status = fl_need_elements(name, y);
    if (!status)
        status = fl_check_apart(name, "y", y, "x", x);
    if (status)
        return status;
    struct search s = {.infinite = infinite, .marks = y->storage->data};
    if (may_hold_them(x))
        search(&s, x);
    else
        memset(s.marks, 0, (size_t)y->count);
    return TENSOR_OK;
}

tensor_status tensor_isnan(tensor *y, const tensor *x) {
    return mark("isnan", y, x, false);
}

tensor_status tensor_isinf(tensor *y, const tensor *x) {
    return mark("isinf", y, x, true);
}
