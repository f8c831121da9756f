"""The functions of flexlab.torch: registration, forward and backward against a witness in double, carriers, bad input."""
import copy
import gc
import math
import pickle
import threading
import weakref

from torch_tests import main, need_torch, raises

need_torch()

import numpy as np
import torch
import torch.nn.functional as TF
from torch.library import opcheck

import flexlab as fl
import flexlab.torch as ft
from flexlab.torch import _carriers as carriers
from flexlab.torch import _elementwise, _operations
from flexlab.torch import functional as F

FORMATS = ("fp32", "flex16+5", "fp16")


def some(*shape, seed=0, scale=1.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * scale


MEAN, VARIANCE = torch.tensor([0.5, -0.25, 0.0]), torch.tensor([0.7, 1.5, 2.0])
LABELS = torch.tensor([3, 0, 6, 2, 2])
INDICES = torch.tensor([[1, 4, 1], [0, 4, 4]])
# name: (function of inputs and format, the same in torch, shapes of the inputs, roundings of the result, of gradients)
CASES = {
    "matmul": (lambda a, b, f, h=0: F.matmul(a, b, f, handle=h), torch.matmul, [(7, 5), (5, 3)], 1, 1),
    "matmul_batched": (lambda a, b, f, h=0: F.matmul(a, b, f, handle=h), torch.matmul, [(2, 3, 7, 5), (2, 3, 5, 4)], 1, 1),
    "linear": (lambda x, w, b, f, h=0: F.linear(x, w, b, format=f, handle=h), TF.linear, [(6, 9), (4, 9), (4,)], 3, 1),
    "bias": (lambda x, b, f, h=0: F.bias(x, b, format=f, handle=h), lambda x, b: x + b, [(6, 9), (9,)], 1, 1),
    "linear_sequence_bias": (lambda x, w, b, f, h=0: F.linear(x, w, b, format=f, handle=h), TF.linear, [(2, 5, 9), (4, 9), (4,)], 1, 1),
    "linear_sequence": (lambda x, w, f, h=0: F.linear(x, w, format=f, handle=h), TF.linear, [(2, 5, 9), (4, 9)], 1, 1),
    "conv2d": (lambda x, w, b, f, h=0: F.conv2d(x, w, b, 2, 1, format=f, handle=h),
               lambda x, w, b: TF.conv2d(x, w, b, 2, 1), [(2, 3, 9, 8), (5, 3, 3, 3), (5,)], 1, 1),
    "conv2d_groups": (lambda x, w, f, h=0: F.conv2d(x, w, None, (1, 2), (0, 2), (2, 1), 2, format=f, handle=h),
                      lambda x, w: TF.conv2d(x, w, None, (1, 2), (0, 2), (2, 1), 2), [(2, 4, 7, 9), (6, 2, 2, 3)], 1, 1),
    "conv2d_unbatched": (lambda x, w, b, f, h=0: F.conv2d(x, w, b, 2, 1, format=f, handle=h),
                         lambda x, w, b: TF.conv2d(x, w, b, 2, 1), [(3, 9, 8), (5, 3, 3, 3), (5,)], 1, 1),
    "batch_norm": (lambda x, w, b, f, h=0: F.batch_norm(x, None, None, w, b, True, format=f, handle=h),
                   lambda x, w, b: TF.batch_norm(x, None, None, w, b, True), [(4, 3, 5, 6), (3,), (3,)], 3, 6),
    "batch_norm_add_relu": (lambda x, r, w, b, f, h=0: F.batch_norm(x, None, None, w, b, True, residual=r, relu=True, format=f,
                                                                     handle=h),
                            lambda x, r, w, b: TF.relu(TF.batch_norm(x, None, None, w, b, True) + r),
                            [(4, 3, 5, 6), (4, 3, 5, 6), (3,), (3,)], 3, 6),
    "batch_norm_running": (lambda x, r, w, b, f, h=0: F.batch_norm(x, MEAN, VARIANCE, w, b, residual=r, relu=True, format=f, handle=h),
                           lambda x, r, w, b: TF.relu(TF.batch_norm(x, MEAN.to(x.dtype), VARIANCE.to(x.dtype), w, b) + r),
                           [(4, 3, 5, 6), (4, 3, 5, 6), (3,), (3,)], 3, 6),
    "batch_norm_rows": (lambda x, w, b, f, h=0: F.batch_norm(x, None, None, w, b, True, relu=True, format=f, handle=h),
                        lambda x, w, b: TF.relu(TF.batch_norm(x, None, None, w, b, True)), [(40, 3), (3,), (3,)], 3, 6),
    "group_norm": (lambda x, w, b, f, h=0: F.group_norm(x, 3, w, b, format=f, handle=h), lambda x, w, b: TF.group_norm(x, 3, w, b),
                   [(3, 6, 5, 4), (6,), (6,)], 4, 40),
    "batch_norm_lengths": (lambda x, w, b, f, h=0: F.batch_norm(x, None, None, w, b, True, format=f, handle=h),
                           lambda x, w, b: TF.batch_norm(x, None, None, w, b, True), [(4, 3, 9), (3,), (3,)], 3, 6),
    "group_norm_lengths": (lambda x, w, b, f, h=0: F.group_norm(x, 3, w, b, format=f, handle=h), lambda x, w, b: TF.group_norm(x, 3, w, b),
                           [(3, 6, 20), (6,), (6,)], 4, 40),
    "group_norm_volumes": (lambda x, w, b, f, h=0: F.group_norm(x, 3, w, b, format=f, handle=h), lambda x, w, b: TF.group_norm(x, 3, w, b),
                           [(3, 6, 2, 5, 2), (6,), (6,)], 4, 40),
    "layer_norm": (lambda x, w, b, f, h=0: F.layer_norm(x, 12, w, b, format=f, handle=h),
                   lambda x, w, b: TF.layer_norm(x, (12,), w, b), [(3, 5, 12), (12,), (12,)], 3, 6),
    "layer_norm_two": (lambda x, w, f, h=0: F.layer_norm(x, (3, 4), w, format=f, handle=h),
                       lambda x, w: TF.layer_norm(x, (3, 4), w), [(5, 3, 4), (3, 4)], 3, 6),
    "relu": (lambda x, f, h=0: F.relu(x, f, handle=h), TF.relu, [(3, 4, 5, 6)], 1, 1),
    "add": (lambda a, b, f, h=0: F.add(a, b, f, handle=h), torch.add, [(3, 7), (3, 7)], 1, 1),
    "add_relu": (lambda a, b, f, h=0: F.add(a, b, f, relu=True, handle=h), lambda a, b: TF.relu(a + b), [(3, 7), (3, 7)], 1, 1),
    "avg_pool2d": (lambda x, f, h=0: F.avg_pool2d(x, 3, 2, 1, format=f, handle=h), lambda x: TF.avg_pool2d(x, 3, 2, 1),
                   [(2, 3, 7, 8)], 1, 1),
    "avg_pool2d_uncounted": (lambda x, f, h=0: F.avg_pool2d(x, 3, 2, 1, False, False, format=f, handle=h),
                             lambda x: TF.avg_pool2d(x, 3, 2, 1, False, False), [(2, 3, 7, 8)], 1, 1),
    "avg_pool2d_global": (lambda x, f, h=0: F.avg_pool2d(x, 8, format=f, handle=h), lambda x: TF.avg_pool2d(x, 8), [(2, 3, 8, 8)],
                          1, 1),
    "adaptive_avg_pool2d": (lambda x, f, h=0: F.adaptive_avg_pool2d(x, (3, 2), format=f, handle=h),
                            lambda x: TF.adaptive_avg_pool2d(x, (3, 2)), [(2, 3, 7, 8)], 1, 1),
    "max_pool2d": (lambda x, f, h=0: F.max_pool2d(x, 3, 2, 1, format=f, handle=h), lambda x: TF.max_pool2d(x, 3, 2, 1),
                   [(2, 3, 7, 8)], 1, 1),
    "avg_pool2d_unbatched": (lambda x, f, h=0: F.avg_pool2d(x, 2, format=f, handle=h), lambda x: TF.avg_pool2d(x, 2), [(3, 7, 8)], 1, 1),
    "adaptive_avg_pool2d_unbatched": (lambda x, f, h=0: F.adaptive_avg_pool2d(x, (3, None), format=f, handle=h),
                                      lambda x: TF.adaptive_avg_pool2d(x, (3, None)), [(3, 7, 8)], 1, 1),
    "max_pool2d_unbatched": (lambda x, f, h=0: F.max_pool2d(x, 2, format=f, handle=h), lambda x: TF.max_pool2d(x, 2), [(3, 7, 8)], 1, 1),
    "shortcut_a": (lambda x, f, h=0: F.shortcut_a(x, 12, 2, format=f, handle=h),
                   lambda x: TF.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4)), [(2, 4, 7, 8)], 1, 1),
    "embedding": (lambda w, f, h=0: F.embedding(INDICES, w, format=f, handle=h), lambda w: TF.embedding(INDICES, w), [(6, 5)], 1, 1),
    "cross_entropy": (lambda x, f, h=0: F.cross_entropy(x, LABELS, format=f, handle=h), lambda x: TF.cross_entropy(x, LABELS),
                      [(5, 7)], 1, 2),
}


