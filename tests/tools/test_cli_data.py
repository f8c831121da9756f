#!/usr/bin/env python3
"""One set in every layout that the flexlab program reads trains to the same results, to the last bit, in a float and in
an integer format; errors in --data are reported. usage: test_cli_data.py PATH-OF-FLEXLAB SOURCE"""
import os
import pathlib
import random
import struct
import sys
import tempfile
import zipfile
import zlib

from cli_harness import check, expect_error, read_lines, run, summary, without_time

COUNTS, SIDE, CLASSES = {"train": 96, "test": 24}, 6, 3


def npy(descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return b"\x93NUMPY\1\0" + struct.pack("<H", 118) + header.ljust(117).encode() + b"\n" + data


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[i:i + SIDE] for i in range(0, SIDE * SIDE, SIDE))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def write_all(place):
    """Writes the same images, by class, in all layouts; returns their specifications."""
    chance = random.Random(11)
    arrays = {}
    for split, count in COUNTS.items():
        labels = sorted(chance.randrange(CLASSES) for _ in range(count))
        images = [bytes(min(255, chance.randrange(60) + 90 * ((y // 2 + label * x) % 3)) for y in range(SIDE) for x in range(SIDE)) for label in labels]
        name = {"train": "train", "test": "t10k"}[split]
        (place / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, SIDE, SIDE) + b"".join(images))
        (place / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels))
        arrays[split] = npy("|u1", (count, SIDE, SIDE), b"".join(images)), npy(">i8", (count,), struct.pack(f">{count}q", *labels))
        for i, kind in enumerate(("images", "labels")):
            (place / f"{split}-{kind}.npy").write_bytes(arrays[split][i])
        with zipfile.ZipFile(place / f"{split}.npz", "w") as archive:
            archive.writestr("images.npy", arrays[split][0])
            archive.writestr("labels.npy", arrays[split][1])
        for i, (label, image) in enumerate(zip(labels, images)):
            folder = place / "folder" / split / f"class {label}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i:04}.png").write_bytes(png(image))
    with zipfile.ZipFile(place / "both.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for split in COUNTS:
            archive.writestr(f"x_{split}.npy", arrays[split][0])
            archive.writestr(f"y_{split}.npy", arrays[split][1])
    return {"idx": f"idx:{place}", "npz": f"npz:{place}/both.npz", "two npz": f"npz:{place}/train.npz,{place}/test.npz",
            "npy": "npy:" + ",".join(f"{place}/{split}-{kind}.npy" for split in COUNTS for kind in ("images", "labels")), "images": f"images:{place}/folder"}


def trained(place, name, specification):
    out = place / f"out {name}"
    done = run("compare", "--formats", "fp32,flex16+5", "--model", "mlp2", "--data", specification, "--batch", "8", "--epochs", "2", "--threads", "2",
               "--quiet", "--out", str(out))
    if name == "images" and "built without libpng" in done.stderr:
        print("images: are left out, the library was built without libpng")
        return None
    check(done.returncode == 0, done.shown, done.returncode, done.stderr)
    _, *lines = read_lines(str(out))
    return [without_time(line) for line in lines]


def errors(place):
    out = ["--out", str(place / "none")]
    for data, status, *words in (("npz", 2, "no name is given", "npz:FILE"), ("npx:a", 2, "did you mean 'np"), ("cifar101:a", 2, "did you mean 'cifar10"),
                                 (f"npz:{place}/nowhere.npz", 1, "cannot open", "nowhere.npz"), (f"npz:{place}/train.npz", 1, "has no test split", "or a second file"),
                                 (f"npy:{place}/train-images.npy,{place}/train-labels.npy", 2, "no files of the test split"), ("npy:a", 2, "1 paths"),
                                 (f"npz:{place}/train-images.npy", 1, "not a zip archive"), (f"cifar100:{place}", 1, "train.bin"), ("cifar100:a,labels=some", 2, "labels=coarse"),
                                 (f"images:{place}", 1, "cannot open the folder", "expected DIR/train/CLASS/IMAGE"), (f"images:{place}/folder,size=3x3", 2, "option 'size=3x3'"),
                                 (f"text:{place}/both.npz", 2, "a text, but the model cnn6 reads images")):
        expect_error(["train", "--data", data, *out], status, data, *words)


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    results = {name: trained(folder, name, specification) for name, specification in write_all(folder).items()}
    check(results["idx"] and any(line["type"] == "run" for line in results["idx"]), "nothing was trained")
    for layout, lines in results.items():
        check(lines is None or lines == results["idx"], layout, "and idx differ")
    errors(folder)
sys.exit(summary())
