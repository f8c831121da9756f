#!/usr/bin/env python3
"""Operations of optimisers against exact rationals and the doubles of another language, through the shared library: combine, clip
and sums of squares as fractions rounded once, roots and ratios in Python's doubles, whose results are then rounded as fractions,
and the numbers of a step by their formulas. Ordinary values, extremes, zeros, saturation, all formats.
usage: test_optimiser_exact.py LIBRARY [SEED]"""
import ctypes
import math
import random
import struct
import sys
from fractions import Fraction

lib = ctypes.CDLL(sys.argv[1])
seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20260101
draw = random.Random(seed)
print("seed", seed)
FORMATS = {"fp32": 1, "fp16": 2, "bf16": 3, "flex16+5": 4, "dfp16": 5}
RANGE = {"flex16+5": (0, 31), "dfp16": (-128, 127)}
F64, F32 = 240, 243
NEAREST, STOCHASTIC = 0, 1
WIDE_TOP = 0x7FFF7FFF
checks = failures = 0


def f(name, result=ctypes.c_int):
    function = getattr(lib, "flexlab_" + name)
    function.restype = result
    return function


new, free, error = f("tensor_new", ctypes.c_void_p), f("tensor_free", None), f("tensor_error", ctypes.c_char_p)


def check(ok, what):
    global checks, failures
    checks += 1
    if not ok:
        failures += 1
        if failures <= 20:
            print("FAILED", what)


def do(name, *arguments):
    status = f(name)(*arguments)
    check(status == 0, f"{name}: {error().decode() if status else ''}")


class Tensor:
    def __init__(self, format, values, *, wide=False, predictor=None, shape=None, rounding=None):
        self.format, self.n = format, len(values)
        shape = shape or [self.n]
        self.t = ctypes.c_void_p(new(format, len(shape), (ctypes.c_int64 * len(shape))(*shape)))
        self.wide = wide and format not in (1, F64, F32)
        if predictor and format in (4, 5):
            do("tensor_set_predictor", self.t, predictor)
        if rounding is not None:
            do("tensor_set_rounding", self.t, rounding, ctypes.c_uint64(7))
        if self.wide:
            do("tensor_keep_wide", self.t)
        self.load(values)

    def load(self, values):
        if self.format == F32:
            return do("tensor_load_f32", self.t, (ctypes.c_float * self.n)(*values), ctypes.c_int64(self.n))
        do("tensor_load_f64", self.t, (ctypes.c_double * self.n)(*values), ctypes.c_int64(self.n))

    def stored(self):
        if self.format == F32:
            floats = (ctypes.c_float * self.n)()
            do("tensor_store_f32", self.t, floats, ctypes.c_int64(self.n))
            return list(floats)
        out = (ctypes.c_double * self.n)()
        do("tensor_store_f64", self.t, out, ctypes.c_int64(self.n))
        return list(out)

    def full(self):
        if not self.wide:
            return self.stored()
        out = (ctypes.c_double * self.n)()
        do("tensor_store_wide_f64", self.t, out, ctypes.c_int64(self.n))
        return list(out)

    def e(self):
        return f("tensor_exponent")(self.t)

    def __del__(self):
        free(self.t)


def single(x):  # the nearest binary32
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def to_even(x):  # a fraction to the nearest integer
    return round(x)


def rational_single(x):  # a fraction to the nearest binary32, by its definition
    if x == 0:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    while Fraction(2) ** exponent > size:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    place = max(exponent, -126) - 23
    m = to_even(size / Fraction(2) ** place)
    result = float(m * Fraction(2) ** place) if m * Fraction(2) ** place < Fraction(2) ** 128 else math.inf
    return math.copysign(result, x)


def fitting(format, largest):  # the exponent of the exact maximum
    e = 14
    while largest * Fraction(2) ** e >= 2 ** 15:
        e -= 1
    while largest * Fraction(2) ** e < 2 ** 14:
        e += 1
    if to_even(largest * Fraction(2) ** e) > 32767:
        e -= 1
    low, high = RANGE["flex16+5" if format == 4 else "dfp16"]
    return min(max(e, low), high)


