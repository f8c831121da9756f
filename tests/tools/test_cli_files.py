#!/usr/bin/env python3
"""The folder of results after whatever happens to the flexlab program: closed streams, signals, kill -9, a second
process, full disks, a broken gnuplot, strange names.

    test_cli_files.py PATH-OF-FLEXLAB

Prints each check that fails with the command that shows it. Files are checked with Python's own parsers."""
import csv
import glob
import html.parser
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
import zlib

sys.path.append(sys.path[0] + "/../support")
import safetensors_witness as witness
from cli_harness import PROGRAM as FLEXLAB, check, draw_once, draw_quickly, folder_in_memory, read_csv, run, summary

os.environ["OMP_WAIT_POLICY"] = "passive"
TINY = ["--model", "mlp2", "--data", "synthetic:train=32,test=16", "--batch", "8", "--threads", "1", "--figures", "--epochs", "2"]
QUICK = ["compare", *TINY, "--formats", "fp32,flex16+5"]
FIGURES = {f"figure-{n}.{t}" for n in ("loss", "exponents") for t in ("svg", "png")}
FILES = {"metrics.jsonl", "summary.csv", "report.html", "trace-flex16+5-seed1.csv"} | FIGURES


# --- the files themselves ----------------------------------------------------------------------------------------------

def parse_png(data):
    """Checks every chunk with its checksum, up to IEND, where the file must end."""
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise ValueError("no PNG signature")
    at, kind = 8, b""
    while kind != b"IEND":
        length, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        body, crc = data[at + 8:at + 8 + length], data[at + 8 + length:at + 12 + length]
        if len(crc) != 4 or int.from_bytes(crc, "big") != zlib.crc32(kind + body):
            raise ValueError(f"chunk {kind!r} at {at} is broken")
        at += 12 + length
    if at != len(data):
        raise ValueError("bytes after IEND")


class StrictPage(html.parser.HTMLParser):
    """A parser that requires nested tags and collects the text outside of scripts."""
    VOID = {"meta", "br", "img", "link", "hr", "input", "wbr", "path", "rect", "use", "circle"}

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        if tag in self.VOID:
            return
        if not self.open or self.open.pop() != tag:
            raise ValueError(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if "script" not in self.open:
            self.text.append(data)


def parse_page(data):
    text = data.decode("utf-8")
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text):
        raise ValueError("control characters")
    page = StrictPage()
    page.feed(text)
    page.close()
    if page.open or not text.endswith("</html>\n"):
        raise ValueError(f"{page.open} is left open")
    return page


def parse_lines(data):
    if data and not data.endswith(b"\n"):
        raise ValueError("the last line has no end")

    def no_constant(name):
        raise ValueError(name)
    return [json.loads(line.decode("utf-8"), parse_constant=no_constant) for line in data.splitlines()]


def parse_rows(data):
    if not data.endswith(b"\n"):
        raise ValueError("the last row has no end")
    rows = list(csv.reader(data.decode("utf-8").splitlines()))
    if len({len(r) for r in rows}) != 1 or len(rows) < 2:
        raise ValueError(f"{len(rows)} rows of {({len(r) for r in rows})} fields")
    return rows


def parse(path):
    with open(path, "rb") as file:
        data = file.read()
    name = os.path.basename(path)
    if name.endswith(".png"):
        return parse_png(data)
    if name.endswith(".svg"):
        return xml.etree.ElementTree.fromstring(data)
    if name.endswith(".html"):
        return parse_page(data)
    if name.endswith(".jsonl"):
        return parse_lines(data)
    return parse_rows(data)


def check_to_go_on(folder, *what):
    """Checks what an unfinished comparison leaves: its options and at least one checkpoint, each complete."""
    names = sorted(os.listdir(folder))
    files_ = [os.path.join(folder, n, "resume.safetensors") for n in names if n.startswith("run-")]
    check(names[:1] == ["options"] and len(files_) == len(names) - 1 and any(os.path.exists(f) for f in files_), *what, "flexlab.resume has", names)
    for file in files_:
        check(not os.path.exists(file) or witness.read(file)[1]["flexlab.crc32"] == witness.checksum(file), *what, file, "is torn")


