#!/usr/bin/env python3
"""Measures flexlab and its rivals alternately in one run: ./dev bench. docs/benchmarks.md explains each entry."""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import contest
import report
import rivals as rivals_module
import works

ROOT = pathlib.Path(__file__).resolve().parent.parent


def arguments():
    p = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    p.add_argument("--quick", action="store_true", help="fewer rounds, no 4096^3, fewer rivals' settings")
    p.add_argument("--threads", default="1,2", help="numbers of threads, each a pass of its own (default 1,2)")
    p.add_argument("--filter", default="", metavar="TEXT", help="only rows with TEXT in section, work, format or rival")
    p.add_argument("--list", action="store_true", help="name the rows and measure nothing")
    p.add_argument("--json", metavar="FILE", help="write an array of rows")
    p.add_argument("--save", action="store_true", help="write bench/results/MACHINE.json and .md")
    p.add_argument("--no-install", action="store_true", help="use only the rivals that are already there")
    p.add_argument("--rounds", type=int, metavar="N", help="N rounds of each group, however long they take")
    p.add_argument("--build", default=str(ROOT / "build/release"), help="folder of the build to measure")
    return p.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    a = arguments()
    try:
        thread_counts = [int(t) for t in a.threads.split(",")]
    except ValueError:
        sys.exit(f"bench: --threads {a.threads}: expected numbers, such as 1,2")
    if min(thread_counts) < 1:
        sys.exit(f"bench: --threads {a.threads}: expected numbers from 1")
    ours = pathlib.Path(a.build) / "bench" / "ours"
    if not ours.exists() and not a.list:
        sys.exit(f"bench: {ours} is not built: ./dev build")
    rivals = rivals_module.Rivals(ROOT, log=say, dry=a.list)
    if not a.no_install and not a.list:
        rivals.install()
    everything = works.Works(ours, rivals, a.quick, thread_counts)
    rounds, budget = (a.rounds, float("inf")) if a.rounds else (5, 1.5) if a.quick else (15, 20)
    if report.BUSY > 0.5 and not a.list:
        say(f"bench: {report.BUSY:.1f} processors were busy before this run; times at as many threads as cores suffer")
    results, start = [], time.monotonic()
    for threads in thread_counts:
        for group in everything.groups(threads):
            group.select(a.filter)
            if not group.rows:
                continue
            if a.list:
                for row in group.rows:
                    print(f"{group.section}: {row.work}, {row.format}, {threads} threads, against {row.rival}")
                continue
            contest.measure(list(group.contestants.values()), rounds, budget)
            new = group.results()
            report.print_rows(new, first=not results or results[-1]["section"] != new[0]["section"])
            results += new
    memory = [
        r for r in everything.memory(a.list) if a.filter in f"{r['section']} {r['work']} {r['format']} {r['rival']}"
    ]
    if a.list:
        for row in memory:
            print(f"memory: {row['work']}, {row['format']}, against {row['rival']}")
        return
    if memory:
        report.print_rows(memory, first=True)
        results += memory
    report.print_summary(results, time.monotonic() - start)
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps(results, indent=1) + "\n")
    if a.save:
        report.save(ROOT / "bench/results", results, ROOT, rivals)


if __name__ == "__main__":
    main()
