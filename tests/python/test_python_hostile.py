"""What a caller may get wrong without noticing: numbers that C would cut, arrays shorter than C reads, objects freed twice or
while they work, functions that C calls later. Each is an error, and the next call works."""
import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time

import numpy as np

import flexlab as fl
from checks import check, raises, run

images = np.random.default_rng(3).standard_normal((8, 4, 4, 3)).astype("f4")
labels = np.arange(8) % 10


def network(**settings):
    net = fl.nn.Network("flex16+5", batch=8, **settings)
    return net.compile(net.linear("fc", net.avgpool_global("pool", net.conv2d("conv", net.input(4, 4, 3), 4, 3, padding=1)), 10))


def numbers():
    """An int that C cannot hold is an error, in arguments and in structs; those of NumPy are ints."""
    x = fl.tensor([1.0, 2.0], "flex16+5")
    for wrong in (2 ** 32 + 5, -2 ** 31 - 1, 2 ** 70):
        raises(ValueError, x.set_exponent, wrong, says=str(wrong))
        raises(ValueError, fl.set_threads, wrong, says=str(wrong))
        raises(ValueError, fl.c.nn_config, batch=wrong, says=f"batch: {wrong}")
        raises(ValueError, fl.c.tensor_window, stride=(1, wrong), says=str(wrong))
    for wrong in (-1, 2 ** 64):
        raises(ValueError, x.set_rounding, "stochastic", wrong, says="seed")
        raises(ValueError, fl.nn.Network, seed=wrong, says="seed")
    for wrong in (None, 1.0, "3"):
        raises(TypeError, x.set_exponent, wrong, says="expected an int")
        raises(TypeError, fl.c.nn_config, batch=wrong, says="expected an int")
    raises(TypeError, fl.c.nn_config, optimiser=3, says="optimiser: int, expected a text")
    raises(TypeError, fl.c.nn_config, momentum="a", says="momentum")
    raises(ValueError, fl.c.nn_config, momentum=1e300, says="binary32")
    raises(ValueError, fl.c.nn_config, variant="a\0b", says="zero character")
    raises(TypeError, fl.c.nn_batch, labels=np.zeros(3), says="float64")
    raises(TypeError, fl.c.nn_batch, labels=np.zeros(3, "i8"), says="int64")
    raises(ValueError, fl.c.nn_batch, labels=np.zeros(6, "i4")[::2], says="contiguous")
    x.set_exponent(np.int64(12))
    check(x.exponent == 12, "an exponent of NumPy's")
    config = fl.c.nn_config(batch=np.int32(7), momentum=np.float32(0.5))
    check(config.batch == 7 and config.momentum == 0.5, "settings of NumPy's")
    check(fl.c.tensor_window(stride=np.array([3, 2])).stride[:] == [3, 2], "an array as a member")


def arrays():
    """Arrays of NumPy beside tensors, indices and dimensions: what is not meant is an error, and not another value."""
    v, f = fl.tensor([1.0, 2.0, 3.0]), fl.tensor([[1.0, 2.0], [3.0, 4.0]])
    for dtype in (">f4", ">f8", ">i2", "<f4"):
        check(np.array_equal(v.numpy(dtype), [1, 2, 3]) and v.numpy(dtype).dtype == dtype, "byte order", dtype)
    array = np.array([1.0, 2.0, 3.0], "f4")
    for operation in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a @ b):
        raises(TypeError, operation, v, array, says="expected two tensors")
        raises(TypeError, operation, array, v, says="expected two tensors")
    for two in (2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.float16(2)):
        for product in (two * v, v * two):
            check(type(product) is fl.Tensor and np.array_equal(product.numpy(), [2, 4, 6]), "a product with", type(two))
    x = fl.tensor(np.random.default_rng(1).standard_normal((40, 30)), "bf16")
    for third in (0.3, np.float32(0.3), np.float64(0.3)):
        check(np.array_equal((x * third).numpy().T, (x.T * third).numpy()), "a view is scaled as a tensor is")
        check(np.array_equal((x * third).numpy(), fl.scale(x, 0.3).numpy()), "a number is not rounded to the format first")
    raises(TypeError, lambda: f[True], says="bool")
    for order in ((2, 3), (-3, 0), (0,), (0, 0)):
        raises(fl.ShapeError, f.transpose, *order)
    for function in (f.transpose, f.reshape, fl.empty):
        raises(OverflowError, function, 2 ** 70, says=str(2 ** 70))
        raises(TypeError, function, 1.5, says="expected integers")
        raises(TypeError, function, None, says="expected integers")
    check(f.reshape(np.int64(4)).shape == (4,) and fl.empty(np.int64(4)).shape == (4,), "sizes of NumPy's")
    check(3 in v and 5 not in v, "in")
    v.keep_wide()
    check(np.array_equal(copy.copy(v).numpy(), v.numpy()), "copy.copy of a tensor with a wide part")
    for a, b in ((v, v), (v, f), (f, v)):
        raises(fl.ShapeError, lambda: a @ b)
    raises(fl.ShapeError, fl.conv2d, v, v, says="conv2d")
    raises(fl.ShapeError, fl.broadcast_add, v, f, says="broadcast_add")
    raises(TypeError, fl.from_dlpack, 3, says="int")


