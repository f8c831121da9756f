#!/usr/bin/env python3
"""Whole trainings by the command on the device cuda and on the processor: every file is the same to the byte, but for
times and the line that names the machine; so is what `flexlab what-if` measures. NaNs have any payload there, and registers
that were never written and races are findings.
usage: test_ptx_trainings.py FLEXLAB LIBRARY [long]"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

program, library = sys.argv[1:3]
long = sys.argv[3:] == ["long"]
failures, compared = [], 0


def images(folder, count, side):
    for name, n in (("train", count), ("t10k", 5)):
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4I", 0x803, n, side, side) + random.randbytes(n * side * side))
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">2I", 0x801, n) + bytes(random.choices(range(10), k=n)))


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if not ("second" in k or k == "timed")}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def contents(path):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".safetensors"):  # the command line names the device, and the sum of all is that of it too
        end = 8 + struct.unpack("<Q", data[:8])[0]
        head = json.loads(data[8:end])
        notes = head["__metadata__"]
        head["__metadata__"] = {k: v for k, v in notes.items() if k not in ("flexlab.arguments", "flexlab.crc32")}
        return head, data[end:]
    if not path.endswith("metrics.jsonl"):
        return data
    return [without_times(json.loads(line)) for line in data.splitlines()[1:]]


def results(words, device, out):
    env = {**os.environ, "FLEXLAB_CUDA_LIBRARY": library, "OMP_WAIT_POLICY": "passive", "FLEXLAB_PTX_BYTES": str(256 << 20),
           "FLEXLAB_PTX_CHECKS": "nan,registers,races"}
    quiet = ["--quiet"] if words[0] != "what-if" else []
    done = subprocess.run([program, *words, "--device", device, "--out", out, *quiet], capture_output=True, text=True, env=env)
    if done.returncode:
        return {"": f"status {done.returncode}: {done.stderr[-900:]}"}
    return {name: contents(os.path.join(out, name)) for name in sorted(os.listdir(out))
            if name.endswith(("what-if.json", ".jsonl", ".csv", ".safetensors", ".npy")) and name != "summary.csv"}


def compare(folder, words):
    global compared
    out = [os.path.join(folder, f"{compared}-{device}") for device in ("cpu", "cuda")]
    here, there = (results(words, device, path) for device, path in zip(("cpu", "cuda"), out))
    different = [name or there.get("", here.get("")) for name in sorted({*here, *there}) if here.get(name) != there.get(name)]
    compared += 1
    if different or len(here) < 2:
        failures.append(" ".join(words) + ": " + (", ".join(different) or str(here)))
    return out[0]


with tempfile.TemporaryDirectory() as folder:
    random.seed(3)
    images(folder, 16, 8)
    text = os.path.join(folder, "text")
    with open(text, "w") as file:
        file.write("".join(random.choices("abcdefgh \n", k=900)))
    telemetry = ["--telemetry", "2", "--shadow", "fp16,flex8+5:ngraph,bf16,e4m3fn,dfp16,tensor:e5m2"]
    all_of = ["--step-loss", "--trace-every", "1", "--epochs", "1"]
    of_text = ["train", "--data", "text:" + text, "--context", "8", "--batch", "2", "--test-limit", "60", *all_of]
    of_images = ["train", "--data", "idx:" + folder, "--batch", "4", *all_of]
    gan = ["wgan", "--data", "idx:" + folder, "--latent", "4", "--filters", "2", "--batch", "2", "--critic-steps", "2"]
    dynamic = ["--loss-scale", "dynamic:init=2^24,window=2"]
    if not long:
        compare(folder, [*of_text, "--model", "gpt1x32", "--max-steps", "3", "--format", "policy:O1", *dynamic, *telemetry])
        trained = compare(folder, [*of_images, "--model", "mlp2", "--max-steps", "5", "--format", "policy:dfp16", *telemetry])
        compare(folder, [*of_images, "--model", "resnet8", "--max-steps", "3", "--shards", "2", "--batchnorm", "global", *telemetry])
        compare(folder, ["what-if", trained, "--formats", "flex8+5,fp16", "--batches", "2"])
    for policy in ("flex16+5", "policy:O1", "policy:O2", "policy:dfp16") if long else ():
        for model in ("lstm-char", "gpt2x64"):
            compare(folder, [*of_text, "--model", model, "--max-steps", "3", "--format", policy, *telemetry])
        compare(folder, [*of_images, "--model", "resnet8", "--max-steps", "4", "--format", policy, *telemetry])
        compare(folder, [*of_images, "--model", "resnet8", "--max-steps", "4", "--format", policy, *dynamic])
        compare(folder, [*gan, "--steps", "2", "--format", policy])
print("\n".join(failures))
print(f"{compared} pairs of runs, {len(failures)} wrong")
sys.exit(bool(failures))
