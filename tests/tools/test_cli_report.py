#!/usr/bin/env python3
"""flexlab report: the same bytes from the stored files, other tensors, several folders as one, clear errors; and the
figures: every format is visible in a colour of its own, and no label touches another.

    test_cli_report.py PATH-OF-FLEXLAB SOURCE"""
import json
import os
import re
import shutil
import sys
import tempfile
import xml.etree.ElementTree as xml

from cli_harness import (TINY as PLAIN, check, draw_once, draw_quickly, expect_error, has_gnuplot, read_csv, run, succeed,
                         summary, without_time)

FORMATS = "fp32,fp16,flex16+5,flex16+5:ngraph,dfp16"
TINY = [*PLAIN, "--figures"]
DRAWN = ["report.html", "figure-loss.svg", "figure-loss.png", "figure-exponents.svg", "figure-exponents.png"]
# More formats with a shared exponent than a block of the figure has columns, more formats than the palette has colours.
MANY = ("flex16+5,flex16+5:ngraph,flex16+5:current,flex16+5:nomaster,flex16+5:nomaster:ngraph,flex16+5:nomaster:current,"
        "flex16+5-sr,flex16+5-sr:ngraph,flex16+5-paper,flex16+5-paper:ngraph,flex16+5-paper:current,dfp16,dfp16:paper,"
        "dfp16:ngraph,dfp16:nomaster,dfp16:nomaster:paper,fp32,fp16,fp16:nomaster,bf16,bf16:nomaster")


def content(directory):
    found = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                found[name] = file.read()
    return found


def differing(a, b):
    one, two = content(a), content(b)
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))


def table_of(text):
    return text.split("\nWritten to")[0]


def test_same_bytes(place):
    """Redraws comparisons of each kind in place and elsewhere."""
    cases = {"plain": (["compare", *TINY, "--formats", FORMATS, "--seeds", "2"], 0),
             "sparse": (["compare", *TINY, "--formats", FORMATS, "--trace-every", "5", "--trace-tensors", "fc1*"], 0),
             "decay": (["train", *TINY, "--momentum", "0.1234565", "--weight-decay", "1.0000005e-4", "--lr", "0.0123456789",
                        "--seed-base", "123456789012"], 0),
             "adam": (["train", *TINY, "--optimizer", "adamw", "--beta1", "0.8", "--clip-norm", "0.5", "--decay", "all", "--narrow-state"], 0),
             "wild": (["compare", *TINY, "--formats", FORMATS, "--lr", "1000", "--step-loss"], 1),
             "no trace": (["train", *TINY, "--no-trace"], 0),
             "no exponent": (["compare", *TINY, "--formats", "fp32,bf16"], 0),
             "short": (["compare", *TINY, "--max-steps", "3", "--average-last", "2", "--master", "none", "--predictor", "ngraph"], 0)}
    for name, (arguments, status) in cases.items():
        if name == "sparse":
            draw_once(place)  # that gnuplot draws the same script alike was seen with the first
        out, kept, other = (os.path.join(place, name + end) for end in ("", " kept", " other"))
        done = succeed(*arguments, "--quiet", "--out", out, status=status)
        shutil.copytree(out, kept)
        again = succeed("report", out)
        check(table_of(done.stdout) == table_of(again.stdout), name, "another table:", again.stdout)
        for text in (done.stdout, again.stdout):
            written = text.split("\nWritten to")[1]
            check(("figures" in written) == os.path.exists(os.path.join(out, "figure-exponents.svg")), name, written)
            check(("traces" in written) == (text == done.stdout and any(n.startswith("trace") for n in os.listdir(out))), name, written)
        check(differing(out, kept) == [], name, "redrawn in place, differ:", differing(out, kept))
        for file in DRAWN:
            if os.path.exists(os.path.join(out, file)):
                os.remove(os.path.join(out, file))
        succeed("report", out, "--quiet", "--figures")
        check(differing(out, kept) == [], name, "drawn anew, differ:", differing(out, kept))
        succeed("report", out, "--out", other, "--figures")
        check(set(content(other)) == {n for n in content(out) if n in DRAWN or n == "summary.csv"}, name, os.listdir(other))
        check(all(content(other)[n] == content(out)[n] for n in content(other)), name, "elsewhere, differ:", differing(out, other))
    return os.path.join(place, "plain"), os.path.join(place, "plain kept")


