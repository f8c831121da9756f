#!/usr/bin/env python3
"""The flexlab program as a user meets it: messages, exit statuses, files, reproducibility.

    test_cli.py PATH-OF-FLEXLAB

Prints each check that fails with the command that shows it."""
import json
import os
import re
import sys
import tempfile

from cli_harness import TINY, check, expect_error, has_gnuplot, read_csv, read_lines, run, summary, without_time

FORMATS = ["fp32", "fp16", "bf16", "flex16+5", "dfp16"]


def comparable(directory):
    """Everything that must not change between two runs, by file."""
    content = {"metrics.jsonl": [json.dumps(without_time(line, "threads")) for line in read_lines(directory)]}
    for name in sorted(os.listdir(directory)):
        if name.startswith(("trace-", "figure-")):
            with open(os.path.join(directory, name), "rb") as file:
                content[name] = file.read()
    content["summary.csv"] = [without_time(row) for row in read_csv(directory, "summary.csv")]
    return content


def check_same(a, b, what):
    one, two = comparable(a), comparable(b)
    check(one.keys() == two.keys(), what, "other files:", sorted(one.keys() ^ two.keys()))
    for name in one.keys() & two.keys():
        check(one[name] == two[name], what, "differ in", name)


def test_help():
    for arguments in (["--help"], ["help"], ["compare", "--help"], ["train", "--help"], ["train", "-h"], ["eval", "--help"], ["wgan", "--help"], ["replay", "--help"], ["facts", "--help"], ["info", "--help"]):
        done = run(*arguments)
        check(done.returncode == 0 and done.stderr == "", done.shown, done.returncode, done.stderr)
        check("Usage: flexlab" in done.stdout and "Example" in done.stdout, done.shown, done.stdout[:200])
        check(max(map(len, done.stdout.splitlines())) <= 110, done.shown, "has a line longer than 110")
    commands = re.findall(r"^  (\S+) ", re.search(r"\nCommands\n(.*?)\n\n", run("--help").stdout, re.S)[1], re.M)
    check(len(commands) == 14 and {"replay", "facts"} < set(commands), commands)
    for command in commands:
        if command == "info":  # its words are names
            continue
        shown = run(command, "--help").stdout
        check(re.search(r"\n\n[A-Z][^\n]*\n  --", shown) and not re.search(r"\.\n  --", shown), command, "has options before a heading", shown[:600])
    check(re.fullmatch(r"flexlab \d+\.\d+\.\d+\n", run("--version").stdout), "flexlab --version", run("--version").stdout)


TABLES = ["formats", "variants", "policies", "predictors", "models", "data", "devices", "operations", "kernels"]


def test_info():
    """Checks one screen, then each table by the name on that screen."""
    done = run("info")
    check(done.returncode == 0 and done.stderr == "", done.shown, done.returncode, done.stderr)
    lines = done.stdout.splitlines()
    check(len(lines) < 24 and max(map(len, lines)) <= 100, done.shown, len(lines), "lines of at most", max(map(len, lines)))
    check(re.match(r"flexlab \d+\.\d+\.\d+ \(.+\)\nprocessor +\S.*\nkernels +\w+ \d+.*\ndevices +cpu; built with(out)? the CUDA backend", done.stdout), done.stdout)
    asked = "'flexlab info devices' asks it" in done.stdout
    check(asked == ("built with the CUDA backend" in done.stdout), done.stdout)
    for word in FORMATS + TABLES + ["65504", "MODEL"]:
        check(word in done.stdout, done.shown, "wants", word)
    tables = {name: run("info", name) for name in TABLES}
    for name, table in tables.items():
        check(table.returncode == 0 and table.stderr == "" and len(table.stdout.splitlines()) > 2, table.shown, table.stderr)
    whole = "".join(table.stdout for table in tables.values())
    for word in FORMATS + ["flex16+5-sr", "flex16+5-paper", "ngraph", "mlp2", "resnet20", "conv2d_weight_grad", "65504",
                           "3.3895e+38", "4.6566e-10", "e in -128 ... 127", "O1:bf16", "cifar10:DIR"]:
        check(word in whole, "no table of flexlab info has", word)
    operations = re.findall(r"\w+", tables["operations"].stdout.split("\n", 1)[1])
    rows = tables["kernels"].stdout.split("\n\n")[0].splitlines()[2:]
    check([line.split()[0] for line in rows] == operations, "operations and kernel sets", operations[:3], rows[:3])
    counted = sum(map(int, re.findall(r" (\d+)(?=,| \()", lines[2])))
    check(counted == sum(cell != "-" for line in rows for cell in line.split()[1:]), lines[2], counted)
    capped = run("info", "kernels", env={"FLEXLAB_ISA": "ref"})
    none = "class fast (tensor_set_class) on this machine\n  none"
    kernels = capped.stdout.split("\n\n")[0].splitlines()[2:]
    check(none in capped.stdout, "FLEXLAB_ISA=ref flexlab info kernels", "class fast")
    check(re.search(r"^  bf16\.matmul\.avx512_(amx_)?fast$", tables["kernels"].stdout, re.M) or none in tables["kernels"].stdout,
          "flexlab info kernels", "class fast")
    check(kernels and all(set(line.split()[1:]) <= {"ref", "-"} for line in kernels), "FLEXLAB_ISA=ref flexlab info kernels", kernels[:3])
    check("ref" in run("info", env={"FLEXLAB_ISA": "ref"}).stdout.splitlines()[2], "FLEXLAB_ISA=ref flexlab info")
    expect_error(["info"], 2, "FLEXLAB_ISA=sse9", "avx2", env={"FLEXLAB_ISA": "sse9"})
    expect_error(["info", "kernel"], 2, "'kernel' is no table", ", ".join(TABLES), "cnn6", "did you mean 'kernels'?")


