#!/usr/bin/env python3
"""How many PTX instructions of warps a training step of ResNet-20 takes, by kernel and format, and how many bytes it moves
between memory and a cache of 50 MiB: no more than ptx_counts.tsv says, with one in a hundred to spare. The counts do not
depend on the machine. Steps of 128 images are those of which tools/gpu_report.py tells the least times.
usage: test_ptx_counts.py DEVICE_STEPS LIBRARY FORMAT[,CLASS]:BATCH... [--write]        --write: the baseline anew, of these"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

program, library, *wanted = [word for word in sys.argv[1:] if word != "--write"]
BASELINE = pathlib.Path(__file__).with_name("ptx_counts.tsv")
BYTES = "bytes of memory"


def short(name):
    """_ZN12namespace_ab6kernelE..., _Z6kernel...: kernel, without namespace and template arguments."""
    part, rest = "", name[2:].removeprefix("N")
    while (length := re.match(r"\d+", rest)) and (not part or name.startswith("_ZN")):
        end = length.end() + int(length[0])
        part, rest = rest[length.end():end], rest[end:]
    return part


def counts(report):
    """Instructions by kernel, of all folders and template arguments together; bytes of all kernels."""
    found = collections.Counter()
    for line in pathlib.Path(report).read_text().splitlines():
        kind, name, *figures = line.split()
        if kind == "kernel":
            found[short(name)] += int(figures[1])
        elif kind == "traffic":
            found[BYTES] += int(figures[0])
    return {name: n for name, n in found.items() if n}


def run(format, batch):
    with tempfile.NamedTemporaryFile() as report:
        env = {**os.environ, "FLEXLAB_CUDA_LIBRARY": library, "FLEXLAB_PTX_REPORT": report.name, "OMP_WAIT_POLICY": "passive"}
        if int(batch) >= 64:  # what fewer images need stays in the cache
            env["FLEXLAB_PTX_CHECKS"] = "traffic"
        subprocess.run([program, "cuda", batch, "1", format], check=True, env=env, stdout=subprocess.DEVNULL)
        return counts(report.name)


if __name__ == "__main__":
    head, *lines = [line.split("\t") for line in BASELINE.read_text().splitlines()] if BASELINE.exists() else [[""]]
    table = {column: {line[0]: int(line[i]) for line in lines} for i, column in enumerate(head) if i}
    bad = []
    for column in wanted:
        now, before = run(*column.rsplit(":", 1)), table.get(column, {})
        for name in sorted(now):
            if now[name] > before.get(name, 0) * 1.01:
                bad.append(f"{column}: {name}: {now[name]}{'' if name == BYTES else ' instructions of warps'}, the baseline has {before.get(name, 0)}")
        here, there = (f"{sum(c.values()) - c.get(BYTES, 0)} instructions of warps and {c.get(BYTES, 0)} bytes" for c in (now, before))
        print(f"{column}: {here} a step, the baseline has {there}")
        table[column] = now
    if "--write" in sys.argv:
        names = sorted(set().union(*table.values()))
        BASELINE.write_text("\n".join("\t".join(map(str, row)) for row in
                                      [["kernel", *table], *([name, *(t.get(name, 0) for t in table.values())] for name in names)]) + "\n")
        sys.exit()
    print("\n".join(bad))
    sys.exit(bool(bad))
