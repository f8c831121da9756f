#!/usr/bin/env python3
"""The program on a terminal of 80 columns: nothing is wider, test accuracies of all epochs remain visible, no number
fills a line.

    test_cli_terminal.py PATH-OF-FLEXLAB SOURCE"""
import fcntl
import os
import pty
import re
import struct
import sys
import tempfile
import termios
import unicodedata

from cli_harness import PROGRAM, TINY, check, run, succeed, summary

COLUMNS = 80
# Nine variants with the longest names.
LONG = ("fp32,fp16:nomaster,bf16:nomaster,flex16+5:nomaster:current,flex16+5:nomaster:ngraph,flex16+5-paper:current,"
        "flex16+5-sr:ngraph,dfp16:nomaster:current,dfp16:nomaster:paper")


def on_terminal(columns, *arguments):
    """Exit status, and all output of stdout and stderr to the terminal."""
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execv(PROGRAM, [PROGRAM, *arguments])
    sent = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:
            break
        if not part:
            break
        sent += part
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), sent.decode()


def width(line):
    return sum(0 if unicodedata.combining(c) else 1 for c in line)


def screen(sent):
    """The lines that remain: a line that was cleared is overwritten by the next one."""
    return [line.split("\r\x1b[K")[-1].rstrip("\r") for line in sent.replace("\r\n", "\n").split("\n")]


def check_fits(sent, columns, what):
    for line in sent.replace("\r\n", "\n").split("\n"):
        for part in line.split("\r\x1b[K"):
            check(width(part) <= columns, what, "has a line of", width(part), "columns:", repr(part))


def table_rows(lines, name):
    return [line for line in lines if line.startswith(name + " ") and not line.startswith("[")]


def test_fits(place):
    for columns in (COLUMNS, 300):
        out = os.path.join(place, f"long{columns}")
        status, sent = on_terminal(columns, "compare", *TINY, "--formats", LONG, "--seeds", "2", "--out", out)
        check(status == 0, columns, "columns: status", status, sent[-500:])
        check_fits(sent.split("\nWritten to")[0], columns, f"a terminal of {columns} columns")
        lines = screen(sent)
        blocks = sum(line.startswith("format ") for line in lines)
        check(blocks == 1 if columns == 300 else blocks > 1, columns, "columns:", blocks, "blocks")
        for name in LONG.split(","):
            check(len(table_rows(lines, name)) == blocks, name, "is in", table_rows(lines, name), "of", blocks, "blocks")
        text = " ".join(lines)
        for head in ("train loss", "last loss", "loss − fp32", "test acc. %", "agree %", "img/s", "× fp32", "weights",
                     "activations", "saturated", "flushed"):
            check(text.count(head) >= 1, columns, "columns: the table lacks", head)


def test_columns_variable(place):
    """Without a terminal, COLUMNS limits the table; without that, a format has one line."""
    out = os.path.join(place, "piped")
    arguments = ["compare", *TINY, "--formats", LONG, "--quiet", "--force", "--out", out]
    narrow = succeed(*arguments, env={"COLUMNS": "80"})
    check_fits(narrow.stdout.split("\nWritten to")[0], 80, "COLUMNS=80")
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    wide = run(*arguments, env={**environment, "COLUMNS": ""})
    check(all(len(table_rows(wide.stdout.splitlines(), name)) == 1 for name in LONG.split(",")), wide.stdout)


def test_epochs_stay(place):
    """Each epoch's test accuracy is a line that remains on the screen, the same as without a terminal."""
    for number, name in enumerate(("fp32", "flex16+5-paper:current")):
        out = os.path.join(place, f"epochs{number}")
        status, sent = on_terminal(COLUMNS, "train", *TINY[:-1], "4", "--format", name, "--out", out)
        check(status == 0, status, sent)
        stay = [line for line in screen(sent) if re.search(r"epoch \d/4  test accuracy \d+\.\d\d %", line)]
        check([re.search(r"epoch (\d)", line)[1] for line in stay] == list("1234"), name, "epochs on the screen:", screen(sent))
        check(all(line.startswith(f"[1/1] {name} seed 1") for line in stay), stay)
        piped = succeed("train", *TINY[:-1], "4", "--format", name, "--out", out, "--force").stderr
        accuracy = re.findall(r"epoch \d/4  test accuracy (\S+) %", piped)
        check(accuracy == [re.search(r"accuracy (\S+) %", line)[1] for line in stay], accuracy, stay)


def test_narrow(place):
    """A terminal too narrow for a long name: the line of a run wraps and keeps its accuracy."""
    status, sent = on_terminal(50, "train", *TINY, "--format", "flex16+5:nomaster:current", "--out", os.path.join(place, "narrow"))
    check(status == 0, status, sent)
    for wanted in (r"seed 1  done: test accuracy \d+\.\d\d %$", r"seed 1  epoch 2/2  test accuracy \d+\.\d\d %$"):
        check(any(re.search(wanted, line) for line in screen(sent)), wanted, screen(sent))


def test_no_flood(place):
    """Losses of 1e40 and more take few digits."""
    status, sent = on_terminal(COLUMNS, "compare", *TINY, "--lr", "1000", "--out", os.path.join(place, "wild"))
    check(status == 1 and "DIVERGED" in sent, status, sent[-300:])
    progress = "\n".join(line for line in sent.split("\nWritten to")[0].split("\n") if "the first NaN or Inf" not in line)  # a message
    check_fits(progress, COLUMNS, "losses of a diverged run")
    longest = max(re.findall(r"[\d.e+-]+", sent), key=len)
    check(len(longest) <= 12, "a number of", len(longest), "characters:", longest)


def main():
    with tempfile.TemporaryDirectory() as place:
        test_fits(place)
        test_columns_variable(place)
        test_epochs_stay(place)
        test_no_flood(place)
        test_narrow(place)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
