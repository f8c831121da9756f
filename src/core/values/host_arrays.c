/* host_arrays.c - loads from and stores to arrays of the host of any type of numbers.
 *
 * Integers of 64 bits, which doubles do not hold exactly, become doubles rounded to odd, whose rounding to any format
 * is that of the integer itself (exact.h). */
#include "core/arithmetic/exact.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/values.h"
#include <math.h>
#include <string.h>

/* --- integers as sources of loads --------------------------------------------------------------------------------- */

#define DECODE(name, type, value)                                                                                      \
    static void decode_##name(const struct fl_format *f, const struct fl_view *in, int64_t first, int64_t n,           \
                              double *values) {                                                                        \
        (void)f;                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type x;                                                                                                    \
            memcpy(&x, (const char *)in->data + (size_t)(first + i) * sizeof x, sizeof x);                             \
            values[i] = value;                                                                                         \
        }                                                                                                              \
    }
/* The upper and the lower 32 bits of a 64-bit integer are exact in double, and their sum is rounded to odd. */
DECODE(bool, uint8_t, x != 0)
DECODE(i8, int8_t, x)
DECODE(u8, uint8_t, x)
DECODE(i16, int16_t, x)
DECODE(u16, uint16_t, x)
DECODE(i32, int32_t, x)
DECODE(u32, uint32_t, x)
DECODE(i64, int64_t, fl_sum_odd((double)(x >> 32) * 0x1p32, (double)(uint32_t)x))
DECODE(u64, uint64_t, fl_sum_odd((double)(x >> 32) * 0x1p32, (double)(uint32_t)x))

#define NUMBERS(type, its_bytes)                                                                                       \
    { .name = #type, .arithmetic = FL_ARITHMETIC_NUMBERS, .bytes = its_bytes, .decode = decode_##type }

/* The range of an integer type: from `least` to below `beyond`. */
struct host_type {
    struct fl_format format;
    double least, beyond;
};
static const struct host_type types[] = {
    [TENSOR_TYPE_BOOL] = {NUMBERS(bool, 1), 0, 2},    [TENSOR_TYPE_I8] = {NUMBERS(i8, 1), -0x1p7, 0x1p7},
    [TENSOR_TYPE_U8] = {NUMBERS(u8, 1), 0, 0x1p8},    [TENSOR_TYPE_I16] = {NUMBERS(i16, 2), -0x1p15, 0x1p15},
    [TENSOR_TYPE_U16] = {NUMBERS(u16, 2), 0, 0x1p16}, [TENSOR_TYPE_I32] = {NUMBERS(i32, 4), -0x1p31, 0x1p31},
    [TENSOR_TYPE_U32] = {NUMBERS(u32, 4), 0, 0x1p32}, [TENSOR_TYPE_I64] = {NUMBERS(i64, 8), -0x1p63, 0x1p63},
    [TENSOR_TYPE_U64] = {NUMBERS(u64, 8), 0, 0x1p64},
};

static bool is_integer(tensor_type type) {
    return type >= TENSOR_TYPE_BOOL && type <= TENSOR_TYPE_U64;
}

static tensor_status check_type(const char *what, tensor_type type) {
    return type >= TENSOR_TYPE_BOOL && type <= TENSOR_TYPE_F64
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: type is %d, expected %d to %d", what, (int)type, TENSOR_TYPE_BOOL,
                         TENSOR_TYPE_F64);
}

/* The codec that reads the array: of an integer type, or of the format of 16-bit floats. */
static const struct fl_format *codec_of(tensor_type type) {
    return is_integer(type)           ? &types[type].format
           : type == TENSOR_TYPE_F16  ? fl_format_of(FMT_FP16)
           : type == TENSOR_TYPE_BF16 ? fl_format_of(FMT_BF16)
                                      : NULL;
}

/* --- loads -------------------------------------------------------------------------------------------------------- */

tensor_status tensor_load_array(tensor *t, const void *values, tensor_type type, int64_t count) {
    static const char what[] = "tensor_load_array";
    tensor_status status = check_type(what, type);
    if (!status && type == TENSOR_TYPE_F32)
        return tensor_load_f32(t, values, count);
    if (!status && type == TENSOR_TYPE_F64)
        return tensor_load_f64(t, values, count);
    if (!status)
        status = fl_check_load(what, t, values, count);
    if (!status)
        status = fl_need_arithmetic(what, "tensor", t);
    if (status)
        return status;
    const struct fl_format *codec = codec_of(type);
    const struct fl_view view = {(void *)(uintptr_t)values, NULL, NULL, count};
    if (t->storage->device->host)
        return fl_submit_load(what, t, &(struct fl_source){.format = codec, .view = view});
    double *doubles = fl_alloc((size_t)count * sizeof *doubles);
    if (!doubles)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld doubles", what, (long long)count);
    codec->decode(codec, &view, 0, count, doubles);
    status = fl_load_through(what, t, doubles, sizeof *doubles, true);
    fl_free(doubles);
    return status;
}

/* --- stores ------------------------------------------------------------------------------------------------------- */

