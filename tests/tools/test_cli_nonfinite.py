#!/usr/bin/env python3
"""The first NaN or Inf on the command line: a forward pass that overflows in steps which a dynamic loss scale leaves
out is reported at once, by its tensor, and as in telemetry; the suggested option is tried; --stop-on-nonfinite;
resuming; metrics.jsonl, the report drawn again, and its page. usage: test_cli_nonfinite.py PATH-OF-FLEXLAB SOURCE"""
import glob
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from cli_harness import PROGRAM, check, expect_error, read_lines, run, succeed, summary, without_time

GPT = ["--model", "gpt1x64", "--context", "32", "--batch", "8", "--lr", "1", "--max-steps", "30"]
WORDS = "the cat sat on a mat dog ran far away and then it slept well today".split()
FIELDS = ("step", "pass", "tensor", "role", "layer", "format", "count", "elements", "remedy")


def run_line(out, label="fp16"):
    return next(line for line in read_lines(out) if line["type"] == "run" and line["format"] == label)


def first_of(line):
    return {name: line["first_nonfinite_" + name] for name in FIELDS}


def page_data(out):
    with open(os.path.join(out, "report.html")) as file:
        return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', file.read(), re.S)[1])


def told(out, first, done):
    """Checks stderr, the notes below the table, and the page; returns the suggested option."""
    what = f"step {first['step']}, in the forward pass: {first['count']} of {first['elements']} elements of {first['tensor']} ({first['role']}, fp16)"
    check("fp16 seed 1, " + what.replace(",", ": the first NaN or Inf,", 1) in done.stderr, what, done.stderr)
    text = " ".join(done.stdout.split())
    check(f"First NaN or Inf: fp16, seed 1, {what}" in text, what, done.stdout)
    option = re.search(r"with --layer-format '([^']*)' it would be finite", text)
    check(option, done.stdout)
    rules = "; ".join(f"{rule.split('=')[0]} format={rule.split('=')[1]}" for rule in option[1].split(","))
    check(rules == first["remedy"], rules, first)
    with open(os.path.join(out, "report.html")) as file:
        check(f"First NaN or Inf: fp16, seed 1, {what}" in file.read(), "the page lacks", what)
    mark = next(r for r in page_data(out)["runs"] if r["nonfinite"])
    check(mark["nonfinite"]["step"] == first["step"] and first["tensor"] in mark["nonfinite"]["text"], mark["nonfinite"])
    return option[1]


def test_forward(place, data):
    """The loss is finite up to the step before; earlier overflows of gradients were part of the search for the
    scale."""
    out, other = os.path.join(place, "forward"), os.path.join(place, "telemetry")
    done = succeed("train", *GPT, *data, "--format", "fp16", "--step-loss", "--out", out, status=1)
    lines, line = read_lines(out), run_line(out)
    first = first_of(line)
    bad = [s["step"] for s in lines if s["type"] == "step" and s["loss"] is None]
    check(first["pass"] == "forward" and first["layer"] == "block1.attention" and first["tensor"] == "block1.attention.scores", first)
    check(first["step"] == bad[0] == line["nonfinite_step"] and first["step"] < 20 <= line["skipped_in_a_row"], first, bad[:3])
    check("gradients overflow" not in done.stderr + done.stdout, "blames the gradients:", done.stderr)
    check("gradients are not finite" in done.stderr and "which no loss scale helps" in done.stderr, done.stderr)
    rule = told(out, first, done)
    # with telemetry
    succeed("train", *GPT, *data, "--format", "fp16", "--telemetry", "7", "--out", other, status=1)
    found = next(row for row in read_lines(other, "telemetry-fp16-seed1.jsonl") if row["type"] == "nonfinite")
    check(all(found[name] == first[name] for name in ("step", "pass", "tensor", "role")) and found["nonfinite"] == first["count"], found, first)
    check(first_of(run_line(other)) == first, "with telemetry", run_line(other))
    check(len(found["before"]) == 20 and all(w["step"] <= found["step"] for w in found["before"]), found["before"])
    # the curve continues as far as losses are finite
    data_of = page_data(out)["runs"][0]
    finite = {s["step"]: s["loss"] for s in lines if s["type"] == "step"}
    check(data_of["lost"] == len(bad), data_of["lost"], len(bad))
    check([v is None for v in data_of["loss"]] == [finite[int(s)] is None for s in data_of["steps"]], data_of["loss"])
    # drawn again from the files
    with open(os.path.join(out, "report.html")) as file:
        page = file.read()
    again = succeed("report", out)
    with open(os.path.join(out, "report.html")) as file:
        check(file.read() == page and "First NaN or Inf: fp16" in again.stdout, "another report", again.stdout)
    return first, rule


