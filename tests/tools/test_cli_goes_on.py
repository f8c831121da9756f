#!/usr/bin/env python3
"""Comparisons, and trainings with several seeds, that are killed at random moments and resumed: results are, byte for
byte except for times, those of an uninterrupted one. Signals, options that may be given anew, what is refused, renames
that fail.

    test_cli_goes_on.py PATH-OF-FLEXLAB PATH-OF-INJECT-LIBRARY|- [long] [SEED]"""
import glob
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import safetensors_witness as witness
from cli_harness import PROGRAM, check, expect_error, read_csv, read_lines, run, succeed, summary
from resumed import QUIET, killed_after, lines, read, same_results, small_images

LIBRARY = sys.argv[2] if sys.argv[2] == "-" else os.path.abspath(sys.argv[2])
LONG = "long" in sys.argv[3:]
SEED = next((int(a) for a in sys.argv[3:] if a.isdigit()), int(time.time()))
rng = random.Random(SEED)


def options_of(data):
    """One run of each kind: floats, a scaled loss, shared exponents with traces, a policy; telemetry, the loss of every
    step."""
    return ["--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "8", "--threads", "1", "--quiet", "--lr", "0.02", "--seeds", "2",
            "--allow-divergence", "--checkpoint-every", "9", "--formats", "fp32,fp16,flex16+5", "--policy", "O1:bf16", "--trace-every", "7",
            "--telemetry", "11:fc1*", "--step-loss"]


def checkpoints(out):
    return sorted(glob.glob(os.path.join(glob.escape(out), "flexlab.resume", "run-*", "resume.safetensors")))


def steps_in(file):
    return int(witness.read(file)[1]["network.steps"])


def kill_until_done(out, command, options, longest, *what):
    """Starts, kills and resumes until all is trained; returns how often it was killed, and how often it was resumed."""
    kills, gone_on = 0, 0
    for attempt in range(400):
        if os.path.exists(os.path.join(out, "flexlab.resume", "options")):
            gone_on += bool(checkpoints(out))
            arguments = [command, "--resume", out, "--quiet", "--threads", rng.choice("12")]
        else:
            arguments = [command, *options, "--out", out, "--force"]
        status, stderr = killed_after(rng.uniform(0.01, 0.5 * longest) + 0.002 * attempt, *arguments)
        if status is not None:
            check(status == 0, *what, arguments, status, stderr)
            return kills, gone_on
        kills += 1
        for file in checkpoints(out):
            check(witness.read(file)[1]["flexlab.crc32"] == witness.checksum(file), *what, "a torn checkpoint", file)
    check(False, *what, "is never done")
    return kills, gone_on


