#!/usr/bin/env python3
"""Everything that docs/architecture.md names exists: files by their name, functions and types in the sources. The page names
every folder of src/, and the folders in each of those that have some. Each function of its table "Where is ...?" is defined in
a file of the same line.
usage: test_architecture.py SOURCE_DIR"""
import pathlib
import re
import sys

source = pathlib.Path(sys.argv[1])
files = [p for folder in ("include", "src", "tests", "tools", "bench", "cmake", "examples", "docs") for p in (source / folder).rglob("*")
         if p.is_file()]
names = {p.name for p in files} | {"formats.h"}  # generated
text = "\n".join(p.read_text(errors="replace") for p in files if p.suffix in {".c", ".h", ".inc", ".def", ".py"})
words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", text))
failures, seen = [], 0

page = source / "docs/architecture.md"
for folder in (source / "src").iterdir():
    if not re.search(rf"(?<![\w-]){folder.name}/", page.read_text()):
        failures.append(f"{page.name} does not say what {folder.relative_to(source)}/ is")
for house in ("src/core", "src/nn", "tools"):
    listed = re.search(rf"^{house}/.*\n((?: .*\n)*)", page.read_text(), re.M)
    rooms = set(re.findall(r"^    (\w+)/", listed[1] if listed else "", re.M))
    for name in sorted(rooms ^ {p.name for p in (source / house).iterdir() if p.is_dir() and p.name != "__pycache__"}):
        failures.append(f"{page.name} says what {house}/{name}/ is, which is not there" if name in rooms else
                        f"{page.name} does not say what {house}/{name}/ is")
prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
for code in re.findall(r"`([^`]+)`", prose):
    for file in re.findall(r"[\w*./-]+\.(?:c|h|inc|py|txt|def|md)\b", code):
        seen += 1
        pattern = re.compile(re.escape(file.split("/")[-1]).replace(r"\*", ".*") + "$")
        if not any(pattern.match(n) for n in names) and not file.startswith("_"):
            failures.append(f"{page.name} names the file {file}, which is not there")
    code = re.sub(r"[\w*./-]+\.(?:c|h|inc|py|txt|def|md)\b", "", code)
    for word in re.findall(r"\b(?:fl|tensor|nn|data|autoflex|gemm|run|conv|load|pass|add|test)_\w+", code):
        seen += 1
        if word not in words:
            failures.append(f"{page.name} names {word}, which no source has")
# The walk through a step says in which file a function stands: "`name` (`file`)".
for word, file in re.findall(r"`(\w+)` \(`([\w.]+)`\)", prose.replace("\n", " ")):
    seen += 1
    homes = [p for p in files if p.name == file]
    if not homes or not re.search(rf"\b{word}\b", "".join(p.read_text() for p in homes)):
        failures.append(f"{page.name} says that {word} stands in {file}")

# "Where is ...?": question | functions | files. Files among the functions are looked up above.
section = re.search(r"^## Where is \.\.\.\?\n(.*?)(?=^## )", page.read_text(), re.M | re.S)
questions = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in (section[1] if section else "").splitlines()
             if line.startswith("| ") and not line.startswith(("| question", "| ---"))]
if len(questions) < 12:
    failures.append(f"{page.name} answers {len(questions)} questions, expected 12")
for question, functions, places in questions:
    homes = [source / place for place in re.findall(r"`([^`]+)`", places)]
    for place in (p for p in homes if not p.is_file()):
        failures.append(f"{question} {place.relative_to(source)} is not there")
    sources = {p: p.read_text() for p in homes if p.is_file()}
    named, used = re.findall(r"`(\w+)`", functions), set()
    for function in named:
        seen += 1
        # a line that begins at the margin with the name, plain or in a macro, then parameters and a body
        definition = re.compile(rf"^[A-Za-z_][^\n;]*\b{function}\)?\([^;{{}}]*\)\s*\{{", re.M)
        defining = [p for p, code in sources.items() if definition.search(code)]
        used.update(defining)
        if not defining:
            failures.append(f"{question} {function} is not defined in {places}")
    if not named or set(sources) - used:
        failures.append(f"{question} no function of the line is in {', '.join(p.name for p in set(sources) - used) or places}")

for failure in failures:
    print("FAILED", failure)
print(f"{seen} names of {page.name} looked up")
sys.exit(1 if failures or seen < 60 else 0)
