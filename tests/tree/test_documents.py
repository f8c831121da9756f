#!/usr/bin/env python3
"""What documents say to those who write it again: the order of Philox's words (docs/semantics.md), read from the text and held
against what the library rounds; momentum, Adagrad and the gradient scale by their documented formulas; the Python of
docs/embedding.md, run as it stands. All documents have lines of at most 120 characters, links that lead somewhere, files that
exist, and no fragments or words that docs/glossary.md replaces.   usage: test_documents.py LIBRARY SOURCE"""
import ctypes
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
from fractions import Fraction

LIBRARY, SOURCE = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
lib = ctypes.CDLL(LIBRARY)
draw = random.Random(20260711)
FP32, FP16, BF16, FLEX, DFP16, F64, I32, F32 = 1, 2, 3, 4, 5, 240, 241, 243
checks = failures = 0


def check(ok, *what):
    global checks, failures
    checks += 1
    if not ok:
        failures += 1
        if failures < 20:
            print("FAILED", *what)


def f(name, result=ctypes.c_int):
    function = getattr(lib, "flexlab_" + name)
    function.restype = result
    return function


def do(name, *arguments):
    status = f(name)(*arguments)
    check(status == 0, name, f("tensor_error", ctypes.c_char_p)())


class Tensor:
    def __init__(self, format, values, *, shape=None, wide=False):
        shape = shape or [len(values)]
        self.n = len(values)
        self.t = ctypes.c_void_p(f("tensor_new", ctypes.c_void_p)(format, len(shape), (ctypes.c_int64 * len(shape))(*shape)))
        if wide:
            do("tensor_keep_wide", self.t)
        self.load(values)

    def load(self, values):
        do("tensor_load_f64", self.t, (ctypes.c_double * self.n)(*values), ctypes.c_int64(self.n))

    def read(self, name="tensor_store_f64"):
        out = (ctypes.c_double * self.n)()
        do(name, self.t, out, ctypes.c_int64(self.n))
        return list(out)

    def __del__(self):
        f("tensor_free", None)(self.t)


def labels_of(values):
    t = Tensor.__new__(Tensor)
    t.n = len(values)
    t.t = ctypes.c_void_p(f("tensor_new", ctypes.c_void_p)(I32, 1, (ctypes.c_int64 * 1)(len(values))))
    do("tensor_load_i32", t.t, (ctypes.c_int32 * t.n)(*values), ctypes.c_int64(t.n))
    return t


# --- Philox -------------------------------------------------------------------------------------------------------------------------------

def philox(key, counter):
    """Philox by Salmon et al. 2011, section 3.3."""
    k, c = list(key), list(counter)
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [second >> 32 ^ c[1] ^ k[0], second % 2 ** 32, first >> 32 ^ c[3] ^ k[1], first % 2 ** 32]
        k = [(k[0] + 0x9E3779B9) % 2 ** 32, (k[1] + 0xBB67AE85) % 2 ** 32]
    return c


def documented():
    """key, counter and word as functions of s, n and i, read from the text."""
    text = (SOURCE / "docs/semantics.md").read_text()
    lines = {name: formula.strip() for name, formula in re.findall(r"^ +(key|counter|word) *= (.+)$", text, re.M)}
    check(sorted(lines) == ["counter", "key", "word"], "docs/semantics.md says", lines)
    check(all(re.fullmatch(r"[\dsni%/*(), ]+", formula) for formula in lines.values()), lines)
    return {name: eval(f"lambda s, n, i: ({formula})") for name, formula in lines.items()}


