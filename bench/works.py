"""The entries of the benchmark: who does which work, in groups that are measured together."""

import dataclasses
import itertools
import pathlib
import subprocess

from bars import BATCHES, bar_of, step_of, this_make
from contest import Contestant, Weighted, best, environment, ratio
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
    peak: str = ""  # the contestant that measures the peak of this entry's instruction set
    products: float = 0  # multiply-adds of the work, 0 if they do not measure it
    kernels: str = ""  # the kernel set of ours, if the work's name does not contain it


class Group:
    """Contestants measured together. make: of the processor, which selects the bars. bytes: moved by each, if results are
    bytes a second instead of time."""

    def __init__(self, section, name, threads, make, bytes=0):
        self.section, self.name, self.threads, self.make, self.bytes = section, name, threads, make, bytes
        self.contestants, self.sums, self.rows = {}, {}, []

    def add(self, name, program, work, more=None, threads=None):
        if name not in self.contestants:
            self.contestants[name] = Contestant(name, program, work, threads or self.threads, more)
        return name

    def row(self, *arguments, **keywords):
        self.rows.append(Row(*arguments, **keywords))

    def select(self, text):
        """Selects the entries that contain the text, and the contestants they need."""
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
        bar, bar_for = bar_of(row.work, row.format, row.rival, self.make)
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
            "bar": bar,
            "bar_for": bar_for,
            "met": None,
            "at_most": False,
            "kernels": row.kernels,
            "rounds": len(ours.times),
            "best": theirs.name.split(":")[0] if theirs and len(rivals) > 1 else None,
            "candidates": {c.name: f"skip: {c.skip}" if c.seconds is None else self._shown(c) for c in rivals},
            "skip": "",
        }
        if ours.seconds is not None and row.products and peak and peak.seconds is not None:
            # a peak is the best of its rounds: disturbances of a round do not count
            result["of_peak"] = row.products * min(peak.times) / ours.seconds / (PEAK_PRODUCTS * self.threads)
        if ours.seconds is not None and theirs:
            result["ratio"] = ratio(theirs, ours)
            result["met"] = result["ratio"] >= bar if bar else None
        else:
            result["skip"] = "; ".join(dict.fromkeys(f"{c.name}: {c.skip}" for c in [ours, *rivals] if c.skip))
        return result


def processor_has(feature):
    try:
        return f" {feature} " in pathlib.Path("/proc/cpuinfo").read_text().replace("\n", " ")
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
BATCH = BATCHES["resnet20"]
# Depthwise convolutions of MobileNet, each the first of its size without a stride: height, channels.
DEPTHWISE = [(32, 32), (16, 128), (8, 256), (4, 512)]
HEADS = (16, 6, 128, 32)  # of the attention of gpt: sequences, heads, tokens, width of a head
# Operations of gpt on rows: tokens and their width, scores of attention, tokens and the width of the layer between.
ROWS = {"layernorm": (2048, 192), "softmax": (16 * 6 * 128, 128), "gelu": (2048, 768)}
EVALUATED = 64  # images
STEP = step_of("resnet20")
CONVERTED = 2**25  # elements: larger than the caches
FORMATS = ["flex16+5", "dfp16", "fp16", "bf16", "fp32"]
GAUSS, ANY, BITS15 = ", Gaussian mantissas", ", any mantissas", ", 15-bit mantissas"
MKL_INT16 = "mkl gemm_s16s16s32 (inexact)"


