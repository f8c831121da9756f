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
import math
import operator
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
RANGES = {kind: (-2 ** (8 * ctypes.sizeof(kind) - 1), 2 ** (8 * ctypes.sizeof(kind) - 1) - 1) if kind(-1).value < 0 else
          (0, 2 ** (8 * ctypes.sizeof(kind)) - 1) for name, kind in SCALARS.items() if name not in ("bool", "float", "double", "char")}
called = {}  # the functions that were given as callbacks, as C calls them
pending = {}  # by thread, what its callbacks have raised and the function that called them has yet to raise


# The library that the extension is linked with: the loader looks for a symbol in what a module needs, too.
library = ctypes.CDLL(_core.__file__)
last_error = library["flexlab_tensor_error"]  # not the one of flexlab.c, which returns a str
last_error.restype = ctypes.c_char_p
# Functions without a status, by which C would refuse NULL, and every function of an autoflex.
NEEDED = {"data_pixel_values", "program_checksum"}


def message():
    return last_error().decode(errors="replace")


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


def whole(value, kind):
    """The int of a value, which an integer type of C must hold: ctypes would drop the bits above it."""
    least, most = RANGES[kind]
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{type(value).__name__}, expected an int") from None
    if not least <= number <= most:
        raise ValueError(f"{number}, expected {least} to {most}")
    return number


