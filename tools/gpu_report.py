#!/usr/bin/env python3
"""gpu_report.py - what tools/gpu-check.sh writes down: figures beside floors.

usage: gpu_report.py capability              compute capability of the first GPU, as 90; status 77: there is none
       gpu_report.py count                   how many GPUs there are
       gpu_report.py write BUILD RESULTS     RESULTS/gpu-NAME.json and RESULTS/gpu-NAME.md, from the logs in BUILD
       gpu_report.py rehearse BUILD RESULTS  the same without a GPU, beside the floors of an H100
       gpu_report.py table FILE              the table of such a JSON file

A floor is the largest of three times: bytes over the bandwidth of the memory; instructions of warps over what the schedulers
issue, four of a multiprocessor in a clock; products over what its four tensor cores make. Of a step, the PTX machine counted
the instructions, and the bytes that do not stay in a cache of 50 MiB, for several batches (tests/gpu/ptx/ptx_counts.tsv): for
others the instructions lie on the straight line through two of them, because part of a step comes once and not with each
image. Of a product, the bytes are those of its operands and its result, and the instructions those of the best inner loop in
the machine code (tests/gpu/gpu_static.tsv)."""
import ctypes
import datetime
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"fp32": 4}  # bytes of an element; the others have two
BYTES = "bytes of memory"  # the row of ptx_counts.tsv that has no instructions
CLOCKS = {"80": 8, "90": 4}  # of a tensor core for an mma.sync of 16 x 8 x 32 bytes, by the peak rates of A100 and H100
REHEARSAL = {"name": "rehearsal", "devices": 0, "driver": 0, "capability": "90", "multiprocessors": 132, "clock_hz": 1.755e9, "bytes_a_second": 3.35e12}