def test_option(place, data, first, rule):
    """The suggested option is accepted unchanged, and the tensor then is finite."""
    out = os.path.join(place, "held")
    done = run("train", *GPT, *data, "--format", "fp16", "--layer-format", rule, "--max-steps", str(first["step"]), "--allow-divergence", "--out", out)
    check(done.returncode == 0, "not accepted:", rule, done.stderr)
    line = run_line(out, "fp16:layers")
    check(line["first_nonfinite_step"] == 0, first_of(line))
    check(line["steps"] == first["step"], line)


def test_stop(place, data, first):
    """The training stops there and stores its results so far; resumed, it continues to the end, and still reports
    it."""
    out, whole = os.path.join(place, "stop"), os.path.join(place, "forward")
    done = succeed("train", *GPT, *data, "--format", "fp16", "--stop-on-nonfinite", "--step-loss", "--out", out, status=1)
    check("stopped by its first NaN or Inf (--stop-on-nonfinite), after step" in done.stderr and
          "train: the run stopped after its first NaN or Inf" in done.stderr and "resumes it" in done.stderr, done.stderr)
    line = run_line(out)
    check(not line["complete"] and line["steps"] == first["step"] and first_of(line) == first, line)
    check(os.path.exists(os.path.join(out, "flexlab.resume", "resume.safetensors")), os.listdir(out))
    done = succeed("train", "--resume", out, status=1)
    check("the first NaN or Inf," not in done.stderr, "told again:", done.stderr)
    check(without_time(read_lines(out)[1:]) == without_time(read_lines(whole)[1:]), "goes on to other lines")
    succeed("train", *GPT, *data, "--format", "fp16", "--stop-on-nonfinite", "--allow-divergence", "--out", out, "--force", status=1)
    check("--stop-on-nonfinite" in succeed("train", "--help").stdout and "--stop-on-nonfinite" in succeed("compare", "--help").stdout, "help")


