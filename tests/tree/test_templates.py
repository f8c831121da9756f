#!/usr/bin/env python3
"""Templates (src/**/*.inc): each says at its head what it expects and what it gives, and has what it says it gives. Symbols
of what is compiled for each instruction set end with it, so that profilers and debuggers can tell them apart.
usage: test_templates.py SOURCE_DIR BUILD_DIR"""
import pathlib
import re
import subprocess
import sys

source, build = map(pathlib.Path, sys.argv[1:3])
failures = []
WORD = r"[A-Za-z_]\w*(?:\(\w+\))?"  # a name, or one pasted by a macro: NAME(largest)

templates = sorted(source.glob("src/**/*.inc"))
for path in templates:
    where = path.relative_to(source)
    text = path.read_text()
    head, _, body = text.partition("*/")
    head = re.sub(r"\n \* ?", " ", head)
    match = re.match(rf"/\* {re.escape(path.name)} - \S.* Expects: \S.* Gives: (.*?)\.(\s|$)", head, re.S)
    if not match:
        failures.append(f"{where}: its head is not 'name - what it is ... Expects: ... Gives: name, name.'")
        continue
    for name in match.group(1).split(","):
        name = name.strip()
        if not re.fullmatch(WORD, name):
            failures.append(f"{where}: gives '{name}', which is no name")
        elif not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", body):
            failures.append(f"{where}: gives {name}, which it does not have")

# Local symbols of the objects of an instruction set. A function that is inline may remain where nothing is optimised.
ENDING = r"_(portable|avx2|avx512bw|avx512|avx512_fast|avx512_amx|avx512_amx_fast)"
inline, pasted = set(), set()
for path in [*templates, *source.glob("src/**/*.h")]:
    text = re.sub(r"__attribute__\(\(.*?\)\)", "", path.read_text()).replace("FL_BOTH ", "static inline ")
    inline |= set(re.findall(r"\bstatic inline\b[\w\s*]*?(\w+)\((?!\w+\)\()", text))
    pasted |= set(re.findall(r"\bstatic inline\b[\w\s*()]*?NAME\((\w+)\)\(", text))
objects = sorted((build / "CMakeFiles/flexlab_objects.dir").rglob("*.o")) or sorted((build / "CMakeFiles/flexlab_objects.dir").rglob("*.obj"))
listing = subprocess.run(["nm", "-A", *objects], capture_output=True, text=True, check=True).stdout
seen = 0
for line in listing.splitlines():
    match = re.match(rf"\S*?(\w+?{ENDING})\.c\.o(?:bj)?:\S* [tT] (\S+)$", line)
    if not match:
        continue
    seen += 1
    symbol = match.group(3).split(".")[0]  # clones: name.part.0
    if symbol.endswith("_" + match.group(2)) or symbol in inline or symbol.startswith(("_", "asan", "ubsan", "tsan")):
        continue
    if not any(f"_{name}_" in symbol for name in pasted):
        failures.append(f"{match.group(1)}: symbol {match.group(3)} does not end with the instruction set")
if not seen:
    failures.append("no symbol of an instruction set found")

print("\n".join(failures) if failures else f"{len(templates)} templates, {seen} symbols: as they should be")
sys.exit(bool(failures))