def values_in(x, format):
    return x if format == "fp32" else ft.quantize(x, format)


def half_step(reference, format):
    """Half a unit in the last place, for each element, of a result whose exponent is that of the largest."""
    size = reference.abs()
    if format.startswith("flex"):
        return torch.full_like(size, 2.0 ** (math.floor(math.log2(max(float(size.max()), 1e-30))) - 15))
    bits, least = (11, -24) if format == "fp16" else (24, -149)
    return torch.clamp(torch.exp2(torch.floor(torch.log2(size.clamp(min=1e-30))) - bits), min=2.0 ** (least - 1))


def inputs_of(name, format, layout=None):
    made = []
    for i, shape in enumerate(CASES[name][2]):
        x = values_in(some(*shape, seed=i + len(name)), format)
        if layout and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        made.append(x.requires_grad_())
    return made


def compare(name, format, layout):
    function, reference, shapes, roundings, backward_roundings = CASES[name]
    ours = inputs_of(name, format, layout)
    exact = [x.detach().double().requires_grad_() for x in ours]
    y, z = function(*ours, format), reference(*exact)
    assert y.shape == z.shape and y.dtype == torch.float32, name
    # Float formats sum in binary32: as many roundings of that as a sum is long, of the sum of magnitudes.
    chain = 0 if format.startswith("flex") else 64 * 2.0 ** -24 * float(z.detach().abs().max() + 4)
    limit = roundings * half_step(z.detach(), format) * (1 + 1e-3) + chain + (2.0 ** -24 * 4 if not z.dim() else 0)
    assert bool(((y.double() - z).abs() <= limit).all()), (name, format, float(((y.double() - z).abs() / limit).max()))
    dy = values_in(some(*z.shape, seed=9), format) if z.dim() else torch.tensor(1.0)
    got, expected = torch.autograd.grad(y, ours, dy), torch.autograd.grad(z, exact, dy.double())
    for i, (a, b) in enumerate(zip(got, expected)):
        chain = 0 if format.startswith("flex") else 512 * 2.0 ** -24 * float(b.abs().max() + 4)
        if name == "batch_norm_running" and i == 2:  # a sum of products that were rounded
            chain += 120 * float(half_step(dy.double() * 3, format).max())
        if format == "fp16" and ("norm" in name):
            chain += 2.0 ** -10 * float(b.abs().max())
        limit = backward_roundings * half_step(b, format) * (1 + 1e-3) + chain
        assert a.shape == b.shape
        assert bool(((a.double() - b).abs() <= limit).all()), (name, format, i, float(((a.double() - b).abs() / limit).max()))


