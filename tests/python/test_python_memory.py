#!/usr/bin/env python3
"""Who owns which memory: a million objects made and dropped leave nothing behind; views, arrays, buffers and capsules keep
their tensor alive, and nothing reaches a tensor that was freed; DLPack both ways, by every version, consumed or dropped;
writing through mantissa and raw is seen by the wide part.
usage: test_python_memory.py [long]"""
import ctypes
import gc
import os
import weakref

import numpy as np

from checks import LONG, SANITIZED, check, fl, optional, raises, run, skip

OBJECTS = 1_000_000 if LONG else 60_000
ml_dtypes = optional("ml_dtypes")
torch = optional("torch")
python = ctypes.pythonapi
python.PyCapsule_GetName.restype, python.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def level(what, make, count=OBJECTS):
    """The resident memory after many objects is that after a tenth of them."""
    for _ in range(count // 10):
        make()
    before = resident()
    for _ in range(count):
        make()
    grown = resident() - before
    check(grown < 1_500_000, f"{count} times {what}: {grown} bytes more, {grown / count:.1f} each")


def objects():
    if SANITIZED:
        return skip("levels of memory, under a sanitizer")
    x = fl.tensor(np.arange(12.0).reshape(3, 4), "flex16+5")
    y, n = fl.empty((3, 4), "flex16+5"), np.zeros((3, 4), "f4")
    level("empty", lambda: fl.empty((3, 4), "bf16"))
    level("add", lambda: fl.add(x, x))
    level("add with out=", lambda: fl.add(x, x, out=y))
    level("a view", lambda: x[1:, ::-1])
    level("a view of a view", lambda: x.T[1:][::2], OBJECTS // 4)
    level("reshape", lambda: x.reshape(-1))
    level("numpy", lambda: x.numpy(), OBJECTS // 2)
    level("load", lambda: y.load(n), OBJECTS // 2)
    level("mantissa", lambda: x.mantissa, OBJECTS // 2)
    level("a function with several results", lambda: fl.moments(x), OBJECTS // 4)
    level("a copy", lambda: x.T.contiguous(), OBJECTS // 4)
    level("statistics", lambda: x.statistics, OBJECTS // 20)
    level("a wrong call", lambda: refused(lambda: fl.add(x, 3)), OBJECTS // 4)
    level("a wrong shape", lambda: refused(lambda: fl.add(x, x.reshape(12))), OBJECTS // 4)
    level("a wrong keyword", lambda: refused(lambda: fl.add(x, x, nothing=1)), OBJECTS // 4)
    level("a wrong out", lambda: refused(lambda: fl.add(x, x, out=(1, 2))), OBJECTS // 4)
    f = fl.tensor(np.arange(12.0).reshape(3, 4), "fp32")
    level("a capsule dropped", lambda: f.__dlpack__(), OBJECTS // 2)
    level("a capsule of version 1 dropped", lambda: f.__dlpack__(max_version=(1, 0)), OBJECTS // 2)
    level("numpy.from_dlpack", lambda: np.from_dlpack(f), OBJECTS // 4)
    level("from_dlpack", lambda: fl.from_dlpack(f), OBJECTS // 4)
    level("a refused capsule", lambda: refused(lambda: x.__dlpack__()), OBJECTS // 4)
    if torch:
        level("torch.from_dlpack", lambda: torch.from_dlpack(f), OBJECTS // 10)
        level("from torch", lambda: fl.from_dlpack(torch.from_dlpack(f), copy=False), OBJECTS // 10)


def refused(call):
    try:
        call()
    except Exception:
        return
    raise AssertionError("the call was not refused")


def views_keep_their_tensor():
    x = fl.tensor(np.arange(24.0).reshape(4, 6), "flex16+5")
    v, flat = x[1::2, ::-1], x.reshape(24)
    words = np.asarray(x.mantissa)
    expected = x.numpy()
    again = v.T[::2]
    check(v.base is x and flat.base is x and again.base is x, "views have their base")
    address = words.ctypes.data
    del x
    gc.collect()
    others = [fl.tensor(np.full((4, 6), 7.0), "flex16+5") for _ in range(50)]  # would take memory that was freed
    check(np.array_equal(v.numpy(), expected[1::2, ::-1]), "a view after its tensor's name is gone")
    check(np.array_equal(again.numpy(), expected[1::2, ::-1].T[::2]), "a view of a view")
    check(np.array_equal(flat.numpy(), expected.reshape(24)), "a view in another shape")
    check(np.array_equal(words, np.ldexp(expected, v.exponent).astype("i2")) and words.ctypes.data == address, "mantissas")
    mantissas = words.tolist()
    del v, flat, again
    gc.collect()
    more = [fl.tensor(np.full((4, 6), 7.0), "flex16+5") for _ in range(50)]
    check(words.tolist() == mantissas, "mantissas alone keep it")
    check(all(not np.shares_memory(words, one.mantissa) for one in others + more), "memory of its own")
    y = fl.Tensor()
    for use in (lambda: y.shape, lambda: y.numpy(), lambda: fl.add(y, y), lambda: memoryview(y), lambda: y.exponent,
                lambda: fl.c.tensor_exponent(y), lambda: y[0], lambda: fl.add(fl.zeros(3), fl.zeros(3), out=y)):
        raises((ValueError, BufferError), use, says="never made")
    seen = weakref.ref(y)
    check(seen() is y, "a weak reference")
    del y
    gc.collect()
    check(seen() is None, "a weak reference to what has ended")


def buffers():
    x = fl.tensor(np.arange(6.0).reshape(2, 3), "fp16")
    m = memoryview(x)
    check(m.format == "e" and m.shape == (2, 3) and m.strides == (6, 2) and not m.readonly and m.nbytes == 12, m)
    np.asarray(m)[0, 1] = 9
    check(x.numpy()[0, 1] == 9, "written through a buffer")
    check(memoryview(x[:, ::2]).strides == (6, 4) and memoryview(x.T).shape == (3, 2), "strides")
    check(np.array_equal(np.asarray(memoryview(x[::-1, 1:])), x.numpy()[::-1, 1:]), "a buffer of a view")
    for letter, format in (("f", "fp32"), ("d", "f64"), ("i", "i32"), ("B", "u8"), ("f", "f32")):
        check(memoryview(fl.zeros(3, format)).format == letter, format, letter)
    for format in ("bf16", "flex16+5", "dfp8", "e4m3fn"):  # words that are no values
        raises(BufferError, memoryview, fl.zeros(3, format), says=format)
    y = fl.tensor([1.0, 2.0, 3.0], "flex16+5")
    check(y.mantissa.dtype == np.int16 and np.shares_memory(y.mantissa, y.mantissa), "one memory")
    y.mantissa[1] = -5
    check(y.numpy("f8")[1] == -5 * 2.0 ** -y.exponent, "written through mantissa")
    raises(fl.FormatError, lambda: fl.zeros(3, "bf16").mantissa, says="bf16")
    check(bytes(fl.tensor([1.0, 2.0], "fp32")) == np.array([1, 2], "f4").tobytes(), "bytes")
    raises((BufferError, ValueError), y._load, b"xyz", 13)
    raises(ValueError, y.__array__, copy=False, says="copy")
    check(np.array(y).dtype == np.float32 and np.asarray(y, "f8").dtype == np.float64, "__array__")
    if ml_dtypes:
        z = fl.tensor([1.5, -2.0], "bf16")
        check(z.raw.dtype == ml_dtypes.bfloat16 and float(z.raw[0]) == 1.5, z.raw)
        z.raw[0] = 4
        check(z.numpy()[0] == 4, "written through raw")


def wide_parts():
    """An element that is no longer the rounding of its wide one becomes its wide one; others keep theirs."""
    values = np.array([1 / 3, 2 / 3, -1 / 7, 5.0])
    for format in ("flex16+5", "dfp16", "fp16", "bf16", "flex10+5", "e4m3fn"):
        x = fl.zeros(4, format)
        x.keep_wide()
        x.load(values)
        wide = x.wide()
        check(np.abs(wide - values).max() < np.abs(x.numpy("f8") - values).max() / 50, format, wide, "has more digits")
        stored = x.mantissa if x.exponent is not None else x.raw
        stored[2] = stored[0]
        after = x.wide()
        check(after[2] == x.numpy("f8")[0] and np.array_equal(np.delete(after, 2), np.delete(wide, 2)), format, after, wide)
        stored[:] = stored  # the same words: nothing is lost
        check(np.array_equal(x.wide(), after), format, "written as it was")
        y = x.copy()
        check(np.array_equal(y.wide(), after) and np.array_equal(y.numpy(), x.numpy()), format, "a copy has the wide part")
        raises(TypeError, __import__("pickle").dumps, x, says="wide part")


def dlpack():
    x = fl.tensor(np.arange(6.0).reshape(2, 3), "fp32")
    check(x.__dlpack_device__() == (1, 0), x.__dlpack_device__())
    for version, name in ((None, b"dltensor"), ((0, 8), b"dltensor"), ((1, 0), b"dltensor_versioned"), ((1, 1), b"dltensor_versioned")):
        check(python.PyCapsule_GetName(x.__dlpack__(max_version=version)) == name, version, name)
    raises(BufferError, x.__dlpack__, dl_device=(2, 0), says="expected 1, the host")
    for wrong in ((1,), "1.0", 5, (1, "a")):
        raises(TypeError, x.__dlpack__, max_version=wrong)
    raises(TypeError, x.__dlpack__, nothing=1)
    for format in ("flex16+5", "dfp16", "e3m4", "flex8+5"):
        raises(BufferError, fl.zeros(3, format).__dlpack__, says=format)
    for format, name in (("fp32", "f4"), ("fp16", "f2"), ("f64", "f8"), ("f32", "f4"), ("i32", "i4"), ("u8", "u1")):  # docs/python.md
        t = fl.tensor([1, 2], format)
        check(np.from_dlpack(t).dtype == np.asarray(memoryview(t)).dtype == np.dtype(name), format)
    for format, name in (("bf16", "u2"), ("e4m3fn", "u1"), ("e5m2", "u1"), ("e3m4", "u1"), ("e6m9", "u2")):
        t = fl.tensor([1, 2], format)
        raises((BufferError, RuntimeError), np.from_dlpack, t)
        raises(BufferError, memoryview, t, says=format)
        check(np.shares_memory(np.from_dlpack(t.raw.view(name)), t.raw), f"the words of {format}")
    n = np.from_dlpack(x)
    check(np.shares_memory(n, np.asarray(memoryview(x))) and np.array_equal(n, x.numpy()), "numpy shares the memory")
    v = np.from_dlpack(x[:, ::2])
    check(np.shares_memory(v, n) and np.array_equal(v, x.numpy()[:, ::2]), "a view with strides")
    check(np.array_equal(np.from_dlpack(x[::-1, 1]), x.numpy()[::-1, 1]), "turned")
    m = np.from_dlpack(fl.tensor([1.0, 2.0], "flex16+5").mantissa)
    check(m.dtype == np.int16 and m.tolist() == [8192, 16384], m)  # mantissas, whose tensor has no other name
    y = fl.from_dlpack(x)  # each other's
    y.load(np.full((2, 3), 4.0))
    check(x.numpy().tolist() == [[4] * 3] * 2 and n[0, 0] == 4, "one memory")
    del x, y
    gc.collect()
    keep = [fl.zeros((2, 3)) for _ in range(50)]
    check(n.tolist() == [[4] * 3] * 2 and len(keep) == 50, "the array keeps the tensor")
    # copies
    x = fl.tensor([1.0, 2.0], "fp16")
    if tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1):
        copied = np.from_dlpack(x, copy=True)
        check(copied.tolist() == [1, 2] and not np.shares_memory(copied, np.asarray(memoryview(x))), "copy=True")
    pointer = python.PyCapsule_GetPointer(capsule := x.__dlpack__(max_version=(1, 1), copy=True), b"dltensor_versioned")
    flags = ctypes.cast(pointer + 24, ctypes.POINTER(ctypes.c_uint64))[0]
    check(flags == 2 and capsule, f"flags {flags}, expected 2: copied")
    # from others
    buffer = np.zeros(64, "f4")
    aligned = buffer[(-buffer.ctypes.data % 64) // 4:][:12].reshape(3, 4)
    t = fl.from_dlpack(aligned, copy=False)
    aligned[1, 2] = 8
    check(t.format == "fp32" and t.shape == (3, 4) and t.numpy()[1, 2] == 8, "NumPy's memory")
    del buffer, aligned
    gc.collect()
    check(t.numpy()[1, 2] == 8, "keeps the array")
    moved = np.zeros(64, "f4")
    shifted = moved[(-moved.ctypes.data % 64) // 4 + 1:][:8]
    raises(BufferError, fl.from_dlpack, shifted, copy=False, says="aligned")
    check(fl.from_dlpack(shifted).shape == (8,), "copied where it must be")
    raises(BufferError, fl.from_dlpack, t.numpy()[:, ::2], copy=False, says="not contiguous")
    frozen = np.zeros(64, "f4")
    frozen.flags.writeable = False
    raises((BufferError, ValueError, TypeError), fl.from_dlpack, frozen, copy=False)  # as NumPy has it
    raises(BufferError, fl.from_dlpack, np.zeros(8, "c8"))
    raises((TypeError, AttributeError), fl.from_dlpack, [1, 2])
    once = np.zeros(256, "f4")
    capsule = once[(-once.ctypes.data % 64) // 4:][:8].__dlpack__()
    first = fl._core.from_dlpack(capsule)
    check(python.PyCapsule_GetName(capsule) == b"used_dltensor" and first.shape == (8,), "consumed once")
    raises(ValueError, fl._core.from_dlpack, capsule)
    raises(ValueError, fl._core.from_dlpack, 3)


def with_torch():
    if not torch:
        return
    for format, kind in (("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16), ("f64", torch.float64),
                         ("i32", torch.int32), ("u8", torch.uint8)):
        x = fl.tensor(np.arange(1, 7).reshape(2, 3), format)
        t = torch.from_dlpack(x)
        check(t.dtype == kind and t.double().tolist() == [[1, 2, 3], [4, 5, 6]], format, t)
        t[0, 0] = 9
        check(x.numpy("f8")[0, 0] == 9, format, "one memory")
        back = fl.from_dlpack(t, copy=False)
        check(back.format == format and back.numpy("f8").tolist() == [[9, 2, 3], [4, 5, 6]], format, back)
        del x
        gc.collect()
        check(t[1, 2] == 6 and back.numpy("f8")[1, 2] == 6, format, "torch keeps the tensor")
    t = torch.from_dlpack(fl.tensor(np.arange(6.0).reshape(2, 3), "fp32").T)
    check(t.tolist() == [[0, 3], [1, 4], [2, 5]], "a transposed view")
    x = fl.tensor(torch.tensor([1.5, 2.5], requires_grad=True), "flex16+5")
    check(x.numpy().tolist() == [1.5, 2.5], "values of a tensor that needs gradients")
    check(fl.tensor(torch.tensor([1.5], dtype=torch.bfloat16), "bf16").item() == 1.5, "values of bfloat16")
    raises(Exception, fl.from_dlpack, torch.tensor([1.0], requires_grad=True), copy=False)


run(views_keep_their_tensor, buffers, wide_parts, dlpack, with_torch, objects)
