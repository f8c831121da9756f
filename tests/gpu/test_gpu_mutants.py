#!/usr/bin/env python3
"""Every barrier and every wait for copies in the kernels of src/gpu is needed, and the stand-in notices when one is missing:
each is taken out in turn, the kernels are compiled once more with every load and store looked at, and test_gpu_ops must
then fail. Minutes: label long.
usage: test_gpu_mutants.py SOURCE_DIR BUILD_DIR WORK_DIR"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

source, build, work = map(pathlib.Path, sys.argv[1:4])
MUTANT = re.compile(r"__syncthreads\(\);|gpu_cp_wait<[^;]*;")
entries = json.loads((build / "compile_commands.json").read_text())
checked = [e for e in entries if "stand_in_checked_kernels" in e["command"]]
runtime = [e for e in entries if "stand_in_objects" in e["command"]]
if not checked:
    print("no C++ compiler: there is no stand-in")
    sys.exit(77)


def object_of(entry):
    words = shlex.split(entry["command"])
    return pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]


work.mkdir(parents=True, exist_ok=True)
tree = work / "src"
shutil.rmtree(tree, ignore_errors=True)
shutil.copytree(source / "src", tree)
found = [(path, m) for path in sorted((tree / "gpu").glob("gpu_*.*")) if path.suffix in {".inc", ".cu", ".h"}
         for m in MUTANT.finditer(path.read_text())]
kernel = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
missed = 0
for path, m in found:
    text = path.read_text()
    name = (kernel.findall(text[: m.start()]) or ["?"])[-1]
    where = f"{path.name}:{text.count(chr(10), 0, m.start()) + 1} {m.group().rstrip(';')} in {name}"
    path.write_text(text[: m.start()] + " " * len(m.group()) + text[m.end():])
    objects = []
    for entry in checked:
        flex = "flex" in pathlib.Path(entry["file"]).name
        if not flex:  # kernels with barriers are those of shared exponents
            objects.append(object_of(entry))
            continue
        out = work / "mutant.o"
        words = [w.replace(str(source / "src"), str(tree)) if w.startswith("-I") else w for w in shlex.split(entry["command"])]
        words[words.index("-o") + 1] = str(out)
        subprocess.run(words, cwd=entry["directory"], check=True)
        objects.append(out)
    library = work / "libmutant.so"
    subprocess.run(["c++", "-shared", "-o", library, *objects, *map(object_of, runtime), "-lpthread", "-ldl"], check=True)
    path.write_text(text)
    noticed = []
    for operation in ("matmul", "conv2d", "conv2d_weight_grad"):
        run = subprocess.run([build / "tests/test_gpu_ops", "3", "8", operation, "flex16+5"], capture_output=True, text=True, env={
            **os.environ, "FLEXLAB_REQUIRE_GPU": "1", "FLEXLAB_STAND_IN_SEED": "3", "FLEXLAB_CUDA_LIBRARY": str(library)})
        if run.returncode:
            noticed.append(operation)
    print(where, "- noticed by", ", ".join(noticed) if noticed else "NOBODY", flush=True)
    missed += not noticed
print(f"{len(found)} mutants, {missed} not noticed")
sys.exit(bool(missed) or not found)
