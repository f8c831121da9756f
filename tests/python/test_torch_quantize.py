"""quantize and what has QPyTorch's names: values against exact witnesses, gradients, stochastic rounding, bad input."""
import math
from fractions import Fraction

from torch_tests import main, need_torch, raises

need_torch()

import numpy as np
import torch

import flexlab as fl
import flexlab.torch as ft


def some(*shape, seed=0, spread=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * torch.exp2(torch.randint(-spread, spread, shape, generator=generator).float())


def float_neighbours(x, exp, man):
    """The greatest number not above |x| and the least above it, of floats that saturate; as Fractions."""
    size, bias = abs(Fraction(x)), 2 ** (exp - 1) - 1
    most = Fraction(2 ** (man + 1) - 1, 2 ** man) * Fraction(2) ** (bias + (exp < 8))
    if size >= most:
        return most, most
    power = max(1 - bias, math.frexp(float(size))[1] - 1 if size else 1 - bias)
    step = Fraction(2) ** (power - man)
    low = size // step * step
    return low, low + step


def test_floats():
    """Every value to its nearest, ties to even, saturated, subnormals included."""
    for exp, man in ((4, 3), (5, 2), (5, 10), (6, 5), (3, 4), (8, 7), (2, 5), (2, 3), (3, 2)):
        x = torch.cat([some(400, seed=exp), torch.tensor([0.0, 1e-9, -3e38, 2.0 ** -14, 1.0625, 448.0, 480.0, 500.0, 1.984375, 3.96875])])
        y = ft.float_quantize(x, exp, man, rounding="nearest")
        for a, b in zip(x.tolist(), y.tolist()):
            low, high = float_neighbours(a, exp, man)
            size = abs(Fraction(a))
            down, up = size - low, high - size
            even = (low / (high - low)) % 2 == 0 if high > low else True
            expected = low if low == high or down < up or down == up and even else high
            assert abs(Fraction(b)) == expected and (b == 0 or (b > 0) == (a > 0)), (exp, man, a, b)


def test_stochastic():
    """Only the two neighbours, in proportion, for floats, mantissas under an exponent, and blocks; repeated by a seed."""
    x = torch.full((4096,), 1 + 0.3 / 8)
    for number, low, step in ((ft.FloatingPoint(4, 3), 1.0, 0.125), ("e4m3fn", 1.0, 0.125), (ft.FixedPoint(8, 3), 1.0, 0.125),
                              (ft.BlockFloatingPoint(5), 1.0, 0.125), ("dfp5", 1.0, 0.125), ("mx:int5", 1.0, 0.125)):
        torch.manual_seed(3)
        y = ft.quantize(x, number, "stochastic")
        share = float((y == low + step).float().mean())
        assert set(y.tolist()) == {low, low + step} and abs(share - 0.3) < 0.035, (number, share, set(y.tolist()))
        torch.manual_seed(3)
        assert torch.equal(y, ft.quantize(x, number, "stochastic"))
        assert not torch.equal(y, ft.quantize(x, number, "stochastic"))
        assert torch.equal(ft.quantize(x, number, "stochastic", key=5), ft.quantize(x, number, "stochastic", key=5))


def test_fixed_point():
    x = torch.cat([some(300), torch.tensor([100.0, -100.0, 0.0625, 0.1875, -0.0625])])
    for wl, fl_, symmetric in ((8, 3, False), (8, 3, True), (4, 0, False), (12, 10, False)):
        y = ft.fixed_point_quantize(x, wl, fl_, symmetric=symmetric, rounding="nearest")
        for a, b in zip(x.tolist(), y.tolist()):
            n = round(Fraction(a) * 2 ** fl_)  # ties to even
            n = min(max(n, -2 ** (wl - 1) + symmetric), 2 ** (wl - 1) - 1)
            assert Fraction(b) == Fraction(n, 2 ** fl_)
    assert ft.fixed_point_quantize(torch.tensor([1000.3]), 8, 0, clamp=False, rounding="nearest").item() == 1000


def test_blocks():
    """One exponent for all, or one for each index of a dimension: that of the largest magnitude."""
    x = some(3, 5, 7)
    x[0, 2, 3] = 127.9
    x[:, 4, 0] = 15.9
    for dim, parts in ((-1, [x]), (1, x.unbind(1)), (0, x.unbind(0))):
        y = ft.block_quantize(x, 6, dim, rounding="nearest")
        for given, got in zip(parts, [y] if dim == -1 else y.unbind(dim)):
            step = Fraction(2) ** (math.frexp(float(given.abs().max()))[1] - 5)
            for a, b in zip(given.reshape(-1).tolist(), got.reshape(-1).tolist()):
                n = min(max(round(Fraction(a) / step), -31), 31)
                assert Fraction(b) == n * step, (dim, a, b)


def test_formats():
    """The values that a tensor of flexlab has, and those of blocks along a dimension."""
    x = some(6, 40)
    for format in ("flex16+5", "fp16", "bf16", "dfp8", "e3m2"):
        assert np.array_equal(ft.quantize(x, format).numpy(), fl.tensor(x.numpy(), format).numpy(), equal_nan=True), format
    a = ft.quantize(x, "mx:int8", dim=0)
    assert torch.equal(a, ft.quantize(x.t().contiguous(), "mx:int8").t())
    assert torch.equal(ft.quantize(x.t(), "fp16"), ft.quantize(x, "fp16").t())
    assert torch.equal(ft.quantize(torch.tensor(1.03), "e4m3fn"), torch.tensor(1.0))


def test_gradients():
    x = some(50).requires_grad_()
    dy = some(50, seed=4)
    assert torch.equal(torch.autograd.grad(ft.quantize(x, "e4m3fn"), x, dy)[0], dy)
    assert torch.equal(torch.autograd.grad(ft.quantize(x, "e4m3fn", backward="e5m2"), x, dy)[0], ft.quantize(dy, "e5m2"))
    both = ft.quantizer(ft.FloatingPoint(4, 3), ft.BlockFloatingPoint(8), "nearest", "nearest")
    y = both(x)
    assert torch.equal(y, ft.float_quantize(x, 4, 3, "nearest"))
    assert torch.equal(torch.autograd.grad(y, x, dy)[0], ft.block_quantize(dy, 8, rounding="nearest"))
    only = ft.Quantizer(backward_number="fp16", backward_rounding="nearest")
    y = only(x)
    assert torch.equal(y, x) and torch.equal(torch.autograd.grad(y, x, dy)[0], ft.quantize(dy, "fp16"))


def test_bad_input():
    x = some(4)
    raises(TypeError, "torch.float16", ft.quantize, x.half(), "fp16")
    raises(ValueError, "'up'", ft.quantize, x, "fp16", "up")
    raises(ValueError, "e9m", ft.quantize, x, "e9m9")
    raises(TypeError, "a format is a text", ft.quantize, x, 7)
    raises(ValueError, "f64", ft.quantize, x, "f64")
    raises(ValueError, "exp is 9", ft.FloatingPoint, 9, 3)
    raises(ValueError, "wl is 30", ft.BlockFloatingPoint, 30)
    raises(ValueError, "axis 3", ft.quantize, x, "mx:int8", dim=3)
    raises(ValueError, "NaN", ft.quantize, torch.tensor([float("nan")]), "dfp8", "stochastic")
    assert ft.quantize(torch.empty(0), "fp16").shape == (0,)


if __name__ == "__main__":
    main(globals())
