#!/usr/bin/env python3
"""Trainings of the flexlab program that are killed at random moments and resumed: results and networks are, byte for
byte, those of an uninterrupted training. Signals, `flexlab eval`, refused input, and writes that fail.

    test_cli_resume.py PATH-OF-FLEXLAB PATH-OF-INJECT-LIBRARY|- [long] [SEED]"""
import json
import math
import os
import random
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import safetensors_witness as witness
from cli_harness import PROGRAM, check, expect_error, run, succeed, summary
from resumed import QUIET, killed_after, lines, read, same_network, same_results, small_images

LIBRARY = sys.argv[2] if sys.argv[2] == "-" else os.path.abspath(sys.argv[2])
LONG = "long" in sys.argv[3:]
SEED = next((int(a) for a in sys.argv[3:] if a.isdigit()), int(time.time()))
rng = random.Random(SEED)
VARIANTS = ["fp32", "fp16", "bf16", "flex16+5", "flex16+5-sr", "flex16+5-paper", "dfp16"]


def kill_until_done(out, options, longest, *what):
    """Starts, kills and resumes until the training is over; returns how often it was killed, and how often it was
    resumed."""
    kills, gone_on = 0, 0
    resume = os.path.join(out, "flexlab.resume", "resume.safetensors")
    for attempt in range(400):
        if os.path.exists(resume):
            gone_on += 1
            arguments = ["train", "--resume", out, "--quiet", "--threads", "1", "--allow-divergence", "--checkpoint-every",
                         str(rng.randrange(1, 9))]
        else:
            arguments = ["train", *options, "--out", out, "--force"]
        status, stderr = killed_after(rng.uniform(0.005, 0.7 * longest) + 0.0005 * attempt, *arguments)
        if status is not None:
            check(status == 0, *what, arguments, status, stderr)
            return kills, gone_on
        kills += 1
        if os.path.exists(resume):
            tensors, notes = witness.read(resume)  # complete, at whatever time it was killed
            check(notes["flexlab.crc32"] == witness.checksum(resume), *what, "a torn checkpoint")
            check(int(notes["network.steps"]) == witness.values(tensors["training.position"])[4], *what, "steps")
    check(False, *what, "is never done")
    return kills, gone_on


def test_kills(place, data):
    total, all_gone_on = 0, 0
    for variant in VARIANTS:
        options = ["--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "24", "--threads", "1", "--format", variant, "--quiet",
                   "--checkpoint-every", "5", "--lr", "0.02", "--trace-every", "7", "--average-last", "9", "--allow-divergence",
                   *(["--step-loss"] if variant in ("bf16", "dfp16") else [])]
        whole = os.path.join(place, "whole " + variant)
        began = time.time()
        done = run("train", *options, "--out", whole, env=QUIET)
        took = time.time() - began
        check(done.returncode == 0, done.shown, done.stderr)
        check({"last.safetensors", "best.safetensors"} <= set(os.listdir(whole)) and "flexlab.resume" not in os.listdir(whole),
              variant, sorted(os.listdir(whole)))
        for i in range(30 if LONG else 3):
            what = (f"seed {SEED}: {variant} {i}",)
            pieces = os.path.join(place, f"pieces {variant} {i}")
            kills, gone_on = kill_until_done(pieces, options, took, *what)
            total += kills
            all_gone_on += gone_on
            same_results(whole, pieces, *what, f"killed {kills} times, went on {gone_on} times:")
            shutil.rmtree(pieces)
        # Python reads the values in the networks, and the same settings.
        tensors, notes = witness.read(os.path.join(whole, "last.safetensors"))
        check(notes["network.variant"] == variant and notes["training.model"] == "mlp2" and notes["network.steps"] == "600", variant, notes)
        check(not any(name.startswith("training.") for name in tensors), variant, "the last network holds more than a network")
    check(total >= 2 * len(VARIANTS) and all_gone_on >= len(VARIANTS), "killed", total, "times, went on", all_gone_on, "times alone")
    print(f"killed {total} times, went on {all_gone_on} times", flush=True)


def run_line(folder):
    return next(line for line in lines(folder) if line["type"] == "run")


