#!/usr/bin/env python3
"""Bad input is an exception with the library's text, and nothing else: wrong types, shapes, formats, names, results;
arguments at random; objects that were freed; exceptions in callbacks; the child of a fork; a tensor that two threads
use; Ctrl-C. Threads on tensors of their own run at the same time: the GIL is released.
usage: test_python_bad_input.py [long]"""
import _thread
import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np

from checks import LONG, SANITIZED, c, check, fl, raises, run, skip

draw = random.Random(30)


def x34(format="flex16+5"):
    return fl.tensor(np.arange(12.0).reshape(3, 4), format)


def calls():
    x, y = x34(), x34()
    raises(TypeError, fl.add, x, says="b is missing")
    raises(TypeError, fl.add, x, x, x, says="3 were given")
    raises(TypeError, fl.add, x, b=x, nothing=3, says="'nothing'")
    raises(TypeError, fl.add, x, x, b=x, says="given twice")
    raises(TypeError, fl.add, x, np.ones((3, 4)), says="ndarray, expected a flexlab.Tensor")
    raises(fl.ArgumentError, fl.add, x, None, says="b is NULL")
    raises(fl.ShapeError, fl.add, x, x.reshape(12), says="expected")
    raises(fl.FormatError, fl.add, x, x34("bf16"), says="bf16")
    raises(fl.ShapeError, fl.add, x, x, out=fl.empty((4, 3), "flex16+5"))
    raises(fl.Error, fl.add, x, x, out=fl.empty((3, 4), "i32"))
    raises(TypeError, fl.add, x, x, out=np.empty((3, 4)), says="out")
    raises(TypeError, fl.add, x, x, out=(y, y), says="tuple of 1")
    raises(TypeError, fl.moments, x, out=y, says="tuple of 2")
    raises(fl.ArgumentError, fl.add, x, x, out=y.T)
    raises(fl.ArgumentError, fl.add, x.T, x.T)
    raises(fl.ShapeError, fl.matmul, x, x, says="4")
    raises(TypeError, fl.scale, x, "2", says="expected a number")
    raises(ValueError, fl.scale, x, 1e300, says="1e+300")
    raises(TypeError, fl.conv2d, fl.zeros((1, 4, 4, 1)), fl.zeros((1, 3, 3, 1)), stride=1.5, says="1.5")
    raises(ValueError, fl.conv2d, fl.zeros((1, 4, 4, 1)), fl.zeros((1, 3, 3, 1)), padding=(1, 2, 3), says="4")
    raises(ValueError, fl.conv2d, fl.zeros((1, 4, 4, 1)), fl.zeros((1, 3, 3, 1)), stride=2 ** 40, says=str(2 ** 40))
    raises(fl.ArgumentError, fl.conv2d, fl.zeros((1, 4, 4, 1)), fl.zeros((1, 3, 3, 1)), padding=-1, says="-1")
    raises(ValueError, fl.reduce_sum, x, 2, says="2")
    raises(ValueError, fl.reduce_sum, x, (0, -2), says="once")
    raises(TypeError, fl.reduce_sum, x, "a")
    raises(ValueError, fl.broadcast_add, x, fl.zeros((2, 4), "flex16+5"))
    raises(ValueError, lambda: x + fl.zeros((2, 4), "flex16+5"))
    raises(TypeError, lambda: x + "a")
    raises(TypeError, lambda: x / 3, says="reciprocal")
    raises(IndexError, lambda: x[3], says="out of range")
    raises(IndexError, lambda: x[0, 0, 0], says="3 indices for 2 dimensions")
    raises(TypeError, lambda: x[[0, 1]], says="list")
    raises(TypeError, lambda: x[1.0])
    raises(ValueError, bool, x)
    raises(ValueError, float, x, says="12 elements")
    raises(fl.Error, x.reshape, 5)
    raises(fl.ShapeError, x.transpose, 0, 0)
    raises(fl.ArgumentError, x.set_exponent, 1000, says="1000")
    raises(fl.ArgumentError, x.set_rounding, "up", says="nearest")
    raises(ValueError, setattr, x, "predictor", "nothing", says="nothing")
    raises(AttributeError, setattr, x, "shape", (12,))
    raises(fl.Error, fl.empty, (3, 4), "bf16", device="tpu", says="tpu")
    raises(fl.Error, fl.set_threads, -1, says="-1")
    check(issubclass(fl.AllocationError, MemoryError) and issubclass(fl.FileError, OSError), "classes of errors")
    error = raises(fl.ShapeError, fl.add, x, x.reshape(12))
    check(isinstance(error, ValueError) and error.status == fl.c.TENSOR_E_SHAPE, error.status)
    check(np.array_equal(y.numpy(), x.numpy()), "results are as they were")