def test_against_double():
    for name in CASES:
        for format in FORMATS:
            for layout in (None, "last"):
                compare(name, format, layout)


def test_opcheck():
    """Schema, autograd registration, fake tensors, and tracing ahead of time, of every operation with every case."""
    seen = set()
    for name, (function, *_) in CASES.items():
        for format in ("fp32",) if "pool" in name or "_" not in name else ("flex16+5",):
            calls = []
            mode = recorder(calls)
            ours = inputs_of(name, format)
            with mode:
                y = function(*ours, format)
                y.backward(torch.ones_like(y)) if y.dim() else y.backward()
            for operation, args in calls:
                opcheck(operation, args)
                seen.add(operation._schema.name)
    every = {operation._qualname for module in (_operations, _elementwise) for operation in vars(module).values()
             if isinstance(operation, torch.library.CustomOpDef)}
    left = every - seen - {"flexlab::add_gated", "flexlab::relu_backward", "flexlab::rewrite", "flexlab::dropout",
                           "flexlab::dropout_backward"}
    assert not left, left
    x = some(2, 3, 4, 4)
    opcheck(_elementwise.add_gated, (x, x.clone(), x.relu(), "flex16+5", 0))
    opcheck(_elementwise.relu_backward, (x, x.relu(), "flex16+5", 0))
    step = torch.zeros(1, dtype=torch.float64)
    opcheck(_elementwise.dropout, (x.clone().requires_grad_(), 0.25, 7, step, "fp32", 0))
    opcheck(_elementwise.dropout_backward, (x, step, 0.25, 7, "flex16+5", 0))
    for format in ("bf16", "fp32"):
        opcheck(_elementwise.rewrite, (x.bfloat16().float(), "fp32", format, "y", 0))


