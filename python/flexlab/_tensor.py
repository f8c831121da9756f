"""Tensors as Python has them: construction, values, views, operators."""
import functools
import math
import operator

import numpy as np

from . import _core, _errors, _library, _shapes

TYPES = {"bool": 1, "int8": 2, "uint8": 3, "int16": 4, "uint16": 5, "int32": 6, "uint32": 7, "int64": 8, "uint64": 9,
         "float16": 10, "bfloat16": 11, "float32": 12, "float64": 13}
NUMBER_TYPES = {"f64": "float64", "i32": "int32", "u8": "uint8", "f32": "float32"}
NUMBER = (int, float, np.floating, np.integer)  # of Python's and NumPy's, beside a tensor
NUMBERS = {"f64": 240, "i32": 241, "u8": 242, "f32": 243}  # beside the formats: losses, labels, images


@functools.cache
def format_id(name):
    """The number of a format, by its name or from its parameters ("flex12+5", "e4m3fn")."""
    if not isinstance(name, str):
        raise TypeError(f"a format is a text such as 'flex16+5', not {name!r}")
    if name in NUMBERS:
        return NUMBERS[name]
    import ctypes
    found = ctypes.c_int()
    _library.tensor_format_find(found, name)
    return found.value


@functools.cache
def _has_one(format):
    """Whether 1 is a number of the format: e1m0 has only 2."""
    return float(tensor([1.0], format)) == 1


def device_index(name):
    if name == "cpu":
        return 0
    device, i = _library.tensor_device_find(name), 0
    if not device:
        _library.check(_library.library.flexlab_tensor_error_status())
    while _library.tensor_device_at(i) != device:
        i += 1
    return i


