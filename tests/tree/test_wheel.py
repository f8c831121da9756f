#!/usr/bin/env python3
"""The wheel of the Python package: ./dev wheel builds it for every Python from 3.11 on; in a new virtual environment, with
nothing but that environment in PATH, the lines of the README work, and the program as `flexlab` and `python -m flexlab`.
Everything in it finds what it needs beside itself or in the C library, and brings no OpenMP runtime. Creating the
environment, installing the wheel with its extra [report], the README's lines and the first notebook, which needs
FLEXLAB_DATA, take less than five minutes.
usage: test_wheel.py SOURCE COMPILER_LAUNCHER"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile

source = pathlib.Path(sys.argv[1]).resolve()
failures = 0


def check(good, *what):
    global failures
    if not good:
        failures += 1
        print("FAILED:", *what)
    return good


def run(*command, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)


def needed(file):
    """What the loader finds for a file: name -> path."""
    return dict(re.findall(r"^\s*(\S+) => (\S+)", run("ldd", file).stdout, re.M))


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    if run(sys.executable, "-m", "venv", folder / "build").returncode:
        print("skipped: there is no venv")
        sys.exit(77)
    if run(folder / "build/bin/pip", "download", "-q", "--no-deps", "-d", folder / "trial", "scikit-build-core", "numpy").returncode:
        print("skipped: scikit-build-core and NumPy are not to be had")
        sys.exit(77)
    built = run(folder / "build/bin/pip", "wheel", "--no-deps", "--wheel-dir", folder / "wheel", source / "python",
                env={**os.environ, "CMAKE_ARGS": f"-DFLEXLAB_CUDA=OFF -DCMAKE_C_COMPILER_LAUNCHER={sys.argv[2] if len(sys.argv) > 2 else ''}"})
    wheels = list((folder / "wheel").glob("*.whl"))
    if not check(len(wheels) == 1, "no wheel:", built.stdout[-3000:], built.stderr[-3000:]):
        sys.exit(1)
    check(re.fullmatch(r"flexlab-[\d.]+-cp311-abi3-linux_\w+\.whl", wheels[0].name), wheels[0].name)
    names = zipfile.ZipFile(wheels[0]).namelist()
    for name in ("__init__.py", "__init__.pyi", "_operations.pyi", "_library.pyi", "_core.pyi", "_core.abi3.so", "_declarations.py",
                 "py.typed", "flexlab", "nn.py"):
        check(f"flexlab/{name}" in names, "the wheel has no", name)
    check(len([n for n in names if "libflexlab.so" in n]) == 1, "one library:", names)
    check(not any(n.endswith((".c", ".h", ".inc", ".cmake")) or "gomp" in n or "iomp" in n for n in names), names)

    start = time.monotonic()
    run(sys.executable, "-m", "venv", folder / "clean", check=True)
    clean = folder / "clean/bin"
    environment = {"PATH": str(clean), "HOME": str(folder)}
    installed = run(clean / "pip", "install", "-q", f"{wheels[0]}[report]", env={**os.environ, **environment})
    check(installed.returncode == 0, installed.stderr)
    text = (source / "README.md").read_text()
    lines, said = re.search(r"^## From Python\n.*?```python\n(.*?)```\nprints `(.*?)`", text, re.M | re.S).groups()
    done = run(clean / "python", "-c", lines, env=environment, cwd=folder)
    check(done.stdout.strip() == said, "the README's lines:", done)
    print(f"installed and ran the README's lines in {time.monotonic() - start:.1f} s")
    page = source / "docs/notebooks/five-formats.md"
    done = run(clean / "python", source / "docs/notebooks/execute.py", page, cwd=folder,
               env=environment | {name: os.environ[name] for name in ("FLEXLAB_DATA",) if name in os.environ})
    if done.returncode == 77:
        print("skipped, the first notebook:", done.stdout.strip())
    elif check(done.returncode == 0, page.name, done.stdout[-2000:], done.stderr[-2000:]):
        seconds = time.monotonic() - start
        print(f"a new environment, the wheel, the README's lines and the first notebook: {seconds:.0f} s")
        check(seconds < 300, f"{seconds:.0f} s, expected less than five minutes")
    for command in ((clean / "flexlab", "info"), (clean / "python", "-m", "flexlab", "info")):
        done = run(*command, env=environment, cwd=folder)
        check(done.returncode == 0 and done.stdout.startswith("flexlab "), command, done)
    done = run(clean / "flexlab", "train", "--model", "nothing", env=environment, cwd=folder)
    check(done.returncode == 2 and "nothing" in done.stderr, done)
    trained = run(clean / "flexlab", "train", "--model", "mlp2", "--data", "synthetic:train=64,test=10", "--epochs", "1", "--batch", "32",
                  "--out", folder / "run", env=environment, cwd=folder)
    check(trained.returncode == 0 and (folder / "run/metrics.jsonl").exists(), trained)

    package = next((folder / "clean").glob("lib/python*/site-packages/flexlab"))
    for file in [*package.glob("*.so*"), package / "flexlab"]:
        for name, path in needed(file).items():
            # What came along has no RUNPATH; its libraries are loaded for ours before it asks for them.
            beside = pathlib.Path(path).parent == package or not file.name.startswith(("_core", "flexlab", "libflexlab")) and (package / name).exists()
            good = beside or re.match(r"(libc|libm|libdl|libpthread|librt|ld-linux[\w-]*)\.so", name)
            check(good, f"{file.name} needs {name}, found at {path}")
        runpath = re.findall(r"RUNPATH.*\[(.*)\]", run("readelf", "-d", file).stdout)
        check(runpath in ([], ["$ORIGIN"]), file.name, "has the RUNPATH", runpath)
    mapped = run(clean / "python", "-c", "import flexlab; print(open('/proc/self/maps').read())", env=environment, cwd=folder).stdout
    check("libflexlab" in mapped and not re.search(r"lib[gi]?omp", mapped), "libraries of the process")
print("failed" if failures else "ok")
sys.exit(1 if failures else 0)