def test_usage(place):
    out = ["--out", os.path.join(place, "usage")]
    expect_error([], 2, "compare, train, eval, run, bench, transpile, calibrate, diff, what-if, wgan, report, replay, facts or info")
    expect_error(["comprae"], 2, "unknown command 'comprae'", "did you mean 'compare'?")
    expect_error(["--verison"], 2, "unknown option '--verison'")
    expect_error(["info", "now"], 2, "'now'")
    for command in ("compare", "train"):
        expect_error([command, "--epoch-count", "3"], 2, command, "--epoch-count")
        expect_error([command, "--bacth", "3"], 2, "unknown option '--bacth'", "did you mean 'batch'?")
        expect_error([command, "--quiet=yes"], 2, "'--quiet=yes'", "takes no value")
        expect_error([command, "--epochs"], 2, "'--epochs'", "needs a value")
        expect_error([command, "cifar10"], 2, "unexpected argument 'cifar10'")
        for option in ("epochs",) if command == "train" else ("epochs", "batch", "seeds", "threads", "max-steps", "train-limit", "test-limit", "average-last",
                       "trace-every"):
            for value in ("0", "-1", "1x", "", " 5", "+5", "1.5", "99999999999999999999", "nan"):
                expect_error([command, f"--{option}={value}"], 2, f"--{option} '{value}'", "whole number from 1 to")
        for option, values in {"lr": ("0", "-0.1", "inf", "nan", "0x1", "1e999", "fast", ""),
                               "momentum": ("1", "-0.1", "0.9.9"), "weight-decay": ("2", "-1e-4"),
                               "warmup": ("-1", "one"), "beta1": ("1", "0", "nan"), "beta2": ("-0.1", "2"),
                               "epsilon": ("0", "-1e-8", "2"), "clip-value": ("0", "-1"), "clip-norm": ("0", "inf", "x"), "label-smoothing": ("-0.1", "1.1", "nan")}.items():
            for value in values:
                expect_error([command, f"--{option}={value}"], 2, f"--{option} '{value}'", "number from")
        expect_error([command, "--schedule", "cosine:2"], 2, "'cosine:2'", "cosine:END with a number from 0 to 1")
        expect_error([command, "--schedule", "linaer"], 2, "'linaer'", "linear, cosine, step, constant", "did you mean 'linear'?")
        expect_error([command, "--master", "some"], 2, "'some'", "default, none")
        expect_error([command, "--optimizer", "adamm"], 2, "'adamm'", "sgd, adam, adamw, rmsprop, adagrad, lamb", "did you mean 'adam'?")
        expect_error([command, "--decay", "some"], 2, "'some'", "all, weights")
        expect_error([command, "--optimizer", "adam", "--momentum", "0.5", *out], 2, "momentum: 0.5, expected 0: optimiser adam has none")
        expect_error([command, "--beta1", "0.5", *out], 2, "beta1: 0.5, expected 0: optimiser sgd has none")
        expect_error([command, "--momentum", "0", "--nesterov", *out], 2, "nesterov: optimiser sgd with momentum 0")
        expect_error([command, "--predictor", "papper"], 2, "'papper'", "did you mean 'paper'?")
        expect_error([command, "--model", "resnet21", *out], 2, "resnet21", "6n + 2")
        expect_error([command, "--model", "cnn7", *out], 2, "cnn7", "vgg16", "gru-char", "did you mean 'cnn6'?")
        expect_error([command, "--warmup", "3", "--epochs", "3"], 2, "--warmup 3", "3 epochs")
        expect_error([command, "--data", "sinthetic", *out], 2, "sinthetic", "did you mean 'synthetic'?")
        expect_error([command, "--data", "synthetic:train=0", *out], 2, "train=0")
        expect_error([command, "--data", "cifar10:/nowhere", *out], 1, "/nowhere")
        expect_error([command, *TINY, "--train-limit", "97", *out], 2, "--train-limit 97", "96 images")
        expect_error([command, *TINY, "--batch", "97", *out], 2, "--batch 97", "96 images")
    expect_error(["train", "--format", "fp16", "--optimizer", "lamb", "--narrow-state", *out], 2, "variant fp16, expected one with mantissas under a shared exponent")
    done = run("train", "--data", "idx", *out)  # a correct name is not suggested
    check(done.returncode == 2 and "did you mean" not in done.stderr, done.shown, done.returncode, done.stderr)
    expect_error(["compare", "--formats", "fp32,fp17", *out], 2, "'fp17'", "did you mean 'fp1", "flex16+5")
    expect_error(["compare", "--formats", "fp16,,fp32", *out], 2, "unknown format ''")
    expect_error(["compare", "--formats", "fp16,fp16", *out], 2, "'fp16' is listed twice")
    expect_error(["compare", "--formats", "fp16:nomastr,fp32", *out], 2, "'nomastr'", "did you mean 'nomaster'?")
    expect_error(["compare", "--formats", "fp32:nomaster,fp16", *out], 2, "fp32:nomaster", "no wide copy")
    expect_error(["compare", "--formats", "fp16:ngraph,fp32", *out], 2, "fp16:ngraph", "no shared exponent")
    expect_error(["compare", "--formats", "fp16,fp32", "--predictor", "ngraph", *out], 2, "--predictor 'ngraph'", "no")
    expect_error(["train", "--format", "fp16,fp32", *out], 2, "fp16,fp32", "one format")
    expect_error(["train", "--formats", "fp16", *out], 2, "'--formats'")
    check(not os.path.exists(out[1]), "a wrong call left", out[1])