def test_kills(place, data):
    kills, gone_on = 0, 0
    for name, command, options in (("turns", "compare", options_of(data)), ("one by one", "compare", [*options_of(data), "--one-by-one"]),
                                   ("seeds", "train", ["--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "12", "--format", "dfp16",
                                                       "--seeds", "3", "--seed-base", "5", "--quiet", "--threads", "1"])):
        whole = os.path.join(place, "whole " + name)
        began = time.time()
        succeed(command, *options, "--out", whole, env=QUIET)
        took = time.time() - began
        check(not any(n.endswith(".safetensors") or n == "flexlab.resume" for n in os.listdir(whole)), name, "leaves", os.listdir(whole))
        bare = os.path.join(place, "bare " + name)
        kept = [o for i, o in enumerate(options) if "--checkpoint-every" not in (o, options[i - 1])]
        succeed(command, *kept, "--no-checkpoint", "--out", bare, env=QUIET)
        same_results(whole, bare, name, "without checkpoints:")
        for i in range(25 if LONG else 2):
            pieces = os.path.join(place, f"pieces {name} {i}")
            what = (f"seed {SEED}: {name} {i}",)
            k, g = kill_until_done(pieces, command, options, took, *what)
            kills, gone_on = kills + k, gone_on + g
            same_results(whole, pieces, *what, f"killed {k} times, went on {g} times:")
            # Times include all steps: the first step after each resume is not timed, and those after the last
            # checkpoint are made again.
            for run_line in (line for line in read_lines(pieces) if line["type"] == "run"):
                timed, steps = run_line["timed"], run_line["steps"]
                check(steps - steps // 10 - k <= timed <= steps, *what, run_line["format"], timed, "of", steps, "steps timed, killed", k, "times")
                check(run_line["seconds"] <= run_line["wall_seconds"] < 600, *what, run_line["seconds"], run_line["wall_seconds"])
            shutil.rmtree(pieces)
    check(kills >= 6 and gone_on >= 4, "killed", kills, "times, went on", gone_on, "times alone")
    print(f"killed {kills} times, went on {gone_on} times", flush=True)


def start(out, *arguments):
    return subprocess.Popen([PROGRAM, *arguments, *(["--out", out] if out else [])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, **QUIET})


def stopped(out, data, number=signal.SIGINT, formats="fp32,flex16+5"):
    """Stops a comparison when every format has made some steps; its folder has the checkpoints."""
    child = start(out, "compare", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "90000", "--threads", "1", "--lr", "0.001",
                  "--no-trace", "--formats", formats, "--checkpoint-every", "500")
    seen = set()
    for line in child.stderr:
        seen |= {line.split("]")[1].split()[0]} if "epoch 2/" in line else set()
        if len(seen) == len(formats.split(",")):
            break
    child.send_signal(number)
    stdout, stderr = child.communicate(timeout=60)
    check(child.returncode == 128 + number, "status", child.returncode, stderr)
    check(stderr.count(f"'flexlab compare --resume {shlex.quote(out)}' resumes it") == 1, "is told once how to go on:", stderr)
    check(len(checkpoints(out)) == len(seen), "checkpoints:", checkpoints(out))
    return stdout


def test_signals(place, data):
    out = os.path.join(place, "signal")
    stopped(out, data, signal.SIGTERM)
    before = {file: steps_in(file) for file in checkpoints(out)}
    told = {line["format"]: line["steps"] for line in lines(out) if line["type"] == "run"}
    for name, steps in told.items():
        file = os.path.join(out, "flexlab.resume", f"run-{name}-seed1", "resume.safetensors")
        check(before[file] == steps > 0, name, "the checkpoint is of step", before[file], "the results of", steps)
    check([row["stopped_step"] for row in read_csv(out, "summary.csv")] == [str(told[n]) for n in ("fp32", "flex16+5")], "summary.csv", told)
    # It is not overwritten without --force.
    expect_error(["compare", "--data", data, "--out", out], 1, "already holds results")
    for file in os.listdir(out):
        if os.path.isfile(os.path.join(out, file)):
            os.remove(os.path.join(out, file))
    for command in ("train", "compare"):
        expect_error([command, "--data", data, "--out", out], 1, "holds checkpoints of a comparison that is not over",
                     f"'flexlab compare --resume {out}' resumes it")
    check({file: steps_in(file) for file in checkpoints(out)} == before, "the checkpoints have changed")
    # It is resumed, further each time; a signal before the first step loses nothing.
    for seconds in (0.0, 0.02, 0.6):
        child = start(None, "compare", "--resume", out)
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=60)
        now = {file: steps_in(file) for file in checkpoints(out)}
        check(set(now) == set(before) and all(now[f] >= before[f] for f in now), seconds, before, now)
        before = now
    check(all(steps_in(f) > told[n] for n in told for f in checkpoints(out) if f"run-{n}-" in f), "it did not go on", told, before)
    # With --force it begins anew, and all of it is removed.
    succeed("compare", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "1", "--max-steps", "3", "--quiet", "--out", out, "--force",
            env=QUIET)
    check("flexlab.resume" not in os.listdir(out), "--force left", os.listdir(out))


def kept_options(out):
    return read(out, "flexlab.resume", "options").decode()