def sizes():
    """Inputs, labels and targets of other sizes than C reads."""
    net = network()
    for wrong in (images[:3], images[:, :3], images[:0], images[0], np.float32(1), np.concatenate([images, images])):
        raises(fl.ShapeError, net.step, wrong, labels)
    for wrong in (images[:0], images[:, :3], np.concatenate([images, images])):
        raises(fl.ShapeError, net.predict, wrong)
        raises(fl.ShapeError, net.evaluate, wrong, labels)
    for wrong in (2 ** 32, -2 ** 32 + 1, 2 ** 31):
        raises(fl.ArgumentError, net.step, images, labels + wrong, says=str(wrong))
    raises(fl.ShapeError, net.step, images, labels[:7])
    raises(fl.ShapeError, net.pixel_values, np.zeros((2, 256)), says="(3, 256)")
    check(net.predict(images[:3]).shape == (3, 10), "a part of a batch")
    regression = network(loss="squared_error")
    for count in (8, 40, 160):
        raises(fl.ShapeError, regression.step, images, targets=np.zeros(count), says="expected 80")
    check(regression.step(images, targets=np.zeros((8, 10)))[0] >= 0, "targets")
    text = fl.nn.Network("fp32", batch=2).text_model("gpt", 16, 32)
    for wrong in ((2, 3), (2, 17), (2,), (3, 16), (0, 16)):
        raises(fl.ShapeError, text.predict, np.zeros(wrong, "i4"))
    raises(fl.ArgumentError, text.predict, np.full((2, 16), 2 ** 32), says=str(2 ** 32))
    raises(fl.ArgumentError, text.predict, np.full((2, 16), -2 ** 63), says=str(-2 ** 63))
    check(text.predict(np.zeros((1, 16), int)).shape == (16, 32), "a part of a batch of text")
    for before in (lambda n: n.predict(images), lambda n: n.step(images, labels), lambda n: n.pixel_values(np.zeros((3, 256)))):
        unfinished = fl.nn.Network("fp32", batch=8)
        unfinished.input(4, 4, 3)
        raises(fl.ArgumentError, before, unfinished, says="not compiled")


