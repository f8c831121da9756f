"""Every function, struct and constant of the C library, by its own name, over ctypes.

    from flexlab import c
    c.tensor_set_predictor(x, "ngraph")
    total = c.tensor_stats()
    c.tensor_statistics(None, total, x)

Text is str, a tensor a flexlab.Tensor, a pointer to numbers an array of NumPy (or None), a struct one of this module.
Arrays must be contiguous and of the type that the function declares; how long they are only the caller knows, as in C,
where a length is a parameter. A failure raises flexlab.Error. What a callback raises is raised again when the function
that called it returns. Functions are found when they are first used, so that importing this costs little."""
import ctypes
import functools
import os
import re
import threading
import weakref

from . import _core, _errors
from ._declarations import ALIASES, CALLBACKS, CONSTANTS, ENUMS, FUNCTIONS, OPAQUE, STRUCTS

SCALARS = {
    "int": ctypes.c_int, "unsigned": ctypes.c_uint, "bool": ctypes.c_bool, "float": ctypes.c_float, "double": ctypes.c_double,
    "int8_t": ctypes.c_int8, "uint8_t": ctypes.c_uint8, "int16_t": ctypes.c_int16, "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t, "unsigned long": ctypes.c_ulong, "char": ctypes.c_char, "unsigned char": ctypes.c_ubyte,
}
pending = {}  # by thread, what its callbacks have raised and the function that called them has yet to raise


# The library that the extension is linked with: the loader looks for a symbol in what a module needs, too.
library = ctypes.CDLL(_core.__file__)
library.flexlab_tensor_error.restype = ctypes.c_char_p


def message():
    return library.flexlab_tensor_error().decode(errors="replace")


def check(status, *_):
    """Raises what a callback raised, or the error of a status."""
    if pending and (error := pending.pop(threading.get_ident(), None)) is not None:
        _core.note(len(pending))
        raise error
    if status:
        _errors.fail(status, message())


def remember(error):
    """Keeps the first exception of a callback for the function that called it."""
    pending.setdefault(threading.get_ident(), error)
    _core.note(len(pending))


class Handle:
    """A pointer to an object of the library, which `free` frees when nobody refers to it; what must be freed before its
    parent is freed with it."""
    __slots__ = ("_pointer", "_free", "_children", "__weakref__")

    def __init__(self, pointer, free=None, parent=None):
        if not pointer:
            check(library.flexlab_tensor_error_status())
            raise _errors.Error(message() or "the library returned no object")
        self._pointer, self._free, self._children = pointer, free, []
        if parent is not None:
            parent._children[:] = [one for one in parent._children if one() is not None]
            parent._children.append(weakref.ref(self))

    @property
    def pointer(self):
        if not self._pointer:
            raise ValueError("this object has been freed")
        return self._pointer

    def free(self):
        """Frees the object now; every later use is a ValueError."""
        for child in self._children:
            if (one := child()) is not None:
                one.free()
        pointer, self._pointer = self._pointer, None
        if pointer and self._free:
            self._free(pointer)

    def __del__(self):
        try:
            self.free()
        except Exception:  # at the end of the process
            pass


class TensorPointer(ctypes.c_void_p):
    @classmethod
    def from_param(cls, value):
        if value is None:
            return None
        if isinstance(value, _core.Tensor) or hasattr(value, "_address"):  # a tensor, or one that a network lends
            return ctypes.c_void_p(value._address)
        raise TypeError(f"{type(value).__name__}, expected a flexlab.Tensor")


class ObjectPointer(ctypes.c_void_p):
    @classmethod
    def from_param(cls, value):
        if value is None:
            return None
        handle = getattr(value, "_handle", value)
        if isinstance(handle, Handle):
            return ctypes.c_void_p(handle.pointer)
        if isinstance(value, int) or isinstance(value, ctypes.c_void_p):
            return ctypes.c_void_p(value) if isinstance(value, int) else value
        raise TypeError(f"{type(value).__name__}, expected an object of the library")


class Text(ctypes.c_char_p):
    @classmethod
    def from_param(cls, value):
        if value is None:
            return None
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, str):
            if "\0" in value:
                raise ValueError(f"{value!r} has a zero character")
            value = os.fsencode(value)
        if not isinstance(value, bytes):
            raise TypeError(f"{type(value).__name__}, expected a text")
        return ctypes.c_char_p(value)


