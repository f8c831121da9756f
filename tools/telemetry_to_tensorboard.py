#!/usr/bin/env python3
"""TensorBoard event files of the telemetry in folders of results: docs/telemetry.md.

usage: telemetry_to_tensorboard.py [--out DIR] PATH...

PATH: a folder of results, or a telemetry-FORMAT-seedN.jsonl. Each file becomes a run DIR/NAME (default DIR: tensorboard
beside the first file). Scalars are called FIGURE/TENSOR (a measured error has points
where there is one alone), histograms of the magnitudes log2/TENSOR. Files that are not
complete yet are read up to their last whole line."""
import argparse
import json
import math
import pathlib
import sys

SCALARS = (
    "mean deviation smallest largest l2 maximum saturated flushed nonfinite saturated_writes e e_moves rounding "
    "update_ratio update_moved"
).split()
SAMPLED = "sampled_error sampled_size sampled_infinite".split()
SHADOWS = "e error saturated flushed saturated_writes".split()


def files_of(path):
    if path.is_dir():
        found = sorted(path.glob("telemetry-*-seed*.jsonl"))
        return found or sys.exit(f"{path}: no telemetry-*-seed*.jsonl in it; train with --telemetry")
    return [path] if path.is_file() else sys.exit(f"{path}: no such file or folder")


def lines_of(path):
    """The objects of a file; the first must say that it is telemetry."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return  # still being written
            try:
                row = json.loads(line)
            except ValueError as error:
                sys.exit(f"{path}: line {number} is no JSON: {error}")
            if number == 1 and (row.get("type") != "telemetry" or row.get("schema") != 1):
                sys.exit(f"{path}: line 1 is no heading of telemetry of schema 1")
            yield row


def share(row):
    """Figures that are made of others."""
    size = row["l2"] / math.sqrt(row["elements"]) if row["described"] and row["l2"] else 0
    if size and row["rounding"] is not None:
        yield "rounding_relative", row["rounding"] / size
    if row["described"] and row["elements"]:
        yield "zeros_share", row["zeros"] / row["elements"]


def measured(row):
    """The measured error of a write, where there is one: other operations, and files of earlier versions, have none."""
    if not row.get("sampled"):
        return
    for name in SAMPLED:
        yield name, row[name]
    if row["sampled_size"]:
        yield "sampled_relative", row["sampled_error"] / row["sampled_size"]


def add_histogram(writer, row):
    """Bins of log2 |x|, each at its lower end and 1 wide."""
    counts, first = row["bins"], row["first_bin"]
    if not counts:
        return
    middles = [first + i + 0.5 for i in range(len(counts))]
    writer.add_histogram_raw(
        f"log2/{row['tensor']}",
        min=first,
        max=first + len(counts),
        num=sum(counts),
        sum=sum(c * m for c, m in zip(counts, middles)),
        sum_squares=sum(c * m * m for c, m in zip(counts, middles)),
        bucket_limits=[first] + [first + i + 1 for i in range(len(counts))],
        bucket_counts=[0] + counts,
        global_step=row["step"],
    )


def add_row(writer, row):
    step = row["step"]
    figures = [(name, row[name]) for name in SCALARS] + list(share(row)) + list(measured(row))
    for shadow in row["shadows"]:
        figures += [(f"shadow {shadow['name']} {name}", shadow[name]) for name in SHADOWS]
    for name, value in figures:
        if value is not None:
            writer.add_scalar(f"{name}/{row['tensor']}", value, step)
    add_histogram(writer, row)


def convert(path, folder, make_writer):
    rows = 0
    with make_writer(str(folder)) as writer:
        for row in lines_of(path):
            if row["type"] == "tensor":
                add_row(writer, row)
                rows += 1
            elif row["type"] == "nonfinite":
                writer.add_text("first NaN or Inf", f"{row['tensor']} ({row['role']})", row["step"])
    if not rows:
        sys.exit(f"{path}: no rows of tensors, expected telemetry of flexlab")
    print(f"{path}: {rows} rows -> {folder}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="PATH")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        sys.exit("TensorBoard event files are written by the package tensorboardX: python3 -m pip install tensorboardX")
    found = [file for path in arguments.paths for file in files_of(path)]
    out = arguments.out or found[0].parent / "tensorboard"
    if out.exists() and not out.is_dir():
        parser.error(f"--out {out}: a file, expected a folder")
    names = set()
    for file in found:
        name = file.stem if file.stem not in names else f"{file.parent.name}-{file.stem}"
        if name in names:
            sys.exit(f"{file}: another file has the name {name} already; convert them one by one with --out")
        names.add(name)
        convert(file, out / name, SummaryWriter)


if __name__ == "__main__":
    main()
