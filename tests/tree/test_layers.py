#!/usr/bin/env python3
"""Includes go one way, between folders and between the levels of a large one, and instruction-set flags stay in kernel
files.
usage: test_layers.py SOURCE_DIR BUILD_DIR"""
import json
import pathlib
import re
import sys

source, build = map(pathlib.Path, sys.argv[1:3])
failures = []

# Who may include whose internal headers; everybody may include the public ones.
ALLOWED = {
    "core": {"core", "autoflex"},
    "autoflex": {"autoflex"},
    "float": {"core", "gemm", "tensorcore", "float"},
    "tensorcore": {"core", "gemm", "tensorcore"},
    "gemm": {"core", "gemm"},
    "blocks": {"core", "gemm", "blocks"},
    "gpu": {"gpu", "core", "autoflex", "flex", "gemm", "minifloat", "blocks"},
    "int8": {"int8", "core", "gemm"},
    "program": {"program", "core", "int8", "safetensors"},
    "safetensors": {"safetensors", "core"},
    "nn": {"nn", "core", "safetensors", "program", "group"},
    "group": {"group", "core"},
    "data": {"data", "core"},
}
EVERYWHERE = {"autoflex/both.h", "autoflex/write_rules.h", "autoflex/autoflex_numbers.h"}  # compiled for the processor and for devices
REGISTRY = {("src/core/table/device_kinds.c", "gpu/gpu_device.h")}  # the table of backends (test_links.py)
COMPILED_TWICE = {"core/base/files.h", "core/base/shown.h"}  # in the library and in the program: one rule for opening, replacing and showing files
SERVICES = {  # what nn, data and safetensors may use of core
    "base/fail.h", "base/files.h", "base/hash.h", "base/match.h", "base/memory.h", "base/parallel.h", "base/shown.h", "base/text.h", "base/verbose.h", "arithmetic/elementary.h", "arithmetic/philox.h",
    "tensor/gather.h", "values/host_copies.h", "values/slot_copies.h", "values/tensor_state.h", "queue/call_memory.h", "queue/fetch.h", "queue/part_write.h", "tensor/sums.h", "ops/norms/part_norm.h", "queue/recording.h", "queue/sampled.h", "queue/skipping.h", "rows/describe_there.h", "table/block_classes.h"}
INT8_USES = {  # the cap on instruction sets, exp, tiles; no tensors
    "core": {"base/cpu.h", "base/fail.h", "base/memory.h", "base/parallel.h", "table/format.h", "arithmetic/elementary.h"},
    "gemm": {"gemm_amx.h"}}
# The levels of a folder, lowest first: no file includes one of a higher level (docs/decisions/0027-subfolders.md) but for the exceptions,
# each with its reason; largest: files in a subfolder.
TREES = {
    "src/core": {
        "prefix": "core/", "largest": 35,
        "levels": [{"base", "arithmetic"}, {"table"}, {"tensor"}, {"queue"}, {"values"},
                   {"reference", "real", "rows", "ops"}],
        "families": "ops",  # with a folder for each family of operations
        "exceptions": {
            ("arithmetic/draws.h", "table/kernel.h"),  # struct fl_rounding
            ("queue/run.c", "ops/optimisers/optimiser_rules.h")}},  # the factors that an operation may have
    "src/nn": {
        "prefix": "nn/", "largest": 20,
        "levels": [{"graph"}, {"shards"}, {"ranks"}, {"layers", "step"}, {"policies"}, {"compile"}, {"models", "telemetry", "checkpoints"}, {"training", "programs"}],
        "exceptions": set()},
    "tools": {
        "prefix": "", "largest": 20, "exceptions": set(),
        "levels": [{"base"}, {"options", "readers"}, {"results"}, {"runs", "figures", "report"}, {"commands", "facts", "programs", "replay", "transpile", "what_if"}],
        "page": "page"},  # the sources of the report's page
}
folders = {p.name for p in (source / "src").iterdir() if p.is_dir()}
formats = {p.parent.name for p in source.glob("src/*/format.def")}
for folder in sorted(folders):
    allowed = ALLOWED.get(folder, {folder, "core", "float", "gemm"})
    for path in sorted((source / "src" / folder).rglob("*")):
        if path.suffix not in {".c", ".h", ".inc", ".cu"}:
            continue
        for include in re.findall(r'#\s*include\s+"([^"]+)"', path.read_text()):
            parts = include.split("/")
            where = f"{path.relative_to(source)} includes {include}"
            if parts[0] == "flexlab":
                if folder == "autoflex" and parts[1] not in {"autoflex.h", "status.h"}:
                    failures.append(f"{where}: autoflex knows nothing of tensors")
                if folder in formats | {"core", "float", "gemm", "int8", "safetensors"} and parts[1] in {"nn.h", "data.h", "flexlab.h"}:
                    failures.append(f"{where}: expected includes in the other direction only")
            elif parts[0] in folders and len(parts) > 1 and include not in EVERYWHERE:
                if parts[0] not in allowed and include != "core/base/fail.h" and (str(path.relative_to(source)), include) not in REGISTRY:  # every folder reports failures by it
                    failures.append(f"{where}: {folder} may include {', '.join(sorted(allowed))}")
                if folder == "int8" and parts[0] in INT8_USES and "/".join(parts[1:]) not in INT8_USES[parts[0]]:
                    failures.append(f"{where}: int8 works on plain numbers: {INT8_USES[parts[0]]}")
                if folder in {"nn", "data", "safetensors"} and parts[0] == "core" and "/".join(parts[1:]) not in SERVICES:
                    failures.append(f"{where}: {folder} may include only public headers of core")
