#!/usr/bin/env python3
"""gpu_report.py - what tools/gpu-check.sh writes down: figures beside floors.

usage: gpu_report.py capability              compute capability of the first GPU, as 90; status 77: there is none
       gpu_report.py write BUILD RESULTS     RESULTS/gpu-NAME.json and RESULTS/gpu-NAME.md, from the logs in BUILD
       gpu_report.py table FILE              the table of such a JSON file

A floor is the larger of two times: the bytes of operands and results over the bandwidth of the memory, and instructions of
warps over what the schedulers issue, four of a multiprocessor in a clock. Instructions of a step are those that the PTX
machine counted (tests/gpu/ptx/ptx_counts.tsv); of a product, those of the inner loop in the machine code
(tests/gpu/gpu_static.tsv)."""
import ctypes
import datetime
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {"fp32": 4}  # bytes of an element; the others have two


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

    return {"name": name.value.decode(), "driver": driver.value, "capability": f"{attribute(75)}{attribute(76)}", "multiprocessors": attribute(16),
            "clock_hz": attribute(13) * 1e3, "bytes_a_second": 2e3 * attribute(36) * attribute(37) / 8}


def read_table(path):
    head, *lines = [line.split("\t") for line in (ROOT / path).read_text().splitlines()]
    return {line[0]: dict(zip(head[1:], map(int, line[1:]))) for line in lines}


def instructions_of_step(format, batch):
    """0: not counted."""
    table = read_table("tests/gpu/ptx/ptx_counts.tsv")
    for column in next(iter(table.values())):
        name, counted = column.split(":")
        if name == format:
            return sum(row[column] for row in table.values()) * batch / int(counted)
    return 0


def instructions_of_product(format):
    """Of a warp for a product: a tensor-core instruction makes a quarter of 16 x 8 x 32 products of 16 bits, another 32."""
    loops = read_table("tests/gpu/gpu_static.tsv")
    whole = format in ("flex16+5", "dfp16")
    rows = [(row["inner loop"], 1024 * row["IMMA"] if whole else 32 * row["FFMA"]) for name, row in loops.items()
            if name.startswith("product") and (row["IMMA"] if whole else row["FFMA"])]
    return min((length / products for length, products in rows), default=0)


def floor(row, device):
    """Microseconds; what binds."""
    format, size = row["format"], SIZES.get(row["format"], 2)
    moved = instructions = 0
    if step := re.fullmatch(r"step of ResNet-20, batch (\d+)", row["work"]):
        instructions = instructions_of_step(format, int(step[1]))
    elif matmul := re.fullmatch(r"matmul (\d+)", row["work"]):
        n = int(matmul[1])
        moved, instructions = 3 * n * n * size, n**3 * instructions_of_product(format)
    elif conv := re.fullmatch(r"conv2d (\d+)x\d+x(\d+)", row["work"]):  # 512 images, 3 x 3
        side, c = int(conv[1]), int(conv[2])
        moved, instructions = (2 * 512 * side * side * c + 9 * c * c) * size, 512 * side * side * 9 * c * c * instructions_of_product(format)
    by_bytes = 1e6 * moved / device["bytes_a_second"]
    by_instructions = 1e6 * instructions / (4 * device["multiprocessors"] * device["clock_hz"])
    return max(by_bytes, by_instructions), "bytes" if by_bytes > by_instructions else "instructions"


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


def write(build, results):
    device = properties()
    if not device:
        print("gpu_report: no GPU")
        return 77
    rivals = {(row["work"], row["format"]): row["microseconds"] for row in list_in(build / "pytorch.log")}
    rows = []
    for row in list_in(build / "steps.log") + list_in(build / "products.log"):
        row["floor"], row["bound"] = floor(row, device)
        near = {"flex16+5": "bf16", "dfp16": "bf16"}.get(row["format"], row["format"])  # what a user of PyTorch would take
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
    if command == "write" and len(paths) == 2:
        sys.exit(write(*map(pathlib.Path, paths)))
    if command == "table" and len(paths) == 1:
        print(table(json.loads(pathlib.Path(paths[0]).read_text())), end="")
        sys.exit()
    sys.exit(__doc__)