def expect_shared(what, t, results, fits):
    """Compares with `results`, fractions before the one rounding."""
    e, got, full = t.e(), t.stored(), t.full()
    largest = max(abs(x) for x in results)
    if fits and largest > 0:
        check(e == fitting(t.format, largest), f"{what}: exponent {e}, expected {fitting(t.format, largest)}")
    for i, x in enumerate(results):
        if t.wide:
            m = max(-WIDE_TOP, min(WIDE_TOP, to_even(x * Fraction(2) ** (e + 16))))
            check(Fraction(full[i]) == m / Fraction(2) ** (e + 16), f"{what}: wide element {i} {full[i]}, expected {m} / 2^{e + 16}")
            view = to_even(Fraction(m, 65536))
        else:
            view = max(-32767, min(32767, to_even(x * Fraction(2) ** e)))
        check(Fraction(got[i]) == view / Fraction(2) ** e, f"{what}: element {i} {got[i]}, expected {view} / 2^{e}")


def expect(what, t, results, fits=True):
    if t.format in (4, 5):
        return expect_shared(what, t, results, fits)
    full = t.full()
    for i, x in enumerate(results):
        want = rational_single(x)
        if t.format == 1 or t.wide:
            check(full[i] == want, f"{what}: element {i} {full[i]}, expected {want}")


def values(format, n, style):
    scale = 2.0 ** draw.randint(-8, 8)
    if style == "zero":
        return [0.0] * n
    if style == "extreme":
        return [draw.choice([-1, 1]) * scale for _ in range(n)]
    if style == "sparse":
        return [draw.choice([0, 0, 1]) * draw.uniform(-scale, scale) for _ in range(n)]
    if style == "spread":
        return [draw.uniform(-1, 1) * scale * 2.0 ** -draw.randint(0, 14) for _ in range(n)]
    return [draw.gauss(0, scale) for _ in range(n)]


STYLES = ["ordinary", "ordinary", "spread", "sparse", "extreme", "zero"]
N = 37


def factors(numbers):
    return Tensor(F64, numbers + [0.0] * (4 - len(numbers)), shape=[1, 4])


def settings():
    name = draw.choice(list(FORMATS))
    return name, FORMATS[name], draw.choice([True, True, False]), draw.choice([b"current", b"current", b"fixed"])


def combine():
    name, format, wide, predictor = settings()
    m = Tensor(format, values(format, N, draw.choice(STYLES)), wide=wide, predictor=predictor)
    g = Tensor(format, values(format, N, draw.choice(STYLES)))
    w = Tensor(format, values(format, N, draw.choice(STYLES)), wide=draw.random() < 0.5)
    numbers = [draw.choice([0.9, 1.0, 0.0, draw.uniform(-2, 2)]), draw.uniform(-1, 1) * 2.0 ** draw.randint(-20, 3), draw.choice([0.0, 1e-4, -3.0])]
    for step in range(3):
        three = draw.random() < 0.5
        a, b, c = (Fraction(single(x)) for x in numbers)
        results = [a * Fraction(p) + b * Fraction(q) + (c * Fraction(s) if three else 0) for p, q, s in zip(m.full(), g.stored(), w.full())]
        by = factors(numbers)
        do("tensor_combine", m.t, m.t, g.t, w.t if three else None, by.t, 0)
        expect(f"{name} combine {numbers} step {step}", m, results, predictor == b"current")


def root_in_doubles(r, g, n):
    x = n[2] * g
    s = n[0] * (r * r) + n[1] * (x * x)
    return math.sqrt(s) if s > 0 else 0.0


def root():
    name, format, wide, predictor = settings()
    r = Tensor(format, [abs(x) for x in values(format, N, draw.choice(STYLES))], wide=True, predictor=predictor)
    g = Tensor(format, values(format, N, draw.choice(STYLES)))
    numbers = [draw.choice([0.999, 0.99, 1.0, 0.0]), draw.choice([0.001, 1 - 0.999, 1.0]), draw.choice([1.0, draw.uniform(0, 1)])]
    for step in range(3):
        before, gradient = r.full(), g.stored()
        results = [Fraction(root_in_doubles(x, y, numbers)) for x, y in zip(before, gradient)]
        by = factors(numbers)
        do("tensor_root_mean", r.t, g.t, by.t, 0)
        expect(f"{name} root {numbers} step {step}", r, results, predictor == b"current")
        for x, y, got in zip(before, gradient, results):  # the doubles are near the true root
            true = Fraction(numbers[0]) * Fraction(x) ** 2 + Fraction(numbers[1]) * (Fraction(numbers[2]) * Fraction(y)) ** 2
            check(true * (1 - Fraction(1, 2 ** 49)) <= got * got <= true * (1 + Fraction(1, 2 ** 49)), f"{name} root of {float(true)}")


