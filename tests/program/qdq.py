#!/usr/bin/env python3
"""Prints qdq.txt: results of random quantised operators by onnxruntime (needs numpy, onnx, onnxruntime)."""
import itertools

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

MASK = (1 << 64) - 1
TYPES = {"u8": (np.uint8, TensorProto.UINT8), "i8": (np.int8, TensorProto.INT8)}


def numbers(state):  # splitmix64, as check.h has it
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def integers(source, kind, shape):
    count = int(np.prod(shape))
    return np.array([n & 255 for n in itertools.islice(source, count)], np.uint8).view(TYPES[kind][0]).reshape(shape)


def case(op, x_kind, w_kind, rng, seed):
    conv, product, pool = op == "QLinearConv", op == "QLinearMatMul", op == "QLinearGlobalAveragePool"
    pick = lambda low, high: int(rng.integers(low, high + 1))
    group, pads, strides, kernel = 1, [0] * 4, [1, 1], (1, 1)
    if conv:
        group = [1, 1, 2, 3][pick(0, 3)]
        kernel, pads, strides = (pick(1, 3), pick(1, 3)), [pick(0, 1) for _ in range(4)], [pick(1, 2), pick(1, 2)]
        x_shape = (1, group * pick(1, 9), pick(3, 5), pick(3, 5))
        w_shape = (group * pick(1, 2), x_shape[1] // group, *kernel)
    elif product:
        x_shape = (pick(1, 3), pick(1, 150))
        w_shape = (x_shape[1], pick(1, 12))
    else:
        x_shape = (1, pick(1, 6), pick(1, 3), pick(1, 3))
        w_shape = () if pool else x_shape
    filters = w_shape[0] if conv else w_shape[1] if product else 1
    zero = lambda kind: pick(-128, 127) if kind == "i8" else pick(0, 255)
    scale = lambda: float(np.float32(2.0 ** (rng.uniform(-8, 1) if pick(0, 2) else pick(-8, 0))))
    w_scales = [scale() for _ in range(filters if (conv or product) and pick(0, 1) else 1)]
    w_zero = (0 if w_kind == "i8" else zero(w_kind)) if conv or product else zero(w_kind)
    x_scale, x_zero, y_zero = scale(), zero(x_kind), zero(x_kind)
    spread = 74 * 74 * w_scales[0] * np.sqrt(np.prod(w_shape) / filters) if conv or product else 90
    y_scale = float(np.float32(spread * x_scale / pick(20, 120)))
    if not pick(0, 3):
        y_scale = float(2.0 ** np.floor(np.log2(y_scale)))
    bias = int(conv and pick(0, 1))
    source = numbers(seed)
    x = integers(source, x_kind, x_shape)
    w = integers(source, w_kind, w_shape) if w_shape else None
    b = np.array([n % 20001 - 10000 for n in itertools.islice(source, filters)], np.int32) if bias else None

    kind = lambda k: TYPES[k][1]
    constants = {"xs": np.float32(x_scale), "xz": TYPES[x_kind][0](x_zero), "ys": np.float32(y_scale),
                 "yz": TYPES[x_kind][0](y_zero)}
    if w is not None:
        many = len(w_scales) > 1
        constants["ws"] = np.array(w_scales if many else w_scales[0], np.float32)
        constants["wz"] = np.full(filters if many else (), w_zero, TYPES[w_kind][0])
    feeds, attributes, domain = {"x": x}, {}, "com.microsoft"
    if conv or product:
        constants["w"] = w
        names, domain = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ""
        if conv:
            attributes = {"kernel_shape": kernel, "pads": pads, "strides": strides, "group": group}
        if bias:
            constants["b"] = b
            names.append("b")
    elif pool:
        names, attributes = ["x", "xs", "xz", "ys", "yz"], {"channels_last": 0}
    else:
        feeds["w"] = w
        names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        if op == "QLinearConcat":
            names, attributes = ["ys", "yz", *names[:6]], {"axis": 1}
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    tensors = [helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), np.asarray(a).shape,
                                  np.asarray(a).tobytes(), raw=True) for n, a in constants.items()]
    inputs = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in feeds.items()]
    outputs = [helper.make_tensor_value_info("y", kind(x_kind), None)]
    model = helper.make_model(helper.make_graph([node], "case", inputs, outputs, tensors), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])
    y = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    join = lambda values: ",".join(map(str, values)) or "-"
    print(op, x_kind, w_kind, x_scale.hex(), x_zero, y_scale.hex(), y_zero, join(x_shape), join(w_shape), group,
          join(pads), join(strides), bias, join(s.hex() for s in w_scales), w_zero, seed, y.tobytes().hex())


print(f"# By qdq.py, the results of onnxruntime {onnxruntime.__version__} on x86-64 with VNNI:")
print("# OPERATOR X_TYPE W_TYPE X_SCALE X_ZERO Y_SCALE Y_ZERO X_SHAPE W_SHAPE GROUP PADS STRIDES BIAS W_SCALES W_ZERO SEED Y")
random = np.random.default_rng(28)
for i in range(400):
    name = ["QLinearConv", "QLinearMatMul", "QLinearConv", "QLinearAdd", "QLinearGlobalAveragePool", "QLinearMatMul",
            "QLinearConv", "QLinearConcat"][i % 8]
    x = ["u8", "i8"][int(random.integers(2))]
    mixed = name in ("QLinearConv", "QLinearMatMul") and x == "u8" and random.integers(2)
    case(name, x, "i8" if mixed else x, random, i + 1)
