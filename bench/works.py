"""What is measured: groups of contestants that take turns, and the rows that come of their times, with the bars."""
import dataclasses
import itertools

from contest import Contestant, best, ratio
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


class Group:
    """Contestants measured together. products: multiply-adds of the work, 0 where that is not its measure."""

    def __init__(self, section, name, threads, products=0, unit="ms"):
        self.section, self.name, self.threads, self.products, self.unit = section, name, threads, products, unit
        self.contestants, self.rows = {}, []

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
        self.contestants = {name: c for name, c in self.contestants.items() if name in needed}
        return self

    def results(self):
        return [self._result(row) for row in self.rows]

    def _result(self, row):
        ours = self.contestants.get(row.ours)
        theirs = best([self.contestants[name] for name in row.theirs])
        scale = 1e3
        result = {"section": self.section, "work": row.work, "format": row.format, "threads": self.threads,
                  "rival": row.rival, "ours": None, "theirs": None, "unit": self.unit, "ratio": None, "of_peak": None,
                  "bar": row.bar, "met": None, "rounds": 0, "best": None, "candidates": {}, "skip": ""}
        for name in row.theirs:
            c = self.contestants[name]
            result["candidates"][name] = f"skip: {c.skip}" if c.seconds is None else c.seconds * scale
        if ours.seconds is not None:
            result["ours"], result["rounds"] = ours.seconds * scale, len(ours.times)
            peak = self.contestants.get(row.peak)
            if peak and peak.seconds is not None and self.products:
                share = ratio(peak, ours) / (PEAK_PRODUCTS * self.threads)
                result["of_peak"] = share * self.products
        if theirs:
            result["theirs"], result["best"] = theirs.seconds * scale, theirs.name
        if ours.seconds is not None and theirs:
            result["ratio"] = ratio(theirs, ours)
            result["met"] = result["ratio"] >= row.bar if row.bar else None
        else:
            reasons = [f"{c.name}: {c.skip}" for c in [ours, *(self.contestants[n] for n in row.theirs)] if c.skip]
            result["skip"] = "; ".join(dict.fromkeys(reasons))
        return result


