#!/usr/bin/env python3
"""Networks from Python: their bits are those of the program's trainings; state, hooks, telemetry, losses; misuse."""
import csv
import ctypes
import gc
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np

from checks import check, fl, raises, run, skip
from flexlab import nn
from flexlab._training import program

random = np.random.default_rng(7)


def images(n=32, side=8):
    return random.standard_normal((n, side, side, 3)).astype(np.float32), random.integers(0, 10, n)


def small(variant="flex16+5", batch=32, **settings):
    net = nn.Network(variant, batch=batch, **({"momentum": 0.9} | settings))
    x = net.input(8, 8, 3)
    x = net.batchnorm("bn1", net.conv2d("conv1", x, 8, 3, padding=1), relu=True)
    x = net.maxpool2d("pool1", x, 2, stride=2)
    x = net.dropout("drop", net.add("sum", x, net.relu("again", x)), 0.25)
    return net.compile(net.linear("fc", net.avgpool_global("mean", x), 10))


def in_shards():
    """A step takes the whole batch, its phases that of one shard, and batchnorm_global the moments of all."""
    x, y = images()
    weights = {}
    for name, settings in (("plain", {}), ("one", {"shards": 1, "batchnorm_global": True}), ("shard", {"shards": 4}),
                           ("phases", {"shards": 4}), ("global", {"shards": 4, "batchnorm_global": True})):
        net = small("fp32", **settings)
        check((net.batch, net.shards) == (32, settings.get("shards", 1)), f"{name}: batch {net.batch}, shards {net.shards}")
        if name == "phases":
            for first in range(0, 32, 8):
                net.forward(x[first:first + 8], y[first:first + 8])
                net.backward()
            net.update(0.1)
        else:
            net.step(x, y, rate=0.1)
            raises(fl.ShapeError, net.step, x[:8], y[:8], says="a batch of 8, expected 32") if name != "one" else None
        weights[name] = net.state_dict()

    def equal(a, b):
        return all(np.array_equal(weights[a][name], weights[b][name]) for name in weights[a])
    check(equal("plain", "one"), "one shard, batchnorm_global: other bits than without")
    check(equal("shard", "phases"), "a step in shards differs from its phases")
    check(not equal("shard", "global"), "batchnorm_global has the bits of shards by themselves")
    check(np.allclose(weights["plain"]["bn1.running_variance"], weights["global"]["bn1.running_variance"], rtol=1e-6) and
          not np.allclose(weights["plain"]["bn1.running_variance"], weights["shard"]["bn1.running_variance"], rtol=1e-6),
          "batchnorm_global: running variance is not that of the batch")
    raises(fl.ArgumentError, net.forward, x[:8], y[:8], says="batchnorm is global")
    check(net.predict(x[:8]).shape == (8, 10), "an evaluation in shards")
    raises(fl.ShapeError, net.predict, x[:9], says="a batch of 9, expected 1 to 8")
    raises(TypeError, small, "fp32", shards=4, batchnorm_global="global", says="batchnorm_global: 'global', expected True or False")
    raises(fl.ArgumentError, small, "fp32", shards=5, says="shards: 5 do not divide the batch of 32")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/global.safetensors"
        net.save(path)
        raises(fl.DataError, small("fp32", shards=4).load, path, says="its batchnorm is 'global', that of the network 'shard'")
        again = nn.Network.from_checkpoint(path)
        check(again.shards == 4, f"{again.shards} shards of the checkpoint, expected 4")
        other = small("fp32", shards=4, batchnorm_global=True)
        other.load(path)
        check(net.step(x, y) == other.step(x, y), "a step after loading a checkpoint in shards")
    text = nn.Network("flex16+5", batch=12, shards=3).text_model("gpt1x32", 8, 20)
    tokens = random.integers(0, 20, (12, 8)).astype(np.int32)
    raises(fl.ShapeError, text.step, tokens[:4], tokens[:4], says="a batch of 4, expected 12")
    text.step(tokens, tokens)