/* Stores x, an integer within the type's range. */
static void put_integer(void *values, tensor_type type, int64_t i, double x) {
    switch ((int)type) {
    case TENSOR_TYPE_BOOL:
        ((uint8_t *)values)[i] = x != 0;
        return;
    case TENSOR_TYPE_I8:
        ((int8_t *)values)[i] = (int8_t)x;
        return;
    case TENSOR_TYPE_U8:
        ((uint8_t *)values)[i] = (uint8_t)x;
        return;
    case TENSOR_TYPE_I16:
        ((int16_t *)values)[i] = (int16_t)x;
        return;
    case TENSOR_TYPE_U16:
        ((uint16_t *)values)[i] = (uint16_t)x;
        return;
    case TENSOR_TYPE_I32:
        ((int32_t *)values)[i] = (int32_t)x;
        return;
    case TENSOR_TYPE_U32:
        ((uint32_t *)values)[i] = (uint32_t)x;
        return;
    case TENSOR_TYPE_I64:
        ((int64_t *)values)[i] = (int64_t)x;
        return;
    default:
        ((uint64_t *)values)[i] = (uint64_t)x;
    }
}

/* Stores the largest number of a type, which a double cannot hold if it has 64 bits. */
static void put_largest(void *values, tensor_type type, int64_t i) {
    if (type == TENSOR_TYPE_I64)
        ((int64_t *)values)[i] = INT64_MAX;
    else if (type == TENSOR_TYPE_U64)
        ((uint64_t *)values)[i] = UINT64_MAX;
    else
        put_integer(values, type, i, types[type].beyond - 1);
}

/* Stores x as a number of the type: 0 for NaN, the nearest end for a number out of range. False in these two cases. */
static bool store_integer(void *values, tensor_type type, int64_t i, double x) {
    const struct host_type *h = &types[type];
    if (type == TENSOR_TYPE_BOOL) {
        put_integer(values, type, i, x != 0);
        return true;
    }
    const double whole = rint(x);
    if (whole >= h->least && whole < h->beyond) {
        put_integer(values, type, i, whole);
        return true;
    }
    if (whole >= h->beyond)
        put_largest(values, type, i);
    else
        put_integer(values, type, i, x != x ? 0 : h->least);
    return false;
}

/* The position of the first value that the type cannot hold; -1 if there is none. */
static int64_t find_outside(const struct fl_seen *seen, const struct fl_format *format, tensor_type type, int64_t count,
                            double *value) {
    double block[FL_BLOCK];
    for (int64_t first = 0; type != TENSOR_TYPE_BOOL && first < count; first += FL_BLOCK) {
        const int64_t n = count - first < FL_BLOCK ? count - first : FL_BLOCK;
        format->decode(format, &seen->view, first, n, block);
        for (int64_t i = 0; i < n; i++) {
            *value = rint(block[i]);
            if (!(*value >= types[type].least && *value < types[type].beyond)) {
                *value = block[i];
                return first + i;
            }
        }
    }
    return -1;
}

static int64_t store_block(const double *block, void *values, tensor_type type, int64_t first, int64_t n) {
    if (!is_integer(type)) {
        const struct fl_view out = {values, NULL, NULL, first + n};
        const struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0, 0};
        struct fl_stats ignored = {0};
        codec_of(type)->encode(codec_of(type), &out, first, n, block, false, &nearest, &ignored);
        return 0;
    }
    int64_t outside = 0;
    for (int64_t i = 0; i < n; i++)
        outside += !store_integer(values, type, first + i, block[i]);
    return outside;
}

tensor_status tensor_store_array(const tensor *t, void *values, tensor_type type, int64_t count, int64_t *saturated) {
    static const char what[] = "tensor_store_array";
    struct fl_seen seen;
    tensor_status status = check_type(what, type);
    if (!status && saturated)
        *saturated = 0;
    if (!status && type == TENSOR_TYPE_F32)
        return tensor_store_f32(t, values, count);
    if (!status && type == TENSOR_TYPE_F64)
        return tensor_store_f64(t, values, count);
    if (!status)
        status = fl_check_store(what, t, values, count);
    if (!status)
        status = fl_see(&seen, what, t);
    if (status)
        return status;
    double outside = 0;
    const int64_t at = saturated || !is_integer(type) ? -1 : find_outside(&seen, t->format, type, count, &outside);
    if (at >= 0)
        status = fl_fail(TENSOR_E_ARGUMENT, "%s: value %lld is %g, expected %g to %.17g for %s", what, (long long)at,
                         outside, types[type].least, types[type].beyond - 1, types[type].format.name);
    double block[FL_BLOCK];
    int64_t sum = 0;
    for (int64_t first = 0; !status && first < count; first += FL_BLOCK) {
        const int64_t n = count - first < FL_BLOCK ? count - first : FL_BLOCK;
        t->format->decode(t->format, &seen.view, first, n, block);
        sum += store_block(block, values, type, first, n);
    }
    if (!status && saturated)
        *saturated = sum;
    fl_free(seen.copy);
    return status;
}