def real(value, kind):
    """The float of a value, which is infinite in C only if it is infinite here."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise TypeError(f"{type(value).__name__}, expected a number")
    number = float(value)
    if kind is ctypes.c_float and math.isfinite(number) and math.isinf(kind(number).value):
        raise ValueError(f"{number}, expected a number of binary32")
    return number


@functools.cache
def number_argument(kind):
    """An argument that is one number."""
    read = whole if kind in RANGES else real

    class Number:
        @classmethod
        def from_param(cls, value):
            return kind(read(value, kind))

    return Number


class Handle:
    """A pointer to an object of the library, which `free` frees when nobody refers to it; what must be freed before its
    parent is freed with it."""
    __slots__ = ("_cell", "_free", "_children", "__weakref__")

    def __init__(self, pointer, free=None, parent=None):
        if not pointer:
            check(library.flexlab_tensor_error_status())
            raise _errors.Error(message() or "the library returned no object")
        if not isinstance(pointer, Pointer):
            raise TypeError(f"{type(pointer).__name__}, expected a pointer that a function of flexlab.c has returned")
        self._cell, self._free, self._children = [pointer], free, []
        if parent is not None:  # which knows the cell, and not the object: the collector of cycles takes them in any order
            parent._children[:] = [one for one in parent._children if one[0][0]]
            parent._children.append((self._cell, free, self._children))

    @property
    def _pointer(self):
        return self._cell[0]

    @property
    def pointer(self):
        if not self._cell[0]:
            raise ValueError("this object has been freed")
        return self._cell[0].value

    def free(self):
        """Frees the object now; every later use is a ValueError."""
        release(self._cell, self._free, self._children)

    def __reduce__(self):
        raise TypeError("an object of the library cannot be copied or pickled")

    def __del__(self):
        try:
            self.free()
        except Exception:  # at the end of the process
            pass


def release(cell, free, children):
    for child in children:
        release(*child)
    pointer, cell[0] = cell[0], None
    if pointer and free:
        free(pointer)


class Pointer(ctypes.c_void_p):
    """A pointer to an object of the library, as its functions return it: flexlab.c.nn_graph, flexlab.c.program, ... An int is
    none. One that was freed is refused afterwards; one that the library owns, and lends, is not freed at all."""
    kind, lent = "object", False

    def __eq__(self, other):
        return isinstance(other, Pointer) and self.value == other.value

    def __hash__(self):
        return hash(self.value)

    def __repr__(self):
        return f"<{self.kind} at {self.value:#x}>" if self.value else f"<no {self.kind}>"

    def __reduce__(self):
        raise TypeError("an object of the library cannot be copied or pickled")


@functools.cache
def pointer_type(name):
    return type(name, (Pointer,), {"kind": name, "__doc__": f"A pointer to a {name}: of functions, and for those that make one."})


def object_of(value, kind):
    """The pointer of a declared kind in an argument; NULL for None."""
    if value is None:
        return None
    value = getattr(value, "_handle", value)
    if isinstance(value, Handle):
        value.pointer  # ValueError after free()
        value = value._cell[0]
    if not isinstance(value, Pointer):
        raise TypeError(f"{type(value).__name__}, expected a {kind} of the library")
    if value.kind != kind:
        raise TypeError(f"a {value.kind}, expected a {kind}")
    if not value:
        raise ValueError(f"a {kind} that has been freed, or was never made")
    return ctypes.c_void_p(value.value)


class TensorPointer(ctypes.c_void_p):
    @classmethod
    def from_param(cls, value):
        if isinstance(value, _core.Tensor) or hasattr(value, "_address"):  # a tensor, or one that a network lends
            return ctypes.c_void_p(value._address)
        if value is not None and not isinstance(value, (Pointer, Handle)):
            raise TypeError(f"{type(value).__name__}, expected a flexlab.Tensor")
        return object_of(value, "tensor")


class FreedPointer(ctypes.c_void_p):
    """What tensor_free takes: a pointer of tensor_new, but no tensor that Python frees."""
    @classmethod
    def from_param(cls, value):
        if value is not None and not isinstance(value, Pointer):
            raise TypeError(f"{type(value).__name__}, expected a pointer of tensor_new: a flexlab.Tensor is freed when nobody refers to it")
        return object_of(value, "tensor")


@functools.cache
def object_pointer(name):
    class ObjectPointer(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            return object_of(value, name)

    return ObjectPointer


@functools.cache
def place(name):
    """Where a function leaves a pointer: flexlab.c.program() or a pointer of ctypes to a struct, itself or by byref."""
    made = pointer_type(name) if name in OPAQUE else ctypes.POINTER(struct(name))

    class Place(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            if value is None:
                return None
            of = getattr(value, "_obj", value)  # of byref
            if not isinstance(of, made):
                raise TypeError(f"{type(of).__name__}, expected flexlab.c.{name}() for the result" if name in OPAQUE else
                                f"{type(of).__name__}, expected ctypes.POINTER(flexlab.c.{name})() for the result")
            return ctypes.byref(of)

    return Place


class TextBuffer(ctypes.c_void_p):
    """char *: where the function writes a text."""
    @classmethod
    def from_param(cls, value):
        if value is None:
            return None
        of = getattr(value, "_obj", value)
        if not isinstance(of, ctypes.Array) or of._type_ is not ctypes.c_char:
            raise TypeError(f"{type(of).__name__}, expected ctypes.create_string_buffer(size)")
        return ctypes.byref(of)


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
            of = getattr(value, "_obj", value)  # of byref
            if isinstance(of, scalar) or isinstance(of, ctypes.Array) and of._type_ is scalar:
                return ctypes.byref(of)
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
        if value is None:
            return None
        if isinstance(value, Memory):
            return object_of(value, "memory")
        if isinstance(value, bytes) and not cls.written:
            return ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p)
        if isinstance(value, (ctypes.Array, ctypes.Structure)):
            return ctypes.byref(value)
        if not hasattr(value, "__array_interface__"):
            raise TypeError(f"{type(value).__name__}, expected bytes or a contiguous array")
        return address_of(value, cls.written)


class Memory(Pointer):
    """Memory of a device, or elements of a tensor."""
    kind = "memory"


class Released(ctypes.c_void_p):
    """What tensor_device_release takes."""
    @classmethod
    def from_param(cls, value):
        return object_of(value, "memory")


class Context(ctypes.c_void_p):
    """What a callback is given again: None or a number."""
    @classmethod
    def from_param(cls, value):
        return value if value is None or isinstance(value, ctypes.c_void_p) else ctypes.c_void_p(operator.index(value))


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
    return pointer_type(name) if name in OPAQUE and stars == 1 else ctypes.c_void_p


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
        try:
            made, kept = member(declared, value, name)
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{type(self).__name__}: {name}: {error}") from None
        super().__setattr__(name, made)
        self.__dict__.setdefault("_kept", {})[name] = kept  # what it points to lives as long as the struct

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name, *_ in self._fields_)})"


def member(declared, value, name):
    """What a member of a struct is set to, and what must live as long."""
    if declared in RANGES:
        return whole(value, declared), None
    if declared in (ctypes.c_float, ctypes.c_double):
        return real(value, declared), None
    if declared is ctypes.c_bool and value not in (True, False):
        raise TypeError(f"{value!r}, expected True or False")
    if declared is ctypes.c_char_p:
        text = Text.from_param(value)
        return text and text.value, text
    if declared is pointer_type("tensor"):
        address = TensorPointer.from_param(value)
        return address and address.value, value
    if issubclass(declared, Pointer):
        address = object_of(value, declared.kind)
        return address and address.value, value
    if declared is ctypes.c_void_p and isinstance(value, int) and not name.endswith("context"):
        raise TypeError("int, expected an array or None")
    if callable(value) and not isinstance(value, (type, ctypes._CFuncPtr)) and issubclass(declared, ctypes._CFuncPtr):
        made = wrapped(declared, value)
        return made, made
    if issubclass(declared, ctypes.Array):
        if isinstance(value, (tuple, list)) or hasattr(value, "__array_interface__"):
            if len(value) > declared._length_:
                raise ValueError(f"{len(value)} entries, expected at most {declared._length_}")
            of = declared._type_
            return declared(*(whole(one, of) if of in RANGES else one for one in value)), None
    elif issubclass(declared, ctypes._Pointer) and isinstance(value, Struct):
        return ctypes.pointer(value), value
    elif hasattr(value, "__array_interface__"):
        kind = next((name for name, one in SCALARS.items() if one is getattr(declared, "_type_", None)), None)
        address = numbers(kind, False).from_param(value) if kind else address_of(value, False)
        return ctypes.cast(address, declared), value
    return value, value


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
    if returned is not None and issubclass(returned, Pointer):
        returned = ctypes.c_void_p
    return ctypes.CFUNCTYPE(returned, *(field_type(kind) for kind, _ in taken))


@functools.cache
def callback_type(name):
    result, taken, _ = CALLBACKS[name]
    return function_type(result, taken)


def wrapped(kind, function):
    """A callback whose exceptions wait until the function that calls it returns; it then asks to stop."""
    # A status other than 0 ends what calls it; 0 from a predictor leaves the exponent as it is.
    stop = None if kind._restype_ in (None, ctypes.c_void_p) else 0 if kind._restype_ is ctypes.c_double else 1

    convert = {ctypes.c_double: float, ctypes.c_int: lambda value: operator.index(value or 0)}.get(kind._restype_, lambda value: value)

    def run(*arguments):
        if threading.get_ident() in pending:
            return stop
        return convert(function(*arguments))
    return kind(_core.guard(run, remember, stop))


@functools.cache
def argument_type(kind):
    name, stars = resolved(base(kind)), kind.count("*")
    if stars == 0:
        if name in CALLBACKS:
            return callback_argument(name)
        made = field_type(kind)
        return number_argument(made) if made in RANGES or made in (ctypes.c_float, ctypes.c_double) else made
    if name in CALLBACKS:
        return callback_argument(name)
    if stars > 1:
        return place(name)
    if name == "tensor":
        return TensorPointer
    if name in OPAQUE:
        return object_pointer(name)
    if name == "char":
        return Text if kind.startswith("const") else TextBuffer
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
def needed(made, kind):
    """A pointer that must not be NULL."""
    class Needed(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            if value is None:
                raise TypeError(f"None, expected {'an array of ' if base(kind) in SCALARS else ''}{base(kind)}")
            return made.from_param(value)

    return Needed


@functools.cache
def callback_argument(name):
    kind = callback_type(name)

    class Callback(ctypes.c_void_p):
        @classmethod
        def from_param(cls, value):
            if value is None:
                return kind()
            if isinstance(value, kind):
                return value
            if not callable(value):
                raise TypeError(f"{type(value).__name__}, expected a function")
            # The library may keep it, so it lives as long as the process: once for each function.
            return called.setdefault((name, id(value)), (wrapped(kind, value), value))[0]

    return Callback


@functools.cache
def function(name):
    result, taken, comment, header = FUNCTIONS[name]
    found = getattr(library, name if name.startswith("flexlab_") else f"flexlab_{name}")
    found.argtypes = [Context if kind == "void *" and parameter == "context" else argument_type(kind) for kind, parameter in taken]
    found.argtypes = [needed(made, kind) if "*" in kind and (name in NEEDED or base(kind) == "autoflex") else made
                      for made, (kind, _) in zip(found.argtypes, taken)]
    frees = name.endswith(("_free", "_clear")) or name == "tensor_device_release"
    if name == "tensor_free":
        found.argtypes = [FreedPointer]
    elif name == "nn_telemetry_watch":
        found.argtypes = [found.argtypes[0], needed(object_pointer("nn_telemetry"), "nn_telemetry *")]
    elif name == "tensor_device_release":
        found.argtypes = [object_pointer("tensor_device"), Released]
    if result == "tensor_status" and name != "tensor_error_status":
        found.restype, found.errcheck = ctypes.c_int, check_call
    elif result == "const char *":
        found.restype, found.errcheck = ctypes.c_char_p, lambda value, *_: value if value is None else value.decode(errors="replace")
    elif result == "void":
        found.restype = None
    else:
        found.restype = Memory if result.endswith("void *") else field_type(result)
        if issubclass(found.restype, Pointer):
            lent = not name.endswith("_allocate") if found.restype is Memory else result.startswith("const ")
            found.errcheck = functools.partial(returned, lent)

    def call(*arguments):
        if frees and arguments:
            last = arguments[-1]
            if len(arguments) == 1 and isinstance(getattr(last, "_handle", last), Handle):
                return (last if hasattr(last, "free") else last._handle).free()  # once, and Python knows
            refuse_lent(name, last)
        try:
            made = _core.call(found, arguments)
        except ctypes.ArgumentError as error:  # what from_param raised
            number, kind, text = re.fullmatch(r"argument (\d+): (?:<class ')?(\w+)[^:]*: (.*)", str(error), re.S).groups()
            parameter = taken[int(number) - 1][1]
            kinds = {"ValueError": ValueError, "KeyboardInterrupt": KeyboardInterrupt}
            raise kinds.get(kind, TypeError)(f"{name}: {parameter}: {text}") from None
        if frees and isinstance(arguments[-1], Pointer):
            arguments[-1].value = None
        return made

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{result} {name}({', '.join(' '.join(one) for one in taken)})\n\n{comment}\n\nflexlab/{header}"
    return call


def returned(lent, value, function, arguments):
    """A pointer that a function returned; None for NULL."""
    value.lent = lent
    return value or None


def refuse_lent(name, value):
    """An object that is not the caller's is not freed: what a network or a tensor lends, and what Python has put into a struct."""
    if isinstance(value, Pointer) and value.lent or isinstance(value, Struct) and any(
            kept is not None for kept in value.__dict__.get("_kept", {}).values()):
        raise ValueError(f"{name}: {value!r} is not the caller's to free")


def check_call(status, function, arguments):
    check(status)


def __getattr__(name):
    if name in FUNCTIONS:
        value = function(name)
    elif name in STRUCTS:
        value = struct(name)
    elif name in OPAQUE:
        value = pointer_type(name)
    elif name in CONSTANTS:
        value = CONSTANTS[name]
    elif name in CALLBACKS:
        value = callback_type(name)
    else:
        raise AttributeError(f"the library has no '{name}'")
    globals()[name] = value
    return value


def __dir__():
    return [*FUNCTIONS, *STRUCTS, *OPAQUE, *CONSTANTS, *CALLBACKS]
