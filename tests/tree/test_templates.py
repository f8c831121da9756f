#!/usr/bin/env python3
"""Templates (*.inc, compiled several times with other definitions): each says at its head what it expects and what it gives,
and has what it says it gives; so has each header that says what it gives. Functions
of what is compiled for each instruction set have it in their symbols, so that profilers and debuggers can tell them apart.
usage: test_templates.py SOURCE_DIR BUILD_DIR [plain]
"plain": a build that leaves the symbols of local functions as they are (cmake/library.cmake)."""
import pathlib
import re
import subprocess
import sys

source, build = map(pathlib.Path, sys.argv[1:3])
plain = sys.argv[3:] == ["plain"]
failures = []
WORD = r"[A-Za-z_]\w*(?:\(\w+\))?"  # a name, or one pasted by a macro: NAME(largest), FL_FOR_ISA(fl_flex)

FOLDERS = ("src", "tests", "tools", "bench", "examples")
templates = [p for folder in FOLDERS for p in sorted((source / folder).rglob("*.inc"))]
saying = [p for p in sorted(source.glob("src/**/*.h")) if " Gives: " in p.read_text().partition("*/")[0]]
for path in templates + saying:
    where = path.relative_to(source)
    text = path.read_text()
    head, _, body = text.partition("*/")
    head = re.sub(r"\n \* ?", " ", head)
    expects = r" Expects: \S.*" if path.suffix == ".inc" else ""
    match = re.match(rf"/\* {re.escape(path.name)} - \S.*{expects} Gives: (.*?)\.(\s|$)", head, re.S)
    if not match:
        failures.append(f"{where}: its head is not 'name - what it is ...{' Expects: ...' if expects else ''} Gives: name, name.'")
        continue
    for name in match.group(1).split(","):
        name = name.strip()
        if not re.fullmatch(WORD, name):
            failures.append(f"{where}: gives '{name}', which is no name")
        elif not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", body):
            failures.append(f"{where}: gives {name}, which it does not have")

# Functions of the objects of an instruction set: local ones have the object's name (fold.flex_avx2), others end with the set.
# Compilers have some of their own, which begin with _.
SETS = "portable|avx2_vnni|avx2|avx512bw|avx512|avx512_fast|avx512_amx|avx512_amx_fast"
objects = [p for p in sorted((build / "CMakeFiles/flexlab_objects.dir").rglob("*.o*")) if re.search(rf"_({SETS})\.c\.o(bj)?$", p.name)]
seen = 0
for path in objects:
    name = path.name.split(".")[0]
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    for kind, symbol in re.findall(r"^\S+ ([tT]) ([^_]\S*)$", listing, re.M):
        seen += 1
        if kind == "T" and not re.search(rf"_({SETS})$", symbol):
            failures.append(f"{name}: {symbol} does not end with an instruction set")
        if kind == "t" and not symbol.endswith("." + name) and not plain:
            failures.append(f"{name}: {symbol} does not end with .{name}")
if not seen:
    failures.append("no function of an instruction set found")

print("\n".join(failures) if failures else f"{len(templates)} templates, {seen} functions: as they should be")
sys.exit(bool(failures))
