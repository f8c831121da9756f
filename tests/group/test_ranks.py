#!/usr/bin/env python3
"""Ranks of a training under mpirun. The files of 1, 2, 3, 4 and 6 ranks at 12 shards are equal, byte for byte: for
images, text and recurrence, in several formats, with every kind of optimiser state, clipping and a dynamic loss scale,
on ranks with different instruction sets; also when ranks were killed and others in number went on. Messages of ranks that
differ, stop, die or fail. The program under mpirun. usage: test_ranks.py TRAIN_RANKS FLEXLAB [long] MPIRUN=ENGINE..."""
import functools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time

import launch
from launch import ENVIRONMENT, check, ended, lines, mpirun, position, read, same

(TRAIN, FLEXLAB), LONG, ENGINES = launch.arguments(2)
train = functools.partial(launch.train, TRAIN)


# --- the same bytes of any number of ranks --------------------------------------------------------------------------

def works():
    images, text, lstm = ["model=resnet8"], ["model=gpt1x32"], ["model=lstm-char"]
    cases = [images + ["variant=flex16+5"], images + ["variant=fp16", "optimiser=adamw", "scale=dynamic:init=16777216"],
             text + ["variant=dfp16", "optimiser=lamb", "clip=1"], lstm + ["variant=bf16", "optimiser=adam"]]
    cases += [images + [f"variant={variant}", "batchnorm=global"] for variant in ("flex16+5", "fp32")]
    if LONG:
        variants = ["fp32", "fp16", "bf16", "flex16+5", "dfp16", "fp16-sr", "bf16-sr", "flex16+5-sr", "flex16+5-paper"]
        wholly = ["batchnorm=global"]
        for number, variant in enumerate(variants):
            for place, model in enumerate((images, images + wholly, text, ["model=gpt2x64"], lstm)):
                optimiser = [None, "adam", "adamw", "rmsprop", "adagrad", "lamb"][(number + place) % 6]
                cases.append(model + [f"variant={variant}"] + ([f"optimiser={optimiser}"] if optimiser else [])
                             + (["scale=dynamic"] if number % 2 else []))
        for model in (images, images + wholly):
            cases += [model + ["variant=fp32", "policy=O1", "scale=dynamic"], model + ["variant=fp32", "policy=mxint8"],
                      model + ["variant=flex8+5"]]
    return cases


def same_bytes(engine, place):
    def one(case):
        number, keys = case
        counts = [1, 2, 3, 4, 6] if LONG else [1, 2, 3] if number == 0 else [1, 3 if number % 2 else 2]
        alone = os.path.join(place, f"{number}-1")
        for ranks in counts:
            folder = os.path.join(place, f"{number}-{ranks}")
            status, out, err = train(engine, ranks, folder, *keys, "steps=6")
            check(status == 0, keys, ranks, status, err)
            if status == 0 and ranks > 1:
                same(alone, folder, *keys, ranks)
        if number == 0 or LONG:
            mixed = os.path.join(place, f"{number}-mixed")
            status, out, err = train(engine, 3, mixed, *keys, "steps=6", isa=["portable", "avx2", "avx512"])
            check(status == 0, keys, "ranks of different instruction sets:", err)
            same(alone, mixed, *keys, "different instruction sets")
    launch.each(one, enumerate(works()), most=3)
    skipped = [line.split()[3] for line in read(place, "1-1", "losses.txt").decode().splitlines()]
    check("1" in skipped, "no step of the dynamic loss scale was skipped", skipped)


def evaluations(engine, place):
    """Ranks share the batches of an evaluation, but for those that depend on the exponents of the batches before."""
    said = r"evaluation: rank (\d) of \d has computed batches (\d+) to (\d+) of \d+(.*)"
    seen = [] if LONG else ["data=synthetic:train=48,test=48"]  # an epoch, and a step of the next one
    for keys, ranks, parts, more in ((works()[0] + seen, 3, [("0", "1", "8"), ("1", "9", "16"), ("2", "17", "24")], ""),
                                     (["model=infinite", "variant=dfp16", "batch=12"] + seen, 3,
                                      [("0", "1", "16"), ("1", "17", "32"), ("2", "33", "48")], ", and computes all"),
                                     (["model=lstm-char", "variant=flex16+5"], 2, [], "")):
        alone, folder = os.path.join(place, "evaluated1"), os.path.join(place, "evaluated")
        steps = "steps=21" if LONG else "steps=14" if "model=lstm-char" in keys else "steps=5" if "batch=12" in keys else "steps=3"
        status, out, err = train(engine, 1, alone, *keys, steps)
        check(status == 0 and "evaluation:" not in err, keys, err)
        status, out, err = train(engine, ranks, folder, *keys, steps, FLEXLAB_VERBOSE="1")
        found = re.findall(said, err)
        check(status == 0 and {one[:3] for one in found} == set(parts) and {one[3] for one in found} <= {more}, keys, found, err[-300:])
        same(alone, folder, *keys, "evaluated by", ranks)


