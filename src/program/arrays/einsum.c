/* einsum.c - sums of products over indices that have letters. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include <string.h>

/* 26 small letters, 26 large ones, and the dimensions of "...", from its last one back. */
enum { LETTERS = 52, LABELS = LETTERS + FL_ARRAY_DIMS, OPERANDS = 16 };

struct einsum {
    const struct fl_arrays *a;
    int64_t size[LABELS], stride[OPERANDS][LABELS];
    int out[FL_ARRAY_DIMS], out_count, sum[LABELS], sum_count;
    int64_t terms; /* of each sum */
};

static int label_of(char c) {
    return c >= 'a' && c <= 'z' ? c - 'a' : c >= 'A' && c <= 'Z' ? c - 'A' + 26 : -1;
}

/* The labels of one term of the equation, whose "..." has `rest` dimensions; the address after it. */
static const char *read_term(const char *at, int rest, int *labels, int *count, bool *dots) {
    *count = 0;
    *dots = false;
    for (; *at && *at != ',' && strncmp(at, "->", 2) != 0; at++) {
        if (*at == ' ')
            continue;
        if (!strncmp(at, "...", 3) && !*dots) {
            *dots = true;
            for (int i = rest - 1; i >= 0 && *count < LABELS; i--)
                labels[(*count)++] = LETTERS + i;
            at += 2;
        } else if (label_of(*at) >= 0 && *count < LABELS) {
            labels[(*count)++] = label_of(*at);
        } else {
            return NULL;
        }
    }
    return at;
}

static tensor_status add_operand(struct einsum *e, int operand, const int *labels, int count) {
    const struct fl_array *const x = e->a->in[operand];
    int64_t stride[FL_ARRAY_DIMS];
    if (count != x->ndim)
        return fl_fail(TENSOR_E_SHAPE, "operand %d has %d dimensions, expected %d", operand, x->ndim, count);
    fl_strides(x, stride);
    for (int d = 0; d < count; d++) {
        const int label = labels[d];
        if (e->size[label] < 0 || (e->size[label] == 1 && label >= LETTERS))
            e->size[label] = x->dim[d];
        else if (x->dim[d] != e->size[label] && !(x->dim[d] == 1 && label >= LETTERS))
            return fl_fail(TENSOR_E_SHAPE, "dimension %d of operand %d is %lld, expected %lld", d, operand,
                           (long long)x->dim[d], (long long)e->size[label]);
        e->stride[operand][label] += x->dim[d] == 1 && label >= LETTERS ? 0 : stride[d];
    }
    return TENSOR_OK;
}

static tensor_status read_equation(struct einsum *e, const struct fl_arrays *a) {
    const char *const equation = fl_net_string(a->node, "equation", ""), *at = equation;
    int labels[LABELS], count, uses[LABELS] = {0}, most = 0;
    bool dots, chosen[LABELS] = {false};
    *e = (struct einsum){.a = a, .terms = 1};
    if (a->in_count > OPERANDS)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%d operands, expected at most %d", a->in_count, OPERANDS);
    for (int i = 0; i < LABELS; i++)
        e->size[i] = -1;
    for (int i = 0; i < a->in_count; i++) {
        TRY(fl_want_type(a->in[i], a->in[0]->type, "an operand"));
        const char *const next = read_term(at, 0, labels, &count, &dots);
        const int rest = next && dots ? a->in[i]->ndim - count : 0;
        if (!next || rest < 0 || (i + 1 < a->in_count ? *next != ',' : *next == ','))
            return fl_fail(TENSOR_E_DATA, "equation \"%s\", expected terms of letters for %d operands", equation,
                           a->in_count);
        read_term(at, rest, labels, &count, &dots);
        TRY(add_operand(e, i, labels, count));
        for (int k = 0; k < count; k++)
            uses[labels[k]]++;
        most = rest > most ? rest : most;
        at = next + (*next == ',');
    }
    if (*at) { /* "->" */
        at = read_term(at + 2, most, labels, &count, &dots);
        if (!at || *at)
            return fl_fail(TENSOR_E_DATA, "equation \"%s\", expected letters after ->", equation);
    } else {
        count = 0;
        for (int i = most - 1; i >= 0; i--)
            labels[count++] = LETTERS + i;
        for (int i = 0; i < LETTERS; i++) { /* in the order of characters, large letters come first */
            const int label = (i + 26) % LETTERS;
            if (uses[label] == 1)
                labels[count++] = label;
        }
    }
    if (count > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_SHAPE, "a result of %d dimensions, expected at most %d", count, FL_ARRAY_DIMS);
    for (int i = 0; i < count; i++) {
        if (e->size[labels[i]] < 0 || chosen[labels[i]])
            return fl_fail(TENSOR_E_DATA, "equation \"%s\": the result repeats a letter or has one of its own",
                           equation);
        chosen[labels[i]] = true;
        e->out[e->out_count++] = labels[i];
    }
    for (int i = 0; i < LABELS; i++)
        if (e->size[i] >= 0 && !chosen[i]) {
            e->sum[e->sum_count++] = i;
            e->terms *= e->size[i];
        }
    return TENSOR_OK;
}

