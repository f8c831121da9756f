#!/usr/bin/env python3
"""Ranks on GPUs, beside ranks on processors: the files of ranks on one device, on the other and on both are those of one
rank on a processor, byte for byte; a training goes on with its ranks elsewhere. The program with a device for each rank,
also by NCCL, over the stand-in of nccl_standin.c.
usage: test_gpu_ranks.py TRAIN_RANKS FLEXLAB BACKEND [long] [NCCL=STANDIN_LIBRARY] [GPUS=COUNT] MPIRUN=ENGINE...
GPUS: that the backend has, 2 without it"""
import itertools
import json
import os
import re
import sys

import launch
from launch import check, ended, lines, mpirun, read, same

(TRAIN, FLEXLAB, BACKEND), LONG, ENGINES = launch.arguments(3)
NCCL = next((word[5:] for word in sys.argv if word.startswith("NCCL=")), None)
GPUS = next((int(word[5:]) for word in sys.argv if word.startswith("GPUS=")), 2)
MACHINE = {"FLEXLAB_CUDA_LIBRARY": BACKEND, "FLEXLAB_PTX_SEED": "5", "FLEXLAB_PTX_BYTES": "268435456", "FLEXLAB_PTX_DEVICES": "2",
           "FLEXLAB_GROUP_TIMEOUT": "120", **({"FLEXLAB_NCCL_LIBRARY": NCCL} if NCCL else {})}


def train(engine, ranks, folder, *keys):
    status, out, err = launch.train(TRAIN, engine, ranks, folder, *keys, seconds=600, **MACHINE)
    check(status == 0 and "FINDING" not in err, keys, ranks, status, err)
    if "devices=cuda" in keys:
        check(all(f"rank {r} on cuda:{r % GPUS}" in out for r in range(ranks)), "devices:", out)
    return out if status == 0 else ""


# A step of the machine costs as much as a hundred of the processor: the quick form makes few, of small batches.
FLAT = ["data=synthetic:train=48,test=8"] if LONG else ["data=synthetic:train=24,test=4"]


def works():
    images, text = ["model=resnet8", "data=synthetic:train=16,test=4", "batch=4", "steps=2"], ["model=gpt1x32", "batch=12", "steps=3"]
    flat = ["model=mlp2", "batch=12", *FLAT, f"steps={5 if LONG else 4}"]
    cases = [(images + ["variant=flex16+5", "shards=4"], ["cuda/cpu"]),
             (images + ["variant=flex16+5", "shards=4", "batchnorm=global"], ["cuda/cpu"]),
             (text + ["variant=dfp16", "optimiser=lamb", "clip=1", "shards=6"], ["cpu/cuda"]),
             (flat + ["variant=fp16", "optimiser=adamw", "scale=dynamic:init=16777216,factor=64", "shards=2"],
              ["cuda/cpu", "cuda"] if LONG else ["cuda"])]
    if LONG:
        for variant in ("fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex8+5", "e4m3fn"):
            cases += [(model + [f"variant={variant}", "shards=4"], ["cuda/cpu", "cpu/cuda", "cuda"])
                      for model in (images, text, flat, ["model=lstm-char", "batch=12", "steps=3"])]
            cases.append((images + [f"variant={variant}", "shards=4", "batchnorm=global"], ["cuda/cpu", "cuda"]))
        cases.append((["model=resnet20", *images[1:], "variant=e4m3fn", "shards=4"], ["cuda/cpu"]))
    return cases


def crosses(out, *what):
    found = re.search(r"overlapped (\S+) seconds (\S+)", out)  # a look at the machine computes on
    check(found and float(found[1]) > 0.01 * float(found[2]), "nothing crosses during backward:", *what, out)


def same_bytes(engine, place):
    for number, (keys, devices) in enumerate(works()):
        one = os.path.join(place, f"{number}-one")
        train(engine, 1, one, *keys)
        for each in devices:
            folder = os.path.join(place, f"{number}-{each.replace('/', '-')}")
            out = train(engine, 2, folder, *keys, f"devices={each}")
            if out:
                same(one, folder, *keys, each)
            one_bucket = {"model=resnet8", "variant=e4m3fn"} <= set(keys)  # 75 kB, complete when backward is over
            if "resnet" in keys[0] and each == "cuda/cpu" and "batchnorm=global" not in keys and not one_bucket:
                crosses(out, keys)
        if LONG:
            folder = os.path.join(place, f"{number}-shards")
            if train(engine, 1, folder, *keys, "devices=cuda"):
                same(one, folder, *keys, "one rank on a device")


def resumed(engine, place):
    keys = ["model=mlp2", *FLAT, "variant=flex16+5", "keep=2", *(["batch=8", "shards=4"] if LONG else ["batch=4", "shards=2"])]
    steps = f"steps={6 if LONG else 4}"
    whole, pieces = os.path.join(place, "whole"), os.path.join(place, "pieces")
    train(engine, 1, whole, *keys, steps)
    train(engine, 2, pieces, *keys, steps, "devices=cuda/cpu", "until=3")
    check(len(read(pieces, "losses.txt").splitlines()) == 3, "the training has not stopped")
    train(engine, 2, pieces, *keys, steps, "devices=cpu/cuda", f"resume={pieces}/resume.safetensors")
    check(read(whole, "last.safetensors") == read(pieces, "last.safetensors"), "ranks that went on elsewhere: last.safetensors")


WORDS = ["--model", "mlp2", "--data", "synthetic:" + ("train=48,test=8" if LONG else "train=16,test=4"), "--batch", "8", "--shards", "4", "--epochs", "1",
         "--format", "flex16+5", "--threads", "1"]


