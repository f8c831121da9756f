#!/usr/bin/env python3
"""Losses against 60 decimal digits and exact fractions, through the shared library: cross-entropy by labels with an ignored one,
smoothing and class weights, by targets, squared error, Huber's loss, a critic's. A gradient element is the exact one within half a
step of the format and 1e-11 of the largest gradient there could be; where the options leave nothing of themselves, the bits are
those of tensor_cross_entropy. Then the slopes of losses by finite differences, what Inf and NaN do, and weights clipped.
usage: test_losses.py LIBRARY [SEED]"""
import ctypes
import math
import random
import struct
import sys
from decimal import Decimal, getcontext
from fractions import Fraction

lib = ctypes.CDLL(sys.argv[1])
seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20261122
draw = random.Random(seed)
print("seed", seed)
getcontext().prec = 60
FORMATS = {"fp32": 1, "fp16": 2, "bf16": 3, "flex16+5": 4, "dfp16": 5}
FRACTION = {1: (23, -126, 127), 2: (10, -14, 15), 3: (7, -126, 127)}  # digits, exponents of normal numbers
F64, I32, F32 = 240, 241, 243
SCALE = 1e-11
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


class Options(ctypes.Structure):
    _fields_ = [("gradient_scale", ctypes.c_double), ("gradient_scale_tensor", ctypes.c_void_p), ("class_weights", ctypes.c_void_p),
                ("label_smoothing", ctypes.c_float), ("ignored_label", ctypes.c_int32), ("ignores", ctypes.c_bool)]


class Tensor:
    def __init__(self, format, shape, values=None):
        self.format, self.shape, self.n = format, shape, math.prod(shape)
        self.t = ctypes.c_void_p(new(format, len(shape), (ctypes.c_int64 * len(shape))(*shape)))
        if values is not None:
            kind, name = {I32: (ctypes.c_int32, "i32"), F32: (ctypes.c_float, "f32")}.get(format, (ctypes.c_double, "f64"))
            status = f("tensor_load_" + name)(self.t, (kind * self.n)(*values), ctypes.c_int64(self.n))
            check(status == 0, f"load: {error()}")

    def values(self):
        kind, name = {I32: (ctypes.c_int32, "i32"), F32: (ctypes.c_float, "f32")}.get(self.format, (ctypes.c_double, "f64"))
        out = (kind * self.n)()
        check(f("tensor_store_" + name)(self.t, out, ctypes.c_int64(self.n)) == 0, "store")
        return list(out)

    def e(self):
        return f("tensor_exponent")(self.t)

    def __del__(self):
        free(self.t)


def t_of(x):
    return x.t if x else ctypes.c_void_p(None)


def call(name, *arguments, scale=1.0, how=None, delta=None, wants=0):
    how = how or Options()
    how.gradient_scale = scale
    extra = () if delta is None else (ctypes.c_float(delta),)
    status = f(f"tensor_{name}")(*[t_of(a) for a in arguments], *extra, ctypes.byref(how))
    check(status == wants, f"{name}: {status} {error()}")
    return error().decode()


def bits(values):
    return [struct.pack("d", v) if v == v else b"nan" for v in values]


# --- exact results ---------------------------------------------------------------------------------------------------------------

def decimal(x):
    x = Fraction(x)
    return Decimal(x.numerator) / Decimal(x.denominator)


def entropy(z, shares, together, scale):
    """z, shares: rows of fractions; the mean loss and the gradient."""
    loss, gradient = Decimal(0), []
    if together == 0:
        return loss, [Decimal(0)] * sum(len(r) for r in z)
    for row, share in zip(z, shares):
        top = max(row)
        exps = [decimal(v - top).exp() for v in row]
        total = sum(exps)
        q = [decimal(s) for s in share]
        loss += sum(s * (total.ln() - decimal(v - top)) for s, v in zip(q, row) if s)
        gradient += [(sum(q) * e / total - s) * decimal(scale) / decimal(together) for e, s in zip(exps, q)]
    return loss / decimal(together), gradient


def step(format, x):
    digits, low, _ = FRACTION[format]
    return 2.0 ** (max(math.frexp(x)[1] - 1 if x else low, low) - digits)


