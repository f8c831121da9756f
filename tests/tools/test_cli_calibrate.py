#!/usr/bin/env python3
"""flexlab calibrate, and --scales of eval and transpile, on a network that `flexlab train` has trained: the lines are those
of `flexlab eval`, which calibrates anew for each, and they do not depend on how images are divided into batches.

    test_cli_calibrate.py PATH-OF-FLEXLAB SOURCE"""
import csv
import os
import random
import re
import struct
import sys
import tempfile

from cli_harness import check, expect_error, run, succeed, summary

SIDE, CLASSES, TRAIN, TEST = 8, 4, 1600, 250


def write_npy(path, kind, shape, data):
    head = "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }" % (kind, ", ".join(map(str, shape)))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def write_images(place, name, count):
    """A brighter quarter says the class, not always loudly."""
    images, labels = bytearray(), bytearray()
    for _ in range(count):
        label, colour = random.randrange(CLASSES), [random.randrange(0, 70) for _ in range(3)]
        labels.append(label)
        for y in range(SIDE):
            for x in range(SIDE):
                lit = label == 2 * (y >= SIDE // 2) + (x >= SIDE // 2)
                images += bytes(min(255, max(0, int(60 + (c if lit else 0) + random.gauss(0, 90)))) for c in colour)
    write_npy(os.path.join(place, f"{name}-images.npy"), "|u1", (count, SIDE, SIDE, 3), bytes(images))
    write_npy(os.path.join(place, f"{name}-labels.npy"), "|u1", (count,), bytes(labels))


def lines(text):
    """Cells of the lines that a table has below its heading, by two blanks or more."""
    table = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if re.search(r"\S\s{2,}\S", line)]
    return table[1:]


