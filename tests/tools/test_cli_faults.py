#!/usr/bin/env python3
"""The n-th allocation, write, rename, ... of a whole run of the flexlab program fails: what is left behind?

    test_cli_faults.py PATH-OF-FLEXLAB PATH-OF-INJECT-LIBRARY [all]

Whatever fails, and wherever: the program ends by itself with status 1 and a message, or with 0 and exactly the results of
an undisturbed run; every file with a final name is whole; earlier results are untouched under --force; and the next run
works: where there are checkpoints, by --force and by --resume in turn. Some n of each kind; with `all`, every n."""
import errno
import glob
import json
import os
import shutil
import struct
import subprocess
import sys

sys.dont_write_bytecode = True
import test_cli_files as files
from cli_harness import TIME_FIELDS, check, folder_in_memory, quick_gnuplot, summary, without_time
from test_cli_files import check_whole, parse, snapshot

LIBRARY = os.path.abspath(sys.argv[2])
EVERY = sys.argv[3:] == ["all"]
ARGUMENTS = ["compare", "--model", "mlp2", "--batch", "8", "--epochs", "1", "--threads", "1", "--formats", "fp32,flex16+5", "--figures", "--quiet"]
# kind, errors (0: a short write), how many n are tried without `all`
KINDS = [("memory", (errno.ENOMEM,), 16), ("write", (errno.ENOSPC, errno.EINTR, 0), 4), ("open", (errno.EMFILE,), 6),
         ("close", (errno.EIO,), 5), ("fsync", (errno.EIO, errno.EINTR), 4), ("rename", (errno.EIO,), 8),
         ("mkdir", (errno.ENOSPC,), 3), ("unlink", (errno.EIO,), 5), ("spawn", (errno.EAGAIN, errno.EINTR), 4),
         ("print", (errno.ENOSPC,), 8)]


def small_images(place):
    """Images of 6x6 for thousands of runs: larger ones would mainly add arithmetic."""
    folder = os.path.join(place, "images")
    os.mkdir(folder)
    for name, count in (("train", 16), ("t10k", 8)):
        with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, 6, 6) + bytes(37 * i % 256 for i in range(36 * count)))
        with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))
    ARGUMENTS.extend(["--data", "idx:" + folder])


def run(out, path, fault=None, force=False, resume=False):
    arguments = ["compare", "--resume", out, "--threads", "1", "--quiet"] if resume else [*ARGUMENTS, "--out", out, *(["--force"] if force else [])]
    environment = {**os.environ, "PATH": path}
    if fault:
        environment.update(LD_PRELOAD=LIBRARY, FAULT_PROGRAM=os.path.basename(files.FLEXLAB), **fault)
    try:
        done = subprocess.run([files.FLEXLAB, *arguments], capture_output=True, timeout=60, env=environment)
    except subprocess.TimeoutExpired:
        return None, "", ""
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def results(folder, *without):
    """The files of results, without what differs between two runs."""
    content = {}
    for name in os.listdir(folder):
        if name in (".flexlab-lock", *without): # an unlocked file that could not be removed
            continue
        parsed = parse(os.path.join(folder, name))
        if name == "metrics.jsonl":
            content[name] = [json.dumps(without_time(line)) for line in parsed]
        elif name == "summary.csv":
            content[name] = [[c for c, h in zip(row, parsed[0]) if h not in TIME_FIELDS] for row in parsed]
        elif name == "report.html":
            content[name] = parsed.tags
        else:
            with open(os.path.join(folder, name), "rb") as file:
                content[name] = file.read()
    return content


def chosen(count, how_many):
    if EVERY or count <= how_many:
        return range(1, count + 1)
    return sorted({1 + round(i * (count - 1) / (how_many - 1)) for i in range(how_many)})


