#!/usr/bin/env python3
"""The house rules that a listing can show: includes go one way, instruction-set flags stay in kernel files.
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
    "safetensors": {"safetensors", "core"},
    "nn": {"nn", "core", "safetensors"},
    "data": {"data", "core"},
}
EVERYWHERE = {"autoflex/both.h"}  # what a processor and a device compile alike says so by it
SERVICES = {"call_memory.h", "fail.h", "memory.h", "philox.h", "parallel.h", "recording.h", "fetch.h", "gather.h", "slot_copies.h", "elementary.h", "sized.h", "tensor_state.h", "text.h"}  # what nn, data and safetensors may use of core
folders = {p.name for p in (source / "src").iterdir() if p.is_dir()}
formats = {p.parent.name for p in source.glob("src/*/format.def")}
for folder in sorted(folders):
    allowed = ALLOWED.get(folder, {folder, "core", "float", "gemm"})
    for path in sorted((source / "src" / folder).iterdir()):
        if path.suffix not in {".c", ".h", ".inc", ".cu"}:
            continue
        for include in re.findall(r'#\s*include\s+"([^"]+)"', path.read_text()):
            parts = include.split("/")
            where = f"{path.relative_to(source)} includes {include}"
            if parts[0] == "flexlab":
                if folder == "autoflex" and parts[1] not in {"autoflex.h", "status.h"}:
                    failures.append(f"{where}: autoflex knows nothing of tensors")
                if folder in formats | {"core", "float", "gemm", "safetensors"} and parts[1] in {"nn.h", "data.h", "flexlab.h"}:
                    failures.append(f"{where}: the arrow goes the other way")
            elif parts[0] in folders and len(parts) > 1 and include not in EVERYWHERE:
                if parts[0] not in allowed:
                    failures.append(f"{where}: {folder} may include {', '.join(sorted(allowed))}")
                if folder in {"nn", "data", "safetensors"} and parts[0] == "core" and parts[1] not in SERVICES:
                    failures.append(f"{where}: {folder} works on the public headers")
for folder in ("tools", "examples"):
    for path in sorted((source / folder).glob("*.[ch]")):
        for include in re.findall(r'#\s*include\s+"([^"]+)"', path.read_text()):
            if include.split("/")[0] in folders:
                failures.append(f"{path.relative_to(source)} includes {include}: only public headers")

# Instruction sets in kernel files alone.
for entry in json.loads((build / "compile_commands.json").read_text()):
    file = pathlib.Path(entry["file"])
    if file.suffix == ".cu" or "stand_in" in file.parts:
        continue  # what plays a GPU in tests
    if re.search(r"\s-m(avx|fma|f16c|march|sse4|bmi)", entry["command"]) and not re.search(r"_(avx2|avx512bw|avx512|avx512_fast|avx512_amx|avx512_amx_fast)\.c$", file.name):
        failures.append(f"{file.name} is compiled with instruction-set flags")

print("\n".join(failures) if failures else "includes, flags: as they should be")
sys.exit(bool(failures))
