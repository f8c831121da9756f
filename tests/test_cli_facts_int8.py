#!/usr/bin/env python3
"""flexlab facts int8 from end to end: a network trained by `flexlab train`, whose fp32 line is what `flexlab eval` finds, int8
beside it, and what a network that has learnt nothing is told.
usage: test_cli_facts_int8.py FLEXLAB SOURCE_DIR"""
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

        # a network of other classes than the labels have
        again = run("facts", "int8", "--data", "synthetic:train=3200,test=50", "--network", network)
        check(again.returncode == 1 and "NOT AS SAID" in again.stdout, again.stdout, again.stderr)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