def test_output_folder(place):
    blocker = os.path.join(place, "file")
    with open(blocker, "w") as file:
        file.write("mine")
    quick = ["train", *TINY, "--epochs", "1", "--quiet"]
    expect_error([*quick, "--out", blocker], 1, blocker, "expected a folder")
    expect_error([*quick, "--out", os.path.join(blocker, "below")], 1, os.path.join(blocker, "below"), "Not a directory")
    expect_error([*quick, "--out", ""], 2, "--out ''")
    deep = os.path.join(place, "it's", "deep down")
    done = run(*quick, "--out", deep)
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    with open(os.path.join(deep, "own notes.txt"), "w") as file:
        file.write("keep")
    expect_error([*quick, "--out", deep], 1, "already holds results", "--force")
    done = run(*quick, "--out", deep, "--force", "--format", "fp16")
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    names = os.listdir(deep)
    check("own notes.txt" in names, "--force removed a file that is no result")
    check(not any(n.startswith("trace-") for n in names), "--force left an old trace:", names)


def test_compare(place):
    out = os.path.join(place, "compare")
    done = run("compare", *TINY, "--formats", ",".join(FORMATS), "--seeds", "2", "--figures", "--out", out, "--threads", "1")
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    lines = done.stdout.splitlines()
    for f in FORMATS:
        check(sum(line.startswith(f + " ") for line in lines) == 1, done.shown, "no row for", f, done.stdout)
    check("[10/10] dfp16 seed 2  epoch 2/2" in done.stderr and "\r" not in done.stderr, "progress:", done.stderr[-300:])

    expected = {"metrics.jsonl", "summary.csv", "report.html"}
    expected |= {f"trace-{f}-seed{s}.csv" for f in ("flex16+5", "dfp16") for s in (1, 2)}
    expected |= {f"figure-{n}.{t}" for n in ("loss", "exponents") for t in ("svg", "png")} if has_gnuplot() else set()
    check(set(os.listdir(out)) == expected, "files:", sorted(set(os.listdir(out)) ^ expected))

    metrics = read_lines(out)
    config = metrics[0]
    check(config["type"] == "config" and config["seeds"] == [1, 2] and config["steps"] == 12, config)
    check([f["name"] for f in config["formats"]] == FORMATS, config["formats"])
    check(metrics[-1] == {"type": "end", "complete": True, "finished_runs": 10, "planned_runs": 10, "stopped_by": None}, metrics[-1])
    count = {t: sum(line["type"] == t for line in metrics) for t in ("steps", "step", "epoch", "run", "predictions", "format")}
    check(count == {"steps": 120, "step": 0, "epoch": 20, "run": 10, "predictions": 10, "format": 5}, count)
    for line in metrics:
        if line["type"] == "run":
            windows = [w["loss"] for w in metrics if w["type"] == "steps" and (w["format"], w["seed"]) == (line["format"], line["seed"])]
            check(abs(sum(windows) / 12 - line["last_loss"]) < 1e-12, "last loss is not the mean of all 12 steps:", line)
            check(0 <= line["test_accuracy"] <= 1 and line["steps"] == 12 and line["images"] == 192, line)

    rows = {r["format"]: r for r in read_csv(out, "summary.csv")}
    check(list(rows) == FORMATS, list(rows))
    check(float(rows["fp32"]["agreement_mean"]) == 1 and float(rows["fp32"]["speed_ratio"]) == 1, rows["fp32"])
    for f in FORMATS:
        runs = [line for line in metrics if line["type"] == "run" and line["format"] == f]
        mean = sum(r["test_accuracy"] for r in runs) / 2
        check(abs(mean - float(rows[f]["test_accuracy_mean"])) < 1e-15, f, "mean accuracy", mean, rows[f]["test_accuracy_mean"])
        check(int(rows[f]["saturated"]) == sum(r["saturated"] for r in runs), f, "saturated")

    trace = read_csv(out, "trace-flex16+5-seed1.csv")
    check({int(r["step"]) for r in trace} == set(range(1, 13)), "steps of the trace")
    with open(os.path.join(out, "report.html")) as file:
        page = file.read()
    check(page.endswith("</html>\n") and '<div id="figures">' in page and ("figure-loss.svg" in page) == has_gnuplot(), "report.html")
    check(not re.search(r"(src|href)=\"?https?:", page), "report.html reaches for the network")
    return out


