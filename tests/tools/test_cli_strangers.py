#!/usr/bin/env python3
"""Files made by a stranger: their contents are text and never the name of a file to open, and they cause no allocation
for missing contents. usage: test_cli_strangers.py PATH-OF-FLEXLAB SOURCE"""
import json
import os
import pathlib
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import safetensors_witness as witness
from cli_harness import PROGRAM, TINY, check, read_lines, run, succeed, summary
from resumed import QUIET, same_results, small_images

SECRET = "the first line of a file that is nobody else's business"


def changed(path, to, **notes):
    """Writes the file with other notes (None: without the note), and without a checksum."""
    tensors, before = witness.read(path)
    before.pop("flexlab.crc32", None)
    after = {**before, **{key.replace("__", "."): value for key, value in notes.items()}}
    with open(to, "wb") as file:
        file.write(witness.write_bytes([(n, *t) for n, t in tensors.items()], {k: v for k, v in after.items() if v is not None}))
    return str(to)


def refused(arguments, *parts, lacks=(), **more):
    """Checks that the program refuses the file soon, whatever it names."""
    done = run(*arguments, timeout=60, env=QUIET, **more)
    check(done.returncode in (1, 2) and done.stderr.count("\n") == 1, done.shown, done.returncode, done.stderr)
    for part in parts:
        check(part in done.stderr, done.shown, "wants", part, "in", done.stderr)
    for part in (SECRET, *lacks):
        check(part not in done.stderr, done.shown, "shows", part, "in", done.stderr)


def within(bytes_):
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_)) if LIMITED else None


LIMITED = True
LIMITED = run("info", prepare=within(600 << 20)).returncode == 0  # with a sanitizer the program maps terabytes
if not LIMITED:
    print("the program does not start within 600 MiB: what files ask for is not limited")


