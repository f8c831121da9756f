#!/usr/bin/env python3
"""./dev gets what its commands need, and no more: where a package is missing, root installs it, and anybody else is told
the command. It waits for a package manager that is busy, and shows what apt-get says where it fails for another reason.
`./dev demo` builds the program alone and ends by naming its report. A copy of dev in a folder of its own runs here with
programs that stand in for apt-get, cmake and flexlab, and with the machine's own apt-get on folders of its own.
usage: test_dev.py SOURCE BUILD"""
import functools
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

source, build = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
failures = 0
LISTS = ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (unattended-upgr)\n"
         "E: Unable to lock directory /var/lib/apt/lists/")
FRONTEND = ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4712 (apt-get)\n"
            "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?")
OLD = ("E: Could not get lock /var/lib/apt/lists/lock - open (11: Resource temporarily unavailable)\n"
       "E: Unable to lock directory /var/lib/apt/lists/")
NO_RIGHT = ("E: Could not open lock file /var/lib/apt/lists/lock - open (13: Permission denied)\n"
            "E: Unable to lock directory /var/lib/apt/lists/")
LOCATE = "E: Unable to locate package"


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", *what)


def program(path, text):
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@functools.cache
def programs_but(*missing):
    """A folder with links to the programs of this machine except those whose names begin like this."""
    folder = tempfile.TemporaryDirectory()
    seen = set()
    for directory in os.environ["PATH"].split(":"):
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            if not name.startswith(missing) and name not in seen:
                os.symlink(os.path.join(directory, name), os.path.join(folder.name, name))
                seen.add(name)
    return folder


class Machine:
    """The programs of this machine except those that are missing; `id -u` prints user; apt-get records its arguments
    and does what `apt` says."""

    def __init__(self, apt, missing=("qemu-",), user=0):
        self.kept, self.others = tempfile.TemporaryDirectory(), programs_but(*missing)
        self.folder = folder = pathlib.Path(self.kept.name)
        self.programs, self.tree = folder / "bin", folder / "tree"
        self.programs.mkdir()
        self.tree.mkdir()
        shutil.copy(source / "dev", self.tree)
        program(self.programs / "id", f"echo {user}")
        program(self.programs / "apt-get", f'echo "$@" >>{folder}/asked\n{apt}')

    def builds(self):
        """Adds a cmake that records its arguments and makes a program that does the same."""
        program(self.folder / "flexlab", f'echo "$@" >>{self.folder}/trained')
        program(self.programs / "cmake", f'echo "$@" >>{self.folder}/built\nmkdir -p build/release\ncp {self.folder}/flexlab build/release')
        program(self.programs / "ctest", f'echo "$@" >>{self.folder}/tested')
        return self

    def noted(self, name):
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def dev(self, *command, **environment):
        return subprocess.run([self.tree / "dev", *command], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "FLEXLAB_PYTHON": "python3", "PATH": f"{self.programs}:{self.others.name}", **environment})


def fails(times, words, name):
    """Shell text: the first calls fail with these words."""
    return (f'n=$(cat {name} 2>/dev/null || echo 0); echo $((n + 1)) >{name}; '
            f'if [ $n -lt {times} ]; then cat >&2 <<\'TEXT\'\n{words}\nTEXT\nexit 100; fi')


def waits():
    """Both of apt's locks are held for a while, by a process that is named; then it continues."""
    m = Machine("cd ${0%/*}/..; if [ $1 = update ]; then\n" + fails(2, LISTS, "updates") +
                "\nelse\n" + fails(2, FRONTEND, "installs") + "\nln -s /bin/true bin/qemu-x86_64; fi").builds()
    done = m.dev("test", "-N")
    check(done.returncode == 0 and m.noted("asked").count("install -y -qq qemu-user") == 3, "waits", done, m.noted("asked"))
    said = [line for line in done.stderr.splitlines() if "waiting" in line]
    check(len(said) == 2 and "process 4711 (unattended-upgr)" in said[0] and "process 4712 (apt-get)" in said[1], "waits", done.stderr)
    check("E: " not in done.stderr, "shows a lock that it waited for:", done.stderr)
    check(" -N" in m.noted("tested") and "--target" not in m.noted("built"), "does not build all and test:", m.noted("built"))


def waits_no_longer():
    for words in (LISTS, OLD):
        m = Machine(f"cat >&2 <<'TEXT'\n{words}\nTEXT\nexit 100")
        done = m.dev("test", FLEXLAB_APT_SECONDS="1")
        check(done.returncode == 1 and "still busy after 1 seconds" in done.stderr and words in done.stderr and
              "waiting for the package manager, which " in done.stderr, "a lock that is held for good:", done)
    done = Machine("exit 100").dev("test", FLEXLAB_APT_SECONDS="soon")
    check(done.returncode == 1 and "FLEXLAB_APT_SECONDS is 'soon', expected a number of seconds" in done.stderr, done)


