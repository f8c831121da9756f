#!/usr/bin/env python3
"""The built files are hardened: relocations are read-only before main, functions with arrays check their stack, library
calls that know the size of their target check it. usage: test_hardening.py FILE..."""
import re
import shutil
import subprocess
import sys

failures = []


def lines(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


for tool in ("readelf", "nm"):
    if not shutil.which(tool):
        print("skipped: no", tool)
        sys.exit(77)
for file in sys.argv[1:]:
    dynamic, segments, symbols = lines("readelf", "-dW", file), lines("readelf", "-lW", file), lines("nm", "-D", file)
    wanted = {
        "no GNU_RELRO segment": re.search(r"\bGNU_RELRO\b", segments),
        "lazy binding": re.search(r"BIND_NOW|\bFlags:.*\bNOW\b", dynamic),
        "a stack that is executable": re.search(r"GNU_STACK\s.*\sRW\s", segments),
        "no stack protector (__stack_chk_fail)": re.search(r"\b__stack_chk_fail\b", symbols),
        "no fortified call (__*_chk)": re.search(r"\b__(?!stack)\w+_chk\b", symbols),
        "no NODELETE, though threads outlive dlclose": not re.search(r"\.so\b", file) or "NODELETE" in dynamic,
        "text relocations": not re.search(r"TEXTREL", dynamic),
    }
    failures += [f"{file}: {what}" for what, found in wanted.items() if not found]

print("\n".join(failures) if failures else f"{len(sys.argv) - 1} files are hardened")
sys.exit(bool(failures))
