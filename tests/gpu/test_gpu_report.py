#!/usr/bin/env python3
"""The least times that tools/gpu_report.py puts beside those of a GPU: steps by counts of several batches, of which a part
comes once a step; products by bytes, instructions and tensor cores; and the files that it writes.
usage: test_gpu_report.py SOURCE"""
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile

source = pathlib.Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("gpu_report", source / "tools" / "gpu_report.py")
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)
read_table = report.read_table
failures = 0
H100 = {**report.REHEARSAL, "name": "H100", "driver": 13000}
A100 = {**H100, "name": "A100", "capability": "80", "multiprocessors": 108, "clock_hz": 1.41e9, "bytes_a_second": 1.555e12}
SLOTS = 4 * 132 * 1.755e9  # instructions of warps a second
STEP, PRODUCTS = "step of ResNet-20, batch {}", ("fp32", "fp32,fast:tf32", "fp16,fast", "fp16,fast:sums=fp16", "bf16,fast", "flex16+5", "dfp16")


def check(condition, *what):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", *what)


def near(got, want, *what):
    check(abs(got - want) <= 1e-9 * abs(want), *what, f"{got}, expected {want}")


def floor(work, format, device=H100):
    return report.floor({"work": work, "format": format}, device)


def by_hand():
    """An optimiser of 1e9 instructions a step beside 1e8 an image, counted at 2 and 8; bytes at 8 alone."""
    columns = {"two:2": 2, "two:8": 8, "fp16,fast:sums=fp16:4": 4}
    table = {"sgd": {c: 1000000000 for c in columns}, "tiles": {c: 100000000 * n for c, n in columns.items()},
             report.BYTES: {"two:2": 0, "two:8": 10**13, "fp16,fast:sums=fp16:4": 0}}
    report.read_table = lambda path: table if "ptx_counts" in path else read_table(path)
    for batch, instructions in ((1, 1.1e9), (2, 1.2e9), (5, 1.5e9)):
        near(floor(STEP.format(batch), "two")[0], 1e6 * instructions / SLOTS, "between counted batches", batch)
    near(floor(STEP.format(8), "two")[0], 1e6 * 10**13 / 3.35e12, "bytes")
    check(floor(STEP.format(8), "two")[1] == "bytes", floor(STEP.format(8), "two"))
    table[report.BYTES]["two:8"] = 5
    near(floor(STEP.format(128), "two")[0], 1e6 * 13.8e9 / SLOTS, "an optimiser comes once a step")
    for batch, instructions in ((3, 0), (4, 1.4e9), (400, 1.4e9)):  # one batch: at least that many for more images
        near(floor(STEP.format(batch), "fp16,fast:sums=fp16")[0], 1e6 * instructions / SLOTS, "one counted batch", batch)
    check(floor(STEP.format(8), "e4m3fn")[0] == 0, "a format that nobody counted has a floor")
    report.read_table = read_table


def as_counted():
    """At the batch of tools/gpu-check.sh the floor is what was counted there, not a multiple of another batch's."""
    table = read_table("tests/gpu/ptx/ptx_counts.tsv")
    at_128 = [column.rsplit(":", 1)[0] for column in next(iter(table.values())) if column.endswith(":128")]
    check({"fp32", "fp16,fast", "flex16+5"} <= set(at_128), "counted at 128 images:", at_128)
    for format in at_128:
        counted = sum(row[format + ":128"] for kernel, row in table.items() if kernel != report.BYTES)
        check(table[report.BYTES][format + ":128"] > 1 << 20, format, "has no bytes")
        near(floor(STEP.format(128), format)[0], 1e6 * counted / SLOTS, format)
        check(3e6 < counted / 128 < 13e6, format, counted)  # of warps, an image
    for column in next(iter(table.values())):
        format, batch = column.rsplit(":", 1)
        more, less = floor(STEP.format(128), format)[0], floor(STEP.format(batch), format)[0]
        check(less <= more <= less * 128 / int(batch), format, less, more)


def of_products():
    for format in PRODUCTS:
        big, bound = floor("matmul 4096", format)
        check(bound == ("instructions" if format in ("fp32", "fp32,fast:tf32", "bf16,fast", "fp16,fast") else "tensor cores"), format, bound)
        check(floor("matmul 4096", format, A100)[1] == ("instructions" if format in ("fp32", "fp32,fast:tf32") else "tensor cores"), format, "on an A100")
        check(floor("matmul 64", format)[1] == "bytes", format, "of 64")
        near(floor("matmul 64", format)[0], 1e6 * 3 * 64 * 64 * (4 if "fp32" in format else 2) / 3.35e12, format)
        conv, why = floor("conv2d 8x8x64", format)
        if why != "bytes":
            near(conv / big, 512 * 22 * 22 * 64 * 64 / 4096**3, format, "a convolution")
    # By the peaks of the data sheets: operations a second of fp16, of int8 twice as many, of which an int16 product takes four.
    for device, rate in ((A100, 311.9e12), (H100, 989.4e12 * 1.755 / 1.83)):
        peak = 2 * 4096**3 / rate * 1e6
        for format, times in (("fp16,fast:sums=fp16", 1), ("fp16,fast", 1), ("dfp16", 2)):
            got = floor("matmul 4096", format, device)[0] / peak
            check(abs(got / times - 1) < 0.01, device["name"], format, "at", got, "times the least time of fp16")
    near(floor("matmul 4096", "fp32")[0] / floor("matmul 2048", "fp32")[0], 8, "fp32")
    check(floor("matmul 4096", "fp32")[0] > 1e6 * 4096**3 / 32 / SLOTS, "fp32: less than its fused multiply-adds")


def files():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rows = [{"work": STEP.format(128), "format": "fp16,fast", "microseconds": 5000.0}, {"work": "matmul 64", "format": "e4m3fn", "microseconds": 3.0}]
        (folder / "steps.log").write_text("a line\n[\n    " + json.dumps(rows[0]) + "\n]\n")
        (folder / "products.log").write_text("[\n    " + json.dumps(rows[1]) + "\n]\n")
        (folder / "pytorch.log").write_text("[\n" + json.dumps({**rows[0], "format": "fp16", "microseconds": 7000.0}) + "\n]\n")
        (folder / "outcomes").write_text("ops\tpassed\t3\nranks\tskipped\t0\n")
        with contextlib.redirect_stdout(io.StringIO()):
            check(report.write(folder, folder, H100) == 0, "write")
        text, stored = (folder / "gpu-h100.md").read_text(), json.loads((folder / "gpu-h100.json").read_text())
        least = stored["rows"][0]["floor"]
        check(f"| {STEP.format(128)} | fp16,fast | 5000.0 | {least:.1f} | {5000 / least:.1f} | instructions | 7000.0 |" in text, text)
        check("| ranks | skipped | 0 |" in text and text == report.table(stored), text)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            check(report.write(folder, folder, None) == 77 and "no GPU" in said.getvalue(), "without a GPU")


by_hand()
as_counted()
of_products()
files()
print(f"{failures} failures")
sys.exit(bool(failures))
