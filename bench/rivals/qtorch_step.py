"""QPyTorch's simulation of a training step in 16-bit block floating point (Zhang et al. 2019): binary32 arithmetic, and
weights, activations, errors, gradients and momentum rounded to 16-bit mantissas, one exponent a tensor."""

import os

import torch
from protocol import serve
from qtorch import BlockFloatingPoint
from qtorch.optim import OptimLP
from qtorch.quant import Quantizer, quantizer
from resnet20 import ResNet20
from training import images, training_step


def prepare(words):
    if words[:2] != ["step", "resnet20"]:
        raise ValueError("QPyTorch has no such work")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    number = BlockFloatingPoint(wl=16, dim=-1)
    model = ResNet20(Quantizer(number, number, "nearest", "nearest")).train()
    write = quantizer(forward_number=number, forward_rounding="nearest")
    inner = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    optimiser = OptimLP(inner, weight_quant=write, grad_quant=write, momentum_quant=write)
    return training_step(model, optimiser, *images(int(words[2])))


serve(prepare)