def test_eval(place, data):
    for variant in ("flex16+5", "fp16"):
        out = os.path.join(place, "whole " + variant)
        epochs = [line for line in lines(out) if line["type"] == "epoch"]
        best = max(epochs, key=lambda e: (e["test_accuracy"], -e["test_loss"]))
        for name, want in (("last", epochs[-1]), ("best", best)):
            done = succeed("eval", "--checkpoint", os.path.join(out, name + ".safetensors"), "--data", data)
            words = done.stdout.split()
            found = [float(words[words.index(w) + 1]) for w in ("loss", "accuracy")]
            check(found == [float(f"{want['test_loss']:.9g}"), float(f"{want['test_accuracy']:.9g}")], variant, name, done.stdout, want)
    network = os.path.join(place, "whole fp16", "best.safetensors")
    part = succeed("eval", "--checkpoint", network, "--data", data, "--test-limit", "7", "--split", "train", "--threads", "2")
    check("on 7 images" in part.stdout, part.stdout)
    broken = os.path.join(place, "broken.safetensors")
    with open(broken, "wb") as file:
        file.write(read(network)[:-9])
    expect_error(["eval", "--data", data], 2, "--checkpoint FILE")
    expect_error(["eval", "--checkpoint", broken, "--data", data], 1, broken, "expected within 0 to")
    expect_error(["eval", "--checkpoint", "/nowhere", "--data", data], 1, "/nowhere", "No such file")
    expect_error(["eval", "--checkpoint", network, "--data", "synthetic:train=10,test=10"], 1, "images of 32x32x3, the network takes 6x6x1")
    expect_error(["eval", "--checkpoint", network, "--data", "sinthetic"], 2, "sinthetic", "did you mean 'synthetic'?")
    text = os.path.join(place, "text.txt")
    with open(text, "w") as file:
        file.write("a text " * 100)
    expect_error(["eval", "--checkpoint", network, "--data", "text:" + text], 2, "a text, but mlp2")
    arrays = [os.path.join(place, name) for name in ("more.npy", "labels.npy")]
    labels = bytes(12 if i == 17 else i % 10 for i in range(20))
    for path, shape, content in zip(arrays, ("(20, 6, 6)", "(20,)"), (bytes(range(20)) * 36, labels)):
        head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + content)
    more = "npy:" + ",".join(arrays * 2)
    expect_error(["eval", "--checkpoint", network, "--data", more], 1, more, "image 17 has label 12", network, "has 10 classes")
    check("see 'flexlab info data'" in succeed("eval", "--help").stdout, "eval --help")
    expect_error(["eval", "--checkpoint", network, "--data", data, "--test-limit", "61"], 2, "--test-limit 61", "60 images")
    expect_error(["eval", "--checkpoint", network, "--data", data, "--split", "tset"], 2, "'tset'", "test, train")
    expect_error(["eval", "--checkpoint", network, "--epochs", "2"], 2, "--epochs")
    expect_error(["eval", "--checkpoint", os.path.join(place, "images", "train-images-idx3-ubyte")], 1, "not a safetensors file", "the length of a header")


def test_boasting_files(place, data):
    """Files that name a network which is far too large for them are refused at once."""
    tensors, notes = witness.read(os.path.join(place, "whole fp16", "best.safetensors"))
    path = os.path.join(place, "boasts.safetensors")
    notes.pop("flexlab.crc32")
    for changes, word in (({"training.model": "resnet99998"}, "has more weights than a file of"),
                          ({"training.height": "4096", "training.width": "4096"}, "images of 6x6x1, the network takes 4096x4096x1"),
                          ({"training.model": "resnet20"}, "has more weights than a file of"), ({"training.model": "nothing"}, "nothing"),
                          ({"training.classes": "0"}, "classes"), ({"training.mean": "x"}, "'training.mean'"), ({"training.mean": "0.5 0.5"}, "'training.mean'"),
                          ({"network.batch": "0"}, "'network.batch'"), ({"network.momentum": "nan"}, "'network.momentum'"),
                          ({"network.variant": "fp17"}, "fp17"), ({"training.classes": "65537"}, "'training.classes'")):
        with open(path, "wb") as file:
            file.write(witness.write_bytes([(n, *t) for n, t in tensors.items()], {**notes, **changes}))
        began = time.time()
        done = run("eval", "--checkpoint", path, "--data", data)
        check(done.returncode in (1, 2) and word in done.stderr and done.stderr.count("\n") == 1, changes, done.returncode, done.stderr)
        check(time.time() - began < 20, changes, "takes", time.time() - began)