def layer_products(layer):
    side, inputs, outputs, stride, _, passes = layer
    return len(passes) * BATCH * (side // stride) ** 2 * outputs * inputs * 9


class Works:
    """All groups, by the number of threads. quick: without rivals' settings that seldom win and without work whose
    results hardly differ between numbers of threads."""

    def __init__(self, ours, rivals, quick, thread_counts, make=None):
        self.path, self.ours = str(ours), Program("flexlab", [str(ours)])
        self.make = make or this_make()
        self.rivals, self.quick, self.most_threads = rivals, quick, max(thread_counts)
        self.widest, native = ("avx512", "SKYLAKEX") if processor_has("avx512f") else ("avx2", "HASWELL")
        self.core_types = [native] if quick else CORE_TYPES
        self.fast_kernels = "" if rivals.dry else self._asked("kernels", "bf16:fast", "matmul")

    def _asked(self, *arguments):
        """The output of our worker, which then ends; empty if it fails."""
        done = subprocess.run([self.path, *arguments], capture_output=True, text=True, env=environment(1, {}))
        return done.stdout.strip() if done.returncode == 0 else ""

    def _group(self, section, name, threads, bytes=0):
        return Group(section, name, threads, self.make, bytes)

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
        """ours: (format, data, label) against the best sgemm."""
        shape = f"{m} {n} {k}"
        title = f"matmul {m}x{n}x{k}"
        group = self._group(section, title, threads)
        sgemms, peak = self._sgemms(group, shape), self._peak(group)
        for format, data, label in ours:
            name = group.add(f"ours {format} {data}", self.ours, f"matmul {format} {data} {shape}")
            group.row(f"{title}{label}", format, "best sgemm", name, sgemms, peak, m * n * k)
        return group

    # --- sections -----------------------------------------------------------------------------------------------------
    def matmuls(self, threads):
        both = [("flex16+5", "gauss", GAUSS), ("fp32", "gauss", "")]
        all_data = [("flex16+5", "gauss", GAUSS), ("flex16+5", "uniform", ANY), ("flex16+5", "15bit", BITS15)]
        yield self._matmul(threads, 1024, 1024, 1024, [*all_data, ("fp32", "gauss", "")])
        yield self._large(threads)
        for m, n, k in ((256, 1000, 3072), (16, 131072, 144), (32, 32768, 288), (64, 8192, 576)):
            yield self._matmul(threads, m, n, k, both)
        small = (64, 128, 256, 512)
        sides = (*small, 4096) if not self.quick else small if threads == self.most_threads else ()
        for side in sides:
            yield self._matmul(threads, side, side, side, both, "matmul sizes")

    def _large(self, threads):
        """2048^3, with most of the bars: other formats, MKL's int16, bf16 of class fast, the kernels of lower
        instruction sets."""
        shape, products = "2048 2048 2048", 2**33
        ours = [
            ("flex16+5", "gauss", GAUSS),
            ("flex16+5", "uniform", ANY),
            ("fp32", "gauss", ""),
            ("fp16", "gauss", ""),
            ("bf16", "gauss", ", class exact"),
        ]
        group = self._matmul(threads, 2048, 2048, 2048, ours)
        title, peak, sgemms = group.name, self._peak(group), group.rows[0].theirs
        int16 = [group.add("mkl int16", self.rivals.mkl(), f"matmul int16 {shape}")]
        group.row(f"{title}{GAUSS}", "flex16+5", MKL_INT16, "ours flex16+5 gauss", int16, peak, products)
        bf16s = [group.add("mkl bf16", self.rivals.mkl(), f"matmul bf16 {shape}")]
        bf16s += [group.add(p.name + " bf16", p, f"matmul bf16 {shape}") for p in self.rivals.onednn()[:2]]
        fast = group.add("ours bf16 fast", self.ours, f"matmul bf16:fast gauss {shape}")
        for rival, theirs in (("best sgemm", sgemms), ("best bf16 matmul", bf16s)):
            group.row(f"{title}, class fast", "bf16", rival, fast, theirs, peak, products, self.fast_kernels)
        # for information: what a product of fewer bits costs on the same processor
        int8s = [group.add(p.name + " int8", p, f"matmul int8 {shape}") for p in self.rivals.onednn()[:2]]
        for rival, theirs in (("bf16 matmul", bf16s), ("int8 matmul, s8 x s8 to s32", int8s)):
            rival = f"best {rival} (not the same work)"
            group.row(f"{title}{GAUSS}", "flex16+5", rival, "ours flex16+5 gauss", theirs, peak, products)
        if self.make == "tiles":
            self._capped_to_avx512(group, title, shape, sgemms, int16)
        self._capped_to_avx2(group, title, shape)
        return group

    def _capped_to_avx512(self, group, title, shape, sgemms, int16):
        """The vector kernels, which a processor with tiles does not choose by itself."""
        cap, peak = {"FLEXLAB_ISA": "avx512"}, self._peak(group)
        for data, label in (("gauss", GAUSS), ("uniform", ANY), ("15bit", BITS15)):
            name = group.add(f"ours avx512 flex16+5 {data}", self.ours, f"matmul flex16+5 {data} {shape}", cap)
            group.row(f"{title}, AVX-512{label}", "flex16+5", "best sgemm", name, sgemms, peak, 2**33)
        group.row(f"{title}, AVX-512{GAUSS}", "flex16+5", MKL_INT16, "ours avx512 flex16+5 gauss", int16, peak, 2**33)

    def _capped_to_avx2(self, group, title, shape):
        cap, peak = {"FLEXLAB_ISA": "avx2"}, self._peak(group, "avx2")
        names = {}
        for format, data in (("fp32", "gauss"), ("flex16+5", "gauss"), ("flex16+5", "uniform")):
            names[format, data] = group.add(
                f"ours avx2 {format} {data}", self.ours, f"matmul {format} {data} {shape}", cap
            )
        fp32, gauss, uniform = names.values()
        haswell = self.rivals.openblas("HASWELL")
        theirs = [group.add(haswell.name, haswell, f"matmul fp32 {shape}")]
        group.row(f"{title}, AVX2", "fp32", haswell.name, fp32, theirs, peak, 2**33)
        group.row(f"{title}, AVX2{GAUSS}", "flex16+5", "ours fp32 avx2", gauss, [fp32], peak, 2**33)
        group.row(f"{title}, AVX2{ANY}", "flex16+5", "ours fp32 avx2", uniform, [fp32], peak, 2**33)
        if processor_has("avx_vnni"):
            cap = {"FLEXLAB_ISA": "avx2_vnni"}
            for data, label in (("gauss", GAUSS), ("uniform", ANY)):
                name = group.add(f"ours avx2_vnni flex16+5 {data}", self.ours, f"matmul flex16+5 {data} {shape}", cap)
                group.row(f"{title}, AVX-VNNI{label}", "flex16+5", "ours fp32 avx2", name, [fp32], peak, 2**33)

    def scaling(self, threads):
        """Ours with `threads` against one thread, alternately."""
        if threads < 2:
            return
        small = [
            (f"matmul {{}} gauss {side} {side} {side}", f"matmul {side}x{side}x{side}", beside)
            for side in (64, 128)
            for beside in ("", "busy ")
        ]
        for work, label, beside in (
            ("matmul {} gauss 2048 2048 2048", "matmul 2048x2048x2048", ""),
            (f"step {{}} resnet20 {BATCH}", "training step", ""),
            ("step {} resnet20 1", "training step, batch 1", ""),
            *small,
        ):
            label += ", scaling beside a busy core" if beside else ", scaling"
            group = self._group("scaling", label, threads)
            for format in ("flex16+5", "fp32"):
                many = group.add(f"ours {format}", self.ours, beside + work.format(format))
                one = group.add(f"ours {format}, 1 thread", self.ours, work.format(format), threads=1)
                group.row(label, format, "ours, 1 thread", many, [one])
            yield group

    def convolutions(self, threads):
        """All layers in one group, so that their weighted sum has rounds, too."""
        group = self._group("convolution", "convolution", threads)
        peak, parts = self._peak(group), {"flex16+5": [], "fp32": [], "onednn": []}
        for layer in LAYERS:
            side, inputs, outputs, stride, count, passes = layer
            shape = f"{BATCH} {side} {side} {inputs} {outputs} 3 {stride} 1 1 {passes}"
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
                    peak,
                    layer_products(layer),
                )
        total = sum(layer[4] * layer_products(layer) for layer in LAYERS)
        for name, of_layer in parts.items():
            group.sums[f"sum {name}"] = Weighted(f"sum {name}", of_layer)
        for format in ("flex16+5", "fp32"):
            work = "convolutions of ResNet-20, weighted sum"
            group.row(work, format, "onednn fp32", f"sum {format}", ["sum onednn"], peak, total)
        yield group

    def steps(self, threads):
        group = self._group("training step", "training step", threads)
        peak, work = self._peak(group), f"step resnet20 {BATCH}"
        products = sum(layer[4] * layer_products(layer) for layer in LAYERS) + 3 * BATCH * 640
        ours = {f: group.add(f"ours {f}", self.ours, f"step {f} resnet20 {BATCH}") for f in FORMATS}
        fast = group.add("ours bf16 fast", self.ours, f"step bf16:fast resnet20 {BATCH}")
        fp32, autocast = self._torch(group, work, "fp32"), self._torch(group, work, "autocast")
        for format in FORMATS:
            group.row(STEP, format, "best torch fp32", ours[format], fp32, peak, products)
        for format in ("flex16+5", "bf16"):
            group.row(STEP, format, "best torch bf16 autocast", ours[format], autocast, peak, products)
        for rival, theirs in (
            ("best torch fp32", fp32),
            ("best torch bf16 autocast", autocast),
            ("ours fp32", [ours["fp32"]]),
        ):
            group.row(f"{STEP}, class fast", "bf16", rival, fast, theirs, peak, products, self.fast_kernels)
        for format in FORMATS[:-1]:
            group.row(STEP, format, "ours fp32", ours[format], [ours["fp32"]])
        if not self.quick or threads == self.most_threads:
            qtorch = group.add("qtorch", self.rivals.python("qtorch", "qtorch_step.py", "qtorch"), work)
            group.row(STEP, "flex16+5", "qtorch, simulated", ours["flex16+5"], [qtorch])
        yield group

    def networks(self, threads):
        """Steps of other networks than ResNet-20."""
        for model, batch in itertools.islice(BATCHES.items(), 1, None):
            title, work, text = step_of(model), f"step {model} {batch}", model in ("gpt", "lstm-char")
            group = self._group("training step", title, threads)
            ours = {f: group.add(f"ours {f}", self.ours, f"step {f} {model} {batch}") for f in FORMATS}
            settings = ("contiguous", "compiled")[: 1 if self.quick else 2] if text else None
            fp32, autocast = self._torch(group, work, "fp32", settings), self._torch(group, work, "autocast", settings)
            for format in FORMATS:
                group.row(title, format, "best torch fp32", ours[format], fp32)
            group.row(title, "flex16+5", "best torch bf16 autocast", ours["flex16+5"], autocast)
            fast = group.add("ours bf16 fast", self.ours, f"step bf16:fast {model} {batch}")
            for rival, theirs in (("best torch bf16 autocast", autocast), ("ours fp32", [ours["fp32"]])):
                group.row(f"{title}, class fast", "bf16", rival, fast, theirs, kernels=self.fast_kernels)
            for format in FORMATS[:-1]:
                group.row(title, format, "ours fp32", ours[format], [ours["fp32"]])
            yield group

    def parts(self, threads):
        """Attention of gpt, its normalisation, softmax and GELU, depthwise convolutions of MobileNet."""
        shape = " ".join(map(str, HEADS))
        title = "causal attention, {} x {} heads, {} x {}".format(*HEADS)
        group = self._group("parts of networks", title, threads)
        settings = ("contiguous", "compiled")[: 1 if self.quick else 2]
        torch = self._torch(group, f"attention {shape}", "fp32", settings)
        autocast = self._torch(group, f"attention {shape}", "autocast", settings)
        for format in ("flex16+5", "fp32"):
            ours = group.add(f"ours {format}", self.ours, f"attention {format} {shape}")
            group.row(title, format, "best torch fp32", ours, torch)
            group.row(title, format, "best torch bf16 autocast", ours, autocast)
        yield group
        for work, (rows, columns) in ROWS.items():
            title = f"{work} {rows}x{columns}, both passes"
            group = self._group("parts of networks", title, threads)
            torch = self._torch(group, f"{work} {rows} {columns}", "fp32", ("contiguous",))
            for format in FORMATS:
                ours = group.add(f"ours {format}", self.ours, f"{work} {format} {rows} {columns}")
                group.row(title, format, "torch fp32", ours, torch)
            yield group
        for side, channels in DEPTHWISE:
            title = f"depthwise conv {side}x{side}x{channels}, all passes"
            batch = BATCHES["mobilenet"]
            shape, products = (
                f"{batch} {side} {side} {channels} {channels} 3 1 1 {channels} fdw",
                3 * 9 * batch * side**2 * channels,
            )
            group = self._group("parts of networks", title, threads)
            peak = self._peak(group)
            theirs = [group.add(p.name, p, f"conv {shape}") for p in self.rivals.onednn()[:2]]
            for format in ("flex16+5", "fp32"):
                ours = group.add(f"ours {format}", self.ours, f"conv {format} {shape}")
                group.row(title, format, "onednn fp32", ours, theirs, peak, products)
            yield group

    def evaluations(self, threads):
        title, work = f"ResNet-20 evaluation, batch {EVALUATED}", f"resnet20 {EVALUATED}"
        group = self._group("evaluation", title, threads)
        theirs = {
            precision: group.add(
                f"onnxruntime {precision}",
                self.rivals.python("onnxruntime", "onnxruntime_evaluate.py", "onnxruntime", precision),
                f"evaluate {work}",
            )
            for precision in ("fp32", "int8")
        }
        torch = self._torch(group, f"evaluate {work}", "fp32")
        for format in FORMATS:
            ours = group.add(f"ours {format}", self.ours, f"evaluate {format} {work}")
            group.row(title, format, "onnxruntime fp32", ours, [theirs["fp32"]])
            group.row(title, format, "best torch fp32", ours, torch)
        group.row(title, "flex16+5", "onnxruntime int8 (not the same work)", "ours flex16+5", [theirs["int8"]])
        yield group

    def _torch(self, group, work, precision, settings=None):
        names = []
        for setting in settings or (("channels_last",) if self.quick else ("contiguous", "channels_last", "compiled")):
            name = f"torch {setting}" if precision == "fp32" else f"torch {precision} {setting}"
            program = self.rivals.python(name, "torch_step.py", "torch", setting, precision)
            names.append(group.add(name, program, work))
        return names

    def conversions(self, threads):
        group = self._group(
            "conversion", "conversion", threads, 6 * CONVERTED
        )  # four bytes on one side, two on the other
        copy = group.add("memcpy", self.ours, f"memcpy {3 * CONVERTED}")
        for format in ("fp16", "bf16", "flex16+5"):
            for source, target in (("fp32", format), (format, "fp32")):
                name = group.add(f"ours {source} to {target}", self.ours, f"convert {source} {target} {CONVERTED}")
                group.row(f"convert {source} to {target}, 2^25 elements", format, "memcpy", name, [copy])
        yield group

    def groups(self, threads):
        yield from self.matmuls(threads)
        yield from self.convolutions(threads)
        yield from self.steps(threads)
        yield from self.networks(threads)
        yield from self.parts(threads)
        yield from self.evaluations(threads)
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
                work = f"training step, batch {BATCH}: {label}"
                bar, bar_for = bar_of(work, format, "ours fp32", self.make)
                rows.append(
                    {
                        "section": "memory",
                        "work": work,
                        "format": format,
                        "threads": 1,
                        "rival": "ours fp32",
                        "ours": ours,
                        "theirs": theirs,
                        "unit": "MiB",
                        "ratio": ratio_of,
                        "of_peak": None,
                        "bar": bar,
                        "bar_for": bar_for,
                        "at_most": True,
                        "kernels": "",
                        "met": ratio_of <= bar if bar and ratio_of else None,
                        "rounds": 1,
                        "best": None,
                        "candidates": {},
                        "skip": "" if dry or ratio_of else "flexlab: no plan",
                    }
                )
        return rows

    def _plan(self, what, format):
        bytes = self._asked("memory", what, format, str(BATCH))
        return int(bytes) / 2**20 if bytes else None
