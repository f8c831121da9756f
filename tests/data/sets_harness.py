"""Common functions of the tests of the readers: opening a specification by print_set, expected failures, arrays as
bytes."""
import os
import random
import struct
import subprocess
import sys

PRINT_SET = None
failures = 0
checks = 0


def check(condition, *what):
    global failures, checks
    checks += 1
    if not condition:
        failures += 1
        print("FAILED:", *what)


def seeded(number=None):
    number = int(os.environ.get("FLEXLAB_TEST_SEED", number if number is not None else random.SystemRandom().randrange(1 << 32)))
    print(f"FLEXLAB_TEST_SEED={number}")
    return random.Random(number)


class Set:
    def __init__(self, output):
        line, _, rest = output.partition(b"\n")
        self.count, self.height, self.width, self.channels, self.classes = map(int, line.split())
        self.labels = list(struct.unpack(f"={self.count}i", rest[:4 * self.count]))
        self.pixels = rest[4 * self.count:]
        if not self.height:
            self.characters = list(struct.unpack(f"={self.classes}i", self.pixels))

    @property
    def shape(self):
        return self.count, self.height, self.width, self.channels


def run(specification, split="train", threads=2):
    return subprocess.run([PRINT_SET, specification, split, str(threads)], capture_output=True, timeout=120)


def opened(specification, split="train", threads=2):
    done = run(specification, split, threads)
    if done.returncode:
        check(False, specification, split, "did not open:", done.returncode, done.stderr.decode(errors="replace"))
        return None
    return Set(done.stdout)


def refused(specification, *words, split="train", status="data"):
    """One failure of this status, whose message has the words."""
    done = run(specification, split)
    text = done.stderr.decode(errors="replace")
    check(done.returncode == 1 and text.startswith(status + ": ") and all(w in text for w in words), specification, split,
          "expected", status, words, "got", done.returncode, text[:400])


def finish():
    print(f"{checks} checks, {failures} failures")
    sys.exit(1 if failures or not checks else 0)
