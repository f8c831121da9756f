#!/usr/bin/env python3
"""Sets in arrays of NumPy, read by the library and computed again here: files and archives are written byte by byte by
this program's own writer, by the zipfile module, and by NumPy if it is installed. Every pixel and label is compared.
usage: test_data_arrays.py PRINT_SET"""
import io
import itertools
import os
import pathlib
import struct
import sys
import tempfile
import zipfile
import zlib

import sets_harness as sets
from sets_harness import check, opened, refused

sets.PRINT_SET = sys.argv[1]
chance = sets.seeded()
try:
    import numpy
except ImportError:
    numpy = None
print("NumPy", numpy.__version__ if numpy else "is not installed: files of this program's own writer alone")


# --- writers ----------------------------------------------------------------------------------------------------------
def npy(descr, fortran, shape, elements, version=1, header=None, pad=True):
    if header is None:
        shape = f"({shape[0]},)" if len(shape) == 1 else "(" + ", ".join(map(str, shape)) + ")"
        header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}"
    header = header.encode("utf-8" if version == 3 else "latin-1")
    prefix = 10 if version == 1 else 12
    if pad:
        header += b" " * (-(prefix + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<H" if version == 1 else "<I", len(header)) + header + elements


def fortran_order(flat, shape):
    """The elements of C order `flat` with the first index running fastest."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * shape[i + 1]
    return [flat[sum(i * s for i, s in zip(reversed(index), strides))]
            for index in itertools.product(*(range(n) for n in reversed(shape)))]


CODES = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "u8": "Q", "i8": "q"}


def label_file(values, descr, shape=None, **more):
    return npy(descr, False, shape or (len(values),),
               struct.pack((">" if descr[0] == ">" else "<") + f"{len(values)}{CODES[descr[1:]]}", *values), **more)


class Archive:
    """A zip archive, byte by byte."""

    def __init__(self):
        self.body = self.directory = b""
        self.count = 0

    def add(self, name, data, deflated=True, descriptor=False, wide=False, local_wide=False, level=6, **wrong):
        """wide: sizes and place in an extra field of the directory; local_wide: sizes so in the local header, as NumPy does."""
        squeezed = data
        if deflated:
            z = zlib.compressobj(level, zlib.DEFLATED, -15)
            squeezed = z.compress(data) + z.flush()
        squeezed = wrong.get("squeezed", squeezed)
        crc = wrong.get("crc", zlib.crc32(data))
        length, packed = wrong.get("length", len(data)), wrong.get("packed", len(squeezed))
        method = wrong.get("method", 8 if deflated else 0)
        flags = wrong.get("flags", 0) | (8 if descriptor else 0)
        at = wrong.get("at", len(self.body))
        name = name.encode()
        local_name = wrong.get("local_name", name)
        sizes = (0, 0, 0) if descriptor else (crc, 0xFFFFFFFF, 0xFFFFFFFF) if local_wide else (crc, packed & 0xFFFFFFFF, length & 0xFFFFFFFF)
        extra = struct.pack("<HHQQ", 1, 16, length, packed) if local_wide else b""
        self.body += struct.pack("<4sHHHHHIIIHH", wrong.get("local_sign", b"PK\3\4"), 45 if wide else 20, flags, wrong.get("local_method", method),
                                 0, 33, *sizes, len(local_name), len(extra)) + local_name + extra + squeezed
        if descriptor:
            self.body += (b"PK\7\10" if chance.random() < 0.5 else b"") + struct.pack("<III", crc, packed, length)
        extra = chance.choice([b"", b"\x55\x54\5\0\1abcd"])
        if wide:
            extra += struct.pack("<HHQQQ", 1, 24, length, packed, at)
        far = 0xFFFFFFFF
        self.directory += struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 20, 45 if wide else 20, flags, method, 0, 33, crc,
                                      far if wide else packed, far if wide else length, len(name), len(extra), 0, 0, 0, 0,
                                      far if wide else at) + name + extra
        self.count += 1
        return self

    def end(self, wide=False, comment=b"", **wrong):
        count, at = wrong.get("count", self.count), wrong.get("at", len(self.body))
        size = wrong.get("size", len(self.directory))
        result = self.body + self.directory
        if wide:
            result += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, at)
            result += struct.pack("<4sIQI", b"PK\6\7", 0, wrong.get("at64", len(self.body) + len(self.directory)), 1)
            count, size, at = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
        return result + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count, count, size, at, len(comment)) + comment


# --- cases --------------------------------------------------------------------------------------------------------------
def expect(spec, split, shape, pixels, labels, classes):
    got = opened(spec, split, threads=chance.choice([1, 2, 3]))
    if got:
        full = tuple(shape) if len(shape) == 4 else (*shape, 1)
        check(got.shape == full and got.classes == classes, spec, "shape", got.shape, full, "classes", got.classes, classes)
        check(got.labels == labels, spec, "labels differ")
        check(got.pixels == pixels, spec, shape, "pixels differ")


def random_images():
    shape = [chance.choice([1, 2, 63, 64, 65, 130]), chance.randint(1, 7), chance.randint(1, 9)]
    if chance.random() < 0.7:
        shape.append(chance.randint(1, 4))
    total = 1
    for n in shape:
        total *= n
    return shape, chance.randbytes(total)


def random_labels(count):
    descr = chance.choice(["|u1", "<u1", "|i1", "<u2", ">u2", "<i2", ">i2", "<u4", ">i4", "<i4", ">u8", "<i8", ">i8"])
    most = {"u1": 255, "i1": 127, "i2": 32767}.get(descr[1:], 65535)
    values = [chance.choice([0, 1, most, chance.randint(0, most), chance.randint(0, 9)]) for _ in range(count)]
    return descr, values


def one_case(folder, number):
    parts = {}
    for split in ("train", "test"):
        shape, pixels = random_images()
        fortran = chance.random() < 0.5
        stored = bytes(fortran_order(pixels, shape)) if fortran else pixels
        descr, labels = random_labels(shape[0])
        version = chance.choice([1, 1, 2, 3])
        column = chance.random() < 0.2
        images_file = npy("|u1", fortran, shape, stored, version=version)
        labels_file = label_file(labels, descr, (len(labels), 1) if column else None, version=version)
        parts[split] = shape, pixels, labels, max(max(labels) + 1, 2), images_file, labels_file
    paths = []
    for split in parts:
        for i, kind in enumerate(("images", "labels")):
            paths.append(folder / f"{number}-{split}-{kind}.npy")
            paths[-1].write_bytes(parts[split][4 + i])
    for split in parts:
        expect("npy:" + ",".join(map(str, paths)), split, *parts[split][:4])
    # The same in archives.
    names = chance.choice([("x_{}", "y_{}"), ("{}_images", "{}_labels")])
    archive = Archive()
    members = [(n.format(split) + ".npy", parts[split][4 + i]) for split in parts for i, n in enumerate(names)]
    if chance.random() < 0.5:
        members.append(("readme.txt", b"of no use here"))
    chance.shuffle(members)
    for name, data in members:
        archive.add(name, data, deflated=chance.random() < 0.6, descriptor=chance.random() < 0.3, wide=chance.random() < 0.3,
                    local_wide=chance.random() < 0.3, level=chance.choice([1, 6, 9]))
    path = folder / f"{number}.npz"
    path.write_bytes(archive.end(wide=chance.random() < 0.3, comment=chance.choice([b"", b"a comment", b"PK\5\6" + bytes(30)])))
    for split in parts:
        expect(f"npz:{path}", split, *parts[split][:4])
    single = []
    for split in parts:
        names = chance.choice([("images", "labels"), ("x", "y"), ("arr_0", "arr_1"), (f"x_{split}", f"y_{split}")])
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as z:
            for i in range(2):
                with z.open(names[i] + ".npy", "w", force_zip64=True) as member:  # as numpy.savez does
                    member.write(parts[split][4 + i])
        single.append(folder / f"{number}-{split}.npz")
        single[-1].write_bytes(buffer.getvalue())
    for split in parts:
        expect(f"npz:{single[0]},{single[1]}", split, *parts[split][:4])
    shape, pixels, labels, classes = parts["train"][:4]
    expect(f"npz:{single[0]},classes={classes + 5 if classes < 60000 else classes}", "train", shape, pixels, labels,
           classes + 5 if classes < 60000 else classes)


def written_by_numpy(folder):
    for order, dtype in itertools.product("CF", ("u1", "<i8", ">i4", "i2")):
        shape = (chance.randint(1, 70), 3, 5, 2)
        images = numpy.frombuffer(chance.randbytes(shape[0] * 30), "u1").reshape(shape)
        labels = numpy.array([chance.randrange(100) for _ in range(shape[0])], dtype=dtype)
        stored = numpy.asfortranarray(images) if order == "F" else images
        for save in (numpy.savez, numpy.savez_compressed):
            save(folder / "numpy.npz", x_train=stored, y_train=labels)
            expect(f"npz:{folder}/numpy.npz", "train", shape, images.tobytes(), labels.tolist(), max(labels.max() + 1, 2))
        for version in ((1, 0), (2, 0), (3, 0)):
            for name, array in (("i", stored), ("l", labels)):
                with open(folder / f"{name}.npy", "wb") as f:
                    numpy.lib.format.write_array(f, array, version=version)
            expect(f"npy:{folder}/i.npy,{folder}/l.npy", "train", shape, images.tobytes(), labels.tolist(), max(labels.max() + 1, 2))
    for dtype in ("f4", "f8", "c8", "?", "S3", "M8[s]", "u4"):
        numpy.save(folder / "i.npy", numpy.zeros((2, 3, 4), dtype))
        refused(f"npy:{folder}/i.npy,{folder}/l.npy", "i.npy", f"type '{'u4' if dtype == 'u4' else numpy.dtype(dtype).str}'", "expected")
    numpy.save(folder / "i.npy", numpy.array([{}, {}], dtype=object), allow_pickle=True)
    refused(f"npy:{folder}/i.npy,{folder}/l.npy", "type '|O' (objects)")
    numpy.save(folder / "i.npy", numpy.zeros(3, dtype=[("a", "u1"), ("b", "u1")]))
    refused(f"npy:{folder}/i.npy,{folder}/l.npy", "not a structured one")


# --- what is refused ------------------------------------------------------------------------------------------------------
def refused_arrays(folder):
    images, labels = folder / "images.npy", folder / "labels.npy"
    spec = f"npy:{images},{labels}"
    good = npy("|u1", False, (2, 3, 4), bytes(range(24)))
    labels.write_bytes(label_file([1, 0], "<i4"))
    images.write_bytes(good)
    expect(spec, "train", (2, 3, 4), bytes(range(24)), [1, 0], 2)
    D, F, S = "'descr': '|u1'", "'fortran_order': False", "'shape': (2, 3, 4)"
    for text in (f"{{{S},{F},{D}}}", f'{{"descr":"|u1","fortran_order":False,"shape":(2,3,4,)}}', f"{{ {D} , {F} , {S} , }}   "):
        images.write_bytes(npy("", 0, 0, bytes(24), header=text))
        expect(spec, "train", (2, 3, 4), bytes(24), [1, 0], 2)
    for text, word in ((f"{{{D}, {F}}}", "the keys"), (f"{{{D}, {F}, {S}, {S}}}", "each key once"), (f"{{{D}, {F}, {S}, 'x': 1}}", "the keys"),
                       (f"{{{D} {F}, {S}}}", "',' or '}'"), (f"{D}, {F}, {S}", "'{'"), (f"{{{D}, {F}, {S}", "',' or '}'"), ("", "'{'"),
                       (f"{{{D}, {F}, 'shape': (2, 3, -4)}}", "a whole number"), (f"{{{D}, {F}, 'shape': (02, 3, 4)}}", "a whole number"),
                       (f"{{{D}, {F}, 'shape': (2L, 3, 4)}}", "','"), (f"{{{D}, {F}, 'shape': (24)}}", "','"),
                       (f"{{{D}, {F}, 'shape': [2, 3, 4]}}", "a shape"), (f"{{{D}, {F}, 'shape': (2 3 4)}}", "','"),
                       (f"{{{D}, {F}, 'shape': (2, 3, 99999999999999999999)}}", "at most 63 bits"), (f"{{{D}, {F}, 'shape': (,)}}", "a whole number"),
                       (f"{{{D}, 'fortran_order': 0, {S}}}", "True or False"), (f"{{{D}, 'fortran_order': Falsey, {S}}}", "','"),
                       (f"{{{D}, {F}, {S}}} + x", "at the end"), (f"{{'descr': '|u1, {F}, {S}}}", "',' or '}'"), (f"{{{D}, {F}, shape: (2, 3, 4)}}", "a quoted string"),
                       (f"{{'de\\x73cr': '|u1', {F}, {S}}}", "the end of a quoted"), (f"{{{D}, {F}, {S}}}\0", "at the end"),
                       (f"{{'descr': [('a', '|u1')], {F}, {S}}}", "not a structured one")):
        images.write_bytes(npy("", 0, 0, bytes(24), header=text))
        refused(spec, "images.npy", "header, character", "expected", word)
    images.write_bytes(npy("", 0, 0, bytes(24), header=f"{{{D}, {F}, {S}}}", pad=False))
    refused(spec, "a line feed at the end")
    for descr, kind in (("<f4", "floating"), (">f8", ""), ("|b1", "boolean"), ("|O", "objects"), ("<c8", "complex"), ("<U4", "text"), ("|S1", "text"),
                        ("<M8[s]", "time"), ("<u3", ""), ("|u2", ""), ("<u16", ""), ("u1", ""), ("", ""), ("\u00fcu1", "")):
        images.write_bytes(npy(descr, False, (2, 3, 4), bytes(96), version=3))
        refused(spec, "images.npy", f"type '{descr}'", kind, "expected integers")
    for descr in ("|i1", "<u2", ">i8"):
        images.write_bytes(npy(descr, False, (2, 3, 4), bytes(24 * int(descr[2]))))
        refused(spec, "images of type", "expected 'u1' (uint8)")
    for shape, word in (((24,), "images of 1 dimensions"), ((4, 6), "images of 2 dimensions"), ((1, 2, 3, 2, 2), "5 dimensions, expected 1 to 4"),
                        ((), "0 dimensions"), ((0, 3, 4), "an empty array"), ((24, 0, 1), "an empty array"), ((2, 1, 2, 6), "1x2x6, expected at most 4096x4096x4"),
                        ((2, 3, 5), "is truncated: its header declares 30 bytes of elements, 24 follow"), ((2, 3, 3), "continues after the last element"),
                        ((1 << 62, 4096, 4096), "declares more than"), ((1 << 40, 1, 1), "is truncated"), ((3, 2, 4), "2 labels, for 3 images")):
        images.write_bytes(npy("|u1", False, shape, bytes(24), header=None if shape else f"{{{D}, {F}, 'shape': ()}}"))
        refused(spec, word)
    images.write_bytes(npy("|u1", False, (1, 4097, 1), bytes(4097)))
    refused(spec, "4097x1x1, expected at most 4096")
    for cut in (0, 1, 7, 9, 40, len(good) - 1):
        images.write_bytes(good[:cut])
        refused(spec, "images.npy", "truncated")
    images.write_bytes(good + b"\0")
    refused(spec, "continues after the last element")
    images.write_bytes(b"\x94" + good[1:])
    refused(spec, "NUMPY")
    for version in ((0, 0), (4, 0), (1, 1)):
        images.write_bytes(good[:6] + bytes(version) + good[8:])
        refused(spec, f"version {version[0]}.{version[1]}", "1.0, 2.0 or 3.0")
    images.write_bytes(good[:6] + b"\2\0\xff\xff\xff\x7f" + good[12:])
    refused(spec, "a header of 2147483647 bytes")
    images.write_bytes(good)
    for values, descr, word in (([0, -1], "<i4", "label 1 is -1, expected 0 to 65535"), ([65536, 0], "<i4", "label 0 is 65536"), ([0, -128], "|i1", "is -128"),
                                ([1 << 63, 0], ">u8", "is 9223372036854775808"), ([0, -1 << 63], "<i8", "is -9223372036854775808"), ([1], "|u1", "1 labels, for 2")):
        labels.write_bytes(label_file(values, descr))
        refused(spec, "labels.npy", word)
    labels.write_bytes(label_file([3, 9], ">u2"))
    refused(spec + ",classes=9", "label 1 is 9, expected 0 to 8")
    expect(spec + ",classes=10", "train", (2, 3, 4), bytes(range(24)), [3, 9], 10)
    labels.write_bytes(npy("<f4", False, (2,), bytes(8)))
    refused(spec, "labels.npy", "type '<f4' (floating point)")
    labels.write_bytes(npy("|u1", False, (2, 2), bytes(4)))
    refused(spec, "labels of 2 dimensions, expected [N] or [N, 1]")
    labels.write_bytes(label_file([3, 9], ">u2"))
    refused(spec, "no files of the test split", split="test", status="argument")
    for wrong, word in (("npy:a", "1 paths"), ("npy:a,b,c", "3 paths"), ("npy:a,b,c,d,e", "one path too many, 'e'"), ("npy:a,,c", "a path is empty"), ("npy:", "no name is given"),
                        ("npy", "no name is given"), ("npy:classes=3", "no path"), ("npy:a,b,clases=3", "option 'clases=3'"), ("npy:a,b,classes=1", "from 2 to 65536"),
                        ("npy:a,b,classes=65537", "from 2 to 65536"), ("npy:a,b,classes=3x", "whole number"), ("npy:a,b,classes=2,classes=2", "given twice"), ("npz:a,b,c", "one path too many")):
        refused(wrong, word, status="argument")
    refused(f"npy:{images},{folder}/absent", "cannot open", "absent", status="io")
    os.mkfifo(folder / "fifo")
    for spec in (f"npy:{folder}/fifo,{labels}", f"npz:{folder}/fifo"):
        refused(spec, "not a regular file but a FIFO", status="io")
    refused(f"npz:{folder}", "not a regular file but a folder", status="io")
    os.symlink(labels, folder / "link")
    expect(f"npy:{images},{folder}/link", "train", (2, 3, 4), bytes(range(24)), [3, 9], 10)


def refused_archives(folder):
    path = folder / "archive.npz"
    spec = f"npz:{path}"
    x, y = npy("|u1", False, (2, 3, 4), bytes(range(24))), label_file([1, 0], "<i4")

    def attempt(data, *words, split="train", status="data"):
        path.write_bytes(data)
        refused(spec, *words, split=split, status=status)

    def pair(**wrong):
        return Archive().add("x_train.npy", x, **wrong).add("y_train.npy", y)

    path.write_bytes(pair().end())
    expect(spec, "train", (2, 3, 4), bytes(range(24)), [1, 0], 2)
    refused(spec, "no test split", "x_test", split="test")
    attempt(Archive().add("x_train.npy", x).end(), "y_train.npy is not there")
    attempt(Archive().add("y_train.npy", y).end(), "x_train.npy is not there")
    attempt(Archive().add("train.npy", x).end(), "no training split")
    attempt(pair().add("x_train.npy", x).end(), "x_train.npy is there more than once")
    attempt(pair(flags=1).end(), "is encrypted")
    for method in (1, 9, 12, 14, 93, 99):
        attempt(pair(method=method).end(), f"method {method}, expected 0 (stored) or 8 (deflated)")
    attempt(pair(crc=1).end(), "x_train.npy is corrupt", "CRC-32", "the archive says 00000001")
    attempt(pair(deflated=False, crc=7).end(), "CRC-32")
    attempt(pair(length=len(x) + 1).end(), "header declares")
    attempt(pair(length=len(x) - 1).end(), "header declares")
    attempt(pair(deflated=False, length=len(x) + 1).end(), "cannot have")
    attempt(pair(length=1 << 31).end(), "cannot have 2147483648 bytes")
    attempt(pair(wide=True, length=1 << 62).end(), "cannot have")
    attempt(pair(wide=True, packed=(1 << 64) - 1).end(), "is truncated")
    attempt(pair(packed=10 ** 6).end(), "is truncated")
    attempt(pair(at=10 ** 6).end(), "lies outside the archive")
    attempt(pair(wide=True, at=1 << 63).end(), "lies outside the archive")
    attempt(pair(local_sign=b"PK\3\5").end(), "another local header")
    attempt(pair(local_method=0).end(), "another local header")
    attempt(pair(local_name=b"x_train.npx").end(), "another name in its local header")
    attempt(pair(local_name=b"x_train.np").end(), "another local header")
    attempt(pair(squeezed=b"\xff" * 50).end(), "is corrupt")
    for before in (b"#", b"#!/bin/sh\n", b"PK\3\4", bytes(70000)):  # places in the directory count them
        archive = Archive()
        archive.body = before
        attempt(archive.add("x_train.npy", x).add("y_train.npy", y).end(), f"first member begins at byte {len(before)}, expected 0")
    attempt(pair(squeezed=zlib.compress(x)[2:10]).end(), "deflated bytes end too early")
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    whole = z.compress(x) + z.flush()
    attempt(pair(squeezed=whole + b"x").end(), "bytes follow the end of its deflated bytes")
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    attempt(pair(squeezed=z.compress(x + b"more") + z.flush()).end(), "it has more bytes than")
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    attempt(pair(squeezed=z.compress(x[:-1]) + z.flush(), length=len(x)).end(), "it has fewer bytes than")
    # A bomb: a header that declares more zeros than the member contains.
    bomb = npy("|u1", False, (1000, 4096, 256), b"")
    z = zlib.compressobj(9, zlib.DEFLATED, -15)
    squeezed = z.compress(bomb + bytes(1 << 20)) + z.flush()
    attempt(pair(squeezed=squeezed, length=len(bomb) + (1000 << 20)).end(), "cannot have")
    good = pair().end()
    for cut in (0, 1, 21, 22, len(good) // 2, len(good) - 1):
        attempt(good[:cut], "not a zip archive")
    attempt(b"x" + good, "its directory does not end where")
    attempt(good + b"x", "not a zip archive, or is truncated")
    attempt(pair().end(count=3), "too short for its members")
    attempt(pair().add("a" * 60, b"").end(count=4), "entry 3 of its directory is invalid")
    attempt(pair().end(count=1), "continues after the last member")
    attempt(pair().end(count=0), "it has no members")
    attempt(pair().end(count=60000), "too short for its members")
    attempt(pair().end(size=10 ** 6), "directory does not end")
    attempt(pair().end(at=10 ** 6), "directory does not end")
    attempt(pair().end(wide=True, at64=10 ** 9), "zip64 directory lies outside")
    attempt(pair().end(wide=True, at64=0), "zip64 directory is invalid")
    attempt(pair().end(wide=True, count=1 << 60), "too short for its members")
    attempt(Archive().end(), "no members")
    attempt(npy("|u1", False, (2, 3, 4), bytes(24)), "not a zip archive")


def large_member(folder):
    """More than the first allocation: memory grows with the output."""
    shape = (70, 1024, 1024)
    pixels = chance.randbytes(1 << 10) * (70 << 10)
    path = folder / "large.npz"
    path.write_bytes(Archive().add("x.npy", npy("|u1", False, shape, pixels), level=1)
                     .add("y.npy", label_file(list(range(70)), "|u1"), deflated=False).end())
    expect(f"npz:{path}", "train", shape, pixels, list(range(70)), 70)


with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    for case in range(40):
        one_case(place, case)
    refused_arrays(place)
    refused_archives(place)
    large_member(place)
    if numpy:
        written_by_numpy(place)
sets.finish()
