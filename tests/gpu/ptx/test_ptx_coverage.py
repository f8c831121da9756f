#!/usr/bin/env python3
"""The quick suite launches every kernel of the backend, by the reports of the PTX machine. Exit status 77: a test has not
run since the library was built.
usage: test_ptx_coverage.py LIBRARY REPORT..."""
import os
import re
import subprocess
import sys

library, *reports = sys.argv[1:]

late = [r for r in reports if not os.path.exists(r) or os.path.getmtime(r) < os.path.getmtime(library)]
if late:
    print("skipped: not run since the library was built:", *(os.path.basename(r).removesuffix(".report") for r in late))
    sys.exit(77)
launches = {}
for report in reports:
    with open(report, encoding="utf-8") as f:
        for _, name, n, _ in (line.split() for line in f if line.startswith("kernel ")):
            launches[name] = launches.get(name, 0) + int(n)
never = [name for name, n in launches.items() if not n]
try:
    plain = subprocess.run(["c++filt", *never], capture_output=True, text=True, check=True).stdout.splitlines() if never else []
except OSError:
    plain = never
names = sorted({re.sub(r"^.*_gpu_(\w+?)_cu_.*$", r"\1", name) + ": " +
                re.sub(r"\(anonymous namespace\)::|^void |\((?!.*>).*", "", text) for name, text in zip(never, plain)})
print("\n".join(names))
print(f"{len(launches)} kernels, of which {len(names)} were never launched")
sys.exit(bool(names) or not launches)
