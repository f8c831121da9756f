"""Values rounded to a format inside a torch graph: what QPyTorch calls quantisation.

Products of quantised values are torch's, in float32: this simulates a format's storage, not its arithmetic, which the modules
of flexlab.torch have."""
import math

import torch

from .._quantize import quantize as quantize_values
from .._tensor import format_id
from ._carriers import LOCK, check


def draw():
    """A key of stochastic rounding from torch's generator: torch.manual_seed repeats it."""
    return int(torch.randint(0, 2**31, (2,)).prod())


def rounded(x, format, rounding, dim, key):
    """A new tensor with the values of x in a format: those of flexlab.quantize."""
    check(x, "x")
    if not isinstance(format, str):
        raise TypeError(f"a format is a text such as 'e4m3fn', or a FloatingPoint, FixedPoint or BlockFloatingPoint, not "
                        f"{format!r}")
    draws = rounding == "stochastic" or ":stochastic" in format or ":hadamard" in format
    if rounding == "stochastic" and not bool(torch.isfinite(x).all()):
        raise ValueError("x has NaN or Inf, expected finite values, for stochastic rounding")
    with LOCK:
        made = quantize_values(x, format, rounding, axis=dim, seed=key if key is not None else draw() if draws else 0)
    return torch.from_numpy(made)


class Quantized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_rule = backward
        return forward(x)

    @staticmethod
    def backward(ctx, dy):
        return dy if ctx.backward_rule is None else ctx.backward_rule(dy), None, None


def rule(format, rounding, dim, key):
    if isinstance(format, (FloatingPoint, FixedPoint, BlockFloatingPoint)):
        return lambda x: format.apply(x, rounding, key)
    return lambda x: rounded(x, format, rounding, dim, key)


def quantize(x, format, rounding="nearest", *, dim=-1, key=None, backward=None, backward_rounding="nearest"):
    """The values of x (float32) in a format, as float32. The gradient passes as it is, or with `backward` rounded to that
    format.

    format: one of tensors ("flex16+5", "dfp8": one exponent for all of x, from its largest value), an element ("e4m3fn",
    "int8"), blocks along `dim` ("mx:e4m3fn", "hbfp:int8/64"), or a FloatingPoint, FixedPoint, BlockFloatingPoint. rounding:
    "nearest", ties to even, or "stochastic", with draws from `key`, or from torch's generator if there is none."""
    back = None if backward is None else rule(backward, backward_rounding, dim, key)
    return Quantized.apply(x, rule(format, rounding, dim, key), back)


def quantizer(forward_number=None, backward_number=None, forward_rounding="stochastic", backward_rounding="stochastic", *,
              dim=-1):
    """A function that quantises its argument forward and its gradient backward; None: as it is. As QPyTorch's."""
    forward = (lambda x: x.clone()) if forward_number is None else rule(forward_number, forward_rounding, dim, None)
    backward = None if backward_number is None else rule(backward_number, backward_rounding, dim, None)
    return lambda x: Quantized.apply(x, forward, backward)


class Quantizer(torch.nn.Module):
    """quantizer as a module."""

    def __init__(self, forward_number=None, backward_number=None, forward_rounding="stochastic",
                 backward_rounding="stochastic"):
        super().__init__()
        self.rule = quantizer(forward_number, backward_number, forward_rounding, backward_rounding)

    def forward(self, x):
        return self.rule(x)


def whole(name, value, least, most):
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}, expected an int, {least} ... {most}")


class FloatingPoint:
    """A float of `exp` exponent and `man` fraction bits with subnormals, which saturates; as in QPyTorch, no code is kept for
    Inf and NaN, so that numbers reach 2^(2^(exp - 1) + 1), except for 8 exponent bits, whose range is that of float32."""

    def __init__(self, exp, man):
        whole("exp", exp, 2, 8), whole("man", man, 1, 15)
        self.exp, self.man, self.format = exp, man, f"e{exp}m{man}sat"
        format_id(self.format)
        self.doubled = 1 + exp + man > 6 and exp < 8  # elements of at most 6 bits have no Inf and NaN anyway

    def apply(self, x, rounding, key=None):
        """The grid of eXmY repeats from binade to binade: halves of large values have one binade more."""
        check(x, "x")
        large = x.detach().abs() >= 2
        y = rounded(torch.where(large, x.detach() / 2, x.detach()) if self.doubled else x, self.format, rounding, -1, key)
        return torch.where(large, 2 * y, y) if self.doubled else y

    def __repr__(self):
        return f"FloatingPoint(exp={self.exp}, man={self.man})"