def labels_of(path):
    """(text, x from, x to, y from, y to) of each label in the SVG; a character is assumed to be 0.55 of the font's size
    wide."""
    space = "{http://www.w3.org/2000/svg}"
    found = []
    for group in xml.parse(path).getroot().iter(space + "g"):
        place = re.match(r"translate\(([\d.-]+),([\d.-]+)\)( rotate.*)?", group.get("transform", ""))
        text = "".join("".join(t.itertext()) for t in group.findall(space + "text")).strip()
        if not place or not text or place[3]:
            continue
        size, x, y = float(group.get("font-size")), float(place[1]), float(place[2])
        wide = 0.55 * size * len(text)
        left = x - {"start": 0, "middle": 0.5, "end": 1}[group.get("text-anchor", "start")] * wide
        found.append((text, left, left + wide, y - 0.75 * size, y + 0.1 * size))
    return found


def check_labels(path, width):
    labels = labels_of(path)
    check(len(labels) > 20, path, "has", len(labels), "labels")
    for i, (text, left, right, top, bottom) in enumerate(labels):
        check(left >= 0 and right <= width, path, repr(text), "reaches beyond the picture:", left, right)
        for other, left2, right2, top2, bottom2 in labels[:i]:
            check(right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top, path, repr(text), "touches", repr(other))
    return [text for text, *_ in labels]


def colours_of(path):
    """Colours of data: all strokes but greys, and black."""
    with open(path) as file:
        strokes = set(re.findall(r"stroke=['\"]rgb\(\s*(\d+),\s*(\d+),\s*(\d+)\)", file.read()))
    return {s for s in strokes if len(set(s)) > 1 or s == ("0", "0", "0")}


def test_figures(place):
    """Every format has its panels and its colour; labels keep clear of each other, also at many steps."""
    out = os.path.join(place, "many")
    names = MANY.split(",")
    done = succeed("compare", *TINY, "--formats", MANY, "--out", out, "--quiet", "--trace-tensors", "*.weight*")
    check("left out" not in done.stderr.lower(), done.stderr)
    labels = check_labels(os.path.join(out, "figure-exponents.svg"), 1100)
    for name in names:
        check(labels.count(name) == name.startswith(("flex", "dfp")), name, "heads", labels.count(name), "columns")
    shared = sum(name.startswith(("flex", "dfp")) for name in names)
    red = ("204", "0", "0")  # marks saturated elements
    colours = colours_of(os.path.join(out, "figure-exponents.svg")) - {red}
    check(len(colours) == shared, shared, "formats in", len(colours), "colours", sorted(colours))
    labels = check_labels(os.path.join(out, "figure-loss.svg"), 1100)
    check(all(name in labels for name in names), "the key lacks", [name for name in names if name not in labels])
    colours = colours_of(os.path.join(out, "figure-loss.svg"))
    check(len(colours) == len(names), len(names), "formats in", len(colours), "colours", sorted(colours))
    for figure in ("figure-loss", "figure-exponents"):  # the text that a pointer on a curve shows
        with open(os.path.join(out, figure + ".svg")) as file:
            titles = re.findall("<title>([^<]*)", file.read())
        check(titles[0] == figure.replace("-", "_") and not any("using" in title or "plot" in title for title in titles), figure, titles)
    # A format has the same colour whatever it is compared with.
    alone = os.path.join(place, "alone")
    succeed("train", *TINY, "--format", "flex16+5-paper", "--out", alone, "--quiet")
    check(colours_of(os.path.join(alone, "figure-loss.svg")) == {("86", "180", "233")}, "flex16+5-paper changed its colour")
    # Long axes: the numbers of steps are six digits.
    with open(os.path.join(out, "metrics.jsonl")) as file:
        lines = file.read().replace('"steps":12,', '"steps":987654,', 1)
    far = os.path.join(place, "far")
    shutil.copytree(out, far)
    with open(os.path.join(far, "metrics.jsonl"), "w") as file:
        file.write(lines)
    succeed("report", far, "--quiet")
    for name in ("figure-exponents.svg", "figure-loss.svg"):
        check_labels(os.path.join(far, name), 1130)


