#!/usr/bin/env python3
"""The how-to documents, carried out: the code blocks of docs/adding-a-format.md and docs/adding-an-op.md are applied to a
clean copy of the tree, which must then build, pass test_kernels for what was added, and run the documents' programs; the
programs of the README and of docs/training.md too. Checks that a format is one new folder, an elementwise operation one row and
another operation, instance normalisation, at most six files, which the tests and the page of what runs where find by themselves.
usage: test_growth.py SOURCE_DIR WORK_DIR [long]
Without "long" the library is built without optimisation and for the portable kernel set alone. With it every kernel set is
built, every optimiser trains the new format, and all additions run on the PTX machine, where nvcc is."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

source, work = map(pathlib.Path, sys.argv[1:3])
long = sys.argv[3:] == ["long"]
tree = work / "tree"
BLOCK = re.compile(r"<!-- (file|insert|program)(?:: (\S+))?(?: after: (.*?))? -->\n```\w*\n(.*?)```", re.S)


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if result.returncode:
        print(" ".join(map(str, command)), "failed:\n", (result.stdout + result.stderr)[-4000:])
        sys.exit(1)
    return result.stdout


shutil.rmtree(tree, ignore_errors=True)
tree.mkdir(parents=True)
for name in ("include", "src", "cmake", "tests", "python", "CMakeLists.txt", "CMakePresets.json"):
    (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, tree / name)

# One element of a tensor with a wide part is written through tensor_data: only its wide part follows.
BY_HAND = r"""
#include "flexlab/tensor.h"
#include <stdio.h>
enum { N = 1000 };
int main(void) {
    static double before[N], after[N];
    tensor *t = tensor_new(FMT_FP8_E5M2, TENSOR_SHAPE(N));
    for (int i = 0; i < N; i++)
        before[i] = 1.3 * i;
    unsigned char *words = tensor_data(t);
    if (tensor_keep_wide(t) || tensor_load_f64(t, before, N) || tensor_store_wide_f64(t, before, N))
        return printf("%s\n", tensor_error()), 1;
    words[600] = 0x3c; /* 1 */
    if (tensor_store_wide_f64(t, after, N))
        return printf("%s\n", tensor_error()), 1;
    for (int i = 0; i < N; i++)
        if (after[i] != (i == 600 ? 1 : before[i]))
            return printf("wide part of element %d: %g, expected %g\n", i, after[i], i == 600 ? 1 : before[i]), 1;
    puts("a word written by hand: its wide part follows");
    tensor_free(t);
    return 0;
}
"""

# The new operation in every format, including the new one, against its definition in C.
BY_DEFINITION = r"""
#include "flexlab/tensor.h"
#include <math.h>
#include <stdio.h>
enum { N = 5000 };
int main(void) {
    static double x[N], y[N];
    int formats = 0;
    for (int f = 0; tensor_format_at(f); f++, formats++) {
        const tensor_format format = tensor_format_at(f);
        tensor *in = tensor_new(format, TENSOR_SHAPE(N)), *out = tensor_new(format, TENSOR_SHAPE(N));
        for (int i = 0; i < N; i++)
            x[i] = 2.0 * sin(1.7 * i * i);
        if (tensor_load_f64(in, x, N) || tensor_store_f64(in, x, N) || tensor_ramp(out, in) || tensor_store_f64(out, y, N))
            return printf("%s\n", tensor_error()), 1;
        const double unit = format == FMT_FLEX16_5 || format == FMT_DFP16 ? ldexp(1, -tensor_exponent(out)) : 0;
        int low = 0, high = 0, inside = 0;
        for (int i = 0; i < N; i++) {
            const double want = x[i] < 0 ? 0 : x[i] > 1 ? 1 : x[i];
            low += want == 0, high += want == 1, inside += want > 0 && want < 1;
            if (fabs(y[i] - want) > unit / 2)
                return printf("%s: ramp of %a is %a, expected %a\n", tensor_format_name(format), x[i], y[i], want), 1;
        }
        if (low < 100 || high < 100 || inside < 100)
            return printf("%s: %d values below, %d inside, %d above\n", tensor_format_name(format), low, inside, high), 1;
        tensor_free(in);
        tensor_free(out);
    }
    printf("ramp in %d formats is what its row says\n", formats);
    return formats == 6 ? 0 : 1;
}
"""

# The how-to of operations has two additions: an elementwise one, then another.
OTHER_OPERATION = "## Any other operation"
documents = [(name, (source / name).read_text()) for name in
             ("docs/adding-a-format.md", "docs/adding-an-op.md", "README.md", "docs/training.md")]
name, text = documents[1]
if text.count(f"\n{OTHER_OPERATION}\n") != 1:
    sys.exit(f"{name}: expected one heading {OTHER_OPERATION!r}")
elementwise, other = text.split(f"\n{OTHER_OPERATION}\n")
documents[1:2] = [("elementwise", elementwise), ("other", other)]

touched, programs = {}, []
for document, text in documents:
    touched[document] = []
    for kind, path, anchor, code in BLOCK.findall(text):
        if kind == "program":
            programs.append((document, code))
            continue
        target = tree / path
        touched[document].append(path)
        if kind == "file":
            if target.exists():
                sys.exit(f"{document}: {path} exists already, a new file was meant")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(code)
        else:
            lines = target.read_text().splitlines(keepends=True)
            at = [i for i, line in enumerate(lines) if line.startswith(anchor)]
            if len(at) != 1 or (document == "elementwise" and code.count("\n") != 1):
                sys.exit(f"{document}: expected one row after one line starting with {anchor!r} in {path}")
            target.write_text("".join(lines[: at[0] + 1] + [code] + lines[at[0] + 1 :]))

folders = {pathlib.PurePath(p).parent.as_posix() for p in touched["docs/adding-a-format.md"]}
if len(folders) != 1 or (source / folders.pop()).exists():
    sys.exit(f"a format must be one new folder: {touched['docs/adding-a-format.md']}")
if touched["elementwise"] != ["include/flexlab/ops.def"]:
    sys.exit(f"an elementwise operation must be one row: {touched['elementwise']}")
if not 1 < len(touched["other"]) <= 6:
    sys.exit(f"another operation must be at most six places: {touched['other']}")
print(f"another operation: {len(touched['other'])} files")
if len(programs) != 5: # that on formats has one of formats that are values, and one of the new folder
    sys.exit(f"expected two programs in the document on formats and one in each other, found {len(programs)}")

build = work / "build"
shutil.rmtree(build, ignore_errors=True)
portable = [f"-DFLEXLAB_HAVE_{row}=OFF" for row in ("AVX2", "AVX512", "AVX512_FAST", "AVX512_AMX")]
# Not of type Release, in which tests that compute are optimised.
kind = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1"] if long else ["-DCMAKE_BUILD_TYPE=Growth", "-DCMAKE_C_FLAGS_GROWTH=-O0"]
run("cmake", "-S", tree, "-B", build, "-G", "Ninja", *kind,
    "-DFLEXLAB_TOOLS=OFF", "-DFLEXLAB_BENCH=OFF", "-DFLEXLAB_WERROR=ON", f"-DFLEXLAB_CUDA={'AUTO' if long else 'OFF'}", "-DFLEXLAB_CUDA_SPILLS=16", "-DFLEXLAB_PNG=OFF",
    "-DFLEXLAB_JPEG=OFF", "-DFLEXLAB_ONNX=OFF", "-DFLEXLAB_TFLITE=OFF", *([] if long else portable))
on_gpu = long and "flexlab_ptx" in run("cmake", "--build", build, "--target", "help")
targets = ["test_kernels", "test_random", "test_signatures", "test_support", "test_instance_norm", "flexlab_static", *(["test_nn_optimiser"] if long else []), *(["flexlab_ptx", "test_gpu_ops"] if on_gpu else [])]
run("cmake", "--build", build, "--target", *targets)

formats = run("grep", "-ho", "FMT_[A-Z0-9_]* = .*\"", build / "generated/include/flexlab/formats.h")
added = [line.split('"')[1] for line in formats.splitlines() if line.split('"')[1] not in
         {"fp32", "fp16", "bf16", "flex16+5", "dfp16"}]
if len(added) != 1:
    sys.exit(f"expected one new format, found {added}")
for pattern, expected in ((f"{added[0]}.", 30), (".ramp.", 6), (".instancenorm.portable", 6)):  # in each format
    out = run(build / "tests/test_kernels", env={**os.environ, "FLEXLAB_TEST_FILTER": pattern})
    rows = [line for line in out.splitlines() if line.endswith(" ok") and (pattern == ".ramp." or ".ref " not in line)]
    print(pattern, len(rows), "kernels equal the reference")
    if len(rows) < expected:
        sys.exit(f"{len(rows)} kernels of {pattern} were tested, expected {expected} or more:\n{out}")
run(build / "tests/test_instance_norm")


def line_of(program, *arguments, **options):
    """The line of the operation in the output of a test program."""
    out = run(build / "tests" / program, *arguments, **options)
    lines = [line for line in out.splitlines() if line.startswith(("instancenorm ", "instancenorm:", "| `instancenorm` "))]
    if len(lines) != 1:
        sys.exit(f"{program} has {len(lines)} lines about instancenorm, expected one:\n{out[-4000:]}")
    print(f"{program}: {lines[0]}")
    return lines[0]


passive = {**os.environ, "OMP_WAIT_POLICY": "passive"}
machine = {**passive, "FLEXLAB_REQUIRE_GPU": "1", "FLEXLAB_CUDA_LIBRARY": str(build / "tests/libflexlab_ptx.so")}
if line_of("test_signatures") != "instancenorm: y x gamma beta; epsilon":
    sys.exit("that is not its signature")
if int(re.search(r"worked (\d+) times", line_of("test_random", "1", "600", env={**passive, "FLEXLAB_TEST_FILTER": "instancenorm"}))[1]) < 2:
    sys.exit("random calls of it fail")
cells = line_of("test_support", "--print", env=machine if on_gpu else passive).split("|")[2:-1]
if len(cells) != 8 or cells[-2:] != [" double ", "  "] or any(
        cell.split()[:2] != ["r", "p"] or (on_gpu and cell.split()[-1] != "g") for cell in cells[:6]):
    sys.exit("that is not what it has kernels of")
if long:
    out = run(build / "tests/test_nn_optimiser", added[0], env=passive)
    print("every optimiser:", out.splitlines()[-1])
    if out.count(" of what is allowed)") < 20:
        sys.exit(f"{added[0]} was trained with too few settings of optimisers:\n{out}")
for arguments in (["1", "4", "ramp"], ["1", "4", "instancenorm"], *(["1", "4", op, added[0]] for op in ("add", "matmul", "channel_affine"))):
    if on_gpu:  # they run on a GPU without a line of CUDA of their own
        out = run(build / "tests/test_gpu_ops", *arguments, env=machine)
        print("on the PTX machine:", *arguments[2:], "-", out.splitlines()[-1])
        if " 0 calls" in out:
            sys.exit("nothing was called there")
for document, code in [*programs, ("by hand", BY_HAND), ("by definition", BY_DEFINITION)]:
    (work / "program.c").write_text(code)
    run("cc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", f"-I{tree}/include", f"-I{build}/generated/include",
        work / "program.c", build / "libflexlab.a", "-fopenmp", "-lz", "-lm", "-lpthread", "-o", work / "program")
    out = run(work / "program").strip()
    print(f"{document}: {out}")
    if document == "README.md" and f"`{out}`" not in (source / document).read_text():
        sys.exit(f"the README promises another output than {out!r}")
