#!/usr/bin/env python3
"""Telemetry as a user gets it: --telemetry and --shadow, docs/output.md against the files, the table against the JSON
lines, counts against those of the run, the report of the first NaN or Inf, the files of flexlab in the folder, bad
options, TensorBoard event files if their packages are installed.

    test_cli_telemetry.py PATH-OF-FLEXLAB SOURCE"""
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from cli_harness import TINY, check, documented, expect_error, read_csv, read_lines, succeed, summary

SOURCE = sys.argv[2]
SHADOWS = "fp16,flex16+5:ngraph"


def is_type(value, kind):
    if value is None:
        return kind.endswith("?")
    return {"string": isinstance(value, str), "boolean": isinstance(value, bool), "object": isinstance(value, dict),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool)}[kind.rstrip("?")]


def check_object(value, kind, wanted, prefix=""):
    own = {f[len(prefix):] for f in wanted if f.startswith(prefix) and "." not in f[len(prefix):]}
    check({k + ("[]" if isinstance(v, list) else "") for k, v in value.items()} == own, kind, prefix, set(value), "want", own)
    for key, inner in value.items():
        if isinstance(inner, list):
            for element in inner:
                check(is_type(element, wanted[prefix + key + "[]"]), kind, key, element)
                if isinstance(element, dict):
                    check_object(element, kind, wanted, f"{prefix}{key}[].")
        else:
            check(is_type(inner, wanted.get(prefix + key, "?")), kind, key, repr(inner), wanted.get(prefix + key))


def check_rows(name, lines, table):
    rows = [line for line in lines if line["type"] == "tensor"]
    check(len(rows) == len(table) == lines[-1]["rows"], name, len(rows), len(table))
    for row, columns in zip(rows, table):
        check(sum(row["bins"]) + row["zeros"] + row["infinite"] + row["nan"] == row["elements"], name, row["tensor"], "histogram")
        check(not row["bins"] or (row["bins"][0] and row["bins"][-1]), name, row["tensor"], "empty bins at an end")
        check((row["maximum"] is None) == (row["maximum_state"] != "finite"), name, row["tensor"], row["maximum_state"])
        fields = {k: v for k, v in row.items() if k not in ("type", "maximum_state", "shadows", "bins")}
        for shadow in row["shadows"]:
            fields.update({f"{shadow['name']}.{k}": v for k, v in shadow.items() if k != "name"})
        for key, value in fields.items():
            text = {True: "true", False: "false"}[value] if isinstance(value, bool) else "" if value is None else str(value)
            same = columns[key] == text if not isinstance(value, float) else float(columns[key]) == value
            check(same or (key == "maximum" and columns[key] == "inf"), name, row["tensor"], key, columns[key], value)
        check(columns["bins"].split() == [str(b) for b in row["bins"]], name, row["tensor"], "bins")


def test_files(place):
    kinds, seen = documented(SOURCE, "telemetry-FORMAT-seedN.jsonl"), set()
    formats = ["fp32", "fp16:noscale", "flex16+5", "fp16:nomaster"]
    done = succeed("compare", *TINY, "--formats", ",".join(formats), "--lr", "1000", "--allow-divergence", "--telemetry", "5",
                   "--shadow", SHADOWS, "--out", place)
    metrics = read_lines(place)
    check(metrics[0]["telemetry"] == "5" and metrics[0]["shadow"] == SHADOWS, metrics[0])
    for label in formats:
        name = f"telemetry-{label.replace(':', '_')}-seed1"
        lines = read_lines(place, name + ".jsonl")
        for line in lines:
            check_object(line, line["type"], kinds[line["type"]])
            seen.add(line["type"])
        check_rows(name, lines, read_csv(place, name + ".csv"))
        rows = [line for line in lines if line["type"] == "tensor"]
        check(sorted({row["step"] for row in rows}) == [1, 6, 11, 12], name, sorted({row["step"] for row in rows}))
        run = next(line for line in metrics if line["type"] == "run" and line["format"] == label)
        for count in ("saturated", "flushed", "nonfinite"):
            check(sum(row[count] for row in rows) == run[count], name, count, sum(row[count] for row in rows), run[count])
        bad = [line for line in lines if line["type"] == "nonfinite"]
        searched = run["skipped"] > 0  # gradients of steps that a dynamic loss scale left out do not count
        check(bool(bad) == (run["nonfinite"] > 0) or (searched and not bad), name, "no nonfinite line")
        check(len(bad) <= 1 and (not bad or run["nonfinite"] > 0), name, "nonfinite lines", len(bad))
        if bad:
            told = f"{label} seed 1, step {bad[0]['step']}: the first NaN or Inf, in the "
            text = done.stderr[done.stderr.find(told):].split("\n")[0]
            what = f"{bad[0]['nonfinite']} of {{}} elements of {bad[0]['tensor']} ({bad[0]['role']}, "
            check(told in done.stderr and what.format(bad[0]["elements"]) in text, "not told:", told, what, done.stderr)
            check({name: bad[0][name] for name in ("step", "pass", "tensor", "role", "elements")} ==
                  {name: run["first_nonfinite_" + name] for name in ("step", "pass", "tensor", "role", "elements")}, bad[0], run)
            check(len(bad[0]["before"]) == 20 or bad[0]["step"] == 1, name, len(bad[0]["before"]))
    check(seen == set(kinds), "kinds of lines", seen ^ set(kinds))
    check("--telemetry" in succeed("train", "--help").stdout, "help")


