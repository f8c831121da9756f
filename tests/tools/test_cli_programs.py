#!/usr/bin/env python3
"""Networks trained elsewhere at the command line: run, eval FILE, bench and info FILE, on small networks that are written here.

    test_cli_programs.py PATH-OF-FLEXLAB SOURCE"""
import math
import os
import re
import struct
import sys
import tempfile
import zipfile

from cli_harness import check, expect_error, run, succeed, summary

# --- ONNX files: fields of onnx.proto --------------------------------------------------------------------------------------------------


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def port(name, kind, dims):
    shape = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def node(op, inputs, outputs, **attributes):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, "node_" + outputs[0]) + field(4, op)
            + b"".join(field(5, field(1, name) + field(3, value) + field(20, 2)) for name, value in attributes.items()))


def floats(name, dims, values):
    return b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{len(values)}f", *values))


def write_model(path, nodes, inputs, outputs, constants=()):
    graph = (b"".join(field(1, n) for n in nodes) + field(2, "test") + b"".join(field(5, c) for c in constants)
             + b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))
    with open(path, "wb") as file:
        file.write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17)))
    return path


# --- arrays of NumPy -------------------------------------------------------------------------------------------------------------------

LETTERS = {"<f4": "f", "<f8": "d", "<i8": "q", "|u1": "B", ">f4": "f", "<f2": "e"}


def npy(kind, shape, values, fortran=False):
    size = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    head = f"{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': ({size}), }}"
    head += " " * (63 - (10 + len(head)) % 64) + "\n"
    order = ">" if kind[0] == ">" else "<"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + struct.pack(f"{order}{len(values)}{LETTERS[kind]}", *values)


def read_npy(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<H", data[8:10])[0]
    check(data[:8] == b"\x93NUMPY\x01\x00" and (10 + length) % 64 == 0 and data[9 + length:10 + length] == b"\n", path, "is no aligned array file")
    head = eval(data[10:10 + length], {})  # a dictionary of literals that flexlab has written
    count = math.prod(head["shape"])
    return head["shape"], struct.unpack(f"<{count}{LETTERS[head['descr']]}", data[10 + length:])


def put(place, name, content):
    path = os.path.join(place, name)
    with open(path, "wb") as file:
        file.write(content)
    return path


def draw(count, seed):
    """Multiples of 1/64 between -1 and 1: sums of a few are exact."""
    return [((seed + 37 * i) * 7919 % 129 - 64) / 64 for i in range(count)]


CLASSES, WEIGHTS = 10, draw(30, 5)


def classifier(place):
    """Images [N, 3, 32, 32], their mean colour, 10 numbers."""
    return write_model(
        os.path.join(place, "classifier.onnx"),
        [node("GlobalAveragePool", ["x"], ["pooled"]), node("Flatten", ["pooled"], ["flat"]), node("Gemm", ["flat", "w"], ["y"], transB=1)],
        [port("x", 1, ["N", 3, 32, 32])], [port("y", 1, ["N", CLASSES])], [floats("w", [CLASSES, 3], WEIGHTS)])


def adder(place):
    return write_model(os.path.join(place, "adder.onnx"), [node("Add", ["a", "b"], ["sum"]), node("Sub", ["a", "b"], ["difference"])],
                       [port("a", 1, ["N", 4]), port("b", 1, ["N", 4])], [port("sum", 1, ["N", 4]), port("difference", 1, ["N", 4])])


def rows(text):
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if line.strip()]


# --- tests -----------------------------------------------------------------------------------------------------------------------------

