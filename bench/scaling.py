#!/usr/bin/env python3
"""How a training scales with its ranks: docs/scaling-out.md.

scaling.py measure [--mpirun COMMAND] [--build DIR] [FILE]   times steps of 1, 2 and 4 ranks here, by bench_ranks
scaling.py check [FILE]                                      the model of a step against these times
scaling.py extrapolate [--faster X] [--overlap Y] [FILE]     the model at up to 1,024 ranks, on three interconnects
scaling.py simulate [--faster X] [FILE]                      message by message, for 1,024 ranks

FILE: bench/results/scaling.json. X: how many times as fast as measured a rank computes, such as the processors that it
has; Y: the part of the shards' time during which gradients may be under way.
"""

import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import scaling_model as model

ROOT = pathlib.Path(__file__).resolve().parent.parent
USUAL = ROOT / "bench/results/scaling.json"
WORKS = {"resnet20": (32, 40), "gpt": (2, 24), "vgg16": (8, 16)}  # images or sequences of a shard; steps
VARIANTS = {"flex16+5": 2, "fp32": 4}  # bytes of an element
RUNS = [(1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (4, 4)]  # ranks, shards
ROUNDS = 3
FEW = 0.1  # of the steps of a run: those that other programs delayed least


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    name = next((l.split(":")[1].strip() for l in lines if l.startswith("model name")), "unknown processor")
    return f"{name}, {len(os.sched_getaffinity(0))} processors"


# --- measuring -----------------------------------------------------------------------------------------------------


def bench_ranks(a, ranks, *arguments):
    build = pathlib.Path(a.build).resolve()
    start = [*shlex.split(a.mpirun), "-n", str(ranks)] if ranks > 1 else []
    command = [*start, str(build / "bench/bench_ranks"), "mpi" if ranks > 1 else "none", *map(str, arguments)]
    environment = {"FLEXLAB_MPI_LIBRARY": str(build / "libflexlab_mpi.so"), **os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"scaling: {shlex.join(command)}: status {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def low(values):
    """A low quantile: other programs only add to a time."""
    return sorted(values)[int(FEW * len(values))]


def summarise(raw):
    """Of all rounds of a run. Steps are those of rank 0; what is computed is that of the rank that takes longest."""
    by_rank = [[s for r in raw for s in r["steps"][k]] for k in range(raw[0]["ranks"])]
    computed = [[s["busy"] - s["inside"] for s in steps] for steps in by_rank]
    slowest = max(computed, key=statistics.median)
    middle = statistics.median(slowest)
    first = by_rank[0]
    return {
        "parameters": raw[0]["parameters"],
        "seconds": low([s["seconds"] for s in first]),
        "median_seconds": statistics.median(s["seconds"] for s in first),
        "computed": middle,
        "spread": [round(x / middle, 4) for x in sorted(slowest)],
        "inside": low([sum(c[2] for c in s["calls"]) for s in first]),
        "median_inside": statistics.median(sum(c[2] for c in s["calls"]) for s in first),
        "calls": [[kind, size] for kind, size, _ in first[-1]["calls"]],
        "sent": max(statistics.median(sum(c[1] for c in s["calls"]) for s in steps) for steps in by_rank),
    }


def measure(a):
    found = {"machine": machine(), "mpirun": mpirun_version(a), "load": os.getloadavg()[0], "moves": {}, "runs": []}
    for ranks in (2, 4):
        raw = [bench_ranks(a, ranks, "exchange") for _ in range(ROUNDS)]
        found["moves"][str(ranks)] = [
            [row[0][0], min(seconds for _, seconds in row)] for row in zip(*(r["moves"] for r in raw))
        ]
    for name, (size, steps) in WORKS.items():
        raw = {}
        for _ in range(ROUNDS):  # all runs in turn
            for variant in VARIANTS:
                for ranks, shards in RUNS:
                    one = bench_ranks(a, ranks, "step", name, variant, size * shards, shards, steps // ROUNDS)
                    raw.setdefault((variant, ranks, shards), []).append(one)
        for (variant, ranks, shards), rows in raw.items():
            row = {"network": name, "variant": variant, "ranks": ranks, "shards": shards, "shard": size}
            found["runs"].append(row | summarise(rows))
            print(f"{name} {variant}, {ranks} ranks, {shards} shards: {1e3 * found['runs'][-1]['seconds']:.1f} ms", file=sys.stderr)
    pathlib.Path(a.file).write_text(one_line_a_run(found))


def mpirun_version(a):
    done = subprocess.run([shlex.split(a.mpirun)[0], "--version"], capture_output=True, text=True)
    lines = [l.strip() for l in done.stdout.splitlines()]
    return " ".join(l for l in lines[:2] if "Report" not in l)


def one_line_a_run(found):
    rows = ",\n  ".join(json.dumps(r) for r in found["runs"])
    rest = "".join(f' "{k}": {json.dumps(v)},\n' for k, v in found.items() if k != "runs")
    return f'{{\n{rest} "runs": [\n  {rows}\n ]\n}}\n'


# --- the model, fed by them ----------------------------------------------------------------------------------------


def read(path):
    if not pathlib.Path(path).exists():
        sys.exit(f"scaling: there is no {path}: scaling.py measure makes it")
    return json.loads(pathlib.Path(path).read_text())


def pick(found, name, variant, ranks=None, shards=None):
    rows = [r for r in found["runs"] if (r["network"], r["variant"]) == (name, variant)]
    return [r for r in rows if ranks in (None, r["ranks"]) and shards in (None, r["shards"])]


def network_of(found, name, variant, width=None):
    """Times of shards and of what is done once from one rank with several numbers of shards; lengths of small vectors
    from what two ranks sent, of one shard each. width: of gradients, if not the variant's."""
    once, shard = model.line_through([(r["shards"], r["computed"]) for r in pick(found, name, variant, ranks=1)])
    sent = pick(found, name, variant, 2, 2)[0]
    told, marks = sent["calls"][0][1], sent["calls"][2][1]
    return model.Network(name, sent["parameters"], width or VARIANTS[variant], shard, max(once, 0.0), told, marks)


def by_measured_moves(found, network, ranks, own):
    return sum(
        model.interpolate(found["moves"][str(ranks)], model.message_bytes(network, e, ranks, own)) for e in model.EXCHANGES
    )


def check(a):
    found = read(a.file)
    processors = int(found["machine"].split()[-2])
    print(f"{found['machine']}, {found['mpirun']}, load {found['load']:.1f}\n")
    print("| network | gradients | ranks | shards | bytes a parameter and rank: model | measured | computing, ms: model | measured "
          "| step, ms: model | measured | ratio |\n|" + " --- |" * 11)
    for name in WORKS:
        for variant in VARIANTS:
            network = network_of(found, name, variant)
            for row in pick(found, name, variant):
                ranks, shards = row["ranks"], row["shards"]
                own = shards // ranks
                computed = network.once + network.shard * own
                turns = max(1.0, ranks / processors)
                exchanged = by_measured_moves(found, network, ranks, own) if ranks > 1 else 0.0
                seconds = computed * turns + exchanged
                sent = model.bytes_sent(network, ranks, own) / network.parameters
                print(f"| {name} | {variant} | {ranks} | {shards} | {sent:.2f} | {row['sent'] / row['parameters']:.2f} "
                      f"| {1e3 * computed:.1f} | {1e3 * row['computed']:.1f} | {1e3 * seconds:.1f} | {1e3 * row['seconds']:.1f} "
                      f"| {row['seconds'] / seconds:.2f} |")


def extrapolate(a):
    found = read(a.file)
    how = {"faster": a.faster, "overlap": a.overlap}
    print(f"One shard a rank; a rank computes {a.faster:g} times as fast as measured; overlap {a.overlap:g}.\n")
    print("| network | interconnect | efficiency at 16 ranks: int16 | fp32 | 128: int16 | fp32 | 1,024: int16 | fp32 "
          "| 1,024 with small vectors by a tree: int16 | fp32 |\n|" + " --- |" * 10)
    for name in WORKS:
        int16, fp32 = (network_of(found, name, "flex16+5", width) for width in (2, 4))
        for net in model.INTERCONNECTS:
            cells = [model.weak_efficiency(n, net, ranks, **how) for ranks in (16, 128, 1024) for n in (int16, fp32)]
            cells += [model.weak_efficiency(n, net, 1024, tree=True, **how) for n in (int16, fp32)]
            print(f"| {name} | {net.name} | " + " | ".join(f"{100 * c:.0f} %" for c in cells) + " |")
    print("\n| network | interconnect | a step of 1,024 ranks, ms | shards | once | small vectors | gradients, int16 | fp32 "
          "| of these, messages |\n|" + " --- |" * 9)
    for name in WORKS:
        int16, fp32 = (network_of(found, name, "flex16+5", width) for width in (2, 4))
        for net in model.INTERCONNECTS:
            step, other = (model.Step(n, net, 1024, 1024, **how) for n in (int16, fp32))
            parts = [step.seconds, step.shards, step.once, step.small, step.gradients, other.gradients, step.messages]
            print(f"| {name} | {net.name} | " + " | ".join(f"{1e3 * p:.2f}" for p in parts) + " |")


def simulate(a):
    found = read(a.file)
    print("| network | interconnect | 1,024 ranks, ms: formula | simulated | with the spread of measured shards |\n|" + " --- |" * 5)
    for name in WORKS:
        network = network_of(found, name, "flex16+5")
        spread = pick(found, name, "flex16+5", 1, 2)[0]["spread"]
        for net in model.INTERCONNECTS:
            formula = model.Step(network, net, 1024, 1024, faster=a.faster).seconds
            even = model.simulate(network, net, 1024, faster=a.faster)
            uneven = model.simulate(network, net, 1024, faster=a.faster, spread=spread)
            print(f"| {name} | {net.name} | {1e3 * formula:.2f} | {1e3 * even:.2f} | {1e3 * uneven:.2f} |", flush=True)


def main():
    p = argparse.ArgumentParser(prog="scaling.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["measure", "check", "extrapolate", "simulate"])
    p.add_argument("file", nargs="?", default=str(USUAL))
    p.add_argument("--mpirun", default="mpirun --oversubscribe", help="how ranks are started here")
    p.add_argument("--build", default=str(ROOT / "build/release"))
    p.add_argument("--faster", type=float, default=1.0)
    p.add_argument("--overlap", type=float, default=0.0)
    a = p.parse_intermixed_args()
    {"measure": measure, "check": check, "extrapolate": extrapolate, "simulate": simulate}[a.command](a)


if __name__ == "__main__":
    main()
