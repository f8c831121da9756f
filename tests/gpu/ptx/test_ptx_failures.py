#!/usr/bin/env python3
"""The n-th call of a function of CUDA's runtime fails, of each function that the backend calls, in train, compare, eval,
what-if and wgan: a message and status 1, or the command does not need what failed; never a crash, a hang or a finding. Nothing
is lost: results that were there before a failure are unchanged, or else those of a run without one; every file with its final
name is complete; and a training that has stored a checkpoint is resumed and ends as if nothing had failed. Memory is said to
be lacking only where a call has failed because of it.
usage: test_ptx_failures.py FLEXLAB LIBRARY [long]"""
import csv
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import safetensors_witness as witness  # noqa: E402

program, library = sys.argv[1:3]
long = sys.argv[3:] == ["long"]
MEMORY = ["cudaMemPoolCreate", "cudaMallocFromPoolAsync", "cudaHostAlloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags",
          "cudaGraphInstantiate", "cudaStreamEndCapture", "cudaMemsetAsync"]  # which may find none; new memory is set to zero
CALLS = ["cudaGetDeviceCount", "cudaSetDevice", "cudaGetDeviceProperties", "cudaMemGetInfo", "cudaDeviceGetAttribute",
         "cudaGetDevice", "cudaFuncGetAttributes", "cudaMemPoolSetAttribute", *MEMORY,
         "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaFreeAsync",
         "cudaEventRecord", "cudaEventSynchronize", "cudaStreamBeginCapture",
         "cudaGraphLaunch", "cudaFuncSetAttribute", "launch",
         "cudaFreeHost", "cudaPointerGetAttributes", "cudaEventDestroy", "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaStreamDestroy"]
# Which call fails, and how: memory is lacking (2), which passes, and faults, which stay. In the quick form trainings alone
# have the second of them, and a late one.
PLANS = [(at, error) for at in (1, 2, 3, 7, 20, 60, 200) for error in (2, 700, 719)] if long else [(1, 719), (4, 2), (40, 700)]
SERVICE = {".flexlab-lock", "flexlab.incomplete", "flexlab.resume"}  # not results (docs/output.md)
failures, runs, resumed, never = [], 0, 0, []


def run(words, plan=None):
    env = {**os.environ, "FLEXLAB_CUDA_LIBRARY": library, "OMP_WAIT_POLICY": "passive", "FLEXLAB_PTX_BYTES": "67108864"}
    if plan:
        env["FLEXLAB_PTX_FAIL"] = plan
    return subprocess.run([program, *words], capture_output=True, text=True, env=env, timeout=300)


def images(folder):
    """Sixteen small images and eight for evaluation: larger ones would mainly add arithmetic."""
    for name, count in (("train", 16), ("t10k", 8)):
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, 8, 8) + bytes(37 * i % 256 for i in range(64 * count)))
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))
    return ["--data", "idx:" + folder]


