#!/usr/bin/env python3
"""Training steps in shards, computed again in integers and fractions, shard by shard: products, sums, means, the loss's
gradient, the sum of gradients over shards, momentum, wide parts and elements of weights, running statistics; under dfp16
the exponents too. Every result has to be the exact one, rounded once. What contains a square root is compared with the
real number, to a little more than half a unit. Nothing of the library takes part but the numbers that it wrote."""
import os
import sys
from fractions import Fraction

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import LONG, check, run  # noqa: E402
import flexlab as fl  # noqa: E402

SIDE, CHANNELS, FILTERS, OUTPUTS, EPSILON = 5, 2, 4, 4, 1e-5
TOPS = {"flex16+5": 32767, "dfp16": 32767, "flex8+5": 127, "flex12+5": 2047}


class Numbers:
    """A tensor: whole mantissas and their exponent."""

    def __init__(self, values, e):
        scaled = np.ldexp(values, e)
        self.m, self.e = scaled.astype(np.int64), e
        check(np.array_equal(self.m, scaled), "elements are no mantissas")

    def real(self):
        return exact(self.m, -self.e)


def exact(m, shift):
    """m 2^shift as fractions."""
    scale = Fraction(2) ** shift
    return np.vectorize(lambda one: int(one) * scale, otypes=[object])(m)


def rounded(value, e, top):
    """To the nearest multiple of 2^-e, ties to even, within +-top."""
    return max(-top, min(top, round(value * Fraction(2) ** e)))  # round() of a fraction is to even


def needed(values, top):
    """The largest exponent at which all values fit: that of the predictor `current`."""
    most = max(abs(value) for value in values.flat)
    if not most:
        return None
    e = 200
    while round(most * Fraction(2) ** e) > top:
        e -= 1
    return e


def square_root(value):
    """To 2^-150."""
    shift = 300
    numerator = (value.numerator << 2 * shift) // value.denominator
    root = 1 << (numerator.bit_length() // 2 + 1)
    while True:
        better = (root + numerator // root) // 2
        if better >= root:
            return Fraction(root, 1 << shift)
        root = better


class Step:
    """What a step of a network wrote, and the checks of it."""

    def __init__(self, what, variant, net):
        self.what, self.top, self.current, self.seen = what, TOPS[variant], variant == "dfp16", {}
        net.watch(self.see)

    def see(self, t):
        self.seen[t.name] = Numbers(t.numpy("float64"), t.exponent)

    def __getitem__(self, name):
        return self.seen[name]

    def exponent(self, name, values):
        e = needed(values, self.top) if self.current else None
        check(e is None or e == self[name].e, self.what, name, f"exponent {self[name].e}, expected {e}")

    def is_exact(self, name, values):
        found = self[name]
        expected = np.vectorize(lambda value: rounded(value, found.e, self.top), otypes=[np.int64])(values)
        wrong = np.argwhere(found.m != expected)
        check(not len(wrong), self.what, name, len(wrong), "elements, first", wrong[:1],
              found.m[tuple(wrong[0])] if len(wrong) else "", expected[tuple(wrong[0])] if len(wrong) else "")
        self.exponent(name, values)

    def is_near(self, name, values):
        """To half a unit, and the error of coefficients of 31 bits."""
        found = self[name]
        scaled = np.vectorize(lambda value: max(-self.top, min(self.top, value * Fraction(2) ** found.e)), otypes=[object])(values)
        worst = max(abs(value - int(m)) for value, m in zip(scaled.flat, found.m.flat))
        check(worst <= 0.5 + 1 / 256, self.what, name, "is off by", float(worst))


def padded(x):
    return np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))


def windows(x):
    """[N, H, W, 3, 3, C] of a padded image."""
    return np.lib.stride_tricks.sliding_window_view(padded(x), (3, 3), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)


def build(variant, batch, shards, together):
    net = fl.nn.Network(variant, batch=batch, shards=shards, momentum=0.9, weight_decay=1e-3, loss="squared_error",
                        batchnorm_global=together)
    x = net.conv2d("c1", net.input(SIDE, SIDE, CHANNELS), FILTERS, 3, padding=1)
    x = net.batchnorm("b1", x, relu=True, epsilon=EPSILON)
    return net.compile(net.linear("fc", net.avgpool_global("p", x), OUTPUTS))


