#!/usr/bin/env python3
"""Texts on the command line: the output of a comparison against a recount from its own predictions and the file; a
report drawn again; a training stopped and resumed; eval; what is refused; the memory that a long text takes. usage:
test_cli_text.py PATH-OF-FLEXLAB SOURCE"""
import math
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

from cli_harness import PROGRAM, check, expect_error, read_csv, read_lines, run, succeed, summary, without_time

CONTEXT, BATCH, VOWELS = 16, 4, "aeiou"
MODEL = ["--model", "gpt1x32", "--context", str(CONTEXT), "--batch", str(BATCH), "--epochs", "2"]


def words(count, seed):
    """Consonant, vowel, vowel or nothing, space; sometimes with a letter of two bytes."""
    draw = random.Random(seed)
    text = ""
    while len(text) < count:
        text += draw.choice("bdklmnprst") + draw.choice(VOWELS) + draw.choice(["", "i", "ö"]) + " "
    return text[:count]


def targets(text, units):
    """The tokens that the sequences of the test split, its last tenth, predict."""
    tokens = list(text.encode()) if units == "bytes" else [sorted(set(text)).index(c) for c in text]
    test = tokens[len(tokens) - len(tokens) // 10:]
    return test[1:1 + (len(test) - 1) // CONTEXT * CONTEXT]


def compares(folder, text):
    for units in ("bytes", "characters"):
        out, again = folder / units, folder / f"{units}-again"
        spec = f"text:{folder / 'book.txt'},unit={units}"
        done = succeed("compare", *MODEL, "--data", spec, "--formats", "fp32,flex16+5", "--out", str(out))
        lines = read_lines(out)
        wanted = targets(text, units)
        size = len(text.encode()) if units == "bytes" else len(text)
        data = lines[0]["data"]
        check(data["context"] == CONTEXT and data["train"] == size - size // 10 and data["test"] == size // 10 and
              data["classes"] == (256 if units == "bytes" else len(set(text))), data)
        check(lines[0]["optimizer"] == "adamw" and lines[0]["rate"] == 0.001 and lines[0]["augment"], lines[0])
        check(lines[0]["steps_per_epoch"] == (data["train"] - CONTEXT) // CONTEXT // BATCH, lines[0]["steps_per_epoch"])
        runs = {line["format"]: line for line in lines if line["type"] == "run"}
        for line in lines:
            if line["type"] != "predictions":
                continue
            right = sum(p == t for p, t in zip(line["classes"], wanted))
            check(len(line["classes"]) == len(wanted), units, len(line["classes"]), len(wanted))
            check(abs(runs[line["format"]]["test_accuracy"] - right / len(wanted)) < 1e-12, line["format"], right)
        for name, line in runs.items():
            check(line["first_loss"] > 0.9 * math.log(data["classes"]), name, line["first_loss"])
            check(line["test_loss"] < 0.9 * line["first_loss"], name, line["test_loss"], line["first_loss"])
            bits = f"{line['test_loss'] / math.log(2):.4f}"
            check(bits in done.stdout and f"bits/{units[:-1]}" in done.stdout, bits, done.stdout)
        check("tokens/s" in done.stdout and "img/s" not in done.stdout, done.stdout)
        rows = {row["format"]: row for row in read_csv(out, "summary.csv")}
        check(float(rows["fp32"]["test_loss_mean"]) == runs["fp32"]["test_loss"], rows)
        page = (out / "report.html").read_text()
        check("<h1>gpt1x32 on book.txt</h1>" in page and f"fp32 reached a test loss of {runs['fp32']['test_loss']:.4f}. Against it: flex16+5 " in page, "the sentence of the results")
        check("test tokens of a vocabulary of" in page and "images" not in page, "report.html tells of images")
        succeed("report", str(out), "--out", str(again))
        check((again / "report.html").read_bytes() == (out / "report.html").read_bytes(), "another report")


def stopped(folder, *arguments):
    """Kills the training after its first checkpoint; returns whether there was one before it was over."""
    child = subprocess.Popen([PROGRAM, *arguments, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while child.poll() is None and not (folder / "flexlab.resume" / "resume.safetensors").exists():
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    return child.wait() != 0


def goes_on(folder):
    spec = f"text:{folder / 'book.txt'},unit=characters"
    arguments = ["train", *MODEL, "--data", spec, "--format", "dfp16", "--checkpoint-every", "3"]
    whole, part = folder / "whole", folder / "part"
    succeed(*arguments, "--out", str(whole))
    if stopped(part, *arguments, "--out", str(part)):
        succeed("train", "--resume", str(part))
    for name in ("best.safetensors", "last.safetensors"):
        check((whole / name).read_bytes() == (part / name).read_bytes(), name, "differs")
    first, second = [[without_time(line) for line in read_lines(out)[1:]] for out in (whole, part)]
    check(first == second, "metrics differ")
    done = succeed("eval", "--checkpoint", str(whole / "last.safetensors"), "--data", spec)
    told = dict(line.split() for line in done.stdout.splitlines()[1:])
    run_line = [line for line in first if line["type"] == "run"][0]
    check(abs(float(told["loss"]) - run_line["test_loss"]) < 1e-8, told, run_line["test_loss"])
    check(abs(float(told["bits"]) - run_line["test_loss"] / math.log(2)) < 1e-8, told)
    check(abs(float(told["perplexity"]) / math.exp(run_line["test_loss"]) - 1) < 1e-8, told)
    check(abs(float(told["accuracy"]) - run_line["test_accuracy"]) < 1e-8, told)
    return whole / "last.safetensors"


def refuses(folder, network):
    book, out = f"text:{folder / 'book.txt'}", ["--out", str(folder / "none")]
    expect_error(["train", "--model", "gpt", *out], 2, "images, but the model gpt reads texts")
    expect_error(["train", "--model", "mlp2", "--data", book, *out], 2, "a text, but the model mlp2 reads images",
                 "--model gpt")
    expect_error(["train", "--model", "mlp2", "--context", "8", *out], 2, "--context 8: only for texts")
    expect_error(["train", "--model", "gpt1x33", "--data", book, *out], 2, "--model", "a multiple of 32")
    expect_error(["train", "--model", "gpz", "--data", book, *out], 2, "--model")
    expect_error(["train", *MODEL, "--data", book, "--batch", "5000", *out], 2, "--batch 5000", "sequences")
    expect_error(["train", *MODEL, "--data", book, "--context", "4000", "--batch", "1", *out], 2, "--batch 1")
    expect_error(["train", *MODEL, "--data", book, "--test-limit", "9", *out], 2, "the test text has 9 tokens")
    expect_error(["train", *MODEL, "--data", book, "--train-limit", "999999", *out], 2, "tokens")
    expect_error(["train", *MODEL, "--data", f"{book}.none", *out], 1, "No such file")
    check(not (folder / "none").exists(), "something was written")
    expect_error(["eval", "--checkpoint", str(network), "--data", "synthetic"], 2, "images, but gpt1x32", "reads texts")
    expect_error(["eval", "--checkpoint", str(network), "--data", book], 1, "are not those of the network")
    (folder / "other.txt").write_text("xyz" * 100)
    expect_error(["eval", "--checkpoint", str(network), "--data", f"text:{folder / 'other.txt'},unit=characters"], 1,
                 "are not those of the network")


def peak_of_training(path, units, size):
    """The most memory, in bytes, that a training of one step on a text of `size` bytes has at a time."""
    piece = words(1 << 16, 3).encode()
    with open(path, "wb") as file:
        for _ in range(size // len(piece)):
            file.write(piece)
    arguments = ["--model", "gpt1x32", "--context", "512", "--batch", "1", "--max-steps", "1", "--test-limit", "600", "--no-checkpoint"]
    child = subprocess.Popen([PROGRAM, "train", *arguments, "--data", f"text:{path},unit={units}", "--quiet", "--force", "--out", f"{path}.run"],
                             stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    check(child.returncode == 0, path, units, size, "status", child.returncode)
    return used.ru_maxrss * 1024


def takes_little_memory(folder):
    """A byte of a text takes a byte, and 1/64 for the order of its sequences."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
    if run("info", prepare=limit).returncode:
        print("the memory of a text: left out, this program needs more than 600 MiB without one (a sanitizer)")
        return
    short, long = 1 << 20, 32 << 20
    for units in ("bytes", "characters"):
        before, after = [peak_of_training(folder / "long.txt", units, size) for size in (short, long)]
        check((after - before) / (long - short) < 1.4, units, f"{short} bytes take {before}, {long} take {after}")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = words(4000, 7)
        (folder / "book.txt").write_text(text)
        compares(folder, text)
        refuses(folder, goes_on(folder))
        takes_little_memory(folder)
    return summary()


sys.exit(main())
