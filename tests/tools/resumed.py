"""Common functions of the tests of runs that are killed and resumed: small images, kills, and the comparison of two
folders of results."""
import json
import os
import random
import struct
import subprocess

import safetensors_witness as witness
from cli_harness import PROGRAM, check, read_csv, without_time

QUIET = {"PATH": "/nonexistent", "OMP_WAIT_POLICY": "passive"}  # no gnuplot: the results alone


def small_images(place, train=200, test=60, side=6):
    folder = os.path.join(place, "images")
    os.mkdir(folder)
    source = random.Random(1)
    for name, count in (("train", train), ("t10k", test)):
        labels = bytes(source.randrange(10) for _ in range(count))
        pixels = b"".join(bytes(min(255, source.randrange(120) + 12 * label * (i % 3)) for i in range(side * side))
                          for label in labels)
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, side, side) + pixels)
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + labels)
    return "idx:" + folder


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def lines(folder):
    """All lines of metrics.jsonl, without times and the first line, which names machine and command."""
    return [without_time(json.loads(line)) for line in read(folder, "metrics.jsonl").splitlines()[1:]]


def same_network(a, b):
    """Compares byte for byte; only the number of checkpoints, which may be requested anew, may differ among the
    notes."""
    if read(a) == read(b):
        return True
    (one, first), (two, second) = witness.read(a), witness.read(b)
    for notes in (first, second):
        notes.pop("flexlab.crc32")
        notes["flexlab.arguments"] = sorted(w for w in notes["flexlab.arguments"].split() if not w.startswith("--checkpoint-every="))
    return one == two and first == second


def same_results(a, b, *what):
    check(sorted(os.listdir(a)) == sorted(os.listdir(b)), *what, "other files", sorted(os.listdir(a)), sorted(os.listdir(b)))
    for name in os.listdir(a):
        if name.startswith(("trace-", "telemetry-")):
            check(read(a, name) == read(b, name), *what, name, "differs")
        elif name.endswith(".safetensors"):
            check(same_network(os.path.join(a, name), os.path.join(b, name)), *what, name, "differs")
    check(lines(a) == lines(b), *what, "metrics.jsonl differs")
    one, two = ([without_time(row) for row in read_csv(folder, "summary.csv")] for folder in (a, b))
    check(one == two, *what, "summary.csv differs", one, two)


def killed_after(seconds, *arguments):
    """The exit status; None if it was killed."""
    child = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **QUIET})
    try:
        _, stderr = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return None, ""
    return child.returncode, stderr.decode(errors="replace")
