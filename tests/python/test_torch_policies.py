"""Policies of docs/policies.md in flexlab.torch.convert: forward, backward and updates of small models of torch have the bits of the
C library's networks with the same policy and the same weights; loss scales; products in blocks against sums in NumPy; what is
refused."""
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
from torch_policies import Images, Text, as_given, batch_of, in_torch, network_of

RATE = 0.05


class Pair:
    """A converted model and the network of the library, with the same weights, policy and optimiser."""

    def __init__(self, kind, policy, loss_scale="none", adam=False, **how):
        torch.manual_seed(0)
        model = kind().train()
        self.model = ft.convert(model, policy, verbose=False)
        report = self.model.flexlab_report
        assert not report.left and not report.notes, str(report)
        self.optimiser = ft.optim.Adam(self.model.parameters(), lr=RATE) if adam else \
            ft.optim.SGD(self.model.parameters(), lr=RATE, **how)
        self.scaler = ft.GradScaler(loss_scale, self.model)
        self.loss_of = ft.CrossEntropyLoss.of(self.model)
        self.network = network_of(model, text_of(policy), 4, loss_scale=loss_scale, **({"optimiser": "adam"} if adam else how))

    def updated(self, p):
        """What the optimiser works on; None before its first step."""
        weights = self.optimiser.of(p)
        if weights.plain:
            return p.detach().double().numpy()
        if weights.weight is None:
            return None
        value = weights.weight.wide()
        return value.transpose(0, 3, 1, 2) if weights.image else value

    def step(self, seed, where):
        x, labels = batch_of(self.model_kind, 4, seed)
        self.optimiser.zero_grad()
        y = self.model(x)
        loss = self.loss_of(y.reshape(-1, y.shape[-1]), labels.reshape(-1))
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        expected, _ = self.network.step(as_given(x), labels.numpy(), RATE)
        assert loss.item() == np.float32(expected), (where, loss.item(), expected)
        weights = in_torch(self.network)
        for name, p in self.model.named_parameters():
            ours = self.updated(p)
            assert ours is None or np.array_equal(ours, weights[name]), (where, name, np.abs(ours - weights[name]).max())
        for name, buffer in self.model.named_buffers():
            if name in weights:
                assert np.array_equal(buffer.numpy(), weights[name]), (where, name)

    @property
    def model_kind(self):
        return Text() if hasattr(self.model, "table") else Images()

    def evaluate(self, where):
        x, _ = batch_of(self.model_kind, 4, 99)
        with torch.no_grad():
            y = self.model.eval()(x)
        assert np.array_equal(y.double().numpy().reshape(-1, y.shape[-1]), self.network.predict(as_given(x))), where


def compare(kind, policy, steps=3, evaluates=True, **how):
    pair = Pair(kind, policy, momentum=0.9, weight_decay=1e-3, **how)
    for step in range(steps):
        pair.step(step, (kind.__name__, policy, step))
    if evaluates:
        pair.evaluate((kind.__name__, policy))


def test_presets():
    """Every preset, on images and on sequences."""
    for i in range(c.nn_policy_count()):
        name = c.nn_policy_at(i)
        if name != "flex16+5-sr":  # writes of weights draw by the order of the library's layouts
            for kind in (Images, Text):
                compare(kind, f"policy:{name}", steps=2)


RULES = (
    "variant flex16+5; @norm format=bf16; fc format=fp32; block2.* format=dfp16",
    "variant fp16; conv1 activations=bf16 gradients=fp32; block1.* weights=fp32 weight-gradients=bf16; fc master=fp32",
    "variant flex16+5; @product result=fp32; @loss activations=flex16+5; bn1.beta weights=fp32",
    "variant bf16; * gradients=flex16+5:ngraph; *.weight weights=flex12+5 weight-gradients=fp32 master=none",
    "preset mxfp8; block1.* format=flex16+5 operands=auto gradient-operands=auto",
    "variant dfp16; fc* activations=flex12+5:repeat; conv* gradients=flex16+5",
    "preset O1; @product operands=mx:int8:stochastic",
    "variant fp32; @product operands=nvfp4:hadamard gradient-operands=mx:e4m3fn",
    "variant bf16; @product operands=mx:e3m2 result=fp32; fc operands=auto gradient-operands=auto; * master=fp32",
    "variant fp32; @product operands=e4m3fn gradient-operands=e5m2 result=fp32; accumulate h100",
    "variant flex16+5; @product operands=flex12+5 gradient-operands=flex8+5:repeat; conv1 weights=fp32; fc.bias weights=bf16 master=none",
)


def test_roles():
    """Rules for every role: operands and their gradients, results, weights, masters, stored gradients, blocks with Hadamard
    transforms and stochastic rounding, accumulators."""
    for rule in RULES:
        compare(Images, rule)
    compare(Text, "variant fp32; @linear operands=nvfp4,nvfp4:square gradient-operands=nvfp4:stochastic:hadamard; table format=bf16")
    compare(Text, "variant flex16+5; @linear result=fp32; @norm gradients=bf16; relu* format=dfp16; head.bias weights=flex16+5 master=none",
            evaluates=False)  # the network's logits are in the format of the loss


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