def test_pattern(place):
    succeed("train", *TINY, "--format", "dfp16", "--telemetry", "7:fc1.weight,*.grad", "--out", place, "--force")
    names = {line.get("tensor") for line in read_lines(place, "telemetry-dfp16-seed1.jsonl")} - {None}
    check("fc1.weight" in names and all(n == "fc1.weight" or n.endswith(".grad") for n in names), names)
    left = [n for n in os.listdir(place) if n.startswith("telemetry-")]
    check(sorted(left) == ["telemetry-dfp16-seed1.csv", "telemetry-dfp16-seed1.jsonl"], "--force leaves", left)
    succeed("train", *TINY, "--format", "dfp16", "--out", place, "--force")
    check(not [n for n in os.listdir(place) if n.startswith("telemetry-")], "old telemetry is left")


def test_wrong(place):
    base = ["train", *TINY, "--out", os.path.join(place, "none")]
    for text in ("0", "-1", "x", "5:", "5x", "99999999999"):
        expect_error([*base, "--telemetry", text], 2, f"--telemetry '{text}'", "10:conv1*")
    for text, part in (("fp17", "fp17"), ("fp16:ngraph", "ngraph"), ("dfp16:what", "what"), ("", "''")):
        expect_error([*base, "--shadow", text], 2, f"--shadow '{text}'", part)
    for command in (base, ["compare", *base[1:], "--formats", "fp32,fp16,flex16+5", "--seeds", "50"]):
        expect_error([*command, "--telemetry", "5:nothing*"], 2, "--telemetry '5:nothing*'", "'nothing*' matches none")


class Scalars:
    """A writer that stores what it receives: {(name, step): value}."""

    finite = True  # all values must be finite

    def __init__(self, _):
        self.found = Scalars.last = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add_scalar(self, name, value, step):
        check((name, step) not in self.found and (math.isfinite(value) or not Scalars.finite), name, step, value)
        self.found[name, step] = value

    def add_histogram_raw(self, name, **_):
        pass

    def add_text(self, name, *_):
        pass


def load_script():
    spec = importlib.util.spec_from_file_location("to_tensorboard", os.path.join(SOURCE, "tools", "telemetry_to_tensorboard.py"))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_scalars(place):
    """Scalars of measured errors for TensorBoard: those of the records that have one, with the names in the
    documentation."""
    script = load_script()
    for name in sorted(n for n in os.listdir(place) if re.fullmatch("telemetry-.*[.]jsonl", n)):
        want = {}
        for row in (line for line in read_lines(place, name) if line["type"] == "tensor"):
            values = {k: row[k] for k in ("sampled_error", "sampled_size", "sampled_infinite")}
            if row["sampled_size"]:
                values["sampled_relative"] = row["sampled_error"] / row["sampled_size"]
            want |= {(f"{k}/{row['tensor']}", row["step"]): v for k, v in values.items() if row["sampled"] and v is not None}
        script.convert(pathlib.Path(place, name), "nowhere", Scalars)
        got = {key: value for key, value in Scalars.last.items() if key[0].startswith("sampled")}
        check(want and got == want, name, "measured errors", got.items() ^ want.items())
        check(any(key[0].startswith("deviation/") for key in Scalars.last), name, "no other scalars")
    earlier = os.path.join(place, "earlier.jsonl")  # a file without such fields
    with open(earlier, "w") as file:
        for line in read_lines(place, "telemetry-fp32-seed1.jsonl"):
            file.write(json.dumps({k: v for k, v in line.items() if not k.startswith("sampled")}) + "\n")
    script.convert(pathlib.Path(earlier), "nowhere", Scalars)
    check(Scalars.last and not any(key[0].startswith("sampled") for key in Scalars.last), "measured errors of an earlier file")
    os.remove(earlier)


