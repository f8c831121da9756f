#!/usr/bin/env python3
"""What Python costs: a call against the same call in C, in one run and in turn, and the import. A bound that is exceeded is
measured again, since other programs disturb: it fails where it is exceeded each time.
usage: test_python_speed.py SOURCE GENERATED_INCLUDES COMPILER"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from checks import check, fl, library, run, skip

source, generated = map(pathlib.Path, sys.argv[1:3])
compiler = sys.argv[3] if len(sys.argv) > 3 else "cc"
ATTEMPTS = 6
# The seconds of each of `rounds` calls, the least of `times`: the function comes as a pointer, so that it is this process's.
LOOP = """
#include "flexlab/tensor.h"
#include <time.h>
typedef tensor_status (*add)(tensor *, const tensor *, const tensor *);
double seconds_of(add f, tensor *y, const tensor *a, const tensor *b, int rounds, int times) {
    double least = 1e9;
    for (int i = 0; i < times; i++) {
        struct timespec t0, t1;
        clock_gettime(CLOCK_MONOTONIC, &t0);
        for (int j = 0; j < rounds; j++)
            f(y, a, b);
        clock_gettime(CLOCK_MONOTONIC, &t1);
        const double s = (t1.tv_sec - t0.tv_sec + 1e-9 * (t1.tv_nsec - t0.tv_nsec)) / rounds;
        least = s < least ? s : least;
    }
    return least;
}
"""


def in_python(y, a, b, rounds, times):
    add, least = fl.add, 1e9
    for _ in range(times):
        start = time.perf_counter()
        for _ in range(rounds):
            add(a, b, out=y)
        least = min(least, (time.perf_counter() - start) / rounds)
    return least


def calls():
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "loop.c"
        file.write_text(LOOP)
        try:
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", file, "-o", file.with_suffix(".so"), f"-I{source / 'include'}",
                            f"-I{generated}"], check=True)
        except FileNotFoundError:
            return skip(f"the cost of a call: there is no compiler {compiler}")
        seconds_of = ctypes.CDLL(str(file.with_suffix(".so"))).seconds_of
    seconds_of.restype = ctypes.c_double

    def both(format, size, rounds, times):
        a, b, y = (fl.tensor([1.5] * size if size < 100 else __import__("numpy").ones(size, "f4"), format) for _ in range(3))
        pointers = [ctypes.c_void_p(one._address) for one in (y, a, b)]
        in_c = seconds_of(library.flexlab_tensor_add, *pointers, rounds, times)
        return in_c, in_python(y, a, b, rounds, times)

    for format in ("fp32", "flex16+5"):
        for attempt in range(ATTEMPTS):
            in_c, here = both(format, 16, 3000, 30)
            if here - in_c <= 1e-6:
                break
        print(f"{format}, 16 elements: {1e9 * in_c:.0f} ns from C, {1e9 * here:.0f} ns from Python")
        check(here - in_c <= 1e-6, f"{format}: a call costs {1e9 * (here - in_c):.0f} ns more than from C, expected at most 1000")
        for attempt in range(ATTEMPTS):
            in_c, here = both(format, 2 ** 25, 1, 5)
            if here <= 1.05 * in_c:
                break
        print(f"{format}, 2^25 elements: {1e3 * in_c:.2f} ms from C, {1e3 * here:.2f} ms from Python")
        check(here <= 1.05 * in_c, f"{format}: 2^25 elements take {here / in_c:.3f} times the time of C")


def imports():
    """Time of the processor, which other programs disturb less, with the bytecode that an installed package has."""
    code = ("import time, numpy\nstart = time.process_time()\nimport flexlab\nend = time.process_time()\n"
            "flexlab.tensor([1.0], 'flex16+5')\nprint(end - start)")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        times = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout)
                 for _ in range(8)]
    print(f"import flexlab beside NumPy: {1e3 * min(times):.1f} ms")
    check(min(times) <= 0.05, f"import flexlab takes {1e3 * min(times):.1f} ms beside NumPy, expected at most 50")


run(calls, imports)