def same_results(one, other):
    check(lines(one) == lines(other), other, "metrics.jsonl differs")
    check(sorted(os.listdir(one)) == sorted(os.listdir(other)), os.listdir(one), os.listdir(other))
    for name in os.listdir(one):
        if name.startswith("trace-") or name.endswith(".safetensors"):
            check(read(one, name) == read(other, name), other, name, "differs")


def program(engine, place):
    folders = []
    for other in ("cpu", "cuda"):  # the device of rank 1; rank 0 writes its own command line
        folders.append(os.path.join(place, other))
        both = [[FLEXLAB, "train", *WORDS, "--out", folders[-1], "--device", device] for device in ("cpu", other)]
        status, out, err = ended(mpirun(engine, 1, *both, **MACHINE), 300)
        check(status == 0 and out.count("Written to") == 1, other, status, out[-300:], err)
    same_results(*folders)


def by_nccl(engine, place):
    """Of one command line on two devices: by MPI, and by NCCL; what is refused, and failures of one rank."""
    def start(folder, *words, **more):
        child = mpirun(engine, 2, [FLEXLAB, "train", *WORDS, "--out", os.path.join(place, folder), *words],
                       **{**MACHINE, **more})
        return ended(child, 300)

    at = [os.path.join(place, name) for name in ("by-mpi", "by-nccl")]
    for folder in at:
        status, out, err = start(folder, "--device", "cuda", "--group", folder.split("-")[-1])
        check(status == 0 and out.count("Written to") == 1, folder, status, out[-300:], err)
    told = [json.loads(line) for folder in at for line in read(folder, "metrics.jsonl").splitlines()]
    told = [(line["rank_engine"], line["ranks"], line["rank_sent"] > 0) for line in told if line["type"] == "run"]
    check(told == [("mpi", 2, True), ("nccl", 2, True)], told)
    check("nccl" in read(at[1], "report.html").decode(), "the report does not name NCCL")
    same_lines = [[{k: v for k, v in line.items() if k != "device"} for line in lines(folder)] for folder in at]
    check(same_lines[0] == same_lines[1], "by NCCL metrics.jsonl differs")
    for name in ("last.safetensors", "best.safetensors"):
        check(read(at[0], name) == read(at[1], name), "by NCCL", name, "differs")
    for more in ([], ["batchnorm=global"]):  # the first cases of same_bytes
        folder = os.path.join(place, f"training-{len(more)}")
        keys = [*works()[len(more)][0], "engine=nccl", "devices=cuda"]
        out = train(engine, 2, folder, *keys)
        if out:
            same(os.path.join(place, f"{len(more)}-one"), folder, *keys)
            if not more:
                crosses(out, keys)
    def refused(case):
        number, (words, more, expected) = case
        folder = f"refused-{number}"
        status, out, err = start(folder, "--device", "cuda", "--group", "nccl", *words, FLEXLAB_GROUP_TIMEOUT="60", **more)
        check(status not in (0, None) and expected in err and "misuse" not in err, words, more, status, err)
        check(not os.path.exists(os.path.join(place, folder, "last.safetensors")), words, more, "has written")
    launch.each(refused, enumerate((
            (["--device", "cpu"], {}, "--group nccl: flex16+5 trains on cpu, expected --device cuda, or --group mpi"),
            (["--group", "smoke"], {}, "--group 'smoke': expected one of mpi, nccl"),
            ([], {"FLEXLAB_NCCL_LIBRARY": "/nowhere/libflexlab_nccl.so"}, "--group nccl: group: FLEXLAB_NCCL_LIBRARY: /nowhere"),
            ([], {"STANDIN_DEVICES": "0"}, "--group nccl: group: cudaGetDeviceCount: no CUDA-capable device"),
            ([], {"STANDIN_FAIL": "1:init:1"}, "--group nccl: group: ncclCommInitRankConfig: unhandled system error"),
            ([], {"STANDIN_FAIL": "1:launch:9"}, "ncclSend and ncclRecv: unhandled system error"))))


def failing_calls(engine, place):
    """What copies beside backward calls fails on both ranks, at once or later: messages and no file."""
    keys = (["model=mlp2", *FLAT, "batch=8", "shards=4", "steps=4"] if LONG else ["model=gpt1x32", "batch=4", "shards=2", "steps=2"])

    def one(case):
        call, at, error = case
        folder = os.path.join(place, f"failing-{call}-{at}-{error}")
        status, out, err = launch.train(TRAIN, engine, 2, folder, *keys, "variant=dfp16", "devices=cuda", seconds=300, **{**MACHINE, "FLEXLAB_PTX_FAIL": f"{call}@{at}@{error}"})
        planned = "fails as planned" in err
        check(planned or LONG or call in ("cudaHostAlloc", "cudaEventCreateWithFlags"), call, at, "is never called", err)
        check(status is not None and "FINDING" not in err and "Segmentation" not in err, call, at, error, status, err)
        if planned and status == 0 and call == "cudaEventCreateWithFlags" and error == 2:
            return  # a lack of memory once: opening the device again succeeds
        check(not planned or status, call, at, error, "fails, and nobody says so", err)
        said = [line for line in err.splitlines() if not line.startswith("ptx: ")]
        check(not planned or any("CUDA reports" in line or "memory" in line for line in said), call, at, error, err)
    launch.each(one, list(itertools.product(("cudaStreamWaitEvent", "cudaEventQuery", "cudaEventRecord", "cudaEventSynchronize",
                                             "cudaHostAlloc", "cudaEventCreateWithFlags"), (1, 2, 9) if LONG else (2,), (2, 719))))


def by_both(engine, place):
    same_bytes(engine, place)
    if NCCL:
        by_nccl(engine, place)  # the same bytes as those


launch.under_each(ENGINES if LONG else ENGINES[:1], by_both, resumed, program, failing_calls)