def stochastic(order):
    """Products of mantissas: x in units of the last place is known exactly, and so is the result of the draw."""
    # known answers of the authors' Random123
    check(philox([0] * 2, [0] * 4) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], "Philox of zeros")
    check(philox([2 ** 32 - 1] * 2, [2 ** 32 - 1] * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD], "Philox of ones")
    check(philox([0xA4093822, 0x299F31D0], [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]) ==
          [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1], "Philox of pi")
    count, seed = 61, 0xDEADBEEF12345678
    for format in (FLEX, DFP16):
        y, a, b = (Tensor(format, [draw.uniform(-1, 1) for _ in range(count)]) for _ in range(3))
        do("tensor_set_rounding", y.t, 1, ctypes.c_uint64(seed))
        for n in range(1, 6):  # the load was write 0
            do("tensor_mul", y.t, a.t, b.t)
            unit = Fraction(2) ** f("tensor_exponent")(y.t)
            for i, (p, q, got) in enumerate(zip(a.read(), b.read(), y.read())):
                u = philox(order["key"](seed, n, i), order["counter"](seed, n, i))[order["word"](seed, n, i)]
                want = max(-32767, min(32767, math.floor(Fraction(p) * Fraction(q) * unit + Fraction(u, 2 ** 32))))
                check(Fraction(got) * unit == want, f"format {format}, write {n}, element {i}: {Fraction(got) * unit}, by the text {want}")


# --- momentum and Adagrad -----------------------------------------------------------------------------------------------------------------

def rounded(x, digits, least):
    """A fraction rounded to the nearest number of this many binary digits, ties to even."""
    if x == 0:
        return Fraction(0)
    exponent = math.frexp(float(abs(x)))[1] - 1
    exponent += (abs(x) >= Fraction(2) ** (exponent + 1)) - (abs(x) < Fraction(2) ** exponent)
    place = Fraction(2) ** (max(exponent, least) - digits + 1)
    return round(x / place) * place


NARROW = {FP32: (24, -126), FP16: (11, -14), BF16: (8, -126)}


def single(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def momentum():
    """v is rounded to binary32, then to its own bits, whatever the weight has; w to its wide part."""
    for format, narrow in NARROW.items():
        for wide in (False, True):
            v, g, w = (Tensor(format, [draw.gauss(0, 1) for _ in range(29)], wide=wide and k == 2) for k in range(3))
            mu, decay, rate = single(0.9), single(1e-2), single(0.05)
            for _ in range(3):
                before, stored = v.read(), g.read()
                weights = w.read("tensor_store_wide_f64") if wide and format != FP32 else w.read()
                do("tensor_sgd_momentum", v.t, g.t, w.t, ctypes.c_float(mu), ctypes.c_float(decay))
                do("tensor_sgd_update", w.t, v.t, ctypes.c_float(rate))
                after, now = v.read(), w.read()
                kept = w.read("tensor_store_wide_f64") if wide and format != FP32 else now
                for p, q, x, got, weight, full in zip(before, stored, weights, after, now, kept):
                    exact = Fraction(mu) * Fraction(p) + Fraction(q) + Fraction(decay) * Fraction(x)
                    want = rounded(rounded(exact, *NARROW[FP32]), *narrow)
                    check(Fraction(got) == want, f"format {format}, wide {wide}: v is {got}, by the text {float(want)}")
                    updated = rounded(Fraction(x) - Fraction(rate) * Fraction(got), *NARROW[FP32])
                    check(Fraction(weight) == rounded(updated, *narrow), f"format {format}: w is {weight}, by the text {float(updated)}")
                    check(Fraction(full) == (updated if wide else rounded(updated, *narrow)), f"format {format}: wide w is {full}")


class How(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int)] + [(x, ctypes.c_float) for x in ("beta1", "beta2", "epsilon", "weight_decay", "clip_norm", "momentum")]