def properties():
    """Of the first GPU, by the driver; None: there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, driver, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None
    cuda.cuDriverGetVersion(ctypes.byref(driver))
    cuda.cuDeviceGetName(name, 256, 0)

    def attribute(number):  # CU_DEVICE_ATTRIBUTE_...
        value = ctypes.c_int()
        return 0 if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0) else value.value

    return {"name": name.value.decode(), "devices": count.value, "driver": driver.value, "capability": f"{attribute(75)}{attribute(76)}",
            "multiprocessors": attribute(16), "clock_hz": attribute(13) * 1e3, "bytes_a_second": 2e3 * attribute(36) * attribute(37) / 8}


def read_table(path):
    head, *lines = [line.split("\t") for line in (ROOT / path).read_text().splitlines()]
    return {line[0]: dict(zip(head[1:], map(int, line[1:]))) for line in lines}


def counts_of_step(format, batch):
    """Instructions of warps, bytes; 0: not known."""
    table = read_table("tests/gpu/ptx/ptx_counts.tsv")
    instructions, moved = {}, {}
    for column in next(iter(table.values())):
        name, counted = column.rsplit(":", 1)
        if name == format:
            instructions[int(counted)] = sum(row[column] for kernel, row in table.items() if kernel != BYTES)
            moved[int(counted)] = table.get(BYTES, {}).get(column, 0)
    fewer = [counted for counted in instructions if counted <= batch]
    bytes_moved = max((moved[counted] for counted in fewer), default=0)  # more images move no fewer
    if batch in instructions or len(instructions) < 2:
        return max((instructions[counted] for counted in fewer), default=0), bytes_moved
    (a, at_a), *_, (b, at_b) = sorted(instructions.items())
    return at_a + (at_b - at_a) * (batch - a) / (b - a), bytes_moved


def product(format):
    """Of one product of two elements: instructions of warps, and how many of these are of tensor cores."""
    name, _, how = format.partition(",")
    word, part, each, cores = "FFMA", "chain_shape", 32, 0
    if name in ("flex16+5", "dfp16"):
        word, part, each, cores = "IMMA", "int16_terms", 1024, 1  # a quarter of 16 x 8 x 32
    elif how == "fast" and name in ("fp16", "bf16"):
        word, part, each, cores = "HMMA", "cells_of_16_bits, sums_of_32_bits", 2048, 1
    elif how == "fast:sums=fp16" and name == "fp16":
        word, part, each, cores = "HMMA", "cells_of_16_bits, sums_of_16_bits", 2048, 1
    elif how == "fast:tf32" and name == "fp32":
        word, part, each, cores = "HMMA", "cells_of_tf32", 1024, 1
    loops = [row["inner loop"] / (each * row[word]) for name, row in read_table("tests/gpu/gpu_static.tsv").items()
             if name.startswith("product_tiles") and part in name and row[word]]
    return min(loops, default=0), cores / each


def floor(row, device):
    """Microseconds; what binds."""
    format, size = row["format"], SIZES.get(row["format"].partition(",")[0], 2)
    moved = instructions = products = 0
    if step := re.fullmatch(r"step of ResNet-20, batch (\d+)", row["work"]):
        instructions, moved = counts_of_step(format, int(step[1]))
    elif matmul := re.fullmatch(r"matmul (\d+)", row["work"]):
        n = int(matmul[1])
        moved, products = 3 * n * n * size, n**3
    elif conv := re.fullmatch(r"conv2d (\d+)x\d+x(\d+)", row["work"]):  # 512 images, 3 x 3; positions in the margin are no products
        side, c = int(conv[1]), int(conv[2])
        moved, products = (2 * 512 * side * side * c + 9 * c * c) * size, 512 * (3 * side - 2) ** 2 * c * c
    issued, multiplied = product(format)
    a_clock = 4 * device["multiprocessors"] * device["clock_hz"]
    times = {"bytes": moved / device["bytes_a_second"], "instructions": (instructions or products * issued) / a_clock,
             "tensor cores": products * multiplied * CLOCKS.get(device["capability"], 0) / a_clock}
    bound = max(times, key=times.get)
    return 1e6 * times[bound], bound


def list_in(path):
    """The JSON in a log, which may have other lines around it."""
    text = path.read_text() if path.exists() else ""
    at = text.find("[\n")
    return json.JSONDecoder().raw_decode(text[at:])[0] if at >= 0 else []


def table(result):
    d = result["device"]
    lines = [f"{d['name']}, {d['multiprocessors']} multiprocessors at {d['clock_hz'] / 1e9:.2f} GHz, {d['bytes_a_second'] / 1e9:.0f} GB/s, driver of CUDA "
             f"{d['driver'] // 1000}.{d['driver'] % 1000 // 10}, {result['date']}.", "",
             "| work | format | time, µs | floor, µs | × floor | by | PyTorch, µs |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for row in result["rows"]:
        ratio = f"{row['microseconds'] / row['floor']:.1f}" if row["floor"] else "–"
        rival = f"{row['pytorch']:.1f}" if row["pytorch"] else "–"
        lines.append(f"| {row['work']} | {row['format']} | {row['microseconds']:.1f} | {row['floor']:.1f} | {ratio} | {row['bound']} | {rival} |")
    lines += ["", "| step of the check | outcome | s |", "| --- | --- | --- |", *(f"| {o['step']} | {o['outcome']} | {o['seconds']} |" for o in result["outcomes"])]
    return "\n".join(lines) + "\n"


def write(build, results, device):
    if not device:
        print("gpu_report: no GPU")
        return 77
    rivals = {(row["work"], row["format"]): row["microseconds"] for row in list_in(build / "pytorch.log")}
    rows = []
    for row in list_in(build / "steps.log") + list_in(build / "products.log"):
        row["floor"], row["bound"] = floor(row, device)
        near = {"flex16+5": "bf16", "dfp16": "bf16", "fp32,fast:tf32": "tf32"}.get(row["format"], row["format"].partition(",")[0])  # of PyTorch
        row["pytorch"] = rivals.get((row["work"], near))
        rows.append(row)
    outcomes = [dict(zip(("step", "outcome", "seconds"), line.split("\t"))) for line in (build / "outcomes").read_text().splitlines()]
    result = {"device": device, "date": str(datetime.date.today()), "rows": rows, "outcomes": outcomes}
    path = results / ("gpu-" + re.sub(r"[^a-z0-9]+", "-", device["name"].lower()).strip("-"))
    path.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    path.with_suffix(".md").write_text(table(result))
    print(f"written: {path}.json, {path}.md\n{table(result)}")
    return 0


if __name__ == "__main__":
    command, *paths = sys.argv[1:] or [""]
    if command == "capability" and not paths:
        found = properties()
        print(found["capability"] if found else "")
        sys.exit(0 if found else 77)
    if command == "count" and not paths:
        print((properties() or {"devices": 0})["devices"])
        sys.exit()
    if command in ("write", "rehearse") and len(paths) == 2:
        sys.exit(write(*map(pathlib.Path, paths), properties() if command == "write" else REHEARSAL))
    if command == "table" and len(paths) == 1:
        print(table(json.loads(pathlib.Path(paths[0]).read_text())), end="")
        sys.exit()
    sys.exit(__doc__)
