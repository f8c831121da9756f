"""flexlab: training of neural networks in 16-bit formats, and narrower ones, with real arithmetic.

    import flexlab as fl
    x = fl.tensor([[1.5, -2.25]], "flex16+5")
    w = fl.tensor([[0.5], [3.0]], "flex16+5")
    print(x @ w, (x @ w).exponent)

Every number is the C library's own. flexlab.c has all of its functions by their own names."""
from . import _core, _library as c
from ._errors import (AllocationError, ArgumentError, DataError, DeviceError, Error, FileError, FormatError, ShapeError,
                      UnsupportedError)
from ._tensor import Tensor, empty, from_dlpack, tensor, zeros

OPERATIONS = tuple(_core.OPERATIONS)
globals().update({name: getattr(_core, name) for name in OPERATIONS})
__version__ = c.flexlab_version()
LAZY = {"nn": "nn", "quantize": "_quantize", "quantise": "_quantize", "predictor": "_predictors", "predictors": "_predictors", "replay": "_predictors", "train": "_training",
        "compare": "_training", "read": "_results", "torch": "torch", "formats": "_quantize"}


def __getattr__(name):
    if name not in LAZY:
        raise AttributeError(f"module 'flexlab' has no attribute '{name}'")
    import importlib
    module = importlib.import_module(f".{LAZY[name]}", __name__)
    value = module if LAZY[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return [*globals(), *LAZY]


def set_threads(count):
    """The number of threads of every operation; 0: one for each processor. Results do not depend on it."""
    c.tensor_set_threads(count)


def threads():
    """The number of threads of operations."""
    return c.tensor_threads()


def devices():
    """The names of the devices of this machine and build, the host first."""
    names, i = [], 0
    while device := c.tensor_device_at(i):
        names.append(c.tensor_device_name(device))
        i += 1
    return names
