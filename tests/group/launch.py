"""Ranks under mpirun, for the tests of this folder: their arguments, starting ranks, waiting for their end, counting
checks, comparing what they have written."""
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import safetensors_witness as witness  # noqa: E402

checks = failures = 0
counting = threading.Lock()
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "HYDRA_IFACE": "lo",
               "ASAN_OPTIONS": "detect_leaks=0",  # those of MPI
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def arguments(programs):
    """Of TEST PROGRAM... [long] MPIRUN=ENGINE...: the programs, whether it is the long form, and the engines that are there."""
    words = sys.argv[1 + programs:]
    engines = [word.split("=") for word in words if "=" in word and not word.startswith(("NCCL=", "GPUS="))]
    return [*map(os.path.abspath, sys.argv[1:1 + programs])], "long" in words, [e for e in engines if shutil.which(e[0])]


def each(function, cases, most=6):
    """Calls the function for all cases, several at once: starting and stopping mpirun is mostly waiting. One after the other
    where programs are so slow that others would give them up (FLEXLAB_ONE_BY_ONE)."""
    if os.environ.get("FLEXLAB_ONE_BY_ONE"):
        most = 1
    with concurrent.futures.ThreadPoolExecutor(most) as pool:
        return list(pool.map(function, cases))


def under_each(engines, *parts):
    """Runs the parts of a test, which take an engine and a folder in which they have names of their own, at once under
    each engine."""
    if not engines:
        print("skipped: mpirun is not there (apt-get install openmpi-bin libopenmpi-dev)")
        sys.exit(77)
    for engine in engines:
        with tempfile.TemporaryDirectory() as place:
            each(lambda part: part(engine, place), parts)
        print(engine[0], "done", flush=True)
    finish()


def check(condition, *what):
    global checks, failures
    with counting:
        checks += 1
        failures += not condition
        if not condition:
            print("FAILED:", *what)


def finish():
    print(f"{checks} checks, {failures} failures")
    sys.exit(failures > 0 or not checks)


def mpirun(engine, ranks, command, *others, isa=None, **more):
    """Starts ranks of a command, then one of each other; isa: the instruction set of each, which may differ."""
    program, library = engine
    words = [program, "-n", str(ranks), *command]
    if isa:
        ranks, command, *others = 1, *(["env", f"FLEXLAB_ISA={one}", *command] for one in isa)
        words = [program, "-n", "1", *command]
    for other in others:
        words += [":", "-n", "1", *other]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env={**ENVIRONMENT, "FLEXLAB_MPI_LIBRARY": library, **more})


def ended(child, seconds):
    """The output of ranks that end by themselves; everything is killed after that time."""
    try:
        out, err = child.communicate(timeout=seconds)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return None, "", "did not end"


def train(program, engine, ranks, folder, *keys, isa=None, seconds=120, **more):
    """A training of train_ranks.c."""
    os.makedirs(folder, exist_ok=True)
    return ended(mpirun(engine, ranks, [program, folder, *keys], isa=isa, **more), seconds)


def position(folder):
    """What resume.safetensors holds, without sums, among which are seconds."""
    tensors, notes = witness.read(os.path.join(folder, "resume.safetensors"))
    notes.pop("flexlab.crc32")
    return {name: value for name, value in tensors.items() if name != "training.sums"}, notes


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def same(a, b, *what):
    for name in ("last.safetensors", "best.safetensors", "losses.txt"):
        check(read(a, name) == read(b, name), *what, name, "differs")
    check(os.path.exists(os.path.join(a, "trace.csv")) == os.path.exists(os.path.join(b, "trace.csv")), *what, "traces")
    if os.path.exists(os.path.join(a, "trace.csv")):
        check(read(a, "trace.csv") == read(b, "trace.csv"), *what, "trace.csv differs")


TIMES = {"seconds", "images_per_second", "speed_ratio", "started", "command_line", "step_seconds", "step_seconds_low",
         "step_seconds_high", "wall_seconds", "timed", "ranks", "rank_engine", "rank_steps", "rank_sent",
         "rank_waited", "rank_overlapped", "rank_seconds"}


def lines(folder):
    def plain(value):
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items() if k not in TIMES}
        return [plain(v) for v in value] if isinstance(value, list) else value
    return [plain(json.loads(line)) for line in read(folder, "metrics.jsonl").splitlines()]
