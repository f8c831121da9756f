#!/usr/bin/env python3
"""The built files are hardened: relocations are read-only before main, functions with arrays check their stack, library
calls that know the size of their target check it. No object of the build tree or of an installation looks for libraries
in the current folder, and neither do program and library when they are asked for a CUDA device or for predictors: what
lies there under such a name is not loaded, and the backend is found beside the real file, whatever links lead to it; it
is opened by nothing in `flexlab info` but its table of devices.
usage: test_hardening.py BUILD_DIR HOSTILE_LIBRARY BACKEND LIBRARY [PROGRAM]"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

build, hostile, backend, *hardened = (pathlib.Path(a).resolve() for a in sys.argv[1:])
library, program = hardened[0], hardened[1] if len(hardened) > 1 else None
failures, facts = [], []


def lines(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def check(good, *what):
    facts.append(good)
    if not good:
        failures.append(" ".join(map(str, what)))


# --- what the linker was told ------------------------------------------------------------------------------------------

def check_protection(file):
    dynamic, segments, symbols = lines("readelf", "-dW", file), lines("readelf", "-lW", file), lines("nm", "-D", file)
    wanted = {
        "no GNU_RELRO segment": re.search(r"\bGNU_RELRO\b", segments),
        "lazy binding": re.search(r"BIND_NOW|\bFlags:.*\bNOW\b", dynamic),
        "a stack that is executable": re.search(r"GNU_STACK\s.*\sRW\s", segments),
        "no stack protector (__stack_chk_fail)": re.search(r"\b__stack_chk_fail\b", symbols),
        "no fortified call (__*_chk)": re.search(r"\b__(?!stack)\w+_chk\b", symbols),
        "no NODELETE, though threads outlive dlclose": not re.search(r"\.so\b", file.name) or "NODELETE" in dynamic,
        "text relocations": not re.search(r"TEXTREL", dynamic),
    }
    for what, found in wanted.items():
        check(found, f"{file}: {what}")


def is_loadable(path):
    """Whether a file is a program or shared object, by its head; others may be removed meanwhile."""
    try:
        with open(path, "rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and head[16:18] in (b"\2\0", b"\3\0")


def entries(files):
    """(file, entry of its RPATH or RUNPATH) for all files."""
    said = subprocess.run(["readelf", "-dW", *map(str, files), str(library)], capture_output=True, text=True).stdout  # two name their files
    at = None
    for line in said.splitlines():
        if line.startswith("File: "):
            at = line[6:]
        found = re.search(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", line)
        for entry in found[1].split(":") if found else ():
            yield at, entry


def check_search(folder, *left_out):
    """Empty or relative entries mean the current folder, whatever that is."""
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if f not in left_out]
        files += [p for p in (pathlib.Path(place, n) for n in names) if not p.is_symlink() and is_loadable(p)]
    check(files, f"no program and no library in {folder}")
    for file, entry in entries(files):
        check(entry.startswith(("/", "$ORIGIN", "${ORIGIN}")), f"{file}: looks for libraries in '{entry}', expected an absolute path or $ORIGIN")
    return len(files)


# --- what is loaded ----------------------------------------------------------------------------------------------------

def run(file, *arguments, cwd, name=None, **variables):
    """Runs the program under any name in that folder; returns whether the hostile library was loaded."""
    mark = pathlib.Path(cwd, "loaded")
    mark.unlink(missing_ok=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FLEXLAB_", "LD_"))}
    done = subprocess.run([str(name or file), *arguments], executable=str(file), cwd=cwd, capture_output=True, text=True, timeout=120,
                          env={**environment, "HOSTILE_MARK": str(mark), **variables})
    return done, mark.exists()


def needed(file):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", lines("readelf", "-dW", file))


def check_program(file, place):
    """`file` runs in a folder of another user: nothing there is loaded, however the program is called."""
    place.mkdir()
    for name in [*needed(file), "libflexlab_cuda.so", "trend.so"]:
        if not name.startswith("ld-"):  # the loader itself
            shutil.copy(hostile, place / name)
    alone = place / "alone"  # the loader searches LD_LIBRARY_PATH for the libraries that it needs, which is right
    alone.mkdir()
    shutil.copy(hostile, alone / "libflexlab_cuda.so")
    for cwd, name, variables in ((place, None, {}), (place, "flexlab", {}), (place, "./flexlab", {}), (alone, None, {"LD_LIBRARY_PATH": ":/nowhere"}),
                                 (alone, "./flexlab", {"LD_LIBRARY_PATH": "."})):
        done, loaded = run(file, "info", "devices", cwd=cwd, name=name, **variables)
        check(done.returncode == 0 and not loaded, f"{file} info devices, called '{name}' in a hostile folder with {variables}: status {done.returncode}, "
              f"{'loads' if loaded else 'does not load'} what lies there: {done.stderr}")
    for given in ("libflexlab_cuda.so", "./libflexlab_cuda.so", f"../{place.name}/libflexlab_cuda.so"):
        done, loaded = run(file, "info", "devices", cwd=place, FLEXLAB_CUDA_LIBRARY=given)
        check(not loaded and f"'{given}' is not an absolute path" in done.stdout, f"FLEXLAB_CUDA_LIBRARY={given}: loaded {loaded}: {done.stdout}")
        given = given.replace("libflexlab_cuda", "trend")
        done, loaded = run(file, "info", cwd=place, FLEXLAB_PREDICTORS=given)
        check(not loaded and done.returncode == 1 and f"'{given}' is not an absolute path" in done.stderr, f"FLEXLAB_PREDICTORS={given}: loaded {loaded}: {done.stderr}")
    for variable, file_name, command in (("FLEXLAB_CUDA_LIBRARY", "libflexlab_cuda.so", ["info", "devices"]), ("FLEXLAB_PREDICTORS", "trend.so", ["info"])):
        done, loaded = run(file, *command, cwd=place, **{variable: str(place / file_name)})
        check(loaded, f"the hostile library, named by {variable}, makes no mark: this test sees nothing: {done.stderr}")
        fifo = place / ("fifo of " + variable)
        os.mkfifo(fifo)
        done, loaded = run(file, *command, cwd=place, **{variable: str(fifo)})
        check("is a FIFO" in done.stdout + done.stderr, f"a FIFO as {variable}: {done.stdout[-300:]}{done.stderr}")


def finds(file, place, **variables):
    done, _ = run(file, "info", "devices", cwd=place, OTHER_BACKEND="version", **variables)
    return "belongs to flexlab 0.0.1" in done.stdout  # only that backend prints this


def check_backend_found(file, place):
    """The backend is found beside the real file, whatever link leads to it and under whatever name it is called."""
    place.mkdir()
    shutil.copy(file, place / "flexlab")
    check(not finds(place / "flexlab", place), "a backend is found where there is none")
    shutil.copy(backend, place / "libflexlab_cuda.so")
    home = place / "home"
    home.mkdir()
    (home / "flexlab").symlink_to(place / "flexlab")
    (home / "again").symlink_to("flexlab")
    for path in (place / "flexlab", home / "flexlab", home / "again", "../flexlab", "./flexlab"):
        check(finds(path, home), f"the backend beside the program is not found by {path}")


def check_backend_unopened(file, place):
    """Only the table of devices opens the backend: `info` alone and its other tables do not, wherever it lies."""
    place.mkdir()
    shutil.copy(file, place / "flexlab")
    shutil.copy(hostile, place / "libflexlab_cuda.so")
    for variables in ({}, {"FLEXLAB_CUDA_LIBRARY": str(hostile)}):
        for table in ([], ["formats"], ["policies"], ["kernels"], ["operations"], ["mlp2"], ["--help"]):
            done, loaded = run(place / "flexlab", "info", *table, cwd=place, **variables)
            check(done.returncode == 0 and not loaded, f"flexlab info {table} with {variables}: status {done.returncode}, {'opens' if loaded else 'does not open'} "
                  f"the CUDA backend: {done.stderr}")
        _, loaded = run(place / "flexlab", "info", "devices", cwd=place, **variables)
        check(loaded, f"flexlab info devices with {variables} does not open the backend: this test sees nothing")


def check_library_found(file, place):
    """The shared library is loaded by a link and by a relative path before the folder changes."""
    place.mkdir()
    shutil.copy(file, place / "libflexlab.so")
    shutil.copy(backend, place / "libflexlab_cuda.so")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "flexlab.so").symlink_to(place / "libflexlab.so")
    shutil.copy(hostile, elsewhere / "libflexlab_cuda.so")
    ask = ("import ctypes, os, sys; library = ctypes.CDLL(sys.argv[1]); os.chdir(sys.argv[2]); find = library.flexlab_tensor_device_find; "
           "find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p; error = library.flexlab_tensor_error; "
           "error.restype = ctypes.c_char_p; print(find(b'cuda'), error().decode())")
    for path in (place / "libflexlab.so", elsewhere / "flexlab.so", "./libflexlab.so", "elsewhere/flexlab.so"):
        done, loaded = run(sys.executable, "-c", ask, path, elsewhere, cwd=place, OTHER_BACKEND="version")
        check("belongs to flexlab 0.0.1" in done.stdout and not loaded, f"the backend beside the library is not found by {path}: {done.stdout}{done.stderr}")


def install(prefix):
    """Installs as `cmake --install` does, without headers; False if this build installs nothing."""
    if not re.search(r"^FLEXLAB_INSTALL:BOOL=(ON|TRUE|YES|1)$", (build / "CMakeCache.txt").read_text(), re.M | re.I):
        return False
    for component in ("library", "program"):
        done = subprocess.run(["cmake", "--install", str(build), "--prefix", str(prefix), "--component", component], capture_output=True, text=True)
        check(done.returncode == 0, f"component {component} cannot be installed: {done.stdout}{done.stderr}")
    return True


def check_installed(prefix, place):
    check_search(prefix)
    found = sorted(prefix.rglob("libflexlab.so.*"))
    check(found, f"no library in {prefix}")
    installed = sorted(prefix.rglob("flexlab"))
    if not (found and program and installed):
        return
    shutil.copy(backend, found[0].parent / "libflexlab_cuda.so")
    place.mkdir()
    (place / "flexlab").symlink_to(installed[0])
    for path in (installed[0], place / "flexlab"):
        check(finds(path, place), f"the backend of an installation is not found by {path}")


for tool in ("readelf", "nm"):
    if not shutil.which(tool):
        print("skipped: no", tool)
        sys.exit(77)
for hardened_file in hardened:
    check_protection(hardened_file)
# other tests build and install in these folders at the same time
count = check_search(build, "CMakeFiles", "consumer_package", "consumer_pkgconfig", "consumer_recipe", "consumer_subdirectory", "growth", "mutants")
with tempfile.TemporaryDirectory() as name:
    top = pathlib.Path(name).resolve()
    if install(top / "prefix"):
        check_installed(top / "prefix", top / "links")
    if program:
        check_program(program, top / "hostile")
        check_backend_found(program, top / "beside")
        check_backend_unopened(program, top / "unopened")
    check_library_found(library, top / "shared")

print("\n".join(failures) if failures else f"{count} programs and libraries, {len(facts)} checks: as they should be")
sys.exit(bool(failures))
