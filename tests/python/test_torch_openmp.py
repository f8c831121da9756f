"""flexlab and torch in one process, whichever is imported first: both compute with threads, with the same results, and end.

torch brings an OpenMP runtime of its own, and libflexlab.so may be linked to that of the system, which it asks for the number
of threads; its own threads are not OpenMP's."""
import os
import subprocess
import sys

from torch_tests import main, need_torch, skip

need_torch()

FLEXLAB = """
import hashlib, numpy as np, flexlab as fl
def ours():
    fl.set_threads(4)
    a = fl.tensor(np.random.default_rng(1).standard_normal((300, 400)), "flex16+5")
    b = fl.tensor(np.random.default_rng(2).standard_normal((400, 500)), "flex16+5")
    return hashlib.sha256((a @ b).numpy().tobytes()).hexdigest()
"""
TORCH = """
import torch
def theirs():
    torch.set_num_threads(4)
    a = torch.arange(300 * 400).reshape(300, 400).remainder(7).float()
    return int((a @ a.t()).sum()), int(a.sum()), int(torch.exp(a).floor().sum())
"""
MIXED = """
import flexlab.torch
def mixed():
    x = torch.arange(64 * 32).reshape(64, 32).remainder(11).float().requires_grad_()
    y = flexlab.torch.matmul(torch.exp(x / 11), torch.ones(32, 16), "flex16+5")
    y.sum().backward()
    return float(y.sum()), float(x.grad.sum())
"""


def run(text):
    result = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env=os.environ)
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.split("\n")[0]


def test_orders():
    """torch first, last, not at all, and in the middle of a computation."""
    alone = run(FLEXLAB + "print(ours())")
    theirs = run(TORCH + "print(theirs())")
    for text in (TORCH + FLEXLAB + "print(ours(), theirs(), ours())", FLEXLAB + TORCH + "print(ours(), theirs(), ours())",
                 FLEXLAB + "first = ours()\n" + TORCH + "print(first, theirs(), ours())",
                 TORCH + "second = theirs()\n" + FLEXLAB + "print(ours(), second, ours())"):
        assert run(text) == f"{alone} {theirs} {alone}", text
    a, b = run(TORCH + FLEXLAB + MIXED + "print(mixed())"), run(FLEXLAB + "import flexlab.torch\n" + TORCH + MIXED + "print(mixed())")
    assert a == b and "(" in a


def test_alternating_many_times():
    """Hundreds of switches between the pools of threads, from two threads of Python at once."""
    run(TORCH + FLEXLAB + """
import threading
expected = ours(), theirs()
def work():
    for _ in range(20):
        assert (ours(), theirs()) == expected
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
""")


def test_without_torch():
    """Without PyTorch flexlab works, and flexlab.torch says what is missing."""
    out = run("import sys; sys.modules['torch'] = None\n" + FLEXLAB + """
assert ours()
try:
    import flexlab.torch
except ImportError as error:
    print(str(error))
""")
    assert "pip install flexlab[torch]" in out, out


def test_runtimes():
    """flexlab brings no OpenMP runtime beside that of torch: the name of both is one, and the first loaded serves both."""
    if not os.path.exists("/proc/self/maps"):
        return skip("no /proc/self/maps")
    listing = """
import re
print(len({line.split("/")[-1].strip() for line in open("/proc/self/maps") if re.match("lib(gomp|omp|iomp)", line.split("/")[-1])}))
"""
    alone = run(TORCH + "theirs()\n" + listing)
    for text in (TORCH + FLEXLAB + "ours(); theirs()\n", FLEXLAB + TORCH + "theirs(); ours()\n"):
        assert run(text + listing) == alone


if __name__ == "__main__":
    main(globals())
