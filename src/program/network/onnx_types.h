/* onnx_types.h - ONNX's numbers of types, which attributes have too. */
#ifndef FL_ONNX_TYPES_H
#define FL_ONNX_TYPES_H

#include "flexlab/tensor.h"

/* TensorProto.DataType: 0 for a type that the library does not have. */
tensor_type fl_onnx_type(int number);
int fl_onnx_type_number(tensor_type type);
/* "float32", "string", "int4", ... */
const char *fl_onnx_type_name(int number);

#endif
