#!/usr/bin/env python3
"""How many PTX instructions of a thread the kernels of products execute for one product, with everything around the
inner loops. A count that grows beyond its limit fails; docs/gpu.md has the table.
usage: test_ptx_products.py FOLDER_OF_TESTS LIBRARY [FORMAT[,FORMAT]... [SHAPE...]]"""
import os
import re
import subprocess
import sys
import tempfile

programs, library = sys.argv[1:3]
FORMATS = sys.argv[3].split(",") if len(sys.argv) > 3 else ["fp32", "bf16"]
# Shapes of test_gpu_products.c, and what is a little more than the larger of both counts.
LIMITS = {"nn-large": 2.3, "nt-large": 2.3, "tn-large": 2.3, "nn": 1.8, "nt": 1.8, "tn": 1.75, "forward-16": 2.5,
          "forward-32": 2.2, "forward-64": 2, "input-16": 2.5, "input-64": 2.1, "weights-16": 2.5, "weights-32": 2,
          "weights-64": 1.8, "forward-3": 17, "weights-3": 14.5, "strided-32": 3.5,
          "strided-64": 2.9}
SHAPES = sys.argv[4:] or list(LIMITS)


def count(shape, form):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report")
        env = {**os.environ, "FLEXLAB_REQUIRE_GPU": "1", "FLEXLAB_CUDA_LIBRARY": library, "FLEXLAB_PTX_REPORT": report,
               "FLEXLAB_PTX_BYTES": "268435456"}
        done = subprocess.run([os.path.join(programs, "test_gpu_products"), "1", "0", shape, form], env=env,
                              capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{shape} {form}: {done.stdout}{done.stderr}")
        products = int(re.search(r"products (\d+)", done.stdout).group(1))
        with open(report, encoding="utf-8") as f:
            run = [line.split() for line in f if line.startswith("kernel ")]
    return 32 * sum(int(words[3]) for words in run if "product_" in words[1]) / products


wrong = 0
for shape in SHAPES:
    counts = {form: count(shape, form) for form in FORMATS}
    wrong += any(found > LIMITS[shape] for found in counts.values())
    print(f"{shape:12}", *(f"{form} {found:6.2f}" for form, found in counts.items()), f"(at most {LIMITS[shape]})",
          flush=True)
sys.exit(bool(wrong))
