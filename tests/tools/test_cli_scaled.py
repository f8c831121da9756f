#!/usr/bin/env python3
"""FP8 under one scale a tensor on the command line: the presets and trainings wholly in tensor:ELEMENT learn, have the
same bits on every number of threads and instruction set and when they are resumed, and follow the predictor that was
asked for; what is refused. usage: test_cli_scaled.py PATH-OF-FLEXLAB"""
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from cli_harness import PROGRAM, check, expect_error, read_csv, read_lines, succeed, summary, without_time

GPT = ["--model", "gpt1x32", "--context", "16", "--batch", "4", "--epochs", "1"]
RESNET = ["--model", "resnet8", "--data", "synthetic:train=64,test=16", "--batch", "16", "--epochs", "1"]
FORMATS = ["fp8-delayed", "fp8-current", "tensor:e4m3fn", "tensor:e4m3fn:current", "tensor:e5m2:repeat",
           "tensor:e4m3fn:delayed:history=16:margin=1:algo=most_recent"]


def write_book(folder):
    draw = random.Random(5)
    text = "".join(draw.choice("bdklmn") + draw.choice("aeiou") + draw.choice(["", " "]) for _ in range(4000))
    (folder / "book.txt").write_text(text)
    return f"text:{folder / 'book.txt'}"


def runs_of(folder):
    return {line["format"]: without_time(line) for line in read_lines(folder) if line["type"] == "run"}


def train_all(folder, data):
    """All formats in one comparison, on several threads and instruction sets."""
    ways = [("3", {}), ("1", {"FLEXLAB_ISA": "portable"}), ("2", {"FLEXLAB_ISA": "avx2"})]
    for model, name in (([*GPT, "--data", data, "--max-steps", "90"], "gpt"), (RESNET, "resnet")):
        seen = []
        for threads, env in ways[:2] if name == "gpt" else ways[::2]:  # plain C takes long for convolutions
            out = folder / f"{name}-{threads}"
            succeed("compare", *model, "--formats", ",".join(FORMATS), "--threads", threads, "--out", str(out), env=env)
            seen.append(runs_of(out))
        for other in seen[1:]:
            for label, run in seen[0].items():
                other[label].pop("matmul_backend", None)
                run.pop("matmul_backend", None)
                check(other[label] == run, name, label, "on other threads or instructions", run, other[label])
        check(len(seen[0]) == len(FORMATS), seen[0].keys())
        for label, run in seen[0].items():
            check(run["nonfinite"] == 0 and (name == "resnet" or run["last_loss"] < 0.8 * run["first_loss"]), name, label,
                  run["first_loss"], run["last_loss"])
    check("tensor:e4m3fn:delayed" in str(read_lines(folder / "gpt-1")[0]), "the policy names its predictors")


def exponents(folder, data):
    """A training under each predictor: exponents of the traces are those that its rule chooses from the maxima."""
    out = folder / "traced"
    succeed("train", *GPT, "--data", data, "--format", "tensor:e4m3fn:delayed:history=1:margin=1", "--max-steps", "30",
            "--trace-every", "1", "--out", str(out))
    traces = [f for f in os.listdir(out) if f.startswith("trace-")]
    check(len(traces) == 1, traces)
    last, checked = {}, 0
    for row in read_csv(out, traces[0]):
        name, maximum, e = row["tensor"], float(row["maximum"]), int(row["e"])
        if name in last and last[name] > 0 and row["role"] in ("activation", "gradient"):
            want = 120
            while want > -113 and 2 * last[name] * 2.0 ** want > 448:
                want -= 1
            near = any(abs(2 * last[name] * 2.0 ** k / 448 - 1) < 1e-6 for k in (want, want + 1))
            check(e == want or near, name, "at", e, "expected", want, "for", last[name])
            checked += 1
        last[name] = maximum
    check(checked > 300, checked, "rows")
    shown = succeed("replay", str(out / traces[0]), "--predictors", "delayed:history=1:margin=1,current").stdout
    for line in shown.splitlines():  # the predictor of the training chooses the recorded exponents again
        if line.startswith("delayed:history=1:margin=1") and re.search(r"  (activation|gradient|weight gradient)  ", line):
            check(float(line.split()[-1]) > 99, line)


def evaluated(folder):
    """Networks as they were saved, at the exponents of their training, and one of fp32 brought into FP8 are close to fp32."""
    for label, formats in (("tensor:e4m3fn", []), ("flex8+5", []), ("fp32", ["--formats", "fp32,tensor:e4m3fn,tensor:e3m4"])):
        out = folder / f"saved-{label.replace(':', '-')}"
        succeed("train", *RESNET, "--format", label, "--out", str(out))
        shown = succeed("eval", str(out / "last.safetensors"), "--data", RESNET[3], *formats).stdout
        rows = {line.split("  ")[0]: line.split() for line in shown.splitlines() if "%" in line}
        for name in ["as saved"] if not formats else ["tensor:e4m3fn", "tensor:e3m4"]:
            check(name in rows and float(rows[name][-3]) > 15, label, name, rows.get(name))
        if formats:
            check(float(rows["tensor:e3m4"][-3]) > float(rows["tensor:e4m3fn"][-3]), rows)


def resumed(folder, data):
    for number, label in enumerate(FORMATS[:3]):
        whole, pieces = folder / f"whole{number}", folder / f"pieces{number}"
        common = ["train", *GPT, "--epochs", "2", "--data", data, "--format", label, "--optimizer", "adamw"]
        succeed(*common, "--out", str(whole))
        command = [*common, "--checkpoint-every", "5", "--out", str(pieces)]
        child = subprocess.Popen([PROGRAM, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(3000):
            if (pieces / "resume.safetensors").exists() or child.poll() is not None:
                break
            time.sleep(0.002)
        child.send_signal(signal.SIGKILL)
        child.wait()
        if child.returncode == -signal.SIGKILL:
            succeed("train", "--resume", "--out", str(pieces))
        a, b = runs_of(whole), runs_of(pieces)
        check(a == b and a, label, a, b)


def refused(folder, data):
    base = ["train", *GPT, "--data", data, "--max-steps", "1", "--out", str(folder / "none"), "--format"]
    for label, *parts in (("tensor:e8m3", "character 9 is '8m3'", "at most 7 exponent bits"),
                          ("tensor:e4m3fx", "character 12 is 'fx'"),
                          ("tensor:e4m3fn:delayed:history=17", "character 17 is '17'", "a multiple of 16"),
                          ("tensor:e4m3fn:delayed:algo=min", "expected max or most_recent"),
                          ("tensor:e4m3fn:delay", "unknown suffix 'delay'"),
                          ("e4m3fn:delayed", "no shared exponent"),
                          ("variant bf16; @product operands=tensor:e4m3fn:delayed:margin=40 result=bf16;",
                           "line", "operands", "character 16 is '40'", "from 0 to 32")):
        expect_error([*base, label], 2, *parts)
    expect_error([*base, "variant bf16; @product operands=tensor:e4m3fn gradient-operands=dfp8 result=bf16;"], 1,
                 "expected two formats of one kind")
    expect_error([*base, "fp8-delayed", "--predictor", "delayed:history=0"], 2, "character 17 is '0'")
    expect_error(["replay", str(folder / "traced" / "none.csv"), "--predictors", "delayed:margin=x"], 2, "character 16 is 'x'")


def main():
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        data = write_book(folder)
        train_all(folder, data)
        exponents(folder, data)
        evaluated(folder)
        resumed(folder, data)
        refused(folder, data)
    return summary()


sys.exit(main())
