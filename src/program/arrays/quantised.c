/* quantised.c - integers that stand for real numbers: to and from them, and sums of their products.
 *
 * Results of sums are rounded as onnxruntime rounds them (int8/int8.h, rounding onnx): once, a product of binary32,
 * ties to even. */
#include "program/arrays/products.h"
#include "program/arrays/windows.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "int8/int8_rules.h"
#include <string.h>

enum { STRETCH = 4096 }; /* elements of an operand with one scale that a thread takes at a time */

static bool is_small(tensor_type type) {
    return type == TENSOR_TYPE_I8 || type == TENSOR_TYPE_U8 || type == TENSOR_TYPE_I16 || type == TENSOR_TYPE_U16;
}

static void limits(tensor_type type, double *low, double *high) {
    *low = type == TENSOR_TYPE_I8 ? -128 : type == TENSOR_TYPE_I16 ? -32768 : 0;
    *high = type == TENSOR_TYPE_I8 ? 127 : type == TENSOR_TYPE_U8 ? 255 : type == TENSOR_TYPE_I16 ? 32767 : 65535;
}

/* --- QuantizeLinear, DequantizeLinear ----------------------------------------------------------------------------- */

/* The operand as [outer, n, inner]: a scale for all, for each index of n, or for blocks of n. */
struct levels {
    const struct fl_array *x, *scale, *zero;
    struct fl_array *y;
    int64_t outer, n, inner, block, rows_of_part;
    bool single, quantises;
};

static tensor_status read_levels(struct levels *l, const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const scale = a->in[1], *const zero = fl_operand(a, 2);
    *l = (struct levels){.x = x, .scale = scale, .zero = zero, .y = a->out[0], .outer = 1, .n = 1, .inner = 1};
    l->block = fl_net_int(a->node, "block_size", 0);
    TRY(fl_want_type(scale, TENSOR_TYPE_F32, "the scale"));
    if (l->block < 0)
        return fl_fail(TENSOR_E_DATA, "block_size is %lld, expected 0 or more", (long long)l->block);
    if (zero && zero->count != scale->count)
        return fl_fail(TENSOR_E_SHAPE, "%lld zero points, expected one for each of %lld scales", (long long)zero->count,
                       (long long)scale->count);
    if (scale->count == 1 && scale->ndim < 2 && !l->block) {
        l->single = true;
        l->inner = STRETCH;
        l->outer = (x->count + STRETCH - 1) / STRETCH;
    } else {
        int axis;
        TRY(fl_axis(&axis, fl_net_int(a->node, "axis", 1), x->ndim));
        for (int d = 0; d < x->ndim; d++) {
            *(d < axis ? &l->outer : d == axis ? &l->n : &l->inner) *= x->dim[d];
            const int64_t wanted = d == axis ? (x->dim[d] + l->block - 1) / (l->block ? l->block : 1) : x->dim[d];
            if (l->block && (scale->ndim != x->ndim || scale->dim[d] != wanted))
                return fl_fail(TENSOR_E_SHAPE, "%lld scales in %d dimensions, expected %lld along dimension %d",
                               (long long)scale->count, scale->ndim, (long long)wanted, d);
        }
        if (!l->block)
            TRY(fl_want_numbers(scale, l->n, "the scale"));
    }
    l->rows_of_part = (1 << 14) / (l->inner + 1) + 1 + l->outer * l->n / (1 << 30);
    return TENSOR_OK;
}

static void convert_row(const struct levels *l, int64_t row) {
    const int64_t first = row * l->inner, left = l->x->count - first, end = left < l->inner ? left : l->inner;
    const int64_t k = row % l->n, blocks = l->block ? (l->n + l->block - 1) / l->block : 0;
    double low, high, x[FL_BLOCK];
    limits(l->y->type, &low, &high);
    for (int64_t i = 0; i < end; i += FL_BLOCK) {
        const int n = (int)(end - i < FL_BLOCK ? end - i : FL_BLOCK);
        int64_t level = l->block ? (row / l->n * blocks + k / l->block) * l->inner + i : l->single ? 0 : k;
        double scale = fl_array_number(l->scale, level), zero = l->zero ? fl_array_number(l->zero, level) : 0;
        fl_load_numbers(x, l->x, first + i, 1, n);
        for (int j = 0; j < n; j++) {
            if (l->block && j) {
                scale = fl_array_number(l->scale, ++level);
                zero = l->zero ? fl_array_number(l->zero, level) : 0;
            }
            if (l->quantises) {
                const double q = nearbyint((double)((float)x[j] / (float)scale)) + zero;
                x[j] = q < low ? low : q > high ? high : q == q ? q : zero;
            } else {
                x[j] = (double)((float)(x[j] - zero) * (float)scale);
            }
        }
        fl_store_numbers(l->y, first + i, 1, x, n);
    }
}

