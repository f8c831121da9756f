#!/usr/bin/env python3
"""A checkpoint of each variant, opened in Python: the values of every weight and every momentum are those that the
library prints, bit for bit; exponents, histories and statistics are at the positions of docs/checkpoints.md.

    test_checkpoint.py PATH-OF-TEST_NN_CHECKPOINT"""
import fractions
import math
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.append(sys.path[0] + "/../support")
import safetensors_witness as witness

KINDS = {"fp32": ("F32", None), "fp16": ("F16", "F32"), "bf16": ("BF16", "F32"), "flex16+5": ("I16", "I32"), "dfp16": ("I16", "I32"),
         "flex16+5-sr": ("I16", None), "flex16+5-paper": ("I16", None), "fp16:none": ("F16", None), "dfp16:none": ("I16", None)}
checks, failures = 0, 0


def check(condition, *what):
    global checks, failures
    checks += 1
    if not condition:
        failures += 1
        print("FAILED:", *what)


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


def exact(tensor, exponent):
    """The elements as exact numbers: mantissas are m * 2^-exponent."""
    numbers = witness.values(tensor)
    return [fractions.Fraction(m) * fractions.Fraction(2) ** -exponent for m in numbers] if exponent is not None else numbers


def told(path):
    """{(name, kind): numbers} as the library printed them."""
    with open(path) as file:
        return {tuple(line.split()[:2]): [float.fromhex(w) for w in line.split()[2:]] for line in file}


def check_values(what, tensors, notes, name, numbers):
    kind, wide_kind = KINDS[what]
    momentum = name.endswith(".momentum")
    check(tensors[name][0] == kind, what, name, "is", tensors[name][0])
    exponent = int(notes[name + ".exponent"]) if kind == "I16" else None
    values = exact(tensors[name], exponent)
    check(len(values) == len(numbers) and all(map(same, values, numbers)), what, name, "has other values")
    has_wide = name + ".wide" in tensors
    check(has_wide == (wide_kind is not None and not momentum), what, name, "has a wide part:", has_wide)
    return exponent


def check_file(what, folder):
    path = os.path.join(folder, what + ".safetensors")
    tensors, notes = witness.read(path)
    library = told(os.path.join(folder, what + ".txt"))
    variant = what.split(":")[0]
    check(notes["flexlab.crc32"] == witness.checksum(path), what, "checksum")
    expected = {"flexlab.checkpoint": "1", "network.variant": variant, "network.batch": "4", "network.seed": "7", "network.steps": "6",
                "author": "é\"\\\n", "network.master": "none" if ":" in what else "default"}
    check({k: notes.get(k) for k in expected} == expected, what, notes)
    check(float(notes["network.momentum"]) == 0.8999999761581421 or abs(float(notes["network.momentum"]) - 0.9) < 1e-7, what, notes)
    names = {name for name, kind in library if kind == "values"}
    check("conv1.weight" in names and "fc2.bias" in names and "bn2.gamma.momentum" in names, what, names)
    for name in names:
        check_values(what, tensors, notes, name, library[name, "values"])
        if name + ".wide" in tensors:
            shared = tensors[name][0] == "I16"
            wide = exact(tensors[name + ".wide"], int(notes[name + ".wide.exponent"]) if shared else None)
            check(tensors[name + ".wide"][0] == KINDS[what][1], what, name, "wide is", tensors[name + ".wide"][0])
            check(all(map(same, wide, library[name, "wide"])), what, name, "has other wide values")
            check(tensors[name + ".wide"][1] == tensors[name][1], what, name, "wide shape")
        slot, history = witness.values(tensors[name + ".slot"]), witness.values(tensors[name + ".history"])
        check(len(slot) == 25 and len(history) == 19, what, name, len(slot), len(history))
        statistics = library[name, "statistics"]
        check(slot[13:25] == statistics[:12] and history[17:] == statistics[12:], what, name, "statistics", slot[13:], statistics)
        if (name, "autoflex") in library:
            numbers = library[name, "autoflex"]
            check(slot[:12] == numbers[:12] and history[16] == numbers[12], what, name, "exponent", slot, numbers)
            check(history[:16] == library[name, "history"], what, name, "history")
            check(notes[name + ".exponent"] == str(slot[0]), what, name, "exponent in the notes")
    # Tensors of no weight: running statistics, the slots of activations, gradients, and activations in evaluation.
    for name in ("bn1.running_mean", "bn1.running_variance"):
        check(tensors[name][:2] == ("F64", [3]) and all(map(math.isfinite, witness.values(tensors[name]))), what, name, tensors[name])
    for name in ("conv1", "conv1.grad", "conv1.weight.grad", "conv1.evaluation"):
        check(name not in tensors and name + ".slot" in tensors and name + ".history" in tensors, what, name)
    check(not any(n.startswith(("state.", "training.")) for n in tensors), what, sorted(tensors))
    known = {n + s for n in {k.removesuffix(".slot") for k in tensors if k.endswith(".slot")} for s in ("", ".slot", ".history", ".wide")}
    check(set(tensors) <= known, what, set(tensors) - known)
    check({k for k in notes if k.endswith(".exponent")} ==
          {n + ".exponent" for n in tensors if tensors[n][0] in ("I16", "I32")}, what, "exponents")


def with_package(folder):
    try:
        import numpy
        from safetensors import safe_open
    except ImportError:
        print("Python's packages safetensors and numpy are not installed: they are no witness here")
        return
    for what in KINDS:
        if KINDS[what][0] == "BF16":
            continue # numpy has no such type
        path = os.path.join(folder, what + ".safetensors")
        library = told(os.path.join(folder, what + ".txt"))
        with safe_open(path, "numpy") as file:
            notes = file.metadata()
            for (name, kind), numbers in library.items():
                if kind != "values":
                    continue
                t = file.get_tensor(name).astype(numpy.float64)
                if name + ".exponent" in notes:
                    t = t * 2.0 ** -int(notes[name + ".exponent"])
                check(numpy.array_equal(t.ravel(), numpy.array(numbers)), what, name, "read by safetensors")


def documented(folder):
    """Runs the lines of docs/checkpoints.md on a file of their variant."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "checkpoints.md")
    with open(page, encoding="utf-8") as file:
        code = file.read().split("```python\n")[1].split("```")[0]
    try:
        import numpy, safetensors  # noqa: F401
    except ImportError:
        return
    for what in ("fp32", "dfp16"):
        scope = {}
        exec(code.replace("best.safetensors", os.path.join(folder, what + ".safetensors")), scope)
        want = told(os.path.join(folder, what + ".txt"))["conv1.weight", "values"]
        check(list(scope["w"].ravel()) == want, what, "by the lines of docs/checkpoints.md")


def main():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([os.path.abspath(sys.argv[1]), "write", folder], capture_output=True, text=True, timeout=300)
        check(done.returncode == 0, done.stdout, done.stderr)
        for what in KINDS:
            check_file(what, folder)
        with_package(folder)
        documented(folder)
    print(f"{checks} checks, {failures} failures")
    return 1 if failures or not checks else 0


sys.exit(main())
