/* numbers.c - numbers beside the formats: doubles, floats, 32-bit integers, bytes. They have a codec, by which they are
 * read, and no kernels. */
#include "core/table/format.h"

#define DECODE(type)                                                                                                   \
    static void decode_##type(const struct fl_format *f, const struct fl_view *in, int64_t first, int64_t n,           \
                              double *values) {                                                                        \
        (void)f;                                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                                                \
            values[i] = ((const type *)in->data)[first + i];                                                           \
    }
DECODE(double)
DECODE(float)
DECODE(int32_t)
DECODE(uint8_t)

#define NUMBERS(ID, type, its_name, its_summary)                                                                       \
    {                                                                                                                  \
        .id = (ID), .name = (its_name), .summary = (its_summary), .arithmetic = FL_ARITHMETIC_NUMBERS,                 \
        .bytes = sizeof(type), .decode = decode_##type                                                                 \
    }
static const struct fl_format numbers[] = {
    NUMBERS(FMT_F64, double, "f64", "numbers as double"), NUMBERS(FMT_F32, float, "f32", "numbers as float"),
    NUMBERS(FMT_I32, int32_t, "i32", "numbers as 32-bit integers"), NUMBERS(FMT_U8, uint8_t, "u8", "numbers as bytes")};

const struct fl_format *fl_numbers_of(tensor_format id) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].id == id)
            return &numbers[i];
    return NULL;
}