static void convert_part(void *context, int part, int worker) {
    const struct levels *const l = context;
    (void)worker;
    for (int64_t row = part * l->rows_of_part; row < (part + 1) * l->rows_of_part && row < l->outer * l->n; row++)
        convert_row(l, row);
}

static tensor_status convert(const struct fl_arrays *a, bool quantises) {
    struct levels l;
    if (!a->out[0] || !a->out[0]->count)
        return TENSOR_OK;
    TRY(read_levels(&l, a));
    l.quantises = quantises;
    fl_parallel((int)((l.outer * l.n + l.rows_of_part - 1) / l.rows_of_part), convert_part, &l);
    return TENSOR_OK;
}

tensor_status fl_shape_quantise(const struct fl_arrays *a) {
    const struct fl_array *const x = a->in[0], *const zero = fl_operand(a, 2);
    const int64_t stated = fl_net_int(a->node, "output_dtype", 0);
    tensor_type type = zero ? zero->type : TENSOR_TYPE_U8;
    struct levels l;
    if (stated && !zero)
        TRY(fl_type_of_onnx(&type, stated));
    if (!is_small(type))
        return fl_fail(TENSOR_E_UNSUPPORTED, "results of type %s, expected integers of 8 or 16 bits",
                       fl_type_name(type));
    TRY(read_levels(&l, a));
    return fl_shape_set(a->out[0], type, x->ndim, x->dim);
}

tensor_status fl_compute_quantise(const struct fl_arrays *a) {
    return convert(a, true);
}

tensor_status fl_shape_dequantise(const struct fl_arrays *a) {
    struct levels l;
    TRY(fl_want_integer(a->in[0], "the operand"));
    TRY(fl_want_type(fl_operand(a, 2), a->in[0]->type, "the zero point"));
    TRY(read_levels(&l, a));
    return fl_shape_set(a->out[0], a->in[1]->type, a->in[0]->ndim, a->in[0]->dim);
}

tensor_status fl_compute_dequantise(const struct fl_arrays *a) {
    return convert(a, false);
}

/* --- DynamicQuantizeLinear ---------------------------------------------------------------------------------------- */

tensor_status fl_shape_dynamic_quantise(const struct fl_arrays *a) {
    TRY(fl_want_float(a, 0));
    TRY(fl_shape_set(fl_result(a, 1), TENSOR_TYPE_F32, 0, NULL));
    TRY(fl_shape_set(fl_result(a, 2), TENSOR_TYPE_U8, 0, NULL));
    return fl_shape_set(a->out[0], TENSOR_TYPE_U8, a->in[0]->ndim, a->in[0]->dim);
}

/* uint8 over the range of the operand, which always holds 0. */
tensor_status fl_compute_dynamic_quantise(const struct fl_arrays *a) {
    double low = 0, high = 0, number, x[FL_BLOCK];
    uint8_t whole;
    const struct fl_array scale = {.type = TENSOR_TYPE_F64, .count = 1, .data = &number};
    const struct fl_array zero = {.type = TENSOR_TYPE_U8, .count = 1, .data = &whole};
    for (int64_t i = 0; i < a->in[0]->count; i += FL_BLOCK) {
        const int64_t n = a->in[0]->count - i < FL_BLOCK ? a->in[0]->count - i : FL_BLOCK;
        fl_load_numbers(x, a->in[0], i, 1, n);
        for (int64_t k = 0; k < n; k++) {
            low = x[k] < low ? x[k] : low;
            high = x[k] > high ? x[k] : high;
        }
    }
    const float step = low == high ? 1 : ((float)high - (float)low) / 255, place = nearbyintf(-(float)low / step);
    number = (double)step;
    whole = (uint8_t)(place > 255 ? 255 : place > 0 ? place : 0);
    if (fl_result(a, 1))
        fl_array_put_number(a->out[1], 0, number);
    if (fl_result(a, 2))
        fl_array_put_integer(a->out[2], 0, whole);
    struct fl_arrays as = *a;
    as.in = (const struct fl_array *const[]){a->in[0], &scale, &zero};
    as.in_count = 3;
    return convert(&as, true);
}

