#!/usr/bin/env python3
"""The model of bench/scaling.py: its formula against a simulation of every message, which shares only the lengths of
messages; the limits of interconnects; docs/scaling-out.md, whose tables are those that bench/scaling.py prints
of the stored figures. usage: test_scaling.py SOURCE_DIR"""

import math
import pathlib
import random
import subprocess
import sys

source = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(source / "bench"))
import scaling
import scaling_model as model

draw = random.Random(20261125)
checks = failures = 0


def check(condition, *what):
    global checks, failures
    checks += 1
    if not condition:
        failures += 1
        print("FAILED:", *what)


def near(a, b, most=1e-9):
    return abs(a - b) <= most * max(abs(a), abs(b))


def random_case():
    network = model.Network("n", draw.randint(1, 10**7), draw.choice([2, 4]), 10 ** draw.uniform(-4, 1),
                            10 ** draw.uniform(-5, -1), draw.randint(16, 20000), draw.randint(4, 400),
                            draw.randint(40, 4000))
    return network, model.Interconnect("i", 10 ** draw.uniform(-7, -4), 10 ** draw.uniform(-7, -5),
                                       10 ** draw.uniform(8, 11))


def against_simulation():
    for _ in range(60):
        network, net = random_case()
        ranks, own = draw.choice([1, 2, 3, 5, 8, 17, 64]), draw.choice([1, 2, 5])
        overlap = draw.choice([0.0, 0.5, 1.0])
        step = model.Step(network, net, ranks, ranks * own, overlap)
        check(near(step.seconds, model.simulate(network, net, ranks, own, overlap=overlap)), network, net, ranks, own)
        factors = [draw.uniform(0.5, 2) for _ in range(9)]
        slow = model.simulate(network, net, ranks, own, spread=factors, seed=draw.random(), overlap=overlap)
        computed, exchanged = step.shards + step.once, step.small + step.gradients
        check(slow >= min(factors) * computed + exchanged * (1 - 1e-9), "too fast", network, net, ranks, own)
        check(slow <= max(factors) * computed + 2 * (step.small + step.under_way) + 1e-9, "too slow", network, net, ranks,
              own)


def limits():
    for _ in range(40):
        network, net = random_case()
        ranks = draw.choice([2, 16, 1024])
        step, one = model.Step(network, net, ranks, ranks), model.Step(network, net, 1, 1)
        check(one.small == one.gradients == one.messages == 0, "one rank exchanges something")
        check(0 < model.weak_efficiency(network, net, ranks) < 1, "efficiency", network, net)
        hidden, bare = (model.Step(network, net, ranks, ranks, overlap=o) for o in (1.0, 0.0))
        check(hidden.seconds <= step.seconds <= bare.seconds and near(bare.gradients, bare.under_way), "overlap")
        check(hidden.gradients >= max(bare.gradients - step.shards, bare.under_way / model.bucket_count(network, ranks))
              - 1e-12, "more is hidden than there is time for")
        sent = model.bytes_sent(network, ranks, 1)  # two bytes an element and direction, less its own part
        least = 2 * network.width * network.parameters * (ranks - 1) / ranks
        small = network.told + network.heads + network.marks
        check(near(sent - least, (ranks - 1) * small, 1e-6), "bytes", sent, least)
        check(step.under_way >= least / net.bandwidth, "gradients faster than the wire")
        tree = model.Step(network, net, ranks, ranks, tree=True)
        check(tree.gradients == step.gradients, "a tree of small vectors changes gradients")
        check(tree.small - step.small <= 3 * net.latency * math.log2(ranks), "a tree of small vectors")


def figures():
    check(near(model.line_through([(2, 7), (4, 11), (8, 19)])[1], 2), "slope")
    check(near(model.line_through([(2, 7), (4, 11), (8, 19)])[0], 3), "offset")
    table = [[8, 1.0], [32, 2.0], [128, 8.0]]
    for size, seconds in ((1, 1.0), (8, 1.0), (20, 1.5), (80, 5.0), (256, 16.0)):
        check(near(model.interpolate(table, size), seconds), "interpolation", size)
    found = scaling.read(scaling.USUAL)
    for row in found["runs"]:  # the engine counted what it sent
        network = scaling.network_of(found, row["network"], row["variant"])
        sent = model.bytes_sent(network, row["ranks"], row["shards"] // row["ranks"])
        check(abs(sent - row["sent"]) <= 0.02 * row["parameters"], "bytes sent", row["network"], sent, row["sent"])


def page():
    """Every row of a table that the program prints stands in the page."""
    text = (source / "docs/scaling-out.md").read_text()
    for words in (["check"], ["extrapolate", "--faster", "32"]):
        done = subprocess.run([sys.executable, source / "bench/scaling.py", *words], capture_output=True, text=True)
        check(done.returncode == 0, words, done.stderr)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and " --- " not in line]
        check(len(rows) > 5, words, "prints no table")
        for row in rows[1:]:
            check(row in text, words, "prints a row that docs/scaling-out.md lacks:", row)


against_simulation()
limits()
figures()
page()
print(f"{checks} checks, {failures} failures")
sys.exit(failures > 0 or not checks)