def adagrad():
    """In fp32, clipped: r = sqrt(r^2 + (s g)^2), w = w - lr s g / (r + epsilon), by the sequence of docs/training.md."""
    count, ADAGRAD, ROOT, WEIGHT = 23, 4, 4, 5
    how = How(ADAGRAD, 0, 0, 1e-10, 0, 0.5, 0)
    numbers = Tensor(F64, [0.0] * 36, shape=[9, 4])
    do("tensor_optimiser_begin", numbers.t, ctypes.byref(how))
    w, r, sums = Tensor(FP32, [draw.gauss(0, 1) for _ in range(count)]), Tensor(FP32, [0.0] * count), Tensor(F64, [0.0])
    rate = ctypes.c_void_p(f("tensor_new", ctypes.c_void_p)(F32, 1, (ctypes.c_int64 * 1)(1)))
    do("tensor_load_f32", rate, (ctypes.c_float * 1)(0.01), ctypes.c_int64(1))
    for _ in range(4):
        g = Tensor(FP32, [draw.gauss(0, 1) for _ in range(count)])
        do("tensor_sum_squares", sums.t, ctypes.c_int64(0), g.t)
        s = how.clip_norm / math.sqrt(sums.read()[0])
        before, roots, gradient = w.read(), r.read(), g.read()
        do("tensor_optimiser_step", numbers.t, rate, sums.t)
        do("tensor_root_mean", r.t, g.t, numbers.t, ROOT)
        do("tensor_add_ratio", w.t, w.t, g.t, r.t, numbers.t, WEIGHT)
        for x, y, z, root, weight in zip(before, roots, gradient, r.read(), w.read()):
            scaled = s * z
            check(root == single(math.sqrt(1.0 * (y * y) + 1.0 * (scaled * scaled))), f"adagrad: r is {root}")
            check(weight == single(1.0 * x + (-(single(0.01) * s) * z) / (1.0 * root + how.epsilon)), f"adagrad: w is {weight}")
    f("tensor_free", None)(rate)


# --- the gradient scale -------------------------------------------------------------------------------------------------------------------

def scaled(by):
    """tensor_loss_options with its first member, gradient_scale, set."""
    return ctypes.byref((ctypes.c_double * 5)(by))


def gradient_scale():
    """Only the gradient is scaled, by the scale that is first divided by the count."""
    rows, classes, scale = 7, 5, 96.0
    x = Tensor(FP32, [draw.gauss(0, 2) for _ in range(rows * classes)], shape=[rows, classes])
    labels, logits = [draw.randrange(classes) for _ in range(rows)], x.read()
    of = labels_of(labels)
    results = []
    for by in (1.0, scale):
        loss, dx = Tensor(F64, [0.0]), Tensor(FP32, [0.0] * (rows * classes), shape=[rows, classes])
        do("tensor_cross_entropy", loss.t, dx.t, None, None, x.t, of.t, scaled(by))
        results.append((loss.read(), dx.read()))
    check(results[0][0] == results[1][0], "the loss is scaled:", results[0][0], results[1][0])
    for i in range(rows):
        exps = [math.exp(v) for v in logits[classes * i:classes * i + classes]]
        for c in range(classes):
            want = (exps[c] / sum(exps) - (labels[i] == c)) * (scale / rows)
            got = results[1][1][classes * i + c]
            check(abs(got - want) <= 1e-6 * scale / rows, f"gradient {got}, by the text {want}")
    target, error = Tensor(FP32, [draw.gauss(0, 2) for _ in logits], shape=[rows, classes]), Tensor(F64, [0.0])
    dx = Tensor(FP32, [0.0] * (rows * classes), shape=[rows, classes])
    do("tensor_squared_error", error.t, dx.t, x.t, target.t, scaled(scale))
    pairs = list(zip(logits, target.read()))
    check(abs(error.read()[0] - sum((p - q) ** 2 for p, q in pairs) / len(pairs)) < 1e-9, "the squared error is scaled")
    check(dx.read() == [single(2 * (p - q) * (scale / len(pairs))) for p, q in pairs], "the gradient of the squared error")


# --- docs/embedding.md --------------------------------------------------------------------------------------------------------------------

