#!/usr/bin/env python3
"""Trainings in shards on the command line: --shards 1 is the training without it; several shards have the same bits on
every number of threads and instruction set, in text and images, with every kind of optimiser state; a killed training
goes on; networks are evaluated and their report names the shards; --batchnorm global is stored, shown and resumed; what
is refused. usage: test_cli_shards.py PATH-OF-FLEXLAB"""
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cli_harness import PROGRAM, check, expect_error, read_csv, read_lines, succeed, summary  # noqa: E402
import safetensors_witness as witness  # noqa: E402
from resumed import lines, read, same_results  # noqa: E402

RESNET = ["--model", "resnet8", "--data", "synthetic:train=96,test=20", "--batch", "24", "--epochs", "1"]
GPT = ["--model", "gpt1x32", "--context", "16", "--batch", "12", "--epochs", "1", "--max-steps", "12"]
LSTM = ["--model", "lstm-char", "--context", "8", "--batch", "6", "--epochs", "1", "--max-steps", "6"]


def write_book(folder):
    words = ["the", "sum", "of", "all", "shards", "is", "rounded", "once", "and", "no", "order", "matters"]
    text = " ".join(words[(7 * i * i + 3 * i) % len(words)] for i in range(900))
    (folder / "book.txt").write_text(text)
    return f"text:{folder / 'book.txt'}"


def one_shard(folder):
    for name, more in (("plain", []), ("one", ["--shards", "1"])):
        succeed("train", *RESNET, "--format", "flex16+5", *more, "--out", str(folder / name))
    check(lines(folder / "plain") == lines(folder / "one"), "--shards 1 changes results")
    check(read_lines(folder / "plain")[0]["shards"] == 1, "metrics.jsonl of one shard")


def same_bits(folder, data):
    works = [("resnet", RESNET, "flex16+5,bf16,fp16", ["--shards", "4", "--trace-every", "1"]),
             ("gpt", [*GPT, "--data", data], "flex16+5,dfp16", ["--shards", "3", "--optimizer", "adamw", "--clip-norm", "1"]),
             ("lstm", [*LSTM, "--data", data], "fp32,flex16+5-sr", ["--shards", "6", "--optimizer", "lamb"])]
    for name, model, formats, more in works:
        ways = [("1", {"FLEXLAB_ISA": "avx2"}), ("2", {})]
        for threads, env in ways:
            succeed("compare", *model, *more, "--formats", formats, "--threads", threads, "--out", str(folder / f"{name}{threads}"),
                    env=env)
        a, b = (folder / f"{name}{threads}" for threads, _ in ways)
        found = [{k: v for k, v in line.items() if not k.endswith("backend") and k not in ("threads", "isa")} for line in lines(a)]
        other = [{k: v for k, v in line.items() if not k.endswith("backend") and k not in ("threads", "isa")} for line in lines(b)]
        check(found == other and len(found) > 3, name, "differs between threads or instructions")
        for file in os.listdir(a):
            if file.startswith(("trace-", "telemetry-")):
                check(read(a, file) == read(b, file), name, file, "differs")
        check(read_lines(a)[0]["shards"] == int(more[1]), name, "does not name its shards")
    names = {row["tensor"] for file in os.listdir(folder / "resnet1") if file.startswith("trace-")
             for row in read_csv(str(folder / "resnet1"), file)}
    check({"conv1.shard0", "conv1.shard3", "conv1.weight.grad", "conv1.weight.grad.shard2"} <= names, sorted(names)[:20])
    check("in 4 shards" in (folder / "resnet1" / "report.html").read_text(), "the report does not name the shards")


def killed(pieces, common):
    """Kills it after its first checkpoint. It cannot end before: its third line waits for a pipe that nobody reads."""
    unread, stderr = os.pipe()
    os.write(stderr, bytes(fcntl.fcntl(stderr, fcntl.F_GETPIPE_SZ) - 200))
    child = subprocess.Popen([PROGRAM, *common, "--checkpoint-every", "1", "--out", str(pieces)], stdout=subprocess.DEVNULL,
                             stderr=stderr)
    for _ in range(30000):
        if (pieces / "flexlab.resume" / "resume.safetensors").exists() or child.poll() is not None:
            break
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    os.close(unread), os.close(stderr)
    check(child.returncode == -signal.SIGKILL, "the training was over before it was killed")


def goes_on(folder):
    whole, pieces = folder / "whole", folder / "pieces"
    common = ["train", *RESNET, "--epochs", "5", "--format", "flex16+5", "--shards", "4"]
    succeed(*common, "--out", str(whole))
    killed(pieces, common)
    succeed("train", "--resume", str(pieces))
    same_results(str(whole), str(pieces), "resumed")
    shown = succeed("eval", str(whole / "last.safetensors"), "--data", RESNET[3]).stdout
    check("as saved" in shown, "evaluated:", shown)


