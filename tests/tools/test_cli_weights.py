#!/usr/bin/env python3
"""Initial weights of a file: training continues from a network of one format in others. After a step at a rate of
nearly zero, losses are those that `flexlab eval` prints for the file; reports, merging, resuming, and what is refused.

    test_cli_weights.py PATH-OF-FLEXLAB SOURCE"""
import itertools
import json
import math
import os
import signal
import struct
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
            # fp32 preserves fp32; int32 mantissas lose a part in 2^24 in it, and running means change in two steps
            check(abs(found["test_loss"] - loss) < (1e-6 if name == source == "fp32" else 0.02) * loss, source, "to", name, found["test_loss"], loss)
            check(abs(found["test_accuracy"] - accuracy) <= 0.02, source, "to", name, found["test_accuracy"], accuracy)
        check(read_lines(out)[0]["weights"] == network, read_lines(out)[0].get("weights"))
        with open(os.path.join(out, "report.html")) as file:
            page = file.read()
        check("Initial weights" in page and network in page, "report.html does not tell of", network)
    # Without them the networks have their initial weights.
    out = os.path.join(place, "random")
    succeed("compare", *DATA, *STILL, "--formats", "fp32", "--seed-base", "2", "--out", out)
    check(read_lines(out)[0]["weights"] is None and last_epoch(out, "fp32")["test_loss"] > 1.05 * loss, last_epoch(out, "fp32"), loss)
    done = succeed("report", os.path.join(place, "from-fp32"), out, "--out", os.path.join(place, "both"), status=1)
    check("file of initial weights is" in done.stderr, done.stderr)


def test_goes_on(place):
    """Runs that have begun no longer need the file."""
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


def expect_misfits(arguments, file, *parts):
    """Checks that all mismatches are listed below one line that counts them."""
    done = succeed(*arguments, status=1)
    check(done.stdout == "" and done.stderr.startswith(f"flexlab {arguments[0]}: --weights '{file}': of the "), done.stderr)
    for part in parts:
        check(part in done.stderr, done.shown, "wants", repr(part), "in", done.stderr)


# --- weights of another program -------------------------------------------------------------------------------------------------------

