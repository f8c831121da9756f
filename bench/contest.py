"""Contestants and rounds: worker processes that run alternately, and the results of their times."""

import os
import queue
import statistics
import subprocess
import threading
import time

REST = 0.012  # seconds between two contestants, after which the waiting threads of the last one are asleep
# Threads spin while their contestant runs and sleep before the next one: the best of both for every thread pool.
WAITING = {"GOMP_SPINCOUNT": "100000", "KMP_BLOCKTIME": "2", "OPENBLAS_THREAD_TIMEOUT": "22"}
REPLY_SECONDS = 900  # compiling a training step takes minutes


def environment(threads, more):
    base = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "FLEXLAB_ISA", "FLEXLAB_VERBOSE")}
    count = str(threads)
    return {
        **base,
        **WAITING,
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        **more,
    }


class Contestant:
    """One worker process with one piece of work. `program`: rivals.Program; `work`: the words after "prepare"."""

    def __init__(self, name, program, work, threads, more=None):
        self.name, self.program, self.work, self.threads = name, program, work, threads
        self.more = more or {}
        self.skip = program.skip
        self.times = []
        self.process = None
        self.replies = queue.Queue()

    def _cpus(self):
        """Thread pools that depend only on the permitted processors get as many of these as they shall have threads."""
        if self.program.pinned and self.threads < len(os.sched_getaffinity(0)):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: self.threads])

    def _read(self, stream):
        for line in stream:
            self.replies.put(line.strip())
        self.replies.put(None)

    def start(self):
        if self.skip:
            return
        try:
            self.process = subprocess.Popen(
                self.program.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                preexec_fn=self._cpus,
                env=environment(self.threads, {**self.program.environment, **self.more}),
            )
            threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
        except OSError as error:
            self.skip = f"{self.program.argv[0]}: {error.strerror}"

    def _send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _reply(self):
        try:
            reply = self.replies.get(timeout=REPLY_SECONDS)
        except queue.Empty:
            reply = f"skip no answer in {REPLY_SECONDS} s"
        return reply if reply is not None else f"skip {self.name} ended with status {self.process.wait()}"

    def prepare(self):
        """One after the other; determines the number of executions for one measurement."""
        if self.skip:
            return
        try:
            self._send("prepare " + self.work)
            reply = self._reply()
        except OSError:
            reply = f"skip {self.name} ended before its work"
        if reply != "ready":
            self.skip = reply.removeprefix("skip ")

    def turn(self):
        if self.skip:
            return
        try:
            self._send("run")
            self.times.append(float(self._reply()))
        except (OSError, ValueError):
            self.skip = f"{self.name} failed while it ran"

    def stop(self):
        if not self.process:
            return
        try:
            self._send("quit")
            self.process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()

    @property
    def seconds(self):
        return statistics.median(self.times) if self.times and not self.skip else None


class Weighted:
    """A sum of contestants' times, round by round: layers of a network by how often each occurs in it."""

    def __init__(self, name, parts):
        self.name, self.parts = name, parts  # parts: (count, function giving the contestant or None)

    @property
    def skip(self):
        return next((f"{self.name}: a part is missing" for _, part in self.parts if part() is None), "")

    @property
    def times(self):
        chosen = [(count, part()) for count, part in self.parts]
        if any(c is None for _, c in chosen):
            return []
        return [
            sum(count * time for (count, _), time in zip(chosen, times)) for times in zip(*(c.times for _, c in chosen))
        ]

    @property
    def seconds(self):
        times = self.times
        return statistics.median(times) if times else None


ENOUGH = 3  # rounds: a slow contestant is left out of further ones
SLOW = 1.0  # seconds


def measure(contestants, rounds, budget):
    """A B C A B C ...: at least ENOUGH rounds, at most `rounds`, in between while `budget` seconds last."""
    try:
        for c in contestants:
            c.start()
        for c in contestants:
            c.prepare()
        start, done = time.monotonic(), 0
        while done < rounds and (done < ENOUGH or time.monotonic() - start < budget):
            for c in contestants:
                if done < ENOUGH or (c.seconds or 0) < SLOW:
                    time.sleep(REST)
                    c.turn()
            done += 1
    finally:
        for c in contestants:
            c.stop()


def best(contestants):
    """The one with the least median; None if none ran."""
    ran = [c for c in contestants if c.seconds is not None]
    return min(ran, key=lambda c: c.seconds) if ran else None


def ratio(theirs, ours):
    """Median over the rounds of their time by ours in that round."""
    return statistics.median(t / o for t, o in zip(theirs.times, ours.times))
