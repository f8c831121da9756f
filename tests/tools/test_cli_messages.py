#!/usr/bin/env python3
"""Messages to the user: wrong options, foreign files, policies; the effect of one format's failure on the others; names
with characters that reverse the direction of a line.

    test_cli_messages.py PATH-OF-FLEXLAB PATH-OF-INJECT-LIBRARY|- PATH-OF-MACHINE-FOR-PTX|-"""
import gzip
import json
import os
import pathlib
import sys
import tempfile
import zipfile

from cli_harness import PROGRAM, TINY, check, expect_error, read_lines, run, succeed, summary

INJECT, MACHINE = ("" if word == "-" else os.path.abspath(word) for word in sys.argv[2:4])
TURNED = "x\u202ey"


def test_options():
    """Names of options of other programs and other commands; abbreviated names, whose meaning a new option could
    change."""
    for words, parts in ((["--formats", "fp32"], ["unknown option '--formats'", "'flexlab compare' takes --formats"]),
                         (["--batch-size", "8"], ["unknown option '--batch-size'", "did you mean 'batch'"]),
                         (["--batch-size=8"], ["unknown option '--batch-size'", "did you mean 'batch'"]),
                         (["--gpu"], ["unknown option '--gpu'", "expected --device cuda"]),
                         (["--learning-rate", "1"], ["did you mean 'lr'"]),
                         (["--optimiser", "sgd"], ["did you mean 'optimizer'"]),
                         (["--epo", "3"], ["option '--epo' is not a whole name, expected --epochs"]),
                         (["--epo=3"], ["option '--epo' is not a whole name, expected --epochs"]),
                         (["--mod"], ["option '--mod' is not a whole name, expected --model"]),
                         (["--no-a"], ["option '--no-a' is not a whole name, expected --no-augment"]),
                         (["--mo", "3"], ["option '--mo' is not a whole name, expected one of --model, --momentum"]),
                         (["--augment=3"], ["option '--augment=3' takes no value"]),
                         (["--model"], ["option '--model' needs a value"]),
                         (["--loss-scale", "1000"], ["'1000': expected a power of two from 2^-60 to 2^60; the nearest are 512 and 1024"]),
                         (["--loss-scale", "1e30"], ["'1e30': expected a power of two from 2^-60 to 2^60"])):
        expect_error(["train", *words], 2, *parts)
    expect_error(["compare", "--format", "fp32"], 2, "unknown option '--format'", "--formats with a list")
    expect_error(["eval", "--check", "x"], 2, "'--check' is not a whole name, expected --checkpoint")
    expect_error(["report", "--ou", "x", "y"], 2, "'--ou' is not a whole name, expected --out")
    expect_error(["wgan", "--latent=8", "--filt", "3"], 2, "'--filt' is not a whole name, expected --filters")
    expect_error(["replay", "--pred", "paper", "x"], 2, "'--pred' is not a whole name, expected --predictors")
    expect_error(["facts", "--mark"], 2, "'--mark' is not a whole name, expected --markdown")


def test_policies(place):
    expect_error(["train", "--policy", "conv1 = bf16"], 2, "no file of that name", "a text of rules has a ';' after each, as in 'conv1 format=bf16;'")
    expect_error(["train", "--policy", "conv1 = bf16;"], 2, "'=', expected ROLE=VALUE without blanks", "'conv1 format=bf16'")
    expect_error(["train", "--policy", "O2", "--format", "bf16"], 2, "begins from variant fp16", "'O2:bf16'")
    for name, text in (("empty", ""), ("comment", "# nothing\n\n  \n")):
        file = os.path.join(place, name + ".policy")
        pathlib.Path(file).write_text(text)
        expect_error(["train", "--policy", file], 2, file, "has no rules, expected at least one rule")
    expect_error(["train", "--policy", ";"], 2, "has no rules")


