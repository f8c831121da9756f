"""The extension module: what flexlab.Tensor inherits. Its operations are in _operations.pyi."""
from typing import Any
from ._operations import *

OPERATIONS: list[str]

def __getattr__(name: str) -> Any: ...

class Tensor:
    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, row-major."""
    @property
    def format(self) -> str:
        """The name of the number format."""
    @property
    def ndim(self) -> int:
        """The number of dimensions."""
    @property
    def size(self) -> int:
        """The number of elements."""
    @property
    def nbytes(self) -> int:
        """Bytes of the elements, and of the wide part where there is one."""
    @property
    def exponent(self) -> int | None:
        """The shared exponent e: a mantissa m is m * 2**-e. None without one."""
    @property
    def device(self) -> str:
        """The device that it lies on."""
    @property
    def base(self) -> Any:
        """What its memory belongs to; None: itself."""
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """The elements for another library, without a copy (DLPack 1.1). BufferError for a format that it cannot express."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