class Tensor(_core.Tensor):
    """Numbers in one format: floats, or integer mantissas under a shared exponent.

    Made by flexlab.tensor, empty, zeros and from_dlpack, and by operations. Operators compute in the real arithmetic of
    the format and round once; both operands have one format (`x.to(format)` converts). `a + b` and `a * b` broadcast."""
    __slots__ = ("__weakref__",)

    # --- values
    def numpy(self, dtype="float32") -> np.ndarray:
        """The values as an array of NumPy (a copy). float32 has every value of formats of 16 bits and of fp32; values of dfp16
        far outside its range need float64. Any type of NumPy's floats, integers and bool: TypeError for others, and
        flexlab.ArgumentError with the position for a value that an integer type cannot hold."""
        dtype = np.dtype(dtype)
        if dtype.name not in TYPES:
            raise TypeError(f"{dtype}, expected one of {', '.join(TYPES)}")
        result = np.empty(self.shape, dtype.newbyteorder("="))
        source = self.contiguous() if self._strided else self
        source._store(result.view(np.uint16) if dtype.name == "bfloat16" else result, TYPES[dtype.name])
        return result.astype(dtype, copy=False)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        if copy is False:
            raise ValueError("the values of a tensor are computed: they cannot be had without a copy (x.mantissa, x.raw are)")
        return self.numpy(dtype or NUMBER_TYPES.get(self.format, "float32"))

    def load(self, values) -> "Tensor":
        """Loads values: one rounding each; a shared exponent becomes that of the largest. Returns the tensor."""
        array, kind = contiguous_array(values, self.format)
        if array.shape != self.shape:
            raise _errors.ShapeError(f"values of shape {array.shape}, expected {self.shape}")
        self._load(array, kind)
        return self

    @property
    def mantissa(self) -> np.ndarray:
        """The integer mantissas as stored: int16, the tensor's own memory. Writing them is allowed (a wide part then takes
        exactly their values). FormatError for floats."""
        if not _library.tensor_format_has_mantissas(self._id):
            raise _errors.FormatError(f"{self.format} has no mantissas under a shared exponent: x.raw has the elements as stored")
        return np.asarray(memoryview(_core.elements(self)))

    @property
    def raw(self) -> np.ndarray:
        """The elements as stored, in the tensor's own memory: float32, float16, mantissas; bfloat16 and floats of 8 bits in
        the types of ml_dtypes where that is installed, otherwise words and bytes."""
        stored = np.asarray(memoryview(_core.elements(self)))
        name = {"bf16": "bfloat16", "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2", "e4m3": "float8_e4m3", "e3m4": "float8_e3m4"}
        if self.format in name:
            try:
                import ml_dtypes
            except ImportError:
                return stored
            return stored.view(getattr(ml_dtypes, name[self.format]))
        return stored

    def item(self) -> float:
        """The value of the only element, as a float."""
        if self.size != 1:
            raise ValueError(f"{self.size} elements, expected 1")
        return float(self.numpy("float64").reshape(()))

    def __float__(self) -> float:
        return self.item()

    def __int__(self) -> int:  # without it Python parses the memory as a text
        return int(self.item())

    def __dlpack_device__(self):
        """The host, as DLPack calls it. BufferError for a tensor on another device."""
        if self.device != "cpu":
            raise BufferError(f"a tensor on {self.device}: export x.to(x.format, 'cpu')")
        return 1, 0

    def tolist(self) -> list:
        """The values as nested lists of floats."""
        return self.numpy("float64").tolist()

    # --- how it is written
    @property
    def statistics(self) -> dict:
        """The statistics of the last write and of all: {"last": {...}, "total": {...}}."""
        last, total = _library.tensor_stats(), _library.tensor_stats()
        _library.tensor_statistics(last, total, self)
        return {name: {field: getattr(one, field) for field, *_ in one._fields_} for name, one in (("last", last), ("total", total))}

    @property
    def history(self) -> dict | None:
        """The state of the exponent predictor: its name, e, the maxima of the last writes, oldest first, and the counts of
        what went wrong. None for a format without a shared exponent."""
        state = _library.tensor_autoflex(self)
        if not state:
            return None
        a = state.contents
        length = len(a.history)
        count = min(a.count, length)
        maxima = [a.history[(a.next - count + i) % length] for i in range(count)]
        return {"predictor": _library.autoflex_name(_library.autoflex_predictor_of(state)), "e": a.e, "range": (a.e_min, a.e_max), "maxima": maxima,
                "predicted": a.predicted, "initialised": bool(a.initialised), "overflows": a.overflows,
                "clamped_low": a.clamped_low, "clamped_high": a.clamped_high, "zero_writes": a.zero_writes}

    @property
    def predictor(self):
        """The name of the exponent predictor; settable. None without a shared exponent."""
        state = _library.tensor_autoflex(self)
        return _library.autoflex_name(_library.autoflex_predictor_of(state)) if state else None

    @predictor.setter
    def predictor(self, name):
        _library.tensor_set_predictor(self, name)

    def set_exponent(self, e) -> None:
        """Rounds the elements to another exponent: once, saturated, counted."""
        _library.tensor_set_exponent(self, e)

    def declare_exponent(self, e) -> None:
        """States the exponent of the elements as they are, after writing them."""
        _library.tensor_declare_exponent(self, e)

    def set_rounding(self, rounding, seed=0) -> None:
        """How results are rounded when they are written: "nearest", "stochastic" or "truncate"."""
        kinds = {"nearest": 0, "stochastic": 1, "truncate": 2}
        if rounding not in kinds:
            raise _errors.ArgumentError(f"rounding {rounding!r}, expected one of {', '.join(kinds)}")
        _library.tensor_set_rounding(self, kinds[rounding], seed)

    def keep_wide(self) -> None:
        """Adds a wide part, on which optimisers work: the elements are its rounding."""
        _library.tensor_keep_wide(self)

    def wide(self) -> np.ndarray:
        """The wide part as float64; the values where there is none."""
        result = np.empty(self.shape)
        _library.tensor_store_wide_f64(self, result.reshape(-1), result.size)
        return result

    # --- the same elements otherwise
    def reshape(self, *shape) -> "Tensor":
        """The same elements in another shape, without a copy; one size may be -1."""
        shape = list(integers(shape, "reshape"))
        if shape.count(-1) == 1:
            known = math.prod(size for size in shape if size != -1)
            shape[shape.index(-1)] = self.size // known if known and self.size % known == 0 else -1
        return _core.view(self, shape)

    def contiguous(self) -> "Tensor":
        """Itself, or a bit-exact copy of a view with strides."""
        if not self._strided:
            return self
        if self.device != "cpu":
            host = empty(self.base.shape, self.format)
            _library.tensor_copy(host, self.base)
            return _core.view(host, self.shape, *self._strides).contiguous().to(self.format, self.device)
        return restore(np.array(memoryview(_core.elements(self))), self.format, self.exponent)

    def copy(self) -> "Tensor":
        """A bit-exact copy: elements, exponent, history, wide part."""
        if self._strided:
            return self.contiguous()
        y = empty(self.shape, self.format, device=self.device)
        _library.tensor_copy(y, self) if not self._has_wide() else self._copy_wide(y)
        return y

    def _has_wide(self):
        return self.nbytes > self.size * _library.tensor_format_bytes(self._id)

    def _copy_wide(self, y):
        y.keep_wide()
        _library.tensor_copy(y, self)

    def to(self, format, device=None) -> "Tensor":
        """The values in another format, each rounded once; a shared exponent is that of the largest."""
        source = self.contiguous()
        y = empty(self.shape, format, device=device or self.device)
        if source._id == y._id and source.device != y.device:
            _library.tensor_copy(y, source)
        else:
            _library.tensor_convert(y, source)
        return y

    def astype(self, format) -> "Tensor":
        """The values in another format: to(format), by the name of NumPy's method. It takes formats, not types of NumPy."""
        if isinstance(format, (type, np.dtype)):
            raise TypeError(f"astype: {np.dtype(format)} is a type of NumPy, expected a format such as 'bf16': "
                            "x.numpy(dtype) gives the values as an array")
        return self.to(format)

    def transpose(self, *order) -> "Tensor":
        """The dimensions in another order (reversed by default), as a view: reductions, broadcast operands, contiguous and
        numpy read it."""
        order = integers(order, "transpose") or tuple(reversed(range(self.ndim)))
        if sorted(axis + self.ndim if axis < 0 else axis for axis in order) != list(range(self.ndim)):
            raise _errors.ShapeError(f"order {order}, expected each of 0 ... {self.ndim - 1} once")
        base, steps, offset = self._steps()
        return _core.view(base, [self.shape[i] for i in order], [steps[i] for i in order], offset)

    T = property(transpose, doc="The dimensions reversed, as a view.")

    def _steps(self):
        """The tensor that has the elements, their strides in it, and the first of them."""
        if self._strided:
            return self.base, *self._strides
        steps, step = [], 1
        for size in reversed(self.shape):
            steps.insert(0, step)
            step *= size
        return self, steps, 0

    def __getitem__(self, key) -> "Tensor":
        """Integers, slices with any step, and ...: a view."""
        key = key if isinstance(key, tuple) else (key,)
        if key.count(Ellipsis) if all(not isinstance(one, np.ndarray) for one in key) else False:
            at = key.index(Ellipsis)
            key = key[:at] + (slice(None),) * (self.ndim - len(key) + 1) + key[at + 1:]
        if len(key) > self.ndim:
            raise IndexError(f"{len(key)} indices for {self.ndim} dimensions")
        base, steps, offset = self._steps()
        sizes, strides = [], []
        for i, (size, step) in enumerate(zip(self.shape, steps)):
            one = key[i] if i < len(key) else slice(None)
            if isinstance(one, slice):
                first, last, every = one.indices(size)
                count = len(range(first, last, every))
                if not count:
                    raise IndexError(f"dimension {i}: {one} selects no element of {size}")
                offset += first * step
                sizes.append(count)
                strides.append(every * step)
            elif isinstance(one, (int, np.integer)) and not isinstance(one, bool):
                if not -size <= one < size:
                    raise IndexError(f"index {one} is out of range for dimension {i} of {size}")
                offset += (one % size) * step
            else:
                raise TypeError(f"an index is an int or a slice, not {type(one).__name__}")
        return _core.view(base, sizes or [1], strides or [1], offset)

    def __setitem__(self, key, values) -> None:
        """Values for some elements, or by x[...] = values for all; the index is any that NumPy has. It is load() of all the
        values with these among them: each of the new ones is rounded once, a shared exponent becomes that of the largest of
        all, and the history begins anew. A wide part keeps what the others have in it. The whole tensor is written, so that
        a loop over its elements is slow."""
        base, steps, offset = self._steps()
        host = base.wide() if base._has_wide() else base.numpy("float64")
        flat = host.reshape(-1)
        seen = np.lib.stride_tricks.as_strided(flat[offset:], self.shape, [step * flat.itemsize for step in steps])
        values = values.numpy("float64") if isinstance(values, Tensor) else np.asarray(on_host(values))
        if values.dtype.name not in TYPES:
            raise TypeError(f"values of type {values.dtype}, expected one of {', '.join(TYPES)}")
        if key is not Ellipsis and not np.size(seen[key]):
            raise IndexError(f"{key} selects no element of a tensor of shape {self.shape}")
        try:
            seen[key] = values
        except ValueError as error:
            expected = f"expected {seen[key].shape} or what broadcasts to it"
            raise _errors.ShapeError(f"values of shape {values.shape}, {expected}: {error}") from None
        base.load(host)

    # --- operators
    __array_priority__ = 1000  # array + x and np.float64(2) * x are asked here, and not computed by NumPy

    def _operand(self, other):
        if isinstance(other, Tensor):
            return other
        if isinstance(other, np.ndarray):
            raise TypeError(f"an array of {other.dtype} beside a tensor of {self.format}, expected two tensors: flexlab.tensor(array, format)")
        return NotImplemented

    def _binary(self, other, same, broadcast):
        if not isinstance(other, Tensor):
            other = self._operand(other)
            if other is NotImplemented:
                return other
        if self.shape == other.shape and not self._strided and not other._strided:
            return same(self, other)
        if broadcast is None:
            raise _errors.ShapeError(f"shapes {self.shape} and {other.shape}, expected the same (there is no broadcasting here)")
        return broadcast(self, other)

    def _plus(self, number):
        """self + number * 1, which rounds once; the number is a scalar, binary32."""
        if not _has_one(self.format):
            raise _errors.FormatError(f"{number} beside a tensor of {self.format}, which has no 1.0: expected two tensors")
        return _core.add_scaled(self.contiguous(), tensor(np.ones(self.shape, "f4"), self.format, device=self.device), number)

    def __add__(self, other) -> "Tensor":
        return self._plus(other) if isinstance(other, NUMBER) else self._binary(other, _core.add, _core.broadcast_add)

    def __sub__(self, other) -> "Tensor":
        if isinstance(other, NUMBER):
            return self._plus(-float(other))
        return self._binary(other, _core.sub, lambda a, b: _core.broadcast_add(a, b._negated()))

    def __mul__(self, other) -> "Tensor":
        if isinstance(other, NUMBER):
            return _core.scale(self.contiguous(), other)
        return self._binary(other, _core.mul, _core.broadcast_mul)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other) -> "Tensor":
        return self._negated()._plus(other) if isinstance(other, NUMBER) else self._operand(other)

    def __truediv__(self, other) -> "Tensor":
        if isinstance(other, NUMBER):
            fraction, _ = math.frexp(other)
            if abs(fraction) == 0.5:
                return _core.scale(self, 1 / float(other))  # exact
        raise TypeError("there is no division that rounds once: multiply by flexlab.reciprocal(x), or by a number with scale()")

    def __matmul__(self, other) -> "Tensor":
        if not isinstance(other, Tensor):
            return self._operand(other)
        a, b = self.contiguous(), other.contiguous()
        if a.ndim < 2 or b.ndim < 2:
            raise _errors.ShapeError(f"shapes {a.shape} and {b.shape}, expected two matrices or batches of them")
        return _core.matmul(a, b) if a.ndim == 2 else _core.matmul_batched(a, b)

    def _negated(self):
        """-self, exactly: what a difference rounds once."""
        x = self.contiguous()
        if not _library.tensor_format_has_mantissas(x._id):  # every float has its negative at the exponent of the largest
            return _core.neg(x)
        host = x if x.device == "cpu" else x.to(x.format, "cpu")
        y = restore(-host.mantissa, x.format, x.exponent)
        return y if x.device == "cpu" else y.to(x.format, x.device)

    def __rmatmul__(self, other):
        return self.__matmul__(other)

    def __neg__(self) -> "Tensor":
        return _core.neg(self.contiguous())

    def __abs__(self) -> "Tensor":
        return _core.abs(self.contiguous())

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth of a tensor of several elements is not defined")
        return self.item() != 0

    def __contains__(self, value):
        """Whether an element has this value."""
        return bool(np.any(self.numpy("float64") == value))

    __hash__ = object.__hash__

    def __eq__(self, other):
        """Whether it is the same object: compare values by numpy()."""
        return self is other

    def sum(self, axis=None) -> "Tensor":
        """The sum over an axis, several, or all, rounded once: a tensor."""
        return _core.reduce_sum(self, axis)

    def mean(self, axis=None) -> "Tensor":
        """The mean over an axis, several, or all: a tensor."""
        return _core.reduce_mean(self, axis)

    def max(self, axis=None) -> "Tensor":
        """The largest value over an axis, several, or all: a tensor."""
        return _core.reduce_max(self, axis)

    def min(self, axis=None) -> "Tensor":
        """The least value over an axis, several, or all: a tensor."""
        return _core.reduce_min(self, axis)

    def argmax(self, axis=None):
        """Where the largest values along an axis are, the first of equal ones: an i32 tensor, as flexlab.argmax gives it. Without
        an axis: the position in the tensor as one row, an int."""
        if axis is None:
            return int(np.argmax(self.numpy("float64")))
        axis, = integers((axis,), "argmax")
        return _core.argmax(self, axis + self.ndim if -self.ndim <= axis < 0 else axis)

    def argmin(self, axis=None):
        """Where the least values are, as argmax has it. The library has no such operation: this one compares the values in NumPy,
        and with an axis returns an array."""
        found = np.argmin(self.numpy("float64"), axis)
        return int(found) if axis is None else found

    def describe(self) -> dict:
        """A description of the elements: moments, extremes, and counts by binade (bins)."""
        d = _library.tensor_description()
        _library.tensor_describe(d, self.contiguous())
        return {name: np.array(getattr(d, name)) if name == "bins" else getattr(d, name) for name, *_ in d._fields_}

    def __reduce__(self):
        """Pickled and copied by values and, for integers, by mantissas and exponent: bit for bit, without the history."""
        if self._has_wide():
            raise TypeError("a tensor with a wide part cannot be pickled: save a checkpoint")
        source = self.contiguous()
        raw = np.array(np.asarray(memoryview(_core.elements(source))))
        return restore, (raw, self.format, self.exponent)

    def __copy__(self):
        return self.copy()

    def __deepcopy__(self, memo):
        return self.copy()

    def __repr__(self) -> str:
        where = "" if self.device == "cpu" else f", device='{self.device}'"
        e = "" if self.exponent is None else f", exponent={self.exponent}"
        values = np.array2string(self.numpy("float64"), threshold=64, prefix="tensor(", separator=", ")
        return f"tensor({values}, format='{self.format}'{e}{where})"