/* --- products of integers ----------------------------------------------------------------------------------------- */

/* Where the operands of an operator are: -1, it has none. */
struct places {
    int w, x_scale, x_zero, w_scale, w_zero, y_scale, y_zero, bias;
};
static const struct places linear = {3, 1, 2, 4, 5, 6, 7, 8}, integer = {1, -1, 2, -1, 3, -1, -1, -1};

static const struct fl_array *at(const struct fl_arrays *a, int place) {
    return place < 0 ? NULL : fl_operand(a, place);
}

/* Operands are integers of 8 bits, with as many scales and zero points as the index of one dimension has, or one. */
static tensor_status check_level(const struct fl_arrays *a, int place, int64_t count, tensor_type type,
                                 const char *what) {
    const struct fl_array *const level = at(a, place);
    TRY(fl_want_type(level, type, what));
    if (level && level->count != 1 && level->count != count)
        return fl_fail(TENSOR_E_SHAPE, "%s has %lld numbers, expected one or %lld", what, (long long)level->count,
                       (long long)count);
    return TENSOR_OK;
}

/* rows: of x that may have a level each; columns: of w, or filters. */
static tensor_status check_integers(const struct fl_arrays *a, const struct places *o, int64_t rows, int64_t columns) {
    const struct fl_array *const x = a->in[0], *const w = a->in[o->w];
    if ((x->type != TENSOR_TYPE_I8 && x->type != TENSOR_TYPE_U8) ||
        (w->type != TENSOR_TYPE_I8 && w->type != TENSOR_TYPE_U8))
        return fl_fail(TENSOR_E_UNSUPPORTED, "operands of type %s and %s, expected integers of 8 bits",
                       fl_type_name(x->type), fl_type_name(w->type));
    TRY(check_level(a, o->x_zero, rows, x->type, "the first zero point"));
    TRY(check_level(a, o->w_zero, columns, w->type, "the second zero point"));
    TRY(check_level(a, o->x_scale, rows, TENSOR_TYPE_F32, "the first scale"));
    TRY(check_level(a, o->w_scale, columns, TENSOR_TYPE_F32, "the second scale"));
    TRY(check_level(a, o->y_scale, 1, TENSOR_TYPE_F32, "the scale of the result"));
    if (o->y_zero < 0)
        return TENSOR_OK;
    const struct fl_array *const zero = at(a, o->y_zero);
    if (!zero || (zero->type != TENSOR_TYPE_I8 && zero->type != TENSOR_TYPE_U8))
        return fl_fail(TENSOR_E_DATA, "the zero point of the result is missing or has type %s, expected 8 bits",
                       zero ? fl_type_name(zero->type) : "none");
    return check_level(a, o->y_zero, 1, zero->type, "the zero point of the result");
}

/* The operand less its zero points, as doubles: element i has level i / inner % count. */
static tensor_status centred(const struct fl_array *x, const struct fl_array *zero, int64_t inner, double **numbers) {
    TRY(fl_memory(numbers, x->count, sizeof **numbers));
    fl_load_numbers(*numbers, x, 0, 1, x->count);
    for (int64_t i = 0; zero && i < x->count; i++)
        (*numbers)[i] -= fl_array_number(zero, zero->count > 1 ? i / inner % zero->count : 0);
    return TENSOR_OK;
}

/* Stores exact sums: as they are, modulo 2^32, or at the scale of the result. Element i has row i / row % rows of x and
 * column i / column % columns of w. */