def test_tensors(place, out, kept):
    """--trace-tensors chooses again; a pattern without a match is named; a choice of no tensor changes nothing."""
    succeed("report", out, "--trace-tensors", "fc2.weight,fc2.bias", "--quiet")
    check(differing(out, kept) == sorted(["report.html", "figure-exponents.svg", "figure-exponents.png"]), differing(out, kept))
    labels = [text for text, *_ in labels_of(os.path.join(out, "figure-exponents.svg"))]
    check("fc2.weight (weight)" in labels and "fc2.bias (weight)" in labels and not any("fc1" in t for t in labels), labels)
    done = succeed("report", out, "--trace-tensors", "fc*", "--quiet")
    named = re.findall(r"fc\d(?:\.\w+)*", done.stderr.split("Left out:")[-1])
    with open(os.path.join(out, "report.html")) as file:
        page = file.read()
    drawn = [text.split(" ")[0] for text, *_ in labels_of(os.path.join(out, "figure-exponents.svg")) if text.startswith("fc")]
    every = list(dict.fromkeys(r["tensor"] for r in read_csv(out, "trace-dfp16-seed1.csv") if r["tensor"].startswith("fc")))
    check(len(drawn) == 8 and sorted(drawn + named) == sorted(every),
          "drawn", drawn, "named", named, "of", every)
    check(all(f'["{name}",' in page for name in every), "report.html lacks a tensor of", every)
    before = content(out)
    done = succeed("report", out, "--trace-tensors", "nix*", status=1)
    check("no tensor of the trace matches" in done.stderr and content(out) == before, done.stderr)
    succeed("report", out, "--quiet")
    check(differing(out, kept) == [], "back to the first choice, differ:", differing(out, kept))


def timeless(row):
    return without_time(row, "planned_runs")


def test_merge(place, whole, real):
    """Formats and seeds trained in several folders give the numbers of one training."""
    parts = {"a": ["--formats", "fp32,flex16+5:ngraph", "--seeds", "2"], "b": ["--formats", "dfp16,fp16,fp32", "--seeds", "2"],
             "c": ["--formats", "flex16+5", "--seeds", "1"], "d": ["--formats", "flex16+5", "--seed-base", "2", "--no-trace"]}
    folders = {}
    for name, arguments in parts.items():
        folders[name] = os.path.join(place, name)
        succeed("compare", *TINY, *arguments, "--out", folders[name], "--quiet")
    for order in ("abcd", "dcba"):
        out = os.path.join(place, "merged " + order)
        done = succeed("report", *(folders[name] for name in order), "--out", out, "--figures", env=real)
        check("10 of 10 runs" in done.stdout, done.stdout)
        one = {row["format"]: timeless(row) for row in read_csv(whole, "summary.csv")}
        two = {row["format"]: timeless(row) for row in read_csv(out, "summary.csv")}
        check(one == two, order, [name for name in one if one[name] != two.get(name)])
        with open(os.path.join(out, "report.html")) as file:
            page = file.read()
        check(all(f"<dd>{folders[name]}</dd>" in page for name in order), "report.html does not name the folders")
        labels = [text for text, *_ in labels_of(os.path.join(out, "figure-exponents.svg"))]
        check({"flex16+5", "flex16+5:ngraph", "dfp16"} <= set(labels), labels)
    out = os.path.join(place, "gap")
    done = succeed("report", folders["a"], folders["c"], "--out", out)
    check("5 of 5 runs" in done.stdout, done.stdout)
    with open(os.path.join(out, "report.html")) as file:
        page = file.read()
    check("Incomplete" not in page and "Not every format was trained with every seed." in page, "three complete folders are", page[3000:3600])
    check({row["format"]: row["planned_runs"] for row in read_csv(out, "summary.csv")} == {"fp32": "2", "flex16+5:ngraph": "2", "flex16+5": "1"},
          read_csv(out, "summary.csv"))
    out3 = os.path.join(place, "three")
    done = succeed("report", *(folders[name] for name in "acd"), "--out", out3)
    check("6 of 6 runs" in done.stdout, done.stdout)
    older = os.path.join(place, "older")  # of a version with only one optimiser, which had no name
    shutil.copytree(folders["c"], older)
    with open(os.path.join(older, "metrics.jsonl")) as file:
        lines = file.read()
    check('"optimizer":"sgd",' in lines, lines[:2000])
    with open(os.path.join(older, "metrics.jsonl"), "w") as file:
        file.write(lines.replace('"optimizer":"sgd",', ""))
    done = succeed("report", folders["a"], older, "--out", os.path.join(place, "with older"))
    check("5 of 5 runs" in done.stdout, done.stdout)
    expect_error(["report", folders["a"], folders["b"], "--out", out], 1, "already holds results", "--force")
    succeed("report", folders["a"], folders["b"], "--out", out, "--force", "--quiet")
    for option, value, word in (("--lr", "0.02", "lr is 0.01"), ("--epochs", "3", "epochs is 2"), ("--batch", "8", "batch is 16"),
                                ("--schedule", "cosine", "schedule is 'linear'"), ("--momentum", "0.5", "momentum is 0.9"),
                                ("--clip-norm", "2", "optimizer is 'sgd'"),
                                ("--data", "synthetic:train=96,test=41", "data is 'synthetic:train=96,test=40'")):
        other = os.path.join(place, "other" + option)
        succeed("train", *TINY, option, value, "--format", "bf16", "--out", other, "--quiet")
        expect_error(["report", folders["a"], other, "--out", os.path.join(place, "none")], 1, folders["a"], other, word)
    other = os.path.join(place, "predictor")
    succeed("compare", *TINY, "--formats", "flex16+5,dfp16", "--predictor", "ngraph", "--out", other, "--quiet")
    expect_error(["report", folders["c"], other, "--out", os.path.join(place, "none")], 1, "predictor of flex16+5", "'paper'", "'ngraph'")
    # Speeds under other conditions are not compared.
    other = os.path.join(place, "two threads")
    succeed("compare", *TINY, "--formats", "fp16", "--threads", "2", "--out", other, "--quiet")
    single = os.path.join(place, "one thread")
    succeed("compare", *TINY, "--formats", "fp32,dfp16", "--threads", "1", "--out", single, "--quiet")
    mixed = os.path.join(place, "mixed threads")
    succeed("report", other, single, "--out", mixed, "--quiet")
    with open(os.path.join(mixed, "report.html")) as file:
        page = file.read()
    check("1 to 2 threads, in some folders writing the exponent traces included. The folders were trained under different" in page,
          re.findall("Speed is that.*", page))
    # A stopped run and the same run, finished: the finished one is used, in either order.
    stopped = os.path.join(place, "stopped part")
    shutil.copytree(folders["c"], stopped)
    change(stopped, lambda line: {**line, "complete": False, "steps": 7, "last_loss": 2.25} if line["type"] == "run"
           else {**line, "finished_runs": 0, "complete": False} if line["type"] == "end" else line)
    for number, pair in enumerate(((stopped, folders["c"]), (folders["c"], stopped))):
        both = os.path.join(place, f"both {number}")
        done = succeed("report", *pair, "--out", both)
        check("1 of 1 runs" in done.stdout, done.stdout)
        check([timeless(row) for row in read_csv(both, "summary.csv")] == [timeless(row) for row in read_csv(folders["c"], "summary.csv")],
              pair, read_csv(both, "summary.csv"))
    test_stopped(place, folders)
    forged = os.path.join(place, "forged")
    shutil.copytree(folders["c"], forged)
    change(forged, lambda line: {**line, "last_loss": 2.5} if line["type"] == "run" else line)
    expect_error(["report", folders["c"], forged, "--out", os.path.join(place, "none")], 1, "flex16+5 seed 1", "2.5")
    check(not os.path.exists(os.path.join(place, "none")), "a refused report left its folder")
    return folders


