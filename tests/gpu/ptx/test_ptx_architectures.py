#!/usr/bin/env python3
"""The PTX from which the machine code of sm_90a is made, which no object carries, differs from that of sm_80 in its target
alone: what is shown of one holds for the other. Minutes: label long.
usage: test_ptx_architectures.py NVCC SOURCE_DIR GENERATED_DIR"""
import pathlib
import re
import subprocess
import sys
import tempfile

nvcc, source, generated = sys.argv[1], *map(pathlib.Path, sys.argv[2:4])
flags = ["-std=c++17", "-O3", "-fmad=false", f"-I{source}/src", f"-I{source}/include", f"-I{generated}/include", f"-I{generated}/gpu"]
differ = compared = 0
with tempfile.TemporaryDirectory() as folder:
    for path in [*sorted((source / "src/gpu").glob("*.cu")), *sorted((generated / "gpu").glob("*.cu"))]:
        lines = []
        for arch in ("compute_80", "compute_90a"):
            out = pathlib.Path(folder, arch)
            subprocess.run([nvcc, *flags, "-ptx", f"-arch={arch}", path, "-o", out], check=True)
            text = re.sub(r"_[0-9a-f]{8}_", "_HASH_", out.read_text())
            lines.append([line for line in text.splitlines() if not line.startswith((".target", ".version"))])
        compared += len(lines[0])
        if lines[0] != lines[1]:
            differ += 1
            print(path.name, "differs:", [pair for pair in zip(*lines) if pair[0] != pair[1]][:3])
print(f"{compared} lines compared, {differ} files differ")
sys.exit(bool(differ) or compared < 10000)