def moments(parts):
    """Mean and variance of each channel of all rows of the parts, in fractions, and the number of rows."""
    finest = max(x.e for x in parts)
    rows = np.concatenate([(x.m << (finest - x.e)).reshape(-1, FILTERS) for x in parts]).astype(object)
    n, first, second = len(rows), rows.sum(0), (rows * rows).sum(0)
    mean = [Fraction(s, n) / Fraction(2) ** finest for s in first]
    numerator = [(n * q - s * s) / Fraction(4) ** finest for s, q in zip(first, second)]
    return mean, numerator, n


def running(parts, before, together):
    """The running statistics: in double what the documentation says is in double, and rounded once what it says is exact."""
    groups = [parts] if together else [[one] for one in parts]
    means, variances = [], []
    for group in groups:
        mean, numerator, n = moments(group)
        means.append([float(one) for one in mean])
        variances.append([float(one) / float(n * n) for one in numerator])
    unbiased = n / (n - 1)
    result = []
    for k, each in enumerate((means, variances)):
        of_step = [float(sum(Fraction(group[c]) for group in each) / len(each)) for c in range(FILTERS)]
        result.append([r + 0.1 * ((one * unbiased if k else one) - r) for r, one in zip(before[k], of_step)])
    return result


def check_shard(step, s, shards, x, targets, weights, moments_of, total_of):
    """One shard; weights: as the step read them. Returns the gradient of its normalisation, in fractions."""
    def at(name):
        return step[f"{name}.shard{s}" if shards > 1 else name]

    def exactly(name, values):
        step.is_exact(f"{name}.shard{s}" if shards > 1 else name, values)

    def nearly(name, values):
        step.is_near(f"{name}.shard{s}" if shards > 1 else name, values)
    w, gamma, beta, matrix, bias = weights
    exactly("input", np.vectorize(Fraction, otypes=[object])(x.astype(np.float64)))
    image = at("input")
    exactly("c1", exact(np.einsum("nhwrsc,krsc->nhwk", windows(image.m), w.m), -image.e - w.e))
    mean, inverse = moments_of
    y, c1 = at("b1"), at("c1").real()
    normal = (c1 - np.array(mean, object)) * np.array(inverse, object)
    whole = normal * gamma.real() + beta.real()
    nearly("b1", np.vectorize(lambda value: max(value, Fraction(0)), otypes=[object])(whole))
    exactly("p", exact(y.m.sum((1, 2)), -y.e) / (SIDE * SIDE))
    p = at("p")
    exactly("fc.product", exact(p.m @ matrix.m, -p.e - matrix.e))
    exactly("fc", at("fc.product").real() + bias.real())
    scale = (1 / shards) / targets.size
    difference = np.ldexp(at("fc").m.astype(np.float64), -at("fc").e) - targets.astype(np.float64)
    exactly("fc.grad", np.vectorize(lambda d: Fraction(2 * d * scale), otypes=[object])(difference))
    g = at("fc.grad")
    exactly("fc.weight.grad", exact(p.m.T @ g.m, -p.e - g.e))
    exactly("fc.bias.grad", exact(g.m.sum(0), -g.e))
    exactly("p.grad", exact(g.m @ matrix.m.T, -g.e - matrix.e))
    d = at("p.grad")
    exactly("b1.grad", np.broadcast_to((d.real() / (SIDE * SIDE))[:, None, None, :], y.m.shape))
    dy = np.where(y.m > 0, at("b1.grad").m, 0)
    exactly("b1.beta.grad", exact(dy.sum((0, 1, 2)), -at("b1.grad").e))
    real = exact(dy, -at("b1.grad").e)
    nearly("b1.gamma.grad", (real * normal).sum((0, 1, 2)))
    dy_mean, dot_mean = total_of(s)
    nearly("c1.grad", gamma.real() * np.array(inverse, object) * (real - dy_mean - normal * dot_mean))
    g = at("c1.grad")
    exactly("c1.weight.grad", exact(np.einsum("nhwrsc,nhwk->krsc", windows(image.m), g.m), -image.e - g.e))


def gradient_means(step, shards, together, moments_of):
    """Means of dy and of dy times the normalised x, of each shard or of all."""
    dys, dots, rows = [], [], 0
    for s in range(shards):
        def at(name):
            return step[f"{name}.shard{s}" if shards > 1 else name]
        mean, inverse = moments_of[s]
        dy = exact(np.where(at("b1").m > 0, at("b1.grad").m, 0), -at("b1.grad").e)
        normal = (at("c1").real() - np.array(mean, object)) * np.array(inverse, object)
        dys.append(dy.sum((0, 1, 2)))
        dots.append((dy * normal).sum((0, 1, 2)))
        rows += dy.size // FILTERS
    if together:
        return lambda s: (sum(dys) / rows, sum(dots) / rows)
    return lambda s: (dys[s] * shards / rows, dots[s] * shards / rows)