def copied(place, name, folder, how):
    out = os.path.join(place, name)
    shutil.copytree(folder, out)
    change(out, how)
    return out


def test_stopped(place, folders):
    """Of several stopped runs only the longest is shown; each divergence that is counted is named."""
    parts = [copied(place, f"stopped {name}", folders[name], lambda line: {**line, "complete": False, "steps": steps, "last_loss": loss}
                    if line["type"] == "run" else {**line, "finished_runs": 0, "complete": False} if line["type"] == "end" else line)
             for name, steps, loss in (("c", 6, 1.0), ("d", 9, 2.0))]
    for number, order in enumerate((parts, parts[::-1])):
        out = os.path.join(place, f"two stopped {number}")
        done = succeed("report", *order, "--out", out)
        row, = read_csv(out, "summary.csv")
        check((row["runs"], row["last_loss_mean"], row["last_loss_sd"], row["stopped_step"]) == ("0", "2", "", "9"), row)
        check("(stopped after step 9)" in done.stdout and "±" not in done.stdout.split("flex16+5 (stopped")[1].splitlines()[0], done.stdout)
    lost = {"last_loss": None, "last_loss_state": "nan", "diverged": True, "nonfinite_step": 2, "nonfinite_loss_state": "nan"}
    for whole in (True, False):
        wild = copied(place, f"wild {whole}", folders["b"], lambda line: {**line, **lost, "complete": whole or line["seed"] == 1}
                      if line["type"] == "run" and line["format"] == "fp16" else {**line, "finished_runs": 5 + whole, "complete": whole}
                      if line["type"] == "end" else line)
        said = run("report", wild)
        told = said.stdout + said.stderr
        check("DIVERGED: fp16" in told and ("seed 2: loss NaN" in told) == whole and " more" not in told, whole, told)
    # other kernels or another program: no comparison of speeds
    for key, value in (("instruction_set", "ref"), ("revision", "another")):
        slow = copied(place, f"other {key}", folders["c"], lambda line: {**line, key: value} if line["type"] == "config" else line)
        out = os.path.join(place, f"with other {key}")
        succeed("report", folders["a"], slow, "--out", out, "--quiet")
        with open(os.path.join(out, "report.html")) as file:
            page = file.read()
        check("by different programs or instruction sets" in page and "do not compare speeds" in page, re.findall("Speed is that.*", page))