def ratio():
    name, format, wide, predictor = settings()
    w = Tensor(format, values(format, N, draw.choice(STYLES)), wide=wide, predictor=predictor)
    r = Tensor(format, [abs(x) for x in values(format, N, draw.choice(STYLES))], wide=True)
    m = Tensor(format, values(format, N, draw.choice(STYLES)), wide=draw.random() < 0.7)
    n = [draw.choice([1.0, 1 - 1e-5, 0.9]), -draw.uniform(0, 1) * 2.0 ** draw.randint(-20, 2), draw.uniform(1, 30), draw.choice([1e-8, 1e-6, 1e-3])]
    results = []
    least = 2.0 ** -(r.e() + 16) if format in (4, 5) else 0.0  # one step of the wide part
    for x, y, z in zip(w.full(), m.full(), r.full()):
        kept, z = n[0] * x, max(z, least)
        results.append(Fraction(kept if n[1] * y == 0 else kept + n[1] * y / (n[2] * z + n[3])))
    by = factors(n)
    do("tensor_add_ratio", w.t, w.t, m.t, r.t, by.t, 0)
    expect(f"{name} ratio {n}", w, results, predictor == b"current")


def by_zero():
    """Without an epsilon: a root of zero counts as one wide step if there is an exponent; a divisor that nevertheless
    is zero saturates there, and gives infinity in the other formats."""
    for name, format in FORMATS.items():
        w, m = Tensor(format, [1.0] * 4, wide=True, predictor=b"fixed"), Tensor(format, [1.0, -1.0, 0.0, 0.5], wide=True)
        r, by = Tensor(format, [0.0, 0.0, 0.0, 1.0], wide=True), factors([1.0, -0.5, 1.0, 0.0])
        do("tensor_add_ratio", w.t, w.t, m.t, r.t, by.t, 0)
        if format in (4, 5):
            e, top = w.e(), 0x7FFF7FFF
            most = [-top / 2.0 ** (e + 16), top / 2.0 ** (e + 16), 1.0]
        else:
            most = [-math.inf, math.inf, 1.0]
        check(w.full() == most + [0.75], f"{name}: quotients by zero are {w.full()}, expected {most + [0.75]}")
        w.load([1.0] * 4)
        by = factors([1.0, -0.5, 0.0, 0.0])  # r does not count
        do("tensor_add_ratio", w.t, w.t, m.t, r.t, by.t, 0)
        check(w.full() == most + most[:1], f"{name}: quotients by nothing are {w.full()}, expected {most + most[:1]}")


def below_a_step():
    """A root far below one wide step divides as that step, so that its quotient does not grow by 1 / epsilon."""
    for name, format in FORMATS.items():
        w, m = Tensor(format, [1.0] * 3, wide=True, predictor=b"fixed"), Tensor(format, [2.0 ** -12, 2.0 ** -27, 1.0], wide=True)
        r, by = Tensor(format, [2.0 ** -44, 2.0 ** -50, 1.0], wide=True, predictor=b"current"), factors([1.0, -0.001, 1.0, 2.0 ** -40])
        step = 2.0 ** -(r.e() + 16) if format in (4, 5) else 0.0
        if format in (4, 5):
            check(r.full()[:2] == [0.0, 0.0], f"{name}: roots {r.full()}, expected to be below a step")
        results = [Fraction(x - 0.001 * y / (max(z, step) + 2.0 ** -40)) for x, y, z in zip(w.full(), m.full(), r.full())]
        do("tensor_add_ratio", w.t, w.t, m.t, r.t, by.t, 0)
        expect(f"{name} ratio below a step", w, results, False)


