#!/usr/bin/env python3
"""Every symbol that the libraries define for others begins with flexlab_, and they are those of the public headers, no
fewer. usage: test_symbols.py SOURCE_DIR SHARED_LIBRARY STATIC_LIBRARY [global]
"global": a build that cannot make the internal symbols of the static library local, where fl_... is let pass."""
import pathlib
import re
import subprocess
import sys

source, shared, static = map(pathlib.Path, sys.argv[1:4])
internal_global = sys.argv[4:] == ["global"]
failures = []

# What the headers declare: each exported function names its symbol.
declared = set()
for header in sorted(source.glob("include/flexlab/*.h")):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    text = re.sub(r"^#define FLEXLAB_.*$", "", text, flags=re.M)
    for declaration in re.findall(r"\bFLEXLAB_API\b[^;]*;", text):
        label = re.search(r"FLEXLAB_SYMBOL\((\w+)(##name)?\)", declaration)
        name = re.search(r"(\w+?)(?:##name)?\s*\(", declaration)[1]
        if label and label[1] != name:
            failures.append(f"{header.name}: {name} is labelled {label[1]}")
        if label and label[2]:
            continue  # the operations, below
        declared.add("flexlab_" + label[1] if label else name)
rows = re.sub(r"/\*.*?\*/", "", (source / "include/flexlab/ops.def").read_text(), flags=re.S)
declared |= {f"flexlab_tensor_{name}" for name in re.findall(r"^FL_(?:MAP|REAL)\w+\(\d+, \w+, (\w+),", rows, re.M)}

# What the linker sees. Sanitizers and coverage add symbols of their own.
OTHERS = ("__gcov", "mangle_path", "__llvm_", "__asan", "__ubsan", "__odr_asan", "__tsan", "__sancov", "__start_", "__stop_", "_ZN")
for library, flag in ((shared, "-D"), (static, "-g")):
    symbols = subprocess.run(["nm", flag, "--defined-only", library], capture_output=True, text=True, check=True).stdout
    found = {line.split()[-1].split("@")[0] for line in symbols.splitlines() if len(line.split()) == 3}
    found = {s for s in found if not s.startswith(OTHERS)}
    if library == static and internal_global:
        found = {s for s in found if not s.startswith("fl_")}
    failures += [f"{library.name}: {s} does not begin with flexlab_" for s in sorted(found) if not s.startswith("flexlab_")]
    failures += [f"{library.name}: {s} is declared and not defined" for s in sorted(declared - found)]
    failures += [f"{library.name}: {s} is defined and not declared" for s in sorted(found - declared) if s.startswith("flexlab_")]

print("\n".join(failures) if failures else f"{len(declared)} public symbols, nothing else"
      + (" but fl_... in the static library" if internal_global else ""))
sys.exit(bool(failures))