tensor_status fl_shape_einsum(const struct fl_arrays *a) {
    struct einsum e;
    int64_t dim[FL_ARRAY_DIMS];
    TRY(read_equation(&e, a));
    for (int d = 0; d < e.out_count; d++)
        dim[d] = e.size[e.out[d]];
    return fl_shape_set(a->out[0], a->in[0]->type, e.out_count, dim);
}

/* One element. */
static void sum_products(void *context, int64_t at) {
    const struct einsum *const e = context;
    const int operands = e->a->in_count;
    struct fl_array *const y = e->a->out[0];
    const bool is_float = fl_type_is_float(y->type);
    int64_t from[OPERANDS] = {0}, index[LABELS] = {0}, rest = at;
    double sum = 0;
    uint64_t whole = 0;
    for (int d = e->out_count - 1; d >= 0; d--) {
        for (int i = 0; i < operands; i++)
            from[i] += rest % e->size[e->out[d]] * e->stride[i][e->out[d]];
        rest /= e->size[e->out[d]];
    }
    for (int64_t t = 0; t < e->terms; t++) {
        double product = 1;
        uint64_t whole_product = 1;
        for (int i = 0; i < operands; i++)
            if (is_float)
                product *= fl_array_number(e->a->in[i], from[i]);
            else
                whole_product *= (uint64_t)fl_array_integer(e->a->in[i], from[i]);
        sum += product;
        whole += whole_product;
        for (int d = e->sum_count - 1; d >= 0; d--) {
            const int label = e->sum[d];
            const bool wraps = ++index[d] == e->size[label];
            for (int i = 0; i < operands; i++)
                from[i] += e->stride[i][label] * (wraps ? 1 - e->size[label] : 1);
            if (!wraps)
                break;
            index[d] = 0;
        }
    }
    if (is_float)
        fl_array_put_number(y, at, sum);
    else
        fl_array_put_integer(y, at, (int64_t)whole);
}

static void einsum_part(void *context, int part, int worker) {
    const struct einsum *const e = context;
    (void)worker;
    for (int64_t i = (int64_t)part * FL_BLOCK; i < (int64_t)(part + 1) * FL_BLOCK && i < e->a->out[0]->count; i++)
        sum_products(context, i);
}

tensor_status fl_compute_einsum(const struct fl_arrays *a) {
    struct einsum e;
    TRY(read_equation(&e, a));
    if (!a->out[0])
        return TENSOR_OK;
    if (a->out[0]->count / FL_BLOCK >= INT32_MAX)
        return fl_fail(TENSOR_E_UNSUPPORTED, "a result of %lld elements", (long long)a->out[0]->count);
    fl_parallel((int)((a->out[0]->count + FL_BLOCK - 1) / FL_BLOCK), einsum_part, &e);
    return TENSOR_OK;
}