def losses_of(place):
    """{name of the run: {(name of the scalar, step): value}} of the losses and accuracies in metrics.jsonl."""
    wanted = {}
    for line in read_lines(place):
        of = {"steps": {"loss/train": "loss", "learning_rate": "rate"}, "scale": {"loss_scale": "scale"},
              "epoch": {"loss/test": "test_loss", "accuracy/train": "train_accuracy", "accuracy/test": "test_accuracy"}}.get(line["type"], {})
        for name, key in of.items():
            wanted.setdefault(f"{line['format'].replace(':', '_')}-seed{line['seed']}", {})[name, line["step"]] = float(line[f"{key}_state"]) if line[key] is None else line[key]
    return wanted


def same(got, want, part=0):
    """Compares two dicts of numbers; NaN equals NaN."""
    return got.keys() == want.keys() and all(got[k] == v or abs(got[k] - v) <= part * abs(v) or (math.isnan(got[k]) and math.isnan(v)) for k, v in want.items())


def test_losses(place):
    """Losses and accuracies go to TensorBoard beside the telemetry of their run, and from a folder without telemetry;
    NaN remains NaN."""
    script = load_script()
    runs = {name: (telemetry, metrics) for name, telemetry, metrics in script.runs_of(pathlib.Path(place))}
    wanted = losses_of(place)
    check(set(runs) == set(wanted) and len(runs) == 4 and all(telemetry for telemetry, _ in runs.values()), runs.keys(), wanted.keys())
    Scalars.finite = False
    for name, (telemetry, metrics) in runs.items():
        script.convert(telemetry, "nowhere", Scalars, metrics)
        got = {key: value for key, value in Scalars.last.items() if key in wanted[name] or key[0].split("/")[0] in ("loss", "accuracy", "learning_rate", "loss_scale")}
        check(same(got, wanted[name]) and len(Scalars.last) > len(got), name, got, wanted[name])
    with tempfile.TemporaryDirectory() as bare:
        with open(os.path.join(bare, "metrics.jsonl"), "w") as file:
            for line in read_lines(place):
                file.write(json.dumps(line | ({"loss": None, "loss_state": "inf"} if line["type"] == "steps" and line["step"] == 2 else {})) + "\n")
        found = script.runs_of(pathlib.Path(bare))
        check(sorted(name for name, _, _ in found) == sorted(wanted) and all(telemetry is None for _, telemetry, _ in found), found)
        script.convert(None, "nowhere", Scalars, found[0][2])
        check(Scalars.last["loss/train", 2] == math.inf and same(Scalars.last, wanted[found[0][0]] | {("loss/train", 2): math.inf}), Scalars.last)
    Scalars.finite = True


def test_tensorboard(place):
    script = os.path.join(SOURCE, "tools", "telemetry_to_tensorboard.py")
    out = os.path.join(place, "tensorboard")
    done = subprocess.run([sys.executable, script, "--out", out, place], capture_output=True, text=True)
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        check(done.returncode == 1 and "pip install tensorboardX" in done.stderr, done.stderr)
        return
    check(done.returncode == 0 and len(os.listdir(out)) == 4, done.stdout, done.stderr)
    for folder in os.listdir(out):
        check(any(n.startswith("events.out.tfevents") for n in os.listdir(os.path.join(out, folder))), folder, "is empty")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return
    for run, want in losses_of(place).items():  # as TensorBoard reads them, in binary32
        events = EventAccumulator(os.path.join(out, run), size_guidance={"scalars": 0}).Reload()
        got = {(name, e.step): e.value for name in {name for name, _ in want} for e in events.Scalars(name)}
        check(same(got, want, 1e-6), run, got, want)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        place = os.path.join(temporary, "results")
        test_files(place)
        test_scalars(place)
        test_losses(place)
        test_tensorboard(place)
        test_pattern(place)
        test_wrong(temporary)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
