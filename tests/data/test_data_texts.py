#!/usr/bin/env python3
"""Texts, read by the library and decoded again by Python's own decoder: tokens, vocabularies, splits, and the position
of bytes that are not UTF-8. usage: test_data_texts.py PRINT_SET"""
import os
import pathlib
import sys
import tempfile

import sets_harness as sets
from sets_harness import check, opened, refused

sets.PRINT_SET = sys.argv[1]
chance = sets.seeded()

RANGES = ((0x20, 0x7E), (0x20, 0x7E), (0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
EDGES = (0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFD, 0xFFFF, 0x10000, 0x10FFFF, 0xFEFF, 0x0A, 0x0D)


def random_text(length):
    pool = [chr(chance.randint(*chance.choice(RANGES))) for _ in range(chance.choice([1, 2, 30, 300]))]
    pool += [chr(c) for c in chance.sample(EDGES, 3)]
    return "".join(chance.choices(pool, k=length))


def expect_characters(spec, split, text, alphabet):
    got = opened(spec, split, threads=chance.choice([1, 2, 3]))
    if got:
        alphabet = sorted(map(ord, set(alphabet)))
        place = {c: i for i, c in enumerate(alphabet)}
        check(got.shape == (len(text), 0, 0, 0) and got.classes == max(2, len(alphabet)), spec, split, got.shape, got.classes, len(alphabet))
        check(got.labels == [place[ord(c)] for c in text], spec, split, "tokens differ")
        check(got.characters == alphabet + [-1] * (got.classes - len(alphabet)), spec, split, "vocabulary differs")


def expect_bytes(spec, split, data):
    got = opened(spec, split)
    if got:
        check(got.shape == (len(data), 0, 0, 0) and got.classes == 256, spec, split, got.shape, got.classes)
        check(bytes(got.labels) == data and got.characters == list(range(256)), spec, split, "bytes differ")


def one_case(folder, number):
    text = random_text(chance.choice([1, 2, 9, 10, 11, 99, 100, 101, 5000]))
    data = text.encode()
    path = folder / f"{number}.txt"
    path.write_bytes(data)
    percent = chance.choice([None, 0, 1, 10, 33, 50, 99])
    spec = f"text:{path}" + ("" if percent is None else f",test={percent}")
    for unit, whole in (("", data), (",unit=bytes", data), (",unit=characters", text)):
        test = len(whole) * (10 if percent is None else percent) // 100
        for split, part in (("train", whole[:len(whole) - test]), ("test", whole[len(whole) - test:])):
            if split == "test" and not test:
                refused(spec + unit, "leaves no token", split="test", status="argument" if percent == 0 else "data")
            elif unit == ",unit=characters":
                expect_characters(spec + unit, split, part, whole)
            else:
                expect_bytes(spec + unit, split, part)
    # Two files, one vocabulary.
    other = "".join(chance.choices(text, k=50))
    (folder / "other.txt").write_bytes(other.encode())
    spec = f"text:{path},{folder}/other.txt"
    expect_characters(spec + ",unit=characters", "train", text, text)
    expect_characters(spec + ",unit=characters", "test", other, text)
    expect_bytes(spec, "test", other.encode())
    strange = next(c for c in map(chr, (0x41, 0x42, 0x1F600, 0x3B1)) if c not in text) if len(set(text)) < 300 else None
    if strange:
        (folder / "other.txt").write_bytes((other + strange).encode())
        refused(spec + ",unit=characters", f"byte {len(other.encode())}: the character U+{ord(strange):04X} is not in the vocabulary", split="test")
        expect_bytes(spec, "test", (other + strange).encode())


def broken_text(folder):
    """Bytes inserted into a good text, among them every kind of wrong sequence; Python determines the position of the
    first."""
    wrong = (b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf",
             b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xe2(\xa1", b"\xf0(\x8c\xbc", b"\xf8\x88\x80\x80\x80", b"\x80" * 9)
    path = folder / "broken.txt"
    for sequence in wrong:
        for before in (b"", random_text(30).encode()):
            for after in (b"", b"abc", random_text(20).encode()):
                data = before + sequence + after
                path.write_bytes(data)
                try:
                    data.decode()
                except UnicodeDecodeError as error:
                    refused(f"text:{path},unit=characters", f"byte {error.start}, 0x{data[error.start]:02X}, does not begin a UTF-8 character")
                else:
                    check(False, "Python takes", data)
                expect_bytes(f"text:{path},test=0", "train", data)


def long_text(folder):
    """Texts of several chunks, which are decoded at the same time and cut within characters; and wrong bytes near the
    cuts."""
    path = folder / "long.txt"
    for letters in ("aé€😀", "😀", "€b"):
        text = "".join(chance.choices(letters, k=1_300_000 // len(letters.encode()) * len(letters) * 2))
        data = text.encode()
        path.write_bytes(data)
        expect_characters(f"text:{path},unit=characters,test=0", "train", text, text)
        parts = -(-len(data) // (1 << 20))
        for part in range(parts + 1):
            for offset in (-5, -4, -3, -2, -1, 0, 1, 2, 3, 4):
                at = len(data) * part // parts + offset
                if 0 <= at < len(data) and chance.random() < 0.4:
                    broken = bytearray(data)
                    broken[at:at + chance.choice([1, 1, 6])] = bytes([chance.choice([0x80, 0xFF, 0xC0, 0xF0, 0xBF])]) * chance.choice([1, 1, 6])
                    path.write_bytes(broken)
                    try:
                        broken.decode()
                    except UnicodeDecodeError as error:
                        refused(f"text:{path},unit=characters", f"byte {error.start}, 0x{broken[error.start]:02X},")
    # More characters than there are numbers for tokens.
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000 + 0x800)]))
    path.write_bytes(every.encode())
    expect_characters(f"text:{path},unit=characters,test=0", "train", every, every)
    path.write_bytes(every.encode() + "\U00020000".encode())
    refused(f"text:{path},unit=characters", "has 65537 different characters, expected at most 65536")


def refusals(folder):
    path = folder / "empty.txt"
    path.write_bytes(b"")
    for unit in ("bytes", "characters"):
        refused(f"text:{path},unit={unit}", "empty.txt is empty")
    path.write_bytes(b"some text")
    for rest, word in (("", "no name is given"), (f"{path},unit=words", "unit=bytes or unit=characters"), (f"{path},test=100", "from 0 to 99"), (f"{path},test=-1", "from 0 to 99"),
                       (f"{path},test=1%", "from 0 to 99"), (f"{path},{path},test=5", "beside a file of the test split"), (f"{path},{path},{path}", "one path too many"), (f"{path},tokens=5", "option 'tokens=5'")):
        refused("text:" + rest, word, status="argument")
    refused(f"text:{folder}/absent", "cannot open", status="io")
    refused(f"text:{folder}", "not a regular file but a folder", status="io")
    os.mkfifo(folder / "fifo")
    refused(f"text:{folder}/fifo", "not a regular file but a FIFO", status="io")
    refused(f"text:{path},{folder}/fifo", "not a regular file but a FIFO", split="test", status="io")
    os.symlink(path, folder / "link")
    expect_bytes(f"text:{folder}/link,test=0", "train", b"some text")


with tempfile.TemporaryDirectory() as place:
    place = pathlib.Path(place)
    for case in range(30):
        one_case(place, case)
    broken_text(place)
    long_text(place)
    refusals(place)
sets.finish()
