#!/usr/bin/env python3
"""flexlab diff: where two networks part, on small networks that are written here and whose numbers are computed here.

    test_cli_diff.py PATH-OF-FLEXLAB SOURCE"""
import csv
import math
import os
import struct
import sys
import tempfile
import zipfile

from cli_harness import check, expect_error, run, succeed, summary
from test_cli_programs import draw, floats, node, npy, port, write_model


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def model(path, factor=2.0, name="y", shift=1.0, size=4):
    """y = 4 (factor x + shift), by three nodes."""
    return write_model(path, [node("Mul", ["x", "f"], ["scaled"]), node("Add", ["scaled", "s"], ["moved"]), node("Mul", ["moved", "four"], [name])],
                       [port("x", 1, ["N", size])], [port(name, 1, ["N", size])], [floats("f", [1], [factor]), floats("s", [1], [shift]), floats("four", [1], [4.0])])


def archive(path, **arrays):
    with zipfile.ZipFile(path, "w") as z:
        for name, (shape, values) in arrays.items():
            z.writestr(name + ".npy", npy("<f4", shape, values))
    return path


def differ(*arguments):
    done = run("diff", *arguments)
    check(done.returncode == 1 and not done.stderr, "diff", arguments, "gave", done.returncode, done.stderr)
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as place:
        at = lambda name: os.path.join(place, name)
        a, b = model(at("a.onnx")), model(at("b.onnx"), shift=1.25)
        x = [0.5, -3.0, 2.0, 0.25, -0.5, 1.0, 0.0, -1.0]
        open(at("x.npy"), "wb").write(npy("<f4", (2, 4), x))

        # the same file, the same numbers
        done = succeed("diff", a, a, "--formats", "fp32")
        check("Every bit is the same." in done.stdout and "3 tensors compared" in done.stdout, "one file twice")

        # the sum is the first tensor that differs; products before it do not
        out = differ(a, b, "--input", at("x.npy"), "--all", "--csv", at("d.csv"))
        check("part at tensor 'moved' [2, 4]" in out and "(Add)" in out, "the first tensor", out)
        check("first at [0, 0]: 2 in A, 2.25 in B" in out and "8 of 8 elements differ" in out, "the first element", out)
        rows = {r["tensor"]: r for r in csv.DictReader(open(at("d.csv")))}
        check(list(rows) == ["scaled", "moved", "y"] and rows["scaled"]["differing"] == "0", "rows in the order of A")
        moved = [single(2 * v) + 1 for v in x]
        check(float(rows["moved"]["difference"]) == 0.25 and float(rows["moved"]["largest"]) == max(map(abs, moved)), "the size of the difference")
        check(abs(float(rows["moved"]["relative"]) - 0.25 / max(map(abs, moved))) < 1e-9, "relative to the largest magnitude")
        signal, noise = sum(v * v for v in moved), 8 * 0.25 ** 2
        check(abs(float(rows["moved"]["sqnr_db"]) - 10 * math.log10(signal / noise)) < 1e-3, "SQNR")
        expect_error(["diff", a, b, "--csv", at("d.csv")], 2, "d.csv", "--force")

        # within a tolerance they are the same
        check("more than 0.06" in succeed("diff", a, b, "--input", at("x.npy"), "--tolerance", "0.06").stdout, "tolerance above")
        differ(a, b, "--input", at("x.npy"), "--tolerance", "0.04")

        # a sign of zero is a bit
        minus = model(at("minus.onnx"), factor=-2.0, shift=0.0)
        plus = model(at("plus.onnx"), factor=2.0, shift=0.0)
        open(at("zero.npy"), "wb").write(npy("<f4", (1, 4), [0.0] * 4))
        out = differ(plus, minus, "--input", at("zero.npy"))
        check("tensor 'scaled'" in out and "0 in A, -0 in B" in out, "zero of the other sign", out)
        succeed("diff", plus, minus, "--input", at("zero.npy"), "--tolerance", "1e-9")

        # NaN is like NaN, and unlike a number
        open(at("nan.npy"), "wb").write(npy("<f4", (1, 4), [math.nan, 1, 2, 3]))
        succeed("diff", a, a, "--formats", "fp32", "--input", at("nan.npy"))

        # recorded numbers: the output, a tensor within, inputs
        y = [4 * v for v in moved]
        succeed("diff", a, archive(at("good.npz"), **{"input:x": ((2, 4), x), "output:y": ((2, 4), y), "moved": ((2, 4), moved)}))
        wrong = list(moved)
        wrong[5] += 0.5
        out = differ(a, archive(at("bad.npz"), **{"input": ((2, 4), x), "output": ((2, 4), y), "moved": ((2, 4), wrong)}))
        check("tensor 'moved'" in out and "first at [1, 1]: 3 in A, 3.5 in B" in out and "1 of 8 elements" in out, "recorded numbers", out)
        out = differ(a, archive(at("long.npz"), **{"input": ((2, 4), x), "output": ((2, 3), y[:6])}))
        check("shape [2, 4] in A, [2, 3] in B" in out, "recorded shape", out)
        expect_error(["diff", a, archive(at("none.npz"), **{"input": ((2, 4), x)})], 2, "nothing was compared")
        expect_error(["diff", a, archive(at("alone.npz"), **{"output": ((2, 4), y)})], 2, "has no inputs", "--input")

        # formats, of one file and of two; outputs of other names by their places
        random = differ(a, "--formats", "fp32,bf16")
        check("in fp32" in random and "in bf16" in random and random == differ(a, "--formats", "fp32,bf16"), "random inputs, the same each time")
        check(random == differ(a, "--formats", "fp32,bf16", "--threads", "1"), "threads")
        differ(a, "--formats", "fp32,flex16+5", "--batch", "7")
        named = model(at("named.onnx"), name="z", shift=1.25)
        out = differ(a, named, "--input", at("x.npy"), "--all")
        check("\n3 tensors compared\n" in out, "outputs by place", out)

        # 8-bit integers are compared as numbers, hidden layers included; the network states a batch, of which inputs are a multiple
        perceptron = write_model(
            at("perceptron.onnx"), [node("Gemm", ["x", "v"], ["hidden"], transB=1), node("Relu", ["hidden"], ["bent"]), node("Gemm", ["bent", "w"], ["sum"], transB=1),
                                    node("Sigmoid", ["sum"], ["y"])],
            [port("x", 1, [2, 4])], [port("y", 1, [2, 3])], [floats("v", [5, 4], draw(20, 3)), floats("w", [3, 5], draw(15, 8))])
        open(at("six.npy"), "wb").write(npy("<f4", (6, 4), draw(24, 1)))
        for formats in ("fp32,int8", "int8,fp32", "int8,int8:tensor"):
            out = run("diff", perceptron, "--formats", formats, "--input", at("six.npy"), "--csv", at("i.csv"), "--all", "--force")
            check(out.returncode == 1 and ("not in B" in out.stdout) == (formats == "int8,fp32"), formats, out)
            rows = {r["tensor"].removesuffix(".int8"): r for r in csv.DictReader(open(at("i.csv")))}
            check({"bent", "sum", "y"} <= set(rows), formats, list(rows))
            check(all(rows[name]["elements"] == str(6 * size) for name, size in (("bent", 5), ("sum", 3), ("y", 3))), formats, rows)
            check(formats == "int8,int8:tensor" or 0 < float(rows["bent"]["relative"]) < 0.02, formats, rows["bent"])
        succeed("diff", perceptron, perceptron, "--formats", "int8", "--input", at("six.npy"))

        # six inputs are three parts of the batch of two: a tensor that the other network lacks counts once, as floats and as integers,
        # and an output of another name not at all
        longer = write_model(
            at("longer.onnx"), [node("Gemm", ["x", "v"], ["hidden"], transB=1), node("Neg", ["hidden"], ["minus"]), node("Abs", ["minus"], ["size"]),
                                node("Relu", ["size"], ["bent"]), node("Gemm", ["bent", "w"], ["sum"], transB=1), node("Sigmoid", ["sum"], ["end"])],
            [port("x", 1, [2, 4])], [port("end", 1, [2, 3])], [floats("v", [5, 4], draw(20, 3)), floats("w", [3, 5], draw(15, 8))])
        for formats, compared, lacking in (("fp32", 3, 3), ("fp32,int8", 3, 4), ("int8", 4, 3)):  # int8 also has the input as integers
            out = run("diff", perceptron, longer, "--formats", formats, "--input", at("six.npy"), "--csv", at("i.csv"), "--force")
            check(f"\n{compared} tensors compared, {lacking} of B are not in A\n" in out.stdout, formats, "what A lacks", out)
            rows = {r["tensor"].removesuffix(".int8"): r for r in csv.DictReader(open(at("i.csv")))}
            check(rows["y"]["elements"] == "18", formats, "parts of an output of another name", rows)
        twins = [write_model(at(f"{op}.onnx"), [node("Relu", ["x"], ["a"]), node(op, ["a"], ["a.int8"]), node("Add", ["a", "a.int8"], ["y"])],
                             [port("x", 1, [2, 4])], [port("y", 1, [2, 4])], []) for op in ("Neg", "Abs")]
        out = differ(*twins, "--input", at("x.npy"), "--all")
        check("They part at tensor 'a.int8'" in out, "floats whose name ends like that of integers", out)
        quantised = at("perceptron.flexlab")
        out = succeed("transpile", perceptron, "--to", "int8", "--calibrate", at("six.npy"), "--out", quantised).stdout
        ratios = {line.split()[0]: float(line.split()[-2]) for line in out.splitlines() if ".int8 " in line}
        check(len(ratios) == 3 and min(ratios.values()) > 40, "each batch beside itself", ratios)
        succeed("run", quantised, "--input", at("six.npy"), "--output", at("y.npy"))
        with zipfile.ZipFile(at("y.npz"), "w") as z:
            z.write(at("six.npy"), "input:x.npy"), z.write(at("y.npy"), "output:y.npy")
        check("1 tensor compared" in succeed("diff", quantised, at("y.npz")).stdout, "recorded output of integers")
        expect_error(["diff", perceptron, "--formats", "fp32,fp16", "--batch", "8"], 2, "--batch 8", "no batch")
        expect_error(["diff", a, b, "--batch", "8", "--input", at("x.npy")], 2, "--batch", "without --input")
        open(at("five.npy"), "wb").write(npy("<f4", (5, 4), draw(20, 1)))
        single_one = write_model(at("single.onnx"), [node("Relu", ["x"], ["y"])], [port("x", 1, [1, 4])], [port("y", 1, [1, 4])], [])
        for command in (["run", perceptron, "--output", at("out.npy")], ["diff", perceptron, "--formats", "fp32,bf16"]):
            expect_error([*command, "--input", at("five.npy")], 1 + (command[0] == "diff"),
                         "'x' is given float32 [5, 4], expected float32 [2, 4], or a multiple of 2 as its first size")
        open(at("narrow.npy"), "wb").write(npy("<f4", (3, 5), draw(15, 1)))
        expect_error(["run", single_one, "--input", at("narrow.npy"), "--output", at("out.npy")], 1,
                     "[3, 5], expected float32 [1, 4], or any other first size")
        expect_error(["diff", perceptron, "--formats", "fp32,bf16", "--shape", "x=5x4"], 2, "x=5x4", "[2, 4], or a multiple of 2")
        pair = write_model(at("pair.onnx"), [node("Add", ["x", "z"], ["y"])], [port("x", 1, [2, 4]), port("z", 1, ["N", 4])],
                           [port("y", 1, ["N", 4])], [])
        expect_error(["run", pair, "--input", "x=" + at("six.npy"), "--input", "z=" + at("six.npy"), "--output", at("out.npy")], 1,
                     "'x' is given float32 [6, 4], expected float32 [2, 4]\n")
        check("[4, 5]" in differ(perceptron, "--formats", "fp32,bf16", "--shape", "x=4x4"), "random inputs of two batches")

        # what cannot be compared
        expect_error(["diff"], 2, "two networks")
        expect_error(["diff", a], 2, "second file", a)
        expect_error(["diff", a, a, a], 2, "two files")
        expect_error(["diff", a, at("missing.onnx")], 2, "missing.onnx")
        expect_error(["diff", a, model(at("wide.onnx"), size=5)], 2, "[?, 5]", "[2, 4]")
        expect_error(["diff", a, b, "--formats", "fp32,fp16,bf16"], 2, "fp32,fp16,bf16")
        expect_error(["diff", a, b, "--formats", "fp33"], 2, "fp33")
        expect_error(["diff", a, b, "--tolerance", "-1"], 2, "--tolerance '-1'")
        expect_error(["diff", a, b, "--shape", "x=Nx4", "--input", at("x.npy")], 2, "--shape")
        expect_error(["diff", a, b, "--rounding", "even"], 2, "even")
        check(not os.path.exists(at("e.csv")), "nothing is written")
        expect_error(["diff", a, at("missing.npz"), "--csv", at("e.csv")], 2, "missing.npz")
        check(not os.path.exists(at("e.csv")), "nothing is written after a failure")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