def as_the_program():
    """A loop of one's own has the weights of `flexlab train` with the same settings, bit for bit."""
    try:
        path = program()
    except fl.Error as error:
        return skip(str(error))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([path, "train", "--model", "mlp2", "--format", "flex16+5", "--data", "synthetic:train=320,test=64", "--epochs", "2",
                        "--batch", "32", "--schedule", "constant", "--lr", "0.02", "--weight-decay", "0", "--out", f"{folder}/r", "--quiet", "--trace-every", "3"],
                       check=True, capture_output=True)
        written = next(pathlib.Path(f"{folder}/r").rglob("last.safetensors"))
        data = fl.c.Handle(fl.c.data_open("synthetic:train=320,test=64", 0), fl.c.function("data_free"))
        mean, deviation = np.empty(3), np.empty(3)
        fl.c.data_channel_moments(mean, deviation, data)
        config = fl.c.data_loader_config(batch=32, seed=1, shuffle=True, drop_last=True, mean=mean, deviation=deviation)
        loader = fl.c.Handle(fl.c.data_loader_new(data, config), fl.c.function("data_loader_free"), data)
        net = nn.Network("flex16+5", batch=32, momentum=0.9).model("mlp2")
        trace = net.trace(every=3)
        for epoch in range(2):
            fl.c.data_loader_start(loader, epoch)
            while True:
                batch = fl.c.data_batch()
                fl.c.data_loader_next(batch, loader)
                if not batch.count:
                    break
                values = np.ctypeslib.as_array(batch.images, (batch.count, 32, 32, 3))
                net.step(values, np.ctypeslib.as_array(batch.labels, (batch.count,)), 0.02)
                trace.step()
        trace.finish()
        with open(next(pathlib.Path(f"{folder}/r").rglob("trace-*.csv")), newline="") as file:
            expected = list(csv.DictReader(file))
        check(len(trace.rows) == len(expected) > 100, f"a trace of {len(trace.rows)} rows, {len(expected)} of the program")
        for row, line in zip(trace, expected):
            made = {name: f"{value:.9g}" if isinstance(value, float) else str(value) for name, value in row.items()}
            check(made == line, f"a row of the trace is {made}, the program's {line}")
        check(not list(trace), "rows are iterated over once")
        other = nn.Network("flex16+5", batch=32, momentum=0.9).model("mlp2")
        other.load_weights(written)
        ours, theirs = net.state_dict(), other.state_dict()
        for name in ours:
            check(np.array_equal(ours[name], theirs[name]), f"{name}: Python's loop and the program differ")
        check(net.steps == 20, net.steps)


def phases():
    """forward, backward and update are a step; a step repeated from a state has the same bits; so has a checkpoint."""
    a, b = small(), small()
    x, labels = images()
    for i in range(3):
        result = a.step(x, labels, 0.1)
        b.forward(x, labels)
        b.backward()
        b.update(0.1)
        check(b.loss == result, f"step {i}: {b.loss} in phases, {result} at once")
    state = a.state()
    first = [a.step(x, labels, 0.1) for _ in range(2)]
    a.restore(state)
    check([a.step(x, labels, 0.1) for _ in range(2)] == first, "a restored state resumes with other losses")
    a.restore(state)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "now.safetensors"
        a.save(path, author="a test")
        c = small()
        c.load(path)
        check([c.step(x, labels, 0.1) for _ in range(2)] == first, "a checkpoint resumes with other losses")
        raises(fl.DataError, small(weight_decay=0.5).load, path)
        path.write_bytes(path.read_bytes()[:-7])
        raises(fl.DataError, small().load, path)
        raises(fl.FileError, small().load, path.with_name("none"))
    raises(fl.DataError, a.restore, b"\0" * len(state))
    raises((fl.ArgumentError, fl.DataError), a.restore, b"short")


