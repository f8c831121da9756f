/* onnx_write.h - a network as an ONNX file of opset 21 and IR version 10, as other runtimes read it. The same network
 * gives the same bytes, and reading them gives the network again: the same nodes in the same order, names, attributes
 * and constants, but for constants that nobody reads. Attributes whose names begin with "flexlab." are written as
 * metadata_props, and so is a rounding of integers that is not onnxruntime's. A network of opset 22 with
 * bfloat16 stays one of opset 22. Needs no protobuf-c.
 *
 * TENSOR_E_ARGUMENT names what ONNX cannot say: nodes whose images lie in the order N, H, W, C, values with a
 * quantisation of their own, two visible values of one name. Rewrite the network first. TENSOR_E_IO: nothing stands
 * under the name that was not there before. */
#ifndef FL_ONNX_WRITE_H
#define FL_ONNX_WRITE_H

#include "flexlab/status.h"

struct fl_network;

tensor_status fl_onnx_write(const struct fl_network *n, const char *path);

#endif
