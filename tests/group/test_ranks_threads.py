#!/usr/bin/env python3
"""Ranks of two threads each: the files of one rank of one thread, byte for byte, while gradients cross between the layers.
Under ThreadSanitizer (./dev sanitize) with Open MPI alone, in whose libraries nothing is looked at: MPICH ends there.
usage: test_ranks_threads.py TRAIN_RANKS MPIRUN=ENGINE..."""
import os

import launch
from launch import check, same

(TRAIN,), LONG, ENGINES = launch.arguments(1)
SANITIZER = {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1 halt_on_error=0 exitcode=66"}
KEYS = ["batch=24", "shards=4", "steps=4", "keep=2", "telemetry=2", "data=synthetic:train=96,test=24"]


def threads(engine, place):
    for number, more in enumerate((["variant=flex16+5"], ["variant=fp32", "batchnorm=global"])):
        folders = []
        for ranks, count in ((1, 1), (2, 2)):
            folders.append(os.path.join(place, f"{number}-{ranks}"))
            status, out, err = launch.train(TRAIN, engine, ranks, folders[-1], *KEYS, *more, seconds=300, **SANITIZER,
                                            OMP_NUM_THREADS=str(count), FLEXLAB_GROUP_TIMEOUT="100")
            check(status == 0 and "ThreadSanitizer" not in err, more, ranks, "ranks:", status, err[-6000:])
        same(*folders, *more)


launch.under_each([engine for engine in ENGINES if "openmpi" in engine[0]] or ENGINES[:1], threads)
