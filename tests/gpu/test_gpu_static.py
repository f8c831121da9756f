#!/usr/bin/env python3
"""What ptxas made of the kernels: no FMA and no flushing that the PTX does not explain; as many tensor-core products,
asynchronous copies, matrix loads and barriers as the PTX has; and no more registers, stack and instructions of inner loops
than gpu_static.tsv says, which is of one version of nvcc. Kernels are told apart by their names and template arguments, of
all folders together. cuobjdump is that of FLEXLAB_CUOBJDUMP, beside nvcc, in PATH, or of PyPI's nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm.
usage: test_gpu_static.py FOLDER_OF_OBJECTS NVCC [--write]        --write: the baseline anew. Exit status 77: no cuobjdump, or no
machine code of sm_80 and sm_90"""
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

folder, nvcc = map(pathlib.Path, sys.argv[1:3])
BASELINE = pathlib.Path(__file__).with_name("gpu_static.tsv")
COLUMNS = ["registers sm_80", "registers sm_90", "stack", "inner loop", "IMMA", "HMMA", "LDSM", "LDGSTS", "BAR", "FFMA", "DFMA"]
wheels = [p for base in sys.path for p in pathlib.Path(base or ".").glob("nvidia/*/bin/cuobjdump")]
tool = os.environ.get("FLEXLAB_CUOBJDUMP") or next(
    (str(p) for p in [nvcc.resolve().with_name("cuobjdump"), *wheels] if p.exists()), shutil.which("cuobjdump"))
if not tool:
    print("skipped: no cuobjdump beside nvcc, in PATH or in Python's packages (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)")
    sys.exit(77)
os.environ["PATH"] = os.path.dirname(tool) + os.pathsep + os.environ["PATH"]  # nvdisasm


def run(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def ptx_functions(text):
    """Name: (is a kernel, its text)."""
    heads = list(re.finditer(r"^(?:\.visible |\.weak )?\.(entry|func)\s*(?:\([^)]*\)\s*)?(\S+?)\s*\(", text, re.M))
    found = {}
    for head, end in zip(heads, [*(next.start() for next in heads[1:]), len(text)]):
        body = text[head.end():end]
        if "\n{" in body:  # not a declaration
            found[head[2]] = (head[1] == "entry", body)
    return found


def inner_loop(code):
    """The opcodes of the innermost loop with most products, or the longest; code: (address, opcode, target)."""
    best, latest = [], -1
    for end, _, target in code:
        if target is None or target > end:
            continue
        if target >= latest:
            loop = [opcode for at, opcode, _ in code if target <= at <= end]
            best = max(best, loop, key=lambda l: (sum(o.startswith(("IMMA", "HMMA", "FFMA", "DFMA")) for o in l), len(l)))
        latest = max(latest, target)
    return best


bad, kernels, rows, made_for = [], 0, {}, set()
for path in sorted(folder.glob("gpu_*.o")):
    functions = ptx_functions(run(tool, "-ptx", path))
    plain = dict(zip(functions, run("c++filt", *functions).splitlines()))
    use, arch = {}, None
    for line in run(tool, "-res-usage", path).splitlines():
        if line.startswith("arch = "):
            arch = line[7:]
        elif " Function " in line:
            name = line.split()[1].rstrip(":")
        elif " REG:" in line:
            use[arch, name] = [int(re.search(word + r":(\d+)", line)[1]) for word in ("REG", "STACK")]
    made_for |= {arch for arch, _ in use}
    if use and not {"sm_80", "sm_90"} <= {arch for arch, _ in use}:
        print(f"skipped: {path.name} has machine code of {sorted({arch for arch, _ in use})}, not of sm_80 and sm_90 (FLEXLAB_CUDA_ARCHITECTURES)")
        sys.exit(77)
    for part in re.split(r"\n\t\tFunction : ", run(tool, "-sass", "-arch", "sm_90", path))[1:]:
        name = part.split("\n", 1)[0]
        code = [(int(at, 16), opcode, int(target, 16) if target else None) for at, opcode, target in
                re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ )?([A-Z][\w.]*)(?:[^;\n]*?\b0x([0-9a-f]+) ;|)", part)]
        code = [(at, opcode, target if opcode.startswith("BRA") else None) for at, opcode, target in code]
        if not functions.get(name, (False,))[0]:
            continue
        kernels += 1
        text, seen = functions[name][1], {name}
        while calls := {c for c in re.findall(r"\b_Z\w+", text) if c in functions and c not in seen}:
            seen |= calls
            text += "".join(functions[c][1] for c in calls)
        short = re.sub(r"\(anonymous namespace\)::|^void ", "", plain[name])
        short = re.sub(r"\((?!.*>).*", "", short)
        in_ptx = lambda pattern: len(re.findall(pattern, text))
        made = lambda word: sum(opcode.startswith(word) for _, opcode, _ in code)

        def expect(right, what, *figures):
            if not right:
                bad.append(f"{path.stem}: {short}: {what}: {', '.join(map(str, figures))}")

        expect(in_ptx(r"(fma|div|sqrt|rcp)\.rn\.f64|(div|rem)\.[su]64|cvt\.rn\.f..\.[us]64") or not made("DFMA"), "DFMA without a reason in the PTX", made("DFMA"))
        expect(in_ptx(r"fma\.rn\.f32|(rcp|div|sqrt)\.|rem\.") or not made("FFMA"), "FFMA without a reason in the PTX", made("FFMA"))
        for pattern, word in ((r"mma\.sync", ("IMMA", "HMMA")), (r"cp\.async\.cg", "LDGSTS"), (r"\bldmatrix", "LDSM")):
            expect(in_ptx(pattern) == made(word), f"{pattern} of the PTX and {word}", in_ptx(pattern), made(word))
        expect(in_ptx(r"bar\.sync") <= made("BAR.SYNC"), "bar.sync of the PTX and BAR.SYNC", in_ptx(r"bar\.sync"), made("BAR.SYNC"))
        loop = inner_loop(code)
        row = [use.get(("sm_80", name), [0, 0])[0], use["sm_90", name][0], max(use.get((a, name), [0, 0])[1] for a in ("sm_80", "sm_90")),
               len(loop), *(sum(o.startswith(word) for o in loop) for word in COLUMNS[4:])]
        rows[short] = list(map(max, rows.get(short, row), row))

if not made_for:
    print("skipped: the objects have PTX alone (FLEXLAB_CUDA_ARCHITECTURES)")
    sys.exit(77)
version = re.search(r"release ([\d.]+)", run(nvcc, "--version"))[1]
if sys.argv[3:] == ["--write"]:
    BASELINE.write_text("\t".join([f"nvcc {version}", *COLUMNS]) + "\n" + "".join("\t".join([k, *map(str, v)]) + "\n" for k, v in sorted(rows.items())))
head, *lines = [line.split("\t") for line in BASELINE.read_text().splitlines()]
baseline = {key: list(map(int, values)) for key, *values in lines}
if head[0] != f"nvcc {version}":
    print(f"the baseline is of {head[0]}, this is {version}: registers and loops are not compared")
else:
    for key, row in rows.items():
        for column, now, before in zip(COLUMNS, row, baseline.get(key, [0] * len(COLUMNS))):
            if now > before and (column != "inner loop" or now > 1.02 * before):
                bad.append(f"{key}: {column}: {now}, the baseline has {before if key in baseline else 'no such kernel'}")
print("\n".join(bad))
print(f"{kernels} kernels of {len(rows)} names, {len(bad)} findings")
sys.exit(bool(bad) or not kernels)
