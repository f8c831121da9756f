#!/usr/bin/env python3
"""The n-th call of a function of CUDA's runtime fails, of each function that the backend calls, in each command that uses a
device: a message and status 1, or the command does not need what failed; never a crash, a hang or a finding.
usage: test_ptx_failures.py FLEXLAB LIBRARY [long]"""
import os
import struct
import subprocess
import sys
import tempfile

program, library = sys.argv[1:3]
long = sys.argv[3:] == ["long"]
CALLS = ["cudaGetDeviceCount", "cudaSetDevice", "cudaGetDeviceProperties", "cudaMemGetInfo", "cudaDeviceGetAttribute",
         "cudaGetDevice", "cudaFuncGetAttributes", "cudaMemPoolCreate", "cudaMemPoolSetAttribute", "cudaStreamCreateWithFlags",
         "cudaMallocFromPoolAsync",
         "cudaMemsetAsync", "cudaMemcpyAsync", "cudaStreamSynchronize", "cudaFreeAsync", "cudaHostAlloc",
         "cudaEventCreateWithFlags", "cudaEventRecord", "cudaEventSynchronize", "cudaStreamBeginCapture",
         "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch", "cudaFuncSetAttribute", "launch",
         "cudaFreeHost", "cudaPointerGetAttributes", "cudaEventDestroy", "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaStreamDestroy"]
# Which call fails, and how: memory is lacking (2), which passes, and faults, which stay.
PLANS = [(at, error) for at in (1, 2, 3, 7, 20, 60, 200) for error in (2, 700, 719)] if long else [(1, 719), (4, 2)]
failures, runs, never = [], 0, []


def run(words, plan=None):
    env = {**os.environ, "FLEXLAB_CUDA_LIBRARY": library, "OMP_WAIT_POLICY": "passive", "FLEXLAB_PTX_BYTES": "67108864"}
    if plan:
        env["FLEXLAB_PTX_FAIL"] = plan
    return subprocess.run([program, *words], capture_output=True, text=True, env=env, timeout=300)


def images(folder):
    """Sixteen small images and eight for evaluation: larger ones would mainly add arithmetic."""
    for name, count in (("train", 16), ("t10k", 8)):
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, 6, 6) + bytes(37 * i % 256 for i in range(36 * count)))
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))
    return ["--data", "idx:" + folder, "--batch", "8", "--no-augment", "--quiet"]


with tempfile.TemporaryDirectory() as folder:
    DATA = images(folder)
    trained = os.path.join(folder, "trained")
    train = ["train", "--model", "mlp2", *DATA, "--epochs", "2", "--device", "cuda", "--format", "dfp16", "--force"]
    done = run([*train, "--out", trained])
    if done.returncode:
        sys.exit(f"without a failure: status {done.returncode}: {done.stderr}")
    commands = [[*train, "--out", os.path.join(folder, "out")]]
    if long:
        commands.append(["compare", "--model", "mlp2", *DATA, "--epochs", "1", "--formats", "fp32@cuda,flex16+5@cuda", "--force",
                         "--out", os.path.join(folder, "compare")])
    for command in commands:
        for call in CALLS:
            planned = 0
            for at, error in PLANS:
                plan = f"{call}@{at}@{error}"
                done = run(command, plan)
                if "fails as planned" not in done.stderr:
                    break
                planned += 1
                said = [line for line in done.stderr.splitlines() if not line.startswith("ptx: ")]
                if done.returncode not in (0, 1) or "FINDING" in done.stderr or (done.returncode == 1 and not said):
                    failures.append(f"{command[0]}, {plan}: status {done.returncode}: {done.stderr[-600:]}")
            runs += planned
            if not planned:
                never.append(f"{command[0]}: {call}")
if len(never) > 4:
    failures.append("calls that are never made: " + ", ".join(never))
print("\n".join(failures))
print(f"{runs} planned failures, {len(failures)} wrong; never called: {', '.join(never)}")
sys.exit(bool(failures))
