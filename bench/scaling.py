#!/usr/bin/env python3
"""How a training scales with its ranks: docs/scaling-out.md.

scaling.py measure [--mpirun COMMAND] [--build DIR] [FILE]   times steps of 1, 2 and 4 ranks here, by bench_ranks
scaling.py check [FILE]                                      the model of a step against these times
scaling.py extrapolate [--faster X] [--overlap Y] [FILE]     the model at up to 1,024 ranks, on three interconnects
scaling.py simulate [--faster X] [FILE]                      message by message, for 1,024 ranks

FILE: bench/results/scaling.json. X: how many times as fast as measured a rank computes, such as the processors that it
has; Y: the part of a shard's time in which buckets become ready.
"""

import argparse
import json
import os
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import scaling_model as model

ROOT = pathlib.Path(__file__).resolve().parent.parent
USUAL = ROOT / "bench/results/scaling.json"
WORKS = {"resnet20": (32, 8), "gpt": (2, 5), "vgg16": (8, 4)}  # images or sequences of a shard; steps of a run
VARIANTS = {"flex16+5": 2, "fp32": 4}  # bytes of an element
RUNS = {  # ranks, shards
    "flex16+5": [(1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (4, 4)],
    "fp32": [(1, 2), (1, 8), (2, 2), (4, 4)],
}
ROUNDS = 2
TRIES, DISTURBED = 1, 0.3  # processors that other programs use during a run, beyond which it is run again
FEW = 0.1  # of the steps of a run: those that other programs delayed least


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    name = next((l.split(":")[1].strip() for l in lines if l.startswith("model name")), "unknown processor")
    return f"{name}, {len(os.sched_getaffinity(0))} processors"


# --- measuring -----------------------------------------------------------------------------------------------------


def processor_seconds():
    """Of all programs, and of those that this one has started."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split()[1:4]]
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ours = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return sum(ticks) / os.sysconf("SC_CLK_TCK"), ours


def bench_once(a, ranks, *arguments):
    build = pathlib.Path(a.build).resolve()
    start = [*shlex.split(a.mpirun), "-n", str(ranks)] if ranks > 1 else []
    command = [*start, str(build / "bench/bench_ranks"), "mpi" if ranks > 1 else "none", *map(str, arguments)]
    environment = {"FLEXLAB_MPI_LIBRARY": str(build / "libflexlab_mpi.so"), **os.environ, "OMP_NUM_THREADS": "1"}
    began, (all_before, ours_before) = time.monotonic(), processor_seconds()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    all_after, ours_after = processor_seconds()
    if done.returncode:
        sys.exit(f"scaling: {shlex.join(command)}: status {done.returncode}\n{done.stderr}")
    others = (all_after - all_before - (ours_after - ours_before)) / (time.monotonic() - began)
    return json.loads(done.stdout) | {"others": max(0.0, others)}


def bench_ranks(a, ranks, *arguments):
    """The run that other programs disturbed least."""
    best = None
    for _ in range(TRIES):
        one = bench_once(a, ranks, *arguments)
        best = one if best is None or one["others"] < best["others"] else best
        if best["others"] < DISTURBED:
            break
        time.sleep(1)
    return best


def low(values):
    """A low quantile: other programs only add to a time."""
    return sorted(values)[int(FEW * len(values))]


def summarise(raw):
    """Of all rounds of a run. What is computed: processor seconds of the rank that takes longest. Waited and overlapped:
    of the rank that waits least, which arrives last. Both are those of a machine without other programs; `seconds`, by
    the clock, are not."""
    by_rank = [[s for r in raw for s in r["steps"][k]] for k in range(raw[0]["ranks"])]
    slowest = max(([s["busy"] - s["inside"] for s in steps] for steps in by_rank), key=low)
    last = [min(steps, key=lambda s: s["waited"]) for steps in zip(*by_rank)]
    calls = by_rank[0][-1]["calls"]
    first = [next(i for i, c in enumerate(calls) if c[0] == channel) for channel, _ in calls]
    told = sum(size for channel, size in calls if not channel)
    parts = sum(size for i, (channel, size) in enumerate(calls) if channel and first[i] == i)
    return {
        "parameters": raw[0]["parameters"],
        "seconds": low([s["seconds"] for s in by_rank[0]]),
        "others": round(statistics.median(r["others"] for r in raw), 2),
        "computed": low(slowest),
        "spread": [round(x / statistics.median(slowest), 4) for x in sorted(slowest)],
        "waited": low([s["waited"] for s in last]),
        "overlapped": statistics.median(s["overlapped"] for s in last),
        "told": told,
        "first": parts,  # messages of each bucket: parts of gradients, or of several shards a rank their exponents
        "sent": max(statistics.median(sum(c[1] for c in s["calls"]) for s in steps) for steps in by_rank),
    }


def measure_network(a, name):
    size, steps = WORKS[name]
    raw = {}
    for _ in range(ROUNDS):  # all runs in turn
        for variant in VARIANTS:
            for ranks, shards in RUNS[variant]:
                one = bench_ranks(a, ranks, "step", name, variant, size * shards, shards, steps)
                raw.setdefault((variant, ranks, shards), []).append(one)
    return [
        {"network": name, "variant": variant, "ranks": ranks, "shards": shards, "shard": size} | summarise(rows)
        for (variant, ranks, shards), rows in raw.items()
    ]


def measure(a):
    found = {"machine": machine(), "mpirun": mpirun_version(a), "load": os.getloadavg()[0], "moves": {}, "runs": []}
    for ranks in (2, 4):
        raw = [bench_ranks(a, ranks, "exchange") for _ in range(ROUNDS)]
        found["moves"][str(ranks)] = [
            [row[0][0], min(seconds for _, seconds in row)] for row in zip(*(r["moves"] for r in raw))
        ]
    for name in WORKS:
        found["runs"] += measure_network(a, name)
        pathlib.Path(a.file).write_text(one_line_a_run(found))
        print(f"{name}: done", file=sys.stderr)


def mpirun_version(a):
    done = subprocess.run([shlex.split(a.mpirun)[0], "--version"], capture_output=True, text=True)
    lines = [l.strip() for l in done.stdout.splitlines() if l.strip()]
    return lines[0] if lines else a.mpirun


def one_line_a_run(found):
    rows = ",\n  ".join(json.dumps(r) for r in found["runs"])
    rest = "".join(f' "{k}": {json.dumps(v)},\n' for k, v in found.items() if k != "runs")
    return f'{{\n{rest} "runs": [\n  {rows}\n ]\n}}\n'


# --- the model, fed by them ----------------------------------------------------------------------------------------


def read(path):
    if not pathlib.Path(path).exists():
        sys.exit(f"scaling: there is no {path}: scaling.py measure makes it")
    return json.loads(pathlib.Path(path).read_text())


def networks(found):
    return [name for name in WORKS if any(r["network"] == name for r in found["runs"])]


def pick(found, name, variant, ranks=None, shards=None):
    rows = [r for r in found["runs"] if (r["network"], r["variant"]) == (name, variant)]
    return [r for r in rows if ranks in (None, r["ranks"]) and shards in (None, r["shards"])]


def network_of(found, name, variant, width=None):
    """Times of shards and of what is done once from one rank with several numbers of shards; lengths of small vectors
    from what two ranks sent, of one shard each. width: of gradients, if not the variant's."""
    once, shard = model.line_through([(r["shards"], r["computed"]) for r in pick(found, name, variant, ranks=1)])
    sent = pick(found, name, variant, 2, 2)[0]
    half = sent["parameters"] * VARIANTS[variant] / 2
    heads, marks = sent["first"] - half, sent["sent"] - sent["told"] - sent["first"] - half
    return model.Network(name, sent["parameters"], width or VARIANTS[variant], shard, max(once, 0.0), sent["told"],
                         heads, marks)


def by_measured_moves(found, network, ranks, own):
    """Seconds of all exchanges of a step, one after the other, and of those for which a rank waits."""
    if ranks == 1:
        return 0.0, 0.0
    moves, buckets = found["moves"][str(ranks)], model.bucket_count(network, ranks)
    sizes = [model.message_bytes(network, e, ranks, own) / buckets for e in model.of_a_bucket(own)]
    one = sum(model.interpolate(moves, size) for size in sizes)
    told = model.interpolate(moves, model.message_bytes(network, "told", ranks, own))
    return buckets * one + told, model.beyond(one, buckets, network.shard) + told


def table(*titles):
    print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles))