def test_reproducible(place, first):
    for threads, name in (("1", "again"), ("2", "threads")):
        out = os.path.join(place, name)
        done = run("compare", *TINY, "--formats", ",".join(FORMATS), "--seeds", "2", "--figures", "--out", out, "--threads", threads, "--quiet")
        check(done.returncode == 0 and done.stderr == "", done.shown, done.returncode, done.stderr)
        check_same(first, out, f"second run with {threads} threads")
    out = os.path.join(place, "other seed")
    run("compare", *TINY, "--formats", "fp32", "--seed-base", "2", "--out", out, "--quiet")
    runs = [without_time(line) for line in read_lines(out) if line["type"] == "run"]
    same = [without_time(line) for line in read_lines(first) if line["type"] == "run" and line["format"] == "fp32" and line["seed"] == 2]
    check(runs == same, "seed 2 alone and as the second of two", runs, same)


def test_variants(place):
    """Suffixes, --master none, --max-steps, --trace-tensors, without fp32."""
    out = os.path.join(place, "variants")
    done = run("compare", *TINY, "--formats", "fp16,fp16:nomaster,flex16+5:ngraph,flex16+5-sr,flex16+5-paper", "--max-steps",
               "5", "--trace-every", "2", "--trace-tensors", "fc1*", "--out", out, "--quiet")
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    config, *metrics = read_lines(out)
    check([f["wide_weights"] for f in config["formats"]] == [True, False, True, False, False], config["formats"])
    check(config["formats"][2]["predictor"] == "ngraph" and config["steps"] == 5, config)
    check(all(line["agreement"]["mean"] is None for line in metrics if line["type"] == "format"), "agreement without fp32")
    check({r["step"] for r in read_csv(out, "trace-flex16+5_ngraph-seed1.csv")} == {"1", "3", "5"}, "--trace-every 2")
    # A variant and a suffix that differ by one character have separate traces.
    out = os.path.join(place, "alike")
    done = run("compare", *TINY, "--formats", "flex16+5-paper,flex16+5:paper", "--max-steps", "2", "--out", out, "--quiet")
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    traces = sorted(n for n in os.listdir(out) if n.startswith("trace"))
    check(traces == ["trace-flex16+5-paper-seed1.csv", "trace-flex16+5_paper-seed1.csv"], "one file for two traces:", traces)
    out = os.path.join(place, "nomaster")
    done = run("compare", *TINY, "--formats", "fp32,bf16,dfp16", "--master", "none", "--max-steps", "2", "--no-trace", "--out", out)
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    check([f["name"] for f in read_lines(out)[0]["formats"]] == ["fp32", "bf16:nomaster", "dfp16:nomaster"], out)
    check(not any(n.startswith("trace") for n in os.listdir(out)), "--no-trace", os.listdir(out))


