#!/usr/bin/env python3
"""Everything public is reachable from Python. Functions are those that the library exports (its symbol table, not the
headers that the package was generated from): each is in flexlab.c, can be called, and has a docstring and a stub; each
operation of ops.def that has a public function is in flexlab itself, or in flexlab.c where it is none on tensors alone.
Structs of ctypes have the layout that the C compiler gives them.
usage: test_python_walk.py SOURCE GENERATED_INCLUDES COMPILER"""
import ast
import ctypes
import inspect
import pathlib
import re
import subprocess
import sys
import tempfile

from checks import check, fl, library, run, skip

source, generated = map(pathlib.Path, sys.argv[1:3])
compiler = sys.argv[3] if len(sys.argv) > 3 else "cc"
package = pathlib.Path(fl.__file__).parent
# One tensor that is changed in place, and results that are numbers: functions of flexlab.c, and not of flexlab.
ALONE = {"clip_weight", "max_abs", "sum"}
pragmas = re.findall(r"^#pragma redefine_extname (\w+) flexlab_(\w+)$", (generated / "flexlab/symbols.h").read_text(), re.M)
exported = {name for name, _ in pragmas} | {"flexlab_version"}  # which has the prefix in C, too


def stubs(name):
    """The functions and classes of a stub, with their docstrings."""
    tree = ast.parse((package / name).read_text())
    return {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def functions():
    check(len(exported) > 450, f"{len(exported)} exported functions, expected more than 450")
    stub = stubs("_library.pyi")
    for name in sorted(exported):
        check(hasattr(library, f"flexlab_{name.removeprefix('flexlab_')}"), f"{name} is no symbol of the library")
        try:
            function = getattr(fl.c, name)
        except Exception as error:
            check(False, f"flexlab.c.{name}: {error!r}")
            continue
        check(callable(function), f"flexlab.c.{name} cannot be called")
        check(function.__doc__ and name in function.__doc__.split("\n")[0] and len(function.__doc__.split("\n")) > 2,
              f"flexlab.c.{name} has no docstring")
        check(function.__doc__.split("\n\n", 1)[-1].split("\n\nflexlab/")[0].strip(), f"flexlab.c.{name}: no comment")
        check(stub.get(name), f"flexlab.c.{name} has no stub with a docstring")
        check(name in dir(fl.c), f"dir(flexlab.c) has no {name}")
    for name in fl.c.FUNCTIONS:
        check(name in exported, f"flexlab.c has {name}, which the library does not export")


def operations():
    text = (source / "include/flexlab/ops.def").read_text()
    rows = re.findall(r"^FL_(\w+)\((?:\d+, \w+, )?(\w+)", text, re.M)
    named = {name for kind, name in rows if f"tensor_{name}" in exported}
    without = {f"{kind}({name})" for kind, name in rows if kind not in ("INTERNAL", "OP") and f"tensor_{name}" not in exported}
    check(not without, f"rows without a public function: {without}")
    check(len(named) > 150, f"{len(named)} operations, expected more than 150")
    stub, package_stub = stubs("_operations.pyi"), (package / "__init__.pyi").read_text()
    for name in sorted(named):
        if not hasattr(fl, name):
            check(name in ALONE and hasattr(fl.c, f"tensor_{name}"), f"{name} is nowhere, or in flexlab.c alone")
            continue
        check(name in fl.OPERATIONS, f"flexlab.{name} is no operation")
    for name in fl.OPERATIONS:
        function = getattr(fl, name)
        check(function.__doc__ and f"C: tensor_{name}" in function.__doc__, f"flexlab.{name} has no docstring")
        check(stub.get(name), f"flexlab.{name} has no stub with a docstring")
        try:
            taken = inspect.signature(function).parameters
            check("out" in taken or "Writes into its tensors" in function.__doc__, f"flexlab.{name} has no out=")
        except ValueError as error:
            check(False, f"flexlab.{name} has no signature: {error}")
    alone = [name for kind, name in rows if kind.startswith(("MAP", "REAL")) and not hasattr(fl, name)]
    check(not alone, f"elementwise operations that are no functions of flexlab: {alone}")
    check("from ._operations import *" in package_stub, "the stub of the package does not have the operations")
    for name in ("Tensor", "tensor", "empty", "zeros", "from_dlpack", "Error", "ShapeError", "c", "set_threads", "devices"):
        check(re.search(rf"\b(as|def) {name}\b", package_stub), f"the stub of the package does not have {name}")


def names_of_package():
    """What the package offers, its stub has, and the other way round."""
    tree = ast.parse((package / "__init__.pyi").read_text())
    named = {one.asname or one.name for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names}
    named |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name in named - {"*"}:
        if name != "torch":  # which needs PyTorch
            check(hasattr(fl, name), f"the stub of the package has {name}, which flexlab has not")
    for name in vars(fl):
        value = getattr(fl, name)
        if not name.startswith("_") and name not in fl.OPERATIONS and (inspect.isfunction(value) or inspect.isclass(value)):
            check(name in named, f"flexlab.{name} is not in the stub of the package")


def structs():
    """Sizes and offsets by the C compiler."""
    lines = ["#include <stdio.h>", "#include <stddef.h>", "#include \"flexlab/flexlab.h\"", "#include \"flexlab/tensor_blocks.h\"",
             "#include \"flexlab/program.h\"", "int main(void) {"]
    expected = {}
    for name in fl.c.STRUCTS:
        made = getattr(fl.c, name)
        kind = name if re.search(rf"\}} {name};|typedef struct {name} {name};", headers) else f"struct {name}"
        lines.append(f'printf("{name} %zu\\n", sizeof({kind}));')
        expected[name] = ctypes.sizeof(made)
        for member, *_ in made._fields_:
            lines.append(f'printf("{name}.{member} %zu %zu\\n", offsetof({kind}, {member}), sizeof((({kind} *)0)->{member}));')
            field = getattr(made, member)
            expected[f"{name}.{member}"] = (field.offset, field.size)
    for name, value in fl.c.CONSTANTS.items():
        lines.append(f'printf("{name} %lld\\n", (long long){name});')
        expected[name] = value
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "structs"
        program.with_suffix(".c").write_text("\n".join(lines))
        try:
            made = subprocess.run([compiler, program.with_suffix(".c"), "-o", program, f"-I{source / 'include'}", f"-I{generated}"],
                                  capture_output=True, text=True)
        except FileNotFoundError:
            return skip(f"the layout of structs: there is no compiler {compiler}")
        if not check(made.returncode == 0, "the program that prints the layout of structs:", made.stderr[:2000]):
            return
        for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines():
            name, *numbers = line.split()
            want = expected.pop(name)
            got = tuple(map(int, numbers)) if len(numbers) > 1 else int(numbers[0])
            check(got == want, f"{name} is {got} in C, and {want} in flexlab.c")
    check(not expected, f"not printed: {list(expected)[:5]}")


headers = "".join(path.read_text() for path in (source / "include/flexlab").glob("*.h"))
run(functions, operations, names_of_package, structs)
