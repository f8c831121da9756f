#!/usr/bin/env python3
"""flexlab replay: against an independent implementation of the rules, on traces of real trainings and of numbers made
here; errors in a trace are named by file and line. Predictors of a library of the user's own. usage: test_cli_replay.py
FLEXLAB PLUGIN"""
import math
import os
import random
import sys
import tempfile

from cli_harness import check, expect_error, read_csv, run, succeed, summary

PLUGIN = os.path.abspath(sys.argv[2])
TOP = 32767
HEADING = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,clamped_low,clamped_high,maximum_e"
ROLE = {"weight": 1.0625, "activation": 1.25, "gradient": 1.5, "momentum": 1.5, "weight gradient": 2}


def floor_log2(x):
    return math.frexp(x)[1] - 1


def ceil_log2(x):
    m, e = math.frexp(x)
    return e - 1 if m == 0.5 else e


class Witness:
    """One tensor under one predictor, from docs/autoflex.md."""

    def __init__(self, name, role):
        self.name, self.role, self.e, self.phi, self.all = name, role, 8, [], []
        self.kept = self.writes = self.saturated = self.changes = self.repeated = 0
        self.unused = 0.0

    def start(self, maximum):
        if self.role == "weight":
            return self.fit(maximum)
        e = 8
        while True:  # repeat the operation until it is settled
            gamma = min(TOP, round(math.ldexp(maximum, e)))
            if gamma >= TOP and e > 0:
                e = max(0, e - 7)
            elif gamma < 1 << 14 and gamma < TOP:
                to = e + 14 - ceil_log2(max(gamma, 1))
                if to == e or (e == 31 and to > 31):
                    return e
                e = min(to, 31)
                if gamma > 32:
                    return e
            else:
                return e

    def room(self):
        h = self.phi[-16:]
        mean = math.fsum(h) / len(h)
        wide = max(h) + 3 * math.sqrt(math.fsum((x - mean) ** 2 for x in h) / len(h)) + 100 * math.ldexp(1, -self.e)
        if self.name == "paper":
            return 2 * wide
        if self.name == "ngraph":
            return wide
        if self.name == "per-class":
            return ROLE[self.role] * max(h)
        if self.name == "amax":
            return max(self.all[max(0, ((len(self.all) - 1) // 64 - 15) * 64):])
        if self.name == "amax-recent":
            return self.all[-1]
        return 1.125 * (sorted(h)[-2] if len(h) > 1 else h[0])

    def fit(self, maximum):
        e = 14 - floor_log2(maximum)
        return max(0, min(31, e - (round(math.ldexp(maximum, e)) > TOP)))

    def write(self, maximum):
        before = self.e
        if self.name == "current":
            self.e = self.fit(maximum)
            self.repeated += self.writes > 0 and self.e != before
        elif not self.all:
            self.e = max(0, min(31, self.start(maximum)))
        else:
            room = self.room()
            self.e = max(0, min(31, 15 - ceil_log2(room) if self.name == "paper" else 14 - floor_log2(room)))
            if self.name == "repeat" and round(math.ldexp(maximum, self.e)) > TOP and self.fit(maximum) < self.e:
                self.e = self.fit(maximum)
                self.repeated += 1
        m = round(math.ldexp(maximum, self.e))
        gamma = min(m, TOP)
        full = gamma == TOP and not (self.name == "repeat" and m <= TOP)
        if full and not self.name.startswith("amax"):
            self.phi = []
        self.phi.append(math.ldexp(2 * TOP if full else gamma, -self.e) if gamma else maximum)
        self.all.append(maximum)
        self.changes += self.writes > 0 and self.e != before
        self.writes += 1
        self.saturated += m > TOP
        self.kept += gamma > 0
        self.unused += 15 - math.log2(gamma) if gamma else 0


PREDICTORS = ["paper", "ngraph", "per-class", "amax", "amax-recent", "current", "repeat"]


def write_trace(path, rows):
    with open(path, "w") as file:
        file.write(HEADING + "\n")
        for step, name, role, maximum in rows:
            file.write(f"{step},{name},{role},200,1,0,{maximum!r},0,0,0,0,0,200\n")  # an exponent that no replay chooses


def by_witness(path):
    """Tensor by tensor, predictor by predictor; the input is loaded and belongs to no predictor."""
    lives = {}
    for row in read_csv(path):
        maximum = float(row["maximum"])
        for p in PREDICTORS:
            life = lives.setdefault((row["tensor"], p), Witness(p, row["role"]))
            if maximum > 0 and row["tensor"] != "input":
                life.write(maximum)
    return lives


def compare(path, exact):
    out = os.path.join(os.path.dirname(path), "replayed.csv")
    succeed("replay", path, "--csv", out, "--force")
    lives = by_witness(path)
    rows = read_csv(out)
    check(len(rows) == len(lives), len(rows), "lines, expected", len(lives))
    for row in rows:
        w = lives[row["tensor"], row["predictor"]]
        mean = w.unused / w.kept if w.kept else 0
        got = [int(row[k]) for k in ("writes", "saturated", "changes", "repeated")]
        want = [w.writes, w.saturated, w.changes, w.repeated]
        # a recorded gamma may differ from the one computed from the nine digits of its maximum, and rarely give another
        # exponent
        near = all(abs(a - b) <= (0 if exact else 2) for a, b in zip(got, want))
        check(near and abs(float(row["unused_bits"]) - mean) < (1e-6 if exact else 0.02), path, row, want, mean)
    return rows


def made_traces(place):
    draw = random.Random(4)
    rows, sizes = [], {}
    for step in range(1, 1300):
        for i, role in enumerate(ROLE):
            sizes[i] = sizes.get(i, 0.0) + draw.gauss(0, 0.2 + 0.2 * i) - 0.02 * sizes.get(i, 0.0)
            jump = 2.0 ** draw.randint(1, 9) if draw.random() < 0.01 else 1.0
            rows.append((step, f"t{i}", role, 0.0 if draw.random() < 0.02 else jump * 2 ** sizes[i]))
    path = os.path.join(place, "trace-flex16+5-seed1.csv")
    write_trace(path, rows)
    compare(path, exact=True)


def recorded(place):
    out = os.path.join(place, "run")
    succeed("train", "--model", "cnn6", "--data", "synthetic:train=480,test=20", "--batch", "8", "--epochs", "1", "--threads", "1", "--quiet",
            "--no-checkpoint", "--trace-every", "1", "--out", out, env={"FLEXLAB_GNUPLOT_SECONDS": "0"})
    path = os.path.join(out, "trace-flex16+5-seed1.csv")
    rows = compare(path, exact=False)
    # the predictor of the training chooses the exponents of the training; weights began with a load that no record
    # shows
    for row in rows:
        if row["predictor"] == "paper" and row["role"] != "weight" and row["tensor"] != "input":
            check(row["as_recorded"] == row["writes"], "not as recorded:", row)
    total = {p: [sum(float(r[k]) for r in rows if r["predictor"] == p) for k in ("writes", "saturated", "repeated")] for p in PREDICTORS}
    check(total["repeat"][1] == 0 < total["repeat"][2] < total["current"][2], total)
    shown = succeed("replay", path, "--predictors", "paper,repeat", "--by", "trace").stdout
    check(shown.count("\n") == 3 and "apart" not in shown, shown)
    shown = succeed("replay", path, "--predictors", "paper", "--tensors", "*.weight,fc*", "--by", "tensor").stdout
    check("fc" in shown and "relu" not in shown, shown)
    shown = succeed("replay", path, "--predictors", "paper,repeat", "--outliers", "100").stdout.splitlines()
    recovery = [float(next(w for w in line.split() if w.endswith(",") and w[:-1].replace(".", "").isdigit())[:-1]) for line in shown[1:3]]
    check(recovery[1] == 1 <= recovery[0], "recovery after outliers", recovery)
    # several steps between records are reported
    succeed("train", "--model", "mlp2", "--data", "synthetic:train=64,test=20", "--batch", "8", "--epochs", "1", "--threads", "1", "--quiet",
            "--no-checkpoint", "--trace-every", "3", "--out", out, "--force", env={"FLEXLAB_GNUPLOT_SECONDS": "0"})
    check("3 steps apart" in succeed("replay", path).stdout, "rows that lie apart")
    return path


def bad_input(place, good):
    path = os.path.join(place, "trace-flex16+5-seed9.csv")
    row = "1,fc.weight,weight,14,20000,1,1.2,0,0,0,0,0,14"

    def refused(text, *parts):
        with open(path, "w") as file:
            file.write(text)
        out = os.path.join(place, "none.csv")
        expect_error(["replay", path, "--csv", out], 1, path, *parts)
        check(not os.path.exists(out) and not os.path.exists(out + ".part"), "a table of a bad trace")

    refused("step,tensor\n", ":1:", "heading")
    refused(HEADING + "\n", "no rows")
    refused(f"{HEADING}\n{row}\n{row[:-3]}\n", ":3:", "too few fields")
    refused(f"{HEADING}\n{row},7\n", ":2:", "not a row")
    refused(f"{HEADING}\n{row}", ":2:", "cut off")
    for word in ("-1.2", "nan", "1.2x", ""):
        refused(f"{HEADING}\n" + row.replace("1.2", word) + "\n", ":2:", "not a row")
    refused(f"{HEADING}\n" + row.replace("20000", "32768") + "\n", ":2:", "not a row")
    refused(f"{HEADING}\n" + row.replace(",14,", ",4294967310,") + "\n", ":2:", "not a row")  # 14 in 32 bits
    refused(f"{HEADING}\n{row}\n{row}\n", "step 1 to 1", "fc.weight")
    refused(f"{HEADING}\n" + row.replace(",weight,", ",wieght,") + "\n", "step 1", "role 'wieght' of fc.weight", "weight gradient")
    refused(f"{HEADING}\n" + row.replace(",weight,", ",,") + "\n", "role '' of fc.weight")
    # an Inf, which a diverging training records, is a saturated write like any other
    with open(path, "w") as file:
        file.write("\n".join([HEADING, *(f"{i},fc.weight,weight,14,{m},0,0,0,0,14" for i, m in
                                         enumerate(["20000,1,1.2,0", "32767,1,inf,3", "32767,1,inf,3", "20000,1,1.2,0"], 1)), ""]))
    table = os.path.join(place, "infinite.csv")
    succeed("replay", path, "--csv", table)
    for row in read_csv(table):
        check(row["writes"] == "4" and row["saturated"] == "2" and row["tensor"] == "fc.weight", row)
    expect_error(["replay", "/nowhere.csv"], 1, "/nowhere.csv", "No such file")
    expect_error(["replay"], 2, "trace files")
    of_policy = os.path.join(place, "trace-policy_O2-seed1.csv")
    with open(good, "rb") as source, open(of_policy, "wb") as file:
        file.write(source.read())
    expect_error(["replay", of_policy], 2, of_policy, "its name has a policy", "--format")
    check(succeed("replay", of_policy, "--format", "flex16+5").stdout.splitlines()[2:] == succeed("replay", good, "--format", "flex16+5").stdout.splitlines()[2:],
          "another range")
    expect_error(["replay", good, "--predictors", "paper,papper"], 2, "'papper'", "did you mean 'paper'?")
    expect_error(["replay", good, "--predictors", "paper,paper"], 2, "'paper' is named twice")
    expect_error(["replay", good, "--by", "rule"], 2, "'rule'", "role, trace or tensor")
    expect_error(["replay", good, "--outliers", "3"], 2, "'3'", "from 8")
    expect_error(["replay", good, "--warm-up", "-1"], 2, "'-1'")
    expect_error(["replay", good, "--format", "fp16"], 2, "'fp16'", "shared exponent")
    expect_error(["replay", good, "--tensors", "nothing*"], 1, "'nothing*'")
    expect_error(["replay", good, "--fast"], 2, "--fast")
    expect_error(["replay", good, "--csv"], 2, "--csv")
    expect_error(["replay", good, "--csv", "/nowhere/x.csv"], 1, "/nowhere")
    earlier = os.path.join(place, "earlier.csv")
    with open(earlier, "w") as file:
        file.write("mine")
    expect_error(["replay", good, "--csv", earlier], 1, earlier, "already", "--force")
    with open(earlier) as file:
        check(file.read() == "mine", "a file was replaced without --force")
    succeed("replay", good, "--csv", earlier, "--force")
    with open(earlier) as file:
        check(file.readline().startswith("trace,tensor,role,predictor,"), "--force replaces no file")
    fp16 = os.path.join(place, "trace-fp16-seed1.csv")
    with open(fp16, "w") as file:
        file.write(f"{HEADING}\n{row}\n")
    expect_error(["replay", fp16], 1, fp16, "no shared exponent")
    check("Usage: flexlab replay" in succeed("replay", "--help").stdout, "replay --help")


def names(place):
    """Tensors whose names are words of the table or need quotes, and a trace in a folder with a comma."""
    folder = os.path.join(place, 'a, "b"')
    os.mkdir(folder)
    path = os.path.join(folder, "trace-flex16+5-seed1.csv")
    named = ["all", 'we"ird', '"quoted"', "fc.weight"]
    write_trace(path, [(step, name, "gradient" if i % 2 else "weight", 1.0 + i) for step in range(1, 11) for i, name in enumerate(named)])
    out = os.path.join(place, "named.csv")
    for by, expected in (("tensor", {"all": [4, 1], 'we"ird': [1], '"quoted"': [1], "fc.weight": [1]}), ("role", {"all": [4], "gradient": [2], "weight": [2]})):
        lines = succeed("replay", path, "--predictors", "paper", "--by", by, "--csv", out, "--force").stdout.splitlines()[1:]
        found = {}
        for line in lines:
            words = line.split()
            check(words[0] == "paper" and int(words[3]) == 10 * int(words[2]), by, line)
            found.setdefault(words[1], []).append(int(words[2]))
        check(found == expected, by, found)
    rows = read_csv(out)
    check([row["tensor"] for row in rows] == named and all(row["trace"] == path and row["writes"] == "10" and None not in row for row in rows), rows)
    with open(path, "rb") as file:
        before = file.read()
    linked, other = os.path.join(place, "linked.csv"), os.path.join(place, "trace-flex16+5-seed2.csv")
    os.symlink(path, linked)
    write_trace(other, [(1, "fc.weight", "weight", 1.0)])
    for table in (path, os.path.join(folder, "..", os.path.basename(folder), os.path.basename(path)), linked):
        expect_error(["replay", other, path, "--csv", table], 2, "--csv", f"the trace {path}")
    with open(path, "rb") as file:
        check(file.read() == before and os.path.islink(linked), "a trace was written over")


def plugins(place, trace):
    with_plugin = {"FLEXLAB_PREDICTORS": PLUGIN}
    check("trend" in succeed("info", "predictors", env=with_plugin).stdout, "info does not list an added predictor")
    shown = succeed("replay", trace, "--predictors", "paper,trend", env=with_plugin).stdout
    check("trend" in shown, shown)
    out = os.path.join(place, "trend")
    quick = ["--model", "mlp2", "--data", "synthetic:train=96,test=20", "--batch", "16", "--epochs", "2", "--threads", "1", "--quiet", "--no-checkpoint", "--trace-every", "1"]
    succeed("train", *quick, "--predictor", "trend", "--out", out, env={**with_plugin, "FLEXLAB_GNUPLOT_SECONDS": "0"})
    table = os.path.join(place, "trend.csv")
    succeed("replay", os.path.join(out, "trace-flex16+5-seed1.csv"), "--predictors", "trend", "--csv", table, env=with_plugin)
    for row in read_csv(table):
        if row["role"] != "weight" and row["tensor"] != "input":
            check(row["as_recorded"] == row["writes"], "trained and replayed otherwise:", row)
    expect_error(["replay", trace, "--predictors", "trend"], 2, "'trend'")
    succeed("train", *quick[:-3], "--format", "flex16+5:trend", "--predictor", "trend", "--force", "--out", out, env=with_plugin)
    expect_error(["report", out], 1, "the predictor 'trend' of 'flex16+5:trend' is unknown to this flexlab", "FLEXLAB_PREDICTORS")
    succeed("report", out, env=with_plugin)
    done = run("what-if", out)  # which reads the options that the network was trained with
    check(done.returncode == 1 and "'trend'" in done.stderr and "contains the option that is refused above" in done.stderr, done.stderr)
    expect_error(["info"], 1, "/nowhere.so", env={"FLEXLAB_PREDICTORS": "/nowhere.so"})
    done = succeed("info", status=1, env={"FLEXLAB_PREDICTORS": PLUGIN + ":" + PLUGIN})
    check("predictor 'trend' cannot be added: the name is already in use" in done.stderr, done.stderr)


with tempfile.TemporaryDirectory() as directory:
    made_traces(directory)
    trace = recorded(directory)
    bad_input(directory, trace)
    names(directory)
    plugins(directory, trace)
sys.exit(summary())
