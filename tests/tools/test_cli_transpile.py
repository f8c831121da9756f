#!/usr/bin/env python3
"""transpile at the command line: formats of nodes, the file that is written, the report of tensors, checksums, bad input.

    test_cli_transpile.py PATH-OF-FLEXLAB SOURCE"""
import csv
import json
import math
import os
import struct
import sys
import tempfile
import zipfile

from cli_harness import check, expect_error, run, succeed, summary
from test_cli_programs import CLASSES, WEIGHTS, adder, classifier, draw, field, floats, npy, port, put, read_npy, rows, write_model


def named(op, name, inputs, outputs):
    return b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(3, name) + field(4, op)


STRANGE = "<script>alert(1)</script>"


def perceptron(place, first):
    """[N, 4] times a matrix of these numbers, relu, times another, softmax; the second product has a name to be escaped."""
    return write_model(os.path.join(place, "perceptron.onnx"),
                       [named("MatMul", "body/first", ["x", "first"], ["a"]), named("Relu", "body/relu", ["a"], ["b"]),
                        named("MatMul", STRANGE, ["b", "second"], ["c"]), named("Softmax", "head", ["c"], ["y"])],
                       [port("x", 1, ["N", 4])], [port("y", 1, ["N", 3])], [floats("first", [4, 5], first), floats("second", [5, 3], draw(15, 9))])


