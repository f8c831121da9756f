#!/usr/bin/env python3
"""How long PyTorch takes on a GPU, as a JSON list: a training step of ResNet-20 with mixed precision (batches that lie on the
device, channels last, torch.autocast in bf16 and in fp16 with a GradScaler), in fp32, and in fp32 by tf32; and the products of
bench/device_products.c, which cuBLAS and cuDNN compute.
usage: torch_gpu.py [BATCH [DEVICE]]        128, cuda. Exit status 77: there is no PyTorch, or it sees no such device"""

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

size = int(sys.argv[1]) if len(sys.argv) > 1 else 128
device = sys.argv[2] if len(sys.argv) > 2 else "cuda"
if device == "cuda" and not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    sys.exit(77)


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def microseconds(run, calls):
    """The median of seven groups of calls, each waited for once, after three groups."""
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        wait()
        seconds.append((time.perf_counter() - start) / calls)
    return 1e6 * statistics.median(seconds[3:])


def step_of(dtype):
    images, labels = (x.to(device) for x in batch(size))
    images = images.contiguous(memory_format=torch.channels_last)
    model = ResNet20().to(device).to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)

    def step():
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()

    return step


on_gpu = device == "cuda"
rows = []
for name, dtype in (("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
    works = {f"step of ResNet-20, batch {size}": step_of(dtype)}
    for n in (1024, 2048, 4096) if on_gpu else (64,):
        a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
        works[f"matmul {n}"] = lambda a=a, b=b: a @ b
    for side, channels in ((32, 16), (16, 32), (8, 64)) if on_gpu else ():
        x = torch.randn(512, channels, side, side, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
        w = torch.randn(channels, channels, 3, 3, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
        works[f"conv2d {side}x{side}x{channels}"] = lambda x=x, w=w: F.conv2d(x, w, padding=1)
    rows += [{"work": work, "format": name, "microseconds": microseconds(run, 20 if on_gpu else 1)} for work, run in works.items()]
print("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]")