def test_run(place):
    model = adder(place)
    a, b = draw(8, 1), draw(8, 50)
    first, second = put(place, "a.npy", npy("<f4", [2, 4], a)), put(place, "b.npy", npy("<f8", [2, 4], b))
    shown = succeed("run", model).stdout
    for line in (["input", "a", "float32", "[?, 4]"], ["output", "difference", "float32", "[?, 4]"]):
        check(line in rows(shown), "run without input wants", line, shown)
    check("Expected --input" in shown, shown)
    total, difference = os.path.join(place, "sum.npy"), os.path.join(place, "difference.npy")
    done = succeed("run", model, "--input", first, "--input", second, "--output", total, "--output", "difference=" + difference)
    expected = [x + y for x, y in zip(a, b)]
    check(read_npy(total) == ((2, 4), tuple(expected)), "sum", read_npy(total))
    check(read_npy(difference) == ((2, 4), tuple(x - y for x, y in zip(a, b))), "difference", read_npy(difference))
    line = ["sum", "float32", "[2, 4]"] + [f"{v:.6g}" for v in (min(expected), max(expected), sum(expected) / 8)]
    check(line in rows(done.stdout), "wants", line, done.stdout)
    # by name in any order, in the order of Fortran, big-endian, in an archive, in float16
    transposed = [a[r * 4 + c] for c in range(4) for r in range(2)]
    odd = put(place, "odd.npy", npy(">f4", [2, 4], transposed, fortran=True))
    with zipfile.ZipFile(os.path.join(place, "both.npz"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", npy("<f2", [2, 4], a))
        archive.writestr("input:b.npy", npy("<f4", [2, 4], b))
        archive.writestr("other.npy", npy("<f4", [1], [3]))
    for inputs in (["b=" + second, "a=" + odd], [os.path.join(place, "both.npz")], ["b=" + second, os.path.join(place, "both.npz")]):
        words = [word for i in inputs for word in ("--input", i)]
        succeed("run", model, *words, "--output", "sum=" + total, "--force")
        check(read_npy(total)[1] == tuple(expected), inputs, read_npy(total))
    # a batch that the network states, and a multiple of it, the same for all inputs
    stated = write_model(os.path.join(place, "stated.onnx"), [node("Add", ["a", "b"], ["sum"])], [port("a", 1, [2, 4]), port("b", 1, [2, 4])],
                         [port("sum", 1, [2, 4])])
    longer = put(place, "longer.npy", npy("<f4", [6, 4], a + b + a))
    succeed("run", stated, "--input", longer, "--input", longer, "--output", total, "--force")
    check(read_npy(total) == ((6, 4), tuple(2 * v for v in a + b + a)), "three batches", read_npy(total))
    expect_error(["run", stated, "--input", longer, "--input", first], 1, "stated.onnx", "6", "2")
    expect_error(["run", stated, "--input", first, "--input", put(place, "odd3.npy", npy("<f4", [3, 4], a + b[:4]))], 1, "'b' is given", "[3, 4]", "[2, 4]")
    for name in ("fp16", "bf16", "flex16+5", "dfp16"):
        succeed("run", model, "--input", first, "--input", second, "--format", name, "--threads", "1", "--output", total, "--force")
        check(max(abs(x - y) for x, y in zip(read_npy(total)[1], expected)) <= 2**-7, name, read_npy(total))
    # what is refused, without a file
    with open(total, "rb") as file:
        before = file.read()
    both = ["--input", first, "--input", second]
    expect_error(["run", model, *both, "--output", total], 1, "there is such a file already", "--force")
    expect_error(["run", model, "--input", first], 2, "the input 'b' is not given", "float32 [?, 4]")
    expect_error(["run", model, *both, "--input", first], 2, "no further input")
    expect_error(["run", model, "--input", "a=" + first, "--input", "a=" + first], 2, "'a' is given twice")
    expect_error(["run", model, "--input", "c=" + first], 2, "no such input", "a, b")
    expect_error(["run", model, *both, "--format", "fp17"], 2, "fp17", "did you mean")
    small = put(place, "small.npy", npy("<f4", [2, 3], draw(6, 1)))
    expect_error(["run", model, "--input", first, "--input", small, "--output", total, "--force"], 1, "'b'", "[2, 3]", "[?, 4]")
    whole = put(place, "whole.npy", npy("<i8", [2, 4], range(8)))
    expect_error(["run", model, "--input", first, "--input", whole], 1, "'b'", "int64", "float32")
    expect_error(["run", model, "--input", first, "--input", put(place, "cut.npy", npy("<f4", [2, 4], b)[:-1])], 1, "cut.npy", "truncated")
    expect_error(["run", model, "--input", first, "--input", put(place, "text.npy", b"no array")], 1, "text.npy")
    other = put(place, "rows.npy", npy("<f4", [3, 4], draw(12, 1)))
    expect_error(["run", model, "--input", first, "--input", other, "--output", total, "--force"], 1, "adder.onnx")
    expect_error(["run", first, "--input", first], 1, "a.npy")
    expect_error(["run", os.path.join(place, "missing.onnx")], 1, "cannot read", "missing.onnx")
    expect_error(["run"], 2, "expected the file")
    expect_error(["run", put(place, "nothing", b"")], 1, "is empty, expected a network")
    expect_error(["run", model, *both, "--format", "int8"], 2, "--format 'int8'", "flexlab transpile FILE --to int8")
    expect_error(["bench", model, "--formats", "int8"], 2, "--formats 'int8'", "flexlab transpile FILE --to int8")
    expect_error(["run", model, *both, "--output", "sum=" + os.path.join(place, "none", "y.npy")], 1, "its folder cannot be opened")
    with open(total, "rb") as file:
        check(file.read() == before, "a refused run has changed", total)
    check(not [name for name in os.listdir(place) if name.endswith(".part")], os.listdir(place))


def test_rounding(place):
    """Halves to integers of 8 bits: each runtime has its own rule."""
    zero = field(1, 1) + field(2, 2) + field(8, "zero") + field(9, b"\x0a")  # uint8, 10
    model = write_model(os.path.join(place, "quantise.onnx"), [node("QuantizeLinear", ["x", "scale", "zero"], ["q"])],
                        [port("x", 1, ["N"])], [port("q", 2, ["N"])], [floats("scale", [1], [0.5]), zero])
    x, q = put(place, "halves.npy", npy("<f4", [6], [0.25, 0.75, 1.25, -0.25, -0.75, 1000])), os.path.join(place, "q.npy")
    even, away = (10, 12, 12, 10, 8, 255), (11, 12, 13, 9, 8, 255)
    for words, expected in (([], even), (["--rounding", "exact"], even), (["--rounding", "onnx"], even), (["--rounding", "tflite"], away),
                            (["--rounding", "tflite-ruy"], even), (["--rounding", "tflite-xnnpack"], even)):
        succeed("run", model, "--input", x, "--output", q, "--force", *words)
        check(read_npy(q) == ((6,), expected), words, read_npy(q), expected)
    expect_error(["run", model, "--input", x, "--rounding", "Exact"], 1, "Exact", "exact, onnx, tflite, tflite-ruy or tflite-xnnpack")
    expect_error(["bench", model, "--rounding", "even"], 1, "even", "tflite-xnnpack")
    expect_error(["eval", "--checkpoint", x, "--rounding", "exact"], 2, "--rounding: not with --checkpoint")


def test_eval(place):
    model = classifier(place)
    data = ["--data", "synthetic:train=300,test=150", "--mean", "0.5", "--std", "0.25,0.25,0.25"]
    done = succeed("eval", model, *data, "--batch", "32")
    table = {row[0]: row[1:] for row in rows(done.stdout)}
    check("150 images" in done.stdout and "as nchw" in done.stdout and "first 150 images of the evaluated" in done.stdout, done.stdout)
    for name in ("fp32", "fp16", "bf16", "flex16+5", "dfp16"):
        check(name in table and len(table[name]) == 7, name, "has no line:", done.stdout)
    number = {name: [float(word.rstrip(" %")) for word in table[name][1:5]] for name in table if name in ("fp16", "bf16", "flex16+5", "dfp16")}
    check(all(n[0] > 90 for n in number.values()), "agreement", number)
    check(number["flex16+5"][3] > number["bf16"][3] + 20 and number["fp16"][3] > number["bf16"][3] + 10, "SQNR", number)
    check(all(0 < n[2] <= n[1] < 0.1 for n in number.values()), "errors", number)

    def figures(*more):
        """The table without its times."""
        return [row[:-1] for row in rows(succeed("eval", model, *data, *more).stdout)[-5:]]
    whole = [figures("--calibrate-batches", "150", "--batch", batch, "--threads", threads) for batch, threads in (("1", "1"), ("7", "2"), ("150", "2"))]
    check(whole[0] == whole[1] == whole[2], "batches or threads change results", whole)
    done = succeed("eval", model, *data, "--formats", "flex16+5", "--calibrate", "synthetic:train=200,test=10", "--calibrate-batches", "2", "--batch", "20")
    check("first 40 images of synthetic:train=200,test=10" in done.stdout and len(rows(done.stdout)) == 6, done.stdout)
    # layouts
    last = write_model(os.path.join(place, "last.onnx"), [node("Flatten", ["x"], ["flat"]), node("Gemm", ["flat", "w"], ["y"], transB=1)],
                       [port("x", 1, ["N", 32, 32, 3])], [port("y", 1, ["N", CLASSES])], [floats("w", [CLASSES, 3072], draw(30720, 3))])
    check("as nhwc" in succeed("eval", last, *data, "--formats", "fp32").stdout, "layout of [?, 32, 32, 3]")
    open_sizes = write_model(os.path.join(place, "open.onnx"), [node("GlobalAveragePool", ["x"], ["p"]), node("Flatten", ["p"], ["y"])],
                             [port("x", 1, ["N", "C", "H", "W"])], [port("y", 1, ["N", "C"])])
    expect_error(["eval", open_sizes, *data], 2, "--layout nchw or nhwc")
    done = run("eval", open_sizes, *data, "--layout", "nchw")
    check(done.returncode == 1 and "gives 3 numbers" in done.stderr, done.stderr)
    expect_error(["eval", last, *data, "--layout", "nchw"], 1, "do not fit", "nchw")
    # a batch that the network states; the last one is not full
    fixed = write_model(os.path.join(place, "fixed.onnx"), [node("GlobalAveragePool", ["x"], ["p"]), node("Flatten", ["p"], ["f"]), node("Gemm", ["f", "w"], ["y"], transB=1)],
                        [port("x", 1, [16, 3, 32, 32])], [port("y", 1, [16, CLASSES])], [floats("w", [CLASSES, 3], WEIGHTS)])
    check([row[:-1] for row in rows(succeed("eval", fixed, *data).stdout)[-5:]] == figures(), "a fixed batch gives other results")
    expect_error(["eval", fixed, *data, "--batch", "8"], 2, "takes 16 at a time")
    expect_error(["eval", model, *data[:2]], 2, "expected --mean and --std")
    expect_error(["eval", model, *data[:2], "--mean", "1,2", "--std", "1"], 2, "--mean '1,2'", "3 numbers")
    expect_error(["eval", model, *data, "--formats", "fp32,fp32"], 2, "named twice")
    expect_error(["eval", model, *data, "--formats", "int9"], 2, "dfp16, int8, int8:tensor", "did you mean 'int8'")
    expect_error(["eval", model, *data[:2], "--mean", "1", "--std", "0"], 2, "1e-06 to 1000000")
    expect_error(["eval", "--checkpoint", "x.safetensors", "--mean", "0"], 2, "--mean: not with --checkpoint")
    expect_error(["eval"], 2, "expected --checkpoint FILE, or the file")
    expect_error(["eval", adder(place), *data], 1, "four dimensions")


def test_eval_integers(place):
    """Ports of 8-bit integers: images are quantised by the scale of the input, and logits brought back by that of the output."""
    data = ["--data", "synthetic:train=20,test=150", "--mean", "0", "--std", "1"]
    pooled = [node("GlobalAveragePool", ["x"], ["pooled"]), node("Flatten", ["pooled"], ["flat"]), node("Gemm", ["flat", "w"], ["logits"], transB=1)]
    zero = field(1, 1) + field(2, 3) + field(8, "zero") + field(9, b"\x80")  # int8, -128
    middle = field(1, 1) + field(2, 3) + field(8, "middle") + field(9, b"\x05")  # int8, 5
    quantised = write_model(
        os.path.join(place, "integers.onnx"),
        [node("DequantizeLinear", ["q", "scale", "zero"], ["x"]), *pooled, node("QuantizeLinear", ["logits", "step", "middle"], ["y"])],
        [port("q", 3, ["N", 3, 32, 32])], [port("y", 3, ["N", CLASSES])],
        [floats("w", [CLASSES, 3], WEIGHTS), floats("scale", [1], [1 / 255]), floats("step", [1], [2**-6]), zero, middle])
    shown = succeed("info", quantised).stdout
    for line in (["input", "q", "int8", "[?, 3, 32, 32]", "0.00392156886", "-128"], ["output", "y", "int8", f"[?, {CLASSES}]", "0.015625", "5"]):
        check(line in rows(shown), line, shown)
    for batch in ("7", "150"):
        lines = {}
        for name, model in (("floats", classifier(place)), ("integers", quantised)):
            done = succeed("eval", model, *data, "--batch", batch, "--formats", "fp16")
            lines[name] = {row[0]: row for row in rows(done.stdout)}
            sums = re.search(r"checksum (\S+) \(size (\S+)\); its output in fp32: (\S+) \((\S+)\)", done.stdout)
            lines[name]["sums"] = [float(number) for number in sums.groups()]
        one, other = lines["floats"], lines["integers"]
        check(all(abs(x - y) < 0.02 for x, y in zip(one["sums"], other["sums"])), "the first image", lines)
        check(abs(float(one["fp32"][1].rstrip(" %")) - float(other["fp32"][1].rstrip(" %"))) < 8, "accuracy", lines)
    # numbers that the integers do not reach, and an output without a scale
    cut = succeed("eval", quantised, *data[:2], "--mean", "0.5", "--std", "0.001", "--formats", "fp16")
    check("150 images" in cut.stdout and "inf" not in cut.stdout.lower(), cut.stdout)
    bare = write_model(os.path.join(place, "bare.onnx"), [node("Relu", ["x"], ["y"])], [port("x", 3, ["N", 3, 32, 32])], [port("y", 3, ["N", 3, 32, 32])])
    expect_error(["eval", bare, *data], 1, "'x', int8", "8-bit integers with a scale")


def npz_member(path, name):
    with zipfile.ZipFile(path) as archive:
        data = archive.read(name + ".npy")
    head = eval(data[10:10 + struct.unpack("<H", data[8:10])[0]], {})
    return head["shape"], data[-math.prod(head["shape"]):]


def test_eval_tiny(place):
    """Networks of TensorFlow Lite in 8-bit integers: labels are the answers of its runtimes, so that eval finds all of them right."""
    folder = os.path.join(os.environ.get("FLEXLAB_DATA", ""), "networks")
    if not os.path.exists(os.path.join(folder, "tiny-resnet8-int8.tflite")) or "built without" in run("info", os.path.join(folder, "tiny-resnet8-int8.tflite")).stderr:
        print("skipped: networks of FLEXLAB_DATA")
        return
    for name, scale, zero in (("tiny-resnet8", 1, -128), ("tiny-keywords", None, None)):
        model = os.path.join(folder, name + "-int8.tflite")
        line = [row for row in rows(succeed("info", model).stdout) if row[0] == "input"][0]
        scale, zero = scale or float(line[4]), zero or int(line[5])
        check([float(line[4]), int(line[5])] == [scale, zero], line)
        for rounding, answers in (("tflite-xnnpack", "xnnpack"), ("tflite", "reference")):
            shape, inputs = npz_member(os.path.join(folder, f"{name}-int8-{answers}.npz"), "input")
            (count, classes), outputs = npz_member(os.path.join(folder, f"{name}-int8-{answers}.npz"), "output")
            signed = [byte - 256 if byte > 127 else byte for byte in outputs]
            labels = [max(range(classes), key=lambda k: signed[i * classes + k]) for i in range(count)]
            put(place, "images.npy", npy("|u1", shape, [byte ^ 128 for byte in inputs]))  # q + 128
            put(place, "labels.npy", npy("|u1", [count], labels))
            done = succeed("eval", model, "--data", f"npy:{place}/images.npy,{place}/labels.npy", "--split", "train", "--rounding", rounding,
                           "--mean", f"{(128 + zero) / 255:.12g}", "--std", f"{1 / (255 * scale):.12g}")
            row = [r for r in rows(done.stdout) if r[0] == "int8"][0]
            check(row[1] == "100.00 %" and f"{count} images" in done.stdout and "all " in done.stdout, name, rounding, done.stdout)
    model = os.path.join(folder, "tiny-resnet8-int8.tflite")
    check([row[0] for row in rows(succeed("bench", model, "--batch", "2", "--seconds", "0.01").stdout)] == ["format", "int8"], "bench of integers alone")
    for command in (["bench", model], ["eval", model, "--data", "synthetic", "--mean", "0", "--std", "1"]):
        expect_error([*command, "--formats", "fp16"], 2, "--formats 'fp16'", "compute 8-bit integers, which no format changes")
    expect_error(["eval", os.path.join(folder, "tiny-anomaly-int8.tflite"), "--data", f"npy:{place}/images.npy,{place}/labels.npy", "--split", "train", "--mean", "0", "--std", "1"],
                 1, "four dimensions", "int8 [?, 640]")


def test_bench(place):
    model = classifier(place)
    done = succeed("bench", model, "--formats", "fp32,flex16+5", "--batch", "1,8", "--threads", "1,2", "--seconds", "0.02")
    lines = [row for row in rows(done.stdout) if row[0] in ("fp32", "flex16+5")]
    check([row[:3] for row in lines] == [[f, b, t] for b in ("1", "8") for f in ("fp32", "flex16+5") for t in ("1", "2")], done.stdout)
    check(all(0 < float(row[4]) <= float(row[3]) and int(row[6]) >= 5 for row in lines), done.stdout)
    check(all(abs(float(row[5]) * float(row[3]) / int(row[1]) - 1000) < 1 + 0.6 / float(row[3]) for row in lines), "items a second", done.stdout)
    open_sizes = write_model(os.path.join(place, "sizes.onnx"), [node("Relu", ["x"], ["y"])], [port("x", 1, ["N", 3, "H", "W"])], [port("y", 1, ["N", 3, "H", "W"])])
    expect_error(["bench", open_sizes], 2, "--shape x=SIZES")
    check(len(rows(succeed("bench", open_sizes, "--shape", "x=Nx3x4x5", "--formats", "fp16", "--seconds", "0.01").stdout)) == 3, "two batches")
    check("there is no batch" in succeed("bench", open_sizes, "--shape", "x=2x3x4x5", "--formats", "fp16", "--seconds", "0.01").stdout, "no batch")
    expect_error(["bench", open_sizes, "--shape", "x=Nx4x4x5"], 2, "[?, 3, ?, ?]")
    expect_error(["bench", open_sizes, "--shape", "z=1"], 2, "name of an input")
    expect_error(["bench", model, "--batch", "0"], 2, "--batch '0'")


def test_info(place, source):
    done = succeed("info", classifier(place))
    check("30 parameters, 3 nodes" in done.stdout, done.stdout)
    for row in (["input", "x", "float32", "[?, 3, 32, 32]"], ["Gemm", "1"], ["Flatten", "1"]):
        check(row in rows(done.stdout), row, done.stdout)
    strange = write_model(os.path.join(place, "strange.onnx"), [node("Strange", ["x"], ["u"]), node("Relu", ["u"], ["v"]), node("Stranger", ["v"], ["w"]), node("Strange", ["w"], ["y"])],
                          [port("x", 1, ["N", 3])], [port("y", 1, ["N", 3])])
    expect_error(["info", strange], 1, "2 operators", "Strange (node_u, node_y)", "Stranger (node_w)", "strange.onnx")
    expect_error(["info", os.path.join(place, "nothing.onnx")], 1, "nothing.onnx")
    # what reading changed
    normal = [floats(name, [2], [1 + i, 2]) for i, name in enumerate(("g", "b", "m", "v"))]
    folded = write_model(
        os.path.join(place, "folded.onnx"),
        [node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]), node("Relu", ["n"], ["r"]),
         node("Conv", ["r", "w2"], ["d"]), node("BatchNormalization", ["d", "g", "b", "m", "v"], ["y"])],
        [port("x", 1, ["N", 3, 4, 4])], [port("y", 1, ["N", 2, 4, 4])], [floats("w", [2, 3, 1, 1], draw(6, 1)), floats("w2", [2, 2, 1, 1], draw(4, 1)), *normal])
    done = succeed("info", folded)
    for row in (["BatchNormalization folded into the weights of Conv", "2"], ["Relu joined to Conv, before it rounds", "1"], ["Conv", "2"]):
        check(row in rows(done.stdout), row, done.stdout)
    check("node_n" not in done.stdout, done.stdout)
    listed = rows(succeed("info", folded, "--verbose").stdout)
    for row in (["node_n", "BatchNormalization", "folded into Conv", "node_c"], ["node_y", "BatchNormalization", "folded into Conv", "node_d"],
                ["node_r", "Relu", "joined to Conv", "node_c"]):
        check(row in listed, row, listed)
    expect_error(["info", "kernels", "--probe"], 2, "'kernels' is a table")
    for words in (["kernels", "--verbose"], ["resnet20", "--verbose"]):
        expect_error(["info", *words], 2, "--verbose: only behind the file", words[0])
    expect_error(["info", "resnet20", "--image", "8x8"], 2, "only behind the file", "resnet20")
    expect_error(["info", folded, "--model"], 2, "--model: expected a value")
    check("changed by reading" not in succeed("info", classifier(place), "--verbose").stdout, "nothing was changed")
    done = run("info", os.path.join(source, "tests/fuzz/corpus/tflite/images"))
    check("TensorFlow" in done.stderr or (done.returncode == 0 and "input" in done.stdout), done.stdout, done.stderr)


def main():
    source = sys.argv[2]
    with tempfile.TemporaryDirectory() as place:
        done = run("info", classifier(place))
        if done.returncode and "built without" in done.stderr and "ONNX" in done.stderr:
            print("skipped: this build reads no ONNX files:", done.stderr.strip())
            return 77
        test_run(place)
        test_rounding(place)
        test_eval(place)
        test_eval_integers(place)
        test_eval_tiny(place)
        test_bench(place)
        test_info(place, source)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
