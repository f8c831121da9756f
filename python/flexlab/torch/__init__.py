"""flexlab in PyTorch: functions, modules and optimisers whose forward and backward compute in flexlab's real arithmetic.

    model = flexlab.torch.convert(model, "flex16+5")
    optimiser = flexlab.torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

Tensors are torch's, float32 on the processor, and hold the values of the formats. docs/python-torch.md explains how."""
try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("flexlab.torch needs PyTorch, which is not installed: pip install flexlab[torch]") from error

from . import functional, modules, optim
from ._carriers import State
from ._convert import convert
from ._histories import histories, load_histories
from ._quantize import (BlockFloatingPoint, FixedPoint, FloatingPoint, Quantizer, block_quantize, fixed_point_quantize,
                        float_quantize, quantize, quantizer)
from ._scaler import GradScaler
from .functional import (adaptive_avg_pool2d, add, avg_pool2d, batch_norm, conv2d, cross_entropy, dropout, embedding, flatten,
                         group_norm, layer_norm, linear, matmul, max_pool2d, relu, shortcut_a)
from .modules import (Add, AdaptiveAvgPool2d, AvgPool2d, BatchNorm1d, BatchNorm2d, Conv2d, CrossEntropyLoss, Dropout, Embedding,
                      GroupNorm, LayerNorm, Linear, MaxPool2d, ReLU, ShortcutA)
