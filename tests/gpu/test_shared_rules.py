#!/usr/bin/env python3
"""The rules that a processor and a device share (prediction, slots, channels of batch normalisation, and how operations are
planned from exponents) give the same numbers by the C compiler, by the C++ compiler, by nvcc on the host and, where there is
one, on a device; as device code they compile without a warning. What is not there is left out: it says so.
usage: test_shared_rules.py SOURCE_DIR BUILD_DIR"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

source, build = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
THOUSANDS = "50"  # cases of each rule
include = [f"-I{source}/src", f"-I{source}/include", f"-I{build}/generated/include"]
plain = ["-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", *include]
cuda = ["-std=c++17", "-O2", "-fmad=false", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-ffp-contract=off", *include]
failed = False


def run(command, name):
    global failed
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 77):
        print(f"{name}: FAILED\n{done.stdout}{done.stderr}", end="")
        failed = True
    return done


with tempfile.TemporaryDirectory() as folder:
    compilers = [("C", [os.environ.get("CC", "cc"), "-std=gnu17", *plain, source / "tests/gpu/shared_rules.c", "-lm"]),
                 ("C++", [os.environ.get("CXX", "c++"), "-x", "c++", "-std=gnu++17", *plain, source / "tests/gpu/shared_rules.c"]),
                 ("CUDA", ["nvcc", *cuda, "-arch=sm_80", source / "tests/gpu/shared_rules.cu"])]
    runs = [("C", []), ("C++", []), ("CUDA", []), ("CUDA", ["device"])]
    programs, results = {}, {}
    for language, command in compilers:
        if not shutil.which(command[0]):
            print(f"{language}: left out, {command[0]} is not installed")
            continue
        program = f"{folder}/rules-{language}"
        if run([*command, "-o", program], language).returncode == 0:
            programs[language] = program
    if "CUDA" in programs:
        for arch in ("sm_90a",):
            run(["nvcc", *cuda, f"-arch={arch}", "-c", source / "tests/gpu/shared_rules.cu", "-o", f"{folder}/{arch}.o"], arch)
    for language, where in runs:
        if language not in programs:
            continue
        name = " ".join([language, *where])
        done = run([programs[language], THOUSANDS, *where], name)
        if done.returncode == 77:
            print(f"{name}: left out, there is none")
        elif done.returncode == 0:
            results[name] = done.stdout.splitlines()
            print(f"{name}: {len(results[name])} thousand cases")
    for name, lines in results.items():
        different = [a.rsplit(" ", 1)[0] for a, b in zip(results["C"], lines) if a != b]
        if different or len(lines) != len(results["C"]):
            print(f"{name} differs from C: {len(different)} blocks, the first (rule, first case): {different[:1]}")
            failed = True
if not failed and len(results) < 2:
    print("skipped: nothing to compare with")
    sys.exit(77)
sys.exit(failed)