def no_memory():
    if SANITIZED:
        return skip("a limit of memory, under a sanitizer")
    code = ("import resource, flexlab as fl\nresource.setrlimit(resource.RLIMIT_AS, (2 ** 32, 2 ** 32))\n"
            "try:\n    fl.empty((2 ** 20, 2 ** 13))\nexcept MemoryError as error:\n    print(type(error).__name__, error)")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    check(said.stdout.startswith("AllocationError") and "34359738368 bytes" in said.stdout, "no memory:", said.stdout, said.stderr[-500:])


def functions_of_c():
    x = x34()
    raises(AttributeError, getattr, fl.c, "tensor_nothing", says="tensor_nothing")
    raises(AttributeError, getattr, fl, "nothing", says="nothing")
    raises(TypeError, fl.c.tensor_add, x, x)
    raises(TypeError, fl.c.tensor_add, x, x, 5, says="b: int, expected a flexlab.Tensor")
    raises(TypeError, fl.c.tensor_set_predictor, x, 5, says="expected a text")
    raises(ValueError, fl.c.tensor_set_predictor, x, "a\0b", says="zero character")
    raises(TypeError, fl.c.tensor_load_f32, x, np.zeros(12, "f8"), 12, says="float64")
    raises(TypeError, fl.c.tensor_load_f32, x, [0.0] * 12, 12)
    raises(ValueError, fl.c.tensor_load_f32, x, np.zeros(24, "f4")[::2], 12, says="contiguous")
    raises(TypeError, fl.c.tensor_load_f32, x, np.zeros(12, ">f4"), 12)
    raises(fl.Error, fl.c.tensor_load_f32, x, np.zeros(12, "f4"), 11, says="11")
    frozen = np.zeros(12, "f8")
    frozen.flags.writeable = False
    fl.c.tensor_load_f64(x, frozen, 12)
    raises(ValueError, fl.c.tensor_store_f64, x, frozen, 12, says="read-only")
    raises(TypeError, fl.c.tensor_statistics, 3, None, x)
    raises(AttributeError, fl.c.tensor_window, stride_=1)
    raises((TypeError, ValueError), fl.c.tensor_window, stride=(1, 2, 3))
    handle = fl.c.Handle(fl.c.tensor_new(fl.c.FMT_FP32, 1, np.array([3])), lambda t: None)
    pointer = handle.pointer
    handle.free()
    raises(ValueError, lambda: handle.pointer, says="freed")
    handle.free()  # once more does nothing
    c("tensor_free", None)(ctypes.c_void_p(pointer))


def garbage():
    """Arguments at random, among them right ones: whatever is returned or raised, the process lives and tensors are whole."""
    tensors = [x34(f) for f in ("fp32", "bf16", "flex16+5", "e4m3fn")]
    tensors += [fl.zeros(s, f) for s in ((1,), (3,), (2, 3, 4), (1, 4, 4, 2), (2, 1, 3, 2), (3, 4)) for f in ("fp32", "flex16+5", "i32", "f64", "u8")]
    tensors += [tensors[0].T, tensors[2][::2], tensors[2].reshape(12), fl.Tensor()]
    others = [None, 0, 1, -1, 2 ** 31, 2 ** 70, 1.5, float("nan"), True, "x", b"x", (), (1,), (0, 1), (1, 2, 3, 4), [0, 1], {}, object(),
              np.zeros(3), np.float32(2), np.int64(1), Ellipsis, fl, int]
    succeeded = 0
    for _ in range(200_000 if LONG else 20_000):
        function = getattr(fl, draw.choice(fl.OPERATIONS))
        names = [name for _, name in fl.c.FUNCTIONS[f"tensor_{function.__name__}"][1]]
        given = [draw.choice(tensors if draw.random() < 0.8 else others) for _ in range(draw.randint(0, 5))]
        named = {draw.choice(names + ["out", "stride", "padding", "window", "axes"]): draw.choice(tensors if draw.random() < 0.5 else others)
                 for _ in range(draw.choice([0, 0, 0, 1, 2]))}
        try:
            result = function(*given, **named)
            succeeded += 1
            for one in result if isinstance(result, tuple) else (result,):
                check(one is None or one.size == len(one.numpy("f8").reshape(-1)), function.__name__, "returns a tensor")
        except (fl.Error, TypeError, ValueError, OverflowError, AttributeError, IndexError, MemoryError, RuntimeError):
            pass
    check(succeeded > 100, f"{succeeded} of the calls at random were right ones")


