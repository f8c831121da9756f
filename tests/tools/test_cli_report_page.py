#!/usr/bin/env python3
"""report.html without a browser: its data are those of the files, thinned out or not; it fetches nothing and runs no
script but its own, whatever names it contains; its paired statistics are Student's.

    test_cli_report_page.py PATH-OF-FLEXLAB SOURCE"""
import base64
import hashlib
import html
import json
import math
import os
import re
import shutil
import statistics
import sys
import tempfile

from cli_harness import TINY, check, expect_error, has_gnuplot, read_csv, read_lines, succeed, summary

FORMATS = "fp32,bf16,flex16+5,flex16+5:ngraph,dfp16"
EVIL = "</script><script>alert(1)</script><!--\\\"'&amp;\u2028"


def shown(name):
    """An invisible character that ends a line is shown by its code."""
    return name.replace("\u2028", "\\u2028")


def page_of(folder):
    with open(os.path.join(folder, "report.html"), encoding="utf-8") as file:
        return file.read()


def data_of(folder):
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page_of(folder), re.S)
    check(len(found) == 1, folder, "holds", len(found), "blocks of data")
    return json.loads(found[0])


def column(value, length):
    return value if isinstance(value, list) else [value] * length


def value(text):
    """A magnitude of a trace, to its last digit."""
    return "inf" if text == "inf" else float(text)


def traces_of(folder):
    """{(format, seed): {(tensor, role): [rows]}}"""
    found = {}
    for name in os.listdir(folder):
        match = re.fullmatch(r"trace-(.*)-seed(\d+)\.csv", name)
        for row in read_csv(folder, name) if match else []:
            found.setdefault(match.groups(), {}).setdefault((row["tensor"], row["role"]), []).append(row)
    return found


def check_traces(folder, data, group):
    """Checks every bucket against the records that it represents."""
    traces, seen = traces_of(folder), 0
    for run in data["traces"]["runs"]:
        rows_of = traces[data["series"][run["series"]]["name"].replace(":", "_"), data["seeds"][run["seed"]]]
        check(run["rows"] == group, "rows of a bucket", run["rows"], "want", group)
        lanes = {tuple(data["tensors"][int(i)]): lane for i, lane in run["lanes"].items()}
        check(lanes.keys() == rows_of.keys(), "tensors", lanes.keys() ^ rows_of.keys())
        for tensor, rows in rows_of.items():
            buckets = [rows[i:i + group] for i in range(0, len(rows), group)]
            n, lane = len(buckets), lanes[tensor]
            get = {name: column(values, n) for name, values in lane.items()}
            for i, bucket in enumerate(buckets):
                seen += 1
                exponents = [int(r[k]) for r in bucket for k in ("e", "maximum_e")]
                top = max(bucket, key=lambda r: float(r["maximum"]))
                ok = (run["steps"][i] == int(bucket[-1]["step"]) and get["e"][i] == int(top["maximum_e"])
                      and get.get("e_least", get["e"])[i] == min(exponents) and get.get("e_largest", get["e"])[i] == max(exponents)
                      and get["max"][i] == value(top["maximum"]) and get["room"][i] == value(top["predicted_maximum"])
                      and get.get("max_least", get["max"])[i] == value(min(bucket, key=lambda r: float(r["maximum"]))["maximum"])
                      and get["gamma"][i] == max(int(r["gamma"]) for r in bucket)
                      and all(get[k][i] == sum(int(r[k]) for r in bucket) for k in ("saturated", "flushed")))
                check(ok, run["series"], tensor, "bucket", i, {k: v[i] for k, v in get.items()}, bucket)
    return seen


def edit_config(folder, **fields):
    path = os.path.join(folder, "metrics.jsonl")
    with open(path) as file:
        lines = file.read().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), **fields})
    with open(path, "w") as file:
        file.write("\n".join(lines) + "\n")


def redraw(folder, out):
    """Redraws the page in a new folder, without gnuplot, whose figures are not tested here."""
    succeed("report", folder, "--out", out, "--quiet", env={"PATH": "/nonexistent"})
    return out