def change(folder, how):
    """Passes each line of metrics.jsonl through `how`, which returns a new line, a text to write as it is, or None to
    leave the line out."""
    path = os.path.join(folder, "metrics.jsonl")
    with open(path) as file:
        lines = [how(json.loads(line)) for line in file]
    with open(path, "w") as file:
        file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines if line is not None)


def first(kind, edit):
    """An edit of the first line of that type."""
    done = []

    def how(line):
        if line["type"] != kind or done:
            return line
        done.append(line)
        return edit(line)
    return how


def without(key):
    return lambda line: {k: v for k, v in line.items() if k != key}


def with_value(key, value):
    return lambda line: {**line, key: value}


def nth(kind, n, edit):
    """An edit of the n-th line of that type."""
    seen = []

    def how(line):
        if line["type"] != kind:
            return line
        seen.append(line)
        return edit(line) if len(seen) == n else line
    return how


def without_first_finished(line):
    return None if line["type"] in ("run", "predictions") and line["seed"] == 1 and line["format"] == "fp32" else line


def test_bad_files(place, good):
    """Each kind of damage is named with its file and line, and nothing is written."""
    with open(os.path.join(good, "metrics.jsonl")) as file:
        kinds = [json.loads(line)["type"] for line in file]
    at = {kind: kinds.index(kind) + 1 for kind in kinds}
    cases = [(first("run", lambda line: "{\"type\":\"run\",,}\n"), at["run"], "not a JSON object"),
             (first("steps", lambda line: "[1]\n"), at["steps"], "not a JSON object"),
             (first("epoch", lambda line: "\n"), at["epoch"], "not a JSON object"),
             (first("steps", lambda line: json.dumps(line) + " x\n"), at["steps"], "not a JSON object"),
             (first("end", lambda line: json.dumps(line)), at["end"], "cut off"),
             (first("end", lambda line: None), None, "no end line"),
             (first("end", lambda line: json.dumps(line) + "\n" + json.dumps(line) + "\n"), at["end"] + 1, "after the end line"),
             (first("config", lambda line: None), 1, "not the first line of a metrics.jsonl"),
             (first("config", with_value("type", "konfig")), 1, "not the first line of a metrics.jsonl"),
             (first("config", with_value("schema", 99)), 1, "layout 99"),
             (first("config", without("schema")), 1, "'schema' is missing"),
             (first("config", with_value("formats", [])), 1, "'formats' is not a list of anything"),
             (first("config", with_value("seeds", ["one"])), 1, "'seeds'"),
             (first("config", with_value("epochs", 1.5)), 1, "'epochs' is 1.5, expected a whole number"),
             (first("config", with_value("steps", -3)), 1, "'steps' is -3"),
             (first("config", with_value("model", None)), 1, "'model' is null"),
             (first("config", lambda line: {**line, "formats": [{**line["formats"][0], "variant": "fp99"}]}), 1, "'fp99' is unknown"),
             (first("config", with_value("epochs", 2147483647)), 1, "'epochs' is 2147483647, expected a whole number from 1 to 100000"),
             (first("steps", lambda line: None), at["steps"], "does not follow step 0: a line is missing"),
             (nth("steps", 3, lambda line: None), at["steps"] + 2, "step 4, the last of 1, does not follow step 2"),
             (nth("steps", 2, with_value("step", 1)), at["steps"] + 1, "step 1, the last of 1, does not follow step 1"),
             (first("epoch", lambda line: None), None, "epoch 2 does not follow epoch 0: a line is missing"),
             (without_first_finished, None, "'finished_runs' is 10, but the lines before hold 9"),
             (first("end", with_value("finished_runs", 9)), at["end"], "'finished_runs' is 9, but the lines before hold 10"),
             (first("run", without("last_loss")), at["run"], "'last_loss' is missing"),
             (first("run", with_value("saturated", "many")), at["run"], "'saturated' is not a number"),
             (first("run", with_value("last_loss", None)), at["run"], "'last_loss' and 'last_loss_state' do not agree"),
             (first("run", with_value("complete", 1)), at["run"], "'complete' is neither true nor false"),
             (first("run", with_value("seed", 77)), at["run"], "seed 77 is not among those of the first line"),
             (first("steps", with_value("format", "fp17")), at["steps"], "'fp17'"),
             (first("steps", with_value("type", "stops")), at["steps"], "type 'stops' is unknown"),
             (first("predictions", with_value("classes", [1, 2])), at["predictions"], "2 predictions, expected one for each of 40"),
             (first("run", lambda line: json.dumps(line) + "\n" + json.dumps(line) + "\n"), at["run"] + 1, "line of its own before"),
             (first("steps", lambda line: json.dumps(line) + "\0x\n"), at["steps"], "holds a byte of zero"),
             (first("config", lambda line: json.dumps({**line, "rate": 7777}).replace("7777", "1e999") + "\n"), 1, "'rate' is larger than"),
             (first("config", lambda line: {**line, "formats": line["formats"] + line["formats"][:1]}), 1, "'fp32' occurs twice"),
             (first("config", lambda line: {**line, "formats": [{**line["formats"][0], "name": "../a,b"}]}), 1, "'../a,b' is not that of"),
             (first("config", with_value("seeds", [1, 2, 1])), 1, "seed 1 occurs twice"),
             (first("config", with_value("seeds", [1, 2.5])), 1, "something that is not a seed"),
             (first("config", with_value("seeds", list(range(1001)))), 1, "1001 seeds, expected at most 1000"),
             (first("run", with_value("nonfinite_step", 3)), at["run"], "'nonfinite_step' and 'nonfinite_loss_state' do not agree"),
             (first("run", with_value("test_accuracy", None)), at["run"], "'test_loss' and 'test_accuracy' do not agree"),
             (first("predictions", lambda line: None), at["end"] - 1, "the run of 'fp32' with seed 1 was tested, but a line of its predictions"),
             (first("run", lambda line: None), at["run"], "predictions of a run that no line before says was tested"),
             (first("predictions", lambda line: json.dumps(line) + "\n" + json.dumps(line) + "\n"), at["predictions"] + 1, "two lines of predictions"),
             (first("predictions", lambda line: {**line, "classes": [10] + line["classes"][1:]}), at["predictions"], "not one of 10 classes")]
    for number, (edit, line, words) in enumerate(cases):
        bad = os.path.join(place, f"bad{number}")
        shutil.copytree(good, bad)
        change(bad, edit)
        before = content(bad)
        where = os.path.join(bad, "metrics.jsonl") + (f":{line}: " if line else "")
        expect_error(["report", bad], 1, where, words)
        expect_error(["report", bad, "--out", os.path.join(place, "never")], 1, where, words)
        check(content(bad) == before and not os.path.exists(os.path.join(place, "never")), "bad", number, "something was written")
    trace = "trace-dfp16-seed1.csv"
    for number, (edit, line, words) in enumerate([(lambda rows: rows[:5] + ["1,x,weight\n"] + rows[6:], 6, "too few fields"),
                                                  (lambda rows: ["step,tensor\n"] + rows[1:], 1, "not the heading"),
                                                  (lambda rows: rows[:7] + [rows[7].replace(",", ";", 3)] + rows[8:], 8, "fields"),
                                                  (lambda rows: rows[:3] + [re.sub(r"^\d+", "one", rows[3])] + rows[4:], 4, "not a row"),
                                                  (lambda rows: rows[:-1] + [rows[-1][:-4]], None, "cut off"),
                                                  (lambda rows: [], 1, "not the heading")]):
        bad = os.path.join(place, f"trace{number}")
        shutil.copytree(good, bad)
        with open(os.path.join(bad, trace)) as file:
            rows = file.readlines()
        with open(os.path.join(bad, trace), "w") as file:
            file.writelines(edit(rows))
        page = content(bad)["report.html"]
        expect_error(["report", bad], 1, os.path.join(bad, trace) + f":{line or len(rows)}: ", words)
        check(content(bad)["report.html"] == page, "a bad trace changed report.html")
    os.remove(os.path.join(bad, trace))
    expect_error(["report", bad], 1, trace, "No such file")
    succeed("report", bad, "--no-trace", "--quiet")