def row_of(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def ms(*seconds):
    return [f"{1e3 * s:.{1 if s >= 0.01 else 2}f}" for s in seconds]


def check(a):
    found = read(a.file)
    print(f"{found['machine']}, {found['mpirun']}, load {found['load']:.1f}\n")
    table("network", "variant", "ranks", "shards", "bytes a parameter: model", "measured", "computing, ms: model",
          "measured", "exchanges, ms", "waited, ms: model", "measured", "overlapped, ms", "computed and waited, measured "
          "over model", "by the clock, ms", "others")
    for name in networks(found):
        for variant in VARIANTS:
            network = network_of(found, name, variant)
            for row in pick(found, name, variant):
                ranks, shards = row["ranks"], row["shards"]
                own = shards // ranks
                computed = network.once + network.shard * own
                exchanged, waited = by_measured_moves(found, network, ranks, own)
                seconds, measured = computed + waited, row["computed"] + row["waited"]
                sent = model.bytes_sent(network, ranks, own) / network.parameters
                row_of(name, variant, ranks, shards, f"{sent:.2f}", f"{row['sent'] / row['parameters']:.2f}",
                       *ms(computed, row["computed"], exchanged, waited, row["waited"], row["overlapped"]),
                       f"{measured / seconds:.2f}",
                       *ms(row["seconds"]), row["others"])


def both(found, name):
    """With gradients of 2 and of 4 bytes, and all else alike."""
    return [network_of(found, name, "flex16+5", width) for width in (2, 4)]


def extrapolate(a):
    found = read(a.file)
    how = {"faster": a.faster, "overlap": a.overlap}
    print(f"One shard a rank; a rank computes {a.faster:g} times as fast as measured; overlap {a.overlap:g}.\n")
    table("network", "interconnect", "16 ranks: int16", "fp32", "128: int16", "fp32", "1,024: int16", "fp32",
          "1,024, small vectors by a tree: int16", "fp32")
    for name in networks(found):
        for net in model.INTERCONNECTS:
            cells = [(ranks, False, n) for ranks in (16, 128, 1024) for n in both(found, name)]
            cells += [(1024, True, n) for n in both(found, name)]
            row_of(name, net.name, *(f"{100 * model.weak_efficiency(n, net, ranks, tree=tree, **how):.0f} %"
                                     for ranks, tree, n in cells))
    print()
    table("network", "interconnect", "step of 1,024 ranks, ms", "shard", "once", "small vectors", "gradients, int16",
          "fp32", "messages")
    for name in networks(found):
        for net in model.INTERCONNECTS:
            step, other = (model.Step(n, net, 1024, 1024, **how) for n in both(found, name))
            parts = [step.shards, step.once, step.small, step.gradients, other.gradients, step.messages]
            row_of(name, net.name, *ms(step.seconds, *parts))


def simulate(a):
    found = read(a.file)
    table("network", "interconnect", "1,024 ranks, ms: formula", "simulated", "simulated, shards as uneven as measured")
    for name in networks(found):
        network = network_of(found, name, "flex16+5")
        spread = pick(found, name, "flex16+5", 1, 2)[0]["spread"]
        for net in model.INTERCONNECTS:
            formula = model.Step(network, net, 1024, 1024, faster=a.faster).seconds
            even = model.simulate(network, net, 1024, faster=a.faster)
            uneven = model.simulate(network, net, 1024, faster=a.faster, spread=spread)
            row_of(name, net.name, *ms(formula, even, uneven))


def main():
    raw = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="scaling.py", description=__doc__, formatter_class=raw)
    p.add_argument("command", choices=["measure", "check", "extrapolate", "simulate"])
    p.add_argument("file", nargs="?", default=str(USUAL))
    p.add_argument("--mpirun", default="mpirun --oversubscribe", help="how ranks are started here")
    p.add_argument("--build", default=str(ROOT / "build/release"))
    p.add_argument("--faster", type=float, default=1.0)
    p.add_argument("--overlap", type=float, default=model.OVERLAP)
    a = p.parse_intermixed_args()
    {"measure": measure, "check": check, "extrapolate": extrapolate, "simulate": simulate}[a.command](a)


if __name__ == "__main__":
    main()
