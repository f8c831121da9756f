#!/usr/bin/env python3
"""The engine for NCCL over a stand-in for NCCL and CUDA (nccl_standin.c), started by mpirun and without it: every byte of
random calls on 1 to 4 ranks; a training whose files are those of one rank; what is said when ranks disagree, stop or die,
and when each call of both libraries fails at its n-th time. The engine with the real libraries, as far as this machine has
devices. usage: test_nccl.py ENGINE_RANKS TRAIN_RANKS STANDIN_LIBRARY REAL_LIBRARY [long] MPIRUN=ENGINE..."""
import collections
import concurrent.futures
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launch import ENVIRONMENT, check, each, ended, finish, mpirun, read  # noqa: E402

FILES = [os.path.abspath(word) for word in sys.argv[1:5] if "=" not in word and word != "long"]
LONG = "long" in sys.argv[1:]
ENGINES = [word.split("=") for word in sys.argv[1:] if "=" in word]
if len(FILES) < 4:
    print("skipped: NCCL or CUDA's runtime was not found when this was built (the CUDA toolkit; apt-get install libnccl-dev, "
          "or pip install nvidia-nccl-cu13 and its folder nvidia/nccl in NCCL_HOME)")
    sys.exit(77)
EXCHANGE, TRAIN, STANDIN, REAL = FILES
Run = collections.namedtuple("Run", "status took out err")  # of each rank, None if it did not end; of all
FIRST_CHANNEL = 16384  # of the tags of exchanges that computation accompanies (src/group/group.h)
numbers = itertools.count()


def run(ranks, *command, started=None, stops=None, seconds=60, **more):
    """Ranks that find each other by NCCL alone. started: those that are; stops: the one that stops itself, which is ended
    when the others have ended."""
    started = range(ranks) if started is None else started
    environment = {**ENVIRONMENT, "ENGINE": "nccl", "FLEXLAB_NCCL_LIBRARY": STANDIN, "FLEXLAB_GROUP_TIMEOUT": "20",
                   "NCCL_COMM_ID": f"127.0.0.1:{os.getpid()}.{next(numbers)}", "TSAN_OPTIONS": "report_thread_leaks=0",
                   "ASAN_OPTIONS": f"detect_leaks={int('STANDIN_FAIL' not in more)}"}
    began = time.time()
    children = [subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 start_new_session=True, env={**environment, "FLEXLAB_NCCL_RANK": f"{r}/{ranks}", **more})
                for r in started]
    with concurrent.futures.ThreadPoolExecutor(len(children)) as pool:  # the pipes of all are read
        told = [pool.submit(ended, child, seconds) for child in children]
        concurrent.futures.wait(t for r, t in enumerate(told) if r != stops)
        if stops is not None:
            os.kill(children[stops].pid, signal.SIGKILL)
        told = [t.result() for t in told]
    return Run([t[0] for t in told], time.time() - began, "".join(t[1] for t in told), "".join(t[2] for t in told))


def right(r, *what):
    check(not any(r.status) and "right" in r.out and "misuse" not in r.err, *what, r)


def every_byte():
    for ranks in (1, 2, 3, 4) if LONG else (1, 2, 3):
        for seed in range(20 if LONG else 2):
            right(run(ranks, EXCHANGE, "random", seed, 200 if LONG else 60, seconds=600, STANDIN_DELAY="300"), ranks, seed)
            right(run(ranks, EXCHANGE, "flights", seed, STANDIN_DELAY="300"), ranks, "flights", seed)
    for bytes_ in (0, 1, 31, 32, 33, 65504, 65536, 3000001) + ((200 << 20,) if LONG else ()):
        right(run(3, EXCHANGE, "large", bytes_, seconds=300), bytes_, "bytes")


def in_order(folder, ranks, steps, buckets):
    """Every rank makes the same exchanges in the same order: of a step bucket after bucket, then what shards tell, and
    nothing in between."""
    orders = [list(map(int, read(folder, f"{rank}.order").split())) for rank in range(ranks)]
    check(all(order == orders[0] for order in orders), folder, "exchanges in another order:", orders)
    channels = "".join(chr(tag - FIRST_CHANNEL) for tag in orders[0] if tag >= FIRST_CHANNEL).split("\0")
    check(len(channels) == steps + 1 and not channels[-1], folder, "steps:", orders[0])
    stretches = [tag for tag, _ in itertools.groupby(tag >= FIRST_CHANNEL for tag in orders[0])]
    check(sum(stretches) == steps, folder, "other exchanges among those of buckets:", orders[0])
    for step in channels[:-1]:  # each bucket has two to four exchanges
        check(list(step) == sorted(step) and min(map(step.count, step)) > 1 and len(set(step)) == buckets, folder, list(map(ord, step)))