def files(folder):
    """What lies in a folder and its folders, by relative path."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(place, name), "rb") as file:
                found[os.path.relpath(os.path.join(place, name), folder)] = file.read()
    return found


def results(folder):
    return {path: data for path, data in files(folder).items() if path.split(os.sep)[0] not in SERVICE}


def steady(found):
    """Without what contains times or is drawn of it."""
    return {path: data for path, data in found.items()
            if not path.endswith(("metrics.jsonl", "summary.csv", ".html", ".png", ".svg"))}


def is_whole(path, data):
    try:
        if path.endswith(".safetensors"):
            return bool(witness.read_bytes(data)[0])
        if path.endswith(".jsonl"):
            return data.endswith(b"\n") and all(isinstance(json.loads(line), dict) for line in data.splitlines())
        if path.endswith(".json"):
            return bool(json.loads(data))
        if path.endswith(".pgm"):
            _, sides, _, pixels = data.split(b"\n", 3)
            width, height = map(int, sides.split())
            return len(pixels) == width * height
        if path.endswith(".csv"):
            lines = list(csv.reader(line for line in data.decode().splitlines() if not line.startswith("#")))
            return data.endswith(b"\n") and len({len(line) for line in lines}) == 1
        if os.path.basename(path) == "options":  # the command, then its options
            return data.split()[0] in (b"train", b"compare") and data.endswith(b"\n")
        return data.rstrip().endswith({".html": b"</html>", ".svg": b"</svg>", ".png": b"IEND\xaeB`\x82"}[os.path.splitext(path)[1]])
    except (ValueError, KeyError, struct.error, IndexError):
        return False


class Command:
    """reference: the results of a run without a failure; before: those of another one, which lie there when a run begins."""

    def __init__(self, words, folder=None, other=()):
        self.words, self.folder = words, folder
        self.before, self.reference = {}, {}
        if folder:
            self.begin({})
            self.expect(run([*words, "--out", folder, *other]))
            self.before = results(folder)
            self.words = [*words, "--out", folder, "--force"]
        done = run(self.words)
        self.expect(done)
        self.said = done.stdout
        if folder:
            self.reference = results(folder)
            if steady(self.before) == steady(self.reference) or not steady(self.reference):
                sys.exit(f"{words[0]}: results before a failure that cannot be told from later ones")
            broken = [path for path, data in self.reference.items() if not is_whole(path, data)]
            if broken:
                sys.exit(f"{words[0]}: not whole without a failure: {broken}")

    def expect(self, done):
        if done.returncode:
            sys.exit(f"without a failure: {self.words}: status {done.returncode}: {done.stderr}")

    def begin(self, found):
        shutil.rmtree(self.folder, ignore_errors=True)
        for path in found:
            os.makedirs(os.path.dirname(os.path.join(self.folder, path)), exist_ok=True)
            with open(os.path.join(self.folder, path), "wb") as file:
                file.write(found[path])

    def wrong(self, call, at, error):
        """None: the call is not made so often; otherwise what is wrong."""
        global resumed
        earlier = self.before if at != 1 else {}
        if self.folder:
            self.begin(earlier)
        done = run(self.words, f"{call}@{at}@{error}")
        if "fails as planned" not in done.stderr:
            return None
        said = "\n".join(line for line in done.stderr.splitlines() if not line.startswith("ptx: "))
        wrong = []
        if done.returncode not in (0, 1) or "FINDING" in done.stderr or (done.returncode == 1 and not said):
            wrong.append(f"status {done.returncode}: {done.stderr[-600:]}")
        if "no memory" in said + done.stdout or "no pinned memory" in said:
            if error != 2:
                wrong.append("memory is said to be lacking: " + said)
        if not self.folder:
            if done.returncode == 0 and done.stdout != self.said:
                wrong.append("other results: " + done.stdout)
            return wrong
        found = files(self.folder)
        now = {path: data for path, data in found.items() if path.split(os.sep)[0] not in SERVICE}
        if done.returncode == 0:
            if steady(now) != steady(self.reference):
                wrong.append("passes, with other results: " + different(steady(now), steady(self.reference)))
        elif earlier and now != earlier:
            wrong.append("earlier results: " + different(now, earlier))
        broken = [path for path, data in found.items() if path != ".flexlab-lock" and not is_whole(path, data)]
        if broken:
            wrong.append("half written: " + ", ".join(broken))
        if self.words[0] == "train" and done.returncode == 1 and "flexlab.resume/resume.safetensors" in found and (long or resumed < 4):
            done = run(["train", "--resume", self.folder, "--quiet"])
            resumed += 1
            if done.returncode or steady(results(self.folder)) != steady(self.reference):
                wrong.append(f"resumed: status {done.returncode}: {done.stderr[-600:]} " + different(steady(results(self.folder)), steady(self.reference)))
        return wrong


def different(a, b):
    return ", ".join(path for path in sorted({*a, *b}) if a.get(path) != b.get(path))


with tempfile.TemporaryDirectory() as folder:
    DATA = images(folder)
    TRAIN = ["--model", "mlp2", *DATA, "--batch", "8", "--no-augment", "--quiet"]
    place = lambda name: os.path.join(folder, name)
    seen = ["--trace-every", "1", "--telemetry", "2", "--shadow", "fp16,flex8+5"]
    commands = [Command(["train", *TRAIN, "--epochs", "3", "--device", "cuda", "--format", "dfp16", *seen], place("train"), ["--seed-base", "5"])]
    trained = place("trained")
    shutil.copytree(commands[0].folder, trained)
    commands += [Command(["eval", "--checkpoint", os.path.join(trained, "best.safetensors"), *DATA, "--device", "cuda"]),
                 Command(["what-if", trained, "--formats", "flex8+5,fp16", "--batches", "1", "--device", "cuda"], place("what-if"),
                         ["--formats", "bf16"]),
                 Command(["wgan", *DATA, "--latent", "4", "--filters", "2", "--batch", "2", "--critic-steps", "1", "--steps", "2",
                          "--format", "flex16+5", "--device", "cuda", "--quiet"], place("wgan"), ["--seed", "5"])]
    if long:
        commands += [Command(["train", *TRAIN, "--epochs", "3", "--device", "cuda", "--format", "fp16"], place("plain"), ["--seed-base", "5"]),
                     Command(["compare", *TRAIN, "--epochs", "1", "--formats", "fp32@cuda,flex16+5@cuda"], place("compare"), ["--seed-base", "5"])]
    for command in commands:
        for call in CALLS:
            planned = 0
            for at, error in PLANS if long or command is commands[0] else PLANS[:1]:
                wrong = command.wrong(call, at, error)
                if wrong is None:
                    break
                planned += 1
                failures += [f"{command.words[0]}, {call}@{at}@{error}: {what}" for what in wrong]
            runs += planned
            if not planned:
                never.append(f"{command.words[0]}: {call}")
trained = {word for word in never if word.startswith("train: ")}
if len(trained) > 4:
    failures.append("calls that a training never makes: " + ", ".join(sorted(trained)))
if not resumed:
    failures.append("no training was resumed")
print("\n".join(failures))
print(f"{runs} planned failures, {len(failures)} wrong; {resumed} trainings resumed; never called: {', '.join(never)}")
sys.exit(bool(failures))
