"""Common functions of the tests of the flexlab program: running it, counting checks, reading what it wrote.

PROGRAM is the path of flexlab, the first argument of the test."""
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib

PROGRAM = os.path.abspath(sys.argv[1])
TINY = ["--model", "mlp2", "--data", "synthetic:train=96,test=40", "--batch", "16", "--epochs", "2"]
TIME_FIELDS = {"seconds", "images_per_second", "speed_ratio", "started", "command_line", "step_seconds", "step_seconds_low",
               "step_seconds_high", "wall_seconds", "timed"}
_counts = {"checks": 0, "failures": 0}


def check(condition, *what):
    _counts["checks"] += 1
    if not condition:
        _counts["failures"] += 1
        print("FAILED:", *what)


def run(*arguments, env=None, cwd=None, prepare=None, timeout=300):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=timeout, cwd=cwd, preexec_fn=prepare,
                          env={**os.environ, **(env or {})})
    done.stdout, done.stderr = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    done.shown = "flexlab " + shlex.join(os.fsdecode(a) for a in arguments)
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


def read_lines(directory, name="metrics.jsonl"):
    """The objects of a file of a JSON object a line: metrics.jsonl, or telemetry."""
    with open(os.path.join(directory, name)) as file:
        return [json.loads(line, parse_constant=lambda word: sys.exit(f"{name}: {word} is no JSON")) for line in file]


def without_time(value, *more):
    """A copy without the fields that differ between two runs of one training, and those in `more`."""
    if isinstance(value, dict):
        return {k: without_time(v, *more) for k, v in value.items() if k not in TIME_FIELDS and k not in more}
    return [without_time(v, *more) for v in value] if isinstance(value, list) else value


def read_csv(*path):
    """The rows of a table, a trace or telemetry."""
    with open(os.path.join(*path), newline="") as file:
        return list(csv.DictReader(file, strict=True))


def documented(source, *files):
    """{section: {field: type}} of docs/output.md, for the sections of these files."""
    sections, file, name = {}, None, None
    with open(os.path.join(source, "docs", "output.md")) as page:
        for line in page:
            heading = re.match(r"(#+) (.+?)\n", line)
            row = re.match(r"\| (`.+?`) \| (\S+) \| ([^|]*) \|", line)
            if heading:
                name = heading[2]
                file = name if heading[1] == "##" else file
            elif row and file in files:
                for field in re.findall(r"`([^`]+)`", row[1]):
                    fields = sections.setdefault(name, {})
                    check(field not in fields, "docs/output.md:", name, field, "is listed twice")
                    check(row[3].strip(), "docs/output.md:", name, field, "has no unit")
                    fields[field] = row[2]
    return sections


def has_gnuplot():
    return any(os.access(os.path.join(d, "gnuplot"), os.X_OK) for d in os.environ["PATH"].split(":"))


def summary():
    print(f"{_counts['checks']} checks, {_counts['failures']} failures")
    return 1 if _counts["failures"] or not _counts["checks"] else 0


def quick_gnuplot(folder):
    """Makes a gnuplot there that always draws the same picture, and returns the folder: drawing takes most of the time of
    a small comparison."""
    os.mkdir(folder)
    svg, png = (os.path.join(folder, kind) for kind in ("svg", "png"))
    with open(svg, "w") as file:
        file.write('<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>\n')
    with open(png, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for chunk in (b"IHDR" + bytes([0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0]), b"IDAT" + zlib.compress(b"\0\0"), b"IEND"):
            file.write((len(chunk) - 4).to_bytes(4, "big") + chunk + zlib.crc32(chunk).to_bytes(4, "big"))
    program, cat = os.path.join(folder, "gnuplot"), shlex.quote(shutil.which("cat"))
    with open(program, "w") as file:
        file.write(f'#!/bin/sh\nread -r first\ncase "$first" in *pngcairo*) exec {cat} {shlex.quote(png)};; *) exec {cat} '
                   f'{shlex.quote(svg)};; esac\n')
    os.chmod(program, 0o755)
    return folder


def folder_in_memory():
    """A temporary folder, in memory where that has room: a disk takes its time to confirm what is synchronised."""
    memory = "/dev/shm"
    roomy = os.access(memory, os.W_OK) and os.statvfs(memory).f_bavail * os.statvfs(memory).f_frsize > 1 << 30
    return tempfile.TemporaryDirectory(dir=memory if roomy and not os.statvfs(memory).f_flag & os.ST_NOEXEC else None)


def draw_once(place):
    """Every run of the program from here on has a gnuplot that keeps each picture and draws no script twice."""
    folder, real = os.path.join(place, ".pictures"), shutil.which("gnuplot")
    os.mkdir(folder)
    program = os.path.join(folder, "gnuplot")
    with open(program, "w") as file:
        file.write(f"""#!/bin/sh
new={shlex.quote(folder)}/$$
cat >"$new"
kept={shlex.quote(folder)}/$(sha256sum <"$new" | cut -c -64)
[ -e "$kept" ] || {{ {shlex.quote(real)} "$@" <"$new" >"$new.picture" && mv "$new.picture" "$kept"; }} || exit
exec cat "$kept"
""")
    os.chmod(program, 0o755)
    os.environ["PATH"] = folder + ":" + os.environ["PATH"]


def draw_quickly(place):
    """For tests that figures do not matter to: every run of the program from here on has a quick gnuplot. Returns the
    environment of a run that has the real one."""
    real = {"PATH": os.environ["PATH"]}
    os.environ["PATH"] = quick_gnuplot(os.path.join(place, ".quick gnuplot")) + ":" + real["PATH"]
    return real