def test_refusals(place, data):
    out = os.path.join(place, "refused")
    expect_error(["train", "--resume", place], 1, place, "no training is under way there")
    expect_error(["train", "--resume", "/nowhere/file"], 1, "/nowhere/file", "No such file")
    expect_error(["train", "--resume", os.path.join(place, "whole fp32", "metrics.jsonl")], 1, "safetensors: ", "metrics.jsonl")
    expect_error(["train", "--resume", place, "--lr", "0.1"], 2, "--lr: not with --resume")
    expect_error(["train", "--resume", place, "--no-checkpoint"], 2, "--no-checkpoint: not with --resume")
    expect_error(["train", "--no-trace", "--trace-every", "3"], 2, "--trace-every: not with --no-trace")
    expect_error(["compare", "--no-trace", "--trace-tensors", "fc*"], 2, "--trace-tensors: not with --no-trace")
    expect_error(["train", "--checkpoint-every", "3", "--no-checkpoint", "--out", out], 2, "--checkpoint-every: not with --no-checkpoint")
    expect_error(["train", "--checkpoint-every", "0", "--out", out], 2, "--checkpoint-every '0'")
    # The network of a finished training cannot be resumed.
    last = os.path.join(place, "whole fp32", "last.safetensors")
    done = run("train", "--resume", last, "--data", data, "--quiet", "--out", out)
    check(done.returncode == 1 and last in done.stderr and "it has only a network, and no training can be resumed from it" in done.stderr, done.stderr)
    check(not os.path.exists(os.path.join(out, "metrics.jsonl")), "a refused training left results")
    check("flexlab.resume" not in os.listdir(out), "a refused training left", os.listdir(out))
    quick = ["train", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "1", "--max-steps", "3", "--threads", "1", "--quiet"]
    bare = os.path.join(place, "bare")
    succeed(*quick, "--no-checkpoint", "--out", bare, env=QUIET)
    check(not any(n.endswith(".safetensors") or n == "flexlab.resume" for n in os.listdir(bare)), "--no-checkpoint:", os.listdir(bare))
    seeds = os.path.join(place, "seeds")
    succeed(*quick, "--seeds", "2", "--out", seeds, env=QUIET)
    check(not any(n.endswith(".safetensors") or n == "flexlab.resume" for n in os.listdir(seeds)), "--seeds:", os.listdir(seeds))


def start_long(out, data, *more):
    return subprocess.Popen([PROGRAM, "train", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "90000", "--threads", "1", "--out", out,
                             "--average-last", "20", "--lr", "0.001", "--no-trace", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **QUIET})


