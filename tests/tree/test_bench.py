#!/usr/bin/env python3
"""The benchmark's driver on tiny work: what it writes has the promised keys, ratios that follow from the times, and a
reason where a rival is missing; each bar has its entry on the makes that it is for; every kind of work runs, and class
fast everywhere.
usage: test_bench.py SOURCE_DIR BUILD_DIR"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

source, build = map(pathlib.Path, sys.argv[1:3])
sys.path.insert(0, str(source / "bench"))
import bars
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
    "attention, 16 x 6 heads, 128 x 32, flex16+5, 1 threads, against best torch fp32",
    "layernorm 2048x192, both passes, flex16+5, 1 threads, against torch fp32",
    "softmax 12288x128, both passes, fp16, 1 threads, against torch fp32",
    "gelu 2048x768, both passes, fp32, 1 threads, against torch fp32",
    "ResNet-20 evaluation, batch 64, bf16, 1 threads, against best torch fp32",
    "vgg11 training step, batch 64, class fast, bf16, 1 threads, against best torch bf16 autocast",
    "training step, batch 1, scaling, flex16+5, 2 threads, against ours, 1 thread",
    "scaling",
    "memory",
):
    check(work in listed, "--list lacks", work)
check(bench("--threads", "none", venv="/nowhere").returncode != 0, "--threads none is accepted")


# --- bars: each belongs to an entry on the makes that it is for, and names the make where they differ
def rows_of(make):
    everything = works.Works(build / "bench/ours", rivals.Rivals(source, dry=True), False, [1, 2], make)
    timed = [(r.work, r.format, r.rival) for threads in (1, 2) for g in everything.groups(threads) for r in g.rows]
    return set(timed) | {(r["work"], r["format"], r["rival"]) for r in everything.memory(dry=True)}


check(len(bars.BAR_OF) == len(bars.BARS), "an entry has two bars")
rows = {make: rows_of(make) for make in bars.MAKES}
for key, of_makes in bars.BAR_OF.items():
    check(len(of_makes) == len(bars.MAKES) and set(of_makes) != {None}, "a bar for no processor:", *key)
    for make, bar in zip(bars.MAKES, of_makes):
        check(bar is None or key in rows[make], "no entry for the bar of", *key, "on", make)
sgemm = ("matmul 1024x1024x1024, any mantissas", "flex16+5", "best sgemm")
check(bars.bar_of(*sgemm, "tiles") == (4.0, "tiles"), bars.bar_of(*sgemm, "tiles"))
check(bars.bar_of(*sgemm, "Zen 5") == (1.2, "Zen 5"), bars.bar_of(*sgemm, "Zen 5"))
check(bars.bar_of(*sgemm[:2], "nobody", "tiles") == (None, ""), "a bar where there is none")
same = ("convert fp32 to fp16, 2^25 elements", "fp16", "memcpy")
check(bars.bar_of(*same, "other") == (0.85, ""), bars.bar_of(*same, "other"))
for text, make in (
    ("vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t: avx512f\n", "Zen 5"),
    ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t: avx512f\n", "other"),
    ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t: avx512f amx_int8\n", "tiles"),
    ("", "other"),
):
    check(bars.make_of(text) == make, "the make of", repr(text), "is", bars.make_of(text))
text = report.verdict({"bar": 4.0, "bar_for": "tiles", "met": True})
check(text == ">= 4.00 (tiles) met", text)


# --- class fast: by whatever kernels it chooses on this processor
def worker(*lines):
    ours = str(build / "bench/ours")
    return subprocess.run([ours], input="\n".join([*lines, "quit\n"]), capture_output=True, text=True).stdout.split(
        "\n"
    )


for work in (
    "matmul bf16:fast gauss 32 32 32",
    "conv bf16:fast 2 8 8 16 16 3 1 1 1 fdw",
    "conv flex16+5 2 8 8 16 16 3 1 1 16 fdw",
    "attention fp32 2 2 8 4",
    "layernorm bf16 8 16",
    "softmax flex16+5 8 16",
    "gelu fp32 8 16",
    "busy matmul fp32 gauss 32 32 32",
    "step bf16:fast resnet20 2",
    "step flex16+5 lstm-char 1",
    "evaluate flex16+5 resnet20 2",
):
    answer = worker("prepare " + work, "run")
    check(answer[0] == "ready" and float(answer[1]) > 0, work, answer)
check(worker("prepare step bf16 nonet 2")[0].startswith("skip"), "a model that does not exist")
check(worker("prepare step bf16:slow resnet20 2")[0].startswith("skip"), "a class that does not exist")
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
