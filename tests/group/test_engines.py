#!/usr/bin/env python3
"""The engine for MPI under every implementation that is there, with 1 to 4 ranks: every byte of random calls, and of a
message longer than the engine sends at once (long); what is said when ranks disagree, stop, die or were started by
another mpirun. usage: test_engines.py ENGINE_RANKS [long] MPIRUN=ENGINE..."""
import re
import time

import launch
from launch import check, ended

(PROGRAM,), LONG, ENGINES = launch.arguments(1)


def run(mpirun, engine, ranks, *words, seconds=60, **more):
    """Status, seconds, output and messages; status None if the ranks had to be killed."""
    began = time.time()
    status, out, err = ended(launch.mpirun((mpirun, engine), ranks, [PROGRAM, *map(str, words)], **more), seconds)
    return status, time.time() - began, out, err


def every_byte(engine, place):
    mpirun, engine = engine
    for ranks in (1, 2, 3, 4):
        for seed in range(20 if LONG else 1):
            status, _, out, err = run(mpirun, engine, ranks, "random", seed, 400 if LONG else 60, seconds=600)
            check(status == 0 and "right" in out, mpirun, ranks, "ranks, seed", seed, out, err)
        status, _, out, err = run(mpirun, engine, ranks, "flights", ranks)
        check(status == 0 and "right" in out, mpirun, ranks, "ranks, flights", out, err)
    status, _, out, err = run(mpirun, engine, 3, "unwritable", FLEXLAB_GROUP_TIMEOUT="2")
    check(status == 0 and "right" in out, mpirun, "checkpoints that cannot be written:", out, err)
    if LONG:  # two messages, of which one is short
        status, _, out, err = run(mpirun, engine, 2, "large", (1 << 30) + 7, seconds=600)
        check(status == 0 and "right" in out, mpirun, "a large message:", out, err)


def messages(engine, place):
    """Of three ranks, of which the last one is different."""
    mpirun, engine = engine
    def one(case):
        words, seconds, expected = case
        status, took, out, err = run(mpirun, engine, 3, *words, FLEXLAB_GROUP_TIMEOUT="2")
        check(status not in (0, None) and "right" not in out, mpirun, words, status, out, err)
        check(took < seconds and "all are well" not in err, mpirun, words, "took", took, err)
        for pattern in expected:
            check(re.search(pattern, err), mpirun, words, err)
    launch.each(one, (
            (["differ"], 15, [r"ranks differ in settings: rank 0 has 'batch-32', rank 2 'batch-64'"]),
            (["failed"], 15, [r"rank (2|[01]: failed: rank 2): (failed: )?unknown backend 'none'"]),
            (["shorter"], 15, [r"rank [01] of 3, lengths: rank 2 sent 99 bytes, expected 100: it does something else"]),
            (["longer"], 15, [r"rank [01] of 3, lengths: rank 2 sent more than 100 bytes: it does something else"]),
            (["stop"], 15, [r"rank [01] of 3, meeting 3: after 2 seconds nothing from rank 2"]),
            (["kill"], 15, []),
            (["abort"], 15, [r"rank 2 of 3: the disk is full"]),
            (["again"], 15, [r"again: group: MPI has ended in this process, and cannot begin again"])))


def others(engine, place):
    """Ranks that the mpirun of another implementation has started do not find each other."""
    mpirun, engine = engine
    for other, _ in ENGINES:
        status, took, out, err = run(other, engine, 2, "random", 1, 5)
        related = status == 0 and "right" in out  # of one family
        check(related or status not in (0, None), other, engine, status, out, err)
        check(related or "right" not in out, other, engine, "ran as if alone", out, err)
        check(took < 30, other, engine, "took", took)
        if other == mpirun:
            check(related, mpirun, err)


launch.under_each(ENGINES, every_byte, messages, others)
