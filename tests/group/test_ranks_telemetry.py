#!/usr/bin/env python3
"""Telemetry of ranks under mpirun: both files, and what a checkpoint holds of them, are those of one rank byte for byte,
with shadow formats, measured errors, patterns, skipped steps, a first NaN or Inf and normalisations over all shards; also
when ranks were killed and others in number went on. A step without rows sends nothing more. What is refused. usage:
test_ranks_telemetry.py TRAIN_RANKS [long] MPIRUN=ENGINE..."""
import functools
import json
import os
import re

import launch
from launch import check, position, read

(TRAIN,), LONG, ENGINES = launch.arguments(1)
train = functools.partial(launch.train, TRAIN)
SHADOWS = "shadows=fp16,flex12+5:ngraph,dfp16"
IMAGES, TEXT, LSTM = ["model=resnet8"], ["model=gpt1x32"], ["model=lstm-char"]
SCALED = ["variant=fp16", "optimiser=adamw", "scale=dynamic:init=1048576"]
NONFINITE = ["variant=fp16", "rate=100000"]
NONFINITE_SUMS = ["variant=fp16", "scale=524288"]  # of gradients that are finite


def rows_of(folder):
    return [json.loads(line) for line in read(folder, "telemetry.jsonl").splitlines()]


def works():
    """Lists of keys, with the numbers of ranks."""
    cases = [(IMAGES + ["variant=flex16+5", SHADOWS], [2, 3]), (IMAGES + SCALED + [SHADOWS], [3]),
             (TEXT + ["variant=dfp16", "optimiser=lamb", "clip=1", "pattern=*.shard?,*.weight,*.grad.shard1?"], [2]),
             (IMAGES + ["variant=flex16+5", "batchnorm=global"], [3]), (IMAGES + NONFINITE, [2]), (IMAGES + NONFINITE_SUMS, [3])]
    if not LONG:
        return cases
    variants = ["fp32", "fp16", "bf16", "flex16+5", "dfp16", "fp16-sr", "bf16-sr", "flex16+5-sr", "flex16+5-paper"]
    for number, variant in enumerate(variants):
        for model in (IMAGES, TEXT, LSTM):
            optimiser = [None, "adam", "adamw", "rmsprop", "adagrad", "lamb"][(number + len(model[0])) % 6]
            cases.append((model + [f"variant={variant}", SHADOWS] + ([f"optimiser={optimiser}"] if optimiser else [])
                          + (["scale=dynamic"] if number % 2 else []), []))
    cases += [(IMAGES + [f"variant={variant}", "batchnorm=global", SHADOWS], []) for variant in ("dfp16", "fp16", "bf16", "fp32")]
    cases += [(IMAGES + NONFINITE + ["batchnorm=global"], []),
              (IMAGES + ["variant=fp32", "policy=O1", "scale=dynamic", SHADOWS], []),
              (IMAGES + ["variant=fp32", "policy=mxint8", SHADOWS], []), (IMAGES + ["variant=flex8+5", SHADOWS], [])]
    return [(keys, [2, 3, 4, 6]) for keys, _ in cases]


def same(a, b, *what):
    for name in ("telemetry.jsonl", "telemetry.csv", "last.safetensors"):
        check(read(a, name) == read(b, name), *what, name, "differs")
    check(position(a) == position(b), *what, "the checkpoint differs")


def covers(keys, folder):
    """That the files of one rank have what the comparison is about."""
    rows = [row for row in rows_of(folder) if row["type"] == "tensor"]
    names = {row["tensor"] for row in rows}
    check(sorted({row["step"] for row in rows}) == [1, 3, 5, 6], keys, sorted({row["step"] for row in rows}))
    if not any(key.startswith("pattern") for key in keys):
        check(all(any(name.endswith(f".shard{s}") for name in names) for s in range(12)), keys, "shards are missing")
        check(sum(row["sampled"] > 0 for row in rows) > 20 or keys[0] == LSTM[0], keys, "no measured errors")
    check(any(row["update_ratio"] for row in rows if not row["tensor"].count("shard")), keys, "no updates")
    if SHADOWS in keys:
        check(any(shadow["e_moves"] for row in rows for shadow in row["shadows"]), keys, "no shadow moves")
    return rows


