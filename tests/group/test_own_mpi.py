#!/usr/bin/env python3
"""Programs that bring a communicator of their own: two groups of one program train at once, and each has the bytes of
one rank; what is refused, and that a failure of the group leaves MPI to the program.
usage: test_own_mpi.py TRAIN_RANKS PROGRAM... [long] MPIRUN=ENGINE..."""
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from launch import check, each, ended, finish, mpirun, read  # noqa: E402

TRAIN = os.path.abspath(sys.argv[1])
LONG = "long" in sys.argv[2:]
PROGRAMS = [word for word in sys.argv[2:] if "=" not in word and word != "long"]
ENGINES = [word.split("=") for word in sys.argv[2:] if "=" in word]
KEYS = ["model=resnet8", "variant=flex16+5", "steps=3", "shards=12"]


def split(engine, program, place):
    one = os.path.join(place, "one")
    os.makedirs(one)
    status, out, err = ended(mpirun(engine, 1, [TRAIN, one, *KEYS]), 120)
    check(status == 0, err)
    for ranks in (5, 6, 8) if LONG else (5,):
        parts = [os.path.join(place, f"own{ranks}", f"part{p}") for p in (0, 1)]
        for part in parts:
            os.makedirs(part)
        status, out, err = ended(mpirun(engine, ranks, [program, os.path.dirname(parts[0]), *KEYS, "own=split"]), 120)
        check(status == 0 and out.count("loss") == 2, program, ranks, status, out, err)
        for part in parts:
            for name in ("last.safetensors", "best.safetensors", "losses.txt", "trace.csv"):
                check(os.path.exists(os.path.join(part, name)) and read(part, name) == read(one, name), part, name, "differs")


def refused(engine, program, other, place):
    own = "Open MPI" if "openmpi" in program else "MPICH"
    def one(case):
        what, expected = case
        status, out, err = ended(mpirun(engine, 2, [program, place, "steps=1", f"own={what}"]), 60)
        check(status not in (0, None) and expected in err, program, what, status, err)
    each(one, (("early", "MPI is not initialised, expected MPI_Init_thread before its communicator"),
               ("null", "the communicator is MPI_COMM_NULL"),
               ("inter", "the communicator is between two groups"),
               ("thread", "MPI serves the thread that initialised it"),
               ("kind", f"bytes of MPI of another kind, expected {'8' if own == 'Open MPI' else '4'} bytes of {own}"),
               ("single", "MPI offers no threads")))
    if other:  # an engine that was built for another MPI
        status, out, err = ended(mpirun((engine[0], other), 2, [program, place, "steps=1"]), 60)
        check(status not in (0, None) and f"bytes of {own}, expected" in err, program, other, status, err)
    for part in ("part0", "part1"):
        os.makedirs(os.path.join(place, part))
    status, out, err = ended(mpirun(engine, 3, [program, place, *KEYS, "own=lost", "stop=1:1"], FLEXLAB_GROUP_TIMEOUT="2"), 60)
    check(status not in (0, None) and "nothing from rank 1" in err and "MPI is the program's" in err, program, status, err)


def main():
    pairs = [(engine, program) for engine, program in zip(ENGINES, PROGRAMS) if shutil.which(engine[0])]
    if not pairs:
        print("skipped: mpirun is not there (apt-get install openmpi-bin libopenmpi-dev)")
        sys.exit(77)
    for number, (engine, program) in enumerate(pairs if LONG else pairs[:1]):
        other = pairs[1 - number][0][1] if len(pairs) == 2 else None
        with tempfile.TemporaryDirectory() as place:
            split(engine, program, place)
            refused(engine, program, other, place)
        print(engine[0], "done")
    finish()


main()
