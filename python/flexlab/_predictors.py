"""Exponent predictors written in Python."""
import ctypes
import functools

import numpy as np

from . import _library as c

added = {}  # what C calls lives as long as the process


class History:
    """What a predictor sees of a tensor: the maxima of its last writes (oldest first), its role, its exponent in force and the
    range of it."""
    __slots__ = ("maxima", "role", "e", "e_min", "e_max", "bits", "overflows")

    def __init__(self, a):
        length, count = len(a.history), min(a.count, len(a.history))
        self.maxima = [a.history[(a.next - count + i) % length] for i in range(count)]
        self.role, self.e, self.e_min, self.e_max = ROLES[a.role], a.e, a.e_min, a.e_max
        self.bits, self.overflows = a.bits or 16, a.overflows


ROLES = ("none", "weight", "activation", "gradient", "weight gradient", "momentum")


def predictor(name):
    """Adds an exponent predictor: a function from a History to the maximum that the next write must hold (0 or less: leave the
    exponent). It must give the same for the same history.

        @fl.predictor("twice-the-last")
        def twice(history):
            return 2 * history.maxima[-1]

        x.predictor = "twice-the-last"

    The name then stands wherever predictors do: x.predictor, "flex16+5:twice-the-last", Network(predictor=...). Each write
    of a tensor calls it once, with the GIL: some 10 microseconds, beside which a step of small tensors shows it and one of
    large tensors does not. An exception leaves the exponent as it is, and the call that wrote raises it. Names last as
    long as the process."""
    if not isinstance(name, str):
        raise TypeError(f"a predictor has a name: @fl.predictor('name'), not {name!r}")

    def add(function):
        if not callable(function):
            raise TypeError(f"a predictor is a function, not {function!r}")
        kind = c.callback_type("autoflex_predict_fn")

        def predict(state, context):
            return float(function(History(state.contents)))
        callback = c.wrapped(kind, predict)
        number = c.autoflex_add(name, callback, None)
        if not number:
            c.check(c.tensor_error_status())
        added[name] = callback
        try:
            function.number = number
        except AttributeError:  # a method, an object without attributes
            pass
        return function
    return add


def replay(maxima, predictor="paper", format="flex16+5"):
    """Runs a predictor over recorded maxima of one tensor, one for each write: the exponents that it would have chosen, and
    whether each write would have saturated: {"e": int array, "saturated": bool array, "wasted": bits above the maximum, or of
    floats the powers of two up to the largest}."""
    from ._tensor import empty, format_id
    maxima = np.asarray(maxima, np.float64)
    if maxima.ndim != 1 or not np.isfinite(maxima).all() or (maxima < 0).any():
        raise ValueError("maxima are a vector of finite numbers, 0 or more")
    t = empty((1,), format, device="cpu")
    bits = c.tensor_format_bits(format_id(format))
    state = c.autoflex()
    if t.exponent is None:
        raise c._errors.FormatError(f"{format} has no shared exponent to predict")
    initial = c.tensor_autoflex(t).contents
    found = ctypes.c_int()
    c.autoflex_parse(found, predictor)
    found = found.value
    c.autoflex_reset(state, found, initial.e_min, initial.e_max)
    floats = initial.largest > 0
    if floats:
        c.autoflex_set_largest(state, initial.largest)
    else:
        c.autoflex_set_bits(state, bits)
    top = initial.largest if floats else 2.0 ** (bits - 1) - 1
    exponents, saturated = np.zeros(len(maxima), np.int32), np.zeros(len(maxima), bool)
    measures = c.autoflex_needs_maximum(found)
    for i, maximum in enumerate(maxima):
        if measures:
            c.autoflex_fit(state, maximum)
        elif state.initialised:
            c.autoflex_adjust(state)
            c.autoflex_repeat(state, maximum)
        else:
            c.autoflex_initialise(state, maximum)
        with np.errstate(over="ignore"):
            scaled = np.ldexp(maximum, state.e)
        scaled = scaled if floats else np.rint(scaled)
        exponents[i], saturated[i] = state.e, scaled > top
        c.autoflex_record(state, 0 if floats else int(min(scaled, top)), maximum)
    sizes = np.maximum(maxima, 1e-300)
    unused = np.log2(top / np.ldexp(sizes, exponents)) if floats else (bits - 1) - exponents - np.floor(np.log2(sizes)) - 1
    wasted = np.where(maxima > 0, np.floor(unused), 0)
    return {"e": exponents, "saturated": saturated, "wasted": np.maximum(wasted, 0)}


def predictors():
    """The names of all predictors."""
    names, i = [], 0
    while number := c.autoflex_at(i):
        names.append(c.autoflex_name(number))
        i += 1
    return names