def test_usage(place, folder):
    expect_error(["report"], 2, "expected the folder of results")
    expect_error(["report", os.path.join(place, "nowhere")], 1, "nowhere/metrics.jsonl", "flexlab compare")
    expect_error(["report", folder, folder], 2, "--out names the folder")
    expect_error(["report", folder, os.path.join(folder, "."), "--out", os.path.join(place, "x")], 2, "are one folder")
    expect_error(["report", folder, "--out", os.path.join(folder, ".")], 2, "is one of the folders to be read")
    expect_error(["report", folder, "--epochs", "3"], 2, "'--epochs'")
    expect_error(["report", folder, "--trace-tensor"], 2, "is not a whole name, expected --trace-tensors")
    expect_error(["report", folder, "--trace-tensors"], 2, "needs a value")
    expect_error(["reprot", folder], 2, "did you mean 'report'?")
    done = run("report", "--help")
    check(done.returncode == 0 and "Usage: flexlab report" in done.stdout and "--trace-tensors" in done.stdout, done.stdout)
    check("--lr" not in done.stdout and max(map(len, done.stdout.splitlines())) <= 110, done.stdout)
    before = content(folder)
    done = run("report", folder, env={"PATH": "/nonexistent"})
    check(done.returncode == 1 and "gnuplot" in done.stderr and content(folder) == before, done.stderr)
    new = os.path.join(place, "no figures")
    done = succeed("report", folder, "--out", new, "--figures", env={"PATH": "/nonexistent"})  # nothing is replaced there
    check(set(os.listdir(new)) == {"report.html", "summary.csv"} and "report.html, summary.csv\n" in done.stdout, os.listdir(new), done.stdout)
    again = run("report", folder, "--out", new, "--force", "--figures", env={"PATH": "/nonexistent"})
    check(again.returncode == 1 and "without its figures" in again.stderr, again.stderr)
    plain = os.path.join(place, "no exponents left")
    shutil.copytree(folder, plain)
    succeed("report", plain, "--no-trace", "--quiet")
    check(not any("exponents" in name for name in os.listdir(plain)), "figures of an earlier report:", os.listdir(plain))
    succeed("report", plain, "--quiet")
    check(differing(folder, plain) == [], differing(folder, plain))
    # A page without figures stays one, and needs no gnuplot; its --trace-tensors must match something too.
    page = content(new)
    succeed("report", folder, "--out", new, "--force", "--quiet", env={"PATH": "/nonexistent"})
    check(content(new) == page, differing(new, folder))
    bare = os.path.join(place, "bare")
    shutil.copytree(folder, bare)
    for name in DRAWN[1:]:
        os.remove(os.path.join(bare, name))
    done = succeed("report", bare, env={"PATH": "/nonexistent"})
    check(not any(name in DRAWN[1:] for name in os.listdir(bare)) and "figures" not in done.stdout.split("Written to")[1], os.listdir(bare), done.stdout)
    check(b"--figures" in content(bare)["report.html"] and b"figure-loss.svg" not in content(bare)["report.html"], "the page without scripts")
    before = content(bare)
    done = succeed("report", bare, "--trace-tensors", "nix*", status=1)
    check("--trace-tensors 'nix*': no tensor of the trace matches" in done.stderr and content(bare) == before, done.stderr)


