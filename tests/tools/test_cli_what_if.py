#!/usr/bin/env python3
"""what-if at the command line: errors of weights against exact arithmetic in Python, those of activations and gradients
against the telemetry of the same step, bits that are enough, sums over roles, files, bad input, the page.

    test_cli_what_if.py PATH-OF-FLEXLAB SOURCE"""
import csv
import functools
import json
import math
import os
import re
import shutil
import struct
import sys
import tempfile
from fractions import Fraction

sys.path.append(sys.path[0] + "/../support")
from browser import Browser, find
from cli_harness import check, documented, expect_error, read_lines, run, succeed, summary
from resumed import small_images

HOME = tempfile.TemporaryDirectory(prefix="flexlab-what-if-")
DATA = small_images(HOME.name, train=96, test=32, side=16)
ROLES = ["weight", "activation", "gradient", "weight gradient"]


def train(out, *more, model="resnet8", rate="0.1", fmt="fp32"):
    succeed("train", "--model", model, "--format", fmt, "--data", DATA, "--batch", "16", "--epochs", "2", "--lr", rate,
            "--schedule", "constant", "--quiet", "--out", out, *more, env={"PATH": "/nonexistent"})
    return out


def what_if(place, network, *more):
    out = tempfile.mkdtemp(dir=place)
    done = succeed("what-if", network, "--out", out, *more)
    with open(os.path.join(out, "what-if.json")) as file:
        found = json.load(file, parse_constant=lambda word: sys.exit(f"{word} is no JSON"))
    return found, done.stdout, out


def by_name(found):
    return {(t["tensor"], t["role"]): {**t, "formats": {e["format"]: e for e in t["formats"]}} for t in found["tensors"]}