def narrow():
    """States of 16 bits, stochastic: floor or ceiling of the exact result; a root counts as at least one step."""
    for name in ("flex16+5", "dfp16"):
        format = FORMATS[name]
        m = Tensor(format, values(format, N, "ordinary"), predictor=b"current", rounding=STOCHASTIC)
        r = Tensor(format, [abs(x) for x in values(format, N, "sparse")], predictor=b"current", rounding=STOCHASTIC)
        g = Tensor(format, values(format, N, "ordinary"))
        a, b = Fraction(single(0.9)), Fraction(single(0.1))
        exact = [a * Fraction(p) + b * Fraction(q) for p, q in zip(m.stored(), g.stored())]
        by = factors([0.9, 0.1])
        do("tensor_combine", m.t, m.t, g.t, None, by.t, 0)
        unit = Fraction(2) ** m.e()
        for got, x in zip(m.stored(), exact):
            check(Fraction(got) * unit in (math.floor(x * unit), math.ceil(x * unit)), f"{name} narrow moment {got} of {float(x)}")
        by = factors([0.999, 0.001, 1.0])
        exact = [Fraction(root_in_doubles(x, y, [0.999, 0.001, 1.0])) for x, y in zip(r.stored(), g.stored())]
        do("tensor_root_mean", r.t, g.t, by.t, 0)
        unit = Fraction(2) ** r.e()
        for got, x in zip(r.stored(), exact):
            check(Fraction(got) * unit in (math.floor(x * unit), math.ceil(x * unit)), f"{name} narrow root {got} of {float(x)}")
        w = Tensor(format, values(format, N, "ordinary"), wide=True, predictor=b"current")
        n = [1.0, -0.01, 1.5, 1e-8]
        step = 2.0 ** -r.e()
        results = [Fraction(x + n[1] * y / (n[2] * max(z, step) + n[3]) if n[1] * y else x) for x, y, z in zip(w.full(), m.stored(), r.stored())]
        by = factors(n)
        do("tensor_add_ratio", w.t, w.t, m.t, r.t, by.t, 0)
        expect(f"{name} narrow ratio", w, results)


def moment_of_16_bits():
    """A moment rounded to nearest in 16 bits stops decaying below 1 / (2 (1 - beta)) of its steps; a wide one does
    not."""
    for format in (4, 5):
        last = []
        for wide in (False, True):
            m, g = Tensor(format, [1.0, 100 * 2.0 ** -14], wide=wide, predictor=b"fixed"), Tensor(format, [1.0, 0.0])
            by, step = factors([0.9, 0.1]), 2.0 ** -m.e()
            for _ in range(200):
                do("tensor_combine", m.t, m.t, g.t, None, by.t, 0)
            last.append(m.full()[1] / step)
        check(last[0] == 4 and 0 <= last[1] < 5 / 65536, f"moments of {last} steps, expected 4 and next to none")


def clip():
    name, format, _, _ = settings()
    x = Tensor(format, values(format, N, draw.choice(STYLES)))
    y = Tensor(format, [0.0] * N, predictor=b"current")
    top = single(draw.choice([0.0, draw.uniform(0, 2), 2.0 ** draw.randint(-9, 9)]))
    results = [max(-Fraction(top), min(Fraction(top), Fraction(v))) for v in x.stored()]
    do("tensor_clip", y.t, x.t, ctypes.c_float(top))
    if format in (1, 4, 5):
        expect(f"{name} clip {top}", y, results)


def squares():
    name, format, _, _ = settings()
    n = draw.choice([1, 7, 37, 4096, 4097, 9001])
    x, sums = Tensor(format, values(format, n, draw.choice(STYLES))), Tensor(F64, [5.0, 6.0, 7.0])
    do("tensor_sum_squares", sums.t, ctypes.c_int64(1), x.t)
    got, elements = sums.stored(), x.stored()
    exact = sum(Fraction(v) ** 2 for v in elements)
    check(got[0] == 5 and got[2] == 7, f"{name} sum of squares: a neighbour changed")
    if format in (4, 5):
        check(got[1] == float(exact), f"{name} sum of squares {got[1]}, expected {float(exact)}")
        return
    total = 0.0
    for first in range(0, n, 4096):
        s = [0.0] * 8
        for i, v in enumerate(elements[first:first + 4096]):
            s[i % 8] += v * v
        total += ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    check(got[1] == total, f"{name} sum of squares {got[1]}, expected {total}")
    check(abs(Fraction(total) - exact) <= exact * Fraction(600, 2 ** 53), f"{name} sum of squares {total} is far from {float(exact)}")


class How(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int)] + [(x, ctypes.c_float) for x in ("beta1", "beta2", "epsilon", "weight_decay", "clip_norm", "momentum")]