def training(place):
    """On the processor, where a rank looks at what has arrived between two layers."""
    keys = ["model=resnet8", "variant=flex16+5", "shards=12", "steps=6"]
    for number, more in enumerate(([], ["batchnorm=global"])):
        one = os.path.join(place, f"{number}-none1")
        for ranks, engine in ((1, "none"), (1, "nccl"), (2, "nccl"), (3, "nccl"))[::3 if more and not LONG else 1]:
            folder = os.path.join(place, f"{number}-{engine}{ranks}")
            os.makedirs(folder)
            r = run(ranks, TRAIN, folder, *keys, *more, f"engine={engine}", seconds=300, STANDIN_DELAY="200", STANDIN_COUNTS=folder)
            check(not any(r.status), ranks, engine, r)
            for name in ("last.safetensors", "best.safetensors", "losses.txt", "trace.csv"):
                check(os.path.exists(os.path.join(folder, name)) and read(folder, name) == read(one, name), folder, name, "differs")
            if ranks > 1:
                in_order(folder, ranks, 6, 2)
    r = run(2, TRAIN, place, "model=resnet8", "variant=flex16+5", "data=synthetic:train=256,test=8", "batch=64", "shards=2",
            "steps=4", "engine=nccl", "trace=no", seconds=300)
    found = re.search(r"overlapped (\S+) seconds (\S+)", r.out)
    check(found and float(found[1]) > 0.02 * float(found[2]), "nothing crosses during backward:", r)
    r = run(3, TRAIN, place, *keys, "engine=nccl", "stop=1:2", stops=1, FLEXLAB_GROUP_TIMEOUT="3")
    check(r.status == [1, -9, 1] and
          re.search(r"rank [02] of 3, gradients of step 3: after 3 seconds nothing from rank 1", r.err), r)
    return os.path.join(place, "0-none1"), keys


def messages():
    """Of three ranks, of which the last one is different."""
    def one(case):
        words, more, expected = case
        r = run(3, EXCHANGE, *words, stops=2 if words == ["stop"] else None, seconds=20, FLEXLAB_GROUP_TIMEOUT="2", **more)
        check(all(s != 0 for s in r.status) and "right" not in r.out and "misuse" not in r.err, words, r)
        check(None not in r.status and r.took < 10, words, "hangs", r)
        for pattern in expected:
            check(re.search(pattern, r.err), words, pattern, r)
    each(one, (
            (["differ"], {}, [r"ranks differ in settings: rank 0 has 'batch-32', rank 2 'batch-64'"]),
            (["failed"], {}, [r"rank 2: failed: unknown backend 'none'", r"rank [01]: failed: rank 2: unknown backend 'none'"]),
            (["shorter"], {}, [r"rank [01] of 3, lengths: rank 2 sent 99 bytes, expected 100: it does something else"]),
            (["longer"], {}, [r"rank [01] of 3, lengths: rank 2 sent 200 bytes, expected 100: it does something else"]),
            (["stop"], {}, [r"rank 0 of 3, meeting 3: after 2 seconds nothing from rank 2",
                            r"rank 1 of 3, meeting 3: (after 2 seconds nothing from rank|ncclSend and ncclRecv: remote process)"]),
            (["kill"], {}, [r"meeting 3: ncclSend and ncclRecv: remote process exited or there was a network error: Connection "
                            r"closed by remote peer"]),
            (["kill"], {"STANDIN_LOSS": "silent"}, [r"rank 0 of 3, meeting 3: after 2 seconds nothing from rank 2"]),
            (["abort"], {}, [r"rank 2 of 3: the disk is full", r"rank [01] of 3, meeting 3: ncclSend and ncclRecv: remote"])))
    r = run(3, EXCHANGE, "again", seconds=30)
    check(not any(r.status), "again", r)


