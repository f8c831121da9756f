"""Trainings and comparisons by the program: its options are keywords, its folder of results the result."""
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import numpy as np

from . import _errors
from ._results import Results


def program():
    """The path of the command-line program."""
    path = os.environ.get("FLEXLAB_PROGRAM") or pathlib.Path(__file__).with_name("flexlab")
    if not os.path.exists(path):
        raise _errors.FileError(f"{path}: there is no such program (FLEXLAB_PROGRAM names another)")
    return os.fspath(path)


def compare(formats="fp32,fp16,bf16,flex16+5,dfp16", *, data="synthetic", out=None, progress=True, **options):
    """Trains one network in several formats side by side: `flexlab compare`.

    formats: a list, or the text of --formats. data: a specification ("cifar10:DIR", "synthetic:train=2000"), or arrays
    (images, labels, test images, test labels): uint8 [N, H, W] or [N, H, W, C], and integers. out: the folder of results;
    None: a temporary one, which lasts as long as the result. Every other option of the program by its name: model="resnet20",
    epochs=10, lr=0.1, telemetry="10", seeds=3, augment=True, ...; True gives a switch, False its opposite
    (--no-augment) or none, a list is joined by commas.
    progress: True shows a bar (tqdm where it is installed, else lines of text), a function is called with each line.
    Ctrl-C ends the training after its step; what there is by then is the result, and KeyboardInterrupt is not raised: see
    result.complete. Returns Results: .table, .curves, .epochs, .exponents, .telemetry, .report()."""
    formats = ",".join(formats) if isinstance(formats, (list, tuple)) else formats
    return run("compare", data, out, progress, options | {"formats": formats})


def train(format="flex16+5", *, data="synthetic", out=None, progress=True, **options):
    """Trains one network in one format: `flexlab train`, with the arguments and the result of compare()."""
    return run("train", data, out, progress, options | {"format": format})


def run(command, data, out, progress, options):
    refuse_own_predictors(options)
    keep = tempfile.TemporaryDirectory(prefix="flexlab-") if out is None or not isinstance(data, (str, os.PathLike)) else None
    out = os.path.join(keep.name, "results") if out is None else os.fspath(out)
    if not isinstance(data, (str, os.PathLike)):
        data = stored(data, keep.name)
    arguments = [program(), command, "--data", os.fspath(data), "--out", out]
    for name, value in options.items():
        arguments += argument(command, name, value)
    before = written(out)
    lines = follow(arguments, progress)
    if written(out) in (None, before):
        text = "\n".join(line for line in lines if line.startswith("flexlab")) or "\n".join(lines[-3:])
        raise _errors.ArgumentError(text.replace(f"flexlab {command}: ", "") or "the program ended without results")
    return Results(out, keep)


def refuse_own_predictors(options):
    """A predictor written in Python lives in this process, and the program is another."""
    if not (predictors := sys.modules.get("flexlab._predictors")):
        return
    for option, value in options.items():
        for text in value if isinstance(value, (list, tuple)) else (value,):
            for word in re.findall(r"[\w.-]+", text) if isinstance(text, str) else ():
                if word in predictors.added:
                    raise _errors.UnsupportedError(
                        f"{option}: {word!r} is a predictor written in Python, which the program does not know: train in a loop of "
                        f"your own, fl.nn.Network(..., predictor={word!r}) and net.step(), or write it in C (docs/autoflex.md)")


def written(out):
    """Which file of results the folder has."""
    try:
        status = os.stat(os.path.join(out, "metrics.jsonl"))
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@functools.cache
def switches(command):
    """The options that take no value, by the program's help."""
    text = subprocess.run([program(), command, "--help"], capture_output=True, text=True).stdout
    return set(re.findall(r"^ +(--[\w-]+)(?:  |$)", text, re.MULTILINE))


def argument(command, name, value):
    option = "--" + name.replace("_", "-")
    if value is False:
        opposite = "--" + option[5:] if option.startswith("--no-") else "--no-" + option[2:]
        if not {option, opposite} & switches(command):
            raise _errors.ArgumentError(f"{name}=False: {option} is no switch of flexlab {command}, expected a value")
        return [opposite] if opposite in switches(command) else []  # other switches are off unless they are given
    if value is None:
        return []
    if value is True:
        return [option]
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return [option, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]


def stored(arrays, folder):
    """Arrays as files of NumPy, and the specification that names them."""
    arrays = tuple(arrays)
    if len(arrays) not in (2, 4):
        raise _errors.ArgumentError(f"{len(arrays)} arrays of data, expected images and labels, and those of the test set")
    paths = []
    for i, array in enumerate(arrays):
        array = np.asarray(array)
        if i % 2 == 0 and array.dtype != np.uint8:
            raise TypeError(f"images of type {array.dtype}, expected uint8")
        paths.append(os.path.join(folder, f"array{i}.npy"))
        np.save(paths[-1], array)
    return "npy:" + ",".join(paths)


def follow(arguments, progress):
    """Runs the program, shows its progress, and passes Ctrl-C on to it. Returns what it wrote to standard error."""
    child = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True,
                             errors="replace", start_new_session=True)
    show = progress if callable(progress) else Bar() if progress else lambda line: None
    lines = []
    try:
        while True:
            try:
                for line in child.stderr:
                    lines.append(line.rstrip("\n"))
                    show(lines[-1])
                child.wait()
                return lines
            except KeyboardInterrupt:
                child.send_signal(signal.SIGINT)  # it stops after the step; a second one stops it at once
    finally:
        if child.poll() is None:  # an exception of the caller's function
            child.send_signal(signal.SIGINT)
            child.stderr.close()
            child.wait()
        if hasattr(show, "close"):
            show.close()


class Bar:
    """A bar of tqdm over the epochs of all runs, or lines of text."""

    def __init__(self):
        try:
            from tqdm.auto import tqdm
            self.bar = tqdm(unit="epoch", leave=True)
        except ImportError:
            self.bar = None

    def __call__(self, line):
        if self.bar is None:
            print(line, file=sys.stderr)
            return
        found = re.match(r"\[(\d+)/(\d+)\] (\S+) seed (\d+)\s+epoch (\d+)/(\d+)\s+(.*)", line)
        if not found:
            if not line.startswith("["):
                self.bar.write(line)
            return
        self.bar.total = int(found[2]) * int(found[6])
        self.bar.set_description(f"{found[3]} seed {found[4]}")
        self.bar.set_postfix_str(" ".join(found[7].split()[:12]))
        self.bar.update(1)

    def close(self):
        if self.bar is not None:
            self.bar.close()
