#!/usr/bin/env python3
"""The benchmark's driver on tiny work: what it writes has the promised keys, ratios that follow from the times, and a
reason where a rival is missing. usage: test_bench.py SOURCE_DIR BUILD_DIR"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

source, build = map(pathlib.Path, sys.argv[1:3])
PROMISED = {"work", "format", "threads", "rival", "ours", "theirs", "unit", "ratio", "of_peak", "bar", "met"}
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
        check(row["of_peak"] is None or 0 < row["of_peak"] < 4, "of_peak", row["of_peak"])
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
    "convert fp32 to fp16",
    "scaling",
    "memory",
):
    check(work in listed, "--list lacks", work)
check(bench("--threads", "none", venv="/nowhere").returncode != 0, "--threads none is accepted")

for failure in failures:
    print("FAILED:", failure)
sys.exit(bool(failures))