def test_long_axes(place, good):
    """More steps than an int can hold are drawn, whatever the number of their records."""
    out = os.path.join(place, "huge")
    shutil.copytree(good, out)
    change(out, first("config", with_value("steps", 4294967296000)))
    change(out, first("config", with_value("trace_every", 1)))
    succeed("report", out, "--quiet")


def test_small_differences(place, good):
    """If losses hardly differ, the numbers beside that axis are complete, and no two are the same."""
    for number, size in enumerate((3e-3, 1e-4, 2.5e-5, 1e-5, 7e-9)):
        out = os.path.join(place, f"near {number}")
        shutil.copytree(good, out)
        losses = {}

        def near(line):
            if line["type"] != "steps":
                return line
            key = line["seed"], line["step"]
            losses.setdefault(key, line["loss"])  # fp32 comes first
            return {**line, "loss": losses[key] + (0 if line["format"] == "fp32" else size * (0.5 - line["step"] % 3) / 1.5)}
        change(out, near)
        succeed("report", out, "--quiet")
        labels = labels_of(os.path.join(out, "figure-loss.svg"))
        title, _, _, top, _ = next(label for label in labels if label[0].startswith("Training loss − fp32"))
        check(("in units of 10" in title) == (size < 1e-3), size, title)
        axis = [(text, left) for text, left, right, y, _ in labels if y > top and right < 0.065 * 1100]
        check(len(axis) >= 3 and all(left >= 0 for text, left in axis) and len({text for text, left in axis}) == len(axis), size, axis)
        check(any(text.startswith("-") for text, left in axis), size, axis)


