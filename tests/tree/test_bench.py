#!/usr/bin/env python3
"""The benchmark's driver on tiny work: what it writes has the promised keys, ratios that follow from the times, and a
reason where a rival is missing; each bar has its row, with matrix tiles and without; class fast runs everywhere.
usage: test_bench.py SOURCE_DIR BUILD_DIR"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

source, build = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(source / "bench"))
import report
import rivals
import works

PROMISED = {
    *("work", "format", "threads", "rival", "ours", "theirs", "unit", "ratio", "of_peak"),
    *("bar", "bar_for", "met", "kernels"),
}
failures = []


def check(condition, *what):
    if not condition:
        failures.append(" ".join(map(str, what)))


def bench(*arguments, venv):
    """A run with rivals from `venv` alone."""
    environment = {**os.environ, "FLEXLAB_RIVALS": str(venv)}
    return subprocess.run(
        [sys.executable, str(source / "bench/bench.py"), "--build", str(build), "--no-install", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
    )


with tempfile.TemporaryDirectory() as folder:
    result = pathlib.Path(folder) / "rows.json"
    done = bench(
        "--quick", "--threads", "1", "--rounds", "3", "--filter", "128x128x128", "--json", str(result), venv=folder
    )
    check(done.returncode == 0, "status", done.returncode, done.stderr)
    rows = json.loads(result.read_text()) if result.exists() else []
    check({r["format"] for r in rows} == {"fp32", "flex16+5"}, "rows of both formats, got", [r["format"] for r in rows])
    for row in rows:
        check(PROMISED <= row.keys(), row["work"], "lacks", PROMISED - row.keys())
        check(row["unit"] == "ms" and row["ours"] and row["ours"] > 0, "a time of ours, got", row["ours"], row["skip"])
        check(row["candidates"]["mkl"].startswith("skip: not found; install with:"), row["candidates"]["mkl"])
        check(row["of_peak"] is None or 0 < row["of_peak"] < 16, "of_peak", row["of_peak"])
        if row["theirs"] is None:
            check(row["ratio"] is None and row["skip"], "a rival without a time wants a reason")
        else:
            check(
                0.2 < row["ratio"] / (row["theirs"] / row["ours"]) < 5,
                "ratio",
                row["ratio"],
                "of",
                row["theirs"],
                row["ours"],
            )
    done = bench("--quick", "--threads", "1", "--filter", "memory", "--json", str(result), venv=folder)
    stored = [r for r in json.loads(result.read_text()) if r["format"] == "flex16+5"]
    check(stored and all(r["met"] for r in stored), "the step's memory in flex16+5:", stored)

listed = bench("--list", venv="/nowhere").stdout
for work in (
    "matmul 2048x2048x2048",
    "convolutions of ResNet-20",
    "training step",
    "class fast, bf16, 1 threads, against best torch bf16 autocast",
    "int8 matmul, s8 x s8 to s32 (not the same work)",
    "convert fp32 to fp16",
    "scaling",
    "memory",
):
    check(work in listed, "--list lacks", work)
check(bench("--threads", "none", venv="/nowhere").returncode != 0, "--threads none is accepted")


# --- bars: each belongs to a row, on processors with tiles and without, and says which where they differ
def rows_of(tiles):
    everything = works.Works(build / "bench/ours", rivals.Rivals(source, dry=True), False, [1, 2], tiles)
    timed = [(r.work, r.format, r.rival) for threads in (1, 2) for g in everything.groups(threads) for r in g.rows]
    return set(timed) | {(r["work"], r["format"], r["rival"]) for r in everything.memory(dry=True)}


check(len(works.BAR_OF) == len(works.BARS), "a row has two bars")
rows = {tiles: rows_of(tiles) for tiles in (False, True)}
for key, (without, with_tiles) in works.BAR_OF.items():
    check(without is not None or with_tiles is not None, "a bar for no processor:", *key)
    for tiles, bar in ((False, without), (True, with_tiles)):
        check(bar is None or key in rows[tiles], "no row for the bar of", *key, "tiles:", tiles)
sgemm = ("matmul 1024x1024x1024, any mantissas", "flex16+5", "best sgemm")
check(works.bar_of(*sgemm, True) == (4.0, "tiles"), works.bar_of(*sgemm, True))
check(works.bar_of(*sgemm, False) == (1.2, "no tiles"), works.bar_of(*sgemm, False))
check(works.bar_of(*sgemm[:2], "nobody", True) == (None, ""), "a bar where there is none")
text = report.verdict({"bar": 4.0, "bar_for": "tiles", "met": True})
check(text == ">= 4.00 (tiles) met", text)


# --- class fast: by whatever kernels it chooses on this processor
def worker(*lines):
    ours = str(build / "bench/ours")
    return subprocess.run([ours], input="\n".join([*lines, "quit\n"]), capture_output=True, text=True).stdout.split(
        "\n"
    )


for work in ("matmul bf16:fast gauss 32 32 32", "conv bf16:fast 2 8 8 16 16 3 1 1 fdw", "step bf16:fast 2"):
    answer = worker("prepare " + work, "run")
    check(answer[0] == "ready" and float(answer[1]) > 0, work, answer)
check(worker("prepare step bf16:slow 2")[0].startswith("skip"), "a class that does not exist")
kernels = {
    name: subprocess.run(
        [build / "bench/ours", "kernels", name, "matmul"], capture_output=True, text=True
    ).stdout.strip()
    for name in ("bf16", "bf16:fast")
}
fast = kernels["bf16:fast"]
check(kernels["bf16"] and (fast.endswith("_fast") or fast == kernels["bf16"]), "kernels:", kernels)

for failure in failures:
    print("FAILED:", failure)
sys.exit(bool(failures))
