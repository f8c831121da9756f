#!/usr/bin/env python3
"""Initial weights of a file: a network of one format is trained on in others. What a step of rate nearly zero leaves is what
`flexlab eval` says of the file; reports, merging, going on, and what is refused.

    test_cli_weights.py PATH-OF-FLEXLAB SOURCE"""
import os
import signal
import subprocess
import sys
import tempfile

from cli_harness import PROGRAM, check, expect_error, read_lines, succeed, summary

DATA = ["--model", "mlp2", "--data", "synthetic:train=600,test=200", "--batch", "20"]
FORMATS = ["fp32", "fp16", "fp16:nomaster", "bf16", "flex16+5", "dfp16"]
STILL = ["--epochs", "1", "--max-steps", "2", "--lr", "1e-30", "--weight-decay", "0", "--quiet"]


def last_epoch(folder, name):
    return [line for line in read_lines(folder) if line["type"] == "epoch" and line["format"] == name][-1]


def evaluated(file):
    words = succeed("eval", "--checkpoint", file, "--data", DATA[3]).stdout.split()
    return [float(words[words.index(w) + 1]) for w in ("loss", "accuracy")]


def test_other_formats(place):
    for source in ("fp32", "bf16", "flex16+5", "dfp16"):
        trained = os.path.join(place, "trained-" + source)
        succeed("train", *DATA, "--format", source, "--epochs", "4", "--lr", "0.02", "--quiet", "--out", trained)
        network = os.path.join(trained, "last.safetensors")
        loss, accuracy = evaluated(network)
        check(accuracy > 0.2, source, "learns nothing:", accuracy)
        out = os.path.join(place, "from-" + source)
        succeed("compare", *DATA, *STILL, "--formats", ",".join(FORMATS), "--policy", "O1,O2,dfp16", "--weights", network, "--out", out)
        for name in [*FORMATS, "policy:O1", "policy:O2", "policy:dfp16"]:
            found = last_epoch(out, name)
            # fp32 keeps fp32 as it is; int32 mantissas lose a part in 2^24 in it, and running means move in two steps
            check(abs(found["test_loss"] - loss) < (1e-6 if name == source == "fp32" else 0.02) * loss, source, "to", name, found["test_loss"], loss)
            check(abs(found["test_accuracy"] - accuracy) <= 0.02, source, "to", name, found["test_accuracy"], accuracy)
        check(read_lines(out)[0]["weights"] == network, read_lines(out)[0].get("weights"))
        with open(os.path.join(out, "report.html")) as file:
            page = file.read()
        check("Initial weights" in page and network in page, "report.html does not tell of", network)
    # Without them the networks are where they begin.
    out = os.path.join(place, "random")
    succeed("compare", *DATA, *STILL, "--formats", "fp32", "--seed-base", "2", "--out", out)
    check(read_lines(out)[0]["weights"] is None and last_epoch(out, "fp32")["test_loss"] > 1.05 * loss, last_epoch(out, "fp32"), loss)
    done = succeed("report", os.path.join(place, "from-fp32"), out, "--out", os.path.join(place, "both"), status=1)
    check("file of initial weights is" in done.stderr, done.stderr)


def test_goes_on(place):
    """The file is not wanted any more by runs that have begun."""
    source = os.path.join(place, "source.safetensors")
    with open(os.path.join(place, "trained-fp32", "best.safetensors"), "rb") as file:
        content = file.read()
    with open(source, "wb") as file:
        file.write(content)
    options = ["compare", *DATA, "--epochs", "12", "--lr", "0.01", "--formats", "fp16,flex16+5", "--weights", source, "--threads", "1"]
    whole, pieces = os.path.join(place, "whole"), os.path.join(place, "pieces")
    succeed(*options, "--quiet", "--out", whole)
    child = subprocess.Popen([PROGRAM, *options, "--out", pieces], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    seen = set()
    for line in child.stderr:
        seen |= {line.split()[1]} if "epoch" in line else set()
        if len(seen) == 2:
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    os.remove(source)
    if child.returncode == 130:
        succeed("compare", "--resume", pieces, "--quiet")
    check(last_epoch(whole, "flex16+5")["test_loss"] == last_epoch(pieces, "flex16+5")["test_loss"], "other losses")
    check(last_epoch(whole, "fp16")["train_loss"] == last_epoch(pieces, "fp16")["train_loss"], "other losses")
    expect_error(["compare", "--resume", pieces, "--weights", source], 2, "--weights: not with --resume")


def test_refusals(place):
    out = os.path.join(place, "refused")
    good = os.path.join(place, "trained-fp32", "best.safetensors")
    expect_error(["train", *DATA, "--weights", "/nowhere/file", "--out", out], 1, "--weights '/nowhere/file'", "No such file")
    expect_error(["train", *DATA, "--weights", place, "--out", out], 1, f"--weights '{place}'")
    expect_error(["train", "--model", "cnn6", *DATA[2:], "--weights", good, "--out", out], 1, good, "has no tensor 'conv1.weight'", "[32, 3, 3, 3]")
    expect_error(["compare", "--model", "mlp3x64", *DATA[2:], "--weights", good, "--out", out], 1, good, "'fc1.weight'")
    cut = os.path.join(place, "cut.safetensors")
    with open(good, "rb") as file, open(cut, "wb") as short:
        short.write(file.read()[:-3])
    expect_error(["compare", *DATA, "--weights", cut, "--out", out], 1, cut)
    check(not os.path.exists(out), "what was refused left", out)


def main():
    with tempfile.TemporaryDirectory() as place:
        test_other_formats(place)
        test_goes_on(place)
        test_refusals(place)
    return summary()


sys.exit(main())
