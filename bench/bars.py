"""The bars: the least ratio of an entry, by make of processor."""

import pathlib
import re

BATCHES = {"resnet20": 128, "gpt": 16, "lstm-char": 32, "mobilenet": 64, "vgg11": 64}  # of training steps


def step_of(model):
    """The name of the training step of a model of the library."""
    name = "ResNet-20" if model == "resnet20" else model
    return f"{name} training step, batch {BATCHES[model]}"


# Matrix tiles (AMX) are asked for first. Other processors have the bars that were set on Zen 4.
MAKES = ("other", "Zen 5", "tiles")


def make_of(cpuinfo):
    """The make of a processor by the text of /proc/cpuinfo."""
    if re.search(r"\bamx_int8\b", cpuinfo):
        return "tiles"
    zen5 = "AuthenticAMD" in cpuinfo and re.search(r"^cpu family\s*:\s*26$", cpuinfo, re.M)
    return "Zen 5" if zen5 else "other"


def this_make():
    try:
        return make_of(pathlib.Path("/proc/cpuinfo").read_text())
    except OSError:
        return "other"


# None: no bar there. An entry that is not named here has none. For entries of memory the number is the most instead.
BARS = [
    # work, format, rival, and one number for all makes or one for each in the order of MAKES
    ("matmul 1024x1024x1024, Gaussian mantissas", "flex16+5", "best sgemm", 1.70, 1.70, 4.00),
    ("matmul 1024x1024x1024, any mantissas", "flex16+5", "best sgemm", 1.20, 1.20, 4.00),
    ("matmul 1024x1024x1024, 15-bit mantissas", "flex16+5", "best sgemm", 1.55, 1.55, 4.00),
    ("matmul 2048x2048x2048, Gaussian mantissas", "flex16+5", "best sgemm", 1.70, 1.70, 4.00),
    ("matmul 2048x2048x2048, any mantissas", "flex16+5", "best sgemm", 1.20, 1.20, 4.00),
    ("matmul 2048x2048x2048, Gaussian mantissas", "flex16+5", "mkl gemm_s16s16s32 (inexact)", 1.00, 1.00, 1.90),
    ("matmul 4096x4096x4096, Gaussian mantissas", "flex16+5", "best sgemm", None, None, 3.50),
    ("matmul 256x1000x3072, Gaussian mantissas", "flex16+5", "best sgemm", 1.55, 1.55, 2.80),
    ("matmul 16x131072x144, Gaussian mantissas", "flex16+5", "best sgemm", 1.40),
    ("matmul 32x32768x288, Gaussian mantissas", "flex16+5", "best sgemm", 1.40),
    ("matmul 64x8192x576, Gaussian mantissas", "flex16+5", "best sgemm", 1.40),
    ("matmul 64x64x64, Gaussian mantissas", "flex16+5", "best sgemm", 0.90),
    ("matmul 128x128x128, Gaussian mantissas", "flex16+5", "best sgemm", 0.90),
    ("matmul 256x256x256, Gaussian mantissas", "flex16+5", "best sgemm", 0.90, 0.90, 1.50),
    ("matmul 64x64x64", "fp32", "best sgemm", 0.90),
    ("matmul 128x128x128", "fp32", "best sgemm", 0.90),
    ("matmul 256x256x256", "fp32", "best sgemm", 0.90),
    ("matmul 2048x2048x2048", "fp32", "best sgemm", 0.95),
    ("matmul 2048x2048x2048", "fp16", "best sgemm", 0.92),
    ("matmul 2048x2048x2048, class fast", "bf16", "best sgemm", 1.75),
    ("matmul 2048x2048x2048, class fast", "bf16", "best bf16 matmul", 0.95, 0.95, 0.85),
    # the vector kernels of a processor that has tiles
    ("matmul 2048x2048x2048, AVX-512, Gaussian mantissas", "flex16+5", "best sgemm", None, None, 1.70),
    ("matmul 2048x2048x2048, AVX-512, any mantissas", "flex16+5", "best sgemm", None, None, 1.20),
    ("matmul 2048x2048x2048, AVX-512, 15-bit mantissas", "flex16+5", "best sgemm", None, None, 1.40),
    ("matmul 2048x2048x2048, AVX-512, Gaussian mantissas", "flex16+5", "mkl gemm_s16s16s32 (inexact)", None, None, 0.95),
    ("matmul 2048x2048x2048, AVX2", "fp32", "openblas haswell", 0.90),
    ("matmul 2048x2048x2048, AVX2, Gaussian mantissas", "flex16+5", "ours fp32 avx2", 1.50),
    ("matmul 2048x2048x2048, AVX2, any mantissas", "flex16+5", "ours fp32 avx2", 0.90, 0.90, 0.85),
    ("convolutions of ResNet-20, weighted sum", "flex16+5", "onednn fp32", 1.60, 1.60, 2.70),
    ("conv 32x32x3 to 16 (x1), no input gradient", "flex16+5", "onednn fp32", 1.00),
    (step_of("resnet20"), "flex16+5", "best torch fp32", 2.50, 2.90, 3.50),
    (step_of("resnet20"), "flex16+5", "best torch bf16 autocast", None, None, 1.90),
    (step_of("resnet20"), "flex16+5", "ours fp32", 1.40),
    (step_of("resnet20"), "flex16+5", "qtorch, simulated", 10.0),
    (step_of("resnet20"), "fp32", "best torch fp32", 1.20),
    (step_of("resnet20") + ", class fast", "bf16", "best torch bf16 autocast", 1.25, 1.25, 1.30),
    (step_of("gpt"), "flex16+5", "ours fp32", 1.30),
    (step_of("gpt"), "fp32", "best torch fp32", 1.10),
    (step_of("gpt"), "flex16+5", "best torch bf16 autocast", 1.90),
    (step_of("lstm-char"), "flex16+5", "best torch fp32", 1.50),
    (step_of("lstm-char"), "fp32", "best torch fp32", 1.10),
    (step_of("mobilenet"), "flex16+5", "best torch fp32", 2.50),
    (step_of("vgg11"), "flex16+5", "best torch fp32", 2.20),
    ("convert fp32 to fp16, 2^25 elements", "fp16", "memcpy", 0.85),
    ("convert fp16 to fp32, 2^25 elements", "fp16", "memcpy", 0.85),
    ("convert fp32 to bf16, 2^25 elements", "bf16", "memcpy", 0.85),
    ("convert bf16 to fp32, 2^25 elements", "bf16", "memcpy", 0.85),
    ("convert fp32 to flex16+5, 2^25 elements", "flex16+5", "memcpy", 0.85),
    ("convert flex16+5 to fp32, 2^25 elements", "flex16+5", "memcpy", 0.85),
    ("matmul 2048x2048x2048, scaling", "flex16+5", "ours, 1 thread", 1.85),
    ("matmul 2048x2048x2048, scaling", "fp32", "ours, 1 thread", 1.85),
    ("matmul 64x64x64, scaling", "flex16+5", "ours, 1 thread", 0.91),
    ("matmul 64x64x64, scaling", "fp32", "ours, 1 thread", 0.91),
    ("matmul 64x64x64, scaling beside a busy core", "flex16+5", "ours, 1 thread", 0.91),
    ("matmul 64x64x64, scaling beside a busy core", "fp32", "ours, 1 thread", 0.91),
    ("matmul 128x128x128, scaling", "flex16+5", "ours, 1 thread", 0.91),
    ("matmul 128x128x128, scaling", "fp32", "ours, 1 thread", 0.91),
    ("matmul 128x128x128, scaling beside a busy core", "flex16+5", "ours, 1 thread", 0.91),
    ("matmul 128x128x128, scaling beside a busy core", "fp32", "ours, 1 thread", 0.91),
    ("training step, scaling", "flex16+5", "ours, 1 thread", 1.80),
    ("training step, scaling", "fp32", "ours, 1 thread", 1.80),
    ("training step, batch 128: activations and weights", "flex16+5", "ours fp32", 0.55),
    ("training step, batch 128: arena and weights", "flex16+5", "ours fp32", 0.55),
]
BAR_OF = {
    (work, format, rival): bars * len(MAKES) if len(bars) == 1 else bars for work, format, rival, *bars in BARS
}


def bar_of(work, format, rival, make):
    """The bar of an entry, None if it has none, and the make to which it applies, "" if all have the same."""
    bars = BAR_OF.get((work, format, rival), (None,) * len(MAKES))
    bar = bars[MAKES.index(make)]
    return bar, make if bar is not None and len(set(bars)) > 1 else ""