for tree, rule in TREES.items():
    level = {folder: number for number, names in enumerate(rule["levels"]) for folder in names}
    used, found = set(), set()
    for path in sorted((source / tree).iterdir()):
        if path.is_file():
            if path.suffix in {".c", ".h", ".inc"} or tree != "tools":  # scripts lie beside the subfolders
                failures.append(f"{path.relative_to(source)} lies in no subfolder")
        elif path.name == rule.get("page"):
            if sources := [p.name for p in path.rglob("*") if p.suffix in {".c", ".h", ".inc"}]:
                failures.append(f"{path.relative_to(source)} has {', '.join(sources)}, expected scripts and styles alone")
        elif path.name == "__pycache__":  # of Python, which whoever imports a script leaves there
            continue
        elif path.name not in level:
            failures.append(f"{path.relative_to(source)} has no level, expected one of {', '.join(sorted(level))}")
        else:
            found.add(path.name)
            found |= {f"{path.name}/{p.name}" for p in path.iterdir() if p.is_dir() and f"{path.name}/{p.name}" in level}
    failures += [f"{tree}/{folder} is not there" for folder in sorted(set(level) - found)]
    for folder in sorted(found):
        files = sorted((source / tree / folder).iterdir())
        if folder == rule.get("families"):
            files = sorted(f for p in files for f in (p.iterdir() if p.is_dir() else [p]))
        elif len(files) > rule["largest"]:
            failures.append(f"{tree}/{folder} has {len(files)} files, expected at most {rule['largest']}")
        for path in files:
            name = path.relative_to(source / tree).as_posix()
            if path.is_dir():
                if name not in level:
                    failures.append(f"{tree}/{name} is a folder within a subfolder")
                continue
            for include in re.findall(rf'#\s*include\s+"{rule["prefix"]}(\w+/[^"]+)"', path.read_text()):
                other = include.rpartition("/")[0]  # a folder, or a folder within one
                if (name, include) in rule["exceptions"]:
                    used.add((name, include))
                elif level.get(other, 0) > level[folder]:
                    failures.append(f"{tree}/{name} includes {rule['prefix']}{include}: {other} is of a higher level than {folder}")
    failures += [f"{tree}/{name} no longer includes {include}: remove the exception" for name, include in sorted(rule["exceptions"] - used)]
for folder in ("tools", "examples", "python"):
    for path in sorted((source / folder).rglob("*.[ch]")):
        for include in re.findall(r'#\s*include\s+"([^"]+)"', path.read_text()):
            if include.split("/")[0] in folders and (include not in COMPILED_TWICE or folder != "tools"):
                failures.append(f"{path.relative_to(source)} includes {include}: only public headers")

# Tests lie in folders.
failures += [f"tests/{p.name} lies in no folder" for p in sorted((source / "tests").iterdir())
             if p.is_file() and p.name not in {"CMakeLists.txt", "golden.txt"}]

# Instruction sets in kernel files alone.
for entry in json.loads((build / "compile_commands.json").read_text()):
    file = pathlib.Path(entry["file"])
    if file.parent.name == "ptx":
        continue  # what plays a GPU in tests
    if re.search(r"\s-m(avx|fma|f16c|march|sse4|bmi)", entry["command"]) and not re.search(r"_(avx2|avx2_vnni|avx512bw|avx512|avx512_fast|avx512_amx|avx512_amx_fast)\.c$", file.name):
        failures.append(f"{file.name} is compiled with instruction-set flags")

print("\n".join(failures) if failures else "includes and instruction-set flags are as required")
sys.exit(bool(failures))
