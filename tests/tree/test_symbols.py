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

# The names that the headers declare. Each header includes api.h itself, after its guard, which names its symbols.
declared = set()
for header in sorted(source.glob("include/flexlab/*.h")):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    names = [re.search(r"(\w+)\s*\(", declaration)[1] for declaration in re.findall(r"^FLEXLAB_API\b[^;]*;", text, re.M)]
    guard = f"FLEXLAB_{header.stem.upper()}_H"
    if names and not re.search(rf'#define {guard}\n.*?#include "flexlab/api.h"', text, re.S):
        failures.append(f'{header.name}: expected #define {guard}, and behind it #include "flexlab/api.h"')
    declared |= {name if name.startswith("flexlab_") else f"flexlab_{name}" for name in names}
rows = re.sub(r"/\*.*?\*/", "", (source / "include/flexlab/ops.def").read_text(), flags=re.S)
declared |= {f"flexlab_tensor_{name}" for name in re.findall(r"^FL_(?:MAP|REAL)\w+\(\d+, \w+, (\w+),", rows, re.M)}

# The symbols that the linker sees. Sanitizers and coverage add symbols of their own.
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
