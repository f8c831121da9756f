"""What the tests of the flexlab program share: running it, counting checks, reading what it wrote.

PROGRAM is the path of flexlab, the first argument of the test."""
import csv
import json
import os
import shlex
import subprocess
import sys

PROGRAM = sys.argv[1]
TINY = ["--model", "mlp2", "--data", "synthetic:train=96,test=40", "--batch", "16", "--epochs", "2"]
_counts = {"checks": 0, "failures": 0}


def check(condition, *what):
    _counts["checks"] += 1
    if not condition:
        _counts["failures"] += 1
        print("FAILED:", *what)


def run(*arguments, env=None, cwd=None):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300, cwd=cwd,
                          env={**os.environ, **(env or {})})
    done.shown = "flexlab " + shlex.join(arguments)
    return done


def succeed(*arguments, status=0, **more):
    done = run(*arguments, **more)
    check(done.returncode == status, done.shown, "status", done.returncode, "want", status, done.stderr)
    return done


def expect_error(arguments, status, *parts, env=None):
    """One line on stderr with every part, nothing on stdout."""
    done = succeed(*arguments, status=status, env=env)
    check(done.stdout == "", done.shown, "prints on stdout:", done.stdout[:200])
    check(done.stderr.count("\n") == 1, done.shown, "wants one line:", done.stderr)
    for part in parts:
        check(part in done.stderr, done.shown, "wants", repr(part), "in", done.stderr)


def read_lines(directory):
    with open(os.path.join(directory, "metrics.jsonl")) as file:
        return [json.loads(line, parse_constant=lambda word: sys.exit(f"metrics.jsonl: {word} is no JSON")) for line in file]


def read_csv(*path):
    with open(os.path.join(*path)) as file:
        return list(csv.DictReader(file))


def has_gnuplot():
    return any(os.access(os.path.join(d, "gnuplot"), os.X_OK) for d in os.environ["PATH"].split(":"))


def summary():
    print(f"{_counts['checks']} checks, {_counts['failures']} failures")
    return 1 if _counts["failures"] or not _counts["checks"] else 0