class FixedPoint:
    """A fixed point number of `wl` bits, `fl` of them behind the point: multiples of 2^-fl from -2^(wl-fl-1) to
    2^(wl-fl-1) - 2^-fl; symmetric: without the least. clamp=False: without bounds."""

    def __init__(self, wl, fl, clamp=True, symmetric=False):
        whole("wl", wl, 1, 24), whole("fl", fl, -64, 64)
        self.wl, self.fl, self.clamp, self.symmetric = wl, fl, clamp, symmetric

    def apply(self, x, rounding, key=None):
        """In double, where every step but the rounding is exact."""
        check(x, "x")
        if rounding not in ("nearest", "stochastic"):
            raise ValueError(f"rounding is {rounding!r}, expected 'nearest' or 'stochastic'")
        scaled = torch.ldexp(x.detach().double(), torch.tensor(self.fl))
        if rounding == "nearest":
            scaled = torch.round(scaled)
        else:
            generator = None if key is None else torch.Generator().manual_seed(key)
            scaled = torch.floor(scaled + torch.rand(scaled.shape, dtype=torch.float64, generator=generator))
        if self.clamp:
            most = 2**(self.wl - 1)
            scaled = scaled.clamp(-(most - self.symmetric), most - 1)
        return torch.ldexp(scaled, torch.tensor(-self.fl)).float()

    def __repr__(self):
        return f"FixedPoint(wl={self.wl}, fl={self.fl}, clamp={self.clamp}, symmetric={self.symmetric})"


class BlockFloatingPoint:
    """Mantissas of `wl` bits, with the sign, under one exponent, that of the largest magnitude, which saturates where it would
    be rounded up to 2^(wl - 1) steps. dim -1: one exponent for the tensor; else one for each index of that dimension."""

    def __init__(self, wl, dim=-1):
        whole("wl", wl, 4, 16)
        self.wl, self.dim = wl, dim

    def apply(self, x, rounding, key=None):
        check(x, "x")
        x = x.detach()
        if self.dim == -1:
            return self.one(x, rounding, key)
        keys = [None if key is None else key + i for i in range(x.shape[self.dim])]
        return torch.stack([self.one(one, rounding, k) for one, k in zip(x.unbind(self.dim), keys)], self.dim)

    def one(self, x, rounding, key):
        """By dfpN, whose exponent is that of the largest value after rounding: the clamp keeps it to that before."""
        most = float(x.abs().max()) if x.numel() else 0.0
        if most and math.isfinite(most):
            limit = math.ldexp(2 ** (self.wl - 1) - 1, math.frexp(most)[1] - self.wl + 1)
            x = x.clamp(-limit, limit)
        return rounded(x, f"dfp{self.wl}", rounding, -1, key)

    def __repr__(self):
        return f"BlockFloatingPoint(wl={self.wl}, dim={self.dim})"


def float_quantize(x, exp, man, rounding="stochastic"):
    """QPyTorch's float_quantize; without a gradient, as there."""
    return FloatingPoint(exp, man).apply(x, rounding)


def fixed_point_quantize(x, wl, fl, clamp=True, symmetric=False, rounding="stochastic"):
    """QPyTorch's fixed_point_quantize."""
    return FixedPoint(wl, fl, clamp, symmetric).apply(x, rounding)


def block_quantize(x, wl, dim=-1, rounding="stochastic"):
    """QPyTorch's block_quantize."""
    return BlockFloatingPoint(wl, dim).apply(x, rounding)
