#!/usr/bin/env python3
"""Random calls: what goes in and comes out of tensors, operators, views, operations and exponents, against NumPy,
ml_dtypes and the C library, which is called here without the package. No difference is allowed.
usage: test_python_values.py [long] [seed=N]"""
import ctypes
import math
import operator
import random
import sys
from fractions import Fraction

import numpy as np

from checks import C, LONG, bits_of, c, check, do, fl, format_id, optional, raises, run

seed = next((int(a[5:]) for a in sys.argv if a.startswith("seed=")), 20261125)
draw, numbers = random.Random(seed), np.random.default_rng(seed)
ml_dtypes = optional("ml_dtypes")
FORMATS = ["fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex12+5", "dfp8", "e4m3fn", "e5m2", "e3m4", "tensor:e4m3fn", "tensor:e5m2",
           "tensor:e5m10"]
LETTERS = ["f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
TYPES = {"bool": 1, "int8": 2, "uint8": 3, "int16": 4, "uint16": 5, "int32": 6, "uint32": 7, "int64": 8, "uint64": 9,
         "float16": 10, "bfloat16": 11, "float32": 12, "float64": 13}
calls = 0


def counted(count):
    """Test of so many random calls; ten times as many in the long form."""
    global calls
    for i in range(count * (10 if LONG else 1)):
        calls += 1
        yield f"seed {seed}, call {i}:"


def random_shape(most=4, size=5):
    return tuple(draw.randint(1, size) for _ in range(draw.randint(1, most)))


def random_array(shape, dtype):
    """Values over the range of the type: small integers, extremes, and floats of all exponents."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return numbers.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = numbers.integers(info.min, info.max, shape, dtype, endpoint=True)
        return np.where(numbers.random(shape) < 0.3, array % 7, array).astype(dtype)
    spread = draw.choice([0, 4, 8, 14])
    array = numbers.normal(size=shape) * 2.0 ** numbers.integers(-spread, spread + 1, shape)
    with np.errstate(over="ignore"):  # Inf is a value, too
        return np.asarray(np.where(numbers.random(shape) < 0.1, 0, array)).astype(dtype)


def viewed(array):
    """The same values in another memory layout: reversed, stepped, transposed, of the other byte order."""
    kind = draw.randrange(6)
    if kind == 1:
        array = np.asfortranarray(array)
    elif kind == 2:
        array = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
    elif kind == 3 and array.ndim:
        array = np.ascontiguousarray(array[::-1])[::-1]
    elif kind == 4 and array.dtype.itemsize > 1 and array.dtype.name != "bfloat16":
        array = array.astype(array.dtype.newbyteorder(">"))
    elif kind == 5:
        array = np.broadcast_to(array, (2, *array.shape))[1]
    return array


def made_in_c(format, array):
    """The tensor that C makes of these values, from a copy that the package has no part in."""
    array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)
    made = C(format, array.shape or (1,))
    do("tensor_load_array", made.t, ctypes.c_char_p(array.tobytes()) if array.size else None, TYPES[array.dtype.name],
       ctypes.c_int64(array.size))
    return made


def same(x, y, *what):
    return check(bits_of(x) == y.bits(), *what, f"{x.format} {x.shape}: {bits_of(x)}, in C {y.bits()}")


# --- in and out -------------------------------------------------------------------------------------------------------

def conversions():
    for what in counted(2000):
        shape = () if draw.random() < 0.05 else random_shape()
        letter = draw.choice(LETTERS + ["bfloat16"] * (ml_dtypes is not None))
        dtype = ml_dtypes.bfloat16 if letter == "bfloat16" else letter
        array = random_array(shape, "f4").astype(dtype) if letter == "bfloat16" else random_array(shape, dtype)
        format = draw.choice(FORMATS)
        given = viewed(array)
        try:
            want = made_in_c(format, array)
        except ValueError as error:  # a value that the format cannot hold: the same text from Python
            raises(ValueError, fl.tensor, given, format, says=str(error).split(": ", 1)[1])
            continue
        x = fl.tensor(given, format)
        same(x, want, what, letter, given.strides)
        check(x.shape == (shape or (1,)) and x.format == format, what, x.shape, x.format)
        same(fl.empty(x.shape, format).load(given.reshape(x.shape)), want, what, "load")
        # and out again, in any type
        out = draw.choice(list(TYPES))
        if out == "bfloat16" and ml_dtypes is None:
            continue
        dtype = np.dtype(ml_dtypes.bfloat16 if out == "bfloat16" else out)
        buffer = ctypes.create_string_buffer(max(1, x.size * dtype.itemsize))
        status = c("tensor_store_array")(want.t, buffer, TYPES[out], ctypes.c_int64(x.size), None)
        if status:
            raises(ValueError, x.numpy, dtype, says=c("tensor_error", ctypes.c_char_p)().decode().split(": ", 1)[-1])
        else:
            result = x.numpy(dtype)
            check(result.dtype == dtype and result.tobytes() == buffer.raw[:x.size * dtype.itemsize], what, out, result)
        check(equal(x.numpy("f8").reshape(-1), np.array(want.values())), what, "float64")


def rounding_by_numpy():
    """The stored words, against the conversions of NumPy and ml_dtypes, and mantissas by exact arithmetic."""
    kinds = {"fp32": np.float32, "fp16": np.float16}
    if ml_dtypes is not None:
        kinds |= {"bf16": ml_dtypes.bfloat16, "e4m3fn": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
                  "e3m4": ml_dtypes.float8_e3m4}
    for what in counted(300):
        array = random_array(random_shape(), "f4")
        for format, kind in kinds.items():
            most = float(ml_dtypes.finfo(kind).max) if ml_dtypes is not None else float(np.finfo(kind).max)
            array = np.clip(array, -most, most)
            x = fl.tensor(array, format)
            want = array.astype(kind)
            check(x.raw.dtype == want.dtype and x.raw.tobytes() == want.tobytes(), what, format, array, x.raw, want)
            check(equal(x.numpy(), want.astype("f4")), what, format)
        for format, top in (("flex16+5", 32767), ("dfp16", 32767), ("flex12+5", 2047), ("dfp8", 127)):
            x = fl.tensor(array, format)
            unit = Fraction(2) ** -x.exponent
            want = [max(-top, min(top, round(Fraction(float(v)) / unit))) for v in array.reshape(-1)]
            check(x.mantissa.reshape(-1).tolist() == want, what, format, array, x.exponent)
            check(x.mantissa.dtype == np.int16 and equal(x.numpy("f8"), np.ldexp(x.mantissa.astype("f8"), -x.exponent)),
                  what, format, "mantissas by the exponent")


def exponents():
    for what in counted(300):
        format = draw.choice(["flex16+5", "dfp16", "flex10+5"])
        x = fl.tensor(random_array(random_shape(), "f4"), format)
        want = C.of(x)
        same(x, want, what)
        e = x.exponent + draw.randint(-3, 3)
        if draw.random() < 0.5:
            status = c("tensor_set_exponent")(want.t, e)
            raises(ValueError, x.set_exponent, e) if status else x.set_exponent(e)
        else:
            status = c("tensor_declare_exponent")(want.t, e)
            raises(ValueError, x.declare_exponent, e) if status else x.declare_exponent(e)
        same(x, want, what, "exponent", e)
        mantissas = x.mantissa
        mantissas[...] = numbers.integers(-500, 500, mantissas.shape)  # writes the tensor itself
        check(equal(x.numpy("f8"), np.ldexp(mantissas.astype("f8"), -x.exponent)), what, "written mantissas")
        y = fl.relu(x)
        check(y.exponent == y.history["e"] and y.history["predictor"] == y.predictor, what, y.history)


def pickles():
    import copy
    import pickle
    for what in counted(100):
        x = fl.tensor(random_array(random_shape(), "f4"), draw.choice(FORMATS))
        for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.copy()):
            check(bits_of(x) == bits_of(y) and x.shape == y.shape and x.format == y.format, what, "a copy")
            check(x.base is None and not np.shares_memory(x.raw, y.raw), what, "a copy of its own")


# --- views ------------------------------------------------------------------------------------------------------------

def random_key(shape):
    key = []
    for size in shape:
        if draw.random() < 0.3:
            key.append(draw.randrange(-size, size))
        else:
            bounds = [None if draw.random() < 0.3 else draw.randint(-size - 1, size + 1) for _ in range(2)]
            key.append(slice(*bounds, draw.choice([None, 1, 2, 3, -1, -2])))
    if draw.random() < 0.5:
        first = draw.randint(0, len(key))
        key[first:draw.randint(first, len(key))] = [Ellipsis]
    elif draw.random() < 0.5:
        del key[draw.randint(0, len(key)):]
    return tuple(key)


def equal(a, b):
    return np.array_equal(a, b, equal_nan=True)


def views():
    for what in counted(2000):
        x = fl.tensor(random_array(random_shape(), "f4"), draw.choice(FORMATS))
        values, key = x.numpy("f8"), random_key(x.shape)
        want = values[key]
        if want.size == 0:
            raises(IndexError, x.__getitem__, key, says="selects no element")
            continue
        v = x[key]
        check(v.shape == (want.shape or (1,)) and equal(v.numpy("f8"), want.reshape(v.shape)), what, key, x.shape)
        check(v.base is x and v.exponent == x.exponent, what, "a view")
        check(bits_of(v.contiguous()) == bits_of(v.copy()), what, "copies of a view")
        order = list(range(x.ndim))
        draw.shuffle(order)
        check(equal(x.transpose(*order).numpy("f8"), values.transpose(order)), what, order)
        check(equal(x.T.numpy("f8"), values.T), what, "T")
        second = random_key(v.shape)  # a view of the view
        want = v.numpy("f8")[second]
        if want.size:
            again = v[second]
            check(equal(again.numpy("f8"), want.reshape(again.shape)) and again.base is x, what, key, second)
            check(equal(again.T.numpy("f8"), again.numpy("f8").T), what, key, second, "T")
        flat = x.reshape(-1)
        check(flat.shape == (x.size,) and flat.base is x and equal(flat.numpy("f8"), values.reshape(-1)), what, "reshape")
        axes = [i for i in range(v.ndim) if draw.random() < 0.5]
        if axes:  # a reduction reads the view
            places = np.arange(x.size).reshape(x.shape)[key].reshape(v.shape)
            strided = (C.of(x), [stride // 8 for stride in places.strides], int(places.reshape(-1)[0]))
            shape = tuple(size for i, size in enumerate(v.shape) if i not in axes) or (1,)
            for name in ("sum", "max", "min"):
                y = C(x.format, shape)
                do(f"tensor_reduce_{name}", y.t, C(x.format, v.shape, strided), sum(1 << axis for axis in axes))
                same(getattr(v, name)(axes), y, what, name, axes, key)


# --- operators --------------------------------------------------------------------------------------------------------

def operators():
    """One rounding of the exact result: float32 and float16 by NumPy, integers by exact arithmetic."""
    for what in counted(2000):
        shape = random_shape()
        other = tuple(1 if draw.random() < 0.3 else size for size in shape)[draw.randint(0, len(shape) - 1):]
        if draw.random() < 0.5:
            other = shape
        format = draw.choice(["fp32", "fp16", "bf16", "flex16+5", "dfp16", "e5m2"])
        a, b = (fl.tensor(random_array(s, "f4") % 64, format) for s in (shape, other))
        sign = draw.choice("+-*")
        result = a + b if sign == "+" else a - b if sign == "-" else a * b
        p, q = a.numpy("f8"), b.numpy("f8")
        exact = p + q if sign == "+" else p - q if sign == "-" else p * q  # of numbers below 2**6 in few bits
        if sign == "*" or format != "fp32":
            check(result.shape == exact.shape, what, sign, result.shape)
        if format in ("flex16+5", "dfp16"):
            want = [max(-32767, min(32767, round(one * Fraction(2) ** result.exponent))) for one in exact_values(p, q, sign)]
            check(result.mantissa.reshape(-1).tolist() == want, what, sign, format, p, q, result)
        elif format in ("fp32", "fp16"):
            kind = {"fp32": np.float32, "fp16": np.float16}[format]
            p, q = p.astype(kind), q.astype(kind)
            want = p + q if sign == "+" else p - q if sign == "-" else p * q
            check(equal(result.raw, want), what, sign, format, p, q, result)
        elif ml_dtypes is not None:
            kind = ml_dtypes.bfloat16 if format == "bf16" else ml_dtypes.float8_e5m2
            check(equal(result.numpy(), exact.astype("f4").astype(kind).astype("f4")), what, sign, format, p, q, result)
        for name, result, want in (("neg", -a, -a.numpy()), ("abs", abs(a), abs(a.numpy()))):
            y = C(format, a.shape)
            do(f"tensor_{name}", y.t, C.of(a))
            same(result, y, what, name)
            check(result.exponent is not None or equal(result.numpy(), want), what, name)
        number = draw.choice([2, 0.5, -3, 1.25])
        same(a * number, scaled(a, number), what, "scale", number)
        check(bits_of(number * a) == bits_of(a * number), what, "number first")
        number = draw.choice([2, 0.5, -3, 0.1, 1 + 2.0 ** -13, 1e-3, -300.7, 1e9])
        exactly, p = Fraction(float(np.float32(number))), a.numpy("f8")
        for sign, result in (("+", a + number), ("+", number + a), ("-", a - number), ("r", number - a)):
            want = [Fraction(one) + exactly if sign == "+" else (Fraction(one) - exactly) * (1 if sign == "-" else -1) for one in p.reshape(-1).tolist()]
            if format in ("flex16+5", "dfp16"):
                want = [max(-32767, min(32767, round(one * Fraction(2) ** result.exponent))) for one in want]
                check(result.mantissa.reshape(-1).tolist() == want, what, sign, number, format, p, result)
            elif format in ("fp32", "fp16"):
                scalar, q = np.float32(number), p.astype("f4")
                want = q + scalar if sign == "+" else q - scalar if sign == "-" else scalar - q
                with np.errstate(over="ignore"):
                    check(equal(result.numpy(), want.astype(kind).astype("f4")), what, sign, number, format, p, result)


def numbers_beside_tensors():
    """A number counts as it is, not as its rounding to the format of the tensor; it is a scalar: binary32, finite."""
    check((fl.tensor([2048.0], "fp16") + 1.001).tolist() == [2050.0], "1.001 was rounded to fp16, and the sum again")
    x = fl.tensor([[1.0, 2.0]], "flex16+5")
    check((x - 1e9).tolist() == [[-32767.0] * 2] and (1e9 - x).tolist() == [[32767.0] * 2], x - 1e9, 1e9 - x)
    check((x.T + np.float16(0.5)).tolist() == [[1.5], [2.5]] and (x - np.uint8(5)).tolist() == [[-4.0, -3.0]], "NumPy's numbers")
    for use in (lambda: x + math.inf, lambda: x - math.nan, lambda: math.inf - x, lambda: x * math.inf):
        raises(fl.ArgumentError, use, says="expected a finite number")
    raises(ValueError, lambda: x + 1e39, says="1e+39, expected a number of binary32")
    raises(fl.FormatError, lambda: fl.tensor([2.0], "e1m0") + 2, says="2 beside a tensor of e1m0, which has no 1.0")
    for use in (lambda: x - "a", lambda: "a" - x, lambda: x - None, lambda: x @ 2):
        raises(TypeError, use, says="unsupported operand")
    for use in (lambda: x - np.ones(2), lambda: np.ones(2) - x, lambda: x @ np.ones(2)):
        raises(TypeError, use, says="expected two tensors")


def exact_values(p, q, sign):
    p, q = np.broadcast_arrays(p, q)
    for one, two in zip(p.reshape(-1).tolist(), q.reshape(-1).tolist()):
        one, two = Fraction(one), Fraction(two)
        yield one + two if sign == "+" else one - two if sign == "-" else one * two


def scaled(a, number):
    y = C(a.format, a.shape)
    do("tensor_scale", y.t, C.of(a), ctypes.c_float(number))
    return y


# --- operations -------------------------------------------------------------------------------------------------------

def elementwise():
    """Every row of maps in ops.def, by its parameters: with out= and without, by position and by name."""
    names = [name for name in fl.OPERATIONS if fl.c.FUNCTIONS[f"tensor_{name}"][3] in
             ("tensor_elementwise.h", "blocks_elementwise.h")]
    check(len(names) > 50, f"{len(names)} elementwise operations")
    for what in counted(3200):
        name = draw.choice(names)
        taken = fl.c.FUNCTIONS[f"tensor_{name}"][1][1:]
        if any(kind not in ("const tensor *", "float") for kind, _ in taken):
            continue
        format, shape = draw.choice(FORMATS), random_shape(3)
        given = {parameter: fl.tensor(random_array(shape, "f4"), format) if "tensor" in kind else draw.choice([0.5, 2.0, 1.5])
                 for kind, parameter in taken}
        in_c = [C.of(one) if isinstance(one, fl.Tensor) else one for one in given.values()]
        want = C(format, shape)
        status = c(f"tensor_{name}")(want.t, *(ctypes.c_float(one) if isinstance(one, float) else one for one in in_c))
        if status:
            raises(fl.Error, getattr(fl, name), *given.values(), says=c("tensor_error", ctypes.c_char_p)().decode())
            continue
        kind = draw.randrange(3)
        if kind == 0:
            result = getattr(fl, name)(*given.values())
        elif kind == 1:
            result = getattr(fl, name)(**given)
        else:
            out = fl.empty(shape, format)
            result = getattr(fl, name)(*given.values(), out=out)
            check(result is out, what, name, "returns out")
        same(result, want, what, name)


WINDOW = (("window", 2), ("stride", 2), ("padding", 4), ("dilation", 2), ("groups", 1), ("output_padding", 2))


class Window(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int * count if count > 1 else ctypes.c_int) for name, count in WINDOW]


def window(**members):
    made = Window()
    for name, count in WINDOW:
        value = members.get(name, 0)
        setattr(made, name, value if count == 1 else (ctypes.c_int * count)(*([value] * count if isinstance(value, int) else value)))
    return ctypes.byref(made)


def twice(name, given, shape, what, *scalars, format=None, **keywords):
    """An operation by its Python name with the result made by the package, and by C with a result of this shape."""
    result = getattr(fl, name)(*given, **keywords)
    want = C(format or given[0].format, shape)
    do(f"tensor_{name}", want.t, *(None if one is None else C.of(one) if isinstance(one, fl.Tensor) else one for one in given
                                   if isinstance(one, fl.Tensor) or one is None), *scalars)
    check(result.shape == tuple(shape), what, name, result.shape, shape)
    same(result, want, what, name, keywords)
    return result


def others():
    """Operations whose shapes the package knows, with options as keywords."""
    def t(*shape):
        return fl.tensor(numbers.normal(size=shape), format)
    for what in counted(900):
        format = draw.choice(["fp32", "fp16", "bf16", "flex16+5", "dfp16", "e4m3fn"])
        m, k, n, b = (draw.randint(1, 6) for _ in range(4))
        twice("matmul", (t(m, k), t(k, n)), (m, n), what)
        twice("matmul_nt", (t(m, k), t(n, k)), (m, n), what)
        twice("matmul_tn", (t(k, m), t(k, n)), (m, n), what)
        twice("matmul_batched", (t(b, m, k), t(b, k, n)), (b, m, n), what)
        check(bits_of(fl.matmul(*(pair := (t(m, k), t(k, n))))) == bits_of(pair[0] @ pair[1]), what, "@")
        h, w = draw.randint(4, 7), draw.randint(4, 7)
        groups = draw.choice([1, 2])
        side, stride, dilation = draw.randint(1, 3), draw.randint(1, 2), 1
        padding = draw.choice([0, 1, (0, 1, 1, 0)])
        top, bottom, left, right = (padding,) * 4 if isinstance(padding, int) else padding
        size = ((h + top + bottom - side) // stride + 1, (w + left + right - side) // stride + 1)
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        x, f = t(b, h, w, 2 * groups), t(2 * groups, side, side, 2)
        twice("conv2d", (x, f), (b, *size, 2 * groups), what, window(**how), **how)
        if side > 1:
            how = {"window": side, "stride": stride, "padding": padding}
            twice("maxpool2d", (x,), (b, *size, 2 * groups), what, window(**how), **how)
        y = t(m, k, n)
        axes = sorted({draw.randrange(3) for _ in range(draw.randint(1, 3))})
        reduced = tuple(size for i, size in enumerate(y.shape) if i not in axes) or (1,)
        for name in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_l1"):
            result = getattr(fl, name)(y, axes)
            want = C(format, reduced)
            do(f"tensor_{name}", want.t, C.of(y), sum(1 << axis for axis in axes))
            same(result, want, what, name, axes)
            check(bits_of(getattr(fl, name)(y, [axis - 3 for axis in axes])) == bits_of(result), what, "axes from the end")
        twice("softmax", (y,), y.shape, what, ctypes.c_float(1), ctypes.c_bool(False))
        twice("softmax", (y,), y.shape, what, ctypes.c_float(0.5), ctypes.c_bool(True), scale=0.5, causal=True)
        twice("sum_rows", (t(m, n),), (n,), what)
        order = [0, 1, 2]
        draw.shuffle(order)
        twice("permute", (y, order), [y.shape[i] for i in order], what, (ctypes.c_int * 6)(*order))
        mask = fl.tensor(numbers.integers(0, 2, y.shape), "u8")
        z, want = t(*y.shape), C(format, y.shape)
        do("tensor_where", want.t, C.of(mask), C.of(y), C.of(z))
        same(fl.where(mask, y, z), want, what, "where")


def numbers_as_they_are():
    """f64, i32 and u8 are no formats of arithmetic: their numbers stay as they are."""
    for what in counted(100):
        shape = random_shape()
        for format, dtype in (("f64", "f8"), ("i32", "i4"), ("u8", "u1"), ("f32", "f4")):
            array = random_array(shape, dtype)
            x = fl.tensor(array, format)
            check(x.format == format and equal(np.asarray(x), array), what, format)
            check(np.asarray(x).dtype == np.dtype(dtype), what, np.asarray(x).dtype)
            check(equal(fl.tensor(array.tolist(), format).numpy(dtype), array), what, format, "from a list")
    for value, format in ((256, "u8"), (-1, "u8"), (0.5, "i32"), (2 ** 31, "i32"), (float("nan"), "i32")):
        raises(fl.ArgumentError, fl.tensor, [0, value], format, says=f"element 1 is {value}")


def python_numbers():
    """One element as a number of Python: what NumPy makes of an array of one element; never of its memory as a text."""
    for format, values in (("u8", (0, 53, 255)), ("i32", (-2 ** 31, 49, 2 ** 31 - 1)), ("f64", (-1e300, 0.5)), ("fp32", (-0.0, 1.5, -2.75)),
                           ("bf16", (3.0,)), ("flex16+5", (-100.5,))):
        for value in values:
            x = fl.tensor([value], format)
            array = np.asarray(x)
            for kind in (int, float, complex, bool):
                want = kind(array.item())
                check(kind(x) == want and type(kind(x)) is kind, kind, format, kind(x), want)
                check(kind(x.reshape(1, 1).T) == want, kind, format, "of a view")
            for use in (operator.index, range, hex):  # one dimension, as with NumPy
                raises(TypeError, use, x, says="integer")
    for kind in (int, float, complex, bool):
        raises(ValueError, kind, fl.tensor([49, 50, 51], "u8"), says="elements")
    raises(ValueError, int, fl.tensor([math.nan]), says="NaN")
    raises(OverflowError, int, fl.tensor([math.inf]), says="infinity")


def bad():
    raises(TypeError, fl.tensor, np.array([1j]), says="complex")
    raises(TypeError, fl.tensor, np.array(["a"]), says="expected one of")
    raises(TypeError, fl.tensor, np.array([None]), says="object")
    raises(fl.ShapeError, fl.tensor, np.empty((0, 3)))
    raises(fl.ShapeError, fl.empty, (2, 0))
    raises(ValueError, fl.empty, (1,) * 7, says="at most 6")
    raises(fl.ArgumentError, fl.tensor, [1.0], "flex17+5", says="17")
    raises(fl.ArgumentError, fl.tensor, [1.0], "nothing", says="nothing")
    raises(TypeError, fl.tensor, [1.0], 5, says="flex16+5")
    raises(fl.ArgumentError, fl.tensor, [float("nan")], "flex16+5")
    raises(fl.ShapeError, fl.zeros((2, 3)).load, np.zeros((3, 2)), says="(3, 2)")
    raises(TypeError, fl.zeros(2).numpy, "complex64", says="complex64")
    raises(OverflowError, fl.empty, (2 ** 70,))
    raises(TypeError, fl.empty, (2.5,))


def enough():
    least = 100_000 if LONG else 10_000
    check(calls >= least, f"{calls} random calls, expected at least {least}")
    print(f"{calls} random calls, seed {seed}")


def assignments():
    """x[index] = values, as NumPy has it: then the tensor is one of the changed values; those that are wrong change nothing."""
    import gc
    import weakref
    rng = np.random.default_rng(11)
    indices = [..., 0, -1, (1, 2), slice(None, None, -2), (slice(1), 0), (slice(None), -1), (..., 1), np.array([0, 2]),
               (rng.random((3, 4)) < 0.5), ([0, 1], [3, 0])]
    for format in ("fp32", "bf16", "fp16", "flex16+5", "dfp16", "flex12+5", "e4m3fn", "i32", "f64"):
        for index in indices:
            values = rng.integers(-9, 9, (3, 4)).astype(float) if format == "i32" else rng.standard_normal((3, 4))
            x = fl.tensor(values, format)
            expected = x.numpy("float64")
            new = rng.integers(-99, 99, expected[index].shape) * (1 if format == "i32" else 1.5)
            x[index] = new
            expected[index] = new
            same = fl.tensor(expected, format)
            check(np.array_equal(x.raw, same.raw) and x.exponent == same.exponent, format, index, x, same)
    for view, same in ((lambda x: x.T, lambda a: a.T), (lambda x: x[1:, ::-2], lambda a: a[1:, ::-2]), (lambda x: x[2], lambda a: a[2])):
        x = fl.tensor(rng.standard_normal((3, 4)), "flex16+5")
        expected = x.numpy("float64")
        view(x)[0], same(expected)[0] = 3.25, 3.25
        check(np.array_equal(x.numpy("float64"), fl.tensor(expected, "flex16+5").numpy("float64")), "through a view", x)
    wide = fl.tensor([1, 2, 1 / 3], "flex16+5")
    wide.keep_wide()
    wide[2] = 1 / 3  # now with the bits that 16 have not
    before = wide.wide()
    check(abs(before[2] - 1 / 3) < 1e-9, "a wide part takes what is assigned", before)
    wide[0] = 1.25
    check(np.array_equal(wide.wide()[1:], before[1:]) and wide.wide()[0] == 1.25, "a wide part keeps the others", wide.wide())
    x = fl.tensor([[1.0, 5.0], [7.0, -2.0]], "bf16")
    before = x.raw.copy()
    for kind, index, value in ((fl.ShapeError, 0, [1, 2, 3]), (IndexError, 2, 1), (IndexError, slice(0, 0), 1), (TypeError, 0, "a"),
                               (TypeError, 0, None), (TypeError, 0, 1j), (IndexError, (0, 0, 0), 1)):
        raises(kind, x.__setitem__, index, value)
        check(np.array_equal(x.raw, before), "a wrong assignment changes nothing")
    i32 = fl.tensor([1, 2], "i32")
    raises(fl.ArgumentError, i32.__setitem__, 1, 2.5, says="2.5")
    flex = fl.tensor([1.0], "flex16+5")
    raises(fl.ArgumentError, flex.__setitem__, 0, np.nan, says="nan")
    check(x.argmax() == 2 and x.argmin() == 3 and np.array_equal(x.argmax(-1).numpy(), [1, 0]) and list(x.argmin(0)) == [0, 1], "argmax")
    raises(fl.ArgumentError, x.argmax, 2, says="2")
    check(x.astype("fp16").format == "fp16" and np.array_equal(x.astype("fp16").numpy(), x.numpy()), "astype")
    for wrong in (np.float32, np.dtype("f4"), float):
        raises(TypeError, x.astype, wrong, says="x.numpy(dtype)")
    reference = weakref.ref(x)
    check(reference() is x, "a weak reference")
    del x
    gc.collect()
    check(reference() is None, "a weak reference to what has ended")


run(conversions, rounding_by_numpy, exponents, pickles, assignments, views, operators, numbers_beside_tensors, elementwise, others, numbers_as_they_are, python_numbers, bad, enough)