def bytes_sent(engine, place):
    """Of one shard a rank: 2 bytes a parameter go out for the sums, and 2 with the results; 4 and 4 in fp32."""
    for variant, most in (("flex16+5", 4.1), ("fp32", 8.2)):
        for ranks in (2, 4) if LONG else (2,):
            sent = []
            for steps in (4, 8):  # the difference of two trainings is that of steps alone
                status, out, err = train(engine, ranks, os.path.join(place, "sent"), f"variant={variant}", f"shards={ranks}",
                                         f"steps={steps}", "batch=24", "trace=no")
                found = re.search(r"sent (\d+) received \d+ parameters (\d+)", out)
                check(status == 0 and found, variant, ranks, err)
                if found:
                    sent.append(int(found[1]) / int(found[2]))
            if len(sent) == 2:
                each = (sent[1] - sent[0]) / 4
                check(0 < each <= most * (ranks - 1) / ranks + 0.2, variant, ranks, "ranks: bytes a parameter and step:", each)
                print(f"{variant}, {ranks} ranks: {each:.3f} bytes a parameter, rank and step")


# --- killed and resumed -----------------------------------------------------------------------------------------------

def killed(engine, place):
    draw = random.Random(11 if not LONG else time.time_ns())
    keys = ["model=resnet8", "variant=flex16+5", "steps=18", "keep=2"]
    whole = os.path.join(place, "whole")
    status, out, err = train(engine, 1, whole, *keys)
    check(status == 0, err)
    for number in range(40 if LONG else 1):
        folder, resumed = os.path.join(place, f"killed{number}"), False
        for turn in range(30):
            ranks, wanted = draw.choice([1, 2, 3, 4, 6]), keys + ([f"resume={folder}/resume.safetensors"] if resumed else [])
            if turn < 3:
                wanted.append(f"kill={draw.randrange(ranks)}:{draw.randrange(18)}")
            began = time.time()
            status, out, err = train(engine, ranks, folder, *wanted, seconds=60, FLEXLAB_GROUP_TIMEOUT="5")
            check(status is not None and time.time() - began < 45, "ranks hang after a kill:", wanted)
            resumed = os.path.exists(os.path.join(folder, "resume.safetensors"))
            if status == 0:
                break
        check(status == 0, "a resumed training fails:", err)
        check(read(whole, "last.safetensors") == read(folder, "last.safetensors"), "resumed under other ranks: last.safetensors")
        check(position(whole) == position(folder), "resumed under other ranks: resume.safetensors")
        shutil.rmtree(folder)


# --- messages ---------------------------------------------------------------------------------------------------------

def messages(engine, place):
    folder = os.path.join(place, "messages")
    status, out, err = train(engine, 3, folder, "differ=2", "steps=2")
    check(status and "ranks differ in the training: rank 0 has 'rate-0.01" in err and "rank 2 'rate-0.02" in err, "differ:", err)
    status, out, err = train(engine, 2, folder, "shards=3", "batch=24", "steps=2")
    check(status and "shards: 3, expected a multiple of the 2 ranks" in err, "shards:", err)
    began = time.time()
    status, out, err = train(engine, 3, folder, "stop=1:2", "steps=6", seconds=60, FLEXLAB_GROUP_TIMEOUT="3")
    check(status and re.search(r"rank [02] of 3, gradients of step 3: after 3 seconds nothing from rank 1", err), "stopped:", err)
    check(time.time() - began < 30, "a stopped rank:", time.time() - began)
    status, out, err = train(engine, 3, folder, "fail=2:2", "steps=6", seconds=60)
    check(status and "rank 2 of 3: the disk is full" in err, "failed:", err)
    status, out, err = train(engine, 2, folder, "steps=2", FLEXLAB_GROUP_TIMEOUT="soon")
    check(status and "FLEXLAB_GROUP_TIMEOUT: 'soon', expected seconds" in err, "timeout:", err)
    status, out, err = train(engine, 1, folder, "steps=2", "engine=smoke")
    check(status and "engine 'smoke', expected none, mpi or nccl" in err, "engine:", err)
    status, out, err = train((engine[0], "/nowhere/libflexlab_mpi.so"), 1, folder, "steps=2")
    check(status and "FLEXLAB_MPI_LIBRARY" in err and "/nowhere/libflexlab_mpi.so" in err, "library:", err)
    for _ in range(100):  # what mpirun ends, the system removes a little later
        leftovers = subprocess.run(["pgrep", "-f", folder], capture_output=True, text=True).stdout.split()
        if not leftovers:
            break
        time.sleep(0.1)
    check(not leftovers, "processes are left:", leftovers)


