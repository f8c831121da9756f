"""The protocol of a contestant (worker.h), for rivals in Python."""

import sys
import time

TURN_SECONDS = 0.02


def timed(run, runs):
    start = time.perf_counter()
    for _ in range(runs):
        run()
    return (time.perf_counter() - start) / runs


def warm_up(run):
    """Seconds of the last of four executions, or of fewer if they take long."""
    start = time.perf_counter()
    for _ in range(4):
        seconds = timed(run, 1)
        if seconds > 0.5 and time.perf_counter() - start > 2:
            break
    return seconds


def serve(prepare):
    """prepare(words) returns the function to time; an exception's message is the reason to skip."""
    answer, run, runs = sys.stdout, None, 0
    sys.stdout = sys.stderr  # the output of libraries is not an answer
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["quit"]:
            break
        if words[:1] == ["prepare"]:
            try:
                run = prepare(words[1:])
                seconds = warm_up(run)
                runs, reply = max(1, round(TURN_SECONDS / seconds)), "ready"
            except Exception as error:
                reply = "skip " + " ".join(f"{type(error).__name__}: {error}".split())[:300]
        else:
            reply = repr(timed(run, runs))
        answer.write(reply + "\n")
        answer.flush()