def other_failures():
    """They are reported at once, in apt-get's own words. Lists that cannot be fetched do not prevent the installation
    of known packages."""
    for words in (NO_RIGHT, LOCATE + " qemu-user"):
        m = Machine(f"[ $1 = update ] || {{ echo '{words}' >&2; exit 100; }}")
        done = m.dev("test")
        check(done.returncode == 1 and words in done.stderr and "apt-get install qemu-user failed" in done.stderr and
              "waiting" not in done.stderr and m.noted("asked").count("install") == 1, done, m.noted("asked"))
    m = Machine("cd ${0%/*}/..; [ $1 = install ] || { echo 'E: no network' >&2; exit 100; }\nln -s /bin/true bin/qemu-x86_64").builds()
    done = m.dev("test", "-N")
    check(done.returncode == 0 and "E: no network" in done.stderr and "apt-get update failed" in done.stderr, "no network", done)


def who_is_asked():
    for user, words in ((0, "apt-get install qemu-user failed"),
                        (1000, "missing: qemu-user. Install with: sudo apt-get install qemu-user")):
        for command in ("test", "emulate"):
            m = Machine('[ "$1" != install ]', user=user)
            done = m.dev(command, "-N")
            check(done.returncode == 1 and words in done.stderr, command, "user", user, done)
            check(("install -y -qq qemu-user" in m.noted("asked")) == (user == 0), command, "user", user, m.noted("asked"))


def real_locks():
    """The machine's own apt-get, on folders of its own, whose lists are locked until it has asked for them twice."""
    apt = shutil.which("apt-get")
    if not apt:
        print("no apt-get here: its own locks are not tried")
        return
    m = Machine("")
    state = m.folder / "state"
    for name in ("state/lists/partial", "cache/archives/partial", "dpkg"):
        (m.folder / name).mkdir(parents=True)
    (m.folder / "dpkg/status").touch()
    options = (f"-o Dir::State={state} -o Dir::State::status={m.folder}/dpkg/status -o Dir::Cache={m.folder}/cache "
               "-o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=")
    program(m.programs / "apt-get", f'echo "$@" >>{m.folder}/asked\nexec {apt} {options} "$@"')
    (m.folder / "asked").touch()
    holder = subprocess.Popen([sys.executable, "-c", "import fcntl, sys, time\nf = open(sys.argv[1], 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\n"
                               "print(1, flush=True)\nend = time.monotonic() + 60\n"
                               "while time.monotonic() < end and open(sys.argv[2]).read().count('update') < 2: time.sleep(0.05)\n"
                               "time.sleep(0.5)", state / "lists/lock", m.folder / "asked"], stdout=subprocess.PIPE)
    holder.stdout.readline()
    done = m.dev("test")
    holder.wait()
    check(m.noted("asked").count("update") >= 3 and done.stderr.count("waiting for the package manager") == 1, "a real lock:", done)
    check(done.returncode == 1 and f"{LOCATE} qemu-user" in done.stderr and "Could not get lock" not in done.stderr, "a real lock:", done)


def demo():
    """The demo does without what only tests need; it builds only the program, in the folder of their build."""
    m = Machine("exit 100", missing=("qemu-", "g++", "c++", "python", "nvcc", "clang")).builds()
    done = m.dev("demo", str(m.folder / "results"))
    check(done.returncode == 0 and not m.noted("asked"), "demo asks for packages:", m.noted("asked"), done)
    tested = Machine("cd ${0%/*}/..; ln -sf /bin/true bin/qemu-x86_64").builds()
    tested.dev("test", "-N")
    configured = [n.noted("built").partition("\n")[0].replace(" -DPython3_EXECUTABLE=python3", "") for n in (m, tested)]
    check(configured[0].startswith("--preset release") and configured[0] == configured[1], "demo configures otherwise than test:", configured)
    check(re.search(r"^--build --preset release .*--target flexlab$", m.noted("built"), re.M), "demo builds", m.noted("built"))
    trained = m.noted("trained")
    check("--telemetry" in trained and "--shadow" in trained and len(re.search(r"--formats (\S+)", trained)[1].split(",")) == 5, trained)
    check(f"{m.folder}/results/report.html" in done.stdout, "demo does not name its report:", done.stdout)


def decoders():
    """libpng and libjpeg, which the demo does not use, affect only their own files: `./dev test` compiles no others
    again."""
    for command in json.loads((build / "compile_commands.json").read_text()):
        for name in ("png", "jpeg"):
            check(f"-DFL_HAVE_{name.upper()} " not in command["command"] or command["file"].endswith(f"/data_{name}.c"),
                  command["file"], "is compiled with", name)


if platform.machine() != "x86_64":
    print("skipped: the emulator tests run on x86-64")
    sys.exit(77)
asked = Machine('[ "$1" != install ]', user=1000).dev("test", "-N").stderr
if "missing: qemu-user. " not in asked:
    print("skipped: other programs are missing, too:", asked)
    sys.exit(77)
for test in (who_is_asked, waits, waits_no_longer, other_failures, real_locks, demo, decoders):
    test()
print("failed" if failures else "ok")
sys.exit(1 if failures else 0)
