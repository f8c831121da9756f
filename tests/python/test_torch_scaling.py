"""What surrounds policies in flexlab.torch: optimisers and loss scales, which have the bits of the C library's networks; trainings that
go on; products in blocks against sums in NumPy; spellings; what is refused."""
import io
import os
import tempfile

from torch_tests import main, need_torch, raises

need_torch()

import numpy as np
import torch
import torch.nn as nn

import flexlab as fl
import flexlab.torch as ft
from flexlab import c
from flexlab.torch._policies import text_of
from flexlab.torch._roles import roles
from torch_policies import RATE, Groups, Images, Pair, Text, batch_of, compare


def test_optimisers():
    compare(Images, "flex16+5", nesterov=True)
    compare(Text, "variant fp32; * master=none; @norm weights=bf16", nesterov=True)
    for policy in ("O2:bf16", "variant fp16; *.weight weights=flex16+5"):
        pair = Pair(Images, policy, adam=True)
        for step in range(3):
            pair.step(step, (policy, "adam", step))


def scale_of(network):
    now = c.nn_loss_scale()
    c.nn_loss_scale_of(now, network)
    return now.scale, now.skipped


def test_loss_scales():
    """Static and dynamic ones: scales, skipped steps and weights as in the library's networks."""
    seen = set()
    for policy, scale, how in (("O2", "dynamic:init=524288,window=2", {"momentum": 0.9}), ("O2", "2^10", {}),
                               ("fp16", "dynamic:init=262144,window=3", {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
                               ("fp16", "dynamic:init=262144", {"adam": True}),
                               ("flex10+5", "dynamic:init=8388608,window=1,max=2^30", {})):
        pair = Pair(Images, policy, scale, **how)
        for step in range(7):
            pair.step(step, (policy, scale, step))
            assert (pair.scaler.get_scale(), pair.scaler.skipped) == scale_of(pair.network), (policy, step)
            seen.add((policy, pair.scaler.skipped > 0))
    assert {("O2", True), ("fp16", True), ("flex10+5", True)} <= seen, seen
    model = ft.convert(Images(), "O1", verbose=False)
    scaler = ft.GradScaler.of(model)
    assert model.flexlab_report.loss_scale == "dynamic" and scaler.get_scale() == 65536 and "GradScaler('dynamic')" in str(model.flexlab_report)
    other = ft.GradScaler("dynamic")
    other.load_state_dict({**scaler.state_dict(), "scale": 2.0, "skipped": 3})
    assert other.get_scale() == 2 and other.skipped == 3
    assert not ft.GradScaler.of(ft.convert(Images(), "fp16:noscale", verbose=False)).is_enabled()
    raises(fl.Error, "loss scale 'fast'", ft.GradScaler, "fast")
    raises(fl.Error, "unscale_", scaler.unscale_, None)


def test_scalers_and_optimisers_of_torch():
    """torch.amp.GradScaler with an optimiser of flexlab, and flexlab's GradScaler with one of torch: the same step as without a
    scale, in formats whose gradients no power of two changes."""
    x, labels = batch_of(Images(), 4, 0)
    results = []
    for make in (lambda: None, lambda: torch.amp.GradScaler("cpu", init_scale=2.0**12), lambda: ft.GradScaler("2^12")):
        for optimiser in (ft.optim.SGD, torch.optim.SGD):
            torch.manual_seed(0)
            model = ft.convert(Images(), "preset O2:bf16; * master=fp32", verbose=False)
            scaler, made = make(), optimiser(model.parameters(), lr=RATE)
            loss = ft.CrossEntropyLoss.of(model)(model(x), labels)
            (loss if scaler is None else scaler.scale(loss)).backward()
            if scaler is None:
                made.step()
            else:
                scaler.step(made)
                scaler.update()
            results.append([p.detach().clone() for p in model.parameters()])
    for i, result in enumerate(results):
        for a, b in zip(result, results[i % 2]):
            assert torch.equal(a, b), (i, (a - b).abs().max())
    for a, b in zip(results[0], results[1]):
        assert torch.allclose(a, b, rtol=0, atol=2.0 ** -24)


class Uses(Images):
    """One value for four convolutions: three sums of gradients, each with a history."""

    def __init__(self):
        super().__init__()
        self.uses = nn.ModuleList(nn.Conv2d(32, 64, 3, 1, 1, bias=False) for _ in range(4))

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        a, b, c, d = (conv(x) for conv in self.uses)
        return self.fc(self.pool((a + b) + (c + d)).flatten(1))


def test_going_on():
    """A training that is saved and goes on elsewhere has the bits of one that was not interrupted: state_dicts, histories, scaler."""
    def made(kind, policy, scale):
        torch.manual_seed(0)
        model = ft.convert(kind().train(), policy, verbose=False)
        return model, ft.optim.SGD(model.parameters(), lr=RATE, momentum=0.9), ft.GradScaler(scale, model)

    def step(model, optimiser, scaler, kind, seed):
        x, labels = batch_of(kind(), 4, seed)
        optimiser.zero_grad()
        loss = ft.CrossEntropyLoss(format="fp32")(model(x).reshape(len(labels.reshape(-1)), -1), labels.reshape(-1))
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss.item()
    for kind, policy, scale in ((Images, "flex16+5", "none"), (Text, "fp8-delayed", "none"), (Images, "nvfp4", "none"),
                                (Images, "fp16", "dynamic:init=131072,window=2"), (Groups, "flex16+5:ngraph", "none"),
                                (Uses, "flex16+5", "none")):
        whole = made(kind, policy, scale)
        for i in range(3):
            step(*whole, kind, i)
        file = io.BytesIO()
        torch.save([one.state_dict() for one in whole] + [ft.histories(whole[0])], file)
        file.seek(0)
        *saved, histories = torch.load(file)
        other = made(kind, policy, scale)
        step(*other, kind, 77)
        for one, state in zip(other, saved):
            one.load_state_dict(state)
        ft.load_histories(other[0], histories)
        for i in range(3, 6):
            assert step(*whole, kind, i) == step(*other, kind, i), (policy, i)
        for (name, p), q in zip(whole[0].named_parameters(), other[0].parameters()):
            assert torch.equal(p, q), (policy, name)
    assert all(any(f"|state {i}|" in key for key in histories) for i in range(3))
    key = next(iter(histories))
    raises(fl.Error, "has no module 'nothing'", ft.load_histories, other[0], {"nothing|passes": torch.zeros(1)})
    raises(fl.Error, "which module", ft.load_histories, other[0], {"fc|sequences 0|y|fp16|1": histories[key]})
    raises(fl.Error, "3 bytes, expected", ft.load_histories, other[0], {key: histories[key][:3]})
    raises(fl.Error, "no state of a", ft.load_histories, other[0], {key: torch.full_like(histories[key], 0x55)})


def test_products_in_blocks():
    """A linear layer outside of a converted model, against quantised operands whose products NumPy sums in float64, which is exact
    here: int8 in blocks of 32, 64 in a sum."""
    torch.manual_seed(1)
    x, w, dy = torch.randn(8, 64), torch.randn(16, 64), torch.randn(8, 16)
    text = "activations=fp32 operands=mx:int8 gradient-operands=mx:int8"
    layer = ft.Linear(64, 16, bias=False, format=text)
    with torch.no_grad():
        layer.weight.copy_(w)
    x.requires_grad_()
    y = layer(x)
    y.backward(dy)

    def in_blocks(t, axis):
        return fl.quantize(t.detach().numpy(), "mx:int8", axis=axis).astype(np.float64)
    for ours, expected in ((y, in_blocks(x, 1) @ in_blocks(w, 1).T), (x.grad, in_blocks(dy, 1) @ in_blocks(w, 0)),
                           (layer.weight.grad, in_blocks(dy, 0).T @ in_blocks(x, 0))):
        assert np.array_equal(ours.detach().numpy(), expected.astype(np.float32))


def test_stochastic_products():
    """Without convert draws follow torch's generator; their mean is the value."""
    layer = ft.Linear(32, 4, bias=False, format="activations=fp32 operands=mx:int8 gradient-operands=mx:e2m1:stochastic")
    x, dy = torch.randn(2, 32), torch.randn(2, 4)
    total, found = 0, []
    for seed in (1, 1, *range(2, 400)):
        torch.manual_seed(seed)
        x.grad = None
        layer(x.requires_grad_()).backward(dy)
        found.append(x.grad.clone())
        total = total + x.grad.double()
    assert torch.equal(found[0], found[1]) and not torch.equal(found[1], found[2])
    w = torch.from_numpy(fl.quantize(layer.weight.detach().numpy(), "mx:int8", axis=0))
    exact = dy.double() @ w.double()
    assert float((total / 400 - exact).abs().max()) < 0.1 * float(exact.abs().max())


def test_spellings():
    """As on the command line: variants with suffixes, presets, files, policy:NAME."""
    for given, expected in (("fp16", "variant fp16;"), ("fp16:nomaster", "variant fp16; * master=none;"), ("fp32:nomaster", "variant fp32;"),
                            ("fp16:noscale", "variant fp16; loss-scale none;"), ("O2", "O2"), ("O2:bf16", "O2:bf16"),
                            ("O2:noscale", "preset O2; loss-scale none;"), ("policy:dfp16", "dfp16"), ("dfp16", "variant dfp16;"),
                            ("flex16+5:ngraph", "variant flex16+5; * activations=flex16+5:ngraph gradients=flex16+5:ngraph weights=flex16+5:ngraph;"),
                            ("variant fp16", "variant fp16;"), ("preset O2; fc format=fp32", "preset O2; fc format=fp32")):
        assert text_of(given) == expected, (given, text_of(given))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "my.policy")
        with open(path, "w") as file:
            file.write("preset O2\nfc* format=fp32\n")
        model = ft.convert(Images(), path, verbose=False)
        assert model.fc.format == "fp32" and model.flexlab_report.loss_scale == "dynamic" and roles(model.conv1.format).parameter("weight")[1]
        assert ft.convert(Images(), path + ":noscale", verbose=False).flexlab_report.loss_scale == "none"


def test_names():
    """Modules with the names that inputs of networks have, one module alone, and patterns with dots."""
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.input, self.tokens = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.tokens(self.input(x))
    model = ft.convert(Named(), "variant fp16; input_ format=bf16; tokens_.product activations=fp32", verbose=False)
    assert model.input.format == "bf16" and roles(model.tokens.format).y == "fp32" and model.tokens.added.format == "fp16"
    assert model(torch.ones(2, 4)).shape == (2, 4)
    assert ft.convert(nn.Linear(2, 2), "variant fp16; linear format=bf16", verbose=False).format == "bf16"


def test_refused():
    """Messages are the library's, with the line; what convert cannot do has one of its own."""
    for policy, text in (("flex17+9", "flex17+9"), ("nonsense", "nonsense"), ("nonsense", "mxfp8"),
                         ("variant fp16; noconv format=fp32", "'noconv' matches no layer"), ("variant fp16;\n@nokind format=fp32", "line 2"),
                         ("variant fp16; conv1 format=fp16; variant fp32", "before loss-scale and all rules"),
                         ("variant fp32; @product operands=mx:int9", "mx:int9"), ("variant fp32; @norm operands=fp16", "which only products"),
                         ("fp16@cuda", "computes on the processor"), ("variant fp32; loss-scale 3;", "loss scale '3'"),
                         ("variant fp32; accumulate z80;", "z80"), ("variant flex16+5; fc weights=fp16 rounding=stochastic", "rounding=stochastic"),
                         ("variant fp32; @product operands=mx:int8; accumulate h100;", "whose sums are exact")):
        raises(fl.Error, text, ft.convert, Images(), policy, verbose=False)
    for policy in (None, 3, ""):
        raises(TypeError, "a policy is a text", ft.convert, Images(), policy)
    raises(fl.Error, "expected ROLE=VALUE", ft.Linear, 2, 2, format="activations=fp32 speed=fast")
    raises(TypeError, "that convert has made", ft.CrossEntropyLoss.of, nn.Linear(2, 2))
    raises(TypeError, "that convert has made", ft.GradScaler.of, nn.Linear(2, 2))


def test_second_derivatives():
    """A penalty on gradients is an error, not one without effect."""
    model = ft.convert(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)), "fp16", verbose=False)
    x = torch.randn(3, 5).requires_grad_()
    y = model(x).sum()
    gradient, = torch.autograd.grad(y, x, create_graph=True)
    raises(RuntimeError, "a gradient of a gradient", (y + gradient.square().sum()).backward)
    assert bool(gradient.detach().isfinite().all())


def test_models_that_are_not_traced():
    """Modules have their roles too where functions are torch's: a sum of conversions by hand."""
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            if x.sum() > 1e9:
                return x
            return self.b(torch.tanh(self.a(x)))
    model = ft.convert(Own(), "variant fp16; a.product activations=bf16 gradients=fp32; b format=flex16+5", verbose=False)
    assert "not traced" in str(model.flexlab_report) and roles(model.a.format).x == "bf16" and roles(model.a.added.format).y == "fp16"
    x = torch.randn(4, 6).requires_grad_()
    model(x).sum().backward()
    product = (x.detach().bfloat16().double() @ model.a.weight.detach().half().bfloat16().double().T).bfloat16().half()
    expected = (product.double() + model.a.bias.detach().half().double()).half()
    assert torch.equal(model.a(x.detach()).half(), expected) and bool(x.grad.isfinite().all())


if __name__ == "__main__":
    main(globals())