SGD, ADAM, ADAMW, RMSPROP, ADAGRAD, LAMB = range(6)
MOMENT, ROOT, WEIGHT, UNDECAYED, DIRECTION, DIRECTION_UNDECAYED = 3, 4, 5, 6, 7, 8


def steps():
    kind = draw.randint(0, 5)
    how = How(kind, draw.choice([0.9, 0.0, 0.5]), draw.choice([0.999, 0.95]), 1e-8, draw.choice([0.0, 0.01]), draw.choice([0.0, 1.0]), draw.choice([0.0, 0.9]))
    b1, b2, eps, wd, norm, mu = how.beta1, how.beta2, how.epsilon, how.weight_decay, how.clip_norm, how.momentum
    numbers = Tensor(F64, [0.0] * 36, shape=[9, 4])
    do("tensor_optimiser_begin", numbers.t, ctypes.byref(how))
    p1 = p2 = 1.0
    for t in range(1, 6):
        rate, squares = single(draw.uniform(0, 0.1)), [draw.uniform(0, 2) for _ in range(3)]
        lr, sums = Tensor(F32, [rate]), Tensor(F64, squares)
        do("tensor_optimiser_step", numbers.t, lr.t, sums.t)
        p1, p2 = p1 * b1, p2 * b2
        length = math.sqrt(((0.0 + squares[0]) + squares[1]) + squares[2])
        s = norm / length if norm > 0 and length > norm else 1.0
        n = numbers.stored()
        row = lambda i: n[4 * i:4 * i + 4]
        check(row(0) == [t, p1, p2, s], f"state {row(0)}, expected {[t, p1, p2, s]}")
        if kind == SGD:
            check(row(DIRECTION) == [mu, s, wd, 0] and row(DIRECTION_UNDECAYED) == [mu, s, 0, 0], f"directions {row(7)} {row(8)}")
            continue
        coupled = kind in (ADAM, RMSPROP, ADAGRAD) and wd != 0
        check(row(DIRECTION) == [wd, s, 0, 0] and row(DIRECTION_UNDECAYED) == [0, s, 0, 0], f"directions {row(7)} {row(8)}")
        s = 1.0 if coupled else s
        check(row(MOMENT) == [b1, (1 - b1) * s, 0, 0], f"moment {row(MOMENT)}")
        check(row(ROOT) == ([1, 1, s, 0] if kind == ADAGRAD else [b2, 1 - b2, s, 0]), f"root {row(ROOT)}")
        q = 1 / math.sqrt(1 - p2)
        want = {ADAM: [1, -(rate / (1 - p1)), q], ADAMW: [1 - rate * wd, -(rate / (1 - p1)), q], LAMB: [wd, 1 / (1 - p1), q]}.get(kind)
        if not want:
            want = [mu, s, 1] if mu else [1, -(rate * s), 1]
        undecayed = {ADAMW: 1, LAMB: 0}.get(kind, want[0])
        check(row(WEIGHT) == want + [eps] and row(UNDECAYED) == [undecayed] + want[1:] + [eps], f"kind {kind}: weights {row(5)} {row(6)}, expected {want}")


def trust():
    inf, nan = math.inf, math.nan
    ends = [(1.0, 1e-90), (inf, 1.0), (inf, inf), (nan, 1.0), (1.0, nan), (nan, nan), (inf, nan), (1e308, 1e-308)]  # the rate itself
    for a, b in [(4.0, 9.0), (0.0, 1.0), (1.0, 0.0), (0.3, 0.7), (1.0, 1e-76), (1e-90, 1.0), (1.0, inf)] + ends:
        to, rate, sums = Tensor(F32, [0.0]), Tensor(F32, [0.5]), Tensor(F64, [a, b])
        do("tensor_trust_rate", to.t, rate.t, sums.t)
        want = single(0.5 * (math.sqrt(a) / math.sqrt(b))) if a and b and (a, b) not in ends else 0.5
        check(to.stored() == [want], f"trust rate of {a}, {b}: {to.stored()}, expected {want}")


for _ in range(60):
    combine()
    root()
    ratio()
    clip()
    steps()
for _ in range(12):
    squares()
by_zero()
below_a_step()
narrow()
moment_of_16_bits()
trust()
print(f"{checks} checks, {failures} failures")
sys.exit(failures != 0)
