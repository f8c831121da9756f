#!/usr/bin/env python3
"""An older processor, emulated: nothing illegal runs there, the backends that CPUID allows are the ones that run, kernels
give the hashes that they give on this machine, and a short training of every format gives the numbers of this machine.
usage: test_emulate.py CPU BACKEND TEST_GOLDEN FLEXLAB FORMAT...     CPU as qemu names it, BACKEND the best that it has,
FORMAT: kernels of names that end so run all cases that have a recorded hash (emulation is slow; formats of a family share
their kernels' text); FORMAT/K: every K-th case of each operation, compared with what this machine gives for the same ones
(test_golden compares those of all cases with the record)"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.append(sys.path[0] + "/../support")
from resumed import small_images

SKIP = 77
# One instruction of each extension, and the first backend that may use it.
PROBES = {"vpaddd %ymm0, %ymm0, %ymm0": "avx2", "vfmadd231ps %ymm0, %ymm0, %ymm0": "avx2", "vcvtph2ps %xmm0, %ymm0": "avx2",
          "vpxord %zmm0, %zmm0, %zmm0": "avx512bw"}
ORDER = ["ref", "portable", "avx2", "avx512bw", "avx512"]
cpu, backend, golden, flexlab = sys.argv[1:5]
formats = sys.argv[5:]
qemu = shutil.which("qemu-x86_64")
if not qemu:
    print("skipped: no qemu-x86_64 here (Debian: apt-get install qemu-user)")
    sys.exit(SKIP)
environment = {k: v for k, v in os.environ.items() if k not in {"FLEXLAB_ISA", "FLEXLAB_VERBOSE", "FLEXLAB_TEST_FILTER"}}
environment["OMP_NUM_THREADS"] = "2"


def run(*command, **more):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**environment, **more})


def emulated(*command, **more):
    result = run(qemu, "-cpu", cpu, *command, **more)
    if result.returncode:
        print(f"FAILED under {cpu}:", *command, f"exit status {result.returncode}\n",
              (result.stdout + result.stderr)[-4000:])
        sys.exit(1)
    return result


def training(out, start):
    """The numbers of a short training of every format, without times and names of backends."""
    start(flexlab, "compare", "--model", "mlp2", "--data", data, "--epochs", "1", "--batch", "16", "--seeds", "1",
          "--out", out)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for field in ("processor", "instruction_set", "started", "command_line"):
        del lines[0][field]
    for line in lines:
        for field in ("seconds", "images_per_second", "step_seconds", "step_seconds_low", "step_seconds_high", "wall_seconds"):
            line.pop(field, None)
        for entry in line.get("formats", []):
            del entry["matmul_backend"]
    return lines


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    # The emulator is of use only if it refuses what the processor does not have.
    for number, (instruction, first) in enumerate(PROBES.items()):
        code, program = folder / "probe.c", folder / f"probe{number}"
        code.write_text('int main(void) { __asm__ volatile("%s"); return 0; }\n' % instruction)
        built = run("cc", code, "-o", program)
        if built.returncode:
            print("skipped: this compiler has no", instruction, built.stderr[-400:])
            sys.exit(SKIP)
        legal = ORDER.index(first) <= ORDER.index(backend)
        status = run(qemu, "-cpu", cpu, program).returncode
        if (status == 0) != legal:
            sys.exit(f"FAILED: {cpu} {'refuses' if legal else 'runs'} {instruction}: exit status {status}")

    listed = emulated(flexlab, "info", "kernels").stdout
    rows = [line.split()[1:] for line in listed.split("\n\n")[0].splitlines()[2:]]
    found = {name for row in rows for name in row}
    print(f"{cpu}: backends {', '.join(sorted(found))}")
    if backend not in found or any(ORDER.index(name) > ORDER.index(backend) for name in found):
        sys.exit(f"FAILED: expected {backend} at most, and some of it")

    for name in formats:
        name, _, every = name.partition("/")
        if not every:
            print(name, emulated(golden, "--threads", "2", FLEXLAB_TEST_FILTER=name + ".").stdout.strip())
            continue
        command, chosen = [golden, "--every", every], {"FLEXLAB_TEST_FILTER": name + "."}
        native, old = run(*command, **chosen), emulated(*command, **chosen)
        expected = [line for line in native.stdout.splitlines() if line.startswith(name + ".")]
        got = [line for line in old.stdout.splitlines() if line.startswith(name + ".")]
        different = [f"{a} here, {b} there" for a, b in zip(expected, got) if a != b]
        if native.returncode or len(expected) < 100 or len(expected) != len(got) or different:
            sys.exit(f"FAILED: {name}: exit status {native.returncode} here, {len(expected)} hashes here, {len(got)} there\n" +
                     "\n".join(different))
        print(f"{name}: {len(got)} operations, every {every}th case: the same hashes")

    said = emulated(flexlab, "train", "--model", "mlp2", "--data", "synthetic:train=16,test=16", "--epochs", "1", "--batch",
                    "16", "--out", folder / "said", FLEXLAB_VERBOSE="1").stderr
    lines = [line for line in said.splitlines() if line.startswith("flexlab: ")]
    print(lines[0] if lines else said)
    best = ORDER[ORDER.index(backend) + 1]
    if not lines or not all(f"{best} not used: this machine lacks " in line for line in lines):
        sys.exit(f"FAILED: expected lines of FLEXLAB_VERBOSE that say what {cpu} lacks for {best}:\n" + said[-2000:])

    few = any("/" in name for name in formats)
    data = small_images(folder, train=32, test=16, side=16) if few else "synthetic:train=32,test=16"
    here = training(folder / "here", lambda *command: run(*command))
    there = training(folder / "there", emulated)
    if here != there:
        for a, b in zip(here, there):
            if a != b:
                print("here ", json.dumps(a)[:1000], "\nthere", json.dumps(b)[:1000])
        sys.exit("FAILED: training gives other numbers")
    runs = [entry for entry in here if entry.get("type") == "run"]
    print("the same numbers in training:", ", ".join(f"{r['format']} {r['last_loss']:.6f}" for r in runs))
    if len(runs) < 5:
        sys.exit("FAILED: fewer formats were trained than there are")
