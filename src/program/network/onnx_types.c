/* onnx_types.c - see onnx_types.h. */
#include "program/network/onnx_types.h"

/* --- types -------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    tensor_type type;
} types[] = {{"undefined", 0},
             {"float32", TENSOR_TYPE_F32},
             {"uint8", TENSOR_TYPE_U8},
             {"int8", TENSOR_TYPE_I8},
             {"uint16", TENSOR_TYPE_U16},
             {"int16", TENSOR_TYPE_I16},
             {"int32", TENSOR_TYPE_I32},
             {"int64", TENSOR_TYPE_I64},
             {"string", 0},
             {"bool", TENSOR_TYPE_BOOL},
             {"float16", TENSOR_TYPE_F16},
             {"float64", TENSOR_TYPE_F64},
             {"uint32", TENSOR_TYPE_U32},
             {"uint64", TENSOR_TYPE_U64},
             {"complex64", 0},
             {"complex128", 0},
             {"bfloat16", TENSOR_TYPE_BF16},
             {"float8e4m3fn", 0},
             {"float8e4m3fnuz", 0},
             {"float8e5m2", 0},
             {"float8e5m2fnuz", 0},
             {"uint4", 0},
             {"int4", 0},
             {"float4e2m1", 0},
             {"float8e8m0", 0}};
enum { TYPES = sizeof types / sizeof types[0] };

tensor_type fl_onnx_type(int number) {
    return number >= 0 && number < TYPES ? types[number].type : 0;
}

int fl_onnx_type_number(tensor_type type) {
    for (int i = 1; i < TYPES; i++)
        if (type && types[i].type == type)
            return i;
    return 0;
}

const char *fl_onnx_type_name(int number) {
    return number >= 0 && number < TYPES ? types[number].name : "unknown";
}