def weights():
    a, b = small("fp32"), small("fp16", seed=2)
    x, labels = images()
    a.step(x, labels)
    state = a.state_dict()
    check(set(state) == set(a.weights()), "state_dict lacks a weight")
    b.load_state_dict(state)
    c = small("fp32", seed=3)
    c.load_state_dict(state)
    check(np.array_equal(a.predict(x), c.predict(x)), "equal weights predict otherwise")
    for name, values in b.state_dict().items():
        check(np.array_equal(values, state[name]), f"{name}: what updates of fp16 work on is fp32, and exact")
    for format in ("e4m3fn", "e6m9", "tensor:e4m3fn"):  # no wide part, whose codes alone are in files
        d = small(format, no_master=True)
        for name, values in d.state_dict().items():
            check("running" in name or np.array_equal(values, d[name].numpy("f8")), f"{format}: {name}")
    lacking = dict(state)
    del lacking["fc.bias"]
    raises(fl.DataError, b.load_state_dict, lacking, says="fc.bias")
    raises(fl.ShapeError, b.load_state_dict, state | {"fc.bias": np.zeros(9)}, says="(9,)")
    raises(fl.ArgumentError, b.load_state_dict, state | {"fc.bias": np.full(10, np.nan)}, says="finite")
    # PyTorch's names and layouts, made by an inverse permutation of this test's own.
    net = nn.Network("fp32", batch=32).model("resnet8")
    theirs, order = {}, {"out, height, width, in": (0, 3, 1, 2), "in, out": (1, 0)}
    for name, info in net.weights().items():
        values = random.uniform(0.5, 3, info["shape"])
        theirs[info["torch_name"]] = values.transpose(order.get(info["layout"], range(values.ndim)))
        check(theirs[info["torch_name"]].shape == info["torch_shape"], f"{name}: {info}")
    rest = net.load_torch(theirs | {"bn1.num_batches_tracked": np.array(3)})
    check(rest == ["bn1.num_batches_tracked"], rest)
    for name, values in net.state_dict().items():
        info = net.weights()[name]
        expected = theirs[info["torch_name"]].transpose(np.argsort(order.get(info["layout"], range(values.ndim))))
        kind = np.float64 if ".running_" in name else np.float32
        check(np.array_equal(values, expected.astype(kind)), f"{name} from PyTorch's layout")
    first = next(iter(theirs))
    raises(fl.ShapeError, net.load_torch, theirs | {first: theirs[first][:1]}, says=first)
    raises(fl.DataError, net.load_torch, {name: value for name, value in theirs.items() if name != first}, says=first)


def hooks():
    net = small()
    x, labels = images()
    seen, kept = [], []

    def look(tensor):
        values = tensor.numpy("float64")
        seen.append((tensor.name, tensor.role, float(np.abs(values).max())))
        check(tensor.shape == values.shape and (tensor.exponent is None or np.array_equal(
            np.ldexp(values, tensor.exponent), np.rint(np.ldexp(values, tensor.exponent)))), f"{tensor} is no multiple of 2^-e")
        kept.append(tensor)
    net.watch(look)
    net.step(x, labels)
    net.watch(None)
    names = [name for name, *_ in seen]
    check(len(names) == len(set(names)) == len(net.tensors()), f"{len(names)} of {len(net.tensors())} tensors were shown")
    check(names.index("conv1") < names.index("fc") < names.index("fc.weight.grad"), names)
    for t in net.tensors():
        if t.role == "activation":
            shown = next(maximum for name, _, maximum in seen if name == t.name)
            check(shown <= t.statistics["last"]["maximum"] * (1 + 2**-8) + 2.0 ** -14, f"{t.name}: {shown}, {t.statistics['last']}")
    raises(ValueError, kept[0].numpy, says="ended")
    before = net.steps

    def fails(tensor):
        raise KeyError(tensor.name)
    net.watch(fails)
    raises(KeyError, net.step, x, labels, says="input")
    check(net.steps == before + 1, "the step with the exception is complete")

    def again(tensor):
        net.step(x, labels)
    net.watch(again)
    raises(RuntimeError, net.step, x, labels, says="hook")

    def interrupt(tensor):
        raise KeyboardInterrupt
    net.watch(interrupt)
    raises(KeyboardInterrupt, net.step, x, labels)
    net.watch(None)
    net.step(x, labels)