def stored(path):
    """{name: floats} of a safetensors file of binary32."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header, start, values = json.loads(data[8:8 + length]), 8 + length, {}
    for name, t in header.items():
        if name != "__metadata__" and t["dtype"] == "F32":
            a, b = t["data_offsets"]
            values[name] = struct.unpack(f"<{(b - a) // 4}f", data[start + a:start + b])
    return values


# --- formats in exact arithmetic ---------------------------------------------------------------------------------------

def exponent(x):
    return math.frexp(x)[1] - 1


@functools.cache
def power(k):
    return Fraction(2) ** k


def rounded_to(x, k):
    """A number of binary32 as a multiple of 2^k, ties to even: ldexp is exact there."""
    return round(math.ldexp(x, -k))


def whole(x):
    """A multiple of 2^-600, as an integer: sums of integers are quicker than those of fractions."""
    numerator, denominator = x.as_integer_ratio()
    return numerator * (2 ** 600 // denominator)


def under_exponent(values, bits, fits=False):
    """Integers of so many bits times a power of two, that of the largest magnitude: (rounded, saturated). `fits`: of a
    magnitude that would be rounded beyond the largest integer, the next power."""
    largest = max(map(abs, values))
    k, top = exponent(largest) - bits + 2, 2 ** (bits - 1) - 1
    k += fits and rounded_to(largest, k) > top
    wanted = [rounded_to(x, k) for x in values]
    return [max(-top, min(top, m)) * power(k) for m in wanted], sum(abs(m) > top for m in wanted)


def as_float(values, exponent_bits, fraction_bits, top, least=None):
    """IEEE 754 numbers with subnormal ones; None beyond the largest."""
    least = 2 - 2 ** (exponent_bits - 1) if least is None else least
    rounded = []
    for x in values:
        k = max(exponent(x) if x else least, least) - fraction_bits
        y = rounded_to(x, k) * power(k)
        rounded.append(y if abs(y) <= top else None)
    return rounded, sum(y is None for y in rounded)


def element(x, name):
    """An element of `name` in exact arithmetic, saturated: (rounded, whether it did not fit). int8: multiples of 2^-6 up to 127."""
    if name == "int8":
        unit, top = Fraction(1, 64), Fraction(127, 64)
    else:
        unit, top = Fraction(2) ** (max(exponent(float(x)), -6) - 3), Fraction(448)
    y = round(x / unit) * unit
    return max(-top, min(top, y)), abs(y) > top


def in_blocks(values, name, block, shape, dim):
    """Values and saturated numbers under the scale rule floor: 2^(floor(log2(amax)) - E), in rows along the dimension `dim`."""
    rounded, saturated = [None] * len(values), 0
    step, size = math.prod(shape[dim + 1:]), shape[dim]
    for outer in range(math.prod(shape[:dim])):
        for inner in range(step):
            row = [outer * size * step + i * step + inner for i in range(size)]
            for at in range(0, size, block):
                places = row[at:at + block]
                largest = max(abs(values[i]) for i in places)
                scale = Fraction(2) ** (exponent(largest) - (0 if name == "int8" else 8)) if largest else Fraction(1)
                if name == "scaled" and Fraction(largest) / scale > 448:
                    scale *= 2
                for i in places:
                    y, beyond = element(Fraction(values[i]) / scale, name)
                    rounded[i], saturated = y * scale, saturated + beyond
    return rounded, saturated


def inputs(name, shape):
    """The dimension of a weight of ResNet-8 that a forward product sums over: filters end with it, matrices begin with it."""
    return 0 if name == "fc.weight" else len(shape) - 1


def in_format(values, name, weight, shape):
    if found := re.fullmatch(r"mx:(int8|e4m3fn)(?:/(\d+))?", name):
        return in_blocks(values, found[1], int(found[2] or 32), shape, inputs(weight, shape))
    if name == "tensor:e4m3fn":  # under the largest exponent at which the largest fits
        return in_blocks(values, "scaled", len(values), [len(values)], 0)
    if name == "e4m3fn":  # the code after 448 is NaN
        return as_float(values, 4, 3, 448, least=-6)
    if name == "fp16":
        return as_float(values, 5, 10, 65504)
    if name == "bf16":
        return as_float(values, 8, 7, (2 - Fraction(1, 128)) * 2 ** 127)
    return under_exponent(values, int(re.fullmatch(r"(?:flex|dfp)(\d+)(?:\+\d)?", name)[1]), fits=name.startswith("dfp"))


def relative(values, rounded):
    exact = [whole(x) for x in values]
    return math.sqrt(Fraction(sum((whole(y) - x) ** 2 for x, y in zip(exact, rounded)), sum(x ** 2 for x in exact)))


def near(a, b, bound=1e-8):
    return a is not None and b is not None and (a == b or abs(a - b) <= bound * max(abs(a), abs(b)))


def enough(values):
    for bits in range(2, 25):
        rounded, _ = under_exponent(values, bits)
        lost = sum(y == 0 and x != 0 for x, y in zip(values, rounded))
        error = relative(values, rounded)
        if (error == 0 or -20 * math.log10(error) >= 40) and lost <= 0.001 * sum(x != 0 for x in values):
            return bits
    return None


# --- tests -----------------------------------------------------------------------------------------------------------

FORMATS = ["flex16+5", "flex12+5", "flex8+5", "dfp8", "dfp5", "fp16", "bf16", "e4m3fn", "tensor:e4m3fn", "mx:int8", "mx:e4m3fn", "mx:int8/5", "mx:e4m3fn/3"]


def test_weights(place, folder):
    """All that is said of weights follows from the numbers in the file."""
    found, _, _ = what_if(place, folder, "--batches", "1", "--formats", ",".join(FORMATS))
    values, tensors, checked = stored(os.path.join(folder, "best.safetensors")), by_name(found), 0
    for (name, role), t in tensors.items():
        if role != "weight":
            continue
        x = values[name]
        check(t["elements"] == len(x) and t["zeros"] == x.count(0) and t["arrays"] == 1, name, t)
        check(t["largest"] == max(map(abs, x)), name, t["largest"])
        if not any(x):
            check(all(e["snr_db"] is None and e["relative"] is None for e in t["formats"].values()) and t["bits"] is None, name, t)
            continue
        sizes = [abs(v) for v in x if v]
        check(t["smallest"] == min(sizes) and near(t["octaves"], math.log2(max(sizes) / min(sizes))), name, t)
        check(near(t["rms"], math.sqrt(math.fsum(v * v for v in x) / len(x))), name, t["rms"])
        bins = {t["first_bin"] + i: n for i, n in enumerate(t["bins"]) if n}
        check(bins == {e: sum(exponent(v) == e for v in sizes) for e in set(map(exponent, sizes))}, name, bins)
        if len(x) > 3000:  # exact fractions are slow
            continue
        checked += 1
        bits = enough(x)
        check(t["bits"] == bits, name, "bits", t["bits"], bits)
        for fmt, e in t["formats"].items():
            y, saturated = in_format(x, fmt, name, [int(n) for n in re.findall(r"\d+", t["shape"])])
            error = relative(x, y)
            check(near(e["relative"], error), name, fmt, e["relative"], error)
            check(e["snr_db"] is None if e["relative"] == 0 else near(e["snr_db"], -20 * math.log10(error)), name, fmt, e)
            check((e["saturated"], e["flushed"], e["overflowed"]) == (saturated, sum(b == 0 and a != 0 for a, b in zip(x, y)), 0), name, fmt, e)
            worst = max(abs(Fraction(a) - b) for a, b in zip(x, y))
            check(abs(Fraction(e["worst_from"]) - Fraction(e["worst_to"])) == worst and e["worst_from"] in [*x, 0], name, fmt, e)
    check(checked >= 15, "weights with all figures:", checked)


def test_passes(place):
    """A training that moves nothing: its first step is that of what-if. Telemetry has counts, sizes and shadows of it."""
    folder = train(os.path.join(place, "still"), "--max-steps", "1", "--telemetry", "1",
                   "--shadow", "fp16,bf16,flex16+5:current,dfp12,dfp8", "--momentum", "0", "--weight-decay", "0", rate="1e-30")
    found, _, _ = what_if(place, folder, "--batches", "1", "--formats", "fp16,bf16,flex16+5,dfp12,dfp8")
    rows = {(r["tensor"], r["role"]): r for r in read_lines(folder, "telemetry-fp32-seed1.jsonl") if r["type"] == "tensor" and r["described"]}
    seen = {role: 0 for role in ROLES}
    for key, t in by_name(found).items():
        row = rows[key]
        check([t[k] for k in ("elements", "zeros", "infinite", "nan", "largest", "first_bin", "bins")] ==
              [row[k] for k in ("elements", "zeros", "infinite", "nan", "largest", "first_bin", "bins")], key, t, row)
        check(t["smallest"] == (row["smallest"] or 0), key)
        for shadow in row["shadows"]:
            e = t["formats"][shadow["name"].split(":")[0]]
            check(e["relative"] is None if shadow["error"] is None else near(e["relative"], shadow["error"]), key, e, shadow)
            check(e["flushed"] == shadow["flushed"] and e["saturated"] == shadow["saturated"], key, e, shadow)
        seen[key[1]] += 1
    check(seen == {"weight": 23, "activation": 20, "gradient": 22, "weight gradient": 23}, seen)


def test_shards(place, batchnorm):
    """The same in four shards: NAME.shards has the sums over NAME.shard0, ... of the telemetry of the same step."""
    folder = train(os.path.join(place, batchnorm), "--max-steps", "1", "--telemetry", "1", "--shadow", "fp16,bf16,dfp12", "--shards", "4", "--batchnorm", batchnorm,
                   "--momentum", "0", "--weight-decay", "0", rate="1e-30")
    found, printed, _ = what_if(place, folder, "--batches", "1", "--formats", "fp16,bf16,dfp12")
    rows, seen = {}, {role: 0 for role in ROLES}
    for r in read_lines(folder, "telemetry-fp32-seed1.jsonl"):
        if r["type"] == "tensor" and r["described"]:
            rows.setdefault((re.sub(r"[.]shard\d$", ".shards", r["tensor"]), r["role"]), []).append(r)
    for key, t in by_name(found).items():
        own = rows[key]
        check(len(own) == t["arrays"] == (4 if key[0].endswith(".shards") else 1), key, len(own), t["arrays"])
        for name in ("elements", "zeros", "infinite", "nan"):
            check(t[name] == sum(row[name] for row in own), key, name, t)
        check(t["largest"] == max(row["largest"] for row in own), key)
        for at, name in enumerate(("fp16", "bf16", "dfp12")):
            e, shadows = t["formats"][name], [row["shadows"][at] for row in own]
            check(e["flushed"] == sum(s["flushed"] for s in shadows) and e["saturated"] == sum(s["saturated"] for s in shadows), key, e, shadows)
            power = [row["l2"] ** 2 for row in own]
            error = math.sqrt(sum((s["error"] or 0) ** 2 * p for s, p in zip(shadows, power)) / sum(power)) if sum(power) else None
            check(e["relative"] is None if error is None else near(e["relative"], error), key, e, error)
        seen[key[1]] += 1
    check(seen == {"weight": 23, "activation": 20, "gradient": 22, "weight gradient": 46}, seen)
    check("1 batch of 16 images in 4 shards" in printed and "NAME.shards are the tensors" in printed, printed)
    loss = next(line for line in read_lines(folder) if line["type"] == "steps")["loss"]
    check(near(found["loss"], loss) and found["batch"] == 16 and found["shards"] == 4, found["loss"], loss)
    few = what_if(place, folder, "--batches", "1", "--tensors", "conv1.*shards")[0]
    check({t["tensor"] for t in few["tensors"]} == {"conv1.shards", "conv1.grad.shards", "conv1.weight.grad.shards"}, [t["tensor"] for t in few["tensors"]])
    expect_error(["what-if", folder, "--batch", "4"], 2, "--batch 4: the network of", "has 4 shards and is computed with its own batch, 16")
    check(what_if(place, folder, "--batch", "16", "--batches", "1", "--tensors", "fc*")[0]["batch"] == 16, "its own batch")


def test_sums(place, folder):
    """Roles are the sums of their tensors, CSV and JSON agree, threads change nothing, batches add up."""
    found, printed, out = what_if(place, folder, "--threads", "1", "--all")
    _, again, other = what_if(place, folder, "--threads", "2", "--all")
    check(printed == again, "printed by one and two threads")
    for name in ("what-if.csv", "what-if.json", "what-if.html"):
        with open(os.path.join(out, name), "rb") as a, open(os.path.join(other, name), "rb") as b:
            check(a.read() == b.read(), name, "by one and two threads")
    check([r["role"] for r in found["roles"]] == ROLES, found["roles"])
    for role in found["roles"]:
        own = [t for t in found["tensors"] if t["role"] == role["role"]]
        check((role["tensors"], role["elements"], role["zeros"], role["nonfinite"]) ==
              (len(own), *(sum(t[k] for t in own) for k in ("elements", "zeros")), sum(t["infinite"] + t["nan"] for t in own)), role)
        for i, e in enumerate(role["formats"]):
            effects = [(t["formats"][i], t["tensor"]) for t in own]
            snr = sorted((x["snr_db"], name) for x, name in effects if x["snr_db"] is not None)
            check(e["saturated"] == sum(x["saturated"] for x, _ in effects) and e["flushed"] == sum(x["flushed"] for x, _ in effects), e)
            check(e["worst_db"] == snr[0][0] and e["worst"] in [n for s, n in snr if s == snr[0][0]], e, snr[:2])
            if len(snr) == e["measured"]:
                check(e["median_db"] == snr[(len(snr) - 1) // 2][0], e, snr)
    for t in found["tensors"]:
        check(t["zeros"] + t["infinite"] + t["nan"] + sum(t["bins"]) == t["elements"], t["tensor"])
        check(t["arrays"] == (1 if t["role"] == "weight" else 4), t["tensor"], t["arrays"])
    with open(os.path.join(out, "what-if.csv"), newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    check(len(rows) == sum(len(t["formats"]) for t in found["tensors"]), len(rows))
    tensors = by_name(found)
    for row in rows:
        t = tensors[row["tensor"], row["role"]]
        e = t["formats"][row["format"]]
        check(all(int(row[k]) == e[k] for k in ("saturated", "flushed", "overflowed")), row)
        check(row["relative_error"] == "" if e["relative"] is None else near(float(row["relative_error"]), e["relative"]), row)
        check(row["bits"] == ("" if t["bits"] is None else str(t["bits"])), row)
    order = [min([e["snr_db"] for e in t["formats"] if e["snr_db"] is not None], default=math.inf) for t in found["tensors"]]
    check(order == sorted(order), "worst first")
    quick = ["--batches", "1", "--formats", "bf16,mx:int8"]
    names = [t["tensor"] for t in what_if(place, folder, "--sort", "name", *quick)[0]["tensors"]]
    check(names == sorted(names), "by name")
    roles = [ROLES.index(t["role"]) for t in what_if(place, folder, "--sort", "role", *quick)[0]["tensors"]]
    check(roles == sorted(roles), "by role")
    one = by_name(what_if(place, folder, *quick)[0])
    check(all(4 * one[k]["elements"] == t["elements"] for k, t in tensors.items() if k[1] != "weight"), "elements of four batches")
    small = by_name(what_if(place, folder, "--batch", "8", "--batches", "8", "--formats", "fp16,flex8+5")[0])
    check(all(small[k]["elements"] == (2 if k[1] == "weight gradient" else 1) * t["elements"] for k, t in tensors.items()), "eight batches of eight")
    check(all(small[k]["formats"] == {name: t["formats"][name] for name in ("fp16", "flex8+5")} for k, t in tensors.items() if k[1] == "weight"),
          "the same weights")
    few = what_if(place, folder, "--tensors", "conv1*,fc.bias")[0]
    check({t["tensor"] for t in few["tensors"]} == {n for n, _ in tensors if n.startswith("conv1") or n == "fc.bias"}, few)


def test_bits(place, folder):
    """The bits that are enough are the least with which dfpN has 40 dB and loses one number in a thousand. Where the largest
    would be rounded beyond the integers of one bit less, dfpN takes the next exponent, with an error twice as large, and `bits`
    stays at the exponent of the largest: there it may be that one bit less, and nowhere else; advice says why."""
    widths = range(4, 17)
    found = by_name(what_if(place, folder, "--formats", ",".join(f"dfp{n}" for n in widths), "--batches", "2")[0])
    short = less = 0
    for key, t in found.items():
        nonzero = sum(t["bins"])
        good = [n for n in widths if nonzero and (e := t["formats"][f"dfp{n}"]) and e["flushed"] <= 0.001 * nonzero and
                (e["relative"] == 0 or e["snr_db"] >= 40)]
        if good and good[0] > 4:
            fewer, largest = good[0] - 1, Fraction(t["largest"])
            if t["bits"] == fewer:
                less += 1
                check(rounded_to(largest, exponent(largest) - fewer + 2) > 2 ** (fewer - 1) - 1, key, fewer, "bits have room for", t["largest"])
                check("which would be rounded beyond them: it has the next exponent" in t["formats"][f"dfp{fewer}"]["advice"], key,
                      t["formats"][f"dfp{fewer}"])
            else:
                check(t["bits"] == good[0], key, t["bits"], good)
        elif good:
            check(t["bits"] <= 4, key, t["bits"], good)
        elif nonzero:
            check(t["bits"] is None or t["bits"] > 16, key, t["bits"])
        short += bool(good)
    check(short > 40 and less == 1, "tensors for which 16 bits are enough:", short, "and one bit less:", less)


def test_advice(place, folder):
    found, printed, _ = what_if(place, folder, "--formats", "flex8+5,bf16,fp16", "--batches", "2")
    text = [line for line in printed.split("What they lose most\n")[1].split("\n\n")[0].split("\n") if line]
    check(sum(line.startswith("  flex8+5: ") for line in text) == 3 and "  bf16: nothing: at least 40 dB" in printed, text)
    for t in by_name(found).values():
        for name, e in t["formats"].items():
            nonzero = sum(t["bins"])
            fine = e["relative"] is None or (e["relative"] <= 0.01 and e["flushed"] <= 0.001 * nonzero and not e["overflowed"])
            check((e["advice"] is None) == fine, t["tensor"], name, e)
            if name == "flex8+5" and not fine and e["flushed"] > 0.001 * nonzero and t["bits"] and t["bits"] > 8:
                share = 100 * e["flushed"] / nonzero
                want = (f"{share:.0f} %" if share >= 10 else f"{share:.2g} %") + f" become 0: one exponent for {math.ceil(t['octaves'])} octaves"
                check(e["advice"].startswith(want) and f"{t['bits']} bits are enough" in e["advice"], e["advice"], want)
    check("first batch" not in printed and "there is no history here" in printed, printed)


def test_blocks(place, folder):
    """Every kind of format; options with draws and signs give the same in every run; elements beyond the range; what helps."""
    blocks = ["mx:e2m1", "mx:e4m3fn", "mx:e4m3fn:rceil", "nvfp4", "nvfp4:stochastic:hadamard", "hbfp:int8/64", "mx:int8"]
    options = ["--formats", ",".join([*blocks, "e5m2", "e2m4fn", "e2m4fnsat", "int6"]), "--batches", "1"]
    found, printed, _ = what_if(place, folder, *options)
    check(what_if(place, folder, *options)[1] == printed and "the inputs of weights and of their gradients" in printed, printed)
    beyond = overflowed = 0
    for t in by_name(found).values():
        if not t["largest"]:
            continue
        f = t["formats"]
        for name in blocks:
            advice = f[name]["advice"] or ""
            check("octaves" not in advice and "range" not in advice and f[name]["overflowed"] == 0, t["tensor"], name, advice)
        floor = f["mx:e4m3fn"]
        if floor["snr_db"] is not None and floor["snr_db"] < 40 and floor["flushed"] <= 0.001 * sum(t["bins"]):
            check(("saturate" in floor["advice"]) == (floor["saturated"] > 0.02 * sum(t["bins"])), t["tensor"], floor)
        check(f["mx:e4m3fn:rceil"]["saturated"] == 0 and f["mx:int8"]["relative"] < f["mx:e2m1"]["relative"], t["tensor"], f)
        nan, most = f["e2m4fn"], f["e2m4fnsat"]  # at most 7.5; the next code is NaN
        check(nan["overflowed"] == nan["saturated"] == most["saturated"] and most["overflowed"] == 0, t["tensor"], nan, most)
        check((nan["overflowed"] > 0) == (t["largest"] > 7.625), t["tensor"], t["largest"], nan)
        if nan["overflowed"]:
            check(nan["relative"] is None and nan["snr_db"] is None and nan["worst_to"] is None, t["tensor"], nan)
            check("become NaN" in nan["advice"] or "becomes NaN" in nan["advice"], t["tensor"], nan)
            overflowed += 1
        beyond += f["int6"]["saturated"] > 0
        if f["int6"]["saturated"] and f["int6"]["snr_db"] < 40:
            check("beyond its range" in f["int6"]["advice"], t["tensor"], f["int6"])
    check(beyond > 3 and overflowed > 0, "tensors with numbers beyond +-1.94:", beyond, "and beyond 7.625:", overflowed)


def test_sources(place, folder):
    """Other formats, policies, texts, files, runs that are not over, folders of strangers."""
    best = os.path.join(folder, "best.safetensors")
    found, printed, _ = what_if(place, best, "--data", DATA, "--batches", "1")
    check(found["tensors"] == what_if(place, folder, "--batches", "1")[0]["tensors"] and f"{best}: resnet8 in fp32" in printed, printed)
    flex = train(os.path.join(place, "flex"), model="mlp2", rate="0.01", fmt="flex16+5")
    found, printed, _ = what_if(place, flex, "--formats", "flex16+5,flex8+5")
    check("The network computes in flex16+5" in printed, printed)
    exact = [t["tensor"] for t in found["tensors"] if t["role"] == "weight" and t["formats"][0]["relative"] not in (0, None)]
    check(not exact, "weights of flex16+5 in flex16+5 are exact:", exact)
    half = train(os.path.join(place, "half"), model="mlp2", rate="0.01", fmt="O2")
    found, printed, _ = what_if(place, half, "--formats", "fp16,flex8+5")
    check(found["loss_scale"] > 1 and "Gradients are those of the loss times" in printed, printed)
    expect_error(["what-if", half, "--batch", "4"], 2, "--batch 4: the network of", "has a policy and is computed with its own batch, 16")
    with open(os.path.join(place, "text"), "w") as file:
        file.write("the quick brown fox jumps over the lazy dog. " * 60)
    succeed("train", "--model", "gpt1x32", "--context", "16", "--data", f"text:{place}/text", "--format", "fp32", "--batch", "8",
            "--max-steps", "4", "--quiet", "--out", os.path.join(place, "gpt"), env={"PATH": "/nonexistent"})
    found, printed, _ = what_if(place, os.path.join(place, "gpt"), "--batches", "2")
    check("2 batches of 8 sequences" in printed and {t["role"] for t in found["tensors"]} == set(ROLES), printed)
    several = os.path.join(place, "several", "flexlab.resume")
    os.makedirs(os.path.join(several, "run-fp32-seed1"))
    os.makedirs(os.path.join(several, "run-flex16+5_ngraph-seed1"))
    shutil.copy(best, os.path.join(several, "run-fp32-seed1", "resume.safetensors"))
    shutil.copy(os.path.join(flex, "last.safetensors"), os.path.join(several, "run-flex16+5_ngraph-seed1", "resume.safetensors"))
    with open(os.path.join(several, "options"), "w") as file:
        file.write(f"compare --data={DATA}\n- -\n")
    check(what_if(place, os.path.dirname(several), "--batches", "1", "--formats", "bf16")[0]["computed_in"] == "fp32", "fp32 unless another is chosen")
    check(what_if(place, os.path.dirname(several), "--of", "flex16+5:ngraph")[0]["computed_in"] == "flex16+5", "--of")
    expect_error(["what-if", os.path.dirname(several), "--of", "fp16"], 2, "--of 'fp16': no run of this format")
    if os.geteuid() == 0:
        theirs = shutil.copytree(folder, os.path.join(place, "theirs"))
        os.chown(theirs, 12345, 12345)
        expect_error(["what-if", theirs], 2, "the folder is not yours", DATA, "expected --data")
        succeed("what-if", theirs, "--data", DATA, "--tensors", "fc*")


def test_bad_input(place, folder):
    best, empty = os.path.join(folder, "best.safetensors"), os.path.join(place, "empty")
    os.mkdir(empty)
    expect_error(["what-if"], 2, "expected the folder of a training's results")
    expect_error(["what-if", folder, best], 2, "unexpected argument")
    expect_error(["what-if", folder, "--formats", "fp16,flex8+5,flox"], 2, "'flox' at position 14", "unknown format")
    expect_error(["what-if", folder, "--formats", "flex40+5"], 2, "'flex40+5' at position 1", "4 to 16")
    expect_error(["what-if", folder, "--formats", "fp16,mx:e4m3fn:rcel"], 2, "'mx:e4m3fn:rcel' at position 6", "character 11 is 'rcel'", "rceil")
    expect_error(["what-if", folder, "--formats", "mx:int8,mx:e4m9"], 2, "'mx:e4m9' at position 9", "character 4 is 'e4m9'")
    expect_error(["what-if", folder, "--formats", "hbfp:int8/1"], 2, "'hbfp:int8/1' at position 1", "2 to 1024")
    expect_error(["what-if", folder, "--formats", "nvfp4:floor"], 2, "'nvfp4:floor' at position 1", "character 7 is 'floor'")
    expect_error(["what-if", folder, "--formats", "int17"], 2, "'int17' at position 1", "or a block format: mx:ELEMENT")
    expect_error(["what-if", folder, "--formats", "fp16,,bf16"], 2, "nothing at position 6")
    expect_error(["what-if", folder, "--formats", "fp16,fp16"], 2, "'fp16' at position 6 is there twice")
    expect_error(["what-if", folder, "--formats", ",".join(f"flex{n}+{e}" for n in range(4, 17) for e in (3, 4, 5))], 2, "more than 32 formats")
    expect_error(["what-if", os.path.join(place, "nowhere")], 1, "No such file or directory")
    expect_error(["what-if", empty], 1, "it has no network")
    expect_error(["what-if", best], 2, "expected --data SPEC beside a file")
    expect_error(["what-if", best, "--data", DATA, "--of", "fp32"], 2, "--of: only with a folder of results")
    expect_error(["what-if", folder, "--of", "bf16"], 2, "--of 'bf16'", "'fp32' alone")
    expect_error(["what-if", folder, "--tensors", "nothing*"], 2, "--tensors 'nothing*': matches none of the")
    expect_error(["what-if", folder, "--batches", "0"], 2, "--batches '0': expected a whole number from 1")
    expect_error(["what-if", folder, "--batches", "7"], 2, "--batches 7: the training part of the data has 6 of 16 images")
    expect_error(["what-if", folder, "--sort", "size"], 2, "--sort 'size'", "error, name, role")
    expect_error(["what-if", folder, "--data", small_images(empty, train=8, side=16)], 1,
                 "batch 16 of a set of 8 leaves no whole batch")
    expect_error(["what-if", os.path.join(folder, "metrics.jsonl"), "--data", DATA], 1, "metrics.jsonl")
    compared = os.path.join(place, "compared")
    succeed("compare", "--model", "mlp2", "--formats", "fp32,bf16", "--data", DATA, "--batch", "16", "--max-steps", "2", "--quiet", "--out", compared,
            env={"PATH": "/nonexistent"})
    expect_error(["what-if", compared], 1, "those of a comparison", "'flexlab train' with one format and one seed stores them")


def test_files(place, folder):
    """Nothing is replaced without --force; a file in the way of a folder, a link in that of a file."""
    out, table = os.path.join(place, "deep", "out"), os.path.join(place, "table.csv")
    short = ["what-if", folder, "--tensors", "fc*", "--batches", "1"]
    succeed(*short, "--out", out, "--csv", table)
    check(sorted(os.listdir(out)) == ["what-if.csv", "what-if.html", "what-if.json"], os.listdir(out))
    expect_error([*short, "--out", out], 1, "what-if.csv", "--force")
    expect_error([*short, "--csv", table], 1, "--csv", "--force")
    expect_error([*short, "--out", os.path.join(place, "new"), "--csv", os.path.join(place, "new", "what-if.csv")], 2, "--csv")
    check(not os.path.exists(os.path.join(place, "new")), "nothing is made for wrong usage")
    with open(table) as a, open(os.path.join(out, "what-if.csv")) as b:
        check(a.read() == b.read(), "the same table")
    succeed(*short, "--out", out, "--csv", table, "--force")
    expect_error([*short, "--out", table], 1, "it is no folder")
    os.remove(os.path.join(out, "what-if.html"))
    os.symlink(table, os.path.join(out, "what-if.html"))
    done = run(*short, "--out", out, "--force")
    check(done.returncode == 1 and os.path.islink(os.path.join(out, "what-if.html")), done.stderr)
    done = run(*short, "--csv", "/dev/full")
    check(done.returncode == 1, done.stderr)


def test_documents(place, folder, source):
    """docs/output.md lists every member of what-if.json."""
    found = what_if(place, folder, "--batches", "1", "--tensors", "fc*")[0]
    fields = set()

    def collect(value, path):
        for key, inner in value.items():
            whole = path + key
            items = [x for x in inner if isinstance(x, dict)] if isinstance(inner, list) else []
            for item in items:
                collect(item, whole + "[].")
            if not items:
                fields.add(whole + "[]" if isinstance(inner, list) else whole)
    collect(found, "")
    listed = set().union(*(set(f) for f in documented(source, "what-if.json").values()))
    check(fields == listed, "only written:", fields - listed, "only listed:", listed - fields)


def test_page(place, folder):
    """The tables without the script; sorted and filtered in a browser, which fetches nothing."""
    found, _, out = what_if(place, folder, "--batches", "1")
    path = os.path.join(out, "what-if.html")
    with open(path) as file:
        page = file.read()
    check(page.count("<tr data-role=") == len(found["tensors"]) and "default-src 'none'" in page, "a row for each tensor")
    for t in found["tensors"]:
        check(f">{t['tensor']}<" in page, t["tensor"])
    if not find():
        print("no browser: sorting and filtering are not tested")
        return
    browser = Browser(find())
    try:
        browser.window(1400, 900)
        browser.open(path)
        names = "[...document.querySelectorAll('#tensors-table tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].firstChild.textContent)"
        check(browser.value(names) == [t["tensor"] for t in found["tensors"]], "in the order of the file")
        heads = browser.value("[...document.querySelectorAll('#tensors-table thead th')].map(h => h.textContent)")
        press = "document.querySelectorAll('#tensors-table thead th')[%d].querySelector('button').click()"
        browser.value(press % heads.index("tensor"))
        check(sorted(browser.value(names)) == sorted(t["tensor"] for t in found["tensors"]), "sorting loses no row")
        browser.value(press % heads.index("fp16"))
        snr = [next(e["snr_db"] for e in t["formats"] if e["format"] == "fp16") for t in found["tensors"]]
        shown = browser.value(f"[...document.querySelectorAll('#tensors-table tbody tr')].map(r => r.cells[{heads.index('fp16')}].textContent)")
        check([s for s in shown if s not in ("-", "exact")] == [f"{x:.1f}" for x in sorted(x for x in snr if x is not None)], shown)
        browser.value(press % heads.index("bits"))
        bits = [t["bits"] for t in found["tensors"] if t["largest"] > 0]
        shown = browser.value(f"[...document.querySelectorAll('#tensors-table tbody tr')].map(r => r.cells[{heads.index('bits')}].textContent)")
        check(shown[:len(bits)] == [str(b) if b < 99 else ">24" for b in sorted((b or 99 for b in bits), reverse=True)], shown)
        browser.value("(() => { const s = document.querySelector('#controls select'); s.value = 'weight'; s.dispatchEvent(new Event('change')); })()")
        check(sorted(browser.value(names)) == sorted(t["tensor"] for t in found["tensors"] if t["role"] == "weight"), "weights alone")
        browser.value("(() => { const i = document.querySelector('#controls input'); i.value = 'fc'; i.dispatchEvent(new Event('input')); })()")
        check(sorted(browser.value(names)) == ["fc.bias", "fc.weight"], browser.value(names))
        check(not browser.errors and [r for r in browser.requests if not r.startswith("file:")] == [], browser.errors, browser.requests)
    finally:
        browser.close()


def test_report(place, folder):
    """report.html of a folder that has what-if.json shows the roles; a file of another kind is refused, and nothing changes."""
    own = shutil.copytree(folder, os.path.join(place, "own"))
    found, _, out = what_if(place, own, "--batches", "1")
    plain = {"PATH": "/nonexistent"}
    new = os.path.join(place, "drawn")
    succeed("report", own, "--out", new, "--quiet", env=plain)
    with open(os.path.join(new, "report.html")) as file:
        check('id="what-if"' not in file.read(), "no section without what-if")
    shutil.copy(os.path.join(out, "what-if.json"), own)
    new += "-again"
    succeed("report", own, "--out", new, "--quiet", env=plain)
    with open(os.path.join(new, "report.html")) as file:
        section = file.read().split('<h2 id="what-if"')[1].split("<h2")[0]
    for role in found["roles"]:
        cells = [f"{e['median_db']:.1f} ({e['worst_db']:.1f})" for e in role["formats"]]
        check(role["role"] in section and all(c in section for c in cells), role["role"], cells, section[:300])
    with open(os.path.join(own, "what-if.json"), "w") as file:
        file.write('{"schema":1,"network":"a","data":"b","roles":[{"role":"weight","formats":[{"format":"fp16"}]},{"role":"gradient","formats":[]}]}\n')
    done = succeed("report", own, "--out", os.path.join(place, "bad"), "--quiet", status=1, env=plain)
    check("what-if.json:1: is not what 'flexlab what-if' writes" in done.stderr, done.stderr)


def main():
    with HOME as place:
        folder = train(os.path.join(place, "r8"))
        test_weights(place, folder)
        test_passes(place)
        test_shards(place, "shard")
        test_shards(place, "global")
        test_sums(place, folder)
        test_bits(place, folder)
        test_advice(place, folder)
        test_blocks(place, folder)
        test_sources(place, folder)
        test_bad_input(place, folder)
        test_files(place, folder)
        test_documents(place, folder, sys.argv[2])
        test_page(place, folder)
        test_report(place, folder)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
