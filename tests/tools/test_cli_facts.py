#!/usr/bin/env python3
"""flexlab facts: the generated part of docs/precision.md is what the program writes, and Python computes some of its numbers too.
usage: test_cli_facts.py FLEXLAB SOURCE_DIR [--write]"""
import os
import struct
import sys

from cli_harness import check, expect_error, succeed, summary

PAGE = os.path.join(sys.argv[2], "docs", "precision.md")
BEGIN, END = "<!-- quick -->\n", "<!-- long -->\n"

with open(PAGE) as file:
    page = file.read()
quick = page[page.index(BEGIN) + len(BEGIN):page.index(END)]
done = succeed("facts", "--markdown")
if "--write" in sys.argv:
    with open(PAGE, "w") as file:
        file.write(page.replace(quick, done.stdout + "\n"))
    sys.exit(0)
check(quick == done.stdout + "\n", "docs/precision.md differs from the output (--write)", *(
    a + "\n  " + b for a, b in zip(quick.splitlines(), done.stdout.splitlines()) if a != b))
check("NOT AS SAID" not in page and done.stderr == "", done.stderr)

# the table has the lines of the page
shown = succeed("facts").stdout
rows = [line for line in done.stdout.splitlines() if line.startswith("| ") and "---" not in line and "expected" not in line]
check(shown.count("as said\n") == len(rows) + 1 and f"{len(rows)} of {len(rows)} as said" in shown, shown)

# names: of the page, those that take long too
listed = succeed("facts", "--list").stdout.splitlines()[1:]
names = [line.split()[0] for line in listed]
long = [line.split()[0] for line in listed if line.split()[1] == "long"]
check(len(names) >= 9 and long, listed)
for name in names:
    place = page.find(f"## {name}\n")
    check(place >= 0 and (place > page.index(END)) == (name in long), name, "in docs/precision.md")

one = succeed("facts", "lost-update", "fp16-numbers").stdout
check("lost-update" in one and "fp16-numbers" in one and "ranges" not in one, one)
expect_error(["facts", "lost-updates"], 2, "'lost-updates'", "did you mean 'lost-update'?")
expect_error(["facts", "ranges", "--all"], 2, "--all")
expect_error(["facts", "--quick"], 2, "--quick")
check("Usage: flexlab facts" in succeed("facts", "--help").stdout, "facts --help")


def half(x):
    try:
        return struct.unpack("e", struct.pack("e", x))[0]
    except OverflowError:
        return float("inf")


cells = {row.split(" | ")[0][2:]: row.split(" | ")[2] for row in rows}
for what, x in (("2^-25 in fp16", 2.0 ** -25), ("65504, its largest number", 65504.0), ("65520", 65520.0), ("2^-3 + 2^-14 in fp16", 2.0 ** -3 + 2.0 ** -14)):
    check(float(cells[what]) == half(x), what, cells[what], half(x))
worst = max(abs(half(x) - x) for x in (n / 4 for n in range(4 * 32768, 4 * 65520, 7)))
check(abs(float(cells["largest error, fp32 to fp16 and back"]) - worst) < 0.5, worst)
sys.exit(summary())
