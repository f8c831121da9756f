"""What is measured: groups of contestants that take turns, and the rows that come of their times, with the bars."""

import dataclasses
import itertools
import pathlib
import subprocess

from contest import Contestant, Weighted, best, ratio
from rivals import CORE_TYPES, Program

PEAK_PRODUCTS = 2e9  # a thread


@dataclasses.dataclass
class Row:
    """One line of the result. `ours`, `theirs`: names of contestants; of several rivals the best one counts."""

    work: str
    format: str
    rival: str
    ours: str
    theirs: list
    bar: float = None
    peak: str = ""  # the contestant that measures the peak of this row's instruction set
    products: float = 0  # multiply-adds of the work, 0 where that is not its measure


class Group:
    """Contestants measured together. bytes: moved by each, where results are bytes a second instead of time."""

    def __init__(self, section, name, threads, bytes=0):
        self.section, self.name, self.threads, self.bytes = section, name, threads, bytes
        self.contestants, self.sums, self.rows = {}, {}, []

    def add(self, name, program, work, more=None, threads=None):
        if name not in self.contestants:
            self.contestants[name] = Contestant(name, program, work, threads or self.threads, more)
        return name

    def row(self, *arguments, **keywords):
        self.rows.append(Row(*arguments, **keywords))

    def select(self, text):
        """Keeps the rows that hold the text, and the contestants they need."""
        self.rows = [r for r in self.rows if text in f"{self.section} {r.work} {r.format} {r.rival}"]
        needed = set(itertools.chain.from_iterable([r.ours, r.peak, *r.theirs] for r in self.rows))
        if not needed & set(self.sums):  # a sum needs them all
            self.contestants = {name: c for name, c in self.contestants.items() if name in needed}
        return self

    def results(self):
        return [self._result(row) for row in self.rows]

    def _shown(self, contestant):
        if contestant is None or contestant.seconds is None:
            return None
        return self.bytes / contestant.seconds * 1e-9 if self.bytes else contestant.seconds * 1e3

    def _result(self, row):
        entrants = {**self.contestants, **self.sums}
        ours, rivals = entrants[row.ours], [entrants[name] for name in row.theirs]
        theirs, peak = best(rivals), entrants.get(row.peak)
        result = {
            "section": self.section,
            "work": row.work,
            "format": row.format,
            "threads": self.threads,
            "rival": row.rival,
            "ours": self._shown(ours),
            "theirs": self._shown(theirs),
            "unit": "GB/s" if self.bytes else "ms",
            "ratio": None,
            "of_peak": None,
            "bar": row.bar,
            "met": None,
            "at_most": False,
            "rounds": len(ours.times),
            "best": theirs.name.split(":")[0] if theirs and len(rivals) > 1 else None,
            "candidates": {c.name: f"skip: {c.skip}" if c.seconds is None else self._shown(c) for c in rivals},
            "skip": "",
        }
        if ours.seconds is not None and row.products and peak and peak.seconds is not None:
            # a peak is the best of its rounds: what disturbed one of them is no part of it
            result["of_peak"] = row.products * min(peak.times) / ours.seconds / (PEAK_PRODUCTS * self.threads)
        if ours.seconds is not None and theirs:
            result["ratio"] = ratio(theirs, ours)
            result["met"] = result["ratio"] >= row.bar if row.bar else None
        else:
            result["skip"] = "; ".join(dict.fromkeys(f"{c.name}: {c.skip}" for c in [ours, *rivals] if c.skip))
        return result


def has_avx512():
    try:
        return " avx512f " in pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


# Convolutions of ResNet-20: height, channels in and out, stride, how many, passes (the first has no input gradient).
LAYERS = [
    (32, 3, 16, 1, 1, "fw"),
    (32, 16, 16, 1, 6, "fdw"),
    (32, 16, 32, 2, 1, "fdw"),
    (16, 32, 32, 1, 5, "fdw"),
    (16, 32, 64, 2, 1, "fdw"),
    (8, 64, 64, 1, 5, "fdw"),
]
BATCH = 128
CONVERTED = 2**25  # elements: larger than the caches
FORMATS = ["flex16+5", "dfp16", "fp16", "bf16", "fp32"]