def test_signals(place, data):
    for name, status in (("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)):
        out = os.path.join(place, name)
        child = start_long(out, data)
        for line in child.stderr:
            if "epoch 2/" in line:
                break
        child.send_signal(getattr(signal, name))
        _, stderr = child.communicate(timeout=60)
        check(child.returncode == status and "resumes it" in stderr, name, child.returncode, stderr)
        resume = os.path.join(out, "flexlab.resume", "resume.safetensors")
        _, notes = witness.read(resume)
        stopped = run_line(out)
        check(notes["flexlab.crc32"] == witness.checksum(resume) and int(notes["network.steps"]) == stopped["steps"] and not stopped["complete"],
              name, notes["network.steps"], stopped["steps"])
        succeed("eval", "--checkpoint", resume, "--data", data)
        # It is not overwritten without --force, which begins anew.
        expect_error(["train", "--data", data, "--out", out], 1, "already holds results")
        for file in os.listdir(out):
            if os.path.isfile(os.path.join(out, file)):
                os.remove(os.path.join(out, file))
        for command in ("train", "compare"):
            expect_error([command, "--data", data, "--out", out], 1, "holds checkpoints of a training that is not over", "train --resume")
        expect_error(["compare", "--resume", out], 1, "there is a training under way", "'flexlab train --resume'")
        check(witness.read(resume)[1] == notes, name, "the checkpoint has changed")
        # It is resumed, elsewhere if requested, and a second signal ends it at once: the checkpoint remains complete.
        other = os.path.join(place, name + " elsewhere")
        child = subprocess.Popen([PROGRAM, "train", "--resume", resume, "--out", other, "--checkpoint-every", "1"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, env={**os.environ, **QUIET})
        there = os.path.join(other, "flexlab.resume", "resume.safetensors")
        until = time.time() + 60
        while not os.path.exists(there) and time.time() < until:
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
        check(int(witness.read(there)[1]["network.steps"]) > stopped["steps"], name, "did not go on elsewhere")
        check(os.path.exists(os.path.join(other, "flexlab.resume", "best.safetensors")), name, "the best did not come along")
    quick = ["train", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "1", "--max-steps", "3", "--threads", "1", "--quiet"]
    succeed(*quick, "--out", out, "--force", env=QUIET)
    check("flexlab.resume" not in os.listdir(out), "--force left", os.listdir(out))


def stopped_training(out, data, *more):
    """Stops a training after some epochs; the folder has its checkpoint."""
    child = start_long(out, data, *more)
    for line in child.stderr:
        if "epoch 2/" in line:
            break
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    return os.path.join(out, "flexlab.resume", "resume.safetensors")


def go_on_a_little(arguments, resume, cwd=None):
    """Resumes until a new checkpoint exists, then stops; returns its output."""
    before = os.stat(resume).st_ino if os.path.exists(resume) else None
    child = subprocess.Popen([PROGRAM, "train", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                             env={**os.environ, **QUIET})
    until = time.time() + 30
    while child.poll() is None and time.time() < until and (not os.path.exists(resume) or os.stat(resume).st_ino == before):
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    check(child.returncode == 130, arguments, "status", child.returncode, stderr)
    return stderr


def steps_in(resume):
    return int(witness.read(resume)[1]["network.steps"]) if os.path.exists(resume) else -1


def hash_of(folder, name):
    """The hash that docs/checkpoints.md defines for training.data, of files in the IDX format."""
    pixels, labels = read(folder, name + "-images-idx3-ubyte")[16:], read(folder, name + "-labels-idx1-ubyte")[8:]
    words = [int.from_bytes(pixels[i:i + 8], "little") for i in range(0, len(pixels) - 7, 8)]
    words.append(int.from_bytes(pixels[len(words) * 8:], "little"))
    hashed = 0
    for word in words + list(labels):
        hashed = (hashed ^ word) * 0x9E3779B97F4A7C15 % 2**64
        hashed ^= hashed >> 32
    return f"{hashed:016x}"


def test_other_data(place, data):
    """A training is not resumed with images that have changed since, however little."""
    folder = data[len("idx:"):]
    out = os.path.join(place, "other data")
    resume = stopped_training(out, data)
    notes = witness.read(resume)[1]
    for key, name in (("training.data", "train"), ("training.test_data", "t10k")):
        check(notes[key] == hash_of(folder, name), key, notes[key], hash_of(folder, name))
        for file, begin, size in ((name + "-images-idx3-ubyte", 16, 36), (name + "-labels-idx1-ubyte", 8, 1)):
            path, whole = os.path.join(folder, file), read(folder, file)
            one = begin + 3 * size
            two = next(i for i in range(one + size, len(whole), size) if whole[i:i + size] != whole[one:one + size])
            changed = bytearray(whole)
            changed[one:one + size], changed[two:two + size] = whole[two:two + size], whole[one:one + size]
            with open(path, "wb") as f:
                f.write(changed)
            expected = "test images or their labels" if name == "t10k" else ": images or their labels"
            done = run("train", "--resume", out, "--quiet", timeout=60)
            check(done.returncode == 1 and f"'{key}'" in done.stderr and expected in done.stderr, file, done.returncode, done.stderr)
            with open(path, "wb") as f:
                f.write(whole)
    check(witness.read(resume)[1] == notes, "the checkpoint has changed")
    go_on_a_little(["--resume", out], resume)
    shutil.rmtree(out)


def test_options_stay(place, data):
    """--checkpoint-every, --allow-divergence and --device remain as they were given, unless they are given anew."""
    out = os.path.join(place, "options stay")
    resume = stopped_training(out, data, "--checkpoint-every", "7", "--allow-divergence", "--device", "cpu")

    def kept():
        return witness.read(resume)[1]["flexlab.arguments"].split()
    for arguments, every in (([], "7"), (["--checkpoint-every=9"], "9"), ([], "9"), (["--checkpoint-every", "11", "--checkpoint-every=5"], "5")):
        go_on_a_little(["--resume", out, *arguments], resume)
        wanted = sorted(["--allow-divergence", "--device=cpu", "--checkpoint-every=" + every])
        found = sorted(w for w in kept() if w.startswith(("--allow", "--device", "--checkpoint")))
        check(found == wanted, arguments, "keeps", found, "wants", wanted)
    shutil.rmtree(out)
    # A checkpoint at the requested step: with epochs of 12 steps only the option makes one at a multiple of 7.
    child = start_long(out, data, "--checkpoint-every", "7", "--batch", "16")
    until = time.time() + 30
    while not os.path.exists(resume) and time.time() < until:
        time.sleep(0.01)
    child.kill()
    child.communicate()
    child = subprocess.Popen([PROGRAM, "train", "--resume", out, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before, found, until = steps_in(resume), set(), time.time() + 30
    while len(found) < 5 and time.time() < until:
        found |= {steps_in(resume)} - {before}
    child.kill()
    child.communicate()
    check(found and all(steps % 7 == 0 for steps in found), "checkpoints of steps", sorted(found))
    shutil.rmtree(out)
    # A training that diverges is a failure unless it began with --allow-divergence, also after it is resumed.
    diverges = ["train", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "3", "--threads", "1", "--quiet", "--format", "fp16",
                "--lr", "1000", "--allow-divergence", "--checkpoint-every", "5"]
    if LIBRARY != "-":
        inject = {**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM), "FAULT_KIND": "rename", "FAULT_AT": "4", "FAULT_ERROR": "28"}
        done = run(*diverges, "--out", out, env=inject)
        check(done.returncode == 1 and os.path.exists(resume), "the fourth checkpoint is written all the same", done.stderr)
        done = run("train", "--resume", out, "--quiet", env=QUIET)
        check(done.returncode == 0 and "diverged" not in done.stderr, done.returncode, done.stderr)
        shutil.rmtree(out)


def test_disk_full(place, data):
    """The disk is full from some write on: the message explains how to resume if there is a checkpoint, and names no
    missing file."""
    if LIBRARY == "-":
        return
    options = ["train", "--model", "mlp2", "--data", data, "--batch", "10", "--epochs", "4", "--threads", "1", "--format", "flex16+5", "--quiet",
               "--checkpoint-every", "3", "--allow-divergence"]
    inject = {**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM), "FAULT_KIND": "write", "FAULT_ERROR": "28"}
    out, count_file = os.path.join(place, "disk full"), os.path.join(place, "count")
    succeed(*options, "--out", out, env={**inject, "FAULT_AT": "0", "FAULT_COUNT": count_file})
    whole = os.path.join(place, "disk not full")
    os.rename(out, whole)
    calls, told = int(read(count_file)), 0
    for n in sorted({1 + i * (calls - 1) // 14 for i in range(15)} | {calls - 1, calls - 2, calls - 3}):
        for lasting in "01":
            what = f"write {n} of {calls}, lasting {lasting}:"
            done = run(*options, "--out", out, env={**inject, "FAULT_AT": str(n), "FAULT_LASTING": lasting})
            check(done.returncode == 1, what, done.returncode, done.stderr)
            for line in done.stdout.splitlines():
                if line.startswith("Written to "):
                    for name in line[len(f"Written to {out}: "):].split(", "):
                        files = [f for f in os.listdir(out) if f == name or (name == "traces" and f.startswith("trace-"))]
                        check(files, what, name, "is named and is not there:", os.listdir(out))
            is_there = os.path.exists(os.path.join(out, "flexlab.resume", "resume.safetensors"))
            failed = "cannot write" in done.stderr and "flexlab.resume" in done.stderr
            if failed:  # the training itself has failed
                check(is_there == ("resumes it" in done.stderr), what, "a checkpoint:", is_there, done.stderr)
            if failed and is_there:
                told += 1
                check(f"'flexlab train --resume {shlex.quote(out)}' resumes it" in done.stderr, what, done.stderr)
                succeed("train", "--resume", out, "--quiet", env=QUIET)
                same_results(whole, out, what)
            shutil.rmtree(out)
    check(told > 5, "only", told, "trainings failed with a checkpoint")


def test_new_folders(place, data):
    """New folders reach the disk before a checkpoint in them counts."""
    if LIBRARY == "-":
        return
    quick = ["train", "--model", "mlp2", "--data", data, "--batch", "50", "--max-steps", "2", "--threads", "1", "--quiet"]
    inject = {**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM), "FAULT_KIND": "fsync", "FAULT_ERROR": "5"}
    base, count_file = os.path.join(place, "new folders"), os.path.join(place, "count")
    out = os.path.join(base, "a", "b")
    os.makedirs(out)
    succeed(*quick, "--out", out, env={**inject, "FAULT_AT": "0", "FAULT_COUNT": count_file})
    there = int(read(count_file))
    shutil.rmtree(base)
    os.mkdir(base)
    succeed(*quick, "--out", out, env={**inject, "FAULT_AT": "0", "FAULT_COUNT": count_file})
    check(int(read(count_file)) == there + 2, "two folders made, synchronised", int(read(count_file)) - there)
    for made, at, folder in ((base, 1, base), (base, 2, os.path.join(base, "a")), (out, 1, out)):  # out: all but flexlab.resume
        shutil.rmtree(base)
        os.makedirs(made)
        done = run(*quick, "--out", out, env={**inject, "FAULT_AT": str(at)})
        check(done.returncode == 1 and f"cannot synchronise {folder}: " in done.stderr, at, folder, done.returncode, done.stderr)
    shutil.rmtree(base)


def failed_training(out, data, *more, cwd=None, at=7):
    """Makes a training of 4 epochs of 20 steps fail because its seventh file cannot be renamed, so that it can be
    resumed."""
    options = ["train", "--model", "mlp2", "--data", data, "--batch", "10", "--epochs", "4", "--threads", "1", "--format", "flex16+5", "--quiet",
               "--checkpoint-every", "8", "--allow-divergence", *more]
    inject = {**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM), "FAULT_KIND": "rename", "FAULT_AT": str(at), "FAULT_ERROR": "28"}
    done = run(*options, "--out", out, env=inject, cwd=cwd)
    resume = os.path.join(out, "flexlab.resume", "resume.safetensors")
    check(done.returncode == 1 and os.path.exists(resume), "a checkpoint", done.returncode, done.stderr)
    return options, resume


def test_command_line(place, data):
    """The command line in metrics.jsonl of a resumed training can be typed, and gives the same results."""
    if LIBRARY == "-":
        return
    out, typed = os.path.join(place, "went on"), os.path.join(place, "it's typed")
    failed_training(out, data, "--lr", "0.02", "--average-last", "9")
    succeed("train", "--resume", out, "--quiet", "--checkpoint-every", "5", "--threads", "2", env=QUIET)
    words = shlex.split(json.loads(read(out, "metrics.jsonl").splitlines()[0])["command_line"])
    check(words[:2] == ["flexlab", "train"] and not any(w.startswith("--resume") for w in words), words)
    check({"--out=" + out, "--lr=0.02", "--checkpoint-every=5", "--threads=2", "--data=" + data} <= set(words), words)
    succeed(*["--out=" + typed if w.startswith("--out=") else w for w in words[1:]], env=QUIET)
    same_results(out, typed, "as typed again")
    shutil.rmtree(out)
    shutil.rmtree(typed)


def test_relative_data(place, data):
    if LIBRARY == "-":
        return
    out, elsewhere = os.path.join(place, "relative"), os.path.join(place, "elsewhere")
    os.mkdir(elsewhere)
    failed_training(out, "idx:" + os.path.relpath(data[len("idx:"):], place), cwd=place)
    done = run("train", "--resume", out, "--quiet", env=QUIET, cwd=elsewhere)
    check(done.returncode == 1 and "relative to the folder in which the training began" in done.stderr, done.stderr)
    succeed("train", "--resume", out, "--quiet", env=QUIET, cwd=place)
    shutil.rmtree(out)


def test_changed_lists(place, data):
    """Edits the state of a run that the program stores: more records than there were steps are refused, because they
    belong to other steps."""
    out, changed = os.path.join(place, "lists"), os.path.join(place, "changed.safetensors")
    tensors, notes = witness.read(stopped_training(out, data))
    notes.pop("flexlab.crc32")
    numbers = witness.values(("F64", None, tensors["training.caller"][2]))
    head, each_window, (windows, epochs) = 14, 6, (int(n) for n in numbers[6:8])
    steps, size, each = int(notes["network.steps"]), int(numbers[head + 1]), int(numbers[head + each_window * windows + 1])
    check(windows > 0 and epochs > 0 and numbers[head] == size and steps == size * windows + numbers[2], numbers[:24], steps)
    first, rest = numbers[head:head + each_window * windows], numbers[head + each_window * windows + 7 * epochs:]
    lines = numbers[head + each_window * windows:head + each_window * windows + 7 * epochs]

    def refused(what, *words, of=None, **changes):
        kept = list(of[0]) if of else list(numbers[:head])
        for place_in_head, value in changes.items():
            kept[int(place_in_head[1:])] = value
        all_numbers = kept + (list(of[1]) if of else numbers[head:])
        kept_bytes = struct.pack(f"<{len(all_numbers)}d", *all_numbers)
        mended = [(n, *(t if n != "training.caller" else ("U8", [len(kept_bytes)], kept_bytes))) for n, t in tensors.items()]
        with open(changed, "wb") as file:
            file.write(witness.write_bytes(mended, notes))
        again = os.path.join(place, "changed")
        done = run("train", "--resume", changed, "--data", data, "--out", again, "--quiet")
        check(done.returncode == 1 and all(word in done.stderr for word in words), what, done.returncode, done.stderr)
        shutil.rmtree(again, ignore_errors=True)

    none = "is not the state of the program"
    # windows of later steps, as many as the whole run may have
    more = [n for i in range(windows, 10 * windows) for n in ((i + 1) * size, size, 2.0, 0.1, 0, 2.0)]
    refused("more windows", "the network has", of=(numbers[:6] + [10 * windows] + numbers[7:head], first + more + lines + rest))
    refused("two more epochs", none, of=(numbers[:7] + [epochs + 2] + numbers[8:head],
                                         first + lines + [n for i in (1, 2) for n in (epochs + i, (epochs + i) * each, 2.0, 0.1, 2.0, 0.1, 1.0)] + rest))
    refused("one epoch fewer", f"{epochs - 1} epochs", "the network has",
            of=(numbers[:7] + [epochs - 1] + numbers[8:head], first + lines[:-7] + rest))
    refused("a window's step", none, of=(numbers[:head], [first[0] - 1] + first[1:] + lines + rest))
    refused("a window's size", none, of=(numbers[:head], first[:1] + [first[1] - 1] + first[2:] + lines + rest))
    refused("a window's losses", none, of=(numbers[:head], first[:4] + [size + 1] + first[5:] + lines + rest))
    refused("an epoch's step", none, of=(numbers[:head], first + lines[:1] + [lines[1] + 1] + lines[2:] + rest))
    refused("the window under way", "the network has", _2=(numbers[2] + 1) % size)
    refused("NaN windows", none, _6=math.nan)
    refused("losses that are not finite", none, _13=size)
    refused("an infinite sum", none, _12=math.inf)


def test_lost_best(place, data):
    """A message says that the best network is not beside the checkpoint; without hard links a copy is made."""
    if LIBRARY == "-":
        return
    out, other = os.path.join(place, "lost"), os.path.join(place, "lost elsewhere")
    _, resume = failed_training(out, data, "--figures")
    check(steps_in(resume) > 20 and os.path.exists(os.path.join(out, "flexlab.resume", "best.safetensors")), "no epoch is over")
    alone = os.path.join(place, "alone.safetensors")
    shutil.copy(resume, alone)
    done = succeed("train", "--resume", alone, "--data", data, "--quiet", "--out", other, env=QUIET)
    check(f"there is no {os.path.join(place, 'best.safetensors')}: " in done.stderr, done.stderr)
    shutil.rmtree(other)
    # gnuplot is called when the networks are among the results, but the results are not yet in their places.
    tools = os.path.join(place, "tools")
    os.mkdir(tools)
    with open(os.path.join(tools, "gnuplot"), "w") as file:
        file.write(f"#!/bin/sh\n/bin/ls '{os.path.join(out, 'flexlab.resume')}' > '{tools}/seen'\nexit 1\n")
    os.chmod(os.path.join(tools, "gnuplot"), 0o755)
    done = run("train", "--resume", out, "--quiet", env={"PATH": tools, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM),
                                                          "FAULT_KIND": "link", "FAULT_AT": "1", "FAULT_ERROR": "1", "FAULT_LASTING": "1"})
    check("there is no" not in done.stderr, done.stderr)
    seen = read(tools, "seen").decode().split()
    check({"best.safetensors", "last.safetensors", "resume.safetensors"} <= set(seen), "the checkpoint is not whole:", seen)
    apart = os.listdir(os.path.join(out, "flexlab.incomplete"))  # because figures are missing
    check({"best.safetensors", "last.safetensors"} <= set(apart), apart, done.stderr)
    shutil.rmtree(out)


def test_metrics_fail(place, data):
    """If the lines before the checkpoint cannot be written again, the message does not blame the checkpoint, which
    remains."""
    if LIBRARY == "-":
        return
    out, blamed = os.path.join(place, "metrics fail"), 0
    _, resume = failed_training(out, data)
    for n in range(2, 9):
        done = run("train", "--resume", out, "--quiet", env={**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM),
                                                             "FAULT_KIND": "write", "FAULT_AT": str(n), "FAULT_ERROR": "28"})
        check(done.returncode == 1 and "is not the state of the program" not in done.stderr, n, done.returncode, done.stderr)
        check(os.path.exists(resume) and "resumes it" in done.stderr, n, done.stderr)
        blamed += "metrics.jsonl.part: No space" in done.stderr
    check(blamed > 3, "only", blamed, "times metrics.jsonl")
    shutil.rmtree(out)


def test_same_folder(place, data):
    """--resume and --out name the same folder, by any path and with --force: its checkpoint is resumed, not removed."""
    out = os.path.join(place, "flexlab-results")
    resume = stopped_training(out, data)
    link = os.path.join(place, "a link")
    os.symlink(out, link)
    for arguments in (["--resume", out, "--out", out, "--force"], ["--resume", resume, "--out", out, "--force"], ["--resume", resume, "--force"],
                      ["--resume", resume], ["--resume", link, "--out", out, "--force"], ["--resume", out, "--out", link + "/.", "--force"]):
        before = steps_in(resume)
        check(before > 0, arguments, "no checkpoint")
        go_on_a_little(arguments, resume, cwd=place)
        check(steps_in(resume) > before, arguments, "the checkpoint is gone, or was not gone on with:", before, steps_in(resume))
    os.remove(link)
    shutil.rmtree(out)


def test_faults(place, data):
    """The n-th write, fsync, rename, ... of a training fails: it reports that or succeeds, and can be resumed with the
    same results."""
    if LIBRARY == "-":
        print("the library that makes calls fail is not there: no faults")
        return
    options = ["train", "--model", "mlp2", "--data", data, "--batch", "50", "--epochs", "2", "--threads", "1", "--format", "flex16+5", "--quiet",
               "--checkpoint-every", "2", "--allow-divergence"]
    whole = os.path.join(place, "undisturbed")
    succeed(*options, "--out", whole, env=QUIET)
    inject = {**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM)}
    out, count_file = os.path.join(place, "faults"), os.path.join(place, "count")
    for kind, errors in (("write", (28, 4, 0)), ("fsync", (5,)), ("rename", (5,)), ("open", (24,)), ("close", (5,)), ("mkdir", (28,)),
                         ("unlink", (5,)), ("memory", (12,))):
        succeed(*options, "--out", out, env={**inject, "FAULT_KIND": kind, "FAULT_AT": "0", "FAULT_COUNT": count_file})
        shutil.rmtree(out)
        calls = int(read(count_file))
        wanted = calls if LONG and kind != "memory" else 300 if LONG else 7
        for n in sorted({1 + round(i * (calls - 1) / max(1, wanted - 1)) for i in range(wanted)}):
            number = errors[n % len(errors)]
            what = (f"FAULT_KIND={kind} FAULT_AT={n} FAULT_ERROR={number}",)
            done = run(*options, "--out", out, env={**inject, "FAULT_KIND": kind, "FAULT_AT": str(n), "FAULT_ERROR": str(number)})
            check(done.returncode in (0, 1), *what, done.returncode, done.stderr)
            check(done.returncode == 0 or len(done.stderr) > 12, *what, "says nothing")
            resume = os.path.join(out, "flexlab.resume", "resume.safetensors")
            again = None
            if os.path.exists(resume):
                check(witness.read(resume)[1]["flexlab.crc32"] == witness.checksum(resume), *what, "a torn checkpoint")
                again = run("train", "--resume", out, "--quiet", "--allow-divergence", "--threads", "1", env=QUIET)
            elif done.returncode:
                again = run(*options, "--out", out, "--force", env=QUIET)
            check(not again or again.returncode == 0, *what, "the next one:", again and again.stderr)
            for left in (".flexlab-lock", "flexlab.incomplete"):
                path = os.path.join(out, left)
                if os.path.isdir(path):
                    shutil.rmtree(path)
                elif os.path.exists(path):
                    os.remove(path)
            same_results(whole, out, *what)
            shutil.rmtree(out)


def main():
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as place:
        data = small_images(place)
        test_kills(place, data)
        test_eval(place, data)
        test_boasting_files(place, data)
        test_refusals(place, data)
        test_signals(place, data)
        test_same_folder(place, data)
        test_command_line(place, data)
        test_relative_data(place, data)
        test_lost_best(place, data)
        test_changed_lists(place, data)
        test_metrics_fail(place, data)
        test_new_folders(place, data)
        test_disk_full(place, data)
        test_options_stay(place, data)
        test_other_data(place, data)
        test_faults(place, data)
    print("seed", SEED)
    return summary()


sys.exit(main())
