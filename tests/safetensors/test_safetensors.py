#!/usr/bin/env python3
"""safetensors files made byte by byte in Python are read as they were made; what the library writes, Python reads. Where
Python's own package `safetensors` is installed, it reads and writes them too.

    test_safetensors.py PATH-OF-TEST_SAFETENSORS [SEED]"""
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import safetensors_witness as witness

PROGRAM = os.path.abspath(sys.argv[1])
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 20
failures, checks = 0, 0


def check(condition, *what):
    global failures, checks
    checks += 1
    if not condition:
        failures += 1
        print("FAILED seed", SEED, *what)


def run(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(errors="replace")


def parse_dump(text):
    tensors, notes = {}, {}
    for line in text.splitlines():
        words = line.split(" ")
        if words[0] == "note":
            notes[bytes.fromhex(words[1]).decode()] = bytes.fromhex(words[2]).decode()
        else:
            colon = words.index(":")
            tensors[bytes.fromhex(words[1]).decode()] = (words[2], [int(w) for w in words[3:colon]], bytes.fromhex(words[colon + 1]))
    return tensors, notes


def text_of(rng):
    alphabet = "abcXYZ019._-/ \"\\\b\f\n\r\t\x01\x1f\x7fäßéλ中文\u2028\ufffd😀\U0010ffff"
    return "".join(rng.choice(alphabet) for _ in range(rng.randrange(12)))


def file_of(rng):
    tensors, names = [], set()
    for _ in range(rng.randrange(8)):
        name = text_of(rng)
        if name in names or name == "__metadata__":
            continue
        names.add(name)
        kind = rng.choice(list(witness.TYPES))
        shape = [rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(rng.randrange(9))]
        size = witness.TYPES[kind] * witness.count_of(shape)
        tensors.append((name, kind, shape, rng.randbytes(size)))
    notes = rng.choice((None, {}, {text_of(rng): text_of(rng) for _ in range(4)}))
    return tensors, notes


def contents(tensors, notes):
    return {n: (k, s, b) for n, k, s, b in tensors}, {k: v for k, v in (notes or {}).items() if k != "flexlab.crc32"}


def valid_files(rng, place):
    one, two = os.path.join(place, "one"), os.path.join(place, "two")
    for i in range(60):
        tensors, notes = file_of(rng)
        with open(one, "wb") as file:
            file.write(witness.write_bytes(tensors, notes, rng.random() < 0.5, rng.choice((None, 1)), rng.randrange(9)))
        status, text = run("dump", one)
        check(status == 0 and parse_dump(text) == contents(tensors, notes), i, "dump", status, text[:300])
        status, text = run("copy", one, two)
        check(status == 0, i, "copy", text)
        if status:
            continue
        back, back_notes = witness.read(two)
        check(back_notes.pop("flexlab.crc32") == witness.checksum(two), i, "checksum")
        check((back, back_notes) == contents(tensors, notes), i, "is copied as", back, back_notes)
        with open(two, "rb") as file:
            data = file.read()
        (length,) = struct.unpack("<Q", data[:8])
        check(length % 8 == 0 and data[8:9] == b"{", i, "header of", length)
        # Each tensor is aligned for its elements.
        header = __import__("json").loads(data[8:8 + length])
        check(all(t["data_offsets"][0] % witness.TYPES[t["dtype"]] == 0 for n, t in header.items() if n != "__metadata__"), i, "alignment")


def broken_files(rng, place):
    """Truncated anywhere, with a changed byte anywhere, or with added bytes: refused, or read with the meaning that
    Python reads."""
    path, refused = os.path.join(place, "broken"), 0
    for i in range(120):
        data = bytearray(witness.write_bytes(*file_of(rng)))
        how = i % 4
        if how == 0:
            del data[rng.randrange(len(data)):]
        elif how == 1:
            data += rng.randbytes(rng.randrange(1, 9))
        elif how == 2:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            (length,) = struct.unpack("<Q", data[:8])
            data[8 + rng.randrange(length)] = rng.choice(b'{}[]",:0129\\ueE. -a\x00\xff')
        with open(path, "wb") as file:
            file.write(data)
        status, text = run("dump", path)
        check(status in (0, 1), i, "status", status)
        try:
            expected = witness.read_bytes(bytes(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            expected = None
        if status == 0:
            check(expected is not None and parse_dump(text) == expected, i, how, "was accepted:", bytes(data)[:200])
        else:
            refused += 1
            check(text.startswith("data: safetensors: ") and path in text, i, how, "says", text)
            check(expected is None or how in (2, 3), i, how, "was refused:", text)  # Python is the more lenient
    check(refused >= 60, refused, "of 120 were refused")


def with_package(rng, place):
    try:
        import numpy
        from safetensors import safe_open
        from safetensors.numpy import save_file
    except ImportError:
        print("Python's packages safetensors and numpy are not installed: they are no witness here")
        return
    one, two = os.path.join(place, "package"), os.path.join(place, "copied")
    kinds = {"uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "float16": "F16", "int32": "I32", "float32": "F32",
             "int64": "I64", "uint64": "U64", "float64": "F64", "bool": "BOOL"}
    for i in range(10):
        arrays = {}
        for k, name in enumerate(kinds):
            shape = tuple(rng.choice((1, 2, 3)) for _ in range(rng.randrange(4)))
            size = numpy.dtype(name).itemsize * witness.count_of(shape)
            raw = bytes(b & 1 for b in rng.randbytes(size)) if name == "bool" else rng.randbytes(size)
            arrays[f"t{k}.{name}"] = numpy.frombuffer(raw, dtype=name).reshape(shape).copy()
        save_file(arrays, one, metadata={"a": "b", "é": "\""})
        status, text = run("dump", one)
        check(status == 0, i, text)
        tensors, notes = parse_dump(text)
        check(notes == {"a": "b", "é": "\""}, i, notes)
        check(tensors == {n: (kinds[a.dtype.name], list(a.shape), a.tobytes()) for n, a in arrays.items()}, i, "dumped otherwise")
        check(run("copy", one, two)[0] == 0, i, "copy")
        with safe_open(two, "numpy") as file:
            check(set(file.keys()) == set(arrays), i, "keys", file.keys())
            check(file.metadata()["a"] == "b", i, "metadata", file.metadata())
            for name in file.keys():
                t = file.get_tensor(name)
                check(t.dtype == arrays[name].dtype and t.shape == arrays[name].shape and t.tobytes() == arrays[name].tobytes(), i, name)


def main():
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as place:
        valid_files(rng, place)
        broken_files(rng, place)
        with_package(rng, place)
    print(f"seed {SEED}: {checks} checks, {failures} failures")
    return 1 if failures or not checks else 0


sys.exit(main())