# --- callbacks --------------------------------------------------------------------------------------------------------

class Stop(Exception):
    pass


def callbacks():
    calls, wanted = [], {}

    def predict(state, context):
        calls.append(threading.get_ident())
        error = wanted.get(threading.get_ident())
        if error:
            raise error
        return state.contents.history[(state.contents.next - 1) % len(state.contents.history)]

    keep = fl.c.wrapped(fl.c.callback_type("autoflex_predict_fn"), predict)
    check(fl.c.autoflex_add("of-the-test", keep, None) > 0, "a predictor of Python's")
    x, y, z = x34(), x34(), x34()
    y.predictor = "of-the-test"
    fl.add(x, x, out=y)
    fl.add(x, x, out=y)
    check(calls and np.array_equal(y.numpy(), 2 * x.numpy()), "the predictor is called")
    me = threading.get_ident()
    for error in (Stop("here"), KeyboardInterrupt(), SystemExit(3)):
        wanted[me] = error
        raises(type(error), fl.add, x, x, out=y)
        raises(type(error), lambda: fl.c.tensor_add(y, x, x))
        wanted.clear()
        fl.add(x, x, out=y)
        fl.add(x, x, out=z)  # nothing is left over
        check(np.array_equal(y.numpy(), 2 * x.numpy()), "after an exception")
    # an exception belongs to the thread whose callback raised it
    failures, rounds = [], 300

    def work(fails):
        one, own = x34(), x34()
        own.predictor = "of-the-test"
        fl.add(one, one, out=own)
        if fails:
            wanted[threading.get_ident()] = Stop("of a thread")
        for _ in range(rounds):
            try:
                fl.add(one, one, out=own)
                raised = False
            except Stop:
                raised = True
            if raised != fails:
                failures.append(fails)
        wanted.pop(threading.get_ident(), None)

    parallel([lambda fails=i % 2: work(bool(fails)) for i in range(4)])
    check(not failures, f"exceptions in the wrong thread: {len(failures)}")


def network_callbacks():
    net = fl.nn.Network("flex16+5", batch=4)
    net.compile(net.linear("fc", net.input(1, 1, 6), 3))
    data, labels = np.ones((4, 1, 1, 6), "f4"), np.zeros(4, "i4")
    net.step(data, labels, rate=0.1)

    def watch(*_):
        raise Stop("in the network")

    net.watch(watch)
    raises(Stop, net.step, data, labels, rate=0.1, says="in the network")
    net.watch(None)
    net.step(data, labels, rate=0.1)


# --- threads, processes, signals --------------------------------------------------------------------------------------

def parallel(functions):
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not errors, "in a thread:", errors[:3])