def read_tensors(path):
    """{name: (type, shape, bytes)} and the notes, with nothing but the standard library."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    notes = header.pop("__metadata__", {})
    return {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}, notes


def write_tensors(path, tensors, notes=None):
    header, at = {"__metadata__": notes} if notes else {}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def permuted(tensor, order):
    """A tensor with its dimensions in that order, with elements of any type."""
    kind, shape, data = tensor
    size = len(data) // math.prod(shape)
    strides = [size * math.prod(shape[d + 1:]) for d in range(len(shape))]
    places = itertools.product(*(range(shape[d]) for d in order))
    starts = (sum(i * strides[d] for i, d in zip(place, order)) for place in places)
    return kind, [shape[d] for d in order], b"".join(data[s:s + size] for s in starts)


def test_foreign(place):
    """Filters that another program stores as [out, in, height, width] fit if the sizes are equal: a warning says so."""
    cnn, out = ["--model", "cnn6", *DATA[2:]], os.path.join(place, "foreign")
    trained = os.path.join(place, "cnn")
    succeed("train", *cnn, "--format", "fp32", "--max-steps", "2", "--quiet", "--out", trained)
    own = os.path.join(trained, "last.safetensors")
    listed = [line.split() for line in succeed("info", "cnn6").stdout.splitlines()[3:-4]]
    names = [line[0] for line in listed]
    check(len(names) == 24 and names[0] == "conv1.weight" and "out, height, width, in" in " ".join(listed[0]), listed)
    # The same network as a program, by its own normalisation.
    shown = succeed("eval", own, "--data", DATA[3], "--formats", "fp32,flex16+5").stdout
    expected = succeed("eval", "--checkpoint", own, "--data", DATA[3]).stdout.split()
    rows = {line.split()[0]: line.split()[1:] for line in shown.splitlines() if line.strip()}
    check(rows["fp32"][0] == f"{100 * float(expected[-1]):.2f}" and "flex16+5" in rows, shown, expected)
    tensors, _ = read_tensors(own)
    plain = {name: tensors[name] for name in names}
    for line, name in zip(listed, names):
        check(str(plain[name][1]) in " ".join(line), "info says", line, "the file", plain[name][1])
    again = [*cnn, *STILL, "--format", "fp32", "--force", "--out", out]
    check(succeed("train", *again, "--weights", own).stderr == "", "a checkpoint is doubted")
    loss = last_epoch(out, "fp32")["test_loss"]
    file = os.path.join(place, "plain.safetensors")
    write_tensors(file, plain)
    told = succeed("train", *again, "--weights", file).stderr
    check("WARNING: the shape of conv1.weight [32, 3, 3, 3] (out, height, width, in) fits in more than one layout" in told
          and "conv2" not in told and "flexlab.layouts=1" in told, told)
    check(last_epoch(out, "fp32")["test_loss"] == loss, "other weights from", file)
    write_tensors(file, plain, {"flexlab.layouts": "1"})
    check(succeed("train", *again, "--weights", file).stderr == "", "a file that says its layouts is doubted")
    write_tensors(file, {**plain, "extra.weight": ("F32", [2], bytes(8))}, {"flexlab.layouts": "1"})
    told = succeed("train", *again, "--weights", file).stderr
    check("1 tensor of the file belongs to no tensor of cnn6 and is left out:\n  superfluous  extra.weight [2]" in told, told)
    other = {n: permuted(t, (0, 3, 1, 2)) if len(t[1]) == 4 else permuted(t, (1, 0)) if len(t[1]) == 2 else t for n, t in plain.items()}
    kind, shape, data = permuted((other["fc1.weight"][0], [4, 4, 64, 128], plain["fc1.weight"][2]), (3, 2, 0, 1))
    write_tensors(file, {**other, "fc1.weight": (kind, [128, 1024], data)})
    told = succeed("train", *again, "--weights", file).stderr  # shapes that are PyTorch's alone, none that is ours alone
    check("WARNING: the shape of conv1.weight [32, 3, 3, 3] (out, in, height, width) fits in more than one layout" in told, told)
    check(last_epoch(out, "fp32")["test_loss"] == loss, "other weights from PyTorch's layout")
    names = {n: n.replace(".gamma", ".weight").replace(".beta", ".bias").replace("_variance", "_var") for n in other}
    write_tensors(file, {names[n]: t for n, t in {**other, "fc1.weight": (kind, [128, 1024], data)}.items()})
    check(succeed("train", *again, "--weights", file).stderr == "", "PyTorch's names leave a doubt")
    check(last_epoch(out, "fp32")["test_loss"] == loss, "other weights by PyTorch's names")
    write_tensors(file, {**plain, "conv2.weight": other["conv2.weight"], "fc2.weight": other["fc2.weight"]})
    expect_misfits(["train", *again, "--weights", file], file, "0 are missing in the file and 2 have another shape; 0 of the file's",
                   "  other shape  conv2.weight [32, 32, 3, 3], expected [32, 3, 3, 32] (out, height, width, in)",
                   "  other shape  fc2.weight [10, 128], expected [128, 10] (in, out)")
    back = {n: permuted(t, (0, 2, 3, 1)) if len(t[1]) == 4 else permuted(t, (1, 0)) if len(t[1]) == 2 else t for n, t in other.items()}
    check(back == plain, "turned there and back")
    conv1 = {**plain, "conv1.weight": other["conv1.weight"]}
    write_tensors(file, conv1)
    check("WARNING" in succeed("train", *again, "--weights", file).stderr, "a turned filter goes in without a word")
    check(last_epoch(out, "fp32")["test_loss"] != loss, "it makes no difference")
    expect_error(["eval", "--checkpoint", file, "--data", DATA[3]], 1, file, "not a network of 'flexlab train'", "another program", "--weights")
    saved = os.path.join(place, "saved.safetensors")
    write_tensors(saved, plain, {"flexlab.checkpoint": "1"})
    expect_error(["eval", "--checkpoint", saved, "--data", DATA[3]], 1, saved, "nn_checkpoint_save has written")
    expect_error(["info", "cnn7"], 2, "cnn7", "cnn6")
    expect_error(["info", "cnn6", "mlp2"], 2, "unexpected argument 'mlp2'")


def test_real(place):
    """ResNet-20 of another program, if FLEXLAB_DATA has it."""
    real = os.path.join(os.environ.get("FLEXLAB_DATA", ""), "resnet20-cifar10.safetensors")
    if not os.path.exists(real):
        print("the real weights are left out: FLEXLAB_DATA names no folder with resnet20-cifar10.safetensors")
        return
    out = os.path.join(place, "real")
    told = succeed("train", "--model", "resnet20", *DATA[2:], *STILL, "--format", "fp32", "--weights", real, "--out", out).stderr
    check(told == "", told)
    expect_misfits(["train", "--model", "resnet32", *DATA[2:], "--format", "fp32", "--weights", real, "--out", out + "32"], real,
                   "of the 157 tensors of resnet32 60 are missing in the file", "missing      layer3.4.bn2.running_var [64] (channels)")
    expect_error(["eval", "--checkpoint", real, "--data", DATA[3]], 1, real, "not a network of 'flexlab train'", "PyTorch")


def test_refusals(place):
    out = os.path.join(place, "refused")
    good = os.path.join(place, "trained-fp32", "best.safetensors")
    expect_error(["train", *DATA, "--weights", "/nowhere/file", "--out", out], 1, "--weights '/nowhere/file'", "No such file")
    expect_error(["train", *DATA, "--weights", place, "--out", out], 1, f"--weights '{place}'")
    expect_misfits(["train", "--model", "cnn6", *DATA[2:], "--weights", good, "--out", out], good,
                   "of the 24 tensors of cnn6 20 are missing in the file and 1 has another shape; 0 of the file's are superfluous:",
                   "  missing      conv1.weight [32, 3, 3, 3] (out, height, width, in)", "  missing      bn4.running_variance [64] (channels)",
                   "  other shape  fc1.weight [3072, 128], expected [1024, 128] (in, out)")
    expect_misfits(["compare", "--model", "mlp3x64", *DATA[2:], "--weights", good, "--out", out], good, "other shape  fc1.weight")
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
        test_foreign(place)
        test_real(place)
    return summary()


sys.exit(main())
