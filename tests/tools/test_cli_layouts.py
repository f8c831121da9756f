#!/usr/bin/env python3
"""Weights of PyTorch that were brought into a file wrongly: layouts, names and constants that fit by their shapes. Each
is refused, or told by a checksum of activations. The source network is computed here, by PyTorch's definitions of its
layers in images [C, H, W], in doubles; nothing of flexlab is in it.

    test_cli_layouts.py PATH-OF-FLEXLAB SOURCE"""
import lzma
import math
import os
import random
import re
import struct
import sys
import tempfile

from cli_harness import PROGRAM, check, expect_error, run, succeed, summary

sys.path.insert(0, os.path.join(os.path.abspath(sys.argv[2]), "tests", "support"))
import safetensors_witness as safetensors  # noqa: E402

SIDE, CLASSES = 8, 10
WIDTHS = [(1, 16, 16, 1), (2, 16, 32, 2), (3, 32, 64, 2)]  # stage, channels before and in it, stride: resnet8


# --- the source -----------------------------------------------------------------------------------------------------------------------

def state_dict():
    """{name: (shape, numbers)} with the names of akamaster/pytorch_resnet_cifar10."""
    source, weights = random.Random(5), {}

    def add(name, shape, centre, width):
        values = [centre + width * source.uniform(-1, 1) for _ in range(math.prod(shape))]
        weights[name] = (shape, list(struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}f", *values))))

    def conv_bn(conv, bn, out, into):
        add(conv + ".weight", [out, into, 3, 3], 0, math.sqrt(6 / (9 * into)))
        for suffix, centre, width in (("weight", 1, 0.3), ("bias", 0.1, 0.3), ("running_mean", 0, 0.3), ("running_var", 1, 0.5)):
            add(f"{bn}.{suffix}", [out], centre, width)
    conv_bn("conv1", "bn1", 16, 3)
    for stage, before, width, _ in WIDTHS:
        conv_bn(f"layer{stage}.0.conv1", f"layer{stage}.0.bn1", width, before)
        conv_bn(f"layer{stage}.0.conv2", f"layer{stage}.0.bn2", width, width)
    add("linear.weight", [CLASSES, 64], 0, 0.3)
    add("linear.bias", [CLASSES], 0, 0.3)
    return weights


def conv_bn(x, weights, conv, bn, stride, epsilon):
    """3x3 with padding 1, then batch normalisation in evaluation; images are lists of channels of rows."""
    (out, into, _, _), w = weights[conv + ".weight"]
    numbers = {s: weights[f"{bn}.{s}"][1] for s in ("weight", "bias", "running_mean", "running_var")}
    side = len(x[0])
    padded = [[[0.0] * (side + 2)] + [[0.0, *row, 0.0] for row in plane] + [[0.0] * (side + 2)] for plane in x]
    result = []
    for k in range(out):
        scale = numbers["weight"][k] / math.sqrt(numbers["running_var"][k] + epsilon)
        shift = numbers["bias"][k] - numbers["running_mean"][k] * scale
        plane = []
        for i in range(0, side, stride):
            row = []
            for j in range(0, side, stride):
                total = 0.0
                for c in range(into):
                    at, p = (k * into + c) * 9, padded[c]
                    a, b, d = p[i], p[i + 1], p[i + 2]
                    total += (w[at] * a[j] + w[at + 1] * a[j + 1] + w[at + 2] * a[j + 2] + w[at + 3] * b[j] + w[at + 4] * b[j + 1]
                              + w[at + 5] * b[j + 2] + w[at + 6] * d[j] + w[at + 7] * d[j + 1] + w[at + 8] * d[j + 2])
                row.append(total * scale + shift)
            plane.append(row)
        result.append(plane)
    return result


def relu(x):
    return [[[max(0.0, v) for v in row] for row in plane] for plane in x]


def forward(x, weights, epsilon=1e-5):
    """Logits of one image [3][SIDE][SIDE]."""
    x = relu(conv_bn(x, weights, "conv1", "bn1", 1, epsilon))
    for stage, before, width, stride in WIDTHS:
        name = f"layer{stage}.0"
        y = relu(conv_bn(x, weights, name + ".conv1", name + ".bn1", stride, epsilon))
        y = conv_bn(y, weights, name + ".conv2", name + ".bn2", 1, epsilon)
        if stride > 1:  # option A: every second pixel, channels of zeros before and behind
            zeros = [[[0.0] * (len(x[0]) // 2) for _ in range(len(x[0]) // 2)] for _ in range((width - before) // 2)]
            x = zeros + [[row[::2] for row in plane[::2]] for plane in x] + zeros
        x = relu([[[a + b for a, b in zip(p, q)] for p, q in zip(u, v)] for u, v in zip(x, y)])
    means = [sum(map(sum, plane)) / len(plane) ** 2 for plane in x]
    w, b = weights["linear.weight"][1], weights["linear.bias"][1]
    return [sum(w[64 * k + c] * means[c] for c in range(64)) + b[k] for k in range(CLASSES)]


# --- checksums: program.h, and the script of `flexlab info MODEL --probe` -----------------------------------------------------------

def c(i):
    return ((i + 1) * 2654435761 % 2**32) * 2.0**-31 - 1


def checksum(y):
    return math.sqrt(3 / len(y)) * sum(c(i) * v for i, v in enumerate(y)), math.sqrt(sum(v * v for v in y) / len(y))


def as_planes(pixels):
    """[H, W, C] as [C][H][W]."""
    return [[[pixels[(h * SIDE + w) * 3 + k] for w in range(SIDE)] for h in range(SIDE)] for k in range(3)]


# --- files ----------------------------------------------------------------------------------------------------------------------------

def write(path, weights, **notes):
    data = safetensors.write_bytes([(name, "F32", shape, struct.pack(f"<{len(v)}f", *v)) for name, (shape, v) in weights.items()],
                                   {k.replace("_", "."): v for k, v in notes.items()} or None)
    with open(path, "wb") as file:
        file.write(data)
    return path


def permuted(tensor, order):
    shape, v = tensor
    strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    starts = [0]
    for d in order:
        starts = [s + i * strides[d] for s in starts for i in range(shape[d])]
    return [shape[d] for d in order], [v[s] for s in starts]


def own_names(weights):
    """Names and layouts of flexlab, as `flexlab info resnet8` lists them."""
    result = {}
    for name, tensor in weights.items():
        new = re.sub(r"layer(\d)\.(\d)", lambda m: f"stage{m[1]}.block{int(m[2]) + 1}", name).replace("linear", "fc")
        if "bn" in new:
            new = new.replace(".weight", ".gamma").replace(".bias", ".beta").replace("running_var", "running_variance")
        result[new] = permuted(tensor, {4: (0, 2, 3, 1), 2: (1, 0), 1: (0,)}[len(tensor[0])])
    return result


def swap_rows(tensor, a, b):
    shape, v = tensor
    n, v = len(v) // shape[0], list(v)
    v[a * n:(a + 1) * n], v[b * n:(b + 1) * n] = v[b * n:(b + 1) * n], v[a * n:(a + 1) * n]
    return shape, v


def npy(place, name, shape, data):
    """An array of bytes for NumPy."""
    head = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    head += " " * (117 - len(head)) + "\n"
    with open(os.path.join(place, name), "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
    return os.path.join(place, name)


ARGUMENTS = ["--model", "resnet8", "--image", f"{SIDE}x{SIDE}"]


def told(path, *more):
    """Checksum and size of the output, as info prints them for a file without a note."""
    shown = succeed("info", path, *ARGUMENTS, "--probe", *more).stdout
    row = [line.split() for line in shown.splitlines() if " output " in line and line.startswith("fc")]
    return [float(v) for v in row[0][-2:]] if row else [math.nan, math.nan]


def test_provoked(place, weights):
    path = os.path.join(place, "network.safetensors")
    logits = forward(as_planes([struct.unpack("<f", struct.pack("<f", c(i)))[0] for i in range(3 * SIDE * SIDE)]), weights)
    total, size = checksum(logits)
    note = f"{SIDE}x{SIDE}x3 {total:.9g} {size:.9g}"

    # Done right: the source's checksum is the program's.
    for right, notes in ((weights, {}), (own_names(weights), {"flexlab_layouts": "1"})):
        found = told(write(path, right, **notes))
        check(abs(found[0] - total) <= 2e-6 * size and abs(found[1] - size) <= 2e-6 * size, "checksum", found, "the source's", total, size)
        succeed("info", write(path, right, flexlab_probe=note, **notes), "--model", "resnet8")  # which says the sizes, too

    def refused(what, wrong, *words, expected=note, **notes):
        """Told by the checksum without a note of the source, and refused with it."""
        found = told(write(path, wrong, **notes))
        check(abs(found[0] - total) > 3e-4 * size, what, "is not told:", found, "the source's", total, size)
        for command in (["info"], ["run"], ["bench"], ["eval"]):
            file = write(path, wrong, flexlab_probe=expected, **notes)
            more = ["--mean", "0", "--std", "1"] if command == ["eval"] else []
            expect_error([*command, file, "--model", "resnet8", *more], 1, "the output has the checksum", "not those of the network", *words)

    own = own_names(weights)
    # 1. filters left in PyTorch's order under flexlab's names: 3x3 filters on 3 channels fit both ways
    left = {**own, "conv1.weight": weights["conv1.weight"]}
    expect_error(["run", write(path, left), *ARGUMENTS], 1, "both fit: 'conv1.weight' [16, 3, 3, 3]", "--weight-layout oihw or ohwi")
    expect_error(["run", write(path, left), *ARGUMENTS, "--weight-layout", "oihw"], 1, "7 have another shape", "'stage1.block1.conv1.weight'")
    refused("an OIHW filter", left, flexlab_layouts="1")
    # 2. a matrix transposed
    turned = {**weights, "linear.weight": permuted(weights["linear.weight"], (1, 0))}
    expect_error(["run", write(path, turned), *ARGUMENTS], 1, "tensor 'linear.weight' has the shape [64, 10], that of the network [10, 64] (out, in)")
    # 3. two filters in each other's place
    refused("two filters", {**weights, "layer2.0.conv1.weight": swap_rows(weights["layer2.0.conv1.weight"], 3, 17)})
    # 4. two tensors of one shape
    refused("two tensors", {**weights, "layer1.0.conv1.weight": weights["layer1.0.conv2.weight"], "layer1.0.conv2.weight": weights["layer1.0.conv1.weight"]})
    # 5. statistics and shifts of batch normalisation
    refused("mean and beta", {**weights, "bn1.running_mean": weights["bn1.bias"], "bn1.bias": weights["bn1.running_mean"]})
    # 6. channels in the order blue, green, red
    shape, v = weights["conv1.weight"]
    refused("BGR", {**weights, "conv1.weight": (shape, [v[k * 27 + (2 - i) * 9 + j] for k in range(16) for i in range(3) for j in range(9)])})
    # 7. another epsilon in the source
    other, other_size = checksum(forward(as_planes([c(i) for i in range(3 * SIDE * SIDE)]), weights, epsilon=1e-3))
    check(abs(other - total) > 3e-4 * size, "an epsilon of 1e-3 is not told", other, total)
    expect_error(["run", write(path, weights, flexlab_probe=f"{SIDE}x{SIDE}x3 {other:.9g} {other_size:.9g}"), "--model", "resnet8"], 1,
                 "the output has the checksum")
    # transpile shows the same number
    out = os.path.join(place, "out.safetensors")
    shown = succeed("transpile", write(path, weights), *ARGUMENTS, "--to", "fp16", "--out", out).stdout
    check(re.search(rf"^fc +{re.escape(f'{told(path)[0]:.6g}')} ", shown, re.M), "transpile does not show", told(path), shown)


def test_images(place, weights):
    """8. The normalisation left out: there is no default, and the first image shows what the network was given."""
    path = write(os.path.join(place, "images.safetensors"), weights)
    source = random.Random(8)
    pixels = [source.randrange(256) for _ in range(2 * 3 * SIDE * SIDE)]

    data = ["--data", f"npy:{npy(place, 'x.npy', [2, SIDE, SIDE, 3], bytes(pixels))},{npy(place, 'y.npy', [2], bytes([3, 4]))}", "--split", "train"]
    expect_error(["eval", path, *ARGUMENTS, *data], 2, "expected --mean and --std")
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    first = [(p / 255 - mean[i % 3]) / deviation[i % 3] for i, p in enumerate(pixels[:3 * SIDE * SIDE])]
    expected = [*checksum(first), *checksum(forward(as_planes(first), weights))]

    def shown(*normalisation):
        line = re.search(r"^first image .*: checksum (\S+) \(size (\S+)\); its output in fp32: (\S+) \((\S+)\)$",
                         succeed("eval", path, *ARGUMENTS, *data, *normalisation, "--formats", "fp32").stdout, re.M)
        return [float(v) for v in line.groups()] if line else [math.nan] * 4
    found = shown("--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225")
    check(all(abs(a - b) <= 1e-5 * size for a, b, size in zip(found, expected, [expected[1]] * 2 + [expected[3]] * 2)), found, expected)
    for wrong in (["--mean", "0", "--std", "1"], ["--mean", "0.406,0.456,0.485", "--std", "0.225,0.224,0.229"]):
        found = shown(*wrong)
        check(all(abs(found[k] - expected[k]) > 1e-3 * expected[k + 1] for k in (0, 2)), wrong, "is not told:", found, expected)


def test_script():
    """The script of info has these definitions: its function c is compared number by number."""
    text = succeed("info", "resnet20", "--probe").stdout
    line = re.search(r"return \(numpy.arange\(1, n \+ 1, dtype=numpy.uint64\) \* (\d+) % 2\*\*32\) \* 2\.0\*\*-31 - 1", text)
    check(line and line[1] == "2654435761" and "(3 / len(y))**0.5 * (c(len(y)) @ y)" in text and '"flexlab.probe"' in text, text)
    compile(text, "script", "exec")
    compile(succeed("info", "gpt", "--probe").stdout, "script", "exec")
    expect_error(["info", "resnet20", "--prove"], 2, "unexpected argument '--prove'")
    check(run("info", "--model", "resnet20").returncode == 2, "info without a name")


def test_real(place):
    """ResNet-20 of akamaster on images that no JPEG has seen, if FLEXLAB_DATA has both: 776 of 846 right."""
    data = os.environ.get("FLEXLAB_DATA", "")
    weights, images = (os.path.join(data, name) for name in ("resnet20-cifar10.safetensors", "cifar10-lossless-test.bin.xz"))
    if not os.path.exists(weights) or not os.path.exists(images):
        print("the real weights are left out: FLEXLAB_DATA names no folder with", os.path.basename(weights), "and", os.path.basename(images))
        return
    with lzma.open(images) as file:
        records = file.read()
    count, pixels = len(records) // 3073, bytearray()
    for i in range(count):
        image = bytearray(3072)
        for k in range(3):
            image[k::3] = records[i * 3073 + 1 + 1024 * k:i * 3073 + 1025 + 1024 * k]
        pixels += image
    specification = f"npy:{npy(place, 'images.npy', [count, 32, 32, 3], pixels)},{npy(place, 'labels.npy', [count], records[::3073])}"
    shown = succeed("eval", weights, "--model", "resnet20", "--data", specification, "--split", "train", "--mean", "0.485,0.456,0.406",
                    "--std", "0.229,0.224,0.225").stdout
    row = {line.split()[0]: line.replace("%", " ").split()[1:] for line in shown.splitlines() if line.strip()}
    check(count == 846 and row["fp32"][0] == "91.73" == f"{100 * 776 / 846:.2f}", shown)
    for name, worst in (("fp16", 0.06), ("flex16+5", 0.04), ("dfp16", 0.04)):
        check(row[name][1] == "100.00" and float(row[name][2]) <= worst, name, row[name], "of", shown)


def main():
    with tempfile.TemporaryDirectory() as place:
        weights = state_dict()
        test_provoked(place, weights)
        test_images(place, weights)
        test_script()
        test_real(place)
    return summary()


check(os.path.exists(PROGRAM), PROGRAM)
sys.exit(main())