def read_stored(path):
    """Header of a safetensors file, the network in its metadata, and the bytes of each tensor."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    notes = header.pop("__metadata__")
    return header, json.loads(notes["flexlab.program"]), notes, {
        name: data[8 + length + t["data_offsets"][0]:8 + length + t["data_offsets"][1]] for name, t in header.items()}


def formats(path):
    return {n["name"]: n.get("format", "fp32") for n in read_stored(path)[1]["graph"]["nodes"]}


def table(path):
    with open(path, newline="") as file:
        return {(row["tensor"], row["kind"]): row for row in csv.DictReader(file)}


def as_half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def same_files(a, b):
    with open(a, "rb") as one, open(b, "rb") as two:
        return one.read() == two.read()


# --- tests -----------------------------------------------------------------------------------------------------------------------------

def test_half(place):
    """fp16: the file, the numbers of the report, and the same results as the source in that format."""
    first = [x / 3 for x in draw(20, 3)]
    first[3], first[7] = 1e6, 1e-9
    model, out = perceptron(place, first), os.path.join(place, "half.safetensors")
    done = succeed("transpile", model, "--to", "fp16", "--out", out, "--csv", os.path.join(place, "half.csv"))
    check("35 parameters, 4 nodes: 4 in fp16; 1 cast between formats" in done.stdout, done.stdout)
    check("clamped: 1 numbers in 1 tensors; flushed to zero: 1 in 1" in done.stdout, done.stdout)
    check(f"{os.path.getsize(out):,} bytes, the source has {os.path.getsize(model):,}" in done.stdout, done.stdout)
    header, network, notes, data = read_stored(out)
    check(header["first"] == {**header["first"], "dtype": "F16", "shape": [4, 5]} and header["second"]["dtype"] == "F16", header)
    stored = struct.unpack("<20e", data["first"])
    check([x for i, x in enumerate(stored) if i != 3] == [as_half(x) for i, x in enumerate(first) if i != 3] and math.isinf(stored[3]), stored)
    check(set(formats(out).values()) == {"fp16"} and network["version"] == 1 and "flexlab.crc32" in notes, network)
    row = table(os.path.join(place, "half.csv"))["second", "weight"]
    check(row["largest_error"] == "0" and row["sqnr_db"] == "inf", "multiples of 1/64 are exact", row)
    row = table(os.path.join(place, "half.csv"))["first", "weight"]
    check([row[k] for k in ("format", "elements", "clamped", "flushed", "nonfinite", "exponent")] == ["fp16", "20", "1", "1", "1", ""], row)
    # the numbers of the report against those of the definition
    plain = [x / 3 for x in draw(20, 3)]
    model = perceptron(place, plain)
    succeed("transpile", model, "--to", "fp16", "--out", out, "--csv", os.path.join(place, "half.csv"), "--force")
    row = table(os.path.join(place, "half.csv"))["first", "weight"]
    single = [struct.unpack("<f", struct.pack("<f", x))[0] for x in plain]
    errors = [abs(as_half(x) - x) for x in single]
    check(math.isclose(float(row["largest_error"]), max(errors), rel_tol=1e-7), row, max(errors))
    check(math.isclose(float(row["relative_error"]), max(errors) / max(map(abs, single)), rel_tol=1e-7), row)
    check(math.isclose(float(row["sqnr_db"]), 10 * math.log10(sum(x * x for x in single) / sum(e * e for e in errors)), rel_tol=1e-7), row)
    # the program computes as the source does in that format, and is the same when it is transpiled again
    x, one, two = put(place, "x.npy", npy("<f4", [3, 4], draw(12, 8))), os.path.join(place, "one.npy"), os.path.join(place, "two.npy")
    succeed("run", model, "--input", x, "--format", "fp16", "--output", one)
    succeed("run", out, "--input", x, "--output", two)
    check(same_files(one, two), "other bits", read_npy(one), read_npy(two))
    again, exported = os.path.join(place, "again.safetensors"), os.path.join(place, "half.onnx")
    succeed("transpile", out, "--to", "fp16", "--out", again)
    check(same_files(out, again), "other bytes when it is transpiled again")
    succeed("transpile", model, "--to", "fp16", "--out", exported)
    succeed("run", exported, "--input", x, "--output", two, "--force")
    check(same_files(one, two), "other bits of the ONNX file")
    check("35 parameters, 4 nodes" in succeed("info", out).stdout, "info of a program")


def test_exceptions(place):
    model, out = perceptron(place, draw(20, 3)), os.path.join(place, "x.safetensors")

    def transpile(*options):
        succeed("transpile", model, *options, "--out", out, "--force")
        return [formats(out)[name] for name in ("body/first", "body/relu", STRANGE, "head")]

    check(transpile("--to", "fp16", "--exclude", "^body/") == ["fp32", "fp32", "fp16", "fp16"], "--exclude")
    check(transpile("--to", "fp16", "--nodes-to-exclude", "(first|head)$", "--keep-io-types") == ["fp32", "fp16", "fp16", "fp32"], "--nodes-to-exclude")
    check(transpile("--to", "bf16", "--keep-op", "MatMul", "--keep-op", "Softmax", "--keep-io") == ["fp32", "bf16", "fp32", "fp32"], "--keep-op")
    check(transpile("--to", "fp16", "--format", "body/*=bf16", "--format", "@Relu=fp32") == ["bf16", "fp32", "fp16", "fp16"], "--format")
    check(transpile("--format", "@MatMul=bf16", "--format", "body/first=fp16") == ["fp16", "fp32", "bf16", "fp32"], "the last rule wins")
    policy = put(place, "my.policy", b"# comment\nvariant bf16\n@MatMul format=fp16; head format=fp32 # end\nif-any nothing* format=fp16\n")
    check(transpile("--policy", policy) == ["fp16", "bf16", "fp16", "fp32"], "--policy")
    check(transpile("--policy", policy, "--format", "head=fp16", "--exclude", "relu") == ["fp16", "fp32", "fp16", "fp16"], "rules after a policy")

    def refuse(*parts, options):
        expect_error(["transpile", model, *options, "--out", os.path.join(place, "none.safetensors")], 2, *parts)

    refuse("--exclude 'tail'", "no name of a node", options=["--to", "fp16", "--exclude", "tail"])
    refuse("--exclude '('", "extended regular expression", options=["--to", "fp16", "--exclude", "("])
    refuse("--keep-op", "no operator matches 'Conv'", options=["--to", "fp16", "--keep-op", "Conv"])
    refuse("--to", "fp17", "fp16", options=["--to", "fp17"])
    refuse("expected --to FORMAT", options=[])
    refuse("--format 'fp16'", "PATTERN=FORMAT", options=["--format", "fp16"])
    refuse("--format 'z=fp16'", "no name of a node matches 'z'", options=["--format", "z=fp16"])
    for text, *parts in ((b"variant fp16\nz format=bf16\n", "line 2", "'z'"), (b"head weights=fp16\n", "line 1", "format=FORMAT"),
                         (b"head format=fp16\nvariant fp16\n", "line 2", "first line"), (b"head format=half\n", "line 1", "half"), (b"a\x00b", "expected a text")):
        refuse("--policy", *parts, options=["--policy", put(place, "bad.policy", text)])
    expect_error(["transpile", model, "--to", "fp16", "--policy", os.path.join(place, "none"), "--out", "x"], 1, "--policy: cannot read")
    check(not os.path.exists(os.path.join(place, "none.safetensors")), "a refused network was written")


def test_calibration(place):
    """Shared exponents: fixed by data, part of the file; results of nodes are compared on the data."""
    model, out, report, figures = perceptron(place, draw(20, 3)), *(os.path.join(place, "flex." + e) for e in ("safetensors", "html", "csv"))
    x = npy("<f4", [6, 4], draw(24, 8))
    array, archive = put(place, "x.npy", x), os.path.join(place, "x.npz")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("input:x.npy", x)
    expect_error(["transpile", model, "--to", "flex16+5", "--out", out], 2, "expected --calibrate")
    done = succeed("transpile", model, "--to", "flex16+5", "--calibrate", archive, "--out", out, "--report", report, "--csv", figures, "--all")
    check(f"calibrated on 6 samples of {archive}" in done.stdout, done.stdout)
    results = {key: row for key, row in table(figures).items() if key[1] == "result"}
    check(sorted(k[0] for k in results) == ["a", "b", "c", "y"] and all(r["format"] == "flex16+5" and r["exponent"] for r in results.values()), results)
    check(("x", "cast") in table(figures) and table(figures)["x", "cast"]["elements"] == "24", "the cast of the input", table(figures))
    check(all(float(row["sqnr_db"]) > 60 for row in table(figures).values()), "16 bits have at least 60 dB here", table(figures))
    check(all(abs(float(r["checksum"]) - float(r["checksum_source"])) < 1e-3 for r in results.values()), results)
    _, network, notes, _ = read_stored(out)
    check("flexlab.mantissas" in notes and "first.exponent" in notes, notes)
    check(all(len(v["range"]) == 2 for v in network["values"] if v["name"] in "abcy"), network["values"])
    one, two = os.path.join(place, "one.npy"), os.path.join(place, "two.npy")
    succeed("run", model, "--input", array, "--format", "flex16+5", "--output", one, "--force")
    succeed("run", out, "--input", array, "--output", two, "--force")
    check(same_files(one, two), "other bits")
    halves = os.path.join(place, "halves.safetensors") # the division into batches is of no account
    succeed("transpile", model, "--to", "flex16+5", "--calibrate", array, "--batch", "1", "--out", halves)
    check(same_files(out, halves), "another division of the samples gives another file")
    page = open(report, encoding="utf-8").read()
    check(page.startswith("<!DOCTYPE html>") and "default-src 'none'" in page and "<script" not in page and "<svg" in page, page[:500])
    check("&lt;script&gt;" in page and page.rstrip().endswith("</html>"), "names are text")
    images = succeed("transpile", classifier(place), "--to", "dfp16", "--calibrate", "synthetic:train=100,test=10", "--calibrate-batches", "1", "--mean", "0.5",
                     "--std", "0.25", "--out", os.path.join(place, "images.safetensors"))
    check("calibrated on 64 images of synthetic:train=100,test=10" in images.stdout, images.stdout)
    data = ["--data", "synthetic:train=100,test=60", "--mean", "0.5", "--std", "0.25", "--formats", "dfp16", "--calibrate", "synthetic:train=100,test=10", "--calibrate-batches", "1"]
    lines = {row[0]: row[1:6] for row in rows(succeed("eval", os.path.join(place, "images.safetensors"), *data).stdout)}
    check(lines["as saved"] == lines["dfp16"] and lines["fp32"][1] == "-", "eval of the formats of a file", lines)
    timed = ["--batch", "2", "--seconds", "0.01", "--threads", "1"]
    for more, names in (([], ["as saved"]), (["--formats", "fp16,dfp16"], ["as saved", "fp16", "dfp16"])):
        done = succeed("bench", os.path.join(place, "images.safetensors"), *timed, *more)
        check([row[0] for row in rows(done.stdout)[1:]] == names, "bench of the formats of a file", done.stdout)
    check("as saved" not in succeed("bench", classifier(place), *timed).stdout, "bench of a network without formats of its own")
    check("as saved" not in succeed("eval", classifier(place), *data).stdout, "a network without formats of its own")
    base = ["transpile", model, "--to", "fp16", "--out", os.path.join(place, "none"), "--calibrate"]
    expect_error([*base, put(place, "wide.npy", npy("<f8", [6, 4], draw(24, 8)))], 1, "float64, expected float32")
    expect_error([*base, put(place, "flat.npy", npy("<f4", [24], draw(24, 8)))], 1, "dimensions")
    expect_error([*base, os.path.join(place, "nothing.npz")], 1, "nothing.npz")
    expect_error([*base, "synthetic"], 2, "expected --mean and --std")
    expect_error(["transpile", adder(place), "--to", "fp16", "--out", os.path.join(place, "none"), "--calibrate", array], 2, "2 inputs", ".npz")


def test_integers(place):
    """8-bit integers: what has a kernel, measured in real numbers; a program that runs as it was saved, and as ONNX."""
    model, out, figures = perceptron(place, draw(20, 3)), os.path.join(place, "int8.safetensors"), os.path.join(place, "int8.csv")
    array, samples = put(place, "samples.npy", npy("<f4", [60, 4], draw(240, 8))), ["--method", "mse", "--per-tensor"]
    expect_error(["transpile", model, "--to", "int8", "--out", out], 2, "8-bit integers need data", "--calibrate")
    expect_error(["transpile", model, "--to", "int8", "--calibrate", array, "--method", "median", "--out", out], 2, "median", "entropy")
    done = succeed("transpile", model, "--to", "int8", "--calibrate", array, "--out", out, "--csv", figures)
    check("in 8-bit integers" in done.stdout, done.stdout)
    measured = {key[0]: row for key, row in table(figures).items() if row["format"] == "int8"}
    check(len(measured) >= 2 and all(20 < float(row["sqnr_db"]) < 60 and row["elements"] != "0" for row in measured.values()), measured)
    weights = {key: row for key, row in table(figures).items() if row["kind"] == "weight"}
    check({row["format"] for row in weights.values()} == {"int8"} and all(0 < float(row["relative_error"]) <= 0.004 for row in weights.values()), weights)
    done = succeed("bench", out, "--seconds", "0.01", "--threads", "1")
    check({row[0] for row in rows(done.stdout)[1:]} <= {"as saved", "int8"}, "bench of integers", done.stdout)
    results = []
    for name, more in (("again8.safetensors", []), ("net8.onnx", []), ("tensor.safetensors", samples)):
        path, y = os.path.join(place, name), os.path.join(place, name + ".npy")
        succeed("transpile", model, "--to", "int8", "--calibrate", array, "--batch", "7", *more, "--out", path)
        succeed("run", path, "--input", array, "--output", y)
        results.append(y)
    check(same_files(out, os.path.join(place, "again8.safetensors")), "another division of the samples gives another file")
    check(same_files(results[0], results[1]), "the ONNX file gives other bits")
    check(not same_files(results[0], results[2]), "one scale for the tensor gives the bits of one for each filter")
    mixed = os.path.join(place, "mixed.safetensors")
    done = succeed("transpile", model, "--to", "int8", "--keep-op", "MatMul", "--format", "head=fp16", "--calibrate", array, "--out", mixed)
    check("8-bit" not in done.stdout and formats(mixed)["head"] == "fp16", done.stdout)


def test_files(place):
    model, out = perceptron(place, draw(20, 3)), os.path.join(place, "kept.safetensors")
    put(place, "kept.safetensors", b"mine")
    expect_error(["transpile", model, "--to", "fp16", "--out", out], 1, "--out", "--force")
    expect_error(["transpile", model, "--to", "fp16", "--out", os.path.join(place, "new"), "--report", out], 1, "--report", "--force")
    check(open(out, "rb").read() == b"mine" and not os.path.exists(os.path.join(place, "new")), "a file was replaced")
    expect_error(["transpile", model, "--to", "fp16"], 2, "expected --out FILE")
    # the network itself, under another name of it too; one file for two; a kind that is not written; options without integers
    before, fresh = open(model, "rb").read(), os.path.join(place, "fresh.safetensors")
    other = os.path.join(place, "link.onnx")
    os.link(model, other)
    for path in (model, other):
        expect_error(["transpile", model, "--to", "fp16", "--out", path, "--force"], 2, "that is the network itself")
        expect_error(["transpile", model, "--to", "fp16", "--out", fresh, "--csv", path, "--force"], 2, "--csv", "that is the network itself")
    expect_error(["transpile", model, "--to", "fp16", "--out", fresh, "--report", fresh], 2, "--out and --report are both", "different files")
    expect_error(["transpile", model, "--to", "fp16", "--out", os.path.join(place, "a.tflite")], 2, "not written in TensorFlow Lite")
    expect_error(["transpile", model, "--to", "fp16", "--method", "mse", "--out", fresh], 2, "--method: only where", "--to int8")
    expect_error(["transpile", model, "--to", "fp16", "--per-tensor", "--out", fresh], 2, "--per-tensor: only where")
    check(open(model, "rb").read() == before and not os.path.exists(fresh), "a refused call has written")
    expect_error(["transpile", "--to", "fp16", "--out", out], 2, "expected the file of a network")
    expect_error(["transpile", model, "--to", "fp16", "--out", os.path.join(place, "no", "folder")], 1, "--out")
    expect_error(["transpile", put(place, "broken.safetensors", b"\x10" + bytes(7) + b"{" + bytes(50)), "--to", "fp16", "--out", out, "--force"], 1, "broken.safetensors")
    # a truncated program, and one of which a byte has changed
    whole = os.path.join(place, "whole.safetensors")
    succeed("transpile", model, "--to", "fp16", "--out", whole)
    data = open(whole, "rb").read()
    for damaged in (data[:len(data) // 2], data[:-1], data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]):
        expect_error(["info", put(place, "damaged.safetensors", damaged)], 1, "damaged.safetensors")
    check(run("transpile", "--help").stdout.startswith("Usage: flexlab transpile FILE"), "help")


def test_checksums(place):
    """The printed sums are those of the definition; a matrix in the wrong layout has others."""
    def c(i):
        return ((i + 1) * 2654435761 % 2**32) / 2**31 - 1

    def transpile(model):
        done = succeed("transpile", model, "--to", "fp16", "--out", os.path.join(place, "x.safetensors"), "--force")
        row = [r for r in rows(done.stdout) if r[0] == "y" and len(r) == 4]
        check(len(row) == 1, done.stdout)
        return float(row[0][1]), float(row[0][2]), float(row[0][3].split()[0]) if "none" not in row[0][3] else 0

    means = [sum(struct.unpack("<f", struct.pack("<f", c(k * 1024 + i)))[0] for i in range(1024)) / 1024 for k in range(3)]
    y = [sum(WEIGHTS[3 * k + j] * means[j] for j in range(3)) for k in range(CLASSES)]
    expected = math.sqrt(3 / CLASSES) * sum(c(i) * v for i, v in enumerate(y))
    size = math.sqrt(sum(v * v for v in y) / CLASSES)
    source, here, percent = transpile(classifier(place))
    check(abs(source - expected) < 1e-4 * size, "the sum of the source", source, expected)
    check(abs(here - source) < 0.01 * size and percent < 1, "fp16 changes it little", source, here, percent)
    turned = write_model(os.path.join(place, "turned.onnx"), # the same bytes as [3, 10]
                         [named("GlobalAveragePool", "p", ["x"], ["pooled"]), named("Flatten", "f", ["pooled"], ["flat"]), named("MatMul", "m", ["flat", "w"], ["y"])],
                         [port("x", 1, ["N", 3, 32, 32])], [port("y", 1, ["N", CLASSES])], [floats("w", [3, CLASSES], WEIGHTS)])
    wrong = transpile(turned)[0]
    check(abs(wrong - source) > 0.05 * size, "a wrong layout has the sum", wrong, "of the right one", source)


def main():
    with tempfile.TemporaryDirectory() as place:
        done = run("info", classifier(place))
        if done.returncode and "built without" in done.stderr and "ONNX" in done.stderr:
            print("skipped: this build reads no ONNX files:", done.stderr.strip())
            return 77
        test_half(place)
        test_exceptions(place)
        test_calibration(place)
        test_integers(place)
        test_files(place)
        test_checksums(place)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