def main():
    random.seed(7)
    with tempfile.TemporaryDirectory() as place:
        at = lambda name: os.path.join(place, name)
        for name, count in (("train", TRAIN), ("test", TEST)):
            write_images(place, name, count)
        data = "npy:" + ",".join(at(f"{s}-{k}.npy") for s in ("train", "test") for k in ("images", "labels"))
        succeed("train", "--model", "resnet8", "--format", "fp32", "--data", data, "--epochs", "2", "--batch", "64", "--out", at("out"), "--quiet", "--no-trace")
        network = at("out/last.safetensors")
        with_data = [network, "--image", "8x8", "--data", data]

        # one calibration for all lines, in the order of the options
        temporary = at("temporary")
        os.mkdir(temporary)
        done = succeed("calibrate", *with_data, "--batches", "2,4,10", "--batch", "16", "--csv", at("all.csv"), env={"TMPDIR": temporary})
        table = lines(done.stdout)
        check(not os.listdir(temporary), "temporary files are gone")
        rows = list(csv.DictReader(open(at("all.csv"))))
        check(len(table) == len(rows) == 1 + 3 * 4 * 2, "fp32, then three numbers of batches by four methods by two formats", done.stdout)
        check([(r["batches"], r["method"], r["format"]) for r in rows[1:]]
              == [(str(b), m, f) for b in (2, 4, 10) for m in ("minmax", "percentile", "mse", "entropy") for f in ("int8:tensor", "int8")], "their order")
        check(all(int(r["images"]) == 16 * int(r["batches"]) for r in rows[1:]), "images that were seen")
        evaluated = float(re.search(r"accuracy\s+([0-9.]+)", succeed("eval", "--checkpoint", network, "--data", data).stdout)[1])
        check(0.6 < int(rows[0]["right"]) / TEST < 0.99 and abs(int(rows[0]["right"]) - evaluated * TEST) <= 1.01, "fp32", rows[0], evaluated)
        check(len({(r["right"], r["largest_error"]) for r in rows}) > 6, "methods and batches make a difference")
        # ranges by divergence cut off more of small sets
        check(all(float(r["sqnr_db"]) > (6 if r["method"] == "entropy" else 20) and int(r["agreeing"]) > 0.8 * TEST for r in rows[1:]), "integers lose little", rows)

        # the same lines from eval, which calibrates for each
        for batches, method, name in ((2, "mse", "int8"), (10, "entropy", "int8:tensor"), (4, "minmax", "int8"), (10, "percentile", "int8")):
            one = lines(succeed("eval", *with_data, "--formats", name, "--method", method if method != "percentile" else "percentile:99.999",
                                "--calibrate", data, "--calibrate-batches", str(batches), "--batch", "16").stdout)
            here = [t for t in table if t[:1] == [str(batches)] and t[2:4] == [method, name]]
            check(len(here) == 1 and [t[1:6] for t in one if t[0] == name] == [here[0][4:9]], "as eval", one, here)

        # other batches, the same images; threads
        again = succeed("calibrate", *with_data, "--batches", "1,2,5", "--batch", "32", "--threads", "1", "--csv", at("again.csv"))
        other = list(csv.DictReader(open(at("again.csv"))))
        check([{**r, "batches": ""} for r in other] == [{**r, "batches": ""} for r in rows], "batches do not matter", again.stdout)

        # scales: a file that eval and transpile take, and that may be edited
        out = at("scales.csv")
        done = succeed("calibrate", *with_data, "--batches", "4", "--batch", "16", "--methods", "MSE", "--out", out)
        mse = {t[3]: t[4:9] for t in table if t[0] == "4" and t[2] == "mse"}
        check({t[3]: t[4:9] for t in lines(done.stdout) if t[0] == "4"} == mse, "names of methods in capitals")
        scaled = lines(succeed("eval", *with_data, "--formats", "int8,int8:tensor,flex16+5", "--scales", out).stdout)
        check({t[0]: t[1:6] for t in scaled if t[0].startswith("int8")} == mse, "eval with these scales", scaled)
        fixed = lines(succeed("eval", *with_data, "--formats", "flex16+5", "--calibrate", data, "--calibrate-batches", "4", "--batch", "16").stdout)
        check([t[1:6] for t in scaled if t[0] == "flex16+5"] == [t[1:6] for t in fixed if t[0] == "flex16+5"], "exponents too", scaled, fixed)
        succeed("transpile", network, "--image", "8x8", "--to", "int8", "--scales", out, "--out", at("int8.safetensors"))
        saved = lines(succeed("eval", at("int8.safetensors"), "--data", data, "--mean", "0", "--std", "1").stdout)
        check(saved, "a network of these scales")
        text = open(out).read().splitlines()
        edited = [",".join([*line.split(",")[:2], "0.5", *line.split(",")[3:]]) if i else line for i, line in enumerate(text)]
        open(at("edited.csv"), "w").write("\n".join(edited) + "\n")
        coarse = lines(succeed("eval", *with_data, "--formats", "int8", "--scales", at("edited.csv")).stdout)
        check([t[1:6] for t in coarse if t[0] == "int8"] != [mse["int8"]], "an edited file is another one")
        open(at("bad.csv"), "w").write("\n".join([*text[:2], text[2].replace("uint8", "int9"), *text[3:]]) + "\n")
        expect_error(["eval", *with_data, "--formats", "int8", "--scales", at("bad.csv")], 1, "bad.csv, line 3", "int9")
        expect_error(["transpile", network, "--image", "8x8", "--to", "int8", "--scales", at("bad.csv"), "--out", at("none.safetensors")], 1, "line 3")
        check(not os.path.exists(at("none.safetensors")), "nothing is written")

        # what is refused
        expect_error(["eval", *with_data, "--formats", "int8", "--scales", out, "--calibrate", data], 2, "--scales", "--calibrate")
        expect_error(["eval", *with_data, "--formats", "fp16", "--scales", out], 2, "--scales")
        expect_error(["transpile", network, "--image", "8x8", "--to", "fp16", "--scales", out, "--out", at("none.safetensors")], 2, "--scales")
        expect_error(["calibrate"], 2, "the file of a network")
        expect_error(["calibrate", *with_data, "--batches", "5,5"], 2, "5,5", "increase")
        expect_error(["calibrate", *with_data, "--batches", "0"], 2, "--batches '0'")
        expect_error(["calibrate", *with_data, "--methods", "minmax,minmax"], 2, "twice")
        expect_error(["calibrate", *with_data, "--methods", "median"], 2, "--methods 'median'", "entropy")
        expect_error(["calibrate", *with_data, "--formats", "fp16"], 2, "int8:tensor")
        expect_error(["calibrate", *with_data, "--out", at("new.csv")], 2, "--out", "--methods NAME")
        expect_error(["calibrate", *with_data, "--methods", "mse", "--batches", "2", "--out", out], 1, out, "--force")
        expect_error(["calibrate", at("int8.safetensors"), "--data", data, "--mean", "0", "--std", "1"], 1, "8-bit integers already")
        expect_error(["calibrate", *with_data, "--calibrate", "synthetic:train=20,test=20"], 2, "32x32x3", "8x8x3")

        # fewer images than batches: all of them, said
        few = run("calibrate", *with_data, "--batches", "20,1000", "--methods", "minmax", "--formats", "int8")
        check(few.returncode == 0 and "25 batches" in few.stderr and f"{TRAIN} images" in few.stderr and lines(few.stdout)[-1][:2] == ["25", str(TRAIN)], few.stdout, few.stderr)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
