#!/usr/bin/env python3
"""Special files in the place of files: links, FIFOs, devices and folders that the program would read or write are
refused at once and remain unchanged; its own folders inside a folder of results are never followed elsewhere; files of
others in them are named; and a second process is told about the running one before it reads anything. usage:
test_cli_paths.py FLEXLAB SOURCE_DIR"""
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

from cli_harness import PROGRAM, check, quick_gnuplot, run, succeed, summary

QUICK = ["--model", "mlp2", "--data", "synthetic:train=32,test=16", "--batch", "8", "--threads", "1", "--epochs", "1", "--figures", "--quiet"]
COMPARE = ["compare", *QUICK, "--formats", "fp32,flex16+5"]
TRAIN = ["train", *QUICK, "--format", "flex16+5"]
PICTURES = {}  # the environment with a gnuplot that always draws the same picture
MINE = "what a link leads to\n"


def write(path, text=MINE):
    with open(path, "w") as file:
        file.write(text)


def content(path):
    with open(path, "rb") as file:
        return file.read()


def snapshot(folder):
    """Every name below it, with its kind and contents."""
    found = {}
    for place, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(place, name)
            mode = os.lstat(path).st_mode
            found[os.path.relpath(path, folder)] = (stat.S_IFMT(mode), content(path) if stat.S_ISREG(mode) else
                                                    os.readlink(path) if stat.S_ISLNK(mode) else None)
    return found


def things(place):
    """(word of the message, function that makes it) for each kind of special file."""
    target = os.path.join(place, "target")
    write(target)
    kinds = [("a symbolic link", lambda path: os.symlink(target, path)), ("a FIFO", os.mkfifo), ("a folder", os.mkdir)]
    try:
        os.mknod(os.path.join(place, "null"), 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        os.remove(os.path.join(place, "null"))
        kinds.append(("a character device", lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))))
    except PermissionError:
        print("no device can be made here: devices are not tested")
    return kinds


def remove(path):
    os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)


def refused(arguments, *parts, status=1, env=None, cwd=None, told=None):
    """Checks that the program refuses at once, in one line."""
    try:
        done = run(*arguments, env=env, timeout=20, cwd=cwd)
    except subprocess.TimeoutExpired:
        check(False, "flexlab", *arguments, "waits")
        return
    check(done.returncode == status and done.stderr.count("\n") == 1, done.shown, "status", done.returncode, done.stderr)
    for part in parts:
        check(part in done.stderr, done.shown, "wants", repr(part), "in", done.stderr)


def same(path, before, *what):
    now = os.lstat(path)
    check((now.st_ino, now.st_mode) == (before.st_ino, before.st_mode), *what, path, "was replaced")


# --- files that are written --------------------------------------------------------------------------------------------

def test_tables(place, results):
    """replay --csv: the file itself, and the unfinished one beside it."""
    trace, out = os.path.join(results, "trace-flex16+5-seed1.csv"), os.path.join(place, "table.csv")
    for word, make in things(place):
        for force in ([], ["--force"]):
            make(out)
            before = os.lstat(out)
            refused(["replay", trace, "--csv", out, *force], out, f"it is {word}, expected a regular file or none")
            same(out, before, "--csv in the place of", word)
            remove(out)
        make(out + ".part")
        if word == "a folder":
            refused(["replay", trace, "--csv", out], out + ".part")
        else:
            succeed("replay", trace, "--csv", out)
            check(content(out).startswith(b"trace,tensor,role,predictor,") and not os.path.lexists(out + ".part"), "beside", word)
            os.remove(out)
        if os.path.lexists(out + ".part"):
            remove(out + ".part")
        check(content(os.path.join(place, "target")) == MINE.encode(), "what a link leads to was written, beside", word)


def test_results(place, results):
    """Special files under the names of results, with --force as without."""
    for word, make in things(place):
        for name in ("report.html", "metrics.jsonl", "trace-flex16+5-seed1.csv"):
            out = os.path.join(place, "out")
            os.mkdir(out)
            make(os.path.join(out, name))
            before = snapshot(place)
            refused([*COMPARE, "--out", out, "--force"], f"{name} is {word}, expected a file or nothing", env=PICTURES)
            check(snapshot(place) == before, f"--force in the place of {word}: {name}")
            shutil.rmtree(out)
        # in place, with the results of another user
        for name in ("report.html", "report.html.part", "figure-loss.svg.part"):
            out = os.path.join(place, "redrawn")
            shutil.copytree(results, out)
            if os.path.exists(os.path.join(out, name)):
                os.remove(os.path.join(out, name))
            make(os.path.join(out, name))
            before = os.lstat(os.path.join(out, name))
            done = run("report", out, env=PICTURES, timeout=120)
            if name.endswith(".part") and word != "a folder":  # whatever is there is removed, and nothing else
                check(done.returncode == 0 and not os.path.lexists(os.path.join(out, name)), done.shown, word, done.returncode, done.stderr)
            else:
                check(done.returncode == 1 and name in done.stderr, done.shown, word, done.returncode, done.stderr)
                same(os.path.join(out, name), before, done.shown)
            check(content(os.path.join(place, "target")) == MINE.encode(), done.shown, "wrote to what a link leads to")
            shutil.rmtree(out)
    # a pair of networks and its losses
    for name in ("metrics.jsonl", "metrics.jsonl.part"):
        out = os.path.join(place, "pair")
        os.mkdir(out)
        os.symlink(os.path.join(place, "target"), os.path.join(out, name))
        done = run("wgan", "--data", "synthetic:train=64", "--steps", "1", "--batch", "4", "--critic-steps", "1", "--samples", "1", "--filters", "2", "--latent", "4", "--threads", "1",
                   "--quiet", "--out", out, "--force", timeout=120)
        check(done.returncode == (1 if name == "metrics.jsonl" else 0), done.shown, done.returncode, done.stderr)
        check(content(os.path.join(place, "target")) == MINE.encode(), done.shown, "wrote to what a link leads to")
        shutil.rmtree(out)