def killed(arguments, out, kept):
    """Kills the program when the file exists."""
    for _ in range(20):
        child = subprocess.Popen([PROGRAM, *arguments, "--out", str(out), "--force"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env={**os.environ, **QUIET})
        while child.poll() is None and not kept.exists():
            time.sleep(0.0005)
        child.kill()
        child.wait(60)
        if kept.exists():
            return
    raise AssertionError(f"{arguments} were over before {kept} was seen")


def given_away(path):
    """Whether the file now belongs to another user, which only root can achieve, and not in every user namespace."""
    try:
        os.chown(path, 12345, 12345)
    except OSError as why:
        print(f"{path} stays the caller's ({why}): files of another user are not tried")
        return False
    return True


def stopped(folder, data):
    """A training that was killed after its first checkpoint; returns its folder, the checkpoint, a copy of it
    elsewhere, and the results of an uninterrupted training."""
    out, whole, alone = folder / "run", folder / "whole", folder / "kept.safetensors"
    arguments = ["train", "--model", "mlp2", "--data", data, "--batch", "25", "--epochs", "20", "--threads", "1", "--lr", "0.01",
                 "--checkpoint-every", "6", "--no-trace", "--quiet"]
    succeed(*arguments, "--out", str(whole), env=QUIET)
    kept = out / "flexlab.resume" / "resume.safetensors"
    killed(arguments, out, kept)
    shutil.copy(kept, alone)
    return out, kept, alone, whole


def policies(folder, network, data):
    """A policy in a file consists of its rules: no file of that name is opened, and nothing waits for one."""
    secret, fifo = folder / "secret", folder / "fifo"
    secret.write_text(SECRET + "\n")
    os.mkfifo(fifo)
    for name in (secret, fifo, folder, "/nowhere"):
        file = changed(network, folder / "policy.safetensors", network__policy=str(name))
        refused(["eval", "--checkpoint", file, "--data", data], "'network.policy'", "expected its rules")
    # a policy that the user names may be a file
    rules = folder / "rules"
    rules.write_text("variant fp16\nfc2 format=fp32\n")
    succeed("train", *TINY, "--max-steps", "2", "--policy", str(rules), "--out", str(folder / "own"), "--quiet", env=QUIET)
    succeed("eval", "--checkpoint", str(folder / "own" / "last.safetensors"), "--data", "synthetic:train=96,test=40")


def goes_on(folder, data):
    """--resume FILE: its options name data, weights and policies."""
    out, kept, alone, whole = stopped(folder, data)
    secret, fifo, other = folder / "secret", folder / "fifo", folder / "other"
    words = witness.read(alone)[1]["flexlab.arguments"]
    quiet = ["--quiet", "--out", str(other)]
    for spec in ("text:" + str(fifo), "text:" + str(secret), "npy:" + ",".join([str(fifo)] * 4), data, "synthetic"):
        file = changed(alone, folder / "data.safetensors", flexlab__arguments=words.replace("--data=" + data, "--data=" + spec))
        refused(["train", "--resume", file, *quiet], "not in a results folder of yours", f"--data '{spec}'", "expected --data")
    for more in (["--policy=" + str(secret)], ["--policy=" + str(fifo)], ["--format=policy:" + str(fifo)]):
        file = changed(alone, folder / "rules.safetensors", flexlab__arguments=" ".join([words, *more]))
        refused(["train", "--resume", file, "--data", data, *quiet], "its options name a policy")
    for name in (secret, fifo):
        file = changed(alone, folder / "rules.safetensors", flexlab__arguments=words + " --policy=O2", network__policy=str(name))
        refused(["train", "--resume", file, "--data", data, *quiet], "the policy", "expected its rules")
    for option in ("--help", "--resume=x"):
        file = changed(alone, folder / "again.safetensors", flexlab__arguments=option)
        (folder / "again").mkdir(exist_ok=True)
        shutil.copy(file, folder / "again" / "last.safetensors")
        for command in (["train", "--resume", file, "--data", data, *quiet], ["what-if", str(folder / "again"), "--formats", "fp16"]):
            refused(command, f"contains {option.split('=')[0]}, expected options with which 'flexlab train' begins")
    file = changed(alone, folder / "weights.safetensors", flexlab__arguments=words + " --weights=" + str(fifo))
    succeed("train", "--resume", file, "--data", data, *quiet, env=QUIET, timeout=60)  # the checkpoint has the weights: nothing is opened
    shutil.rmtree(other)
    # The same data elsewhere, which the results then name; other data are refused.
    moved, images = folder / "moved", pathlib.Path(data[len("idx:"):])
    shutil.copytree(images, moved)
    succeed("train", "--resume", str(alone), "--data", f"idx:{moved}", *quiet, env=QUIET)
    check(read_lines(other)[0]["data"]["specification"] == f"idx:{moved}", read_lines(other)[0]["data"])
    shutil.copytree(images, folder / "less")
    labels = folder / "less" / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\x03" if labels.read_bytes()[-1] != 3 else labels.read_bytes()[:-1] + b"\x04")
    done = run("train", "--resume", str(alone), "--data", f"idx:{folder / 'less'}", *quiet, "--force", env=QUIET)
    check(done.returncode == 1 and "'training.data'" in done.stderr, done.returncode, done.stderr)
    # A folder of one's own needs no --data, by whatever name, and the program reports what it reads; that of another
    # user needs it.
    link = folder / "link.safetensors"
    link.symlink_to(kept)
    if given_away(kept):
        refused(["train", "--resume", str(out), "--quiet"], "not in a results folder of yours", f"--data '{data}'")
        os.chown(kept, 0, 0)
    done = run("train", "--resume", str(link), "--out", str(folder / "by-link"), env=QUIET)
    check(done.returncode == 0 and f"resuming with --data '{data}'" in done.stderr, done.returncode, done.stderr)
    done = run("train", "--resume", str(out), "--data", f"idx:{moved}", env=QUIET)
    check(done.returncode == 0 and "resuming with" not in done.stderr, done.returncode, done.stderr)
    check(read_lines(out)[0]["data"]["specification"] == f"idx:{moved}", read_lines(out)[0]["data"])
    same_results(str(whole), str(folder / "by-link"), "by a link:")


def forged(network, to, batch):
    """A file that names another batch, consistently in its input and its options."""
    tensors, notes = witness.read(network)
    notes.pop("flexlab.crc32")
    words = [f"--batch={batch}" if word.startswith("--batch=") else word for word in notes.get("flexlab.arguments", "").split()]
    if words:
        notes["flexlab.arguments"] = " ".join(words)
    numbers = witness.values(tensors["input.slot"])
    numbers[17] = numbers[17] // int(notes["network.batch"]) * batch
    tensors["input.slot"] = ("I64", [25], struct.pack("<25q", *numbers))
    with open(to, "wb") as file:
        file.write(witness.write_bytes([(n, *t) for n, t in tensors.items()], {**notes, "network.batch": str(batch)}))
    return str(to)


def memory(folder, data):
    """A file that exaggerates is refused before memory is allocated for it."""
    network, boasts = folder / "cnn6" / "best.safetensors", folder / "boasts.safetensors"
    succeed("train", *TINY, "--model", "cnn6", "--format", "fp16", "--out", str(folder / "cnn6"), "--quiet", env=QUIET)
    # the memory that the program maps, above all for threads, and the most that is promised for a file
    most = (600 << 20) + (64 << 20) + 64 * os.path.getsize(network)
    evaluate = ["eval", "--data", data, "--threads", "1", "--checkpoint", str(boasts)]
    for notes, part in (({"network__batch": "65536"}, "'network.batch' 65536"), ({"network__batch": "16384"}, "'network.batch' 16384"),
                        ({"training__model": "mlp2"}, "fc1.weight"), ({"training__model": "mlp900x999"}, "more weights"),
                        ({"training__model": "wrn994-9"}, "more weights"), ({"training__classes": "60000"}, "more weights"),
                        ({"training__classes": "11"}, "fc2.weight")):
        changed(network, boasts, **notes)
        refused(evaluate, part, prepare=within(most), lacks=["no memory"])
    # A consistent file is bounded by what the user allows.
    for batch, allowed, most_ in ((65536, 4, 4 << 30), (65536, 1, 1 << 30), (4000, 1, 1 << 30)):
        forged(network, boasts, batch)
        refused([*evaluate, *([] if allowed == 4 else ["--memory", str(allowed)])], f"a step of batch {batch} takes",
                f"at most {most_}", f"--memory GIB allows more than {allowed}", prepare=within(most), lacks=["no memory"])
    forged(network, boasts, 500)
    done = run(*evaluate, env=QUIET)  # this is accepted, but its other tensors belong to other layers
    check(done.returncode == 1 and "network.layout" in done.stderr, done.returncode, done.stderr)


def memory_of_trainings(folder):
    """A training of another user has the bound of `eval`: the batch is nowhere else in the file."""
    data, out, boasts = f"idx:{folder / 'many-images'}", folder / "large", folder / "boasts.safetensors"
    (folder / "many-images").mkdir()
    for name, count in (("train", 7000), ("t10k", 10)):
        for kind, head, size in (("images-idx3", (0x803, count, 32, 32), 32 * 32), ("labels-idx1", (0x801, count), 1)):
            values = bytes(i * i // 7 % (10 if size == 1 else 256) for i in range(997)) * (count * size // 997 + 1)
            (folder / "many-images" / f"{name}-{kind}-ubyte").write_bytes(struct.pack(f">{len(head)}I", *head) + values[:count * size])
    kept = out / "flexlab.resume" / "resume.safetensors"
    begun = ["--data", data, "--model", "cnn6", "--batch", "4", "--checkpoint-every", "1", "--threads", "1", "--no-trace", "--quiet"]
    killed(["train", *begun, "--format", "fp32"], out, kept)
    most = (600 << 20) + (64 << 20) + 64 * os.path.getsize(kept)
    goes_on = ["train", "--resume", str(boasts), "--data", data, "--threads", "1", "--quiet", "--out", str(folder / "grown")]
    for batch, allowed in ((7000, 4), (2000, 1)):
        forged(kept, boasts, batch)
        done = run(*goes_on, *([] if allowed == 4 else ["--memory", str(allowed)]), prepare=within(most), env=QUIET)
        check(done.returncode == 1 and f"a step of batch {batch} takes" in done.stderr and f"expected at most {allowed << 30}" in done.stderr and
              f"--memory GIB allows more than {allowed}\n" in done.stderr, batch, done.returncode, done.stderr)
    forged(kept, boasts, 500)
    done = run(*goes_on, "--memory", "1", env=QUIET)  # this is accepted, but its other tensors belong to other layers
    check(done.returncode == 1 and "network.layout" in done.stderr, done.returncode, done.stderr)
    # Memory in the options of a file is not a permission of the user.
    forged(kept, boasts, 7000)
    changed(boasts, boasts, flexlab__arguments=witness.read(boasts)[1]["flexlab.arguments"] + " --memory=1000")
    done = run(*goes_on, prepare=within(most), env=QUIET)
    check(done.returncode == 1 and "--memory: expected only with --resume" in done.stderr and
          "contains the option that is refused above, expected those with which 'flexlab train' begins" in done.stderr, done.returncode, done.stderr)
    # A training of one's own is bounded only by the machine, unless the command line has a bound.
    forged(kept, boasts, 7000)
    shutil.copy(boasts, kept)
    own = ["train", "--resume", str(out), "--threads", "1", "--quiet"]
    done = run(*own, "--memory", "2", prepare=within(most), env=QUIET)
    check(done.returncode == 1 and "--memory GIB allows more than 2" in done.stderr, done.returncode, done.stderr)
    if LIMITED:
        done = run(*own, prepare=within(most), env=QUIET)
        check(done.returncode == 1 and "expected at most" not in done.stderr and "memory" in done.stderr, done.returncode, done.stderr)
    if os.geteuid() == 0:  # several runs, of another user
        several, options = folder / "several", folder / "several" / "flexlab.resume" / "options"
        killed(["compare", *begun, "--formats", "fp32", "--seeds", "2"], several, options)
        for run_ in options.parent.iterdir():
            if run_.is_dir():
                shutil.rmtree(run_)
        options.write_text(options.read_text().replace("--batch=4 ", "--batch=7000 "))
        if given_away(options):
            done = run("compare", "--resume", str(several), "--data", data, "--threads", "1", "--quiet", prepare=within(most), env=QUIET)
            check(done.returncode == 1 and "a step of batch 7000 takes" in done.stderr and "--memory GIB allows more than 4\n" in done.stderr,
                  done.returncode, done.stderr)
    for command in ("train", "compare"):
        done = run(command, *TINY, "--memory", "1", "--out", str(folder / "none"))
        check(done.returncode == 2 and "--memory: expected only with --resume" in done.stderr, done.returncode, done.stderr)


def preset(folder, data):
    """If a file has the name of a preset as its policy, that is the policy, for `eval` and for --resume."""
    out, named, kept = folder / "preset", folder / "named.safetensors", folder / "preset" / "flexlab.resume" / "resume.safetensors"
    killed(["train", "--model", "mlp2", "--data", data, "--batch", "25", "--epochs", "20", "--policy", "O2", "--checkpoint-every", "6", "--quiet"], out, kept)
    changed(kept, named, network__policy="O2")
    told, rules = (succeed("eval", "--checkpoint", str(file), "--data", data).stdout.splitlines()[1:] for file in (named, kept))
    check(told == rules and told, told, rules)
    succeed("train", "--resume", str(named), "--data", data, "--quiet", "--out", str(folder / "by-name"), env=QUIET)
    succeed("train", "--resume", str(kept), "--quiet", "--out", str(folder / "by-rules"), env=QUIET)
    same_results(str(folder / "by-rules"), str(folder / "by-name"), "the name of a preset:")
    changed(kept, named, network__policy="O9")
    for words in (["eval", "--checkpoint"], ["train", "--quiet", "--out", str(folder / "none"), "--resume"]):
        refused([*words, str(named), "--data", data], "'O9', expected its rules, with ';' after each, or the name of a preset")


def many_runs(folder):
    """A metrics.jsonl of a megabyte that claims millions of runs."""
    results = folder / "many"
    results.mkdir()
    lines = (folder / "network" / "metrics.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    format_ = first["formats"][0]
    first["formats"] = [{**format_, "name": f"policy:{i}", "policy": "variant fp32;"} for i in range(3000)]
    first["seeds"] = list(range(1000))
    (results / "metrics.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    refused(["report", str(results)], "3000 formats with 1000 seeds, expected at most 50000 runs", prepare=within(600 << 20))


def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as place:
        folder = pathlib.Path(place)
        data, images = "synthetic:train=96,test=40", small_images(place)
        succeed("train", *TINY, "--format", "fp32", "--out", str(folder / "network"), "--quiet", env=QUIET)
        network = folder / "network" / "best.safetensors"
        policies(folder, network, data)
        goes_on(folder, images)
        preset(folder, images)
        memory(folder, data)
        memory_of_trainings(folder)
        many_runs(folder)
    return summary()


sys.exit(main())