def same_files(engine, place):
    def one(case):
        number, (keys, counts) = case
        folders = {}
        for ranks in [1, *counts]:
            folders[ranks] = os.path.join(place, f"{number}-{ranks}")
            status, out, err = train(engine, ranks, folders[ranks], *keys, "steps=6", "telemetry=2")
            check(status == 0, keys, ranks, status, err)
            if status == 0 and ranks > 1:
                same(folders[1], folders[ranks], *keys, ranks)
        covers(keys, folders[1])
        bad = [row for row in rows_of(folders[1]) if row["type"] == "nonfinite"]
        if keys[1:3] in (NONFINITE, NONFINITE_SUMS):
            check(len(bad) == 1 and len(bad[0]["before"]) == 20, keys, "nonfinite:", bad)
            check("shard" in bad[0]["tensor"] if keys[1:3] == NONFINITE else bad[0]["tensor"].endswith(".grad"), bad)
        if keys[1:4] == SCALED:
            skipped = [line.split()[3] for line in read(folders[1], "losses.txt").decode().splitlines()]
            check("1" in skipped, "no step was skipped", skipped)
    launch.each(one, enumerate(works()), most=3)
    mixed = os.path.join(place, "mixed")
    status, out, err = train(engine, 3, mixed, *works()[0][0], "steps=6", "telemetry=2", isa=["portable", "avx2", "avx512"])
    check(status == 0, "ranks of different instruction sets:", err)
    same(os.path.join(place, "0-1"), mixed, "different instruction sets")


def goes_on(engine, place):
    """Ranks of a number that are killed, then of another."""
    keys = [*IMAGES, *SCALED, SHADOWS, "steps=9", "telemetry=4", "keep=1"]
    whole = os.path.join(place, "whole")
    status, out, err = train(engine, 1, whole, *keys)
    check(status == 0, err)
    for first, second, then in [(2, 3, 6), (3, 2, 1), (1, 4, 2), (6, 1, 3)] if LONG else [(2, 3, 1)]:
        folder = os.path.join(place, f"pieces{first}")
        for ranks, more in ((first, ["kill=0:3"]), (second, ["kill=0:6"]), (then, [])):
            found = os.path.join(folder, "resume.safetensors")
            more = more + ([f"resume={found}"] if os.path.exists(found) else [])
            status, out, err = train(engine, ranks, folder, *keys, *more, FLEXLAB_GROUP_TIMEOUT="5")
            check((status == 0) == (ranks == then) or ranks == second == then, ranks, more, status, err)
        same(whole, folder, "resumed by", first, second, then)


def bytes_sent(engine, place):
    """A step without rows sends what it sends without telemetry; one with rows some hundred bytes a tensor more."""
    def of_steps(*more):
        received = []
        for steps in (4, 8):  # the difference of two trainings is that of steps alone
            status, out, err = train(engine, 2, os.path.join(place, "sent"), "variant=flex16+5", "shards=2", "batch=24",
                                     "trace=no", f"steps={steps}", *more)
            found = re.search(r"received (\d+) .* exchanges (\d+)", out)
            check(status == 0 and found, more, err)
            received.append([int(number) for number in found.groups()] if found else [0, 0])
        return [(more - less) / 4 for less, more in zip(*received)]
    (without, exchanges), (seldom, as_many) = of_steps(), of_steps("telemetry=100")
    (always, more), (second, fewer) = of_steps("telemetry=1"), of_steps("telemetry=2")
    check(exchanges == as_many, "exchanges of a step without rows:", exchanges, "with telemetry:", as_many)
    check(abs(seldom - without) < 100, "bytes of a step without rows:", without, seldom)  # the last rows have other lengths
    check(0 < always - without < without and more == exchanges + 2, "a step with rows:", without, always, exchanges, more)
    check(second < always and fewer == exchanges + 1, second, always, exchanges, fewer)
    tensors = len({row["tensor"] for row in rows_of(os.path.join(place, "sent")) if row["type"] == "tensor"})
    print(f"flex16+5, 2 ranks: {without:.0f} bytes a step and rank, to rank 0 {always - without:.0f} more with rows of {tensors} tensors")


def messages(engine, place):
    folder = os.path.join(place, "messages")
    status, out, err = train(engine, 3, folder, "unlike=2:pattern=conv1*", "telemetry=2", "steps=2")
    check(status and "ranks differ in telemetry: rank 0 has 'tensors-" in err and "rank 2 'tensors-" in err, "pattern:", err)
    status, out, err = train(engine, 2, folder, "unlike=1:telemetry=3", "telemetry=2", "steps=2")
    check(status and "ranks differ in the training: rank 0 has 'telemetry-2" in err and "rank 1 'telemetry-3" in err, "every:", err)
    status, out, err = train(engine, 2, folder, "pattern=nothing*", "telemetry=2", "steps=2")
    check(status and "'nothing*' matches none" in err, "no tensor:", err)
    os.makedirs(os.path.join(folder, "telemetry.jsonl"), exist_ok=True)
    status, out, err = train(engine, 3, folder, "telemetry=2", "steps=2", seconds=30)
    check(status and "telemetry.jsonl: it is a folder" in err, "a file that cannot be written:", err)


launch.under_each(ENGINES if LONG else ENGINES[:1], same_files, goes_on, bytes_sent, messages)
