"""PyTorch's training step, of ResNet-20 ("step BATCH") or of a small transformer ("transformer BATCH"). The first
argument of the program is its setting: contiguous, channels_last (NHWC, images alone), or compiled (channels_last
through torch.compile); the second one its precision: fp32, or autocast, which multiplies in bf16 and keeps weights,
state of the optimiser and what wants binary32 in that (torch.autocast)."""

import contextlib
import os
import sys

import gpt
import resnet20
import torch
from protocol import serve


def prepare(words):
    networks = {"step": (resnet20, resnet20.ResNet20), "transformer": (gpt, gpt.Gpt)}
    if words[0] not in networks:
        raise ValueError("PyTorch has no such work")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    module, network = networks[words[0]]
    (setting, precision), (inputs, labels) = sys.argv[1:3], module.batch(int(words[1]))
    model = network().train()
    if module is gpt:
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
    else:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
        if setting != "contiguous":
            model = model.to(memory_format=torch.channels_last)
            inputs = inputs.contiguous(memory_format=torch.channels_last)
    if setting == "compiled":
        model = torch.compile(model)
    contexts = {"fp32": contextlib.nullcontext, "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16)}
    return module.training_step(model, optimiser, inputs, labels, contexts[precision])


serve(prepare)
