/* tflite_read.h - a network from a .tflite file, version 3 of TensorFlow Lite's format.
 *
 * Values 0, 1, ... of the network are the tensors of the file in its order; the values after them are what a
 * translation adds. Operators become those of ONNX (network.h), with these rules of their own:
 *  - Image operators (Conv, AveragePool, MaxPool, Resize) have channels_last, and auto_pad "SAME_UPPER" or "VALID".
 *    Filters are [K, R, S, C / groups], those of a depthwise convolution too; fully connected layers are Gemm with
 *    transB. Resize gives sizes for axes 1 and 2.
 *  - A fused activation is the attribute flexlab_activation: "Relu", "Clip:0:6" or "Clip:-1:1".
 *  - Softmax of integers may have the attribute flexlab_beta, by which its operand is multiplied. For floats that is a
 *    Mul.
 *  - Quantised tensors have their integers as type, with a quantisation, and the operator is named as that of floats:
 *    types of the values tell which it is. Numbers that an operator names are real ones then: a Clip has float32
 *    limits, and a Pad without a third operand pads with the real number 0, which the zero point stands for.
 *    QuantizeLinear may have integers as operand: their scale changes. A Conv or Gemm of floats whose filter alone is
 *    integers is hybrid: the runtime quantises the operand for each image while it runs, and flexlab_asymmetric (Gemm)
 *    says how.
 *  - The batch is dimension 0. Where every operator keeps it there, a batch that is 1 or open in the file becomes -1
 *    in the network, for any size: tflite_batch.c. Other dimensions that the file leaves open are -1 too.
 *  - Constants are copies; those of one buffer of the file share one copy, which nobody may write.
 *
 * A file that asks for more than the reader knows is TENSOR_E_UNSUPPORTED, and one message names all such operators.
 * The memory that is asked for is bounded by a multiple of the file's size, whatever it says. */
#ifndef FL_TFLITE_READ_H
#define FL_TFLITE_READ_H

#include "program/network/network.h"

/* A new network; on failure *network stays as it was, and the message names the file. TENSOR_E_UNSUPPORTED in a library
 * that was built without FlatBuffers. */
tensor_status fl_tflite_read(struct fl_network **network, const char *path);

#endif