def telemetry():
    net = small()
    x, labels = images()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/t.jsonl"
        t = net.telemetry(every=2, shadows=["fp16", "e4m3fn"], path=path)
        count = 0
        for _ in range(4):
            net.step(x, labels)
            t.step()
            count += sum(1 for _ in t)
        t.finish()
        count += sum(1 for _ in t)
        check(count == len(t.rows), f"{count} rows by iteration, {len(t.rows)} in all")
        rows = [line for line in map(json.loads, open(path)) if line["type"] == "tensor"]
        check(len(rows) == len(t.rows), f"{len(rows)} rows in the file, {len(t.rows)} in Python")
        for line, row in zip(rows, t.rows):
            same = all(line[name] == row[name] for name in ("step", "tensor", "role", "format", "maximum", "saturated", "flushed", "e"))
            check(same, line, row)
            if row["elements"] is not None:
                first, last = line["first_bin"], line["first_bin"] + len(line["bins"])
                bins = row["elements"]["bins"][first + 152:last + 152]
                check(list(bins) == line["bins"] and row["elements"]["bins"].sum() == sum(line["bins"]), f"bins of {line['tensor']}")
        check({s["name"] for s in t.rows[0]["shadows"]} == {"fp16", "e4m3fn"}, t.rows[0]["shadows"])
    raises(fl.ArgumentError, t.step, says="finish")
    raises(fl.ArgumentError, net.trace, 0, says="at least 1")
    raises(fl.ArgumentError, net.trace, 1, "nothing", says="nothing")
    raises(fl.ArgumentError, nn.Network("fp32", batch=2).model("mlp2").trace, says="shared exponent")
    later = net.trace(every=10, pattern="conv1.weight")
    for _ in range(3):
        net.step(x, labels)
        later.step()
    later.finish()
    raises(fl.ArgumentError, later.step, says="finish")
    check([(row["step"], row["tensor"]) for row in later] == [(5, "conv1.weight"), (7, "conv1.weight")], later.rows)
    try:
        import pandas
    except ImportError:
        return skip("telemetry as a DataFrame: pandas is not installed")
    check(isinstance(t.frame(), pandas.DataFrame) and len(t.frame()) == len(t.rows), "frame")
    check(list(later.frame()["step"]) == [5, 7], "a trace as a DataFrame")


def losses():
    net = nn.Network("fp32", batch=16, loss="squared_error")
    net.compile(net.linear("fc", net.linear("hidden", net.input(1, 1, 4), 16, relu=True), 3))
    x = random.standard_normal((16, 1, 1, 4)).astype(np.float32)
    targets = x.reshape(16, 4)[:, :3] * 2 - 1
    first, _ = net.step(x, targets=targets, rate=0.1)
    for _ in range(60):
        last, _ = net.step(x, targets=targets, rate=0.1)
    check(last < first / 4, f"the loss went from {first} to {last}")
    loss, _ = net.evaluate(x, targets=targets)
    check(abs(loss - np.mean((net.predict(x) - targets) ** 2)) < 1e-5, loss)
    text = nn.Network("fp32", batch=2, optimiser="adamw").text_model("gpt1x32", 16, 50)
    tokens = random.integers(0, 50, (2, 17))
    start = text.step(tokens[:, :-1].astype(np.int32), tokens[:, 1:], 0.01)
    for _ in range(30):
        end = text.step(tokens[:, :-1].astype(np.int32), tokens[:, 1:], 0.01)
    check(end[0] < start[0] - 1, f"{start} to {end}")
    raises(fl.ArgumentError, text.step, np.full((2, 16), 50, np.int32), tokens[:, 1:], says="50")
    part, labels = images(5)
    net = small()
    check(net.predict(part).shape == (5, 10) and len(net.evaluate(part, labels)[1]) == 5, "a part of a batch")


