"""onnxruntime's forward pass of ResNet-20, "evaluate resnet20 BATCH", on a graph that PyTorch exports, its batch
normalisation folded into the convolutions. The argument of the program is its precision: fp32, or int8, quantised with
scales from random images."""

import os
import sys
import tempfile

import onnxruntime
import torch
import training
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from protocol import serve
from resnet20 import ResNet20


class Images(CalibrationDataReader):
    def __init__(self, images):
        self.left = iter([{"x": images}])

    def get_next(self):
        return next(self.left, None)


def prepare(words):
    if words[:2] != ["evaluate", "resnet20"]:
        raise ValueError("onnxruntime has no such work")
    x, _ = training.images(int(words[2]))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "resnet20.onnx")
        torch.onnx.export(ResNet20().eval(), (x,), path, input_names=["x"], dynamo=False)
        if sys.argv[1] == "int8":
            ready, small = (os.path.join(folder, name) for name in ("ready.onnx", "int8.onnx"))
            quant_pre_process(path, ready)
            quantize_static(ready, small, Images(x.numpy()), quant_format=QuantFormat.QDQ, per_channel=True)
            path = small
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {"x": x.numpy()}
    return lambda: session.run(None, inputs)


serve(prepare)