# --- files that are read -----------------------------------------------------------------------------------------------

def test_inputs(place, results):
    fifo = os.path.join(place, "fifo")
    os.mkfifo(fifo)
    trace = os.path.join(place, "trace-flex16+5-seed1.csv")
    os.mkfifo(trace)
    refused(["replay", trace], trace, "it is a FIFO, expected a regular file")
    refused([*TRAIN[:-2], "--policy", fifo, "--out", os.path.join(place, "p")], fifo, "is a FIFO, expected a regular file")
    refused([*TRAIN, "--weights", fifo, "--out", os.path.join(place, "w")], fifo, "is a FIFO, expected a regular file")
    refused(["eval", "--checkpoint", fifo, "--data", "synthetic"], fifo, "is a FIFO, expected a regular file")
    refused(["train", "--resume", fifo, "--out", os.path.join(place, "r")], fifo, "is a FIFO, expected a regular file")
    refused(["info"], fifo, "is a FIFO, expected a regular file", env={"FLEXLAB_PREDICTORS": fifo})
    refused(["info"], "'trend.so' is not an absolute path", env={"FLEXLAB_PREDICTORS": "trend.so"})
    done = run("info", "devices", env={"FLEXLAB_CUDA_LIBRARY": fifo}, timeout=120)
    check(done.returncode == 0 and f"FLEXLAB_CUDA_LIBRARY: {fifo}: is a FIFO" in done.stdout, done.stdout)
    for name in ("metrics.jsonl", "trace-flex16+5-seed1.csv", "telemetry-flex16+5-seed1.jsonl"):
        out = os.path.join(place, "out")
        shutil.copytree(results, out)
        os.remove(os.path.join(out, name))
        os.mkfifo(os.path.join(out, name))
        refused(["report", out], name, "it is a FIFO, expected a regular file", env=PICTURES)
        shutil.rmtree(out)
    under_way = os.path.join(place, "under way", "flexlab.resume")
    os.makedirs(under_way)
    os.mkfifo(os.path.join(under_way, "options"))
    for command in ("train", "compare"):
        refused([command, "--resume", os.path.dirname(under_way)], "under way")
    # standard input is read whatever it is connected to
    rules = os.path.join(place, "rules")
    write(rules, "* format=bf16\n")
    for shell, good in ((f"< {rules}", True), (f"< <(cat {rules})", False)):
        out = os.path.join(place, "by standard input")
        done = subprocess.run(["bash", "-c", f'"$0" "$@" {shell}', PROGRAM, *TRAIN[:-2], "--policy", "/dev/stdin", "--no-checkpoint", "--out", out],
                              capture_output=True, text=True, timeout=120, env={**os.environ, "FLEXLAB_GNUPLOT_SECONDS": "5"})
        check(done.returncode == (0 if good else 1) and ("is a FIFO" in done.stderr) != good, shell, done.returncode, done.stderr)


# --- our folders inside a folder of results ----------------------------------------------------------------------------

INNER = ["flexlab.part", "flexlab.old", "flexlab.new", "flexlab.incomplete", "flexlab.resume"]