def test_measures(place, good):
    """The curves of the page and the panels of the printed figures have their titles from one list."""
    measures = data_of(good)["measures"]
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "page", "curves.js")) as file:
        known = re.search(r"const measures = {.*?\n(.*?)\n};", file.read(), re.S)[1]
    check(set(re.findall(r"^ +(\w+): {", known, re.M)) == set(measures) and all(measures.values()), measures, known)
    out = os.path.join(place, "printed")
    shutil.copytree(good, out)
    succeed("report", out, "--quiet", "--figures")
    with open(os.path.join(out, "figure-loss.svg")) as file:
        svg = file.read()
    check(all(measures[key] in svg for key in ("loss", "accuracy", "difference")), "figure-loss.svg lacks a title of", measures)


def test_data(place):
    out = os.path.join(place, "plain")
    succeed("compare", *TINY, "--formats", FORMATS, "--seeds", "2", "--out", out, "--quiet")
    data, lines = data_of(out), read_lines(out)
    names = FORMATS.split(",")
    check([s["name"] for s in data["series"]] == names and sorted(data["order"]) == [0, 1, 2, 3, 4] and data["order"][0] == 0, data["series"], data["order"])
    check(len({s["colour"] for s in data["series"]}) == len(names), "a colour is shared", data["series"])
    check(data["seeds"] == ["1", "2"] and len(data["runs"]) == 10, data["seeds"], len(data["runs"]))
    for run in data["runs"]:
        about = names[run["series"]], int(data["seeds"][run["seed"]])
        mine = [line for line in lines if (line.get("format"), line.get("seed")) == about]
        losses = [line["loss"] for line in mine if line["type"] == "steps"]
        epochs = [line for line in mine if line["type"] == "epoch"]
        check(len(losses) == len(run["loss"]) == 12 and losses == run["loss"], about, run["loss"], losses)
        check(run["steps"] == list(range(1, 13)) and run["epoch_steps"] == [6, 12] and run["diverged"] is None, about, run)
        check(all(100 * e["test_accuracy"] == a and e["test_loss"] == l
                  for e, a, l in zip(epochs, run["accuracy"], run["test_loss"])), about, epochs, run)
        check(run["last_loss"] == next(line["last_loss"] for line in mine if line["type"] == "run"), about, run["last_loss"])
    check(check_traces(out, data, 1) > 1000, "few buckets")
    check(len(data["traces"]["runs"]) == 6 and not data["traces"]["first_seed_alone"], "not all seeds are there")
    check(data["telemetry"] == {"first_seed_alone": False, "shadows": [], "runs": []}, data["telemetry"])
    return out