def test_options(place, data):
    """--checkpoint-every, --allow-divergence and --device remain as given unless they are given anew; others are
    refused."""
    out = os.path.join(place, "options stay")
    stopped(out, data, formats="fp32,dfp16")
    check("--checkpoint-every=500" in kept_options(out).split() and kept_options(out).startswith("compare "), kept_options(out))
    for arguments, every in (([], "500"), (["--checkpoint-every=70"], "70"), (["--allow-divergence"], "70")):
        child = start(None, "compare", "--resume", out, *arguments)
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=60)
        check(child.returncode == 130, child.returncode, stderr)
        words = kept_options(out).split()
        check(f"--checkpoint-every={every}" in words and ("--allow-divergence" in words) == (arguments == ["--allow-divergence"]), arguments, words)
    command = read_lines(os.path.join(out, "flexlab.incomplete"))[0]["command_line"]
    check(command.startswith("flexlab compare --model=mlp2") and "--resume" not in command and f"--out={out}" in command.replace("'", ""), command)
    expect_error(["compare", "--resume", out, "--formats", "fp32"], 2, "--formats: not with --resume")
    expect_error(["compare", "--resume", out, "--no-checkpoint"], 2, "--no-checkpoint: not with --resume")
    expect_error(["compare", "--resume", out, "--out", place], 2, "several runs resume in the folder that --resume names", out)
    expect_error(["train", "--resume", out], 1, "there is a comparison under way", "'flexlab compare --resume'")
    expect_error(["compare", "--resume", place], 1, "no comparison is under way there")
    expect_error(["compare", "--resume", checkpoints(out)[0]], 1, "is no folder, expected the folder of a comparison's results")
    expect_error(["compare", "--resume", "/nowhere"], 1, "/nowhere", "No such file", "expected the folder")
    # A checkpoint belongs to its run: another one in its place, a torn one, and options of another network are refused,
    # and nothing is lost.
    first, second = checkpoints(out)
    whole = read(first)
    for content, part in ((read(second), "'network.variant'"), (whole[:-5], "safetensors: ")):
        with open(first, "wb") as file:
            file.write(content)
        done = run("compare", "--resume", out, "--quiet", env=QUIET, timeout=60)
        check(done.returncode == 1 and part in done.stderr and first in done.stderr, part, done.returncode, done.stderr)
        check(read(first) == content and os.path.exists(second), part, "a checkpoint has changed")
    with open(first, "wb") as file:
        file.write(whole)
    options = os.path.join(out, "flexlab.resume", "options")
    good = read(options)
    for content, part in ((good.replace(b"--batch=8", b"--batch=9"), "'network.batch'"), (b"compare --epochs=x\n- -\n", "--epochs 'x'"),
                          (b"compare\n", "a line each"), (good[:-1], "a line each"), (good.replace(b"-", b"\0"), "not a text, or too long"),
                          (b"compare \x01\n- -\n", "contains no options of 'flexlab compare'"), (b"compare --resume=x\n- -\n", "contains --resume, expected options with which 'flexlab compare' begins"),
                          (b"compare --help\n- -\n", "contains --help, expected options"), (b"compare --epoch=3\n- -\n", "option '--epoch' is not a whole name, expected --epochs"),
                          (b"compare --memory=9\n- -\n", "--memory: expected only with --resume"),
                          (b"compare --epochs=x\n- -\n", "options contains the option that is refused above, expected those with which 'flexlab compare' begins"),
                          (b"x" * 5000000, "not a text, or too long")):
        with open(options, "wb") as file:
            file.write(content)
        done = run("compare", "--resume", out, "--quiet", env=QUIET, timeout=60)
        check(done.returncode in (1, 2) and part in done.stderr, content[:40], done.returncode, done.stderr)
        check(checkpoints(out) == [first, second] and read(first) == whole, content[:40], "a checkpoint is lost")
    with open(options, "wb") as file:
        file.write(good)
    succeed("compare", "--resume", out, "--quiet", "--help")
    shutil.rmtree(out)


def test_policy_changes(place, data):
    """A comparison resumes with the policies with which it began, whatever their files contain by then."""
    out, policy = os.path.join(place, "policy"), os.path.join(place, "my.policy")
    with open(policy, "w") as file:
        file.write("variant fp32\nfc* operands=bf16\n")
    options = ["compare", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "150", "--threads", "1", "--lr", "0.001", "--no-trace",
               "--formats", "flex16+5,fp32", "--layer-format", "fc2=bf16", "--policy", policy + ",O1:bf16"]
    whole = os.path.join(place, "whole policy")
    succeed(*options, "--quiet", "--out", whole, env=QUIET)
    child = start(out, *options)
    for line in child.stderr:
        if "policy:my.policy" in line and "epoch" in line:
            break
    child.kill()
    child.communicate()
    check(len(checkpoints(out)) > 1, "checkpoints", checkpoints(out))
    good = kept_options(out)
    for lines_, part in ((good.splitlines()[0], "a line each"), (good.splitlines()[0] + "\n- -\n", "name a policy, but its rules are missing"),
                         (good.splitlines()[0] + "\n\n", "contains no line of policies"), (good + "more\n", "a line each")):
        with open(os.path.join(out, "flexlab.resume", "options"), "w") as file:
            file.write(lines_ + ("" if lines_.endswith("\n") else "\n"))
        done = run("compare", "--resume", out, "--quiet", env=QUIET, timeout=60)
        check(done.returncode == 1 and part in done.stderr, lines_[-30:], done.returncode, done.stderr)
    with open(os.path.join(out, "flexlab.resume", "options"), "w") as file:
        file.write(good)
    os.remove(policy)
    succeed("compare", "--resume", out, "--quiet", env=QUIET)
    same_results(whole, out, "policy")
    shutil.rmtree(out)