def lives():
    """Objects of C are freed once, by one thread, when nothing uses them."""
    x = fl.tensor([1.0])
    raises(TypeError, fl.c.tensor_free, x, says="is freed when nobody refers to it")
    check(x.numpy() == 1, "a tensor that was not freed")
    fl.c.tensor_free(fl.c.tensor_new(fl.c.FMT_FP32, 1, np.array([3])))
    net = network()
    for one in (net, net._handle):
        raises(TypeError, copy.copy, one)
        raises(TypeError, copy.deepcopy, one)
        raises(TypeError, pickle.dumps, one)
    telemetry = net.telemetry(every=1)
    check("batch 8" in repr(net) and "not compiled" in repr(fl.nn.Network("fp32", batch=8)), "a network is shown")
    fl.c.nn_graph_free(net)
    check("freed" in repr(net), "a freed network is shown")
    net.free()
    raises(ValueError, net.step, images, labels, says="freed")
    raises(ValueError, telemetry.step, says="freed")
    for i in range(20):  # a network and what must be freed before it, in cycles
        net = network()
        net.itself, telemetry = net, net.telemetry(every=1)
        net.step(images, labels)
        telemetry.step()
        del net, telemetry
        gc.collect()
    # within a hook, and beside a step
    for within in (lambda net: net.free(), lambda net: net.watch(None), lambda net: net.watch(print), lambda net: fl.c.nn_graph_free(net)):
        net = network()
        net.watch(lambda t: within(net))
        raises(RuntimeError, net.step, images, labels, says="hook")
        net.watch(None)
        net.step(images, labels)
    raises(TypeError, net.watch, 3)
    # a hook may read its network, another thread may not
    read = []
    net.watch(lambda t: read.append(net["fc.bias"].numpy().size))
    net.step(images, labels)
    net.watch(None)
    check(read and set(read) == {10}, "a hook reads")
    weight, before, after, said = net["fc.weight"], threading.Event(), threading.Event(), []

    def wait(t):
        before.set()
        after.wait(20)

    net.watch(wait)
    stepping = threading.Thread(target=net.step, args=(images, labels))
    stepping.start()
    before.wait(20)
    for reading in (weight.numpy, weight.wide, weight.describe, lambda: net.loss, net.nonfinite):
        raises(RuntimeError, reading, says="another thread")
    after.set()
    stepping.join()
    net.watch(None)
    check(weight.numpy().shape == (4, 10), "read after the step")
    running, refused, over = threading.Event(), [], []

    def work():
        try:
            while True:
                net.step(images, labels)
                running.set()
                time.sleep(1e-4)  # the other thread gets its turn
        except (ValueError, RuntimeError) as error:
            over.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    running.wait()
    while not over:
        try:
            net.free()
        except RuntimeError as error:
            refused.append(error)
    thread.join()
    check(True, "freed beside a step")


def values():
    """What is no number has no value in a format, and nothing is left out silently."""
    for wrong in (None, "1.5", [1.0, None], [1j], np.array([1 + 2j]), object(), np.array(["1"])):
        raises(TypeError, fl.quantize, wrong, "fp16", says="expected numbers")
        raises(TypeError, fl.quantize, wrong, "fp16", "stochastic", says="expected numbers")
    for wrong in (None, 3, b"fp16"):
        for rounding in ("nearest", "stochastic"):
            raises(TypeError, fl.quantize, [1.0], wrong, rounding, says="a format is a text")
    for wrong in (None, 1, 1.0, "0", 2 ** 70):
        raises(ValueError, fl.quantize, [1.0, 2.0], "mx:int8", axis=wrong, says="axis")
    for shape in ((0,), (0, 3), (3, 0)):
        for rounding in ("nearest", "stochastic"):
            quantised, counts = fl.quantize(np.zeros(shape), "flex16+5", rounding, counts=True)
            check(quantised.shape == shape and counts[:4] == (0, 0, 0, 0), "no values", shape, rounding)
    raises(fl.FormatError, fl.replay, [1.0], "paper", "fp16", says="no shared exponent")
    raises(TypeError, fl.predictor("no-function"), 3, says="function")
    for name in dir(fl):
        check(name == "torch" or hasattr(fl, name), "flexlab has what dir names:", name)


def interrupts():
    """Ctrl-C that arrives in C is raised by the function that called C, even where a callback is the first to see it."""
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    net = network()
    net.watch(lambda t: None)
    noticed = []
    sys.unraisablehook, hook = noticed.append, sys.unraisablehook
    try:
        for _ in range(10):
            timer = threading.Timer(0.02, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            try:
                until = time.monotonic() + 10
                while time.monotonic() < until:
                    net.step(images, labels)
                check(False, "Ctrl-C was lost")
            except KeyboardInterrupt:
                check(True)
            timer.join()
    finally:
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, before)
    check(not noticed, "exceptions that nobody gets:", noticed[:1])
    net.watch(None)
    net.step(images, labels)
    check(np.array_equal(fl.reduce_sum(fl.zeros((2, 2)), axes=range(2)).numpy(), [0]), "a range of axes")


def functions():
    """What C calls later lives until then."""
    net, seen = network(), []
    fl.c.nn_watch(net, lambda info, context: seen.append(1), None)
    gc.collect()
    kept = [bytes(200) for _ in range(5000)]
    net.step(images, labels)
    check(seen and kept, "a function that C keeps")
    raises(TypeError, fl.c.nn_watch, net, 3, None, says="expected a function")


run(numbers, arrays, sizes, values, lives, interrupts, functions)
