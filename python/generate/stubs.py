"""Stubs for editors and type checkers: of the package, which re-exports what its modules have, and of flexlab.c, every
function, struct and constant of the C library. (Those of the operations are in write.py.)"""
import ast
import keyword
import re

NUMBERS = {"float": "float", "double": "float", "bool": "bool"}


def quoted(text, indent="    "):
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"').replace("\n", f"\n{indent}")
    return f'{indent}"""{text}{" " if text.endswith(chr(34)) else ""}"""'


def base_of(found, kind):
    name = kind.replace("const ", "").replace("struct ", "").replace("*", "").strip()
    return found["aliases"].get(name, name), kind.count("*")


def taken_type(found, kind):
    """What a parameter accepts."""
    name, stars = base_of(found, kind)
    if name in found["callbacks"]:
        return "Callable[..., Any] | None"
    if stars == 0:
        return NUMBERS.get(name, name if name in found["structs"] else "int")
    if name == "char" and stars == 1:
        return "str | bytes | PathLike[str] | None" if "const" in kind else "Any"
    if name == "tensor" and stars == 1:
        return "Tensor | None"
    if name in found["structs"] and stars == 1:
        return f"{name} | dict[str, Any] | None" if "const" in kind else f"{name} | None"
    return "Any"


def given_type(found, kind, wrapped=False):
    """What a function returns, or a member is."""
    name, stars = base_of(found, kind)
    if kind in ("void", "tensor_status"):
        return "None"
    if stars == 0:
        return NUMBERS.get(name, name if name in found["structs"] else "Any" if name in found["callbacks"] else "int")
    return "str | None" if name == "char" and stars == 1 and "const" in kind else "Any"


def write_library(path, found):
    lines = ['"""flexlab.c: the functions, structs and constants of the C library, generated from its headers."""',
             "from collections.abc import Callable", "from os import PathLike", "from typing import Any",
             "from ._tensor import Tensor", "",
             "class Handle:", "    def __init__(self, pointer: Any, free: Callable[[Any], Any] | None = None) -> None: ...",
             "    @property", "    def pointer(self) -> int: ...", "    def free(self) -> None: ...", ""]
    for name in found["opaque"]:
        lines += [f"class {name}:", quoted(f"A pointer to a {name}, as functions return it; {name}() where one leaves it."),
                  "    def __bool__(self) -> bool: ...", ""]
    for name, value in found["constants"].items():
        lines.append(f"{name}: int  # {value}")
    lines.append("")
    for name, (members, comment) in found["structs"].items():
        lines.append(f"class {name}:")
        lines.append(quoted(comment or f"struct {name}"))
        lines.append("    def __init__(self, **members: Any) -> None: ...")
        for kind, member, length, _ in members:
            if not keyword.iskeyword(member):  # those are for getattr and setattr
                lines.append(f"    {member}: {'Any' if length else given_type(found, kind)}")
        lines.append("")
    for name in found["callbacks"]:
        lines.append(f"{name}: Any")
    lines.append("")
    for name, (result, taken, comment, header) in found["functions"].items():
        words = [f"{f'{parameter}_' if keyword.iskeyword(parameter) else parameter or f'argument{i}'}: {taken_type(found, kind)}"
                 for i, (kind, parameter) in enumerate(taken)]
        lines.append(f"def {name}({', '.join(words)}{', /' if words else ''}) -> {given_type(found, result)}:")
        lines.append(quoted(f"{comment}\n\nflexlab/{header}"))
        lines.append("")
    path.write_text("\n".join(lines))


def write_package(path, package):
    """The stub of the package, by its __init__.py: what that imports, defines and finds when it is first used."""
    lines = ['"""flexlab, generated from its __init__.py."""', "from . import _library as c", "from ._operations import *"]
    tree = ast.parse((package / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            lines += [f"from .{node.module} import {one.name} as {one.asname or one.name}" for one in node.names]
        elif isinstance(node, ast.Assign) and node.targets[0].id == "LAZY":
            for name, module in ast.literal_eval(node.value).items():
                if name == module and ((package / f"{module}.py").exists() or (package / module).is_dir()):
                    lines.append(f"from . import {name} as {name}")
                elif (package / f"{module}.py").exists() and defines(package / f"{module}.py", name):
                    lines.append(f"from .{module} import {name} as {name}")
    lines += ["", "OPERATIONS: tuple[str, ...]", "__version__: str", ""]
    types = {"count": ": int"}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            taken = ", ".join(one.arg + types.get(one.arg, "") for one in node.args.args)
            lines += [f"def {node.name}({taken}):", quoted(re.sub(r"\s+", " ", ast.get_docstring(node) or "")), ""]
    path.write_text("\n".join(lines))


def defines(path, name):
    return any(getattr(node, "name", None) == name or isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name
               or isinstance(node, ast.ImportFrom) and name in (one.asname or one.name for one in node.names)
               for node in ast.parse(path.read_text()).body)
