/* onnx_export.h - a network that programs run, with its formats, as an ONNX file for other runtimes (opset 21; 22 where
 * nodes compute in bf16).
 *
 *   fp32           as it is; images lie in the order N, C, H, W, with Transpose around nodes of another order
 *   fp16, bf16     initialisers of that type, and Cast where a neighbour has another one
 *   flex16+5,      QuantizeLinear and DequantizeLinear of int16 with scale 2^-e and zero point 0 around each node, e
 * the dfp16          frozen exponent; weights are int16 int8, uint8    DequantizeLinear, the operator, QuantizeLinear
 * for each quantised node; biases are int32
 *
 * Activations and residuals that a node has joined stand behind it as Relu, Clip and Add. metadata_props of the nodes
 * say what belongs together, so that reading the file gives the same network again (passes/restore.c, quantised.c).
 *
 * TENSOR_E_UNSUPPORTED names a node that ONNX cannot say, before anything is written. */
#ifndef FL_ONNX_EXPORT_H
#define FL_ONNX_EXPORT_H

#include "flexlab/status.h"

struct fl_network;

/* ndim: of each output, for those of which the network does not state it; -1: unknown. */
tensor_status fl_onnx_export(const struct fl_network *n, const int *ndim, const char *path);

#endif
