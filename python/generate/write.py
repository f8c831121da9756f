#!/usr/bin/env python3
"""Writes what the package takes from the public headers: calls.inc (the operations, for C), _declarations.py (every
function, struct and constant, for ctypes), and stubs for editors and type checkers: _operations.pyi (the operations),
_library.pyi (flexlab.c) and __init__.pyi (the package).
usage: write.py OUTPUT_FOLDER PACKAGE_FOLDER INCLUDE_FOLDER..."""
import importlib.util
import pathlib
import pprint
import re
import sys

import declarations
import stubs

KINDS = {"float": "FLOAT", "double": "DOUBLE", "int": "INT", "unsigned": "UNSIGNED", "int64_t": "INT64", "uint64_t": "UINT64",
         "int32_t": "INT32", "bool": "BOOL", "const int *": "INTS", "tensor *": "TENSOR", "const tensor *": "TENSOR"}
PYTHON = {"FLOAT": "float", "DOUBLE": "float", "BOOL": "bool", "AXES": "int | Sequence[int] | None", "INTS": "Sequence[int]",
          "TENSOR": "Tensor"}
FIELDS = {"FLOAT": "f", "DOUBLE": "d", "INT": "i", "UNSIGNED": "u", "INT64": "l", "UINT64": "w", "INT32": "i", "BOOL": "b",
          "AXES": "u", "INTS": "ints", "TENSOR": "t"}
DEFAULTS = {"epsilon": 1e-5, "scale": 1.0, "delta": 1.0}
# They end the life of a tensor, or lend memory for a time that the caller decides: the class Tensor does what they do.
NOT_OPERATIONS = {"tensor_new_on", "tensor_load_pixels"}


def option_kind(found, kind):
    kind = found["aliases"].get(kind, kind)
    return "INT" if kind in found["enums"] else KINDS.get(kind)


def struct_of(found, kind):
    """The struct of options that a parameter points to, whose members are all of kinds that keywords can be."""
    match = re.fullmatch(r"const (\w+) \*", kind)
    name = match and found["aliases"].get(match[1], match[1])
    if not name or name not in found["structs"]:
        return None
    return name if all(isinstance(m[2], str) and option_kind(found, m[0]) not in (None, "INTS")
                       for m in found["structs"][name][0]) else None


def is_optional(comment, name):
    return bool(re.search(rf"\b{name}\b,? ?\(?(?:of type )?(?:\([^)]*\) )?\(?NULL", comment)
                or re.search(rf"\b{name}\b[^.;:()]*\(NULL", comment))


def operations(found, shapes):
    """The functions that Python calls without ctypes: name -> (parameters, number of results, like the first)."""
    result = {}
    for function, (returned, taken, comment, header) in found["functions"].items():
        name = function.removeprefix("tensor_")
        if returned != "tensor_status" or name == function or not taken or taken[0][0] != "tensor *" or function in NOT_OPERATIONS:
            continue
        parameters = []
        for kind, parameter in taken:
            struct = struct_of(found, kind)
            code = "AXES" if parameter == "axes" else "OPTIONS" if struct else KINDS.get(kind) or (
                "INT" if kind in found["enums"] else None)
            optional = code in ("BOOL", "OPTIONS", "AXES") or parameter in DEFAULTS or (
                code == "TENSOR" and is_optional(comment, parameter))
            parameters.append((parameter, code, optional, struct))
        if any(code is None for _, code, _, _ in parameters) or not any(
                kind == "const tensor *" for kind, _ in taken) and name not in shapes.LIKE | set(shapes.RULES):
            continue
        leading = next((i for i, (kind, _) in enumerate(taken) if kind != "tensor *"), len(taken))
        row = header in ("tensor_elementwise.h", "blocks_elementwise.h")
        ruled = row or name in shapes.LIKE or name in shapes.RULES
        result[name] = (parameters, leading if ruled else 0, (row and name not in shapes.RULES) or name in shapes.LIKE)
    return result


def c_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def signature(name, parameters, results, found, annotated=False):
    words, keywords = [], []
    for parameter, code, optional, struct in parameters[results:]:
        if struct:
            for kind, member, length, _ in found["structs"][struct][0]:
                one = option_kind(found, kind)
                kind = PYTHON.get(one, "int")
                keywords.append(f"{member}: {f'int | Sequence[int]' if length else kind}{' | None' if one == 'TENSOR' else ''} = ..."
                                if annotated else f"{member}=None")
            continue
        default = "None" if code in ("TENSOR", "AXES") else "False" if code == "BOOL" else str(DEFAULTS.get(parameter, "None"))
        kind = PYTHON.get(code, "int") + (" | None" if code == "TENSOR" and optional else "")
        words.append((f"{parameter}: {kind}" if annotated else parameter) +
                     ((" = " if annotated else "=") + default if optional else ""))
    # A parameter without a default cannot follow one with: it is a keyword then.
    first = next((i for i, word in enumerate(words) if "=" in word), len(words))
    late = [word for word in words[first:] if "=" not in word]
    words = [word for word in words if word not in late]
    keywords = late + keywords
    if results:
        one = "Tensor" if results == 1 else f"tuple[{', '.join(['Tensor | None'] * results)}]"
        keywords.append(f"out: {one} | None = None" if annotated else "out=None")
    return ", ".join(words + (["*"] + keywords if keywords else []))


