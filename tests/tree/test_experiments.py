#!/usr/bin/env python3
"""docs/experiments: the tables of a page are those that its script makes of the committed files, and the programs that
the scripts run do what the pages say of them.
usage: test_experiments.py SOURCE_DIR FOLDER_OF_EXAMPLES"""
import csv
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

source, examples = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
pages = source / "docs" / "experiments"
failures = 0


def check(good, *what):
    global failures
    if not good:
        failures += 1
        print("FAILED:", *what, file=sys.stderr)


def program(name, *arguments):
    return subprocess.run([examples / f"example_{name}", *map(str, arguments)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=dict(os.environ, OMP_WAIT_POLICY="passive"))


# Pages and scripts, in a copy, for the scripts draw their figures beside them.
scripts = sorted(p for p in pages.glob("*.py") if p.name != "lab.py")
check(len(scripts) >= 1, "no scripts in", pages)
with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder) / "experiments"
    shutil.copytree(pages, copy)
    for script in scripts:
        page = (pages / f"{script.stem.replace('_', '-')}.md").read_text(encoding="utf-8")
        made = subprocess.run([sys.executable, copy / script.name], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(os.environ, PYTHONIOENCODING="utf-8"))
        check(made.returncode == 0, script.name, made.stderr)
        lines = [line for line in made.stdout.splitlines() if line.startswith("| ")]
        check(len(lines) > 4, script.name, "prints no tables")
        for line in lines:
            check(line in page.splitlines(), f"{script.name} makes a line that is not in its page:", line)
        for name in set(made.stdout.split()) | {script.name}:
            check(not name.startswith("/") or name == "/", script.name, "names a path:", name)
        used = [word for word in script.read_text(encoding="utf-8").split("'") if word.endswith(".svg")]
        for picture in used:
            check(picture in page and (pages / picture).is_file(), picture, "is not of its page")
for table in sorted((pages / "data").glob("*.csv")):
    text = table.read_text(encoding="utf-8")
    rows = list(csv.reader(text.splitlines()))
    check(len(rows) > 1 and len({len(row) for row in rows}) == 1, table.name, "is no table")
    check("/" not in text, table.name, "has a path in it")

# One weight 256 times as large as the largest: no update of another is left of int16 weights under one exponent, of fp16
# as many as without it, of a wide weight nearly all.
made = {}
for variant, factor in (("fp32", 0), ("fp16:nomaster", 0), ("fp16:nomaster", 256), ("dfp16:nomaster", 0),
                        ("dfp16:nomaster", 256), ("dfp16", 256)):
    done = program("outlier_weight", variant, factor)
    cells = done.stdout.strip().split(",")
    check(done.returncode == 0 and len(cells) == 6 and cells[:2] == [variant, str(factor)], done.stdout, done.stderr)
    if len(cells) == 6:
        made[variant, factor] = int(cells[4]) / int(cells[3])
if len(made) == 6:
    check(made["fp32", 0] > 0.999 and made["dfp16", 256] > 0.99, made)
    check(made["dfp16:nomaster", 0] > 0.5 and made["dfp16:nomaster", 256] == 0, made)
    check(abs(made["fp16:nomaster", 256] - made["fp16:nomaster", 0]) < 0.02 < made["fp16:nomaster", 0] < 0.95, made)
small = "synthetic:train=64,test=1"
for bad, told in ((("nonsense",), "nonsense"), (("fp32", 0, "nonsense:"), "nonsense"), (("fp32", "4x"), "FACTOR '4x'"),
                  (("fp32", 0, small, 1, 49), "STEPS '49'"), (("fp32", 0, small, "1.5"), "SEED '1.5'"),
                  (("fp32", 0, small, 1, 50, "nan"), "RATE 'nan'")):
    done = program("outlier_weight", *bad)
    check(done.returncode == 1 and "outlier_weight: " in done.stderr and told in done.stderr and not done.stdout, bad, done)

# The flushed values: the program itself compares its counts with those of telemetry. Here: its parts fit together.
done = program("flushed_gradients")
rows = list(csv.DictReader(done.stdout.splitlines()))
check(done.returncode == 0 and len(rows) == 3 * 4 * 2, done.stdout, done.stderr)
for row in rows:
    elements, nonzero, flushed = (int(row[name]) for name in ("elements", "nonzero", "flushed"))
    check(0 < flushed < nonzero <= elements, row)
    check(0 < float(row["norm2_flushed"]) < flushed / nonzero, row)  # they are the smallest
    check(0 < float(row["update_of_flushed"]) < 0.5 and 0 < float(row["update_of_rounding"]) < 0.5, row)
    check(int(row["step"]) == 1 or 0.2 < float(row["other_batch"]) < 5, row)
for bad, told in ((("nonsense:",), "nonsense"), ((small, 1, 10, 0), "EVERY '0'"), ((small, 1, 10, 1), "EVERY '1'"),
                  ((small, 1, 0), "STEPS '0'"), ((small, -1), "SEED '-1'"), ((small, 1, 10, 5, 61), "DOSE '61'")):
    done = program("flushed_gradients", *bad)
    check(done.returncode == 1 and "flushed_gradients: " in done.stderr and told in done.stderr and not done.stdout, bad, done)

# Accumulators: sums of 13 fraction bits lose what those of 25 keep, more with every product, and promotion mends it.
done = program("accumulators", 1, 2048)
error = {(row["format"], row["data"], row["class"].removeprefix("accumulate="), int(row["k"])): float(row["error"])
         for row in csv.DictReader(done.stdout.splitlines())}
check(done.returncode == 0 and len(error) == 4 * 2 * (5 + 3 + 6), done.stdout, done.stderr)
for data in ("normal", "positive"):
    eight = lambda name, k: error.get(("e4m3fn", data, name, k), 0)
    check(eight("h100", 2048) > 4 * eight("h100", 128) > 0, data, "the error does not grow with k")
    check(eight("h100", 2048) > 1000 * eight("exact", 2048) and eight("h100", 2048) > 50 * eight("b200", 2048), data, error)
    check(eight("h100:promote=128", 2048) < eight("h100", 2048) / 2, data, "promotion mends nothing")
for bad, told in (((-1,), "SEED '-1'"), ((1, 31), "LARGEST_K '31'"), ((1, "4x"), "LARGEST_K '4x'")):
    done = program("accumulators", *bad)
    check(done.returncode == 1 and "accumulators: " in done.stderr and told in done.stderr and not done.stdout, bad, done)

sys.exit(failures > 0)
