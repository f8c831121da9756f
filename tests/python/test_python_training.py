#!/usr/bin/env python3
"""Trainings and comparisons from Python, their results as arrays, predictors and quantize."""
import csv
import gc
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from checks import check, fl, optional, raises, run, skip

random = np.random.default_rng(11)
SMALL = {"model": "mlp2", "data": "synthetic:train=640,test=100", "epochs": 2, "threads": 1}
pandas = optional("pandas")


def results():
    lines = []
    r = fl.compare(["fp32", "flex16+5:ngraph"], **SMALL, telemetry="5", seeds=2, progress=lines.append)
    check(r.complete and len(r.formats) == 2 and "2" in repr(len(r.of("run"))) or len(r.of("run")) == 4, r)
    check(sum("epoch 2/2" in line for line in lines) == 4, lines)
    metrics = [json.loads(line) for line in open(r.folder / "metrics.jsonl")]
    for (format, seed), curve in r.curves.items():
        steps = [m for m in metrics if m["type"] == "steps" and (m["format"], m["seed"]) == (format, seed)]
        check(np.array_equal(curve["step"], [m["step"] for m in steps]) and np.array_equal(curve["loss"], [m["loss"] for m in steps]),
              f"the curve of {format}, seed {seed}")
    rows = list(csv.DictReader(open(r.folder / "summary.csv")))
    table = r.table.reset_index().to_dict("records") if pandas else r.table
    for ours, theirs in zip(table, rows):
        for name, text in theirs.items():
            ok = ours[name] == text or (text == "" and math.isnan(ours[name])) or float(text or "nan") == ours[name]
            check(ok, f"{name}: {ours[name]!r}, in the file {text!r}")
    for key, tensors in r.exponents.items():
        path = r.folder / f"trace-{key[0]}-seed{key[1]}.csv"
        rows = list(csv.DictReader(open(path)))
        check(sum(len(t["step"]) for t in tensors.values()) == len(rows), f"{path.name}: rows are missing")
        for row in rows[:: max(1, len(rows) // 50)]:
            t = tensors[row["tensor"]]
            at = list(t["step"]).index(int(row["step"]))
            check(t["e"][at] == int(row["e"]) and t["maximum"][at] == float(row["maximum"]), row)
    check(len(r.exponents) == 2, f"{list(r.exponents)}: the floats have no exponents")
    for name, (steps, binades, counts) in r.histograms("fp32", 2).items():
        check(counts.shape == (len(steps), len(binades)) and counts.min() >= 0, name)
        lines_of = [json.loads(line) for line in open(r.folder / "telemetry-fp32-seed2.jsonl")]
        described = [t for t in lines_of if t["type"] == "tensor" and t["tensor"] == name and t.get("bins")]
        check([t["elements"] - t["zeros"] - t["infinite"] - t["nan"] for t in described] == list(counts.sum(1)), name)
    raises(KeyError, r.histograms, "bf16", says="fp32")
    page = r.report()
    check("<iframe" in page._repr_html_() and page.path.exists(), page)
    check(len(r.epochs) == 8, r.epochs)
    again = fl.read(r.folder)
    check(again.lines == r.lines, "read() and the result differ")
    folder = r.folder
    del r, again
    gc.collect()
    check(not folder.exists(), "the temporary folder remains after its result")
    raises(fl.FileError, fl.read, "/nowhere", says="/nowhere")
    with tempfile.TemporaryDirectory() as other:
        pathlib.Path(other, "metrics.jsonl").write_text('{"type":"end"}\n{broken\n')
        raises(fl.DataError, fl.read, other, says="line 2")


def arrays():
    pictures, labels = random.integers(0, 256, (300, 8, 8), dtype=np.uint8), random.integers(0, 3, 300)
    with tempfile.TemporaryDirectory() as folder:
        r = fl.train("bf16", data=(pictures, labels, pictures[:60], labels[:60]), out=f"{folder}/r", model="mlp2", epochs=1, batch=32,
                     progress=False)
        check(r.complete and (r.folder / "report.html").exists() and r.folder == pathlib.Path(folder, "r"), r)
        raises(fl.Error, fl.train, "bf16", data=(pictures, labels, pictures, labels), out=f"{folder}/r", progress=False, says="--force")
    raises(TypeError, fl.train, data=(pictures.astype(float), labels), says="float64")
    raises(fl.ArgumentError, fl.train, data=(pictures,), says="1 arrays")
    raises(fl.ArgumentError, fl.train, "fp17", progress=False, says="fp17")
    raises(fl.ArgumentError, fl.train, epohcs=2, progress=False, says="epohcs")
    raises(fl.ArgumentError, fl.train, lr=-1, progress=False, says="-1")
    raises(fl.ArgumentError, fl.compare, data="cifar10:/nowhere", progress=False, says="/nowhere")


def switches():
    """False is the opposite of a switch, nothing where a switch is off unless it is given, and an error elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, "text")
        text.write_text("to be or not to be, that is the question. " * 200)
        small = {"model": "gpt1x32", "data": f"text:{text}", "context": 16, "batch": 8, "max_steps": 2, "epochs": 1, "progress": False}
        for given, augmented in (({}, True), ({"augment": True}, True), ({"augment": False}, False), ({"no_augment": True}, False),
                                 ({"no_augment": False}, True)):
            r = fl.train("fp32", **small, nesterov=False, force=False, checkpoint=False, trace=False, **given)
            check(r.lines[0]["augment"] is augmented, given, r.lines[0])
            check(not list(r.folder.glob("*.safetensors")) and not list(r.folder.glob("trace*")), list(r.folder.iterdir()))
    for wrong in ("epochs", "batchnorm", "epohcs"):
        raises(fl.ArgumentError, fl.compare, progress=False, **{wrong: False}, says=f"{wrong}=False: --{wrong} is no switch")


def stopping():
    """Ctrl-C keeps what there is; an exception of the function that shows progress is raised, and nothing runs on."""
    long = SMALL | {"model": "resnet8", "data": "synthetic:train=6400,test=100", "epochs": 50}
    began = time.monotonic()
    r = fl.train("fp32", **long, progress=lambda line: "epoch 1/" in line and os.kill(os.getpid(), signal.SIGINT))
    check(time.monotonic() - began < 60 and not r.complete and r.of("end")[-1]["stopped_by"] == "SIGINT", r.of("end"))
    check(len(r.curves[("fp32", 1)]["loss"]) > 0, "no step was kept")

    def fails(line):
        raise KeyError(line)
    raises(KeyError, fl.train, "fp32", **SMALL, progress=fails)


def quantizing():
    x = random.standard_normal((5, 7, 9)).astype(np.float32) * np.exp2(random.integers(-9, 9, (5, 7, 9)))
    before = x.copy()
    for format in ("fp16", "bf16", "flex16+5", "dfp16", "flex8+5", "e5m2", "fp32"):
        check(np.array_equal(fl.quantize(x, format), fl.tensor(x, format).numpy()), f"{format} and a tensor of it differ")
    for axis in (0, 1, 2, -1):
        got, counts = fl.quantize(x, "mx:int8", axis=axis, counts=True)
        moved = np.moveaxis(x, axis, -1).astype(np.float64)
        e = np.floor(np.log2(np.abs(moved).max(-1, keepdims=True)))  # at most 9 in a row: one block
        expected = np.ldexp(np.clip(np.rint(np.ldexp(moved, (6 - e).astype(int))), -127, 127), (e - 6).astype(int))
        check(np.array_equal(np.moveaxis(got, axis, -1), expected), f"mx:int8 along axis {axis}")
        check(counts.blocks == x.size // x.shape[axis] and counts.bits > 8, counts)
    check(np.array_equal(x, before), "quantize changed its argument")
    check(fl.quantize(1.3, "e4m3fn").shape == () and fl.quantize([], "fp16").shape == (0,), "shapes")
    check(np.array_equal(fl.quantize(x.T, "bf16"), fl.quantize(np.ascontiguousarray(x.T), "bf16")), "strides")
    halves = np.full(4000, 1 + 2.0**-9, np.float32)  # between two numbers of bf16
    drawn = fl.quantize(halves, "bf16", "stochastic", seed=5)
    check(set(np.unique(drawn)) == {1.0, 1.0078125} and 800 < (drawn > 1).sum() < 1200, f"{(drawn > 1).sum()} of 4000 above")
    check(np.array_equal(drawn, fl.quantize(halves, "bf16", "stochastic", seed=5)), "equal seeds")
    check(not np.array_equal(drawn, fl.quantize(halves, "bf16", "stochastic", seed=6)), "other seeds")
    within = x / 64  # the range of flex8+5
    for format in ("flex8+5", "flex16+5", "flex12+5", "dfp8", "dfp16"):  # the two neighbours under the exponent of a load
        unit, drawn = 2.0 ** -fl.tensor(within, format).exponent, fl.quantize(within, format, "stochastic", seed=5).astype("f8")
        check((np.abs(drawn - within) < unit).all() and not (drawn / unit % 1).any(), f"{format}: {drawn / unit}")
        below = set(fl.quantize([0.1] * 999, format, "stochastic").astype("f8") * 2.0 ** fl.tensor([0.1], format).exponent)
        check(len(below) == 2 and max(below) - min(below) == 1, f"{format}: 0.1 becomes {below} units")
    check(set(fl.quantize([0.1] * 999, "tensor:e4m3fn", "stochastic") * 1024) == {96, 104}, "tensor:e4m3fn")
    for format in ("fp16", "flex16+5", "e4m3fn", "tensor:e5m2"):
        given = [-0.0, 0.0, 1.0]
        check(fl.quantize(given, format, "stochastic").tobytes() == fl.quantize(given, format).tobytes(), f"{format}: zeros")
    for wrong in (np.nan, np.inf):
        for format in ("flex16+5", "dfp8", "tensor:e4m3fn"):
            raises(fl.ArgumentError, fl.quantize, [1, wrong], format, "stochastic", says=f"value 1 is {wrong}, {format} holds")
    raises(fl.ArgumentError, fl.quantize, x, "int8", "stochastic", says="'int8': an element by itself is rounded to nearest only")
    raises(fl.ArgumentError, fl.quantize, x, "tensor:e4m3fx", "stochastic", says="'tensor:e4m3fx'")
    raises(ValueError, fl.quantize, x, "fp16", "up", says="'up'")
    raises(fl.ArgumentError, fl.quantize, x, "mx:int9999")
    raises(ValueError, fl.quantize, x, "fp16", axis=3, says="3")


def predictors():
    @fl.predictor("test-largest")
    def largest(history):
        return 2 * max(history.maxima)

    @fl.predictor("test-fails")
    def fails(history):
        raise KeyError("of the test")
    check("test-largest" in fl.predictors(), fl.predictors())
    x = fl.tensor([1.0, -3.0], "flex16+5", predictor="test-largest")
    check(x.predictor == "test-largest", x.predictor)
    y = fl.empty((2,), "flex16+5")
    y.predictor = "test-largest"
    for factor in (1, 2, 0.5, 16, 1):
        fl.scale(x, factor, out=y)
        maxima = y.history["maxima"]
    fl.scale(x, 1, out=y)
    check(y.exponent == 14 - math.floor(math.log2(2 * max(maxima))), f"{y.exponent} after {maxima}")
    bad = fl.tensor([1.0, -3.0], "flex16+5", predictor="test-fails")
    raises(KeyError, fl.scale, bad, 2.0, out=bad, says="of the test")
    check(fl.add(x, x) is not None, "the next call is not disturbed")
    net = fl.nn.Network("flex16+5", batch=8, predictor="test-largest").model("mlp2")
    net.step(random.standard_normal((8, 32, 32, 3)).astype("f"), random.integers(0, 10, 8))
    check(net["fc1.weight"].predictor == "test-largest", net["fc1.weight"].history)
    for where in ({"format": "flex16+5:test-largest"}, {"predictor": "test-largest"}, {"policy": "* flex16+5:test-largest"}):
        raises(fl.UnsupportedError, fl.train, **where, says="loop of your own")
    raises(fl.UnsupportedError, fl.compare, ["fp32", "flex16+5:test-largest"], says="test-largest")
    # every tensor of a step
    seen = set()

    @fl.predictor("test-seen")
    def note(history):
        seen.add(history.role)
        return 2 * history.maxima[-1]
    net = fl.nn.Network("flex16+5", batch=8, momentum=0.9, predictor="test-seen")
    net.model("mlp2")
    images, labels = np.random.default_rng(2).standard_normal((8, 32, 32, 3)).astype("f4"), np.arange(8)
    for _ in range(3):
        net.step(images, labels, 0.01)
    check(seen == {"weight", "activation", "gradient", "weight gradient", "momentum"}, seen)
    raises(fl.ArgumentError, fl.predictor("paper"), lambda h: 1.0, says="paper")
    raises(fl.ArgumentError, fl.predictor("a name"), lambda h: 1.0, says="a name")
    raises(TypeError, fl.predictor, len)
    raises(fl.ArgumentError, setattr, x, "predictor", "none-such", says="none-such")


def replays():
    """The same exponents as in tensors that write these maxima."""
    maxima = (np.abs(random.standard_normal(200)) * np.exp2(random.integers(-3, 4, 200))).astype(np.float32).astype(float)
    maxima[[50, 51]] = 0
    for name in ("paper", "ngraph", "current", "amax", "amax-recent", "repeat", "per-class"):
        t = fl.tensor([0.0], "flex16+5", predictor=name)
        one, exponents, saturated = fl.tensor([1.0], "flex16+5"), [], []
        for maximum in maxima:
            fl.scale(one, maximum, out=t)
            exponents.append(t.exponent)
            saturated.append(t.statistics["last"]["saturated"] > 0)
        played = fl.replay(maxima, name)
        check(np.array_equal(played["e"], exponents), f"{name}: tensors have other exponents from write "
              f"{np.argmax(np.array(played['e']) != exponents)} on")
        check(np.array_equal(played["saturated"], saturated), f"{name}: saturated")
        check(played["wasted"].min() >= 0, f"{name}: wasted bits")
    raises(fl.ArgumentError, fl.replay, [1.0], "none-such", says="none-such")
    raises(ValueError, fl.replay, [1.0, -1.0])


run(results, arrays, switches, stopping, quantizing, predictors, replays)
