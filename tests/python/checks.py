"""What the tests of the Python package share: checks that count, expected exceptions, the C library called without the
package, exact rounding."""
import ctypes
import os
import sys
import traceback

import flexlab as fl

checks = failures = 0
skipped = []
LONG = "long" in sys.argv[1:]
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # whose allocator keeps what is freed
ids = {"fp32": 1, "fp16": 2, "bf16": 3, "flex16+5": 4, "dfp16": 5, "f64": 240, "i32": 241, "u8": 242, "f32": 243}


def check(ok, *what):
    global checks, failures
    checks += 1
    if not ok:
        failures += 1
        if failures <= 20:
            print("FAILED:", *what)
    return bool(ok)


def raises(kinds, function, *arguments, says="", **keywords):
    """The exception that a call must raise, with this in its text."""
    name = getattr(function, "__name__", repr(function))
    try:
        result = function(*arguments, **keywords)
    except kinds as error:
        check(says in str(error), f"{name} says {str(error)!r}, expected {says!r} in it")
        return error
    except BaseException as error:
        check(False, f"{name} raises {error!r}, expected {kinds}")
        return error
    check(False, f"{name} returns {result!r}, expected {kinds}")


def skip(what):
    skipped.append(what)


def run(*tests):
    """Runs the functions, says what was found, and ends the process."""
    for test in tests:
        try:
            test()
        except Exception:
            check(False, test.__name__, "ended by", traceback.format_exc())
    for what in skipped:
        print("skipped:", what)
    check(checks > 0, "nothing was checked")
    print(f"{checks} checks, {failures} failures")
    sys.exit(1 if failures else 0)


def optional(name):
    try:
        return __import__(name)
    except ImportError:
        skip(f"what needs {name}, which is not installed")


# --- the C library, by declarations of this file alone ----------------------------------------------------------------

library = ctypes.CDLL(fl._core.__file__)


class C:
    """A tensor of C. `c(name, result)` is a function of the library."""
    def __init__(self, format, shape, strided=None):
        if strided is None:
            sizes = (ctypes.c_int64 * len(shape))(*shape)
            self.t = ctypes.c_void_p(c("tensor_new", ctypes.c_void_p)(format_id(format), len(shape), sizes))
        else:
            base, strides, offset = strided
            self.base = base
            n = len(shape)
            self.t = ctypes.c_void_p(c("tensor_new_strided", ctypes.c_void_p)(
                base.t, n, (ctypes.c_int64 * n)(*shape), (ctypes.c_int64 * n)(*strides), ctypes.c_int64(offset)))
        self.format, self.shape, self._as_parameter_ = format, tuple(shape), self.t  # lives as long as a call
        self.size = 1
        for size in shape:
            self.size *= size
        if not self.t:
            raise ValueError(c("tensor_error", ctypes.c_char_p)().decode())

    @classmethod
    def of(cls, tensor):
        """A bit-exact copy of a tensor of Python."""
        made = cls(tensor.format, tensor.shape)
        do("tensor_copy", made.t, ctypes.c_void_p(tensor._address))
        return made

    def bits(self):
        """The elements as stored, and the exponent."""
        width = {"f64": 8, "i32": 4, "u8": 1, "f32": 4}.get(self.format) or c("tensor_format_bytes", ctypes.c_size_t)(
            format_id(self.format))
        data = c("tensor_const_data", ctypes.c_void_p)(self.t)
        return ctypes.string_at(data, self.size * width), c("tensor_exponent", ctypes.c_int)(self.t)

    def values(self):
        out = (ctypes.c_double * self.size)()
        do("tensor_store_f64", self.t, out, ctypes.c_int64(self.size))
        return list(out)

    def __del__(self):
        if getattr(self, "t", None):
            c("tensor_free", None)(self.t)


def c(name, result=ctypes.c_int):
    function = getattr(library, "flexlab_" + name)
    function.restype = result
    return function


def do(name, *arguments):
    """Calls a function that returns a status; the status."""
    status = c(name)(*arguments)
    if status:
        raise ValueError(f"{name}: {c('tensor_error', ctypes.c_char_p)().decode()}")


def format_id(name):
    if name not in ids:
        found = ctypes.c_int()
        do("tensor_format_find", ctypes.byref(found), name.encode())
        ids[name] = found.value
    return ids[name]


def bits_of(x):
    """Of a tensor of Python: as C.bits."""
    return bytes(memoryview(fl._core.elements(x)).cast("B")) if x.size else b"", x.exponent or 0