def test_foreign_files(place):
    """Foreign files are recognised by their first bytes."""
    files = {}
    for name, words in (("torch.pt", "ZIP archive, as torch.save of PyTorch"), ("old.pth", "pickle of Python"), ("keras.h5", "HDF5 file, as .h5 files of Keras"),
                        ("net.onnx", "model in ONNX"), ("net.gz", "file compressed by gzip"), ("notes.txt", "a text")):
        files[name] = (os.path.join(place, name), words)
    with zipfile.ZipFile(files["torch.pt"][0], "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2}q\0.")
    pathlib.Path(files["old.pth"][0]).write_bytes(b"\x80\2\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
    pathlib.Path(files["keras.h5"][0]).write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(40))
    pathlib.Path(files["net.onnx"][0]).write_bytes(b"\x08\x07\x12\x07pytorch\x1a\x032.1")
    pathlib.Path(files["net.gz"][0]).write_bytes(gzip.compress(b"weights"))
    pathlib.Path(files["notes.txt"][0]).write_text("here is where the weights went\n")
    for path, words in files.values():
        expect_error(["eval", "--checkpoint", path], 1, path + " is not a safetensors file: it looks like", words)
        expect_error(["train", *TINY, "--weights", path, "--out", os.path.join(place, "no")], 1, path + " is not a safetensors file: it looks like", words)