def joining():
    def one(case):
        ranks, started, more, expected = case
        r = run(ranks, EXCHANGE, "random", 1, 2, started=started, seconds=20, **{"FLEXLAB_GROUP_TIMEOUT": "2", **more})
        check(all(s == 1 for s in r.status) and expected in r.err and "misuse" not in r.err, more, started, r)
    each(one, (
            (2, None, {"STANDIN_DEVICES": "0"}, "group: cudaGetDeviceCount: no CUDA-capable device is detected"),
            (2, None, {"STANDIN_DEVICES": "1"}, "Duplicate GPU detected"),
            (2, [0], {}, "group: ncclCommInitRankConfig: not all ranks arrived after 2 seconds"),
            (2, [1], {}, "group: ncclCommInitRankConfig: not all ranks arrived after 2 seconds"),
            (2, None, {"NCCL_COMM_ID": ""}, "but NCCL_COMM_ID is not set, expected HOST:PORT of rank 0"),
            (2, None, {"FLEXLAB_NCCL_LIBRARY": "/nowhere/libflexlab_nccl.so"}, "FLEXLAB_NCCL_LIBRARY: /nowhere/libflexlab_nccl.so"),
            (1, None, {"ENGINE": "smoke"}, "engine 'smoke', expected none, mpi or nccl"),
            *((1, None, {"FLEXLAB_NCCL_RANK": text}, f"FLEXLAB_NCCL_RANK: '{text}', expected RANK/RANKS")
              for text in ("1", "2/2", "-1/2", "0/0", "0/2x", "one/two"))))


# --- planned failures -------------------------------------------------------------------------------------------------

LEAVING = {"ncclCommFinalize", "ncclCommDestroy", "cudaFree", "cudaFreeHost", "cudaEventDestroy", "cudaStreamDestroy"}
LATER = {"init": r"ncclCommInitRankConfig: unhandled system error .*: planned failure of init",
         "launch": r"ncclSend and ncclRecv: unhandled system error .*: planned failure of launch",
         "transfer": r"ncclSend and ncclRecv: remote process exited .*: planned failure of transfer",
         "kernel": r"cudaEventQuery: an illegal memory access was encountered",
         "init-hang": r"ncclCommInitRankConfig: not all ranks arrived after 4 seconds",
         "launch-hang": r"after 4 seconds not all has arrived, and NCCL does not tell from whom",
         "transfer-hang": r"after 4 seconds nothing from rank"}


def one_failure(rank, call, n, calls):
    """That call fails on one of two ranks: both end, and that one says why. What fails when all is over changes nothing."""
    r = run(2, EXCHANGE, "random", 5, 4, seconds=25, STANDIN_FAIL=f"{rank}:{call}:{n}", FLEXLAB_GROUP_TIMEOUT="4")
    what = call, "on rank", rank, "at time", n, "of", calls, r
    check(None not in r.status and "misuse" not in r.err, *what)
    if call in LEAVING or (call == "cudaSetDevice" and n == calls):
        check(not any(r.status) and "right" in r.out, *what)
        return
    check(r.status == [1, 1] or (n == calls and r.status[rank] == 1), *what)  # in the last exchange the other may have all
    check(re.search(LATER.get(call, rf"{call}: (uncorrectable ECC error|unhandled system error .*: planned failure of {call})"),
                    r.err), *what)


