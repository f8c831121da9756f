#!/usr/bin/env python3
"""The rules that a processor and a device share (prediction, slots, channels of batch normalisation) compile as device
code without a warning, where nvcc is at hand. usage: test_shared_rules.py SOURCE_DIR BUILD_DIR"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

source, build = map(pathlib.Path, sys.argv[1:3])
nvcc = shutil.which("nvcc")
if not nvcc:
    print("skipped: nvcc is not installed")
    sys.exit(77)
failed = False
with tempfile.TemporaryDirectory() as folder:
    for arch in ("sm_80", "sm_90a"):
        command = [nvcc, "-std=c++17", f"-arch={arch}", "-fmad=false", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra",
                   f"-I{source}/src", f"-I{source}/include", f"-I{build}/generated/include", "-c", source / "tests/shared_rules.cu",
                   "-o", f"{folder}/{arch}.o"]
        run = subprocess.run(command, capture_output=True, text=True)
        print(f"{arch}: {'compiled' if run.returncode == 0 else 'FAILED'}")
        print(run.stdout + run.stderr, end="")
        failed = failed or run.returncode != 0
sys.exit(failed)
