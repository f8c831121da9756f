"""The exceptions of the library: one class for each status, each with the library's message."""


class Error(Exception):
    """A failure of flexlab. `status` is the number of the C library (flexlab/status.h)."""
    status = 0


class ArgumentError(Error, ValueError):
    """A value out of range, an unknown name."""


class ShapeError(Error, ValueError):
    """Sizes that do not match."""


class FormatError(Error, ValueError):
    """A number format that the function does not take, or operands of different formats."""


class AllocationError(Error, MemoryError):
    """The system has no memory for it."""


class FileError(Error, OSError):
    """A file that cannot be opened, read or written."""


class DataError(Error, ValueError):
    """A file that is damaged, foreign, or does not suit."""


class UnsupportedError(Error, NotImplementedError):
    """The device, or this build, does not offer it."""


class DeviceError(Error, OSError):
    """A device failed."""


CLASSES = {1: ArgumentError, 2: ShapeError, 3: FormatError, 4: AllocationError, 5: FileError, 6: DataError,
           7: UnsupportedError, 8: DeviceError}


def fail(status, message):
    """Raises the exception of a status."""
    error = CLASSES.get(status, Error)(message)
    error.status = status
    raise error
