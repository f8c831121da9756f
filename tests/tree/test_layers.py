#!/usr/bin/env python3
"""The house rules that a listing can show: includes go one way, between folders and between the rooms of a large one;
instruction-set flags stay in kernel files.
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
    "float": {"core", "gemm", "float"},
    "gemm": {"core", "gemm"},
    "gpu": {"gpu", "core", "autoflex", "gemm"},
    "int8": {"int8", "core", "gemm"},
    "safetensors": {"safetensors", "core"},
    "nn": {"nn", "core", "safetensors"},
    "data": {"data", "core"},
}
EVERYWHERE = {"autoflex/both.h", "autoflex/write_rules.h", "autoflex/autoflex_numbers.h"}  # what a processor and a device compile alike says so by it
REGISTRY = {("src/core/table/device_kinds.c", "gpu/gpu_device.h")}  # the table of backends (test_links.py)
COMPILED_TWICE = {"core/base/files.h", "core/base/shown.h"}  # the library and the program: one rule for what is opened, replaced, shown
SERVICES = {  # what nn, data and safetensors may use of core
    "base/fail.h", "base/files.h", "base/match.h", "base/memory.h", "base/parallel.h", "base/shown.h", "base/text.h", "arithmetic/elementary.h", "arithmetic/philox.h",
    "tensor/gather.h", "values/slot_copies.h", "values/tensor_state.h", "queue/call_memory.h", "queue/fetch.h", "queue/recording.h", "queue/sampled.h"}
INT8_USES = {  # the cap on instruction sets, exp, tiles; no tensors
    "core": {"base/cpu.h", "base/fail.h", "base/memory.h", "base/parallel.h", "table/format.h", "arithmetic/elementary.h"},
    "gemm": {"gemm_amx.h"}}
# The rooms of a folder by floors: nobody includes what stands above (docs/decisions/0027-rooms.md). Stairs are the few who do, and
# what for; largest: files in a room.
HOUSES = {
    "src/core": {
        "prefix": "core/", "largest": 35,
        "floors": [{"base", "arithmetic"}, {"table"}, {"tensor"}, {"queue"}, {"values"},
                   {"reference", "real", "rows", "ops"}],
        "families": "ops",  # with a folder for each family of operations
        "stairs": {
            ("arithmetic/draws.h", "table/kernel.h"),  # struct fl_rounding
            ("queue/run.c", "ops/optimisers/optimiser_rules.h")}},  # which factors a call may have
    "src/nn": {
        "prefix": "nn/", "largest": 20,
        "floors": [{"graph"}, {"layers", "step"}, {"policies"}, {"compile"}, {"models", "telemetry", "checkpoints"}, {"training"}],
        "stairs": set()},
    "tools": {
        "prefix": "", "largest": 20, "stairs": set(),
        "floors": [{"base"}, {"options", "readers"}, {"results"}, {"runs", "figures", "report"}, {"commands", "facts", "replay"}],
        "page": "page"},  # what a browser reads
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
                    failures.append(f"{where}: the arrow goes the other way")
            elif parts[0] in folders and len(parts) > 1 and include not in EVERYWHERE:
                if parts[0] not in allowed and include != "core/base/fail.h" and (str(path.relative_to(source)), include) not in REGISTRY:  # how everybody tells of a failure
                    failures.append(f"{where}: {folder} may include {', '.join(sorted(allowed))}")
                if folder == "int8" and parts[0] in INT8_USES and "/".join(parts[1:]) not in INT8_USES[parts[0]]:
                    failures.append(f"{where}: int8 works on plain numbers: {INT8_USES[parts[0]]}")
                if folder in {"nn", "data", "safetensors"} and parts[0] == "core" and "/".join(parts[1:]) not in SERVICES:
                    failures.append(f"{where}: {folder} works on the public headers")
for house, rule in HOUSES.items():
    floor = {room: number for number, rooms in enumerate(rule["floors"]) for room in rooms}
    used, found = set(), set()
    for path in sorted((source / house).iterdir()):
        if path.is_file():
            if path.suffix in {".c", ".h", ".inc"} or house != "tools":  # scripts lie beside the rooms
                failures.append(f"{path.relative_to(source)} lies in no room")
        elif path.name == rule.get("page"):
            if sources := [p.name for p in path.rglob("*") if p.suffix in {".c", ".h", ".inc"}]:
                failures.append(f"{path.relative_to(source)} has {', '.join(sources)}, expected scripts and styles alone")
        elif path.name not in floor:
            failures.append(f"{path.relative_to(source)} is no room: {', '.join(sorted(floor))}")
        else:
            found.add(path.name)
            found |= {f"{path.name}/{p.name}" for p in path.iterdir() if p.is_dir() and f"{path.name}/{p.name}" in floor}
    failures += [f"{house}/{room} is not there" for room in sorted(set(floor) - found)]
    for room in sorted(found):
        files = sorted((source / house / room).iterdir())
        if room == rule.get("families"):
            files = sorted(f for p in files for f in (p.iterdir() if p.is_dir() else [p]))
        elif len(files) > rule["largest"]:
            failures.append(f"{house}/{room} has {len(files)} files, expected at most {rule['largest']}")
        for path in files:
            name = path.relative_to(source / house).as_posix()
            if path.is_dir():
                if name not in floor:
                    failures.append(f"{house}/{name} is a folder within a room")
                continue
            for include in re.findall(rf'#\s*include\s+"{rule["prefix"]}(\w+/[^"]+)"', path.read_text()):
                other = include.rpartition("/")[0]  # a room, or a room within one
                if (name, include) in rule["stairs"]:
                    used.add((name, include))
                elif floor.get(other, 0) > floor[room]:
                    failures.append(f"{house}/{name} includes {rule['prefix']}{include}: {other} stands above {room}")
    failures += [f"{house}/{name} no longer includes {include}: take it out of its stairs" for name, include in sorted(rule["stairs"] - used)]
for folder in ("tools", "examples"):
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
    if file.suffix == ".cu" or "stand_in" in file.parts:
        continue  # what plays a GPU in tests
    if re.search(r"\s-m(avx|fma|f16c|march|sse4|bmi)", entry["command"]) and not re.search(r"_(avx2|avx512bw|avx512|avx512_fast|avx512_amx|avx512_amx_fast)\.c$", file.name):
        failures.append(f"{file.name} is compiled with instruction-set flags")

print("\n".join(failures) if failures else "includes, flags: as they should be")
sys.exit(bool(failures))
