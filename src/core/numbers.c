/* numbers.c - what stands beside the formats: doubles, 32-bit integers, bytes. They have a codec to be read by, and no
 * kernels. */
#include "core/format.h"
#include <string.h>

static void decode_f64(const struct fl_view *in, int64_t first, int64_t n, double *values) {
    memcpy(values, (const double *)in->data + first, (size_t)n * sizeof *values);
}

static void decode_f32(const struct fl_view *in, int64_t first, int64_t n, double *values) {
    for (int64_t i = 0; i < n; i++)
        values[i] = ((const float *)in->data)[first + i];
}

static void decode_i32(const struct fl_view *in, int64_t first, int64_t n, double *values) {
    for (int64_t i = 0; i < n; i++)
        values[i] = ((const int32_t *)in->data)[first + i];
}

static void decode_u8(const struct fl_view *in, int64_t first, int64_t n, double *values) {
    for (int64_t i = 0; i < n; i++)
        values[i] = ((const uint8_t *)in->data)[first + i];
}

static const struct fl_format numbers[] = {{.id = FMT_F64,
                                            .name = "f64",
                                            .summary = "numbers as double",
                                            .arithmetic = FL_ARITHMETIC_NUMBERS,
                                            .bytes = 8,
                                            .decode = decode_f64},
                                           {.id = FMT_I32,
                                            .name = "i32",
                                            .summary = "numbers as 32-bit integers",
                                            .arithmetic = FL_ARITHMETIC_NUMBERS,
                                            .bytes = 4,
                                            .decode = decode_i32},
                                           {.id = FMT_U8,
                                            .name = "u8",
                                            .summary = "numbers as bytes",
                                            .arithmetic = FL_ARITHMETIC_NUMBERS,
                                            .bytes = 1,
                                            .decode = decode_u8},
                                           {.id = FMT_F32,
                                            .name = "f32",
                                            .summary = "numbers as float",
                                            .arithmetic = FL_ARITHMETIC_NUMBERS,
                                            .bytes = 4,
                                            .decode = decode_f32}};

const struct fl_format *fl_numbers_of(tensor_format id) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].id == id)
            return &numbers[i];
    return NULL;
}