def address_of(value, written):
    """The memory of an array, which the function may write."""
    address, read_only = value.__array_interface__["data"]
    if written and read_only:
        raise ValueError("a read-only array, expected one that the function can write")
    if not value.flags.c_contiguous:
        raise ValueError("an array with strides, expected a contiguous one")
    return ctypes.c_void_p(address)


@functools.cache
def numbers(kind, written):
    """A pointer to numbers: an array of NumPy of that type, or something of ctypes."""
    scalar = SCALARS[kind]
    size = ctypes.sizeof(scalar)

    class Numbers(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            if value is None:
                return None
            if isinstance(value, (ctypes.Array, ctypes.Structure, scalar)):
                return ctypes.byref(value)
            if type(value).__name__ == "CArgObject":
                return value
            interface = getattr(value, "__array_interface__", None)
            if interface is None:
                raise TypeError(f"{type(value).__name__}, expected an array of {kind}")
            given = interface["typestr"]
            letters = "f" if kind in ("float", "double") else "b" if kind == "bool" else "iuV"
            if given[1] not in letters or int(given[2:]) != size or given[0] == ">":
                raise TypeError(f"an array of {value.dtype}, expected one of {kind}")
            return address_of(value, written)

    return Numbers


class Bytes(ctypes.c_void_p):
    """const void *: bytes of any kind."""
    written = False

    @classmethod
    def from_param(cls, value):
        if value is None or isinstance(value, (int, ctypes.c_void_p)):
            return value if value is None or isinstance(value, ctypes.c_void_p) else ctypes.c_void_p(value)
        if isinstance(value, bytes) and not cls.written:
            return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)
        if isinstance(value, (ctypes.Array, ctypes.Structure)):
            return ctypes.byref(value)
        if not hasattr(value, "__array_interface__"):
            raise TypeError(f"{type(value).__name__}, expected bytes or a contiguous array")
        return address_of(value, cls.written)


class WritableBytes(Bytes):
    """void *: memory that the function may write."""
    written = True


def base(kind):
    return kind.replace("const ", "").replace("struct ", "").replace("*", "").strip()


def resolved(kind):
    return ALIASES.get(kind, kind)


@functools.cache
def field_type(kind, length=""):
    """The type of ctypes for a member of a struct, or for what a callback takes."""
    name = resolved(base(kind))
    stars = kind.count("*")
    if stars == 0:
        if name in SCALARS:
            one = SCALARS[name]
        elif name in ENUMS or name == "tensor_status":
            one = ctypes.c_int
        elif name in CALLBACKS:
            one = callback_type(name)
        else:
            one = struct(name)
        return one * int(CONSTANTS.get(length, length)) if length else one
    if name == "char" and stars == 1 and kind.startswith("const"):
        return ctypes.c_char_p
    if name in STRUCTS and stars == 1:
        return ctypes.POINTER(struct(name))
    if name in SCALARS and stars == 1 and name != "char":
        return ctypes.POINTER(SCALARS[name])
    return ctypes.c_void_p


class Struct(ctypes.Structure):
    """A struct of the library: zero means the default of every member. Text and tensors may be set as such."""
    def __init__(self, **members):
        super().__init__()
        for name, value in members.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        declared = self._kinds.get(name)
        if declared is None:
            raise AttributeError(f"{type(self).__name__} has no member '{name}': {', '.join(self._kinds)}")
        kept = self.__dict__.setdefault("_kept", {})
        kept[name] = value  # what it points to lives as long as the struct
        if isinstance(value, (str, os.PathLike)):
            value = os.fsencode(value)
        elif isinstance(value, _core.Tensor):
            value = value._address
        elif callable(value) and not isinstance(value, (int, ctypes._CFuncPtr)):
            value = kept[name] = wrapped(declared, value)
        elif isinstance(value, Struct) and isinstance(declared, type) and issubclass(declared, ctypes._Pointer):
            value = ctypes.pointer(value)
        elif isinstance(value, (tuple, list)) and issubclass(declared, ctypes.Array):
            if len(value) > declared._length_:
                raise ValueError(f"{name} has {len(value)} entries, expected at most {declared._length_}")
            value = declared(*value)
        elif hasattr(value, "__array_interface__"):
            value = ctypes.cast(value.ctypes.data, declared)
        super().__setattr__(name, value)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name, *_ in self._fields_)})"


