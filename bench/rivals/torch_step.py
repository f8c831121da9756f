"""PyTorch's training step. The first argument of the program is its setting: contiguous, channels_last (NHWC), or
compiled (channels_last through torch.compile); the second one its precision: fp32, or autocast, which multiplies in
bf16 and keeps weights, momentum and what wants binary32 in that (torch.autocast)."""

import contextlib
import os
import sys

import torch
from protocol import serve
from resnet20 import ResNet20, batch, training_step


def prepare(words):
    if words[:1] != ["step"]:
        raise ValueError("PyTorch has no such work")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    (setting, precision), (images, labels) = sys.argv[1:3], batch(int(words[1]))
    model = ResNet20().train()
    if setting != "contiguous":
        model, images = (
            model.to(memory_format=torch.channels_last),
            images.contiguous(memory_format=torch.channels_last),
        )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
    if setting == "compiled":
        model = torch.compile(model)
    contexts = {"fp32": contextlib.nullcontext, "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16)}
    return training_step(model, optimiser, images, labels, contexts[precision])


serve(prepare)