class Sweep:
    def __init__(self, place, path, what):
        self.place, self.path, self.what = place, path, what
        self.serial, self.resumed = 0, 0
        out = self.folder()
        status, _, stderr = run(out, path)
        check(status == 0, what, "undisturbed:", status, stderr)
        self.reference, self.bytes = results(out), snapshot(out)

    def folder(self):
        self.serial += 1
        return os.path.join(self.place, f"{self.what} {self.serial}")

    def count(self, kind, force):
        path = os.path.join(self.place, "count")
        out = self.earlier() if force else self.folder()
        status, _, stderr = run(out, self.path, {"FAULT_KIND": kind, "FAULT_AT": "0", "FAULT_COUNT": path}, force)
        check(status == 0, self.what, "counting", kind, status, stderr)
        with open(path) as file:
            return int(file.read())

    def earlier(self):
        """Makes a folder with results of an earlier run."""
        out = self.folder()
        os.mkdir(out)
        for name, content in self.bytes.items():
            with open(os.path.join(out, name), "wb") as file:
                file.write(content)
        return out

    def one(self, kind, n, number, force, lasting):
        out = self.earlier() if force else self.folder()
        fault = {"FAULT_KIND": kind, "FAULT_AT": str(n), "FAULT_ERROR": str(number)}
        if lasting:
            fault["FAULT_LASTING"] = "1"
        shown = (self.what, "FAULT_KIND=" + kind, f"FAULT_AT={n}", f"FAULT_ERROR={number}", "FAULT_LASTING=1" if lasting else "",
                 "--force" if force else "")
        status, stdout, stderr = run(out, self.path, fault, force)
        check(status in (0, 1), *shown, "status", status, stderr)
        here = os.path.isdir(out)
        names = os.listdir(out) if here else []
        if status == 0:
            check("flexlab.incomplete" not in names and not any(n.startswith("flexlab.") for n in names), *shown, "left", names)
            if results_or_none(out) != self.reference:
                check(False, *shown, "says that all is well, but differs", names, stderr)
        elif status == 1:
            check(len(stderr) > 12 and stderr.endswith("\n"), *shown, "says", repr(stderr))
            check("did you mean" not in stderr, *shown, "blames the user:", stderr)
        for name in names:
            path = os.path.join(out, name)
            if os.path.isfile(path) and name != ".flexlab-lock" and not name.endswith(".part"):
                try:
                    parse(path)
                except (ValueError, files.xml.etree.ElementTree.ParseError) as error:
                    check(False, *shown, name, "is not whole:", error)
        if force and status == 1:
            # If nothing can be moved any more, the next process that opens the folder moves things back or forward.
            if any(n in ("flexlab.old", "flexlab.new") for n in names):
                check(run(out, self.path)[0] == 1, *shown, "recovery")
            now = {name: content for name, content in snapshot(out).items() if name != ".flexlab-lock"}
            replaced = results_or_none(out, "flexlab.resume") == self.reference # all is replaced, but its checkpoints could not be removed
            check(now == self.bytes or replaced, *shown, "earlier results changed:", sorted(now), stderr)
        kept = os.path.exists(os.path.join(out, "flexlab.resume", "options")) and \
            bool(glob.glob(os.path.join(glob.escape(out), "flexlab.resume", "run-*", "resume.safetensors")))
        self.resumed += kept and n % 2
        again = force or kept or any(n in files.FILES or n == "flexlab.new" for n in names)
        status, _, stderr = run(out, self.path, force=again, resume=kept and n % 2)
        check(status == 0 and results_or_none(out) == self.reference, *shown, "the next run:", status, stderr, os.listdir(out) if here else "")
        shutil.rmtree(out, ignore_errors=True)


    def finished_runs_survive(self):
        """If memory runs out for the table or a figure after the runs, their numbers still exist."""
        count, met = self.count("memory", False), 0
        for n in chosen(count, 120):
            out = self.folder()
            status, _, stderr = run(out, self.path, {"FAULT_KIND": "memory", "FAULT_AT": str(n), "FAULT_ERROR": "12"})
            apart = os.path.join(out, "flexlab.incomplete")
            if status == 1 and os.path.isdir(apart):
                names = os.listdir(apart)
                with open(os.path.join(apart, min(x for x in names if x.startswith("metrics.jsonl"))), "rb") as file:
                    lines = files.parse_lines(file.read())
                kinds = {line["type"] for line in lines} # without "run" if there was no memory for that line
                check("epoch" in kinds and apart in stderr, n, names, stderr)
                met += "run" in kinds
            elif os.path.exists(os.path.join(out, "flexlab.part", "metrics.jsonl.part")):
                with open(os.path.join(out, "flexlab.part", "metrics.jsonl.part"), "rb") as file:
                    check(b'"type":"run"' not in file.read(), n, "a finished run is only in flexlab.part:", stderr)
        check(met > 0, "no run out of memory had results to keep")


def results_or_none(folder, *without):
    try:
        return results(folder, *without)
    except (OSError, ValueError, files.xml.etree.ElementTree.ParseError):
        return None


def main():
    with folder_in_memory() as place:
        small_images(place)
        with_figures = quick_gnuplot(os.path.join(place, "tools"))
        for path, what in (("/nonexistent", "without figures"), (with_figures, "with figures")):
            sweep = Sweep(place, path, what)
            if EVERY or path == with_figures:
                sweep.finished_runs_survive()
            for kind, errors, how_many in KINDS:
                if kind == "spawn" and path != with_figures:
                    continue
                for force in (False, True):
                    count = sweep.count(kind, force)
                    check(count > 0, what, kind, "is never called: the library has no hold on the program")
                    print(f"{what}{', --force' if force else ''}: {count} calls of {kind}", flush=True)
                    for i, number in enumerate(errors):
                        for n in chosen(count, how_many if i == 0 else 2):
                            sweep.one(kind, n, number, force, lasting=False)
                        for n in chosen(count, 2) if number not in (errno.EINTR, 0) else ():
                            sweep.one(kind, n, number, force, lasting=True)
            check(sweep.resumed > 3, what, "gone on only", sweep.resumed, "times")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
