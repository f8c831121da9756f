#!/usr/bin/env python3
"""The files that training writes: docs/output.md against real output, NaN told from Inf, losses of single steps, counts of
the traces against those of the run, and divergence.

    test_cli_metrics.py PATH-OF-FLEXLAB SOURCE"""
import datetime
import os
import re
import subprocess
import sys
import tempfile

from cli_harness import TINY, check, documented, read_csv, read_lines, run, succeed, summary

SOURCE = sys.argv[2]
# Diverges in every format: fp32, fp16 and bf16 to NaN or Inf, the formats without either to large losses.
WILD = ["--model", "mlp2", "--data", "synthetic:train=96,test=40", "--batch", "16", "--epochs", "3", "--lr", "1000"]


def flatten(value, name=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        check(value, name, "is an empty list")
        for inner in value:
            yield from flatten(inner, name + "[]")
    else:
        yield name, value


def is_type(value, kind):
    if value is None:
        return kind.endswith("?")
    return {"string": isinstance(value, str), "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool)}[kind.rstrip("?")]


STATES = {"finite", "nan", "inf", "-inf", "none"}


def check_states(line):
    """KEY_state beside KEY: null if and only if the state is not "finite"."""
    for key, state in line.items():
        if isinstance(state, dict):
            check_states(state)
        elif key.endswith("_state"):
            check(state in STATES, key, state, line)
            value = line.get(key[:-6], 0 if key == "nonfinite_loss_state" else None)
            check(key == "nonfinite_loss_state" or (value is None) == (state != "finite"), key, state, value, line)


def check_lines(places, sections):
    seen = {}
    for place in places:
        for line in read_lines(place):
            fields = dict.fromkeys(name for name, _ in flatten(line))
            wanted = sections.get(line["type"], {})
            check(set(fields) == set(wanted), place, line["type"], "differs from docs/output.md in", set(fields) ^ set(wanted))
            for name, value in flatten(line):
                check(is_type(value, wanted.get(name, "?")), place, line["type"], name, "is", repr(value), "not", wanted.get(name))
                seen.setdefault(line["type"], set()).add(name)
            check_states(line)
    kinds = set(sections) - {"summary.csv", "trace-FORMAT-seedN.csv", "failed"}  # test_cli_messages.py has that one
    check(set(seen) == kinds, "kinds of lines", set(seen) ^ kinds)


def text_is(value, kind):
    if value == "":
        return kind.endswith("?")
    pattern = {"string": ".+", "integer": r"-?\d+", "number": r"nan|-?inf|-?\d[\d.]*(e[+-]\d+)?"}[kind.rstrip("?")]
    return re.fullmatch(pattern, value)


def check_csv(path, wanted):
    rows = read_csv(path)
    check(rows and list(rows[0]) == list(wanted), path, "has the fields", rows and list(rows[0]), "want", list(wanted))
    for row in rows:
        for name, kind in wanted.items():
            check(text_is(row[name], kind), path, name, "is", repr(row[name]), "not", kind)


def test_schema(places):
    sections = documented(SOURCE, "metrics.jsonl", "summary.csv", "trace-FORMAT-seedN.csv")
    check_lines(places, sections)
    for place in places:
        check_csv(os.path.join(place, "summary.csv"), sections["summary.csv"])
        for name in os.listdir(place):
            if name.startswith("trace-"):
                check_csv(os.path.join(place, name), sections["trace-FORMAT-seedN.csv"])


def test_origin(place):
    config = read_lines(place)[0]
    check(list(config)[0] == "type" and config["type"] == "config", "the first line is", config["type"])
    started = datetime.datetime.strptime(config["started"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.timezone.utc)
    age = (datetime.datetime.now(datetime.timezone.utc) - started).total_seconds()
    check(-5 < age < 600, "started", config["started"], "is", age, "seconds ago")
    check(f"flexlab {config['version']}" == run("--version").stdout.strip(), config["version"])
    check(re.match(r"(gcc|clang) \d+\.\d+", config["compiler"]), config["compiler"])
    known = is_commit(config["revision"])
    check(known or (known is None and config["revision"] == "unknown"), "revision", config["revision"])
    check(config["instruction_cap"] is None, config["instruction_cap"])
    with open("/proc/cpuinfo") as file:
        models = re.findall(r"model name\s*: (.*?)\s*\n", file.read())
    check(not models or config["processor"] == models[0], config["processor"], models[:1])


def test_steps(place):
    """The means of the lines of single steps are those of the averaging intervals."""
    metrics = read_lines(place)
    config = metrics[0]
    for window in (line for line in metrics if line["type"] == "steps"):
        steps = [line for line in metrics if line["type"] == "step" and (line["format"], line["seed"]) == (window["format"], window["seed"])
                 and window["step"] - window["count"] < line["step"] <= window["step"]]
        check(len(steps) == window["count"], window, len(steps), "lines of steps")
        check(steps[-1]["rate"] == window["rate"], window, steps[-1])
        if window["loss"] is not None:
            check(sum(s["loss"] for s in steps) / len(steps) == window["loss"], window)
    runs = [line for line in metrics if line["type"] == "run"]
    for line in runs:
        steps = [s for s in metrics if s["type"] == "step" and (s["format"], s["seed"]) == (line["format"], line["seed"])]
        check([s["step"] for s in steps] == list(range(1, config["steps"] + 1)), line["format"], "steps")
        check(steps[0]["loss"] == line["first_loss"], line["format"], "first loss", steps[0], line["first_loss"])
        bad = [s for s in steps if s["loss_state"] != "finite"]
        check(line["nonfinite_step"] == (bad[0]["step"] if bad else 0), line)
        check(line["nonfinite_loss_state"] == (bad[0]["loss_state"] if bad else "none"), line)


def test_traces(place):
    """The counts of all records add up to those of the run, whatever --trace-every is."""
    metrics = read_lines(place)
    found = 0
    for line in metrics:
        path = os.path.join(place, f"trace-{line.get('format', '')}-seed{line.get('seed')}.csv".replace(":", "_"))
        if line["type"] != "run" or not os.path.exists(path):
            continue
        rows = read_csv(path)
        found += 1
        for name in ("saturated", "flushed", "nonfinite", "clamped_low", "clamped_high"):
            total = sum(int(row[name]) for row in rows)
            check(total == line[name], path, name, "adds up to", total, "want", line[name])
        check(max(int(row["step"]) for row in rows) == line["steps"], path, "lacks the last step")
    check(found >= 2, place, found, "traces")


def test_predictions(place):
    """The share of equal predictions is the agreement of the table."""
    metrics = read_lines(place)
    table = {(line["format"], line["seed"]): line["classes"] for line in metrics if line["type"] == "predictions"}
    for row in (line for line in metrics if line["type"] == "format"):
        shares = [sum(a == b for a, b in zip(classes, table["fp32", seed])) / len(classes)
                  for (name, seed), classes in table.items() if name == row["format"]]
        check(abs(sum(shares) / len(shares) - row["agreement"]["mean"]) < 1e-12, row["format"], shares, row["agreement"])


def test_divergence(place, wild):
    """A run that diverges fails, is named in table, report, metrics and summary, and is distinguished from one that
    learns."""
    formats = ["fp32", "fp16", "flex16+5", "dfp16", "bf16"]
    arguments = ["compare", *WILD, "--formats", ",".join(formats), "--out", wild, "--step-loss", "--trace-every", "5"]
    done = succeed(*arguments, status=1)
    check("5 of 5 runs diverged" in done.stderr and "--allow-divergence" in done.stderr, done.stderr[-300:])
    check(done.stderr.count("DIVERGED") == 5, "progress", done.stderr)
    rows = {row["format"]: row for row in read_csv(wild, "summary.csv")}
    runs = {line["format"]: line for line in read_lines(wild) if line["type"] == "run"}
    with open(os.path.join(wild, "report.html")) as file:
        page = file.read()
    for name in formats:
        check(runs[name]["diverged"] and rows[name]["diverged"] == "1", name, runs[name])
        check(f"\nDIVERGED: {name}, seed 1: loss " in done.stdout and f">DIVERGED: {name}, seed 1: loss " in page, name, done.stdout)
    check(runs["fp16"]["nonfinite_step"] > 0 and runs["fp16"]["last_loss"] is None, runs["fp16"])
    check(runs["flex16+5"]["nonfinite_step"] == 0 and runs["flex16+5"]["last_loss"] > 10, runs["flex16+5"])
    check(max(map(len, re.findall(r"\d+", done.stdout + done.stderr))) < 15, "a number of many digits:", done.stdout)
    check(max(map(len, re.findall(r">[^<]*?(\d+)[^<]*<", page))) < 20, "a number of many digits in report.html")
    for allow in ("--allow-divergence", "--allow-divergence --quiet"):
        done = succeed(*arguments, *allow.split(), "--force")
        check("DIVERGED" in done.stdout, "--allow-divergence hides it:", done.stdout)
    done = succeed("compare", *TINY, "--out", os.path.join(place, "calm"))
    check("DIVERGED" not in done.stdout + done.stderr, done.stdout)
    check(not any(line.get("diverged") for line in read_lines(os.path.join(place, "calm"))), "a calm run is called diverged")
    check("loss scaling" not in done.stdout, "fp16 is scaled by default:", done.stdout)
    done = succeed("compare", *TINY, "--formats", "fp16,fp16:noscale", "--out", os.path.join(place, "noscale"))
    check("fp16:noscale trains without loss scaling" in done.stdout, done.stdout)
    with open(os.path.join(place, "noscale", "report.html")) as file:
        check("fp16:noscale trains without loss scaling" in file.read(), "report.html says nothing of loss scaling")
    done = succeed("train", *TINY, "--format", "bf16", "--out", os.path.join(place, "bf16"))
    check("loss scaling" not in done.stdout, done.stdout)


def test_capped(place):
    out = os.path.join(place, "capped")
    succeed("train", *TINY, "--max-steps", "2", "--out", out, env={"FLEXLAB_ISA": "portable"})
    config = read_lines(out)[0]
    check(config["instruction_set"] == "portable" and config["instruction_cap"] == "portable", config)
    big = str(10**15)
    out = os.path.join(place, "seed")
    succeed("train", *TINY, "--max-steps", "2", "--seed-base", big, "--out", out)
    check(read_lines(out)[0]["seeds"] == [10**15] and f'"seeds":[{big}]' in open(os.path.join(out, "metrics.jsonl")).read(), "seeds")


def is_commit(revision):
    """None if the source is not the top folder of a git repository."""
    def git(*arguments):
        return subprocess.run(["git", "-C", SOURCE, *arguments], capture_output=True, text=True)
    top = git("rev-parse", "--show-prefix")
    if top.returncode or top.stdout.strip():
        return None
    return git("cat-file", "-e", revision.removesuffix("-dirty") + "^{commit}").returncode == 0


def main():
    with tempfile.TemporaryDirectory() as place:
        wild, tame = os.path.join(place, "wild"), os.path.join(place, "tame")
        succeed("compare", *TINY, "--formats", "fp32,fp16,flex16+5,flex16+5:ngraph,dfp16", "--seeds", "2", "--step-loss",
                "--trace-every", "5", "--trace-tensors", "fc1*", "--out", tame)
        test_divergence(place, wild)
        by_policy = os.path.join(place, "policy")
        succeed("train", *TINY, "--policy", "O2", "--max-steps", "2", "--out", by_policy)
        test_schema([tame, wild, os.path.join(place, "bf16"), by_policy])
        test_origin(tame)
        for where in (tame, wild):
            test_steps(where)
            test_traces(where)
        test_predictions(tame)
        test_capped(place)
        states = {s["loss_state"] for s in read_lines(wild) if s["type"] == "step"}
        check({"finite", "nan"} <= states, "states of the wild run:", states)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
