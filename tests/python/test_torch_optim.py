"""The optimisers of flexlab.torch: bits of the C library's, weights that others write, state, bad input."""
import copy

from torch_tests import main, need_torch, raises

need_torch()

import numpy as np
import torch

import flexlab as fl
import flexlab.torch as ft
from torch_networks import Graph, resnet


def batch(step, count=5):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(count, 3, 32, 32, generator=generator), torch.randint(0, 10, (count,), generator=generator)


def train(model, optimiser, loss_of, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        x, labels = batch(step)
        optimiser.zero_grad()
        loss = loss_of(model(x), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def test_as_the_c_library():
    """Weights after steps of Adam and AdamW, and of SGD without momentum, bit for bit."""
    cases = [("adam", lambda p: ft.optim.Adam(p, lr=0.01, weight_decay=1e-2), {"weight_decay": 1e-2}),
             ("adamw", lambda p: ft.optim.AdamW(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=1e-2),
              {"weight_decay": 1e-2, "decay": "all", "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6}),
             ("sgd", lambda p: ft.optim.SGD(p, lr=0.01), {})]
    for variant in ("flex16+5", "fp32", "dfp16"):
        for name, make, settings in cases:
            model = resnet(8).train()
            converted = ft.convert(model, variant, verbose=False)
            graph = Graph(8, variant, 5, optimiser=name, **settings)
            graph.load(model)
            losses = train(converted, make(converted.parameters()), ft.CrossEntropyLoss(format=variant), 4)
            expected = [np.float32(graph.step(*batch(step), 0.01)) for step in range(4)]
            assert losses == expected, (variant, name, losses, expected)
            for key, value in graph.weights().items():
                assert np.array_equal(converted.state_dict()[key].double().numpy(), value), (variant, name, key)


def test_as_torch_in_fp32():
    for ours, theirs, how in ((ft.optim.SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-2}),
                              (ft.optim.Adam, torch.optim.Adam, {"lr": 0.01, "weight_decay": 1e-2}),
                              (ft.optim.AdamW, torch.optim.AdamW, {"lr": 0.01, "weight_decay": 1e-1})):
        torch.manual_seed(0)
        a = torch.nn.Linear(7, 5)
        b = copy.deepcopy(a)
        first, second = ours(a.parameters(), format="fp32", **how), theirs(b.parameters(), **how)
        for i in range(20):
            x = torch.randn(4, 7)
            for model, optimiser in ((a, first), (b, second)):
                optimiser.zero_grad()
                model(x).square().mean().backward()
                optimiser.step()
        for p, q in zip(a.parameters(), b.parameters()):
            assert torch.allclose(p, q, rtol=2e-5, atol=2e-6), ours


def test_wide_weights_move():
    """Updates below half a unit in the last place of the elements add up in the wide part."""
    layer = ft.Linear(4, 4, bias=False, format="flex16+5")
    torch.nn.init.ones_(layer.weight)
    optimiser = ft.optim.SGD(layer.parameters(), lr=2.0 ** -19)
    for _ in range(256):
        layer.weight.grad = torch.ones(4, 4)
        optimiser.step()
    assert abs(float(layer.weight[0, 0].detach()) - (1 - 256 * 2.0 ** -19)) <= 2.0 ** -14


def test_rates_and_schedulers():
    layer = ft.Linear(3, 3, format="dfp16")
    optimiser = ft.optim.SGD([{"params": [layer.weight], "lr": 0.5}, {"params": [layer.bias]}], lr=0.25)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.5)
    before = layer.weight.detach().clone(), layer.bias.detach().clone()
    for factor in (0.5, 0.25):
        layer.weight.grad, layer.bias.grad = torch.ones(3, 3), torch.ones(3)
        optimiser.step()
        schedule.step()
    assert torch.allclose(before[0] - layer.weight, torch.tensor(0.75), atol=2e-4)
    assert torch.allclose(before[1] - layer.bias, torch.tensor(0.375), atol=2e-4)


def test_written_by_others():
    """A weight that other code writes, by any way, counts with its values from then on."""
    for write in (lambda p: p.data.fill_(0.5), lambda p: p.detach().numpy().fill(0.5), lambda p: torch.nn.init.constant_(p, 0.5)):
        layer = ft.Linear(4, 4, bias=False, format="flex16+5")
        optimiser = ft.optim.SGD(layer.parameters(), lr=0.25, momentum=0.5)
        layer.weight.grad = torch.ones(4, 4)
        optimiser.step()
        with torch.no_grad():
            write(layer.weight)
        assert float(layer(torch.ones(1, 4))[0, 0].detach()) == 2
        layer.weight.grad = torch.zeros(4, 4)
        optimiser.step()
        assert float(layer.weight[1, 2].detach()) == 0.375  # 0.5 - 0.25 * (0.5 * 1)


def test_state():
    """A training that was saved and resumed continues with the same bits, where exponents have no history."""
    for make in (lambda p: ft.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3), lambda p: ft.optim.Adam(p, lr=0.01)):
        torch.manual_seed(1)
        model = ft.convert(resnet(8), "dfp16", verbose=False).train()
        optimiser, loss_of = make(model.parameters()), ft.CrossEntropyLoss(format="dfp16")
        train(model, optimiser, loss_of, 3)
        weights, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimiser.state_dict())
        expected = train(model, optimiser, loss_of, 3, 3)
        other = ft.convert(resnet(8, seed=5), "dfp16", verbose=False).train()
        other.load_state_dict(weights)
        resumed = make(other.parameters())
        resumed.load_state_dict(state)
        assert train(other, resumed, loss_of, 3, 3) == expected
        for (name, p), q in zip(model.named_parameters(), other.parameters()):
            assert torch.equal(p, q), name


def test_bad_input():
    layer = torch.nn.Linear(3, 3)
    optimiser = ft.optim.SGD(layer.parameters(), lr=0.1)
    layer.weight.grad = torch.ones(3, 3)
    raises(ValueError, "belongs to no module", optimiser.step)
    raises(ValueError, "lr is -1", ft.optim.SGD, layer.parameters(), lr=-1)
    raises(ValueError, "1.5", ft.optim.SGD, layer.parameters(), lr=0.1, momentum=1.5)
    raises(ValueError, "nothing", ft.optim.SGD, layer.parameters(), lr=0.1, format="nothing")
    wrong = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    wrong.grad = torch.ones(3, dtype=torch.float64)
    raises(TypeError, "torch.float64", ft.optim.SGD([wrong], lr=0.1, format="fp16").step)
    parts = torch.nn.Parameter(torch.ones(64)[3:7])
    parts.grad = torch.ones(4)
    raises(ValueError, "aligned to 64 bytes", ft.optim.SGD([parts], lr=0.1, format="fp32").step)
    good = torch.nn.Parameter(torch.ones(3))
    good.grad = torch.tensor([1.0, float("nan"), 0])
    raises(fl.Error, "", ft.optim.SGD([good], lr=0.1, format="flex16+5").step)
    assert torch.equal(good.detach(), torch.ones(3))


if __name__ == "__main__":
    main(globals())