def test_links_to_folders(place, results):
    """Results elsewhere remain, whichever inner folder is a link to them."""
    good = os.path.join(place, "good")
    shutil.copytree(results, good)
    shutil.copytree(results, os.path.join(good, "run-flex16_5-seed1"))
    write(os.path.join(good, "options"), "compare\n-\n")
    before = snapshot(good)
    for name in INNER:
        for force in ([], ["--force"]):
            out = os.path.join(place, "out")
            os.mkdir(out)
            os.symlink("../good", os.path.join(out, name))
            for command in (COMPARE, TRAIN):
                refused([*command, "--out", out, *force], f"{name} is a symbolic link, expected a folder or nothing", env=PICTURES)
                check(snapshot(good) == before, name, "led to results, which were changed by", *command, *force)
                check(sorted(os.listdir(out)) == [name], name, "leaves", os.listdir(out))
            shutil.rmtree(out)
    for kind, make in (("a FIFO", os.mkfifo), ("a regular file", write)):
        out = os.path.join(place, "out")
        os.mkdir(out)
        make(os.path.join(out, "flexlab.part"))
        refused([*COMPARE, "--out", out, "--force"], f"flexlab.part is {kind}, expected a folder or nothing")
        shutil.rmtree(out)
    # the folder of a run, within flexlab.resume
    out = os.path.join(place, "stopped")
    os.makedirs(os.path.join(out, "flexlab.resume"))
    os.symlink("../../good", os.path.join(out, "flexlab.resume", "run-flex16+5-seed1"))
    done = run(*COMPARE, "--out", out, "--force", env=PICTURES)
    check(done.returncode == 1 and snapshot(good) == before, done.shown, done.returncode, done.stderr)
    # a label in results of another user, to be replaced: its trace is not used as a path
    victim, out = os.path.join(place, "victim-seed1.csv"), os.path.join(place, "labelled")
    write(victim)
    os.makedirs(os.path.join(out, "trace-"))
    write(os.path.join(out, "metrics.jsonl"), '{"type":"config","formats":[{"name":"/../../victim"}],"seeds":[1]}\n')
    check(os.path.exists(os.path.join(out, "trace-/../../victim-seed1.csv")), "the label leads nowhere: this test sees nothing")
    done = run(*COMPARE, "--out", out, "--force", env=PICTURES)
    check(done.returncode == 0 and content(victim) == MINE.encode(), done.shown, done.returncode, done.stderr, "took what a label leads to")
    # the folder itself may be a link, because the user named it
    os.mkdir(os.path.join(place, "real"))
    os.symlink("real", os.path.join(place, "link"))
    done = run(*COMPARE, "--out", os.path.join(place, "link"), env=PICTURES)
    check(done.returncode == 0 and os.path.exists(os.path.join(place, "real", "report.html")), done.shown, done.stderr)


def test_foreign_files(place, results):
    """Files in its folders that flexlab did not make remain, and are named."""
    for name in ("flexlab.part", "flexlab.old", "flexlab.new", "flexlab.resume"):
        for force in ([], ["--force"]):
            out = os.path.join(place, "out")
            os.makedirs(os.path.join(out, name))
            write(os.path.join(out, name, "notes.txt"))
            write(os.path.join(out, "notes.txt"), "mine\n")  # a file of that name beside it
            done = run(*COMPARE, "--out", out, *force, env=PICTURES)
            if name != "flexlab.resume" or done.returncode:
                check(done.returncode == 1 and f"cannot remove {out}/{name}: it holds 'notes.txt', which flexlab did not make; move that to another place"
                      in done.stderr, done.shown, name, done.returncode, done.stderr)
            check(content(os.path.join(out, name, "notes.txt")) == MINE.encode() and content(os.path.join(out, "notes.txt")) == b"mine\n", name,
                  "was emptied")
            shutil.rmtree(os.path.join(out, name))
            done = run(*COMPARE, "--out", out, "--force", env=PICTURES)  # as the message advises
            check(done.returncode == 0 and content(os.path.join(out, "notes.txt")) == b"mine\n", done.shown, done.returncode, done.stderr)
            shutil.rmtree(out)


# --- beside a running one ----------------------------------------------------------------------------------------------

def test_beside_a_running_one(place, results):
    """The message comes before data are read, which may take long: here there are none, and the message is not about
    that."""
    out = os.path.join(place, "busy")
    child = subprocess.Popen([PROGRAM, "compare", "--model", "mlp2", "--data", "synthetic:train=32,test=16", "--batch", "8", "--threads", "1", "--epochs",
                              "20000", "--formats", "fp32", "--one-by-one", "--out", out], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        for line in child.stderr:
            if "epoch 1/" in line:
                break
        before = {n for n in os.listdir(out)}
        for words in (["compare", "--data", "cifar10:/nowhere", "--force"], ["compare", "--data", "cifar10:/nowhere"],
                      ["train", "--data", "cifar10:/nowhere", "--force"], ["wgan", "--data", "cifar10:/nowhere", "--force"]):
            refused([*words, "--out", out], f"flexlab process {child.pid} is writing there", "--out")
        refused(["report", results, "--out", out, "--force"], f"flexlab process {child.pid} is writing there", "--out")
        refused(["report", out], f"flexlab process {child.pid} is writing there")
        check({n for n in os.listdir(out)} == before and child.poll() is None, "beside a running one:", os.listdir(out))
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    done = run("compare", "--data", "cifar10:/nowhere", "--out", out, "--force")
    check("/nowhere" in done.stderr, "after it:", done.stderr)


def main():
    with tempfile.TemporaryDirectory() as top:
        top = os.path.realpath(top)
        results = os.path.join(top, "results")
        PICTURES["PATH"] = quick_gnuplot(os.path.join(top, "tools"))
        succeed(*COMPARE, "--telemetry", "2", "--out", results, env=PICTURES)
        for test in (test_tables, test_results, test_inputs, test_links_to_folders, test_foreign_files, test_beside_a_running_one):
            folder = os.path.join(top, test.__name__)
            os.mkdir(folder)
            test(folder, results)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
