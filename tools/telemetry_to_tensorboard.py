#!/usr/bin/env python3
"""TensorBoard event files of folders of results: losses, accuracies and telemetry (docs/output.md).

usage: telemetry_to_tensorboard.py [--out DIR] PATH...

PATH: a folder of results, with telemetry or without, or a telemetry-FORMAT-seedN.jsonl alone. Each run of training
becomes a run DIR/FORMAT-seedN (default DIR: tensorboard beside the first file). Losses and accuracies are called
loss/train, loss/test, accuracy/train, accuracy/test, beside learning_rate and loss_scale; scalars of telemetry
FIGURE/TENSOR (a measured error has points where there is one alone), histograms of the magnitudes log2/TENSOR. Files
that are not complete yet are read up to their last whole line."""
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
METRICS = {  # fields of the lines of metrics.jsonl
    "steps": {"loss": "loss/train", "rate": "learning_rate"},
    "scale": {"scale": "loss_scale"},
    "epoch": {"test_loss": "loss/test", "train_accuracy": "accuracy/train", "test_accuracy": "accuracy/test"},
}
SHADOWS = "e error saturated flushed saturated_writes".split()


def runs_of(path):
    """(name, telemetry or None, lines of metrics.jsonl) of each run of training in a folder, or of a file of telemetry."""
    if path.is_file():
        return [(path.stem.removeprefix("telemetry-"), path, [])]
    if not path.is_dir():
        sys.exit(f"{path}: no such file or folder")
    runs = {file.stem.removeprefix("telemetry-"): (file, []) for file in sorted(path.glob("telemetry-*-seed*.jsonl"))}
    metrics = path / "metrics.jsonl"
    for line in lines_of(metrics, "config") if metrics.is_file() else ():
        if line["type"] in METRICS:
            name = f"{line['format']}-seed{line['seed']}".replace(":", "_").replace("/", "_")  # as in the names of files
            runs.setdefault(name, (None, []))[1].append(line)
    if not runs:
        sys.exit(f"{path}: neither metrics.jsonl nor telemetry-*-seed*.jsonl in it, expected a folder of results")
    return [(name, *run) for name, run in runs.items()]


def lines_of(path, first="telemetry"):
    """The objects of a file; the first must say what it is."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return  # still being written
            try:
                row = json.loads(line)
            except ValueError as error:
                sys.exit(f"{path}: line {number} is no JSON: {error}")
            if number == 1 and (row.get("type") != first or row.get("schema") != 1):
                sys.exit(f"{path}: line 1 is no heading '{first}' of schema 1")
            yield row


def add_metrics(writer, line):
    """Losses that are not finite are told as NaN and Inf, which TensorBoard marks."""
    for field, name in METRICS[line["type"]].items():
        value = line[field] if line[field] is not None else float(line[f"{field}_state"])
        writer.add_scalar(name, value, line["step"])


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


def convert(path, folder, make_writer, metrics=()):
    rows = 0
    with make_writer(str(folder)) as writer:
        for line in metrics:
            add_metrics(writer, line)
        for row in lines_of(path) if path else ():
            if row["type"] == "tensor":
                add_row(writer, row)
                rows += 1
            elif row["type"] == "nonfinite":
                writer.add_text("first NaN or Inf", f"{row['tensor']} ({row['role']})", row["step"])
    if path and not rows:
        sys.exit(f"{path}: no rows of tensors, expected telemetry of flexlab")
    print(f"{folder}: {rows} rows of telemetry, {len(metrics)} lines of losses")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="PATH")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        sys.exit("TensorBoard event files are written by the package tensorboardX: python3 -m pip install tensorboardX")
    found = [(path, *run) for path in arguments.paths for run in runs_of(path)]
    first = arguments.paths[0]
    out = arguments.out or (first if first.is_dir() else first.parent) / "tensorboard"
    if out.exists() and not out.is_dir():
        parser.error(f"--out {out}: a file, expected a folder")
    names = set()
    for path, stem, telemetry, metrics in found:
        folder = path if path.is_dir() else path.parent
        name = stem if stem not in names else f"{folder.resolve().name}-{stem}"
        if name in names:
            sys.exit(f"{path}: another run has the name {name} already; convert them one by one with --out")
        names.add(name)
        convert(telemetry, out / name, SummaryWriter, metrics)


if __name__ == "__main__":
    main()