def test_turned_names(place):
    """U+202E and its like reverse the following text on a terminal and on a page: they are shown by their code."""
    out, policy = os.path.join(place, "turned"), os.path.join(place, TURNED + ".policy")
    pathlib.Path(policy).write_text("fc1 format=bf16\n")
    done = succeed("train", *TINY, "--policy", policy, "--out", out, "--max-steps", "2")
    for what, text in (("stdout", done.stdout), ("stderr", done.stderr),
                       ("report.html", pathlib.Path(out, "report.html").read_text()), *((f.name, f.read_text()) for f in pathlib.Path(out).glob("*.svg"))):
        check(not set(text) & set("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), what, "turns round")
    check("policy:x\\u202ey.policy" in done.stdout, done.stdout)
    check(read_lines(out)[0]["formats"][0]["name"] == f"policy:{TURNED}.policy", "metrics.jsonl has another name")
    for words in (["train", "--policy", TURNED], ["train", "--model", TURNED], ["train", "--" + TURNED], ["train", "--data", "cifar10:/" + TURNED],
                  ["eval", "--checkpoint", TURNED], ["report", TURNED], [TURNED]):
        done = run(*words)
        check(done.returncode in (1, 2) and "\u202e" not in done.stderr and "x\\u202ey" in done.stderr, words, done.stderr)


def test_controls():
    """The library's messages and the program's show bytes that are no text in the same way."""
    for name, shown in (("a\nb", r"a\nb"), ("a\tb", r"a\tb"), ("a\x1bb", r"a\x1bb"), ("a\x7fb", r"a\x7fb"), ("a\u009bb", r"a\u009bb"), (b"a\xffb", r"a\xffb")):
        for words in (["train", "--model", name], ["train", "--data", name], ["eval", "--checkpoint", name], ["train", "--optimizer", name], ["info", name], [name]):
            done = run(*words)
            check(done.returncode in (1, 2) and shown in done.stderr, words, "wants", shown, "in", done.stderr)


def test_one_fails(place):
    """The device of one format fails: the others are trained, and table, page, metrics and exit status report it."""
    if not MACHINE:
        return print("without a machine for PTX no format fails by itself")
    out = os.path.join(place, "one")
    done = succeed("compare", *TINY, "--formats", "fp32,bf16@cuda,fp16", "--max-steps", "2", "--out", out, status=1,
                   env={"FLEXLAB_CUDA_LIBRARY": MACHINE, "FLEXLAB_PTX_FAIL": "launch@9"})
    check("bf16@cuda:0 seed 1: cuda:0" in done.stderr and "1 of 3 runs failed" in done.stderr, done.stderr)
    lines = read_lines(out)
    failed = [line for line in lines if line["type"] == "failed"]
    check([set(f) for f in failed] == [{"type", "format", "seed", "reason"}] and failed[0]["seed"] == 1, "fields", failed)
    check([f["format"] for f in failed] == ["bf16@cuda:0"] and "cuda:0" in failed[0]["reason"], failed)
    check({line["format"] for line in lines if line["type"] == "run" and line["complete"]} == {"fp32", "fp16"}, "the others were not trained")
    again = succeed("report", out)
    for text in (done.stdout, again.stdout, pathlib.Path(out, "report.html").read_text()):
        check("bf16@cuda:0 FAILED" in text and "FAILED: bf16@cuda:0 seed 1: cuda:0" in text, text[:2000])
    alone = os.path.join(place, "alone")
    done = succeed("train", *TINY, "--format", "bf16@cuda", "--out", alone, status=1, env={"FLEXLAB_CUDA_LIBRARY": MACHINE, "FLEXLAB_PTX_FAIL": "launch@1"})
    check("no step was trained" in done.stderr and not os.path.exists(os.path.join(alone, "metrics.jsonl")), done.stderr)


def test_all_fail(place):
    """The reason for which every format fails before its first step is reported once, or once for each format, whatever
    the number of seeds."""
    if not MACHINE:
        return print("without a machine for PTX no format fails by itself")
    gone = {"FLEXLAB_CUDA_LIBRARY": MACHINE, "FLEXLAB_PTX_FAIL": "launch@1"}
    for words, told in ((["compare", "--formats", "fp32@cuda,bf16@cuda,fp16@cuda"], ": cuda:0: "), (["train", "--format", "bf16@cuda"], "bf16@cuda:0 seed 1: cuda:0: ")):
        done = succeed(words[0], *TINY, *words[1:], "--seeds", "20", "--quiet", "--out", os.path.join(place, "all"), status=1, env=gone)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("ptx: ")]
        check(len(lines) == 2 and told in lines[0] and "no step was trained" in lines[1] and not done.stdout, words, done.stderr, done.stdout)
    done = succeed("compare", *TINY, "--formats", "bf16@cuda,fp32", "--seeds", "2", "--max-steps", "1", "--quiet", "--out", os.path.join(place, "all"), status=1, env=gone)
    check(done.stderr.count("bf16@cuda:0 seed ") == 2 and "2 of 4 runs failed" in done.stderr, done.stderr)


def test_eval_of_nan(place):
    """A network whose results are not numbers has no accuracy: that is a failure."""
    out = os.path.join(place, "nan")
    succeed("train", *TINY, "--format", "fp32", "--lr", "1000", "--out", out, status=1)
    done = run("eval", "--checkpoint", os.path.join(out, "last.safetensors"), "--data", TINY[3])
    check(done.returncode == 1 and "the loss is NaN" in done.stderr and "loss      nan" in done.stdout.lower().replace("-nan", "nan"), done.returncode, done.stdout, done.stderr)


def test_no_memory_is_no_bad_json(place):
    """An allocation that fails within cJSON is not reported as an error of the file."""
    if not INJECT:
        return print("without the library of faults no allocation fails")
    out, told = os.path.join(place, "turned"), 0
    for n in range(40, 900, 23):
        done = run("report", out, env={"LD_PRELOAD": INJECT, "FAULT_PROGRAM": os.path.basename(PROGRAM), "FAULT_KIND": "memory",
                                       "FAULT_AT": str(n), "FAULT_ERROR": "12", "PATH": "/nonexistent"})
        check(done.returncode in (0, 1) and "JSON" not in done.stderr and "field" not in done.stderr, n, done.returncode, done.stderr)
        told += "memory" in done.stderr
    check(told > 10, "only", told, "reports ran out of memory")


def main():
    with tempfile.TemporaryDirectory() as place:
        test_options()
        test_policies(place)
        test_foreign_files(place)
        test_controls()
        test_turned_names(place)
        test_one_fails(place)
        test_all_fail(place)
        test_eval_of_nan(place)
        test_no_memory_is_no_bad_json(place)
    return summary()


sys.exit(main())
