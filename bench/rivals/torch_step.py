"""PyTorch's training steps, "step MODEL BATCH", evaluations of images, "evaluate MODEL BATCH", and forward and backward:
causal attention, "attention BATCH HEADS LENGTH WIDTH"; "layernorm ROWS COLUMNS", "softmax" and "gelu" likewise. The first argument of the program is its setting: contiguous, channels_last (NHWC, images alone), or compiled
(channels_last through torch.compile); the second one its precision: fp32, or autocast, which multiplies in bf16 and
keeps weights, state of the optimiser and what wants binary32 in that (torch.autocast)."""

import contextlib
import os
import sys

import gpt
import images
import lstm
import resnet20
import torch
import training
from protocol import serve
from torch.nn import functional as F

IMAGES = {"resnet20": resnet20.ResNet20, "vgg11": images.vgg11, "mobilenet": images.mobilenet}
TEXTS = {"gpt": gpt.Gpt, "lstm-char": lstm.LstmChar}
SETTING, PRECISION = sys.argv[1:3]
CONTEXT = {"fp32": contextlib.nullcontext, "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16)}[PRECISION]


def prepare_step(name, size):
    model = {**IMAGES, **TEXTS}[name]().train()
    if name in TEXTS:
        inputs, labels = training.texts(size)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, foreach=True)
    else:
        inputs, labels = training.images(size)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
        if SETTING != "contiguous":
            model = model.to(memory_format=torch.channels_last)
            inputs = inputs.contiguous(memory_format=torch.channels_last)
    if SETTING == "compiled":
        model = torch.compile(model)
    return training.training_step(model, optimiser, inputs, labels, CONTEXT)


def prepare_evaluation(name, size):
    model, (inputs, _) = IMAGES[name]().eval(), training.images(size)
    if SETTING != "contiguous":
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    if SETTING == "compiled":
        model = torch.compile(model)

    def run():
        with torch.inference_mode(), CONTEXT():
            model(inputs)

    return run


def both_passes(function, operands, dy):
    """A run of the function and of its gradients."""
    if SETTING == "compiled":
        function = torch.compile(function)

    def run():
        with CONTEXT():
            y = function(*operands)
        torch.autograd.grad(y, operands, dy)

    return run


def prepare_attention(*shape):
    torch.manual_seed(1)
    *operands, dy = (torch.randn(*shape, requires_grad=i < 3) for i in range(4))
    return both_passes(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), operands, dy)


ROWS = {
    "layernorm": lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta),
    "softmax": lambda x: F.softmax(x, -1),
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
}


def prepare_rows(name, rows, columns):
    torch.manual_seed(1)
    x, dy = (torch.randn(rows, columns, requires_grad=i < 1) for i in range(2))
    more = [torch.randn(columns, requires_grad=True) for _ in range(2 if name == "layernorm" else 0)]
    return both_passes(ROWS[name], [x, *more], dy)


def prepare(words):
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if words[0] == "step" and words[1] in {**IMAGES, **TEXTS}:
        return prepare_step(words[1], int(words[2]))
    if words[0] == "evaluate" and words[1] in IMAGES:
        return prepare_evaluation(words[1], int(words[2]))
    if words[0] in ROWS:
        return prepare_rows(words[0], *map(int, words[1:]))
    if words[0] == "attention":
        return prepare_attention(*map(int, words[1:]))
    raise ValueError("PyTorch has no such work")


serve(prepare)
