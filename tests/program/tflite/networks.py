#!/usr/bin/env python3
"""Prints networks.txt: what LiteRT says of .tflite files. usage: networks.py FILE.tflite... (needs ai-edge-litert)"""
import pathlib
import sys
import zlib

from ai_edge_litert.interpreter import Interpreter, OpResolverType

print("# By networks.py. network NAME; tensor NUMBER TYPE SCALES FIRST_SCALE FIRST_ZERO AXIS CRC_OF_SCALES SIGNATURE...;")
print("# node NAME RESULT OPERANDS...; input and output NUMBER")
for path in map(pathlib.Path, sys.argv[1:]):
    runtime = Interpreter(str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    tensors, nodes = runtime.get_tensor_details(), runtime._get_ops_details()
    used = {int(t) for node in nodes for t in (*node["inputs"], *node["outputs"])}
    print("network", path.name)
    for t in tensors:
        if t["index"] not in used:
            continue  # the runtime's own
        q = t["quantization_parameters"]
        scales = q["scales"]
        print("tensor", t["index"], t["dtype"].__name__, len(scales), scales[0].item().hex() if len(scales) else 0,
              q["zero_points"][0] if len(scales) else 0, q["quantized_dimension"] if len(scales) > 1 else 0,
              zlib.crc32(scales.astype("<f4").tobytes()), *t["shape_signature"])
    for node in nodes:
        print("node", node["op_name"], *node["outputs"], *node["inputs"])
    for what, ends in (("input", runtime.get_input_details()), ("output", runtime.get_output_details())):
        for t in ends:
            print(what, t["index"])