def batchnorm(folder):
    """Of one shard it changes nothing, of several all bits; files name it, and what resumes or joins them minds it."""
    common = ["train", *RESNET, "--format", "flex16+5", "--average-last", "4"]
    ways = {"default": ["--shards", "4"], "shard": ["--shards", "4", "--batchnorm", "shard"], "one": ["--batchnorm", "global"],
            "global": ["--shards", "4", "--batchnorm", "global"], "seed2": ["--shards", "4", "--batchnorm", "global", "--seed-base", "2"],
            "other2": ["--shards", "4", "--seed-base", "2"]}
    for name, more in ways.items():
        succeed(*common, *more, "--out", str(folder / f"bn-{name}"))
    at = {name: str(folder / f"bn-{name}") for name in ways}
    check(lines(at["default"]) == lines(at["shard"]), "--batchnorm shard is not the default")
    check(lines(at["one"])[0] == lines(folder / "plain")[0] and lines(at["one"])[-1] == lines(folder / "plain")[-1],
          "--batchnorm global changes a training of one shard")
    check(witness.read(f"{at['one']}/last.safetensors")[0] == witness.read(folder / "plain" / "last.safetensors")[0], "of one shard")
    check(lines(at["global"]) != lines(at["shard"]), "--batchnorm global changes nothing")
    for name, batchnorm, note in (("shard", "shard", None), ("global", "global", "global"), ("one", "global", None)):
        check(read_lines(at[name])[0]["batchnorm"] == batchnorm, name, "metrics.jsonl:", read_lines(at[name])[0]["batchnorm"])
        check(witness.read(f"{at[name]}/last.safetensors")[1].get("network.batchnorm") == note, name, "network.batchnorm")
    for name, shown in (("shard", "resnet8 in flex16+5, 4 steps, batch 24 in 4 shards, batchnorm shard"),
                        ("global", "resnet8 in flex16+5, 4 steps, batch 24 in 4 shards, batchnorm global"),
                        ("one", "resnet8 in flex16+5, 4 steps, batch 24\n")):
        told = succeed("info", f"{at[name]}/last.safetensors").stdout
        check(shown in told, "info:", told[:300])
    page = (folder / "bn-global" / "report.html").read_text()
    check("moments of the whole batch (--batchnorm global)" in page, "the report does not name --batchnorm")
    check("--batchnorm)" not in (folder / "bn-shard" / "report.html").read_text(), "the report of --batchnorm shard")
    succeed("eval", f"{at['global']}/last.safetensors", "--data", RESNET[3])
    succeed("report", at["global"], at["seed2"], "--out", str(folder / "bn-both"))
    check("(--batchnorm global)" in (folder / "bn-both" / "report.html").read_text(), "the report of two folders")
    expect_error(["report", at["global"], at["other2"], "--out", str(folder / "bn-refused")], 1,
                 "batchnorm is 'global' in the first and 'shard' in the second")
    bad = folder / "bn-bad"
    bad.mkdir()
    (bad / "metrics.jsonl").write_text(read(at["global"], "metrics.jsonl").decode().replace('"batchnorm":"global"', '"batchnorm":"all"', 1))
    expect_error(["report", str(bad)], 1, "'batchnorm' is 'all', expected shard or global")


def batchnorm_goes_on(folder):
    whole, pieces = str(folder / "bn-whole"), str(folder / "bn-pieces")
    common = ["train", *RESNET, "--epochs", "5", "--format", "bf16", "--shards", "4", "--batchnorm", "global"]
    succeed(*common, "--out", whole)
    killed(folder / "bn-pieces", common)
    expect_error(["train", "--resume", pieces, "--batchnorm", "shard"], 2, "--batchnorm 'shard'", "has 'global'")
    expect_error(["train", "--resume", pieces, "--shards", "2"], 2, "--shards 2", "has 4")
    expect_error(["train", "--resume", pieces, "--batchnorm", "all"], 2, "--batchnorm 'all'", "expected")
    succeed("train", "--resume", pieces, "--batchnorm", "global", "--shards", "4")
    same_results(whole, pieces, "resumed, batchnorm global")


def refused(folder):
    out = ["--out", str(folder / "refused")]
    expect_error(["train", *RESNET, "--batchnorm", "batch", *out], 2, "--batchnorm 'batch'", "shard, global")
    expect_error(["train", *RESNET, "--shards", "5", *out], 2, "shards: 5 do not divide the batch of 24")
    expect_error(["train", *RESNET, "--shards", "0", *out], 2, "--shards", "1 to 1024")
    check(not (folder / "refused").exists(), "a refused training left a folder")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        one_shard(folder)
        same_bits(folder, write_book(folder))
        goes_on(folder)
        batchnorm(folder)
        batchnorm_goes_on(folder)
        refused(folder)
    sys.exit(summary())


main()