# --- the program --------------------------------------------------------------------------------------------------------

STEPS = 4 if LONG else 2  # of an epoch
FORMATS = "fp32,flex16+5,fp16" if LONG else "flex16+5,fp16"
WORDS = ["--model", "resnet8", "--data", f"synthetic:train={24 * STEPS},test=20", "--batch", "24", "--shards", "4", "--epochs", "2"]


def program(engine, place):
    globally = []
    for ranks in (1, 2):
        globally.append(os.path.join(place, f"global{ranks}"))
        status, out, err = ended(mpirun(engine, ranks, [FLEXLAB, "train", *WORDS, "--format", "flex16+5", "--batchnorm", "global",
                                                        "--out", globally[-1]]), 120)
        check(status == 0, "--batchnorm global", ranks, err)
    check(lines(globally[0]) == lines(globally[1]) and lines(globally[0])[0]["batchnorm"] == "global", "--batchnorm global")
    check(read(globally[0], "last.safetensors") == read(globally[1], "last.safetensors"), "--batchnorm global: last.safetensors")
    folders = []
    for ranks in (1, 2, 4) if LONG else (1, 2):
        folder = os.path.join(place, f"compare{ranks}")
        status, out, err = ended(mpirun(engine, ranks, [FLEXLAB, "compare", *WORDS, "--formats", FORMATS, "--seeds",
                                                        "2", "--telemetry", "3:conv*,fc*,*.grad", "--shadow", "fp16,dfp16",
                                                        "--out", folder]), 120)
        check(status == 0 and out.count("Written to") == 1, ranks, status, out[-300:], err)
        folders.append(folder)
    told = [json.loads(line) for line in read(folders[1], "metrics.jsonl").splitlines()]
    told = [line for line in told if line["type"] == "run"]
    check(all(line["ranks"] == 2 and line["rank_steps"] == 2 * STEPS and line["rank_sent"] > 2 * STEPS * line["parameters"] for line in told), told)
    page = read(folders[1], "report.html").decode()
    check(">Ranks<" in page and '"conv1.shard3"' in page, "the report lacks its table of ranks, or the last shard")
    tables = [name for name in os.listdir(folders[1]) if name.startswith("telemetry-")]
    check(len(tables) == 4 * len(FORMATS.split(",")), os.listdir(folders[1]))
    shown = subprocess.run([FLEXLAB, "report", folders[1], "--out", os.path.join(place, "again")], capture_output=True, text=True)
    check(shown.returncode == 0 and ">Ranks<" in read(place, "again", "report.html").decode(), shown.stderr)
    for folder in folders[1:]:
        check(lines(folders[0]) == lines(folder), folder, "metrics.jsonl differs")
        check(sorted(os.listdir(folders[0])) == sorted(os.listdir(folder)), folder, os.listdir(folder))
        for name in os.listdir(folder):
            if name.startswith(("trace-", "telemetry-")):
                check(read(folders[0], name) == read(folder, name), folder, name, "differs")
    bare = []
    for ranks in (1, 2):  # without anything for which ranks tell each other of all tensors
        bare.append(os.path.join(place, f"bare{ranks}"))
        status, out, err = ended(mpirun(engine, ranks, [FLEXLAB, "compare", *WORDS, "--formats", "flex16+5,fp16", "--no-trace",
                                                        "--no-checkpoint", "--out", bare[-1]]), 120)
        check(status == 0, ranks, err)
    check(lines(bare[0]) == lines(bare[1]), "without traces and checkpoints metrics.jsonl differs")