def example():
    text = (SOURCE / "docs/embedding.md").read_text()
    programs = re.findall(r"```python\n(.+?)```", text, re.S)
    check(len(programs) == 1, f"{len(programs)} programs in Python")
    with tempfile.TemporaryDirectory() as place:
        os.symlink(LIBRARY, os.path.join(place, "libflexlab.so.0.1"))
        done = subprocess.run([sys.executable, "-c", programs[0]], capture_output=True, text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": place})
    said = re.search(r"```\nprints `(.+)`", text)
    check(done.returncode == 0 and said and done.stdout.strip() == said.group(1), "the example ends with", done.returncode, done.stdout, done.stderr)


# --- lines, links and words ---------------------------------------------------------------------------------------------------------------

PRIVATE = re.compile(r"\b(rooms|floors|stairs|lends?|lent|kept|go(?:es|ing)? on|went on|in a row|takes? turns|turn by turn)\b", re.I)


def prose(text):
    """Text outside of code blocks, code spans and comments."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`]*`|<!--.*?-->", "CODE", text, flags=re.S)


def fragments(text):
    """Sentences that begin with "Of", or with "What" and ask nothing. Headings and table cells are no sentences."""
    lines = [line for line in prose(text).splitlines() if not line.startswith(("#", "|"))]
    for sentence in re.split(r"(?<=[.:!?])[*_)]*\s+|\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+", "\n".join(lines)):
        sentence = sentence.strip(" *_-(\n")
        if re.match(r"Of\b", sentence) or re.match(r"What\b[^?]*$", sentence):
            yield sentence


def anchors(text):
    """The anchors that GitHub makes of headings."""
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")


TREE = re.compile(r"(?<![\w./<-])(?:bench|cmake|docs|examples|include|python|src|tests|tools)/[\w./-]*\.\w+")


def lost_files(text):
    """Files of the tree that code spans name and that do not exist, but for those that the page has its reader write and names such
    as MACHINE.json."""
    written = re.findall(r"<!-- file: (\S+) -->", text)
    for span in re.findall(r"`[^`]+`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        for path in TREE.findall(span):
            if not (SOURCE / path).exists() and path not in written and not re.search(r"[A-Z]{4}", path):
                yield path


def documents():
    pages = [SOURCE / "README.md", SOURCE / "CONTRIBUTING.md", SOURCE / "CHANGELOG.md", *sorted((SOURCE / "docs").rglob("*.md"))]
    check(len(pages) > 50, len(pages), "documents")
    for page in pages:
        text, name = page.read_text(encoding="utf-8"), page.relative_to(SOURCE)
        for number, line in enumerate(text.splitlines(), 1):
            table = line.startswith("|") or line.startswith("![")  # neither can be broken
            check(table or len(line) <= 120, f"{name}:{number} has {len(line)} characters, at most 120 are allowed")
        for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
            path, _, anchor = target.partition("#")
            if re.match(r"\w+:", target):
                continue
            aim = page if not path else page.parent / path
            check(aim.exists(), f"{name}: the link {target} leads nowhere")
            if anchor and aim.exists():
                check(anchor in anchors(aim.read_text(encoding="utf-8")), f"{name}: {path or name} has no heading {anchor}")
        record = page.name == "CHANGELOG.md"  # of files and words that there are no more
        for path in lost_files(text) if not record else ():
            check(False, f"{name}: `{path}` does not exist")
        if record or page.parent.name in ("decisions", "experiments"):  # these are records of their time, too
            continue
        for sentence in fragments(text):
            check(False, f"{name}: a fragment: {sentence[:80]!r}")
        if page.name != "glossary.md":  # it lists the words
            for word in PRIVATE.finditer(prose(text)):
                check(False, f"{name}: {word[0]!r} (docs/glossary.md): {text and prose(text)[max(0, word.start() - 30):word.end() + 30]!r}")


documents()
stochastic(documented())
momentum()
adagrad()
gradient_scale()
example()
print(f"{checks} checks, {failures} failures")
sys.exit(failures != 0 or checks < 100)
