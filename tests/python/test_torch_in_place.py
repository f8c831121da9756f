"""Models that write in place, that broadcast, and that mix tensors with sizes: converted to fp32 they compute what torch does,
forward and backward, in training, evaluation and inference mode. And a child of fork() computes."""
import os
import signal
import threading

from torch_tests import main, need_torch

need_torch()

import torch
import torch.nn.functional as F
from torch import nn

import flexlab.torch as ft


class Model(nn.Module):
    def __init__(self, code):
        super().__init__()
        self.a, self.b, self.p, self.relu, self.code = nn.Linear(4, 4), nn.Linear(4, 4), nn.Parameter(torch.rand(4)), nn.ReLU(True), code

    def forward(self, x):
        return self.code(self, x)


def method(m, x):
    y = m.a(x)
    y.relu_()
    return m.b(y)


def alias(m, x):
    y = m.a(x)
    z = F.relu(y, inplace=True)
    return y + z


def positional(m, x):
    y = m.a(x)
    F.relu(y, True)
    return m.b(y)


def module(m, x):
    y = m.a(x)
    m.relu(y)
    return m.b(y) + y


def untraced(m, x):
    y = m.a(x)
    m.relu(y)
    return m.b(y) if x.sum() < 1e9 else y


def sum_known_twice(m, x):
    y = m.a(x)
    same = y
    y += m.b(x)
    return m.b(same * 2)


def products(m, x):
    y = m.a(x) * 1
    same = y
    y *= 2
    y += 1
    return m.b(same * 1) + same


def of_a_view(m, x):
    y = m.a(x)
    v = y.view(-1)
    y.relu_()
    return m.b(v.view(x.shape))


def sizes(m, x):
    n = x.size(0)
    same = n
    n += 1
    n += x.shape[1] // 2
    return m.a(x) * same + n


def parameter(m, x):
    return m.a(x) + m.p


def broadcast(m, x):
    return m.a(x) + m.b(x).mean(0, keepdim=True)


def two_products(m, x):
    return m.a(x) * 2 + m.b(x) * 3


def test_values_and_gradients():
    for code in (method, alias, positional, module, untraced, sum_known_twice, products, of_a_view, sizes, parameter, broadcast,
                 two_products):
        torch.manual_seed(5)
        model = Model(code)
        converted = ft.convert(model, "fp32", verbose=False)
        x = torch.randn(6, 4)
        want = model(x)
        want.square().sum().backward()
        for training in (True, False):
            converted.train(training)
            converted.zero_grad()
            got = converted(x)
            assert torch.allclose(got, want, rtol=1e-5, atol=1e-6), (code.__name__, training, got, want)
            got.square().sum().backward()
            found = dict(converted.named_parameters())
            for name, weight in model.named_parameters():
                if weight.grad is not None:
                    assert torch.allclose(found[name].grad, weight.grad, rtol=1e-4, atol=1e-5), (code.__name__, name)


def test_what_is_left_is_said():
    left = [what for _, what, _ in ft.convert(Model(two_products), "fp32", verbose=False).flexlab_report.left]
    assert left == ["mul", "mul_1"], left
    assert "place" in ft.convert(Model(of_a_view), "fp32", verbose=False).flexlab_report.notes[0]


def test_inference_mode():
    for format in ("fp32", "flex16+5"):
        model = ft.convert(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), format, verbose=False).eval()
        alone, x = ft.Linear(4, 3, format=format).eval(), torch.randn(2, 4)
        with torch.no_grad():
            want, one = model(x), ft.relu(alone(x), format)
        with torch.inference_mode():
            assert torch.equal(model(x), want) and torch.equal(ft.relu(alone(x), format), one)
            made = torch.ones(2, 4)
            first = model(made)
            made.mul_(2)
            second = model(made)
        assert torch.equal(model(torch.ones(2, 4)), first) and torch.equal(model(torch.full((2, 4), 2.0)), second)
        model.train()(x).sum().backward()


def test_fork():
    """A child of fork() computes, whatever another thread was computing."""
    over = threading.Event()

    def work():
        x = torch.randn(150, 150)
        while not over.is_set():
            ft.matmul(x, x, "flex16+5")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a hang ends
                ft.relu(torch.ones(3, 3), "flex16+5")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, "the child of fork() hung"
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    main(globals())