def misuse():
    net = small()
    x, labels = images()
    raises(TypeError, net.step, x.astype(np.int64).astype(complex), labels, says="complex")
    raises(fl.ShapeError, net.step, x[:, :7], labels, says="(32, 7, 8, 3)")
    raises(fl.ShapeError, net.step, x[:5], labels[:5], says="32")
    raises(fl.ShapeError, net.step, x, labels[:5], says="5 labels")
    raises(TypeError, net.step, x, labels.astype(float), says="float64")
    raises(fl.ArgumentError, net.step, x, labels + 10)
    raises(fl.ArgumentError, net.step, x, labels, -1)
    raises(fl.ArgumentError, net.backward)
    raises(KeyError, net.__getitem__, "nothing", says="nothing")
    raises(AttributeError, getattr, net, "convolution", says="conv2d")
    raises(TypeError, nn.Network, "fp32", momentun=0.9, says="momentun")
    raises(fl.ArgumentError, nn.Network, "fp17", says="fp17")
    raises(fl.ArgumentError, nn.Network, "fp32", batch=-1, says="-1")
    other = nn.Network("fp32")
    node = other.input(8, 8, 3)
    raises(TypeError, other.conv2d, "c", 0, 8, 3, says="a layer of this network")
    raises(TypeError, small().conv2d, "c", node, 8, 3)
    raises(TypeError, other.conv2d, "c", node, 8, says="kernel")
    raises(TypeError, other.conv2d, "c", node, 8, 3, strides=2, says="strides")
    raises(fl.Error, other.conv2d, "c", node, 8, 33)
    raises(fl.Error, nn.Network("fp32").model, "resnet21", says="resnet21")
    net.free()
    raises(ValueError, net.step, x, labels, says="freed")
    raises(ValueError, net.tensors, says="freed")
    net.free()


def lives():
    """Objects are freed in the order that C wants, whatever the order in which Python lets go of them."""
    x, labels = images()
    for how in range(6):
        net = small()
        t = net.telemetry(every=1)
        net.step(x, labels)
        t.step()
        weight = net["conv1.weight"]
        if how == 0:
            net.free()
            raises(ValueError, weight.numpy, says="ended")
            raises(ValueError, t.step)
        elif how == 1:
            del net
            check(weight.numpy().shape == (8, 3, 3, 3), "a tensor keeps its network")
        elif how == 2:
            net.itself, t.itself = t, net  # a cycle
        elif how == 3:
            del t
            net.step(x, labels)
        del weight
        net = t = None
        gc.collect()


def threads():
    """A second thread is refused while a step runs, or waits for nothing; other networks run beside it."""
    net, others = small(batch=32), [small(seed=i) for i in range(2)]
    x, labels = images()
    outcomes, began = [], threading.Event()

    def hold(tensor):
        if tensor.name == "conv1":
            began.set()
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join(20)

    def attempt():
        try:
            net.step(x, labels)
            outcomes.append("done")
        except RuntimeError as error:
            outcomes.append(str(error))
    net.watch(hold)
    net.step(x, labels)
    net.watch(None)
    check(began.is_set() and outcomes and "another thread" in outcomes[0], outcomes)
    expected = [[small(seed=i).step(x, labels) for _ in range(1)][0] for i in range(2)]
    got = {}
    running = [threading.Thread(target=lambda i=i: got.update({i: others[i].step(x, labels)})) for i in range(2)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    check([got.get(i) for i in range(2)] == expected, f"{got}, alone {expected}")


def every_layer():
    names = nn.layers()
    check(len(names) > 35, names)
    net = nn.Network("fp32")
    for name in names:
        check(getattr(net, name).__doc__, f"{name} has no docstring")
        check(name in dir(net), name)
    x = net.input(8, 8, 3)
    x = net.conv2d("c", x, 4, 0, window={"window": (3, 1), "padding": (1, 1, 0, 0)})
    x = net.avgpool2d("a", x, window=2, stride=2)
    net.compile(net.linear("f", x, 10))
    check(net["c"].shape[1:] == (8, 8, 4) and net["a"].shape[1:] == (4, 4, 4), net.tensors())
    check(net.roles()["c.product" if "c.product" in net.roles() else "c"]["operands"] == "fp32", net.roles())
    policy = nn.Network("fp32", batch=8, policy="variant fp32; if-any @product operands=mx:int8;").model("mlp2")
    check("mx:int8" in policy.policy and any(r.get("operands") == "mx:int8" for r in policy.roles().values()), policy.policy)
    check(policy.nonfinite() is None, "nothing is wrong before the first step")


run(as_the_program, in_shards, phases, weights, hooks, telemetry, losses, misuse, lives, threads, every_layer)
