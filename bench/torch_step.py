#!/usr/bin/env python3
"""A training step of ResNet-20 (batch 128, SGD with momentum) in PyTorch: torch's own fp32, flexlab.torch in a format, the C
library's network, and QPyTorch's simulation where qtorch can be imported, alternating in one process.

usage: torch_step.py [--threads N] [--rounds N] [--format NAME] [--batch N]
Each step has images in memory of its own, as a new batch has. Wall time and CPU time of the process, median and least of
the rounds. On a machine with other work, threads of OpenMP wait for each other: compare CPU times of one thread then."""
import argparse
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "python"))

import torch

import flexlab as fl
import flexlab.torch as ft
from torch_networks import Graph, resnet

MOMENTUM, DECAY, RATE = 0.9, 1e-4, 0.1


def stepper(model, optimiser, loss_of, x, labels):
    """A step of given images, and the images."""
    def step(x):
        optimiser.zero_grad()
        loss_of(model(x), labels).backward()
        optimiser.step()
    return step, x


def of_torch(x, labels, last):
    model = resnet(20).train()
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    return stepper(model, optimiser, torch.nn.functional.cross_entropy, x, labels)


def of_flexlab(x, labels, format):
    model = ft.convert(resnet(20).train(), format, verbose=False)
    optimiser = ft.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    return stepper(model, optimiser, ft.CrossEntropyLoss(format=format), x, labels)


def of_c(x, labels, format):
    graph = Graph(20, format, len(x), MOMENTUM, DECAY)
    return lambda x: graph.step(x, labels, RATE), x


def of_qpytorch(x, labels):
    """Results of layers, their gradients, weights and momentum in blocks of 16 bits, as its examples have it."""
    from qtorch import BlockFloatingPoint
    from qtorch.optim import OptimLP
    from qtorch.quant import Quantizer, quantizer
    model, number = resnet(20).train(), BlockFloatingPoint(wl=16, dim=-1)
    for module in list(model.modules()):
        if isinstance(module, (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.Linear)):
            layer = Quantizer(number, number, "nearest", "nearest")
            module.register_forward_hook(lambda module, given, y, layer=layer: layer(y))
    rule = quantizer(number, forward_rounding="nearest")
    inner = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    optimiser = OptimLP(inner, weight_quant=rule, grad_quant=rule, momentum_quant=rule)
    return stepper(model, optimiser, torch.nn.functional.cross_entropy, x, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--format", default="flex16+5")
    parser.add_argument("--batch", type=int, default=128)
    how = parser.parse_args()
    torch.set_num_threads(how.threads)
    fl.set_threads(how.threads)
    x, labels = torch.randn(how.batch, 3, 32, 32), torch.randint(0, 10, (how.batch,))
    steps = {"torch fp32": of_torch(x, labels, False), "torch fp32, channels_last": of_torch(x, labels, True),
             f"flexlab.torch {how.format}": of_flexlab(x, labels, how.format), f"C {how.format}": of_c(x, labels, how.format)}
    try:
        steps["QPyTorch, blocks of 16 bits"] = of_qpytorch(x, labels)
    except ImportError as error:
        print(f"without QPyTorch: {error}")
    times = {name: [] for name in steps}
    for i in range(how.rounds + 2):
        for name, (step, images) in steps.items():
            batch = images.clone()
            wall, cpu = time.perf_counter(), time.process_time()
            step(batch)
            if i > 1:
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    base = {k: statistics.median(one[k] for one in times["torch fp32, channels_last"]) for k in (0, 1)}
    heads = "".join(f"{head:>9}" for head in ("wall ms", "least", "CPU ms", "least"))
    print(f"{f'batch {how.batch}, threads {how.threads}':32}{heads}   to torch's channels_last")
    for name, measured in times.items():
        columns = [[one[k] for one in measured] for k in (0, 1)]
        medians = [statistics.median(column) for column in columns]
        print(f"{name:32}" + "".join(f"{1e3 * m:9.1f}{1e3 * min(c):9.1f}" for m, c in zip(medians, columns)) +
              f"   {medians[0] / base[0]:.2f} wall, {medians[1] / base[1]:.2f} CPU")


if __name__ == "__main__":
    main()