def killed_at_first_checkpoint(out, command, *options):
    child = subprocess.Popen([PROGRAM, command, *options, "--checkpoint-every", "1", "--quiet", "--out", out], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    until = time.time() + 60
    while child.poll() is None and time.time() < until and not glob.glob(os.path.join(out, "flexlab.resume", "**", "resume.safetensors"), recursive=True):
        time.sleep(0.001)
    child.kill()
    child.communicate()


def test_stop_when_going_on(place):
    """--stop-on-nonfinite only beside --resume: a training far before its first NaN or Inf stops there."""
    options = ["--model", "mlp3x16", "--data", "synthetic:train=4000,test=20", "--batch", "4", "--epochs", "2", "--loss-scale", "none", "--lr", "1",
               "--warmup", "1", "--schedule", "constant", "--threads", "1"]
    whole, out = os.path.join(place, "goes to the end"), os.path.join(place, "stops when going on")
    succeed("train", *options, "--format", "fp16", "--allow-divergence", "--quiet", "--out", whole)
    first = first_of(run_line(whole))
    check(300 < first["step"] < run_line(whole)["steps"], first)
    for command, formats in (("train", ["--format", "fp16"]), ("compare", ["--formats", "fp16,bf16", "--max-steps", str(first["step"] + 5)])):
        killed_at_first_checkpoint(out, command, *options, *formats, "--allow-divergence")
        done = run(command, "--resume", out, "--stop-on-nonfinite", "--checkpoint-every", "100000", "--quiet")
        line = run_line(out)
        check(done.returncode == 1 and not line["complete"] and line["steps"] == first["step"] and first_of(line) == first, command,
              done.returncode, line["steps"], first, done.stderr)
        check("its first NaN or Inf (--stop-on-nonfinite)" in done.stderr, command, done.stderr)
        shutil.rmtree(out)
        shown = succeed(command, "--help").stdout
        check("gradients were not\nfinite at every loss scale" in shown and "gradients overflowed" not in shown, command, "what divergence is")
        check("--stop-on-nonfinite may be" in shown[shown.index("--resume"):shown.index("What is written")], command, "--help does not tell")


def test_compare(place, data):
    """Each format reports its own; one that stops does not affect the others."""
    out = os.path.join(place, "compare")
    done = succeed("compare", *GPT, *data, "--formats", "fp32,fp16", "--stop-on-nonfinite", "--out", out, "--allow-divergence", status=1)
    check(run_line(out, "fp32")["first_nonfinite_step"] == 0 and run_line(out, "fp32")["complete"], run_line(out, "fp32"))
    check(run_line(out, "fp32")["first_nonfinite_pass"] == "none" and run_line(out, "fp32")["first_nonfinite_tensor"] is None, "none")
    check(run_line(out)["steps"] == run_line(out)["first_nonfinite_step"] and not run_line(out)["complete"], run_line(out))
    check("First NaN or Inf: fp16" in done.stdout and "First NaN or Inf: fp32" not in done.stdout, done.stdout)


def test_backward(place):
    """Gradients with a static scale: the suggested scale helps. Averaging intervals have the mean of the finite
    losses."""
    out = os.path.join(place, "backward")
    tiny = ["--model", "mlp2", "--data", "synthetic:train=1600,test=40", "--batch", "16", "--epochs", "1"]
    done = succeed("train", *tiny, "--format", "fp16", "--loss-scale", "2^40", "--step-loss", "--out", out, status=1)
    line = run_line(out)
    first = first_of(line)
    check(first["pass"] == "backward" and first["step"] == 1 and first["remedy"] == "loss-scale dynamic", first)
    check("in the backward pass" in done.stderr and "with --loss-scale dynamic it would be finite" in done.stderr, done.stderr)
    lines = read_lines(out)
    for window in (w for w in lines if w["type"] == "steps"):
        losses = [s["loss"] for s in lines if s["type"] == "step" and window["step"] - window["count"] < s["step"] <= window["step"]]
        finite = [x for x in losses if x is not None]
        check(window["nonfinite"] == len(losses) - len(finite), window, losses)
        check(window["finite_loss"] == (sum(finite) / len(finite) if finite else None), window, losses)
    check(any(0 < w["nonfinite"] < w["count"] for w in lines if w["type"] == "steps"), "no window of both kinds")
    done = succeed("train", *tiny, "--format", "fp16", "--loss-scale", "dynamic", "--out", out, "--force")
    check(run_line(out)["first_nonfinite_step"] == 0 and "NaN or Inf" not in done.stderr, done.stderr)
    metrics = os.path.join(out, "metrics.jsonl")
    with open(metrics) as file:
        text = file.read()
    for old, new, part in (('"first_nonfinite_pass":"none"', '"first_nonfinite_pass":"forward"', "'first_nonfinite_pass' do not agree"),
                           ('"first_nonfinite_pass":"none"', '"first_nonfinite_pass":"sideways"', "'first_nonfinite_pass' do not agree"),
                           ('"nonfinite":0,"finite_loss"', '"nonfinite":1,"finite_loss"', "'finite_loss' do not agree"),
                           ('"nonfinite":0,"finite_loss"', '"nonfinite":9,"finite_loss"', "expected a whole number")):
        with open(metrics, "w") as file:
            file.write(text.replace(old, new, 1))
        expect_error(["report", out], 1, part)


def test_wgan(place):
    out = os.path.join(place, "wgan")
    options = ["--format", "fp16", "--data", "synthetic:train=40,test=10", "--batch", "4", "--filters", "4", "--critic-steps", "2", "--lr", "50",
               "--clip", "1000", "--out", out]
    done = run("wgan", *options, "--steps", "3")
    found = [line for line in read_lines(out) if line["type"] == "nonfinite"]
    check(len(found) == 1 and found[0]["network"] == "critic" and found[0]["pass"] == "forward", found, done.stderr)
    check(f"step {found[0]['step']} of the critic: the first NaN or Inf, in the forward pass" in done.stderr, done.stderr)
    option = re.search(r"with (--layer-format '[^']*') it would be finite", done.stderr)
    held = run("wgan", *options, "--steps", "1", "--force", *shlex.split(option[1]))
    check("unknown" not in held.stderr and "matches no" not in held.stderr, held.stderr)
    kept = os.path.join(out, "wgan-000003")
    run("wgan", *options, "--steps", "3", "--force")
    run("wgan", *options, "--steps", "4", "--force", "--resume", kept)
    check([line for line in read_lines(out) if line["type"] == "nonfinite"] == found, "going on it is not known")


def test_wgan_generator(place):
    """A NaN or Inf that the generator computes for a step of the critic is attributed to the generator, not to the
    critic's data; the gradients of neither network overflow then."""
    out = os.path.join(place, "generator")
    done = run("wgan", "--format", "fp16", "--data", "synthetic:train=40,test=10", "--batch", "4", "--filters", "4", "--critic-steps", "2", "--lr", "50",
               "--clip", "0.01", "--steps", "13", "--out", out)
    found = [line for line in read_lines(out) if line["type"] == "nonfinite"]
    check(len(found) == 1 and found[0]["network"] == "generator" and found[0]["pass"] == "forward" and found[0]["tensor"].startswith("up"), found)
    check(f"step {found[0]['step']} of the generator: the first NaN or Inf, in the forward pass" in done.stderr, done.stderr)
    check("steps of the critic made no update" in done.stderr and "its gradients are not finite" in done.stderr and "overflow" not in done.stderr,
          done.stderr)


def main():
    with tempfile.TemporaryDirectory() as place:
        draw = random.Random(3)
        text = os.path.join(place, "text")
        with open(text, "w") as file:
            file.write(" ".join(draw.choice(WORDS) for _ in range(6000)))
        data = ["--data", "text:" + text]
        first, rule = test_forward(place, data)
        test_option(place, data, first, rule)
        test_stop(place, data, first)
        test_stop_when_going_on(place)
        test_compare(place, data)
        test_backward(place)
        test_wgan(place)
        test_wgan_generator(place)
    sys.exit(summary())


main()