def test_thinned(place, good):
    """If there are more records than the page can show, every saturated element is still counted."""
    out = os.path.join(place, "thin")
    shutil.copytree(good, out)
    edit_config(out, steps=1596, trace_every=1)
    path = os.path.join(out, "trace-dfp16-seed1.csv")
    with open(path) as file:
        rows = file.read().splitlines()
    spot = rows[len(rows) // 2].split(",")
    spot[7] = "123456789"
    rows[len(rows) // 2] = ",".join(spot)
    with open(path, "w") as file:
        file.write("\n".join(rows) + "\n")
    data = data_of(redraw(out, out + " page"))
    lanes = len(data["tensors"]) * 6
    share = min(512, max(24, 60000 // lanes))
    check_traces(out, data, -(-1597 // share))
    total = sum(sum(column(lane["saturated"], 1)) for run in data["traces"]["runs"] for lane in run["lanes"].values())
    check(total >= 123456789, "the saturated elements of one row are lost:", total)


def test_safety(place, good):
    """The content security policy allows only the script of the page; names of all kinds remain text."""
    out = os.path.join(place, EVIL.replace("/", "_"))
    shutil.copytree(good, out)
    for name in os.listdir(out):
        if name.startswith("trace-"):
            with open(os.path.join(out, name)) as file:
                text = file.read()
            with open(os.path.join(out, name), "w") as file:
                file.write(text.replace(",fc1.weight,", f",{EVIL},"))
    edit_config(out, data={**read_lines(good)[0]["data"], "specification": EVIL}, version=EVIL)
    other = os.path.join(place, "</script>".replace("/", "_"))
    redraw(out, other)
    page, data = page_of(other), data_of(other)
    check([shown(EVIL), "weight"] in data["tensors"], data["tensors"][:9])
    check("alert(1)</script>" not in page and "<!--" not in page, "a name is markup")
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.S)
    check([a for a, _ in scripts] == [' type="application/json" id="data"', ""], [a for a, _ in scripts])
    digest = base64.b64encode(hashlib.sha256(scripts[1][1].encode()).digest()).decode()
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    check(policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'", policy, digest)
    check(page.index("Content-Security-Policy") < page.index("<script"), "the policy comes late")
    check(not re.search(r"<(?:link|img|iframe|object|embed|base|form)\b|@import|url\(|\bon\w+=\"", page), "the page holds what can fetch")
    fixed = len(page) - len(scripts[0][1])
    check(fixed < 200_000, "the page without its data has", fixed, "characters")


def t_two_sided(t, freedom):
    """P(|T| >= |t|) by Simpson's rule over the density."""
    norm = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    n, top = 4000, abs(t)
    inner = sum((1 if k in (0, n) else 4 if k % 2 else 2) * norm * (1 + (top * k / n) ** 2 / freedom) ** (-(freedom + 1) / 2) for k in range(n + 1)) * top / n / 3
    return 1 - 2 * inner


def test_paired(place):
    """Checks mean, deviation and p of each line against the stored results, for 2 to 6 seeds."""
    whole = os.path.join(place, "seeds")
    succeed("compare", *TINY, "--formats", "fp32,bf16,flex16+5", "--seeds", "6", "--no-trace", "--out", whole, "--quiet")
    results = {(line["format"], line["seed"]): line for line in read_lines(whole) if line["type"] == "run"}
    for count in (1, 2, 3, 4, 6):
        part, out = (os.path.join(place, f"{kind} {count}") for kind in ("part", "seeds"))
        os.mkdir(part)
        with open(os.path.join(part, "metrics.jsonl"), "w") as file:
            for line in read_lines(whole):
                edit = {"config": {"seeds": list(range(1, count + 1))}, "end": {"finished_runs": 3 * count}}.get(line["type"], {})
                if line.get("seed", 0) <= count:
                    file.write(json.dumps({**line, **edit}) + "\n")
        redraw(part, out)
        section = page_of(out).split("Differences to fp32, seed by seed")[1].split("</table>")[0]
        rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in section.split("<tr>")[2:]]
        check([r[:2] for r in rows] == [[f, m] for f in ("bf16", "flex16+5") for m in ("last loss", "test loss", "test acc., points")], rows)
        check(len(data_of(out)["critical"]) == count - 1, data_of(out)["critical"])
        for name, measure, pairs, mean, sd, interval, p in rows:
            key, unit = {"last loss": ("last_loss", 1), "test loss": ("test_loss", 1), "test acc., points": ("test_accuracy", 100)}[measure]
            values = [unit * (results[name, s][key] - results["fp32", s][key]) for s in range(1, count + 1)]
            want = statistics.fmean(values)
            check(pairs == str(count) and abs(float(mean) - want) <= 0.006 * 10 ** -(0 if unit == 100 else 3) + 1e-3 * abs(want), name, measure, mean, want)
            if count == 1 or statistics.stdev(values) == 0:
                check(p == "-", name, measure, p)
                continue
            error = statistics.stdev(values) / math.sqrt(count)
            check(abs(float(p.replace("&lt; ", "")) - t_two_sided(want / error, count - 1)) < 2e-4, name, measure, p, t_two_sided(want / error, count - 1))
            half = error * data_of(out)["critical"][count - 2]
            check(abs(t_two_sided(half / error, count - 1) - 0.05) < 1e-4, count, "the interval is not of 95 %")
            low, high = map(float, interval.split(" … "))
            check(abs(high - low - 2 * half) <= 0.02 * half + 0.02 * (unit == 100) + 2e-5, name, measure, interval, half)
    return whole


def verdict_of(folder):
    return html.unescape(re.search(r'<p id="verdict">(.*?)</p>', page_of(folder))[1])


def craft(whole, out, formats, seeds, results=None, planned=None):
    """Writes results with only those formats and seeds; results: {(format, seed): fields of its line 'run'}."""
    os.mkdir(out)
    with open(os.path.join(out, "metrics.jsonl"), "w") as file:
        for line in read_lines(whole):
            if line["type"] == "config":
                line |= {"formats": [f for f in line["formats"] if f["name"] in formats], "seeds": list(seeds)}
            elif line["type"] == "end":
                line["finished_runs"] = len(formats) * len(seeds)
            elif line.get("format") not in formats or line.get("seed", seeds[0]) not in seeds:
                continue
            elif line["type"] == "run":
                line |= (results or {}).get((line["format"], line["seed"]), {})
            file.write(json.dumps(line) + "\n")
    return verdict_of(redraw(out, out + " page"))


def test_verdict(place, whole):
    """Checks the verdict of the page for results of every kind; the numbers are computed here from the file."""
    results = {(line["format"], line["seed"]): line for line in read_lines(whole) if line["type"] == "run"}
    lost = {"last_loss": None, "last_loss_state": "nan", "diverged": True, "nonfinite_step": 2, "nonfinite_loss_state": "nan"}
    counter = iter(range(100))
    new = lambda *arguments: craft(whole, os.path.join(place, f"verdict {next(counter)}"), *arguments)
    flushed = {f: sum(results[f, s]["flushed"] for s in range(1, 7)) for f in ("fp32", "bf16", "flex16+5")}
    accuracy = lambda values: {(f, s): {"test_accuracy": v} for f, list_ in values.items() for s, v in enumerate(list_, 1)}

    said = new(["bf16"], [1])
    check(said.startswith(f"bf16 reached a test accuracy of {100 * results['bf16', 1]['test_accuracy']:.2f} %. Of the elements written, none saturated"), said)
    check("chance" not in said and "fp32" not in said and "±" not in said and "diverged" not in said, said)
    said = new(["bf16"], [1, 2, 3], accuracy({"bf16": [0.5, 0.6, 0.7]}))
    check("None of the 3 runs diverged. bf16 reached a test accuracy of 60.00 ± 10.00 % (mean ± standard deviation over 3 seeds). " in said, said)
    said = new(["bf16", "flex16+5"], [1], accuracy({"bf16": [0.5], "flex16+5": [0.25]}))
    check("2 formats reached a test accuracy from 25.00 % (flex16+5) to 50.00 % (bf16). With one seed, such differences may be chance. " in said, said)
    said = new(["fp32", "bf16", "flex16+5"], [1], accuracy({"fp32": [0.9], "bf16": [0.885], "flex16+5": [0.9]}))
    check("None of the 3 runs diverged. fp32 reached a test accuracy of 90.00 %. Against it: bf16 −1.50 points and flex16+5 ±0. With one seed, such differences may be chance. " in said, said)
    check("significant" not in said, said)
    saturated, elements = sum(results["flex16+5", s]["saturated"] for s in range(1, 2)), results["flex16+5", 1]["elements"]
    check((f"at most {saturated:,} of {elements:,} saturated (flex16+5)" if saturated else "none saturated") in said, said)

    # six seeds: one format lower by 1 to 6 points, one by chance higher or lower, tested as here
    noise = [0.02, -0.02, 0.01, -0.01, 0.03, -0.025]
    values = {"fp32": [0.8, 0.82, 0.81, 0.79, 0.8, 0.83]}
    values["bf16"] = [v - 0.01 * (i + 1) for i, v in enumerate(values["fp32"])]
    values["flex16+5"] = [v + n for v, n in zip(values["fp32"], noise)]
    said = new(["fp32", "bf16", "flex16+5"], range(1, 7), accuracy(values))
    below = [100 * (b - a) for a, b in zip(values["fp32"], values["bf16"])]
    p = t_two_sided(statistics.fmean(below) / statistics.stdev(below) * math.sqrt(6), 5)
    check(p < 0.05, p)
    check(f"fp32 reached a test accuracy of 80.83 ± {100 * statistics.stdev(values['fp32']):.2f} % (mean ± standard deviation over 6 seeds). "
          f"Against it, significant at the 5 % level by a paired test over the seeds: bf16 −3.50 points (p = {p:.4f}). "
          f"flex16+5 does not differ significantly from it (+{100 * statistics.fmean(noise):.2f} points). " in said, said, p)
    values["bf16"] = [v - n for v, n in zip(values["fp32"], noise[1:] + noise[:1])]
    said = new(["fp32", "bf16", "flex16+5"], range(1, 7), accuracy(values))
    far = max((-statistics.fmean(noise), "bf16"), (statistics.fmean(noise), "flex16+5"), key=lambda x: (abs(x[0]), x[1] == "bf16"))
    check(f"The 2 other formats do not differ significantly from it (at most {'−' if far[0] < 0 else '+'}{100 * abs(far[0]):.2f} points, {far[1]}; 5 % level, paired test over the seeds). " in said, said, far)
    values["bf16"], values["flex16+5"] = values["fp32"], values["fp32"]
    said = new(["fp32", "bf16", "flex16+5"], range(1, 7), accuracy(values))
    check("bf16 and flex16+5 reached the same with each seed. " in said and "significant" not in said, said)

    # a diverged run is not among the results
    said = new(["fp32", "bf16", "flex16+5"], [1, 2], {("bf16", 2): lost})
    check(said.startswith("bf16 (1 of 2 runs) diverged. fp32 reached") and "bf16" not in said.split("diverged. ")[1].split("Of the elements")[0], said)
    said = new(["fp32", "bf16", "flex16+5"], [1], {("fp32", 1): lost, **accuracy({"bf16": [0.5], "flex16+5": [0.25]})})
    check(said.startswith("fp32 diverged. 2 formats reached a test accuracy from 25.00 % (flex16+5) to 50.00 % (bf16). With one seed, such differences may be chance. "
                          "There is no result of fp32 to compare with. "), said)
    said = new(["fp32", "bf16"], [1, 2], {(f, s): lost for f in ("fp32", "bf16") for s in (1, 2)})
    both = new(["fp32", "bf16"], [1], {(f, 1): lost for f in ("fp32", "bf16")})
    check(both.startswith("Both runs diverged. ") and "All 2 runs" not in both, both)
    check(new(["fp32", "bf16"], [1]).startswith("Neither run diverged. "), "two runs")
    check(said.startswith("All 4 runs diverged. Of the elements written, none saturated") and "reached" not in said, said)
    check(flushed["flex16+5"] > 0 and re.search(r"at most [^(]* became zero \(flex16\+5\)", new(["fp32", "flex16+5"], [1, 2])), "flushed")
    said = new(["fp32", "flex16+5"], [1], {("flex16+5", 1): {"skipped": 3, "flushed": results["flex16+5", 1]["elements"] // 8}})
    check(said.endswith("and at most 12.5 % became zero (flex16+5); flex16+5 skipped 3 steps."), said)


def test_titles(place, good):
    """The title is short whatever the data are called; paths are only in the configuration at the end."""
    for specification, title in (("synthetic:train=96,test=40", "synthetic"), ("cifar10:/home/somebody/data", "cifar10"), ("idx:/srv/fashion/", "fashion"), ("images:.", "images"),
                                 ("text:/srv/books/tale.txt,unit=bytes", "tale.txt"), ("npy:/srv/a b/x.npy,/srv/y.npy", "x.npy"), ("idx:..", "idx")):
        out = os.path.join(place, "title")
        shutil.copytree(good, out)
        edit_config(out, data={**read_lines(good)[0]["data"], "specification": specification}, command_line="flexlab compare")
        page = page_of(redraw(out, out + " page"))
        check(f"<h1>mlp2 on {title}</h1>" in page and f"<title>mlp2 on {title} – flexlab</title>" in page, specification, page[page.index("<title"):][:90])
        before = page[:page.index('<h2 id="configuration"')]
        check(not re.search(r"/(home|srv)/", before), specification, "a path before the configuration")
        shutil.rmtree(out)
        shutil.rmtree(out + " page")


SHADOWS = {"fp32": ["fp16", "dfp16"], "flex16+5:ngraph": ["dfp16", "bf16:nomaster", "fp16"]}  # fp16 and dfp16 with different numbers


FLOAT = "fp16"  # the format of the second tensor, as a policy may have it
UNWRITTEN = (1, 2, 3, 4, 7)  # steps after which a weight has no record


def sampled_of(step, t):
    """The measured error of the second tensor, at every fourth step; once, everything that was measured became Inf."""
    if t != 1 or step % 4 != 1:
        return {"sampled": 0, "sampled_infinite": 0, "sampled_error": None, "sampled_size": None}
    return {"sampled": 3 + step, "sampled_infinite": 3 + step if step == 5 else step // 9, "sampled_error": None if step == 5 else 1e-5 * (2 + step % 5),
            "sampled_size": None if step == 5 else 0.25}


def telemetry_lines(steps, tensors, name, every=1):
    """Records as docs/output.md describes them, of made-up tensors, with counts that follow from step and tensor."""
    shadows = SHADOWS.get(name, [])
    yield {"type": "telemetry", "schema": 1, "variant": name, "predictor": None, "device": "cpu", "seed": 1, "every": every, "pattern": "*",
           "tensors": len(tensors), "shadows": shadows}
    for step in range(1, steps + 1):
        for t, (tensor, role) in enumerate(tensors):
            if role == "weight" and step in UNWRITTEN:
                continue
            bins = [] if t == 2 else [1 + (step + k * (t + 1)) % 7 for k in range(5 + (step + t) % 4)]
            nan, infinite, zeros = step % 3 if t == 1 else 0, t, 100 + step
            yield {"type": "tensor", "step": step, "tensor": tensor, "role": role, "format": FLOAT if t == 1 else name.split(":")[0], "e": 0, "elements": sum(bins) + zeros + infinite + nan,
                   "zeros": zeros, "infinite": infinite, "nan": nan, "mean": 0.5, "deviation": 1, "smallest": 1e-3, "largest": 2, "l1": 3, "l2": 4,
                   "first_bin": -20 + step % 5 if bins else 0, "bins": bins, "steps": 1, "writes": 1, "maximum": None, "maximum_state": "inf", "saturated": step * t,
                   "flushed": 7 * step, "nonfinite": nan, "saturated_writes": 1, "clamped_low": 0, "clamped_high": 0, "e_moves": 0, "e_least": -step % 4,
                   "e_largest": 4 + step % 3, "rounding": None if t == 2 else 1e-5 * (1 + step % 5), "update_ratio": step % 6 * 1e-3 if role == "weight" and step != 7 else None,
                   "update_moved": None, **(sampled_of(step, t) if name != "flex16+5:ngraph" else {}), "shadows": [{"name": shadow, "e": k, "error": None if t == 2 or step == 5 else 1e-3 * (k + 1) * (1 + step % 4), "saturated": step * k,
                                                      "flushed": t + step % (k + 2), "saturated_writes": 0, "e_moves": 0} for k, shadow in enumerate(shadows)]}
    yield {"type": "nonfinite", "step": 2, "tensor": tensors[0][0], "role": tensors[0][1], "nonfinite": 1, "elements": 3, "before": []}
    yield {"type": "end", "steps": steps, "rows": steps * len(tensors)}


def write_telemetry(folder, name, lines):
    with open(os.path.join(folder, f"telemetry-{name.replace(':', '_')}-seed1.jsonl"), "w") as file:
        file.writelines(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)


def digit(share):
    """Half octaves of a share, as one digit of base 36: z is all, 0 none."""
    level = 35 + round(2 * math.log2(share)) if share else 0
    return "0123456789abcdefghijklmnopqrstuvwxyz"[max(1, min(35, level)) if share else 0]


def close(a, b):
    """Equal to nine digits."""
    return a == b or (a is not None and b is not None and abs(a - b) <= 6e-9 * abs(b))


def test_telemetry(place, good):
    """Checks histograms, errors, updates and counts of each bucket against the lines, and counts of formats that have
    no trace."""
    tensors = [("fc1.weight", "weight"), (EVIL, "activation"), ("zero", "gradient")]
    for steps, planned, group in ((12, 12, 1), (12, 600, 4)):
        out = os.path.join(place, f"telemetry {planned}")
        shutil.copytree(good, out)
        edit_config(out, steps=planned)
        lines = {name: list(telemetry_lines(steps, tensors, name)) for name in ("fp32", "flex16+5:ngraph")}
        for name in lines:
            write_telemetry(out, name, lines[name])
        data = data_of(redraw(out, out + " page"))
        check([data["series"][run["series"]]["name"] for run in data["telemetry"]["runs"]] == ["fp32", "flex16+5:ngraph"], data["telemetry"]["runs"])
        names = [shadow["name"] for shadow in data["telemetry"]["shadows"]]
        check(names == ["fp16", "dfp16", "bf16:nomaster"], "shadow formats", names)
        colours = [s["colour"] for s in data["series"] + data["telemetry"]["shadows"]]
        check(len(set(colours)) == len(colours), "a colour is shared", colours)
        measured = 0
        for run in data["telemetry"]["runs"]:
            label = data["series"][run["series"]]["name"]
            check([names[i] for i in run["shadows"]] == SHADOWS[label], label, run["shadows"])
            check(run["rows"] == group and run["steps"] == list(range(group, 13, group)), run["rows"], run["steps"], group)
            for number, lane in run["lanes"].items():
                mine = [line for line in lines[label] if line["type"] == "tensor" and [shown(line["tensor"]), line["role"]] == data["tensors"][int(number)]]
                check((lane["format"], lane["shared"]) == (mine[0]["format"], mine[0]["format"].startswith("flex")), label, lane["format"], lane["shared"])
                check(len(mine) == (12 if mine[0]["role"] != "weight" else 12 - len(UNWRITTEN)), data["tensors"][int(number)])
                for i in range(12 // group):
                    part = [line for line in mine if i * group < line["step"] <= (i + 1) * group]
                    if not part:  # nulls, and no earlier or later record
                        get = {k: column(v, 12 // group)[i] for k, v in lane.items() if k not in ("shadows", "elements", "bins", "format", "shared")}
                        check(lane["bins"][i] == "" and set(get.values()) == {None}, get)
                        check(all(column(v, 12 // group)[i] is None for shadow in lane["shadows"] for v in shadow.values()), lane["shadows"])
                        continue
                    bins, elements = {}, sum(line["elements"] for line in part)
                    for line in part:
                        for k, n in enumerate(line["bins"]):
                            bins[line["first_bin"] + k] = bins.get(line["first_bin"] + k, 0) + n
                    want = "".join(digit(bins.get(b, 0) / elements) for b in range(min(bins), max(bins) + 1)) if bins else ""
                    get = {k: column(v, 12 // group)[i] for k, v in lane.items() if k != "shadows"}
                    check(get["bins"] == want and get["first"] == (min(bins) if bins else 0), get, want)
                    check(abs(get["zeros"] - sum(line["zeros"] for line in part) / elements) < 1e-4 and get["elements"] == mine[-1]["elements"], get, part)
                    check(all(get[k] == sum(line[k] for line in part) for k in ("saturated", "flushed", "nonfinite")), get, part)
                    check(get["writes"] == len(part) and get["looked"] == elements, get, part)
                    costs = [line["rounding"] * math.sqrt(line["elements"]) / line["l2"] for line in part if line["rounding"] is not None]
                    check(close(get["rounding"], max(costs, default=None)), get["rounding"], costs)
                    samples = [(line["sampled"] - line["sampled_infinite"], line["sampled_error"] * math.sqrt(line["elements"]) / line["l2"])
                               for line in part if line.get("sampled_error") is not None]
                    want = math.sqrt(sum(n * x * x for n, x in samples) / sum(n for n, _ in samples)) if samples else None
                    check(close(get["sampled"], want), label, "measured", get["sampled"], want)
                    measured += want is not None
                    moves = [line["update_ratio"] for line in part if line["update_ratio"] is not None]
                    check(close(get["update"], statistics.fmean(moves) if moves else None), get["update"], moves)
                    for k, shadow in enumerate(lane["shadows"]):
                        got, rows = {name: column(v, 12 // group)[i] for name, v in shadow.items()}, [line["shadows"][k] for line in part]
                        check(close(got["error"], max((r["error"] for r in rows if r["error"] is not None), default=None)), got, rows)
                        check(all(got[c] == sum(r[c] for r in rows) for c in ("saturated", "flushed")), got, rows)
                    check(get["e_least"] == min(line["e_least"] for line in part) and get["e_largest"] == max(line["e_largest"] for line in part), get)
        check(measured == 2, "rows with a measured error", measured)
    lines = lines["fp32"]
    write_telemetry(out, "fp32", [lines[0], json.dumps({**lines[1], "elements": "many"}).replace('"many"', "1e999") + "\n", lines[-1]])  # a number to no page
    check([lane["elements"] for lane in data_of(redraw(out, out + " infinite"))["telemetry"]["runs"][0]["lanes"].values()] == [None], "elements that are infinite")
    write_telemetry(out, "fp32", lines)
    for edit, words in ((lines[1:], ":1: a line 'telemetry' comes first"), (lines[:-1], f":{len(lines)}: expected a line 'end': the file is cut off"),
                        (lines[:1], ":2: expected a line 'end'"), ([], ":1: is empty"), (lines + lines[-1:], f":{len(lines) + 1}: follows the line 'end'"), ([{**lines[0], "schema": 2}], ":1: has another layout than 1"),
                        ([lines[0], lines[6], lines[1]], ":3: 'step' is below that of the line before"),
                        ([lines[0], "{\"type\":\n"], ":2: is not a JSON object"), ([lines[0], {**lines[1], "bins": [1, "x"]}], ":2: 'bins' contains"),
                        ([lines[0], {k: v for k, v in lines[1].items() if k != "flushed"}], ":2: is not a line 'tensor'"),
                        ([lines[0], {**lines[1], "step": 0}], ":2: 'step' or"), ([lines[0], lines[0]], ":2: a line 'telemetry' comes first"),
                        ([{**lines[0], "every": 0}], ":1: is not the first line"), ([{k: v for k, v in lines[0].items() if k != "shadows"}], ":1: is not the first line"),
                        ([{**lines[0], "shadows": ["fp16", "fp16"]}], ":1: 'shadows' contains something that is not a name, or a name twice"),
                        ([{**lines[0], "shadows": [16]}], ":1: 'shadows' contains"), ([lines[0], {**lines[1], "shadows": []}], ":2: 'shadows' are not those of the first line"),
                        ([lines[0], {**lines[1], "shadows": lines[1]["shadows"][::-1]}], ":2: 'shadows' are not those"),
                        ([lines[0], {**lines[1], "shadows": [{**x, "error": "0"} for x in lines[1]["shadows"]]}], ":2: a field of 'shadows'"),
                        ([lines[0], {**lines[1], "update_ratio": "0"}], ":2: is not a line 'tensor'"), ([lines[0], {**lines[1], "rounding": True}], ":2: is not a line 'tensor'"),
                        ([lines[0], {**lines[1], "sampled_error": "0"}], ":2: 'sampled', 'sampled_infinite' or 'sampled_error'"),
                        ([lines[0], {k: v for k, v in lines[1].items() if k != "sampled_infinite"}], ":2: 'sampled', 'sampled_infinite' or")):
        write_telemetry(out, "fp32", edit)
        before = page_of(out)
        expect_error(["report", out, "--quiet"], 1, os.path.join(out, "telemetry-fp32-seed1.jsonl") + words)
        check(page_of(out) == before, "bad telemetry changed the page")


def test_divergence(place):
    """A divergence is reported at the head of the page, in its title, in tables, in the data and in the exit status."""
    out = os.path.join(place, "wild")
    succeed("compare", *TINY, "--formats", "fp32,flex16+5", "--lr", "1000", "--seeds", "2", "--out", out, "--quiet", status=1)
    page, data = page_of(out), data_of(out)
    check("<title>4 DIVERGED: " in page and page.count('<p class="alarm" role="alert">DIVERGED: ') == 2, page[page.index("<title"):][:200])
    check(page.index('class="alarm"') < page.index('<h2 id="results">Results') and page.count('<tr class="diverged">') >= 4, page.count('<tr class="diverged">'))
    check(all(run["diverged"] for run in data["runs"]) and all(s["diverged"] == 2 for s in data["series"]), data["series"])


def main():
    if not has_gnuplot():
        print("skipped: no gnuplot here (Debian: apt-get install gnuplot-nox)")
        return 77
    with tempfile.TemporaryDirectory() as place:
        good = test_data(place)
        test_measures(place, good)
        test_thinned(place, good)
        test_safety(place, good)
        test_telemetry(place, good)
        test_divergence(place)
        test_titles(place, good)
        test_verdict(place, test_paired(place))
    return summary()


if __name__ == "__main__":
    sys.exit(main())
