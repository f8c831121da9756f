/* onnx_read.h - a network from an ONNX file: opset 7 to 22 of the domain "" (or "ai.onnx"), whose older operators
 * become those of opset 22 (onnx_translate.c). Nodes of other domains are kept as they are. Initializers and Constant
 * nodes become constants, also where an initializer is the default of an input. Weights may lie in other files of the
 * model's folder, never outside of it.
 *
 * TENSOR_E_IO: a file cannot be read; TENSOR_E_DATA: what it has is refused, in a message with file, node and
 * attribute; TENSOR_E_UNSUPPORTED: the library was built without protobuf-c. Memory is proportional to the sizes of the
 * files. */
#ifndef FL_ONNX_READ_H
#define FL_ONNX_READ_H

#include "flexlab/status.h"

struct fl_array;
struct fl_network;

/* A new network, for fl_network_free; NULL after a failure. */
tensor_status fl_onnx_read(struct fl_network **network, const char *path);

/* An array, in memory of that network, from a file that is one tensor (TensorProto), as the tests of ONNX have their
 * inputs and outputs. */
tensor_status fl_onnx_read_tensor(struct fl_array **array, struct fl_network *network, const char *path);

#endif