def corners(script, block):
    """The lines of a block of data in a script of gnuplot, as numbers; [] for an empty one."""
    text = re.search(rf"^\$%s << EOD\n(.*?)^EOD$" % re.escape(block), script, re.M | re.S)[1]
    return [[float(word) for word in line.split()] for line in text.splitlines()]


def drawn_script(place, folder, name):
    """The script that gnuplot reads for the figure with `name` in it."""
    tools = os.path.join(place, "listening gnuplot")
    os.makedirs(tools, exist_ok=True)
    with open(os.path.join(tools, "gnuplot"), "w") as file:
        file.write(f"#!/bin/sh\ncat > '{tools}/script'\ngrep -q '{name}' '{tools}/script' && cp '{tools}/script' '{tools}/kept'\n"
                   f"exec '{shutil.which('gnuplot')}' \"$@\" < '{tools}/script'\n")
    os.chmod(os.path.join(tools, "gnuplot"), 0o755)
    succeed("report", folder, "--quiet", env={"PATH": tools + ":" + os.environ["PATH"]})
    with open(os.path.join(tools, "kept")) as file:
        return file.read()


def test_exponent_steps(place, good):
    """Each record of a trace is a step of both lines from the previous record to its own; a record of zeros is a gap;
    the panel reaches down to the ceiling if all elements are above it."""
    out = os.path.join(place, "steps")
    shutil.copytree(good, out)
    path = os.path.join(out, "trace-flex16+5-seed1.csv")
    with open(path) as file:
        heading, *rows = file.read().splitlines()
    columns = heading.split(",")
    tensor = rows[0].split(",")[columns.index("tensor")]
    mine = [row for row in rows if row.split(",")[columns.index("tensor")] == tensor]
    edited = []
    for number, row in enumerate(mine):
        fields = row.split(",")
        fields[columns.index("maximum")] = "0" if number in (1, 4) else str(2.0 ** number)
        fields[columns.index("e")] = fields[columns.index("maximum_e")] = "20"
        edited.append(",".join(fields))
    with open(path, "w") as file:
        file.write("\n".join([heading, *edited]) + "\n")
    change(out, first("config", with_value("trace_tensors", tensor)))
    change(out, lambda line: {**line, "formats": [f for f in line["formats"] if f["name"] == "flex16+5"]} if line["type"] == "config"
           else {**line, "finished_runs": 2} if line["type"] == "end" else line if line.get("format") == "flex16+5" else None)
    script = drawn_script(place, out, "t0_0")
    ceiling, steps = 32767 * 2.0 ** -20, [int(row.split(",")[0]) for row in mine]
    want = []
    for number, step in enumerate(steps):
        value = [ceiling, 2.0 ** number]
        want += [[]] if number in (1, 4) else [[steps[number - 1] if number else 0, *value], [step, *value]]
    found = corners(script, "t0_0")
    check(len(found) == len(want) and all(abs(a - b) <= 1e-8 * abs(b) for f, w in zip(found, want) for a, b in zip(f, w))
          and [len(f) for f in found] == [len(w) for w in want], "corners", found, "want", want)
    low = float(re.search(r"set yrange \[([^:]+):", script)[1])
    check(low <= ceiling, "the panel begins at", low, "above the largest value that the exponent holds,", ceiling)


def main():
    with tempfile.TemporaryDirectory() as place:
        if not has_gnuplot():
            print("skipped: no gnuplot here (Debian: apt-get install gnuplot-nox)")
            return 77
        out, kept = test_same_bytes(place)
        test_tensors(place, out, kept)
        test_long_axes(place, out)
        test_exponent_steps(place, out)
        test_small_differences(place, out)
        test_figures(place)
        folders = test_merge(place, out, draw_quickly(place))
        test_bad_files(place, out)
        test_usage(place, folders["c"])
    return summary()


if __name__ == "__main__":
    sys.exit(main())
