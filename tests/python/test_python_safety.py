#!/usr/bin/env python3
"""No argument ends the process: every function of flexlab.c is called with NULL, ints, texts, objects that were freed, objects
of other kinds, and right ones, each alone among right ones and all mixed at random. A child makes the calls, and says which
before each; this process says which one it died of, and lets another go on behind it. Lengths are the caller's promise, as
in C: arrays are longer than any length that is given with them.
usage: test_python_safety.py [long]"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

CHILD = "--child" in sys.argv
if CHILD:
    import ctypes

    import numpy as np

    import flexlab as fl
else:
    from checks import LONG, SANITIZED, check, fl, run

ROUNDS = 12  # of random arguments for each function; four times as many in the long form
ELEMENTS = 1 << 16
SECONDS = 240  # for forty functions
# Their callbacks, called where nothing can be raised, would replace what the process allocates with.
HOOKS = {"tensor_set_allocator"}
NUMBER_TYPES = {"float": "f4", "double": "f8", "int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "int32_t": "i4", "int64_t": "i8",
                "uint16_t": "u2", "uint32_t": "u4", "uint64_t": "u8", "int": "i4", "unsigned": "u4", "bool": "?", "size_t": "u8"}


class Fresh:
    """An array that is made when it is chosen."""

    def __init__(self, make, *how):
        self.make = lambda: make(*how)


def given(one):
    return one.make() if isinstance(one, Fresh) else one


class Pools:
    """What is tried for a parameter, right ones first."""

    def __init__(self, folder):
        c = self.c = fl.c
        self.kept, self.folder, self.complex = [], folder, np.zeros(ELEMENTS, "c16")
        self.tensors = [fl.tensor(np.ones((2, 3)), "fp32"), fl.tensor(np.ones((2, 3)), "flex16+5"),
                        fl.tensor(np.ones((2, 4, 4, 3)), "bf16"), fl.empty((2,), "i32"), fl.tensor(np.ones((2, 3)), "fp32").T]
        net = fl.nn.Network("flex16+5", batch=2)
        net.compile(net.linear("fc", net.avgpool_global("pool", net.input(4, 4, 3)), 2))
        ended = fl.nn.Network("fp32", batch=2).model("mlp2", 4, 4, 3, 2)
        tensor = ended.tensors()[0]
        telemetry = ended.telemetry(every=1)
        ended.free()
        self.freed = [ended, telemetry._handle, tensor, c.nn_graph_new(c.nn_config(variant="fp32", batch=2))]
        c.nn_graph_free(self.freed[-1])
        data = c.data_open("synthetic:train=8,test=8,size=4", 0) or c.data_open("synthetic:train=8,test=8", 0)
        made = {"nn_graph": [net, fl.nn.Network("fp16", batch=2)], "data_set": [data], "nn_telemetry": [net.telemetry(every=1)],
                "data_loader": [c.data_loader_new(data, c.data_loader_config(batch=2))], "tensor_device": [c.tensor_device_at(0)],
                "nn_data": [], "nn_trainer": [], "nn_group": [], "program": [c.program()]}
        given = c.program()
        try:
            c.program_from_graph(given, net)
            made["program"].insert(0, given)
        except fl.Error:
            pass
        self.objects = {name: [one for one in some if one is not None] for name, some in made.items()}
        assert set(self.objects) | {"tensor"} == set(c.OPAQUE), c.OPAQUE

    def of(self, kind, parameter, function):
        c = self.c
        name, stars = c.resolved(c.base(kind)), kind.count("*")
        wrong = [None, 5, -1, "text", self.complex, self.objects["nn_graph"][0], self.objects["tensor_device"][0],
                 c.tensor_window(), *self.freed]
        if name in c.CALLBACKS:
            return [None] + ([] if function in HOOKS else [lambda *a: 0, lambda *a: {}["no"]]) + wrong
        if name == "void" and stars:
            return [Fresh(np.zeros, ELEMENTS, "u1"), bytes(ELEMENTS)] + wrong if parameter != "context" else [None, 3, "x"]
        if stars == 2:
            return [c.pointer_type(name)() if name in c.OPAQUE else ctypes.POINTER(c.struct(name))()] + wrong
        if name == "tensor":
            return self.tensors + wrong
        if name in c.OPAQUE:
            return self.objects[name] + wrong
        if name == "char" and stars:
            return [str(self.folder / "file"), "flex16+5", "fp16", "conv", "", "relu"] + wrong if kind.startswith("const") else \
                [Fresh(ctypes.create_string_buffer, ELEMENTS)] + wrong
        if name in c.STRUCTS:
            made = c.struct(name)
            return [made() for _ in range(2)] + wrong
        if stars:
            numbers = NUMBER_TYPES["int" if name in c.ENUMS else name]
            return [Fresh(np.ones, ELEMENTS, numbers), Fresh(np.zeros, ELEMENTS, numbers)] + wrong
        if name in ("float", "double"):
            return [1.0, 0.0, -1.0, float("nan"), float("inf"), 1e30, None, "x"]
        # Lengths of arrays, and of memory that is set to zero, which takes seconds for gigabytes.
        long = function == "tensor_device_allocate" or any(
            "*" in one and not one.startswith("const char") and c.base(one) in (*NUMBER_TYPES, "void", "char")
            for one, _ in c.FUNCTIONS[function][1])
        return [1, 2, 0, 3, -1, 7] + ([] if long else [2 ** 31 - 1, -2 ** 31, 240]) + [None, "x", 1.5, 2 ** 70]


def shown(one):
    """Of a long array no numbers, whose printing would take longer than the call."""
    long = isinstance(one, (np.ndarray, bytes, ctypes.Array))
    return f"<{getattr(one, 'dtype', type(one).__name__)} of {len(one)}>" if long else repr(one)[:60]


def child(names, first, rounds, progress):
    """Calls of these functions from the `first` on; each is written down before it is made."""
    log = open(progress, "w")
    pools = Pools(pathlib.Path(os.getcwd()))
    number = 0
    for name in names:
        taken = fl.c.FUNCTIONS[name][1]
        draw = random.Random(name)
        right = [given(pools.of(kind, parameter, name)[0]) for kind, parameter in taken]
        calls = [right, [None] * len(taken), [5] * len(taken)]
        for i, (kind, parameter) in enumerate(taken):
            calls += [[*right[:i], given(one), *right[i + 1:]] for one in pools.of(kind, parameter, name)]
        calls += [[given(draw.choice(pools.of(kind, parameter, name))) for kind, parameter in taken] for _ in range(rounds)]
        for arguments in calls:
            number += 1
            if number <= first:
                continue
            log.seek(0)
            text = f"{number} {name}({', '.join(map(shown, arguments))})".replace("\n", " ")
            log.write(f"{text[:600]:600}\n")
            log.flush()
            if name.endswith(("_free", "_finish")) and any(one is arguments[-1] for some in pools.objects.values() for one in some):
                continue  # what later calls need
            try:
                getattr(fl.c, name)(*arguments)
            except (TypeError, ValueError, RuntimeError, fl.Error, KeyError):
                pass  # KeyError: of the function that fails
            if name == "tensor_set_allocator":
                fl.c.tensor_set_allocator(None, None)
    log.seek(0)
    log.write(f"{'ended ' + str(number):600}\n")


def walk():
    names = sorted(set(fl.c.FUNCTIONS) - {"nn_group_abort"})  # which ends the process by its promise
    check(len(names) > 450, len(names), "functions, expected more than 450")
    rounds, dead = 2 if SANITIZED else ROUNDS * (4 if LONG else 1), set()
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(fl.__file__)))}
    for begin in range(0, len(names), 40):
        some, first = names[begin:begin + 40], 0
        while True:
            with tempfile.TemporaryDirectory() as folder:
                progress = pathlib.Path(folder) / "progress.txt"
                command = [sys.executable, os.path.abspath(__file__), "--child", str(first), str(rounds), str(progress), *some]
                with open(pathlib.Path(folder) / "said", "w+") as said:
                    died = "lasts too long"
                    try:
                        status = subprocess.run(command, cwd=folder, stdout=said, stderr=said, env=environment,
                                                timeout=SECONDS * (4 if SANITIZED else 1)).returncode
                        died = f"ends the process with {status}"
                    except subprocess.TimeoutExpired:
                        pass
                    said.seek(0)
                    text = said.read()[-1500:]
                at = progress.read_text().split("\n")[0].strip() if progress.exists() else ""
            if at.startswith("ended") and status == 0:
                check(int(at.split()[1]) > 10 * len(some), at, "calls of", len(some), "functions")
                break
            name = at.split(" ", 1)[-1].split("(")[0]
            check(name in dead, at or "the beginning", died, text)  # each once
            dead.add(name)
            if not at or at.startswith("ended"):
                break
            first = int(at.split()[0])


if CHILD:
    at = sys.argv.index("--child")
    child(sys.argv[at + 4:], int(sys.argv[at + 1]), int(sys.argv[at + 2]), sys.argv[at + 3])
else:
    run(walk)