def check_update(step, name, net, before, shards, rate):
    """Sum of gradients, momentum, wide part and elements."""
    if shards > 1:
        step.is_exact(f"{name}.grad", sum(step[f"{name}.grad.shard{s}"].real() for s in range(shards)))
    wide, velocity = before[name]
    mu, decay, rate = (Fraction(float(np.float32(one))) for one in (0.9, 1e-3, rate))
    step.is_exact(f"{name}.momentum", velocity * mu + step[f"{name}.grad"].real() + wide * decay)
    after = wide - step[f"{name}.momentum"].real() * rate
    e, limit = step[name].e, step.top * 65536 + 32767
    step.exponent(name, after)
    found = np.ldexp(net[name].wide(), e + 16)
    expected = np.vectorize(lambda value: float(rounded(value, e + 16, limit)), otypes=[np.float64])(after).reshape(found.shape)
    check(np.array_equal(found, expected), step.what, name, "wide part", found.flat[:2], expected.flat[:2])
    elements = np.vectorize(lambda value: rounded(Fraction(value) / 65536, 0, step.top), otypes=[np.int64])(expected)
    check(np.array_equal(step[name].m.reshape(-1), elements.reshape(-1)), step.what, name, "elements")


NAMES = ("c1.weight", "b1.gamma", "b1.beta", "fc.weight", "fc.bias")


def fractions_of(values):
    return np.vectorize(Fraction, otypes=[object])(values)


def steps(variant, shards, together, own, count):
    net, random = build(variant, shards * own, shards, together), np.random.default_rng(shards)
    for number in range(count):
        x = (random.standard_normal((shards * own, SIDE, SIDE, CHANNELS)) * (1 + np.arange(shards * own))[:, None, None, None]
             ).astype(np.float32)
        targets = random.standard_normal((shards * own, OUTPUTS)).astype(np.float32)
        weights = [Numbers(net[name].numpy("float64"), net[name].exponent) for name in NAMES]
        before = {name: (fractions_of(net[name].wide()), fractions_of(net[f"{name}.momentum"].numpy("float64"))) for name in NAMES}
        statistics = [net.state_dict()[f"b1.running_{kind}"] for kind in ("mean", "variance")]
        step = Step(f"{variant} in {shards}{' together' if together else ''}, step {number + 1}:", variant, net)
        loss, _ = net.step(x, targets=targets, rate=0.05)
        net.watch(None)
        parts = [step[f"c1.shard{s}" if shards > 1 else "c1"] for s in range(shards)]
        normal = []
        for group in ([parts] * shards if together else [[one] for one in parts]):
            mean, numerator, n = moments(group)
            normal.append((mean, [1 / square_root(one / (n * n) + Fraction(EPSILON)) for one in numerator]))
        means = gradient_means(step, shards, together, normal)
        difference = 0
        for s in range(shards):
            own_part = slice(s * own, (s + 1) * own)
            check_shard(step, s, shards, x[own_part], targets[own_part], weights, normal[s], means)
            logits = step[f"fc.shard{s}" if shards > 1 else "fc"].real()
            difference += ((logits - fractions_of(targets[own_part].astype(np.float64))) ** 2).sum()
        check(abs(loss - difference / targets.size) <= 1e-13 * loss, step.what, "loss", loss, float(difference / targets.size))
        for name in NAMES:
            check_update(step, name, net, before, shards, 0.05)
        expected = running(parts, statistics, together)
        for kind, one in zip(("mean", "variance"), expected):
            found = net.state_dict()[f"b1.running_{kind}"]
            check(np.array_equal(found, one), step.what, "running", kind, found, one)


def shared_exponents():
    cases = [("dfp16", 1, False), ("dfp16", 3, False), ("dfp16", 4, True), ("flex16+5", 4, False), ("flex16+5", 3, True),
             ("flex8+5", 2, False)]
    if LONG:
        cases += [(variant, shards, together) for variant in TOPS for shards in (1, 2, 3, 5, 8) for together in (False, True)]
    for variant, shards, together in cases:
        steps(variant, shards, together, 2, 8 if LONG else 3)


run(shared_exponents)