def on_host(values):
    """The values of a tensor of PyTorch as an array of NumPy, which has no bfloat16; anything else as it is."""
    if isinstance(values, (Tensor, np.ndarray)) or not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return (values.float() if str(values.dtype) == "torch.bfloat16" else values).numpy()


def integers(given, function):
    """Sizes or dimensions, given one by one or as a sequence."""
    given = given[0] if len(given) == 1 and not hasattr(given[0], "__index__") else given
    try:
        numbers = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(f"{function}: {given!r}, expected integers") from None
    if any(abs(one) >= 2 ** 63 for one in numbers):
        raise OverflowError(f"{function}: {numbers}, expected integers of 64 bits")
    return numbers


def restore(raw, format, exponent):
    """A tensor from its elements as stored, and its exponent."""
    t = empty(raw.shape, format)
    np.asarray(memoryview(_core.elements(t)))[...] = raw
    if exponent is not None:
        t.declare_exponent(exponent)
    return t


def contiguous_array(values, format):
    """An array that C reads, and the number of its type. Strided input is copied once. Numbers (i32, u8, f64, f32) have the
    type of their name; an integer type takes only values that it holds exactly."""
    array = values.numpy("float64") if isinstance(values, Tensor) else np.asarray(values)
    wanted = NUMBER_TYPES.get(format)
    if wanted and array.dtype.name in TYPES and array.dtype.name != wanted:
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = array.astype(wanted)
        if numbers.dtype.kind != "f" and not np.array_equal(numbers, array):
            at = int(np.argmax(np.ravel(numbers != array)))
            raise _errors.ArgumentError(f"element {at} is {np.ravel(array)[at]}, which {format} does not hold")
        array = numbers
    kind = TYPES.get(array.dtype.name)
    if kind is None:
        raise TypeError(f"values of type {array.dtype}, expected one of {', '.join(TYPES)}")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = np.ascontiguousarray(array).reshape(array.shape or (1,))
    return (array.view(np.uint16) if array.dtype.name == "bfloat16" else array), kind