static tensor_status store_sums(const struct fl_arrays *a, const struct places *o, const double *sums, int64_t row,
                                int64_t column) {
    const struct fl_array *const x_scale = at(a, o->x_scale), *const w_scale = at(a, o->w_scale);
    struct fl_array *const y = a->out[0];
    if (o->y_scale < 0) {
        for (int64_t i = 0; i < y->count; i++)
            fl_array_put_integer(y, i, int8_wrap((int64_t)sums[i]));
        return TENSOR_OK;
    }
    const float y_scale = (float)fl_array_number(a->in[o->y_scale], 0);
    const int32_t zero = (int32_t)fl_array_integer(a->in[o->y_zero], 0);
    const int32_t low = (y->type == TENSOR_TYPE_I8 ? -128 : 0) - zero, high = low + 255;
    for (int64_t i = 0; i < y->count; i++) {
        const double left = fl_array_number(x_scale, x_scale->count > 1 ? i / row % x_scale->count : 0);
        const double right = fl_array_number(w_scale, w_scale->count > 1 ? i / column % w_scale->count : 0);
        const float factor = (float)left * (float)right / y_scale;
        if (!(factor >= 0))
            return fl_fail(TENSOR_E_DATA, "scales %g, %g and %g of the result, expected more than 0", left, right,
                           (double)y_scale);
        fl_array_put_integer(y, i, zero + int8_binary32(int8_wrap((int64_t)sums[i]), factor, low, high));
    }
    return TENSOR_OK;
}

static const struct places *places_of(const struct fl_arrays *a) {
    return a->node->op[0] == 'Q' ? &linear : &integer;
}

static tensor_type type_of_result(const struct fl_arrays *a) {
    return places_of(a) == &linear ? a->in[linear.y_zero]->type : TENSOR_TYPE_I32;
}

tensor_status fl_shape_integer_matmul(const struct fl_arrays *a) {
    const struct places *const o = places_of(a);
    struct fl_arrays as = *a;
    as.in = (const struct fl_array *const[]){a->in[0], a->in[o->w]};
    as.in_count = 2;
    TRY(check_integers(a, o, fl_rows(a->in[0]), fl_columns(a->in[o->w])));
    TRY(fl_shape_matmul(&as));
    if (a->out[0])
        a->out[0]->type = type_of_result(a);
    return TENSOR_OK;
}

tensor_status fl_compute_integer_matmul(const struct fl_arrays *a) {
    const struct places *const o = places_of(a);
    const struct fl_array *const x = a->in[0], *const w = a->in[o->w];
    double *left = NULL, *right = NULL, *sums = NULL;
    if (!a->out[0] || !a->out[0]->count)
        return TENSOR_OK;
    tensor_status status = centred(x, at(a, o->x_zero), x->dim[x->ndim - 1], &left);
    if (!status)
        status = centred(w, at(a, o->w_zero), 1, &right);
    if (!status)
        status = fl_memory(&sums, a->out[0]->count, sizeof *sums);
    if (!status)
        status = fl_multiply(x, w, a->out[0], left, right, sums);
    if (!status)
        status = store_sums(a, o, sums, fl_columns(w), 1);
    fl_free(left);
    fl_free(right);
    fl_free(sums);
    return status;
}

tensor_status fl_shape_integer_conv(const struct fl_arrays *a) {
    const struct places *const o = places_of(a);
    struct fl_windows g;
    TRY(fl_windows_convolution(&g, a->node, a->in[0], a->in[o->w], at(a, o->bias)));
    TRY(check_integers(a, o, 1, g.filters));
    return fl_windows_set(a->out[0], type_of_result(a), a->node, &g, g.filters);
}

tensor_status fl_compute_integer_conv(const struct fl_arrays *a) {
    const struct places *const o = places_of(a);
    const struct fl_array *const w = a->in[o->w], *const b = at(a, o->bias);
    struct fl_windows g;
    const double *bias = NULL;
    void *memory = NULL;
    double *left = NULL, *right = NULL, *sums = NULL;
    int64_t pixels = 1;
    if (!a->out[0] || !a->out[0]->count)
        return TENSOR_OK;
    TRY(fl_windows_convolution(&g, a->node, a->in[0], w, b));
    tensor_status status = centred(a->in[0], at(a, o->x_zero), 1, &left);
    if (!status)
        status = centred(w, at(a, o->w_zero), w->count / g.filters, &right);
    if (!status)
        status = fl_memory(&sums, a->out[0]->count, sizeof *sums);
    if (!status && b)
        status = fl_as_doubles(b, &bias, &memory);
    if (!status) {
        fl_convolve(&g, a->node, false, left, right, bias, sums);
        for (int d = 0; d < g.spatial; d++)
            pixels *= g.result[d];
        status = store_sums(a, o, sums, 1, a->node->channels_last ? 1 : pixels);
    }
    fl_free(memory);
    fl_free(left);
    fl_free(right);
    fl_free(sums);
    return status;
}