def refused(engine, place):
    for more, expected in ((["--predictor", "current"], "ranks differ in the network: rank 0 has 'predictor-paper', rank 1 'predictor-current'"),
                           (["--batchnorm", "global"], "ranks differ in the network: rank 0 has 'batchnorm-shard', rank 1 'batchnorm-global'"),
                           (["--shards", "2"], r"that of rank (0: train group-mpi shards-4 .*\n.*that of rank 1|1: train group-mpi shards-2 (.*\n)*.*that of rank 0)"),
                           (["--weights", os.path.join(place, "train", "last.safetensors")], "ranks differ in")):
        if more[0] == "--weights":
            status, out, err = ended(mpirun(engine, 1, [FLEXLAB, "train", *WORDS, "--format", "flex16+5", "--out",
                                                        os.path.join(place, "train")]), 60)
        both = [FLEXLAB, "train", *WORDS, "--format", "flex16+5", "--out", os.path.join(place, "differ")]
        status, out, err = ended(mpirun(engine, 1, both, [*both, *more], FLEXLAB_GROUP_TIMEOUT="10"), 60)
        check(status and re.search(expected, err), more, status, err)
    one = [FLEXLAB, "train", *WORDS, "--format", "fp32", "--out", os.path.join(place, "refused")]
    for commands in ([one, [FLEXLAB, "train", "--help"]], [[FLEXLAB, "train", "--help"], one, one]):
        began = time.time()
        status, out, err = ended(mpirun(engine, 1, *commands), 60)
        check(status and "the ranks have different commands; that of rank 0: " in err and time.time() < began + 15, commands, status, err)
    status, out, err = ended(mpirun(engine, 2, [FLEXLAB, "train", "--help"]), 60)
    check(status == 0 and out.count("Usage: ") == 1 and not err, "--help of all ranks:", status, out[:99], err)
    status, out, err = ended(mpirun(engine, 1, one, *3 * [[*one, "--no-such-option"]]), 60)
    check(status and err.count("unknown option") == 1 and "said by rank 1 of 4" in err, "options of three ranks:", status, err)
    for arguments, expected in ((["--shards", "3"], "expected a multiple of the 2 ranks"), (["--shards", "0"], "--shards"),
                                (["--no-such-option"], "unknown option")):
        status, out, err = ended(mpirun(engine, 2, [FLEXLAB, "train", *WORDS, "--format", "fp32", *arguments, "--out",
                                                    os.path.join(place, "refused")]), 60)
        told = [line for line in err.splitlines() if line.startswith("flexlab train:")]
        check(status and len(told) == 1 and expected in told[0], arguments, status, err)
    check(not os.path.exists(os.path.join(place, "refused")), "a refused training left a folder")


def started_otherwise(engine, place):
    if "openmpi" in engine[0]:  # what srun tells ranks by PMIx, and what mpirun in a step of Slurm leaves of it
        unset = ["env", *(f"--unset=OMPI_COMM_WORLD_{name}" for name in ("SIZE", "RANK"))]
        status, out, err = ended(mpirun(engine, 2, [*unset, FLEXLAB, "train", *WORDS, "--format", "fp32", "--quiet", "--out",
                                                    os.path.join(place, "step")], SLURM_STEP_NUM_TASKS="2"), 60)
        check(status == 0 and out.count("Written to") == 1 and not err, "started by srun:", status, out, err)
        check(lines(os.path.join(place, "step"))[0]["shards"] == 4, "started by srun")
    for rank in (0, 1) if "openmpi" in engine[0] else ():  # srun that offers no PMIx
        child = subprocess.run([FLEXLAB, "train", *WORDS, "--format", "fp32", "--out", os.path.join(place, "bare")],
                               capture_output=True, text=True, env={**ENVIRONMENT, "FLEXLAB_MPI_LIBRARY": engine[1],
                                                                    "SLURM_STEP_NUM_TASKS": "2", "PMIX_RANK": str(rank)})
        check(child.returncode == 1 and ("of 2 processes that were started the engine's MPI finds this one alone" in child.stderr) == (rank == 0), child.stderr)
    alone = subprocess.run([FLEXLAB, "train", *WORDS, "--format", "fp32", "--out", os.path.join(place, "alone"), "--quiet"],
                           capture_output=True, text=True, env={**ENVIRONMENT, "SLURM_STEP_NUM_TASKS": "4", "PMIX_RANK": "1",
                                                                "OMPI_COMM_WORLD_SIZE": "1"})
    check(alone.returncode == 0 and "Written to" in alone.stdout, "one rank in a step of Slurm:", alone.stdout, alone.stderr)


def program_killed(engine, place):
    whole, pieces = os.path.join(place, "train-whole"), os.path.join(place, "train-pieces")
    options = [FLEXLAB, "train", *WORDS, "--format", "flex16+5", "--epochs", str(24 // STEPS), "--checkpoint-every", "2", "--quiet"]
    status, out, err = ended(mpirun(engine, 1, [*options, "--out", whole]), 120)
    check(status == 0, err)
    child = mpirun(engine, 2, [*options, "--out", pieces])
    for _ in range(4000):
        if os.path.exists(os.path.join(pieces, "flexlab.resume", "resume.safetensors")) or child.poll() is not None:
            break
        time.sleep(0.002)
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()
    subprocess.run(["pkill", "-9", "-f", pieces])
    if os.path.exists(os.path.join(pieces, "flexlab.resume")):
        status, out, err = ended(mpirun(engine, 4, [FLEXLAB, "train", "--resume", pieces, "--quiet"]), 120)
        check(status == 0, "resumed by 4 ranks:", err)
    check(read(whole, "last.safetensors") == read(pieces, "last.safetensors"), "resumed by other ranks: last.safetensors")


launch.under_each(ENGINES if LONG else ENGINES[:1], same_bytes, evaluations, bytes_sent, killed, messages, program, refused,
                  started_otherwise, program_killed)