class Works:
    """All groups for one number of threads."""

    def __init__(self, ours, rivals, quick, has_fast_bf16):
        self.ours = Program("flexlab", [str(ours)])
        self.rivals, self.quick, self.has_fast_bf16 = rivals, quick, has_fast_bf16

    # --- parts of groups ----------------------------------------------------------------------------------------------
    def _peak(self, group, isa="avx512"):
        return group.add(f"peak {isa}", self.ours, f"peak {isa} {PEAK_PRODUCTS:g}")

    def _sgemms(self, group, shape):
        names = [group.add(p.name, p, f"matmul fp32 {shape}") for p in map(self.rivals.openblas, CORE_TYPES)]
        names.append(group.add("mkl", self.rivals.mkl(), f"matmul fp32 {shape}"))
        for p in self.rivals.onednn():
            names.append(group.add(p.name, p, f"matmul fp32 {shape}"))
            if p.name != "onednn debian":
                names.append(group.add(p.name + " primitive", p, f"matmul fp32-primitive {shape}"))
        return names

    def _matmul(self, threads, m, n, k, ours, section="matmul"):
        """ours: (format, data, label, bar) against the best sgemm."""
        shape = f"{m} {n} {k}"
        title = f"matmul {m}x{n}x{k}"
        group = Group(section, title, threads, m * n * k)
        sgemms, peak = self._sgemms(group, shape), self._peak(group)
        for format, data, label, bar in ours:
            name = group.add(f"ours {format} {data}", self.ours, f"matmul {format} {data} {shape}")
            group.row(f"{title}{label}", format, "best sgemm", name, sgemms, bar, peak)
        return group

    # --- sections -----------------------------------------------------------------------------------------------------
    def matmuls(self, threads):
        gauss, uniform, bits15 = ", Gaussian mantissas", ", any mantissas", ", 15-bit mantissas"
        yield self._matmul(threads, 1024, 1024, 1024,
                           [("flex16+5", "gauss", gauss, 1.70), ("flex16+5", "uniform", uniform, 1.20),
                            ("flex16+5", "15bit", bits15, 1.55), ("fp32", "gauss", "", None)])
        yield self._large(threads)
        for m, n, k, bar in ((256, 1000, 3072, 1.55), (16, 131072, 144, 1.40), (32, 32768, 288, 1.40),
                             (64, 8192, 576, 1.40)):
            yield self._matmul(threads, m, n, k, [("flex16+5", "gauss", gauss, bar), ("fp32", "gauss", "", None)])
        for side in (128, 256, 512) if self.quick else (128, 256, 512, 4096):
            yield self._matmul(threads, side, side, side, [("flex16+5", "gauss", gauss, None), ("fp32", "gauss", "", None)],
                               "matmul sizes")

    def _large(self, threads):
        """2048^3, where most bars are: other formats, MKL's int16, bf16 of class fast, the AVX2 rows."""
        shape = "2048 2048 2048"
        group = self._matmul(threads, 2048, 2048, 2048,
                             [("flex16+5", "gauss", ", Gaussian mantissas", 1.70),
                              ("flex16+5", "uniform", ", any mantissas", 1.20), ("fp32", "gauss", "", 0.95),
                              ("fp16", "gauss", "", 0.92), ("bf16", "gauss", ", class exact", None)])
        title, peak = group.name, self._peak(group)
        int16 = group.add("mkl int16", self.rivals.mkl(), f"matmul int16 {shape}")
        group.row(f"{title}, Gaussian mantissas", "flex16+5", "mkl gemm_s16s16s32 (inexact)", "ours flex16+5 gauss", [int16],
                  1.0, peak)
        bf16s = [group.add("mkl bf16", self.rivals.mkl(), f"matmul bf16 {shape}")]
        bf16s += [group.add(p.name + " bf16", p, f"matmul bf16 {shape}") for p in self.rivals.onednn()[:2]]
        program = self.ours if self.has_fast_bf16 else Program("flexlab", skip="not in this build")
        fast = group.add("ours bf16 fast", program, f"matmul bf16:fast gauss {shape}")
        group.row(f"{title}, class fast", "bf16", "best sgemm", fast, group.rows[0].theirs, 1.75, peak)
        group.row(f"{title}, class fast", "bf16", "best bf16 matmul", fast, bf16s, 0.95, peak)
        self._capped(group, title, shape)
        return group

    def _capped(self, group, title, shape):
        cap, peak = {"FLEXLAB_ISA": "avx2"}, self._peak(group, "avx2")
        names = {}
        for format, data in (("fp32", "gauss"), ("flex16+5", "gauss"), ("flex16+5", "uniform")):
            names[format, data] = group.add(f"ours avx2 {format} {data}", self.ours, f"matmul {format} {data} {shape}", cap)
        fp32 = names["fp32", "gauss"]
        group.row(f"{title}, AVX2", "fp32", "openblas haswell", fp32, ["openblas haswell"], 0.9, peak)
        group.row(f"{title}, AVX2, Gaussian mantissas", "flex16+5", "ours fp32 avx2", names["flex16+5", "gauss"], [fp32], 1.5,
                  peak)
        group.row(f"{title}, AVX2, any mantissas", "flex16+5", "ours fp32 avx2", names["flex16+5", "uniform"], [fp32], 0.9,
                  peak)

    def scaling(self, threads):
        """Of ours: `threads` against one thread, turn by turn."""
        if threads < 2:
            return
        for work, formats, bar, label in (("matmul {} gauss 2048 2048 2048", ("flex16+5", "fp32"), 1.85, "matmul 2048x2048x2048"),
                                          ("step {} 128", ("flex16+5", "fp32"), 1.8, "training step")):
            group = Group("scaling", label, threads)
            for format in formats:
                many = group.add(f"ours {format}", self.ours, work.format(format))
                one = group.add(f"ours {format}, 1 thread", self.ours, work.format(format), threads=1)
                group.row(f"{label}, scaling", format, "ours, 1 thread", many, [one], bar)
            yield group

    def groups(self, threads):
        yield from self.matmuls(threads)
        yield from self.scaling(threads)