def expect_gradient(what, dx, exact, most):
    got = dx.values()
    e = dx.e() if dx.format > 3 else 0
    for i, (y, x) in enumerate(zip(got, exact)):
        slack = abs(decimal(Fraction(most))) * Decimal(SCALE)
        if dx.format > 3:
            unit = Decimal(2) ** -e
            if abs(x) > 32767 * unit:
                x = (32767 * unit).copy_sign(x)
        else:
            unit = Decimal(max(step(dx.format, y), step(dx.format, float(x))))
        check(abs(Decimal(y) - x) <= unit * Decimal("0.5000001") + slack, f"{what}: element {i} is {y}, expected {x:.12e}, e {e}")


def expect_loss(what, loss, exact, size):
    got = loss.values()[0]
    check(abs(Decimal(got) - exact) <= Decimal(1e-13) * (abs(exact) + decimal(size)), f"{what}: loss {got}, expected {exact:.18e}")


# --- operands --------------------------------------------------------------------------------------------------------------------

def numbers(format, n, style):
    """Numbers that a format can represent: about 1; far apart; to the ends of its range; steps of one another."""
    most = {1: 3e38, 2: 65504.0, 3: 3e38, 4: 32767.0, 5: 2.0 ** 100}[format]
    if style == "ends":
        return [draw.choice([most, -most, 0, most / 2]) for _ in range(n)]
    if style == "far":
        return [draw.uniform(-800, 800) for _ in range(n)]
    if style == "equal":
        return [draw.randint(-1, 1) for _ in range(n)]
    return [draw.gauss(0, 3) for _ in range(n)]


STYLES = ["usual", "usual", "far", "equal", "ends"]


def logits_of(format, rows, classes, style):
    x = Tensor(format, [rows, classes], numbers(format, rows * classes, style))
    v = [Fraction(a) for a in x.values()]
    return x, [v[i * classes:(i + 1) * classes] for i in range(rows)]


def entropy_cases(name, format):
    for number in range(21):
        rows, classes, style = draw.choice([1, 3, 9, 17]), draw.choice([1, 2, 10, 33]), STYLES[number % 5]
        what = f"{name} cross-entropy {number} {rows}x{classes} {style}"
        x, z = logits_of(format, rows, classes, style)
        scale, ignored = draw.choice([1.0, 64.0, -0.3]), draw.choice([-100, -1, classes, 0])
        labels = [ignored if draw.random() < 0.3 else draw.randrange(classes) for _ in range(rows)]
        if number % 7 == 3:
            labels = [ignored] * rows
        s = [0.0, 0.1, 1.0, 0.25][number % 4]
        s = struct.unpack("f", struct.pack("f", s))[0]
        w = [draw.choice([0.0, 1.0, draw.random()]) for _ in range(classes)] if number % 3 == 1 else None
        weights = Tensor(F64, [classes], w) if w else None
        at = Tensor(F64, [1], [scale]) if number % 2 else None
        how = Options(0, at.t if at else None, weights.t if weights else None, s, ignored, True)
        loss, dx, predicted, correct = Tensor(F64, [1]), Tensor(format, [rows, classes]), Tensor(I32, [rows]), Tensor(I32, [1])
        call("cross_entropy", loss, dx, predicted, correct, x, Tensor(I32, [rows], labels), scale=7.0 if at else scale, how=how)
        wc = [Fraction(v) for v in w] if w else [Fraction(1)] * classes
        shares = [[wc[c] * ((1 - Fraction(s)) * (c == y) + Fraction(s) / classes) if y != ignored else Fraction(0)
                   for c in range(classes)] for y in labels]
        together = sum((wc[y] for y in labels if y != ignored), Fraction(0))
        exact, gradient = entropy(z, shares, together, scale)
        most = abs(scale) / float(together) if together else 0
        expect_loss(what, loss, exact, Fraction(max(abs(v) for r in z for v in r)) * (classes if together else 0) + 1)
        expect_gradient(what, dx, gradient, most)
        first = [max(range(classes), key=lambda c, r=r: (r[c], -c)) for r in z]
        check(predicted.values() == first, f"{what}: predicted")
        right = sum(p == y and y != ignored for p, y in zip(first, labels))
        check(correct.values()[0] == right, f"{what}: correct {correct.values()[0]}, expected {right}")


