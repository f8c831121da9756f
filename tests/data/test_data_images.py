#!/usr/bin/env python3
"""Folders of images, read by the library and told once more here. PNG files are written byte by byte by this program, of every
kind of colour and depth, with any filters, interlaced or not, with palettes and transparency; what they decode to is told from
the description of the format. JPEG files are written so, too, of blocks of one value each, which is exact; and others by Pillow
where it is installed, whose pixels are those of djpeg, or its own.
usage: test_data_images.py PRINT_SET [without KIND...]     KIND, PNG or JPEG: the library was built without its decoder"""
import io
import itertools
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from fractions import Fraction

import sets_harness as sets
from sets_harness import check, opened, refused

sets.PRINT_SET = sys.argv[1]
chance = sets.seeded()
try:
    from PIL import Image
except ImportError:
    Image = None


# --- PNG, written -----------------------------------------------------------------------------------------------------------
def chunk(kind, data, crc=None):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) if crc is None else crc)


SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))


def packed_row(samples, depth):
    if depth == 16:
        return b"".join(struct.pack(">H", s) for s in samples)
    if depth == 8:
        return bytes(samples)
    bits = "".join(format(s, f"0{depth}b") for s in samples)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def filtered(rows, unit):
    """Each row after a filter of its own."""
    out, above = b"", None
    for row in rows:
        above = above or bytes(len(row))
        kind = chance.randrange(5)
        line = bytearray()
        for i, value in enumerate(row):
            a = row[i - unit] if i >= unit else 0
            b, c = above[i], above[i - unit] if i >= unit else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            line.append((value - (0, a, b, (a + b) // 2, paeth)[kind]) & 255)
        out += bytes([kind]) + line
        above = row
    return out


def png(width, height, colour, depth, pixels, interlaced=False, palette=b"", transparent=b"", before=b"", level=6, parts=1, idat=None, end=True):
    """pixels: rows of samples."""
    n, unit = SAMPLES[colour], max(1, SAMPLES[colour] * depth // 8)
    if interlaced:
        raw = b""
        for x0, y0, dx, dy in PASSES:
            rows = [packed_row([s for x in range(x0, width, dx) for s in pixels[y][x * n:(x + 1) * n]], depth) for y in range(y0, height, dy)]
            raw += filtered(rows, unit) if x0 < width and rows else b""
    else:
        raw = filtered([packed_row(row, depth) for row in pixels], unit)
    data = zlib.compress(raw, level) if idat is None else idat
    size = -(-len(data) // parts)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)) + before
    out += chunk(b"PLTE", palette) if palette else b""
    out += chunk(b"tRNS", transparent) if transparent else b""
    out += b"".join(chunk(b"IDAT", data[i:i + size]) for i in range(0, len(data), size))
    return out + (chunk(b"IEND", b"") if end else b"")


def to_8_bits(value, depth):
    return (value * 255 * 2 + (2 ** depth - 1)) // (2 * (2 ** depth - 1))  # rounded; no ties for 16, exact for fewer


def random_png(width, height, colour=None):
    """A file, and the channels and bytes that it encodes."""
    colour = chance.choice(list(SAMPLES)) if colour is None else colour
    depth = chance.choice(DEPTHS[colour])
    entries = chance.randint(1, 2 ** depth) if colour == 3 else 2 ** depth
    few = [chance.randrange(entries) for _ in range(3)]
    n = SAMPLES[colour]
    pixels = [[chance.choice(few) if chance.random() < 0.5 else chance.randrange(entries) for _ in range(width * n)] for _ in range(height)]
    palette, transparent, alpha = b"", b"", None
    if colour == 3:
        palette = chance.randbytes(3 * entries)
        if chance.random() < 0.5:
            alpha = chance.randbytes(chance.randint(1, entries))
            transparent = alpha
    elif colour in (0, 2) and chance.random() < 0.4:
        alpha = pixels[0][:n]
        transparent = struct.pack(f">{n}H", *alpha)
    out = bytearray()
    for row in pixels:
        for x in range(width):
            values = row[x * n:(x + 1) * n]
            if colour == 3:
                out += palette[3 * values[0]:3 * values[0] + 3]
                if alpha:
                    out.append(alpha[values[0]] if values[0] < len(alpha) else 255)
            else:
                out += bytes(to_8_bits(v, depth) for v in values)
                if alpha:
                    out.append(0 if values == alpha else 255)
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}[colour] + bool(alpha)
    extra = b"".join(chance.sample([chunk(b"gAMA", struct.pack(">I", 22222)), chunk(b"tEXt", b"Comment\0hello"), chunk(b"iCCP", b"p\0\0" + zlib.compress(b"none")),
                                    chunk(b"pHYs", struct.pack(">IIB", 1, 2, 0)), chunk(b"vpAg", b"12345"), chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 20)))],
                                   chance.randint(0, 2)))
    file = png(width, height, colour, depth, pixels, chance.random() < 0.5, palette, transparent, extra, chance.choice([0, 1, 9]), chance.choice([1, 1, 3]))
    return file, channels, bytes(out)


# --- JPEG, written: each block of 8x8 pixels has one value -------------------------------------------------------------------------
def segment(marker, data):
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def huffman_table(place, codes):
    """codes: symbols by length, from 1."""
    return segment(0xC4, bytes([place]) + bytes(len(c) for c in codes) + bytes(16 - len(codes)) + bytes(s for c in codes for s in c))


def codes_of(codes):
    out, code = {}, 0
    for length, symbols in enumerate(codes, 1):
        for symbol in symbols:
            out[symbol] = format(code, f"0{length}b")
            code += 1
        code <<= 1
    return out


DC = ([], [0, 1, 2], [3], [4], [5], [6], [7], [8], [9])
AC = ([0],)


def stuffed(bits):
    bits += "1" * (-len(bits) % 8)
    return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")


def jpeg(width, height, blocks, progressive=False, sof=None, precision=8, components=None, extra=b"", data=None, end=b"\xff\xd9"):
    """blocks: a tuple of samples, 0 to 255, for each block of 8x8 in order; one is grey, three are RGB, as the Adobe marker says."""
    n = components or (len(blocks[0]) if blocks else 1)
    out = b"\xff\xd8" + (segment(0xEE, b"Adobe" + bytes((0, 100, 0, 0, 0, 0, 0))) if n >= 3 else b"")
    out += segment(0xDB, b"\0" + bytes([8]) * 64)
    out += segment(sof or (0xC2 if progressive else 0xC0), struct.pack(">BHHB", precision, height, width, n) + b"".join(bytes((i + 1, 0x11, 0)) for i in range(n)))
    out += huffman_table(0, DC) + huffman_table(0x10, AC) + extra
    dc, ac, bits, last = codes_of(DC), codes_of(AC), "", [0] * n
    for block in blocks:
        for c, sample in enumerate(block):
            difference = sample - 128 - last[c]
            last[c] = sample - 128
            size = abs(difference).bit_length()
            bits += dc[size] + (format(difference if difference > 0 else difference + 2 ** size - 1, f"0{size}b") if size else "")
            bits += "" if progressive else ac[0]
    scan = segment(0xDA, bytes([n]) + b"".join(bytes((i + 1, 0)) for i in range(n)) + (b"\0\0\0" if progressive else b"\0\x3f\0"))
    return out + scan + (stuffed(bits) if data is None else data) + end


def random_jpeg(width, height, n):
    columns, rows = -(-width // 8), -(-height // 8)
    blocks = [tuple(chance.choice([0, 255, chance.randrange(256)]) for _ in range(n)) for _ in range(columns * rows)]
    pixels = bytes(blocks[y // 8 * columns + x // 8][c] for y in range(height) for x in range(width) for c in range(n))
    return jpeg(width, height, blocks, chance.random() < 0.5), height, width, n, pixels


def many_scans(count):
    """A progressive file of one block: every coefficient by a scan of its own, then its lowest bit by another."""
    out = jpeg(8, 8, [(200,)], True, end=b"")
    for number in range(count):
        k, fine = number % 63 + 1, number >= 63
        out += segment(0xDA, bytes((1, 1, 0, k, k, 0x10 if fine else 0x01))) + stuffed("0")
    return out + b"\xff\xd9"


# --- what a set makes of them -----------------------------------------------------------------------------------------------
def converted(pixels, have, want):
    if have == want:
        return pixels
    out = bytearray()
    for i in range(0, len(pixels), have):
        p = pixels[i:i + have]
        colours = p[:3] if have >= 3 else p[:1]
        alpha = p[-1] if have in (2, 4) else 255
        if want >= 3:
            out += colours if have >= 3 else colours * 3
        else:
            out.append((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) // 1000 if have >= 3 else p[0])
        if want in (2, 4):
            out.append(alpha)
    return bytes(out)


def resized(pixels, height, width, h, w, n):
    """Means over areas, as fractions."""
    if (height, width) == (h, w):
        return pixels
    def weights(have, want, j):
        begin, end = Fraction(j * have, want), Fraction((j + 1) * have, want)
        return [(i, min(end, i + 1) - max(begin, i)) for i in range(have) if i < end and i + 1 > begin]
    area = Fraction(height * width, h * w)
    rows, columns = [weights(height, h, j) for j in range(h)], [weights(width, w, j) for j in range(w)]
    out = bytearray()
    for row in rows:
        for column in columns:
            for c in range(n):
                mean = sum(wy * wx * pixels[(y * width + x) * n + c] for y, wy in row for x, wx in column) / area
                out.append(int(mean + Fraction(1, 2)))
    return bytes(out)


class Folder:
    def __init__(self, place, train, test, names=None):
        """train, test: lists of (class, file, height, width, channels, bytes)."""
        self.path = place
        shutil.rmtree(place, ignore_errors=True)
        self.classes = sorted({c for c, *_ in train}, key=os.fsencode)
        self.images = {}
        for split, images in (("train", train), ("test", test)):
            listed = []
            for i, (kind, file, *rest) in enumerate(images):
                name = chance.choice(["a", "B", "é", "10", "9", "z z"]) + f"{i}" + chance.choice([".png", ".PNG"] if file[:4] == b"\x89PNG" else [".jpg", ".jpeg", ".JPG"])
                (place / split / kind).mkdir(parents=True, exist_ok=True)
                (place / split / kind / name).write_bytes(file)
                listed.append((os.fsencode(kind), os.fsencode(name), *rest))
            self.images[split] = sorted(listed, key=lambda one: one[:2])

    def expect(self, options, size=None, channels=None):
        for split, images in self.images.items():
            if not images:
                continue
            got = opened(f"images:{self.path}{options}", split, threads=chance.choice([1, 2, 3]))
            if not got:
                continue
            h, w = size or images[0][2:4]
            n = channels or images[0][4]
            check(got.shape == (len(images), h, w, n) and got.classes == max(2, len(self.classes)), options, split, got.shape, got.classes)
            check(got.labels == [self.classes.index(os.fsdecode(one[0])) for one in images], options, split, "labels differ")
            for i, (_, name, height, width, have, pixels) in enumerate(images):
                want = resized(converted(pixels, have, n), height, width, h, w, n)
                check(got.pixels[i * len(want):(i + 1) * len(want)] == want, options, split, name, f"{height}x{width}x{have} -> {h}x{w}x{n}: pixels differ")


def picture(width, height, colour=None):
    file, channels, pixels = random_png(width, height, colour)
    return file, height, width, channels, pixels


CLASSES = ["cat", "Dog", "émeu", "10", "2", "zebra finch", "a,b"]


def random_sets(place):
    for case in range(25):
        classes = chance.sample(CLASSES, chance.randint(1, 5))
        width, height = chance.randint(1, 20), chance.randint(1, 20)
        first = classes + [chance.choice(classes) for _ in range(chance.randint(0, 12))]
        folder = Folder(place / "mixed", [(c, *picture(chance.randint(1, 20), chance.randint(1, 20))) for c in first],
                        [(chance.choice(classes), *picture(chance.randint(1, 20), chance.randint(1, 20))) for _ in range(4)])
        h, w, n = chance.randint(1, 24), chance.randint(1, 24), chance.randint(1, 4)
        folder.expect(f",resize={h}x{w},channels={n}", (h, w), n)
        # All of one size.
        folder = Folder(place / "even", [(c, *picture(width, height)) for c in first], [(chance.choice(classes), *picture(width, height)) for _ in range(3)])
        folder.expect(f",channels={n}", None, n)
        folder.expect(f",channels={n},resize={height}x{width}", (height, width), n)
        # And of one kind: no option.
        same, test = [], []
        while len(same) < len(first) or len(test) < 2:
            one = picture(width, height, chance.choice([6, 4]))
            if not same or one[3] == same[0][4]:
                (same if len(same) < len(first) else test).append((first[len(same) % len(first)], *one))
        Folder(place / "plain", same, test).expect("")


def every_kind(place):
    """Colour types, depths and interlacing, each once, at sizes where passes are empty."""
    images = []
    for colour, (width, height) in itertools.product(SAMPLES, ((1, 1), (2, 1), (1, 3), (5, 3), (9, 9), (33, 17))):
        for _ in DEPTHS[colour]:
            images.append(("k", *picture(width, height, colour)))
    Folder(place / "kinds", images, images[:2]).expect(",channels=4,resize=7x5", (7, 5), 4)


def refusals(place):
    good = png(4, 3, 2, 8, [[1] * 12] * 3)
    folder = place / "bad"
    spec = f"images:{folder}"

    def fresh(**files):
        """a class 'a' with one good image, and other files by path."""
        shutil.rmtree(folder, ignore_errors=True)
        for split in ("train", "test"):
            (folder / split / "a").mkdir(parents=True)
            (folder / split / "a" / "1.png").write_bytes(good)
        for name, data in files.items():
            (folder / "train" / "a" / name).write_bytes(data)

    def attempt(data, *words, status="data", name="2.png"):
        fresh(**{name: data})
        refused(spec, name, *words, status=status)

    fresh()
    check(opened(spec).shape == (1, 3, 4, 3), "the good one")
    attempt(b"", "begins neither as a PNG nor as a JPEG")
    attempt(b"GIF89a" + bytes(100), "begins neither")
    attempt(good[:8], "it has no header")
    for cut in (30, 33, 40, 60, len(good) - 12, len(good) - 1):
        attempt(good[:cut], "is a corrupt PNG", "has no header" if cut < 33 else "it is truncated")
    flipped = bytearray(good)
    flipped[50] ^= 1
    attempt(bytes(flipped), "is a corrupt PNG")
    for width, height in ((0, 3), (4, 0), (4097, 3), (4, 4097), (0xFFFFFFFF, 0xFFFFFFFF), (0x80000000, 1)):
        attempt(png(1, 1, 2, 8, [[0] * 3]).replace(struct.pack(">II", 1, 1), struct.pack(">II", width, height)), f"is {height}x{width}, expected 1x1 to 4096x4096")
    # A bomb: 4096x4096 declared, a few bytes there.
    attempt(png(4096, 4096, 6, 16, [], idat=zlib.compress(b"")), "4096x4096, which a file of", "cannot contain")
    attempt(png(4096, 4096, 0, 1, [], idat=zlib.compress(bytes(10))), "cannot contain")
    attempt(png(300, 300, 0, 8, [], idat=zlib.compress(bytes(1000), 9) + bytes(300)), "is a corrupt PNG")
    attempt(png(4, 3, 2, 8, [[1] * 12] * 3, idat=zlib.compress(bytes(3 * 13 + 1))), "is a corrupt PNG")
    attempt(png(4, 3, 2, 8, [[1] * 12] * 3, idat=zlib.compress(b"\5" + bytes(38))), "is a corrupt PNG")
    attempt(png(4, 3, 2, 8, [[1] * 12] * 3, end=False), "truncated")
    attempt(png(4, 3, 2, 8, [[1] * 12] * 3, before=chunk(b"CRIT", b"")), "is a corrupt PNG")
    attempt(png(4, 3, 3, 8, [[200] * 4] * 3), "is a corrupt PNG")  # no palette
    attempt(png(4, 3, 3, 8, [[200] * 4] * 3, palette=bytes(30)), "a pixel has a colour past the palette")
    header = png(4, 3, 2, 8, [[1] * 12] * 3)
    for place_, value in ((24, 7), (25, 5), (25, 9), (26, 1), (27, 1), (28, 2)):
        data = bytearray(header)
        data[place_] = value
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
        attempt(bytes(data), "is a corrupt PNG")
    # All images are alike, or options are needed.
    fresh(**{"2.png": png(5, 3, 2, 8, [[1] * 15] * 3)})
    refused(spec, "2.png is 3x5x3, the first image 3x4x3: expected one size, or the option resize=HEIGHTxWIDTH")
    check(opened(spec + ",resize=3x4").shape == (2, 3, 4, 3), "resized")
    fresh(**{"2.png": png(4, 3, 0, 8, [[1] * 4] * 3)})
    refused(spec, "2.png is 3x4x1, the first image 3x4x3: expected one number of channels, or the option channels=N")
    check(opened(spec + ",channels=1").shape == (2, 3, 4, 1), "grey")
    # The first of several failures is reported, on any number of threads.
    fresh(**{f"{i:03}.png": good if i % 7 else b"none" for i in range(1, 200)})
    for threads in (1, 2, 3, 7):
        done = sets.run(spec, "train", threads)
        check(b"007.png begins neither" in done.stderr, threads, done.stderr)
    # One image takes long to fail, and meanwhile another thread fails at once with a later image.
    slow = png(1500, 1500, 2, 8, [], idat=zlib.compress(bytes(1500 * 4501), 1), end=False)
    fresh(**{f"{i:03}.png": good if i < 10 and i not in (1, 5) else b"none" for i in range(0, 40)} | {"002.png": slow})
    for name in ("000.png", "001.png"):
        (folder / "train/a" / name).write_bytes(good)
    for threads in (2, 3, 7) * 3:
        done = sets.run(spec, "train", threads)
        check(b"002.png is a corrupt PNG: it is truncated" in done.stderr, threads, done.stderr)
    # Layout.
    fresh()
    (folder / "train/a/readme.txt").write_bytes(b"")
    refused(spec, "readme.txt is not an image by its name: expected .png, .jpg or .jpeg")
    (folder / "train/a/readme.txt").rename(folder / "train/a/.readme.txt")
    check(opened(spec).count == 1, "hidden names are passed over")
    (folder / "train/1.png").write_bytes(good)
    refused(spec, "train/1.png is not a folder of a class", "expected DIR/train/CLASS/IMAGE")
    (folder / "train/1.png").unlink()
    (folder / "train/b").mkdir()
    refused(spec, "train/b has no image")
    check(opened(spec, "test").classes == 2, "the test split has a class fewer")
    (folder / "train/b").rmdir()
    (folder / "test/b").mkdir()
    refused(spec, "test/b is a class that the training split does not have", split="test")
    (folder / "test/b").rmdir()
    (folder / "train/a/3.png").mkdir()
    refused(spec, "3.png is not a regular file but a folder", status="io")
    (folder / "train/a/3.png").rmdir()
    os.mkfifo(folder / "train/a/3.png")
    refused(spec, "3.png is not a regular file but a FIFO", status="io")
    (folder / "train/a/3.png").unlink()
    (folder / "train/a/3.png").symlink_to("/dev/zero")
    refused(spec, "not a regular file but a character device", status="io")
    (folder / "train/a/3.png").unlink()
    (folder / "train/a/3.png").symlink_to(folder / "nowhere")
    refused(spec, "cannot open", "3.png", status="io")
    (folder / "train/a/3.png").unlink()
    (folder / "train/a/3.png").symlink_to(folder / "train/a/1.png")
    (folder / "train/b").symlink_to(folder / "train/a")
    got = opened(spec)
    check(got.count == 4 and got.labels == [0, 0, 1, 1], "links to files and folders", got.shape, got.labels)
    shutil.rmtree(folder / "test")
    refused(spec, "cannot open the folder", "test", "No such file", split="test", status="io")
    (folder / "val/a").mkdir(parents=True)
    refused(spec, "val has no image", split="test")
    (folder / "val/a/1.png").write_bytes(good)
    check(opened(spec, "test").count == 1, "val where there is no test")
    shutil.rmtree(folder / "train")
    refused(spec, "cannot open the folder", "train", split="train", status="io")
    (folder / "train").mkdir()
    refused(spec, "train has no image")
    for rest, word in (("", "no name is given"), (":", "no name is given"), (":a,b", "one path too many"), (":a,resize=3", "HEIGHTxWIDTH"), (":a,resize=0x3", "1x1 to 4096x4096"),
                       (":a,resize=3x4097", "1x1 to 4096x4096"), (":a,resize=3x4x", "HEIGHTxWIDTH"), (":a,channels=0", "1 to 4"), (":a,channels=5", "1 to 4"), (":a,chanels=3", "option 'chanels=3'")):
        refused("images" + rest, word, status="argument")


def written_jpegs(place):
    images = [("k", *random_jpeg(chance.randint(1, 40), chance.randint(1, 40), chance.choice([1, 3]))) for _ in range(60)]
    images += [("p", *picture(9, 9)), ("k", *random_jpeg(300, 5, 3))]
    Folder(place / "blocks", images, images[3:9]).expect(",channels=3,resize=9x11", (9, 11), 3)
    for one in images[:20]:
        Folder(place / "blocks", [one], [one]).expect("")


def refused_jpegs(place):
    spec = f"images:{place}/bad"

    def attempt(data, *words):
        Folder(place / "bad", [("a", data, 1, 1, 1, b"")], [])
        refused(spec, ".jp" if b".JPG" not in sets.run(spec).stderr else ".JPG", *words)

    blocks = [(10 * i % 256,) for i in range(12)]
    good = jpeg(32, 24, blocks)
    for cut in (3, 10, 60, len(good) // 2, len(good) - 6, len(good) - 2):
        attempt(good[:cut], "is a corrupt JPEG")
    for sof in (0xC9, 0xCA):
        attempt(jpeg(32, 24, blocks, sof=sof), "in arithmetic coding")
    for sof in (0xC3, 0xC5, 0xC7, 0xCB):
        attempt(jpeg(32, 24, blocks, sof=sof), "is a corrupt JPEG")
    attempt(jpeg(32, 24, blocks, precision=12), "JPEG")
    attempt(jpeg(8, 8, [(1, 2, 3, 4)]), "CMYK")
    attempt(jpeg(8, 8, [(1, 2)]), "CMYK or another colour space")
    attempt(jpeg(4097, 8, blocks), "is 8x4097, expected 1x1 to 4096x4096")
    attempt(jpeg(8, 65500, blocks), "is 65500x8, expected 1x1 to 4096x4096")
    attempt(jpeg(0, 8, blocks), "JPEG")
    attempt(jpeg(4096, 4096, blocks), "4096x4096, which a file of", "cannot contain")
    attempt(jpeg(4096, 4096, [], True, data=bytes(100)), "cannot contain")
    attempt(jpeg(32, 24, blocks[:5]), "is a corrupt JPEG")
    attempt(jpeg(32, 24, blocks, data=b"\xfe" * 40), "is a corrupt JPEG")
    attempt(jpeg(32, 24, blocks, data=b"\xff\xc8"), "is a corrupt JPEG")
    attempt(many_scans(110), "is a JPEG of more than 100 scans")
    Folder(place / "scans", [("a", many_scans(90), 8, 8, 1, bytes([200]) * 64)], []).expect("")


def whole_size(place):
    """The largest images, of one value: files of a few KB that contain what they declare."""
    side = 4096
    rows = zlib.compress(bytes(side * (side // 8 + 1)), 9)
    for file in (png(side, side, 0, 1, [], idat=rows), jpeg(side, side, [(0,)] * (side // 8) ** 2, True)):
        got = Folder(place / "large", [("a", file, side, side, 1, bytes(side * side))], [])
        got.expect("")
        print(f"4096x4096 in {len(file)} bytes")


def jpeg_files():
    """Files with their decoded pixels, by Pillow, which uses libjpeg-turbo, too, or by djpeg."""
    files = []
    for case in range(12 if Image else 0):
        width, height = chance.choice([1, 7, 8, 16, 33, 100]), chance.choice([1, 8, 17, 64])
        mode = chance.choice(["L", "RGB"])
        n = len(mode) if mode == "RGB" else 1
        smooth = bytes((x * 7 + y * 5 + c * 60 + chance.randrange(20)) & 255 for y in range(height) for x in range(width) for c in range(n))
        buffer = io.BytesIO()
        Image.frombytes(mode, (width, height), smooth).save(buffer, "JPEG", quality=chance.choice([30, 75, 95]), progressive=chance.random() < 0.5,
                                                            optimize=chance.random() < 0.5, subsampling=chance.choice([0, 1, 2]), restart_marker_blocks=chance.choice([0, 3]))
        file = buffer.getvalue()
        files.append((file, height, width, n))
    return files


def decoded(file):
    """Decodes by djpeg, whose library is the one that flexlab uses, or else by Pillow, which has its own."""
    if shutil.which("djpeg"):
        return subprocess.run(["djpeg", "-pnm"], input=file, capture_output=True, check=True).stdout.split(b"\n", 3)[3]
    return Image.open(io.BytesIO(file)).tobytes()


def jpegs(place):
    files = jpeg_files()
    if not files:
        print("Pillow is not installed: the JPEG files written here are all there are")
        return
    images = [("k", file, h, w, n, decoded(file)) for file, h, w, n in files]
    images.append(("k", *picture(5, 5)))
    Folder(place / "jpeg", images, images[:1]).expect(",channels=3,resize=16x16", (16, 16), 3)
    for one in images[:-1]:
        Folder(place / "jpeg", [one], [one]).expect("")


with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    missing = sys.argv[3:]
    if "PNG" in missing:
        Folder(place / "k", [("a", png(1, 1, 0, 8, [[0]]), 1, 1, 1, b"\0")], [])
        refused(f"images:{place}/k", "built without libpng", "apt-get install libpng-dev", status="unsupported")
    if "JPEG" in missing:
        Folder(place / "k", [("a", jpeg(8, 8, [(1,)]), 8, 8, 1, b"\0")], [])
        refused(f"images:{place}/k", "built without libjpeg", "apt-get install libjpeg-dev", status="unsupported")
    if missing:
        sets.finish()
    written_jpegs(place)
    refused_jpegs(place)
    whole_size(place)
    random_sets(place)
    every_kind(place)
    refusals(place)
    jpegs(place)
sets.finish()