def empty(shape, format="fp32", *, device="cpu") -> "Tensor":
    """A tensor of zeros (memory that an operation is to write; the library never leaves it undefined)."""
    number = format_id(format)
    return _core.empty(number, integers((shape,), "empty"), device_index(device))


def zeros(shape, format="fp32", *, device="cpu") -> "Tensor":
    """A tensor of zeros."""
    return empty(shape, format, device=device)


def tensor(values, format="fp32", *, device="cpu", predictor=None) -> "Tensor":
    """A tensor of a format with these values, each rounded once. values: an array of NumPy or what it makes one of, a
    tensor, anything with __dlpack__ or __array__. A shared exponent becomes that of the largest value; `predictor` names
    how later writes choose it. Strided input is copied once."""
    array, kind = contiguous_array(on_host(values), format)
    t = empty(array.shape, format, device=device)
    if predictor is not None:
        t.predictor = predictor
    t._load(array, kind)
    return t


def from_dlpack(source, *, copy=None) -> "Tensor":
    """A tensor in the memory of another library's array: float32 (fp32), float16, bfloat16, float64 (f64), int32, uint8, FP8.
    It needs contiguous memory of the host aligned to 64 bytes; if it is not, BufferError, or with copy=None a copy."""
    if not hasattr(source, "__dlpack__"):
        raise TypeError(f"from_dlpack: a {type(source).__name__} has no __dlpack__: use tensor(x, format)")
    if copy is not True:
        try:
            return _core.from_dlpack(capsule_of(source))
        except (BufferError, _errors.ArgumentError):
            if copy is False:
                raise
    array = np.from_dlpack(source)
    name = {"float32": "fp32", "float16": "fp16", "float64": "f64", "int32": "i32", "uint8": "u8"}.get(array.dtype.name)
    if name is None:
        raise BufferError(f"no format has the type {array.dtype}: use tensor(x, format)")
    return tensor(array, name)


def capsule_of(source):
    try:
        return source.__dlpack__(max_version=(1, 1))
    except TypeError:  # it knows no version
        return source.__dlpack__()


def infer(name, operands, keywords):
    """The results of an operation, by the rules of _shapes: called from C where out= is not given."""
    rule = _shapes.RULES.get(name)
    try:
        made = rule(*operands, **keywords) if rule else (operands[0].format, operands[0].shape)
    except (AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
        given = [*operands, *keywords.values()]
        shapes = ", ".join(str(one.shape) for one in given if isinstance(one, Tensor))
        raise _errors.ShapeError(f"{name}: operands {shapes} do not suit it: {error} (see help(flexlab.{name}))") from None
    device = next((one.device for one in [*operands, *keywords.values()] if isinstance(one, Tensor)), "cpu")
    # Where sizes leave nothing, the operation says why.
    results = tuple(empty([max(1, size) for size in shape], format, device=device)
                    for format, shape in (made if isinstance(made, list) else [made]))
    return results if isinstance(made, list) else results[0]


def fail(status, message):
    _library.check(0)  # what a callback of this thread raised comes first
    if status:
        _errors.fail(status, message)


_core.begin(Tensor, fail, infer)
