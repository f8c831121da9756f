#!/usr/bin/env python3
"""flexlab wgan: the same curves, samples and networks whatever the threads and with a stop in between, pictures that are what their
head says, folders that hold results, usage.
usage: test_cli_wgan.py PROGRAM"""
import filecmp
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

from cli_harness import PROGRAM, check, expect_error, read_lines, succeed, summary

TINY = ["wgan", "--data", "synthetic:train=64,test=8", "--batch", "4", "--filters", "2", "--latent", "3", "--critic-steps", "2", "--lr", "1e-3",
        "--samples", "3", "--seed", "7"]


def numbers(directory):
    return [(line["step"], line["estimate"], line["generator_loss"]) for line in read_lines(directory) if line["type"] == "step"]


def same_files(a, b, *names):
    for name in names:
        check(filecmp.cmp(os.path.join(a, name), os.path.join(b, name), shallow=False), a, b, name, "differ")


def test_bits(place):
    for form in "flex16+5", "fp16", "bf16", "fp32", "dfp16":
        one, other = os.path.join(place, form, "one"), os.path.join(place, form, "other")
        os.makedirs(os.path.join(place, form))
        succeed(*TINY, "--format", form, "--steps", "6", "--threads", "1", "--out", one, "--sample-every", "3")
        succeed(*TINY, "--format", form, "--steps", "3", "--threads", "3", "--out", other, "--quiet")
        succeed(*TINY, "--format", form, "--steps", "6", "--threads", "2", "--out", other + "2", "--resume", os.path.join(other, "wgan-000003"))
        check(numbers(one) == numbers(other) + numbers(other + "2"), form, "curves differ")
        check([step for step, _, _ in numbers(one)] == [1, 2, 3, 4, 5, 6], form, numbers(one))
        same_files(one, other, "samples-000003.ppm")
        same_files(one, other + "2", "samples-000006.ppm", "wgan-000006.critic.safetensors", "wgan-000006.generator.safetensors")
        check(sorted(os.path.basename(p) for p in glob.glob(one + "/*")) ==
              ["metrics.jsonl", "samples-000003.ppm", "samples-000006.ppm", "wgan-000006.critic.safetensors", "wgan-000006.generator.safetensors"],
              os.listdir(one))
    with open(os.path.join(one, "samples-000006.ppm"), "rb") as file:
        picture = file.read()
    head = b"P6\n66 66\n255\n"  # two by two of 32 pixels, two between them
    check(picture.startswith(head) and len(picture) == len(head) + 66 * 66 * 3, "picture", picture[:20], len(picture))
    rows = picture[len(head):]
    check(rows[32 * 3:34 * 3] == bytes(6) and min(rows[:96]) > 0, "the gap is black, an image is not")
    check(rows[34 * 66 * 3 + 34 * 3:34 * 66 * 3 + 66 * 3] == bytes(96), "no fourth image")


def test_folder(place):
    out = os.path.join(place, "results")
    succeed(*TINY, "--steps", "1", "--out", out, "--quiet")
    expect_error([*TINY, "--steps", "1", "--out", out], 1, "there are results already", "--force")
    succeed(*TINY, "--steps", "2", "--out", out, "--force", "--checkpoint-every", "1", "--quiet")
    check(len(numbers(out)) == 2, "lines", numbers(out))
    expect_error([*TINY, "--out", out + "2", "--filters", "3", "--resume", os.path.join(out, "wgan-000002")], 1, "checkpoint")
    os.remove(os.path.join(out, "wgan-000002.critic.safetensors"))
    expect_error([*TINY, "--out", out + "2", "--resume", os.path.join(out, "wgan-000002")], 1, "wgan-000002.critic.safetensors")


def test_stopped(place):
    out = os.path.join(place, "stopped")
    process = subprocess.Popen([PROGRAM, *TINY, "--steps", "1000000", "--out", out, "--quiet"])
    part = os.path.join(out, "metrics.jsonl.part")
    for _ in range(600):
        if os.path.exists(part) and open(part).read().count("\n") > 2:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    check(process.wait(60) == 130, "after SIGINT:", process.returncode)
    last = numbers(out)[-1][0]
    check(os.path.exists(os.path.join(out, f"wgan-{last:06}.generator.safetensors")) and
          os.path.exists(os.path.join(out, f"samples-{last:06}.ppm")), os.listdir(out))


def test_usage(place):
    out = ["--out", os.path.join(place, "none")]
    for option in "steps", "batch", "filters", "latent", "critic-steps", "samples", "sample-every":
        for value in "0", "-1", "x", "1.5":
            expect_error(["wgan", f"--{option}={value}"], 2, f"--{option} '{value}'", "whole number from 1 to")
    for option in "lr", "clip":
        expect_error(["wgan", f"--{option}=0"], 2, f"--{option} '0'", "number from")
    expect_error(["wgan", "--format", "fp33", *out], 2, "fp33")
    expect_error(["wgan", "--format", "fp16,fp32", *out], 2, "expected one format")
    expect_error(["wgan", "--epochs", "3", *out], 2, "--epochs")
    expect_error(["wgan", "more", *out], 2, "unexpected argument 'more'")
    expect_error(["wgan", "--data", "nothing", *out], 2, "--data 'nothing'")
    expect_error([*TINY, "--batch", "65", *out], 1, "batches of 65, but only 64 images")


with tempfile.TemporaryDirectory() as place:
    test_bits(place)
    test_folder(place)
    test_stopped(place)
    test_usage(place)
sys.exit(summary())
