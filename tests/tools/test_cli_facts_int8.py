#!/usr/bin/env python3
"""flexlab facts int8 from end to end: a network trained by `flexlab train`, whose fp32 line is what `flexlab eval` finds, int8
beside it, and what a network that has learnt nothing is told.
usage: test_cli_facts_int8.py FLEXLAB SOURCE_DIR"""
import json
import math
import os
import random
import re
import struct
import sys
import tempfile

from cli_harness import check, run, succeed, summary

SIDE, CLASSES, TRAIN, TEST = 8, 4, 3200, 250


def write_npy(path, kind, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (kind, ", ".join(map(str, shape)))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def write_images(place, name, count, noise):
    """A brighter quarter says the class, not always loudly."""
    images, labels = bytearray(), bytearray()
    for _ in range(count):
        label, colour = random.randrange(CLASSES), [random.randrange(0, 70) for _ in range(3)]
        labels.append(label)
        for y in range(SIDE):
            for x in range(SIDE):
                lit = label == 2 * (y >= SIDE // 2) + (x >= SIDE // 2)
                images += bytes(min(255, max(0, int(60 + (c if lit else 0) + random.gauss(0, noise)))) for c in colour)
    write_npy(os.path.join(place, f"{name}-images.npy"), "|u1", (count, SIDE, SIDE, 3), bytes(images))
    write_npy(os.path.join(place, f"{name}-labels.npy"), "|u1", (count,), bytes(labels))


def right(line):
    return int(re.search(r": (\d+)\s", line)[1]) if " fp32," in line else int(re.search(r"(\d+) right", line)[1])


def foreign(path, change, blocks=1, classes=10):
    """Akamaster's names, with numbers drawn; `change` is given the tensors: name to (shape, numbers)."""
    tensors = {}

    def convolution(name, norm, filters, channels):
        tensors[name + ".weight"] = ([filters, channels, 3, 3], [random.gauss(0, 0.1) for _ in range(filters * channels * 9)])
        for key, value in (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)):
            tensors[f"{norm}.{key}"] = ([filters], [value] * filters)

    convolution("conv1", "bn1", 16, 3)
    for stage in (1, 2, 3):
        for block in range(blocks):
            filters, at = 8 << stage, f"layer{stage}.{block}"
            convolution(at + ".conv1", at + ".bn1", filters, filters // 2 if stage > 1 and block == 0 else filters)
            convolution(at + ".conv2", at + ".bn2", filters, filters)
    tensors["linear.weight"] = ([classes, 64], [random.gauss(0, 0.1) for _ in range(64 * classes)])
    tensors["linear.bias"] = ([classes], [0.0] * classes)
    change(tensors)
    head, data = {}, bytearray()
    for name, (shape, numbers) in tensors.items():
        begin = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return path


def number(name, value):
    def change(tensors):
        tensors[name][1][1] = value
    return change


def refusals(place):
    """Refused files end the program with status 1, not by a signal, and with a reason."""
    path = os.path.join(place, "other.safetensors")
    for change, *parts in (
            (number("bn1.running_var", -1), "bn1.running_var, element 1: -1"),
            (number("bn1.running_var", math.inf), "bn1.running_var, element 1: inf"),
            (number("conv1.weight", math.nan), "conv1.weight, element 1: nan"),
            (number("linear.bias", math.inf), "linear.bias, element 1: inf"),
            (number("conv1.weight", 3e38), "value of layer 1 is not finite"),
            (lambda t: (number("conv1.weight", 3e38)(t), number("bn1.weight", 9)(t), t["bn1.weight"][1].__setitem__(0, 9)),
             "conv1, element 1 of the normalised weights: 2.69999e+39"),
            (lambda t: t.update({"layer1.18.conv1.weight": ([1], [0.0])} | {f"layer1.{b}.conv1.weight": ([1], [0.0]) for b in range(1, 18)}),
             "layer1.18.conv1.weight", "at most 18 blocks"),
            (lambda t: t.update({"layer3.1.conv1.weight": ([1], [0.0])}), "stage 3 has 2 blocks, expected 1"),
            (lambda t: t.update({"layer2.0.shortcut.0.weight": ([1], [0.0])}), "has layer2.0.shortcut.0.weight", "option A"),
            (lambda t: [t.pop(k) for k in list(t) if k.startswith("layer")], "has no layer1.0.conv1.weight")):
        done = run("facts", "int8", "--data", "synthetic:train=3200,test=20", "--network", foreign(path, change))
        check(done.returncode == 1, parts, done.returncode, done.stderr)
        for part in parts:
            seen = part in done.stderr and not done.stdout  # but what only a run of the network shows
            check(seen or part in done.stdout and "is not finite" in part, part, done.stdout, done.stderr)


def many_classes(place):
    """More classes than a 4x4 image has sums."""
    count, files = 3200, []
    for split in ("many", "few"):
        for kind, dtype, shape, data in (("images", "|u1", (count, 4, 4, 3), random.randbytes(count * 48)),
                                         ("labels", "<i4", (count,), struct.pack(f"<{count}i", *(i % 3000 for i in range(count))))):
            files.append(os.path.join(place, f"{split}-{kind}.npy"))
            write_npy(files[-1], dtype, shape, data)
    done = run("facts", "int8", "--data", "npy:" + ",".join(files), "--network", foreign(os.path.join(place, "wide.safetensors"), lambda t: None, classes=3000))
    check(done.returncode == 1 and done.stdout.count("calibration batches") == 6, done.returncode, done.stdout, done.stderr)


def main():
    random.seed(7)
    with tempfile.TemporaryDirectory() as place:
        write_images(place, "train", TRAIN, 90)
        write_images(place, "test", TEST, 90)
        data = "npy:" + ",".join(os.path.join(place, f"{s}-{k}.npy") for s in ("train", "test") for k in ("images", "labels"))
        out = os.path.join(place, "out")
        succeed("train", "--model", "resnet8", "--format", "fp32", "--data", data, "--epochs", "2", "--batch", "64", "--out", out, "--quiet", "--no-trace")
        network = os.path.join(out, "last.safetensors")
        evaluated = succeed("eval", "--checkpoint", network, "--data", data).stdout
        share = float(re.search(r"accuracy\s+([0-9.]+)", evaluated)[1]) / (100 if "%" in evaluated else 1)
        done = run("facts", "int8", "--data", data, "--network", network)
        lines = [line for line in done.stdout.splitlines() if line.startswith("int8 ")]
        check(len(lines) == 7 and done.returncode == ("NOT AS SAID" in done.stdout), done.stdout, done.stderr)
        fp32 = right(lines[0])
        check(0.6 < share < 0.99, "a set on which something can be lost", share)
        check(abs(fp32 - share * TEST) <= 1.01, "fp32", fp32, "of", TEST, "but eval says", share)
        for line in lines[1:]:
            lost, won = map(int, re.search(r"(\d+) of fp32's lost, (\d+) won", line).groups())
            check(right(line) == fp32 - lost + won, line)
            # the mean and its standard error of TEST numbers that are -1, 0 or 1; its verdict
            mean = (won - lost) / TEST
            error = math.sqrt(((lost + won) / TEST - mean * mean) / (TEST - 1))
            told = re.search(r"([-+][0-9.]+) % \(standard error ([0-9.]+)\)", line)
            check(abs(float(told[1]) - 100 * mean) < 0.006 and abs(float(told[2]) - 100 * error) < 0.006, line, mean, error)
            check(("NOT AS SAID" in line) == (-100 * mean > 0.5 + 200 * error), line)
            # nothing is cut off by the maximum: 127 steps lose little
            check("maximum" not in line or lost + won <= TEST // 25, line)
        check(any(right(line) != fp32 or "0 of fp32's lost" not in line for line in lines[1:]), "int8 is not fp32", lines)

        refusals(place)
        many_classes(place)

        # moments that are no numbers
        with open(network, "rb") as file:
            whole = file.read()
        length = struct.unpack("<Q", whole[:8])[0]
        head = json.loads(whole[8:8 + length])
        for key, value in (("training.mean", "abc"), ("training.mean", "0 nan 0"), ("training.deviation", "1 0 1")):
            changed = {**head, "__metadata__": {**head["__metadata__"], key: value}}
            text = json.dumps(changed).encode()
            text += b" " * (-len(text) % 8)
            with open(os.path.join(place, "moments.safetensors"), "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + whole[8 + length:])
            done = run("facts", "int8", "--data", data, "--network", os.path.join(place, "moments.safetensors"))
            check(done.returncode == 1 and f"{key}: '{value}', expected 3 finite numbers" in done.stderr, done.stdout, done.stderr)

        # a network of other classes than the labels have
        again = run("facts", "int8", "--data", "synthetic:train=3200,test=50", "--network", network)
        check(again.returncode == 1 and "'fc.weight' has 256 elements, expected 640" in again.stderr and not again.stdout, again.stdout, again.stderr)
        for value, status, words in (("nothing", 2, "--data 'nothing': "), ("text:" + __file__, 2, "a text, expected square images"),
                                     ("npy:/nowhere.npy,/nowhere.npy,/nowhere.npy,/nowhere.npy", 1, "/nowhere.npy")):
            done = run("facts", "int8", "--data", value)
            check(done.returncode == status and words in done.stderr and not done.stdout, value, done.returncode, done.stdout, done.stderr)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
