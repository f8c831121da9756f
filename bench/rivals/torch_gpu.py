#!/usr/bin/env python3
"""How many images a second PyTorch trains ResNet-20 on, with mixed precision on a GPU: batches that lie on the device,
channels last, torch.autocast in bf16 and in fp16 with a GradScaler. Prints a JSON object.
usage: torch_gpu.py [BATCH [DEVICE]]        512, cuda. Exit status 77: there is no PyTorch, or it sees no such device"""

import json
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("skipped: no PyTorch")
    sys.exit(77)
from resnet20 import ResNet20
from torch.nn import functional as F
from training import images as batch

size = int(sys.argv[1]) if len(sys.argv) > 1 else 512
device = sys.argv[2] if len(sys.argv) > 2 else "cuda"
if device == "cuda" and not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    sys.exit(77)


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def images_per_second(dtype):
    images, labels = (x.to(device) for x in batch(size))
    images = images.contiguous(memory_format=torch.channels_last)
    model = ResNet20().to(device).to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=dtype):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()

    seconds, steps = [], 20 if device == "cuda" else 1
    for _ in range(8):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        seconds.append((time.perf_counter() - start) / steps)
    return size / statistics.median(seconds[3:])


print(json.dumps({"batch": size, "autocast bf16": images_per_second(torch.bfloat16), "autocast fp16": images_per_second(torch.float16)}))