def gil_is_released():
    """While a thread multiplies, loads or stores for a long time, this one goes on."""
    fl.set_threads(1)
    n = 2048
    a, y = fl.tensor(np.random.default_rng(1).normal(size=(n, n)), "flex16+5"), fl.empty((n, n), "flex16+5")
    values = np.random.default_rng(2).normal(size=(8, n, n)).astype("f4")
    big = fl.empty(values.shape, "flex16+5")
    for name, work in (("matmul", lambda: fl.matmul(a, a, out=y)), ("load", lambda: big.load(values)), ("numpy", lambda: big.numpy()),
                       ("tensor_matmul", lambda: fl.c.tensor_matmul(y, a, a))):
        for attempt in range(6):  # other programs may take the processors
            span, ticks = [], []

            def timed():
                span.append(time.perf_counter())
                work()
                span.append(time.perf_counter())

            thread = threading.Thread(target=timed)
            thread.start()
            while thread.is_alive():
                ticks.append(time.perf_counter())
                time.sleep(0.0002)
            thread.join()
            length = span[1] - span[0]
            inside = sum(span[0] + 0.1 * length < tick < span[1] - 0.1 * length for tick in ticks)
            if inside >= 3:
                break
        check(inside >= 3, f"{name} took {1e3 * length:.1f} ms, in which another thread ran {inside} times")
    fl.set_threads(0)


def one_thread_at_a_time():
    n = 1024
    a, y = fl.tensor(np.random.default_rng(1).normal(size=(n, n)), "fp32"), fl.empty((n, n), "fp32")
    view = y[0]
    uses = {"out": lambda: fl.add(fl.zeros((n, n)), fl.zeros((n, n)), out=y), "operand": lambda: fl.neg(a), "numpy": lambda: y.numpy(),
            "of a view": lambda: view.max(), "over ctypes": lambda: fl.c.tensor_set_rounding(y, 0, 0)}
    for what, function in (("matmul", lambda: fl.matmul(a, a, out=y)), ("c.tensor_matmul", lambda: fl.c.tensor_matmul(y, a, a))):
        thread, seen = threading.Thread(target=lambda: [function() for _ in range(4)]), {}
        thread.start()
        while thread.is_alive() and len(seen) < len(uses):
            for name, use in uses.items():
                try:
                    use()
                except RuntimeError as error:
                    seen[name] = str(error)
        thread.join()
        for name in uses:
            check("another thread" in seen.get(name, ""), f"{name}, in {what}: {seen.get(name)}")
        for use in uses.values():
            use()  # afterwards all is as before

    shared, wrong = [x34() for _ in range(3)], []

    def hammer(seed):
        own = random.Random(seed)
        mine = x34()
        for _ in range(3000):
            try:
                p, q = own.choice(shared), own.choice(shared)
                own.choice([lambda: fl.add(p, q), lambda: fl.relu(p, out=q), lambda: p.numpy(), lambda: p[1:].sum(), lambda: q.exponent,
                            lambda: q.statistics, lambda: p.load(np.ones((3, 4)))])()
            except (RuntimeError, fl.Error):
                pass
            if not np.array_equal(fl.add(mine, mine).numpy(), 2 * mine.numpy()):
                wrong.append(seed)

    parallel([lambda seed=seed: hammer(seed) for seed in range(4)])
    check(not wrong, "tensors of one thread's own")


def fork():
    x = x34()
    a = fl.tensor(np.random.default_rng(1).normal(size=(200, 200)), "flex16+5")
    want = (a @ a).numpy()  # with threads of the parent
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there are threads
        child = os.fork()
    if not child:
        try:
            right = np.array_equal((a @ a).numpy(), want) and np.array_equal((x + x).numpy(), 2 * x.numpy())
            x.mantissa[0, 0] = 77
            os._exit(0 if right else 1)
        except BaseException:
            os._exit(2)
    for _ in range(600):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        time.sleep(0.1)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        status = -1
    check(status == 0, f"the child of a fork ended with {status}")
    check(x.mantissa[0, 0] == 0 and np.array_equal((a @ a).numpy(), want), "the parent afterwards")


def interrupted():
    x = x34()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started this in the background, without it
    timer = threading.Timer(0.05, _thread.interrupt_main)
    try:
        timer.start()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            fl.add(x, x)
        check(False, "KeyboardInterrupt did not arrive")
    except KeyboardInterrupt:
        check(True)
    timer.join()
    check(np.array_equal((x + x).numpy(), 2 * x.numpy()), "after KeyboardInterrupt")


run(calls, no_memory, functions_of_c, garbage, callbacks, network_callbacks, gil_is_released, one_thread_at_a_time, fork, interrupted)