@functools.cache
def struct(name):
    if name not in STRUCTS:
        raise AttributeError(f"the library has no struct '{name}'")
    members, comment = STRUCTS[name]
    fields = [(member, field_type(kind, length) if isinstance(length, str) else function_type(kind, length))
              for kind, member, length, _ in members]
    return type(name, (Struct,), {"_fields_": fields, "_kinds": dict(fields), "__doc__": comment})


def function_type(result, taken):
    returned = None if result == "void" else field_type(result)
    return ctypes.CFUNCTYPE(returned, *(field_type(kind) for kind, _ in taken))


@functools.cache
def callback_type(name):
    result, taken, _ = CALLBACKS[name]
    return function_type(result, taken)


def wrapped(kind, function):
    """A callback whose exceptions wait until the function that calls it returns; it then asks to stop."""
    # A status other than 0 ends what calls it; 0 from a predictor leaves the exponent as it is.
    stop = None if kind._restype_ in (None, ctypes.c_void_p) else 0 if kind._restype_ is ctypes.c_double else 1

    @functools.wraps(function)
    def guarded(*arguments):
        if threading.get_ident() in pending:
            return stop
        try:
            return function(*arguments)
        except BaseException as error:  # KeyboardInterrupt too
            remember(error)
            return stop
    return kind(guarded)


@functools.cache
def argument_type(kind):
    name, stars = resolved(base(kind)), kind.count("*")
    if stars == 0:
        return callback_argument(name) if name in CALLBACKS else field_type(kind)
    if name in CALLBACKS:
        return callback_argument(name)
    if stars > 1:
        return ctypes.c_void_p
    if name == "tensor":
        return TensorPointer
    if name in OPAQUE:
        return ObjectPointer
    if name == "char":
        return Text if kind.startswith("const") else ctypes.c_char_p
    if name == "void":
        return Bytes if "const" in kind else WritableBytes
    if name in ENUMS or name in SCALARS:
        return numbers(name if name in SCALARS else "int", "const" not in kind)
    return struct_pointer(name)


@functools.cache
def struct_pointer(name):
    made = struct(name)

    class Pointer(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            if value is None:
                return None
            if isinstance(value, dict):
                value = made(**value)
            if isinstance(value, (made, made * len(value) if isinstance(value, ctypes.Array) else made)):
                return ctypes.byref(value)
            if isinstance(value, ctypes.POINTER(made)):
                return ctypes.cast(value, ctypes.c_void_p)
            raise TypeError(f"{type(value).__name__}, expected a {name}")

    return Pointer


@functools.cache
def callback_argument(name):
    kind = callback_type(name)

    class Callback(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            if value is None:
                return kind()
            return value if isinstance(value, kind) else wrapped(kind, value)

    return Callback


@functools.cache
def function(name):
    result, taken, comment, header = FUNCTIONS[name]
    found = getattr(library, name if name.startswith("flexlab_") else f"flexlab_{name}")
    found.argtypes = [argument_type(kind) for kind, _ in taken]
    if result == "tensor_status" and name != "tensor_error_status":
        found.restype, found.errcheck = ctypes.c_int, check_call
    elif result == "const char *":
        found.restype, found.errcheck = ctypes.c_char_p, lambda value, *_: value if value is None else value.decode(errors="replace")
    elif result == "void":
        found.restype = None
    else:
        found.restype = field_type(result)

    def call(*arguments):
        try:
            return _core.call(found, arguments)
        except ctypes.ArgumentError as error:  # what from_param raised
            number, kind, text = re.fullmatch(r"argument (\d+): (?:<class ')?(\w+)[^:]*: (.*)", str(error), re.S).groups()
            parameter = taken[int(number) - 1][1]
            raise {"ValueError": ValueError}.get(kind, TypeError)(f"{name}: {parameter}: {text}") from None

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{result} {name}({', '.join(' '.join(one) for one in taken)})\n\n{comment}\n\nflexlab/{header}"
    return call


def check_call(status, function, arguments):
    check(status)


def __getattr__(name):
    if name in FUNCTIONS:
        value = function(name)
    elif name in STRUCTS:
        value = struct(name)
    elif name in CONSTANTS:
        value = CONSTANTS[name]
    elif name in CALLBACKS:
        value = callback_type(name)
    else:
        raise AttributeError(f"the library has no '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return [*FUNCTIONS, *STRUCTS, *CONSTANTS, *CALLBACKS]