def layer_products(layer):
    side, inputs, outputs, stride, _, passes = layer
    return len(passes) * BATCH * (side // stride) ** 2 * outputs * inputs * 9


class Works:
    """All groups, by the number of threads. quick: without rivals' settings that seldom win and without work that tells
    little more at each number of threads."""

    def __init__(self, ours, rivals, quick, thread_counts):
        self.path, self.ours = str(ours), Program("flexlab", [str(ours)])
        self.widest = "avx512" if has_avx512() else "avx2"
        self.rivals, self.quick, self.most_threads = rivals, quick, max(thread_counts)
        native = "SKYLAKEX" if has_avx512() else "HASWELL"
        self.core_types = [native] if quick else CORE_TYPES

    # --- parts of groups ----------------------------------------------------------------------------------------------
    def _peak(self, group, isa=None):
        isa = isa or self.widest
        return group.add(f"peak {isa}", self.ours, f"peak {isa} {PEAK_PRODUCTS:g}")

    def _sgemms(self, group, shape):
        names = [group.add(p.name, p, f"matmul fp32 {shape}") for p in map(self.rivals.openblas, self.core_types)]
        names.append(group.add("mkl", self.rivals.mkl(), f"matmul fp32 {shape}"))
        for p in self.rivals.onednn():
            names.append(group.add(p.name, p, f"matmul fp32 {shape}"))
            if p.name == "onednn" or (p.name == "onednn openmp" and not self.quick):
                names.append(group.add(p.name + " primitive", p, f"matmul fp32-primitive {shape}"))
        return names

    def _matmul(self, threads, m, n, k, ours, section="matmul"):
        """ours: (format, data, label, bar) against the best sgemm."""
        shape = f"{m} {n} {k}"
        title = f"matmul {m}x{n}x{k}"
        group = Group(section, title, threads)
        sgemms, peak = self._sgemms(group, shape), self._peak(group)
        for format, data, label, bar in ours:
            name = group.add(f"ours {format} {data}", self.ours, f"matmul {format} {data} {shape}")
            group.row(f"{title}{label}", format, "best sgemm", name, sgemms, bar, peak, m * n * k)
        return group

    # --- sections -----------------------------------------------------------------------------------------------------
    def matmuls(self, threads):
        gauss, uniform, bits15 = ", Gaussian mantissas", ", any mantissas", ", 15-bit mantissas"
        yield self._matmul(
            threads,
            1024,
            1024,
            1024,
            [
                ("flex16+5", "gauss", gauss, 1.70),
                ("flex16+5", "uniform", uniform, 1.20),
                ("flex16+5", "15bit", bits15, 1.55),
                ("fp32", "gauss", "", None),
            ],
        )
        yield self._large(threads)
        for m, n, k, bar in (
            (256, 1000, 3072, 1.55),
            (16, 131072, 144, 1.40),
            (32, 32768, 288, 1.40),
            (64, 8192, 576, 1.40),
        ):
            yield self._matmul(threads, m, n, k, [("flex16+5", "gauss", gauss, bar), ("fp32", "gauss", "", None)])
        sides = (128, 256, 512, 4096) if not self.quick else (128, 256, 512) if threads == self.most_threads else ()
        for side in sides:
            yield self._matmul(
                threads,
                side,
                side,
                side,
                [("flex16+5", "gauss", gauss, None), ("fp32", "gauss", "", None)],
                "matmul sizes",
            )

    def _large(self, threads):
        """2048^3, where most bars are: other formats, MKL's int16, bf16 of class fast, the AVX2 rows."""
        shape = "2048 2048 2048"
        group = self._matmul(
            threads,
            2048,
            2048,
            2048,
            [
                ("flex16+5", "gauss", ", Gaussian mantissas", 1.70),
                ("flex16+5", "uniform", ", any mantissas", 1.20),
                ("fp32", "gauss", "", 0.95),
                ("fp16", "gauss", "", 0.92),
                ("bf16", "gauss", ", class exact", None),
            ],
        )
        title, peak = group.name, self._peak(group)
        int16 = group.add("mkl int16", self.rivals.mkl(), f"matmul int16 {shape}")
        group.row(
            f"{title}, Gaussian mantissas",
            "flex16+5",
            "mkl gemm_s16s16s32 (inexact)",
            "ours flex16+5 gauss",
            [int16],
            1.0,
            peak,
            2**33,
        )
        bf16s = [group.add("mkl bf16", self.rivals.mkl(), f"matmul bf16 {shape}")]
        bf16s += [group.add(p.name + " bf16", p, f"matmul bf16 {shape}") for p in self.rivals.onednn()[:2]]
        fast = group.add("ours bf16 fast", self.ours, f"matmul bf16:fast gauss {shape}")
        group.row(f"{title}, class fast", "bf16", "best sgemm", fast, group.rows[0].theirs, 1.75, peak, 2**33)
        group.row(f"{title}, class fast", "bf16", "best bf16 matmul", fast, bf16s, 0.95, peak, 2**33)
        self._capped(group, title, shape)
        return group

    def _capped(self, group, title, shape):
        cap, peak = {"FLEXLAB_ISA": "avx2"}, self._peak(group, "avx2")
        names = {}
        for format, data in (("fp32", "gauss"), ("flex16+5", "gauss"), ("flex16+5", "uniform")):
            names[format, data] = group.add(
                f"ours avx2 {format} {data}", self.ours, f"matmul {format} {data} {shape}", cap
            )
        fp32 = names["fp32", "gauss"]
        haswell = self.rivals.openblas("HASWELL")
        group.row(
            f"{title}, AVX2",
            "fp32",
            haswell.name,
            fp32,
            [group.add(haswell.name, haswell, f"matmul fp32 {shape}")],
            0.9,
            peak,
            2**33,
        )
        group.row(
            f"{title}, AVX2, Gaussian mantissas",
            "flex16+5",
            "ours fp32 avx2",
            names["flex16+5", "gauss"],
            [fp32],
            1.5,
            peak,
            2**33,
        )
        group.row(
            f"{title}, AVX2, any mantissas",
            "flex16+5",
            "ours fp32 avx2",
            names["flex16+5", "uniform"],
            [fp32],
            0.9,
            peak,
            2**33,
        )

    def scaling(self, threads):
        """Of ours: `threads` against one thread, turn by turn."""
        if threads < 2:
            return
        for work, formats, bar, label in (
            ("matmul {} gauss 2048 2048 2048", ("flex16+5", "fp32"), 1.85, "matmul 2048x2048x2048"),
            ("step {} 128", ("flex16+5", "fp32"), 1.8, "training step"),
        ):
            group = Group("scaling", label, threads)
            for format in formats:
                many = group.add(f"ours {format}", self.ours, work.format(format))
                one = group.add(f"ours {format}, 1 thread", self.ours, work.format(format), threads=1)
                group.row(f"{label}, scaling", format, "ours, 1 thread", many, [one], bar)
            yield group

    def convolutions(self, threads):
        """All layers in one group, so that their weighted sum has rounds too."""
        group = Group("convolution", "convolution", threads)
        peak, parts = self._peak(group), {"flex16+5": [], "fp32": [], "onednn": []}
        for layer in LAYERS:
            side, inputs, outputs, stride, count, passes = layer
            shape = f"{BATCH} {side} {side} {inputs} {outputs} 3 {stride} 1 {passes}"
            title = f"conv {side}x{side}x{inputs} to {outputs}" + (f", stride {stride}" if stride > 1 else "")
            theirs = [group.add(f"{p.name}: {title}", p, f"conv {shape}") for p in self.rivals.onednn()[:2]]
            parts["onednn"].append((count, lambda names=theirs: best([group.contestants[n] for n in names])))
            for format in ("flex16+5", "fp32"):
                name = group.add(f"ours {format} {title}", self.ours, f"conv {format} {shape}")
                parts[format].append((count, lambda name=name: best([group.contestants[name]])))
                group.row(
                    f"{title} (x{count}), " + ("all passes" if "d" in passes else "no input gradient"),
                    format,
                    "onednn fp32",
                    name,
                    theirs,
                    None,
                    peak,
                    layer_products(layer),
                )
        total = sum(layer[4] * layer_products(layer) for layer in LAYERS)
        for name, of_layer in parts.items():
            group.sums[f"sum {name}"] = Weighted(f"sum {name}", of_layer)
        for format, bar in (("flex16+5", 1.4), ("fp32", None)):
            group.row(
                "convolutions of ResNet-20, weighted sum",
                format,
                "onednn fp32",
                f"sum {format}",
                ["sum onednn"],
                bar,
                peak,
                total,
            )
        yield group

    def steps(self, threads):
        group = Group("training step", "training step", threads)
        peak, work, title = self._peak(group), f"step {BATCH}", f"ResNet-20 training step, batch {BATCH}"
        products = sum(layer[4] * layer_products(layer) for layer in LAYERS) + 3 * BATCH * 640
        ours = {f: group.add(f"ours {f}", self.ours, f"step {f} {BATCH}") for f in FORMATS}
        settings = ("channels_last",) if self.quick else ("contiguous", "channels_last", "compiled")
        torch = [
            group.add(f"torch {s}", self.rivals.python(f"torch {s}", "torch_step.py", "torch", s), work)
            for s in settings
        ]
        bars = {"flex16+5": 2.0, "fp32": 1.2}
        for format in FORMATS:
            group.row(title, format, "best torch fp32", ours[format], torch, bars.get(format), peak, products)
        for format in FORMATS[:-1]:
            group.row(title, format, "ours fp32", ours[format], [ours["fp32"]], 1.4 if format == "flex16+5" else None)
        if not self.quick or threads == self.most_threads:
            qtorch = group.add("qtorch", self.rivals.python("qtorch", "qtorch_step.py", "qtorch"), work)
            group.row(title, "flex16+5", "qtorch, simulated", ours["flex16+5"], [qtorch], 10)
        yield group

    def conversions(self, threads):
        group = Group("conversion", "conversion", threads, 6 * CONVERTED)  # four bytes on one side, two on the other
        copy = group.add("memcpy", self.ours, f"memcpy {3 * CONVERTED}")
        for format in ("fp16", "bf16", "flex16+5"):
            for source, target in (("fp32", format), (format, "fp32")):
                name = group.add(f"ours {source} to {target}", self.ours, f"convert {source} {target} {CONVERTED}")
                group.row(f"convert {source} to {target}, 2^25 elements", format, "memcpy", name, [copy], 0.85)
        yield group

    def groups(self, threads):
        yield from self.matmuls(threads)
        yield from self.convolutions(threads)
        yield from self.steps(threads)
        yield from self.conversions(threads)
        yield from self.scaling(threads)

    def memory(self, dry=False):
        """Rows of the step's plan, in the order of FORMATS without fp32; nothing is timed."""
        rows = []
        for what, label in (("stored", "activations and weights"), ("planned", "arena and weights")):
            sizes = {} if dry else {f: self._plan(what, f) for f in FORMATS}
            for format in FORMATS[:-1]:
                ours, theirs = sizes.get(format), sizes.get("fp32")
                ratio_of = ours / theirs if ours and theirs else None
                bar = 0.55 if format == "flex16+5" else None
                rows.append(
                    {
                        "section": "memory",
                        "work": f"training step, batch {BATCH}: {label}",
                        "format": format,
                        "threads": 1,
                        "rival": "ours fp32",
                        "ours": ours,
                        "theirs": theirs,
                        "unit": "MiB",
                        "ratio": ratio_of,
                        "of_peak": None,
                        "bar": bar,
                        "at_most": True,
                        "met": ratio_of <= bar if bar and ratio_of else None,
                        "rounds": 1,
                        "best": None,
                        "candidates": {},
                        "skip": "" if dry or ratio_of else "flexlab: no plan",
                    }
                )
        return rows

    def _plan(self, what, format):
        done = subprocess.run([self.path, "memory", what, format, str(BATCH)], capture_output=True, text=True)
        return int(done.stdout) / 2**20 if done.returncode == 0 else None