def target_cases(name, format):
    for number in range(12):
        rows, classes, style = draw.choice([1, 3, 9]), draw.choice([1, 2, 10, 33]), STYLES[number % 5]
        what = f"{name} targets {number} {rows}x{classes} {style}"
        x, z = logits_of(format, rows, classes, style)
        kind = [format, F64, F32][number % 3]
        t = Tensor(kind, [rows, classes], [draw.choice([0.0, 1.0, draw.random()]) for _ in range(rows * classes)])
        s = struct.unpack("f", struct.pack("f", 0.1))[0] if number % 2 else 0.0
        loss, dx = Tensor(F64, [1]), Tensor(format, [rows, classes])
        call("cross_entropy_targets", loss, dx, None, x, t, scale=8.0, how=Options(label_smoothing=s))
        v = [Fraction(a) for a in t.values()]
        shares = [[(1 - Fraction(s)) * v[i * classes + c] + Fraction(s) / classes for c in range(classes)] for i in range(rows)]
        exact, gradient = entropy(z, shares, Fraction(rows), 8.0)
        expect_loss(what, loss, exact, Fraction(max(abs(a) for r in z for a in r)) * classes + 1)
        expect_gradient(what, dx, gradient, 8.0 * classes)


def same_bits(name, format):
    """With options that have no effect, every path gives the bits of tensor_cross_entropy."""
    for rows, classes in (1, 2), (9, 10), (64, 33), (5, 1000):
        x, _ = logits_of(format, rows, classes, "usual")
        labels = [draw.randrange(classes) for _ in range(rows)]
        plain = None
        for which in range(6):
            loss, dx, predicted = Tensor(F64, [1]), Tensor(format, [rows, classes]), Tensor(I32, [rows])
            y = Tensor(I32, [rows], labels)
            ones = Tensor(F64, [classes], [1.0] * classes)
            if which == 0:
                status = f("tensor_cross_entropy")(loss.t, dx.t, predicted.t, None, x.t, y.t, ctypes.byref(Options(gradient_scale=4.0)))
                check(status == 0, error())
            elif which < 4:
                how = [Options(), Options(ignored_label=-100, ignores=True), Options(class_weights=ones.t)][which - 1]
                call("cross_entropy", loss, dx, predicted, None, x, y, scale=4.0, how=how)
            else:
                one_hot = [float(c == label) for label in labels for c in range(classes)]
                call("cross_entropy_targets", loss, dx, predicted, x, Tensor(F64 if which == 4 else F32, [rows, classes], one_hot), scale=4.0)
            got = bits(loss.values()) + bits(dx.values()) + [dx.e()] + predicted.values()
            plain = plain or got
            check(got == plain, f"{name} {rows}x{classes}: way {which} differs from tensor_cross_entropy")


def error_cases(name, format):
    for number in range(15):
        n, style = draw.choice([1, 7, 64, 515, 4099]), STYLES[number % 5]
        if style == "ends" and format in (1, 3):
            style = "far"  # squares beyond double are no numbers
        x = Tensor(format, [n], numbers(format, n, style))
        kind = [format, F64, F32][number % 3]
        t = Tensor(kind, [n], numbers(format if kind == format else 2, n, style))
        d = [Fraction(a) - Fraction(b) for a, b in zip(x.values(), t.values())]
        delta = struct.unpack("f", struct.pack("f", draw.choice([1.0, 0.3, 100.0])))[0]
        for huber in False, True:
            what = f"{name} {'huber' if huber else 'squared error'} {number} {n} {style}"
            loss, dx = Tensor(F64, [1]), Tensor(format, [n])
            call("huber" if huber else "squared_error", loss, dx, x, t, scale=16.0, delta=delta if huber else None)
            D = Fraction(delta)
            if huber:
                exact = sum(v * v / 2 if abs(v) <= D else D * (abs(v) - D / 2) for v in d) / n
                slopes = [max(-D, min(D, v)) for v in d]
            else:
                exact, slopes = sum(v * v for v in d) / n, [2 * v for v in d]
            expect_loss(what, loss, decimal(exact), 0)
            gradient = [decimal(v * 16 / n) for v in slopes]
            if format > 3:
                expect_gradient(what, dx, gradient, 0)
            else:
                top = Decimal({1: 3.4e38, 2: 65504.0, 3: 3.38e38}[format])
                finite = [(y, v) for y, v in zip(dx.values(), gradient) if abs(v) <= top]
                for y, v in finite:
                    unit = Decimal(max(step(format, y), step(format, float(v))))
                    check(abs(Decimal(y) - v) <= unit * Decimal("0.5000001"), f"{what}: {y}, expected {v:.12e}")


