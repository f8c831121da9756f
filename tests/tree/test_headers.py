#!/usr/bin/env python3
"""Each public header compiles alone, as C17 and as C++17, without a warning by gcc and clang, those of them that are
there, tensor.h, tensor_blocks.h and nn.h include their parts; each header of src parses alone, so that editors show what is in it: those of C by gcc, with "long" by clang as well and those of CUDA by nvcc; and tests/tree/consumer/consumer.cpp and consumer.c, with the shared library, do one thing.
Without "long" one compiler for each language, and no header of src that some source begins with: the build has parsed it.
usage: test_headers.py SOURCE_DIR BUILD_DIR [run] [long]  (run: the programs too, which a build with sanitizers cannot)"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

source, build = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
generated = build / "generated" / "include"
include = [f"-I{source}/include", f"-I{generated}"]
warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
COMPILERS = {"c": ("gcc", "clang"), "cpp": ("g++", "clang++")}
long = "long" in sys.argv[3:]
failures, outputs, used = [], set(), []
NEEDED_BY = {"nn_group_mpi.h": {"c": "mpicc", "cpp": "mpicxx"}}  # headers that need another's, which its compiler finds

for whole, parts in (("tensor", "tensor_*"), ("nn", "nn_*"), ("tensor_blocks", "blocks_*")):
    text = (source / f"include/flexlab/{whole}.h").read_text()
    for part in sorted(source.glob(f"include/flexlab/{parts}.h")):
        if part.name in NEEDED_BY:
            continue
        if f'#include "flexlab/{part.name}"' not in text and part.name != "tensor_blocks.h":
            failures.append(f"{whole}.h does not include its part {part.name}")
# Functions that compute tensors from tensors have a signature: an entry of ops.def. Others copy or read values.
rows = set(re.findall(r"^FL_(?:MAP|REAL|OBJECT|COMPOSED)\w*\((?:\d+, \w+, )?(\w+)", (source / "include/flexlab/ops.def").read_text(), re.M))
VALUES = {"convert", "convert_at", "rewrite", "copy", "load_pixels", "isnan", "isinf"}
COMPUTES = re.compile(r"tensor_status\s+tensor_(\w+)\((?:tensor \*\w+,\s+)+const tensor \*")
for header in sorted(source.glob("include/flexlab/*.h")):
    for name in COMPUTES.findall(header.read_text()):
        if name not in rows | VALUES:
            failures.append(f"{header.name}: tensor_{name} has no row in ops.def")
# Headers of src include what they use; but what a folder of formats or an instruction set makes different is given from
# outside. Kernels for a GPU are parsed by nvcc, where it is.
FORMAT = ["-include", "fp16/fp16_codec.h", "-DFL_KIND=fp16"]
internal = [f"-I{folder}" for folder in (source / "src", build / "generated", build / "generated/gpu")]
given = {"float": FORMAT}
parsed = sorted(source.glob("src/**/*.h"))
of_cuda = [header for header in parsed if re.search("__global__|__device__|cudaError_t", header.read_text())]
nvcc = re.search(r"^FLEXLAB_NVCC:\w+=(/.*)", (build / "CMakeCache.txt").read_text(), re.M)
with tempfile.TemporaryDirectory() as folder:
    def preprocess(header):
        return header, subprocess.run([nvcc[1], "-x", "cu", "-std=c++17", "-arch=sm_80", "-cuda", "-w", *include, *internal, *FORMAT, header,
                                       "-o", pathlib.Path(folder, header.name)], capture_output=True, text=True)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for header, run in pool.map(preprocess, of_cuda if nvcc and long else []):
            if run.returncode:
                failures.append(f"{header.relative_to(source)} alone, nvcc: {run.stderr.strip().splitlines()[0]}")
begins = re.compile(r'(?:\s|/\*.*?\*/|//.*?\n)*#include "([^"]+)"', re.S)
begun = {source / "src" / found[1] for path in source.glob("src/**/*.c") if (found := begins.match(path.read_text()))}
for compiler in [c for c in COMPILERS["c"] if shutil.which(c)][: None if long else 1]:
    for header in [h for h in parsed if h not in of_cuda and (long or h not in begun)]:
        more = given.get(header.relative_to(source / "src").parts[0], [])
        run = subprocess.run([compiler, "-x", "c", "-std=gnu17", "-fsyntax-only", "-w", "-Werror=implicit-function-declaration",
                              "-DFL_ISA=portable", *include, *internal, *more, header], capture_output=True, text=True)
        if run.returncode:
            failures.append(f"{header.relative_to(source)} alone, {compiler}: {run.stderr.strip().splitlines()[0]}")
headers = sorted({h.name for folder in (source / "include", generated) for h in folder.glob("flexlab/*.h")})
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    subprocess.run(["cc", "-c", source / "tests/tree/consumer/namesakes.c", "-o", folder / "namesakes.o"], check=True)
    there = {suffix: [c for c in compilers if shutil.which(c)] for suffix, compilers in COMPILERS.items()}
    chosen = {"c": there["c"][:1], "cpp": there["cpp"][-1:]}  # gcc, and clang++ where it is
    for suffix, compilers in there.items():
        for compiler in compilers:
            used.append(compiler)
            base = [compiler, "-std=c17" if suffix == "c" else "-std=c++17", *warnings, *include]
            for header in headers if long or compiler in chosen[suffix] else []:
                one = folder / f"one.{suffix}"
                one.write_text(f'#include "flexlab/{header}"\n#include "flexlab/{header}"\nextern int more;\n')
                wrapper = NEEDED_BY.get(header, {}).get(suffix)
                # A wrapper names libraries; the C++ bindings of old are not free of warnings.
                quiet = ["-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"] if wrapper else []
                quiet += ["-Wno-unused-command-line-argument"] if "clang" in compiler else []
                if wrapper and not shutil.which(wrapper):
                    continue
                of_wrapper = {name: compiler for name in ("OMPI_CC", "OMPI_CXX", "MPICH_CC", "MPICH_CXX")}
                run = subprocess.run([wrapper or compiler, *base[1:], "-fsyntax-only", *quiet, one], capture_output=True, text=True,
                                     env={**os.environ, **of_wrapper})
                if run.returncode:
                    failures.append(f"{header} alone, {compiler}: {run.stderr.strip().splitlines()[0]}")
            if "run" not in sys.argv[3:]:
                continue
            program = folder / f"program-{compiler}"
            run = subprocess.run([*base, source / f"tests/tree/consumer/consumer.{suffix}", folder / "namesakes.o", f"-L{build}",
                                  "-lflexlab", f"-Wl,-rpath,{build}", "-o", program], capture_output=True, text=True)
            if run.returncode:
                failures.append(f"consumer.{suffix}, {compiler}: {run.stderr.strip()}")
                continue
            run = subprocess.run([program], capture_output=True, text=True)
            outputs.add(run.stdout)
            if run.returncode:
                failures.append(f"consumer.{suffix}, {compiler}: exit status {run.returncode}: {run.stderr.strip()}")

if len(outputs) > 1:
    failures.append(f"the programs differ: {sorted(outputs)}")
print("\n".join(failures) if failures else f"{len(headers)} headers, {len(parsed)} of src by {', '.join(used)}: as they should be\n" + "".join(outputs))
sys.exit(bool(failures))