def recorder(calls):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
            if operation.namespace == "flexlab":
                calls.append((operation, tuple(one.detach().clone(memory_format=torch.preserve_format)
                                               if isinstance(one, torch.Tensor) else one for one in args)))
            return operation(*args, **(kwargs or {}))
    return Mode()


def test_carriers_change_no_result():
    """The same results when the table of carriers has been emptied before each operation."""
    def network(forget):
        state = [ft.State() for _ in range(4)]
        x = some(4, 3, 8, 8).requires_grad_()
        w, v = some(6, 3, 3, 3, scale=0.2).requires_grad_(), some(6).requires_grad_()
        h = x
        for step in (lambda h: F.conv2d(h, w, None, 1, 1, format="flex16+5", handle=state[0].handle),
                     lambda h: F.batch_norm(h, None, None, v, v, True, format="flex16+5", relu=True, handle=state[1].handle),
                     lambda h: F.max_pool2d(h, 2, format="flex16+5", handle=state[2].handle),
                     lambda h: F.relu(h, "flex16+5", handle=state[3].handle)):
            if forget:
                carriers.table.clear()
            h = step(h)
        if forget:
            h.register_hook(lambda g: carriers.table.clear())
        h.sum().backward()
        return h, x.grad, w.grad, v.grad
    for a, b in zip(network(False), network(True)):
        assert torch.equal(a, b)


def test_modified_tensors_are_seen():
    """A result, an operand or a weight that was written in place counts with its new values: in all layouts of operands."""
    for name, (function, reference, shapes, *_) in CASES.items():
        state = ft.State()
        ours = [x.detach() for x in inputs_of(name, "flex16+5")]
        before = function(*ours, "flex16+5", state.handle)
        again = function(*ours, "flex16+5", state.handle)
        assert torch.equal(before, again), name
        for i, x in enumerate(ours):
            x.mul_(0.5)
            fresh = [one.clone() for one in ours]
            assert torch.equal(function(*ours, "flex16+5", 0), function(*fresh, "flex16+5", 0)), (name, i)
            x.mul_(2)
    y = F.relu(some(4, 3, 2, 2), "flex16+5")
    y += 1
    assert torch.equal(F.relu(y, "fp32"), y) and float((F.relu(y, "flex16+5") - y).abs().max()) < 2e-4
    y = F.conv2d(some(1, 3, 4, 4), some(2, 3, 3, 3), format="flex16+5")
    y.zero_()
    assert not F.relu(y, "flex16+5").any()
    w = some(4, 5)
    first = F.linear(some(2, 5), w, format="flex16+5")
    w.data.mul_(0.5)  # which no version counts
    assert torch.equal(F.linear(some(2, 5), w, format="flex16+5") * 2, first)


def test_results_may_be_written():
    """As in `out = bn(x); out += shortcut`: a result is no view, and its gradient goes on."""
    for name in CASES:
        if "relu" in name or name in ("batch_norm_rows", "batch_norm_running"):  # they save their result, as torch's do
            continue
        for format in ("fp32", "flex16+5"):
            ours, others = inputs_of(name, format), inputs_of(name, format)
            y = CASES[name][0](*ours, format)
            y *= 2
            y.sum().backward()
            (CASES[name][0](*others, format) * 2).sum().backward()
            assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, others)), name


def test_module_in_itself():
    """A module that is applied to its own result, and twice in one graph."""
    layer, other = ft.Linear(8, 8, format="flex16+5"), ft.Linear(8, 8, format="flex16+5")
    other.load_state_dict(layer.state_dict())
    layer.eval(), other.eval()  # exponents of evaluation depend on the values only
    x = some(3, 8)
    y = layer(layer(x))
    assert torch.equal(y, other(other(x).clone()))
    for make in (lambda: ft.Linear(8, 8, bias=False, format="flex16+5"), lambda: ft.LayerNorm(8, format="flex16+5"),
                 lambda: ft.Conv2d(8, 8, 3, padding=1, bias=False, format="fp16")):
        layer = make()
        other = copy.deepcopy(layer)
        layer.eval(), other.eval()
        z = some(2, 8, 4, 4) if isinstance(layer, ft.Conv2d) else x
        assert torch.equal(layer(layer(layer(z))), other(other(other(z).clone()).clone()))
    relu = ft.ReLU(format="flex16+5")
    relu.eval()
    a = relu(x)
    b = relu(a - 1)
    assert torch.equal(a, F.relu(x, "flex16+5")) and torch.equal(b, F.relu(a - 1, "flex16+5"))


