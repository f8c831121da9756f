#!/usr/bin/env python3
"""Formats in alternating slices, and loss scaling, as a user meets them: the numbers are those of one format after the
other, times are reported with their spread, a signal stores the results so far of every format, fp16 is scaled by
default, scales and skipped steps are in the files, a resumed training continues the sequence, a network that does not
change has diverged.

    test_cli_turns.py PATH-OF-FLEXLAB SOURCE"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

from cli_harness import PROGRAM, TINY, check, expect_error, read_csv, read_lines, succeed, summary, without_time

FORMATS = ["fp32", "fp16", "fp16:noscale", "flex16+5"]
DYNAMIC = "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216"


def of_format(place, name):
    return [json.dumps(without_time(line)) for line in read_lines(place) if line.get("format") == name and line["type"] != "format"]


def test_turns(place):
    """One comparison gives the lines, and the trace, of a training of each format alone, in the order of the formats."""
    whole = os.path.join(place, "whole")
    succeed("compare", *TINY, "--formats", ",".join(FORMATS), "--seeds", "2", "--step-loss", "--trace-every", "3", "--out", whole)
    lines = read_lines(whole)
    order = []
    for line in lines[1:]:
        run = (line.get("seed"), line.get("format"))
        if line["type"] not in ("format", "end") and (not order or order[-1] != run):
            order.append(run)
    check(order == [(seed, name) for seed in (1, 2) for name in FORMATS], "the runs stand in the order", order)
    for name in FORMATS:
        alone = os.path.join(place, "alone-" + name.replace(":", "_"))
        succeed("compare", *TINY, "--formats", name, "--seeds", "2", "--step-loss", "--trace-every", "3", "--out", alone)
        check(of_format(whole, name) == of_format(alone, name), name, "differs from a training of its own")
    trace = "trace-flex16+5-seed2.csv"
    with open(os.path.join(whole, trace), "rb") as one, open(os.path.join(alone, trace), "rb") as two:
        check(one.read() == two.read(), trace, "differs")
    return whole


def test_times(whole):
    config, lines = read_lines(whole)[0], read_lines(whole)
    warm_up = min(10, config["steps"] // 10)
    for run in (line for line in lines if line["type"] == "run"):
        check(run["timed"] == config["steps"] - warm_up, run["format"], run["timed"], "steps timed")
        check(0 < run["step_seconds_low"] <= run["step_seconds"] <= run["step_seconds_high"], run)
        check(run["seconds"] <= run["wall_seconds"] < 600, run["seconds"], "s of training in", run["wall_seconds"])
    rows = {row["format"]: row for row in read_csv(whole, "summary.csv")}
    for row in rows.values():
        ratio = float(rows["fp32"]["step_seconds"]) / float(row["step_seconds"])
        check(abs(float(row["speed_ratio"]) - ratio) < 1e-12 * ratio, row["format"], "speed_ratio", row["speed_ratio"], ratio)


def test_options(place):
    def refused(*arguments_and_parts):
        arguments, parts = arguments_and_parts
        expect_error(["compare", *TINY, "--out", os.path.join(place, "refused"), *arguments], 2, *parts)
    refused(["--loss-scale", "3"], ["--loss-scale", "'3'", "power of two"])
    refused(["--loss-scale", "dynamic:window=0"], ["window 0", "expected a whole number from 1"])
    refused(["--loss-scale", "fast"], ["'fast'", "expected none, dynamic"])
    refused(["--loss-scale", ""], ["expected SCALE"])
    refused(["--formats", "fp32,bf16:noscale"], ["bf16:noscale", "not scaled anyway"])
    refused(["--formats", "fp16:noscal"], ["noscal", "did you mean 'noscale'"])
    check(not os.path.exists(os.path.join(place, "refused")), "something was written")
    out = os.path.join(place, "scales")
    succeed("compare", *TINY, "--max-steps", "2", "--loss-scale", "2^10", "--formats", "fp32,fp16,fp16-sr:noscale,dfp16", "--out", out)
    found = {s["name"]: s["loss_scale"] for s in read_lines(out)[0]["formats"]}
    check(found == {"fp32": "1024", "fp16": "1024", "fp16-sr:noscale": "none", "dfp16": "1024"}, found)
    out = os.path.join(place, "usual")
    succeed("compare", *TINY, "--max-steps", "2", "--formats", "fp32,fp16,fp16-sr,bf16,flex16+5", "--out", out)
    found = {s["name"]: s["loss_scale"] for s in read_lines(out)[0]["formats"]}
    check(found == {"fp32": "none", "fp16": DYNAMIC, "fp16-sr": DYNAMIC, "bf16": "none", "flex16+5": "none"}, found)
    # its report is the one of the training, and folders with other scales are not merged
    done = succeed("report", out, "--out", os.path.join(place, "again"))
    check("skipped" in done.stdout, done.stdout)
    other = os.path.join(place, "other")
    succeed("compare", *TINY, "--max-steps", "2", "--formats", "fp16", "--loss-scale", "64", "--seed-base", "2", "--out", other)
    done = succeed("report", out, other, "--out", os.path.join(place, "both"), status=1)
    check("the loss scale of fp16 is" in done.stderr and "'64'" in done.stderr, done.stderr)


def model_of(skipped, scale, window, top):
    """The scales of the steps, from those that were skipped."""
    good = 0
    for bad in skipped:
        yield scale
        if bad:
            scale, good = scale / 2, 0
        else:
            good += 1
            if good == window:
                scale, good = min(scale * 2, top), 0


GOING = ["--format", "fp16", "--loss-scale", "dynamic:init=2^24,window=3", "--step-loss", "--epochs", "6"]


def test_goes_on(place):
    """The sequence of scales of a training that was stopped and resumed is that of an uninterrupted one."""
    whole, parts = os.path.join(place, "going"), os.path.join(place, "parts")
    succeed("train", *TINY, *GOING, "--out", whole)
    changes = [line for line in read_lines(whole) if line["type"] == "scale"]
    run = next(line for line in read_lines(whole) if line["type"] == "run")
    check(run["skipped"] > 3 and run["skipped_in_a_row"] > 2 and run["skipped_at_end"] <= 1 and len(changes) > 6, run, changes)
    # every change is by a factor of two: down after a skipped step, up after three good ones
    scales = []
    for now, then in zip(changes, changes[1:] + [{"step": run["steps"] + 1}]):
        scales += [now["scale"]] * (then["step"] - now["step"])
    skipped = [b < a for a, b in zip(scales, scales[1:] + [run["loss_scale"]])]
    check(sum(skipped) == run["skipped"], sum(skipped), "steps down,", run["skipped"], "skipped")
    check(list(model_of(skipped, 2.0 ** 24, 3, 2.0 ** 24)) == scales, "the scales", scales)
    child = subprocess.Popen([PROGRAM, "train", *TINY, *GOING, "--checkpoint-every", "1", "--out", parts], stderr=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL)
    resume = os.path.join(parts, "flexlab.resume", "resume.safetensors")
    while child.poll() is None and not os.path.exists(resume):
        pass
    child.send_signal(signal.SIGINT)
    status = child.wait(60)
    check(status in (0, 130), "status", status)
    if status == 130:
        succeed("train", "--resume", parts, "--force")
    check(of_format(whole, "fp16") == of_format(parts, "fp16"), "a training that was taken up has other lines")


def test_starves(place):
    """Gradients that overflow at every scale are reported as a warning and a divergence; with --allow-divergence only
    as a warning."""
    out = os.path.join(place, "starves")
    options = [*TINY, "--format", "fp16", "--epochs", "5", "--loss-scale", "dynamic:init=2^40,min=2^40,max=2^40", "--out", out]
    done = succeed("train", *options, status=1)
    check("WARNING: 20 consecutive steps made no update, up to step 20" in done.stderr and "train: the run diverged; with --allow" in done.stderr, done.stderr)
    check("DIVERGED: fp16, seed 1: its last 30 steps made no update" in done.stdout, done.stdout)
    run = next(line for line in read_lines(out) if line["type"] == "run")
    check(run["diverged"] and run["skipped"] == run["skipped_at_end"] == run["steps"] == 30 and run["loss_scale"] == 2.0 ** 40, run)
    done = succeed("train", *options, "--allow-divergence", "--force")
    check("WARNING" in done.stderr and "DIVERGED" in done.stdout, done.stdout, done.stderr)
    # a scale far above a good one comes down to it: a warning, and no divergence
    out = os.path.join(place, "through")
    done = succeed("train", *TINY, "--format", "fp16", "--epochs", "8", "--loss-scale", "dynamic:init=2^45,max=2^45", "--out", out)
    check("WARNING: 20 consecutive steps" in done.stderr and re.search(r"WARNING: fp16: \d+ consecutive steps", done.stdout), done.stderr)
    check("DIVERGED" not in done.stdout, done.stdout)


def test_signal(place):
    """The results so far of every format are stored."""
    out = os.path.join(place, "signal")
    data = ["--model", "mlp2", "--data", "synthetic:train=4000,test=40", "--batch", "16", "--epochs", "200", "--no-trace"]
    child = subprocess.Popen([PROGRAM, "compare", *data, "--formats", "fp32,fp16,flex16+5", "--out", out], stderr=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    seen = []
    for line in child.stderr:
        seen.append(line)
        if len({re.search(r"\] (\S+) seed", each)[1] for each in seen if "epoch" in each}) == 3:
            break
    child.send_signal(signal.SIGINT)
    _, rest = child.communicate(timeout=120)
    check(child.returncode == 130, "status", child.returncode)
    for name in ("fp32", "fp16", "flex16+5"):
        check(f"stopped by SIGINT during {name} seed 1, after step" in rest, name, rest)
    lines = read_lines(out)
    runs = [line for line in lines if line["type"] == "run"]
    check([r["format"] for r in runs] == ["fp32", "fp16", "flex16+5"] and not any(r["complete"] for r in runs), runs)
    check(all(r["steps"] >= 250 and r["timed"] == r["steps"] - 10 for r in runs), [(r["steps"], r["timed"]) for r in runs])
    check(lines[-1]["stopped_by"] == "SIGINT" and lines[-1]["finished_runs"] == 0, lines[-1])
    succeed("report", out)


def main():
    with tempfile.TemporaryDirectory() as place:
        test_times(test_turns(place))
        test_options(place)
        test_goes_on(place)
        test_starves(place)
        test_signal(place)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
