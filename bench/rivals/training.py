"""Batches, and a training step, of the networks in PyTorch."""

import contextlib

import gpt
import torch
from torch.nn import functional as F


def images(size):
    torch.manual_seed(1)
    return torch.randn(size, 3, 32, 32), torch.arange(size) % 10


def texts(size):
    torch.manual_seed(1)
    text = torch.randint(gpt.WORDS, (size, gpt.CONTEXT + 1))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def training_step(model, optimiser, inputs, labels, precision=contextlib.nullcontext):
    """precision: makes the context of the forward pass and the loss, such as torch.autocast."""

    def step():
        optimiser.zero_grad(set_to_none=True)
        with precision():
            loss = F.cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        loss.backward()
        optimiser.step()

    return step