def test_fork():
    """Gradients of several uses are added in the format, and masked by a result of relu, whichever of them there are."""
    for uses in ((0, 1, 2), (0, 2), (1,)):
        x = some(4, 5).requires_grad_()
        h = F.relu(x, "flex16+5", gated=True)
        parts = F.fork(h, 3, "flex16+5", gated=True)
        factors = [ft.quantize(some(4, 5, seed=i), "flex16+5") for i in range(3)]
        sum((parts[i] * factors[i]).sum() for i in uses).backward()
        expected = sum(factors[i].double() for i in uses) * (x > 0)
        assert bool(((x.grad.double() - expected).abs() <= 2 * len(uses) * half_step(expected, "flex16+5")).all())
        assert bool(x.grad.any()) and not x.grad[x <= 0].any()


def test_graphs_alive_together():
    """Two passes before the first backward: the slots of the first were written again."""
    layer, other = (ft.Conv2d(3, 4, 3, format="flex16+5") for _ in range(2))
    other.load_state_dict(layer.state_dict())
    layer.state.exact = other.state.exact = True
    x, z = some(2, 3, 6, 6).requires_grad_(), some(2, 3, 6, 6, seed=5).requires_grad_()
    a, b = layer(x), layer(z)
    a.sum().backward(), b.sum().backward()
    u, v = (t.detach().clone().requires_grad_() for t in (x, z))
    other(u).sum().backward()
    first = other.weight.grad.clone()
    other.weight.grad = None
    other(v).sum().backward()
    assert torch.equal(x.grad, u.grad) and torch.equal(z.grad, v.grad)
    assert torch.equal(layer.weight.grad, first + other.weight.grad)


def test_histories():
    """Exponents of a module's tensors follow from the steps before, as the C library's predictor has it."""
    layer = ft.Linear(4, 4, bias=False, format="flex16+5")
    torch.nn.init.eye_(layer.weight)
    witness = fl.empty((2, 4), "flex16+5")
    for i in range(12):
        x = some(2, 4, seed=i, scale=1 + i % 5)
        y = layer(x)
        fl.matmul_nt(fl.tensor(x.numpy(), "flex16+5"), fl.tensor(np.eye(4), "flex16+5"), out=witness)
        exponent, = (e for (role, *_), e in layer.exponents().items() if role == "y")
        assert exponent == witness.exponent and np.array_equal(y.detach().numpy(), witness.numpy())
    copied, pickled = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    assert not copied.exponents() and not pickled.exponents() and copied.state.handle != layer.state.handle
    assert torch.equal(copied(x), pickled(x))


def test_released():
    """A dead module's state is gone, but not while a graph needs it; tables do not grow."""
    layer = ft.Linear(4, 4, format="flex16+5")
    handle, state = layer.state.handle, weakref.ref(layer.state)
    y = layer(some(2, 4).requires_grad_())
    del layer
    gc.collect()
    y.sum().backward()
    del y
    gc.collect()
    assert state() is None
    raises(ValueError, f"handle {handle}", F.relu, some(3), "flex16+5", handle=handle)
    before = len(carriers.states)
    for _ in range(2000):
        ft.ReLU(format="flex16+5")(some(8))
    gc.collect()
    assert len(carriers.states) <= before + 8 and len(carriers.table) < 1200
    x = torch.ones(1 << 20)
    for i in range(400):  # 2 MB each, as mantissas
        F.relu(x, "flex16+5")
    kept = sum(entry.slot.tensor.nbytes for entry in carriers.table.values())
    assert kept < 200e6, kept


