#!/usr/bin/env python3
"""./dev test gets what its tests need: where qemu-user is missing, root installs it, and anybody else is told the command.
usage: test_dev.py SOURCE"""
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

source = pathlib.Path(sys.argv[1]).resolve()
failures = 0


def machine_without_qemu(folder, user):
    """Programs of this machine but qemu-x86_64; `id -u` says user, apt-get notes its arguments and fails to install."""
    for directory in os.environ["PATH"].split(":"):
        for program in pathlib.Path(directory).iterdir() if os.path.isdir(directory) else ():
            link = folder / program.name
            if not program.name.startswith("qemu-") and not link.is_symlink():
                link.symlink_to(program)
    for name, text in (("id", f"echo {user}"), ("apt-get", f'echo "$@" >>{folder}/asked; [ "$1" != install ]')):
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", *what)


if platform.machine() != "x86_64":
    print("skipped: the emulator tests run on x86-64")
    sys.exit(77)
for user, words in ((0, "apt-get install qemu-user failed"), (1000, "missing: qemu-user. Install with: sudo apt-get install qemu-user")):
    for command in ("test", "emulate"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            machine_without_qemu(folder, user)
            done = subprocess.run([source / "dev", command, "-N"], env={**os.environ, "PATH": str(folder)}, capture_output=True,
                                  text=True, timeout=60)
            asked = (folder / "asked").read_text() if (folder / "asked").exists() else ""
            if "gnuplot" in done.stderr or "clang" in done.stderr:
                print("skipped: other programs are missing, too:", done.stderr)
                sys.exit(77)
            check(done.returncode == 1 and words in done.stderr, command, "user", user, done.returncode, done.stdout, done.stderr)
            check(("install -y -qq qemu-user" in asked) == (user == 0), command, "user", user, "asks apt-get for", asked)
print("failed" if failures else "ok")
sys.exit(1 if failures else 0)