def critic_cases(name, format):
    for number in range(12):
        rows, columns = draw.choice([1, 2, 9, 64]), draw.choice([1, 1, 5, 600])
        what = f"{name} critic {number} {rows}x{columns}"
        x = Tensor(format, [rows, columns], numbers(format, rows * columns, "ends" if number % 4 == 3 and format > 3 else "usual"))
        v = [Fraction(a) for a in x.values()]
        labels = [draw.choice([0, 1, -5]) for _ in range(rows)] if number % 3 else [1] * rows
        loss, dx = Tensor(F64, [1]), Tensor(format, [rows, columns])
        call("wasserstein", loss, dx, x, Tensor(I32, [rows], labels), scale=32.0, how=Options(ignored_label=-5, ignores=True))
        count = {k: columns * labels.count(k) for k in (0, 1)}
        total = {k: sum((sum(v[i * columns:(i + 1) * columns]) for i in range(rows) if labels[i] == k), Fraction(0)) for k in (0, 1)}
        mean = {k: total[k] / count[k] if count[k] else Fraction(0) for k in (0, 1)}
        size = max(abs(a) for a in v)
        expect_loss(what, loss, decimal(mean[0] - mean[1]), size)
        slopes = {k: decimal(Fraction(32 if k == 0 else -32, count[k])) if count.get(k) else Decimal(0) for k in (0, 1)}
        expect_gradient(what, dx, [slopes.get(labels[i // columns], Decimal(0)) for i in range(rows * columns)], 0)
        if format > 3 and count[0] == 0 and count[1]:  # one exact sum, rounded once, then divided
            check(loss.values()[0] == -(float(total[1]) / count[1]), f"{what}: loss {loss.values()[0]!r}")


def differences():
    """fp32: (loss(x + h) - loss(x - h)) / 2h against dx; losses are doubles, so the difference is exact to 1e-13 / h,
    and the third derivatives of these losses are below 1 a row, which leaves h^2 / 6 of it. Points near Huber's kink
    are avoided."""
    h, rows, classes = 2.0 ** -8, 5, 7
    bound = 2e-5
    x0 = [round(draw.uniform(-2, 2) * 64) / 64 for _ in range(rows * classes)]
    labels = Tensor(I32, [rows], [draw.choice([0, 3, 6, -1]) for _ in range(rows - 1)] + [2])
    critic = Tensor(I32, [rows], [0, 1, -1, 1, 0])
    t = Tensor(F64, [rows, classes], [draw.random() for _ in range(rows * classes)])
    far = Tensor(F64, [rows, classes], [v + draw.choice([0.3, -0.3, 2.0, -2.0]) for v in x0])
    w = Tensor(F64, [classes], [draw.random() for _ in range(classes)])
    how = Options(class_weights=w.t, label_smoothing=0.2, ignored_label=-1, ignores=True)
    ways = [("cross_entropy", lambda l, d, x: call("cross_entropy", l, d, None, None, x, labels, how=how)),
            ("targets", lambda l, d, x: call("cross_entropy_targets", l, d, None, x, t, how=Options(class_weights=w.t))),
            ("squared_error", lambda l, d, x: call("squared_error", l, d, x, t)),
            ("huber", lambda l, d, x: call("huber", l, d, x, far, delta=1.0)),
            ("wasserstein", lambda l, d, x: call("wasserstein", l, d, x, critic, how=Options(ignored_label=-1, ignores=True)))]
    for name, way in ways:
        dx = Tensor(1, [rows, classes])
        way(Tensor(F64, [1]), dx, Tensor(1, [rows, classes], x0))
        for i, slope in enumerate(dx.values()):
            sides = []
            for sign in 1, -1:
                x = list(x0)
                x[i] += sign * h
                loss = Tensor(F64, [1])
                way(loss, None, Tensor(1, [rows, classes], x))
                sides.append(loss.values()[0])
            found = (sides[0] - sides[1]) / (2 * h)
            check(abs(found - slope) <= bound, f"{name}: slope {i} is {slope}, by differences {found}")


def unusual(name, format):
    inf, nan = math.inf, math.nan
    loss, dx = Tensor(F64, [1]), Tensor(format, [2, 3])
    x = Tensor(format, [2, 3], [nan, inf, 1, -inf, 2, 3])
    ignore = Options(ignored_label=-1, ignores=True)
    call("cross_entropy", loss, dx, None, None, x, Tensor(I32, [2], [-1, 2]), how=ignore)
    exact = math.log(1 + math.exp(-1))
    check(abs(loss.values()[0] - exact) < 1e-15, f"{name}: -Inf without a share: loss {loss.values()[0]}")
    check(dx.values()[:4] == [0, 0, 0, 0] and dx.values()[4] > 0 > dx.values()[5], f"{name}: gradient {dx.values()}")
    call("cross_entropy", loss, dx, None, None, x, Tensor(I32, [2], [-1, -1]), how=ignore)
    check(loss.values() == [0] and dx.values() == [0] * 6, f"{name}: all ignored: {loss.values()} {dx.values()}")
    smooth = Options(label_smoothing=0.5, ignored_label=-1, ignores=True)
    call("cross_entropy", loss, dx, None, None, x, Tensor(I32, [2], [-1, -1]), how=smooth)
    check(loss.values() == [0] and dx.values() == [0] * 6, f"{name}: all ignored, smooth: {loss.values()} {dx.values()}")
    call("cross_entropy", loss, dx, None, None, x, Tensor(I32, [2], [-1, 2]), how=smooth)
    check(loss.values() == [inf], f"{name}: -Inf with a share: loss {loss.values()}")
    call("cross_entropy", loss, dx, None, None, x, Tensor(I32, [2], [0, 2]))
    check(math.isnan(loss.values()[0]), f"{name}: NaN: loss {loss.values()}")
    zeros = Tensor(F64, [2, 3], [0.0] * 6)
    call("squared_error", loss, dx, x, zeros)
    check(math.isnan(loss.values()[0]) and math.isnan(dx.values()[0]) and dx.values()[1] == inf, f"{name}: {dx.values()}")
    call("huber", loss, dx, x, zeros, delta=1.0)
    check(math.isnan(loss.values()[0]) and math.isnan(dx.values()[0]) and dx.values()[1] > 0 > dx.values()[3], f"{name}: {dx.values()}")


def refusals():
    x, loss, dx = Tensor(4, [2, 3]), Tensor(F64, [1]), Tensor(4, [2, 3])
    y, t = Tensor(I32, [2], [0, 1]), Tensor(F64, [2, 3])
    two, i3 = Tensor(F64, [2]), Tensor(I32, [3])

    def refused(words, status, name, *arguments, **more):
        said = call(name, *arguments, wants=status, **more)
        check(words in said, f"{name}: '{said}', expected '{words}'")
    entropy_arguments = (loss, dx, None, None, x)
    refused("label 1 is 5, expected 0 to 2", 1, "cross_entropy", *entropy_arguments, Tensor(I32, [2], [0, 5]), how=Options(label_smoothing=0.1))
    refused("label 0 is -1, expected 0 to 2", 1, "cross_entropy", *entropy_arguments, Tensor(I32, [2], [-1, 0]),
            how=Options(ignored_label=7, ignores=True))
    for smoothing in -0.5, 1.5, math.nan:
        refused("label_smoothing is", 1, "cross_entropy", *entropy_arguments, y, how=Options(label_smoothing=smoothing))
    refused("label_smoothing is 0.1, expected 0", 1, "squared_error", loss, dx, x, t, how=Options(label_smoothing=0.1))
    refused("ignores label 3", 1, "squared_error", loss, dx, x, t, how=Options(ignored_label=3, ignores=True))
    refused("class_weights is f64 2, expected f64 with 3 elements", 2, "cross_entropy", *entropy_arguments, y, how=Options(class_weights=two.t))
    refused("labels is i32 3, expected i32 with 2 elements", 2, "cross_entropy", *entropy_arguments, i3)
    refused("targets is fp16, expected flex16+5, f64 or f32", 3, "squared_error", loss, dx, x, Tensor(2, [2, 3]))
    refused("targets is 2, expected 2x3", 2, "squared_error", loss, dx, x, two)
    refused("targets is NULL", 1, "huber", loss, dx, x, None, delta=1.0)
    for delta in 0.0, -1.0, math.inf, math.nan:
        refused("delta is", 1, "huber", loss, dx, x, t, delta=delta)
    refused("gradient_scale is nan", 1, "wasserstein", loss, dx, x, y, scale=math.nan)
    refused("label 1 is 2, expected 0 to 1", 1, "wasserstein", loss, dx, x, Tensor(I32, [2], [0, 2]))
    refused("loss and gradient_scale are the same tensor", 1, "wasserstein", loss, dx, x, y, how=Options(gradient_scale_tensor=loss.t))
    refused("dx is fp32, x is flex16+5", 3, "squared_error", loss, Tensor(1, [2, 3]), x, t)
    refused("x is NULL", 1, "squared_error", loss, dx, None, t)
    at = Tensor(F64, [1], [math.inf])
    for name, target in ("squared_error", t), ("wasserstein", y):
        before = dx.values()
        refused(f"{name}: gradient_scale is inf, expected a finite number", 1, name, loss, dx, x, target, how=Options(gradient_scale_tensor=at.t))
        check(dx.values() == before, f"{name}: dx was written")


def clipped(name, format):
    """The wide part is clipped and otherwise unchanged; the elements are its rounding."""
    for wide in (False, True):
        t = Tensor(format, [500])
        if wide and format != 1:
            check(f("tensor_keep_wide")(t.t) == 0, error())
        values = [draw.gauss(0, 0.01) for _ in range(500)]
        check(f("tensor_load_f64")(t.t, (ctypes.c_double * 500)(*values), ctypes.c_int64(500)) == 0, error())

        def full():
            out = (ctypes.c_double * 500)()
            store = "tensor_store_wide_f64" if wide and format != 1 else "tensor_store_f64"
            check(f(store)(t.t, out, ctypes.c_int64(500)) == 0, error())
            return [Fraction(v) for v in out]
        before, e, limit = full(), t.e(), Fraction(struct.unpack("f", struct.pack("f", 0.01))[0])
        check(f("tensor_clip_weight")(t.t, ctypes.c_float(0.01)) == 0, error())
        after, moved = full(), t.e() != e
        for i, (a, b) in enumerate(zip(before, after)):
            want = max(-limit, min(limit, a))
            if format > 3:
                unit = Fraction(2) ** -(t.e() + (16 if wide else 0))
                want = round(want / unit) * unit
            elif format != 1 and not wide:
                continue_at = Fraction(step(format, float(want)))
                want = round(want / continue_at) * continue_at
            check(b == want, f"{name} clipped{' wide' if wide else ''}: {i} is {float(b)}, expected {float(want)}, exponent moved {moved}")
        inside = sum(a == b for a, b in zip(before, after) if abs(a) < limit)
        check(moved or inside == sum(abs(a) < limit for a in before), f"{name}: {inside} kept")
    t = Tensor(format, [2], [1.0, 2.0])
    for limit in -1.0, math.nan, math.inf:
        check(f("tensor_clip_weight")(t.t, ctypes.c_float(limit)) == 1 and b"expected 0 or more" in error(), f"limit {limit}: {error()}")


for name, format in FORMATS.items():
    entropy_cases(name, format)
    target_cases(name, format)
    same_bits(name, format)
    error_cases(name, format)
    critic_cases(name, format)
    clipped(name, format)
    if format <= 3:
        unusual(name, format)
differences()
refusals()
print(f"{checks} checks, {failures} failures")
sys.exit(failures > 0)