def check_whole(folder, *what):
    """Each file in the folder is one of flexlab's and can be read to its end; the numbers of records fit the
    experiment."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name == "flexlab.incomplete":
            check_whole(path, *what)
            continue
        if name == "flexlab.resume":
            check_to_go_on(path, *what)
            continue
        check(name in FILES or name.startswith("trace-"), *what, "left", name)
        if os.path.isfile(path):
            try:
                content = parse(path)
            except (ValueError, xml.etree.ElementTree.ParseError) as error:
                check(False, *what, name, "is not whole:", error)
                continue
            if name == "summary.csv":
                check(len(content) == 3, *what, name, "has", len(content), "rows")


def snapshot(folder):
    content = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                content[name] = file.read()
    return content


def end_line(folder):
    with open(os.path.join(folder, "metrics.jsonl"), "rb") as file:
        return parse_lines(file.read())[-1]


# --- closed streams ----------------------------------------------------------------------------------------------------

def test_closed_streams(place):
    for closed in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
        out = os.path.join(place, "closed " + " ".join(map(str, closed)))

        def close_them():
            for stream in closed:
                os.close(stream)
        done = subprocess.run([FLEXLAB, *QUICK, "--out", out], preexec_fn=close_them, timeout=300,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        check(done.returncode == (1 if 1 in closed else 0), "without streams", closed, "status", done.returncode)
        check(set(os.listdir(out)) == FILES, "without streams", closed, set(os.listdir(out)) ^ FILES)
        check_whole(out, "without streams", closed)
        for name in os.listdir(out):
            with open(os.path.join(out, name), "rb") as file:
                data = file.read()
            check(b"[1/2] fp32" not in data and b"loss \xe2\x88\x92 fp32  " not in data, "without streams", closed, name,
                  "has what was printed")
    done = run("info", prepare=lambda: os.close(1))
    check(done.returncode == 1 and "standard output" in done.stderr, "flexlab info >&-", done.returncode, done.stderr)


# --- one process at a time ---------------------------------------------------------------------------------------------

def start(out, *options, formats="fp32,flex16+5", ignore=()):
    """A comparison of 200 epochs, which waits for its lines to be read: its pipe and this side hold some 90 of them."""
    def prepare():
        for number in ignore:
            signal.signal(number, signal.SIG_IGN)
    images = os.path.join(os.path.dirname(out), "images")
    if not os.path.exists(images):
        write_idx(images)
    return subprocess.Popen([FLEXLAB, "compare", *on_images(images)[:-1], "2000", "--formats", formats, "--max-steps",
                             "400", "--one-by-one", "--out", out, *options], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True, pipesize=4096, preexec_fn=prepare if ignore else None)


def wait_for(child, text):
    for line in child.stderr:
        if text in line:
            return
    check(False, "no line with", text)


def test_lock(place):
    out = os.path.join(place, "locked")
    child = start(out)
    wait_for(child, "epoch 1/")
    for force in ([], ["--force"]):
        done = run(*QUICK, "--out", out, *force)
        check(done.returncode == 1 and str(child.pid) in done.stderr and done.stderr.count("\n") == 1, done.shown,
              "beside process", child.pid, done.returncode, done.stderr)
    patient = time.monotonic() + 60
    while not glob.glob(os.path.join(out, "flexlab.resume", "run-*", "resume.safetensors")) and time.monotonic() < patient:
        time.sleep(0.01)  # its first checkpoint follows the line of the epoch
    child.send_signal(signal.SIGKILL)
    child.communicate()
    done = run(*QUICK, "--out", out)
    check(done.returncode == 1 and f"'flexlab compare --resume {out}' resumes it" in done.stderr, "after kill -9:", done.shown, done.returncode, done.stderr)
    done = run(*QUICK, "--out", out, "--force")
    check(done.returncode == 0, "after kill -9:", done.shown, done.returncode, done.stderr)
    check(set(os.listdir(out)) == FILES, "after kill -9:", set(os.listdir(out)) ^ FILES)
    # Files of processes that died while results moved to their places.
    before = snapshot(out)
    os.mkdir(os.path.join(out, "flexlab.new"))
    os.rename(os.path.join(out, "metrics.jsonl"), os.path.join(out, "flexlab.new", "metrics.jsonl"))
    done = run("report", out)
    check(done.returncode == 1 and "took their places when flexlab was killed" in done.stderr, done.shown, done.returncode, done.stderr)
    done = run(*QUICK, "--out", out)
    check(done.returncode == 1 and "already holds" in done.stderr and snapshot(out) == before, "as the hint says:", done.stderr)
    child = start(out, "--force")
    wait_for(child, "epoch 1/")
    done = run("report", out)
    check(done.returncode == 1 and f"process {child.pid} is writing there; wait for it\n" in done.stderr and "--out" not in done.stderr,
          done.shown, done.returncode, done.stderr)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    shutil.rmtree(os.path.join(out, "flexlab.resume"))
    run(*QUICK, "--out", out) # removes what was left
    os.mkdir(os.path.join(out, "flexlab.old"))
    os.mkdir(os.path.join(out, "flexlab.part"))
    os.rename(os.path.join(out, "report.html"), os.path.join(out, "flexlab.old", "report.html"))
    done = run(*QUICK, "--out", out)
    check(done.returncode == 1 and "already holds" in done.stderr and snapshot(out) == before, "earlier results come back:",
          done.stderr, sorted(os.listdir(out)))
    os.mkdir(os.path.join(out, "flexlab.old"))
    os.mkdir(os.path.join(out, "flexlab.new"))
    os.rename(os.path.join(out, "report.html"), os.path.join(out, "flexlab.new", "report.html"))
    with open(os.path.join(out, "flexlab.old", "report.html"), "w") as file:
        file.write("earlier")
    done = run(*QUICK, "--out", out)
    check(done.returncode == 1 and snapshot(out) == before and set(os.listdir(out)) == FILES, "new results go on:",
          done.stderr, sorted(os.listdir(out)))


def test_many_processes(place):
    """If many are started together, one at a time writes, and the others are refused."""
    out = os.path.join(place, "crowd")
    children = [subprocess.Popen([FLEXLAB, *QUICK, "--out", out, "--force", "--quiet"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for _ in range(6)]
    ends = [(c.communicate()[1], c.returncode) for c in children]
    check(any(code == 0 for _, code in ends), "six processes:", ends)
    for text, code in ends:
        check(code == 0 or (code == 1 and "writing there" in text), "six processes:", code, text)
    check(set(os.listdir(out)) == FILES, "six processes:", sorted(os.listdir(out)))
    check_whole(out, "six processes")


def test_force(place):
    """Earlier results remain until the new ones are complete; files of the user remain in any case."""
    out = os.path.join(place, "forced")
    run(*QUICK, "--out", out, "--quiet")
    mine = ["notes.txt", "trace-of-thought-seedling.csv", "metrics.jsonl.bak", "figure-loss.svg.old", "trace-fp16-seed7.csv"]
    for name in mine:
        with open(os.path.join(out, name), "w") as file:
            file.write(name)
    before = snapshot(out)
    child = start(out, "--force")
    wait_for(child, "epoch 1/")
    check({**before, **snapshot(out)} == before or ".flexlab-lock" in os.listdir(out), "changed while it runs")
    check({n: c for n, c in snapshot(out).items() if n != ".flexlab-lock"} == before, "--force: changed before the end")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    check({n: c for n, c in snapshot(out).items() if n != ".flexlab-lock"} == before, "--force and kill -9: changed")
    child = start(out, "--force")
    wait_for(child, "epoch 1/")
    child.send_signal(signal.SIGINT)
    child.communicate()
    check(child.returncode == 130 and snapshot(out) == before, "--force and Ctrl-C:", child.returncode)
    apart = os.path.join(out, "flexlab.incomplete")
    check(os.path.isdir(apart) and end_line(apart)["complete"] is False, "--force and Ctrl-C keep what there is apart")
    check_whole(apart, "set apart")
    with open(os.path.join(apart, "mine.txt"), "w") as file:
        file.write("mine")
    for _ in range(2): # the second replaces the first
        child = start(out, "--force", formats="fp32")
        wait_for(child, "epoch 1/")
        child.send_signal(signal.SIGINT)
        child.communicate()
    check(set(os.listdir(apart)) == {"mine.txt", "metrics.jsonl", "summary.csv", "report.html", "figure-loss.svg",
                                     "figure-loss.png"}, "set apart:", os.listdir(apart))
    done = run("compare", *TINY, "--formats", "fp32,dfp16", "--out", out, "--force")
    check(done.returncode == 0, done.shown, done.stderr)
    check(set(os.listdir(out)) == (FILES - {"trace-flex16+5-seed1.csv"}) | set(mine) | {"flexlab.incomplete", "trace-dfp16-seed1.csv"},
          "--force left or took", sorted(os.listdir(out)))
    check(os.listdir(apart) == ["mine.txt"], "set apart, after a complete run:", os.listdir(apart))
    after = snapshot(out)
    check(all(after[name] == before[name] for name in mine), "--force changed a file of the user")
    # A file of the user has a name that the run would write: it is not replaced silently.
    other = os.path.join(place, "taken")
    os.mkdir(other)
    with open(os.path.join(other, "trace-flex16+5-seed1.csv"), "w") as file:
        file.write("mine")
    done = run(*QUICK, "--out", other)
    check(done.returncode == 1 and "already holds" in done.stderr, done.shown, done.returncode, done.stderr)
    os.remove(os.path.join(other, "trace-flex16+5-seed1.csv"))
    os.mkdir(os.path.join(other, "report.html"))
    done = run(*QUICK, "--out", other, "--force")
    check(done.returncode == 1 and "report.html is a folder" in done.stderr, done.shown, done.returncode, done.stderr)


# --- signals -----------------------------------------------------------------------------------------------------------

def check_stopped(out, child, stdout, name, number):
    what = (name, "in", os.path.basename(out))
    check(child.returncode == 128 + number, *what, "status", child.returncode)
    end = end_line(out)
    check(end["complete"] is False and end["stopped_by"] == name, *what, end)
    check("stopped after step" in stdout, *what, stdout)
    with open(os.path.join(out, "report.html"), encoding="utf-8") as file:
        page = file.read()
    check("Incomplete: " in page and "stopped after step" in page and re.search('"stopped":[1-9]', page), *what, "report.html")
    rows = read_csv(out, "summary.csv")
    check(any(int(r["stopped_step"]) > 0 and float(r["train_loss_mean"]) > 0 for r in rows), *what, rows)
    with open(os.path.join(out, "metrics.jsonl"), "rb") as file:
        runs = [line for line in parse_lines(file.read()) if line["type"] == "run"]
    check(runs and runs[-1]["complete"] is False and 0 < runs[-1]["steps"] < 400, *what, runs[-1:])
    check_whole(out, *what)
    return rows, page


def test_signals(place):
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name)
        for when in ("epoch 1/", "seed 1  done"):
            out = os.path.join(place, f"{name} {when.replace('/', ' ')}")
            child = start(out)
            wait_for(child, when)
            if when != "epoch 1/":
                wait_for(child, "epoch 2/")
            child.send_signal(number)
            stdout, stderr = child.communicate(timeout=120)
            check(f"stopped by {name} during" in stderr, name, stderr)
            rows, page = check_stopped(out, child, stdout, name, number)
            if when == "seed 1  done":
                check([int(r["runs"]) for r in rows] == [1, 0] and FIGURES <= set(os.listdir(out)), name, rows)
                trace = parse(os.path.join(out, "trace-flex16+5-seed1.csv"))
                check(int(trace[-1][0]) <= int(rows[1]["stopped_step"]), name, "trace", trace[-1], rows[1])
    # Only fp32 is finished when the second format begins: the figure has one curve and no differences.
    out = os.path.join(place, "one finished")
    child = start(out, "--seeds", "2", formats="fp32,fp16")
    wait_for(child, "fp32 seed 1  done")
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=120)
    check(child.returncode == 130 and "1 of 4 runs" in stdout, "one finished:", child.returncode, stdout)
    check({"figure-loss.svg", "figure-loss.png"} <= set(os.listdir(out)), "one finished:", sorted(os.listdir(out)), stderr)
    with open(os.path.join(out, "report.html"), encoding="utf-8") as file:
        check('"finished":1' in file.read(), "one finished: not in the figures of the report")
    # train, one format
    out = os.path.join(place, "train")
    child = subprocess.Popen([FLEXLAB, "train", *TINY[:-1], "2000", "--max-steps", "600", "--out", out],
                             stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for(child, "epoch 2/")
    child.send_signal(signal.SIGTERM)
    stdout, _ = child.communicate(timeout=120)
    check(child.returncode == 143 and end_line(out)["complete"] is False, "train:", child.returncode, stdout)
    # nohup: a signal that is ignored stays ignored
    out = os.path.join(place, "nohup")
    child = start(out, "--no-trace", formats="fp32", ignore=(signal.SIGHUP,))
    wait_for(child, "epoch 1/")
    child.send_signal(signal.SIGHUP)
    child.communicate(timeout=120)
    check(child.returncode == 0 and end_line(out)["complete"] is True, "nohup:", child.returncode)


def test_second_signal(place):
    """A second signal ends the program at once, even if gnuplot hangs; the next run is not blocked."""
    tools = fake_gnuplot(place, "hangs", "sleep 1000")
    out = os.path.join(place, "twice")
    child = start_with(tools, [*QUICK, "--out", out])
    wait_for(child, "flex16+5 seed 1  done")
    time.sleep(0.5)
    start_time = time.time()
    for number in (signal.SIGINT, signal.SIGTERM):
        child.send_signal(number)
        time.sleep(0.4)
    child.communicate(timeout=60)
    check(child.returncode == -signal.SIGTERM and time.time() - start_time < 5, "second signal:", child.returncode)
    check(run("compare", "--resume", out).returncode == 0 and set(os.listdir(out)) == FILES, "after a second signal:", os.listdir(out))
    # A report has nothing to save: the first signal ends it, and gnuplot with it.
    tools = fake_gnuplot(place, "tells its number", f"echo $$ > '{place}/number'; exec sleep 1000")
    child = start_with(tools, ["report", out])
    while child.poll() is None and not (os.path.exists(f"{place}/number") and os.path.getsize(f"{place}/number")):
        time.sleep(0.05)
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    with open(os.path.join(place, "number")) as file:
        number = file.read().strip()
    time.sleep(0.2)
    try:
        with open(f"/proc/{number}/stat") as file:
            state = file.read().split()[2]
    except OSError:
        state = "gone"
    check(child.returncode == -signal.SIGINT and state in ("gone", "Z"), "Ctrl-C and report:", child.returncode, "gnuplot is", state)
    if state not in ("gone", "Z"):
        os.kill(int(number), signal.SIGKILL)
    # `timeout` and terminals send one signal twice: it counts once
    out = os.path.join(place, "double")
    child = start(out)
    wait_for(child, "epoch 2/")
    child.send_signal(signal.SIGTERM)
    time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    check(child.returncode == 143, "one signal sent twice:", child.returncode)


# --- gnuplot -----------------------------------------------------------------------------------------------------------

def fake_gnuplot(place, name, body):
    folder = os.path.join(place, "gnuplot that " + name)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "gnuplot"), "w") as file:
        file.write("#!/bin/sh\n" + body + "\n")
    os.chmod(os.path.join(folder, "gnuplot"), 0o755)
    return folder


def start_with(tools, arguments, **more):
    return subprocess.Popen([FLEXLAB, *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "PATH": tools + ":" + os.environ["PATH"], **more})


def test_gnuplot(place):
    """Whatever gnuplot does, the other files are complete, no broken picture gets its name, and the failure is
    reported."""
    import shutil
    real = shutil.which("gnuplot")
    if not real:
        print("gnuplot is not installed: its failures are not tested")
        return
    cases = {"draws half": (f"{shlex.quote(real)} \"$@\" | head -c 9000", "only a part of figure-loss.svg"),
             "draws nothing": ("cat > /dev/null", "only a part of figure-loss.svg"),
             "fails": ("echo 'broken here' >&2; exit 3", "status 3: broken here"),
             "crashes": ("kill -SEGV $$", "signal 11"),
             "hangs": ("sleep 1000 & wait", "within 1 seconds"),
             "draws half a PNG": (f"cat > \"$0.in\"; if grep -q pngcairo \"$0.in\"; then {shlex.quote(real)} \"$@\" < \"$0.in\" | "
                                  f"head -c 20000; else {shlex.quote(real)} \"$@\" < \"$0.in\"; fi", "only a part of figure-loss.png")}
    for name, (body, message) in cases.items():
        tools = fake_gnuplot(place, name, body)
        out = os.path.join(place, "gnuplot " + name)
        begin = time.time()
        done = run(*QUICK, "--out", out, "--quiet", env={"PATH": tools + ":" + os.environ["PATH"],
                                                         "FLEXLAB_GNUPLOT_SECONDS": "1" if name == "hangs" else "60"})
        check(done.returncode == 1 and message in done.stderr, "gnuplot", name, done.returncode, done.stderr)
        check(time.time() - begin < 60, "gnuplot", name, "took", time.time() - begin)
        check(FILES - FIGURES <= set(os.listdir(out)), "gnuplot", name, sorted(os.listdir(out)))
        check_whole(out, "gnuplot", name)
        check(f"'flexlab compare --resume {shlex.quote(out)}' resumes it" in done.stderr, "gnuplot", name, done.stderr)
        if name == "fails": # all is trained: only the figures are missing
            done = run("compare", "--resume", out)
            check(done.returncode == 0 and set(os.listdir(out)) == FILES and "epoch 1/" not in done.stderr, "after gnuplot fails:", done.stderr)
        # earlier results remain, and the new ones are stored apart
        before = {"report.html": b"earlier"}
        other = os.path.join(place, "forced gnuplot " + name)
        os.mkdir(other)
        with open(os.path.join(other, "report.html"), "w") as file:
            file.write("earlier")
        done = run(*QUICK, "--out", other, "--force", "--quiet", env={"PATH": tools + ":" + os.environ["PATH"],
                                                                      "FLEXLAB_GNUPLOT_SECONDS": "1"})
        check(done.returncode == 1 and snapshot(other) == before, "--force, gnuplot", name, sorted(os.listdir(other)))
        check_whole(os.path.join(other, "flexlab.incomplete"), "--force, gnuplot", name)
        check("flexlab.incomplete" in done.stdout, "--force, gnuplot", name, done.stdout)
    # settings of the user are not read
    home = os.path.join(place, "home")
    os.mkdir(home)
    with open(os.path.join(home, ".gnuplot"), "w") as file:
        file.write(f"system 'touch {shlex.quote(home)}/ran'\n")
    done = run(*QUICK, "--out", os.path.join(home, "out"), env={"HOME": home})
    check(done.returncode == 0 and not os.path.exists(os.path.join(home, "ran")), "~/.gnuplot was run")


# --- full disks --------------------------------------------------------------------------------------------------------

def test_file_size_limit(place):
    """Writes fail at some byte (EFBIG), in every file in turn as the limit grows."""
    out = os.path.join(place, "size whole")
    run(*QUICK, "--out", out, "--quiet")
    sizes = sorted(os.path.getsize(os.path.join(out, n)) for n in os.listdir(out))
    # a little less than the size: the speeds in some files have more or fewer digits from run to run
    for limit in sorted({0, 100} | {max(s - 40, 0) for s in sizes}):
        out = os.path.join(place, f"size {limit}")
        done = run(*QUICK, "--no-checkpoint", "--out", out, "--quiet",
                   prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        check(done.returncode == 1 and done.stderr.startswith("flexlab compare: "), "files of", limit, "bytes:",
              done.returncode, done.stderr)
        check_whole(out, "files of", limit, "bytes")
        check(not any(n.startswith(("flexlab.", ".flexlab")) for n in os.listdir(out)), limit, os.listdir(out))
        force = ["--force"] if os.listdir(out) else []
        done = run(*QUICK, "--out", out, "--quiet", *force)
        check(done.returncode == 0 and set(os.listdir(out)) == FILES, "after files of", limit, "bytes:", done.stderr)


def test_full_disk(place):
    """Results go to a real file system that is full, if one may be mounted."""
    disk = os.path.join(place, "disk")
    os.mkdir(disk)
    for kibibytes in (8, 20, 40, 100, 160, 300, 420):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", disk], capture_output=True).returncode:
            print("no file system can be mounted: full disks are tested by file size limits alone")
            return
        try:
            for kept in (["--no-checkpoint"], []):
                out = os.path.join(disk, "out")
                done = run(*QUICK, *kept, "--out", out, "--quiet")
                check(done.returncode == 1 and "No space left" in done.stderr, "disk of", kibibytes, "KiB:", *kept, done.returncode,
                      done.stderr)
                check_whole(out, "disk of", kibibytes, "KiB", *kept)
                shutil.rmtree(out)
        finally:
            subprocess.run(["umount", disk], check=True)


# --- names -------------------------------------------------------------------------------------------------------------

NAMES = [b"q\nsystem \"touch X\"\n#", b"it's", b'a "quoted" name', b"back\\slash\\n", b"$HOME `touch X` $(touch X)",
         b"@a_b^c{d}~e&f", b"not text \xff\xfe\xc3", b"tab\tbell\x07escape\x1b[2J", "größe 😀".encode(), b"<script>&amp;<b>",
         b"'; system('touch X'); '", b"%s%n%d", b"\xed\xa0\x80 surrogate", b"\xc2\x9b2J"]


def test_names(place):
    """No interpreter sees names of results, tensors and data, and the files remain valid, whatever the names are."""
    for name in NAMES:
        top = os.path.join(os.fsencode(place), b"named")
        folder, images = os.path.join(top, b"run"), os.path.join(top, b"data", name)
        os.makedirs(folder)
        write_idx(images)
        done = run("compare", *on_images(images), "--formats", "fp32,flex16+5", "--out", name,
                   "--trace-tensors", b"*," + name, cwd=folder)
        check(done.returncode == 0, name, done.returncode, done.stderr)
        check(os.listdir(folder) == [name], name, "made", os.listdir(folder))
        check(not re.search("[\x00-\x09\x0b-\x1f\x7f]", done.stdout), name, "prints", repr(done.stdout))
        out = os.path.join(folder, name)
        check({os.fsdecode(n) for n in os.listdir(out)} == FILES, name, os.listdir(out))
        for file in FILES:
            try:
                parse(os.path.join(os.fsdecode(out), file))
            except (ValueError, xml.etree.ElementTree.ParseError) as error:
                check(False, name, file, "is not valid:", error)
        page = "".join(parse(os.path.join(os.fsdecode(out), "report.html")).text)
        command = re.search(r"flexlab compare .*--out .*", page, re.S).group(0).rstrip()
        words = subprocess.run(["bash", "-c", "printf '%s\\0' " + command], capture_output=True).stdout.split(b"\0")
        check({name, b"*," + name, b"idx:" + images} <= set(words), name, "cannot be typed again from", command)
        done = run(*QUICK, "--out", name, cwd=folder)
        check(done.returncode == 1 and done.stderr.count("\n") == 1 and not re.search("[\x00-\x09\x0b-\x1f\x7f]", done.stderr),
              name, "message:", repr(done.stderr))
        subprocess.run([b"rm", b"-r", b"--", top], check=True)


def on_images(folder):
    """The options of TINY, with a set of 16 small images there."""
    return [b"idx:" + os.fsencode(folder) if option.startswith("synthetic") else option for option in TINY]


def write_idx(folder):
    os.makedirs(folder)
    for part, count in (("train", 16), ("t10k", 8)):
        for kind, head, size in (("images-idx3-ubyte", (2051, count, 8, 8), 64), ("labels-idx1-ubyte", (2049, count), 1)):
            with open(os.path.join(os.fsencode(folder), f"{part}-{kind}".encode()), "wb") as file:
                file.write(b"".join(n.to_bytes(4, "big") for n in head))
                file.write(bytes((i * 37 + i // size) % (256 if size > 1 else 10) for i in range(count * size)))


def main():
    with folder_in_memory() as place:
        def each(*tests):
            for test in tests:
                folder = os.path.join(place, test.__name__)
                os.mkdir(folder)
                test(folder)
        each(test_gnuplot)  # with gnuplot itself
        draw_once(place)
        each(test_file_size_limit, test_full_disk, test_names)
        draw_quickly(place)
        each(test_closed_streams, test_lock, test_many_processes, test_force, test_signals, test_second_signal)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