def failures(place):
    r = run(2, EXCHANGE, "random", 5, 4, STANDIN_COUNTS=place)
    right(r, "nothing fails")
    cases = []
    for rank in (0, 1):
        for line in read(place, str(rank)).decode().splitlines():
            call, calls = line.split()
            calls = int(calls)
            times = range(1, calls + 1)
            if call in ("cudaEventQuery", "ncclCommGetAsyncError"):  # how often these are called, time decides
                times = range(1, min(calls // 4, 8 if LONG else 3) + 1)
            elif not LONG:
                times = (1, calls)[rank:rank + 1]  # the first call of one rank, the last one of the other
            cases += [(rank, call, n, calls) for n in times]
    called = {case[1] for case in cases}
    check(called > {"cudaMalloc", "cudaMallocHost", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaEventRecord", "cudaEventQuery",
                    "ncclCommInitRankConfig", "ncclGroupStart", "ncclSend", "ncclRecv", "ncclGroupEnd",
                    "ncclCommGetAsyncError", "ncclCommFinalize", *LATER}, called)
    each(lambda case: one_failure(*case), cases, most=24)
    print(len(cases), "planned failures")


# --- mpirun -----------------------------------------------------------------------------------------------------------

def by_mpirun(engine, place, one, keys):
    def start(ranks, *command, seconds=120, **more):
        began = time.time()
        status, out, err = ended(mpirun(engine, ranks, list(map(str, command)),
                                        **{"ENGINE": "nccl", "FLEXLAB_NCCL_LIBRARY": STANDIN, **more}), seconds)
        return Run([status], time.time() - began, out, err)

    for ranks in (1, 2, 3):
        right(start(ranks, EXCHANGE, "random", 3, 40), engine, ranks)
    right(start(4, EXCHANGE, "random", 4, 20, STANDIN_HOSTS="2", STANDIN_DEVICES="2"), engine, "4 ranks on 2 hosts")
    folder = os.path.join(place, os.path.basename(engine[0]))
    os.makedirs(folder)
    r = start(3, TRAIN, folder, *keys, "engine=nccl")
    check(r.status == [0] and read(folder, "last.safetensors") == read(one, "last.safetensors"), engine, "training", r)
    for ranks in (1, 2, 3):  # a group that MPI has begun
        right(start(ranks, EXCHANGE, "random", 5, 40, ENGINE="mpi,nccl"), engine, ranks, "from MPI to NCCL")
    def one(case):
        more, expected = case
        r = start(3, EXCHANGE, "random", 1, 5, seconds=40, FLEXLAB_GROUP_TIMEOUT="3", **more)
        check(r.status[0] not in (0, None) and "misuse" not in r.err, engine, more, r)
        for pattern in expected:
            check(re.search(pattern, r.err), engine, more, pattern, r)
    each(one, (({"STANDIN_DEVICES": "0"}, [r"group: (rank \d: )?cudaGetDeviceCount: no CUDA-capable device"]),
               ({"STANDIN_DEVICES": "0", "ENGINE": "mpi,nccl"}, [r"group: group: (rank \d: )?cudaGetDeviceCount: no CUDA"]),
               ({"STANDIN_FAIL": "1:init:1", "ENGINE": "mpi,nccl"},
                [r"group: group: ncclCommInitRankConfig: .*planned failure of init"]),
               ({"FLEXLAB_NCCL_LIBRARY": "/nowhere/libflexlab_nccl.so", "ENGINE": "mpi,nccl"},
                [r"FLEXLAB_NCCL_LIBRARY: /nowhere/libflexlab_nccl.so"]),
               ({"STANDIN_FAIL": "1:cudaSetDevice:1"}, [r"group: (rank 1: )?cudaSetDevice: uncorrectable ECC error encountered"]),
               ({"STANDIN_FAIL": "0:ncclGetUniqueId:1"}, [r"group: (rank 0: )?ncclGetUniqueId: unhandled system error"]),
               ({"STANDIN_OTHER": "2"}, [r"group: rank 0 has NCCL \d+, rank 2 has \d+, expected one version"]),
               ({"STANDIN_HOSTS": "1", "STANDIN_DEVICES": "2"}, [r"Duplicate GPU detected"]),
               ({"STANDIN_FAIL": "1:init-hang:1"}, [r"not all ranks arrived after 3 seconds"]),
               ({"STANDIN_FAIL": "1:launch:3"}, [r"rank 1 of 3, \w+: ncclSend and ncclRecv: unhandled system error"])))
    r = start(3, EXCHANGE, "abort", seconds=40)
    check(r.status[0] not in (0, None) and "rank 2 of 3: the disk is full" in r.err, engine, r)


def real():
    """With the real libraries: on as many ranks as there are devices."""
    devices = 0
    if shutil.which("nvidia-smi"):
        told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
        devices = told.stdout.count("GPU ") if told.returncode == 0 else 0
    for ranks in range(1, min(devices, 4) + 1):
        with_real = {"FLEXLAB_NCCL_LIBRARY": REAL, "NCCL_COMM_ID": f"127.0.0.1:{20000 + os.getpid() % 20000}"}
        r = run(ranks, EXCHANGE, "random", 1, 60, seconds=120, **with_real)
        check(not any(r.status) and "right" in r.out, "the real NCCL,", ranks, "ranks", r)
    if not devices:
        r = run(1, EXCHANGE, "random", 1, 2, FLEXLAB_NCCL_LIBRARY=REAL, NCCL_COMM_ID="127.0.0.1:1")
        check(r.status == [1] and re.search(r"group: cudaGetDeviceCount: (CUDA driver version is insufficient|no CUDA-capable)", r.err), r)
    print("the real NCCL:", f"{devices} devices" if devices else "no device, and it says so")


def main():
    with tempfile.TemporaryDirectory() as place:
        one, keys = training(place)
        each(lambda part: part(), (messages, joining))
        each(lambda part: part(), (every_byte, lambda: failures(place)))
        for engine in [e for e in ENGINES if shutil.which(e[0])][:None if LONG else 1]:
            by_mpirun(engine, place, one, keys)
            print(engine[0], "done")
        real()
    finish()


main()
