"""Folders of results, as flexlab writes them: curves, exponents, telemetry, as arrays and DataFrames."""
import csv
import json
import math
import pathlib

import numpy as np

from . import _errors


def read(folder):
    """Reads the folder of results of a training or a comparison."""
    return Results(folder)


class Results:
    """The results of a training or a comparison.

    .table       a row for each format: losses, accuracies, speed, counts (DataFrame where pandas is installed, else dicts)
    .curves      {(format, seed): {"step", "loss", "rate"}} arrays
    .epochs      a row for each epoch
    .exponents   {(format, seed): {tensor: {"step", "e", "maximum", ...}}} arrays
    .telemetry   {(format, seed): rows}, .histograms(format): counts by binade
    .report()    the page of the report, shown in a notebook"""

    def __init__(self, folder, keep=None):
        self.folder, self._keep = pathlib.Path(folder), keep
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            raise _errors.FileError(f"{path}: there is no such file, expected a folder of results")
        self.lines = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            try:
                self.lines.append(json.loads(line))
            except ValueError as error:
                raise _errors.DataError(f"{path}, line {number}: {error}") from None

    def of(self, kind):
        """The lines of metrics.jsonl of a type: "run", "epoch", "steps", "format", ..."""
        return [line for line in self.lines if line.get("type") == kind]

    @property
    def formats(self):
        return [line["format"] for line in self.of("format")]

    @property
    def complete(self):
        """Whether every run was made to its end."""
        end = self.of("end")
        return bool(end and end[-1]["complete"])

    @property
    def table(self):
        with open(self.folder / "summary.csv", newline="") as file:
            rows = [{name: number(value) for name, value in row.items()} for row in csv.DictReader(file)]
        return frame(rows, "format")

    @property
    def epochs(self):
        return frame([{name: value for name, value in line.items() if name != "type" and not name.endswith("_state")}
                      for line in self.of("epoch")])

    @property
    def curves(self):
        return {key: {name: np.array([math.nan if line[name] is None else line[name] for line in lines])
                      for name in ("step", "loss", "rate")} for key, lines in self._by_run("steps").items()}

    def _by_run(self, kind):
        result = {}
        for line in self.of(kind):
            result.setdefault((line["format"], line["seed"]), []).append(line)
        return result

    @property
    def exponents(self):
        result = {}
        for key, path in self._files("trace-", ".csv"):
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
            tensors = {}
            for row in rows:
                tensors.setdefault(row["tensor"], []).append(row)
            result[key] = {name: {"role": some[0]["role"]} | {
                column: np.array([number(row[column]) for row in some])
                for column in some[0] if column not in ("tensor", "role")} for name, some in tensors.items()}
        return result

    def _files(self, start, end):
        for path in sorted(self.folder.glob(f"{start}*{end}")):
            name, _, seed = path.name.removeprefix(start).removesuffix(end).rpartition("-seed")
            if seed.isdigit():
                yield (name, int(seed)), path

    @property
    def telemetry(self):
        result = {}
        for key, path in self._files("telemetry-", ".jsonl"):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            result[key] = frame([{name: value for name, value in line.items() if name not in ("type", "bins")}
                                 for line in lines if line["type"] == "tensor"])
        return result

    def histograms(self, format, seed=1):
        """{tensor: (steps, binades, counts [steps, binades])}: how many elements have 2**b <= |x| < 2**(b + 1)."""
        path = dict(self._files("telemetry-", ".jsonl")).get((format, seed))
        if path is None:
            raise KeyError(f"no telemetry of {format!r}, seed {seed}: {', '.join(map(str, dict(self._files('telemetry-', '.jsonl'))))}")
        tensors = {}
        for line in map(json.loads, path.read_text().splitlines()):
            if line["type"] == "tensor" and line.get("bins"):
                tensors.setdefault(line["tensor"], []).append((line["step"], line["first_bin"], line["bins"]))
        result = {}
        for name, rows in tensors.items():
            first = min(start for _, start, _ in rows)
            last = max(start + len(bins) for _, start, bins in rows)
            counts = np.zeros((len(rows), last - first), np.int64)
            for i, (_, start, bins) in enumerate(rows):
                counts[i, start - first:start - first + len(bins)] = bins
            result[name] = (np.array([step for step, *_ in rows]), np.arange(first, last), counts)
        return result

    def report(self):
        """The page of the report; a notebook shows it."""
        return Report(self.folder / "report.html")

    def _repr_html_(self):
        table = self.table
        return table._repr_html_() if hasattr(table, "_repr_html_") else None

    def __repr__(self):
        return f"<results of {', '.join(self.formats)} in {self.folder}{'' if self.complete else ' (not complete)'}>"


class Report:
    """The path of a page, which a notebook shows in a frame."""

    def __init__(self, path):
        if not path.exists():
            raise _errors.FileError(f"{path}: there is no such file")
        self.path = path

    def _repr_html_(self):
        import html
        return f'<iframe srcdoc="{html.escape(self.path.read_text(), quote=True)}" width="100%" height="800" style="border: 0"></iframe>'

    def open(self):
        """Opens the page in the browser."""
        import webbrowser
        return webbrowser.open(self.path.resolve().as_uri())

    def __repr__(self):
        return f"<report {self.path}>"


def number(text):
    if text == "":
        return math.nan
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def frame(rows, index=None):
    """A DataFrame where pandas is installed, otherwise the rows."""
    try:
        import pandas
    except ImportError:
        return rows
    made = pandas.DataFrame(rows)
    return made.set_index(index) if index and len(made) else made