def docstring(found, name, results, parameters):
    function = f"tensor_{name}"
    returned, taken, comment, header = found["functions"][function]
    names = [parameter for parameter, *_ in parameters[:results]]
    made = (f"\n\nReturns {names[0]}." if results == 1 else f"\n\nReturns ({', '.join(names)}); None in place of one of out means that it is not wanted."
            if results else "\n\nWrites into its tensors, as in C.")
    return comment + made + f"\n\nC: {function}, flexlab/{header}"


def write_calls(path, found, made):
    lines = ["/* calls.inc - generated from the public headers by generate/write.py. */"]
    for struct in sorted({p[3] for parameters, *_ in made.values() for p in parameters if p[3]}):
        lines.append(f"_Static_assert(sizeof({struct}) <= OPTION_BYTES, \"{struct}\");")
        lines.append(f"static const struct option members_of_{struct}[] = {{")
        for kind, member, length, _ in found["structs"][struct][0]:
            count = f"(int)(sizeof((({struct} *)0)->{member}) / sizeof((({struct} *)0)->{member}[0]))" if length else "0"
            lines.append(f'    {{"{member}", KIND_{option_kind(found, kind)}, offsetof({struct}, {member}), {count}}},')
        lines.append(f"    {{0}}}};\nstatic const struct options options_{struct} = {{sizeof({struct}), members_of_{struct}}};")
    for name, (parameters, results, like) in made.items():
        lines.append(f"static const struct parameter parameters_of_{name}[] = {{")
        arguments = []
        for i, (parameter, code, optional, struct) in enumerate(parameters):
            lines.append(f'    {{"{parameter}", KIND_{code}, {str(optional).lower()}, {DEFAULTS.get(parameter, 0)}, '
                         f'{f"&options_{struct}" if struct else "NULL"}}},')
            kind = found["functions"][f"tensor_{name}"][1][i][0]
            arguments.append(f"(const void *)v[{i}].options" if struct else
                             f"({kind})v[{i}].i" if kind in found["enums"] else f"v[{i}].{FIELDS[code]}")
        lines.append("};")
        lines.append(f"static tensor_status run_{name}(const union value *v) {{\n    return tensor_{name}({', '.join(arguments)});\n}}")
        lines.append(f'static const struct operation operation_{name} = {{"{name}", parameters_of_{name}, {len(parameters)}, {results}, '
                     f"{str(like).lower()}, run_{name}}};")
        lines.append(f"static PyObject *call_{name}(PyObject *m, PyObject *const *a, Py_ssize_t n, PyObject *k) {{\n"
                     f"    (void)m;\n    return call(&operation_{name}, a, n, k);\n}}")
    lines.append("static PyMethodDef operations[] = {")
    for name, (parameters, results, _) in made.items():
        text = f"{name}({signature(name, parameters, results, found)})\n--\n\n" + docstring(found, name, results, parameters)
        lines.append(f'    {{"{name}", (PyCFunction)(void (*)(void))call_{name}, METH_FASTCALL | METH_KEYWORDS,\n     {c_text(text)}}},')
    lines.append("    {0}};")
    path.write_text("\n".join(lines) + "\n")


def write_stubs(path, found, made):
    lines = ['"""The operations of flexlab, generated from the public headers."""', "from collections.abc import Sequence",
             "from ._tensor import Tensor", ""]
    for name, (parameters, results, _) in made.items():
        one = "Tensor" if results == 1 else f"tuple[{', '.join(['Tensor'] * results)}]" if results else "None"
        lines.append(f"def {name}({signature(name, parameters, results, found, True)}) -> {one}:")
        lines.append('    """' + docstring(found, name, results, parameters).replace("\\", "\\\\").replace("\n", "\n    ") + '"""')
        lines.append("    ...\n")
    path.write_text("\n".join(lines))


def write_declarations(path, found):
    text = ['"""Every public declaration of the C library, generated from its headers."""']
    for name in ("functions", "structs", "callbacks", "enums", "constants", "aliases", "opaque"):
        text.append(f"{name.upper()} = {pprint.pformat(found[name], width=200, sort_dicts=False)}")
    path.write_text("\n".join(text) + "\n")


def main():
    output, package, *include = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    spec = importlib.util.spec_from_file_location("shapes", package / "_shapes.py")
    shapes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shapes)
    found = declarations.read(include)
    made = operations(found, shapes)
    unknown = (shapes.LIKE | set(shapes.RULES)) - set(made)
    if unknown:
        raise SystemExit(f"_shapes.py has rules for what is no operation: {', '.join(sorted(unknown))}")
    write_calls(output / "calls.inc", found, made)
    write_declarations(output / "_declarations.py", found)
    write_stubs(output / "_operations.pyi", found, made)
    stubs.write_library(output / "_library.pyi", found)
    stubs.write_package(output / "__init__.pyi", package)


main()