def test_bad_input():
    x = some(2, 3, 4, 4)
    raises(TypeError, "torch.float64", F.relu, x.double(), "flex16+5")
    raises(TypeError, "x has the dtype torch.bfloat16, expected torch.float32", F.relu, x.bfloat16(), "fp32")
    raises(ValueError, "nonsense", F.relu, x, "nonsense")
    raises(ValueError, "f64", F.relu, x, "f64")
    raises(ValueError, "expected the same shapes", F.add, x, x[:1], "fp32")
    raises(ValueError, "(2, 3, 4, 4)", F.matmul, x, some(4), "fp32")
    raises(ValueError, "conv2d", F.conv2d, x, some(2, 5, 3, 3), format="flex16+5")
    raises(ValueError, "padding is 'reflect'", F.conv2d, x, some(2, 3, 3, 3), padding="reflect", format="fp32")
    raises(ValueError, "ceil_mode=True", F.avg_pool2d, x, 2, ceil_mode=True, format="fp32")
    raises(ValueError, "at least one element", F.relu, torch.empty(0, 3), "fp32")
    raises(ValueError, "10", F.cross_entropy, some(2, 3), torch.tensor([1, 10]), format="fp32")
    raises(TypeError, "torch.float32", F.embedding, torch.tensor([1.0]), some(3, 3), format="fp32")
    raises(ValueError, "affine is False", lambda: ft.modules.taken(torch.nn.BatchNorm2d(3, affine=False), ft.BatchNorm2d, "fp32"))
    raises(ValueError, "'circular'", lambda: ft.Conv2d(3, 4, 3, padding_mode="circular", format="fp32"))
    raises(ValueError, "no shared exponent", F.relu, x, "fp16:ngraph")
    raises(ValueError, "finite", F.relu, torch.tensor([float("nan")]), "flex16+5")

    class Elsewhere:  # a tensor of another device, where this machine may have none
        device, dtype, layout = torch.device("cuda:0"), torch.float32, torch.strided
    real, carriers.torch.Tensor = torch.Tensor, (torch.Tensor, Elsewhere)
    try:
        raises(ValueError, "x is on the device cuda:0, expected cpu", carriers.check, Elsewhere(), "x")
    finally:
        carriers.torch.Tensor = real
    if torch.cuda.is_available():
        raises(ValueError, "expected cpu", F.relu, x.cuda(), "flex16+5")


def test_no_second_derivative():
    x = some(3, 4).requires_grad_()
    dx, = torch.autograd.grad(F.relu(x, "fp32").square().sum(), x, create_graph=True)
    try:
        torch.autograd.grad(dx.sum(), x)
    except (RuntimeError, NotImplementedError):
        return
    raise AssertionError("a second derivative came out of operations that have none")


def test_autocast():
    """Inside autocast operands become float32, which holds every bfloat16, and the operation has its own format."""
    x, w = some(4, 8), some(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        h = torch.nn.functional.linear(x, w)
        assert h.dtype == torch.bfloat16
        y = F.relu(h, "flex16+5")
    assert y.dtype == torch.float32 and torch.equal(y, F.relu(h.float(), "flex16+5"))


def test_compile():
    """torch.compile takes the operations as they are, forward and backward: the same bits."""
    def network(seed):
        torch.manual_seed(seed)
        return torch.nn.Sequential(ft.Conv2d(3, 4, 3, padding=1, format="flex16+5"), ft.BatchNorm2d(4, relu=True, format="flex16+5"),
                                   ft.AvgPool2d(8, format="flex16+5"), torch.nn.Flatten(), ft.Linear(4, 5, format="flex16+5"))
    plain, other = network(1), network(1)
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    for i in range(3):
        x = some(2, 3, 8, 8, seed=i)
        y, z = plain(x), compiled(x)
        assert torch.equal(y, z)
        for model, result in ((plain, y), (other, z)):
            model.zero_grad()
            result.square().sum().backward()
        for (name, p), q in zip(plain.named_parameters(), other.parameters()):
            assert torch.equal(p.grad, q.grad), name
    assert torch.equal(plain[1].running_mean, other[1].running_mean)


def test_threads():
    """Threads of Python that compute at once have the results of one after the other."""
    layers = [ft.Linear(64, 64, format="flex16+5").eval() for _ in range(4)]
    inputs = [some(32, 64, seed=i) for i in range(4)]
    expected = [layer(x) for layer, x in zip(layers, inputs)]
    wrong = []

    def work(i):
        for _ in range(50):
            k = i % 2  # two threads share a layer
            if not torch.equal(layers[k](inputs[k]), expected[k]):
                wrong.append(i)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


if __name__ == "__main__":
    main(globals())