def test_foreign_files(place, data):
    """Files that a user has put among the checkpoints remain, and are named."""
    out = os.path.join(place, "foreign")
    stopped(out, data)
    mine = os.path.join(out, "flexlab.resume", "run-fp32-seed1", "notes.txt")
    with open(mine, "w") as file:
        file.write("mine")
    done = run("compare", "--model", "mlp2", "--data", data, "--batch", "8", "--epochs", "1", "--max-steps", "3", "--quiet", "--out", out, "--force", env=QUIET)
    check(os.path.exists(mine) and done.returncode == 1 and "run-fp32-seed1" in done.stderr, done.returncode, done.stderr)
    check(not checkpoints(out) or os.path.exists(os.path.join(out, "metrics.jsonl")), "results are lost")
    shutil.rmtree(out)


def test_faults(place, data):
    """Renames, writes and folders that fail: a resumed comparison ends with the results of an undisturbed one."""
    if LIBRARY == "-":
        return
    options = ["--model", "mlp2", "--data", data, "--batch", "20", "--epochs", "2", "--threads", "1", "--quiet", "--seeds", "2",
               "--formats", "fp32,flex16+5", "--allow-divergence"]
    whole, out, count_file = os.path.join(place, "undisturbed"), os.path.join(place, "disturbed"), os.path.join(place, "count")
    inject = {**QUIET, "LD_PRELOAD": LIBRARY, "FAULT_PROGRAM": os.path.basename(PROGRAM), "FAULT_ERROR": "28"}
    gone_on = 0
    for kind in ("rename", "write", "open"):
        succeed("compare", *options, "--out", whole, "--force", env={**inject, "FAULT_KIND": kind, "FAULT_AT": "0", "FAULT_COUNT": count_file})
        calls = int(read(count_file))
        numbers = range(1, calls + 1) if LONG else sorted(rng.sample(range(1, calls + 1), min(calls, 12)))
        for n in numbers:
            what = f"seed {SEED}: {kind} {n} of {calls}:"
            done = run("compare", *options, "--out", out, env={**inject, "FAULT_KIND": kind, "FAULT_AT": str(n)})
            check(done.returncode in (0, 1, 2), what, done.returncode, done.stderr)
            if "resumes it" in done.stderr:
                gone_on += 1
                done = run("compare", "--resume", out, "--quiet", env=QUIET)
                check(done.returncode == 0, what, "going on:", done.returncode, done.stderr)
            elif done.returncode:
                done = run("compare", *options, "--out", out, "--force", env=QUIET)
                check(done.returncode == 0, what, "anew:", done.returncode, done.stderr)
            for left in (".flexlab-lock", "flexlab.incomplete"):
                path = os.path.join(out, left)
                if os.path.isdir(path):
                    shutil.rmtree(path)
                elif os.path.exists(path):
                    os.remove(path)
            if os.path.exists(os.path.join(whole, ".flexlab-lock")):
                os.remove(os.path.join(whole, ".flexlab-lock"))
            same_results(whole, out, what)
            shutil.rmtree(out)
    check(gone_on > 3, "only", gone_on, "went on")


def main():
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base) as place:
        data = small_images(place)
        test_kills(place, data)
        test_signals(place, data)
        test_options(place, data)
        test_policy_changes(place, data)
        test_foreign_files(place, data)
        test_faults(place, data)
    print("seed", SEED)
    return summary()


sys.exit(main())
