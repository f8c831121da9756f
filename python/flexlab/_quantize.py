"""What values become in a format, as a pure function."""
import collections
import operator

import numpy as np

from . import _core, _errors, _library as c
from ._tensor import empty, format_id, on_host, tensor

Counts = collections.namedtuple("Counts", "saturated flushed nonfinite blocks bits")


def quantize(x, format, rounding="nearest", *, axis=-1, seed=0, counts=False):
    """The values that x has in a format: float32, of the same shape.

    format: a format of tensors ("flex16+5", "fp16", "e4m3fn", "flex8+5", ...: a shared exponent is that of the exact
    maximum), blocks along `axis` ("mx:int8", "mx:e4m3fn:rceil", "nvfp4", ...), or an integer element ("int8", "int4":
    each value by itself). rounding: "nearest" (ties to even), or "stochastic" of all but integer elements, under the
    same exponents, whose draws follow from `seed`. With counts=True also (saturated, flushed, nonfinite, blocks, bits).
    x is not changed; what float32 cannot hold is rounded to it first."""
    if not isinstance(format, str):
        raise TypeError(f"a format is a text such as 'flex16+5', not {format!r}")
    if rounding not in ("nearest", "stochastic"):
        raise ValueError(f"rounding {rounding!r}, expected 'nearest' or 'stochastic'")
    if rounding == "stochastic":
        if not format.startswith(("mx:", "nvfp4", "hbfp:", "channel:")):
            return stochastic(x, format, seed, counts)
        format += ":stochastic"
    array = floats(x)
    shape = array.shape or (1,)
    if not array.size:
        return (array, Counts(0, 0, 0, 0, 0.0)) if counts else array
    if not hasattr(axis, "__index__") or not -len(shape) <= operator.index(axis) < len(shape):
        raise ValueError(f"axis {axis!r}, expected one of {len(shape)} dimensions")
    told = c.tensor_quantised()
    flat = array.reshape(-1)
    c.tensor_quantise_f32(flat, flat, len(shape), np.array(shape, np.int64), operator.index(axis) % len(shape), format, seed, told)
    return (array, Counts(*(getattr(told, name) for name in Counts._fields))) if counts else array


def floats(x):
    """A copy of the values as float32. Numbers alone are values: of a text, or of None, NumPy would make some."""
    array = np.asarray(on_host(x))
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        raise TypeError(f"values of type {array.dtype}, expected numbers")
    with np.errstate(over="ignore"):
        return np.array(array, np.float32, order="C")


def stochastic(x, format, seed, counts):
    """Stochastic rounding in a format of tensors: a write of the values by the draws of (seed, element), under the exponent of a
    load. What a load refuses is refused, and zeros are those that it has: a sum of products loses their sign."""
    if format.startswith("int"):
        raise _errors.ArgumentError(f"{format!r}: an element by itself is rounded to nearest only, expected a format of tensors or of blocks")
    array = floats(x)
    if not array.size:
        format_id(format)
        return (array, Counts(0, 0, 0, 0, 0.0)) if counts else array
    loaded, y = tensor(array.reshape(-1, 1), format), empty((array.size, 1), format)
    if loaded.exponent is not None:
        y.predictor = "fixed"
        y.declare_exponent(loaded.exponent)
    y.set_rounding("stochastic", seed)
    _core.matmul(tensor(array.reshape(-1, 1), "fp32"), tensor([[1.0]], "fp32"), out=y)  # loads and conversions round to nearest
    total = y.statistics["last"]
    told = Counts(total["saturated"], total["flushed"], total["nonfinite"], 0, float(c.tensor_format_bits(y._id)))
    values = np.where(array.reshape(-1, 1), y.numpy(), loaded.numpy()).reshape(array.shape)
    return (values, told) if counts else values


quantise = quantize


def formats():
    """The formats of this build by name, with their bits. Others follow from their parameters (flexN+E, dfpN, eXmY)."""
    result, i = {}, 0
    while found := c.tensor_format_at(i):
        result[c.tensor_format_name(found)] = c.tensor_format_bits(found)
        i += 1
    return result
