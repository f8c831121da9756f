#!/usr/bin/env python3
"""Operands and scalars are named in signatures, and so in error messages, as the parameters of the public prototypes
are, in their order. Members of a parameter that is a struct (a window, an epilogue, options) are operands and scalars
too, under the names of the members; elements of an array have a word for each (stride_down).
usage: test_names.py COMPILER TEST_SIGNATURES INCLUDE_DIR..."""
import re
import subprocess
import sys

compiler, signatures, *folders = sys.argv[1:]
text = subprocess.run([compiler, "-E", "-P", "-x", "c", "-std=c17", *(f"-I{f}" for f in folders), "-"], check=True, text=True,
                      capture_output=True, input='#include "flexlab/tensor_blocks.h"\n').stdout
ELEMENTS = ("", "_down", "_across", "_height", "_width", "_top", "_bottom", "_left", "_right")
structs = {name: {member + element for member, array in re.findall(r"(\w+)(\[\d+\])?\s*[;,]", body)
                  for element in (ELEMENTS if array else ("",))}
           for body, name in re.findall(r"typedef struct \w+ \{([^}]*)\} (\w+);", text)}
prototypes = dict(re.findall(r"\btensor_status tensor_(\w+)\(([^)]*)\)", text))
failures, compared = [], 0
for line in subprocess.run([signatures], check=True, text=True, capture_output=True).stdout.splitlines():
    signature = re.fullmatch(r"(\w+):([\w ]*);([\w ]*)", line)
    if not signature:
        continue
    name, operands, scalars = signature[1], signature[2].split(), signature[3].split()
    if name not in prototypes:
        failures.append(f"{name} has a signature, but no prototype")
        continue
    tensors, others, members, structures = [], [], set(), set()
    for parameter in prototypes[name].split(","):
        kind, star, parameter = re.fullmatch(r"\s*(?:const )?(\w+) (\**)(\w+)\s*", parameter).groups()
        (tensors if kind == "tensor" else others).append(parameter)
        if kind in structs:
            members |= structs[kind]
            structures.add(parameter)
    for what, given, wanted in (("operands", operands, tensors), ("scalars", scalars, others)):
        if [n for n in given if n not in members or n in wanted] != [n for n in wanted if n in given or n not in structures]:
            failures.append(f"{name}: {what} of the signature are {given}, the parameters of the prototype {wanted}")
    compared += 1
if compared < 100:
    failures.append(f"only {compared} signatures were found")
print("\n".join(failures) if failures else f"{compared} signatures have the names of their prototypes")
sys.exit(bool(failures))