def test_without_gnuplot(place):
    out = os.path.join(place, "plain")
    done = run("train", *TINY, "--max-steps", "2", "--figures", "--out", out, "--quiet", env={"PATH": "/nonexistent"})
    check(done.returncode == 0 and "apt-get install gnuplot-nox" in done.stderr, done.shown, done.returncode, done.stderr)
    check(sorted(os.listdir(out)) == ["best.safetensors", "last.safetensors", "metrics.jsonl", "report.html", "summary.csv",
                                        "trace-flex16+5-seed1.csv"], os.listdir(out))
    check(done.stdout.endswith(": report.html, summary.csv, metrics.jsonl, traces, best.safetensors, last.safetensors\n"), done.stdout)


def test_figures_on_request(place):
    """Without --figures no gnuplot is run and no figure written; a report draws them later, as the training would have."""
    tools, out, drawn = (os.path.join(place, name) for name in ("tools", "undrawn", "drawn"))
    os.mkdir(tools)
    with open(os.path.join(tools, "gnuplot"), "w") as file:
        file.write(f"#!/bin/sh\n: > '{tools}/called'\nexit 1\n")
    os.chmod(os.path.join(tools, "gnuplot"), 0o755)
    environment = {"PATH": tools + ":" + os.environ["PATH"]}
    quick = ["compare", *TINY, "--formats", "fp32,flex16+5", "--max-steps", "2", "--quiet", "--out"]
    done = run(*quick, out, env=environment)
    check(done.returncode == 0 and done.stderr == "" and not os.path.exists(os.path.join(tools, "called")), done.shown, done.stderr, os.listdir(tools))
    check(set(os.listdir(out)) == {"metrics.jsonl", "summary.csv", "report.html", "trace-flex16+5-seed1.csv"}, os.listdir(out))
    done = run(*quick, drawn, "--figures", env=environment)
    check(done.returncode == 1 and os.path.exists(os.path.join(tools, "called")), done.shown, done.returncode, "this test sees no call")
    done = run(*quick, os.path.join(place, "unmatched"), "--trace-tensors", "nix*")
    check(done.returncode == 0 and "--trace-tensors 'nix*': no tensor of the trace matches" in done.stderr, done.shown, done.stderr)
    if has_gnuplot():
        done = run(*quick, drawn, "--figures", "--force")
        check(done.returncode == 0 and ", figures, " in done.stdout, done.shown, done.stdout, done.stderr)
        done = run("report", out, "--figures")
        check(done.returncode == 0, done.shown, done.stderr)
        check_same(out, drawn, "figures drawn later")


def main():
    with tempfile.TemporaryDirectory() as place:
        test_help()
        test_info()
        test_usage(place)
        test_output_folder(place)
        first = test_compare(place)
        test_reproducible(place, first)
        test_variants(place)
        test_without_gnuplot(place)
        test_figures_on_request(place)
        for folder, _, names in os.walk(place):
            check(not [n for n in names if n.endswith(".part")], "left behind in", folder, names)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
